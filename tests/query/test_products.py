"""Which aggregates over a join may take products of counts and sums by key."""

from __future__ import annotations

import pytest

from eddyline.query.products import with_products
from eddyline.query.query import PRODUCT, RangeWindow, SummedColumn
from eddyline.query.select.reader import read_query
from eddyline.query.steps import JoinStep, steps

KINDS = {
    "k": "bigint",
    "i": "int",
    "v": "bigint",
    "x": "double",
    "d": "decimal(10,2)",
    "txt": "string",
    "ts": "timestamp",
}
COLUMNS = dict.fromkeys("stu", KINDS) | {"names": {"k": "bigint", "label": "string"}}
TIMES = dict.fromkeys("stu", "ts") | {"names": None}
TWO = "FROM s [RANGE 4 SECONDS], t [RANGE 2 SECONDS] WHERE s.k = t.k"


def read(text):
    aggregates = ["count", "sum", "avg", "max"]
    query = read_query(text, COLUMNS, tables=["names"], aggregates=aggregates, times=TIMES)
    made = steps(query)
    place = max(at for at, step in enumerate(made) if len(step.inputs) > 1)
    return made, with_products(made, place, COLUMNS, TIMES)


def test_counts_sums_and_averages_become_sums_of_products():
    before, after = read(
        "SELECT s.txt, count(*) AS n, sum(t.v) AS v, avg(s.i) AS i, count(s.x) AS x, "
        f"window.end AS till {TWO} AND s.v > 1 GROUP BY s.txt HAVING avg(s.i) > 2"
    )
    assert [type(step) for step in after] == [type(step) for step in before]
    (join,) = (step for step in after if isinstance(step, JoinStep))
    assert join.products.times == {"s": "ts", "t": "ts"}
    assert (join.products.grouped, join.products.groups) == ("s", ("txt",))
    assert join.products.sums == (
        SummedColumn("sum_0", "t", "v", is_count=False),
        SummedColumn("sum_1", "s", "i", is_count=False),
        SummedColumn("n_2", "s", "i", is_count=True),
        SummedColumn("n_3", "s", "x", is_count=True),
    )
    aggregate, was = after[-1], before[-1]
    assert {call.function for call in aggregate.calls} == {"sum"}
    assert [call.text for call in was.calls] == list(
        dict.fromkeys(call.text for call in aggregate.calls)
    ), "people read what the query says"
    ((ended, window),) = aggregate.window.inputs
    assert (window, aggregate.window.length) == (RangeWindow(0), was.window.length)
    projected = after[-3].projections
    assert f"{PRODUCT}.last AS {ended}" in projected
    assert "greatest(s.ts, t.ts) AS __latest" in projected
    assert aggregate.having == "try_divide(CAST(__agg2 AS DOUBLE), __agg2_n) > 2"
    assert repr(join) == repr(before[before.index(before[-4])]), "no new query"


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT count(*) AS n {TWO}",
        f"SELECT sum(s.v) AS n {TWO} GROUP BY s.k % 7, s.txt",
        "SELECT count(t.d) AS n FROM s, t [NOW], u [NOW] WHERE s.k = t.k AND t.k = u.k",
        f"DSTREAM(SELECT count(*) AS n {TWO})",
    ],
)
def test_products_are_possible(text):
    before, after = read(text)
    assert before != after
    assert next(step for step in after if isinstance(step, JoinStep)).products is not None


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT count(*) AS n, max(s.v) AS m {TWO}",  # needs all values
        f"SELECT count(DISTINCT s.v) AS n {TWO}",
        f"SELECT count(*) FILTER (WHERE s.v > 1) AS n {TWO}",
        f"SELECT sum(s.x) AS n {TWO}",  # no whole number
        f"SELECT sum(s.d) AS n {TWO}",
        f"SELECT avg(s.v) AS n {TWO}",  # its sum may not fit into 64 bits
        f"SELECT sum(s.v + t.v) AS n {TWO}",  # of two inputs
        f"SELECT count(*) AS n {TWO} GROUP BY s.k, t.txt",
        f"SELECT count(*) AS n {TWO} GROUP BY s.x",  # 0.0 and -0.0
        f"SELECT count(*) AS n {TWO} GROUP BY s.ts",
        f"SELECT count(*) AS n {TWO} AND s.v < t.v",
        f"SELECT count(*) AS n {TWO} AND s.txt = t.txt",
        f"RSTREAM(SELECT count(*) AS n {TWO})",
        "SELECT count(*) AS n FROM s, t WHERE s.k = t.k",  # no window ends
        "SELECT count(*) AS n FROM s [NOW], names WHERE s.k = names.k",
        "SELECT count(*) AS n FROM s [NOW], (SELECT k, ts FROM t) x [NOW] WHERE s.k = x.k",
        "SELECT count(*) AS n FROM s [NOW] LEFT JOIN t [NOW] ON s.k = t.k",
        "SELECT s.k FROM s [NOW], t [NOW] WHERE s.k = t.k",
        "SELECT k FROM s [NOW] UNION SELECT k FROM t [NOW]",
    ],
)
def test_products_are_not_possible(text):
    before, after = read(text)
    assert before == after
