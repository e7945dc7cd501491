"""Compiles rules into a program: sorts their tests to what decides them, and numbers all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.gc_pause import collector_paused
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
    LiteralTable,
    jump_code,
    literals_of,
    packed,
    total_cost,
)
from eddyline.rules.compile.patterns import TextConstruct, construct_of
from eddyline.rules.compile.program import MAX_STATED, ExternalTest, Literals, Program
from eddyline.rules.compile.regions import (
    KeySet,
    RegionConstruct,
    RegionTest,
    constants_of,
    key_set,
    region_construct,
    region_key,
)
from eddyline.sql.like import ANY, Wild, is_whole_text
from eddyline.sql.types import BOOLEAN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eddyline.data.arrays import Mask
    from eddyline.query.conditions import Rule, Test
    from eddyline.rules.compile.formula import Formula
    from eddyline.rules.compile.regions import Places


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
            found = self._table.formula(rule.tree)
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
        return found

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
        text_columns = tuple(self._column(each.operand.sql) for each in texts)
        region_columns = tuple(self._column(each.operand.sql) for each in regions)
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
            natives=tuple(each for each in self._table.tests if isinstance(each, NativeTest)),
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
            externals_at=np.cumsum([0, *map(len, asked)]).astype(np.int64),
            rule_externals=np.array([each for asks in asked for each in asks], np.int32),
            conditions=self._conditions,
        )

    def _text_constructs(self) -> tuple[tuple[TextConstruct, ...], dict[TextTest, int]]:
        constructs: list[TextConstruct] = []
        patterns: dict[TextTest, int] = {}
        for (operand, folded), tests in self._text_keys.items():
            first = len(patterns)
            patterns.update({test: first + at for at, test in enumerate(tests)})
            constructs.append(construct_of(operand, tuple(tests), first, folded=folded))
        return tuple(constructs), patterns

    def _region_constructs(self) -> tuple[tuple[RegionConstruct, ...], list[Places | None]]:
        asked: dict[Test, set[int]] = {}
        for test, outcomes in self._table.literals:
            asked.setdefault(self._tests[test], set()).add(outcomes)
        constructs: list[RegionConstruct] = []
        all_places: list[Places | None] = []
        for (operand, folded), tests in self._region_keys.items():
            literals = [(test, each) for test in tests for each in asked.get(test, ())]
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
        needs = tuple(patterns[each] for each in _needs(test) if each in patterns)
        known = needs if len(needs) == len(test.needs) else ()
        return ExternalTest(test, (self._column(test.operand.sql),), known)

    def _literals(
        self,
        regions: tuple[RegionConstruct, ...],
        places: list[Places | None],
        patterns: dict[TextTest, int],
        externals: tuple[ExternalTest, ...],
    ) -> tuple[Literals, tuple[KeySet | None, ...]]:
        region_places = {key: at for at, key in enumerate(self._region_keys)}
        external_places = {each.test: at for at, each in enumerate(externals)}
        rows: list[tuple[int, int, int, int]] = []
        held: list[tuple[tuple[int, int], ...]] = []
        key_sets: list[KeySet | None] = []
        for test_id, outcomes in self._table.literals:
            test = self._tests[test_id]
            key = self._region_key(test)
            intervals: tuple[tuple[int, int], ...] = ()
            keys = None
            if key is not None:
                at = region_places[key]
                keys = key_set(test, outcomes, places[at])  # type: ignore[arg-type]
                intervals = regions[at].regions_of(keys)
                rows.append((REGION, at, outcomes, -1))
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
        flat = np.array([each for intervals in held for each in intervals], np.int32).reshape(-1, 2)
        literals = Literals(
            kinds=table[:, 0].astype(np.int8),
            places=table[:, 1].astype(np.int32),
            outcomes=table[:, 2].astype(np.int8),
            columns=table[:, 3].astype(np.int32),
            starts=np.concatenate([[0], np.cumsum([len(each) for each in held])]).astype(np.int64),
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
        text_of = [at for at, each in enumerate(texts) for _ in each.patterns]
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
    return tuple(" AND ".join(f"({each}\n)" for each in part or ["TRUE"]) for part in parts)


def _texts(tests: Sequence[Test]) -> list[str]:
    """Return the texts that tests compare with."""
    found: list[str] = []
    for test in tests:
        if isinstance(test, TextTest):
            found += [part for part in test.parts if isinstance(part, str)]
        elif isinstance(test, Compare | OneOf) and test.operand.type.family == "string":
            found += constants_of(test)
    return found


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
            parts=tuple(each.lower() if isinstance(each, str) else each for each in need.parts),
            folded=True,
        )
        if all(
            each == Wild(ANY) or (isinstance(each, str) and each.isascii()) for each in need.parts
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
    steps = [_GUARDED if each.is_guarded else _ASKED[type(each.test)] for each in externals]
    asked = np.array(steps or [0.0])
    is_external = literals.kinds == EXTERNAL
    costs = np.where(is_external, asked[np.where(is_external, literals.places, 0)], 1.0).tolist()
    return lambda literal: costs[literal]
