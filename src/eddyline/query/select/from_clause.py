"""Reads FROM: which streams under which names, over which windows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from eddyline.query.cql import FIRST, WINDOWS, window_of
from eddyline.query.select.names import Scope
from eddyline.query.windows import UnboundedWindow
from eddyline.registry import unknown
from eddyline.sql.parsing import offset_of, refuse

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sqlglot import Expr

    from eddyline.query.cql import Span
    from eddyline.query.select.statement import Statement
    from eddyline.query.windows import Window

_INNER = ("", "INNER", "CROSS")


@dataclass(frozen=True, slots=True)
class FromItem:
    """One item of FROM."""

    name: str
    stream: str
    table: exp.Table
    join: exp.Join | None
    """The join that adds it; None for the first."""
    window: Window

    @property
    def start(self) -> int:
        """The offset of the stream's name."""
        return offset_of(self.table.this)

    @property
    def using(self) -> Sequence[Expr]:
        """The names of USING."""
        found: Sequence[Expr] = (self.join.args.get("using") if self.join else None) or ()
        return found


class FromReader:
    """Reads the items of a statement's FROM; only joins read static tables."""

    def __init__(
        self,
        statement: Statement,
        columns: Mapping[str, Mapping[str, str]],
        tables: Collection[str],
    ) -> None:
        self._statement = statement
        self._text = statement.text
        self._columns = columns
        self._sources = statement.sources
        self._is_join = len(self._sources) > 1
        known = [name for name in columns if self._is_join or name not in tables]
        self._names = {name.lower(): name for name in known}

    def items(self) -> list[FromItem]:
        """Return the items as they were written; only inner joins of streams are run yet."""
        if not self._is_join:
            self._check_single(self._sources[0][0])
        items: list[FromItem] = []
        for source, join in self._sources:
            if join is not None:
                self._check_join(join)
            item = self._item(source, join)
            self._check_name(item, items)
            items.append(item)
        return [replace(each, window=self._window(each)) for each in items]

    def _check_single(self, source: Expr) -> None:
        """Refuse what only joins may say."""
        if spans := _window_spans(source):
            message = "a window […] over one stream is not supported yet"
            self._statement.refuse(message, self._opening(spans[0]))
        if said := self._statement.emits:
            self._statement.refuse(f"{said.upper()} of one stream is not supported yet", 0)

    def _check_join(self, join: exp.Join) -> None:
        is_other = join.args.get("side") or join.args.get("method")
        is_other = is_other or (join.args.get("kind") or "") not in _INNER
        if is_other or not isinstance(join.this, exp.Table):
            tokens, name = self._statement.tokens[join.meta[FIRST] :], offset_of(join.this)
            words = [token for token in tokens if token.start < name]
            shown = " ".join(word.text.upper() for word in words) or "this join"
            message = f"{shown} is not supported yet; only inner joins of streams are"
            self._statement.refuse(message, tokens[0].start)

    def _item(self, source: Expr, join: exp.Join | None) -> FromItem:
        table = self._checked_table(source)
        if table.args.get("joins"):
            message = "nested joins are not supported yet; write s JOIN t ON … JOIN u ON …"
            self._statement.refuse(message, offset_of(table.args["joins"][0].this))
        if table.name.lower() not in self._names:
            message = unknown("stream", table.name, list(self._names.values()))
            refuse(message, self._text, offset_of(table.this), stream=table.name)
        alias = table.args.get("alias")
        if alias is not None and alias.args.get("columns"):
            message = "names of columns in FROM are not supported yet"
            self._statement.refuse(message, offset_of(alias))
        stream = self._names[table.name.lower()]
        return FromItem(table.alias or stream, stream, table, join, UnboundedWindow())

    def _checked_table(self, source: Expr) -> exp.Table:
        """Refuse what is not the bare name of a stream, perhaps with an alias."""
        is_bare = isinstance(source.this, exp.Identifier) and not source.args.get("db")
        if not isinstance(source, exp.Table) or not is_bare:
            needs = "the names of streams" if self._is_join else "the name of one stream"
            self._statement.refuse(f"FROM needs {needs}", offset_of(source))
        for key in ("sample", "pivots", "version", "laterals"):
            if source.args.get(key):
                message = "only the stream's name may stand in FROM yet"
                self._statement.refuse(message, offset_of(source))
        return source

    def _check_name(self, item: FromItem, others: Sequence[FromItem]) -> None:
        for other in others:
            if other.name.lower() != item.name.lower():
                continue
            alias = item.table.args.get("alias")
            start = item.start if alias is None else offset_of(alias.this)
            message = f"two inputs are called {item.name!r}; give them different aliases"
            if not item.table.alias and not other.table.alias:
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
        start, end = spans[0]
        tokens, where = self._statement.tokens[start:end], f"the window of {item.name!r}"
        window = window_of(self._text, tokens, self._statement.tokens[end].start, where)
        if window.counts is None:
            return window
        own = Scope({}, ()).joined(item.name, self._columns[item.stream], ())
        offsets = {token.text: token.start for token in reversed(tokens)}
        columns = (
            own.resolve([item.name, column], self._text, offsets[column], where)[0].column
            for column in window.counts.partition_by
        )
        return replace(window.counts, partition_by=tuple(columns))

    def _opening(self, span: Span) -> int:
        """Return the offset of the bracket that opens a window."""
        return self._statement.tokens[span[0] - 1].start


def _window_spans(source: Expr) -> list[Span]:
    """Return the spans of the windows behind the name and behind the alias."""
    alias = source.args.get("alias")
    own: list[Span] = source.meta.get(WINDOWS, [])
    return [*own, *(alias.meta.get(WINDOWS, []) if alias is not None else [])]
