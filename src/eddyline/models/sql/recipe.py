"""What a query of models does, as values: which rows become segments, and what is called on them.

The calls are those of ``el.models`` and of its segments, so that a text says what a program says.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from eddyline.models.earth import TRACK, coordinates
from eddyline.query.predicates import SqlPredicate
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from eddyline.query.predicates import Predicate


@dataclass(frozen=True)
class Made:
    """Segments of the rows of a stream or table."""

    stream: str
    keys: tuple[str, ...]
    time: str
    equations: tuple[tuple[str, str], ...] = ()
    """Of declared attributes, by name."""
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
            at = names.index(TRACK)
            names[at : at + 1] = coordinates(TRACK)
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


def made_in(node: Node) -> Iterator[Made]:
    """Yield what segments are made of, in the order of the text; equal ones again."""
    if isinstance(node, Made):
        yield node
    else:
        for each in (node.of, *node.arguments, *node.named.values()):
            if isinstance(each, Made | Call):
                yield from made_in(each)


def keys_of(node: Node) -> tuple[str, ...]:
    """Return the columns that say the entity of segments."""
    if isinstance(node, Made):
        return node.keys
    keys, named = keys_of(node.of), node.named
    if node.method == "pairs":
        one, two = named["names"]
        others = keys if named["other"] is None else keys_of(named["other"])
        return (*(f"{one}_{each}" for each in keys), *(f"{two}_{each}" for each in others))
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
    known = node.named.get("within", {})
    most = {name: min(each, known.get(name, each)) for name, each in within.items()}
    return node.having(within={**known, **most}, whole=whole or node.named.get("whole", False))


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
        left, right = (of_entities(each, keys, text) for each in (node.of, node.arguments[0]))
        if left is None or right is None:
            return None
        return replace(node, of=left, arguments=(right, *node.arguments[1:]))
    if node.method != "pairs":
        inner = of_entities(node.of, keys, text)
        return None if inner is None else replace(node, of=inner)
    for at, name in enumerate(node.named["names"]):
        side = (at and node.named["other"]) or node.of
        of_side = {f"{name}_{each}": each for each in keys_of(side)}
        if of_side.keys() >= {*keys.values()}:
            return _of_side(node, at, {each: of_side[key] for each, key in keys.items()}, text)
    return None


def _of_side(
    node: Call, at: int, keys: Mapping[str, str], text: Callable[[Mapping[str, str]], str]
) -> Node | None:
    other = node.named.get("other")
    if other is None:  # both sides are one: of pairs in one order only, either may be the left
        return None
    inner = of_entities(other if at else node.of, keys, text)
    if inner is None:
        return None
    return node.having(other=inner) if at else replace(node, of=inner)
