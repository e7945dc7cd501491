"""Helpers for arrays: type names, distinct values, parts, texts.

A name such as ``Ints`` says which type an array has, not what its numbers mean. Parts are stretches
of an array, known by where they start. Snapshots are plain JSON, so arrays in them are short texts:
``<f8;3,4;`` (kind and size of a value, lengths of the axes) and base64 of zlib.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import zlib
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from eddyline.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Int32s = NDArray[np.int32]
Indices = NDArray[np.intp]
"""Places in another array, as ``argsort`` and ``flatnonzero`` return them."""
Mask = NDArray[np.bool_]
Words = NDArray[np.uint64]
"""Bits in words of 64, or hashes."""
Bytes = NDArray[np.uint8]


Whole = TypeVar("Whole", bound=np.integer)


def distinct(values: NDArray[Whole]) -> NDArray[Whole]:
    """Return the distinct whole numbers of an array ((n,)), ascending.

    ``np.unique`` of NumPy 2.4 hashes, and takes up to 20 times as long where there are many.

    >>> distinct(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    ordered = np.sort(values)
    is_first = np.ones(ordered.size, np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first]


def starts_of(sizes: Sequence[int] | NDArray[Any]) -> Ints:
    """Return the starts of parts of some sizes, one after the other, and the end of the last.

    Of a mask these are the numbers of entries before each for which it is true.

    >>> starts_of([2, 3]).tolist()
    [0, 2, 5]
    """
    starts = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=starts[1:])
    return starts


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, which is part of the column where that has one chunk.

    Arrow's ``combine_chunks`` copies such a column, too.

    >>> import pyarrow as pa
    >>> column = pa.chunked_array([[1, 2]])
    >>> whole(column).buffers()[1].address == column.chunk(0).buffers()[1].address
    True
    """
    if column.num_chunks == 1:
        return column.chunk(0)
    import pyarrow as pa  # noqa: PLC0415 - kernels and detectors take arrays without Arrow

    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


_HEAD = re.compile(r"([<>|][biuf][0-9]{1,2});((?:[0-9]{1,12}(?:,[0-9]{1,12})*)?);")
"""Kind and size of a value (``<f8``), then the lengths of the axes."""


def pack(array: NDArray[Any]) -> str:
    """Return an array of numbers or booleans as a text that ``unpack`` reads, to the bit.

    >>> pack(np.zeros(1000))[:9]
    '<f8;1000;'
    >>> unpack(pack(np.array([[1.5, np.nan]])))
    array([[1.5, nan]])
    """
    shape = ",".join(str(length) for length in array.shape)
    body = zlib.compress(np.ascontiguousarray(array).tobytes(), 6)
    return f"{array.dtype.str};{shape};{base64.b64encode(body).decode('ascii')}"


def unpack(text: str) -> NDArray[Any]:
    """Return the array that ``pack`` made a text of.

    Raises:
        StateError: the text is damaged, or was never a packed array.
    """
    head = _HEAD.match(text) if isinstance(text, str) else None
    if head is None:
        msg = f"not a packed array: {str(text)[:40]!r}; take the text that pack() returned"
        raise StateError(msg)
    try:
        dtype = np.dtype(head[1])
        shape = tuple(int(length) for length in head[2].split(",") if length)
        body = _inflated(text[head.end() :], math.prod(shape) * dtype.itemsize)
        return np.frombuffer(body, dtype=dtype).reshape(shape).copy()
    except (ValueError, TypeError, binascii.Error, zlib.error) as error:
        msg = f"damaged packed array {text[:40]!r}: {error}; the snapshot cannot be used"
        raise StateError(msg) from error


def _inflated(text: str, n_bytes: int) -> bytes:
    """Return the decompressed bytes; never more memory than the head of the text announces."""
    inflate = zlib.decompressobj()
    body = inflate.decompress(base64.b64decode(text, validate=True), n_bytes + 1)
    if len(body) != n_bytes or not inflate.eof:
        msg = f"{len(body)} bytes or an open end where the head says {n_bytes} bytes"
        raise ValueError(msg)
    return body
