"""Recipes of model queries, and the meaning of their names.

``ModelQuery`` is the recipe: which rows become segments, and what is called on them. The calls are
those of ``el.models`` and of its segments, so a text says what a program says.

``Scope`` knows what names in a SELECT mean: keys, modelled attributes, distances, other columns.
``Selection`` has the output columns: which keys, attributes and times, under which names.

The distance of two entities is a root of a sum of squares of differences, which is no polynomial
(Pulse 3.10). Its comparison with a number is one of squares, and its average over windows has a
closed form. Either says how near two entities have to come at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from sqlglot import exp

from eddyline.errors import NotSupportedError
from eddyline.models.segments import COEF, ERR, FLAGS, TIMES
from eddyline.models.solving import earth
from eddyline.models.solving.earth import TRACK, coordinates
from eddyline.models.solving.expressions import (
    Absolute,
    Attribute,
    Expression,
    Number,
    Power,
    Product,
    Root,
    Sum,
)
from eddyline.models.solving.text import arithmetic_of, condition_of, expression_of, is_length
from eddyline.models.steps import SINCE, TIME, UNTIL
from eddyline.query.predicates import SqlPredicate
from eddyline.query.select.statement import identifier, is_star, unaliased
from eddyline.registry import unknown
from eddyline.sql.analysis import check_is_row_wise
from eddyline.sql.functions import column_nodes
from eddyline.sql.parsing import offset_of, parse_condition, quoted, refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sqlglot import Expr

    from eddyline.models.solving.earth import Output
    from eddyline.models.solving.expressions import Condition
    from eddyline.query.predicates import Predicate
    from eddyline.query.query import Window
    from eddyline.query.select.statement import Fragment, Statement


@dataclass(frozen=True)
class JoinedTable:
    """A table whose rows are joined to those of a stream or table before these are modelled."""

    table: str
    name: str
    """What the query calls it."""
    columns: tuple[tuple[str, str], ...]
    """Its columns that the query names, and the keys of entities that they become."""
    conditions: tuple[str, ...]
    """In SQL over columns of both, each with the name of its input."""
    start: int = field(default=0, compare=False)
    """Its offset."""


@dataclass(frozen=True)
class Made:
    """Segments of the rows of a stream or table."""

    stream: str
    keys: tuple[str, ...]
    time: str
    equations: tuple[tuple[str, str], ...] = ()
    """Of declared attributes, by name."""
    near: tuple[tuple[str, str], ...] = ()
    """How near attributes are solved that are declared by their rates, by name."""
    bounds: tuple[tuple[str, str], ...] = ()
    """Of fitted attributes, by name; "" if they are as near as results need."""
    track: tuple[str, ...] = ()
    """Columns of latitude and longitude; ``track`` has their bound."""
    read: tuple[str, ...] = ()
    """The attributes of rows that are segments already."""
    rows: str = ""
    """The table of the rows that these stand for, if it is said; ``time`` is its column then."""
    horizon_us: int | None = None
    max_gap_us: int | None = None
    options: tuple[tuple[str, Any], ...] = ()
    """Of ``el.models.fit``."""
    predicates: tuple[Predicate, ...] = ()
    """What rows have to fulfil before they become segments."""
    tables: tuple[JoinedTable, ...] = ()
    """What is joined to the rows."""
    name: str = field(default="", compare=False)
    """What the query calls the stream."""
    start: int = field(default=0, compare=False)
    """The offset of MODEL."""
    places: Mapping[str, int] = field(default_factory=dict, compare=False)
    """Offsets of its attributes."""

    @property
    def attributes(self) -> tuple[str, ...]:
        """The modelled attributes."""
        names = [name for name, _ in (*self.equations, *self.bounds)]
        if self.track:
            place = names.index(TRACK)
            names[place : place + 1] = coordinates(TRACK)
        return (*names, *self.read)


@dataclass(frozen=True)
class Call:
    """A method of segments that is called."""

    of: Node
    method: str
    arguments: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    start: int = field(default=0, compare=False)
    """The offset of what asks for it."""

    def having(self, **named: Any) -> Call:
        """Return the call with other arguments by name."""
        return replace(self, named={**self.named, **named})


Node = Made | Call


@dataclass(frozen=True)
class ModelQuery:
    """A query of models."""

    node: Node
    """Its last call gives rows, or segments, which are rows then."""
    projections: tuple[str, ...]
    """The output columns over these."""
    having: tuple[str, ...] = ()
    """Conditions on the rows, in SQL over their columns."""
    early_at: int | None = None
    """The offset of EARLY, if results are given before they are final."""


def made_in(node: Node) -> Iterator[Made]:
    """Yield what segments are made of, in the order of the text; equal ones again."""
    if isinstance(node, Made):
        yield node
    else:
        for part in (node.of, *node.arguments, *node.named.values()):
            if isinstance(part, Made | Call):
                yield from made_in(part)


def keys_of(node: Node) -> tuple[str, ...]:
    """Return the columns that say the entity of segments."""
    if isinstance(node, Made):
        return node.keys
    keys, named = keys_of(node.of), node.named
    if node.method == "pairs":
        one, two = named["names"]
        others = keys if named["other"] is None else keys_of(named["other"])
        return (*(f"{one}_{key}" for key in keys), *(f"{two}_{key}" for key in others))
    return tuple(named["by"]) if "by" in named else keys


def nearer(node: Node, within: Mapping[str, float], *, whole: bool = False) -> Node:
    """Return segments of pairs of which those are enough that come as near as ``within``.

    Args:
        node: segments of pairs, perhaps with conditions or other attributes.
        within: for attributes of both sides by how much they differ at most.
        whole: whether such pairs are wanted for all the time that they share.
    """
    assert isinstance(node, Call)
    if node.method != "pairs":
        return replace(node, of=nearer(node.of, within, whole=whole))
    bounds = node.named.get("within", {})
    most = {name: min(bound, bounds.get(name, bound)) for name, bound in within.items()}
    return node.having(within={**bounds, **most}, whole=whole or node.named.get("whole", False))


def of_rows(node: Node, predicate: Predicate) -> Node:
    """Return segments of the rows that fulfil a predicate, too."""
    assert isinstance(node, Made)
    if predicate in node.predicates:
        return node
    return replace(node, predicates=(*node.predicates, predicate))


def with_key(node: Node, key: str) -> Node:
    """Return the segments of the entities of which a key is not NULL."""

    def text(names: Mapping[str, str]) -> str:
        return f"{quoted(names[key])} IS NOT NULL"

    keys = {key: key}
    return of_entities(node, keys, text) or Call(node, "where", (text(keys),))


def of_entities(
    node: Node, keys: Mapping[str, str], text: Callable[[Mapping[str, str]], str]
) -> Node | None:
    """Return the same of the entities on whose keys a condition is true; rows are left out first.

    Args:
        node: segments.
        keys: the columns of the condition, and what these are called at the node.
        text: returns the condition as SQL over columns of other names.

    Returns:
        None if the keys are of both sides of pairs, which are asked once both are known.
    """
    if isinstance(node, Made):
        return of_rows(node, SqlPredicate(text(keys)))
    if node.method == "join":
        left, right = (of_entities(part, keys, text) for part in (node.of, node.arguments[0]))
        if left is None or right is None:
            return None
        return replace(node, of=left, arguments=(right, *node.arguments[1:]))
    if node.method != "pairs":
        inner = of_entities(node.of, keys, text)
        return None if inner is None else replace(node, of=inner)
    for place, name in enumerate(node.named["names"]):
        side = (place and node.named["other"]) or node.of
        of_side = {f"{name}_{key}": key for key in keys_of(side)}
        if of_side.keys() >= {*keys.values()}:
            return _of_side(
                node, place, {column: of_side[key] for column, key in keys.items()}, text
            )
    return None


def _of_side(
    node: Call, place: int, keys: Mapping[str, str], text: Callable[[Mapping[str, str]], str]
) -> Node | None:
    other = node.named.get("other")
    if other is None:  # both sides are one: of pairs in one order only, either may be the left
        return None
    inner = of_entities(other if place else node.of, keys, text)
    if inner is None:
        return None
    return node.having(other=inner) if place else replace(node, of=inner)


# -- names ----------------------------------------------------------------------------------------


NameKind = Literal["key", "attribute", "position", "distance", "other"]


@dataclass(frozen=True, slots=True)
class Distance:
    """The distance of the two sides of pairs, which is no polynomial."""

    axes: tuple[str, ...]
    """Attributes of both sides."""
    text: str
    """As an expression over the attributes of the pairs."""
    attributes: tuple[str, ...]
    """Those that it reads."""


@dataclass(frozen=True, slots=True)
class Side:
    """A source of a SELECT: by the names that it gives columns, what these are in its segments."""

    name: str
    start: int
    """The offset of the source."""
    keys: Mapping[str, str]
    attributes: Mapping[str, str]
    distances: Mapping[str, Distance] = field(default_factory=dict)
    lengths: frozenset[str] = frozenset()
    """Attributes that are speeds or distances of positions, so no polynomials."""
    others: tuple[str, ...] = ()
    """Columns of the rows that are not modelled."""
    stream: str = ""
    """What it may be called, too."""
    window: Window | None = None
    window_at: int = 0
    """The offset of the window."""
    is_table: bool = False
    """Whether it is a table without a model, whose columns are keys."""

    @property
    def known(self) -> list[str]:
        """All names."""
        return [*self.keys, *self.attributes, *self.distances, *self.others]

    def meaning(self, name: str) -> tuple[NameKind, str] | None:
        """Return what a name is, and what it is called in the segments."""
        kinds: list[tuple[NameKind, Mapping[str, str]]] = [
            ("attribute", self.attributes),
            ("key", self.keys),
            ("distance", {distance: distance for distance in self.distances}),
            ("other", {other: other for other in self.others}),
        ]
        for kind, names in kinds:
            for candidate, actual in names.items():
                if candidate.lower() == name.lower():
                    return kind, actual if kind != "distance" else candidate
        place = earth.position_of(name, self.attributes)
        return None if place is None else ("position", self.attributes[place[0]][: -len("_x")])


@dataclass(frozen=True, slots=True)
class Mention:
    """A name in the text and what it means."""

    node: exp.Column
    side: Side
    kind: NameKind
    column: str
    """Its name: for a distance in the side, for a position its own, otherwise in the segments."""
    start: int
    end: int

    @property
    def text(self) -> str:
        """SQL over the segments that says the same."""
        if self.kind == "distance":
            return f"({self.side.distances[self.column].text})"
        return quoted(self.column)


@dataclass(frozen=True, slots=True)
class Scope:
    """The sources of a SELECT as one set of segments."""

    text: str
    """The whole query."""
    sides: tuple[Side, ...]
    node: Node
    slides: tuple[int, ...] = ()
    """Of windows so far, how far apart results are wanted (µs)."""
    pair: tuple[str, str] | None = None
    """The names of both sides, if the segments are of pairs."""

    @property
    def keys(self) -> dict[str, str]:
        """The keys by their names; of sides of the same entities, of the first."""
        keys: dict[str, str] = {}
        for side in self.sides:
            for name, actual in side.keys.items():
                if actual not in keys.values():
                    keys[name if name not in keys else actual] = actual
        return keys

    @property
    def attributes(self) -> dict[str, str]:
        """What the attributes are called outside, and in the segments."""
        if len(self.sides) == 1:
            return dict(self.sides[0].attributes)
        return {
            attribute: attribute for side in self.sides for attribute in side.attributes.values()
        }

    @property
    def lengths(self) -> frozenset[str]:
        """The attributes of segments that are lengths."""
        every = (side.attributes[name] for side in self.sides for name in side.lengths)
        return frozenset(every)

    @property
    def distances(self) -> dict[str, Distance]:
        """The distances by name."""
        return {name: distance for side in self.sides for name, distance in side.distances.items()}

    def on(self, node: Node) -> Scope:
        """Return the scope of other segments with the same columns."""
        return replace(self, node=node)

    def mentions(self, tree: Expr, what: str) -> list[Mention]:
        """Return the names in a part of the query, in the order of the text.

        Raises:
            QueryError: there is no such column, or it may be one of several.
        """
        mentions = [self.meaning(node, what) for node in column_nodes(tree)]
        return sorted(mentions, key=lambda mention: mention.start)

    def meaning(self, node: exp.Column, what: str) -> Mention:
        """Return what a name means; errors as of ``mentions``."""
        parts = [part.name for part in node.parts]
        start = offset_of(node)
        sides, rest = self._of_qualifier(parts)
        name = rest[0]
        meanings = [
            (side, meaning) for side in sides if (meaning := side.meaning(name)) is not None
        ]
        places = {place for _, place in meanings}
        if not meanings:
            columns = [f"{side.name}.{known_name}" for side in sides for known_name in side.known]
            refuse(f"{what}: {unknown('column', '.'.join(parts), columns)}", self.text, start)
        # Whose key it is does not matter to sides of the same entities; a join refuses the others.
        if len(places) > 1 or (len(meanings) > 1 and meanings[0][1][0] != "key"):
            names = " or ".join(f"{side.name}.{name}" for side, _ in meanings)
            refuse(f"{what}: {name} may be {names}: say which", self.text, start)
        side, (kind, column) = meanings[0]
        if len(rest) > 1 and kind != "other":
            refuse(f"{what}: {name!r} has no fields", self.text, start)
        end = node.parts[len(parts) - len(rest)].meta["end"] + 1  # fields stand behind it
        return Mention(node, side, kind, column, start, end)

    def _of_qualifier(self, parts: list[str]) -> tuple[Sequence[Side], list[str]]:
        if len(parts) > 1:
            first = parts[0].lower()
            for named in ("name", "stream"):
                sides = [side for side in self.sides if getattr(side, named).lower() == first]
                if len(sides) == 1:
                    return sides, parts[1:]
        return self.sides, parts

    def rewritten(self, part: Fragment, mentions: Sequence[Mention]) -> str:
        """Return a part as SQL over the columns of the segments."""
        return part.rewritten((mention.start, mention.end, mention.text) for mention in mentions)

    def condition(self, part: Fragment, mentions: Sequence[Mention]) -> Condition:
        """Return a condition on attributes.

        Raises:
            QueryError: it cannot be read; the message shows where.
            NotSupportedError: no comparison of polynomials says the same.
        """
        return condition_of(*self.over_segments(part.tree, mentions))

    def near(self, part: Fragment, mentions: Sequence[Mention]) -> Scope:
        """Return the scope of pairs of which a condition says how near they come, if it does."""
        within = self.nearness(part, mentions)
        return self if within is None else self.on(nearer(self.node, within))

    def nearness(self, part: Fragment, mentions: Sequence[Mention]) -> dict[str, float] | None:
        """Return by how much attributes of both sides differ where a condition holds.

        None if it is no distance, or sum of squares, below a number.
        """
        tree, text, names = self.over_segments(part.tree, mentions)
        if self.pair is None or not isinstance(tree, exp.LT | exp.LTE | exp.GT | exp.GTE):
            return None
        left, right = (arithmetic_of(side, text, names) for side in (tree.left, tree.right))
        if isinstance(tree, exp.GT | exp.GTE):
            left, right = right, left
        most = constant(right)
        if most is None or most < 0:
            return None
        axes = distance_axes(left, self.pair)
        if axes is not None:
            return dict.fromkeys(axes, most * (1 + SLACK))
        axes = _axes(left, self.pair)
        return None if axes is None else dict.fromkeys(axes, math.sqrt(most) * (1 + SLACK))

    def expression(self, part: Fragment, mentions: Sequence[Mention]) -> Expression:
        """Return arithmetic over attributes; errors as of ``condition``."""
        return expression_of(*self.over_segments(part.tree, mentions))

    def is_length(self, part: Fragment, mentions: Sequence[Mention]) -> bool:
        """Return whether a part is a speed or a distance of positions; errors as above."""
        over = self.over_segments(part.tree, mentions)
        is_so = is_length(*over)
        if is_so:
            arithmetic_of(*over)
        return is_so

    @staticmethod
    def names_of(mentions: Sequence[Mention]) -> list[str]:
        """Return the attributes behind names; positions and distances have several."""
        names = [mention.column for mention in mentions if mention.kind in {"attribute", "key"}]
        places = (mention.column for mention in mentions if mention.kind == "position")
        names += [name for place in places for name in earth.coordinates(place)]
        far = [
            mention.side.distances[mention.column]
            for mention in mentions
            if mention.kind == "distance"
        ]
        return [*names, *(name for distance in far for name in distance.attributes)]

    def over_segments(self, tree: Expr, mentions: Sequence[Mention]) -> tuple[Expr, str, list[str]]:
        """Return a tree whose names are those of the segments, at the places of the text.

        Also the text and these names, which readers of expressions take beside it.
        """
        by_node = {id(mention.node): mention for mention in mentions}

        def named(node: Expr) -> Expr:
            mention = by_node.get(node.meta.get("mention", 0))
            if mention is None:
                return node
            if mention.kind == "distance":
                return _distance_tree(mention)
            return _column(mention.column, mention.start)

        for marked in mentions:
            marked.node.meta["mention"] = id(marked.node)
        return tree.copy().transform(named), self.text, self.names_of(mentions)

    def refuse(self, message: str, start: int) -> NoReturn:
        """Raise that something is not supported."""
        refuse(message, self.text, start, NotSupportedError)


def of_keys(node: Node, part: Fragment, mentions: Sequence[Mention], what: str) -> Node:
    """Return the segments of the entities on whose keys a condition is true.

    Args:
        node: segments; of rows, the condition may be on any of their columns.
        part: the condition.
        mentions: the names in it.
        what: the clause that it is of.

    Raises:
        NotSupportedError: it needs more than one row; the message shows where.
    """
    check_is_row_wise(part.tree, part.query, what)

    def text(names: Mapping[str, str]) -> str:
        return part.rewritten(
            (mention.start, mention.end, quoted(names[mention.column])) for mention in mentions
        )

    keys = {mention.column: mention.column for mention in mentions}
    return of_entities(node, keys, text) or Call(node, "where", (text(keys),), start=part.start)


def _column(name: str, start: int) -> exp.Column:
    column = exp.column(exp.to_identifier(name, quoted=True))
    column.this.meta["start"] = start
    return column


def _distance_tree(mention: Mention) -> Expr:
    tree = parse_condition(mention.side.distances[mention.column].text).copy()
    for part in tree.find_all(exp.Identifier):
        part.meta["start"] = mention.start
    return tree


# -- output columns -------------------------------------------------------------------------------


ResultKind = Literal["samples", "changes", "segments"]
OF_TIME: dict[ResultKind, tuple[str, ...]] = {
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
        times: columns of time that may be named, if it is the outermost SELECT.
    """

    def __init__(self, statement: Statement, scope: Scope, times: Sequence[str]) -> None:
        self.statement, self.scope, self._times = statement, scope, times
        self.text = statement.text

    def items(self) -> list[Item]:
        """Return the output columns in their order.

        Raises:
            QueryError: a column that is not there, without a name, or of a name that another has.
            NotSupportedError: one that is neither a key nor a polynomial.
        """
        items: list[Item] = []
        for column in self.statement.output_columns:
            items += self._of_star(column) if is_star(column.tree) else self._items(column)
        return checked(items, self.text)

    def _of_star(self, column: Fragment) -> Iterator[Item]:
        start, scope = column.start, self.scope
        qualifier = column.tree.args.get("table")
        named: Scope | Side | None = scope
        if qualifier is not None:
            named = next((side for side in scope.sides if qualifier.name.lower() in
                          (side.name.lower(), side.stream.lower())), None)  # fmt: skip
        if named is None:
            refuse(f"output column {column.text!r}: there is no such input", self.text, start)
        for name, key in named.keys.items():
            yield Item("key", name, key, start)
        for name, actual in named.attributes.items():
            is_length = actual in scope.lengths
            yield Item("attribute", name, quoted(actual), start, is_length=is_length)
        for name, distance in named.distances.items():
            yield Item("distance", name, distance.text, start, distance)

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
        if is_time and all(side.meaning(node.name) is None for side in self.scope.sides):
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
            distance = mention.side.distances[mention.column]
            return Item("distance", name, distance.text, part.start, distance)
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
        for mention in mentions:
            if mention.kind == "other":
                message = f"{what}: {mention.node.name!r} is neither modelled nor a key; give it an"
                scope.refuse(f"{message} equation or a bound, or make it a key", mention.start)
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
        if self.scope.pair is None:
            return None
        mentions = self.scope.mentions(part.tree, "the distance")
        over = self.scope.over_segments(part.tree, mentions)
        axes = distance_axes(arithmetic_of(*over), self.scope.pair)
        if axes is None:
            return None
        return Distance(axes, self.scope.rewritten(part, mentions), tuple(over[2]))


def checked(items: list[Item], text: str) -> list[Item]:
    """Return output columns of which no two have one name.

    Raises:
        QueryError: two have.
    """
    seen: set[str] = set()
    for item in items:
        if item.name.lower() in seen:
            message = f"two output columns are called {item.name!r}; give one another name with AS"
            refuse(message, text, item.start, name=item.name)
        seen.add(item.name.lower())
    return items


def projections(
    items: Sequence[Item], kind: ResultKind, columns: Mapping[str, str], text: str
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
    named = {item.text for item in items if item.kind == "time"}
    times = [time for time in OF_TIME[kind] if time not in named]
    instead = {} if kind == "segments" else earth.outputs([*columns.values()])
    texts: list[list[str]] = []
    taken = {*times}
    for item in items:
        texts.append([])
        for column, name in _columns(item, kind, columns, instead):
            if name.lower() in taken:
                message = f"results have two columns {name!r}; give one another name with AS"
                refuse(message, text, item.start, name=name)
            taken.add(name.lower())
            texts[-1].append(_as(column, name))
    kinds = [item.kind in {"attribute", "distance"} for item in items]
    place = kinds.index(True) if any(kinds) else len(items)
    texts.insert(place, [identifier(time) for time in times])
    return tuple(chain.from_iterable(texts))


def _columns(
    item: Item,
    kind: ResultKind,
    columns: Mapping[str, str],
    instead: Mapping[str, Sequence[Output]],
) -> list[tuple[str, str]]:
    """Return the columns of results that an output column is, and what they are called."""
    if item.kind not in {"attribute", "distance"}:
        return [(item.text, item.name)]
    if columns[item.name] in instead:
        names = (output.name for output in instead[columns[item.name]])
        return [(name, name) for base in names for name in (base, ERR + base)]
    column, start = columns[item.name], COEF if kind == "segments" else ""
    return [(start + column, start + item.name), (ERR + column, ERR + item.name)]


def _as(column: str, name: str) -> str:
    return identifier(name) if column == name else f"{identifier(column)} AS {identifier(name)}"


# -- distances ------------------------------------------------------------------------------------


SLACK = 1e-9
"""The share by which entities may be farther apart and still are paired: roots are rounded."""


def distance_axes(expression: Expression, names: tuple[str, str]) -> tuple[str, ...] | None:
    """Return the attributes whose distance an expression is; None if it is none.

    Args:
        expression: over attributes of pairs, such as ``a_x`` and ``b_x``.
        names: of the two sides.
    """
    match expression:
        case Root(squares):
            return _axes(squares, names)
        case Absolute(part):
            axis = _axis(part, names)
            return None if axis is None else (axis,)
    return None


def constant(expression: Expression) -> float | None:
    """Return the value of arithmetic over numbers; None if there is more in it."""
    match expression:
        case Number(value):
            return value
        case Sum(left, right) | Product(left, right):
            one, other = constant(left), constant(right)
            if one is None or other is None:
                return None
            return one + other if isinstance(expression, Sum) else one * other
        case Power(part, exponent):
            base = constant(part)
            return None if base is None else base**exponent
    return None


def _axes(squares: Expression, names: tuple[str, str]) -> tuple[str, ...] | None:
    """Return the attributes of a sum of squares of differences of both sides."""
    found_axes = [_axis(difference, names) for difference in _squared(squares)]
    axes = tuple(axis for axis in found_axes if axis is not None)
    return axes if len(axes) == len(found_axes) == len({*axes}) else None


def _squared(expression: Expression) -> Iterator[Expression]:
    match expression:
        case Sum(left, right):
            yield from _squared(left)
            yield from _squared(right)
        case Power(part, 2):
            yield part
        case Product(left, right) if left == right:
            yield left
        case _:
            yield Number(0.0)  # no difference


def _axis(difference: Expression, names: tuple[str, str]) -> str | None:
    match difference:
        case Sum(Attribute(one), Product(Number(-1.0), Attribute(other))):
            for left, right in (names, names[::-1]):
                axis = one.removeprefix(f"{left}_")
                if one == f"{left}_{axis}" and other == f"{right}_{axis}":
                    return axis
    return None
