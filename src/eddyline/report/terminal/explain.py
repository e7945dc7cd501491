"""Sections in words: the plan in force, and why it came about."""

from __future__ import annotations

from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text as Words

from eddyline.report.formatting import UNKNOWN, clipped, count, one_line, printable, value_in
from eddyline.report.sections import Facts, Figure, Items, Table, Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import ConsoleOptions, JustifyMethod, RenderResult

    from eddyline.report.sections import Column, Part, Section

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
    return [Words(), title, *(Padding(each, _INDENT) for each in shown)]


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

    def _least_width(self, at: int) -> int:
        """Return the characters that a column needs; only long texts may lose some."""
        column = self.columns[at]
        widest = max((cell_len(row[at]) for row in self.rows), default=0)
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
