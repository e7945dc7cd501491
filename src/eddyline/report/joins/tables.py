"""What static tables do for a join, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.joins.plan import BUCKETS
from eddyline.report.formatting import clipped, count, finite, percent
from eddyline.report.joins.constraints import NAME_WIDTH

if TYPE_CHECKING:
    from eddyline.joins.view import JoinView


def dropped(view: JoinView) -> list[str]:
    """Say of which streams tables drop rows before the shuffle, and whether that was tried.

    Nothing where tables go to the rows: there is no shuffle then.
    """
    found: list[str] = []
    for each in view.drops if view.way == BUCKETS else ():
        name, tables = (clipped(of, NAME_WIDTH) for of in (each.name, " and ".join(each.tables)))
        if each.is_dropping:
            of_late = "" if finite(each.share) is None else f", {percent(each.share)} of late"
            found.append(
                f"Rows of {name} whose key {tables} has not are dropped before the shuffle: "
                f"{count(each.n_dropped)} so far{of_late}."
            )
        elif finite(each.share) is not None:
            found.append(
                f"Rows of {name} are not filtered by the keys of {tables}: that dropped "
                f"{percent(each.share)} of them, too few."
            )
    return found
