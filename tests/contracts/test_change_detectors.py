"""Every registered detector passes the conformance checks that other packages use."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

import pytest

from eddyline.change import DETECTORS, options_of
from eddyline.change.scalar import ScalarDetector, ScalarOptions
from eddyline.testing.detector_conformance import check_detector

VARIANTS = [
    options_of("beta_cusum", memory=80, min_shift=0.05),
    options_of("beta_cusum", memory=20, change_point_back=0),
    options_of("adwin", check_every=32, min_part=5, buckets_per_row=2),
    options_of("adwin", change_point="split"),
    options_of("martingale", floor=True, max_items=64),
    options_of("meta", baselines=(20, 50), thresholds="asymptotic", horizon=100),
    options_of("page_hinkley", n_feedback=0, threshold=2.0),
]


@pytest.mark.large
@pytest.mark.parametrize("name", DETECTORS)
def test_default_detector_conforms(name):
    check_detector(DETECTORS[name]())


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_variant_conforms(options):
    check_detector(options)


@pytest.mark.parametrize(("name", "given"), [("ADWIN", {}), ("PageHinkley", {"threshold": 2.0})])
def test_detector_of_river_conforms(name, given):
    drift = pytest.importorskip("river.drift")
    check_detector(options_of(getattr(drift, name)(**given)))


class Threshold(ScalarDetector):
    """A detector of a user: the mean of the last items is far from that of the first."""

    n_feedback = 10

    def initialize(self):
        self.newest = []

    def use_feedback(self, items):
        self.normal = fmean(items)
        self.has_feedback = True

    def check(self, item):
        self.newest = [*self.newest, item][-10:]
        return abs(fmean(self.newest) - self.normal) > 0.3 and len(self.newest) == 10


@dataclass(frozen=True, slots=True)
class ThresholdOptions(ScalarOptions):
    def build_one(self):
        return Threshold()


def test_scalar_detector_gets_a_bank_for_free():
    check_detector(ThresholdOptions())
