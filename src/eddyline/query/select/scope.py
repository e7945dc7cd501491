"""Which column of which input a name in a join means, resolved as Spark does: in any case."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NoReturn

from sqlglot import TokenType, exp

from eddyline.errors import QueryError
from eddyline.registry import unknown
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
class Mention:
    """A place of the text that names a column."""

    named: Named
    start: int
    """Offset of its first character."""
    end: int
    """Offset behind the column's name, which fields may follow."""
    written: str
    """The column's name as it is written, without the input's."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The columns that a part of a query may read."""

    inputs: Mapping[str, Mapping[str, str]]
    """Name and Spark type of each column, by input, in the order in which they were written."""
    output: tuple[Named, ...]
    """What ``*`` stands for, and names without an input are looked for in."""
    hints: Mapping[str, str] = field(default_factory=dict)
    """What to say of a name in lower case that is no input."""

    def joined(self, name: str, columns: Mapping[str, str], using: Sequence[Named]) -> Scope:
        """Return the scope with one more input.

        Args:
            name: the input.
            columns: name and type of its columns.
            using: the columns of USING, those of the inputs so far and of the new one; each name
                stands for the former from here on.
        """
        new = tuple(Named(name, column) for column in columns)
        kept = [each for each in using if each.input != name]
        output = (*kept, *(each for each in (*self.output, *new) if each not in using))
        return replace(self, inputs={**self.inputs, name: columns}, output=output)

    def has(self, name: str) -> bool:
        """Return whether a column has the name, in whatever case."""
        return any(each.column.lower() == name.lower() for each in self.output)

    def resolve(
        self, parts: Sequence[str], text: str, offset: int, what: str
    ) -> tuple[Named, bool]:
        """Return the column that a name means, and whether its input stands before it.

        Args:
            parts: the name, split at its points: ``k``, ``s.k``, ``s.k.field``, ``k.field``.
            text: the whole text, for errors.
            offset: where in the text the name stands.
            what: what is read, for errors.

        Raises:
            QueryError: nothing has the name, or more than one column has it.
        """
        name = self.input_of(parts[0])
        if name is not None and len(parts) > 1:
            found = _matches([Named(name, column) for column in self.inputs[name]], parts[1])
            if found or not self.has(parts[0]):
                return self._one(found, parts[1], name, text, offset, what), True
        found = _matches(self.output, parts[0])
        if not found and len(parts) > 1:
            self._refuse_input(parts, text, offset, what)
        return self._one(found, parts[0], None, text, offset, what), False

    def input_of(self, name: str) -> str | None:
        """Return the input of that name, in whatever case."""
        return next((each for each in self.inputs if each.lower() == name.lower()), None)

    def _one(
        self,
        found: Sequence[Named],
        column: str,
        name: str | None,
        text: str,
        offset: int,
        what: str,
    ) -> Named:
        if len(found) > 1:
            choices = " or ".join(each.text for each in found)
            message = f"{what}: column {column!r} may be {choices}; write which"
            refuse(message, text, offset, name=column)
        if not found:
            known = [each.text for each in self.output] if name is None else self.inputs[name]
            of = "" if name is None else f" of {name}"
            listed = f"unknown column {column!r}{of}; known: {', '.join(known)}"
            message = f"{what}: {listed}{_close(column, known)}"
            refuse(message, text, offset, name=column, known=list(known))
        return found[0]

    def _refuse_input(self, parts: Sequence[str], text: str, offset: int, what: str) -> NoReturn:
        hint = self.hints.get(parts[0].lower(), "")
        message = f"{what}: {unknown('input', parts[0], self.inputs)}"
        refuse(f"{message}; {hint}" if hint else message, text, offset, name=parts[0])


def _matches(columns: Sequence[Named], name: str) -> list[Named]:
    """Return the columns of the name; of one input's, that in the same case if there is one."""
    found = [each for each in columns if each.column.lower() == name.lower()]
    exact = [each for each in found if each.column == name]
    return exact if exact and len({each.input for each in found}) == 1 else found


def _close(column: str, known: Iterable[str]) -> str:
    """Return a hint at the column that was meant, looked for without regard to inputs and case."""
    names = {each.rpartition(".")[2].lower(): each for each in known}
    found = difflib.get_close_matches(column.lower(), names, n=1)
    return f"; did you mean {names[found[0]]!r}?" if found else ""


class NamesIn:
    """The columns that a text names.

    Args:
        text: a query or an expression.
        tree: its tree, which knows where in the text its names stand.
    """

    def __init__(self, text: str, tree: Expr) -> None:
        self._text = text
        self._nodes = {offset_of(node): node for node in column_nodes(tree)}

    def mentions(self, tokens: Sequence[Token], scope: Scope, what: str) -> list[Mention]:
        """Return the places in a part of the text that name a column.

        Args:
            tokens: those of the part.
            scope: the columns that it may read.
            what: what the part is, for errors.

        Raises:
            QueryError: a column that is unknown or ambiguous.
        """
        names = {each.column.lower() for each in scope.output}
        found: list[Mention] = []
        for position, token in enumerate(tokens):
            node = self._nodes.get(token.start)
            if node is None or (len(node.parts) == 1 and is_no_column(node, names)):
                continue
            parts = [part.name for part in node.parts]
            named, is_qualified = scope.resolve(parts, self._text, token.start, what)
            last = tokens[position + 2] if is_qualified else token
            found.append(Mention(named, token.start, last.end + 1, slice_of(self._text, [last])))
        return found

    def rewritten(
        self, tokens: Sequence[Token], mentions: Iterable[Mention], write: Callable[[Mention], str]
    ) -> str:
        """Return a part of the text with other names for its columns."""
        pieces, position = [], tokens[0].start
        for mention in mentions:
            pieces += [self._text[position : mention.start], write(mention)]
            position = mention.end
        return "".join([*pieces, self._text[position : tokens[-1].end + 1]])


def bare_name(mention: Mention) -> str:
    """Return the column as it is written, without its input, in backticks where it needs them."""
    is_quoted = mention.written.startswith("`")
    same = mention.start + len(mention.written) == mention.end  # it had no input before it
    safe = is_quoted or same or identifier(mention.written) == mention.written
    return mention.written if safe else quoted(mention.written)


@lru_cache(maxsize=4096)
def identifier(name: str) -> str:
    """Return a name as it can stand in SQL, in backticks where it needs them.

    >>> identifier("port"), identifier("dst port"), identifier("case")
    ('port', '`dst port`', '`case`')
    """
    if not _PLAIN.fullmatch(name):
        return quoted(name)
    (token,) = tokens_of(name)
    is_name = token.token_type in _NAMES and isinstance(_tree_of(name), exp.Column)
    return name if is_name else quoted(name)


_NAMES = (TokenType.VAR, TokenType.DATE, TokenType.TIMESTAMP)


def _tree_of(name: str) -> Expr | None:
    try:
        return parse_condition(name)
    except QueryError:
        return None
