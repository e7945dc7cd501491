"""Figures 6.10 to 6.18 and Table 6.1 of the thesis, by this project's own operator, without Spark.

Where the source draws the size of its synopses, hot rows stand here. What the source computes for a
constraint is compared with what is hot where all that is learned is used: rules are not told which
constraint a figure is about. A batch is hot until its end, so that it is a part of each plateau.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from benchmarks.constraints.data import cut
from benchmarks.constraints.graphs import (
    Graph,
    combined_v1,
    crossover_v1,
    oac_v1,
    rids_v1,
    two_roots_v1,
)
from benchmarks.constraints.learned import (
    RULES,
    Learner,
    compared,
    hot_ratio,
    quartiles,
    time_ratio,
)
from benchmarks.harness.scenario import Measurement, Runs, Settings
from eddyline.data.arrays import Ints
from eddyline.joins.tiers import plain_tiers

BATCH = 4_000
"""Arrivals in a batch: a block of which the source tells what was lost."""

MADE: dict[str, Callable[[Ints], Graph]] = {
    "rids": rids_v1,
    "ca": partial(two_roots_v1, is_ordered=False),
    "oap": partial(two_roots_v1, is_ordered=True),
    "oac": oac_v1,
}

ARRIVALS_A_CHILD = {"rids": 7, "ca": 11, "oap": 11, "oac": 6}

FULL_AT = {"rids": 350_000, "ca": 550_000, "oap": 550_000, "oac": 300_000}
"""Arrivals after which all windows are full."""

SYNOPSES = {"rids": 100_000, "ca": 125_000, "oap": 125_000, "oac": 75_000}
"""Rows that a join keeps that knows no constraints."""

KS = (0, 1_000, 5_000, 10_000, 20_000)

RIDS_ROWS = {0: 50_000, 5_000: 62_500, 10_000: 75_000, 20_000: 87_500}
"""Plateaus of Fig 6.10 (rows), as computed and reproduced."""

CA_ROWS = {1_000: 1_085, 5_000: 5_372, 10_000: 10_433}
"""Plateaus of Fig 6.12 (rows), as reproduced."""

CROSSOVER_ROWS = {
    0: (2_620, 185),
    1_000: (2_725, 1_737),
    2_000: (2_936, 2_645),
    3_000: (3_331, 3_453),
    5_000: (4_787, 5_274),
}
"""Mean rows of Fig 6.18 as reproduced, of CA alone and of CA and RIDS."""


def _sizes(settings: Settings, kind: str) -> tuple[int, int]:
    """Return how many arrivals there are, and how many are the warm-up."""
    full = FULL_AT[kind]
    n_warm = full if not settings.quick else full // 4
    return n_warm + settings.pick(160_000, 60_000), n_warm


@cache
def _at_k(settings: Settings, kind: str, k: int) -> dict[str, Any]:
    """Return what was measured of a graph with a k, with and without constraints."""
    n_arrivals, n_warm = _sizes(settings, kind)
    graph = MADE[kind](np.full(n_arrivals // ARRIVALS_A_CHILD[kind], k))
    batches = partial(cut, graph.streams, graph.n_arrivals // BATCH)
    *_, found = compared(
        batches, graph.lengths, keys=graph.keys, graph=graph.join, warm=n_warm // BATCH
    )
    return {**found, "needed": _needed(graph, found["oldest_us"], BATCH)}


def _needed(graph: Graph, oldest: dict[str, int], batch: int) -> int:
    """Return the rows that are as young as the oldest one that was found, and those of a batch."""
    span = max(int(at[-1]) for *_, at in graph.streams.values()) + 1
    per_us = {name: at.size / span for name, (*_, at) in graph.streams.items()}
    n_batch = sum(per_us.values()) * span / graph.n_arrivals * batch
    return int(sum(per_us[name] * us for name, us in oldest.items()) + n_batch)


def _each_k(settings: Settings, kind: str) -> dict[int, dict[str, Any]]:
    return {k: _at_k(settings, kind, k) for k in KS}


def plateau(settings: Settings) -> Measurement:
    """Hot rows over the plateau of the source, the worst k (Fig 6.10)."""
    found = {k: each for k, each in _each_k(settings, "rids").items() if k in RIDS_ROWS}
    hot = {k: float(np.mean(each["hot_on"])) for k, each in found.items()}
    note = "; ".join(f"k = {k:,}: {hot[k]:,.0f} of {RIDS_ROWS[k]:,}" for k in hot)
    return Measurement(max(hot[k] / RIDS_ROWS[k] for k in hot), note, {"hot": hot})


def without(settings: Settings) -> Measurement:
    """Rows that are kept without constraints over those of the windows, the worst graph."""
    rows = {kind: float(np.mean(_at_k(settings, kind, 0)["hot_off"])) for kind in SYNOPSES}
    worst = max(rows, key=lambda kind: abs(rows[kind] / SYNOPSES[kind] - 1))
    note = "; ".join(f"{kind} {n:,.0f} of {SYNOPSES[kind]:,}" for kind, n in rows.items())
    note += "; runs go as a whole, once their last row has left"
    return Measurement(rows[worst] / SYNOPSES[worst], note, {"rows": rows})


def needed(settings: Settings, kind: str) -> Measurement:
    """Hot rows over those that the true k needs, the worst k (Figs 6.14 and 6.16)."""
    found = _each_k(settings, kind)
    ratios = {k: float(np.mean(each["hot_on"])) / each["needed"] for k, each in found.items()}
    note = "; ".join(
        f"k = {k:,}: {np.mean(each['hot_on']):,.0f} of {each['needed']:,} needed, "
        f"{np.mean(each['hot_off']):,.0f} without"
        for k, each in found.items()
    )
    return Measurement(max(ratios.values()), note, {"ratios": ratios})


def overhead(settings: Settings, kind: str) -> Measurement:
    """Processor time with constraints over without, the worst k (Table 6.1)."""
    found = _each_k(settings, kind)
    ratios = {k: 1 / time_ratio(each) for k, each in found.items()}
    note = "; ".join(
        f"k = {k:,}: {ratios[k]:.2f} ({quartiles(each)} in half of the batches), "
        f"{hot_ratio(each):.3g} times fewer hot rows"
        for k, each in found.items()
    )
    return Measurement(max(ratios.values()), note, {"ratios": ratios})


def clustered(settings: Settings) -> Measurement:
    """Hot rows over the plateau of the source, the worst k (Fig 6.12), in batches of k / 5."""
    hot, needed = {}, {}
    for k in tuple(CA_ROWS)[: settings.pick(3, 2)]:
        batch = k // 5
        graph = MADE["ca"](np.full(40 * k // 11, k))
        on = _with(graph, batch)
        hot[k] = float(np.mean(on.hot[len(on.hot) // 2 :]))
        needed[k] = hot[k] * _with_child(graph, "s1 s2", "s3")
    note = "; ".join(
        f"k = {k:,}: {n:,.0f} of {CA_ROWS[k]:,}, {needed[k]:,.0f} without rows whose child a "
        f"filter dropped"
        for k, n in hot.items()
    )
    return Measurement(max(n / CA_ROWS[k] for k, n in hot.items()), note, {"hot": hot})


def _with_child(graph: Graph, parents: str, child: str) -> float:
    """Return the share of all rows that are children, or parents whose child passed its filter."""
    (keys, _), n_rows = graph.streams[child], sum(at.size for *_, at in graph.streams.values())
    needed = keys.size + sum(np.isin(graph.streams[p][0], keys).sum() for p in parents.split())
    return float(needed / n_rows)


def _with(graph: Graph, batch: int = BATCH, rules: frozenset[str] = RULES) -> Learner:
    """Return what learned of all arrivals of a graph."""
    with tempfile.TemporaryDirectory() as folder:
        on = Learner(folder, graph.lengths, True, graph.keys, graph.join, rules)
        for arrived in cut(graph.streams, graph.n_arrivals // batch):
            on.batch(arrived)
    return on


def varying_k(n: int) -> Ints:
    """Return a k that is flat, rises and drops gradually, and rises and drops quickly."""
    at = np.array([0, 0.2, 0.4, 0.5, 0.65, 0.7, 0.73, 0.85, 0.88, 1])
    ks = np.array([2_000, 2_000, 6_000, 6_000, 2_000, 2_000, 6_000, 6_000, 2_000, 2_000])
    k: Ints = np.interp(np.arange(n) / n, at, ks).astype(np.int64)
    return k


def varying(settings: Settings, kind: str) -> Measurement:
    """The worst block of 4,000 arrivals (Figs 6.11, 6.13 and 6.15)."""
    n = settings.pick(800_000, 200_000) // ARRIVALS_A_CHILD[kind]
    on = _with(MADE[kind](varying_k(n)))
    found = np.array(on.found)
    shares = np.array(on.cold)[found > 0] / found[found > 0]
    note = (
        f"{int((shares > 0).sum())} of {shares.size} blocks found any cold, {sum(on.cold):,} pairs "
        f"of {on.n_results:,} results; {'; '.join(plain_tiers(on.tiers.spans).values())}"
    )
    return Measurement(float(shares.max()), note, {"shares": shares.tolist()})


def combination(settings: Settings) -> Measurement:
    """Hot rows where all rules are used over those of the best one alone (Fig 6.17)."""
    n_arrivals, n_warm = _sizes(settings, "rids")
    graph = combined_v1(n_arrivals // 7)
    ways = {rule: frozenset({rule}) for rule in sorted(RULES)} | {"all": RULES, "none": frozenset()}
    hot = {}
    for name, rules in ways.items():
        hot[name] = float(np.mean(_with(graph, rules=rules).hot[n_warm // BATCH :]))
    best = min(n for name, n in hot.items() if name != "all")
    note = ", ".join(f"{name} {n:,.0f}" for name, n in hot.items())
    return Measurement(hot["all"] / best, f"hot rows by rule: {note}", {"hot": hot})


def crossover(settings: Settings) -> Measurement:
    """Hot rows over the fewer of what CA alone and CA with RIDS keep, the worst k (Fig 6.18)."""
    hot, needed = {}, {}
    for k in CROSSOVER_ROWS:
        graph = crossover_v1(k, settings.pick(100_000, 40_000))
        on = _with(graph, batch=500 if not settings.quick else 1_000)
        hot[k] = float(np.mean(on.hot[len(on.hot) // 2 :]))
        needed[k] = hot[k] * _with_child(graph, "s1", "s2")
    told = "; ".join(
        f"k = {k:,}: {n:,.0f}, CA {CROSSOVER_ROWS[k][0]:,}, both {CROSSOVER_ROWS[k][1]:,}, "
        f"{needed[k]:,.0f} without rows whose child a filter dropped"
        for k, n in hot.items()
    )
    worst = max(n / min(CROSSOVER_ROWS[k]) for k, n in hot.items())
    return Measurement(worst, told, {"hot": hot})


RUNS: Runs = {
    "constraints_thesis_without": without,
    "constraints_thesis_rids": plateau,
    "constraints_thesis_rids_varying": partial(varying, kind="rids"),
    "constraints_thesis_ca": clustered,
    "constraints_thesis_ca_varying": partial(varying, kind="ca"),
    "constraints_thesis_oap": partial(needed, kind="oap"),
    "constraints_thesis_oap_varying": partial(varying, kind="oap"),
    "constraints_thesis_oac": partial(needed, kind="oac"),
    "constraints_thesis_combined": combination,
    "constraints_thesis_crossover": crossover,
    "constraints_thesis_time_rids": partial(overhead, kind="rids"),
    "constraints_thesis_time_ca": partial(overhead, kind="ca"),
    "constraints_thesis_time_oap": partial(overhead, kind="oap"),
    "constraints_thesis_time_oac": partial(overhead, kind="oac"),
}
