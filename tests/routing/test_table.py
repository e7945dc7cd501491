"""Bins and tables: in NumPy, in SQL and in words, against slow look-ups."""

from __future__ import annotations

import json
import math
import pickle

import duckdb
import numpy as np
import pyarrow as pa
import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st

from eddyline.errors import PlanError
from eddyline.routing.table import MAX_GROUPS, Partition, RouteTable, choose_partition, literal
from tests.examples import examples

EDGES = (
    float("-inf"), -1.7976931348623157e308, -1e300, -3.0, -1.5, -5e-324, -0.0, 0.0, 5e-324, 0.1,
    1.0, 2.0, 24.0, 2.0**52, 2.0**53, 2.0**53 + 2, 1e17, 1e300, float("inf"), float("nan"),
)  # fmt: skip
"""Doubles that are easily put in a wrong bin."""

values = st.sampled_from(EDGES) | st.floats(width=64)
points = st.sets(
    (st.sampled_from(EDGES) | st.floats()).filter(lambda x: not math.isnan(x)), max_size=6
).map(lambda found: tuple(sorted({x + 0.0 for x in found})))


def partitions(name: str = "a") -> st.SearchStrategy[Partition]:
    return st.one_of(
        points.map(lambda found: Partition(name, "values", found)),
        points.map(lambda found: Partition(name, "ranges", found)),
        st.integers(1, 6).map(lambda n: Partition(name, "hash", n_hash=n)),
    )


@st.composite
def tables(draw, n_filters: int = 3) -> RouteTable:
    part = draw(partitions())
    orders = draw(st.lists(st.permutations(range(n_filters)).map(tuple), min_size=1, max_size=4))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    groups = rng.integers(0, len(orders), part.n_bins)
    return RouteTable(part, tuple(orders), tuple(groups.tolist()))


def columns(max_rows: int = 30) -> st.SearchStrategy[np.ndarray]:
    return st.lists(values, max_size=max_rows).map(lambda cells: np.array(cells, dtype=np.float64))


def slow_bin(part: Partition, value: float) -> int:
    if math.isnan(value):
        return part.n_bins - 1
    if part.kind == "hash":
        return int(min(abs(value), 2.0**53)) % part.n_hash
    if part.kind == "ranges":
        return sum(point <= value for point in part.points)
    return next((b for b, point in enumerate(part.points) if point == value), len(part.points))


def slow_group(table: RouteTable, value: float) -> int:
    return table.groups[slow_bin(table.partition, float(value))]


# -- bins --------------------------------------------------------------------------------------


@given(partitions(), columns())
def test_bins_equal_the_slow_oracle(part, column):
    found = part.bins(column)
    assert found.dtype == np.intp
    assert found.tolist() == [slow_bin(part, float(x)) for x in column]


@given(partitions())
def test_state_and_pickle_keep_a_partition(part):
    state = json.loads(json.dumps(part.to_state(), allow_nan=False))
    assert Partition.from_state(state) == part
    assert pickle.loads(pickle.dumps(part)) == part
    assert hash(Partition.from_state(state)) == hash(part)


@given(partitions(), st.sets(st.integers(0, 8)))
def test_any_bins_have_words(part, bins):
    words = part.words(bins)
    assert "a" in words
    assert words.endswith("is NULL") == (part.n_bins - 1 in bins)


@pytest.mark.parametrize(
    ("part", "bins", "words"),
    [
        (Partition("a", "ranges", (1.0, 2.0, 3.0)), {0, 1, 3}, "a < 2 or 3 <= a"),
        (Partition("a", "ranges", (1.0, 2.0, 3.0)), {1, 2}, "1 <= a < 3"),
        (Partition("a", "ranges", (1.0,)), {0, 1, 2}, "any a or a is NULL"),
        (Partition("a", "values", (1.0, 2.0)), {1}, "a = 2"),
        (Partition("a", "values", (1.0, 2.0)), {0, 2}, "a not in (2)"),
        (Partition("a", "hash", n_hash=5), {0, 4, 5}, "a hashes to 0, 4 of 5 or a is NULL"),
        (Partition("a", "ranges"), set(), "no a"),
    ],
)
def test_words(part, bins, words):
    assert part.words(bins) == words


def test_bins_reads_strided_input_without_changing_it():
    matrix = np.arange(40.0).reshape(10, 4)
    before = matrix.copy()
    part = Partition("a", "ranges", (9.0, 17.0))
    assert part.bins(matrix[:, 1]).tolist() == [0, 0, 1, 1, 2, 2, 2, 2, 2, 2]
    np.testing.assert_array_equal(matrix, before)


@pytest.mark.parametrize(
    "given_",
    [
        ("ranges", (1.0, 1.0), 0),
        ("ranges", (2.0, 1.0), 0),
        ("values", (float("nan"),), 0),
        ("values", (1.0, float("nan")), 0),
        ("values", (float("nan"), 1.0), 0),
        ("hash", (), 0),
        ("hash", (), -1),
        ("hash", (1.0,), 4),
        ("ranges", (), 4),
        ("other", (), 0),
        ("ranges", tuple(range(255)), 0),
    ],
)
def test_what_is_no_partition(given_):
    with pytest.raises(PlanError, match="no partition"):
        Partition("a", *given_)


@pytest.mark.parametrize(
    ("value", "sql"),
    [
        (1.5, "1.5D"),
        (-1.0, "-1.0D"),
        (1e300, "1e+300D"),
        (float("inf"), "CAST('Infinity' AS DOUBLE)"),
        (float("-inf"), "CAST('-Infinity' AS DOUBLE)"),
    ],
)
def test_literals(value, sql):
    assert literal(value) == sql


# -- choosing ------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("kind", ["number", "category"])
@pytest.mark.parametrize(
    ("values", "why"),
    [
        (np.zeros(0), "always NULL"),
        (np.full(50, np.nan), "always NULL"),
        (np.full(50, 7.0), "constant"),
    ],
)
def test_attributes_that_say_nothing_are_left_out(kind, values, why):
    assert choose_partition("a", kind, values) == why


@pytest.mark.parametrize(
    "values",
    [
        np.arange(1000.0),
        -np.arange(1000.0),
        np.repeat(np.arange(100.0), 10),
        1e9 + np.arange(1000.0) * 30 + RNG.normal(0, 200, 1000),
        np.where(RNG.random(1000) < 0.1, np.nan, np.arange(1000.0)),
        np.exp(np.arange(1000.0) / 2),
        np.where(np.arange(1000) < 500, -np.inf, np.inf),
        np.linspace(-8e307, 8e307, 1000) + RNG.normal(0, 1e304, 1000),
    ],
)
def test_numbers_that_follow_time_are_left_out(values):
    assert choose_partition("a", "number", values) == "follows the order of arrival"


@pytest.mark.parametrize(
    "values",
    [
        RNG.choice([1e308, -1e308, 1.0], 1000),
        RNG.choice([5e-324, -5e-324], 1000),
        RNG.choice([np.inf, -np.inf, 0.0], 1000),
        1e9 + RNG.choice([0.0, 1e-6], 1000),
    ],
)
def test_numbers_at_the_ends_of_what_a_double_holds(values):
    part = choose_partition("a", "number", values)
    assert part == Partition("a", "values", tuple(np.unique(values)))


def test_a_number_that_comes_round_again_is_not_left_out():
    part = choose_partition("a", "number", np.tile(np.arange(1.0, 55.0), 20))
    assert part == Partition("a", "values", tuple(np.arange(1.0, 55.0)))


def test_constant_with_nulls_tells_null_from_the_rest():
    part = choose_partition("a", "number", np.array([3.0, np.nan] * 20))
    assert part == Partition("a", "values", (3.0,))


def test_few_values_get_a_bin_each_and_zero_has_no_sign():
    part = choose_partition("a", "category", np.array([-0.0, 1.0, 0.0, 1.0] * 20))
    assert part == Partition("a", "values", (0.0, 1.0))
    assert str(part.points[0]) == "0.0"


def test_texts_that_nearly_never_repeat_are_left_out():
    values = RNG.permutation(2.0**50 + np.arange(1000))
    assert choose_partition("a", "category", values) == "nearly every row has another value"


def test_continuous_numbers_are_cut_into_equal_parts():
    values = RNG.lognormal(0.0, 3.0, 4800)
    part = choose_partition("a", "number", values)
    assert part.kind == "ranges"
    assert part.n_bins == 25
    assert np.bincount(part.bins(values), minlength=25).tolist() == [200] * 24 + [0]


def test_a_value_that_takes_half_of_the_rows_leaves_the_other_bins_as_they_are():
    values = np.where(RNG.random(4800) < 0.5, 0.0, RNG.random(4800) + 1.0)
    part = choose_partition("a", "number", values)
    shares = np.bincount(part.bins(values)) / 4800
    assert part.kind == "ranges"
    assert shares[0] == pytest.approx(0.5, abs=0.05)
    assert shares[1:].max() < 0.06


def test_many_valued_categories_keep_the_frequent_values_or_are_hashed():
    rare = 1000.0 + RNG.integers(0, 400, 4800)
    frequent = np.where(RNG.random(4800) < 0.7, RNG.integers(0, 3, 4800), rare)
    kept = choose_partition("a", "category", frequent)
    assert kept.kind == "values"
    assert {0.0, 1.0, 2.0} <= set(kept.points)
    assert len(kept.points) == 23
    assert choose_partition("a", "category", rare) == Partition("a", "hash", n_hash=24)


def test_a_hundred_thousand_values():
    values = RNG.integers(0, 100_000, 5000).astype(float)
    assert choose_partition("a", "category", values) == "nearly every row has another value"
    assert choose_partition("a", "number", values).n_bins == 25


def test_small_samples_get_few_bins():
    part = choose_partition("a", "number", RNG.random(50))
    assert part.kind == "ranges"
    assert part.n_bins <= 50 // 8 + 1


@given(
    st.sampled_from(["number", "category"]),
    st.lists(values, max_size=60).map(lambda cells: np.array(cells, dtype=np.float64)),
    st.integers(2, 30),
)
def test_any_sample_gives_a_partition_or_a_reason(kind, values, n_bins):
    found = choose_partition("a", kind, values, n_bins)
    if isinstance(found, str):
        assert found
    else:
        assert found.bins(values).min(initial=0) >= 0
        assert len(set(found.bins(values).tolist())) > 1


# -- tables ------------------------------------------------------------------------------------

CUT = Partition("light", "ranges", (500.0,))


@given(tables(), st.data())
def test_group_of_equals_a_slow_look_up(table, data):
    column = data.draw(columns())
    found = table.group_of(column)
    assert found.dtype == np.uint8
    assert found.tolist() == [slow_group(table, value) for value in column]


@given(tables(), st.data())
def test_compact_changes_no_route(table, data):
    column = data.draw(columns())
    small = table.compact()
    before = [table.orders[group] for group in table.group_of(column)]
    after = [small.orders[group] for group in small.group_of(column)]
    assert after == before
    assert small.orders[0] == table.orders[0]
    assert len(small.groups) <= len(table.groups)
    assert small.compact() == small


@given(tables())
def test_state_and_pickle_keep_a_table(table):
    state = json.loads(json.dumps(table.to_state(), allow_nan=False))
    again = RouteTable.from_state(state)
    assert again == table
    assert hash(again) == hash(table)
    copied = pickle.loads(pickle.dumps(table))
    assert copied == table
    np.testing.assert_array_equal(copied._lookup, table._lookup)


@given(tables(n_filters=3), st.data())
def test_any_table_keeps_the_rows_of_the_conjunction(table, data):
    column = data.draw(columns())
    bits, n_rows = st.lists(st.booleans(), min_size=3, max_size=3), len(column)
    drops = np.array(data.draw(st.lists(bits, min_size=n_rows, max_size=n_rows)), dtype=bool)
    drops = drops.reshape(-1, 3)
    kept = []
    group = table.group_of(column)
    for g, order in enumerate(table.orders):
        index = np.flatnonzero(group == g)
        for f in order:
            index = index[~drops[index, f]]
        kept += index.tolist()
    assert sorted(kept) == [row for row in range(n_rows) if not any(drops[row])]


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
        RouteTable(CUT, orders, groups)


def test_compact_drops_what_makes_no_difference():
    cut = Partition("a", "ranges", (1.0, 2.0, 3.0))
    table = RouteTable(cut, ((0, 1), (1, 0)), (0, 0, 1, 0, 0)).compact()
    assert table.partition.points == (2.0, 3.0)
    assert table.groups == (0, 1, 0, 0)


def test_compact_keeps_no_order_that_no_class_takes():
    table = RouteTable(CUT, ((0, 1), (0, 1), (1, 0)), (0, 2, 2)).compact()
    assert (table.orders, table.groups) == (((0, 1), (1, 0)), (0, 1, 1))


def test_a_table_without_differences_has_one_bin_beside_null():
    table = RouteTable(CUT, ((0, 1),), (0, 0, 0)).compact()
    assert (table.partition.points, table.groups, table.n_groups) == ((), (0, 0), 1)
    assert table.group_of(np.zeros(3)).tolist() == [0, 0, 0]
    assert table.conditions("light") == []


def test_classes_follow_another_default_or_keep_their_order():
    table = RouteTable(CUT, ((0, 1), (1, 0), (0, 1)), (0, 1, 2))
    assert table.orders == ((0, 1), (1, 0), (0, 1))
    assert table.with_default((0, 1)) is table
    other = table.with_default((1, 0))
    rows = np.array([3.0, 500.0, np.nan])
    before = [table.orders[group] for group in table.group_of(rows)]
    after = [other.orders[group] for group in other.group_of(rows)]
    assert before == [(0, 1), (1, 0), (0, 1)]
    assert after == [(1, 0), (1, 0), (0, 1)]
    assert other.compact() == other
    with pytest.raises(PlanError):
        table.with_default((0, 0))


def test_words_of_several_ranges_and_of_null():
    cut = Partition("light", "ranges", (10.0, 500.0))
    table = RouteTable(cut, ((0, 1), (1, 0), (0, 1)), (1, 0, 1, 2))
    assert table.rows_in_words() == [
        "other rows",
        "light < 10 or 500 <= light",
        "light is NULL",
    ]


def test_words_of_every_value_but_null():
    table = RouteTable(CUT, ((0, 1), (1, 0)), (1, 1, 0))
    assert table.rows_in_words() == ["other rows", "any light"]


def test_words_say_what_values_stand_for():
    city = Partition("city", "values", (17.0, 42.0))
    table = RouteTable(city, ((0, 1), (1, 0), (0, 1)), (1, 1, 2, 0))
    assert table.rows_in_words({42.0: "Lima"}) == [
        "other rows",
        "city in (17, Lima)",
        "city not in (17, Lima)",
    ]


# -- SQL ---------------------------------------------------------------------------------------

VALUES = [*EDGES, None, 23.999999999999996, 4503599627370497.0, -1e-310]

PARTITIONS = [
    Partition("a", "ranges", (-1.5, 0.0, 5e-324, 0.1, 1e300)),
    Partition("a", "ranges", (float("-inf"), -1.7976931348623157e308, 2.0**53, float("inf"))),
    Partition("a", "ranges"),
    Partition("a", "values", (float("-inf"), -3.0, 0.0, 0.1, 2.0**53, float("inf"))),
    Partition("a", "values"),
    Partition("a", "hash", n_hash=24),
    Partition("a", "hash", n_hash=1),
]


def run_on_duckdb(sqls: list[str], column: np.ndarray) -> list[list[object]]:
    # DuckDB writes no D behind a double; a text is cast to the nearest double
    frame = pa.table({"row": np.arange(len(column)), "a": pa.array(column, from_pandas=False)})
    selected = ", ".join(
        sqlglot.transpile(sql, read="spark", write="duckdb")[0] + f" AS x{number}"
        for number, sql in enumerate(sqls)
    )
    connection = duckdb.connect()
    connection.register("frame", frame)
    rows = connection.execute(f"SELECT {selected} FROM frame ORDER BY row").fetchall()
    return [list(results) for results in zip(*rows, strict=True)]


@examples(25)
@given(tables(), columns(max_rows=10))
def test_conditions_hold_for_exactly_the_rows_of_their_group(table, column):
    if len(column) == 0 or table.n_groups == 1:
        return
    conditions = run_on_duckdb(table.conditions("a"), column)
    for group, holds in enumerate(conditions, start=1):
        assert holds == [slow_group(table, value) == group for value in column]


@examples(25)
@given(partitions(), columns(max_rows=10))
def test_sql_cuts_bins_as_numpy_does(part, column):
    if len(column):
        bins = range(part.n_bins)
        found = run_on_duckdb([part.condition("a", {b}) for b in bins], column)
        for b, holds in zip(bins, found, strict=True):
            assert [each is True for each in holds] == (part.bins(column) == b).tolist()


@pytest.mark.large
@pytest.mark.spark
@pytest.mark.parametrize("part", PARTITIONS)
def test_spark_cuts_bins_as_numpy_does(spark, part):
    frame = spark.createDataFrame([(i, x) for i, x in enumerate(VALUES)], "i int, a double")
    conditions = [part.condition("a", {b}) for b in range(part.n_bins)]
    told = [*conditions, part.condition("a", []), part.condition("a", range(99))]
    found = frame.orderBy("i").selectExpr(*told).collect()
    values = np.array([np.nan if x is None else x for x in VALUES])
    bins = part.bins(values).tolist()
    for number in range(part.n_bins):
        assert [row[number] is True for row in found] == [b == number for b in bins]
    assert {row[-2] for row in found} == {False}


@pytest.mark.large
@pytest.mark.spark
@pytest.mark.parametrize("part", PARTITIONS)
def test_spark_parts_the_rows_of_a_table(spark, part):
    groups = tuple((bin_ * 7 + 1) % 3 for bin_ in range(part.n_bins))
    table = RouteTable(part, ((0, 1, 2), (1, 0, 2), (2, 1, 0)), groups)
    frame = spark.createDataFrame([(i, x) for i, x in enumerate(VALUES)], "i int, a double")
    rows = frame.orderBy("i").selectExpr(*table.conditions("a")).collect()
    values = np.array([np.nan if x is None else x for x in VALUES])
    assert [(row[0], row[1]) for row in rows] == [
        (group == 1, group == 2) for group in table.group_of(values).tolist()
    ]
