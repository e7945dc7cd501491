"""What was observed while a graph ran over segments: small, mergeable, keyed by texts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from eddyline.stats.profile import both

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.estimates.histograms import CoefHistogram

MAX_CELLS = 200
"""Cells of a histogram that is kept."""

MAX_GROUPS = 6
"""Entities of which single ones are told apart, for extremes over entities."""


class StepCounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What came out of a step, and what came in."""

    n_in: float = 0.0
    """Segments that came in, of a join those of both sides."""
    n_out: float = 0.0
    """Segments or rows that came out."""
    n_entities: float = 0.0
    """Entities of those that came in, all tasks together."""
    n_left: float = 0.0
    """Of those that came into a join, the left ones."""
    n_looked: float = 0.0
    """Of those that came in, those that were looked at for what follows."""
    n_aligned: float = 0.0
    """Of these, those that came where entities, or both sides, begin segments together."""
    seconds: float = 0.0
    """Length of those that were looked at (s)."""

    @property
    def is_aligned(self) -> bool:
        """Whether entities, or both sides of a join, begin their segments together."""
        return self.n_aligned > self.n_looked / 2

    def __add__(self, other: StepCounts) -> StepCounts:
        return StepCounts(*(getattr(self, f) + getattr(other, f) for f in self.__struct_fields__))

    def times(self, share: float) -> StepCounts:
        """Return the same, of which each segment counts so much; entities stay what they are."""
        counts = {f: share * getattr(self, f) for f in self.__struct_fields__}
        return StepCounts(**counts | {"n_entities": self.n_entities})


class SideCounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a join asked of one side before."""

    n: float = 0.0
    """Segments that came."""
    n_asked: float = 0.0
    """Segments that were asked."""
    n_left: float = 0.0
    """Of these, those that may be in a result."""
    ns: float = 0.0
    """The time that asking took (ns)."""

    def __add__(self, other: SideCounts) -> SideCounts:
        return SideCounts(*(getattr(self, f) + getattr(other, f) for f in self.__struct_fields__))

    def times(self, share: float) -> SideCounts:
        """Return the same, of which each segment counts so much."""
        return SideCounts(*(share * getattr(self, each) for each in self.__struct_fields__))


class JoinCounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a join did."""

    sides: dict[str, SideCounts] = {}
    """By what stands before the attributes of a side."""
    n_pairs: float = 0.0
    """Pairs that were made."""
    ns: float = 0.0
    """The time of the join beside asking (ns)."""
    n_in: float = 0.0
    """Segments that came in on either side."""

    def __add__(self, other: JoinCounts) -> JoinCounts:
        return JoinCounts(
            both(self.sides, other.sides, lambda a, b: a + b),
            self.n_pairs + other.n_pairs,
            self.ns + other.ns,
            self.n_in + other.n_in,
        )

    def times(self, share: float) -> JoinCounts:
        """Return the same, of which each segment counts so much."""
        sides = {name: each.times(share) for name, each in self.sides.items()}
        return JoinCounts(sides, share * self.n_pairs, share * self.ns, share * self.n_in)

    @property
    def took(self) -> float:
        """The time of all (ns)."""
        return self.ns + sum(each.ns for each in self.sides.values())


@dataclass(frozen=True)
class ModelProfile:
    """What tasks saw of a graph."""

    steps: Mapping[str, StepCounts] = field(default_factory=dict)
    """By the text of a step or a join."""
    joins: Mapping[str, JoinCounts] = field(default_factory=dict)
    """By the text of a join."""
    coefs: Mapping[str, CoefHistogram] = field(default_factory=dict)
    """Coefficients of sampled segments; see ``expected.slot``. Counted as of all of them."""
    groups: Mapping[str, Mapping[int, CoefHistogram]] = field(default_factory=dict)
    """Those of a few entities, by the text of a step and their numbers."""
    sample_ns: float = 0.0
    """Time that sampling took (ns)."""

    def merged(self, other: ModelProfile) -> ModelProfile:
        """Return the profile of what both saw."""
        return ModelProfile(
            both(self.steps, other.steps, lambda a, b: a + b),
            both(self.joins, other.joins, lambda a, b: a + b),
            both(self.coefs, other.coefs, _merged),
            both(self.groups, other.groups, _few),
            self.sample_ns + other.sample_ns,
        )

    def decayed(self, share: float, sampled: float) -> ModelProfile:
        """Return the same in which a segment counts less; entities long gone are let go of.

        Args:
            share: of what it did, of counts.
            sampled: likewise of histograms; 1 where none are newer.
        """
        groups = {
            step: {each: left for each, of in every.items() if len(left := of.decayed(sampled))}
            for step, every in self.groups.items()
        }
        return replace(
            self,
            steps={name: each.times(share) for name, each in self.steps.items()},
            joins={name: each.times(share) for name, each in self.joins.items()},
            coefs={name: each.decayed(sampled) for name, each in self.coefs.items()},
            groups=groups,
        )


def _merged(one: CoefHistogram, other: CoefHistogram) -> CoefHistogram:
    return one.merged(other, max_cells=MAX_CELLS)


def _few(
    one: Mapping[int, CoefHistogram], other: Mapping[int, CoefHistogram]
) -> dict[int, CoefHistogram]:
    every = both(one, other, _merged)
    return {each: every[each] for each in sorted(every)[:MAX_GROUPS]}
