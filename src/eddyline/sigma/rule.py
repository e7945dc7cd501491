"""Sigma rules and correlations, read once for all inputs.

They bind to each input that they meet. The condition of a rule is made of small values that know no
columns. A leaf tests one field, or (``field`` is None) every text of the event: a keyword. Each
class writes its name into the cache, so what is read back is of the same class.

Bound, a condition is a rule tree over the columns of events. What a test means depends on the type
of its column: a number in a rule and a text in the events (or the reverse) still meet. Nothing here
raises on a row: casts are those that never fail.
"""

from __future__ import annotations

import re
from collections.abc import Mapping  # noqa: TC003 - the cache decodes by these types
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from eddyline.errors import OptionError, QueryError
from eddyline.query.conditions import (
    TRUE,
    And,
    Compare,
    Constant,
    Is,
    IsNull,
    NativeTest,
    Not,
    Or,
    Rule,
    SkippedRule,
    TextTest,
    ValueTest,
    necessary_tests,
)
from eddyline.query.correlations import Correlation, Reference
from eddyline.sigma.fields import Columns, LogSource, likely_columns, restriction
from eddyline.sql.parsing import deep
from eddyline.sql.regexes import ANY, Wild

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eddyline.query.conditions import Node
    from eddyline.query.correlations import CorrelationSource
    from eddyline.sigma.fields import Found
    from eddyline.sql.literals import Scalar
    from eddyline.sql.types import SqlType


@lru_cache(maxsize=8)
def _columns(columns: tuple[tuple[str, str], ...]) -> Columns:
    return Columns(dict(columns))


@dataclass(frozen=True, slots=True)
class Reading:
    """The reading of rules whose events have less than the rules expect."""

    restrict: str | bool = "auto"
    """Whether a rule meets only events of its log source: ``auto`` (as far as the events carry
    a channel and an event id), True (they have to carry them) or False."""
    missing: str = "null"
    """The value of a test whose field an event lacks: ``null`` (unknown) or ``false``."""

    def __post_init__(self) -> None:
        if self.restrict not in ("auto", True, False):
            msg = f"restrict is 'auto', True or False, not {self.restrict!r}"
            raise OptionError(msg, restrict=self.restrict)
        if self.missing not in ("null", "false"):
            msg = f"missing is 'null' or 'false', not {self.missing!r}"
            raise OptionError(msg, missing=self.missing)


@dataclass(frozen=True, slots=True)
class SkippedSigmaRule(SkippedRule):
    """A Sigma rule that cannot be read, and why."""

    title: str = ""
    """Empty if it has none that can be read."""
    path: str = ""
    """Of its file; empty for a text."""


@dataclass(frozen=True, slots=True)
class SigmaRule:
    """A Sigma rule (a ``RuleSource``): small, picklable, without pySigma's objects."""

    name: str
    """Its id; if it has none, its title or file name as a word."""
    text: str
    """The YAML document."""
    info: Mapping[str, str | tuple[str, ...] | None]
    """``title level status tags author description falsepositives references date logsource
    events fields path``; None or empty where the rule does not say."""
    condition: Condition
    """The events that it is true for."""
    log_source: LogSource
    """The events it is for."""
    reading: Reading = field(default=Reading())
    """The reading of it."""

    @property
    def meaning(self) -> str:
        """What it means: not the text, in which titles and levels stand, too."""
        return repr((self.condition, self.log_source, self.reading))

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, SigmaRule):
            return self is other
        # Not the conditions themselves: 1 and 1.0 are equal numbers, and other texts.
        return (self.name, self.meaning) == (other.name, other.meaning)

    def __hash__(self) -> int:
        return hash(self.name)

    def named(self, name: str) -> SigmaRule:
        """Return the rule under another name."""
        return replace(self, name=name)

    def read_as(self, reading: Reading) -> SigmaRule:
        """Return the rule, understood in another way."""
        return self if reading == self.reading else replace(self, reading=reading)

    def lacking(self, columns: Mapping[str, str]) -> tuple[str, ...]:
        """Return the fields that events with these columns lack."""
        event_columns = _columns(tuple(columns.items()))
        return tuple(name for name in fields_of(self.condition) if event_columns.find(name) is None)

    def likely_columns(self, fields: Iterable[str], columns: Mapping[str, str]) -> dict[str, str]:
        """Return the likely columns of fields that events lack, by field."""
        return likely_columns(fields, columns)

    @deep
    def bind(self, columns: Mapping[str, str], *, ansi: bool) -> Rule:  # noqa: ARG002 - a protocol
        """Return the rule over an input; it never raises on a row, in ANSI mode or not.

        Raises:
            QueryError: a field is of a type that cannot be tested, or the log source is demanded
                and the events do not tell it.
        """
        event_columns = _columns(tuple(columns.items()))
        try:
            tree = Binder(event_columns, self.reading.missing).node(self.condition)
            return Rule(self.name, self._restricted(tree, event_columns), self.text)
        except QueryError as error:
            msg = f"Sigma rule {self.name} ({self.info['path'] or 'text'}): {error.message}"
            raise type(error)(msg, rule=self.name) from error

    def _restricted(self, tree: Node, columns: Columns) -> Node:
        wanted = self.reading.restrict
        if wanted is False:
            return tree
        source = restriction(self.log_source, columns, demanded=wanted is True)
        return tree if source is None else And((source, tree))


@dataclass(frozen=True, slots=True)
class SigmaRules:
    """Rules that were read, and those that do not run."""

    sources: tuple[SigmaRule, ...]
    """The rules, in the order of their files."""
    skipped: tuple[SkippedSigmaRule, ...]
    """Those that do not run, and why."""
    correlations: tuple[SigmaCorrelation, ...] = ()
    """Those over several events, in the order of their files."""


_NUMBER = re.compile(r"[+-]?\d{1,30}(\.\d{1,30})?", re.ASCII)
_EXACT = "DECIMAL(38,18)"
"""Type of texts that are compared with numbers: it holds every 64-bit integer exactly."""

_PARTS = {
    "minute": "minute",
    "hour": "hour",
    "day": "dayofmonth",
    "week": "weekofyear",
    "month": "month",
    "year": "year",
}


class Binder:
    """Makes trees over the columns of one input.

    A test of a field that an event does not have is ``null`` or ``false``, as ``missing`` says.
    """

    def __init__(self, columns: Columns, missing: str) -> None:
        self._columns = columns
        self._two_valued = missing == "false"

    def node(self, condition: Condition) -> Node:
        """Return the tree of a condition; the types of fields have to fit their tests."""
        match condition:
            case Negated(part):
                return Not(self.node(part))
            case AllOf(parts):
                return And(tuple(self.node(part) for part in parts))
            case AnyOf(parts):
                return Or(tuple(self.node(part) for part in parts))
        tested = self._leaf(condition)
        if not self._two_valued:
            return tested
        if isinstance(tested, Constant):
            return Constant(bool(tested.value))
        return Is(tested, TRUE)

    def _leaf(self, leaf: Leaf) -> Node:  # noqa: PLR0911 - a case, a return
        if leaf.field is None:
            return self._keyword(leaf)
        target = self._columns.find(leaf.field)
        match leaf:
            case IsEmpty():
                return Constant(True) if target is None else _is_null(target)
            case Exists(_, value):
                if target is None:
                    return Constant(not value)
                return Not(_is_null(target)) if value else _is_null(target)
        if target is None:
            return Constant(None)
        if target.is_nested:
            msg = (
                f"field {leaf.field!r} is of type {target.type_text};"
                " texts, numbers, booleans and times can be tested"
            )
            raise QueryError(msg)
        if isinstance(leaf, SameAs):
            return self._same(target, leaf)
        return test_of(target, leaf)

    def _same(self, target: Found, leaf: SameAs) -> Node:
        other = self._columns.find(leaf.other)
        if other is None:
            return Constant(None)
        if other.is_nested:
            msg = f"field {leaf.other!r} is of type {other.type_text}; it cannot be compared"
            raise QueryError(msg)
        used = tuple(dict.fromkeys((target.column, other.column)))
        if target.type.is_numeric and other.type.is_numeric and not (leaf.starts or leaf.ends):
            return NativeTest(f"{target.sql} = {other.sql}", used)
        texts = f"lower({target.as_text.sql})", f"lower({other.as_text.sql})"
        name = {(True, True): "contains", (True, False): "startswith", (False, True): "endswith"}
        function = name.get((leaf.starts, leaf.ends))
        return NativeTest(
            f"{function}({', '.join(texts)})" if function else " = ".join(texts), used
        )

    def _keyword(self, leaf: Leaf) -> Node:
        """Return whether any text of the event has it; never unknown."""
        match leaf:
            case TextIs(_, parts, cased):
                anywhere = TextIs(None, _anywhere(parts), cased)
                tests = [test_of(target, anywhere) for target in self._columns.texts()]
            case NumberIs(_, _, number):
                anywhere = TextIs(None, _anywhere((str(number),)))
                tests = [test_of(target, anywhere) for target in self._columns.texts()]
                tests += [test_of(target, leaf) for target in self._columns.numbers()]
            case BooleanIs(_, value):
                anywhere = TextIs(None, _anywhere((str(value),)))
                tests = [test_of(target, anywhere) for target in self._columns.texts()]
            case Matches() | InNetwork():
                tests = [test_of(target, leaf) for target in self._columns.texts()]
            case _:
                raise AssertionError(leaf)
        return Is(Or(tuple(tests)), TRUE) if tests else Constant(False)


def _anywhere(parts: tuple[str | Wild, ...]) -> tuple[str | Wild, ...]:
    any_text = Wild(ANY)
    before = () if parts[:1] == (any_text,) else (any_text,)
    after = () if parts[-1:] == (any_text,) else (any_text,)
    return (*before, *parts, *after) if parts else before


def test_of(target: Found, leaf: Leaf) -> Node:  # noqa: PLR0911 - a case, a return
    """Return the test of one value (a text, number, boolean or time)."""
    match leaf:
        case TextIs(_, parts, cased):
            return _text(target, parts, cased)
        case NumberIs(_, op, number):
            return _number(target, op, number)
        case BooleanIs(_, value):
            if target.type.family == "boolean":
                return Compare(target.operand, "=", value)
            if target.type.is_numeric:
                return _number(target, "=", int(value))
            return _text(target, (str(value),), cased=False)
        case Matches(_, pattern, flags):
            # Even one character: without any, every event would be asked.
            needs = necessary_tests(target.as_text, pattern, flags, min_length=1)
            return ValueTest(target.as_text, "regex", pattern, flags, needs)
        case InNetwork(_, network):
            return ValueTest(target.as_text, "cidr", network)
        case TimePart(_, part, number):
            return _time_part(target, part, number)
    raise AssertionError(leaf)


test_of.__test__ = False  # type: ignore[attr-defined]  # not a test, whatever pytest thinks


def _is_null(target: Found) -> Node:
    if target.is_nested:
        return NativeTest(f"{target.sql} IS NULL", (target.column,))
    return IsNull(target.operand)


def _text(target: Found, parts: tuple[str | Wild, ...], cased: bool) -> Node:
    plain = parts[0] if len(parts) == 1 and isinstance(parts[0], str) else None
    if plain is not None and target.type.is_numeric and _NUMBER.fullmatch(plain):
        return Compare(target.operand, "=", _constant(Decimal(plain), target.type))
    if plain is not None and target.type.family == "boolean" and plain.lower() in ("true", "false"):
        return Compare(target.operand, "=", plain.lower() == "true")
    if not cased:
        parts = tuple(part.lower() if isinstance(part, str) else part for part in parts)
    return TextTest(target.as_text, parts, not cased)


def _number(target: Found, op: str, number: int | float) -> Node:
    if op == "!=":
        return Not(_number(target, "=", number))
    if target.type.is_numeric:
        return Compare(target.operand, op, _constant(Decimal(str(number)), target.type))
    if op == "=":
        return _text(target, (str(number),), cased=False)
    text = target.as_text
    value = f"try_cast({text.sql} AS {_EXACT})"
    return NativeTest(f"{value} {op} {_literal(number)}", text.columns)


def _constant(number: Decimal, column: SqlType) -> Scalar:
    if column.family == "float":
        return float(number)
    return int(number) if number == number.to_integral_value() else number


def _literal(number: int | float) -> str:
    """Return a number as SQL: exact where a decimal of Spark can hold it.

    >>> _literal(7), _literal(-0.5), _literal(1e300)
    ('7BD', '-0.5BD', '1e+300D')
    """
    exact = format(Decimal(str(number)), "f")
    return f"{exact}BD" if len(exact.strip("-").replace(".", "")) <= 38 else f"{number!r}D"


def _time_part(target: Found, part: str, number: int) -> Node:
    family = target.type.family
    if target.type.is_numeric or family in ("boolean", "binary"):
        msg = f"{part!r} is a part of a time; {target.sql} is of type {target.type_text}"
        raise QueryError(msg)
    sql = f"try_cast({target.sql} AS TIMESTAMP)" if family == "string" else target.sql
    return NativeTest(f"{_PARTS[part]}({sql}) = {number}", (target.column,))


@dataclass(frozen=True, slots=True)
class SigmaCorrelation:
    """A Sigma correlation (a ``CorrelationSource``), small and without pySigma's objects."""

    name: str
    """Its id; if it has none, its title or file name as a word."""
    text: str
    """The YAML document."""
    info: Mapping[str, str | tuple[str, ...] | None]
    """``title level status tags author description falsepositives references date type rules
    group_by timespan condition path``; None or empty where it does not say."""
    kind: str
    """One of ``query.correlations.KINDS``."""
    refers_to: tuple[str, ...]
    """The names of rules and correlations, in the order in which it lists them."""
    length: int
    """The timespan (µs)."""
    tests: tuple[tuple[str, int], ...]
    program: tuple[int, ...]
    """See ``query.correlations.Correlation``."""
    percentile: int
    group_by: tuple[str, ...]
    """Fields or aliases."""
    fields: tuple[str, ...]
    """Fields that are counted or summed up."""
    aliases: Mapping[str, Mapping[str, str]]
    """Of each alias, the field by the name of the rule."""
    generate: bool

    def named(self, name: str) -> SigmaCorrelation:
        """Return the correlation under another name."""
        return replace(self, name=name)

    def bind(
        self, columns: Mapping[str, str], others: Mapping[str, CorrelationSource]
    ) -> Correlation:
        """Return the correlation over an input.

        Raises:
            QueryError: events lack a field, or it is of a type that has no texts.
        """
        event_columns = Columns(columns)

        def values(rule: str, names: Sequence[str], what: str) -> tuple[str | int, ...]:
            inner = others.get(rule)
            return tuple(self._value(name, what, rule, event_columns, inner) for name in names)

        references = tuple(
            Reference(
                rule,
                values(rule, self.group_by, "group-by"),
                values(rule, self.fields, "condition"),
            )
            for rule in self.refers_to
        )
        title, level = self.info.get("title"), self.info.get("level")
        return Correlation(
            name=self.name,
            kind=self.kind,
            references=references,
            length=self.length,
            tests=self.tests,
            program=self.program,
            percentile=self.percentile,
            groups=self.group_by,
            fields=self.fields,
            title=str(title) if title else None,
            level=str(level) if level else None,
            generate=self.generate,
        )

    def _value(
        self, name: str, what: str, rule: str, columns: Columns, inner: CorrelationSource | None
    ) -> str | int:
        """Return where the value of a name is, in the matches of a rule or inner correlation."""
        field = self.aliases.get(name, {}).get(rule, name)
        if isinstance(inner, SigmaCorrelation) and field in inner.group_by:
            return inner.group_by.index(field)
        target = columns.find(field)
        shown = repr(field) if field == name else f"{field!r} (alias {name!r})"
        path = self.info["path"] or "text"
        where = f"Sigma correlation {self.name} ({path}): {what} field {shown}"
        if target is None:
            msg = f"{where}, of events of rule {rule}, is none of the events' columns"
            raise QueryError(msg, correlation=self.name, field=field)
        if target.is_nested:
            msg = f"{where} is of type {target.type_text}; texts, numbers and times can be compared"
            raise QueryError(msg, correlation=self.name, field=field)
        return target.as_text.sql


class TextIs(Struct, frozen=True, tag=True):
    """A text with wildcards."""

    field: str | None
    parts: tuple[str | Wild, ...]
    """Literals as written and wildcards; none: the empty text."""
    cased: bool = False
    """Whether case matters."""


class NumberIs(Struct, frozen=True, tag=True):
    """A comparison with a number."""

    field: str | None
    op: str
    """One of ``= != < <= > >=``."""
    number: int | float


class BooleanIs(Struct, frozen=True, tag=True):
    """True or false."""

    field: str | None
    value: bool


class IsEmpty(Struct, frozen=True, tag=True):
    """``field: null``: the event does not have the field."""

    field: str


class Exists(Struct, frozen=True, tag=True):
    """``field|exists``."""

    field: str
    value: bool


class Matches(Struct, frozen=True, tag=True):
    """A regular expression that occurs in the text, as Python's ``re.search`` finds it."""

    field: str | None
    pattern: str
    flags: int


class InNetwork(Struct, frozen=True, tag=True):
    """An IP address within a network (CIDR)."""

    field: str | None
    network: str


class SameAs(Struct, frozen=True, tag=True):
    """A comparison with another field."""

    field: str
    other: str
    starts: bool = False
    """Whether the text starts with the other (with ``ends``: contains it)."""
    ends: bool = False
    """Whether the text ends with the other."""


class TimePart(Struct, frozen=True, tag=True):
    """A part of a timestamp, in the time zone of the session."""

    field: str
    part: str
    """One of ``minute hour day week month year``."""
    number: int


class Negated(Struct, frozen=True, tag=True):
    """Not the part."""

    part: Condition


class AllOf(Struct, frozen=True, tag=True):
    """Every one of the parts."""

    parts: tuple[Condition, ...]


class AnyOf(Struct, frozen=True, tag=True):
    """At least one of the parts."""

    parts: tuple[Condition, ...]


Leaf = TextIs | NumberIs | BooleanIs | IsEmpty | Exists | Matches | InNetwork | SameAs | TimePart
Condition = Leaf | Negated | AllOf | AnyOf


def parts_of(condition: Condition) -> tuple[Condition, ...]:
    """Return the conditions directly inside one."""
    match condition:
        case Negated(part):
            return (part,)
        case AllOf(parts) | AnyOf(parts):
            return parts
    return ()


def leaves(condition: Condition) -> list[Leaf]:
    """Return the leaves, from left to right."""
    result: list[Leaf] = []
    waiting = [condition]
    while waiting:
        condition = waiting.pop()
        if isinstance(condition, Negated | AllOf | AnyOf):
            waiting.extend(reversed(parts_of(condition)))
        else:
            result.append(condition)
    return result


def fields_of(condition: Condition) -> tuple[str, ...]:
    """Return the fields that are asked for, each once, in the order of the rule."""
    names: dict[str, None] = {}
    for leaf in leaves(condition):
        if leaf.field is not None:
            names[leaf.field] = None
        if isinstance(leaf, SameAs):
            names[leaf.other] = None
    return tuple(names)
