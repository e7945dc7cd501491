from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eddyline.ordering.a_greedy import AGreedyOptions
from eddyline.ordering.local_swaps import LocalSwapsOptions
from eddyline.ordering.protocol import FixedOptions
from eddyline.ordering.sweep import SweepOptions
from eddyline.testing.generators import CorrelatedStream
from eddyline.testing.simulation import run_batch, simulate
from tests.oracles import profile_strategies as strategies
from tests.oracles.conjunctions import count_evaluations

POLICIES = st.sampled_from([AGreedyOptions(), SweepOptions(), LocalSwapsOptions(), FixedOptions()])


@given(strategies.drops(), POLICIES, st.data())
def test_counts_of_a_batch(drops, options, data):
    n_rows, n = drops.shape
    order = data.draw(strategies.orders(n))
    sampled = np.flatnonzero(data.draw(st.lists(st.booleans(), min_size=n_rows, max_size=n_rows)))
    policy = options.build(n, np.random.default_rng(0))
    batch = run_batch(drops, order, policy, np.ones(n), sampled, prob=0.5)

    assert batch.n_rows == n_rows
    assert batch.n_kept == (~drops.any(axis=1)).sum()
    assert batch.n_evaluations - batch.n_extra == count_evaluations(drops, order)
    assert batch.rows_in.sum() == count_evaluations(drops, order)
    assert batch.rows_in[order[0]] == n_rows
    assert batch.rows_out[order[-1]] == batch.n_kept
    assert batch.n_tuples + batch.passed / 2 == len(sampled)
    assert batch.costs.total_ns.sum() == batch.n_evaluations
    assert batch.basis == (None if policy.needs_all_bits else order)


def test_simulation_adopts_proposals_and_repeats_itself():
    stream = CorrelatedStream(pass_fracs=(0.9, 0.5, 0.1), group_size=1)
    batches = np.split(~stream.passes(30_000), 10)
    first, second = (
        list(simulate(AGreedyOptions(), batches, np.ones(3), prob=0.05)) for _ in range(2)
    )
    assert [step.order for step in first] == [step.order for step in second]
    assert first[0].order == (0, 1, 2)
    assert first[-1].order == (2, 1, 0)
    assert first[-1].work_ns < first[0].work_ns
