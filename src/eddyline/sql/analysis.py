"""What one SQL condition means for planning: what it reads, and what it may do wrong.

A plan may change which rows a predicate sees, so a predicate that draws lots or that can raise
must be known before it is moved. The analysis is conservative: a condition that is not known to be
free of errors may raise. For one kind that may raise, a comparison of strict expressions, it gives
a form that never raises and can move in its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from eddyline.errors import NotSupportedError
from eddyline.sql.functions import AGGREGATES, GENERATORS, NON_DETERMINISTIC, WINDOWED
from eddyline.sql.inference import FactsReader, as_name
from eddyline.sql.names import ColumnRef, Columns
from eddyline.sql.parsing import offset_of, parse_condition, refuse
from eddyline.sql.try_form import safe_form

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sqlglot import Expr


@dataclass(frozen=True, slots=True)
class SqlAnalysis:
    """What is known of one SQL text over given columns."""

    columns: tuple[str, ...]
    """The columns that it reads, by their names in the schema, in order of first mention."""
    is_deterministic: bool
    """Whether equal rows of a batch always get equal answers."""
    may_raise: bool
    """Whether it may raise on some row."""
    reason: str = ""
    """Why it is not deterministic or may raise."""
    safe_text: str | None = None
    """If it may raise and is strict: a condition that never raises, true wherever it is true or
    raises, and not true where it is false."""


def analyse(
    text: str,
    columns: Mapping[str, str],
    *,
    name: str,
    ansi: bool,
    qualifiers: Collection[str] | None = (),
    can_raise: bool | None = None,
    deterministic: bool | None = None,
) -> SqlAnalysis:
    """Return the facts about a condition; the word of its author comes first.

    Args:
        text: the condition.
        columns: name and Spark type (``bigint``, ``array<int>``) of each column of the input.
        name: the predicate, for errors.
        ansi: whether Spark raises where ANSI SQL does (``spark.sql.ansi.enabled``).
        qualifiers: names that may stand before a column, such as the alias of the stream;
            None: any, as the aliases of a DataFrame are not known.
        can_raise: the author's word on whether a row can make it raise; None: found out.
        deterministic: the author's word on whether equal rows always get equal answers; None:
            found out.

    Raises:
        QueryError: it cannot be read, names an unknown column, or is surely not a condition.
        NotSupportedError: it holds a subquery, or a function over many rows.

    Example:
        >>> found = analyse("a / b > 2", {"a": "int", "b": "int"}, name="ratio", ansi=True)
        >>> found.reason
        'a / b divides by what may be 0, which raises in ANSI mode'
        >>> found.safe_text
        'coalesce((try_divide(`a`, `b`) > 2), `a` IS NOT NULL AND `b` IS NOT NULL)'
    """
    reading = _Reading(text, columns, name, ansi=ansi, qualifiers=qualifiers)
    reading.check_is_condition()
    return reading.analysis(can_raise, deterministic, wants_form=True)


def resolve_columns(
    text: str,
    columns: Mapping[str, str],
    *,
    name: str,
    ansi: bool,
    qualifiers: Collection[str] | None = (),
) -> SqlAnalysis:
    """Return what is known of a SQL expression of any type.

    Args:
        text: a column or an expression over columns.
        columns: name and Spark type of each column of the input.
        name: the predicate that reads it, for errors.
        ansi: whether Spark raises where ANSI SQL does.
        qualifiers: as for ``analyse``.

    Raises:
        QueryError: it cannot be read or names an unknown column.
        NotSupportedError: it holds a subquery, or a function over many rows.
    """
    reading = _Reading(text, columns, name, ansi=ansi, qualifiers=qualifiers)
    return reading.analysis(None, None, wants_form=False)


def check_is_row_wise(tree: Expr, text: str, what: str, allowed: Collection[str] = ()) -> None:
    """Refuse what needs more than one row: subqueries, aggregates, windows, generators, stars.

    Args:
        tree: the expression.
        text: the text that it was read from.
        what: what it is, for the error.
        allowed: names of functions of the user (in lower case), whatever else has the name.

    Raises:
        NotSupportedError: the tree holds one; the message points at it.
    """
    for node in tree.walk():
        found = _needs_more_rows(node)
        if found and as_name(node) not in allowed:
            message = f"{what}: {found} is not supported yet"
            refuse(message, text, offset_of(node), NotSupportedError)


def _needs_more_rows(node: Expr) -> str:
    if isinstance(node, exp.Query | exp.Exists) or (
        isinstance(node, exp.In) and node.args.get("query")
    ):
        return "a subquery"
    if isinstance(node, exp.Window):
        return "a window function"
    if isinstance(node, exp.Placeholder | exp.Parameter):
        return "a parameter"
    if isinstance(node, exp.Star) and not isinstance(node.parent, exp.Anonymous):
        return "a star (name the columns)"
    is_any = isinstance(node, exp.Any | exp.All) and not isinstance(
        node.parent, exp.Like | exp.ILike
    )
    name = "any" if is_any else as_name(node)
    for names, kind in _KINDS:
        if name in names:
            return f"the {kind} {name}()"
    return ""


_KINDS = (
    (AGGREGATES, "aggregate function"),
    (WINDOWED, "window function"),
    (GENERATORS, "generator"),
)


class _Reading:
    """One text being read."""

    def __init__(
        self,
        text: str,
        columns: Mapping[str, str],
        name: str,
        *,
        ansi: bool,
        qualifiers: Collection[str] | None,
    ) -> None:
        self._what = f"predicate {name!r}"
        self._text = text
        self._tree = parse_condition(text, self._what)
        check_is_row_wise(self._tree, text, self._what)
        resolver = Columns(columns, qualifiers)
        self._references = resolver.references(self._tree, text, self._what)
        self._reader = FactsReader(self._references, ansi=ansi)

    def check_is_condition(self) -> None:
        """Refuse what surely is not boolean."""
        kind = self._reader.facts(self._tree).type
        if kind.is_known and kind.family != "boolean":
            message = f"{self._what} is not a condition: it is of type {kind.text}"
            refuse(message, self._text, offset_of(self._tree))

    def analysis(
        self, can_raise: bool | None, deterministic: bool | None, *, wants_form: bool
    ) -> SqlAnalysis:
        """Return what is known, with the author's word where there is one."""
        chance = self._chance() if deterministic is None else _SAID_RANDOM[deterministic]
        risk = self._reader.facts(self._tree).reason if can_raise is None else _SAID_RISK[can_raise]
        refs = self._refs_in_order()
        safe = None
        if risk and wants_form and not chance:
            safe = safe_form(self._tree, self._references, self._reader, self._text)
        return SqlAnalysis(
            columns=tuple(dict.fromkeys(ref.column for ref in refs)),
            is_deterministic=not chance,
            may_raise=bool(risk),
            reason=chance or risk,
            safe_text=safe,
        )

    def _chance(self) -> str:
        for node in self._tree.walk():
            if as_name(node) in NON_DETERMINISTIC:
                return f"{as_name(node)}() is not deterministic"
        return ""

    def _refs_in_order(self) -> list[ColumnRef]:
        nodes = [node for node in self._tree.find_all(exp.Column) if id(node) in self._references]
        nodes.sort(key=offset_of)
        return [self._references[id(node)] for node in nodes]


_SAID_RANDOM = {True: "", False: "it was declared not deterministic"}
_SAID_RISK = {False: "", True: "it was declared to raise on some rows"}
