"""Compiled: the least values of windows that close at ticks, without an envelope for the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled
from eddyline.models.segments import MICROS

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Indices, Ints


@compiled
def greatest_in(values: Floats, first: Indices, last: Indices) -> Indices:
    """Return the place of the greatest value in each of some windows, the first one of equals.

    Args:
        values: numbers.
        first: where windows begin, not before the window before, ``[m]``.
        last: where they end, exclusive, not before the window before, ``[m]``.

    Returns:
        Places, -1 where a window is empty, ``[m]``.
    """
    found = np.full(first.size, -1)
    queue = np.empty(values.size, np.int64)
    head = tail = behind = 0
    for each in range(first.size):
        while behind < last[each]:
            while tail > head and values[queue[tail - 1]] < values[behind]:
                tail -= 1
            queue[tail] = behind
            tail += 1
            behind += 1
        while head < tail and queue[head] < first[each]:
            head += 1
        if head < tail:
            found[each] = queue[head]
    return found


@compiled
def least_at(
    starts: Ints, lo: Ints, hi: Ints, coefs: Floats, turns: Floats, width: int, every: int
) -> tuple[Ints, Ints, Floats]:
    """Return entity, instant and least value of each window ``(tick - width, tick]``.

    A segment that is whole in a window waits in a queue until none that is behind it is as low;
    what the window cuts at its begin and at its end is looked at anew for each tick. So a segment
    costs the same however long windows are.

    Args:
        starts: the first segment of each entity, and the number of segments.
        lo: where segments begin (µs), by entity and time; those of an entity do not overlap.
        hi: where they end (µs).
        coefs: with ``lo`` as the origin, (segments, degree + 1).
        turns: seconds from ``lo`` to where each turns, then its length, (segments, places).
        width: of windows (µs).
        every: the distance of ticks (µs).
    """
    room = most_ticks(starts, lo, hi, width, every)
    owners, times, values = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room)
    whole, queue = np.empty(lo.size), np.empty(lo.size, np.int64)
    count = 0
    for entity in range(starts.size - 1):
        first = behind = starts[entity]
        end = starts[entity + 1]
        head = tail = 0
        tick = -(-lo[first] // every) * every
        while tick < hi[end - 1] + width:
            begin = tick - width
            while behind < end and hi[behind] <= tick:
                least = least_on(behind, lo[behind], hi[behind], lo, coefs, turns)
                whole[behind] = least
                while tail > head and whole[queue[tail - 1]] >= least:
                    tail -= 1
                queue[tail] = behind
                tail += 1
                behind += 1
            while head < tail and lo[queue[head]] < begin:
                head += 1
            while first < end and hi[first] <= begin:
                first += 1
            found = whole[queue[head]] if head < tail else np.inf
            if first < behind and lo[first] < begin:
                found = min(found, least_on(first, begin, hi[first], lo, coefs, turns))
            if behind < end and lo[behind] <= tick:
                start = max(lo[behind], begin)
                found = min(found, least_on(behind, start, tick, lo, coefs, turns))
            if found < np.inf:
                owners[count], times[count], values[count] = entity, tick, found
                count += 1
            is_empty = head == tail and first == behind and behind < end
            tick = next_tick(tick, every, lo[behind] if is_empty else tick)
    return owners[:count], times[:count], values[:count]


@compiled
def next_tick(tick: int, every: int, begin: int) -> int:
    """Return the tick behind another one; windows before an instant see nothing (µs)."""
    return max(tick + every, -(-begin // every) * every)


@compiled
def most_ticks(starts: Ints, lo: Ints, hi: Ints, width: int, every: int) -> int:
    """Return how many windows that close at ticks see a segment of an entity, at most."""
    found = 0
    for entity in range(starts.size - 1):
        first, end = starts[entity], starts[entity + 1]
        seen = 0
        for each in range(first, end):
            seen += (hi[each] - lo[each] + width) // every + 1
        found += min(seen, (hi[end - 1] - lo[first] + width) // every + 1)
    return found


@compiled
def least_on(segment: int, start: int, stop: int, lo: Ints, coefs: Floats, turns: Floats) -> float:
    """Return the least value of a segment from one of its instants to another."""
    left, right = (start - lo[segment]) * MICROS, (stop - lo[segment]) * MICROS
    found = min(value_at(segment, left, coefs), value_at(segment, right, coefs))
    for place in range(turns.shape[1]):
        turn = turns[segment, place]
        if left < turn < right:
            found = min(found, value_at(segment, turn, coefs))
    return found


@compiled
def value_at(segment: int, at: float, coefs: Floats) -> float:
    """Return the value of a segment at seconds from its begin, by Horner's rule."""
    top = coefs.shape[1] - 1
    found: float = coefs[segment, top]
    for power in range(top - 1, -1, -1):
        found = found * at + coefs[segment, power]
    return found
