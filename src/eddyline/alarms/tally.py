"""What the work of alarms is made of, and how long each kind of it takes."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from eddyline.stats.costs import CostSums, work_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BOUNDS, TESTS, PAIRS, SOLVED = range(4)
KINDS = ("bounds", "tests", "pairs", "solved")
"""Kinds of work: an expression is computed on a segment; a segment is held against constants; a
pair of a segment and an alarm is looked at; one is solved. All ways to share are made of these, so
what one of them took says what another would."""


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

    def rows_since(self, first: int) -> list[int]:
        """Return the rows by kind of the calls from one on."""
        found = [0] * len(KINDS)
        for kind, n_rows, _ in self.calls[first:]:
            found[kind] += n_rows
        return found

    @property
    def costs(self) -> CostSums:
        """The sums over calls, by kind; calls without rows are left out."""
        sums = CostSums.empty(len(KINDS)).sums
        if not self.calls:
            return CostSums(sums)
        kinds, rows, ns = np.array([each for each in self.calls if each[1]] or [(0, 1, 0)]).T
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
