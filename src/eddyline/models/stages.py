"""A graph over streams, cut where its entities become other ones.

Pairs and values over entities are stages of their own: what is done before is by entity, and what
is done behind by pair or group.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from eddyline.errors import NotSupportedError
from eddyline.models import graph
from eddyline.models.expressions import Attribute
from eddyline.models.steps import Changes, Project, Where, Within
from eddyline.models.window_steps import AverageDistance, OverEntities

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from eddyline.data.arrays import Mask
    from eddyline.models.pairs import DifferentEntities
    from eddyline.models.rows import Keyed
    from eddyline.models.steps import Shape


@runtime_checkable
class RangeStep(Protocol):
    """A step that makes ranges by more keys than those of entities, which are told as changes."""

    def watched(self, given: Keyed) -> tuple[Keyed, Any]:
        """Return the ranges, and what was observed on the way: None, or what ``merged`` adds up."""

    def are_asked(self, ranges: pa.Table) -> Mask:
        """Return which ranges are still asked for, by their keys; what others were is over."""


@dataclass(frozen=True, eq=False)
class Stage:
    """What is done with segments of the same entities, or one step over several entities."""

    inputs: tuple[int, ...]
    """By place in ``node`` what each input is: an input of the plan, or a stage behind these."""
    node: graph.Node

    @cached_property
    def shapes(self) -> Mapping[int, Shape]:
        """The columns of each input by its place in ``node``."""
        every = graph.parts(self.node)
        return {each.at: each.shape for each in every if isinstance(each, graph.Input)}

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that say the entity, of inputs."""
        return self.shapes[0].keys

    @property
    def told(self) -> graph.Node:
        """What is done with segments before ranges of them are told as changes."""
        node = self.node
        is_changes = isinstance(node, graph.Unary) and isinstance(node.step, Changes)
        return node.of if is_changes and isinstance(node, graph.Unary) else node

    @property
    def ranges(self) -> RangeStep | None:
        """What makes these ranges of segments, if it has to come behind all that looks back."""
        step = self.told.step if isinstance(self.told, graph.Unary) else None
        return step if isinstance(step, RangeStep) else None

    @property
    def given(self) -> graph.Node:
        """What is done with segments before that."""
        told = self.told
        return told.of if isinstance(told, graph.Unary) and self.ranges is not None else told

    @property
    def looks_back(self) -> bool:
        """Whether results look at segments before."""
        return graph.sees_entities(self.given)

    @property
    def is_crossing(self) -> bool:
        """Whether entities become other ones: it is one step over several of them."""
        return is_crossing(self.node)


def staged(node: graph.Node, n_inputs: int) -> tuple[Stage, ...]:
    """Return a graph as stages, each behind those that it reads; the last one has the results."""
    cutting = _Cutting(n_inputs)
    for each in graph.parts(node):
        if is_crossing(each):
            for part in (*graph.below(each), each):
                cutting.of(part)
    return (*cutting.stages, cutting.stage(node))


def alike(stages: Sequence[Stage], n_inputs: int) -> tuple[bool, ...]:
    """Return for each stage whether all of its inputs have the same code for an entity.

    The code of an entity is a hash of its keys, that of a pair is made of both, and that of a group
    is a hash of the keys that it is by: one that is of all, and entities that come from inputs with
    different codes, share one.
    """
    kinds: list[object] = ["entity"] * n_inputs
    found = []
    for stage in stages:
        own = [kinds[each] for each in stage.inputs]
        found.append(len({*own}) == 1)
        match stage.node:
            case graph.OtherEntities(graph.Input(left), graph.Input(right)) if found[-1]:
                kinds.append((own[left], own[right]))
            case graph.Unary(OverEntities(by=by)) if by and found[-1]:
                kinds.append(("group", by))
            case _:
                is_one = stage.is_crossing or not found[-1]
                kinds.append("group" if is_one else own[0])
    return tuple(found)


class _Cutting:
    """Cuts a graph into stages."""

    def __init__(self, n_inputs: int) -> None:
        self.stages: list[Stage] = []
        self._n_inputs = n_inputs
        self._made: dict[int, int] = {}

    def of(self, part: graph.Node) -> int:
        """Return where what a part gives comes from, a stage of its own unless it is one."""
        if id(part) not in self._made:
            stage = self.stage(part)
            if isinstance(stage.node, graph.Input):
                self._made[id(part)] = stage.inputs[0]
            else:
                self.stages.append(stage)
                self._made[id(part)] = self._n_inputs + len(self.stages) - 1
        return self._made[id(part)]

    def stage(self, root: graph.Node) -> Stage:
        """Return what is done from the stages that there are to a part."""
        inputs: list[int] = []
        made: dict[int, graph.Node] = {}

        def input_of(source: int, shape: Shape) -> graph.Node:
            if source not in inputs:
                inputs.append(source)
            return graph.Input(inputs.index(source), shape)

        def copy(each: graph.Node) -> graph.Node:
            if id(each) not in made:
                made[id(each)] = cut(each)
            return made[id(each)]

        def cut(each: graph.Node) -> graph.Node:
            if id(each) in self._made:
                return input_of(self._made[id(each)], each.shape)
            match each:
                case graph.Unary(step, of):
                    return graph.Unary(step, copy(of))
                case graph.SameEntity(left, right) | graph.OtherEntities(left, right):
                    return replace(each, left=copy(left), right=copy(right))
                case graph.Input(at):
                    return input_of(at, each.shape)

        node = copy(root)
        return Stage(tuple(inputs), node)


def is_crossing(node: graph.Node) -> bool:
    """Return whether a part makes segments of other entities than those that it reads."""
    if isinstance(node, graph.Unary):
        return isinstance(node.step, OverEntities)
    return isinstance(node, graph.OtherEntities)


def together(node: graph.Node, keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return the keys of which all entities that have them in common are looked at together.

    For pairs there are none: any two entities may be a pair.
    """
    found = keys
    for each in graph.parts(node):
        if isinstance(each, graph.OtherEntities):
            return ()
        if isinstance(each, graph.Unary) and isinstance(each.step, OverEntities):
            found = tuple(name for name in found if name in each.step.by)
    return found


def check_stages(node: graph.Node) -> None:
    """Check that what is asked of streams can be told without keeping all that was.

    Raises:
        NotSupportedError: a step that would have to look back at any time.
    """
    for each in graph.parts(node):
        if isinstance(each, graph.OtherEntities) and each.step.is_whole and each.step.within:
            _check_whole(node, each)


def _check_whole(node: graph.Node, pairs: graph.OtherEntities) -> None:
    """Refuse pairs for all their time, unless only windows in which they are near are asked."""
    if not _asks_near(node, pairs, pairs.step):
        msg = (
            "of a stream, pairs that once come near are not told for all the time before: that "
            "would be known when it is too late; leave out within or whole=True, ask for "
            "avg_distance(…, below=…) of no more than within, or ask a batch DataFrame"
        )
        raise NotSupportedError(msg, within=dict(pairs.step.within))


def _asks_near(node: graph.Node, part: graph.Node, pairs: DifferentEntities) -> bool:
    """Return whether all that reads a part asks for windows in which pairs come that near."""
    readers = [each for each in graph.parts(node) if part in graph.below(each)]
    return bool(readers) and all(_is_near(node, each, pairs) for each in readers)


def _is_near(node: graph.Node, reader: graph.Node, pairs: DifferentEntities) -> bool:
    step = reader.step if isinstance(reader, graph.Unary) else None
    axes = [tuple(f"{side}_{name}" for side in pairs.names) for name in pairs.within]
    if isinstance(step, Project):
        names = [name for both in axes for name in both]
        if any(step.columns.get(name) != Attribute(name) for name in names):
            return False
    if isinstance(step, Within | Where | Project):
        return _asks_near(node, reader, pairs)
    if not isinstance(step, AverageDistance) or step.below is None:
        return False
    asked = {*step.axes.items(), *((other, one) for one, other in step.axes.items())}
    return {*axes} <= asked and all(step.below <= most for most in pairs.within.values())
