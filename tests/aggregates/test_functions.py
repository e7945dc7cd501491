"""Functions of cells and of rows give what Spark's own aggregates give, and are of their types."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from eddyline.aggregates.functions import AGGREGATES, function_of, number_type
from eddyline.aggregates.monoids import MONOIDS
from eddyline.data.arrays import whole
from eddyline.errors import QueryError
from tests.aggregates.slow import same

N_GROUPS, N_ROWS = 12, 900

TYPES = {
    "i": pa.int32(),
    "b": pa.int64(),
    "d": pa.float64(),
    "f": pa.float32(),
    "m": pa.decimal128(10, 2),
    "w": pa.decimal128(38, 18),
    "s": pa.string(),
    "n": pa.binary(),
    "y": pa.bool_(),
    "a": pa.date32(),
    "z": pa.timestamp("us", "UTC"),
    "l": pa.list_(pa.int32()),
}
NUMBERS = "ibdfmw"

CALLS = [
    ("count", [], False),
    ("count", ["i", "d"], False),
    ("count", ["s", "y"], True),
    ("count", ["i", "b", "d"], True),
    *((name, [x], False) for name in ("count", "min", "max", "first", "last") for x in TYPES),
    *(("count", [x], True) for x in TYPES),
    *(
        (name, [x], is_distinct)
        for name in ("sum", "avg")
        for x in NUMBERS
        for is_distinct in (0, 1)
    ),
    *(
        (name, [x], False)
        for name in ("var_pop", "var_samp", "stddev_pop", "stddev_samp")
        for x in "idm"
    ),
    *((name, ["y"], False) for name in ("count_if", "every", "some")),
    *((name, ["e", "b"], False) for name in ("covar_pop", "covar_samp", "corr")),
    *((name, ["s", "e"], False) for name in ("min_by", "max_by")),
    *((name, [x, "true"], False) for name in ("first", "last") for x in "idsl"),
]


def rows(rng):
    """Return rows of groups and cells, some of which have no value, one or infinities."""
    group = rng.integers(0, N_GROUPS, N_ROWS)
    time = rng.integers(0, 10_000, N_ROWS)
    whole = rng.integers(-1000, 1000, N_ROWS)
    wide = [Decimal(int(each)).scaleb(-18) for each in rng.integers(-(2**62), 2**62, N_ROWS)]
    near = rng.normal(1e6, 1.0, N_ROWS)
    numbers = np.where(rng.random(N_ROWS) < 0.02, rng.choice([np.nan, np.inf], N_ROWS), near)
    numbers = np.where((group > 3) & (group < 8), near, numbers)
    columns = {
        "i": whole,
        "b": rng.integers(-(10**12), 10**12, N_ROWS),
        "d": np.where(group < 10, numbers, rng.choice([0.0, -0.0], N_ROWS)),
        "f": near.astype(np.float32),
        "m": [Decimal(int(each)).scaleb(-2) for each in whole],
        "w": wide,
        "s": [f"text {each % 40}" for each in whole],
        "n": [str(each % 40).encode() for each in whole],
        "y": whole > 0,
        "a": [dt.date(2024, 1, 1) + dt.timedelta(days=int(each)) for each in whole],
        "z": [dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=int(x)) for x in whole],
        "l": [[int(each), None] for each in whole],
    }
    is_null = rng.random(N_ROWS) < np.where(group == 0, 1.0, np.where(group == 1, 0.9, 0.1))
    made = {name: pa.array(columns[name], TYPES[name], mask=is_null) for name in TYPES}
    made |= {"e": pa.array(rng.normal(size=N_ROWS), mask=rng.random(N_ROWS) < 0.1), "d": made["d"]}
    return pa.table({"g": group, "cell": time // 1000, "t": time, **made})


@pytest.fixture(scope="module")
def given(spark):
    table = rows(np.random.default_rng(7))
    spark.createDataFrame(table).createOrReplaceTempView("aggregated")
    return spark.table("aggregated")


class Made:
    """The SQL of a call, with its columns named by its number."""

    def __init__(self, number, call, df, by_row=False):
        name, arguments, is_distinct = call
        asked = function_of(name, len(arguments), is_distinct=bool(is_distinct))
        self.function = asked.by_row if by_row and asked.by_row else asked
        self.arguments, self.number = arguments, number
        kind = df.select(arguments[0]).schema[0].dataType.simpleString() if arguments else ""
        self.lifts = self.function.lifts(arguments, time="t", number=number_type(kind))
        self.monoids = [MONOIDS[each.monoid] for each in self.function.partials]
        self.names = [f"c{number}_{at}" for at in range(len(self.lifts))]
        self.reference = asked.reference_of(arguments, time="t")

    def cells(self):
        return [
            f"{monoid.reduce_sql.format(x=lift)} AS {name}"
            for monoid, lift, name in zip(self.monoids, self.lifts, self.names, strict=True)
        ]

    def of_rows(self, types):
        return [
            f"{monoid.lift_sql.format(x=f'({lift})', type=types.get(name, ''))} AS {name}"
            for monoid, lift, name in zip(self.monoids, self.lifts, self.names, strict=True)
        ]

    def final(self, kind):
        value = self.function.final_of(self.names, self.arguments)
        return f"CAST({value} AS {kind}) AS v{self.number}"


def combined(table, calls):
    """Return what the monoids make of all entries of each group, which are sorted by time."""
    groups = table["g"].to_numpy()
    known = np.unique(groups)
    lo, hi = np.searchsorted(groups, known), np.searchsorted(groups, known, side="right")
    columns = {"g": pa.array(known)}
    for call in calls:
        for monoid, name in zip(call.monoids, call.names, strict=True):
            columns[name] = monoid.value(whole(table[name]), lo, hi)
    return pa.table(columns)


def finals(spark, table, calls, expected):
    kinds = {field.name: field.dataType.simpleString() for field in expected.schema}
    df = spark.createDataFrame(table)
    found = df.selectExpr("g", *(call.final(kinds[f"v{call.number}"]) for call in calls))
    return found.toArrow().sort_by("g")


def of_spark(spark, calls, view="aggregated"):
    """Return what Spark's own aggregates give by group, and the cells of calls."""
    references = ", ".join(f"{each.reference} AS v{each.number}" for each in calls)
    partials = ", ".join(text for each in calls for text in each.cells())
    return (
        spark.sql(f"SELECT g, {references} FROM {view} GROUP BY g ORDER BY g"),
        spark.sql(f"SELECT g, cell, {partials} FROM {view} GROUP BY g, cell ORDER BY g, cell"),
    )


def compare(found, expected, calls):
    for call in calls:
        name = f"v{call.number}"
        assert found[name].type == expected[name].type, call.reference
        one, other = (normal(each[name].to_pylist()) for each in (found, expected))
        try:
            same(one, other, rel=1e-9)
        except AssertionError as error:
            error.add_note(call.reference)
            raise


def normal(values):
    """-0.0 as 0.0, which Spark's own aggregates take for equal."""
    return [each + 0.0 if isinstance(each, float) else each for each in values]


@pytest.mark.large
@pytest.mark.spark
def test_functions_give_what_spark_gives(spark, given):
    calls = [Made(number, call, given) for number, call in enumerate(CALLS)]
    expected, cells = of_spark(spark, calls)
    wanted = expected.toArrow()
    types = {field.name: field.dataType.simpleString() for field in cells.schema}
    compare(finals(spark, combined(cells.toArrow(), calls), calls, expected), wanted, calls)
    lifted = given.orderBy("g", "t").selectExpr(
        "g", *(text for call in calls for text in call.of_rows(types))
    )
    kinds = {field.name: field.dataType.simpleString() for field in lifted.schema}
    assert {name: kinds[name] for name in kinds if name != "g"} == {
        name: types[name] for name in types if name not in ("g", "cell")
    }
    compare(finals(spark, combined(lifted.toArrow(), calls), calls, expected), wanted, calls)


QUANTILES = [
    (name, [x, frac], False)
    for name in ("percentile", "approx_percentile")
    for x in "idm"
    for frac in ("0.0", "0.25", "0.5", "1.0")
] + [("median", ["d"], False)]
SKETCHED = [("approx_count_distinct", ["s"], False), ("approx_count_distinct", ["d"], False)]


def in_arrow(df):
    """Return rows as an operator gets them: ``toArrow`` refuses some structs that are NULL."""
    return df.mapInArrow(lambda batches: batches, df.schema.simpleString()).toArrow()


@pytest.mark.large
@pytest.mark.spark
def test_rows_that_a_filter_takes_out_do_not_count(spark, given):
    where = "i % 3 = 0"
    asked = [call for call in CALLS if call[1][:1] in ([], ["d"], ["m"], ["e"], ["s"])]
    calls = [Made(number, call, given) for number, call in enumerate(asked)]
    for call in calls:
        call.lifts = [f"CASE WHEN {where} THEN {lift} END" for lift in call.lifts]
        filtered = f"{call.reference.removesuffix('.x')} FILTER (WHERE {where})"
        is_field = call.reference.endswith(".x")
        call.reference = f"element_at(array({filtered}), 1).x" if is_field else filtered
    expected, cells = of_spark(spark, calls)
    found = finals(spark, combined(in_arrow(cells), calls), calls, expected)
    compare(found, in_arrow(expected), calls)


@pytest.mark.spark
def test_sums_that_do_not_fit_out_of_ansi_mode(spark, change):
    change(ansi="false")
    wide = "CAST(repeat('9', 38) AS DECIMAL(38, 0))"
    df = spark.sql(
        f"SELECT 0 AS g, id AS cell, 0 AS t, {2**62 + 1} AS b, {wide} AS w FROM range(3)"
    )
    df.createOrReplaceTempView("large")
    asked = [("sum", ["b"], 0), ("sum", ["w"], 0), ("avg", ["w"], 0), ("avg", ["b"], 0)]
    calls = [Made(number, call, df) for number, call in enumerate(asked)]
    for call in calls:
        call.monoids = [replace(each, ansi=False) for each in call.monoids]
    expected, cells = of_spark(spark, calls, "large")
    found = finals(spark, combined(cells.toArrow(), calls), calls, expected)
    compare(found, expected.toArrow(), calls)


@pytest.mark.large
@pytest.mark.spark
def test_sketches_stay_within_their_errors(spark, given):
    asked = [*QUANTILES, *SKETCHED]
    every, exact = (
        [Made(n, call, given, by_row) for n, call in enumerate(asked)] for by_row in (False, True)
    )
    calls, counts = every[: len(QUANTILES)], every[len(QUANTILES) :]
    expected, cells = of_spark(spark, every)
    found = finals(spark, combined(cells.toArrow(), every), every, expected)
    lifted = given.orderBy("g", "t").selectExpr(
        "g", *(text for call in exact for text in call.of_rows({}))
    )
    by_row = finals(spark, combined(lifted.toArrow(), exact), exact, expected)
    table = given.toArrow()
    for call in calls:
        name, frac = f"v{call.number}", float((*call.arguments, "0.5")[1])
        assert found[name].type == by_row[name].type == expected.toArrow()[name].type
        for group, sketched, exactly in zip(
            found["g"].to_pylist(), found[name].to_pylist(), by_row[name].to_pylist(), strict=True
        ):
            values = table.filter(pc.equal(table["g"], group))[call.arguments[0]].drop_null()
            assert_rank(values.to_pylist(), exactly, frac, 0.0)
            assert_rank(values.to_pylist(), sketched, frac, 0.03)
    for call in counts:
        name = f"v{call.number}"
        exactly = spark.sql(
            f"SELECT count(DISTINCT {call.arguments[0]}) AS n FROM aggregated GROUP BY g ORDER BY g"
        )
        numbers = exactly.toArrow()["n"].to_pylist()
        assert by_row[name].to_pylist() == numbers
        assert found[name].to_pylist() == [pytest.approx(each, rel=0.05) for each in numbers]


def assert_rank(values, found, frac, error):
    """Assert that a fraction of the values, give or take an error, is at most what was found."""
    if not values:
        assert found is None
        return
    keys = sorted(math.inf if math.isnan(each) else float(each) for each in values)
    own = math.inf if math.isnan(found) else float(found)
    low, high = np.searchsorted(keys, own, "left"), np.searchsorted(keys, own, "right")
    rank = frac * len(keys)
    assert low - error * len(keys) - 1 <= rank <= high + error * len(keys), (frac, found)


def test_a_function_that_is_not_known():
    with pytest.raises(QueryError, match=r"unknown aggregate function 'SUMM'.*did you mean 'sum'"):
        function_of("SUMM", 1)


@pytest.mark.parametrize(
    ("name", "n", "is_distinct", "said"),
    [
        ("sum", 0, False, "SUM does not take 0 arguments"),
        ("SUM", 2, False, "SUM does not take 2 arguments"),
        ("median", 1, True, "MEDIAN does not take DISTINCT and 1 argument"),
        ("count", 0, True, r"COUNT does not take DISTINCT and 0 arguments"),
    ],
)
def test_a_call_with_other_arguments(name, n, is_distinct, said):
    with pytest.raises(QueryError, match=said):
        function_of(name, n, is_distinct=is_distinct)


@pytest.mark.parametrize("name", AGGREGATES)
def test_partials_have_monoids(name):
    function = AGGREGATES[name]
    for each in (*function.partials, *(function.by_row or function).partials):
        assert each.monoid in MONOIDS
    for each in (function.by_row or function).partials:
        assert MONOIDS[each.monoid].lift_sql
    for each in function.partials:
        assert MONOIDS[each.monoid].reduce_sql
