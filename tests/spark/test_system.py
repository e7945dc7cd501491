"""The stream about the system: each batch and decision once, whatever ends and starts again."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import eddyline as el
from eddyline.errors import OptionError, QueryError, StateError
from eddyline.runtime.checkpoint import OWN
from eddyline.serve import runs as stored
from eddyline.spark import system
from eddyline.spark.system import Feed
from tests.report.fakes import a_run
from tests.serve.test_stored import kept

pytestmark = pytest.mark.spark


def told(folder):
    """Return the rows of a feed whose files nobody has removed."""
    files = sorted((folder / "rows").glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def batches_of(rows):
    return [r["batch"] for r in rows if (r["entity"], r["name"]) == ("batch", "n_rows")]


@pytest.fixture
def _at_once(monkeypatch):
    monkeypatch.setattr(system, "LOOK_EVERY_S", 3600.0)
    monkeypatch.setattr(stored, "LEAST_AGE_S", 0.0)
    monkeypatch.setattr(stored, "SHARE", 1e9)
    monkeypatch.setattr(stored, "LOOK_EVERY_S", 0.0)


@pytest.mark.usefixtures("_at_once")
@pytest.mark.parametrize("lost", ["nothing", "the place", "the files that were read"])
def test_a_feed_that_starts_again_tells_nothing_twice_and_leaves_nothing_out(tmp_path, lost):
    view, folder = a_run(n_batches=6), tmp_path / "feed"
    progress = kept(tmp_path / "ck", view)
    (folder / "rows").mkdir(parents=True)
    first = Feed((tmp_path / "ck",), folder)
    first.open()
    before = (folder / system._TOLD).read_bytes()
    more = a_run(n_batches=10).history.batches
    progress.add(more[6])
    first.look()
    first.look()  # nothing is new
    first.close()
    rows = told(folder)
    if lost == "the place":  # it ended between the two files
        (folder / system._TOLD).write_bytes(before)
    elif lost == "the files that were read":
        for file in (folder / "rows").glob("*.parquet"):
            file.unlink()
    progress.add(more[7])
    again = Feed((tmp_path / "ck",), folder)
    again.open()
    again.close()
    rows = [*rows, *told(folder)] if lost == "the files that were read" else told(folder)
    assert batches_of(rows) == list(range(8))
    journal = [row for row in rows if row["entity"] == "journal" and "." not in row["name"]]
    assert len(journal) == len(view.history.journal)
    assert [row["value"] for row in rows if row["name"] == "running"] == [1.0]


@pytest.mark.usefixtures("_at_once")
def test_rows_that_cannot_be_written_are_told_later(tmp_path, monkeypatch):
    kept(tmp_path / "ck", a_run(n_batches=4))
    (tmp_path / "feed" / "rows").mkdir(parents=True)
    feed = Feed((tmp_path / "ck",), tmp_path / "feed")

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(system.pq, "write_table", full)
        with pytest.raises(OSError, match="No space"):
            feed.open()
    assert told(tmp_path / "feed") == []
    feed.look()
    feed.close()
    assert batches_of(told(tmp_path / "feed")) == list(range(4))


@pytest.mark.usefixtures("_at_once")
def test_a_checkpoint_of_a_query_that_reads_the_stream_is_left_out(tmp_path):
    kept(tmp_path / "all" / "a", a_run(n_batches=2))
    kept(tmp_path / "all" / "b", a_run(n_batches=3))
    (tmp_path / "all" / "b" / OWN / system.NAME).mkdir()
    (tmp_path / "feed" / "rows").mkdir(parents=True)
    feed = Feed((tmp_path / "all",), tmp_path / "feed")
    feed.open()
    feed.close()
    assert batches_of(told(tmp_path / "feed")) == [0, 1]


@pytest.fixture
def engine(spark, tmp_path, monkeypatch):
    """An engine with a stream ``s``, whose files ``put`` adds; runs of other tests are not seen."""
    others, started = [*system.started_runs()], system.started_runs
    monkeypatch.setattr(
        system, "started_runs", lambda: [run for run in started() if run not in others]
    )
    engine = el.Engine(spark)
    folder = tmp_path / "in"
    folder.mkdir()
    stream = spark.readStream.schema("v BIGINT").option("maxFilesPerTrigger", 1)
    engine.stream("s", stream.parquet(str(folder)))
    numbers = iter(range(100))

    def put(n_rows):
        table = pa.table({"v": pa.array(range(n_rows), pa.int64())})
        pq.write_table(table, draft := folder / ".draft")
        draft.rename(folder / f"{next(numbers):03d}.parquet")

    engine.put = put
    with engine:
        yield engine


@pytest.mark.large
def test_each_batch_is_read_once_over_restarts_of_both(engine, tmp_path):
    query = engine.query("SELECT v FROM s WHERE v > 3 AND v % 2 = 0", name="watched")
    watch = engine.query(
        "SELECT query, batch, entity, name, value FROM system "
        "WHERE name = 'n_rows' AND query = 'watched'",  # other tests may have left runs
        name="watch",
    )
    rows, n_rows = [], [10, 20, 5, 40, 1]
    for part in (n_rows[:2], n_rows[2:3], n_rows[3:]):
        for n in part:
            engine.put(n)
        with query.start("memory", checkpoint=tmp_path / "ck") as run:
            run.process_all_available()
            with watch.start("memory", checkpoint=tmp_path / "wk") as looks:
                looks.process_all_available()
                rows += looks.to_arrow().to_pylist()
    of_batches = {r["batch"]: r["value"] for r in rows if r["entity"] == "batch"}
    assert [of_batches[at] for at in sorted(of_batches)] == n_rows
    assert max(Counter((r["batch"], r["entity"]) for r in rows).values()) == 1
    # The same from its files, as another process has them.
    engine.stream("theirs", engine.system_of(tmp_path / "ck"), time="at")
    text = "SELECT batch, value FROM theirs WHERE name = 'n_rows' AND entity = 'batch'"
    with engine.query(text, name="late").start("memory", trigger="available_now") as run:
        run.await_termination()
        found = run.to_arrow().to_pylist()
    assert {r["batch"]: r["value"] for r in found} == of_batches
    with pytest.raises(QueryError, match="its own checkpoint"):
        engine.query(text, name="self").start("memory", checkpoint=tmp_path / "ck")


@pytest.mark.large
def test_queries_that_read_the_stream_do_not_feed_each_other(engine):
    engine.put(10)
    text = "SELECT window.end AS ts, SUM(value) AS n FROM system [RANGE 1 SECOND SLIDE 1 SECOND] "
    of = "WHERE query = 'fed' AND name = 'n_rows' AND entity = 'batch'"
    engine.query("SELECT v FROM s WHERE v > 3", name="fed")
    engine.query(f"SELECT query, value FROM system {of}", name="one")
    engine.query(f"SELECT query, value FROM SYSTEM {of} AND value > 0", name="two")
    engine.query(f"{text} {of}", name="sums")
    engine.start_all("memory")
    runs = {run.name: run for run in engine.runs}
    runs["fed"].process_all_available()
    for name in ("one", "two", "sums"):
        runs[name].process_all_available()
    assert runs["one"].to_arrow().to_pylist() == [{"query": "fed", "value": 10.0}]
    assert runs["two"].to_arrow().to_pylist() == [{"query": "fed", "value": 10.0}]
    n_batches = {name: len(run.records) for name, run in runs.items()}
    for name in ("one", "two", "sums"):
        runs[name].process_all_available()
    assert {name: len(run.records) for name, run in runs.items()} == n_batches
    assert n_batches["fed"] == 1


def test_mistakes_with_the_stream_are_told(engine, tmp_path):
    with pytest.raises(QueryError, match="would feed itself"):
        engine.query("SELECT value FROM system WHERE query = 'me'", name="me")
    with pytest.raises(StateError, match="no checkpoint"):
        engine.system_of(tmp_path)
    with pytest.raises(OptionError, match="needs the checkpoints"):
        engine.system_of()
    query = engine.query("SELECT v FROM s WHERE v > 3", name="other")
    engine.stream("system", query, replace=True)  # the name is free for streams of a user
    assert engine.query("SELECT v FROM system WHERE v > 4").columns == {"v": "bigint"}
