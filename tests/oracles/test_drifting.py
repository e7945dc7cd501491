from __future__ import annotations

import pickle

import numpy as np
import pytest

from eddyline.errors import OptionError
from eddyline.ordering.protocol import expected_cost_ns
from eddyline.testing.generators import CorrelatedStream
from tests.oracles.drifting import DriftingStream, copy_probs


def some(**given):
    return DriftingStream(**{"n_filters": 6, "period_rows": 5000, "n_changes": 3, **given})


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n_affected", [1, 3, 6])
def test_each_change_alters_so_many_filters_by_at_least_the_step(seed, n_affected):
    stream = some(seed=seed, n_changes=10, n_affected=n_affected)
    levels = stream.levels()
    assert levels.shape == (11, 6)
    assert (levels[0] == 0.5).all()
    for number in range(10):
        step = np.abs(levels[number + 1] - levels[number])
        assert len(stream.affected(number)) == n_affected == (step > 0).sum()
        assert step[step > 0].min() >= 0.2 - 1e-12
    assert levels.min() >= 0.1
    assert levels.max() <= 0.9


def test_new_fractions_fill_what_is_allowed():
    fracs = [some(seed=seed, n_changes=1, n_affected=6).levels()[1] for seed in range(400)]
    counts, _ = np.histogram(np.concatenate(fracs), bins=[0.1, 0.2, 0.3, 0.3001, 0.6999, 0.8, 0.9])
    assert counts[3] == 0
    assert counts[[0, 1, 4, 5]].min() > 500  # 600 expected, standard deviation about 21


def test_abrupt_changes_begin_at_their_row():
    stream = some(seed=3)
    for point, (before, after) in zip(
        stream.change_points, zip(stream.levels(), stream.levels()[1:], strict=False), strict=True
    ):
        fracs = stream.pass_fracs([point - 1, point])
        assert (fracs == [before, after]).all()


def test_ramps_are_linear_and_end():
    stream = some(seed=3, ramp_rows=1000)
    before, after = stream.levels()[:2]
    rows = 5000 + np.array([-1, 0, 250, 500, 1000, 4999])
    done = np.array([0, 0, 0.25, 0.5, 1, 1])[:, None]
    expected = (1 - done) * before + done * after
    assert stream.pass_fracs(rows) == pytest.approx(expected)


@pytest.mark.large
@pytest.mark.parametrize("ramp_rows", [0, 2000])
@pytest.mark.parametrize("batch_rows", [1, 49, 51, 4096, 20_000])
def test_rows_do_not_depend_on_the_cut(ramp_rows, batch_rows):
    # Four periods, and one row of a batch takes as long as all of a large one.
    period_rows = 250 if batch_rows == 1 else 5000
    stream = some(seed=1, period_rows=period_rows, ramp_rows=ramp_rows * period_rows // 10_000)
    whole = stream.passes()
    assert len(whole) == stream.n_rows
    assert (np.concatenate(list(stream.batches(batch_rows))) == whole).all()
    some_rows = slice(stream.n_rows // 5, stream.n_rows // 5 + 200)
    assert (stream.passes(some_rows.start, some_rows.stop) == whole[some_rows]).all()


@pytest.mark.parametrize("ramp_rows", [0, 20_000])
def test_rows_pass_as_often_as_they_should(ramp_rows):
    stream = some(seed=2, period_rows=20_000, ramp_rows=ramp_rows, n_affected=4)
    expected = stream.pass_fracs(np.arange(stream.n_rows))
    passes = stream.passes()
    for start in range(0, stream.n_rows, 10_000):
        of = slice(start, start + 10_000)
        error = passes[of].mean(axis=0) - expected[of].mean(axis=0)
        assert np.abs(error).max() < 4.5 * 0.5 / np.sqrt(10_000)


@pytest.mark.parametrize("pass_frac", [0.2, 0.5, 0.9])
def test_the_model_is_that_of_correlated_stream(pass_frac):
    stream = some(n_changes=0, start_frac=pass_frac, period_rows=60_000, seed=5)
    passes = stream.passes()
    agree = (passes[:, 0] == passes[:, 1]).mean()
    by_chance = pass_frac**2 + (1 - pass_frac) ** 2
    assert agree == pytest.approx(max(0.8, by_chance), abs=0.01)
    assert (passes[:, 1] == passes[:, 2]).mean() == pytest.approx(by_chance, abs=0.01)


def test_copy_probs_of_unequal_fractions_give_the_exact_joint_distribution():
    stream = some(n_filters=4, seed=9, n_affected=4, period_rows=60_000, n_changes=1)
    bits, weights = stream.at(60_000).exact().bits()
    passes = stream.passes(60_000, 120_000)
    for each, weight in zip(bits, weights, strict=True):
        seen = (passes == ~each).all(axis=1).mean()
        assert seen == pytest.approx(weight, abs=4.5 * 0.5 / np.sqrt(60_000))


def test_copy_probs_are_zero_where_chance_agrees_enough():
    assert copy_probs(np.array([0.5, 0.05, 1.0]), 0.8) == pytest.approx([np.sqrt(0.6), 0.0, 0.0])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("group_size", [1, 2, 3])
def test_all_pass_frac_gives_the_cost_of_an_order(seed, group_size):
    stream = some(seed=seed, group_size=group_size, n_affected=5)
    order = tuple(np.random.default_rng(seed).permutation(6).tolist())
    row = stream.n_rows - 1
    cost = sum(stream.all_pass_frac(row, order[:position]) for position in range(6))
    assert cost == pytest.approx(expected_cost_ns(order, stream.at(row).exact()))


def test_at_is_a_correlated_stream_with_the_true_fractions():
    stream = some(seed=4)
    there = stream.at(stream.n_rows - 1)
    assert isinstance(there, CorrelatedStream)
    assert there.pass_fracs == tuple(stream.levels()[-1])


def test_streams_pickle():
    stream = some(seed=8)
    assert pickle.loads(pickle.dumps(stream)) == stream


@pytest.mark.parametrize(
    "given",
    [
        {"n_filters": 0},
        {"period_rows": 0},
        {"ramp_rows": 5001},
        {"n_affected": 7},
        {"n_changes": -1},
        {"start_frac": 1.1},
        {"low_frac": 0.9, "high_frac": 0.1},
        {"min_step": 0.45},
        {"seed": -1},
    ],
)
def test_values_out_of_range_are_refused(given):
    with pytest.raises(OptionError):
        some(**given)
