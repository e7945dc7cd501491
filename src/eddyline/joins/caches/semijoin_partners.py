"""Caches with partners: which hits are sound, and how long joined rows live [Babu05 5.7].

A store of X whose taps lie in the pipelines of X ∪ Y sees only rows of X that have a partner in Y;
others may be missing. That is harmless for inputs outside Y. A new row r of Y may be the first
partner of a missing row, so r may use a hit only if its window already held a row with the same
codes that started no later and lives at least as long (or until the latest row that there is):
whatever r joins, that row joined, and the store saw it. A key is put in with all its rows.

For the same reason no tap has to look at the combinations of such a row: the store has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.arrays import distinct
from eddyline.data.jit import compiled
from eddyline.state.rows import ALWAYS
from eddyline.state.run_index import stacked
from eddyline.state.run_index_kernels import first_alive, hashes_of, shift_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.operator.composites import Composites
    from eddyline.state.rows import SortedRun

_UNKNOWN = -1


class PartnerRows:
    """The rows of all windows in a batch.

    ``latest`` has for some inputs the latest start of their rows in ``windows``, or later (µs);
    it is completed, and brought forward to the new rows.
    """

    def __init__(
        self,
        graph: JoinGraph,
        windows: Mapping[str, Sequence[SortedRun]],
        news: Mapping[str, SortedRun],
        latest: dict[str, int],
    ) -> None:
        self.graph = graph
        self._windows, self._news, self._latest = windows, news, latest
        self._supported: dict[str, NDArray[np.int8]] = {}
        for name in graph.inputs:
            runs = () if name in latest else windows.get(name, ())
            last = latest.get(name, ALWAYS)
            for run in (*runs, *([news[name]] if name in news else [])):
                last = max(last, int(run.rows.starts.max()))
            latest[name] = last

    def lives(
        self, names: Iterable[str], joined: Composites
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the instants between which the rows of some inputs live in combinations (µs)."""
        parts = [self._lives(name, joined.rows[name]) for name in names]
        starts, ends = zip(*parts, strict=True)
        return np.maximum.reduce(starts), np.minimum.reduce(ends)

    def _lives(
        self, name: str, positions: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        runs = [*self._windows.get(name, ()), *([self._news[name]] if name in self._news else [])]
        firsts = np.cumsum([0, *(len(run) for run in runs[:-1])])
        numbers = np.searchsorted(firsts, positions, side="right") - 1
        starts, ends = np.empty((2, positions.size), np.int64)
        for number, run in enumerate(runs):
            at = np.flatnonzero(numbers == number)
            rows = positions[at] - firsts[number]
            starts[at], ends[at] = run.rows.starts[rows], run.rows.ends[rows]
        return starts, ends

    def ask(self, pipeline: str, positions: NDArray[np.int64]) -> tuple[NDArray[np.bool_], int]:
        """Return for new rows whether they may use their hits, and the number of look-ups for that.

        The same row may come more than once.
        """
        known = self._supported.setdefault(
            pipeline, np.full(len(self._news[pipeline]), _UNKNOWN, np.int8)
        )
        rows = positions - self._n_before(pipeline)
        asked = distinct(rows[known[rows] == _UNKNOWN])
        if asked.size:
            known[asked] = self._has_like(pipeline, asked)
        return known[rows] > 0, asked.size

    def known(self, pipeline: str, positions: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        """Return for new rows whether they surely may use hits; None if none was asked."""
        known = self._supported.get(pipeline)
        return None if known is None else known[positions - self._n_before(pipeline)] > 0

    def _n_before(self, pipeline: str) -> int:
        return sum(map(len, self._windows.get(pipeline, ())))

    def _has_like(self, pipeline: str, asked: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return for new rows whether a row in the window joins all that they join."""
        key, *others = self.graph.classes_of[pipeline]
        new = self._news[pipeline].rows
        latest = max(last for name, last in self._latest.items() if name != pipeline)
        hashes, starts = hashes_of(new.codes[key][asked]), new.starts[asked]
        until = np.minimum(new.ends[asked], latest)
        checks = stacked([new.codes[each][asked] for each in others], asked.size)
        found = np.zeros(asked.size, np.bool_)
        for run in self._windows.get(pipeline, ()):
            index = run.index(key)
            has_like(
                hashes,
                starts,
                until,
                checks,
                index.entries,
                index.directory,
                index.places,
                index.bounds,
                stacked([run.rows.codes[each] for each in others], len(run)),
                found,
            )
        return found


@compiled
def has_like(
    hashes: NDArray[np.uint64],
    starts: NDArray[np.int64],
    until: NDArray[np.int64],
    checks: NDArray[np.int64],
    entries: NDArray[np.int64],
    directory: NDArray[np.uint32],
    places: NDArray[np.uint32],
    bounds: NDArray[np.int64],
    index_checks: NDArray[np.int64],
    found: NDArray[np.bool_],
) -> None:
    """Mark rows of which a run has one with equal codes that started no later and lives until then.

    For the index see ``run_index.Index``; rows that are marked already are not looked up.
    """
    shift = shift_of(directory)
    for at in range(hashes.size):
        if found[at]:
            continue
        slot = hashes[at] >> shift
        low, high = np.int64(directory[slot]), np.int64(directory[slot + np.uint64(1)])
        place = first_alive(hashes[at], until[at], low, high, entries, bounds)
        while place < entries.shape[0] and not found[at]:
            if np.uint64(entries[place, 0]) != hashes[at] or entries[place, 1] > starts[at]:
                break
            row = np.int64(places[place]) if places.size else place
            is_like = entries[place, 2] >= until[at]
            for code in range(checks.shape[0]):
                is_like = is_like and checks[code, at] == index_checks[code, row]
            found[at] = is_like
            place += 1
