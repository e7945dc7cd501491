"""The experiments of [Bizarro05 6]: what routing by content saves, counted in evaluations.

The real loop and executor run with routing on and off; both profile, and everything that profiling
evaluates counts. An evaluation is declared to cost ten microseconds, as a look-up in a dimension
table may, so that the quarter of a microsecond that routing itself takes per row does not decide.

The paper's streams have 100,000 tuples and its baseline reaches the best single order at once. A
continuous query runs on, so streams are of a million rows here; what the first 100,000 would have
saved stands beside it. The paper does not say at which A it measures: here from 5 % to 95 % in
steps of 10.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow.compute as pc
from pyarrow import parquet
from tests.oracles.star import StarStream

from benchmarks.filters.predicate_eval import N_PARTITIONS
from benchmarks.filters.simulated_loop import (
    BATCH_ROWS,
    CountedRun,
    Stream,
    best_work,
    concatenated,
    run_counted,
)
from benchmarks.harness.needs import data_folder
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median, spread
from benchmarks.workloads import skewed_partitions_v1
from eddyline.data.arrays import Floats, Mask
from eddyline.routing.learning import count, gains
from eddyline.routing.table import Attribute, Partition, choose_partition

JOIN_NS = 10_000.0
"""Declared cost of one evaluation: a look-up of a key."""

SIZES = (2, 4, 6, 8)
"""N, joins of a query [Bizarro05 6.1]."""

GRID = tuple(range(5, 100, 10))
"""A (%) [Bizarro05 6.3; the steps are ours]."""

PAPER_ROWS = 100_000
"""Tuples of the paper's streams."""


@dataclass(frozen=True)
class Pair:
    """One stream with routing off and on."""

    off: CountedRun
    on: CountedRun

    def saved(self, n_rows: int | None = None) -> float:
        """Return the evaluations that routing saves (%), of all rows or the first so many."""
        stop = None if n_rows is None else n_rows // BATCH_ROWS
        off, on = (run.evaluations[:stop].sum() for run in (self.off, self.on))
        return float(100.0 * (1.0 - on / off))


def attributes_of(names: Iterable[str], categories: Sequence[str] = ()) -> tuple[Attribute, ...]:
    """Return columns as attributes."""
    return tuple(
        Attribute(name, "category" if name in categories else "number", name, frozenset({name}))
        for name in names
    )


def both(stream: Stream, attributes: tuple[Attribute, ...], seed: int, **options: Any) -> Pair:
    """Run a stream with routing off and on."""
    off = run_counted(stream, seed=seed, attributes=attributes, **{**options, "routing": False})
    return Pair(off, run_counted(stream, seed=seed, attributes=attributes, **options))


def star_pair(star: StarStream, n_rows: int) -> Pair:
    """Run a star stream with routing off and on."""
    rows = star.draw(n_rows)
    costs = np.full(star.n_filters, JOIN_NS)
    stream = Stream(rows.drops, costs, rows.values)
    return both(stream, attributes_of(star.attributes), star.seed)


def ceiling(star: StarStream) -> float:
    """Return what an oracle saves on the best order for all rows, without any profiling (%)."""
    return 100.0 * (1.0 - star.cost_per_class() / star.cost_of_one_order())


def ceiling_on_best(star: StarStream) -> float:
    """Return what an oracle saves on the best order for all rows that there is (%).

    Through the classes filters depend on each other, which A-Greedy makes use of without knowing
    classes: the paper's baseline does not, so its ceiling is higher.
    """
    costs = np.ones(star.n_filters)
    histogram = Stream(star.draw(PAPER_ROWS).drops, costs).histograms().sum(axis=0)
    best = best_work(histogram, costs) / histogram.sum()
    return 100.0 * (1.0 - star.cost_per_class() / float(best))


def skew(settings: Settings, *, is_below: bool, paper: float) -> Measurement:
    """Streams in which one filter of each class drops more than the others, or less.

    Args:
        settings: how much is run.
        is_below: whether that filter drops more.
        paper: the saving that the paper reports (%).
    """
    n_rows = settings.pick(1_000_000, 300_000)
    table: dict[str, dict[str, float]] = {}
    for n in SIZES:
        for a in GRID[:: settings.pick(1, 3)]:
            b = StarStream.skewed(n, a / 100).pass_fracs[0][1]
            if (a / 100 < b) != is_below:
                continue
            stars = [
                StarStream.skewed(n, a / 100, seed=1000 * seed + a) for seed in settings.seeds(3, 1)
            ]
            pairs = [star_pair(star, n_rows) for star in stars]
            table[f"N={n} A={a}%"] = {
                "saved": median(pair.saved() for pair in pairs),
                "saved_of_100k": median(pair.saved(PAPER_ROWS) for pair in pairs),
                "ceiling": ceiling(stars[-1]),
            }
    mean = {
        name: round(float(np.mean([row[name] for row in table.values()])), 2)
        for name in ("saved", "saved_of_100k", "ceiling")
    }
    note = (
        f"mean of {len(table)} streams: {mean['saved']} % fewer evaluations, paper {paper} %, "
        f"ceiling on these streams {mean['ceiling']} %; of the first 100,000 rows "
        f"{mean['saved_of_100k']} %"
    )
    return Measurement(mean["saved"], note, {"percent": table})


def skew_best(settings: Settings) -> Measurement:
    """Eight filters of which one drops 95 % of its class and the others nothing."""
    n_rows = settings.pick(1_000_000, 300_000)
    stars = [StarStream.skewed(8, 0.05, seed=seed) for seed in settings.seeds(7, 2)]
    pairs = [star_pair(star, n_rows) for star in stars]
    saved = [pair.saved() for pair in pairs]
    early = median(pair.saved(PAPER_ROWS) for pair in pairs)
    late = median(
        100 * (1 - p.on.evaluations[5:].sum() / p.off.evaluations[5:].sum()) for p in pairs
    )
    note = (
        f"{median(saved):.1f} % ({spread(saved)}), paper 67.8 %, ceiling {ceiling(stars[0]):.1f} %;"
        f" of the first 100,000 rows {early:.1f} %, of those after 50,000 {late:.1f} %"
    )
    return Measurement(round(median(saved), 2), note, {"percent": saved, "of_100k": early})


LEARNS = {2: 1.9, 4: 11.2, 6: 17.5, 8: 21.7}
"""Savings of the paper's algorithm, taken literally, on such streams (%), as we simulated it once,
tuple by tuple: ``testing/reference_routing.py`` in the history, at 8d487f5."""


def _over(stars: list[StarStream], n_rows: int) -> tuple[list[Pair], dict[str, float]]:
    """Return the runs of some streams, and what routing and an oracle save on average (%)."""
    pairs = [star_pair(star, n_rows) for star in stars]
    saved = {
        "saved": [pair.saved() for pair in pairs],
        "knows": [ceiling(star) for star in stars],
        "knows_on_best": [ceiling_on_best(star) for star in stars],
    }
    return pairs, {name: round(float(np.mean(each)), 2) for name, each in saved.items()}


def random_fractions(settings: Settings) -> Measurement:
    """Uniform random pass fractions by class, as many classes as filters."""
    n_rows = settings.pick(1_000_000, 300_000)
    table = {}
    for n in SIZES:
        stars = [StarStream.random(n, seed) for seed in settings.seeds(20, 4)]
        pairs, row = _over(stars, n_rows)
        table[f"N={n}"] = {
            **row,
            "saved_of_100k": round(float(np.mean([p.saved(PAPER_ROWS) for p in pairs])), 2),
            "worst": round(min(pair.saved() for pair in pairs), 2),
            "literal": LEARNS[n],
        }
    mean = float(np.mean([row["saved"] for row in table.values()]))
    told = ", ".join(
        f"{name} {row['saved']} (oracle {row['knows_on_best']}, on the paper's baseline "
        f"{row['knows']}, the paper's algorithm there {row['literal']}; worst {row['worst']})"
        for name, row in table.items()
    )
    return Measurement(round(mean, 2), f"% fewer evaluations: {told}", {"percent": table})


def aggregate(settings: Settings) -> Measurement:
    """Six filters whose random pass fractions are scaled to a given share of rows that pass."""
    n_rows = settings.pick(1_000_000, 300_000)
    table = {}
    for percent in range(5, 36, settings.pick(5, 15)):
        stars = [StarStream.random(6, seed, percent / 100) for seed in settings.seeds(10, 3)]
        table[f"{percent}%"] = _over(stars, n_rows)[1]
    told = ", ".join(
        f"{name} {row['saved']} of {row['knows_on_best']} ({row['knows']})"
        for name, row in table.items()
    )
    mean = float(np.mean([row["saved"] for row in table.values()]))
    note = (
        f"% fewer evaluations, of the oracle's (on the paper's baseline), by share passing: {told}"
    )
    return Measurement(round(mean, 2), note, {"percent": table})


PHASES = (-1, 0, 1, -1)
"""Which column tells what the filters drop, phase by phase; -1: none does."""


def _phase(column: int, n_rows: int, seed: int) -> tuple[Stream, float]:
    """Return rows of a phase, and what an oracle spends on each (evaluations)."""
    star = StarStream.skewed(6, 0.05)
    fracs = np.array(star.pass_fracs)
    rng = np.random.default_rng([seed, 66])
    values = rng.integers(0, 6, (n_rows, 4))
    by_row = fracs.T[values[:, column]] if column >= 0 else np.full((n_rows, 6), fracs.mean())
    drops = rng.random((n_rows, 6)) >= by_row
    single = (fracs.mean() ** np.arange(6)).sum()
    best = single if column < 0 else star.cost_per_class()
    return Stream(drops, np.full(6, JOIN_NS), values.astype(np.float64)), float(best)


def appears_moves_disappears(settings: Settings) -> Measurement:
    """A column starts to tell the classes, then another one does instead, then none."""
    n_rows = settings.pick(500_000, 200_000)
    n_batches = n_rows // BATCH_ROWS
    ratios, lags, worst = [], [], []
    for seed in settings.seeds(5, 2):
        made = [_phase(column, n_rows, 10 * seed + k) for k, column in enumerate(PHASES)]
        pair = both(concatenated([stream for stream, _ in made]), attributes_of("abcd"), seed)
        oracle = np.repeat([best for _, best in made], n_batches)
        per_row = pair.on.evaluations.sum(axis=1) / BATCH_ROWS
        ratios.append(per_row.sum() / oracle.sum())
        off = pair.off.evaluations.sum(axis=1) / BATCH_ROWS
        phases = [slice(k * n_batches, (k + 1) * n_batches) for k in range(len(PHASES))]
        worst.append(max(per_row[rows].sum() / off[rows].sum() for rows in phases))
        for rows in phases[1:]:
            good = per_row[rows] <= 1.2 * oracle[rows]
            lags.append(BATCH_ROWS * (int(good.argmax()) if good.any() else n_batches))
    by_change = [median(lags[k::3]) for k in range(3)]
    note = (
        f"{median(ratios):.3f} × an oracle's evaluations ({spread(ratios)}); rows until within a "
        f"fifth of it: {by_change[0]:,.0f} after it appears, {by_change[1]:,.0f} after it moves, "
        f"{by_change[2]:,.0f} after it disappears; worst phase {max(worst):.3f} × routing off"
    )
    return Measurement(round(median(ratios), 4), note, {"lag_rows": lags, "ratios": ratios})


def one_operator(settings: Settings) -> Measurement:
    """A query that cannot gain: one filter."""
    n_rows = settings.pick(1_000_000, 300_000)
    more = []
    for seed in settings.seeds(3, 1):
        star = StarStream(pass_fracs=((0.1, 0.9),), seed=seed)
        more.append(-star_pair(star, n_rows).saved())
    note = f"% more evaluations with routing on, paper 0.8 % more time ({spread(more)})"
    return Measurement(max(more), note)


LAB = ("par", "temperature", "humidity", "internal_voltage")
"""What a query has a BETWEEN on: light, temperature, humidity, voltage [Bizarro05 6.6, Q2]."""

LAB_OPTIONS: dict[str, Any] = {"sample_prob": 0.06, "max_overhead": 0.1}
"""The paper's P; there are 36,816 rows in all."""


def _lab() -> dict[str, Floats]:
    """Return the columns of the library's readings in order of time."""
    path = data_folder() / "sensors" / "ulb_library_readings.parquet"
    table = parquet.read_table(path).sort_by([("run", "ascending"), ("ts", "ascending")])
    parts = {"hour": pc.hour(table["ts"]), "minute": pc.minute(table["ts"]), "node": table["node"]}
    for name in (*LAB, "tsr", "seq"):
        parts[name] = table[name]
    return {
        name: pc.cast(column, "double").to_numpy(zero_copy_only=False)
        for name, column in parts.items()
    }


def _between(values: Floats, rng: np.random.Generator) -> Mask:
    """Return what a BETWEEN drops: from one of the lowest quarter to one of the highest."""
    domain = np.unique(values[~np.isnan(values)])
    quarter = max(len(domain) // 4, 1)
    low, high = rng.choice(domain[:quarter]), rng.choice(domain[-quarter:])
    dropped: Mask = ~((values >= low) & (values <= high))
    return dropped


def _lab_queries(columns: dict[str, Floats], n: int) -> list[Mask]:
    rng = np.random.default_rng(2)
    return [np.stack([_between(columns[name], rng) for name in LAB], axis=1) for _ in range(n)]


def _extreme_share(drops: Mask, block: int = 500) -> float:
    """Return the share of blocks and filters that pass under 2 % or over 98 % (%)."""
    n = len(drops) // block * block
    passes = 1.0 - drops[:n].reshape(-1, block, drops.shape[1]).mean(axis=1)
    return float(100.0 * ((passes < 0.02) | (passes > 0.98)).mean())


def _lab_ceiling(columns: dict[str, Floats], queries: list[Mask]) -> float:
    """Return what the best order of each node and hour saves on the best one for all rows (%)."""
    key = (24 * columns["node"] + columns["hour"]).astype(int)
    single = by_class = 0.0
    costs = np.ones(len(LAB))
    for drops in queries:
        histogram = Stream(drops, costs).histograms(len(drops))[0]
        single += best_work(histogram, costs)
        for value in np.unique(key):
            rows = drops[key == value]
            histogram = Stream(rows, costs).histograms(len(rows))[0]
            by_class += best_work(histogram, costs)
    return float(100.0 * (1.0 - by_class / single))


def _best_attribute(block_rows: int = 26_000) -> dict[str, float]:
    """Return how often sensor or hour tells more about ``temperature > 24`` (share of blocks)."""
    path = data_folder() / "sensors" / "intel_temperature_30s.parquet"
    if not path.is_file():
        return {}
    table = parquet.read_table(path)
    names = ("sensor", "hour")
    columns = [table["sensor"], pc.hour(table["ts_synthetic"])]
    values = [pc.cast(column, "double").to_numpy(zero_copy_only=False) for column in columns]
    drops = ~(table["temperature"].to_numpy() > 24.0)[:, None]
    won = dict.fromkeys((*names, "none"), 0)
    starts = range(0, len(drops) - block_rows + 1, block_rows)
    for start in starts:
        rows = slice(start, start + block_rows)
        parts = [
            choose_partition(name, "number", column[rows])
            for name, column in zip(names, values, strict=True)
        ]
        cut = [
            part if isinstance(part, Partition) else Partition(name, "ranges")
            for name, part in zip(names, parts, strict=True)
        ]
        bins = [part.bins(column[rows]) for part, column in zip(cut, values, strict=True)]
        codes, of_row = np.unique(drops[rows], axis=0, return_inverse=True)
        found = gains(*count(bins, [part.n_bins for part in cut], of_row.ravel(), codes))
        ratio = np.where(found.is_significant(0.01), found.ratio, 0.0)[0]
        won[names[int(ratio.argmax())] if ratio.max() > 0.0 else "none"] += 1
    return {name: round(n / max(len(starts), 1), 3) for name, n in won.items()}


def lab(settings: Settings) -> Measurement:
    """Fifty random conjunctions of four BETWEENs over real readings of a library."""
    columns = _lab()
    reads = tuple(frozenset({name}) for name in LAB)
    by_time = ("node", "hour", "minute", "seq")
    told = {"by node and time": by_time, "by readings too": (*by_time, *LAB)}
    details: dict[str, Any] = {}
    for label, names in told.items():
        values = np.stack([columns[name] for name in names], axis=1)
        calls, to_drop = [], []
        for seed, drops in enumerate(_lab_queries(columns, settings.pick(50, 10))):
            stream = Stream(drops, np.full(len(LAB), JOIN_NS), values)
            attributes = attributes_of(names)
            pair = both(stream, attributes, seed, reads=reads, batch_rows=2000, **LAB_OPTIONS)
            kept = len(LAB) * int((~drops.any(axis=1)).sum())
            off, on = (float(run.evaluations.sum()) for run in (pair.off, pair.on))
            calls.append(100.0 * (1.0 - on / off))
            to_drop.append(100.0 * (1.0 - (on - kept) / max(off - kept, 1.0)))
        details[label] = {
            "calls": round(float(np.mean(calls)), 2),
            "calls_until_drop": round(float(np.mean(to_drop)), 2),
            "worst": round(min(calls), 2),
            "best": round(max(calls), 2),
        }
    queries = _lab_queries(columns, settings.pick(50, 10))
    most = round(_lab_ceiling(columns, queries), 2)
    extreme = round(float(np.mean([_extreme_share(drops) for drops in queries])), 1)
    details["best_attribute"] = _best_attribute()
    words = "; ".join(
        f"{label} {row['calls']} % fewer evaluations ({row['worst']}…{row['best']}), until a drop "
        f"{row['calls_until_drop']} %"
        for label, row in list(details.items())[:2]
    )
    note = (
        f"{words}; paper 8 and 18 % on other data; the best order of each node and hour, known "
        f"beforehand, saves {most} %; filters pass under 2 % or over 98 % in {extreme}"
        f" % of blocks (paper 57.2 %); what tells most about temperature > 24, by share of blocks: "
        f"{details['best_attribute']}"
    )
    return Measurement(details["by node and time"]["calls"], note, details)


def mixed_partitions(settings: Settings) -> Measurement:
    """The skewed partitions of the filters' suite, their rows mixed, a column says whose."""
    n_rows = settings.pick(62_500, 15_625)
    ratios, single = [], []
    for seed in settings.seeds(5, 2):
        parts = skewed_partitions_v1(N_PARTITIONS, n_rows, seed)
        costs = parts[0].costs_ns
        histograms = [part.histograms().sum(0) for part in parts]
        own = sum(best_work(each, costs) for each in histograms)
        one = best_work(sum(histograms), costs)
        mixed = np.random.default_rng([seed, 8]).permutation(n_rows * N_PARTITIONS)
        drops = np.concatenate([part.drops for part in parts])[mixed]
        values = np.repeat(np.arange(float(N_PARTITIONS)), n_rows)[mixed, None]
        stream = Stream(drops, costs, values)
        run = run_counted(stream, seed=seed, attributes=attributes_of(["partition"]))
        ratios.append(run.total_ns / own)
        single.append(one / own)
    note = (
        f"{N_PARTITIONS} classes of {n_rows:,} rows each, spread {spread(ratios)}; the best single "
        f"order pays {median(single):.3f}"
    )
    return Measurement(median(ratios), note, {"work": ratios, "best_single": single})


RUNS: Runs = {
    "routing_skew_a_below_b": partial(skew, is_below=True, paper=26.9),
    "routing_skew_best": skew_best,
    "routing_skew_a_above_b": partial(skew, is_below=False, paper=10.2),
    "routing_random": random_fractions,
    "routing_aggregate": aggregate,
    "routing_appears_moves_disappears": appears_moves_disappears,
    "routing_mixed_partitions": mixed_partitions,
    "routing_one_operator": one_operator,
    "routing_lab": lab,
}
