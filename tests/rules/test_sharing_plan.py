"""Plans as values."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError

import pytest

from eddyline.rules.plan import BlockPlan, SharingPlan
from eddyline.rules.planning.sequence import SelectionSequence

PLAN = SharingPlan(
    ((1, 2), None, None, (0,), None),
    (BlockPlan((1, 2), SelectionSequence((1, 0))),),
    frozenset({0}),
)


def test_counts_and_words():
    assert (PLAN.n_witnessed, PLAN.n_blocked) == (2, 2)
    assert str(PLAN) == (
        "2 by a witness, 2 in 1 block(s), 1 met by every row or by none, "
        "1 attribute(s) by distinct value"
    )
    assert str(SharingPlan(())) == "no rules"
    assert str(SharingPlan((None,))) == "1 met by every row or by none"


def test_is_a_value():
    there = pickle.loads(pickle.dumps(PLAN))
    assert there == PLAN
    assert hash(there) == hash(PLAN)
    assert SharingPlan(PLAN.witnesses, (BlockPlan((1, 2)),), PLAN.by_value) != PLAN
    with pytest.raises(FrozenInstanceError):
        PLAN.blocks = ()
