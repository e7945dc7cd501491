"""Arrow's columns as NumPy arrays, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.data.arrays import whole

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    return whole(column) if isinstance(column, pa.ChunkedArray) else column


def is_there(array: pa.Array) -> NDArray[np.bool_]:
    """Return which entries are not NULL."""
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    found: NDArray[np.bool_] = pc.is_valid(array).to_numpy(zero_copy_only=False)
    return found


def plain(array: pa.Array, dtype: DTypeLike) -> NDArray[Any]:
    """Return the values of an array of fixed width as they lie in memory, NULL as anything."""
    kind = np.dtype(dtype)
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array), kind)
    return np.frombuffer(buffer, kind, len(array), array.offset * kind.itemsize)


def limbs(array: pa.Array) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the lower and upper halves of unscaled decimals of 128 bits."""
    pairs = plain(array, [("low", np.uint64), ("high", np.int64)])
    return np.ascontiguousarray(pairs["low"]), np.ascontiguousarray(pairs["high"])


def from_plain(
    values: NDArray[Any], kind: pa.DataType, there: NDArray[np.bool_] | None = None
) -> pa.Array:
    """Return an array of fixed width from its values in memory, NULL where nothing is there."""
    mask = None
    if there is not None and not there.all():
        mask = pa.py_buffer(np.packbits(there, bitorder="little"))
    content = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(kind, values.shape[0], [mask, content])


def from_limbs(
    low: NDArray[np.uint64],
    high: NDArray[np.int64],
    kind: pa.DataType,
    there: NDArray[np.bool_] | None = None,
) -> pa.Array:
    """Return decimals of 128 bits from the halves of their unscaled values."""
    return from_plain(np.column_stack([low.view(np.int64), high]), kind, there)


def taken(array: pa.Array, positions: NDArray[np.int64]) -> pa.Array:
    """Return entries by position, NULL for negative ones."""
    return settled(array.take(pa.array(positions, mask=positions < 0)))


def settled(array: pa.Array) -> pa.Array:
    """Return structs whose fields that are never NULL are not so in a struct that is NULL, either.

    Spark makes such fields of what cannot be NULL, and Arrow does not take NULL for them.
    """
    kind = array.type
    if not pa.types.is_struct(kind):
        return array
    fields = [kind.field(at) for at in range(kind.num_fields)]
    columns = [array.field(at) for at in range(kind.num_fields)]
    if not any(
        each.null_count and not field.nullable for each, field in zip(columns, fields, strict=True)
    ):
        return array
    made = [
        settled(each) if field.nullable else _without_null(each)
        for each, field in zip(columns, fields, strict=True)
    ]
    return pa.StructArray.from_arrays(made, fields=fields, mask=pc.is_null(array))


def _without_null(array: pa.Array) -> pa.Array:
    """Return an array with what lies in memory in the place of NULL."""
    kind = array.type
    if not array.null_count:
        return array
    if pa.types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        columns = [_without_null(array.field(at)) for at in range(kind.num_fields)]
        return pa.StructArray.from_arrays(columns, fields=fields)
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(array.offsets.fill_null(0), array.values, type=kind)
    buffers = [None, *array.buffers()[1:]]
    return pa.Array.from_buffers(kind, len(array), buffers, offset=array.offset)


def counts_of(
    there: NDArray[np.bool_], lo: NDArray[np.int64], hi: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return how many entries of each range are there."""
    if there.all():
        sizes: NDArray[np.int64] = hi - lo
        return sizes
    before = np.zeros(there.size + 1, np.int64)
    np.cumsum(there, out=before[1:])
    found: NDArray[np.int64] = before[hi] - before[lo]
    return found
