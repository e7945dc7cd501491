"""The learned lateness of a stream: the share that it holds, and what it never does."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.constraints.bounds import (
    Disorder,
    LatenessRule,
    LearnedLateness,
    bins_of,
    changes,
    top_of,
)
from eddyline.state.rows import ALWAYS, FOREVER

BATCH_ROWS = 20_000
ROWS_PER_INTERVAL = 2_000_000
"""Rows of an interval of drift; of 99.99 % 200 may be late."""


def disorder_of(starts, low, latest):
    """Return the disorder of a batch."""
    spans = np.empty(0, np.int64) if latest is None else latest - starts[starts < latest]
    bins = dict(
        zip(*(each.tolist() for each in np.unique(bins_of(spans), return_counts=True)), strict=True)
    )
    n_late = int((starts < low).sum())
    return Disorder(starts.size, n_late, int(starts.min()), int(starts.max()), bins)


class Stream:
    """A stream whose lateness is learned, batch by batch."""

    def __init__(self, share):
        self.rule = LatenessRule({"s": 0}, {"s": share})
        self.learned, self.latest, self.passed = self.rule.known({}), {}, {}

    @property
    def low(self):
        """The instant before which the next rows are late."""
        return self.rule.streams(self.learned, self.passed).low("s", {})

    def take(self, starts):
        """Take a batch in, and return its disorder."""
        batch = disorder_of(starts, self.low, self.latest.get("s"))
        now = {"s": max(batch.latest, self.latest.get("s", ALWAYS))}
        self.learned = self.rule.after(self.learned, {"s": batch}, self.latest)
        self.passed = self.rule.streams(self.learned, self.passed).lows(now)
        self.latest = now
        return batch


def held_shares(scale_at, n_rows, *, share=0.9999, seed=0):
    """Return the share of each interval that is held where disorder has a scale (µs) in time."""
    rng = np.random.default_rng(seed)
    stream, shares, late = Stream(share), [], 0
    for first in range(0, n_rows, BATCH_ROWS):
        ages = rng.exponential(scale_at(first / n_rows), BATCH_ROWS).astype(np.int64)
        starts = (first + np.arange(BATCH_ROWS)) * 100 - ages
        late += stream.take(starts).n_late
        if (first + BATCH_ROWS) % ROWS_PER_INTERVAL == 0:
            shares.append(1 - late / ROWS_PER_INTERVAL)
            late = 0
    return shares


@pytest.mark.large
@pytest.mark.parametrize(
    "scale_at",
    [
        lambda _: 2e6,
        lambda at: 2e6 * (1 + 5 * at),
        lambda at: 2e6 * (6 - 5 * at),
        lambda at: 2e6 * (1.5 + np.sin(4 * np.pi * at)),
    ],
    ids=["steady", "growing", "shrinking", "waves"],
)
def test_the_stated_share_is_held_from_the_second_interval_of_a_drift_on(scale_at):
    """Over seeds and intervals nearly exactly; an interval in which disorder turns is farther."""
    shares = np.array(
        [held_shares(scale_at, 5 * ROWS_PER_INTERVAL, seed=seed)[1:] for seed in range(8)]
    )
    assert abs(shares.mean() - 0.9999) <= 0.000015, shares
    assert (np.abs(shares - 0.9999) <= 0.00006).all(), shares


def test_a_jump_is_followed_at_once_and_what_it_cost_is_made_up_for():
    shares = held_shares(lambda at: 1e6 if at < 0.4 else 8e6, 5 * ROWS_PER_INTERVAL)
    assert shares[2] < 0.9999, "the batch of the jump was late"
    assert shares[3] == pytest.approx(0.9999, abs=0.00005)
    assert shares[4] == pytest.approx(0.9999, abs=0.00005)


def test_a_smaller_share_lets_more_rows_be_late():
    (_, share) = held_shares(lambda _: 2e6, 2 * ROWS_PER_INTERVAL, share=0.99)
    assert share == pytest.approx(0.99, abs=0.0005)


def test_a_stream_in_order_needs_no_lateness():
    stream = Stream(0.999)
    for first in range(0, 1_000_000, 10_000):
        stream.take(np.arange(first, first + 10_000))
    learned = stream.learned["s"]
    assert learned.bound <= 10, "far less than a batch, and then nothing"
    assert learned.n_beyond == 0
    assert learned.held == 1


def test_before_anything_is_known_no_row_is_late():
    stream = Stream(0.9999)
    assert stream.low == ALWAYS
    stream.take(np.array([2_000_000, 5_000_000]))
    assert stream.low == 2_000_000, "as old as the first rows"


def test_a_batch_without_rows_changes_nothing():
    learned = LearnedLateness(0.999).after(Disorder(3, 0, 10, 20), None)
    assert learned.after(Disorder(), 20) == learned


def test_what_was_learned_for_another_share_goes():
    before = LearnedLateness(0.99, bound=7, bins={3: 2.0}, n_rows=9)
    found = LatenessRule({"s": 0}, {"s": 0.999}).known({"s": before})
    assert found == {"s": LearnedLateness(0.999)}
    assert LatenessRule({"s": 0}, {"s": 0.99}).known({"s": before}) == {"s": before}
    assert LatenessRule({"s": 5}).known({"s": before}) == {}


def test_a_bound_is_known_a_batch_after_another_share_was_given_and_time_never_goes_back():
    rule, passed, latest = LatenessRule({"s": 0}, {"s": 0.999}), {"s": 1_000}, {"s": 5_000}
    learned = rule.known({"s": LearnedLateness(0.99, bound=7)})
    assert rule.streams(learned, passed).low("s", latest) == 1_000
    learned = rule.after(learned, {"s": Disorder(3, 0, 4_000, 4_500)}, latest)
    assert learned["s"].bound == 1_000, "as old as the oldest row, of the latest of all"
    assert rule.streams(learned, passed).low("s", latest) == 4_000


@pytest.mark.parametrize("given", [500, 50_000])
def test_a_lateness_that_is_given_anew_leaves_what_is_passed(given):
    streams = LatenessRule({"s": given}).streams({}, {"s": 90_000})
    assert streams.low("s", {}) == 90_000, "neither skipped nor answered again"
    assert streams.low("s", {"s": 100_000}) == max(90_000, 100_000 - given)


def test_bounds_that_change_by_much_are_told_once():
    rule, latest = LatenessRule({"s": 0}, {"s": 0.9}), {}
    learned, told = rule.known({}), []
    for batch in [Disorder(2_000, 0, 0, 4_000_000)] * 30:
        after = rule.after(learned, {"s": batch}, latest)
        told += changes("clock", "lateness", learned, after, len(told))
        learned, latest = after, {"s": 4_000_000}
    assert (told[0].event, told[0].before, told[0].after) == ("lateness", "s any", "s 4 s")
    assert all(each.is_plan_change for each in told)
    assert told[0].evidence == {"share": 0.9, "n_beyond": 0, "n_rows": 0}
    assert 5 < len(told) < 15, "one for each quarter that the bound goes down"


spans = st.integers(1, 2**50)


@given(spans)
def test_a_bin_holds_its_span_and_is_narrow(span):
    top = top_of(int(bins_of(np.array([span]))[0]))
    assert span <= top <= 1.012 * span + 3


batches = st.lists(
    st.lists(st.integers(-2_000, 2_000), min_size=1, max_size=30), min_size=1, max_size=12
)


@given(batches, st.sampled_from([0.5, 0.9, 0.999]))
def test_the_instant_that_is_passed_never_goes_back_and_state_reads_as_written(rows, share):
    stream = Stream(share)
    for number, each in enumerate(rows):
        starts = np.array(each, np.int64) + 500 * number
        before = stream.low
        batch = stream.take(starts)
        assert batch.n_late == int((starts < before).sum())
        assert stream.low >= before
        learned = stream.learned
        assert 0 <= learned["s"].bound < FOREVER
        read = msgspec.json.decode(msgspec.json.encode(learned), type=dict[str, LearnedLateness])
        assert read == learned


@given(batches)
def test_disorders_merge_to_that_of_all_rows(rows):
    parts = [disorder_of(np.array(each, np.int64), 200, 300) for each in rows]
    whole = disorder_of(np.array([at for each in rows for at in each], np.int64), 200, 300)
    assert parts[0].merge(*parts[1:]) == whole
