"""Worked examples T1 to T6 and T8 of the specification, with their numbers."""

from __future__ import annotations

import numpy as np
import pytest

from eddyline.change import detector, detector_bank
from eddyline.change.beta_cusum import beta_of_moments, fit_one, log_likelihood
from eddyline.change.meta import kuiper
from eddyline.change.protocol import Detector
from eddyline.change.scalar import LoopBank, ScalarDetector, ScalarOptions
from tests.oracles.detectors import reference_kuiper

TRAINING = [0.30, 0.32, 0.28, 0.35, 0.25, 0.31, 0.29, 0.33, 0.27, 0.30]
CHECKED = [0.31, 0.29, 0.30, 0.45, 0.50, 0.48, 0.52, 0.49, 0.51, 0.50]


def test_t1_moments_and_maximum_likelihood():
    sample = np.array([TRAINING])
    assert beta_of_moments(sample.mean(), sample.var(ddof=1)) == pytest.approx(
        (72.392308, 168.915385), rel=1e-7
    )
    a, b, sd_a, sd_b = fit_one(sample[0], 0.0)
    assert (a, b) == pytest.approx((80.3233, 187.4236), rel=1e-4)
    value = log_likelihood(np.log(sample).mean(), np.log1p(-sample).mean(), a, b)
    assert value == pytest.approx(2.159238, abs=1e-6)
    assert (sd_a**2, sd_b**2) == pytest.approx((1285.38, 7023.31), rel=1e-4)


def test_t1_intervals():
    watched = detector("beta_cusum", n_feedback=10)
    watched.use_feedback(TRAINING)
    low_a, high_a, low_b, high_b = watched._machine._model[0, :4]
    assert (low_a, high_a) == pytest.approx((10.0544, 150.5922), rel=1e-4)
    assert (low_b, high_b) == pytest.approx((23.1684, 351.6787), rel=1e-4)


SUMS = [0, 0, 0, 0, 0, 0, 23.6053, 41.3896, 63.35, 83.37]


@pytest.mark.parametrize(("threshold", "alarm"), [(5, 0.52), (25, 0.49), (50, 0.51), (100, None)])
def test_t2_sums_and_alarms(threshold, alarm):
    watched = detector("beta_cusum", n_feedback=10, threshold=threshold)
    for item in TRAINING:
        watched.update(item)
        assert not watched.drift_detected
    for item, total in zip(CHECKED, SUMS, strict=True):
        found = watched.check(item)
        assert watched._machine._sums[0] == pytest.approx(total, rel=1e-3)
        assert found == (item == alarm)
        if found:
            return
    assert alarm is None


@pytest.mark.parametrize(("back", "point"), [(0, 18), (5, 13), (10, 8), (1, 17), (99, 0)])
def test_t2_change_points(back, point):
    """Index 13 is the item .45, where the change begins; 8 is the second-last training item."""
    watched = detector("beta_cusum", n_feedback=10, change_point_back=back)
    for item in [*TRAINING, *CHECKED[:8]]:
        watched.update(item)
    assert watched.drift_detected
    assert (watched.change_point, watched.n_seen) == (point, 18)
    assert not watched.has_feedback


def test_t3_recursion():
    sums = []
    for threshold in (5, 100):
        watched = detector("cusum", n_feedback=2, shift=1e-9, threshold=threshold)
        for item in (-np.sqrt(0.5), np.sqrt(0.5)):  # mean 0, standard deviation 1
            watched.update(item)
        for number, ratio in enumerate((-1, -2, 3, 4, -10, 6), 1):
            watched.update(ratio)
            if threshold == 5:
                assert watched.drift_detected == (number == 4)
            else:
                sums.append(float(watched._bank._sums[0, 0]))
    np.testing.assert_allclose(sums, [0, 0, 3, 7, 0, 6], atol=1e-8)


def test_t4_martingale():
    watched = detector("martingale", exponent=0.9, tie_share=0.5)
    values = []
    for item in [0.3] * 5 + [0.8] * 3:
        watched.update(item)
        values.append(np.exp(watched._machine._log_values[0]))
    expected = [0.964596, 0.930446, 0.897504, 0.865729, 0.835079, 0.963581, 1.053514, 1.120941]
    assert values == pytest.approx(expected, abs=1e-6)


def test_t5_adwin_buckets():
    watched = detector("adwin", significance=0.01, n_feedback=10)
    for _ in range(20):
        watched.update(0.2)
    assert watched._machine._counts[0, :4].tolist() == [4, 4, 2, 0]


def test_t5_adwin_reports_the_step_once_and_keeps_what_came_after_it():
    """The paper drops the oldest buckets one by one, and finds the same change at eight items."""
    watched = detector("adwin", significance=0.01, n_feedback=10)
    found = {}
    for at, item in enumerate([0.2] * 100 + [0.8] * 100):
        watched.update(item)
        if watched.drift_detected:
            n_items, total, _ = watched._machine._totals[0]
            found[at] = (int(n_items), round(float(total / n_items), 4), watched.change_point)
    assert found == {113: (14, 0.8, 100)}


def test_t5_adwin_dates_by_the_window_of_the_paper():
    """98 items with a mean of .2857 would be left of 114."""
    watched = detector("adwin", significance=0.01, n_feedback=10, change_point="window")
    for item in [0.2] * 100 + [0.8] * 14:
        watched.update(item)
    assert watched.drift_detected
    assert watched.change_point == 114 - 98


@pytest.mark.parametrize(
    ("first", "second", "distance"),
    [
        ([0.1, 0.2, 0.3, 0.4], [0.3, 0.5, 0.6, 0.7], 0.75),
        ([0.1, 0.2, 0.8, 0.9], [0.4, 0.45, 0.5, 0.6], 1.0),
    ],
)
def test_t6_kuiper(first, second, distance):
    assert kuiper(np.array(first), np.array(second)) == pytest.approx(distance, abs=1e-15)
    assert reference_kuiper(first, second) == pytest.approx(distance, abs=1e-15)


class Recorder(ScalarDetector):
    """Writes down what the state machine asks for; an item above 1 is a change."""

    def __init__(self, n_feedback=0, is_amnesic=True, is_sequential=False, n_left=0):
        self.n_feedback, self.n_left = n_feedback, n_left
        self.is_amnesic, self.is_sequential = is_amnesic, is_sequential
        self.calls = []
        self.n_held = 0

    def initialize(self):
        self.calls.append("initialize")
        self.n_held = 0

    def use_feedback(self, items):
        self.calls.append(("use_feedback", list(items)))
        self.n_held += len(items)
        self.has_feedback = self.n_held >= self.n_feedback

    def check(self, item):
        self.calls.append(("check", item))
        return item > 1

    def get_change_point(self):
        self.calls.append("get_change_point")
        return self.n_seen - 1

    def adjust_feedback(self):
        self.calls.append("adjust_feedback")
        self.n_held = self.n_left
        self.has_feedback = self.n_held >= self.n_feedback


class RecorderOptions(ScalarOptions):
    def __init__(self, **given):
        self.given = given

    def build_one(self):
        return Recorder(**self.given)


def calls_of(items, **given):
    bank = LoopBank(RecorderOptions(**given), 1)
    for item in items:
        bank.update(np.array([item], dtype=float))
    return bank._parts[0].calls


def test_t8_batch_amnesic():
    assert calls_of([0.1, 0.2, 0.3, 0.4, 2, 0.5, 0.6, 0.7, 0.8], n_feedback=3) == [
        "initialize",
        ("use_feedback", [0.1, 0.2, 0.3]),
        ("check", 0.4),
        ("check", 2.0),
        "get_change_point",
        "initialize",
        ("use_feedback", [0.5, 0.6, 0.7]),
        ("check", 0.8),
    ]


def test_t8_feedback_less():
    assert calls_of([0.1, 2, 0.2]) == [
        "initialize",
        ("check", 0.1),
        ("check", 2.0),
        "get_change_point",
        "initialize",
        ("check", 0.2),
    ]


def test_t8_non_amnesic_collects_again_when_too_little_is_left():
    given = {"n_feedback": 2, "is_amnesic": False, "is_sequential": True, "n_left": 1}
    assert calls_of([0.1, 0.2, 2, 0.3, 0.4], **given) == [
        "initialize",
        ("use_feedback", [0.1]),
        ("use_feedback", [0.2]),
        ("check", 2.0),
        "get_change_point",
        "adjust_feedback",
        ("use_feedback", [0.3]),
        ("check", 0.4),
    ]


def test_t8_feedback_is_known_from_outside():
    watched = Detector(RecorderOptions(n_feedback=3))
    seen = []
    for item in (0.1, 0.2, 0.3, 0.4, 2, 0.5):
        watched.update(item)
        seen.append((watched.has_feedback, watched.drift_detected))
    assert seen == [(False, False)] * 2 + [(True, False)] * 2 + [(False, True), (False, False)]
    assert (watched.change_point, watched.n_seen) == (4, 6)


def test_a_new_bank_of_many_agrees_with_t2():
    bank = detector_bank("beta_cusum", 3, n_feedback=10)
    for at, item in enumerate([*TRAINING, *CHECKED]):
        found = bank.update(np.array([item, np.nan, item]))
        assert found.tolist() == ([True, False, True] if at == 17 else [False] * 3)
