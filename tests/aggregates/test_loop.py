"""Where rows become cells, and where cells are answered: the plan by what batches showed."""

from __future__ import annotations

import msgspec
import pytest

from eddyline.aggregates.loop import FEW, FEW_BYTES, AggregateLoop
from eddyline.aggregates.profile import AggregateProfile
from eddyline.errors import StateError


def plans_after(loop, *profiles):
    """Return the plan after each batch."""
    found = []
    for number, profile in enumerate(profiles):
        before, entries = loop.plan, loop.step(profile, number)
        assert [(each.before, each.after) for each in entries] == (
            [] if loop.plan == before else [(before, loop.plan)]
        )
        assert all(each.evidence["n_handled"] == profile.n_handled for each in entries)
        found.append(loop.plan)
    return found


def batch(n_cells, rows_per_cell=3.0, **more):
    return AggregateProfile(int(n_cells * rows_per_cell), n_cells, **more)


@pytest.mark.parametrize(
    ("profile", "plan"),
    [
        (batch(1), "driver"),
        (batch(FEW), "driver"),
        (batch(FEW + 1), "early"),
        (batch(10, n_read=FEW), "early"),
        (batch(10, n_results=FEW), "early"),
        (batch(10, n_bytes=FEW_BYTES + 1), "early"),
        (batch(FEW + 1, 1.0), "late"),
        (batch(FEW, 1.0), "driver"),
        (AggregateProfile(), "early"),
    ],
)
def test_few_cells_are_answered_by_the_driver(profile, plan):
    assert plans_after(AggregateLoop(), profile) == [plan]


def test_it_takes_twice_as_many_to_leave_the_driver():
    batches = batch(10), batch(2 * FEW), AggregateProfile(), batch(2 * FEW + 1), batch(2 * FEW)
    assert plans_after(AggregateLoop(), *batches) == ["driver"] * 3 + ["early"] * 2


def test_who_leaves_the_driver_goes_by_the_rows_of_a_cell():
    assert plans_after(AggregateLoop(), batch(10), batch(3 * FEW, 1.0)) == ["driver", "late"]
    between = plans_after(AggregateLoop(), batch(10, 1.5), batch(3 * FEW, 1.5))
    assert between == ["driver", "early"], "of which it is the one as written"


def test_cells_that_grow_with_their_rows_are_never_fetched():
    loop = AggregateLoop(plans=("early", "late"))
    assert plans_after(loop, batch(10), batch(5_000, 1.0), batch(10)) == ["early", "late", "late"]
    saved = msgspec.to_builtins(AggregateLoop(plan="driver").snapshot())
    with pytest.raises(StateError, match="no plan 'driver'"):
        loop.restore(saved)


def test_switched_off_nothing_is_decided():
    assert (
        plans_after(AggregateLoop(adaptive=False), batch(10), batch(9 * FEW, 1.0)) == ["early"] * 2
    )
