"""Watched series of runs: the journal has the alarms, once, whatever the restarts."""

from __future__ import annotations

import os

import pytest

import eddyline as el
from eddyline.errors import OptionError
from eddyline.report.decisions import sentence

pytestmark = pytest.mark.spark

ROWS = [20, 21, 20, 20, 90, 90, 90, 90]
"""Rows of each micro-batch."""


def query_of(spark, folder, n_batches, **options):
    folder.mkdir(exist_ok=True)
    for number in range(n_batches):
        lines = "\n".join(f'{{"x": {row}}}' for row in range(ROWS[number]))
        file = folder / f"{number}.json"
        file.write_text(lines)
        os.utime(file, (number, number))  # the oldest file is the first batch
    engine = el.Engine(spark)
    reader = spark.readStream.schema("x long").option("maxFilesPerTrigger", 1)
    engine.stream("s", reader.json(str(folder)))
    return engine.query("SELECT x FROM s WHERE x % 2 = 0 AND x % 3 = 0", name="q", **options)


@pytest.mark.large
def test_the_journal_has_each_alarm_once_and_detectors_outlive_a_restart(spark, tmp_path):
    cusum = el.detector("cusum", n_feedback=3, threshold=5.0)
    options = {"watch": {"run.n_rows": cusum, "run.secnds": "adwin"}}
    for n_batches in (2, 4, 8):
        query = query_of(spark, tmp_path / "s", n_batches, **options)
        run = query.start("memory", checkpoint=tmp_path / "ckpt", trigger="available_now")
        assert run.await_termination(120)
    told = [each for each in run.decisions if each.component == "watch"]
    assert [(each.event, each.batch_id) for each in told] == [("unmatched", 2), ("alarm", 4)]
    assert told[0].evidence["watch"] == "run.secnds"
    assert "run.seconds" in told[0].evidence["known"]
    alarm = told[1].evidence
    assert (alarm["series"], alarm["since_batch"], alarm["value"]) == ("run.n_rows", 4, 90.0)
    assert "watch" in query.settings
    assert sentence(told[1]).startswith("run.n_rows has changed since batch 4, says cusum.")


def test_a_mistake_in_watch_is_refused_when_the_query_is_made(spark, tmp_path):
    with pytest.raises(OptionError, match=r"unknown detector 'adwinn'.*did you mean 'adwin'"):
        query_of(spark, tmp_path / "s", 1, watch={"run.seconds": "adwinn"})
    assert "watch" not in query_of(spark, tmp_path / "s", 1).settings
