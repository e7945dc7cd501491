"""Keys of Arrow's values: whole numbers that sort as Spark sorts the values.

NaN is greater than every number and equal to itself, texts sort by their bytes, structs by their
fields and arrays by their elements, in which NULL is the least. -0.0 sorts before 0.0, so that
which of them is found does not depend on the order of rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.aggregates.columns import is_there, limbs, plain
from eddyline.errors import PlanError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAGNITUDE = np.int64(2**63 - 1)
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether values are texts or bytes."""
    return any(test(kind) for test in (*_TEXTS, *_BYTES, pa.types.is_binary_view))


def words_of(array: pa.Array, *, is_exact: bool = True) -> NDArray[np.int64] | None:
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
    if pa.types.is_decimal128(kind) and kind.precision <= 18:
        return limbs(array)[0].view(np.int64)
    if pa.types.is_unsigned_integer(kind) and kind.bit_width == 64:
        return plain(array, np.int64) ^ ~_MAGNITUDE
    if pa.types.is_unsigned_integer(kind):
        return plain(array, f"u{kind.bit_width // 8}").astype(np.int64)
    is_time = pa.types.is_temporal(kind) and not pa.types.is_interval(kind)
    if pa.types.is_integer(kind) or is_time:
        return plain(array, f"i{kind.bit_width // 8}").astype(np.int64)
    return None


def _float_words(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return bits of numbers that sort as the numbers do, all kinds of NaN as one."""
    bits = np.where(np.isnan(values), np.nan, values).view(np.int64)
    return bits ^ ((bits >> 63) & _MAGNITUDE)


def ranks_of(array: pa.Array, *, is_exact: bool = True) -> NDArray[np.int64]:
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
        fields = [ranks_of(array.field(at), is_exact=is_exact) for at in range(kind.num_fields)]
        ranks = _dense(*reversed(fields)) if fields else np.zeros(len(array), np.int64)
    elif any(test(kind) for test in _LISTS):
        ranks = _list_ranks(array, is_exact=is_exact)
    elif pa.types.is_map(kind):  # by their entries, in the order in which these stand
        entries = pa.ListArray.from_arrays(array.offsets, array.values)
        ranks = _list_ranks(entries, is_exact=is_exact)
    else:
        raise PlanError(f"values of {kind} have no order", type=str(kind))
    return np.where(there, ranks + 1, 0)


def codes_of(array: pa.Array) -> tuple[NDArray[np.int64], int]:
    """Return numbers that are equal for equal values (none of them NULL), and how many there are.

    Values are equal as in Spark's groups: NaN is NaN, -0.0 is 0.0.
    """
    words = words_of(array, is_exact=False)
    if words is None and not is_bytes(array.type) and not pa.types.is_decimal(array.type):
        ranks = ranks_of(array, is_exact=False)
        return ranks, int(ranks.max(initial=-1)) + 1
    encoded = pc.dictionary_encode(array if words is None else pa.array(words))
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


def _dense(*keys: NDArray[np.int64] | NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return ranks from 0 on by keys, the last of which counts most."""
    order = np.argsort(keys[0], kind="stable") if len(keys) == 1 else np.lexsort(keys)
    is_next = np.zeros(order.size, np.bool_)
    for key in keys:
        is_next[1:] |= key[order[1:]] != key[order[:-1]]
    ranks = np.empty(order.size, np.int64)
    ranks[order] = np.cumsum(is_next)
    return ranks


def _text_ranks(array: pa.Array) -> NDArray[np.int64]:
    wide = array.cast(pa.large_binary()) if not pa.types.is_large_binary(array.type) else array
    encoded = pc.dictionary_encode(wide)
    values = encoded.dictionary
    ranks = np.zeros(len(values) + 1, np.int64)
    ranks[pc.sort_indices(values).to_numpy()] = np.arange(len(values))
    codes: NDArray[np.int64] = pc.fill_null(encoded.indices, len(values)).to_numpy()
    return ranks[codes]


def _list_ranks(array: pa.Array, *, is_exact: bool) -> NDArray[np.int64]:
    """Return ranks of lists: place by place, as far as the longest of them goes."""
    sizes = pc.fill_null(pc.list_value_length(array), 0).to_numpy().astype(np.int64)
    elements = ranks_of(pc.list_flatten(array), is_exact=is_exact) + 1
    firsts = np.cumsum(sizes) - sizes
    ranks = np.zeros(len(array), np.int64)
    for place in range(int(sizes.max(initial=0))):
        own = np.zeros(len(array), np.int64)
        has = sizes > place
        own[has] = elements[firsts[has] + place]
        ranks = _dense(own, ranks)
    return ranks
