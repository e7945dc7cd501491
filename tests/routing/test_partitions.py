from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.errors import PlanError
from eddyline.routing.partitions import Partition, choose_partition, literal
from tests.routing import cuts


@given(cuts.partitions(), cuts.rows(1))
def test_bins_equal_the_slow_oracle(part, rows):
    found = part.bins(rows[:, 0])
    assert found.dtype == np.intp
    assert found.tolist() == [cuts.slow_bin(part, float(x)) for x in rows[:, 0]]


@given(cuts.partitions())
def test_state_and_pickle_keep_everything(part):
    state = json.loads(json.dumps(part.to_state(), allow_nan=False))
    assert Partition.from_state(state) == part
    assert pickle.loads(pickle.dumps(part)) == part
    assert hash(Partition.from_state(state)) == hash(part)


@given(cuts.partitions(), st.sets(st.integers(0, 8)))
def test_any_bins_have_words(part, bins):
    words = part.words(bins)
    assert "a" in words
    assert words.endswith("is NULL") == (part.n_bins - 1 in bins)


@pytest.mark.parametrize(
    ("part", "bins", "words"),
    [
        (Partition("a", "ranges", (1.0, 2.0, 3.0)), {0, 1, 3}, "a < 2 or 3 <= a"),
        (Partition("a", "ranges", (1.0, 2.0, 3.0)), {1, 2}, "1 <= a < 3"),
        (Partition("a", "ranges", (1.0,)), {0, 1, 2}, "any a or a is NULL"),
        (Partition("a", "values", (1.0, 2.0)), {1}, "a = 2"),
        (Partition("a", "values", (1.0, 2.0)), {0, 2}, "a not in (2)"),
        (Partition("a", "hash", n_hash=5), {0, 4, 5}, "a hashes to 0, 4 of 5 or a is NULL"),
        (Partition("a", "ranges"), set(), "no a"),
    ],
)
def test_words(part, bins, words):
    assert part.words(bins) == words


def test_bins_reads_strided_input_without_changing_it():
    matrix = np.arange(40.0).reshape(10, 4)
    before = matrix.copy()
    part = Partition("a", "ranges", (9.0, 17.0))
    assert part.bins(matrix[:, 1]).tolist() == [0, 0, 1, 1, 2, 2, 2, 2, 2, 2]
    np.testing.assert_array_equal(matrix, before)


@pytest.mark.parametrize(
    "given_",
    [
        ("ranges", (1.0, 1.0), 0),
        ("ranges", (2.0, 1.0), 0),
        ("values", (float("nan"),), 0),
        ("values", (1.0, float("nan")), 0),
        ("values", (float("nan"), 1.0), 0),
        ("hash", (), 0),
        ("hash", (), -1),
        ("hash", (1.0,), 4),
        ("ranges", (), 4),
        ("other", (), 0),
        ("ranges", tuple(range(255)), 0),
    ],
)
def test_what_is_no_partition(given_):
    with pytest.raises(PlanError, match="no partition"):
        Partition("a", *given_)


@pytest.mark.parametrize(
    ("value", "sql"),
    [
        (1.5, "1.5D"),
        (-1.0, "-1.0D"),
        (1e300, "1e+300D"),
        (float("inf"), "CAST('Infinity' AS DOUBLE)"),
        (float("-inf"), "CAST('-Infinity' AS DOUBLE)"),
    ],
)
def test_literals(value, sql):
    assert literal(value) == sql


# -- choosing ------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("kind", ["number", "category"])
@pytest.mark.parametrize(
    ("values", "why"),
    [
        (np.zeros(0), "always NULL"),
        (np.full(50, np.nan), "always NULL"),
        (np.full(50, 7.0), "constant"),
    ],
)
def test_attributes_that_say_nothing_are_left_out(kind, values, why):
    assert choose_partition("a", kind, values) == why


@pytest.mark.parametrize(
    "values",
    [
        np.arange(1000.0),
        -np.arange(1000.0),
        np.repeat(np.arange(100.0), 10),
        1e9 + np.arange(1000.0) * 30 + RNG.normal(0, 200, 1000),
        np.where(RNG.random(1000) < 0.1, np.nan, np.arange(1000.0)),
        np.exp(np.arange(1000.0) / 2),
        np.where(np.arange(1000) < 500, -np.inf, np.inf),
        np.linspace(-8e307, 8e307, 1000) + RNG.normal(0, 1e304, 1000),
    ],
)
def test_numbers_that_follow_time_are_left_out(values):
    assert choose_partition("a", "number", values) == "follows the order of arrival"


@pytest.mark.parametrize(
    "values",
    [
        RNG.choice([1e308, -1e308, 1.0], 1000),
        RNG.choice([5e-324, -5e-324], 1000),
        RNG.choice([np.inf, -np.inf, 0.0], 1000),
        1e9 + RNG.choice([0.0, 1e-6], 1000),
    ],
)
def test_numbers_at_the_ends_of_what_a_double_holds(values):
    part = choose_partition("a", "number", values)
    assert part == Partition("a", "values", tuple(np.unique(values)))


def test_a_number_that_comes_round_again_is_not_left_out():
    part = choose_partition("a", "number", np.tile(np.arange(1.0, 55.0), 20))
    assert part == Partition("a", "values", tuple(np.arange(1.0, 55.0)))


def test_constant_with_nulls_tells_null_from_the_rest():
    part = choose_partition("a", "number", np.array([3.0, np.nan] * 20))
    assert part == Partition("a", "values", (3.0,))


def test_few_values_get_a_bin_each_and_zero_has_no_sign():
    part = choose_partition("a", "category", np.array([-0.0, 1.0, 0.0, 1.0] * 20))
    assert part == Partition("a", "values", (0.0, 1.0))
    assert str(part.points[0]) == "0.0"


def test_texts_that_nearly_never_repeat_are_left_out():
    values = RNG.permutation(2.0**50 + np.arange(1000))
    assert choose_partition("a", "category", values) == "nearly every row has another value"


def test_continuous_numbers_are_cut_into_equal_parts():
    values = RNG.lognormal(0.0, 3.0, 4800)
    part = choose_partition("a", "number", values)
    assert part.kind == "ranges"
    assert part.n_bins == 25
    assert np.bincount(part.bins(values), minlength=25).tolist() == [200] * 24 + [0]


def test_a_value_that_takes_half_of_the_rows_leaves_the_other_bins_as_they_are():
    values = np.where(RNG.random(4800) < 0.5, 0.0, RNG.random(4800) + 1.0)
    part = choose_partition("a", "number", values)
    shares = np.bincount(part.bins(values)) / 4800
    assert part.kind == "ranges"
    assert shares[0] == pytest.approx(0.5, abs=0.05)
    assert shares[1:].max() < 0.06


def test_many_valued_categories_keep_the_frequent_values_or_are_hashed():
    rare = 1000.0 + RNG.integers(0, 400, 4800)
    frequent = np.where(RNG.random(4800) < 0.7, RNG.integers(0, 3, 4800), rare)
    kept = choose_partition("a", "category", frequent)
    assert kept.kind == "values"
    assert {0.0, 1.0, 2.0} <= set(kept.points)
    assert len(kept.points) == 23
    assert choose_partition("a", "category", rare) == Partition("a", "hash", n_hash=24)


def test_a_hundred_thousand_values():
    values = RNG.integers(0, 100_000, 5000).astype(float)
    assert choose_partition("a", "category", values) == "nearly every row has another value"
    assert choose_partition("a", "number", values).n_bins == 25


def test_small_samples_get_few_bins():
    part = choose_partition("a", "number", RNG.random(50))
    assert part.kind == "ranges"
    assert part.n_bins <= 50 // 8 + 1


@given(
    st.sampled_from(["number", "category"]),
    st.lists(cuts.values, max_size=60).map(lambda cells: np.array(cells, dtype=np.float64)),
    st.integers(2, 30),
)
def test_any_sample_gives_a_partition_or_a_reason(kind, values, n_bins):
    found = choose_partition("a", kind, values, n_bins)
    if isinstance(found, str):
        assert found
    else:
        assert found.bins(values).min(initial=0) >= 0
        assert len(set(found.bins(values).tolist())) > 1
