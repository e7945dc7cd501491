"""Sections about windowed aggregates: windows, cells, kept state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.aggregates.loop import AggregateRecord
from eddyline.aggregates.plan import COMPONENT
from eddyline.report.decisions import last_change
from eddyline.report.formatting import IN_FORCE, Wording, count, finite, size
from eddyline.report.sections import (
    Entity,
    Facts,
    Figure,
    Line,
    Section,
    Table,
    Tile,
    columns,
    notes,
)
from eddyline.report.series import records_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.aggregates.loop import AggregateView
    from eddyline.report.formatting import Wordings
    from eddyline.report.sections import Part
    from eddyline.runtime.records import History

CHANGES = ("place",)
"""Events of the journal that are another plan."""

PLANS = {
    "early": "rows become cells before they are shuffled, and cells are shuffled",
    "late": "rows are shuffled, and become cells once, where their group is",
    "driver": "rows become cells where they are read, and the driver answers the cells",
    "": "rows are answered one by one",
}

WORK = columns(
    "batches, rows: count, cells: count, rows per cell: number, read: count, results: count"
)

WORDS = (
    (
        "Cell",
        "the partial aggregates of a group in a slice of time, of which windows are made",
    ),
    ("Read", "cells of batches before that windows of the batch reached back to"),
    ("Waiting", "cells and rows of which event time has not passed the end yet"),
    ("Bucket", "a part of the groups, whose cells are answered in one task"),
)
"""Meanings of the words of these sections."""


def in_words(plan: str) -> str:
    """Write a plan: its name, by which it is pinned, and what it means.

    >>> in_words("late")
    'late: rows are shuffled, and become cells once, where their group is'
    """
    return ": ".join(filter(None, (plan, PLANS.get(plan))))


PLACE = Wording(in_words)

WORDINGS: Wordings = {("aggregate", event): PLACE for event in ("place", "pin", IN_FORCE)}


def lines(record: AggregateRecord) -> tuple[str, ...]:
    """Return what is kept, for the progress."""
    kept = f"cells {count(record.n_kept)}, {size(record.n_bytes)}"
    return (f"{kept}; {count(record.profile.n_results)} results",)


def sections(view: AggregateView, history: History) -> list[Section]:
    """Return for people what an aggregate does, and what it did."""
    facts = [
        ("windows", "; ".join(view.windows)),
        ("groups", ", ".join(view.groups) or "all rows are one group"),
        ("aggregates", ", ".join(view.calls) or "none: what is distinct"),
        ("plan", PLANS[view.plan]),
        (
            "kept",
            f"{count(view.n_kept)} cells, {count(view.n_waiting)} waiting, "
            f"{size(view.n_bytes)} in {count(view.n_files)} files",
        ),
        ("buckets", _buckets(view)),
    ]
    rows = tuple(
        (
            name,
            profile.n_rows,
            profile.n_cells,
            finite(profile.rows_per_cell),
            profile.n_read,
            profile.n_results,
        )
        for name, profile in (("newest", view.newest), ("all", view.total))
        if profile.n_rows
    )
    tiles = (
        Tile("Rows per cell", finite(view.newest.rows_per_cell), "number"),
        Tile("Cells kept", view.n_kept, "count"),
    )
    parts: list[Part] = [Facts(tuple(facts)), Table(WORK, rows), *_figures(history)]
    return [
        Section("Aggregates", tuple(parts), tiles, wordings=WORDINGS, entities=_entities(view)),
        *last_change(history.last(*CHANGES, components=("aggregate",)), WORDINGS),
        Section("Words", (Facts(WORDS),), is_aside=True),
        *notes(view.notes),
    ]


def _entities(view: AggregateView) -> tuple[Entity, ...]:
    """Return what the graph of the plan shows of an aggregate: exchange and windows."""
    keys = ("groups", ", ".join(view.groups) or "all rows are one group")
    exchange = (keys, ("buckets", _buckets(view)), ("plan", PLANS[view.plan]))
    windows = "; ".join(view.windows)
    kept = (("windows", windows), ("cells kept", count(view.n_kept)), ("size", size(view.n_bytes)))
    return (
        Entity("exchange", "buckets", COMPONENT, exchange),
        Entity("window", windows, COMPONENT, kept),
    )


def _buckets(view: AggregateView) -> str:
    fullest = finite(view.fullest)
    if fullest is None or view.n_buckets == 1:
        return count(view.n_buckets)
    return f"{count(view.n_buckets)}, the fullest has {fullest:.1f} × the mean of new cells"


def _figures(history: History) -> Sequence[Figure]:
    """Return what was kept and given over the batches of a run."""
    points = records_of(history.batches, AggregateRecord)
    if len(points) < 2:
        return []
    ids = tuple(batch.batch_id for batch, _ in points)
    kept = Line("cells kept", tuple(float(record.n_kept) for _, record in points))
    results = tuple(record.profile.n_results / batch.n_batches for batch, record in points)
    line = Line("results", results)
    return [
        Figure("Cells kept, by batch", ids, (kept,), "count", is_half=True),
        Figure("Results, by batch", ids, (line,), "count", is_half=True),
    ]
