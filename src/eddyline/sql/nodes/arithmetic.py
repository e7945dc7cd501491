"""Arithmetic and bits, and the functions of numbers that can overflow."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from sqlglot import exp

from eddyline.sql.error_free import NoFormError, strict
from eddyline.sql.functions import as_call, as_name
from eddyline.sql.inference import shown
from eddyline.sql.nodes import Call, Node
from eddyline.sql.nodes.calls import infer_number
from eddyline.sql.rendering import (
    BIT_AND,
    BIT_OR,
    BIT_XOR,
    PRODUCT,
    SHIFT,
    SIGN,
    SIGNS,
    SUM,
    write_operator,
)
from eddyline.sql.types import (
    BIGINT,
    DATE,
    DOUBLE,
    INT,
    OTHER,
    STRING,
    common_type,
    has_opposite,
    integer,
    result_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import Expr

    from eddyline.sql.error_free import FreePart, Rewriter
    from eddyline.sql.inference import Facts, Inference
    from eddyline.sql.rendering import SqlWriter
    from eddyline.sql.types import SqlType

_TRIES: dict[type[Expr], str] = {
    exp.Add: "try_add",
    exp.Sub: "try_subtract",
    exp.Mul: "try_multiply",
    exp.Div: "try_divide",
    exp.Mod: "try_mod",
}
"""The function that gives NULL where an operator raises."""


_NAMED: dict[str, type[Expr]] = {"mod": exp.Mod, "div": exp.IntDiv}


def _operation(node: Expr) -> tuple[type[Expr], Sequence[Expr]]:
    """Return the operation and the operands of an operator, or of a call: ``mod(a, b)``."""
    name, args = as_call(node) or ("", [node.this, node.expression])
    return _NAMED.get(name, type(node)), args


def _infer_arithmetic(inference: Inference, node: Expr, _args: Sequence[Expr] = ()) -> Facts:
    operation, args = _operation(node)
    left, right = map(inference.type_of, args)
    if left.family == "date" and right.family == "integer":
        return inference.combine(DATE, args, inference.cast_problem(args[1], INT))
    common = common_type(left, right)
    if not common.is_numeric or left.family == right.family == "string":
        return _infer_of_times(inference, node, args)
    casts = _casts_of_strings(inference, args, common)
    left, right = (common if side == STRING else side for side in (left, right))
    is_never_zero = inference.facts(args[1]).is_never_zero
    kind, problem = result_of(operation, left, right, is_never_zero=is_never_zero)
    reason = f"{shown(node)} {problem}, which raises in ANSI mode" if problem else ""
    return inference.combine(kind, args, *casts, reason if inference.ansi else "")


def _casts_of_strings(inference: Inference, args: Sequence[Expr], common: SqlType) -> list[str]:
    """Return the reason why the casts of arguments that are strings may raise."""
    strings = (arg for arg in args if inference.type_of(arg) == STRING)
    return [inference.cast_problem(arg, common) for arg in strings]


def _infer_of_times(inference: Inference, node: Expr, args: Sequence[Expr]) -> Facts:
    # now() - INTERVAL 1 DAY is far from the ends of time; a column may hold them.
    kinds = [inference.type_of(arg) for arg in args]
    families = {kind.family for kind in kinds}
    is_fixed = not any(arg.find(exp.Column) for arg in args)
    if is_fixed and "interval" in families and families & {"timestamp", "date"}:
        return inference.combine(next(k for k in kinds if k.family != "interval"), args)
    return inference.combine(OTHER, args, f"{shown(node)} may leave the range of its type")


def _free_arithmetic(rewriter: Rewriter, node: Expr, _args: Sequence[Expr] = ()) -> FreePart:
    operation, args = _operation(node)
    left, right = map(rewriter.inference.type_of, args)
    common = common_type(left, right)
    if not common.is_numeric or left == right == STRING:
        raise NoFormError(type(node).__name__)
    a, b = (rewriter.part_as(arg, common) for arg in args)
    if operation is exp.IntDiv:
        return _free_division(rewriter, a, b, common, left)
    if not rewriter.inference.facts(node).raises_here:
        return strict(f"({a.sql} {SIGNS[operation]} {b.sql})", a, b)
    return strict(f"{rewriter.advise(_TRIES[operation])}({a.sql}, {b.sql})", a, b, raises=True)


def _free_division(
    rewriter: Rewriter, a: FreePart, b: FreePart, common: SqlType, left: SqlType
) -> FreePart:
    if common.family != "integer":
        raise NoFormError("DIV")
    rewriter.advise("nullif(…, 0) as divisor")
    divided = f"({a.sql} DIV nullif({b.sql}, 0))"
    least = left.low if left.family == "integer" else BIGINT.low
    if least > BIGINT.low:
        return strict(divided, a, b, raises=True)
    overflows = f"{a.sql} = {_least(BIGINT)} AND {b.sql} = -1"
    return strict(f"if({overflows}, NULL, {divided})", a, b, raises=True)


def _infer_negative(inference: Inference, node: Expr) -> Facts:
    inner = node.this
    if isinstance(inner, exp.Literal) and not inner.args.get("is_string"):
        return infer_number("-" + str(inner.this))
    kind = inference.type_of(inner)
    if has_opposite(kind):
        return inference.combine(kind, [inner])
    if kind.family == "string":
        return inference.combine(DOUBLE, [inner], inference.cast_problem(inner, DOUBLE))
    if kind.family != "integer":
        return inference.unknown(node)
    fits = kind.low > integer(kind.text).low
    negated = replace(kind, low=-kind.high, high=-kind.low) if fits else integer(kind.text)
    return inference.combine(negated, [inner], _overflow(inference, node, fits=fits))


def _overflow(inference: Inference, node: Expr, *, fits: bool) -> str:
    is_fine = fits or not inference.ansi
    return "" if is_fine else f"{shown(node)} can overflow, which raises in ANSI mode"


def _write_negative(writer: SqlWriter, node: Expr) -> str:
    # Spark reads -1 as one number; what it negates, -(1), it may round.
    is_apart = isinstance(node.this, exp.Paren) and isinstance(node.this.unnest(), exp.Literal)
    inner = writer.write(node.this)
    return f"(- ({inner}))" if is_apart else f"(- {inner})"


def _free_negative(rewriter: Rewriter, node: Expr) -> FreePart:
    part = _free_with_opposite(rewriter, node.this)
    return strict(f"(- {part.sql})", part)


def _infer_absolute(inference: Inference, node: Expr, args: Sequence[Expr]) -> Facts:
    kind = inference.type_of(args[0])
    if has_opposite(kind):
        return inference.combine(kind, args)
    if not kind.is_known or kind.family == "decimal":
        return inference.unknown(node)
    if kind.family != "integer":
        return inference.combine(DOUBLE, args, inference.cast_problem(args[0], DOUBLE))
    high = max(abs(kind.low), abs(kind.high))
    fits = high <= integer(kind.text).high
    absolute = replace(kind, low=0, high=high) if fits else integer(kind.text)
    return inference.combine(absolute, args, _overflow(inference, node, fits=fits))


def _free_absolute(rewriter: Rewriter, _node: Expr, args: Sequence[Expr]) -> FreePart:
    part = _free_with_opposite(rewriter, args[0])
    return strict(f"abs({part.sql})", part)


def _free_with_opposite(rewriter: Rewriter, node: Expr) -> FreePart:
    kind = rewriter.inference.type_of(node)
    if kind == STRING:
        return rewriter.part_as(node, DOUBLE)
    if kind.family != "integer" and not has_opposite(kind):
        raise NoFormError("a number without an opposite")
    part = rewriter.part(node)
    if kind.family != "integer" or kind.low > integer(kind.text).low:
        return part
    rewriter.advise("a wider type")
    return strict(f"nullif({part.sql}, {_least(kind)})", part, raises=True)


def _least(kind: SqlType) -> str:
    return f"CAST('{integer(kind.text).low}' AS {kind.text})"


def _infer_bits(inference: Inference, node: Expr) -> Facts:
    parts = [part for part in (node.this, node.args.get("expression")) if part is not None]
    kinds = [inference.type_of(part) for part in parts]
    if any(kind.family != "integer" for kind in kinds):
        return inference.unknown(node)
    is_shift = isinstance(node, exp.BitwiseLeftShift | exp.BitwiseRightShift)
    widest = kinds[0] if is_shift else reduce(common_type, kinds)
    return inference.combine(integer(widest.text), parts)


def _infer_floor(inference: Inference, node: Expr, args: Sequence[Expr]) -> Facts:
    kind = inference.type_of(args[0])
    if kind.family == "integer":
        return inference.combine(replace(kind, text="bigint"), args)
    if kind.family != "float":
        return inference.unknown(node)
    return inference.combine(BIGINT, args, _overflow(inference, node, fits=False))


def _infer_round(inference: Inference, node: Expr, args: Sequence[Expr]) -> Facts:
    kind = inference.type_of(args[0])
    is_plain = kind.family == "float" and all(not arg.find(exp.Column) for arg in args[1:])
    return inference.combine(kind, args) if is_plain else inference.unknown(node)


def _infer_try(inference: Inference, node: Expr, args: Sequence[Expr]) -> Facts:
    left, right = map(inference.type_of, args)
    common = common_type(left, right)
    if not common.is_numeric or left.family == right.family == "string":
        return inference.unknown(node)
    kind = integer(common.text) if common.family == "integer" else common
    if common.family == "decimal" or as_name(node) == "try_divide":
        kind = DOUBLE if common.family != "decimal" else OTHER
    return inference.combine(kind, args, *_casts_of_strings(inference, args, common))


_SUM = Node(_infer_arithmetic, write_operator, SUM, _free_arithmetic)
_PRODUCT = Node(_infer_arithmetic, write_operator, PRODUCT, _free_arithmetic)

NODES: dict[type[Expr], Node] = {
    **dict.fromkeys((exp.Add, exp.Sub), _SUM),
    **dict.fromkeys((exp.Mul, exp.Div, exp.Mod, exp.IntDiv), _PRODUCT),
    exp.Neg: Node(_infer_negative, _write_negative, SIGN, _free_negative),
    exp.BitwiseAnd: Node(_infer_bits, write_operator, BIT_AND),
    exp.BitwiseOr: Node(_infer_bits, write_operator, BIT_OR),
    exp.BitwiseXor: Node(_infer_bits, write_operator, BIT_XOR),
    exp.BitwiseNot: Node(_infer_bits, lambda writer, node: f"(~ {writer.write(node.this)})", SIGN),
    exp.BitwiseLeftShift: Node(_infer_bits, write_operator, SHIFT),
    exp.BitwiseRightShift: Node(_infer_bits, write_operator, SHIFT),
}
CALLS: dict[tuple[str, int], Call] = {
    **{(name, 2): Call(_infer_arithmetic, _free_arithmetic) for name in _NAMED},
    ("abs", 1): Call(_infer_absolute, _free_absolute),
    **{(name, 1): Call(_infer_floor) for name in ("floor", "ceil", "ceiling")},
    **{(name, n): Call(_infer_round) for name in ("round", "bround") for n in (1, 2)},
    **{(name, 2): Call(_infer_try) for name in ("try_add", "try_subtract", "try_multiply")},
    **{(name, 2): Call(_infer_try) for name in ("try_divide", "try_mod")},
}
