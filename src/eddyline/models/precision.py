"""How near models have to be to rows, for the outputs of a query to be as near as is asked.

``WITHIN`` on outputs becomes a bound for each attribute of each input of a graph (Pulse 3.12). What
it says is a theorem: if every input is within its bound at every instant, every output is within
its own.

An output that is linear in its inputs is a weighted integral of them, and takes the whole graph at
once: MACD ± 0.5 asks for a price within 0.3. Others go back step by step, with a share for each
input: averages and extremes keep a bound, sums divide it by the width, products look at how large
their factors are.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from eddyline.errors import OptionError
from eddyline.models import conditions, gains, graph
from eddyline.models.bounds import Bound
from eddyline.models.graph import Input, OtherEntities, SameEntity, Unary
from eddyline.models.inversion import NEEDS, SHRUNK, tighter
from eddyline.models.splits import shares_of
from eddyline.models.steps import Within

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.models.gains import Kernel
    from eddyline.models.graph import Node
    from eddyline.models.inversion import Bounds
    from eddyline.models.ranges import Range, Ranges
    from eddyline.models.steps import Step

    Values = Mapping[int, Mapping[str, Range]]
    """For each input the ranges of its attributes' values."""
    Found = dict[tuple[int, str], Bound]
    """The bound of each attribute of each input."""


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
    found: Found = {}
    any_values: dict[int, frozenset[str]] = {}
    given = values or {}
    for part in graph.parts(node):
        if not isinstance(part, Unary) or not isinstance(part.step, Within):
            continue
        certain = set()
        for name, bound in part.step.bounds.items():
            known: Values = {}
            try:
                each = inverted(part.of, {name: bound}, by_pace=part.step.by_pace)
                certain.add(name)
            except OptionError as error:
                if NEEDS not in error.facts or not given:
                    raise
                known = given
                each = inverted(part.of, {name: bound}, known, by_pace=part.step.by_pace)
            _keep(found, each, given)
        any_values[id(part.step)] = frozenset(certain)
    return Precision(_by_input(found), reads(node), any_values)


def inverted(
    node: Node, within: Bounds, values: Values | None = None, *, by_pace: bool = False
) -> dict[tuple[int, str], Bound]:
    """Return how near inputs have to be, so that outputs are within their bounds.

    Args:
        node: what computes the outputs.
        within: the bounds of outputs.
        values: as for ``required``.
        by_pace: whether shares of an error are as inputs move, and not equal.

    Raises:
        OptionError: as ``required``.
    """
    inverter = _Inverter(values or {}, by_pace=by_pace)
    found: Found = {}
    for name, bound in within.items():
        _keep(found, inverter.output(node, name, bound), values or {})
    return found


def reads(node: Node) -> dict[int, set[str]]:
    """Return for each input the attributes that anything in a graph reads."""
    wanted: dict[int, set[str]] = {id(node): {*node.shape.attributes}}
    found: dict[int, set[str]] = {}
    for each in reversed([*graph.parts(node)]):
        own = wanted[id(each)]
        match each:
            case Input(at):
                found.setdefault(at, set()).update(own)
            case Unary(step, of):
                wanted.setdefault(id(of), set()).update(step.reads(own))
            case SameEntity() | OtherEntities():
                for part, names in zip(graph.below(each), _of_sides(each, own), strict=True):
                    wanted.setdefault(id(part), set()).update(names)
    return found


def _of_sides(node: SameEntity | OtherEntities, wanted: set[str]) -> tuple[set[str], set[str]]:
    """Return what each side of a join is read for: results, conditions, how near they are."""
    sides = graph.sides_of(node)
    names = set(wanted)
    if node.condition is not None:
        names |= {each.replace(".", "_", 1) for each in conditions.attributes(node.condition)}
    near = {*node.step.within} if isinstance(node, OtherEntities) else set()
    one, other = ({sides[name][1] for name in names if sides[name][0] == at} for at in (0, 1))
    return one | near, other | near


class _Inverter:
    """Takes bounds of outputs back to inputs, for values in some ranges."""

    def __init__(self, values: Values, *, by_pace: bool) -> None:
        self._values = values
        self._by_pace = by_pace

    def output(self, node: Node, name: str, bound: Bound) -> Found:
        """Return bounds of inputs for that of an output: by its kernel if it has one."""
        kernel = None if bound.is_relative else self._kernels(node).get(name)
        return self._back(node, {name: bound}) if kernel is None else self._shared(kernel, bound)

    def _shared(self, kernel: Kernel, bound: Bound) -> Found:
        """Return the bounds of the inputs of a weighted integral."""
        parts = {key: gain for key, gain in gains.gains(kernel).items() if gain > 0}
        shrunk = SHRUNK if any(gain != 1 for gain in parts.values()) else 1.0
        shares = dict.fromkeys(parts, 1 / max(len(parts), 1))
        if self._by_pace and parts:
            paces = {
                f"{at}.{name}": gain * self._known(at, name).pace
                for (at, name), gain in parts.items()
            }
            shares = dict(zip(parts, shares_of(paces).values(), strict=True))
        return {
            key: Bound(bound.value * shares[key] / gain * shrunk) for key, gain in parts.items()
        }

    def _known(self, at: int, name: str) -> Range:
        found = self._values.get(at, {}).get(name)
        if found is None:
            msg = (
                f"split='gradient' gives {name!r} a share by how fast it moves, which is not known "
                "here; take split='equal'"
            )
            raise OptionError(msg, attribute=name, **{NEEDS: name})
        return found

    def _ranges(self, node: Node) -> Ranges:
        """Return the ranges of a part's attributes, as far as they are known."""
        match node:
            case Input(at):
                return {**self._values.get(at, {})}
            case Unary(step, of):
                return step.ranges(self._ranges(of))
            case SameEntity(left, right) | OtherEntities(left, right):
                own = [self._ranges(left), self._ranges(right)]
                sides = graph.sides_of(node).items()
                return {name: own[at][each] for name, (at, each) in sides if each in own[at]}

    def _kernels(self, node: Node) -> Mapping[str, Kernel]:
        """Return the kernel of each attribute that is a weighted integral of inputs."""
        match node:
            case Input(at, shape):
                return {each: {((), at, each): {(): 1.0}} for each in shape.attributes}
            case Unary(step, of):
                return step.kernels(self._kernels(of))
            case SameEntity(left, right) | OtherEntities(left, right):
                own = [self._kernels(left), self._kernels(right)]
                found = {
                    name: (at, own[at][each])
                    for name, (at, each) in graph.sides_of(node).items()
                    if each in own[at]
                }
                if isinstance(node, SameEntity):  # errors of one input may cancel
                    return {name: kernel for name, (_, kernel) in found.items()}
                return {name: gains.of_side(kernel, at) for name, (at, kernel) in found.items()}

    def _back(self, node: Node, within: Bounds) -> Found:
        """Return bounds of inputs for those of a part's attributes, a step at a time."""
        found: Found = {}
        if not within:
            return found
        match node:
            case Input(at):
                found = {(at, name): bound for name, bound in within.items()}
            case Unary(step, of):
                below = step.back(within, self._ranges(of), by_pace=self._by_pace)
                found = self._back(of, below)
            case SameEntity() | OtherEntities():
                sides = graph.sides_of(node)
                for side, part in enumerate(graph.below(node)):
                    own = {
                        sides[name][1]: bound
                        for name, bound in within.items()
                        if sides[name][0] == side
                    }
                    _keep(found, self._back(part, own), self._values)
        return found


def _keep(found: Found, more: Mapping[tuple[int, str], Bound], values: Values) -> None:
    """Take the lesser bound of each attribute."""
    for (at, name), bound in more.items():
        before = found.get((at, name), bound)
        found[at, name] = tighter(name, before, bound, {**values.get(at, {})})


def _by_input(found: Found) -> dict[int, dict[str, Bound]]:
    made: dict[int, dict[str, Bound]] = {}
    for (at, name), bound in found.items():
        made.setdefault(at, {})[name] = bound
    return made
