"""Columns, literals, casts, elements of arrays and maps, and calls of functions."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from eddyline.sql.error_free import NoFormError
from eddyline.sql.functions import CASTS, SAFE, Signature, as_call
from eddyline.sql.inference import Facts, shown
from eddyline.sql.nodes import Call, Node
from eddyline.sql.parsing import SparkText
from eddyline.sql.rendering import UnwritableError, string_literal
from eddyline.sql.types import (
    BINARY,
    BOOLEAN,
    NULL,
    STRING,
    SqlType,
    cast_may_raise,
    element_type,
    excludes_zero,
    key_type,
    number_type,
    parse_type,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import Expr

    from eddyline.sql.error_free import FreePart, Rewriter
    from eddyline.sql.inference import Inference
    from eddyline.sql.rendering import SqlWriter


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


LEAVES: dict[type[Expr], Node] = {
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
}


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
    given = inference.facts(source)
    is_risky = inference.ansi and cast_may_raise(given.type, target, given.literal)
    problem = f"{shown(node)} raises in ANSI mode on values that do not fit"
    if given.type.family == target.family == "integer" and not is_risky:
        target = replace(target, low=given.type.low, high=given.type.high)
    found = inference.combine(target, [source], problem if is_risky else "")
    return replace(found, is_never_zero=given.is_never_zero and target.is_numeric)


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

NODES: dict[type[Expr], Node] = {
    **LEAVES,
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
    **{(name, 2): Call(_infer_extract) for name in ("extract", "date_part", "datepart")},
    **{(name, 2): Call(_infer_element) for name in ("element_at", "try_element_at")},
    ("array_contains", 2): Call(_infer_contains),
}
