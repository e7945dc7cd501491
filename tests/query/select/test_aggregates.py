"""Queries of aggregates: cases of the files beside, and what holds of all of them."""

import pickle

import pytest

from eddyline.errors import QueryError
from eddyline.query.predicates import predicate
from eddyline.query.query import UNBOUNDED, AggregateCall, Grouping, OverCall, RowsWindow
from eddyline.query.select.reader import read_query
from eddyline.query.steps import (
    RESULT,
    AggregateStep,
    FilterStep,
    OverStep,
    ReadStep,
    carries,
    steps,
)
from tests.query.select.cases import COLUMNS_OF_S, cases, parts_of

COLUMNS = {
    "s": COLUMNS_OF_S,
    "t": {"k": "bigint", "a b": "int", "case": "int"},
    "u": {"k": "int", "j": "string"},
    "names": {"k": "int", "j": "string"},
    "u2": {"v": "int", "ts": "timestamp"},
    "odd": {"window": "struct<start:int>", "v": "int"},
}
AGGREGATES = (
    "COUNT",
    "count(*)",
    "any",
    "sum",
    "max",
    "first",
    "last",
    "percentile",
    "my_agg",
    "f",
)
f = predicate(lambda k: k, reads=["k"], name="f")


def read(text):
    times = {"s": "ts", "u2": "ts"}
    return read_query(
        text, COLUMNS, {"f": f}, aggregates=AGGREGATES, tables=("names",), times=times
    )


@pytest.mark.parametrize("case", [*cases("aggregates.txt"), *cases("over.txt")], ids=str)
def test_aggregates_are_read(case):
    assert parts_of(read, case.query, case.kinds) == case.parts


def test_the_steps_of_aggregates():
    query = read("SELECT k, count(v) AS n FROM s [ROWS 5] GROUP BY k HAVING count(v) > 1")
    call = AggregateCall("count", ("v",), "__agg0")
    assert query.grouping == Grouping((("__group0", "k"),), (call,), "__agg0 > 1")
    assert steps(query) == (
        ReadStep("s", "s"),
        FilterStep("s", ()),
        AggregateStep(
            "s",
            (("__group0", "k"),),
            (call,),
            RowsWindow(5),
            ("__group0 AS k", "__agg0 AS n"),
            "__agg0 > 1",
            None,
            RESULT,
        ),
    )


def test_results_of_aggregates_have_no_column_of_their_rows():
    assert not carries(steps(read("SELECT ts, count(*) FROM s GROUP BY ts")), "ts")


def test_a_step_says_its_calls_whatever_their_number():
    calls = [f"sum(v + {number})" for number in range(12)]
    said = str(steps(read(f"SELECT {' + '.join(calls)} AS all FROM s"))[-1])
    assert said.count("SUM(v + 11)") == 1
    assert "__agg" not in said


@pytest.mark.parametrize("text", ["SELECT sum(v) FROM s", "SELECT my_agg(v), sum(v) FROM s"])
def test_only_known_functions_are_aggregates(text):
    with pytest.raises(QueryError, match=r"the aggregate function sum\(\) is not supported yet"):
        read_query(text, COLUMNS)


def test_calls_over_equal_partitions_share_a_step():
    query = read(
        "SELECT sum(v) OVER w AS a, max(v) OVER (ORDER BY ts) AS b, "
        "first(v) OVER (PARTITION BY S.K ORDER BY ts ROWS 2 PRECEDING) AS c, sum(v) OVER w AS d "
        "FROM s WINDOW w AS (PARTITION BY k ORDER BY ts)"
    )
    one, other = steps(query)[2:-1]
    assert isinstance(one, OverStep)
    assert one.calls == (
        OverCall(AggregateCall("sum", ("v",), "__agg0"), UNBOUNDED),
        OverCall(AggregateCall("first", ("v",), "__agg2"), RowsWindow(3)),
    )
    assert (one.partition_by, one.time, one.output) == (("k",), "ts", "s")
    assert other == OverStep("s", (), (OverCall(AggregateCall("max", ("v",), "__agg1")),), "ts")
    assert steps(query)[-1].projections == (
        "__agg0 AS a",
        "__agg1 AS b",
        "__agg2 AS c",
        "__agg0 AS d",
    )


@pytest.mark.parametrize(("columns", "is_kept"), [("ts", True), ("*", True), ("k", False)])
def test_rows_with_aggregates_keep_their_columns(columns, is_kept):
    query = read(f"SELECT {columns}, sum(v) OVER (ORDER BY ts) AS x FROM s")
    assert carries(steps(query), "ts") is is_kept


def test_steps_over_relations_of_other_names():
    of_rows = steps(read("SELECT sum(v) OVER (ORDER BY ts) AS x FROM s"))
    of_groups = steps(read("SELECT sum(v) AS x FROM s"))
    for each in (of_rows[2], of_groups[2]):
        renamed = each.renamed(lambda name: f"y.{name}")
        assert renamed.inputs == ("y.s",)
        assert renamed.output == f"y.{each.output}"


@pytest.mark.parametrize(
    "text", ["SELECT v, sum(v) OVER (ORDER BY ts) FROM s", "SELECT DISTINCT k FROM s"]
)
def test_steps_travel(text):
    found = steps(read(text))
    assert pickle.loads(pickle.dumps(found)) == found


def grouping_of(*texts):
    """Return by what a query groups."""
    grouped = ", ".join(texts)
    columns = {"s": {"j": "string", "a": "int", "b": "int", "a + b": "int"}}
    text = f"SELECT count(*) AS n FROM s [ROWS 5] GROUP BY {grouped}"
    query = read_query(text, columns, aggregates=AGGREGATES)
    (step,) = (step for step in steps(query) if isinstance(step, AggregateStep))
    return step.grouping


def test_groups_that_differ_in_a_raw_string_or_a_quoted_name_are_two():
    digits, others = r"regexp_replace(j, r'\d', '')", r"regexp_replace(j, r'\D', '')"
    assert len(grouping_of(digits, others)) == 2
    assert grouping_of(digits) != grouping_of(others)
    assert grouping_of("a + b") != grouping_of("`a + b`")
    assert grouping_of("a+b", "J") == grouping_of("`j`", "a  +  B")
