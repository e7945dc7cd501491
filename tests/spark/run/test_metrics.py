"""Metrics of runs: counters outlive restarts, and a batch counts once."""

from __future__ import annotations

import pytest

import eddyline as el
from eddyline.spark.run.run import Run
from tests.spark.run import lives

pytestmark = pytest.mark.spark


def values(run):
    return {
        (metric.name, *(value for key, value in metric.labels.items() if key != "query")): (
            metric.value
        )
        for metric in run.metrics()
    }


@pytest.mark.large
def test_counters_outlive_restarts_and_a_batch_that_fails_counts_once(spark, tmp_path, monkeypatch):
    lives.write(tmp_path, 4)
    engine = el.Engine(spark)
    stream = lives.stream_of(spark, tmp_path, "s", schema=lives.SCHEMA)
    engine.stream("s", stream, time="ts", lateness="2 seconds")
    query = engine.query(
        "SELECT k % 7 AS g, count(*) AS n FROM s [RANGE 9 SECONDS SLIDE 3 SECONDS] GROUP BY k % 7",
        name="q",
    )
    process = Run._process

    def fails_at_the_end(run, df, batch):
        found = process(run, df, batch)
        if batch.id == 2:
            raise ValueError("no")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Run, "_process", fails_at_the_end)
        run = query.start("memory", checkpoint=tmp_path / "ckpt", trigger="available_now")
        with pytest.raises(Exception, match="no"):
            run.await_termination(120)
    assert values(run)["eddyline_failures_total",] == 1
    assert values(run)["eddyline_batches_total",] == 2
    again = query.start("memory", checkpoint=tmp_path / "ckpt", trigger="available_now")
    assert again.await_termination(120)
    found = values(again)
    n_rows = sum(lives.rows_of("s", number).num_rows for number in range(4))
    assert found["eddyline_rows_in_total",] == n_rows
    assert found["eddyline_batches_total",] == 4
    assert found["eddyline_failures_total",] == 1
    assert found["eddyline_running",] == 0
    assert found["eddyline_late_rows_total", "clock"] == lives.N_LATE
    assert found["eddyline_state_rows", "aggregate"] > 0
    assert found["eddyline_state_bytes", "aggregate"] > 0
    assert b'eddyline_batches_total{query="q"} 4.0' in el.prometheus_text([again])
