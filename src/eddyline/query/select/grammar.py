"""Grammar of queries: Spark's SELECT with CQL and MODEL [CQL].

CQL brings windows and ``ISTREAM(…)``. sqlglot has no tree for these. They are part of the grammar
here, and what is read stays the user's text: the tree says at which tokens windows, output columns
and conditions stand. The parser overrides methods of sqlglot that are not public, which is why
pyproject.toml pins it narrowly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from sqlglot import TokenType, exp

from eddyline.errors import NotSupportedError
from eddyline.query.cql import EMITS
from eddyline.query.select.model_clause import (
    EXACT,
    MODEL,
    OUTPUTS,
    ModelParser,
    Outputs,
    begins_model,
    begins_output,
)
from eddyline.sql.parsing import SparkText, offset_of, refuse, tokens_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlglot import Expr, Token

Span = tuple[int, int]
"""The positions of a first token and of that behind the last one."""

SPAN, ITEM, WINDOWS, FIRST, EMITTED = "span", "item", "windows", "first", "emitted"
"""Keys of ``meta`` of nodes: the span of an expression, that of an output column with its name,
those of the windows behind a name or an alias, the first token of a join, the word that says what
is emitted (of the first output column, where it stands around these)."""

_WITH = "WITH name AS (SELECT …)"
_BEHIND_NAMES = "a window stands behind the name or the alias of a stream"
_LIKE = (TokenType.LIKE, TokenType.ILIKE)  # what LIKE ANY ('a%', 'b%') begins with
_BEHIND_PARTS = (TokenType.R_PAREN, TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT)
_CUTS = (TokenType.ORDER_BY, TokenType.LIMIT, TokenType.OFFSET)
_BEHIND_BARE_WORD = (TokenType.VAR, TokenType.IDENTIFIER, TokenType.STAR, TokenType.DISTINCT)


def tokens_of_query(text: str) -> list[Token]:
    """Return the tokens of a query, in which ``window`` is a name but in ``WINDOW w AS (…)``.

    Raises:
        QueryError: a quote or comment is left open.
    """
    tokens = tokens_of(text, "the query")
    for position, token in enumerate(tokens):
        behind = [next_token.token_type for next_token in tokens[position + 1 : position + 3]]
        is_clause = TokenType.ALIAS in behind[1:] and behind[0] != TokenType.COMMA
        if token.token_type == TokenType.WINDOW and not is_clause:
            token.token_type = TokenType.VAR
    return tokens


class CqlText(SparkText):
    """Spark SQL as it is written, with CQL's windows and relation-to-stream operators."""

    class Parser(SparkText.Parser):
        """See the dialect."""

        ADD_JOIN_ON_TRUE: ClassVar[bool] = False  # conditions are those that are written

        # -- queries ------------------------------------------------------------------------------

        def reset(self) -> None:
            """Forget the text before."""
            super().reset()
            self._emits: Token | None = None
            self._has_models = False
            self._depth = 0
            """How many queries of WITH enclose the place."""

        def _parse_statement(self) -> Expr | None:
            """Read SELECT, perhaps in ISTREAM(…)."""
            word = self._stream_word()
            if word is not None:
                self._emits = word
                self._advance(2)
                if self._curr.token_type == TokenType.R_PAREN:
                    refuse(f"{word.text}(…) needs a SELECT", self.sql, self._curr.start)
            self._check_is_select()
            tree: Expr | None = super()._parse_statement()
            if tree is not None and self._curr and not self._depth:
                self._read_outputs(tree)
            if word is not None:
                self._close(word)
            if tree is not None and word is not None:
                tree.meta[EMITTED] = word
            return tree

        def _read_outputs(self, tree: Expr) -> None:
            """Read what is said of the results, of UNION ALL as what its last SELECT says."""
            if not self._has_models:
                self._refuse_exact()
                return
            while isinstance(tree, exp.SetOperation):
                tree = tree.expression
            if OUTPUTS not in tree.meta:
                reader = self._reader()
                tree.meta[OUTPUTS] = reader.outputs()
                self._advance(reader.n_read)
                if self._curr and self._curr.token_type in _CUTS:  # refused with their reason
                    super()._parse_query_modifiers(tree)

        def _refuse_exact(self) -> None:
            """Refuse EXACT where no model is before it."""
            if self._curr.text.upper() == EXACT:
                message = (
                    "EXACT is said of models, FROM s MODEL x WITHIN 0.5; rows without a model are "
                    "exact, so leave it out"
                )
                refuse(message, self.sql, self._curr.start)

        def _parse_query_modifiers(self, this: Any) -> Any:
            """Read what follows FROM, and EXACT of a part of UNION ALL or of a subquery."""
            tree = super()._parse_query_modifiers(this)
            is_part = self._next and self._next.token_type in _BEHIND_PARTS
            if isinstance(tree, exp.Select) and is_part and self._curr.text.upper() == EXACT:
                if not self._has_models:
                    self._refuse_exact()
                tree.meta[OUTPUTS] = Outputs(is_exact=True, places={EXACT: self._curr.start})
                self._advance()
            return tree

        def _check_is_select(self) -> None:
            first = self._curr or self._prev
            if first.token_type not in (TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN):
                message = f"a query starts with SELECT, got {first.text!r}"
                refuse(message, self.sql, first.start)

        def _close(self, word: Token) -> None:
            """Step over the parenthesis that ends ISTREAM(…), and the query with it."""
            if not self._curr:
                opening = self._tokens[self._tokens.index(word) + 1]
                message = f"{word.text} has a parenthesis that is left open"
                refuse(message, self.sql, opening.start)
            if self._match(TokenType.R_PAREN) and self._curr and not self._depth:
                message = f"nothing may follow {word.text}(…), got {self._curr.text!r}"
                sets = TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT
                if self._curr.token_type in sets:
                    message += f"; write it in a SELECT: SELECT {word.text}(…) FROM …"
                refuse(message, self.sql, self._curr.start)

        def _parse_with(self, *args: Any, **how: Any) -> exp.With | None:
            word, behind = self._curr, self._next
            clause: exp.With | None = super()._parse_with(*args, **how)
            if clause is None:
                return None
            if clause.args.get("recursive"):
                message = "WITH RECURSIVE is not supported: a query of WITH cannot read itself"
                refuse(message, self.sql, behind.start, NotSupportedError)
            if any(clause.args.get(key) for key in ("search", "cycle", "udfs")):
                message = f"nothing is supported between {_WITH} and SELECT"
                refuse(message, self.sql, word.start, NotSupportedError)
            if not self._curr:
                refuse("a SELECT is missing behind WITH", self.sql, word.start)
            return clause

        def _parse_cte(self) -> Any:
            around, self._emits = self._emits, None
            self._depth += 1
            name = self._curr
            cte = super()._parse_cte()
            self._emits, self._depth = around, self._depth - 1
            alias = cte.args["alias"]
            if alias.args.get("columns"):
                message = f"names of columns behind {alias.name!r} are not supported yet; write AS"
                start = offset_of(alias.args["columns"][0])
                refuse(f"{message} in its SELECT", self.sql, start, NotSupportedError)
            if alias.meta.get(WINDOWS) or MODEL in alias.meta:
                message = f"a window or MODEL stands behind a name in FROM, not in {_WITH}"
                refuse(message, self.sql, name.start)
            if cte.args.get("materialized") is not None or cte.args.get("key_expressions"):
                message = f"nothing is supported between the name and the query of {_WITH}"
                refuse(message, self.sql, name.start, NotSupportedError)
            return cte

        def _stream_word(self) -> Token | None:
            """Return the word if ISTREAM( comes next."""
            token: Token = self._curr
            is_call = self._next.token_type == TokenType.L_PAREN
            is_word = token.token_type == TokenType.VAR and token.text.upper() in EMITS
            return token if is_call and is_word else None

        def _parse_projections(self) -> tuple[list[Expr], None]:
            around, self._emits = self._emits, None  # of the first SELECT only
            word, is_word = self._stream_word(), self._curr.text.upper() in EMITS
            if word is None:
                is_bare = is_word and self._curr.token_type == TokenType.VAR
                if is_bare and self._next.token_type in _BEHIND_BARE_WORD:
                    message = f"write SELECT {self._curr.text}(…) FROM …"
                    refuse(message, self.sql, self._curr.start)
                return self._output_columns(), None
            if around is not None:
                refuse("what the query emits is said twice", self.sql, word.start)
            self._advance(2)
            if self._curr.token_type == TokenType.DISTINCT:
                message = f"write {word.text}(SELECT DISTINCT … FROM …)"
                refuse(message, self.sql, self._curr.start, NotSupportedError)
            columns = self._output_columns()
            if not self._match(TokenType.R_PAREN) or self._curr.token_type != TokenType.FROM:
                message = f"{word.text}(…) stands around all output columns and before FROM"
                refuse(message, self.sql, word.start)
            columns[0].meta[EMITTED] = word
            return columns, None

        def _output_columns(self) -> list[Expr]:
            if self._prev.token_type == TokenType.ALIAS:  # SELECT AS STRUCT, in other dialects
                message = "the output columns cannot be read; write words of SQL in backticks"
                refuse(message, self.sql, self._prev.start)
            columns: list[Expr] = []
            while not columns or self._match(TokenType.COMMA):
                start = self._index
                column = self._parse_expression()
                if column is None and self._curr:
                    refuse("an output column is missing", self.sql, self._curr.start)
                if column is None:
                    break
                column.meta[ITEM] = (start, self._index)
                columns.append(column)
            return columns

        def _spanned(self, parse: Callable[..., Expr | None], *args: Any, **how: Any) -> Any:
            """Note the span of what a method parses."""
            start = self._index
            tree = parse(*args, **how)
            if tree is not None:
                tree.meta[SPAN] = (start, self._index)
            return tree

        def _parse_disjunction(self) -> Any:  # a condition
            before = self._prev
            tree = self._spanned(super()._parse_disjunction)
            if tree is None and before.token_type == TokenType.ON:
                refuse("the condition of ON is missing", self.sql, before.start)
            return tree

        def _parse_equality(self, *args: Any, **how: Any) -> Any:  # a conjunct
            return self._spanned(super()._parse_equality, *args, **how)

        def _parse_comparison(self, *args: Any, **how: Any) -> Any:  # a side of an equality
            return self._spanned(super()._parse_comparison, *args, **how)

        def _parse_unary(self) -> Any:  # a side of + or *
            return self._spanned(super()._parse_unary)

        def _parse_function(self, *args: Any, **how: Any) -> Any:  # a call with FILTER and OVER
            is_call = self._curr and self._curr.text.upper() == "ANY"
            if is_call and self._prev.token_type not in _LIKE:  # any(v), the aggregate
                how["optional_parens"] = False
            return self._spanned(super()._parse_function, *args, **how)

        def _parse_lambda(self, *args: Any, **how: Any) -> Any:  # an argument
            return self._spanned(super()._parse_lambda, *args, **how)

        def _parse_using_identifiers(self) -> list[Expr]:
            using = self._prev
            names: list[Expr] = super()._parse_using_identifiers()
            if not names:
                refuse("USING needs the names of columns", self.sql, using.start)
            return names

        def _parse_join(self, *args: Any, **kwargs: Any) -> exp.Join | None:
            start, first = self._index, self._curr
            join: exp.Join | None = super()._parse_join(*args, **kwargs)
            if join is not None:
                join.meta[FIRST] = start
            elif self._index > start:
                refuse("a stream is missing behind the comma", self.sql, first.start)
            return join

        def _parse_table_parts(self, *args: Any, **kwargs: Any) -> Expr | None:
            if self._curr.token_type == TokenType.L_BRACKET:
                refuse(_BEHIND_NAMES, self.sql, self._curr.start)
            table: Expr | None = super()._parse_table_parts(*args, **kwargs)
            if table is not None:
                self._read_behind(table)
            return table

        def _parse_table_alias(self, *args: Any, **kwargs: Any) -> exp.TableAlias | None:
            if self._match_pair(TokenType.ALIAS, TokenType.L_BRACKET, advance=False):
                refuse(_BEHIND_NAMES, self.sql, self._next.start)
            if self._has_models and self._curr and begins_output(self._curr, self._next):
                return None
            alias: exp.TableAlias | None = super()._parse_table_alias(*args, **kwargs)
            if alias is not None:
                self._read_behind(alias)
            return alias

        def _reader(self) -> ModelParser:
            """Return a reader of the clauses of models from here on."""
            return ModelParser.before(self.sql, self._tokens[self._index :], len(self.sql), "MODEL")

        def _read_behind(self, node: Expr) -> None:
            """Read MODEL and windows behind a name."""
            self._skip_windows(node)
            if self._curr and self._next and begins_model(self._curr, self._next):
                reader, self._has_models = self._reader(), True
                node.meta[MODEL] = reader.model()
                self._advance(reader.n_read)
                self._skip_windows(node)

        def _skip_windows(self, node: Expr) -> None:
            """Note the spans of the windows behind a name; they are read once it is known whose."""
            spans: list[Span] = node.meta.get(WINDOWS, [])
            while self._match(TokenType.L_BRACKET):
                start = self._index
                while self._curr and self._curr.token_type != TokenType.R_BRACKET:
                    self._advance()
                if not self._curr:
                    message = "a window has a bracket that is left open"
                    refuse(message, self.sql, self._tokens[start - 1].start)
                spans.append((start, self._index))
                self._advance()
            node.meta[WINDOWS] = spans
