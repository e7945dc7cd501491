"""The columns that parts of a query name, and these parts with other names for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from eddyline.errors import NotSupportedError
from eddyline.query.select.scope import Scope, identifier
from eddyline.query.select.statement import Part
from eddyline.sql.names import is_no_column
from eddyline.sql.parsing import offset_of, parse_condition, quoted, refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eddyline.query.select.calls import Call
    from eddyline.query.select.from_clause import FromItem
    from eddyline.query.select.scope import Named


class Names:
    """The names of a query over one input, which its columns are looked for in once it is bound."""

    def __init__(self, item: FromItem) -> None:
        self._input = item.name
        self._qualifiers = {item.name.lower(), item.stream.lower()}

    def inputs(self, part: Part, what: str) -> list[str]:  # noqa: ARG002
        """Return the inputs that a part reads.

        Raises:
            QueryError: a column that is unknown or ambiguous.
            NotSupportedError: a star, which would read every input.
        """
        return [self._input]

    def unqualified(self, part: Part, what: str = "") -> str:  # noqa: ARG002
        """Return a part's text without the inputs before its columns."""
        changes = []
        for node in sorted(part.tree.find_all(exp.Column), key=offset_of):
            first, *rest = node.parts
            if rest and first.name.lower() in self._qualifiers:
                end = rest[0].meta.get("start", part.query.find("*", offset_of(first)))
                changes.append((offset_of(first), end, ""))
        return part.rewritten(changes)

    def own_reads(self, call: Call) -> tuple[Sequence[str], list[str]]:
        """Return what a function reads that is called without arguments, and of which inputs."""
        return call.function.reads, [self._input]


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
        both = [each for pair in using for each in pair]
        self.scope = self.scope.joined(item.name, columns, both)
        return using

    def mentions(self, part: Part, what: str) -> list[Mention]:
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

    def inputs(self, part: Part, what: str) -> list[str]:
        """Return the inputs that a part reads."""
        self.check_no_star(part, what)
        return list(dict.fromkeys(each.named.input for each in self.mentions(part, what)))

    def check_no_star(self, part: Part, what: str) -> None:
        """Refuse hash(*), which would read every input.

        Raises:
            NotSupportedError: there is a star.
        """
        if part.tree.find(exp.Star) is not None:
            message = f"{what}: a star (name the columns) is not supported yet"
            refuse(message, part.query, part.start, NotSupportedError)

    def unqualified(self, part: Part, what: str = "") -> str:
        """Return a part's text without the inputs before its columns."""
        return self._rewritten(part, what, _bare_name)

    def canonical(self, part: Part, what: str) -> str:
        """Return the text of a part over one input, with columns named as in the schema."""
        return self._rewritten(part, what, lambda each: identifier(each.named.column))

    def qualified(self, part: Part, what: str) -> str:
        """Return a part's text with every column qualified by its input."""
        return self._rewritten(part, what, lambda each: each.named.text)

    def own_reads(self, call: Call) -> tuple[Sequence[str], list[str]]:
        """Return the columns of the function, without inputs before them, and these inputs."""
        reads: list[str] = []
        inputs: list[str] = []
        what = call.function.name
        for text in call.function.reads:
            if self.scope.has(text):  # a column by its name, which need not be SQL
                named, _ = self.scope.resolve([text], self._text, call.start, what)
                reads.append(text)
                inputs.append(named.input)
                continue
            part = Part(text, parse_condition(text, f"what {what} reads"), 0, len(text))
            reads.append(self.unqualified(part, what))
            inputs += self.inputs(part, what)
        return reads, list(dict.fromkeys(inputs))

    def _rewritten(self, part: Part, what: str, write: Callable[[Mention], str]) -> str:
        """Return a part's text with other names for its columns."""
        mentions = self.mentions(part, what)
        return part.rewritten((each.start, each.end, write(each)) for each in mentions)


def _bare_name(mention: Mention) -> str:
    """Return the column as it is written, without its input, in backticks where it needs them."""
    is_quoted = mention.written.startswith("`")
    same = mention.start + len(mention.written) == mention.end  # it had no input before it
    safe = is_quoted or same or identifier(mention.written) == mention.written
    return mention.written if safe else quoted(mention.written)
