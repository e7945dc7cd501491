from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from eddyline.data.outcomes import sampled_rows, seed_of

N_ROWS = 100_000


@pytest.mark.parametrize("batch_rows", [1, 2, 7, 49, 50, 51, 100, 1000])
def test_the_sample_does_not_depend_on_the_batches(batch_rows):
    whole = sampled_rows(3, 0, 1000, 0.1)
    parts = [
        start + sampled_rows(3, start, min(batch_rows, 1000 - start), 0.1)
        for start in range(0, 1000, batch_rows)
    ]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("prob", [0.005, 0.01, 0.3, 0.9])
@pytest.mark.parametrize("seed", range(3))
def test_the_sample_has_the_asked_size(prob, seed):
    n = len(sampled_rows(seed_of("query", seed), 0, N_ROWS, prob))
    assert abs(n - N_ROWS * prob) < 4 * np.sqrt(N_ROWS * prob * (1 - prob))


def test_a_smaller_probability_samples_a_subset():
    few, many = (set(sampled_rows(5, 0, N_ROWS, prob)) for prob in (0.005, 0.01))
    assert few < many


def test_samples_are_spread_evenly():
    rows = sampled_rows(11, 0, N_ROWS, 0.1)
    tenths = np.bincount(rows // (N_ROWS // 10), minlength=10)
    assert (np.abs(tenths - 1000) < 4 * np.sqrt(900)).all()


def test_samples_of_other_seeds_are_independent():
    one, two = (set(sampled_rows(seed_of(s), 0, N_ROWS, 0.1)) for s in "ab")
    assert abs(len(one & two) - 1000) < 4 * np.sqrt(990)


@pytest.mark.parametrize(("prob", "expected"), [(0.0, 0), (1.0, 10)])
def test_none_and_all(prob, expected):
    assert len(sampled_rows(0, 0, 10, prob)) == expected
    assert len(sampled_rows(0, 0, 0, prob)) == 0


def test_a_seed_is_the_same_in_every_process():
    code = "from eddyline.data.outcomes import seed_of; print(seed_of('q', 1))"
    other = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert int(other.stdout) == seed_of("q", 1)
    assert seed_of("q", 1) != seed_of("q", 2)
    assert 0 <= seed_of("q", 1) < 2**63
