"""A bound that is learned: the smallest that holds a stated share of spans, such as of lateness.

It is raised at once where a batch asks for a larger one, and lowered slowly. Spans beyond it are
measured as those within it are, so that the bound never hides what it is learned of (the ratchet of
[Babu05 6.6.3]). The share that is held follows the stated one because what was beyond the bound is
accounted for: where it was more than the share allows, the next bound allows as much less, and the
other way round.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Self

import numpy as np
from msgspec import Struct, field, structs

from eddyline.runtime.journal import JournalEntry
from eddyline.state.rows import FOREVER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

BINS_PER_OCTAVE = 64
"""Bins in which a span doubles: two spans of a bin differ by 1.1 % at most."""

MEMORY = 10
"""Rows that may be beyond the bound among those that are remembered, which fade with age: 100,000
rows of 99.99 %. With twice as many the share that is held lags behind a drift."""

FEWEST_ROWS = 100_000
"""Fewest rows that are remembered: some batches, where a share allows many beyond it."""

LOWERED = 4
"""The bound goes down by so much of the way to the smallest one within the rows remembered."""

MOST_ALLOWED = 2
"""Most rows that are allowed beyond it where few were, as a multiple of the stated share."""

WARM_UP_MARGIN = 2
"""The first bounds are so many times the most that was seen: until as many rows as the share allows
one row beyond it of have been measured."""


TOLD = 1.25
"""A bound is told of in the journal if it is so many times the one told of last, or its inverse."""


def bins_of(spans: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bin of each span (µs; > 0)."""
    found: NDArray[np.int64] = np.floor(np.log2(spans) * BINS_PER_OCTAVE).astype(np.int64)
    return found


def top_of(number: int) -> int:
    """Return a span that no span of a bin exceeds (µs)."""
    return math.ceil(math.exp2((number + 1) / BINS_PER_OCTAVE)) + 1


def n_beyond(bins: Mapping[int, int], bound: int) -> int:
    """Return how many spans (> 0) of some bins may be beyond a bound (µs; >= 0)."""
    first = math.floor(math.log2(max(bound - 1, 1)) * BINS_PER_OCTAVE) - 1
    while top_of(first) <= bound:
        first += 1
    return sum(n for number, n in bins.items() if number >= first)


class LearnedBound(Struct, frozen=True, forbid_unknown_fields=True):
    """A bound of spans as it was learned so far; plain values."""

    share: float
    """Share of the rows whose spans are to be within the bound ((0, 1))."""
    bound: int = FOREVER
    """The bound in force (µs); FOREVER: any span is within it."""
    bins: dict[int, float] = field(default_factory=dict)
    """Rows with a span above 0, by its bin, faded with age."""
    n_remembered: float = 0.0
    """Rows that are remembered, faded alike."""
    excess: float = 0.0
    """Rows beyond the bound in force at their time, less those that the share allows, faded alike;
    negative: fewer."""
    n_rows: int = 0
    """Rows that were measured."""
    n_beyond: int = 0
    """Those of them that were beyond the bound in force at their time."""
    told: int = FOREVER
    """The bound that the journal told of last (µs)."""

    @property
    def held(self) -> float:
        """The share of the measured rows that were within the bound ([0, 1]; nan: none was)."""
        return 1 - self.n_beyond / self.n_rows if self.n_rows else math.nan

    @property
    def _memory(self) -> float:
        """Rows after which one counts 1/e."""
        return max(MEMORY / (1 - self.share), FEWEST_ROWS)

    def bounded(self, bound: int) -> Self:
        """Return the same with another bound (µs)."""
        is_told = not 1 / TOLD < (bound + 1) / (self.told + 1) < TOLD
        return structs.replace(self, bound=bound, told=bound if is_told else self.told)

    def measured(self, n_rows: int, n_beyond: int, bins: Mapping[int, int]) -> Self:
        """Return what is known with the rows of one batch more.

        Args:
            n_rows: its rows.
            n_beyond: those whose span was beyond the bound in force.
            bins: those with a span above 0, by its bin.
        """
        if not n_rows:
            return self
        missed = 1 - self.share
        fade = math.exp(-n_rows / self._memory)
        faded = {number: n * fade for number, n in self.bins.items()}
        for number, n in bins.items():
            faded[number] = faded.get(number, 0.0) + n
        learned = structs.replace(
            self,
            bins={number: n for number, n in faded.items() if n > missed},
            n_remembered=self.n_remembered * fade + n_rows,
            excess=self.excess * fade + n_beyond - missed * n_rows,
            n_rows=self.n_rows + n_rows,
            n_beyond=self.n_beyond + n_beyond,
        )
        return learned.bounded(learned._next_bound(n_rows))

    def settled(self) -> Self:
        """Return the same with the smallest bound, which it would come down to slowly."""
        return self.bounded(self._smallest())

    def begun(self, n_rows: float, bins: Mapping[int, float]) -> Self:
        """Return the same with the smallest bound of other rows, as if these alone were measured.

        Args:
            n_rows: the rows.
            bins: those with a span above 0, by its bin.
        """
        anew = structs.replace(self, bins=dict(bins), n_remembered=float(n_rows), excess=0.0)
        return anew.settled()

    def _next_bound(self, n_rows: int) -> int:
        """Return the bound for the batch after one of so many rows."""
        if self.n_rows * (1 - self.share) < 1:
            return max(self.bound, WARM_UP_MARGIN * top_of(max(self.bins, default=0)))
        smallest = self._smallest()
        if smallest >= self.bound:
            return smallest
        way = min(1.0, LOWERED * n_rows / self._memory)
        return self.bound - math.ceil((self.bound - smallest) * way)

    def _smallest(self) -> int:
        """Return the smallest bound beyond which no more rows are than may be (µs)."""
        fair = (1 - self.share) * self.n_remembered
        allowed, beyond = min(max(fair - self.excess, 0.0), MOST_ALLOWED * fair), 0.0
        for number in sorted(self.bins, reverse=True):
            beyond += self.bins[number]
            if beyond > allowed:
                return top_of(number)
        return 0


def changes(
    component: str,
    event: str,
    before: Mapping[str, LearnedBound],
    after: Mapping[str, LearnedBound],
    batch_id: int,
) -> list[JournalEntry]:
    """Return the bounds that are to be told of after a batch, as decisions.

    Args:
        component: what learns them.
        event: what the journal calls it.
        before: what was known before the batch, by stream.
        after: the same streams after it.
        batch_id: the batch.
    """
    return [
        JournalEntry(
            batch_id,
            component,
            event,
            f"{name} {_seconds(before[name].told)}",
            f"{name} {_seconds(each.told)}",
            {"share": each.share, "n_beyond": each.n_beyond, "n_rows": each.n_rows},
        )
        for name, each in after.items()
        if each.told != before[name].told
    ]


def _seconds(bound: int) -> str:
    return "any" if bound == FOREVER else f"{bound / 1e6:.6g} s"
