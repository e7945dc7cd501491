"""What the evaluation of rules observed: counts that add up, and regions of sampled rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from eddyline.rules.compile.bitmap_block import SelectionCounts
    from eddyline.rules.compile.program import Program
    from eddyline.rules.plan import BlockPlan

MAX_SAMPLED = 2_000
"""Sampled rows that a profile keeps: the newest."""


@dataclass(frozen=True, slots=True)
class SharingProfile:
    """What one or more batches observed of the rules of one program."""

    n_rows: int
    """Rows evaluated."""
    n_sampled: int
    """Rows that every construct looked at, whatever the plan."""
    pattern_counts: NDArray[np.int64]
    """Of those, how many each pattern was met in."""
    sampled_regions: NDArray[np.int32]
    """Regions of the newest of them in each region construct ((rows, constructs))."""
    candidates: NDArray[np.int64]
    """Rows that met each rule."""
    matches: NDArray[np.int64]
    """Rows that each rule was true for."""
    construct_rows: NDArray[np.int64]
    """Rows that each construct looked at: regions first, then texts."""
    construct_ns: NDArray[np.int64]
    """Time that took (ns)."""
    asked: NDArray[np.int64]
    """Rows that each external test was asked about."""
    asked_ns: NDArray[np.int64]
    """Time that took (ns)."""
    value_rows: NDArray[np.int64]
    """Rows in which the values of each text construct's column were counted."""
    distinct_values: NDArray[np.int64]
    """How many there were, batch by batch."""
    dropped: int = 0
    """Rows that no rule was met by."""
    evaluation_ns: int = 0
    """Time that all of it took (ns)."""
    blocks: Mapping[BlockPlan, SelectionCounts] = field(default_factory=dict)
    """What each block came to under each sequence."""

    @classmethod
    def empty(cls, program: Program) -> Self:
        """Return the profile of no rows."""

        def zeros(size: int) -> NDArray[np.int64]:
            return np.zeros(size, np.int64)

        n_constructs = len(program.regions) + len(program.texts)
        n_externals = len(program.externals)
        return cls(
            n_rows=0,
            n_sampled=0,
            pattern_counts=zeros(program.n_patterns),
            sampled_regions=np.zeros((0, len(program.regions)), np.int32),
            candidates=zeros(program.n_rules),
            matches=zeros(program.n_rules),
            construct_rows=zeros(n_constructs),
            construct_ns=zeros(n_constructs),
            asked=zeros(n_externals),
            asked_ns=zeros(n_externals),
            value_rows=zeros(len(program.texts)),
            distinct_values=zeros(len(program.texts)),
        )

    def region_sums(self, construct: int, n_regions: int) -> NDArray[np.int64]:
        """Return how many of the sampled rows lie below each region, as far as they are kept.

        Args:
            construct: the region construct.
            n_regions: how many regions it has.

        Returns:
            One more than there are regions; the last is ``n_sampled`` ((n_regions + 1,)).
        """
        regions = self.sampled_regions[:, construct]
        counts = np.bincount(regions, minlength=n_regions)
        sums = np.concatenate([[0], np.cumsum(counts)])
        return sums * max(1, self.n_sampled) // max(1, len(regions))


def merge(profiles: Sequence[SharingProfile]) -> SharingProfile:
    """Return profiles of one program as one; the sampled rows of the last are the newest."""
    first, *others = profiles
    for other in others:
        regions = np.concatenate([first.sampled_regions, other.sampled_regions])
        first = SharingProfile(
            n_rows=first.n_rows + other.n_rows,
            n_sampled=first.n_sampled + other.n_sampled,
            pattern_counts=first.pattern_counts + other.pattern_counts,
            sampled_regions=regions[-MAX_SAMPLED:],
            candidates=first.candidates + other.candidates,
            matches=first.matches + other.matches,
            construct_rows=first.construct_rows + other.construct_rows,
            construct_ns=first.construct_ns + other.construct_ns,
            asked=first.asked + other.asked,
            asked_ns=first.asked_ns + other.asked_ns,
            value_rows=first.value_rows + other.value_rows,
            distinct_values=first.distinct_values + other.distinct_values,
            dropped=first.dropped + other.dropped,
            evaluation_ns=first.evaluation_ns + other.evaluation_ns,
            blocks=_added(first.blocks, other.blocks),
        )
    return first


def _added(
    first: Mapping[BlockPlan, SelectionCounts], other: Mapping[BlockPlan, SelectionCounts]
) -> dict[BlockPlan, SelectionCounts]:
    added = dict(first)
    for plan, counts in other.items():
        added[plan] = added[plan] + counts if plan in added else counts
    return added
