"""Points in time of rules, once a session has said when they are.

Where local times do not exist or exist twice, and what zones were long ago, only Spark knows as
Spark does: it reads all moments of a set at once (the room ``spark``), and the rules take them in.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eddyline.query.conditions import And, Compare, Is, MayRaise, Moment, Not, OneOf, Or

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eddyline.query.conditions import Node


def moments_of(node: Node) -> Iterator[Moment]:
    """Yield the moments that a rule tree compares with."""
    if isinstance(node, And | Or):
        for part in node.parts:
            yield from moments_of(part)
    elif isinstance(node, Not | Is):
        yield from moments_of(node.part)
    elif isinstance(node, MayRaise):
        yield from moments_of(node.test)
    elif isinstance(node, Compare):
        if isinstance(node.value, Moment):
            yield node.value
    elif isinstance(node, OneOf):
        yield from (value for value in node.values if isinstance(value, Moment))


def with_moments(node: Node, micros: Mapping[Moment, int]) -> Node:
    """Return a rule tree in which every moment is a number.

    Args:
        node: the tree.
        micros: microseconds since 1970 in UTC of each moment.

    Example:
        >>> from eddyline.query.conditions import Operand
        >>> from eddyline.sql.types import TIMESTAMP
        >>> late = Moment("1970-01-01 00:00:01")
        >>> with_moments(Compare(Operand("`t`", TIMESTAMP), ">", late), {late: 1_000_000}).value
        1000000
    """
    if isinstance(node, And | Or):
        return replace(node, parts=tuple(with_moments(part, micros) for part in node.parts))
    if isinstance(node, Not | Is):
        return replace(node, part=with_moments(node.part, micros))
    if isinstance(node, MayRaise):
        return replace(node, test=with_moments(node.test, micros))  # type: ignore[arg-type]
    if isinstance(node, Compare) and isinstance(node.value, Moment):
        return replace(node, value=micros[node.value])
    if isinstance(node, OneOf) and any(isinstance(value, Moment) for value in node.values):
        told = (micros[value] if isinstance(value, Moment) else value for value in node.values)
        return replace(node, values=tuple(dict.fromkeys(told)))
    return node
