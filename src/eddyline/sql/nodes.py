"""Rules for each type of SQL node.

A rule has the node's type and errors, its text, and its form without errors. One row of ``NODES``
says what each pass over a tree does at a type of node, and one row of ``CALLS`` at a call of a
function with rules of its own; other functions are in ``sql.functions``. A type of node without a
row may raise, and Spark evaluates it as it was written. A new kind of expression is a row and its
functions.

A rule named ``_infer_…`` returns the type of a node and why it may raise (``sql.inference``),
``_write_…`` its text (``sql.rendering``), and ``_free_…`` the form that never raises
(``sql.error_free``). The functions stand by family; the two tables are at the end, with a table for
each pass below them.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from sqlglot import exp

from eddyline.sql.error_free import NoFormError, lax, strict
from eddyline.sql.functions import CASTS, SAFE, Signature, as_call, as_name
from eddyline.sql.inference import Facts, shown
from eddyline.sql.parsing import SparkText
from eddyline.sql.regexes import is_plain_regex, like_is_slow, regex_effort
from eddyline.sql.rendering import (
    AND,
    BIT_AND,
    BIT_OR,
    BIT_XOR,
    CLOSED,
    COMPARISON,
    NOT,
    OR,
    PREDICATE,
    PRODUCT,
    SHIFT,
    SIGN,
    SIGNS,
    SUM,
    UnwritableError,
    string_literal,
    write_operator,
)
from eddyline.sql.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    NULL,
    OTHER,
    STRING,
    SqlType,
    cast_may_raise,
    common_type,
    element_type,
    excludes_zero,
    has_opposite,
    integer,
    key_type,
    number_type,
    parse_type,
    result_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import Expr

    from eddyline.sql import error_free, inference, rendering
    from eddyline.sql.error_free import FreePart, Rewriter
    from eddyline.sql.inference import Inference
    from eddyline.sql.rendering import SqlWriter


class Node(NamedTuple):
    """The rules for one type of node."""

    infer: inference.NodeRule
    """Returns the node's type, and why it may raise."""
    write: rendering.NodeRule | None = None
    """Returns the node as Spark SQL; None: it cannot be written."""
    binds: int = CLOSED
    """Rank by which it binds, if it is an operator."""
    free: error_free.NodeRule | None = None
    """Returns the form that does not raise, where the node may; None: it has none."""


class Call(NamedTuple):
    """The rules for one function."""

    infer: inference.CallRule
    """Returns the type of a call, and why it may raise."""
    free: error_free.CallRule | None = None
    """Returns the form that does not raise, where a call may; None: it has none."""


# -- comparisons, connectives, IS, CASE and what chooses among values ------------------------------


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


# -- LIKE, ILIKE, RLIKE and ``||`` -----------------------------------------------------------------


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


# -- arithmetic and bits, and functions of numbers that can overflow -------------------------------


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


# -- columns, literals, casts, elements of arrays and maps, calls ----------------------------------


def _infer_column(inference: Inference, node: Expr) -> Facts:
    reference = inference.references.get(id(node))
    if reference is None:
        return infer_named(inference, node, node.name, [])
    return Facts(reference.type, is_never_zero=excludes_zero(reference.type))


def _write_column(writer: SqlWriter, node: Expr) -> str:
    reference = writer.references.get(id(node))
    return node.name.lower() if reference is None else reference.text


def _infer_literal(_inference: Inference, node: Expr) -> Facts:
    if node.args.get("is_string"):
        return Facts(STRING, literal=str(node.this))
    return infer_number(str(node.this))


def infer_number(text: str) -> Facts:
    """Return the facts about a number literal, perhaps with a sign."""
    kind, is_never_zero = number_type(text)
    return Facts(kind, is_never_zero=is_never_zero)


def _write_literal(writer: SqlWriter, node: Expr) -> str:
    if writer.keeps_literals and "start" in node.meta:
        return writer.text[node.meta["start"] : node.meta["end"] + 1]
    value = str(node.this)
    return string_literal(value) if node.args.get("is_string") else value


def _write_hex(writer: SqlWriter, node: Expr) -> str:
    value = str(node.this)
    if re.fullmatch("[0-9A-Fa-f]*", value) is None or f"'{value}'" not in writer.text:
        raise UnwritableError(value)
    return f"X'{value}'"


def _infer_interval(inference: Inference, node: Expr) -> Facts:
    value = node.this
    is_plain = isinstance(value, exp.Literal) and re.fullmatch(r"-?\d{1,6}", str(value.this))
    problem = "" if is_plain else f"{shown(node)} is not known to be free of errors"
    return inference.combine(SqlType("interval", "interval"), [], problem)


def _write_interval(_writer: SqlWriter, node: Expr) -> str:
    unit = node.args.get("unit")
    if not isinstance(unit, exp.Var) or not isinstance(node.this, exp.Literal):
        raise UnwritableError("INTERVAL")
    return f"INTERVAL '{node.this.this}' {unit.name}"


_TIMESTAMPS = ("TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ")


def _target(node: Expr) -> str:
    return str(node.args["to"].sql(SparkText))


def _infer_cast(inference: Inference, node: Expr) -> Facts:
    target = _target(node)
    return _collated(_infer_cast_to(inference, node, node.this, parse_type(target)), target)


def _collated(facts: Facts, target: str) -> Facts:
    """Return facts with an unknown type for texts with a collation: bytes do not decide."""
    if "COLLATE" not in target.upper():
        return facts
    return replace(facts, type=SqlType("other", target.lower()))


def _infer_cast_to(inference: Inference, node: Expr, source: Expr, target: SqlType) -> Facts:
    facts = inference.facts(source)
    is_risky = inference.ansi and cast_may_raise(facts.type, target, facts.literal)
    problem = f"{shown(node)} raises in ANSI mode on values that do not fit"
    if facts.type.family == target.family == "integer" and not is_risky:
        target = replace(target, low=facts.type.low, high=facts.type.high)
    result = inference.combine(target, [source], problem if is_risky else "")
    return replace(result, is_never_zero=facts.is_never_zero and target.is_numeric)


def _infer_try_cast(inference: Inference, node: Expr) -> Facts:
    target = _target(node)
    return _collated(inference.combine(parse_type(target), [node.this]), target)


def _write_cast(writer: SqlWriter, node: Expr) -> str:
    name = "TRY_CAST" if isinstance(node, exp.TryCast) else "CAST"
    if _is_formatted(node):
        raise UnwritableError(name)
    source, target = node.this, _target(node)
    if target in _TIMESTAMPS and _is_behind(target, source, writer.text):
        # With a zone in it TIMESTAMP '…' is of another type than CAST('…' AS TIMESTAMP) may be.
        return f"{target} {writer.write(source)}"
    return f"{name}({writer.write(source)} AS {target})"


def _is_behind(word: str, source: Expr, text: str) -> bool:
    """Return whether a literal stands behind a word of the text."""
    start = source.meta.get("start")
    is_literal = isinstance(source, exp.Literal) and start is not None
    return is_literal and text[:start].rstrip().upper().endswith(word)


def _free_cast(rewriter: Rewriter, node: Expr) -> FreePart:
    if _is_formatted(node):
        raise NoFormError("CAST")
    return rewriter.cast(node.this, _target(node))


def _is_formatted(node: Expr) -> bool:
    return bool(node.args.get("format") or node.args.get("action"))


_DATE_PARTS = frozenset({"year", "quarter", "month", "day", "dayofweek", "hour", "minute"})
"""Parts that are also functions of the same name, and whole numbers."""

_FAMILIES = {"array": ("array",), "map": ("map",), "sized": ("array", "map")}
"""Families of types that a parameter of a signature takes."""


def _infer_call(inference: Inference, node: Expr) -> Facts:
    called = as_call(node)
    return infer_named(inference, node, *called) if called else inference.unknown(node)


def infer_named(inference: Inference, node: Expr, name: str, args: Sequence[Expr]) -> Facts:
    """Return the facts about a call of a function by its name."""
    name = name.lower()
    rule = inference.call_rule(name, len(args))
    if rule is not None:
        return rule(inference, node, args)
    if name in CASTS and len(args) == 1:
        return _infer_cast_to(inference, node, args[0], parse_type(name))
    for signature in SAFE.get(name, ()):
        if signature.fits(len(args)):
            return _infer_by(inference, node, args, signature)
    return inference.unknown(node)


def _infer_by(
    inference: Inference, node: Expr, args: Sequence[Expr], signature: Signature
) -> Facts:
    problems = []
    for position, arg in enumerate(args):
        wanted = signature.parameter(position)
        family = inference.type_of(arg).family
        if isinstance(wanted, SqlType):
            problems.append(_argument_problem(inference, arg, wanted))
        elif wanted != "any" and family not in _FAMILIES[wanted]:
            problems.append(f"{shown(node)} is not known to be free of errors")
    return inference.combine(signature.result, args, *problems)


def _argument_problem(inference: Inference, arg: Expr, wanted: SqlType) -> str:
    kind = inference.type_of(arg)
    is_taken_as_is = (wanted == STRING and kind == BINARY) or (
        wanted.family == "timestamp" and kind.family == "timestamp_ntz"
    )
    return "" if is_taken_as_is else inference.cast_problem(arg, wanted)


def _write_call(writer: SqlWriter, node: Expr) -> str:
    called = as_call(node)
    if called is None or re.fullmatch(r"\w+", called[0]) is None:
        raise UnwritableError(type(node).__name__)
    return f"{called[0].lower()}({writer.write_list(called[1])})"


def _write_trim(writer: SqlWriter, node: Expr) -> str:
    if node.args.get("expression") is not None:
        raise UnwritableError("TRIM")  # which of two arguments is the text, varies
    return _write_call(writer, node)


def _infer_extract(inference: Inference, node: Expr, args: Sequence[Expr]) -> Facts:
    name = inference.facts(args[0]).literal or args[0].name
    return infer_named(inference, node, name if name.lower() in _DATE_PARTS else "", args[1:])


def _write_extract(writer: SqlWriter, node: Expr) -> str:
    return f"EXTRACT({node.this.name} FROM {writer.write(node.expression)})"


def _infer_bracket(inference: Inference, node: Expr) -> Facts:
    container, keys = inference.type_of(node.this), node.expressions
    parts = [node.this, *keys]
    if container.family == "map" and len(keys) == 1:
        problem = inference.cast_problem(keys[0], key_type(container))
        return inference.combine(element_type(container), parts, problem)
    if container.family == "array" and len(keys) == 1:
        problem = f"{shown(node)} raises in ANSI mode if there is no such element"
        return inference.combine(element_type(container), parts, problem if inference.ansi else "")
    return inference.unknown(node)


def _write_bracket(writer: SqlWriter, node: Expr) -> str:
    return f"{writer.write(node.this)}[{writer.write_list(node.expressions)}]"


def _infer_array(inference: Inference, node: Expr) -> Facts:
    kind, problems = inference.shared_type(node.expressions)
    array = SqlType("array", f"array<{kind.text}>")
    return inference.combine(array, node.expressions, *problems)


def _infer_contains(inference: Inference, node: Expr, args: Sequence[Expr]) -> Facts:
    elements, wanted = element_type(inference.type_of(args[0])), inference.type_of(args[1])
    is_same = elements.text == wanted.text or elements.family == wanted.family == "integer"
    is_fine = is_same and elements.is_known
    return inference.combine(BOOLEAN, args) if is_fine else inference.unknown(node)


def _infer_element(inference: Inference, node: Expr, args: Sequence[Expr]) -> Facts:
    container = inference.type_of(args[0])
    if container.family != "map":
        return inference.unknown(node)
    problem = inference.cast_problem(args[1], key_type(container))
    return inference.combine(element_type(container), args, problem)


_CALL = Node(_infer_call, _write_call)
_STRICT = _CALL._replace(free=lambda rewriter, node: rewriter.call(node))


# -- the tables ------------------------------------------------------------------------------------

NODES: dict[type[Expr], Node] = {
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE), _COMPARED),
    **dict.fromkeys((exp.NullSafeEQ, exp.NullSafeNEQ), _SAME),
    exp.Between: Node(_infer_between, _write_between, PREDICATE, _free_between),
    exp.In: Node(_infer_in, _write_in, PREDICATE, _free_in),
    exp.And: Node(_infer_connective, write_operator, AND),
    exp.Or: Node(_infer_connective, write_operator, OR),
    exp.Not: Node(
        _infer_connective, lambda writer, node: f"(NOT {writer.write(node.this)})", NOT, _free_not
    ),
    exp.Is: Node(_infer_is, write_operator, PREDICATE),
    exp.Case: Node(_infer_case, _write_case, free=_free_case),
    exp.If: Node(_infer_case, _write_if, free=_free_case),
    exp.Like: _LIKE,
    exp.ILike: _LIKE,
    exp.Escape: Node(_infer_escape, _write_escape, PREDICATE),
    exp.RegexpLike: Node(_infer_regex, write_operator, PREDICATE, _free_like),
    exp.DPipe: Node(_infer_concatenation, write_operator, SUM),
    exp.Concat: Node(_infer_concatenation),
    **dict.fromkeys((exp.Add, exp.Sub), _SUM),
    **dict.fromkeys((exp.Mul, exp.Div, exp.Mod, exp.IntDiv), _PRODUCT),
    exp.Neg: Node(_infer_negative, _write_negative, SIGN, _free_negative),
    exp.BitwiseAnd: Node(_infer_bits, write_operator, BIT_AND),
    exp.BitwiseOr: Node(_infer_bits, write_operator, BIT_OR),
    exp.BitwiseXor: Node(_infer_bits, write_operator, BIT_XOR),
    exp.BitwiseNot: Node(_infer_bits, lambda writer, node: f"(~ {writer.write(node.this)})", SIGN),
    exp.BitwiseLeftShift: Node(_infer_bits, write_operator, SHIFT),
    exp.BitwiseRightShift: Node(_infer_bits, write_operator, SHIFT),
    exp.Column: Node(_infer_column, _write_column),
    exp.Literal: Node(_infer_literal, _write_literal),
    exp.RawString: Node(
        lambda _, node: Facts(STRING, literal=str(node.this)),
        lambda _, node: string_literal(str(node.this)),
    ),
    exp.HexString: Node(lambda *_: Facts(BINARY), _write_hex),
    exp.Boolean: Node(lambda *_: Facts(BOOLEAN), lambda _, node: "TRUE" if node.this else "FALSE"),
    exp.Null: Node(lambda *_: Facts(NULL), lambda *_: "NULL"),
    exp.Interval: Node(_infer_interval, _write_interval),
    exp.Paren: Node(
        lambda inference, node: inference.facts(node.this),
        lambda writer, node: writer.write(node.this),
    ),
    exp.Cast: Node(_infer_cast, _write_cast, free=_free_cast),
    exp.TryCast: Node(_infer_try_cast, _write_cast),
    exp.Anonymous: _STRICT,
    exp.Substring: _STRICT,
    exp.Trim: _STRICT._replace(write=_write_trim),
    exp.Extract: _CALL._replace(write=_write_extract),
    exp.StrPosition: _CALL,
    exp.CurrentDate: _CALL,
    exp.CurrentTimestamp: _CALL,
    exp.CurrentUser: _CALL,
    exp.SessionUser: _CALL,
    exp.Bracket: Node(_infer_bracket, _write_bracket),
    exp.Array: Node(
        _infer_array, lambda writer, node: f"array({writer.write_list(node.expressions)})"
    ),
}
CALLS: dict[tuple[str, int], Call] = {
    ("coalesce", -1): Call(_infer_chosen, _free_coalesce),
    ("nvl", 2): Call(_infer_chosen, _free_coalesce),
    ("ifnull", 2): Call(_infer_chosen, _free_coalesce),
    ("greatest", -1): Call(_infer_chosen),
    ("least", -1): Call(_infer_chosen),
    ("nullif", 2): Call(_infer_nullif, _free_nullif),
    ("equal_null", 2): Call(_infer_equal_null),
    **{(name, 2): Call(_infer_regex_call) for name in ("rlike", "regexp", "regexp_like")},
    ("replace", 3): Call(_infer_replace),
    **{(name, 2): Call(_infer_arithmetic, _free_arithmetic) for name in _NAMED},
    ("abs", 1): Call(_infer_absolute, _free_absolute),
    **{(name, 1): Call(_infer_floor) for name in ("floor", "ceil", "ceiling")},
    **{(name, n): Call(_infer_round) for name in ("round", "bround") for n in (1, 2)},
    **{(name, 2): Call(_infer_try) for name in ("try_add", "try_subtract", "try_multiply")},
    **{(name, 2): Call(_infer_try) for name in ("try_divide", "try_mod")},
    **{(name, 2): Call(_infer_extract) for name in ("extract", "date_part", "datepart")},
    **{(name, 2): Call(_infer_element) for name in ("element_at", "try_element_at")},
    ("array_contains", 2): Call(_infer_contains),
}
"""By name and number of arguments (-1: any); other functions are in ``sql.functions``."""

INFER = {kind: node.infer for kind, node in NODES.items()}
WRITE = {kind: node.write for kind, node in NODES.items() if node.write is not None}
BINDS = {kind: node.binds for kind, node in NODES.items()}
FREE = {kind: node.free for kind, node in NODES.items() if node.free is not None}
INFER_CALLS = {key: call.infer for key, call in CALLS.items()}
FREE_CALLS = {key: call.free for key, call in CALLS.items() if call.free is not None}
"""The table by column, as each pass takes it."""
