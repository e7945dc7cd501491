"""Delta tables as sources, against ``deltalake``'s own reader of each version."""

from __future__ import annotations

import json
import pickle
import shutil
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction
from hypothesis import given, settings
from hypothesis import strategies as st

import eddyline as el
from eddyline.errors import OptionError, SourceError
from eddyline.sources import delta, source_of
from eddyline.sources.table_files import DeltaFiles
from tests.sources.delta_tables import (
    actions,
    change_actions,
    commit_file,
    deletion_vector,
    with_features,
    write_actions,
)

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string())])


def rows_of(table):
    return Counter(tuple(row.values()) for row in table.to_pylist())


def added(path, ids, **how):
    ids = list(ids)
    table = pa.table({"id": ids, "p": [f"p {i % 2}" for i in ids]}, SCHEMA)
    write_deltalake(path, table, mode="append", partition_by=["p"], **how)


def read(source, start, end, schema=SCHEMA):
    """Return the rows between offsets; splits and source go through pickle, as to a worker."""
    worker = source_of(source.kind, source.options)
    splits = pickle.loads(pickle.dumps(source.splits(start, end)))
    batches = [batch for split in splits for batch in worker.read(split, schema)]
    return pa.Table.from_batches(batches, schema)


def plain(offset):
    """Return an offset without the id of the table."""
    return {name: value for name, value in offset.items() if name != "table"}


def all_rows(source, schema=SCHEMA):
    start = source.initial()
    return read(source, start, source.latest(start, None, None), schema)


def version_rows(path, version):
    return rows_of(pa.table(DeltaTable(path, version=version).scan()).select(["id", "p"]))


def physical_rows(path, names):
    """Return the rows of files by reading each alone."""
    total = Counter()
    for name in names:
        table = pq.ParquetFile(Path(path) / unquote(name)).read()
        p = unquote(unquote(name)).split("/")[0].removeprefix("p=")
        total += Counter((i, p) for i in table["id"].to_pylist())
    return total


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 5)),
        st.tuples(st.just("delete"), st.integers(0, 30)),
        st.tuples(st.just("update"), st.integers(0, 30)),
        st.tuples(st.just("optimize"), st.just(0)),
        st.tuples(st.just("overwrite"), st.integers(1, 4)),
    ),
    min_size=1,
    max_size=7,
)


def write_history(path, operations):
    """Write a table, and return for each version the rows that it appends, or None."""
    added(path, range(3))
    history, n = [Counter((i, f"p {i % 2}") for i in range(3))], 3
    for operation, number in operations:
        table, version = DeltaTable(path), DeltaTable(path).version()
        if operation == "append" and number:
            added(path, range(n, n + number))
            history.append(Counter((i, f"p {i % 2}") for i in range(n, n + number)))
            n += number
            continue
        if operation == "delete":
            table.delete(f"id = {number}")
        elif operation == "update":
            table.update({"id": f"id + {100 + n}"}, predicate=f"id = {number}")
        elif operation == "optimize":
            table.optimize.compact()
        elif operation == "overwrite":
            write_deltalake(
                path,
                pa.table({"id": range(n, n + number), "p": ["p 0"] * number}, SCHEMA),
                mode="overwrite",
            )
            n += number
        if DeltaTable(path).version() > version:
            history.append(Counter() if operation == "optimize" else None)
    return history


@settings(max_examples=15, deadline=None)
@given(OPERATIONS, st.integers(1, 6))
def test_any_history_gives_each_appended_row_once(tmp_path_factory, operations, most):
    path = str(tmp_path_factory.mktemp("table"))
    history = write_history(path, operations)
    n_versions = DeltaTable(path).version() + 1
    assert len(history) == n_versions
    for on_change in (None, "ignore", "rows"):
        source = el.delta(path, start=0, on_change=on_change, max_per_batch=most)
        offset, total = source.initial(), Counter()
        assert plain(offset) == {"version": -1, "file": -1, "whole": False}
        if on_change is None and None in history:
            with pytest.raises(SourceError, match=f"version {history.index(None)} of"):
                source.splits(offset, source.latest(None, None, None))
            continue
        while (end := source.latest(offset, most, None)) != offset:
            table = read(source, offset, end)
            sizes = [source.size(f)[0] for _, _, fs, _ in source._steps(offset, end) for f in fs]
            assert table.num_rows <= most or len([n for n in sizes if n]) == 1
            total += rows_of(table)
            offset = json.loads(json.dumps(end))
        assert offset == source.latest(None, None, None)
        wanted = sum((each or Counter() for each in history), Counter())
        if on_change == "rows":
            for version, each in enumerate(history):
                if each is None:
                    adds = [action["add"]["path"] for action in actions(path, version)
                            if "add" in action]  # fmt: skip
                    wanted += physical_rows(path, adds)
        assert total == wanted
    for version in range(n_versions):
        source = el.delta(path)
        splits = source.table_splits({"version": version})
        batches = [batch for split in splits for batch in source.read(split, SCHEMA)]
        assert rows_of(pa.Table.from_batches(batches, SCHEMA)) == version_rows(path, version)


def test_a_query_reads_the_table_as_it_stands_and_then_what_is_added(tmp_path):
    path = str(tmp_path / "a table")
    added(path, range(4))
    added(path, range(4, 8))
    source = el.delta(tmp_path / "a table")
    start = source.initial()
    assert plain(start) == {"version": 1, "file": 0, "whole": True}
    DeltaTable(path).optimize.compact()
    added(path, range(10, 13))
    end = source.latest(start, None, None)
    assert plain(end) == {"version": 3, "file": -1, "whole": False}
    assert rows_of(read(source, start, end)) == version_rows(path, 3)
    # In steps, with a restart after each of them.
    total = Counter()
    while (step := source.latest(start, 1, None)) != start:
        total += rows_of(read(el.delta(path), start, step))
        start = step
    assert total == version_rows(path, 3)
    assert source.latest(end, None, None) == end


@pytest.mark.parametrize(
    ("start", "ids"),
    [("latest", []), ("earliest", [0, 1, 2]), (1, [1, 2]), ("2", [2]), (3, [])],
)
def test_where_a_stream_starts(tmp_path, start, ids):
    for number in range(3):
        added(str(tmp_path), [number])
    assert sorted(all_rows(el.delta(tmp_path, start=start))["id"].to_pylist()) == ids


def test_a_stream_starts_at_a_time(tmp_path):
    for number in range(3):
        added(str(tmp_path), [number])
        change_actions(
            tmp_path,
            number,
            lambda action, n=number: (
                action
                if "commitInfo" not in action
                else {"commitInfo": action["commitInfo"] | {"timestamp": 1_700_000_000_000 + n}}
            ),
        )
    first = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    for start, ids in [
        ("2023-11-14 22:13:20.001", [1, 2]),
        ("2023-11-14T23:13:20.001500+01:00", [2]),
        (first.isoformat(), [0, 1, 2]),
        ("2030-01-01", []),
        ("2000-01-01", [0, 1, 2]),
    ]:
        assert sorted(all_rows(el.delta(tmp_path, start=start))["id"].to_pylist()) == ids
    DeltaTable(tmp_path).create_checkpoint()
    commit_file(tmp_path, 0).unlink()
    with pytest.raises(SourceError, match=r"begins with version 1, which is later"):
        el.delta(tmp_path, start="2000-01-01").initial()


def test_the_end_of_a_run_is_kept(tmp_path):
    added(str(tmp_path), [1])
    source = el.delta(tmp_path, start="earliest")
    until = source.latest(None, None, None)
    added(str(tmp_path), [2])
    assert source.latest(source.initial(), None, until) == until
    assert source.latest(source.initial(), 10, until) == until
    assert rows_of(read(source, source.initial(), until)) == Counter([(1, "p 1")])


def test_deletion_vectors_are_applied(tmp_path):
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"id": range(6), "p": ["a"] * 6}, SCHEMA))
    change_actions(path, 0, lambda action: with_features(action, "deletionVectors"))
    (add,) = [action["add"] for action in actions(path, 0) if "add" in action]
    write_actions(
        path,
        1,
        [
            {"commitInfo": {"operation": "DELETE", "timestamp": 1}},
            {"remove": {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}},
            {"add": add | {"deletionVector": deletion_vector([0, 4])}},
        ],
    )
    assert all_rows(el.delta(path))["id"].to_pylist() == [1, 2, 3, 5]
    assert all_rows(el.delta(path, start=0, on_change="ignore"))["id"].to_pylist() == list(range(6))
    again = all_rows(el.delta(path, start=1, on_change="rows"))
    assert again["id"].to_pylist() == [1, 2, 3, 5]
    source = el.delta(path)
    splits = source.table_splits({"version": 0})
    assert sum(batch.num_rows for split in splits for batch in source.read(split, SCHEMA)) == 6
    with pytest.raises(SourceError, match=r"version 1 of .* removes or rewrites rows \(DELETE\)"):
        all_rows(el.delta(path, start=0))


NESTED = pa.schema(
    [
        ("s", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.struct([("c", pa.string())])))])),
        ("m", pa.map_(pa.string(), pa.struct([("d", pa.float64())]))),
        ("p", pa.int32()),
    ]
)


def test_mapped_columns_are_found_by_their_names_in_the_files(tmp_path):
    path = str(tmp_path / "t")
    deep = pa.list_(pa.struct([("x4", pa.string())]))
    stored = pa.schema(
        [
            ("x1", pa.struct([("x2", pa.int32()), ("x3", deep)])),
            ("x5", pa.map_(pa.string(), pa.struct([("x6", pa.float64())]))),
            ("x7", pa.int32()),
        ]
    )  # fmt: skip
    rows = [
        {"x1": {"x2": 1, "x3": [{"x4": "a"}, None]}, "x5": [("k", {"x6": 0.5})], "x7": 3},
        {"x1": None, "x5": None, "x7": 3},
        {"x1": {"x2": None, "x3": None}, "x5": [], "x7": 4},
    ]
    write_deltalake(path, pa.Table.from_pylist(rows, stored), partition_by=["x7"])
    names = dict(zip([f"x{n}" for n in range(1, 8)], "sabcmdp", strict=True))

    def mapped(kind):
        if isinstance(kind, list):
            for field in kind:
                field["metadata"] = {
                    "delta.columnMapping.physicalName": field["name"],
                    "delta.columnMapping.id": int(field["name"][1:]),
                }
                field["name"] = names[field["name"]]
                mapped(field["type"])
        elif isinstance(kind, dict):
            for part in ("fields", "elementType", "keyType", "valueType"):
                mapped(kind.get(part))

    def change(action):
        action = with_features(action, "columnMapping")
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            mapped(schema["fields"])
            action["metaData"] |= {
                "schemaString": json.dumps(schema),
                "partitionColumns": ["p"],
                "configuration": {
                    "delta.columnMapping.mode": "name",
                    "delta.columnMapping.maxColumnId": "7",
                },
            }
        return action

    change_actions(path, 0, change)
    source = el.delta(path)
    assert source.ddl() == (
        "`s` struct<`a`: int, `b`: array<struct<`c`: string>>>, "
        "`m` map<string, struct<`d`: double>>, `p` int"
    )
    for start in (None, 0):
        rows = all_rows(el.delta(path, start=start), NESTED).to_pylist()
        assert sorted(rows, key=str) == sorted(
            [
                {"s": {"a": 1, "b": [{"c": "a"}, None]}, "m": [("k", {"d": 0.5})], "p": 3},
                {"s": None, "m": None, "p": 3},
                {"s": {"a": None, "b": None}, "m": [], "p": 4},
            ],
            key=str,
        )


def test_columns_that_a_file_lacks_are_null_and_types_may_widen(tmp_path):
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"a": pa.array([1], pa.int32())}))
    later = pa.table({"a": pa.array([2], pa.int32()), "b": ["x"], "c": [{"d": 1}]})
    write_deltalake(path, later, mode="append", schema_mode="merge")
    source = el.delta(path, start=0)
    assert source.ddl() == "`a` int, `b` string, `c` struct<`d`: bigint>"
    wide = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.struct([("d", pa.int64())]))])
    assert all_rows(source, wide).to_pylist() == [
        {"a": 1, "b": None, "c": None},
        {"a": 2, "b": "x", "c": {"d": 1}},
    ]
    narrow = pa.schema([("a", pa.int32())])  # of a stream that began before
    assert all_rows(source, narrow).to_pylist() == [{"a": 1}, {"a": 2}]


def test_a_column_that_is_dropped_or_changed_is_an_error(tmp_path):
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"a": [1], "b": [1]}), mode="append")
    other = pa.table({"a": ["x"], "b": [2]})
    write_deltalake(path, other, mode="overwrite", schema_mode="overwrite")
    source = el.delta(path, start=0, on_change="rows")
    with pytest.raises(SourceError, match=r"column 'a' .* another type in version 1.*start=1"):
        all_rows(source)
    write_deltalake(path, other.select(["a"]), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(SourceError, match=r"'b' .* is no longer there in version 2"):
        all_rows(el.delta(path, start=2, on_change="rows"))


EVERY = pa.table(
    {
        "bool": [True, None],
        "int8": pa.array([1, None], pa.int8()),
        "int16": pa.array([1, None], pa.int16()),
        "float": pa.array([1.5, None], pa.float32()),
        "dec": pa.array([Decimal("1.25"), None], pa.decimal128(9, 2)),
        "bin": [b"\x00\xff", None],
        "date": [date(1, 1, 1), None],
        "ts": pa.array([datetime(1, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        "ntz": pa.array([datetime(9999, 12, 31), None], pa.timestamp("us")),
        "text": ["ä", None],
    }
)


def test_every_type_of_value_and_of_partition(tmp_path):
    write_deltalake(tmp_path / "t", EVERY)
    source = el.delta(tmp_path / "t")
    assert source.ddl() == (
        "`bool` boolean, `int8` tinyint, `int16` smallint, `float` float, `dec` decimal(9,2), "
        "`bin` binary, `date` date, `ts` timestamp, `ntz` timestamp_ntz, `text` string"
    )
    assert all_rows(source, EVERY.schema).equals(EVERY)
    for name in set(EVERY.column_names) - {"bin"}:
        path = tmp_path / f"by {name}"
        table = EVERY.select([name]).append_column("id", pa.array([0, 1]))
        write_deltalake(path, table, partition_by=[name])
        for start in (None, 0):
            rows = all_rows(el.delta(path, start=start), table.schema)
            assert rows.sort_by("id").to_pydict() == table.to_pydict()


def test_large_files_are_read_in_parts(tmp_path, monkeypatch):
    ids = pa.table({"id": range(10_000), "p": ["a"] * 10_000}, SCHEMA)
    path = tmp_path / "t"
    write_deltalake(path, ids)
    (file,) = path.glob("*.parquet")
    pq.write_table(ids, file, row_group_size=1000)
    vector = deletion_vector([5, 1500, 9999])

    def change(action):
        if "add" in action:
            action["add"] |= {"deletionVector": vector, "size": file.stat().st_size}
        return with_features(action, "deletionVectors")

    change_actions(path, 0, change)
    monkeypatch.setattr("eddyline.sources.versions.SPLIT_BYTES", file.stat().st_size // 3)
    source = el.delta(path)
    assert len(source.splits(source.initial(), source.latest(None, None, None))) == 4
    assert all_rows(source)["id"].to_pylist() == [
        i for i in range(10_000) if i not in (5, 1500, 9999)
    ]


def test_small_files_share_a_split(tmp_path):
    for number in range(5):
        added(str(tmp_path), [number])
    source = el.delta(tmp_path, start=0)
    assert len(source.splits(source.initial(), source.latest(None, None, None))) == 1


def test_a_table_that_was_made_again_is_another_one(tmp_path):
    """Even if it has more versions than the one before had."""
    path = str(tmp_path / "t")
    added(path, [1])
    source, restarted = el.delta(path), el.delta(path)
    offset = source.latest(source.initial(), None, None)
    for n_versions in (2, 3):
        shutil.rmtree(path)
        for number in range(n_versions):
            added(path, [number])
        for reader in (source, restarted):
            with pytest.raises(SourceError, match="is another table than the one that was read"):
                reader.splits(offset, reader.latest(offset, None, None))


def test_storages_that_are_no_folders(tmp_path, monkeypatch):
    """The file system of deltalake reads and writes them; here it stands over a folder."""
    path = str(tmp_path / "t")

    def handled(root, storage):
        handler = DeltaStorageHandler(root, dict(storage) or None)
        return pa.fs.PyFileSystem(handler), ""

    added(path, range(3))
    monkeypatch.setattr(delta, "file_system", handled)
    source = el.delta(path, start="earliest")
    offset = source.initial()
    DeltaTable(path).optimize.compact()
    files = DeltaFiles(path, {}, ("p",))
    rows = pa.table({"id": [7, 8], "p": ["a b", None]}, SCHEMA)
    entries = [entry for entry, _ in files.write(rows)]
    adds = [AddAction(e.path, e.size, e.partition_values, 0, True, e.stats) for e in entries]
    DeltaTable(path).create_write_transaction(adds, "append", DeltaTable(path).schema(), ["p"])
    wanted = Counter({(7, "a b"): 1, (8, None): 1})
    total = rows_of(read(source, offset, source.latest(offset, None, None)))
    assert total == wanted + Counter((i, f"p {i % 2}") for i in range(3))
    files.remove(entries)
    with pytest.raises(SourceError, match="is gone"):
        read(source, offset, source.latest(offset, None, None))


# -- bad input ------------------------------------------------------------------------------------


def test_a_table_that_is_not_there(tmp_path):
    for path in (tmp_path / "none", tmp_path):
        source = el.delta(path)
        for ask in (source.ddl, source.initial, source.version):
            with pytest.raises(SourceError, match=rf"no Delta table at {path}; .*_delta_log"):
                ask()


def test_versions_that_are_gone_say_what_to_do(tmp_path):
    path = str(tmp_path / "t")
    for number in range(3):
        added(path, [number])
    DeltaTable(path).optimize.compact()
    offset = {"version": -1, "file": -1, "whole": False}
    source = el.delta(path)
    splits = source.splits(offset, {"version": 3, "file": -1, "whole": False})
    DeltaTable(path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(SourceError, match=r"vacuum has removed it.*deletedFileRetention"):
        [*source.read(splits[0], SCHEMA)]
    assert rows_of(all_rows(el.delta(path))) == version_rows(path, DeltaTable(path).version())
    DeltaTable(path).create_checkpoint()
    commit_file(path, 0).unlink()
    commit_file(path, 1).unlink()
    with pytest.raises(SourceError, match=r"version 0 of .* its log was cleaned up.*logRetention"):
        el.delta(path).splits(offset, {"version": 2, "file": -1, "whole": False})
    with pytest.raises(SourceError, match=r"version 1 of .* is gone"):
        el.delta(path, start=1).initial()
    with pytest.raises(SourceError, match=r"version 1 of"):
        el.delta(path).table_splits({"version": 1})


def test_a_version_to_come_cannot_be_the_start(tmp_path):
    added(str(tmp_path), [1])
    with pytest.raises(SourceError, match=r"start=7: the newest version of .* is 0"):
        el.delta(tmp_path, start=7).initial()


def test_a_damaged_file_is_named(tmp_path):
    added(str(tmp_path), [1])
    (file,) = tmp_path.glob("p=*/*.parquet")
    file.write_bytes(b"PAR1 and no more PAR1")
    with pytest.raises(SourceError, match=r"cannot read p=.*parquet of the Delta table"):
        all_rows(el.delta(tmp_path))


def test_features_and_types_that_are_not_read_are_refused(tmp_path):
    added(str(tmp_path), [1])
    added(str(tmp_path), [2])
    protocol = {"protocol": {"minReaderVersion": 3, "readerFeatures": ["someday", "v2Checkpoint"]}}
    write_actions(tmp_path, 1, [protocol, *actions(tmp_path, 1)])
    source = el.delta(tmp_path)
    source._known = 1
    with pytest.raises(SourceError, match=r"version 1 of .* does not read: someday$"):
        source.change(1)
    with pytest.raises(SourceError, match=r"column 'v' of .* has the type 'variant'"):
        source._type({"name": "v", "type": "variant"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_change": "skip"}, "'on_change' of delta is 'ignore'.*got 'skip'"),
        ({"max_per_batch": 0}, "'max_per_batch' is a number of rows from 1 on, got '0'"),
        ({"start": "yesterday"}, "'start' is 'latest', 'earliest', a version.*got 'yesterday'"),
        ({"start": -1}, "'start' is 'latest'"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(OptionError, match=message):
        el.delta("t", **options)


def test_unknown_options_and_paths():
    with pytest.raises(OptionError, match="did you mean 'start'"):
        source_of("delta", {"path": "t", "strat": "1"})
    with pytest.raises(OptionError, match="path of a Delta table is a text"):
        source_of("delta", {})


def test_secrets_are_not_shown(tmp_path):
    secret = "hunter2"
    source = el.delta(
        "s3://nowhere/t",
        storage={
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_ACCESS_KEY_ID": secret,
            "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
            "AWS_REGION": "eu",
        },
    )
    assert repr(source) == "<delta: path=s3://nowhere/t, …>"
    with pytest.raises(SourceError, match="s3://nowhere/t") as caught:
        source.initial()
    assert secret not in str(caught.value)
    assert secret not in repr(caught.value.facts)


def test_other_actions_bring_no_rows(tmp_path):
    """Properties of the table, transactions and constraints."""
    added(str(tmp_path), [1])
    table = DeltaTable(tmp_path)
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})
    added(str(tmp_path), [2], commit_properties=CommitProperties(custom_metadata={"a": "b"}))
    versions = [all_rows(el.delta(tmp_path, start=n)).num_rows for n in range(3)]
    assert [a - b for a, b in pairwise(versions)] == [1, 0]


def test_a_version_names_the_table_and_has_the_columns_of_its_time(tmp_path):
    added(tmp_path / "t", range(3))
    source = el.delta(tmp_path / "t")
    first = source.version()
    assert first["version"] == 0
    other = pa.table({"id": [7], "p": ["x"], "q": ["x"]})
    write_deltalake(tmp_path / "t", other, mode="overwrite", schema_mode="overwrite")
    assert source.version()["version"] == 1
    assert source.ddl(first) != source.ddl() == source.ddl(source.version())
    shutil.rmtree(tmp_path / "t")
    added(tmp_path / "t", range(5))
    again = source.version()
    assert again["version"] == 0
    assert again != first
    assert source.table_splits(again)
    with pytest.raises(SourceError, match="another table than the one that was read before"):
        source.table_splits(first)
