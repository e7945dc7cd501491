"""The form of an expression that gives NULL where the expression raises, and where that is.

A condition that may raise becomes a test over the form, which all rules share, and a condition
that says on which rows the expression raises. That is exact for expressions that are *strict* in
what may raise: arithmetic, casts, comparisons, functions that are NULL exactly when an argument
is. Of such an expression whose operands are all there, NULL says that it raises. Where an operand
is NULL the expression is NULL too, although Spark may have looked at another operand first and
raised. CASE, COALESCE and others say for themselves when a part of them raises. What is in no
table here has no form.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from sqlglot import exp

from eddyline.sql.functions import CASTS, STRICT
from eddyline.sql.inference import as_call, has_opposite
from eddyline.sql.literals import constant_of
from eddyline.sql.parsing import SparkText
from eddyline.sql.rendering import UnwritableError
from eddyline.sql.try_form import MATCHES, OPERATORS, SIGNS, STRICT_CASTS, TRIES
from eddyline.sql.types import (
    BIGINT,
    DOUBLE,
    MAX_PRECISION,
    STRING,
    SqlType,
    cast_may_raise,
    common_type,
    integer,
    parse_type,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlglot import Expr

    from eddyline.sql.inference import FactsReader
    from eddyline.sql.literals import Scalar
    from eddyline.sql.rendering import SqlWriter

STRICT_NUMBERS = frozenset(
    {"round", "bround", "sqrt", "cbrt", "exp", "expm1", "rint", "sign", "signum", "pow", "power"}
)
"""Functions of numbers that are NULL exactly when an argument is."""

MAX_LENGTH = 4000
"""Characters of a form: some forms name a part several times."""


class NoFormError(UnwritableError):
    """An expression that may raise has no form that gives NULL."""


@dataclass(frozen=True, slots=True)
class NullForm:
    """An expression that may raise, written so that it does not."""

    sql: str
    """NULL where the expression raises or is NULL, else its value; of the same type."""
    raised: str
    """A condition, never NULL: whether the expression raises on a row."""
    advice: tuple[str, ...]
    """What does not raise: ``try_add``."""


def is_surely_evaluated(kind: SqlType, values: Sequence[Scalar]) -> bool:
    """Return whether Spark surely evaluates an operand to compare it with constants.

    Where a constant is no value of the operand's type, or the greatest or least, Spark may know
    the answer without the operand, which then does not raise.

    Args:
        kind: the operand's type.
        values: the constants.

    Example:
        >>> from eddyline.sql.types import INT
        >>> is_surely_evaluated(INT, [5]), is_surely_evaluated(INT, [2**31])
        (True, False)
    """
    if kind.family == "integer":
        full = integer(kind.text)
        return all(isinstance(each, int) and full.low < each < full.high for each in values)
    if kind.family == "decimal":
        limit = 10 ** (kind.precision - kind.scale)
        exact = (Fraction(each) for each in values)  # type: ignore[arg-type]
        return all(abs(each) < limit and (each * 10**kind.scale).denominator == 1 for each in exact)
    return kind.text != "float"


class NullForms:
    """Writes the forms of parts of one tree.

    Args:
        facts: what is known of the parts, in ANSI mode.
        writer: writes parts that do not raise.
    """

    def __init__(self, facts: FactsReader, writer: SqlWriter) -> None:
        self._facts = facts
        self._writer = writer
        self._advice: dict[str, None] = {}

    def of(self, node: Expr, kind: SqlType | None = None) -> NullForm:
        """Return the form of an expression.

        Args:
            node: the expression.
            kind: the type that it is cast to where it is a string, by what it meets.

        Raises:
            UnwritableError: it has none.
        """
        self._advice = {}
        part = self._part(node) if kind is None else self._brought(node, kind)
        return NullForm(part.sql, part.raised, tuple(self._advice))

    def _part(self, node: Expr) -> _Part:
        node = node.unnest()
        if not self._facts.facts(node).reason:
            return self._leaf(node)
        handler = self._HANDLERS.get(type(node))
        if handler is None:
            raise NoFormError(type(node).__name__)
        found = handler(self, node)
        if len(found.sql) > MAX_LENGTH:
            raise NoFormError(f"{type(node).__name__} of {len(found.sql)} characters")
        return found

    def _leaf(self, node: Expr) -> _Part:
        """Return a part that never raises."""
        sql = self._writer.write(node)
        constant = constant_of(node)
        is_there = constant is not None and constant.value is not None
        return _Part(sql, () if is_there else (f"{sql} IS NOT NULL",))

    # Strict: NULL exactly when a part is NULL or raises

    def _arithmetic(self, node: Expr) -> _Part:
        return self._computed(node, type(node), node.this, node.expression)

    def _computed(self, node: Expr, operation: type[Expr], left: Expr, right: Expr) -> _Part:
        common = common_type(self._kind(left), self._kind(right))
        if not common.is_numeric or self._kind(left) == self._kind(right) == STRING:
            raise NoFormError(type(node).__name__)
        a, b = (self._brought(each, common) for each in (left, right))
        if operation is exp.IntDiv:
            return self._divided(node, a, b, common, self._kind(left))
        if not self._facts.facts(node).raises_here:
            return _strict(f"({a.sql} {OPERATORS[operation]} {b.sql})", a, b)
        return _strict(f"{self._use(TRIES[operation])}({a.sql}, {b.sql})", a, b)

    def _divided(self, node: Expr, a: _Part, b: _Part, common: SqlType, left: SqlType) -> _Part:
        if common.family != "integer":
            raise NoFormError(type(node).__name__)
        self._use("nullif(…, 0) as divisor")
        divided = f"({a.sql} DIV nullif({b.sql}, 0))"
        least = left.low if left.family == "integer" else BIGINT.low
        if least > BIGINT.low:
            return _strict(divided, a, b)
        overflows = f"{a.sql} = {_least(BIGINT)} AND {b.sql} = -1"
        return _strict(f"if({overflows}, NULL, {divided})", a, b)

    def _negative(self, node: Expr) -> _Part:
        kind = self._kind(node.this)
        if kind == STRING:
            part = self._brought(node.this, DOUBLE)
        elif kind.family == "integer":
            part = self._above_least(node.this, kind)
        else:
            part = self._with_opposite(node.this)
        return _strict(f"(- {part.sql})", part)

    def _absolute(self, _node: Expr, args: Sequence[Expr]) -> _Part:
        kind = self._kind(args[0])
        if kind.family == "integer":
            part = self._above_least(args[0], kind)
        elif kind == STRING:
            part = self._brought(args[0], DOUBLE)
        else:
            part = self._with_opposite(args[0])
        return _strict(f"abs({part.sql})", part)

    def _with_opposite(self, node: Expr) -> _Part:
        if not has_opposite(self._kind(node)):
            raise NoFormError("a number without an opposite")
        return self._part(node)

    def _above_least(self, node: Expr, kind: SqlType) -> _Part:
        """Return a whole number, NULL if it is the least of its type: that has no opposite."""
        part = self._part(node)
        if kind.low > integer(kind.text).low:
            return part
        self._use("a wider type")
        return _strict(f"nullif({part.sql}, {_least(kind)})", part)

    def _compared(self, node: Expr) -> _Part:
        left, right = self._met(node.this, node.expression)
        return _strict(f"({left.sql} {SIGNS[type(node)]} {right.sql})", left, right)

    def _in(self, node: Expr) -> _Part:
        self._refuse_own_risk(node)
        constants = [constant_of(each) for each in node.expressions]
        if any(each is None or each.value is None for each in constants):
            raise NoFormError("IN")
        part = self._part(node.this)
        values = ", ".join(map(self._writer.write, node.expressions))
        return _strict(f"({part.sql} IN ({values}))", part)

    def _like(self, node: Expr) -> _Part:
        self._refuse_own_risk(node)
        if not isinstance(node.expression, exp.Literal):
            raise NoFormError("LIKE")
        part, pattern = self._part(node.this), self._writer.write(node.expression)
        negate = "NOT " if node.args.get("negate") else ""
        return _strict(f"({part.sql} {negate}{MATCHES[type(node)]} {pattern})", part)

    def _cast(self, node: Expr) -> _Part:
        if node.args.get("format") or node.args.get("action"):
            raise NoFormError("CAST")
        return self._cast_to(node.this, node.args["to"].sql(SparkText))

    def _cast_to(self, source: Expr, target: str) -> _Part:
        if parse_type(target).family not in STRICT_CASTS.get(self._kind(source).family, ()):
            raise NoFormError("CAST")
        part = self._part(source)
        return _strict(f"{self._use('try_cast')}({part.sql} AS {target})", part)

    def _call(self, node: Expr) -> _Part:
        name, args = as_call(node) or ("", [])
        special = self._CALLS.get((name, len(args))) or self._CALLS.get((name, -1))
        if special is not None:
            return special(self, node, args)
        if name in CASTS and len(args) == 1:
            return self._cast_to(args[0], name)
        self._refuse_own_risk(node)
        if name not in STRICT and name not in STRICT_NUMBERS:
            raise NoFormError(f"{name}()")
        parts = [self._part(arg) for arg in args]
        return _strict(f"{name}({', '.join(part.sql for part in parts)})", *parts)

    # Not strict: they say for themselves when a part raises

    def _null_if(self, node: Expr, args: Sequence[Expr]) -> _Part:
        self._refuse_own_risk(node)
        first, second = self._part(args[0]), self._safe(args[1])
        return _lax(f"nullif({first.sql}, {second})", first.raised)

    def _chosen(self, node: Expr, args: Sequence[Expr]) -> _Part:
        """Return COALESCE, of which only the first may raise."""
        self._refuse_own_risk(node)
        first, rest = self._part(args[0]), ", ".join(map(self._safe, args[1:]))
        chosen = f"coalesce({first.sql}, {rest})"
        return _lax(f"if({first.raised}, NULL, {chosen})", first.raised)

    def _case(self, node: Expr) -> _Part:
        """Return CASE or IF with conditions that never raise."""
        self._refuse_own_risk(node)
        chosen = f" {self._safe(node.this)}" if isinstance(node, exp.Case) and node.this else ""
        ifs = list(node.args.get("ifs") or [node])
        conditions = [f" WHEN {self._safe(each.this)} THEN " for each in ifs]
        values = [self._part(each.args["true"]) for each in ifs]
        default = node.args.get("default") or node.args.get("false")
        last = None if default is None else self._part(default)

        def written(results: Sequence[str], otherwise: str) -> str:
            arms = zip(conditions, results, strict=True)
            return f"CASE{chosen}{''.join(map(''.join, arms))} ELSE {otherwise} END"

        return _lax(
            written([each.sql for each in values], "NULL" if last is None else last.sql),
            written([each.raised for each in values], "FALSE" if last is None else last.raised),
        )

    # Shared

    def _safe(self, node: Expr) -> str:
        """Write a part that must not raise."""
        if self._facts.facts(node).reason:
            raise NoFormError(type(node).__name__)
        return self._writer.write(node)

    def _refuse_own_risk(self, node: Expr) -> None:
        if self._facts.facts(node).raises_here:
            raise NoFormError(type(node).__name__)

    def _met(self, left: Expr, right: Expr) -> tuple[_Part, _Part]:
        """Return two sides of a comparison, with the casts that Spark puts in."""
        common = common_type(self._kind(left), self._kind(right))
        if not common.is_known or common.precision > MAX_PRECISION:
            raise NoFormError(f"a comparison with {common.text}")
        for each in (left, right):
            facts = self._facts.facts(each)
            fails = cast_may_raise(facts.type, common, facts.literal)
            if facts.type.family not in ("string", "null") and fails:
                raise NoFormError(f"{facts.type.text} read as {common.text}")
        return self._brought(left, common), self._brought(right, common)

    def _brought(self, node: Expr, common: SqlType) -> _Part:
        """Return a part, cast as Spark does where it is a string and others are not."""
        facts = self._facts.facts(node)
        if facts.type != STRING or common == STRING:
            return self._part(node)
        if common.family not in STRICT_CASTS["string"]:
            raise NoFormError(f"string read as {common.text}")
        part = self._part(node)
        return _strict(f"{self._use('try_cast')}({part.sql} AS {common.text})", part)

    def _kind(self, node: Expr) -> SqlType:
        return self._facts.facts(node).type

    def _use(self, name: str) -> str:
        self._advice[name] = None
        return name

    _HANDLERS: ClassVar[dict[type, Callable[[NullForms, Any], _Part]]] = {
        **dict.fromkeys((*TRIES, exp.IntDiv), _arithmetic),
        exp.Neg: _negative,
        **dict.fromkeys(SIGNS, _compared),
        exp.In: _in,
        **dict.fromkeys(MATCHES, _like),
        exp.Cast: _cast,
        **dict.fromkeys((exp.Case, exp.If), _case),
        **dict.fromkeys((exp.Anonymous, exp.Substring, exp.Trim), _call),
    }

    _CALLS: ClassVar[dict[tuple[str, int], Callable[[NullForms, Any, Any], _Part]]] = {
        ("abs", 1): _absolute,
        ("mod", 2): lambda self, node, args: self._computed(node, exp.Mod, *args),
        ("div", 2): lambda self, node, args: self._computed(node, exp.IntDiv, *args),
        ("nullif", 2): _null_if,
        **dict.fromkeys((("coalesce", -1), ("nvl", 2), ("ifnull", 2)), _chosen),
    }


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a form."""

    sql: str
    """NULL where the part raises."""
    there: tuple[str, ...]
    """Conditions, never NULL: where all are true, NULL says that a strict part around it raises."""
    raised: str = "FALSE"
    """A condition, never NULL: whether the part raises."""


def _strict(sql: str, *parts: _Part) -> _Part:
    """Return a part that is NULL where one within it is, and else only where it raises."""
    there = tuple(dict.fromkeys(each for part in parts for each in part.there))
    return _Part(sql, there, f"({' AND '.join([*there, f'{sql} IS NULL'])})")


def _lax(sql: str, raised: str) -> _Part:
    """Return a part that may be NULL for other reasons."""
    return _Part(sql, (f"({sql} IS NOT NULL OR {raised})",), raised)


def _least(kind: SqlType) -> str:
    return f"CAST('{integer(kind.text).low}' AS {kind.text})"
