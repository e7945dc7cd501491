"""Texts in lower case, as ``str.lower`` makes it, over whole Arrow arrays."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eddyline.data.arrays import Bytes, Ints

FOLD: Bytes = np.arange(256, dtype=np.uint8)
"""Each byte in lower case, as far as ASCII goes."""
FOLD[ord("A") : ord("Z") + 1] += ord("a") - ord("A")

IDENTITY: Bytes = np.arange(256, dtype=np.uint8)
"""Each byte as it is, where case matters."""


def is_ascii(values: pa.Array) -> bool:
    """Return whether no text has a character outside ASCII."""
    data = bytes_of(values)
    return not len(data) or int(data.max()) < 0x80


def bytes_of(values: pa.Array) -> Bytes:
    """Return the bytes of all texts of a string array, one after the other."""
    offsets = offsets_of(values)
    data = values.buffers()[2]
    if data is None:
        return np.zeros(0, np.uint8)
    return np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]


def offsets_of(values: pa.Array) -> Ints:
    """Return the start of each text in the buffer of a string array; one more than there are."""
    kind = np.int64 if pa.types.is_large_string(values.type) else np.int32
    buffer = values.buffers()[1]
    if buffer is None or len(values) == 0:
        return np.zeros(1, np.int64)
    offsets = np.frombuffer(buffer, kind)[values.offset : values.offset + len(values) + 1]
    return offsets.astype(np.int64)


def as_text(values: pa.Array) -> pa.Array:
    """Return a string or large string array of the same texts."""
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return values
    return values.cast(pa.large_string())


def plain(values: pa.Array) -> pa.Array:
    """Return the same values as kernels and functions read them: no views, no dictionaries."""
    if pa.types.is_dictionary(values.type):
        return plain(values.dictionary).take(values.indices)
    return values.cast(pa.large_string()) if pa.types.is_string_view(values.type) else values


def lowered(values: pa.Array) -> pa.Array:
    """Return texts in lower case; bytes that are no characters stay as they are."""
    return with_others_lowered(_ascii_lowered(values), values)


def _ascii_lowered(values: pa.Array) -> pa.Array:
    if values.offset == 0 and offsets_of(values)[0]:
        # Arrow 26 lowers other bytes where the first text starts late in a buffer and the array is
        # no slice, as after a cast of one; a copy starts at its first byte.
        values = values.take(pa.array(np.arange(len(values))))
    return pc.ascii_lower(values)


def with_others_lowered(ascii_done: pa.Array, values: pa.Array) -> pa.Array:
    """Return ``ascii_done``, but texts with characters outside ASCII in lower case."""
    if is_ascii(values):
        return ascii_done
    odd = pc.fill_null(pc.invert(pc.string_is_ascii(values)), False)
    return pc.replace_with_mask(ascii_done, odd, _lowered(values.filter(odd)))


def _lowered(values: pa.Array) -> pa.Array:
    """Return texts in lower case, whatever they hold.

    Arrow lowers character by character; ``İ``, which becomes two, and the final sigma, which
    depends on its neighbours, are lowered by Python, as are the few letters that Arrow's tables
    do not know as Python does.
    """
    try:
        values.validate(full=True)  # lowering itself takes characters that are longer than need be
        lower = pc.utf8_lower(values)
        special = pc.fill_null(pc.match_substring_regex(values, _special()), False)
    except pa.ArrowInvalid:  # not valid UTF-8: what is not a character stays as it is
        return _of_bytes([_lowered_bytes(text) for text in _bytes(values)], values.type)
    if not pc.any(special).as_py():
        return lower
    texts = pa.array([text.lower() for text in values.filter(special).to_pylist()], values.type)
    return pc.replace_with_mask(lower, special, texts)


def decoded(values: pa.Array) -> list[str | None]:
    """Return texts as Python has them; bytes that are no characters become U+FFFD, as in Spark."""
    try:
        texts: list[str | None] = values.to_pylist()
    except UnicodeDecodeError:
        return [
            None if text is None else text.decode("utf-8", "replace") for text in _bytes(values)
        ]
    return texts


def _bytes(values: pa.Array) -> list[bytes | None]:
    is_large = pa.types.is_large_string(values.type)
    raw_texts: list[bytes | None] = values.view(
        pa.large_binary() if is_large else pa.binary()
    ).to_pylist()
    return raw_texts


def _of_bytes(values: list[bytes | None], kind: pa.DataType) -> pa.Array:
    binary = pa.large_binary() if pa.types.is_large_string(kind) else pa.binary()
    return pa.array(values, binary).view(kind)


def _lowered_bytes(value: bytes | None) -> bytes | None:
    if value is None:
        return None
    return value.decode("utf-8", "surrogateescape").lower().encode("utf-8", "surrogateescape")


@cache
def _special() -> str:
    """Return a regular expression of the letters that Arrow lowers otherwise than Python."""
    # No letter further up has a lower case. All are lowered as one text, which is quick, since the
    # first batch with such a letter waits for it; these two would not keep to themselves there.
    alone = "İΣ"
    codes = np.r_[0x80:0xD800, 0xE000:0x20000].astype(np.uint32)
    others = codes[~np.isin(codes, [ord(letter) for letter in alone])]
    text = others.tobytes().decode("utf-32-le")
    is_odd = _codes(text.lower()) != _codes(pc.utf8_lower(pa.scalar(text)).as_py())
    return "[" + "".join(sorted({*map(chr, others[is_odd].tolist()), *alone})) + "]"


def _codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)
