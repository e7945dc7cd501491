"""Places of rows in streams and groups."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import fs

from eddyline.state.row_windows import (
    Arrivals,
    group_codes,
    read_groups,
    stream_order,
    write_groups,
)
from eddyline.state.rows import FOREVER

NAN = float("nan")

ASCENDING = [
    (pa.int64(), [None, -5, 0, 7]),
    (pa.float64(), [None, float("-inf"), -0.5, 0.0, 2.5, float("inf"), NAN]),
    (pa.float32(), [None, -1.0, 3.0, NAN]),
    (pa.string(), [None, "", "A", "Z", "a", "ä", "\U0001f600"]),
    (pa.binary(), [None, b"", b"\x00", b"a", b"\xff"]),
    (pa.bool_(), [None, False, True]),
    (pa.date32(), [None, dt.date(1, 1, 1), dt.date(2026, 1, 1)]),
    (pa.decimal128(38, 2), [None, Decimal("-1.5"), Decimal("0"), Decimal("10000000000.25")]),
    (pa.timestamp("us", "UTC"), [None, dt.datetime(1900, 1, 1), dt.datetime(2026, 1, 1)]),
]


@pytest.mark.parametrize(("kind", "values"), ASCENDING, ids=lambda of: str(of)[:20])
def test_rows_of_one_instant_are_in_the_order_of_their_contents(kind, values):
    rng = np.random.default_rng(1)
    shuffled = rng.permutation(len(values))
    first = pa.array(["x"] * len(values))
    contents = pa.table([first, pa.array(values, kind).take(pa.array(shuffled))], names=["a", "b"])
    order = stream_order(np.full(len(values), 3), contents)
    assert shuffled[order].tolist() == list(range(len(values)))


def test_time_counts_before_contents_and_the_first_column_before_the_second():
    contents = pa.table({"a": [2, 1, None, 2, 1], "b": [1, 9, 5, 0, 8]})
    assert stream_order(np.array([1, 1, 1, 1, 0]), contents).tolist() == [4, 2, 1, 3, 0]


@pytest.mark.parametrize(
    ("kind", "values", "codes"),
    [
        (pa.float64(), [0.0, -0.0, NAN, -NAN, None, None, 1.0], [0, 0, 1, 1, 2, 2, 3]),
        (pa.float32(), [NAN, 1.5, NAN, None], [0, 1, 0, 2]),
        (pa.string(), ["a", None, "", "a", None], [0, 1, 2, 0, 1]),
    ],
)
def test_groups_are_equal_where_all_columns_are(kind, values, codes):
    column = pa.chunked_array([pa.array(values, kind)])
    assert group_codes([column], len(values)).tolist() == codes
    other = pa.chunked_array([pa.array(range(len(values)))])
    assert len(set(group_codes([column, other], len(values)).tolist())) == len(values)
    assert group_codes([], 3).tolist() == [0, 0, 0]


def test_ends_are_known_when_so_many_have_come(tmp_path):
    first = Arrivals.from_rows(
        None, 2, np.array([1, 2, 2, 5]), pa.table({"g": ["a", "b", "a", "a"]})
    )
    assert first.ends(first.group, first.rank).tolist() == [4, FOREVER, FOREVER, FOREVER]
    at = fs.LocalFileSystem(), str(tmp_path)
    groups = read_groups(*at, write_groups(*at, first.groups))
    then = Arrivals.from_rows(groups, 2, np.array([7, 8, 9]), pa.table({"g": ["c", "b", "a"]}))
    assert then.ends(first.group[1:], first.rank[1:]).tolist() == [FOREVER, 8, FOREVER]
    only_b = then.groups.only([first.group[1:2]])
    assert only_b.values["g"].to_pylist() == ["b"]
    # The place of a group that went is free, and its count starts again.
    last = Arrivals.from_rows(only_b, 2, np.array([10, 11, 11]), pa.table({"g": ["a", "b", "a"]}))
    assert sorted(last.groups.ids.tolist()) == [0, 1]
    assert last.rank.tolist() == [0, 2, 1]
    assert last.ends(first.group[1:2], first.rank[1:2]).tolist() == [10]
