"""Reads ``SELECT … FROM one_stream [WHERE …]``.

What runs on Spark stays the user's text, cut at tokens; the tree only says what the text is and
whether it is supported. Qualifiers of the stream (``s.v``) are cut out of the texts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NoReturn

from sqlglot import TokenType, exp
from sqlglot.errors import ParseError

from eddyline.errors import NotSupportedError
from eddyline.query.conjuncts import conjunct_tokens
from eddyline.query.predicates import FunctionPredicate, Predicate, SqlPredicate
from eddyline.query.sql_analysis import check_is_row_wise
from eddyline.query.sql_text import (
    SparkText,
    closing,
    offset_of,
    parse_condition,
    refuse,
    slice_of,
    syntax_error,
    tokens_of,
)
from eddyline.registry import unknown

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sqlglot import Expr, Token


@dataclass(frozen=True, slots=True)
class SelectQuery:
    """One query over one stream."""

    stream: str
    """The stream, by the name it was given."""
    alias: str
    """The name by which the query calls it."""
    projections: tuple[str, ...]
    """Output columns as SQL texts for ``selectExpr``; ``*`` for all."""
    conjuncts: tuple[Predicate, ...]
    """The conjuncts of WHERE, as written."""
    text: str
    """The query as it was written."""


def read_select(
    text: str, functions: Mapping[str, FunctionPredicate], streams: Collection[str]
) -> SelectQuery:
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
        >>> query.projections, [each.text for each in query.conjuncts]
        (('v',), ['v > 3', "k = 'a'"])
    """
    return _Reader(text, functions, streams).query()


class _Reader:
    """One statement being read."""

    def __init__(
        self, text: str, functions: Mapping[str, FunctionPredicate], streams: Collection[str]
    ) -> None:
        self._text = text
        self._functions = {name.lower(): made for name, made in functions.items()}
        self._streams = streams
        self._tokens = tokens_of(text, "the query")
        while self._tokens and self._tokens[-1].token_type == TokenType.SEMICOLON:
            self._tokens.pop()
        self._check_tokens()
        self._tree = self._parse()
        self._check_clauses()
        self._stream, self._alias = self._source()

    def query(self) -> SelectQuery:
        """Return the statement as a value."""
        return SelectQuery(
            self._stream, self._alias, self._projections(), self._conjuncts(), self._text
        )

    # What is supported

    def _check_tokens(self) -> None:
        """Refuse what sqlglot has no tree for, and what is not a SELECT."""
        if not self._tokens:
            refuse("the query is empty", self._text, 0)
        first = self._tokens[0]
        if first.token_type == TokenType.WITH:
            self._refuse("WITH is not supported yet; write one SELECT", first.start)
        if first.token_type != TokenType.SELECT:
            message = f"a query starts with SELECT, got {first.text!r}"
            refuse(message, self._text, first.start)
        for before, token in pairwise(self._tokens):
            if token.token_type == TokenType.SEMICOLON:
                self._refuse("a query is one statement", token.start)
            is_window = token.text.upper() in ("RANGE", "ROWS", "NOW", "UNBOUNDED")
            if is_window and before.token_type == TokenType.L_BRACKET:
                self._refuse("a window […] is not supported yet", before.start)

    def _parse(self) -> exp.Select:
        try:
            tree = SparkText().parser().parse(self._tokens, self._text)[0]
        except ParseError as error:
            raise syntax_error(error, self._text, "the query") from error
        if isinstance(tree, exp.SetOperation):
            self._refuse_word("UNION", "INTERSECT", "EXCEPT", "MINUS")
        if not isinstance(tree, exp.Select):
            self._refuse("a query is one SELECT", 0)
        return tree

    def _check_clauses(self) -> None:
        for key, words in _CLAUSES.items():
            if self._tree.args.get(key):
                self._refuse_word(*words)
        if self._tree.args.get("from_", self._tree.args.get("from")) is None:
            refuse("a query needs FROM and a stream", self._text, self._tokens[-1].start)
        for node in self._tree.find_all(exp.Subquery, exp.Select):
            if node is not self._tree:
                self._refuse("a subquery is not supported yet", offset_of(node))

    def _source(self) -> tuple[str, str]:
        source = (self._tree.args.get("from_") or self._tree.args["from"]).this
        is_name = isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier)
        if not is_name or source.args.get("db"):
            self._refuse("FROM needs the name of one stream", offset_of(source))
        if source.args.get("joins"):
            self._refuse_word("JOIN", ",")
        for key in ("sample", "pivots", "version", "laterals"):
            if source.args.get(key):
                self._refuse("only the stream's name may stand in FROM yet", offset_of(source))
        names = {name.lower(): name for name in self._streams}
        if source.name.lower() not in names:
            message = unknown("stream", source.name, self._streams)
            refuse(message, self._text, offset_of(source), stream=source.name)
        return names[source.name.lower()], source.alias or source.name

    # The parts of the text

    def _projections(self) -> tuple[str, ...]:
        end = self._position(TokenType.FROM)
        start = 2 if self._tokens[1].token_type == TokenType.ALL else 1
        items = _split_at_commas(self._tokens[start:end])
        if not all(items):
            refuse("an output column is missing", self._text, self._tokens[end].start)
        for item, tree in zip(items, self._tree.expressions, strict=True):
            if item[-1].token_type != TokenType.STAR:
                self._check_no_function(tree)
                what = f"output column {slice_of(self._text, item)!r}"
                check_is_row_wise(tree, self._text, what)
        return tuple(map(self._without_qualifier, items))

    def _conjuncts(self) -> tuple[Predicate, ...]:
        if self._tree.args.get("where") is None:
            return ()
        tokens = self._tokens[self._position(TokenType.WHERE) + 1 :]
        where = self._tree.args["where"].this
        check_is_row_wise(where, self._text, "WHERE", self._functions)
        return tuple(map(self._conjunct, conjunct_tokens(self._text, tokens)))

    def _conjunct(self, tokens: Sequence[Token]) -> Predicate:
        called = self._called(tokens)
        if called is not None:
            return called
        self._check_no_function_tokens(tokens)
        return SqlPredicate(self._without_qualifier(tokens))

    def _called(self, tokens: Sequence[Token]) -> FunctionPredicate | None:
        """Return the predicate if the tokens are ``[NOT] f(…)`` of a known function."""
        negated = False
        while tokens and tokens[0].token_type in (TokenType.NOT, TokenType.L_PAREN):
            if tokens[0].token_type == TokenType.NOT:
                negated = not negated
                tokens = tokens[1:]
            elif closing(tokens, 0) == len(tokens) - 1:
                tokens = tokens[1:-1]
            else:
                return None
        if len(tokens) < 3 or closing(tokens, 1) != len(tokens) - 1:
            return None
        found = self._functions.get(tokens[0].text.lower())
        if found is None or tokens[1].token_type != TokenType.L_PAREN:
            return None
        made = self._with_arguments(found, tokens)
        return ~made if negated else made

    def _with_arguments(
        self, found: FunctionPredicate, tokens: Sequence[Token]
    ) -> FunctionPredicate:
        args = [] if len(tokens) == 3 else _split_at_commas(tokens[2:-1])
        texts = [self._without_qualifier(arg) for arg in args if arg]
        if not texts or texts == ["*"]:
            return found
        if len(texts) != len(found.reads):
            takes = f"{found.name}({', '.join(found.reads)})"
            message = f"{takes} takes {len(found.reads)} argument(s), got {len(texts)}"
            refuse(message, self._text, tokens[0].start, function=found.name)
        for arg in args:
            self._check_no_function_tokens(arg)
            text = slice_of(self._text, arg)
            parse_condition(text, f"argument {text!r} of {found.name}")
        return replace(found, reads=tuple(texts))

    def _check_no_function_tokens(self, tokens: Sequence[Token]) -> None:
        for token, after in pairwise(tokens):
            if token.text.lower() in self._functions and after.token_type == TokenType.L_PAREN:
                self._refuse_inside(token.text, token.start)

    def _check_no_function(self, tree: Expr) -> None:
        for node in tree.find_all(exp.Anonymous):
            if str(node.name).lower() in self._functions:
                self._refuse_inside(str(node.name), offset_of(node))

    def _refuse_inside(self, name: str, offset: int) -> NoReturn:
        message = (
            f"the function {name} inside a larger expression is not supported yet; "
            f"it may stand between the ANDs of WHERE, alone or after NOT"
        )
        refuse(message, self._text, offset, NotSupportedError, function=name)

    def _without_qualifier(self, tokens: Sequence[Token]) -> str:
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

    def _position(self, kind: TokenType) -> int:
        """Return the position of a keyword outside parentheses, and not of IS DISTINCT FROM."""
        depth = 0
        for position, token in enumerate(self._tokens):
            depth += (token.token_type == TokenType.L_PAREN) - (
                token.token_type == TokenType.R_PAREN
            )
            before = self._tokens[position - 1].token_type
            if depth == 0 and token.token_type == kind and before != TokenType.DISTINCT:
                return position
        return len(self._tokens)

    # Refusals

    def _refuse(self, message: str, offset: int) -> NoReturn:
        refuse(message, self._text, offset, NotSupportedError)

    def _refuse_word(self, *words: str) -> NoReturn:
        """Refuse a clause, pointing at the first of its words."""
        for token in self._tokens[1:]:
            if token.text.upper().split(" ")[0] in words:
                shown = "more than one stream" if token.text == "," else token.text.upper()
                self._refuse(f"{shown} is not supported yet", token.start)
        self._refuse(f"{words[0]} is not supported yet", self._tokens[0].start)


_CLAUSES: dict[str, tuple[str, ...]] = {
    "with": ("WITH",),
    "with_": ("WITH",),
    "distinct": ("DISTINCT",),
    "hint": ("/*+",),
    "joins": ("JOIN", "LEFT", "RIGHT", "FULL", "INNER", "CROSS", "NATURAL", "ANTI", "SEMI", ","),
    "laterals": ("LATERAL",),
    "group": ("GROUP",),
    "having": ("HAVING",),
    "qualify": ("QUALIFY",),
    "windows": ("WINDOW",),
    "order": ("ORDER",),
    "sort": ("SORT",),
    "cluster": ("CLUSTER",),
    "distribute": ("DISTRIBUTE",),
    "limit": ("LIMIT",),
    "offset": ("OFFSET",),
    "pivots": ("PIVOT", "UNPIVOT"),
    "sample": ("TABLESAMPLE",),
    "match": ("MATCH_RECOGNIZE",),
    "into": ("INTO",),
}
"""Parts of a SELECT that are not run yet, and the words that they start with."""


def _is_name(token: Token) -> bool:
    return token.token_type not in (TokenType.STRING, TokenType.NUMBER)


def _split_at_commas(tokens: Sequence[Token]) -> list[Sequence[Token]]:
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += token.token_type in _OPENING
        depth -= token.token_type in _CLOSING
        if token.token_type == TokenType.COMMA and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return list(parts)


_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET)
