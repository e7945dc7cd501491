"""The work of a bucket of entities in a batch: its results, and what it keeps.

Rows of a batch and the state before come in; results, the state after and a report go out.
``BucketBatch`` looks only at entities of which a row has come, or that the watermark concerns.
``plan`` says when results are given.

``EarlyBatch`` also gives early results. After each batch there is one answer for all rows so far:
the final results, and behind them those of a stream that ends here (``_Ended``), with open segments
and rows that the watermark has not passed yet. It takes back what it gave before and what is not in
that answer any more (``revisions.revised``). So the newest word of all batches together is that
answer, whatever the batches are. Once the watermark has passed all rows, these are the results that
are given without early ones.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from eddyline.errors import NotSupportedError, OptionError
from eddyline.models import graph
from eddyline.models.entities.fronts import HELD, Books, KnownFronts, OpenRuns, RowFronts
from eddyline.models.entities.kept import CODE, codes_of
from eddyline.models.entities.stages import Crossing, Flow, Looking
from eddyline.models.fitting.bounds import n_outside
from eddyline.models.fitting.fit import Fit, FitReport
from eddyline.models.planning.watching import (
    Watching,
    Work,
    asked_of,
    bounds_of_results,
    errors_of,
    made_by,
    work_of_results,
)
from eddyline.models.revisions import REVISIONS, VALIDATED, VERSION, ends_of, revised
from eddyline.models.segments import Layout, ids_together, keyed, micros_of
from eddyline.models.steps import OverEntities
from eddyline.models.streams.plan import (
    ANY,
    MOST_ENTITIES,
    NEVER,
    BucketReport,
    BucketState,
    RowCounts,
    Sketch,
    StageState,
    alike,
    sketched,
)
from eddyline.state.event_time import HeldRows
from eddyline.state.rows import FOREVER
from eddyline.state.rows import Rows as Kept

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eddyline.data.arrays import Ints
    from eddyline.models.entities.kept import EntityRun
    from eddyline.models.fitting.fit import Part
    from eddyline.models.planning.watching import Clock
    from eddyline.models.segments import Keyed
    from eddyline.models.steps import Rows
    from eddyline.models.streams.plan import Stage, StreamInput, StreamPlan
    from eddyline.state.manifest import StatePlace
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


# -- early results --------------------------------------------------------------------------------


EARLY = "early"
"""The kind of records of results that were given and are not final."""
ENDED = 2**62
"""An instant behind all rows (µs)."""


def check_early(plan: StreamPlan) -> None:
    """Check that results of a plan may be given early, if they are asked for.

    Raises:
        NotSupportedError: results over several entities.
        OptionError: results have a column of the name of one that early ones have beside them.
    """
    if not plan.is_early:
        return
    for each in graph.parts(plan.node):
        is_over = isinstance(each, graph.Unary) and isinstance(each.step, OverEntities)
        if is_over or isinstance(each, graph.OtherEntities):
            msg = (
                f"early results are of entities by themselves, not of {each}: leave out "
                "results='early', which gives them once they are final"
            )
            raise NotSupportedError(msg, step=str(each))
    shape = plan.node.shape
    names = (*shape.keys, *(shape.attributes if shape.kind != "segments" else ()))
    for name in names:
        if name.lower() in REVISIONS:
            msg = f"early results have a column {name.lower()!r} themselves; rename {name!r}"
            raise OptionError(msg, name=name)


class EarlyBatch(BucketBatch):
    """The work of one bucket in one batch, of which results are given before they are final.

    Args:
        *given: as of ``BucketBatch``.
        version: the number of the batch, more than those before it.
    """

    def __init__(self, *given: Any, version: int) -> None:
        super().__init__(*given)
        self._version = version
        self._arrived: list[Ints] = []
        self._waiting: dict[int, Files] = {}
        self._n_early = self._n_taken_back = 0

    def run(self, arrived: Sequence[pa.Table | None]) -> Iterator[pa.Table]:
        """Yield what is new and what is taken back; as of ``BucketBatch``."""
        yield from super().run(arrived)
        self.report = replace(self.report, n_early=self._n_early, n_taken_back=self._n_taken_back)

    def _due(self, at: int, arrived: pa.Table | None, waiting: dict[int, Files]) -> pa.Table | None:
        found = super()._due(at, arrived, waiting)
        if self.plan.inputs[at].maker is not None:
            self._waiting[at] = waiting[at]
            self._arrived += [] if arrived is None else [codes_of(arrived)]
        return found

    def _looked_at(self, due: Sequence[pa.Table | None]) -> list[Ints]:
        """Return the codes of the entities to look at; of rows that wait, too, when they come."""
        return [*super()._looked_at(due), *self._arrived]

    def _in_one(self, inputs: Sequence[Flow]) -> tuple[pa.Table | None, dict[int, Files], int]:
        final, segments, low = super()._in_one(inputs)
        return self._told(final) if self._books.codes.size else None, segments, low

    def _looking(self, *given: Any) -> Looking:
        self._looked = _Remembering(*given, self.place, self.zone, self._watch)
        return self._looked

    def _told(self, final: pa.Table | None) -> pa.Table | None:
        """Return what is new and what is taken back, and keep results that are not final."""
        books, shape = self._books, self.plan.node.shape
        waiting = [self._rows_that_wait(at) for at, _ in enumerate(self.plan.inputs)]
        ended = _Ended(self, self._looked).results(waiting)
        now = [
            self._labelled(each, waiting)
            for each in (final, ended)
            if each is not None and len(each)
        ]
        if not now and EARLY not in books.kept:
            return None
        n_final = 0 if final is None else len(final)
        every = pa.concat_tables(now).combine_chunks() if now else None
        found = revised(books.kept.get(EARLY), every, shape, self.keys)
        if every is not None and len(every) > n_final:
            self._keep(every.slice(n_final))
        self._n_early = int((found.places >= n_final).sum())
        self._n_taken_back = len(found.rows) - len(found.places)
        return self._with_version(self._labelled(found.rows, waiting))

    def _keep(self, early: pa.Table) -> None:
        """Keep results that are not final.

        What no row has come up to is labelled anew when event time has passed it.
        """
        ends = ends_of(early, self.plan.node.shape)
        self._books.after[EARLY] = early, ends
        waits = ~early.column(VALIDATED).to_numpy()
        self._books.look_again(early.filter(pa.array(waits)), ends[waits] - 1)

    def _rows_that_wait(self, at: int) -> pa.Table | None:
        """Return the rows of the entities looked at that event time has not passed yet."""
        codes = self._books.codes
        files = self._waiting.get(at, ())
        held = HeldRows(self.place.files, self.place.runs, files, self.until)
        parts = [each.payload for each in held.before(FOREVER)]
        taken = [each.filter(pa.array(np.isin(codes_of(each), codes))) for each in parts]
        filled = [each for each in taken if len(each)]
        return pa.concat_tables(filled) if filled else None

    def _labelled(self, found: pa.Table, waiting: Sequence[pa.Table | None]) -> pa.Table:
        """Return results with whether event time or rows of their entity have come to their end.

        Where they have not, a result is what a model says of a time of which no row is there yet.
        """
        checked = np.full(len(found), FOREVER)
        for each, rows in zip(self.plan.inputs, waiting, strict=True):
            if each.maker is None:
                continue
            last = np.full(len(found), self.until)
            if rows is not None and len(found):
                ids, others = ids_together([found, rows], self.keys)
                latest = np.full(max(ids.max(), others.max()) + 1, self.until)
                np.maximum.at(latest, others, micros_of(rows.column(each.maker.time)))
                last = latest[ids]
            checked = np.minimum(checked, last)
        is_checked = ends_of(found, self.plan.node.shape) <= checked
        if VALIDATED in found.column_names:
            found = found.drop_columns([VALIDATED])
        return found.append_column(VALIDATED, pa.array(is_checked))

    def _with_version(self, found: pa.Table) -> pa.Table:
        version = np.full(len(found), self._version, np.int64)
        return found.append_column(VERSION, pa.array(version))


class _Remembering(Looking):
    """Keeps at hand the segments that it has looked at."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.seen: dict[int, list[pa.Table]] = {}
        """Those of each input, kept ones first."""

    def _kept_before(self, at: int, now: pa.Table | None, flows: Sequence[Flow]) -> pa.Table | None:
        before = super()._kept_before(at, now, flows)
        self.seen[at] = [each for each in (before, now) if each is not None and len(each)]
        return before


class _AtTheEnd(Looking):
    """Looks at the same segments once more, and at those behind them; all is final."""

    def __init__(self, of: _Remembering, books: Books) -> None:
        super().__init__(of.stage, of.keys, books, BucketState(), of.place, of.zone, of.watch)
        self._seen = of.seen

    def _kept_before(
        self,
        at: int,
        now: pa.Table | None,  # noqa: ARG002 - as of all
        flows: Sequence[Flow],  # noqa: ARG002
    ) -> pa.Table | None:
        seen = self._seen.get(at)
        return pa.concat_tables(seen) if seen else None

    def _front(
        self,
        fronts: Sequence[Ints],
        every: Mapping[int, Keyed | Rows],  # noqa: ARG002 - as of all
    ) -> tuple[Ints, Ints]:
        return np.full_like(fronts[0], FOREVER), np.full_like(fronts[0], FOREVER)


class _Ended(BucketBatch):
    """What a bucket would give if no row came any more, behind what is final; keeps nothing."""

    def __init__(self, of: EarlyBatch, looking: _Remembering) -> None:
        super().__init__(of.plan, of.place, BucketState(), of.report.bucket, ENDED, 0, of.zone)
        self._watch, self._of = of._watch, of
        self._books.codes = looking.books.codes
        self._books.kept = {kind: table for kind, (table, _) in looking.books.after.items()}
        self._at_end = _AtTheEnd(looking, self._books)

    def results(self, waiting: Sequence[pa.Table | None]) -> pa.Table | None:
        """Return what the rows that wait give, and those that are held."""
        parts = [self._part(at, rows) for at, rows in enumerate(waiting)]
        flows = [
            Flow(None if part is None else part.segments, KnownFronts(FOREVER)) for part in parts
        ]
        return self._at_end.results([flows[each] for each in self.plan.stages[0].inputs])

    def _held(self, at: int) -> pa.Table | None:
        runs = self._of._runs.get(at)
        return super()._held(at) if runs is None else runs.held
