from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from eddyline.change import DETECTORS
from eddyline.errors import OptionError
from eddyline.filters.loop import check_options
from eddyline.joins.orders import pipelines as joins
from eddyline.options import (
    OFF_SWITCH,
    REMOVED,
    AlarmOptions,
    FilterOptions,
    JoinOptions,
    ModelOptions,
    SharingOptions,
    adaptation_is_off,
)
from eddyline.rules import choice as rules
from eddyline.rules.plan import MAX_SAMPLED
from eddyline.runtime.monitors import monitor as find_monitor
from eddyline.runtime.order_loop import MIN_FILL, WARMUP_PROB, WINDOW_ROWS
from eddyline.spark.filters.operator import READ_SAMPLE_ROWS

RANGES = {
    "sample_prob": (0.0, 1.0),
    "max_overhead": (1e-6, 1.0),
    "seed": (0, 2**63),
}
ENDS = [(name, end) for name, ends in RANGES.items() for end in ends]


@pytest.mark.parametrize(("name", "end"), ENDS)
def test_the_ends_of_a_range_belong_to_it(name, end):
    assert getattr(FilterOptions.of(**{name: end}), name) == end


OUTSIDE = [
    (name, value)
    for name, (low, high) in RANGES.items()
    for value in (low - 1, high + 1, -math.inf, math.inf, math.nan, True, "1", None)
]


@pytest.mark.parametrize(("name", "value"), OUTSIDE)
def test_a_value_out_of_range_is_refused_with_the_range(name, value):
    with pytest.raises(OptionError, match=rf"'{name}' must be a .*number in \[") as caught:
        FilterOptions.of(**{name: value})
    assert caught.value.facts["name"] == name
    assert repr(value) in caught.value.message


@pytest.mark.parametrize("value", [100.5, 200.0, np.float64(300)])
def test_what_counts_something_is_whole(value):
    with pytest.raises(OptionError, match="whole number"):
        FilterOptions.of(seed=value)


def test_numbers_of_numpy_are_numbers():
    options = FilterOptions(seed=np.int64(500), sample_prob=np.float32(0.5))
    assert (options.seed, options.sample_prob) == (500, 0.5)


GONE = {
    "warmup_prob": [(FilterOptions, WARMUP_PROB, "a tenth")],
    "min_fill": [(FilterOptions, MIN_FILL, "100")],
    "window_rows": [(FilterOptions, WINDOW_ROWS, "1,000"), (JoinOptions, WINDOW_ROWS, "1,000")],
    "read_sample_rows": [(FilterOptions, READ_SAMPLE_ROWS, "2,000")],
    "sample_rows": [
        (SharingOptions, MAX_SAMPLED, "2,000"),
        (JoinOptions, joins.SAMPLE_ROWS, "200"),
    ],
    "review_rows": [(SharingOptions, rules.REVIEW_ROWS, "50,000")],
    "min_change": [(SharingOptions, rules.MIN_CHANGE, "a tenth")],
    "risk": [(AlarmOptions, None, "expected cost"), (ModelOptions, None, "expected cost")],
}


def test_an_option_that_is_gone_says_what_is_done_now():
    assert GONE.keys() == REMOVED.keys()
    for name, uses in GONE.items():
        for options, constant, words in uses:
            with pytest.raises(OptionError, match=f"option '{name}' is gone: ") as caught:
                options.of(**{name: constant})
            assert words in caught.value.message
            if constant is not None:
                assert words == ("a tenth" if constant == 0.1 else f"{constant:,}")


@pytest.mark.parametrize("name", ["adaptive", "routing", "read_sample"])
@pytest.mark.parametrize("value", ["no", 0, 1, None])
def test_a_switch_is_true_or_false(name, value):
    with pytest.raises(OptionError, match=f"'{name}' must be True or False"):
        FilterOptions.of(**{name: value})


def test_an_unknown_monitor_comes_with_a_hint():
    with pytest.raises(OptionError, match="unknown monitor 'windw'; known: window") as error:
        check_options(FilterOptions(monitor="windw"))
    assert "did you mean 'window'?" in str(error.value)


@pytest.mark.parametrize("monitor", ["window", "two_sample", *DETECTORS])
def test_a_monitor_is_known_by_its_name(monitor):
    check_options(FilterOptions(monitor=monitor))
    check_options(FilterOptions(monitor=find_monitor(monitor)))


@pytest.mark.parametrize("monitor", [None, 3, object(), dict])
def test_a_monitor_is_a_name_or_a_detector(monitor):
    with pytest.raises(OptionError, match="a detector is a name, an options object"):
        check_options(FilterOptions(monitor=monitor))


@pytest.mark.parametrize("route_by", ["city", 3, [3], [""], {"city"}])
def test_route_by_is_a_list_of_texts(route_by):
    with pytest.raises(OptionError, match="'route_by' must be a list"):
        FilterOptions(route_by=route_by)


def test_route_by_keeps_each_name_once():
    assert FilterOptions(route_by=["a", "b", "a"]).route_by == ("a", "b")


@pytest.mark.parametrize(
    ("given", "hint"),
    [("sample_probability", "sample_prob"), ("maxoverhead", "max_overhead"), ("Seed", "seed")],
)
def test_an_unknown_option_comes_with_a_hint(given, hint):
    with pytest.raises(OptionError, match=f"did you mean '{hint}'") as caught:
        FilterOptions.of(**{given: 1})
    assert caught.value.facts["known"] == [each.name for each in dataclasses.fields(FilterOptions)]


def test_an_unknown_option_like_none_comes_without_a_hint():
    with pytest.raises(OptionError) as caught:
        FilterOptions.of(xyzzy=1)
    assert "did you mean" not in caught.value.message


@pytest.mark.parametrize("value", ["0", "false", "NO", " off "])
def test_the_environment_switches_adaptation_off(monkeypatch, value):
    monkeypatch.setenv(OFF_SWITCH, value)
    assert adaptation_is_off()
    assert not FilterOptions().resolved().adaptive


@pytest.mark.parametrize("value", ["", "1", "true", "on"])
def test_other_values_leave_it_on(monkeypatch, value):
    monkeypatch.setenv(OFF_SWITCH, value)
    assert FilterOptions().resolved().adaptive
    assert not FilterOptions(adaptive=False).resolved().adaptive


def test_options_cannot_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        FilterOptions().seed = 3
