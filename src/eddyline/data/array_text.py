"""Arrays as short texts, so that snapshots stay plain JSON: ``<f8;3,4;`` and base64 of zlib."""

from __future__ import annotations

import base64
import binascii
import math
import re
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.errors import StateError

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
