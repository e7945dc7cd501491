"""Columns, literals, intervals and parentheses."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

from eddyline.sql.arithmetic import excludes_zero, number_type
from eddyline.sql.inference import Facts, shown
from eddyline.sql.nodes.calls import infer_named
from eddyline.sql.nodes.rules import Node
from eddyline.sql.rendering import UnwritableError, string_literal
from eddyline.sql.types import BINARY, BOOLEAN, NULL, STRING, SqlType

if TYPE_CHECKING:
    from sqlglot import Expr

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


NODES: dict[type[Expr], Node] = {
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
