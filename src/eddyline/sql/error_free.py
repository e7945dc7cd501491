"""Expressions rewritten so that they never raise.

Filters, rules and joins use them. An expression that may raise becomes one that is NULL where the
expression raises, made of Spark's ``try_`` functions. That is exact for expressions that are
*strict* in the part that may raise: NULL wherever the part is, as arithmetic, casts, comparisons
and most functions are. CASE, COALESCE and NULLIF are not strict, and say for themselves where a
part of them raises. A type of node that has no rule for it in ``sql.nodes`` has no such form.

NULL alone does not tell an error from a NULL, so a form comes with two conditions, neither of which
is ever NULL:

* ``raised`` is true only where the expression raises: all operands are there, and the form is NULL.
  Where an operand is NULL it is false, although Spark may have evaluated another operand first, and
  raised. Rules use it: no row on which Spark has an answer becomes an error.
* ``may_raise`` is true wherever the expression raises, and perhaps where an operand is NULL and
  Spark did not look at the other. Filters use it: the rows that it lets pass are checked again.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlglot import exp

from eddyline.sql.functions import CASTS, STRICT, STRICT_NUMBERS, as_call
from eddyline.sql.literals import constant_of
from eddyline.sql.rendering import UnwritableError
from eddyline.sql.types import (
    MAX_PRECISION,
    STRING,
    SqlType,
    cast_may_raise,
    common_type,
    integer,
    parse_type,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlglot import Expr

    from eddyline.sql.inference import Inference
    from eddyline.sql.literals import Scalar
    from eddyline.sql.rendering import SqlWriter

    NodeRule = Callable[["Rewriter", Any], "FreePart"]
    CallRule = Callable[["Rewriter", Any, Sequence[Expr]], "FreePart"]

MAX_LENGTH = 4000
"""Characters of a form: some forms name a part several times."""

_STRICT_CASTS = {
    "string": ("integer", "float", "decimal", "boolean", "date", "timestamp", "timestamp_ntz"),
    "integer": ("integer", "float", "decimal", "string", "boolean"),
    "float": ("integer", "float", "string", "boolean"),
    "decimal": ("integer", "float", "decimal", "string", "boolean"),
    "boolean": ("integer", "float", "string", "boolean"),
    "date": ("date", "string"),
    "timestamp": ("date", "timestamp", "string"),
}
"""Casts that give NULL for NULL only. Not float to decimal: NaN becomes NULL without an error."""


class NoFormError(UnwritableError):
    """An expression that may raise has no form that gives NULL."""


class Risk(NamedTuple):
    """A part that raises where it is NULL although its operands are there."""

    there: tuple[str, ...]
    """Conditions, never NULL: whether each operand is there."""
    sql: str


@dataclass(frozen=True, slots=True)
class FreePart:
    """The form of an expression that never raises."""

    sql: str
    """NULL where the expression raises or is NULL, else its value; of the same type."""
    there: tuple[str, ...]
    """Conditions, never NULL: where all are true, NULL says that a strict part around it raises."""
    raised: str | None = "FALSE"
    """Condition: true where the expression raises, and only there; None: this is not known."""
    risks: tuple[Risk, ...] | None = ()
    """The parts that may raise; None: not all of them are known."""

    @property
    def may_raise(self) -> str | None:
        """Condition: true where the expression raises, perhaps on other rows; None: not known."""
        if self.risks is None:
            return None
        return " OR ".join(dict.fromkeys(map(self._may_raise_by, self.risks))) or "FALSE"

    @property
    def true_or_raises(self) -> str | None:
        """The condition that is true wherever the expression is true or raises, if it is known."""
        return None if self.may_raise is None else f"coalesce({self.sql}, {self.may_raise})"

    @property
    def surely_raised(self) -> str:
        """The condition ``raised``; NoFormError if it is not known."""
        if self.raised is None:
            raise NoFormError(self.sql)
        return self.raised

    def _may_raise_by(self, risk: Risk) -> str:
        # With all its operands there, this whole part is NULL only if something in it raises.
        is_null = [] if {*risk.there} == {*self.there} else [f"{risk.sql} IS NULL"]
        return " AND ".join([*risk.there, *is_null]) or "TRUE"


def strict(sql: str, *parts: FreePart, raises: bool = False) -> FreePart:
    """Return a part that is NULL where one below is, or, with ``raises``, where it raises."""
    there = tuple(dict.fromkeys(condition for part in parts for condition in part.there))
    is_known = all(part.raised is not None for part in parts)
    raised = f"({' AND '.join([*there, f'{sql} IS NULL'])})" if is_known else None
    risks: tuple[Risk, ...] | None = None
    if all(part.risks is not None for part in parts):
        below = [risk for part in parts for risk in part.risks or ()]
        risks = tuple(dict.fromkeys([*below, *([Risk(there, sql)] if raises else [])]))
    return FreePart(sql, there, raised, risks)


def lax(sql: str, raised: str) -> FreePart:
    """Return a part that raises where ``raised`` says, and may be NULL for other reasons."""
    return FreePart(sql, (f"({sql} IS NOT NULL OR {raised})",), raised, None)


class Rewriter:
    """Writes the forms of parts of one tree.

    The facts are those of ANSI mode; the writer writes what does not raise. Rules of functions are
    found by name and number of arguments (-1: any number).
    """

    def __init__(
        self,
        inference: Inference,
        writer: SqlWriter,
        nodes: Mapping[type[Expr], NodeRule],
        calls: Mapping[tuple[str, int], CallRule],
    ) -> None:
        self.inference = inference
        self._writer = writer
        self._nodes = nodes
        self._calls = calls
        self._advice: dict[str, None] = {}

    def form(self, node: Expr, kind: SqlType | None = None) -> tuple[FreePart, tuple[str, ...]]:
        """Return the form of an expression, and the functions that do not raise: ``try_add``.

        A string is read as ``kind``, to which Spark casts it by its place.

        Raises:
            UnwritableError: it has none.
        """
        self._advice = {}
        part = self.part(node) if kind is None else self.part_as(node, kind)
        return part, tuple(self._advice)

    def part(self, node: Expr) -> FreePart:
        """Return the form of a node, to be put into that of the node above it."""
        node = node.unnest()
        if not self.inference.facts(node).reason:
            sql = self._writer.write(node)
            constant = constant_of(node)
            is_there = constant is not None and constant.value is not None
            return FreePart(sql, () if is_there else (f"{sql} IS NOT NULL",))
        rule = self._nodes.get(type(node))
        if rule is None:
            raise NoFormError(type(node).__name__)
        form = rule(self, node)
        if len(form.sql) > MAX_LENGTH:
            raise NoFormError(f"{type(node).__name__} of {len(form.sql)} characters")
        return form

    def part_as(self, node: Expr, kind: SqlType) -> FreePart:
        """Return the form of a node, cast as Spark does where it is a string and others are not."""
        facts = self.inference.facts(node)
        if facts.type != STRING or kind == STRING:
            return self.part(node)
        raises = cast_may_raise(facts.type, kind, facts.literal)
        return self.cast(node, kind.text, raises=raises)

    def cast(self, node: Expr, target: str, *, raises: bool = True) -> FreePart:
        """Return the form of a cast; ``raises``: whether the cast itself may."""
        source = self.inference.type_of(node)
        if parse_type(target).family not in _STRICT_CASTS.get(source.family, ()):
            raise NoFormError(f"{source.text} read as {target}")
        part = self.part(node)
        return strict(f"{self.advise('try_cast')}({part.sql} AS {target})", part, raises=raises)

    def compared(self, left: Expr, right: Expr) -> tuple[FreePart, FreePart]:
        """Return the forms of both sides of a comparison, with the casts that Spark puts in."""
        common = common_type(self.inference.type_of(left), self.inference.type_of(right))
        if not common.is_known or common.precision > MAX_PRECISION:
            raise NoFormError(f"a comparison with {common.text}")
        for side in (left, right):
            facts = self.inference.facts(side)
            fails = cast_may_raise(facts.type, common, facts.literal)
            if facts.type.family not in ("string", "null") and fails:
                raise NoFormError(f"{facts.type.text} read as {common.text}")
        return self.part_as(left, common), self.part_as(right, common)

    def call(self, node: Expr) -> FreePart:
        """Return the form of a call."""
        name, args = as_call(node) or ("", [])
        special = self._calls.get((name, len(args))) or self._calls.get((name, -1))
        if special is not None:
            return special(self, node, args)
        if name in CASTS and len(args) == 1:
            return self.cast(args[0], name)
        self.refuse_own_risk(node)
        if name not in STRICT and name not in STRICT_NUMBERS:
            raise NoFormError(f"{name}()")
        parts = [self.part(arg) for arg in args]
        return strict(f"{name}({', '.join(part.sql for part in parts)})", *parts)

    def safe(self, node: Expr) -> str:
        """Return the text of a node that must not raise; NoFormError if it may."""
        if self.inference.facts(node).reason:
            raise NoFormError(type(node).__name__)
        return self._writer.write(node)

    def refuse_own_risk(self, node: Expr) -> None:
        """Raise NoFormError if a node's own work may raise: only the parts below it may."""
        if self.inference.facts(node).raises_here:
            raise NoFormError(type(node).__name__)

    def advise(self, name: str) -> str:
        """Return the name of a function that does not raise, and keep it for the user."""
        self._advice[name] = None
        return name


def is_surely_evaluated(kind: SqlType, values: Sequence[Scalar]) -> bool:
    """Return whether Spark surely evaluates an operand to compare it with constants.

    Where a constant is no value of the operand's type, or the greatest or least, Spark may know
    the answer without the operand, which then does not raise.

    Example:
        >>> from eddyline.sql.types import INT
        >>> is_surely_evaluated(INT, [5]), is_surely_evaluated(INT, [2**31])
        (True, False)
    """
    if kind.family == "integer":
        full = integer(kind.text)
        return all(isinstance(value, int) and full.low < value < full.high for value in values)
    if kind.family == "decimal":
        limit = 10 ** (kind.precision - kind.scale)
        exact = (Fraction(value) for value in values)  # type: ignore[arg-type]
        return all(
            abs(number) < limit and (number * 10**kind.scale).denominator == 1 for number in exact
        )
    return kind.text != "float"


# -- columns that a condition needs ----------------------------------------------------------------
# Columns that a condition needs: where one of them is NULL, the condition is not true.
#
# Spark's WHERE drops rows with NULL in such columns before it evaluates the condition. The
# condition
# then raises on none of these rows: ``a / b > 2 AND c = 1`` does not divide where ``c`` is NULL.
# What
# evaluates a condition outside of WHERE asks here for the columns. A column may be missing in the
# answer; a column in the answer is certain.


if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlglot import Expr

    from eddyline.sql.functions import ColumnRef

    Names = frozenset[str] | None
    """Columns; None stands for all: there is no row on which it is so."""

_STRICT_NODES = (
    *(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Like, exp.ILike, exp.RegexpLike),
    *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.DPipe),
    *(exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseNot, exp.Neg),
    *(exp.Not, exp.Paren, exp.Cast, exp.Bracket, exp.Escape, exp.Collate),
)
"""Nodes that are NULL where one of their parts is."""

_STRICT_CALLS = CASTS | STRICT | STRICT_NUMBERS | {"abs", "negative", "mod", "div", "ceil", "floor"}


def needed_columns(tree: Expr, references: Mapping[int, ColumnRef]) -> frozenset[str]:
    """Return the columns whose NULL keeps a condition from being true, by their schema names.

    Args:
        tree: the condition.
        references: the column of each node that mentions one, by the node's ``id``.
    """
    needs = _Needs(references).where(tree, wanted=True)
    return frozenset(ref.column for ref in references.values()) if needs is None else needs


class _Needs:
    def __init__(self, references: Mapping[int, ColumnRef]) -> None:
        self._references = references

    def where(self, node: Expr, *, wanted: bool) -> Names:  # noqa: PLR0911 - a case, a return
        """Return the columns whose NULL keeps a condition from being ``wanted``."""
        node = node.unnest()
        if isinstance(node, exp.Boolean):
            return frozenset() if bool(node.this) is wanted else None
        if isinstance(node, exp.Not):
            return self.where(node.this, wanted=not wanted)
        if isinstance(node, exp.And | exp.Or):
            parts = [self.where(part, wanted=wanted) for part in node.flatten()]
            # One part alone makes OR true, or AND false.
            return (_one_of if isinstance(node, exp.Or) is wanted else _all_of)(parts)
        if isinstance(node, exp.Is):
            return self._of_is(node, wanted=wanted)
        if isinstance(node, exp.EQ | exp.NEQ):
            return self._of_equal(node, is_equal=isinstance(node, exp.EQ) is wanted)
        if isinstance(node, exp.Between) and wanted:
            return _all_of(map(self.value, (node.this, node.args["low"], node.args["high"])))
        branches = self._branches(node)
        if branches is not None:
            return _one_of(
                _all_of([needs, self.where(result, wanted=wanted)]) for needs, result in branches
            )
        name, arguments = as_call(node) or ("", [])
        if name == "isnotnull" and wanted:
            return self.value(arguments[0])
        return self.value(node)

    def _of_equal(self, node: Expr, *, is_equal: bool) -> Names:
        """Return the columns whose NULL keeps two sides, perhaps conditions, from being equal."""
        outcomes = (
            _all_of([self.where(node.this, wanted=one), self.where(node.expression, wanted=other)])
            for one, other in ((True, is_equal), (False, not is_equal))
        )
        return _all_of([self.value(node), _one_of(outcomes)])

    def _of_is(self, node: exp.Is, *, wanted: bool) -> Names:
        truth = node.expression
        if isinstance(truth, exp.Boolean) and wanted:
            return self.where(node.this, wanted=bool(truth.this))
        if isinstance(truth, exp.Null) and not wanted:
            return self.value(node.this)
        return frozenset()

    def _branches(self, node: Expr) -> list[tuple[Names, Expr]] | None:
        """Return the columns that each result of CASE, IF or COALESCE needs, and the result."""
        if isinstance(node, exp.Case | exp.If):
            arms = node.args["ifs"] if isinstance(node, exp.Case) else [node]
            needs = self.value(node.this) if isinstance(node, exp.Case) and node.this else None
            branches = [
                (self.where(arm.this, wanted=True) if needs is None else needs, arm.args["true"])
                for arm in arms
            ]
            default = node.args.get("default") or node.args.get("false")
            return branches if default is None else [*branches, (frozenset(), default)]
        name, parts = as_call(node) or ("", [])
        is_choice = name in ("coalesce", "ifnull", "nvl")
        return [(frozenset(), part) for part in parts] if is_choice else None

    def value(self, node: Expr) -> Names:  # noqa: PLR0911 - a case, a return
        """Return the columns whose NULL makes an expression NULL."""
        node = node.unnest()
        if isinstance(node, exp.Null):
            return None
        if id(node) in self._references:
            return frozenset([self._references[id(node)].column])
        if isinstance(node, exp.Between | exp.In):
            return self.value(node.this)
        if isinstance(node, _STRICT_NODES):
            return _all_of(map(self.value, node.iter_expressions()))
        branches = self._branches(node)
        if branches is not None:
            return _one_of(self.value(result) for _, result in branches)
        name, parts = as_call(node) or ("", [])
        if name == "nullif":
            return self.value(parts[0])
        return _all_of(map(self.value, parts)) if name in _STRICT_CALLS else frozenset()


def _all_of(parts: Iterable[Names]) -> Names:
    """Return the columns that are needed where all parts have to hold."""
    needed: frozenset[str] = frozenset()
    for part in parts:
        if part is None:
            return None
        needed |= part
    return needed


def _one_of(parts: Iterable[Names]) -> Names:
    """Return the columns that are needed where one of the parts has to hold."""
    needed: Names = None
    for part in parts:
        needed = part if needed is None else needed if part is None else needed & part
    return needed
