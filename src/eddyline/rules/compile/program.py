"""A set of rules, compiled: what its tests look at, where each literal is decided, and its rules.

A program says what there is to know, not in which order it is found out: it is the same for every
plan. It holds arrays and values only, so it travels to workers as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eddyline.data.arrays import distinct
from eddyline.query.conditions import FunctionTest, Raise
from eddyline.rules.compile.formula import EXTERNAL, Code, jump_code, literals_of, packed
from eddyline.sql.regex_effort import regex_effort

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from eddyline.data.arrays import Int32s, Ints, Mask
    from eddyline.query.conditions import NativeTest, Test, ValueTest
    from eddyline.rules.compile.formula import Formula
    from eddyline.rules.compile.patterns import TextConstruct
    from eddyline.rules.compile.regions import KeySet, RegionConstruct


MAX_STATED = 64
"""Most rules of one statement of Spark's: each is a bit of a number."""


class Literals(NamedTuple):
    """The table of literals, as kernels read it."""

    kinds: NDArray[np.int8]
    """``REGION``, ``TEXT`` or ``EXTERNAL``."""
    places: Int32s
    """The region construct, the pattern, or the external test."""
    outcomes: NDArray[np.int8]
    """The truth values that it asks for."""
    columns: Int32s
    """The column whose NULLs make it unknown; -1 where they do not (regions, functions)."""
    starts: Ints
    """Start of the regions of each in ``low`` and ``high``; one more than there are literals."""
    low: Int32s
    """First region of an interval of regions for which the literal holds."""
    high: Int32s
    """Last region of it."""


@dataclass(frozen=True, slots=True)
class ExternalTest:
    """A test that Python decides, asked only for the rows whose rules hang on it."""

    test: ValueTest | FunctionTest | Raise
    """Errors of expressions are among them: they come after all others, and have no answer."""
    columns: tuple[int, ...]
    """The columns that it reads."""
    needs: tuple[int, ...]
    """Patterns of which one is met wherever it is true; none: nothing is known."""

    @property
    def is_guarded(self) -> bool:
        """Whether it may hang on rows that other parts of its rule drop.

        Such a test runs after all others of its rule, and the rule learns no order.
        """
        if isinstance(self.test, FunctionTest):
            return self.test.predicate.guarded
        if isinstance(self.test, Raise) or self.test.kind != "regex":
            return False
        flags = "(?i)" if self.test.flags & re.IGNORECASE else ""
        return regex_effort(flags + self.test.pattern).time


@dataclass(frozen=True)
class Program:
    """A compiled set of rules."""

    names: tuple[str, ...]
    """The rules, in the order of the set."""
    called: tuple[str, ...]
    """The same in errors."""
    formulas: tuple[Formula, ...]
    """The formula of each."""
    code: Code
    """The same as jump code; none for rules that always or never hold."""
    constant: NDArray[np.int8]
    """1: the rule always holds; 0: never; -1: its code decides."""
    tests: tuple[Test, ...]
    """The tests of all rules, each once."""
    natives: tuple[NativeTest, ...]
    """Those that Spark evaluates: each is one of the columns."""
    test_of: Int32s
    """The test of each literal."""
    literals: Literals
    key_sets: tuple[KeySet | None, ...]
    """For each literal on regions, the keys for which it holds."""
    columns: tuple[str, ...]
    """The columns that a batch brings, as Spark SQL."""
    regions: tuple[RegionConstruct, ...]
    region_columns: tuple[int, ...]
    """The column of each region construct."""
    texts: tuple[TextConstruct, ...]
    text_columns: tuple[int, ...]
    """The column of each text construct."""
    externals: tuple[ExternalTest, ...]
    reads_regions: Mask
    """The region constructs that each rule reads ((rules, constructs))."""
    reads_texts: Mask
    """The text constructs that each rule reads ((rules, constructs))."""
    externals_at: Ints
    """Start of the external tests of each rule in ``rule_externals``; one more than rules."""
    rule_externals: Int32s
    """The external tests that each rule reads, one rule after the other: every rule may have
    tests of its own, so a matrix would grow with the square of the set."""
    conditions: tuple[str, ...] = ()
    """The rules as SQL that Spark may evaluate in one statement; none where it may not."""

    @property
    def n_rules(self) -> int:
        """Number of rules."""
        return len(self.names)

    @property
    def n_patterns(self) -> int:
        """Number of patterns of all text constructs."""
        return sum(each.n_patterns for each in self.texts)

    def externals_of(self, rules: Int32s) -> tuple[Ints, Int32s]:
        """Return the external tests that some rules read, each with the rule's place among them.

        >>> compile_rules([]).externals_of(np.zeros(0, np.int32))[1].tolist()
        []
        """
        sizes = np.diff(self.externals_at)[rules]
        ends = np.cumsum(sizes)
        places = np.repeat(np.arange(len(rules)), sizes)
        within = np.arange(len(places)) - np.repeat(ends - sizes, sizes)
        return places, self.rule_externals[self.externals_at[rules][places] + within]

    def rules_that_ask(self, externals: Sequence[int]) -> Ints:
        """Return the rules that read at least one of some external tests, ascending."""
        rules = np.repeat(np.arange(self.n_rules), np.diff(self.externals_at))
        return distinct(rules[np.isin(self.rule_externals, externals)])

    @cached_property
    def errors(self) -> dict[str, Raise]:
        """The errors of expressions, by the columns that say on which rows they occur."""
        tests = (each.test for each in self.externals)
        return {each.operand.sql: each for each in tests if isinstance(each, Raise)}

    @cached_property
    def ordered(self) -> OrderedTests:
        """The tests of Python whose order a plan may choose."""
        return OrderedTests.of(self)

    @cached_property
    def first_units(self) -> tuple[int, ...]:
        """The first walk of each text construct; one more than there are."""
        counts = [0, *(each.n_units for each in self.texts)]
        return tuple(int(at) for at in np.cumsum(counts))


@dataclass(frozen=True)
class OrderedTests:
    """The tests of Python whose order a plan may choose."""

    of_rule: Mapping[int, tuple[int, ...]]
    """Of each rule that may ask several, one a function, these in the order of its own code."""
    tests: Int32s
    """Those of all such rules, ascending."""
    rules: Int32s
    """Such rules, ascending."""

    @classmethod
    def of(cls, program: Program) -> OrderedTests:
        """Return those of a program."""
        tests = [each.test for each in program.externals]
        is_function = np.array([isinstance(each, FunctionTest) for each in tests] or [False])
        # The error of an expression has no answer: no order is worth choosing for it.
        is_asked = np.array([not isinstance(each, Raise) for each in tests] or [False])
        is_guarded = np.array([each.is_guarded for each in program.externals] or [False])
        rules = np.repeat(np.arange(program.n_rules), np.diff(program.externals_at))
        asked, functions, guarded = (
            np.bincount(rules[mask[program.rule_externals]], minlength=program.n_rules)
            for mask in (is_asked, is_function, is_guarded)
        )
        may_choose = (asked > 1) & (functions > 0) & (guarded == 0)
        chosen = np.flatnonzero(may_choose).astype(np.int32)
        of_rule = {rule: _in_code(program, rule, is_asked) for rule in chosen.tolist()}
        found = [test for each in of_rule.values() for test in each]
        return cls(of_rule, distinct(np.array(found, np.int32)), chosen)

    def code(self, program: Program, orders: Mapping[int, tuple[int, ...]]) -> Code:
        """Return the code of a program that asks the tests of some rules in other orders."""
        if not orders:
            return program.code
        code = program.code
        own = packed([_ordered(program, rule, order) for rule, order in orders.items()])
        starts = code.starts.copy()
        starts[list(orders)] = len(code.literals) + own.starts[:-1]
        parts = zip(code[1:], own[1:], strict=True)
        return Code(starts, *(np.concatenate(both) for both in parts))


def _in_code(program: Program, rule: int, is_asked: np.ndarray) -> tuple[int, ...]:
    """Return the tests of Python of a rule in the order of its code."""
    start, end = program.code.starts[rule : rule + 2]
    literals = program.code.literals[start:end]
    places = program.literals.places[literals[program.literals.kinds[literals] == EXTERNAL]]
    return tuple(dict.fromkeys(places[is_asked[places]].tolist()))


def _ordered(program: Program, rule: int, order: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Return the code of a rule that asks tests in an order, after what needs no asking."""
    places = {test: place for place, test in enumerate(order)}

    def rank(part: Formula) -> tuple[int, int]:
        literals = literals_of(part)
        asked = [
            places.get(int(program.literals.places[each]), len(order))
            for each in literals
            if program.literals.kinds[each] == EXTERNAL
        ]
        return min(asked, default=-1), len(literals)

    return jump_code(program.formulas[rule], rank)
