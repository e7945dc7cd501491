from __future__ import annotations

import numpy as np
from benchmarks.rules.sequences import RearrangementOptions, SequencePolicy

from eddyline.rules.match.matcher import Selection
from eddyline.rules.planning.sequence_learning import RegionSample, macro
from tests.oracles.rule_data import rules_q1, zipf_rows


def test_policy_learns_again_after_a_shift() -> None:
    rules = rules_q1(4, point_frac=0.5, width=3, spread=60.0)
    block = rules.block()
    before, after = zipf_rows(30_000, 10, 1), zipf_rows(30_000, 10, 2)[::-1].copy()
    options = RearrangementOptions(review_rows=5000, min_change=0.05, sample_rows=1000)
    policy = SequencePolicy(block, options)
    learned, nulls = [], np.zeros((10, 5000), bool)
    for batch in np.split(np.concatenate([before, after], axis=1), 12, axis=1):
        keys = np.ascontiguousarray(batch)
        wanted = np.arange(min(policy.n_wanted, 5000))
        learned.append(policy.learn(block.regions(keys, nulls, wanted)) if len(wanted) else False)
        policy.observe(Selection(block, policy.sequence).select(keys, nulls).counts)
    assert learned[0]
    assert not any(learned[1:6])
    assert learned[7]
    assert policy.n_wanted == 0
    everything = np.arange(after.shape[1])
    sample = RegionSample.from_regions(
        block, block.regions(after, np.zeros_like(after, bool), everything)
    )
    assert sample.cost(policy.sequence.macro) <= 1.03 * sample.cost(macro(sample).macro)
