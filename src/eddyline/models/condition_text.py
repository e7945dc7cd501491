"""Reading conditions and expressions over modelled attributes, as SQL texts.

Comparisons (chained ones too), BETWEEN, IN, AND, OR, NOT; ``+ - *``, division by a constant,
``pow(x, 2)``, ``abs``, ``sqrt`` and ``d(x)``, the slope of x per second. What no polynomial says is
refused with its place in the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from sqlglot import exp

from eddyline.errors import NotSupportedError, QueryError
from eddyline.models.conditions import OPPOSITE, And, Comparison, Condition, Or, compared
from eddyline.models.expressions import (
    Absolute,
    Attribute,
    Expression,
    Number,
    Power,
    Product,
    Root,
    Slope,
    Sum,
    difference,
    names_in,
    negative,
    parts_of,
    walk,
)
from eddyline.registry import unknown
from eddyline.sql.depth import deep
from eddyline.sql.literals import constant_of
from eddyline.sql.parsing import SparkText, at, offset_of, parse_condition, place

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlglot import Expr

Value = TypeVar("Value", bound="Condition | Expression")

_OPS: dict[type[Expr], str] = {
    exp.LT: "<", exp.LTE: "<=", exp.EQ: "=", exp.NEQ: "<>", exp.GTE: ">=", exp.GT: ">",
}  # fmt: skip
_ORDER = (exp.LT, exp.LTE, exp.GT, exp.GTE)
"""Comparisons that may follow each other: ``0 < x <= 5``."""
_FUNCTIONS: dict[str, type[Slope | Absolute | Root]] = {"d": Slope, "abs": Absolute, "sqrt": Root}
MOST_LEVELS = 200
"""Levels of a condition, or of arithmetic, that are solved."""
HIGHEST_POWER = 8
"""The highest exponent that ``pow`` takes."""


@deep
def read_condition(text: str, names: Collection[str]) -> Condition:
    """Return the condition that a text says.

    Args:
        text: as in WHERE: ``"x + 2 * vx < y AND NOT (x BETWEEN 1 AND 2)"``.
        names: the attributes that may stand in it. Case does not matter; of ``a.x`` the last part
            is enough where it is one attribute's.

    Raises:
        QueryError: it cannot be read, or reads what there is not.
        NotSupportedError: no comparison of polynomials says the same.
    """
    return condition_of(parse_condition(text, "the condition"), text, names)


def condition_of(tree: Expr, text: str, names: Collection[str]) -> Condition:
    """Return the condition that a tree of a part of a text says; errors as above."""
    reader = _Reader(text, names)
    return reader.shallow(reader.condition(tree, is_so=True), tree)


@deep
def has_root(text: str) -> bool:
    """Return whether a square root stands in a condition."""
    calls = parse_condition(text, "the condition").find_all(exp.Anonymous)
    return any(str(each.this).lower() == "sqrt" for each in calls)


@deep
def split_condition(
    text: str, attributes: Collection[str], others: Collection[str]
) -> tuple[list[str], Condition | None]:
    """Part a condition into those on other columns and one on modelled attributes.

    Args:
        text: as above; what stands between its outermost ANDs is about the one or the other.
        attributes: as above.
        others: the other columns that there are. Case does not matter.

    Returns:
        The parts that read no modelled attribute, as SQL, and the condition on attributes if any.

    Raises:
        QueryError: as above.
        NotSupportedError: as above, or a part is about both.
    """
    reader, tree = _Reader(text, attributes), parse_condition(text, "the condition")
    known = {each.lower() for each in others} - {each.lower() for each in attributes}
    native, modelled = [], []
    for part in tree.flatten() if isinstance(tree, exp.And) else [tree]:
        names = [each.name.lower() for each in part.find_all(exp.Column)]
        is_other = [each in known for each in names]
        if names and all(is_other):
            native.append(_said(part))
            continue
        if any(is_other):
            raise reader.unsupported(
                f"{_said(part)} compares modelled attributes with other columns, or joins both by "
                "OR; conditions on other columns stand beside these, joined by AND",
                part,
            )
        modelled.append(reader.condition(part, is_so=True))
    if not modelled:
        return native, None
    return native, reader.shallow(And(tuple(modelled)) if modelled[1:] else modelled[0], tree)


@deep
def read_expression(text: str, names: Collection[str]) -> Expression:
    """Return the arithmetic that a text says: ``"S.ap - L.ap"``; names and errors as above."""
    return expression_of(parse_condition(text, "the expression"), text, names)


def expression_of(tree: Expr, text: str, names: Collection[str]) -> Expression:
    """Return the arithmetic that a tree of a part of a text says; errors as above."""
    reader, found = _Reader(text, names), arithmetic_of(tree, text, names)
    if not reader.is_closed(found):
        message = "abs and sqrt are no polynomials: they stand only in conditions"
        raise reader.unsupported(message, tree)
    return found


def arithmetic_of(tree: Expr, text: str, names: Collection[str]) -> Expression:
    """Return the same where abs and sqrt may stand in it, too."""
    reader = _Reader(text, names)
    return reader.shallow(reader.expression(tree), tree)


class _Reader:
    """Makes values of the trees of one text."""

    def __init__(self, text: str, names: Collection[str]) -> None:
        self._text = text
        self._names = names

    def condition(self, node: Expr, *, is_so: bool) -> Condition:
        """Return a condition, or its opposite: a NOT ends in the comparisons below it."""
        node = node.unnest()
        if isinstance(node, exp.Not):
            return self.condition(node.this, is_so=not is_so)
        if isinstance(node, exp.And | exp.Or):
            parts = tuple(self.condition(each, is_so=is_so) for each in node.flatten())
            return And(parts) if isinstance(node, exp.And) is is_so else Or(parts)
        if isinstance(node, exp.Between):
            low, high = node.args["low"], node.args["high"]
            bounds = [(low, "<=", node.this), (node.this, "<=", high)]
            return self._all_of(bounds, node, is_so=is_so)
        if isinstance(node, exp.In) and node.expressions:
            tests = [self._all_of([(node.this, "=", each)], node, is_so=is_so) for each in
                     node.expressions]  # fmt: skip
            return Or(tuple(tests)) if is_so else And(tuple(tests))
        if isinstance(node, exp.Binary) and type(node) in _OPS:
            return self._all_of(_chain(node), node, is_so=is_so)
        raise self.unsupported(
            f"{_said(node)} is no comparison of modelled attributes; these are < <= = <> >= >, "
            "BETWEEN and IN, and AND, OR and NOT of them",
            node,
        )

    def _all_of(self, tests: list[tuple[Expr, str, Expr]], node: Expr, *, is_so: bool) -> Condition:
        parts = tuple(
            self._compared(left, op if is_so else OPPOSITE[op], right, node)
            for left, op, right in tests
        )
        if len(parts) == 1:
            return parts[0]
        return And(parts) if is_so else Or(parts)

    def _compared(self, left: Expr, op: str, right: Expr, node: Expr) -> Condition:
        one, other = self.expression(left), self.expression(right)
        try:
            return compared(one, op, other)
        except NotSupportedError as error:
            raise self.unsupported(error.message, node) from error

    def expression(self, node: Expr) -> Expression:
        """Return arithmetic over attributes."""
        node = node.unnest()
        if isinstance(node, exp.Column):
            return self._attribute(node)
        if isinstance(node, exp.Neg):
            return negative(self.expression(node.this))
        if isinstance(node, exp.Add | exp.Sub | exp.Mul):
            left, right = self.expression(node.left), self.expression(node.right)
            made = {exp.Add: Sum, exp.Sub: difference, exp.Mul: Product}
            return made[type(node)](left, right)
        if isinstance(node, exp.Div):
            return self._quotient(node)
        if isinstance(node, exp.Anonymous):
            return self._call(node)
        return self._number(node)

    def _attribute(self, node: exp.Column) -> Expression:
        name = ".".join(each.name for each in node.parts)
        known = {each.lower(): each for each in self._names}
        if name.lower() in known:
            return Attribute(known[name.lower()])
        short = [each for each in self._names if each.lower().endswith(f".{name.lower()}")]
        if len(short) == 1:
            return Attribute(short[0])
        if short:
            raise self.wrong(f"{name} may be {' or '.join(sorted(short))}: say which", node)
        raise self.wrong(unknown("modelled attribute", name, self._names), node)

    def _quotient(self, node: exp.Div) -> Expression:
        divisor = self.expression(node.right)
        if names_in(divisor):
            raise self.unsupported(
                f"{_said(node)} divides by a modelled attribute, which gives no polynomial; "
                "multiply both sides by it, with its sign in mind",
                node,
            )
        value = self._value(divisor, node.right)
        if value == 0:
            raise self.wrong(f"{_said(node)} divides by 0", node)
        return Product(Number(1 / value), self.expression(node.left))

    def _call(self, node: exp.Anonymous) -> Expression:
        name = str(node.this).lower()
        wanted = 2 if name in {"pow", "power"} else 1
        if name not in {*_FUNCTIONS, "pow", "power"}:
            raise self.unsupported(
                f"{name}() of a modelled attribute is no polynomial; abs, d, pow and sqrt may be "
                "called",
                node,
            )
        if len(node.expressions) != wanted:
            raise self.wrong(f"{name}() takes {wanted}, got {len(node.expressions)}", node)
        part = self.expression(node.expressions[0])
        if wanted == 2:
            return Power(part, self._exponent(node.expressions[1]))
        if name == "d" and not self.is_closed(part):
            raise self.unsupported("d() takes no abs and no sqrt", node)
        return _FUNCTIONS[name](part)

    def _exponent(self, node: Expr) -> int:
        value = self._value(self.expression(node), node)
        if value != int(value) or not 0 <= value <= HIGHEST_POWER:
            raise self.unsupported(
                f"pow() takes a whole exponent from 0 to {HIGHEST_POWER}, got {_said(node)}", node
            )
        return int(value)

    def _value(self, part: Expression, node: Expr) -> float:
        match part:
            case Number(value):
                return value
            case Sum(left, right):
                return self._value(left, node) + self._value(right, node)
            case Product(left, right):
                return self._value(left, node) * self._value(right, node)
        raise self.unsupported(f"{_said(node)} is no constant; write a number", node)

    def _number(self, node: Expr) -> Expression:
        found = constant_of(node)
        if found is not None and found.family == "null":
            raise self.wrong(  # NULL is a token that does not know its place
                "NULL compares as unknown with everything; leave the comparison out",
                node.parent or node,
            )
        if found is None or found.family not in {"integer", "decimal", "float"}:
            raise self.unsupported(
                f"{_said(node)} is no finite number and no modelled attribute; conditions on "
                "other columns belong in WHERE before the model",
                node,
            )
        return Number(float(found.value))  # type: ignore[arg-type]  # of these families: a number

    @staticmethod
    def is_closed(part: Expression) -> bool:
        """Return whether an expression is a polynomial."""
        return not any(isinstance(each, Absolute | Root) for each in walk(part))

    def shallow(self, value: Value, node: Expr) -> Value:
        """Return a value, or refuse it: workers are handed trees, and walk them by recursion."""
        levels, waiting = 0, [value]
        while waiting:
            levels += 1
            waiting = [part for each in waiting for part in _parts_of(each)]
        if levels > MOST_LEVELS:
            message = (
                f"this is nested {levels} levels deep, and at most {MOST_LEVELS} of a model are "
                f"solved; a sum of so many terms is one, too: write it flatter"
            )
            raise self.unsupported(message, node)
        return value

    def wrong(self, message: str, node: Expr, kind: type[QueryError] = QueryError) -> QueryError:
        """Return the error of what cannot be meant."""
        offset = offset_of(node)
        return kind(at(message, self._text, offset), **place(self._text, offset))

    def unsupported(self, message: str, node: Expr) -> QueryError:
        """Return the error of what is valid and not closed."""
        return self.wrong(message, node, NotSupportedError)


def _parts_of(value: Condition | Expression) -> Sequence[Any]:
    """Return the parts of a condition or of arithmetic."""
    if isinstance(value, And | Or):
        return value.parts
    return [value.expression] if isinstance(value, Comparison) else parts_of(value)


def _chain(node: exp.Binary) -> list[tuple[Expr, str, Expr]]:
    """Return the comparisons of ``a < b < c``, one of a pair of neighbours each."""
    left = node.left
    if isinstance(node, _ORDER) and isinstance(left, _ORDER):
        before = _chain(left)
        return [*before, (before[-1][2], _OPS[type(node)], node.right)]
    return [(left, _OPS[type(node)], node.right)]


def _said(node: Expr) -> str:
    return node.sql(SparkText)
