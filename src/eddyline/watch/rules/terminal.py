"""A set of rules in words: how each is found, what that costs, and which rules are worth a look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from eddyline.watch.formatting import (
    UNKNOWN,
    clipped,
    count,
    duration,
    finite,
    one_line,
    percent,
    significant,
)
from eddyline.watch.rules.facts import dead_rules, natives_title, rules_met_in_vain
from eddyline.watch.rules.names import headline, named, skipped_name
from eddyline.watch.terminal.layout import last_change, rest_of, section, table_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from eddyline.rules.view import RuleBlockView, RuleView, TestView

MAX_ARROWS = 10
"""Sentences about single regions that are shown of a block."""

MAX_SKIPPED = 5
"""Skipped rules that are shown with their reasons."""

MAX_NATIVES = 5
"""Tests that are left to Spark and shown with their reasons."""

MAX_DEAD = 10
"""Rules without a match that are named."""

_TEXT_WIDTH = 60
"""Most characters of a test, a reason or a rule."""

_USER_WIDTH = 40
"""Most characters of a rule beside its test."""


def rules_in_words(view: RuleView, max_rows: int) -> RenderableType:
    """Return a set of rules in words.

    Args:
        view: the rules as they stand.
        max_rows: rows of a table that are shown; the rest is a number.
    """
    parts: list[RenderableType] = [Text(one_line(view.name), style="bold")]
    parts += [Text(line) for line in summary(view)]
    parts += _skipped(view)
    if view.constructs:
        parts += section("attributes", [_attributes(view, max_rows)])
    for block in view.blocks:
        parts += _block(block)
    parts += _natives(view)
    parts += _tests(view, "tests that Python decides", _ASKED, view.tests, max_rows)
    met = [each for each in view.patterns if each.n_rows]
    parts += _tests(view, "patterns met most often", _MET, met, max_rows)
    parts += _rules(view, max_rows)
    parts += last_change(view.last_change)
    if view.notes:
        parts += section("notes", [Text(f"• {one_line(note)}") for note in view.notes])
    return Group(*parts)


def summary(view: RuleView) -> list[str]:
    """Return in sentences how the rules are found, and what is known of them."""
    if view.n_rules == 0:
        return ["No rule runs."]
    rules = "1 rule" if view.n_rules == 1 else f"{count(view.n_rules)} rules"
    how = "learned from rows" if view.is_measured else "guessed, no rows were measured yet"
    if not view.is_adaptive:
        how = "fixed: adaptation is switched off"
    lines = [f"{rules}: {view.plan} ({how})."]
    before = _before(view)
    if view.n_rows == 0:
        return [*lines, f"No row has been evaluated{before or ' yet'}."]
    known = (
        f"{count(view.n_rows)} rows evaluated{before}, "
        f"{percent(view.n_dropped / view.n_rows)} of them met no rule; "
        f"{count(view.n_sampled)} were looked at whole."
    )
    found = (
        f"{count(view.n_met)} pairs of these rows and the rules were decided, "
        f"{count(view.n_matches)} of them were true."
    )
    return [*lines, known, found]


def _before(view: RuleView) -> str:
    """Return since when rows are counted, if not from the first."""
    if view.n_rows_before == 0:
        return ""
    n_rows = count(view.n_rows_before)
    return f" since the rules changed or the run started again ({n_rows} before)"


def _skipped(view: RuleView) -> list[RenderableType]:
    if not view.skipped:
        return []
    lines = [
        Text(f"{skipped_name(view, each, _TEXT_WIDTH)}: {headline(each.reason)}")
        for each in view.skipped[:MAX_SKIPPED]
    ]
    if (rest := len(view.skipped) - MAX_SKIPPED) > 0:
        lines.append(Text(f"… {rest:,} more", style="dim"))
    n_skipped = len(view.skipped)
    title = "1 rule is skipped" if n_skipped == 1 else f"{count(n_skipped)} rules are skipped"
    return section(title, lines)


def _natives(view: RuleView) -> list[RenderableType]:
    if not view.natives:
        return []
    lines = [
        Text(f"{clipped(each.text, _TEXT_WIDTH)}: {clipped(each.reason, 2 * _TEXT_WIDTH)}")
        for each in view.natives[:MAX_NATIVES]
    ]
    if (rest := len(view.natives) - MAX_NATIVES) > 0:
        lines.append(Text(f"… {rest:,} more", style="dim"))
    return section(natives_title(view), lines)


def _attributes(view: RuleView, max_rows: int) -> Table:
    titles = ("attribute", "kind", "tests", "rules", "rows", "of all", "hits per row", "cost each")
    table = table_of(titles, 2)
    # The first stay the first: what costs most is of interest, and what is never looked at is not.
    ranked = sorted(view.constructs, key=lambda each: -(finite(each.cost_ns) or 0.0) * each.n_rows)
    for each in ranked[:max_rows]:
        hits = finite(each.hits_per_row)
        table.add_row(
            Text(one_line(each.name), overflow="ellipsis"),
            each.kind,
            count(each.n_tests),
            count(each.n_rules),
            count(each.n_rows),
            percent(each.share),
            UNKNOWN if hits is None else significant(hits),
            duration(each.cost_ns),
        )
    return rest_of(table, len(ranked), max_rows)


def _block(block: RuleBlockView) -> list[RenderableType]:
    order = "learned order" if block.is_learned else "as numbered"
    lines = [Text(f"Attributes, {order}: {one_line(block.sequence[0]) or 'none'}.")]
    lines += [Text(f"• {one_line(line)}") for line in block.sequence[1 : 1 + MAX_ARROWS]]
    if (rest := len(block.sequence) - 1 - MAX_ARROWS) > 0:
        lines.append(Text(f"… {rest:,} more regions with a successor of their own", style="dim"))
    if block.n_rows:
        lines.append(
            Text(
                f"Of {count(block.n_rows)} rows, each was looked up in "
                f"{significant(block.look_ups_per_row)} attributes; {percent(block.drop_frac)} "
                f"left without a rule."
            )
        )
    return section(f"block of {count(block.n_rules)} rules, by bitmaps", lines)


_ASKED = ("test", "used by", "rules", "rows asked", "of all", "cost each")
_MET = ("pattern", "shows", "rules", "rows", "of sampled")


def _tests(
    view: RuleView,
    title: str,
    titles: Sequence[str],
    tests: Sequence[TestView],
    max_rows: int,
) -> list[RenderableType]:
    if not tests:
        return []
    table = table_of(titles, 2)
    for each in tests[:max_rows]:
        cells: list[Text | str] = [
            Text(clipped(each.text, _TEXT_WIDTH)),
            Text(_users(view, each)),
            count(each.n_users),
            count(each.n_rows),
            percent(each.share),
            duration(each.cost_ns),
        ]
        table.add_row(*cells[: len(titles)])
    return section(title, [rest_of(table, len(tests), max_rows)])


def _users(view: RuleView, test: TestView) -> str:
    users = ", ".join(named(view, name, _USER_WIDTH) for name in test.users[:1])
    return users + (", …" if test.n_users > 1 else "")


def _rules(view: RuleView, max_rows: int) -> list[RenderableType]:
    parts: list[RenderableType] = []
    vain = rules_met_in_vain(view)
    if vain:
        table = table_of(("rule", "rows it was decided for", "true", "in vain"), 1)
        for each in vain[:max_rows]:
            table.add_row(
                Text(named(view, each.name, _TEXT_WIDTH)),
                count(each.n_met),
                count(each.n_matches),
                percent(1.0 - each.n_matches / each.n_met),
            )
        parts += section("rules most often met in vain", [rest_of(table, len(vain), max_rows)])
    dead = dead_rules(view)
    if dead:
        names = [Text(f"• {named(view, each.name, _TEXT_WIDTH)}") for each in dead[:MAX_DEAD]]
        if (rest := len(dead) - MAX_DEAD) > 0:
            names.append(Text(f"… {rest:,} more", style="dim"))
        n_rows = max(each.n_rows for each in dead)
        title = f"{count(len(dead))} of {count(view.n_rules)} rules were true for no row"
        lines = [*names, Text(f"They saw up to {count(n_rows)} rows.")]
        parts += section(title, lines)
    return parts
