"""Windows that change with every row.

They have a length, or hold the last rows, or are those of ``OVER``. ``ChangeBatch`` is the work of
a bucket for windows of a length of time. ``CountBatch`` is that for windows that count rows. There
rows come with two codes: the code of their partition, in which all are counted, whether WHERE keeps
them or not; and the code by which those that WHERE keeps are grouped. A row leaves at the instant
at which the last of so many rows behind it has come, whatever their groups are. ``StayBatch`` is
that for the rows of a join: each says itself how long it stays. ``RowBatch`` gives each row values
of the rows of its group up to it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from eddyline.aggregates.bucket import ROOM_COLUMNS, BucketBatch, filled_ranges
from eddyline.aggregates.cells import (
    CHECK,
    CODE,
    History,
    Reach,
    Span,
    group_bounds,
    no_cells,
    of_groups,
    of_ranges,
    with_fresh,
)
from eddyline.aggregates.plan import LAST, OWN_CHECK, OWN_CODE, PASSES
from eddyline.aggregates.ranges_kernels import change_ranges, held_rows, row_ranges
from eddyline.data.arrays import distinct, starts_of, whole
from eddyline.errors import AggregateError
from eddyline.query.query import LONGEST
from eddyline.state.rows import ALWAYS, FOREVER, Rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eddyline.aggregates.monoids import Monoid
    from eddyline.aggregates.plan import Frame
    from eddyline.data.arrays import Ints

MOST_RESULTS = 2**20
"""Results that one table has, about; a table has those of one instant or more."""


class ChangeBatch(BucketBatch):
    """Windows that change with every row that comes or leaves."""

    @cached_property
    def reach(self) -> Reach:
        """How far windows look back."""
        return Reach(self.plan.window.length)

    @property
    def gives_all(self) -> bool:
        """Whether all groups are given at each instant at which rows come, in any of them."""
        return self.plan.emits == "rstream"

    def results(self, fresh: Rows | None) -> Iterator[pa.Table]:
        """Yield the results of the instants at which a row comes or leaves."""
        cells = self.reached_back(fresh)
        if cells is None or (self.gives_all and fresh is None):
            return
        yield from self._tables_of(cells, self.leaves(cells), fresh)

    def _tables_of(self, cells: Rows, leaves: Ints, fresh: Rows | None) -> Iterator[pa.Table]:
        """Yield the results of cells, given the instants at which these leave."""
        parts = [np.empty(0, np.int64)]
        if self.gives_all and fresh is not None:
            parts = cut(distinct(fresh.starts), group_bounds(cells).size - 1, MOST_RESULTS)
        for asked in parts:
            facts = leaves, asked, self.first_instant, self.plan.after
            yield self.table(cells, *filled_ranges(change_ranges, cells, *facts))

    @property
    def first_instant(self) -> int:
        """The first instant that is answered (µs)."""
        return max(self.plan.before, ALWAYS + 2)

    def reached_back(self, fresh: Rows | None) -> Rows | None:
        """Return the cells that windows have, in order; None if there is none."""
        since, until = self.first_instant, self.plan.after
        length, is_timed = self.reach.length, self.reach.length < LONGEST
        low, common = (since - 1 - length, until - 1 - length) if is_timed else (ALWAYS, ALWAYS)
        new = no_cells() if fresh is None else fresh
        wanted, span = None if self.gives_all else new, (common, since)
        before = self._history.cells(max(low, ALWAYS), span, wanted, with_edges=is_timed)
        return self.entries(before, fresh)

    @property
    def _history(self) -> History:
        return self.history("changes", self.reach, self.partials)

    def leaves(self, cells: Rows) -> Ints:
        """Return the instant from which on each cell is in no window (µs)."""
        length = self.reach.length
        if length == LONGEST:
            return np.full(len(cells), FOREVER)
        last = FOREVER - length - 1
        return np.where(cells.starts > last, FOREVER, cells.starts + (length + 1))

    def history_after(self, fresh: Rows | None) -> dict[str, tuple[Span, ...]]:
        """Return the files of cells that windows of later batches reach back to."""
        is_timed = 0 <= self.reach.length < LONGEST
        horizon = self.plan.after - 1 - self.reach.length if is_timed else ALWAYS
        return self._history.after(fresh, horizon)


def cut(instants: Ints, n_each: int, most: int) -> list[Ints]:
    """Return instants in parts, of which each brings so many or fewer if they bring ``n_each``.

    >>> [part.tolist() for part in cut(np.arange(5), 3, 7)]
    [[0, 1], [2, 3], [4]]
    """
    size = max(1, most // max(1, n_each))
    return [instants[place : place + size] for place in range(0, instants.size, size)]


MOST_ROWS = 2**22
"""Rows that one table of results is computed of, about, where rows leave in any order."""


class CountBatch(ChangeBatch):
    """Windows of the last rows of each partition."""

    stays_rows = True

    @cached_property
    def reach(self) -> Reach:
        """How far windows look back."""
        counts = self.plan.window.counts
        assert counts is not None
        return Reach(n_rows=counts.rows)

    def results(self, fresh: Rows | None) -> Iterator[pa.Table]:
        """Yield the results of the instants at which rows come, as only then others leave."""
        if fresh is None:
            return
        rows = self.entries(self._before(fresh), fresh)
        assert rows is not None
        groups, leaves = _grouped(rows, _leaves(rows, self.reach.n_rows))
        if not len(groups):
            return
        if self.plan.spans:
            yield from self._of_several(groups, leaves, distinct(fresh.starts))
        else:
            yield from self._tables_of(groups, leaves, fresh)

    def _before(self, fresh: Rows) -> list[Rows]:
        """Return the rows of before that windows have."""
        if self.plan.is_alone:
            return []
        # Groups of several partitions have rows of those in which nothing comes, too.
        wanted = None if self.gives_all or self.plan.spans else fresh
        return self._history.cells(ALWAYS, (ALWAYS, self.first_instant), wanted)

    def history_after(self, fresh: Rows | None) -> dict[str, tuple[Span, ...]]:
        """Return the files of rows that windows of later batches have."""
        return {} if self.plan.is_alone else super().history_after(fresh)

    def _of_several(self, groups: Rows, leaves: Ints, instants: Ints) -> Iterator[pa.Table]:
        """Yield the results of groups whose rows are of several partitions.

        They leave in any order, so the rows of each result are put together anew.
        """
        bounds = group_bounds(groups)
        number = np.repeat(np.arange(bounds.size - 1), np.diff(bounds))
        leaving = np.lexsort((leaves, number))

        def found(part: Ints, rooms: tuple[Ints, Ints, Ints]) -> Ints:
            sizes = np.empty(2, np.int64)
            asked = part if self.gives_all else part[:0]
            facts = asked, int(part[0]), int(part[-1]) + 1
            held_rows(groups.starts, bounds, leaves, leaving, *facts, *rooms, sizes)
            return sizes

        n_rows = int(found(instants, _rooms(0, 0))[1])
        for part in cut(instants, n_rows // instants.size, MOST_ROWS):
            rooms = _rooms(*map(int, found(part, _rooms(0, 0))))
            found(part, rooms)
            result_instants, ranges, taken = rooms
            if result_instants.size:
                yield self.table(groups.taken(taken), result_instants, ranges)


def _rooms(n_results: int, n_rows: int) -> tuple[Ints, Ints, Ints]:
    """Return room for the instants and ranges of results, and for their rows."""
    return (
        np.empty(n_results, np.int64),
        np.empty((n_results, ROOM_COLUMNS), np.int64),
        np.empty(n_rows, np.int64),
    )


def _leaves(rows: Rows, n_rows: int) -> Ints:
    """Return the instant from which on each row, in order, is in no window (µs)."""
    bounds = group_bounds(rows)
    ends = np.repeat(bounds[1:], np.diff(bounds))
    pusher = np.arange(len(rows)) + min(n_rows, len(rows))
    is_pushed = pusher < ends
    leaves = np.full(len(rows), FOREVER)
    leaves[is_pushed] = rows.starts[pusher[is_pushed]]
    return leaves


def _grouped(rows: Rows, leaves: Ints) -> tuple[Rows, Ints]:
    """Return the rows that WHERE keeps by their own groups, in order, and when each leaves (µs)."""
    names = rows.payload.column_names
    kept = np.arange(len(rows))
    if PASSES in names:
        kept = np.flatnonzero(rows.payload[PASSES].to_numpy())
    if OWN_CODE not in names:
        return (rows, leaves) if kept.size == len(rows) else (rows.taken(kept), leaves[kept])
    code, check = (rows.payload[name].to_numpy()[kept] for name in (OWN_CODE, OWN_CHECK))
    # Stable: rows of one group and instant stay as their partition has them, so none leaves first.
    order = np.lexsort((rows.starts[kept], check, code))
    taken = kept[order]
    kept_rows = rows.taken(taken)
    codes = {CODE: code[order], CHECK: check[order]}
    return Rows(codes, kept_rows.starts, kept_rows.ends, kept_rows.payload), leaves[taken]


class StayBatch(ChangeBatch):
    """Windows of rows each of which says how long it stays: those of a join."""

    stays_rows = True

    def results(self, fresh: Rows | None) -> Iterator[pa.Table]:
        """Yield the results of the instants at which a row comes or leaves."""
        if self.gives_all and fresh is None:
            return
        rows = self.entries(self._there(fresh), fresh)
        if rows is None:
            return
        last = last_instants(rows)
        for since, until, asked in self._spans(rows, last, fresh):
            there = np.flatnonzero((rows.starts < until) & (last >= since - 1))
            held = InstantTree(rows.taken(there), last[there], since, until, asked)
            yield from self._tables(held, self._cells(held))

    def _spans(
        self, rows: Rows, last: Ints, fresh: Rows | None
    ) -> Iterator[tuple[int, int, Ints | None]]:
        """Yield spans of instants; where all groups are given, the instants at which they are."""
        if self.gives_all and fresh is not None:
            n_groups = group_bounds(rows).size - 1
            for part in cut(distinct(fresh.starts), n_groups, MOST_RESULTS):
                yield int(part[0]), int(part[-1]) + 1, part
            return
        for since, until in _spans(rows.starts, last, self.first_instant, self.plan.after):
            yield since, until, None

    def _cells(self, held: InstantTree) -> Rows | None:
        """Return the cells of nodes; None if the rows of each instant are put together."""
        columns = [held.rows.payload[name].type for name in self.partials]
        if not all(monoid.commutes for monoid in self.partials.values()):
            return None
        # Cells round sums of doubles, each in its own way.
        if held.n_held.sum() <= MOST_ROUNDED and any(map(_has_floats, columns)):
            return None
        strict = {name: replace(monoid, ansi=True) for name, monoid in self.partials.items()}
        # The sum of some rows may not fit into its type, though that of all of them does.
        with suppress(AggregateError):
            return held.cells(strict)
        return None

    def _tables(self, held: InstantTree, cells: Rows | None) -> Iterator[pa.Table]:
        """Yield the results of all instants of a tree."""
        for first, last in held.parts(MOST_ENTRIES, by_rows=cells is None):
            entries, ranges = held.entries(first, last, cells)
            is_result = ranges[:, 0] < ranges[:, 1]
            if self.plan.tells_old:
                is_result |= ranges[:, 2] < ranges[:, 3]
            is_result &= ~held.is_first[first:last]
            if is_result.any():
                yield self.table(entries, held.instants[first:last][is_result], ranges[is_result])

    def _there(self, fresh: Rows | None) -> list[Rows]:
        """Return the rows of before that are still there, of groups in which rows come or leave."""
        since, until = self.first_instant, self.plan.after
        low = max(ALWAYS, since - 1 - self.reach.length)
        before = self._history.cells(low, (ALWAYS, ALWAYS), None)
        if self.gives_all:
            return [_there_from(rows, since) for rows in before]
        changed = [no_cells().codes[CODE] if fresh is None else fresh.codes[CODE]]
        for rows in before:
            last = last_instants(rows)
            changed.append(rows.codes[CODE][(last >= since - 1) & (last < until - 1)])
        codes = distinct(np.concatenate(changed))
        return [_there_from(of_groups(rows, codes), since - 1) for rows in before]

    @property
    def _history(self) -> History:
        arguments = "stays", self.state.history, self.reach, None, self.place
        return StayHistory(*arguments, since=self.plan.after - 1)


class StayHistory(History):
    """Rows of before that are still there at an instant (µs), which is named ``since``."""

    def __init__(self, *arguments: Any, since: int) -> None:
        super().__init__(*arguments)
        self._since = since

    def _kept(self, cells: Rows) -> Rows:
        return _there_from(cells, self._since)


def last_instants(rows: Rows) -> Ints:
    """Return the last instant at which each row is there (µs)."""
    instants: Ints = whole(rows.payload[LAST]).to_numpy()
    return instants


def _there_from(rows: Rows, since: int) -> Rows:
    """Return the rows that are there at an instant or later (µs), in their order."""
    if not len(rows):
        return rows
    is_there = last_instants(rows) >= since
    return rows if is_there.all() else rows.taken(np.flatnonzero(is_there))


def _has_floats(kind: pa.DataType) -> bool:
    """Return whether values of a type are floats, or structs with such."""
    fields = [kind.field(number).type for number in range(kind.num_fields)]
    return pa.types.is_floating(kind) or any(map(pa.types.is_floating, fields))


def _spans(starts: Ints, last: Ints, since: int, until: int) -> Iterator[tuple[int, int]]:
    """Yield spans of instants in which about ``MOST_CHANGES`` rows come or leave."""
    changes = np.sort(np.concatenate([starts, np.minimum(last, FOREVER - 1) + 1]))
    changes = changes[(changes > since) & (changes < until)]
    cuts = distinct(changes[MOST_CHANGES::MOST_CHANGES]).tolist()
    yield from pairwise([since, *cuts, until])


MOST_CHANGES = 2**17
"""Rows that come or leave in the instants of one tree, about: a tree of n rows has up to
2 n log n entries."""

MOST_ROUNDED = 2**22
"""Rows at all instants together, of which sums of doubles are added up anew at each instant. That
takes half a second."""

MOST_ENTRIES = 2**21
"""Entries that one table of results is computed of, about."""


class InstantTree:
    """The rows of a group that are there at each instant at which one of them comes or leaves.

    The instants are the leaves of a binary tree. A row is there in a span of them, which at most
    two nodes of each level make up. At an instant those rows are there that the nodes above it
    have. So n rows are 2 n log n entries or fewer, however many of them an instant has.

    Args:
        rows: by group and start; all of them are there at ``since - 1`` or later.
        last: the last instant of each (µs).
        since: the first instant that is answered (µs).
        until: the instant before which answers end (µs).
        instants: those at which all groups are asked for (µs, ascending); None: each is at those
            at which its own rows come or leave.
    """

    def __init__(
        self, rows: Rows, last: Ints, since: int, until: int, instants: Ints | None = None
    ) -> None:
        self.rows = rows
        bounds = group_bounds(rows)
        group = np.repeat(np.arange(bounds.size - 1), np.diff(bounds))
        comes, leaves = np.maximum(rows.starts, since - 1), np.minimum(last, until - 1) + 1
        changes = np.concatenate([comes, leaves])
        asked_instants = np.empty(0, np.int64) if instants is None else instants
        moments = distinct(np.concatenate([changes, [since - 1], asked_instants]))
        places = np.tile(group, 2) * moments.size + np.searchsorted(moments, changes)
        groups = np.arange(bounds.size - 1) * moments.size
        before = groups + np.searchsorted(moments, since - 1)
        wanted = places[changes < until]
        if instants is not None:
            wanted = (groups[:, None] + np.searchsorted(moments, instants)).ravel()
        asked = distinct(np.concatenate([wanted, before]))
        self.instants = moments[asked % moments.size]
        """Those of all groups, behind the instant before ``since`` of each group."""
        self.is_first = self.instants == since - 1
        """Which of them are before ``since``."""
        begin, end = np.split(np.searchsorted(asked, places), 2)
        sizes = np.bincount(begin, minlength=asked.size + 1).astype(np.int64)
        sizes -= np.bincount(end, minlength=asked.size + 1)
        self.n_held = np.cumsum(sizes)[:-1]
        """The rows that are there at each instant."""
        self._depth = int(asked.size - 1).bit_length()
        nodes, taken = _nodes(begin + (1 << self._depth), end + (1 << self._depth))
        order = np.argsort(nodes, kind="stable")
        self._taken = taken[order]
        """The rows of all nodes, one node after the other."""
        self._filled = distinct(nodes)
        self._bounds = np.append(np.searchsorted(nodes[order], self._filled), nodes.size)
        """The nodes that have rows, and the bounds of these."""

    def parts(self, most: int, *, by_rows: bool) -> Iterator[tuple[int, int]]:
        """Yield spans of instants that have about so many entries, or rows, each."""
        sizes = self.n_held if by_rows else np.full(self.n_held.size, self._depth + 1)
        part = np.cumsum(sizes) // most
        cuts = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), part.size]
        yield from pairwise(cuts)

    def cells(self, partials: Mapping[str, Monoid]) -> Rows:
        """Return the rows of each node as one cell.

        Raises:
            AggregateError: a sum does not fit into its type.
        """
        rows, (lo, hi) = self.rows.taken(self._taken), (self._bounds[:-1], self._bounds[1:])
        starts = rows.starts[lo]
        return of_ranges(rows, lo, hi, partials, (starts, starts))

    def entries(self, first: int, last: int, cells: Rows | None) -> tuple[Rows, Ints]:
        """Return what is there at instants, and the range of each and of the one before it.

        Args:
            first: the first instant, by place.
            last: the place behind the last one.
            cells: those of nodes; None: rows are wanted, in their order.
        """
        since = max(first - 1, 0)
        instant, node = self._above(np.arange(since, last))
        if cells is None:
            sizes = np.diff(self._bounds)[node]
            shift = self._bounds[node] - starts_of(sizes)[:-1]
            taken = self._taken[np.repeat(shift, sizes) + np.arange(int(sizes.sum()))]
            instant = np.repeat(instant, sizes)
            node = taken[np.lexsort((taken, instant))]
        bounds = starts_of(np.bincount(instant, minlength=last - since))
        now = np.arange(first - since, last - since)
        before = np.maximum(now - 1, 0)
        ranges = np.column_stack([bounds[now], bounds[now + 1], bounds[before], bounds[before + 1]])
        return (self.rows if cells is None else cells).taken(node), ranges

    def _above(self, places: Ints) -> tuple[Ints, Ints]:
        """Return the nodes with rows above instants: the number of the instant, and of the node."""
        if not self._filled.size:
            return places[:0], places[:0]
        levels = np.arange(self._depth + 1)
        nodes = (places + (1 << self._depth))[:, None] >> levels
        positions = np.minimum(np.searchsorted(self._filled, nodes), self._filled.size - 1)
        instant, level = np.nonzero(self._filled[positions] == nodes)
        return instant, positions[instant, level]


def _nodes(begin: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return the nodes that make up spans of leaves, and the number of the span of each.

    >>> [each.tolist() for each in _nodes(np.array([8 + 1]), np.array([8 + 4]))]
    [[9, 5], [0, 0]]
    """
    nodes, spans = [], []
    open_ = np.flatnonzero(begin < end)
    begin, end = begin[open_], end[open_]
    while open_.size:
        is_right, is_left = begin & 1 == 1, end & 1 == 1
        nodes += [begin[is_right], end[is_left] - 1]
        spans += [open_[is_right], open_[is_left]]
        begin, end = (begin + is_right) >> 1, (end - is_left) >> 1
        is_open = begin < end
        open_, begin, end = open_[is_open], begin[is_open], end[is_open]
    none = np.empty(0, np.int64)
    return np.concatenate([*nodes, none]), np.concatenate([*spans, none])


KINDS = ("range", "rows", "all")
"""Kinds of frames, each with cells of its own: by time, by number, and all rows so far."""


def reach_of(frame: Frame) -> Reach:
    """Return how far a frame looks back."""
    counts = frame.window.counts
    if counts is None:
        return Reach(frame.window.length)
    return Reach(LONGEST) if counts.rows >= LONGEST else Reach(n_rows=counts.rows)


def kind_of(frame: Frame) -> str:
    """Return the kind of a frame."""
    reach = reach_of(frame)
    return "rows" if reach.n_rows >= 0 else "all" if reach.is_all else "range"


class RowBatch(BucketBatch):
    """Rows are answered one by one, each with the values of all frames."""

    stays_rows = True

    def results(self, fresh: Rows | None) -> Iterator[pa.Table]:
        """Yield the rows that are answered now with their values."""
        if fresh is None:
            return
        partials = {name for frame in self.plan.frames for name in frame.partials.monoids}
        kept = [name for name in fresh.payload.column_names if name not in partials]
        table = fresh.payload.select(kept)
        for frame in self.plan.frames:
            for name, values in self._values(frame, fresh).items():
                table = table.append_column(name, values)
        yield table

    def history_after(self, fresh: Rows | None) -> dict[str, tuple[Span, ...]]:
        """Return the files of rows that frames of later rows reach back to."""
        spans: dict[str, tuple[Span, ...]] = {}
        for kind in KINDS:
            if frames := [frame for frame in self.plan.frames if kind_of(frame) == kind]:
                history = self._history(kind, frames)
                rows = None if fresh is None else _with_only(fresh, list(history.partials))
                horizon = self.plan.after - history.reach.length if kind == "range" else ALWAYS
                spans |= history.after(rows, horizon)
        return spans

    def _history(self, kind: str, frames: Sequence[Frame]) -> History:
        """Return the rows of before that the frames of a kind need."""
        reaches = [reach_of(frame) for frame in frames]
        longest = max(reaches, key=lambda reach: (reach.length, reach.n_rows))
        partials = {
            name: monoid for frame in frames for name, monoid in frame.partials.made.items()
        }
        return self.history(kind, longest, partials)

    def _values(self, frame: Frame, fresh: Rows) -> dict[str, pa.Array]:
        """Return the values of a frame for each row."""
        reach, kind = reach_of(frame), kind_of(frame)
        frames = [other for other in self.plan.frames if kind_of(other) == kind]
        is_timed = kind == "range"
        first, last = int(fresh.starts.min()), int(fresh.starts.max())
        since = first - reach.length if is_timed else ALWAYS
        common = (last - reach.length if is_timed else ALWAYS, first)
        before = self._history(kind, frames).cells(max(since, ALWAYS), common, fresh)
        names = list(frame.partials.monoids)
        kept = [_with_only(rows, names) for rows in before]
        cells, places = with_fresh(kept, _with_only(fresh, names))
        self._n_read += len(cells) - len(fresh)
        ranges = np.empty((len(fresh), 2), np.int64)
        length, counts = reach.length if is_timed else -1, frame.window.counts
        n_rows = -1 if counts is None else counts.rows
        row_ranges(cells.starts, group_bounds(cells), places >= 0, length, n_rows, ranges)
        lo, hi = np.ascontiguousarray(ranges[:, 0]), np.ascontiguousarray(ranges[:, 1])
        monoids = frame.partials.made
        columns = {name: whole(cells.payload[name]) for name in names}
        return {
            name: monoids[source].value(columns[source], lo, hi)
            for name, source in frame.values.items()
        }


def _with_only(rows: Rows, names: Sequence[str]) -> Rows:
    """Return rows with some of their columns."""
    return replace(rows, payload=rows.payload.select(names))
