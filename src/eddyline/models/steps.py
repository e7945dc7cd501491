"""Steps over segments, as values.

``Step`` is the base class. A step says what comes out of it, and computes it with arrays. ``scope``
says which segments a step has to see together: each by itself, all of an entity, or those of
several entities. For the precision of results a step also says

* which attributes of its input it reads (``reads``), and in which ranges its values are;
* how much of each input is in a linear output (``kernels``);
* how near its input has to be to rows for its output to be near enough (``back``).

``graph.required`` puts these together. Steps over each segment come first, then windows and values
over entities, then pairs of different entities. The work itself is in ``solving/`` and
``windows/``: a step only calls it.

``DifferentEntities`` cuts its work into cells. Entities are in groups, and a cell has the pairs of
two groups. So each pair is in exactly one cell, and a cell needs no other entities.

A result that a double cannot hold is an error with the entity and the time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.errors import ModelError, OptionError
from eddyline.models.fitting.bounds import (
    SHRUNK,
    Bound,
    as_distance,
    combined_gains,
    gains_of_averages,
    inverted_expression,
    inverted_extreme,
    inverted_integral,
    inverted_total,
    tightest,
    weights_of,
)
from eddyline.models.fitting.splits import EQUAL, Split
from eddyline.models.segments import (
    ERR,
    MICROS,
    Keyed,
    Layout,
    entity_ids,
    in_key_order,
    instants_of,
    plain,
    table_of,
)
from eddyline.models.solving import expressions, joins
from eddyline.models.solving.expressions import (
    Attribute,
    Expression,
    Range,
    names_in,
    projected,
    range_of,
)
from eddyline.models.solving.joins import UNTOLD, Asking
from eddyline.models.solving.where import solutions
from eddyline.models.windows import extrema, integrals
from eddyline.models.windows.integrals import average_distances

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eddyline.data.arrays import Ints
    from eddyline.models.fitting.bounds import Bounds, Kernel
    from eddyline.models.segments import Segments
    from eddyline.models.solving.expressions import Condition, Ranges
    from eddyline.models.solving.joins import Joined, Tally
    from eddyline.models.windows.integrals import Samples

    Kernels = Mapping[str, Kernel]
    """The kernel of each attribute that is a weighted integral of inputs."""

Kind = Literal["segments", "samples", "changes"]
Scope = Literal["segment", "entity", "entities"]
TIME, SINCE, UNTIL = "time", "since", "until"
"""Columns of results that are rows: an instant, or the range over which an entity has a model."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Which columns come out of a step."""

    keys: tuple[str, ...]
    attributes: tuple[str, ...]
    kind: Kind = "segments"

    def __post_init__(self) -> None:
        """Check that keys and times are different columns.

        Raises:
            OptionError: a key of results that are rows is called as their time is.
        """
        if self.kind == "segments":
            return
        name = next((key for key in self.keys if key.lower() in self.times), None)
        if name is not None:
            msg = (
                f"a key is called {name!r}, and results have a column {name.lower()!r} that says "
                "when; rename the key of the rows"
            )
            raise OptionError(msg, name=name)

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


class Step:
    """A step with one input; unless it says otherwise, the output has the attributes of the input.

    Attributes:
        scope: which segments it sees together.
    """

    __slots__ = ()
    scope: ClassVar[Scope] = "segment"

    def shape(self, shape: Shape) -> Shape:
        """Return what comes out."""
        return shape

    def run(self, block: Keyed) -> Keyed | Rows:
        """Return the results of segments."""
        raise NotImplementedError

    @property
    def reach_us(self) -> int:
        """How far back a result looks that is there at an instant (µs)."""
        return 0

    @property
    def lag_us(self) -> int:
        """How long a result may last that a later segment makes shorter or longer (µs)."""
        return 0

    def reads(self, wanted: set[str]) -> set[str]:
        """Return the attributes of the input that some attributes of the output need."""
        return wanted

    def ranges(self, below: Ranges) -> Ranges:
        """Return the ranges of the output by those of the input, as far as they are known."""
        return below

    def kernels(self, below: Kernels) -> Kernels:
        """Return how much of inputs is in the output by how much is in the input."""
        return below

    def back(self, within: Bounds, below: Ranges, *, split: Split) -> Bounds:  # noqa: ARG002
        """Return how near the input has to be for the output to be within bounds.

        Args:
            within: the bounds of some attributes of the output.
            below: the ranges of the input, as far as they are known.
            split: how attributes share an error.

        Raises:
            OptionError: no bounds of the input are enough, with what is missing.
        """
        return within


def with_keys(block: Keyed, keys: Sequence[str]) -> Segments:
    """Return segments that also have keys, which are numbers, as attributes.

    They are constant for an entity. One that is NULL is NaN, with which no comparison is true.
    """
    segments = block.segments
    if not keys:
        return segments
    values = {
        key: pc.cast(block.entities.column(key), pa.float64(), safe=False)
        .combine_chunks()
        .to_numpy(zero_copy_only=False)[segments.keys]
        for key in keys
    }
    coefs = {name: column[:, None] for name, column in values.items()}
    errors = {name: np.zeros(len(segments)) for name in values}
    return replace(
        segments, coefs={**segments.coefs, **coefs}, errors={**segments.errors, **errors}
    )


@dataclass(frozen=True, slots=True)
class Where(Step):
    """The ranges on which a condition holds."""

    condition: Condition
    text: str = field(repr=False)
    """As its author wrote it: exact answers are asked of SQL by it."""
    keys: tuple[str, ...] = ()
    """Keys that it compares with attributes."""

    def run(self, block: Keyed) -> Keyed:
        """Return the segments on these ranges."""
        ranges = solutions(with_keys(block, self.keys), self.condition)
        return Keyed(ranges.of(block.segments), block.entities)

    def reads(self, wanted: set[str]) -> set[str]:
        """Return what is wanted, and what is compared."""
        return wanted | (expressions.attributes(self.condition) - {*self.keys})

    def __str__(self) -> str:
        return f"where {' '.join(self.text.split())}"


@dataclass(frozen=True, slots=True, eq=False)
class Within(Step):
    """How near attributes have to be: inputs are fitted so that they are (``graph.required``)."""

    bounds: Mapping[str, Bound]
    split: Split = EQUAL
    """How inputs share an error."""
    any_values: frozenset[str] | None = None
    """The attributes whose bound holds whatever values are; None before inputs have theirs."""
    ranges_said: Mapping[str, Range] = field(default_factory=dict)
    """Ranges that attributes of models are said to be in; see ``fitting.bounds``."""

    def run(self, block: Keyed) -> Keyed:
        """Return the same, with errors that are not above bounds.

        What errors of inputs add up to may be more: that they cancel is seen only in all steps.
        """
        segments = block.segments
        errors = {**segments.errors}
        for name, bound in self.bounds.items():
            if name in (self.any_values or ()) and not bound.is_relative:
                errors[name] = np.minimum(errors[name], bound.value)
        return Keyed(replace(segments, errors=errors), block.entities)

    def __str__(self) -> str:
        bounds = ", ".join(f"{name} within {bound}" for name, bound in self.bounds.items())
        return bounds if self.split == EQUAL else f"{bounds}, shared by {self.split}"


@dataclass(frozen=True, slots=True)
class Project(Step):
    """Attributes that are computed from those that there are."""

    columns: Mapping[str, Expression]
    texts: Mapping[str, str]
    keys: tuple[str, ...] = ()
    """Keys that stand in expressions."""

    @classmethod
    def onto(cls, *attributes: str) -> Project:
        """Keep some attributes."""
        return cls(
            {attribute: Attribute(attribute) for attribute in attributes},
            {a: a for a in attributes},
        )

    def shape(self, shape: Shape) -> Shape:
        """Return the shape with these attributes."""
        return Shape(shape.keys, tuple(self.columns))

    def run(self, block: Keyed) -> Keyed:
        """Return segments with these attributes."""
        segments = projected(with_keys(block, self.keys), self.columns)
        return _in_range(Keyed(segments, block.entities), self)

    def reads(self, wanted: set[str]) -> set[str]:
        """Return what the expressions read."""
        return {name for attribute in wanted for name in names_in(self.columns[attribute])} - {
            *self.keys
        }

    def ranges(self, below: Ranges) -> Ranges:
        """Return the ranges of expressions."""
        every = {name: range_of(expression, below) for name, expression in self.columns.items()}
        return {name: span for name, span in every.items() if span is not None}

    def kernels(self, below: Kernels) -> Kernels:
        """Return those of weighted sums."""
        weights = {name: weights_of(expression) for name, expression in self.columns.items()}
        return {
            name: combined_gains(factors, below)
            for name, factors in weights.items()
            if factors is not None and set(factors) <= set(below)
        }

    def back(self, within: Bounds, below: Ranges, *, split: Split) -> Bounds:
        """Return the least bounds that expressions leave to what they read."""
        bounds: dict[str, Bound] = {}
        for name, bound in within.items():
            read = inverted_expression(self.columns[name], name, bound, below, split=split)
            bounds = tightest(bounds, read, below)
        return {name: bound for name, bound in bounds.items() if name not in self.keys}

    def __str__(self) -> str:
        texts = (text if text == name else f"{text} AS {name}" for name, text in self.texts.items())
        return f"select {', '.join(texts)}"


@dataclass(frozen=True, slots=True)
class Sample(Step):
    """Values at ticks, and of points at their instants."""

    every_us: int

    def shape(self, shape: Shape) -> Shape:
        """Return rows."""
        return Shape(shape.keys, shape.attributes, "samples")

    def run(self, block: Keyed) -> Rows:
        """Return the values."""
        samples = integrals.sampled(block.segments, self.every_us)
        return _in_range(Rows(samples, block.entities), self)

    def __str__(self) -> str:
        return f"sample every {self.every_us * 1e-6:g} s"


@dataclass(frozen=True, slots=True)
class Changes(Step):
    """A row for each range over which an entity has a model without a gap."""

    scope: ClassVar[Scope] = "entity"

    def shape(self, shape: Shape) -> Shape:
        """Return rows."""
        return Shape(shape.keys, shape.attributes, "changes")

    def run(self, block: Keyed) -> Rows:
        """Return the values with which ranges begin, and their ends."""
        changes = integrals.changes(block.segments)
        return _in_range(Rows(changes.starts, block.entities, changes.ends), self)

    def __str__(self) -> str:
        return "changes only"


def result_table(results: Keyed | Rows, zone: str | None) -> pa.Table:
    """Return results as a table; ``zone`` as for ``table_of``."""
    if isinstance(results, Keyed):
        return table_of(results, zone)
    samples = results.samples
    names = results.entities.take(pa.array(samples.keys))
    columns = dict(zip(names.column_names, names.columns, strict=True))
    if results.ends is None:
        columns[TIME] = instants_of(samples.times, zone)
    else:
        columns[SINCE] = instants_of(samples.times, zone)
        columns[UNTIL] = instants_of(results.ends, zone)
    for name, values in samples.values.items():
        columns[name] = pa.array(values)
        columns[ERR + name] = pa.array(np.asarray(samples.errors[name], np.float64))
    return pa.table(columns)


# -- over windows, and over entities at an instant ------------------------------------------------


@dataclass(frozen=True, slots=True)
class Integral(Step):
    """Sums or averages over a sliding window, as polynomials or at ticks."""

    width_us: int
    every_us: int | None
    is_average: bool
    is_covered: bool
    scope: ClassVar[Scope] = "entity"

    def shape(self, shape: Shape) -> Shape:
        """Return segments, or rows at ticks."""
        return _windowed(shape, self.every_us)

    def run(self, block: Keyed) -> Keyed | Rows:
        """Return the sums or averages of all attributes."""
        segments, covered = block.segments, self.is_covered
        width, is_average = self.width_us, self.is_average
        if self.every_us is None:
            windowed = integrals.windowed_integral(
                segments, width, is_average=is_average, covered=covered
            )
            return _in_range(Keyed(windowed, block.entities), self)
        samples = integrals.integrals_at(
            segments, width, self.every_us, is_average=is_average, covered=covered
        )
        return _in_range(Rows(samples, block.entities), self)

    def ranges(self, below: Ranges) -> Ranges:
        """Return those of averages, which are the same, or of sums."""
        if self.is_average:
            return below
        spans = {name: span.scaled(self._seconds) for name, span in below.items()}
        if not self.is_covered:
            return spans
        return {
            name: Range(min(low, 0.0), max(high, 0.0), pace)
            for name, (low, high, pace) in spans.items()
        }

    def kernels(self, below: Kernels) -> Kernels:
        """Return those of what is averaged over one more window."""
        return {
            name: gains_of_averages(
                kernel, self.width_us, self._seconds, is_covered=self.is_covered
            )
            for name, kernel in below.items()
        }

    def back(self, within: Bounds, below: Ranges, *, split: Split) -> Bounds:  # noqa: ARG002
        """Return the same bounds of an average, and those of a sum by seconds."""
        above = self.ranges(below)
        return {
            name: inverted_integral(name, bound, below, above, self._seconds)
            for name, bound in within.items()
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
        return _window_text("average" if self.is_average else "sum", self.width_us, self.every_us)


class _Extreme(Step):
    """What is so of least and greatest values."""

    __slots__ = ()

    def kernels(self, below: Kernels) -> Kernels:  # noqa: ARG002 - an extreme is no integral
        """Return none."""
        return {}

    def back(self, within: Bounds, below: Ranges, *, split: Split) -> Bounds:  # noqa: ARG002
        """Return the same bounds: an extreme moves no more than what moves most."""
        return {name: inverted_extreme(name, bound, below) for name, bound in within.items()}


@dataclass(frozen=True, slots=True)
class Extremum(_Extreme):
    """The least or greatest value of a sliding window, as polynomials or at ticks."""

    width_us: int
    every_us: int | None
    is_largest: bool
    scope: ClassVar[Scope] = "entity"

    def shape(self, shape: Shape) -> Shape:
        """Return segments, or rows at ticks."""
        return _windowed(shape, self.every_us)

    def run(self, block: Keyed) -> Keyed | Rows:
        """Return the extremum of the one attribute that there is."""
        (attribute,) = block.segments.coefs
        segments, width, largest = block.segments, self.width_us, self.is_largest
        if self.every_us is None:
            extremes = extrema.windowed_extremum(segments, attribute, width, largest=largest)
            return Keyed(extremes, block.entities)
        samples = extrema.extrema_at(segments, attribute, width, self.every_us, largest=largest)
        return _in_range(Rows(samples, block.entities), self)

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
        return _window_text(
            "greatest" if self.is_largest else "least", self.width_us, self.every_us
        )


@dataclass(frozen=True, slots=True)
class OverEntities(Step):
    """One value of several entities at each instant."""

    by: tuple[str, ...]
    """The keys by which entities are grouped; none is one group."""
    scope: ClassVar[Scope] = "entities"

    def shape(self, shape: Shape) -> Shape:
        """Return segments of groups."""
        return Shape(self.by, shape.attributes)

    def partial(self, block: Keyed) -> Keyed:
        """Return of some segments those that may count among all, each as its entity's."""
        ordered = in_key_order(block)
        return Keyed(self._kept(ordered.segments, self._groups(ordered)[0]), ordered.entities)

    def run(self, block: Keyed) -> Keyed:
        """Return the values of groups.

        Nothing depends on the order of segments: entities are taken in the order of their keys.
        """
        ordered = in_key_order(block)
        groups, entities = self._groups(ordered)
        return _in_range(Keyed(self._grouped(ordered.segments, groups), entities), self)

    def _kept(self, segments: Segments, groups: Ints) -> Segments:
        """Return what is needed of some segments, with the group of each."""
        raise NotImplementedError

    def _grouped(self, segments: Segments, groups: Ints) -> Segments:
        """Return the values of groups, whose ids are the keys."""
        raise NotImplementedError

    def _groups(self, block: Keyed) -> tuple[Ints, pa.Table]:
        if not self.by:  # a table without columns has no rows either
            return np.zeros(len(block.segments), np.int64), pa.table({})
        ids, first = entity_ids(block.entities, self.by)
        entities = block.entities.select(list(self.by)).take(pa.array(first))
        return ids[block.segments.keys], entities

    def _description(self, what: str) -> str:
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

    def _grouped(self, segments: Segments, groups: Ints) -> Segments:
        (attribute,) = segments.coefs
        return extrema.envelope(segments, attribute, largest=self.is_largest, groups=groups)

    def __str__(self) -> str:
        return self._description("greatest" if self.is_largest else "least")


@dataclass(frozen=True, slots=True)
class Total(OverEntities):
    """The sum or the average of all attributes, of the entities that have a value."""

    is_average: bool

    def _kept(self, segments: Segments, groups: Ints) -> Segments:  # noqa: ARG002 - all count
        return segments.under(integrals.are_counted(segments))

    def _grouped(self, segments: Segments, groups: Ints) -> Segments:
        return integrals.totals(segments, groups, is_average=self.is_average)

    def ranges(self, below: Ranges) -> Ranges:
        """Return those of averages, which are the same, or the signs that sums keep."""
        if self.is_average:
            return below
        return {
            name: Range(*((span.low, math.inf) if span.low >= 0 else (-math.inf, span.high)))
            for name, span in below.items()
            if span.has_one_sign
        }

    def kernels(self, below: Kernels) -> Kernels:  # noqa: ARG002 - of how many is not known
        """Return none."""
        return {}

    def back(self, within: Bounds, below: Ranges, *, split: Split) -> Bounds:  # noqa: ARG002
        """Return the same bounds of an average, and the same shares of a sum."""
        if self.is_average:
            return {
                name: inverted_integral(name, bound, below, below, 1.0)
                for name, bound in within.items()
            }
        return {name: inverted_total(name, bound, below) for name, bound in within.items()}

    def __str__(self) -> str:
        return self._description("average" if self.is_average else "sum")


@dataclass(frozen=True, slots=True)
class AverageDistance(Step):
    """The average distance of two positions over windows that close at ticks."""

    axes: Mapping[str, str]
    width_us: int
    every_us: int
    is_covered: bool
    below: float | None = None
    """Less than what averages have to be; None: all are wanted."""
    scope: ClassVar[Scope] = "entity"

    def shape(self, shape: Shape) -> Shape:
        """Return rows with a ``distance``."""
        return Shape(shape.keys, ("distance",), "samples")

    def run(self, block: Keyed) -> Rows:
        """Return the distances."""
        samples = average_distances(
            block.segments, self.axes, self.width_us, self.every_us, covered=self.is_covered,
            below=self.below,
        )  # fmt: skip
        return _in_range(Rows(samples, block.entities), self)

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
        least = math.hypot(*(span.nearest for span in apart))
        pace = sum(span.pace for span in apart)
        return {"distance": Range(least, math.hypot(*(span.farthest for span in apart)), pace)}

    def kernels(self, below: Kernels) -> Kernels:  # noqa: ARG002 - a distance is no integral
        """Return none."""
        return {}

    def back(self, within: Bounds, below: Ranges, *, split: Split) -> Bounds:  # noqa: ARG002
        """Return an equal share for each coordinate."""
        if "distance" not in within:
            return {}
        far = as_distance("distance", within["distance"], self.ranges(below))
        near = Bound(far / (2 * len(self.axes) ** 0.5) * SHRUNK)
        return dict.fromkeys(sorted(self.reads(set())), near)

    def __str__(self) -> str:
        most = "" if self.below is None else f" below {self.below:g}"
        return _window_text(f"average distance{most}", self.width_us, self.every_us)


def _windowed(shape: Shape, every_us: int | None) -> Shape:
    return Shape(shape.keys, shape.attributes, "segments" if every_us is None else "samples")


def _window_text(what: str, width_us: int, every_us: int | None) -> str:
    ticks = "" if every_us is None else f", every {every_us * 1e-6:g} s"
    return f"{what} of the last {width_us * 1e-6:g} s{ticks}"


# -- pairs of different entities ------------------------------------------------------------------


CELL = "__cell"
"""The column of the cell that a segment is in."""


@dataclass(frozen=True, slots=True)
class DifferentEntities:
    """Pairs of different entities at the same instants, where a condition holds."""

    names: tuple[str, str]
    """What stands before the names of each side's keys and attributes."""
    condition: Condition | None
    within: Mapping[str, float]
    """For an attribute by how much the two differ at most where a result is wanted."""
    is_whole: bool
    """Whether pairs that may come so near are there for all the time that they share."""
    is_self: bool
    """Whether both sides are one set: each pair comes once, the lesser keys on the left."""
    asks: tuple[str, ...] | None = None
    """Which sides are asked before they are paired, in what order; None: as samples say."""

    def shape(self, left: Shape, right: Shape) -> Shape:
        """Return which columns come out."""
        one, two = self.names
        return Shape(
            (*(f"{one}_{key}" for key in left.keys), *(f"{two}_{key}" for key in right.keys)),
            (
                *(f"{one}_{attribute}" for attribute in left.attributes),
                *(f"{two}_{attribute}" for attribute in right.attributes),
            ),
        )

    def run(
        self,
        block: Keyed,
        sides: Ints | None,
        left: Shape,
        right: Shape,
        tally: Tally = UNTOLD,
    ) -> Keyed:
        """Return the pairs of a cell.

        Args:
            block: the segments of the cell.
            sides: of which of its groups, or of which input, each is, 0 or 1; None is for the cell
                of a group with itself.
            left: the columns of the left side.
            right: those of the right side.
            tally: takes note of the work.
        """
        if not self.is_self:
            assert sides is not None
            one, other = (np.flatnonzero(sides == side) for side in (0, 1))
            return self.between(block.of(one, left.layout), block.of(other, right.layout), tally)
        ordered = in_key_order(block)
        pairs = joins.joined_among(
            ordered.segments, self.condition, names=self.names, within=self.within,
            is_whole=self.is_whole, sides=sides, asking=Asking(self.asks, tally),
        )  # fmt: skip
        return self._keyed(pairs, ordered.entities)

    def between(self, left: Keyed, right: Keyed, tally: Tally = UNTOLD) -> Keyed:
        """Return the pairs of two sides, whose entities have common ids."""
        one, other = in_key_order(left), in_key_order(right)
        pairs = joins.joined_with_others(
            one.segments, other.segments, self.condition, names=self.names, within=self.within,
            is_whole=self.is_whole, asking=Asking(self.asks, tally),
        )  # fmt: skip
        return self._keyed(pairs, one.entities)

    def _keyed(self, pairs: Joined, entities: pa.Table) -> Keyed:
        columns: dict[str, pa.ChunkedArray] = {}
        for name, ids in zip(self.names, (pairs.left, pairs.right), strict=True):
            taken = entities.take(pa.array(ids))
            columns |= {f"{name}_{key}": taken.column(key) for key in taken.column_names}
        return Keyed(plain(pairs.segments), pa.table(columns))

    def __str__(self) -> str:
        near = ", ".join(f"{name} within {most:g}" for name, most in self.within.items())
        return f"pairs of {' and '.join(self.names)}{f' with {near}' if near else ''}"


# -- what a double cannot hold --------------------------------------------------------------------


Made = TypeVar("Made", Keyed, Rows)


def _in_range(results: Made, step: Step) -> Made:
    """Return the results of a step, unless one is infinite.

    Raises:
        ModelError: a value is larger than a double can hold.
    """
    if isinstance(results, Keyed):
        segments = results.segments
        values, keys, times = segments.coefs, segments.keys, (segments.lo, segments.ends)
    else:
        values, keys = results.samples.values, results.samples.keys
        times = (results.samples.times, results.samples.times)
    for name, numbers in values.items():
        is_infinite = np.isinf(numbers)
        if is_infinite.any():
            row = int(np.flatnonzero(is_infinite.reshape(len(keys), -1).any(axis=1))[0])
            since, until = (str(np.datetime64(int(instants[row]), "us")) for instants in times)
            raise _too_large(step, name, results.entities, int(keys[row]), since, until)
    return results


def _too_large(
    step: Step, name: str, entities: pa.Table, key: int, since: str, until: str
) -> ModelError:
    named = entities.slice(key, 1).to_pylist() if entities.num_columns else []
    entity = ", ".join(f"{key}={value!r}" for names in named for key, value in names.items())
    when = f"at {since}" if since == until else f"from {since} to {until}"
    msg = (
        f"{step}: {name!r}{entity and f' of {entity}'} {when} (UTC) is larger than a double "
        "can hold (1.8e308); divide the column before it is modelled, or leave these rows out"
    )
    return ModelError(msg, step=str(step), attribute=name, entity=entity, since=since, until=until)
