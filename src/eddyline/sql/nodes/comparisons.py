"""Comparisons: ``=`` and its like, ``<=>``, BETWEEN, IN."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from eddyline.sql.error_free import NoFormError, strict
from eddyline.sql.nodes.rules import Node
from eddyline.sql.rendering import COMPARISON, PREDICATE, SIGNS, write_operator
from eddyline.sql.types import BOOLEAN

if TYPE_CHECKING:
    from sqlglot import Expr

    from eddyline.sql.error_free import FreePart, Rewriter
    from eddyline.sql.inference import Facts, Inference
    from eddyline.sql.rendering import SqlWriter


def _infer_comparison(inference: Inference, node: Expr) -> Facts:
    sides = [node.this, node.expression]
    return inference.combine(BOOLEAN, sides, inference.comparison_problem(*sides))


def _free_comparison(rewriter: Rewriter, node: Expr) -> FreePart:
    left, right = rewriter.compared(node.this, node.expression)
    return strict(f"({left.sql} {SIGNS[type(node)]} {right.sql})", left, right)


def _infer_between(inference: Inference, node: Expr) -> Facts:
    low, high = node.args["low"], node.args["high"]
    problems = (inference.comparison_problem(node.this, bound) for bound in (low, high))
    return inference.combine(BOOLEAN, [node.this, low, high], *problems)


def _write_between(writer: SqlWriter, node: Expr) -> str:
    low, high = writer.write(node.args["low"]), writer.write(node.args["high"])
    return f"({writer.write(node.this)} BETWEEN {low} AND {high})"


def _free_between(rewriter: Rewriter, node: Expr) -> FreePart:
    rewriter.refuse_own_risk(node)
    bounds = [node.args["low"], node.args["high"]]
    # NULL AND false is false, where a bound itself would raise.
    low, high = map(rewriter.safe, bounds)
    part = rewriter.part(node.this)
    written = strict(f"({part.sql} BETWEEN {low} AND {high})", part, *map(rewriter.part, bounds))
    # A row with NULL for a bound may be false, or raise: these are not told apart.
    return replace(written, raised=None)


def _infer_in(inference: Inference, node: Expr) -> Facts:
    parts = [node.this, *node.expressions]
    _, problems = inference.shared_type(parts)
    return inference.combine(BOOLEAN, parts, *problems)


def _write_in(writer: SqlWriter, node: Expr) -> str:
    return f"({writer.write(node.this)} IN ({writer.write_list(node.expressions)}))"


def _free_in(rewriter: Rewriter, node: Expr) -> FreePart:
    rewriter.refuse_own_risk(node)
    if any(value.find(exp.Column, exp.Null) for value in node.expressions):
        raise NoFormError("IN")
    values = ", ".join(map(rewriter.safe, node.expressions))
    part = rewriter.part(node.this)
    return strict(f"({part.sql} IN ({values}))", part, *map(rewriter.part, node.expressions))


_SAME = Node(_infer_comparison, write_operator, PREDICATE)
_COMPARED = Node(_infer_comparison, write_operator, COMPARISON, _free_comparison)

NODES: dict[type[Expr], Node] = {
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE), _COMPARED),
    **dict.fromkeys((exp.NullSafeEQ, exp.NullSafeNEQ), _SAME),
    exp.Between: Node(_infer_between, _write_between, PREDICATE, _free_between),
    exp.In: Node(_infer_in, _write_in, PREDICATE, _free_in),
}
