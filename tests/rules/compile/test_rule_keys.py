"""Values as whole numbers that keep their order."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.query.conditions import Compare, Operand
from eddyline.rules.compile.regions import (
    HIGHEST,
    LOWEST,
    OTHER,
    complement,
    float_keys,
    interval,
    is_keyed,
    keys_of,
    nulls_of,
    places_of,
    united,
    value_of,
)
from eddyline.sql.literals import Moment
from eddyline.sql.types import TIMES as TIME_FAMILIES
from eddyline.sql.types import parse_type
from tests.oracles.rule_strategies import TIMES
from tests.oracles.rules import truth

OPS = ("=", "<", "<=", ">", ">=")
INF, NAN = math.inf, math.nan
CASES = {
    "bigint": (
        pa.int64(),
        (LOWEST, LOWEST + 1, -1, 0, 1, HIGHEST - 1, HIGHEST),
        (10**30, -(10**30), 2**63, LOWEST - 1, Decimal("0.5"), Decimal("-1.5"), 1),
    ),
    "tinyint": (pa.int8(), (-128, -1, 0, 127), (128, -129, 127, Decimal("126.9"))),
    "double": (
        pa.float64(),
        (-INF, -1.5, -5e-324, -0.0, 0.0, 5e-324, 1.0, 1.7976931348623157e308, INF, NAN),
        (0.0, -0.0, INF, -INF, 0.1),
    ),
    "float": (pa.float32(), (-INF, -0.0, 0.0, 0.10000000149011612, INF, NAN), (0.1, 1e300, 0.0)),
    "decimal(18,2)": (
        pa.decimal128(18, 2),
        (
            *(Decimal("-9999999999999999.99"), Decimal("-0.01"), Decimal("0.00")),
            *(Decimal("0.01"), Decimal("9999999999999999.99")),
        ),
        (0, Decimal("0.005"), Decimal("1e30"), Decimal("-1e30"), Decimal("-0.01")),
    ),
    "decimal(18,18)": (
        pa.decimal128(18, 18),
        (Decimal("-0.999999999999999999"), Decimal("0E-18"), Decimal("1E-18")),
        (Decimal("1E-19"), 1, 0),
    ),
    "boolean": (pa.bool_(), (False, True), ()),
    "date": (
        pa.date32(),
        (dt.date.min, dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date.max),
        (dt.date(1970, 1, 2),),
    ),
    **{
        kind: (
            pa.timestamp("us", zone and "America/New_York"),
            tuple(time.replace(tzinfo=zone) for time in TIMES),
            (0, -1, 1, LOWEST, HIGHEST),
        )
        for kind, zone in (("timestamp", dt.UTC), ("timestamp_ntz", None))
    },
}


def column(kind, values):
    if kind == "boolean":
        return pa.array(values, pa.bool_())
    return pa.array(values, CASES[kind][0])


@pytest.mark.parametrize("kind", CASES)
def test_keys_compare_as_values_do(kind):
    sql_type = parse_type(kind)
    _, values, others = CASES[kind]
    keys, nulls = keys_of(column(kind, [*values, None]), sql_type)
    assert nulls.tolist() == [False] * len(values) + [True]
    assert keys.dtype == np.int64
    operand = Operand("`x`", sql_type, ("x",))
    told = keys[:-1].tolist() if sql_type.family in TIME_FAMILIES else values
    constants = [each for each in (*told, *others) if each == each]  # noqa: PLR0124 - not NaN
    for constant in constants:
        for op in OPS:
            test = Compare(operand, op, constant)
            inside = interval(sql_type, op, constant)
            found = [any(low <= key <= high for low, high in inside) for key in keys[:-1].tolist()]
            assert found == [truth(test, {"`x`": value}) for value in values], (op, constant)


@pytest.mark.parametrize("kind", CASES)
def test_keys_do_not_depend_on_where_an_array_starts(kind):
    values = CASES[kind][1]
    wanted = keys_of(column(kind, values), parse_type(kind))[0].tolist()
    padded = column(kind, [None, values[0], *values, None])
    keys, nulls = keys_of(padded.slice(2, len(values)), parse_type(kind))
    assert keys.tolist() == wanted
    assert not nulls.any()
    assert keys_of(padded.slice(0, 0), parse_type(kind))[0].tolist() == []
    assert keys_of(pa.nulls(3, CASES[kind][0]), parse_type(kind))[1].tolist() == [True] * 3


def test_days_beyond_what_python_knows_have_keys():
    days = pa.array([-1_000_000, 0, 10_000_000], pa.int32()).view(pa.date32())
    assert keys_of(days, parse_type("date"))[0].tolist() == [-1_000_000, 0, 10_000_000]
    assert value_of(parse_type("date"), 10_000_000) == 10_000_000


@pytest.mark.parametrize("kind", CASES)
def test_values_come_back_from_their_keys(kind):
    values = [each for each in CASES[kind][1] if each == each]  # noqa: PLR0124 - not NaN
    keys, _ = keys_of(column(kind, values), parse_type(kind))
    assert [value_of(parse_type(kind), key) for key in keys.tolist()] == values


def test_a_moment_that_no_session_has_read_is_an_error():
    with pytest.raises(TypeError, match="no session has said when '2024-01-01' is"):
        interval(parse_type("timestamp"), "<", Moment("2024-01-01"))


def test_times_that_python_does_not_know_are_numbers():
    assert value_of(parse_type("timestamp"), HIGHEST) == HIGHEST
    assert value_of(parse_type("timestamp"), 1).isoformat() == "1970-01-01T00:00:00.000001+00:00"
    far = pa.array([LOWEST, HIGHEST], pa.int64()).view(pa.timestamp("us", "Asia/Kolkata"))
    assert keys_of(far, parse_type("timestamp"))[0].tolist() == [LOWEST, HIGHEST]
    with pytest.raises(pa.ArrowInvalid):  # rather than a time that is not quite it
        keys_of(pa.array([1], pa.timestamp("ns")), parse_type("timestamp_ntz"))


def test_floats_have_one_zero_and_one_nan():
    quiet = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    keys = float_keys(np.array([-0.0, 0.0, NAN, INF, *quiet]))
    assert keys[0] == keys[1] == 0
    assert keys[2] == keys[4] == keys[5] > keys[3]


@given(st.lists(st.floats(allow_nan=False), min_size=2))
def test_float_keys_keep_the_order(values):
    keys = float_keys(np.array(values))
    assert np.array_equal(np.sign(np.diff(keys.astype(object))), np.sign(_steps(values)))


def _steps(values):
    return np.array([int(b > a) - int(b < a) for a, b in itertools.pairwise(values)])


def test_which_types_have_keys():
    keyed = {kind: is_keyed(parse_type(kind)) for kind in (*CASES, "decimal(19,0)", "string")}
    assert [kind for kind, yes in keyed.items() if not yes] == ["decimal(19,0)", "string"]
    assert not is_keyed(parse_type("timestamp(9)"))


keys = st.integers(LOWEST, HIGHEST) | st.sampled_from([LOWEST, -1, 0, 1, HIGHEST])
intervals = st.tuples(keys, keys).map(lambda pair: (min(pair), max(pair)))


@given(st.lists(intervals), st.lists(keys))
def test_united_and_complement(drawn, probes):
    joined = united(drawn)
    gaps = complement(joined)
    assert list(joined) == sorted(joined)
    assert all(high + 1 < low for (_, high), (low, _) in itertools.pairwise(joined))
    assert complement(gaps) == joined
    for key in [*probes, *(end for each in drawn for end in each)]:
        inside = any(low <= key <= high for low, high in drawn)
        assert any(low <= key <= high for low, high in joined) == inside
        assert any(low <= key <= high for low, high in gaps) != inside


def test_everything_and_nothing():
    assert complement(()) == ((LOWEST, HIGHEST),)
    assert complement(complement(())) == ()
    assert interval(parse_type("int"), "=", Decimal("1.5")) == ()


def test_places_of_texts():
    constants = pa.array(["b", "", "é"])
    places, nulls = places_of(pa.array(["é", "x", None, "", "B"]), constants)
    assert places.tolist() == [2, OTHER, OTHER, 1, OTHER]
    assert nulls.tolist() == [False, False, True, False, False]


def test_nan_is_not_null():
    assert nulls_of(pa.array([NAN, None, 1.0])).tolist() == [False, True, False]
    assert nulls_of(pa.nulls(2)).tolist() == [True, True]
