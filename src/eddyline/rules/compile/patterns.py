"""Text constructs: which of the patterns that rules name a text is of, found in one walk.

A pattern is found by one of its literals, in the automaton for where the literal stands: the start,
the end, or anywhere. A pattern that is more than that literal is then compared with the whole text.

Three kinds of automata have one table: *inside* (Aho-Corasick: patterns anywhere), *start* and
*end* (tries, walked from either end until nothing fits any more). States are numbered by depth, so
that the shallow ones, where texts spend their time, have full rows and share cache lines; deep ones
keep only their own edges, so that memory grows with the patterns and not with their number times
the alphabet. Our own and not a library's: it reads Arrow buffers without making a Python object per
text or hit, which is most of the time otherwise (docs/decisions/0008).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.arrays import starts_of
from eddyline.rules.compile.regions import nulls_of
from eddyline.rules.match import automaton_kernels as kernels
from eddyline.rules.match.automaton_kernels import (
    ANY_CODE,
    END,
    INSIDE,
    ONE_CODE,
    START,
    Automaton,
    Codes,
    Texts,
    grow_trie,
    link_failures,
    number_by_depth,
)
from eddyline.rules.match.lower_case import FOLD, IDENTITY, as_text, offsets_of, with_others_lowered
from eddyline.sql.regexes import ANY, Wild

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from eddyline.data.arrays import Int32s, Ints
    from eddyline.query.conditions import Operand, TextTest


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
            build(each.literals, each.patterns, each.kind, folded=self.folded)
            for each in self.walks
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
        found = _literal(test)
        if found is None:
            everywhere.append(number)
            codes.append(_code(test))
            continue
        kind, literal, is_all = found
        walks[kind].append((_bytes(literal), number))
        codes.append([] if is_all else _code(test))
    starts = starts_of([len(code) for code in codes])
    code = np.array([each for code in codes for each in code] or [0], np.int16)
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
    """Return a pattern as ``automaton_kernels.fits`` reads it."""
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
    ``stamps`` and ``tick`` see ``automaton_kernels.scan``: from the tick on, as many as the batch
    has rows are used.
    """
    began = hits.n_hits
    most = construct.n_patterns
    for unit, automaton in enumerate(construct.automata):
        at = 0
        while at < len(rows):
            hits.make_room(most + 8 * (len(rows) - at))
            at, hits.n_hits = kernels.scan(
                texts,
                rows,
                at,
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
        hits.n_hits = kernels.fits_each(
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


def n_bytes(automaton: Automaton) -> int:
    """Return the memory of an automaton's tables (bytes)."""
    return sum(table.nbytes for table in automaton if isinstance(table, np.ndarray))


def build(
    patterns: Sequence[bytes], ids: Sequence[int] | Int32s, kind: int, *, folded: bool
) -> Automaton:
    """Return the automaton of some patterns.

    Patterns are not empty, and in lower case if folded: then upper-case ASCII letters of a text
    count as lower-case ones. Equal patterns may have several ids.
    """
    walked = [each[::-1] for each in patterns] if kind == END else list(patterns)
    classes, n_classes = _classes(b"".join(walked), folded=folded)
    # Sorted as classes, not as bytes: children of a state are searched by their class.
    named = [each.translate(classes.astype(np.uint8).tobytes()) for each in walked]
    order = sorted(range(len(named)), key=named.__getitem__)
    symbols = np.frombuffer(b"".join(named[each] for each in order), np.uint8).astype(np.int16)
    starts = starts_of([len(named[each]) for each in order])
    parent, label, depth, ends = grow_trie(symbols, starts)
    rank, n_states = number_by_depth(depth), len(depth)
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
    at = failure
    while not is_end[at].all():  # each time the steps are twice as long
        at = np.where(is_end[at], at, at[at])
    link = np.where(has_patterns[at], at, 0).astype(np.int32)
    link[0] = 0
    return link
