"""Models of a stream, batch by batch: what a bucket of entities gives, and what it keeps.

A row is looked at when event time has passed it, so that nothing depends on how rows are cut into
batches. A segment is given when no later row changes it, and a result when no later segment does:
results are given once and never taken back.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec import field as struct_field

from eddyline.errors import NotSupportedError, OptionError
from eddyline.models import graph, sampling, timeline
from eddyline.models.fitted import Fit
from eddyline.models.fitting import FitReport
from eddyline.models.rows import Keyed, ids_together, keyed, micros_of, table_of
from eddyline.models.steps import Changes, Rows, Where, result_table
from eddyline.models.window_steps import AverageDistance, Extremum, Integral
from eddyline.state.manifest import StatePart
from eddyline.state.row_files import open_rows, write_rows
from eddyline.state.rows import Rows as Kept
from eddyline.state.run_files import RunFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eddyline.data.arrays import Ints, Mask
    from eddyline.models.declared import Declared
    from eddyline.models.steps import Shape, Step
    from eddyline.state.place import StatePlace

COMPONENT = "models"
NEVER = np.iinfo(np.int64).min


class BucketState(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The files of a bucket between batches, by what they hold."""

    files: dict[str, RunFile] = struct_field(default_factory=dict)
    """``rows`` that are not in a segment yet, what is ``known`` of them, the ``segments`` that
    later results look back at, and ``ranges`` that may go on."""


class ModelPart(Struct, frozen=True, forbid_unknown_fields=True):
    """The state after a batch."""

    n_buckets: int
    buckets: dict[int, BucketState] = struct_field(default_factory=dict)

    def packed(self) -> StatePart:
        """Return it as the query's manifest has it."""
        files = [file.name for each in self.buckets.values() for file in each.files.values()]
        return StatePart.of(self, files)


@dataclass(frozen=True, slots=True)
class BucketReport:
    """What a bucket did in a batch."""

    bucket: int
    after: BucketState
    n_results: int = 0
    fit: FitReport = field(default_factory=FitReport)


@dataclass(frozen=True)
class StreamPlan:
    """What is done with the rows of a stream; goes to workers."""

    maker: Fit | Declared
    node: graph.Node
    shape: Shape
    """The columns of segments before anything is done with them."""

    @property
    def given(self) -> graph.Node:
        """What is done with segments before ranges of them are told as changes."""
        node = self.node
        is_changes = isinstance(node, graph.Unary) and isinstance(node.step, Changes)
        return node.of if is_changes and isinstance(node, graph.Unary) else node

    @property
    def bounds(self) -> str:
        """The bounds that results were given, and those in which inputs are, in words."""
        given = graph.told_bounds(self.node)
        used = ", ".join(f"{name} within {bound}" for name, bound in self.maker.within.items())
        return f"{given}; inputs: {used}" if given else used

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
            isinstance(each, graph.Unary) and _spans_gaps(each.step)
            for each in graph.parts(self.node)
        )


def check_streams(plan: StreamPlan) -> None:
    """Check that what is asked can be told of a stream as it goes on.

    Raises:
        OptionError: it is not said what a gap is.
        NotSupportedError: a step that would have to take results back, or tell them late.
    """
    if isinstance(plan.maker, Fit) and plan.maker.options.max_gap_us is None:
        msg = (
            "models of a stream need max_gap, such as '10 minutes': after so long without a row "
            "the last segment of an entity is over"
        )
        raise OptionError(msg)
    under: dict[int, bool] = {}
    for each in graph.parts(plan.node):
        is_selected = any(under[id(part)] for part in graph.below(each))
        step = each.step if isinstance(each, graph.Unary) else None
        if step is not None and is_selected and _spans_gaps(step):
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


def _spans_gaps(step: Step) -> bool:
    """Return whether windows may close in a gap, or where one begins."""
    is_open = isinstance(step, Integral) and (step.is_covered or step.every_us is not None)
    return isinstance(step, Extremum | AverageDistance) or is_open


class BucketBatch:
    """The work of one bucket in one batch."""

    def __init__(
        self,
        plan: StreamPlan,
        place: StatePlace,
        state: BucketState,
        bucket: int,
        until: int,
        offset: int = 0,
    ) -> None:
        self.plan, self.place, self.state = plan, place, state
        self.until = until - offset
        """The time of rows before which all are there (µs)."""
        self.report = BucketReport(bucket, state)
        self._written: dict[str, RunFile] = {}

    def run(self, arrived: pa.Table | None) -> Iterator[pa.Table]:
        """Yield results, and keep what later ones need."""
        parts = [each for each in (self._open("rows"), arrived) if each is not None and len(each)]
        n_results, fit = 0, FitReport()
        if parts:
            found, fit = self._of_rows(pa.concat_tables(parts).combine_chunks())
        else:
            found = self._without_rows()
        if found is not None and len(found):
            n_results = len(found)
            yield found
        self.report = BucketReport(
            self.report.bucket,
            BucketState(self._written),
            n_results=n_results,
            fit=fit,
        )

    def _of_rows(self, rows: pa.Table) -> tuple[pa.Table | None, FitReport]:
        maker = self.plan.maker
        is_there = micros_of(rows.column(maker.time)) < self.until
        part = maker.part(rows.filter(pa.array(is_there)), self.until, self._open("known"))
        waiting = pa.concat_tables([part.held, rows.filter(pa.array(~is_there))])
        self._keep("rows", waiting, micros_of(waiting.column(maker.time)))
        if part.known is not None:
            self._keep("known", part.known)
        zone = rows.column(maker.time).type.tz
        return self._given(part.segments, part.held, zone), part.report

    def _without_rows(self) -> pa.Table | None:
        """Return the ranges that are over because event time has gone on."""
        self._written = {**self.state.files}
        ranges = self._open("ranges")
        if ranges is None:
            return None
        del self._written["ranges"]
        nothing = keyed(ranges.slice(0, 0), self.plan.given.shape.layout)
        none = pa.table({})
        return self._changes(nothing, nothing, none, ranges.column("lo").type.tz)

    def _given(self, fresh: Keyed, held: pa.Table, zone: str | None) -> pa.Table | None:
        plan = self.plan
        found = (
            self._looking_back(fresh, held, zone)
            if plan.looks_back
            else graph.run(plan.given, [fresh])
        )
        if plan.given is plan.node:
            return result_table(found, zone)
        assert isinstance(found, Keyed)
        return self._changes(found, fresh, held, zone)

    def _looking_back(self, fresh: Keyed, held: pa.Table, zone: str | None) -> Keyed | Rows:
        """Return the results that fresh segments bring, and keep those that later ones look at."""
        before, now = self._open("segments"), table_of(fresh, zone)
        table = now if before is None else pa.concat_tables([before, now], promote_options="none")
        every = keyed(table, self.plan.shape.layout)
        n_before, n = len(table) - len(now), len(every.entities) if self.plan.shape.keys else 1
        segments = every.segments
        told = np.full(n, NEVER)  # until when results were given before
        np.maximum.at(told, segments.keys[:n_before], segments.hi[:n_before])
        is_active = np.zeros(n, np.bool_)
        is_active[segments.keys[n_before:]] = True
        active = Keyed(segments.take(is_active[segments.keys]), every.entities)
        found = graph.run(self.plan.given, [active])
        ends = told.copy()
        np.maximum.at(ends, segments.keys, segments.hi)
        if not self.plan.spans_gaps:
            ends = np.maximum(ends, self._next(held, every.entities, n))
        kept = segments.hi > ends[segments.keys] - graph.reach(self.plan.given)
        self._keep("segments", table.filter(pa.array(kept)), segments.lo[kept])
        return _since(found, told)

    def _next(self, held: pa.Table, entities: pa.Table, n: int) -> Ints:
        """Return before which instant no segment of each entity begins any more (µs)."""
        found = np.full(n, self.until)
        if len(held):
            keys = self.plan.shape.keys
            ids = ids_together([entities, held], keys)[1]
            is_there = ids < n
            times = micros_of(held.column(self.plan.maker.time))
            np.minimum.at(found, ids[is_there], times[is_there])
        return found

    def _changes(
        self, found: Keyed, fresh: Keyed, held: pa.Table, zone: str | None
    ) -> pa.Table | None:
        """Return the ranges that are over, and keep those that may go on."""
        parts = [table_of(found, zone)]
        before = self._open("ranges")
        if before is not None:
            parts.insert(0, before)
        table = pa.concat_tables(parts)
        every = keyed(table, self.plan.given.shape.layout)
        n = len(every.entities) if self.plan.shape.keys else 1
        known = np.full(n, NEVER)
        np.maximum.at(known, every.segments.keys, every.segments.hi)
        ids = ids_together([every.entities, fresh.names], self.plan.shape.keys)[1]
        is_there = ids < n
        np.maximum.at(known, ids[is_there], fresh.segments.hi[is_there])
        made = sampling.changes(every.segments)
        starts = made.starts
        goes_on = (made.ends >= known[starts.keys]) & (
            self._next(held, every.entities, n)[starts.keys] <= known[starts.keys]
        )
        self._keep("ranges", *_as_segments(every, made, goes_on, zone))
        over = Rows(starts.take(~goes_on), every.entities, made.ends[~goes_on])
        return result_table(over, zone)

    # -- files ----------------------------------------------------------------------------------

    def _open(self, name: str) -> pa.Table | None:
        file = self.state.files.get(name)
        return None if file is None else open_rows(self.place.files, self.place.runs, file).payload

    def _keep(self, name: str, table: pa.Table, starts: Ints | None = None) -> None:
        if len(table):
            at = np.zeros(len(table), np.int64) if starts is None else starts
            rows = Kept({}, at, at, table.combine_chunks())
            self._written[name] = write_rows(
                self.place.files, self.place.runs, rows, is_sorted=True
            )


def _since(found: Keyed | Rows, told: Ints) -> Keyed | Rows:
    """Return results that were not given before."""
    if isinstance(found, Keyed):
        segments = found.segments
        return Keyed(segments.take(segments.lo >= told[segments.keys]), found.entities)
    samples = found.samples
    kept: Mask = samples.times >= told[samples.keys]
    return Rows(samples.take(kept), found.entities)


def _as_segments(
    every: Keyed, made: sampling.Changes, rows: Mask, zone: str | None
) -> tuple[pa.Table, Ints]:
    """Return ranges as segments that have the values with which they begin."""
    segments, starts = every.segments, made.starts.take(rows)
    order = segments.by_time
    begins, wanted = timeline.codes(
        (segments.keys[order], segments.lo[order]), (starts.keys, starts.times)
    )
    ends = made.ends[rows]
    taken = segments.take(order[np.searchsorted(begins, wanted, "left")])
    kept = replace(taken.cut(starts.times, ends), is_point=starts.times == ends)
    return table_of(Keyed(kept, every.entities), zone), kept.lo
