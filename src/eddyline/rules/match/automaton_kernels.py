"""Compiled: builds automata from sorted patterns, and walks texts through them.

First the tables that the kernels read: states, texts, and codes of whole patterns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eddyline.data.arrays import Bytes, Int32s, Ints, Mask

INSIDE, START, END = 0, 1, 2
"""Places in texts of the patterns of an automaton."""

ANY_CODE, ONE_CODE = 256, 257
"""Wildcards in the code of a pattern: any characters, and one character; below are bytes."""


class Automaton(NamedTuple):
    """Tables of one automaton; state 0 is the root."""

    kind: int
    """``INSIDE``, ``START`` or ``END``."""
    classes: NDArray[np.int16]
    """Class of each byte (256); bytes of class 0 stand in no pattern."""
    delta: Int32s | NDArray[np.uint16]
    """Full rows of the first states: where each class leads; 0, where no edge of a trie leads, is
    nowhere there. Two bytes each unless there are more states."""
    n_dense: int
    """States with full rows."""
    n_classes: int
    """Classes of bytes, 0 included."""
    first_child: Int32s
    """First child of each state; children follow each other. One more than there are states."""
    labels: NDArray[np.int16]
    """Class that leads to each state from its parent."""
    failure: Int32s
    """The state of the longest proper suffix (``INSIDE``)."""
    out_start: Int32s
    """Start of the patterns of each state in ``out``; one more than there are states."""
    out: Int32s
    """Patterns, by state."""
    out_link: Int32s
    """The next state on the way of failures that has patterns; 0 for none."""
    first_out: Int32s
    """The state itself if it has patterns, else what ``out_link`` says."""


class Texts(NamedTuple):
    """The texts of a batch, as Arrow has them."""

    data: Bytes
    """Their bytes; not to be written."""
    offsets: Ints
    """Start of each; one more than there are rows."""
    nulls: Mask
    """A mask of those that are NULL."""


class Codes(NamedTuple):
    """For each pattern, what the whole text must be like where it was met."""

    starts: Ints
    """Start of the code of each; one more than there are patterns. Empty: a hit is enough."""
    code: NDArray[np.int16]
    """Bytes, ``ANY_CODE`` and ``ONE_CODE``."""
    fold: Bytes
    """The symbol of each byte of a text (256)."""


@compiled
def grow_trie(
    symbols: NDArray[np.int16], starts: Ints
) -> tuple[Int32s, NDArray[np.int16], Int32s, Int32s]:
    """Return parent, label and depth of each state, and where each sorted pattern ends."""
    n_patterns = len(starts) - 1
    most = len(symbols) + 1
    parent = np.zeros(most, np.int32)
    label = np.zeros(most, np.int16)
    depth = np.zeros(most, np.int32)
    ends = np.zeros(n_patterns, np.int32)
    longest = 0
    for index in range(n_patterns):
        longest = max(longest, starts[index + 1] - starts[index])
    path = np.zeros(longest + 1, np.int32)
    n_states = 1
    for index in range(n_patterns):
        start, size = starts[index], starts[index + 1] - starts[index]
        shared = 0
        if index > 0:
            before = starts[index - 1]
            limit = min(size, start - before)
            while shared < limit and symbols[before + shared] == symbols[start + shared]:
                shared += 1
        for position in range(shared, size):
            parent[n_states] = path[position]
            label[n_states] = symbols[start + position]
            depth[n_states] = position + 1
            path[position + 1] = n_states
            n_states += 1
        ends[index] = path[size]
    return parent[:n_states], label[:n_states], depth[:n_states], ends


def number_by_depth(depth: NDArray[Any]) -> Int32s:
    """Return new numbers of states: by depth, and within a depth as they were.

    States come in the order of sorted patterns, so children of one state follow each other,
    sorted by label.
    """
    rank = np.empty(len(depth), np.int32)
    rank[np.argsort(depth, kind="stable")] = np.arange(len(depth), dtype=np.int32)
    return rank


@compiled
def child_of(state: int, symbol: int, first_child: Int32s, labels: NDArray[np.int16]) -> int:
    """Return the state that a symbol leads to by a state's own edges, or -1."""
    low, high = first_child[state], first_child[state + 1]
    while low < high:
        middle = (low + high) >> 1
        if labels[middle] < symbol:
            low = middle + 1
        else:
            high = middle
    if low < first_child[state + 1] and labels[low] == symbol:
        return int(low)
    return -1


@compiled
def link_failures(
    parents: Int32s,
    first_child: Int32s,
    labels: NDArray[np.int16],
    n_dense: int,
    n_classes: int,
    is_inside: bool,
) -> tuple[Int32s, Int32s]:
    """Return the failure of each state, and the full rows of the first ones."""
    n_states = len(labels)
    failure = np.zeros(n_states, np.int32)
    delta = np.zeros(n_dense * n_classes, np.int32)
    if is_inside:
        for state in range(1, n_states):
            if parents[state] == 0:
                continue
            at = failure[parents[state]]
            found = child_of(at, labels[state], first_child, labels)
            while found < 0 and at != 0:
                at = failure[at]
                found = child_of(at, labels[state], first_child, labels)
            failure[state] = max(found, 0)
    for state in range(n_dense):
        row = state * n_classes
        if is_inside:
            for symbol in range(n_classes):
                delta[row + symbol] = (
                    0 if state == 0 else delta[failure[state] * n_classes + symbol]
                )
        for child in range(first_child[state], first_child[state + 1]):
            delta[row + labels[child]] = child
    return failure, delta


@compiled
def fits(
    data: Bytes,
    start: int,
    end: int,
    fold: Bytes,
    code: NDArray[np.int16],
    code_start: int,
    code_end: int,
) -> bool:
    """Return whether a text is of a pattern of bytes and wildcards.

    The text is ``data[start:end]``, each byte as ``fold`` counts it; the pattern is
    ``code[code_start:code_end]``, see ``ANY_CODE``.
    """
    at, place = start, code_start
    star_at, star_place = start, -1  # a literal would have the next character compiled twice
    while at < end:
        if place < code_end and code[place] == ANY_CODE:
            star_place, star_at = place, at
            place += 1
        elif place < code_end and code[place] == ONE_CODE:
            at = _next(data, at, end)
            place += 1
        elif place < code_end and code[place] == fold[data[at]]:
            at += 1
            place += 1
        elif star_place >= 0:
            star_at = _next(data, star_at, end)
            at, place = star_at, star_place + 1
        else:
            return False
    while place < code_end and code[place] == ANY_CODE:
        place += 1
    return bool(place == code_end)


@compiled
def _next(data: Bytes, at: int, end: int) -> int:
    """Return the start of the next character.

    Of bytes that are no characters, those count as one for which Java, and so Spark, puts one
    replacement: the longest start of a character, or else a single byte.
    """
    lead = data[at]
    at += 1
    if lead < 0xC2 or lead > 0xF4 or at == end:
        return at
    second = data[at]
    if (
        (lead == 0xE0 and second < 0xA0)
        or (lead == 0xF0 and second < 0x90)
        or (lead == 0xF4 and second > 0x8F)
    ):
        return at
    last = at + (1 if lead < 0xE0 else 2 if lead < 0xF0 else 3)
    while at < min(last, end) and (data[at] & 0xC0) == 0x80:
        at += 1
    return at


@compiled
def deep_step(
    state: int,
    symbol: int,
    kind: int,
    n_dense: int,
    first_child: Int32s,
    labels: NDArray[np.int16],
    failure: Int32s,
) -> int:
    """Return the state that a class of bytes leads to from a state without a full row.

    Returns:
        The next state; -1 for nowhere (tries); ``-2 - s`` where state s, which has a full row, is
        to be asked (``INSIDE``).
    """
    while state >= n_dense:
        child = child_of(state, symbol, first_child, labels)
        if child >= 0:
            return int(child)
        if kind != 0:
            return -1
        state = failure[state]
    return int(-2 - state)


@compiled
def scan(  # noqa: C901 - one loop: a call inside it costs more than what it does
    texts: Texts,
    rows: Ints,
    first: int,
    automaton: Automaton,
    codes: Codes,
    stamps: Ints,
    tick: int,
    hits: Int32s,
    n_hits: int,
    most_per_row: int,
    hit_start: Ints,
    hit_end: Ints,
) -> tuple[int, int]:
    """Find the patterns of an automaton in the texts of some rows.

    Rows ascend, and ``first`` is the place among them to start at. The tick is larger than any
    before, and row r uses ``tick + r``; stamps, the last tick at which each pattern was met,
    change. Filled are the hits, at most ``most_per_row`` for each row, and where those of each row
    start and end.

    Returns:
        Where in ``rows`` it stopped, as ``hits`` is full (the end if it is not), and the hits.
    """
    # The common step stands here: handing arrays to a function counts references, for each byte.
    data, offsets, nulls = texts
    kind, classes, delta, n_dense, n_classes, first_child, labels, failure = automaton[:8]
    out_start, out, out_link, first_out = automaton[8:]
    code_start, code, fold = codes
    for index in range(first, len(rows)):
        if n_hits + most_per_row > len(hits):
            return index, n_hits
        row = rows[index]
        mark = tick + row
        hit_start[row] = n_hits
        start, end = offsets[row], offsets[row + 1]
        state = 0
        for offset in range(0 if nulls[row] else end - start):
            at = end - 1 - offset if kind == 2 else start + offset
            symbol = classes[data[at]]
            if state >= n_dense:
                # As a literal, which it is at first, it would have the step compiled twice.
                now = int(state)
                state = deep_step(now, symbol, kind, n_dense, first_child, labels, failure)
                if state < -1:
                    state = int(delta[(-2 - state) * n_classes + symbol])
            else:
                state = int(delta[state * n_classes + symbol])
            if state <= 0:
                if kind != 0:
                    break
                continue
            found = first_out[state]
            while found > 0:
                for place in range(out_start[found], out_start[found + 1]):
                    pattern = out[place]
                    if stamps[pattern] == mark:
                        continue
                    stamps[pattern] = mark
                    low, high = code_start[pattern], code_start[pattern + 1]
                    if low == high or fits(data, start, end, fold, code, low, high):
                        hits[n_hits] = pattern
                        n_hits += 1
                found = out_link[found]
        hit_end[row] = n_hits
    return len(rows), n_hits


@compiled
def fits_each(
    texts: Texts,
    rows: Ints,
    patterns: Int32s,
    codes: Codes,
    hits: Int32s,
    n_hits: int,
    hit_start: Ints,
    hit_end: Ints,
) -> int:
    """Compare some patterns with the texts of some rows; returns the hits (see ``scan``)."""
    data, offsets, nulls = texts
    starts, code, fold = codes
    for index in range(len(rows)):
        row = rows[index]
        hit_start[row] = n_hits
        if not nulls[row]:
            for pattern in patterns:
                low, high = starts[pattern], starts[pattern + 1]
                if fits(data, offsets[row], offsets[row + 1], fold, code, low, high):
                    hits[n_hits] = pattern
                    n_hits += 1
        hit_end[row] = n_hits
    return n_hits
