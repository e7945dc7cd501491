"""The sections of a report that are about a windowed join.

Names, windows and keys are what users wrote: all of them are escaped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.watch.html import figures
from eddyline.watch.html.parts import colour_key, figure_card, legend, table_section
from eddyline.watch.joins.facts import (
    CACHES,
    INPUTS,
    PROBES,
    cache_rows,
    holding_back,
    input_rows,
    probe_rows,
    waiting,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.joins.view import JoinView
    from eddyline.watch.html.series import Point

_N_TEXTS = 2
"""Columns of each table that are texts: they come first."""

_PREFIX = "join"


def join_sections(
    view: JoinView, points: Sequence[Point], drawn: dict[str, figures.Figure]
) -> list[str]:
    """Return the sections as HTML, those without content left out.

    Args:
        view: the join.
        points: its batches.
        drawn: the figures of the page by name; those of the sections are added.
    """
    parts = [_inputs(view, points, drawn), _pipelines(view)]
    parts += [_caches(view)] if view.caches else []
    return [*parts, legend(_WORDS)]


def _titles(titles: Sequence[str]) -> list[tuple[str, bool]]:
    shown = [title[:1].upper() + title[1:] for title in titles]
    return [(title, at >= _N_TEXTS) for at, title in enumerate(shown)]


def _inputs(view: JoinView, points: Sequence[Point], drawn: dict[str, figures.Figure]) -> str:
    rows = input_rows(view)
    cards = ""
    if points:
        kept, sizes = figures.window_figures(points)
        cards = colour_key(figures.input_slots([each.name for each in view.inputs]))
        cards += (
            f'<div class="pair">{figure_card("Rows in the windows", kept, _PREFIX, drawn)}'
            f"{figure_card('Size of the windows', sizes, _PREFIX, drawn)}</div>"
        )
    note = " ".join(
        ["What arrived, and what the windows hold.", *holding_back(view), *waiting(view)]
    )
    return table_section("Inputs", note, _titles(INPUTS), rows, len(rows), cards)


def _pipelines(view: JoinView) -> str:
    rows = probe_rows(view)
    note = (
        "How the new rows of each input meet the windows of the others, in the order in force. "
        "Counted since the run started."
    )
    return table_section("Pipelines", note, _titles(PROBES), rows, len(rows))


def _caches(view: JoinView) -> str:
    rows = cache_rows(view)
    note = "Joined rows that are kept, so that they need not be found again."
    return table_section("Caches in use", note, _titles(CACHES), rows, len(rows))


_WORDS = (
    ("Window", "the rows of an input that new rows of the others can still meet"),
    ("Joined", "rows that passed the conditions on their input alone and met the windows"),
    ("Late", "rows older than their stream allows; they are kept apart and never joined"),
    ("No time", "rows without an event time, which are in no stream"),
    ("Kept", "rows that are stored, one for each bucket that a row lies in"),
    ("Runs", "sorted files that the rows of a window are in"),
    ("Drops", "share of the sampled rows that find no partner in that window"),
    ("Bucket", "a part of the keys; the rows of a bucket are joined in one task"),
)
"""What the words of these sections mean."""
