"""Pairs and values over entities of streams give, batch by batch, what all rows give at once."""

from __future__ import annotations

import tempfile
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.errors import NotSupportedError
from eddyline.models import graph, steps
from eddyline.models.entities.kept import CODE
from eddyline.models.segments import keyed
from eddyline.models.solving.text import read_condition
from eddyline.models.steps import (
    AverageDistance,
    DifferentEntities,
    Envelope,
    Extremum,
    Integral,
    Total,
)
from eddyline.models.streams.plan import StreamInput, StreamPlan, check_streams, staged
from tests.examples import examples
from tests.models.batches import (
    DECLARED,
    DOOR,
    FIT,
    INPUT,
    OF_TWO,
    SECOND,
    SHAPE,
    Bucket,
    at_once,
    average,
    check_together,
    coded,
    of,
    rows_of,
    shown,
    streamed,
    streamed_together,
    table_of,
    where,
)

X = of(steps.Project.onto("x"))


def pairs(text=None, left=INPUT, right=None, **more):
    names = [f"{side}.{name}" for side, each in (("a", left), ("b", right or left))
             for name in each.shape.attributes]  # fmt: skip
    condition = None if text is None else read_condition(text, names)
    step = DifferentEntities(
        ("a", "b"), condition, more.get("within", {}), more.get("whole", False), right is None
    )
    return graph.OtherEntities(left, right or left, step)


def over(node, text):
    return of(steps.Where(read_condition(text, node.shape.attributes), text), node)


def onto(node, *names):
    return of(steps.Project.onto(*names), node)


APART = AverageDistance({"a_x": "b_x"}, 5 * SECOND, 2 * SECOND, False)
TOP, BOTTOM = of(Envelope((), True), X), of(Envelope((), False), X)
NODES = {
    "pairs": pairs(),
    "near": of(steps.Changes(), pairs("a.x - b.x < 2 AND b.x - a.x < 2", within={"x": 2.0})),
    "of a part, sampled": of(steps.Sample(SECOND), pairs("a.x > b.x", of(where("y > 0")))),
    "of averages with what is": onto(pairs("a.x < b.x", of(average(3), X), INPUT), "a_x", "b_x"),
    "distance": of(APART, pairs(within={"x": 1.5}, whole=False)),
    "distance below": of(
        replace(APART, is_covered=True, below=3.0), pairs(within={"x": 3.0}, whole=True)
    ),
    "greatest": TOP,
    "least, of each": of(Envelope(("k",), False), of(steps.Project.onto("y"))),
    "changes of the greatest": of(steps.Changes(), over(TOP, "x > 1")),
    "average of the least, of each": of(average(4), of(Envelope(("k",), False), X)),
    "greatest of each of pairs, joined": graph.SameEntity(
        of(Envelope(("a_k",), True), onto(pairs("a.x > b.x", INPUT, INPUT), "a_x")),
        of(Envelope(("a_k",), False), onto(pairs("a.y < b.y", INPUT, INPUT), "a_x")),
        ("a", "b"),
        None,
        None,
    ),
    "of the greatest at ticks": of(Extremum(4 * SECOND, 2 * SECOND, False), TOP),
    "average of the greatest": of(average(4), of(Envelope((), True), of(average(2), X))),
    "between": of(steps.Changes(), graph.SameEntity(TOP, BOTTOM, ("a", "b"), None, None)),
    "farthest": of(Envelope(("a_k",), True), onto(pairs("a.x > b.x", INPUT, INPUT), "a_x")),
    "average over pairs of pairs": of(
        average(3), onto(pairs(None, onto(pairs(), "a_x", "b_x")), "a_a_x")
    ),
    "of each with groups": onto(
        pairs("a.x <= b.x", X, of(Envelope(("k",), True), X)), "a_x", "b_x"
    ),
    "pairs of groups": pairs(None, of(Envelope(("k",), True), X)),
    "of the greatest of pairs, sampled": of(
        steps.Sample(SECOND), of(Extremum(2 * SECOND, None, True), onto(pairs("a.x > b.x"), "a_x"))
    ),
    "average at ticks over pairs of pairs": of(
        average(3, 1), onto(pairs(None, onto(pairs(), "a_x", "b_x")), "a_a_x")
    ),
    "pairs of instants": onto(pairs(None, onto(over(INPUT, "x = y"), "x"), X), "a_x", "b_x"),
    "greatest of the greatest": of(Envelope((), False), onto(TOP, "x")),
    "pairs of sums of what is covered": pairs(
        "a.x < b.x", of(Integral(3 * SECOND, None, False, True), X)
    ),
    "greatest of averages of what is covered": of(
        Envelope((), True), of(average(3, covered=True), X)
    ),
    "greatest, of the least, of each": of(
        Envelope(("k",), True), of(Extremum(4 * SECOND, None, False), X)
    ),
    "changes of the greatest of averages of what is covered": of(
        steps.Changes(),
        over(
            of(Envelope((), True), of(average(5, covered=True), onto(over(INPUT, "y > 0"), "x"))),
            "x > 1",
        ),
    ),
    "of pairs of the greatest, at ticks": of(
        Extremum(3 * SECOND, SECOND, True),
        onto(pairs("a.x <= b.x", of(Extremum(2 * SECOND, None, True), X), X), "a_x"),
    ),
    "moving sums of pairs of what is covered, joined": graph.SameEntity(
        of(Integral(4 * SECOND, None, False, True), onto(pairs(within={"x": 5.0}), "a_x")),
        onto(pairs("a.x > b.x"), "b_x"),
        ("a", "b"),
        None,
        None,
    ),
    "greatest of pairs joined with pairs": graph.SameEntity(
        of(Extremum(4 * SECOND, None, True), onto(pairs("a.x > b.x"), "a_x")),
        pairs(),
        ("a", "b"),
        None,
        None,
    ),
    "sums": of(Total((), False)),
    "average of averages, of each": of(average(4, covered=True), of(Total(("k",), True))),
    "changes of the average of pairs": of(
        steps.Changes(), over(of(Total(("a_k",), True), pairs("a.x > b.x")), "b_y > 0")
    ),
    "sum of the greatest and of what is covered": of(
        Total((), False),
        graph.SameEntity(
            of(Extremum(3 * SECOND, None, True), X),
            of(average(5, covered=True), of(where("y > 0"))),
            ("a", "b"),
            None,
            None,
        ),
    ),
    "moving extremes of both ends": of(
        Extremum(5 * SECOND, None, True), of(Extremum(3 * SECOND, None, False), TOP)
    ),
}


@pytest.mark.large
@examples(120, few=9)
@pytest.mark.parametrize("name", NODES)
@given(
    maker=st.sampled_from([FIT, DECLARED, DOOR]),
    seed=st.integers(0, 2**32),
    n=st.integers(1, 100),
    cuts=st.lists(st.floats(0, 1), max_size=5),
    lateness=st.sampled_from([0, 3 * SECOND]),
)
def test_any_batches_give_what_all_rows_give_at_once(name, maker, seed, n, cuts, lateness):
    table = table_of(rows_of(seed, n), maker)
    rng = np.random.default_rng(seed + 1)
    node = NODES[name]
    check_streams(StreamPlan((StreamInput(maker, SHAPE),), node))
    found = streamed(table, maker, node, [int(each * n) for each in cuts], lateness, rng)
    assert shown(found) == shown(at_once(table, maker, node))


TOGETHER = {
    "near what is there": of(steps.Changes(), pairs("a.x - b.x < 2", INPUT, graph.Input(1, SHAPE))),
    "greatest of both": of(
        Envelope((), True),
        onto(graph.SameEntity(INPUT, graph.Input(1, SHAPE), ("a", "b"), None, None), "a_x"),
    ),
    "joined with the greatest of groups": graph.SameEntity(
        of(Envelope(("k",), True), X), graph.Input(1, SHAPE), ("a", "b"), None, None
    ),
}


@pytest.mark.large
@examples(75, few=6)
@pytest.mark.parametrize("name", TOGETHER)
@given(makers=st.sampled_from([(FIT, DECLARED), (DECLARED, FIT), (FIT, None)]), **OF_TWO)
def test_streams_and_what_is_there_are_crossed_in_any_batches(name, makers, **drawn):
    check_together(makers, TOGETHER[name], **drawn)


GROUPS = steps.Shape(("k", "m"), ("x", "y"))
OF_GROUPS = of(steps.Project.onto("x"), graph.Input(0, GROUPS))
BY_KEY = of(Envelope(("m",), True), OF_GROUPS)
GROUPED = {
    "greatest": BY_KEY,
    "changes of the least average": of(
        steps.Changes(), of(Envelope(("m",), False), of(average(4, covered=True), OF_GROUPS))
    ),
    "moving greatest": of(Extremum(4 * SECOND, None, True), BY_KEY),
    "between": graph.SameEntity(
        BY_KEY, of(Envelope(("m",), False), OF_GROUPS), ("a", "b"), None, None
    ),
    "least of the greatest": of(Envelope((), False), BY_KEY),
    "averages": of(Total(("m",), True), graph.Input(0, GROUPS)),
    "changes of sums of moving ones": of(
        steps.Changes(), of(Total(("m",), False), of(Extremum(4 * SECOND, None, True), OF_GROUPS))
    ),
    "sum of averages": of(Total((), False), of(average(5), of(Total(("m",), True), OF_GROUPS))),
}


@pytest.mark.large
@examples(40)
@pytest.mark.parametrize("name", GROUPED)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 120),
    cuts=st.lists(st.floats(0, 1), max_size=9),
    maker=st.sampled_from([FIT, DECLARED, DOOR]),
    lateness=st.sampled_from([0, 3 * SECOND]),
    n_tries=st.sampled_from([1, 2]),
)
def test_groups_of_several_entities_give_what_all_rows_give(
    name, seed, n, cuts, maker, lateness, n_tries
):
    rng = np.random.default_rng(seed + 1)
    _, *values = rows_of(seed, n)
    who = rng.integers(0, 6, n)
    table = table_of((who, *values), maker).set_column(0, "k", pa.array([f"k{a}" for a in who]))
    groups = pa.array([None if each % 3 == 2 else int(each % 3) for each in who], pa.int64())
    table = table.append_column("m", groups).append_column(CODE, pa.array(who // 2))
    given_ = StreamInput(replace(maker, keys=GROUPS.keys), GROUPS)
    own = [[int(each * n) for each in cuts]]
    found, _ = streamed_together(
        ((table, given_),), GROUPED[name], own, lateness, rng, n_tries=n_tries
    )
    ordered = table.drop_columns([CODE]).sort_by([(e, "ascending") for e in (*GROUPS.keys, "ts")])
    (segments,) = given_.maker.tables(ordered.to_batches())
    wanted = graph.run(GROUPED[name], [keyed(segments, GROUPS.layout)])
    assert shown(found) == shown([steps.result_table(wanted, "UTC")])


# -- when results are told -----------------------------------------------------------------------


def told(node, maker, batches):
    """Return the results of each batch: of rows ``(key, seconds, x)`` up to an instant."""
    plan = StreamPlan((StreamInput(maker, SHAPE),), node)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        bucket = Bucket(plan, folder)
        for until, rows in batches:
            keys, seconds, x = (np.array(each) for each in zip(*rows, strict=True)) if rows else (
                np.zeros((3, 0), np.int64))  # fmt: skip
            table = table_of((keys, seconds * SECOND, x.astype(float), x * 0.0), maker)
            results = bucket.run(round(until * SECOND), [coded(table) if rows else None])
            found.append(sum(map(len, results)))
    return found, bucket.state


AT_ONCE = 1e-6
"""The least time that passes."""


@pytest.mark.parametrize(
    ("node", "n"),
    [
        (INPUT, 2),
        (pairs(), 1),
        (TOP, 1),
        (of(Envelope(("k",), True), X), 2),
        (of(Total((), False)), 1),
        (of(Total(("k",), True)), 2),
    ],
    ids=["entities", "pairs", "all", "groups", "sum", "averages"],
)
@pytest.mark.parametrize(("maker", "end"), [(DECLARED, 5.0), (FIT, 7.0)], ids=["declared", "fit"])
def test_the_last_range_is_told_when_time_has_passed_although_nothing_comes(node, n, maker, end):
    # Rows at 0 and 1 s: a model holds for 4 s, or until no row has come for 6.
    rows = [(key, at, 5) for key in (0, 1) for at in (0, 1)]
    batches = [(2, rows), (end, []), (end + AT_ONCE, []), (end + AT_ONCE, []), (99, [])]
    found, state = told(of(steps.Changes(), node), maker, batches)
    assert found == [0, 0, n, 0, 0]
    assert not [*state.wakes, *(each.wakes for each in state.stages.values() if each.wakes)]


GREATEST, SUMS = Extremum(6 * SECOND, 2 * SECOND, True), Integral(6 * SECOND, None, False, True)


@pytest.mark.parametrize(
    ("node", "asked"),
    [
        (of(GREATEST, X), [2, 4, 2, 2, 2, 0, 0]),
        (of(GREATEST, TOP), [1, 2, 1, 1, 1, 0, 0]),
        (of(steps.Changes(), of(SUMS, X)), [0, 0, 0, 0, 0, 0, 2]),
        (of(SUMS, X), [2, 4, 0, 2, 0, 2, 0]),
    ],
    ids=["ticks", "ticks of all", "changes", "segments"],
)
def test_windows_behind_the_last_segment_are_told_as_time_passes(node, asked):
    # Rows at 0 and 1 s: models end at 5, so windows of 6 s see some of them until 11.
    rows = [(key, at, 5) for key in (0, 1) for at in (0, 1)]
    times = [2, 6, 6 + AT_ONCE, 10, 10 + AT_ONCE, 11, 11 + AT_ONCE]
    batches = [(at, [] if number else rows) for number, at in enumerate(times)]
    found, state = told(node, DECLARED, [*batches, (99, []), (199, [])])
    assert found == [*asked, 0, 0]
    assert not [*state.wakes, *(each.wakes for each in state.stages.values() if each.wakes)]


@pytest.mark.parametrize(
    ("node", "asked"),
    [(pairs(), [0, 1, 0, 2]), (TOP, [0, 0, 0, 1]), (of(Total((), False)), [0, 0, 0, 1])],
    ids=["pairs", "greatest", "sum"],
)
def test_an_open_run_holds_what_it_may_be_in_and_nothing_else(node, asked):
    # One entity goes on while the others are over; the pair of these waits for nobody.
    rows = [(key, at, key) for key in (0, 1, 2) for at in (0, 1)]
    on = [[(2, at, 2)] for at in (5, 9, 13)]
    batches = [(2, rows), (8, on[0]), (12, on[1]), (30, [])]
    found, state = told(of(steps.Changes(), node), FIT, batches)
    assert found == asked
    assert not state.n_segments


def test_an_instant_stays_for_entities_that_begin_with_it():
    # x of the first is 3 at 10 s, where the run of the other one begins, which stays open.
    node = pairs(None, onto(over(INPUT, "x = 3"), "x"), X)
    batches = [
        (10, [(0, 8, 1), (0, 9, 2)]),
        (12, [(0, 10, 3), (1, 10, 7), (0, 11, 4), (1, 11, 8)]),
        (19.5, [(0, 12, 5), (0, 13, 6), (1, 12, 7), (1, 15, 8), (1, 17, 8)]),
        (21, [(1, 20, 8)]),
        (60, []),
    ]
    found, state = told(node, FIT, batches)
    assert sum(found) == 1
    assert not state.n_segments


@pytest.mark.large
def test_what_is_kept_of_pairs_follows_what_is_open():
    rng = np.random.default_rng(5)
    state_sizes = []
    for n in (20, 200):
        rows = [
            [(key, 3 * number + at, int(rng.integers(0, 9))) for key in (0, 1) for at in range(3)]
            for number in range(n)
        ]
        batches = [(3 * number + 3, each) for number, each in enumerate(rows)]
        _, state = told(of(steps.Changes(), pairs("a.x < b.x")), DECLARED, batches)
        state_sizes.append(state.n_segments)
    assert state_sizes[1] <= 2 * state_sizes[0] + 20


# -- plans ---------------------------------------------------------------------------------------


def test_a_graph_is_cut_where_entities_become_other_ones():
    def told_by(node):
        return [[*map(str, each.inputs)] for each in staged(node, 1)]

    assert told_by(of(steps.Changes(), of(average(3)))) == [["0"]]
    assert told_by(NODES["pairs"]) == [["0"], ["1"]]
    assert told_by(NODES["between"]) == [["0"], ["1"], ["1"], ["2", "3"]]
    late = of(Extremum(SECOND, SECOND, True), of(steps.Project.onto("x"), of(where("y > 0"))))
    assert told_by(late) == [["0"]]


@pytest.mark.parametrize(
    ("node", "keys"),
    [
        (of(average(3)), ("k", "m")),
        (of(Envelope(("m",), True), of(Envelope(("k", "m"), True), X)), ("m",)),
        (TOP, ()),
        (pairs(), ()),
    ],
)
def test_what_is_looked_at_together_is_in_one_bucket(node, keys):
    shape = steps.Shape(("k", "m"), ("x", "y"))
    assert StreamPlan((StreamInput(FIT, shape),), node).together == keys


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (pairs(within={"x": 1.0}, whole=True), "once come near"),
        (of(APART, pairs(within={"x": 1.0}, whole=True)), "once come near"),
        (of(replace(APART, below=2.0), pairs(within={"x": 1.0}, whole=True)), "once come near"),
    ],
)
def test_what_would_look_back_at_any_time_is_refused(node, message):
    with pytest.raises(NotSupportedError, match=message):
        check_streams(StreamPlan((StreamInput(FIT, SHAPE),), node))
