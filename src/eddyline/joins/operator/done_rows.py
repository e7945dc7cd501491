"""Counts of a batch: rows done by a rule, rows that were matched, results that are lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from eddyline.joins.operator.composites import Composites
    from eddyline.state.rows import SortedRun


@dataclass(slots=True)
class DoneCounts:
    """How many rows of an input were done by a rule, and the work of letting them go."""

    n_new: int = 0
    """New rows."""
    n_new_done: int = 0
    """Those of them that were done when their batch ended."""
    n_old_done: int = 0
    """Older rows that were seen to be done."""
    n_left: int = 0
    """Rows of merged runs that left for it."""
    ns: int = 0
    """Time that it took to find them, and to write apart what left, with its filter (ns)."""
    n_merged: int = 0
    """Rows that were merged."""
    merge_ns: int = 0
    """Time that it took to merge them, and to write those that stay (ns)."""

    def add(self, other: DoneCounts) -> None:
        """Count those of another part, too."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


Done = dict[tuple[str, str], DoneCounts]
"""Counts by rule and input."""


MATCHED = "matched"
"""The rule of rows that were in their only result."""


PASSED = "passed"
"""The rule of rows whose key the others have passed."""


CLOSED = "closed"
"""The rule of rows whose key has come in all other streams, and comes no more."""


def merged_counts(parts: Iterable[Done], rule: str) -> Mapping[str, DoneCounts]:
    """Return the counts of several buckets by one rule, by input."""
    whole: dict[str, DoneCounts] = {}
    for part in parts:
        for (of, name), counts in part.items():
            if of == rule:
                whole.setdefault(name, DoneCounts()).add(counts)
    return whole


MOST = 2**62
"""No more results than that are told, which no query has: sums stay whole numbers of 64 bits."""


WHOLE = 2.0**53
"""Sums of whole numbers are exact below it."""


@dataclass(slots=True)
class LostCounts:
    """What dropped rows of one input cost in a batch, and what its others were needed for."""

    n_found: int = 0
    """Results that were found."""
    widest: int = 0
    """The greatest age of a row of the input in one of them: the event time from it to the latest
    row of the result (µs)."""
    n_most: int = 0
    """No more results were missed of which a row of the input was the first to be missing."""
    n_about: float = 0.0
    """About so many were."""
    n_seen: int = 0
    """Combinations of which a dropped partner is known for certain."""
    widest_seen: int = 0
    """The greatest age of the newest such partner (µs)."""
    n_dropped: int = 0
    """Rows of the input that were dropped."""

    def add(self, other: LostCounts) -> None:
        """Count those of another part, too."""
        self.n_found += other.n_found
        self.widest = max(self.widest, other.widest)
        self.n_most = min(self.n_most + other.n_most, MOST)
        self.n_about += other.n_about
        self.n_seen += other.n_seen
        self.widest_seen = max(self.widest_seen, other.widest_seen)
        self.n_dropped += other.n_dropped


def merged_lost(parts: Iterable[Mapping[str, LostCounts]]) -> dict[str, LostCounts]:
    """Return the counts of several buckets, by input."""
    whole: dict[str, LostCounts] = {}
    for part in parts:
        for name, counts in part.items():
            whole.setdefault(name, LostCounts()).add(counts)
    return whole


class MatchedRows:
    """Takes note of which new rows of some inputs are in results.

    Args:
        covers: the inputs.
        windows: the runs of each input before the batch.
        news: the new rows.
    """

    def __init__(
        self,
        covers: Collection[str],
        windows: Mapping[str, Sequence[SortedRun]],
        news: Mapping[str, SortedRun],
    ) -> None:
        mine = [name for name in news if name in covers]
        self._firsts = {name: sum(map(len, windows[name])) for name in mine}
        self.masks = {name: np.zeros(len(news[name]), np.bool_) for name in mine}
        """By input, which of its new rows were in a result."""
        self.n_old = dict.fromkeys(covers, 0)
        """Results with an older row of each input."""

    def found(self, joined: Composites) -> None:
        """Take note of results."""
        for name in self.n_old:
            rows, first = joined.rows[name], self._firsts.get(name)
            if first is None:
                self.n_old[name] += rows.size
                continue
            fresh = rows[rows >= first] - first
            self.masks[name][fresh] = True
            self.n_old[name] += rows.size - fresh.size
