"""One SELECT as a tree with its texts and names.

It also says which parts are not supported. What runs on Spark stays the user's text; the tree only
says what the text is and whether it is supported. Names are resolved as Spark does: in any case. A
star stands for columns.
"""

from __future__ import annotations

import itertools
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NoReturn

from sqlglot import TokenType, exp

from eddyline.errors import NotSupportedError, QueryError
from eddyline.query.cql import EMITS
from eddyline.query.select.grammar import EMITTED, FIRST, ITEM, SPAN, CqlText, tokens_of_query
from eddyline.query.select.model_clause import MODEL
from eddyline.query.select.with_clause import without_with
from eddyline.registry import unknown
from eddyline.sql.functions import (
    column_nodes,
    is_no_column,
    joined_by,
    matching,
    refuse_column,
    unnegated,
)
from eddyline.sql.parsing import (
    deep,
    offset_of,
    parse_condition,
    parsed,
    quoted,
    refuse,
    tokens_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from sqlglot import Expr, Token

    from eddyline.query.predicates import FunctionPredicate
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
    around: tuple[str, str] = ("", "")
    """What the query does not write before and behind it."""

    @property
    def text(self) -> str:
        """The expression as it was written."""
        return self.rewritten(())

    @property
    def columns(self) -> list[exp.Column]:
        """Nodes that name columns, in the order of the text; see ``column_nodes``."""
        return sorted(column_nodes(self.tree), key=offset_of)

    def rewritten(self, changes: Iterable[tuple[int, int, str]]) -> str:
        """Return the text with other text between some offsets."""
        (before, behind), position = self.around, self.start
        pieces = [before]
        for start, end, text in changes:
            pieces += [self.query[position:start], text]
            position = end
        return "".join([*pieces, self.query[position : self.end], behind])

    def negated(self, *, is_null_true: bool) -> Fragment:
        """Return NOT of a condition; of one that is NULL that is NULL, or true."""
        before, behind = ("NOT coalesce((", "\n), false)") if is_null_true else ("NOT (", "\n)")
        tree = exp.Not(this=exp.Paren(this=self.tree.copy()))
        if is_null_true:
            tree = exp.Not(this=exp.Coalesce(this=self.tree.copy(), expressions=[exp.false()]))
        around = before + self.around[0], self.around[1] + behind
        return replace(self, tree=tree, around=around)


@dataclass(frozen=True, slots=True)
class Exists:
    """A condition of WHERE that is ``[NOT] EXISTS (SELECT …)`` or ``x [NOT] IN (SELECT …)``."""

    node: Expr
    select: exp.Select
    is_negated: bool
    compared: Sequence[Expr] = ()
    """The values before IN; none of EXISTS."""
    asks: Literal["equal", "unknown", "possible", "null", "any"] = "equal"
    """Which rows of the SELECT are asked for: those whose values equal the values before IN; those
    of which that is unknown; those of which one of the two holds; those with a NULL value; or, if
    the value before IN is NULL, all."""

    @property
    def said(self) -> str:
        """The words of the condition, for errors."""
        return "IN (SELECT …)" if self.compared else "EXISTS"


def asked_by(tree: Expr) -> Exists | None:
    """Return EXISTS or IN if a condition is one, or NOT of one, perhaps in parentheses."""
    inner, is_negated = unnegated(tree)
    if isinstance(inner, exp.Exists) and isinstance(inner.this, exp.Select):
        return Exists(tree, inner.this, is_negated)
    query = inner.args.get("query") if isinstance(inner, exp.In) else None
    if query is None or not isinstance(query.this, exp.Select):
        return None
    value = inner.this.unnest()
    compared = (isinstance(value, exp.Tuple) and value.expressions) or [inner.this]
    return Exists(tree, query.this, is_negated, compared)


@dataclass(frozen=True, slots=True)
class Statement:
    """A query, or a part of one, that is one SELECT of clauses that are run."""

    text: str
    """The whole query."""
    tokens: Sequence[Token]
    """Those of the whole query."""
    tree: exp.Select
    unused: Sequence[Sequence[Statement | SetOperation]] = ()
    """Queries of WITH that are checked and not run; the first SELECT of a query has them."""

    @classmethod
    @deep
    def read_all(cls, text: str) -> list[Statement | SetOperation]:
        """Return the SELECTs and set operations of a query, several of UNION ALL.

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
        tree = parsed(tokens, text, "the query", CqlText().parser().parse)
        unused = [] if tree is None else without_with(tree, text)
        first, *others = cls._all(text, tokens, tree)
        return [replace(first, unused=[cls._all(text, tokens, query) for query in unused]), *others]

    @classmethod
    def _all(
        cls, text: str, tokens: Sequence[Token], tree: Expr | None
    ) -> list[Statement | SetOperation]:
        """Return the SELECTs and set operations of a tree, each of them checked."""
        if isinstance(tree, exp.SetOperation):
            cls._check_nothing_behind(text, tokens, tree)
            _check_set(text, tokens, tree)
            left, right = (cls._all(text, tokens, side) for side in (tree.this, tree.expression))
            if isinstance(tree, exp.Union) and not tree.args.get("distinct"):
                return [*left, *right]
            return [SetOperation(text, tokens, tree, (left, right))]
        if isinstance(tree, exp.Subquery) and not tree.alias:
            cls._check_nothing_behind(text, tokens, tree)
            return cls._all(text, tokens, tree.this)
        if not isinstance(tree, exp.Select):
            refuse("a query is one SELECT", text, tokens[0].start, NotSupportedError)
        statement = cls(text, tokens, tree)
        statement._check_clauses()
        return [statement]

    @classmethod
    def _check_nothing_behind(cls, text: str, tokens: Sequence[Token], tree: exp.Query) -> None:
        """Refuse JOIN, WHERE and such behind a SELECT in parentheses, which may end a UNION."""
        keys = {"this", "alias"}
        if isinstance(tree, exp.SetOperation):
            keys = {"this", "expression", *_OF_SETS, "order", "limit", "offset"}
        if any(value for key, value in tree.args.items() if key not in keys):
            ends = [cls(text, tokens, select)._span[1] for select in tree.find_all(exp.Select)]
            token = tokens[min(max(ends, default=0) + 1, len(tokens) - 1)]
            message = f"{token.text.upper()} behind a SELECT in parentheses is not supported"
            refuse(message, text, token.start, NotSupportedError)

    def of_source(self, source: Expr) -> list[Statement | SetOperation]:
        """Return the statements of a subquery in FROM; none if a stream or table stands there."""
        inner = source.this if isinstance(source, exp.Subquery) else None
        is_query = isinstance(inner, exp.Select | exp.SetOperation)
        return self._all(self.text, self.tokens, inner) if is_query else []

    @property
    def own(self) -> Sequence[Token]:
        """The tokens of the statement without those of subqueries in FROM."""
        first, last = self._span
        inner = [
            statement._span for source, _ in self.sources for statement in self._selects(source)
        ]
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
            place
            for place, token in enumerate(self.tokens[:position])
            if token.token_type == _SELECT
        )
        depth = 0
        for number, token in enumerate(self.tokens[first:], first):
            depth += _DEPTHS.get(token.token_type, 0)
            if depth < 0 or (depth == 0 and token.token_type in _SETS):
                return first, number
        return first, len(self.tokens)

    def _check_clauses(self) -> None:
        """Refuse the clauses that are not run yet."""
        asked = self.exists
        for tree in (self.tree, *(exists.select for exists in asked)):
            if any(
                ITEM not in column.meta for column in tree.expressions
            ):  # sqlglot takes (FROM s)
                message = "SELECT is missing before FROM"
                refuse(message, self.text, offset_of(tree.args["from_"]))
            for key, words in _CLAUSES.items():
                is_run = tree is self.tree and key in (*AGGREGATION, "windows")
                if tree is not self.tree and key == "distinct":  # it changes no answer
                    is_run = bool(tree.args.get(key)) and not tree.args[key].args.get("on")
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

    def _check_subqueries(self, asked: Sequence[Exists]) -> None:
        """Refuse those that are not of EXISTS or IN, and of these what is no single stream's."""
        for exists in asked:
            for join in exists.select.args.get("joins") or ():
                message = f"{exists.said} over several inputs is not supported yet"
                self.refuse(message, offset_of(join.this))
        known_nodes = [
            tree for subquery in asked for tree in (subquery.select, subquery.select.parent)
        ]
        read_sources = [source for source, _ in self.sources if any(self._selects(source))]
        for node in self.tree.walk(
            prune=lambda inner: any(inner is source for source in read_sources)
        ):
            is_known = any(node is allowed for allowed in (self.tree, *known_nodes, *read_sources))
            if isinstance(node, exp.Subquery | exp.Select) and not is_known:
                message = (
                    "a subquery is not supported yet here; it may stand in FROM, or in [NOT] "
                    "EXISTS (SELECT …) or [NOT] IN (SELECT …) between AND, OR and NOT of WHERE"
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
        words = [node.meta.get(EMITTED) for node in (self.tree, *self.tree.expressions[:1])]
        return next((word for word in words if word is not None), None)

    @property
    def sources(self) -> list[tuple[Expr, exp.Join | Exists | None]]:
        """Items of FROM, each with what adds it; behind them those of EXISTS and IN."""
        first, joins = self.tree.args.get("from_"), self.tree.args.get("joins") or ()
        items = [] if first is None else [(first.this, None)]
        asked = [(exists.select.args.get("from_"), exists) for exists in self.exists]
        of_asked = [(clause.this, by) for clause, by in asked if clause is not None]
        return [*items, *((join.this, join) for join in joins), *of_asked]

    @property
    def tables(self) -> list[exp.Table]:
        """The streams and tables in FROM, those of subqueries included."""
        return [table for source, _ in self.sources for table in source.find_all(exp.Table)]

    @property
    def selects(self) -> list[Statement]:
        """This SELECT; see ``SetOperation``."""
        return [self]

    @property
    def has_models(self) -> bool:
        """Whether MODEL stands behind a source, those of subqueries included."""
        nodes = (node for source, _ in self.sources for node in source.walk())
        return any(MODEL in node.meta for node in nodes)

    @property
    def exists(self) -> list[Exists]:
        """EXISTS and IN between AND, OR and NOT of WHERE, in the order of the text."""
        where = self.tree.args.get("where")
        subqueries, rest = [], [] if where is None else [where.this]
        while rest:
            tree = rest.pop()
            if (asked := asked_by(tree)) is not None:
                subqueries.append(asked)
            elif isinstance(tree, exp.And | exp.Or):
                rest += [tree.expression, tree.this]
            elif isinstance(tree, exp.Not | exp.Paren):
                rest.append(tree.this)
        return subqueries

    @property
    def output_columns(self) -> list[Fragment]:
        """The output columns with their names."""
        return self.items_of(self.tree)

    def items_of(self, select: exp.Select) -> list[Fragment]:
        """Return what stands between SELECT and FROM, with the names."""
        return [self._part(column, column.meta[ITEM]) for column in select.expressions]

    def conjuncts(self, condition: Expr) -> list[Fragment]:
        """Return the conjuncts of a condition, without parentheses around them."""
        trees = [(conjunct, conjunct.unnest()) for conjunct in joined_by(exp.And, condition)]
        # sqlglot takes (v > 3 name), which Spark refuses.
        return [self.part(tree if isinstance(inner, exp.Alias) else inner) for tree, inner in trees]

    def offset_of_word(self, word: str) -> int:
        """Return the offset of the first token that starts with a word of SQL."""
        # Behind a window with a parenthesis too many are tokens that seem to be of others.
        tokens = [*self.own, *self.tokens]
        words = (token for token in tokens if token.text.upper().split(" ")[0] == word)
        return next(token.start for token in words)

    def place(self, tree: Expr) -> tuple[int, int] | None:
        """Return the offsets of a part and of what is behind it, if it has a text of its own."""
        if isinstance(tree, exp.Column):
            metas = [name.meta for name in tree.parts]
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
    named = [token for token in tokens[1:] if token.text.upper().split(" ")[0] in words]
    shown = named[0].text.upper() if named else words[0]
    message = f"{shown} is not supported yet{hint}"
    refuse(message, text, (named or tokens)[0].start, NotSupportedError)


def is_right(join: exp.Join | Exists | None) -> bool:
    """Return whether a join is a RIGHT JOIN."""
    return isinstance(join, exp.Join) and join.args.get("side") == "RIGHT"


AGGREGATION: dict[str, str] = {"distinct": "DISTINCT", "group": "GROUP", "having": "HAVING"}
"""Clauses that aggregate rows over one input, and the words that they start with."""


_OF_SETS = ("distinct", "by_name", "side", "kind", "on")
"""What sqlglot says of a set operation between its two sides."""


def _check_set(text: str, tokens: Sequence[Token], tree: exp.SetOperation) -> None:
    """Refuse what is said of a set operation beside ALL and DISTINCT."""
    for key in ("order", "limit", "offset"):
        if tree.args.get(key):
            _refuse_word(text, tokens, *_CLAUSES[key], hint=_INSTEAD[key])
    if any(tree.args.get(key) for key in ("by_name", "side", "kind", "on")):
        hint = " with more than ALL or DISTINCT"
        _refuse_word(text, tokens, "UNION", "INTERSECT", "EXCEPT", "MINUS", hint=hint)
    if EMITTED in tree.meta and isinstance(tree, exp.Union) and not tree.args.get("distinct"):
        word: Token = tree.meta[EMITTED]
        message = f"{word.text}(…) around UNION ALL is not supported; write it in each SELECT"
        refuse(message, text, word.start, NotSupportedError)


@dataclass(frozen=True, slots=True)
class SetOperation:
    """UNION, EXCEPT or INTERSECT of queries; UNION ALL alone is the list of its SELECTs."""

    text: str
    """The whole query."""
    tokens: Sequence[Token]
    """Those of the whole query."""
    tree: exp.SetOperation
    sides: tuple[Sequence[Statement | SetOperation], Sequence[Statement | SetOperation]]
    """What it is of; each side is UNION ALL of what it has."""
    unused: Sequence[Sequence[Statement | SetOperation]] = ()
    """See ``Statement``."""

    @property
    def is_all(self) -> bool:
        """Whether rows count as often as they are there."""
        return not self.tree.args.get("distinct")

    @property
    def selects(self) -> list[Statement]:
        """The SELECTs in the order of the text."""
        return [select for side in self.sides for statement in side for select in statement.selects]

    @property
    def emits(self) -> Emits | None:
        """The stream of results that the query asks for; None if it does not say so."""
        word = self.tree.meta.get(EMITTED)
        return None if word is None else EMITS[word.text.upper()]

    @property
    def emits_at(self) -> int:
        """The offset of the word that says so."""
        word = self.tree.meta.get(EMITTED)
        return 0 if word is None else int(word.start)

    @property
    def said(self) -> str:
        """The words of the operation."""
        kind = type(self.tree).__name__.upper()
        return f"{kind} ALL" if self.is_all else kind

    @property
    def start(self) -> int:
        """The offset of its first SELECT."""
        return self.selects[0].own[0].start

    @property
    def own(self) -> Sequence[Token]:
        """The tokens of its first SELECT."""
        return self.selects[0].own

    @property
    def output_columns(self) -> list[Fragment]:
        """The output columns of its first SELECT."""
        return self.selects[0].output_columns

    def refuse(self, message: str, offset: int) -> NoReturn:
        """Raise that something is not supported."""
        refuse(message, self.text, offset, NotSupportedError)

    @property
    def tables(self) -> list[exp.Table]:
        """The streams and tables in FROM, those of subqueries included."""
        return [table for select in self.selects for table in select.tables]

    @property
    def has_models(self) -> bool:
        """Whether MODEL stands behind a source."""
        return any(select.has_models for select in self.selects)


def selects_beside_models(statements: Sequence[Statement | SetOperation]) -> list[Statement]:
    """Return statements, none of which may be a set operation.

    Raises:
        NotSupportedError: one is.
    """
    selects: list[Statement] = []
    for statement in statements:
        if isinstance(statement, SetOperation):
            statement.refuse(
                f"{statement.said} beside MODEL is not supported; UNION ALL is", statement.start
            )
        selects.append(statement)
    return selects


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


_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Named:
    """A column of an input."""

    input: str
    column: str
    """By its name in the schema."""

    @property
    def text(self) -> str:
        """The column in SQL, qualified by its input."""
        return f"{identifier(self.input)}.{identifier(self.column)}"


@dataclass(frozen=True, slots=True)
class Scope:
    """The columns that a part of a query may read."""

    inputs: Mapping[str, Mapping[str, str]]
    """Name and Spark type of each column, by input, in the order in which they were written."""
    output: tuple[Named, ...]
    """The columns that ``*`` stands for; names without an input are looked for here."""
    hints: Mapping[str, str] = field(default_factory=dict)
    """Advice on names in lower case that are no inputs."""

    def joined(
        self,
        name: str,
        columns: Mapping[str, str],
        using: Sequence[Named],
        *,
        is_right: bool = False,
    ) -> Scope:
        """Return the scope with one more input.

        Each name of USING stands for the column of the inputs so far from here on, and no more for
        that of the new one; of a RIGHT JOIN it is the other way round. ``using`` has both.
        """
        new = tuple(Named(name, column) for column in columns)
        kept = [named for named in using if (named.input == name) == is_right]
        output = (*kept, *(named for named in (*self.output, *new) if named not in using))
        return replace(self, inputs={**self.inputs, name: columns}, output=output)

    def preferring(self, name: str) -> Scope:
        """Return the scope in which a bare name is that of an input's column, if it has one."""
        columns = [Named(name, column) for column in self.inputs[name]]
        hidden = {named.column.lower() for named in columns}
        others = [named for named in self.output if named.column.lower() not in hidden]
        return replace(self, output=(*columns, *others))

    def has(self, name: str) -> bool:
        """Return whether a column has the name, in whatever case."""
        return any(named.column.lower() == name.lower() for named in self.output)

    def resolve(
        self, parts: Sequence[str], text: str, offset: int, what: str
    ) -> tuple[Named, bool]:
        """Return the column that a name means, and whether its input stands before it.

        A name is split at its points: ``k``, ``s.k``, ``s.k.field``, ``k.field``.
        """
        matches, is_qualified = matching(parts, self._inside, self._named)
        if not matches and not is_qualified and len(parts) > 1:
            self._refuse_input(parts, text, offset, what)
        if len(matches) != 1:
            name = self.input_of(parts[0]) if is_qualified else None
            candidates = [(named.column, named.text) for named in self.output]
            if name is not None:
                candidates = [(column, column) for column in self.inputs[name]]
            shown = [named.text for named in matches]
            refuse_column(parts[is_qualified], shown, candidates, text, offset, what, name or "")
        return matches[0], is_qualified

    def _named(self, name: str) -> Sequence[Named]:
        return _matches(self.output, name)

    def _inside(self, qualifier: str, name: str) -> Sequence[Named] | None:
        relation = self.input_of(qualifier)
        if relation is None:
            return None
        return _matches([Named(relation, column) for column in self.inputs[relation]], name)

    def input_of(self, name: str) -> str | None:
        """Return the input of that name, in whatever case."""
        return next(
            (relation for relation in self.inputs if relation.lower() == name.lower()), None
        )

    def _refuse_input(self, parts: Sequence[str], text: str, offset: int, what: str) -> NoReturn:
        hint = self.hints.get(parts[0].lower(), "")
        message = f"{what}: {unknown('input', parts[0], self.inputs)}"
        refuse(f"{message}; {hint}" if hint else message, text, offset, name=parts[0])


def _matches(columns: Sequence[Named], name: str) -> list[Named]:
    """Return the columns of the name; of one input's, that in the same case if there is one."""
    matches = [column for column in columns if column.column.lower() == name.lower()]
    exact = [column for column in matches if column.column == name]
    return exact if exact and len({column.input for column in matches}) == 1 else matches


@lru_cache(maxsize=4096)
def identifier(name: str) -> str:
    """Return a name as it can stand in SQL, in backticks where it needs them.

    >>> identifier("port"), identifier("dst port"), identifier("case")
    ('port', '`dst port`', '`case`')
    """
    if not _PLAIN.fullmatch(name):
        return quoted(name)
    (token,) = tokens_of(name)
    if token.token_type in (TokenType.VAR, TokenType.DATE, TokenType.TIMESTAMP):
        with suppress(QueryError):
            return name if isinstance(parse_condition(name), exp.Column) else quoted(name)
    return quoted(name)


class Names:
    """The names of a query over one input, which its columns are looked for in once it is bound."""

    def __init__(self, name: str, stream: str) -> None:
        self._input = name
        self._qualifiers = {name.lower(), stream.lower()}

    def inputs(self, part: Fragment, what: str) -> list[str]:  # noqa: ARG002
        """Return the inputs that a part reads, or refuse a column that is not one of theirs."""
        return [self._input]

    def unqualified(self, part: Fragment, what: str = "") -> str:  # noqa: ARG002
        """Return a part's text without the inputs before its columns."""
        return self.with_calls(part, ())

    def with_calls(self, part: Fragment, calls: Sequence[tuple[Fragment, str]]) -> str:
        """Return the same with names of columns in the place of calls of functions."""
        changes = [(call.start, call.end, name) for call, name in calls]
        for node in sorted(part.tree.find_all(exp.Column), key=offset_of):
            first, *rest = node.parts
            offset = offset_of(first)
            is_outside = not any(call.start < offset < call.end for call, _ in calls)
            if rest and is_outside and first.name.lower() in self._qualifiers:
                end = rest[0].meta.get("start", part.query.find("*", offset))
                changes.append((offset, end, ""))
        return part.rewritten(sorted(changes))

    def own_reads(
        self,
        function: FunctionPredicate,
        start: int,  # noqa: ARG002
    ) -> tuple[Sequence[str], list[str]]:
        """Return the columns of a function that is called without arguments, and their inputs."""
        return function.reads, [self._input]


@dataclass(frozen=True, slots=True)
class Mention:
    """A place of the text that names a column."""

    named: Named
    start: int
    """Offset of its first character."""
    end: int
    """Offset behind the column's name, which fields may follow."""
    written: str
    """The column's name as it is written, without the input's."""


class Held:
    """Inputs of a query whose rows come joined: as rows of one relation.

    Args:
        name: of the relation; that of the input if it is one.
        inputs: the inputs in the order of FROM, and the types of their columns.
        places: their numbers in FROM.
    """

    def __init__(
        self, name: str, inputs: Mapping[str, Mapping[str, str]], places: Mapping[str, int]
    ) -> None:
        self.name = name
        self._inputs = inputs
        self._places = places
        self.called: dict[Named, str] = {}
        """The columns that texts have named so far, and what they are called in the relation."""
        self.columns: dict[str, str] = {}
        """The types of these, by what they are called."""

    def column(self, named: Named) -> str:
        """Return what a column of an input is called.

        Of several inputs that is its name with the number of its input, as in ``k_2``: neither
        names of inputs nor columns that nobody reads have a part in it.
        """
        number = self._places[named.input]
        name = named.column if len(self._inputs) == 1 else f"{named.column}_{number}"
        self.columns[name] = self._inputs[named.input][named.column]
        return self.called.setdefault(named, name)


class JoinNames(Names):
    """The names of a query over several inputs, resolved in those that were read so far."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.scope = Scope({}, ())
        self.held: Mapping[str, Held] = {}
        """By input, the relation whose columns texts name in the place of its own."""

    def add(
        self,
        name: str,
        columns: Mapping[str, str],
        using: Sequence[Expr],
        *,
        is_right: bool = False,
    ) -> list[tuple[Named, Named]]:
        """Let the columns of one more input be read; return the pairs that USING makes equal."""
        scope = Scope({}, ()).joined(name, columns, ())
        pairs: list[tuple[Named, Named]] = []
        for node in using:
            parts, start = [node.name], offset_of(node)
            left, _ = self.scope.resolve(parts, self._text, start, "USING")
            right, _ = scope.resolve(parts, self._text, start, "USING")
            pairs.append((left, right))
        both = [named for pair in pairs for named in pair]
        self.scope = self.scope.joined(name, columns, both, is_right=is_right)
        return pairs

    def place_of(self, named: Named) -> Named:
        """Return the column that texts name for a column of an input."""
        held = self.held.get(named.input)
        return named if held is None else Named(held.name, held.column(named))

    def columns_of(self, relation: str) -> Mapping[str, str]:
        """Return the columns of an input, or of a relation that holds some, with their types."""
        for held in self.held.values():
            if held.name == relation:
                return held.columns
        return self.scope.inputs[relation]

    def mentions(self, part: Fragment, what: str) -> list[Mention]:
        """Return the places in a part that name a column; see ``Names``."""
        names = {output.column.lower() for output in self.scope.output}
        mentions: list[Mention] = []
        for node in part.columns:
            if len(node.parts) == 1 and is_no_column(node, names):
                continue
            parts, start = [name_part.name for name_part in node.parts], offset_of(node)
            named, is_qualified = self.scope.resolve(parts, part.query, start, what)
            place = node.parts[is_qualified].meta
            written = part.query[place["start"] : place["end"] + 1]
            mentions.append(Mention(named, start, place["end"] + 1, written))
        return mentions

    def inputs(self, part: Fragment, what: str) -> list[str]:
        """Return the inputs that a part reads, or the relations that hold them."""
        self.check_no_star(part, what)
        places = (self.place_of(mention.named) for mention in self.mentions(part, what))
        return list(dict.fromkeys(place.input for place in places))

    def check_no_star(self, part: Fragment, what: str) -> None:
        """Refuse hash(*), which would read every input."""
        if part.tree.find(exp.Star) is not None:
            message = f"{what}: a star (name the columns) is not supported yet"
            refuse(message, part.query, part.start, NotSupportedError)

    def unqualified(self, part: Fragment, what: str = "") -> str:
        """Return a part's text without the inputs before its columns."""
        return self._rewritten(part, what, self._bare_name)

    def canonical(self, part: Fragment, what: str) -> str:
        """Return the text of a part over one input, or the rows of a join; see ``name_of``."""
        return self._rewritten(part, what, lambda mention: identifier(self.name_of(mention.named)))

    def name_of(self, named: Named) -> str:
        """Return what a column is called in texts over the rows that are read: as in the schema."""
        return self.place_of(named).column

    def qualified(self, part: Fragment, what: str) -> str:
        """Return a part's text with every column qualified by its input."""
        self.check_no_star(part, what)
        return self._rewritten(part, what, lambda mention: self.place_of(mention.named).text)

    def own_reads(self, function: FunctionPredicate, start: int) -> tuple[Sequence[str], list[str]]:
        """Return the columns of the function, without inputs before them, and these inputs."""
        reads: list[str] = []
        inputs: list[str] = []
        what = function.name
        for text in function.reads:
            if self.scope.has(text):  # a column by its name, which need not be SQL
                named, _ = self.scope.resolve([text], self._text, start, what)
                place = self.place_of(named)
                reads.append(text if place == named else place.column)
                inputs.append(place.input)
                continue
            part = Fragment(text, parse_condition(text, f"what {what} reads"), 0, len(text))
            reads.append(self.unqualified(part, what))
            inputs += self.inputs(part, what)
        return reads, list(dict.fromkeys(inputs))

    def _rewritten(self, part: Fragment, what: str, write: Callable[[Mention], str]) -> str:
        """Return a part's text with other names for its columns."""
        mentions = self.mentions(part, what)
        return part.rewritten((mention.start, mention.end, write(mention)) for mention in mentions)

    def _bare_name(self, mention: Mention) -> str:
        """Return the column as written, without its input, in backticks where it needs them."""
        if mention.named.input in self.held:
            return identifier(self.name_of(mention.named))
        is_quoted = mention.written.startswith("`")
        same = mention.start + len(mention.written) == mention.end  # it had no input before it
        safe = is_quoted or same or identifier(mention.written) == mention.written
        return mention.written if safe else quoted(mention.written)


def is_star(tree: Expr) -> bool:
    """Return whether an output column is ``*`` or ``s.*``."""
    if isinstance(tree, exp.Star):
        return not any(tree.args.values())
    return isinstance(tree, exp.Column) and len(tree.parts) == 2 and is_star(tree.this)


def columns_of_star(column: Fragment, statement: Statement, names: JoinNames) -> list[Named]:
    """Return the columns that ``*`` or ``s.*`` stands for."""
    scope, qualifier = names.scope, column.tree.args.get("table")
    if qualifier is None:
        return list(scope.output)
    name = scope.input_of(qualifier.name)
    if name is None:
        what = f"output column {column.text!r}"
        scope.resolve([qualifier.name, "*"], column.query, column.start, what)
        message = f"{what}: a star of a struct (name its fields) is not supported yet"
        statement.refuse(message, column.start)
    return [Named(name, column_name) for column_name in scope.inputs[name]]


def unaliased(column: Fragment, statement: Statement) -> tuple[str, Fragment]:
    """Return the alias of an output column ("" if it has none), and its expression."""
    if isinstance(column.tree, exp.Aliases):
        what = f"output column {column.text!r}"
        statement.refuse(f"{what}: several names are not supported yet", column.start)
    if isinstance(column.tree, exp.Alias):
        return column.tree.alias, statement.part(column.tree.this)
    return "", statement.part(column.tree)


def default_name(part: Fragment, what: str, statement: Statement, names: JoinNames) -> str:
    """Return the name of a column or field; else the text, on one line."""
    inner = part.tree.unnest()
    if not isinstance(inner, exp.Column | exp.Dot):
        return " ".join(part.text.split())
    mentions = names.mentions(part, what)
    is_column = len(mentions) == 1 and mentions[0].end == statement.part(inner).end
    return mentions[0].named.column if is_column else str(inner.name)


_OF_STAR = " of the star"


def outputs_of(
    statement: Statement,
    names: JoinNames,
    write: Callable[[Fragment, str], str],
    write_star: Callable[[Fragment, Named], str],
    name: Callable[[Fragment, str], str] | None = None,
) -> tuple[str, ...]:
    """Return output columns as SQL, such as ``s.v AS v``; a bare column of its own name as it is.

    A star calls a column ``s_k`` if the stars of the query stand for columns ``k`` of several
    inputs.

    Args:
        statement: the query.
        names: of its inputs.
        write: returns the text of an expression; gets what errors call it, too.
        write_star: returns the text of a column for which an item with a star stands.
        name: returns the name of an expression without an alias, as ``write`` its text.

    Raises:
        QueryError: two have the same name.
    """
    columns = statement.output_columns
    stars = [
        columns_of_star(item, statement, names) if is_star(item.tree) else [] for item in columns
    ]
    owners: dict[str, set[str]] = {}
    for named in itertools.chain.from_iterable(stars):
        owners.setdefault(named.column.lower(), set()).add(named.input)

    def outputs() -> Iterator[tuple[Fragment, str, str, str]]:
        for column, star in zip(columns, stars, strict=True):
            for starred in star:
                text = write_star(column, starred)
                if len(owners[starred.column.lower()]) == 1:
                    yield column, starred.column, text, text
                else:
                    called = f"{starred.input}_{starred.column}"
                    yield column, called, text, f"{text}{_OF_STAR}"
            if is_star(column.tree):
                continue
            what = f"output column {column.text!r}"
            alias, part = unaliased(column, statement)
            text = write(part, what)
            default = name(part, what) if name else default_name(part, what, statement, names)
            yield column, alias or default, text, column.text

    by_name: dict[str, tuple[str, str, str]] = {}
    for column, called, text, shown in outputs():
        if called.lower() in by_name:
            other = by_name[called.lower()][2]
            message = f"two output columns are called {called!r}: {other} and {shown}; "
            is_of_star = _OF_STAR in other or _OF_STAR in shown
            hint = "name the columns instead" if is_of_star else "give one another name with AS"
            refuse(message + hint, column.query, column.start, name=called)
        by_name[called.lower()] = identifier(called), text, shown
    return tuple(
        text if text == called else f"{text} AS {called}" for called, text, _ in by_name.values()
    )
