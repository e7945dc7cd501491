"""What is done with segments, as values: a step says what comes out, and does it with arrays.

``scope`` says which segments a step has to see together: each by itself, or all of an entity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

import numpy as np
import pyarrow as pa

from eddyline.models import extrema, sampling, windows
from eddyline.models.distances import average_distances
from eddyline.models.expressions import Attribute, Expression, projected
from eddyline.models.rows import ERR, Keyed, Layout, entity_ids, instants_of, table_of
from eddyline.models.solving import solutions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.data.arrays import Ints
    from eddyline.models.conditions import Condition
    from eddyline.models.sampling import Samples

Kind = Literal["segments", "samples", "changes"]
Scope = Literal["segment", "entity"]
TIME, SINCE, UNTIL = "time", "since", "until"
"""Columns of results that are rows: an instant, or the range over which an entity has a model."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Which columns come out of a step."""

    keys: tuple[str, ...]
    attributes: tuple[str, ...]
    kind: Kind = "segments"

    @property
    def layout(self) -> Layout:
        """The columns of segments."""
        return Layout(self.keys, self.attributes)

    @property
    def times(self) -> tuple[str, ...]:
        """The columns of time of results that are rows."""
        return (TIME,) if self.kind == "samples" else (SINCE, UNTIL)


@dataclass(frozen=True)
class Rows:
    """Results that are rows.

    Attributes:
        samples: values of entities at instants.
        entities: their keys, a row an id.
        ends: until when an entity has a model, microseconds, ``[n]``; None for samples.
    """

    samples: Samples
    entities: pa.Table
    ends: Ints | None = None


class Step(Protocol):
    """A step with one input."""

    @property
    def scope(self) -> Scope:
        """Which segments it sees together."""

    def shape(self, given: Shape) -> Shape:
        """Return what comes out."""

    def run(self, given: Keyed) -> Keyed | Rows:
        """Return the results of segments."""


@dataclass(frozen=True, slots=True)
class Where:
    """The ranges on which a condition holds."""

    condition: Condition
    text: str
    scope: ClassVar[Scope] = "segment"

    def shape(self, given: Shape) -> Shape:
        """Return the same shape."""
        return given

    def run(self, given: Keyed) -> Keyed:
        """Return the segments on these ranges."""
        found = solutions(given.segments, self.condition)
        return Keyed(found.of(given.segments), given.entities)

    def __str__(self) -> str:
        return f"where {self.text}"


@dataclass(frozen=True, slots=True)
class Project:
    """Attributes that are computed from those that there are."""

    columns: Mapping[str, Expression]
    texts: Mapping[str, str]
    scope: ClassVar[Scope] = "segment"

    @classmethod
    def onto(cls, *attributes: str) -> Project:
        """Keep some attributes."""
        return cls({each: Attribute(each) for each in attributes}, {a: a for a in attributes})

    def shape(self, given: Shape) -> Shape:
        """Return the shape with these attributes."""
        return Shape(given.keys, tuple(self.columns))

    def run(self, given: Keyed) -> Keyed:
        """Return segments with these attributes."""
        return Keyed(projected(given.segments, self.columns), given.entities)

    def __str__(self) -> str:
        told = (text if text == name else f"{text} AS {name}" for name, text in self.texts.items())
        return f"select {', '.join(told)}"


@dataclass(frozen=True, slots=True)
class Integral:
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
            return Keyed(over(segments, self.width_us, covered=covered), given.entities)
        at = windows.averages_at if self.is_average else windows.sums_at
        return Rows(at(segments, self.width_us, self.every_us, covered=covered), given.entities)

    def __str__(self) -> str:
        return _said("average" if self.is_average else "sum", self.width_us, self.every_us)


@dataclass(frozen=True, slots=True)
class Extremum:
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
        return Rows(at, given.entities)

    def __str__(self) -> str:
        return _said("greatest" if self.is_largest else "least", self.width_us, self.every_us)


@dataclass(frozen=True, slots=True)
class Envelope:
    """The least or greatest value of several entities at each instant."""

    by: tuple[str, ...]
    is_largest: bool

    def shape(self, given: Shape) -> Shape:
        """Return segments of groups."""
        return Shape(self.by, given.attributes)

    def partial(self, given: Keyed) -> Keyed:
        """Return of some segments those that may be extreme among all, each as its entity's."""
        (attribute,) = given.segments.coefs
        groups, _ = self._groups(given)
        found = extrema.envelope(given.segments, attribute, largest=self.is_largest, groups=groups)
        kept = given.segments.take(found.rows)
        return Keyed(kept.cut(found.segments.lo, found.segments.hi), given.entities)

    def run(self, given: Keyed) -> Keyed:
        """Return the extremum of the one attribute that there is."""
        (attribute,) = given.segments.coefs
        groups, entities = self._groups(given)
        found = extrema.envelope(given.segments, attribute, largest=self.is_largest, groups=groups)
        return Keyed(found.segments, entities)

    def _groups(self, given: Keyed) -> tuple[Ints, pa.Table]:
        if not self.by:  # a table without columns has no rows either
            return np.zeros(len(given.segments), np.int64), pa.table({})
        ids, first = entity_ids(given.entities, self.by)
        entities = given.entities.select(list(self.by)).take(pa.array(first))
        return ids[given.segments.keys], entities

    def __str__(self) -> str:
        group = f" by {', '.join(self.by)}" if self.by else ""
        return f"{'greatest' if self.is_largest else 'least'} over entities{group}"


@dataclass(frozen=True, slots=True)
class AverageDistance:
    """The average distance of two positions over windows that close at ticks."""

    axes: Mapping[str, str]
    width_us: int
    every_us: int
    is_covered: bool
    scope: ClassVar[Scope] = "entity"

    def shape(self, given: Shape) -> Shape:
        """Return rows with a ``distance``."""
        return Shape(given.keys, ("distance",), "samples")

    def run(self, given: Keyed) -> Rows:
        """Return the distances."""
        found = average_distances(
            given.segments, self.axes, self.width_us, self.every_us, covered=self.is_covered
        )
        return Rows(found, given.entities)

    def __str__(self) -> str:
        return _said("average distance", self.width_us, self.every_us)


@dataclass(frozen=True, slots=True)
class Sample:
    """Values at ticks, and of points at their instants."""

    every_us: int
    scope: ClassVar[Scope] = "segment"

    def shape(self, given: Shape) -> Shape:
        """Return rows."""
        return Shape(given.keys, given.attributes, "samples")

    def run(self, given: Keyed) -> Rows:
        """Return the values."""
        return Rows(sampling.sampled(given.segments, self.every_us), given.entities)

    def __str__(self) -> str:
        return f"sample every {self.every_us * 1e-6:g} s"


@dataclass(frozen=True, slots=True)
class Changes:
    """A row for each range over which an entity has a model without a gap."""

    scope: ClassVar[Scope] = "entity"

    def shape(self, given: Shape) -> Shape:
        """Return rows."""
        return Shape(given.keys, given.attributes, "changes")

    def run(self, given: Keyed) -> Rows:
        """Return the values with which ranges begin, and their ends."""
        found = sampling.changes(given.segments)
        return Rows(found.starts, given.entities, found.ends)

    def __str__(self) -> str:
        return "changes only"


def result_table(found: Keyed | Rows, zone: str | None) -> pa.Table:
    """Return results as a table; ``zone`` as for ``table_of``."""
    if isinstance(found, Keyed):
        return table_of(found, zone)
    samples = found.samples
    names = found.entities.take(pa.array(samples.keys))
    columns = dict(zip(names.column_names, names.columns, strict=True))
    if found.ends is None:
        columns[TIME] = instants_of(samples.times, zone)
    else:
        columns[SINCE] = instants_of(samples.times, zone)
        columns[UNTIL] = instants_of(found.ends, zone)
    for name, values in samples.values.items():
        columns[name] = pa.array(values)
        columns[ERR + name] = pa.array(np.asarray(samples.errors[name], np.float64))
    return pa.table(columns)


def _windowed(given: Shape, every_us: int | None) -> Shape:
    return Shape(given.keys, given.attributes, "segments" if every_us is None else "samples")


def _said(what: str, width_us: int, every_us: int | None) -> str:
    ticks = "" if every_us is None else f", every {every_us * 1e-6:g} s"
    return f"{what} of the last {width_us * 1e-6:g} s{ticks}"
