"""The numbers by which caches refer to rows of windows.

Every row of a run has a number of its own, which outlasts batches. The position of a row in its
window, by which combinations refer to it, is another one in each batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled
from eddyline.state.run_index import Index

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from eddyline.joins.caches.between_batches import BucketCaches
    from eddyline.state.rows import SortedRun
    from eddyline.state.run_files import RunFile

NEWS = ""
"""The name of the run of new rows, until it is written."""

_GONE = -(1 << 62)
"""Place of a row that is gone: with any number added, it is below all numbers that are given."""


class RowNumbers:
    """The numbers of the rows of some inputs in one bucket during one batch."""

    def __init__(self, kept: BucketCaches, names: Collection[str]) -> None:
        self.names = names
        self._kept = kept
        self._offsets: dict[str, NDArray[np.int64]] = {}
        self._shifts: dict[str, NDArray[np.int64]] = {}
        for name in [name for name in kept.numbers if name not in names]:
            del kept.numbers[name]

    def follow(
        self,
        name: str,
        runs: Mapping[str, SortedRun],
        horizon: int,
        made: Mapping[RunFile, SortedRun],
    ) -> bool:
        """Follow rows of an input into another run; returns whether they could be followed.

        If not, stores that refer to them have to begin anew. Rows that end before the horizon (µs)
        are left out; nothing is made if no row is left. ``NEWS`` names the run of the new rows.
        """
        if name not in self.names:
            return True
        are_followed = True
        numbers = self._kept.numbers.setdefault(name, {})
        for file, run in made.items():
            places = _places(list(runs.values()), horizon, run)
            if places is None or not numbers.keys() >= runs.keys():
                are_followed = False
                continue
            bases = np.array([numbers[each] for each in runs])
            sizes = np.array([len(each) for each in runs.values()])
            renamed = places + self._kept.number(name, file.name, len(run))
            for rows in self._kept.stores.values():
                rows.renumber(name, bases, sizes, renamed)
        for each in runs:
            numbers.pop(each, None)
        return are_followed

    def begin(
        self,
        files: Mapping[str, Sequence[RunFile]],
        windows: Mapping[str, Sequence[SortedRun]],
        news: Mapping[str, SortedRun],
    ) -> None:
        """Take in the windows; see ``CachedBatch.begin``."""
        for name in self.names:
            runs = [file.name for file in files.get(name, ())]
            opened = dict(zip(runs, windows.get(name, ()), strict=True))
            if name in news:
                opened[NEWS] = news[name]
            numbers = self._kept.numbers.setdefault(name, {})
            numbers.pop(NEWS, None)
            for gone in [run for run in numbers if run not in opened]:
                del numbers[gone]
            sizes = [len(run) for run in opened.values()]
            firsts = [self._kept.number(name, run, len(rows)) for run, rows in opened.items()]
            self._offsets[name] = np.cumsum([0, *sizes[:-1]]) if sizes else np.empty(0, np.int64)
            self._shifts[name] = np.array(firsts, np.int64) - self._offsets[name]

    def of(self, name: str, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of rows of an input at some positions of its window."""
        return moved(positions, self._offsets[name], self._shifts[name])

    def positions(self, name: str, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions of rows of an input that have some numbers."""
        firsts = self._offsets[name] + self._shifts[name]
        order = np.argsort(firsts)
        return moved(numbers, firsts[order], -self._shifts[name][order])


def _places(runs: Sequence[SortedRun], horizon: int, made: SortedRun) -> NDArray[np.int64] | None:
    """Return the place of each row of some runs in the run that was made of them.

    A row that is gone has ``_GONE``. None if the run is not made of those.
    """
    key, codes = next(iter(made.rows.codes.items()))
    stay = np.concatenate([run.rows.ends for run in runs]) >= horizon
    before = [
        np.concatenate(parts)[stay]
        for parts in (
            [run.rows.codes[key] for run in runs],
            [run.rows.starts for run in runs],
            [run.rows.ends for run in runs],
        )
    ]
    order = Index.of(before[0], before[1], before[2]).rows
    after = (codes, made.rows.starts, made.rows.ends)
    if not all(np.array_equal(old[order], new) for old, new in zip(before, after, strict=True)):
        return None
    found = np.full(stay.size, _GONE)
    places = np.empty(order.size, np.int64)
    places[order] = np.arange(order.size)
    found[stay] = places
    return found


@compiled
def moved(
    numbers: NDArray[np.int64], bases: NDArray[np.int64], shifts: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return numbers shifted by that of the last base (ascending) that is not above each."""
    found = np.empty(numbers.size, np.int64)
    place = 0
    for at in range(numbers.size):
        number = numbers[at]
        while place < bases.size and bases[place] <= number:
            place += 1
        while place > 0 and bases[place - 1] > number:
            place -= 1
        found[at] = number + shifts[place - 1] if place > 0 else number
    return found
