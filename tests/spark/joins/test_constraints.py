"""Joins with constraints: cold tiers over runs and restarts, the same pairs, what is shown."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import eddyline as el
from eddyline.errors import OptionError
from tests.report.pages import figures_of
from tests.spark.joins.join_streams import ended, run_to_end, stream_of, write_batch

pytestmark = pytest.mark.spark

N_ROWS = 8_000
EVERY_US = 10_000
"""Rows of a stream follow each other by so much; a batch is 80 s, and a window ten batches."""

JOIN = (
    "SELECT s.id AS a, t.id AS b FROM s [RANGE 800 SECONDS], t [RANGE 800 SECONDS] WHERE s.k = t.k"
)


def rows_of(name, number):
    """Rows with keys that come within 20 s; a few come again much later."""
    rng = np.random.default_rng((len(name), ord(name[0]), number))
    starts = (number * N_ROWS + np.arange(N_ROWS)) * EVERY_US
    keys = starts // 20_000_000 * 400 + rng.integers(0, 400, N_ROWS)
    late = rng.random(N_ROWS) < 0.0005
    keys[late] -= 20 * 400
    return keys, starts


def write(folder, number):
    for name in "st":
        keys, starts = rows_of(name, number)
        ids = pa.array(np.arange(N_ROWS) + N_ROWS * number)
        at = pa.array(starts, pa.timestamp("us", "UTC"))
        write_batch(folder, name, number, pa.table({"id": ids, "k": pa.array(keys), "ts": at}))


def run_of(spark, folder, **options):
    engine = el.Engine(spark)
    for name in "st":
        rows = stream_of(spark, folder, name)
        engine.stream(name, rows, time="ts", lateness="0 seconds")
    query = engine.query(JOIN, name="pairs", buckets=1, **options)
    return run_to_end(query, folder)


def wanted(n_batches):
    """All pairs, found by sorting."""
    parts = {name: [rows_of(name, number) for number in range(n_batches)] for name in "st"}
    keys, starts = (
        {name: np.concatenate([part[at] for part in parts[name]]) for name in "st"} for at in (0, 1)
    )
    order = np.argsort(keys["t"], kind="stable")
    low = np.searchsorted(keys["t"][order], keys["s"], "left")
    high = np.searchsorted(keys["t"][order], keys["s"], "right")
    left = np.repeat(np.arange(keys["s"].size), high - low)
    offsets = np.arange(left.size) - np.repeat(np.cumsum(high - low) - (high - low), high - low)
    right = order[low[left] + offsets]
    near = np.abs(starts["s"][left] - starts["t"][right]) <= 800_000_000
    return sorted(zip(left[near].tolist(), right[near].tolist(), strict=True))


@pytest.mark.large
def test_what_is_cold_is_found_also_after_a_restart_and_everything_is_shown(spark, tmp_path):
    for number in range(9):
        write(tmp_path, number)
    first = run_of(spark, tmp_path, constraints="exact")
    text = first.explain()
    assert "hot for" in text
    assert "rows of the windows are cold" in text
    assert "windows of hot rows per row" in text, "what adapting brought"
    tiers = [each for each in first.journal if each["event"] == "tiers"]
    assert tiers
    assert tiers[0]["before"].endswith("all hot")
    assert first.plan()["constraints"]["s"] > 0, "µs for which rows are hot"
    for number in range(9, 12):
        write(tmp_path, number)
    again = run_of(spark, tmp_path, constraints=True)
    assert again.plan()["constraints"]["s"] > 0, "k outlives a restart"
    assert "s hot for" in again.explain()
    drawn = figures_of(again.report(tmp_path / "report.html").read_text("utf-8"))
    within = "Partners within", "Rows of a key within"
    for title in ("Rows in the cold tiers", *within, "Pairs found cold so far"):
        assert max(each for line in drawn[title]["data"] for each in line["y"] if each) > 0
    for number in range(12, 13):
        write(tmp_path, number)
    plain = run_of(spark, tmp_path)
    assert "constraints" not in plain.plan()
    pairs = pq.read_table(tmp_path / "out", columns=["a", "b"])
    found = sorted(zip(pairs["a"].to_pylist(), pairs["b"].to_pylist(), strict=True))
    assert found == wanted(13)


OTHERS = {
    "left": "SELECT s.id AS a, t.id AS b FROM s [RANGE 800 SECONDS] LEFT JOIN "
    "t [RANGE 800 SECONDS] ON s.k = t.k AND s.id % 7 < t.id % 8",
    "anti": "SELECT s.id AS a FROM s [RANGE 200 SECONDS] WHERE NOT EXISTS "
    "(SELECT 1 FROM t [RANGE 800 SECONDS] WHERE s.k = t.k)",
    "rows": "SELECT s.id AS a, t.id AS b FROM s [ROWS 50000], t [RANGE 800 SECONDS] "
    "WHERE s.k = t.k",
}


@pytest.mark.large("runs each query twice")
@pytest.mark.parametrize("name", OTHERS)
def test_joins_that_wait_have_cold_tiers_and_the_same_results(spark, tmp_path, name):
    for number in range(7):
        write(tmp_path, number)
    answers = []
    for constraints in (False, "exact"):
        engine = el.Engine(spark)
        for stream in "st":
            rows = stream_of(spark, tmp_path, stream)
            engine.stream(stream, rows, time="ts", lateness="0 seconds")
        query = engine.query(OTHERS[name], name=name, constraints=constraints)
        run = ended(query, "memory")
        answers.append(sorted(zip(*run.to_arrow().to_pydict().values(), strict=True), key=str))
    assert answers[0] == answers[1]
    assert answers[0]
    assert "rows of the windows are cold" in run.explain()
    assert 0 < run.plan()["constraints"]["t" if name == "anti" else "s"] < 60_000_000


@pytest.mark.large
def test_a_join_that_cannot_have_a_cold_tier_says_so(spark, tmp_path):
    write(tmp_path, 0)
    engine = el.Engine(spark)
    for name in "st":
        rows = stream_of(spark, tmp_path, name)
        engine.stream(name, rows, time="ts", lateness="0 seconds")
    query = engine.query("SELECT s.id FROM s, t WHERE s.k = t.k", constraints="exact")
    run = ended(query, "memory")
    assert "constraints are not used" in run.explain()
    with pytest.raises(OptionError, match="is 'exact', 'discard', True or False, got 'always'"):
        engine.query(JOIN, constraints="always").explain()
