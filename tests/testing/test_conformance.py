"""The conformance checks catch what they are there for."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from eddyline.ordering.protocol import Proposal, WindowPolicy
from eddyline.testing.conformance import check_policy


class Honest(WindowPolicy):
    """Reverses the order once, in batch 5."""

    def __init__(self) -> None:
        self.n_batches = 0

    def observe(self, fresh, order):
        self.n_batches += fresh.n_rows > 0

    def propose(self, order, window):
        return Proposal(order[::-1]) if self.n_batches == 5 and len(order) > 1 else None

    def snapshot(self):
        return {"n_batches": self.n_batches}

    def restore(self, state):
        self.n_batches = state["n_batches"]


class Writes(Honest):
    def observe(self, fresh, order):
        fresh.weights[:] = 1


class Forgets(Honest):
    def restore(self, state):
        pass


class SnapshotsArrays(Honest):
    def snapshot(self):
        return {"n_batches": np.int64(self.n_batches)}


class Repeats(Honest):
    def propose(self, order, window):
        return Proposal((0,) * len(order)) if len(order) > 1 and window.n_tuples else None


class KeepsProposing(Honest):
    def propose(self, order, window):
        return Proposal(order) if len(order) > 1 and window.n_tuples else None


class DecidesOnNothing(Honest):
    def propose(self, order, window):
        return Proposal(order[::-1]) if len(order) > 1 else None


class AsksBackwards(Honest):
    def extra(self, n_filters):
        return np.ones((n_filters, n_filters), dtype=np.bool_)


class AsksTooLittle(Honest):
    def extra(self, n_filters):
        return np.zeros((n_filters, n_filters), dtype=np.bool_)


class Random(Honest):
    rng = np.random.default_rng(0)

    def propose(self, order, window):
        shuffled = tuple(int(f) for f in self.rng.permutation(len(order)))
        return Proposal(shuffled) if window.n_tuples and shuffled != order else None


@dataclass(frozen=True)
class Options:
    policy: type[Any]

    def build(self, n_filters, rng):
        return self.policy()


class Forgotten:
    """Options without equality: a copy is another object."""

    def build(self, n_filters, rng):
        return Honest()


def test_an_honest_policy_passes():
    check_policy(Options(Honest))


@pytest.mark.parametrize(
    ("broken", "error", "words"),
    [
        (Writes, ValueError, "read-only"),
        (Forgets, AssertionError, "restored before batch"),
        (SnapshotsArrays, TypeError, "JSON"),
        (Repeats, AssertionError, "is not an order"),
        (KeepsProposing, AssertionError, "the order that is in force"),
        (DecidesOnNothing, AssertionError, "without any evidence"),
        (AsksBackwards, AssertionError, "evaluated already"),
        (AsksTooLittle, AssertionError, "does not ask for it"),
        (Random, AssertionError, "the same evidence"),
    ],
)
def test_a_broken_policy_is_caught(broken, error, words):
    with pytest.raises(error, match=words):
        check_policy(Options(broken))


def test_options_that_do_not_survive_pickling_are_caught():
    with pytest.raises(AssertionError, match="pickling"):
        check_policy(Forgotten())


def test_the_room_needs_neither_hypothesis_nor_pyspark():
    code = (
        "import sys; sys.modules['hypothesis'] = None; sys.modules['pyspark'] = None\n"
        "import eddyline.testing.conformance, eddyline.testing.generators\n"
        "import eddyline.testing.reference_orders, eddyline.testing.detector_conformance\n"
        "import eddyline.testing.simulation, eddyline.ordering\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
