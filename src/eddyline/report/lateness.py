"""The lateness that streams were found to need, in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from eddyline.report.formatting import span
from eddyline.report.sections import Table, columns
from eddyline.state.rows import FOREVER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eddyline.constraints.lateness import LearnedLateness

LEARNED = columns("stream, lateness, to hold, held, measured: count, beyond: count")


def learned_tables(learned: Mapping[str, LearnedLateness]) -> Iterator[Table]:
    """Yield a table of what was learned of streams, if it was of one."""
    rows = tuple(
        (name, said(each), exactly(each.share), exactly(each.held), each.n_rows, each.n_beyond)
        for name, each in learned.items()
    )
    if rows:
        yield Table(LEARNED, rows, "The lateness that is learned, and the rows beyond it.")


def said(learned: LearnedLateness) -> str:
    """Return the bound in force; any row is in time before something is known."""
    return "any, so far" if learned.bound == FOREVER else span(learned.bound)


def exactly(share: float) -> str:
    """Write a share to a thousandth of a per cent; ``?`` if nothing was measured.

    >>> exactly(0.9999), exactly(float("nan"))
    ('99.990 %', '?')
    """
    return "?" if math.isnan(share) else f"{share:.3%}".replace("%", " %")
