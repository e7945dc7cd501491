"""Values of results beside those before them: what is computed once, and which of them differ.

Where only changes are asked for, the result before is most often the one that was just given, so
its values are there already. And where output columns are values as they are, tasks see by these
which results changed, and none of before has to be told.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.data.arrays import whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eddyline.aggregates.monoid import Monoid
    from eddyline.data.arrays import Ints, Mask

_KNOWN = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_date,
    pa.types.is_timestamp,
    pa.types.is_string,
    pa.types.is_binary,
)


def can_compare(kind: pa.DataType) -> bool:
    """Return whether values of a type are equal here where Spark says that they are not distinct.

    >>> can_compare(pa.float64()), can_compare(pa.list_(pa.int64()))
    (True, False)
    """
    return any(is_it(kind) for is_it in _KNOWN)


@dataclass(frozen=True)
class Beside:
    """Ranges of results, and those of the results before them, which follow each other.

    ``ranges`` has lo and hi of each, and lo and hi of the one before ((results, 4)).
    """

    ranges: Ints

    @cached_property
    def is_apart(self) -> Mask:
        """Which results have one before that is not the result that stands before them."""
        found = np.ones(self.ranges.shape[0], np.bool_)
        found[1:] = (self.ranges[1:, 2:] != self.ranges[:-1, :2]).any(axis=1)
        return found

    @cached_property
    def at(self) -> Ints:
        """Where the values of each result are; those of the one before stand before them."""
        found: Ints = np.arange(self.is_apart.size) + np.cumsum(self.is_apart)
        return found

    @cached_property
    def every(self) -> tuple[Ints, Ints]:
        """All ranges, in order: lo and hi."""
        size = self.at.size + int(np.count_nonzero(self.is_apart))
        lo, hi = np.empty(size, np.int64), np.empty(size, np.int64)
        lo[self.at], hi[self.at] = self.ranges[:, 0], self.ranges[:, 1]
        before = self.at[self.is_apart] - 1
        lo[before], hi[before] = self.ranges[self.is_apart, 2], self.ranges[self.is_apart, 3]
        return lo, hi

    def values(self, monoid: Monoid, column: pa.ChunkedArray) -> pa.Array:
        """Return the values of all ranges."""
        return monoid.value(whole(column), *self.every)

    def differs(self, values: pa.Array, among: Ints) -> Mask:
        """Return which of some results differ in a value from the one before.

        Args:
            values: of all ranges.
            among: the results that are asked about, by their places.
        """
        at = self.at[among]
        if at.size == self.at.size == len(values) - 1:  # of one group: no copies
            return _distinct(values.slice(1), values.slice(0, len(values) - 1))
        return _distinct(values.take(pa.array(at)), values.take(pa.array(at - 1)))


def _distinct(one: pa.Array, other: pa.Array) -> Mask:
    """Return which entries are distinct: NULL is as NULL, and NaN as NaN."""
    same = _mask(pc.equal(one, other))
    if pa.types.is_floating(one.type):
        same |= _mask(pc.is_nan(one)) & _mask(pc.is_nan(other))
    if one.null_count and other.null_count:
        same |= _mask(pc.is_null(one)) & _mask(pc.is_null(other))
    return ~same


def _mask(found: pa.Array) -> NDArray[np.bool_]:
    filled: Any = pc.fill_null(found, False) if found.null_count else found
    mask: NDArray[np.bool_] = filled.to_numpy(zero_copy_only=False)
    return mask
