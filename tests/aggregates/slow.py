"""Columns and ranges of entries at random, and what monoids give of them, entry by entry."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from pyarrow import fs

from eddyline.state.manifest import StatePlace


def place_in(folder):
    """Return a place for the files of buckets."""
    place = StatePlace(fs.LocalFileSystem(), str(folder), "q")
    place.files.create_dir(place.runs)
    return place


NUMBERS = [0.0, -0.0, 1.5, -2.25, 1e300, -1e300, 1e-9, math.inf, -math.inf, math.nan]
TIMES = [dt.datetime(1970, 1, 1), dt.datetime(2024, 3, 31, 2, 30), dt.datetime(1890, 5, 5)]
TEXTS = ["", "a", "a\0", "b", "é", "abcdefgh", "abcdefghi", "abcdefghia", "zz", "\U0001f600"]

VALUES = {
    pa.int8(): st.integers(-3, 3),
    pa.int32(): st.integers(-(2**20), 2**20) | st.integers(-2, 2),
    pa.int64(): st.integers(-(2**50), 2**50) | st.integers(-2, 2),
    pa.float32(): st.sampled_from([0.0, -0.0, 1.5, -2.25, math.inf, math.nan]),
    pa.float64(): st.sampled_from(NUMBERS),
    pa.decimal128(10, 2): st.integers(-(10**9), 10**9).map(lambda n: Decimal(n).scaleb(-2)),
    pa.decimal128(38, 4): st.integers(-(10**30), 10**30).map(lambda n: Decimal(n).scaleb(-4)),
    pa.string(): st.sampled_from(TEXTS),
    pa.large_string(): st.sampled_from(TEXTS),
    pa.binary(): st.sampled_from([each.encode() for each in TEXTS]) | st.binary(max_size=3),
    pa.bool_(): st.booleans(),
    pa.date32(): st.sampled_from([each.date() for each in TIMES]),
    pa.timestamp("us"): st.sampled_from(TIMES),
    pa.duration("us"): st.integers(-5, 5).map(lambda n: dt.timedelta(seconds=n)),
    pa.struct([("a", pa.int32()), ("b", pa.string())]): st.fixed_dictionaries(
        {"a": st.none() | st.integers(0, 2), "b": st.none() | st.sampled_from(TEXTS)}
    ),
    pa.list_(pa.float64()): st.lists(st.none() | st.sampled_from(NUMBERS), max_size=3),
}
"""Values of types that sort."""


@st.composite
def columns(draw, kinds, most=25):
    """Return a column of one of the types, with NULL, as a slice of an array, and its values."""
    kind = draw(st.sampled_from(kinds))
    values = draw(st.lists(st.none() | VALUES[kind], max_size=most))
    return sliced(draw, values, kind), values


def sliced(draw, values, kind):
    """Return values as an array that starts anywhere in its buffers."""
    head = draw(st.sampled_from([[], values[:1], values[:3]]))
    return pa.array([*head, *values, *head], kind).slice(len(head), len(values))


@st.composite
def ranges(draw, n, most=12):
    """Return ranges of n entries in ascending order at both ends, empty and jumping ones too."""
    size = draw(st.integers(0, most))
    ends = [sorted(draw(st.lists(st.integers(0, n), min_size=size, max_size=size))) for _ in "ab"]
    lo = np.array([min(pair) for pair in zip(*ends, strict=True)], np.int64)
    hi = np.array([max(pair) for pair in zip(*ends, strict=True)], np.int64)
    return lo, hi


@st.composite
def cuts(draw, n):
    """Return disjoint ranges that cover n entries."""
    edges = sorted({0, n, *draw(st.lists(st.integers(0, n), max_size=6))})
    pairs = list(pairwise(edges))
    return np.array([a for a, _ in pairs], np.int64), np.array([b for _, b in pairs], np.int64)


def by_range(values, lo, hi, combine):
    """Return what a function makes of the values in each range that are there, None of none."""
    found = []
    for start, stop in zip(lo, hi, strict=True):
        own = [each for each in values[start:stop] if each is not None]
        found.append(combine(own) if own else None)
    return found


def sort_key(value):
    """Return what sorts as Spark sorts a value, -0.0 before 0.0."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (2,) if math.isnan(value) else (1, value, math.copysign(1, value))
    if isinstance(value, str):
        return (1, value.encode())
    if isinstance(value, dict):
        return (1, *(sort_key(value[name]) for name in sorted(value)))
    if isinstance(value, list):
        return (1, [sort_key(each) for each in value])
    return (1, value)


def same(found, expected, rel=0.0):
    """Assert that values are equal: NaN to itself, -0.0 not to 0.0, floats within a tolerance."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        if isinstance(one, float) and isinstance(other, float) and rel:
            assert (math.isnan(one) and math.isnan(other)) or math.isclose(
                one, other, rel_tol=rel, abs_tol=1e-290
            ), (one, other)
        else:
            assert sort_key(one) == sort_key(other), (one, other)
