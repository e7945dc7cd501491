"""Text constructs: which of the patterns that rules name a text is of, found in one walk.

A pattern is found by one of its literals, in the automaton for where the literal stands: the start,
the end, or anywhere. A pattern that is more than that literal is then compared with the whole text.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from eddyline.rules.compile.automaton import build
from eddyline.rules.compile.keys import nulls_of
from eddyline.rules.compile.pattern_tables import (
    ANY_CODE,
    END,
    INSIDE,
    ONE_CODE,
    START,
    Codes,
    Texts,
)
from eddyline.rules.match import automaton_kernels as kernels
from eddyline.rules.match.lower_case import FOLD, IDENTITY, as_text, offsets_of, with_others_lowered
from eddyline.sql.like import ANY, Wild

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from eddyline.data.arrays import Int32s, Ints
    from eddyline.query.conditions import Operand, TextTest
    from eddyline.rules.compile.pattern_tables import Automaton


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
    starts = np.concatenate([[0], np.cumsum([len(code) for code in codes])]).astype(np.int64)
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
