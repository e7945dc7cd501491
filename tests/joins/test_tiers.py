"""The loop of tiers: when a window gets a cold one, and for how long rows are hot."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.constraints.bounds import BINS_PER_OCTAVE, LearnedBound, bins_of, n_beyond, top_of
from eddyline.errors import PlanError, StateError
from eddyline.joins.plan import AgeCounts
from eddyline.joins.tiers import HELD, MOST_HOT, TierChoice

LENGTH = 1_000_000_000
N_PAIRS = 50_000


def ages(most, *, rng, n_pairs=N_PAIRS, n_cold=0):
    """The ages of rows that find their partners within so long (µs), evenly spread."""
    numbers, counts = np.unique(bins_of(rng.integers(1, most + 1, n_pairs)), return_counts=True)
    return AgeCounts(n_pairs, n_cold, dict(zip(numbers.tolist(), counts.tolist(), strict=True)))


def fed(loop, most, *, first=0, n_batches=20, every=100_000_000):
    """Feed a loop batches of pairs; each is of so much event time."""
    rng, entries = np.random.default_rng(first), []
    for number in range(first, first + n_batches):
        latest = {"s": every * (number + 1), "t": every * (number + 1)}
        entries += loop.step({"s": ages(most, rng=rng)}, latest, number)
    return entries


@pytest.mark.parametrize("most", [1_000, 1_000_000, 100_000_000])
def test_rows_are_hot_for_little_longer_than_their_partners_take(most):
    loop = TierChoice({"s": LENGTH, "t": LENGTH})
    entries = fed(loop, most)
    assert most * 0.99 <= loop.plan["s"] <= most * 1.12
    assert loop.plan["t"] is None, "nothing was found in it"
    assert [each.event for each in entries] == ["tiers"] * len(entries)
    assert entries[0].before == "s all hot"
    assert len(entries) <= 3, "small changes of the bound are no other plan"


def test_few_pairs_of_a_batch_are_enough():
    """The bound begins with the ages that are seen, not with the window."""
    loop, rng = TierChoice({"s": LENGTH}), np.random.default_rng(0)
    for number in range(20):
        latest = {"s": 100_000_000 * (number + 1)}
        loop.step({"s": ages(1_000_000, rng=rng, n_pairs=100)}, latest, number)
        assert (loop.plan["s"] is None) == (number < 9), "1,000 pairs"
    assert loop.plan["s"] <= 3_000_000


def test_a_row_that_is_older_than_all_before_is_beyond_a_bound_of_nothing():
    loop = TierChoice({"s": LENGTH})
    loop.step({"s": AgeCounts(2_000)}, {"s": 1}, 0)
    assert loop.bounds["s"].bound == 0
    loop.step({"s": AgeCounts(12, 0, {500: 5})}, {"s": 1}, 1)
    assert loop.bounds["s"].n_beyond == 5


def test_partners_that_take_half_a_window_keep_it_hot():
    loop = TierChoice({"s": LENGTH})
    assert not fed(loop, int(1.01 * MOST_HOT * LENGTH))
    assert loop.plan == {"s": None}


def test_a_bound_near_half_a_window_does_not_let_tiers_come_and_go():
    loop = TierChoice({"s": LENGTH})
    assert not fed(loop, int(0.49 * LENGTH)), "with its margin it is more than half"
    loop = TierChoice({"s": LENGTH})
    assert fed(loop, int(0.45 * LENGTH))
    hot_for = loop.plan["s"]
    assert hot_for <= MOST_HOT * LENGTH
    assert not fed(loop, int(0.46 * LENGTH), first=20), "it is still good"
    assert loop.plan["s"] == hot_for
    fed(loop, int(0.49 * LENGTH), first=40)
    assert MOST_HOT * LENGTH < loop.plan["s"] < 1.1 * MOST_HOT * LENGTH


def test_the_largest_k_that_a_person_allows_takes_the_place_of_half_a_window():
    for most, largest, is_used in [
        (400_000_000, 300_000_000, False),
        (700_000_000, None, False),
        (700_000_000, 800_000_000, True),
        (1_000_000, 0, False),
    ]:
        loop = TierChoice({"s": LENGTH}, largest)
        fed(loop, most)
        assert (loop.plan["s"] is not None) == is_used, (most, largest)
    assert loop.best_single([({"s": [N_PAIRS, []]}, N_PAIRS)]) == {"s": 0}


def test_rows_of_which_none_was_found_when_it_was_older_are_evidence():
    loop, rng = TierChoice({"s": LENGTH, "t": LENGTH}), np.random.default_rng(0)
    for number in range(12):
        latest = dict.fromkeys("st", 100_000_000 * (number + 1))
        found = {"s": ages(1_000_000, rng=rng, n_pairs=9), "t": AgeCounts()}
        loop.step(found, latest, number, {"s": 500, "t": 20})
        assert (loop.plan["s"] is None) == (number < 5), "half of a window of rows"
    assert 0 < loop.plan["s"] < 1_100_000
    assert loop.plan["t"] is None, "too few rows came"
    again = TierChoice({"s": LENGTH, "t": LENGTH})
    again.restore(json.loads(msgspec.json.encode(loop.snapshot())))
    assert again.step({"t": AgeCounts()}, latest, 12, {"t": 1_000})[0].after == "t hot for 0 s"


def test_nothing_is_moved_before_twice_the_bound_was_seen():
    loop = TierChoice({"s": LENGTH})
    fed(loop, 100_000_000, n_batches=2)
    assert loop.plan == {"s": None}
    fed(loop, 100_000_000, first=2, n_batches=2)
    assert loop.plan["s"] is not None


def test_a_bound_that_jumps_is_followed_at_once():
    loop = TierChoice({"s": LENGTH})
    fed(loop, 1_000_000)
    (entry,) = fed(loop, 300_000_000, first=20, n_batches=1)
    assert loop.plan["s"] >= 300_000_000
    assert entry.before != entry.after
    fed(loop, 1_000_000, first=21, n_batches=30)
    assert loop.plan["s"] <= 1_400_000, "and let go again"


def test_tiers_that_are_held_stay_and_what_was_learned_outlives_a_restart():
    loop = TierChoice({"s": LENGTH})
    fed(loop, 1_000_000)
    loop.is_held, held = True, dict(loop.plan)
    assert not fed(loop, 300_000_000, first=20)
    assert loop.plan == held
    loop.step({"s": AgeCounts(10, 3, {})}, {"s": 1}, 99)
    again = TierChoice({"s": LENGTH, "t": LENGTH})
    again.restore(json.loads(msgspec.json.encode(loop.snapshot())))
    assert again.plan == {**held, "t": None}
    (view, other) = again.views()
    assert (view.n_cold, view.hot_for, other.learned.n_rows) == (3, held["s"], 0)
    with pytest.raises(StateError, match="tiers of a join cannot be read"):
        again.restore({"bounds": 3})


@pytest.mark.parametrize("number", [500, 1_500])
def test_pairs_of_the_bin_above_the_bound_are_beyond_it_and_those_of_its_own_are_not(number):
    loop = TierChoice({"s": LENGTH})
    loop.bounds["s"] = LearnedBound(HELD, top_of(number))
    loop.step({"s": AgeCounts(12, 0, {number: 5, number + 1: 4, number + 2: 3})}, {"s": 1})
    assert loop.bounds["s"].n_beyond == 7


def test_without_windows_nothing_is_decided():
    loop = TierChoice({})
    assert loop.step({}, {}, 0) == []
    assert loop.plan == {}


def test_batches_that_are_not_measured_teach_nothing_but_what_was_cold_is_counted():
    loop = TierChoice({"s": LENGTH})
    fed(loop, 1_000_000)
    before = loop.bounds["s"]
    loop.step({"s": AgeCounts(1_000, 7, {}, is_measured=False)}, {"s": 1}, 99)
    assert loop.bounds["s"] == before
    assert loop.n_cold["s"] == 7


@given(bound=st.one_of(st.integers(0, 5_000), st.integers(0, 2**63 - 1)))
def test_bins_beyond_a_bound_are_those_whose_greatest_span_is(bound):
    near = int(np.log2(max(bound, 1)) * BINS_PER_OCTAVE)
    bins = dict.fromkeys(range(max(near - 150, 0), near + 3), 1)
    assert n_beyond(bins, bound) == sum(top_of(number) > bound for number in bins)


def test_what_was_measured_long_ago_is_not_compared_with_the_time_that_was_seen_since():
    loop, rng = TierChoice({"s": LENGTH}), np.random.default_rng(0)
    loop.step({"s": ages(100_000_000, rng=rng)}, {"s": 100_000_000}, 0)
    for number in range(1, 9):
        unmeasured = AgeCounts(N_PAIRS, 0, {}, is_measured=False)
        loop.step({"s": unmeasured}, {"s": 100_000_000 * (number + 1)}, number)
    assert loop.plan["s"] is None
    loop.step({"s": ages(100_000_000, rng=rng)}, {"s": 1_000_000_000}, 9)
    assert loop.plan["s"] is not None


def test_a_tier_is_promised_by_what_was_measured_last_even_before_the_bound_came_down():
    loop = TierChoice({"s": LENGTH, "t": LENGTH})
    assert not loop.promises
    fed(loop, int(0.9 * LENGTH))
    assert not loop.promises, "partners come at any time"
    fed(loop, 1_000_000, first=20, n_batches=1)
    assert loop.plan["s"] is None
    assert loop.promises
    unmeasured = AgeCounts(N_PAIRS, 0, {}, is_measured=False)
    loop.step({"s": unmeasured}, {"s": 1}, 21)
    assert loop.promises, "nothing else is known"
    loop.step({"s": AgeCounts(0)}, {"s": 1}, 22)
    assert not loop.promises, "nothing was found"
    fed(loop, 1_000_000, first=23, n_batches=40)
    assert loop.plan["s"] is not None
    loop.step({"s": AgeCounts(0)}, {"s": 1}, 99)
    assert loop.promises, "there is one"


def test_a_person_says_for_how_long_rows_are_hot():
    loop = TierChoice({"s": LENGTH, "t": LENGTH})
    loop.hold({"s": 7_000_000, "t": None})
    assert fed(loop, 1_000_000) == []
    assert loop.plan == {"s": 7_000_000, "t": None}
    loop.release()
    assert fed(loop, 1_000_000, first=20)
    assert loop.plan["s"] < 2_000_000


@pytest.mark.parametrize(
    "plan",
    [
        None,
        3,
        {},
        {"s": 1},
        {"s": 1, "t": 1, "u": 1},
        {"s": -1, "t": None},
        {"s": LENGTH + 1, "t": None},
        {"s": True, "t": None},
        {"s": 1.0, "t": None},
        {"s": "1", "t": None},
    ],
)
def test_what_are_no_tiers_is_refused(plan):
    loop = TierChoice({"s": LENGTH, "t": LENGTH})
    with pytest.raises(PlanError, match="for how long its rows are hot"):
        loop.hold(plan)
    assert not loop.is_held
