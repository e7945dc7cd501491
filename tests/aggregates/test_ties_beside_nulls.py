"""FIRST and LAST among entries of one instant, where one that does not count lies between them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from eddyline.aggregates.monoids import MONOIDS

AT = 1_600_000_000_000_000


@pytest.mark.parametrize(("name", "wanted"), [("first", [1, 1, 1]), ("last", [1, 1, 2])])
def test_ties_that_a_null_parts(name, wanted):
    kind = pa.struct([("t", pa.int64()), ("x", pa.int64())])
    column = pa.array([{"t": AT, "x": 1}, None, {"t": AT, "x": 2}], kind)
    lo, hi = np.zeros(3, np.int64), np.arange(1, 4)
    merged = MONOIDS[name].merge(column, lo, hi).to_pylist()
    assert [entry["x"] for entry in merged] == wanted
