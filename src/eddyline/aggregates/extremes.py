"""Least and greatest entries, and the first and the last ones by time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from eddyline.aggregates.columns import is_there, limbs, one_array, taken
from eddyline.aggregates.extremes_kernels import least_bytes, least_pairs, least_words
from eddyline.aggregates.keys import is_bytes, ranks_of, words_of
from eddyline.aggregates.monoid import Monoid

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Extreme(Monoid):
    """The least or the greatest entry: of all types that Spark sorts."""

    is_greatest: ClassVar[bool] = False

    def merge(
        self, column: pa.Array | pa.ChunkedArray, lo: NDArray[np.int64], hi: NDArray[np.int64]
    ) -> pa.Array:
        """Return that entry of each range."""
        array = one_array(column)
        return taken(array, self.positions(array, lo, hi))

    def positions(
        self, array: pa.Array, lo: NDArray[np.int64], hi: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return where the entry of each range is, -1 where there is none."""
        there = is_there(array)
        if is_bytes(array.type):
            content = _bytes_of(array)
            return least_bytes(*content, -1 if self.is_greatest else 1, there, lo, hi)
        words = words_of(array)
        if words is None and pa.types.is_decimal128(array.type):
            low, high = limbs(array)
            return self._of_pairs(high, low, there, lo, hi)
        words = ranks_of(array) if words is None else words
        return least_words(~words if self.is_greatest else words, there, lo, hi)

    def _of_pairs(
        self,
        high: NDArray[np.int64],
        low: NDArray[np.uint64],
        there: NDArray[np.bool_],
        lo: NDArray[np.int64],
        hi: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        if self.is_greatest:
            high, low = ~high, ~low
        return least_pairs(high, low, there, lo, hi)


@dataclass(frozen=True, slots=True)
class Least(Extreme):
    """The least entry."""

    reduce_sql: ClassVar[str] = "min({x})"


@dataclass(frozen=True, slots=True)
class Greatest(Extreme):
    """The greatest entry."""

    is_greatest: ClassVar[bool] = True
    reduce_sql: ClassVar[str] = "max({x})"


class Timely(Extreme):
    """The first or the last entry by time.

    Entries are structs of a time (whole number or timestamp) and a value, which may be NULL; the
    value decides where times are equal, so that the order of rows does not. Values are ranked only
    where times are equal, and times are compared only where a range has them out of order. Entries
    of other types are in order as they are.
    """

    __slots__ = ()

    def positions(
        self, array: pa.Array, lo: NDArray[np.int64], hi: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return where the first or last entry of each range is, -1 where there is none."""
        there = is_there(array)
        places = np.flatnonzero(there)  # what is NULL may stand between equal times
        begin, end = (lo, hi) if places.size == there.size else _among(there, lo, hi)
        if not pa.types.is_struct(array.type):
            return self._by_place(places, begin, end)
        times = words_of(array.field(0))
        if times is None:
            return Extreme.positions(self, array, lo, hi)
        is_ordered = _are_ordered(times[places], begin, end)
        order = places if is_ordered else places[np.argsort(times[places], kind="stable")]
        same = times[order][1:] == times[order][:-1]
        if is_ordered and not same.any():
            return self._by_place(places, begin, end)
        tied = np.zeros(times.size, np.bool_)
        tied[order[1:][same]] = tied[order[:-1][same]] = True
        values = np.zeros(times.size, np.uint64)
        values[tied] = ranks_of(array.field(1).filter(pa.array(tied))).view(np.uint64)
        return self._of_pairs(times, values, there, lo, hi)

    def value(
        self, column: pa.Array | pa.ChunkedArray, lo: NDArray[np.int64], hi: NDArray[np.int64]
    ) -> pa.Array:
        """Return the value of that entry of each range, without its time."""
        array = one_array(column)
        if not pa.types.is_struct(array.type):
            return self.merge(array, lo, hi)
        return taken(array.field(1), self.positions(array, lo, hi))

    def _by_place(
        self, places: NDArray[np.int64], begin: NDArray[np.int64], end: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the first or last of the places from begin to end."""
        found = np.full(begin.size, -1)
        some = begin < end
        found[some] = places[end[some] - 1 if self.is_greatest else begin[some]]
        return found


@dataclass(frozen=True, slots=True)
class First(Timely):
    """The first entry that is not NULL."""

    reduce_sql: ClassVar[str] = "min({x})"


@dataclass(frozen=True, slots=True)
class Last(Timely):
    """The last entry that is not NULL."""

    is_greatest: ClassVar[bool] = True
    reduce_sql: ClassVar[str] = "max({x})"


class _InOrder(Timely):
    """The first or last of entries that stand in the order of their rows, ties included."""

    __slots__ = ()

    def positions(
        self, array: pa.Array, lo: NDArray[np.int64], hi: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return where the first or last entry of each range is, -1 where there is none."""
        there = is_there(array)
        return self._by_place(np.flatnonzero(there), *_among(there, lo, hi))


@dataclass(frozen=True, slots=True)
class FirstRow(_InOrder):
    """The first entry that is not NULL, of entries in order."""

    reduce_sql: ClassVar[str] = ""


@dataclass(frozen=True, slots=True)
class LastRow(_InOrder):
    """The last entry that is not NULL, of entries in order."""

    is_greatest: ClassVar[bool] = True
    reduce_sql: ClassVar[str] = ""


def _among(
    is_one: NDArray[np.bool_], lo: NDArray[np.int64], hi: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the ranges of all entries as ranges of those that a mask has."""
    before = np.zeros(is_one.size + 1, np.int64)
    np.cumsum(is_one, out=before[1:])
    return before[lo], before[hi]


def _are_ordered(
    times: NDArray[np.int64], begin: NDArray[np.int64], end: NDArray[np.int64]
) -> bool:
    """Return whether times never fall from begin to end of a range."""
    falls = np.concatenate([[0, 0], np.cumsum(times[1:] < times[:-1])])[: times.size + 1]
    some = begin < end
    return bool((falls[end[some]] == falls[begin[some] + 1]).all())


def _bytes_of(array: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes of all texts, and where each of them starts and the last one ends."""
    if not len(array):  # not to be written to either: kernels are compiled for what they are given
        return np.frombuffer(b"", np.uint8), np.frombuffer(bytes(8), np.int64)
    wide = array if pa.types.is_large_binary(array.type) else array.cast(pa.large_binary())
    _, starts, content = wide.buffers()
    offsets = np.frombuffer(starts, np.int64, len(wide) + 1, wide.offset * 8)
    data = np.frombuffer(content, np.uint8) if content else np.frombuffer(b"", np.uint8)
    return data, offsets
