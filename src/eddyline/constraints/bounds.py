"""Learned bound that holds a stated share of spans.

A span is, for example, how late a row is. The bound is the smallest that holds the share. It rises
at once when a batch needs a larger one, and comes down slowly. Spans beyond the bound are measured
like the others, so the bound does not hide the evidence against it (the ratchet of
[Babu05 6.6.3]). If more rows were beyond the bound than the share allows, the next bound allows as
many fewer, and the other way round. So the held share follows the stated one.

*Lateness* is such a bound of one stream: ordered arrival OA(k) [Babu05 6.8] on event time, in µs
instead of rows. A row is *out of order* by how far the latest event time of earlier batches is
ahead of it. All rows are measured, late ones too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np
from msgspec import Struct, structs
from msgspec import field as struct_field

from eddyline.runtime.journal import JournalEntry
from eddyline.state.event_time import EventTime
from eddyline.state.rows import ALWAYS, FOREVER

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
    bins: NDArray[np.int64] = np.floor(np.log2(spans) * BINS_PER_OCTAVE).astype(np.int64)
    return bins


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
    bins: dict[int, float] = struct_field(default_factory=dict)
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
    def is_known(self) -> bool:
        """Whether so many rows were measured that one of them may be beyond the bound."""
        return self.n_rows * (1 - self.share) >= 1

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

    def with_spans(self, n_rows: int, bins: Mapping[int, int]) -> Self:
        """Return what is known with one batch more, where a bound begins at 0; see ``measured``.

        The first spans are beyond no bound: there was none. The first bounds are wide, and settle
        as soon as enough rows are known: a bound that is too small costs time alone.
        """
        is_first = not (self.bound or self.is_known)
        beyond = 0 if is_first else n_beyond(bins, self.bound)
        after = self.measured(n_rows, beyond, bins)
        return after.settled() if after.is_known and not self.is_known else after

    def settled(self) -> Self:
        """Return the same with the smallest bound, which it would come down to slowly."""
        return self.bounded(self._smallest())

    def begun(self, n_rows: float, bins: Mapping[int, float]) -> Self:
        """Return the same with the smallest bound of other rows, as if only these were measured."""
        anew = structs.replace(self, bins=dict(bins), n_remembered=float(n_rows), excess=0.0)
        return anew.settled()

    def _next_bound(self, n_rows: int) -> int:
        """Return the bound for the batch after one of so many rows."""
        if not self.is_known:
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
    """Return the bounds, by stream, that are to be told of after a batch, as decisions."""
    return [
        JournalEntry(
            batch_id,
            component,
            event,
            f"{name} {_seconds(before[name].told)}",
            f"{name} {_seconds(bound.told)}",
            {"share": bound.share, "n_beyond": bound.n_beyond, "n_rows": bound.n_rows},
        )
        for name, bound in after.items()
        if bound.told != before[name].told
    ]


def _seconds(bound: int) -> str:
    return "any" if bound == FOREVER else f"{bound / 1e6:.6g} s"


@dataclass(frozen=True, slots=True)
class Disorder:
    """How far out of order the rows of a stream in one batch were."""

    n_rows: int = 0
    """Rows with an event time."""
    n_late: int = 0
    """Those of them that were late."""
    earliest: int = FOREVER
    """The earliest event time (µs)."""
    latest: int = ALWAYS
    """The latest one (µs)."""
    bins: Mapping[int, int] = field(default_factory=dict)
    """Rows that were out of order, by the bin of how far; see ``bins_of``."""

    def merge(self, *others: Self) -> Self:
        """Return the disorder of all together."""
        parts, bins = (self, *others), dict(self.bins)
        for other in others:
            for number, n in other.bins.items():
                bins[number] = bins.get(number, 0) + n
        return type(self)(
            sum(part.n_rows for part in parts),
            sum(part.n_late for part in parts),
            min(part.earliest for part in parts),
            max(part.latest for part in parts),
            bins,
        )


class LearnedLateness(LearnedBound, frozen=True, forbid_unknown_fields=True):
    """The lateness of one stream as it was learned so far; a part of its durable state.

    The bound is how much earlier than the latest row before its batch a row may be.
    """

    def after(self, batch: Disorder, latest: int | None) -> LearnedLateness:
        """Return what is known with one batch more.

        ``latest`` is the latest event time of the batches before (µs); None if there was none.
        """
        if not batch.n_rows:
            return self
        if latest is None or self.bound == FOREVER:
            newest = batch.latest if latest is None else max(latest, batch.latest)
            return self.bounded(newest - batch.earliest)
        return self.measured(batch.n_rows, batch.n_late, batch.bins)


@dataclass(frozen=True, slots=True)
class LatenessRule:
    """By how much the rows of streams may be late: what was given, and what is to be learned."""

    given: Mapping[str, int]
    """By stream (µs); 0 where it is learned."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Of streams whose lateness is learned: the share of rows that are to be in time ((0, 1))."""
    told: frozenset[str] = frozenset()
    """See ``EventTime.told``."""

    def known(self, learned: Mapping[str, LearnedLateness]) -> dict[str, LearnedLateness]:
        """Return what is known of each stream whose lateness is learned; nothing of a new one.

        What was learned for another share is let go.
        """
        lateness = {}
        for name, share in self.shares.items():
            new = LearnedLateness(share)
            before = learned.get(name, new)
            lateness[name] = before if before.share == share else new
        return lateness

    def streams(
        self, learned: Mapping[str, LearnedLateness], passed: Mapping[str, int]
    ) -> EventTime:
        """Return by how much rows may be late behind those of a batch.

        ``learned`` is what is known with its rows; for ``passed`` see ``EventTime``.
        """
        bounds = {name: bound.bound for name, bound in learned.items()}
        return EventTime({**self.given, **bounds}, passed, self.told)

    def after(
        self,
        learned: Mapping[str, LearnedLateness],
        seen: Mapping[str, Disorder],
        latest: Mapping[str, int],
    ) -> dict[str, LearnedLateness]:
        """Return what is known with one batch more.

        Args:
            learned: what was known before it.
            seen: its rows, by stream.
            latest: the latest event times before it (µs).
        """
        return {
            name: lateness.after(seen.get(name, Disorder()), latest.get(name))
            for name, lateness in learned.items()
        }
