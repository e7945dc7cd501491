"""Plans over models as values: what attributes a query computes of its sources, and of what ranges.

Enough to say how far an output moves if inputs do; nothing here runs a query. ``kernels`` says it
for what is linear: an output is then a weighted integral of the past of its inputs, and it moves by
at most the integral of the weights' absolute values (Pulse 3.12).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eddyline.errors import OptionError
from eddyline.models.expressions import (
    Attribute,
    Expression,
    Number,
    Power,
    Product,
    Slope,
    Sum,
)
from eddyline.models.segments import MICROS
from eddyline.models.splits import weights_of
from eddyline.options import is_one_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    Range = tuple[float, float]
    """The least and the greatest value."""
    Path = tuple[tuple[str, ...], str, str]
    """The sides of pairs that an input came through, its source, and its name there."""
    Chain = tuple[tuple[int, bool], ...]
    """The windows that an input is averaged over: widths (µs), and whether a part counts."""
    Kernel = dict[Path, dict[Chain, float]]
    """How much of each input's averages is in an output."""

FUNCTIONS = ("avg", "sum", "min", "max")
"""Aggregates over windows, or over entities at an instant."""


@dataclass(frozen=True, slots=True)
class Source:
    """A stream with modelled attributes."""

    name: str
    attributes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Selected:
    """The same attributes on the ranges where a condition holds.

    A bound is of values: it does not say which instants are selected.
    """

    part: Plan


@dataclass(frozen=True, slots=True)
class Mapped:
    """Attributes that are computed of those of an instant."""

    part: Plan
    columns: Mapping[str, Expression]


@dataclass(frozen=True, slots=True)
class Aggregated:
    """Each attribute over a sliding window, or its extreme over entities at an instant.

    Raises:
        OptionError: the function is unknown, or a window has no width.
    """

    part: Plan
    function: str
    """One of ``avg sum min max``; a sum is an integral over seconds."""
    width_us: int = 0
    """How long windows are (µs); 0 is an extreme over entities at an instant."""
    is_covered: bool = False
    """Whether windows count that segments cover in part."""

    def __post_init__(self) -> None:
        is_one_of(self, "function", FUNCTIONS)
        if self.width_us <= 0 and (self.function in {"avg", "sum"} or self.width_us < 0):
            msg = f"{self.function} is over windows longer than 0, got {self.width_us} microseconds"
            raise OptionError(msg, function=self.function, width_us=self.width_us)


@dataclass(frozen=True, slots=True)
class Paired:
    """Pairs of two sides at the same instants, with attributes ``left.x`` and ``right.x``."""

    left: Plan
    right: Plan
    names: tuple[str, str] = ("left", "right")
    is_same_entity: bool = True
    """Whether both sides are of one entity: then errors of one source may cancel."""

    @property
    def sides(self) -> tuple[tuple[str, Plan], tuple[str, Plan]]:
        """The name and the plan of each side."""
        return (self.names[0], self.left), (self.names[1], self.right)


@dataclass(frozen=True, slots=True)
class Distance:
    """The distance of two positions, as ``distance``."""

    part: Plan
    axes: tuple[tuple[str, str], ...]
    """For each axis the attributes of both positions."""


Plan = Source | Selected | Mapped | Aggregated | Paired | Distance
Ranges = dict[str, "Range"]
"""The range of each attribute that one is known of."""


def ranges_of(plan: Plan, given: Mapping[str, Mapping[str, Range]]) -> Ranges:
    """Return the ranges of a plan's attributes.

    Args:
        plan: any.
        given: for each source the ranges of attributes; those that are left out are not known.
    """
    found: Ranges = {}
    match plan:
        case Source(name, names):
            known = given.get(name, {})
            found = {each: known[each] for each in names if each in known}
        case Selected(part):
            found = ranges_of(part, given)
        case Mapped(part, columns):
            below = ranges_of(part, given)
            every = {name: range_of(each, below) for name, each in columns.items()}
            found = {name: each for name, each in every.items() if each is not None}
        case Aggregated(part):
            below = ranges_of(part, given)
            found = aggregated(plan, below)
        case Paired():
            for side, part in plan.sides:
                found |= {f"{side}.{name}": each for name, each in ranges_of(part, given).items()}
        case Distance(part, axes):
            below = ranges_of(part, given)
            if all(name in below for axis in axes for name in axis):
                apart = [
                    _sum(below[one], _times((-1.0, -1.0), below[other])) for one, other in axes
                ]
                least = math.hypot(*(nearest(each) for each in apart))
                found = {"distance": (least, math.hypot(*(_farthest(each) for each in apart)))}
    return found


def aggregated(plan: Aggregated, below: Mapping[str, Range]) -> Ranges:
    """Return the ranges of aggregates by those of what is aggregated."""
    if plan.function != "sum":
        return {**below}
    seconds = plan.width_us * MICROS
    found = {name: (low * seconds, high * seconds) for name, (low, high) in below.items()}
    if plan.is_covered:
        return {name: (min(low, 0.0), max(high, 0.0)) for name, (low, high) in found.items()}
    return found


def range_of(expression: Expression, known: Mapping[str, Range]) -> Range | None:
    """Return the range of an expression by those of its attributes, None if one is not known."""
    found = None
    match expression:
        case Number(value):
            found = (value, value)
        case Attribute(name):
            found = known.get(name)
        case Sum(left, right) | Product(left, right):
            one, other = range_of(left, known), range_of(right, known)
            if one is not None and other is not None:
                found = _sum(one, other) if isinstance(expression, Sum) else _times(one, other)
        case Power(part, exponent):
            one = range_of(part, known)
            if one is not None:
                ends = sorted((one[0] ** exponent, one[1] ** exponent))
                is_even = exponent % 2 == 0 and exponent > 0
                found = (nearest(one) ** exponent if is_even else ends[0], ends[1])
        case Slope():
            found = None
    return found


def nearest(of: Range) -> float:
    """Return the least distance from 0 in a range."""
    return max(of[0], -of[1], 0.0)


def kernels(plan: Plan) -> dict[str, Kernel]:
    """Return the kernel of each attribute that is a weighted integral of its inputs."""
    found: dict[str, Kernel] = {}
    match plan:
        case Source(name, names):
            found = {each: {((), name, each): {(): 1.0}} for each in names}
        case Selected(part):
            found = kernels(part)
        case Mapped(part, columns):
            below = kernels(part)
            for name, expression in columns.items():
                weights = weights_of(expression)
                if weights is not None and set(weights) <= set(below):
                    found[name] = _combined(weights, below)
        case Aggregated(part, function) if function in {"avg", "sum"}:
            found = {name: _averaged(each, plan) for name, each in kernels(part).items()}
        case Paired():
            for side, part in plan.sides:
                below = kernels(part)
                for name, each in below.items():
                    found[f"{side}.{name}"] = each if plan.is_same_entity else _of_side(each, side)
        case _:  # extremes and distances are no integrals
            pass
    return found


def gains(kernel: Kernel) -> dict[tuple[str, str], float]:
    """Return by how much an output moves at most, if an attribute of a source does by 1."""
    found: dict[tuple[str, str], float] = {}
    for (_, source, name), chains in kernel.items():
        found[source, name] = found.get((source, name), 0.0) + _norm(chains)
    return found


def _combined(weights: Mapping[str, float], below: Mapping[str, Kernel]) -> Kernel:
    found: Kernel = {}
    for name, weight in weights.items():
        for path, chains in below[name].items():
            into = found.setdefault(path, {})
            for chain, part in chains.items():
                into[chain] = into.get(chain, 0.0) + weight * part
    return found


def _averaged(kernel: Kernel, plan: Aggregated) -> Kernel:
    factor = plan.width_us * MICROS if plan.function == "sum" else 1.0
    window = (plan.width_us, plan.is_covered)
    return {
        path: {tuple(sorted((*chain, window))): factor * part for chain, part in chains.items()}
        for path, chains in kernel.items()
    }


def _of_side(kernel: Kernel, side: str) -> Kernel:
    return {((side, *path), source, name): each for (path, source, name), each in kernel.items()}


def _norm(chains: Mapping[Chain, float]) -> float:
    """Return the integral of the absolute value of a sum of averages' weights.

    Single windows are steps that add up where they overlap. Windows of windows, and those that
    count in part, are taken each alone, which is never less.
    """
    boxes, total = [], 0.0
    for chain, part in chains.items():
        if len(chain) == 1 and not chain[0][1]:
            boxes.append((chain[0][0], part))
        else:
            total += abs(part)
    edges = sorted({0, *(width for width, _ in boxes)})
    for start, stop in itertools.pairwise(edges):
        height = sum(part / width for width, part in boxes if width >= stop)
        total += abs(height) * (stop - start)
    return total


def _sum(one: Range, other: Range) -> Range:
    return one[0] + other[0], one[1] + other[1]


def _times(one: Range, other: Range) -> Range:
    ends = [a * b for a in one for b in other]
    return min(ends), max(ends)


def _farthest(of: Range) -> float:
    return max(abs(of[0]), abs(of[1]))
