"""A stream joined with dimension tables, an order of look-ups per class [Bizarro05 6].

The operator of a bucket runs by itself: rows in, results out, no Spark. *SBR* is one learned order
(routing off), *learns* has classes. Both sample, look up and decide in the times. *Counted*
scenarios declare a price of a look-up, as those of filters do; *timed* ones measure it. The paper's
streams of 100,000 rows come in ten batches, those of a million in ten, too. Times are processor
time.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import fs
from tests.oracles.star import StarStream

from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median, spread
from benchmarks.harness.timing import interleaved, paired_ratio, times_told
from benchmarks.routing.counted import JOIN_NS, PAPER_ROWS, SIZES, ceiling
from eddyline.data.arrays import Ints
from eddyline.joins.graph import JoinGraph
from eddyline.joins.operator.bucket import BucketBatch
from eddyline.joins.orders.classes import Readable
from eddyline.joins.orders.pipelines import JoinLoop
from eddyline.joins.orders.probe_profiling import ClassOrders, RowAttribute
from eddyline.joins.plan import BatchPlan, JoinProfile
from eddyline.options import JoinOptions
from eddyline.routing.table import candidates
from eddyline.state.bucket_state import BucketState
from eddyline.state.manifest import ManifestFolder
from eddyline.state.rows import ALWAYS, FOREVER, Rows

N_BATCHES = 10
"""Batches of a stream."""

SPREAD = 7919
"""Keys are so far apart."""

SPAN = 1_000
"""Event time of a batch of ``neutral``, and length of its windows (µs)."""

MILLION = 1_000_000


def _rows(codes: dict[int, Ints], payload: dict[str, Any], start: int) -> Rows:
    n = next(iter(codes.values())).size
    return Rows(codes, np.full(n, start), np.full(n, FOREVER), pa.table(payload))


@dataclass
class Join:
    """A stream that joins tables, with its batches.

    Args:
        star: the stream; a key of a table has ``fan_out`` rows.
        n_rows: of the stream.
        n_keys: of each table.
        fan_out: rows of a key.
    """

    star: StarStream
    n_rows: int
    n_keys: int = 10_000
    fan_out: int = 1

    def __post_init__(self) -> None:
        n = self.star.n_filters
        self.tables = tuple(f"d{f}" for f in range(n))
        self.graph = JoinGraph(
            ("s", *self.tables), tuple(frozenset({"s", name}) for name in self.tables)
        )
        attributes = candidates(dict.fromkeys(self.star.attributes, "bigint"), 16)
        places = tuple(RowAttribute(each.name) for each in attributes)
        self.readable = {"s": Readable(attributes, places)}
        self.folder = tempfile.TemporaryDirectory(prefix="eddyline_star_")
        self.place = ManifestFolder(fs.LocalFileSystem(), self.folder.name).place("join")

    def plan(self, number: int, loop: JoinLoop) -> BatchPlan:
        """Return the way of a batch; rows of the stream are not kept."""
        return BatchPlan(
            number,
            self.graph,
            loop.plan,
            dict.fromkeys(self.graph.inputs, FOREVER),
            horizons={"s": None},
            probing=loop.probing(),
            classes=loop.classes,
        )

    @cached_property
    def state(self) -> BucketState:
        """The tables, as a bucket keeps them."""
        keys = np.repeat(np.arange(self.n_keys), self.fan_out) * SPREAD
        made = {name: _rows({f: keys}, {"v": keys}, ALWAYS) for f, name in enumerate(self.tables)}
        loop = JoinLoop(self.graph, JoinOptions(adaptive=False))
        task = BucketBatch(self.plan(0, loop), self.place, BucketState())
        for _ in task.run(made):
            pass
        return task.report.after

    @cached_property
    def batches(self) -> list[Rows]:
        """The rows of the stream."""
        rows = self.star.draw(self.n_rows)
        drawn = np.random.default_rng([self.star.seed, 5]).integers(0, self.n_keys, rows.keys.shape)
        keys = (drawn + self.n_keys * rows.drops) * SPREAD
        values = rows.values.astype(np.int64)
        parts = np.array_split(np.arange(self.n_rows), N_BATCHES)
        return [
            _rows(
                {f: np.ascontiguousarray(keys[part, f]) for f in range(self.star.n_filters)},
                dict(zip(self.star.attributes, values[part].T, strict=True)),
                number,
            )
            for number, part in enumerate(parts)
        ]


@dataclass
class Ran:
    """One pass over a stream, batch by batch."""

    look_ups: list[int] = field(default_factory=list)
    by: list[str] = field(default_factory=list)
    """The column that told the classes of a batch; empty if none did."""
    join_s: list[float] = field(default_factory=list)
    """The work of the bucket, sampling left out."""
    learn_s: list[float] = field(default_factory=list)
    """Sampling and deciding."""
    route_s: list[float] = field(default_factory=list)
    """Finding the class of each row, and parting rows; within ``join_s``."""
    n_results: int = 0

    @property
    def seconds(self) -> float:
        """Processor time (s)."""
        return sum(self.join_s) + sum(self.learn_s)


def run(join: Join, *, routing: bool, declared_ns: float = 0.0, seed: int = 0) -> Ran:
    """Join all batches of a stream; a look-up costs what is declared, or what it is measured to."""
    options = JoinOptions(routing=routing, seed=seed)
    loop = JoinLoop(join.graph, options, frozenset(join.tables), join.readable)
    ran, state = Ran(), join.state
    for number, rows in enumerate(join.batches):
        plan = join.plan(number, loop)
        started = time.process_time()
        task = BucketBatch(plan, join.place, state)
        ran.n_results += sum(table.num_rows for table in task.run({"s": rows}))
        took_s, report = time.process_time() - started, task.report
        # Samples are timed by the clock on the wall, as the whole task is.
        sampled_s = took_s * sum(each.ns for each in report.samples) / report.ns
        ran.look_ups.append(sum(done.n_in for done in report.work.probes.values()))
        ran.by.append(plan.classes["s"].table.attribute if plan.classes else "")
        if declared_ns:
            for done in report.work.probes.values():
                done.ns = round(declared_ns * (done.n_in + done.n_out) / 2)
            report.ns = round(declared_ns * ran.look_ups[-1])
        started = time.process_time()
        loop.step(JoinProfile.from_reports([report]), number)
        ran.join_s.append(took_s - sampled_s)
        ran.learn_s.append(sampled_s + time.process_time() - started)
        ran.route_s.append(_parted(plan.classes.get("s"), rows))
    return ran


def _parted(classes: ClassOrders | None, rows: Rows) -> float:
    """Return the time of finding the classes of rows, and of taking the rows of each (s)."""
    if classes is None:
        return 0.0
    started = time.process_time()
    for places in classes.groups(rows):
        _ = rows.starts[places], rows.ends[places]
    return time.process_time() - started


def _both(join: Join, declared_ns: float, seed: int) -> tuple[Ran, Ran]:
    off = run(join, routing=False, declared_ns=declared_ns, seed=seed)
    on = run(join, routing=True, declared_ns=declared_ns, seed=seed)
    if off.n_results != on.n_results:
        msg = f"{on.n_results} results with classes, {off.n_results} without"
        raise AssertionError(msg)
    return off, on


def _saved(off: Ran, on: Ran) -> float:
    return 100.0 * (1.0 - sum(on.look_ups) / sum(off.look_ups))


def classifiers(settings: Settings) -> Measurement:
    """The share of look-ups that a wrong column has routed [Bizarro05 Fig 5]; savings [Fig 6].

    Random selectivities, as many classes as tables. Until a table of classes is learned all rows
    take one order, which is neither right nor wrong.
    """
    table: dict[str, dict[str, float]] = {}
    for n_rows in (PAPER_ROWS, settings.pick(MILLION, 200_000)):
        for n in SIZES:
            kinds = {"right": 0, "wrong": 0, "none": 0}
            saved, knows = [], []
            for seed in settings.seeds(5, 2):
                star = StarStream.random(n, seed)
                off, on = _both(Join(star, n_rows), JOIN_NS, seed)
                for column, look_ups in zip(on.by, on.look_ups, strict=True):
                    kind = "right" if column == "attr_c" else "wrong" if column else "none"
                    kinds[kind] += look_ups
                saved.append(_saved(off, on))
                knows.append(ceiling(star))
            total = sum(kinds.values())
            table[f"{n_rows:,} rows, N={n}"] = {
                **{kind: round(100.0 * n_of / total, 2) for kind, n_of in kinds.items()},
                "look_ups": total,
                "saved": round(float(np.mean(saved)), 2),
                "knows": round(float(np.mean(knows)), 2),
            }
    n_all = sum(row["look_ups"] for row in table.values())
    wrong = sum(row["wrong"] * row["look_ups"] for row in table.values()) / n_all
    told = "; ".join(
        f"{name}: {row['right']} right, {row['none']} before any, saves {row['saved']} of "
        f"{row['knows']}"
        for name, row in table.items()
    )
    note = f"% of {n_all:,} look-ups; paper 6.4 % wrong of 16 million; {told}"
    return Measurement(round(wrong, 3), note, {"percent": table})


COSTS = ((10_000, 1), (100_000, 1), (1_000_000, 1), (10_000, 4))
"""Keys of each table, and rows of a key: what makes a look-up dear."""


def costs(settings: Settings) -> Measurement:
    """Time and look-ups saved as look-ups become dearer [Bizarro05 Fig 9].

    The paper burns time in each operator. Here tables grow out of the processor's caches, and a key
    finds four rows, each of which is looked up in all later tables. Six tables, A = 5 %.
    """
    table: dict[str, dict[str, float]] = {}
    for n_rows in (PAPER_ROWS, settings.pick(MILLION, 200_000)):
        for n_keys, fan_out in COSTS[: settings.pick(len(COSTS), 2)]:
            tables = 4 if fan_out > 1 else 6
            join = Join(StarStream.skewed(tables, 0.05), n_rows, n_keys, fan_out)
            pairs = [_both(join, 0.0, seed) for seed in range(settings.pick(4, 2))][1:]
            off_s = median(off.seconds for off, _ in pairs)
            off, on = pairs[0]
            table[f"{n_rows:,} rows, {n_keys:,} keys × {fan_out}"] = {
                "look_up_ns": round(1e9 * off_s / sum(off.look_ups), 1),
                "calls_saved": round(median(_saved(*pair) for pair in pairs), 2),
                "time_saved": round(
                    median(100.0 * (1.0 - on.seconds / off.seconds) for off, on in pairs), 2
                ),
                "last_batch_time_saved": round(
                    median(100 * (1 - on.join_s[-1] / off.join_s[-1]) for off, on in pairs), 2
                ),
                "routed_batches": sum(map(bool, on.by)),
            }
    told = "; ".join(
        f"{name} ({row['look_up_ns']:.0f} ns): calls {row['calls_saved']}, time "
        f"{row['time_saved']}, last batch {row['last_batch_time_saved']}"
        for name, row in table.items()
    )
    best = max(row["time_saved"] for row in table.values())
    return Measurement(best, f"% saved of one order; paper 35 % of the time; {told}", table)


def overhead(settings: Settings) -> Measurement:
    """Time of routing and of learning per look-up, SBR and with classes [Bizarro05 Fig 10].

    Eight tables of a million keys: a stream of Fig 5, and one with A = 5 %, where classes pay.
    """
    table: dict[str, dict[str, float]] = {}
    streams = {"random": StarStream.random(8, 0), "A = 5 %": StarStream.skewed(8, 0.05)}
    for kind, n_rows in product(streams, (PAPER_ROWS, settings.pick(MILLION, 200_000))):
        join = Join(streams[kind], n_rows, settings.pick(MILLION, 100_000))
        pairs = [_both(join, 0.0, seed) for seed in range(settings.pick(4, 2))][1:]
        for name, rans in zip(("SBR", "classes"), zip(*pairs, strict=True), strict=True):
            table[f"{kind}, {n_rows:,} rows, {name}"] = {
                "route_us": round(median(1e6 * sum(r.route_s) / sum(r.look_ups) for r in rans), 5),
                "learn_us": round(median(1e6 * sum(r.learn_s) / sum(r.look_ups) for r in rans), 5),
                "share": round(
                    median(100 * (sum(r.route_s) + sum(r.learn_s)) / r.seconds for r in rans), 2
                ),
                "routed_batches": median(sum(map(bool, r.by)) for r in rans),
            }
    told = "; ".join(
        f"{name}: routing {row['route_us']:.4f}, learning {row['learn_us']:.4f} µs, {row['share']} "
        f"% of the time"
        for name, row in table.items()
    )
    value = [row["share"] for name, row in table.items() if name.endswith("classes")][-1]
    return Measurement(value, f"per look-up; paper 4 to 5 % of the time for both; {told}", table)


def neutral(settings: Settings) -> Measurement:
    """Three streams joined by one key, as in ``joins_chained_3``; no column tells classes apart."""
    n_rows = settings.pick(50_000, 10_000)
    names = ("s", "t", "u")
    graph = JoinGraph(names, (frozenset(names),))
    columns = dict.fromkeys(("k", "v", "w"), "bigint")
    attributes = candidates(columns, 8)
    places = tuple(RowAttribute(each.name) for each in attributes)
    readable = dict.fromkeys(names, Readable(attributes, places, {0: frozenset({"k"})}))
    rng = np.random.default_rng(0)

    def rows(number: int) -> Rows:
        codes = rng.integers(0, n_rows, n_rows)
        payload = {"k": codes, "v": rng.integers(0, 9, n_rows), "w": rng.integers(0, 99, n_rows)}
        starts = SPAN * number + rng.integers(0, SPAN, n_rows)
        return Rows({0: codes}, starts, starts + SPAN, pa.table(payload))

    batches = [{name: rows(number) for name in names} for number in range(N_BATCHES)]

    def joined(*, routing: bool) -> None:
        loop = JoinLoop(graph, JoinOptions(routing=routing), readable=readable)
        state = BucketState()
        with tempfile.TemporaryDirectory(prefix="eddyline_star_") as folder:
            place = ManifestFolder(fs.LocalFileSystem(), folder).place("join")
            for number, news in enumerate(batches):
                plan = BatchPlan(
                    number,
                    graph,
                    loop.plan,
                    dict.fromkeys(names, SPAN),
                    horizons=dict.fromkeys(names, SPAN * number - 1),
                    probing=loop.probing(),
                    classes=loop.classes,
                )
                task = BucketBatch(plan, place, state)
                for _ in task.run(news):
                    pass
                state = task.report.after
                loop.step(JoinProfile.from_reports([task.report]), number)

    times = interleaved(
        {"off": lambda: joined(routing=False), "on": lambda: joined(routing=True)},
        settings.pick(9, 3),
        clock=time.process_time,
    )
    value = paired_ratio(times["on"], times["off"])
    ratios = [a / b for a, b in zip(times["on"].seconds, times["off"].seconds, strict=True)]
    return Measurement(round(value, 4), f"{spread(ratios)}; {times_told(times)}")


RUNS: Runs = {
    "routing_joins_classifiers": classifiers,
    "routing_joins_costs": costs,
    "routing_joins_overhead": overhead,
    "routing_joins_neutral": neutral,
}
