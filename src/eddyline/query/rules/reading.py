"""A rule being taken apart: the operands and constants of its tests, and the errors of operands.

A leaf becomes a test of one operand where exact mathematics on values is what Spark does; any other
leaf stays a condition that Spark evaluates. An operand that may raise is written in a form that is
NULL instead (``sql.error_free``), and its error stands beside each test of it. Functions for each
type of node, which the table of ``reader`` lists, turn conditions into tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from eddyline.query.conditions import MayRaise, NativeTest, Operand, Raise
from eddyline.query.rules.python_calls import function_test
from eddyline.sql.error_free import NoFormError, is_surely_evaluated
from eddyline.sql.functions import says_collation
from eddyline.sql.literals import constant_of, scalars_for
from eddyline.sql.parsing import SparkText, offset_of, refuse
from eddyline.sql.rendering import string_literal
from eddyline.sql.types import BOOLEAN, STRING, TIMES, common_type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlglot import Expr

    from eddyline.query.conditions import Node
    from eddyline.query.predicates import FunctionPredicate
    from eddyline.sql.analysis import Expression
    from eddyline.sql.literals import Scalar, SqlConstant
    from eddyline.sql.names import ColumnRef
    from eddyline.sql.types import SqlType

    NodeReader = Callable[["Reading", Any], Node | None]

COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
"""Comparisons that are NULL where a side is."""

_SIMPLE = ("integer", "decimal", "float", "string", "boolean", "date", *TIMES)
"""Families of types whose values are worth handing over."""

_WHY_NATIVE = "it is no comparison of one expression with constants that is known to be exact"

_MAX_SHOWN = 100
"""Characters of a text that an error shows."""


class Reading:
    """The tree of one rule as it becomes a tree of tests.

    Python predicates are found by the ``id`` of the nodes that stand for their calls. A reader, one
    for each type of node, returns None where Spark must evaluate it.
    """

    def __init__(
        self,
        expression: Expression,
        columns: Mapping[str, str],
        predicates: Mapping[int, FunctionPredicate],
        readers: Mapping[type[Expr], NodeReader],
    ) -> None:
        self.expression = expression
        self._columns = columns
        self._predicates = predicates
        self._readers = readers
        self._errors: dict[int, tuple[Operand | NativeTest, Raise]] = {}  # by id of the first

    def whole(self) -> Node:
        """Return the tests of the whole rule.

        Raises:
            UnwritableError: it holds what is not known well enough, or may raise and has no form
                that gives NULL instead.
            NotSupportedError: it calls a Python function inside a larger expression.
        """
        tree = self.node(self.expression.tree)
        return self._with_errors(tree) if self._errors else tree

    def node(self, node: Expr) -> Node:
        """Return the tests of a condition."""
        while isinstance(node, exp.Paren):
            node = node.this
        if id(node) in self._predicates:
            return function_test(self._predicates[id(node)])
        self.check_is_condition(node)
        read = self._readers.get(type(node))
        found = None if read is None else read(self, node)
        return self._native(node) if found is None else found

    def is_read(self, node: Expr) -> bool:
        """Return whether a condition may become tests, or stays with Spark for sure."""
        return self.is_call(node) or type(node) in self._readers

    def is_call(self, node: Expr) -> bool:
        """Return whether a node stands for a call of a Python function."""
        return id(node) in self.expression.calls

    def check_is_condition(self, node: Expr) -> None:
        """Refuse what surely is not a condition, but of another type."""
        expression = self.expression
        kind = expression.type_of(node)
        is_root = node is expression.tree
        # In ANSI mode Spark reads a string as a boolean, but not as a whole condition.
        is_read = kind.family == "string" and expression.ansi and not is_root
        is_part = kind.family == "null" and not is_root
        if kind.family in ("boolean", "other") or is_part or is_read:
            return
        message = f"{expression.what} is not a condition: it is of type {kind.text}"
        if not is_root:
            message = f"{expression.what}: this part is not a condition, but of type {kind.text}"
        refuse(message, expression.text, offset_of(node))

    # Operands and constants

    def constant(self, node: Expr) -> SqlConstant | None:
        """Return the constant that a node is (None: it is none)."""
        return None if self.is_call(node.unnest()) else constant_of(node)

    def text(self, node: Expr) -> str | None:
        """Return the text that a node is (None: it is no literal, or none of a text)."""
        constant = self.constant(node)
        return str(constant.value) if constant and constant.family == "string" else None

    def operand(self, node: Expr) -> Operand | None:
        """Return the operand of a test, or None if its values should stay in Spark."""
        inner = node.unnest()
        is_plain = not self.is_call(inner) and not says_collation(inner)
        if not is_plain or not inner.find(exp.Column, exp.Anonymous):
            return None
        facts = self.expression.facts(inner)
        columns = self.expression.columns_of(inner)
        if facts.type.family not in _SIMPLE or not columns or any(map(self._is_odd, columns)):
            return None
        if facts.type.family in TIMES and not isinstance(inner, exp.Column):
            return None  # which of the two a TIMESTAMP is, is a setting of the session
        if facts.reason:
            return self._operand_that_may_raise(inner)
        return Operand(self.expression.write(inner), facts.type, columns)

    def text_operand(self, node: Expr) -> Operand | None:
        """Return the operand of a test of texts, or None."""
        operand = self.operand(node)
        return operand if operand is not None and operand.type.family == "string" else None

    def _is_odd(self, column: str) -> bool:
        """Return whether texts of a column are not compared byte by byte."""
        kind = self._columns[column].lower()
        return "collate" in kind or "char(" in kind

    def scalars(self, operand: Operand, constants: Sequence[SqlConstant]) -> list[Scalar] | None:
        """Return the values that an operand is compared with, or None if Spark must compare.

        Raises:
            NoFormError: the operand may raise, and Spark may know an answer without it.
        """
        values = scalars_for(operand.type, constants)
        is_risky = id(operand) in self._errors and values is not None
        if is_risky and not is_surely_evaluated(operand.type, values or ()):
            raise NoFormError("a comparison with a constant of another type")
        return values

    def as_met(self, node: Expr, others: Sequence[Expr]) -> Expr:
        """Return a side of a comparison with the cast that Spark puts in where it is a string."""
        type_of = self.expression.type_of
        if not self.expression.ansi or type_of(node) != STRING or constant_of(node):
            return node
        met = [kind for kind in map(type_of, others) if kind.family != "null"]
        kinds = {common_type(STRING, kind) for kind in met}
        common = next(iter(kinds)) if len(kinds) == 1 else STRING
        is_same = common == STRING or not common.is_known
        return node if is_same else self.expression.cast(node, common)

    # Conditions of Spark, and errors

    def _native(self, node: Expr) -> NativeTest:
        facts = self.expression.facts(node)
        is_read = facts.type.family == "string"  # as a boolean, by AND, OR and NOT
        if facts.reason or (self.expression.ansi and is_read):
            return self._native_that_may_raise(node, BOOLEAN if is_read else None)
        if facts.type.family == "other" and node is not self.expression.tree:
            raise NoFormError(f"a condition of type {facts.type.text}")
        text = self.expression.write(node)
        text = f"CAST({text} AS BOOLEAN)" if is_read else text
        return NativeTest(text, self.expression.columns_of(node), _WHY_NATIVE)

    def _native_that_may_raise(self, node: Expr, kind: SqlType | None) -> NativeTest:
        sides = [node.this, node.expression] if type(node) in COMPARED else []
        kinds = {self.expression.type_of(side).text for side in sides} - {STRING.text}
        if len(kinds) > 1 and not all(side.find(exp.Column) for side in sides):
            raise NoFormError("a comparison with a constant of another type")  # see scalars
        form, error = self._error(node, kind)
        test = NativeTest(form, self.expression.columns_of(node), _WHY_NATIVE)
        self._errors[id(test)] = test, error
        return test

    def _operand_that_may_raise(self, node: Expr) -> Operand:
        kind = self.expression.type_of(node)
        if kind.family == "decimal" and not isinstance(node, exp.Cast):
            raise NoFormError("arithmetic of decimals")  # its type is wider here than in Spark
        form, error = self._error(node, None)
        operand = Operand(form, kind, self.expression.columns_of(node))
        self._errors[id(operand)] = operand, error
        return operand

    def _error(self, node: Expr, kind: SqlType | None) -> tuple[str, Raise]:
        """Return the form of an expression that gives NULL where it raises, and its error."""
        if not self.expression.ansi:
            raise NoFormError(type(node).__name__)
        form = self.expression.error_free(node, kind)
        references = self.expression.references_in(node)
        shown = {ref.text: ref for ref in references if ref.type.family in _SIMPLE}
        if not shown or form.raised is None:
            raise NoFormError("an expression of which it is not known where it raises")
        fields = ", ".join(_field(shown[text]) for text in sorted(shown))
        sql = f"CASE WHEN {form.raised} THEN to_json(named_struct({fields})) END"
        operand = Operand(sql, STRING, self.expression.columns_of(node))
        text = node.sql(SparkText, normalize_functions=False, comments=False)
        reason = self.expression.facts(node).reason or f"{text} is read as a boolean"
        return form.sql, Raise(operand, text, reason, ", ".join(form.advice))

    def _with_errors(self, node: Node) -> Node:
        """Return a tree in which each test of what may raise has its error."""
        subject = node if isinstance(node, NativeTest) else getattr(node, "operand", None)
        _, error = self._errors.get(id(subject), (None, None))
        if error is None:
            return node.map(self._with_errors)
        return MayRaise(node, error)  # type: ignore[arg-type]  # only tests have a subject


def _field(ref: ColumnRef) -> str:
    """Return a column as a field of a struct that an error shows."""
    value = f"left({ref.text}, {_MAX_SHOWN})" if ref.type == STRING else ref.text
    return f"{string_literal(ref.text.replace('`', ''))}, {value}"
