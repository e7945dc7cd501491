"""The lateness of a stream, learned: the smallest bound that holds a stated share of its rows.

Ordered arrival OA(k) [Babu05 6.8] on event time, in µs in place of rows: a row is as far *out of
order* as the latest event time of the batches before its own is ahead of it. All rows are measured,
those that were late too; see ``bounds``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from eddyline.constraints.bounds import LearnedBound
from eddyline.state.event_time import EventTime
from eddyline.state.rows import ALWAYS, FOREVER

if TYPE_CHECKING:
    from collections.abc import Mapping


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
    """Rows that were out of order, by the bin of how far; see ``bounds.bins_of``."""

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


class LearnedLateness(LearnedBound, frozen=True, forbid_unknown_fields=True):
    """The lateness of one stream as it was learned so far; a part of its durable state.

    The bound is how much earlier than the latest row before its batch a row may be.
    """

    def after(self, batch: Disorder, latest: int | None) -> LearnedLateness:
        """Return what is known with one batch more.

        Args:
            batch: its rows.
            latest: the latest event time of the batches before (µs); None if there was none.
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
        found = {}
        for name, share in self.shares.items():
            new = LearnedLateness(share)
            before = learned.get(name, new)
            found[name] = before if before.share == share else new
        return found

    def streams(
        self, learned: Mapping[str, LearnedLateness], passed: Mapping[str, int]
    ) -> EventTime:
        """Return by how much rows may be late behind those of a batch.

        Args:
            learned: what is known with the rows of the batch.
            passed: see ``EventTime.passed``.
        """
        bounds = {name: each.bound for name, each in learned.items()}
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
            name: each.after(seen.get(name, Disorder()), latest.get(name))
            for name, each in learned.items()
        }
