"""How a fit is asked for: what is read, and what is refused."""

from __future__ import annotations

from datetime import timedelta

import pytest

from eddyline.errors import OptionError
from eddyline.models.fitting.bounds import Bound, FitOptions, read_bounds, read_gap


@pytest.mark.parametrize(
    ("given", "bound", "text"),
    [
        (0.5, Bound(0.5), "0.5"),
        ("0.5", Bound(0.5), "0.5"),
        (" 2.5e-3 ", Bound(0.0025), "0.0025"),
        (0, Bound(0.0), "0"),
        ("1 %", Bound(0.01, is_relative=True), "1 %"),
        ("12%", Bound(0.12, is_relative=True), "12 %"),
    ],
)
def test_a_bound_is_a_number_or_a_share(given, bound, text):
    assert read_bounds({"lat": given}) == {"lat": bound}
    assert str(bound) == text


@pytest.mark.parametrize("given", [-1, "-1 %", float("nan"), float("inf"), "close", None, True, []])
def test_what_is_no_bound_is_refused_by_name(given):
    with pytest.raises(OptionError, match=r"within\['lat'\] is a finite number of 0 or more"):
        read_bounds({"lon": 1, "lat": given})


@pytest.mark.parametrize("given", [{}, None, 0.5, ["lat"], {1: 0.5}, {"": 0.5}])
def test_bounds_are_given_by_name(given):
    with pytest.raises(OptionError):
        read_bounds(given)


@pytest.mark.parametrize(
    ("given", "micros"),
    [
        (None, None),
        (1.5, 1_500_000),
        ("10 minutes", 600_000_000),
        ("1 hour 30 minutes", 5_400_000_000),
        (timedelta(milliseconds=2), 2_000),
    ],
)
def test_a_gap_is_an_interval_or_seconds(given, micros):
    assert read_gap(given) == micros


@pytest.mark.parametrize("given", [0, -1, "0 seconds", "1 month", "soon", float("nan"), True, []])
def test_what_is_no_gap_is_refused(given):
    with pytest.raises(OptionError, match="max_gap is an interval such as '10 minutes'"):
        read_gap(given)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("method", "slide"),
        ("degree", 5),
        ("degree", 1.0),
        ("prefix_rows", 15),
        ("max_gap_us", 0),
    ],
)
def test_options_say_which_value_is_out_of_range(name, value):
    with pytest.raises(OptionError, match=name):
        FitOptions(**{name: value})
