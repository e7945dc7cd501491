"""Iceberg tables as sources, against ``pyiceberg``'s own reader of each snapshot."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import EqualTo
from pyiceberg.table import FileScanTask
from pyiceberg.types import LongType, StringType

import eddyline as el
from eddyline.errors import OptionError, SourceError
from eddyline.sources import source_of
from tests.sources.iceberg_tables import (
    catalog_in,
    compact,
    make_table,
    position_deletes,
)
from tests.sources.test_delta import SCHEMA, all_rows, read, rows_of


def source_in(folder, **how):
    return el.iceberg("db.t", catalog=catalog_in(folder), **how)


def rows(ids):
    ids = list(ids)
    return pa.table({"id": ids, "p": [f"p {i % 2}" for i in ids]}, SCHEMA)


def snapshots(table):
    return [entry.snapshot_id for entry in table.history()]


def added_rows(table, snapshot):
    """Return the rows of the files that a snapshot adds, by reading each alone."""
    total = Counter()
    metadata = table.snapshot_by_id(snapshot)
    for manifest in metadata.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io):
            if entry.snapshot_id == snapshot and entry.status == 1:
                path = entry.data_file.file_path.removeprefix("file://")
                total += rows_of(pq.ParquetFile(path).read().select(["id", "p"]))
    return total


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5)),
        st.tuples(st.just("delete"), st.integers(0, 12)),
        st.tuples(st.just("upsert"), st.integers(0, 12)),
        st.tuples(st.just("compact"), st.just(0)),
        st.tuples(st.just("overwrite"), st.integers(1, 4)),
    ),
    min_size=1,
    max_size=5,
)


def write_history(table, operations):
    n = 0
    for operation, number in operations:
        if operation == "append":
            table.append(rows(range(n, n + number)))
            n += number
        elif operation == "delete":
            table.delete(EqualTo("id", number))
        elif operation == "upsert":
            table.upsert(pa.table({"id": [number], "p": ["new"]}, SCHEMA), ["id"])
        elif operation == "compact" and table.current_snapshot() and table.scan().to_arrow():
            compact(table)
        elif operation == "overwrite":
            table.overwrite(rows(range(n, n + number)))
            n += number


def line_of(table):
    """Return the newest snapshot and those before it; the history has what was rolled back, too."""
    line, snapshot = [], table.current_snapshot()
    while snapshot is not None:
        line.insert(0, snapshot)
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return line


@pytest.mark.filterwarnings("ignore:Delete operation did not match")
@settings(max_examples=10, deadline=None, phases=[Phase.generate])
@given(OPERATIONS, st.integers(1, 6), st.booleans())
def test_any_history_gives_each_appended_row_once(tmp_path_factory, operations, most, is_parted):
    folder = tmp_path_factory.mktemp("warehouse")
    table = make_table(folder, SCHEMA)
    if is_parted:
        with table.update_spec() as spec:
            spec.add_identity("p")
    write_history(table, operations)
    line = line_of(table)
    kinds = [snapshot.summary.operation.value for snapshot in line]
    rewrites = [kind in ("delete", "overwrite") for kind in kinds]
    start = {"version": None, "file": -1, "whole": False}
    for on_change in (None, "ignore", "rows"):
        source, offset, total = source_in(folder, on_change=on_change), start, Counter()
        if on_change is None and any(rewrites):
            first = line[rewrites.index(True)].snapshot_id
            with pytest.raises(SourceError, match=f"version {first} of the Iceberg table db.t rem"):
                source.splits(start, source.latest(None, None, None))
            continue
        while (end := source.latest(offset, most, None)) != offset:
            total += rows_of(read(source, offset, end))
            offset = json.loads(json.dumps(end))
        wanted = Counter()
        for snapshot, kind, is_rewrite in zip(line, kinds, rewrites, strict=True):
            if kind != "replace" and (not is_rewrite or on_change == "rows"):
                wanted += added_rows(table, snapshot.snapshot_id)
        assert total == wanted
    for snapshot in line:
        source = source_in(folder)
        splits = source.table_splits({"version": snapshot.snapshot_id})
        batches = [batch for split in splits for batch in source.read(split, SCHEMA)]
        wanted = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
        assert rows_of(pa.Table.from_batches(batches, SCHEMA)) == rows_of(wanted)


def test_a_query_reads_the_table_as_it_stands_and_then_what_is_added(tmp_path):
    table = make_table(tmp_path, SCHEMA)
    source = source_in(tmp_path)
    empty = source.initial()
    assert empty == {"version": None, "file": 0, "whole": True}
    table.append(rows(range(3)))
    table.append(rows(range(3, 5)))
    source = source_in(tmp_path)
    start = source.initial()
    compact(table)
    table.append(rows(range(5, 9)))
    for begin in (empty, start):
        offset, total = begin, Counter()
        while (end := source.latest(offset, 1, None)) != offset:
            total += rows_of(read(source_in(tmp_path), offset, end))
            offset = end
        assert total == rows_of(rows(range(9)))
    assert source.latest(end, None, None) == end


def test_where_a_stream_starts(tmp_path):
    table = make_table(tmp_path, SCHEMA)
    for number in range(3):
        table.append(rows([number]))
    times = [snapshot.timestamp_ms / 1000 for snapshot in table.metadata.snapshots]
    first, second, third = snapshots(table)
    for start, ids in [
        ("latest", []),
        ("earliest", [0, 1, 2]),
        (first, [0, 1, 2]),
        (second, [1, 2]),
        (str(third), [2]),
        (datetime.fromtimestamp(times[1], UTC).isoformat(), [1, 2]),
        ("2030-01-01", []),
        ("2000-01-01", [0, 1, 2]),
    ]:
        assert sorted(all_rows(source_in(tmp_path, start=start))["id"].to_pylist()) == ids
    with pytest.raises(SourceError, match=r"start=7: the Iceberg table db.t has no such snapshot"):
        source_in(tmp_path, start=7).initial()
    table.maintenance.expire_snapshots().by_id(first).commit()
    assert sorted(all_rows(source_in(tmp_path, start=second))["id"].to_pylist()) == [1, 2]
    assert all_rows(source_in(tmp_path, start="earliest")).num_rows == 3
    with pytest.raises(SourceError, match="begins later, because snapshots have expired"):
        source_in(tmp_path, start="2000-01-01").initial()
    offset = {"version": None, "file": -1, "whole": False}
    with pytest.raises(SourceError, match=r"does not lead from snapshot None to .* expired"):
        source_in(tmp_path).splits(offset, source_in(tmp_path, start="latest").initial())
    with pytest.raises(SourceError, match=rf"snapshot {first} of .* has expired"):
        source_in(tmp_path).table_splits({"version": first})


def test_position_deletes_are_applied(tmp_path):
    table = make_table(tmp_path, SCHEMA)
    table.append(rows(range(5)))
    source = source_in(tmp_path)
    (task,) = source.files(source.newest())
    deletes = position_deletes(tmp_path / "deletes.parquet", task.file, [0, 3])
    source._whole = source.newest(), (FileScanTask(task.file, {deletes}),)
    splits = source.table_splits(source.version())
    (batch,) = source.read(splits[0], SCHEMA)
    assert batch["id"].to_pylist() == [1, 2, 4]


def test_columns_are_found_by_their_ids(tmp_path):
    """A column that is added is NULL in older files, and one that is renamed keeps its values."""
    table = make_table(tmp_path, pa.schema([("a", pa.int32()), ("b", pa.string())]))
    table.append(pa.table({"a": pa.array([1], pa.int32()), "b": ["x"]}))
    began = source_in(tmp_path, start="earliest")
    with table.update_schema() as update:
        update.rename_column("b", "c")
        update.add_column("d", StringType())
        update.update_column("a", LongType())
    table.append(pa.table({"a": [2], "c": ["y"], "d": ["z"]}))
    source = source_in(tmp_path, start="earliest")
    assert source.ddl() == "`a` bigint, `c` string, `d` string"
    schema = pa.schema([("a", pa.int64()), ("c", pa.string()), ("d", pa.string())])
    assert sorted(all_rows(source, schema).to_pylist(), key=str) == [
        {"a": 1, "c": "x", "d": None},
        {"a": 2, "c": "y", "d": "z"},
    ]
    with pytest.raises(SourceError, match=r"column 'b' of .* is no longer there"):
        all_rows(began, pa.schema([("b", pa.string())]))


def test_plain_files_are_those_with_just_the_columns_and_rows_of_the_table(tmp_path):
    def plain(folder):
        source = source_in(folder, start="earliest")
        return source.plain_files(source.initial(), source.latest(None, None, None))

    table = make_table(tmp_path / "plain", SCHEMA)
    for ids in (range(3), range(3, 5)):
        table.append(rows(ids))
    read = [pq.read_table(path).to_pylist() for path in plain(tmp_path / "plain")]
    ids = [row["id"] for part in read for row in part]
    assert sorted(ids) == [*range(5)]
    with table.update_schema() as update:
        update.rename_column("p", "q")
    assert plain(tmp_path / "plain") is None
    for name, schema in {
        "signs": pa.schema([("a b", pa.int64())]),
        "nested": pa.schema([("a", pa.struct([("b", pa.int64())]))]),
    }.items():
        other = make_table(tmp_path / name, schema)
        other.append(schema.empty_table())
        other.append(pa.Table.from_pylist([{schema.names[0]: None}], schema))
        assert plain(tmp_path / name) is None
    mapped = make_table(tmp_path / "mapped", SCHEMA)
    mapped.append(rows(range(2)))
    with mapped.transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": "[]"})
    assert plain(tmp_path / "mapped") is None


def test_a_version_has_the_columns_of_its_time(tmp_path):
    table = make_table(tmp_path, pa.schema([("a", pa.int64()), ("v", pa.string())]))
    table.append(pa.table({"a": [1], "v": ["x"]}))
    source = source_in(tmp_path)
    version, ddl = source.version(), source.ddl()
    with table.update_schema() as update:
        update.rename_column("v", "w")
    with table.update_schema() as update:
        update.add_column("v", StringType())
    assert source.ddl(version) == ddl == "`a` bigint, `v` string"
    assert source.ddl() == "`a` bigint, `w` string, `v` string"
    schema = pa.schema([("a", pa.int64()), ("v", pa.string())])
    (split,) = source.table_splits(version)
    (batch,) = source.read(split, schema)
    assert batch.to_pylist() == [{"a": 1, "v": "x"}]


def test_paths_with_signs_of_addresses_are_not_cut(tmp_path):
    table = make_table(tmp_path, SCHEMA)
    table.append(rows(range(2)))
    source = source_in(tmp_path)
    (task,) = source.files(source.newest())
    whole = source.plain_path(None, task)
    for path, plain in (
        (whole, whole),
        (f"file://{whole}", whole),
        ("/a#b/c.parquet", "/a#b/c.parquet"),
        ("file:///a#b/c.parquet", None),
        ("s3://b/c.parquet", None),
    ):
        task.file[1] = path
        assert source.plain_path(None, task) == plain


def test_files_with_deleted_rows_are_not_plain(tmp_path):
    table = make_table(tmp_path, SCHEMA)
    table.append(rows(range(5)))
    source = source_in(tmp_path)
    (task,) = source.files(source.newest())
    deletes = position_deletes(tmp_path / "deletes.parquet", task.file, [0])
    assert source.plain_path(None, task) is not None
    assert source.plain_path(None, FileScanTask(task.file, {deletes})) is None


EVERY = pa.table(
    {
        "bool": [True, None],
        "int": pa.array([1, None], pa.int32()),
        "float": pa.array([1.5, None], pa.float32()),
        "dec": pa.array([Decimal("-1.25"), None], pa.decimal128(9, 2)),
        "bin": [b"\x00\xff", None],
        "date": [date(1, 1, 1), None],
        "ts": pa.array([datetime(1, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        "ntz": pa.array([datetime(9999, 12, 31), None], pa.timestamp("us")),
        "text": ["ä", None],
        "s": pa.array([{"a": 1}, None], pa.struct([("a", pa.int64())])),
        "l": pa.array([["x", None], None], pa.list_(pa.string())),
        "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
    }
)


def test_every_type_of_value(tmp_path):
    make_table(tmp_path, EVERY.schema).append(EVERY)
    source = source_in(tmp_path)
    assert source.ddl() == (
        "`bool` boolean, `int` int, `float` float, `dec` decimal(9, 2), `bin` binary, "
        "`date` date, `ts` timestamp, `ntz` timestamp_ntz, `text` string, "
        "`s` struct<`a`: bigint>, `l` array<string>, `m` map<string, bigint>"
    )
    assert all_rows(source, EVERY.schema).to_pylist() == EVERY.to_pylist()


def test_a_table_with_partitions(tmp_path):
    table = make_table(tmp_path, SCHEMA)
    with table.update_spec() as spec:
        spec.add_identity("p")
    table.append(rows(range(20)))
    assert rows_of(all_rows(source_in(tmp_path))) == rows_of(rows(range(20)))
    assert len([*table.scan().plan_files()]) == 2


# -- bad input ------------------------------------------------------------------------------------


def test_tables_and_catalogs_that_are_not_there(tmp_path):
    make_table(tmp_path, SCHEMA)
    source = el.iceberg("db.none", catalog=catalog_in(tmp_path))
    for ask in (source.ddl, source.initial, source.version):
        with pytest.raises(SourceError, match=r"table db.none is not there: its catalog"):
            ask()
    away = el.iceberg("db.t", catalog={"uri": "http://127.0.0.1:1", "type": "rest"})
    with pytest.raises(SourceError, match=r"Iceberg table db.t cannot be reached or read"):
        away.initial()


def test_a_file_that_is_gone_is_named(tmp_path):
    table = make_table(tmp_path, SCHEMA)
    table.append(rows([1]))
    source = source_in(tmp_path)
    (task,) = table.scan().plan_files()
    Path(task.file.file_path.removeprefix("file://")).unlink()
    with pytest.raises(SourceError, match=r"parquet of the Iceberg table db.t is gone: its snapsh"):
        all_rows(source)


def test_types_that_are_not_read_are_refused(tmp_path):
    make_table(tmp_path, pa.schema([("t", pa.time64("us"))]))
    with pytest.raises(SourceError, match=r"column 't' of .* has the type 'time'"):
        source_in(tmp_path).ddl()


def test_options_out_of_range():
    with pytest.raises(OptionError, match="needs a catalog"):
        source_of("iceberg", {"table": "db.t"})
    with pytest.raises(OptionError, match="name of an Iceberg table is a text"):
        el.iceberg("", catalog="prod")
    with pytest.raises(OptionError, match="catalog= has properties"):
        el.iceberg("db.t", catalog=7)
    with pytest.raises(OptionError, match="'start' is 'latest'"):
        el.iceberg("db.t", catalog="prod", start="soon")


def test_secrets_are_not_shown():
    source = el.iceberg("db.t", catalog={"uri": "http://127.0.0.1:1", "token": "hunter2"})
    assert repr(source) == "<iceberg: table=db.t, …>"
    with pytest.raises(SourceError) as caught:
        source.initial()
    assert "hunter2" not in str(caught.value)
