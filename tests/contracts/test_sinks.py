"""Every registered sink keeps its contract: what is written twice is there once, whole or not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceWriter, WriterCommitMessage

import eddyline as el
from eddyline.errors import OptionError, SourceError
from eddyline.spark.shared.group import Start
from eddyline.spark.sinks import sinks
from eddyline.spark.sinks.sinks import CONSOLE_ROWS, SINKS, CallableSink, sink_of
from eddyline.spark.starting import FILES, NAMES
from tests.spark.joins.join_streams import stream_of, write_batch

pytestmark = pytest.mark.spark


ELSEWHERE = ("delta", "iceberg", "kafka")
"""Sinks that have tests of their own in tests/spark."""


class Made:
    """A sink, and what reads what it has taken: sorted ids, or all that was said."""

    def __init__(self, name, folder, capsys):
        self.path = str(folder / "out") if name in FILES else None
        self.sink = sink_of(name, self.path)
        self.name, self._capsys, self._said = name, capsys, ""

    def ids(self):
        read = self._files if self.name in FILES else getattr(self, f"_{self.name}")
        return read()

    def _files(self):
        reader = SparkSession.active().read.schema("id bigint").format(self.name)
        return sorted(row[0] for row in reader.load(f"{self.path}/batch-*").collect())

    def _memory(self):
        return sorted(self.sink.table()["id"].to_pylist())

    def _console(self):
        """The console keeps nothing: what is printed last counts, by batch."""
        self._said += self._capsys.readouterr().out
        parts = re.split(r"batch\s+(\d+)\s", self._said)  # a title is folded over a narrow table
        printed = dict(zip(parts[1::2], parts[2::2], strict=True))
        lines = [line for table in printed.values() for line in table.splitlines()]
        return sorted(int(line.split("│")[1]) for line in lines if line.startswith("│"))


@pytest.fixture(params=[name for name in SINKS if name not in ("format", *ELSEWHERE)])
def made(request, tmp_path, capsys):
    return Made(request.param, tmp_path, capsys)


def rows(spark, start, end, n_partitions=2):
    return spark.range(start, end, 1, n_partitions)


def test_a_batch_that_is_written_again_replaces_its_first_attempt(spark, made):
    """Whatever partitions that had, and whether rows are left; other batches stay as they are."""
    made.sink.begin(continues=False)
    made.sink.write(rows(spark, 0, 5), 0)
    for n_partitions in (3, 7):
        made.sink.write(rows(spark, 5, 12, n_partitions), 1)
    made.sink.write(rows(spark, 12, 13), 2)
    made.sink.write(rows(spark, 5, 12, 1), 1)
    assert made.ids() == list(range(13))
    if made.path or hasattr(made.sink, "table"):  # what a console has printed stays printed
        made.sink.write(rows(spark, 5, 5), 1)
        assert made.ids() == [0, 1, 2, 3, 4, 12]


def test_batches_without_rows_have_none_and_leave_no_file_but_the_first(spark, made):
    """The first file tells the columns, of formats that can."""
    made.sink.begin(continues=False)
    made.sink.write(rows(spark, 0, 0, 3), 0)
    first = files_of(made)
    assert len(first) <= 1
    made.sink.write(rows(spark, 0, 0, 3), 1)
    made.sink.write(rows(spark, 0, 9, 3).where("id > 7"), 2)
    made.sink.write(rows(spark, 0, 0, 3), 3)
    assert made.ids() == [8]
    if made.path:
        names = [name.split(".")[0] for name in files_of(made) if name not in first]
        assert names == ["batch-00000002-00000"]
    if made.name == "parquet":
        assert spark.read.parquet(made.path).count() == 1


def files_of(made):
    """Return the names of the files of batches, where there are any."""
    return sorted(each.name for each in Path(made.path).glob("batch-*")) if made.path else []


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


def test_a_sink_that_goes_on_keeps_what_is_there_and_replaces_what_is_written_again(spark, made):
    """After a crash Spark may run the batch before it again, too."""
    made.sink.begin(continues=False)
    made.sink.write(rows(spark, 0, 5), 0)
    if made.path is None:
        made.sink.begin(continues=True)
        return
    made.sink.write(rows(spark, 5, 9, 4), 1)
    with pytest.raises(SourceError, match="batches of another run"):
        sink_of(made.name, made.path).begin(continues=False)
    again = sink_of(made.name, made.path)
    again.begin(continues=True)
    again.write(rows(spark, 0, 5), 0)
    again.write(rows(spark, 5, 9, 1), 1)
    again.write(rows(spark, 9, 11), 2)
    assert made.ids() == list(range(11))


def test_a_function_is_a_sink(spark):
    taken = []
    sink = sink_of(lambda df, batch_id: taken.append((df.count(), batch_id)), None)
    assert isinstance(sink, CallableSink)
    sink.begin(continues=True)
    sink.write(rows(spark, 0, 3), 5)
    sink.write(rows(spark, 0, 3), 5)
    assert taken == [(3, 5), (3, 5)]


@pytest.mark.parametrize("name", [name for name in SINKS if name not in ("delta", "iceberg")])
def test_paths_are_for_sinks_that_write_somewhere(name, tmp_path):
    if name in FILES:
        with pytest.raises(OptionError, match="needs a path"):
            sink_of(name, None)
        (tmp_path / "file").write_text("")
        with pytest.raises(SourceError, match="cannot write to"):
            sink_of(name, str(tmp_path / "file" / "out"))
    elif name != "format":
        with pytest.raises(OptionError, match="takes no path"):
            sink_of(name, str(tmp_path))
        with pytest.raises(OptionError, match="takes no options"):
            sink_of(name, options={"compression": "zstd"})


def test_each_sink_is_known_without_spark():
    assert sorted(NAMES) == sorted(SINKS)


def test_an_unknown_sink_is_said_with_those_that_there_are():
    with pytest.raises(OptionError, match=r"memori.*did you mean.*memory"):
        sink_of("memori", None)


class Offered(sinks.MemorySink):
    """A sink of another package, with an argument of its own."""

    arguments = ("table",)

    def __init__(self, table="none"):
        super().__init__()
        self.name = table


@pytest.fixture
def offered(monkeypatch):
    """Put a package that offers a sink on the path."""

    class Point:
        name, dist = "offered", None

        @staticmethod
        def load():
            return Offered

    monkeypatch.setattr("eddyline.registry.entry_points", lambda group: [Point])


def test_a_sink_of_another_package_has_arguments_of_its_own(offered):
    assert sink_of("offered", arguments={"table": "a"}).name == "a"
    assert sink_of("offered").name == "none"
    with pytest.raises(OptionError, match=r"argument of start 'tabel'; .*did you mean 'table'"):
        sink_of("offered", arguments={"tabel": "a"})
    with pytest.raises(OptionError, match="'offered' takes no path, got 'a'; sinks that do: parq"):
        sink_of("offered", "a")


def test_every_way_to_start_hands_arguments_to_the_sink(spark, offered, tmp_path):
    write_batch(tmp_path, "in", 0, pa.table({"id": [1, 2]}))
    engine = el.Engine(spark)
    engine.stream("s", stream_of(spark, tmp_path, "in"))
    rules = el.RuleSet({"one": "id = 1"}, name="rules")
    first, second = (engine.query(f"SELECT id FROM s WHERE id = {n}", name=f"q{n}") for n in (1, 2))
    runs = [
        first.start("offered", table="a", availableNow=True),
        rules.start("s", "offered", engine=engine, table="b", availableNow=True),
        Start(second, "offered", others={"table": "c"}, trigger="available_now").run(None),
    ]
    for run, name, n_rows in zip(runs, "abc", (1, 1, 1), strict=True):
        assert run.await_termination(60)
        assert (run.sink.name, run.sink.table().num_rows) == (name, n_rows)
    for run in engine.start_all("offered", table="d", availableNow=True):
        assert run.await_termination(60)
        assert run.sink.name == f"d.{run.name}"
    with pytest.raises(OptionError, match="argument of start 'tabel'"):
        first.start("offered", tabel="a")


def test_a_function_takes_neither_path_nor_format():
    with pytest.raises(OptionError, match="a function takes no path, got 'out'"):
        sink_of(lambda df, batch_id: None, "out")
    with pytest.raises(OptionError, match="a function takes no format"):
        sink_of(lambda df, batch_id: None, kind="delta")


def test_a_batch_is_written_to_as_many_files_as_wanted(spark, tmp_path):
    sink = sink_of("parquet", tmp_path, options={"files": 2, "compression": "zstd"})
    sink.begin(continues=False)
    sink.write(rows(spark, 0, 64, 16), 0)
    names = sorted(each.name for each in tmp_path.glob("batch-*"))
    assert names == ["batch-00000000-00000.zstd.parquet", "batch-00000000-00001.zstd.parquet"]
    assert spark.read.parquet(str(tmp_path)).count() == 64
    for wrong in (0, "few", -1, 1.5):
        with pytest.raises(OptionError, match="limits the files of a batch"):
            sink_of("parquet", tmp_path, options={"files": wrong})


def test_options_reach_the_writer_of_files(spark, tmp_path):
    sink = sink_of("json", tmp_path, options={"compression": "gzip"})
    sink.begin(continues=False)
    sink.write(rows(spark, 0, 3, 1), 0)
    assert [each.name for each in tmp_path.glob("batch-*")] == ["batch-00000000-00000.json.gz"]
    with pytest.raises(OptionError, match="options of a sink are a mapping"):
        sink_of("json", tmp_path, options="gzip")


class Taken(DataSource):
    """Keeps what was written to it as JSON lines, once for each transaction that it is told."""

    @classmethod
    def name(cls):
        return "delta"

    def writer(self, schema, overwrite):
        assert not overwrite
        return TakenWriter(dict(self.options))


class Other(Taken):
    """The same, under a name that eddyline does not know."""

    @classmethod
    def name(cls):
        return "other"


class TakenWriter(DataSourceWriter):
    def __init__(self, options):
        self.options = options

    def write(self, rows):
        return Ids([row["id"] for row in rows])

    def commit(self, messages):
        folder = Path(self.options["path"])
        app, version = self.options.get("txnappid", "none"), self.options.get("txnversion", "")
        name = f"{app}-{version}".replace(" ", "-")
        if version and (folder / name).exists():
            return
        with (folder / name).open("a") as file:
            file.writelines(f"{i}\n" for message in messages for i in message.ids)


@dataclass
class Ids(WriterCommitMessage):
    ids: list


@pytest.mark.large
@pytest.mark.parametrize("kind", ["delta", "other"])
def test_any_data_source_of_spark_is_a_sink(spark, tmp_path, kind):
    """Of Delta's tables a batch is a transaction, so that one that runs again is there once."""
    for batch in range(2):
        write_batch(tmp_path, "in", batch, pa.table({"id": range(4 * batch, 4 * batch + 4)}))
    for source in (Taken, Other):
        spark.dataSource.register(source)
    engine = el.Engine(spark)
    engine.stream("s", stream_of(spark, tmp_path, "in"))
    query = engine.query("SELECT id FROM s WHERE id <> 5", name=f"to_{kind}")
    (tmp_path / "out").mkdir()
    for run_again in (False, True):
        run = query.start(
            "format",
            format=kind,
            path=tmp_path / "out",
            checkpoint=tmp_path / "ckpt",
            trigger="available_now",
        )
        assert run.await_termination(60)
        if not run_again:
            # As if the driver had died before Spark noted the last batch.
            for name in ("1", ".1.crc"):
                (tmp_path / "ckpt" / "spark" / "commits" / name).unlink()
    found = [int(line) for each in (tmp_path / "out").iterdir() for line in each.open()]
    twice = [4, 6, 7] if kind == "other" else []
    assert sorted(found) == sorted([*(i for i in range(8) if i != 5), *twice])
    assert ("once more" in run.explain()) == (kind == "other")


def test_a_data_source_that_spark_does_not_know_is_refused_at_the_start(spark):
    for kind in ("kafka", "nosuch"):
        with pytest.raises(OptionError, match=rf"no data source '{kind}'.*spark.jars.packages"):
            sink_of("format", kind=kind)
    with pytest.raises(OptionError, match="needs a format"):
        sink_of("format", "out")


def test_rows_go_to_kafka_as_json(spark, monkeypatch):
    monkeypatch.setattr(sinks, "_check_known", lambda kind: None)
    written = []
    monkeypatch.setattr(type(spark.range(1)), "write", property(lambda df: Written(df, written)))
    sink = sink_of("format", kind="kafka", options={"topic": "alarms"})
    df = spark.range(3).selectExpr("id", "'a' AS name")
    sink.write(df, 0)
    sink.write(df.selectExpr("name AS value", "id AS key"), 1)
    (packed, options), (plain, _) = written
    assert [row[0] for row in packed.collect()] == [f'{{"id":{i},"name":"a"}}' for i in range(3)]
    assert plain.columns == ["value", "key"]
    assert options == {"topic": "alarms"}


def test_queries_that_run_together_have_transactions_of_their_own(spark, monkeypatch):
    monkeypatch.setattr(sinks, "_check_known", lambda kind: None)
    written = []
    monkeypatch.setattr(type(spark.range(1)), "write", property(lambda df: Written(df, written)))
    for member in ("", "one", "two"):
        sink_of("format", kind="delta", member=member).write(spark.range(1), 0)
    names = [options["txnAppId"] for _, options in written]
    assert names == ["eddyline None", "eddyline None one", "eddyline None two"]


class Written:
    """Stands in for Spark's writer of a data source that is not there."""

    def __init__(self, df, written):
        self.df, self.written = df, written

    def format(self, kind):
        assert kind in ("kafka", "delta")
        return self

    def options(self, **options):
        self.written.append((self.df, options))
        return self

    def mode(self, mode):
        assert mode == "append"
        return self

    def save(self, path):
        assert path is None
