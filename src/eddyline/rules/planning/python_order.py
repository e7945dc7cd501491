"""Order of a rule's Python tests.

It is greedy: what a test decides, for its cost. In an AND the next part is the one that drops the
most of the rows that are left for its cost, in an OR the one that accepts the most: the greedy rule
of conjunctions [Babu05 Def 4.3.1], in each AND and OR of a rule by itself. Counted in sampled rows,
so what depends on each other is seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eddyline.rules.compile.formula import EXTERNAL, All, Always, Literal, literals_of
from eddyline.rules.plan import PythonOrder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eddyline.data.arrays import Mask
    from eddyline.rules.compile.formula import Formula
    from eddyline.rules.compile.program import Program
    from eddyline.rules.plan import SharingProfile

MIN_ROWS = 20
"""Sampled rows of a rule from which on its order is chosen by them."""

MIN_GAIN = 1.1
"""An order is replaced by one that is so many times cheaper: less may be chance."""

NO_ANSWER = 8
"""Bit of an answer: the test raised. Its row is taken to go on."""


def python_orders(
    program: Program, profile: SharingProfile, before: Sequence[PythonOrder]
) -> tuple[PythonOrder, ...]:
    """Return the orders that differ from the code's own; those in force stay unless it pays."""
    in_force = {order.rule: order.tests for order in before}
    orders = []
    for rule, written in program.ordered.of_rule.items():
        now = in_force.get(rule, written)
        best = _best(program, profile, rule, now)
        if best != written:
            orders.append(PythonOrder(rule, best))
    return tuple(orders)


def _best(
    program: Program, profile: SharingProfile, rule: int, now: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the cheapest order of a rule's tests, or the one in force if that is as good."""
    places = np.searchsorted(program.ordered.tests, now)
    answers = profile.python.answers[:, places]
    answers = answers[(answers != 0).all(axis=1)]
    if len(answers) < MIN_ROWS:
        return now
    costs = profile.python.costs.per_row_ns[places].tolist()
    sample = _Sample(
        program, dict(zip(now, answers.T, strict=True)), dict(zip(now, costs, strict=True))
    )
    formula, rows = program.formulas[rule], np.ones(len(answers), np.bool_)
    tests = sample.part(formula, rows).tests
    # A test that several parts ask has one place: where the first of them asks it, or the last.
    orders = [tuple(dict.fromkeys(tests)), tuple(dict.fromkeys(tests[::-1]))[::-1]]

    def cost_ns(order: tuple[int, ...]) -> float:
        return sample.part(formula, rows, {test: place for place, test in enumerate(order)}).cost_ns

    best = min(orders, key=cost_ns)
    return best if cost_ns(now) >= MIN_GAIN * cost_ns(best) else now


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a rule, asked of some sampled rows."""

    tests: tuple[int, ...]
    """Its tests, in the order in which they are asked."""
    holds: Mask
    """The sampled rows for which it holds ((rows,)); of rows that were not asked, anything."""
    cost_ns: float


@dataclass(frozen=True, slots=True)
class _Sample:
    """Answers of a rule's tests for the same sampled rows, and the cost of a call on a row."""

    program: Program
    answers: Mapping[int, np.ndarray]
    costs_ns: Mapping[int, float]

    def part(self, node: Formula, rows: Mask, places: Mapping[int, int] | None = None) -> _Part:
        """Return a part of a rule asked of some rows: greedily, or by the places of tests."""
        if isinstance(node, Literal):
            test = int(self.program.literals.places[node.id])
            wanted = int(self.program.literals.outcomes[node.id]) | NO_ANSWER
            holds = (self.answers[test] & wanted) != 0
            return _Part((test,), holds, self.costs_ns[test] * int(rows.sum()))
        is_all = isinstance(node, All)
        # Parts that ask nothing cost next to nothing, and come first.
        remaining = (
            []
            if isinstance(node, Always)
            else [member for member in node.parts if self._tests(member)]
        )
        here, cost_ns = rows, 0.0
        tests: tuple[int, ...] = ()
        while remaining:
            if places is None:
                place = self._next(remaining, here, rows, is_all=is_all)
            else:
                firsts = [min(map(places.__getitem__, self._tests(member))) for member in remaining]
                place = firsts.index(min(firsts))
            part = self.part(remaining.pop(place), here, places)
            here = here & (part.holds if is_all else ~part.holds)
            tests, cost_ns = (*tests, *part.tests), cost_ns + part.cost_ns
        return _Part(tests, here if is_all else rows & ~here, cost_ns)

    def _next(self, remaining: Sequence[Formula], here: Mask, rows: Mask, *, is_all: bool) -> int:
        """Return the part that decides most of the rows that are left for its cost.

        Where none decides any, those that came decide: few are sampled, and more may be left.
        """
        if len(remaining) == 1:
            return 0
        for asked in (here, rows):
            parts = [self.part(part, asked) for part in remaining]
            decided = [int((asked & (part.holds ^ is_all)).sum()) for part in parts]
            if any(decided):
                break
        worth = [n / max(part.cost_ns, 1.0) for n, part in zip(decided, parts, strict=True)]
        return worth.index(max(worth))

    def _tests(self, node: Formula) -> list[int]:
        """Return the tests that a part may ask; of those without an answer none."""
        literals = self.program.literals
        places = [
            int(literals.places[literal])
            for literal in literals_of(node)
            if literals.kinds[literal] == EXTERNAL
        ]
        return [test for test in places if test in self.answers]
