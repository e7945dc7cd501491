"""Rules as AND and OR over literals, without NOT.

A literal says that a test has one of some truth values, for example *is false or unknown*. Every
rule of three-valued logic becomes a monotone formula over literals: what is true of fewer literals
stays true of more. So a rule that cannot be true although everything unknown yet is taken to hold
is decided, and evaluation in any order comes to the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from eddyline.data.arrays import starts_of
from eddyline.query.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    And,
    Constant,
    Is,
    IsNull,
    MayRaise,
    Not,
    Or,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from eddyline.data.arrays import Int32s, Ints
    from eddyline.query.conditions import Node, Test

REGION, TEXT, EXTERNAL = 0, 1, 2
"""Kinds of literals: decided by a region, a pattern in a text, or a call of Python."""

_ALL = TRUE | FALSE | UNKNOWN


@dataclass(frozen=True, slots=True)
class Literal:
    """One literal, by its place in the table of literals."""

    id: int


@dataclass(frozen=True, slots=True)
class All:
    """Holds where all parts hold."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class Some:
    """Holds where some part holds."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class Always:
    """Holds everywhere, or nowhere."""

    value: bool


Formula = Literal | All | Some | Always


@dataclass(slots=True)
class LiteralTable:
    """The literals of a set of rules, each once."""

    tests: list[Test] = field(default_factory=list)
    literals: dict[tuple[int, int], int] = field(default_factory=dict)
    """The place of each literal, by that of its test and the truth values that it asks for."""
    _test_ids: dict[Test, int] = field(default_factory=dict)

    def literal(self, test: Test, outcomes: int) -> Literal:
        """Return the literal that a test has one of some truth values."""
        test_id = self._test_ids.setdefault(test, len(self.tests))
        if test_id == len(self.tests):
            self.tests.append(test)
        return Literal(self.literals.setdefault((test_id, outcomes), len(self.literals)))

    def formula(self, tree: Node) -> Formula:
        """Return the formula of the rows for which a rule is true."""
        return self._holds(tree, TRUE)

    def _holds(self, node: Node, outcomes: int) -> Formula:
        """Return the formula of the rows for which a node has one of some truth values."""
        while isinstance(node, Not | Is):  # a loop: thousands may stand one in the other
            outcomes = _asked_within(node, outcomes)
            node = node.part
        if isinstance(node, Constant):
            value = {True: TRUE, False: FALSE, None: UNKNOWN}[node.value]
            return Always(bool(outcomes & value))
        if outcomes in (0, _ALL):
            return Always(bool(outcomes))
        if isinstance(node, And | Or):  # a OR b is NOT (NOT a AND NOT b)
            is_or = isinstance(node, Or)
            parts = _parts_of(node)
            return self._joined(
                [Not(part) for part in parts] if is_or else parts,
                _negated(outcomes) if is_or else outcomes,
            )
        if isinstance(node, MayRaise):
            return self._checked(node, outcomes)
        return self.literal(node, outcomes)

    def _checked(self, node: MayRaise, outcomes: int) -> Formula:
        """Return the formula of a test that may raise: it has one of some truth values, or raises.

        A row on which it raises hangs on the error whichever truth values are asked for, so NOT
        does not turn an error into its absence.
        """
        raises = self.literal(IsNull(node.error.operand), FALSE)
        error = all_of((raises, self.literal(node.error, TRUE)))
        holds = self.literal(node.test, outcomes)
        if outcomes & UNKNOWN or isinstance(node.test, IsNull):
            is_fine = self.literal(IsNull(node.error.operand), TRUE)
            return some_of((all_of((holds, is_fine)), error))
        # The first part says nothing new, but it is over one operand: bitmaps can use it.
        return all_of((self.literal(node.test, outcomes | UNKNOWN), some_of((holds, error))))

    def _joined(self, parts: Sequence[Node], outcomes: int) -> Formula:
        """Return the formula of the rows for which an AND has one of some truth values."""

        def every(wanted: int) -> Formula:
            return all_of(self._holds(part, wanted) for part in parts)

        def some(wanted: int) -> Formula:
            return some_of(self._holds(part, wanted) for part in parts)

        if outcomes == TRUE:
            return every(TRUE)
        if outcomes == FALSE:
            return some(FALSE)
        if outcomes == UNKNOWN:
            return all_of((every(TRUE | UNKNOWN), some(UNKNOWN)))
        if outcomes == TRUE | UNKNOWN:
            return every(TRUE | UNKNOWN)
        if outcomes == FALSE | UNKNOWN:
            return some(FALSE | UNKNOWN)
        return some_of((every(TRUE | FALSE), some(FALSE)))


def _asked_within(node: Not | Is, outcomes: int) -> int:
    """Return the truth values of its part that give a node one of some truth values."""
    if isinstance(node, Not):
        return _negated(outcomes)
    return (node.outcomes if outcomes & TRUE else 0) | (
        _ALL & ~node.outcomes if outcomes & FALSE else 0
    )


def _parts_of(node: And | Or) -> list[Node]:
    """Return the parts of a node and of those of its kind within it: ``a AND (b AND c)``."""
    parts: list[Node] = []
    stack: list[Node] = [node]
    while stack:
        part = stack.pop()
        if isinstance(part, type(node)):
            stack.extend(reversed(part.children))
        else:
            parts.append(part)
    return parts


def _negated(outcomes: int) -> int:
    return (
        (outcomes & UNKNOWN) | (FALSE if outcomes & TRUE else 0) | (TRUE if outcomes & FALSE else 0)
    )


def all_of(parts: Iterable[Formula]) -> Formula:
    """Return the conjunction, flat and without what decides nothing."""
    return _flat(parts, All, neutral=True)


def some_of(parts: Iterable[Formula]) -> Formula:
    """Return the disjunction, flat and without what decides nothing."""
    return _flat(parts, Some, neutral=False)


def _flat(parts: Iterable[Formula], kind: Any, *, neutral: bool) -> Formula:
    members: dict[Formula, None] = {}
    for part in parts:
        if isinstance(part, Always):
            if part.value != neutral:
                return part
        elif isinstance(part, kind):
            members.update(dict.fromkeys(part.parts))
        else:
            members[part] = None
    if not members:
        return Always(neutral)
    flat = tuple(members)
    return flat[0] if len(flat) == 1 else kind(flat)


def literals_of(formula: Formula) -> tuple[int, ...]:
    """Return the literals of a formula, each once, in the order in which it names them."""
    literals: dict[int, None] = {}
    stack: list[Formula] = [formula]
    while stack:
        node = stack.pop()
        if isinstance(node, Literal):
            literals[node.id] = None
        elif isinstance(node, All | Some):
            stack.extend(reversed(node.parts))
    return tuple(literals)


ACCEPT, REJECT = -1, -2
"""Targets of jumps that end: the formula holds, or does not."""


def jump_code(formula: Formula, rank: Callable[[Formula], Any]) -> list[tuple[int, int, int]]:
    """Return a formula as tests with two jumps each, parts of lower rank first.

    It is not ``Always``.

    Returns:
        Triples (literal, where to go if it holds, where to go if not); places in the list,
        ``ACCEPT`` or ``REJECT``. Evaluation starts at the first.

    Example:
        >>> jump_code(All((Literal(7), Some((Literal(8), Literal(9))))), lambda _: 0)
        [(7, 1, -2), (8, -1, 2), (9, -1, -2)]
    """
    code: list[tuple[int, int, int]] = []
    _emit(formula, ACCEPT, REJECT, rank, code)
    # It was written from the end, so that every target was known.
    last = len(code) - 1
    return [
        (literal, last - yes if yes >= 0 else yes, last - no if no >= 0 else no)
        for literal, yes, no in reversed(code)
    ]


def _emit(
    node: Formula,
    yes: int,
    no: int,
    rank: Callable[[Formula], Any],
    code: list[tuple[int, int, int]],
) -> int:
    """Write a node that goes to ``yes`` or ``no``, and return where it starts."""
    if isinstance(node, Literal):
        code.append((node.id, yes, no))
        return len(code) - 1
    if isinstance(node, Always):
        return yes if node.value else no
    start = 0
    for position, part in enumerate(sorted(node.parts, key=rank)[::-1]):
        if position == 0:
            start = _emit(part, yes, no, rank, code)
        elif isinstance(node, All):
            start = _emit(part, start, no, rank, code)
        else:
            start = _emit(part, yes, start, rank, code)
    return start


def total_cost(node: Formula, cost: Callable[[int], float]) -> float:
    """Return the cost of all literals of a formula, each as often as it names it, in any unit."""
    if isinstance(node, Literal):
        return cost(node.id)
    return sum(total_cost(part, cost) for part in node.parts) if isinstance(node, All | Some) else 0


class Code(NamedTuple):
    """The jump code of many formulas, one after the other."""

    starts: Ints
    """Start of each formula; one more than there are formulas."""
    literals: Int32s
    yes: Int32s
    """Target of the jump if the literal holds, counted from the start of the formula."""
    no: Int32s


def packed(codes: Sequence[Sequence[tuple[int, int, int]]]) -> Code:
    """Return the codes of formulas as arrays."""
    rows = np.array(
        [row for code in codes for row in code] or np.empty((0, 3)), dtype=np.int32
    ).reshape(-1, 3)
    columns = (np.ascontiguousarray(rows[:, index]) for index in range(3))
    return Code(starts_of([len(code) for code in codes]), *columns)
