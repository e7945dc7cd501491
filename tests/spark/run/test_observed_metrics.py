from __future__ import annotations

from types import SimpleNamespace

import pytest
from pyspark.sql import Row

from eddyline.spark.run.observations import ProgressListener

pytestmark = pytest.mark.spark


class Taker:
    def __init__(self):
        self.taken = []

    def take(self, metrics, batch_id):
        self.taken.append((metrics, batch_id))


def progress_of(name):
    metrics = {name: Row(n=3)}
    return SimpleNamespace(progress=SimpleNamespace(observedMetrics=metrics, batchId=7))


def test_a_taker_that_is_gone_is_forgotten():
    listener, first, second = ProgressListener(), Taker(), Taker()
    listener.take("a", first.take)
    listener.take("b", second.take)
    del first
    listener.onQueryProgress(progress_of("a"))
    listener.onQueryProgress(progress_of("b"))
    assert second.taken == [({"n": 3}, 7)]
    assert set(listener._takers) == {"b"}


def test_the_newest_taker_of_a_name_stays_when_the_one_before_is_gone():
    listener, first, second = ProgressListener(), Taker(), Taker()
    listener.take("a", first.take)
    listener.take("a", second.take)
    del first
    listener.onQueryProgress(progress_of("a"))
    assert second.taken == [({"n": 3}, 7)]
