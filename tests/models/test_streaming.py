"""Models of a stream give, batch by batch, what they give of all rows at once."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from eddyline.models import graph, steps
from eddyline.models.bounds import Bound, FitOptions
from eddyline.models.condition_text import read_condition, read_expression
from eddyline.models.declared import Declared, read_equations
from eddyline.models.fitted import Fit
from eddyline.models.rows import keyed
from eddyline.models.streaming import BucketBatch, BucketState, StreamPlan
from eddyline.models.window_steps import Extremum, Integral
from eddyline.state.place import StatePlace
from tests.examples import examples

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


def streamed(table, maker, node, cuts, lateness, rng):
    """Run batches of rows, which come out of order by no more than a lateness."""
    times = table.column("ts").cast(pa.int64()).to_numpy()
    order = np.argsort(times + rng.integers(0, lateness + 1, len(times)), kind="stable")
    arriving, state, latest, results = table.take(order), BucketState(), -(2**62), []
    plan = StreamPlan(maker, node, SHAPE)
    with tempfile.TemporaryDirectory() as folder:
        place = StatePlace(fs.LocalFileSystem(), folder, "models")
        fs.LocalFileSystem().create_dir(place.runs)
        edges = [0, *sorted(cuts), len(table)]
        for low, high in pairwise(edges):
            part = arriving.slice(low, high - low)
            latest = max(latest, *part.column("ts").cast(pa.int64()).to_pylist(), -(2**62))
            batch = BucketBatch(plan, place, state, 0, latest - lateness)
            results += list(batch.run(part if len(part) else None))
            state = batch.report.after
        batch = BucketBatch(plan, place, state, 0, 2**62)
        results += list(batch.run(None))
        assert not {"rows", "known", "ranges"} & set(batch.report.after.files)
    return results


def at_once(table, maker, node):
    ordered = table.sort_by([("k", "ascending"), ("ts", "ascending")])
    (segments,) = maker.tables(ordered.to_batches())
    found = graph.run(node, [keyed(segments, SHAPE.layout)])
    return [steps.result_table(found, "UTC")]


@examples(60)
@pytest.mark.parametrize("name", NODES)
@pytest.mark.parametrize("maker", [FIT, DECLARED, DOOR], ids=["fit", "declared", "door"])
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 120),
    cuts=st.lists(st.floats(0, 1), max_size=5),
    lateness=st.sampled_from([0, 3 * SECOND]),
)
def test_any_batches_give_what_all_rows_give_at_once(name, maker, seed, n, cuts, lateness):
    rows = rows_of(seed, n)
    table = table_of(rows, maker)
    rng = np.random.default_rng(seed + 1)
    found = streamed(table, maker, NODES[name], [int(each * n) for each in cuts], lateness, rng)
    assert shown(found) == shown(at_once(table, maker, NODES[name]))
