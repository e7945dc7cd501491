"""What was observed while alarms were solved: small, mergeable, keyed by texts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from eddyline.alarms.tally import KINDS
from eddyline.stats.costs import CostSums
from eddyline.stats.profile import FilterProfile, both, merge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.estimates.histograms import CoefHistogram
    from eddyline.estimates.values import ValueSketch


@dataclass(frozen=True, slots=True)
class TemplateCounts:
    """What one template took."""

    sharing: str
    """How it was solved."""
    n_rows: int
    """Segments that its alarms were asked of."""
    n_pairs: int
    """Pairs of a segment and an alarm that were looked at or solved."""
    n_held: int
    """Ranges that were found, before they were put together."""
    ns: int
    """Time in all (ns)."""
    n_blocks: int = 1
    """Blocks of segments."""

    def merged(self, other: TemplateCounts) -> TemplateCounts:
        """Return the counts of both; those of another way to solve it are left out."""
        if other.sharing != self.sharing:
            return self
        return TemplateCounts(
            self.sharing,
            self.n_rows + other.n_rows,
            self.n_pairs + other.n_pairs,
            self.n_held + other.n_held,
            self.ns + other.ns,
            self.n_blocks + other.n_blocks,
        )


@dataclass(frozen=True)
class AlarmProfile:
    """What blocks of segments showed."""

    n_rows: int = 0
    """Segments."""
    n_blocks: int = 0
    costs: CostSums = field(default_factory=lambda: CostSums.empty(len(KINDS)))
    """Of calls by kind of work."""
    templates: Mapping[str, TemplateCounts] = field(default_factory=dict)
    """By the text of a template."""
    values: Mapping[str, ValueSketch] = field(default_factory=dict)
    """The least and greatest values of sampled segments, by the text of an expression."""
    coefs: Mapping[str, CoefHistogram] = field(default_factory=dict)
    """Their coefficients."""
    outcomes: Mapping[str, FilterProfile] = field(default_factory=dict)
    """Which conjuncts leave out which sampled segments, by the text of a template."""

    def merged(self, other: AlarmProfile) -> AlarmProfile:
        """Return the profile of all blocks of both."""
        return AlarmProfile(
            self.n_rows + other.n_rows,
            self.n_blocks + other.n_blocks,
            self.costs + other.costs,
            both(self.templates, other.templates, lambda a, b: a.merged(b)),
            both(self.values, other.values, lambda a, b: a.merged(b)),
            both(self.coefs, other.coefs, lambda a, b: a.merged(b)),
            both(self.outcomes, other.outcomes, lambda a, b: merge([a, b])),
        )

    def without_values(self) -> AlarmProfile:
        """Return the same without a segment: what work costs stays known."""
        return replace(self, n_rows=0, n_blocks=0, values={}, coefs={})

    def decayed(self, share: float) -> AlarmProfile:
        """Return the same with sketches in which a segment counts that share of what it did."""
        return replace(
            self,
            n_rows=round(self.n_rows * share),
            n_blocks=max(round(self.n_blocks * share), min(self.n_blocks, 1)),
            values={name: each.decayed(share) for name, each in self.values.items()},
            coefs={name: each.decayed(share) for name, each in self.coefs.items()},
        )
