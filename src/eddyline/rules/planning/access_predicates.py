"""Choice of access predicates or bitmap blocks, rule by rule.

The access predicate of a rule is a set of literals, at least one of which is true whenever the rule
is. Only rows with such a literal are candidates, so rare literals make a rule cheap. Of an AND it
is the set of the rarest part, of an OR the union of the parts' sets. Rates of literals are measured
on sampled rows (``SharingProfile``), and guessed before there are any.

``price_ns`` is the cost of a plan per row by these rates. It leaves out what no rate of a single
literal tells: sequences of bitmap blocks, texts that are looked at once for each value, and the
order of Python tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.query.conditions import TRUE, IsNull, OneOf, TextTest
from eddyline.rules.compile.bitmap_block import MAX_RULES
from eddyline.rules.compile.formula import EXTERNAL, REGION, TEXT, All, Always, Literal
from eddyline.rules.plan import BitmapBlockPlan, SharingPlan

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from eddyline.data.arrays import Floats, Mask
    from eddyline.rules.compile.formula import Formula
    from eddyline.rules.compile.program import Literals, Program
    from eddyline.rules.plan import SharingProfile

PAIR_NS = 50.0
"""Time to meet a rule and to decide it for a row (ns), measured on two cores."""

LOOK_UP_NS = 7.0
"""Time to look a row up in a construct of a bitmap block (ns), its key included."""

WALK_NS = 9.0
"""Time to look a row up in a region construct with access predicates (ns), key included."""

WORD_NS = 0.5
"""Time to AND a word of 64 rules (ns)."""

MEAN_LOOK_UPS = 6
"""Constructs that a row is looked up in until no rule is left, if there are as many."""

MAX_BLOCKS = 256
"""Most bitmap blocks: building one takes some 30 ms, which every worker pays, up to 8 s."""

MIN_ROWS = 200
"""Sampled rows before their counts are believed."""

AccessPredicate = tuple[float, tuple[int, ...]]
"""Its rate among rows (0 to its number of literals), and its literals."""


def plan_of(
    program: Program, profile: SharingProfile | None = None, *, method: str = "auto"
) -> SharingPlan:
    """Return the cheapest plan, measured or guessed, its sequences not learned yet."""
    return plan_by(program, literal_rates(program, profile), method=method)


def plan_by(program: Program, rates: Floats, *, method: str = "auto") -> SharingPlan:
    """Return the cheapest plan by the rates of literals, its sequences not learned yet."""
    can = can_access(program)
    predicates = [
        cheapest_access_predicate(formula, rates, can) if program.constant[rule] < 0 else None
        for rule, formula in enumerate(program.formulas)
    ]
    if method == "every_row":
        predicates = [None] * len(predicates)
    blocked: set[int] = set()
    if method == "auto":
        blocked = _blocked(program, predicates, rates)
    elif method == "blocks":
        blocked = set(np.flatnonzero(program.constant < 0).tolist())
    kept = tuple(
        None if predicate is None or rule in blocked else predicate[1]
        for rule, predicate in enumerate(predicates)
    )
    return SharingPlan(kept, _blocks(program, sorted(blocked)))


def literal_rates(program: Program, profile: SharingProfile | None) -> Floats:
    """Return the share of rows for which each literal holds ([0, 1])."""
    if profile is None or profile.n_sampled < MIN_ROWS:
        return _guessed(program)
    # Half a row more: what was not seen in a sample is rare, not impossible.
    counted = counted_rates(program, profile) * profile.n_sampled
    return np.minimum(1.0, (counted + 0.5) / (profile.n_sampled + 1))


def counted_rates(program: Program, profile: SharingProfile) -> Floats:
    """Return the share of the sampled rows for which each literal holds, however few they are."""
    literals = program.literals
    rates = np.full(len(literals.kinds), 0.5)
    n_rows = profile.n_sampled
    sums = [
        profile.region_sums(number, construct.n_regions)
        for number, construct in enumerate(program.regions)
    ]
    for literal, (kind, place) in enumerate(
        zip(literals.kinds.tolist(), literals.places.tolist(), strict=True)
    ):
        if kind == TEXT:
            n_true = int(profile.pattern_counts[place])
            rates[literal] = n_true if literals.outcomes[literal] == TRUE else n_rows - n_true
        elif kind == REGION:
            first, last = literals.starts[literal], literals.starts[literal + 1]
            low, high = literals.low[first:last], literals.high[first:last]
            rates[literal] = int((sums[place][high + 1] - sums[place][low]).sum())
        else:  # a row is a candidate where it has something that the test needs
            needs = list(program.externals[place].needs)
            met = int(profile.pattern_counts[needs].sum())
            rates[literal] = min(met, n_rows) if needs else n_rows * 0.5
    shares: Floats = rates / max(n_rows, 1)
    return shares


def _guessed(program: Program) -> Floats:
    rates = np.empty(len(program.literals.kinds))
    outcomes = program.literals.outcomes.tolist()
    errors = program.errors
    for literal, test_id in enumerate(program.test_of.tolist()):
        test = program.tests[test_id]
        if isinstance(test, TextTest):
            size = sum(len(part) for part in test.parts if isinstance(part, str))
            true = max(1e-4, 0.75**size)
        elif isinstance(test, IsNull):
            true = 0.999 if test.operand.sql in errors else 0.1
        elif isinstance(test, OneOf) or getattr(test, "op", "") == "=":
            true = min(0.5, 0.01 * len(getattr(test, "values", "1")))
        else:
            true = 0.3
        rates[literal] = true if outcomes[literal] == TRUE else 1.0 - true
    return rates


def can_access(program: Program) -> Mask:
    """Return a mask of the literals that can be in access predicates: those that are looked up."""
    literals = program.literals
    has_needs = np.array([bool(external.needs) for external in program.externals] or [False])
    is_needed = has_needs[np.where(literals.kinds == EXTERNAL, literals.places, 0)]
    is_seen = (literals.kinds == TEXT) | ((literals.kinds == EXTERNAL) & is_needed)
    is_accessible: Mask = (literals.kinds == REGION) | (is_seen & (literals.outcomes == TRUE))
    return is_accessible


def is_access_predicate(formula: Formula, literals: Collection[int], can: Mask) -> bool:
    """Return whether some literals are an access predicate: one holds wherever the formula does."""
    if isinstance(formula, Literal):
        return formula.id in literals and bool(can[formula.id])
    if isinstance(formula, Always):
        return not formula.value
    holds = any if isinstance(formula, All) else all
    return holds(is_access_predicate(part, literals, can) for part in formula.parts)


def cheapest_access_predicate(formula: Formula, rates: Floats, can: Mask) -> AccessPredicate | None:
    """Return the rarest access predicate of a formula, or None if it has none."""
    if isinstance(formula, Literal):
        return (float(rates[formula.id]), (formula.id,)) if can[formula.id] else None
    if isinstance(formula, Always):
        return None
    predicates = [cheapest_access_predicate(part, rates, can) for part in formula.parts]
    if isinstance(formula, All):
        return min(
            (predicate for predicate in predicates if predicate is not None),
            default=None,
            key=lambda w: w[0],
        )
    present = [predicate for predicate in predicates if predicate is not None]
    if len(present) < len(predicates):
        return None
    joined = dict.fromkeys(literal for predicate in present for literal in predicate[1])
    return sum(predicate[0] for predicate in present), tuple(joined)


def _blocked(
    program: Program, predicates: Sequence[AccessPredicate | None], rates: Floats
) -> set[int]:
    """Return the rules that bitmaps find for less than their access predicates would."""
    savings = []
    for rule, access in enumerate(predicates):
        formula = program.formulas[rule]
        if program.constant[rule] >= 0 or not _deciders(formula, program.literals):
            continue
        met = 1.0 if access is None else min(1.0, access[0])
        share_left = let_through(formula, program.literals, rates)
        savings.append(((met - share_left) * PAIR_NS, rule))
    savings.sort(reverse=True)
    # Those that gain the most: as many as together save more than the block's look-ups take.
    n_looked_up = min(len(program.regions), MEAN_LOOK_UPS)
    best = gained = 0.0
    chosen = 0
    for count, (saved_ns, _) in enumerate(savings[: MAX_BLOCKS * MAX_RULES], 1):
        gained += saved_ns
        n_blocks = -(-count // MAX_RULES)
        net = gained - n_looked_up * (n_blocks * LOOK_UP_NS + count / 64 * WORD_NS)
        if count == len(predicates):  # then nothing is looked up for access predicates
            net += len(program.regions) * WALK_NS
        if net > best:
            best, chosen = net, count
    return {rule for _, rule in savings[:chosen]}


def let_through(formula: Formula, literals: Literals, rates: Floats) -> float:
    """Return the share of rows on which bitmaps let a rule through ([0, 1]).

    What is not on regions is taken to hold, and literals to be independent.
    """
    if isinstance(formula, Literal):
        return float(rates[formula.id]) if literals.kinds[formula.id] == REGION else 1.0
    if isinstance(formula, Always):
        return 1.0
    parts = [let_through(part, literals, rates) for part in formula.parts]
    return float(np.prod(parts)) if isinstance(formula, All) else min(1.0, sum(parts))


def _deciders(formula: Formula, literals: Literals) -> set[int]:
    """Return the region constructs each of which can rule a rule out."""
    if isinstance(formula, Literal):
        is_region = literals.kinds[formula.id] == REGION
        return {int(literals.places[formula.id])} if is_region else set()
    if isinstance(formula, Always):
        return set()
    deciders = [_deciders(part, literals) for part in formula.parts]
    return set.union(*deciders) if isinstance(formula, All) else set.intersection(*deciders)


def _blocks(program: Program, rules: Sequence[int]) -> tuple[BitmapBlockPlan, ...]:
    """Return bitmap blocks of rules that read the same constructs, as far as that goes."""
    reads = program.reads_regions
    alike = sorted(rules, key=lambda rule: (reads[rule].tobytes(), rule))
    return tuple(
        BitmapBlockPlan(tuple(alike[start : start + MAX_RULES]))
        for start in range(0, len(alike), MAX_RULES)
    )


def price_ns(program: Program, plan: SharingPlan, rates: Floats) -> float:
    """Return what the matcher takes for a row (ns).

    Args:
        program: the rules.
        plan: one of the matcher's.
        rates: the share of rows for which each literal holds ([0, 1]; (literals,)).
    """
    blocked = {rule for block in plan.blocks for rule in block.rules}
    pairs, n_walked = 0.0, 0
    for rule, access in enumerate(plan.access_predicates):
        if program.constant[rule] >= 0:
            continue
        if rule in blocked:
            pairs += let_through(program.formulas[rule], program.literals, rates)
            continue
        n_walked += 1
        pairs += 1.0 if access is None else min(1.0, float(rates[list(access)].sum()))
    n_looked_up = min(len(program.regions), MEAN_LOOK_UPS)
    looking = len(plan.blocks) * LOOK_UP_NS + len(blocked) / 64 * WORD_NS
    walking = len(program.regions) * WALK_NS if n_walked else 0.0
    return pairs * PAIR_NS + n_looked_up * looking + walking
