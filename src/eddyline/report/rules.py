"""Sections about rule sets: matching, its cost, matches of each rule."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

from eddyline.report.decisions import last_change
from eddyline.report.formatting import (
    clipped,
    count,
    counted,
    finite,
    one_line,
    percent,
    significant,
)
from eddyline.report.sections import Facts, Items, Section, Table, Text, columns, notes
from eddyline.report.series import points_of, work_section
from eddyline.rules.view import RuleRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eddyline.query.conditions import SkippedRule
    from eddyline.report.sections import Part
    from eddyline.rules.view import BitmapBlockView, NativeView, RuleCount, RuleView, TestView
    from eddyline.runtime.records import History

CHANGES = ("sharing", "order")
"""Events of the journal that are another plan."""

MIN_SHORT = 8
"""Characters that a shortened name has at least."""

FEW_RULES = 20
"""Up to so many rules, one table shows all of them."""

_NAME_WIDTH = 60
"""Most characters of a title with a shortened name, or of a name alone."""

_USER_WIDTH = 40
"""Most characters of a rule beside its test."""

COUNTS = columns("rule, rows: count, candidates: count, matches: count, false candidates: share")
ATTRIBUTES = columns(
    "attribute, kind, tests: count, rules: count, "
    "rows: count, of all: share, hits per row: number, cost each: ns, time: ns"
)
NATIVES = columns("test, why, used by, rules: count")
ASKED = columns("test, used by, rules: count, rows asked: count, of all: share, cost each: ns")
ORDERS = columns("rule, asks in this order, how")
PATTERNS = columns("pattern, shows, rules: count, rows: count, of sampled: share")
NOT_SHARED = "no constants to compare with"
"""Why Spark evaluates a test that is fine, but for having nothing in common with others."""

WORDS = (
    (
        "Access predicate",
        "a test that is true whenever its rule is: other rows do not meet the rule",
    ),
    ("Bitmap block", "rules without a rare test, evaluated together, a bit for each rule"),
    ("Region", "values of an attribute that no rule tells apart, such as those above 5 up to 10"),
    ("Candidate", "a row and a rule that neither access predicate nor bitmap block ruled out"),
    ("False candidates", "share of a rule's candidates that are no match"),
    ("Hits per row", "patterns that were met in a sampled row, on average"),
)
"""Meanings of the words of these sections."""


def lines(record: RuleRecord) -> tuple[str, ...]:
    """Return the plan and the matches of a batch in words, for the progress."""
    plan = f"{record.component} ({count(record.n_rules)}): {record.plan}"
    matches = f"{count(record.n_matches)} matches"
    if not record.n_troubles:
        return plan, matches
    return plan, matches, f"{counted(record.n_troubles, 'change')} of rule files not taken in"


def sections(view: RuleView, history: History) -> list[Section]:
    """Return a set of rules as it stands, and as it came to be, as people may want to see it."""
    return [
        Section("", tuple(map(Text, summary(view)))),
        *_skipped(view),
        *_attributes(view),
        *([] if view.is_statement else [*map(_block, view.blocks), *_natives(view)]),
        *_asked(view),
        *_orders(view),
        *_met(view),
        *_counts(view),
        *_work(history),
        *last_change(history.last(*CHANGES)),
        *notes(view.notes),
        Section("what the words mean", (Facts(WORDS),), is_aside=True),
    ]


def summary(view: RuleView) -> list[str]:
    """Return in sentences how the rules are found, and what is known of them."""
    if view.n_rules == 0:
        return ["No rule runs."]
    how = "learned from rows" if view.is_measured else "guessed: no rows were measured"
    if view.is_statement:
        how = "by the costs of their tests; no row goes to Python"
    if not view.is_adaptive:
        how = "fixed: adaptation is switched off"
    sentences = [f"{counted(view.n_rules, 'rule')}: {view.plan} ({how})."]
    before = ""
    if view.n_rows_before:
        n_before = count(view.n_rows_before)
        before = f" since the rules changed or the run started again ({n_before} before)"
    if view.n_rows == 0:
        return [*sentences, f"No row was evaluated{before}."]
    if view.n_rows is None:
        matches = f"Matches: {count(view.n_matches)}{before}"
        return [*sentences, f"{matches}; the rows without one were not counted."]
    sampled = f"; {count(view.n_sampled)} were sampled to measure every test"
    return [
        *sentences,
        f"{counted(view.n_rows, 'row')} evaluated{before}, "
        f"{percent(view.n_dropped / view.n_rows)} of them without a candidate"
        f"{'' if view.is_statement and not view.n_sampled else sampled}.",
        f"{counted(view.n_met, 'candidate')}, {count(view.n_matches)} of them matches.",
    ]


# -- how rules are found ------------------------------------------------------------------------


def _skipped(view: RuleView) -> list[Section]:
    if not view.skipped:
        return []
    n = len(view.skipped)
    title = f"{counted(n, 'rule')} {'is' if n == 1 else 'are'} skipped"
    texts = (f"{_skipped_name(view, rule)}: {headline(rule.reason)}" for rule in view.skipped)
    return [Section(title, (Items(tuple(texts)),))]


def _attributes(view: RuleView) -> list[Section]:
    if not view.constructs:
        return []
    ranked = sorted(
        view.constructs,
        key=lambda construct: -(finite(construct.cost_ns) or 0.0) * construct.n_rows,
    )
    rows = tuple(
        (
            construct.name,
            construct.kind,
            construct.n_tests,
            construct.n_rules,
            construct.n_rows,
            construct.share,
            construct.hits_per_row,
            construct.cost_ns,
            construct.cost_ns * construct.n_rows,
        )
        for construct in ranked
    )
    note = "What rules look at, the dearest first."
    return [Section("attributes", (Table(ATTRIBUTES, rows, note),))]


def _block(block: BitmapBlockView) -> Section:
    order = "learned order" if block.is_learned else "as numbered"
    first, *regions = block.sequence
    parts: list[Part] = [Text(f"Attributes, {order}: {first or 'none'}.")]
    parts += [Items(tuple(regions))] if regions else []
    if block.n_rows:
        parts.append(
            Text(
                f"Of {counted(block.n_rows, 'row')}, {percent(block.drop_frac)} left without a "
                f"rule; attributes looked at per row: {significant(block.look_ups_per_row)}."
            )
        )
    return Section(f"bitmap block of {counted(block.n_rules, 'rule')}", tuple(parts))


def _natives(view: RuleView) -> list[Section]:
    if not view.natives:
        return []
    n = len(view.natives)
    title_of_one = "1 test is left to Spark, a column of its own"
    title = title_of_one if n == 1 else f"{count(n)} tests are left to Spark, one column each"
    rows = tuple(
        (test.text, test.reason or NOT_SHARED, _users(view, test), test.n_users)
        for test in view.natives
    )
    return [Section(title, (Table(NATIVES, rows),))]


def _asked(view: RuleView) -> list[Section]:
    rows = tuple((*_test_row(view, test), test.cost_ns) for test in view.tests)
    note = "The dearest first; asked only for rows on which a rule hangs."
    return [Section("tests that Python decides", (Table(ASKED, rows, note),))] if rows else []


def _orders(view: RuleView) -> list[Section]:
    """Return the order of each rule's tests of Python, where there is a choice."""
    if not view.orders:
        return []
    basis = "measured" if view.is_measured else "not measured"
    rows = tuple(
        (
            named(view, order.rule, _USER_WIDTH),
            ", then ".join(order.tests),
            "learned" if order.is_changed else f"by guessed costs, {basis}",
        )
        for order in view.orders
    )
    note = "A rule asks first the test that decides most rows for its cost; an answer ends it."
    return [Section("order of tests that Python decides", (Table(ORDERS, rows, note),))]


def _met(view: RuleView) -> list[Section]:
    rows = tuple(_test_row(view, pattern) for pattern in view.patterns if pattern.n_rows)
    note = (
        "Counted in sampled rows. A pattern shows the rules that are met by it; those that show "
        "none are left out."
    )
    return [Section("patterns met most often", (Table(PATTERNS, rows, note),))] if rows else []


def _test_row(view: RuleView, test: TestView) -> tuple[str, str, int, int, float]:
    return test.text, _users(view, test), test.n_users, test.n_rows, test.share


def _users(view: RuleView, test: TestView | NativeView) -> str:
    """Return the first rules that use a test."""
    users = ", ".join(named(view, name, _USER_WIDTH) for name in test.users)
    return users + (", …" if test.n_users > len(test.users) else "")


# -- what rules came to -------------------------------------------------------------------------


def _counts(view: RuleView) -> list[Section]:
    """Return the rules by matches; of many, those without one and with most false candidates."""
    seen = [rule for rule in view.rules if rule.n_rows != 0]
    seen.sort(key=lambda rule: -rule.n_matches)
    dead = [rule for rule in seen if not rule.n_matches]
    true = seen[: len(seen) - len(dead)]
    false = [rule for rule in seen if rule.n_met > rule.n_matches]
    false.sort(key=lambda rule: rule.n_matches - rule.n_met)
    shown = []
    note = f"{count(len(true))} of {counted(view.n_rules, 'rule')} matched some row."
    if 0 < len(seen) <= FEW_RULES:
        return [Section("rules by matches", (_table(view, seen, note),))]
    if true:
        shown.append(Section("rules by matches", (_table(view, true, note),)))
    if false:
        note = "Candidates that were no match: their rules lack a rare test."
        shown.append(Section("rules with most false candidates", (_table(view, false, note),)))
    if dead:
        title = f"{count(len(dead))} of {counted(view.n_rules, 'rule')} matched no row"
        names = tuple(named(view, rule.name, whole=True) for rule in dead)
        n_rows = max((rule.n_rows for rule in dead if rule.n_rows is not None), default=None)
        sentence = Text(f"They saw up to {count(n_rows)} rows.")
        shown.append(Section(title, (Items(names), *([] if n_rows is None else [sentence]))))
    return shown


def _table(view: RuleView, rules: Iterable[RuleCount], note: str) -> Table:
    rows = tuple(
        (
            named(view, rule.name),
            rule.n_rows,
            rule.n_met,
            rule.n_matches,
            1.0 - rule.n_matches / rule.n_met if rule.n_met else None,
        )
        for rule in rules
    )
    return Table(COUNTS, rows, note)


def _work(history: History) -> list[Section]:
    """Return the candidates of the batches."""
    points = points_of(history.batches)
    decided = [sum(record.n_met for record in point.records(RuleRecord)) for point in points]
    return work_section("candidates", points, decided)


# -- names --------------------------------------------------------------------------------------


def named(view: RuleView, name: str, width: int = _NAME_WIDTH, *, whole: bool = False) -> str:
    """Return a rule's title with its name behind it; without a title its name.

    The title, or a name alone, has at most ``width`` characters. A name is written out or shortened
    as far as no other is like it.
    """
    title = view.label(name)
    if title == name:
        return clipped(name, width)
    if whole:
        return f"{clipped(title, width)} ({one_line(name)})"
    short = one_line(_short(tuple(rule.name for rule in view.rules)).get(name, name))
    return f"{clipped(title, max(width - len(short) - 3, MIN_SHORT))} ({short})"


def _skipped_name(view: RuleView, rule: SkippedRule) -> str:
    """Return the title and name of a rule that does not run."""
    title = view.titles.get(rule.name) or getattr(rule, "title", "")
    name = clipped(rule.name, _NAME_WIDTH)
    return f"{clipped(title, _NAME_WIDTH)} ({name})" if title else name


def headline(reason: str) -> str:
    r"""Return a reason on one line, without the lines that point at a place with a caret.

    >>> headline("an operand is missing (line 1, column 3)\n  n > \n    ^")
    'an operand is missing (line 1, column 3)'
    """
    texts = reason.split("\n")
    carets = {place for place, line in enumerate(texts) if place > 0 and line.strip() == "^"}
    pointed = carets | {place - 1 for place in carets if place > 1}
    return one_line(" ".join(line for place, line in enumerate(texts) if place not in pointed))


@lru_cache(maxsize=4)
def _short(names: tuple[str, ...]) -> dict[str, str]:
    """Return names cut at a dash behind their first characters, where that tells them apart."""
    cut = {
        name: name[:MIN_SHORT] if name[MIN_SHORT : MIN_SHORT + 1] == "-" else name for name in names
    }
    n_alike = Counter(cut.values())
    return {name: short if n_alike[short] == 1 else name for name, short in cut.items()}
