"""A column that nobody asked for was computed, to see whether it tells classes of rows apart.

``100 DIV (id - 77)`` is no column of the result and no predicate reads it; the job died of it all
the same, where stock Spark leaves it out. One that is dear to compute took thirty times as long.
"""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddyline as el
from eddyline.errors import QueryError
from eddyline.options import FilterOptions
from eddyline.query.predicates import as_predicate, named
from eddyline.spark.filters.binding import bind_to

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def rows(spark, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("rows") / "rows")
    spark.range(0, 20_000, 1, 2).selectExpr("id", "id % 4 AS k", "id % 9 AS v").write.parquet(
        folder
    )
    return spark.read.parquet(folder)


def looks_at(df, *predicates):
    bound = bind_to(df, named(map(as_predicate, predicates)), FilterOptions())
    return [each.name for each in bound.attributes]


@pytest.mark.large
def test_a_column_that_raises_is_not_computed(rows):
    odd = rows.selectExpr("*", "100 DIV (id - 77) AS bad")
    low = el.predicate(lambda v: pc.less(v, 5), reads=["v"], name="low")
    some = el.predicate(lambda k: pc.not_equal(k, 2), reads=["k"], name="some")
    want = rows.where("v < 5 AND k <> 2").count()
    keep = el.all_of(low, some)
    for df in (rows.selectExpr("*", "id AS bad"), odd, odd):
        assert df.transform(keep).select("id").count() == want


@pytest.mark.large
def test_columns_that_take_no_computing_are_looked_at(spark, rows):
    pairs = ["id > 3", "v < 5"]
    assert looks_at(rows, *pairs) == ["id", "k", "v"]
    assert looks_at(rows.selectExpr("id", "v", "k AS `a city`"), *pairs) == ["id", "v", "a city"]
    nested = rows.selectExpr("id", "v", "struct(k AS city) AS s").selectExpr("id", "v", "s.city")
    assert looks_at(nested, *pairs) == ["id", "v", "city"]
    assert looks_at(rows.selectExpr("id", "v", "-k AS a", "upper('x') AS b"), *pairs) == ["id", "v"]
    cached = rows.selectExpr("id", "v", "k - 1 AS c").cache()
    assert looks_at(cached, *pairs) == ["id", "v", "c"]
    cached.unpersist()
    table = spark.createDataFrame(pa.table({"id": [1], "v": [2], "k": ["x"]}))
    assert looks_at(table, *pairs) == ["id", "v", "k"]


def test_a_computed_column_that_a_predicate_reads_is_looked_at(rows):
    some = el.predicate(lambda c: pc.less(c, 3), reads=["c"])
    assert looks_at(rows.selectExpr("id", "v % 4 AS c", "v % 3 AS d"), "id > 3", some) == [
        "id",
        "c",
    ]


def test_an_ambiguous_attribute_is_named(rows):
    twice = rows.selectExpr("id", "v", "k AS city", "k AS city")
    with pytest.raises(QueryError, match="route_by: Spark cannot resolve 'city'"):
        twice.transform(el.all_of("id > 3", "v < 5", route_by=["city"]))
