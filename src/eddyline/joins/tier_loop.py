"""The loop of a join's tiers: for how long the rows of each window are likely to be asked for.

A bound that holds nearly all pairs is learned for each window (see ``constraints.bounds``). Rows
older than it go to the *cold* tier of the window: runs with a filter of their keys, which are read
for the few rows that pass it. What is found there is found as before: a bound that is too small
costs time, and never a result; it is measured like all others, and the bound is learned anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from eddyline.constraints.bounds import LearnedBound, n_beyond
from eddyline.errors import StateError
from eddyline.joins.conditions import AgeConditions
from eddyline.runtime.journal import JournalEntry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eddyline.joins.operator.partner_ages import AgeCounts

    Ages = Mapping[str, tuple[float, Mapping[int, float]]]
    """By input, pairs, and those that are not of one age, by the bin of their age."""

HELD = 0.999
"""Share of the pairs whose row of a window is to be hot; one in 1,000 is looked for behind filters,
which costs a look-up more."""

MARGIN = 1.05
"""A row is hot for so many times the bound: bounds fall short of what was not measured
[stream-constraints: safety margin]. As long as that is between the bound and so many times it
twice over nothing changes."""

MOST_HOT = 0.5
"""A window has a cold tier if its rows are hot for no more than this share of its length: else a
filter for each row costs about what it saves."""

SEEN = 2.0
"""A bound is used once so many times as much event time was seen: ages are bounded by that time."""


@dataclass(frozen=True, slots=True)
class TierView:
    """The tiers of a window as they stand."""

    name: str
    """The input."""
    hot_for: int | None
    """For how long its rows are hot (µs); None if all of them are."""
    bound: int
    """The bound that was learned (µs)."""
    n_pairs: int
    """Pairs that were found in it."""
    n_cold: int
    """Those of them that were found in the cold tier: what violated the constraint."""


class LearnedTiers(msgspec.Struct):
    """Learned state of a loop."""

    bounds: dict[str, LearnedBound]
    spans: dict[str, int | None]
    n_cold: dict[str, int]
    since: dict[str, int]


class TierLoop:
    """Keeps the tiers of a join's windows good.

    Args:
        lengths: of each window that may have a cold tier (µs), by input; none if empty.
    """

    component = "constraints"
    is_adaptive = True

    def __init__(self, lengths: Mapping[str, int]) -> None:
        self.lengths = lengths
        self.is_held = False
        """Whether the tiers stay as they are whatever the evidence; see ``runtime.pins``."""
        # From what is seen on, not from the window's length down: where few pairs tell, that would
        # take long, and a bound that is too small costs time alone.
        self.bounds = {name: LearnedBound(HELD, 0) for name in lengths}
        self.plan: dict[str, int | None] = dict.fromkeys(lengths)
        """By input, for how long its rows are hot (µs); None if all of them are."""
        self.n_cold = dict.fromkeys(lengths, 0)
        """Pairs found in cold runs so far."""
        self.seen = AgeConditions(lengths)
        """What the log of plans knows situations by."""
        self._since: dict[str, int] = {}
        self._promising: set[str] = set()

    @property
    def promises(self) -> bool:
        """Whether there is a cold tier, or would be one by what was measured last alone."""
        return bool(self._promising) or any(span is not None for span in self.plan.values())

    def step(
        self, ages: Mapping[str, AgeCounts], latest: Mapping[str, int], batch_id: int = -1
    ) -> list[JournalEntry]:
        """Take in what a batch found, and change the tiers if the evidence says so.

        Args:
            ages: of the rows that were found, by input.
            latest: the latest event time of each stream (µs).
            batch_id: the micro-batch, for the journal.
        """
        before = dict(self.plan)
        self.seen.step(ages)
        seen = min(latest.values(), default=0)
        for name, length in self.lengths.items():
            since = self._since.setdefault(name, seen) if latest else seen
            counts = ages.get(name)
            if counts is not None:
                self.n_cold[name] += counts.n_cold
            if counts is not None and counts.is_measured:
                learned = self.bounds[name]
                note = self._promising.add if _promises(counts, length) else self._promising.discard
                note(name)
                # The first ages that are seen are beyond no bound: there was none.
                is_first = not (learned.bound or _is_known(learned))
                beyond = 0 if is_first else n_beyond(counts.bins, learned.bound)
                after = learned.measured(counts.n_pairs, beyond, counts.bins)
                # The first bounds are wide, as too narrow ones would cost rows elsewhere.
                was_known = _is_known(learned) or not _is_known(after)
                self.bounds[name] = after if was_known else after.settled()
                # What was measured long ago says little of the time that was seen since.
                if not self.is_held:
                    self.plan[name] = self._span(name, length, seen - since)
        return [
            JournalEntry(
                batch_id,
                self.component,
                "tiers",
                _text(name, before[name]),
                _text(name, span),
                self._evidence(name),
            )
            for name, span in self.plan.items()
            if span != before[name]
        ]

    def _span(self, name: str, length: int, seen: int) -> int | None:
        """Return for how long rows are to be hot, given the event time that was seen (µs)."""
        learned = self.bounds[name]
        if not _is_known(learned):
            return None
        now, span = self.plan[name], int(learned.bound * MARGIN)
        if now is not None and learned.bound <= now <= span * MARGIN:
            return now
        most = MOST_HOT * length * (1 if now is None else MARGIN)
        return span if span <= most and seen >= SEEN * span else None

    def _evidence(self, name: str) -> dict[str, Any]:
        learned = self.bounds[name]
        return {
            "bound_s": learned.bound / 1e6,
            "n_pairs": learned.n_rows,
            "n_cold": self.n_cold[name],
            "window_s": self.lengths[name] / 1e6,
        }

    def plain(self) -> dict[str, str]:
        """Return the plan as texts, by input."""
        return plain_tiers(self.plan)

    # -- the log of plans -----------------------------------------------------------------------

    def take(self, plan: Mapping[str, int | None], ages: Ages) -> None:
        """Put spans in force (µs), and begin with the ages that they were chosen by."""
        self.plan = dict(plan)
        for name in ages.keys() & self.bounds.keys():
            self.bounds[name] = self.bounds[name].begun(*ages[name])

    def tiers_for(self, held: Sequence[tuple[Ages, float]]) -> dict[str, int | None]:
        """Return the spans (µs) for ages that held for some rows each, all together."""
        found: dict[str, int | None] = dict.fromkeys(self.lengths)
        for name, length in self.lengths.items():
            whole: dict[int, float] = {}
            for ages, n_rows in held:
                n_pairs, bins = ages.get(name, (0.0, {}))
                for number, n in bins.items():
                    whole[number] = whole.get(number, 0.0) + n * n_rows / n_pairs
            n = sum(n_rows for ages, n_rows in held if name in ages)
            span = int(LearnedBound(HELD, 0).begun(n, whole).bound * MARGIN)
            found[name] = span if n and span <= MOST_HOT * length else None
        return found

    def views(self) -> tuple[TierView, ...]:
        """Return the tiers as they stand."""
        return tuple(
            TierView(name, self.plan[name], each.bound, each.n_rows, self.n_cold[name])
            for name, each in self.bounds.items()
        )

    def snapshot(self) -> LearnedTiers:
        """Return the learned state."""
        return LearnedTiers(self.bounds, self.plan, self.n_cold, self._since)

    def restore(self, state: Any) -> None:
        """Continue from what ``snapshot`` returned, decoded from JSON.

        Raises:
            StateError: it is damaged.
        """
        try:
            learned = msgspec.convert(state, LearnedTiers, str_keys=True)
        except msgspec.ValidationError as error:
            msg = f"what was learned of the tiers of a join cannot be read: {error}"
            raise StateError(msg) from error
        for name in self.lengths.keys() & learned.bounds.keys():
            self.bounds[name] = learned.bounds[name]
            self.plan[name] = learned.spans.get(name)
            self.n_cold[name] = learned.n_cold.get(name, 0)
            if name in learned.since:
                self._since[name] = learned.since[name]


def plain_tiers(plan: Mapping[str, int | None]) -> dict[str, str]:
    """Return tiers as texts, by input."""
    return {name: _text(name, span) for name, span in plan.items()}


def _promises(counts: AgeCounts, length: int) -> bool:
    """Return whether a bound that holds these pairs is small beside a window's length (µs)."""
    allowed = (1 - HELD) * counts.n_pairs
    return counts.n_pairs > 0 and n_beyond(counts.bins, int(MOST_HOT * length)) <= allowed


def _is_known(learned: LearnedBound) -> bool:
    """Return whether so many pairs were measured that one of them may be beyond the bound."""
    return learned.n_rows * (1 - HELD) >= 1


def _text(name: str, span: int | None) -> str:
    return f"{name} all hot" if span is None else f"{name} hot for {span / 1e6:.6g} s"
