"""A classifier attribute: cut into bins, its sampled rows counted [Bizarro05 Def 3.1]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from eddyline.routing.gain import difference

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Indices, Mask
    from eddyline.routing.partitions import Partition


MERGE_LEVEL = 0.01
"""Chance of keeping two neighbouring ranges apart that are alike."""


@dataclass(frozen=True, slots=True)
class Classifier:
    """An attribute that may tell something."""

    partition: Partition
    bins: Indices
    """Bin of each row ((M,))."""
    seen: Floats
    """Rows in each bin and each part of the sample ((D, J))."""
    passed: Floats
    """Of those, the rows that pass each filter ((F, D, J))."""

    @property
    def n_bins(self) -> int:
        """D, the number of bins."""
        return len(self.seen)

    def merged(self, filters: Mask) -> Self:
        """Return the attribute with fewer ranges: neighbours that say the same are one.

        The likeliest pair is merged until every two neighbours differ beyond chance in what they
        say of the filters ((F,)) that the attribute tells about [Kerber92].
        """
        if self.partition.kind != "ranges":
            return self
        seen, passed = self.seen[:-1].sum(axis=1), self.passed[filters, :-1].sum(axis=2)
        kept = np.arange(len(seen) - 1)
        from scipy.special import chdtri  # noqa: PLC0415 - loading it takes longer than most tasks

        least = chdtri(max(filters.sum(), 1), MERGE_LEVEL)
        while len(kept):
            statistic = difference(seen, passed)
            edge = int(statistic.argmin())
            if statistic[edge] > least:
                break
            seen = _merged_counts(seen, edge)
            passed = _merged_counts(passed, edge)
            kept = np.delete(kept, edge)
        useless = set(range(len(self.partition.points))) - set(kept.tolist())
        starts = np.array([0, *(kept + 1), self.n_bins - 1])
        number = np.repeat(np.arange(len(starts)), np.diff(starts, append=self.n_bins))
        return type(self)(
            self.partition.without(useless),
            number[self.bins],
            np.add.reduceat(self.seen, starts, axis=0),
            np.add.reduceat(self.passed, starts, axis=1),
        )


def _merged_counts(counts: Floats, edge: int) -> Floats:
    """Return counts with bins ``edge`` and ``edge + 1`` of the last axis as one."""
    starts = np.delete(np.arange(counts.shape[-1]), edge + 1)
    return np.add.reduceat(counts, starts, axis=-1)
