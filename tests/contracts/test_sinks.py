"""Every registered sink keeps its contract: what is written twice is there once, whole or not."""

from __future__ import annotations

import re

import duckdb
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Observation
from pyspark.sql import functions as F

from eddyline.errors import OptionError, SourceError
from eddyline.spark.sinks.sinks import CONSOLE_ROWS, NEED_PATH, SINKS, CallableSink, sink_of

pytestmark = pytest.mark.spark


class Made:
    """A sink, and what reads what it has taken: sorted ids, or all that was said."""

    def __init__(self, name, folder, capsys):
        self.path = str(folder / "out") if name in NEED_PATH else None
        self.sink = sink_of(name, self.path)
        self._name, self._capsys, self._said = name, capsys, ""

    def ids(self):
        return getattr(self, f"_{self._name}")()

    def _parquet(self):
        found = duckdb.sql(f"SELECT id FROM '{self.path}/*.parquet' ORDER BY ALL").fetchall()
        return [row[0] for row in found]

    def _memory(self):
        return sorted(self.sink.table()["id"].to_pylist())

    def _console(self):
        """The console keeps nothing: what is printed last counts, by batch."""
        self._said += self._capsys.readouterr().out
        parts = re.split(r"batch\s+(\d+)\s", self._said)  # a title is folded over a narrow table
        printed = dict(zip(parts[1::2], parts[2::2], strict=True))
        lines = [line for table in printed.values() for line in table.splitlines()]
        return sorted(int(line.split("│")[1]) for line in lines if line.startswith("│"))


@pytest.fixture(params=SINKS)
def made(request, tmp_path, capsys):
    return Made(request.param, tmp_path, capsys)


def rows(spark, start, end, n_partitions=2):
    return spark.range(start, end, 1, n_partitions)


def test_batches_add_up(spark, made):
    made.sink.begin(continues=False)
    made.sink.write(rows(spark, 0, 7), 0)
    made.sink.write(rows(spark, 7, 9), 1)
    assert made.ids() == list(range(9))


@pytest.mark.parametrize("n_partitions", [1, 3, 7])
def test_a_batch_that_is_written_again_is_there_once(spark, made, n_partitions):
    """Whatever partitions the first attempt had; the other batches stay as they are."""
    made.sink.begin(continues=False)
    made.sink.write(rows(spark, 0, 5), 0)
    made.sink.write(rows(spark, 5, 12, 3), 1)
    made.sink.write(rows(spark, 5, 12, n_partitions), 1)
    made.sink.write(rows(spark, 12, 13), 2)
    made.sink.write(rows(spark, 5, 12, n_partitions), 1)
    assert made.ids() == list(range(13))


def test_an_empty_batch_has_no_rows_and_keeps_none_from_coming(spark, made):
    made.sink.begin(continues=False)
    made.sink.write(rows(spark, 0, 0), 0)
    made.sink.write(rows(spark, 0, 3), 1)
    made.sink.write(rows(spark, 0, 0), 2)
    assert made.ids() == [0, 1, 2]


def test_a_batch_that_runs_again_may_be_empty(spark, made, capsys):
    """Such as where an error of a source was mended in between; a console cannot take back."""
    if made.path is None and not hasattr(made.sink, "table"):
        pytest.skip("what was printed stays printed")
    made.sink.begin(continues=False)
    made.sink.write(rows(spark, 0, 3), 0)
    made.sink.write(rows(spark, 3, 9), 1)
    made.sink.write(rows(spark, 3, 3), 1)
    assert made.ids() == [0, 1, 2]


def test_the_whole_job_is_run(spark, made):
    """Operators learn from what a job observed: a sink that stops early teaches nothing."""
    seen = Observation()
    df = rows(spark, 0, 10 * CONSOLE_ROWS, 4).observe(seen, F.count(F.lit(1)).alias("n"))
    made.sink.begin(continues=False)
    made.sink.write(df, 0)
    assert seen.get == {"n": 10 * CONSOLE_ROWS}


def test_a_batch_that_fails_leaves_nothing_and_can_come_again(spark, made):
    fails = "CASE WHEN id = 9 THEN raise_error('no') ELSE id END"
    made.sink.begin(continues=False)
    made.sink.write(rows(spark, 0, 5), 0)
    with pytest.raises(PySparkException):
        made.sink.write(rows(spark, 5, 12).selectExpr(f"CAST({fails} AS BIGINT) AS id"), 1)
    assert made.ids() == [0, 1, 2, 3, 4]
    made.sink.write(rows(spark, 5, 12), 1)
    assert made.ids() == list(range(12))


def test_a_sink_that_goes_on_keeps_what_is_there(spark, made, tmp_path, capsys):
    made.sink.begin(continues=False)
    made.sink.write(rows(spark, 0, 5), 0)
    if made.path is None:
        made.sink.begin(continues=True)
        return
    name = made._name
    with pytest.raises(SourceError, match="batches of another run"):
        sink_of(name, made.path).begin(continues=False)
    again = sink_of(name, made.path)
    again.begin(continues=True)
    again.write(rows(spark, 0, 5), 0)
    again.write(rows(spark, 5, 8), 1)
    assert made.ids() == list(range(8))


def test_a_function_is_a_sink(spark):
    taken = []
    sink = sink_of(lambda df, batch_id: taken.append((df.count(), batch_id)), None)
    assert isinstance(sink, CallableSink)
    sink.begin(continues=True)
    sink.write(rows(spark, 0, 3), 5)
    sink.write(rows(spark, 0, 3), 5)
    assert taken == [(3, 5), (3, 5)]


@pytest.mark.parametrize("name", SINKS)
def test_paths_are_for_sinks_that_write_somewhere(name, tmp_path):
    if name in NEED_PATH:
        with pytest.raises(OptionError, match="needs a path"):
            sink_of(name, None)
        (tmp_path / "file").write_text("")
        with pytest.raises(SourceError, match="cannot write to"):
            sink_of(name, str(tmp_path / "file" / "out"))
    else:
        with pytest.raises(OptionError, match="takes no path"):
            sink_of(name, str(tmp_path))


def test_an_unknown_sink_is_said_with_those_that_there_are():
    with pytest.raises(OptionError, match=r"memori.*did you mean.*memory"):
        sink_of("memori", None)
