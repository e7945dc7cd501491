"""What is said at the start of a run over a stream without a lateness."""

from __future__ import annotations

import os
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import eddyline as el
from eddyline.cli import app
from eddyline.errors import LatenessWarning, LateRowsWarning
from eddyline.spark.event_time import warned_of_late

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
        (50, None, "a longer lateness of the stream waits for them. Spark reads files"),
        (199, 0.99, None),
        (201, 0.99, "lateness='learned 99.9 %' of"),
        (50, 0.9999, "lateness='learned 99.999 %' of"),
    ],
)
def test_late_rows_are_told_of_where_they_are_more_than_was_asked_for(n_late, share, hint):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        is_told = warned_of_late("s", n_late, 10_000, "left out", share)
    assert is_told == bool(hint)
    assert [hint in str(each.message) for each in caught] == [True] * is_told


MINUTE = 60_000_000


@pytest.mark.parametrize(
    ("minutes_behind", "allowed_us", "hint"),
    [
        ([90], 0, "lateness='90 minutes' would have held all of them"),
        ([90], 5 * MINUTE, "lateness='95 minutes' would have held all of them"),
        (
            [*[1.5] * 98, 2, 600],
            0,
            "lateness='120 seconds' would have held 99 % of them, lateness='10 hours' all",
        ),
        ([0.00001], 0, "lateness='1 millisecond' would have held all of them"),
    ],
)
def test_the_hint_names_the_lateness_that_would_have_held_the_late_rows(
    minutes_behind, allowed_us, hint
):
    delays = np.array([round(minutes * MINUTE) for minutes in minutes_behind])
    with pytest.warns(LateRowsWarning) as caught:
        warned_of_late("s", 100, 1_000, "left out", None, lambda: delays, allowed_us)
    assert hint in str(caught[0].message)


@pytest.mark.parametrize(
    "text",
    [pytest.param(COUNTS, id="aggregate"), pytest.param(JOIN, id="join", marks=pytest.mark.large)],
)
def test_the_lateness_of_the_hint_loses_no_row(spark, folder, text):
    """Rows of the second file are 1,000 to 1,499 seconds behind the latest of the first."""

    def warnings_with(lateness):
        query = engine_over(spark, folder, lateness=lateness, maxFilesPerTrigger=1).query(text)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert query.start(trigger="available_now").await_termination(120)
        return [str(each.message) for each in caught if each.category is LateRowsWarning]

    told = warnings_with("1 second")
    assert len(told) == (1 if text == COUNTS else 2)
    hint = "; lateness='25 minutes' would have held all of them. Spark reads files"
    assert all(hint in each for each in told)
    assert warnings_with("25 minutes") == []


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
        f"{names} no lateness: a row is late, and left out, if an earlier batch had a later row of "
        f"its stream; lateness='1 minute' beside time='…' waits for such rows, and "
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


@pytest.mark.large
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
