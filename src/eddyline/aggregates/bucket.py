"""The work of one bucket of an aggregate: cells in, results and files out.

Cells wait until event time has passed them. Then they are answered, together with the cells of
before that windows reach back to. Answers depend on event time alone, and neither on how rows are
cut into batches nor on where their cells are. Each kind of window is a class of its own: it says
which cells are answered, and which ranges of cells make a result.

If only changes are wanted, the result before is most often the one that was just given, so its
values are computed once (``Beside``). If output columns are values as they are, tasks compare these
and send no result of before. If the number of buckets has changed, a bucket takes its cells from
the files of all buckets of before (``state_of``).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.aggregates.cells import (
    BY_END,
    History,
    Reach,
    Span,
    group_bounds,
    in_order,
    merged,
    of_bucket,
    together,
)
from eddyline.aggregates.columns import one_array, ranks_of
from eddyline.aggregates.plan import (
    INSTANT,
    IS,
    OLD,
    WAS,
    AggregateProfile,
    BucketReport,
    BucketState,
)
from eddyline.data.arrays import whole
from eddyline.state.event_time import HeldRows
from eddyline.state.run_files import open_rows, write_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from eddyline.aggregates.monoids import Monoid
    from eddyline.aggregates.plan import AggregatePart, AggregatePlan, Share
    from eddyline.data.arrays import Ints, Mask
    from eddyline.state.manifest import StatePlace
    from eddyline.state.rows import Rows
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
        self.state = self.after = state
        """Its files before the batch, and after it."""
        self.report = BucketReport(bucket, state)
        self.n_rows = 0
        """Rows that the cells of the batch are of."""
        self.partials = plan.partials.made
        self.ties = plan.ties
        """The columns that order rows of one group and instant, if rows stay rows."""
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
        n_results, n_bytes = 0, 0 if arrived is None else arrived.payload.nbytes
        for results in self.answers(arrived):
            n_results += results.num_rows
            n_bytes += results.nbytes
            if results.num_rows:
                yield results
        profile = AggregateProfile(
            self.n_rows,
            0 if arrived is None else len(arrived),
            self._n_read,
            n_results,
            time.thread_time_ns() - started,
            n_bytes,
        )
        self.report = BucketReport(self.report.bucket, self.after, profile)

    def answers(self, arrived: Rows | None) -> Iterator[pa.Table]:
        """Yield results, and then say in ``after`` which files are kept; see ``run``."""
        held = None
        if self.place is not None:
            held = HeldRows(self.place.files, self.place.runs, self.state.waiting, self.since)
        due, late = [] if held is None else held.before(self.until), None
        if arrived is not None:
            due.append(arrived)
            late = _waiting(arrived, self.until)
        fresh = self.fresh(due)
        yield from self.results(fresh)
        if held is not None:
            self.after = BucketState(held.after(self.until, late), self.history_after(fresh))

    # -- what a kind of window says of itself ---------------------------------------------------

    def answered(self, instant: int) -> int:
        """Return the start of the first cell that is not answered when time is at an instant."""
        return instant

    stays_rows: ClassVar[bool] = False
    """Whether rows are answered one by one, and are no cells."""

    def fresh(self, due: list[Rows]) -> Rows | None:
        """Return the cells that are answered now, in order; None if there is none.

        Among those that are due there may be some that wait.
        """
        filled = [rows for rows in due if len(rows)]
        cells = in_order(together(filled), self.until) if filled else None
        if cells is None or not len(cells):
            return None
        return with_ties(cells, self.ties) if self.stays_rows else merged(cells, self.partials)

    def results(self, fresh: Rows | None) -> Iterator[pa.Table]:
        """Yield the results at the instants between ``plan.before`` and ``plan.after``."""
        raise NotImplementedError

    def history_after(self, fresh: Rows | None) -> dict[str, tuple[Span, ...]]:
        """Return the files of cells that were answered and are still needed."""
        raise NotImplementedError

    # -- parts ----------------------------------------------------------------------------------

    def history(self, kind: str, reach: Reach, partials: Mapping[str, Monoid] | None) -> History:
        """Return the cells of before as windows of a reach need them; see ``History``."""
        return History(kind, self.state.history, reach, partials, self.place)

    def entries(self, before: list[Rows], fresh: Rows | None) -> Rows | None:
        """Return the cells of before and the fresh ones in order; None if there is none."""
        self._n_read += sum(map(len, before))
        parts = [*before, *([] if fresh is None else [fresh])]
        filled = [rows for rows in parts if len(rows)]
        return in_order(together(filled)) if filled else None

    def table(
        self, cells: Rows, instants: Ints, ranges: Ints, share: Share | None = None
    ) -> pa.Table:
        """Return results by the ranges of cells that they are computed of.

        Args:
            cells: in order.
            instants: of the results (µs).
            ranges: lo and hi of each, and those of the result before ((results, 4)).
            share: the query that they are of, if it has columns of its own.
        """
        groups, wanted = self.plan.groups, tuple(self.partials)
        if share is not None:
            groups, wanted = share.groups, share.wanted
        of_groups = partial(_of_groups, cells, groups)
        beside = Beside(ranges)
        is_there, was_there = ranges[:, 0] < ranges[:, 1], ranges[:, 2] < ranges[:, 3]
        values = self.plan.values or {name: name for name in wanted}
        if not self.plan.tells_old:
            lo, hi = (np.ascontiguousarray(ranges[:, k]) for k in range(2))
            results = {
                name: self.partials[source].value(whole(cells.payload[source]), lo, hi)
                for name, source in values.items()
            }
            return pa.table(of_groups(ranges[:, 0], instants) | results)
        results = {
            name: beside.values(self.partials[source], cells.payload[source])
            for name, source in values.items()
        }
        if self.plan.compares:
            kept = _changed(beside, results, is_there, was_there)
            columns = of_groups(ranges[kept, 0], instants[kept])
            places = pa.array(beside.at[kept])
            return pa.table(
                columns | {name: column.take(places) for name, column in results.items()}
            )
        columns = of_groups(np.where(is_there, ranges[:, 0], ranges[:, 2]), instants)
        for name, array in results.items():
            columns[name] = array.take(pa.array(beside.at))
            columns[f"{OLD}{name}"] = array.take(pa.array(beside.at - 1))
        return pa.table(columns | {IS: pa.array(is_there), WAS: pa.array(was_there)})


def _of_groups(
    cells: Rows, groups: tuple[str, ...], places: Ints, instants: Ints
) -> dict[str, pa.Array]:
    """Return the columns that results have beside their values.

    Args:
        cells: in order.
        groups: the columns of groups.
        places: a cell of the group of each result.
        instants: of the results (µs).
    """
    columns = {name: cells.payload[name].take(pa.array(places)) for name in groups}
    return columns | {INSTANT: pa.array(instants)}


def with_ties(cells: Rows, columns: tuple[str, ...]) -> Rows:
    """Return rows in order, those of one group and instant by the values of some columns."""
    if not columns:
        return cells
    same = cells.starts[1:] == cells.starts[:-1]
    for codes in cells.codes.values():
        same &= codes[1:] == codes[:-1]
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
    order = pc.sort_indices(table, sort_keys=[(key, "ascending") for key in table.column_names])
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


def _changed(
    beside: Beside, values: Mapping[str, pa.Array], is_there: Mask, was_there: Mask
) -> Ints:
    """Return the results that are there, but for those of equal values to the one before."""
    is_changed = is_there & ~was_there
    open_ = np.flatnonzero(is_there & was_there)
    for array in values.values():
        if not open_.size:
            break
        differs = beside.differs(array, open_)
        is_changed[open_[differs]] = True
        open_ = open_[~differs]
    return np.flatnonzero(is_changed)


def _waiting(rows: Rows, until: int) -> Rows:
    """Return the rows from an instant on, by event time."""
    late = np.flatnonzero(rows.starts >= until)
    return rows.taken(late[np.argsort(rows.starts[late], kind="stable")])


_KNOWN = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_date,
    pa.types.is_timestamp,
    pa.types.is_string,
    pa.types.is_binary,
)


def can_compare(kind: pa.DataType) -> bool:
    """Return whether values of a type are equal here where Spark says that they are not distinct.

    >>> can_compare(pa.float64()), can_compare(pa.list_(pa.int64()))
    (True, False)
    """
    return any(is_it(kind) for is_it in _KNOWN)


@dataclass(frozen=True)
class Beside:
    """Ranges of results, and those of the results before them, which follow each other.

    ``ranges`` has lo and hi of each, and lo and hi of the one before ((results, 4)).
    """

    ranges: Ints

    @cached_property
    def is_apart(self) -> Mask:
        """Which results have one before that is not the result that stands before them."""
        is_apart = np.ones(self.ranges.shape[0], np.bool_)
        is_apart[1:] = (self.ranges[1:, 2:] != self.ranges[:-1, :2]).any(axis=1)
        return is_apart

    @cached_property
    def at(self) -> Ints:
        """Where the values of each result are; those of the one before stand before them."""
        places: Ints = np.arange(self.is_apart.size) + np.cumsum(self.is_apart)
        return places

    @cached_property
    def every(self) -> tuple[Ints, Ints]:
        """All ranges, in order: lo and hi."""
        size = self.at.size + int(np.count_nonzero(self.is_apart))
        lo, hi = np.empty(size, np.int64), np.empty(size, np.int64)
        lo[self.at], hi[self.at] = self.ranges[:, 0], self.ranges[:, 1]
        before = self.at[self.is_apart] - 1
        lo[before], hi[before] = self.ranges[self.is_apart, 2], self.ranges[self.is_apart, 3]
        return lo, hi

    def values(self, monoid: Monoid, column: pa.ChunkedArray) -> pa.Array:
        """Return the values of all ranges."""
        return monoid.value(whole(column), *self.every)

    def differs(self, values: pa.Array, among: Ints) -> Mask:
        """Return which of some results differ in a value from the one before.

        Args:
            values: of all ranges.
            among: the results that are asked about, by their places.
        """
        places = self.at[among]
        if places.size == self.at.size == len(values) - 1:  # of one group: no copies
            return _distinct(values.slice(1), values.slice(0, len(values) - 1))
        return _distinct(values.take(pa.array(places)), values.take(pa.array(places - 1)))


def _distinct(one: pa.Array, other: pa.Array) -> Mask:
    """Return which entries are distinct: NULL is as NULL, and NaN as NaN."""
    same = _mask(pc.equal(one, other))
    if pa.types.is_floating(one.type):
        same |= _mask(pc.is_nan(one)) & _mask(pc.is_nan(other))
    if one.null_count and other.null_count:
        same |= _mask(pc.is_null(one)) & _mask(pc.is_null(other))
    return ~same


def _mask(flags: pa.Array) -> Mask:
    filled: Any = pc.fill_null(flags, False) if flags.null_count else flags
    mask: Mask = filled.to_numpy(zero_copy_only=False)
    return mask


def state_of(
    part: AggregatePart, bucket: int, n_buckets: int, place: StatePlace | None
) -> BucketState:
    """Return the files that a bucket starts from.

    Where the number of buckets is another one than before, its cells are taken from the files of
    all of them and written as files of its own, once.

    Raises:
        OSError: files cannot be read or written.
    """
    if place is None or part.n_buckets == n_buckets or not part.buckets:
        return part.buckets.get(bucket, BucketState())

    def moved(file: RunFile | None) -> RunFile | None:
        """Return a file of the cells of another one that are in the bucket, if there is any."""
        if file is None:
            return None
        mine = of_bucket(open_rows(place.files, place.runs, file), bucket, n_buckets)
        if not len(mine):
            return None
        if BY_END in mine.payload.column_names:  # the places of cells are other ones now
            mine = replace(mine, payload=mine.payload.drop_columns([BY_END]))
        return write_rows(place.files, place.runs, mine, is_sorted=True)

    states = part.buckets.values()
    waiting = [moved(file) for state in states for file in state.waiting]
    history = {}
    for kind in sorted({kind for state in states for kind in state.history}):
        spans = [span for state in states for span in state.history.get(kind, ())]
        spans.sort(key=lambda span: span.file.first_start)
        copies = [Span(moved(span.cells), moved(span.summary)) for span in spans]
        history[kind] = tuple(span for span in copies if span.files)
    return BucketState(tuple(file for file in waiting if file is not None), history)
