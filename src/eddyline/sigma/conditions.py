"""The condition of a Sigma rule: small values that know no columns yet.

A leaf tests one field, or (``field`` is None) every text of the event: a keyword. Each class writes
its name into the cache, so what is read back is of the same class.
"""

from __future__ import annotations

from msgspec import Struct

from eddyline.sql.like import Wild


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
