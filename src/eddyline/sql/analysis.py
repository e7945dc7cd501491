"""Facts about one SQL expression that a plan needs.

They are its columns, its errors, and whether it is deterministic. A plan may change which rows a
predicate sees, so a predicate that draws lots or that can raise must be known before it is moved.
The analysis is conservative: a condition that is not known to be free of errors may raise. For many
that may raise there is a form that never raises and can move in its place (``sql.error_free``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from eddyline.errors import NotSupportedError
from eddyline.sql.error_free import Rewriter
from eddyline.sql.functions import AGGREGATES, GENERATORS, WINDOWED, Columns, as_name, drawn
from eddyline.sql.inference import Inference
from eddyline.sql.nodes import BINDS, FREE, FREE_CALLS, INFER, INFER_CALLS, WRITE
from eddyline.sql.parsing import SparkText, deep, offset_of, parse_condition, refuse, tokens_of
from eddyline.sql.rendering import SqlWriter, UnwritableError, is_read_alike, join_literals

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sqlglot import Expr

    from eddyline.sql.error_free import FreePart
    from eddyline.sql.functions import ColumnRef
    from eddyline.sql.inference import Facts
    from eddyline.sql.types import SqlType


class Expression:
    """One SQL expression over the columns of an input: read, resolved, and open to questions.

    Args:
        text: the expression.
        what: the subject of errors: ``predicate 'ratio'``.
        columns: name and Spark type (``bigint``, ``array<int>``) of each column of the input.
        ansi: whether Spark raises where ANSI SQL does (``spark.sql.ansi.enabled``).
        qualifiers: names that may stand before a column, such as the alias of the stream;
            None: any, as the aliases of a DataFrame are not known.
        functions: names of functions of the user, in lower case.
        keeps_literals: whether literals are written as in the text; otherwise equal ones are
            written alike.
        tree: of the expression, where the text has more than that, such as an alias.

    Raises:
        QueryError: it cannot be read or names an unknown column.
        NotSupportedError: it holds a subquery, or a function over many rows.
    """

    def __init__(
        self,
        text: str,
        what: str,
        columns: Mapping[str, str],
        *,
        ansi: bool,
        qualifiers: Collection[str] | None = (),
        functions: Collection[str] = (),
        keeps_literals: bool = False,
        tree: Expr | None = None,
    ) -> None:
        self.text = text
        self.what = what
        self.ansi = ansi
        tree = parse_condition(text, what) if tree is None else tree
        check_is_row_wise(tree, text, what, functions)
        if functions:
            tree = tree.copy()  # calls are taken out of it
        if tree.find(exp.Concat):
            tree = join_literals(tree.copy(), text, tokens_of(text, what))
        self.tree = tree
        self.references = Columns(columns, qualifiers).references(tree, text, what)
        self.calls: dict[int, tuple[str, int]] = {}
        """Name and offset of the calls that were taken out, by the ``id`` of what stands there."""
        self._kept: list[Expr] = []  # nodes are told apart by id
        self._inference = Inference(self.references, INFER, INFER_CALLS, ansi=ansi)
        self._writer = SqlWriter(self.references, WRITE, text, what, self.calls, keeps_literals)
        self._rewriter = Rewriter(self._inference, self._writer, FREE, FREE_CALLS)

    def facts(self, node: Expr) -> Facts:
        """Return the facts about a part of the tree."""
        return self._inference.facts(node)

    def type_of(self, node: Expr) -> SqlType:
        """Return the type of a part of the tree."""
        return self.facts(node).type

    def write(self, node: Expr) -> str:
        """Return a part of the tree as Spark SQL; see ``SqlWriter.write``."""
        return self._writer.write(node)

    def error_free(
        self, node: Expr, kind: SqlType | None = None
    ) -> tuple[FreePart, tuple[str, ...]]:
        """Return the form of a part of the tree that never raises; see ``Rewriter.form``."""
        return self._rewriter.form(node, kind)

    def take_out(self, call: exp.Anonymous) -> Expr:
        """Put TRUE in the place of a call of a Python function, and return it."""
        stand_in = exp.Boolean(this=True)
        self.calls[id(stand_in)] = (str(call.name), offset_of(call))
        self._kept += [call, stand_in]
        if call is self.tree:
            self.tree = stand_in
        else:
            call.replace(stand_in)
        return stand_in

    def cast(self, node: Expr, kind: SqlType) -> Expr:
        """Return a cast of a part of the tree."""
        cast = exp.Cast(to=exp.DataType.build(kind.text, dialect=SparkText))
        cast.args["this"] = node  # which stays where it is in its own tree
        self._kept.append(cast)
        return cast

    def references_in(self, node: Expr) -> list[ColumnRef]:
        """Return the columns that a part of the tree mentions, in the order of the text."""
        nodes = [column for column in node.find_all(exp.Column) if id(column) in self.references]
        return [self.references[id(column)] for column in sorted(nodes, key=offset_of)]

    def columns_of(self, node: Expr) -> tuple[str, ...]:
        """Return the columns that a part of the tree reads, by their names in the schema."""
        return tuple(dict.fromkeys(ref.column for ref in self.references_in(node)))

    def chance_in(self, node: Expr) -> str:
        """Return the reason why equal rows may get different answers; empty if they do not."""
        call = drawn(node)
        return "" if call is None else f"{as_name(call)}() is not deterministic"

    @property
    def is_read_alike(self) -> bool:
        """Whether Spark surely reads the text into this tree."""
        return is_read_alike(self.tree, BINDS)


@dataclass(frozen=True, slots=True)
class SqlAnalysis:
    """The facts about one SQL text over given columns."""

    columns: tuple[str, ...]
    """The columns that it reads, by their names in the schema, in order of first mention."""
    is_deterministic: bool
    """Whether equal rows of a batch always get equal answers."""
    may_raise: bool
    """Whether it may raise on some row."""
    reason: str = ""
    """Reason why it is not deterministic, or may raise."""
    safe_text: str | None = None
    """If it may raise and has such a form: a condition that never raises, true wherever it is true
    or raises, and not true where it is false."""


@deep
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

    Columns, ``ansi`` and ``qualifiers`` are as for ``Expression``. What its author says in
    ``can_raise`` (whether a row can make it raise) and ``deterministic`` (whether equal rows always
    get equal answers) is believed; None: found out.

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
    expression = Expression(
        text,
        f"predicate {name!r}",
        columns,
        ansi=ansi,
        qualifiers=qualifiers,
        keeps_literals=True,
    )
    kind = expression.type_of(expression.tree)
    if kind.is_known and kind.family != "boolean":
        message = f"{expression.what} is not a condition: it is of type {kind.text}"
        refuse(message, text, offset_of(expression.tree))
    chance = (
        expression.chance_in(expression.tree) if deterministic is None else _DECLARED[deterministic]
    )
    risk = (
        expression.facts(expression.tree).reason if can_raise is None else _DECLARED_RISK[can_raise]
    )
    safe = None if chance or not risk else _safe_text(expression)
    columns_read = expression.columns_of(expression.tree)
    return SqlAnalysis(columns_read, not chance, bool(risk), chance or risk, safe)


@deep
def resolve_columns(
    text: str,
    columns: Mapping[str, str],
    *,
    name: str,
    ansi: bool,
    qualifiers: Collection[str] | None = (),
    tree: Expr | None = None,
) -> SqlAnalysis:
    """Return the facts about a SQL expression of any type; see ``Expression`` and ``analyse``."""
    what = f"predicate {name!r}"
    expression = Expression(text, what, columns, ansi=ansi, qualifiers=qualifiers, tree=tree)
    chance, risk = expression.chance_in(expression.tree), expression.facts(expression.tree).reason
    return SqlAnalysis(
        expression.columns_of(expression.tree), not chance, bool(risk), chance or risk
    )


_DECLARED = {True: "", False: "it was declared not deterministic"}
_DECLARED_RISK = {False: "", True: "it was declared to raise on some rows"}


def _safe_text(expression: Expression) -> str | None:
    if not (expression.ansi and expression.is_read_alike):
        return None
    try:
        return expression.error_free(expression.tree)[0].true_or_raises
    except UnwritableError:
        return None


def check_is_row_wise(tree: Expr, text: str, what: str, allowed: Collection[str] = ()) -> None:
    """Refuse what needs more than one row: subqueries, aggregates, windows, generators, stars.

    Names in ``allowed`` (in lower case) are functions of the user, whatever else has the name.

    Raises:
        NotSupportedError: the tree holds one; the message points at it.
    """
    for node in tree.walk():
        reason = _needs_more_rows(node)
        if reason and as_name(node) not in allowed:
            message = f"{what}: {reason} is not supported yet"
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
