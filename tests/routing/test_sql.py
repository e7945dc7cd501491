"""The SQL of partitions and tables: on DuckDB for many values, on Spark for the dialect."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st

from eddyline.routing.partitions import Partition
from eddyline.routing.table import RouteTable
from tests.examples import examples
from tests.routing import cuts

VALUES = [*cuts.EDGES, None, 23.999999999999996, 4503599627370497.0, -1e-310]

PARTITIONS = [
    Partition("a", "ranges", (-1.5, 0.0, 5e-324, 0.1, 1e300)),
    Partition("a", "ranges", (float("-inf"), -1.7976931348623157e308, 2.0**53, float("inf"))),
    Partition("a", "ranges"),
    Partition("a", "values", (float("-inf"), -3.0, 0.0, 0.1, 2.0**53, float("inf"))),
    Partition("a", "values"),
    Partition("a", "hash", n_hash=24),
    Partition("a", "hash", n_hash=1),
]


def run_on_duckdb(sqls: list[str], rows: np.ndarray) -> list[list[object]]:
    # DuckDB writes no D behind a double; a text is cast to the nearest double
    columns = {"abc"[k]: pa.array(rows[:, k], from_pandas=False) for k in range(rows.shape[1])}
    frame = pa.table({"row": np.arange(len(rows)), **columns})
    told = ", ".join(
        sqlglot.transpile(sql, read="spark", write="duckdb")[0] + f" AS x{number}"
        for number, sql in enumerate(sqls)
    )
    connection = duckdb.connect()
    connection.register("frame", frame)
    found = connection.execute(f"SELECT {told or 1} FROM frame ORDER BY row").fetchall()
    return [list(column) for column in zip(*found, strict=True)]


@examples(25)
@given(cuts.tables(), st.data())
def test_conditions_hold_for_exactly_the_rows_of_their_group(table, data):
    width = len(table.partitions)
    rows = data.draw(cuts.rows(width, max_rows=10)) if width else np.zeros((2, 0))
    if len(rows) == 0 or table.n_groups == 1:
        return
    conditions = run_on_duckdb(table.conditions(list("abc"[:width])), rows)
    for group, found in enumerate(conditions, start=1):
        assert found == [cuts.slow_group(table, row) == group for row in rows]


@examples(25)
@given(cuts.partitions(), st.data())
def test_sql_counts_bins_as_numpy_does(part, data):
    rows = data.draw(cuts.rows(1, max_rows=10))
    if len(rows):
        assert run_on_duckdb([part.sql("a")], rows)[0] == part.bins(rows[:, 0]).tolist()


@pytest.mark.large
@pytest.mark.spark
@pytest.mark.parametrize("part", PARTITIONS)
def test_spark_counts_bins_as_numpy_does(spark, part):
    frame = spark.createDataFrame([(i, x) for i, x in enumerate(VALUES)], "i int, a double")
    conditions = [part.condition("a", {b}) for b in range(part.n_bins)]
    told = [part.sql("a"), *conditions, part.condition("a", []), part.condition("a", range(99))]
    found = frame.orderBy("i").selectExpr(*told).collect()
    values = np.array([np.nan if x is None else x for x in VALUES])
    bins = part.bins(values).tolist()
    assert [row[0] for row in found] == bins
    for number in range(part.n_bins):
        assert [row[number + 1] is True for row in found] == [b == number for b in bins]
    assert {row[-2] for row in found} == {False}


@pytest.mark.large
@pytest.mark.spark
def test_spark_parts_the_rows_of_a_table_of_three_attributes(spark):
    rng = np.random.default_rng(3)
    parts = (PARTITIONS[0], Partition("b", "values", (0.0, 1.0)), Partition("c", "hash", n_hash=3))
    orders = ((0, 1, 2), (1, 0, 2), (2, 1, 0))
    n_classes = 7 * 4 * 4
    table = RouteTable(parts, orders, tuple(rng.integers(0, 3, n_classes).tolist()))
    values = np.array([np.nan if x is None else x for x in VALUES])
    rows = values[rng.integers(0, len(values), (500, 3))]
    cells = [[None if np.isnan(x) else x for x in row] for row in rows.tolist()]
    frame = spark.createDataFrame(
        [(i, *row) for i, row in enumerate(cells)], "i int, a double, b double, c double"
    )
    found = frame.orderBy("i").selectExpr(*table.conditions(["a", "b", "c"])).collect()
    groups = table.group_of(rows).tolist()
    assert [(row[0], row[1]) for row in found] == [(g == 1, g == 2) for g in groups]
