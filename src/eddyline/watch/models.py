"""Models of a stream in words and figures: what segments stand for, and what is kept."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from eddyline.models.view import ModelRecord
from eddyline.watch.formatting import count, percent, size
from eddyline.watch.sections import Facts, Figure, Line, Section, Tile

if TYPE_CHECKING:
    from eddyline.models.view import ModelView
    from eddyline.runtime.records import History
    from eddyline.watch.sections import Part

WORDS = (
    ("Segment", "a polynomial of time that stands for a run of rows of an entity"),
    ("Waiting", "rows that later ones may still join in a segment"),
    ("Dropped", "rows that a declared model predicted as near as they have to be: they make none"),
    ("Broken", "declared models that ended because a row was too far from them"),
    ("Kept", "segments that windows of later results look back at"),
)
"""Meanings of the words of these sections."""


def lines(record: ModelRecord) -> tuple[str, ...]:
    """Return what segments stand for, for the progress."""
    made = f"{count(record.n_rows)} rows in {count(record.n_segments)} segments"
    if record.n_dropped:
        made += f", {percent(record.n_dropped / record.n_rows)} of the rows dropped"
    return (f"{made}; {count(record.n_waiting)} rows waiting, {size(record.n_bytes)}",)


def sections(view: ModelView, history: History) -> list[Section]:
    """Return for people what was fitted, and what is kept."""
    total = view.total
    fitters = ", ".join(f"{name} {count(n)}" for name, n in sorted(total.fitters.items()))
    facts = [
        ("query", view.step),
        (
            "rows",
            f"{count(total.n_rows)} in {count(total.n_segments)} segments, "
            f"{total.rows_per_segment:.1f} rows each",
        ),
        ("fitters", fitters or "none was chosen"),
        ("results", count(view.n_results)),
        (
            "kept",
            f"{count(view.n_waiting)} rows waiting, {count(view.n_kept)} segments, "
            f"{size(view.n_bytes)}",
        ),
    ]
    if view.bounds:
        facts.insert(1, ("bounds", view.bounds))
    if total.n_outside:
        facts.append(
            (
                "outside",
                f"{count(total.n_outside)} rows outside of what was assumed: results of them may "
                "be off by more than their bounds, and their errors say so",
            )
        )
    if total.n_without or total.n_conflicts:
        facts.append(
            (
                "left out",
                f"{count(total.n_without)} rows without a value, {count(total.n_conflicts)} "
                "values that lost to a greater one at the same instant",
            )
        )
    tiles = [
        Tile("rows per segment", total.rows_per_segment, "number"),
        Tile("segments", total.n_segments, "count"),
    ]
    parts: list[Part] = [Facts(tuple(facts))]
    if total.n_dropped:
        share = total.n_dropped / total.n_rows
        facts.append(
            (
                "dropped",
                f"{count(total.n_dropped)} rows, {percent(share)} of all; "
                f"{count(total.n_broken)} models were broken by a row",
            )
        )
        tiles.append(Tile("rows dropped", share, "share"))
        parts = [Facts(tuple(facts)), *_figures(history)]
    return [
        Section("Models", tuple(parts), tuple(tiles)),
        Section("Words of models", (Facts(WORDS),), is_aside=True),
    ]


def _figures(history: History) -> list[Figure]:
    """Return what became of rows over the batches: each batch's share, not that of all so far."""
    points = [
        (batch.batch_id, each)
        for batch in history.batches
        for each in batch.operators
        if isinstance(each, ModelRecord)
    ]
    if len(points) < 2:
        return []
    ids = tuple(batch_id for batch_id, _ in points)[1:]
    dropped, broken = [], []
    for (_, before), (_, now) in itertools.pairwise(points):
        n_rows = now.n_rows - before.n_rows
        dropped.append((now.n_dropped - before.n_dropped) / n_rows if n_rows > 0 else None)
        broken.append(float(now.n_broken - before.n_broken))
    return [
        Figure(
            "Rows dropped, by batch", ids, (Line("share", tuple(dropped)),), "share", is_half=True
        ),
        Figure(
            "Models broken, by batch", ids, (Line("models", tuple(broken)),), "count", is_half=True
        ),
    ]
