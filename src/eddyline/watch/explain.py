"""A conjunction, a set of rules or a join in words: the plan in force, and why it came about."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from eddyline.joins.view import JoinView
from eddyline.rules.view import RuleView
from eddyline.watch.filters.facts import BlockFacts, FilterFacts, block_facts, view_facts
from eddyline.watch.formatting import (
    clipped,
    cost_text,
    count,
    duration,
    one_line,
    order_text,
    percent,
)
from eddyline.watch.joins.facts import join_facts
from eddyline.watch.joins.terminal import join_in_words
from eddyline.watch.rules.terminal import rules_in_words
from eddyline.watch.terminal.layout import last_change, section

if TYPE_CHECKING:
    from eddyline.filters.binding import Pinned
    from eddyline.runtime.records import FilterView

MAX_FILTERS = 20
"""Filters of a block that a table shows unless told otherwise."""

_CLASS_WIDTH = 60
"""Most characters that say which rows are of a class."""


def explain(
    view: FilterView | RuleView | JoinView,
    *,
    width: int = 100,
    color: bool = False,
    max_filters: int = MAX_FILTERS,
) -> str:
    """Say in words how a conjunction, a set of rules or a join is run, and on what evidence.

    Args:
        view: the conjunction, the rules or the join as they stand.
        width: characters per line.
        color: whether the text carries terminal colours.
        max_filters: rows of a table that are shown (filters of a block); the rest is a number.

    Returns:
        Lines of text that end in a line break.
    """
    console = Console(
        file=StringIO(),
        width=width,
        force_terminal=color,
        force_jupyter=False,
        color_system="truecolor" if color else None,
        highlight=False,
        markup=False,
        emoji=False,
    )
    with console.capture() as capture:
        if isinstance(view, RuleView):
            console.print(rules_in_words(view, max_filters))
        elif isinstance(view, JoinView):
            console.print(join_in_words(view, max_filters))
        else:
            console.print(_whole(view, max_filters))
    return "".join(line.rstrip() + "\n" for line in capture.get().splitlines())


def explain_json(view: FilterView | JoinView) -> dict[str, Any]:
    """Return what ``explain`` says as plain values, None for what is not known."""
    return join_facts(view) if isinstance(view, JoinView) else view_facts(view)


def _whole(view: FilterView, max_filters: int) -> RenderableType:
    parts: list[RenderableType] = [Text(one_line(view.name), style="bold")]
    for block in view.blocks:
        parts += _block(block_facts(block), max_filters)
    if not view.blocks:
        parts += [Text(), Text("No filter of it has an order to learn.")]
    parts += _pinned(view.pinned)
    parts += last_change(view.last_change)
    said = {block.note for block in view.blocks}
    if notes := [note for note in view.notes if note not in said]:
        parts += section("notes", [Text(f"• {one_line(note)}") for note in notes])
    return Group(*parts)


def _block(facts: BlockFacts, max_filters: int) -> list[RenderableType]:
    state = "order is learned" if facts.is_adaptive else "order is fixed"
    if len(facts.filters) == 1:
        state = "one filter, nothing to order"
    lines: list[RenderableType] = [Text(one_line(facts.note))] if facts.note else []
    lines.append(_order_table(facts, max_filters))
    lines += [Text(line) for line in _summary(facts)]
    lines += _routes(facts)
    return section(f"{facts.component} block: {state}", lines)


def _order_table(facts: BlockFacts, max_filters: int) -> Table:
    titles = _TITLES if facts.has_evidence else _TITLES[:3]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for title in titles:
        # The names alone may shrink: rich takes width from columns that may wrap first.
        is_name = title == "filter"
        table.add_column(title, justify="left" if is_name else "right", no_wrap=not is_name)
    for row in facts.filters[:max_filters]:
        table.add_row(*_cells(row)[: len(titles)])
    if (rest := len(facts.filters) - max_filters) > 0:
        table.add_row("", "", Text(f"… {rest:,} more", style="dim"))
    return table


_TITLES = ("#", "written", "filter", "drops", "reached by", "cost each", "of the cost")


def _cells(row: FilterFacts) -> list[Text]:
    return [
        Text(str(row.position + 1)),
        Text(str(row.written_position + 1)),
        _label(row.filter_id, row.text),
        Text(percent(row.drop_frac_given_prefix)),
        Text(percent(row.reach_frac)),
        Text(duration(row.cost_ns)),
        Text(percent(row.cost_frac)),
    ]


def _label(name: str, text: str) -> Text:
    """Return the name of a predicate, and what it is where the name does not say it."""
    label = Text(one_line(name), no_wrap=True, overflow="ellipsis")
    if text != name:
        label.append(f"  {one_line(text)}", style="dim")
    return label


def _summary(facts: BlockFacts) -> list[str]:
    """Return the sentences below the table of a block."""
    lines = [_evidence(facts)]
    if facts.cost_ns is not None:
        lines.append(f"Expected cost {cost_text(facts.cost_ns, facts.as_written_ns)}.")
        if facts.is_bound:
            lines.append("The cost as written is an upper bound: profiling skips some outcomes.")
    elif facts.has_evidence:
        lines.append("No cost has been measured yet.")
    if facts.n_rows is not None:
        lines.append(_work(facts))
    lines += [
        f"Set aside: {one_line(row.filter_id)} raised on {count(row.n_raised)} rows."
        for row in facts.filters
        if row.n_raised > 0
    ]
    return lines


def _routes(facts: BlockFacts) -> list[RenderableType]:
    """Return which classes of rows have orders of their own."""
    if not facts.routes:
        return [Text(f"Routing {one_line(facts.route_note)}.")] if facts.route_note else []
    table = Table.grid(padding=(0, 2))
    for justify in ("right", "left", "left"):
        table.add_column(justify=justify)
    for route in facts.routes:
        names = order_text(route.order)
        table.add_row(Text(percent(route.share)), Text(clipped(route.rows, _CLASS_WIDTH)), names)
    by = ", ".join(map(one_line, facts.routed_by))
    return [Text(), Text(f"Classes of rows by {by}, each in its own order:"), table]


def _evidence(facts: BlockFacts) -> str:
    if not facts.has_evidence:
        return "No evidence yet: no row has been profiled."
    if facts.n_tuples == 0:
        return "Evidence: every profiled row passed."
    return f"Evidence: the newest {count(facts.n_tuples)} profiled rows that a filter dropped."


def _work(facts: BlockFacts) -> str:
    line = f"{count(facts.n_rows)} rows reached this block"
    if facts.n_evaluations is not None:
        line += f", {count(facts.n_evaluations)} evaluations made"
    if facts.profiling_frac is not None:
        line += f", {percent(facts.profiling_frac)} of them for profiling"
    return line + "."


def _pinned(pinned: tuple[Pinned, ...]) -> list[RenderableType]:
    if not pinned:
        return []
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column()
    for item in pinned:
        table.add_row(_label(item.name, item.text), Text(one_line(item.reason)))
    return section("pinned: keeps its place", [table])
