from __future__ import annotations

import numpy as np
import pytest

from tests.oracles.rule_data import (
    CARDINALITY,
    DOMAIN,
    Q3_SIZES,
    bitmap_spread,
    class_rows,
    phase_rows,
    rules_q1,
    rules_q2,
    rules_q3,
    rules_q4,
    uniform_rows,
    zipf_rows,
)


@pytest.mark.parametrize("make", [uniform_rows, zipf_rows, class_rows])
def test_rows_repeat_and_stay_in_their_domain(make) -> None:
    rows = make(5000, 4, 7)
    assert rows.shape == (4, 5000)
    assert (rows == make(5000, 4, 7)).all()
    assert not (rows == make(5000, 4, 8)).all()
    assert rows.min() == 0
    assert rows.max() == (CARDINALITY if make is class_rows else DOMAIN) - 1


def test_values_are_as_skewed_as_said() -> None:
    shares = [
        np.bincount(each, minlength=DOMAIN).max() / 50_000 for each in zipf_rows(50_000, 8, 1)
    ]
    assert min(shares) > 0.04
    shares = [np.bincount(r, minlength=DOMAIN).max() / 50_000 for r in uniform_rows(50_000, 8, 1)]
    assert max(shares) < 0.015


def test_classes_correlate_and_uniform_rows_do_not() -> None:
    def most(rows: np.ndarray) -> float:
        return float(np.abs(np.corrcoef(rows) - np.eye(len(rows))).max())

    error = 20_000**-0.5  # of a correlation, if there is none
    assert most(class_rows(20_000, 6, 3)) > 10 * error
    assert most(uniform_rows(20_000, 6, 3)) < 5 * error


def test_phases_differ_in_which_attributes_have_a_usual_value() -> None:
    shares = np.array(
        [
            [
                np.bincount(each, minlength=DOMAIN).max() / 5000
                for each in phase_rows(5000, 10, 2, k)
            ]
            for k in range(2)
        ]
    )
    has_usual = shares > 0.5
    assert has_usual.sum(axis=1).tolist() == [5, 5]
    assert (has_usual[0] != has_usual[1]).any()


@pytest.mark.parametrize(
    ("rules", "k", "n_ranges", "n"),
    [
        (rules_q1(3), 50, 204, 10),
        (rules_q2(3), 50, 173, 15),
        (rules_q4(10.0, 3), 50, 362, 10),
        *((rules_q3(m, 3), *size) for m, size in enumerate(Q3_SIZES)),
    ],
)
def test_rules_have_the_papers_sizes(rules, k: int, n_ranges: int, n: int) -> None:
    assert len(rules.ranges) == k
    assert sum(map(len, rules.ranges)) == n_ranges
    assert len({attribute for rule in rules.ranges for attribute, _, _ in rule}) == n
    assert rules.block().n_constructs == n


def test_less_spread_of_centres_makes_regions_differ_more() -> None:
    deviations = [
        np.mean([bitmap_spread(rules_q4(spread, seed).block()) for seed in range(5)])
        for spread in (40.0, 20.0, 10.0, 5.0)
    ]
    assert deviations == sorted(deviations)
    assert deviations[-1] > 1.5 * deviations[0]
