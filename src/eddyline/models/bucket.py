"""The work of a bucket of entities in a batch: what its rows and those before give, and what stays.

Only entities of which something has come, or that time concerns, are looked at. ``streaming`` says
when results are given.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.models import graph, sampling, timeline
from eddyline.models.assumed import n_outside
from eddyline.models.fitting import FitReport
from eddyline.models.frontiers import frontier_of, whole_until
from eddyline.models.kept import AT, CODE, AppendedRows, EntityRecords, codes_of, instants_of
from eddyline.models.rows import (
    Keyed,
    Layout,
    ids_together,
    keyed,
    micros_of,
    table_of,
    unified,
)
from eddyline.models.segments import Segments
from eddyline.models.sketch import ANY, MOST_ENTITIES, sketched
from eddyline.models.steps import Rows, result_table
from eddyline.models.streaming import NEVER, BucketReport, BucketState
from eddyline.models.work import (
    Stopwatch,
    Work,
    bounds_of_results,
    errors_of,
    made_by,
    work_of_results,
)
from eddyline.state.reorder_buffer import HeldRows
from eddyline.state.rows import FOREVER
from eddyline.state.rows import Rows as Kept

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eddyline.data.arrays import Ints, Mask
    from eddyline.models.fitted import Part
    from eddyline.models.streaming import StreamInput, StreamPlan
    from eddyline.models.work import Clock
    from eddyline.state.place import StatePlace
    from eddyline.state.run_files import RunFile

    Files = tuple[RunFile, ...]
    Records = dict[str, tuple[pa.Table, Ints | None]]
    """Records of entities by kind, and an instant of each; see ``EntityRecords.after``."""


class BucketBatch:
    """The work of one bucket in one batch.

    Args:
        plan: what is asked.
        place: where state is.
        state: the bucket before the batch.
        bucket: its number.
        until: the instant before which all rows are there (µs).
        offset: from the time of a row to its instant (µs).
        zone: the time zone of timestamps; see ``table_of``.
        cut: the greatest code of an entity that is drawn.
        clock: of the time that steps take (ns).
    """

    def __init__(
        self,
        plan: StreamPlan,
        place: StatePlace,
        state: BucketState,
        bucket: int,
        until: int,
        offset: int = 0,
        zone: str | None = "UTC",
        cut: int = ANY,
        clock: Clock = time.perf_counter_ns,
    ) -> None:
        self.plan, self.place, self.state, self.zone = plan, place, state, zone
        self.keys = (CODE, *plan.keys)
        self.until = max(until - offset, state.since)
        """The time of rows before which all are there (µs)."""
        self.report = BucketReport(bucket, state)
        self._records = EntityRecords(place, state.entities)
        self._kept: dict[str, pa.Table] = {}
        self._after: Records = {}
        self._cut, self._watch = cut, Stopwatch(clock)

    def run(self, arrived: Sequence[pa.Table | None]) -> Iterator[pa.Table]:
        """Yield results, and keep what later ones need.

        Args:
            arrived: for each input rows, or segments if it has no rows, with ``CODE``; None if
                none have come.

        Raises:
            OSError: state cannot be read or written.
        """
        plan = self.plan
        waiting: dict[int, Files] = {}
        due = [self._due(at, arrived[at], waiting) for at, _ in enumerate(plan.inputs)]
        codes = self._active(due)
        self._kept = self._records.given(codes)
        parts = [self._part(at, rows) for at, rows in enumerate(due)]
        fit = FitReport(n_outside=sum(map(self._n_outside, plan.inputs, due)))
        for part in parts:
            fit += FitReport() if part is None else part.report
        segments = dict(self.state.segments)
        n_results = 0
        found = self._given(parts, arrived, codes, segments) if codes.size else None
        if not codes.size:
            self._add_static(arrived, segments)
        work = Work(n_looked_at=len(codes))
        for at, part in enumerate(parts):
            if part is not None:
                work += Work(errors=errors_of(at, part.segments.segments))
        drawn = codes[codes <= self._cut][:MOST_ENTITIES]
        sketch = sketched(plan.row_times, due, parts, found, drawn, self.zone)
        if found is not None and len(found):
            n_results = len(found)
            work += work_of_results(found, bounds_of_results(plan.node))
            with self._watch.paused():
                yield found
        state = BucketState(
            self.until,
            {at: files for at, files in waiting.items() if files},
            self._wakes_after(codes),
            self._records.after(codes, self._after),
            {at: files for at, files in segments.items() if files},
        )
        work += Work(ns=self._watch.spent())
        self.report = BucketReport(self.report.bucket, state, n_results, fit, work, sketch)

    # -- what is looked at ------------------------------------------------------------------------

    def _due(self, at: int, arrived: pa.Table | None, waiting: dict[int, Files]) -> pa.Table | None:
        """Return the rows of an input that event time has passed, and keep the others waiting."""
        maker = self.plan.inputs[at].maker
        if maker is None:
            return None
        held = self._held_rows(self.state.waiting.get(at, ()))
        parts = [each.payload for each in held.before(self.until)]
        late: Kept | None = None
        if arrived is not None:
            times = micros_of(arrived.column(maker.time))
            waits = times >= self.until
            parts.append(arrived.filter(pa.array(~waits)))
            starts = times[waits]
            late = Kept({}, starts, starts, arrived.filter(pa.array(waits)).combine_chunks())
        waiting[at] = held.after(self.until, late)
        filled = [each for each in parts if len(each)]
        return pa.concat_tables(filled) if filled else None

    def _held_rows(self, files: Files) -> HeldRows:
        return HeldRows(self.place.files, self.place.runs, files, self.state.since)

    def _active(self, due: Sequence[pa.Table | None]) -> Ints:
        """Return the codes of the entities to look at: of rows, and of those that wake up."""
        wakes = self._held_rows(self.state.wakes).before(self.until)
        parts = [codes_of(each.payload) for each in wakes]
        parts += [codes_of(each) for each in due if each is not None]
        return np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64)

    def _wakes_after(self, codes: Ints) -> Files:
        """Return when entities are looked at again: when a gap or a horizon is over, or a range."""
        parts = []
        for kind, (table, instants) in self._after.items():
            wait = self._waits.get(kind)
            if wait is not None and len(table) and instants is not None:
                at = np.full(len(codes), NEVER)
                np.maximum.at(at, np.searchsorted(codes, codes_of(table)), instants + wait)
                parts.append((codes[at >= self.until], at[at >= self.until]))
        new: Kept | None = None
        if parts:
            who, when = (np.concatenate(each) for each in zip(*parts, strict=True))
            new = Kept({}, when, when, pa.table({CODE: pa.array(who)}))
        return self._held_rows(self.state.wakes).after(self.until, new)

    @cached_property
    def _waits(self) -> dict[str, int]:
        """How long after their instant records concern their entity again (µs), by kind."""
        makers = ((f"held{at}", each.maker) for at, each in enumerate(self.plan.inputs))
        return {"ranges": 0, **{kind: maker.wait_us for kind, maker in makers if maker}}

    @staticmethod
    def _n_outside(given: StreamInput, due: pa.Table | None) -> int:
        """Return how many rows have values that they were said not to have."""
        if given.maker is None or due is None:
            return 0
        return n_outside(due, given.maker.assumed)

    # -- segments -------------------------------------------------------------------------------

    def _part(self, at: int, due: pa.Table | None) -> Part | None:
        """Return the segments of an input that are final, and keep the rows of the others."""
        maker = self.plan.inputs[at].maker
        held = self._kept.get(f"held{at}")
        tables = [each for each in (held, due) if each is not None]
        if maker is None or not tables:
            return None
        rows = pa.concat_tables(tables).combine_chunks()
        with self._watch.on(made_by(maker)):
            known = self._kept.get(f"known{at}")
            part = replace(maker, keys=self.keys).part(rows, self.until, known)
        if len(part.held):
            self._after[f"held{at}"] = part.held, micros_of(part.held.column(maker.time))
        if part.known is not None and len(part.known):
            self._after[f"known{at}"] = part.known, None
        return part

    def _layout(self, at: int) -> Layout:
        return Layout(self.keys, self.plan.inputs[at].shape.attributes)

    def _none(self, at: int) -> Keyed:
        """Return no segments of an input."""
        none, flags = np.zeros(0, np.int64), np.zeros(0, np.bool_)
        names = self._layout(at).attributes
        coefs = {each: np.zeros((0, 1)) for each in names}
        errors = {each: np.zeros(0) for each in names}
        segments = Segments(none, none, none, none, flags, flags, coefs, errors)
        return Keyed(segments, pa.table({}))

    # -- results --------------------------------------------------------------------------------

    def _given(
        self,
        parts: Sequence[Part | None],
        arrived: Sequence[pa.Table | None],
        codes: Ints,
        segments: dict[int, Files],
    ) -> pa.Table | None:
        plan = self.plan
        fresh = [None if part is None else part.segments for part in parts]
        if plan.looks_back or plan.given is not plan.node:
            found, front, entities = self._looking_back(fresh, arrived, codes, segments)
            if plan.given is plan.node:
                return result_table(found, self.zone)
            assert isinstance(found, Keyed)
            with self._watch.on(plan.node):
                return self._changes(found, front, entities)
        (only,) = fresh
        if only is None:
            return None
        return result_table(graph.run(plan.given, [only], self._watch.on), self.zone)

    def _looking_back(
        self,
        fresh: Sequence[Keyed | None],
        arrived: Sequence[pa.Table | None],
        codes: Ints,
        segments: dict[int, Files],
    ) -> tuple[Keyed | Rows, Ints, pa.Table]:
        """Return the results that are final now, until when they are, and their entities."""
        plan = self.plan
        given, names = self._together(fresh, arrived, codes, segments)
        told = self._told(names)
        every = graph.every(plan.given, given, self._watch.on)
        front = frontier_of(plan.given, self._fronts(names), every)
        found = every[id(plan.given)]
        front = np.maximum(front, told)
        if not plan.looks_back:
            return found, front, names
        if isinstance(found, Keyed):
            over = whole_until(found.segments, front)
            found, front = _settled(found, told, front), np.maximum(over, told)
        else:
            times = found.samples.times
            keys = found.samples.keys
            kept = (times >= told[keys]) & (times < front[keys])
            found = Rows(found.samples.take(kept), found.entities)
        if len(names):
            table = names.append_column("told", pa.array(front))
            self._after["told"] = table, front
        return found, front, names

    def _together(
        self,
        fresh: Sequence[Keyed | None],
        arrived: Sequence[pa.Table | None],
        codes: Ints,
        segments: dict[int, Files],
    ) -> tuple[list[Keyed], pa.Table]:
        """Return the segments of all inputs with common ids, and keep those that are new."""
        given: list[Keyed] = []
        for at, each in enumerate(fresh):
            now = None if each is None or not len(each.segments) else table_of(each, self.zone)
            if self.plan.inputs[at].maker is None:
                now = self._static(at, arrived[at])
            before = None
            if self.plan.looks_back:
                appended = AppendedRows(self.place, segments.get(at, ()))
                before = appended.of(codes)
                segments[at] = self._appended(appended, now)
            tables = [table for table in (before, now) if table is not None and len(table)]
            whole = pa.concat_tables(tables, promote_options="none") if tables else None
            given.append(self._none(at) if whole is None else keyed(whole, self._layout(at)))
        extra = [
            self._kept[kind].select(list(self.keys))
            for kind in ("ranges", "told")
            if kind in self._kept
        ]
        return unified(given, extra, self.keys)

    def _told(self, names: pa.Table) -> Ints:
        """Return until when the results of entities were given before (µs)."""
        found = np.full(len(names), NEVER)
        before = self._kept.get("told")
        if before is not None and len(names):
            ids = ids_together([names, before], self.keys)[1]
            found[ids] = before.column("told").to_numpy()
        return found

    def _fronts(self, names: pa.Table) -> list[Ints]:
        """Return before which instant all segments of each entity are there, by input (µs)."""
        fronts = []
        for at, each in enumerate(self.plan.inputs):
            front = np.full(len(names), FOREVER if each.maker is None else self.until)
            table, times = self._after.get(f"held{at}", (None, None))
            if table is not None and times is not None and len(names):
                ids = ids_together([names, table], self.keys)[1]
                known = ids < len(names)
                np.minimum.at(front, ids[known], times[known])
            fronts.append(front)
        return fronts

    def _changes(self, found: Keyed, front: Ints, names: pa.Table) -> pa.Table | None:
        """Return the ranges that are over, and keep those that may go on."""
        step, told = self.plan.ranges, self.plan.told.shape
        if step is not None:
            found = step.run(found)
        parts = [table_of(found, self.zone)] if len(found.segments) else []
        before = self._kept.get("ranges")
        if before is not None:
            parts.insert(0, before)
        if not parts:
            return None
        by = told.keys[: len(told.keys) - len(self.plan.keys)]
        every = keyed(pa.concat_tables(parts), Layout((*by, *self.keys), told.attributes))
        until = front[ids_together([names, every.entities], self.keys)[1]]
        made = sampling.changes(every.segments)
        starts = made.starts
        goes_on = made.ends >= until[starts.keys]
        if step is not None:
            goes_on &= step.are_asked(every.entities)[starts.keys]
        kept, ends = _as_segments(every, made, goes_on, self.zone)
        if len(kept):
            self._after["ranges"] = kept, ends
        over = Rows(starts.take(~goes_on), every.entities, made.ends[~goes_on])
        return result_table(over, self.zone)

    # -- segments that are kept -------------------------------------------------------------------

    def _add_static(self, arrived: Sequence[pa.Table | None], segments: dict[int, Files]) -> None:
        for at, each in enumerate(self.plan.inputs):
            if each.maker is None and arrived[at] is not None:
                appended = AppendedRows(self.place, segments.get(at, ()))
                segments[at] = self._appended(appended, self._static(at, arrived[at]))

    def _static(self, at: int, arrived: pa.Table | None) -> pa.Table | None:
        """Return segments that came as they are, as those of rows are kept."""
        return None if arrived is None else table_of(keyed(arrived, self._layout(at)), self.zone)

    def _appended(self, appended: AppendedRows, now: pa.Table | None) -> Files:
        ends = np.zeros(0, np.int64) if now is None else micros_of(now.column("hi"))
        low = NEVER
        if not self.plan.spans_gaps:
            low = min([self.until, *map(self._records.first_of, self._held)]) - self._reach
        return appended.after(now, ends, low, self._is_needed)

    @cached_property
    def _reach(self) -> int:
        return graph.reach(self.plan.given)

    @cached_property
    def _held(self) -> list[str]:
        return [f"held{at}" for at, each in enumerate(self.plan.inputs) if each.maker]

    def _is_needed(self, rows: pa.Table) -> Mask:
        """Return which segments later results of their entities may look at."""
        codes = np.unique(codes_of(rows))
        kinds = ["told"] if self.plan.spans_gaps else self._held
        since = np.full(len(codes), NEVER if self.plan.spans_gaps else self.until)
        for table in self._records.of(codes, kinds).values():
            # Of several entities of a code the one that looks back farthest counts.
            first = np.full(len(codes), FOREVER)
            places = np.searchsorted(codes, codes_of(table))
            np.minimum.at(first, places, table.column(AT).to_numpy())
            known = first < FOREVER
            since[known] = first[known] if self.plan.spans_gaps else np.minimum(since, first)[known]
        low = np.maximum(since, NEVER + self._reach) - self._reach
        found: Mask = instants_of(rows) > low[np.searchsorted(codes, codes_of(rows))]
        return found


def _settled(found: Keyed, told: Ints, front: Ints) -> Keyed:
    """Return the results that are over, and were not given before."""
    segments = found.segments
    is_new = (segments.lo >= told[segments.keys]) & (segments.ends <= front[segments.keys])
    return Keyed(segments.take(is_new), found.entities)


def _as_segments(
    every: Keyed, made: sampling.Changes, rows: Mask, zone: str | None
) -> tuple[pa.Table, Ints]:
    """Return ranges as segments that have the values with which they begin, and their ends."""
    segments, starts = every.segments, made.starts.take(rows)
    order = segments.by_time
    begins, wanted = timeline.codes(
        (segments.keys[order], segments.lo[order]), (starts.keys, starts.times)
    )
    ends = made.ends[rows]
    taken = segments.take(order[np.searchsorted(begins, wanted, "left")])
    kept = replace(taken.cut(starts.times, ends), is_point=starts.times == ends)
    return table_of(Keyed(kept, every.entities), zone), kept.hi
