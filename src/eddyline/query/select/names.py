"""The columns that parts of a query name, and these parts with other names for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sqlglot import TokenType, exp

from eddyline.errors import NotSupportedError
from eddyline.query.select.scope import Scope, identifier
from eddyline.sql.names import column_nodes, is_no_column
from eddyline.sql.parsing import (
    offset_of,
    parse_condition,
    quoted,
    refuse,
    slice_of,
    tokens_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sqlglot import Expr, Token

    from eddyline.query.select.calls import Call
    from eddyline.query.select.from_clause import FromItem
    from eddyline.query.select.scope import Named


class Names(Protocol):
    """Resolves the names in parts of a query; ``what`` is what a part is, for errors."""

    def inputs(self, tokens: Sequence[Token], what: str) -> list[str]:
        """Return the inputs that a part of the text reads.

        Raises:
            QueryError: a column that is unknown or ambiguous.
            NotSupportedError: a star, which would read every input.
        """

    def unqualified(self, tokens: Sequence[Token], what: str) -> str:
        """Return a part of the text without the inputs before its columns."""

    def own_reads(self, call: Call) -> tuple[Sequence[str], list[str]]:
        """Return what a function reads that is called without arguments, and of which inputs."""


class OneInput:
    """The names of a query over one input. Columns are resolved where it is bound to a stream.

    Args:
        text: the query.
        item: its input.
    """

    def __init__(self, text: str, item: FromItem) -> None:
        self._text = text
        self._name = item.name
        self._qualifiers = {item.name.lower(), item.stream.lower()}

    def inputs(self, tokens: Sequence[Token], what: str) -> list[str]:  # noqa: ARG002
        """Return the input."""
        return [self._name]

    def unqualified(self, tokens: Sequence[Token], what: str) -> str:  # noqa: ARG002
        """Return a part of the text without ``alias.`` in front of columns."""
        pieces, position, before = [], tokens[0].start, None
        for token, dot, column in zip(tokens, tokens[1:], tokens[2:], strict=False):
            is_first = dot.token_type == TokenType.DOT and before != TokenType.DOT
            is_name = token.token_type not in (TokenType.STRING, TokenType.NUMBER)
            if is_first and is_name and token.text.lower() in self._qualifiers:
                pieces.append(self._text[position : token.start])
                position = column.start
            before = token.token_type
        return "".join([*pieces, self._text[position : tokens[-1].end + 1]])

    def own_reads(self, call: Call) -> tuple[Sequence[str], list[str]]:
        """Return the columns of the function."""
        return call.function.reads, [self._name]


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


class ScopedNames:
    """The names of a query over several inputs, resolved in those that were read so far.

    Args:
        text: a query or an expression.
        tree: its tree, which knows where in the text its names stand.
        scope: the columns that may be read.
    """

    def __init__(self, text: str, tree: Expr, scope: Scope | None = None) -> None:
        self._text = text
        self._nodes = {offset_of(node): node for node in column_nodes(tree)}
        self.scope = scope or Scope({}, ())

    def add(self, item: FromItem, columns: Mapping[str, str]) -> list[tuple[Named, Named]]:
        """Let the columns of one more input be read.

        Returns:
            The columns that its USING makes equal, of the inputs before and of the new one.
        """
        own = Scope({}, ()).joined(item.name, columns, ())
        using: list[tuple[Named, Named]] = []
        for node in item.using:
            name, start = [node.name], offset_of(node)
            pair = (scope.resolve(name, self._text, start, "USING") for scope in (self.scope, own))
            (left, _), (right, _) = pair
            using.append((left, right))
        self.scope = self.scope.joined(
            item.name, columns, [each for pair in using for each in pair]
        )
        return using

    def mentions(self, tokens: Sequence[Token], what: str) -> list[Mention]:
        """Return the places in a part of the text that name a column; see ``Names``."""
        names = {each.column.lower() for each in self.scope.output}
        found: list[Mention] = []
        for position, token in enumerate(tokens):
            node = self._nodes.get(token.start)
            if node is None or (len(node.parts) == 1 and is_no_column(node, names)):
                continue
            parts = [part.name for part in node.parts]
            named, is_qualified = self.scope.resolve(parts, self._text, token.start, what)
            last = tokens[position + 2] if is_qualified else token
            found.append(Mention(named, token.start, last.end + 1, slice_of(self._text, [last])))
        return found

    def inputs(self, tokens: Sequence[Token], what: str) -> list[str]:
        """Return the inputs that a part of the text reads; see ``Names``."""
        tree = parse_condition(slice_of(self._text, tokens))
        self.check_no_star(tree, tokens[0].start, what)
        return list(dict.fromkeys(each.named.input for each in self.mentions(tokens, what)))

    def check_no_star(self, tree: Expr, start: int, what: str) -> None:
        """Refuse hash(*), which would read every input.

        Raises:
            NotSupportedError: there is a star.
        """
        if tree.find(exp.Star) is not None:
            message = f"{what}: a star (name the columns) is not supported yet"
            refuse(message, self._text, start, NotSupportedError)

    def unqualified(self, tokens: Sequence[Token], what: str) -> str:
        """Return a part of the text without the inputs before its columns."""
        return self._rewritten(tokens, self.mentions(tokens, what), _bare_name)

    def canonical(self, tokens: Sequence[Token], what: str) -> str:
        """Return an expression over one input with its columns named as in the schema."""
        mentions = self.mentions(tokens, what)
        return self._rewritten(tokens, mentions, lambda each: identifier(each.named.column))

    def qualified(self, tokens: Sequence[Token], what: str) -> str:
        """Return a part of the text with every column qualified by its input."""
        return self._rewritten(tokens, self.mentions(tokens, what), lambda each: each.named.text)

    def own_reads(self, call: Call) -> tuple[Sequence[str], list[str]]:
        """Return what a function reads that is called without arguments, and of which inputs."""
        reads: list[str] = []
        inputs: list[str] = []
        what, start = call.function.name, call.name.start
        for text in call.function.reads:
            if self.scope.has(text):  # a column by its name, which need not be SQL
                named, _ = self.scope.resolve([text], self._text, start, what)
                reads.append(text)
                inputs.append(named.input)
                continue
            own = ScopedNames(text, parse_condition(text, f"what {what} reads"), self.scope)
            tokens = tokens_of(text)
            reads.append(own.unqualified(tokens, what))
            inputs += own.inputs(tokens, what)
        return reads, list(dict.fromkeys(inputs))

    def _rewritten(
        self, tokens: Sequence[Token], mentions: Iterable[Mention], write: Callable[[Mention], str]
    ) -> str:
        """Return a part of the text with other names for its columns."""
        pieces, position = [], tokens[0].start
        for mention in mentions:
            pieces += [self._text[position : mention.start], write(mention)]
            position = mention.end
        return "".join([*pieces, self._text[position : tokens[-1].end + 1]])


def _bare_name(mention: Mention) -> str:
    """Return the column as it is written, without its input, in backticks where it needs them."""
    is_quoted = mention.written.startswith("`")
    same = mention.start + len(mention.written) == mention.end  # it had no input before it
    safe = is_quoted or same or identifier(mention.written) == mention.written
    return mention.written if safe else quoted(mention.written)
