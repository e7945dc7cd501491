"""The orders of probes of classes of rows, and the columns that tell classes apart, in tasks.

``ClassOrders`` is what ``classes.ProbeRoutes`` chose for an input. ``RowAttribute`` reads the
values of one column of rows as numbers, which ``routing.table`` cuts into bins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.lane.scan import values_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eddyline.data.arrays import Floats
    from eddyline.routing.table import RouteTable
    from eddyline.state.rows import Rows

SHOWN_CHARS = 24
"""Characters of a text that people are shown."""


@dataclass(frozen=True, slots=True)
class RowAttribute:
    """A column by which tasks tell classes of rows apart."""

    name: str
    key: int | None = None
    """The key class whose code is its value; None: the payload has it."""

    def values(self, rows: Rows) -> Floats:
        """Return its values as numbers, nan for NULL; of texts, a hash ((N,))."""
        if self.key is not None:
            return rows.codes[self.key].astype(np.float64)
        column = rows.payload[self.name].combine_chunks()
        kind = column.type
        return values_of(column.cast(pa.string()) if _is_text(kind) else column)

    def texts(self, rows: Rows) -> dict[float, str]:
        """Return the start of each distinct text by the number that it has as a value."""
        if self.key is not None or not _is_text(rows.payload.schema.field(self.name).type):
            return {}
        distinct = rows.payload[self.name].combine_chunks().unique().drop_null().cast(pa.string())
        starts = pc.utf8_slice_codeunits(distinct, 0, SHOWN_CHARS)
        return dict(zip(values_of(distinct).tolist(), starts.to_pylist(), strict=True))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


@dataclass(frozen=True, slots=True)
class ClassOrders:
    """The orders of the classes of the new rows of one input."""

    table: RouteTable
    attribute: RowAttribute
    orders: tuple[tuple[str, ...], ...]
    """The order of probes of each group of classes."""

    def groups(self, rows: Rows) -> list[NDArray[np.int64]]:
        """Return the places of the rows of each group, ascending."""
        group = self.table.group_of(self.attribute.values(rows))
        places = np.argsort(group, kind="stable")
        return np.split(places, np.bincount(group, minlength=len(self.orders)).cumsum()[:-1])
