from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.errors import NotSupportedError
from eddyline.models.fitting.bounds import (
    LEAST_SHARE,
    reach_on,
    shares_of,
    spread,
    weights_of,
)
from eddyline.models.solving.expressions import Number, Terms, terms_of
from eddyline.models.solving.text import read_expression
from eddyline.models.solving.where import begun
from tests.models.pieces import SECOND, pieces

NAMES = ["x", "y", "z"]


def terms(*coefs):
    return {
        name: Terms(np.array([each]), np.abs([each]))
        for name, each in zip(NAMES, coefs, strict=False)
    }


def near(expression):
    assert isinstance(expression, Number), "only products look at how large attributes are"
    return np.full(1, abs(expression.value))


def split(text, amount, reach=near, shares=None):
    found = spread(read_expression(text, NAMES), np.array([amount]), reach, shares)
    return {name: float(each[0]) for name, each in found.items()}


def test_t22_shares_are_by_how_fast_attributes_move():
    shares = {name: np.array([each]) for name, each in shares_of({"x": 3.0, "y": 1.0}).items()}
    for text in ("x + y", "x - y"):
        found = split(text, 0.4, shares=shares)
        assert found == pytest.approx({"x": 0.3, "y": 0.1}, abs=1e-9)


def test_what_rests_has_the_least_share():
    least = LEAST_SHARE / 3
    expected = np.array([0.5, least, 0.5]) / (1 + least)
    found = shares_of({"x": 2.0, "y": 0.0, "z": 2.0})
    assert [*found.values()] == pytest.approx(expected)
    assert shares_of({"x": 0.0, "y": 0.0}) == {"x": 0.5, "y": 0.5}
    assert shares_of({"x": np.nan, "y": 1.0}) == {"x": 0.5, "y": 0.5}


def test_t23_the_inputs_that_caused_an_output_make_its_inverse_unique():
    """4 + 1 and -1 - 2 + 8 are both 5: what may be off by 5 depends on which inputs there were."""
    assert split("x + y", 5.0) == pytest.approx({"x": 2.5, "y": 2.5})
    assert split("x + y + z", 5.0) == pytest.approx(dict.fromkeys(NAMES, 5 / 3))


def test_what_changes_nothing_and_what_may_be_anything():
    assert split("2 * x - 3 * y", 12.0) == pytest.approx({"x": 3.0, "y": 2.0})
    assert split("x + 0 * y", 1.0) == pytest.approx({"x": 1.0, "y": np.inf})
    assert split("x", 0.3) == {"x": 0.3}
    assert split("x - y", 0.0) == {"x": 0.0, "y": 0.0}
    assert split("x - y", np.inf) == {"x": np.inf, "y": np.inf}
    with pytest.raises(NotSupportedError, match=r"has d\(\)"):
        split("x + d(y)", 1.0)
    assert split("x * x", 4.0, lambda _: np.zeros(1)) == pytest.approx({"x": 2.0})
    beside = split("x * y", 4.0, lambda _: np.zeros(1))
    assert beside == pytest.approx({"x": 2.0, "y": 2.0})  # 0 times 0, and both are off
    assert split("x * y", 4.0, lambda _: np.full(1, np.inf)) == {"x": 0.0, "y": 0.0}


def test_weights_of_sums():
    assert weights_of(read_expression("2 * (x - y / 4) - x + pow(z, 1)", NAMES)) == {
        "x": 1.0, "y": -0.5, "z": 1.0,
    }  # fmt: skip
    assert weights_of(read_expression("x * y", NAMES)) is None
    assert weights_of(read_expression("pow(x, 0) * y + pow(x, 2)", NAMES)) is None


TEXTS = ["x - 3 * y", "x * y - z", "pow(x, 3)", "(x - y) * (x - y) + z", "x * y * z", "2 * x + 1"]
VALUES = st.integers(-40, 40).map(lambda n: n / 4) | st.just(0.0)


@given(
    text=st.sampled_from(TEXTS),
    coefs=st.lists(VALUES, min_size=6, max_size=6),
    amount=st.sampled_from([1e-6, 0.5, 3.0, 1000.0]),
    seed=st.integers(0, 2**32),
    is_by_pace=st.booleans(),
)
def test_inputs_within_their_shares_are_together_within_the_whole(
    text, coefs, amount, seed, is_by_pace
):
    rng = np.random.default_rng(seed)
    expression = read_expression(text, NAMES)
    x, y, z = (coefs[at : at + 2] for at in (0, 2, 4))
    segments = pieces((0, 0, 3, {"x": x, "y": y, "z": z}))
    given_ = begun(segments, NAMES)
    length = np.array([3.0])
    read = [name for name in NAMES if name in text]
    paces = shares_of(dict(zip(read, rng.uniform(0, 3, len(read)).tolist(), strict=True)))
    shares = {name: np.array([each]) for name, each in paces.items()} if is_by_pace else None
    bounds = spread(expression, np.array([amount]), reach_on(given_, length), shares)
    times = np.linspace(0, 3, 40)
    models = {
        name: np.polyval(each[::-1], times) for name, each in zip(NAMES, (x, y, z), strict=True)
    }
    for off in (rng.uniform(-1, 1, (3, 40)), rng.choice([-1.0, 1.0], (3, 40))):
        rows = {
            name: models[name] + bounds.get(name, np.zeros(1)) * off[at]
            for at, name in enumerate(NAMES)
        }
        apart = np.abs(value(text, rows) - value(text, models))
        assert (apart <= amount + 1e-9 * (1 + np.abs(value(text, models)))).all()


def value(text, given_):
    x, y, z = (given_[name] for name in NAMES)
    return {
        "x - 3 * y": x - 3 * y,
        "x * y - z": x * y - z,
        "pow(x, 3)": x**3,
        "(x - y) * (x - y) + z": (x - y) ** 2 + z,
        "x * y * z": x * y * z,
        "2 * x + 1": 2 * x + 1,
    }[text]


@given(text=st.sampled_from(TEXTS), amount=st.floats(1e-9, 1e9))
def test_all_of_the_amount_is_given_away(text, amount):
    """At the corner where every error adds up, the whole error is the amount."""
    reach = dict.fromkeys(NAMES, 2.0)

    def size(part):
        coefs = {name: Terms(np.array([[far]]), np.array([[far]])) for name, far in reach.items()}
        return terms_of(part, coefs).size[:, 0]

    bounds = split(text, amount, size)
    if text == "(x - y) * (x - y) + z":
        b = bounds["x"] + bounds["y"]
        whole = 2 * 4 * b + b * b + bounds["z"]
    elif text == "x * y - z":
        whole = 2 * bounds["x"] + 2 * bounds["y"] + bounds["x"] * bounds["y"] + bounds["z"]
    elif text == "pow(x, 3)":
        whole = (2 + bounds["x"]) ** 3 - 8
    elif text == "x * y * z":
        whole = (2 + bounds["x"]) * (2 + bounds["y"]) * (2 + bounds["z"]) - 8
    else:
        whole = bounds["x"] + 3 * bounds["y"] if "y" in bounds else 2 * bounds["x"]
    assert whole == pytest.approx(amount, rel=1e-6)


def test_segments_are_split_each_by_its_own_values():
    segments = pieces((0, 0, 4, {"x": [1, 0], "y": [9, 0]}), (1, 0, 4, {"x": [9, 0], "y": [1, 0]}))
    given_ = begun(segments, ["x", "y"])
    length = np.full(2, 4 * SECOND / 1e6)
    found = spread(read_expression("x * y", NAMES), np.full(2, 1.0), reach_on(given_, length))
    assert found["x"][0] == pytest.approx(found["y"][1])
    assert found["x"][0] < found["x"][1]
