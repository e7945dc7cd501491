from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest

from eddyline.errors import OptionError
from tests.oracles.star import N_KEYS, StarStream


@pytest.mark.parametrize(
    ("n", "a", "b"),
    [
        (2, 0.05, 1.0), (2, 0.95, 0.0526), (6, 0.5, 0.6310),
        (6, 0.95, 0.5549), (8, 0.1, 0.9057), (8, 0.95, 0.6566),
    ],
)  # fmt: skip
def test_skewed_classes_pass_equally_often_and_filters_look_alike(n, a, b):
    fracs = np.array(StarStream.skewed(n, a).pass_fracs)
    assert fracs[0, 1] == pytest.approx(b, abs=1e-4)
    np.testing.assert_allclose(fracs.prod(axis=0), 0.05)
    np.testing.assert_allclose(fracs.mean(axis=1), (a + b * (n - 1)) / n, atol=1e-4)


@pytest.mark.parametrize("aggregate", [0.05, 0.2, 0.35, 0.9])
def test_the_aggregate_of_random_pass_fractions_is_met(aggregate):
    stream = StarStream.random(6, 3, aggregate)
    fracs = np.array(stream.pass_fracs)
    assert fracs.prod(axis=0).mean() == pytest.approx(aggregate, abs=1e-6)
    assert not stream.draw(20_000).drops.all()
    passed = (~stream.draw(20_000).drops).all(axis=1).mean()
    assert passed == pytest.approx(aggregate, abs=0.02)


def test_drawn_rows_pass_as_often_as_the_table_says():
    stream = StarStream(pass_fracs=((0.1, 0.9), (0.5, 0.0), (1.0, 0.3)), weights=(3, 1), seed=2)
    rows = stream.draw(40_000)
    assert (rows.classes == 0).mean() == pytest.approx(0.75, abs=0.01)
    for c in (0, 1):
        passes = ~rows.drops[rows.classes == c]
        np.testing.assert_allclose(
            passes.mean(axis=0), np.array(stream.pass_fracs)[:, c], atol=0.02
        )
    np.testing.assert_array_equal(rows.keys >= N_KEYS, rows.drops)
    assert rows.values.shape == (40_000, 9)
    np.testing.assert_array_equal(rows.values[:, 0], rows.classes)


def test_table_sample_and_predicates_tell_the_same():
    stream = StarStream.random(3, 5, n_noise=4)
    rows, sample, table = stream.draw(500), stream.sample(500), stream.table(500)
    np.testing.assert_array_equal(sample.bits(3), rows.drops)
    assert (
        sample.attributes
        == stream.attributes
        == ("attr_c", "constant0", "sequence1", "key2", "few3")
    )
    for f, predicate in enumerate(stream.predicates):
        passes = predicate(table[predicate.column].combine_chunks())
        np.testing.assert_array_equal(~passes.to_numpy(zero_copy_only=False), rows.drops[:, f])
        assert predicate.sql() == f"fk{f} < 10000.0"
    for k, name in enumerate(stream.attributes):
        np.testing.assert_array_equal(table[name].to_numpy(), sample.values[:, k])
    assert isinstance(table, pa.Table)


def test_noise_is_of_the_kinds_that_the_paper_names():
    values = StarStream.skewed(4, 0.5, seed=1).draw(2000).values
    distinct = [len(np.unique(column)) for column in values.T]
    assert distinct[:2] == [4, 1]
    assert distinct[2] == 2000
    assert 1500 < distinct[3] < 2000
    assert distinct[4] == 24
    assert distinct[1:5][::1] != distinct[5:]  # the second keys are others
    assert not np.array_equal(values[:, 3], values[:, 7])


def test_the_same_object_draws_the_same_rows():
    stream = StarStream.random(4, 8)
    again = pickle.loads(pickle.dumps(stream))
    np.testing.assert_array_equal(stream.draw(100).keys, again.draw(100).keys)
    assert not np.array_equal(stream.draw(100).keys, StarStream.random(4, 9).draw(100).keys)


def test_costs_of_orders():
    stream = StarStream(pass_fracs=((0.5, 0.2), (0.5, 1.0)), weights=(1, 3))
    assert stream.cost([(0, 1), (0, 1)]) == pytest.approx(0.25 * 1.5 + 0.75 * 1.2)
    assert stream.best_orders(np.array([10.0, 1.0])) == [(1, 0), (0, 1)]
    assert stream.cost_per_class(np.array([10.0, 1.0])) == pytest.approx(0.25 * 6 + 0.75 * 10.2)
    assert stream.cost_of_one_order() <= min(stream.cost([o, o]) for o in [(0, 1), (1, 0)]) + 1e-9


@pytest.mark.parametrize(
    "given",
    [
        {"pass_fracs": ()},
        {"pass_fracs": ((),)},
        {"pass_fracs": ((0.5,), (0.5, 0.5))},
        {"pass_fracs": ((1.5,),)},
        {"pass_fracs": ((0.5,),), "weights": (1.0, 1.0)},
        {"pass_fracs": ((0.5,),), "weights": (0.0,)},
        {"pass_fracs": ((0.5,),), "seed": -1},
        {"pass_fracs": ((0.5,),), "n_noise": -1},
    ],
)
def test_what_is_no_stream(given):
    with pytest.raises(OptionError):
        StarStream(**given)


T7 = [
    # N, A, B, calls of one order, calls if the order of each class is known
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


@pytest.mark.parametrize(("n", "a", "b", "single", "known"), T7)
def test_t7_the_analytic_columns(n, a, b, single, known):
    stream = StarStream.skewed(n, a, seed=n, n_noise=0)
    assert stream.pass_fracs[0][1] == pytest.approx(b, abs=1e-4)
    assert stream.cost_of_one_order() == pytest.approx(single, abs=1e-3)
    assert stream.cost_per_class() == pytest.approx(known, abs=1e-4)
