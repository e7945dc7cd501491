"""From pySigma's correlation rules to ours."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sigma.correlations import (
    CorrelationConditionAND,
    CorrelationConditionNOT,
    SigmaCorrelationRule,
    SigmaExtendedCorrelationCondition,
    SigmaRuleReference,
)
from sigma.exceptions import (
    SigmaCorrelationConditionError,
    SigmaCorrelationRuleError,
    SigmaError,
    SigmaTimespanError,
)

from eddyline.query.correlations import AND, MAX_REFERENCES, NOT, OR, TESTS
from eddyline.query.windows import MAX_SPAN, too_long
from eddyline.registry import unknown
from eddyline.sigma.correlations import SigmaCorrelation

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from sigma.rule import SigmaRule

    Known = Callable[[str], "Referred"]
    """Finds what a reference is to."""

MEDIAN, PERCENTILE = "value_median", "value_percentile"
TEMPORAL, ORDERED = "temporal", "temporal_ordered"

_UUID = re.compile(r"[0-9a-fA-F-]{36}")

MAX_NUMBER = 2**62
"""Numbers of conditions are below this."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A correlation as pySigma reads it, with all comparisons of its condition."""

    name: str
    text: str
    """The YAML document."""
    rule: SigmaCorrelationRule
    tests: tuple[tuple[str, int], ...]

    def named(self, name: str) -> Parsed:
        """Return the correlation under another name."""
        return replace(self, name=name)

    def connect(self, known: Known) -> None:
        """Let pySigma's correlation know its rules, which pipelines may ask for."""
        found = [SigmaRuleReference(each) for each in _references(self.rule)]
        for reference in found:
            reference.rule = known(reference.reference).rule
        self.rule.referenced_rules = found


@dataclass(frozen=True, slots=True)
class Referred:
    """A rule or a correlation that may be referred to."""

    n_file: int
    name: str
    rule: SigmaRule | SigmaCorrelationRule


class References:
    """Rules and correlations by what correlations call them: their ids and names."""

    def __init__(self) -> None:
        self._known: dict[str, list[Referred]] = {}
        self._refused: set[str] = set()

    def add(
        self,
        callings: Iterable[str],
        n_file: int,
        name: str,
        rule: SigmaRule | SigmaCorrelationRule,
    ) -> None:
        """Take in what may be referred to."""
        for each in dict.fromkeys(map(_calling, callings)):
            self._known.setdefault(each, []).append(Referred(n_file, name, rule))

    def refuse(self, callings: Iterable[str]) -> None:
        """Take note of what does not run."""
        self._refused.update(map(_calling, callings))

    def is_refused(self, reference: str) -> bool:
        """Return whether a reference is to what does not run."""
        return _calling(reference) in self._refused

    def of_file(self, n_file: int) -> Known:
        """Return what finds references of a file: in that file, and else in all."""
        return lambda reference: self._found(reference, n_file)

    def _found(self, reference: str, n_file: int) -> Referred:
        known = self._known.get(_calling(reference), [])
        several = [each for each in known if each.n_file == n_file] or known
        if len(several) == 1:
            return several[0]
        if several:
            names = ", ".join(each.name for each in several)
            msg = f"it refers to {reference!r}, and there are several of that name: {names}"
        elif self.is_refused(reference):
            msg = f"it refers to {reference!r}, which does not run"
        else:
            msg = (
                f"it refers to a rule that is not there: {unknown('rule', reference, self._known)}"
            )
        raise SigmaCorrelationRuleError(msg)


def _calling(reference: str) -> str:
    """Return a reference as it is looked up: ids in any case."""
    return reference.lower() if _UUID.fullmatch(reference) else reference


def parse(body: dict[str, Any], name: str, text: str) -> Parsed:
    """Return pySigma's correlation of a document.

    pySigma reads one comparison of a condition; the specification has ranges of two, which are
    read one by one.

    Raises:
        SigmaError: it cannot be read.
    """
    section = body["correlation"]
    if not isinstance(section, dict):
        msg = "'correlation' is a mapping of its type, rules, timespan and condition"
        raise SigmaCorrelationRuleError(msg)
    condition = section.get("condition")
    if not isinstance(condition, dict):
        rule = _rule_of(body)
        default = rule.condition
        if isinstance(default, SigmaExtendedCorrelationCondition):
            return Parsed(name, text, rule, ())
        return Parsed(name, text, rule, ((default.op.name.lower(), default.count),))
    tests = tuple((op, _whole(condition[op])) for op in TESTS if op in condition)
    one = {key: value for key, value in condition.items() if key not in TESTS}
    if tests:
        op, number = tests[0]
        one[op] = number
    rule = _rule_of({**body, "correlation": {**section, "condition": one}})
    return Parsed(name, text, rule, tests)


def _rule_of(body: dict[str, Any]) -> SigmaCorrelationRule:
    """Return pySigma's rule; an odd title, tag or date does not keep it from running."""
    try:
        rule = SigmaCorrelationRule.from_dict(body, collect_errors=True)
    except SigmaError:
        raise
    except Exception:  # noqa: BLE001 - with an error before it, pySigma stumbles
        rule = SigmaCorrelationRule.from_dict(body, collect_errors=False)
    for error in rule.errors:
        if isinstance(error, SigmaCorrelationRuleError):
            raise error
    return rule


def _whole(given: Any) -> int:
    """Return the number of a comparison, which pySigma would round."""
    text = str(given).strip()
    digits = text.removeprefix("-")
    if isinstance(given, bool) or not (digits.isascii() and digits.isdigit()):
        msg = f"{given!r} is not a whole number"
        raise SigmaCorrelationConditionError(msg)
    if int(digits) >= MAX_NUMBER:
        msg = f"{given} is beyond the numbers that can be compared"
        raise SigmaCorrelationConditionError(msg)
    return int(text)


def correlation_of(parsed: Parsed, known: Known, facts: Mapping[str, Any]) -> SigmaCorrelation:
    """Return our correlation, after pipelines.

    Raises:
        SigmaError: it asks for what does not exist.
    """
    rule = parsed.rule
    kind = rule.type.name.lower()
    references = _references(rule)
    _check_references(kind, references)
    tests, program = _condition(parsed, kind, references)
    names = tuple(known(each).name for each in references)
    length = rule.timespan.seconds * 1_000_000
    if length > MAX_SPAN:
        raise SigmaTimespanError(too_long(f"timespan {rule.timespan.spec!r:.60}"))
    group_by = tuple(dict.fromkeys(rule.group_by or ()))
    info: dict[str, str | tuple[str, ...]] = {
        "type": kind,
        "rules": names,
        "group_by": group_by,
        "timespan": str(rule.timespan.spec),
        "condition": _said(parsed),
    }
    return SigmaCorrelation(
        name=parsed.name,
        text=parsed.text,
        info={**facts, **info},
        kind=PERCENTILE if kind == MEDIAN else kind,
        refers_to=names,
        length=length,
        tests=tests,
        program=program,
        percentile=_percentile(kind, rule.condition),
        group_by=group_by,
        fields=_fields(kind, rule.condition),
        aliases={
            each.alias: {known(of.reference).name: str(field) for of, field in each.mapping.items()}
            for each in rule.aliases
        },
        generate=bool(rule.generate),
    )


def standing(
    made: Sequence[SigmaCorrelation], rules: Collection[str]
) -> tuple[tuple[SigmaCorrelation, ...], dict[str, SigmaError]]:
    """Return the correlations that refer to what runs alone, and why others do not run."""
    by_name = {each.name: each for each in made}
    runs, before = set(rules), -1
    while len(runs) > before:
        before = len(runs)
        runs.update(each.name for each in made if runs.issuperset(each.refers_to))
    why: dict[str, SigmaError] = {}
    for each in made:
        if each.name in runs:
            continue
        first = next(name for name in each.refers_to if name not in runs)
        msg = f"it refers to {first!r}, which does not run"
        if each.name in _reached(by_name, each.name):
            msg = f"it refers to itself, by {first!r}"
        why[each.name] = SigmaCorrelationRuleError(msg)
    return tuple(each for each in made if each.name in runs), why


def _reached(by_name: Mapping[str, SigmaCorrelation], name: str) -> set[str]:
    """Return all that a correlation refers to, directly or by others."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        each = by_name.get(waiting.pop())
        new = set() if each is None else set(each.refers_to) - found
        found |= new
        waiting += new
    return found


def _condition(
    parsed: Parsed, kind: str, references: Sequence[str]
) -> tuple[tuple[tuple[str, int], ...], tuple[int, ...]]:
    """Return the comparisons of a condition, or the program of a boolean one."""
    condition = parsed.rule.condition
    if not isinstance(condition, SigmaExtendedCorrelationCondition):
        return parsed.tests, ()
    places = {name: at for at, name in enumerate(references)}
    program = tuple(_program(condition.parsed, places))
    if kind != ORDERED:
        return (), program
    if OR in program or NOT in program:
        msg = (
            "the order of rules under 'or' and 'not' is open; a temporal_ordered correlation joins "
            "its rules by 'and' alone"
        )
        raise SigmaCorrelationConditionError(msg)
    return (("gte", len(references)),), ()


def _references(rule: SigmaCorrelationRule) -> tuple[str, ...]:
    if rule.rules is not None:
        return tuple(str(each.reference) for each in rule.rules)
    condition = rule.condition
    assert isinstance(condition, SigmaExtendedCorrelationCondition)
    return tuple(condition.get_referenced_rules())


def _check_references(kind: str, references: Sequence[str]) -> None:
    """Refuse rules that no event, or too few, can ever be of."""
    if not references:
        msg = "it names no rules"
        raise SigmaCorrelationRuleError(msg)
    if len(references) > MAX_REFERENCES:
        msg = f"it names {len(references)} rules; {MAX_REFERENCES} are supported"
        raise SigmaCorrelationRuleError(msg)
    others = {
        TEMPORAL: lambda at: references[:at],
        ORDERED: lambda at: references[max(0, at - 1) : at],
    }.get(kind)
    if others is None:
        return
    twice = next((each for at, each in enumerate(references) if each in others(at)), None)
    if twice is not None:
        msg = f"it names the rule {twice!r} twice, which one event is enough for; use event_count"
        raise SigmaCorrelationRuleError(msg)


def _percentile(kind: str, condition: Any) -> int:
    if kind == MEDIAN:
        return 50
    if kind != PERCENTILE:
        return 0
    percentile: int | None = condition.percentile
    if percentile is None or not 0 <= percentile <= 100:
        msg = (
            f"value_percentile needs 'percentile' from 0 to 100 in its condition, not {percentile}"
        )
        raise SigmaCorrelationConditionError(msg)
    return percentile


def _fields(kind: str, condition: Any) -> tuple[str, ...]:
    """Return the fields of a condition, of kinds that look at values."""
    if not kind.startswith("value_"):
        return ()
    given = condition.fieldref
    fields = (given,) if isinstance(given, str) else tuple(given)
    if kind != "value_count" and len(fields) > 1:
        msg = f"{kind} is of one field, not of {', '.join(fields)}"
        raise SigmaCorrelationConditionError(msg)
    return fields


def _program(node: Any, places: Mapping[str, int]) -> list[int]:
    """Return a boolean condition in postfix order."""
    if isinstance(node, SigmaRuleReference):
        return [places[node.reference]]
    if isinstance(node, CorrelationConditionNOT):
        return [*_program(node.args[0], places), NOT]
    op = AND if isinstance(node, CorrelationConditionAND) else OR
    parts = [_program(each, places) for each in node.args]
    return [*parts[0], *(code for part in parts[1:] for code in (*part, op))]


def _said(parsed: Parsed) -> str:
    """Return the condition in words."""
    condition = parsed.rule.condition
    if isinstance(condition, SigmaExtendedCorrelationCondition):
        return str(condition.expression)
    return " and ".join(f"{TESTS[op]} {number}" for op, number in parsed.tests)
