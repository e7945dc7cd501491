"""A Connect smoke test: plain transforms use only calls that Spark Connect has.

One process for all of them, as each would start a server.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SCRIPT = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
import pyarrow.compute as pc
import eddyline as el

spark = (
    SparkSession.builder.remote("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
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
view = keep.facts()
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

odd = el.predicate(lambda id: pc.equal(pc.bit_wise_and(id, 1), 1), reads=["id"], name="odd")
rules = el.RuleSet({"low": "id < 10", "odd": "odd(id) AND id < 20"}, functions={"odd": odd})
frame = spark.range(0, 50000, 1, 2)
got = {row["id"]: list(row["m"]) for row in frame.transform(rules.matches("m")).collect()}
want = {}
for i in range(20):
    names = (["low"] if i < 10 else []) + (["odd"] if i % 2 else [])
    if names:
        want[i] = names
assert got == want, got
assert rules.facts().n_rows == 50000, rules.facts().n_rows
told = el.RuleSet({"low": el.Rule("id < 10", level="high", title="Low")})
valid, quarantine = told.split(frame, as_struct=True)
assert [tuple(each) for each in quarantine.first().matches] == [("low", "Low", "high")]
assert (valid.count(), quarantine.count()) == (49990, 10)
spark.conf.set("spark.sql.session.timeZone", "America/New_York")
late = el.RuleSet({"late": "at >= '1970-01-01 08:00:00'"})
times = frame.withColumn("at", F.timestamp_seconds("id")).transform(late.any())
assert times.count() == 50000 - 13 * 3600, times.count()
print("connect ok")
spark.stop()
"""


@pytest.mark.large("starts a server of Spark Connect")
def test_transforms_on_spark_connect(spark, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
        cwd=tmp_path,
    )
    assert "connect ok" in done.stdout, done.stdout + done.stderr[-3000:]
