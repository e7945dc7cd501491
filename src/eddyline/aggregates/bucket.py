"""The work of one bucket of an aggregate: cells in, results and files out.

Cells wait until event time has passed them. Then they are answered, together with the cells of
before that windows reach back to. What is answered depends on event time alone, and neither on how
rows are cut into batches nor on where their cells are.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.aggregates.cells import CHECK, CODE, group_bounds, in_order, merged, together
from eddyline.aggregates.columns import one_array
from eddyline.aggregates.comparing import Beside
from eddyline.aggregates.history import History, Reach, Span
from eddyline.aggregates.keys import ranks_of
from eddyline.aggregates.plan import (
    INSTANT,
    IS,
    OLD,
    WAS,
    BucketReport,
    BucketState,
)
from eddyline.data.arrays import whole
from eddyline.state.reorder_buffer import HeldRows
from eddyline.state.rows import ALWAYS, Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from eddyline.aggregates.plan import AggregatePlan
    from eddyline.data.arrays import Ints, Mask
    from eddyline.state.place import StatePlace
    from eddyline.state.run_files import RunFile

ROOM_COLUMNS = 4
"""Columns of the room for ranges: lo and hi, and those of before."""


class BucketBatch:
    """One batch of one bucket.

    Args:
        plan: the work.
        place: where files are; None if nothing is kept, as of batch DataFrames.
        state: the files after the batch before.
        bucket: its number.
    """

    def __init__(
        self, plan: AggregatePlan, place: StatePlace | None, state: BucketState, bucket: int
    ) -> None:
        self.plan = plan
        self.place = place
        self.state = state
        self.report = BucketReport(bucket, state)
        self.partials = plan.partials.made
        self.since, self.until = self.answered(plan.before), self.answered(plan.after)
        """The cells that start in this half-open range are answered now (µs)."""
        self._n_read = 0

    def run(self, arrived: Rows | None) -> Iterator[pa.Table]:
        """Yield the results that the batch brings, and keep what later ones need.

        Args:
            arrived: the cells of the batch, none of them late; None if there is none.

        Raises:
            OSError: files cannot be read or written.
        """
        started = time.thread_time_ns()
        due, late = self.held().before(self.until), None
        if arrived is not None:
            due.append(arrived)
            late = _waiting(arrived, self.until)
        fresh = self.fresh(due)
        n_results, n_bytes = 0, 0 if arrived is None else arrived.payload.nbytes
        for results in self.tables(fresh):
            n_results += results.num_rows
            n_bytes += results.nbytes
            if results.num_rows:
                yield results
        state = self.state
        if self.place is not None:
            state = BucketState(self.held().after(self.until, late), self.history_after(fresh))
        self.report = BucketReport(
            self.report.bucket,
            state,
            n_arrived=0 if arrived is None else len(arrived),
            n_read=self._n_read,
            n_results=n_results,
            work_ns=time.thread_time_ns() - started,
            n_bytes=n_bytes,
        )

    # -- what a kind of window says of itself ---------------------------------------------------

    def answered(self, instant: int) -> int:
        """Return the start of the first cell that is not answered when time is at an instant."""
        return instant

    def fresh(self, due: list[Rows]) -> Rows | None:
        """Return the cells that are answered now, in order; None if there is none.

        Among those that are due there may be some that wait.
        """
        cells = self.ordered(due)
        return None if cells is None else merged(cells, self.partials)

    def tables(self, fresh: Rows | None) -> Iterator[pa.Table]:
        """Yield the results, in parts where they may be many; see ``results``."""
        found = self.results(fresh)
        if found is not None:
            yield found

    def results(self, fresh: Rows | None) -> pa.Table | None:
        """Return the results at the instants between ``plan.before`` and ``plan.after``."""
        raise NotImplementedError

    def history_after(self, fresh: Rows | None) -> dict[str, tuple[Span, ...]]:
        """Return the files of cells that were answered and are still needed."""
        raise NotImplementedError

    # -- parts ----------------------------------------------------------------------------------

    def held(self) -> HeldRows:
        """Return the cells that wait."""
        if self.place is None:
            return _NOTHING
        return HeldRows(self.place.files, self.place.runs, self.state.waiting, self.since)

    def ordered(self, due: list[Rows]) -> Rows | None:
        """Return those of some cells that are answered now, in order; None if there is none."""
        filled = [each for each in due if len(each)]
        cells = in_order(together(filled), self.until) if filled else None
        return cells if cells is not None and len(cells) else None

    def reached(self, kind: str, reach: Reach, partials: Any = None) -> History:
        """Return the cells of before as windows of a reach need them."""
        spans = self.state.history.get(kind, ())
        return History(spans, reach, partials or self.partials, self.place)

    def entries(self, before: list[Rows], fresh: Rows | None) -> Rows | None:
        """Return the cells of before and the fresh ones in order; None if there is none."""
        self._n_read += sum(map(len, before))
        parts = [*before, *([] if fresh is None else [fresh])]
        filled = [each for each in parts if len(each)]
        return in_order(together(filled)) if filled else None

    def table(self, cells: Rows, instants: Ints, ranges: Ints) -> pa.Table:
        """Return results by the ranges of cells that they are computed of.

        Args:
            cells: in order.
            instants: of the results (µs).
            ranges: lo and hi of each, and those of the result before ((results, 4)).
        """
        beside = Beside(ranges)
        is_there, was_there = ranges[:, 0] < ranges[:, 1], ranges[:, 2] < ranges[:, 3]
        values = self.plan.values or {name: name for name in self.partials}
        if not self.plan.tells_old:
            lo, hi = (np.ascontiguousarray(ranges[:, k]) for k in range(2))
            found = {
                name: self.partials[source].value(whole(cells.payload[source]), lo, hi)
                for name, source in values.items()
            }
            return pa.table(self._of_groups(cells, ranges[:, 0], instants) | found)
        found = {
            name: beside.values(self.partials[source], cells.payload[source])
            for name, source in values.items()
        }
        if self.plan.compares:
            kept = _changed(beside, found, is_there, was_there)
            columns = self._of_groups(cells, ranges[kept, 0], instants[kept])
            at = pa.array(beside.at[kept])
            return pa.table(columns | {name: each.take(at) for name, each in found.items()})
        columns = self._of_groups(cells, np.where(is_there, ranges[:, 0], ranges[:, 2]), instants)
        for name, each in found.items():
            columns[name] = each.take(pa.array(beside.at))
            columns[f"{OLD}{name}"] = each.take(pa.array(beside.at - 1))
        return pa.table(columns | {IS: pa.array(is_there), WAS: pa.array(was_there)})

    def _of_groups(self, cells: Rows, places: Ints, instants: Ints) -> dict[str, pa.Array]:
        """Return the columns that results have beside their values.

        Args:
            cells: in order.
            places: a cell of the group of each result.
            instants: of the results (µs).
        """
        of = pa.array(places)
        columns = {name: cells.payload[name].take(of) for name in self.plan.groups}
        columns[INSTANT] = pa.array(instants)
        return columns


def with_ties(cells: Rows, columns: tuple[str, ...]) -> Rows:
    """Return rows in order, those of one group and instant by the values of some columns."""
    same = cells.starts[1:] == cells.starts[:-1]
    for of in cells.codes.values():
        same &= of[1:] == of[:-1]
    if not same.any():
        return cells
    # Rows that are tied stand behind each other: each group of them is sorted where it is.
    is_tied = np.append(same, False) | np.append(False, same)
    tied = np.flatnonzero(is_tied)
    run = np.cumsum(np.append(True, ~same))[tied]
    table = pa.table({"run": run})
    for number, name in enumerate(columns):
        values = cells.payload[name].take(pa.array(tied))
        if pa.types.is_nested(values.type):  # Arrow sorts no lists
            values = pa.array(ranks_of(one_array(values)))
        table = table.append_column(f"tie{number}", values)
    order = pc.sort_indices(table, sort_keys=[(each, "ascending") for each in table.column_names])
    places = np.arange(len(cells))
    places[tied] = tied[order.to_numpy()]
    return cells.taken(places)


def filled_ranges(find: Callable[..., int], cells: Rows, *facts: Any) -> tuple[Ints, Ints]:
    """Return the instants and ranges that a kernel finds, which first counts them."""
    bounds = group_bounds(cells)
    nothing = np.empty(0, np.int64), np.empty((0, ROOM_COLUMNS), np.int64)
    n = find(cells.starts, bounds, *facts, *nothing)
    room = np.empty(n, np.int64), np.empty((n, ROOM_COLUMNS), np.int64)
    if n:
        find(cells.starts, bounds, *facts, *room)
    return room


def kept_spans(kind: str, history: History, fresh: Rows | None, horizon: int) -> dict[str, Any]:
    """Return the files of a history after a batch; nothing if there is none."""
    spans = history.after(no_cells() if fresh is None else fresh, horizon)
    return {kind: spans} if spans else {}


def _changed(
    beside: Beside, values: Mapping[str, pa.Array], is_there: Mask, was_there: Mask
) -> Ints:
    """Return the results that are there, but for those of equal values to the one before."""
    is_changed = is_there & ~was_there
    open_ = np.flatnonzero(is_there & was_there)
    for each in values.values():
        if not open_.size:
            break
        differs = beside.differs(each, open_)
        is_changed[open_[differs]] = True
        open_ = open_[~differs]
    return np.flatnonzero(is_changed)


def _waiting(rows: Rows, until: int) -> Rows:
    """Return the rows from an instant on, by event time."""
    late = np.flatnonzero(rows.starts >= until)
    return rows.taken(late[np.argsort(rows.starts[late], kind="stable")])


def no_cells() -> Rows:
    """Return no cells."""
    none = np.empty(0, np.int64)
    return Rows({CODE: none, CHECK: none}, none, none, pa.table({}))


class _Nothing(HeldRows):
    """Of batch DataFrames nothing waits."""

    def __init__(self) -> None:
        self.held, self.since = (), ALWAYS

    def after(self, until: int, new: Rows | None) -> tuple[RunFile, ...]:  # noqa: ARG002
        """Return no files."""
        return ()


_NOTHING = _Nothing()
