"""One SELECT as a tree, with the text of its parts, and what of SQL is not run yet.

What runs on Spark stays the user's text; the tree only says what the text is and whether it is
supported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from sqlglot import TokenType, exp
from sqlglot.errors import ParseError

from eddyline.errors import NotSupportedError
from eddyline.query.cql import EMITS
from eddyline.query.select.grammar import EMITTED, FIRST, ITEM, SPAN, CqlText, tokens_of_query
from eddyline.query.select.model_clause import MODEL
from eddyline.sql.names import column_nodes
from eddyline.sql.parsing import check_levels, deep, offset_of, refuse, syntax_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sqlglot import Expr, Token

    from eddyline.query.query import Emits
    from eddyline.query.select.grammar import Span


@dataclass(frozen=True, slots=True)
class Fragment:
    """An expression of a query, and where its text stands."""

    query: str
    tree: Expr
    start: int
    end: int
    """The offset behind its last character."""

    @property
    def text(self) -> str:
        """The expression as it was written."""
        return self.query[self.start : self.end]

    @property
    def columns(self) -> list[exp.Column]:
        """Nodes that name columns, in the order of the text; see ``column_nodes``."""
        return sorted(column_nodes(self.tree), key=offset_of)

    def rewritten(self, changes: Iterable[tuple[int, int, str]]) -> str:
        """Return the text with other text between some offsets."""
        pieces, position = [], self.start
        for start, end, text in changes:
            pieces += [self.query[position:start], text]
            position = end
        return "".join([*pieces, self.query[position : self.end]])


@dataclass(frozen=True, slots=True)
class Exists:
    """A conjunct of WHERE that is ``[NOT] EXISTS (SELECT …)``."""

    conjunct: Expr
    select: exp.Select
    is_negated: bool


@dataclass(frozen=True, slots=True)
class Statement:
    """A query, or a part of one, that is one SELECT of clauses that are run."""

    text: str
    """The whole query."""
    tokens: Sequence[Token]
    """Those of the whole query."""
    tree: exp.Select

    @classmethod
    @deep
    def read_all(cls, text: str) -> list[Statement]:
        """Return the SELECTs of a query, several of UNION ALL.

        Raises:
            QueryError: it is no query, or none that is run yet; the message shows where.
        """
        tokens = tokens_of_query(text)
        while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
            tokens.pop()
        if not tokens:
            refuse("the query is empty", text, 0)
        for token in tokens:
            if token.token_type == TokenType.SEMICOLON:
                refuse("a query is one statement", text, token.start, NotSupportedError)
        check_levels(tokens, text, "the query")
        try:
            tree = CqlText().parser().parse(tokens, text)[0]
        except ParseError as error:
            raise syntax_error(error, text, "the query") from error
        return cls._all(text, tokens, tree)

    @classmethod
    def _all(cls, text: str, tokens: Sequence[Token], tree: Expr | None) -> list[Statement]:
        """Return the SELECTs of a tree, each of them checked."""
        if isinstance(tree, exp.Union) and not _said_of_union(tree):
            return [*cls._all(text, tokens, tree.this), *cls._all(text, tokens, tree.expression)]
        if isinstance(tree, exp.SetOperation):
            _refuse_set(text, tokens, tree)
        if isinstance(tree, exp.Subquery) and not tree.alias:
            return cls._all(text, tokens, tree.this)
        if not isinstance(tree, exp.Select):
            refuse("a query is one SELECT", text, tokens[0].start, NotSupportedError)
        made = cls(text, tokens, tree)
        made._check_clauses()
        return [made]

    def of_source(self, source: Expr) -> list[Statement]:
        """Return the statements of a subquery in FROM; none if a stream or table stands there."""
        inner = source.this if isinstance(source, exp.Subquery) else None
        is_query = isinstance(inner, exp.Select | exp.SetOperation)
        return self._all(self.text, self.tokens, inner) if is_query else []

    @property
    def own(self) -> Sequence[Token]:
        """The tokens of the statement without those of subqueries in FROM."""
        first, last = self._span
        inner = [each._span for source, _ in self.sources for each in self._selects(source)]
        return [
            token
            for position, token in enumerate(self.tokens[first:last], first)
            if not any(start <= position < end for start, end in inner)
        ]

    def start_of(self, source: exp.Subquery) -> int:
        """Return the offset of SELECT of a subquery in FROM."""
        first, _ = next(self._selects(source))._span
        return self.tokens[first].start

    def _selects(self, source: Expr) -> Iterator[Statement]:
        """Yield the SELECTs of a subquery in FROM, unchecked; none if there is no subquery."""
        if isinstance(source, exp.Subquery):
            for tree in source.find_all(exp.Select):
                yield Statement(self.text, self.tokens, tree)

    @property
    def _span(self) -> Span:
        """The positions of SELECT and of what is behind the last token."""
        columns = self.tree.expressions
        position, _ = columns[0].meta.get(ITEM, (None, None)) if columns else (None, None)
        first = max(
            at for at, each in enumerate(self.tokens[:position]) if each.token_type == _SELECT
        )
        depth = 0
        for at, token in enumerate(self.tokens[first:], first):
            depth += _DEPTHS.get(token.token_type, 0)
            if depth < 0 or (depth == 0 and token.token_type in _SETS):
                return first, at
        return first, len(self.tokens)

    def _check_clauses(self) -> None:
        """Refuse the clauses that are not run yet."""
        asked = [each.select for each in self.exists]
        for tree in (self.tree, *asked):
            if any(ITEM not in each.meta for each in tree.expressions):  # sqlglot takes (FROM s)
                message = "SELECT is missing before FROM"
                refuse(message, self.text, offset_of(tree.args["from_"]))
            for key, words in _CLAUSES.items():
                is_run = tree is self.tree and key in (*AGGREGATION, "windows")
                if tree.args.get(key) and not is_run:
                    _refuse_word(self.text, self.own, *words, hint=_INSTEAD.get(key, ""))
            if tree.args.get("from_") is None:
                refuse("a query needs FROM and a stream", self.text, self.own[-1].start)
        self._check_subqueries(asked)
        where, joins = self.tree.args.get("where"), self.tree.args.get("joins")
        if where is not None and joins:  # sqlglot takes FROM s WHERE v > 3, t
            last = self.tokens[joins[-1].meta[FIRST]]
            if last.start > self.part(where.this).start:
                message = f"nothing may follow the condition of WHERE, got {last.text!r}"
                refuse(message, self.text, last.start)

    def _check_subqueries(self, asked: Sequence[exp.Select]) -> None:
        """Refuse those that are not of EXISTS, and of these what is no single stream's."""
        for tree in asked:
            for join in tree.args.get("joins") or ():
                self.refuse("EXISTS over several inputs is not supported yet", offset_of(join.this))
        made = [source for source, _ in self.sources if any(self._selects(source))]
        for node in self.tree.walk(prune=lambda each: any(each is source for source in made)):
            is_known = any(node is each for each in (self.tree, *asked, *made))
            if isinstance(node, exp.Subquery | exp.Select) and not is_known:
                message = (
                    "a subquery is not supported yet here; it may stand in FROM, or in [NOT] "
                    "EXISTS (SELECT …) between the ANDs of WHERE"
                )
                self.refuse(message, offset_of(node))

    @property
    def emits(self) -> Emits | None:
        """The stream of results that the query asks for; None if it does not say so."""
        word = self._emitted
        return None if word is None else EMITS[word.text.upper()]

    @property
    def emits_at(self) -> int:
        """The offset of the word that says so."""
        word = self._emitted
        return 0 if word is None else word.start

    @property
    def _emitted(self) -> Token | None:
        words = [each.meta.get(EMITTED) for each in (self.tree, *self.tree.expressions[:1])]
        return next((word for word in words if word is not None), None)

    @property
    def sources(self) -> list[tuple[Expr, exp.Join | Exists | None]]:
        """Items of FROM, each with what adds it; behind them those of EXISTS."""
        first, joins = self.tree.args.get("from_"), self.tree.args.get("joins") or ()
        made = [] if first is None else [(first.this, None)]
        asked = [(each.select.args.get("from_"), each) for each in self.exists]
        of_asked = [(each.this, by) for each, by in asked if each is not None]
        return [*made, *((join.this, join) for join in joins), *of_asked]

    @property
    def tables(self) -> list[exp.Table]:
        """The streams and tables in FROM, those of subqueries included."""
        return [table for source, _ in self.sources for table in source.find_all(exp.Table)]

    @property
    def has_models(self) -> bool:
        """Whether MODEL stands behind a source, those of subqueries included."""
        nodes = (each for source, _ in self.sources for each in source.walk())
        return any(MODEL in each.meta for each in nodes)

    @property
    def exists(self) -> list[Exists]:
        """The conjuncts of WHERE that are [NOT] EXISTS (SELECT …)."""
        where = self.tree.args.get("where")
        found = []
        for conjunct in [] if where is None else self.conjuncts(where.this):
            is_negated, inner = False, conjunct.tree
            while isinstance(inner, exp.Not | exp.Paren):
                is_negated ^= isinstance(inner, exp.Not)
                inner = inner.this
            if isinstance(inner, exp.Exists) and isinstance(inner.this, exp.Select):
                found.append(Exists(conjunct.tree, inner.this, is_negated))
        return found

    @property
    def output_columns(self) -> list[Fragment]:
        """The output columns with their names."""
        return self.items_of(self.tree)

    def items_of(self, select: exp.Select) -> list[Fragment]:
        """Return what stands between SELECT and FROM, with the names."""
        return [self._part(each, each.meta[ITEM]) for each in select.expressions]

    def conjuncts(self, condition: Expr) -> list[Fragment]:
        """Return the conjuncts of a condition, without parentheses around them."""
        found, rest = [], [condition]
        while rest:
            tree = rest.pop()
            inner = tree.unnest()
            if isinstance(inner, exp.And):
                rest += [inner.right, inner.left]
            else:  # sqlglot takes (v > 3 name), which Spark refuses
                found.append(self.part(tree if isinstance(inner, exp.Alias) else inner))
        return found

    def offset_of_word(self, word: str) -> int:
        """Return the offset of the first token that starts with a word of SQL."""
        # Behind a window with a parenthesis too many are tokens that seem to be of others.
        tokens = [*self.own, *self.tokens]
        words = (token for token in tokens if token.text.upper().split(" ")[0] == word)
        return next(token.start for token in words)

    def place(self, tree: Expr) -> tuple[int, int] | None:
        """Return the offsets of a part and of what is behind it, if it has a text of its own."""
        if isinstance(tree, exp.Column):
            metas = [each.meta for each in tree.parts]
            return (metas[0]["start"], metas[-1]["end"] + 1) if metas[-1] else None
        if SPAN in tree.meta:
            part = self.part(tree)
            return part.start, part.end
        if isinstance(tree, exp.Binary) and not isinstance(tree, exp.Dot):
            left, right = self.place(tree.left), self.place(tree.right)
            return (left[0], right[1]) if left and right else None
        return None

    def part(self, tree: Expr) -> Fragment:
        """Return a condition, a side of an equality, an argument or a column without its name."""
        return self._part(tree, _span(tree))

    def _part(self, tree: Expr, span: Span) -> Fragment:
        first, last = self.tokens[span[0]], self.tokens[span[1] - 1]
        return Fragment(self.text, tree, first.start, last.end + 1)

    def refuse(self, message: str, offset: int) -> NoReturn:
        """Raise that something is not supported."""
        refuse(message, self.text, offset, NotSupportedError)


def _span(tree: Expr) -> Span:
    """Return the span of a tree; of one that the parser put together, that of its parts."""
    if SPAN in tree.meta:
        span: Span = tree.meta[SPAN]
        return span
    if isinstance(tree, exp.Binary):  # a = b, of a = b = c
        return _span(tree.left)[0], _span(tree.right)[1]
    return _span(tree.this)


def _refuse_word(text: str, tokens: Sequence[Token], *words: str, hint: str = "") -> NoReturn:
    """Refuse a clause, pointing at the first of its words."""
    named = [each for each in tokens[1:] if each.text.upper().split(" ")[0] in words]
    shown = named[0].text.upper() if named else words[0]
    message = f"{shown} is not supported yet{hint}"
    refuse(message, text, (named or tokens)[0].start, NotSupportedError)


AGGREGATION: dict[str, str] = {"distinct": "DISTINCT", "group": "GROUP", "having": "HAVING"}
"""Clauses that aggregate rows over one input, and the words that they start with."""


def _said_of_union(tree: exp.Union) -> bool:
    """Return whether UNION says more than ALL."""
    more = ("distinct", "by_name", "side", "kind", "on", "order", "limit", "offset")
    return any(tree.args.get(key) for key in more) or EMITTED in tree.meta


def _refuse_set(text: str, tokens: Sequence[Token], tree: exp.SetOperation) -> NoReturn:
    """Refuse UNION, INTERSECT and such, and what is said of all of UNION ALL."""
    for key in ("order", "limit", "offset"):
        if tree.args.get(key):
            _refuse_word(text, tokens, *_CLAUSES[key], hint=_INSTEAD[key])
    if EMITTED in tree.meta:
        word: Token = tree.meta[EMITTED]
        message = f"{word.text}(…) around UNION ALL is not supported; write it in each SELECT"
        refuse(message, text, word.start, NotSupportedError)
    _refuse_word(text, tokens, "UNION", "INTERSECT", "EXCEPT", "MINUS", hint="; UNION ALL is")


_SELECT = TokenType.SELECT
_SETS = (TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT)
_DEPTHS = {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}

_CLAUSES: dict[str, tuple[str, ...]] = {
    "distinct": ("DISTINCT",),
    "hint": ("/*+",),
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
_INSTEAD = {
    "order": "; results over tables are a DataFrame, to_df().orderBy(…)",
    "limit": "; results over tables are a DataFrame, to_df().limit(…)",
    "offset": "; results over tables are a DataFrame, to_df().offset(…)",
}
"""What does the same as some of these."""
