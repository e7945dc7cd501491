"""Input of a query that has arrived and is not processed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Backlog:
    """Input that waits, as far as it is known."""

    n_rows: int | None = None
    """Rows; None where they are not known."""
    is_estimate: bool = False
    """Whether the rows are estimated by the size of files."""
    n_files: int | None = None
    """Files that wait; None for a source that has none."""
    why: str = ""
    """Why the rows are not known; empty if they are."""


def whole(backlogs: Sequence[Backlog]) -> Backlog:
    """Return the backlog of all sources of a query; its rows are known if those of each are.

    >>> whole([Backlog(3), Backlog(4, is_estimate=True, n_files=1)])
    Backlog(n_rows=7, is_estimate=True, n_files=1, why='')
    """
    files = [each.n_files for each in backlogs if each.n_files is not None]
    rows = [each.n_rows for each in backlogs if each.n_rows is not None]
    return Backlog(
        sum(rows) if rows and len(rows) == len(backlogs) else None,
        any(each.is_estimate for each in backlogs),
        sum(files) if files else None,
        next((each.why for each in backlogs if each.why), ""),
    )
