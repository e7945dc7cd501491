"""Alarms as they are given: a name and a condition over modelled attributes and keys."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eddyline.errors import QueryError
from eddyline.models.solving.text import split_condition
from eddyline.query.rules.rule import Rule
from eddyline.sql.parsing import parse_condition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from eddyline.models.solving.expressions import Condition


Given = str | Rule
"""A condition as text, or one with its level, tags and title."""


@dataclass(frozen=True, slots=True)
class AlarmSource:
    """An alarm as it was given, with what people need to know of it."""

    name: str
    text: str
    info: Mapping[str, Any]


def source_of(name: str, given: Any) -> AlarmSource:
    """Return an alarm of its text, or of a rule.

    Raises:
        QueryError: it is neither, or a rule whose condition is no text.
    """
    rule = given if isinstance(given, Rule) else Rule(given)
    if not isinstance(rule.condition, str):
        msg = (
            f"alarm {name!r} is a text such as 'x > 1000', or an el.Rule of one: add('far', "
            f"'x > 1000') or add({{'far': 'x > 1000'}}); got {type(rule.condition).__name__}"
        )
        raise QueryError(msg, alarm=name)
    return AlarmSource(name, rule.condition, rule.info)


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm over segments whose keys and attributes are known."""

    name: str
    text: str
    keys: str | None
    """What it asks of keys, as SQL; None if nothing."""
    condition: Condition | None
    """What it asks of models; None if nothing: it holds wherever there is one."""

    @property
    def definition(self) -> int:
        """A number that tells it from other alarms and from other texts of its name (64 bits)."""
        return definition_of(self.name, self.text)


def definition_of(name: str, text: str) -> int:
    """Return a number that tells an alarm from others, and a text of its from others (64 bits)."""
    said = hashlib.blake2b(f"{len(name)} {name}{text}".encode(), digest_size=8).digest()
    return int.from_bytes(said, "little", signed=True)


def check_alarm(name: str, text: str) -> None:
    """Check that a text is a condition; names in it are looked up when it meets segments.

    Raises:
        QueryError: it is none.
    """
    try:
        parse_condition(text, "the condition")
    except QueryError as error:
        raise _named(error, name) from error


def read_alarm(name: str, text: str, attributes: Collection[str], keys: Collection[str]) -> Alarm:
    """Return an alarm over segments.

    Args:
        name: of the alarm.
        text: as for ``Segments.where``.
        attributes: the modelled attributes.
        keys: the columns that say the entity.

    Raises:
        QueryError: it cannot be read, or names what there is not.
        NotSupportedError: no comparison of polynomials says the same.
    """
    try:
        native, condition = split_condition(text, attributes, keys)
    except QueryError as error:
        raise _named(error, name) from error
    on_keys = " AND ".join(f"({each})" for each in native) if native else None
    return Alarm(name, text, on_keys, condition)


def _named(error: QueryError, name: str) -> QueryError:
    return type(error)(f"alarm {name!r}: {error.message}", **{**error.facts, "alarm": name})
