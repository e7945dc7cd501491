"""A process that is killed at any instant and started again: no row is lost or doubled.

What a kill leaves at each point of a batch, of every kind of operator, is in ``test_crashes.py``.
"""

from __future__ import annotations

import random
import time

import pytest

from tests import examples
from tests.spark.processes import Process
from tests.spark.run import killed
from tests.spark.run.lives import write

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
