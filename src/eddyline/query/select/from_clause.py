"""Reader of FROM: streams, their names in the query, and their windows."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Union

from sqlglot import exp

from eddyline.errors import QueryError
from eddyline.query.cql import window_of
from eddyline.query.query import NOW, UNBOUNDED, SessionWindow, SlideWindow
from eddyline.query.select.grammar import FIRST, WINDOWS
from eddyline.query.select.model_clause import models_behind
from eddyline.query.select.statement import Exists, Scope
from eddyline.query.select.with_clause import LATER
from eddyline.registry import unknown
from eddyline.sql.parsing import offset_of, refuse

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sqlglot import Expr

    from eddyline.query.query import JoinKind, Query, Window
    from eddyline.query.select.grammar import Span
    from eddyline.query.select.statement import Statement

ItemKind = Union["JoinKind", Literal["full"]]
"""The way in which an item of FROM is joined."""

_KINDS: Mapping[tuple[str, str], ItemKind] = {
    ("", ""): "inner",
    ("", "INNER"): "inner",
    ("", "CROSS"): "inner",
    ("LEFT", ""): "left",
    ("LEFT", "OUTER"): "left",
    ("RIGHT", ""): "left",
    ("RIGHT", "OUTER"): "left",
    ("LEFT", "SEMI"): "semi",
    ("", "SEMI"): "semi",
    ("LEFT", "ANTI"): "anti",
    ("", "ANTI"): "anti",
    ("FULL", ""): "full",
    ("FULL", "OUTER"): "full",
}
"""Joins by side and kind, as sqlglot calls them; that of a RIGHT JOIN has its sides turned."""


OF_FILTERS = "here a row passes or not whatever the other rows are"
"""The reason why a filter has no window."""

_BEHIND = {
    "sample": "TABLESAMPLE",
    "pivots": "PIVOT",
    "version": "VERSION AS OF",
    "laterals": "LATERAL VIEW",
}
"""Clauses behind a name in FROM that sqlglot reads and eddyline does not run."""


Subquery = tuple["Query", "Mapping[str, str]", str | None]
"""A subquery, its columns with their types, and its event time, as far as the text tells it."""


@dataclass(frozen=True, slots=True)
class FromItem:
    """One item of FROM."""

    name: str
    stream: str
    table: exp.Table | exp.Subquery
    columns: Mapping[str, str]
    """Name and Spark type of each."""
    query: Query | None
    """The subquery, if it is one."""
    added: exp.Join | Exists | None
    """The join or the condition that adds it; None for the first."""
    window: Window
    time: str | None = None
    """The column of its event time; None if it is a table, or if the text does not tell it."""
    is_table: bool = False
    """Whether it is a table by its name."""
    place: int = 1
    """Its number in FROM, where EXISTS and IN follow."""

    @property
    def states_window(self) -> bool:
        """Whether the query writes a window behind it."""
        return bool(_window_spans(self.table))

    @property
    def start(self) -> int:
        """The offset of the stream's name, or that of the subquery."""
        name: Expr = self.table.this if self.query is None else self.table.args["alias"]
        return offset_of(name)

    @property
    def using(self) -> Sequence[Expr]:
        """The names of USING."""
        if not isinstance(self.added, exp.Join):
            return ()
        names: Sequence[Expr] = self.added.args.get("using") or ()
        return names

    @property
    def on(self) -> Expr | None:
        """The condition on which it is joined, if there is one."""
        if isinstance(self.added, Exists):
            where = self.added.select.args.get("where")
            return None if where is None else where.this
        return None if self.added is None else self.added.args.get("on")

    def said(self, statement: Statement) -> tuple[str, int]:
        """Return the words that add it, and their offset."""
        if isinstance(self.added, Exists):
            return self.added.said, statement.part(self.added.node).start
        return ("FROM", self.start) if self.added is None else words_of(self.added, statement)

    def window_start(self, statement: Statement) -> int:
        """Return the offset of the bracket that opens its window."""
        return statement.tokens[_window_spans(self.table)[0][0] - 1].start

    @property
    def kind(self) -> ItemKind:
        """The way in which it is joined with those before it."""
        if isinstance(self.added, Exists):
            return "anti" if self.added.is_negated else "semi"
        return "inner" if self.added is None else _kind_of(self.added) or "inner"


class FromReader:
    """Reads the items of a statement's FROM; only joins read static tables.

    Args:
        statement: the statement.
        columns: of each stream and table.
        tables: names of static tables.
        times: the event time of each stream, as far as it is known.
        no_window: the reason why one stream may have no window; empty if it may.
        subqueries: for each of the statement's sources that is a subquery, that, its columns and
            its event time.
    """

    def __init__(
        self,
        statement: Statement,
        columns: Mapping[str, Mapping[str, str]],
        tables: Collection[str],
        times: Mapping[str, str | None],
        no_window: str,
        subqueries: Sequence[Subquery | None],
    ) -> None:
        self._statement = statement
        self._text = statement.text
        self._columns = columns
        self._sources = statement.sources
        self._is_join = len(self._sources) > 1
        self._no_window = no_window
        self._subqueries = subqueries
        self._tables = tables
        self._times = times
        streams = [name for name in columns if self._is_join or name not in tables]
        self._names = {name.lower(): name for name in streams}
        self._alone = {name.lower() for name in tables} - self._names.keys()
        """Tables that the query reads alone, in the place of a stream."""

    def items(self) -> list[FromItem]:
        """Return the items as they were written."""
        if not self._is_join and self._no_window:
            self._check_single(self._sources[0][0])
        items: list[FromItem] = []
        for (source, join), subquery in zip(self._sources, self._subqueries, strict=True):
            if isinstance(join, exp.Join):
                self._check_join(join)
            item = (
                self._item(source, join)
                if subquery is None
                else self._subquery(source, join, *subquery)
            )
            of_from = [from_item for from_item in items if not isinstance(from_item.added, Exists)]
            self._check_name(item, of_from)
            items.append(replace(item, place=len(items) + 1))
        if self._is_join or self._no_window != OF_FILTERS:
            items = [replace(from_item, window=self._window(from_item)) for from_item in items]
        if self._is_join:
            self._check_joined(items)
        return items

    def _check_joined(self, items: Sequence[FromItem]) -> None:
        """Refuse windows that say when results are given, not how long a row can be joined."""
        for item in items:
            if isinstance(item.window, SlideWindow | SessionWindow):
                word = "SLIDE" if isinstance(item.window, SlideWindow) else "SESSION"
                start, end = _window_spans(item.table)[0]
                tokens = self._statement.tokens[start:end]
                offset = next(token.start for token in tokens if token.text.upper() == word)
                message = (
                    f"{word} is for aggregates, not for joins; write a window such as [RANGE …]"
                )
                self._statement.refuse(message, offset)

    def _check_single(self, source: Expr) -> None:
        """Refuse what only joins and aggregates may say."""
        if self._no_window == OF_FILTERS and self._is_each_row_once(source):
            return
        if spans := _window_spans(source):
            message = (
                f"a window […] is for joins, and for aggregates over one stream; {self._no_window}"
            )
            self._statement.refuse(message, self._opening(spans[0]))
        if word := self._statement.emits:
            message = (
                f"{word.upper()} is for joins, and for aggregates over one stream; "
                f"{self._no_window}"
            )
            self._statement.refuse(message, self._statement.emits_at)

    def _is_each_row_once(self, source: Expr) -> bool:
        """Return whether the results of a filter are the rows of its stream, each once.

        So it is where rows enter a window that they never leave, and where each is in its window
        for its instant alone. Equal rows are told apart, unlike in CQL's difference of bags.
        """
        emits = self._statement.emits
        with suppress(QueryError):  # it is refused, whatever it is
            windows = windows_behind(self._statement, source, source.alias_or_name)
            if windows == [NOW]:
                return emits in ("istream", "rstream")
            return windows in ([], [UNBOUNDED]) and emits in (None, "istream")
        return False

    def _check_join(self, join: exp.Join) -> None:
        if _kind_of(join) is None or not isinstance(join.this, exp.Table | exp.Subquery):
            shown, offset = words_of(join, self._statement)
            message = (
                f"{shown} is not supported yet; inner, LEFT, RIGHT, FULL, SEMI and ANTI joins are"
            )
            self._statement.refuse(message, offset)

    def _item(self, source: Expr, join: exp.Join | Exists | None) -> FromItem:
        table = self._checked_table(source)
        for clause in models_behind(table):
            message = "MODEL is read by the engine: engine.query(…)"
            self._statement.refuse(message, clause.start)
        if table.name.lower() in self._alone:
            message = (
                f"{table.name!r} is a table: join it with a stream, or query it alone and "
                f"without a window"
            )
            self._statement.refuse(message, offset_of(table.this))
        if table.name.lower() not in self._names:
            message = unknown("stream", table.name, list(self._names.values()))
            if LATER in table.meta:
                message += "; a query of WITH reads the names that WITH defines before it"
            refuse(message, self._text, offset_of(table.this), stream=table.name)
        stream = self._names[table.name.lower()]
        columns = self._columns[stream]
        name, time = table.alias or stream, self._times.get(stream)
        is_table = stream in self._tables
        return FromItem(name, stream, table, columns, None, join, UNBOUNDED, time, is_table)

    def _subquery(
        self,
        source: Expr,
        join: exp.Join | Exists | None,
        query: Query,
        columns: Mapping[str, str],
        time: str | None,
    ) -> FromItem:
        assert isinstance(source, exp.Subquery)
        alias = source.args.get("alias")
        if alias is None or not source.alias:
            message = "a subquery in FROM needs a name: FROM (SELECT …) AS x"
            refuse(message, self._text, self._statement.start_of(source))
        check_bare(self._statement, source)
        name = source.alias
        return FromItem(name, name, source, columns, query, join, UNBOUNDED, time)

    def _checked_table(self, source: Expr) -> exp.Table:
        """Refuse what is not the bare name of a stream, perhaps with an alias."""
        is_bare = isinstance(source.this, exp.Identifier) and not source.args.get("db")
        if not isinstance(source, exp.Table) or not is_bare:
            needs = "the names of streams" if self._is_join else "the name of one stream"
            self._statement.refuse(f"FROM needs {needs}", offset_of(source))
        check_bare(self._statement, source)
        return source

    def _check_name(self, item: FromItem, others: Sequence[FromItem]) -> None:
        for other in others:
            if other.name.lower() != item.name.lower():
                continue
            alias = item.table.args.get("alias")
            start = item.start if alias is None else offset_of(alias.this)
            message = f"two inputs are called {item.name!r}; give them different aliases"
            if not alias and not other.table.args.get("alias"):
                called = f"FROM {item.stream} AS a, {item.stream} AS b"
                message = f"stream {item.stream!r} is read twice; give each an alias: {called}"
            refuse(message, self._text, start, name=item.name)

    # -- windows ----------------------------------------------------------------------------------

    def _window(self, item: FromItem) -> Window:
        spans = _window_spans(item.table)
        if len(spans) > 1:
            message = f"{item.name!r} has two windows; write one"
            refuse(message, self._text, self._opening(spans[1]), name=item.name)
        if not spans:
            return item.window
        (window,) = windows_behind(self._statement, item.table, item.name)
        if window.counts is None:
            return window
        start, end = spans[0]
        tokens, where = self._statement.tokens[start:end], f"the window of {item.name!r}"
        scope = Scope({}, ()).joined(item.name, item.columns, ())
        offsets = {token.text: token.start for token in reversed(tokens)}
        columns = (
            scope.resolve([item.name, column], self._text, offsets[column], where)[0].column
            for column in window.counts.partition_by
        )
        return replace(window.counts, partition_by=tuple(columns))

    def _opening(self, span: Span) -> int:
        """Return the offset of the bracket that opens a window."""
        return self._statement.tokens[span[0] - 1].start


def windows_behind(statement: Statement, source: Expr, name: str) -> list[Window]:
    """Read the windows that stand behind a source of FROM, whatever its columns are.

    Raises:
        QueryError: one cannot be read; the message shows where.
    """
    tokens, where = statement.tokens, f"the window of {name!r}"
    return [
        window_of(statement.text, tokens[start:end], tokens[end].start, where)
        for start, end in _window_spans(source)
    ]


def check_bare(statement: Statement, source: Expr) -> None:
    """Refuse what stands behind a source of FROM besides its name, windows and MODEL.

    Raises:
        NotSupportedError: joins, TABLESAMPLE, PIVOT, VERSION AS OF; the message shows where.
    """
    if source.args.get("joins"):
        message = "nested joins are not supported yet; write s JOIN t ON … JOIN u ON …"
        statement.refuse(message, offset_of(source.args["joins"][0].this))
    for key, word in _BEHIND.items():
        if clause := source.args.get(key):
            is_unpivot = key == "pivots" and clause[0].args.get("unpivot")
            phrase = "UNPIVOT" if is_unpivot else word
            message = f"{phrase} is not supported yet; the name of a stream stands alone in FROM"
            offset = next(
                (t.start for t in statement.tokens if t.text.upper() == phrase.split()[0]), 0
            )
            statement.refuse(message, max(offset, offset_of(source)))
    alias = source.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        message = "names of columns in FROM are not supported yet"
        statement.refuse(message, offset_of(alias))


def words_of(join: exp.Join, statement: Statement) -> tuple[str, int]:
    """Return the words of a join, and their offset."""
    tokens, name = statement.tokens[join.meta[FIRST] :], offset_of(join.this)
    words = [token.text.upper() for token in tokens if token.start < name]
    return " ".join(words) or "this join", tokens[0].start


def _kind_of(join: exp.Join) -> ItemKind | None:
    """Return the kind of a join; None if it is none of those that are run."""
    which = join.args.get("side") or "", join.args.get("kind") or ""
    return None if join.args.get("method") else _KINDS.get(which)


def _window_spans(source: Expr) -> list[Span]:
    """Return the spans of the windows behind the name and behind the alias."""
    alias = source.args.get("alias")
    spans: list[Span] = source.meta.get(WINDOWS, [])
    return [*spans, *(alias.meta.get(WINDOWS, []) if alias is not None else [])]
