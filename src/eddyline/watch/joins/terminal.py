"""A windowed join in words: its windows, its pipelines and its caches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from eddyline.watch.formatting import one_line
from eddyline.watch.joins.facts import (
    ARRIVED,
    CACHES,
    INPUTS,
    KEPT,
    PROBES,
    cache_rows,
    holding_back,
    input_rows,
    probe_rows,
    summary,
    waiting,
)
from eddyline.watch.terminal.layout import FirstThatFits, last_change, rest_of, section, table_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from eddyline.joins.view import JoinView

_N_TEXTS = 2
"""Columns of each table that are texts: they come first."""


def join_in_words(view: JoinView, max_rows: int) -> RenderableType:
    """Return a join in words.

    Args:
        view: the join as it stands.
        max_rows: rows of a table that are shown; the rest is a number.
    """
    parts: list[RenderableType] = [Text(one_line(view.name), style="bold")]
    parts += [Text(line) for line in (*summary(view), *holding_back(view), *waiting(view))]
    parts += section("inputs", [_inputs(view, max_rows)])
    state = "orders are learned" if view.is_adaptive else "orders are fixed"
    if all(len(each.probes) < _N_TEXTS for each in view.pipelines):
        state = "one window each, nothing to order"
    parts += section(f"pipelines: {state}", [_told(PROBES, probe_rows(view), max_rows)])
    if view.caches:
        caches = _told(CACHES, cache_rows(view), max_rows)
        parts += section("caches of joined rows", [caches])
    parts += last_change(view.last_change)
    if view.notes:
        parts += section("notes", [Text(f"• {one_line(note)}") for note in view.notes])
    return Group(*parts)


def _inputs(view: JoinView, max_rows: int) -> RenderableType:
    """Return the inputs as one table, or two where a line is too short for it."""
    rows = input_rows(view)
    n_arrived = _N_TEXTS + len(ARRIVED)
    arrived = [row[:n_arrived] for row in rows]
    kept = [(row[0], *row[n_arrived:]) for row in rows]
    halves = Group(
        _table(INPUTS[:n_arrived], arrived, max_rows),
        Text(),
        _table((INPUTS[0], *KEPT), kept, max_rows, n_texts=1),
    )
    whole = _table(INPUTS, rows, max_rows)
    return FirstThatFits((whole, halves, _list(INPUTS, rows, max_rows)))


def _told(titles: Sequence[str], rows: Sequence[Sequence[str]], max_rows: int) -> RenderableType:
    """Return rows as a table, or one after the other where a line is too short for it."""
    forms = (_table(titles, rows, max_rows), _list(titles, rows, max_rows))
    return FirstThatFits(forms)


def _table(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    max_rows: int,
    n_texts: int = _N_TEXTS,
) -> Table:
    table = table_of(titles, n_texts)
    for row in rows[:max_rows]:
        table.add_row(*map(Text, row))
    return rest_of(table, len(rows), max_rows)


def _list(titles: Sequence[str], rows: Sequence[Sequence[str]], max_rows: int) -> Table:
    """Return the texts of each row, below them its numbers with their titles."""
    table = Table.grid()
    table.add_column(overflow="fold")
    name = ""
    for row in rows[:max_rows]:
        name = row[0] or name
        table.add_row(Text(", ".join((name, *row[1:_N_TEXTS])), style="bold"))
        numbers = zip(titles[_N_TEXTS:], row[_N_TEXTS:], strict=True)
        told = Text(", ".join(f"{title} {number}" for title, number in numbers))
        table.add_row(Padding(told, (0, 0, 0, 2)))
    return rest_of(table, len(rows), max_rows)
