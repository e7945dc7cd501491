"""Comparisons, and connectives, IS, CASE and what chooses among values."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from eddyline.sql.error_free import NoFormError, lax, strict
from eddyline.sql.nodes import Call, Node
from eddyline.sql.rendering import AND, COMPARISON, NOT, OR, PREDICATE, SIGNS, write_operator
from eddyline.sql.types import BOOLEAN

if TYPE_CHECKING:
    from collections.abc import Sequence

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

COMPARISONS: dict[type[Expr], Node] = {
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE), _COMPARED),
    **dict.fromkeys((exp.NullSafeEQ, exp.NullSafeNEQ), _SAME),
    exp.Between: Node(_infer_between, _write_between, PREDICATE, _free_between),
    exp.In: Node(_infer_in, _write_in, PREDICATE, _free_in),
}


def _infer_connective(inference: Inference, node: Expr) -> Facts:
    parts = list(node.flatten()) if isinstance(node, exp.Connector) else [node.this]
    problems = (inference.cast_problem(part, BOOLEAN) for part in parts)
    return inference.combine(BOOLEAN, parts, *problems)


def _free_not(rewriter: Rewriter, node: Expr) -> FreePart:
    rewriter.refuse_own_risk(node)
    part = rewriter.part(node.this)
    return strict(f"(NOT {part.sql})", part)


def _infer_is(inference: Inference, node: Expr) -> Facts:
    operand, truth = node.this, node.expression
    is_truth = isinstance(truth, exp.Boolean)
    problem = inference.cast_problem(operand, BOOLEAN) if is_truth else ""
    return inference.combine(BOOLEAN, [operand], problem)


def _infer_case(inference: Inference, node: Expr) -> Facts:
    arms = list(node.args.get("ifs") or [node])
    default = node.args.get("default") or node.args.get("false")
    results = [arm.args["true"] for arm in arms] + ([default] if default else [])
    kind, problems = inference.shared_type(results)
    operand = node.this if isinstance(node, exp.Case) else None
    for arm in arms:
        problems.append(
            inference.comparison_problem(operand, arm.this)
            if operand
            else inference.cast_problem(arm.this, BOOLEAN)
        )
    conditions = [arm.this for arm in arms] + ([operand] if operand else [])
    return inference.combine(kind, [*conditions, *results], *problems)


def _write_case(writer: SqlWriter, node: Expr) -> str:
    operand = f" {writer.write(node.this)}" if node.this is not None else ""
    arms = [
        f" WHEN {writer.write(arm.this)} THEN {writer.write(arm.args['true'])}"
        for arm in node.args["ifs"]
    ]
    default = node.args.get("default")
    otherwise = "" if default is None else f" ELSE {writer.write(default)}"
    return f"CASE{operand}{''.join(arms)}{otherwise} END"


def _write_if(writer: SqlWriter, node: Expr) -> str:
    parts = [node.this, node.args["true"], node.args.get("false")]
    return f"if({writer.write_list(part for part in parts if part is not None)})"


def _free_case(rewriter: Rewriter, node: Expr) -> FreePart:
    rewriter.refuse_own_risk(node)
    operand = f" {rewriter.safe(node.this)}" if isinstance(node, exp.Case) and node.this else ""
    arms = list(node.args.get("ifs") or [node])
    conditions = [f" WHEN {rewriter.safe(arm.this)} THEN " for arm in arms]
    values = [rewriter.part(arm.args["true"]) for arm in arms]
    default = node.args.get("default") or node.args.get("false")
    last = None if default is None else rewriter.part(default)

    def written(results: Sequence[str], otherwise: str) -> str:
        pairs = zip(conditions, results, strict=True)
        return f"CASE{operand}{''.join(map(''.join, pairs))} ELSE {otherwise} END"

    return lax(
        written([value.sql for value in values], "NULL" if last is None else last.sql),
        written(
            [value.surely_raised for value in values],
            "FALSE" if last is None else last.surely_raised,
        ),
    )


def _infer_chosen(inference: Inference, _node: Expr, args: Sequence[Expr]) -> Facts:
    kind, problems = inference.shared_type(args)
    return inference.combine(kind, args, *problems)


def _free_coalesce(rewriter: Rewriter, node: Expr, args: Sequence[Expr]) -> FreePart:
    rewriter.refuse_own_risk(node)
    first, rest = rewriter.part(args[0]), ", ".join(map(rewriter.safe, args[1:]))
    chosen = f"coalesce({first.sql}, {rest})"
    return lax(f"if({first.surely_raised}, NULL, {chosen})", first.surely_raised)


def _infer_nullif(inference: Inference, _node: Expr, args: Sequence[Expr]) -> Facts:
    kind = inference.type_of(args[0])
    return inference.combine(kind, args, inference.comparison_problem(args[0], args[1]))


def _free_nullif(rewriter: Rewriter, node: Expr, args: Sequence[Expr]) -> FreePart:
    rewriter.refuse_own_risk(node)
    first, second = rewriter.part(args[0]), rewriter.safe(args[1])
    return lax(f"nullif({first.sql}, {second})", first.surely_raised)


def _infer_equal_null(inference: Inference, node: Expr, args: Sequence[Expr]) -> Facts:
    return replace(_infer_nullif(inference, node, args), type=BOOLEAN)


NODES: dict[type[Expr], Node] = {
    **COMPARISONS,
    exp.And: Node(_infer_connective, write_operator, AND),
    exp.Or: Node(_infer_connective, write_operator, OR),
    exp.Not: Node(
        _infer_connective, lambda writer, node: f"(NOT {writer.write(node.this)})", NOT, _free_not
    ),
    exp.Is: Node(_infer_is, write_operator, PREDICATE),
    exp.Case: Node(_infer_case, _write_case, free=_free_case),
    exp.If: Node(_infer_case, _write_if, free=_free_case),
}
CALLS: dict[tuple[str, int], Call] = {
    ("coalesce", -1): Call(_infer_chosen, _free_coalesce),
    ("nvl", 2): Call(_infer_chosen, _free_coalesce),
    ("ifnull", 2): Call(_infer_chosen, _free_coalesce),
    ("greatest", -1): Call(_infer_chosen),
    ("least", -1): Call(_infer_chosen),
    ("nullif", 2): Call(_infer_nullif, _free_nullif),
    ("equal_null", 2): Call(_infer_equal_null),
}
