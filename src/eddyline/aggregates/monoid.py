"""What combines partials: an operation on entries of a column, over many ranges at once.

Ranges follow each other: their first and their last entries are both in ascending order, so that
one pass over the entries serves them all, however long they are. Where entries of one group end,
those of the next begin, and ranges jump.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


class Monoid(ABC):
    """An associative operation on partials; NULL is its neutral element.

    ``lo`` and ``hi`` ((ranges,)) say which entries a range has: [lo, hi). Both are in ascending
    order, with lo <= hi. A range without entries, or of NULL alone, gives NULL.
    """

    reduce_sql: ClassVar[str]
    """Spark's aggregate that makes one partial of the lifted values ``{x}`` of many rows. Empty if
    there is none, so that only rows can be combined."""
    lift_sql: ClassVar[str] = "{x}"
    """SQL of the partial of a single row, of the same type; ``{type}`` is that type's name. Empty
    if there is none, so that only cells can be combined."""

    can_merge: ClassVar[bool] = True
    """Whether partials of ranges can be partials again."""

    @abstractmethod
    def merge(
        self, column: pa.Array | pa.ChunkedArray, lo: NDArray[np.int64], hi: NDArray[np.int64]
    ) -> pa.Array:
        """Return the partial of each range, of the type of the column.

        Raises:
            AggregateError: a partial that its type cannot hold, where Spark would raise.
            PlanError: a column of a type that has no such partials.
        """

    def value(
        self, column: pa.Array | pa.ChunkedArray, lo: NDArray[np.int64], hi: NDArray[np.int64]
    ) -> pa.Array:
        """Return what the final SQL reads of each range: its partial, if nothing else is said."""
        return self.merge(column, lo, hi)

    def under(self, *, ansi: bool) -> Monoid:
        """Return the operation in Spark's ANSI mode, or out of it."""
        del ansi
        return self
