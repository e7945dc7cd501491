"""Products stand for the combinations of a join: at each instant they say the same."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.joins.graph import JoinGraph
from eddyline.joins.operator.pipeline import results
from eddyline.joins.operator.products import results_as_products
from eddyline.joins.orders.pipelines import written_orders
from eddyline.joins.plan import JoinWork, ProductCounts, ProductPlan
from eddyline.query.query import Products, SummedColumn
from eddyline.state.rows import FOREVER, Rows, SortedRun

LAST_INSTANT = 14
SUMS = (
    SummedColumn("n_0", "s", "v", is_count=True),
    SummedColumn("sum_1", "s", "v", is_count=False),
    SummedColumn("sum_2", "t", "v", is_count=False),
    SummedColumn("n_3", "t", "w", is_count=True),
)
FIELDS = ["n", *(each.field for each in SUMS)]


def plan_of(names, groups=(), keys=None, *, is_on=True):
    asked = Products(dict.fromkeys(names, "ts"), "s" if groups else "", groups, SUMS)
    return ProductPlan(asked, keys or {}, is_on=is_on)


@st.composite
def rows_of(draw, length):
    n = draw(st.integers(1, 9))
    integers = st.lists(st.integers(0, 9), min_size=n, max_size=n)
    starts = np.sort(np.array(draw(integers), np.int64))
    keys = np.array([key % 3 for key in draw(integers)], np.int64)
    ends = np.full(n, FOREVER) if length is None else starts + length
    numbers = [None if value == 9 else value - 4 for value in draw(integers)]
    payload = pa.table(
        {
            "ts": pa.array(starts).cast(pa.timestamp("us", "UTC")),
            "k": keys.astype(str).tolist(),
            "v": pa.array(numbers, pa.int32()),
            "w": pa.array([None if value == 2 else "w" for value in draw(integers)], pa.string()),
            "g": pa.array([(None, "a", "b")[value % 3] for value in draw(integers)], pa.string()),
        }
    )
    return Rows({0: keys}, starts, ends, payload)


@st.composite
def worlds(draw):
    """Inputs in an order, the runs before a batch, and the new rows of some inputs."""
    names = draw(st.sampled_from([("s", "t"), ("t", "s"), ("s", "t", "u")]))
    lengths = {name: draw(st.sampled_from([0, 1, 4])) for name in names}
    lengths[draw(st.sampled_from(names))] = draw(st.sampled_from([2, None]))
    if None in lengths.values() and len(names) == 2:
        lengths["s" if lengths["s"] is not None else "t"] = 3
    made = {
        name: [
            SortedRun.from_rows(draw(rows_of(lengths[name])))
            for _ in range(draw(st.integers(1, 3)))
        ]
        for name in names
    }
    news = {name: runs.pop() for name, runs in made.items() if draw(st.booleans())}
    return names, made, news


def combinations(names, windows, news):
    graph = JoinGraph(names, (frozenset(names),))
    return results(graph, written_orders(graph), windows, news, JoinWork())


def answers(names, windows, news, plan):
    graph, counts = JoinGraph(names, (frozenset(names),)), ProductCounts()
    found = combinations(names, windows, news)
    tables = [*results_as_products(plan, graph, windows, news, found, counts)]
    return tables, counts


def at_instants(tables, groups):
    """By instant and group: what all products that are there say, and which sums have a row."""
    sums = defaultdict(Counter)
    for row in (row for table in tables for row in table.to_pylist()):
        first = row["_start"]
        last = int(row["__product.last"].timestamp() * 1_000_000)
        assert {int(row[f"{name}.ts"].timestamp() * 1e6) for name in "st"} == {first}
        for instant in range(first, min(last, LAST_INSTANT) + 1):
            there = sums[(instant, *(row[f"s.{name}"] for name in groups))]
            for field in FIELDS:
                value = row[f"__product.{field}"]
                there[field] += value or 0
                there[f"{field} is there"] += value is not None
    return {
        key: {name: bool(n) if "there" in name else n for name, n in there.items()}
        for key, there in sums.items()
    }


@given(world=worlds(), groups=st.sampled_from([(), ("g",), ("k", "g")]), has_keys=st.booleans())
def test_products_say_what_combinations_do_at_each_instant(world, groups, has_keys):
    names = world[0]
    plan = plan_of(names, groups, dict.fromkeys(names, "k") if has_keys else {})
    tables, counts = answers(*world, plan)
    pairs, of_pairs = answers(*world, plan_of(names, groups, is_on=False))
    # The event times of combinations are those of their rows.
    pairs = [as_first(table, names) for table in pairs]
    assert at_instants(tables, groups) == at_instants(pairs, groups)
    n_pairs = sum(table.num_rows for table in pairs)
    assert counts.n_combinations == of_pairs.n_combinations == n_pairs
    assert counts.n_products == sum(table.num_rows for table in tables)


def as_first(table, names):
    first = table["_start"].cast(pa.timestamp("us", "UTC"))
    for name in names:
        table = table.set_column(table.schema.get_field_index(f"{name}.ts"), f"{name}.ts", first)
    return table


def many(n_rows, key="a", value=1):
    starts = np.arange(n_rows)
    payload = {
        "ts": pa.array(starts).cast(pa.timestamp("us", "UTC")),
        "k": [key] * n_rows,
        "v": pa.array([value] * n_rows, pa.int64()),
        "w": ["w"] * n_rows,
        "g": ["a"] * n_rows,
    }
    return SortedRun.from_rows(Rows({0: starts * 0}, starts, starts + 10_000, pa.table(payload)))


def test_many_rows_of_a_key_are_few_products():
    windows, news = {"s": [many(500)], "t": [many(400)]}, {"s": many(300)}
    tables, counts = answers(("s", "t"), windows, news, plan_of("st"))
    assert counts.n_combinations == 300 * 400
    assert counts.n_products == sum(table.num_rows for table in tables) <= 2 * (300 + 400)
    _, foreseen = answers(("s", "t"), windows, news, plan_of("st", is_on=False))
    assert counts.n_products <= foreseen.n_products == 2 * (300 + 400)


@pytest.mark.parametrize(
    ("windows", "keys"),
    [
        ({"s": [many(2)], "t": [many(2, value=2**62)]}, {}),
        ({"s": [many(2)], "t": [many(2, key="of another")]}, {"s": "k", "t": "k"}),
    ],
)
def test_combinations_are_given_where_a_sum_may_be_too_great_or_codes_are_not_keys(windows, keys):
    news = {"s": many(3)}
    tables, _ = answers(("s", "t"), windows, news, plan_of("st", keys=keys))
    assert sum(table.num_rows for table in tables) == 3 * 2
    assert {n for table in tables for n in table["__product.n"].to_pylist()} == {1}


def test_few_combinations_are_not_counted_as_products():
    windows, news = {"s": [], "t": [many(1)]}, {"s": many(4)}
    _, counts = answers(("s", "t"), windows, news, plan_of("st", is_on=False))
    assert (counts.n_combinations, counts.n_products) == (4, 4)
