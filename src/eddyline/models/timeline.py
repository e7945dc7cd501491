"""Instants of many entities in one order.

Each pair of an entity and a time has one number. One binary search then finds the pieces of all
entities at once (Pulse 3.4, 3.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

import numpy as np

if TYPE_CHECKING:
    from eddyline.data.arrays import Indices, Ints, Mask

_LARGEST = np.iinfo(np.int64).max


def codes(*instants: tuple[Ints, Ints]) -> list[Ints]:
    """Return numbers that sort as (entity, time) do, comparable with each other.

    Where entities times the span of time is beyond 64 bits, times are numbered before.

    Args:
        *instants: entities, dense ids, and times in microseconds, ``[n]`` each.
    """
    times = [time for _, time in instants]
    filled = [time for time in times if time.size]
    if not filled:
        return times
    first = min(int(time.min()) for time in filled)
    span = max(int(time.max()) for time in filled) - first + 1
    entities = max(int(keys.max()) for keys, time in instants if time.size) + 1
    if entities * span <= _LARGEST:
        return [keys * span + (time - first) for keys, time in instants]
    values, places = np.unique(np.concatenate(times), return_inverse=True)
    ends = np.cumsum([time.size for time in times])[:-1]
    numbered = np.split(places.astype(np.int64), ends)
    return [
        keys * values.size + numbers for (keys, _), numbers in zip(instants, numbered, strict=True)
    ]


def piece_at(starts: Ints, others: Ints) -> Indices:
    """Return the last of some sorted codes that is not behind each of others, -1 if all are."""
    places: Indices = np.searchsorted(starts, others, "right") - 1
    return places


def within(starts: Ints, ends: Ints, instants: Ints) -> Indices:
    """Return the range that each instant is in, -1 if none; ranges are sorted, all are codes."""
    places = piece_at(starts, instants)
    there = places >= 0
    there[there] = ends[places[there]] > instants[there]
    return np.where(there, places, -1)


def runs(first: Indices, count: Indices) -> tuple[Indices, Indices]:
    """Return numbers that follow each other, for several starts.

    Args:
        first: the first number of each run, ``[n]``.
        count: how many there are, 0 or more, ``[n]``.

    Returns:
        For each number the run that it is of, and the number, ``[sum of count]`` each.
    """
    run = np.repeat(np.arange(len(first)), count)
    before = np.cumsum(count) - count
    return run, np.arange(len(run)) - before[run] + first[run]


def is_first(keys: Ints) -> Mask:
    """Return which of some sorted ids differ from the one before."""
    differs = np.ones(len(keys), np.bool_)
    differs[1:] = keys[1:] != keys[:-1]
    return differs


def is_last(keys: Ints) -> Mask:
    """Return which of some sorted ids differ from the one behind."""
    differs = np.ones(len(keys), np.bool_)
    differs[:-1] = keys[1:] != keys[:-1]
    return differs


def ends_of_runs(is_first: Mask) -> tuple[Indices, Indices]:
    """Return the first and the last place of each run, given where runs begin."""
    first = np.flatnonzero(is_first)
    return first, np.append(first[1:], len(is_first))[: len(first)] - 1


@overload
def earlier(instants: int, length: int) -> int: ...


@overload
def earlier(instants: Ints, length: int) -> Ints: ...


def earlier(instants: int | Ints, length: int) -> int | Ints:
    """Return instants moved back by a length, as far as instants go (µs)."""
    first = np.iinfo(np.int64).min + length
    if isinstance(instants, int):
        return max(instants, first) - length
    result: Ints = np.maximum(instants, first) - length
    return result
