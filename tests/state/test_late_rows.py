from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import fs

from eddyline.state.late_rows import read_late, write_late
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
    late = str(tmp_path)
    bits = {pa.date32(): pa.int32(), pa.bool_(): pa.uint8()}.get(kind, kind)
    code = pa.scalar(value, kind).cast(bits).cast(pa.int64()).as_py()
    rows = Rows({3: np.array([code])}, np.array([7]), np.array([9]), pa.table({}))
    write_late(fs.LocalFileSystem(), late, 0, 0, "s", rows, [KeyColumn("k", 3, kind)])
    found = read_late(fs.LocalFileSystem(), late, "s", 0)
    assert found.column_names == ["k", "_time"]
    assert found["k"].to_pylist() == [value]
    assert found["_time"].cast(pa.int64()).to_pylist() == [7]


def test_late_rows_are_those_of_the_input_and_of_batches_that_count(tmp_path):
    files = fs.LocalFileSystem()
    times = np.array([1])
    for batch_id, name in ((0, "s"), (0, "a-s"), (3, "s")):
        payload = pa.table({"of": [f"{name} {batch_id}"]})
        write_late(files, str(tmp_path), batch_id, 0, name, Rows({}, times, times, payload))
    found = read_late(files, str(tmp_path), "s", until=2)
    assert found["of"].to_pylist() == ["s 0"]
    assert read_late(files, str(tmp_path), "t", until=2) is None
