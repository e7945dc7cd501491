"""Pairs and values over entities of streams: what they give in a batch, and what stays.

``frontiers`` says what is final when. Pairs of a batch are those of segments that are new with kept
ones; those that end before the first new one begins are not read. A segment stays as long as an
entity may have another one that overlaps it. Of the segments of a group stay the pieces that may
still count (all that are added up, or those that may be extreme), from its front on: they are
written as they come, and read when the front has come to them. If all entities are one group, it is
here; several groups are in ``groups``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.models import graph
from eddyline.models.frontiers import KnownFronts, PairFronts, whole_until
from eddyline.models.groups import GroupsBatch
from eddyline.models.kept import CODE, RowsByEnd, RowsByStart, instants_of
from eddyline.models.looking import Flow, no_segments
from eddyline.models.rows import Keyed, Layout, ends_of, keyed, table_of, unified
from eddyline.models.streaming import StageState
from eddyline.models.window_steps import OverEntities
from eddyline.state.rows import FOREVER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.data.arrays import Ints
    from eddyline.models.stages import Stage
    from eddyline.models.steps import Shape
    from eddyline.state.manifest import StatePlace
    from eddyline.state.run_files import RunFile

    Files = tuple[RunFile, ...]

_MIXED = np.int64(0x9E3779B97F4A7C15 - (1 << 64))
"""An odd number with which the codes of two entities become that of their pair."""


class Crossing:
    """The work of a stage over several entities in one batch.

    Args:
        stage: one step.
        before: what is kept of segments before the batch.
        place: where files are.
        zone: the time zone of timestamps; see ``table_of``.
        watch: looks on; see ``graph.every``.
    """

    def __init__(
        self,
        stage: Stage,
        before: StageState,
        place: StatePlace,
        zone: str | None,
        watch: graph.Watch = graph.UNWATCHED,
    ) -> None:
        self.stage, self.place, self.zone, self.watch = stage, place, zone, watch
        self.segments = dict(before.segments)
        """The files of segments, from now on those after the batch."""
        self.records = before.entities
        """What is known of groups by keys, from now on after the batch."""
        self.low = before.low
        """Until when the value of all entities was given (µs), from now on after the batch."""

    def flow(self, flows: Sequence[Flow]) -> Flow:
        """Return what is new of pairs or groups.

        Raises:
            OSError: state cannot be read or written.
        """
        node = self.stage.node
        if isinstance(node, graph.OtherEntities):
            return self._pairs(node, flows)
        assert isinstance(node, graph.Unary)
        assert isinstance(node.step, OverEntities)
        given = self._of_groups if node.step.by else self._of_all
        return given(node.step, flows[0])

    @property
    def after(self) -> StageState:
        """What is kept after the batch."""
        return StageState(entities=self.records, segments=self.segments, low=self.low)

    # -- pairs ----------------------------------------------------------------------------------

    def _pairs(self, node: graph.OtherEntities, flows: Sequence[Flow]) -> Flow:
        tally = self.watch.tally(node)
        places = [each.at for each in (node.left, node.right) if isinstance(each, graph.Input)]
        fronts = {at: flows[at].fronts.known() for at in places}
        step = node.step
        if step.is_whole:  # nothing is left out: of what is near later, no more is known
            step = replace(step, is_whole=False, within={})
        fresh = {at: self._table(at, flows[at]) for at in places}
        begins = [each.fresh.segments.lo for each in flows if each.fresh is not None]
        first = min((int(each.min()) for each in begins if len(each)), default=FOREVER)
        kept = {at: self._appended(at).since(first) for at in places}
        for at in dict.fromkeys(places):
            others = (b for a, b in zip(places, reversed(places), strict=True) if a == at)
            self._keep(at, fresh[at], min(fronts[each].least for each in others))
        if step.is_self:
            (at,) = {*places}
            every = _together([fresh[at], kept[at]])
            found = [] if fresh[at] is None else [self._keyed(at, fresh[at])]
            pairs = [step.run(each, None, *self._shapes(places), tally) for each in found]
            for each, made in zip(found, pairs, strict=True):
                self.watch.saw(node, (each, each), made)
            if found and kept[at] is not None and every is not None:
                sides = (np.arange(len(every)) >= len(found[0].segments)).astype(np.int64)
                both = self._keyed(at, every)
                pairs.append(step.run(both, sides, *self._shapes(places), tally))
                self.watch.saw(node, (both, both), pairs[-1])
        else:
            one, other = places
            sides_of = [
                (fresh[one], _together([kept[other], fresh[other]])),
                (kept[one], fresh[other]),
            ]
            pairs = []
            for left, right in sides_of:
                if left is not None and right is not None:
                    given = [self._keyed(one, left), self._keyed(other, right)]
                    (a, b), _ = unified(given, (), given[0].entities.column_names)
                    pairs.append(step.between(a, b, tally))
                    self.watch.saw(node, (a, b), pairs[-1])
        found_fronts = PairFronts(step, (fronts[places[0]], fronts[places[1]]))
        return Flow(self._of_pairs(pairs, node), found_fronts)

    def _shapes(self, places: Sequence[int]) -> tuple[Shape, Shape]:
        one, other = (self._shape(at) for at in places)
        return one, other

    def _shape(self, at: int) -> Shape:
        """Return the columns of an input; the code stands behind the keys, by which pairs come."""
        given = self.stage.shapes[at]
        return replace(given, keys=(*given.keys, CODE))

    def _of_pairs(self, pairs: Sequence[Keyed], node: graph.OtherEntities) -> Keyed | None:
        """Return pairs with a code of their own."""
        tables = [table_of(each, self.zone) for each in pairs if len(each.segments)]
        whole = _together(tables)
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
            step, self._shape(0).layout, self.place, self.zone, self.records,
            self.segments.get(ref, ()), fronts, self._table(0, flow), self.watch,
        )  # fmt: skip
        done, self.records, self.segments[ref] = groups.run()
        return Flow(done, _with(fronts, *groups.held))

    def _of_all(self, step: OverEntities, flow: Flow) -> Flow:
        """Return what is new of one group, of which all have one front.

        Only segments that begin before it are looked at: so what is kept is read once the front
        has come to it, and not in each batch.
        """
        front, ref = flow.fronts.known().least, self.stage.inputs[0]
        held, fresh = RowsByStart(self.place, self.segments.get(ref, ())), self._table(0, flow)
        whole = _together([held.until(front), fresh])
        over, done = front, None
        if whole is not None:
            given = _behind(self._keyed(0, whole), self.low)
            made = step.run(given)
            self.watch.saw(step, (given,), made)
            segments = made.segments
            over = int(whole_until(segments, np.array([front]))[0])
            group = pa.table({CODE: pa.array([0], pa.int64())})
            done = Keyed(segments.take(segments.ends <= front), group)
        self.low = max(self.low, over)

        def reduced(rows: pa.Table) -> pa.Table:
            some = step.partial(_behind(self._keyed(0, rows), self.low))
            return table_of(some, self.zone)

        new = None if fresh is None else reduced(fresh)
        self.segments[ref] = held.after(new, self.low, reduced)
        return Flow(done, KnownFronts(over))

    # -- segments that are kept -------------------------------------------------------------------

    def _appended(self, at: int) -> RowsByEnd:
        return RowsByEnd(self.place, self.segments.get(self.stage.inputs[at], ()))

    def _keep(self, at: int, now: pa.Table | None, low: int) -> None:
        """Keep the segments that are not over before an instant, with new ones among them."""
        now = None if now is None else now.filter(pa.array(ends_of(now) > low))
        now = now if now is not None and len(now) else None
        files = self._appended(at).after(
            now, ends_of(now), low, lambda rows: instants_of(rows) > low
        )
        self.segments[self.stage.inputs[at]] = files

    def _table(self, at: int, flow: Flow) -> pa.Table | None:
        """Return new segments as they are kept."""
        if flow.fresh is None or not len(flow.fresh.segments):
            return None
        entities = flow.fresh.entities.select(list(self._shape(at).keys))
        return table_of(Keyed(flow.fresh.segments, entities), self.zone)

    def _keyed(self, at: int, table: pa.Table | None) -> Keyed:
        layout = self._shape(at).layout
        return no_segments(layout) if table is None else keyed(table, layout)


def _together(tables: Sequence[pa.Table | None]) -> pa.Table | None:
    filled = [each for each in tables if each is not None and len(each)]
    return pa.concat_tables(filled) if filled else None


def _behind(given: Keyed, since: Ints | int) -> Keyed:
    """Return what segments have behind an instant of each, or of all (µs)."""
    segments = given.segments
    rest = segments.cut(np.maximum(segments.lo, since), segments.hi)
    return Keyed(rest.take(segments.hi > since), given.entities)


def _mixed(one: Ints, other: Ints) -> Ints:
    """Return a code of two codes: which is the first matters."""
    with np.errstate(over="ignore"):
        found: Ints = (one * _MIXED) ^ (other + (one >> 7))
    return found


def _with(fronts: KnownFronts, names: pa.Table, at: Ints) -> KnownFronts:
    """Return fronts with more exceptions."""
    if not len(names):
        return fronts
    if fronts.names is None or fronts.at is None:
        return replace(fronts, names=names, at=at)
    every = pa.concat_tables([fronts.names.select(list(fronts.keys)), names])
    return replace(fronts, names=every, at=np.concatenate([fronts.at, at]))
