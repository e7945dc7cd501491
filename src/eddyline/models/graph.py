"""What is done with segments, as a graph: steps over inputs, run on all of some entities at once.

A part that several steps read is computed once. Inputs agree on ids: one table says what each
entity of a block is called.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eddyline.models import joins
from eddyline.models.one_sided import UNTOLD, Asking
from eddyline.models.rows import Keyed, plain, unified
from eddyline.models.steps import Rows, Shape, Step, Within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from eddyline.models.conditions import Condition
    from eddyline.models.one_sided import Tally
    from eddyline.models.pairs import DifferentEntities


@dataclass(frozen=True, slots=True, eq=False)
class Input:
    """Segments that come from elsewhere."""

    at: int
    """Their place among the inputs."""
    shape: Shape


@dataclass(frozen=True, slots=True, eq=False)
class Unary:
    """A step over one part."""

    step: Step
    of: Node

    @property
    def shape(self) -> Shape:
        """Which columns come out."""
        return self.step.shape(self.of.shape)

    def __str__(self) -> str:
        return str(self.step)


@dataclass(frozen=True, slots=True, eq=False)
class SameEntity:
    """Two parts of the same entities, at the same instants, where a condition holds."""

    left: Node
    right: Node
    names: tuple[str, str]
    """What stands before the names of each side's attributes: ``s_x``, ``s.x`` in conditions."""
    condition: Condition | None
    text: str | None
    asks: tuple[str, ...] | None = None
    """Which sides are asked before they are joined, in what order; None: as samples say."""

    @property
    def shape(self) -> Shape:
        """Which columns come out."""
        return Shape(self.left.shape.keys, joined_names(self.left, self.right, self.names))

    def run(self, left: Keyed, right: Keyed, tally: Tally = UNTOLD) -> Keyed:
        """Return the joined segments, of the entities that both sides have."""
        keys = self.left.shape.keys
        if left.entities is not right.entities and keys:  # of groups ids are other ones
            (left, right), _ = unified((left, right), (), keys)
        found = joins.joined(
            left.segments, right.segments, self.condition, names=self.names,
            asking=Asking(self.asks, tally),
        )  # fmt: skip
        segments = plain(found.segments)
        return Keyed(replace(segments, keys=found.left[segments.keys]), left.entities)

    def __str__(self) -> str:
        return f"join {' and '.join(self.names)}" + (
            "" if self.text is None else f" on {self.text}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class OtherEntities:
    """Two parts of different entities, at the same instants.

    Over tables tasks of their own pair them (``tasks.paired``), of streams a stage of a bucket.
    """

    left: Node
    right: Node
    step: DifferentEntities

    @property
    def names(self) -> tuple[str, str]:
        """What stands before the names of each side's keys and attributes."""
        return self.step.names

    @property
    def condition(self) -> Condition | None:
        """Where pairs are wanted."""
        return self.step.condition

    @property
    def shape(self) -> Shape:
        """Which columns come out."""
        return self.step.shape(self.left.shape, self.right.shape)

    def run(self, left: Keyed, right: Keyed, tally: Tally = UNTOLD) -> Keyed:
        """Return the pairs of all entities there are."""
        shapes = self.left.shape, self.right.shape
        if self.step.is_self:
            return self.step.run(left, None, *shapes, tally)
        (one, other), _ = unified((left, right), (), shapes[0].keys)
        return self.step.between(one, other, tally)

    def __str__(self) -> str:
        return str(self.step)


Node = Input | Unary | SameEntity | OtherEntities


def joined_names(left: Node, right: Node, names: tuple[str, str]) -> tuple[str, ...]:
    """Return the attributes of a join."""
    return tuple(
        f"{name}_{each}"
        for name, side in zip(names, (left, right), strict=True)
        for each in side.shape.attributes
    )


def sides_of(node: SameEntity | OtherEntities) -> dict[str, tuple[int, str]]:
    """Return for each attribute of a join the side that it is of, and its name there."""
    return {
        f"{name}_{each}": (at, each)
        for at, (name, side) in enumerate(zip(node.names, (node.left, node.right), strict=True))
        for each in side.shape.attributes
    }


def with_inputs(
    node: Node, inputs: Sequence[Node], changed: Callable[[Step], Step] | None = None
) -> Node:
    """Return a graph with other parts instead of its inputs: ``inputs[i]`` is that of ``i``.

    Args:
        node: the graph.
        inputs: what stands there.
        changed: gives steps that stand instead of its own; None leaves them.
    """
    made: dict[int, Node] = {}

    def copy(each: Node) -> Node:
        if id(each) not in made:
            match each:
                case Input(at):
                    found = inputs[at]
                case Unary(step, of):
                    found = Unary(step if changed is None else changed(step), copy(of))
                case SameEntity(left, right) | OtherEntities(left, right):
                    found = replace(each, left=copy(left), right=copy(right))
            made[id(each)] = found
        return made[id(each)]

    return copy(node)


def asking(node: Node, asks: Mapping[str, tuple[str, ...]]) -> Node:
    """Return a graph of which some joins, by their texts, ask these sides before."""
    made: dict[int, Node] = {}
    for each in parts(node):
        match each:
            case Input():
                made[id(each)] = each
            case Unary(_, of):
                made[id(each)] = replace(each, of=made[id(of)])
            case SameEntity(left, right):
                own = asks.get(str(each), each.asks)
                made[id(each)] = replace(each, left=made[id(left)], right=made[id(right)], asks=own)
            case OtherEntities(left, right, step):
                own = asks.get(str(each), step.asks)
                made[id(each)] = OtherEntities(
                    made[id(left)], made[id(right)], replace(step, asks=own)
                )
    return made[id(node)]


def below(node: Node) -> tuple[Node, ...]:
    """Return the parts that a part reads."""
    match node:
        case Unary(_, of):
            return (of,)
        case SameEntity(left, right) | OtherEntities(left, right):
            return (left, right)
    return ()


def parts(node: Node) -> Iterator[Node]:
    """Yield the parts of a graph, each once, behind those that it reads."""
    seen: set[int] = set()

    def visit(each: Node) -> Iterator[Node]:
        if id(each) not in seen:
            seen.add(id(each))
            for part in below(each):
                yield from visit(part)
            yield each

    return visit(node)


def told_bounds(node: Node) -> str:
    """Return the bounds that a graph was given, in words."""
    steps = (each.step for each in parts(node) if isinstance(each, Unary))
    return "; ".join(str(each) for each in steps if isinstance(each, Within))


def sees_entities(node: Node) -> bool:
    """Return whether a step needs all segments of an entity at once."""
    return any(
        isinstance(each, SameEntity) or (isinstance(each, Unary) and each.step.scope != "segment")
        for each in parts(node)
    )


def reach(node: Node) -> int:
    """Return how far back a result looks that is there at an instant (µs)."""
    return _longest(node, "reach_us")


def lag(node: Node) -> int:
    """Return how far before the front of inputs a result may begin that is not over there (µs)."""
    return _longest(node, "lag_us")


def _longest(node: Node, attribute: str) -> int:
    """Return the greatest sum of an attribute of steps, which those without it have as 0."""
    found: dict[int, int] = {}
    for each in parts(node):
        own = getattr(each.step, attribute, 0) if isinstance(each, Unary) else 0
        found[id(each)] = own + max((found[id(part)] for part in below(each)), default=0)
    return found[id(node)]


class Watch:
    """Looks on while a graph runs; this one sees nothing."""

    def on(self, what: object) -> AbstractContextManager[None]:  # noqa: ARG002 - nobody asks
        """Return what stands around the work of a step."""
        return nullcontext()

    def tally(self, node: SameEntity | OtherEntities) -> Tally:  # noqa: ARG002
        """Return what takes note of the work of a join."""
        return UNTOLD

    def saw(self, what: object, given: Sequence[Keyed], found: Keyed | Rows) -> None:
        """Take note of what came out of a step, or of a join."""


UNWATCHED = Watch()


def run(node: Node, inputs: Sequence[Keyed], watch: Watch = UNWATCHED) -> Keyed | Rows:
    """Return what comes out of a graph over segments of some entities; as ``every``."""
    return every(node, inputs, watch)[id(node)]


def every(node: Node, inputs: Sequence[Keyed], watch: Watch = UNWATCHED) -> dict[int, Keyed | Rows]:
    """Return what comes out of each part of a graph, by its id; ``watch`` looks on."""
    found: dict[int, Keyed | Rows] = {}
    for each in parts(node):
        if isinstance(each, Input):
            found[id(each)] = inputs[each.at]
            continue
        given = [_segments(found[id(part)]) for part in below(each)]
        match each:
            case Unary(step):
                with watch.on(step):
                    found[id(each)] = step.run(*given)
            case SameEntity() | OtherEntities():
                with watch.on(each):
                    found[id(each)] = each.run(given[0], given[1], watch.tally(each))
        watch.saw(each.step if isinstance(each, Unary) else each, given, found[id(each)])
    return found


def _segments(found: Keyed | Rows) -> Keyed:
    assert isinstance(found, Keyed)  # nothing is built on rows
    return found
