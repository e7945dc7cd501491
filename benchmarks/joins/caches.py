"""Caches of joined rows in the pipelines of a join, counted and timed: the thesis' experiments.

Rows come in batches, so there are no pipelines for deletions: of the hits of the thesis those that
expiring rows had are gone, and a key that comes r times hits 1 - 1/r of the time where it was
1 - 1/(2r). Repeats are spread over batches: what repeats inside one costs nothing to begin with.
Sizes of windows and curves are not in the thesis; ratios, crossovers and trends can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np

from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median
from benchmarks.joins.runs import Arrivals, Run, all_used, decided, lockstep, run, timed, uniform
from eddyline.joins.graph import JoinGraph

GAP = 40
"""Values between the repeats of a value in lockstep: each comes in another batch."""


def hit_frac(done: Run, skip: int = 0) -> float:
    """Return the share of the distinct keys that were in a cache."""
    uses = [
        use
        for report in done.reports[skip:]
        if report.caches is not None
        for use in report.caches.uses.values()
    ]
    return sum(use.n_hits for use in uses) / max(sum(use.n_keys for use in uses), 1)


def same(*runs: Run) -> None:
    """Raise unless all runs found the same results."""
    found = {(each.n_results, each.checks) for each in runs}
    assert len(found) == 1, f"runs found different results: {found}"


def both(arrivals: Arrivals, batch_rows: int, **given: Any) -> tuple[Run, Run]:
    """Return a run of plain pipelines and one with the caches that are chosen."""
    plain = run(arrivals, batch_rows)
    done = run(arrivals, batch_rows, caches=decided(arrivals, **given))
    same(plain, done)
    return plain, done


def worst_share(points: Mapping[float, Arrivals], batch_rows: int, said: str) -> Measurement:
    """Return the counted work of the chosen caches over plain, the worst of some points."""
    shares = {}
    for at, arrivals in points.items():
        plain, done = both(arrivals, batch_rows)
        shares[at] = done.share(plain)
    told = ", ".join(f"{at:g} {share:.2f}" for at, share in shares.items())
    return Measurement(max(shares.values()), f"{said}: {told}", {"shares": shares})


REPEATS = (1, 2, 3, 5, 10)


def hits(settings: Settings) -> Measurement:
    """The largest distance of the hit fraction from 1 - 1/r."""
    fracs = {}
    for repeats in REPEATS:
        arrivals = lockstep(repeats, settings.pick(4_000, 1_000), GAP)
        rows = GAP * (repeats + 2)
        done = run(arrivals, rows, all_used(arrivals, "r", "s"))
        same(done, run(arrivals, rows))
        fracs[repeats] = hit_frac(done)
    worst = max(abs(frac - (1 - 1 / repeats)) for repeats, frac in fracs.items())
    told = ", ".join(f"r={repeats} {frac:.3f}" for repeats, frac in fracs.items())
    return Measurement(worst, f"hits: {told}", {"hit_fracs": fracs})


def over_hits(settings: Settings) -> Measurement:
    """Counted work with the forced cache over plain at r = 10; other r in the note."""
    shares, chosen = {}, {}
    for repeats in REPEATS:
        arrivals = lockstep(repeats, settings.pick(4_000, 1_000), GAP)
        rows = GAP * (repeats + 2)
        plain, adaptive = both(arrivals, rows)
        forced = run(arrivals, rows, all_used(arrivals, "r", "s"))
        same(plain, forced)
        shares[repeats] = forced.share(plain)
        chosen[repeats] = adaptive.share(plain)
    told = ", ".join(f"r={r} {shares[r]:.2f} ({chosen[r]:.2f})" for r in shares)
    return Measurement(shares[10], f"forced (chosen): {told}", {"forced": shares, "chosen": chosen})


def selectivity(settings: Settings) -> Measurement:
    """Counted work of the chosen caches over plain, worst over the partners of a row of T."""
    n_rows = settings.pick(240_000, 80_000)
    points = {
        partners: uniform((1, 1, 8), int(1_200 / partners**0.5), n_rows, length=12_000)
        for partners in (0.25, 0.5, 1.0, 2.0, 4.0)
    }
    return worst_share(points, 4_000, "by joined rows of r and s per row of t")


def update_rates(settings: Settings) -> Measurement:
    """Counted work of the chosen caches over plain, worst over rates of changes to probes."""
    n_rows = settings.pick(240_000, 80_000)
    points = {
        ratio: uniform((ratio, ratio, 1), 2_000, n_rows, length=12_000)
        for ratio in (0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
    }
    return worst_share(points, 4_000, "by ratio")


def chain_orders(names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return pipelines that all begin with the first inputs: their closed sets are nested."""
    return {name: tuple(other for other in names if other != name) for name in names}


def many_inputs(n: int, n_rows: int, seed: int = 0) -> Arrivals:
    """Return a join of n inputs on one attribute; the latter half come five times as often."""
    rng = np.random.default_rng(seed)
    names = tuple(f"s{at}" for at in range(1, n + 1))
    graph = JoinGraph(names, (frozenset(names),))
    rates = np.array([1.0 if at < n // 2 else 5.0 for at in range(n)])
    of = rng.choice(n, n_rows, p=rates / rates.sum())
    n_keys = int(12_000 / rates.sum() * 1.25)
    lengths = {
        name: 12_000 if rate == 1.0 else 12_000 // 5
        for name, rate in zip(names, rates, strict=True)
    }
    return Arrivals(graph, chain_orders(names), of, rng.integers(0, n_keys, (1, n_rows)), lengths)


def inputs(settings: Settings) -> Measurement:
    """Counted work of the chosen caches over plain at n = 7; other n in the note."""
    shares, used = {}, {}
    for n in range(3, 8):
        arrivals = many_inputs(n, settings.pick(240_000, 80_000))
        caches = decided(arrivals)
        plain, done = run(arrivals, 4_000), run(arrivals, 4_000, caches=caches)
        same(plain, done)
        shares[n] = done.share(plain)
        used[n] = len(caches.states.used), len(caches.states.states)
    told = ", ".join(
        f"n={n} {share:.2f} ({used[n][0]} of {used[n][1]} caches)" for n, share in shares.items()
    )
    return Measurement(shares[7], told, {"shares": shares, "used": used})


TABLE_52 = {
    "D1": ((10, 1, 1, 1), (0.004, 0.005, 0.005, 0.007, 0.0045, 0.005)),
    "D2": ((8, 1, 1, 8), (0.004, 0.005, 0.005, 0.007, 0.0045, 0.005)),
    "D3": ((10, 15, 1, 5), (0.003, 0.005, 0.007, 0.0045, 0.006, 0.008)),
    "D4": ((1, 1, 1, 1), (0.003, 0.004, 0.0067, 0.002, 0.0023, 0.0027)),
    "D5": ((4, 1, 1, 4), (0.005, 0.007, 0.005, 0.006, 0.005, 0.002)),
    "D6": ((1, 1, 1, 1), (0.005, 0.0033, 0.0025, 0.0067, 0.005, 0.0075)),
    "D7": ((1, 1, 1, 1), (0.0,) * 6),
    "D8": ((1, 1, 1, 1), (0.001,) * 6),
}
"""Rates of R, S, T, U, and selectivities of RS, RT, RU, ST, SU, TU [Babu05 Table 5.2]."""

PAIRS = ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))
COMMON, MASS, PAIR_MASS = 0.5, 0.4, 0.2
"""Share of the smallest selectivity that values common to all four carry, which the table leaves
open, and most of a stream that is of those values, and of those of one pair."""


def distributions(fracs: Sequence[float]) -> list[dict[int, float]]:
    """Return for each of four streams the probability of each value: pairs join as often as asked.

    Args:
        fracs: the share of pairs that join, of each pair of streams.
    """
    found: list[dict[int, float]] = [{} for _ in range(4)]
    following, carried, least = 0, 0.0, min(fracs)
    if least > 0:
        n = int(np.ceil(MASS**2 / (COMMON * least)))
        while (COMMON * least * n) ** 0.5 > MASS:
            n -= 1
        mass = (COMMON * least * n) ** 0.5
        carried = mass**2 / n
        for each in found:
            each.update(dict.fromkeys(range(n), mass / n))
        following = n
    for (one, other), frac in zip(PAIRS, fracs, strict=True):
        rest = frac - carried
        if rest > 1e-12:
            n = max(1, int(PAIR_MASS**2 / rest))
            mass = (rest * n) ** 0.5
            values = range(following, following + n)
            found[one].update(dict.fromkeys(values, mass / n))
            found[other].update(dict.fromkeys(values, mass / n))
            following += n
    for number, each in enumerate(found):
        left = max(1.0 - sum(each.values()), 0.0)
        own = range(following + number * 10_000, following + number * 10_000 + 1_000)
        each.update({value: left / len(own) for value in own})
    return found


def four_way(point: str, n_rows: int, window_rows: int = 250, seed: int = 0) -> Arrivals:
    """Return the rows of a point of Table 5.2; every window has about as many rows."""
    rng = np.random.default_rng(seed)
    rates, fracs = TABLE_52[point]
    shares = np.array(rates) / sum(rates)
    names = ("r", "s", "t", "u")
    of = rng.choice(4, n_rows, p=shares)
    codes = np.empty((1, n_rows), np.int64)
    for number, each in enumerate(distributions(fracs)):
        at = np.flatnonzero(of == number)
        weights = np.array(list(each.values()))
        codes[0, at] = rng.choice(np.array(list(each)), at.size, p=weights / weights.sum())
    lengths = {name: int(window_rows / share) for name, share in zip(names, shares, strict=True)}
    graph = JoinGraph(names, (frozenset(names),))
    return Arrivals(graph, chain_orders(names), of, codes, lengths)


def best_orders(arrivals: Arrivals, batch_rows: int) -> dict[str, tuple[str, ...]]:
    """Return the order of each pipeline that takes the least counted work alone."""
    best: dict[str, tuple[float, tuple[str, ...]]] = {}
    names = arrivals.graph.inputs
    tried = {name: list(permutations([x for x in names if x != name])) for name in names}
    for at in range(len(tried[names[0]])):
        orders = {name: tried[name][at] for name in names}
        done = run(replace(arrivals, orders=orders), batch_rows)
        for name in names:
            works = [
                each.n_in + each.n_out
                for report in done.reports
                for (pipeline, _), each in report.work.probes.items()
                if pipeline == name
            ]
            best[name] = min(best.get(name, (np.inf, ())), (sum(works), orders[name]))
    return {name: order for name, (_, order) in best.items()}


def table_52(settings: Settings) -> Measurement:
    """Counted work of the chosen caches over the best plain pipelines; worst of D1 to D8."""
    shares: dict[str, dict[str, float]] = {}
    n_rows, batch_rows = settings.pick(48_000, 16_000), 800
    for point in TABLE_52:
        arrivals = four_way(point, n_rows)
        orders = best_orders(replace(arrivals, of=arrivals.of[:8_000]), batch_rows)
        arrivals = replace(arrivals, orders=orders)
        plain, chosen = both(arrivals, batch_rows)
        kept = {}
        for first in {tuple(sorted(each[:2])) + each[2:] for each in permutations("rstu")}:
            other = replace(arrivals, orders=chain_orders(first))
            forced = run(other, batch_rows, all_used(other, *first[:2]))
            same(plain, forced)
            kept["⋈".join(first)] = forced.share(plain)
        best = min(kept, key=lambda each: kept[each])
        shares[point] = {"chosen": chosen.share(plain), "best kept pair": kept[best]}
    told = ", ".join(
        f"{point} {each['chosen']:.2f}/{each['best kept pair']:.2f}"
        for point, each in shares.items()
    )
    note = f"chosen/best order with a kept pair, over best plain: {told}; w=250, f={COMMON}"
    return Measurement(max(each["chosen"] for each in shares.values()), note, {"shares": shares})


def burst(settings: Settings) -> Measurement:
    """Counted work of the chosen caches over plain while and after the rate of R rises 20 times."""
    n_rows = settings.pick(400_000, 160_000)
    calm = uniform((1, 1, 8), 400, n_rows // 2, length=6_000)
    after = uniform((20, 1, 8), 400, n_rows // 2, length=6_000, seed=1)
    arrivals = replace(
        calm,
        of=np.concatenate([calm.of, after.of]),
        codes=np.concatenate([calm.codes, after.codes], axis=1),
    )
    plain, done = both(arrivals, 4_000)
    half = len(plain.works) // 2
    before = sum(done.works[:half]) / sum(plain.works[:half])
    late = done.share(plain, half)
    n_used = [len(plan.used) for plan in done.plans]
    worst = max(a / b for a, b in zip(done.works[half:], plain.works[half:], strict=True))
    note = f"before {before:.2f}, from the burst on {late:.2f}, worst batch of it {worst:.2f}"
    return Measurement(max(before, late), note, {"n_used": n_used})


def memory(settings: Settings) -> Measurement:
    """Counted work of the chosen caches over plain, worst over the memory that they may take."""
    arrivals = uniform((1, 1, 8), 400, settings.pick(320_000, 120_000), length=6_000)
    shares: dict[int, float] = {}
    plain = run(arrivals, 2_000)
    for limit in (0, 12_000, 25_000, 50_000, 100_000, 1 << 24):
        done = run(arrivals, 2_000, caches=decided(arrivals, limit))
        same(plain, done)
        shares[limit] = done.share(plain)
    told = ", ".join(f"{limit:,} B {share:.2f}" for limit, share in shares.items())
    return Measurement(max(shares.values()), told, {"shares": shares})


def times(settings: Settings, n_keys: int, quick: int) -> Measurement:
    """Time of pipelines, caches and profiles over that of plain pipelines, in turns."""
    n_keys, rates = settings.pick(n_keys, quick), (1, 1, 8)
    n_rows = settings.pick(2_000_000, 400_000)
    arrivals = uniform(rates, n_keys, n_rows, length=n_rows // 5)
    small = uniform(rates, 1_000, 40_000, length=8_000)
    run(small, 2_000, caches=timed(small), is_counted=False)  # compiles
    run(small, 2_000, all_used(small, "r", "s"))
    ratios: list[float] = []
    details: dict[str, Any] = {}
    for turn in range(settings.pick(25, 2)):
        runs: dict[str, Run] = {}
        for kind in ("plain", "caches") if turn % 2 else ("caches", "plain"):
            caches = timed(arrivals) if kind == "caches" else None
            runs[kind] = run(arrivals, n_rows // 50, caches=caches, is_counted=False)
        plain, done = runs["plain"], runs["caches"]
        same(plain, done)
        ratios.append(sum(done.seconds) / sum(plain.seconds))
        details["n_used"] = [len(plan.used) for plan in done.plans]
    note = ", ".join(f"{each:.2f}" for each in ratios)
    return Measurement(median(ratios), f"runs: {note}; 50 batches", details)


RUNS: Runs = {
    "joins_caches_hits": hits,
    "joins_caches_over_hits": over_hits,
    "joins_caches_selectivity": selectivity,
    "joins_caches_updates": update_rates,
    "joins_caches_inputs": inputs,
    "joins_caches_table_52": table_52,
    "joins_caches_burst": burst,
    "joins_caches_memory": memory,
    "joins_caches_time": partial(times, n_keys=40_000, quick=8_000),
    "joins_caches_time_guard": partial(times, n_keys=20_000_000, quick=4_000_000),
}
