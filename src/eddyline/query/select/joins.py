"""Reads ``SELECT … FROM s [RANGE 10 SECONDS], t [ROWS 5] WHERE s.k = t.k`` and its kin.

sqlglot has no tree for the windows and for ISTREAM(…): they are cut out at tokens before it reads
the rest. All joins are inner, so it is all one whether a condition stands in ON or in WHERE: the
conjuncts are sorted by the inputs that they read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from sqlglot import TokenType, exp

from eddyline.errors import NotSupportedError, QueryError
from eddyline.query.predicates import SqlPredicate
from eddyline.query.query import Input, Query
from eddyline.query.select.clauses import from_marks, statement_tokens
from eddyline.query.select.cql_syntax import (
    says_what_is_emitted,
    without_stream_word,
    without_windows,
)
from eddyline.query.select.from_clause import FromReader
from eddyline.query.select.key_classes import Keys, side_of
from eddyline.query.select.scope import Mention, Named, NamesIn, Scope, bare_name, identifier
from eddyline.sql.analysis import check_is_row_wise
from eddyline.sql.conjuncts import conjunct_tokens, unwrapped
from eddyline.sql.functions import NON_DETERMINISTIC
from eddyline.sql.inference import as_name
from eddyline.sql.parsing import offset_of, parse_condition, refuse, slice_of, tokens_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlglot import Expr, Token

    from eddyline.query.predicates import FunctionPredicate, Predicate
    from eddyline.query.query import Emits
    from eddyline.query.select.clauses import Call
    from eddyline.query.select.from_clause import FromItem
    from eddyline.query.select.key_classes import Side


def is_join(text: str) -> bool:
    """Return whether a query is for ``read_join``: several inputs, a window, or ISTREAM(…).

    >>> is_join("SELECT * FROM s, t"), is_join("SELECT * FROM s [NOW]"), is_join("SELECT 1 FROM s")
    (True, True, False)
    """
    try:
        tokens = tokens_of(text)
    except QueryError:
        return False  # either reader says what is wrong
    return says_what_is_emitted(tokens) or any(True for _ in from_marks(tokens))


def read_join(
    text: str,
    columns: Mapping[str, Mapping[str, str]],
    functions: Mapping[str, FunctionPredicate],
) -> Query:
    """Read a query over two inputs or more.

    ``ISTREAM(SELECT …)`` and ``SELECT ISTREAM(…) FROM`` say what is emitted, as do DSTREAM and
    RSTREAM; istream without. A stream without a window is unbounded.

    An equality of two inputs makes a key if both sides are of types that compare exactly; if its
    sides are of different types it is not supported, as equality would not be transitive. Members
    of a class may differ in width (int, bigint, decimal), and types that cannot be told from the
    text are taken as they are.

    Args:
        text: the query.
        columns: name and Spark type of each column, by stream or table.
        functions: the predicates that may be called on one input each, by name.

    Returns:
        The query as a value.

    Raises:
        QueryError: it cannot be read, or names what does not exist; the message shows where.
        NotSupportedError: valid SQL that eddyline does not run yet; the message shows where.

    Example:
        >>> kinds = {"s": {"k": "int", "v": "int"}, "t": {"k": "int", "w": "int"}}
        >>> query = read_join(
        ...     "SELECT v, w FROM s [NOW], t WHERE s.k = t.k AND v > 3 AND v < w", kinds, {}
        ... )
        >>> query.projections, query.keys[0].members
        (('s.v AS v', 't.w AS w'), {'s': ('k',), 't': ('k',)})
        >>> query.inputs[0].predicates[0].text, query.residual
        ('v > 3', ('s.v < t.w',))
    """
    return _Reader(text, columns, functions).query()


class _Reader(FromReader):
    """One query being read."""

    def __init__(
        self,
        text: str,
        columns: Mapping[str, Mapping[str, str]],
        functions: Mapping[str, FunctionPredicate],
    ) -> None:
        emits, inner = without_stream_word(text, statement_tokens(text))
        super().__init__(text, *without_windows(text, inner), columns, functions)
        self._emits: Emits = emits or "istream"
        self._check_several(said=emits)
        self._names = NamesIn(text, self._tree)
        self._part = "WHERE"
        self._scope = Scope({}, ())
        self._predicates: dict[str, list[Predicate]] = {}
        self._keys = Keys()
        self._equalities: list[str] = []
        self._residual: list[str] = []

    def query(self) -> Query:
        """Return the query as a value."""
        items = self._items()
        windows = self._windows_of(items)
        self._read_conditions(items)
        projections = self._projections()
        inputs = tuple(
            Input(item.name, item.stream, window, tuple(self._predicates[item.name]))
            for item, window in zip(items, windows, strict=True)
        )
        return Query(
            inputs,
            self._keys.classes(),
            tuple(self._equalities),
            tuple(self._residual),
            projections,
            self._emits,
            self._text,
        )

    # Conditions

    def _read_conditions(self, items: Sequence[FromItem]) -> None:
        where = self._position(TokenType.WHERE)
        bounds = [self._words_before(item.first) for item in items[1:]]
        called = {
            item.stream.lower(): f"{item.stream} is called {item.name} here" for item in items
        }
        for item, end in zip(items, [*bounds, where], strict=True):
            self._predicates[item.name] = []
            later = {each.name.lower(): f"{each.name} is joined after this ON" for each in items}
            self._scope = replace(self._scope, hints={**called, **later})
            self._join(item)
            tokens = self._tokens[item.last + 1 : end]
            if tokens and tokens[0].token_type == TokenType.USING and not _using(item):
                refuse("USING needs the names of columns", self._text, tokens[0].start)
            if tokens and tokens[0].token_type == TokenType.ON and item.join is not None:
                self._sort_conjuncts(tokens, item.join.args["on"])
        self._scope = replace(self._scope, hints=called)
        if self._tree.args.get("where") is not None:
            self._sort_conjuncts(self._tokens[where:], self._tree.args["where"].this)

    def _join(self, item: FromItem) -> None:
        """Add an input to what may be read, with the equalities of its USING."""
        columns = self._columns[item.stream]
        own = Scope({}, ()).joined(item.name, columns, ())
        using: list[Named] = []
        for name in _using(item):
            start = offset_of(name)
            left = self._scope.resolve([name.name], self._text, start, "USING")[0]
            right = own.resolve([name.name], self._text, start, "USING")[0]
            using += [left, right]
        self._scope = self._scope.joined(item.name, columns, using)
        for left, right in zip(using[::2], using[1::2], strict=True):
            start = self._tokens[item.first].start
            self._add_equality(
                (left.input, identifier(left.column)),
                (right.input, identifier(right.column)),
                f"{left.text} = {right.text}",
                start,
            )

    def _sort_conjuncts(self, tokens: Sequence[Token], tree: Expr) -> None:
        """Read a condition, behind its ON or WHERE."""
        word, condition = tokens[0], tokens[1:]
        self._part = word.text.upper()
        if not condition:
            refuse(f"the condition of {self._part} is missing", self._text, word.start)
        check_is_row_wise(tree, self._text, self._part, self._functions)
        for part in conjunct_tokens(self._text, condition):
            self._sort_conjunct(part)

    def _sort_conjunct(self, tokens: Sequence[Token]) -> None:
        call = self._call(tokens)
        if call is not None:
            self._add_call(call)
            return
        self._check_no_function_tokens(tokens)
        tree = parse_condition(slice_of(self._text, tokens))
        self._check_no_star(tree, self._part, tokens[0].start)
        inputs = self._inputs(tokens)
        if len(inputs) != 1:
            self._check_deterministic(tree, tokens)
        if len(inputs) > 1:
            self._add_join_condition(tokens)
            return
        name = inputs[0] if inputs else next(iter(self._predicates))
        self._predicates[name].append(SqlPredicate(self._unqualified(tokens)))

    def _add_join_condition(self, tokens: Sequence[Token]) -> None:
        sides = self._sides(tokens)
        qualified = self._qualified(tokens)
        inputs = [self._inputs(side) for side in sides]
        if [len(each) for each in inputs] != [1, 1] or inputs[0] == inputs[1]:
            self._residual.append(qualified)
            return
        left, right = (
            (name, self._canonical(side)) for (name,), side in zip(inputs, sides, strict=True)
        )
        self._add_equality(left, right, qualified, tokens[0].start)

    def _sides(self, tokens: Sequence[Token]) -> list[Sequence[Token]]:
        """Return the two sides of an equality; nothing if it is none."""
        tokens = unwrapped(tokens)
        tree = parse_condition(slice_of(self._text, tokens))
        if not isinstance(tree, exp.EQ):
            return []
        for position, token in enumerate(tokens):
            left, right = tokens[:position], tokens[position + 1 :]
            is_cut = token.token_type == TokenType.EQ and left and right
            if is_cut and self._reads_as(left, tree.left) and self._reads_as(right, tree.right):
                return [self._without_parentheses(left), self._without_parentheses(right)]
        return []

    def _without_parentheses(self, tokens: Sequence[Token]) -> Sequence[Token]:
        """Return an expression without parentheses around it, unless they make it a row."""
        tree = parse_condition(slice_of(self._text, tokens))
        return tokens if isinstance(tree.unnest(), exp.Tuple) else unwrapped(tokens)

    def _reads_as(self, tokens: Sequence[Token], tree: Expr) -> bool:
        try:
            return bool(parse_condition(slice_of(self._text, tokens)) == tree)
        except QueryError:
            return False

    def _add_equality(
        self, left: tuple[str, str], right: tuple[str, str], written: str, start: int
    ) -> None:
        a, b = (side_of(name, text, self._scope.inputs[name]) for name, text in (left, right))
        if a is None or b is None:
            self._residual.append(written)
            return
        clash = self._keys.add(a, b)
        if clash is not None:
            self._refuse_kinds(clash, start)
        self._equalities.append(written)

    def _refuse_kinds(self, clash: tuple[Side, Side], start: int) -> NoReturn:
        a, b = (f"{side.text} of {side.input} is {side.kind}" for side in clash)
        message = (
            f"an equality of different types is not supported yet as the key of a join: "
            f"{a}, {b}; CAST one to the type of the other"
        )
        self._refuse(message, start)

    # Functions of the user

    def _add_call(self, call: Call) -> None:
        start = call.name.start
        if call.arguments:
            made = self._predicate_of(call)
            inputs = list(
                dict.fromkeys(name for arg in call.arguments for name in self._inputs(arg))
            )
        else:
            reads, inputs = self._own_reads(call)
            made = self._predicate_of(replace(call, found=replace(call.found, reads=reads)))
        if len(inputs) > 1:
            message = (
                f"the function {call.found.name} reads {' and '.join(inputs)}; "
                f"over several inputs it is not supported yet"
            )
            refuse(message, self._text, start, NotSupportedError, function=call.found.name)
        name = inputs[0] if inputs else next(iter(self._predicates))
        self._predicates[name].append(made)

    def _own_reads(self, call: Call) -> tuple[tuple[str, ...], list[str]]:
        """Return what a function reads that is called without arguments, and of which inputs."""
        reads: list[str] = []
        inputs: list[str] = []
        for text in call.found.reads:
            if self._scope.has(text):  # a column by its name, which need not be SQL
                start = call.name.start
                named, _ = self._scope.resolve([text], self._text, start, call.found.name)
                reads.append(text)
                inputs.append(named.input)
                continue
            names = NamesIn(text, parse_condition(text, f"what {call.found.name} reads"))
            tokens = tokens_of(text)
            mentions = names.mentions(tokens, self._scope, call.found.name)
            reads.append(names.rewritten(tokens, mentions, bare_name))
            inputs += [each.named.input for each in mentions]
        return tuple(reads), list(dict.fromkeys(inputs))

    # Output columns

    def _projections(self) -> tuple[str, ...]:
        made: dict[str, tuple[str, str]] = {}
        for tokens, tree in self._output_items(self._tree):
            for name, text in self._output(tokens, tree):
                if name.lower() in made:
                    self._refuse_twice(made[name.lower()], (name, text), tokens)
                made[name.lower()] = name, text
        return tuple(f"{text} AS {identifier(name)}" for name, text in made.values())

    def _output(self, tokens: Sequence[Token], tree: Expr) -> list[tuple[str, str]]:
        """Return name and text of what one item of SELECT stands for."""
        what = self._named_output(tokens)
        if tokens[-1].token_type == TokenType.STAR and len(tokens) in (1, 3):
            return [(each.column, each.text) for each in self._star(tokens, what)]
        self._check_no_star(tree, what, tokens[0].start)
        if isinstance(tree, exp.Aliases):
            self._refuse(f"{what}: several names are not supported yet", tokens[0].start)
        expression = tokens
        if isinstance(tree, exp.Alias):
            expression = tokens[:-1]
            if expression[-1].token_type == TokenType.ALIAS:
                expression = expression[:-1]
        mentions = self._mentions(expression, what)
        name = tree.alias or self._default_name(expression, tree, mentions)
        return [(name, self._names.rewritten(expression, mentions, _qualified_name))]

    def _star(self, tokens: Sequence[Token], what: str) -> list[Named]:
        if len(tokens) == 1:
            return list(self._scope.output)
        name = self._scope.input_of(tokens[0].text)
        if name is None:
            self._scope.resolve([tokens[0].text, "*"], self._text, tokens[0].start, what)
            message = f"{what}: a star of a struct (name its fields) is not supported yet"
            self._refuse(message, tokens[0].start)
        return [Named(name, column) for column in self._scope.inputs[name]]

    def _default_name(
        self, tokens: Sequence[Token], tree: Expr, mentions: Sequence[Mention]
    ) -> str:
        """Return the name of a column or field; else the text, on one line."""
        if isinstance(tree.unnest(), exp.Column | exp.Dot):
            tokens = unwrapped(tokens)
            is_column = len(mentions) == 1 and mentions[0].end == tokens[-1].end + 1
            return mentions[0].named.column if is_column else tokens[-1].text
        return " ".join(slice_of(self._text, tokens).split())

    def _refuse_twice(
        self, one: tuple[str, str], other: tuple[str, str], tokens: Sequence[Token]
    ) -> NoReturn:
        message = (
            f"two output columns are called {other[0]!r}: {one[1]} and {other[1]}; "
            f"give one another name with AS"
        )
        refuse(message, self._text, tokens[0].start, name=other[0])

    # Columns in texts

    def _mentions(self, tokens: Sequence[Token], what: str) -> list[Mention]:
        return self._names.mentions(tokens, self._scope, what)

    def _inputs(self, tokens: Sequence[Token]) -> list[str]:
        """Return the inputs that a part of the text reads."""
        return list(dict.fromkeys(each.named.input for each in self._mentions(tokens, self._part)))

    def _unqualified(self, tokens: Sequence[Token]) -> str:
        return self._names.rewritten(tokens, self._mentions(tokens, self._part), bare_name)

    def _canonical(self, tokens: Sequence[Token]) -> str:
        """Return an expression over one input with its columns named as in the schema."""
        mentions = self._mentions(tokens, self._part)
        return self._names.rewritten(tokens, mentions, lambda each: identifier(each.named.column))

    def _qualified(self, tokens: Sequence[Token]) -> str:
        return self._names.rewritten(tokens, self._mentions(tokens, self._part), _qualified_name)

    # Refusals

    def _check_no_star(self, tree: Expr, what: str, start: int) -> None:
        """Refuse hash(*), which would read every input."""
        if tree.find(exp.Star) is not None:
            message = f"{what}: a star (name the columns) is not supported yet"
            self._refuse(message, start)

    def _check_deterministic(self, tree: Expr, tokens: Sequence[Token]) -> None:
        for node in tree.walk():
            if as_name(node) in NON_DETERMINISTIC:
                message = (
                    f"{self._part}: {as_name(node)}() is not deterministic, "
                    f"which is not supported yet in a condition over several inputs"
                )
                self._refuse(message, tokens[0].start)


def _using(item: FromItem) -> Sequence[Expr]:
    """Return the names of the item's USING."""
    found: Sequence[Expr] = (item.join.args.get("using") if item.join else None) or ()
    return found


def _qualified_name(mention: Mention) -> str:
    return mention.named.text
