"""A key that half the rows have lies in several buckets, and the answer is the same."""

from __future__ import annotations

import random

import duckdb
import pyarrow as pa
import pytest

import eddyline as el
from eddyline.spark.joins.bound import BoundJoin
from tests.oracles.joins import bag, results
from tests.spark.facts import facts_of
from tests.spark.joins.join_streams import run_to_end, stream_of, value_of, write_batch

pytestmark = pytest.mark.spark

HOT, SECOND = 7, 1_000_000
TEXT = "SELECT s.id AS a, t.id AS b FROM s [RANGE 1 SECOND], t [RANGE 1 SECOND] WHERE s.k = t.k"


def rows_of(name, number, n_late=0):
    """Rows of seconds 2n to 2n + 2.5, half of which have one key; the last ones of second 0."""
    drawn, n_rows = random.Random(f"{name}{number}"), 300 if name == "t" else 100
    times = [int((2 * number + 2.5 * drawn.random()) * SECOND) for _ in range(n_rows)]
    keys = [HOT if drawn.random() < 0.5 else drawn.randrange(100, 300) for _ in times]
    times += [SECOND // 2] * n_late
    return pa.table(
        {
            "id": pa.array(range(1_000 * number, 1_000 * number + len(times)), pa.int64()),
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "k": pa.array([*keys, *[HOT] * n_late], pa.int64()),
        }
    )


def ran(spark, folder, **options):
    """A run over what is there, which goes on from the one before."""
    engine = el.Engine(spark)
    for name in "st":
        engine.stream(name, stream_of(spark, folder, name), time="ts", lateness="1 second")
    query = engine.query(TEXT, name="skewed", **options)
    return query, run_to_end(query, folder)


@pytest.mark.large
def test_a_key_with_half_of_the_rows_is_split(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(BoundJoin, "n_tasks", 8)  # as if there were so many cores
    on_time = {"s": [], "t": []}

    def arrive(number, n_late=0):
        for name, parts in on_time.items():
            write_batch(tmp_path, name, number, rows_of(name, number, n_late))
            parts.append(rows_of(name, number))

    for number in range(3):
        arrive(number)
    _, run = ran(spark, tmp_path, buckets=4)
    (cut,) = [entry for entry in run.journal if entry["event"] == "grid"]
    assert cut["before"] == [4]
    assert cut["after"]["shape"] == [4]
    assert len(cut["after"]["splits"]) == len(facts_of(run).splits) == 1
    assert cut["evidence"]["rows_in_fullest_before"] > cut["evidence"]["rows_in_fullest_after"]
    assert "1 frequent key cut by event time, too" in run.explain()

    # The last batch runs again, is cut as it was, and counts once.
    for name in ("2", ".2.crc"):
        (tmp_path / "ckpt" / "spark" / "commits" / name).unlink()
    _, again = ran(spark, tmp_path, buckets=4)
    assert [record.batch_id for record in again.records] == [2]
    assert facts_of(again).splits == facts_of(run).splits
    assert facts_of(again).n_results == facts_of(run).n_results

    # With other buckets, and late rows, which are in several of them.
    arrive(3, n_late=5)
    arrive(4, n_late=1)
    _, other = ran(spark, tmp_path, buckets=6)
    assert facts_of(other).grid == (6,)
    assert facts_of(other).splits, "the counts were kept"

    # Switched off, nothing is cut anew, and it goes on with what is there.
    arrive(5)
    query, last = ran(spark, tmp_path, buckets=6, adaptive=False)
    assert facts_of(last).splits == facts_of(other).splits

    wholes = {name: pa.concat_tables(parts) for name, parts in on_time.items()}
    wanted = results(value_of(query), wholes, dict.fromkeys(wholes, "ts")).drop_columns("_at")
    assert wanted.num_rows > 20_000
    got = duckdb.sql(f"SELECT a, b FROM '{tmp_path}/out/*.parquet'").to_arrow_table()
    assert bag(got) == bag(wanted)
    for each in facts_of(last).inputs:
        assert (each.n_joined, each.n_late) == (wholes[each.name].num_rows, 6)
        late = last.late_rows(each.name)
        assert set(late["k"].to_pylist()) == {HOT}
        assert late.num_rows == 6
