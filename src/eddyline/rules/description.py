"""Descriptions of a set of rules: values of ``view``, words and journal."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.query.conditions import Raise, ValueTest
from eddyline.rules.compile.formula import REGION, TEXT
from eddyline.rules.compile.patterns import TextConstruct
from eddyline.rules.plan import SelectionSequence
from eddyline.rules.view import (
    COMPONENT,
    MAX_NAMED,
    BitmapBlockView,
    ConstructView,
    NativeView,
    OrderView,
    RuleCount,
    RuleView,
    TestView,
    column_name,
    construct_name,
    region_text,
    test_text,
)
from eddyline.runtime.journal import JournalEntry

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from eddyline.query.conditions import RuleSource, SkippedRule
    from eddyline.rules.choice import RuleChoice
    from eddyline.rules.compile.bitmap_block import BitmapBlock
    from eddyline.rules.compile.program import Program
    from eddyline.rules.compile.regions import RegionConstruct
    from eddyline.rules.plan import SharingPlan, SharingProfile

    Rules = Mapping[str, RuleSource]

MAX_USERS = 5
"""Rules that are named as users of one test."""

MAX_TESTS = 50
"""Tests and patterns that a view holds: the dearest, the most often met."""


def rule_view(
    name: str,
    choice: RuleChoice,
    *,
    skipped: tuple[SkippedRule, ...] = (),
    rules: tuple[RuleCount, ...] | None = None,
    titles: Mapping[str, str] | None = None,
    notes: tuple[str, ...] = (),
    n_rows_before: int | None = 0,
) -> RuleView:
    """Return a set of rules as it stands."""
    program, plan, total = choice.program, choice.sharing, choice.total
    return RuleView(
        name=name,
        n_rules=program.n_rules,
        skipped=skipped,
        plan=str(plan),
        is_adaptive=choice.is_adaptive,
        is_measured=choice.is_measured,
        is_statement=plan.is_statement,
        n_rows=rows_of(total),
        n_sampled=total.n_sampled,
        n_dropped=total.dropped,
        n_met=int(total.candidates.sum()),
        n_matches=int(total.matches.sum()),
        constructs=_constructs(program, total),
        blocks=_block_views(choice),
        tests=_tests(program, total),
        orders=_orders(program, plan),
        patterns=_patterns(program, plan, total),
        natives=_natives(program),
        rules=counts_of(program, total) if rules is None else rules,
        titles=titles or {},
        notes=notes,
        n_rows_before=n_rows_before,
    )


def counts_of(program: Program, total: SharingProfile) -> tuple[RuleCount, ...]:
    """Return the counts of each rule of a program."""
    counts = zip(program.names, total.candidates.tolist(), total.matches.tolist(), strict=True)
    n_rows = rows_of(total)
    return tuple(RuleCount(name, n_rows, met, matches) for name, met, matches in counts)


def rows_of(total: SharingProfile) -> int | None:
    """Return the rows of a profile; None if those of some job were not counted."""
    return None if total.n_uncounted else total.n_rows


def _constructs(program: Program, total: SharingProfile) -> tuple[ConstructView, ...]:
    views: list[ConstructView] = []
    reads = np.concatenate([program.reads_regions, program.reads_texts], axis=1).sum(axis=0)
    constructs: list[RegionConstruct | TextConstruct] = [*program.regions, *program.texts]
    for number, construct in enumerate(constructs):
        if isinstance(construct, TextConstruct):
            name, kind = column_name(construct.operand.sql, folded=construct.folded), "patterns"
            hits = _ratio(total.pattern_counts[construct.patterns].sum(), total.n_sampled)
            n_tests = construct.n_patterns
        else:
            name, hits = construct_name(program, construct), float("nan")
            kind = "errors" if construct.operand.sql in program.errors else "regions"
            n_tests = construct.n_regions
        n_rows = int(total.construct_rows[number])
        views.append(
            ConstructView(
                name=name,
                kind=kind,
                n_tests=n_tests,
                n_rules=int(reads[number]),
                n_rows=n_rows,
                share=_ratio(n_rows, total.n_rows),
                hits_per_row=hits,
                cost_ns=_ratio(total.construct_ns[number], n_rows),
            )
        )
    return (*views, *_python(program, total))


def _python(program: Program, total: SharingProfile) -> list[ConstructView]:
    """Return the tests that Python decides, by the columns that they read."""
    groups: dict[str, list[int]] = defaultdict(list)
    for number, external in enumerate(program.externals):
        if not isinstance(external.test, Raise):
            groups[", ".join(program.columns[column] for column in external.columns)].append(number)
    views = []
    for name, members in groups.items():
        n_rows = int(total.asked[members].sum())
        views.append(
            ConstructView(
                name=name,
                kind="Python",
                n_tests=len(members),
                n_rules=len(program.rules_that_ask(members)),
                n_rows=n_rows,
                share=_ratio(n_rows, total.n_rows),
                hits_per_row=np.nan,
                cost_ns=_ratio(total.asked_ns[members].sum(), n_rows),
            )
        )
    return views


def _ratio(part: Any, whole: float) -> float:
    return float(part) / whole if whole else float("nan")


def _block_views(choice: RuleChoice) -> tuple[BitmapBlockView, ...]:
    program, recent = choice.program, choice.profile.blocks
    views = []
    for plan in choice.sharing.blocks:
        block = choice.blocks.of(plan.rules)
        names = [
            construct_name(program, program.regions[attribute]) for attribute in block.attributes
        ]
        sequence = plan.sequence or SelectionSequence.as_numbered(block.n_constructs)

        def region_name(construct: int, region: int, block: BitmapBlock = block) -> str:
            keys = block.region_keys(construct, region)
            return region_text(program.regions[block.attributes[construct]], keys)

        counts = recent.get(plan)
        n_rows = counts.n_rows if counts else 0
        views.append(
            BitmapBlockView(
                n_rules=len(plan.rules),
                sequence=tuple(sequence.in_words(names, region_name)),
                is_learned=plan.sequence is not None,
                n_rows=n_rows,
                look_ups_per_row=_ratio(counts.n_evaluated, n_rows) if counts else float("nan"),
                drop_frac=counts.drop_frac if counts and n_rows else float("nan"),
            )
        )
    return tuple(views)


def _tests(program: Program, total: SharingProfile) -> tuple[TestView, ...]:
    views = []
    ranked = np.lexsort((-total.asked, -total.asked_ns)).tolist()
    asked = [place for place in ranked if not isinstance(program.externals[place].test, Raise)]
    for number in asked[:MAX_TESTS]:
        n_rows = int(total.asked[number])
        users = program.rules_that_ask([number])
        views.append(
            TestView(
                text=test_text(program.externals[number].test),
                n_rows=n_rows,
                share=_ratio(n_rows, total.n_rows),
                cost_ns=_ratio(total.asked_ns[number], n_rows),
                users=tuple(program.names[rule] for rule in users[:MAX_USERS].tolist()),
                n_users=len(users),
            )
        )
    return tuple(views)


def _orders(program: Program, plan: SharingPlan) -> tuple[OrderView, ...]:
    """Return the orders of tests, those of the rules first that were changed."""
    changed = {order.rule: order.tests for order in plan.python_orders}
    ranked = [*changed, *(rule for rule in program.ordered.of_rule if rule not in changed)]
    return tuple(
        OrderView(
            rule=program.names[rule],
            tests=tuple(_in_words(program, changed.get(rule, program.ordered.of_rule[rule]))),
            is_changed=rule in changed,
        )
        for rule in ranked[:MAX_TESTS]
    )


def _natives(program: Program) -> tuple[NativeView, ...]:
    constructs = {construct.operand.sql: number for number, construct in enumerate(program.regions)}
    views = []
    for native in program.natives:
        users = np.flatnonzero(program.reads_regions[:, constructs[native.sql]])
        named = tuple(program.names[rule] for rule in users[:MAX_USERS].tolist())
        views.append(NativeView(native.sql, native.reason, named, len(users)))
    return tuple(views)


def _patterns(program: Program, plan: SharingPlan, total: SharingProfile) -> tuple[TestView, ...]:
    tests = _pattern_tests(program)
    users: dict[int, list[str]] = defaultdict(list)
    for rule, access in enumerate(plan.access_predicates):
        for pattern in {p for literal in access or () for p in _patterns_of(program, literal)}:
            users[pattern].append(program.names[rule])
    ranked = np.argsort(-total.pattern_counts, kind="stable").tolist()
    shown = [pattern for pattern in ranked if pattern in users][:MAX_TESTS]
    return tuple(
        TestView(
            text=tests.get(pattern, f"pattern {pattern}"),
            n_rows=int(total.pattern_counts[pattern]),
            share=_ratio(total.pattern_counts[pattern], total.n_sampled),
            cost_ns=float("nan"),
            users=tuple(users[pattern][:MAX_USERS]),
            n_users=len(users[pattern]),
        )
        for pattern in shown
    )


def _patterns_of(program: Program, literal: int) -> tuple[int, ...]:
    """Return the patterns by which a literal is found."""
    kind, place = program.literals.kinds[literal], int(program.literals.places[literal])
    if kind == REGION:
        return ()
    return (place,) if kind == TEXT else program.externals[place].needs


def _pattern_tests(program: Program) -> Mapping[int, str]:
    """Return each pattern in words."""
    words: dict[int, str] = {}
    for literal in np.flatnonzero(program.literals.kinds == TEXT).tolist():
        test = program.tests[program.test_of[literal]]
        words[int(program.literals.places[literal])] = test_text(test)
    for external in program.externals:
        if isinstance(external.test, ValueTest) and len(external.needs) == len(external.test.needs):
            words.update(
                (pattern, test_text(need))
                for pattern, need in zip(external.needs, external.test.needs, strict=True)
            )
    return words


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the names of the rules that differ between two states of a set."""
    return {
        "added": [name for name in after if name not in before],
        "removed": [name for name in before if name not in after],
        "replaced": [name for name, rule in after.items() if before.get(name, rule) != rule],
    }


def entries_of(
    before: Rules, after: Rules, skipped: Collection[str], batch_id: int
) -> list[JournalEntry]:
    """Return the entry about a change, if there is one; skipped are rules that are new or ran."""
    changes = {**changed(before, after), "skipped": list(skipped)}
    changes["removed"] = [name for name in changes["removed"] if name not in skipped]
    evidence: dict[str, Any] = {what: names[:MAX_NAMED] for what, names in changes.items() if names}
    if not evidence:
        return []
    numbers = f"{len(before)} rules", f"{len(after)} rules"
    return [JournalEntry(batch_id, COMPONENT, "rules", *numbers, evidence)]


def to_come(before: Rules, after: Rules) -> tuple[str, ...]:
    """Return in words the changes that no micro-batch has met yet, if there are any."""
    changes = changed(before, after)
    parts = [f"{len(names)} {what}" for what, names in changes.items() if names]
    if not parts:
        return ()
    first, *others = parts
    number, what = first.split()
    noun = "rule" if number == "1" else "rules"
    they = "it counts" if sum(map(len, changes.values())) == 1 else "they count"
    listed = ", ".join([f"{number} {noun} {what}", *others])
    return (f"{listed} since: {they} from the next micro-batch or transform on",)


def _in_words(program: Program, tests: tuple[int, ...]) -> list[str]:
    return [test_text(program.externals[test].test) for test in tests]
