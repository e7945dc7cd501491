"""Texts: LIKE, ILIKE, RLIKE and ``||``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

from eddyline.sql.error_free import NoFormError, strict
from eddyline.sql.inference import shown
from eddyline.sql.nodes import Call, Node
from eddyline.sql.regexes import is_plain_regex, like_is_slow, regex_effort
from eddyline.sql.rendering import PREDICATE, SIGNS, SUM, UnwritableError, write_operator
from eddyline.sql.types import BOOLEAN, STRING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import Expr

    from eddyline.sql.error_free import FreePart, Rewriter
    from eddyline.sql.inference import Facts, Inference
    from eddyline.sql.rendering import SqlWriter


def patterns_of(node: Expr) -> list[Expr]:
    """Return the patterns of a LIKE: several in LIKE ANY and LIKE ALL."""
    pattern = node.expression
    if not isinstance(pattern, exp.Any | exp.All):
        return [pattern]
    inside = pattern.this.unnest()
    return list(inside.expressions) if isinstance(inside, exp.Tuple) else [inside]


def _infer_like(inference: Inference, node: Expr) -> Facts:
    return _infer_matched(inference, node, node, "\\")


def _infer_escape(inference: Inference, node: Expr) -> Facts:
    like, escape = node.this, inference.facts(node.expression).literal
    if not isinstance(like, exp.Like | exp.ILike) or escape is None or len(escape) != 1:
        return inference.unknown(node)
    return _infer_matched(inference, node, like, escape)


def _infer_matched(inference: Inference, node: Expr, like: Expr, escape: str) -> Facts:
    patterns = patterns_of(like)
    problems = [inference.cast_problem(like.this, STRING)]
    for pattern in patterns:
        literal = inference.facts(pattern).literal
        if literal is None or not _is_like_pattern(literal, escape):
            problems.append(f"{shown(node)} raises if its pattern is not valid")
        elif like_is_slow(literal, escape):
            problems.append(f"{shown(node)} may take very long on a long text")
    return inference.combine(BOOLEAN, [like.this, *patterns], *problems)


def _is_like_pattern(pattern: str, escape: str) -> bool:
    rest = re.sub(re.escape(escape) + "[_%" + re.escape(escape) + "]", "", pattern)
    return escape not in rest


def _write_like(writer: SqlWriter, node: Expr, escape: str = "") -> str:
    pattern = node.expression
    if isinstance(pattern, exp.Any | exp.All):
        kind = "ANY" if isinstance(pattern, exp.Any) else "ALL"
        written = f"{kind} ({writer.write_list(patterns_of(node))})"
    else:
        written = writer.write(pattern)
    return f"({writer.write(node.this)} {_sign(node)} {written}{escape})"


def _write_escape(writer: SqlWriter, node: Expr) -> str:
    if not isinstance(node.this, exp.Like | exp.ILike):
        raise UnwritableError(type(node.this).__name__)
    return _write_like(writer, node.this, f" ESCAPE {writer.write(node.expression)}")


def _free_like(rewriter: Rewriter, node: Expr) -> FreePart:
    rewriter.refuse_own_risk(node)
    if not isinstance(node.expression, exp.Literal):
        raise NoFormError("LIKE")
    part, pattern = rewriter.part(node.this), rewriter.safe(node.expression)
    return strict(f"({part.sql} {_sign(node)} {pattern})", part)


def _sign(node: Expr) -> str:
    return f"{'NOT ' if node.args.get('negate') else ''}{SIGNS[type(node)]}"


def _infer_regex(inference: Inference, node: Expr) -> Facts:
    return _infer_regex_call(inference, node, [node.this, node.expression])


def _infer_regex_call(inference: Inference, node: Expr, args: Sequence[Expr]) -> Facts:
    literal = inference.facts(args[1]).literal
    if literal is None or not is_plain_regex(literal):
        problem = f"{shown(node)} raises if its pattern is not valid"
    else:
        effort = regex_effort(literal).reason
        problem = f"{shown(node)} {effort}" if effort else ""
    return inference.combine(BOOLEAN, args, inference.cast_problem(args[0], STRING), problem)


def _infer_replace(inference: Inference, node: Expr, args: Sequence[Expr]) -> Facts:
    problems = [inference.cast_problem(arg, STRING) for arg in args]
    if inference.facts(args[2]).literal is None:
        # Two texts of a million characters make one of a million million.
        problems.append(f"{shown(node)} may exhaust the memory on long texts")
    return inference.combine(STRING, args, *problems)


def _infer_concatenation(inference: Inference, node: Expr) -> Facts:
    parts = node.expressions or [node.this, node.expression]
    problems = (inference.cast_problem(part, STRING) for part in parts)
    return inference.combine(STRING, parts, *problems)


_LIKE = Node(_infer_like, _write_like, PREDICATE, _free_like)

NODES: dict[type[Expr], Node] = {
    exp.Like: _LIKE,
    exp.ILike: _LIKE,
    exp.Escape: Node(_infer_escape, _write_escape, PREDICATE),
    exp.RegexpLike: Node(_infer_regex, write_operator, PREDICATE, _free_like),
    exp.DPipe: Node(_infer_concatenation, write_operator, SUM),
    exp.Concat: Node(_infer_concatenation),
}
CALLS: dict[tuple[str, int], Call] = {
    **{(name, 2): Call(_infer_regex_call) for name in ("rlike", "regexp", "regexp_like")},
    ("replace", 3): Call(_infer_replace),
}
