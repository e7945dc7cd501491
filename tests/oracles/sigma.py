"""The slow oracle of Sigma rules: pySigma's own condition tree, one event, plain Python.

It shares nothing with the room that reads the rules: it walks the objects that pySigma makes and
compares values as Python has them. Nothing here is fast and nothing outside of tests may use it.
"""

from __future__ import annotations

import re
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from sigma import conditions as parsed
from sigma import types

from tests.oracles.conjunctions import kleene_and, kleene_not, kleene_or

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sigma.rule import SigmaRule

    Event = Mapping[str, Any]


def truth(rule: SigmaRule, event: Event, missing: str = "null") -> bool | None:
    """Return whether a rule is true for an event; None is unknown. Log sources do not count.

    Args:
        rule: as pySigma reads it.
        event: the fields that the event has, and their values; None is no value.
        missing: what a test is of a field without a value: ``null`` (unknown) or ``false``.

    Example:
        >>> from sigma.rule import SigmaRule
        >>> rule = SigmaRule.from_yaml(
        ...     "{title: t, logsource: {product: windows},"
        ...     " detection: {a: {Image|endswith: .EXE}, b: {User: x}, condition: a and not b}}"
        ... )
        >>> truth(rule, {"Image": "a.exe", "User": "y"}), truth(rule, {"Image": "a.exe"})
        (True, None)
        >>> truth(rule, {"Image": "a.exe"}, missing="false")
        True
    """
    return kleene_or([_walked(tree, event, missing) for tree in _trees(rule)])


_KNOWN: dict[int, tuple[SigmaRule, list[Any]]] = {}
"""Rules and the trees of their conditions, by ``id``: a rule that is kept keeps its own."""


def _trees(rule: SigmaRule) -> list[Any]:
    """Return the trees of the conditions of a rule; pySigma parses them again at every look."""
    if id(rule) not in _KNOWN:
        _KNOWN[id(rule)] = rule, [each.parsed for each in rule.detection.parsed_condition]
    return _KNOWN[id(rule)][1]


def matches(rule: SigmaRule, events: Iterable[Event], missing: str = "null") -> list[int]:
    """Return the positions of the events for which a rule fires."""
    return [at for at, event in enumerate(events) if truth(rule, event, missing)]


def _walked(node: Any, event: Event, missing: str) -> bool | None:
    if isinstance(node, parsed.ConditionNOT):
        return kleene_not(_walked(node.args[0], event, missing))
    if isinstance(node, parsed.ConditionAND):
        return kleene_and([_walked(each, event, missing) for each in node.args])
    if isinstance(node, parsed.ConditionOR):
        return kleene_or([_walked(each, event, missing) for each in node.args])
    if isinstance(node, parsed.ConditionValueExpression):
        return _keyword(node.value, event)
    return _field(node.field, node.value, event, missing)


def _field(name: str, wanted: Any, event: Event, missing: str) -> bool | None:
    if isinstance(wanted, types.SigmaExpansion):
        return kleene_or([_field(name, each, event, missing) for each in wanted.values])
    value = _value(event, name)
    if isinstance(wanted, types.SigmaNull):
        return value is None
    if isinstance(wanted, types.SigmaExists):
        return (value is not None) == wanted.exists
    said = None if value is None else _tested(value, wanted, event)
    return False if said is None and missing == "false" else said


def _value(event: Event, name: str) -> Any:
    """Return the value of a field: by its name, in any case, or along a path of names."""
    if name in event:
        return event[name]
    for key, value in event.items():
        if key.lower() == name.lower():
            return value
    for key, value in event.items():
        if name.lower().startswith(key.lower() + ".") and isinstance(value, dict):
            return _value(value, name[len(key) + 1 :])
    return None


def _tested(value: Any, wanted: Any, event: Event) -> bool | None:  # noqa: PLR0911 - a case each
    match wanted:
        case types.SigmaString():
            return _is_like(value, wanted)
        case types.SigmaTimestampPart():
            return _part_of(value, wanted)
        case types.SigmaNumber():
            return _is_number(value, wanted.number)
        case types.SigmaCompareExpression():
            return _compared(value, wanted)
        case types.SigmaBool():
            return _is_boolean(value, wanted.boolean)
        case types.SigmaRegularExpression():
            flags = sum(wanted.sigma_to_python_flags[flag] for flag in wanted.flags)
            return re.search(str(wanted.regexp), _text(value), flags) is not None
        case types.SigmaCIDRExpression():
            return _is_within(_text(value), wanted.network)
        case types.SigmaFieldReference():
            return _is_same(value, _value(event, wanted.field), wanted)
    msg = f"no such value: {wanted!r}"
    raise AssertionError(msg)


def _text(value: Any) -> str:
    """Return what Spark's CAST makes of a value."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_numeric(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _is_like(value: Any, wanted: types.SigmaString) -> bool:
    plain = wanted.s[0] if len(wanted.s) == 1 and isinstance(wanted.s[0], str) else ""
    if _is_numeric(value) and re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?", plain):
        return Decimal(str(value)) == Decimal(plain)
    cased = isinstance(wanted, types.SigmaCasedString)
    text = _text(value) if cased else _text(value).lower()
    return _pattern(tuple(wanted.s), cased).fullmatch(text) is not None


@lru_cache(maxsize=1 << 16)
def _pattern(parts: tuple[Any, ...], cased: bool) -> re.Pattern[str]:
    special = {types.SpecialChars.WILDCARD_MULTI: ".*", types.SpecialChars.WILDCARD_SINGLE: "."}
    pieces = []
    for part in parts:
        if isinstance(part, str):
            pieces.append(re.escape(part if cased else part.lower()))
        else:
            pieces.append(special[part])
    return re.compile("".join(pieces), re.DOTALL)


def _is_number(value: Any, number: int | float) -> bool:
    if isinstance(value, bool):
        return _text(value) == str(number)
    if _is_numeric(value):
        return Decimal(str(value)) == Decimal(str(number))
    return _text(value).lower() == str(number).lower()


def _compared(value: Any, wanted: types.SigmaCompareExpression) -> bool | None:
    op = wanted.op.name
    if op == "NEQ":
        return not _is_number(value, wanted.number.number)
    if not _is_numeric(value):
        if not re.fullmatch(
            r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*", _text(value)
        ):
            return None
        value = Decimal(_text(value).strip())
    left, right = Decimal(str(value)), Decimal(str(wanted.number.number))
    return {"LT": left < right, "LTE": left <= right, "GT": left > right, "GTE": left >= right}[op]


def _is_boolean(value: Any, wanted: bool) -> bool:
    if isinstance(value, bool):
        return value == wanted
    return value == int(wanted) if _is_numeric(value) else _text(value).lower() == _text(wanted)


def _is_within(text: str, network: Any) -> bool:
    try:
        return ip_address(text) in network
    except ValueError:
        return False


def _is_same(value: Any, other: Any, wanted: types.SigmaFieldReference) -> bool | None:
    if other is None:
        return None
    if _is_numeric(value) and _is_numeric(other) and not (wanted.starts_with or wanted.ends_with):
        return bool(value == other)
    text, part = _text(value).lower(), _text(other).lower()
    if wanted.starts_with and wanted.ends_with:
        return part in text
    if wanted.starts_with:
        return text.startswith(part)
    return text.endswith(part) if wanted.ends_with else text == part


def _part_of(value: Any, wanted: types.SigmaTimestampPart) -> bool | None:
    if not isinstance(value, date):
        try:
            value = datetime.fromisoformat(_text(value))
        except ValueError:
            return None
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    part = wanted.timestamp_part.name.lower()
    said = value.isocalendar().week if part == "week" else getattr(value, part)
    return bool(said == wanted.number)


def _keyword(wanted: Any, event: Event) -> bool:
    """Return whether any text of an event has a value in it."""
    if isinstance(wanted, types.SigmaExpansion):
        return any(_keyword(each, event) for each in wanted.values)
    values = list(_values_of(event))
    texts = [each for each in values if isinstance(each, str)]
    match wanted:
        case types.SigmaString():
            many = types.SpecialChars.WILDCARD_MULTI
            return any(_is_like(text, many + wanted + many) for text in texts)
        case types.SigmaNumber():
            equal = any(_is_number(each, wanted.number) for each in values if _is_numeric(each))
            return equal or any(str(wanted.number).lower() in text.lower() for text in texts)
        case types.SigmaBool():
            return any(_text(wanted.boolean) in text.lower() for text in texts)
    return any(bool(_tested(text, wanted, event)) for text in texts)


def _values_of(event: Any) -> Iterable[Any]:
    if isinstance(event, dict):
        for value in event.values():
            yield from _values_of(value)
    else:
        yield event
