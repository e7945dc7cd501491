"""A process that is killed at any instant and started again: no row is lost or doubled.

What a kill leaves at each point of a batch, of every kind of operator, is in ``test_crashes.py``.
"""

from __future__ import annotations

import random
import time
from collections import Counter

import pyarrow.parquet as pq
import pytest

from eddyline.report.stored import read_run
from tests import examples
from tests.spark.processes import Process
from tests.spark.run import killed, killed_system
from tests.spark.run.lives import rows_of, write

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_200)]

N_KILLS, N_FEW_KILLS = 20, 2
BATCHES_PER_KILL = 6


@pytest.mark.large("starts a JVM for each kill")
@pytest.mark.usefixtures("soon_started")
def test_killed_at_random_instants(tmp_path):
    n_kills = N_FEW_KILLS if examples.are_few() else N_KILLS
    n_batches = n_kills * BATCHES_PER_KILL
    write(tmp_path, n_batches)
    module = "-m", killed.__name__
    drawn = random.Random(11)
    for _ in range(n_kills):
        process = Process(*module, tmp_path)
        process.await_start()
        time.sleep(drawn.uniform(0.0, 2.0))
        process.check_runs()
        process.kill()
    assert "done q" in Process(*module, tmp_path).finish()
    wanted = killed.COMPOSED.wanted(n_batches)
    assert killed.COMPOSED.written(tmp_path) == wanted
    assert len(wanted["q"]) > 100
    (state,) = (tmp_path / "ckpt").glob("**/eddyline/state")
    assert len(list(state.glob("manifest-*"))) == 2, "old manifests go"


@pytest.mark.large("starts a JVM for each kill")
@pytest.mark.usefixtures("soon_started")
def test_each_batch_and_decision_is_told_once_by_the_system_stream(tmp_path):
    n_batches = N_FEW_KILLS * BATCHES_PER_KILL
    write(tmp_path, n_batches)
    module = "-m", killed_system.__name__
    drawn = random.Random(7)
    for _ in range(N_FEW_KILLS):
        process = Process(*module, tmp_path)
        process.await_start()
        time.sleep(drawn.uniform(1.0, 6.0))
        process.kill()
    assert "done watch" in Process(*module, tmp_path).finish()
    rows = pq.read_table(tmp_path / "out" / "watch").to_pylist()
    told = [
        (r["batch"], r["value"]) for r in rows if (r["entity"], r["name"]) == ("batch", "n_rows")
    ]
    run = read_run(tmp_path / "ckpt" / "q")
    assert sorted(told) == [(each.batch_id, each.n_rows) for each in run.batches]
    assert sum(n_rows for _, n_rows in told) == sum(
        len(rows_of("s", at)) for at in range(n_batches)
    )
    events = [r["name"] for r in rows if r["entity"] == "journal" and "." not in r["name"]]
    assert Counter(events) == Counter(each.event for each in run.journal)
    assert {r["query"] for r in rows} == {"q"}
