"""Queries over tables alone: ``to_df`` answers them, and ``start`` says so."""

from __future__ import annotations

import pyarrow.compute as pc
import pytest

import eddyline as el
from eddyline.errors import NotSupportedError, QueryError

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def engine(spark):
    made = el.Engine(spark)
    made.table("tab", spark.createDataFrame([("a", 1), ("b", 2), ("b", 3)], "k string, w int"))
    made.stream("s", spark.readStream.format("rate").load(), time="timestamp")
    made.function("big", lambda w: pc.greater(w, 1), reads=["w"])
    return made


def rows(engine, text):
    return sorted(map(tuple, engine.query(text, name="q", replace=True).to_df().collect()))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("SELECT w + 1 AS v FROM TAB AS x WHERE x.w > 1 AND k = 'b'", [(3,), (4,)]),
        ("SELECT k, w FROM tab WHERE big(w) AND w < 3", [("b", 2)]),
        ("SELECT w, big(w) AS is_big FROM tab WHERE k = 'a'", [(1, False)]),
        ("SELECT tab.k, COUNT(*) AS n FROM tab GROUP BY tab.k", [("a", 1), ("b", 2)]),
        ("SELECT a.w, b.w AS v FROM tab a JOIN tab b ON a.k = b.k AND a.w < b.w", [(2, 3)]),
        ("WITH x AS (SELECT w FROM tab ORDER BY w DESC LIMIT 1) SELECT w FROM x", [(3,)]),
        ("WITH tab AS (SELECT w FROM tab WHERE w > 1) SELECT MAX(w) AS w FROM tab", [(3,)]),
        ("WITH x AS (SELECT k, w FROM tab) SELECT w FROM x WHERE w > 1 AND k = 'b'", [(2,), (3,)]),
        (
            "WITH x AS (SELECT w FROM tab), y AS (SELECT k FROM tab), z AS (SELECT w FROM x) "
            "SELECT COUNT(*) AS n FROM x JOIN z ON x.w < z.w JOIN tab ON z.w = tab.w",
            [(3,)],
        ),
        ("SELECT '{x}' AS t, MAX(w) AS w FROM tab", [("{x}", 3)]),
    ],
)
def test_a_query_over_tables_is_answered_at_once(engine, text, wanted):
    assert rows(engine, text) == wanted


def test_what_to_do_instead_of_starting_it(engine):
    query = engine.query("SELECT w FROM tab WHERE w > 1", name="of table")
    with pytest.raises(QueryError, match=r"get its results by .to_df\(\)"):
        query.start()
    with pytest.raises(QueryError, match=r"engine.table\('z', query.to_df\(\)\)"):
        engine.stream("z", query)
    engine.drop("of table")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT nope FROM tab GROUP BY nope", "which Spark answers: .*nope"),
        ("SELECT COUNT(*) AS n FROM tab WHERE big(w)", r"big\(\) is a function of the engine"),
        ("SELECT k FROM tab UNION ALL SELECT value FROM s", "'tab' is a table: join it with"),
        ("SELECT ISTREAM(w) FROM tab", "which Spark answers: .*ISTREAM"),
        ("SELECT w FROM tab [ROWS UNBOUNDED]", "query it alone and without a window"),
        ("SELECT COUNT(*) AS n FROM tab [ROWS 3]", "query it alone and without a window"),
        ("DELETE FROM tab WHERE w > 1", "a query starts with SELECT, got 'DELETE'"),
        ("INSERT INTO tab SELECT k, w FROM tab", "a query starts with SELECT, got 'INSERT'"),
    ],
)
def test_what_cannot_be_answered_says_why(engine, text, message):
    with pytest.raises(QueryError, match=message):
        engine.query(text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT value AS x, timestamp AS x FROM s",
        "SELECT value AS x, timestamp AS X FROM s",
        "SELECT *, value FROM s",
        "SELECT value AS x, timestamp AS x FROM s UNION ALL SELECT value, timestamp FROM s",
        "SELECT value AS x, SUM(value) OVER (ORDER BY timestamp) AS X FROM s",
        "SELECT MAX(value) AS x, MIN(value) AS x FROM s [RANGE 1 HOUR SLIDE 1 HOUR]",
        "SELECT s.value AS x, tab.w AS x FROM s [RANGE 1 HOUR], tab WHERE s.value = tab.w",
        "SELECT w AS x, k AS X FROM tab",
    ],
)
def test_two_output_columns_of_one_name_are_refused_when_a_query_is_made(engine, text):
    with pytest.raises(QueryError, match="two output columns are called"):
        engine.query(text)


def test_names_that_differ_by_case_are_two_where_spark_says_so(engine, change):
    change(case="true")
    text = "SELECT value AS x, timestamp AS X FROM s"
    assert [*engine.query(text, name="by case").columns] == ["x", "X"]
    with pytest.raises(QueryError, match="two output columns are called 'x'; give one another"):
        engine.query("SELECT value AS x, timestamp AS x FROM s")


def test_a_column_of_months_says_that_it_cannot_go_to_tasks(engine):
    months = "make_ym_interval(1, CAST(value AS INT)) AS ym"
    engine.stream("m", engine.query(f"SELECT timestamp, {months} FROM s", name="months"))
    text = "SELECT ym, COUNT(*) AS n FROM m [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY ym"
    with pytest.raises(NotSupportedError, match=r"CAST\(CAST\(ym AS INTERVAL MONTH\) AS INT\)"):
        engine.query(text)
