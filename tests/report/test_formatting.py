from __future__ import annotations

import doctest
import math

import pytest

from eddyline.report import formatting as wording


def test_doctests_hold():
    assert doctest.testmod(wording).failed == 0


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0.1, "0.1 ns"),
        (999.4, "999 ns"),
        (999.6, "1 µs"),
        (1.5e6, "1.5 ms"),
        (2e12, "2,000 s"),
        (math.nan, "-"),
        (math.inf, "-"),
        (None, "-"),
    ],
)
def test_a_duration_has_the_unit_that_suits_it(ns, text):
    assert wording.duration(ns) == text


def test_rates_and_ratios_of_the_unknown_are_unknown():
    assert wording.ratio(10, 0.0) is None
    assert wording.ratio(None, 1.0) is None
    assert wording.ratio(math.nan, 2.0) is None
    assert wording.times(wording.ratio(1.0, 0.0)) == "-"


def test_control_characters_do_not_reach_a_terminal():
    assert wording.one_line("a\x1b[31m\n  b\x07") == "a�[31m b�"


def test_a_change_of_two_long_orders_shows_where_they_differ():
    before = [f"f{i}" for i in range(200)]
    after = [*before[:100], before[101], before[100], *before[102:]]
    old, new = wording.change_texts(before, after)
    assert old.startswith("… 100 → f100 → f101")
    assert new.startswith("… 100 → f101 → f100")
    assert old.endswith("… 92 more")


def test_a_plan_that_is_not_an_order_is_written_as_it_is():
    assert wording.plan_text(None) == "-"
    assert wording.plan_text(0.05) == "0.05"
    assert wording.plan_text({"prob": 0.5}) == "{prob: 0.5}"
    assert wording.plan_text([60, 5]) == "[60, 5]"
    assert wording.change_texts([60, 5], [60, 10]) == ("[60, 5]", "[60, 10]")
    assert wording.change_texts(None, ["a", "b"]) == ("-", "a → b")


def test_evidence_is_written_without_exponents_and_quotes():
    evidence = {"n_tuples": 812, "ratio_before": 0.0123456, "orders": [1, 2]}
    assert wording.evidence_text(evidence) == "n tuples: 812, ratio before: 0.0123, orders: [1, 2]"


def test_durations_of_the_evidence_have_their_unit():
    evidence = {"costs_ns": [1_300.0, math.nan], "saved_ns": -2.5e6, "cost_ns": 900.0}
    said = "costs: [1.3 µs, -], saved: -2.5 ms, cost: 900 ns"
    assert wording.evidence_text(evidence) == said
