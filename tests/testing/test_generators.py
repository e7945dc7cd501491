from __future__ import annotations

import itertools
import pickle

import numpy as np
import pyarrow as pa
import pytest

from eddyline.errors import OptionError
from eddyline.ordering.a_greedy import AGreedyOptions
from eddyline.ordering.protocol import expected_cost_ns
from eddyline.testing.generators import Below, CorrelatedStream
from eddyline.testing.reference_orders import optimal, static_greedy
from eddyline.testing.simulation import simulate
from tests.oracles.conjunctions import count_evaluations

# Expected evaluations per row, exact to the printed digits. Equal costs.
GREEDY_BY_N = {
    3: 1.7500, 4: 1.9500, 5: 1.9750, 6: 2.0550, 7: 2.0275, 8: 2.0595, 9: 2.0298, 10: 2.0426,
}  # fmt: skip
WORST_BY_N = {
    3: 1.900, 4: 2.100, 5: 2.260, 6: 2.340, 7: 2.404, 8: 2.436, 9: 2.462, 10: 2.474,
}  # fmt: skip
AVERAGE_BY_N = {3: 1.800, 4: 2.000, 5: 2.062, 6: 2.142}
GREEDY_BY_GROUP = (1.992, 2.060, 2.175, 2.481, 2.481, 2.484, 2.540, 3.296)
GREEDY_BY_PASS_FRAC = (1.111, 1.251, 1.437, 1.694, 2.060, 2.579, 3.307, 4.308, 5.695)


@pytest.mark.parametrize("n", GREEDY_BY_N)
def test_greedy_equals_optimal_equals_the_exact_table(n):
    exact = CorrelatedStream.even(n).exact()
    greedy = expected_cost_ns(static_greedy(exact), exact)
    assert greedy == pytest.approx(GREEDY_BY_N[n], abs=1e-4)
    assert greedy == pytest.approx(expected_cost_ns(optimal(exact), exact))


@pytest.mark.parametrize("n", WORST_BY_N)
def test_group_mates_side_by_side_are_the_worst_order(n):
    exact = CorrelatedStream.even(n).exact()
    assert expected_cost_ns(tuple(range(n)), exact) == pytest.approx(WORST_BY_N[n], abs=1e-3)


@pytest.mark.parametrize("n", AVERAGE_BY_N)
def test_independent_ties_cost_the_average_order(n):
    exact = CorrelatedStream.even(n).exact()
    costs = [expected_cost_ns(order, exact) for order in itertools.permutations(range(n))]
    assert np.mean(costs) == pytest.approx(AVERAGE_BY_N[n], abs=1e-3)


@pytest.mark.parametrize(("group_size", "expected"), [*enumerate(GREEDY_BY_GROUP, start=1)])
def test_greedy_by_correlation_factor(group_size, expected):
    exact = CorrelatedStream.even(8, group_size=group_size).exact()
    assert expected_cost_ns(static_greedy(exact), exact) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(("tenths", "expected"), [*enumerate(GREEDY_BY_PASS_FRAC, start=1)])
def test_greedy_by_pass_fraction(tenths, expected):
    exact = CorrelatedStream.even(8, tenths / 10).exact()
    assert expected_cost_ns(static_greedy(exact), exact) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("n", [3, 6, 8])
def test_sampled_rows_cost_what_the_exact_distribution_says(n):
    stream = CorrelatedStream.even(n, seed=n)
    drops = ~stream.passes(20_000)
    order = static_greedy(stream.exact())
    per_row = np.array([count_evaluations([row], order) for row in drops[:5000]])
    band = 4 * per_row.std() / np.sqrt(len(per_row))
    assert abs(per_row.mean() - GREEDY_BY_N[n]) < band


@pytest.mark.parametrize("n", [4, 8])
def test_a_greedy_reaches_the_exact_cost_within_a_hundredth(n):
    stream = CorrelatedStream.even(n, seed=1)
    batches = np.split(~stream.passes(200_000), 20)
    steps = list(simulate(AGreedyOptions(), batches, np.ones(n), prob=0.05, window_rows=5000))
    reached = expected_cost_ns(steps[-1].order, stream.exact())
    assert reached <= 1.01 * GREEDY_BY_N[n]


def test_overhead_of_sampling_is_what_the_formula_predicts():
    # n = 8: the thesis' formula gives 2.88 % of the work at p = 0.01, here at p = 0.05
    stream = CorrelatedStream.even(8, seed=4)
    order = static_greedy(stream.exact())
    batches = np.split(~stream.passes(100_000), 10)
    frozen = AGreedyOptions(min_fill=2**31 - 1)
    steps = list(simulate(frozen, batches, np.ones(8), order=order, prob=0.05))
    extra = sum(step.profile.n_extra for step in steps)
    main = sum(step.profile.n_evaluations for step in steps) - extra
    assert extra / main == pytest.approx(0.1442, rel=0.05)


@pytest.mark.parametrize(
    ("pass_frac", "rho"), [(0.5, 0.7746), (0.2, 0.612), (0.8, 0.612), (0.3, 0.724), (0.11, 0.0)]
)
def test_copy_probability(pass_frac, rho):
    stream = CorrelatedStream.even(2, pass_frac)
    np.testing.assert_allclose(stream._copy_probs(), rho, atol=1e-3)


@pytest.mark.parametrize("pass_frac", [0.2, 0.5, 0.7])
def test_group_mates_agree_on_four_fifths_and_others_by_chance(pass_frac):
    n_rows = 50_000
    passes = CorrelatedStream.even(4, pass_frac, seed=9).passes(n_rows)
    band = 4 * np.sqrt(0.25 / n_rows)
    by_chance = pass_frac**2 + (1 - pass_frac) ** 2
    for f, g in itertools.combinations(range(4), 2):
        expected = 0.8 if f // 2 == g // 2 else by_chance
        assert abs((passes[:, f] == passes[:, g]).mean() - expected) < band


def test_unequal_pass_fractions_in_a_group():
    stream = CorrelatedStream(pass_fracs=(0.2, 0.5, 0.9), group_size=3, seed=1)
    n_rows = 50_000
    passes = stream.passes(n_rows)
    assert (np.abs(passes.mean(axis=0) - stream.pass_fracs) < 4 * np.sqrt(0.25 / n_rows)).all()
    exact = stream.exact()
    assert exact.weights.sum() + exact.passed == pytest.approx(1)
    empirical = passes.all(axis=1).mean()
    assert abs(empirical - exact.passed) < 4 * np.sqrt(0.25 / n_rows)


@pytest.mark.parametrize("pass_frac", [0.0, 1.0])
def test_degenerate_pass_fractions(pass_frac):
    stream = CorrelatedStream.even(3, pass_frac)
    assert (stream.passes(100) == bool(pass_frac)).all()
    assert stream.exact().passed == pass_frac


def test_predicates_on_the_table_are_the_passes():
    stream = CorrelatedStream(pass_fracs=(0.3, 0.6, 0.9), seed=5)
    table = stream.table(500)
    assert table.column_names == ["id", "u0", "u1", "u2"]
    results = [p(table[p.column].combine_chunks()).to_numpy(False) for p in stream.predicates]
    np.testing.assert_array_equal(np.stack(results, axis=1), stream.passes(500))
    assert [p.sql() for p in stream.predicates] == ["u0 < 0.3", "u1 < 0.6", "u2 < 0.9"]


def test_predicates_keep_nulls_and_survive_pickling():
    below = pickle.loads(pickle.dumps(Below("u0", 0.5)))
    assert below(pa.array([0.4, None, 0.5])).to_pylist() == [True, None, False]


def test_the_same_stream_gives_the_same_rows_and_another_seed_others():
    stream = CorrelatedStream.even(3, seed=1)
    np.testing.assert_array_equal(stream.latents(50), stream.latents(50))
    assert (stream.latents(50) != CorrelatedStream.even(3, seed=2).latents(50)).any()


@pytest.mark.parametrize(
    "wrong",
    [
        {"pass_fracs": ()},
        {"pass_fracs": (1.5,)},
        {"pass_fracs": (0.5,), "group_size": 0},
        {"pass_fracs": (0.5,), "agreement": 1.5},
    ],
)
def test_options_are_validated(wrong):
    with pytest.raises(OptionError):
        CorrelatedStream(**wrong)
