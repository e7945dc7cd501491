"""Columns as the numbers by which classes of rows are told apart, as Spark's SQL computes them.

What was learned of classes in the lane holds outside of it, too, so each value has to be the one of
``Attribute.sql``: a number, 0 or 1 of a boolean, days, or 52 bits of the hash of a text. The hash
is XXH64 with the seed of Spark's ``xxhash64``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from eddyline.data.jit import compiled, inlined
from eddyline.query.attributes import HASH_BITS, attribute
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats
    from eddyline.query.attributes import Attribute

SEED = 42
"""Of Spark's ``xxhash64``."""

_P1, _P2, _P3 = (
    np.uint64(each) for each in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)
)
_P4, _P5 = (np.uint64(each) for each in (0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5))
"""The five primes of XXH64."""


def is_plain(given: Attribute, kind: str) -> bool:
    """Return whether an attribute is a column of a Spark type that ``values_of`` knows."""
    known = attribute(given.name, quoted(given.name), kind, [given.name])
    return given == known and not kind.startswith("timestamp")


def values_of(array: pa.Array) -> Floats:
    """Return a column as an attribute's values (nan: NULL; (N,))."""
    if pa.types.is_string(array.type):
        found: Floats = hashes_of(array).astype(np.float64)
        found[array.is_null().to_numpy(zero_copy_only=False)] = np.nan
        return found
    if pa.types.is_date(array.type):
        array = array.cast(pa.int32())
    doubles: Floats = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return doubles


def hashes_of(texts: pa.Array) -> Any:
    """Return 52 bits of the hash of each text ((N,) of int64; of NULL, any)."""
    _, offsets, data = texts.buffers()
    starts = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    found = np.empty(len(texts), np.int64)
    raw = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    _hash(starts, raw, found, HASH_BITS)
    return found


@inlined
def _rotated(value: Any, bits: Any) -> Any:
    """Return a word rotated to the left."""
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@inlined
def _word(raw: Any, at: Any, n_bytes: Any) -> Any:
    """Return bytes as a number, the first the lowest."""
    found = np.uint64(0)
    for number in range(n_bytes):
        found |= np.uint64(raw[at + number]) << np.uint64(8 * number)
    return found


@inlined
def _round(lane: Any, word: Any) -> Any:
    """Take a word into one of the sums."""
    return _rotated(lane + word * _P2, 31) * _P1


@compiled
def _hash(starts: Any, raw: Any, found: Any, bits: Any) -> None:
    """Hash each text into ``found``, cut to some bits."""
    for row in range(len(found)):
        at, end = np.int64(starts[row]), np.int64(starts[row + 1])
        size = end - at
        seed = np.uint64(SEED)
        if size >= 32:
            one, two = seed + _P1 + _P2, seed + _P2
            three, four = seed, seed - _P1
            while at <= end - 32:
                one = _round(one, _word(raw, at, 8))
                two = _round(two, _word(raw, at + 8, 8))
                three = _round(three, _word(raw, at + 16, 8))
                four = _round(four, _word(raw, at + 24, 8))
                at += 32
            value = _rotated(one, 1) + _rotated(two, 7) + _rotated(three, 12) + _rotated(four, 18)
            for each in (one, two, three, four):
                value = (value ^ _round(np.uint64(0), each)) * _P1 + _P4
        else:
            value = seed + _P5
        value += np.uint64(size)
        while at <= end - 8:
            value = _rotated(value ^ _round(np.uint64(0), _word(raw, at, 8)), 27) * _P1 + _P4
            at += 8
        if at <= end - 4:
            value = _rotated(value ^ (_word(raw, at, 4) * _P1), 23) * _P2 + _P3
            at += 4
        while at < end:
            value = _rotated(value ^ (np.uint64(raw[at]) * _P5), 11) * _P1
            at += 1
        value = (value ^ (value >> np.uint64(33))) * _P2
        value = (value ^ (value >> np.uint64(29))) * _P3
        found[row] = np.int64((value ^ (value >> np.uint64(32))) & np.uint64(bits))
