"""Reads saved plans.

A plan from a file is checked against its program: an access predicate that a rule does not have, or
a rule in two places, would change answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from eddyline.errors import EddylineError, StateError
from eddyline.rules.compile.formula import All, Always, Literal
from eddyline.rules.plan import SharingPlan
from eddyline.rules.planning.access_predicates import can_access

if TYPE_CHECKING:
    from collections.abc import Collection

    from eddyline.data.arrays import Mask
    from eddyline.rules.compile.bitmap_blocks import BitmapBlocks
    from eddyline.rules.compile.formula import Formula


def plan_from(state: Any, blocks: BitmapBlocks) -> SharingPlan:
    """Return a plan that was decoded from JSON.

    Raises:
        StateError: it is damaged, or of another program.
    """
    try:
        plan = msgspec.convert(state, SharingPlan)
        _check(plan, blocks)
    except (EddylineError, ValueError, IndexError) as error:
        msg = f"the saved plan does not fit the rules: {error}"
        raise StateError(msg) from error
    return plan


def _check(plan: SharingPlan, blocks: BitmapBlocks) -> None:
    """Raise ValueError if a plan could change an answer of a program."""
    program = blocks.program
    if len(plan.access_predicates) != program.n_rules:
        msg = f"{len(plan.access_predicates)} access predicates for {program.n_rules} rules"
        raise ValueError(msg)
    blocked = [rule for block in plan.blocks for rule in block.rules]
    in_blocks = set(blocked)
    fits = all(0 <= rule < program.n_rules and program.constant[rule] < 0 for rule in blocked)
    if not fits or len(in_blocks) < len(blocked):
        msg = "a bitmap block has a rule that is not its own"
        raise ValueError(msg)
    can = can_access(program)
    for rule, access in enumerate(plan.access_predicates):
        if access is None:
            continue
        is_free = program.constant[rule] < 0 and rule not in in_blocks
        if not is_free or not is_access_predicate(program.formulas[rule], set(access), can):
            msg = f"literals {access} are no access predicate of rule {program.names[rule]!r}"
            raise ValueError(msg)
    for block in plan.blocks:
        if block.sequence is not None:
            blocks.of(block.rules).check(block.sequence)


def is_access_predicate(formula: Formula, literals: Collection[int], can: Mask) -> bool:
    """Return whether some literals are an access predicate: one holds wherever the formula does.

    Those that can be in access predicates are told by the mask ``can``.
    """
    if isinstance(formula, Literal):
        return formula.id in literals and bool(can[formula.id])
    if isinstance(formula, Always):
        return not formula.value
    holds = any if isinstance(formula, All) else all
    return holds(is_access_predicate(part, literals, can) for part in formula.parts)
