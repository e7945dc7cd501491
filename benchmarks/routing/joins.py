"""A stream joined with dimension tables, an order of look-ups per class [Bizarro05 6].

The operator of a bucket runs by itself: rows in, results out, no Spark. *SBR* is one learned order
(routing off), *learns* has classes. Both sample, look up and decide in the times. *Counted*
scenarios declare a price of a look-up, as those of filters do; *timed* ones measure it. The paper's
streams of 100,000 rows come in ten batches, those of a million in ten, too. Times are processor
time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from tests.oracles.star import StarStream

from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median, spread
from benchmarks.harness.timing import interleaved, paired_ratio, times_told
from benchmarks.routing.counted import JOIN_NS, PAPER_ROWS, SIZES, ceiling
from eddyline.data.arrays import Ints
from eddyline.joins.graph import JoinGraph
from eddyline.joins.operator.pipeline import results
from eddyline.joins.orders.class_orders import ClassOrders, RowAttribute
from eddyline.joins.orders.classes import Readable
from eddyline.joins.orders.pipelines import JoinLoop
from eddyline.joins.orders.probe_profiling import drop_samples
from eddyline.joins.plan import JoinProfile, JoinWork
from eddyline.options import JoinOptions
from eddyline.query.attributes import candidates
from eddyline.state.rows import ALWAYS, FOREVER, Rows, SortedRun

N_BATCHES = 10
"""Batches of a stream."""

SPREAD = 7919
"""Keys are so far apart."""

MILLION = 1_000_000


def _run(codes: dict[int, Ints], payload: dict[str, Any], start: int) -> SortedRun:
    n = next(iter(codes.values())).size
    return SortedRun.of(Rows(codes, np.full(n, start), np.full(n, FOREVER), pa.table(payload)))


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

    @cached_property
    def windows(self) -> dict[str, tuple[SortedRun, ...]]:
        """The tables, each of them one run."""
        keys = np.repeat(np.arange(self.n_keys), self.fan_out) * SPREAD
        made = {name: (_run({f: keys}, {"v": keys}, ALWAYS),) for f, name in enumerate(self.tables)}
        return {"s": (), **made}

    @cached_property
    def batches(self) -> list[SortedRun]:
        """The rows of the stream."""
        rows = self.star.draw(self.n_rows)
        keys = (rows.keys % self.n_keys + self.n_keys * rows.drops) * SPREAD
        if self.n_keys > keys.max(initial=0) // SPREAD:
            drawn = np.random.default_rng([self.star.seed, 5]).integers(0, self.n_keys, keys.shape)
            keys = (drawn + self.n_keys * rows.drops) * SPREAD
        values = rows.values.astype(np.int64)
        parts = np.array_split(np.arange(self.n_rows), N_BATCHES)
        return [
            _run(
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
    ran = Ran()
    for number, new in enumerate(join.batches):
        work, news, classes = JoinWork(), {"s": new}, loop.classes
        started = time.process_time()
        found = results(join.graph, loop.plan, join.windows, news, work, classes=classes)
        ran.n_results += sum(table.num_rows for table in found)
        ran.join_s.append(time.process_time() - started)
        ran.look_ups.append(sum(done.n_in for done in work.probes.values()))
        ran.by.append(classes["s"].table.attribute if classes else "")
        ns = round(1e9 * ran.join_s[-1])
        if declared_ns:
            for done in work.probes.values():
                done.ns = round(declared_ns * (done.n_in + done.n_out) / 2)
            ns = round(declared_ns * ran.look_ups[-1])
        started = time.process_time()
        probing = loop.probing()
        samples = () if probing is None else tuple(_samples(probing, join, news, number))
        loop.step(JoinProfile(samples, work, ns=ns), number)
        ran.learn_s.append(time.process_time() - started)
        ran.route_s.append(_parted(classes.get("s"), new))
    return ran


def _samples(probing: Any, join: Join, news: dict[str, SortedRun], number: int) -> Iterator[Any]:
    return drop_samples(probing, join.graph, join.windows, news, number)


def _parted(classes: ClassOrders | None, new: SortedRun) -> float:
    """Return the time of finding the classes of rows, and of taking the rows of each (s)."""
    if classes is None:
        return 0.0
    started = time.process_time()
    for places in classes.groups(new.rows):
        _ = new.rows.starts[places], new.rows.ends[places]
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
            for seed in settings.seeds(10, 2):
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
    total = sum(row["look_ups"] for row in table.values())
    wrong = sum(row["wrong"] * row["look_ups"] for row in table.values()) / total
    told = "; ".join(
        f"{name}: {row['right']} right, {row['none']} before any, saves {row['saved']} of "
        f"{row['knows']}"
        for name, row in table.items()
    )
    note = f"% of {total:,} look-ups; paper 6.4 % wrong of 16 million; {told}"
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

    The stream of Fig 5 with eight tables of a million keys, where classes pay.
    """
    table: dict[str, dict[str, float]] = {}
    for n_rows in (PAPER_ROWS, settings.pick(MILLION, 200_000)):
        star = StarStream.random(8, 0)
        join = Join(star, n_rows, settings.pick(MILLION, 100_000))
        pairs = [_both(join, 0.0, seed) for seed in range(settings.pick(4, 2))][1:]
        for name, rans in zip(("SBR", "classes"), zip(*pairs, strict=True), strict=True):
            table[f"{n_rows:,} rows, {name}"] = {
                "route_us": round(median(1e6 * sum(r.route_s) / sum(r.look_ups) for r in rans), 5),
                "learn_us": round(median(1e6 * sum(r.learn_s) / sum(r.look_ups) for r in rans), 5),
                "share": round(
                    median(100 * (sum(r.route_s) + sum(r.learn_s)) / r.seconds for r in rans),
                    2,
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

    def rows(number: int) -> SortedRun:
        codes = rng.integers(0, n_rows, n_rows)
        payload = {"k": codes, "v": rng.integers(0, 9, n_rows), "w": rng.integers(0, 99, n_rows)}
        return _run({0: codes}, payload, number)

    windows = {name: (rows(0), rows(1)) for name in names}
    batches = [{name: rows(2 + number) for name in names} for number in range(N_BATCHES)]

    def joined(*, routing: bool) -> None:
        loop = JoinLoop(graph, JoinOptions(routing=routing), readable=readable)
        for number, news in enumerate(batches):
            work, started = JoinWork(), time.process_time_ns()
            for _ in results(graph, loop.plan, windows, news, work, classes=loop.classes):
                pass
            probing, samples = loop.probing(), ()
            if probing is not None:
                samples = tuple(drop_samples(probing, graph, windows, news, number))
            ns = time.process_time_ns() - started
            loop.step(JoinProfile(samples, work, ns=ns), number)

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
