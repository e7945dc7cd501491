"""What is done with segments, as a graph: steps over inputs, run on all of some entities at once.

A part that several steps read is computed once. Inputs agree on ids: one table says what each
entity of a block is called.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eddyline.models import joins
from eddyline.models.rows import Keyed
from eddyline.models.steps import Rows, Shape, Step

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eddyline.data.arrays import Floats
    from eddyline.models.conditions import Condition
    from eddyline.models.segments import Segments


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

    @property
    def shape(self) -> Shape:
        """Which columns come out."""
        return Shape(self.left.shape.keys, joined_names(self.left, self.right, self.names))

    def run(self, left: Keyed, right: Keyed) -> Keyed:
        """Return the joined segments, of the entities that both sides have."""
        found = joins.joined(left.segments, right.segments, self.condition, names=self.names)
        segments = plain(found.segments)
        return Keyed(replace(segments, keys=found.left[segments.keys]), left.entities)

    def __str__(self) -> str:
        return f"join {' and '.join(self.names)}" + (
            "" if self.text is None else f" on {self.text}"
        )


Node = Input | Unary | SameEntity


def joined_names(left: Node, right: Node, names: tuple[str, str]) -> tuple[str, ...]:
    """Return the attributes of a join."""
    return tuple(
        f"{name}_{each}"
        for name, side in zip(names, (left, right), strict=True)
        for each in side.shape.attributes
    )


def plain(segments: Segments) -> Segments:
    """Return joined segments with the names that columns have: ``s_x`` instead of ``s.x``."""

    def named(given: dict[str, Floats]) -> dict[str, Floats]:
        return {name.replace(".", "_", 1): each for name, each in given.items()}

    return replace(segments, coefs=named({**segments.coefs}), errors=named({**segments.errors}))


def moved(node: Node, by: Sequence[int]) -> Node:
    """Return a graph whose inputs are at other places: ``by[i]`` is the new one of ``i``."""
    made: dict[int, Node] = {}

    def copy(each: Node) -> Node:
        if id(each) not in made:
            match each:
                case Input(at, shape):
                    found: Node = Input(by[at], shape)
                case Unary(step, of):
                    found = Unary(step, copy(of))
                case SameEntity(left, right):
                    found = replace(each, left=copy(left), right=copy(right))
            made[id(each)] = found
        return made[id(each)]

    return node if list(by) == list(range(len(by))) else copy(node)


def below(node: Node) -> tuple[Node, ...]:
    """Return the parts that a part reads."""
    match node:
        case Unary(_, of):
            return (of,)
        case SameEntity(left, right):
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


def sees_entities(node: Node) -> bool:
    """Return whether a step needs all segments of an entity at once."""
    return any(
        isinstance(each, SameEntity) or (isinstance(each, Unary) and each.step.scope != "segment")
        for each in parts(node)
    )


def reach(node: Node) -> int:
    """Return how far behind an instant its result is looked at (µs)."""
    found: dict[int, int] = {}
    for each in parts(node):
        width = getattr(each.step, "width_us", 0) if isinstance(each, Unary) else 0
        found[id(each)] = width + max((found[id(part)] for part in below(each)), default=0)
    return found[id(node)]


def run(node: Node, inputs: Sequence[Keyed]) -> Keyed | Rows:
    """Return what comes out of a graph over segments of some entities."""
    return every(node, inputs)[id(node)]


def every(node: Node, inputs: Sequence[Keyed]) -> dict[int, Keyed | Rows]:
    """Return what comes out of each part of a graph, by its id."""
    found: dict[int, Keyed | Rows] = {}
    for each in parts(node):
        match each:
            case Input(at):
                found[id(each)] = inputs[at]
            case Unary(step, of):
                found[id(each)] = step.run(_segments(found[id(of)]))
            case SameEntity(left, right):
                found[id(each)] = each.run(*(_segments(found[id(a)]) for a in (left, right)))
    return found


def _segments(found: Keyed | Rows) -> Keyed:
    assert isinstance(found, Keyed)  # nothing is built on rows
    return found
