"""What a run saves of estimates and of the plans of joins, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import msgspec

from eddyline.errors import StateError
from eddyline.estimates.histograms import CoefHistogram
from eddyline.estimates.plans import Accuracy, SavedAccuracy
from eddyline.models.planning.profile import JoinCounts, ModelProfile, StepCounts
from eddyline.models.planning.ways import plain, way_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.estimates.filters import Estimate
    from eddyline.models.graph import OtherEntities, SameEntity
    from eddyline.models.planning.ways import Way


@dataclass
class JoinState:
    """What is known of a join."""

    way: Way | None = None
    estimate: Estimate | None = None
    """Of its cost in the next batch (ns for each segment), not yet put right."""
    ns: float = 0.0
    """What it took for each segment, newer batches counting more."""
    since: int = 0
    """Batches since its way changed."""
    accuracy: Accuracy = field(default_factory=Accuracy)
    """Of its cost."""
    sides: dict[str, Accuracy] = field(default_factory=dict)
    """Of the share of each side that is left."""
    prices: dict[str, float] = field(default_factory=dict)
    """What asking a segment of each side took when it was asked last (ns)."""
    promised: float | None = None
    """What a change was estimated to cost, until it has come true (ns for each segment)."""


class SavedJoin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is saved of a join."""

    way: Any = None
    accuracy: SavedAccuracy = SavedAccuracy()
    sides: dict[str, SavedAccuracy] = {}
    prices: dict[str, float] = {}

    def way_of(self, join: SameEntity | OtherEntities) -> Way | None:
        """Return the way that was in force; that of samples if it is of another join."""
        try:
            return way_of(self.way, join)
        except ValueError:
            return None


class Learned(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The saved state of the loop."""

    counts: dict[str, StepCounts] = {}
    pairs: dict[str, JoinCounts] = {}
    coefs: dict[str, dict[str, Any]] = {}
    steps: dict[str, SavedAccuracy] = {}
    joins: dict[str, SavedJoin] = {}

    @classmethod
    def of(
        cls,
        known: ModelProfile,
        steps: Mapping[str, Accuracy],
        joins: Mapping[str, JoinState],
    ) -> Self:
        """Return it of what is known."""
        return cls(
            dict(known.steps),
            dict(known.joins),
            {name: each.to_state() for name, each in known.coefs.items()},
            {text: each.saved for text, each in steps.items()},
            {
                text: SavedJoin(
                    plain(each.way),
                    each.accuracy.saved,
                    {name: side.saved for name, side in each.sides.items()},
                    each.prices,
                )
                for text, each in joins.items()
            },
        )

    def profile(self) -> ModelProfile:
        """Return what was known."""
        coefs = {name: CoefHistogram.from_state(each) for name, each in self.coefs.items()}
        return ModelProfile(self.counts, self.pairs, coefs)


def read(state: Any) -> Learned:
    """Return what a loop saved.

    Raises:
        StateError: it is damaged.
    """
    try:
        found = msgspec.convert(state, Learned, from_attributes=True)
    except (ValueError, TypeError) as error:
        msg = f"the saved estimates of models are damaged: {error}; start from an empty checkpoint"
        raise StateError(msg) from error
    found.profile()
    return found
