"""Models of streams: what is asked, what a bucket of entities keeps, and what it reports.

A row is looked at when event time has passed it, so that nothing depends on how rows are cut into
batches. A segment is given when no later row changes it, and a result when no later segment does:
results are given once and never taken back, unless they are asked for before (``early``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec import field as struct_field

from eddyline.errors import OptionError
from eddyline.models import graph
from eddyline.models.fitted import Fit
from eddyline.models.fitting import FitReport
from eddyline.models.kept import EntityRun
from eddyline.models.stages import check_stages, staged, together
from eddyline.models.steps import TIME
from eddyline.models.work import Work
from eddyline.state.manifest import StatePart
from eddyline.state.run_files import RunFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eddyline.models.declared import Declared
    from eddyline.models.planning.profile import ModelProfile
    from eddyline.models.sketch import Sketch
    from eddyline.models.stages import Stage
    from eddyline.models.steps import Shape

COMPONENT = "models"
NEVER = np.iinfo(np.int64).min


class StageState(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The files of a stage of a bucket between batches."""

    wakes: tuple[RunFile, ...] = ()
    """When which entities are looked at although no segment of them comes."""
    entities: tuple[EntityRun, ...] = ()
    """By entity until when results were given, and ranges that may go on."""
    segments: dict[int, tuple[RunFile, ...]] = struct_field(default_factory=dict)
    """Segments that later results look back at, by what they are of; see ``Stage.inputs``."""
    low: int = NEVER
    """The instant (µs) at or before which segments have ended that nothing looks at any more."""

    @property
    def files(self) -> Iterator[RunFile]:
        """All files."""
        yield from self.wakes
        for every in self.segments.values():
            yield from every
        for run in self.entities:
            yield from run.files.values()


class RowCounts(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Numbers of rows of an input that are in no final segment."""

    ahead: int = 0
    """Rows that event time has not passed."""
    open: int = 0
    """Rows of open runs."""


class BucketState(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The files of a bucket between batches."""

    since: int = NEVER
    """The instant before which all rows have been looked at (µs)."""
    waiting: dict[int, tuple[RunFile, ...]] = struct_field(default_factory=dict)
    """Rows from that instant on, by input."""
    rows: dict[int, tuple[RunFile, ...]] = struct_field(default_factory=dict)
    """Rows of open runs, by input; see ``open_runs``."""
    wakes: tuple[RunFile, ...] = ()
    """When which entities are looked at although no row of them comes."""
    entities: tuple[EntityRun, ...] = ()
    """By entity what is known of open runs and segments, until when results were given, and ranges
    that may go on."""
    segments: dict[int, tuple[RunFile, ...]] = struct_field(default_factory=dict)
    """Segments that later results look back at, by input."""
    low: int = NEVER
    """The instant (µs) at or before which segments have ended that nothing looks at any more."""
    stages: dict[int, StageState] = struct_field(default_factory=dict)
    """Of graphs that are cut into stages what each keeps, by number."""
    counts: dict[int, RowCounts] = struct_field(default_factory=dict)
    """How many rows wait, by input."""

    @property
    def files(self) -> Iterator[RunFile]:
        """All files."""
        own = (self.waiting, self.rows, self.segments)
        for every in (self.wakes, *(files for each in own for files in each.values())):
            yield from every
        for run in self.entities:
            yield from run.files.values()
        for stage in self.stages.values():
            yield from stage.files

    def counted(self, at: int) -> RowCounts:
        """Return how many rows of an input wait.

        A state of an earlier version has no counts; its files give an upper limit.
        """
        if at in self.counts:
            return self.counts[at]
        files = (self.waiting.get(at, ()), self.rows.get(at, ()))
        ahead, held = (sum(file.n_rows for file in every) for every in files)
        return RowCounts(ahead, held)

    @property
    def n_segments(self) -> int:
        """Segments that are kept."""
        every = (self.segments, *(each.segments for each in self.stages.values()))
        return sum(file.n_rows for own in every for files in own.values() for file in files)


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
    n_early: int = 0
    """Of the results, those that were given before they were final."""
    n_taken_back: int = 0
    """Of the results, those that say that there is none any more."""
    work: Work = field(default_factory=Work)
    sketch: Sketch | None = None
    """Of a few entities, to be drawn."""
    observed: Any = None
    """What a step that makes ranges has observed; see ``stages.RangeStep``."""
    profile: ModelProfile | None = None
    """What steps gave, and what joins asked."""


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
    is_early: bool = False
    """Whether results are given before they are final, and taken back; see ``early``."""
    samples: bool = False
    """Whether tasks look at how coefficients are spread; see ``planning``."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that say the entity, the same of all inputs."""
        return self.inputs[0].shape.keys

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The graph in stages; without pairs and values over entities it is one as a rule."""
        return staged(self.node, len(self.inputs))

    @property
    def together(self) -> tuple[str, ...]:
        """The keys of which all entities that have them in common are in one bucket."""
        return together(self.node, self.keys)

    @property
    def row_times(self) -> tuple[str, ...]:
        """For each input the column that says when a row was."""
        return tuple(each.maker.time if each.maker else TIME for each in self.inputs)

    @property
    def bounds(self) -> str:
        """The bounds that results were given, and those in which inputs are, in words."""
        given = graph.told_bounds(self.node)
        makers = (each.maker for each in self.inputs if each.maker is not None)
        used = ", ".join(
            f"{name} within {bound}" for maker in makers for name, bound in maker.within.items()
        )
        return f"{given}; inputs: {used}" if given else used


def check_streams(plan: StreamPlan) -> None:
    """Check that what is asked can be told of streams as they go on.

    Raises:
        OptionError: it is not said what a gap is.
        NotSupportedError: a step that would have to look back at any time.
    """
    for given in plan.inputs:
        if isinstance(given.maker, Fit) and given.maker.options.max_gap_us is None:
            msg = (
                "models of a stream need max_gap, such as '10 minutes': after so long without a "
                "row the last segment of an entity is over"
            )
            raise OptionError(msg)
    check_stages(plan.node)
