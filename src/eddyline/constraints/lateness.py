"""The lateness of a stream, learned: the smallest bound that holds a stated share of its rows.

Ordered arrival OA(k) [Babu05 6.8] on event time, in µs in place of rows: a row is as far *out of
order* as the latest event time of the batches before its own is ahead of it. The bound is raised at
once where a batch asks for a larger one, and lowered slowly. All rows are measured, those that were
late too, so that what the bound drops is never missing among what it is learned of.

The share that is held follows the stated one because what was lost is accounted for: where more
rows were late than the share allows, the next bound allows as many fewer, and the other way round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from msgspec import Struct, structs
from msgspec import field as struct_field

from eddyline.runtime.journal import JournalEntry
from eddyline.state.event_time import EventTime
from eddyline.state.rows import ALWAYS, FOREVER

if TYPE_CHECKING:
    from collections.abc import Mapping

BINS_PER_OCTAVE = 64
"""Bins in which a span doubles: two spans of a bin differ by 1.1 % at most."""

MEMORY = 10
"""Rows that may be late among those that are remembered, which fade with age: 100,000 rows of
99.99 %. With twice as many the share that is held lags behind a drift (tests/constraints/)."""

FEWEST_ROWS = 100_000
"""Fewest rows that are remembered: some batches, where a share lets many be late."""

LOWERED = 4
"""The bound goes down by so much of the way to the smallest one within the rows remembered."""

MOST_ALLOWED = 2
"""Most late rows that are allowed where few were lost, as a multiple of the stated share."""

WARM_UP_MARGIN = 2
"""The first bounds are so many times the most that was seen: until as many rows as the share allows
one late row of have been measured."""


TOLD = 1.25
"""A bound is told of in the journal if it is so many times the one told of last, or its inverse."""


def bin_of(span: int) -> int:
    """Return the bin of a span (µs; > 0)."""
    return math.floor(math.log2(span) * BINS_PER_OCTAVE)


def top_of(number: int) -> int:
    """Return a span that no span of a bin exceeds (µs)."""
    return math.ceil(math.exp2((number + 1) / BINS_PER_OCTAVE)) + 1


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
    """Rows that were out of order, by the bin of how far; see ``bin_of``."""

    def merge(self, *others: Self) -> Self:
        """Return the disorder of all together."""
        parts, bins = (self, *others), dict(self.bins)
        for each in others:
            for number, n in each.bins.items():
                bins[number] = bins.get(number, 0) + n
        return type(self)(
            sum(each.n_rows for each in parts),
            sum(each.n_late for each in parts),
            min(each.earliest for each in parts),
            max(each.latest for each in parts),
            bins,
        )


class LearnedLateness(Struct, frozen=True, forbid_unknown_fields=True):
    """The lateness of one stream as it was learned so far; a part of its durable state."""

    share: float
    """Share of rows that are to be in time ((0, 1))."""
    bound: int = FOREVER
    """How much earlier than the latest row before its batch a row may be (µs); FOREVER: any."""
    low: int = ALWAYS
    """The instant before which rows are late (µs). It never goes back, whatever the bound is."""
    bins: dict[int, float] = struct_field(default_factory=dict)
    """Rows that were out of order, by bin, faded with age."""
    n_remembered: float = 0.0
    """Rows that are remembered, faded alike."""
    excess: float = 0.0
    """Late rows beyond those that the share allows, faded alike; negative: fewer."""
    n_rows: int = 0
    """Rows that were measured."""
    n_late: int = 0
    """Those of them that were late."""
    told: int = FOREVER
    """The bound that the journal told of last (µs)."""

    @property
    def held(self) -> float:
        """The share of the measured rows that were in time ([0, 1]; nan: none was)."""
        return 1 - self.n_late / self.n_rows if self.n_rows else math.nan

    @property
    def _memory(self) -> float:
        """Rows after which one counts 1/e."""
        return max(MEMORY / (1 - self.share), FEWEST_ROWS)

    def after(self, batch: Disorder, latest: int | None) -> LearnedLateness:
        """Return what is known with one batch more.

        Args:
            batch: its rows.
            latest: the latest event time of the batches before (µs); None if there was none.
        """
        if not batch.n_rows:
            return self
        if latest is None:
            return self._bounded(batch.latest - batch.earliest)
        low = max(self.low, max(latest, batch.latest) - self.bound)
        missed = 1 - self.share
        fade = math.exp(-batch.n_rows / self._memory)
        bins = {number: n * fade for number, n in self.bins.items()}
        for number, n in batch.bins.items():
            bins[number] = bins.get(number, 0.0) + n
        own = batch.n_late - missed * batch.n_rows
        learned = LearnedLateness(
            share=self.share,
            bound=self.bound,
            low=low,
            bins={number: n for number, n in bins.items() if n > missed},
            n_remembered=self.n_remembered * fade + batch.n_rows,
            excess=self.excess * fade + own,
            n_rows=self.n_rows + batch.n_rows,
            n_late=self.n_late + batch.n_late,
            told=self.told,
        )
        return learned._bounded(learned._next_bound(batch))

    def _bounded(self, bound: int) -> LearnedLateness:
        """Return the same with another bound (µs)."""
        is_told = not 1 / TOLD < (bound + 1) / (self.told + 1) < TOLD
        return structs.replace(self, bound=bound, told=bound if is_told else self.told)

    def _next_bound(self, batch: Disorder) -> int:
        """Return the bound for the batch after one."""
        missed = 1 - self.share
        if self.n_rows * missed < 1:
            return max(self.bound, WARM_UP_MARGIN * top_of(max(self.bins, default=0)))
        smallest = self._smallest()
        if smallest >= self.bound:
            return smallest
        way = min(1.0, LOWERED * batch.n_rows / self._memory)
        return self.bound - math.ceil((self.bound - smallest) * way)

    def _smallest(self) -> int:
        """Return the smallest bound beyond which no more rows are than may be late (µs)."""
        fair = (1 - self.share) * self.n_remembered
        allowed, beyond = min(max(fair - self.excess, 0.0), MOST_ALLOWED * fair), 0.0
        for number in sorted(self.bins, reverse=True):
            beyond += self.bins[number]
            if beyond > allowed:
                return top_of(number)
        return 0


@dataclass(frozen=True, slots=True)
class LatenessRule:
    """By how much the rows of streams may be late: what was given, and what is to be learned."""

    given: Mapping[str, int]
    """By stream (µs); 0 where it is learned."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Of streams whose lateness is learned: the share of rows that are to be in time ((0, 1))."""

    def known(self, learned: Mapping[str, LearnedLateness]) -> dict[str, LearnedLateness]:
        """Return what is known of each stream whose lateness is learned; nothing of a new one.

        What was learned for another share is let go, but for the instant that is passed.
        """
        found = {}
        for name, share in self.shares.items():
            before = learned.get(name, LearnedLateness(share))
            is_same = before.share == share
            found[name] = before if is_same else LearnedLateness(share, low=before.low)
        return found

    def streams(self, learned: Mapping[str, LearnedLateness]) -> EventTime:
        """Return the lateness that is in force for a batch.

        Args:
            learned: see ``known``.
        """
        bounds = {name: each.bound for name, each in learned.items()}
        floors = {name: each.low for name, each in learned.items()}
        return EventTime({**self.given, **bounds}, floors)

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
            name: each.after(seen.get(name, Disorder()), latest.get(name))
            for name, each in learned.items()
        }


def changes(
    component: str,
    before: Mapping[str, LearnedLateness],
    after: Mapping[str, LearnedLateness],
    batch_id: int,
) -> list[JournalEntry]:
    """Return the bounds that are to be told of after a batch, as decisions.

    Args:
        component: what learns them.
        before: what was known before the batch, by stream.
        after: the same streams after it.
        batch_id: the batch.
    """
    return [
        JournalEntry(
            batch_id,
            component,
            "lateness",
            f"{name} {_seconds(before[name].told)}",
            f"{name} {_seconds(each.told)}",
            {"share": each.share, "n_late": each.n_late, "n_rows": each.n_rows},
        )
        for name, each in after.items()
        if each.told != before[name].told
    ]


def _seconds(bound: int) -> str:
    return "any" if bound == FOREVER else f"{bound / 1e6:.6g} s"
