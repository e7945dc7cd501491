"""XXH64 of columns, as Spark's ``xxhash64`` computes it.

Spark hashes the values of a row one after the other: the hash of one is the seed of the next, and a
NULL leaves the seed as it is. Codes of groups and classes of rows are such hashes. They are kept in
checkpoints, so tasks that read files must compute the same ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from eddyline.data.jit import compiled, inlined

if TYPE_CHECKING:
    from eddyline.data.arrays import Ints

SEED = 42
"""The seed of Spark's ``xxhash64``."""

_P1, _P2, _P3 = (
    np.uint64(prime) for prime in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)
)
_P4, _P5 = (np.uint64(prime) for prime in (0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5))
"""The five primes of XXH64."""

INT_BITS = 32
"""Bits of the longest value that is hashed as an INT."""

KINDS = (
    *("boolean", "tinyint", "smallint", "int", "date"),  # hashed as an INT
    *("bigint", "timestamp", "timestamp_ntz"),  # as a BIGINT
    *("string", "binary"),  # by their bytes
)
"""Spark types that ``add_hash`` takes."""


def seeds(n_rows: int, *literals: int) -> Ints:
    """Return the hashes of rows of which some BIGINT literals have been hashed ((N,))."""
    hashes = np.full(1, SEED, np.int64)
    for literal in literals:
        add_longs(hashes, np.array([literal], np.int64))
    return np.repeat(hashes, n_rows)


def add_ints(hashes: Ints, values: Ints) -> None:
    """Hash an INT of each row into the hashes of rows ((N,) both)."""
    _hash_ints(values, np.ones(len(values), np.bool_), hashes)


def add_longs(hashes: Ints, values: Ints) -> None:
    """Hash a BIGINT of each row into the hashes of rows ((N,) both)."""
    _hash_longs(values, np.ones(len(values), np.bool_), hashes)


def add_hash(hashes: Ints, column: pa.Array) -> None:
    """Hash a column into the hashes of rows ((N,)).

    Args:
        hashes: of the values before; changed in place.
        column: of the Arrow type of a Spark type in ``KINDS``.
    """
    is_there = (
        np.ones(len(column), np.bool_)
        if not column.null_count
        else column.is_valid().to_numpy(zero_copy_only=False)
    )
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        _, offsets, data = column.buffers()
        starts = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
        raw = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
        _hash_texts(starts, raw, is_there, hashes)
    else:
        hashing = _hash_ints if column.type.bit_width <= INT_BITS else _hash_longs
        hashing(whole_numbers(column), is_there, hashes)


def whole_numbers(column: pa.Array) -> Ints:
    """Return whole numbers, booleans, dates or timestamps as whole numbers (NULL: 0; (N,))."""
    if pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    if pa.types.is_timestamp(column.type):
        column = column.view(pa.int64())
    column = column.cast(pa.int64())
    if column.null_count:
        column = column.fill_null(0)
    values: Ints = column.to_numpy()
    return values


@inlined
def _rotated(value: Any, bits: Any) -> Any:
    """Return a word rotated to the left."""
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@inlined
def _word(raw: Any, first: Any, n_bytes: Any) -> Any:
    """Return bytes as a number, the first the lowest."""
    word = np.uint64(0)
    for number in range(n_bytes):
        word |= np.uint64(raw[first + number]) << np.uint64(8 * number)
    return word


@inlined
def _round(lane: Any, word: Any) -> Any:
    """Take a word into one of the sums."""
    return _rotated(lane + word * _P2, 31) * _P1


@inlined
def _mixed(value: Any) -> Any:
    """Return a hash with its bits mixed, as the last step."""
    value = (value ^ (value >> np.uint64(33))) * _P2
    value = (value ^ (value >> np.uint64(29))) * _P3
    return np.int64(value ^ (value >> np.uint64(32)))


@compiled
def _hash_ints(values: Any, is_there: Any, hashes: Any) -> None:
    """Hash numbers of 32 bits."""
    for row in range(len(hashes)):
        if is_there[row]:
            value = np.uint64(hashes[row]) + _P5 + np.uint64(4)
            value ^= (np.uint64(values[row]) & np.uint64(0xFFFFFFFF)) * _P1
            hashes[row] = _mixed(_rotated(value, 23) * _P2 + _P3)


@compiled
def _hash_longs(values: Any, is_there: Any, hashes: Any) -> None:
    """Hash numbers of 64 bits."""
    for row in range(len(hashes)):
        if is_there[row]:
            value = np.uint64(hashes[row]) + _P5 + np.uint64(8)
            value ^= _round(np.uint64(0), np.uint64(values[row]))
            hashes[row] = _mixed(_rotated(value, 27) * _P1 + _P4)


@compiled
def _hash_texts(starts: Any, raw: Any, is_there: Any, hashes: Any) -> None:
    """Hash the bytes of texts."""
    for row in range(len(hashes)):
        if not is_there[row]:
            continue
        place, end = np.int64(starts[row]), np.int64(starts[row + 1])
        size = end - place
        seed = np.uint64(hashes[row])
        if size >= 32:
            one, two = seed + _P1 + _P2, seed + _P2
            three, four = seed, seed - _P1
            while place <= end - 32:
                one = _round(one, _word(raw, place, 8))
                two = _round(two, _word(raw, place + 8, 8))
                three = _round(three, _word(raw, place + 16, 8))
                four = _round(four, _word(raw, place + 24, 8))
                place += 32
            value = _rotated(one, 1) + _rotated(two, 7) + _rotated(three, 12) + _rotated(four, 18)
            for part in (one, two, three, four):
                value = (value ^ _round(np.uint64(0), part)) * _P1 + _P4
        else:
            value = seed + _P5
        value += np.uint64(size)
        while place <= end - 8:
            value = _rotated(value ^ _round(np.uint64(0), _word(raw, place, 8)), 27) * _P1 + _P4
            place += 8
        if place <= end - 4:
            value = _rotated(value ^ (_word(raw, place, 4) * _P1), 23) * _P2 + _P3
            place += 4
        while place < end:
            value = _rotated(value ^ (np.uint64(raw[place]) * _P5), 11) * _P1
            place += 1
        hashes[row] = _mixed(value)
