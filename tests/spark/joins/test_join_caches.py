"""Caches in Spark's workers: kept from batch to batch where they fit, and no answer hangs on it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from eddyline.joins.caches.choice import JoinCaches
from eddyline.joins.caches.prefix_invariant import prefix_invariant
from eddyline.joins.orders.pipelines import JoinLoop
from eddyline.joins.plan import NO_CACHES, CachePlan
from eddyline.query.select.reader import read_query
from tests.oracles.joins import bag, results
from tests.spark.joins.join_streams import ended, join_of, stream_of, write_batch

pytestmark = pytest.mark.spark

TEXT = (
    "SELECT r.v AS a, s.v AS b, t.v AS c FROM r [RANGE 40 SECONDS], s [RANGE 40 SECONDS], "
    "t [RANGE 40 SECONDS] WHERE r.k = s.k AND s.k = t.k"
)
N_BATCHES, BATCH_ROWS = 5, 60


def drawn(seed):
    """The rows of each stream by batch."""
    rng = np.random.default_rng(seed)
    for number in range(N_BATCHES):
        at = 1_600_000_000_000_000 + np.arange(BATCH_ROWS) * 10**5 + number * 6 * 10**6
        yield {
            name: pa.table(
                {
                    "ts": pa.array(at, pa.timestamp("us", "UTC")),
                    "k": rng.integers(0, 20, BATCH_ROWS),
                    "v": np.arange(BATCH_ROWS) + number * BATCH_ROWS,
                }
            )
            for name in "rst"
        }


@pytest.mark.large
@pytest.mark.parametrize("n_buckets", [1, 3])
def test_caches_in_workers_never_change_an_answer(spark, tmp_path, monkeypatch, n_buckets):
    reports = []

    def for_batch(self, orders, batch_id):
        used = prefix_invariant(self.graph, orders)
        limits = {each.store: 1 << 20 for each in used}
        return CachePlan(used, limits=limits) if batch_id % 3 else NO_CACHES

    def step(self, fresh, batch_id=-1):
        reports.append(fresh.caches)
        return []

    monkeypatch.setattr(JoinCaches, "for_batch", for_batch)
    monkeypatch.setattr(JoinCaches, "step", step)
    batches = list(drawn(n_buckets))
    for number, tables in enumerate(batches):
        for name, rows in tables.items():
            write_batch(tmp_path, name, number, rows)
    frames = {name: stream_of(spark, tmp_path, name) for name in "rst"}
    times = dict.fromkeys("rst", "ts")
    monkeypatch.setattr(JoinLoop, "probing", lambda *_: None)  # orders stay as written
    join = join_of(TEXT, frames, times, {}, "cached", buckets=n_buckets)
    run = ended(join)
    whole = {name: pa.concat_tables([each[name] for each in batches]) for name in "rst"}
    columns = {name: {"ts": "timestamp", "k": "bigint", "v": "bigint"} for name in "rst"}
    wanted = results(read_query(TEXT, columns), whole, times).drop_columns("_at")
    assert bag(run.to_arrow()) == bag(wanted)
    assert sum(use.n_keys for report in reports for use in report.uses.values()) > 0
    if n_buckets == 1:
        # Which worker a task comes to is Spark's choice; one that missed a batch starts empty, and
        # every other one has most of the few keys.
        uses = [use for report in reports for use in report.uses.values()]
        assert all(use.n_hits == 0 or use.n_hits > 0.5 * use.n_keys for use in uses)
