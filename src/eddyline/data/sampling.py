"""Sampling of rows to profile: a function of (seed, partition, row number) and nothing else.

A row is sampled iff its hash lies below the sampling probability, so the sample does not depend on
how rows are cut into batches, a retried task samples the same rows, and a smaller probability
samples a subset of what a larger one does.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
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
