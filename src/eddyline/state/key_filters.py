"""Filters of the keys of runs, for keys that a run hardly ever holds.

A filter says of nearly all keys that a run does not hold that it does not, so that the run itself
is read for few others; of a key that it holds it never says so. It is a Bloom filter whose four
bits of a key are in one word, with 16 bits a key: about one other key in 200 passes. The least and
the greatest code of a run (its zone) keep whole batches away where keys ascend with time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eddyline.state.key_filter_kernels import filter_words, may_hold
from eddyline.state.run_index_kernels import hashes_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

KEYS_PER_WORD = 4
"""Rows of a run for each word of 64 bits of its filter."""


@dataclass(frozen=True, slots=True, eq=False)
class KeyFilter:
    """A filter of the codes of a run in one key class, which is not empty."""

    words: NDArray[np.uint64]
    lowest: int
    """The least code."""
    highest: int
    """The greatest one."""

    @classmethod
    def of(cls, codes: NDArray[np.int64]) -> KeyFilter:
        """Return the filter of codes; at least one."""
        words = filter_words(hashes_of(codes), max(1, codes.size // KEYS_PER_WORD))
        return cls(words, int(codes.min()), int(codes.max()))

    def passing(self, hashes: NDArray[np.uint64], codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places of codes that may be among those of the filter, ascending.

        Args:
            hashes: of the codes; see ``run_index_kernels.hashes_of``.
            codes: what is asked for.
        """
        return may_hold(self.words, self.lowest, self.highest, hashes, codes)


Filters = dict[int, KeyFilter]
"""The filters of a run, by key class."""
