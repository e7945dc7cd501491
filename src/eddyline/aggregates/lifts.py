"""Columns of rows as tasks make them of those that travel: partials of single rows, and copies.

What a partial of one row is made of is most often a column that travels anyway, and that several
aggregates read. So columns cross from Spark to Python once, and tasks make the rest, most of it
without a copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.data.arrays import whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.data.arrays import Ints

Way = Literal["same", "number", "true", "present", "one", "mean", "moments", "timed"]
"""How a column is made: ``same`` is the column itself, ``number`` another type, ``true`` and
``present`` 1 where a value is true or not NULL and 0 elsewhere, ``one`` always 1; others are
partials of their monoids."""

WAYS: Mapping[tuple[str, str], Way] = {
    ("{x}", "min"): "same",
    ("{x}", "max"): "same",
    ("{x}", "sum"): "number",
    ("{x}", "count"): "present",
    ("1", "count"): "one",
    ("CAST({x} AS {number})", "mean"): "mean",
    ("CAST({x} AS DOUBLE)", "moments"): "moments",
    ("struct({t} AS t, {x} AS x)", "first"): "timed",
    ("struct({t} AS t, {x} AS x)", "last"): "timed",
}
"""By lift and monoid of a partial, how it is made of the argument."""


@dataclass(frozen=True, slots=True)
class Lift:
    """How a column of rows is made."""

    way: Way = "same"
    of: str = ""
    """The column that travels; none of ``one``."""
    kind: pa.DataType | None = None
    """Type of a number, and of the sum of a ``mean``."""

    def column(self, travelled: pa.Table, instants: Ints) -> pa.Array | pa.ChunkedArray:
        """Return the column of some rows.

        Args:
            travelled: the columns that travel.
            instants: of the rows (µs).
        """
        if self.way == "one":
            return pa.array(np.ones(instants.size, np.int64))
        given = travelled[self.of]
        return given if self.way == "same" else self._made(whole(given), instants)

    def _made(self, array: pa.Array, instants: Ints) -> pa.Array:
        """Return what is made of values."""
        if self.way == "true":
            return pc.fill_null(array, False).cast(pa.int64())
        if self.way == "present":
            return _present(array)
        if self.way == "timed":
            return pa.StructArray.from_arrays([pa.array(instants), array], ["t", "x"])
        numbers = _cast(array, self.kind)
        if self.way == "mean":
            return pa.StructArray.from_arrays([numbers, _present(array)], ["sum", "n"])
        if self.way == "number":
            return numbers
        # The deviation of a row from itself: NaN of infinity, as Spark has it.
        parts = [_present(array), numbers, pc.subtract(numbers, numbers)]
        return pa.StructArray.from_arrays(parts, ["n", "mean", "m2"])


def lifted(
    travelled: pa.Table, instants: Ints, lifts: Mapping[str, Lift]
) -> dict[str, pa.Array | pa.ChunkedArray]:
    """Return the columns of rows, by name; see ``Lift``."""
    return {name: each.column(travelled, instants) for name, each in lifts.items()}


def _present(array: pa.Array) -> pa.Array:
    """Return 1 where something is there, 0 where not."""
    if not array.null_count:
        return pa.array(np.ones(len(array), np.int64))
    return pc.is_valid(array).cast(pa.int64())


def _cast(array: pa.Array, kind: pa.DataType | None) -> pa.Array:
    """Return numbers as a type that holds them; of whole ones the nearest doubles, as in Java."""
    if kind is None or array.type == kind:
        return array
    return array.cast(kind, safe=not pa.types.is_floating(kind))
