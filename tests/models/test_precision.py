"""Bounds of outputs as bounds of inputs: outputs of inputs within theirs are within their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.errors import OptionError
from eddyline.models.bounds import Bound, read_bounds
from eddyline.models.condition_text import read_expression
from eddyline.models.expressions import projected
from eddyline.models.extrema import envelope, windowed_extremum
from eddyline.models.joins import joined, joined_with_others
from eddyline.models.plans import Aggregated, Distance, Mapped, Paired, Selected, Source
from eddyline.models.precision import Precision, inverted, names_of, resplit, values_of
from eddyline.models.sampling import sampled
from eddyline.models.windows import windowed_average, windowed_sum
from tests.models.pieces import EPOCH, SECOND, drawn, pieces

PRICE = Source("trades", ("ap",))


def mapped(part, **texts):
    return Mapped(part, {n: read_expression(text, names_of(part)) for n, text in texts.items()})


def macd():
    sides = [Aggregated(PRICE, "avg", width * SECOND) for width in (10, 60)]
    return mapped(Paired(*sides, names=("S", "L")), diff="S.ap - L.ap")


def numbers(found):
    return {
        source: {name: each.value for name, each in bounds.items()}
        for source, bounds in found.bounds.items()
    }


def test_t21_equal_splits_and_the_kernel():
    within = read_bounds({"diff": 0.5})
    steps = inverted(macd(), within, by_steps=True)
    assert numbers(steps)["trades"]["ap"] == pytest.approx(0.25, abs=1e-9)
    whole = inverted(macd(), within)
    assert numbers(whole)["trades"]["ap"] == pytest.approx(0.3, abs=1e-9)
    sides = macd().part
    pair = inverted(mapped(Source("p", ("S.ap", "L.ap")), diff="S.ap - L.ap"), within)
    assert numbers(pair)["p"] == pytest.approx({"S.ap": 0.25, "L.ap": 0.25}, abs=1e-9)
    assert numbers(inverted(sides, {"S.ap": Bound(0.25)})) == {"trades": {"ap": 0.25}}


def test_the_bound_of_the_kernel_is_not_less_than_it_has_to_be():
    """A price that is off by the bound, up for 10 s and down before, moves MACD by all of 0.5."""
    bound = numbers(inverted(macd(), {"diff": Bound(0.5)}))["trades"]["ap"]
    off = pieces((0, 0, 50, {"ap": [-bound]}), (0, 50, 61, {"ap": [bound]}))
    assert run(macd(), {"trades": off})["diff"][0, 60 * SECOND] == pytest.approx(0.5, rel=1e-9)


def test_distances_have_a_share_for_each_coordinate():
    ships = Source("ships", ("x", "y"))
    pairs = Paired(ships, ships, is_same_entity=False)
    far = Distance(pairs, (("left.x", "right.x"), ("left.y", "right.y")))
    found = numbers(inverted(Aggregated(far, "avg", SECOND), {"distance": Bound(1.0)}))["ships"]
    assert found == pytest.approx({"x": 8**-0.5, "y": 8**-0.5})
    near = {"ships": {"x": (0.0, 1.0), "y": (3.0, 4.0)}}
    with pytest.raises(OptionError, match="may be 0"):
        inverted(far, read_bounds({"distance": "1 %"}), near)


@pytest.mark.parametrize(
    ("text", "bound", "said"),
    [
        ("x - y", "1 %", "terms of it may cancel, and its range is not known"),
        ("x + y", "1 %", "is not known"),
        ("x * y", "0.5", "how near 'x' has to be depends on how large it is"),
        ("d(x)", "0.5", "has d()"),
    ],
)
def test_what_cannot_be_guaranteed_is_refused(text, bound, said):
    with pytest.raises(OptionError) as caught:
        inverted(mapped(Source("s", ("x", "y")), o=text), read_bounds({"o": bound}))
    assert said in caught.value.message


def test_shares_go_through_what_does_not_cancel():
    source = Source("s", ("x", "y"))
    share = Bound(0.1, is_relative=True)

    def of(plan, values=None):
        return inverted(plan, dict.fromkeys(names_of(plan), share), values).bounds["s"]

    assert of(Aggregated(source, "max", SECOND)) == {"x": share, "y": share}
    assert of(mapped(source, o="3 * x")) == {"x": share}
    third = of(mapped(source, o="x * x * y"))["x"]
    assert third.is_relative
    assert (1 + third.value) ** 3 == pytest.approx(1.1)
    positive = {"s": {"x": (1.0, 5.0), "y": (0.0, 5.0)}}
    assert of(mapped(source, o="x + y"), positive) == {"x": share, "y": share}
    assert of(Aggregated(source, "avg", SECOND), positive) == {"x": share, "y": share}
    with pytest.raises(OptionError, match="range is not known"):
        of(Aggregated(source, "avg", SECOND))
    with pytest.raises(OptionError, match="may be 0"):
        of(mapped(source, o="x - y"), positive)
    apart = {"s": {"x": (11.0, 15.0), "y": (0.0, 5.0)}}
    found = of(mapped(source, o="x - y"), apart)
    assert found["x"].value == pytest.approx(6 * 0.1 / 1.1 / 2)
    assert not found["x"].is_relative


def test_shares_of_sums_of_products_are_those_of_the_longest():
    """1.1 * 1.1 is more than 1.2: a square takes more than twice the share of its factors."""
    positive = {"s": {"x": (1.0, 5.0), "y": (0.0, 5.0)}}
    plan = mapped(Source("s", ("x", "y")), o="x * x + y")
    found = inverted(plan, read_bounds({"o": "21 %"}), positive).bounds["s"]
    assert {name: each.value for name, each in found.items()} == pytest.approx({"x": 0.1, "y": 0.1})


def test_an_extreme_has_no_share_above_its_own_value():
    """-1 that is off by 200 % is 1, and then the greatest of -1 and 0.1 is 1."""
    plan = Aggregated(Source("s", ("x",)), "max", SECOND)
    with pytest.raises(OptionError, match="200 %"):
        inverted(plan, {"x": Bound(2.0, is_relative=True)})


def test_errors_cancel_only_where_they_are_surely_the_same():
    within = {"diff": Bound(0.5)}
    two = mapped(Paired(PRICE, PRICE, is_same_entity=False), diff="left.ap - right.ap")
    assert numbers(inverted(two, within))["trades"]["ap"] == pytest.approx(0.25)
    same = mapped(Paired(PRICE, PRICE), diff="left.ap - right.ap")
    assert inverted(same, within).bounds == {}
    # Windows that count in part are of any length: the shorter may be none of the longer.
    sides = [Aggregated(PRICE, "avg", width * SECOND, is_covered=True) for width in (10, 60)]
    part = mapped(Paired(*sides), diff="left.ap - right.ap")
    assert numbers(inverted(part, within))["trades"]["ap"] == pytest.approx(0.25)
    twice = Aggregated(Aggregated(PRICE, "sum", 2 * SECOND), "avg", 60 * SECOND)
    assert numbers(inverted(twice, {"ap": Bound(0.5)}))["trades"]["ap"] == pytest.approx(0.25)


def test_an_unknown_output_is_refused():
    with pytest.raises(OptionError, match="'dif', which is no output; there are diff"):
        inverted(macd(), {"dif": Bound(1.0)})
    with pytest.raises(OptionError, match="longer than 0"):
        Aggregated(PRICE, "avg")
    with pytest.raises(OptionError, match="function"):
        Aggregated(PRICE, "mean", SECOND)


def test_bounds_are_split_again_when_values_leave_their_ranges():
    plan = mapped(Source("s", ("x", "y")), o="x * y")
    within = {"o": Bound(1.0)}
    now = {"s": {"x": (1.0, 2.0), "y": (-3.0, 4.0)}}
    first = resplit(plan, within, now)
    assert first.covers(now)
    moved = {"s": {"x": (1.0, 2.4), "y": (-3.0, 4.0)}}
    assert resplit(plan, within, moved, first) is first
    away = {"s": {"x": (1.0, 20.0), "y": (-3.0, 4.0)}}
    second = resplit(plan, within, away, first)
    assert not first.covers(away)
    assert numbers(second)["s"]["y"] < numbers(first)["s"]["y"]
    back = resplit(plan, within, now, second)
    assert numbers(back) == numbers(first)
    always = resplit(mapped(Source("s", ("x",)), o="2 * x"), within, {}, None)
    assert always.covers(away)
    assert not Precision({}, {"s": {"z": (0.0, 1.0)}}).covers(now)


def test_values_are_those_of_models_and_of_rows():
    segments = pieces(
        (0, 0, 4, {"x": [4, -4, 1]}), (1, 0, 1, {"x": [float("nan")]}), (2, 0, 9, None), errors=0.5
    )
    assert values_of(segments) == {"x": (-0.5, 4.5)}


def run(plan, tables):
    """Return the outputs of a plan by (entity or pair, time), every tenth of a second."""
    found = sampled(ran(plan, tables), SECOND // 10)
    at = [*zip(found.keys.tolist(), found.times.tolist(), strict=True)]
    return {
        name: dict(zip(at, values.tolist(), strict=True)) for name, values in found.values.items()
    }


def ran(plan, tables):
    match plan:
        case Source(name, attributes):
            segments = tables[name]
            taken = [{each: of[each] for each in attributes} for of in
                     (segments.coefs, segments.errors)]  # fmt: skip
            return replace(segments, coefs=taken[0], errors=taken[1])
        case Selected(part):
            return ran(part, tables)
        case Mapped(part, columns):
            return projected(ran(part, tables), columns)
        case Paired(left, right, names, is_same):
            joins = joined if is_same else joined_with_others
            return joins(ran(left, tables), ran(right, tables), names=names).segments
    return aggregate(plan, ran(plan.part, tables))


def aggregate(plan, segments):
    if plan.function in {"avg", "sum"}:
        windowed = windowed_average if plan.function == "avg" else windowed_sum
        return windowed(segments, plan.width_us, covered=plan.is_covered)
    (name,) = segments.coefs
    largest = plan.function == "max"
    if plan.width_us == 0:
        return envelope(segments, name, largest=largest).segments
    return windowed_extremum(segments, name, plan.width_us, largest=largest)


X, XY, Z = Source("s", ("x",)), Source("s", ("x", "y")), Source("t", ("z",))
SHORT, LONG = SECOND // 2, 17 * SECOND // 10
PLANS = {
    "source": XY,
    "linear": mapped(XY, o="2 * x - y / 4 + 1", p="x"),
    "product": mapped(XY, o="x * y - 3 * x", p="pow(y, 2)"),
    "cube": mapped(X, o="x * x * x"),
    "average": Aggregated(XY, "avg", LONG),
    "part": Aggregated(XY, "avg", LONG, is_covered=True),
    "sum": Aggregated(XY, "sum", LONG, is_covered=True),
    "twice": Aggregated(Aggregated(mapped(X, x="3 * x"), "sum", SHORT), "avg", LONG),
    "greatest": Aggregated(X, "max", LONG),
    "least": mapped(Aggregated(Aggregated(X, "min", 0), "max", SHORT), o="x * x"),
    "macd": mapped(
        Paired(Aggregated(X, "avg", SHORT), Aggregated(X, "avg", LONG), names=("a", "b")),
        o="a.x - b.x",
    ),
    "parts": mapped(
        Paired(
            Aggregated(X, "avg", SHORT, is_covered=True),
            Aggregated(X, "avg", LONG, is_covered=True),
            names=("a", "b"),
        ),
        o="a.x - b.x",
    ),
    "now and before": mapped(Paired(X, Aggregated(X, "avg", LONG)), o="left.x - 2 * right.x"),
    "others": mapped(Paired(X, X, is_same_entity=False), o="left.x - right.x"),
    "two": Selected(mapped(Paired(X, Z), o="left.x + 2 * right.z", p="left.x * right.z")),
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


def hull(*given):
    names = set().union(*given)
    return {
        name: (min(each[name][0] for each in given), max(each[name][1] for each in given))
        for name in names
    }


@given(
    one=TWO,
    other=drawn(("z",), keys=2, most=3, degree=1, start=EPOCH),
    bound=BOUNDS,
    name=st.sampled_from([*PLANS]),
    by_steps=st.booleans(),
    seed=st.integers(0, 2**32),
    shift=st.sampled_from([0.0, 60.0]),
)
def test_outputs_of_inputs_within_their_bounds_are_within_theirs(
    one, other, bound, name, by_steps, seed, shift
):
    one.coefs["x"][:, 0] += shift
    plan, rng = PLANS[name], np.random.default_rng(seed)
    rows = {"s": one, "t": other}
    wide = {
        source: {each: (low - 50, high + 50) for each, (low, high) in values_of(table).items()}
        if shift == 0
        else values_of(table)
        for source, table in rows.items()
    }
    within = dict.fromkeys(names_of(plan), bound)
    try:
        found = inverted(plan, within, wide, by_steps=by_steps)
    except OptionError:
        assert bound.is_relative
        return
    models = {
        source: moved(table, found.bounds.get(source, {}), rng, at_ends=seed % 2 == 0)
        for source, table in rows.items()
    }
    values = {
        source: hull(*(values_of(each[source]) for each in (rows, models))) for source in rows
    }
    if not found.covers(values):  # what was taken for granted does not hold: ask again
        found = inverted(plan, within, values, by_steps=by_steps)
        models = {
            source: moved(table, found.bounds.get(source, {}), rng, at_ends=True)
            for source, table in rows.items()
        }
        again = {s: hull(*(values_of(each[s]) for each in (rows, models))) for s in rows}
        if not found.covers(again):
            return
    expected, got = run(plan, rows), run(plan, models)
    for output, values_at in expected.items():
        assert values_at.keys() == got[output].keys()
        for at, value in values_at.items():
            allowed = bound.value * abs(value) if bound.is_relative else bound.value
            rounding = 1e-9 * (1 + abs(value))
            assert abs(got[output][at] - value) <= allowed + rounding, (output, at)
