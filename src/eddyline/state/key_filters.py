"""Filters of the keys of runs, for keys that a run hardly ever holds.

A filter says of nearly all keys that a run does not hold that it does not, so that the run itself
is read for few others; of a key that it holds it never says so. It is a Bloom filter whose four
bits of a key are in one word, with 16 bits a key: about one other key in 200 passes. The least and
the greatest code of a run (its zone) keep whole batches away where keys ascend with time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eddyline.state.key_filter_kernels import add_hashes, masks_of, may_hold
from eddyline.state.run_index_kernels import hashes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

KEYS_PER_WORD = 4
"""Rows of a run for each word of 64 bits of its filter."""


@dataclass(frozen=True, slots=True, eq=False)
class AskedKeys:
    """Codes that are looked up."""

    hashes: NDArray[np.uint64]
    """Of the codes; see ``run_index_kernels.hashes_of``."""
    masks: NDArray[np.uint64]
    """The bits that a filter has of each of them; see ``key_filter_kernels.masks_of``."""
    codes: NDArray[np.int64]
    places: NDArray[np.int64]
    """The place of each among all that is looked up, ascending."""
    lowest: int
    """No code is less."""
    highest: int
    """No code is greater."""

    @classmethod
    def of(cls, hashes: NDArray[np.uint64], codes: NDArray[np.int64]) -> AskedKeys:
        """Return codes with their hashes."""
        bounds = np.iinfo(np.int64)
        lowest, highest = codes.min(initial=bounds.max), codes.max(initial=bounds.min)
        places = np.arange(codes.size)
        return cls(hashes, masks_of(hashes), codes, places, int(lowest), int(highest))

    def taken(self, chosen: NDArray[np.int64]) -> AskedKeys:
        """Return some of them, by their places here."""
        return AskedKeys(
            self.hashes[chosen],
            self.masks[chosen],
            self.codes[chosen],
            self.places[chosen],
            self.lowest,
            self.highest,
        )


@dataclass(frozen=True, slots=True, eq=False)
class KeyFilter:
    """A filter of the codes of a run in one key class, which is not empty."""

    words: NDArray[np.uint64]
    lowest: int
    """The least code."""
    highest: int
    """The greatest one."""

    @classmethod
    def of(cls, parts: Sequence[NDArray[np.int64]]) -> KeyFilter:
        """Return the filter of codes in parts; at least one in each."""
        words = np.zeros(max(1, sum(each.size for each in parts) // KEYS_PER_WORD), np.uint64)
        for codes in parts:
            add_hashes(words, hashes_of(codes))
        lowest = min(int(codes.min()) for codes in parts)
        return cls(words, lowest, max(int(codes.max()) for codes in parts))

    def passing(self, asked: AskedKeys) -> NDArray[np.int64]:
        """Return the places of those that may be among the codes of the filter, ascending."""
        lowest, highest = self.lowest, self.highest
        if asked.lowest > highest or asked.highest < lowest:
            return np.empty(0, np.int64)
        return may_hold(self.words, lowest, highest, asked.hashes, asked.masks, asked.codes)


Filters = dict[int, KeyFilter]
"""The filters of a run, by key class."""
