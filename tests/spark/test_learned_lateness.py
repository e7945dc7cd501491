"""A lateness that is learned: what is late by it, in aggregates, joins and unions, and restarts."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import eddyline as el
from eddyline.constraints.bounds import bins_of
from eddyline.constraints.lateness import Disorder, LearnedLateness
from eddyline.errors import OptionError
from eddyline.state.rows import ALWAYS

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::eddyline.errors.LateRowsWarning"),
]

SCHEMA = "id bigint, k bigint, ts timestamp"
COUNTS = "SELECT window.end, count(*) AS n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]"
JOIN = "SELECT s.id AS a, t.id AS b FROM s [RANGE 3 SECONDS], t [RANGE 3 SECONDS] WHERE s.k = t.k"
PARTS = "SELECT id, k, ts FROM s UNION ALL SELECT id, k, ts FROM t"
OF_PARTS = "SELECT window.end, count(*) AS n FROM u [RANGE 10 SECONDS SLIDE 10 SECONDS]"


def batch_of(number, *, seed, n_rows=400):
    """Return a batch of a stream that runs 40 s on; each is more out of order than the last."""
    rng = np.random.default_rng((seed, number))
    ages = (rng.exponential(4e6 * 2**number, n_rows)).astype(np.int64)
    starts = number * 40_000_000 + np.arange(n_rows) * (40_000_000 // n_rows) - ages
    return rng.integers(0, 20, n_rows), starts


def write(folder, name, number, seed):
    keys, starts = batch_of(number, seed=seed)
    ids = pa.array(np.arange(keys.size) + 1_000 * number)
    at = pa.array(starts, pa.timestamp("us", "UTC"))
    file = folder / name / f"{number}.parquet"
    file.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"id": ids, "k": pa.array(keys), "ts": at}), file)
    os.utime(file, (1_000 + number, 1_000 + number))


def on_time(share, n_batches, seed):
    """Return id, key and start of the rows that are in time, as a slow oracle finds them."""
    learned, latest, found, n_late = LearnedLateness(share), None, [], 0
    for number in range(n_batches):
        keys, starts = batch_of(number, seed=seed)
        low = ALWAYS if latest is None else max(learned.low, latest - learned.bound)
        late, bins = [], {}
        for row, start in enumerate(starts.tolist()):
            if start < low:
                late.append(row)
            else:
                found.append((row + 1_000 * number, int(keys[row]), start))
            if latest is not None and start < latest:
                each = int(bins_of(np.array([latest - start]))[0])
                bins[each] = bins.get(each, 0) + 1
        batch = Disorder(starts.size, len(late), int(starts.min()), int(starts.max()), bins)
        learned = learned.after(batch, latest)
        latest = max(batch.latest, batch.latest if latest is None else latest)
        n_late += len(late)
    return found, n_late, max(learned.low, latest - learned.bound)


def engine_over(spark, folder, lateness, *names):
    engine = el.Engine(spark)
    for name in names:
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        rows = reader.parquet(str(folder / name))
        engine.stream(name, rows, time="ts", lateness=lateness)
    return engine


def run_of(query, folder, sink="out"):
    run = query.start(
        "parquet",
        path=str(folder / sink),
        checkpoint=str(folder / "ckpt"),
        trigger="available_now",
    )
    assert run.await_termination(240)
    return run


def test_counts_are_those_of_the_rows_in_time_also_after_a_restart(spark, tmp_path):
    n_batches = 6
    for number in range(4):
        write(tmp_path, "s", number, seed=1)
    run_of(engine_over(spark, tmp_path, "learned 90 %", "s").query(COUNTS, name="q"), tmp_path)
    for number in range(4, n_batches):
        write(tmp_path, "s", number, seed=1)
    query = engine_over(spark, tmp_path, "learned 90 %", "s").query(COUNTS, name="q")
    run = run_of(query, tmp_path)
    rows, n_late, _ = on_time(0.9, n_batches, seed=1)
    assert n_late > 0, "the case says nothing without late rows"
    assert run.late_rows("s").num_rows == n_late
    found = pq.read_table(tmp_path / "out", columns=["end", "n"]).to_pylist()
    assert found
    ends = [int(each["end"].timestamp() * 1e6) for each in found]
    expected = [sum(end - 10_000_000 <= at < end for _, _, at in rows) for end in ends]
    assert [each["n"] for each in found] == expected
    text = run.explain()
    assert "to hold" in text
    assert "90.000 %" in text
    assert any(each["event"] == "lateness" for each in run.journal)


def test_a_join_finds_all_pairs_of_rows_in_time(spark, tmp_path):
    for name, seed in (("s", 2), ("t", 3)):
        for number in range(5):
            write(tmp_path, name, number, seed)
    run = run_of(engine_over(spark, tmp_path, "learned 50 %", "s", "t").query(JOIN), tmp_path)
    assert len(run.records) == 5
    late = {name: run.late_rows(name).num_rows for name in "st"}
    pairs = pq.read_table(tmp_path / "out", columns=["a", "b"])
    found = sorted(zip(pairs["a"].to_pylist(), pairs["b"].to_pylist(), strict=True))
    left, n_left, _ = on_time(0.5, 5, seed=2)
    right, n_right, _ = on_time(0.5, 5, seed=3)
    assert (late["s"], late["t"]) == (n_left, n_right)
    assert n_left > 0
    expected = sorted(
        (a, b)
        for a, k, at in left
        for b, key, to in right
        if k == key and abs(at - to) <= 3_000_000
    )
    assert found == expected
    assert "to hold" in run.explain()


def test_the_parts_of_a_union_have_a_lateness_each(spark, tmp_path):
    for name, seed in (("s", 4), ("t", 5)):
        for number in range(3):
            write(tmp_path, name, number, seed)
    engine = engine_over(spark, tmp_path, "learned 99 %", "s", "t")
    engine.stream("u", engine.query(PARTS, name="parts"), time="ts")
    run = run_of(engine.query(OF_PARTS), tmp_path)
    text = run.explain()
    assert "s (1)" in text
    assert "t (2)" in text


@pytest.mark.parametrize("lateness", ["learned 0 %", "learned 100 %", "learned soon", "learned99%"])
def test_a_share_that_is_none_is_refused(spark, tmp_path, lateness):
    write(tmp_path, "s", 0, seed=1)
    with pytest.raises(OptionError, match="with a share between 0 % and 100 %, got"):
        engine_over(spark, tmp_path, lateness, "s")


def test_a_filter_asks_for_no_lateness(spark, tmp_path):
    write(tmp_path, "s", 0, seed=1)
    run = engine_over(spark, tmp_path, "learned", "s").query("SELECT id FROM s WHERE k < 5")
    started = run.start("memory", trigger="available_now")
    assert started.await_termination(120)
    assert started.to_arrow().num_rows == int((batch_of(0, seed=1)[0] < 5).sum())
