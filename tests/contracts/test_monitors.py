"""Every registered monitor keeps its contract: the two of the table, and each detector as one."""

from __future__ import annotations

import copy
import json
import pickle
import random
from dataclasses import FrozenInstanceError, fields, replace
from functools import cache

import msgspec
import numpy as np
import pytest

from eddyline.change import DETECTORS
from eddyline.errors import OptionError, StateError
from eddyline.options import FilterOptions
from eddyline.runtime.monitors import (
    MONITORS,
    DetectorMonitorOptions,
    TwoSampleOptions,
    WindowOptions,
    monitor,
)
from eddyline.runtime.order_loop import OrderLoop
from eddyline.stats.costs import CostSums
from eddyline.stats.profile import FilterProfile, merge

NAMES = ("a", "b", "c", "d")
BEFORE, AFTER = (0.8, 0.5, 0.2, 0.1), (0.1, 0.2, 0.6, 0.9)
ORDER, OTHER = (0, 1, 2, 3), (3, 2, 1, 0)
N_STEADY, N_CHANGED, BATCH_ROWS = 8, 8, 600
SEED = 7

ALL = {
    **{name: each() for name, each in MONITORS.items()},
    **{name: monitor(name) for name in DETECTORS},
}
VARIANTS = {
    "two_sample z 2": TwoSampleOptions(z_score=2.0),
    "no costs": DetectorMonitorOptions(watch_costs=False),
    "no two_sample": DetectorMonitorOptions(two_sample=False, block_rows=10),
    "adwin of two": DetectorMonitorOptions(detector="adwin", block_rows=2),
}
every = pytest.mark.parametrize(
    "options", [*ALL.values(), *VARIANTS.values()], ids=[*ALL, *VARIANTS]
)


@cache
def batches(seed=1):
    """Return the fresh profiles and cost ratios of a stream that changes half-way."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(N_STEADY + N_CHANGED):
        is_late = number >= N_STEADY
        drops = rng.random((BATCH_ROWS, len(NAMES))) < np.array(AFTER if is_late else BEFORE)
        calls = np.full(len(NAMES), float(BATCH_ROWS))
        costs = CostSums.of_calls(calls, calls * (900.0 if is_late else 100.0))
        fresh = frozen(FilterProfile.of_sample(NAMES, drops, costs=costs))
        ratios = np.full(len(NAMES), 9.0 if number == N_STEADY else 1.0)
        ratios.flags.writeable = False
        found.append((fresh, ratios))
    return found


def frozen(profile):
    """Return a profile with arrays that raise when they are written to."""
    for array in (profile.codes, profile.weights, profile.rows_in, profile.rows_out):
        array.flags.writeable = False
    return profile


class Fed:
    """A monitor as the loop feeds it: the window is what was seen so far, one change of order."""

    def __init__(self, options, seed=SEED):
        self.monitor = options.build(len(NAMES), seed)
        self.known = FilterProfile.empty(NAMES)
        self.order = ORDER

    def step(self, fresh, ratios):
        found = self.monitor.observe(fresh, self.order, frozen(self.known), ratios)
        self.known = merge([self.known, fresh])
        return found if found is None else (found.n_fresh, plain(found.costs), found.evidence)

    def turn(self):
        self.monitor.reordered(self.order, OTHER)
        self.order = OTHER

    def restarted(self, options, seed=SEED):
        again = copy.copy(self)
        again.monitor = options.build(len(NAMES), seed)
        again.monitor.restore(json.loads(json.dumps(self.monitor.snapshot(), allow_nan=False)))
        return again


def plain(costs):
    return None if costs is None else costs.tolist()


def ran(options, seed=SEED):
    """Return what a monitor finds in every batch, with a change of order on the way."""
    fed, found = Fed(options, seed), []
    for number, each in enumerate(batches()):
        if number == N_STEADY // 2:
            fed.turn()
        found.append(fed.step(*each))
    return found


@every
def test_options_travel_and_stay_as_they_are(options):
    assert pickle.loads(pickle.dumps(options)) == options
    for field in fields(options):
        with pytest.raises((FrozenInstanceError, AttributeError)):
            setattr(options, field.name, None)


@every
def test_the_same_evidence_gives_the_same_findings(options):
    """No clock, no randomness but by the seed, and inputs that no one writes to."""
    drawn = np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002 - is left alone
    assert ran(options) == ran(options)
    assert (np.random.get_state()[1] == drawn[0]).all()  # noqa: NPY002
    assert random.getstate() == drawn[1]


@pytest.mark.large
@every
def test_a_change_is_found_whatever_the_seed(options):
    if isinstance(options, WindowOptions):
        pytest.skip("the window forgets by age, and looks for no change")
    for seed in range(5):
        found = ran(options, seed)
        assert any(found[N_STEADY:]), "drop fractions and costs have turned round"


@every
def test_findings_are_plain_and_in_range(options):
    fed = Fed(options)
    for fresh, ratios in batches():
        found = fed.monitor.observe(fresh, ORDER, fed.known, ratios)
        fed.known = merge([fed.known, fresh])
        if found is None:
            continue
        assert found.n_fresh is not None or found.costs is not None, "a finding of nothing"
        assert found.n_fresh is None or 0 <= found.n_fresh <= fed.known.n_tuples
        assert found.costs is None or (found.costs.shape, found.costs.dtype) == ((4,), np.bool_)
        json.dumps(found.evidence, allow_nan=False)


@every
def test_a_restored_monitor_goes_on_alike(options):
    fed, changed = Fed(options), False
    for number, each in enumerate(batches()):
        if number == N_STEADY // 2:
            fed.turn()
        again = fed.restarted(options)
        saved = json.dumps(fed.monitor.snapshot())
        assert json.dumps(again.monitor.snapshot()) == saved, "restoring changes the state"
        found = fed.step(*each)
        assert again.step(*each) == found, f"restored before batch {number}: finds another change"
        changed |= json.dumps(fed.monitor.snapshot()) != saved
        assert json.dumps(fed.restarted(options).monitor.snapshot()) == json.dumps(
            fed.monitor.snapshot()
        )
    assert changed or saved == "{}", "it keeps something, and saves the same all the time"


@every
def test_a_snapshot_is_a_value(options):
    fed = Fed(options)
    fed.step(*batches()[0])
    snapshot = fed.monitor.snapshot()
    saved = json.dumps(snapshot)
    for each in batches()[1:]:
        fed.step(*each)
    assert json.dumps(snapshot) == saved, "what was saved changes with the monitor"


@every
def test_a_batch_without_rows_is_no_evidence(options):
    empty = FilterProfile.empty(NAMES)
    unknown = np.full(len(NAMES), np.nan)
    fed = Fed(options)
    assert fed.step(empty, unknown) is None
    for each in batches()[:N_STEADY]:
        fed.step(*each)
    saved = json.dumps(fed.monitor.snapshot())
    assert fed.step(empty, unknown) is None
    assert json.dumps(fed.monitor.snapshot()) == saved


@every
def test_one_filter_and_many_are_watched(options):
    for n_filters in (1, 64):
        names = tuple(f"f{n}" for n in range(n_filters))
        order = tuple(range(n_filters))
        watched = options.build(n_filters, SEED)
        drops = np.random.default_rng(0).random((200, n_filters)) < 0.3
        known = FilterProfile.empty(names)
        for _ in range(3):
            fresh = FilterProfile.of_sample(names, drops)
            watched.observe(fresh, order, known, np.ones(n_filters))
            known = merge([known, fresh])
        watched.reordered(order, order[::-1])


@every
def test_the_policy_is_asked_when_all_is_new_and_never_without_news(options):
    watched = options.build(len(NAMES), SEED)
    for n_tuples in (0, 1, 500, 1000):
        assert not watched.is_due(n_tuples, 0, 1000)
    assert watched.is_due(1000, 1000, 1000)
    due = [bool(watched.is_due(1000, n_new, 1000)) for n_new in range(1001)]
    assert due == sorted(due), "more news, and less of a reason to ask"


@every
def test_switched_off_it_is_never_asked(options):
    def loop(**more):
        return OrderLoop("x", NAMES, FilterOptions(monitor=options, **more), clock=lambda: 0)

    off = loop(adaptive=False)
    untouched = json.dumps(off.monitor.snapshot())
    for number, (fresh, _) in enumerate(batches()):
        assert off.step(fresh, number) == []
        assert off.sample_prob() == 0.0
    assert off.order == ORDER
    assert json.dumps(off.monitor.snapshot()) == untouched
    learned = loop()
    for number, (fresh, _) in enumerate(batches()):
        learned.step(fresh, number)
    assert learned.order != ORDER, "the same evidence changes the order where it may"
    off.restore(json.loads(msgspec.json.encode(learned.snapshot())))
    assert off.order == ORDER


@every
def test_a_damaged_state_is_said_to_be_damaged(options):
    def loop():
        return OrderLoop("x", NAMES, FilterOptions(monitor=options), clock=lambda: 0)

    learned = loop()
    for number, (fresh, _) in enumerate(batches()):
        learned.step(fresh, number)
    state = json.loads(msgspec.json.encode(learned.snapshot()))
    loop().restore(state)
    for key in state["monitor"]:
        for damage in ({}, {key: None}):
            rest = {name: each for name, each in state["monitor"].items() if name != key}
            with pytest.raises(StateError):
                loop().restore({**state, "monitor": {**rest, **damage}})


def test_what_is_no_monitor_is_refused():
    with pytest.raises(OptionError, match=r"two_sampel.*did you mean"):
        monitor("two_sampel")
    with pytest.raises(OptionError):
        monitor(5)
    with pytest.raises(OptionError):
        replace(DetectorMonitorOptions(), block_rows=1)


@pytest.mark.large
def test_costs_are_left_alone_where_they_are_not_watched():
    """Only costs change: who does not watch them finds nothing."""
    drops = np.random.default_rng(3).random((BATCH_ROWS, len(NAMES))) < np.array(BEFORE)
    fresh = FilterProfile.of_sample(NAMES, drops)
    for watches, expected in ((True, True), (False, False)):
        watched = DetectorMonitorOptions(watch_costs=watches, two_sample=False).build(4, SEED)
        known, found = FilterProfile.empty(NAMES), []
        for number in range(400):
            ratios = np.full(len(NAMES), 1.0 if number < 200 else 9.0)
            change = watched.observe(fresh, ORDER, known, ratios)
            found.append(change is not None and change.costs is not None)
        assert any(found) is expected
