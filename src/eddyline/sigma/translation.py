"""From pySigma's objects to conditions of our own.

pySigma has read the values and applied their modifiers by then: ``contains`` has become wildcards,
``base64offset`` and ``windash`` alternatives.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from sigma import conditions as parsed
from sigma import types
from sigma.exceptions import SigmaError
from sigma.rule import SigmaDetection

from eddyline.errors import NotSupportedError, QueryError
from eddyline.query.rules.sources import MAX_LEVELS
from eddyline.sigma import rule as ours
from eddyline.sql import parsing
from eddyline.sql.literals import EXACT_DOUBLE
from eddyline.sql.regexes import ANY, ONE, Wild, compiled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sigma.conditions import SigmaCondition
    from sigma.rule import SigmaRule as ParsedRule


_WILD = {
    types.SpecialChars.WILDCARD_MULTI: Wild(ANY),
    types.SpecialChars.WILDCARD_SINGLE: Wild(ONE),
}
_FLAGS = {
    types.SigmaRegularExpressionFlag.IGNORECASE: re.IGNORECASE,
    types.SigmaRegularExpressionFlag.MULTILINE: re.MULTILINE,
    types.SigmaRegularExpressionFlag.DOTALL: re.DOTALL,
}
_OPERATORS = {"LT": "<", "LTE": "<=", "GT": ">", "GTE": ">=", "NEQ": "!="}

_CONDITION = ("detection", "condition")
"""Path of the condition of a rule."""

_WORDS = ("and", "or", "not", "of", "all", "any", "them")
"""Words of conditions."""

FREE_TESTS = 100_000
"""Tests that every condition may have; a detection counts each time the condition names it."""

TESTS_RATIO = 10
"""Further tests that a condition may have, per value of its detections."""

_PARSER_PLACE = re.compile(r",? *\(line:\d+, col:\d+\)")
"""The parser's line is one of the condition, and not of the file."""

_NESTING = re.compile(r"[()]|[\w*-]+")
"""Parentheses and words of a condition."""

_SELECTOR = re.compile(r"\b(?:1|any|all)\s+of\s+([\w*-]+)")


def condition_of(rule: ParsedRule) -> ours.Condition:
    """Return the condition of a rule; of several, one has to hold.

    Raises:
        QueryError: the condition cannot be understood, or asks for what is not supported.
    """
    parts = []
    sizes = {str(name): _size(detection) for name, detection in rule.detection.detections.items()}
    for condition in rule.detection.parsed_condition:
        _check_names(condition.condition, rule.detection.detections)
        _check_size(condition.condition, sizes)
        _check_levels(condition.condition)
        try:
            part = _parsed(condition)
        except SigmaError as error:
            reason = _PARSER_PLACE.sub("", str(error)) + _hint(condition.condition, rule)
            msg = f"condition {condition.condition!r}: {reason}"
            raise QueryError(msg, part=_CONDITION) from error
        if part is not None:
            _check_depth(parsing.depth_of(part, ours.parts_of), MAX_LEVELS)
            parts.append(part)
    if not parts:
        msg = "nothing is left of its condition"
        raise QueryError(msg, part=_CONDITION)
    return _joined(ours.AnyOf, parts)


@parsing.deep
def _parsed(condition: SigmaCondition) -> ours.Condition | None:
    return _translated(condition.parse())


def _check_levels(condition: str) -> None:
    """Refuse a condition that is nested too deeply; each ``not`` of several is a level."""
    n_open = nots = deepest = 0
    for token in _NESTING.findall(condition):
        nots = nots + 1 if token == "not" else 0
        n_open += (token == "(") - (token == ")")
        deepest = max(deepest, n_open + nots)
    _check_depth(deepest, parsing.MAX_LEVELS)


def _check_depth(levels: int, most: int) -> None:
    if levels > most:
        msg = (
            f"the condition is nested {levels} levels deep, and at most {most} can be read; "
            f"write it flatter, or split it"
        )
        raise QueryError(msg, part=_CONDITION, levels=levels, most=most)


def _size(detection: SigmaDetection) -> int:
    """Return how many values a detection has."""
    parts = detection.detection_items
    return sum(
        _size(part) if isinstance(part, SigmaDetection) else len(part.value) for part in parts
    )


def _check_size(condition: str, sizes: Mapping[str, int]) -> None:
    """Refuse a condition that names detections so often that it explodes."""
    most = FREE_TESTS + TESTS_RATIO * sum(sizes.values())
    counts = Counter(re.findall(r"[\w*-]+", condition))
    n_tests = 0
    for name, n_times in counts.items():
        asked = "*" if name == "them" else name
        if "*" in asked:
            named = re.compile(re.escape(asked).replace(r"\*", ".*"))
            size = sum(size for other, size in sizes.items() if named.fullmatch(other))
        else:
            size = sizes.get(name, 0)
        n_tests += size * n_times
    if n_tests > most:
        msg = (
            f"the condition expands to {n_tests:,} tests, more than {most:,}; name "
            "each detection less often"
        )
        raise QueryError(msg, part=_CONDITION)


def _hint(condition: str, rule: ParsedRule) -> str:
    """Return advice about operators that are read as names, if there are any."""
    words = set(re.findall(r"[\w*-]+", condition)) - set(map(str, rule.detection.detections))
    shouted = sorted(words & {word.upper() for word in _WORDS})
    if not shouted:
        return ""
    listed = ", ".join(f"{word.lower()!r}" for word in shouted)
    return f"; operators are written in lower case: {listed}"


def _check_names(condition: Any, detections: dict[str, Any]) -> None:
    """Refuse what some versions of pySigma read as something else without a word."""
    if not isinstance(condition, str):
        msg = f"a condition is a text, not {condition!r}"
        raise QueryError(msg, part=_CONDITION)
    for pattern in _SELECTOR.findall(condition):
        asked = re.compile(".*" if pattern == "them" else pattern.replace("*", ".*"))
        names = [name for name in detections if pattern[0] == "_" or str(name)[:1] != "_"]
        if not any(asked.fullmatch(str(name)) for name in names):
            msg = f"condition {condition!r}: no detection is called {pattern!r}"
            raise QueryError(msg, part=_CONDITION)
    for name in re.findall(r"(?<![\w*-])not[\w-]+", condition):
        if name in detections and not _reads_whole(name):
            msg = (
                f"condition {condition!r}: this version of pySigma reads {name!r} as"
                f" 'not {name[3:]}'; rename the detection, or install pySigma 2"
            )
            raise QueryError(msg, part=_CONDITION)


def _reads_whole(name: str) -> bool:
    """Return whether pySigma's parser keeps a name in one piece."""
    tree = parsed.condition.parse_string(name, parse_all=True)[0]
    return isinstance(tree, parsed.ConditionIdentifier)


def _translated(node: Any) -> ours.Condition | None:
    """Return a condition, or None if a pipeline has taken all of it away."""
    match node:
        case None:
            return None
        case parsed.ConditionNOT():
            part = _translated(node.args[0]) if node.args else None
            if isinstance(part, ours.Negated):
                return part.part
            return None if part is None else ours.Negated(part)
        case parsed.ConditionAND() | parsed.ConditionOR():
            parts = [_translated(argument) for argument in node.args]
            kept = [part for part in parts if part is not None]
            kind = ours.AllOf if isinstance(node, parsed.ConditionAND) else ours.AnyOf
            return _joined(kind, kept) if kept else None
        case parsed.ConditionFieldEqualsValueExpression():
            return _leaf(node.field, node.value)
        case parsed.ConditionValueExpression():
            return _leaf(None, node.value)
    msg = f"{type(node).__name__} is not supported"
    raise NotSupportedError(msg)


def _joined(kind: type[ours.AllOf | ours.AnyOf], parts: list[ours.Condition]) -> ours.Condition:
    return parts[0] if len(parts) == 1 else kind(tuple(parts))


def _leaf(field: str | None, value: Any) -> ours.Condition:  # noqa: C901, PLR0911 - a case, a return
    match value:
        case types.SigmaExpansion():
            return _joined(ours.AnyOf, [_leaf(field, alternative) for alternative in value.values])
        case types.SigmaString():
            return ours.TextIs(
                field, _parts(field, value), isinstance(value, types.SigmaCasedString)
            )
        case types.SigmaTimestampPart():
            return ours.TimePart(
                _named(field, "a part of a time"),
                value.timestamp_part.name.lower(),
                int(value.number),
            )
        case types.SigmaNumber():
            return ours.NumberIs(field, "=", _exact(field, value.number))
        case types.SigmaCompareExpression():
            op = _OPERATORS[value.op.name]
            return ours.NumberIs(
                _named(field, "a comparison"), op, _exact(field, value.number.number)
            )
        case types.SigmaBool():
            return ours.BooleanIs(field, value.boolean)
        case types.SigmaRegularExpression():
            return _regex(field, value)
        case types.SigmaCIDRExpression():
            return ours.InNetwork(field, str(value.network))
        case types.SigmaNull():
            return ours.IsEmpty(_named(field, "null"))
        case types.SigmaExists():
            return ours.Exists(_named(field, "exists"), value.exists)
        case types.SigmaFieldReference():
            name = _named(field, "fieldref")
            return ours.SameAs(name, value.field, value.starts_with, value.ends_with)
    msg = f"{_place(field)}: {type(value).__name__} is not supported"
    raise NotSupportedError(msg, field=field)


def _parts(field: str | None, value: types.SigmaString) -> tuple[str | Wild, ...]:
    """Return literals and wildcards; several wildcards for anything in a row are one."""
    parts: list[str | Wild] = []
    for piece in value.s:
        if isinstance(piece, types.Placeholder):
            msg = (
                f"{_place(field)}: nothing expands the placeholder %{piece.name}%;"
                " give a pipeline that does"
            )
            raise NotSupportedError(msg, field=field)
        if isinstance(piece, str):
            if piece and parts and isinstance(parts[-1], str):
                parts[-1] += piece
            elif piece:
                parts.append(piece)
        elif parts[-1:] != [Wild(ANY)] or _WILD[piece] != Wild(ANY):
            parts.append(_WILD[piece])
    return tuple(parts)


def _regex(field: str | None, value: types.SigmaRegularExpression) -> ours.Matches:
    if not isinstance(value.regexp, types.SigmaString):
        read = "null" if value.regexp is None else repr(value.regexp)
        msg = f"{_place(field)}: YAML reads the pattern of 're' as {read}; write it in quotes"
        raise QueryError(msg, field=field)
    if value.contains_placeholder():
        msg = f"{_place(field)}: nothing expands the placeholder in {str(value.regexp)!r}"
        raise NotSupportedError(msg, field=field)
    flags = 0
    for flag in value.flags:
        flags |= _FLAGS[flag]
    pattern = str(value.regexp)
    try:
        compiled(pattern, flags)
    except (re.error, OverflowError, RecursionError) as error:
        msg = f"{_place(field)}: {pattern!r} is not a regular expression: {error}"
        raise QueryError(msg, field=field) from error
    return ours.Matches(field, pattern, int(flags))


def _exact(field: str | None, number: int | float) -> int | float:
    """Return a number if it is the rule's own: pySigma rounds long integers to floats."""
    if isinstance(number, float) and abs(number) >= EXACT_DOUBLE:  # it was an integer
        msg = f"{_place(field)}: pySigma rounds so long a number; write it in quotes"
        raise NotSupportedError(msg, field=field)
    return number


def _named(field: str | None, what: str) -> str:
    if field is None:
        msg = f"{what} needs a field"
        raise QueryError(msg, field=field)
    return field


def _place(field: str | None) -> str:
    return "a keyword" if field is None else f"field {field!r}"
