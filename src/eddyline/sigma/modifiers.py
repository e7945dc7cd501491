"""Chains of modifiers that pySigma gets wrong, that explode, or that match no event.

pySigma applies the modifiers of a field one after the other. Chains that make more texts than a
machine can hold are refused. ``mend`` encodes Base64 again, because pySigma does not encode the
bytes of the text. A rule with a chain that matches no event runs, and ``info["problems"]`` says so.
"""

from __future__ import annotations

import re
from base64 import b64encode
from math import prod
from typing import TYPE_CHECKING, Any

from sigma import modifiers
from sigma.conditions import ConditionAND
from sigma.rule import SigmaDetectionItem
from sigma.types import SigmaExpansion, SigmaNumber, SigmaString

from eddyline.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sigma.rule import SigmaDetection, SigmaDetections

MAX_DASHED = 20_000
"""Texts that ``windash`` may make of the values of one rule."""

_WIDE = ("wide", "utf16be", "utf16")
_BASE64 = ("base64", "base64offset")
_PARTS = {"contains", "startswith", "endswith", "expand"}
"""Modifiers whose tests match a part of a text."""

_GROWTH = {"windash": 1.0, "base64": 4 / 3, "base64offset": 4.0, **dict.fromkeys(_WIDE, 2.0)}
"""Growth of a text by a modifier, as a factor; dashes are counted apart."""

MAX_GROWTH = 100
"""Greatest growth of a text by a chain of modifiers, as a factor."""

_DASH = re.compile(r"\B[-/]\b")
"""The dashes that pySigma replaces."""

_N_DASHES = 5
"""Characters that ``windash`` puts in place of a dash."""

_BOM = b"\xff\xfe"
"""The byte order mark of UTF-16 with the low byte first."""


def check_fields(detection: dict[Any, Any]) -> None:
    """Raise QueryError on fields that pySigma cannot read, or would never finish reading.

    Args:
        detection: tests by the names of the detection's parts, as YAML has them.
    """
    n_texts = 0
    for part, tests in detection.items():
        for name, value in _fields_within(tests):
            path = "detection", str(part)
            if name is None:
                continue
            if not isinstance(name, str):
                msg = f"YAML reads the name of a field as {name!r}; write it in quotes"
                raise QueryError(msg, part=path)
            _check_chain(name, path)
            n_texts += texts_of_dashes(name, value)
            if n_texts > MAX_DASHED:
                msg = f"'windash' makes more than {MAX_DASHED:,} texts; write fewer dashes"
                raise QueryError(msg, part=path)


def _fields_within(tests: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the names of fields in a part of a detection, and what they are tested for."""
    if isinstance(tests, dict):
        yield from tests.items()
    elif isinstance(tests, list):
        for each in tests:
            yield from _fields_within(each)


def _check_chain(field: str, path: tuple[str, ...]) -> None:
    """Raise QueryError if the modifiers of a field multiply its texts too often."""
    name, *chain = field.split("|")
    growing = [each for each in chain if each in _GROWTH]
    if "windash" in growing[1:]:
        msg = f"field {name!r}: 'windash' finds no dash behind {growing[0]!r}; write it first"
        raise QueryError(msg, part=path)
    if prod(_GROWTH[each] for each in growing) > MAX_GROWTH:
        shown = "|".join(growing)
        msg = f"field {name!r}: modifiers {shown:.60} make more than {MAX_GROWTH} times its text"
        raise QueryError(msg, part=path)


def texts_of_dashes(field: str, value: Any) -> int:
    """Return how many texts ``windash`` makes of the values of a field.

    >>> texts_of_dashes("F|windash", ["-a", "/a /b"]), texts_of_dashes("F", "-a")
    (30, 0)
    """
    if "windash" not in field.split("|")[1:]:
        return 0
    values = value if isinstance(value, list) else [value]
    return sum(_N_DASHES ** len(_DASH.findall(str(each))) for each in values)


class _Utf16(modifiers.SigmaUTF16Modifier):
    """The text in UTF-16 behind its byte order mark, as bytes; pySigma's mark is one of UTF-8."""

    def modify(self, val: SigmaString) -> SigmaString:
        text = _BOM + b"".join(_part(each).encode("utf-16le") for each in val.s)
        return SigmaString.from_str(text.decode("utf-8", "surrogateescape"))


class _Base64(modifiers.SigmaBase64Modifier):
    """The bytes of a text in Base64."""

    def modify(self, val: SigmaString) -> SigmaString:
        return SigmaString.from_str(b64encode(_bytes(val)).decode())


class _Base64Offset(modifiers.SigmaBase64OffsetModifier):
    """The bytes of a text in Base64 behind 0, 1 and 2 others; pySigma counts characters."""

    def modify(self, val: SigmaString) -> SigmaExpansion:
        text = _bytes(val)
        return SigmaExpansion([SigmaString.from_str(_offset(text, n)) for n in range(3)])


def _offset(text: bytes, n_before: int) -> str:
    """Return the Base64 characters that depend only on the text."""
    whole = b64encode(b" " * n_before + text).decode()
    n_bytes = n_before + len(text)
    start, end = (8 * n_before + 5) // 6, 8 * n_bytes // 6
    return whole[start:end]


def _bytes(value: SigmaString) -> bytes:
    return "".join(_part(each) for each in value.s).encode("utf-8", "surrogateescape")


def _part(part: Any) -> str:
    """Return a part of a text; pySigma has refused wildcards before."""
    assert isinstance(part, str)
    return part


_BASE64_MODIFIERS = {modifiers.SigmaBase64Modifier, modifiers.SigmaBase64OffsetModifier}
_OWN: dict[Any, Any] = {
    modifiers.SigmaUTF16Modifier: _Utf16,
    modifiers.SigmaBase64Modifier: _Base64,
    modifiers.SigmaBase64OffsetModifier: _Base64Offset,
}


def mend(detections: SigmaDetections) -> None:
    """Give the detections of a rule the Base64 texts of their values, byte by byte."""
    for item in items_of(detections):
        is_encoded = _BASE64_MODIFIERS.intersection(item.modifiers)
        if is_encoded and item.original_value is not None:
            own = [_OWN.get(each, each) for each in item.modifiers]
            item.value = SigmaDetectionItem(item.field, own, item.original_value.copy()).value


def problems_of(detections: SigmaDetections) -> list[str]:
    """Return the fields that match (almost) no event because of their modifiers."""
    items = (item for item in items_of(detections) if item.modifiers)
    return list(dict.fromkeys(why for item in items if (why := _problem(item))))


def _problem(item: SigmaDetectionItem) -> str | None:
    of = f"field {item.field!r}" if item.field else "a keyword"
    chain = [modifiers.reverse_modifier_mapping[each.__name__] for each in item.modifiers]
    wide = next((each for each in chain if each in _WIDE), None)
    if wide is not None and {*_BASE64}.isdisjoint(chain[chain.index(wide) :]):
        return f"{of}: {wide!r} is for Base64; write 'base64offset|contains' behind it"
    if not item.field:
        return None
    if "base64offset" in chain and _PARTS.isdisjoint(chain):
        return f"{of}: 'base64offset' finds a part of a text; write 'contains' behind it"
    if item.value_linking is ConditionAND:
        values = [each for each in item.value if isinstance(each, SigmaString | SigmaNumber)]
        plain = {str(each).lower() for each in values if not _is_pattern(each)}
        if len(plain) > 1:
            return f"{of}: 'all' asks one value to equal several; write 'contains|all'"
    return None


def _is_pattern(value: Any) -> bool:
    return isinstance(value, SigmaString) and any(not isinstance(each, str) for each in value.s)


def items_of(detections: SigmaDetections) -> Iterator[SigmaDetectionItem]:
    """Yield the tests of a rule."""
    for each in detections.detections.values():
        yield from _items_within(each)


def _items_within(detection: SigmaDetection) -> Iterator[SigmaDetectionItem]:
    for each in detection.detection_items:
        if isinstance(each, SigmaDetectionItem):
            yield each
        else:
            yield from _items_within(each)
