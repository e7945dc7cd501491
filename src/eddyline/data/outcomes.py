"""Outcomes of sampled rows, packed into bits.

A bit says whether a filter drops the row. A hash of its place says whether a row is sampled.
*Sampling.* A row is sampled iff its hash lies below the sampling probability. The hash is a
function of (seed, partition, row number) and nothing else. So the sample does not depend on how
rows are cut into batches, a retried task samples the same rows, and a smaller probability samples a
subset of what a larger one does.

*Outcome codes.* Bit ``f`` of a row's code is 1 iff filter ``f`` drops the row (its predicate is
false or NULL). Codes are rows of bytes, little-endian in the bits, so any number of filters fits,
not just the 62 of one integer.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

_GAMMA = np.uint64(0x9E3779B97F4A7C15)  # splitmix64, Steele, Lea and Flood 2014
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def seed_of(*parts: Any) -> int:
    """Return a 63-bit seed that depends on every part and is the same in every process."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def sampled_rows(seed: int, first_row: int, n_rows: int, prob: float) -> NDArray[np.int64]:
    """Return a mask of the sampled among the rows ``first_row .. first_row + n_rows``.

    The seed is of the query, batch and partition (see ``seed_of``).

    Returns:
        Ascending offsets from ``first_row`` ((M,)).
    """
    if prob <= 0.0 or n_rows == 0:
        return np.zeros(0, dtype=np.int64)
    if prob >= 1.0:
        return np.arange(n_rows, dtype=np.int64)
    with np.errstate(over="ignore"):
        z = np.arange(first_row + 1, first_row + n_rows + 1, dtype=np.uint64)
        z = np.uint64(seed) + z * _GAMMA
        z = (z ^ (z >> np.uint64(30))) * _MIX_1
        z = (z ^ (z >> np.uint64(27))) * _MIX_2
        z ^= z >> np.uint64(31)
    return np.flatnonzero(z < np.uint64(int(prob * 2.0**64)))


Codes = NDArray[np.uint8]
Bits = NDArray[np.bool_]


def n_bytes(n_filters: int) -> int:
    """Return the width of a code (bytes)."""
    return (n_filters + 7) // 8


def pack(bits: Bits) -> Codes:
    """Pack outcome bits (R, F) into codes (R, ceil(F / 8)).

    >>> pack(np.array([[True, False, True]]))
    array([[5]], dtype=uint8)
    """
    return np.packbits(bits, axis=1, bitorder="little")


def unpack(codes: Codes, n_filters: int) -> Bits:
    """Return the outcome bits (R, F) of packed codes."""
    return np.unpackbits(codes, axis=1, count=n_filters, bitorder="little").view(np.bool_)


def histogram(codes: Codes, weights: NDArray[np.float64]) -> tuple[Codes, NDArray[np.float64]]:
    """Group equal codes.

    Args:
        codes: packed outcome codes ((R, B)).
        weights: the weight of each row ((R,)).

    Returns:
        The distinct codes ((K, B)) and the sum of the weights of each ((K,)).
    """
    if len(codes) == 0:
        return codes, np.zeros(0)
    first, code = grouped(codes)
    total = np.bincount(code, weights=weights, minlength=len(first))
    return codes[first], total.astype(np.float64)


def grouped(codes: Codes) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the first row of each distinct code ((K,)), and which of them each row has ((R,))."""
    n_rows, width = codes.shape
    keys: NDArray[Any]
    if width <= 8:  # an integer sorts 3 times as fast
        wide = np.zeros((n_rows, 8), dtype=np.uint8)
        wide[:, :width] = codes
        keys = wide.view(np.uint64).ravel()
    else:
        keys = np.ascontiguousarray(codes).view(np.dtype((np.void, width))).ravel()
    _, first, code = np.unique(keys, return_index=True, return_inverse=True)
    return first, code
