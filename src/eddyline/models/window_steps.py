"""Steps over windows of time, and over entities at an instant."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from eddyline.models import extrema, gains, inversion, totals, windows
from eddyline.models.bounds import Bound
from eddyline.models.distances import average_distances
from eddyline.models.overflow import samples_in_range, segments_in_range
from eddyline.models.ranges import Range
from eddyline.models.rows import Keyed, entity_ids, in_key_order
from eddyline.models.segments import MICROS
from eddyline.models.steps import Kept, Rows, Shape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.data.arrays import Ints
    from eddyline.models.inversion import Bounds
    from eddyline.models.ranges import Ranges
    from eddyline.models.segments import Segments
    from eddyline.models.steps import Kernels, Scope


@dataclass(frozen=True, slots=True)
class Integral(Kept):
    """Sums or averages over a sliding window, as polynomials or at ticks."""

    width_us: int
    every_us: int | None
    is_average: bool
    is_covered: bool
    scope: ClassVar[Scope] = "entity"

    def shape(self, given: Shape) -> Shape:
        """Return segments, or rows at ticks."""
        return _windowed(given, self.every_us)

    def run(self, given: Keyed) -> Keyed | Rows:
        """Return the sums or averages of all attributes."""
        segments, covered = given.segments, self.is_covered
        if self.every_us is None:
            over = windows.windowed_average if self.is_average else windows.windowed_sum
            made = over(segments, self.width_us, covered=covered)
            return segments_in_range(Keyed(made, given.entities), self)
        at = windows.averages_at if self.is_average else windows.sums_at
        found = at(segments, self.width_us, self.every_us, covered=covered)
        return Rows(samples_in_range(found, given.entities, self), given.entities)

    def ranges(self, below: Ranges) -> Ranges:
        """Return those of averages, which are the same, or of sums."""
        if self.is_average:
            return below
        found = {name: each.scaled(self._seconds) for name, each in below.items()}
        if not self.is_covered:
            return found
        return {
            name: Range(min(low, 0.0), max(high, 0.0), pace)
            for name, (low, high, pace) in found.items()
        }

    def kernels(self, below: Kernels) -> Kernels:
        """Return those of what is averaged over one more window."""
        return {
            name: gains.averaged(each, self.width_us, self._seconds, is_covered=self.is_covered)
            for name, each in below.items()
        }

    def back(self, within: Bounds, below: Ranges, *, by_pace: bool) -> Bounds:  # noqa: ARG002
        """Return the same bounds of an average, and those of a sum by seconds."""
        above = self.ranges(below)
        return {
            name: inversion.of_integral(name, each, below, above, self._seconds)
            for name, each in within.items()
        }

    @property
    def reach_us(self) -> int:
        """How far back a result looks that is there at an instant (µs)."""
        return self.width_us

    @property
    def lag_us(self) -> int:
        """How long a result may last that a later segment makes shorter (µs)."""
        return self.width_us if self.is_covered and self.every_us is None else 0

    @property
    def _seconds(self) -> float:
        """By what an average is multiplied."""
        return 1.0 if self.is_average else self.width_us * MICROS

    def __str__(self) -> str:
        return _said("average" if self.is_average else "sum", self.width_us, self.every_us)


class _Extreme(Kept):
    """What is so of least and greatest values."""

    __slots__ = ()

    def kernels(self, below: Kernels) -> Kernels:  # noqa: ARG002 - an extreme is no integral
        """Return none."""
        return {}

    def back(self, within: Bounds, below: Ranges, *, by_pace: bool) -> Bounds:  # noqa: ARG002
        """Return the same bounds: an extreme moves no more than what moves most."""
        return {name: inversion.of_extreme(name, each, below) for name, each in within.items()}


@dataclass(frozen=True, slots=True)
class Extremum(_Extreme):
    """The least or greatest value of a sliding window, as polynomials or at ticks."""

    width_us: int
    every_us: int | None
    is_largest: bool
    scope: ClassVar[Scope] = "entity"

    def shape(self, given: Shape) -> Shape:
        """Return segments, or rows at ticks."""
        return _windowed(given, self.every_us)

    def run(self, given: Keyed) -> Keyed | Rows:
        """Return the extremum of the one attribute that there is."""
        (attribute,) = given.segments.coefs
        segments, width, largest = given.segments, self.width_us, self.is_largest
        if self.every_us is None:
            found = extrema.windowed_extremum(segments, attribute, width, largest=largest)
            return Keyed(found, given.entities)
        at = extrema.extrema_at(segments, attribute, width, self.every_us, largest=largest)
        return Rows(samples_in_range(at, given.entities, self), given.entities)

    @property
    def reach_us(self) -> int:
        """How far back a result looks that is there at an instant (µs).

        A piece that is of several segments is no longer than a window, and sees one more.
        """
        return self.width_us * (2 if self.every_us is None else 1)

    @property
    def lag_us(self) -> int:
        """How long a result may last that a later segment makes shorter, or longer (µs)."""
        return self.width_us if self.every_us is None else 0

    def __str__(self) -> str:
        return _said("greatest" if self.is_largest else "least", self.width_us, self.every_us)


@dataclass(frozen=True, slots=True)
class OverEntities(Kept):
    """One value of several entities at each instant."""

    by: tuple[str, ...]
    """The keys by which entities are grouped; none is one group."""
    scope: ClassVar[Scope] = "entities"

    def shape(self, given: Shape) -> Shape:
        """Return segments of groups."""
        return Shape(self.by, given.attributes)

    def partial(self, given: Keyed) -> Keyed:
        """Return of some segments those that may count among all, each as its entity's."""
        ordered = in_key_order(given)
        return Keyed(self._kept(ordered.segments, self._groups(ordered)[0]), ordered.entities)

    def run(self, given: Keyed) -> Keyed:
        """Return the values of groups.

        Nothing depends on the order of segments: entities are taken in the order of their keys.
        """
        ordered = in_key_order(given)
        groups, entities = self._groups(ordered)
        return segments_in_range(Keyed(self._made(ordered.segments, groups), entities), self)

    def _kept(self, segments: Segments, groups: Ints) -> Segments:
        """Return what is needed of some segments, with the group of each."""
        raise NotImplementedError

    def _made(self, segments: Segments, groups: Ints) -> Segments:
        """Return the values of groups, whose ids are the keys."""
        raise NotImplementedError

    def _groups(self, given: Keyed) -> tuple[Ints, pa.Table]:
        if not self.by:  # a table without columns has no rows either
            return np.zeros(len(given.segments), np.int64), pa.table({})
        ids, first = entity_ids(given.entities, self.by)
        entities = given.entities.select(list(self.by)).take(pa.array(first))
        return ids[given.segments.keys], entities

    def _told(self, what: str) -> str:
        group = f" by {', '.join(self.by)}" if self.by else ""
        return f"{what} over entities{group}"


@dataclass(frozen=True, slots=True)
class Envelope(OverEntities, _Extreme):
    """The least or greatest value of the one attribute that there is.

    Of entities that are equal over a while the one of the least keys is taken.
    """

    is_largest: bool

    def _kept(self, segments: Segments, groups: Ints) -> Segments:
        (attribute,) = segments.coefs
        return extrema.candidates(segments, attribute, largest=self.is_largest, groups=groups)

    def _made(self, segments: Segments, groups: Ints) -> Segments:
        (attribute,) = segments.coefs
        found = extrema.envelope(segments, attribute, largest=self.is_largest, groups=groups)
        return found.segments

    def __str__(self) -> str:
        return self._told("greatest" if self.is_largest else "least")


@dataclass(frozen=True, slots=True)
class Total(OverEntities):
    """The sum or the average of all attributes, of the entities that have a value."""

    is_average: bool

    def _kept(self, segments: Segments, groups: Ints) -> Segments:  # noqa: ARG002 - all count
        return segments.under(totals.are_counted(segments))

    def _made(self, segments: Segments, groups: Ints) -> Segments:
        return totals.totals(segments, groups, is_average=self.is_average)

    def ranges(self, below: Ranges) -> Ranges:
        """Return those of averages, which are the same, or the signs that sums keep."""
        if self.is_average:
            return below
        return {
            name: Range(*((each.low, math.inf) if each.low >= 0 else (-math.inf, each.high)))
            for name, each in below.items()
            if each.has_one_sign
        }

    def kernels(self, below: Kernels) -> Kernels:  # noqa: ARG002 - of how many is not known
        """Return none."""
        return {}

    def back(self, within: Bounds, below: Ranges, *, by_pace: bool) -> Bounds:  # noqa: ARG002
        """Return the same bounds of an average, and the same shares of a sum."""
        if self.is_average:
            return {
                name: inversion.of_integral(name, each, below, below, 1.0)
                for name, each in within.items()
            }
        return {name: inversion.of_total(name, each, below) for name, each in within.items()}

    def __str__(self) -> str:
        return self._told("average" if self.is_average else "sum")


@dataclass(frozen=True, slots=True)
class AverageDistance:
    """The average distance of two positions over windows that close at ticks."""

    axes: Mapping[str, str]
    width_us: int
    every_us: int
    is_covered: bool
    below: float | None = None
    """Less than what averages have to be; None: all are wanted."""
    scope: ClassVar[Scope] = "entity"

    def shape(self, given: Shape) -> Shape:
        """Return rows with a ``distance``."""
        return Shape(given.keys, ("distance",), "samples")

    def run(self, given: Keyed) -> Rows:
        """Return the distances."""
        found = average_distances(
            given.segments, self.axes, self.width_us, self.every_us, covered=self.is_covered,
            below=self.below,
        )  # fmt: skip
        return Rows(samples_in_range(found, given.entities, self), given.entities)

    @property
    def reach_us(self) -> int:
        """How far back a result looks that is there at an instant (µs)."""
        return self.width_us

    def reads(self, wanted: set[str]) -> set[str]:  # noqa: ARG002 - there is one output
        """Return the positions."""
        return {*self.axes, *self.axes.values()}

    def ranges(self, below: Ranges) -> Ranges:
        """Return that of distances."""
        if not self.reads(set()) <= set(below):
            return {}
        apart = [
            below[one].plus(below[other].times(Range(-1.0, -1.0, 0.0)))
            for one, other in self.axes.items()
        ]
        least = math.hypot(*(each.nearest for each in apart))
        pace = sum(each.pace for each in apart)
        return {"distance": Range(least, math.hypot(*(each.farthest for each in apart)), pace)}

    def kernels(self, below: Kernels) -> Kernels:  # noqa: ARG002 - a distance is no integral
        """Return none."""
        return {}

    def back(self, within: Bounds, below: Ranges, *, by_pace: bool) -> Bounds:  # noqa: ARG002
        """Return an equal share for each coordinate."""
        if "distance" not in within:
            return {}
        far = inversion.distance("distance", within["distance"], self.ranges(below))
        near = Bound(far / (2 * len(self.axes) ** 0.5) * inversion.SHRUNK)
        return dict.fromkeys(sorted(self.reads(set())), near)

    def __str__(self) -> str:
        most = "" if self.below is None else f" below {self.below:g}"
        return _said(f"average distance{most}", self.width_us, self.every_us)


def _windowed(given: Shape, every_us: int | None) -> Shape:
    return Shape(given.keys, given.attributes, "segments" if every_us is None else "samples")


def _said(what: str, width_us: int, every_us: int | None) -> str:
    ticks = "" if every_us is None else f", every {every_us * 1e-6:g} s"
    return f"{what} of the last {width_us * 1e-6:g} s{ticks}"
