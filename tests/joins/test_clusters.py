"""Clusters of keys: how long after its first row a key still comes, and what is closed by it."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest

from eddyline.constraints.bounds import bins_of
from eddyline.errors import StateError
from eddyline.joins.arrival_order import MARGIN, MOST, Clusters, watched
from eddyline.joins.graph import JoinGraph
from eddyline.joins.plan import Spans

PAIR = JoinGraph(("s", "t"), (frozenset("st"),))
LENGTH = 1_000_000
LENGTHS = dict.fromkeys("st", LENGTH)
T, S = ("t", 0), ("s", 0)


def spans(values, *, n_rows=None):
    values = np.array(values)
    numbers, counts = np.unique(bins_of(values[values > 0]), return_counts=True)
    bins = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
    return Spans(values.size if n_rows is None else n_rows, bins)


def fed(clusters, k, *, n_batches=30, place=T, first=0):
    """Feed batches of 1,000 rows, measured in two buckets; return the latest event times."""
    rng, latest = np.random.default_rng(k), {}
    for number in range(first, first + n_batches):
        latest = dict.fromkeys("st", number * 100_000)
        halves = [{place: spans(rng.integers(0, k + 1, 500))} for _ in range(2)]
        clusters.step(halves, latest)
    return latest


def pair():
    return Clusters(watched(PAIR, "s", "st", ()), LENGTHS)


@pytest.mark.parametrize("k", [1_000, 50_000, 400_000])
def test_a_key_is_closed_soon_after_hardly_any_row_with_it_comes(k):
    clusters = pair()
    assert clusters.closed({}) == {}
    latest = fed(clusters, k)
    assert 0.98 * k * MARGIN <= clusters.closed(latest)["s"][0]["t"] <= 1.1 * k * MARGIN
    (view,) = clusters.views(latest)
    assert view.is_used
    assert view.learned.n_rows == 30_000
    assert clusters.least("t") == view.learned.bound
    assert clusters.least("s") is None
    assert clusters.evidence("s") == {"t_within_s": view.learned.bound / 1e6}


def test_keys_that_come_as_long_as_their_window_is_are_never_closed():
    clusters = pair()
    latest = fed(clusters, int(MOST * LENGTH * 1.1))
    assert clusters.closed(latest) == {}
    assert not clusters.views(latest)[0].is_used


def test_nothing_is_closed_before_enough_rows_and_event_time_were_seen():
    """Spans are no longer than what was seen; a thousandth of few rows is none."""
    clusters = pair()
    latest = fed(clusters, 200_000, n_batches=3)
    assert clusters.closed(latest) == {}
    assert clusters.closed(dict.fromkeys("st", 500_000))
    clusters = pair()
    clusters.step([{T: spans([1] * 10)}], {"s": 0, "t": 0})
    assert clusters.closed({"s": 10**6, "t": 10**6}) == {}


def test_a_k_that_grows_is_followed_at_once_and_one_that_shrinks_is_a_promise():
    clusters = pair()
    latest = fed(clusters, 1_000)
    assert not clusters.promises
    latest = fed(clusters, 50_000, n_batches=2, first=30)
    assert clusters.closed(latest)["s"][0]["t"] >= 48_000
    fed(clusters, 1_000, n_batches=1, first=32)
    assert clusters.promises
    clusters.step([{}], latest)
    assert clusters.promises, "nothing else is known"
    fed(clusters, 50_000, n_batches=1, first=33)
    assert not clusters.promises


def test_a_row_is_done_once_its_key_is_closed_in_all_other_streams():
    star = JoinGraph(("a", "b", "c"), (frozenset("abc"),))
    clusters = Clusters(watched(star, "a", "abc", ()), dict.fromkeys("abc", LENGTH))
    at = dict.fromkeys("abc", 5_000_000)
    clusters.step([{}], dict.fromkeys("abc", 0))
    clusters.step([{("b", 0): spans([1_000] * 2_000)}], at)
    assert clusters.closed(at) == {}
    clusters.step([{("c", 0): spans([3_000] * 2_000)}], at)
    after = clusters.closed(at)["a"][0]
    assert 1_000 <= after["b"] < 3_000 <= after["c"]


def test_what_was_learned_outlives_a_restart_and_damage_is_said():
    clusters, again = pair(), pair()
    latest = fed(clusters, 1_000)
    again.restore(json.loads(msgspec.json.encode(clusters.snapshot())))
    assert again.closed(latest) == clusters.closed(latest) != {}
    for damaged in ([3], {"bounds": [], "since": {}, "more": 1}, {"bounds": [["t", 0, {}]]}):
        with pytest.raises(StateError, match="clusters of a join's keys cannot be read"):
            again.restore(damaged)
    assert again.closed(latest) == clusters.closed(latest)
