"""The experiments of [Babu05 4.7]: convergence, overhead, adaptivity.

Counted, except where the scenario says time: the thesis' figures are rates and shares of time on a
machine of 2003, so orders and evaluations are what can be compared.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.filters.simulated_loop import (
    BATCH_ROWS,
    THESIS,
    CountedRun,
    Stream,
    best_work,
    code_costs,
    concatenated,
    fixed_work,
    loop_of,
    next_sample,
    run_counted,
)
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median, spread
from benchmarks.workloads import SPREAD_FRACS, correlated_v1, exact_histogram
from eddyline.data.arrays import Floats, Ints, Mask
from eddyline.filters.executor import ArrowExecutor
from eddyline.ordering.a_greedy import AGreedyOptions
from eddyline.query.predicates import predicate
from eddyline.testing.reference_orders import cheapest_order

UNIT_NS = 100.0
"""Declared cost of one evaluation where all filters cost the same."""

AS_THESIS: dict[str, dict[str, Any]] = {
    "a_greedy": {**THESIS, "policy": AGreedyOptions(min_gain=0.0)},
    "independent": {**THESIS, "policy": "independent", "sample_prob": 0.005, "warmup_prob": 0.005},
    "sweep": {**THESIS, "policy": "sweep", "window_rows": 500},
    "local_swaps": {**THESIS, "policy": "local_swaps"},
}
"""The four algorithms with the parameters of Table 4.1, as the thesis ranks them by their lag."""

DEFAULTS: dict[str, Any] = {"policy": "a_greedy"}
"""eddyline as it comes: the budget of ``max_overhead`` caps the sampling."""


def _ratio_after_warm_up(run: CountedRun, stream: Stream, warm_up: int) -> float:
    """Return work of a run over work of the best fixed order on the same rows, warm-up left out."""
    histograms = stream.histograms()[warm_up:]
    return float(run.work_ns[warm_up:].sum() / best_work(histograms, stream.costs_ns))


def converge(
    settings: Settings, points: dict[str, tuple[int, float, int]], quick: Sequence[str]
) -> Measurement:
    """Every algorithm on streams, given by label: F, pass fraction and group size."""
    n_rows = settings.pick(1_200_000, 500_000)
    warm_up = settings.pick(20, 25)
    algorithms = {"eddyline": DEFAULTS, **AS_THESIS}
    table: dict[str, dict[str, float]] = {}
    worst_spread = ""
    for label in quick if settings.quick else points:
        n, pass_frac, group_size = points[label]
        ratios: dict[str, list[float]] = {name: [] for name in algorithms}
        for seed in settings.seeds(5, 2):
            costs = np.full(n, UNIT_NS)
            stream = correlated_v1((pass_frac,) * n, group_size, n_rows, seed, costs)
            for name, options in algorithms.items():
                run = run_counted(stream, seed=seed, **options)
                ratios[name].append(_ratio_after_warm_up(run, stream, warm_up))
        table[label] = {name: round(median(each), 4) for name, each in ratios.items()}
        if table[label]["eddyline"] == max(row["eddyline"] for row in table.values()):
            worst_spread = f"{label}: {spread(ratios['eddyline'])}"
    worst = {name: max(row[name] for row in table.values()) for name in algorithms}
    others = ", ".join(f"{name} {value:.3f}" for name, value in worst.items())
    note = f"worst point of each: {others}; seeds of the worst point {worst_spread}"
    return Measurement(worst["eddyline"], note, {"ratio_to_best_fixed": table})


BY_FILTERS = {f"n={n}": (n, 0.5, 2) for n in range(3, 11)}
BY_PASS_FRAC = {f"pass={s:g}": (8, float(s), 2) for s in np.arange(1, 10) / 10}
BY_GROUP_3 = {f"group={g}": (3, 0.5, g) for g in range(1, 4)}
BY_GROUP_8 = {f"group={g}": (8, 0.5, g) for g in range(1, 9)}
"""Points of Figures 4.11 to 4.14."""


def whole_run(settings: Settings) -> Measurement:
    """One million rows from the first row on, from the worst written order."""
    n_rows = settings.pick(1_000_000, 500_000)
    ratios = {}
    for n in (3, 5, 8):
        each = []
        for seed in settings.seeds(7, 3):
            rng = np.random.default_rng(seed)
            fracs = tuple(float(s) for s in rng.permutation(np.linspace(0.2, 0.9, n)))
            costs = UNIT_NS * rng.choice([1.0, 10.0], size=n)
            stream = correlated_v1(fracs, 2, n_rows, seed, costs)
            histograms = stream.histograms()
            best = cheapest_order(histograms.sum(0), costs)
            run = run_counted(stream, written=best[::-1], seed=seed, **DEFAULTS)
            each.append(run.total_ns / fixed_work(histograms, best, costs).sum())
        ratios[f"n={n}"] = each
    medians = {name: round(median(each), 4) for name, each in ratios.items()}
    note = ", ".join(f"{name} {medians[name]:.3f} ({spread(ratios[name])})" for name in ratios)
    return Measurement(max(medians.values()), note, {"ratio_to_best_fixed": ratios})


TABLE_4_2 = {
    "n=3 p=0.01": (98.77, 0.88, 0.20 + 0.15),
    "n=3 p=0.05": (94.17, 4.17, 0.93 + 0.73),
    "n=8 p=0.01": (96.62, 2.92, 0.20 + 0.22 + 0.04),
    "n=8 p=0.05": (84.77, 13.34, 0.91 + 0.98),
}
"""The thesis' share of time (%): tuple processing, profile tuples, window + view + decisions."""


def _added_percent(n: int, n_rows: int, seed: int, options: dict[str, Any]) -> float:
    """Return the evaluations that profiling adds to those of n filters, warm-up left out (%)."""
    stream = correlated_v1((0.5,) * n, 2, n_rows, seed, np.full(n, UNIT_NS))
    run = run_counted(stream, seed=seed, **options)
    total, extra = run.evaluations[20:].sum(), run.extra[20:].sum()
    return float(100.0 * extra / (total - extra))


def overhead_counted(settings: Settings) -> Measurement:
    """Evaluations that profiling adds, over those of the work itself, at a fixed probability."""
    n_rows = settings.pick(1_000_000, 300_000)
    shares = {}
    for label in TABLE_4_2:
        n, prob = int(label[2]), float(label.split("=")[2])
        options = {**AS_THESIS["a_greedy"], "sample_prob": prob, "warmup_prob": prob}
        each = [_added_percent(n, n_rows, seed, options) for seed in settings.seeds(5, 2)]
        shares[label] = round(median(each), 2)
    capped = [_added_percent(8, n_rows, seed, DEFAULTS) for seed in settings.seeds(5, 2)]
    told = ", ".join(
        f"{label} {share:g} % (thesis {100 * row[1] / row[0]:.2f} %)"
        for (label, share), row in zip(shares.items(), TABLE_4_2.values(), strict=True)
    )
    note = f"{told}; eddyline's budget caps it at {median(capped):.2f} % for n=8"
    return Measurement(shares["n=8 p=0.01"], note, {"percent": shares, "capped": capped})


class _Probe:
    """A filter of Table 4.2: looks a value up in an index of 10,000 keys."""

    def __init__(self, keys: Ints) -> None:
        self.keys = np.sort(keys)

    def __call__(self, values: Ints) -> Mask:
        places = np.minimum(np.searchsorted(self.keys, values), len(self.keys) - 1)
        found: Mask = self.keys[places] == values
        return found


N_KEYS = 20_000
"""Distinct values of the probed column; half of them are in each index [Babu05 4.7]."""


def _shares_of_time(n: int, prob: float, n_rows: int, seed: int) -> tuple[float, float, float]:
    """Return our share of time (%) in the three classes of ``TABLE_4_2``."""
    rng = np.random.default_rng(seed)
    passes = ~correlated_v1((0.5,) * n, 2, N_KEYS, seed, np.ones(n)).drops
    probes = [_Probe(np.flatnonzero(passes[:, f])) for f in range(n)]
    named = [
        predicate(probe, reads=["v"], name=f"f{f}", arrays="numpy")
        for f, probe in enumerate(probes)
    ]
    values = pa.array(rng.integers(N_KEYS, size=n_rows))
    executor = ArrowExecutor(named, [(0,)] * n)
    options = {**AS_THESIS["a_greedy"], "sample_prob": prob, "warmup_prob": prob}
    loop = loop_of(executor.filter_ids, options)
    frozen = loop_of(executor.filter_ids, {"adaptive": False})
    seconds = np.zeros(3)
    for number, start in enumerate(range(0, n_rows, BATCH_ROWS)):
        batch = [values.slice(start, BATCH_ROWS)]
        frozen.order = loop.order
        none = next_sample(frozen, seed, number, start, BATCH_ROWS)
        executor.run(batch, loop.order, none)  # warms the caches for both
        started = time.process_time()
        executor.run(batch, loop.order, none)
        plain = time.process_time() - started
        started = time.process_time()
        sample = next_sample(loop, seed, number, start, BATCH_ROWS)
        profile = executor.run(batch, loop.order, sample).profile
        ran = time.process_time()
        loop.step(profile)
        stepped = time.process_time()
        seconds += plain, ran - started - plain, stepped - ran
    percent = 100.0 * seconds / seconds.sum()
    return float(percent[0]), float(percent[1]), float(percent[2])


def overhead_time(settings: Settings) -> Measurement:
    """Shares of time by class, on real index probes."""
    n_rows, n_runs = settings.pick(1_000_000, 300_000), settings.pick(5, 2)
    table = {}
    for label in TABLE_4_2:
        n, prob = int(label[2]), float(label.split("=")[2])
        runs = [_shares_of_time(n, prob, n_rows, seed) for seed in range(n_runs + 1)][1:]
        table[label] = tuple(round(median(each), 2) for each in zip(*runs, strict=True))
    told = "; ".join(
        f"{label} {' / '.join(f'{share:.2f}' for share in shares)}"
        f" (thesis {' / '.join(f'{share:.2f}' for share in TABLE_4_2[label])})"
        for label, shares in table.items()
    )
    note = f"% of time in processing / profile tuples / window + view + decisions: {told}"
    return Measurement(table["n=8 p=0.01"][2], note, {"percent": table, "thesis": TABLE_4_2})


STEP_AT = 600_000
"""Row of the change [Babu05 4.7.4]."""

BLOCK_BATCHES = 2
"""Batches whose mean cost is one point of the timeline: 20,000 rows."""

STEADY_BLOCKS = 3
"""Blocks that must stay near the new greedy cost before a change counts as answered."""


def _lag_rows(run: CountedRun, fracs: tuple[float, ...], costs: Floats) -> float:
    """Return rows from the change until the order is good for the new rows, or infinity."""
    histogram = exact_histogram(fracs, 2)
    best = best_work(histogram, costs)
    after = run.orders[STEP_AT // BATCH_ROWS :]
    cost = np.array([float(histogram @ code_costs(order, costs)) for order in after])
    blocks = cost[: len(cost) // BLOCK_BATCHES * BLOCK_BATCHES].reshape(-1, BLOCK_BATCHES).mean(1)
    good = blocks <= 1.05 * best
    for start in range(len(good) - STEADY_BLOCKS + 1):
        if good[start : start + STEADY_BLOCKS].all():
            return float(start * BLOCK_BATCHES * BATCH_ROWS)
    return float("inf")


def step_change(settings: Settings) -> Measurement:
    """Rows until each algorithm has answered a step change."""
    costs = np.full(8, UNIT_NS)
    algorithms = {**AS_THESIS, "eddyline": DEFAULTS}
    lags: dict[str, list[float]] = {name: [] for name in algorithms}
    for seed in settings.seeds(12, 4):
        rng = np.random.default_rng([seed, 6])
        before, after = (tuple(map(float, rng.permutation(SPREAD_FRACS))) for _ in range(2))
        stream = concatenated(
            [
                correlated_v1(before, 2, STEP_AT, 2 * seed, costs),
                correlated_v1(after, 2, settings.pick(1_400_000, 800_000), 2 * seed + 1, costs),
            ]
        )
        for name, options in algorithms.items():
            run = run_counted(stream, seed=seed, **options)
            lags[name].append(_lag_rows(run, after, costs))
    medians = [median(lags[name]) for name in AS_THESIS]
    in_order = sum(a <= b for a, b in pairwise(medians))
    told = ", ".join(
        f"{name} {median(each) / 1000:.0f}k (most {max(each) / 1000:.0f}k)"
        for name, each in lags.items()
    )
    return Measurement(float(in_order), f"median rows of lag: {told}", {"lag_rows": lags})


PERIODS = {100_000: 20, 300_000: 8, 1_000_000: 5}
"""Rows between changes, and how many phases are run."""


def _periodic_ratio(period: int, n_phases: int, seed: int, options: dict[str, Any]) -> float:
    costs = UNIT_NS * np.array([1.0] * 4 + [10.0] * 4)
    rng = np.random.default_rng([seed, 7])
    fracs = [tuple(map(float, rng.permutation(SPREAD_FRACS))) for _ in range(n_phases)]
    streams = [
        correlated_v1(each, 2, period, n_phases * seed + number, costs)
        for number, each in enumerate(fracs)
    ]
    oracle = sum(
        fixed_work(
            stream.histograms(), cheapest_order(exact_histogram(each, 2), costs), costs
        ).sum()
        for stream, each in zip(streams, fracs, strict=True)
    )
    return float(run_counted(concatenated(streams), seed=seed, **options).total_ns / oracle)


def periodic_changes(settings: Settings) -> Measurement:
    """Work over that of an oracle, when pass fractions are permuted again and again."""
    algorithms = {**AS_THESIS, "eddyline": DEFAULTS}
    table: dict[str, dict[str, float]] = {}
    for period, n_phases in PERIODS.items():
        phases = settings.pick(n_phases, max(2, n_phases // 3))
        table[f"{period:,}"] = {
            name: round(
                median(
                    _periodic_ratio(period, phases, seed, options) for seed in settings.seeds(5, 1)
                ),
                4,
            )
            for name, options in algorithms.items()
        }
    leads = [row["sweep"] / row["a_greedy"] for row in table.values()]
    fall = leads[0] / leads[-1]
    told = "; ".join(
        f"{period}: " + ", ".join(f"{name} {value:.3f}" for name, value in row.items())
        for period, row in table.items()
    )
    return Measurement(fall, f"work over oracle: {told}", {"work_over_oracle": table})


Z_SCORES = (0.0, 1.0, 2.0, 3.0)
"""Standard errors by which a filter must be better; 0 chooses by the expected cost."""


def uncertainty(settings: Settings) -> Measurement:
    """Work of orders that are chosen by uncertainty over that of orders chosen by expected cost.

    A wrong order is expensive here: costs of five filters are up to 300 times apart, and their pass
    fractions are drawn anew twice.
    """
    n, n_rows = 5, settings.pick(150_000, 50_000)
    over_best: dict[float, list[float]] = {score: [] for score in Z_SCORES}
    for seed in settings.seeds(16, 4):
        rng = np.random.default_rng([seed, 777])
        costs = UNIT_NS * 10 ** rng.uniform(0.0, 2.5, n)
        parts, best = [], 0.0
        for number in range(3):
            fracs, group_size = rng.uniform(0.05, 0.95, n), int(rng.integers(1, 4))
            part = correlated_v1(tuple(fracs), group_size, n_rows, 10 * seed + number, costs)
            parts.append(part)
            best += best_work(part.histograms(), costs)
        for score in Z_SCORES:
            policy = AGreedyOptions(z_score=score)
            run = run_counted(concatenated(parts), seed=seed, policy=policy)
            over_best[score].append(run.total_ns / best)
    expected = float(np.mean(over_best[0.0]))
    over_expected = [float(np.mean(of)) / expected for score, of in over_best.items() if score]
    told = ", ".join(
        f"{score:g}: {np.mean(of):.3f} (worst {max(of):.3f})" for score, of in over_best.items()
    )
    note = f"work over the best orders, by standard errors: {told}"
    return Measurement(min(over_expected), note, {"over_best": over_best})


RUNS: Runs = {
    "thesis_convergence_filters": partial(converge, points=BY_FILTERS, quick=("n=3", "n=5", "n=8")),
    "thesis_convergence_pass_frac": partial(
        converge, points=BY_PASS_FRAC, quick=("pass=0.2", "pass=0.5", "pass=0.8")
    ),
    "thesis_convergence_correlation_3": partial(
        converge, points=BY_GROUP_3, quick=tuple(BY_GROUP_3)
    ),
    "thesis_convergence_correlation_8": partial(
        converge, points=BY_GROUP_8, quick=("group=1", "group=2", "group=8")
    ),
    "stationary_whole_run": whole_run,
    "thesis_overhead_counted": overhead_counted,
    "thesis_overhead_time": overhead_time,
    "thesis_step_change": step_change,
    "thesis_periodic_changes": periodic_changes,
    "thesis_uncertainty": uncertainty,
}
