"""Compiled: filters of keys, in which a key is four bits of one word."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
    found = np.empty(hashes.size, np.uint64)
    for row in range(hashes.size):
        found[row] = _mask(hashes[row])
    return found


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
    found, n, n_words = np.empty(codes.size, np.int64), 0, np.uint64(words.size)
    for row in range(codes.size):
        if codes[row] < lowest or codes[row] > highest:
            continue
        word = words[((hashes[row] >> _HALF) * n_words) >> _HALF]
        found[n] = row
        n += (word & masks[row]) == masks[row]
    return found[:n]
