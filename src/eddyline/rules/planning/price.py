"""What a plan of rules costs a row by the rates of literals: by what plans are chosen by.

Sequences of bitmap blocks, which texts are looked at once for each value, and the order of tests of
Python are not in it: no rate of a single literal tells them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.rules.planning.access_predicates import (
    LOOK_UP_NS,
    MEAN_LOOK_UPS,
    PAIR_NS,
    WALK_NS,
    WORD_NS,
    let_through,
)

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats
    from eddyline.rules.compile.program import Program
    from eddyline.rules.plan import SharingPlan


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
