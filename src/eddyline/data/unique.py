"""Distinct values of an array."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Whole = TypeVar("Whole", bound=np.integer)


def distinct(values: NDArray[Whole]) -> NDArray[Whole]:
    """Return the distinct whole numbers of an array ((n,)), ascending.

    ``np.unique`` of NumPy 2.4 hashes, and takes up to 20 times as long where there are many.

    >>> distinct(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    found = np.sort(values)
    is_first = np.ones(found.size, np.bool_)
    np.not_equal(found[1:], found[:-1], out=is_first[1:])
    return found[is_first]
