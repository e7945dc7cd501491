"""Joins that drop rows: the same part of the answer over restarts and buckets, and what is said."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import eddyline as el
from eddyline.joins.view import JoinRecord
from eddyline.spark.joins.operator import JoinOperator
from tests.report.pages import figures_of
from tests.spark.joins.join_streams import run_to_end, stream_of, write_batch

pytestmark = pytest.mark.spark

N_BATCHES, N_ROWS = 9, 600
EVERY_US = 100_000
"""Rows of a stream follow each other by so much; a batch is a minute."""

JOIN = "SELECT s.id AS a, t.id AS b FROM s, t WHERE s.k = t.k"


def write(folder):
    """Things with a row in each stream within 20 s; from the sixth batch on within 400 s."""
    rng = np.random.default_rng(7)
    things = np.arange(N_BATCHES * N_ROWS)
    k = np.where(things < 5 * N_ROWS, 200, 4_000)
    rows = {}
    for name in "st":
        at = things + rng.integers(0, k)
        order = np.argsort(at, kind="stable")
        rows[name] = things[order], at[order]
        for number in range(N_BATCHES):
            mine = at[order] // N_ROWS == number
            keys = pa.array(
                things[order][mine] * 7_919 % 10_007, mask=things[order][mine] % 50 == 0
            )
            ids, starts = np.flatnonzero(mine), at[order][mine] * EVERY_US
            ts = pa.array(starts, pa.timestamp("us", "UTC"))
            write_batch(folder, name, number, pa.table({"id": ids, "k": keys, "ts": ts}))
    return rows


def wanted(rows):
    """All pairs of rows that came with equal keys, each thing once."""
    places = {}
    for name, (things, at) in rows.items():
        came = at < N_BATCHES * N_ROWS
        places[name] = dict(zip(things[came].tolist(), np.flatnonzero(came).tolist(), strict=True))
    both = places["s"].keys() & places["t"].keys()
    return {(places["s"][each], places["t"][each]) for each in both if each % 50}


def run_of(spark, folder, where, kind, *, buckets):
    engine = el.Engine(spark)
    for name in "st":
        cast = stream_of(spark, folder, name).selectExpr("id", f"CAST(k AS {kind}) AS k", "ts")
        engine.stream(name, cast, time="ts", lateness="0 seconds")
    query = engine.query(JOIN, name="pairs", buckets=buckets, constraints="discard")
    return run_to_end(query, where)


def pairs_in(where):
    table = pq.read_table(where / "out", columns=["a", "b"])
    found = list(zip(table["a"].to_pylist(), table["b"].to_pylist(), strict=True))
    assert len(found) == len({*found})
    return {*found}


@pytest.mark.large
def test_restarts_failures_and_buckets_drop_the_same_rows_and_the_bound_holds(
    spark, tmp_path, monkeypatch
):
    rows = write(tmp_path)
    every = wanted(rows)
    first = run_of(spark, tmp_path, tmp_path / "one", "STRING", buckets=1)
    found = pairs_in(tmp_path / "one")
    assert found < every, "k jumps"
    missing = [record.n_missing_at_most for record in joins_of(first)]
    assert sum(missing[:5]) == 0
    assert sum(missing) == len(every - found), "keys that are listed are exact"
    text = first.explain()
    assert f"at most {sum(missing):,}" in text
    assert "none is wrong" in text
    assert "kept for" in text
    events = [each["event"] for each in first.journal]
    assert "kept" in events
    assert "missed" in events
    kept = [sum(record.n_kept) for record in joins_of(first)]
    assert max(kept[3:5]) < 3 * N_ROWS, "without windows"
    drawn = figures_of(first.report(tmp_path / "report.html").read_text("utf-8"))
    assert max(each for line in drawn["Results missing"]["data"] for each in line["y"] if each) > 0

    close, n_failed = JoinOperator.close, 0

    def closed_then_lost(self, observed, batch):
        nonlocal n_failed
        part = close(self, observed, batch)
        if (batch.id, n_failed) in ((4, 0), (7, 1)):
            n_failed += 1
            msg = "lost"
            raise RuntimeError(msg)
        return part

    monkeypatch.setattr(JoinOperator, "close", closed_then_lost)
    for _ in range(3):
        try:
            run_of(spark, tmp_path, tmp_path / "two", "DOUBLE", buckets=2)
        except Exception:  # noqa: BLE001 - whatever Spark makes of it
            continue
        break
    assert n_failed == 2
    assert pairs_in(tmp_path / "two") == found


def joins_of(run):
    every = (each for batch in run.records for each in batch.operators)
    return [each for each in every if isinstance(each, JoinRecord)]
