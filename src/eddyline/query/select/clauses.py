"""What readers of SELECT have in common: clauses, conjuncts, calls of functions, refusals.

The text stays the user's, cut at tokens; the tree only says what it is and whether it is supported.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NoReturn

from sqlglot import TokenType, exp
from sqlglot.errors import ParseError

from eddyline.errors import NotSupportedError
from eddyline.sql.analysis import check_is_row_wise
from eddyline.sql.parsing import (
    SparkText,
    closing,
    offset_of,
    parse_condition,
    refuse,
    slice_of,
    syntax_error,
    tokens_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from sqlglot import Expr, Token

    from eddyline.query.predicates import FunctionPredicate


def statement_tokens(text: str) -> list[Token]:
    """Return the tokens of a query, without semicolons at its end.

    Raises:
        QueryError: a quote or comment is left open, or there is nothing.
    """
    tokens = tokens_of(text, "the query")
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        refuse("the query is empty", text, 0)
    return tokens


def from_marks(tokens: Sequence[Token]) -> Iterator[int]:
    """Return the positions of what makes FROM more than one name.

    They are those of the commas and JOINs between its items, and of the brackets that open windows.
    """
    depth, in_from, in_item = 0, False, False
    for position, token in enumerate(tokens):
        kind = token.token_type
        if depth == 0 and is_clause(tokens, position, TokenType.FROM):
            in_from = in_item = True
        elif depth == 0 and in_from and kind in _BEHIND_FROM:
            in_from = in_item = False
        elif depth == 0 and kind == TokenType.ON:
            in_item = False
        elif depth == 0 and in_from and kind in (TokenType.COMMA, TokenType.JOIN):
            in_item = True
            yield position
        elif depth == 0 and in_item and kind == TokenType.L_BRACKET:
            yield position
        depth += (kind in _OPENING) - (kind in _CLOSING)


def is_clause(tokens: Sequence[Token], position: int, kind: TokenType) -> bool:
    """Return whether a token starts that clause: no column ``s.from``, no IS DISTINCT FROM."""
    before = tokens[position - 1].token_type if position else None
    return tokens[position].token_type == kind and before not in (
        TokenType.DISTINCT,
        TokenType.DOT,
    )


def split_at_commas(tokens: Sequence[Token]) -> list[Sequence[Token]]:
    """Return what stands between the commas outside parentheses and brackets."""
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


@dataclass(frozen=True, slots=True)
class Call:
    """A conjunct that is ``[NOT] f(…)`` of a function of the user."""

    found: FunctionPredicate
    negated: bool
    name: Token
    arguments: tuple[Sequence[Token], ...]
    """Empty for ``f()`` and ``f(*)``, which read the function's own columns."""


class SelectReader:
    """One SELECT being read.

    Args:
        text: the query.
        tokens: those of the SELECT, without what sqlglot has no tree for.
        functions: the predicates that may be called, by name.
    """

    def __init__(
        self, text: str, tokens: Sequence[Token], functions: Mapping[str, FunctionPredicate]
    ) -> None:
        self._text = text
        self._tokens = tokens
        self._functions = {name.lower(): made for name, made in functions.items()}

    def _unqualified(self, tokens: Sequence[Token]) -> str:
        """Return the source text of an expression without what stands before its columns."""
        raise NotImplementedError

    # What is supported

    def _check_is_select(self) -> None:
        first = self._tokens[0]
        if first.token_type == TokenType.WITH:
            self._refuse("WITH is not supported yet; write one SELECT", first.start)
        if first.token_type != TokenType.SELECT:
            message = f"a query starts with SELECT, got {first.text!r}"
            refuse(message, self._text, first.start)
        for token in self._tokens:
            if token.token_type == TokenType.SEMICOLON:
                self._refuse("a query is one statement", token.start)

    def _parse(self) -> exp.Select:
        try:
            tree = SparkText().parser().parse(list(self._tokens), self._text)[0]
        except ParseError as error:
            raise syntax_error(error, self._text, "the query") from error
        if isinstance(tree, exp.SetOperation):
            self._refuse_word("UNION", "INTERSECT", "EXCEPT", "MINUS")
        if not isinstance(tree, exp.Select):
            self._refuse("a query is one SELECT", self._tokens[0].start)
        return tree

    def _check_clauses(self, tree: exp.Select, *, run: Collection[str] = ()) -> None:
        """Refuse the clauses that are not run, except those that are for this reader."""
        for key, words in _CLAUSES.items():
            if tree.args.get(key) and key not in run:
                self._refuse_word(*words)
        if tree.args.get("from_", tree.args.get("from")) is None:
            refuse("a query needs FROM and a stream", self._text, self._tokens[-1].start)
        for node in tree.find_all(exp.Subquery, exp.Select):
            if node is not tree:
                self._refuse("a subquery is not supported yet", offset_of(node))

    def _check_only_name(self, source: Expr, needs: str) -> exp.Table:
        """Refuse what is not the bare name of a stream, perhaps with an alias."""
        is_name = isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier)
        if not isinstance(source, exp.Table) or not is_name or source.args.get("db"):
            self._refuse(needs, offset_of(source))
        for key in ("sample", "pivots", "version", "laterals"):
            if source.args.get(key):
                self._refuse("only the stream's name may stand in FROM yet", offset_of(source))
        return source

    # Output columns and conditions

    def _output_items(self, tree: exp.Select) -> list[tuple[Sequence[Token], Expr]]:
        """Return tokens and tree of each output column; stars are not looked at."""
        end = self._position(TokenType.FROM)
        start = 2 if self._tokens[1].token_type == TokenType.ALL else 1
        items = split_at_commas(self._tokens[start:end])
        if not all(items):
            refuse("an output column is missing", self._text, self._tokens[end].start)
        if len(items) != len(tree.expressions):  # a word such as AS or FROM was read as a name
            message = "the output columns cannot be read; write words of SQL in backticks"
            refuse(message, self._text, self._tokens[start].start)
        pairs = list(zip(items, tree.expressions, strict=True))
        for item, made in pairs:
            if item[-1].token_type != TokenType.STAR:
                self._check_no_function(made)
                check_is_row_wise(made, self._text, self._named_output(item))
        return pairs

    def _named_output(self, item: Sequence[Token]) -> str:
        return f"output column {slice_of(self._text, item)!r}"

    def _call(self, tokens: Sequence[Token]) -> Call | None:
        """Return the call if the tokens are ``[NOT] f(…)`` of a known function."""
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
        return Call(found, negated, tokens[0], self._arguments(tokens[2:-1]))

    def _arguments(self, tokens: Sequence[Token]) -> tuple[Sequence[Token], ...]:
        if not tokens:
            return ()
        arguments = tuple(arg for arg in split_at_commas(tokens) if arg)
        return () if [slice_of(self._text, arg) for arg in arguments] == ["*"] else arguments

    def _predicate_of(self, call: Call) -> FunctionPredicate:
        """Return the function as a predicate that reads the arguments of the call."""
        made = call.found
        if call.arguments:
            made = replace(made, reads=self._checked_arguments(call))
        return ~made if call.negated else made

    def _checked_arguments(self, call: Call) -> tuple[str, ...]:
        found, given = call.found, len(call.arguments)
        if given != len(found.reads):
            takes = f"{found.name}({', '.join(found.reads)})"
            message = f"{takes} takes {len(found.reads)} argument(s), got {given}"
            refuse(message, self._text, call.name.start, function=found.name)
        for arg in call.arguments:
            self._check_no_function_tokens(arg)
            text = slice_of(self._text, arg)
            parse_condition(text, f"argument {text!r} of {found.name}")
        return tuple(map(self._unqualified, call.arguments))

    def _check_no_function_tokens(self, tokens: Sequence[Token]) -> None:
        for token, after in pairwise(tokens):
            if token.text.lower() in self._functions and after.token_type == TokenType.L_PAREN:
                self._refuse_inside(token.text, token.start)

    def _check_no_function(self, tree: Expr) -> None:
        for node in tree.find_all(exp.Anonymous):
            if str(node.name).lower() in self._functions:
                self._refuse_inside(str(node.name), offset_of(node))

    def _position(self, kind: TokenType) -> int:
        """Return the position of a clause, behind the last token if there is none."""
        depth = 0
        for position, token in enumerate(self._tokens):
            depth += (token.token_type == TokenType.L_PAREN) - (
                token.token_type == TokenType.R_PAREN
            )
            if depth == 0 and is_clause(self._tokens, position, kind):
                return position
        return len(self._tokens)

    # Refusals

    def _refuse(self, message: str, offset: int) -> NoReturn:
        refuse(message, self._text, offset, NotSupportedError)

    def _refuse_inside(self, name: str, offset: int) -> NoReturn:
        message = (
            f"the function {name} inside a larger expression is not supported yet; "
            f"it may stand between the ANDs of WHERE, alone or after NOT"
        )
        refuse(message, self._text, offset, NotSupportedError, function=name)

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

_BEHIND_FROM = (
    TokenType.WHERE,
    TokenType.LATERAL,
    TokenType.GROUP_BY,
    TokenType.HAVING,
    TokenType.QUALIFY,
    TokenType.WINDOW,
    TokenType.ORDER_BY,
    TokenType.SORT_BY,
    TokenType.CLUSTER_BY,
    TokenType.DISTRIBUTE_BY,
    TokenType.LIMIT,
    TokenType.OFFSET,
    TokenType.UNION,
    TokenType.EXCEPT,
    TokenType.INTERSECT,
)
"""What ends FROM."""

_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET)
