"""The work of a bucket of entities in a batch: what its rows and those before give, and what stays.

Only entities of which something has come, or that time concerns, are looked at. ``streaming`` says
when results are given.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from eddyline.models.assumed import n_outside
from eddyline.models.books import HELD, Books
from eddyline.models.crossings import Crossing
from eddyline.models.fitted import Fit
from eddyline.models.fitting import FitReport
from eddyline.models.frontiers import KnownFronts, RowFronts
from eddyline.models.kept import CODE, codes_of
from eddyline.models.looking import Flow, Looking
from eddyline.models.open_runs import OpenRuns
from eddyline.models.planning.watching import Watching, asked_of
from eddyline.models.rows import Layout, keyed, micros_of
from eddyline.models.sketch import ANY, MOST_ENTITIES, Sketch, sketched
from eddyline.models.stages import alike
from eddyline.models.streaming import NEVER, BucketReport, BucketState, RowCounts, StageState
from eddyline.models.work import (
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

    from eddyline.data.arrays import Ints
    from eddyline.models.fitted import Part
    from eddyline.models.kept import EntityRun
    from eddyline.models.stages import Stage
    from eddyline.models.streaming import StreamInput, StreamPlan
    from eddyline.models.work import Clock
    from eddyline.state.place import StatePlace
    from eddyline.state.run_files import RunFile

    Files = tuple[RunFile, ...]


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
        self._books = self._opened(state.wakes, state.entities)
        self._runs = {
            at: OpenRuns(place, state.rows.get(at, ()), self.keys, each.maker.time)
            for at, each in enumerate(plan.inputs)
            if isinstance(each.maker, Fit)
        }
        self._cut, self._watch = cut, Watching(clock, samples=plan.samples)
        self._observed: Any = None
        self._counts: dict[int, RowCounts] = {}

    def run(self, arrived: Sequence[pa.Table | None]) -> Iterator[pa.Table]:
        """Yield results, and keep what later ones need.

        Args:
            arrived: for each input rows, or segments if it has no rows, with ``CODE``; None if
                none have come.

        Raises:
            OSError: state cannot be read or written.
        """
        plan, books = self.plan, self._books
        waiting: dict[int, Files] = {}
        due = [self._due(at, arrived[at], waiting) for at, _ in enumerate(plan.inputs)]
        books.open(self._looked_at(due))
        parts = [self._part(at, rows) for at, rows in enumerate(due)]
        fit = FitReport(
            n_outside=sum(map(self._n_outside, plan.inputs, due)),
            n_off_earth=sum(map(self._n_off_earth, plan.inputs, due)),
        )
        for part in parts:
            fit += FitReport() if part is None else part.report
        flows = [self._flow(at, part, arrived[at]) for at, part in enumerate(parts)]
        segments: dict[int, Files] = {}
        low = NEVER
        stages: dict[int, StageState] = {}
        if len(plan.stages) == 1:
            found, segments, low = self._in_one(flows)
        else:
            found, stages = self._in_stages(flows)
        n_results = 0
        work = Work(n_looked_at=len(books.codes))
        for at, part in enumerate(parts):
            if part is not None:
                work += Work(errors=errors_of(at, part.segments.segments))
        sketch = self._sketched(due, parts, found)
        if found is not None and len(found):
            n_results = len(found)
            work += work_of_results(found, bounds_of_results(plan.node))
            with self._watch.paused():
                yield found
        wakes, entities = books.close(self._waits, {"told": low})
        state = BucketState(
            self.until,
            {at: files for at, files in waiting.items() if files},
            {at: runs.files for at, runs in self._runs.items() if runs.files},
            wakes,
            entities,
            segments,
            low,
            stages,
            {at: counts for at, counts in self._counts.items() if counts != RowCounts()},
        )
        work += Work(ns=self._watch.spent())
        profile = self._watch.taken()
        work += asked_of(profile)
        self.report = BucketReport(
            self.report.bucket,
            state,
            n_results,
            fit,
            work=work,
            sketch=sketch,
            observed=self._observed,
            profile=profile,
        )

    # -- what is looked at ------------------------------------------------------------------------

    def _due(self, at: int, arrived: pa.Table | None, waiting: dict[int, Files]) -> pa.Table | None:
        """Return the rows of an input that event time has passed, and keep the others waiting."""
        maker = self.plan.inputs[at].maker
        if maker is None:
            return None
        files = self.state.waiting.get(at, ())
        held = HeldRows(self.place.files, self.place.runs, files, self.state.since)
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
        n_new = (0 if arrived is None else len(arrived)) - sum(map(len, filled))
        self._count(at, ahead=n_new)
        return pa.concat_tables(filled) if filled else None

    def _count(self, at: int, *, ahead: int = 0, in_runs: int = 0) -> None:
        """Add to the counts of waiting rows of an input."""
        before = self._counts.get(at, self.state.counted(at))
        self._counts[at] = RowCounts(max(before.ahead + ahead, 0), max(before.open + in_runs, 0))

    def _looked_at(self, due: Sequence[pa.Table | None]) -> list[Ints]:
        """Return the codes of the entities to look at: of rows, and of those that wake up."""
        return [*self._books.woken, *(codes_of(each) for each in due if each is not None)]

    @cached_property
    def _waits(self) -> dict[str, int]:
        """How long after their instant records concern their entity again (µs), by kind."""
        makers = ((f"{HELD}{at}", each.maker) for at, each in enumerate(self.plan.inputs))
        return {"ranges": 0, **{kind: maker.wait_us for kind, maker in makers if maker}}

    def _opened(self, wakes: Files, entities: tuple[EntityRun, ...]) -> Books:
        return Books(self.place, self.state.since, self.until, wakes, entities)

    @staticmethod
    def _n_outside(given: StreamInput, due: pa.Table | None) -> int:
        """Return how many rows have values that they were said not to have."""
        if given.maker is None or due is None:
            return 0
        return n_outside(due, given.maker.assumed)

    @staticmethod
    def _n_off_earth(given: StreamInput, due: pa.Table | None) -> int:
        """Return how many rows have a latitude or longitude that is out of range."""
        if not isinstance(given.maker, Fit) or due is None:
            return 0
        return given.maker.n_off_earth(due)

    def _sketched(
        self, due: Sequence[pa.Table | None], parts: Sequence[Part | None], found: pa.Table | None
    ) -> Sketch:
        """Return what is drawn of a few entities; of early results, only the models."""
        codes = self._books.codes
        drawn = codes[codes <= self._cut][:MOST_ENTITIES]
        results = None if self.plan.is_early else found
        return sketched(self.plan.row_times, due, parts, results, drawn, self.zone)

    # -- segments -------------------------------------------------------------------------------

    def _part(self, at: int, due: pa.Table | None) -> Part | None:
        """Return the segments of an input that are final, and keep the rows of the others."""
        maker, books, kind = self.plan.inputs[at].maker, self._books, f"{HELD}{at}"
        before, runs = self._held(at), self._runs.get(at)
        tables = [each for each in (before, due) if each is not None]
        if maker is None or not tables:
            return None
        rows = pa.concat_tables(tables) if runs is None else runs.marked(before, due)
        with self._watch.on(made_by(maker)):
            known = books.kept.get(f"known{at}")
            part = replace(maker, keys=self.keys).part(rows.combine_chunks(), self.until, known)
        self._count(at, in_runs=len(part.held) - (0 if before is None else len(before)))
        held = part.held if runs is None else runs.taken(part.held)
        if len(held):
            books.after[kind] = held, micros_of(held.column(maker.time))
        if part.known is not None and len(part.known):
            books.after[f"known{at}"] = part.known, None
        if runs is not None:
            runs.keep(self._fronts(at))
        return part

    def _held(self, at: int) -> pa.Table | None:
        """Return the rows of an input that are in no segment yet, of the entities looked at."""
        found = self._books.kept.get(f"{HELD}{at}")
        runs = self._runs.get(at)
        return found if found is None or runs is None else runs.before(found)

    def _flow(self, at: int, part: Part | None, arrived: pa.Table | None) -> Flow:
        """Return the segments of an input that are new, and how far those of each entity are."""
        given = self.plan.inputs[at]
        if given.maker is None:
            layout = Layout(self.keys, given.shape.attributes)
            there = None if arrived is None else keyed(arrived, layout)
            return Flow(there, KnownFronts(FOREVER))
        return Flow(None if part is None else part.segments, self._fronts(at))

    def _fronts(self, at: int) -> RowFronts:
        """Return how far the segments of each entity of an input are that has rows."""
        books, kind = self._books, f"{HELD}{at}"
        held, wait = books.after.get(kind), self._waits[kind]
        return RowFronts(self.until, self.keys, books.codes, held, books.records, kind, wait)

    # -- results --------------------------------------------------------------------------------

    def _in_one(self, inputs: Sequence[Flow]) -> tuple[pa.Table | None, dict[int, Files], int]:
        """Return the results of a graph that is not cut, and what it keeps of segments."""
        (stage,) = self.plan.stages
        looking = self._looking(stage, self.keys, self._books, self.state)
        flows, found = [inputs[each] for each in stage.inputs], None
        if self._books.codes.size:
            found = looking.results(flows)
        else:
            looking.add(flows)
        self._observed = looking.observed
        return found, looking.files, looking.low

    def _in_stages(self, inputs: Sequence[Flow]) -> tuple[pa.Table | None, dict[int, StageState]]:
        """Return the results of a graph that is cut into stages, and what these keep."""
        flows, states = list(inputs), {}
        found: pa.Table | None = None
        are_alike = alike(self.plan.stages, len(inputs))
        for number, stage in enumerate(self.plan.stages):
            own = [flows[each] for each in stage.inputs]
            if not are_alike[number]:
                own = [each.as_one for each in own]
            before = self.state.stages.get(number, StageState())
            if stage.is_crossing:
                crossing = Crossing(stage, before, self.place, self.zone, self._watch)
                with self._watch.on(stage.node):
                    flows.append(crossing.flow(own))
                states[number] = crossing.after
                continue
            books = self._opened(before.wakes, before.entities)
            fresh = [codes_of(each.fresh.entities) for each in own if each.fresh is not None]
            books.open([*books.woken, *fresh])
            keys = (CODE, *stage.keys)
            looking = self._looking(stage, keys, books, before)
            if number < len(self.plan.stages) - 1:
                flows.append(looking.flow(own))
            elif books.codes.size:
                found = looking.results(own)
                self._observed = looking.observed
            states[number] = self._closed(looking, books)
        return found, states

    def _looking(
        self, stage: Stage, keys: tuple[str, ...], books: Books, before: BucketState | StageState
    ) -> Looking:
        return Looking(stage, keys, books, before, self.place, self.zone, self._watch)

    def _closed(self, looking: Looking, books: Books) -> StageState:
        """Return what a stage keeps; ranges are looked at again when time has passed their end."""
        if "ranges" in books.after:
            ranges, ends = books.after["ranges"]
            assert ends is not None
            # What holds an entity is none of this stage's: it looks again at once.
            books.after["ranges"] = ranges, np.maximum(ends, self.until)
        wakes, entities = books.close({"ranges": 0}, {"told": looking.low})
        return StageState(wakes, entities, looking.files, looking.low)
