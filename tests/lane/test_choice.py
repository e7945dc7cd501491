"""Files or rows: the faster way is kept, and trials take little of the time."""

from __future__ import annotations

import pytest

from eddyline.lane.choice import CLEAR_TRIAL, FILES, FIRST_TRIAL, ROWS, TRIAL, LaneChoice


def run(choice, costs, n_batches, n_rows=10_000_000):
    """Run batches whose rows cost so much each way (ns); returns the ways that they ran."""
    ways, entries = [], []
    for batch in range(n_batches):
        ways.append(choice.next)
        entries += choice.step(ways[-1], n_rows, costs[ways[-1]] * n_rows, batch)
    return ways, entries


def test_files_are_read_at_first_and_kept_where_they_are_faster():
    choice = LaneChoice("lane", is_adaptive=True)
    ways, entries = run(choice, {FILES: 100.0, ROWS: 300.0}, 500)
    assert ways[:FIRST_TRIAL] == [FILES] * FIRST_TRIAL
    assert choice.plan == FILES
    assert entries == []
    assert ways.count(ROWS) == TRIAL


def test_rows_are_taken_where_they_are_faster_and_the_journal_says_why():
    choice = LaneChoice("lane", is_adaptive=True)
    _, (entry,) = run(choice, {FILES: 300.0, ROWS: 100.0}, FIRST_TRIAL + TRIAL)
    assert choice.plan == ROWS
    assert (entry.component, entry.event, entry.before, entry.after) == (
        "lane",
        "lane",
        FILES,
        ROWS,
    )
    assert entry.evidence == {"row_ns_before": 300.0, "row_ns_after": 100.0}


@pytest.mark.parametrize("other", [103.0, 150.0, 1000.0])
def test_trials_take_a_small_share_of_the_time(other):
    choice = LaneChoice("lane", is_adaptive=True)
    n = 20_000
    ways, _ = run(choice, {FILES: 100.0, ROWS: other}, n)
    beyond = ways.count(ROWS) * (other - 100.0)
    assert choice.plan == FILES
    assert beyond <= 0.01 * 100.0 * n
    assert ways.count(ROWS) >= 2 * TRIAL


def test_the_plan_follows_a_change():
    choice = LaneChoice("lane", is_adaptive=True)
    run(choice, {FILES: 100.0, ROWS: 150.0}, 100)
    run(choice, {FILES: 200.0, ROWS: 150.0}, 1000)
    assert choice.plan == ROWS


def test_a_trial_of_other_batches_tells_nothing():
    choice = LaneChoice("lane", is_adaptive=True)
    run(choice, {FILES: 100.0, ROWS: 10.0}, FIRST_TRIAL)
    run(choice, {FILES: 100.0, ROWS: 10.0}, TRIAL, n_rows=1_000_000)
    assert choice.plan == FILES


def test_batches_without_rows_tell_nothing():
    choice = LaneChoice("lane", is_adaptive=True)
    run(choice, {FILES: 100.0, ROWS: 10.0}, 100, n_rows=0)
    assert choice.next == FILES


@pytest.mark.parametrize("is_held", [True, False])
def test_nothing_is_tried_where_the_plan_is_held_or_fixed(is_held):
    choice = LaneChoice("lane", is_adaptive=is_held)
    choice.is_held = is_held
    ways, _ = run(choice, {FILES: 100.0, ROWS: 10.0}, 100)
    assert set(ways) == {FILES}


@pytest.mark.parametrize(
    ("n_kept", "row_bytes", "first"),
    [(50, 100, CLEAR_TRIAL), (900, 100, FIRST_TRIAL), (50, 9_000, FIRST_TRIAL)],
)
def test_the_first_trial_waits_where_little_is_sent_back(n_kept, row_bytes, first):
    choice, ways = LaneChoice("lane", is_adaptive=True), []
    for batch in range(CLEAR_TRIAL + 1):
        ways.append(choice.next)
        choice.step(ways[-1], 1000, 1e9, batch)
        choice.sent(1000, n_kept, n_kept * row_bytes)
    assert ways.index(ROWS) == first


@pytest.mark.parametrize(("batch_s", "is_tried"), [(0.1, False), (0.2, True)])
def test_rows_are_not_tried_where_a_job_of_spark_takes_longer_than_a_batch(batch_s, is_tried):
    choice = LaneChoice("lane", is_adaptive=True)
    ways, _ = run(choice, dict.fromkeys((FILES, ROWS), batch_s * 1e9 / 1000), 50, n_rows=1000)
    assert (ROWS in ways) == is_tried
    choice.adopt(ROWS)
    ways, _ = run(choice, dict.fromkeys((FILES, ROWS), batch_s * 1e9 / 1000), 50, n_rows=1000)
    assert FILES in ways, "they are, if that is how rows come"


def test_a_pinned_plan_is_in_force_at_once():
    choice = LaneChoice("lane", is_adaptive=True)
    run(choice, {FILES: 100.0, ROWS: 300.0}, 20)
    choice.hold(ROWS)
    assert choice.next == ROWS


def test_what_is_learned_goes_on_after_a_restart():
    choice = LaneChoice("lane", is_adaptive=True)
    run(choice, {FILES: 300.0, ROWS: 100.0}, 50)
    again = LaneChoice("lane", is_adaptive=True)
    again.restore(choice.snapshot())
    assert again.plan == ROWS
    assert again.snapshot() == choice.snapshot()
