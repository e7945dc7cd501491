from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from eddyline.routing.classifier import Classifier
from eddyline.routing.gain import count, difference
from eddyline.routing.partitions import Partition, choose_partition

N_PARTS = 4


def classifier_of(values, drops, partition=None):
    part = partition or choose_partition("a", "number", values)
    bins = part.bins(values)
    size, n = part.n_bins, drops.shape[1]
    parts = bins * N_PARTS + np.arange(len(values)) % N_PARTS
    seen, passed = count([parts], [size * N_PARTS], np.arange(len(values)), drops)
    by_part = seen[0].reshape(size, N_PARTS), passed[0].reshape(n, size, N_PARTS)
    return Classifier(part, bins, *by_part)


@pytest.mark.parametrize("seed", range(5))
def test_ranges_that_say_the_same_become_one(seed):
    rng = np.random.default_rng(seed)
    values = rng.random(6000)
    drops = rng.random((6000, 2)) < np.where(values < 0.5, 0.2, 0.8)[:, None]
    merged = classifier_of(values, drops).merged(np.array([True, True]))
    assert 1 <= len(merged.partition.points) <= 3
    assert min(abs(edge - 0.5) for edge in merged.partition.points) < 0.05


def test_merging_keeps_counters_and_bins_together():
    rng = np.random.default_rng(7)
    values = np.where(rng.random(4000) < 0.1, np.nan, rng.random(4000))
    drops = rng.random((4000, 3)) < np.where(values < 0.3, 0.1, 0.6)[:, None]
    merged = classifier_of(values, drops).merged(np.array([True, False, True]))
    again = classifier_of(values, drops, merged.partition)
    np.testing.assert_array_equal(merged.bins, again.bins)
    np.testing.assert_array_equal(merged.seen, again.seen)
    np.testing.assert_array_equal(merged.passed, again.passed)
    assert merged.n_bins == merged.partition.n_bins


def test_only_the_filters_that_it_tells_about_keep_ranges_apart():
    rng = np.random.default_rng(8)
    values = rng.random(6000)
    drops = rng.random((6000, 2)) < np.stack([np.full(6000, 0.5), values], axis=1)
    classifier = classifier_of(values, drops)
    assert len(classifier.merged(np.array([False, True])).partition.points) > 4
    assert len(classifier.merged(np.array([True, False])).partition.points) <= 2


def test_values_are_left_as_they_are():
    values = np.tile([1.0, 2.0, 3.0], 500)
    classifier = classifier_of(values, np.random.default_rng(9).random((1500, 1)) < 0.5)
    assert classifier.partition.kind == "values"
    assert classifier.merged(np.array([True])) is classifier


def test_a_partition_without_edges():
    values = np.random.default_rng(10).random(100)
    classifier = classifier_of(values, values[:, None] < 0.5, Partition("a", "ranges"))
    assert classifier.merged(np.array([True])).n_bins == 2


def test_difference_of_neighbours_is_the_g_test_of_two_by_two_tables():
    seen, passed = np.array([50.0, 50.0, 50.0]), np.array([[5.0, 10.0, 45.0], [20.0, 25.0, 1.0]])
    expected = [
        sum(
            stats.chi2_contingency(
                np.array([good[i : i + 2], (seen - good)[i : i + 2]]),
                correction=False,
                lambda_="log-likelihood",
            ).statistic
            for good in passed
        )
        for i in range(2)
    ]
    np.testing.assert_allclose(difference(seen, passed), expected)
    assert difference(np.array([0.0, 50.0]), np.array([[0.0, 9.0]])).tolist() == [0.0]
