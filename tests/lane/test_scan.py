"""A task of the lane reads the rows of files, whatever it is asked for, or says what is wrong."""

from __future__ import annotations

import datetime as dt
import decimal
import os
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.data.parquet_spans import Footer
from eddyline.errors import SourceError
from eddyline.lane import scan
from eddyline.lane.scan import FileColumn, Rows, ScannedFile, refusal, tasks_of

LONG, TEXT = FileColumn("n", "n", "bigint", pa.int64()), FileColumn("s", "s", "string", pa.string())
ABSENT = FileColumn("x", "x", "double", pa.float64())


def written(path, table, **options):
    pq.write_table(table, path, **options)
    return ScannedFile.from_footer(Footer.from_file(str(path)), [LONG, TEXT])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Three files of row groups of uneven sizes, one of them without rows."""
    folder = tmp_path_factory.mktemp("scan")
    rng = np.random.default_rng(5)
    made, start = [], 0
    for number, (n_rows, per_group) in enumerate([(10, 3), (0, 5), (23, 23)]):
        table = pa.table(
            {
                "s": pa.array(
                    [None if v == 3 else "é" * v for v in rng.integers(0, 5, n_rows).tolist()],
                    pa.string(),
                ),
                "n": pa.array(range(start, start + n_rows), pa.int64()),
            }
        )
        made.append(written(folder / f"{number}.parquet", table, row_group_size=per_group))
        start += n_rows
    return made


def splits_of(files):
    return [(file, group) for file in files for group in range(len(file.group_rows))]


def whole(files):
    tables = [pq.read_table(file.path, columns=["n", "s"]) for file in files]
    return pa.concat_tables(tables).combine_chunks()


def rows_of(files, *columns):
    return Rows(splits_of(files), columns, ignores_case=True)


@pytest.mark.parametrize("block", [1, 2, 7, 1000])
def test_blocks_are_all_rows_in_order(files, block, monkeypatch):
    monkeypatch.setattr(scan, "BLOCK_ROWS", block)
    blocks = list(rows_of(files, LONG, TEXT).blocks())
    assert max(len(each[0]) for each in blocks) <= block
    found = pa.concat_tables(pa.table([*each], names=["n", "s"]) for each in blocks)
    assert found.combine_chunks() == whole(files)


@given(
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=12),
    block=st.integers(1, 9),
)
def test_rows_are_taken_and_skipped_in_any_pieces(files, steps, block):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "BLOCK_ROWS", block)
        rows, at, true = rows_of(files, TEXT, LONG), 0, whole(files)
        for takes, n_rows in steps:
            n = min(n_rows, len(true) - at)
            if takes and n:
                taken = [*rows.take(n)]
                assert [len(columns[1]) for _, columns in taken] == [n for n, _ in taken]
                found = pa.concat_tables(pa.table(c, names=["s", "n"]) for _, c in taken)
                assert (
                    found.select(["n", "s"]).combine_chunks() == true.slice(at, n).combine_chunks()
                )
            else:
                rows.skip(n)
            at += n


def test_row_groups_that_are_skipped_are_not_read(files, monkeypatch):
    opened = []
    of_group = Rows._of_group
    monkeypatch.setattr(
        Rows, "_of_group", lambda self, *which: opened.append(which[1]) or of_group(self, *which)
    )
    rows = rows_of(files, LONG)
    rows.skip(7)  # two groups of three, and a row of the third
    ((n_rows, (found,)),) = rows.take(1)
    assert (n_rows, found.to_pylist()) == (1, [7])
    assert opened == [2]


def test_a_column_that_a_file_lacks_is_null(files):
    found = pa.chunked_array([column for _, (column,) in rows_of(files, ABSENT).take(4)])
    assert found.type == pa.float64()
    assert found.null_count == len(found) == 4


def test_no_column_at_all_has_rows(files):
    rows = rows_of(files)
    rows.skip(2)
    assert [*rows.take(5)] == [(1, []), (3, []), (1, [])]
    rows.skip(26)
    assert [*rows.take(9)] == []


def test_a_file_that_is_gone(tmp_path):
    file = written(tmp_path / "gone.parquet", pa.table({"n": [1]}))
    os.remove(file.path)
    with pytest.raises(SourceError, match=r"gone\.parquet was there when Spark listed it"):
        next(rows_of([file], LONG).take(1))


@pytest.mark.parametrize("n_rows", [1, 2])
def test_a_file_that_was_written_again(tmp_path, n_rows):
    file = written(tmp_path / "again.parquet", pa.table({"n": [1]}))
    written(tmp_path / "again.parquet", pa.table({"n": [2] * n_rows}))
    os.utime(file.path, ns=(file.changed_ns + 1, file.changed_ns + 1))
    with pytest.raises(SourceError, match=r"again\.parquet was written again"):
        next(rows_of([file], LONG).take(1))


def test_a_damaged_file(tmp_path):
    path = tmp_path / "bad.parquet"
    file = written(path, pa.table({"n": range(1000)}), compression="snappy")
    content = bytearray(path.read_bytes())
    content[4:400] = random.Random(3).randbytes(396)
    path.write_bytes(content)
    os.utime(path, ns=(file.changed_ns, file.changed_ns))
    with pytest.raises(SourceError, match=r"bad\.parquet cannot be read"):
        list(rows_of([file], LONG).take(1000))


def test_blocks_of_long_texts_have_fewer_rows(tmp_path, monkeypatch):
    texts = [f"{at:04}" * 250 for at in range(3_000)]
    file = written(tmp_path / "long.parquet", pa.table({"s": texts}), row_group_size=1_000)
    monkeypatch.setattr(scan, "BLOCK_BYTES", 100_000)
    blocks = [column for _, (column,) in rows_of([file], TEXT).take(3_000)]
    assert [text for block in blocks for text in block.to_pylist()] == texts
    assert len(blocks[0]) == 1_000  # nothing was known
    assert all(block.nbytes <= 2 * 100_000 for block in blocks[1:])


def test_a_footer_of_several_files_is_refused(tmp_path):
    table, parts = pa.table({"c": [1]}), []
    pq.write_table(table, tmp_path / "part.parquet", metadata_collector=parts)
    parts[0].set_file_path("part.parquet")
    pq.write_metadata(table.schema, tmp_path / "whole", metadata_collector=parts)
    assert refused(pq.read_metadata(tmp_path / "whole"), "bigint") == "a footer is of several files"


def test_categories_are_refused(tmp_path):
    table = pa.table({"c": pa.array(["a", "b"]).dictionary_encode(), "d": ["a", "b"]})
    footer = footer_of(tmp_path, table)
    assert "is a category" in refused(footer, "string")
    assert refused(footer, "string", "d") == ""


# -- tasks ----------------------------------------------------------------------------------------


@given(
    sizes=st.lists(st.lists(st.integers(0, 50), max_size=6), max_size=6),
    n_cores=st.integers(1, 5),
)
def test_each_row_group_is_in_one_task(sizes, n_cores):
    files = [
        ScannedFile(str(at), 0, 0, tuple(each), tuple(10 * n for n in each))
        for at, each in enumerate(sizes)
    ]
    tasks = tasks_of(files, n_cores)
    full = [(file, group) for file, group in splits_of(files) if file.group_rows[group]]
    assert [split for task in tasks for split in task] == full
    assert all(tasks)
    loads = [sum(f.group_bytes[g] for f, g in task) for task in tasks]
    largest = max((f.group_bytes[g] for f, g in full), default=0)
    assert max(loads, default=0) <= sum(loads) / n_cores + largest


def test_large_files_have_more_tasks_than_cores():
    file = ScannedFile("big", 0, 0, (1,) * 10, (scan.TASK_BYTES // 2,) * 10)
    assert len(tasks_of([file], 2)) == 5


# -- refusals -------------------------------------------------------------------------------------


def footer_of(tmp_path, table, **options):
    path = tmp_path / "one.parquet"
    pq.write_table(table, path, **options)
    return pq.read_metadata(path)


def refused(footer, kind, name="c", *, ignores_case=True, corrects_days=True):
    column = FileColumn(name, name, kind, pa.null())
    return refusal(footer, [column], ignores_case=ignores_case, corrects_days=corrects_days)


DAY = dt.date(2026, 1, 2)
READ = [
    ([True], pa.bool_(), "boolean"),
    ([1], pa.int8(), "tinyint"),
    ([1], pa.int16(), "smallint"),
    ([1], pa.int32(), "int"),
    ([1], pa.int64(), "bigint"),
    ([1.5], pa.float32(), "float"),
    ([1.5], pa.float64(), "double"),
    (["é"], pa.string(), "string"),
    (["é"], pa.large_string(), "string"),
    ([b"\x00"], pa.binary(), "binary"),
    ([DAY], pa.date32(), "date"),
    ([0], pa.timestamp("us", "UTC"), "timestamp"),
    ([0], pa.timestamp("ms", "Europe/Berlin"), "timestamp"),
    ([0], pa.timestamp("us"), "timestamp_ntz"),
    ([decimal.Decimal("1.20")], pa.decimal128(5, 2), "decimal(5,2)"),
    ([decimal.Decimal("1.20")], pa.decimal128(38, 10), "decimal(38,10)"),
]
NOT_READ = [
    ([1], pa.uint32(), "bigint"),
    ([1], pa.uint64(), "decimal(20,0)"),
    ([1], pa.int32(), "bigint"),
    ([1], pa.int8(), "int"),
    ([1.5], pa.float32(), "double"),
    ([1.5], pa.float16(), "float"),
    ([0], pa.timestamp("ns", "UTC"), "timestamp"),
    ([0], pa.timestamp("us"), "timestamp"),
    ([0], pa.timestamp("us", "UTC"), "timestamp_ntz"),
    ([b"x"], pa.binary(), "string"),
    (["x"], pa.string(), "binary"),
    ([decimal.Decimal("1.20")], pa.decimal128(5, 2), "decimal(6,2)"),
    ([decimal.Decimal("1.20")], pa.decimal128(5, 2), "decimal(5,1)"),
    ([1], pa.int64(), "decimal(18,0)"),
    ([0], pa.time64("us"), "bigint"),
    ([[1]], pa.list_(pa.int64()), "bigint"),
    ([{"a": 1}], pa.struct([("a", pa.int64())]), "bigint"),
    ([1], pa.int64(), "interval day to second"),
]


@pytest.mark.parametrize(("values", "stored", "kind"), READ)
def test_types_that_are_read(tmp_path, values, stored, kind):
    footer = footer_of(tmp_path, pa.table({"c": pa.array(values, stored)}))
    assert refused(footer, kind) == ""


@pytest.mark.parametrize(("values", "stored", "kind"), NOT_READ)
def test_types_that_are_refused(tmp_path, values, stored, kind):
    footer = footer_of(tmp_path, pa.table({"c": pa.array(values, stored)}))
    assert refused(footer, kind).startswith("'c'")


@pytest.mark.parametrize(
    ("version", "is_read"), [(None, False), ("3.0.3", False), ("3.1.1", True), ("4.3.0", True)]
)
def test_int96_is_read_where_spark_wrote_it(tmp_path, monkeypatch, version, is_read):
    said = {} if version is None else {"org.apache.spark.version": version}
    table = pa.table({"c": pa.array([0], pa.timestamp("us", "UTC"))}).replace_schema_metadata(said)
    footer = footer_of(tmp_path, table, use_deprecated_int96_timestamps=True)
    # Whoever wrote it has copied what Spark says: Spark writes by parquet-mr.
    assert "Julian" in refused(footer, "timestamp")
    monkeypatch.setattr(scan, "_WRITER", str(footer.created_by))
    assert (refused(footer, "timestamp") == "") is is_read
    assert "INT96" in refused(footer, "timestamp_ntz")


def test_names_that_differ_in_case(tmp_path):
    footer = footer_of(tmp_path, pa.table({"C": [1], "d": [1], "D": [1]}))
    assert refused(footer, "bigint") == ""
    assert refused(footer, "bigint", "d") == "a file has 2 columns called 'd'"
    assert refused(footer, "bigint", "d", ignores_case=False) == ""


def test_two_columns_of_one_name(tmp_path):
    footer = footer_of(tmp_path, pa.table([[1], [2]], names=["c", "c"]))
    assert refused(footer, "bigint", ignores_case=False) == "a file has 2 columns called 'c'"


def test_a_dot_may_be_of_a_name_or_of_a_nested_value(tmp_path):
    nested = pa.array([{"b": 1}], pa.struct([pa.field("b", pa.int64())]))
    assert "nested" in refused(footer_of(tmp_path, pa.table({"a": nested})), "bigint", "a")
    assert "nested" in refused(footer_of(tmp_path, pa.table({"a.b": [1]})), "bigint", "a.b")


def test_a_column_that_is_absent_is_no_reason(tmp_path):
    assert refused(footer_of(tmp_path, pa.table({"d": [1]})), "bigint") == ""


@pytest.mark.parametrize(
    ("said", "corrects", "is_read"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"org.apache.spark.version": "4.3.0"}, False, True),
        ({"org.apache.spark.version": "2.4.8"}, True, False),
        (
            {"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyDateTime": ""},
            True,
            False,
        ),
    ],
)
@pytest.mark.parametrize("stored", [pa.date32(), pa.timestamp("us", "UTC")])
def test_the_calendar_has_to_be_the_gregorian(tmp_path, said, corrects, is_read, stored):
    table = pa.table({"c": pa.array([0], stored)}).replace_schema_metadata(said)
    kind = "date" if stored == pa.date32() else "timestamp"
    why = refused(footer_of(tmp_path, table), kind, corrects_days=corrects)
    assert (why == "") is is_read
    assert is_read or "Julian" in why


def test_the_calendar_matters_to_days_alone(tmp_path):
    table = pa.table({"c": [1]}).replace_schema_metadata({"org.apache.spark.version": "2.4.8"})
    assert refused(footer_of(tmp_path, table), "bigint") == ""
