"""Tiers: for how long the rows of each window of a join are likely to be asked for.

A bound that holds nearly all pairs is learned for each window (see ``constraints.bounds``). Rows
older than it go to the *cold* tier of the window: runs with a filter of their keys, which are read
for the few rows that pass it. What is found there is found as before: a bound that is too small
costs time, and never a result; it is measured like all others, and the bound is learned anew.

In the log of plans a row costs as much as it is hot, as a share of its window, and each pair that
is found cold a look-up more, which is taken to be worth a row that is hot for all of its window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from eddyline.constraints.bounds import LearnedBound, n_beyond
from eddyline.errors import StateError
from eddyline.runtime.choice import KEPT, UNKNOWN_NS, Choice, Conditions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eddyline.joins.operator.partner_ages import AgeCounts
    from eddyline.runtime.choice import Situation
    from eddyline.runtime.journal import JournalEntry

    Ages = Mapping[str, tuple[float, Mapping[int, float]]]
    """By input, pairs, and those that are not of one age, by the bin of their age."""

CUTS = 12
"""Ages at which pairs are told apart: a half of a window, a quarter, and so on."""

LEAST_AGE = 0.5
"""Pairs of a bin below which it is forgotten."""

LEAST_PAIRS = 1_000
"""Pairs by which tiers may be chosen."""

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


class TierChoice(Choice):
    """For how long the rows of each window are hot.

    Args:
        lengths: of each window that may have a cold tier (µs), by input; none if empty.
    """

    component = "constraints"
    why_unlogged = ""
    cost_unit = "windows of hot rows"

    def __init__(self, lengths: Mapping[str, int]) -> None:
        self.lengths = lengths
        # From what is seen on, not from the window's length down: where few pairs tell, that would
        # take long, and a bound that is too small costs time alone.
        self.bounds = {name: LearnedBound(HELD, 0) for name in lengths}
        self.spans: dict[str, int | None] = dict.fromkeys(lengths)
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
        return bool(self._promising) or any(span is not None for span in self.spans.values())

    def step(
        self, ages: Mapping[str, AgeCounts], latest: Mapping[str, int], batch_id: int = -1
    ) -> list[JournalEntry]:
        """Take in what a batch found, and change the tiers if the evidence says so.

        Args:
            ages: of the rows that were found, by input.
            latest: the latest event time of each stream (µs).
            batch_id: the micro-batch, for the journal.
        """
        before = dict(self.spans)
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
                    self.spans[name] = self._span(name, length, seen - since)
        return [
            self.decision(
                batch_id,
                "tiers",
                _text(name, before[name]),
                _text(name, span),
                self._evidence(name),
            )
            for name, span in self.spans.items()
            if span != before[name]
        ]

    def _span(self, name: str, length: int, seen: int) -> int | None:
        """Return for how long rows are to be hot, given the event time that was seen (µs)."""
        learned = self.bounds[name]
        if not _is_known(learned):
            return None
        now, span = self.spans[name], int(learned.bound * MARGIN)
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
        return plain_tiers(self.spans)

    # -- what a person pins, and the log --------------------------------------------------------

    @property
    def plan(self) -> dict[str, int | None]:
        """By input, for how long its rows are hot (µs); None if all of them are."""
        return dict(self.spans)

    @property
    def possible(self) -> str:
        """The plans that may be pinned, in words."""
        lengths = ", ".join(f"{name!r} up to {length}" for name, length in self.lengths.items())
        return f"by input, for how long its rows are hot (µs), or None for all of them: {lengths}"

    def is_possible(self, plan: Any) -> bool:
        """Return whether it says so of each window."""
        return (
            isinstance(plan, dict)
            and plan.keys() == self.lengths.keys()
            and all(
                span is None or (type(span) is int and 0 <= span <= self.lengths[name])
                for name, span in plan.items()
            )
        )

    def adopt(self, plan: Mapping[str, int | None]) -> None:
        """Put other spans in force."""
        self.spans = dict(plan)

    def in_words(self, plan: Mapping[str, int | None]) -> str:
        """Return a plan in words."""
        return ", ".join(plain_tiers(plan).values())

    def situation(self) -> Situation | None:
        """Return how old the rows are that are found."""
        return self.seen.situation()

    def cost_of(self, plan: Mapping[str, int | None], evidence: Any) -> float:
        """Return the share of its window that a row is hot, and of pairs that are found cold."""
        costs = []
        for name, (n_pairs, bins) in evidence.items():
            span, length = plan[name], self.lengths[name]
            if span is None:
                costs.append(1.0)
                continue
            n_cold = n_beyond({int(number): n for number, n in bins}, span)
            costs.append(min(span / length, 1.0) + min(n_cold / n_pairs, 1.0))
        return float(np.mean(costs)) if costs else UNKNOWN_NS

    def best_single(self, held: Sequence[tuple[Any, float]]) -> dict[str, int | None]:
        """Return the tiers that hold nearly all pairs of all situations together."""
        ages_held = [(_ages(evidence), n_rows) for evidence, n_rows in held]
        spans: dict[str, int | None] = dict.fromkeys(self.lengths)
        for name, length in self.lengths.items():
            together: dict[int, float] = {}
            for ages, n_rows in ages_held:
                n_pairs, bins = ages.get(name, (0.0, {}))
                for number, n in bins.items():
                    together[number] = together.get(number, 0.0) + n * n_rows / n_pairs
            n = sum(n_rows for ages, n_rows in ages_held if name in ages)
            span = int(LearnedBound(HELD, 0).begun(n, together).bound * MARGIN)
            spans[name] = span if n and span <= MOST_HOT * length else None
        return spans

    def take(self, plan: Mapping[str, int | None], evidence: Any) -> None:
        """Put tiers in force, and the ages that they were chosen by."""
        self._begin_with(plan, _ages(evidence))

    def let_go(self) -> None:
        """Let go of all ages but those since the last change."""
        n_pairs = self.seen.n_pairs
        self._begin_with(
            self.spans, {name: (n_pairs[name], bins) for name, bins in self.seen.bins.items()}
        )

    def _begin_with(self, plan: Mapping[str, int | None], ages: Ages) -> None:
        self.spans = dict(plan)
        for name in ages.keys() & self.bounds.keys():
            self.bounds[name] = self.bounds[name].begun(*ages[name])

    # -- seeing and saving ----------------------------------------------------------------------

    def views(self) -> tuple[TierView, ...]:
        """Return the tiers as they stand."""
        return tuple(
            TierView(name, self.spans[name], each.bound, each.n_rows, self.n_cold[name])
            for name, each in self.bounds.items()
        )

    def snapshot(self) -> LearnedTiers:
        """Return the learned state."""
        return LearnedTiers(self.bounds, self.spans, self.n_cold, self._since)

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
            self.spans[name] = learned.spans.get(name)
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


def _ages(evidence: Any) -> dict[str, tuple[float, dict[int, float]]]:
    """Return pairs and their ages, by input."""
    return {
        name: (float(n), {int(number): float(count) for number, count in bins})
        for name, (n, bins) in evidence.items()
    }


class AgeConditions:
    """The ages of the pairs that are found in windows, since they last changed.

    Args:
        lengths: of the windows (µs), by input.
    """

    def __init__(self, lengths: Mapping[str, int]) -> None:
        self.lengths = lengths
        self.names = tuple(
            f"partners in {name} older than 1/{2 ** (at + 1)} of its window"
            for name in lengths
            for at in range(CUTS)
        )
        self.known = Conditions()
        self.n_pairs = dict.fromkeys(lengths, 0.0)
        self.bins: dict[str, dict[int, float]] = {name: {} for name in lengths}
        """Pairs by the bin of their age, by input."""

    def step(self, ages: Mapping[str, AgeCounts]) -> None:
        """Take in what a batch measured."""
        told = {name: each for name, each in ages.items() if each.is_measured and each.n_pairs}
        if not told:
            return
        shares, counts = [], []
        for name, length in self.lengths.items():
            each = told.get(name)
            n = float(each.n_pairs) if each else 0.0
            older = [n_beyond(each.bins, length >> at) for at in range(1, CUTS + 1)] if each else []
            shares += [min(m / n, 1.0) for m in older] or [np.nan] * CUTS
            counts += [n] * CUTS
        n_pairs = sum(float(each.n_pairs) for each in told.values())
        is_other = self.known.step(self.names, np.array(shares), np.array(counts), n_pairs)
        for name, each in told.items():
            kept = 0.0 if is_other else KEPT
            self.n_pairs[name] = kept * self.n_pairs[name] + each.n_pairs
            bins = {number: kept * n for number, n in self.bins[name].items()}
            for number, n in each.bins.items():
                bins[number] = bins.get(number, 0.0) + n
            self.bins[name] = {number: n for number, n in bins.items() if n >= LEAST_AGE}

    def situation(self) -> Situation | None:
        """Return the conditions as the log knows them."""
        evidence = {
            name: [round(n, 1), [[number, round(n, 1)] for number, n in self.bins[name].items()]]
            for name, n in self.n_pairs.items()
            if n
        }
        return self.known.situation(evidence, LEAST_PAIRS * max(len(evidence), 1))
