"""The numbers at the top of a report."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from eddyline.watch.formatting import (
    count,
    duration,
    per_second,
    percent,
    ratio,
    saving_text,
    significant,
    size,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.watch.html.series import BlockSeries, RunTotals

Tile = tuple[str, str, str]
"""A name, its number, a detail."""


def filter_tiles(totals: RunTotals) -> list[Tile]:
    """Return the numbers of a run of filters or rules."""
    per_row = ratio(totals.n_evaluations, totals.n_rows)
    kept = percent(ratio(totals.n_kept, totals.n_rows))
    tiles = [*_input_tiles(totals), ("Rows kept", count(totals.n_kept), kept), _time_tile(totals)]
    if totals.n_evaluations and per_row is not None:
        detail = f"{significant(per_row)} per row"
        tiles.append(("Evaluations", count(totals.n_evaluations), detail))
    return tiles


def join_tiles(totals: RunTotals) -> list[Tile]:
    """Return the numbers of a run of a join."""
    per_row = ratio(totals.n_kept, totals.n_rows)
    results = "" if per_row is None else f"{significant(per_row)} per row"
    late = percent(ratio(totals.n_late, totals.n_rows))
    tiles = [*_input_tiles(totals), ("Results", count(totals.n_kept), results)]
    tiles += [("Late rows", count(totals.n_late), late), _time_tile(totals)]
    if (newest := totals.newest_join) is not None:
        held = count(sum(newest.n_kept)), size(sum(newest.n_bytes))
        tiles.append(("Rows in windows", *held))
    return tiles


def _input_tiles(totals: RunTotals) -> list[Tile]:
    rate = count(per_second(totals.n_rows, totals.seconds))
    return [
        ("Batches", count(totals.n_batches), ""),
        ("Rows in", count(totals.n_rows), f"{rate} per second"),
    ]


def _time_tile(totals: RunTotals) -> Tile:
    return "Time in batches", duration(1e9 * totals.seconds), ""


def cost_tiles(blocks: Sequence[BlockSeries]) -> list[Tile]:
    """Return what a row costs in each block, where that is known."""
    return [
        (
            f"Cost per row, {series.component}",
            duration(series.mean_cost_ns),
            saving_text(series.mean_cost_ns, series.mean_as_written_ns),
        )
        for series in blocks
        if series.mean_cost_ns is not None
    ]


def tile_list(tiles: Sequence[Tile]) -> str:
    """Return tiles as HTML."""
    cells = (
        f'<div class="card"><dt>{escape(name)}</dt><dd class="value">{escape(value)}</dd>'
        f'<dd class="detail">{escape(detail)}</dd></div>'
        for name, value, detail in tiles
    )
    return f'<dl class="tiles">{"".join(cells)}</dl>'
