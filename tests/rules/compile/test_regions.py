"""Regions, the keys that they are found by, and their tables: what they say is what Spark says."""

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

from eddyline.query.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    Compare,
    IsNull,
    OneOf,
    Operand,
    TextTest,
)
from eddyline.rules.compile.regions import (
    HIGHEST,
    LOWEST,
    MAX_CROWD,
    MAX_SPAN,
    MAX_TABLE,
    OTHER,
    KeySet,
    RegionConstruct,
    complement,
    cut_tables,
    cuts_of,
    float_keys,
    interval,
    is_keyed,
    key_set,
    keys_of,
    nulls_of,
    places_of,
    region_construct,
    region_key,
    united,
    value_of,
)
from eddyline.rules.match.bitmap_kernels import regions_of
from eddyline.sql.literals import Moment
from eddyline.sql.regexes import ANY, Wild
from eddyline.sql.types import TIMES as TIME_FAMILIES
from eddyline.sql.types import parse_type
from tests.oracles.rule_strategies import TIMES, comparisons, values_of
from tests.oracles.rules import truth

N, S, D = (
    Operand(f"`{name}`", parse_type(kind), (name,))
    for name, kind in (("n", "int"), ("s", "string"), ("d", "decimal(10,2)"))
)
BIT = {True: TRUE, False: FALSE, None: UNKNOWN}
ARROW = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "float": pa.float32(),
    "decimal(10,2)": pa.decimal128(10, 2),
    "decimal(38,10)": pa.decimal128(38, 10),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def construct_of(operand, tests):
    """Return the construct that some tests cut, and the key of each constant that has none."""
    literals = [(test, outcomes) for test in tests for outcomes in range(8)]
    return region_construct(operand, tests, literals, folded=False)


def regions_in(construct, values):
    """Return the region of each value."""
    keys, nulls = construct.keys(values)
    tables = cut_tables([construct.cuts])
    found = np.empty(len(keys), np.int32)
    regions_of(keys, nulls, 0, np.arange(len(keys)), len(keys), tables, 0, found)
    return found.tolist()


@given(st.data())
def test_a_literal_holds_in_its_regions_and_nowhere_else(data):
    first = data.draw(comparisons())
    same = comparisons().filter(lambda test: test.operand == first.operand)
    tests = [first, IsNull(first.operand), *data.draw(st.lists(same, max_size=2))]
    construct, places = construct_of(first.operand, tests)
    values = [*data.draw(st.lists(values_of(first.operand), max_size=6)), None]
    if first.operand.type.family not in TIME_FAMILIES and first.operand.type.precision <= 18:
        values += [test.value for test in tests if isinstance(test, Compare)]
    array = pa.array(values, ARROW[first.operand.type.text])
    regions = regions_in(construct, array)
    assert max(regions) < construct.n_regions
    for test in tests:
        for outcomes in range(8):
            held = construct.regions_of(key_set(test, outcomes, places))
            assert list(held) == sorted(held)
            assert all(0 <= low <= high < construct.n_regions for low, high in held)
            for value, region in zip(array.to_pylist(), regions, strict=True):
                wanted = bool(BIT[truth(test, {first.operand.sql: value})] & outcomes)
                assert any(low <= region <= high for low, high in held) == wanted


def test_regions_of_numbers():
    construct, _ = construct_of(N, [Compare(N, "<", 5), Compare(N, ">", 8)])
    assert construct.cuts.tolist() == [5, 9]
    assert construct.n_regions == 4
    assert regions_in(construct, pa.array([None, 4, 5, 8, 9, 2**31 - 1], pa.int32())) == [
        0,
        1,
        2,
        2,
        3,
        3,
    ]
    less = key_set(Compare(N, "<", 5), TRUE, None)
    assert construct.regions_of(less) == ((1, 1),)
    not_less = key_set(Compare(N, "<", 5), FALSE | UNKNOWN, None)
    assert construct.regions_of(not_less) == ((0, 0), (2, 3))
    assert construct.regions_of(KeySet((), holds_null=False)) == ()


def test_where_only_null_matters_values_are_not_looked_at():
    array_type = Operand("`a`", parse_type("array<int>"), ("a",))
    construct, _ = construct_of(array_type, [IsNull(array_type)])
    assert construct.n_regions == 2
    assert regions_in(construct, pa.array([[1], None, []])) == [1, 0, 1]
    far = Compare(N, "<", 10**30)  # true of every number
    assert construct_of(N, [far])[0].n_regions == 2


def test_regions_of_texts():
    tests = [OneOf(S, ("a", "", "a")), Compare(S, "=", "é"), TextTest(S, ())]
    construct, places = construct_of(S, tests)
    assert construct.constants == ("a", "", "é")
    assert regions_in(construct, pa.array([None, "x", "a", "", "é", "A"])) == [0, 1, 2, 3, 4, 1]
    assert construct.regions_of(key_set(tests[0], FALSE, places)) == ((1, 1), (4, 5))
    assert construct.regions_of(key_set(tests[2], TRUE, places)) == ((3, 3),)


def test_texts_by_their_order():
    tests = [Compare(S, "<", "b"), Compare(S, ">=", "ba"), Compare(S, "=", ""), TextTest(S, ("é",))]
    construct, places = construct_of(S, tests)
    assert construct.constants == ("", "b", "ba", "é")
    values = pa.array(["", "\0", "a", "b", "b\0", "ba", "z", "é", "ê", "😀", None])
    keys, nulls = construct.keys(values)
    assert keys[:-1].tolist() == [1, 2, 2, 3, 4, 5, 6, 7, 8, 8]
    assert nulls.tolist() == [False] * 10 + [True]
    held = key_set(tests[0], TRUE, places)
    assert [any(low <= key <= high for low, high in held.intervals) for key in keys[:-1]] == [
        *([True] * 3),
        *([False] * 7),
    ]
    assert construct.keys(values.slice(3, 2))[0].tolist() == [3, 4]
    assert construct.keys(values.cast(pa.large_string()).slice(7))[0][:3].tolist() == [7, 8, 8]


def test_bytes_that_are_no_characters_have_their_place():
    construct, _ = construct_of(S, [Compare(S, "<", "é"), Compare(S, ">", "😀")])
    raw = [b"\x7f", b"\xc0", b"\xc3", b"\xc3\xa9", b"\xc3\xa9\xff", b"\xf0\x9f\x98", b"\xff"]
    values = pa.array(raw, pa.binary()).view(pa.string())
    assert construct.keys(values)[0].tolist() == [0, 0, 0, 1, 2, 2, 4]


def test_decimals_of_more_than_18_digits():
    wide = Operand("`w`", parse_type("decimal(38,2)"), ("w",))
    top = Decimal("9" * 36 + ".99")
    tests = [
        *(Compare(wide, "<", Decimal("0.005")), Compare(wide, "=", Decimal(2**63) / 100)),
        *(Compare(wide, "<=", Decimal(10**50)), Compare(wide, ">=", -(10**36))),
        OneOf(wide, (0, top, Decimal("0.001"))),
    ]
    construct, places = construct_of(wide, tests)
    given_values = [
        top.copy_negate(),
        Decimal("-0.01"),
        0,
        Decimal("0.01"),
        Decimal(2**63) / 100,
        top,
        None,
    ]
    values = pa.array([None, *given_values], pa.decimal128(38, 2))[1:]
    regions = regions_in(construct, values)
    for test in tests:
        held = construct.regions_of(key_set(test, TRUE, places))
        found = [any(low <= region <= high for low, high in held) for region in regions]
        assert found == [bool(truth(test, {"`w`": value})) for value in values.to_pylist()]
    assert construct.keys(values[:0])[0].tolist() == []


def test_folded_texts():
    construct = RegionConstruct(S, True, ("é", "i\u0307"), np.arange(3))
    assert regions_in(construct, pa.array(["É", "\u0130", "i", None])) == [2, 3, 1, 0]


def test_what_regions_decide():
    span = Operand("`t`", parse_type("interval day to second"), ("t",))
    wide = Operand("`w`", parse_type("decimal(38,10)"), ("w",))
    assert region_key(IsNull(span)) == (span, False)
    assert region_key(Compare(span, "<", 1)) is None
    assert region_key(Compare(wide, "<", Decimal(1))) == (wide, False)
    assert region_key(Compare(S, "<", "a")) == (S, False)
    assert region_key(IsNull(wide)) == (wide, False)
    assert region_key(Compare(S, "=", "a")) == (S, False)
    assert region_key(TextTest(S, ("a",), folded=True)) == (S, True)
    assert region_key(TextTest(S, (), folded=True)) == (S, False)
    assert region_key(TextTest(S, ("a", Wild(ANY)))) is None
    assert region_key(TextTest(S, (Wild(ANY),))) is None


@pytest.mark.parametrize(
    ("sets", "wanted"),
    [
        ([], []),
        ([((LOWEST, HIGHEST),)], []),
        ([((LOWEST, 3),)], [4]),
        ([((3, HIGHEST),)], [3]),
        ([((HIGHEST, HIGHEST),)], [HIGHEST]),
        ([((LOWEST, LOWEST),)], [LOWEST + 1]),
        ([((1, 2), (5, 5)), ((2, 5),)], [1, 2, 3, 5, 6]),
    ],
)
def test_cuts(sets, wanted):
    assert cuts_of([KeySet(each, holds_null=True) for each in sets]).tolist() == wanted


def test_days():
    day = Operand("`day`", parse_type("date"), ("day",))
    construct, _ = construct_of(day, [Compare(day, "<", dt.date(1969, 12, 31))])
    values = pa.array([dt.date.min, dt.date(1969, 12, 30), dt.date(1969, 12, 31), dt.date.max])
    assert regions_in(construct, values) == [1, 1, 2, 2]


def test_decimals_between_their_steps():
    construct, _ = construct_of(
        D, [Compare(D, "<", Decimal("0.005")), OneOf(D, (Decimal("0.005"),))]
    )
    values = pa.array([Decimal("0.00"), Decimal("0.01")], pa.decimal128(10, 2))
    assert regions_in(construct, values) == [1, 2]


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


KEYS = st.one_of(
    st.integers(LOWEST, HIGHEST),
    st.integers(-40, 40),
    st.integers(-(10**6), 10**6),
    st.sampled_from([LOWEST, LOWEST + 1, HIGHEST - 1, HIGHEST]),
)
CUTS = st.lists(KEYS.filter(lambda key: key > LOWEST), max_size=30, unique=True).map(sorted)


def regions(tables, construct, keys, nulls=None, rows=None):
    rows = np.arange(len(keys)) if rows is None else rows
    nulls = np.zeros(len(keys), np.bool_) if nulls is None else nulls
    found = np.full(len(rows), -1, np.int32)
    regions_of(keys, nulls, 0, rows, len(rows), tables, construct, found)
    return found.tolist()


def searched(cuts, keys):
    return (np.searchsorted(np.array(cuts, np.int64), keys, side="right") + 1).tolist()


def around(cuts):
    """Keys at, below and above each cut, and the outermost ones."""
    near = {cut + step for cut in cuts for step in (-1, 0, 1)}
    return np.array(
        sorted({LOWEST, HIGHEST, 0, *(k for k in near if LOWEST <= k <= HIGHEST)}), np.int64
    )


@given(st.lists(CUTS, min_size=1, max_size=4), st.lists(KEYS, max_size=20))
def test_the_region_of_any_key_is_that_of_a_search(every, further):
    tables = cut_tables([np.array(cuts, np.int64) for cuts in every])
    for construct, cuts in enumerate(every):
        keys = np.concatenate([around(cuts), np.array(further, np.int64)])
        assert regions(tables, construct, keys) == searched(cuts, keys)


def crowded(n):
    """Cuts of which so many lie in one bucket."""
    return [0, *(10**11 + at for at in range(n)), 1 << 40]


@pytest.mark.parametrize(
    ("cuts", "has_table", "is_exact"),
    [
        ([], True, True),
        ([5], True, True),
        ([LOWEST + 1], True, True),
        ([HIGHEST], True, True),
        ([0, MAX_TABLE - 2], True, True),
        ([0, MAX_TABLE], True, False),
        ([0, 10 * MAX_TABLE], True, False),
        ([0, MAX_SPAN - 2], True, False),
        ([0, MAX_SPAN - 1], False, True),
        ([LOWEST + 1, HIGHEST], False, True),
        (crowded(MAX_CROWD), True, False),
        (crowded(MAX_CROWD + 1), False, True),
        (range(0, 100_000, 2), True, False),
        (range(70_000), False, True),
    ],
)
def test_tables_where_they_pay(cuts, has_table, is_exact):
    cuts = np.array(cuts, np.int64)
    tables = cut_tables([cuts])
    assert (tables.table_at[0] >= 0) == has_table
    assert (tables.shift[0] == 0) == is_exact
    assert len(tables.table) <= MAX_TABLE + 1
    keys = around(cuts.tolist())
    assert regions(tables, 0, keys) == searched(cuts, keys)


def test_rows_and_nulls():
    tables = cut_tables([np.array([3, 5]), np.array([10**9, 2**40, 2**61])])
    keys, nulls = np.array([2, 3, 9, 2**62]), np.array([False, False, True, False])
    assert regions(tables, 0, keys, nulls, np.array([3, 2, 0])) == [3, 0, 1]
    assert regions(tables, 1, keys, nulls) == [1, 1, 0, 4]
    assert regions(tables, 0, keys[:0]) == []
