from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eddyline.models.condition_text import read_condition
from eddyline.models.solving import solutions, where
from eddyline.models.updates import latest, living, overridden, with_retractions
from tests.models.pieces import SECOND, drawn, pieces, ranges


def arrived(*segments):
    """Return segments one after the other, and their arrival."""
    names = segments[0].coefs
    whole = type(segments[0])(
        *(
            np.concatenate([getattr(each, name) for each in segments])
            for name in ("keys", "origin", "lo", "hi", "is_point", "is_tombstone")
        ),
        {name: np.concatenate([each.coefs[name] for each in segments]) for name in names},
        {name: np.concatenate([each.errors[name] for each in segments]) for name in names},
    )
    return whole, np.repeat(np.arange(len(segments)), [len(each) for each in segments])


def view(*rows, order=None):
    segments = pieces(*((0, lo, hi, {"x": [c]}) for lo, hi, c in rows))
    found = overridden(segments, np.arange(len(rows)) if order is None else np.array(order))
    return [(*each, c) for each, c in zip(ranges(found), found.coefs["x"][:, 0], strict=True)]


def test_t11_override():
    assert view((0, 10, 1), (6, 8, 2)) == [(0, 6, 1), (6, 8, 2)]
    assert view((0, 10, 1), (6, 12, 2)) == [(0, 6, 1), (6, 12, 2)]


def test_late_segments_cover_what_no_later_start_has_taken():
    assert view((0, 10, 1), (6, 8, 2), (2, 20, 3)) == [(0, 2, 1), (2, 6, 3), (6, 8, 2)]
    assert view((0, 10, 1), (0, 4, 2)) == [(0, 4, 2)]
    assert view((0, 4, 2), (0, 10, 1), order=[1, 0]) == [(0, 4, 2)]


def test_a_point_is_overridden_by_what_begins_with_it():
    assert view((3, 3, 1), (3, 5, 2)) == [(3, 5, 2)]
    assert view((0, 5, 1), (3, 3, 2)) == [(0, 3, 1), (3, 3, 2)]


def test_entities_do_not_override_each_other():
    segments = pieces((1, 0, 9, {"x": [1]}), (0, 4, 6, {"x": [1]}), (1, 5, 9, {"x": [2]}))
    assert ranges(overridden(segments, np.arange(3))) == [(4, 6), (0, 5), (5, 9)]


def test_t28_tombstone():
    condition = read_condition("x > 0", ["x"])
    old = pieces((0, 0, 10, {"x": [-45, 14, -1]}))  # -(t - 5)(t - 9)
    new = pieces((0, 6, 10, {"x": [-1, 0, 0]}))
    first = with_retractions(old, solutions(old, condition))
    again = with_retractions(new, solutions(new, condition))
    assert ranges(living(first)) == [(5, 9)]
    assert ranges(again) == [(6, 10)]
    assert again.is_tombstone.all()
    assert ranges(living(latest(*arrived(first, again)))) == [(5, 6)]


def test_results_of_a_range_that_is_solved_again_are_gone_wherever_they_began():
    condition = read_condition("x <= 0", ["x"])
    old = pieces((0, 0, 10, {"x": [0, 8, -1, 0, 0]}), (1, 0, 2, {"x": [1]}))  # t (8 - t)
    touching = pieces((0, 6, 20, {"x": [81, -18, 1, 0, 0]}))  # (t - 9)^2
    before = with_retractions(old, solutions(old, condition))
    after = with_retractions(touching, solutions(touching, condition))
    assert ranges(living(before)) == [(0, 0), (8, 10)]
    assert ranges(living(latest(*arrived(before, after)))) == [(0, 0), (9, 9)]


@given(segments=drawn(), text=st.sampled_from(["x > 0", "x * x <= 1", "x = 0"]))
def test_solutions_and_retractions_cover_each_segment_once(segments, text):
    condition = read_condition(text, ["x"])
    found = with_retractions(segments, solutions(segments, condition))
    assert ranges(living(found)) == ranges(where(segments, condition))
    lengths = found.hi - found.lo + found.is_point
    for key in np.unique(segments.keys):
        whole = (segments.hi - segments.lo)[segments.keys == key].sum()
        assert lengths[found.keys == key].sum() == whole


@given(st.data())
def test_the_latest_of_each_instant(data):
    parts = [data.draw(drawn(degree=1, gaps=True)) for _ in range(3)]
    size = max(each.coefs["x"].shape[1] for each in parts)
    for each in parts:
        each.coefs["x"] = np.pad(each.coefs["x"], ((0, 0), (0, size - each.coefs["x"].shape[1])))
    whole, arrival = arrived(*parts)
    found = latest(whole, arrival)
    for key in np.unique(whole.keys):
        for at in range(13, 20 * SECOND, SECOND // 7):
            there = (whole.keys == key) & (whole.lo <= at) & (at < whole.hi)
            seen = (found.keys == key) & (found.lo <= at) & (at < found.hi)
            assert seen.sum() == min(there.sum(), 1)
            if there.any():
                newest = np.flatnonzero(there)[-1]
                assert found.coefs["x"][seen].tolist() == whole.coefs["x"][[newest]].tolist()
