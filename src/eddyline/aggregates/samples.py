"""Values over time of a few groups: marked among results by tasks, and kept by the driver.

The groups are those with most results so far. Each task tells how many results its busiest groups
had, the driver says from these which groups are watched, and tasks mark some results of them, which
then come home with the reports. All of it is bounded, whatever the rows are.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eddyline.data.arrays import Ints

MOST_GROUPS = 4
"""Groups that are watched, and whose results each task counts."""

MOST_MARKED = 6
"""Results of a watched group that one batch brings home, the last one among them."""

MOST_POINTS = 240
"""Results of a group that are kept, the newest ones."""

MOST_VALUES = 4
"""Aggregates of which values are kept: the first ones that are numbers."""

MOST_COUNTED = 64
"""Groups of which the driver knows how many results they had."""


@dataclass(slots=True)
class Marks:
    """The results of one bucket in a batch that show how a few groups went on."""

    watched: Sequence[int]
    """Codes of the groups; none: that of the busiest group, in the first buckets."""
    bucket: int
    busiest: dict[int, int] = field(default_factory=dict)
    """Results of the busiest groups of each table, and of those watched, by their codes."""

    def of(self, codes: Ints) -> Ints:
        """Return which of some results are marked, by their places, in any order.

        Args:
            codes: of their groups, in ascending order; of one group, the oldest result first.
        """
        if not codes.size:
            return np.empty(0, np.int64)
        firsts = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))
        sizes = np.diff(np.append(firsts, codes.size))
        top = np.argsort(-sizes, kind="stable")[:MOST_GROUPS]
        found = dict(zip(codes[firsts[top]].tolist(), sizes[top].tolist(), strict=True))
        watched = self.watched
        if not watched and self.bucket < MOST_GROUPS:
            watched = [next(iter(found))]
        lows = np.searchsorted(codes, np.array(watched, np.int64), "left")
        highs = np.searchsorted(codes, np.array(watched, np.int64), "right")
        # Those that are watched are told of, too, so that others are compared to all they had.
        found |= dict(zip(watched, (highs - lows).tolist(), strict=True))
        for code, n in found.items():
            self.busiest[code] = self.busiest.get(code, 0) + n
        parts = [
            np.linspace(lo, hi - 1, min(MOST_MARKED, hi - lo)).astype(np.int64)
            for lo, hi in zip(lows.tolist(), highs.tolist(), strict=True)
        ]
        return np.concatenate([np.empty(0, np.int64), *parts])


@dataclass(frozen=True, slots=True)
class Point:
    """What a group was at an instant."""

    instant: int
    """µs."""
    values: tuple[float | None, ...]
    """Of each aggregate; None is NULL, or NaN."""


@dataclass(frozen=True, slots=True)
class GroupSeries:
    """A group over time."""

    name: str
    """Its values, shortened."""
    points: tuple[Point, ...]
    """In the order of time."""


class GroupSamples:
    """What the driver knows of a few groups.

    Args:
        columns: the aggregates of which values are kept.
    """

    def __init__(self, columns: Sequence[str] = ()) -> None:
        self.columns = tuple(columns)
        self.watched: tuple[int, ...] = ()
        """Codes of the groups, at most ``MOST_GROUPS``."""
        self._n: dict[int, int] = {}
        self._names: dict[int, str] = {}
        self._points: dict[int, deque[Point]] = {}

    def take(
        self, busiest: Iterable[Mapping[int, int]], marked: Iterable[tuple[int, str, Point]]
    ) -> None:
        """Take in what the tasks of a batch told.

        Args:
            busiest: results of the busiest groups of each bucket, by their codes.
            marked: code and name of the group of each marked result, and what it was.
        """
        for each in busiest:
            for code, n in each.items():
                self._n[code] = self._n.get(code, 0) + n
        found = sorted(marked, key=lambda each: each[2].instant)
        for code, name, point in found:
            self._names[code] = name
            self._points.setdefault(code, deque(maxlen=MOST_POINTS)).append(point)
        self._choose()
        self._names = {code: self._names[code] for code in self.watched if code in self._names}
        self._points = {code: self._points[code] for code in self._names}

    def _choose(self) -> None:
        """Watch the groups with most results; one goes only for one that has twice as many."""
        ranked = sorted(self._n, key=lambda code: (-self._n[code], code))[:MOST_COUNTED]
        self._n = {code: self._n[code] for code in ranked}
        before = self.watched or tuple(self._points)
        kept = [code for code in before if code in self._n][:MOST_GROUPS]
        for code in (each for each in ranked if each not in kept):
            least = min(kept, key=lambda each: self._n[each]) if kept else code
            if len(kept) < MOST_GROUPS:
                kept.append(code)
            elif self._n[code] > 2 * self._n[least]:
                kept[kept.index(least)] = code
        self.watched = tuple(kept)

    def series(self) -> tuple[GroupSeries, ...]:
        """Return the watched groups of which something is known."""
        return tuple(
            GroupSeries(self._names[code], tuple(self._points[code]))
            for code in self.watched
            if code in self._points
        )
