"""What a person may want to see of a set of rules, as values."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.query.conditions import ANY, FunctionTest, Raise, TextTest, ValueTest
from eddyline.rules.compile.keys import HIGHEST, LOWEST, value_of
from eddyline.rules.compile.program import REGION, TEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eddyline.query.conditions import SkippedRule
    from eddyline.rules.compile.bitmap_block import SelectionBlock
    from eddyline.rules.compile.program import Program
    from eddyline.rules.compile.regions import RegionConstruct
    from eddyline.rules.loop import RuleLoop
    from eddyline.rules.plan import SharingPlan
    from eddyline.rules.profile import SharingProfile
    from eddyline.runtime.journal import JournalEntry

MAX_USERS = 5
"""Rules that are named as users of one test."""

MAX_TESTS = 50
"""Tests and patterns that a view holds: the dearest, the most often met."""

MAX_CONSTANTS = 4
"""Texts of one region that are named."""


@dataclass(frozen=True, slots=True)
class RuleCount:
    """What one rule came to."""

    name: str
    n_rows: int
    """Rows that it was there for."""
    n_met: int
    """Of those, the rows for which it had to be decided."""
    n_matches: int
    """Rows that it was true for."""


@dataclass(frozen=True, slots=True)
class ConstructView:
    """One attribute that rules look at."""

    name: str
    """The column or expression."""
    kind: str
    """``regions`` (where its value lies), ``patterns`` (found in one walk), ``Python``, or
    ``errors`` (on which rows an expression raises)."""
    n_tests: int
    """Regions that rules tell apart, patterns, or tests."""
    n_rules: int
    """Rules that read it."""
    n_rows: int
    """Rows that it was looked at for."""
    share: float
    """The same as a share of all rows (nan: there was none)."""
    hits_per_row: float
    """Patterns met in a sampled row (nan: it has none, or no row was sampled)."""
    cost_ns: float
    """Time for each row that it was looked at for (ns; nan: for none)."""


@dataclass(frozen=True, slots=True)
class RuleBlockView:
    """Rules that are evaluated together by bitmaps."""

    n_rules: int
    sequence: tuple[str, ...]
    """The order of its attributes in words, then one sentence for each region with its own."""
    is_learned: bool
    """Whether the sequence was learned; else attributes stand as they are numbered."""
    n_rows: int
    """Rows that entered it lately."""
    look_ups_per_row: float
    """Attributes that a row was looked up in (nan: there was no row)."""
    drop_frac: float
    """Share of the rows that left it without a rule ([0, 1]; nan: there was no row)."""


@dataclass(frozen=True, slots=True)
class TestView:
    """A test that Python decides row by row, or a pattern."""

    text: str
    n_rows: int
    """Rows that it was asked about; of a pattern, sampled rows that it was met in."""
    share: float
    """The same as a share: of all rows, or of the sampled ones (nan: there was none)."""
    cost_ns: float
    """Time for each row that it was asked about (ns; nan: not asked, or a pattern)."""
    users: tuple[str, ...]
    """The first rules that use it; of a pattern, those that are met by it."""
    n_users: int
    """How many there are."""


@dataclass(frozen=True, slots=True)
class NativeView:
    """A test that is left to Spark, which hands over a column for it alone."""

    text: str
    reason: str
    """Why nothing else evaluates it."""
    users: tuple[str, ...]
    """The first rules that use it."""
    n_users: int
    """How many there are."""


@dataclass(frozen=True, slots=True)
class RuleRecord:
    """A set of rules in one micro-batch."""

    n_rules: int
    plan: str
    """How rules are found, in words."""
    n_met: int
    """Pairs of a row and a rule that had to be decided."""
    n_matches: int
    """Pairs of a row and a rule that is true for it."""


@dataclass(frozen=True, slots=True)
class RuleView:
    """A set of rules as it stands."""

    name: str
    n_rules: int
    """Rules that run."""
    skipped: tuple[SkippedRule, ...]
    plan: str
    """How rules are found, in words."""
    n_witnessed: int
    n_blocked: int
    n_other: int
    """Rules that every row meets, or that no row changes."""
    is_adaptive: bool
    is_measured: bool
    """Whether the plan was made from rows, and not from guesses."""
    n_rows: int
    """Rows evaluated since the rules are what they are."""
    n_sampled: int
    """Of those, rows that every attribute was looked at for."""
    n_dropped: int
    """Of those, rows that met no rule."""
    n_met: int
    """Pairs of a row and a rule that had to be decided."""
    n_matches: int
    """Pairs of a row and a rule that is true for it."""
    constructs: tuple[ConstructView, ...]
    blocks: tuple[RuleBlockView, ...]
    tests: tuple[TestView, ...]
    """The dearest first."""
    patterns: tuple[TestView, ...]
    """Those by which a rule is met, the most often met first."""
    natives: tuple[NativeView, ...]
    """Tests that are left to Spark."""
    rules: tuple[RuleCount, ...]
    """In the order of the set."""
    titles: Mapping[str, str] = field(default_factory=dict)
    """What people call rules, where that is not their name."""
    last_change: JournalEntry | None = None
    notes: tuple[str, ...] = ()
    """Other things worth knowing."""
    n_rows_before: int = 0
    """Rows evaluated before the rules last changed or the run started again; they count in
    ``rules`` as far as a rule was there, and in no other number."""

    def label(self, name: str) -> str:
        """Return what to call a rule: its title, or else its name."""
        return self.titles.get(name) or name


def rule_view(
    name: str,
    loop: RuleLoop,
    *,
    skipped: tuple[SkippedRule, ...] = (),
    rules: tuple[RuleCount, ...] | None = None,
    titles: Mapping[str, str] | None = None,
    last_change: JournalEntry | None = None,
    notes: tuple[str, ...] = (),
    n_rows_before: int = 0,
) -> RuleView:
    """Return a set of rules as it stands.

    Args:
        name: of the set.
        loop: its loop.
        skipped: rules that do not run.
        rules: what each rule came to, where more is known than the loop knows.
        titles: what people call rules, where that is not their name.
        last_change: the journal's last entry about the plan.
        notes: other things worth knowing.
        n_rows_before: rows that the loop does not know of.
    """
    program, plan, total = loop.program, loop.plan, loop.total
    return RuleView(
        name=name,
        n_rules=program.n_rules,
        skipped=skipped,
        plan=str(plan),
        n_witnessed=plan.n_witnessed,
        n_blocked=plan.n_blocked,
        n_other=program.n_rules - plan.n_witnessed - plan.n_blocked,
        is_adaptive=loop.is_adaptive,
        is_measured=loop.is_measured,
        n_rows=total.n_rows,
        n_sampled=total.n_sampled,
        n_dropped=total.dropped,
        n_met=int(total.candidates.sum()),
        n_matches=int(total.matches.sum()),
        constructs=_constructs(program, total),
        blocks=_block_views(loop),
        tests=_tests(program, total),
        patterns=_patterns(program, plan, total),
        natives=_natives(program),
        rules=counts_of(program, total) if rules is None else rules,
        titles=titles or {},
        last_change=last_change,
        notes=notes,
        n_rows_before=n_rows_before,
    )


def counts_of(program: Program, total: SharingProfile) -> tuple[RuleCount, ...]:
    """Return what each rule of a program came to."""
    found = zip(program.names, total.candidates.tolist(), total.matches.tolist(), strict=True)
    return tuple(RuleCount(name, total.n_rows, met, matches) for name, met, matches in found)


def _constructs(program: Program, total: SharingProfile) -> tuple[ConstructView, ...]:
    found: list[ConstructView] = []
    names = [_construct_name(program, each) for each in program.regions]
    sizes = [each.n_regions for each in program.regions]
    hits = [np.nan] * len(sizes)
    kinds = [
        "errors" if each.operand.sql in program.errors else "regions" for each in program.regions
    ]
    for each in program.texts:
        names.append(_name(each.operand.sql, folded=each.folded))
        sizes.append(each.n_patterns)
        met = total.pattern_counts[each.first : each.first + each.n_patterns].sum()
        hits.append(_ratio(met, total.n_sampled))
        kinds.append("patterns")
    reads = np.concatenate([program.reads_regions, program.reads_texts], axis=1).sum(axis=0)
    for at, name in enumerate(names):
        n_rows = int(total.construct_rows[at])
        found.append(
            ConstructView(
                name=name,
                kind=kinds[at],
                n_tests=sizes[at],
                n_rules=int(reads[at]),
                n_rows=n_rows,
                share=_ratio(n_rows, total.n_rows),
                hits_per_row=hits[at],
                cost_ns=_ratio(total.construct_ns[at], n_rows),
            )
        )
    return (*found, *_python(program, total))


def _python(program: Program, total: SharingProfile) -> list[ConstructView]:
    """Return what Python is asked about, by the columns that it reads."""
    groups: dict[str, list[int]] = defaultdict(list)
    for at, each in enumerate(program.externals):
        if not isinstance(each.test, Raise):
            groups[", ".join(program.columns[column] for column in each.columns)].append(at)
    found = []
    for name, members in groups.items():
        n_rows = int(total.asked[members].sum())
        found.append(
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
    return found


def _construct_name(program: Program, construct: RegionConstruct) -> str:
    error = program.errors.get(construct.operand.sql)
    return _region_name(construct) if error is None else f"errors of {error.text}"


def _name(sql: str, *, folded: bool) -> str:
    return f"lower({sql})" if folded else sql


def _ratio(part: Any, whole: float) -> float:
    return float(part) / whole if whole else float("nan")


# -- blocks -----------------------------------------------------------------------------------


def _block_views(loop: RuleLoop) -> tuple[RuleBlockView, ...]:
    recent = loop.profile.blocks
    found = []
    for plan in loop.plan.blocks:
        block = loop.blocks.of(plan.rules)
        names = [
            _construct_name(loop.program, loop.program.regions[each]) for each in block.attributes
        ]
        sequence = block.selection(plan.sequence).sequence
        counts = recent.get(plan)
        n_rows = counts.n_rows if counts else 0
        found.append(
            RuleBlockView(
                n_rules=len(plan.rules),
                sequence=tuple(sequence.in_words(names, _region_namer(loop.program, block))),
                is_learned=plan.sequence is not None,
                n_rows=n_rows,
                look_ups_per_row=_ratio(counts.n_evaluated, n_rows) if counts else float("nan"),
                drop_frac=counts.drop_frac if counts and n_rows else float("nan"),
            )
        )
    return tuple(found)


def _region_name(construct: RegionConstruct) -> str:
    return _name(construct.operand.sql, folded=construct.folded)


def _region_namer(program: Program, block: SelectionBlock) -> Callable[[int, int], str]:
    def named(construct: int, region: int) -> str:
        bounds = [LOWEST, *block.cuts_of(construct).tolist(), HIGHEST + 1]
        keys = (bounds[region - 1], bounds[region] - 1) if region else None
        return region_text(program.regions[block.attributes[construct]], keys)

    return named


def region_text(construct: RegionConstruct, keys: tuple[int, int] | None) -> str:
    """Return a region in words: ``a in (5, 10]``.

    Args:
        construct: whose region.
        keys: its first and last key; None for NULL.
    """
    name = _region_name(construct)
    if keys is None:
        return f"{name} is NULL"
    if construct.ranks is not None:
        return _ranked_region(name, construct, *keys)
    if construct.constants is not None:
        return _text_region(name, tuple(map(str, construct.constants)), *keys)
    if keys[0] == keys[1]:
        return f"{name} = {value_of(construct.operand.type, keys[0])}"
    return f"{name} {_range(construct, *keys)}"


def _range(construct: RegionConstruct, low: int, high: int) -> str:
    left, opens = _bound(construct, low, -1)
    right, closes = _bound(construct, high, 1)
    if low == LOWEST and high == HIGHEST:
        return "is not NULL"
    if low == LOWEST:
        return f"{'<' if closes else '<='} {right}"
    if high == HIGHEST:
        return f"{'>' if opens else '>='} {left}"
    return f"in {'(' if opens else '['}{left}, {right}{')' if closes else ']'}"


def _bound(construct: RegionConstruct, key: int, step: int) -> tuple[Any, bool]:
    """Return a bound of a region, and whether it is outside: of floats the shorter to write."""
    kind = construct.operand.type
    if kind.family != "float":
        return value_of(kind, key), False
    inside = value_of(kind, key)
    outside = value_of(kind, max(LOWEST, min(HIGHEST, key + step)))
    return (outside, True) if len(str(outside)) < len(str(inside)) else (inside, False)


def _ranked_region(name: str, construct: RegionConstruct, low: int, high: int) -> str:
    """Return a region of ranks in words: an odd one is a constant, an even one lies below it."""
    kind, constants = construct.operand.type, construct.constants or ()
    shown = [
        repr(each) if isinstance(each, str) else str(value_of(kind, each)) for each in constants
    ]
    if low == high and low % 2:
        return f"{name} = {shown[low // 2]}"
    left = shown[(low - 1) // 2] if low > 0 else ""
    right = shown[high // 2] if high < 2 * len(shown) else ""
    if not left and not right:
        return f"{name} is not NULL"
    if not left:
        return f"{name} {'<=' if high % 2 else '<'} {right}"
    if not right:
        return f"{name} {'>=' if low % 2 else '>'} {left}"
    return f"{name} in {'[' if low % 2 else '('}{left}, {right}{']' if high % 2 else ')'}"


def _text_region(name: str, constants: tuple[str, ...], low: int, high: int) -> str:
    named = [repr(text) for text in constants[max(low, 0) : high + 1]]
    if low < 0:
        return f"{name} is any other text"
    if len(named) == 1:
        return f"{name} = {named[0]}"
    more = f", … {len(named) - MAX_CONSTANTS:,} more" if len(named) > MAX_CONSTANTS else ""
    return f"{name} in ({', '.join(named[:MAX_CONSTANTS])}{more})"


# -- tests ------------------------------------------------------------------------------------


def _tests(program: Program, total: SharingProfile) -> tuple[TestView, ...]:
    found = []
    ranked = np.lexsort((-total.asked, -total.asked_ns)).tolist()
    asked = [at for at in ranked if not isinstance(program.externals[at].test, Raise)]
    for at in asked[:MAX_TESTS]:
        n_rows = int(total.asked[at])
        users = program.rules_that_ask([at])
        found.append(
            TestView(
                text=test_text(program.externals[at].test),
                n_rows=n_rows,
                share=_ratio(n_rows, total.n_rows),
                cost_ns=_ratio(total.asked_ns[at], n_rows),
                users=tuple(program.names[rule] for rule in users[:MAX_USERS].tolist()),
                n_users=len(users),
            )
        )
    return tuple(found)


def _natives(program: Program) -> tuple[NativeView, ...]:
    constructs = {each.operand.sql: at for at, each in enumerate(program.regions)}
    found = []
    for native in program.natives:
        users = np.flatnonzero(program.reads_regions[:, constructs[native.sql]])
        named = tuple(program.names[rule] for rule in users[:MAX_USERS].tolist())
        found.append(NativeView(native.sql, native.reason, named, len(users)))
    return tuple(found)


def _patterns(program: Program, plan: SharingPlan, total: SharingProfile) -> tuple[TestView, ...]:
    tests = _pattern_tests(program)
    witnessed: dict[int, list[str]] = defaultdict(list)
    for rule, witness in enumerate(plan.witnesses):
        for pattern in {p for literal in witness or () for p in _patterns_of(program, literal)}:
            witnessed[pattern].append(program.names[rule])
    ranked = np.argsort(-total.pattern_counts, kind="stable").tolist()
    shown = [pattern for pattern in ranked if pattern in witnessed][:MAX_TESTS]
    return tuple(
        TestView(
            text=tests.get(pattern, f"pattern {pattern}"),
            n_rows=int(total.pattern_counts[pattern]),
            share=_ratio(total.pattern_counts[pattern], total.n_sampled),
            cost_ns=float("nan"),
            users=tuple(witnessed[pattern][:MAX_USERS]),
            n_users=len(witnessed[pattern]),
        )
        for pattern in shown
    )


def _patterns_of(program: Program, literal: int) -> tuple[int, ...]:
    """Return the patterns that show a literal."""
    kind, place = program.literals.kinds[literal], int(program.literals.places[literal])
    if kind == REGION:
        return ()
    return (place,) if kind == TEXT else program.externals[place].needs


def _pattern_tests(program: Program) -> Mapping[int, str]:
    """Return what each pattern is, in words."""
    found: dict[int, str] = {}
    for literal in np.flatnonzero(program.literals.kinds == TEXT).tolist():
        test = program.tests[program.test_of[literal]]
        found[int(program.literals.places[literal])] = test_text(test)
    for external in program.externals:
        if isinstance(external.test, ValueTest) and len(external.needs) == len(external.test.needs):
            found.update(
                (pattern, test_text(need))
                for pattern, need in zip(external.needs, external.test.needs, strict=True)
            )
    return found


def test_text(test: Any) -> str:
    """Return a test as a person would write it."""
    if isinstance(test, TextTest):
        parts = "".join(
            part if isinstance(part, str) else ("%" if part.what == ANY else "_")
            for part in test.parts
        )
        return f"{_name(test.operand.sql, folded=test.folded)} LIKE {parts!r}"
    if isinstance(test, ValueTest):
        verb = "RLIKE" if test.kind == "regex" else "IN NETWORK"
        return f"{test.operand.sql} {verb} {test.pattern!r}"
    if isinstance(test, FunctionTest):
        return test.predicate.text
    return str(test)
