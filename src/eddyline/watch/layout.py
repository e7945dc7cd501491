"""Parts that explanations are made of: sections, and the last change of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from eddyline.watch.wording import change_texts, evidence_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from eddyline.runtime.journal import JournalEntry

SAME_WORDS = "the parts are others, or in another order"
"""Said of two plans that differ in what words do not show."""

_INDENT = (0, 0, 0, 2)


def section(title: str, lines: Sequence[RenderableType]) -> list[RenderableType]:
    """Return a title and what stands below it, after an empty line."""
    return [Text(), Text(title, style="bold cyan"), *(Padding(line, _INDENT) for line in lines)]


def last_change(entry: JournalEntry | None) -> list[RenderableType]:
    """Return what the last change of the plan was, if there was one."""
    if entry is None:
        return []
    before, after = change_texts(entry.before, entry.after)
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    if before == after:
        table.add_row("plan", Text(f"{after} ({SAME_WORDS})"))
    else:
        table.add_row("before", Text(before))
        table.add_row("after", Text(after))
    if entry.evidence:
        table.add_row("evidence", Text(evidence_text(entry.evidence)))
    when = f"after batch {entry.batch_id}" if entry.batch_id >= 0 else "in a job of its own"
    return section(f"last change: {entry.component} {entry.event}, {when}", [table])
