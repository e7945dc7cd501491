from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.errors import PlanError
from eddyline.routing.partitions import Partition
from eddyline.routing.table import MAX_GROUPS, RouteTable
from tests.routing import cuts

CUT = Partition("light", "ranges", (500.0,))


@given(cuts.tables(), st.data())
def test_group_of_equals_a_slow_look_up(table, data):
    rows = data.draw(cuts.rows(len(table.partitions)))
    found = table.group_of(rows)
    assert found.dtype == np.uint8
    assert found.tolist() == [cuts.slow_group(table, row) for row in rows]


@given(cuts.tables(), st.data())
def test_compact_changes_no_route(table, data):
    rows = data.draw(cuts.rows(len(table.partitions)))
    small = table.compact()
    columns = [table.attributes.index(name) for name in small.attributes]
    before = [table.orders[group] for group in table.group_of(rows)]
    after = [small.orders[group] for group in small.group_of(rows[:, columns])]
    assert after == before
    assert small.orders[0] == table.orders[0]
    assert small.n_classes <= table.n_classes
    assert small.compact() == small


@given(cuts.tables())
def test_state_and_pickle_keep_everything(table):
    state = json.loads(json.dumps(table.to_state(), allow_nan=False))
    again = RouteTable.from_state(state)
    assert again == table
    assert hash(again) == hash(table)
    copied = pickle.loads(pickle.dumps(table))
    assert copied == table
    np.testing.assert_array_equal(copied._lookup, table._lookup)


@given(cuts.tables(n_filters=3), st.data())
def test_any_table_keeps_the_rows_of_the_conjunction(table, data):
    rows = data.draw(cuts.rows(len(table.partitions)))
    bits = st.lists(st.booleans(), min_size=3, max_size=3)
    drops = np.array(data.draw(st.lists(bits, min_size=len(rows), max_size=len(rows))), dtype=bool)
    drops = drops.reshape(-1, 3)
    kept = []
    group = table.group_of(rows)
    for g, order in enumerate(table.orders):
        index = np.flatnonzero(group == g)
        for f in order:
            index = index[~drops[index, f]]
        kept += index.tolist()
    assert sorted(kept) == [row for row in range(len(rows)) if not any(drops[row])]


@pytest.mark.parametrize(
    ("orders", "groups"),
    [
        (((0, 1), (0, 0)), (0, 1, 0)),
        (((0, 1), (0,)), (0, 1, 0)),
        (((1, 2), (2, 1)), (0, 1, 0)),
        ((), (0, 0, 0)),
        (((0, 1),), (0, 0)),
        (((0, 1),), (0, 1, 0)),
        (((0, 1),), (0, -1, 0)),
        (((0, 1),) * (MAX_GROUPS + 1), (0, 0, 0)),
    ],
)
def test_what_is_no_table(orders, groups):
    with pytest.raises(PlanError):
        RouteTable((CUT,), orders, groups)


def test_compact_drops_what_makes_no_difference():
    cut = Partition("a", "ranges", (1.0, 2.0, 3.0))
    same = Partition("b", "values", (0.0,))
    groups = tuple(group for group in (0, 0, 1, 0, 0) for _ in range(3))
    table = RouteTable((cut, same), ((0, 1), (1, 0)), groups).compact()
    assert table.attributes == ("a",)
    assert table.partitions[0].points == (2.0, 3.0)
    assert table.orders == ((0, 1), (1, 0))
    assert table.groups == (0, 1, 0, 0)


def test_a_table_without_differences_has_no_attribute():
    table = RouteTable((CUT,), ((0, 1),), (0, 0, 0)).compact()
    assert (table.partitions, table.groups, table.n_groups) == ((), (0,), 1)
    assert table.group_of(np.zeros((3, 0))).tolist() == [0, 0, 0]
    assert table.conditions([]) == []


def test_classes_follow_another_default_or_keep_their_order():
    table = RouteTable((CUT,), ((0, 1), (1, 0), (0, 1)), (0, 1, 2))
    assert table.orders == ((0, 1), (1, 0), (0, 1))
    assert table.with_default((0, 1)) is table
    other = table.with_default((1, 0))
    rows = np.array([[3.0], [500.0], [np.nan]])
    before = [table.orders[group] for group in table.group_of(rows)]
    after = [other.orders[group] for group in other.group_of(rows)]
    assert before == [(0, 1), (1, 0), (0, 1)]
    assert after == [(1, 0), (1, 0), (0, 1)]
    assert other.compact() == other
    with pytest.raises(PlanError):
        table.with_default((0, 0))


def test_words_of_two_attributes():
    other = Partition("sensor", "values", (3.0, 7.0))
    groups = [0] * 12
    groups[4 + 0] = groups[4 + 1] = groups[8 + 3] = 1
    table = RouteTable((CUT, other), ((0, 1), (1, 0)), tuple(groups))
    assert table.rows_in_words() == [
        "other rows",
        "(500 <= light) and (sensor in (3, 7)); (light is NULL) and (sensor is NULL)",
    ]


def test_words_say_what_values_stand_for():
    city = Partition("city", "values", (17.0, 42.0))
    table = RouteTable((city,), ((0, 1), (1, 0), (0, 1)), (1, 1, 2, 0))
    assert table.rows_in_words({"city": {42.0: "Lima"}, "other": {17.0: "no"}}) == [
        "other rows",
        "city in (17, Lima)",
        "city not in (17, Lima)",
    ]


def test_three_attributes_of_ten_thousand_rows_in_a_moment():
    rng = np.random.default_rng(0)
    cuts_ = [Partition(n, "ranges", tuple(np.arange(1, 24) / 24)) for n in "abc"]
    table = RouteTable(tuple(cuts_), ((0, 1), (1, 0)), tuple(rng.integers(0, 2, 25**3).tolist()))
    rows = rng.random((10_000, 3))
    groups = table.group_of(rows)
    assert groups.mean() == pytest.approx(0.5, abs=0.05)
