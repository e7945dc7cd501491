"""Work of one bucket of entities in one batch.

The rows of a batch and the state before it come in. Results, the state after it and a report go
out. ``BucketBatch`` looks only at entities with new rows, and at entities that the watermark
concerns. ``plan`` says when results are given.

``EarlyBatch`` also gives early results. After each batch it computes one answer for all rows so
far: the final results, and those of a stream that ends here (``_Ended``), with open segments and
rows that the watermark has not passed yet. It takes back earlier results that this answer no longer
has (``revisions.revised``). So the newest versions of all batches together are that answer,
whatever the batches are. Once the watermark has passed all rows, the answer equals the one without
early results.

``WholeEarlyBatch`` does the same for all entities of a bucket at once. It serves results of several
entities (pairs, values over entities) and results with other keys (alarms).
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from msgspec.structs import replace as replace_struct

from eddyline.errors import OptionError
from eddyline.models import graph
from eddyline.models.entities.fronts import HELD, EntityIndex, KnownFronts, OpenRuns, RowFronts
from eddyline.models.entities.kept import CODE, codes_of
from eddyline.models.entities.stages import Context, CrossStage, EntityStage, Flow
from eddyline.models.fitting.bounds import n_outside
from eddyline.models.fitting.fit import Fit, FitReport
from eddyline.models.planning.watching import (
    Watching,
    Work,
    bounds_of_results,
    errors_of,
    made_by,
    work_of_results,
)
from eddyline.models.revisions import REVISIONS, VALIDATED, VERSION, ends_of, revised
from eddyline.models.segments import Layout, ids_together, keyed, micros_of
from eddyline.models.streams.plan import (
    ANY,
    MEMBER,
    MOST_ENTITIES,
    NEVER,
    BucketReport,
    BucketState,
    ModelCounts,
    RangeStep,
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
    from eddyline.models.entities.kept import Files
    from eddyline.models.fitting.fit import Part
    from eddyline.models.planning.watching import Clock
    from eddyline.models.streams.plan import SharedPlan, StreamPlan
    from eddyline.state.manifest import StatePlace


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
        self.plan, self.place, self.state = plan, place, state
        self.keys = (CODE, *plan.keys)
        self.until = max(until - offset, state.since)
        """The time of rows before which all are there (µs)."""
        self.report = BucketReport(bucket, state)
        self._index = self._opened(state)
        self._runs = {
            number: OpenRuns(place, state.rows.get(number, ()), self.keys, source.maker.time)
            for number, source in enumerate(plan.inputs)
            if isinstance(source.maker, Fit)
        }
        self._cut, self._watch = cut, Watching(clock, samples=plan.samples)
        self._context = Context(place, zone, self._watch)
        self._observed: Any = None
        self._waiting: dict[int, Files] = {}
        self._counts: dict[int, RowCounts] = {}
        self._n_early = self._n_taken_back = 0

    def run(self, arrived: Sequence[pa.Table | None]) -> Iterator[pa.Table]:
        """Yield results, and keep what later ones need.

        Args:
            arrived: for each input rows, or segments if it has no rows, with ``CODE``; None if
                none have come.

        Raises:
            OSError: state cannot be read or written.
        """
        plan, index = self.plan, self._index
        due = [self._due(number, rows) for number, rows in enumerate(arrived)]
        index.open(self._looked_at(due))
        parts = [self._part(number, rows) for number, rows in enumerate(due)]
        flows = [self._flow(number, part, arrived[number]) for number, part in enumerate(parts)]
        results, kept = self._solved(flows)
        fit = self._fit_report(due, parts)
        work = Work(n_looked_at=len(index.codes))
        for number, part in enumerate(parts):
            if part is not None:
                work += Work(errors=errors_of(number, part.segments.segments))
        sketch = self._sketched(due, parts, results)
        n_results = _size(results)
        if results is not None and n_results:
            work += work_of_results(results, bounds_of_results(plan.node))
            with self._watch.paused():
                yield results
        wakes, entities = index.close(self._waits, kept.get("low", NEVER))
        state = BucketState(
            **kept,
            wakes=wakes,
            entities=entities,
            since=self.until,
            waiting={number: files for number, files in self._waiting.items() if files},
            rows={number: runs.files for number, runs in self._runs.items() if runs.files},
            counts={
                number: counts for number, counts in self._counts.items() if counts != RowCounts()
            },
        )
        work += Work(ns=self._watch.spent())
        counts = ModelCounts(fit, n_results, self._n_early, self._n_taken_back, work)
        profile = self._watch.taken()
        self.report = BucketReport(
            self.report.bucket, state, counts, sketch, self._observed, profile
        )

    # -- what is looked at ------------------------------------------------------------------------

    def _due(self, number: int, arrived: pa.Table | None) -> pa.Table | None:
        """Return the rows of an input that event time has passed, and keep the others waiting."""
        maker = self.plan.inputs[number].maker
        if maker is None:
            return None
        files = self.state.waiting.get(number, ())
        held = HeldRows(self.place.files, self.place.runs, files, self.state.since)
        parts = [kept.payload for kept in held.before(self.until)]
        late: Kept | None = None
        if arrived is not None:
            times = micros_of(arrived.column(maker.time))
            waits = times >= self.until
            parts.append(arrived.filter(pa.array(~waits)))
            starts = times[waits]
            late = Kept({}, starts, starts, arrived.filter(pa.array(waits)).combine_chunks())
        self._waiting[number] = held.after(self.until, late)
        due = _together(parts)
        self._count(number, ahead=_size(arrived) - _size(due))
        return due

    def _count(self, number: int, *, ahead: int = 0, in_runs: int = 0) -> None:
        """Add to the counts of waiting rows of an input."""
        before = self._counts.get(number, self.state.counted(number))
        self._counts[number] = RowCounts(
            max(before.ahead + ahead, 0), max(before.open + in_runs, 0)
        )

    def _looked_at(self, due: Sequence[pa.Table | None]) -> list[Ints]:
        """Return the codes of entities with new rows, and of entities that wake up."""
        return [*self._index.woken, *(codes_of(rows) for rows in due if rows is not None)]

    @cached_property
    def _waits(self) -> dict[str, int]:
        """Delay after which a record concerns its entity again (µs), by kind."""
        makers = (
            (f"{HELD}{number}", source.maker) for number, source in enumerate(self.plan.inputs)
        )
        return {"ranges": 0, **{kind: maker.wait_us for kind, maker in makers if maker}}

    def _opened(self, before: StageState) -> EntityIndex:
        return EntityIndex(self.place, self.state.since, self.until, before)

    def _fit_report(
        self, due: Sequence[pa.Table | None], parts: Sequence[Part | None]
    ) -> FitReport:
        """Return what became of the rows that were looked at."""
        report = FitReport()
        for source, rows, part in zip(self.plan.inputs, due, parts, strict=True):
            if rows is not None and source.maker is not None:
                n_off = source.maker.n_off_earth(rows) if isinstance(source.maker, Fit) else 0
                n_wrong = n_outside(rows, source.maker.assumed)
                report += FitReport(n_outside=n_wrong, n_off_earth=n_off)
            report += FitReport() if part is None else part.report
        return report

    def _sketched(
        self, due: Sequence[pa.Table | None], parts: Sequence[Part | None], table: pa.Table | None
    ) -> Sketch:
        """Return what is drawn of a few entities; of early results, only the models."""
        codes = self._index.codes
        drawn = codes[codes <= self._cut][:MOST_ENTITIES]
        results = None if self.plan.is_early else table
        return sketched(self.plan.row_times, due, parts, results, drawn, self._context.zone)

    # -- segments -------------------------------------------------------------------------------

    def _part(self, number: int, due: pa.Table | None) -> Part | None:
        """Return the segments of an input that are final, and keep the rows of the others."""
        maker, index, runs = self.plan.inputs[number].maker, self._index, self._runs.get(number)
        before = self._held(number)
        if maker is None or (before is None and due is None):
            return None
        rows = _together([before, due]) if runs is None else runs.marked(before, due)
        assert rows is not None
        with self._watch.on(made_by(maker)):
            carried_rows = index.kept.get(f"known{number}")
            part = replace(maker, keys=self.keys).part(
                rows.combine_chunks(), self.until, carried_rows
            )
        self._count(number, in_runs=len(part.held) - _size(before))
        held = part.held if runs is None else runs.taken(part.held)
        if len(held):
            index.after[f"{HELD}{number}"] = held, micros_of(held.column(maker.time))
        if part.known is not None and len(part.known):
            index.after[f"known{number}"] = part.known, np.zeros(len(part.known), np.int64)
        if runs is not None:
            runs.keep(self._fronts(number))
        return part

    def _held(self, number: int) -> pa.Table | None:
        """Return the rows of an input that are in no segment yet, of the entities looked at."""
        rows = self._index.kept.get(f"{HELD}{number}")
        runs = self._runs.get(number)
        return rows if rows is None or runs is None else runs.before(rows)

    def _flow(self, number: int, part: Part | None, arrived: pa.Table | None) -> Flow:
        """Return an input's new segments, and how far the segments of each entity reach."""
        source = self.plan.inputs[number]
        if source.maker is None:
            layout = Layout(self.keys, source.shape.attributes)
            there = None if arrived is None else keyed(arrived, layout)
            return Flow(there, KnownFronts(FOREVER))
        return Flow(None if part is None else part.segments, self._fronts(number))

    def _fronts(self, number: int) -> RowFronts:
        """Return how far the segments of each entity of an input are that has rows."""
        index, kind = self._index, f"{HELD}{number}"
        held, wait = index.after.get(kind), self._waits[kind]
        return RowFronts(self.until, self.keys, index.codes, held, index.records, kind, wait)

    # -- results --------------------------------------------------------------------------------

    def _solved(self, inputs: Sequence[Flow]) -> tuple[pa.Table | None, dict[str, Any]]:
        """Return the results, and the state for later ones as fields of ``BucketState``."""
        if len(self.plan.stages) == 1:
            results, (segments, low) = self._in_one(inputs)
            return results, {"segments": segments, "low": low}
        results, stages = self._in_stages(inputs, self.plan, self.state.stages)
        return results, {"stages": stages}

    def _in_one(
        self, inputs: Sequence[Flow]
    ) -> tuple[pa.Table | None, tuple[dict[int, Files], int]]:
        """Return the results of a graph that is not cut, and what it keeps of segments."""
        (stage,) = self.plan.stages
        flows = [inputs[number] for number in stage.inputs]
        solved = EntityStage(stage, self._index, self.state, flows, self._context)
        results = self._results(solved)
        return results, solved.keep()

    def _results(self, stage: EntityStage) -> pa.Table | None:
        """Return the results of the last stage, if there are entities to look at."""
        results = stage.results() if stage.index.codes.size else None
        self._observed = stage.observed
        return results

    def _in_stages(
        self, inputs: Sequence[Flow], plan: StreamPlan, states_before: Mapping[int, StageState]
    ) -> tuple[pa.Table | None, dict[int, StageState]]:
        """Return the results of a graph that is cut into stages, and what these keep."""
        flows, states = list(inputs), {}
        results: pa.Table | None = None
        are_alike = alike(plan.stages, len(inputs))
        for number, stage in enumerate(plan.stages):
            stage_flows = [flows[place] for place in stage.inputs]
            if not are_alike[number]:
                stage_flows = [flow.as_one for flow in stage_flows]
            before = states_before.get(number, StageState())
            if stage.is_crossing:
                crossing = CrossStage(stage, before, self._context)
                with self._watch.on(stage.node):
                    flows.append(crossing.flow(stage_flows))
                states[number] = crossing.after
                continue
            index = self._opened(before)
            fresh = [
                codes_of(flow.fresh.entities) for flow in stage_flows if flow.fresh is not None
            ]
            index.open([*index.woken, *fresh])
            solved = EntityStage(stage, index, before, stage_flows, self._context)
            if number < len(plan.stages) - 1:
                flows.append(solved.flow())
            else:
                results = self._results(solved)
            states[number] = self._closed(solved)
        return results, states

    def _closed(self, stage: EntityStage) -> StageState:
        """Return what a stage keeps; ranges are looked at again when time has passed their end."""
        index = stage.index
        if "ranges" in index.after:
            ranges, ends = index.after["ranges"]
            # What holds an entity is none of this stage's: it looks again at once.
            index.after["ranges"] = ranges, np.maximum(ends, self.until)
        segments, low = stage.keep()
        wakes, entities = index.close({"ranges": 0}, low)
        return StageState(wakes, entities, segments, low)


def _together(tables: Sequence[pa.Table | None]) -> pa.Table | None:
    """Return the rows of several tables; None if there are none."""
    filled = [table for table in tables if table is not None and len(table)]
    return pa.concat_tables(filled) if filled else None


def _size(table: pa.Table | None) -> int:
    return 0 if table is None else len(table)


class SharedBatch(BucketBatch):
    """The work of one bucket in one batch for several queries: segments are made once."""

    plan: SharedPlan

    def _solved(self, inputs: Sequence[Flow]) -> tuple[pa.Table | None, dict[str, Any]]:
        """Return the results of all queries, each in columns of its own, and what they keep."""
        tables: list[pa.Table] = []
        members: dict[str, dict[int, StageState]] = {}
        for number, (name, plan) in enumerate(self.plan.plans.items()):
            before = self.state.members.get(name, {})
            results, members[name] = self._in_stages(inputs, plan, before)
            if results is not None and len(results):
                shown = results.select(
                    [column for column in results.column_names if not is_hidden(column)]
                )
                names = [self.plan.column(number, column) for column in shown.column_names]
                place = pa.array(np.full(len(results), number, np.int32))
                tables.append(shown.rename_columns(names).append_column(MEMBER, place))
        both = pa.concat_tables(tables, promote_options="default") if tables else None
        return both, {"members": members}

    def _sketched(
        self,
        due: Sequence[pa.Table | None],
        parts: Sequence[Part | None],
        table: pa.Table | None,  # noqa: ARG002
    ) -> Sketch:
        """Return what is drawn of a few entities: the models, which all have in common."""
        return super()._sketched(due, parts, None)


# -- early results --------------------------------------------------------------------------------


EARLY = "early"
"""The kind of records of results that were given and are not final."""
ENDED = 2**62
"""An instant behind all rows (µs)."""


def check_early(plan: StreamPlan) -> None:
    """Check that results of a plan may be given early, if they are asked for.

    Raises:
        OptionError: results have a column of the name of one that early ones have beside them.
    """
    if not plan.is_early:
        return
    shape = plan.node.shape
    names = (*shape.keys, *(shape.attributes if shape.kind != "segments" else ()))
    for name in names:
        if name.lower() in REVISIONS:
            msg = f"early results have a column {name.lower()!r} themselves; rename {name!r}"
            raise OptionError(msg, name=name)


class EarlyBatch(BucketBatch):
    """Work of one bucket in one batch, with results before they are final.

    Args:
        *arguments: as of ``BucketBatch``.
        version: the number of the batch, more than those before it.
    """

    def __init__(self, *arguments: Any, version: int) -> None:
        super().__init__(*arguments)
        self._version = version
        self._arrived: Sequence[pa.Table | None] = ()

    def run(self, arrived: Sequence[pa.Table | None]) -> Iterator[pa.Table]:
        """Yield what is new and what is taken back; as of ``BucketBatch``."""
        self._arrived = arrived
        yield from super().run(arrived)

    def _looked_at(self, due: Sequence[pa.Table | None]) -> list[Ints]:
        """Return the codes of the entities to look at; of rows that wait, too, when they come."""
        arrived = (
            rows for number, rows in enumerate(self._arrived) if self.plan.inputs[number].maker
        )
        return [*super()._looked_at(due), *(codes_of(rows) for rows in arrived if rows is not None)]

    def _results(self, stage: EntityStage) -> pa.Table | None:
        final = super()._results(stage)
        return self._revision(final, stage) if stage.index.codes.size else None

    def _revision(self, final: pa.Table | None, stage: EntityStage) -> pa.Table | None:
        """Return what is new and what is taken back, and keep results that are not final."""
        index, shape = self._index, self.plan.node.shape
        waiting = [self._rows_that_wait(number) for number, _ in enumerate(self.plan.inputs)]
        ended = _Ended(self, stage).results(waiting)
        both = (table for table in (final, ended) if table is not None)
        now = _together([self._labelled(table, waiting) for table in both])
        if now is None and EARLY not in index.kept:
            return None
        n_final = _size(final)
        every = None if now is None else now.combine_chunks()
        revision = revised(index.kept.get(EARLY), every, shape, self.keys)
        if every is not None and len(every) > n_final:
            self._keep(every.slice(n_final))
        self._n_early = int((revision.places >= n_final).sum())
        self._n_taken_back = len(revision.rows) - len(revision.places)
        version = pa.array(np.full(len(revision.rows), self._version, np.int64))
        return self._labelled(revision.rows, waiting).append_column(VERSION, version)

    def _keep(self, early: pa.Table) -> None:
        """Keep results that are not final.

        What no row has come up to is labelled anew when event time has passed it.
        """
        ends = ends_of(early, self.plan.node.shape)
        self._index.after[EARLY] = early, ends
        waits = ~early.column(VALIDATED).to_numpy()
        self._index.look_again(early.filter(pa.array(waits)), ends[waits] - 1)

    def _rows_that_wait(self, number: int) -> pa.Table | None:
        """Return the rows of the entities looked at that event time has not passed yet."""
        files = self._waiting.get(number, ())
        held = HeldRows(self.place.files, self.place.runs, files, self.until)
        parts = [kept.payload for kept in held.before(FOREVER)]
        codes = self._index.codes
        return _together([part.filter(pa.array(np.isin(codes_of(part), codes))) for part in parts])

    def _labelled(self, results: pa.Table, waiting: Sequence[pa.Table | None]) -> pa.Table:
        """Return results with whether event time or rows of their entity have come to their end.

        Where they have not, a result is what a model says of a time of which no row is there yet.
        """
        checked = np.full(len(results), FOREVER)
        for source, rows in zip(self.plan.inputs, waiting, strict=True):
            if source.maker is None:
                continue
            last = np.full(len(results), self.until)
            if rows is not None and len(results):
                ids, others = ids_together([results, rows], self.keys)
                latest = np.full(max(ids.max(), others.max()) + 1, self.until)
                np.maximum.at(latest, others, micros_of(rows.column(source.maker.time)))
                last = latest[ids]
            checked = np.minimum(checked, last)
        is_checked = ends_of(results, self.plan.node.shape) <= checked
        if VALIDATED in results.column_names:
            results = results.drop_columns([VALIDATED])
        return results.append_column(VALIDATED, pa.array(is_checked))


class _Ended(BucketBatch):
    """Results of a bucket if the stream ended here, behind the final ones; keeps nothing.

    Args:
        batch: the batch that it ends, and
        stage: whose segments are looked at once more, with those behind them.
    """

    def __init__(self, batch: EarlyBatch, stage: EntityStage) -> None:
        bucket = batch.report.bucket
        super().__init__(batch.plan, batch.place, BucketState(), bucket, ENDED)
        self._watch, self._context = batch._watch, batch._context
        self._batch, self._ended = batch, stage
        self._index.codes = stage.index.codes
        self._index.kept = {kind: table for kind, (table, _) in stage.index.after.items()}

    def results(self, waiting: Sequence[pa.Table | None]) -> pa.Table | None:
        """Return the results of waiting rows and of held ones."""
        parts = [self._part(number, rows) for number, rows in enumerate(waiting)]
        flows = [
            Flow(None if part is None else part.segments, KnownFronts(FOREVER)) for part in parts
        ]
        stage = self._ended.stage
        stage_flows = [flows[number] for number in stage.inputs]
        last = EntityStage(stage, self._index, BucketState(), stage_flows, self._context)
        if stage.looks_back:
            both = zip(self._ended.tables, last.tables, strict=True)
            last.tables = [[*before, *new] for before, new in both]
        return last.results()

    def _held(self, number: int) -> pa.Table | None:
        runs = self._batch._runs.get(number)
        return super()._held(number) if runs is None else runs.held


class WholeEarlyBatch(BucketBatch):
    """Early results for all entities of the bucket at once, with keys of their own.

    What a stream that ends here gives comes from the state after the batch, without more rows.
    Files that this writes are named by no manifest.

    Args:
        *arguments: as of ``BucketBatch``.
        version: the number of the batch, more than those before it.
    """

    def __init__(self, *arguments: Any, version: int) -> None:
        super().__init__(*arguments)
        self._arguments, self._version = arguments, version

    def run(self, arrived: Sequence[pa.Table | None]) -> Iterator[pa.Table]:
        """Yield what is new and what is taken back; as of ``BucketBatch``."""
        final = [table.combine_chunks() for table in super().run(arrived)]
        plan, place, _, bucket, *_ = self._arguments
        report = self.report
        ended = BucketBatch(plan, place, report.after, bucket, ENDED, *self._arguments[5:])
        early = [*ended.run([None] * len(plan.inputs))]
        held = HeldRows(place.files, place.runs, self.state.early, NEVER).before(FOREVER)
        before = _together([held_rows.payload for held_rows in held])
        n_final = sum(map(_size, final))
        now = _together([self._labelled(table) for table in (*final, *early)])
        if before is None and now is None:
            return
        every = None if now is None else now.combine_chunks()
        keys = [CODE, *(key for key in plan.node.shape.keys if not is_hidden(key))]
        revision = revised(before, every, plan.node.shape, keys)
        kept: Files = ()
        if every is not None and len(every) > n_final:
            starts = np.zeros(len(every) - n_final, np.int64)
            rows = Kept({}, starts, starts, every.slice(n_final))
            kept = HeldRows(place.files, place.runs, (), NEVER).after(NEVER, rows)
        counts = replace_struct(
            report.counts,
            n_results=len(revision.rows),
            n_early=int((revision.places >= n_final).sum()),
            n_taken_back=len(revision.rows) - len(revision.places),
        )
        state = replace_struct(report.after, early=kept)
        self.report = replace(report, after=state, counts=counts)
        if len(revision.rows):
            version = pa.array(np.full(len(revision.rows), self._version, np.int64))
            yield self._labelled(revision.rows).append_column(VERSION, version)

    def _labelled(self, results: pa.Table) -> pa.Table:
        """Return results with whether event time has come to their end, and one code for all."""
        ends = ends_of(results, self.plan.node.shape)
        columns = [
            column
            for column in results.column_names
            if column != VALIDATED and not is_hidden(column)
        ]
        code = pa.array(np.zeros(len(results), np.int64))
        validated = pa.array(ends <= self.until)
        return results.select(columns).append_column(CODE, code).append_column(VALIDATED, validated)


def is_hidden(name: str) -> bool:
    """Return whether a column is one that results travel with, and have not outside."""
    return name.startswith("__")


def early_batch(plan: StreamPlan) -> type[EarlyBatch | WholeEarlyBatch]:
    """Return what gives early results of a plan."""
    steps = (part.step for part in graph.parts(plan.node) if isinstance(part, graph.Unary))
    is_whole = len(plan.stages) > 1 or any(isinstance(step, RangeStep) for step in steps)
    return WholeEarlyBatch if is_whole else EarlyBatch
