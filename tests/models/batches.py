"""Rows of a stream for tests, and batches of one bucket that run over them without Spark."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace

import msgspec
import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from pyarrow import fs

from eddyline.models import graph, steps
from eddyline.models.entities.kept import CODE, EntityRecords
from eddyline.models.fitting.bounds import Bound, FitOptions
from eddyline.models.fitting.declared import Declared, read_equations
from eddyline.models.fitting.fit import Fit
from eddyline.models.segments import keyed, unified
from eddyline.models.solving.text import read_condition, read_expression
from eddyline.models.steps import Extremum, Integral
from eddyline.models.streams.bucket import BucketBatch
from eddyline.models.streams.plan import BucketState, StreamInput, StreamPlan
from eddyline.state.manifest import StatePlace

SECOND = 1_000_000

SHAPE = steps.Shape(("k",), ("x", "y"))

INPUT = graph.Input(0, SHAPE)

WITHIN = {"x": Bound(1.0), "y": Bound(0.5)}


def of(step, node=INPUT):
    return graph.Unary(step, node)


def where(text):
    return steps.Where(read_condition(text, SHAPE.attributes), text)


def average(seconds, every=None, *, covered=False):
    ticks = None if every is None else every * SECOND
    return Integral(seconds * SECOND, ticks, True, covered)


def joined():
    node = of(steps.Project.onto("x"))
    sides = of(average(5), node), of(average(9), node)
    condition = read_condition("a.x > b.x", ["a.x", "b.x"])
    return graph.SameEntity(*sides, ("a", "b"), condition, "a.x > b.x")


def projected(text):
    return steps.Project({"z": read_expression(text, SHAPE.attributes)}, {"z": text})


NODES = {
    "segments": INPUT,
    "where": of(where("x > y AND x < 3")),
    "sample": of(steps.Sample(3 * SECOND), of(projected("x - 2 * y"))),
    "changes": of(steps.Changes()),
    "changes where": of(steps.Changes(), of(where("x > y"))),
    "average": of(average(7)),
    "average at ticks": of(average(7, 2)),
    "average of what is covered": of(average(7, 2, covered=True)),
    "average of averages": of(average(3), of(average(4))),
    "greatest": of(Extremum(6 * SECOND, 2 * SECOND, True), of(steps.Project.onto("x"))),
    "greatest of averages": of(
        Extremum(6 * SECOND, 2 * SECOND, True), of(average(4), of(steps.Project.onto("x")))
    ),
    "greatest as segments": of(Extremum(4 * SECOND, None, True), of(steps.Project.onto("x"))),
    "least, where it is": of(
        steps.Where(read_condition("y < 0", ["y"]), "y < 0"),
        of(Extremum(5 * SECOND, None, False), of(steps.Project.onto("y"))),
    ),
    "average at ticks of a part": of(average(7, 2, covered=True), of(where("x > y"))),
    "sums of what is covered": of(Integral(7 * SECOND, None, False, True)),
    "averages of what is covered": of(average(7, covered=True)),
    "averages of averages of what is covered": of(
        average(4, covered=True), of(average(9, covered=True), of(where("x > y")))
    ),
    "where sums of what is covered are": of(
        where("x > 3 OR y < 1"), of(Integral(12 * SECOND, None, False, True))
    ),
    "changes of what is covered": of(
        steps.Changes(), of(where("x > 1"), of(average(9, covered=True)))
    ),
    "changes of the greatest": of(
        steps.Changes(), of(Extremum(20 * SECOND, None, True), of(steps.Project.onto("x")))
    ),
    "sums of the greatest": of(
        Integral(5 * SECOND, None, False, True),
        of(Extremum(8 * SECOND, None, True), of(steps.Project.onto("x"))),
    ),
    "greatest of the least": of(
        Extremum(7 * SECOND, None, True),
        of(Extremum(3 * SECOND, None, False), of(steps.Project.onto("y"))),
    ),
    "samples of the greatest of sums": of(
        steps.Sample(SECOND),
        of(
            Extremum(3 * SECOND, None, True),
            of(Integral(4 * SECOND, None, False, True), of(steps.Project.onto("x"))),
        ),
    ),
    "of a part, joined with all": graph.SameEntity(
        of(Extremum(6 * SECOND, None, True), of(steps.Project.onto("x"), of(where("y > 0")))),
        INPUT,
        ("a", "b"),
        None,
        None,
    ),
    "of two windows, joined": graph.SameEntity(
        of(Extremum(3 * SECOND, None, True), of(steps.Project.onto("x"))),
        of(Integral(11 * SECOND, None, False, True), of(steps.Project.onto("x"))),
        ("a", "b"),
        None,
        None,
    ),
    "greatest of a part of the least": of(
        Extremum(3 * SECOND, SECOND, True),
        of(
            steps.Where(read_condition("x > 0", ["x"]), "x > 0"),
            of(
                Extremum(4 * SECOND, None, False),
                of(steps.Project.onto("x"), of(where("x < 6 AND y <> 0"))),
            ),
        ),
    ),
    "macd": of(steps.Sample(SECOND), joined()),
    "changes of a join": of(steps.Changes(), joined()),
}

FIT = Fit(("k",), "ts", WITHIN, FitOptions(degree=1, max_gap_us=6 * SECOND, prefix_rows=16))

DECLARED = Declared(("k",), "ts", read_equations({"x": "x + t", "y": "y"}), 4 * SECOND)

DOOR = replace(DECLARED, within={"x": Bound(1.5), "y": Bound(0.5, is_relative=True)})


def rows_of(seed, n):
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, 3, n)
    times = (
        np.cumsum(rng.choice([0, 1, 1, 2, 9], n)) * SECOND
        + rng.integers(0, 2) * 1_700_000_000_000_000
    )
    x = np.cumsum(rng.integers(-2, 3, n)).astype(float)
    y = np.where(rng.random(n) < 0.1, np.nan, rng.integers(-3, 4, n))
    return keys, times, x, y


def table_of(rows, maker):
    keys, times, x, y = rows
    columns = {"x": pa.array(x), "y": pa.array(y, from_pandas=False)}
    if isinstance(maker, Declared):
        columns = {
            "x": pa.array([[a, 1.0] for a in x], pa.list_(pa.float64())),
            "y": pa.array([[b] for b in y], pa.list_(pa.float64())),
        }
    names = pa.array([None if key == 2 else f"k{key}" for key in keys], pa.string())
    return pa.table({"k": names, "ts": pa.array(times).cast(pa.timestamp("us", "UTC")), **columns})


def shown(tables):
    """Return results as sorted rows of rounded numbers, of values that two ways may round."""
    found = []
    for table in tables:
        kinds = [
            pa.field(each.name, pa.int64() if pa.types.is_timestamp(each.type) else each.type)
            for each in table.schema
        ]
        rows = table.cast(pa.schema(kinds)).to_pylist()
        found += [tuple(rounded(each) for each in row.values()) for row in rows]
    return sorted(found, key=repr)


def rounded(value):
    if isinstance(value, float):
        return None if np.isnan(value) else round(value, 6) + 0.0
    return tuple(rounded(each) for each in value) if isinstance(value, list) else value


def coded(table):
    """Return rows with the code of their entity, if they have none; two have the same one."""
    if CODE in table.column_names:
        return table
    codes = pa.array([{"k0": 5, "k1": -3}.get(each, 5) for each in table.column("k").to_pylist()])
    return table.append_column(CODE, codes.cast(pa.int64()))


class Bucket:
    """A bucket without Spark: its plan, the folder of its files, and its state."""

    def __init__(self, plan, folder):
        self.plan, self.state = plan, BucketState()
        self.place = StatePlace(fs.LocalFileSystem(), str(folder), "models")
        fs.LocalFileSystem().create_dir(self.place.runs)

    def run(self, until, rows, kind=BucketBatch, **more):
        """Return the results of a batch of rows of each input, and keep its state and report."""
        batch = kind(self.plan, self.place, self.state, 0, until, **more)
        found = list(batch.run(rows))
        self.report, self.state = batch.report, batch.report.after
        return found


def streamed(table, maker, node, cuts, lateness, rng, **more):
    """Run batches of rows, which come out of order by no more than a lateness."""
    inputs = ((table, StreamInput(maker, SHAPE)),)
    return streamed_together(inputs, node, [cuts], lateness, rng, **more)[0]


def streamed_together(inputs, node, cuts, lateness, rng, *, n_tries=1):
    """Run batches of several inputs, each cut on its own; return results and the last state.

    Of several tries of a batch the last one counts.
    """
    plan = StreamPlan(tuple(each for _, each in inputs), node)
    arriving, latest, results = [], {}, []
    for at, (table, each) in enumerate(inputs):
        rows = coded(table)
        if each.maker is not None:
            times = rows.column("ts").cast(pa.int64()).to_numpy()
            late = times + rng.integers(0, lateness + 1, len(times))
            rows = rows.take(np.argsort(late, kind="stable"))
            latest[at] = -(2**62)
        arriving.append(rows)
    edges = [[0, *sorted(each), len(rows)] for each, rows in zip(cuts, arriving, strict=True)]
    n_batches = max(map(len, edges)) - 1
    with tempfile.TemporaryDirectory() as folder:
        bucket = Bucket(plan, folder)
        for number in range(n_batches):
            parts = []
            for at, rows in enumerate(arriving):
                if at not in latest:
                    parts.append(rows if number == 0 and len(rows) else None)
                    continue
                low, high = [*edges[at], *[len(rows)] * n_batches][number : number + 2]
                part = rows.slice(low, high - low)
                latest[at] = max(
                    latest[at], *part.column("ts").cast(pa.int64()).to_pylist(), -(2**62)
                )
                parts.append(part if len(part) else None)
            before = bucket.state
            for _ in range(n_tries):
                bucket.state = before
                found = bucket.run(min(latest.values()) - lateness, parts)
            results += found
            restart(bucket)
        results += bucket.run(2**62, [None] * len(inputs))
        restart(bucket)
        records, codes = EntityRecords(bucket.place, bucket.state.entities), np.array([-3, 5])
        assert not records.of(codes, ["ranges", *(f"held{at}" for at in latest)])
        assert not any(bucket.state.waiting.values())
    return [each.drop_columns([CODE]) for each in results], bucket.state


def restart(bucket):
    """Read the state of a bucket again, with no file left that it does not name."""
    named = {f"{each.name}.held.arrow" for each in bucket.state.files}
    for each in os.listdir(bucket.place.runs):
        if each not in named:
            os.remove(f"{bucket.place.runs}/{each}")
    bucket.state = msgspec.json.decode(msgspec.json.encode(bucket.state), type=BucketState)


def made_of(table, maker):
    """Return the segments of rows, all at once."""
    ordered = table.sort_by([("k", "ascending"), ("ts", "ascending")])
    (segments,) = maker.tables(ordered.to_batches())
    return segments


def at_once(table, maker, node):
    found = graph.run(node, [keyed(made_of(table, maker), SHAPE.layout)])
    return [steps.result_table(found, "UTC")]


def together_at_once(segments, node):
    """Return what segments of two inputs give at once."""
    whole, _ = unified([keyed(each, SHAPE.layout) for each in segments], [], ["k"])
    return steps.result_table(graph.run(node, whole), "UTC")


def sides(on, *, covered=False):
    """Return averages of one input joined with the other one."""
    left = of(Integral(5 * SECOND, None, True, covered), of(steps.Project.onto("x")))
    right = of(steps.Project.onto("y"), graph.Input(1, SHAPE))
    condition = None if on is None else read_condition(on, ["a.x", "b.y"])
    return graph.SameEntity(left, right, ("a", "b"), condition, on)


TOGETHER = {
    "join": graph.SameEntity(INPUT, graph.Input(1, SHAPE), ("a", "b"), None, None),
    "join where": sides("a.x > b.y"),
    "samples": of(steps.Sample(2 * SECOND), sides("a.x > b.y", covered=True)),
    "changes": of(steps.Changes(), sides("a.x <> b.y")),
    "average of a join": of(average(3), sides(None)),
    "average at ticks of a join": of(average(3, 2), sides(None)),
}

OF_TWO = {
    "seed": st.integers(0, 2**32),
    "sizes": st.tuples(st.integers(1, 60), st.integers(1, 60)),
    "cuts": st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=4),
    "lateness": st.sampled_from([0, 3 * SECOND]),
}
"""Rows of two streams, cut into batches."""


def check_together(makers, node, seed, sizes, cuts, lateness):
    """Check that two streams, or one and segments that are there (None), give what all rows do."""
    inputs, whole = [], []
    for at, (maker, n) in enumerate(zip(makers, sizes, strict=True)):
        table = table_of(rows_of(seed + at, n), maker or DECLARED)
        whole.append(made_of(table, maker or DECLARED))
        inputs.append((table if maker else whole[-1], StreamInput(maker, SHAPE)))
    own = [[int(cut[at] * n) for cut in cuts] for at, n in enumerate(sizes)]
    rng = np.random.default_rng(seed + 2)
    found, _ = streamed_together(inputs, node, own, lateness, rng)
    assert shown(found) == shown([together_at_once(whole, node)])


def reported(plan, table, cuts, **more):
    """Run rows in the order of time, cut into batches, and a last batch that ends all.

    Args:
        plan: of one input.
        table: with ``CODE`` and ``ts``, in the order of time.
        cuts: places between batches.
        more: arguments of ``BucketBatch``.
    """
    times = table.column("ts").cast("int64").to_numpy()
    edges, reports, results = [0, *sorted(cuts), len(table)], [], []
    with tempfile.TemporaryDirectory() as folder:
        bucket = Bucket(plan, folder)
        for low, high in zip(edges, [*edges[1:], None], strict=True):
            until = 2**62 if high is None else int(times[high - 1]) if high else -(2**62)
            rows = None if high is None or high == low else table.slice(low, high - low)
            results += bucket.run(until, [rows], **more)
            reports.append(bucket.report)
    return reports, results
