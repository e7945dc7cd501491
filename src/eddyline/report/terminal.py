"""Explanations and progress for terminals, logs and notebooks. It names no operator.

``explain`` writes sections in words. ``ProgressLine`` shows how a run goes: on a terminal and in a
notebook it redraws a few lines in place; anywhere else (a file, a pipe) each batch is one plain
line without control codes.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from importlib import import_module
from io import StringIO
from typing import TYPE_CHECKING, Any, Self

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.spinner import Spinner
from rich.table import Table as Grid
from rich.text import Text as Words

from eddyline.report.formatting import (
    UNKNOWN,
    change_texts,
    clipped,
    count,
    counted,
    duration,
    one_line,
    out_of,
    printable,
    ratio,
    value_in,
)
from eddyline.report.sections import Facts, Figure, Items, Table, Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

    from rich.console import ConsoleOptions, JustifyMethod, RenderResult

    from eddyline.report.sections import Column, Part, Section
    from eddyline.runtime.records import BatchRecord


MAX_ROWS = 20
"""Rows of a table that are shown unless told otherwise."""

MAX_ITEMS = 10
"""Items that are shown; the rest is a number."""

_TEXT_WIDTH = 60
"""Most characters of a text in a table."""

_LEAST_WIDTH = 24
"""Characters that a longer text in a table keeps; a line too short for that has no table."""

_GAP = 3
"""Characters between two columns."""

_INDENT = (0, 0, 0, 2)

_BRANCHES = " │├└─"
"""Characters before the text of a step."""


def explain(
    title: str,
    sections: Sequence[Section],
    *,
    steps: Sequence[str] = (),
    width: int = 100,
    max_rows: int = MAX_ROWS,
) -> str:
    """Say in words how a query is run, and on what evidence: its steps, then its sections.

    Lines have ``width`` characters, and tables ``max_rows`` rows; of the rest there is the number.
    The text ends in a line break.
    """
    console = Console(
        file=StringIO(),
        width=width,
        force_terminal=False,
        force_jupyter=False,
        color_system=None,
        highlight=False,
        markup=False,
        emoji=False,
    )
    with console.capture() as capture:
        console.print(Words(one_line(title)))
        for step in steps:
            console.print(_step(printable(step)))
        for section in sections:
            console.print(Group(*_section(section, max_rows)))
    return "".join(line.rstrip() + "\n" for line in capture.get().splitlines())


def _step(line: str) -> RenderableType:
    """Return a line of a tree; where it is too long, it goes on below its text."""
    text = line.lstrip(_BRANCHES)
    if text == line:
        return Words(line)
    grid = Grid.grid()
    grid.add_column(no_wrap=True)
    grid.add_row(Words(line.removesuffix(text)), Words(text))
    return grid


def _section(section: Section, max_rows: int) -> list[RenderableType]:
    """Return a title and what stands below it, after an empty line; nothing if it has no words."""
    parts = [part for part in section.parts if not isinstance(part, Figure)]
    if section.is_aside or not parts:
        return []
    shown: list[RenderableType] = []
    for before, part in zip([None, *parts], parts, strict=False):
        # Two tables in a row need to be told apart.
        if isinstance(part, Table) and isinstance(before, Table):
            shown.append(Words())
        shown += _part(part, max_rows)
    if not section.title:
        return shown
    title = Words(one_line(section.title))
    return [Words(), title, *(Padding(item, _INDENT) for item in shown)]


def _part(part: Part, max_rows: int) -> list[RenderableType]:
    if isinstance(part, Text):
        return [Words(one_line(part.text))]
    if isinstance(part, Items):
        texts = [Words(f"• {one_line(text)}") for text in part.texts[:MAX_ITEMS]]
        return [*texts, *_rest(len(part.texts), MAX_ITEMS)]
    if isinstance(part, Facts):
        return [_facts(part)]
    if isinstance(part, Table):
        rows = tuple(tuple(_cells(part, row)) for row in part.rows[:max_rows])
        return [_Fitting(part.columns, rows), *_rest(len(part.rows), max_rows)]
    return []


def _rest(n_all: int, n_shown: int) -> list[Words]:
    """Return the number of those that are not shown, if there are such."""
    return [Words(f"… {count(n_all - n_shown)} more")] if n_all > n_shown else []


def _facts(facts: Facts) -> Grid:
    grid = Grid.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column()
    for name, text in facts.pairs:
        grid.add_row(Words(one_line(name)), Words(one_line(text)))
    return grid


def _cells(table: Table, row: Sequence[object]) -> Iterator[str]:
    for column, value in zip(table.columns, row, strict=True):
        yield clipped(value_in(column.unit, value), _TEXT_WIDTH)


@dataclass(frozen=True, slots=True)
class _Fitting:
    """A table where the line has room for it, else its rows one after the other."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = list(map(self._least_width, range(len(self.columns))))
        is_fitting = sum(widths) + _GAP * (len(widths) - 1) <= options.max_width
        yield self._table(widths) if is_fitting else self._list()

    def _least_width(self, place: int) -> int:
        """Return the characters that a column needs; only long texts may lose some."""
        column = self.columns[place]
        widest = max((cell_len(row[place]) for row in self.rows), default=0)
        least = min(widest, _LEAST_WIDTH) if column.unit == "text" else widest
        return max(least, cell_len(column.title))

    def _table(self, widths: Sequence[int]) -> Grid:
        grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for column, width in zip(self.columns, widths, strict=True):
            # Only texts may shrink: rich takes width from columns that may wrap first.
            is_text = column.unit == "text"
            side: JustifyMethod = "left" if is_text else "right"
            grid.add_column(column.title, justify=side, no_wrap=not is_text, min_width=width)
        for row in self.rows:
            grid.add_row(*map(Words, row))
        return grid

    def _list(self) -> Grid:
        """Return the texts of each row, below them its numbers with their titles."""
        grid = Grid.grid()
        grid.add_column(overflow="fold")
        for row in self.rows:
            cells = list(zip(self.columns, row, strict=True))
            texts = [cell for column, cell in cells if column.unit == "text"]
            numbers = [
                f"{column.title} {cell}"
                for column, cell in cells
                if column.unit != "text" and cell != UNKNOWN
            ]
            grid.add_row(Words(", ".join(texts)))
            grid.add_row(Padding(Words(", ".join(numbers)), _INDENT))
        return grid


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
        self._mark = Words.from_markup(_MARKS[self._end if error is None else "failed"])
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
        self._plans = {
            **self._plans,
            **{part.component: part.plan for part in record.operators},
        }
        self.last_batch = record.batch_id
        self.n_batches += record.n_batches
        self.n_rows += record.n_rows
        self.n_kept += record.n_kept
        rate = ratio(record.n_rows, record.seconds) or 0.0
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
        self._console.print(Words(line), soft_wrap=True)

    def _changes(self, record: BatchRecord) -> str:
        """Say which operators had another plan before this batch, and which."""
        changes = []
        for part in record.operators:
            before = self._plans.get(part.component)
            if before is not None and before != part.plan:
                old, _ = change_texts(before, part.plan, SHOWN_NAMES)
                changes.append(f"batch {record.batch_id}, {one_line(part.component)} before: {old}")
        return "; ".join(changes)

    def _drawing(self) -> RenderableType:
        head = Grid.grid(padding=(0, 1))
        head.add_column(width=1)
        head.add_column(no_wrap=True, overflow="ellipsis")
        head.add_row(self._mark, Words(self.query, style="bold"))
        return Group(head, Padding(self._labelled(), (0, 0, 0, 2)))

    def _labelled(self) -> Grid:
        grid = Grid.grid(padding=(0, 2))
        grid.add_column(no_wrap=True, style="cyan")
        grid.add_column(overflow="ellipsis")
        for label, line in self._facts():
            grid.add_row(label, Words(line, no_wrap=True, overflow="ellipsis"))
        return grid

    def _facts(self) -> Iterator[tuple[str, str]]:
        """Yield the lines below the query's name, each with its label."""
        if self.n_batches == 0:
            waits = {"done": "waiting for the first batch", "stopped": "stopped in the first batch"}
            yield "rows", waits.get(self._end, "waiting for the first batch")
            if self._end == "done":
                yield "", "Spark starts workers; the first run on a machine also compiles kernels"
            return
        out = f"{count(self.n_kept)} out ({out_of(self.n_kept, self.n_rows)})"
        batches = counted(self.n_batches, "batch", "batches")
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
        f"{count(ratio(record.n_rows, record.seconds))} rows/s",
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


CELL_WIDTH = 100
"""Characters of a line."""


class Cell:
    """What a cell shows, in IPython: its kernels update outputs that have an identity."""

    def __init__(self) -> None:
        self._display = import_module("IPython.display")
        self._handle: Any = None

    def show(self, drawing: RenderableType) -> None:
        """Show a drawing in place of the one before."""
        shown = self._display.HTML(f"<pre>{html.escape(_drawn_text(drawing))}</pre>")
        if self._handle is None:
            self._handle = self._display.display(shown, display_id=True)
        else:
            self._handle.update(shown)


def _drawn_text(drawing: RenderableType) -> str:
    console = Console(file=StringIO(), width=CELL_WIDTH, force_jupyter=False, force_terminal=False)
    with console.capture() as captured:
        console.print(drawing)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())
