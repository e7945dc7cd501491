"""Exact quantiles of rows, where there are no sketches of cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from eddyline.aggregates.columns import is_there, one_array, taken
from eddyline.aggregates.keys import ranks_of
from eddyline.aggregates.monoid import Monoid
from eddyline.aggregates.quantiles_kernels import places_of_ranks
from eddyline.errors import PlanError

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Quantile(Monoid):
    """The least value that so large a fraction of the values does not exceed.

    Entries are structs of the fraction ``p``, one and the same, and a value ``x``, of single rows:
    there are no cells of them, and nothing to merge.
    """

    reduce_sql: ClassVar[str] = ""
    can_merge: ClassVar[bool] = False

    def merge(
        self, column: pa.Array | pa.ChunkedArray, lo: NDArray[np.int64], hi: NDArray[np.int64]
    ) -> pa.Array:
        """Refuse: two quantiles do not make one of both."""
        del lo, hi
        message = "quantiles of rows cannot be merged; merge the sketches of cells"
        raise PlanError(message, type=str(column.type))

    def value(
        self, column: pa.Array | pa.ChunkedArray, lo: NDArray[np.int64], hi: NDArray[np.int64]
    ) -> pa.Array:
        """Return the quantile of each range."""
        array = one_array(column)
        wanted, values = array.field(0), array.field(1)
        there = is_there(array) & is_there(values)
        order = np.argsort(ranks_of(values), kind="stable")
        places = np.empty(order.size, np.int64)
        places[order] = np.arange(order.size)
        fractions = wanted.to_numpy(zero_copy_only=False).astype(np.float64)
        found = places_of_ranks(np.where(there, places, -1), fractions, lo, hi)
        some = found >= 0
        found[some] = order[found[some]]
        return taken(values, found)
