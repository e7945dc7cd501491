"""Moments: of which variances, standard deviations, covariances and correlations are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from eddyline.aggregates.columns import is_there, one_array, settled
from eddyline.aggregates.moments_kernels import comoments, moments
from eddyline.aggregates.monoid import Monoid

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


_ONE = "CASE WHEN {x} IS NULL THEN 0L ELSE 1L END"
"""The number of a single row."""


@dataclass(frozen=True, slots=True)
class Moments(Monoid):
    """Moments of doubles: structs of their number ``n``, ``mean`` and squared deviations ``m2``."""

    combine: ClassVar[Callable[..., NDArray[np.float64]]] = moments
    reduce_sql: ClassVar[str] = (
        "named_struct('n', count({x}), 'mean', avg({x}), 'm2', var_pop({x}) * count({x}))"
    )
    # The deviation of a row from itself: NaN of infinity, as Spark has it.
    lift_sql: ClassVar[str] = f"named_struct('n', {_ONE}, 'mean', {{x}}, 'm2', {{x}} - {{x}})"

    def merge(
        self, column: pa.Array | pa.ChunkedArray, lo: NDArray[np.int64], hi: NDArray[np.int64]
    ) -> pa.Array:
        """Return the moments of each range."""
        array = one_array(column)
        fields = [array.field(at) for at in range(array.type.num_fields)]
        cells = np.column_stack([_numbers(each) for each in fields])
        cells[~is_there(array), 0] = 0.0
        found = type(self).combine(cells, lo, hi)
        there = found[:, 0] > 0
        columns = [
            pa.array(np.ascontiguousarray(found[:, at]), mask=~there).cast(each.type)
            for at, each in enumerate(fields)
        ]
        parts = [array.type.field(at) for at in range(len(fields))]
        return settled(pa.StructArray.from_arrays(columns, fields=parts, mask=pa.array(~there)))


@dataclass(frozen=True, slots=True)
class PairMoments(Moments):
    """Moments of pairs of doubles, as structs of ``x`` and ``y``, neither of them NULL."""

    combine: ClassVar[Callable[..., NDArray[np.float64]]] = comoments
    reduce_sql: ClassVar[str] = (
        "named_struct('n', count({x}), 'mean_x', avg(({x}).x), 'mean_y', avg(({x}).y), "
        "'xy', covar_pop(({x}).x, ({x}).y) * count({x}), "
        "'xx', var_pop(({x}).x) * count({x}), 'yy', var_pop(({x}).y) * count({x}))"
    )
    lift_sql: ClassVar[str] = (
        f"named_struct('n', {_ONE}, 'mean_x', ({{x}}).x, 'mean_y', ({{x}}).y, "
        "'xy', (({x}).x - ({x}).x) * (({x}).y - ({x}).y), "
        "'xx', ({x}).x - ({x}).x, 'yy', ({x}).y - ({x}).y)"
    )


def _numbers(array: pa.Array) -> NDArray[np.float64]:
    """Return numbers as doubles, 0 for NULL."""
    values: NDArray[Any] = array.to_numpy(zero_copy_only=False).astype(np.float64)
    if array.null_count:
        values = np.where(is_there(array), values, 0.0)
    return values
