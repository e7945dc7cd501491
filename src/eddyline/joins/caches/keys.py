"""The keys by which caches keep rows, and find them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.joins.caches.hash_kernels import key_hashes
from eddyline.state.run_index import stacked

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eddyline.joins.operator.composites import Composites


class Keys:
    """The keys of combinations; each kind is made when it is first asked for."""

    def __init__(self, joined: Composites) -> None:
        self.joined = joined
        self._made: dict[tuple[int, ...], tuple[NDArray[np.uint64], NDArray[np.int64]]] = {}

    def hashed(self, key: tuple[int, ...]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Return the hash and the codes of each combination in some classes."""
        if key not in self._made:
            codes = [np.ascontiguousarray(self.joined.codes[each]) for each in key]
            made = stacked(codes, len(self.joined))
            self._made[key] = key_hashes(made), made
        return self._made[key]
