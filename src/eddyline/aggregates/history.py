"""The cells of batches before, as long as windows need them: immutable files with summaries.

Each file has cells of a span of time by group and start; beside it stands its *summary*, one cell
for each group. What lies in the middle of all windows of a batch is read from summaries, and only
at their edges, where some windows have a cell and others do not, cells are read one by one. So a
batch costs what its own rows and the edges take, however long the windows are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from eddyline.aggregates.cells import (
    CODE,
    from_instant,
    in_order,
    of_groups,
    summary,
    tails,
    together,
)
from eddyline.data.unique import distinct
from eddyline.query.query import LONGEST
from eddyline.state.compaction import FAN_IN, upkeep_of
from eddyline.state.row_files import open_rows, write_rows
from eddyline.state.rows import ALWAYS, FOREVER
from eddyline.state.run_files import RunFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eddyline.aggregates.monoid import Monoid
    from eddyline.state.place import StatePlace
    from eddyline.state.rows import Rows

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
        found = self.cells or self.summary
        assert found is not None
        return found

    def is_within(self, common: tuple[int, int]) -> bool:
        """Return whether its summary can stand for its cells where all in a range are needed."""
        since, until = common
        is_inside = since <= self.file.first_start and self.file.last_end < until
        return self.summary is not None and (self.cells is None or is_inside)

    @property
    def names(self) -> list[str]:
        """The names of its files."""
        return [each.name for each in (self.cells, self.summary) if each is not None]


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


class History:
    """Cells of before, as windows of one reach need them.

    Args:
        spans: the files after the batch before, the oldest first.
        reach: how far the longest window looks back.
        partials: the columns of partial aggregates; see ``cells.merged``.
        place: where files are; None if nothing is kept.
    """

    def __init__(
        self,
        spans: Sequence[Span],
        reach: Reach,
        partials: Mapping[str, Monoid],
        place: StatePlace | None,
    ) -> None:
        self.spans = tuple(spans)
        self.reach = reach
        self.partials = partials
        self.place = place
        self._can_sum_up = all(each.can_merge for each in partials.values())

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
        found = [(self._open(file), is_whole) for file, is_whole in self.files(since, common)]
        if new is None:
            return [each if is_whole else self._edge(each, since) for each, is_whole in found]
        wanted = distinct(new.codes[CODE])
        if with_edges:
            edges = [self._edge(each, since) for each, is_whole in found if not is_whole]
            wanted = distinct(np.concatenate([wanted, *(each.codes[CODE] for each in edges)]))
        chosen = [(of_groups(each, wanted), is_whole) for each, is_whole in found]
        return [each if is_whole else self._edge(each, since) for each, is_whole in chosen]

    def files(self, since: int, common: tuple[int, int]) -> tuple[tuple[RunFile, bool], ...]:
        """Return the files that windows need, and which of them are summaries; see ``cells``."""
        found = []
        is_timed = self.reach.n_rows < 0 and not self.reach.is_all
        for span in self.spans:
            if is_timed and span.file.last_end < since:
                continue
            is_whole = span.is_within(common)
            file = span.summary if is_whole else span.cells
            assert file is not None
            found.append((file, is_whole))
        return tuple(found)

    def _edge(self, cells: Rows, since: int) -> Rows:
        return cells if self.reach.n_rows >= 0 else from_instant(cells, since)

    def after(self, new: Rows, horizon: int) -> tuple[Span, ...]:
        """Return the files after a batch, with its own cells.

        Args:
            new: the cells of the batch, in order.
            horizon: cells that start before it are needed no more (µs).

        Raises:
            OSError: they cannot be read or written.
        """
        spans = list(self.spans)
        if self.reach.n_rows < 0 and not self.reach.is_all:
            spans = [each for each in spans if each.file.last_end >= horizon]
            new = from_instant(new, horizon)
        kept = self._kept(new)
        if len(kept):
            spans.append(self._written(kept))
        return tuple(self._compacted(spans))

    def _kept(self, cells: Rows) -> Rows:
        """Return the cells, in order, that windows of later batches need."""
        if self.reach.is_all:
            return summary(cells, self.partials) if self._can_sum_up else cells
        return cells if self.reach.n_rows < 0 else tails(cells, self.reach.n_rows)

    def _written(self, cells: Rows) -> Span:
        whole = None
        if self.reach.is_all and self._can_sum_up:
            return Span(None, self._write(cells))
        if self.reach.n_rows < 0 and self._can_sum_up:
            whole = summary(cells, self.partials)
            whole = None if 2 * len(whole) > len(cells) else whole
        return Span(self._write(cells), None if whole is None else self._write(whole))

    def _compacted(self, spans: list[Span]) -> list[Span]:
        """Return the files with some that follow each other as one, where that is due."""
        files = [each.file for each in spans]
        is_timed = self.reach.n_rows < 0 and not self.reach.is_all
        length = self.reach.length // PIECES if is_timed else FOREVER
        due = upkeep_of(files, horizon=ALWAYS, length=length)
        if not due.merge:
            return spans
        first = files.index(due.merge[0])
        cells = self._kept(in_order(together([self._open(file) for file in due.merge])))
        return [*spans[:first], self._written(cells), *spans[first + FAN_IN :]]

    def _open(self, file: RunFile) -> Rows:
        assert self.place is not None
        return open_rows(self.place.files, self.place.runs, file)

    def _write(self, cells: Rows) -> RunFile:
        assert self.place is not None
        return write_rows(self.place.files, self.place.runs, cells, is_sorted=True)


def names_of(spans: Iterable[Span]) -> list[str]:
    """Return the names of all files."""
    return [name for span in spans for name in span.names]
