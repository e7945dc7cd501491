"""The loop of a grid: it moves rows where that pays, and stands when it is switched off."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest

from eddyline.errors import PlanError
from eddyline.joins.graph import JoinGraph
from eddyline.joins.grid import REVIEW_EVERY, GridChoice
from eddyline.state.grid import N_BINS, Grid, bins_of

CHAIN = JoinGraph(("r", "s", "t"), (frozenset("rs"), frozenset("st")))


def counted(n, *, same=None):
    """Histograms of n rows of s and a few of the others; all of s have one key of that class."""
    found = {}
    for name, classes in CHAIN.classes_of.items():
        keys = np.arange(n if name == "s" else 100) * 7_919
        for key in classes:
            codes = np.full(n, 13) if (name, key) == ("s", same) else keys
            found[name, key] = np.bincount(bins_of(codes), minlength=N_BINS)
    return found


def loop(**options):
    given = {"n_buckets": 4, "n_tasks": 4, "timed": (), "is_adaptive": True} | options
    return GridChoice(CHAIN, **given)


def test_rows_move_when_a_key_has_many_of_them():
    grids = loop()
    assert grids.grid == Grid((2, 2))
    skewed = counted(10_000, same=0)
    (change,) = grids.step([skewed, {}], batch_id=1)
    assert (change.event, change.before, change.after) == ("grid", [2, 2], [1, 4])
    assert grids.grid == Grid((1, 4))
    assert change.evidence["rows_in_fullest_before"] > change.evidence["rows_in_fullest_after"]
    json.dumps([change.before, change.after, change.evidence], allow_nan=False)
    assert grids.step([skewed], batch_id=2) == [], "it is the best one now"


def test_after_the_first_batches_it_looks_now_and_then():
    grids = loop()
    for batch_id in range(1, 4 * REVIEW_EVERY):
        assert grids.step([counted(1_000)], batch_id) == []
    assert grids.step([counted(10**6, same=0)], 4 * REVIEW_EVERY + 1) == []
    assert grids.step([], 5 * REVIEW_EVERY) != []


def test_switched_off_it_stands():
    grids = loop(is_adaptive=False)
    assert grids.step([counted(10_000, same=0)], batch_id=1) == []
    grids.start(Grid((4, 1)))
    assert grids.grid == Grid((4, 1))


@pytest.mark.parametrize(("n_buckets", "shape"), [(4, (1, 4)), (9, (3, 3))])
def test_a_run_starts_with_the_grid_of_its_state_unless_another_number_is_asked_for(
    n_buckets, shape
):
    grids = loop(n_buckets=n_buckets)
    grids.start(Grid((1, 4)))
    assert grids.grid.shape == shape


def test_what_was_counted_is_saved():
    grids, again = loop(), loop()
    grids.step([counted(10_000, same=0)], batch_id=1)
    again.restore(msgspec.json.decode(msgspec.json.encode(grids.snapshot())))
    again.start(Grid((4, 1)))
    assert again.grid == grids.grid == Grid((1, 4))
    assert all((again.bins[key] == of).all() for key, of in grids.bins.items())
    again.restore([("gone", 0, [1.0] * N_BINS), ("r", 0, [1.0])])
    assert ("gone", 0) not in again.bins


def test_a_pinned_grid_is_that_of_the_next_run_however_rows_lie():
    grids = loop()
    grids.hold([1, 4])
    grids.start(Grid((4, 1)))
    assert grids.grid == Grid((1, 4))
    assert grids.step([counted(10_000, same=1)], batch_id=1) == []
    grids.release()
    (change,) = grids.step([counted(10**6, same=1)], batch_id=2)
    assert (change.before, change.after) == ([1, 4], [4, 1])


def test_any_cut_of_few_enough_buckets_can_be_pinned():
    grids = loop(timed=("s",))
    split = {"shape": [4, 1], "splits": [[0, 13, [["s", 2]]]]}
    for plan in ([1, 1], [4, 1], {"shape": [2, 2], "splits": []}, split):
        grids.hold(plan)
        assert grids.is_held
    assert grids.plan == split
    assert grids.in_words(split) == {"shape": [4, 1], "splits": ["bin 13: s in 2"]}


@pytest.mark.parametrize(
    "plan",
    [
        None,
        "2",
        [2],
        [2, 2, 1],
        [4, 4],
        [5, 1],
        [2, 0],
        [2, -2],
        [2.0, 2],
        [True, 2],
        {"shape": [2, 2]},
        {"shape": None, "splits": []},
        {"shape": [4, 1], "splits": [[0, 13, []]]},
        {"shape": [4, 1], "splits": [[0, 13, [["r", 2]]]]},
        {"shape": [4, 1], "splits": [[1, 13, [["s", 2]]]]},
        {"shape": [4, 1], "splits": [[-1, 13, [["s", 2]]]]},
        {"shape": [4, 1], "splits": [[0, N_BINS, [["s", 2]]]]},
        {"shape": [4, 1], "splits": [[0, 13.0, [["s", 2]]]]},
        {"shape": [4, 1], "splits": [[0, 13, [["s", 8]]]]},
        {"shape": [4, 1], "splits": [[0, 13, [["s", 2], ["s", 2]]]]},
        {"shape": [4, 1], "splits": "s"},
    ],
)
def test_what_is_no_cut_is_refused(plan):
    grids = loop(timed=("s",))
    with pytest.raises(PlanError, match="a number of parts for each of 2 key classes"):
        grids.hold(plan)
    assert not grids.is_held
