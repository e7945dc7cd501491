"""The paper's experiments with a change of order priced at what it takes on Spark.

In ``change_paper`` a change of order costs nothing but the CPU time that decides on it. Spark has
to plan another AND chain and to generate, compile and load code for it. What that takes is measured
in the same process (``change_price``) and added for every change of every scheme:

    total = evaluations · 10 µs + CPU time of monitoring and analysis + changes of order · price

*Measured*: the price, the CPU time. *Counted*: evaluations and changes of order, in the very runs
of ``change_paper``: the same streams, seeds and parameters, nothing is simulated anew. *Declared*:
an evaluation costs 10 µs, as in the paper. That fixes what a price of milliseconds means: with two
evaluations a tuple a core takes 50,000 tuples a second, and 10 ms are the work of 500 tuples.
Spark's native predicates are far cheaper than 10 µs; the price would weigh more there, per tuple.

The price is the median of pairs: a job over a thousand rows whose chain is in an order that was
never compiled, less the same job in an order that was, of the same predicates and with nothing else
different. Both are parsed and planned, as every micro-batch is. Spark's own counter of compilations
has to stand still in the one and to move in the other, or the scenario fails. Every pair has other
constants, so no order ever comes back by chance; which of the two runs first alternates. Sessions
are warm: the first jobs are left out, though they cost several times as much. The chain is the
plain one. A batch that is also profiled, as the engine's are, compiles more; it is told beside.
On a cluster every executor compiles again, and new code runs interpreted at first: not counted.

*The simulation changes orders at any tuple, Spark only where a micro-batch begins.* So the notes
also have the saving at batches of 10,000 tuples: every decision stays, a batch runs in the order
that was in force when it began, and a change is paid where it differs from that of the batch
before. ``change_priced_batches`` is that saving over all cells.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Observation

from benchmarks.change import intrusion as change_intrusion
from benchmarks.change.costing import WINDOWS, Costing, Outcomes, detectors_of, mean_of, means
from benchmarks.change.paper import ABRUPT_4, ABRUPT_64, GRADUAL_4, PAPER, Cell, run_cell
from benchmarks.filters.simulated_loop import BATCH_ROWS
from benchmarks.harness.needs import missing
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.spark import noop, spark_session, written
from benchmarks.harness.statistics import median
from benchmarks.workloads import KDD_CUP
from eddyline.spark.filters.native_block import NativeBlock

OTHER_PRICES_MS = (0.0, 1.0, 5.0, 10.0)
"""Prices told beside the measured one."""

N_ROWS = 1000
"""Rows of a job whose compilation is timed: few, so that running them hardly counts."""

TOLD = ("beta_cusum", "beta_cusum_memory", "adwin", "page_hinkley", "never")
"""Schemes whose saving is told; the JSON has all."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two jobs of the same predicates."""

    known_ms: float
    """The order was compiled before."""
    new_ms: float
    """It was not."""
    compile_ms: float = 0.0
    """What Spark says it took to compile the new order's code."""

    @property
    def price_ms(self) -> float:
        """What the new order added (ms)."""
        return self.new_ms - self.known_ms


@dataclass(frozen=True, slots=True)
class Price:
    """What a change of order takes on Spark."""

    n_filters: int
    pairs: tuple[Pair, ...]
    n_compilations: int
    """Classes that a new order had compiled, the most of all pairs."""

    @property
    def ms(self) -> float:
        """Median over the pairs (ms)."""
        return median(pair.price_ms for pair in self.pairs)

    @property
    def quartiles(self) -> tuple[float, float]:
        """First and third quartile over the pairs (ms)."""
        low, high = np.percentile([pair.price_ms for pair in self.pairs], [25, 75])
        return float(low), float(high)

    def __str__(self) -> str:
        low, high = self.quartiles
        compiling = median(pair.compile_ms for pair in self.pairs)
        return (
            f"{self.ms:.1f} ms (quartiles {low:.1f}…{high:.1f}, {len(self.pairs)} pairs; by Spark's"
            f" own clock compiling {compiling:.1f})"
        )

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "ms": self.ms,
            "quartiles_ms": self.quartiles,
            "known_ms": [pair.known_ms for pair in self.pairs],
            "new_ms": [pair.new_ms for pair in self.pairs],
            "compile_ms": [pair.compile_ms for pair in self.pairs],
            "compilations": self.n_compilations,
        }


def texts(n_filters: int, series: int) -> tuple[str, ...]:
    """Return predicates that pass every row: comparisons and regexes in turns.

    Another series has other constants, and so other code, but code of the same length.
    """
    number = 100_000 + series
    return tuple(
        f"line RLIKE '^request [0-9]+ .*(ms|x{number}y{100 + f})'"
        if f % 2
        else f"n{f // 2 % 8} < {number}{100 + f}"
        for f in range(n_filters)
    )


def other_order(n_filters: int, series: int) -> tuple[int, ...]:
    """Return an order that is not the one by index."""
    by_index = tuple(range(n_filters))
    order = tuple(np.random.default_rng([13, series]).permutation(n_filters).tolist())
    return order if order != by_index else by_index[::-1]


@cache
def _rows() -> DataFrame:
    rng = np.random.default_rng(14)
    columns = {f"n{k}": rng.integers(0, 1000, N_ROWS) for k in range(8)}
    lines = pa.array([f"request {row} took {row * 7 % 991} ms" for row in range(N_ROWS)])
    folder = written(pa.table(columns).append_column("line", lines), n_files=1)
    return spark_session().read.parquet(str(folder))


def _compiled() -> tuple[int, float]:
    """Return how many classes this JVM has compiled for Spark so far, and the time in it (ms)."""
    jvm: Any = spark_session()._jvm
    spark = jvm.org.apache.spark
    n_classes = spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME().getCount()
    took_ns = spark.sql.catalyst.expressions.codegen.CodeGenerator.compileTime()
    return int(n_classes), took_ns / 1e6


@dataclass(frozen=True, slots=True)
class Job:
    """What one job took."""

    ms: float
    n_compiled: int
    """Classes that it had compiled."""
    compile_ms: float


def _job(block: NativeBlock, order: Sequence[int], is_profiled: bool) -> Job:
    n_before, ms_before = _compiled()
    started = time.perf_counter()
    if is_profiled:
        seen = Observation()
        df = block.apply_profiled(_rows(), tuple(order), prob=1 / 32, seed=1, observation=seen)
    else:
        df = block.apply(_rows(), tuple(order))
    noop(df)
    took = time.perf_counter() - started
    n_compiled, compile_ms = _compiled()
    return Job(1e3 * took, n_compiled - n_before, compile_ms - ms_before)


@cache
def price_of(
    n_filters: int, n_warm: int, n_pairs: int, first_series: int = 0, *, is_profiled: bool = False
) -> Price:
    """Measure what a change of order takes.

    Args:
        n_filters: predicates of the chain.
        n_warm: pairs that come first and are left out.
        n_pairs: pairs that count.
        first_series: the series of the first pair: no other call may have it.
        is_profiled: whether the jobs sample outcome codes too.
    """
    pairs, n_compilations = [], 0
    ids = tuple(f"f{f}" for f in range(n_filters))
    for number in range(n_warm + n_pairs):
        series = first_series + number
        block = NativeBlock(ids, texts(n_filters, series))
        orders = {"known": tuple(range(n_filters)), "new": other_order(n_filters, series)}
        _job(block, orders["known"], is_profiled)
        names = ("known", "new") if number % 2 else ("new", "known")
        ran = {name: _job(block, orders[name], is_profiled) for name in names}
        known, new = ran["known"], ran["new"]
        if known.n_compiled or not new.n_compiled:
            told = ", ".join(f"{name} {each.n_compiled}" for name, each in ran.items())
            msg = f"compilations of {n_filters} predicates in series {series}: {told}"
            raise RuntimeError(msg)
        if number >= n_warm:
            pairs.append(Pair(known.ms, new.ms, new.compile_ms))
            n_compilations = max(n_compilations, new.n_compiled)
    return Price(n_filters, tuple(pairs), n_compilations)


def measured_price(n_filters: int, settings: Settings) -> Price:
    """Return the price of a change of order of a plain chain, measured once per process."""
    _warm_up(settings)
    return price_of(n_filters, settings.pick(10, 2), settings.pick(40, 5), 1000 * n_filters)


@cache
def _warm_up(settings: Settings) -> Price:
    """Let the JVM compile its own compiler: the first jobs take several times as long."""
    return price_of(4, 0, settings.pick(40, 4), 800_000)


def change_price(settings: Settings) -> Measurement:
    """What a change of order takes, by the number of predicates."""
    cold = _warm_up(settings)
    plain = {n: measured_price(n, settings) for n in (4, 64)}
    n_warm, n_pairs = settings.pick(10, 1), settings.pick(20, 3)
    profiled = {
        n: price_of(n, n_warm, n_pairs, 500_000 + 1000 * n, is_profiled=True) for n in (4, 64)
    }
    told = [f"{n} predicates {price}" for n, price in plain.items()]
    told += [f"profiled as the engine's batches are, {n}: {each}" for n, each in profiled.items()]
    told += [f"the first {len(cold.pairs)} pairs of the session, 4: {cold}"]
    known = ", ".join(
        f"{n}: {median(pair.known_ms for pair in price.pairs):.0f}" for n, price in plain.items()
    )
    note = (
        f"{'; '.join(told)}; a whole job of {N_ROWS:,} rows in a known order takes (ms) {known};"
        f" classes compiled per change {plain[4].n_compilations} and {plain[64].n_compilations}"
    )
    details = {
        "plain": {str(n): price.as_json() for n, price in plain.items()},
        "profiled": {str(n): price.as_json() for n, price in profiled.items()},
        "cold": cold.as_json(),
    }
    return Measurement(plain[4].ms, note, details)


def _row(runs: Outcomes, profiled: float, price: Price) -> dict[str, Any]:
    """Return everything about one cell, as plain values."""
    costing = Costing(profiled, change_ms=price.ms)
    laid = replace(costing, at_batches=True)
    names, windows = detectors_of(runs), [f"window {w}" for w in WINDOWS]
    schemes = [*names, *windows, "window "]
    return {
        "price_ms": price.ms,
        "saving_percent": costing.savings(runs, [*names, *windows]),
        "saving_percent_by_price_ms": {
            f"{ms:g}": round(replace(costing, change_ms=ms).saving(runs, "beta_cusum"), 2)
            for ms in (*OTHER_PRICES_MS, *price.quartiles)
        },
        "saving_percent_at_batches": laid.savings(runs, names),
        "best_window": costing.best_window(runs),
        "best_window_at_batches": laid.best_window(runs),
        "changes": means(runs, schemes, "n_reorders"),
        "changes_at_batches": means(runs, schemes, "n_laid"),
        "unpriced_s": {name: mean_of(runs, name, Costing(profiled)) for name in schemes},
    }


def _told(key: str, theirs: float, row: dict[str, Any]) -> str:
    saving, changes, laid = row["saving_percent"], row["changes"], row["changes_at_batches"]
    window, best = row["best_window"]
    others = ", ".join(f"{name} {saving[name]:.1f}" for name in TOLD[1:])
    by_price = ", ".join(
        f"{float(ms):.3g} ms {each:.1f}" for ms, each in row["saving_percent_by_price_ms"].items()
    )
    at_batches = row["saving_percent_at_batches"]["beta_cusum"]
    laid_window, laid_best = row["best_window_at_batches"]
    return (
        f"{key} {saving['beta_cusum']:.1f} (paper {theirs:g}; at {by_price}; {others}; best window"
        f" {window} {best:.1f}; changes of order {changes['beta_cusum']:.0f}, mean window"
        f" {changes['window ']:.0f}, fewest"
        f" {min(changes[f'window {w}'] for w in WINDOWS):.0f}; laid at batches"
        f" {at_batches:.1f} for {laid['beta_cusum']:.0f} and {laid['window ']:.0f} changes,"
        f" best window {laid_window} {laid_best:.1f})"
    )


def _measurement(rows: dict[str, Any], theirs: Iterable[float], price: Price) -> Measurement:
    told = [_told(key, each, rows[key]) for key, each in zip(rows, theirs, strict=True)]
    note = (
        f"% saved at {price} per change of order; one change per micro-batch of"
        f" {BATCH_ROWS:,} tuples at most where 'laid at batches': {'; '.join(told)}"
    )
    value = fmean(row["saving_percent"]["beta_cusum"] for row in rows.values())
    return Measurement(value, note, {"price": price.as_json(), "cells": rows})


def _cell_rows(cells: tuple[Cell, ...], settings: Settings) -> tuple[dict[str, Any], list[int]]:
    """Return a row by cell, and which of the cells it was: in a quick look many are the same."""
    price = measured_price(cells[0].n_filters, settings)
    rows: dict[str, Any] = {}
    numbers = []
    for number, cell in enumerate(each.at(settings) for each in cells):
        if str(cell) not in rows:
            rows[str(cell)] = _row(run_cell(cell).runs, cell.profiled, price)
            numbers.append(number)
    return rows, numbers


def experiment(settings: Settings, cells: tuple[Cell, ...], name: str) -> Measurement:
    """One experiment of ``change.paper``, each change of order at the measured price."""
    rows, numbers = _cell_rows(cells, settings)
    paper = PAPER[name]["beta_cusum"]
    price = measured_price(cells[0].n_filters, settings)
    return _measurement(rows, [paper[number] for number in numbers], price)


def intrusion(settings: Settings) -> Measurement:
    """Table 1, priced."""
    runs = change_intrusion.run_rules(settings).runs
    table = change_intrusion.TABLE_1
    theirs = 100.0 * (1.0 - sum(table["beta_cusum"]) / sum(table["A-greedy"]))
    price = measured_price(4, settings)
    row = _row(runs, change_intrusion.PROFILED, price)
    return _measurement({f"{len(runs['never'])} rules": row}, [round(theirs, 1)], price)


def batches(settings: Settings) -> Measurement:
    """All cells, orders laid where micro-batches begin, each change priced."""
    told, rows = [], {}
    for name, cells in (("4", ABRUPT_4), ("64", ABRUPT_64), ("4 gradual", GRADUAL_4)):
        for key, row in _cell_rows(cells, settings)[0].items():
            rows[f"{name} {key}"] = row
    if not missing([KDD_CUP]):
        runs = change_intrusion.run_rules(settings).runs
        rows["intrusion"] = _row(runs, change_intrusion.PROFILED, measured_price(4, settings))
    for key, row in rows.items():
        saving, laid = row["saving_percent_at_batches"], row["changes_at_batches"]
        window, best = row["best_window_at_batches"]
        others = ", ".join(f"{each} {saving[each]:.1f}" for each in TOLD[1:])
        told.append(
            f"{key} {saving['beta_cusum']:.1f} ({others}; best window {window} {best:.1f}; changes"
            f" {laid['beta_cusum']:.0f}, mean window {laid['window ']:.0f})"
        )
    value = fmean(row["saving_percent_at_batches"]["beta_cusum"] for row in rows.values())
    note = f"micro-batches of {BATCH_ROWS:,} tuples; by filters and period: {'; '.join(told)}"
    return Measurement(value, note, {"cells": rows})


RUNS: Runs = {
    "change_price": change_price,
    "change_priced_abrupt_4": partial(experiment, cells=ABRUPT_4, name="abrupt_4"),
    "change_priced_abrupt_64": partial(experiment, cells=ABRUPT_64, name="abrupt_64"),
    "change_priced_gradual_4": partial(experiment, cells=GRADUAL_4, name="gradual_4"),
    "change_priced_intrusion": intrusion,
    "change_priced_batches": batches,
}
