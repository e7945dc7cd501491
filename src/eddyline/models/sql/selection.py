"""The output columns of a SELECT of models: which keys, attributes and times, under which names."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Literal

from sqlglot import exp

from eddyline.models import earth
from eddyline.models.condition_text import arithmetic_of
from eddyline.models.rows import COEF, ERR, FLAGS, TIMES
from eddyline.models.sql.near import distance_axes
from eddyline.models.sql.scope import Distance
from eddyline.models.steps import SINCE, TIME, UNTIL
from eddyline.query.select.statement import identifier, is_star, unaliased
from eddyline.sql.parsing import quoted, refuse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eddyline.models.earth import Output
    from eddyline.models.sql.scope import Mention, Scope, Side
    from eddyline.query.select.statement import Fragment, Statement

Kind = Literal["samples", "changes", "segments"]
OF_TIME: dict[Kind, tuple[str, ...]] = {
    "samples": (TIME,),
    "changes": (SINCE, UNTIL),
    "segments": (*TIMES, *FLAGS),
}
"""The columns of time of each kind of results."""


@dataclass(frozen=True, slots=True)
class Item:
    """An output column."""

    kind: Literal["key", "attribute", "distance", "time"]
    name: str
    text: str
    """A key's column, a time's column, or an expression over the attributes of the segments."""
    start: int
    distance: Distance | None = None
    is_length: bool = False
    """Whether it is a speed or a distance; only results that are rows have these."""


class Selection:
    """Reads the output columns of a SELECT.

    Args:
        statement: the SELECT.
        scope: what its names mean.
        names: of the two sides, if its segments are of pairs.
        times: columns of time that may be named, if it is the outermost SELECT.
    """

    def __init__(
        self,
        statement: Statement,
        scope: Scope,
        names: tuple[str, str] | None,
        times: Sequence[str] = (),
    ) -> None:
        self.statement, self.scope = statement, scope
        self._names, self._times = names, times
        self.text = statement.text

    def items(self) -> list[Item]:
        """Return the output columns in their order.

        Raises:
            QueryError: a column that is not there, without a name, or of a name that another has.
            NotSupportedError: one that is neither a key nor a polynomial.
        """
        found: list[Item] = []
        for column in self.statement.output_columns:
            found += self._of_star(column) if is_star(column.tree) else self._items(column)
        return checked(found, self.text)

    def _of_star(self, column: Fragment) -> Iterator[Item]:
        start, scope = column.start, self.scope
        qualifier = column.tree.args.get("table")
        named: Scope | Side | None = scope
        if qualifier is not None:
            named = next((each for each in scope.sides if qualifier.name.lower() in
                          (each.name.lower(), each.stream.lower())), None)  # fmt: skip
        if named is None:
            refuse(f"output column {column.text!r}: there is no such input", self.text, start)
        for name, key in named.keys.items():
            yield Item("key", name, key, start)
        for name, actual in named.attributes.items():
            is_length = actual in scope.lengths
            yield Item("attribute", name, quoted(actual), start, is_length=is_length)
        for name, each in named.distances.items():
            yield Item("distance", name, each.text, start, each)

    def _items(self, column: Fragment) -> list[Item]:
        alias, part = unaliased(column, self.statement)
        what, inner = f"output column {column.text!r}", part.tree.unnest()
        if not isinstance(inner, exp.Column):
            return [self._of_expression(alias, part, what)]
        mention = self._mentioned(inner, what)
        if mention is not None and mention.kind == "position":
            return [*self._of_position(mention, alias, part, what)]
        return [self._of_name(inner, mention, alias, part, what)]

    def _mentioned(self, node: exp.Column, what: str) -> Mention | None:
        """Return the meaning of a name; None for the name of a time."""
        is_time = node.name.lower() in self._times and len(node.parts) == 1
        if is_time and all(each.meaning(node.name) is None for each in self.scope.sides):
            return None
        return self.scope.meaning(node, what)

    def _of_position(
        self, mention: Mention, alias: str, part: Fragment, what: str
    ) -> Iterator[Item]:
        """Yield the coordinates of a position; results that are rows have degrees instead."""
        name = alias or (mention.column if len(self.scope.sides) > 1 else mention.node.name)
        if not earth.is_position(name):
            message = f"{what}: the name of a position ends in track, such as {alias}_track"
            refuse(message, self.text, part.start, name=alias)
        both = zip(earth.coordinates(name), earth.coordinates(mention.column), strict=True)
        for outside, inside in both:
            yield Item("attribute", outside, quoted(inside), part.start)

    def _of_name(
        self, node: exp.Column, mention: Mention | None, alias: str, part: Fragment, what: str
    ) -> Item:
        if mention is None:
            name = node.name.lower()
            return Item("time", alias or name, name, part.start)
        name = alias or node.name
        if mention.kind == "key":
            return Item("key", name, mention.column, part.start)
        if mention.kind == "distance":
            of = mention.side.distances[mention.column]
            return Item("distance", name, of.text, part.start, of)
        if mention.kind == "attribute":
            is_length = mention.column in self.scope.lengths
            text = quoted(mention.column)
            return Item("attribute", name, text, part.start, is_length=is_length)
        message = (
            f"{what}: {node.name!r} is not modelled; give it an equation or a bound, or make it a "
            f"key: BY {node.name}"
        )
        return self.scope.refuse(message, part.start)

    def _of_expression(self, alias: str, part: Fragment, what: str) -> Item:
        scope = self.scope
        mentions = scope.mentions(part.tree, what)
        for each in mentions:
            if each.kind in {"key", "other"}:
                message = f"{what}: {each.node.name!r} is not modelled, so that it is no part of"
                scope.refuse(f"{message} an expression here; select it alone", each.start)
        if not alias:
            refuse(f"{what} needs a name: {part.text} AS …", self.text, part.start)
        text = scope.rewritten(part, mentions)
        is_length = scope.is_length(part, mentions)
        distance = None if is_length and self._times else self.distance(part)
        if distance is not None:
            return Item("distance", alias, distance.text, part.start, distance)
        if not is_length:
            scope.expression(part, mentions)
        return Item("attribute", alias, text, part.start, is_length=is_length)

    def distance(self, part: Fragment) -> Distance | None:
        """Return the distance that a part is, if it is one of the two sides of pairs."""
        if self._names is None:
            return None
        mentions = self.scope.mentions(part.tree, "the distance")
        tree = self.scope.over_segments(part.tree, mentions)
        read = self.scope.names_of(mentions)
        axes = distance_axes(arithmetic_of(tree, self.text, read), self._names)
        if axes is None:
            return None
        return Distance(axes, self.scope.rewritten(part, mentions), tuple(read))


def checked(items: list[Item], text: str) -> list[Item]:
    """Return output columns of which no two have one name.

    Raises:
        QueryError: two have.
    """
    seen: set[str] = set()
    for each in items:
        if each.name.lower() in seen:
            message = f"two output columns are called {each.name!r}; give one another name with AS"
            refuse(message, text, each.start, name=each.name)
        seen.add(each.name.lower())
    return items


def projections(
    items: Sequence[Item], kind: Kind, columns: Mapping[str, str], text: str
) -> tuple[str, ...]:
    """Return output columns over the rows of results.

    Times that are not named stand before the first attribute; an attribute has its error behind it.
    Of a position rows have latitude and longitude.

    Args:
        items: the output columns.
        kind: of the results.
        columns: what attributes are called in the rows.
        text: the query.

    Raises:
        QueryError: one has the name of a time or an error that results have; case does not matter.
    """
    named = {each.text for each in items if each.kind == "time"}
    times = [each for each in OF_TIME[kind] if each not in named]
    instead = {} if kind == "segments" else earth.outputs([*columns.values()])
    texts = [[_as(*each) for each in _columns(item, kind, columns, instead)] for item in items]
    taken = {*times}
    for item in items:
        for _, name in _columns(item, kind, columns, instead):
            if name.lower() in taken:
                message = f"results have two columns {name!r}; give one another name with AS"
                refuse(message, text, item.start, name=name)
            taken.add(name.lower())
    kinds = [each.kind in {"attribute", "distance"} for each in items]
    at = kinds.index(True) if any(kinds) else len(items)
    texts.insert(at, [identifier(each) for each in times])
    return tuple(chain.from_iterable(texts))


def _columns(
    item: Item,
    kind: Kind,
    columns: Mapping[str, str],
    instead: Mapping[str, Sequence[Output]],
) -> list[tuple[str, str]]:
    """Return the columns of results that an output column is, and what they are called."""
    if item.kind not in {"attribute", "distance"}:
        return [(item.text, item.name)]
    if columns[item.name] in instead:
        own = (each.name for each in instead[columns[item.name]])
        return [(name, name) for each in own for name in (each, ERR + each)]
    column, start = columns[item.name], COEF if kind == "segments" else ""
    return [(start + column, start + item.name), (ERR + column, ERR + item.name)]


def _as(column: str, name: str) -> str:
    return identifier(name) if column == name else f"{identifier(column)} AS {identifier(name)}"
