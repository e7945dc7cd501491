"""Reads ``SELECT … FROM one_stream [WHERE …]``.

What runs on Spark stays the user's text, cut at tokens; the tree only says what the text is and
whether it is supported. Qualifiers of the stream (``s.v``) are cut out of the texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import TokenType

from eddyline.query.predicates import FunctionPredicate, Predicate, SqlPredicate
from eddyline.query.query import Input, Query
from eddyline.query.select.clauses import SelectReader, from_marks, statement_tokens
from eddyline.query.windows import UnboundedWindow
from eddyline.registry import unknown
from eddyline.sql.analysis import check_is_row_wise
from eddyline.sql.conjuncts import conjunct_tokens
from eddyline.sql.parsing import offset_of, refuse

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sqlglot import Token


def read_select(
    text: str, functions: Mapping[str, FunctionPredicate], streams: Collection[str]
) -> Query:
    """Read a query.

    A conjunct that calls a function of ``functions``, or NOT of such a call, becomes that
    predicate, reading the arguments of the call; ``f()`` and ``f(*)`` read the function's own
    columns.

    Args:
        text: the query.
        functions: the predicates that may be called, by name.
        streams: the streams that may be read.

    Returns:
        The query as a value.

    Raises:
        QueryError: it cannot be read, or names an unknown stream; the message shows where.
        NotSupportedError: valid SQL that eddyline does not run yet; the message shows where.

    Example:
        >>> query = read_select("SELECT s.v FROM s WHERE s.v > 3 AND s.k = 'a'", {}, ["s"])
        >>> query.projections, [each.text for each in query.inputs[0].predicates]
        (('v',), ['v > 3', "k = 'a'"])
    """
    return _Reader(text, functions, streams).query()


class _Reader(SelectReader):
    """One statement being read."""

    def __init__(
        self, text: str, functions: Mapping[str, FunctionPredicate], streams: Collection[str]
    ) -> None:
        super().__init__(text, statement_tokens(text), functions)
        self._streams = streams
        self._check_is_select()
        self._check_no_window()
        self._tree = self._parse()
        self._check_clauses(self._tree)
        self._stream, self._alias = self._source()

    def query(self) -> Query:
        """Return the statement as a value."""
        given = Input(self._alias, self._stream, UnboundedWindow(), self._conjuncts())
        return Query((given,), (), (), (), self._projections(), "istream", self._text)

    def _check_no_window(self) -> None:
        for position in from_marks(self._tokens):
            if self._tokens[position].token_type == TokenType.L_BRACKET:
                self._refuse("a window […] is not supported yet", self._tokens[position].start)

    def _source(self) -> tuple[str, str]:
        named = (self._tree.args.get("from_") or self._tree.args["from"]).this
        source = self._check_only_name(named, "FROM needs the name of one stream")
        if source.args.get("joins"):
            self._refuse_word("JOIN", ",")
        names = {name.lower(): name for name in self._streams}
        if source.name.lower() not in names:
            message = unknown("stream", source.name, self._streams)
            refuse(message, self._text, offset_of(source), stream=source.name)
        return names[source.name.lower()], source.alias or source.name

    # The parts of the text

    def _projections(self) -> tuple[str, ...]:
        return tuple(self._unqualified(item) for item, _ in self._output_items(self._tree))

    def _conjuncts(self) -> tuple[Predicate, ...]:
        if self._tree.args.get("where") is None:
            return ()
        tokens = self._tokens[self._position(TokenType.WHERE) + 1 :]
        where = self._tree.args["where"].this
        check_is_row_wise(where, self._text, "WHERE", self._functions)
        return tuple(map(self._conjunct, conjunct_tokens(self._text, tokens)))

    def _conjunct(self, tokens: Sequence[Token]) -> Predicate:
        call = self._call(tokens)
        if call is not None:
            return self._predicate_of(call)
        self._check_no_function_tokens(tokens)
        return SqlPredicate(self._unqualified(tokens))

    def _unqualified(self, tokens: Sequence[Token]) -> str:
        """Return the source text without ``alias.`` in front of columns."""
        pieces, position, names = [], tokens[0].start, {self._alias.lower(), self._stream.lower()}
        for index, token in enumerate(tokens[:-2]):
            dotted = tokens[index + 1].token_type == TokenType.DOT
            first = index == 0 or tokens[index - 1].token_type != TokenType.DOT
            if first and dotted and token.text.lower() in names and _is_name(token):
                pieces.append(self._text[position : token.start])
                position = tokens[index + 2].start
        pieces.append(self._text[position : tokens[-1].end + 1])
        return "".join(pieces)


def _is_name(token: Token) -> bool:
    return token.token_type not in (TokenType.STRING, TokenType.NUMBER)
