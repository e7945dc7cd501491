"""Region constructs: where the rules of a set cut an operand's values."""

from __future__ import annotations

import datetime as dt
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
    KeySet,
    RegionConstruct,
    cut_tables,
    cuts_of,
    key_set,
    region_construct,
    region_key,
)
from eddyline.rules.match.bitmap_kernels import regions_of
from eddyline.sql.regexes import ANY, Wild
from eddyline.sql.types import TIMES, parse_type
from tests.oracles.rule_strategies import comparisons, values_of
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
    if first.operand.type.family not in TIMES and first.operand.type.precision <= 18:
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
