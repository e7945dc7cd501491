"""What Parquet files say of instants is what is in them."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.data import parquet_spans
from eddyline.data.parquet_spans import ParquetFiles, Span

T0 = 1_700_000_000_000_000
FORMS = {
    "us": ("us", {}),
    "ms": ("ms", {}),
    "s": ("s", {}),
    "int96": ("us", {"use_deprecated_int96_timestamps": True}),
    "no statistics": ("us", {"write_statistics": False}),
    "plain": ("us", {"use_dictionary": False, "data_page_version": "2.0"}),
}


def written(path, seconds, form="us", *, zone="UTC", group=3, t0=T0):
    """Write a file of instants, None where there is none; returns it."""
    unit, how = FORMS[form]
    micros = [None if each is None else t0 + each * 1_000_000 for each in seconds]
    instants = pa.array(micros, pa.timestamp("us", zone)).cast(pa.timestamp(unit, zone))
    table = pa.table({"n": pa.array(range(len(seconds))), "ts": instants})
    pq.write_table(table, path, row_group_size=group, **how)
    return str(path)


def expected(*seconds):
    own = [T0 + each * 1_000_000 for each in seconds if each is not None]
    return Span(len(seconds), len(own), min(own, default=None), max(own, default=None))


@given(
    files=st.lists(
        st.tuples(
            st.lists(st.none() | st.integers(0, 10**6), max_size=12), st.sampled_from([*FORMS])
        ),
        max_size=3,
    )
)
def test_spans_are_those_of_all_rows(tmp_path_factory, files):
    folder = tmp_path_factory.mktemp("spans")
    paths = [
        written(folder / f"{number}.parquet", seconds, form)
        for number, (seconds, form) in enumerate(files)
    ]
    of = ParquetFiles(tuple(paths))
    every = [each for seconds, _ in files for each in seconds]
    assert of.n_rows == len(every)
    assert of.span("ts") == expected(*every)


@pytest.mark.parametrize("form", FORMS)
def test_columns_are_read_only_where_footers_say_nothing(tmp_path, monkeypatch, form):
    path = written(tmp_path / "a.parquet", [3, None, 1, 2], form)
    monkeypatch.setattr(parquet_spans, "MOST_ROWS_READ", 3)
    says = form not in ("int96", "no statistics")
    assert ParquetFiles((path,)).span("ts") == (expected(3, None, 1, 2) if says else None)


def test_rows_that_are_read_are_counted_over_all_files(tmp_path, monkeypatch):
    paths = tuple(written(tmp_path / f"{n}.parquet", [n, n], "int96") for n in range(3))
    monkeypatch.setattr(parquet_spans, "MOST_ROWS_READ", 5)
    assert ParquetFiles(paths[:2]).span("ts") == expected(0, 0, 1, 1)
    assert ParquetFiles(paths).span("ts") is None


@pytest.mark.parametrize("form", ["us", "int96", "no statistics"])
def test_instants_before_1900_are_not_told(tmp_path, form):
    first = int(dt.datetime(1900, 1, 1, tzinfo=dt.UTC).timestamp()) * 1_000_000
    path = written(tmp_path / "a.parquet", [0, 5], form, t0=first)
    assert ParquetFiles((path,)).span("ts") == Span(2, 2, first, first + 5_000_000)
    path = written(tmp_path / "a.parquet", [-1, 5], form, t0=first)
    assert ParquetFiles((path,)).span("ts") is None


@pytest.mark.parametrize("how", [{}, {"write_statistics": False}])
@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2], pa.timestamp("us")),  # of no time zone
        pa.array([1, 2], pa.timestamp("ns", "UTC")),
        pa.array([1, 2], pa.int64()),
        pa.array(["a", "b"]),
        pa.array([dt.date(2026, 1, 1), None]),
        pa.array([{"ts": 1}, {"ts": 2}], pa.struct({"ts": pa.timestamp("us", "UTC")})),
        pa.array([[1], [2]], pa.list_(pa.timestamp("us", "UTC"))),
    ],
    ids=str,
)
def test_other_columns_have_no_span(tmp_path, column, how):
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"ts": column}), path, **how)
    of = ParquetFiles((path,))
    assert (of.n_rows, of.span("ts"), of.span("TS"), of.span("other")) == (2, None, None, None)


def test_names_that_occur_twice_and_with_dots(tmp_path):
    instants = pa.array(np.array([1, 2]), pa.timestamp("us", "UTC"))
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table([instants, instants, instants], ["ts", "ts", "a.b"]), path)
    of = ParquetFiles((path,))
    assert of.span("ts") is None
    assert of.span("a.b") == Span(2, 2, 1, 2)


def test_one_file_that_says_nothing_is_enough(tmp_path):
    known = written(tmp_path / "a.parquet", [1])
    local = written(tmp_path / "b.parquet", [2], zone=None)
    assert ParquetFiles((known, local)).span("ts") is None


def test_files_without_rows(tmp_path):
    path = written(tmp_path / "a.parquet", [])
    assert ParquetFiles((path,)).span("ts") == Span()
    assert ParquetFiles(()).span("ts") == Span()


def test_files_that_are_none(tmp_path):
    known = written(tmp_path / "known.parquet", [1])
    (tmp_path / "a.parquet").write_bytes(b"no parquet")
    for name, error in (("a", pa.ArrowInvalid), ("b", FileNotFoundError)):
        of = ParquetFiles((known, str(tmp_path / f"{name}.parquet")))
        for _ in range(2):
            with pytest.raises(error):
                _ = of.n_rows
            with pytest.raises(error):
                of.span("ts")


def test_values_of_folders_are_not_those_of_files(tmp_path):
    for name in ("ts=2026-01-01 00%3A00%3A00", "TS=1"):
        folder = tmp_path / name
        folder.mkdir()
        of = ParquetFiles((written(folder / "a.parquet", [1]),))
        assert (of.n_rows, of.span("ts"), of.span("n")) == (1, None, None)
    folder = tmp_path / "its=1"
    folder.mkdir()
    assert ParquetFiles((written(folder / "a.parquet", [1]),)).span("ts") == expected(1)
