"""A Connect smoke test: the plain transform uses only calls that Spark Connect has."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SCRIPT = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
import pyarrow.compute as pc
import eddyline as el

spark = (
    SparkSession.builder.remote("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.log.level", "OFF")
    .getOrCreate()
)
assert "connect" in type(spark).__module__, type(spark)
often = el.predicate(lambda id: pc.not_equal(id, 3), reads=["id"], name="often")
seldom = el.predicate(lambda id: pc.equal(pc.bit_wise_and(id, 255), 7), reads=["id"], name="seldom")
frame = spark.range(0, 200000, 1, 2)
keep = el.all_of("id > 10", "id < 100000", "1000 / id > 0", often, seldom)
got = frame.transform(keep).count()
want = frame.where("id > 10 AND id < 100000 AND id <> 3 AND (id & 255) = 7").count()
assert got == want, (got, want)
view = keep.view()
assert view.blocks[1].order == (1, 0), view.blocks[1].order
assert view.blocks[1].totals.n_kept >= want
rules = el.RuleSet({"high": "value > 7"})
stream = spark.readStream.format("rate").load()
for refused in (lambda: el.Engine(spark), lambda: rules.start(stream)):
    try:
        refused()
    except el.errors.OptionError as error:
        assert "needs a classic SparkSession, got one of Spark Connect" in error.message
    else:
        raise AssertionError("not refused")
counted = frame.transform(el.RuleSet({"high": "id > 199990"}).matches("m")).count()
assert counted == 9, counted
print("connect ok", got)
spark.stop()
"""


@pytest.mark.large
def test_transform_on_spark_connect(spark, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=tmp_path,
    )
    assert "connect ok" in done.stdout, done.stdout + done.stderr[-3000:]
