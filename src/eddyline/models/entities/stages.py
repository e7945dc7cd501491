"""Stages of a graph: their results in a batch, and their state.

Final segments come in, and a ``Flow`` goes on to the next stage. ``fronts`` has the watermark of
each group, its *front*: results before it are final.

``EntityStage`` is a stage of a graph over the same entities. It gives each result of an entity
once, up to the entity's front, and keeps with the entity how far it has given results.

``CrossStage`` is the stage of pairs, and of values over entities. A batch pairs its new segments
with kept ones. It does not read kept segments that end before the first new one begins. A segment
stays as long as an entity may have another one that overlaps it. For each group it keeps only the
pieces that can still affect the result: all of them for sums, the possible extremes for least and
greatest. Pieces are appended as they arrive and read once the group's front reaches them. If all
entities are one group, ``CrossStage`` has it.

``GroupsBatch`` has several groups, each with its own front. Pieces are written by the codes of
their groups. A record of each group says where its first piece without a result begins, and the
front before which none of its pieces is over. So a batch reads only groups that have results to
give.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from eddyline.data.arrays import distinct
from eddyline.models import graph, timeline
from eddyline.models.entities.fronts import (
    GIVEN,
    KnownFronts,
    PairFronts,
    StageFronts,
    frontier_of,
    known_until,
    last_ends,
    whole_until,
)
from eddyline.models.entities.kept import AT, CODE, EntityRecords, EntityRows, codes_of
from eddyline.models.segments import (
    Keyed,
    Layout,
    Segments,
    codes_by,
    ends_of,
    entity_ids,
    ids_together,
    keyed,
    micros_of,
    table_of,
    unified,
)
from eddyline.models.steps import OverEntities, Rows, result_table
from eddyline.models.streams.plan import NEVER, StageState
from eddyline.models.windows import integrals
from eddyline.state.rows import FOREVER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.data.arrays import Indices, Ints, Mask
    from eddyline.models.entities.fronts import EntityIndex, Fronts
    from eddyline.models.entities.kept import EntityRuns, Files
    from eddyline.models.streams.plan import Stage
    from eddyline.state.manifest import StatePlace


@dataclass(frozen=True)
class Flow:
    """What an input or a stage gives in a batch."""

    fresh: Keyed | None
    """Segments that are final, each given once; None if there are none."""
    fronts: Fronts
    """Before which instant all segments of each entity have been given."""

    @property
    def as_one(self) -> Flow:
        """The same with one code for all entities, as of inputs that have different ones."""
        fresh, fronts = self.fresh, self.fronts.by_keys
        if fresh is None:
            return Flow(None, fronts)
        place = fresh.entities.column_names.index(CODE)
        codes = pa.array(np.zeros(len(fresh.entities), np.int64))
        return Flow(Keyed(fresh.segments, fresh.entities.set_column(place, CODE, codes)), fronts)


@dataclass(frozen=True)
class Context:
    """What all stages of a bucket have in common in a batch."""

    place: StatePlace
    zone: str | None
    """The time zone of timestamps; see ``table_of``."""
    watch: graph.Watch = graph.UNWATCHED


class EntityStage:
    """The work of a stage over segments of the same entities in one batch.

    Args:
        stage: what is done.
        index: the records of the entities, and the codes of those that are looked at.
        before: the state before the batch.
        flows: what each input of the stage gives.
        context: of the bucket.
    """

    def __init__(
        self,
        stage: Stage,
        index: EntityIndex,
        before: StageState,
        flows: Sequence[Flow],
        context: Context,
    ) -> None:
        self.stage, self.index, self.flows = stage, index, flows
        self._zone, self._watch = context.zone, context.watch
        self._keys = (CODE, *stage.keys)
        self._low = before.low
        self._kept = {
            ref: EntityRows(context.place, before.segments.get(ref, ())) for ref in stage.inputs
        }
        self.observed: Any = None
        """What a step that makes ranges has observed."""

    @cached_property
    def _new(self) -> list[pa.Table | None]:
        """The new segments of each input."""
        new = [flow.fresh for flow in self.flows]
        return [None if fresh is None else table_of(fresh, self._zone) for fresh in new]

    @cached_property
    def tables(self) -> list[list[pa.Table]]:
        """The segments of each input that results are made of; those that were kept come first."""
        tables = []
        for ref, new in zip(self.stage.inputs, self._new, strict=True):
            kept = None
            if self.stage.looks_back:
                kept = self._kept[ref].of(self.index.codes, self._low)
            tables.append([table for table in (kept, new) if table is not None and len(table)])
        return tables

    def results(self) -> pa.Table | None:
        """Return the results of a batch as rows."""
        stage = self.stage
        if stage.looks_back or stage.given is not stage.node:
            results, front, names = self._looking_back()
            if stage.given is stage.node:
                return result_table(results, self._zone)
            assert isinstance(results, Keyed)
            with self._watch.on(stage.node):
                return self._changes(results, front, names)
        (only,) = self.flows
        if only.fresh is None:
            return None
        return result_table(graph.run(stage.given, [only.fresh], self._watch), self._zone)

    def flow(self) -> Flow:
        """Return the results of a batch as segments for the next stage."""
        fronts = tuple(flow.fronts for flow in self.flows)
        result: Keyed | Rows | None = None
        if self.stage.looks_back:
            result = self._looking_back()[0]
        elif self.flows[0].fresh is not None:
            result = graph.run(self.stage.node, [self.flows[0].fresh], self._watch)
        assert not isinstance(result, Rows)  # nothing is built on rows
        is_some = result is not None and len(result.segments)
        return Flow(result if is_some else None, StageFronts(fronts, graph.lag(self.stage.node)))

    def keep(self) -> tuple[dict[int, Files], int]:
        """Keep the new segments, if results look back at them.

        Returns:
            The files of segments after the batch, and ``StageState.low``.
        """
        if not self.stage.looks_back:
            return {}, self._low
        # A segment that ends where the first window of a result begins says where the result does.
        back = graph.reach(self.stage.given) + graph.lag(self.stage.given) + 1

        def needed(rows: pa.Table) -> pa.Table:
            front = np.min([flow.fronts.of(rows) for flow in self.flows], axis=0)
            return rows.filter(pa.array(ends_of(rows) > timeline.earlier(front, back)))

        least = min(flow.fronts.least for flow in self.flows)
        low = max(self._low, timeline.earlier(least, back))
        after = {
            ref: self._kept[ref].after(new, low, needed)
            for ref, new in zip(self.stage.inputs, self._new, strict=True)
        }
        return {ref: files for ref, files in after.items() if files}, low

    # -- results --------------------------------------------------------------------------------

    def _looking_back(self) -> tuple[Keyed | Rows, Ints, pa.Table]:
        """Return the results that are final now, until when they are, and their entities."""
        stage = self.stage
        segments, names = self._segments()
        since = self._given_until(names)
        every = graph.every(stage.given, segments, self._watch)
        fronts = [
            known_until(part.segments, flow.fronts.of(names))
            for part, flow in zip(segments, self.flows, strict=True)
        ]
        front, again = frontier_of(stage.given, fronts, every)
        front = np.maximum(front, since)
        results = every[id(stage.given)]
        if not stage.looks_back:
            return results, front, names
        self._look_again(results, np.min(fronts, axis=0), again, names)
        if isinstance(results, Keyed):
            over = whole_until(results.segments, front)
            results, front = _settled(results, since, front), np.maximum(over, since)
        else:
            times, keys = results.samples.times, results.samples.keys
            is_new = (times >= since[keys]) & (times < front[keys])
            results = Rows(results.samples.take(is_new), results.entities)
        if len(names):
            # No segment that ends later is of results that were given: see ``keep``.
            table = names.append_column(GIVEN, pa.array(front))
            last = [last_ends(part.segments, len(names)) for part in segments]
            self.index.after[GIVEN] = table, np.max([front, *last], axis=0)
        return results, front, names

    def _look_again(
        self, results: Keyed | Rows, fronts: Ints, again: Ints, names: pa.Table
    ) -> None:
        """Look at entities again when more of their results are final, although nothing comes.

        Args:
            results: all results that the segments have so far.
            fronts: before which instant all segments of each entity are there (µs).
            again: when more is final of what waits for a piece to be over (µs).
            names: the entities.

        Entities with rows that are in no segment yet are looked at when these are, if not before.
        """
        if isinstance(results, Keyed):
            keys, instants = results.segments.keys, results.segments.ends - 1
        else:
            keys, instants = results.samples.keys, results.samples.times
        waits = instants >= fronts[keys]
        np.minimum.at(again, keys[waits], instants[waits])
        is_open = again < FOREVER
        is_open &= (fronts >= self.index.until) | ~self.index.has_held(names)
        self.index.look_again(names.filter(pa.array(is_open)), again[is_open])

    def _segments(self) -> tuple[list[Keyed], pa.Table]:
        """Return the segments of all inputs with common ids, and what these are called."""
        segments: list[Keyed] = []
        for place, tables in enumerate(self.tables):
            layout = Layout(self._keys, self.stage.shapes[place].attributes)
            whole = _together(tables)
            segments.append(no_segments(layout) if whole is None else keyed(whole, layout))
        kept = self.index.kept
        extra = [kept[kind].select(list(self._keys)) for kind in ("ranges", GIVEN) if kind in kept]
        return unified(segments, extra, self._keys)

    def _given_until(self, names: pa.Table) -> Ints:
        """Return until when the results of entities were given before (µs).

        Results are given that begin before all segments are kept that they look at.
        """
        low = self._low
        first = low if low == NEVER else low + graph.reach(self.stage.given) + 1
        instants = np.full(len(names), first)
        before = self.index.kept.get(GIVEN)
        if before is not None and len(names):
            ids = ids_together([names, before], self._keys)[1]
            instants[ids] = np.maximum(before.column(GIVEN).to_numpy(), first)
        return instants

    def _changes(self, results: Keyed, front: Ints, names: pa.Table) -> pa.Table | None:
        """Return the ranges that are over, and keep those that may go on."""
        step, shape = self.stage.ranges, self.stage.told.shape
        if step is not None:
            results, self.observed = step.watched(results)
        new = table_of(results, self._zone) if len(results.segments) else None
        whole = _together([self.index.kept.get("ranges"), new])
        if whole is None:
            return None
        by = shape.keys[: len(shape.keys) - len(self._keys) + 1]
        every = keyed(whole, Layout((*by, *self._keys), shape.attributes))
        until = front[ids_together([names, every.entities], self._keys)[1]]
        changes = integrals.changes(every.segments)
        starts = changes.starts
        goes_on = changes.ends >= until[starts.keys]
        if step is not None:
            goes_on &= step.are_asked(every.entities)[starts.keys]
        kept, ends = _as_segments(every, changes, goes_on, self._zone)
        if len(kept):
            self.index.after["ranges"] = kept, ends
        over = Rows(starts.take(~goes_on), every.entities, changes.ends[~goes_on])
        return result_table(over, self._zone)


def begins_of(table: pa.Table) -> Ints:
    """Return where the segments of a table begin (µs)."""
    return micros_of(table.column("lo"))


def no_segments(layout: Layout) -> Keyed:
    """Return no segments."""
    none, flags = np.zeros(0, np.int64), np.zeros(0, np.bool_)
    coefs = {name: np.zeros((0, 1)) for name in layout.attributes}
    errors = {name: np.zeros(0) for name in layout.attributes}
    return Keyed(Segments(none, none, none, none, flags, flags, coefs, errors), pa.table({}))


def _settled(results: Keyed, until: Ints, front: Ints) -> Keyed:
    """Return the results that are over, and were not given before.

    Of what was before that instant not all is kept, so a result may seem to begin there earlier.
    """
    segments = results.segments
    since = until[segments.keys]
    lo = np.where(segments.is_point, segments.lo, np.maximum(segments.lo, since))
    is_new = (lo >= since) & (segments.ends > since) & (segments.ends <= front[segments.keys])
    return Keyed(segments.cut(lo, segments.hi).take(is_new), results.entities)


def _as_segments(
    every: Keyed, changes: integrals.Changes, rows: Mask, zone: str | None
) -> tuple[pa.Table, Ints]:
    """Return ranges as segments that have the values with which they begin, and their ends."""
    segments, starts = every.segments, changes.starts.take(rows)
    order = segments.by_time
    begins, wanted = timeline.codes(
        (segments.keys[order], segments.lo[order]), (starts.keys, starts.times)
    )
    ends = changes.ends[rows]
    taken = segments.take(order[np.searchsorted(begins, wanted, "left")])
    kept = replace(taken.cut(starts.times, ends), is_point=starts.times == ends)
    return table_of(Keyed(kept, every.entities), zone), kept.hi


# -- pairs and values over entities ---------------------------------------------------------------


_MIXED = np.int64(0x9E3779B97F4A7C15 - (1 << 64))
"""An odd number with which the codes of two entities become that of their pair."""


class CrossStage:
    """The work of a stage over several entities in one batch.

    Args:
        stage: one step.
        before: the state before the batch.
        context: of the bucket.
    """

    def __init__(self, stage: Stage, before: StageState, context: Context) -> None:
        self.stage, self._context = stage, context
        self._zone, self._watch = context.zone, context.watch
        self.segments = dict(before.segments)
        """The files of segments, from now on those after the batch."""
        self.records = before.entities
        """What is known of groups by keys, from now on after the batch."""
        self.low = before.low
        """Until when the value of all entities was given (µs), from now on after the batch."""
        # The code stands behind the keys, by which pairs come.
        self._shapes = {
            place: replace(shape, keys=(*shape.keys, CODE)) for place, shape in stage.shapes.items()
        }

    def flow(self, flows: Sequence[Flow]) -> Flow:
        """Return what is new of pairs or groups."""
        node = self.stage.node
        if isinstance(node, graph.OtherEntities):
            return self._pairs(node, flows)
        assert isinstance(node, graph.Unary)
        assert isinstance(node.step, OverEntities)
        method = self._of_groups if node.step.by else self._of_all
        return method(node.step, flows[0])

    @property
    def after(self) -> StageState:
        """What is kept after the batch."""
        return StageState(entities=self.records, segments=self.segments, low=self.low)

    # -- pairs ----------------------------------------------------------------------------------

    def _pairs(self, node: graph.OtherEntities, flows: Sequence[Flow]) -> Flow:
        tally, step = self._watch.tally(node), node.step
        if step.is_whole:  # nothing is left out: of what is near later, no more is known
            step = replace(step, is_whole=False, within={})
        assert isinstance(node.left, graph.Input)
        assert isinstance(node.right, graph.Input)
        one, other = places = node.left.at, node.right.at
        fronts = {place: flows[place].fronts.known() for place in places}
        fresh = {place: self._table(place, flows[place]) for place in places}
        begins = [flow.fresh.segments.lo for flow in flows if flow.fresh is not None]
        first = min((int(lo.min()) for lo in begins if len(lo)), default=FOREVER)
        kept = {place: self._by_end(place).since(first) for place in places}
        for side, table in fresh.items():
            others = (b for a, b in zip(places, reversed(places), strict=True) if a == side)
            self._keep(side, table, min(fronts[place].least for place in others))
        pairs = []
        new, old = fresh[one], kept[one]
        if step.is_self and new is not None:
            shapes = self._shapes[one], self._shapes[other]
            alone = self._keyed(one, new)
            pairs.append(step.run(alone, None, *shapes, tally))
            self._watch.saw(node, (alone, alone), pairs[-1])
            if old is not None:
                both = self._keyed(one, pa.concat_tables([new, old]))
                is_old = (np.arange(len(new) + len(old)) >= len(new)).astype(np.int64)
                pairs.append(step.run(both, is_old, *shapes, tally))
                self._watch.saw(node, (both, both), pairs[-1])
        elif not step.is_self:
            for left_table, right in (
                (new, _together([kept[other], fresh[other]])),
                (old, fresh[other]),
            ):
                if left_table is not None and right is not None:
                    sides = [self._keyed(one, left_table), self._keyed(other, right)]
                    (a, b), _ = unified(sides, (), sides[0].entities.column_names)
                    pairs.append(step.between(a, b, tally))
                    self._watch.saw(node, (a, b), pairs[-1])
        return Flow(self._coded(pairs, node), PairFronts(step, (fronts[one], fronts[other])))

    def _coded(self, pairs: Sequence[Keyed], node: graph.OtherEntities) -> Keyed | None:
        """Return pairs with a code of their own."""
        whole = _together([table_of(part, self._zone) for part in pairs if len(part.segments)])
        if whole is None:
            return None
        one, other = (f"{name}_{CODE}" for name in node.names)
        codes = _mixed(whole.column(one).to_numpy(), whole.column(other).to_numpy())
        table = whole.drop_columns([one, other]).append_column(CODE, pa.array(codes))
        shape = node.shape
        return keyed(table, Layout((CODE, *shape.keys), shape.attributes))

    # -- groups ---------------------------------------------------------------------------------

    def _of_groups(self, step: OverEntities, flow: Flow) -> Flow:
        """Return what is new of groups, each of which has a front of its own."""
        fronts, ref = flow.fronts.known().by(step.by), self.stage.inputs[0]
        groups = GroupsBatch(
            step, self._shapes[0].layout, self._context, self.records, self.segments.get(ref, ()),
            fronts, self._table(0, flow),
        )  # fmt: skip
        done, self.records, self.segments[ref] = groups.run()
        return Flow(done, _with(fronts, *groups.held))

    def _of_all(self, step: OverEntities, flow: Flow) -> Flow:
        """Return what is new of one group, of which all have one front.

        Only segments that begin before it are looked at: so what is kept is read once the front
        has come to it, and not in each batch.
        """
        front, ref = flow.fronts.known().least, self.stage.inputs[0]
        held = EntityRows(self._context.place, self.segments.get(ref, ()), begins_of, sorted_by=AT)
        fresh = self._table(0, flow)
        whole = _together([held.until(front), fresh])
        over, done = front, None
        if whole is not None:
            pieces = _behind(self._keyed(0, whole), self.low)
            values = step.run(pieces)
            self._watch.saw(step, (pieces,), values)
            segments = values.segments
            over = int(whole_until(segments, np.array([front]))[0])
            group = pa.table({CODE: pa.array([0], pa.int64())})
            done = Keyed(segments.take(segments.ends <= front), group)
        self.low = max(self.low, over)

        def reduced(rows: pa.Table) -> pa.Table:
            some = step.partial(_behind(self._keyed(0, rows), self.low))
            return table_of(some, self._zone)

        new = None if fresh is None else reduced(fresh)
        self.segments[ref] = held.after(new, self.low, reduced)
        return Flow(done, KnownFronts(over))

    # -- segments that are kept -------------------------------------------------------------------

    def _by_end(self, place: int) -> EntityRows:
        files = self.segments.get(self.stage.inputs[place], ())
        return EntityRows(self._context.place, files, sorted_by=AT)

    def _keep(self, place: int, new: pa.Table | None, low: int) -> None:
        """Keep the segments that are not over before an instant, with new ones among them."""

        def needed(rows: pa.Table) -> pa.Table:
            return rows.filter(pa.array(ends_of(rows) > low))

        new = None if new is None else needed(new)
        self.segments[self.stage.inputs[place]] = self._by_end(place).after(new, low, needed)

    def _table(self, place: int, flow: Flow) -> pa.Table | None:
        """Return new segments as they are kept."""
        if flow.fresh is None or not len(flow.fresh.segments):
            return None
        entities = flow.fresh.entities.select(list(self._shapes[place].keys))
        return table_of(Keyed(flow.fresh.segments, entities), self._zone)

    def _keyed(self, place: int, table: pa.Table) -> Keyed:
        return keyed(table, self._shapes[place].layout)


def _together(tables: Sequence[pa.Table | None]) -> pa.Table | None:
    filled = [table for table in tables if table is not None and len(table)]
    return pa.concat_tables(filled) if filled else None


def _behind(pieces: Keyed, since: Ints | int) -> Keyed:
    """Return what segments have behind an instant of each, or of all (µs)."""
    segments = pieces.segments
    rest = segments.cut(np.maximum(segments.lo, since), segments.hi)
    return Keyed(rest.take(segments.hi > since), pieces.entities)


def _mixed(one: Ints, other: Ints) -> Ints:
    """Return a code of two codes: which is the first matters."""
    with np.errstate(over="ignore"):
        codes: Ints = (one * _MIXED) ^ (other + (one >> 7))
    return codes


def _with(fronts: KnownFronts, names: pa.Table, instants: Ints) -> KnownFronts:
    """Return fronts with more exceptions."""
    if not len(names):
        return fronts
    if fronts.names is None or fronts.at is None:
        return replace(fronts, names=names, at=instants)
    every = pa.concat_tables([fronts.names.select(list(fronts.keys)), names])
    return replace(fronts, names=every, at=np.concatenate([fronts.at, instants]))


# -- several groups of entities -------------------------------------------------------------------


BEGIN, NEXT = "__begin", "__next"
"""Columns of records: where the first piece of a group begins that was not told yet (µs), and the
front before which none of them is over (µs)."""

_OPEN = "open"
"""The kind of these records."""


class GroupsBatch:
    """The groups that have pieces, in one batch.

    Args:
        step: the value, by keys.
        layout: the columns of segments.
        context: of the bucket.
        records: of the groups, before the batch.
        files: of pieces, before the batch.
        fronts: before which instant all segments of each group are there.
        fresh: new segments, with ``CODE``; None if there are none.
    """

    def __init__(
        self,
        step: OverEntities,
        layout: Layout,
        context: Context,
        records: EntityRuns,
        files: Files,
        fronts: KnownFronts,
        fresh: pa.Table | None,
    ) -> None:
        self._step, self._layout = step, layout
        self._zone, self._watch = context.zone, context.watch
        self._records = EntityRecords(context.place, records)
        self._held = EntityRows(context.place, files, begins_of)
        self._fresh = None if fresh is None else self._coded(fresh)
        open_records = self._records.every(_OPEN, -FOREVER)
        tables = [
            table.select([CODE, *step.by])
            for table in (open_records, self._fresh)
            if table is not None
        ]
        self._groups = pa.table({CODE: pa.array([], pa.int64())})
        if tables:
            every = pa.concat_tables(tables)
            self._groups = every.take(pa.array(entity_ids(every, step.by)[1]))
        n = len(self._groups)
        self._since = np.full(n, FOREVER)
        """Where what was not told yet begins (µs), ``[groups]``; what groups that have no record
        keep is all told."""
        self._begin, self._next = np.full(n, FOREVER), np.full(n, FOREVER)
        if open_records is not None:
            ids = self._ids(open_records)
            self._since[ids] = self._begin[ids] = open_records.column(BEGIN).to_numpy()
            self._next[ids] = open_records.column(NEXT).to_numpy()
        self._front = fronts.of(self._groups) if n else self._since

    def run(self) -> tuple[Keyed | None, EntityRuns, Files]:
        """Return the values that are final now, and the records and files after the batch."""
        if not len(self._groups):
            return None, (), ()
        is_changed = np.zeros(len(self._groups), np.bool_)
        if self._fresh is not None:
            ids, begins = self._ids(self._fresh), begins_of(self._fresh)
            self._may_begin(ids, begins, begins)
            is_changed[ids] = True
        is_due = self._next <= self._front
        done = self._looked_at(is_due) if is_due.any() else None
        return done, self._recorded(is_changed | is_due), self._kept()

    @property
    def held(self) -> tuple[pa.Table, Ints]:
        """The groups whose front is not that of their segments, and where it is (µs)."""
        rows = np.flatnonzero(self._begin < self._front)
        return self._groups.take(pa.array(rows)).drop_columns([CODE]), self._begin[rows]

    # -- what is final --------------------------------------------------------------------------

    def _looked_at(self, is_due: Mask) -> Keyed | None:
        """Return the values of some groups that are final now, and note what is not.

        Only segments that begin before the front of their group are looked at.
        """
        self._begin[is_due] = self._next[is_due] = FOREVER
        codes = codes_of(self._groups)[is_due]
        rows, ids = self._pieces(distinct(codes), is_due)
        begins = begins_of(rows)
        is_near = begins <= self._front[ids]
        self._may_begin(ids[~is_near], begins[~is_near], begins[~is_near])
        pieces = keyed(rows.filter(pa.array(is_near)), self._layout)
        values = self._step.run(pieces)
        self._watch.saw(self._step, (pieces,), values)
        places = ids_together([self._groups, values.entities], self._step.by)[1]
        mine = places[values.segments.keys]
        is_over = values.segments.ends <= self._front[mine]
        rest = values.segments.take(~is_over)
        self._may_begin(mine[~is_over], rest.lo, rest.ends)
        if not is_over.any():
            return None
        groups, keys = np.unique(mine[is_over], return_inverse=True)
        over = replace(values.segments.take(is_over), keys=keys)
        return Keyed(over, self._groups.take(pa.array(groups)))

    def _pieces(self, codes: Ints, is_due: Mask) -> tuple[pa.Table, Indices]:
        """Return what groups keep that was not told yet, and new segments; and the group of each.

        What is there of other groups, that only have the same code, is left out.
        """
        parts, groups = [], []
        for table, is_told in ((self._held.of(codes), True), (self._fresh, False)):
            if table is None:
                continue
            ids = self._ids(table)
            is_mine = np.append(is_due, False)[ids]
            rows, ids = table.filter(pa.array(is_mine)), ids[is_mine]
            if is_told:
                rows, ids = self._behind(rows, ids, self._since)
            parts.append(rows)
            groups.append(ids)
        return pa.concat_tables(parts), np.concatenate(groups)

    def _may_begin(self, ids: Indices, begins: Ints, over: Ints) -> None:
        """Note where pieces of groups begin, and the front before which they are not over (µs)."""
        np.minimum.at(self._begin, ids, begins)
        np.minimum.at(self._next, ids, over)

    # -- what stays -----------------------------------------------------------------------------

    def _recorded(self, is_changed: Mask) -> EntityRuns:
        """Return the records after the batch; groups of one code have theirs together."""
        codes = distinct(codes_of(self._groups)[is_changed])
        is_open = np.isin(codes_of(self._groups), codes) & (self._begin < FOREVER)
        table = self._groups.filter(pa.array(is_open))
        for name, instants in ((BEGIN, self._begin), (NEXT, self._next)):
            table = table.append_column(name, pa.array(instants[is_open]))
        return self._records.after(codes, {_OPEN: (table, np.zeros(len(table), np.int64))}, {})

    def _kept(self) -> Files:
        """Return the files of pieces after the batch."""

        def reduced(rows: pa.Table) -> pa.Table:
            rest, _ = self._behind(rows, self._ids(rows), np.append(self._begin, FOREVER))
            return table_of(self._step.partial(keyed(rest, self._layout)), self._zone)

        new = None if self._fresh is None else reduced(self._fresh)
        return self._held.after(new, int(self._begin.min()), reduced)

    def _behind(self, rows: pa.Table, ids: Indices, since: Ints) -> tuple[pa.Table, Indices]:
        """Return what segments have behind an instant of their group (µs)."""
        pieces = keyed(rows, self._layout)
        segments, after = pieces.segments, since[ids]
        is_there = segments.hi > after
        cut = segments.cut(np.maximum(segments.lo, after), segments.hi).take(is_there)
        return table_of(Keyed(cut, pieces.entities), self._zone), ids[is_there]

    def _ids(self, rows: pa.Table) -> Indices:
        """Return the group of each row; that of a group which has nothing is behind all others."""
        ids = ids_together([self._groups, rows], self._step.by)[1]
        return np.minimum(ids, len(self._groups))

    def _coded(self, rows: pa.Table) -> pa.Table:
        """Return segments with the codes of their groups."""
        codes = codes_by(rows, self._step.by)
        return rows.set_column(rows.column_names.index(CODE), CODE, pa.array(codes))
