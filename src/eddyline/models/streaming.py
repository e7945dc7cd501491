"""Models of streams: what is asked, what a bucket of entities keeps, and what it reports.

A row is looked at when event time has passed it, so that nothing depends on how rows are cut into
batches. A segment is given when no later row changes it, and a result when no later segment does:
results are given once and never taken back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from msgspec import Struct
from msgspec import field as struct_field

from eddyline.errors import NotSupportedError, OptionError
from eddyline.models import graph
from eddyline.models.fitted import Fit
from eddyline.models.fitting import FitReport
from eddyline.models.kept import EntityRun
from eddyline.models.steps import TIME, Changes, Where
from eddyline.models.window_steps import AverageDistance, Extremum, Integral
from eddyline.models.work import Work
from eddyline.state.manifest import StatePart
from eddyline.state.run_files import RunFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from eddyline.data.arrays import Mask
    from eddyline.models.declared import Declared
    from eddyline.models.rows import Keyed
    from eddyline.models.sketch import Sketch
    from eddyline.models.steps import Shape, Step

COMPONENT = "models"
NEVER = np.iinfo(np.int64).min


class BucketState(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The files of a bucket between batches."""

    since: int = NEVER
    """The instant before which all rows have been looked at (µs)."""
    waiting: dict[int, tuple[RunFile, ...]] = struct_field(default_factory=dict)
    """Rows from that instant on, by input."""
    wakes: tuple[RunFile, ...] = ()
    """When which entities are looked at although no row of them comes."""
    entities: tuple[EntityRun, ...] = ()
    """By entity the rows of open segments, what is known of these, until when results were given,
    and ranges that may go on."""
    segments: dict[int, tuple[RunFile, ...]] = struct_field(default_factory=dict)
    """Segments that later results look back at, by input."""

    @property
    def files(self) -> Iterator[RunFile]:
        """All files."""
        for every in (*self.waiting.values(), self.wakes, *self.segments.values()):
            yield from every
        for run in self.entities:
            yield from run.files.values()

    @property
    def n_waiting(self) -> int:
        """Rows of which no segment is final; those that newer records replace count, too."""
        held = (file for run in self.entities for name, file in run.files.items() if "held" in name)
        waiting = (file for every in self.waiting.values() for file in every)
        return sum(file.n_rows for file in (*held, *waiting))

    @property
    def n_segments(self) -> int:
        """Segments that are kept."""
        return sum(file.n_rows for every in self.segments.values() for file in every)


class ModelPart(Struct, frozen=True, forbid_unknown_fields=True):
    """The state after a batch."""

    n_buckets: int
    buckets: dict[int, BucketState] = struct_field(default_factory=dict)

    def packed(self) -> StatePart:
        """Return it as the query's manifest has it."""
        return StatePart.of(
            self, [file.name for each in self.buckets.values() for file in each.files]
        )


@dataclass(frozen=True, slots=True)
class BucketReport:
    """What a bucket did in a batch."""

    bucket: int
    after: BucketState
    n_results: int = 0
    fit: FitReport = field(default_factory=FitReport)
    work: Work = field(default_factory=Work)
    sketch: Sketch | None = None
    """Of a few entities, to be drawn."""


@runtime_checkable
class RangeStep(Protocol):
    """A step that makes ranges by more keys than those of entities, which are told as changes."""

    def run(self, given: Keyed) -> Keyed:
        """Return the ranges."""

    def are_asked(self, ranges: pa.Table) -> Mask:
        """Return which ranges are still asked for, by their keys; what others were is over."""


@dataclass(frozen=True, slots=True)
class StreamInput:
    """One of the inputs of a graph."""

    maker: Fit | Declared | None
    """How rows become segments; None if they are segments, which are all there from the start."""
    shape: Shape
    """The columns of its segments."""


@dataclass(frozen=True)
class StreamPlan:
    """What is done with the rows of streams; goes to workers."""

    inputs: tuple[StreamInput, ...]
    node: graph.Node

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that say the entity, the same of all inputs."""
        return self.inputs[0].shape.keys

    @property
    def row_times(self) -> tuple[str, ...]:
        """For each input the column that says when a row was."""
        return tuple(each.maker.time if each.maker else TIME for each in self.inputs)

    @property
    def told(self) -> graph.Node:
        """What is done with segments before ranges of them are told as changes."""
        node = self.node
        is_changes = isinstance(node, graph.Unary) and isinstance(node.step, Changes)
        return node.of if is_changes and isinstance(node, graph.Unary) else node

    @property
    def bounds(self) -> str:
        """The bounds that results were given, and those in which inputs are, in words."""
        given = graph.told_bounds(self.node)
        makers = (each.maker for each in self.inputs if each.maker is not None)
        used = ", ".join(
            f"{name} within {bound}" for maker in makers for name, bound in maker.within.items()
        )
        return f"{given}; inputs: {used}" if given else used

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
    def spans_gaps(self) -> bool:
        """Whether a window may close in a gap, or where one begins.

        It is given when the next segment comes, so what it looks at stays until then.
        """
        return any(
            isinstance(each, graph.Unary) and spans_gaps(each.step)
            for each in graph.parts(self.given)
        )


def check_streams(plan: StreamPlan) -> None:
    """Check that what is asked can be told of streams as they go on.

    Raises:
        OptionError: it is not said what a gap is.
        NotSupportedError: a step that would have to take results back, or tell them late.
    """
    for given in plan.inputs:
        if isinstance(given.maker, Fit) and given.maker.options.max_gap_us is None:
            msg = (
                "models of a stream need max_gap, such as '10 minutes': after so long without a "
                "row the last segment of an entity is over"
            )
            raise OptionError(msg)
    under: dict[int, bool] = {}
    for each in graph.parts(plan.node):
        is_selected = any(under[id(part)] for part in graph.below(each))
        step = each.step if isinstance(each, graph.Unary) else None
        if step is not None and is_selected and spans_gaps(step):
            msg = (
                f"of a stream, {step} over a part that a condition selects is not told in time: "
                "compute it of all, join it with the part, or ask a batch DataFrame"
            )
            raise NotSupportedError(msg, step=str(step))
        if isinstance(step, Extremum) and step.every_us is None:
            msg = f"of a stream, {step} is told at instants: give slide='…'"
            raise NotSupportedError(msg, step=str(step))
        has_condition = isinstance(each, graph.SameEntity) and each.condition is not None
        under[id(each)] = is_selected or isinstance(step, Where) or has_condition


def spans_gaps(step: Step) -> bool:
    """Return whether windows may close in a gap, or where one begins."""
    is_open = isinstance(step, Integral) and (step.is_covered or step.every_us is not None)
    return isinstance(step, Extremum | AverageDistance) or is_open
