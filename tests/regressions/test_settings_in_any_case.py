"""A setting of Spark may be written TRUE or true: both mean the same, everywhere.

Settings were compared as they were written: with ``TRUE`` for ``spark.sql.ansi.enabled`` a
condition was read as if Spark were not in ANSI mode, and its query ran by itself; with ``TRUE`` for
``spark.sql.caseSensitive`` columns that differ in case were no attributes to route by; with
``TRUE`` for ``useLargeVarTypes`` the tasks of joins returned other types than Spark expected.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import eddyline as el
from eddyline.spark.analysis import arrow_schema
from eddyline.spark.filters.binding import _routable
from eddyline.spark.session import is_ansi
from eddyline.spark.shared.scans import SharedFilters

pytestmark = pytest.mark.spark


ANSI = "spark.sql.ansi.enabled"
CASE = "spark.sql.caseSensitive"
LARGE = "spark.sql.execution.arrow.useLargeVarTypes"


@pytest.fixture
def change(spark):
    before = {name: spark.conf.get(name) for name in (ANSI, CASE, LARGE)}
    yield lambda setting, name=ANSI: spark.conf.set(name, setting)
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.mark.parametrize(
    ("setting", "expected"), [("TRUE", True), ("true", True), ("False", False), ("false", False)]
)
def test_the_setting_is_read_in_any_case(spark, change, setting, expected):
    change(setting)
    assert is_ansi(spark) is expected


@pytest.mark.parametrize("setting", ["TRUE", "true"])
def test_queries_run_together_however_the_setting_is_written(spark, change, tmp_path, setting):
    change(setting)
    engine = el.Engine(spark)
    source = spark.readStream.schema("id long, flag boolean").parquet(str(tmp_path))
    engine.stream("s", source)
    # Only in ANSI mode does Spark read a text as a boolean.
    query = engine.query("SELECT id FROM s WHERE (flag AND 'true') OR id > 1", name="q")
    assert SharedFilters.why_not(query) == ""


@pytest.mark.parametrize(("setting", "n_told_apart"), [("TRUE", 2), ("true", 2), ("FALSE", 0)])
def test_columns_that_differ_in_case_are_told_apart(spark, change, setting, n_told_apart):
    change(setting, CASE)
    assert len(_routable(spark.createDataFrame([(1, 2)], "k int, K int"))) == n_told_apart


@pytest.mark.parametrize(
    ("setting", "kind"),
    [("TRUE", pa.large_string()), ("true", pa.large_string()), ("FALSE", pa.string())],
)
def test_arrow_types_follow_the_setting(spark, change, setting, kind):
    change(setting, LARGE)
    assert arrow_schema(spark, StructType().add("name", "string")).field("name").type == kind
