"""Rules as SQL text or predicates, before they meet columns.

``bind`` reads them over the columns into the trees of ``conditions``; ``reading`` takes texts
apart.

Timestamp literals become instants once a session has read them. Only Spark knows how Spark reads a
local time that does not exist or exists twice, and what the offset of a zone was long ago. So it
reads the literals of all rules at once (the room ``spark``), and the rules take the instants in.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from eddyline.errors import NotSupportedError, QueryError
from eddyline.query.conditions import (
    And,
    Compare,
    Constant,
    FunctionTest,
    MayRaise,
    NativeTest,
    OneOf,
    Raise,
    Rule,
)
from eddyline.query.predicates import (
    FunctionPredicate,
    MixedPredicate,
    SqlPredicate,
    as_predicate,
)
from eddyline.query.rules.reading import Reading, checked_reads, function_test
from eddyline.query.rules.rule import Rule as DescribedRule
from eddyline.sql.analysis import check_is_row_wise
from eddyline.sql.functions import names_among
from eddyline.sql.literals import Moment
from eddyline.sql.parsing import deep, depth_of, parse_condition
from eddyline.sql.rendering import UnwritableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eddyline.query.conditions import Node, RuleSource
    from eddyline.query.predicates import Predicate

MAX_LEVELS = 100
"""Most levels of a tree of tests; Spark evaluates a deeper rule as it was written."""


@dataclass(frozen=True)
class SqlRule:
    """A rule as boolean SQL over columns, which may call Python predicates."""

    name: str
    """Unique in its set."""
    text: str
    """The condition as its author wrote it."""
    functions: Mapping[str, FunctionPredicate] = field(default_factory=dict)
    """The Python predicates that it may call, by name."""
    info: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Further facts about it."""
    noun: ClassVar[str] = "rule"

    @property
    def meaning(self) -> str:
        """The condition, as it is saved with what was learned."""
        return self.text

    def bind(self, columns: Mapping[str, str], *, ansi: bool) -> Rule:
        """Return the rule over an input.

        Arguments are as for ``RuleSource.bind``.

        Raises:
            QueryError: it cannot be read or does not fit the columns; the message names the rule
                and points at the place.
            NotSupportedError: it needs more than one row, or calls a Python function where the
                rule cannot be taken apart.

        Example:
            >>> SqlRule("big", "n > 5").bind({"n": "int"}, ansi=True).tree.value
            5
        """
        if not self.text.strip():
            msg = f"rule {self.name!r} is empty; write a condition such as \"proto = 'tcp'\""
            raise QueryError(msg, name=self.name)
        bound = _bound_text(SqlPredicate(self.text, self.name), self, columns, ansi=ansi)
        tree = bound.tree
        if isinstance(tree, MayRaise) and isinstance(tree.test, NativeTest) and bound.read:
            # Nothing to share: the rule itself is one column, and its error another.
            tree = replace(bound.read.whole, reason=bound.read.risk)
        return Rule(self.name, tree, self.text, conjuncts=_conjuncts([bound]))


@dataclass(frozen=True)
class PredicateRule:
    """A rule that is a conjunction of predicates, such as a WHERE; true if there is none."""

    name: str
    """Unique in its set."""
    predicates: tuple[Predicate, ...]
    """The conjuncts, as written."""
    functions: Mapping[str, FunctionPredicate] = field(default_factory=dict)
    """The Python predicates that SQL conjuncts may call, by name."""
    info: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Further facts about it."""
    noun: str = "rule"
    """What its author calls it, for errors."""

    @property
    def meaning(self) -> str:
        """The condition, as it is saved with what was learned."""
        return self.text

    @property
    def text(self) -> str:
        """The conjunction as it would stand in SQL."""
        if len(self.predicates) == 1:
            return self.predicates[0].text
        return " AND ".join(f"({predicate.text})" for predicate in self.predicates) or "TRUE"

    def bind(self, columns: Mapping[str, str], *, ansi: bool) -> Rule:
        """Return the rule over an input; see ``SqlRule.bind``."""
        bound = [self._bound(predicate, columns, ansi=ansi) for predicate in self.predicates]
        stays = next((part for part in bound if part.reason), None)
        if stays is None:
            tree = _all_of([part.tree for part in bound])
            return Rule(self.name, tree, self.text, self.noun, _conjuncts(bound))
        calls = next((part for part in bound if part.calls), None)
        if calls is not None:
            msg = (
                f"{called(self)} calls the Python predicate {calls.calls} and has a part "
                f"{stays.text!r} that Spark must evaluate together with the rest ({stays.reason}); "
                f"use forms that never raise, such as try_cast or try_divide"
            )
            raise NotSupportedError(msg, name=self.name)
        natives = [part.read.whole for part in bound if part.read is not None]
        sql = " AND ".join(f"({test.sql}\n)" for test in natives)
        read = dict.fromkeys(column for test in natives for column in test.columns)
        needs = dict.fromkeys(column for test in natives for column in test.needs)
        whole = natives[0]
        if len(natives) > 1:
            whole = NativeTest(sql, tuple(read), "", True, tuple(needs))
        whole = replace(whole, reason=stays.reason)
        return Rule(self.name, whole, self.text, self.noun)

    def _bound(self, predicate: Predicate, columns: Mapping[str, str], *, ansi: bool) -> _BoundPart:
        if isinstance(predicate, SqlPredicate):
            rule = self
            if isinstance(predicate, MixedPredicate):
                rule = replace(self, functions=predicate.functions)
            return _bound_text(predicate, rule, columns, ansi=ansi)
        checked = checked_reads(predicate, called(self), columns, ansi=ansi)
        return _BoundPart(predicate.text, function_test(checked), calls=predicate.name)


def called(rule: SqlRule | PredicateRule) -> str:
    """Return a rule in an error."""
    return f"{rule.noun} {rule.name!r}"


def functions_of(rule: RuleSource) -> dict[str, FunctionPredicate]:
    """Return the Python functions that a rule calls, by their names in the rule."""
    functions: dict[str, FunctionPredicate] = {}
    if isinstance(rule, PredicateRule):
        functions = {
            predicate.label: predicate
            for predicate in rule.predicates
            if isinstance(predicate, FunctionPredicate)
        }
    if isinstance(rule, SqlRule | PredicateRule):
        called = {*names_among([name.lower() for name in rule.functions], [rule.text])}
        functions |= {
            name: function for name, function in rule.functions.items() if name.lower() in called
        }
    return functions


@deep
def check_rule(rule: SqlRule | PredicateRule) -> None:
    """Check that the texts of a rule can be read, as far as that needs no columns.

    Raises:
        QueryError: one cannot; the message names the rule and points at the place.
        NotSupportedError: one needs more than one row.
    """
    what = called(rule)
    texts = [rule.text] if isinstance(rule, SqlRule) else []
    if isinstance(rule, PredicateRule):
        texts = [
            predicate.text for predicate in rule.predicates if isinstance(predicate, SqlPredicate)
        ]
    for text in texts:
        check_is_row_wise(parse_condition(text, what), text, what, rule.functions)


def rule_source(
    name: str,
    condition: str | Predicate | DescribedRule,
    functions: Mapping[str, FunctionPredicate] | None = None,
) -> SqlRule | PredicateRule:
    """Return a rule of what was given: text, or a predicate, or one of these with its facts.

    Raises:
        QueryError: it is none of them; the message names the rule.
    """
    described = condition if isinstance(condition, DescribedRule) else DescribedRule(condition)
    condition, info = described.condition, described.info
    try:
        predicate = as_predicate(condition)
    except QueryError as error:
        msg = f"rule {name!r}: {error}"
        raise QueryError(msg, name=name) from error
    if isinstance(condition, str):
        return SqlRule(name, condition, functions or {}, info)
    return PredicateRule(name, (predicate,), functions or {}, info)


@dataclass(frozen=True, slots=True)
class _BoundPart:
    """One conjunct over the columns of an input."""

    text: str
    tree: Node
    read: Reading | None = None
    """Its tree, if it is SQL."""
    reason: str = ""
    """Reason why the whole rule must stay in Spark."""
    calls: str = ""
    """A Python predicate that it calls."""
    risk: str = ""
    """Reason why Spark may raise, or exhaust stack or time, when it evaluates the text."""


@deep
def _bound_text(
    predicate: SqlPredicate,
    rule: SqlRule | PredicateRule,
    columns: Mapping[str, str],
    *,
    ansi: bool,
) -> _BoundPart:
    read = Reading(predicate.text, called(rule), columns, rule.functions, ansi=ansi)
    reason = _reason(predicate, read)
    if not reason:
        try:
            tree = read.tree()
            if (levels := depth_of(tree, lambda node: node.children)) <= MAX_LEVELS:
                risk = "" if predicate.can_raise is False else read.risk
                return _BoundPart(predicate.text, tree, read, "", read.first_call, risk)
            reason = f"it is nested {levels} levels deep, and at most {MAX_LEVELS} are taken apart"
        except UnwritableError as unknown:
            reason = read.risk or f"{unknown} is not known well enough to be taken apart"
    if read.first_call:
        read.refuse_calls(reason)
    # What its author says never to raise may stand beside others, although not be taken apart.
    is_promised = predicate.can_raise is False and not read.chance
    whole = replace(read.whole, reason=reason)
    return _BoundPart(predicate.text, whole, read, "" if is_promised else reason)


def _reason(predicate: SqlPredicate, read: Reading) -> str:
    """Return the reason why a text must stay whole, and its author's word if there is one."""
    if predicate.deterministic is False:
        return "it was declared not deterministic"
    if predicate.can_raise is True:
        return "it was declared to raise on some rows"
    chance = read.chance if predicate.deterministic is None else ""
    return chance or read.doubt or (read.risk if predicate.can_raise is False else "")


def _all_of(trees: list[Node]) -> Node:
    if not trees:
        return Constant(True)
    return trees[0] if len(trees) == 1 else And(tuple(trees))


def _conjuncts(bound: list[_BoundPart]) -> tuple[str, ...] | None:
    """Return the texts of conjuncts, if Spark may evaluate them in any order; see ``Rule``."""
    is_free = all(
        part.read is not None
        and not part.reason
        and not part.risk
        and not any(isinstance(node, FunctionTest | MayRaise | Raise) for node in part.tree.walk())
        for part in bound
    )
    return tuple(part.text for part in bound) if is_free else None


def moments_of(node: Node) -> Iterator[Moment]:
    """Yield the timestamp literals that a rule tree compares with."""
    for test in node.walk():
        if isinstance(test, Compare | OneOf):
            values = test.values if isinstance(test, OneOf) else (test.value,)
            yield from (value for value in values if isinstance(value, Moment))


def with_moments(node: Node, micros: Mapping[Moment, int]) -> Node:
    """Return a rule tree in which every timestamp literal is a number.

    Args:
        node: the tree.
        micros: microseconds since 1970 in UTC of each moment.

    Example:
        >>> from eddyline.query.conditions import Operand
        >>> from eddyline.sql.types import TIMESTAMP
        >>> late = Moment("1970-01-01 00:00:01")
        >>> with_moments(Compare(Operand("`t`", TIMESTAMP), ">", late), {late: 1_000_000}).value
        1000000
    """
    if isinstance(node, Compare) and isinstance(node.value, Moment):
        return replace(node, value=micros[node.value])
    if isinstance(node, OneOf) and any(isinstance(value, Moment) for value in node.values):
        instants = (micros[value] if isinstance(value, Moment) else value for value in node.values)
        return replace(node, values=tuple(dict.fromkeys(instants)))
    return node.map(lambda child: with_moments(child, micros))
