"""Sinks that write Delta and Iceberg tables, read by other readers."""

from __future__ import annotations

import errno
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import eddyline as el
from eddyline.errors import OptionError, SourceError
from eddyline.query.script import read_script
from eddyline.spark.script_check import start_arguments
from eddyline.spark.shared.group import Start, start_together
from eddyline.spark.sinks import tables
from eddyline.spark.sinks.sinks import sink_of
from tests.sources.iceberg_tables import catalog_in, load_table, make_table
from tests.spark.joins.join_streams import stream_of, write_batch

pytestmark = pytest.mark.spark


class Place:
    """Where a sink writes, and how another reader sees it."""

    def __init__(self, kind, folder):
        self.kind, self.folder = kind, folder

    def arguments(self, **others):
        if self.kind == "delta":
            return {"path": str(self.folder / "out"), **others}
        return {"table": "db.out", "catalog": catalog_in(self.folder), **others}

    def sink(self, **others):
        arguments = self.arguments(**others)
        made = sink_of(self.kind, arguments.pop("path", None), arguments=arguments)
        made.begin(continues=True)
        return made

    def table(self):
        if self.kind == "delta":
            path = self.folder / "out"
            return duckdb_delta(path)
        return load_table(self.folder, "db.out").scan().to_arrow()

    def rows(self):
        return sorted((tuple(row.values()) for row in self.table().to_pylist()), key=str)

    def n_commits(self):
        if self.kind == "delta":
            return len(DeltaTable(self.folder / "out").history())
        return len(load_table(self.folder, "db.out").history())

    def n_files(self):
        if self.kind == "delta":
            return len(DeltaTable(self.folder / "out").file_uris())
        return len([*load_table(self.folder, "db.out").scan().plan_files()])


def duckdb_delta(path):
    """Read a table by the engine of deltalake, handed to DuckDB, which counts again."""
    table = pa.table(DeltaTable(path).scan())
    assert duckdb.from_arrow(table).count("*").fetchall() == [(table.num_rows,)]
    return table


@pytest.fixture(params=["delta", "iceberg"])
def place(request, tmp_path):
    return Place(request.param, tmp_path)


def frame(spark, *rows, schema="id bigint, v string"):
    return spark.createDataFrame([*rows], schema)


def test_a_batch_that_is_written_again_is_there_once(spark, place):
    sink = place.sink()
    sink.write(frame(spark, (1, "a"), (2, "b")), 0)
    sink.write(frame(spark, (3, "c")), 1)
    for again in (sink, place.sink()):
        again.write(frame(spark, (3, "c")), 1)
        again.write(frame(spark, (1, "a"), (2, "b")), 0)
    sink.write(frame(spark, (4, None)), 2)
    assert [row[0] for row in place.rows()] == [1, 2, 3, 4]


def test_a_batch_without_rows_makes_the_table_and_nothing_else(spark, place):
    sink = place.sink()
    sink.write(frame(spark), 0)
    n_commits = place.n_commits()
    sink.write(frame(spark), 1)
    assert place.n_commits() == n_commits
    assert place.table().num_rows == 0
    assert place.table().column_names == ["id", "v"]
    if place.kind == "iceberg":
        sink.write(frame(spark, (1, "a")), 2)
        properties = load_table(place.folder, "db.out").properties
        (batch,) = (value for name, value in properties.items() if name.startswith("eddyline."))
        assert (batch, "commit.retry.num-retries" in properties) == ("2", False)


def test_few_results_of_many_tasks_are_one_file(spark, place):
    sink = place.sink()
    sink.write(spark.range(0, 1000, 1, 16).selectExpr("id", "'x' AS v"), 0)
    assert (len(place.rows()), place.n_files()) == (1000, 1)


def test_many_results_are_written_by_tasks(spark, place):
    sink = place.sink()
    df = spark.range(0, 400_000, 1, 4).selectExpr("id", "CAST(id AS string) AS v")
    sink.write(df, 0)
    assert place.n_files() == 4
    assert place.table()["id"].to_pylist() != []
    assert sorted(place.table()["id"].to_pylist()) == list(range(400_000))


TYPED = pa.table(
    {
        "b": [True, None],
        "i": pa.array([1, None], pa.int32()),
        "f": pa.array([float("nan"), None], pa.float32()),
        "dec": pa.array([Decimal("-1.25"), None], pa.decimal128(9, 2)),
        "bin": [b"\x00\xff", None],
        "day": [date(1, 1, 1), None],
        "ts": pa.array([datetime(1, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        "ntz": pa.array([datetime(9999, 12, 31), None], pa.timestamp("us")),
        "l": pa.array([["x", None], None], pa.list_(pa.string())),
        "s": pa.array([{"a": 1}, None], pa.struct([("a", pa.int64())])),
    }
)


DDL = (
    "b boolean, i int, f float, dec decimal(9,2), bin binary, day date, ts timestamp, "
    "ntz timestamp_ntz, l array<string>, s struct<a: bigint>"
)


def test_every_type_of_value(spark, place):
    df = spark.createDataFrame(TYPED, DDL)
    for batch_id, write in enumerate(("rows", "table")):
        sink = place.sink()
        if write == "rows":
            sink.write(df, batch_id)
        else:
            sink.write_arrow(TYPED, df.schema, spark, batch_id)
    wanted = sorted([*TYPED.to_pylist(), *TYPED.to_pylist()], key=str)
    written = place.table().select(TYPED.column_names).cast(TYPED.schema)
    assert str(sorted(written.to_pylist(), key=str)) == str(wanted)


def test_partitions(spark, place):
    sink = place.sink(partition_by="v")
    # A folder of pyiceberg has the whole value in its name.
    rows = [(1, "a b/c"), (2, None), (3, "a b/c"), (4, "ä%20")]
    rows += [(5, "x" * 300)] if place.kind == "delta" else [(5, "x")]
    sink.write(frame(spark, *rows), 0)
    assert place.rows() == sorted(rows, key=str)
    assert place.n_files() == 4
    sink.write(frame(spark, (6, "a b/c")), 1)
    assert (6, "a b/c") in place.table().to_pandas().itertuples(index=False, name=None)


def test_delta_tables_are_parted_by_every_type(spark, tmp_path):
    for name in ("b", "i", "dec", "day", "ts", "ntz"):
        if name == "dec":
            continue  # deltalake does not read negative decimals of partitions
        table = TYPED.select([name]).append_column("id", pa.array([1, 2]))
        sink = sink_of("delta", tmp_path / name, arguments={"partition_by": [name]})
        kinds = dict(each.split(" ", 1) for each in DDL.split(", "))
        df = spark.createDataFrame(table, f"{name} {kinds[name]}, id bigint")
        sink.write(df, 0)
        assert (
            pa.table(DeltaTable(tmp_path / name).scan())
            .sort_by("id")
            .select([name, "id"])
            .to_pydict()
            == table.to_pydict()
        )
        assert sink.columns().fieldNames() == [name, "id"]


def test_statistics_of_delta_files_let_readers_skip(spark, tmp_path):
    sink = sink_of("delta", tmp_path)
    sink.write(frame(spark, (1, "a"), (9, None)), 0)
    (row,) = pa.table(DeltaTable(tmp_path).get_add_actions(flatten=True)).to_pylist()
    facts = {name: row.get(name) for name in ("num_records", "min.id", "max.id", "null_count.v")}
    assert facts == {"num_records": 2, "min.id": 1, "max.id": 9, "null_count.v": 1}


# -- merges ---------------------------------------------------------------------------------------


def test_a_newer_result_takes_the_place_of_an_older_one(spark, place):
    merged = place.sink(mode="merge", on=["id"])
    merged.write(frame(spark, (1, "a"), (2, "b")), 0)
    merged.write(frame(spark, (2, "c"), (3, "d")), 1)
    assert place.rows() == [(1, "a"), (2, "c"), (3, "d")]
    n_commits = place.n_commits()
    again = place.sink(mode="merge", on="id")
    again.write(frame(spark, (1, "a"), (2, "b")), 0)
    again.write(frame(spark, (2, "c"), (3, "d")), 1)
    assert (place.rows(), place.n_commits()) == ([(1, "a"), (2, "c"), (3, "d")], n_commits)


def test_the_newest_result_of_a_batch(spark, place):
    sink = place.sink(mode="merge", on=["id"], newest_by="v")
    sink.write(frame(spark, (1, "b"), (1, "c"), (2, None), (1, "a"), (2, "x")), 0)
    assert place.rows() == [(1, "c"), (2, "x")]
    other = Place(place.kind, place.folder / "other").sink(mode="merge", on=["id"])
    with pytest.raises(SourceError, match=r"2 results with the key id=1 for .*newest_by="):
        other.write(frame(spark, (1, "b"), (1, "c")), 0)


def test_keys_with_null(spark, place):
    sink = place.sink(mode="merge", on=["id"])
    if place.kind == "iceberg":
        with pytest.raises(SourceError, match=r"key column 'id' has NULL.*IS NOT NULL"):
            sink.write(frame(spark, (None, "a")), 0)
        return
    sink.write(frame(spark, (None, "a"), (1, "b")), 0)
    sink.write(frame(spark, (None, "c")), 1)
    assert place.rows() == [(1, "b"), (None, "c")]


# -- other writers --------------------------------------------------------------------------------


@pytest.mark.large("writes a hundred batches by several threads")
@pytest.mark.parametrize("how", [{}, {"mode": "merge", "on": ["id", "v"]}], ids=["append", "merge"])
def test_writers_at_once_are_all_there_once(spark, place, how):
    """Two of the sinks are the same query, as when an old driver still runs."""
    place.sink().write(frame(spark), 0)
    schema = frame(spark).schema

    def write(member):
        sink = place.sink(**how)
        sink.member = member
        for batch in range(8):
            rows = pa.table({"id": [batch], "v": [member]})
            sink.write_arrow(rows, schema, spark, batch)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, ["one", "two", "one", "three"]))
    wanted = [(batch, name) for batch in range(8) for name in ("one", "two", "three")]
    assert place.rows() == sorted(wanted, key=str)


def test_a_commit_that_never_succeeds_is_an_error(spark, place, monkeypatch):
    monkeypatch.setattr(tables, "ATTEMPTS", 2)
    sink = place.sink()
    sink.write(frame(spark), 0)
    monkeypatch.setattr(sink, "append", lambda *given: False)
    with pytest.raises(SourceError, match=r"before batch 1 at each of 2 commits.*nothing is lost"):
        sink.write(frame(spark, (1, "a")), 1)


# -- tables that do not fit -----------------------------------------------------------------------


def test_results_that_do_not_fit_are_refused(spark, place):
    place.sink().write(frame(spark, (1, "a")), 0)
    for df, message in [
        (frame(spark, (1,), schema="id bigint"), "the table has the column 'v', results do not"),
        (frame(spark, ("1", "a"), schema="id string, v string"), "'id' is string in results and b"),
        (frame(spark, (1, "a", 2), schema="id bigint, v string, w int"), "have the column 'w'"),
    ]:
        with pytest.raises(SourceError, match=rf"results do not fit .*{message}"):
            place.sink().write(df, 1)
    assert place.rows() == [(1, "a")]


def test_columns_without_null(spark, place):
    schema = pa.schema([pa.field("id", pa.int64(), False), ("v", pa.string())])
    if place.kind == "delta":
        DeltaTable.create(place.folder / "out", schema)
    else:
        make_table(place.folder, schema, "db.out")
    place.sink().write(frame(spark, (1, "a")), 0)
    for how in ({}, {"mode": "merge", "on": "v"}):
        with pytest.raises(SourceError, match=r"NULL|null"):
            place.sink(**how).write(frame(spark, (None, "b")), 1)
    assert place.rows() == [(1, "a")]


def test_delta_tables_with_rules_of_their_own_are_refused(spark, tmp_path):
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"id": [1], "v": ["a"]}))
    DeltaTable(path).alter.add_constraint({"few": "id < 5"})
    with pytest.raises(SourceError, match=r"has delta.constraints.few, which this sink does not"):
        sink_of("delta", path).write(frame(spark, (9, "a")), 0)
    with pytest.raises(SourceError, match=r"is partitioned by no column, not by v; leave"):
        sink_of("delta", path, arguments={"partition_by": "v"}).write(frame(spark, (9, "a")), 0)


def test_arguments_out_of_range(place):
    make = partial(place.sink)
    for others, message in [
        ({"mode": "replace"}, "unknown mode of a table 'replace'; known: append, merge"),
        ({"mode": "merge"}, r"needs the columns of the key: on=\['id'\]"),
        ({"on": ["id"]}, "are for mode='merge'"),
        ({"mode": "merge", "on": [7]}, "on= has names of columns"),
        ({"partitionby": "v"}, "did you mean 'partition_by'"),
    ]:
        with pytest.raises(OptionError, match=message):
            make(**others)
    with pytest.raises(OptionError, match=r"needs a (path: start\('delta', path=|table: start)"):
        sink_of(place.kind)


def test_places_that_cannot_be_reached(spark, tmp_path):
    (tmp_path / "file").write_text("")
    sink = sink_of("delta", tmp_path / "file" / "t")
    with pytest.raises(SourceError, match=r"the Delta table .* cannot be read or written"):
        sink.write(frame(spark, (1, "a")), 0)
    away = {"table": "db.t", "catalog": {"uri": "http://127.0.0.1:1", "type": "rest"}}
    with pytest.raises(SourceError, match=r"the Iceberg table db.t cannot be re"):
        sink_of("iceberg", arguments=away).begin(continues=False)


def test_a_full_disk_is_told_and_nothing_is_committed(spark, place, monkeypatch):
    place.sink().write(frame(spark, (1, "a")), 0)

    def full(*_given, **_options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pyarrow.parquet.ParquetWriter.write_table", full)
    monkeypatch.setattr("pyarrow.parquet.ParquetWriter.write", full)
    with pytest.raises(SourceError, match=r"cannot write results to .*No space.*nothing is lost"):
        place.sink().write(frame(spark, (2, "b")), 1)
    monkeypatch.undo()
    assert place.rows() == [(1, "a")]
    place.sink().write(frame(spark, (2, "b")), 1)
    assert place.rows() == [(1, "a"), (2, "b")]


# -- queries --------------------------------------------------------------------------------------


@pytest.mark.large("starts a query several times")
def test_a_query_that_is_run_again_has_each_row_once(spark, place, tmp_path):
    for batch in range(2):
        write_batch(tmp_path, "in", batch, pa.table({"id": range(4 * batch, 4 * batch + 4)}))
    engine = el.Engine(spark)
    engine.stream("s", stream_of(spark, tmp_path, "in"))
    query = engine.query("SELECT id, CAST(id AS string) AS v FROM s WHERE id <> 5", name="q")
    for run_again in (False, True):
        run = query.start(
            place.kind, checkpoint=tmp_path / "ckpt", availableNow=True, **place.arguments()
        )
        assert run.await_termination(60)
        if not run_again:
            # As if the driver had died before Spark noted the last batch.
            for name in ("1", ".1.crc"):
                (tmp_path / "ckpt" / "spark" / "commits" / name).unlink()
    assert [row[0] for row in place.rows()] == [i for i in range(8) if i != 5]


@pytest.mark.large("starts two queries that run together")
def test_queries_that_run_together_write_tables(spark, place, tmp_path):
    """Also to one table: each of them has its own transactions."""
    for batch in range(2):
        write_batch(tmp_path, "in", batch, pa.table({"id": range(4 * batch, 4 * batch + 4)}))
    engine = el.Engine(spark)
    engine.stream("s", stream_of(spark, tmp_path, "in"))
    for name, test in (("few", "id < 3"), ("many", "id >= 3")):
        engine.query(f"SELECT id, '{name}' AS v FROM s WHERE {test}", name=name)
    arguments = place.arguments()
    path = arguments.pop("path", None)
    starts = [
        Start(query, place.kind, path, others=arguments, trigger="available_now")
        for query in engine.queries.values()
    ]
    runs = start_together(starts, [], checkpoint=tmp_path / "ckpt")
    for run in runs:
        assert run.await_termination(60)
    assert len({run.streaming_query.id for run in runs}) == 1
    assert place.rows() == [(i, "few" if i < 3 else "many") for i in range(8)]


def test_scripts_and_their_options(tmp_path):
    script = read_script(
        "CREATE STREAM s WITH (format = 'rate');"
        "CREATE QUERY q WITH (sink = 'iceberg', table = 'db.t', catalog.uri = 'http://h', "
        "mode = 'merge', on = 'a, b') AS SELECT value FROM s"
    )
    (query,) = script.queries
    assert start_arguments(query.options) == {
        "sink": "iceberg",
        "table": "db.t",
        "catalog": {"uri": "http://h"},
        "mode": "merge",
        "on": "a, b",
    }
    with pytest.raises(OptionError, match="are both given; give one"):
        start_arguments({"catalog": "prod", "catalog.uri": "http://h"})
