from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyarrow import fs

from eddyline.joins.late import read_late, write_late
from eddyline.joins.rows import Rows


def test_late_rows_are_those_of_the_input_and_of_batches_that_count(tmp_path):
    files = fs.LocalFileSystem()
    times = np.array([1])
    for batch_id, name in ((0, "s"), (0, "a-s"), (3, "s")):
        payload = pa.table({"of": [f"{name} {batch_id}"]})
        write_late(files, str(tmp_path), batch_id, 0, name, Rows({}, times, times, payload))
    found = read_late(files, str(tmp_path), "s", until=2)
    assert found["of"].to_pylist() == ["s 0"]
    assert read_late(files, str(tmp_path), "t", until=2) is None
