"""The ages of the rows of windows that new rows find: what constraints on a join are learned of.

A row of a window that is found is as old as the event time between it and the row that finds it;
one that is found by an earlier row is of age 0. Referential integrity over streams [Babu05 6.6]
with a k in event time, and for either side of an equality: a row whose partners come within k is
not asked for afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from eddyline.constraints.bounds import bins_of
from eddyline.joins.operator.composites import starts_of
from eddyline.stats.costs import work_ns

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from numpy.typing import NDArray

    from eddyline.joins.operator.composites import Composites
    from eddyline.state.rows import SortedRun

MEASURED = 2_048
"""Pairs of one look-up of many rows whose ages are measured, about, evenly spread over all."""


@dataclass(slots=True)
class AgeCounts:
    """The ages of the rows of one window that were found."""

    n_pairs: int = 0
    """Pairs of a row, or a combination of rows, and a row of the window."""
    n_cold: int = 0
    """Those of them whose row of the window was in a cold run."""
    bins: dict[int, int] = field(default_factory=dict)
    """Pairs whose row of the window was older than its partner, by the bin of its age; those that
    were measured stand for others."""
    is_measured: bool = True
    """Whether ages were measured; if not, pairs are only counted."""

    def add(self, other: AgeCounts) -> None:
        """Count those of another part, too."""
        self.n_pairs += other.n_pairs
        self.n_cold += other.n_cold
        for number, n in other.bins.items():
            self.bins[number] = self.bins.get(number, 0) + n


def merged(parts: Iterable[dict[str, AgeCounts]]) -> dict[str, AgeCounts]:
    """Return the ages of several buckets, by input."""
    whole: dict[str, AgeCounts] = {}
    for part in parts:
        for name, counts in part.items():
            whole.setdefault(name, AgeCounts(is_measured=counts.is_measured)).add(counts)
    return whole


class PartnerAges:
    """Measures the ages of rows that are found in the windows of some inputs.

    Args:
        watched: the inputs.
        measures: whether ages are measured, or pairs only counted.
    """

    def __init__(self, watched: Collection[str], *, measures: bool = True) -> None:
        self.counts = {name: AgeCounts(is_measured=measures) for name in watched}
        self.measures = measures
        self.ns = 0
        """Time that it took (ns)."""

    def found(self, name: str, window: Sequence[SortedRun], joined: Composites) -> None:
        """Count what combinations found in the window of an input.

        Args:
            name: the input.
            window: its runs, the cold ones first.
            joined: the combinations with its rows.
        """
        if name not in self.counts or not len(joined):
            return
        started, rows = work_ns(), joined.rows[name]
        n_cold = len(window[0]) if window[0].is_cold else 0
        n_found = int(np.count_nonzero(rows < n_cold)) if n_cold else 0
        bins = _bins(window, rows, joined.starts) if self.measures else {}
        self.counts[name].add(AgeCounts(rows.size, n_found, bins))
        self.ns += work_ns() - started


def _bins(
    window: Sequence[SortedRun], rows: NDArray[np.int64], instants: NDArray[np.int64]
) -> dict[int, int]:
    """Return the bins of the ages of rows that were found by others at some instants (µs)."""
    step = -(-rows.size // MEASURED)
    ages = instants[::step] - starts_of(window, rows[::step])
    numbers, counts = np.unique(bins_of(ages[ages > 0]), return_counts=True)
    return dict(zip(numbers.tolist(), (counts * step).tolist(), strict=True))
