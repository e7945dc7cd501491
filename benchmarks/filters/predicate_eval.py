"""Shapes of DataFusion's ``predicate_eval`` suite: what tells strategies for AND chains apart.

[DataFusion benchmarks/sql_benchmarks/predicate_eval]; the rows are our own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.filters.policies import HillClimbOptions, RankOptions
from benchmarks.filters.simulated_loop import (
    BATCH_ROWS,
    CountedLoop,
    Stream,
    best_work,
    concatenated,
    fixed_work,
    run_counted,
)
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median, spread
from benchmarks.harness.timing import on_over_off, seconds_of
from benchmarks.workloads import (
    LOG_REGEXES,
    REGEX_NS,
    late_drift_pair_v1,
    late_drift_v1,
    log_lines_v1,
    redundant_proxy_v1,
    regex_predicates,
    skewed_partitions_v1,
)
from eddyline.data.outcomes import seed_of
from eddyline.filters.executor import ArrowExecutor
from eddyline.filters.loop import FilterLoop, run_batch
from eddyline.options import FilterOptions
from eddyline.query.predicates import Arrays, FunctionPredicate, predicate
from eddyline.testing.reference_orders import cheapest_order

PROXY_RIVALS: dict[str, Any] = {
    "rank": RankOptions(),
    "rank of counters": RankOptions(counters=True),
    "hill_climb": HillClimbOptions(),
    "independent": "independent",
}
"""What a_greedy is compared with on the redundant proxy."""

CHEAP_FILTER = 0
"""Index of the cheap predicate of ``redundant_proxy_v1``."""


def redundant_proxy(settings: Settings, independent_ns: float, every: int = 1) -> Measurement:
    """Start orders, every so many of the 120, under each policy."""
    n_rows = settings.pick(1_000_000, 500_000)
    written = list(permutations(range(5)))[:: settings.pick(every, 5)]
    expensive: dict[str, list[float]] = {name: [] for name in ("a_greedy", *PROXY_RIVALS)}
    for seed, order in enumerate(written):
        stream = redundant_proxy_v1(n_rows, seed, independent_ns)
        for name, policy in {"a_greedy": "a_greedy", **PROXY_RIVALS}.items():
            ran = run_counted(stream, written=order, seed=seed, policy=policy)
            counts = ran.evaluations.sum(0)
            expensive[name].append((counts.sum() - counts[CHEAP_FILTER]) / n_rows)
    own = np.array(expensive["a_greedy"])
    ratios = {name: np.array(expensive[name]) / own for name in PROXY_RIVALS}
    told = ", ".join(f"{name} {median(each):.2f} ({spread(each)})" for name, each in ratios.items())
    note = (
        f"least over {len(written)} start orders; median and spread of each policy over "
        f"a_greedy: {told}; expensive evaluations per row of a_greedy {median(own):.3f} "
        f"({spread(own)}), best possible 0.57, worst order behind the proxy 1.2"
    )
    return Measurement(float(ratios["rank"].min()), note, {"expensive_per_row": expensive})


DRIFT_POLICIES: dict[str, Any] = {
    "a_greedy": "a_greedy",
    "rank": RankOptions(),
    "hill_climb": HillClimbOptions(),
    "sweep": "sweep",
    "local_swaps": "local_swaps",
}


def late_drift(settings: Settings, make: Callable[[int, int], list[Stream]]) -> Measurement:
    """A change at half-time of a stream that ``make`` draws (rows, seed), under each policy."""
    n_rows = settings.pick(1_000_000, 500_000)
    ratios: dict[str, list[float]] = {name: [] for name in (*DRIFT_POLICIES, "frozen")}
    for seed in settings.seeds(9, 3):
        phases = make(n_rows, seed)
        costs, whole = phases[0].costs_ns, concatenated(phases)
        best = [cheapest_order(phase.histograms().sum(0), costs) for phase in phases]
        oracle = sum(
            fixed_work(phase.histograms(), order, costs).sum()
            for phase, order in zip(phases, best, strict=True)
        )
        for name, policy in DRIFT_POLICIES.items():
            ran = run_counted(whole, written=best[0], seed=seed, policy=policy)
            ratios[name].append(ran.total_ns / oracle)
        frozen = fixed_work(whole.histograms(), best[0], costs).sum()
        ratios["frozen"].append(frozen / oracle)
    told = ", ".join(f"{name} {median(r):.3f} ({spread(r)})" for name, r in ratios.items())
    note = f"{n_rows:,} rows; work over the switching oracle: {told}"
    return Measurement(median(ratios["a_greedy"]), note, {"work_over_oracle": ratios})


N_PARTITIONS = 16


def skewed_partitions(settings: Settings) -> Measurement:
    """Partitions in turn on two workers that keep what they learned, as Spark reuses them."""
    n_rows = settings.pick(62_500, 31_250)
    ratios, pooled_ratios = [], []
    for seed in settings.seeds(9, 3):
        partitions = skewed_partitions_v1(N_PARTITIONS, n_rows, seed)
        costs = partitions[0].costs_ns
        own = sum(best_work(part.histograms(), costs) for part in partitions)
        one = best_work(concatenated(partitions).histograms(), costs)
        workers = [CountedLoop(costs, policy="a_greedy", seed=seed) for _ in range(2)]
        spent = sum(
            workers[number % 2].run(part, seed=seed_of(seed, number)).total_ns
            for number, part in enumerate(partitions)
        )
        ratios.append(spent / own)
        pooled_ratios.append(one / own)
    note = (
        f"{N_PARTITIONS} partitions of {n_rows:,} rows on two workers, spread {spread(ratios)}; "
        f"the best single order for all rows pays {median(pooled_ratios):.3f}"
    )
    return Measurement(median(ratios), note, {"adaptive": ratios, "best_single": pooled_ratios})


def _neutral(
    predicates: list[FunctionPredicate], column: pa.Array, settings: Settings
) -> Measurement:
    n_rows = len(column)
    batches = [[column.slice(start, BATCH_ROWS)] for start in range(0, n_rows, BATCH_ROWS)]

    def run(adaptive: bool) -> None:
        executor = ArrowExecutor(predicates, [(0,)] * len(predicates))
        loop = FilterLoop("arrow", executor.filter_ids, FilterOptions(adaptive=adaptive))
        for number, batch in enumerate(batches):
            for _ in run_batch(executor, loop, batch, seed=0, first_row=number * BATCH_ROWS):
                pass

    value, control, times = on_over_off(run, settings.pick(15, 7), clock=time.process_time)
    each = times["off"].median / n_rows * 1e9
    extra = 1e6 * (times["on"].median - times["off"].median) / len(batches)
    note = (
        f"off/off control {control:.3f}; {each:.0f} ns a row, adaptation adds {extra:.0f} µs to "
        f"a batch of {BATCH_ROWS:,}; off {times['off']}, on {times['on']}"
    )
    return Measurement(value, note, {"control": control, **seconds_of(times)})


def neutral_regexes(settings: Settings, arrays: Arrays, full: int, quick: int) -> Measurement:
    """Five regexes, equally expensive, that pass 97 % each of so many rows: no order is better."""
    n_rows = settings.pick(full, quick)
    lines = log_lines_v1(n_rows, fracs=(0.97,) * len(LOG_REGEXES))["line"].combine_chunks()
    return _neutral(regex_predicates(arrays), lines, settings)


def neutral_comparisons(settings: Settings) -> Measurement:
    """Five comparisons of numbers that pass 97 % each: the work is next to nothing."""
    n_rows = settings.pick(2_000_000, 500_000)
    values = pa.array(np.random.default_rng(8).random(n_rows))
    predicates = [
        predicate(
            lambda value, bound=0.03 + number * 1e-9: pc.greater(value, bound),
            reads=["value"],
            name=f"comparison {number}",
        )
        for number in range(5)
    ]
    return _neutral(predicates, values, settings)


RUNS: Runs = {
    "redundant_proxy": partial(redundant_proxy, independent_ns=1.25 * REGEX_NS),
    "redundant_proxy_tied": partial(redundant_proxy, independent_ns=REGEX_NS, every=3),
    "late_drift": partial(late_drift, make=late_drift_v1),
    "late_drift_pair": partial(late_drift, make=late_drift_pair_v1),
    "skewed_partitions": skewed_partitions,
    "neutral": partial(neutral_regexes, arrays="pandas", full=150_000, quick=60_000),
    "neutral_arrow_regexes": partial(neutral_regexes, arrays="arrow", full=400_000, quick=150_000),
    "neutral_comparisons": neutral_comparisons,
}
