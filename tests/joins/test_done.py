"""The loop of rows that are done: where they leave the hot tier, by what it saves and takes."""

from __future__ import annotations

import json
from itertools import pairwise

import msgspec
import pytest

from eddyline.errors import PlanError, StateError
from eddyline.joins.plan import MATCHED, DoneCounts
from eddyline.joins.tiers import REST, TRIAL, DoneChoice

HOT = {"p": 64_000}

NS = 10_000_000
"""Time of a batch."""


def fed(loop, n_batches, *, share=0.9, cost_ns=10, first=0, covers=("p",)):
    """Feed a loop batches of 1,000 rows, a share of which is matched, at a cost for each."""
    entries = []
    for number in range(first, first + n_batches):
        n = int(1_000 * share)
        is_leaving = "p" in loop.leaving
        counts = DoneCounts(1_000, n // 2, n - n // 2, n_merged=2_000, merge_ns=400_000)
        if is_leaving:
            counts.add(DoneCounts(n_left=n - n // 2, ns=cost_ns * n))
        entries += loop.step(covers, {"p": counts}, HOT, NS, number)
    return entries


def test_rows_leave_where_that_saves_more_than_it_takes():
    loop = DoneChoice(MATCHED)
    entries = fed(loop, TRIAL + 200)
    assert [(each.event, each.after) for each in entries] == [("matched", "p hot until matched")]
    assert loop.leaving == {"p"}
    view = loop.known["p"]
    assert view.saved_ns > view.cost_ns > 0
    assert view.share == pytest.approx(0.9)
    assert view.n_left == 900 * (TRIAL + 200 - TRIAL)


def test_where_it_takes_more_it_is_tried_ever_more_rarely():
    loop = DoneChoice(MATCHED)
    entries = fed(loop, 1_000, cost_ns=5_000)
    tries = [each.batch_id for each in entries if each.after == "p hot until matched"]
    assert len(entries) == 2 * len(tries)
    assert loop.leaving == frozenset()
    gaps = [later - one for one, later in pairwise(tries)]
    assert gaps == [TRIAL + REST * 2**at for at in range(len(gaps))]
    assert len(gaps) == 3


def test_what_takes_hardly_any_time_is_kept_whatever_it_saves():
    """Three times what it saves, and one in a hundred of the batch."""
    loop = DoneChoice(MATCHED)
    for number in range(200):
        counts = DoneCounts(1_000, 0, 900, n_left=900, ns=100_000, n_merged=10, merge_ns=10)
        loop.step(("p",), {"p": counts}, HOT, NS, number)
    view = loop.known["p"]
    assert loop.leaving == {"p"}
    assert view.cost_ns > 3 * view.saved_ns


def test_nothing_is_tried_where_few_rows_are_matched_or_none_is_merged():
    loop = DoneChoice(MATCHED)
    assert not fed(loop, 100, share=0.1)
    loop = DoneChoice(MATCHED)
    for number in range(100):
        assert not loop.step(("p",), {"p": DoneCounts(1_000, 900)}, HOT, NS, number)
    assert loop.step((), {}, {}, NS, 0) == []
    assert loop.known == {}


def test_an_input_that_is_no_cover_any_more_keeps_its_rows_and_what_is_held_stays():
    loop = DoneChoice(MATCHED)
    fed(loop, 100)
    loop.is_held = True
    assert not fed(loop, 100, cost_ns=5_000, first=100)
    assert loop.leaving == {"p"}
    again = DoneChoice(MATCHED)
    again.restore(json.loads(msgspec.json.encode(loop.snapshot())))
    assert again.leaving == {"p"}
    assert again.known == loop.known
    again.step((), {}, {}, NS, 0)
    assert again.leaving == frozenset()
    with pytest.raises(StateError, match="matched rows of a join cannot be read"):
        again.restore({"p": 3})


def test_batches_that_were_not_counted_leave_what_is_known_as_it_is():
    loop = DoneChoice(MATCHED)
    assert not loop.promises
    fed(loop, TRIAL - 2)
    assert loop.promises
    before = loop.known["p"].share, loop.known["p"].merge_ns
    assert not loop.step(("p",), {}, HOT, NS, TRIAL - 2)
    assert (loop.known["p"].share, loop.known["p"].merge_ns) == before
    (entry,) = loop.step(("p",), {}, HOT, NS, TRIAL - 1)
    assert entry.after == "p hot until matched", "they count as time"
    loop = DoneChoice(MATCHED)
    fed(loop, 10, share=0.1)
    assert not loop.promises


def test_a_person_says_which_rows_leave():
    loop = DoneChoice(MATCHED)
    fed(loop, 1)
    loop.hold(["p"])
    assert fed(loop, TRIAL + 50, cost_ns=10**6, first=1) == []
    assert loop.plan == ["p"]
    for plan in (None, "p", ["q"], ["p", "p"], [1], {"p": True}):
        with pytest.raises(PlanError, match="a list of inputs whose rows may leave"):
            loop.hold(plan)
    loop.release()
    (stays,) = fed(loop, 1, cost_ns=10**6, first=TRIAL + 51)
    assert stays.after == "p hot whether or not matched"
