"""Profiles of solving alarms: small, mergeable, keyed by texts.

A task fills a ``Tally``: it counts and times each kind of work on a block of segments.
``AlarmProfile`` adds up the tallies of blocks. The driver's loop plans from it.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from eddyline.stats.costs import CostSums, work_ns
from eddyline.stats.profile import FilterProfile, both, merge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from eddyline.estimates.histograms import CoefHistogram, ValueSketch

BOUNDS, TESTS, PAIRS, SOLVED = range(4)
KINDS = ("bounds", "tests", "pairs", "solved")
"""Kinds of work: an expression is computed on a segment; a segment is held against constants; a
pair of a segment and an alarm is looked at; one is solved. All ways to share are made of these, so
what one of them took says what another would."""


@dataclass(frozen=True, slots=True)
class TemplateCounts:
    """What one template took."""

    sharing: str
    """How it was solved."""
    n_rows: int
    """Segments that its alarms were asked of."""
    n_held: int
    """Ranges that were found, before they were put together."""
    ns: int
    """Time in all (ns)."""

    def merged(self, other: TemplateCounts) -> TemplateCounts:
        """Return the counts of both; those of another way to solve it are left out."""
        if other.sharing != self.sharing:
            return self
        return TemplateCounts(
            self.sharing,
            self.n_rows + other.n_rows,
            self.n_held + other.n_held,
            self.ns + other.ns,
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
            values={name: sketch.decayed(share) for name, sketch in self.values.items()},
            coefs={name: histogram.decayed(share) for name, histogram in self.coefs.items()},
        )


@dataclass
class Tally:
    """Counts and times the work of a block of segments by its kinds."""

    clock: Callable[[], int] = work_ns
    calls: list[tuple[int, int, int]] = field(default_factory=list)
    """Kind, rows and time (ns) of each call."""

    @contextmanager
    def on(self, kind: int, n_rows: int) -> Iterator[None]:
        """Count the work inside; what is counted inside of that is left out of its time."""
        first, began = len(self.calls), self.clock()
        yield
        inner = sum(ns for _, _, ns in self.calls[first:])
        self.calls.append((kind, n_rows, max(self.clock() - began - inner, 0)))

    @property
    def costs(self) -> CostSums:
        """The sums over calls, by kind; calls without rows are left out."""
        sums = CostSums.empty(len(KINDS)).sums
        if not self.calls:
            return CostSums(sums)
        kinds, rows, ns = np.array([call for call in self.calls if call[1]] or [(0, 1, 0)]).T
        for kind in range(len(KINDS)):
            n, time = rows[kinds == kind].astype(float), ns[kinds == kind].astype(float)
            if len(n) and time.any():
                per_row = (1 / n).sum(), (time / n).sum()
                sums[:, kind] = [len(n), n.sum(), time.sum(), *per_row, n.min(), n.max()]
        return CostSums(sums)


def aged(costs: CostSums, share: float) -> CostSums:
    """Return costs in which each call counts that share of what it did ([0, 1])."""
    if share == 0.0:
        return CostSums.empty(costs.n_filters)
    sums = costs.sums.copy()
    sums[:5] *= share
    return CostSums(sums)
