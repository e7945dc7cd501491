"""What is said at the start of a run over a stream without a lateness."""

from __future__ import annotations

import os
import warnings

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import eddyline as el
from eddyline.cli import app
from eddyline.errors import LatenessWarning, LateRowsWarning
from eddyline.spark.lateness import warned_of_late

pytestmark = pytest.mark.spark

COUNTS = "SELECT window.end, count(*) AS n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]"
JOIN = "SELECT s.id AS a, t.id AS b FROM s [RANGE 1 DAY], t [RANGE 1 DAY] WHERE s.id = t.id"


@pytest.fixture
def folder(tmp_path):
    """Two files whose event times run against the order in which they were changed."""
    (tmp_path / "in").mkdir()
    for number, start in enumerate((1_000, 0)):
        seconds = range(start, start + 500)
        at = pa.array([1_000_000 * each for each in seconds], pa.timestamp("us", "UTC"))
        file = tmp_path / "in" / f"{number}.parquet"
        pq.write_table(pa.table({"id": pa.array(seconds, pa.int64()), "ts": at}), file)
        os.utime(file, (1_000 + number, 1_000 + number))
    return tmp_path


def engine_over(spark, folder, *, lateness=None, **options):
    engine = el.Engine(spark)
    for name in ("s", "t"):
        reader = spark.readStream.schema("id bigint, ts timestamp").options(**options)
        engine.stream(name, reader.parquet(str(folder / "in")), time="ts", lateness=lateness)
    return engine


@pytest.mark.parametrize(
    ("n_late", "share", "hint"),
    [
        (49, None, None),
        (50, None, "a longer lateness='10 minutes' of"),
        (199, 0.99, None),
        (201, 0.99, "a larger share, lateness='learned 99.9 %', of"),
        (50, 0.9999, "a larger share, lateness='learned 99.999 %', of"),
    ],
)
def test_late_rows_are_told_of_where_they_are_more_than_was_asked_for(n_late, share, hint):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        is_told = warned_of_late("s", n_late, 10_000, "left out", share)
    assert is_told == bool(hint)
    assert [hint in str(each.message) for each in caught] == [True] * is_told


def said_of(query):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = query.start(trigger="available_now")
        assert run.await_termination(120)
    return run, [each for each in caught if issubclass(each.category, LatenessWarning)]


@pytest.mark.parametrize("text", [COUNTS, JOIN], ids=["aggregate", "join"])
def test_without_a_lateness_the_start_says_what_is_late_and_the_way_out(spark, folder, text):
    run, said = said_of(engine_over(spark, folder).query(text))
    (one,) = said
    assert one.filename == __file__, "it points at the code of the user"
    names = "streams 's' and 't' have" if text == JOIN else "stream 's' has"
    assert str(one.message) == (
        f"{names} no lateness: a row that is earlier than one of its stream in a batch before is "
        f"late and left out; lateness='1 minute' beside time='…' waits for it, and "
        f"run.late_rows('s') has those that were left out"
    )
    assert len(run.records) == 1, "files that exist are one batch, in which no row is late"
    n_out = sum(run.to_arrow()["n"].to_pylist()) if text == COUNTS else run.to_arrow().num_rows
    # Of the aggregate the last window waits for a later row.
    assert n_out == (990 if text == COUNTS else 1_000)
    assert "1,000" in run.explain()


@pytest.mark.large
@pytest.mark.parametrize(
    ("text", "lateness"),
    [(COUNTS, "0 seconds"), (JOIN, "1 minute"), ("SELECT id FROM s WHERE id > 3", None)],
    ids=["aggregate", "join", "filter"],
)
def test_nothing_is_said_where_it_is_given_or_nobody_asks_for_event_time(
    spark, folder, text, lateness
):
    assert not said_of(engine_over(spark, folder, lateness=lateness).query(text))[1]


@pytest.mark.filterwarnings("ignore::eddyline.errors.LateRowsWarning")
def test_where_files_come_in_several_batches_one_batch_is_a_way_out_too(spark, folder):
    run, said = said_of(engine_over(spark, folder, maxFilesPerTrigger=1).query(COUNTS))
    assert len(run.records) == 2
    assert str(said[0].message).endswith(
        "; without maxFilesPerTrigger all files that exist are one batch, in which no row is late"
    )
    assert "500" in run.explain(), "the rows of the second file are late"


def test_it_can_be_silenced_apart_from_rows_that_were_lost(spark, folder):
    query = engine_over(spark, folder, maxFilesPerTrigger=1).query(COUNTS)
    with pytest.warns(LateRowsWarning, match="500 of 1,000 rows of 's' came too late"):
        assert query.start(trigger="available_now").await_termination(120)


def test_queries_that_run_together_say_it_once(spark, folder):
    engine = engine_over(spark, folder)
    for column in ("n", "m"):
        engine.query(COUNTS.replace("AS n", f"AS {column}"), name=column)
    with pytest.warns(LatenessWarning) as caught:
        runs = engine.start_all("memory", trigger="available_now")
    assert all(each.await_termination(120) for each in runs)
    assert len(caught) == 1


@pytest.mark.large
@pytest.mark.filterwarnings("default::eddyline.errors.LatenessWarning")
@pytest.mark.filterwarnings("default::eddyline.errors.LateRowsWarning")
def test_the_command_line_shows_it_as_a_line(spark, folder):
    file = folder / "counts.sql"
    file.write_text(
        f"CREATE STREAM s WITH (format='parquet', path='{folder}/in', time='ts', "
        f"maxFilesPerTrigger='1');\n"
        f"CREATE QUERY counts WITH (sink='parquet', path='{folder}/out') AS {COUNTS}",
        "utf-8",
    )
    ended = CliRunner().invoke(app, ["run", str(file), "--trigger", "available_now"])
    assert ended.exit_code == 0, ended.output
    lines = ended.stderr.splitlines()
    assert sum(each.startswith("eddyline: stream 's' has no lateness: ") for each in lines) == 1
    assert sum("of 's' came too late" in each for each in lines) == 1
    assert "Warning" not in ended.stderr
