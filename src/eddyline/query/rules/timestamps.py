"""Timestamp literals of rules, which become instants once a session has read them.

Only Spark knows how Spark reads a local time that does not exist or exists twice, and what the
offset of a zone was long ago. So it reads the literals of all rules at once (the room ``spark``),
and the rules take the instants in.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eddyline.query.conditions import Compare, OneOf
from eddyline.sql.literals import Moment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eddyline.query.conditions import Node


def moments_of(node: Node) -> Iterator[Moment]:
    """Yield the timestamp literals that a rule tree compares with."""
    for each in node.walk():
        if isinstance(each, Compare | OneOf):
            values = each.values if isinstance(each, OneOf) else (each.value,)
            yield from (value for value in values if isinstance(value, Moment))


def with_moments(node: Node, micros: Mapping[Moment, int]) -> Node:
    """Return a rule tree in which every timestamp literal is a number.

    Of each moment there are microseconds since 1970 in UTC.

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
