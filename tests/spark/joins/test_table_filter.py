"""Rows that a table has no key for are dropped before the shuffle: equal answers, and counted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import eddyline as el
from eddyline.joins import tables as deciding
from eddyline.joins.view import JoinPart
from eddyline.spark.joins import tables
from eddyline.spark.joins.tables import _lacks, words_of
from eddyline.state.bucket_state import BucketState
from eddyline.state.grid import Grid
from eddyline.state.run_files import RunFile
from tests.joins.plans import place_in
from tests.spark.facts import facts_of
from tests.spark.joins.join_streams import run_to_end, stream_of, write_batch

pytestmark = pytest.mark.spark

N_ROWS, N_BATCHES = 3_000, 5
TEXT = (
    "SELECT s.id AS a, t.id AS b, v.name AS name FROM s [RANGE 100 SECONDS], "
    "t [RANGE 100 SECONDS], v WHERE s.k = t.k AND s.j = v.j AND v.ok"
)
START = datetime(2026, 1, 1, tzinfo=UTC)


def rows_of(name, number):
    """Rows of a batch: ids, keys (some NULL), and event times (s), a few of them late."""
    rng = np.random.default_rng((ord(name), number))
    ids = np.arange(N_ROWS) + number * N_ROWS
    k, j = rng.integers(0, 400, N_ROWS), rng.integers(0, 1_000, N_ROWS)
    at = number * 60.0 + np.arange(N_ROWS) * 60 / N_ROWS
    late = rng.random(N_ROWS) < 0.002
    at[late] -= 90.0
    return ids, k, j, at, rng.random(N_ROWS) < 0.05


def write(folder, number):
    for name in "st":
        ids, k, j, at, nulls = rows_of(name, number)
        times = pa.array([START + timedelta(seconds=s) for s in at.tolist()])
        columns = {"id": ids, "k": k, "j": pa.array(j, mask=nulls), "ts": times}
        write_batch(folder, name, number, pa.table(columns))


def write_table(folder, keys):
    folder.joinpath("v").mkdir(exist_ok=True)
    names = [f"n{key}" for key in keys]
    ok = [key % 10 != 3 for key in keys]
    table = pa.table({"j": pa.array(keys, pa.int64()), "name": names, "ok": ok})
    pq.write_table(table, folder / "v" / "v.parquet")


def run_of(spark, folder):
    engine = el.Engine(spark)
    for name in "st":
        engine.stream(name, stream_of(spark, folder, name), time="ts", lateness="0 seconds")
    engine.table("v", spark.read.parquet(str(folder / "v")))
    return run_to_end(engine.query(TEXT, name="joined", buckets=2), folder)


def wanted(n_batches, keys):
    """All results and late rows, found batch by batch: a row is late behind an earlier batch."""
    every, latest, n_late = {"s": [], "t": []}, {"s": -1e9, "t": -1e9}, {"s": 0, "t": 0}
    ok = {key for key in keys if key % 10 != 3}
    for number in range(n_batches):
        for name in "st":
            ids, k, j, at, nulls = rows_of(name, number)
            if name == "t":
                nulls = np.zeros(N_ROWS, np.bool_)
            there = (at >= latest[name]) & ~nulls
            n_late[name] += int(((at < latest[name]) & ~nulls).sum())
            latest[name] = max(latest[name], at.max())
            every[name] += zip(ids[there], k[there], j[there], at[there], strict=True)
    by_k = {}
    for row, k, _, at in every["t"]:
        by_k.setdefault(k, []).append((row, at))
    found = [
        (int(row), int(other), f"n{j}")
        for row, k, j, at in every["s"]
        if j in ok
        for other, then in by_k.get(k, ())
        if abs(at - then) <= 100
    ]
    return sorted(found), n_late


def results(folder):
    table = pq.read_table(folder / "out", columns=["a", "b", "name"])
    return sorted(zip(*(table[c].to_pylist() for c in ("a", "b", "name")), strict=True))


@pytest.mark.large
def test_answers_late_rows_and_counts_are_as_without_it_also_after_a_restart(
    spark, tmp_path, monkeypatch
):
    """The table is another one on disk after the first run: what the query keeps of it counts."""
    monkeypatch.setattr(deciding, "LEAST_DROPPED", 0)
    keys = [*range(0, 1_000, 50), 3]
    write_table(tmp_path, keys)
    for number in range(N_BATCHES - 2):
        write(tmp_path, number)
    first = run_of(spark, tmp_path)
    journal = [each for each in first.journal if each["event"] == "filtered"]
    assert [each["after"] for each in journal] == ["rows of s to the join: that v has a key for"]
    assert journal[0]["evidence"]["n_keys"] == len(keys) - 1, "without what its filter drops"
    assert "whose key v has not are dropped before the shuffle" in first.explain()
    assert first.plan()["table filter"] == {"s": True}
    write_table(tmp_path, list(range(1_000)))
    for number in range(N_BATCHES - 2, N_BATCHES):
        write(tmp_path, number)
    again = run_of(spark, tmp_path)
    found, n_late = wanted(N_BATCHES, keys)
    assert results(tmp_path) == found
    assert len(found) > 1_000
    assert {n: again.late_rows(n).num_rows for n in "st"} == n_late, "late ones are not dropped"
    # The first batch brings the table, and the second one its keys.
    n_new = sum(int((~rows_of("s", number)[4]).sum()) for number in range(2, N_BATCHES))
    (view,) = facts_of(again).drops
    assert 0.9 * n_new < view.n_dropped < n_new


def test_what_keeps_rows_from_being_dropped(spark, tmp_path):
    """Adaptation off, a declared key, no inner join, rows that are dropped: all rows come."""
    write_table(tmp_path, [1, 2])
    write(tmp_path, 0)
    engine = el.Engine(spark)
    for name in "st":
        rows = stream_of(spark, tmp_path, name)
        engine.stream(name, rows, time="ts", key="j" if name == "t" else None)
    engine.table("v", spark.read.parquet(str(tmp_path / "v")))
    two = "SELECT {0}.id FROM {0} [RANGE 9 SECONDS] {1} v ON {0}.j = v.j"
    for text, options, is_used in (
        (two.format("s", "JOIN"), {}, True),
        (two.format("s", "JOIN"), {"adaptive": False}, False),
        (two.format("s", "JOIN"), {"constraints": "exact"}, True),
        (two.format("s", "JOIN"), {"constraints": "discard"}, False),
        (two.format("t", "JOIN"), {}, False),
        (two.format("s", "LEFT JOIN"), {}, False),
    ):
        (join,) = (each for each in engine.query(text, **options).operators if each.name == "join")
        assert bool(join.drops.loop.tables) == is_used, text


def test_keys_that_cannot_be_read_are_read_again(spark, tmp_path):
    """Else a filter of some of the keys, or none, would stand from then on."""
    write_table(tmp_path, [1, 2])
    write(tmp_path, 0)
    engine = el.Engine(spark)
    engine.stream("s", stream_of(spark, tmp_path, "s"), time="ts")
    engine.table("v", spark.read.parquet(str(tmp_path / "v")))
    query = engine.query("SELECT s.id FROM s [RANGE 9 SECONDS] JOIN v ON s.j = v.j")
    (join,) = (each for each in query.operators if each.name == "join")
    gone = BucketState(runs={"v": (RunFile("gone", 2, 0, 0, 1, 1),)})
    state = JoinPart(Grid((1,)), {0: gone}), place_in(tmp_path / "state")
    for _ in range(2):
        with pytest.raises(OSError, match="gone"):
            join.drops.read(spark.range(1), *state)


@pytest.mark.large
def test_a_filter_in_spark_has_every_key_and_hardly_any_other(spark):
    rng = np.random.default_rng(5)
    every = rng.integers(-(2**63), 2**63 - 1, 20_000)
    every[:4] = [0, -1, 2**63 - 1, -(2**63)]
    for n_keys in (0, 1, 3, 5_000):
        df = spark.createDataFrame(pa.table({"code": every, "at": np.arange(every.size)}))
        lacks = _lacks(df, "code", words_of(every[:n_keys]))
        counts = df.groupBy((F.col("at") < n_keys).alias("is_in"), lacks.alias("lacks")).count()
        found = {(row["is_in"], row["lacks"]): row["count"] for row in counts.collect()}
        assert found.get((True, False), 0) == n_keys
        assert found.get((False, True), 0) >= 0.99 * (every.size - n_keys)


@pytest.mark.large
def test_a_table_that_is_too_large_filters_nothing(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "MOST_KEYS", 2)
    write_table(tmp_path, [1, 2, 4])
    for number in range(3):
        write(tmp_path, number)
    run = run_of(spark, tmp_path)
    assert not [each for each in run.journal if each["event"] == "filtered"]
