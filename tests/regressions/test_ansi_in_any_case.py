"""``spark.sql.ansi.enabled`` may be written TRUE or true: both mean ANSI mode, everywhere.

What decides whether queries run together compared the setting as it was written, so that with
``TRUE`` a condition was read as if Spark were not in ANSI mode, and its query ran by itself.
"""

from __future__ import annotations

import pytest

import eddyline as el
from eddyline.spark.session import is_ansi
from eddyline.spark.shared.group import why_not_shared

pytestmark = pytest.mark.spark


@pytest.fixture
def change(spark):
    before = spark.conf.get("spark.sql.ansi.enabled")
    yield lambda setting: spark.conf.set("spark.sql.ansi.enabled", setting)
    spark.conf.set("spark.sql.ansi.enabled", before)


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
    assert why_not_shared(query) == ""
