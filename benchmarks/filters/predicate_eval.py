"""Shapes of DataFusion's ``predicate_eval`` suite: what tells strategies for AND chains apart.

[DataFusion benchmarks/sql_benchmarks/predicate_eval]; the rows are our own.
"""

from __future__ import annotations

import time
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.filters.policies import HillClimbOptions, RankOptions
from benchmarks.filters.simulated_loop import (
    BATCH_ROWS,
    CountedLoop,
    best_order,
    concatenated,
    fixed_work,
    run_counted,
)
from benchmarks.harness.scenario import Measurement, Scenario, Settings, at_least, at_most
from benchmarks.harness.statistics import median, spread
from benchmarks.harness.timing import interleaved, paired_ratio
from benchmarks.workloads import (
    LOG_REGEXES,
    REGEX_NS,
    late_drift_pair_v1,
    late_drift_v1,
    log_lines_v1,
    redundant_proxy_v1,
    skewed_partitions_v1,
)
from eddyline.data.sampling import seed_of
from eddyline.filters.executor import ArrowExecutor
from eddyline.filters.loop import FilterLoop
from eddyline.filters.task import run_batch
from eddyline.options import FilterOptions
from eddyline.query.predicates import predicate

if TYPE_CHECKING:
    from collections.abc import Callable

from benchmarks.filters.simulated_loop import Stream

# -- redundant proxy ------------------------------------------------------------------------------

PROXY_RIVALS: dict[str, Any] = {
    "rank": RankOptions(),
    "rank of counters": RankOptions(counters=True),
    "hill_climb": HillClimbOptions(),
    "independent": "independent",
}
"""What a_greedy is compared with on the redundant proxy."""

CHEAP_FILTER = 0
"""Index of the cheap predicate of ``redundant_proxy_v1``."""


def _redundant_proxy(independent_ns: float, every: int = 1) -> Callable[[Settings], Measurement]:
    def run(settings: Settings) -> Measurement:
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
        told = ", ".join(
            f"{name} {median(each):.2f} ({spread(each)})" for name, each in ratios.items()
        )
        note = (
            f"least over {len(written)} start orders; median and spread of each policy over "
            f"a_greedy: {told}; expensive evaluations per row of a_greedy {median(own):.3f} "
            f"({spread(own)}), best possible 0.57, worst order behind the proxy 1.2"
        )
        return Measurement(float(ratios["rank"].min()), note, {"expensive_per_row": expensive})

    return run


# -- late drift -----------------------------------------------------------------------------------

DRIFT_POLICIES: dict[str, dict[str, Any]] = {
    "a_greedy": {"policy": "a_greedy"},
    "rank": {"policy": RankOptions()},
    "hill_climb": {"policy": HillClimbOptions()},
    "sweep": {"policy": "sweep"},
    "local_swaps": {"policy": "local_swaps"},
}


def _late_drift(make: Callable[[int, int], list[Stream]]) -> Callable[[Settings], Measurement]:
    def run(settings: Settings) -> Measurement:
        n_rows = settings.pick(1_000_000, 500_000)
        ratios: dict[str, list[float]] = {name: [] for name in (*DRIFT_POLICIES, "frozen")}
        for seed in settings.seeds(9, 3):
            phases = make(n_rows, seed)
            costs, whole = phases[0].costs_ns, concatenated(phases)
            best = [best_order(phase.histograms().sum(0), costs) for phase in phases]
            oracle = sum(
                fixed_work(phase.histograms(), order, costs).sum()
                for phase, order in zip(phases, best, strict=True)
            )
            for name, options in DRIFT_POLICIES.items():
                ran = run_counted(whole, written=best[0], seed=seed, **options)
                ratios[name].append(ran.total_ns / oracle)
            frozen = fixed_work(whole.histograms(), best[0], costs).sum()
            ratios["frozen"].append(frozen / oracle)
        told = ", ".join(f"{name} {median(r):.3f} ({spread(r)})" for name, r in ratios.items())
        note = f"{n_rows:,} rows; work over the switching oracle: {told}"
        return Measurement(median(ratios["a_greedy"]), note, {"work_over_oracle": ratios})

    return run


# -- skewed partitions ----------------------------------------------------------------------------

N_PARTITIONS = 16


def skewed_partitions(settings: Settings) -> Measurement:
    """Partitions in turn on two workers that keep what they learned, as Spark reuses them."""
    n_rows = settings.pick(62_500, 31_250)
    ratios, pooled_ratios = [], []
    for seed in settings.seeds(9, 3):
        partitions = skewed_partitions_v1(N_PARTITIONS, n_rows, seed)
        costs = partitions[0].costs_ns
        own = sum(
            fixed_work(part.histograms(), best_order(part.histograms().sum(0), costs), costs).sum()
            for part in partitions
        )
        pooled = concatenated(partitions).histograms()
        one = fixed_work(pooled, best_order(pooled.sum(0), costs), costs).sum()
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


# -- neutral --------------------------------------------------------------------------------------


def _run_blocks(batches: list[Any], predicates: list[Any], *, adaptive: bool) -> None:
    executor = ArrowExecutor(predicates, [(0,)] * len(predicates))
    loop = FilterLoop("arrow", executor.filter_ids, FilterOptions(adaptive=adaptive))
    for number, batch in enumerate(batches):
        for _ in run_batch(executor, loop, batch, seed=0, first_row=number * BATCH_ROWS):
            pass


def _neutral(predicates: list[Any], columns: list[Any], settings: Settings) -> Measurement:
    n_rows = len(columns[0])
    batches = [
        [column.slice(start, BATCH_ROWS) for column in columns]
        for start in range(0, n_rows, BATCH_ROWS)
    ]
    times = interleaved(
        {
            "off": lambda: _run_blocks(batches, predicates, adaptive=False),
            "on": lambda: _run_blocks(batches, predicates, adaptive=True),
            "off again": lambda: _run_blocks(batches, predicates, adaptive=False),
        },
        settings.pick(15, 7),
        clock=time.process_time,
    )
    value = paired_ratio(times["on"], times["off"])
    control = paired_ratio(times["off again"], times["off"])
    each = times["off"].median / n_rows * 1e9
    extra = 1e6 * (times["on"].median - times["off"].median) / len(batches)
    note = (
        f"off/off control {control:.3f}; {each:.0f} ns a row, adaptation adds {extra:.0f} µs to "
        f"a batch of {BATCH_ROWS:,}; off {times['off']}, on {times['on']}"
    )
    return Measurement(
        value, note, {"control": control, **{name: t.seconds for name, t in times.items()}}
    )


def neutral_regexes(settings: Settings) -> Measurement:
    """Five regexes of Python, equally expensive, that pass 97 % each: no order is better."""
    return _neutral_lines(_pandas_regex, settings.pick(150_000, 60_000), settings)


def neutral_arrow(settings: Settings) -> Measurement:
    """The same five regexes by Arrow's compiled kernel, which takes some 60 ns a row."""
    return _neutral_lines(_arrow_regex, settings.pick(400_000, 150_000), settings)


def _neutral_lines(make: Callable[[str], Any], n_rows: int, settings: Settings) -> Measurement:
    lines = log_lines_v1(n_rows, fracs=(0.97,) * len(LOG_REGEXES))["line"].combine_chunks()
    return _neutral([make(regex) for regex in LOG_REGEXES], [lines], settings)


def _pandas_regex(regex: str) -> Any:
    return predicate(
        lambda line: line.str.contains(regex), reads=["line"], name=regex, arrays="pandas"
    )


def _arrow_regex(regex: str) -> Any:
    return predicate(lambda line: pc.match_substring_regex(line, regex), reads=["line"], name=regex)


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
    return _neutral(predicates, [values], settings)


SCENARIOS = (
    Scenario(
        id="redundant_proxy",
        shows="expensive evaluations of rank over a_greedy, least of 120 start orders; the "
        "independent regex costs a quarter more",
        run=_redundant_proxy(1.25 * REGEX_NS),
        target=at_least(1.9),
        policies=("a_greedy", "rank", "hill_climb", "independent"),
    ),
    Scenario(
        id="redundant_proxy_tied",
        shows="the same with four regexes that tie exactly: rank finds the best order by luck",
        run=_redundant_proxy(REGEX_NS, every=3),
        target=None,
        policies=("a_greedy", "rank", "hill_climb", "independent"),
    ),
    Scenario(
        id="late_drift",
        shows="work over an oracle that switches instantly, five regexes, change at half-time",
        run=_late_drift(late_drift_v1),
        target=at_most(1.15),
        policies=tuple(DRIFT_POLICIES),
    ),
    Scenario(
        id="late_drift_pair",
        shows="the same for two predicates that swap 0.1 % and 50 %",
        run=_late_drift(late_drift_pair_v1),
        target=at_most(1.15),
        policies=tuple(DRIFT_POLICIES),
    ),
    Scenario(
        id="skewed_partitions",
        shows="work over the best order of each partition, every partition another",
        run=skewed_partitions,
        target=at_most(1.05),
        policies=("a_greedy",),
    ),
    Scenario(
        id="neutral",
        shows="time with adaptation over without, five equal Python regexes that drop next to "
        "nothing, no Spark",
        run=neutral_regexes,
        target=at_most(1.02),
        policies=("a_greedy", "fixed"),
        counted=False,
    ),
    Scenario(
        id="neutral_arrow_regexes",
        shows="the same by Arrow's compiled regex kernel, which costs some 60 ns a row",
        run=neutral_arrow,
        target=None,
        policies=("a_greedy", "fixed"),
        counted=False,
    ),
    Scenario(
        id="neutral_comparisons",
        shows="the same for five comparisons of numbers, which cost some ns a row",
        run=neutral_comparisons,
        target=None,
        policies=("a_greedy", "fixed"),
        counted=False,
    ),
)
