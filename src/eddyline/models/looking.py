"""What a graph over segments of the same entities gives in a batch, and what it keeps for later.

Segments come when they are final. Results of an entity are given up to its front (``frontiers``),
each once: until when that was is kept with the entity.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from eddyline.models import graph, sampling, timeline
from eddyline.models.frontiers import (
    EarlierFronts,
    LeastFronts,
    frontier_of,
    known_until,
    last_ends,
    whole_until,
)
from eddyline.models.kept import CODE, AppendedRows, instants_of
from eddyline.models.rows import Keyed, Layout, ends_of, ids_together, keyed, table_of, unified
from eddyline.models.segments import Segments
from eddyline.models.steps import Rows, result_table
from eddyline.models.streaming import NEVER
from eddyline.state.rows import FOREVER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eddyline.data.arrays import Ints, Mask
    from eddyline.models.books import Books
    from eddyline.models.frontiers import Fronts
    from eddyline.models.stages import Stage
    from eddyline.models.streaming import BucketState, StageState
    from eddyline.state.manifest import StatePlace
    from eddyline.state.run_files import RunFile

    Files = tuple[RunFile, ...]


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
        at = fresh.entities.column_names.index(CODE)
        codes = pa.array(np.zeros(len(fresh.entities), np.int64))
        return Flow(Keyed(fresh.segments, fresh.entities.set_column(at, CODE, codes)), fronts)


class Looking:
    """The work of a stage over segments of the same entities in one batch.

    Args:
        stage: what is done.
        keys: the columns that say the entity, with ``CODE``.
        books: the records of the entities, and the codes of those that are looked at.
        before: what is kept of segments before the batch.
        place: where files are.
        zone: the time zone of timestamps; see ``table_of``.
        watch: looks on; see ``graph.every``.
    """

    def __init__(
        self,
        stage: Stage,
        keys: tuple[str, ...],
        books: Books,
        before: BucketState | StageState,
        place: StatePlace,
        zone: str | None,
        watch: graph.Watch = graph.UNWATCHED,
    ) -> None:
        self.stage, self.keys, self.books, self.place, self.zone = stage, keys, books, place, zone
        self.watch = watch
        self.segments = dict(before.segments)
        """The files of segments, from now on those after the batch."""
        self.low = before.low
        """At or before which instant segments have ended that nothing looks at any more (µs), from
        now on after the batch."""
        self._low_before = before.low
        self.observed: Any = None
        """What a step that makes ranges has observed."""

    @property
    def files(self) -> dict[int, Files]:
        """The files of segments after the batch."""
        return {ref: files for ref, files in self.segments.items() if files}

    def results(self, flows: Sequence[Flow]) -> pa.Table | None:
        """Return the results of a batch as rows."""
        stage = self.stage
        if stage.looks_back or stage.given is not stage.node:
            found, front, names = self._looking_back(flows)
            if stage.given is stage.node:
                return result_table(found, self.zone)
            assert isinstance(found, Keyed)
            with self.watch.on(stage.node):
                return self._changes(found, front, names)
        (only,) = flows
        if only.fresh is None:
            return None
        return result_table(graph.run(stage.given, [only.fresh], self.watch), self.zone)

    def flow(self, flows: Sequence[Flow]) -> Flow:
        """Return the results of a batch as segments for the next stage."""
        fronts: Fronts = LeastFronts(tuple(each.fronts for each in flows))
        lag = graph.lag(self.stage.node)
        fronts = EarlierFronts(fronts, lag) if lag else fronts
        found: Keyed | Rows | None = None
        if self.stage.looks_back:
            found = self._looking_back(flows)[0]
        elif flows[0].fresh is not None:
            found = graph.run(self.stage.node, [flows[0].fresh], self.watch)
        assert not isinstance(found, Rows)  # nothing is built on rows
        return Flow(found if found is not None and len(found.segments) else None, fronts)

    def add(self, flows: Sequence[Flow]) -> None:
        """Keep segments of which no entity is looked at yet, if anything looks back at them."""
        for at, each in enumerate(flows):
            if each.fresh is not None and self.stage.looks_back:
                now = table_of(each.fresh, self.zone)
                ref = self.stage.inputs[at]
                appended = AppendedRows(self.place, self.segments.get(ref, ()))
                self.segments[ref] = self._appended(appended, now, flows)

    # -- results --------------------------------------------------------------------------------

    def _looking_back(self, flows: Sequence[Flow]) -> tuple[Keyed | Rows, Ints, pa.Table]:
        """Return the results that are final now, until when they are, and their entities."""
        stage = self.stage
        given, names = self._together(flows)
        told = self._told(names)
        every = graph.every(stage.given, given, self.watch)
        fronts = [
            known_until(each.segments, flow.fronts.of(names))
            for each, flow in zip(given, flows, strict=True)
        ]
        front, again = self._front(fronts, every)
        front = np.maximum(front, told)
        found = every[id(stage.given)]
        if not stage.looks_back:
            return found, front, names
        self._look_again(found, np.min(fronts, axis=0), again, names)
        if isinstance(found, Keyed):
            over = whole_until(found.segments, front)
            found, front = _settled(found, told, front), np.maximum(over, told)
        else:
            times = found.samples.times
            keys = found.samples.keys
            kept = (times >= told[keys]) & (times < front[keys])
            found = Rows(found.samples.take(kept), found.entities)
        if len(names):
            # No segment that ends later is of results that were given: see ``_appended``.
            table = names.append_column("told", pa.array(front))
            last = [last_ends(each.segments, len(names)) for each in given]
            self.books.after["told"] = table, np.max([front, *last], axis=0)
        return found, front, names

    def _look_again(self, found: Keyed | Rows, known: Ints, again: Ints, names: pa.Table) -> None:
        """Look at entities again when more of their results are final, although nothing comes.

        Args:
            found: all results that the segments have so far.
            known: before which instant all segments of each entity are there (µs).
            again: when more is final of what waits for a piece to be over (µs).
            names: the entities.

        Entities with rows that are in no segment yet are looked at when these are, if not before.
        """
        if isinstance(found, Keyed):
            keys, at = found.segments.keys, found.segments.ends - 1
        else:
            keys, at = found.samples.keys, found.samples.times
        waits = at >= known[keys]
        np.minimum.at(again, keys[waits], at[waits])
        is_open = again < FOREVER
        is_open &= (known >= self.books.until) | ~self.books.has_held(names)
        self.books.look_again(names.filter(pa.array(is_open)), again[is_open])

    def _together(self, flows: Sequence[Flow]) -> tuple[list[Keyed], pa.Table]:
        """Return the segments of all inputs with common ids, and keep those that are new."""
        given: list[Keyed] = []
        for at, each in enumerate(flows):
            is_some = each.fresh is not None and len(each.fresh.segments)
            now = table_of(each.fresh, self.zone) if is_some and each.fresh else None
            before = None
            if self.stage.looks_back:
                before = self._kept_before(at, now, flows)
            tables = [table for table in (before, now) if table is not None and len(table)]
            whole = pa.concat_tables(tables, promote_options="none") if tables else None
            layout = Layout(self.keys, self.stage.shapes[at].attributes)
            given.append(no_segments(layout) if whole is None else keyed(whole, layout))
        kept = self.books.kept
        extra = [kept[kind].select(list(self.keys)) for kind in ("ranges", "told") if kind in kept]
        return unified(given, extra, self.keys)

    def _kept_before(self, at: int, now: pa.Table | None, flows: Sequence[Flow]) -> pa.Table | None:
        """Return the segments of an input that were kept of entities, and keep those of now."""
        ref = self.stage.inputs[at]
        appended = AppendedRows(self.place, self.segments.get(ref, ()))
        before = appended.of(self.books.codes, self._low_before)
        self.segments[ref] = self._appended(appended, now, flows)
        return before

    def _front(
        self, fronts: Sequence[Ints], every: Mapping[int, Keyed | Rows]
    ) -> tuple[Ints, Ints]:
        """Return before which instant results are final, and when more are; see ``frontier_of``."""
        return frontier_of(self.stage.given, fronts, every)

    def _told(self, names: pa.Table) -> Ints:
        """Return until when the results of entities were given before (µs).

        Of what is before the instant at which all that results look at is kept, all is given.
        """
        low = self._low_before
        first = low if low == NEVER else low + graph.reach(self.stage.given) + 1
        found = np.full(len(names), first)
        before = self.books.kept.get("told")
        if before is not None and len(names):
            ids = ids_together([names, before], self.keys)[1]
            found[ids] = np.maximum(before.column("told").to_numpy(), first)
        return found

    def _changes(self, found: Keyed, front: Ints, names: pa.Table) -> pa.Table | None:
        """Return the ranges that are over, and keep those that may go on."""
        step, told = self.stage.ranges, self.stage.told.shape
        if step is not None:
            found, self.observed = step.watched(found)
        parts = [table_of(found, self.zone)] if len(found.segments) else []
        before = self.books.kept.get("ranges")
        if before is not None:
            parts.insert(0, before)
        if not parts:
            return None
        by = told.keys[: len(told.keys) - len(self.keys) + 1]
        every = keyed(pa.concat_tables(parts), Layout((*by, *self.keys), told.attributes))
        until = front[ids_together([names, every.entities], self.keys)[1]]
        made = sampling.changes(every.segments)
        starts = made.starts
        goes_on = made.ends >= until[starts.keys]
        if step is not None:
            goes_on &= step.are_asked(every.entities)[starts.keys]
        kept, ends = _as_segments(every, made, goes_on, self.zone)
        if len(kept):
            self.books.after["ranges"] = kept, ends
        over = Rows(starts.take(~goes_on), every.entities, made.ends[~goes_on])
        return result_table(over, self.zone)

    # -- segments that are kept -------------------------------------------------------------------

    def _appended(
        self, appended: AppendedRows, now: pa.Table | None, flows: Sequence[Flow]
    ) -> Files:
        """Return the files of segments with new ones, without those that nothing looks at."""
        ends = ends_of(now)
        # A segment that ends where the first window of a result begins says where the result does.
        back = graph.reach(self.stage.given) + graph.lag(self.stage.given) + 1

        def is_needed(rows: pa.Table) -> Mask:
            least = np.min([each.fronts.of(rows) for each in flows], axis=0)
            found: Mask = instants_of(rows) > timeline.earlier(least, back)
            return found

        least = min(each.fronts.least for each in flows)
        self.low = max(self._low_before, timeline.earlier(least, back))
        return appended.after(now, ends, self.low, is_needed)


def no_segments(layout: Layout) -> Keyed:
    """Return no segments."""
    none, flags = np.zeros(0, np.int64), np.zeros(0, np.bool_)
    coefs = {each: np.zeros((0, 1)) for each in layout.attributes}
    errors = {each: np.zeros(0) for each in layout.attributes}
    return Keyed(Segments(none, none, none, none, flags, flags, coefs, errors), pa.table({}))


def _settled(found: Keyed, told: Ints, front: Ints) -> Keyed:
    """Return the results that are over, and were not given before.

    Of what was before that instant not all is kept, so a result may seem to begin there earlier.
    """
    segments = found.segments
    since = told[segments.keys]
    lo = np.where(segments.is_point, segments.lo, np.maximum(segments.lo, since))
    is_new = (lo >= since) & (segments.ends > since) & (segments.ends <= front[segments.keys])
    return Keyed(segments.cut(lo, segments.hi).take(is_new), found.entities)


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
