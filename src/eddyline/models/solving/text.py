"""Reading conditions and expressions over modelled attributes, as SQL texts.

Comparisons (chained ones too), BETWEEN, IN, AND, OR, NOT; ``+ - *``, division by a constant,
``pow(x, 2)``, ``abs``, ``sqrt`` and ``d(x)``, the slope of x per second. Positions (``earth``) also
have ``speed(track)``, ``distance(left.track, right.track)``, ``distance(track, 47.6, -122.3)``,
``east`` and ``north`` of a place, and ``lat(track)`` and ``lon(track)``, compared with numbers.
A term that is no polynomial is refused with its place in the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from sqlglot import exp

from eddyline.errors import NotSupportedError, OptionError, QueryError
from eddyline.models.solving import earth
from eddyline.models.solving.expressions import (
    MIRRORED,
    OPPOSITE,
    Absolute,
    And,
    Attribute,
    Comparison,
    Condition,
    Expression,
    Number,
    Or,
    Power,
    Product,
    Root,
    Slope,
    Sum,
    compared,
    difference,
    names_in,
    negative,
    parts_of,
    walk,
)
from eddyline.registry import unknown
from eddyline.sql.literals import constant_of
from eddyline.sql.parsing import SparkText, at, deep, depth_of, offset_of, parse_condition, place

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
"""Most levels of a condition, or of arithmetic."""
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
    return any(str(call.this).lower() == "sqrt" for call in calls)


@deep
def split_condition(
    text: str, attributes: Collection[str], others: Collection[str], *, mixes: bool = False
) -> tuple[list[str], Condition | None]:
    """Part a condition into those on other columns and one on modelled attributes.

    Each part between the outermost ANDs is about the one or the other.

    Args:
        text: as for ``read_condition``.
        attributes: the modelled attributes.
        others: the other columns that there are. Case does not matter.
        mixes: whether a part may be about both; it is one on attributes then.

    Returns:
        The parts that read no modelled attribute, as SQL, and the condition on attributes if any.

    Raises:
        QueryError: as of ``read_condition``.
        NotSupportedError: as of ``read_condition``, or a part is about both.
    """
    reader, tree = _Reader(text, attributes), parse_condition(text, "the condition")
    other_names = {name.lower() for name in others} - {name.lower() for name in attributes}
    native, modelled = [], []
    for part in tree.flatten() if isinstance(tree, exp.And) else [tree]:
        names = [column.name.lower() for column in part.find_all(exp.Column)]
        is_other = [name in other_names for name in names]
        if names and all(is_other):
            native.append(_sql(part))
            continue
        if any(is_other) and mixes:
            both = _Reader(
                text, [*attributes, *(name for name in others if name.lower() in other_names)]
            )
            modelled.append(both.condition(part, is_so=True))
            continue
        if any(is_other):
            raise reader.unsupported(
                f"{_sql(part)} compares modelled attributes with other columns, or joins both by "
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
    reader, expression = _Reader(text, names), arithmetic_of(tree, text, names)
    if not reader.is_closed(expression):
        message = "abs and sqrt are no polynomials: they stand only in conditions"
        raise reader.unsupported(message, tree)
    return expression


def arithmetic_of(tree: Expr, text: str, names: Collection[str]) -> Expression:
    """Return the same where abs and sqrt may stand in it, too."""
    reader = _Reader(text, names)
    return reader.shallow(reader.expression(tree), tree)


def read_attributes(name: str, text: str, names: Collection[str]) -> dict[str, Expression]:
    """Return the modelled attributes that make an output, by their names.

    Args:
        name: of the output: an attribute, a position, or a speed or distance of positions.
        text: as for ``read_expression``, or the name of a position.
        names: the attributes that the text may use.

    Raises:
        QueryError: as for ``read_expression``, or a position gets a name that is no position's.
        NotSupportedError: as for ``read_expression``.
    """
    tree = parse_condition(text, "the expression")
    reader = _Reader(text, names)
    place = reader.position(tree)
    if place is not None:
        if not earth.is_position(name):
            raise reader.wrong(
                f"{name!r} is a position, whose name ends in track, such as {name}_track", tree
            )
        return dict(zip(earth.coordinates(name), earth.point(place), strict=True))
    vector = earth.vector_in(arithmetic_of(tree, text, names)) if reader.is_length(tree) else None
    if vector is None:
        return {name: expression_of(tree, text, names)}
    return dict(zip(earth.components(name), vector, strict=True))


def is_length(tree: Expr, text: str, names: Collection[str]) -> bool:
    """Return whether a tree is a speed or a distance of positions."""
    return _Reader(text, names).is_length(tree)


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
            parts = tuple(self.condition(part, is_so=is_so) for part in node.flatten())
            return And(parts) if isinstance(node, exp.And) is is_so else Or(parts)
        if isinstance(node, exp.Between):
            low, high = node.args["low"], node.args["high"]
            bounds = [(low, "<=", node.this), (node.this, "<=", high)]
            return self._all_of(bounds, node, is_so=is_so)
        if isinstance(node, exp.In) and node.expressions:
            tests = [self._all_of([(node.this, "=", item)], node, is_so=is_so) for item in
                     node.expressions]  # fmt: skip
            return Or(tuple(tests)) if is_so else And(tuple(tests))
        if isinstance(node, exp.Binary) and type(node) in _OPS:
            return self._all_of(_chain(node), node, is_so=is_so)
        raise self.unsupported(
            f"{_sql(node)} is no comparison of modelled attributes; these are < <= = <> >= >, "
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
        for angle, its, limit in ((left, op, right), (right, MIRRORED[op], left)):
            call = angle.unnest()
            if _function(call) in {earth.LAT, earth.LON}:
                value = self._value(self.expression(limit), limit)
                return self._angle(call, its, value)
        one, other = self.expression(left), self.expression(right)
        if self.is_length(left) or self.is_length(right):
            lengths = earth.lengths_compared(one, op, other)
            if lengths is not None:
                return lengths
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
            makers = {exp.Add: Sum, exp.Sub: difference, exp.Mul: Product}
            return makers[type(node)](left, right)
        if isinstance(node, exp.Div):
            return self._quotient(node)
        if isinstance(node, exp.Anonymous):
            return self._call(node)
        return self._number(node)

    def _attribute(self, node: exp.Column) -> Expression:
        name = ".".join(part.name for part in node.parts)
        attribute = self._named(name, node)
        if attribute is not None:
            return Attribute(attribute)
        axes = [self._named(axis, node) for axis in earth.components(name)]
        if None not in axes:
            return earth.length([Attribute(axis) for axis in axes if axis is not None])
        if self.position(node) is not None:
            advice = f"distance({name}, 47.6, -122.3), speed({name}), lat({name}) or lon({name})"
            raise self.wrong(f"{name} is a position; write {advice}", node)
        raise self.wrong(unknown("modelled attribute", name, self._names), node)

    def _named(self, name: str, node: Expr) -> str | None:
        """Return the attribute of a name, None if there is none."""
        spellings = {attribute.lower(): attribute for attribute in self._names}
        if name.lower() in spellings:
            return spellings[name.lower()]
        short = [
            attribute for attribute in self._names if attribute.lower().endswith(f".{name.lower()}")
        ]
        if len(short) > 1:
            raise self.wrong(f"{name} may be {' or '.join(sorted(short))}: say which", node)
        return short[0] if short else None

    # -- positions --------------------------------------------------------------------------------

    def position(self, node: Expr) -> list[str] | None:
        """Return the attributes of the position that a node names, None if it names none."""
        node = node.unnest()
        name = ".".join(part.name for part in node.parts) if isinstance(node, exp.Column) else ""
        if not earth.is_position(name):
            return None
        axes = [self._named(axis, node) for axis in earth.coordinates(name)]
        return None if None in axes else [axis for axis in axes if axis is not None]

    def is_length(self, node: Expr) -> bool:
        """Return whether a node is a speed or a distance, or the name of one."""
        node = node.unnest()
        if isinstance(node, exp.Column):
            name = ".".join(part.name for part in node.parts)
            axes = earth.components(name)
            return self._named(name, node) is None and all(self._named(a, node) for a in axes)
        return _function(node) in {earth.SPEED, earth.DISTANCE}

    @property
    def _positions(self) -> list[str]:
        """The names of positions."""
        return earth.positions_in(self._names)

    @property
    def _more_functions(self) -> str:
        return f", and {', '.join(earth.FUNCTIONS)} of positions" if self._positions else ""

    def _position(self, node: Expr) -> earth.Vector:
        axes = self.position(node)
        if axes is None:
            named = self._positions
            raise self.wrong(
                f"{_sql(node)} is no position; {unknown('position', _sql(node), named)}"
                if named
                else f"{_sql(node)} is no position; fit one: track=('lat', 'lon')",
                node,
            )
        return earth.point(axes)

    def _of_position(self, node: exp.Anonymous, name: str) -> Expression:
        position, *others = node.expressions
        if name in {earth.LAT, earth.LON}:
            raise self.unsupported(
                f"{name}() is no polynomial: compare it with a number; results that are rows "
                f"have {earth.LAT} and {earth.LON} of each position",
                node,
            )
        here = self._position(position)
        if name == earth.SPEED:
            return earth.pace(here)
        if len(others) == 1:
            return earth.apart(here, self._position(others[0]))
        lat, lon = (self._value(self.expression(degree), degree) for degree in others)
        for word, value in ((earth.LAT, lat), (earth.LON, lon)):
            self._checked(word, value, node)
        if name == earth.DISTANCE:
            return earth.apart(here, earth.place(lat, lon))
        return earth.towards(here, lat, lon, name)

    def _angle(self, node: Expr, op: str, value: float) -> Condition:
        name = _function(node)
        if len(node.expressions) != 1:
            raise self.wrong(f"{name}() takes 1, got {len(node.expressions)}", node)
        self._checked(name, value, node)
        return earth.angle_compared(name, self._position(node.expressions[0]), op, value)

    def _checked(self, name: str, value: float, node: Expr) -> None:
        try:
            earth.check_degrees(name, value)
        except OptionError as error:
            raise self.wrong(error.message, node) from error

    # -- calls and numbers ------------------------------------------------------------------------

    def _quotient(self, node: exp.Div) -> Expression:
        divisor = self.expression(node.right)
        if names_in(divisor):
            raise self.unsupported(
                f"{_sql(node)} divides by a modelled attribute, which gives no polynomial; "
                "multiply both sides by it, with its sign in mind",
                node,
            )
        value = self._value(divisor, node.right)
        if value == 0:
            raise self.wrong(f"{_sql(node)} divides by 0", node)
        return Product(Number(1 / value), self.expression(node.left))

    def _call(self, node: exp.Anonymous) -> Expression:
        name = _function(node)
        if name in earth.FUNCTIONS:
            if len(node.expressions) not in earth.FUNCTIONS[name]:
                numbers = " or ".join(map(str, earth.FUNCTIONS[name]))
                raise self.wrong(f"{name}() takes {numbers}, got {len(node.expressions)}", node)
            return self._of_position(node, name)
        wanted = 2 if name in {"pow", "power"} else 1
        if name not in {*_FUNCTIONS, "pow", "power"}:
            raise self.unsupported(
                f"{name}() of a modelled attribute is no polynomial; abs, d, pow and sqrt may be "
                f"called{self._more_functions}",
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
                f"pow() takes a whole exponent from 0 to {HIGHEST_POWER}, got {_sql(node)}", node
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
        raise self.unsupported(f"{_sql(node)} is no constant; write a number", node)

    def _number(self, node: Expr) -> Expression:
        constant = constant_of(node)
        if constant is not None and constant.family == "null":
            raise self.wrong(  # NULL is a token that does not know its place
                "NULL compares as unknown with everything; leave the comparison out",
                node.parent or node,
            )
        if constant is None or constant.family not in {"integer", "decimal", "float"}:
            raise self.unsupported(
                f"{_sql(node)} is no finite number and no modelled attribute; conditions on "
                "other columns belong in WHERE before the model",
                node,
            )
        return Number(float(constant.value))  # type: ignore[arg-type]  # of these families: a number

    @staticmethod
    def is_closed(part: Expression) -> bool:
        """Return whether an expression is a polynomial."""
        return not any(isinstance(node, Absolute | Root) for node in walk(part))

    def shallow(self, value: Value, node: Expr) -> Value:
        """Return a value, or refuse a deep one, because workers walk trees by recursion."""
        levels = depth_of(value, _parts_of)
        if levels > MOST_LEVELS:
            message = (
                f"this is nested {levels} levels deep, and models solve at most {MOST_LEVELS}; "
                f"each term of a sum is a level, too: write it flatter"
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


def _function(node: Expr) -> str:
    """Return the name of the function that a node calls, in lower case; "" if it calls none."""
    return str(node.this).lower() if isinstance(node, exp.Anonymous) else ""


def _sql(node: Expr) -> str:
    return node.sql(SparkText)
