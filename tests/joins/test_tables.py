"""Tables of joins: rows that they drop before the shuffle, and when they go to the rows instead."""

from __future__ import annotations

import json
from itertools import pairwise

import msgspec
import pytest

from eddyline.errors import StateError
from eddyline.joins.tables import (
    LEAST_DROPPED,
    LEAST_SHARE,
    MOST_BYTES,
    MOST_ROWS,
    REST,
    TRIAL,
    DropChoice,
    WayChoice,
)

TABLES = {"s": ("v", "w")}
KEYS = {"s": 100}


def fed(loop, n_batches, share, *, first=0, n_rows=10 * LEAST_DROPPED):
    """Feed batches of rows, of which tables drop a share where they are asked."""
    entries = []
    for number in range(first, first + n_batches):
        fresh = {"s": (n_rows, int(n_rows * share))} if loop.plan["s"] else {}
        shuffled = {"s": n_rows - sum(n for _, n in fresh.values())}
        entries += loop.step(fresh, shuffled, KEYS, number)
    return entries


def test_it_is_tried_once_keys_are_known_and_kept_where_many_rows_are_dropped():
    loop = DropChoice(TABLES)
    assert loop.step({}, {"s": 2 * LEAST_DROPPED}, {}, 0) == []
    assert loop.plan == {"s": False}
    (entry,) = fed(loop, 200, LEAST_SHARE * 1.5, first=1)
    assert (entry.batch_id, entry.event) == (1, "filtered")
    assert entry.after == "rows of s to the join: that v and w has a key for"
    assert entry.evidence["n_keys"] == 100
    assert loop.plan == {"s": True}
    (view,) = loop.views()
    assert view.share == pytest.approx(LEAST_SHARE * 1.5)
    assert view.n_dropped == 199 * 1.5 * LEAST_DROPPED
    assert loop.newest == 1.5 * LEAST_DROPPED


def test_where_few_are_dropped_it_is_tried_ever_more_rarely():
    loop = DropChoice(TABLES)
    entries = fed(loop, 600, LEAST_SHARE / 2)
    tries = [each.batch_id for each in entries if "has a key" in each.after]
    gaps = [later - one for one, later in pairwise(tries)]
    assert gaps == [TRIAL + REST * 2**at for at in range(len(gaps))]
    assert len(gaps) == 3
    assert entries[1].evidence["share"] == pytest.approx(LEAST_SHARE / 2)


@pytest.mark.parametrize(("n_dropped", "is_kept"), [(0.9, False), (1.1, True)])
def test_small_batches_are_not_filtered_whatever_tables_drop(n_dropped, is_kept):
    loop = DropChoice(TABLES)
    fed(loop, TRIAL + 20, 0.9, n_rows=int(n_dropped * LEAST_DROPPED / 0.9))
    assert loop.plan == {"s": is_kept}


def test_it_is_not_tried_in_batches_that_have_too_few_rows_for_it():
    loop = DropChoice(TABLES)
    assert not fed(loop, 20, 1.0, n_rows=LEAST_DROPPED - 1)
    (entry,) = fed(loop, 20, 1.0, first=20, n_rows=2 * LEAST_DROPPED)
    assert entry.batch_id == 20


def test_batches_without_rows_say_nothing_and_a_share_that_falls_ends_it():
    loop = DropChoice(TABLES)
    fed(loop, 10, 0.9)
    for number in range(50):
        assert loop.step({"s": (0, 0)}, {}, KEYS, number) == []
    entries = fed(loop, 20, 0.0)
    assert [each.after for each in entries] == ["rows of s to the join: all"]


def test_what_is_held_stays_and_what_was_learned_outlives_a_restart():
    loop = DropChoice(TABLES)
    fed(loop, 10, 0.9)
    loop.is_held = True
    assert not fed(loop, 50, 0.0)
    assert loop.plan == {"s": True}
    again = DropChoice(TABLES)
    again.restore(json.loads(msgspec.json.encode(loop.snapshot())))
    assert again.views() == loop.views()
    with pytest.raises(StateError, match="rows that tables drop cannot be read"):
        again.restore({"s": {"is_dropping": 3}})


# -- tables that go to the rows


@pytest.mark.parametrize(
    ("n_rows", "n_bytes", "way"),
    [
        (0, 0, "broadcast"),
        (MOST_ROWS, MOST_BYTES, "broadcast"),
        (MOST_ROWS + 1, 1, "buckets"),
        (1, MOST_BYTES + 1, "buckets"),
    ],
)
def test_small_tables_go_to_the_rows(n_rows, n_bytes, way):
    loop = WayChoice(is_adaptive=True)
    entries = loop.step(n_rows, n_bytes, 3)
    assert (loop.plan, loop.advised) == (way, way)
    assert [(each.batch_id, each.before, each.after) for each in entries] == (
        [(3, "buckets", "broadcast")] if way == "broadcast" else []
    )
    assert loop.step(n_rows, n_bytes, 4) == []


def test_a_way_that_is_held_stays():
    loop = WayChoice(is_adaptive=True)
    loop.is_held = True
    assert not loop.may_broadcast
    assert loop.step(1, 1) == []
    assert (loop.plan, loop.advised) == ("buckets", "broadcast")
    loop.plan = "broadcast"
    assert loop.step(MOST_ROWS + 1, 1) == []
    assert loop.may_broadcast


def test_without_adaptation_rows_go_to_buckets():
    loop = WayChoice(is_adaptive=False)
    assert loop.step(1, 1) == []
    assert not loop.may_broadcast
