"""Planner of rules: a sharing plan from program and profile.

A plan from a file is checked against its program: an access predicate that a rule does not have, or
a rule in two places, would change answers.

The way is one statement of Spark's or the matcher, by what each costs a row. The costs of Spark's
tests are constants that were measured, as Spark tells no time of a test. What the matcher costs is
measured where it has run, and guessed by such constants before. Either is without what both do:
reading the rows and writing the result.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from eddyline.errors import EddylineError, StateError
from eddyline.query.conditions import OneOf, TextTest, ValueTest
from eddyline.rules.compile.formula import literals_of
from eddyline.rules.plan import SharingPlan
from eddyline.rules.planning.access_predicates import can_access, is_access_predicate, plan_of
from eddyline.rules.planning.python_order import python_orders
from eddyline.rules.planning.sequence_learning import RegionSample, greedy_macro, hybrid, macro

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.data.arrays import Floats
    from eddyline.options import SharingOptions
    from eddyline.query.conditions import Test
    from eddyline.rules.compile.bitmap_block import BitmapBlock, BitmapBlocks
    from eddyline.rules.compile.program import Program
    from eddyline.rules.plan import BitmapBlockPlan, PythonOrder, SharingProfile

MAX_DISTINCT = 0.5
"""Share of distinct values from which on each row is looked at by itself."""

STEP_COST = 0.2
"""Cost of a step of a binary search, in table look-ups."""

LEARNERS: dict[str, Any] = {"macro": macro, "greedy": greedy_macro, "hybrid": hybrid}
"""Ways to learn a sequence: the cheapest order found, the paper's greedy one, with micro-arrows."""


def make_plan(
    blocks: BitmapBlocks,
    options: SharingOptions,
    profile: SharingProfile | None = None,
    before: Sequence[PythonOrder] = (),
) -> SharingPlan:
    """Return the cheapest plan that the options allow, by a profile or else by guesses.

    Orders of tests of Python that were in force before stay unless others are clearly cheaper.
    """
    plan = plan_of(blocks.program, profile, method=options.method)
    if profile is not None:
        orders = python_orders(blocks.program, profile, before)
        plan = replace(plan, by_value=_repeating(profile), python_orders=orders)
    if profile is None or not len(profile.sampled_regions) or options.sequence == "fixed":
        return plan
    return replace(
        plan, blocks=tuple(_arranged(blocks, block, options, profile) for block in plan.blocks)
    )


def _repeating(profile: SharingProfile) -> frozenset[int]:
    """Return the text constructs whose values repeat so often that finding repeats pays."""
    counted = profile.value_rows > 0
    share = profile.distinct_values / np.maximum(profile.value_rows, 1)
    return frozenset(np.flatnonzero(counted & (share < MAX_DISTINCT)).tolist())


def _costs(block: BitmapBlock) -> Floats:
    """Return the cost of looking a row up in each construct, in table look-ups."""
    n_regions = [block.n_regions(construct) for construct in range(block.n_constructs)]
    searched = 1.0 + STEP_COST * np.log2(np.array(n_regions, np.float64))
    return np.where(block.tables.table_at < 0, searched, 1.0)


def _arranged(
    blocks: BitmapBlocks, plan: BitmapBlockPlan, options: SharingOptions, profile: SharingProfile
) -> BitmapBlockPlan:
    """Return a bitmap block with the sequence that is learned from its sample."""
    regions = blocks.regions(plan.rules, profile.sampled_regions)
    block = blocks.of(plan.rules)
    sample = RegionSample.thinned(block, regions, _costs(block))
    return replace(plan, sequence=LEARNERS[options.sequence](sample))


def plan_from(state: Any, blocks: BitmapBlocks) -> SharingPlan:
    """Return a plan that was decoded from JSON.

    Raises:
        StateError: it is damaged, or of another program.
    """
    try:
        plan = msgspec.convert(state, SharingPlan)
        _check_way(plan, blocks)
        _check(plan, blocks)
    except (EddylineError, ValueError, IndexError) as error:
        msg = f"the saved plan does not fit the rules: {error}"
        raise StateError(msg) from error
    return plan


def _check_way(plan: SharingPlan, blocks: BitmapBlocks) -> None:
    """Raise ValueError if a plan is one statement of rules that Spark may not evaluate so."""
    if plan.is_statement and not blocks.program.conditions:
        msg = "these rules cannot be one statement of Spark's"
        raise ValueError(msg)


def _check(plan: SharingPlan, blocks: BitmapBlocks) -> None:
    """Raise ValueError if a plan could change an answer of a program."""
    program = blocks.program
    if len(plan.access_predicates) != program.n_rules:
        msg = f"{len(plan.access_predicates)} access predicates for {program.n_rules} rules"
        raise ValueError(msg)
    blocked = [rule for block in plan.blocks for rule in block.rules]
    in_blocks = set(blocked)
    fits = all(0 <= rule < program.n_rules and program.constant[rule] < 0 for rule in blocked)
    if not fits or len(in_blocks) < len(blocked):
        msg = "a bitmap block has a rule that is not its own"
        raise ValueError(msg)
    can = can_access(program)
    for rule, access in enumerate(plan.access_predicates):
        if access is None:
            continue
        is_free = program.constant[rule] < 0 and rule not in in_blocks
        if not is_free or not is_access_predicate(program.formulas[rule], set(access), can):
            msg = f"literals {access} are no access predicate of rule {program.names[rule]!r}"
            raise ValueError(msg)
    tests = program.ordered.of_rule
    for order in plan.python_orders:
        if sorted(order.tests) != sorted(tests.get(order.rule, ())):
            msg = f"{order} is no order of the Python tests of its rule"
            raise ValueError(msg)
    for block in plan.blocks:
        if block.sequence is not None:
            blocks.of(block.rules).check(block.sequence)


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
    def from_program(cls, program: Program, n_rows: int = 0, evaluation_ns: int = 0) -> WayCosts:
        """Return the costs of a program.

        Args:
            program: the rules.
            n_rows: rows that the matcher has evaluated.
            evaluation_ns: time that took it (ns).
        """
        statement = sum(_test_ns(test) for test in _tests(program))
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
    by_rule = (
        dict.fromkeys(int(program.test_of[literal]) for literal in literals_of(formula))
        for formula in program.formulas
    )
    return [program.tests[test] for tests in by_rule for test in tests]


def _test_ns(test: Test) -> float:
    if isinstance(test, ValueTest):
        return REGEX_NS
    if isinstance(test, TextTest):
        is_whole = all(isinstance(part, str) for part in test.parts)
        return COMPARISON_NS if is_whole else PATTERN_NS
    if isinstance(test, OneOf):
        return COMPARISON_NS * min(len(test.values), 10)  # of more, Spark makes a hash set
    return COMPARISON_NS
