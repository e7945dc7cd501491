"""Compiled: rows against the models of their entities, each entity up to its first violator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eddyline.data.arrays import Floats, Ints

    Codes = NDArray[np.int8]
    Pieces = tuple[Ints, Floats]
    """Of each piece its begin, its end and its origin (µs), and whether a row has to be nearer than
    the distance (1) or may be at it (0), (pieces, 4); and for each attribute the coefficients of
    the model and of the distances below and above, and a share of the row's value, (pieces,
    attributes, 3 x (degree + 1) + 1). A piece is in one place, as rows come in any order."""

WITHIN, VIOLATES, NO_MODEL, LATE = 0, 1, 2, 3
"""What a row is; see ``validation``."""


@compiled
def piece_of(spans: Ints, first: int, stop: int, cursor: int, time: int) -> int:
    """Return the piece of an entity that is the last not to begin after a time, or the first.

    Args:
        spans: of each piece, in the order of entities and time; see ``Pieces``.
        first: the entity's first piece.
        stop: the end of its pieces, more than ``first``.
        cursor: where to begin to look.
        time: microseconds.
    """
    while cursor < stop - 1 and time >= spans[cursor + 1, 0]:
        cursor += 1
    while cursor > first and time < spans[cursor, 0]:
        cursor -= 1
    return cursor


@compiled
def distance_at(numbers: Floats, piece: int, at: int, lowest: int, width: int, tau: float) -> float:
    """Return a distance by its coefficients, of which the lowest one's place is given."""
    found: float = numbers[piece, at, lowest + width - 1]
    for power in range(lowest + width - 2, lowest - 1, -1):
        found = found * tau + numbers[piece, at, power]
    return found


@compiled
def code_of(
    spans: Ints, numbers: Floats, piece: int, time: int, values: Floats, row: int, width: int
) -> int:
    """Return what a row is by the piece of its entity that it may be in.

    A value that is not finite says nothing.

    Args:
        spans: see ``Pieces``.
        numbers: see ``Pieces``.
        piece: the piece.
        time: of the row (µs).
        values: of all rows, (attributes, rows).
        row: the row.
        width: the number of coefficients.
    """
    if time < spans[piece, 0]:
        return LATE
    if time >= spans[piece, 1]:
        return NO_MODEL
    tau = np.float64(time - spans[piece, 2]) * 1e-6
    is_strict = spans[piece, 3] == 1
    for at in range(values.shape[0]):
        value = values[at, row]
        if not np.isfinite(value):
            continue
        model = numbers[piece, at, width - 1]
        for power in range(width - 2, -1, -1):
            model = model * tau + numbers[piece, at, power]
        off = value - model
        is_below = off < 0
        far = distance_at(numbers, piece, at, width if is_below else 2 * width, width, tau)
        # A side may be free only while the other has room: without any, models themselves are news.
        if distance_at(numbers, piece, at, 2 * width if is_below else width, width, tau) < 0:
            return VIOLATES
        if far == np.inf:
            continue
        far += numbers[piece, at, 3 * width] * abs(value)
        if not (abs(off) < far if is_strict else abs(off) <= far):
            return VIOLATES
    return WITHIN


@compiled
def first_pass(
    pieces: Pieces, starts: Ints, keys: Ints, times: Ints, values: Floats, codes: Codes
) -> tuple[Ints, Ints]:
    """Set the codes of rows in their order, of each entity up to its first violator.

    Args:
        pieces: in the order of entities and time.
        starts: the first piece of each entity, and the number of pieces.
        keys: the entity of each row.
        times: of each row (µs).
        values: (attributes, rows).
        codes: of each row.

    Returns:
        The violators, and the rows that come after one of their entity.
    """
    spans, numbers = pieces
    width = numbers.shape[2] // 3
    cursor = starts[:-1].copy()
    is_stopped = np.zeros(cursor.size, np.bool_)
    found, rest = np.empty(cursor.size, np.int64), np.empty(1024, np.int64)
    n_found = n_rest = 0
    for row in range(keys.size):
        key = keys[row]
        if is_stopped[key]:
            if n_rest == rest.size:
                rest = np.concatenate((rest, np.empty(rest.size, np.int64)))
            rest[n_rest] = row
            n_rest += 1
            continue
        code, stop = NO_MODEL, starts[key + 1]
        if starts[key] < stop:
            piece = piece_of(spans, starts[key], stop, cursor[key], times[row])
            code = code_of(spans, numbers, piece, times[row], values, row, width)
            cursor[key] = piece
        codes[row] = code
        if VIOLATES <= code <= NO_MODEL:
            is_stopped[key] = True
            found[n_found] = row
            n_found += 1
    return found[:n_found], rest[:n_rest]


@compiled
def by_entity(rows: Ints, keys: Ints, n: int) -> tuple[Ints, Ints]:
    """Return rows by entity, in their order, and where each entity begins and ends in them.

    Args:
        rows: places of rows, ascending.
        keys: the entity of each of all rows, less than ``n``.
        n: the number of entities.
    """
    count = np.zeros(n + 1, np.int64)
    for row in rows:
        count[keys[row] + 1] += 1
    groups = np.empty((n, 2), np.int64)
    n_groups = 0
    for key in range(n):
        if count[key + 1] > 0:
            groups[n_groups, 0], groups[n_groups, 1] = count[key], count[key] + count[key + 1]
            n_groups += 1
        count[key + 1] += count[key]
    order = np.empty(rows.size, np.int64)
    for row in rows:
        order[count[keys[row]]] = row
        count[keys[row]] += 1
    return order, groups[:n_groups]


@compiled
def next_pass(
    pieces: Pieces,
    starts: Ints,
    order: Ints,
    groups: Ints,
    keys: Ints,
    times: Ints,
    values: Floats,
    codes: Codes,
) -> Ints:
    """Set the codes of the rows that are left, of each entity up to its next violator.

    Args:
        pieces: those of the entities that are left.
        starts: the first piece of each entity, and the number of pieces.
        order: rows by entity.
        groups: for each entity the place in it to go on at, and where it ends, (entities, 2);
            it is moved behind the violator.
        keys: the entity of each row.
        times: of each row (µs).
        values: (attributes, rows).
        codes: of each row.

    Returns:
        The violators.
    """
    spans, numbers = pieces
    width = numbers.shape[2] // 3
    found = np.empty(groups.shape[0], np.int64)
    n_found = 0
    for group in range(groups.shape[0]):
        at, end = groups[group, 0], groups[group, 1]
        if at == end:
            continue
        key = keys[order[at]]
        piece, stop = starts[key], starts[key + 1]
        code = WITHIN
        while at < end and not VIOLATES <= code <= NO_MODEL:
            row = order[at]
            code = NO_MODEL
            if starts[key] < stop:
                piece = piece_of(spans, starts[key], stop, piece, times[row])
                code = code_of(spans, numbers, piece, times[row], values, row, width)
            codes[row] = code
            at += 1
        if VIOLATES <= code <= NO_MODEL:
            found[n_found] = order[at - 1]
            n_found += 1
        groups[group, 0] = at
    return found[:n_found]


@compiled
def led(pieces: Pieces, goes_on: NDArray[np.bool_], times: Ints, values: Floats) -> Ints:
    """Return for each row the one whose model predicts it: itself, if none before does.

    Args:
        pieces: the model of each row.
        goes_on: whether the model of the row before may predict a row.
        times: of each row (µs).
        values: (attributes, rows).
    """
    spans, numbers = pieces
    width = numbers.shape[2] // 3
    found = np.empty(times.size, np.int64)
    leader = 0
    for row in range(times.size):
        if (
            not goes_on[row]
            or code_of(spans, numbers, leader, times[row], values, row, width) != WITHIN
        ):
            leader = row
        found[row] = leader
    return found
