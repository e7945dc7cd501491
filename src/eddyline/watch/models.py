"""Models of a stream in words and figures: what segments stand for, and what is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.watch.formatting import count, size
from eddyline.watch.sections import Facts, Section, Tile

if TYPE_CHECKING:
    from eddyline.models.view import ModelRecord, ModelView

WORDS = (
    ("Segment", "a polynomial of time that stands for a run of rows of an entity"),
    ("Waiting", "rows that later ones may still join in a segment"),
    ("Kept", "segments that windows of later results look back at"),
)
"""Meanings of the words of these sections."""


def lines(record: ModelRecord) -> tuple[str, ...]:
    """Return what segments stand for, for the progress."""
    made = f"{count(record.n_rows)} rows in {count(record.n_segments)} segments"
    return (f"{made}; {count(record.n_waiting)} rows waiting, {size(record.n_bytes)}",)


def sections(view: ModelView) -> list[Section]:
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
    if total.n_without or total.n_conflicts:
        facts.append(
            (
                "left out",
                f"{count(total.n_without)} rows without a value, {count(total.n_conflicts)} "
                "values that lost to a greater one at the same instant",
            )
        )
    tiles = (
        Tile("rows per segment", total.rows_per_segment, "number"),
        Tile("segments", total.n_segments, "count"),
    )
    return [
        Section("Models", (Facts(tuple(facts)),), tiles),
        Section("Words of models", (Facts(WORDS),), is_aside=True),
    ]
