"""Rule trees written out for other engines, as somebody would who knows the engine well.

Columns that rules compare in lower case are lower-cased once, into columns of their own; a pattern
becomes a search for its literal where there is one (``contains``, ``startswith``, ``endswith``),
and of a conjunction what costs least comes first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl

from benchmarks.rules.forms import spark_text
from eddyline.query.conditions import (
    And,
    IsNull,
    NativeTest,
    Node,
    Not,
    Or,
    Rule,
    TextTest,
    ValueTest,
)
from eddyline.sql.regexes import ANY, Wild

LOWER = "lower_"
"""What the names of lower-cased columns start with."""


class CannotWriteError(Exception):
    """A rule says something that the engine cannot."""


def folded_columns(rules: Iterable[Rule]) -> list[str]:
    """Return the columns that rules compare in lower case."""
    found: dict[str, None] = {}
    for rule in rules:
        for node in rule.tree.walk():
            if isinstance(node, TextTest) and node.folded:
                found.setdefault(node.operand.columns[0])
    return list(found)


def cost_of(node: Node) -> float:
    """Return what a node costs to evaluate, in comparisons of whole texts."""
    if node.children:
        return sum(map(cost_of, node.children))
    if isinstance(node, TextTest):
        return 1.0 if _shape(node.parts)[0] in ("=", "starts", "ends") else 8.0
    return 100.0 if isinstance(node, ValueTest | NativeTest) else 1.0


def _cheapest_first(parts: Sequence[Node]) -> list[Node]:
    return sorted(parts, key=cost_of)


def _shape(parts: Sequence[str | Wild]) -> tuple[str, str]:
    """Return how a pattern is searched for, and its literal where that is all of it."""
    if not parts:
        return "=", ""
    literals = [part for part in parts if isinstance(part, str)]
    shape = tuple("S" if isinstance(part, str) else part.what for part in parts)
    kinds = {("S",): "=", ("S", ANY): "starts", (ANY, "S"): "ends", (ANY, "S", ANY): "contains"}
    return (kinds[shape], literals[0]) if shape in kinds else ("like", "")


def spark_sql(node: Node) -> str:  # noqa: PLR0911 - one per kind of node
    """Return a tree as Spark SQL over columns and their lower-cased forms.

    Raises:
        CannotWriteError: it holds a test that Spark SQL has no function for.
    """
    if isinstance(node, And):
        return "(" + " AND ".join(map(spark_sql, _cheapest_first(node.parts))) + ")"
    if isinstance(node, Or):
        return "(" + " OR ".join(map(spark_sql, _cheapest_first(node.parts))) + ")"
    if isinstance(node, Not):
        return f"(NOT {spark_sql(node.part)})"
    if isinstance(node, IsNull):
        return f"{node.operand.sql} IS NULL"
    if isinstance(node, NativeTest):
        return node.sql
    if isinstance(node, ValueTest) and node.kind == "regex":
        return f"{node.operand.sql} RLIKE {spark_text(with_flags(node))}"
    if isinstance(node, TextTest):
        return _spark_pattern(node)
    msg = f"Spark SQL cannot say {node!r}"
    raise CannotWriteError(msg)


def _spark_pattern(node: TextTest) -> str:
    column = f"{LOWER}{node.operand.columns[0]}" if node.folded else node.operand.sql
    kind, text = _shape(node.parts)
    if kind == "=":
        return f"{column} = {spark_text(text)}"
    if kind == "like":
        pattern = "".join(
            part.what if isinstance(part, Wild) else re.sub(r"([\\%_])", r"\\\1", part)
            for part in node.parts
        )
        return f"{column} LIKE {spark_text(pattern)}"
    function = {"starts": "startswith", "ends": "endswith", "contains": "contains"}[kind]
    return f"{function}({column}, {spark_text(text)})"


def with_flags(node: ValueTest) -> str:
    """Return a regular expression with its flags at its start."""
    letters = "".join(
        letter for letter, flag in (("i", re.I), ("m", re.M), ("s", re.S)) if node.flags & flag
    )
    return f"(?{letters}){node.pattern}" if letters else node.pattern


MANY = 4
"""Texts from which on Polars searches for all of them together (Aho-Corasick)."""


def polars_expression(node: Node) -> Any:  # noqa: PLR0911 - one per kind of node
    """Return a tree as a Polars expression over columns and their lower-cased forms.

    Raises:
        CannotWriteError: it holds a test that Polars has no function for.
    """
    if isinstance(node, And):
        return pl.all_horizontal(*map(polars_expression, node.parts))
    if isinstance(node, Or):
        return _polars_or(node.parts)
    if isinstance(node, Not):
        return ~polars_expression(node.part)
    if isinstance(node, IsNull):
        return pl.col(node.operand.columns[0]).is_null()
    if isinstance(node, NativeTest):
        return pl.sql_expr(node.sql.replace("`", '"'))
    if isinstance(node, ValueTest) and node.kind == "regex":
        return pl.col(node.operand.columns[0]).str.contains(with_flags(node))
    if isinstance(node, TextTest):
        return _polars_pattern(node)
    msg = f"Polars cannot say {node!r}"
    raise CannotWriteError(msg)


def _polars_or(parts: Sequence[Node]) -> Any:
    together: dict[str, list[str]] = {}
    rest = []
    for part in parts:
        if isinstance(part, TextTest) and _shape(part.parts)[0] == "contains":
            together.setdefault(_polars_column(part), []).append(_shape(part.parts)[1])
        else:
            rest.append(polars_expression(part))
    for column, texts in together.items():
        search = pl.col(column).str
        if len(texts) >= MANY:
            rest.append(search.contains_any(texts))
        else:
            rest += [search.contains(text, literal=True) for text in texts]
    return pl.any_horizontal(*rest)


def _polars_column(node: TextTest) -> str:
    name: str = node.operand.columns[0]
    return f"{LOWER}{name}" if node.folded else name


def _polars_pattern(node: TextTest) -> Any:
    column = pl.col(_polars_column(node))
    kind, text = _shape(node.parts)
    if kind == "=":
        return column == text
    if kind == "starts":
        return column.str.starts_with(text)
    if kind == "ends":
        return column.str.ends_with(text)
    if kind == "contains":
        return column.str.contains(text, literal=True)
    wild = {ANY: ".*"}
    pattern = "".join(
        wild.get(part.what, ".") if isinstance(part, Wild) else re.escape(part)
        for part in node.parts
    )
    return column.str.contains(f"(?s)^{pattern}$")
