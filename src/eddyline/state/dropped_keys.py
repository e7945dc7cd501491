"""The keys of rows that were dropped: a summary of bounded size that never counts too few rows.

As long as the keys are few they are *listed*, with how many rows each had, and when its newest one
came: what is said of them is exact. More than that are a *sketch* (see ``dropped_key_kernels``)
of a fixed size. A filter of the keys (see ``key_filters``) comes before either: of nearly all keys
that no dropped row had it says so, in lists for speed, in sketches for what others would add, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eddyline.state.dropped_key_kernels import BITS, DEPTH, add_counts, counts_of
from eddyline.state.key_filter_kernels import add_hashes
from eddyline.state.key_filters import KEYS_PER_WORD, KeyFilter
from eddyline.state.rows import ALWAYS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from eddyline.state.key_filters import AskedKeys
    from eddyline.state.rows import SortedRun

MOST_LISTED = 2**16
"""Most keys of a list (24 bytes each); more are a sketch, of 1 MiB."""

SKETCH_WORDS = 2**16
"""Words of the filter of a sketch: four times as many as those of the longest list, as it may come
to have any number of keys."""


class DroppedCounts(NamedTuple):
    """The dropped rows that have some keys, key by key."""

    most: NDArray[np.int64]
    """No key has more."""
    about: NDArray[np.float64]
    """About how many it has; what is listed exactly."""
    newest: NDArray[np.int64]
    """When the newest one came (µs); ALWAYS if it is not known."""


@dataclass(frozen=True, slots=True, eq=False)
class DroppedKeys:
    """The keys of dropped rows (one or more) in one key class."""

    filter: KeyFilter
    most: int
    """No key has more rows."""
    hashes: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    """Of the listed keys, ascending; see ``run_index_kernels.hashes_of``. None of a sketch."""
    counts: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """The rows of each of them."""
    newest: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """When the newest one of these came (µs)."""
    counters: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """Of a sketch ((DEPTH, 2^BITS)); none of a list."""

    @classmethod
    def of(cls, run: SortedRun, key: int) -> DroppedKeys:
        """Return the keys of the rows (one or more) of a run."""
        index, codes = run.index(key), run.rows.codes[key]
        hashes, ones = index.hashes, np.ones(len(index), np.int64)
        listed = _listed(hashes, ones, index.starts)
        return cls._with(*listed, int(codes.min()), int(codes.max()))

    @classmethod
    def together(cls, parts: Sequence[DroppedKeys]) -> DroppedKeys:
        """Return the keys of several parts."""
        lowest = min(each.filter.lowest for each in parts)
        highest = max(each.filter.highest for each in parts)
        if not any(each.counters.size for each in parts):
            columns = [(each.hashes, each.counts, each.newest) for each in parts]
            hashes, counts, newest = map(np.concatenate, zip(*columns, strict=True))
            order = np.argsort(hashes, kind="stable")
            listed = _listed(hashes[order], counts[order], newest[order])
            return cls._with(*listed, lowest, highest)
        return cls._sketch(parts, lowest, highest)

    @classmethod
    def _with(
        cls,
        hashes: NDArray[np.uint64],
        counts: NDArray[np.int64],
        newest: NDArray[np.int64],
        lowest: int,
        highest: int,
    ) -> DroppedKeys:
        """Return a list, or a sketch if it would be too long."""
        words = np.zeros(hashes.size // KEYS_PER_WORD + 1, np.uint64)
        add_hashes(words, hashes)
        known = KeyFilter(words, lowest, highest)
        listed = cls(known, int(counts.max()), hashes, counts, newest)
        if hashes.size <= MOST_LISTED:
            return listed
        return cls._sketch([listed], lowest, highest)

    @classmethod
    def _sketch(cls, parts: Sequence[DroppedKeys], lowest: int, highest: int) -> DroppedKeys:
        words = np.zeros(SKETCH_WORDS, np.uint64)
        counters = np.zeros((DEPTH, 2**BITS), np.int64)
        for each in parts:
            if each.counters.size:
                words |= each.filter.words
                counters += each.counters
            else:
                add_hashes(words, each.hashes)
                add_counts(counters, each.hashes, each.counts)
        most = min(int(counters.max(axis=1).min()), sum(each.most for each in parts))
        return cls(KeyFilter(words, lowest, highest), most, counters=counters)

    def counted(self, asked: AskedKeys) -> DroppedCounts:
        """Return the dropped rows with some keys."""
        if self.counters.size:
            most, about = counts_of(self.counters, asked.hashes)
            return DroppedCounts(most, about, np.full(most.size, ALWAYS))
        places = np.minimum(np.searchsorted(self.hashes, asked.hashes), self.hashes.size - 1)
        is_there = self.hashes[places] == asked.hashes
        most = np.where(is_there, self.counts[places], 0)
        newest = np.where(is_there, self.newest[places], ALWAYS)
        return DroppedCounts(most, most.astype(np.float64), newest)


def _listed(
    hashes: NDArray[np.uint64], counts: NDArray[np.int64], newest: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]:
    """Return each hash once, with the sum of its counts and its newest time; hashes ascend."""
    first = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]]))
    return hashes[first], np.add.reduceat(counts, first), np.maximum.reduceat(newest, first)
