"""Columns whose NULL makes a condition not true.

Spark's WHERE drops rows with NULL in such columns before it evaluates the condition. The condition
then raises on none of these rows: ``a / b > 2 AND c = 1`` does not divide where ``c`` is NULL. What
evaluates a condition outside of WHERE asks here for the columns. A column may be missing in the
answer; a column in the answer is certain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from eddyline.sql.functions import CASTS, STRICT, STRICT_NUMBERS, as_call

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlglot import Expr

    from eddyline.sql.names import ColumnRef

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
