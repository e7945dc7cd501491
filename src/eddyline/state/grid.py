"""Grids of hashes that tell the buckets of a row.

A grid has one dimension for each key class. A row lies where the hashes of its keys say; along a
class in which its input has no key it lies everywhere, so a copy of it is in each of those buckets.
A result has one key in every class, so all its rows meet in one bucket, and only there.

Hashes of keys do not cut a key that most rows have. Its bin can be *split*: the buckets along the
class are then a grid of their own for it, with a side for each input that is cut, by hashes of
event time. A row lies where its own hash says, along the sides of the other inputs everywhere; so
the rows of a result, which has one of each input, still meet in one bucket [Okcan11 4; Afrati15].

After a change of the grid each bucket starts from the runs of all buckets that may have rows of it
(``buckets_for``), and takes each of its rows from one of these runs (``Moved``).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.data.hashes import add_longs, seeds
from eddyline.state.bucket_state import BucketState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from numpy.typing import NDArray

    from eddyline.state.rows import Rows
    from eddyline.state.run_files import RunFile

N_BINS = 240
"""Parts that hashes are counted in; what divides it can be a length of the grid."""

Bins = dict[tuple[str, int], "NDArray[Any]"]
"""By input and key class, how many rows have a hash in each bin ((N_BINS,))."""


def bins_of(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bin of each code: Spark's ``pmod(xxhash64(code), N_BINS)``."""
    return spark_hashes(codes).view(np.int64) % N_BINS


def spark_hashes(codes: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the hash of each code: Spark's ``xxhash64(code)``."""
    hashes = seeds(codes.size)
    add_longs(hashes, codes)
    return hashes.view(np.uint64)


@dataclass(frozen=True, slots=True)
class Split:
    """A bin whose rows are cut by their event times, too."""

    key: int
    """The key class."""
    bin: int
    sides: tuple[tuple[str, int], ...]
    """The inputs that are cut, and in how many parts; each a divisor of N_BINS."""

    @property
    def n_parts(self) -> int:
        """Number of parts of the bin."""
        return prod(size for _, size in self.sides)

    def side(self, name: str) -> tuple[int, int]:
        """Return in how many parts an input is cut, and how far apart these are."""
        names = [side for side, _ in self.sides]
        if name not in names:
            return 1, self.n_parts
        place = names.index(name)
        return self.sides[place][1], prod(size for _, size in self.sides[place + 1 :])

    def copies(self, name: str) -> list[int]:
        """Return the parts with copies of the first row of an input."""
        size, step = self.side(name)
        return [part for part in range(self.n_parts) if part // step % size == 0]

    def part(self, place: int, size: int) -> int:
        """Return the part of the bin that lies at a place of its key class, cut in so many parts.

        No two bins that follow each other begin at the same place.
        """
        return (place - self.bin) % size


@dataclass(frozen=True, slots=True)
class Grid:
    """A cut of rows into buckets."""

    shape: tuple[int, ...]
    """Number of parts of each key class; each a divisor of N_BINS, 1 if it is not cut."""
    splits: tuple[Split, ...] = ()
    """The bins that are cut by event time, too; each in no more parts than its key class."""

    @property
    def n_buckets(self) -> int:
        """Number of buckets."""
        return prod(self.shape)

    def place(self, bucket: int) -> tuple[int, ...]:
        """Return the coordinates of a bucket in the grid."""
        return tuple(int(coordinate) for coordinate in np.unravel_index(bucket, self.shape or (1,)))

    def holds(
        self,
        bucket: int,
        name: str,
        codes: Mapping[int, NDArray[np.int64]],
        starts: NDArray[np.int64],
    ) -> NDArray[np.bool_]:
        """Return a mask of the rows of an input that belong to a bucket ((R,)).

        They are told by their codes in one key class or more, and their event times (µs).
        """
        place, held = self.place(bucket), np.ones(starts.size, np.bool_)
        for key, key_codes in codes.items():
            bins = bins_of(key_codes)
            lies = bins % self.shape[key] == place[key]
            for split in self.splits:
                if split.key == key:
                    size, step = split.side(name)
                    part = split.part(place[key], self.shape[key])
                    is_mine = bins_of(starts) % size == part // step % size
                    lies = np.where(bins == split.bin, is_mine & (part < split.n_parts), lies)
            held &= lies
        return held

    def is_first(
        self,
        bucket: int,
        name: str,
        codes: Mapping[int, NDArray[np.int64]],
        starts: NDArray[np.int64],
    ) -> NDArray[np.bool_]:
        """Return of which rows that a bucket holds it is the first one: each is in one bucket.

        See ``holds`` for the arguments.
        """
        place, first = self.place(bucket), np.full(starts.size, bucket in set(self.once(codes)))
        for split in self.splits:
            if split.key in codes:
                part = split.part(place[split.key], self.shape[split.key])
                size, step = split.side(name)
                is_there = part in range(0, size * step, step)
                first &= is_there | (bins_of(codes[split.key]) != split.bin)
        return first

    def once(self, classes: Collection[int]) -> Iterator[int]:
        """Yield buckets that together hold each row of an input with these key classes.

        Each once, apart from rows of bins that are split.
        """
        sizes = [size if key in classes else 1 for key, size in enumerate(self.shape)]
        for place in product(*map(range, sizes)):
            yield int(np.ravel_multi_index(place, self.shape)) if place else 0


Buckets = dict[int, BucketState]
"""The state of each bucket, by its number; an empty one may be missing."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Origin of the runs of a batch, if another grid made them."""

    grid: Grid
    """That other grid."""
    buckets: Mapping[str, int]
    """The bucket of each run there, by its name."""

    @classmethod
    def from_grids(cls, before: Grid, buckets: Buckets, grid: Grid) -> Moved | None:
        """Return the origin of the runs of buckets; None if the grid is the same."""
        if before == grid:
            return None
        places = {
            file.name: bucket
            for bucket, state in buckets.items()
            for name in state.runs.keys() | state.cold.keys()
            for file in state.all_runs(name)
        }
        return cls(before, places)

    def taken(self, grid: Grid, bucket: int, name: str, run: str, rows: Rows) -> Rows:
        """Return the rows of a run that belong to a bucket now; each is taken from one run."""
        is_mine = grid.holds(bucket, name, rows.codes, rows.starts)
        is_mine &= self.grid.is_first(self.buckets[run], name, rows.codes, rows.starts)
        return rows.taken(np.flatnonzero(is_mine))


def buckets_for(
    grid: Grid, before: Grid, buckets: Buckets, classes_of: Mapping[str, Collection[int]]
) -> Buckets:
    """Return the state that each bucket of a grid starts from.

    State in the order of event time is never moved: it is in one bucket, and that of every grid.
    """
    if before == grid:
        return buckets
    every: dict[str, tuple[RunFile, ...]] = {}
    dropped: dict[str, tuple[RunFile, ...]] = {}
    for name, classes in classes_of.items():
        states = [buckets[number] for number in before.once(classes) if number in buckets]
        every[name] = tuple(file for state in states for file in state.all_runs(name))
        if gone := tuple(file for state in states for file in state.dropped.get(name, ())):
            dropped[name] = gone
    # What is known of dropped rows cannot be cut: where keys of other buckets are in it, too, they
    # are not asked for, or there are more rows of a key than there were, never fewer.
    return dict.fromkeys(range(grid.n_buckets), BucketState(every, dropped=dropped))
