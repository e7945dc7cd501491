"""Reads FROM of a join: which streams under which names, over which windows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import TokenType, exp

from eddyline.query.select.clauses import SelectReader
from eddyline.query.select.scope import Scope
from eddyline.query.windows import RowsWindow, UnboundedWindow, window_of
from eddyline.registry import unknown
from eddyline.sql.parsing import offset_of, refuse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlglot import Expr, Token

    from eddyline.query.predicates import FunctionPredicate
    from eddyline.query.select.cql_syntax import CutWindow
    from eddyline.query.windows import Window

_NAMES_ONLY = "FROM needs the names of streams"
_JOIN_WORDS = (
    TokenType.COMMA,
    TokenType.JOIN,
    TokenType.INNER,
    TokenType.CROSS,
    TokenType.OUTER,
    TokenType.LEFT,
    TokenType.RIGHT,
    TokenType.FULL,
    TokenType.SEMI,
    TokenType.ANTI,
    TokenType.NATURAL,
    TokenType.LATERAL,
)


_INNER = ("", "INNER", "CROSS")


@dataclass(frozen=True, slots=True)
class FromItem:
    """One item of FROM."""

    name: str
    stream: str
    first: int
    """Position of the token of the stream's name."""
    last: int
    """Position of the last token: the alias, if there is one."""
    join: exp.Join | None
    """The join that adds it; None for the first."""


class FromReader(SelectReader):
    """One join whose FROM is read.

    Args:
        text: the query.
        tokens: those of the SELECT, without windows.
        windows: the windows that were cut out.
        columns: name and Spark type of each column, by stream or table.
        functions: the predicates that may be called, by name.
    """

    def __init__(
        self,
        text: str,
        tokens: Sequence[Token],
        windows: Sequence[CutWindow],
        columns: Mapping[str, Mapping[str, str]],
        functions: Mapping[str, FunctionPredicate],
    ) -> None:
        super().__init__(text, tokens, functions)
        self._windows = windows
        self._columns = columns
        self._positions = {token.start: position for position, token in enumerate(tokens)}
        self._check_is_select()
        self._tree = self._parse()
        self._check_clauses(self._tree, run=("joins",))

    def _check_several(self, *, said: str | None) -> None:
        if self._tree.args.get("joins"):
            return
        if self._windows:
            start = self._windows[0].opening.start
            self._refuse("a window […] over one stream is not supported yet", start)
        if said is not None:
            self._refuse(f"{said.upper()} of one stream is not supported yet", 0)
        refuse("a join needs two streams or more", self._text, self._tokens[0].start)

    def _items(self) -> list[FromItem]:
        first = (self._tree.args.get("from_") or self._tree.args["from"]).this
        items: list[FromItem] = []
        for join in (None, *self._tree.args["joins"]):
            source = first if join is None else join.this
            if join is not None:
                self._check_join(join)
            item = self._item(source, join)
            self._check_name(item, items)
            items.append(item)
        return items

    def _check_join(self, join: exp.Join) -> None:
        kind = join.args.get("kind") or ""
        at = self._token_at(offset_of(join.this))
        words = self._tokens[self._words_before(at) : at]
        is_other = join.args.get("side") or join.args.get("method") or kind not in _INNER
        if is_other or not isinstance(join.this, exp.Table):
            shown = " ".join(word.text.upper() for word in words) or "this join"
            start = (words or [self._tokens[at]])[0].start
            self._refuse(f"{shown} is not supported yet; only inner joins of streams are", start)

    def _words_before(self, position: int) -> int:
        """Return the position of the first of the words that join an item: INNER JOIN."""
        while self._tokens[position - 1].token_type in _JOIN_WORDS:
            if self._tokens[position - 2].token_type == TokenType.DOT:
                break  # a column: ON s.k = t.left JOIN u
            position -= 1
        return position

    def _item(self, source: Expr, join: exp.Join | None) -> FromItem:
        table = self._check_only_name(source, _NAMES_ONLY)
        if table.args.get("joins"):
            message = "nested joins are not supported yet; write s JOIN t ON … JOIN u ON …"
            self._refuse(message, offset_of(table.args["joins"][0].this))
        names = {name.lower(): name for name in self._columns}
        if table.name.lower() not in names:
            message = unknown("stream", table.name, self._columns)
            refuse(message, self._text, offset_of(table.this), stream=table.name)
        first = last = self._token_at(offset_of(table.this))
        alias = table.args.get("alias")
        if alias is not None:
            last = self._token_at(offset_of(alias.this))
            if alias.args.get("columns"):
                self._refuse("names of columns in FROM are not supported yet", offset_of(alias))
        stream = names[table.name.lower()]
        return FromItem(table.alias or stream, stream, first, last, join)

    def _check_name(self, item: FromItem, others: Sequence[FromItem]) -> None:
        for other in others:
            if other.name.lower() != item.name.lower():
                continue
            start = self._tokens[item.last].start
            message = f"two inputs are called {item.name!r}; give them different aliases"
            if item.first == item.last and other.first == other.last:
                called = f"FROM {item.stream} AS a, {item.stream} AS b"
                message = f"stream {item.stream!r} is read twice; give each an alias: {called}"
            refuse(message, self._text, start, name=item.name)

    def _windows_of(self, items: Sequence[FromItem]) -> list[Window]:
        found: dict[str, Window] = {}
        for cut in self._windows:
            start = cut.opening.start
            places = [item for item in items if cut.position - 1 in (item.first, item.last)]
            if not places:
                message = "a window stands behind the name or the alias of a stream"
                refuse(message, self._text, start)
            item = places[0]
            if item.name in found:
                message = f"{item.name!r} has two windows; write one"
                refuse(message, self._text, start, name=item.name)
            found[item.name] = self._window(cut, item)
        return [found.get(item.name, UnboundedWindow()) for item in items]

    def _window(self, cut: CutWindow, item: FromItem) -> Window:
        where = f"the window of {item.name!r}"
        window = window_of(self._text, cut.tokens, cut.closing.start, where)
        if not isinstance(window, RowsWindow):
            return window
        own = Scope({}, ()).joined(item.name, self._columns[item.stream], ())
        start = {token.text: token.start for token in reversed(cut.tokens)}
        found = (
            own.resolve([item.name, column], self._text, start[column], where)[0]
            for column in window.partition_by
        )
        return replace(window, partition_by=tuple(each.column for each in found))

    def _token_at(self, offset: int) -> int:
        return self._positions[offset]
