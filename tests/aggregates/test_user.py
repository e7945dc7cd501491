from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.aggregates.functions import Aggregate, UserMonoid
from eddyline.errors import OptionError, PlanError
from tests.aggregates.slow import by_range, cuts, ranges, sliced


class Joined(Aggregate):
    """Texts one behind the other: the order counts."""

    def __init__(self):
        self.calls, self.seen = 0, set()

    def lift(self, texts):
        return texts

    def combine(self, one, other):
        self.calls += 1
        assert one.null_count == other.null_count == 0
        made = pc.binary_join_element_wise(one, other, "")
        self.seen |= set(made.to_pylist())
        return made


class Span(Aggregate):
    """Greatest less least number, of structs."""

    def lift(self, values):
        return pa.StructArray.from_arrays(
            [values, values], ["low", "high"], mask=pc.is_null(values)
        )

    def combine(self, one, other):
        low = pc.min_element_wise(one.field(0), other.field(0))
        high = pc.max_element_wise(one.field(1), other.field(1))
        return pa.StructArray.from_arrays([low, high], ["low", "high"])

    def lower(self, partials):
        return pc.subtract(partials.field(1), partials.field(0))


class Added(Aggregate):
    """Numbers that can be taken away again."""

    def lift(self, values):
        return values

    def combine(self, one, other):
        return pc.add(one, other)

    def inverse(self, whole, before):
        return pc.subtract(whole, before)


NUMBERS = st.lists(st.none() | st.integers(-50, 50), max_size=40)


@given(st.data())
def test_order_is_kept_and_only_what_is_in_ranges_is_combined(data):
    values = data.draw(st.lists(st.none() | st.sampled_from("abcdefgh"), max_size=40))
    lo, hi = data.draw(ranges(len(values)))
    aggregate = Joined()
    found = UserMonoid(aggregate).value(sliced(data.draw, values, pa.string()), lo, hi)
    expected = by_range(values, lo, hi, "".join)
    assert found.to_pylist() == expected
    assert all(any(each in (text or "") for text in expected) for each in aggregate.seen)
    assert aggregate.calls <= 2 * 7


@pytest.mark.parametrize("cls", [Span, Added])
@given(data=st.data())
def test_values_of_ranges(cls, data):
    values = data.draw(NUMBERS)
    lo, hi = data.draw(ranges(len(values)))
    monoid = UserMonoid(cls())
    column = monoid.lifted([sliced(data.draw, values, pa.int64())])
    expected = by_range(values, lo, hi, sum if cls is Added else lambda own: max(own) - min(own))
    assert monoid.value(column, lo, hi).to_pylist() == expected
    assert monoid.merge(column, lo, hi).type == column.type


@pytest.mark.parametrize("cls", [Span, Added])
@given(data=st.data())
def test_cells_of_cells(cls, data):
    values = data.draw(NUMBERS)
    monoid = UserMonoid(cls())
    column = monoid.lifted([pa.array(values, pa.int64())])
    lo, hi = data.draw(cuts(len(values)))
    merged = monoid.merge(column, lo, hi)
    found = monoid.value(merged, np.array([0]), np.array([lo.size]))
    assert found.equals(monoid.value(column, np.array([0]), np.array([len(values)])))


def test_groups_do_not_meet_where_sums_are_taken_away():
    found = UserMonoid(Added())
    most = 2**62
    column = pa.array([most, 1, most, 2, most, 3])  # three of one group would not fit
    lo, hi = np.array([0, 1, 2, 3, 4, 5]), np.array([2, 2, 4, 4, 6, 6])
    assert found.value(column, lo, hi).to_pylist() == [most + 1, 1, most + 2, 2, most + 3, 3]


class Wrong(Added):
    inverse = None

    def __init__(self, method, gives):
        self.method, self.gives = method, gives

    def lift(self, values):
        return self.gives if self.method == "lift" else values

    def combine(self, one, other):
        return self.gives if self.method == "combine" else pc.add(one, other)

    def lower(self, partials):
        return self.gives if self.method == "lower" else partials


@pytest.mark.parametrize(
    ("method", "gives", "said"),
    [
        ("lift", [1, 2], "lift of the aggregate Wrong returns a list; it has to"),
        ("lift", pa.array([1]), "lift of the aggregate Wrong returns 1 values for 2"),
        ("combine", pa.array([1, 2]), "combine of the aggregate Wrong returns 2 values for 1"),
        ("combine", pa.array([1.0]), "returns double, but partials are int64; cast"),
        ("combine", pa.array([None], pa.int64()), "returns NULL for partials that are not"),
        ("lower", None, "lower of the aggregate Wrong returns a NoneType"),
        ("lower", pa.array([], pa.int64()), "returns 0 values for 1"),
    ],
)
def test_what_a_method_must_not_return(method, gives, said):
    monoid = UserMonoid(Wrong(method, gives))
    with pytest.raises(PlanError, match=said):
        monoid.value(monoid.lifted([pa.array([1, 2])]), np.array([0]), np.array([2]))


def test_an_aggregate_without_combine():
    class Half:
        def lift(self, values):
            return values

    with pytest.raises(OptionError, match="the aggregate Half has no method 'combine'"):
        UserMonoid(Half())


def test_calls_grow_with_the_logarithm():
    aggregate = Joined()
    column = pa.array(["a"] * 1000)
    lo = np.maximum(np.arange(1000) - 100, 0)
    UserMonoid(aggregate).value(column, lo, np.arange(1, 1001))
    assert aggregate.calls <= 14
