"""The way of a join: tables go to the rows where they are small, unless somebody says otherwise."""

from __future__ import annotations

import pytest

from eddyline.joins.tables import MOST_BYTES, MOST_ROWS, WayChoice


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
