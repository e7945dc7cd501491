"""Sections about alarms: shared work and its estimated cost."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from eddyline.report.decisions import last_change
from eddyline.report.formatting import clipped, counted
from eddyline.report.sections import Facts, Section, Table, Tile, columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.alarms.loop import AlarmRecord, TemplateView
    from eddyline.runtime.records import History

CHANGES = ("sharing", "order")
"""Events of the journal that are another plan."""

TEMPLATES = columns(
    "template, alarms: count, solved, asks in this order, estimated: ns, took: ns, "
    "estimated to hold: share, held: share"
)

MOST = 30
"""Templates in a table: those that take the most time."""

WORDS = (
    ("Template", "alarms that differ in constants alone, which are question marks in its name"),
    (
        "Covered",
        "what the loosest constants leave is computed once, and sorted constants say which alarms "
        "are met",
    ),
    ("Union", "each alarm is asked its first comparison alone; the others are computed once"),
    ("Unshared", "each alarm alone"),
    ("Estimated", "of the next batch, for each segment, put right by how far estimates were off"),
    ("Held", "ranges that an alarm had for each segment, on average"),
)
"""Meanings of the words of these sections."""


def lines(record: AlarmRecord) -> tuple[str, ...]:
    """Return what alarms share, for the progress."""
    if not record.ways:
        return ()
    n_templates = sum(record.ways.values())
    ways = ", ".join(f"{n} {way}" for way, n in Counter(record.ways).most_common())
    return (f"{counted(record.n_alarms, 'alarm')} in {counted(n_templates, 'template')}: {ways}",)


def sections(views: Sequence[TemplateView], history: History) -> list[Section]:
    """Return for people how alarms are solved, and how near estimates were."""
    if not views:
        return []
    rows = tuple(
        (
            clipped(view.text, 60),
            view.n_alarms,
            view.sharing,
            clipped(" then ".join(view.order), 60),
            None if view.estimate is None else view.estimate.value,
            view.ns or None,
            None if view.expected is None else view.expected.value,
            view.held,
        )
        for view in views[:MOST]
    )
    note = "" if len(views) <= MOST else f"The {MOST} that take the most time, of {len(views)}."
    tiles = (
        Tile("alarms", sum(view.n_alarms for view in views), "count"),
        Tile("templates", len(views), "count"),
    )
    return [
        Section("Alarms", (Table(TEMPLATES, rows, note),), tiles),
        *last_change(history.last(*CHANGES, components=("alarms",))),
        Section("Words of alarms", (Facts(WORDS),), is_aside=True),
    ]
