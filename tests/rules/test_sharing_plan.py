"""Plans as values."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError

import pytest

from eddyline.rules.plan import BitmapBlockPlan, SelectionSequence, SharingPlan

PLAN = SharingPlan(
    ((1, 2), None, None, (0,), None),
    (BitmapBlockPlan((1, 2), SelectionSequence((1, 0))),),
    frozenset({0}),
)


def test_counts_and_words():
    assert (PLAN.n_accessed, PLAN.n_blocked) == (2, 2)
    assert str(PLAN) == (
        "2 by an access predicate, 2 in 1 bitmap block, 1 without an access predicate, "
        "1 attribute by distinct value"
    )
    assert str(SharingPlan(())) == "no rules"
    assert str(SharingPlan((None,))) == "1 without an access predicate"


def test_is_a_value():
    there = pickle.loads(pickle.dumps(PLAN))
    assert there == PLAN
    assert hash(there) == hash(PLAN)
    assert SharingPlan(PLAN.access_predicates, (BitmapBlockPlan((1, 2)),), PLAN.by_value) != PLAN
    with pytest.raises(FrozenInstanceError):
        PLAN.blocks = ()
