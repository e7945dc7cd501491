"""Linear Road's queries as CQL, over streams of results, against DuckDB."""

from __future__ import annotations

import pytest
from benchmarks.constraints.road_cql import QUERIES, cars_v1, n_other, queries, wanted, write

import eddyline as el
from tests.spark.joins.join_streams import ended, stream_of

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def cars():
    return cars_v1(60, 450, 3)


@pytest.mark.large("runs queries over results of queries, batch by batch")
@pytest.mark.parametrize("name", QUERIES)
def test_queries_of_linear_road_have_the_results_of_duckdb(spark, tmp_path, cars, name):
    (tmp_path / "CarStr").mkdir()
    write(cars, tmp_path / "CarStr", 2)
    engine = el.Engine(spark)
    engine.stream("CarStr", stream_of(spark, tmp_path, "CarStr"), time="ts", lateness="0 seconds")
    got, of_duckdb = ended(queries(engine)[name], "memory").to_arrow(), wanted(name, cars)
    assert of_duckdb.num_rows > 0
    assert n_other(got, of_duckdb) == 0
