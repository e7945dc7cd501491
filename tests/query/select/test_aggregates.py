"""Queries of aggregates: cases of ``aggregates.txt``, and what holds of all of them."""

import pytest

from eddyline.errors import QueryError
from eddyline.query.aggregates import AggregateCall
from eddyline.query.predicates import predicate
from eddyline.query.query import Grouping
from eddyline.query.select.reader import read_query
from eddyline.query.steps import RESULT, AggregateStep, FilterStep, ReadStep, carries, steps
from eddyline.query.windows import RowsWindow
from tests.query.select.cases import cases, parts_of

COLUMNS = {
    "s": {
        "k": "int",
        "v": "double",
        "txt": "string",
        "arr": "array<int>",
        "st": "struct<x:int,k:int>",
        "ts": "timestamp",
    },
    "t": {"k": "bigint", "a b": "int", "case": "int"},
    "u": {"k": "int", "j": "string"},
    "odd": {"window": "struct<start:int>", "v": "int"},
}
AGGREGATES = ("COUNT", "sum", "max", "first", "last", "percentile", "my_agg", "f")
f = predicate(lambda k: k, reads=["k"], name="f")


def read(text):
    return read_query(text, COLUMNS, {"f": f}, aggregates=AGGREGATES)


@pytest.mark.parametrize("case", cases("aggregates.txt"), ids=str)
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
