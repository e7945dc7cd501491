"""Ranges that values are said to be in: read, and rows outside counted once in any batches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.errors import OptionError
from eddyline.models.fitting.bounds import assumed_in_words, common_range, n_outside, read_ranges
from eddyline.models.solving.expressions import Range
from eddyline.models.streams.plan import StreamInput, StreamPlan
from tests.models.batches import DECLARED, FIT, INPUT, SHAPE, coded, reported, rows_of, table_of

VALUES = st.one_of(st.none(), st.sampled_from([-1.0, 0.0, 2.0, 5.0, np.inf, -np.inf, np.nan, 7.5]))


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        (3, "two ends for each attribute"),
        ({"x": 3}, "two finite numbers"),
        ({"x": (3, 1)}, "two finite numbers"),
        ({"x": (0, float("inf"))}, "two finite numbers"),
        ({"x": (0, True)}, "two finite numbers"),
        ({"x": (0, 1, 2)}, "two finite numbers"),
        ({"d(x)": (0, 1)}, "lacks that of 'x'"),
        ({3: (0, 1)}, "attribute in ranges"),
    ],
)
def test_what_is_no_range_is_refused(ranges, message):
    with pytest.raises(OptionError, match=message):
        read_ranges(ranges)


def test_ranges_of_values_and_of_how_fast_they_change():
    found = read_ranges({"x": (0, 100), " D( x ) ": (-3, 2), "y": [1, 1]})
    assert found["x"] == Range(0, 100, 3)
    assert found["y"][:2] == (1, 1)
    assert assumed_in_words(found) == "; x from 0 to 100, y from 1 to 1 is assumed"
    assert assumed_in_words({}) == ""
    with pytest.raises(OptionError, match=r"lacks that of 'd\(y\)'"):
        read_ranges({"x": (0, 100), "d(x)": (-3, 2), "y": (1, 1)}, by_pace=True)


def test_of_two_ranges_both_hold():
    assert common_range(Range(0, 10, 2), Range(5, 20), "x") == Range(5, 10, 2)
    with pytest.raises(OptionError, match="'x' is said to be x from 0 to 1, and x from 2 to 3"):
        common_range(Range(0, 1), Range(2, 3), "x")


@given(st.lists(st.tuples(VALUES, VALUES), max_size=8))
def test_rows_outside_are_counted_as_one_by_one(rows):
    assumed = {"x": Range(0.0, 5.0), "y": Range(-2.0, 2.0)}

    def is_out(value, known):
        return value is not None and np.isfinite(value) and not known.low <= value <= known.high

    wanted = sum(any(is_out(*pair) for pair in zip(row, assumed.values(), strict=True))
                 for row in rows)  # fmt: skip
    columns = [pa.array(list(each), pa.float64()) for each in zip(*rows, strict=True)] or [
        pa.array([], pa.float64())
    ] * 2
    plain = pa.table(dict(zip("xy", columns, strict=True)))
    assert n_outside(plain, assumed) == wanted
    lists = [[None if v is None else [v, 3.0] for v in each.to_pylist()] for each in columns]
    of_models = {
        name: pa.array(each, pa.list_(pa.float64())) for name, each in zip("xy", lists, strict=True)
    }
    assert n_outside(pa.table(of_models), assumed) == wanted


@pytest.mark.parametrize("maker", [FIT, DECLARED], ids=["fit", "declared"])
@pytest.mark.parametrize("cuts", [[], [7], [3, 20, 21, 50]])
def test_a_row_outside_counts_once_in_any_batches(maker, cuts):
    assumed = {"x": Range(-1.0, 1.0), "y": Range(-0.5, 3.0)}
    table = coded(table_of(rows_of(4, 60), maker)).sort_by("ts")
    plan = StreamPlan((StreamInput(replace(maker, assumed=assumed), SHAPE),), INPUT)
    reports, _ = reported(plan, table, cuts)
    n = sum(each.fit.n_outside for each in reports)
    assert n == n_outside(table, assumed) > 10
