"""The slow oracles on the worked examples T3 to T11 of the specification."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.testing.reference import conjunction
from eddyline.testing.reference_routing import (
    TupleContentLearns,
    TupleSourceBased,
    content_knows,
    initial,
    running,
)
from eddyline.testing.star import StarStream


def test_t4_running_pass_fractions():
    assert running(0.40, True) == pytest.approx(0.43)
    assert running(0.40, False) == pytest.approx(0.38)
    assert running(0.0, True) == pytest.approx(0.05)
    assert running(running(0.0, True), True) == pytest.approx(0.0975)
    frac = 0.7
    for _ in range(20):
        frac = running(frac, False)
    assert frac == pytest.approx(0.7 * 0.95**20)


def test_t5_a_bucket_without_tuples_starts_at_the_overall_fraction():
    assert initial([10, 0, 5], [1, 0, 5], 0.30) == [0.10, 0.30, 1.00]


def learner(n_filters, sizes, **given_):
    return TupleContentLearns(n_filters, sizes, np.random.default_rng(0), **given_)


def example_6():
    router = learner(3, [3], profile_prob=0.0)
    router.pass_fracs = [0.30, 0.40, 0.60]
    router.classifier = [-1, 0, -1]
    router.by_bucket[1] = [0.10, 0.20, 0.90]
    return router


@pytest.mark.parametrize(("bucket", "order"), [(2, [0, 2, 1]), (0, [1, 0, 2])])
def test_t6_routing_decisions(bucket, order):
    taken = []

    class Watched(TupleContentLearns):
        def update(self, f, passes, buckets):
            taken.append(f)

    router = example_6()
    router.__class__ = Watched
    assert router.process([False] * 3, [bucket])
    assert taken == order


def test_t6_what_is_next_depends_on_what_is_left():
    router = example_6()
    assert min([1, 2], key=lambda f: router.pass_frac(f, [2])) == 2


T7 = [
    # N, A, B, calls of one order, calls of the oracle
    (2, 0.05, 1.0000, 1.5250, 1.0500),
    (2, 0.50, 0.1000, 1.3000, 1.1000),
    (2, 0.95, 0.0526, 1.5013, 1.0526),
    (4, 0.05, 1.0000, 2.5750, 1.1500),
    (6, 0.05, 1.0000, 3.6250, 1.2500),
    (6, 0.50, 0.6310, 2.4241, 2.2194),
    (6, 0.95, 0.5549, 2.4573, 2.1813),
    (8, 0.05, 1.0000, 4.6750, 1.3500),
    (8, 0.95, 0.6566, 3.0670, 2.8117),
]


@pytest.mark.parametrize(("n", "a", "b", "single", "oracle"), T7)
def test_t7_simulated_calls_match_the_analytic_columns(n, a, b, single, oracle):
    stream = StarStream.skewed(n, a, seed=n, n_noise=0)
    assert stream.pass_fracs[0][1] == pytest.approx(b, abs=1e-4)
    assert stream.cost_of_one_order() == pytest.approx(single, abs=1e-3)
    assert stream.cost_per_class() == pytest.approx(oracle, abs=1e-4)
    n_rows = 100_000
    rows = stream.draw(n_rows)
    drops, none = rows.drops.tolist(), [()] * n_rows
    source = TupleSourceBased(n)
    source.run(drops, none)
    assert source.n_evaluations / n_rows == pytest.approx(single, rel=0.005)
    known = content_knows(drops, rows.classes.tolist(), stream.best_orders())
    assert known / n_rows == pytest.approx(oracle, rel=0.005)


def improvement(stream, n_rows, **given_):
    rows = stream.draw(n_rows)
    drops = rows.drops.tolist()
    values = np.nan_to_num(rows.values).astype(int) % 24
    sizes = [24] * values.shape[1]
    source = TupleSourceBased(stream.n_filters)
    source.run(drops, [()] * n_rows)
    learns = learner(stream.n_filters, sizes, **given_)
    learns.run(drops, values.tolist())
    return 1 - learns.n_evaluations / source.n_evaluations


def test_t8_content_learns_in_the_best_case():
    stream = StarStream.skewed(8, 0.05, seed=1)
    assert 0.60 < improvement(stream, 100_000) < 0.66


def test_t8_content_learns_falls_short_where_the_skew_is_moderate():
    # 150 tuples in 24 buckets confuse the class with attributes that say nothing
    streams = [StarStream.random(6, seed) for seed in range(3)]
    learned = [improvement(stream, 30_000) for stream in streams]
    known = [1 - stream.cost_per_class() / stream.cost_of_one_order() for stream in streams]
    assert 0.0 < np.mean(learned) < np.mean(known)


def test_t9_one_filter_and_no_attributes_are_source_based():
    rng = np.random.default_rng(3)
    drops = (rng.random((3000, 1)) < 0.5).tolist()
    learns, source = learner(1, [3]), TupleSourceBased(1)
    learns.run(drops, rng.integers(0, 3, (3000, 1)).tolist())
    source.run(drops, [()] * 3000)
    assert learns.n_evaluations == source.n_evaluations == 3000
    drops = (rng.random((3000, 4)) < 0.5).tolist()
    learns, source = learner(4, []), TupleSourceBased(4)
    learns.run(drops, [()] * 3000)
    source.run(drops, [()] * 3000)
    assert learns.n_evaluations == source.n_evaluations


def test_t9_a_constant_attribute_is_never_a_classifier():
    rng = np.random.default_rng(4)
    learns = learner(3, [1], gamma=0.0)
    learns.run((rng.random((20_000, 3)) < 0.5).tolist(), [(0,)] * 20_000)
    assert learns.classifier == [-1, -1, -1]


def test_t10_fractions_by_bucket_fall_back_to_the_overall_one():
    rng = np.random.default_rng(5)
    learns, d, w = learner(1, [8], profile_prob=0.0), 8, 0.4
    learns.classifier, learns.by_bucket = [0], [[0.99, 0.01] * 4]
    n_rows = 90 * d * 2
    buckets = rng.integers(0, d, (n_rows, 1)).tolist()
    learns.run((rng.random((n_rows, 1)) >= w).tolist(), buckets)
    spread = np.sqrt((1 - 0.95) / (1 + 0.95)) * np.sqrt(w * (1 - w))
    fracs = np.array(learns.by_bucket[0])
    assert spread == pytest.approx(0.0784, abs=1e-3)
    assert (np.abs(fracs - w) < 4 * spread).all()
    assert abs(fracs.mean() - w) < 4 * spread / np.sqrt(d)


@given(st.integers(1, 4), st.integers(0, 2), st.integers(0, 10**6))
def test_t11_whatever_is_learned_the_conjunction_is_emitted(n_filters, n_attributes, seed):
    rng = np.random.default_rng(seed)
    drops = rng.random((200, n_filters)) < rng.random(n_filters)
    buckets = rng.integers(0, 3, (200, n_attributes)).tolist()
    learns = learner(n_filters, [3] * n_attributes, gamma=0.0, profile_prob=0.5, n_sample=10)
    learns.classifier = rng.integers(-1, n_attributes, n_filters).tolist()
    learns.by_bucket = rng.random((n_filters, 3)).tolist()
    emitted = learns.run(drops.tolist(), buckets)
    rows = [{"row": place, "bits": bits} for place, bits in enumerate(drops.tolist())]
    predicates = [lambda row, f=f: not row["bits"][f] for f in range(n_filters)]
    assert emitted == [row["row"] for row in conjunction(rows, predicates)]
    assert learns.n_evaluations <= 200 * n_filters


def test_the_oracle_needs_the_order_of_the_right_class():
    stream = replace(StarStream.skewed(4, 0.05), n_noise=0)
    rows = stream.draw(5000)
    right = content_knows(rows.drops.tolist(), rows.classes.tolist(), stream.best_orders())
    shifted = ((rows.classes + 1) % 4).tolist()
    assert right < 0.6 * content_knows(rows.drops.tolist(), shifted, stream.best_orders())
