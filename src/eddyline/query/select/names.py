"""The columns that parts of a query name, what names mean, and parts with other names for them.

Names are resolved as Spark does: in any case.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NoReturn

from sqlglot import TokenType, exp

from eddyline.errors import NotSupportedError, QueryError
from eddyline.query.select.statement import Fragment
from eddyline.registry import unknown
from eddyline.sql.names import is_no_column, matching, refuse_column
from eddyline.sql.parsing import offset_of, parse_condition, quoted, refuse, tokens_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlglot import Expr

    from eddyline.query.predicates import FunctionPredicate

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

    def joined(self, name: str, columns: Mapping[str, str], using: Sequence[Named]) -> Scope:
        """Return the scope with one more input.

        Each name of USING stands for the column of the inputs so far from here on, and no more for
        that of the new one; ``using`` has both.
        """
        new = tuple(Named(name, column) for column in columns)
        kept = [each for each in using if each.input != name]
        output = (*kept, *(each for each in (*self.output, *new) if each not in using))
        return replace(self, inputs={**self.inputs, name: columns}, output=output)

    def preferring(self, name: str) -> Scope:
        """Return the scope in which a bare name is that of an input's column, if it has one."""
        own = [Named(name, column) for column in self.inputs[name]]
        hidden = {each.column.lower() for each in own}
        others = [each for each in self.output if each.column.lower() not in hidden]
        return replace(self, output=(*own, *others))

    def has(self, name: str) -> bool:
        """Return whether a column has the name, in whatever case."""
        return any(each.column.lower() == name.lower() for each in self.output)

    def resolve(
        self, parts: Sequence[str], text: str, offset: int, what: str
    ) -> tuple[Named, bool]:
        """Return the column that a name means, and whether its input stands before it.

        A name is split at its points: ``k``, ``s.k``, ``s.k.field``, ``k.field``.
        """
        found, is_qualified = matching(parts, self._inside, self._named)
        if not found and not is_qualified and len(parts) > 1:
            self._refuse_input(parts, text, offset, what)
        if len(found) != 1:
            name = self.input_of(parts[0]) if is_qualified else None
            known = [(each.column, each.text) for each in self.output]
            if name is not None:
                known = [(each, each) for each in self.inputs[name]]
            shown = [each.text for each in found]
            refuse_column(parts[is_qualified], shown, known, text, offset, what, name or "")
        return found[0], is_qualified

    def _named(self, name: str) -> Sequence[Named]:
        return _matches(self.output, name)

    def _inside(self, qualifier: str, name: str) -> Sequence[Named] | None:
        found = self.input_of(qualifier)
        if found is None:
            return None
        return _matches([Named(found, column) for column in self.inputs[found]], name)

    def input_of(self, name: str) -> str | None:
        """Return the input of that name, in whatever case."""
        return next((each for each in self.inputs if each.lower() == name.lower()), None)

    def _refuse_input(self, parts: Sequence[str], text: str, offset: int, what: str) -> NoReturn:
        hint = self.hints.get(parts[0].lower(), "")
        message = f"{what}: {unknown('input', parts[0], self.inputs)}"
        refuse(f"{message}; {hint}" if hint else message, text, offset, name=parts[0])


def _matches(columns: Sequence[Named], name: str) -> list[Named]:
    """Return the columns of the name; of one input's, that in the same case if there is one."""
    found = [each for each in columns if each.column.lower() == name.lower()]
    exact = [each for each in found if each.column == name]
    return exact if exact and len({each.input for each in found}) == 1 else found


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
            at = offset_of(first)
            is_outside = not any(call.start < at < call.end for call, _ in calls)
            if rest and is_outside and first.name.lower() in self._qualifiers:
                end = rest[0].meta.get("start", part.query.find("*", at))
                changes.append((at, end, ""))
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


class JoinNames(Names):
    """The names of a query over several inputs, resolved in those that were read so far."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.scope = Scope({}, ())

    def add(
        self, name: str, columns: Mapping[str, str], using: Sequence[Expr]
    ) -> list[tuple[Named, Named]]:
        """Let the columns of one more input be read; return the pairs that USING makes equal."""
        own = Scope({}, ()).joined(name, columns, ())
        pairs: list[tuple[Named, Named]] = []
        for node in using:
            parts, start = [node.name], offset_of(node)
            left, _ = self.scope.resolve(parts, self._text, start, "USING")
            right, _ = own.resolve(parts, self._text, start, "USING")
            pairs.append((left, right))
        self.scope = self.scope.joined(name, columns, [each for pair in pairs for each in pair])
        return pairs

    def mentions(self, part: Fragment, what: str) -> list[Mention]:
        """Return the places in a part that name a column; see ``Names``."""
        names = {each.column.lower() for each in self.scope.output}
        found: list[Mention] = []
        for node in part.columns:
            if len(node.parts) == 1 and is_no_column(node, names):
                continue
            parts, start = [each.name for each in node.parts], offset_of(node)
            named, is_qualified = self.scope.resolve(parts, part.query, start, what)
            place = node.parts[is_qualified].meta
            written = part.query[place["start"] : place["end"] + 1]
            found.append(Mention(named, start, place["end"] + 1, written))
        return found

    def inputs(self, part: Fragment, what: str) -> list[str]:
        """Return the inputs that a part reads."""
        self.check_no_star(part, what)
        return list(dict.fromkeys(each.named.input for each in self.mentions(part, what)))

    def check_no_star(self, part: Fragment, what: str) -> None:
        """Refuse hash(*), which would read every input."""
        if part.tree.find(exp.Star) is not None:
            message = f"{what}: a star (name the columns) is not supported yet"
            refuse(message, part.query, part.start, NotSupportedError)

    def unqualified(self, part: Fragment, what: str = "") -> str:
        """Return a part's text without the inputs before its columns."""
        return self._rewritten(part, what, _bare_name)

    def canonical(self, part: Fragment, what: str) -> str:
        """Return the text of a part over one input, with columns named as in the schema."""
        return self._rewritten(part, what, lambda each: identifier(each.named.column))

    def qualified(self, part: Fragment, what: str) -> str:
        """Return a part's text with every column qualified by its input."""
        return self._rewritten(part, what, lambda each: each.named.text)

    def own_reads(self, function: FunctionPredicate, start: int) -> tuple[Sequence[str], list[str]]:
        """Return the columns of the function, without inputs before them, and these inputs."""
        reads: list[str] = []
        inputs: list[str] = []
        what = function.name
        for text in function.reads:
            if self.scope.has(text):  # a column by its name, which need not be SQL
                named, _ = self.scope.resolve([text], self._text, start, what)
                reads.append(text)
                inputs.append(named.input)
                continue
            part = Fragment(text, parse_condition(text, f"what {what} reads"), 0, len(text))
            reads.append(self.unqualified(part, what))
            inputs += self.inputs(part, what)
        return reads, list(dict.fromkeys(inputs))

    def _rewritten(self, part: Fragment, what: str, write: Callable[[Mention], str]) -> str:
        """Return a part's text with other names for its columns."""
        mentions = self.mentions(part, what)
        return part.rewritten((each.start, each.end, write(each)) for each in mentions)


def _bare_name(mention: Mention) -> str:
    """Return the column as it is written, without its input, in backticks where it needs them."""
    is_quoted = mention.written.startswith("`")
    same = mention.start + len(mention.written) == mention.end  # it had no input before it
    safe = is_quoted or same or identifier(mention.written) == mention.written
    return mention.written if safe else quoted(mention.written)
