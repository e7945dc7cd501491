"""Filters of the keys of runs.

They pay for keys that a run hardly ever holds. A filter rejects nearly all keys that a run does not
hold, so the run is read for few others. It never rejects a key that the run holds. It is a Bloom
filter whose four bits of a key are in one word, with 16 bits a key: about one other key in 200
passes. The least and the greatest code of a run (its zone) reject whole batches if keys ascend with
time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled
from eddyline.state.run_index import hashes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

KEYS_PER_WORD = 4
"""Rows of a run for each word of 64 bits of its filter."""


@dataclass(frozen=True, slots=True, eq=False)
class AskedKeys:
    """Codes that are looked up."""

    hashes: NDArray[np.uint64]
    """Of the codes; see ``run_index.hashes_of``."""
    masks: NDArray[np.uint64]
    """The bits that a filter has of each of them; see ``masks_of``."""
    codes: NDArray[np.int64]
    places: NDArray[np.int64]
    """The place of each among all that is looked up, ascending."""
    lowest: int
    """No code is less."""
    highest: int
    """No code is greater."""

    @classmethod
    def from_hashes(cls, hashes: NDArray[np.uint64], codes: NDArray[np.int64]) -> AskedKeys:
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
    def from_codes(cls, parts: Sequence[NDArray[np.int64]]) -> KeyFilter:
        """Return the filter of codes in parts; at least one in each."""
        words = np.zeros(max(1, sum(part.size for part in parts) // KEYS_PER_WORD), np.uint64)
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


_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_SIX = np.uint64(6)
_PLACE = np.uint64(63)


@compiled
def add_hashes(words: NDArray[np.uint64], hashes: NDArray[np.uint64]) -> None:
    """Add hashes to the words of a filter; their upper half chooses the word."""
    n_words = np.uint64(words.size)
    for row in range(hashes.size):
        words[((hashes[row] >> _HALF) * n_words) >> _HALF] |= _mask(hashes[row])


@compiled
def masks_of(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the bits that each hash has in its word."""
    masks = np.empty(hashes.size, np.uint64)
    for row in range(hashes.size):
        masks[row] = _mask(hashes[row])
    return masks


@compiled
def _mask(value: np.uint64) -> np.uint64:
    bits, mask = value & _LOW, np.uint64(0)
    for _ in range(4):
        mask |= np.uint64(1) << (bits & _PLACE)
        bits >>= _SIX
    return mask


@compiled
def may_hold(
    words: NDArray[np.uint64],
    lowest: int,
    highest: int,
    hashes: NDArray[np.uint64],
    masks: NDArray[np.uint64],
    codes: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return the places of the codes, and of their hashes, that a filter may hold.

    Args:
        words: of the filter.
        lowest: the least code that it holds.
        highest: the greatest one.
        hashes: of the codes.
        masks: of the hashes.
        codes: what is asked for.
    """
    places, n, n_words = np.empty(codes.size, np.int64), 0, np.uint64(words.size)
    for row in range(codes.size):
        if codes[row] < lowest or codes[row] > highest:
            continue
        word = words[((hashes[row] >> _HALF) * n_words) >> _HALF]
        places[n] = row
        n += (word & masks[row]) == masks[row]
    return places[:n]
