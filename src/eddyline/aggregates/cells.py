"""Cells: rows with partial aggregates, by group and time.

The cells of earlier batches are here, too. A group is known by two hashes of its values, ``CODE``
and ``CHECK``, 128 bits together. In the order of groups, cells are sorted by code, check and start:
results are computed of them so.

``History`` keeps cells as long as windows need them, in files that never change. A file has the
cells of a span of time in the order of groups. Beside it stands its *summary*, one cell for each
group. A span in the middle of all windows of a batch is read from its summary. Only spans at the
edges, where some windows have a cell and others do not, are read cell by cell. So a batch costs
what its own rows and the edges take, however long the windows are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from msgspec import Struct

from eddyline.aggregates.ranges_kernels import group_order
from eddyline.data.arrays import distinct, starts_of, whole
from eddyline.query.query import LONGEST
from eddyline.state.bucket_state import FAN_IN, upkeep_of
from eddyline.state.rows import ALWAYS, FOREVER, Rows
from eddyline.state.run_files import RunFile, open_rows, write_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eddyline.aggregates.monoids import Monoid
    from eddyline.data.arrays import Indices, Ints
    from eddyline.state.manifest import StatePlace

CODE, CHECK = 0, 1
"""The codes of cells. Where several queries share them, the codes of coarser groups follow in
pairs, each of groups that those before are parts of; see ``coarser``."""

BY_END = "\0by_end"
"""The column of the places of sessions in the order of their last rows. Files may lack it, such as
where sessions have moved to other buckets."""


def in_order(cells: Rows, until: int = FOREVER) -> Rows:
    """Return cells by group and start; of equal ones, those first that stand first.

    Of parts that are in order, the oldest first, no more is done than that their codes are merged.
    Those that start at an instant or later (µs) are left out.
    """
    is_due = cells.starts < until
    order = None if is_due.all() else np.flatnonzero(is_due)
    for by in (_by_code, _by_code_and_start):
        codes, starts = cells.codes[CODE], cells.starts
        if order is not None:
            codes, starts = codes[order], starts[order]
        if (moved := by(codes, starts)) is not None:
            order = moved if order is None else order[moved]
    return _told_apart(cells if order is None else cells.taken(order))


def _by_code(codes: Ints, _starts: Ints) -> Indices | None:
    """Return the order of cells by code; None if they are in it."""
    return np.argsort(codes, kind="stable") if (codes[1:] < codes[:-1]).any() else None


def _by_code_and_start(codes: Ints, starts: Ints) -> Indices | None:
    """Return the order of cells by code and start, of those by code; None if they are in it."""
    is_behind = (codes[1:] == codes[:-1]) & (starts[1:] < starts[:-1])
    return np.lexsort((starts, codes)) if is_behind.any() else None


def _told_apart(cells: Rows) -> Rows:
    """Return cells that are sorted by code and start with groups of one code told apart."""
    codes, checks = cells.codes[CODE], cells.codes[CHECK]
    if not ((codes[1:] == codes[:-1]) & (checks[1:] != checks[:-1])).any():
        return cells
    return cells.taken(np.lexsort((cells.starts, checks, codes)))


def group_bounds(cells: Rows) -> Ints:
    """Return the first cell of each group, and the number of cells; they are in order."""
    is_first = np.ones(len(cells) + 1, np.bool_)
    for key in (CODE, CHECK):
        if len(cells):
            codes = cells.codes[key]
            same = codes[1:] == codes[:-1]
            is_first[1:-1] = same if key == CODE else is_first[1:-1] & same
    is_first[1:-1] = ~is_first[1:-1]
    return np.flatnonzero(is_first) if len(cells) else np.zeros(1, np.int64)


def merged(cells: Rows, partials: Mapping[str, Monoid]) -> Rows:
    """Return cells in order, with those of one group and start as one.

    Args:
        cells: in order.
        partials: the columns of partial aggregates, and how they are put together; others are the
            same in all cells of a group.
    """
    if not len(cells):
        return cells
    bounds = group_bounds(cells)
    is_first = np.zeros(len(cells), np.bool_)
    is_first[bounds[:-1]] = True
    is_first[1:] |= cells.starts[1:] != cells.starts[:-1]
    return put_together(cells, np.flatnonzero(is_first), partials)


def rows_by_cell(codes: Mapping[int, Ints], starts: Ints) -> tuple[Ints, Ints]:
    """Return the order of rows by group and cell, and the bounds of the cells in it.

    Args:
        codes: of the groups of rows.
        starts: of the cells of rows (µs).
    """
    order, bounds = np.empty(starts.size, np.int64), np.empty(starts.size + 1, np.int64)
    n_cells = group_order(codes[CODE], codes[CHECK], starts, order, bounds)
    return order, bounds[: n_cells + 1]


def summary(cells: Rows, partials: Mapping[str, Monoid]) -> Rows:
    """Return one cell for each group, which starts with its first; see ``merged``."""
    return put_together(cells, group_bounds(cells)[:-1], partials) if len(cells) else cells


def put_together(cells: Rows, firsts: Indices, partials: Mapping[str, Monoid]) -> Rows:
    """Return the cells from each first one to the next as one."""
    if firsts.size == len(cells):
        return cells
    lo, hi = firsts.astype(np.int64), np.append(firsts[1:], len(cells)).astype(np.int64)
    starts = cells.starts[lo]
    return of_ranges(cells, lo, hi, partials, (starts, starts))


def of_ranges(
    cells: Rows, lo: Ints, hi: Ints, partials: Mapping[str, Monoid], span: tuple[Ints, Ints]
) -> Rows:
    """Return one cell for each range [lo, hi) of cells, with its start and its end (µs)."""
    columns = {
        name: partials[name].merge(whole(column), lo, hi)
        if name in partials
        else column.take(pa.array(lo))
        for name, column in zip(cells.payload.column_names, cells.payload.columns, strict=True)
    }
    codes = {key: values[lo] for key, values in cells.codes.items()}
    payload = pa.table(columns) if columns else cells.payload.slice(0, lo.size)
    return Rows(codes, *span, payload)


def coarser(
    cells: Rows, level: int, columns: Sequence[str], partials: Mapping[str, Monoid]
) -> Rows:
    """Return cells in order, with those of one coarser group and start as one.

    Args:
        cells: in order.
        level: the place of the groups among those that cells have codes of; 0 are their own.
        columns: those that are kept.
        partials: see ``merged``.
    """
    codes = {key - 2 * level: values for key, values in cells.codes.items() if key >= 2 * level}
    selected = Rows(codes, cells.starts, cells.ends, cells.payload.select(columns))
    return merged(in_order(selected), partials) if level else selected


def tails(cells: Rows, n: int) -> Rows:
    """Return the last n cells of each group of cells that are in order."""
    bounds = group_bounds(cells)
    sizes = np.diff(bounds)
    n_from_end = np.repeat(bounds[1:], sizes) - np.arange(len(cells))
    return cells if not (n_from_end > n).any() else cells.taken(np.flatnonzero(n_from_end <= n))


def of_groups(cells: Rows, wanted: Ints) -> Rows:
    """Return the cells, which are in order, whose code is one of some that ascend."""
    codes = cells.codes[CODE]
    lows = np.searchsorted(codes, wanted, "left")
    # Most files of before have few of the groups: of the others no end is looked for.
    is_there = lows < len(cells)
    is_there[is_there] = codes[lows[is_there]] == wanted[is_there]
    lows, wanted = lows[is_there], wanted[is_there]
    sizes = np.searchsorted(codes, wanted, "right") - lows
    if int(sizes.sum()) == len(cells):
        return cells
    offsets = np.repeat(lows - starts_of(sizes)[:-1], sizes)
    return cells.taken(offsets + np.arange(int(sizes.sum())))


def from_instant(cells: Rows, since: int) -> Rows:
    """Return the cells that start at an instant (µs) or later, in the order in which they are."""
    late = cells.starts >= max(since, ALWAYS)
    return cells if late.all() else cells.taken(np.flatnonzero(late))


def together(parts: Sequence[Rows]) -> Rows:
    """Return the cells of several parts, one or more, behind each other."""
    filled = [part for part in parts if len(part)] or parts[:1]
    return filled[0] if len(filled) == 1 else Rows.together(filled)


def of_bucket(cells: Rows, bucket: int, n_buckets: int) -> Rows:
    """Return the cells of the groups that are in a bucket, the coarsest that they have codes of."""
    coarsest = max(cells.codes) - CHECK + CODE
    is_mine = cells.codes[coarsest] % n_buckets == bucket
    return cells if is_mine.all() else cells.taken(np.flatnonzero(is_mine))


def no_cells() -> Rows:
    """Return no cells."""
    none = np.empty(0, np.int64)
    return Rows({CODE: none, CHECK: none}, none, none, pa.table({}))


FRESH = "\0fresh"


def with_fresh(before: Sequence[Rows], fresh: Rows) -> tuple[Rows, Ints]:
    """Return cells of before and fresh ones in order, with the places of the fresh ones.

    Args:
        before: none of their cells stands between fresh ones of a group.
        fresh: in order, and they stay in it.

    Returns:
        The cells; and for each its place among the fresh ones, -1 for one of before.
    """
    marked = [_marked(rows, np.full(len(rows), -1)) for rows in before if len(rows)]
    cells = in_order(together([*marked, _marked(fresh, np.arange(len(fresh)))]))
    places: Ints = cells.payload[FRESH].to_numpy()
    return replace(cells, payload=cells.payload.drop_columns([FRESH])), places


def _marked(rows: Rows, places: Ints) -> Rows:
    return replace(rows, payload=rows.payload.append_column(FRESH, pa.array(places)))


PIECES = 16
"""Least number of files that the cells of a window are in once there are enough: the share of a
window that the edges of a batch may have to read."""


class Span(Struct, frozen=True, forbid_unknown_fields=True):
    """Cells of a span of time."""

    cells: RunFile | None
    """By group and start; None where summaries are enough."""
    summary: RunFile | None
    """One cell for each group; None where cells are few, or are taken by their number."""

    @property
    def file(self) -> RunFile:
        """The file that says of when its cells are."""
        return self.files[0]

    def is_within(self, common: tuple[int, int]) -> bool:
        """Return whether its summary can stand for its cells where all in a range are needed."""
        since, until = common
        is_inside = since <= self.file.first_start and self.file.last_end < until
        return self.summary is not None and (self.cells is None or is_inside)

    @property
    def files(self) -> list[RunFile]:
        """Its files, one or two."""
        return [file for file in (self.cells, self.summary) if file is not None]


@dataclass(frozen=True)
class Reach:
    """How far back windows look."""

    length: int = -1
    """µs; ``LONGEST``: all cells so far. Less than 0: cells are counted."""
    n_rows: int = -1
    """So many last cells of each group; less than 0: as many as the length says."""

    @property
    def is_all(self) -> bool:
        """Whether no cell is ever forgotten."""
        return self.length == LONGEST

    @property
    def is_timed(self) -> bool:
        """Whether cells are forgotten by time."""
        return self.n_rows < 0 and not self.is_all


class History:
    """Cells of before, as windows of one reach need them.

    Args:
        kind: what they are called in the state of a bucket.
        before: the files after the batch before by their kinds, the oldest first.
        reach: how far the longest window looks back.
        partials: the columns of partial aggregates, see ``merged``; None: cells never merge.
        place: where files are; None if nothing is kept.
    """

    def __init__(
        self,
        kind: str,
        before: Mapping[str, tuple[Span, ...]],
        reach: Reach,
        partials: Mapping[str, Monoid] | None,
        place: StatePlace | None,
    ) -> None:
        self.kind = kind
        self.spans = before.get(kind, ())
        self.reach = reach
        self.partials = partials or {}
        self.place = place
        self._can_sum_up = partials is not None and all(
            monoid.can_merge for monoid in partials.values()
        )

    def cells(
        self, since: int, common: tuple[int, int], new: Rows | None, *, with_edges: bool = False
    ) -> list[Rows]:
        """Return the cells that windows need, each file's in order, the oldest first.

        Args:
            since: no window needs a cell that starts before this instant (µs).
            common: all windows have all cells that start in this half-open range (µs).
            new: cells of the groups that are wanted, in order; None: all are.
            with_edges: whether groups that have a cell at an edge are wanted, too.

        Raises:
            OSError: they cannot be read.
        """
        parts = [(self._open(file), is_whole) for file, is_whole in self.files(since, common)]
        if new is not None:
            wanted = distinct(new.codes[CODE])
            if with_edges:
                edges = [self._edge(rows, since) for rows, is_whole in parts if not is_whole]
                wanted = distinct(np.concatenate([wanted, *(edge.codes[CODE] for edge in edges)]))
            parts = [(of_groups(rows, wanted), is_whole) for rows, is_whole in parts]
        return [rows if is_whole else self._edge(rows, since) for rows, is_whole in parts]

    def files(self, since: int, common: tuple[int, int]) -> tuple[tuple[RunFile, bool], ...]:
        """Return the files that windows need, and which of them are summaries; see ``cells``."""
        needed = []
        for span in self.spans:
            if self.reach.is_timed and span.file.last_end < since:
                continue
            is_whole = span.is_within(common)
            file = span.summary if is_whole else span.cells
            assert file is not None
            needed.append((file, is_whole))
        return tuple(needed)

    def _edge(self, cells: Rows, since: int) -> Rows:
        return cells if self.reach.n_rows >= 0 else from_instant(cells, since)

    def after(self, new: Rows | None, horizon: int) -> dict[str, tuple[Span, ...]]:
        """Return the files after a batch by their kind; nothing if there are none.

        Args:
            new: the cells of the batch, in order.
            horizon: cells that start before it are needed no more (µs).

        Raises:
            OSError: they cannot be read or written.
        """
        spans = list(self.spans)
        new = no_cells() if new is None else new
        if self.reach.is_timed:
            spans = [span for span in spans if span.file.last_end >= horizon]
            new = from_instant(new, horizon)
        kept = self._kept(new)
        if len(kept):
            spans.append(self._written(kept))
        return {self.kind: tuple(self._compacted(spans))} if spans else {}

    def _kept(self, cells: Rows) -> Rows:
        """Return the cells, in order, that windows of later batches need."""
        if self.reach.is_all:
            return summary(cells, self.partials) if self._can_sum_up else cells
        return cells if self.reach.n_rows < 0 else tails(cells, self.reach.n_rows)

    def _written(self, cells: Rows) -> Span:
        if self.reach.is_all and self._can_sum_up:
            return Span(None, self._write(cells))
        if self.reach.n_rows < 0 and self._can_sum_up:
            summed = summary(cells, self.partials)
            if 2 * len(summed) <= len(cells):
                return Span(self._write(cells), self._write(summed))
        return Span(self._write(cells), None)

    def _compacted(self, spans: list[Span]) -> list[Span]:
        """Return the files with some that follow each other as one, where that is due."""
        files = [span.file for span in spans]
        length = self.reach.length // PIECES if self.reach.is_timed else FOREVER
        due = upkeep_of(files, horizon=ALWAYS, length=length)
        if not due.merge:
            return spans
        first = files.index(due.merge[0])
        cells = self._kept(in_order(together([self._open(file) for file in due.merge])))
        joined = [self._written(cells)] if len(cells) else []
        return [*spans[:first], *joined, *spans[first + FAN_IN :]]

    def _open(self, file: RunFile) -> Rows:
        assert self.place is not None
        return open_rows(self.place.files, self.place.runs, file)

    def _write(self, cells: Rows) -> RunFile:
        assert self.place is not None
        return write_rows(self.place.files, self.place.runs, cells, is_sorted=True)
