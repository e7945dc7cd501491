"""Type of every SQL expression, and whether it can raise.

Conservative: a part that is not known to be free of errors may raise. Most of it is one question,
whether a cast can fail (``types.cast_may_raise``), as Spark's ANSI mode casts wherever types
differ: ``s > 5`` reads the string ``s`` as a bigint, and raises on ``'x'``. The rule for each type
of node stands in ``sql.nodes``; here is what those rules share.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import islice
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from eddyline.sql.literals import constant_of
from eddyline.sql.parsing import SparkText
from eddyline.sql.types import (
    MAX_PRECISION,
    NULL,
    OTHER,
    TIMES,
    cast_may_raise,
    common_type,
    excludes_zero,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sqlglot import Expr

    from eddyline.sql.functions import ColumnRef
    from eddyline.sql.types import SqlType

    NodeRule = Callable[["Inference", Any], "Facts"]
    CallRule = Callable[["Inference", Any, Sequence[Expr]], "Facts"]

_MAX_SHOWN = 60
"""Characters of an expression that a reason shows."""

_MAX_LEVELS = 8
"""Levels of a long expression that a reason shows."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about one node."""

    type: SqlType
    reason: str = ""
    """Reason why the node or a part of it may raise; empty if it never does."""
    raises_here: bool = False
    """Whether the node's own work may raise, and not only its parts."""
    literal: str | None = None
    """The text of a string literal."""
    is_never_zero: bool = False
    """Whether it is a number other than 0."""


class Inference:
    """Infers the facts about the nodes of one tree.

    The column of each node that names one is found by the node's ``id``, rules of functions by name
    and number of arguments (-1: any number).
    """

    def __init__(
        self,
        references: Mapping[int, ColumnRef],
        nodes: Mapping[type[Expr], NodeRule],
        calls: Mapping[tuple[str, int], CallRule],
        *,
        ansi: bool,
    ) -> None:
        self.references = references
        self.ansi = ansi
        self._nodes = nodes
        self._calls = calls
        self._facts: dict[int, Facts] = {}

    def facts(self, node: Expr) -> Facts:
        """Return the facts about a node of the tree."""
        if id(node) not in self._facts:
            rule = self._nodes.get(type(node))
            self._facts[id(node)] = rule(self, node) if rule else self.unknown(node)
        return self._facts[id(node)]

    def type_of(self, node: Expr) -> SqlType:
        """Return the type of a node."""
        return self.facts(node).type

    def call_rule(self, name: str, n_args: int) -> CallRule | None:
        """Return the rule of a function, if it has one of its own."""
        return self._calls.get((name, n_args)) or self._calls.get((name, -1))

    def unknown(self, node: Expr) -> Facts:
        """Return the facts about a node of which nothing is known."""
        return self.combine(OTHER, [], f"{shown(node)} is not known to be free of errors")

    def combine(self, kind: SqlType, parts: Iterable[Expr], *problems: str) -> Facts:
        """Return the facts about a node; it may raise where a part may, or by its problems."""
        here = next(filter(None, problems), "")
        below = (self.facts(part).reason for part in parts)
        reason = next(filter(None, below), "") or here
        return Facts(kind, reason, bool(here), is_never_zero=excludes_zero(kind))

    def cast_problem(self, part: Expr, target: SqlType) -> str:
        """Return the reason why an implicit cast may raise (empty if it never does)."""
        facts = self.facts(part)
        if not cast_may_raise(facts.type, target, facts.literal) or _is_near(part, target):
            return ""
        if self.ansi:
            how = f"is read as {target.text}, which raises in ANSI mode on values that do not fit"
            return f"{shown(part)} {how}"
        is_plain = facts.type.is_known and target.is_known
        return "" if is_plain else f"{shown(part)} is of a type that is not known"

    def comparison_problem(self, left: Expr, right: Expr) -> str:
        """Return the reason why comparing two expressions may raise (empty if it never does)."""
        _, problems = self.shared_type([left, right])
        return next(filter(None, problems), "")

    def shared_type(self, parts: Sequence[Expr]) -> tuple[SqlType, list[str]]:
        """Return the type to which Spark casts several expressions, and why that may raise."""
        common = reduce(common_type, map(self.type_of, parts), NULL)
        if common.precision > MAX_PRECISION:
            return OTHER, [f"{shown(parts[0])} and {shown(parts[-1])} share no decimal type"]
        if not common.is_known and len(parts) > 1:
            problem = f"{shown(parts[0])} and {shown(parts[-1])} may not be of comparable types"
            return OTHER, [problem]
        return common, [self.cast_problem(part, common) for part in parts if len(parts) > 1]


def shown(node: Expr) -> str:
    """Return the text of a node for a reason, cut short where it is long."""
    is_long = len(list(islice(node.walk(), _MAX_SHOWN))) == _MAX_SHOWN  # a node is a character
    part = _outermost(node, _MAX_LEVELS) if is_long else node
    text = part.sql(SparkText, normalize_functions=False, comments=False)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"


def _outermost(node: Expr, levels: int) -> Expr:
    """Return the outermost levels of a long expression, with dots for those below."""
    if not levels:
        return exp.Var(this="…")

    def cut(part: Any) -> Any:
        if isinstance(part, list):
            return [cut(item) for item in part[:_MAX_SHOWN]]
        return _outermost(part, levels - 1) if isinstance(part, exp.Expr) else part

    return type(node)(**{name: cut(part) for name, part in node.args.items()})


def _is_near(part: Expr, target: SqlType) -> bool:
    """Return whether a part is a day or time that is not near the ends of time, to be cast."""
    constant = constant_of(part) if target.family in TIMES else None
    return constant is not None and constant.family in ("date", *TIMES)
