"""The sections of a report that are about a set of rules.

Names and texts of rules are what users wrote: all of them are escaped.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from eddyline.watch.formatting import (
    UNKNOWN,
    clipped,
    count,
    duration,
    finite,
    percent,
    significant,
)
from eddyline.watch.html.parts import legend, table_section
from eddyline.watch.rules.facts import (
    dead_rules,
    natives_title,
    rules_by_matches,
    rules_met_in_vain,
)
from eddyline.watch.rules.names import headline, named, skipped_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.rules.view import NativeView, RuleCount, RuleView, TestView

_NAME_WIDTH = 60
_TEXT_WIDTH = 160
"""Most characters of a test or a reason."""


def rule_sections(view: RuleView) -> list[str]:
    """Return the sections as HTML, those without content left out."""
    parts = [_counts(view)]
    parts += [_attributes(view)] if view.constructs else []
    parts += [_natives(view)] if view.natives else []
    parts += [_asked(view)] if view.tests else []
    parts += [_met(view)] if view.patterns else []
    parts += [_skipped(view)] if view.skipped else []
    return [*parts, legend(_WORDS)]


_WORDS = (
    ("Witness", "a test that is true whenever its rule is: only rows that show it meet the rule"),
    ("Block", "rules without a good witness, evaluated together, a bit for each rule"),
    ("Region", "values of an attribute that no rule tells apart, such as those above 5 up to 10"),
    ("Pairs decided", "a row and a rule that the row's witness or block did not rule out"),
    ("Hits per row", "patterns that were met in a sampled row, on average"),
)
"""What the words of these sections mean."""


def _counts(view: RuleView) -> str:
    true, dead, vain = rules_by_matches(view), dead_rules(view), rules_met_in_vain(view)
    titles = (("Rule", False), ("Rows", True), ("Decided for", True), ("True for", True))
    note = f"{count(len(true))} of {count(view.n_rules)} rules were true for some row."
    rows = (_count_row(view, each) for each in true)
    section = table_section("Rules by matches", note, titles, rows, len(true), _dead(view, dead))
    if not vain:
        return section
    wasted = table_section(
        "Rules most often met in vain",
        "Rows for which a rule had to be decided and was not true.",
        titles,
        (_count_row(view, each) for each in vain),
        len(vain),
    )
    return section + wasted


def _dead(view: RuleView, dead: Sequence[RuleCount]) -> str:
    """Return all rules that were true for no row, folded up."""
    if not dead:
        return ""
    rules = "1 rule" if len(dead) == 1 else f"{count(len(dead))} rules"
    names = (named(view, each.name, _NAME_WIDTH, whole=True) for each in dead)
    items = "\n".join(f"<li>{escape(name)}</li>" for name in names)
    return (
        f"<details><summary>{escape(rules)} true for no row</summary>"
        f'<div class="card"><ul>{items}</ul></div></details>'
    )


def _count_row(view: RuleView, each: RuleCount) -> Sequence[str]:
    return (
        named(view, each.name, _TEXT_WIDTH, whole=True),
        count(each.n_rows),
        count(each.n_met),
        count(each.n_matches),
    )


def _attributes(view: RuleView) -> str:
    titles = (
        ("Attribute", False),
        ("Kind", False),
        ("Tests", True),
        ("Rules", True),
        ("Rows", True),
        ("Of all", True),
        ("Hits per row", True),
        ("Cost each", True),
        ("Time", True),
    )
    ranked = sorted(view.constructs, key=lambda each: -(finite(each.cost_ns) or 0.0) * each.n_rows)
    rows = (
        (
            clipped(each.name, _TEXT_WIDTH),
            each.kind,
            count(each.n_tests),
            count(each.n_rules),
            count(each.n_rows),
            percent(each.share),
            UNKNOWN if (hits := finite(each.hits_per_row)) is None else significant(hits),
            duration(each.cost_ns),
            duration(each.cost_ns * each.n_rows),
        )
        for each in ranked
    )
    return table_section(
        "Attributes", "What rules look at, the dearest first.", titles, rows, len(ranked)
    )


def _natives(view: RuleView) -> str:
    titles = (("Test", False), ("Why", False), ("Used by", False), ("Rules", True))
    note = f"{natives_title(view)}."
    rows = (
        (
            clipped(each.text, _TEXT_WIDTH),
            clipped(each.reason, _TEXT_WIDTH),
            _named(view, each),
            count(each.n_users),
        )
        for each in view.natives
    )
    return table_section("Tests that are left to Spark", note, titles, rows, len(view.natives))


def _named(view: RuleView, each: TestView | NativeView) -> str:
    """Return the first rules that use a test."""
    users = ", ".join(named(view, name, _NAME_WIDTH) for name in each.users)
    return users + (", …" if each.n_users > len(each.users) else "")


def _asked(view: RuleView) -> str:
    titles = (
        ("Test", False),
        ("Used by", False),
        ("Rules", True),
        ("Rows asked", True),
        ("Of all", True),
        ("Cost each", True),
    )
    note = "The dearest first; asked only for rows on which a rule hangs."
    rows = ((*_test_row(view, each), duration(each.cost_ns)) for each in view.tests)
    return table_section("Tests that Python decides", note, titles, rows, len(view.tests))


def _met(view: RuleView) -> str:
    titles = (
        ("Pattern", False),
        ("Shows", False),
        ("Rules", True),
        ("Rows", True),
        ("Of sampled", True),
    )
    note = (
        "Counted in sampled rows. A pattern shows the rules that are met by it; those that show "
        "none are left out."
    )
    hits = [each for each in view.patterns if each.n_rows]
    rows = (_test_row(view, each) for each in hits)
    return table_section("Patterns met most often", note, titles, rows, len(hits))


def _test_row(view: RuleView, each: TestView) -> tuple[str, ...]:
    return (
        clipped(each.text, _TEXT_WIDTH),
        _named(view, each),
        count(each.n_users),
        count(each.n_rows),
        percent(each.share),
    )


def _skipped(view: RuleView) -> str:
    rows = ((skipped_name(view, each, _TEXT_WIDTH), headline(each.reason)) for each in view.skipped)
    titles = (("Rule", False), ("Why", False))
    return table_section("Skipped rules", "They do not run.", titles, rows, len(view.skipped))
