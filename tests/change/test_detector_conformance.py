"""The conformance suite catches detectors that break the contract."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from eddyline.change.beta_cusum import BetaCusum, BetaCusumOptions
from eddyline.change.scalar import ScalarDetector, ScalarOptions
from eddyline.testing.detector_conformance import check_detector


class Sound(ScalarDetector):
    """The mean of the last twenty items moves by .3."""

    n_feedback = 20

    def initialize(self):
        self.newest = []

    def use_feedback(self, items):
        self.normal = sum(items) / len(items)
        self.has_feedback = True

    def check(self, item):
        self.newest = [*self.newest, item][-20:]
        return len(self.newest) == 20 and abs(sum(self.newest) / 20 - self.normal) > 0.3


class Deaf(Sound):
    def check(self, item):
        return False


class Jumpy(Sound):
    def check(self, item):
        return self.n_seen % 100 == 0


class Sharing(Sound):
    seen = []  # noqa: RUF012 the mistake that is caught

    def check(self, item):
        self.seen.append(item)
        return abs(sum(self.seen[-20:]) / 20 - self.normal) > 0.3


class Rolling(Sound):
    rng = np.random.default_rng(0)

    def check(self, item):
        return super().check(item) and self.rng.random() < 0.1


class Forgetful(Sound):
    def snapshot(self):
        return {}

    def restore(self, state):
        self.initialize()
        self.normal = 0.0
        self.has_feedback = True


class Prophetic(Sound):
    def get_change_point(self):
        return self.n_seen + 1


@dataclass(frozen=True)
class Options(ScalarOptions):
    made: type

    def build_one(self):
        return self.made()


def test_a_sound_detector_passes():
    check_detector(Options(Sound))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (Deaf, "miss the first shift"),
        (Jumpy, "a change in a constant stream"),
        (Sharing, "the same items, other changes|differs|goes another way"),
        (Rolling, "the same items, other changes|goes another way"),
        (Forgetful, "a restored bank saves another state|finds other changes"),
        (Prophetic, "change points"),
    ],
)
def test_a_broken_detector_is_caught(broken, message):
    with pytest.raises(AssertionError, match=message):
        check_detector(Options(broken))


class Leaking(BetaCusum):
    def _initialize(self, which):
        """Forget nothing."""

    def _restart(self, which):
        """Nor start again."""


class Counting(BetaCusum):
    def update(self, values):
        return super().update(np.where(np.isnan(values), 0.5, values))


class Trusting(BetaCusum):
    def _validate(self, which, items):
        """Take anything."""


class Writing(BetaCusum):
    def update(self, values):
        found = super().update(values)
        values[:] = 0.5
        return found


@dataclass(frozen=True)
class BankOptions:
    made: type

    def build(self, n):
        return self.made(BetaCusumOptions(n_feedback=20), n)


@pytest.mark.large
@pytest.mark.parametrize(
    ("broken", "error", "message"),
    [
        (Leaking, AssertionError, "."),
        (Counting, AssertionError, "miscounts|differs"),
        (Trusting, AssertionError, "QueryError was not raised"),
        (Writing, (AssertionError, ValueError), "read-only|goes another way"),
    ],
)
def test_a_broken_bank_is_caught(broken, error, message):
    check_detector(BankOptions(BetaCusum))
    with pytest.raises(error, match=message):
        check_detector(BankOptions(broken))
