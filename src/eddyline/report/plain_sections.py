"""Sections from plain values, such as those that a checkpoint keeps; see ``sections_json``."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from eddyline.errors import StateError
from eddyline.report.sections import Column, Facts, Figure, Items, Line, Section, Table, Text, Tile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PARTS = {each.__name__.lower(): each for each in (Text, Items, Facts, Table, Figure)}
"""The kinds of parts by the names that they have as plain values."""

INNER = {"columns": Column, "lines": Line, "tiles": Tile}
"""The values within others, by the name of their field."""


def sections_of(plain: Iterable[Mapping[str, Any]]) -> list[Section]:
    """Return sections from plain values; the words of operators for decisions are not among them.

    Fields of later versions are passed over.

    >>> sections_of([{"title": "a", "parts": [{"kind": "text", "text": "b"}]}])[0].parts
    (Text(text='b'),)

    Raises:
        StateError: they are no sections.
    """
    try:
        return [_made(Section, each) for each in plain]
    except (KeyError, TypeError, AttributeError) as error:
        msg = f"an explanation cannot be read: {error}; the run writes it anew when it goes on"
        raise StateError(msg) from error


def _made(kind: Any, plain: Mapping[str, Any]) -> Any:
    names = {each.name for each in fields(kind)}
    return kind(**{name: _value(name, value) for name, value in plain.items() if name in names})


def _value(name: str, value: Any) -> Any:
    if name == "parts":
        return tuple(_made(PARTS[each["kind"]], each) for each in value)
    if name in INNER:
        return tuple(_made(INNER[name], each) for each in value)
    return _frozen(value)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
