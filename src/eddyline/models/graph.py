"""Graph of steps over segments.

It says what a task runs, and how precise the segments must be. A graph is a tree of ``Node`` values
over ``Input`` leaves. ``run`` computes it on all segments of some entities; a part that several
steps read is computed once. Inputs agree on ids: one table says what each entity of a block is
called. Tasks run a graph, one step, or the pairs of a cell on Arrow tables.

``required`` says how near models have to be to rows, for results to be as near as is asked
(Pulse 3.12). ``WITHIN`` on outputs becomes a bound for each attribute of each input. This is a
theorem: if every input is within its bound at every instant, every output is within its own.
An output that is linear in its inputs is a weighted integral of them, and takes the whole graph at
once: MACD ± 0.5 asks for a price within 0.3. Other outputs go back step by step, with a share for
each input: averages and extremes keep a bound, sums divide it by the width of the window, and
products depend on how large their factors are.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.errors import OptionError
from eddyline.models import revisions, timeline
from eddyline.models.fitting.bounds import NEEDS, SHRUNK, Bound, gains, gains_of_side, tighter
from eddyline.models.fitting.splits import EQUAL, Part, Split
from eddyline.models.segments import Keyed, Layout, entity_ids, keyed, micros_of, plain, unified
from eddyline.models.solving import expressions, joins
from eddyline.models.solving.joins import UNTOLD, Asking
from eddyline.models.steps import CELL, OverEntities, Rows, Shape, Step, Within, result_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from eddyline.models.fitting.bounds import Bounds, Kernel
    from eddyline.models.solving.expressions import Condition, Range, Ranges
    from eddyline.models.solving.joins import Tally
    from eddyline.models.steps import DifferentEntities

    Values = Mapping[int, Mapping[str, Range]]
    """For each input the ranges of its attributes' values."""
    Found = dict[tuple[int, str], Bound]
    """The bound of each attribute of each input."""


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
        pairs = joins.joined(
            left.segments, right.segments, self.condition, names=self.names,
            asking=Asking(self.asks, tally),
        )  # fmt: skip
        segments = plain(pairs.segments)
        return Keyed(replace(segments, keys=pairs.left[segments.keys]), left.entities)

    def __str__(self) -> str:
        return f"join {' and '.join(self.names)}" + (
            "" if self.text is None else f" on {self.text}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class OtherEntities:
    """Two parts of different entities, at the same instants.

    Over tables tasks of their own pair them (``paired``), of streams a stage of a bucket.
    """

    left: Node
    right: Node
    step: DifferentEntities
    conditions: tuple[str, ...] = ()
    """On the keys of pairs, as SQL, which Spark asks of the results of ``run``."""

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
        f"{name}_{attribute}"
        for name, side in zip(names, (left, right), strict=True)
        for attribute in side.shape.attributes
    )


def sides_of(node: SameEntity | OtherEntities) -> dict[str, tuple[int, str]]:
    """Return for each attribute of a join the side that it is of, and its name there."""
    return {
        f"{name}_{attribute}": (place, attribute)
        for place, (name, side) in enumerate(zip(node.names, (node.left, node.right), strict=True))
        for attribute in side.shape.attributes
    }


def with_inputs(
    node: Node,
    inputs: Mapping[int, Node] | Sequence[Node],
    changed: Callable[[Step], Step] | None = None,
) -> Node:
    """Return a graph with other parts instead of its inputs: ``inputs[i]`` is that of ``i``.

    Args:
        node: the graph.
        inputs: what stands there.
        changed: gives steps that stand instead of its own; None leaves them.
    """

    def change(part: Node, children: tuple[Node, ...]) -> Node:
        if isinstance(part, Input):
            return inputs[part.at]
        if isinstance(part, Unary) and changed is not None:
            part = replace(part, step=changed(part.step))
        return over(part, children)

    return rebuilt(node, change)


def asking(node: Node, asks: Mapping[str, tuple[str, ...]]) -> Node:
    """Return a graph of which some joins, by their texts, ask these sides before."""

    def change(part: Node, children: tuple[Node, ...]) -> Node:
        if isinstance(part, SameEntity):
            part = replace(part, asks=asks.get(str(part), part.asks))
        elif isinstance(part, OtherEntities):
            part = replace(part, step=replace(part.step, asks=asks.get(str(part), part.step.asks)))
        return over(part, children)

    return rebuilt(node, change)


def rebuilt(node: Node, change: Callable[[Node, tuple[Node, ...]], Node]) -> Node:
    """Return a graph of changed parts: ``change`` gets each part, and what it is to read."""
    nodes: dict[int, Node] = {}
    for part in parts(node):
        nodes[id(part)] = change(part, tuple(nodes[id(child)] for child in below(part)))
    return nodes[id(node)]


def over(part: Node, read: Sequence[Node]) -> Node:
    """Return a part that reads others instead of its own."""
    match part:
        case Input():
            return part
        case Unary():
            return replace(part, of=read[0])
        case SameEntity() | OtherEntities():
            return replace(part, left=read[0], right=read[1])


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

    def visit(parent: Node) -> Iterator[Node]:
        if id(parent) not in seen:
            seen.add(id(parent))
            for part in below(parent):
                yield from visit(part)
            yield parent

    return visit(node)


def is_crossing(node: Node) -> bool:
    """Return whether a part makes segments of other entities than those that it reads."""
    if isinstance(node, Unary):
        return isinstance(node.step, OverEntities)
    return isinstance(node, OtherEntities)


def told_bounds(node: Node) -> str:
    """Return the bounds that a graph was given, in words."""
    steps = (part.step for part in parts(node) if isinstance(part, Unary))
    return "; ".join(str(step) for step in steps if isinstance(step, Within))


def sees_entities(node: Node) -> bool:
    """Return whether a step needs all segments of an entity at once."""
    return any(
        isinstance(part, SameEntity) or (isinstance(part, Unary) and part.step.scope != "segment")
        for part in parts(node)
    )


def reach(node: Node) -> int:
    """Return how far back a result looks that is there at an instant (µs)."""
    return _longest(node, "reach_us")


def lag(node: Node) -> int:
    """Return how far before the front of inputs a result may begin that is not over there (µs)."""
    return _longest(node, "lag_us")


def _longest(node: Node, attribute: str) -> int:
    """Return the greatest sum of an attribute of steps."""
    longest: dict[int, int] = {}
    for parent in parts(node):
        amount = getattr(parent.step, attribute) if isinstance(parent, Unary) else 0
        longest[id(parent)] = amount + max((longest[id(part)] for part in below(parent)), default=0)
    return longest[id(node)]


class Watch:
    """Looks on while a graph runs; this one sees nothing."""

    def on(self, what: object) -> AbstractContextManager[None]:  # noqa: ARG002 - nobody asks
        """Return what stands around the work of a step."""
        return nullcontext()

    def tally(self, node: SameEntity | OtherEntities) -> Tally:  # noqa: ARG002
        """Return what takes note of the work of a join."""
        return UNTOLD

    def saw(self, what: object, inputs: Sequence[Keyed], output: Keyed | Rows) -> None:
        """Take note of what came out of a step, or of a join."""


UNWATCHED = Watch()


def run(node: Node, inputs: Sequence[Keyed], watch: Watch = UNWATCHED) -> Keyed | Rows:
    """Return what comes out of a graph over segments of some entities; as ``every``."""
    return every(node, inputs, watch)[id(node)]


def every(node: Node, inputs: Sequence[Keyed], watch: Watch = UNWATCHED) -> dict[int, Keyed | Rows]:
    """Return what comes out of each part of a graph, by its id; ``watch`` looks on."""
    outputs: dict[int, Keyed | Rows] = {}
    for parent in parts(node):
        if isinstance(parent, Input):
            outputs[id(parent)] = inputs[parent.at]
            continue
        arguments = [_segments(outputs[id(part)]) for part in below(parent)]
        match parent:
            case Unary(step):
                with watch.on(step):
                    outputs[id(parent)] = step.run(*arguments)
            case SameEntity() | OtherEntities():
                with watch.on(parent):
                    outputs[id(parent)] = parent.run(
                        arguments[0], arguments[1], watch.tally(parent)
                    )
        watch.saw(
            parent.step if isinstance(parent, Unary) else parent, arguments, outputs[id(parent)]
        )
    return outputs


def _segments(output: Keyed | Rows) -> Keyed:
    assert isinstance(output, Keyed)  # nothing is built on rows
    return output


# -- what tasks run -------------------------------------------------------------------------------


SIDE = "__side"
"""The column that says which input a segment is of."""


def solved(
    tables: Iterable[pa.Table], node: Node, layouts: Sequence[Layout]
) -> Iterator[pa.RecordBatch]:
    """Run a graph over tables of segments.

    Args:
        tables: with all segments of an entity in one where a step needs that; if there are several
            inputs, ``SIDE`` says which a segment is of.
        node: what is done.
        layouts: the columns of each input.
    """
    for table in tables:
        if isinstance(node, Input):
            yield from table.to_batches()
        else:
            yield from _batches(run(node, _inputs(table, layouts)), table)


def newest(tables: Iterable[pa.Table], layout: Layout, version: str) -> Iterator[pa.RecordBatch]:
    """Return what segments say that were written one after the other.

    Args:
        tables: with all segments of an entity in one.
        layout: their columns, and beside them
        version: the one that says which was written later.
    """
    for table in tables:
        block = keyed(table, layout)
        segments = revisions.newest(block.segments, table.column(version).to_numpy())
        yield from _batches(Keyed(segments, block.entities), table)


def spans(
    tables: Iterable[pa.Table], keys: Sequence[str], ends: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Return from where to where each entity has segments in a table, a row each.

    Where two overlap, the table is returned as it is.

    Args:
        tables: of ``keys`` and ``lo``, in any order, and
        ends: columns of where segments end, the last one that of points, too.
        keys: the columns that say the entity.
    """
    for table in tables:
        ids, _ = entity_ids(table, keys)
        lo, last = (micros_of(table.column(column)) for column in ("lo", ends[-1]))
        if revisions.overlap(ids, lo, last):
            yield from table.to_batches()
            continue
        order = np.lexsort((lo, ids))
        lasts = order[timeline.is_last(ids[order])]
        rows = table.take(pa.array(order[timeline.is_first(ids[order])]))
        for name in ends:
            values = table.column(name).take(pa.array(lasts))
            rows = rows.set_column(rows.schema.get_field_index(name), name, values)
        yield from rows.combine_chunks().to_batches()


def stepped(
    tables: Iterable[pa.Table], step: Callable[[Keyed], Keyed], layout: Layout
) -> Iterator[pa.RecordBatch]:
    """Run one step over tables of segments."""
    for table in tables:
        yield from _batches(step(keyed(table, layout)), table)


def paired(
    table: pa.Table, step: DifferentEntities, shapes: tuple[Shape, Shape], n_groups: int
) -> pa.Table:
    """Return the pairs of a cell, whose segments say in ``CELL`` and ``SIDE`` where they are."""
    every = _of_all(table, [shape.layout for shape in shapes])
    cell = table.column(CELL)[0].as_py()
    is_alone = step.is_self and cell // n_groups == cell % n_groups
    sides = None if is_alone else table.column(SIDE).to_numpy()
    return result_table(step.run(every, sides, *shapes), _zone(table))


def _zone(table: pa.Table) -> str | None:
    """Return the time zone of results: that of Spark, whatever its session shows times in."""
    return None if table.column("lo").type.tz is None else "UTC"


def _batches(results: Keyed | Rows, table: pa.Table) -> list[pa.RecordBatch]:
    """Return results as batches, with timestamps like those of what they come from."""
    batches: list[pa.RecordBatch] = (
        result_table(results, _zone(table)).combine_chunks().to_batches()
    )
    return batches


def _inputs(table: pa.Table, layouts: Sequence[Layout]) -> list[Keyed]:
    if len(layouts) == 1:
        return [keyed(table, layouts[0])]
    every, side = _of_all(table, layouts), table.column(SIDE).to_numpy()
    return [every.of(np.flatnonzero(side == place), layout) for place, layout in enumerate(layouts)]


def _of_all(table: pa.Table, layouts: Sequence[Layout]) -> Keyed:
    """Return the segments of several inputs, with the attributes of all."""
    attributes = tuple(dict.fromkeys(name for layout in layouts for name in layout.attributes))
    return keyed(table, Layout(layouts[0].keys, attributes))


# -- how near models have to be to rows -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Precision:
    """Bounds of inputs that are enough for those of outputs.

    Attributes:
        bounds: for each input the bounds of its attributes; what no output needs is left out.
        reads: for each input the attributes that anything reads.
        any_values: of each ``Within`` in the graph, by its ``id``, the attributes whose bound holds
            whatever values are; those of others hold for values in the ranges that were given.
    """

    bounds: Mapping[int, Mapping[str, Bound]]
    reads: Mapping[int, set[str]]
    any_values: Mapping[int, frozenset[str]] = field(default_factory=dict)

    def put_in(self, step: Step) -> Step:
        """Return a ``Within`` that says which of its bounds hold for any values, others as is."""
        if not isinstance(step, Within):
            return step
        return replace(step, any_values=self.any_values[id(step)])


def required(node: Node, values: Values | None = None) -> Precision:
    """Return how near inputs have to be for every ``Within`` of a graph: the least of all bounds.

    Args:
        node: what is computed.
        values: for each input the ranges of attributes; they are looked at only where no bounds are
            enough for all values.

    Raises:
        OptionError: no bounds of inputs are enough, with what is missing; the fact ``ranges`` says
            of which attribute the range of values would help.

    Example:
        >>> from eddyline.models.steps import Extremum, Shape
        >>> highest = Unary(Extremum(10_000_000, None, True), Input(0, Shape((), ("price",))))
        >>> within = Within({"price": Bound.of("price", "1 %")})
        >>> required(Unary(within, highest)).bounds
        {0: {'price': Bound(value=0.01, is_relative=True)}}
    """
    bounds: Found = {}
    any_values: dict[int, frozenset[str]] = {}
    assumed = values or {}
    for part in parts(node):
        if not isinstance(part, Unary) or not isinstance(part.step, Within):
            continue
        certain = set()
        for name, bound in part.step.bounds.items():
            try:
                input_bounds = inverted(part.of, {name: bound}, split=part.step.split)
                certain.add(name)
            except OptionError as error:
                if NEEDS not in error.facts or not assumed:
                    raise
                input_bounds = inverted(part.of, {name: bound}, assumed, split=part.step.split)
            _keep(bounds, input_bounds, assumed)
        any_values[id(part.step)] = frozenset(certain)
    return Precision(_by_input(bounds), reads(node), any_values)


def inverted(
    node: Node, within: Bounds, values: Values | None = None, *, split: Split = EQUAL
) -> dict[tuple[int, str], Bound]:
    """Return how near inputs have to be, so that outputs are within their bounds.

    ``split`` says how inputs share an error. Other arguments
    and errors as of ``required``.
    """
    inverter = _Inverter(values or {}, split=split)
    bounds: Found = {}
    for name, bound in within.items():
        _keep(bounds, inverter.output(node, name, bound), values or {})
    return bounds


def reads(node: Node) -> dict[int, set[str]]:
    """Return for each input the attributes that anything in a graph reads."""
    wanted: dict[int, set[str]] = {id(node): {*node.shape.attributes}}
    attributes: dict[int, set[str]] = {}
    for parent in reversed([*parts(node)]):
        wanted_here = wanted[id(parent)]
        match parent:
            case Input(at):
                attributes.setdefault(at, set()).update(wanted_here)
            case Unary(step, of):
                wanted.setdefault(id(of), set()).update(step.reads(wanted_here))
            case SameEntity() | OtherEntities():
                for part, names in zip(below(parent), _of_sides(parent, wanted_here), strict=True):
                    wanted.setdefault(id(part), set()).update(names)
    return attributes


def _of_sides(node: SameEntity | OtherEntities, wanted: set[str]) -> tuple[set[str], set[str]]:
    """Return what each side of a join is read for: results, conditions, how near they are."""
    sides = sides_of(node)
    names = set(wanted)
    if node.condition is not None:
        names |= {name.replace(".", "_", 1) for name in expressions.attributes(node.condition)}
    near = {*node.step.within} if isinstance(node, OtherEntities) else set()
    one, other = ({sides[name][1] for name in names if sides[name][0] == side} for side in (0, 1))
    return one | near, other | near


class _Inverter:
    """Takes bounds of outputs back to inputs, for values in some ranges."""

    def __init__(self, values: Values, *, split: Split) -> None:
        self._values = values
        self._split = split

    def output(self, node: Node, name: str, bound: Bound) -> Found:
        """Return bounds of inputs for that of an output: by its kernel if it has one."""
        kernel = None if bound.is_relative else self._kernels(node).get(name)
        return self._back(node, {name: bound}) if kernel is None else self._shared(kernel, bound)

    def _shared(self, kernel: Kernel, bound: Bound) -> Found:
        """Return the bounds of the inputs of a weighted integral."""
        gain_of = {key: gain for key, gain in gains(kernel).items() if gain > 0}
        shrunk = SHRUNK if any(gain != 1 for gain in gain_of.values()) else 1.0
        parts = {key: Part(key[1], gain, self._pace_of(*key)) for key, gain in gain_of.items()}
        shares = self._split.of(parts) if parts else {}
        return {
            key: Bound(bound.value * shares[key] / gain * shrunk) for key, gain in gain_of.items()
        }

    def _pace_of(self, place: int, name: str) -> float:
        span = self._values.get(place, {}).get(name)
        if span is None and self._split.needs_pace:
            msg = (
                f"split={self._split.name!r} gives {name!r} a share by how fast it moves, which is "
                "not known here; take split='equal'"
            )
            raise OptionError(msg, attribute=name, **{NEEDS: name})
        return math.nan if span is None else span.pace

    def _ranges(self, node: Node) -> Ranges:
        """Return the ranges of a part's attributes, as far as they are known."""
        match node:
            case Input(at):
                return {**self._values.get(at, {})}
            case Unary(step, of):
                return step.ranges(self._ranges(of))
            case SameEntity(left, right) | OtherEntities(left, right):
                ranges = [self._ranges(left), self._ranges(right)]
                sides = sides_of(node).items()
                return {
                    name: ranges[side][attribute]
                    for name, (side, attribute) in sides
                    if attribute in ranges[side]
                }

    def _kernels(self, node: Node) -> Mapping[str, Kernel]:
        """Return the kernel of each attribute that is a weighted integral of inputs."""
        match node:
            case Input(at, shape):
                return {
                    attribute: {((), at, attribute): {(): 1.0}} for attribute in shape.attributes
                }
            case Unary(step, of):
                return step.kernels(self._kernels(of))
            case SameEntity(left, right) | OtherEntities(left, right):
                sides = [self._kernels(left), self._kernels(right)]
                kernels = {
                    name: (side, sides[side][attribute])
                    for name, (side, attribute) in sides_of(node).items()
                    if attribute in sides[side]
                }
                if isinstance(node, SameEntity):  # errors of one input may cancel
                    return {name: kernel for name, (_, kernel) in kernels.items()}
                return {
                    name: gains_of_side(kernel, side) for name, (side, kernel) in kernels.items()
                }

    def _back(self, node: Node, within: Bounds) -> Found:
        """Return bounds of inputs for those of a part's attributes, a step at a time."""
        bounds: Found = {}
        if not within:
            return bounds
        match node:
            case Input(at):
                bounds = {(at, name): bound for name, bound in within.items()}
            case Unary(step, of):
                within_below = step.back(within, self._ranges(of), split=self._split)
                bounds = self._back(of, within_below)
            case SameEntity() | OtherEntities():
                sides = sides_of(node)
                for side, part in enumerate(below(node)):
                    side_bounds = {
                        sides[name][1]: bound
                        for name, bound in within.items()
                        if sides[name][0] == side
                    }
                    _keep(bounds, self._back(part, side_bounds), self._values)
        return bounds


def _keep(bounds: Found, more: Mapping[tuple[int, str], Bound], values: Values) -> None:
    """Take the lesser bound of each attribute."""
    for (place, name), bound in more.items():
        before = bounds.get((place, name), bound)
        bounds[place, name] = tighter(name, before, bound, {**values.get(place, {})})


def _by_input(bounds: Found) -> dict[int, dict[str, Bound]]:
    by_input: dict[int, dict[str, Bound]] = {}
    for (place, name), bound in bounds.items():
        by_input.setdefault(place, {})[name] = bound
    return by_input
