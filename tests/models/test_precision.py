"""Bounds of outputs as bounds of inputs: outputs of inputs within theirs are within their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.errors import OptionError
from eddyline.models import graph
from eddyline.models.fitting.bounds import NEEDS, Bound, read_bounds
from eddyline.models.fitting.splits import EQUAL, GRADIENT
from eddyline.models.graph import Input, OtherEntities, SameEntity, Unary, inverted, reads, required
from eddyline.models.segments import Keyed, in_seconds, plain
from eddyline.models.solving import polynomials
from eddyline.models.solving.expressions import Range
from eddyline.models.solving.joins import joined_with_others
from eddyline.models.solving.text import read_condition, read_expression
from eddyline.models.solving.where import begun
from eddyline.models.steps import (
    AverageDistance,
    DifferentEntities,
    Envelope,
    Extremum,
    Integral,
    OverEntities,
    Project,
    Sample,
    Shape,
    Total,
    Where,
    Within,
)
from eddyline.models.windows.integrals import sampled
from tests.models.pieces import EPOCH, SECOND, drawn, pieces

PRICE = Input(0, Shape((), ("ap",)))


def mapped(part, **texts):
    read = {n: read_expression(text, part.shape.attributes) for n, text in texts.items()}
    return Unary(Project(read, texts), part)


def average(part, width, *, covered=False):
    return Unary(Integral(width, None, True, covered), part)


def total(part, width, *, covered=False):
    return Unary(Integral(width, None, False, covered), part)


def extreme(part, width, *, largest):
    return Unary(Extremum(width, None, largest), part)


def same(left, right, names=("left", "right")):
    return SameEntity(left, right, names, None, None)


def others(left, right):
    return OtherEntities(left, right, DifferentEntities(("left", "right"), None, {}, False, False))


def macd():
    sides = [average(PRICE, width * SECOND) for width in (10, 60)]
    return mapped(same(*sides, names=("S", "L")), diff="S_ap - L_ap")


def numbers(found):
    return {name: each.value for (_, name), each in found.items()}


def test_t21_equal_splits_and_the_kernel():
    within = read_bounds({"diff": 0.5})
    steps = macd().step.back(within, {}, split=EQUAL)
    assert {name: each.value for name, each in steps.items()} == pytest.approx(
        {"S_ap": 0.25, "L_ap": 0.25}, abs=1e-9
    )
    assert average(PRICE, SECOND).step.back({"ap": Bound(0.25)}, {}, split=EQUAL) == {
        "ap": Bound(0.25)
    }
    whole = inverted(macd(), within)
    assert numbers(whole)["ap"] == pytest.approx(0.3, abs=1e-9)
    sides = macd().of
    assert numbers(inverted(sides, {"S_ap": Bound(0.25)})) == {"ap": 0.25}


def test_the_bound_of_the_kernel_is_not_less_than_it_has_to_be():
    """A price that is off by the bound, up for 10 s and down before, moves MACD by all of 0.5."""
    bound = numbers(inverted(macd(), {"diff": Bound(0.5)}))["ap"]
    off = pieces((0, 0, 50, {"ap": [-bound]}), (0, 50, 61, {"ap": [bound]}))
    assert run(macd(), [off])["diff"][0, 60 * SECOND] == pytest.approx(0.5, rel=1e-9)


def test_t22_gradient_splits_are_by_absolute_slopes():
    for other in (1.0, -1.0):
        known = {0: {"x": Range(0, 9, 3.0), "y": Range(-9, 9, abs(other))}}
        plan = mapped(Input(0, Shape((), ("x", "y"))), o="x + y", p="x * y + x")
        found = inverted(plan, {"o": Bound(0.4)}, known, split=GRADIENT)
        assert numbers(found) == pytest.approx({"x": 0.3, "y": 0.1})
        weighted = mapped(Input(0, Shape((), ("x", "y"))), o="x + 3 * y")
        found = inverted(weighted, {"o": Bound(0.4)}, known, split=GRADIENT)
        assert numbers(found) == pytest.approx({"x": 0.2, "y": 0.2 / 3})
        curved = inverted(plan, {"p": Bound(0.4)}, known, split=GRADIENT)
        assert numbers(curved)["x"] > numbers(inverted(plan, {"p": Bound(0.4)}, known))["x"]
    with pytest.raises(OptionError, match="how fast it moves, which is not known") as caught:
        inverted(plan, {"o": Bound(0.4)}, split=GRADIENT)
    assert caught.value.facts[NEEDS] == "x"


def test_distances_have_a_share_for_each_coordinate():
    ships = Input(0, Shape(("ship",), ("x", "y")))
    axes = {"left_x": "right_x", "left_y": "right_y"}
    far = Unary(AverageDistance(axes, SECOND, SECOND, False), others(ships, ships))
    found = numbers(inverted(far, {"distance": Bound(1.0)}))
    assert found == pytest.approx({"x": 8**-0.5, "y": 8**-0.5})
    near = {0: {"x": Range(0.0, 1.0), "y": Range(3.0, 4.0)}}
    with pytest.raises(OptionError, match=r"from 0 to 1\.41421 it may be 0"):
        inverted(far, read_bounds({"distance": "1 %"}), near)


XY = Input(0, Shape((), ("x", "y")))


@pytest.mark.parametrize(
    ("text", "bound", "said", "helps"),
    [
        ("x - y", "1 %", "terms of it may cancel, and its range is not known", True),
        ("x + y", "1 %", "is not known", True),
        ("x * y", "0.5", "how near 'x' has to be depends on how large it is", True),
        ("d(x)", "0.5", "has d()", False),
    ],
)
def test_what_cannot_be_guaranteed_is_refused(text, bound, said, helps):
    with pytest.raises(OptionError) as caught:
        inverted(mapped(XY, o=text), read_bounds({"o": bound}))
    assert said in caught.value.message
    assert (NEEDS in caught.value.facts) == helps


def test_shares_go_through_what_does_not_cancel():
    share = Bound(0.1, is_relative=True)

    def of(plan, values=None):
        found = inverted(plan, dict.fromkeys(plan.shape.attributes, share), values)
        return {name: each for (_, name), each in found.items()}

    assert of(extreme(XY, SECOND, largest=True)) == {"x": share, "y": share}
    assert of(mapped(XY, o="3 * x")) == {"x": share}
    third = of(mapped(XY, o="x * x * y"))["x"]
    assert third.is_relative
    assert (1 + third.value) ** 3 == pytest.approx(1.1)
    positive = {0: {"x": Range(1.0, 5.0), "y": Range(0.0, 5.0)}}
    assert of(mapped(XY, o="x + y"), positive) == {"x": share, "y": share}
    assert of(average(XY, SECOND), positive) == {"x": share, "y": share}
    with pytest.raises(OptionError, match="range is not known"):
        of(average(XY, SECOND))
    with pytest.raises(OptionError, match="from -4 to 5 it may be 0"):
        of(mapped(XY, o="x - y"), positive)
    apart = {0: {"x": Range(11.0, 15.0), "y": Range(0.0, 5.0)}}
    found = of(mapped(XY, o="x - y"), apart)
    assert found["x"].value == pytest.approx(6 * 0.1 / 1.1 / 2)
    assert not found["x"].is_relative


def test_shares_of_sums_of_products_are_those_of_the_longest():
    """1.1 * 1.1 is more than 1.2: a square takes more than twice the share of its factors."""
    positive = {0: {"x": Range(1.0, 5.0), "y": Range(0.0, 5.0)}}
    found = inverted(mapped(XY, o="x * x + y"), read_bounds({"o": "21 %"}), positive)
    assert numbers(found) == pytest.approx({"x": 0.1, "y": 0.1})


def test_an_extreme_has_no_share_above_its_own_value():
    """-1 that is off by 200 % is 1, and then the greatest of -1 and 0.1 is 1."""
    with pytest.raises(OptionError, match="200 %"):
        inverted(extreme(XY, SECOND, largest=True), {"x": Bound(2.0, is_relative=True)})


def test_errors_cancel_only_where_they_are_surely_the_same():
    within = {"diff": Bound(0.5)}
    two = mapped(others(PRICE, PRICE), diff="left_ap - right_ap")
    assert numbers(inverted(two, within))["ap"] == pytest.approx(0.25)
    assert inverted(mapped(same(PRICE, PRICE), diff="left_ap - right_ap"), within) == {}
    # Windows that count in part are of any length: the shorter may be none of the longer.
    sides = [average(PRICE, width * SECOND, covered=True) for width in (10, 60)]
    part = mapped(same(*sides), diff="left_ap - right_ap")
    assert numbers(inverted(part, within))["ap"] == pytest.approx(0.25)
    twice = average(total(PRICE, 2 * SECOND), 60 * SECOND)
    assert numbers(inverted(twice, {"ap": Bound(0.5)}))["ap"] == pytest.approx(0.25)


def test_of_several_outputs_and_several_queries_the_tightest_counts():
    fast = Unary(Within({"ap": Bound(0.2)}), average(PRICE, 10 * SECOND))
    slow = Unary(Within({"ap": Bound(0.1)}), average(PRICE, 60 * SECOND))
    both = mapped(same(fast, slow), diff="left_ap - right_ap", left="left_ap")
    node = Unary(Within({"diff": Bound(0.5), "left": Bound(3.0)}), both)
    found = required(node)
    assert found.bounds == {0: {"ap": Bound(0.1)}}
    assert found.any_values[id(node.step)] == {"diff", "left"}
    assert found.reads == {0: {"ap"}}
    mixed = Unary(Within({"ap": Bound(0.1, is_relative=True)}), average(fast, SECOND))
    near, far = ({0: {"ap": Range(*ends)}} for ends in ((0.5, 9.0), (10.0, 11.0)))
    with pytest.raises(OptionError, match="range is not known"):
        required(mixed)
    assert required(mixed, near).bounds[0]["ap"].value == pytest.approx(0.5 * 0.1 / 1.1)
    assert required(mixed, far).bounds[0]["ap"] == Bound(0.2)
    assert required(mixed, far).any_values[id(mixed.step)] == frozenset()


def test_what_is_only_compared_is_read_but_has_no_bound():
    condition = read_condition("x > 3", ("x", "y"))
    node = Unary(Project.onto("y"), Unary(Where(condition, "x > 3"), XY))
    node = Unary(Within({"y": Bound(1.0)}), Unary(Sample(SECOND), node))
    found = required(node)
    assert found.bounds == {0: {"y": Bound(1.0)}}
    assert found.reads == {0: {"x", "y"}}
    on = read_condition("left.x > right.x", ("left.x", "right.x"))
    two = SameEntity(XY, XY, ("left", "right"), on, "")
    assert reads(Unary(Project.onto("left_y"), two)) == {0: {"x", "y"}}
    near = OtherEntities(
        XY, Input(1, XY.shape), DifferentEntities(("left", "right"), None, {"x": 1.0}, False, False)
    )
    assert reads(Unary(Project.onto("left_y"), near)) == {0: {"x", "y"}, 1: {"x"}}


def test_errors_that_cancel_are_not_told_as_a_sum():
    segments = pieces((0, 0, 70, {"ap": [5.0]}), errors=0.3)
    node = Unary(Within({"diff": Bound(0.5)}), macd())
    node = graph.with_inputs(node, [PRICE], required(node).put_in)
    found = graph.run(node, [keyed(segments)]).segments
    assert found.errors["diff"].tolist() == [0.5]
    bare = graph.run(macd(), [keyed(segments)]).segments
    assert bare.errors["diff"].tolist() == [0.6]


def keyed(segments):
    n = int(segments.keys.max(initial=-1)) + 1
    return Keyed(segments, pa.table({"k": np.arange(n)}))


def values_of(segments):
    """Return the ranges of attributes' values, of models and of the rows that they stand for."""
    length = in_seconds(segments.hi - segments.lo)
    found = {}
    for name, each in begun(segments, segments.coefs).items():
        low, high = polynomials.extremes(each.coefs, length)
        found[name] = Range(
            (low - segments.errors[name]).min(), (high + segments.errors[name]).max(), 1.0
        )
    return found


def run(node, tables):
    """Return the outputs of a graph by (entity or pair, time), every tenth of a second."""
    found = sampled(ran(node, tables), SECOND // 10)
    at = [*zip(found.keys.tolist(), found.times.tolist(), strict=True)]
    return {
        name: dict(zip(at, values.tolist(), strict=True)) for name, values in found.values.items()
    }


def ran(node, tables):
    """Run a graph whose crossings are done here by arrays."""
    match node:
        case Input(at, shape):
            segments = tables[at]
            taken = [{each: of[each] for each in shape.attributes} for of in
                     (segments.coefs, segments.errors)]  # fmt: skip
            return replace(segments, coefs=taken[0], errors=taken[1])
        case OtherEntities(left, right):
            return plain(joined_with_others(ran(left, tables), ran(right, tables)).segments)
        case SameEntity(left, right):
            both = [keyed(ran(each, tables)) for each in (left, right)]
            return node.run(*both).segments
        case Unary(OverEntities() as step, of):
            return step.run(keyed(ran(of, tables))).segments
    return node.step.run(keyed(ran(node.of, tables))).segments


X, Z = Input(0, Shape((), ("x",))), Input(1, Shape((), ("z",)))
SHORT, LONG = SECOND // 2, 17 * SECOND // 10
PLANS = {
    "source": XY,
    "linear": mapped(XY, o="2 * x - y / 4 + 1", p="x"),
    "product": mapped(XY, o="x * y - 3 * x", p="pow(y, 2)"),
    "cube": mapped(X, o="x * x * x"),
    "average": average(XY, LONG),
    "part": average(XY, LONG, covered=True),
    "sum": total(XY, LONG, covered=True),
    "twice": average(total(mapped(X, x="3 * x"), SHORT), LONG),
    "greatest": extreme(X, LONG, largest=True),
    "least": mapped(extreme(Unary(Envelope((), False), X), SHORT, largest=True), o="x * x"),
    "average of entities": average(Unary(Total((), True), XY), SHORT),
    "sum of entities": mapped(Unary(Total((), False), X), o="3 * x"),
    "macd": mapped(same(average(X, SHORT), average(X, LONG), names=("a", "b")), o="a_x - b_x"),
    "parts": mapped(
        same(average(X, SHORT, covered=True), average(X, LONG, covered=True), names=("a", "b")),
        o="a_x - b_x",
    ),
    "now and before": mapped(same(X, average(X, LONG)), o="left_x - 2 * right_x"),
    "others": mapped(others(X, X), o="left_x - right_x"),
    "two": mapped(same(X, Z), o="left_x + 2 * right_z", p="left_x * right_z"),
}
TWO = drawn(("x", "y"), keys=2, most=3, degree=2, start=EPOCH)
BOUNDS = st.sampled_from([Bound(0.5), Bound(0.0), Bound(20.0), Bound(0.01, True), Bound(0.6, True)])


def moved(segments, bounds, rng, *, at_ends):
    """Return models that are off by no more than bounds: at once, or more and more."""
    coefs = {}
    for name, rows in segments.coefs.items():
        bound = bounds.get(name, Bound(3.0))  # what no output needs may be anything
        n = len(segments)
        shares = rng.choice([-1.0, 1.0], n) if at_ends else rng.uniform(-1, 1, n)
        coefs[name] = rows.copy()
        if bound.is_relative:
            coefs[name] *= 1 + bound.value * shares[:, None]
            continue
        coefs[name][:, 0] += bound.value * shares
        if rows.shape[1] > 1 and not at_ends:
            # From one end of what is allowed to anywhere else, on a line.
            length = (segments.hi - segments.lo) / SECOND
            slope = bound.value * (rng.uniform(-1, 1, n) - shares) / length
            since = (segments.lo - segments.origin) / SECOND
            coefs[name][:, 0] -= slope * since
            coefs[name][:, 1] += slope
    return replace(segments, coefs=coefs)


def moved_all(tables, found, rng, *, at_ends):
    return [
        moved(table, found.bounds.get(at, {}), rng, at_ends=at_ends)
        for at, table in enumerate(tables)
    ]


def hulls(one, other):
    found = {}
    for at, tables in enumerate(zip(one, other, strict=True)):
        given = [values_of(each) for each in tables]
        found[at] = {
            name: Range(min(e[name].low for e in given), max(e[name].high for e in given), 1.0)
            for name in given[0]
        }
    return found


def covers(values, now):
    return all(
        values[at][name].low <= each.low and each.high <= values[at][name].high
        for at, ranges in now.items()
        for name, each in ranges.items()
    )


@given(
    one=TWO,
    other=drawn(("z",), keys=2, most=3, degree=1, start=EPOCH),
    bound=BOUNDS,
    name=st.sampled_from([*PLANS]),
    split=st.sampled_from([EQUAL, GRADIENT]),
    seed=st.integers(0, 2**32),
    shift=st.sampled_from([0.0, 60.0]),
)
def test_outputs_of_inputs_within_their_bounds_are_within_theirs(
    one, other, bound, name, split, seed, shift
):
    one.coefs["x"][:, 0] += shift
    plan, rng = PLANS[name], np.random.default_rng(seed)
    rows = [one, other]
    room = 50 if shift == 0 else 0
    values = {
        at: {
            each: Range(low - room, high + room, rng.uniform(0, 5))
            for each, (low, high, _) in values_of(table).items()
        }
        for at, table in enumerate(rows)
    }
    node = Unary(Within(dict.fromkeys(plan.shape.attributes, bound), split), plan)
    try:
        found = required(node, values)
    except OptionError:
        assert bound.is_relative or name == "sum of entities"
        return
    models = moved_all(rows, found, rng, at_ends=seed % 2 == 0)
    now = hulls(rows, models)
    if found.any_values[id(node.step)] != {*plan.shape.attributes} and not covers(values, now):
        # What was taken for granted does not hold: ask again.
        found = required(node, now)
        models = moved_all(rows, found, rng, at_ends=True)
        if not covers(now, hulls(rows, models)):
            return
    expected, got = run(plan, rows), run(plan, models)
    for output, values_at in expected.items():
        assert values_at.keys() == got[output].keys()
        for at, value in values_at.items():
            allowed = bound.value * abs(value) if bound.is_relative else bound.value
            rounding = 1e-9 * (1 + abs(value))
            assert abs(got[output][at] - value) <= allowed + rounding, (output, at)
