"""Text constructs: all matching patterns of a text, in one walk.

An automaton finds one literal of each pattern. There is an automaton for each place where a literal
may stand: the start, the end, or anywhere. If the pattern is more than that literal, the whole text
is then compared with it.

The three automata share one table: *inside* (Aho-Corasick), *start* and *end* (tries, walked from
either end until nothing fits any more). States are numbered by depth. Shallow states, where texts
spend their time, have full rows and share cache lines. Deep states keep only their own edges, so
memory grows with the patterns and not with the patterns times the alphabet.

A library would make a Python object for each text or hit, which takes most of the time. This code
reads Arrow buffers (docs/decisions/0008).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eddyline.data.arrays import starts_of
from eddyline.data.jit import compiled
from eddyline.rules.compile.regions import nulls_of
from eddyline.rules.match.lower_case import FOLD, IDENTITY, as_text, offsets_of, with_others_lowered
from eddyline.sql.regexes import ANY, Wild

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from eddyline.data.arrays import Bytes, Int32s, Ints, Mask
    from eddyline.query.conditions import Operand, TextTest


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


@dataclass(frozen=True, slots=True)
class Walk:
    """The literals that one automaton finds."""

    kind: int
    """``INSIDE``, ``START`` or ``END``."""
    literals: tuple[bytes, ...]
    """Not empty; in lower case if texts are compared so."""
    patterns: Int32s
    """The pattern of each, from 0."""


@dataclass(frozen=True)
class TextConstruct:
    """The patterns of one text operand, compared in one way."""

    operand: Operand
    folded: bool
    """Whether texts are compared in lower case."""
    first: int
    """Number of its first pattern: those of all constructs of a set are numbered through."""
    n_patterns: int
    walks: tuple[Walk, ...]
    codes: Codes
    everywhere: Int32s
    """Patterns without a literal, such as ``__%``: compared with every text."""

    @property
    def patterns(self) -> range:
        """The numbers of its patterns in the set."""
        return range(self.first, self.first + self.n_patterns)

    @property
    def n_units(self) -> int:
        """The number of walks that a text takes."""
        return len(self.walks) + bool(len(self.everywhere))

    @cached_property
    def automata(self) -> tuple[Automaton, ...]:
        """The automaton of each walk.

        Built by who walks texts: what travels to workers has no such large tables, and the driver
        needs none.
        """
        return tuple(
            build(walk.literals, walk.patterns, walk.kind, folded=self.folded)
            for walk in self.walks
        )

    def texts(self, values: pa.Array) -> Texts:
        """Return the texts of a batch as kernels read them."""
        values = as_text(values)
        if self.folded:  # automata fold the letters of ASCII themselves
            values = with_others_lowered(values, values)
        buffer = values.buffers()[2]
        data = np.frombuffer(b"\0" if buffer is None else buffer, np.uint8)
        return Texts(data, offsets_of(values), nulls_of(values))


class Hits:
    """The patterns found in a batch: for each walk and each row, where its hits are."""

    def __init__(self, n_units: int, n_rows: int) -> None:
        self.patterns = np.empty(max(1024, 16 * n_rows), np.int32)
        self.n_hits = 0
        self.starts = np.zeros((n_units, n_rows), np.int64)
        self.ends = np.zeros((n_units, n_rows), np.int64)

    def make_room(self, n_more: int) -> None:
        """Let at least so many hits follow."""
        if self.n_hits + n_more > len(self.patterns):
            larger = np.empty(2 * len(self.patterns) + n_more, np.int32)
            larger[: self.n_hits] = self.patterns[: self.n_hits]
            self.patterns = larger


def construct_of(
    operand: Operand, tests: Sequence[TextTest], first: int, *, folded: bool
) -> TextConstruct:
    """Return the construct of some patterns."""
    walks: dict[int, list[tuple[bytes, int]]] = {INSIDE: [], START: [], END: []}
    codes: list[list[int]] = []
    everywhere: list[int] = []
    for number, test in enumerate(tests):
        anchor = _literal(test)
        if anchor is None:
            everywhere.append(number)
            codes.append(_code(test))
            continue
        kind, literal, is_all = anchor
        walks[kind].append((_bytes(literal), number))
        codes.append([] if is_all else _code(test))
    starts = starts_of([len(code) for code in codes])
    code = np.array([symbol for code in codes for symbol in code] or [0], np.int16)
    return TextConstruct(
        operand,
        folded,
        first,
        len(tests),
        tuple(_walk(kind, pairs) for kind, pairs in walks.items() if pairs),
        Codes(starts, code, FOLD if folded else IDENTITY),
        np.array(everywhere, np.int32),
    )


def _walk(kind: int, pairs: Sequence[tuple[bytes, int]]) -> Walk:
    literals, patterns = zip(*pairs, strict=True)
    return Walk(kind, literals, np.array(patterns, np.int32))


def _literal(test: TextTest) -> tuple[int, str, bool] | None:
    """Return the place of a literal of a pattern, the literal, and whether it is all there is."""
    parts = test.parts
    literals = [(len(part), -index) for index, part in enumerate(parts) if isinstance(part, str)]
    if not literals:
        return None
    index = -max(literals)[1]
    before, after = parts[:index], parts[index + 1 :]
    kind = START if not before else END if not after else INSIDE
    outside = [*([] if kind == START else before), *([] if kind == END else after)]
    is_all = bool(outside) and all(isinstance(p, Wild) and p.what == ANY for p in outside)
    return kind, str(parts[index]), is_all


def _code(test: TextTest) -> list[int]:
    """Return a pattern as ``fits`` reads it."""
    code: list[int] = []
    for part in test.parts:
        if isinstance(part, Wild):
            code.append(ANY_CODE if part.what == ANY else ONE_CODE)
        else:
            code += _bytes(part)
    return code


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def find(
    construct: TextConstruct,
    texts: Texts,
    rows: Ints,
    hits: Hits,
    starts: Ints,
    ends: Ints,
    stamps: Ints,
    tick: int,
) -> None:
    """Find the patterns of a construct in the texts of some rows.

    The rows ascend; ``starts`` and ``ends`` of the hits of each walk and row are filled. For
    ``stamps`` and ``tick`` see ``scan``: from the tick on, as many as the batch has rows are used.
    """
    began = hits.n_hits
    most = construct.n_patterns
    for unit, automaton in enumerate(construct.automata):
        position = 0
        while position < len(rows):
            hits.make_room(most + 8 * (len(rows) - position))
            position, hits.n_hits = scan(
                texts,
                rows,
                position,
                automaton,
                construct.codes,
                stamps,
                tick,
                hits.patterns,
                hits.n_hits,
                most,
                starts[unit],
                ends[unit],
            )
    if len(construct.everywhere):
        hits.make_room(len(construct.everywhere) * len(rows))
        hits.n_hits = fits_each(
            texts,
            rows,
            construct.everywhere,
            construct.codes,
            hits.patterns,
            hits.n_hits,
            starts[-1],
            ends[-1],
        )
    hits.patterns[began : hits.n_hits] += construct.first


MAX_DENSE_BYTES = 1 << 24
"""Memory of the full rows that an automaton may have (bytes)."""


def build(
    patterns: Sequence[bytes], ids: Sequence[int] | Int32s, kind: int, *, folded: bool
) -> Automaton:
    """Return the automaton of some patterns.

    Patterns are not empty, and in lower case if folded: then upper-case ASCII letters of a text
    count as lower-case ones. Equal patterns may have several ids.
    """
    walked = [pattern[::-1] for pattern in patterns] if kind == END else list(patterns)
    classes, n_classes = _classes(b"".join(walked), folded=folded)
    # Sorted as classes, not as bytes: children of a state are searched by their class.
    named = [pattern.translate(classes.astype(np.uint8).tobytes()) for pattern in walked]
    order = sorted(range(len(named)), key=named.__getitem__)
    symbols = np.frombuffer(b"".join(named[number] for number in order), np.uint8).astype(np.int16)
    starts = starts_of([len(named[number]) for number in order])
    parent, label, depth, ends = grow_trie(symbols, starts)
    n_states = len(depth)
    # New numbers by depth, and within a depth as sorted patterns come: so children of a state
    # follow each other, sorted by label.
    rank = np.empty(n_states, np.int32)
    rank[np.argsort(depth, kind="stable")] = np.arange(n_states, dtype=np.int32)
    labels = np.empty(n_states, np.int16)
    labels[rank] = label
    parents = np.empty(n_states, np.int32)
    parents[rank] = rank[parent]
    parents[0] = -1
    counts = np.bincount(parents[1:], minlength=n_states)
    first_child = (1 + starts_of(counts)).astype(np.int32)
    # Numbers of states that fit two bytes leave room for twice as many full rows.
    is_small = n_states <= np.iinfo(np.uint16).max
    cells = MAX_DENSE_BYTES // (2 if is_small else 4)
    n_dense = min(n_states, max(1, cells // n_classes))
    failure, delta = link_failures(parents, first_child, labels, n_dense, n_classes, kind == INSIDE)
    out_start, out = _outputs(rank[ends], np.asarray(ids)[order], n_states)
    link = _links(failure, out_start) if kind == INSIDE else np.zeros(n_states, np.int32)
    return Automaton(
        kind=kind,
        classes=classes,
        delta=delta.astype(np.uint16) if is_small else delta,
        n_dense=n_dense,
        n_classes=n_classes,
        first_child=first_child,
        labels=labels,
        failure=failure,
        out_start=out_start,
        out=out,
        out_link=link,
        first_out=np.where(np.diff(out_start) > 0, np.arange(n_states), link).astype(np.int32),
    )


def _classes(data: bytes, *, folded: bool) -> tuple[NDArray[np.int16], int]:
    """Return the class of each byte, and how many there are.

    The most frequent bytes come first, so that the cells that are read lie side by side, and a
    full row is a number of whole cache lines.
    """
    counts = np.bincount(np.frombuffer(data, np.uint8), minlength=256)
    used = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    classes = np.zeros(256, np.int16)
    classes[used] = np.arange(1, len(used) + 1)
    if folded:
        classes[ord("A") : ord("Z") + 1] = classes[ord("a") : ord("z") + 1]
    cells_per_line = 16
    return classes, -(-(len(used) + 1) // cells_per_line) * cells_per_line


def _outputs(states: Int32s, ids: Ints, n_states: int) -> tuple[Int32s, Int32s]:
    """Return the patterns of each state, one state after the other."""
    by_state = np.argsort(states, kind="stable")
    start = starts_of(np.bincount(states, minlength=n_states)).astype(np.int32)
    return start, ids[by_state].astype(np.int32)


def _links(failure: Int32s, out_start: Int32s) -> Int32s:
    """Return, for each state, the nearest on its way of failures that has patterns."""
    has_patterns = out_start[1:] > out_start[:-1]
    is_end = has_patterns.copy()
    is_end[0] = True  # the root: there is none on the way
    ancestors = failure
    while not is_end[ancestors].all():  # each time the steps are twice as long
        ancestors = np.where(is_end[ancestors], ancestors, ancestors[ancestors])
    link = np.where(has_patterns[ancestors], ancestors, 0).astype(np.int32)
    link[0] = 0
    return link


# -- compiled: tries grow, and texts walk through automata ----------------------------------------


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
            fallback = failure[parents[state]]
            target = child_of(fallback, labels[state], first_child, labels)
            while target < 0 and fallback != 0:
                fallback = failure[fallback]
                target = child_of(fallback, labels[state], first_child, labels)
            failure[state] = max(target, 0)
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
    offset, place = start, code_start
    star_at, star_place = start, -1  # a literal would have the next character compiled twice
    while offset < end:
        if place < code_end and code[place] == ANY_CODE:
            star_place, star_at = place, offset
            place += 1
        elif place < code_end and code[place] == ONE_CODE:
            offset = _next(data, offset, end)
            place += 1
        elif place < code_end and code[place] == fold[data[offset]]:
            offset += 1
            place += 1
        elif star_place >= 0:
            star_at = _next(data, star_at, end)
            offset, place = star_at, star_place + 1
        else:
            return False
    while place < code_end and code[place] == ANY_CODE:
        place += 1
    return bool(place == code_end)


@compiled
def _next(data: Bytes, offset: int, end: int) -> int:
    """Return the start of the next character.

    Of bytes that are no characters, those count as one for which Java, and so Spark, puts one
    replacement: the longest start of a character, or else a single byte.
    """
    lead = data[offset]
    offset += 1
    if lead < 0xC2 or lead > 0xF4 or offset == end:
        return offset
    second = data[offset]
    if (
        (lead == 0xE0 and second < 0xA0)
        or (lead == 0xF0 and second < 0x90)
        or (lead == 0xF4 and second > 0x8F)
    ):
        return offset
    last = offset + (1 if lead < 0xE0 else 2 if lead < 0xF0 else 3)
    while offset < min(last, end) and (data[offset] & 0xC0) == 0x80:
        offset += 1
    return offset


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
            position = end - 1 - offset if kind == 2 else start + offset
            symbol = classes[data[position]]
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
            output = first_out[state]
            while output > 0:
                for place in range(out_start[output], out_start[output + 1]):
                    pattern = out[place]
                    if stamps[pattern] == mark:
                        continue
                    stamps[pattern] = mark
                    low, high = code_start[pattern], code_start[pattern + 1]
                    if low == high or fits(data, start, end, fold, code, low, high):
                        hits[n_hits] = pattern
                        n_hits += 1
                output = out_link[output]
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
