"""Parts that reports are made of: sections with a table, cards with a figure. Texts are escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from eddyline.watch.formatting import clipped, count
from eddyline.watch.html.figures import MUTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eddyline.watch.html.figures import Figure

MAX_ROWS = 30
"""Rows of a table: of more, the rest is a number."""

Title = tuple[str, bool]
"""The title of a column, and whether it holds numbers."""


def table_section(
    title: str,
    note: str,
    titles: Sequence[Title],
    rows: Iterable[Sequence[str]],
    n_rows: int,
    folded: str = "",
) -> str:
    """Return a section with one table; only its note if the table has no row.

    Args:
        title: of the section.
        note: what stands above the table.
        titles: of the columns.
        rows: of the table, as texts.
        n_rows: how many there are.
        folded: HTML below the table.
    """
    if n_rows == 0:
        head = f'<h2>{escape(title)}</h2><p class="note">{escape(note)}</p>'
        return f"<section>{head}{folded}</section>"
    shown = [row for row, _ in zip(rows, range(MAX_ROWS), strict=False)]
    rest = f" Shown are {count(len(shown))} of {count(n_rows)}." if n_rows > len(shown) else ""
    are_numbers = [number for _, number in titles]
    head = _row("th", [name for name, _ in titles], are_numbers)
    body = "\n".join(_row("td", row, are_numbers) for row in shown)
    return (
        f'<section><h2>{escape(title)}</h2><p class="note">{escape(note + rest)}</p>'
        f'<div class="card scroll"><table><thead>{head}</thead>'
        f"<tbody>{body}</tbody></table></div>{folded}</section>"
    )


def _row(tag: str, texts: Sequence[str], are_numbers: Sequence[bool]) -> str:
    cells = (
        f'<{tag} class="{"number" if is_number else "text"}">{escape(text)}</{tag}>'
        for text, is_number in zip(texts, are_numbers, strict=True)
    )
    return f"<tr>{''.join(cells)}</tr>"


def figure_card(title: str, figure: Figure | None, prefix: str, drawn: dict[str, Figure]) -> str:
    """Return a figure's place on the page, and remember the figure for drawing.

    Args:
        title: of the card.
        figure: None if nothing was measured, which the card says.
        prefix: makes the figure's name on the page its own.
        drawn: the figures of the page by name; this one is added.
    """
    if figure is None:
        inner = '<p class="note">Nothing was measured.</p>'
    else:
        name = f"{prefix}-{figure['name']}"
        drawn[name] = figure
        height = figure["layout"]["height"]
        inner = f'<div class="figure" id="{name}" style="height:{height}px"></div>'
    return f'<div class="card"><h3>{escape(title)}</h3>{inner}</div>'


def colour_key(slots: Mapping[str, int]) -> str:
    """Return the meaning of the colours, for screens too narrow for labels on the lines.

    Args:
        slots: the colour slot of each name; muted lines are left out.
    """
    items = (
        f'<li><i style="background:var(--s{slot})"></i>{escape(clipped(name))}</li>'
        for name, slot in slots.items()
        if slot != MUTED
    )
    return f'<ul class="key">{"".join(items)}</ul>'


def legend(words: Sequence[tuple[str, str]]) -> str:
    """Return what words mean, folded up."""
    entries = "".join(f"<dt>{escape(word)}</dt><dd>{escape(said)}</dd>" for word, said in words)
    return (
        "<section><details><summary>What the words mean</summary>"
        f'<div class="card"><dl class="settings">{entries}</dl></div></details></section>'
    )
