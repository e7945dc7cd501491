"""Conditions are sets of whole microseconds: each instant is in the answer, or it is not.

The oracle evaluates polynomials exactly, as fractions, at single microseconds. Roots are multiples
of 1/64 s, which are whole microseconds and exact doubles.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.models.solving.joins import joined
from eddyline.models.solving.text import read_condition
from eddyline.models.solving.where import where
from eddyline.models.windows import integrals
from tests.alarms.alone import named, ranges_of
from tests.models.pieces import EPOCH, SECOND, drawn, pieces

STEP = SECOND // 64
HOLDS = {
    "<": lambda p: p < 0,
    "<=": lambda p: p <= 0,
    "=": lambda p: p == 0,
    "<>": lambda p: p != 0,
    ">=": lambda p: p >= 0,
    ">": lambda p: p > 0,
}


def product(one, other):
    return [
        sum(one[i] * other[k - i] for i in range(len(one)) if 0 <= k - i < len(other))
        for k in range(len(one) + len(other) - 1)
    ]


def with_roots(factor, roots):
    """Return exact coefficients by ascending powers; roots are in steps."""
    found = [Fraction(factor)]
    for root in roots:
        found = product(found, [Fraction(-root, 64), Fraction(1)])
    return found


POLYNOMIALS = st.builds(
    with_roots,
    st.sampled_from([-1, Fraction(1, 2), 1, 3]),
    st.lists(st.integers(-4, 40), max_size=3),
) | st.just([Fraction(0)])


@st.composite
def entities(draw, names=("x", "y"), start=EPOCH):
    """Draw adjoining segments of one entity with exact coefficients: 7 plus a polynomial."""
    rows, exact, at = [], [], 0
    for _ in range(draw(st.integers(1, 3))):
        length = draw(st.integers(1, 32))
        own = {name: draw(POLYNOMIALS) for name in names}
        coefs = {name: [float(each[0] + 7), *map(float, each[1:])] for name, each in own.items()}
        rows.append((0, at / 64, (at + length) / 64, coefs, at / 64))
        exact.append((start + at * STEP, start + (at + length) * STEP, own))
        at += length
    return pieces(*rows, start=start), exact


def value(polynomial, micros):
    seconds = Fraction(micros, SECOND)
    return sum(each * seconds**power for power, each in enumerate(polynomial))


def instants(exact):
    """Return the instants at which roots may be, those beside them, and some between."""
    lo, hi = exact[0][0], exact[-1][1]
    found = {
        at + near for at in range(lo, hi + 1, STEP) for near in (-1, 0, 1) if lo <= at + near < hi
    }
    return sorted(found | {at + STEP // 3 for at in range(lo, hi, STEP) if at + STEP // 3 < hi})


def truth(exact, times, holds):
    """Return the instants at which a condition on exact values of attributes holds."""
    found = set()
    for lo, hi, own in exact:
        for at in times:
            if lo <= at < hi and holds({n: value(each, at - lo) for n, each in own.items()}):
                found.add(at)
    return found


def holds_at(segments, times):
    """Return the instants that are in some of the segments."""
    return {
        at
        for lo, hi in zip(segments.lo, segments.ends, strict=True)
        for at in times
        if lo <= at < hi
    }


def asked(segments, text):
    return where(segments, read_condition(text, [*segments.coefs]))


@given(entities(), st.sampled_from([*HOLDS]), st.sampled_from([0, 1, -3]))
def test_a_comparison_holds_at_the_instants_of_the_exact_one(drawn_entity, op, shift):
    segments, exact = drawn_entity
    times = instants(exact)
    holds = HOLDS[op]
    for text, of in {
        f"x {op} 7": lambda v: v["x"],
        f"x {op} {7 + shift}": lambda v: v["x"] - shift,
        f"x {op} y": lambda v: v["x"] - v["y"],
        f"(x - 7) * (y - 7) {op} 0": lambda v: v["x"] * v["y"],
        f"pow(x - 7, 2) {op} 0": lambda v: v["x"] ** 2,
    }.items():
        if shift and text in {f"x {op} {7 + shift}", f"x {op} y"}:
            continue  # its roots are no multiples of a step
        expected = truth(exact, times, lambda v, of=of: holds(of(v)))
        assert holds_at(asked(segments, text), times) == expected, text


@given(entities(), st.sampled_from([*HOLDS]), st.sampled_from([*HOLDS]))
def test_and_or_not_and_where_of_where_are_sets(drawn_entity, op, other):
    segments, exact = drawn_entity
    times = instants(exact)
    one, two = f"x {op} 7", f"y {other} 7"
    a = truth(exact, times, lambda v: HOLDS[op](v["x"]))
    b = truth(exact, times, lambda v: HOLDS[other](v["y"]))
    every = truth(exact, times, lambda v: True)
    assert holds_at(asked(segments, f"{one} AND {two}"), times) == a & b
    assert holds_at(asked(segments, f"{one} OR {two}"), times) == a | b
    assert holds_at(asked(segments, f"NOT ({one} AND {two})"), times) == every - (a & b)
    for first, second in ((one, two), (two, one)):
        assert holds_at(asked(asked(segments, first), second), times) == a & b
    both = joined(asked(segments, one), asked(segments, two), names=("a", "b")).segments
    assert holds_at(both, times) == a & b
    ranges = ranges_of(segments, {"a": one, "b": f"{one} AND {two}", "c": f"{one} OR {two}"})
    found = ranges.run(named(segments))
    for name, expected in {"a": a, "b": a & b, "c": a | b}.items():
        rows = [
            found.entities.column("alarm")[int(key)].as_py() == name for key in found.segments.keys
        ]
        assert holds_at(found.segments.take(np.array(rows, bool)), times) == expected, name


@given(entities(names=("x",)), st.sampled_from([*HOLDS]))
def test_changes_and_samples_tell_the_same_instants(drawn_entity, op):
    segments, exact = drawn_entity
    times = instants(exact)
    expected = truth(exact, times, lambda v: HOLDS[op](v["x"]))
    found = asked(segments, f"x {op} 7")
    made = integrals.changes(found)
    ends = np.where(made.ends == made.starts.times, made.ends + 1, made.ends)
    told = {
        at for lo, hi in zip(made.starts.times, ends, strict=True) for at in times if lo <= at < hi
    }
    assert told == expected
    ticks = {at for at in times if at % STEP == 0}
    sampled = set(integrals.sampled(found, STEP).times.tolist())
    assert sampled & ticks == expected & ticks
    assert sampled <= expected | (sampled - set(times))


@pytest.mark.parametrize("text", ["x {} 1", "x * y {} 2", "x - y {} 0", "d(x) {} 0.5"])
@given(segments=drawn(("x", "y"), degree=3, start=EPOCH), offset=st.integers(-2, 2))
def test_less_equal_and_greater_part_the_instants_wherever_segments_are_cut(text, segments, offset):
    found = {op: asked(segments, text.format(op)) for op in HOLDS}
    edges = np.concatenate([[*each.lo, *each.ends] for each in found.values()]).astype(np.int64)
    keys = np.concatenate([[*each.keys, *each.keys] for each in found.values()]).astype(np.int64)
    for row in range(len(segments)):
        lo, hi = int(segments.lo[row]), int(segments.ends[row])
        near = edges[keys == segments.keys[row]]
        times = sorted(
            {t for e in near for t in range(e - 2, e + 3) if lo <= t < hi} | {lo, hi - 1}
        )
        own = {op: holds_at(only(each, segments.keys[row]), times) for op, each in found.items()}
        parts = [own["<"], own["="], own[">"]]
        assert sum(map(len, parts)) == len(times)
        assert set().union(*parts) == set(times)
        assert own["<="] == own["<"] | own["="]
        assert own[">="] == own[">"] | own["="]
        assert own["<>"] == own["<"] | own[">"]
        middle = min(max(times[len(times) // 2] + offset, lo + 1), hi - 1)
        if lo < middle < hi:
            one = segments.take(np.array([row, row]))
            parts_of = replace(one, lo=np.array([lo, middle]), hi=np.array([middle, hi]))
            for op in HOLDS:
                assert holds_at(asked(parts_of, text.format(op)), times) == own[op], (op, middle)
                for at in times[:3]:
                    point = replace(
                        segments.take(np.array([row])),
                        lo=np.array([at]), hi=np.array([at]), is_point=np.array([True]),
                    )  # fmt: skip
                    assert bool(len(asked(point, text.format(op)))) == (at in own[op])


def only(segments, key):
    return segments.take(segments.keys == key)


@pytest.mark.parametrize("slope", [1.0, 1e-5, 3e-9, -1e-7])
@pytest.mark.parametrize("base", [3.0, 1e5, 1e9])
def test_slow_lines_are_at_a_constant_for_one_instant(slope, base):
    """A microsecond later the value may be the same double: the root says what holds."""
    segments = pieces((0, 0, 200_000, {"x": [base - 100_000 * slope, slope]}), start=EPOCH)
    constant = float(np.float64(segments.coefs["x"][0, 0]) + 100_000 * slope)
    above, at, below = (asked(segments, f"x {op} {constant!r}") for op in (">", "=", "<"))
    assert len(at) == 1
    assert at.is_point.all()
    for side in (above, below):
        assert len(side) == 1
        assert not len(asked(side, f"x = {constant!r}"))
        assert len(asked(side, f"x <> {constant!r}")) == 1
    assert sorted([*above.lo, *below.lo]) == [segments.lo[0], at.lo[0] + 1]


def test_a_range_that_a_point_ends_is_told_with_that_instant():
    one = pieces((0, 0, 2, {"x": [0, 1]}), (0, 2, 5, {"x": [0, 1]}), start=EPOCH)
    found = integrals.changes(asked(one, "x <= 2"))
    assert found.ends.tolist() == [EPOCH + 2 * SECOND + 1]
