"""The form of a condition that never raises and may move in its place.

Only for *strict* conditions: one comparison (or NOT of one) of expressions that are NULL exactly
when one of their columns is NULL or a part of them raises. With every part that can raise replaced
by its ``try_`` form, such a condition is NULL only on rows where the condition itself is NULL or
raises; which of the two, is asked of each part. AND, OR, CASE, COALESCE and IS NULL are not
strict, so they have no form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from sqlglot import exp

from eddyline.sql.functions import CASTS, STRICT
from eddyline.sql.inference import as_call
from eddyline.sql.parsing import SparkText
from eddyline.sql.types import STRING, SqlType, cast_may_raise, common_type, parse_type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlglot import Expr

    from eddyline.sql.inference import FactsReader
    from eddyline.sql.names import ColumnRef

TRIES: dict[type[Expr], str] = {
    exp.Add: "try_add",
    exp.Sub: "try_subtract",
    exp.Mul: "try_multiply",
    exp.Div: "try_divide",
    exp.Mod: "try_mod",
}
"""The function that gives NULL where an operator raises."""
OPERATORS: dict[type[Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
}
"""Operators of arithmetic."""
SIGNS: dict[type[Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
}
"""Comparisons that are NULL where a side is."""
MATCHES: dict[type[Expr], str] = {
    exp.Like: "LIKE",
    exp.ILike: "ILIKE",
    exp.RegexpLike: "RLIKE",
}
"""Text patterns."""
STRICT_CASTS = {
    "string": ("integer", "float", "decimal", "boolean", "date", "timestamp", "timestamp_ntz"),
    "integer": ("integer", "float", "decimal", "string", "boolean"),
    "float": ("integer", "float", "string", "boolean"),
    "decimal": ("integer", "float", "decimal", "string", "boolean"),
    "boolean": ("integer", "float", "string", "boolean"),
    "date": ("date", "string"),
    "timestamp": ("date", "timestamp", "string"),
}
"""Casts that give NULL for NULL only. Not float to decimal: NaN becomes NULL without an error."""


class _NotStrictError(Exception):
    """A part of the condition is not strict, or its error has no form that gives NULL."""


def safe_form(
    tree: Expr, references: Mapping[int, ColumnRef], reader: FactsReader, text: str
) -> str | None:
    """Return a condition that never raises, true where the tree is true or may raise.

    Where one side of a comparison is NULL and the other would raise, Spark may not look at the
    other; the form is true there as well.
    """
    form = _TryForm(references, reader, text)
    try:
        written = form.of(tree)
    except _NotStrictError:
        return None
    return f"coalesce({written}, {form.may_raise()})"


class _TryForm:
    """Writes the form of one tree, and notes which parts of it can raise."""

    def __init__(self, references: Mapping[int, ColumnRef], reader: FactsReader, text: str) -> None:
        self._references = references
        self._reader = reader
        self._text = text
        self._columns: dict[str, None] = {}
        self._risks: list[tuple[Expr, str]] = []

    def may_raise(self) -> str:
        """Return a condition that is true on the rows on which a part may raise."""
        risks = [self._raised(part, form) for part, form in self._risks]
        return " OR ".join(dict.fromkeys(risks)) or "FALSE"

    def _raised(self, part: Expr, form: str) -> str:
        refs = (self._references.get(id(node)) for node in part.find_all(exp.Column))
        columns = dict.fromkeys(ref.text for ref in refs if ref is not None)
        there = [f"{column} IS NOT NULL" for column in columns]
        # If all columns are there, that the whole form is NULL says that the part is.
        asked = [] if columns.keys() == self._columns.keys() else [f"{form} IS NULL"]
        return " AND ".join([*there, *asked]) or "TRUE"

    def _risky(self, part: Expr, form: str) -> str:
        self._risks.append((part, form))
        return form

    def of(self, node: Expr) -> str:
        """Return the form of a node.

        Raises:
            _NotStrictError: there is none.
        """
        handler = self._HANDLERS.get(type(node))
        if handler is None:
            raise _NotStrictError
        return handler(self, node)

    def _column(self, node: Expr) -> str:
        found = self._references.get(id(node))
        if found is None or not found.type.is_known:
            raise _NotStrictError
        self._columns[found.text] = None
        return found.text

    def _literal(self, node: Expr) -> str:
        if "start" not in node.meta:
            raise _NotStrictError
        return self._text[node.meta["start"] : node.meta["end"] + 1]

    def _paren(self, node: Expr) -> str:
        return self.of(node.this)

    def _not(self, node: Expr) -> str:
        if self._reader.facts(node).raises_here:
            raise _NotStrictError
        return f"NOT ({self.of(node.this)})"

    def _negative(self, node: Expr) -> str:
        if not isinstance(node.this, exp.Literal):
            raise _NotStrictError
        return f"(-{self._literal(node.this)})"

    def _compared(self, node: Expr) -> str:
        left, right = self._met(node.this, node.expression)
        return f"({left} {SIGNS[type(node)]} {right})"

    def _between(self, node: Expr) -> str:
        low, high = node.args["low"], node.args["high"]
        kind = self._kind(node.this)
        if any(self._reader.facts(bound).reason for bound in (low, high)):
            raise _NotStrictError  # NULL AND false is false, where the bound itself would raise
        if self._reader.facts(node).raises_here or not kind.is_known:
            raise _NotStrictError
        return f"({self.of(node.this)} BETWEEN {self.of(low)} AND {self.of(high)})"

    def _in(self, node: Expr) -> str:
        if self._reader.facts(node).raises_here:
            raise _NotStrictError
        values = []
        for value in node.expressions:
            if self._reader.facts(value).reason or value.find(exp.Column, exp.Null):
                raise _NotStrictError
            values.append(self.of(value))
        return f"({self.of(node.this)} IN ({', '.join(values)}))"

    def _like(self, node: Expr) -> str:
        if self._reader.facts(node).raises_here or not isinstance(node.expression, exp.Literal):
            raise _NotStrictError
        sign = MATCHES[type(node)]
        negate = "NOT " if node.args.get("negate") else ""
        return f"({self.of(node.this)} {negate}{sign} {self._literal(node.expression)})"

    def _arithmetic(self, node: Expr) -> str:
        kinds = [self._kind(node.this), self._kind(node.expression)]
        if not common_type(*kinds).is_numeric:
            raise _NotStrictError
        left, right = self._met(node.this, node.expression)
        if not self._reader.facts(node).raises_here:
            return f"({left} {OPERATORS[type(node)]} {right})"
        return self._risky(node, f"{TRIES[type(node)]}({left}, {right})")

    def _cast(self, node: Expr) -> str:
        return self._cast_to(node, node.this, node.args["to"].sql(SparkText))

    def _cast_to(self, node: Expr, source: Expr, target: str) -> str:
        if parse_type(target).family not in STRICT_CASTS.get(self._kind(source).family, ()):
            raise _NotStrictError
        return self._risky(node, f"try_cast({self.of(source)} AS {target})")

    def _call(self, node: Expr) -> str:
        name, args = as_call(node) or ("", [])
        if name in CASTS and len(args) == 1:
            return self._cast_to(node, args[0], name)
        if name not in STRICT or self._reader.facts(node).raises_here:
            raise _NotStrictError
        return f"{name}({', '.join(self.of(arg) for arg in args)})"

    def _met(self, left: Expr, right: Expr) -> tuple[str, str]:
        """Write two operands, with the casts that Spark would put in where one is a string."""
        common = common_type(self._kind(left), self._kind(right))
        return self._brought(left, common), self._brought(right, common)

    def _brought(self, node: Expr, common: SqlType) -> str:
        facts = self._reader.facts(node)
        if facts.type != STRING or not cast_may_raise(facts.type, common, facts.literal):
            return self.of(node)
        if common.family not in STRICT_CASTS["string"]:
            raise _NotStrictError
        return self._risky(node, f"try_cast({self.of(node)} AS {common.text})")

    def _kind(self, node: Expr) -> SqlType:
        return self._reader.facts(node).type

    _HANDLERS: ClassVar[dict[type, Callable[[_TryForm, Any], str]]] = {
        exp.Column: _column,
        exp.Literal: _literal,
        exp.Paren: _paren,
        exp.Not: _not,
        exp.Neg: _negative,
        **dict.fromkeys(SIGNS, _compared),
        exp.Between: _between,
        exp.In: _in,
        **dict.fromkeys(MATCHES, _like),
        **dict.fromkeys(TRIES, _arithmetic),
        exp.Cast: _cast,
        **dict.fromkeys((exp.Anonymous, exp.Substring, exp.Trim), _call),
    }
