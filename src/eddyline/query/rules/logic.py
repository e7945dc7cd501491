"""AND, OR, NOT, tests of NULL and of truth, and comparisons of an operand with constants."""

from __future__ import annotations

from functools import reduce
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
    OneOf,
    Or,
)
from eddyline.query.rules.text_patterns import lower_case_tests
from eddyline.sql.error_free import NoFormError
from eddyline.sql.regexes import is_whole_text
from eddyline.sql.types import MAX_PRECISION, NULL, TIMES, common_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import Expr

    from eddyline.query.conditions import Node
    from eddyline.query.rules.reading import NodeReader, Reading
    from eddyline.sql.literals import SqlConstant

_MIRRORED: dict[type[Expr], type[Expr]] = {
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}
_SIGNS: dict[type[Expr], str] = {exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}


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
    part = reading.node(node.this)
    return part.part if isinstance(part, Not) else Not(part)


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


def _unless_rounded(read: NodeReader) -> NodeReader:
    """Return a reader that leaves to Spark what Spark rounds: no type has all the digits."""

    def guarded(reading: Reading, node: Expr) -> Node | None:
        sides = [node.args.get(key) for key in ("this", "expression", "low", "high")]
        given = [each for each in (*sides, *node.expressions) if each is not None]
        common = reduce(common_type, map(reading.expression.type_of, given), NULL)
        return None if common.precision > MAX_PRECISION else read(reading, node)

    return guarded


@_unless_rounded
def compared(reading: Reading, node: Expr) -> Node | None:
    """Return the test of a comparison with a constant on either side."""
    left, right, kind = node.this, node.expression, type(node)
    constant = reading.constant(right)
    if constant is None:
        left, right, kind = right, left, _MIRRORED[kind]
        constant = reading.constant(right)
    if constant is None:
        return None
    left = reading.as_met(left, [right])
    if kind not in (exp.EQ, exp.NEQ):
        return _ordered(reading, left, _SIGNS[kind], constant)
    equal = _equal(reading, left, constant)
    return Not(equal) if equal is not None and kind is exp.NEQ else equal


@_unless_rounded
def same(reading: Reading, node: Expr) -> Node | None:
    """Return the test of ``<=>`` and IS [NOT] DISTINCT FROM with a constant."""
    outcomes = TRUE if isinstance(node, exp.NullSafeEQ) else FALSE | UNKNOWN
    for one, other in ((node.this, node.expression), (node.expression, node.this)):
        constant = reading.constant(other)
        if constant is None:
            continue
        if constant.family == "null":
            null = null_test(reading, one)
            return null if null is None or outcomes == TRUE else Not(null)
        equal = _equal(reading, reading.as_met(one, [other]), constant)
        return None if equal is None else Is(equal, outcomes)
    return None


@_unless_rounded
def between(reading: Reading, node: Expr) -> Node | None:
    """Return the tests of BETWEEN with constant bounds."""
    bounds = [node.args[key] for key in ("low", "high")]
    constants = [reading.constant(bound) for bound in bounds]
    inner = reading.as_met(node.this, bounds) if None not in constants else node.this
    parts = [
        None if constant is None else _ordered(reading, inner, sign, constant)
        for sign, constant in zip((">=", "<="), constants, strict=True)
    ]
    known = [part for part in parts if part is not None]
    return And(tuple(known)) if len(known) == len(parts) else None


@_unless_rounded
def one_of_list(reading: Reading, node: Expr) -> Node | None:
    """Return the test of IN with a list of constants."""
    given = [reading.constant(value) for value in node.expressions]
    constants = [constant for constant in given if constant is not None]
    if len(constants) < len(given) or not given:
        return None
    kind = reading.expression.type_of(node.this)
    is_text = kind.family in TIMES and any(each.family == "string" for each in constants)
    if is_text and not reading.expression.ansi:
        return None  # Spark compares the timestamps as texts
    values = [constant for constant in constants if constant.family != "null"]
    if not values:
        return Constant(None)
    found = _one_of(reading, reading.as_met(node.this, node.expressions), values)
    if found is None or len(values) == len(constants):
        return found
    return Or((found, Constant(None)))


def _equal(reading: Reading, node: Expr, constant: SqlConstant) -> Node | None:
    if constant.family == "null":
        return Constant(None)
    inner = node.unnest()
    if constant.family == "boolean" and reading.expression.type_of(inner).family == "boolean":
        part = reading.node(inner)
        return part if constant.value else Not(part)
    return _one_of(reading, inner, [constant])


def _ordered(reading: Reading, node: Expr, sign: str, constant: SqlConstant) -> Node | None:
    if constant.family == "null":
        return Constant(None)
    operand = reading.operand(node)
    if operand is None or operand.type.family == "boolean":
        return None
    if not is_whole_text(str(constant.value)):
        return None
    values = reading.scalars(operand, [constant])
    return None if values is None else Compare(operand, sign, values[0])


def _one_of(reading: Reading, node: Expr, constants: Sequence[SqlConstant]) -> Node | None:
    """Return the test whether an operand is equal to one of some constants."""
    operand = reading.operand(node)
    found = None if operand is None else reading.scalars(operand, constants)
    if operand is None or found is None:
        return None
    values = tuple(dict.fromkeys(found))
    if len(values) > 1 and operand.type.family == "float" and 0.0 in values:
        return None  # of long lists Spark makes a hash set, in which -0.0 is not 0.0
    folded = lower_case_tests(reading, node, values)
    if folded is not None:
        return folded
    return Compare(operand, "=", values[0]) if len(values) == 1 else OneOf(operand, values)
