from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import fs

from eddyline.state.late_rows import late_delays, late_rows, read_late, settle_late, write_late
from eddyline.state.manifest import ManifestFolder
from eddyline.state.rows import KeyColumn, Rows


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int8(), -128),
        (pa.int64(), -(2**63)),
        (pa.bool_(), True),
        (pa.date32(), dt.date(1, 1, 1)),
        (pa.timestamp("us"), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999)),
        (pa.timestamp("us", "UTC"), dt.datetime(1, 1, 1, tzinfo=dt.UTC)),
    ],
)
def test_codes_say_keys_that_late_rows_do_not_carry(tmp_path, kind, value):
    late = ManifestFolder(fs.LocalFileSystem(), str(tmp_path)).place("join")
    bits = {pa.date32(): pa.int32(), pa.bool_(): pa.uint8()}.get(kind, kind)
    code = pa.scalar(value, kind).cast(bits).cast(pa.int64()).as_py()
    rows = Rows({3: np.array([code])}, np.array([7]), np.array([9]), pa.table({}))
    write_late(late, 0, 0, "s", rows, [KeyColumn("k", 3, kind)])
    found = read_late(late, "s", 0)
    assert found.column_names == ["k", "_time"]
    assert found["k"].to_pylist() == [value]
    assert found["_time"].cast(pa.int64()).to_pylist() == [7]


def test_late_rows_are_those_of_the_input_and_of_batches_that_count(tmp_path):
    folder = ManifestFolder(fs.LocalFileSystem(), str(tmp_path))
    place, other = folder.place("join"), folder.place("join 2")
    times = np.array([1])
    for batch_id, name in ((0, "s"), (0, "a-s"), (3, "s")):
        payload = pa.table({"of": [f"{name} {batch_id}"]})
        write_late(place, batch_id, 0, name, Rows({}, times, times, payload))
    write_late(other, 0, 0, "s", Rows({}, times, times, pa.table({"of": ["another operator"]})))
    found = read_late(place, "s", until=2)
    assert found["of"].to_pylist() == ["s 0"]
    assert read_late(place, "t", until=2) is None


@pytest.mark.parametrize("n_rows", [0, 1])
def test_times_of_a_wall_clock_are_in_no_time_zone(tmp_path, n_rows):
    place = ManifestFolder(fs.LocalFileSystem(), str(tmp_path)).place("join")
    micros = np.array([1_700_000_000_000_000] * n_rows, np.int64)
    payload = pa.table({"v": pa.array([1] * n_rows, pa.int64())})
    write_late(place, 0, 0, "s" if n_rows else "other", Rows({}, micros, micros, payload))
    instants, readings = (
        late_rows(place, "s", 0, lambda: payload.schema, is_local=is_local)
        for is_local in (False, True)
    )
    assert instants.schema.field("_time").type == pa.timestamp("us", "UTC")
    assert readings.schema.field("_time").type == pa.timestamp("us")
    assert readings["_time"].cast(pa.int64()).to_pylist() == micros.tolist()


def test_files_that_a_failed_attempt_alone_has_written_go(tmp_path):
    place = ManifestFolder(fs.LocalFileSystem(), str(tmp_path)).place("join")
    times = np.array([1])
    rows = Rows({}, times, times, pa.table({"v": [1]}))
    write_late(place, 1, 0, "s", rows)
    stays, stale = (write_late(place, 2, bucket, "s", rows) for bucket in (0, 1))
    settle_late(place, 2, [stays])
    assert [each.name for each in Path(place.late).rglob("*.parquet")].count(stays) == 1
    assert not list(Path(place.late).rglob(stale))
    assert read_late(place, "s", until=2).num_rows == 2


def test_delays_are_those_behind_the_instant_of_each_batch(tmp_path):
    """Files of an earlier version do not know that instant, and tell no delay."""
    place = ManifestFolder(fs.LocalFileSystem(), str(tmp_path)).place("join")
    for batch_id, low in ((0, 100), (1, 250), (2, None)):
        times = np.array([40, 90], np.int64)
        rows = Rows({}, times, times, pa.table({"v": [1, 2]}))
        write_late(place, batch_id, 0, "s", rows, low=low)
    assert late_delays(place, "s", 1).tolist() == [10, 60, 160, 210]
    assert late_delays(place, "s", 2).tolist() == [10, 60, 160, 210]
    assert late_delays(place, "s", 0).tolist() == [10, 60]
    assert late_delays(place, "other", 2).tolist() == []
    assert read_late(place, "s", 2).num_rows == 6
