"""A lateness that is learned: what is late by it, in aggregates, joins and unions, and restarts."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import eddyline as el
from eddyline.constraints.bounds import Disorder, LearnedLateness, bins_of
from eddyline.errors import OptionError
from eddyline.spark.clock import StreamClock
from eddyline.state.rows import ALWAYS
from tests.spark.joins.join_streams import run_to_end

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::eddyline.errors.LateRowsWarning"),
]

SCHEMA = "id bigint, k bigint, ts timestamp"
COUNTS = "SELECT window.end, count(*) AS n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]"
JOIN = "SELECT s.id AS a, t.id AS b FROM s [RANGE 3 SECONDS], t [RANGE 3 SECONDS] WHERE s.k = t.k"
JOIN_AT = JOIN.replace("s.id AS a, t.id AS b", "greatest(s.ts, t.ts) AS ts")
PARTS = "SELECT id, k, ts FROM s UNION ALL SELECT id, k, ts FROM t"
OF_PARTS = "SELECT window.end, count(*) AS n FROM u [RANGE 10 SECONDS SLIDE 10 SECONDS]"


def batch_of(number, *, seed, n_rows=2_000):
    """Return a batch of a stream that runs 40 s on, out of order more and more, and then less.

    After ten batches it does so again.
    """
    rng = np.random.default_rng((seed, number))
    disorder = min(number % 10, 3, max(0, 6 - number % 10))
    ages = (rng.exponential(4e6 * 2**disorder, n_rows)).astype(np.int64)
    starts = number * 40_000_000 + np.arange(n_rows) * (40_000_000 // n_rows) - ages
    return rng.integers(0, 100, n_rows), starts


def write(folder, name, number, seed):
    keys, starts = batch_of(number, seed=seed)
    ids = pa.array(np.arange(keys.size) + 10_000 * number)
    at = pa.array(starts, pa.timestamp("us", "UTC"))
    file = folder / name / f"{number}.parquet"
    file.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"id": ids, "k": pa.array(keys), "ts": at}), file)
    os.utime(file, (1_000 + number, 1_000 + number))


def on_time(lateness, seed):
    """Return id, key and start of the rows that are in time, as a slow oracle finds them.

    Args:
        lateness: in each batch, the share that is to be held, or a bound (µs).
        seed: of the rows.
    """
    learned, latest, low, found, n_late = None, None, ALWAYS, [], 0
    for number, given in enumerate(lateness):
        keys, starts = batch_of(number, seed=seed)
        late, bins = [], {}
        for row, start in enumerate(starts.tolist()):
            if start < low:
                late.append(row)
            else:
                found.append((row + 10_000 * number, int(keys[row]), start))
            if latest is not None and start < latest:
                each = int(bins_of(np.array([latest - start]))[0])
                bins[each] = bins.get(each, 0) + 1
        batch = Disorder(starts.size, len(late), int(starts.min()), int(starts.max()), bins)
        if given < 1:
            known = learned if learned and learned.share == given else LearnedLateness(given)
            learned = known.after(batch, latest)
        else:
            learned = None
        latest = max(batch.latest, batch.latest if latest is None else latest)
        low = max(low, latest - (learned.bound if learned else given))
        n_late += len(late)
    return found, n_late, low


def counts_of(starts, low):
    """Return the ends of windows of 10 s that are before an instant, with their rows."""
    ends = Counter((start // 10_000_000 + 1) * 10_000_000 for start in starts)
    return sorted((end, n) for end, n in ends.items() if end <= low)


def pairs_of(left, right):
    """Return ids and starts of the pairs that ``JOIN`` asks for."""
    by_key = defaultdict(list)
    for b, k, to in right:
        by_key[k].append((b, to))
    return [(a, b, at, to) for a, k, at in left for b, to in by_key[k] if abs(at - to) <= 3_000_000]


def found_in(folder):
    """Return the ends of windows (µs) and their rows in the files of a sink."""
    found = pq.read_table(folder, columns=["end", "n"]).to_pylist()
    return sorted((int(each["end"].timestamp() * 1e6), each["n"]) for each in found)


@pytest.fixture
def instants(monkeypatch):
    """The instants of before and after each batch of clocks that are laid."""
    found, lay = [], StreamClock.lay

    def laid(self, df, batch):
        found.append((self.before, self.after))
        return lay(self, df, batch)

    monkeypatch.setattr(StreamClock, "lay", laid)
    return found


def engine_over(spark, folder, lateness, *names):
    engine = el.Engine(spark)
    for name in names:
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        rows = reader.parquet(str(folder / name))
        engine.stream(name, rows, time="ts", lateness=lateness)
    return engine


@pytest.mark.large("runs a stream of 18 batches, with six restarts")
def test_counts_are_those_of_the_rows_in_time_also_after_restarts(spark, tmp_path, instants):
    """With the lateness of before, and with each kind of another one."""
    values = {
        "2 minutes": 120 * 10**6,
        "learned 90 %": 0.9,
        "learned 99 %": 0.99,
        "1 second": 10**6,
    }
    lives = [
        ("learned 90 %", 3),
        ("learned 90 %", 3),
        ("2 minutes", 2),
        ("learned 90 %", 3),
        ("learned 99 %", 3),
        ("2 minutes", 2),
        ("1 second", 2),
    ]
    given = []
    for lateness, n_batches in lives:
        for _ in range(n_batches):
            write(tmp_path, "s", len(given), seed=1)
            given.append(values[lateness])
        query = engine_over(spark, tmp_path, lateness, "s").query(COUNTS, name="q")
        run = run_to_end(query, tmp_path)
        rows, n_late, low = on_time(given, seed=1)
        assert run.late_rows("s").num_rows == n_late
        assert found_in(tmp_path / "out") == counts_of([at for *_, at in rows], low)
        assert len(instants) == len(given)
        assert instants[-1][1] == low
        if lateness.startswith("learned"):
            assert n_late > 0, "the case says nothing without late rows"
            assert "to hold" in run.explain()
            assert lateness.removeprefix("learned ").replace(" %", ".000 %") in run.explain()
            assert any(each["event"] == "lateness" for each in run.journal)
    assert all(before == after for (_, after), (before, _) in pairwise(instants))


@pytest.mark.large
def test_counts_of_what_a_join_finds_are_whole_when_the_bound_goes_down(spark, tmp_path):
    for name, seed in (("s", 2), ("t", 3)):
        for number in range(10):
            write(tmp_path, name, number, seed)
    engine = engine_over(spark, tmp_path, "learned 90 %", "s", "t")
    engine.stream("pairs", engine.query(JOIN_AT, name="join"), time="ts")
    run_to_end(engine.query(COUNTS.replace("FROM s", "FROM pairs")), tmp_path)
    (left, _, low), (right, _, other) = (on_time([0.9] * 10, seed) for seed in (2, 3))
    latest = [max(at, to) for _, _, at, to in pairs_of(left, right)]
    assert found_in(tmp_path / "out") == counts_of(latest, min(low, other))


@pytest.mark.large
def test_a_join_finds_all_pairs_of_rows_in_time(spark, tmp_path):
    for name, seed in (("s", 2), ("t", 3)):
        for number in range(5):
            write(tmp_path, name, number, seed)
    run = run_to_end(engine_over(spark, tmp_path, "learned 50 %", "s", "t").query(JOIN), tmp_path)
    assert len(run.records) == 5
    late = {name: run.late_rows(name).num_rows for name in "st"}
    pairs = pq.read_table(tmp_path / "out", columns=["a", "b"])
    found = sorted(zip(pairs["a"].to_pylist(), pairs["b"].to_pylist(), strict=True))
    left, n_left, _ = on_time([0.5] * 5, seed=2)
    right, n_right, _ = on_time([0.5] * 5, seed=3)
    assert (late["s"], late["t"]) == (n_left, n_right)
    assert n_left > 0
    expected = sorted((a, b) for a, b, *_ in pairs_of(left, right))
    assert found == expected
    assert "to hold" in run.explain()


@pytest.mark.large
def test_the_parts_of_a_union_have_a_lateness_each(spark, tmp_path):
    for name, seed in (("s", 4), ("t", 5)):
        for number in range(3):
            write(tmp_path, name, number, seed)
    engine = engine_over(spark, tmp_path, "learned 99 %", "s", "t")
    engine.stream("u", engine.query(PARTS, name="parts"), time="ts")
    run = run_to_end(engine.query(OF_PARTS), tmp_path)
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
