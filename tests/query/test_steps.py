"""Queries as steps, and queries over the results of others."""

import pickle

import pytest

from eddyline.query.predicates import SqlPredicate, predicate
from eddyline.query.query import RangeWindow, UnboundedWindow
from eddyline.query.select.reader import read_query
from eddyline.query.steps import (
    RESULT,
    FilterStep,
    JoinStep,
    ProjectStep,
    ReadStep,
    carries,
    made_by,
    steps,
    tree,
)

COLUMNS = {
    "s": {"k": "int", "v": "int", "ts": "timestamp"},
    "t": {"k": "int", "w": "int"},
    "alarms": {"k": "int", "high": "int"},
    "pairs": {"v": "int", "w": "int"},
}
odd = predicate(lambda v: v, reads=["v"], name="odd")


def read(text):
    return read_query(text, COLUMNS, {"odd": odd})


ALARMS = "SELECT k, v AS high FROM s WHERE v > 3"
PAIRS = "SELECT v, w FROM s [NOW], t b WHERE s.k = b.k AND v < w AND w > 1"


def lines(text, **made):
    return list(tree(steps(read(text), made)))


def test_a_filter_is_read_filtered_and_projected():
    query = read("SELECT x.v, x.k + 1 AS one FROM s x WHERE x.v > 3 AND NOT odd(v)")
    assert steps(query) == (
        ReadStep("s", "x"),
        FilterStep("x", (SqlPredicate("v > 3"), query.inputs[0].predicates[1])),
        ProjectStep("x", ("v", "k + 1 AS one"), RESULT),
    )
    assert [str(step) for step in steps(query)] == [
        "read s as x",
        "filter x: (v > 3) AND (NOT odd(v))",
        "project x: v, k + 1 AS one",
    ]


def test_a_query_without_where_is_a_filter_too():
    assert [str(step) for step in steps(read("SELECT * FROM s"))] == [
        "read s",
        "filter s: every row passes",
        "project s: *",
    ]


def test_a_join_knows_all_that_it_needs():
    query = read(PAIRS)
    *_, joined, residual, project = steps(query)
    assert isinstance(joined, JoinStep)
    assert joined.inputs == ("s", "b")
    assert [each.window for each in joined.joined] == [RangeWindow(0), UnboundedWindow()]
    assert [each.columns for each in joined.joined] == [("v",), ("w",)]
    assert (joined.keys, joined.equalities, joined.emits) == (
        query.keys,
        query.equalities,
        "istream",
    )
    assert residual == FilterStep("s ⋈ b", (SqlPredicate("s.v < b.w"),))
    assert project.projections == query.projections


def test_a_join_is_a_tree():
    assert lines(f"DSTREAM({PAIRS})") == [
        "project s ⋈ b: s.v AS v, b.w AS w",
        "└─ filter s ⋈ b: s.v < b.w",
        "   └─ join s [NOW], b [UNBOUNDED] on s.k = b.k, as DSTREAM",
        "      ├─ read s",
        "      └─ filter b: w > 1",
        "         └─ read t as b",
    ]


def test_units_of_time_are_no_columns_of_results():
    query = read("SELECT v FROM s, t WHERE s.k = t.k AND dateadd(day, w, ts) > current_date")
    joined = next(step for step in steps(query) if isinstance(step, JoinStep))
    assert [each.columns for each in joined.joined] == [("v", "ts"), ("w",)]


def test_a_filter_over_a_filter_is_one_chain():
    assert lines("SELECT high FROM alarms WHERE high > 9", alarms=steps(read(ALARMS))) == [
        "project alarms: high",
        "└─ filter alarms: high > 9",
        "   └─ project alarms.s: k, v AS high",
        "      └─ filter alarms.s: v > 3",
        "         └─ read s as alarms.s",
    ]


def test_a_filter_over_a_join_is_one_chain():
    assert lines("SELECT * FROM pairs p WHERE w > 2", pairs=steps(read(PAIRS))) == [
        "project p: *",
        "└─ filter p: w > 2",
        "   └─ project p.s ⋈ b: s.v AS v, b.w AS w",
        "      └─ filter p.s ⋈ b: s.v < b.w",
        "         └─ join s [NOW], b [UNBOUNDED] on s.k = b.k",
        "            ├─ read s as p.s",
        "            └─ filter p.b: w > 1",
        "               └─ read t as p.b",
    ]


def test_a_join_over_filters_keeps_the_streams_of_each_apart():
    text = "SELECT s.v FROM alarms a [NOW], alarms [NOW], s WHERE a.k = s.k AND alarms.k = s.k"
    found = steps(read(text), {"alarms": steps(read(ALARMS))})
    assert [step.output for step in found if isinstance(step, ReadStep)] == ["a.s", "alarms.s", "s"]
    joined = next(step for step in found if isinstance(step, JoinStep))
    assert joined.inputs == ("a", "alarms", "s")


def test_names_inside_of_an_input_may_be_those_of_others():
    """An input may have the name of the whole result, and of a stream inside of another input."""
    assert lines("SELECT * FROM alarms result", alarms=steps(read(ALARMS)))[-1] == (
        "         └─ read s as result.s"
    )


def test_an_alias_may_look_like_a_relation_of_another_input():
    text = "SELECT a.k FROM t AS `a.s` [NOW], alarms a WHERE a.k = `a.s`.k"
    found = steps(read(text), {"alarms": steps(read(ALARMS))})
    assert [step.output for step in found if isinstance(step, ReadStep)] == ["`a.s`", "a.s"]
    assert found[-2].inputs == ("`a.s`", "a")
    assert [each.name for each in found[-2].joined] == ["a.s", "a"]


def test_queries_over_queries_over_queries():
    inner = steps(
        read("SELECT k, high FROM alarms WHERE high > 5"), {"alarms": steps(read(ALARMS))}
    )
    assert lines("SELECT k FROM alarms b WHERE high > 9", alarms=inner) == [
        "project b: k",
        "└─ filter b: high > 9",
        "   └─ project b.alarms: k, high",
        "      └─ filter b.alarms: high > 5",
        "         └─ project b.alarms.s: k, v AS high",
        "            └─ filter b.alarms.s: v > 3",
        "               └─ read s as b.alarms.s",
    ]


def test_a_join_over_a_join_has_the_steps_of_both():
    text = "SELECT p.v FROM s, pairs p WHERE s.v = p.v"
    found = steps(read(text), {"pairs": steps(read(PAIRS))})
    inner, outer = (each for each in found if isinstance(each, JoinStep))
    assert outer.inputs == ("s", "p")
    (made,) = (at for at, each in enumerate(found) if each is outer)
    own = made_by(found, made, "p")
    assert inner in own
    assert own[-1].output == "p"
    assert [each.output for each in own if isinstance(each, ReadStep)] == ["p.s", "p.b"]


def test_a_plan_may_stand_beside_a_step():
    said = tree(steps(read(ALARMS)), lambda step: f"{type(step).__name__} {step.output}")
    assert said == ("ProjectStep (result)", "└─ FilterStep s", "   └─ ReadStep s")


def test_steps_travel():
    found = steps(read("SELECT v, w FROM s [NOW], t WHERE s.k = t.k AND v < w"))
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("projections", "is_there"),
    [(("*",), True), (("k", "ts"), True), (("k",), False), (("ts AS t2", "other AS ts"), False)],
)
def test_a_column_is_carried_unchanged_or_not(projections, is_there):
    chain = (ReadStep("s", "s"), FilterStep("s", ()), ProjectStep("s", projections))
    assert carries(chain, "ts") is is_there
