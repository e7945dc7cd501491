"""Compiled set of rules: operands, literals and rules.

It says where each literal is decided. ``compile_rules`` sorts the tests of rules to what decides
them, and numbers all. The program says what there is to know, not in which order it is found out:
it is the same for every plan. It holds arrays and values only, so it travels to workers as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eddyline.data.arrays import distinct, starts_of
from eddyline.data.memory import collector_paused
from eddyline.errors import QueryError
from eddyline.query.conditions import (
    Compare,
    FunctionTest,
    NativeTest,
    OneOf,
    Operand,
    Raise,
    TextTest,
    ValueTest,
)
from eddyline.rules.compile.formula import (
    EXTERNAL,
    REGION,
    TEXT,
    Always,
    Code,
    LiteralTable,
    jump_code,
    literals_of,
    packed,
    total_cost,
)
from eddyline.rules.compile.patterns import TextConstruct, construct_of
from eddyline.rules.compile.regions import (
    KeySet,
    RegionConstruct,
    RegionTest,
    constants_of,
    key_set,
    region_construct,
    region_key,
)
from eddyline.sql.regexes import ANY, Wild, is_whole_text, regex_effort
from eddyline.sql.types import BOOLEAN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from eddyline.data.arrays import Int32s, Ints, Mask
    from eddyline.query.conditions import Rule, Test
    from eddyline.rules.compile.formula import Formula
    from eddyline.rules.compile.patterns import TextConstruct
    from eddyline.rules.compile.regions import KeySet, Places, RegionConstruct

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
        return sum(construct.n_patterns for construct in self.texts)

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
        tests = (external.test for external in self.externals)
        return {test.operand.sql: test for test in tests if isinstance(test, Raise)}

    @cached_property
    def ordered(self) -> OrderedTests:
        """The tests of Python whose order a plan may choose."""
        return OrderedTests.from_program(self)

    @cached_property
    def first_units(self) -> tuple[int, ...]:
        """The first walk of each text construct; one more than there are."""
        return tuple(starts_of([construct.n_units for construct in self.texts]).tolist())


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
    def from_program(cls, program: Program) -> OrderedTests:
        """Return those of a program."""
        tests = [external.test for external in program.externals]
        is_function = np.array([isinstance(test, FunctionTest) for test in tests] or [False])
        # The error of an expression has no answer: no order is worth choosing for it.
        is_asked = np.array([not isinstance(test, Raise) for test in tests] or [False])
        is_guarded = np.array([external.is_guarded for external in program.externals] or [False])
        rules = np.repeat(np.arange(program.n_rules), np.diff(program.externals_at))
        asked, functions, guarded = (
            np.bincount(rules[mask[program.rule_externals]], minlength=program.n_rules)
            for mask in (is_asked, is_function, is_guarded)
        )
        may_choose = (asked > 1) & (functions > 0) & (guarded == 0)
        chosen = np.flatnonzero(may_choose).astype(np.int32)
        of_rule = {rule: _in_code(program, rule, is_asked) for rule in chosen.tolist()}
        asked_tests = [test for order in of_rule.values() for test in order]
        return cls(of_rule, distinct(np.array(asked_tests, np.int32)), chosen)

    def code(self, program: Program, orders: Mapping[int, tuple[int, ...]]) -> Code:
        """Return the code of a program that asks the tests of some rules in other orders."""
        if not orders:
            return program.code
        code = program.code
        reordered = packed([_ordered(program, rule, order) for rule, order in orders.items()])
        starts = code.starts.copy()
        starts[list(orders)] = len(code.literals) + reordered.starts[:-1]
        parts = zip(code[1:], reordered[1:], strict=True)
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
            places.get(int(program.literals.places[literal]), len(order))
            for literal in literals
            if program.literals.kinds[literal] == EXTERNAL
        ]
        return min(asked, default=-1), len(literals)

    return jump_code(program.formulas[rule], rank)


@collector_paused()
def compile_rules(rules: Sequence[Rule]) -> Program:
    """Return the program of some rules over one input; their names are unique.

    Raises:
        QueryError: AND and OR are nested in turn too deeply in a rule; the message names it.
    """
    return _Compiler(rules).program()


class _Compiler:
    """One set of rules being compiled."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._names = tuple(rule.name for rule in rules)
        self._called = tuple(rule.called for rule in rules)
        self._conditions = _conditions(rules)
        self._table = LiteralTable()
        self._formulas = tuple(self._formula(rule) for rule in rules)
        # Native tests are boolean operands: one more attribute with regions.
        self._tests = tuple(map(_as_operand, self._table.tests))
        self._columns: dict[str, int] = {}
        self._region_keys: dict[tuple[Operand, bool], list[RegionTest]] = {}
        self._text_keys: dict[tuple[Operand, bool], dict[TextTest, None]] = {}
        self._externals: list[ValueTest | FunctionTest | Raise] = []
        self._walked = {
            (test.operand, test.folded)
            for test in self._tests
            if isinstance(test, TextTest) and region_key(test) is None
        }
        for test in self._tests:
            self._sort_in(test)

    def _formula(self, rule: Rule) -> Formula:
        n_known = len(self._table.tests)
        try:
            formula = self._table.formula(rule.tree)
        except RecursionError as error:
            msg = f"{rule.called} is nested too deeply; split it into several rules"
            raise QueryError(msg, name=rule.name) from error
        for text in (rule.name, *_texts(self._table.tests[n_known:])):
            if not is_whole_text(text):
                msg = (
                    f"{rule.called} holds half a character in {text!r} (a surrogate without "
                    f"its other half), which no text of a row does; write the whole character"
                )
                raise QueryError(msg, name=rule.name, text=text)
        return formula

    def _region_key(self, test: Test) -> tuple[Operand, bool] | None:
        """Return the region construct that decides a test, if one does.

        A whole text is looked for in the walk over the text where there is one anyway.
        """
        key = region_key(test)
        is_walked = isinstance(test, TextTest) and bool(test.parts) and key in self._walked
        return None if is_walked else key

    def _sort_in(self, test: Test) -> None:
        key = self._region_key(test)
        if key is not None:
            self._region_keys.setdefault(key, []).append(test)  # type: ignore[arg-type]
        elif isinstance(test, TextTest):
            self._text_keys.setdefault((test.operand, test.folded), {})[test] = None
        elif isinstance(test, ValueTest | FunctionTest | Raise):
            self._externals.append(test)
            for need in _needs(test):
                self._sort_in(need)
        else:
            msg = f"no construct decides {test!r}"
            raise TypeError(msg)

    def _column(self, sql: str) -> int:
        return self._columns.setdefault(sql, len(self._columns))

    def program(self) -> Program:
        """Return the program."""
        texts, patterns = self._text_constructs()
        regions, places = self._region_constructs()
        text_columns = tuple(self._column(construct.operand.sql) for construct in texts)
        region_columns = tuple(self._column(construct.operand.sql) for construct in regions)
        externals = tuple(self._external(test, patterns) for test in self._externals)
        literals, key_sets = self._literals(regions, places, patterns, externals)
        cost = _cost(literals, externals)
        codes = [
            [] if isinstance(f, Always) else jump_code(f, lambda part: total_cost(part, cost))
            for f in self._formulas
        ]
        test_of = np.array([test for test, _ in self._table.literals], np.int32)
        reads_regions, reads_texts, asked = self._reads(literals, texts, externals)
        return Program(
            names=self._names,
            called=self._called,
            formulas=self._formulas,
            code=packed(codes),
            constant=np.array(
                [int(f.value) if isinstance(f, Always) else -1 for f in self._formulas], np.int8
            ),
            tests=self._tests,
            natives=tuple(test for test in self._table.tests if isinstance(test, NativeTest)),
            test_of=test_of,
            literals=literals,
            key_sets=key_sets,
            columns=tuple(self._columns),
            regions=regions,
            region_columns=region_columns,
            texts=texts,
            text_columns=text_columns,
            externals=externals,
            reads_regions=reads_regions,
            reads_texts=reads_texts,
            externals_at=starts_of([len(asks) for asks in asked]),
            rule_externals=np.array([number for asks in asked for number in asks], np.int32),
            conditions=self._conditions,
        )

    def _text_constructs(self) -> tuple[tuple[TextConstruct, ...], dict[TextTest, int]]:
        constructs: list[TextConstruct] = []
        patterns: dict[TextTest, int] = {}
        for (operand, folded), tests in self._text_keys.items():
            first = len(patterns)
            patterns.update({test: first + number for number, test in enumerate(tests)})
            constructs.append(construct_of(operand, tuple(tests), first, folded=folded))
        return tuple(constructs), patterns

    def _region_constructs(self) -> tuple[tuple[RegionConstruct, ...], list[Places | None]]:
        asked: dict[Test, set[int]] = {}
        for test, outcomes in self._table.literals:
            asked.setdefault(self._tests[test], set()).add(outcomes)
        constructs: list[RegionConstruct] = []
        all_places: list[Places | None] = []
        for (operand, folded), tests in self._region_keys.items():
            literals = [(test, outcome) for test in tests for outcome in asked.get(test, ())]
            construct, places = region_construct(operand, tests, literals, folded=folded)
            constructs.append(construct)
            all_places.append(places)
        return tuple(constructs), all_places

    def _external(
        self, test: ValueTest | FunctionTest | Raise, patterns: dict[TextTest, int]
    ) -> ExternalTest:
        if isinstance(test, FunctionTest):
            return ExternalTest(test, tuple(map(self._column, test.predicate.reads)), ())
        if isinstance(test, Raise):
            return ExternalTest(test, (self._column(test.operand.sql),), ())
        # A necessary text that is the whole value is a region's business; it is rare, so unused.
        needs = tuple(patterns[need] for need in _needs(test) if need in patterns)
        pattern_needs = needs if len(needs) == len(test.needs) else ()
        return ExternalTest(test, (self._column(test.operand.sql),), pattern_needs)

    def _literals(
        self,
        regions: tuple[RegionConstruct, ...],
        places: list[Places | None],
        patterns: dict[TextTest, int],
        externals: tuple[ExternalTest, ...],
    ) -> tuple[Literals, tuple[KeySet | None, ...]]:
        region_places = {key: place for place, key in enumerate(self._region_keys)}
        external_places = {question.test: place for place, question in enumerate(externals)}
        rows: list[tuple[int, int, int, int]] = []
        held: list[tuple[tuple[int, int], ...]] = []
        key_sets: list[KeySet | None] = []
        for test_id, outcomes in self._table.literals:
            test = self._tests[test_id]
            key = self._region_key(test)
            intervals: tuple[tuple[int, int], ...] = ()
            keys = None
            if key is not None:
                number = region_places[key]
                keys = key_set(test, outcomes, places[number])  # type: ignore[arg-type]
                intervals = regions[number].regions_of(keys)
                rows.append((REGION, number, outcomes, -1))
            elif isinstance(test, TextTest):
                rows.append((TEXT, patterns[test], outcomes, self._column(test.operand.sql)))
            else:
                external = externals[external_places[test]]  # type: ignore[index]
                is_value = isinstance(external.test, ValueTest)
                column = external.columns[0] if is_value else -1
                rows.append((EXTERNAL, external_places[test], outcomes, column))  # type: ignore[index]
            held.append(intervals)
            key_sets.append(keys)
        table = np.array(rows, np.int64).reshape(-1, 4)
        flat = np.array(
            [interval for intervals in held for interval in intervals], np.int32
        ).reshape(-1, 2)
        literals = Literals(
            kinds=table[:, 0].astype(np.int8),
            places=table[:, 1].astype(np.int32),
            outcomes=table[:, 2].astype(np.int8),
            columns=table[:, 3].astype(np.int32),
            starts=starts_of([len(ranges) for ranges in held]),
            low=np.ascontiguousarray(flat[:, 0]),
            high=np.ascontiguousarray(flat[:, 1]),
        )
        return literals, tuple(key_sets)

    def _reads(
        self,
        literals: Literals,
        texts: tuple[TextConstruct, ...],
        externals: tuple[ExternalTest, ...],
    ) -> tuple[Mask, Mask, list[list[int]]]:
        """Return the constructs that each rule reads, by the kind of literal."""
        n_rules = len(self._formulas)
        text_of = [number for number, construct in enumerate(texts) for _ in construct.patterns]
        regions = np.zeros((n_rules, len(self._region_keys)), np.bool_)
        walked = np.zeros((n_rules, len(texts)), np.bool_)
        asked: list[list[int]] = []
        kinds, places = literals.kinds.tolist(), literals.places.tolist()
        for rule, formula in enumerate(self._formulas):
            asks: dict[int, None] = {}
            for literal in literals_of(formula):
                kind, place = kinds[literal], places[literal]
                if kind == REGION:
                    regions[rule, place] = True
                elif kind == TEXT:
                    walked[rule, text_of[place]] = True
                else:
                    asks[place] = None
                    for need in externals[place].needs:
                        walked[rule, text_of[need]] = True
            asked.append(list(asks))
        return regions, walked, asked


def _conditions(rules: Sequence[Rule]) -> tuple[str, ...]:
    """Return few rules as SQL, if Spark may evaluate all of them; else none."""
    parts = [rule.conjuncts for rule in rules[: MAX_STATED + 1]]
    if len(parts) > MAX_STATED or None in parts:
        return ()
    # A line of its own for what stands behind a comment.
    return tuple(" AND ".join(f"({conjunct}\n)" for conjunct in part or ["TRUE"]) for part in parts)


def _texts(tests: Sequence[Test]) -> list[str]:
    """Return the texts that tests compare with."""
    constants: list[str] = []
    for test in tests:
        if isinstance(test, TextTest):
            constants += [part for part in test.parts if isinstance(part, str)]
        elif isinstance(test, Compare | OneOf) and test.operand.type.family == "string":
            constants += constants_of(test)
    return constants


def _needs(test: ValueTest | FunctionTest | Raise) -> tuple[TextTest, ...]:
    """Return the necessary texts of a test, in lower case where that is as good.

    A text that holds ASCII characters holds them in lower case when it is lowered; so they are
    found in the walk over the lowered text that others need anyway. A wildcard for one character
    stays with the text as it is: ``İ`` becomes two.
    """
    if not isinstance(test, ValueTest):
        return ()
    return tuple(
        replace(
            need,
            parts=tuple(part.lower() if isinstance(part, str) else part for part in need.parts),
            folded=True,
        )
        if all(
            part == Wild(ANY) or (isinstance(part, str) and part.isascii()) for part in need.parts
        )
        else need
        for need in test.needs
    )


def _as_operand(test: Test) -> Test:
    if not isinstance(test, NativeTest):
        return test
    return Compare(Operand(test.sql, BOOLEAN, test.columns), "=", value=True)


_ASKED: dict[type, float] = {ValueTest: 1e3, FunctionTest: 1e6, Raise: 1e9}
"""Cost of asking Python, in steps."""

_GUARDED = 1e8
"""Cost of a guarded test: it runs after all others."""


def _cost(literals: Literals, externals: Sequence[ExternalTest]) -> Callable[[int], float]:
    """Return the cost of a literal once its construct was looked at, in steps."""
    steps = [
        _GUARDED if external.is_guarded else _ASKED[type(external.test)] for external in externals
    ]
    asked = np.array(steps or [0.0])
    is_external = literals.kinds == EXTERNAL
    costs = np.where(is_external, asked[np.where(is_external, literals.places, 0)], 1.0).tolist()
    return lambda literal: costs[literal]
