"""AND, OR, NOT, constants, columns as conditions, and tests of NULL and of truth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from eddyline.query.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    And,
    Compare,
    Constant,
    Is,
    IsNull,
    Not,
    Or,
)
from eddyline.sql.error_free import NoFormError

if TYPE_CHECKING:
    from sqlglot import Expr

    from eddyline.query.conditions import Node
    from eddyline.query.rules.reading import Reading


def connected(reading: Reading, node: Expr) -> Node:
    """Return AND or OR, flat however deeply it is nested in itself."""
    kind = type(node)
    parts: list[Node] = []
    waiting = [node]
    while waiting:
        inner = waiting.pop().unnest()
        if isinstance(inner, kind):
            waiting += [inner.expression, inner.this]
        else:
            parts.append(reading.node(inner))
    return And(tuple(parts)) if kind is exp.And else Or(tuple(parts))


def negated(reading: Reading, node: Expr) -> Node:
    """Return NOT."""
    return Not(reading.node(node.this))


def constant(_reading: Reading, node: Expr) -> Node:
    """Return TRUE, FALSE or NULL."""
    return Constant(bool(node.this) if isinstance(node, exp.Boolean) else None)


def flag(reading: Reading, node: Expr) -> Node | None:
    """Return the test of a boolean column."""
    operand = reading.operand(node)
    is_flag = operand is not None and operand.type.family == "boolean"
    return Compare(operand, "=", True) if is_flag and operand is not None else None


def truth(reading: Reading, node: Expr) -> Node | None:
    """Return IS TRUE, IS FALSE or IS NULL."""
    wanted = node.expression
    if isinstance(wanted, exp.Boolean):
        return Is(reading.node(node.this), TRUE if wanted.this else FALSE)
    return null_test(reading, node.this)


def null_test(reading: Reading, node: Expr) -> Node | None:
    """Return the test whether an expression is NULL."""
    inner = node.unnest()
    facts = reading.expression.facts(inner)
    if facts.reason:
        raise NoFormError("IS NULL")  # of what is never NULL, Spark knows it and never raises
    operand = reading.operand(inner)
    if isinstance(inner, exp.Column) and operand is not None:
        return IsNull(operand)
    if facts.type.family == "boolean" and reading.is_read(inner):
        return Is(reading.node(inner), UNKNOWN)
    return None if operand is None else IsNull(operand)
