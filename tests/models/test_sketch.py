"""What is kept to be drawn: the newest of a few entities, however rows come; work, and pictures."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import count, cycle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.models import graph, steps
from eddyline.models.entities.kept import CODE
from eddyline.models.fitting.bounds import Bound
from eddyline.models.planning.watching import (
    STATE,
    Watching,
    Work,
    bounds_of_results,
    errors_of,
    work_of_results,
)
from eddyline.models.segments import Segments
from eddyline.models.streams.plan import (
    ANY,
    MOST_ENTITIES,
    Sketch,
    StreamInput,
    StreamPlan,
    newest,
    sketched,
)
from eddyline.models.streams.view import pictures, told_bounds
from tests.examples import examples
from tests.models.batches import (
    DECLARED,
    DOOR,
    FIT,
    INPUT,
    NODES,
    SHAPE,
    of,
    projected,
    reported,
    rows_of,
    table_of,
    where,
)

EVERY = {"fit": FIT, "declared": DECLARED, "door": DOOR}


def coded(seed, n, maker):
    table = table_of(rows_of(seed, n), maker)
    codes = {"k0": 5, "k1": -3, None: 40}
    own = pa.array([codes[each] for each in table.column("k").to_pylist()], pa.int64())
    return table.append_column(CODE, own).sort_by("ts")


def sketch_of(plan, table, cuts, **more):
    made, tables = Sketch(**more), []
    reports, results = reported(plan, table, cuts)
    for each in reports:
        made = made.with_later([each.sketch], plan.row_times)
        tables.append(each)
    return made, tables, results


def listed(table, time):
    order = [(CODE, "ascending"), (time, "ascending"), ("x", "ascending")]
    return [] if table is None else table.select([CODE, time, "x"]).sort_by(order).to_pylist()


@examples(25)
@pytest.mark.parametrize("maker", EVERY)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 60),
    cuts=st.lists(st.integers(0, 60), max_size=4),
    entities=st.integers(1, 3),
)
def test_the_newest_of_the_same_entities_are_kept_in_any_batches(maker, seed, n, cuts, entities):
    table = coded(seed, n, EVERY[maker])
    plan = StreamPlan((StreamInput(EVERY[maker], SHAPE),), of(where("x > 0")))
    more = {"n_entities": entities, "n_rows": 7}
    found, _, _ = sketch_of(plan, table, [min(each, n) for each in cuts], **more)
    wanted, _, _ = sketch_of(plan, table, [], **more)
    codes = sorted({*table.column(CODE).to_pylist()})[:entities]
    assert found.codes.tolist() == codes
    assert found.cut == (codes[-1] if len(codes) == entities else ANY)
    few = [
        row
        for code in codes
        for row in sorted(
            (each for each in table.select([CODE, "ts"]).to_pylist() if each[CODE] == code),
            key=lambda each: each["ts"],
        )[-7:]
    ]
    kept = found.rows[0].select([CODE, "ts"])
    assert kept.sort_by([(CODE, "ascending"), ("ts", "ascending")]).to_pylist() == few
    if maker != "fit" and len(found.segments):  # of several rows at an instant any may be the last
        assert found.segments[0].num_rows == wanted.segments[0].num_rows


def test_nothing_is_kept_of_other_entities_and_of_nothing():
    none = coded(1, 9, FIT).slice(0, 0)
    assert len(newest(none, np.array([5]), "ts", 3)) == 0
    assert len(newest(coded(1, 9, FIT), np.zeros(0, np.int64), "ts", 3)) == 0
    assert Sketch().cut == ANY
    assert Sketch().with_later([], ("ts",)).codes.size == 0
    assert pictures(Sketch(), StreamPlan((StreamInput(FIT, SHAPE),), INPUT)) == ()
    (first, *_), _ = reported(StreamPlan((StreamInput(FIT, SHAPE),), INPUT), coded(1, 60, FIT), [],
                              cut=-3)  # fmt: skip
    assert first.sketch.codes.tolist() == [-3]
    nothing = pa.table({"x": pa.array([], pa.float64())})
    assert sketched(("ts",), [None], [None], nothing, np.array([5]), "UTC").results is None
    assert first.sketch.n_entities == MOST_ENTITIES


@pytest.mark.large
@pytest.mark.parametrize(("name", "maker"), [*zip(NODES, cycle(EVERY))])
def test_whatever_is_asked_is_drawn(name, maker):
    plan = StreamPlan((StreamInput(EVERY[maker], SHAPE),), NODES[name])
    sketch, _, results = sketch_of(plan, coded(8, 120, EVERY[maker]), [50])
    made = pictures(sketch, plan)
    assert {each.entity for each in made} == {"k k0", "k k1", "k NULL"}
    kinds = {curve.kind for each in made for curve in each.curves}
    assert {"rows", "model", "bound"} <= kinds
    has_answer = sum(map(len, results)) and name != "segments"
    assert not has_answer or "answer" in kinds
    for picture in made:
        for curve in picture.curves:
            assert len(curve.times) == len(curve.values)
            assert all(each is None or math.isfinite(each) for each in curve.values)
            is_known = [each is not None for each in curve.times]
            assert is_known == [each is not None for each in curve.values]
    if name in {"sample", "macd", "changes of a join"}:
        names = {each.attribute for each in made}
        assert names == ({"x", "y", "z"} if name == "sample" else {"x", "y"})


def test_rows_are_within_the_area_around_their_model():
    table = coded(8, 120, FIT)
    firsts = {}  # of several values at an instant some may lose
    for at, row in enumerate(table.select([CODE, "ts"]).to_pylist()):
        firsts.setdefault(tuple(row.values()), at)
    table = table.take(pa.array(list(firsts.values())))
    plan = StreamPlan((StreamInput(FIT, SHAPE),), of(where("x > 0")))
    made = pictures(sketch_of(plan, table, [30])[0], plan)
    n = 0
    for picture in made:
        curves = {each.kind: each for each in picture.curves}
        areas = _pieces(curves["bound"])
        rows = zip(curves["rows"].times, curves["rows"].values, strict=True)
        for time, value in (each for each in rows if each[0] is not None):
            bounds = [_between(area, time) for area in areas if area[0][0] <= time < area[1][0]]
            n += len(bounds)
            assert all(low - 1e-9 <= value <= high + 1e-9 for low, high in bounds)
        if picture.attribute == "x":
            model = [value for value in curves["answer"].values if value is not None]
            assert all(value >= -1e-5 for value in model)  # roots are whole microseconds
    assert n > 60


def _pieces(curve):
    found, piece = [], []
    for each in zip(curve.times, curve.values, strict=True):
        if each[0] is None:
            found += [piece] if piece else []
            piece = []
        else:
            piece.append(each)
    return found


def _between(area, time):
    """Return low and high of the area of a line: its corners are start, end, end, start."""
    (t0, high0), (t1, high1), (_, low1), (_, low0) = area
    part = (time - t0) / (t1 - t0)
    return low0 + part * (low1 - low0), high0 + part * (high1 - high0)


# -- work ---------------------------------------------------------------------------------------


def test_time_is_that_of_steps_and_the_rest():
    ticks = count()
    watch = Watching(lambda: next(ticks))
    with watch.on("a"):
        pass
    with watch.paused():
        next(ticks)
    with watch.on("a"), watch.on("b"):
        pass
    spent = watch.spent()
    assert spent == {"a": 4, "b": 1, STATE: 11 - 5 - 3}


def test_each_step_of_a_batch_has_its_time():
    plan = StreamPlan((StreamInput(FIT, SHAPE),), NODES["macd"])
    ticks = count()
    reports, _ = reported(plan, coded(8, 120, FIT), [50], clock=lambda: next(ticks))
    whole = sum((each.counts.work for each in reports), Work())
    named = {str(each) for each in graph.parts(plan.node) if not isinstance(each, graph.Input)}
    assert {*whole.ns} == named | {"make segments of x, y", STATE}
    assert whole.n_looked_at >= 3


def test_work_adds_up_and_errors_are_the_largest():
    one = Work({"a": 1}, {"0 x": 0.5}, {"z": 1.0}, 2, 3)
    other = Work({"a": 2, "b": 5}, {"0 x": 0.25, "0 y": 1.0}, {}, 1, 1)
    assert one + other == Work({"a": 3, "b": 5}, {"0 x": 0.5, "0 y": 1.0}, {"z": 1.0}, 3, 4)


def test_bounds_of_results_are_those_that_nothing_changes():
    z = of(projected("x + y"), of(steps.Within({"x": Bound(3.0)})))
    node = of(steps.Sample(1), of(steps.Within({"z": Bound(0.5)}), z))
    node = of(steps.Within({"z": Bound(0.75)}), node)
    assert bounds_of_results(node) == {"z": Bound(0.5)}
    assert bounds_of_results(of(steps.Within({"z": Bound(0.01, True)}), node)) == {"z": Bound(0.5)}
    plan = StreamPlan((StreamInput(FIT, SHAPE),), node)
    told = told_bounds(plan, ("s",))
    assert [(each.name, each.bound, each.is_of_result) for each in told] == [
        ("x", "1", False), ("y", "0.5", False), ("z", "0.5", True),
    ]  # fmt: skip
    work = work_of_results(
        pa.table({"z": [1.0, 2, 3], "err_z": [0.5, 0.75, math.inf]}), bounds_of_results(node)
    )
    assert work == Work(n_beyond=2)
    assert work_of_results(pa.table({"err_z": [0.5, 0.4]}), {}) == Work(off={"z": 0.5})


@pytest.mark.parametrize("maker", EVERY)
def test_no_segment_has_an_error_above_its_bound(maker):
    plan = StreamPlan((StreamInput(EVERY[maker], SHAPE),), INPUT)
    reports, _ = reported(plan, coded(3, 120, EVERY[maker]), [20, 70])
    errors = sum((each.counts.work for each in reports), Work()).errors
    bounds = {"fit": (1.0, 0.5), "declared": (0.0, 0.0), "door": (1.5, math.inf)}[maker]
    assert errors["0 x"] <= bounds[0]
    assert errors["0 y"] <= bounds[1]
    assert maker == "declared" or errors["0 x"] > bounds[0] / 4


@pytest.mark.parametrize("key", ["time", "since", "until"])
def test_keys_may_have_names_of_times_of_results(key):
    shape = steps.Shape((key,), ("x", "y"))
    table = coded(3, 20, DECLARED).rename_columns([key, "ts", "x", "y", CODE])
    for node in (graph.Input(0, shape), of(steps.Changes(), graph.Input(0, shape))):
        plan = StreamPlan((StreamInput(replace(DECLARED, keys=(key,)), shape),), node)
        made, _, _ = sketch_of(plan, table, [10])
        assert made.results is not None


def test_errors_that_are_no_numbers_are_not_saved():
    none = np.zeros(1, np.bool_)
    zero = np.zeros(1, np.int64)
    errors = {"x": np.array([np.inf]), "y": np.array([2.0])}
    made = Segments(zero, zero, zero, zero + 1, none, none, {}, errors)
    assert errors_of(0, made) == {"0 y": 2.0}
