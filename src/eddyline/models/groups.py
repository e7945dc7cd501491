"""Values over the entities of groups, of streams: what they give in a batch, and what stays.

Each group has a front of its own. Pieces of segments that may count are written as they come,
by the codes of their groups, and read when the front of their group has come to one of them. So
that neither has to be looked for in them, a record of each group that has any says where the first
one begins that was not told yet, and before which front none of them is over.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.data.arrays import distinct
from eddyline.models.kept import CODE, EntityRecords, RowsByGroup, codes_of
from eddyline.models.rows import (
    Keyed,
    codes_by,
    entity_ids,
    ids_together,
    keyed,
    micros_of,
    table_of,
)
from eddyline.state.rows import FOREVER

if TYPE_CHECKING:
    from eddyline.data.arrays import Indices, Ints, Mask
    from eddyline.models.frontiers import KnownFronts
    from eddyline.models.graph import Watch
    from eddyline.models.kept import EntityRun
    from eddyline.models.rows import Layout
    from eddyline.models.window_steps import OverEntities
    from eddyline.state.manifest import StatePlace
    from eddyline.state.run_files import RunFile

    Files = tuple[RunFile, ...]

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
        place: where files are.
        zone: the time zone of timestamps; see ``table_of``.
        records: of the groups, before the batch.
        files: of pieces, before the batch.
        fronts: before which instant all segments of each group are there.
        fresh: new segments, with ``CODE``; None if there are none.
        watch: looks on; see ``graph.every``.
    """

    def __init__(
        self,
        step: OverEntities,
        layout: Layout,
        place: StatePlace,
        zone: str | None,
        records: tuple[EntityRun, ...],
        files: Files,
        fronts: KnownFronts,
        fresh: pa.Table | None,
        watch: Watch,
    ) -> None:
        self._step, self._layout, self._zone, self._watch = step, layout, zone, watch
        self._records = EntityRecords(place, records)
        self._held = RowsByGroup(place, files)
        self._fresh = None if fresh is None else self._coded(fresh)
        known = self._records.every(_OPEN, -FOREVER)
        own = [each.select([CODE, *step.by]) for each in (known, self._fresh) if each is not None]
        self._groups = pa.table({CODE: pa.array([], pa.int64())})
        if own:
            every = pa.concat_tables(own)
            self._groups = every.take(pa.array(entity_ids(every, step.by)[1]))
        n = len(self._groups)
        self._since = np.full(n, FOREVER)
        """Where what was not told yet begins (µs), ``[groups]``; what groups that have no record
        keep is all told."""
        self._begin, self._next = np.full(n, FOREVER), np.full(n, FOREVER)
        if known is not None:
            ids = self._ids(known)
            self._since[ids] = self._begin[ids] = known.column(BEGIN).to_numpy()
            self._next[ids] = known.column(NEXT).to_numpy()
        self._front = fronts.of(self._groups) if n else self._since

    def run(self) -> tuple[Keyed | None, tuple[EntityRun, ...], Files]:
        """Return the values that are final now, and the records and files after the batch.

        Raises:
            OSError: state cannot be read or written.
        """
        if not len(self._groups):
            return None, (), ()
        is_changed = np.zeros(len(self._groups), np.bool_)
        if self._fresh is not None:
            ids, begins = self._ids(self._fresh), micros_of(self._fresh.column("lo"))
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
        begins = micros_of(rows.column("lo"))
        is_near = begins <= self._front[ids]
        self._may_begin(ids[~is_near], begins[~is_near], begins[~is_near])
        given = keyed(rows.filter(pa.array(is_near)), self._layout)
        found = self._step.run(given)
        self._watch.saw(self._step, (given,), found)
        places = ids_together([self._groups, found.entities], self._step.by)[1]
        mine = places[found.segments.keys]
        is_over = found.segments.ends <= self._front[mine]
        rest = found.segments.take(~is_over)
        self._may_begin(mine[~is_over], rest.lo, rest.ends)
        if not is_over.any():
            return None
        groups, keys = np.unique(mine[is_over], return_inverse=True)
        over = replace(found.segments.take(is_over), keys=keys)
        return Keyed(over, self._groups.take(pa.array(groups)))

    def _pieces(self, codes: Ints, is_due: Mask) -> tuple[pa.Table, Indices]:
        """Return what groups keep that was not told yet, and new segments; and the group of each.

        What is there of other groups, that only have the same code, is left out.
        """
        parts, groups = [], []
        for each, is_told in ((self._held.of(codes), True), (self._fresh, False)):
            if each is None:
                continue
            ids = self._ids(each)
            is_mine = np.append(is_due, False)[ids]
            rows, ids = each.filter(pa.array(is_mine)), ids[is_mine]
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

    def _recorded(self, is_changed: Mask) -> tuple[EntityRun, ...]:
        """Return the records after the batch; groups of one code have theirs together."""
        codes = distinct(codes_of(self._groups)[is_changed])
        is_open = np.isin(codes_of(self._groups), codes) & (self._begin < FOREVER)
        table = self._groups.filter(pa.array(is_open))
        for name, each in ((BEGIN, self._begin), (NEXT, self._next)):
            table = table.append_column(name, pa.array(each[is_open]))
        return self._records.after(codes, {_OPEN: (table, None)}, {})

    def _kept(self) -> Files:
        """Return the files of pieces after the batch."""

        def reduced(rows: pa.Table) -> pa.Table:
            own, _ = self._behind(rows, self._ids(rows), np.append(self._begin, FOREVER))
            return table_of(self._step.partial(keyed(own, self._layout)), self._zone)

        new = None if self._fresh is None else reduced(self._fresh)
        return self._held.after(new, int(self._begin.min()), reduced)

    def _behind(self, rows: pa.Table, ids: Indices, since: Ints) -> tuple[pa.Table, Indices]:
        """Return what segments have behind an instant of their group (µs)."""
        given = keyed(rows, self._layout)
        segments, after = given.segments, since[ids]
        is_there = segments.hi > after
        cut = segments.cut(np.maximum(segments.lo, after), segments.hi).take(is_there)
        return table_of(Keyed(cut, given.entities), self._zone), ids[is_there]

    def _ids(self, rows: pa.Table) -> Indices:
        """Return the group of each row; that of a group which has nothing is behind all others."""
        ids = ids_together([self._groups, rows], self._step.by)[1]
        return np.minimum(ids, len(self._groups))

    def _coded(self, rows: pa.Table) -> pa.Table:
        """Return segments with the codes of their groups."""
        codes = codes_by(rows, self._step.by)
        return rows.set_column(rows.column_names.index(CODE), CODE, pa.array(codes))
