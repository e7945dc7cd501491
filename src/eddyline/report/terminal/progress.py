"""The progress of a run for people: rows per second, the plans in force, the last change.

On a terminal and in a notebook a few lines are redrawn in place; anywhere else (a file, a pipe)
every batch is one plain line without control codes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from eddyline.report.formatting import change_texts, count, duration, one_line, out_of, per_second
from eddyline.report.terminal.notebook import Cell

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

    from eddyline.runtime.records import BatchRecord

SHOWN_NAMES = 5
"""Names of a plan that was left which are on a line."""

RATE_BATCHES = 30
"""Batches in the small plot of rows per second."""

_REDRAWS_PER_S = 8

_MARKS = {"done": "[green]✔", "failed": "[red]✘", "stopped": "[yellow]■", "goes on": "[cyan]…"}
"""Marks before the query's name, by how the watching ended."""

_BARS = "▁▂▃▄▅▆▇█"


class ProgressLine:
    """Shows how a run goes, batch by batch. Use it as a context manager.

    It writes to the standard error stream if no console is given, so that rows written to the
    standard output stay apart; nothing if it is quiet.
    """

    def __init__(self, query: str, *, console: Console | None = None, quiet: bool = False) -> None:
        self.query = one_line(query)
        self.quiet = quiet
        self.last_batch = -1
        self.n_batches = 0
        self.n_rows = 0
        self.n_kept = 0
        self._console = Console(stderr=True) if console is None else console
        # Replaced, never changed in place: the thread that redraws may be reading them.
        self._rates: tuple[float, ...] = ()
        self._plans: Mapping[str, Any] = {}
        self._lines: tuple[str, ...] = ()
        self._change = ""
        self._end = "done"
        self._live: Live | None = None
        self._cell: Cell | None = None
        self._mark: RenderableType = Spinner("dots", style="cyan")

    def __enter__(self) -> Self:
        is_drawn = self._console.is_terminal and not self._console.is_dumb_terminal
        if self._console.is_jupyter and not self.quiet:
            self._cell = Cell()
            self._cell.show(self._drawing())
        elif is_drawn and not self.quiet:
            self._live = Live(
                get_renderable=self._drawing,
                console=self._console,
                refresh_per_second=_REDRAWS_PER_S,
            )
            self._live.start(refresh=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._mark = Text.from_markup(_MARKS[self._end if error is None else "failed"])
        if self._cell is not None:
            self._cell.show(self._drawing())
            self._cell = None
        if self._live is not None:
            self._live.stop()
            self._live = None

    def end(self, how: str) -> None:
        """Say how the watching ends: ``stopped``, or ``goes on``; the run is done otherwise."""
        self._end = how

    def update(self, record: BatchRecord) -> None:
        """Take in a batch that ended, and show it."""
        change = self._changes(record)
        before, self._lines = self._lines, record.lines
        self._change = change or self._change
        self._plans = {**self._plans, **{each.component: each.plan for each in record.operators}}
        self.last_batch = record.batch_id
        self.n_batches += record.n_batches
        self.n_rows += record.n_rows
        self.n_kept += record.n_kept
        rate = per_second(record.n_rows, record.seconds) or 0.0
        self._rates = (*self._rates, rate)[-RATE_BATCHES:]
        if self.quiet:
            return
        if self._cell is not None:
            self._cell.show(self._drawing())
            return
        if self._live is not None:
            self._live.refresh()
            return
        line = f"{self.query}: {batch_line(record, before)}"
        line += f"  changed: {change}" if change else ""
        self._console.print(Text(line), soft_wrap=True)

    def _changes(self, record: BatchRecord) -> str:
        """Say which operators had another plan before this batch, and which."""
        changes = []
        for each in record.operators:
            before = self._plans.get(each.component)
            if before is not None and before != each.plan:
                old, _ = change_texts(before, each.plan, SHOWN_NAMES)
                changes.append(f"batch {record.batch_id}, {one_line(each.component)} before: {old}")
        return "; ".join(changes)

    def _drawing(self) -> RenderableType:
        head = Table.grid(padding=(0, 1))
        head.add_column(width=1)
        head.add_column(no_wrap=True, overflow="ellipsis")
        head.add_row(self._mark, Text(self.query, style="bold"))
        return Group(head, Padding(self._labelled(), (0, 0, 0, 2)))

    def _labelled(self) -> Table:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True, style="cyan")
        grid.add_column(overflow="ellipsis")
        for label, line in self._facts():
            grid.add_row(label, Text(line, no_wrap=True, overflow="ellipsis"))
        return grid

    def _facts(self) -> Iterator[tuple[str, str]]:
        """Yield the lines below the query's name, each with its label."""
        if self.n_batches == 0:
            waits = {"done": "waiting for the first batch", "stopped": "stopped in the first batch"}
            yield "rows", waits.get(self._end, "waiting for the first batch")
            if self._end == "done":
                yield "", "Spark starts workers; the first run on a machine also compiles kernels"
            return
        batches = "1 batch" if self.n_batches == 1 else f"{count(self.n_batches)} batches"
        out = f"{count(self.n_kept)} out ({out_of(self.n_kept, self.n_rows)})"
        yield "rows", f"{count(self.n_rows)} in {batches}, {out}"
        yield "speed", f"{count(self._rates[-1])} rows/s  {sparkline(self._rates)}"
        for number, line in enumerate(self._lines):
            yield "" if number else "plan", one_line(line)
        if self._change:
            yield "changed", self._change


def batch_line(record: BatchRecord, before: Sequence[str] = ()) -> str:
    """Say on one line what a batch did, without the lines said of the batch before."""
    parts = [
        f"batch {record.batch_id}",
        f"{count(record.n_rows)} rows in {duration(1e9 * record.seconds)}",
        f"{count(per_second(record.n_rows, record.seconds))} rows/s",
        f"{count(record.n_kept)} out",
        *(one_line(line) for line in record.lines if line not in before),
    ]
    return "  ".join(parts)


def sparkline(values: Sequence[float]) -> str:
    """Return the values as bars from zero to their greatest."""
    top = max(values)
    if top <= 0.0:
        return _BARS[0] * len(values)
    return "".join(_BARS[round(value / top * (len(_BARS) - 1))] for value in values)
