"""Filters of cold runs that a process keeps."""

from __future__ import annotations

import pytest

from eddyline.state import cold_runs
from eddyline.state.cold_runs import ReadFilters


@pytest.fixture
def kept(monkeypatch):
    monkeypatch.setattr(cold_runs, "MOST_READ_BYTES", 250)
    return ReadFilters()


def test_filters_that_are_used_stay_and_others_go_by_their_size(kept):
    a, b, c = {}, {}, {}
    kept.keep(("a", 1), 100, a)
    kept.keep(("b", 2), 100, b)
    assert kept.get(("a", 1)) is a
    kept.keep(("c", 3), 100, c)
    assert kept.get(("b", 2)) is None, "it was used longest ago"
    assert kept.get(("a", 1)) is a
    assert kept.get(("c", 3)) is c
    kept.keep(("d", 4), 900, {})
    assert kept.get(("a", 1)) is kept.get(("c", 3)) is None
    assert kept.get(("d", 4)) == {}, "the newest one stays, whatever its size is"
