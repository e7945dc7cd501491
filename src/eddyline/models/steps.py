"""What is done with segments, as values: a step says what comes out, and does it with arrays.

``scope`` says which segments a step has to see together: each by itself, all of an entity, or of
several. A step also says what it needs of its input (``reads``), in which ranges its values are,
how much of each input is in them (``kernels``, of what is linear), and how near its input has to be
for what comes out to be near enough (``back``); ``precision`` puts these together.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

import numpy as np
import pyarrow as pa

from eddyline.errors import OptionError
from eddyline.models import conditions, gains, inversion, sampling
from eddyline.models.expressions import Attribute, Expression, names_in, projected
from eddyline.models.overflow import samples_in_range, segments_in_range
from eddyline.models.ranges import range_of
from eddyline.models.rows import ERR, Keyed, Layout, instants_of, table_of
from eddyline.models.solving import solutions
from eddyline.models.splits import weights_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.data.arrays import Ints
    from eddyline.models.bounds import Bound
    from eddyline.models.conditions import Condition
    from eddyline.models.gains import Kernel
    from eddyline.models.inversion import Bounds
    from eddyline.models.ranges import Range, Ranges
    from eddyline.models.sampling import Samples

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
        name = next((each for each in self.keys if each.lower() in self.times), None)
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


class Step(Protocol):
    """A step with one input."""

    @property
    def scope(self) -> Scope:
        """Which segments it sees together."""

    def shape(self, given: Shape) -> Shape:
        """Return what comes out."""

    def run(self, given: Keyed) -> Keyed | Rows:
        """Return the results of segments."""

    def reads(self, wanted: set[str]) -> set[str]:
        """Return the attributes of the input that some attributes of the output need."""

    def ranges(self, below: Ranges) -> Ranges:
        """Return the ranges of the output by those of the input, as far as they are known."""

    def kernels(self, below: Kernels) -> Kernels:
        """Return how much of inputs is in the output by how much is in the input."""

    def back(self, within: Bounds, below: Ranges, *, by_pace: bool) -> Bounds:
        """Return how near the input has to be for the output to be within bounds.

        Args:
            within: the bounds of some attributes of the output.
            below: the ranges of the input, as far as they are known.
            by_pace: whether shares of an error are as attributes move, and not equal.

        Raises:
            OptionError: no bounds of the input are enough, with what is missing.
        """


class Kept:
    """What is so of steps whose output has the attributes of the input as they are."""

    __slots__ = ()

    def reads(self, wanted: set[str]) -> set[str]:
        """Return the same attributes."""
        return wanted

    def ranges(self, below: Ranges) -> Ranges:
        """Return the same ranges."""
        return below

    def kernels(self, below: Kernels) -> Kernels:
        """Return the same kernels."""
        return below

    def back(self, within: Bounds, below: Ranges, *, by_pace: bool) -> Bounds:  # noqa: ARG002
        """Return the same bounds."""
        return within


@dataclass(frozen=True, slots=True)
class Where(Kept):
    """The ranges on which a condition holds."""

    condition: Condition
    text: str = field(repr=False)
    """As its author wrote it: exact answers are asked of SQL by it."""
    scope: ClassVar[Scope] = "segment"

    def shape(self, given: Shape) -> Shape:
        """Return the same shape."""
        return given

    def run(self, given: Keyed) -> Keyed:
        """Return the segments on these ranges."""
        found = solutions(given.segments, self.condition)
        return Keyed(found.of(given.segments), given.entities)

    def reads(self, wanted: set[str]) -> set[str]:
        """Return what is wanted, and what is compared."""
        return wanted | conditions.attributes(self.condition)

    def __str__(self) -> str:
        return f"where {' '.join(self.text.split())}"


@dataclass(frozen=True, slots=True, eq=False)
class Within(Kept):
    """How near attributes have to be: inputs are fitted so that they are (``precision``)."""

    bounds: Mapping[str, Bound]
    by_pace: bool = False
    """Whether inputs have shares of an error as they move, and not equal ones."""
    any_values: frozenset[str] | None = None
    """The attributes whose bound holds whatever values are; None before inputs have theirs."""
    ranges_said: Mapping[str, Range] = field(default_factory=dict)
    """Ranges that attributes of models are said to be in; see ``assumed``."""
    scope: ClassVar[Scope] = "segment"

    def shape(self, given: Shape) -> Shape:
        """Return the same shape."""
        return given

    def run(self, given: Keyed) -> Keyed:
        """Return the same, with errors that are not above bounds.

        What errors of inputs add up to may be more: that they cancel is seen only in all steps.
        """
        segments = given.segments
        errors = {**segments.errors}
        for name, bound in self.bounds.items():
            if name in (self.any_values or ()) and not bound.is_relative:
                errors[name] = np.minimum(errors[name], bound.value)
        return Keyed(replace(segments, errors=errors), given.entities)

    def __str__(self) -> str:
        told = ", ".join(f"{name} within {bound}" for name, bound in self.bounds.items())
        return f"{told}, shared by gradient" if self.by_pace else told


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
        made = Keyed(projected(given.segments, self.columns), given.entities)
        return segments_in_range(made, self)

    def reads(self, wanted: set[str]) -> set[str]:
        """Return what the expressions read."""
        return {name for each in wanted for name in names_in(self.columns[each])}

    def ranges(self, below: Ranges) -> Ranges:
        """Return the ranges of expressions."""
        every = {name: range_of(each, below) for name, each in self.columns.items()}
        return {name: each for name, each in every.items() if each is not None}

    def kernels(self, below: Kernels) -> Kernels:
        """Return those of weighted sums."""
        weights = {name: weights_of(each) for name, each in self.columns.items()}
        return {
            name: gains.combined(each, below)
            for name, each in weights.items()
            if each is not None and set(each) <= set(below)
        }

    def back(self, within: Bounds, below: Ranges, *, by_pace: bool) -> Bounds:
        """Return the least bounds that expressions leave to what they read."""
        found: dict[str, Bound] = {}
        for name, bound in within.items():
            read = inversion.of_expression(self.columns[name], name, bound, below, by_pace=by_pace)
            for each, its in read.items():
                found[each] = inversion.tighter(each, found.get(each, its), its, below)
        return found

    def __str__(self) -> str:
        told = (text if text == name else f"{text} AS {name}" for name, text in self.texts.items())
        return f"select {', '.join(told)}"


@dataclass(frozen=True, slots=True)
class Sample(Kept):
    """Values at ticks, and of points at their instants."""

    every_us: int
    scope: ClassVar[Scope] = "segment"

    def shape(self, given: Shape) -> Shape:
        """Return rows."""
        return Shape(given.keys, given.attributes, "samples")

    def run(self, given: Keyed) -> Rows:
        """Return the values."""
        found = sampling.sampled(given.segments, self.every_us)
        return Rows(samples_in_range(found, given.entities, self), given.entities)

    def __str__(self) -> str:
        return f"sample every {self.every_us * 1e-6:g} s"


@dataclass(frozen=True, slots=True)
class Changes(Kept):
    """A row for each range over which an entity has a model without a gap."""

    scope: ClassVar[Scope] = "entity"

    def shape(self, given: Shape) -> Shape:
        """Return rows."""
        return Shape(given.keys, given.attributes, "changes")

    def run(self, given: Keyed) -> Rows:
        """Return the values with which ranges begin, and their ends."""
        found = sampling.changes(given.segments)
        starts = samples_in_range(found.starts, given.entities, self)
        return Rows(starts, given.entities, found.ends)

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
