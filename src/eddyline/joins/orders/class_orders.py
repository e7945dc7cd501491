"""Probe orders by class of rows, in tasks.

It also reads the columns that tell classes apart. ``ClassOrders`` is what ``classes.ProbeRoutes``
chose for an input. ``RowAttribute`` reads the values of one column of rows as numbers, which
``routing.table`` cuts into bins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.data.hashes import add_hash, seeds
from eddyline.query.attributes import HASH_BITS

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
        if _is_text(kind):
            return _hashed(column.cast(pa.string()))
        if pa.types.is_date(kind):
            column = column.cast(pa.int32())
        if pa.types.is_boolean(kind):
            column = column.cast(pa.int8())
        numbers: Floats = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return numbers

    def texts(self, rows: Rows) -> dict[float, str]:
        """Return the start of each distinct text by the number that it has as a value."""
        if self.key is not None or not _is_text(rows.payload.schema.field(self.name).type):
            return {}
        distinct = rows.payload[self.name].combine_chunks().unique().drop_null().cast(pa.string())
        starts = pc.utf8_slice_codeunits(distinct, 0, SHOWN_CHARS)
        return dict(zip(_hashes(distinct).tolist(), starts.to_pylist(), strict=True))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _hashes(texts: pa.StringArray) -> Floats:
    """Return a hash of each text as a number."""
    hashes = seeds(len(texts))
    add_hash(hashes, texts)
    numbers: Floats = (hashes & HASH_BITS).astype(np.float64)
    return numbers


def _hashed(column: pa.StringArray) -> Floats:
    """Return a hash of each text as a number, nan for NULL; each distinct text is hashed once."""
    encoded = column.dictionary_encode()
    if not len(encoded.dictionary):
        return np.full(len(column), np.nan)
    places = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
    numbers: Floats = _hashes(encoded.dictionary)[places]
    if column.null_count:
        numbers[column.is_null().to_numpy(zero_copy_only=False)] = np.nan
    return numbers


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
