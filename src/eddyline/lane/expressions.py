"""Output columns and conditions on results, computed by Arrow as Spark would.

What comes in: SQL of one of them, and the types of the columns that it reads. What goes out: a
tree of ``Values``, which a task or the driver evaluates over an Arrow table.

Invariant: each value is that of Spark, with its NULL, NaN and -0.0. Where Spark raises an error,
evaluation raises a ``QueryError``, and nowhere else. So an expression is left to Spark
(``column_values`` returns None) if it calls a function that is not in ``CALLS``, has a decimal or a
32-bit float, reads a column whose text has a collation, or may raise where Spark would perhaps not
evaluate it: behind AND, OR, CASE and COALESCE, and right of an operand that may be NULL.

Read ``_Compiler`` first: a method for each family of nodes. ``KERNELS`` has what Arrow lacks.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from eddyline.errors import NotSupportedError, QueryError
from eddyline.sql.analysis import Expression
from eddyline.sql.literals import constant_of
from eddyline.sql.parsing import SparkText, deep, parse_output
from eddyline.sql.types import BOOLEAN, DOUBLE, STRING, parse_type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlglot import Expr

    from eddyline.sql.types import SqlType

ARROW_TYPES = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
"""The types that are computed, by Spark's names."""

Path = tuple[str | int, ...]
"""Name of a column, and the places of the fields that lead to a part of it."""


# -- evaluation -----------------------------------------------------------------------------------


class Values(Protocol):
    """One value for each row of a table."""

    def over(self, table: pa.Table) -> Any:
        """Return the values: an array, chunked or not, or one scalar for all rows."""
        ...


@dataclass(frozen=True, slots=True)
class ColumnValues:
    """The values of a column, or of a field of a struct column."""

    path: Path
    type: pa.DataType | None = None
    """Their type, where it has to be this one."""

    def over(self, table: pa.Table) -> Any:
        """Return the values."""
        name, *fields = self.path
        column = table[name]
        if fields:
            column = pc.struct_field(column, fields)
        return column if self.type in (None, column.type) else column.cast(self.type)


@dataclass(frozen=True, slots=True)
class Constant:
    """The same value in each row."""

    value: Any
    type: pa.DataType

    def over(self, table: pa.Table) -> Any:  # noqa: ARG002 - the same for each table
        """Return the value."""
        return pa.scalar(self.value, self.type)


@dataclass(frozen=True, slots=True)
class Cast:
    """Values as another type, which has all of them."""

    values: Values
    type: pa.DataType

    def over(self, table: pa.Table) -> Any:
        """Return the values; a bigint that a double lacks is rounded as Spark rounds it."""
        return pc.cast(self.values.over(table), self.type, safe=False)


@dataclass(frozen=True, slots=True)
class Kernel:
    """What a function makes of values."""

    name: str
    """Of ``KERNELS``, or of a function of Arrow."""
    operands: tuple[Values, ...]

    def over(self, table: pa.Table) -> Any:
        """Return the values.

        Raises:
            pa.ArrowInvalid: a value does not fit its type, or a number is divided by 0.
        """
        values = [operand.over(table) for operand in self.operands]
        kernel = KERNELS.get(self.name)
        return kernel(*values) if kernel else pc.call_function(self.name, values)


@dataclass(frozen=True, slots=True)
class Computed:
    """An output column, with the text that errors show."""

    text: str
    values: Values

    def over(self, table: pa.Table) -> Any:
        """Return the values.

        Raises:
            QueryError: one of them does not fit its type, or divides by 0.
        """
        try:
            values = self.values.over(table)
        except pa.ArrowInvalid as error:
            msg = (
                f"output column {self.text!r} has no value in a row: {error}. Use a wider type, or "
                f"a function that gives NULL then, such as try_add or try_divide"
            )
            raise QueryError(msg, column=self.text) from error
        if isinstance(values, pa.Scalar):
            return pa.repeat(values, table.num_rows)
        return values


def _divided(left: Any, right: Any) -> Any:
    """Return quotients of doubles.

    Raises:
        pa.ArrowInvalid: a number is divided by 0.
    """
    is_zero = pc.and_kleene(pc.equal(right, 0.0), pc.is_valid(left))
    if pc.any(is_zero).as_py():
        msg = "divide by zero"
        raise pa.ArrowInvalid(msg)
    return pc.divide(left, right)


def _divided_or_null(left: Any, right: Any) -> Any:
    """Return quotients of doubles, NULL where a number is divided by 0."""
    null = pa.scalar(None, pa.float64())
    return pc.divide(left, pc.if_else(pc.equal(right, 0.0), null, right))


def _float_equal(left: Any, right: Any) -> Any:
    """Return whether doubles are equal; NaN equals NaN."""
    return pc.or_kleene(pc.equal(left, right), pc.and_kleene(pc.is_nan(left), pc.is_nan(right)))


def _float_greater(left: Any, right: Any) -> Any:
    """Return whether doubles are greater; NaN is greater than any number."""
    is_nan = pc.and_kleene(pc.is_nan(left), pc.invert(pc.is_nan(right)))
    return pc.or_kleene(pc.greater(left, right), is_nan)


def _chosen(*values: Any) -> Any:
    """Return the value behind the first condition that is true: conditions, values, the default."""
    n_cases = len(values) // 2
    chosen = values[-1]
    for condition, value in reversed([*zip(values[:n_cases], values[n_cases:-1], strict=True)]):
        chosen = pc.if_else(pc.fill_null(condition, fill_value=False), value, chosen)
    return chosen


KERNELS: dict[str, Callable[..., Any]] = {
    "divided": _divided,
    "divided or null": _divided_or_null,
    "float =": _float_equal,
    "float >": _float_greater,
    "chosen": _chosen,
    "joined": lambda *texts: pc.binary_join_element_wise(*texts, ""),
}
"""Functions that Arrow does not have, or has with another meaning."""


# -- compilation ----------------------------------------------------------------------------------


class _LeftToSpark(Exception):
    """Spark has to compute the column."""


@deep
def column_values(
    text: str,
    columns: Mapping[str, str],
    path_of: Callable[[tuple[str, ...]], Path | None],
    *,
    ansi: bool,
) -> tuple[Values, SqlType] | None:
    """Return how an output column is computed, and its type; None if Spark has to compute it.

    Args:
        text: SQL, perhaps with an alias.
        columns: name and Spark type of each column of the table.
        path_of: returns where a column is; None if its values cannot be used.
        ansi: whether Spark raises an error where ANSI SQL does.
    """
    try:
        tree = parse_output(text).unnest()
        expression = Expression(
            text, "output column", columns, ansi=ansi, qualifiers=None, tree=tree
        )
        values = _Compiler(expression, path_of).values(expression.tree)
        return Computed(text, values), expression.type_of(expression.tree)
    except (_LeftToSpark, QueryError, NotSupportedError):
        return None


class _Compiler:
    """Makes values of the nodes of an expression."""

    def __init__(
        self, expression: Expression, path_of: Callable[[tuple[str, ...]], Path | None]
    ) -> None:
        self._expression = expression
        self._path_of = path_of

    def values(self, node: Expr) -> Values:
        """Return the values of a node, of the type that it has."""
        node = node.unnest()
        constant = constant_of(node)
        if constant is not None:
            return self._constant(node, constant.value)
        if isinstance(node, exp.Anonymous):
            rule = CALLS.get(str(node.this).lower())
        else:
            rule = NODES.get(type(node))
        if rule is None:
            raise _LeftToSpark
        return rule(self, node)

    def _type(self, node: Expr) -> SqlType:
        return self._expression.type_of(node)

    def _constant(self, node: Expr, value: Any) -> Values:
        kind = self._type(node)
        if kind.family not in ("integer", "string", "boolean") and kind.text != "double":
            raise _LeftToSpark
        return Constant(value, ARROW_TYPES[kind.text])

    def column(self, node: Expr) -> Values:
        """Return the values of a column."""
        assert isinstance(node, exp.Column)
        path = None if node.is_star else self._path_of(tuple(part.name for part in node.parts))
        kind = self._type(node).text
        if path is None or kind not in ARROW_TYPES:
            raise _LeftToSpark
        return ColumnValues(path, ARROW_TYPES[kind])

    def as_type(self, node: Expr, kind: SqlType) -> Values:
        """Return the values of a node as a type to which Spark casts them without an error."""
        before = self._type(node)
        if kind.text == DOUBLE.text and before.family == "decimal":
            constant = constant_of(node)
            if constant is None or not isinstance(constant.value, Decimal):
                raise _LeftToSpark
            return Constant(float(constant.value), pa.float64())
        values = self.values(node)
        if before.text == kind.text:
            return values
        is_wider = before.family == kind.family == "integer" and _bits(before) < _bits(kind)
        if before.family != "integer" or not (is_wider or kind.text in (DOUBLE.text, STRING.text)):
            raise _LeftToSpark
        return Cast(values, ARROW_TYPES[kind.text])

    def _never_raises(self, *nodes: Expr) -> None:
        """Leave it to Spark if one of some nodes may raise, as Spark may not evaluate it."""
        if any(self._expression.facts(node).reason for node in nodes):
            raise _LeftToSpark

    # -- arithmetic -------------------------------------------------------------------------------

    def sum(self, node: Expr) -> Values:
        """Return a sum, a difference or a product."""
        kind = self._type(node)
        if kind.family != "integer" and kind.text != DOUBLE.text:
            raise _LeftToSpark
        # Spark asks for the right operand where the left one is not NULL.
        self._never_raises(node.expression)
        operands = self.as_type(node.this, kind), self.as_type(node.expression, kind)
        return Kernel(self._checked(SUMS[type(node)], kind), operands)

    def _checked(self, name: str, kind: SqlType) -> str:
        """Return the function that raises an error where a value does not fit its type."""
        is_checked = kind.family == "integer" and self._expression.ansi
        return f"{name}_checked" if is_checked else name

    def quotient(self, node: Expr) -> Values:
        """Return a quotient of doubles."""
        if self._type(node).text != DOUBLE.text:
            raise _LeftToSpark
        self._never_raises(node.this, node.expression)
        operands = self.as_type(node.this, DOUBLE), self.as_type(node.expression, DOUBLE)
        return Kernel("divided" if self._expression.ansi else "divided or null", operands)

    def negative(self, node: Expr) -> Values:
        """Return the opposite of numbers."""
        return self._of_number(node.this, "negate")

    def absolute(self, node: Expr) -> Values:
        """Return numbers without their signs."""
        (number,) = _operands(node, 1)
        return self._of_number(number, "abs")

    def _of_number(self, number: Expr, name: str) -> Values:
        kind = self._type(number)
        if kind.family != "integer" and kind.text != DOUBLE.text:
            raise _LeftToSpark
        return Kernel(self._checked(name, kind), (self.values(number),))

    # -- conditions -------------------------------------------------------------------------------

    def comparison(self, node: Expr) -> Values:
        """Return whether a comparison holds."""
        return self._compared(type(node), node.this, node.expression)

    def _compared(self, kind: type[Expr], left: Expr, right: Expr) -> Values:
        # Whichever side Spark evaluates first.
        self._never_raises(left, right)
        if kind in (exp.LT, exp.LTE):
            kind = {exp.LT: exp.GT, exp.LTE: exp.GTE}[kind]
            left, right = right, left
        one, other = self._type(left), self._type(right)
        families = {one.family, other.family}
        if families == {"integer"}:
            common = one if _bits(one) >= _bits(other) else other
        elif "float" in families and families <= {"integer", "float", "decimal"}:
            common = DOUBLE
        elif len(families) == 1 and families <= {"string", "date", "timestamp", "timestamp_ntz"}:
            common = one
        else:
            raise _LeftToSpark
        operands = self.as_type(left, common), self.as_type(right, common)
        if common.text != DOUBLE.text:
            return Kernel(COMPARISONS[kind], operands)
        equal, greater = Kernel("float =", operands), Kernel("float >", operands)
        if kind is exp.EQ:
            return equal
        if kind is exp.NEQ:
            return Kernel("invert", (equal,))
        return greater if kind is exp.GT else Kernel("or_kleene", (greater, equal))

    def between(self, node: Expr) -> Values:
        """Return whether values are in a range."""
        low = self._compared(exp.GTE, node.this, node.args["low"])
        return Kernel("and_kleene", (low, self._compared(exp.LTE, node.this, node.args["high"])))

    def among(self, node: Expr) -> Values:
        """Return whether values are among others."""
        others = node.expressions
        if not others:
            raise _LeftToSpark
        first, *rest = (self._compared(exp.EQ, node.this, other) for other in others)
        is_among = first
        for is_equal in rest:
            is_among = Kernel("or_kleene", (is_among, is_equal))
        return is_among

    def connective(self, node: Expr) -> Values:
        """Return whether both conditions hold, or one of them."""
        self._never_raises(node.this, node.expression)
        operands = self.as_type(node.this, BOOLEAN), self.as_type(node.expression, BOOLEAN)
        return Kernel("and_kleene" if isinstance(node, exp.And) else "or_kleene", operands)

    def negation(self, node: Expr) -> Values:
        """Return whether a condition does not hold."""
        return Kernel("invert", (self.as_type(node.this, BOOLEAN),))

    def is_null(self, node: Expr) -> Values:
        """Return whether values are NULL."""
        if not isinstance(node.expression, exp.Null):
            raise _LeftToSpark
        return Kernel("is_null", (self.values(node.this),))

    # -- what chooses among values ----------------------------------------------------------------

    def case(self, node: Expr) -> Values:
        """Return the value behind the first condition that is true."""
        if node.this is not None and not isinstance(node, exp.If):
            raise _LeftToSpark
        cases = [node] if isinstance(node, exp.If) else node.args["ifs"]
        default = node.args.get("false" if isinstance(node, exp.If) else "default")
        kind = self._type(node)
        if kind.text not in ARROW_TYPES:
            raise _LeftToSpark
        conditions = [case.this for case in cases]
        results = [case.args["true"] for case in cases]
        self._never_raises(*conditions, *results, *([] if default is None else [default]))
        tests = [self.as_type(condition, BOOLEAN) for condition in conditions]
        values = [self._or_null(result, kind) for result in results]
        last = self._null(kind) if default is None else self._or_null(default, kind)
        return Kernel("chosen", (*tests, *values, last))

    def _or_null(self, node: Expr, kind: SqlType) -> Values:
        is_null = isinstance(node.unnest(), exp.Null)
        return self._null(kind) if is_null else self.as_type(node, kind)

    @staticmethod
    def _null(kind: SqlType) -> Values:
        return Constant(None, ARROW_TYPES[kind.text])

    def first_not_null(self, node: Expr) -> Values:
        """Return the first value that is not NULL."""
        kind, operands = self._type(node), node.expressions
        if kind.text not in ARROW_TYPES or not operands:
            raise _LeftToSpark
        self._never_raises(*operands)
        values = tuple(self._or_null(operand, kind) for operand in operands)
        return Kernel("coalesce", values)

    # -- texts and casts --------------------------------------------------------------------------

    def joined(self, node: Expr) -> Values:
        """Return texts one behind the other; NULL if one of them is."""
        is_call = isinstance(node, exp.Anonymous)
        operands = node.expressions if is_call else [node.this, node.expression]
        if self._type(node).text != STRING.text or not operands:
            raise _LeftToSpark
        self._never_raises(*operands)
        return Kernel("joined", tuple(self.as_type(operand, STRING) for operand in operands))

    def length(self, node: Expr) -> Values:
        """Return the number of characters of texts."""
        (text,) = _operands(node, 1)
        if self._type(text).text != STRING.text:
            raise _LeftToSpark
        return Kernel("utf8_length", (self.values(text),))

    def cast(self, node: Expr) -> Values:
        """Return values as a type that has all of them."""
        to = node.args["to"]
        if to.args.get("collate"):
            raise _LeftToSpark
        return self.as_type(node.this, parse_type(to.sql(SparkText)))


def _operands(node: Expr, n_operands: int) -> Sequence[Expr]:
    if len(node.expressions) != n_operands:
        raise _LeftToSpark
    return node.expressions


def _bits(kind: SqlType) -> int:
    return int(ARROW_TYPES[kind.text].bit_width)


SUMS: dict[type[Expr], str] = {exp.Add: "add", exp.Sub: "subtract", exp.Mul: "multiply"}

COMPARISONS: dict[type[Expr], str] = {
    exp.EQ: "equal",
    exp.NEQ: "not_equal",
    exp.GT: "greater",
    exp.GTE: "greater_equal",
}

NODES: dict[type[Expr], Callable[[_Compiler, Any], Values]] = {
    exp.Column: _Compiler.column,
    **dict.fromkeys(SUMS, _Compiler.sum),
    exp.Div: _Compiler.quotient,
    exp.Neg: _Compiler.negative,
    **dict.fromkeys((*COMPARISONS, exp.LT, exp.LTE), _Compiler.comparison),
    exp.Between: _Compiler.between,
    exp.In: _Compiler.among,
    exp.And: _Compiler.connective,
    exp.Or: _Compiler.connective,
    exp.Not: _Compiler.negation,
    exp.Is: _Compiler.is_null,
    exp.Case: _Compiler.case,
    exp.If: _Compiler.case,
    exp.DPipe: _Compiler.joined,
    exp.Cast: _Compiler.cast,
}
"""What makes values of each type of node."""

CALLS: dict[str, Callable[[_Compiler, Any], Values]] = {
    "abs": _Compiler.absolute,
    "coalesce": _Compiler.first_not_null,
    "ifnull": _Compiler.first_not_null,
    "nvl": _Compiler.first_not_null,
    "concat": _Compiler.joined,
    **dict.fromkeys(("length", "len", "char_length", "character_length"), _Compiler.length),
}
"""What makes values of each function."""
