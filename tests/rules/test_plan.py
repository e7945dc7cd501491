"""Plans and sequences as values."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError

import msgspec
import pytest

from eddyline.errors import PlanError
from eddyline.rules.plan import Arrow, BitmapBlockPlan, SelectionSequence, SharingPlan

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


def test_a_plan_is_a_value():
    there = pickle.loads(pickle.dumps(PLAN))
    assert there == PLAN
    assert hash(there) == hash(PLAN)
    assert SharingPlan(PLAN.access_predicates, (BitmapBlockPlan((1, 2)),), PLAN.by_value) != PLAN
    with pytest.raises(FrozenInstanceError):
        PLAN.blocks = ()


FULL = SelectionSequence((2, 0, 1), (1, 0), (Arrow(2, 0, 3), Arrow(2, 4, 1), Arrow(3, 1, 4)))


def test_a_sequence_is_a_value() -> None:
    assert pickle.loads(pickle.dumps(FULL)) == FULL
    there = msgspec.json.decode(msgspec.json.encode(FULL), type=SelectionSequence)
    assert there == FULL
    assert len({FULL, there}) == 1
    assert FULL.is_hybrid
    assert FULL.without_arrows() == SelectionSequence((2, 0, 1))


def test_a_sequence_says_itself_in_words() -> None:
    assert FULL.in_words(["a", "b", "c"]) == [
        "c, a, b",
        "c in region 0: b next",
        "c in region 4: b next",
        "c in region 0 and b in region 1: a next",
    ]
    named = FULL.in_words(["a", "b", "c"], lambda c, r: f"{'abc'[c]} = {10 * r}")
    assert named[2] == "c = 40: b next"


@pytest.mark.parametrize(
    "given",
    [
        {"macro": (0, 0)},
        {"macro": (1, 2)},
        {"macro": (0, 1), "further": (2,)},
        {"macro": (0, 1), "arrows": (Arrow(2, 0, 0),)},
        {"macro": (0, 1), "arrows": (Arrow(0, 0, 2),)},
        {"macro": (0, 1), "arrows": (Arrow(0, -1, 1),)},
        {"macro": (0, 1), "arrows": (Arrow(0, 1, 1), Arrow(0, 1, 0))},
        {"macro": (0, 1), "arrows": (Arrow(1, 0, 0), Arrow(0, 0, 1))},
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(PlanError):
        SelectionSequence(**given)  # type: ignore[arg-type]
