"""The pipeline of an input: its new rows probe the windows of the others, one after the other.

The pipelines of all inputs together are an MJoin [Babu05 5.2]. A *shortcut* may spare some probes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.operator.composites import Composites
    from eddyline.joins.operator.lost_results import LostResults
    from eddyline.joins.operator.partner_ages import PartnerAges
    from eddyline.joins.operator.probe_counts import JoinWork
    from eddyline.state.rows import SortedRun

Through: TypeAlias = "Callable[[Composites, int, int], Composites | None]"
"""Joins combinations with the windows at positions ``[start, stop)``; None if none is left."""


class Shortcut(Protocol):
    """Spares pipelines some of their probes. Results are the same with and without it."""

    def passed(self, pipeline: str, position: int, joined: Composites) -> None:
        """Take note of the combinations (at least one) at a position, whose probe is still to come.

        Called once for each position that a pipeline reaches, with the one behind the last window.
        """
        ...

    def joined(
        self, pipeline: str, position: int, joined: Composites, through: Through
    ) -> tuple[Composites | None, int]:
        """Join combinations (at least one) with the windows at one position or more.

        Called after ``passed``, for each position with a window that a pipeline reaches. The probes
        that may be spared, ``through``, serve any combinations and positions.

        Returns:
            The combinations, None if none is left, and the position to go on with.
        """
        ...


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The joins of the new rows of one input in one batch."""

    graph: JoinGraph
    name: str
    """The input."""
    order: Sequence[str]
    """The other inputs, never needing a Cartesian product."""
    windows: Mapping[str, Sequence[SortedRun]]
    """The runs of each input."""
    work: JoinWork
    """The counts of all probes; added to."""
    ages: PartnerAges | None = None
    """Measures the ages of rows that are found; None if nobody asks."""
    lost: LostResults | None = None
    """Counts what is missed of rows that were dropped; None if none were."""

    def run(self, first: Composites, shortcut: Shortcut | None = None) -> Composites | None:
        """Join new rows of the input with the windows of all others; None if nothing is joined."""
        if shortcut is None:
            return self._through(first, 0, len(self.order), keeps_codes=False)
        joined: Composites | None = first
        position = 0
        while joined is not None:
            shortcut.passed(self.name, position, joined)
            if position == len(self.order):
                break
            joined, position = shortcut.joined(self.name, position, joined, self._through)
        return joined

    def _through(
        self, joined: Composites, start: int, stop: int, *, keeps_codes: bool = True
    ) -> Composites | None:
        """Join combinations with the windows at positions ``[start, stop)``; None if none is left.

        Codes may be dropped that no later probe looks at.
        """
        for position in range(start, stop):
            name, bound = self.order[position], (self.name, *self.order[:position])
            if self.lost is not None:
                self.lost.missed(self, position, joined)
            started, n_in = time.perf_counter_ns(), len(joined)
            if not self.windows[name]:
                self.work.probe(self.name, name).add(n_in, 0, 0)
                return None
            links = self.graph.links(bound, name)
            needed = None if keeps_codes else self._needed_after(position)
            joined = joined.join(name, self.windows[name], links, needed)
            ns = time.perf_counter_ns() - started
            self.work.probe(self.name, name).add(n_in, len(joined), ns)
            if self.ages is not None:
                self.ages.found(name, self.windows[name], joined)
            if not len(joined):
                return None
        return joined

    def _needed_after(self, position: int) -> set[int]:
        """Return the key classes that probes behind a position look at."""
        return {
            key
            for later in range(position + 1, len(self.order))
            for key in self.graph.links((self.name, *self.order[:later]), self.order[later])
        }
