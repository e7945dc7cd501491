"""The columns that a part of a join may read, and which of them a name means.

Names are resolved as Spark does: in any case.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NoReturn

from sqlglot import TokenType, exp

from eddyline.errors import QueryError
from eddyline.registry import unknown
from eddyline.sql.parsing import parse_condition, quoted, refuse, tokens_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlglot import Expr

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
    """What ``*`` stands for, and names without an input are looked for in."""
    hints: Mapping[str, str] = field(default_factory=dict)
    """What to say of a name in lower case that is no input."""

    def joined(self, name: str, columns: Mapping[str, str], using: Sequence[Named]) -> Scope:
        """Return the scope with one more input.

        Each name of USING stands for the column of the inputs so far from here on, and no more for
        that of the new one; ``using`` has both.
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

        A name is split at its points: ``k``, ``s.k``, ``s.k.field``, ``k.field``.

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
