"""What names in a SELECT of models mean: keys, modelled attributes, distances, other columns."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NoReturn

from sqlglot import exp

from eddyline.errors import NotSupportedError
from eddyline.models import earth
from eddyline.models.condition_text import (
    arithmetic_of,
    condition_of,
    expression_of,
    is_length,
)
from eddyline.models.sql.near import nearness
from eddyline.models.sql.recipe import Call, nearer, of_entities
from eddyline.registry import unknown
from eddyline.sql.analysis import check_is_row_wise
from eddyline.sql.names import column_nodes
from eddyline.sql.parsing import offset_of, parse_condition, quoted, refuse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlglot import Expr

    from eddyline.models.conditions import Condition
    from eddyline.models.expressions import Expression
    from eddyline.models.sql.recipe import Node
    from eddyline.query.query import Window
    from eddyline.query.select.statement import Fragment

Kind = Literal["key", "attribute", "position", "distance", "other"]


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

    @property
    def known(self) -> list[str]:
        """All names."""
        return [*self.keys, *self.attributes, *self.distances, *self.others]

    def meaning(self, name: str) -> tuple[Kind, str] | None:
        """Return what a name is, and what it is called in the segments."""
        kinds: list[tuple[Kind, Mapping[str, str]]] = [
            ("attribute", self.attributes),
            ("key", self.keys),
            ("distance", {each: each for each in self.distances}),
            ("other", {each: each for each in self.others}),
        ]
        for kind, names in kinds:
            for each, actual in names.items():
                if each.lower() == name.lower():
                    return kind, actual if kind != "distance" else each
        place = earth.position_of(name, self.attributes)
        return None if place is None else ("position", self.attributes[place[0]][: -len("_x")])


@dataclass(frozen=True, slots=True)
class Mention:
    """A name in the text and what it means."""

    node: exp.Column
    side: Side
    kind: Kind
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
        return self._first([each.keys for each in self.sides])

    @property
    def attributes(self) -> dict[str, str]:
        """What the attributes are called outside, and in the segments."""
        if len(self.sides) == 1:
            return dict(self.sides[0].attributes)
        return {each: each for side in self.sides for each in side.attributes.values()}

    @property
    def lengths(self) -> frozenset[str]:
        """The attributes of segments that are lengths."""
        every = (side.attributes[name] for side in self.sides for name in side.lengths)
        return frozenset(every)

    @property
    def distances(self) -> dict[str, Distance]:
        """The distances by name."""
        return {name: each for side in self.sides for name, each in side.distances.items()}

    def _first(self, given: Sequence[Mapping[str, str]]) -> dict[str, str]:
        found: dict[str, str] = {}
        for names in given:
            for name, actual in names.items():
                if actual not in found.values():
                    found[name if name not in found else actual] = actual
        return found

    def on(self, node: Node) -> Scope:
        """Return the scope of other segments with the same columns."""
        return replace(self, node=node)

    def mentions(self, tree: Expr, what: str) -> list[Mention]:
        """Return the names in a part of the query, in the order of the text.

        Raises:
            QueryError: there is no such column, or it may be one of several.
        """
        found = [self.meaning(each, what) for each in column_nodes(tree)]
        return sorted(found, key=lambda each: each.start)

    def meaning(self, node: exp.Column, what: str) -> Mention:
        """Return what a name means; errors as of ``mentions``."""
        parts = [each.name for each in node.parts]
        start = offset_of(node)
        sides, rest = self._of_qualifier(parts)
        name = rest[0]
        found = [(side, of) for side in sides if (of := side.meaning(name)) is not None]
        places = {of for _, of in found}
        if not found:
            known = [f"{side.name}.{each}" for side in sides for each in side.known]
            refuse(f"{what}: {unknown('column', '.'.join(parts), known)}", self.text, start)
        # Whose key it is does not matter to sides of the same entities; a join refuses the others.
        if len(places) > 1 or (len(found) > 1 and found[0][1][0] != "key"):
            names = " or ".join(f"{side.name}.{name}" for side, _ in found)
            refuse(f"{what}: {name} may be {names}: say which", self.text, start)
        side, (kind, column) = found[0]
        if len(rest) > 1 and kind != "other":
            refuse(f"{what}: {name!r} has no fields", self.text, start)
        end = node.parts[len(parts) - len(rest)].meta["end"] + 1  # fields stand behind it
        return Mention(node, side, kind, column, start, end)

    def _of_qualifier(self, parts: list[str]) -> tuple[Sequence[Side], list[str]]:
        if len(parts) > 1:
            first = parts[0].lower()
            for named in ("name", "stream"):
                own = [each for each in self.sides if getattr(each, named).lower() == first]
                if len(own) == 1:
                    return own, parts[1:]
        return self.sides, parts

    def rewritten(self, part: Fragment, mentions: Sequence[Mention]) -> str:
        """Return a part as SQL over the columns of the segments."""
        return part.rewritten((each.start, each.end, each.text) for each in mentions)

    def condition(self, part: Fragment, mentions: Sequence[Mention]) -> Condition:
        """Return a condition on attributes.

        Raises:
            QueryError: it cannot be read; the message shows where.
            NotSupportedError: no comparison of polynomials says the same.
        """
        tree = self.over_segments(part.tree, mentions)
        return condition_of(tree, self.text, self.names_of(mentions))

    def near(self, part: Fragment, mentions: Sequence[Mention]) -> Scope:
        """Return the scope of pairs of which a condition says how near they come, if it does."""
        found = self.nearness(part, mentions)
        return self if found is None else self.on(nearer(self.node, found))

    def nearness(self, part: Fragment, mentions: Sequence[Mention]) -> dict[str, float] | None:
        """Return by how much attributes of both sides differ where a condition holds."""
        tree = self.over_segments(part.tree, mentions)
        if self.pair is None or not isinstance(tree, exp.LT | exp.LTE | exp.GT | exp.GTE):
            return None
        names = self.names_of(mentions)
        left, right = (arithmetic_of(e, self.text, names) for e in (tree.left, tree.right))
        if isinstance(tree, exp.GT | exp.GTE):
            left, right = right, left
        found = nearness(left, right, self.pair)
        return None if found is None else dict.fromkeys(*found)

    def expression(self, part: Fragment, mentions: Sequence[Mention]) -> Expression:
        """Return arithmetic over attributes; errors as of ``condition``."""
        tree = self.over_segments(part.tree, mentions)
        return expression_of(tree, self.text, self.names_of(mentions))

    def is_length(self, part: Fragment, mentions: Sequence[Mention]) -> bool:
        """Return whether a part is a speed or a distance of positions; errors as above."""
        tree, names = self.over_segments(part.tree, mentions), self.names_of(mentions)
        found = is_length(tree, self.text, names)
        if found:
            arithmetic_of(tree, self.text, names)
        return found

    @staticmethod
    def names_of(mentions: Sequence[Mention]) -> list[str]:
        """Return the attributes behind names; positions and distances have several."""
        own = [each.column for each in mentions if each.kind == "attribute"]
        places = (each.column for each in mentions if each.kind == "position")
        own += [name for each in places for name in earth.coordinates(each)]
        far = [each.side.distances[each.column] for each in mentions if each.kind == "distance"]
        return [*own, *(name for each in far for name in each.attributes)]

    @staticmethod
    def over_segments(tree: Expr, mentions: Sequence[Mention]) -> Expr:
        """Return a tree whose names are those of the segments, at the places of the text."""
        known = {id(each.node): each for each in mentions}

        def named(node: Expr) -> Expr:
            mention = known.get(node.meta.get("mention", 0))
            if mention is None:
                return node
            if mention.kind == "distance":
                return _distance_tree(mention)
            return _column(mention.column, mention.start)

        for each in mentions:
            each.node.meta["mention"] = id(each.node)
        return tree.copy().transform(named)

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
            (each.start, each.end, quoted(names[each.column])) for each in mentions
        )

    keys = {each.column: each.column for each in mentions}
    return of_entities(node, keys, text) or Call(node, "where", (text(keys),), start=part.start)


def _column(name: str, start: int) -> exp.Column:
    made = exp.column(exp.to_identifier(name, quoted=True))
    made.this.meta["start"] = start
    return made


def _distance_tree(mention: Mention) -> Expr:
    tree = parse_condition(mention.side.distances[mention.column].text)
    for each in tree.find_all(exp.Identifier):
        each.meta["start"] = mention.start
    return tree
