"""Parts that explanations are made of: sections, and the last change of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from eddyline.watch.formatting import change_texts, evidence_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from eddyline.runtime.journal import JournalEntry

SAME_WORDS = "the parts are others, or in another order"
"""Said of two plans that differ in what words do not show."""

_INDENT = (0, 0, 0, 2)

_ANY_WIDTH = 10_000
"""More characters than a line needs."""


def section(title: str, lines: Sequence[RenderableType]) -> list[RenderableType]:
    """Return a title and what stands below it, after an empty line."""
    return [Text(), Text(title, style="bold cyan"), *(Padding(line, _INDENT) for line in lines)]


@dataclass(frozen=True, slots=True)
class FirstThatFits:
    """Several forms of the same, of which the first is shown that fits a line; else the last."""

    forms: tuple[RenderableType, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        free = options.update_width(_ANY_WIDTH)
        for form in self.forms[:-1]:
            if console.measure(form, options=free).maximum <= options.max_width:
                yield form
                return
        yield self.forms[-1]


def table_of(titles: Sequence[str], texts: int) -> Table:
    """Return an empty table, of which the first columns are texts and may shrink first."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for at, title in enumerate(titles):
        table.add_column(
            title, justify="left" if at < texts else "right", no_wrap=at > 0, min_width=len(title)
        )
    return table


def rest_of(table: Table, n_all: int, max_rows: int) -> Table:
    """Return the table with a last row that says how many are not shown, if there are such."""
    if n_all > max_rows:
        table.add_row(Text(f"… {n_all - max_rows:,} more", style="dim"))
    return table


def last_change(entry: JournalEntry | None) -> list[RenderableType]:
    """Return what the last change of the plan was, if there was one."""
    if entry is None:
        return []
    before, after = change_texts(entry.before, entry.after)
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    if before == after and entry.before is not None:
        table.add_row("plan", Text(f"{after} ({SAME_WORDS})"))
    elif before != after:
        table.add_row("before", Text(before))
        table.add_row("after", Text(after))
    if entry.evidence:
        table.add_row("evidence", Text(evidence_text(entry.evidence)))
    when = f"after batch {entry.batch_id}" if entry.batch_id >= 0 else "in a job of its own"
    return section(f"last change: {entry.component} {entry.event}, {when}", [table])
