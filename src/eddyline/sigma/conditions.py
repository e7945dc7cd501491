"""What a Sigma rule asks of an event, as small picklable values that know no columns yet.

A leaf tests one field, or (``field`` is None) every text of the event: a keyword.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eddyline.query.conditions import Wild


@dataclass(frozen=True, slots=True)
class TextIs:
    """A text with wildcards."""

    field: str | None
    parts: tuple[str | Wild, ...]
    """Literals as written and wildcards; none: the empty text."""
    cased: bool = False
    """Whether case matters."""


@dataclass(frozen=True, slots=True)
class NumberIs:
    """A comparison with a number."""

    field: str | None
    op: str
    """One of ``= != < <= > >=``."""
    number: int | float


@dataclass(frozen=True, slots=True)
class BooleanIs:
    """True or false."""

    field: str | None
    value: bool


@dataclass(frozen=True, slots=True)
class IsEmpty:
    """``field: null``: the event does not have the field."""

    field: str


@dataclass(frozen=True, slots=True)
class Exists:
    """``field|exists``."""

    field: str
    value: bool


@dataclass(frozen=True, slots=True)
class Matches:
    """A regular expression that occurs in the text, as Python's ``re.search`` finds it."""

    field: str | None
    pattern: str
    flags: int


@dataclass(frozen=True, slots=True)
class InNetwork:
    """An IP address within a network (CIDR)."""

    field: str | None
    network: str


@dataclass(frozen=True, slots=True)
class SameAs:
    """A comparison with another field."""

    field: str
    other: str
    starts: bool = False
    """Whether the text starts with the other (with ``ends``: contains it)."""
    ends: bool = False
    """Whether the text ends with the other."""


@dataclass(frozen=True, slots=True)
class TimePart:
    """A part of a timestamp, in the time zone of the session."""

    field: str
    part: str
    """One of ``minute hour day week month year``."""
    number: int


@dataclass(frozen=True, slots=True)
class Negated:
    """Not the part."""

    part: Condition


@dataclass(frozen=True, slots=True)
class AllOf:
    """Every one of the parts."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one of the parts."""

    parts: tuple[Condition, ...]


Leaf = TextIs | NumberIs | BooleanIs | IsEmpty | Exists | Matches | InNetwork | SameAs | TimePart
Condition = Leaf | Negated | AllOf | AnyOf


def leaves(condition: Condition) -> list[Leaf]:
    """Return the leaves, from left to right."""
    found: list[Leaf] = []
    waiting = [condition]
    while waiting:
        match waiting.pop():
            case Negated(part):
                waiting.append(part)
            case AllOf(parts) | AnyOf(parts):
                waiting.extend(reversed(parts))
            case leaf:
                found.append(leaf)
    return found


def fields_of(condition: Condition) -> tuple[str, ...]:
    """Return the fields that are asked for, each once, in the order of the rule."""
    names: dict[str, None] = {}
    for leaf in leaves(condition):
        if leaf.field is not None:
            names[leaf.field] = None
        if isinstance(leaf, SameAs):
            names[leaf.other] = None
    return tuple(names)
