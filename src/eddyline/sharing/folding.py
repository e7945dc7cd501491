"""Texts in lower case, as ``str.lower`` makes it, over whole Arrow arrays."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

FOLD: NDArray[np.uint8] = np.arange(256, dtype=np.uint8)
"""What each byte counts as in lower case, as far as ASCII goes."""
FOLD[ord("A") : ord("Z") + 1] += ord("a") - ord("A")

IDENTITY: NDArray[np.uint8] = np.arange(256, dtype=np.uint8)
"""What each byte counts as where case matters."""


def is_ascii(values: pa.Array) -> bool:
    """Return whether no text has a character outside ASCII."""
    data = bytes_of(values)
    return not len(data) or int(data.max()) < 0x80


def bytes_of(values: pa.Array) -> NDArray[np.uint8]:
    """Return the bytes of all texts of a string array, one after the other."""
    offsets = offsets_of(values)
    data = values.buffers()[2]
    if data is None:
        return np.zeros(0, np.uint8)
    return np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]


def offsets_of(values: pa.Array) -> NDArray[np.int64]:
    """Return where each text starts in the buffer of a string array; one more than there are."""
    kind = np.int64 if pa.types.is_large_string(values.type) else np.int32
    buffer = values.buffers()[1]
    if buffer is None or len(values) == 0:
        return np.zeros(1, np.int64)
    found = np.frombuffer(buffer, kind)[values.offset : values.offset + len(values) + 1]
    return found.astype(np.int64)


def as_text(values: pa.Array) -> pa.Array:
    """Return a string or large string array of the same texts."""
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return values
    return values.cast(pa.large_string())


def lowered(values: pa.Array) -> pa.Array:
    """Return texts in lower case.

    Arrow lowers character by character; ``İ``, which becomes two, and the final sigma, which
    depends on its neighbours, are lowered by Python, as are the few letters that Arrow's tables
    do not know as Python does. Texts that are not valid UTF-8 are lowered as far as they are ASCII.

    Args:
        values: a string array.
    """
    if is_ascii(values):
        return pc.ascii_lower(values)
    try:
        found = pc.utf8_lower(values)
        special = pc.fill_null(pc.match_substring_regex(values, _special()), False)
    except pa.ArrowInvalid:
        return pc.ascii_lower(values)
    if not pc.any(special).as_py():
        return found
    texts = pa.array([text.lower() for text in values.filter(special).to_pylist()], values.type)
    return pc.replace_with_mask(found, special, texts)


@cache
def _special() -> str:
    """Return a regular expression of the letters that Arrow lowers otherwise than Python."""
    # No letter further up has a lower case.
    letters = [chr(code) for code in range(0x80, 0x20000) if not 0xD800 <= code < 0xE000]
    ours = pc.utf8_lower(pa.array(letters, pa.string())).to_pylist()
    odd = [letter for letter, low in zip(letters, ours, strict=True) if letter.lower() != low]
    return "[" + "".join(sorted({*odd, "Σ"})) + "]"
