from __future__ import annotations

import numpy as np
import pytest

from eddyline.data import outcomes as codes
from eddyline.errors import PlanError
from eddyline.stats.attributes import AttributeSample, joined


def made(n_rows, start=0, names=("a", "b"), n_filters=3):
    rows = np.arange(start, start + n_rows)
    bits = (rows[:, None] >> np.arange(n_filters)) & 1 == 1
    values = rows[:, None] * 10.0 + np.arange(len(names))
    return AttributeSample(names, values, codes.pack(bits), rows + 1.0)


def same(left, right):
    assert left.attributes == right.attributes
    for name in ("values", "codes", "weights"):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name))


def test_empty_has_the_shape_of_what_comes():
    empty = AttributeSample.empty(["a", "b"], 9)
    assert (empty.n_rows, empty.attributes) == (0, ("a", "b"))
    assert empty.values.shape == (0, 2)
    assert empty.codes.shape == (0, 2)
    assert empty.bits(9).shape == (0, 9)
    same(joined([AttributeSample.empty(("a", "b"), 3), made(4)]), made(4))


def test_bits_are_those_that_were_packed():
    np.testing.assert_array_equal(made(6).bits(3)[5], [True, False, True])


@pytest.mark.parametrize("sizes", [[1], [2, 3], [0, 4, 0], [1, 1, 1, 7]])
def test_joined_keeps_the_order_of_arrival(sizes):
    starts = np.cumsum([0, *sizes])
    parts = [made(n, start) for n, start in zip(sizes, starts, strict=False)]
    same(joined(parts), made(sum(sizes)))


def test_joining_is_associative():
    a, b, c = made(2), made(3, 2), made(1, 5)
    same(joined([joined([a, b]), c]), joined([a, joined([b, c])]))


@pytest.mark.parametrize("n_rows", [0, 1, 4, 5, 6])
def test_last_keeps_the_newest(n_rows):
    kept = made(5).last(n_rows)
    assert kept.weights.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0][max(0, 5 - n_rows) :]
    same(kept, made(5).take(slice(max(0, 5 - n_rows), None)))


def test_slice_takes_a_range():
    same(made(9).take(slice(2, 5)), made(3, 2))


def test_of_chooses_and_fills_in():
    chosen = made(3).of(("b", "new", "a"))
    assert chosen.attributes == ("b", "new", "a")
    np.testing.assert_array_equal(chosen.values[:, 0], made(3).values[:, 1])
    np.testing.assert_array_equal(chosen.values[:, 2], made(3).values[:, 0])
    assert np.isnan(chosen.values[:, 1]).all()
    np.testing.assert_array_equal(chosen.weights, made(3).weights)
    assert made(3).of(()).values.shape == (3, 0)


def test_nothing_and_different_attributes_cannot_be_joined():
    with pytest.raises(PlanError, match="no samples"):
        joined([])
    with pytest.raises(PlanError, match="cannot join"):
        joined([made(2), made(2, names=("a", "c"))])


def test_inputs_stay_as_they_are():
    whole = made(6)
    before = whole.values.copy()
    other = whole.of(("a", "z"))
    other.values[:] = -1.0
    np.testing.assert_array_equal(whole.values, before)
