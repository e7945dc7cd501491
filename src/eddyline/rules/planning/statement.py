"""Chooses between one statement of Spark's and the matcher, by what each costs a row.

The costs of Spark's tests are constants that were measured, as Spark tells no time of a test. What
the matcher costs is measured where it has run, and guessed by such constants before. Either is
without what both do: reading the rows and writing the result.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eddyline.query.conditions import OneOf, TextTest, ValueTest
from eddyline.rules.compile.formula import literals_of

if TYPE_CHECKING:
    from eddyline.options import SharingOptions
    from eddyline.query.conditions import Test
    from eddyline.rules.compile.program import Program
    from eddyline.rules.plan import SharingPlan

COMPARISON_NS, PATTERN_NS, REGEX_NS = 6.0, 60.0, 600.0
"""Time of a test in a statement (ns): of a constant, of a text with wildcards, of a regular
expression."""

MAX_WRITTEN = 48
"""Tests up to which the statement is written as a person would; the code that Spark makes of some
80 is too long for Java to compile (8,000 bytes), and of some 400 for a class at all (64 KiB)."""

TRIP_NS, COLUMN_NS, RULE_NS = 1_000.0, 25.0, 5.0
"""Time of the matcher for a row (ns): to Python and back, for each column, and for each rule."""

MIN_GAIN = 1.25
"""Times that the other way must be cheaper to take the place of the one in force."""

MIN_MATCHED_ROWS = 10_000
"""Rows that the matcher has evaluated before its time is believed."""


@dataclass(frozen=True, slots=True)
class WayCosts:
    """The time of a row either way (ns)."""

    statement_ns: float
    matcher_ns: float

    @classmethod
    def of(cls, program: Program, n_rows: int = 0, evaluation_ns: int = 0) -> WayCosts:
        """Return the costs of a program.

        Args:
            program: the rules.
            n_rows: rows that the matcher has evaluated.
            evaluation_ns: time that took it (ns).
        """
        statement = sum(_test_ns(each) for each in _tests(program))
        evaluated = RULE_NS * program.n_rules
        if n_rows >= MIN_MATCHED_ROWS:
            evaluated = evaluation_ns / n_rows
        return cls(statement, TRIP_NS + COLUMN_NS * len(program.columns) + evaluated)

    @property
    def evidence(self) -> dict[str, float]:
        """For the journal."""
        return {"statement_ns": round(self.statement_ns), "matcher_ns": round(self.matcher_ns)}


def with_way(
    plan: SharingPlan,
    program: Program,
    options: SharingOptions,
    costs: WayCosts,
    before: bool | None,
) -> SharingPlan:
    """Return a plan of the matcher that says whether its rules are one statement instead.

    Args:
        plan: of the matcher.
        program: the rules.
        options: may ask for the one or the other.
        costs: of either.
        before: whether the plan in force is one statement; None: there is none.
    """
    if not program.conditions or options.method not in ("auto", "statement"):
        return plan
    gain = {None: 1.0, True: 1 / MIN_GAIN, False: MIN_GAIN}[before]
    is_cheaper = costs.matcher_ns > gain * costs.statement_ns
    return replace(plan, is_statement=is_cheaper or options.method == "statement")


def is_long(program: Program) -> bool:
    """Return whether the statement has so many tests that its code must be cut."""
    return len(_tests(program)) > MAX_WRITTEN


def _tests(program: Program) -> list[Test]:
    """Return the tests of each rule, one rule after the other."""
    found = (
        dict.fromkeys(int(program.test_of[each]) for each in literals_of(formula))
        for formula in program.formulas
    )
    return [program.tests[each] for own in found for each in own]


def _test_ns(test: Test) -> float:
    if isinstance(test, ValueTest):
        return REGEX_NS
    if isinstance(test, TextTest):
        is_whole = all(isinstance(each, str) for each in test.parts)
        return COMPARISON_NS if is_whole else PATTERN_NS
    if isinstance(test, OneOf):
        return COMPARISON_NS * min(len(test.values), 10)  # of more, Spark makes a hash set
    return COMPARISON_NS
