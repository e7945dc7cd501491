"""Early results: what they cost beside final ones, and how much earlier answers are known.

Batches of one bucket, without Spark: rows of moving objects that come out of order by up to half a
batch. What is told is the same in each run, so the lead is counted, in seconds of event time.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from pyarrow import fs

from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.timing import interleaved, paired_ratio, seconds_of, times_told
from benchmarks.models.data import SECOND_US, Moving, Rows, lines_of, moving_v1
from eddyline.data.arrays import Ints
from eddyline.models import graph
from eddyline.models.entities.kept import CODE
from eddyline.models.fitting.bounds import Bound, FitOptions
from eddyline.models.fitting.declared import Declared, read_equations
from eddyline.models.fitting.fit import Fit
from eddyline.models.solving.text import read_condition
from eddyline.models.steps import Changes, Integral, Shape, Where
from eddyline.models.streams.bucket import BucketBatch, EarlyBatch
from eddyline.models.streams.plan import BucketState, StreamInput, StreamPlan
from eddyline.state.manifest import StatePlace

SHAPE = Shape(("k",), ("x", "y"))
SEGMENTS = graph.Input(0, SHAPE)
CONDITION = "x > 0 AND y < 500"
CHANGES = "changes"
ASKED: dict[str, graph.Node] = {
    "segments": SEGMENTS,
    CHANGES: graph.Unary(
        Changes(), graph.Unary(Where(read_condition(CONDITION, ["x", "y"]), CONDITION), SEGMENTS)
    ),
    "averages of 30 s": graph.Unary(Integral(30 * SECOND_US, None, True, False), SEGMENTS),
}
MAKERS: dict[str, Fit | Declared] = {
    "fitted": Fit(
        ("k",), "ts", {"x": Bound(1.0), "y": Bound(1.0)},
        FitOptions(degree=1, max_gap_us=10 * SECOND_US, prefix_rows=64),
    ),
    "declared": Declared(
        ("k",), "ts", read_equations({"x": "x + vx * t", "y": "y + vy * t"}), 10 * SECOND_US
    ),
}  # fmt: skip
_END = 2**62

LEADS = """
WITH soon AS (SELECT k, since, until, version FROM early WHERE NOT tomb),
     told AS (SELECT final.k, final.since, any_value(batch) AS ended, min(version) AS begun,
                     min(version) FILTER (soon.until = final.until) AS whole
              FROM final JOIN soon ON soon.k = final.k AND soon.since = final.since GROUP BY ALL)
SELECT count(*), avg(a.clock - b.clock), avg(a.clock - c.clock)
FROM told JOIN clocks a ON a.version = ended JOIN clocks b ON b.version = begun
     JOIN clocks c ON c.version = whole WHERE a.clock < (SELECT max(clock) FROM clocks)
"""
"""Of each range that is final before the stream ends: by how much earlier its beginning was told
first, and its end."""


@dataclass(frozen=True)
class Stream:
    """Batches of rows, and the latest instant of each and those before it (µs)."""

    batches: list[pa.Table]
    clocks: list[int]
    lateness: int


def _stream(rows: Rows, n_batches: int, *, is_declared: bool) -> Stream:
    """Return rows in batches, each late by up to half the time that a batch is long."""
    lateness = int(rows.times.max() - rows.times.min()) // n_batches // 2
    late = rows.times + np.random.default_rng(5).integers(0, lateness + 1, len(rows))
    order = np.argsort(late, kind="stable")
    rows = rows.take(order)
    values = rows.values
    columns: dict[str, Any] = {name: values[name] for name in ("x", "y")}
    if is_declared:
        columns = {name: lines_of(values[name], values[f"v{name}"]) for name in ("x", "y")}
    times = pa.array(rows.times).cast(pa.timestamp("us", "UTC"))
    table = pa.table({"k": rows.keys, "ts": times, **columns, CODE: rows.keys})
    edges: Ints = np.linspace(0, len(rows), n_batches + 1).astype(np.int64)
    batches = [table.slice(low, high - low) for low, high in itertools.pairwise(edges)]
    clocks = [int(rows.times[:end].max()) for end in edges[1:]]
    return Stream(batches, clocks, lateness)


def told(stream: Stream, plan: StreamPlan) -> list[pa.Table]:
    """Return what each batch tells, and behind them an empty one that ends all."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        place = StatePlace(fs.LocalFileSystem(), folder, "models")
        place.files.create_dir(place.runs)
        state = BucketState()
        for number, rows in enumerate([*stream.batches, None]):
            until = _END if rows is None else stream.clocks[number] - stream.lateness
            given = plan, place, state, 0, until
            batch = EarlyBatch(*given, version=number) if plan.is_early else BucketBatch(*given)
            results = [each for each in batch.run([rows]) if len(each)]
            found.append(pa.concat_tables(results) if results else None)
            state = batch.report.after
    return found


def _leads(stream: Stream, plan: StreamPlan) -> tuple[int, float, float]:
    """Return of how many ranges, how much earlier their beginning and their end are told (s)."""
    early = pa.concat_tables([each for each in told(stream, plan) if each is not None])
    final = [
        each.append_column("batch", pa.array(np.full(len(each), number)))
        for number, each in enumerate(told(stream, replace(plan, is_early=False)))
        if each is not None
    ]
    clocks = [*stream.clocks, stream.clocks[-1] + 1]
    connection = duckdb.connect()
    connection.register("early", early)
    connection.register("final", pa.concat_tables(final))
    connection.register("clocks", pa.table({"version": range(len(clocks)), "clock": clocks}))
    n, begin, end = connection.sql(LEADS).fetchall()[0]
    return n, begin / SECOND_US, end / SECOND_US


def cost(settings: Settings) -> Measurement:
    """Time of batches with early results over that of those with final ones alone."""
    n_batches, n_objects = settings.pick(10, 5), settings.pick(1_000, 200)
    rows = moving_v1(Moving(n_objects * n_batches * 100, 50, n_objects, SECOND_US, speed=10.0))
    worst, notes, details = 0.0, [], {}
    for name, maker in MAKERS.items():
        stream = _stream(rows, n_batches, is_declared=name == "declared")
        for asked, node in ASKED.items():
            plan = StreamPlan((StreamInput(maker, SHAPE),), node, is_early=True)
            ways = {"early": plan, "final": replace(plan, is_early=False)}
            runs = {way: partial(told, stream, each) for way, each in ways.items()}
            times = interleaved(runs, settings.pick(3, 1), clock=time.process_time)
            ratio = paired_ratio(times["early"], times["final"])
            worst = max(worst, ratio)
            note = f"{name}, {asked}: {ratio:.2f} ({times_told(times)})"
            details[f"{name}, {asked}"] = seconds_of(times)
            if asked == CHANGES:
                n, begin, end = _leads(stream, plan)
                note += (
                    f"; {n:,} ranges, told {begin:.0f} s earlier and with their end {end:.0f} s "
                    "(means of event time)"
                )
                details[f"{name}, lead"] = {"ranges": n, "begin_s": begin, "end_s": end}
            notes.append(note)
    length = (stream.clocks[-1] - stream.clocks[0]) / (n_batches - 1) / SECOND_US
    head = f"{len(rows):,} rows of {n_objects:,} objects in {n_batches} batches of {length:.0f} s"
    return Measurement(worst, f"{head}; " + "; ".join(notes), details)


RUNS: Runs = {"models_early": cost}
