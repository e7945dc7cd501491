"""Columns of Arrow as NumPy arrays.

Sort keys are whole numbers that order values as Spark does. Keys: NaN is greater than every number
and equal to itself, texts sort by their bytes, structs by their fields and arrays by their
elements, in which NULL is the least. -0.0 sorts before 0.0, so that which of them is found does not
depend on the order of rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.data.arrays import starts_of, whole
from eddyline.errors import PlanError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from eddyline.data.arrays import Floats, Ints, Mask, Words


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    return whole(column) if isinstance(column, pa.ChunkedArray) else column


def is_there(array: pa.Array) -> Mask:
    """Return which entries are not NULL."""
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    mask: Mask = pc.is_valid(array).to_numpy(zero_copy_only=False)
    return mask


def plain(array: pa.Array, dtype: DTypeLike) -> NDArray[Any]:
    """Return the values of an array of fixed width as they lie in memory, NULL as anything."""
    kind = np.dtype(dtype)
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array), kind)
    return np.frombuffer(buffer, kind, len(array), array.offset * kind.itemsize)


def limbs(array: pa.Array) -> tuple[Words, Ints]:
    """Return the lower and upper halves of unscaled decimals of 128 bits."""
    pairs = plain(array, [("low", np.uint64), ("high", np.int64)])
    return np.ascontiguousarray(pairs["low"]), np.ascontiguousarray(pairs["high"])


def from_plain(values: NDArray[Any], kind: pa.DataType, there: Mask | None = None) -> pa.Array:
    """Return an array of fixed width from its values in memory, NULL where nothing is there."""
    mask = None
    if there is not None and not there.all():
        mask = pa.py_buffer(np.packbits(there, bitorder="little"))
    content = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(kind, values.shape[0], [mask, content])


def from_limbs(low: Words, high: Ints, kind: pa.DataType, there: Mask | None = None) -> pa.Array:
    """Return decimals of 128 bits from the halves of their unscaled values."""
    return from_plain(np.column_stack([low.view(np.int64), high]), kind, there)


def taken(array: pa.Array, positions: Ints) -> pa.Array:
    """Return entries by position, NULL for negative ones."""
    return settled(array.take(pa.array(positions, mask=positions < 0)))


def settled(array: pa.Array) -> pa.Array:
    """Return structs whose fields that are never NULL are not so in a struct that is NULL, either.

    Spark makes such fields of what cannot be NULL, and Arrow does not take NULL for them.
    """
    kind = array.type
    if not pa.types.is_struct(kind):
        return array
    fields = [kind.field(number) for number in range(kind.num_fields)]
    columns = [array.field(number) for number in range(kind.num_fields)]
    if not any(
        column.null_count and not field.nullable
        for column, field in zip(columns, fields, strict=True)
    ):
        return array
    parts = [
        settled(column) if field.nullable else _without_null(column)
        for column, field in zip(columns, fields, strict=True)
    ]
    return pa.StructArray.from_arrays(parts, fields=fields, mask=pc.is_null(array))


def _without_null(array: pa.Array) -> pa.Array:
    """Return an array with what lies in memory in the place of NULL."""
    kind = array.type
    if not array.null_count:
        return array
    if pa.types.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        columns = [_without_null(array.field(number)) for number in range(kind.num_fields)]
        return pa.StructArray.from_arrays(columns, fields=fields)
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(array.offsets.fill_null(0), array.values, type=kind)
    buffers = [None, *array.buffers()[1:]]
    return pa.Array.from_buffers(kind, len(array), buffers, offset=array.offset)


def counts_of(there: Mask, lo: Ints, hi: Ints) -> Ints:
    """Return how many entries of each range are there."""
    if there.all():
        sizes: Ints = hi - lo
        return sizes
    before = starts_of(there)
    counts: Ints = before[hi] - before[lo]
    return counts


_MAGNITUDE = np.int64(2**63 - 1)
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether values are texts or bytes."""
    return any(test(kind) for test in (*_TEXTS, *_BYTES, pa.types.is_binary_view))


def words_of(array: pa.Array, *, is_exact: bool = True) -> Ints | None:
    """Return a key of 64 bits for each value, anything for NULL; None where it takes more.

    Args:
        array: values of any type.
        is_exact: whether -0.0 is told from 0.0.
    """
    kind = array.type
    if pa.types.is_boolean(kind):
        array, kind = array.cast(pa.uint8()), pa.uint8()
    if pa.types.is_floating(kind):
        values = plain(array, kind.to_pandas_dtype()).astype(np.float64)
        return _float_words(values if is_exact else values + 0.0)
    if pa.types.is_decimal128(kind):
        low, high = limbs(array)
        small = low.view(np.int64)
        return small if kind.precision <= 18 or (high == small >> 63).all() else None
    if pa.types.is_unsigned_integer(kind) and kind.bit_width == 64:
        return plain(array, np.int64) ^ ~_MAGNITUDE
    if pa.types.is_unsigned_integer(kind):
        return plain(array, f"u{kind.bit_width // 8}").astype(np.int64)
    is_time = pa.types.is_temporal(kind) and not pa.types.is_interval(kind)
    if pa.types.is_integer(kind) or is_time:
        return plain(array, f"i{kind.bit_width // 8}").astype(np.int64)
    return None


def _float_words(values: Floats) -> Ints:
    """Return bits of numbers that sort as the numbers do, all kinds of NaN as one."""
    bits = np.where(np.isnan(values), np.nan, values).view(np.int64)
    return bits ^ ((bits >> 63) & _MAGNITUDE)


def ranks_of(array: pa.Array, *, is_exact: bool = True) -> Ints:
    """Return the rank of each value, equal for equal ones; NULL is the least.

    Args:
        array: values of any type that sorts, or maps.
        is_exact: whether -0.0 is told from 0.0.

    Raises:
        PlanError: values that Spark does not sort.
    """
    kind, there = array.type, is_there(array)
    if pa.types.is_null(kind):
        return np.zeros(len(array), np.int64)
    words = words_of(array, is_exact=is_exact)
    if words is not None:
        ranks = _dense(words)
    elif pa.types.is_decimal128(kind):
        low, high = limbs(array)
        ranks = _dense(low, high)
    elif is_bytes(kind):
        ranks = _text_ranks(array)
    elif pa.types.is_struct(kind):
        fields = [
            ranks_of(array.field(number), is_exact=is_exact) for number in range(kind.num_fields)
        ]
        ranks = _dense(*reversed(fields)) if fields else np.zeros(len(array), np.int64)
    elif any(test(kind) for test in _LISTS):
        ranks = _list_ranks(array, is_exact=is_exact)
    elif pa.types.is_map(kind):  # by their entries, in the order in which these stand
        entries = pa.ListArray.from_arrays(array.offsets, array.values)
        ranks = _list_ranks(entries, is_exact=is_exact)
    else:
        raise PlanError(f"values of {kind} have no order", type=str(kind))
    return np.where(there, ranks + 1, 0)


def codes_of(array: pa.Array) -> tuple[Ints, int]:
    """Return numbers that are equal for equal values (none of them NULL), and how many there are.

    Values are equal as in Spark's groups: NaN is NaN, -0.0 is 0.0.
    """
    words = words_of(array, is_exact=False)
    if words is None and not is_bytes(array.type) and not pa.types.is_decimal(array.type):
        ranks = ranks_of(array, is_exact=False)
        return ranks, int(ranks.max(initial=-1)) + 1
    encoded = pc.dictionary_encode(array if words is None else pa.array(words))
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


def _dense(*keys: Ints | Words) -> Ints:
    """Return ranks from 0 on by keys, the last of which counts most."""
    order = np.argsort(keys[0], kind="stable") if len(keys) == 1 else np.lexsort(keys)
    is_next = np.zeros(order.size, np.bool_)
    for key in keys:
        is_next[1:] |= key[order[1:]] != key[order[:-1]]
    ranks = np.empty(order.size, np.int64)
    ranks[order] = np.cumsum(is_next)
    return ranks


def _text_ranks(array: pa.Array) -> Ints:
    wide = array.cast(pa.large_binary()) if not pa.types.is_large_binary(array.type) else array
    encoded = pc.dictionary_encode(wide)
    values = encoded.dictionary
    ranks = np.zeros(len(values) + 1, np.int64)
    ranks[pc.sort_indices(values).to_numpy()] = np.arange(len(values))
    codes: Ints = pc.fill_null(encoded.indices, len(values)).to_numpy()
    return ranks[codes]


def _list_ranks(array: pa.Array, *, is_exact: bool) -> Ints:
    """Return ranks of lists: place by place, as far as the longest of them goes."""
    sizes = pc.fill_null(pc.list_value_length(array), 0).to_numpy().astype(np.int64)
    elements = ranks_of(pc.list_flatten(array), is_exact=is_exact) + 1
    firsts = np.cumsum(sizes) - sizes
    ranks = np.zeros(len(array), np.int64)
    for place in range(int(sizes.max(initial=0))):
        column = np.zeros(len(array), np.int64)
        has = sizes > place
        column[has] = elements[firsts[has] + place]
        ranks = _dense(column, ranks)
    return ranks
