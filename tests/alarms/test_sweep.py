"""Alarms give what each gives alone, to the microsecond and the last digit, whatever the plan."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.alarms.meeting import witnesses
from eddyline.alarms.plan import SHARINGS, TemplatePlan
from eddyline.alarms.program import AlarmProfile
from eddyline.models.segments import Keyed
from eddyline.models.steps import Changes, result_table
from tests.alarms.alone import alone, ranges_of, together
from tests.models.pieces import EPOCH, drawn, pieces

CONSTANTS = st.integers(-40, 40).map(lambda n: n / 8) | st.floats(-20, 20)
OPS = st.sampled_from(["<", "<=", "=", "<>", ">=", ">"])
SIDES = ["x", "y", "d(x)", "x - y", "2 * x", "-x", "x * x", "pow(y, 2) - x", "0", "x + 0.1"]


@st.composite
def leaves(draw):
    side, op, constant = draw(st.sampled_from(SIDES)), draw(OPS), draw(CONSTANTS)
    kind = draw(st.integers(0, 5))
    if kind == 0:
        return f"{constant!r} {op} {side}"
    if kind == 1:
        return f"abs({side}) {op} {abs(constant)!r}"
    if kind == 2:
        return f"{side} BETWEEN {constant!r} AND {constant + 2!r}"
    return f"{side} {op} {constant!r}"


CONDITIONS = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda two: f"({two[0]} AND {two[1]})"),
        st.tuples(inner, inner).map(lambda two: f"({two[0]} OR {two[1]})"),
        inner.map(lambda one: f"NOT ({one})"),
    ),
    max_leaves=4,
)


def named(texts):
    return {f"a{at}": text for at, text in enumerate(texts)}


@st.composite
def plans(draw, templates):
    """Draw a plan for each of some templates, or none."""
    return {
        each.text: TemplatePlan(
            draw(st.sampled_from(SHARINGS)),
            tuple(draw(st.permutations(range(len(each.conjuncts))))),
        )
        for each in templates
        if draw(st.integers(0, 4))
    }


@given(
    drawn(names=("x", "y"), degree=3, start=EPOCH),
    st.lists(CONDITIONS, min_size=1, max_size=6).map(named),
    st.data(),
)
def test_any_alarms_by_any_plan(segments, texts, data):
    program = ranges_of(segments, texts).program
    plan = data.draw(plans(program.templates))
    for watches in (False, True):
        found, observed = together(segments, texts, plan=plan, watches=watches)
        assert found == alone(segments, texts)
        assert isinstance(observed, AlarmProfile) == watches
    assert {*observed.templates} == {each.text for each in program.templates}


@given(
    drawn(names=("x", "y"), degree=1, most=8),
    st.lists(st.tuples(CONSTANTS, CONSTANTS, CONSTANTS), min_size=1, max_size=8),
    st.data(),
)
def test_conjunctions_that_differ_in_constants_by_any_plan(segments, constants, data):
    texts = named([f"x > {a!r} AND y <= {b!r} AND d(x) < {c!r}" for a, b, c in constants])
    (template,) = ranges_of(segments, texts).program.templates
    assert template.text == "x > ? AND y <= ? AND d(x) < ?"
    plan = data.draw(plans([template]))
    found, observed = together(segments, texts, plan=plan, watches=True)
    assert found == alone(segments, texts)
    counts = observed.templates[template.text]
    assert counts.sharing == plan.get(template.text, TemplatePlan()).sharing
    assert counts.n_rows == observed.n_rows == (~segments.is_tombstone).sum()


@given(
    drawn(names=("x",), degree=2, keys=4, most=8),
    st.lists(CONSTANTS, min_size=1, max_size=12),
    st.sampled_from(["x", "d(x)", "-x"]),
    OPS,
)
def test_alarms_that_differ_in_constants(segments, constants, side, op):
    texts = named([f"{side} {op} {each!r}" for each in constants])
    assert together(segments, texts)[0] == alone(segments, texts)


WIDTHS = st.sampled_from([0.0, 0.25, 1.0, 20.0, -1.0, -1e-16])


@given(
    drawn(names=("x", "y"), degree=2, most=8, start=EPOCH),
    st.lists(st.tuples(CONSTANTS, WIDTHS, CONSTANTS, WIDTHS), max_size=8),
    st.sampled_from(["AND", "OR"]),
)
def test_bands_that_differ_in_constants(segments, constants, word):
    texts = named(
        [
            f"x >= {one!r} AND x <= {one + width!r} {word} "
            f"d(y) > {two!r} AND d(y) < {two + other!r}"
            for one, width, two, other in constants
        ]
    )
    assert together(segments, texts)[0] == alone(segments, texts)


def test_points_tombstones_and_gaps():
    segments = pieces(
        (0, 0, 3, {"x": [0, 1]}),
        (0, 3, 3, {"x": [5, 0]}),
        (0, 4, 6, {"x": [5, 0]}),
        (0, 6, 7, None),
        (0, 7, 9, {"x": [5, 0]}),
        (1, 0, 2, {"x": [5, 1]}),
        (1, 2, 4, {"x": [5, 1]}, 2),
    )
    texts = named(["x > 4", "x > 1", "x >= 5", "x = 5", "x < 100", "x <> 5", "1 < 2", "2 < 1"])
    found, _ = together(segments, texts)
    assert found == alone(segments, texts)
    assert {row[0] for row in found} == {f"a{at}" for at in range(7)}


def test_segments_of_one_entity_without_keys():
    segments = pieces((0, 0, 3, {"x": [0, 1]}), (0, 3, 4, {"x": [2, 1]}))
    ranges = ranges_of(segments, named(["x > 1", "x < 100"]), keys=())
    found = Changes().run(ranges.run(Keyed(segments, pa.table({}))))
    assert result_table(found, None).select(["alarm", "x"]).to_pylist() == [
        {"alarm": "a0", "x": pytest.approx(1.000001, abs=1e-12)},
        {"alarm": "a1", "x": 0.0},
    ]


def test_alarms_are_looked_for_by_few_comparisons_if_more_do_not_pay():
    """Each comparison that any alarm is looked for by is a pass over all segments."""
    (template,) = ranges_of(
        pieces((0, 0, 1, {"x": [0, 1], "y": [0, 1]})),
        named([f"x > {at} AND y > {at}" for at in range(4)]),
    ).program.templates
    x, y = np.array([1, 1, 1, 9]), np.array([2, 2, 9, 1])

    def chosen(n):
        counts = {(0,): x, (1,): y}
        return {each: mask.tolist() for each, mask in witnesses(template, counts.get, n).items()}

    assert chosen(8) == {(0,): [True] * 3 + [False], (1,): [False] * 3 + [True]}
    assert chosen(9) == {(0,): [True] * 4}


@pytest.mark.parametrize("value", ["1e308 * 10", "-1e308 * 10", "5"])
def test_bands_without_a_width(value):
    """What is no number is no band; alarms are then looked for by one of its ends."""
    segments = pieces((0, 0, 3, {"x": [5, 0]}), (0, 3, 4, {"x": [2, 1]}))
    texts = named(
        [f"x >= {value} AND x <= {value}"] * 2 + ["x >= 2 AND x <= 6", "x >= 6 AND x <= 2"]
    )
    assert together(segments, texts)[0] == alone(segments, texts)
