"""Retention in the hot tier of a window, by age and rules.

``TierChoice`` learns for each window a bound on the ages of the rows that are found, which holds
nearly all pairs (see ``constraints.bounds``). Runs whose rows are older go to the *cold* tier of
the window. A cold run has a filter of its keys and is read for the few rows that pass it. Results
are the same: a bound that is too small costs time only, and is measured and learned anew. For the
log of plans a row costs the share of its window for which it is hot. Each pair that is found cold
costs one look-up more, priced like a row that is hot for all of its window.

``DoneChoice`` lets single rows go once they are done: a row was in its only result (see
``graph.covers``), or the other streams have passed its key, or its key is over in them (see
``arrival_order``). A row that leaves spares later merges. It costs the search for it in merged
runs, and a file of its own. Letting go is tried where enough rows are done, kept where it saves
more than it costs, and otherwise tried again ever more rarely. The log of plans knows the shares of
rows that are done. It knows costs and savings once rows have left for a while.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from eddyline.constraints.bounds import LearnedBound, n_beyond
from eddyline.data.learned import restored
from eddyline.joins.plan import DoneCounts
from eddyline.runtime.choice import KEPT, UNKNOWN_NS, Choice, Conditions, are_names
from eddyline.runtime.journal import JournalEntry
from eddyline.state.bucket_state import FAN_IN
from eddyline.state.rows import FOREVER

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from eddyline.joins.plan import AgeCounts
    from eddyline.runtime.choice import Situation

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
    learned: LearnedBound
    """The bound of the ages of the pairs that were found in it."""
    n_cold: int
    """Pairs that were found in the cold tier: what violated the constraint."""


class LearnedTiers(msgspec.Struct):
    """Learned state of a loop."""

    bounds: dict[str, LearnedBound]
    spans: dict[str, int | None]
    n_cold: dict[str, int]
    since: dict[str, int]
    came: dict[str, int] = msgspec.field(default_factory=dict)


class TierChoice(Choice):
    """For how long the rows of each window are hot.

    Args:
        lengths: of each window that may have a cold tier (µs), by input; none if empty.
        largest: the largest bound that is used (µs); None: one that keeps rows hot for MOST_HOT of
            a window.
    """

    component = "constraints"
    why_unlogged = ""
    cost_unit = "windows of hot rows"

    def __init__(self, lengths: Mapping[str, int], largest: int | None = None) -> None:
        self.lengths, self.largest = lengths, largest
        # From what is seen on, not from the window's length down: where few pairs tell, that would
        # take long, and a bound that is too small costs time alone.
        self.bounds = {name: LearnedBound(HELD, 0) for name in lengths}
        self.spans: dict[str, int | None] = dict.fromkeys(lengths)
        """By input, for how long its rows are hot (µs); None if all of them are."""
        self.n_cold = dict.fromkeys(lengths, 0)
        """Pairs found in cold runs so far."""
        self._conditions = Conditions()
        """The ages of the pairs that are found, since they last changed."""
        self._n_pairs = dict.fromkeys(lengths, 0.0)
        self._bins: dict[str, dict[int, float]] = {name: {} for name in lengths}
        """Pairs by the bin of their age, by input, since ages last changed."""
        self._since: dict[str, int] = {}
        self._n_came = dict.fromkeys(lengths, 0)
        """New rows of each input in the batches that were measured."""
        self._promising: set[str] = set()

    @property
    def promises(self) -> bool:
        """Whether there is a cold tier, or would be one by what was measured last alone."""
        return bool(self._promising) or any(span is not None for span in self.spans.values())

    def step(
        self,
        ages: Mapping[str, AgeCounts],
        latest: Mapping[str, int],
        batch_id: int = -1,
        n_new: Mapping[str, int] | None = None,
    ) -> list[JournalEntry]:
        """Take in what a batch found, and change the tiers if the evidence says so.

        Args:
            ages: of the rows that were found, by input.
            latest: the latest event time of each stream (µs).
            batch_id: the micro-batch, for the journal.
            n_new: the new rows of each input.
        """
        before = dict(self.spans)
        self._note(ages)
        seen = min(latest.values(), default=0)
        for name, length in self.lengths.items():
            since = self._since.setdefault(name, seen) if latest else seen
            counts = ages.get(name)
            if counts is not None:
                self.n_cold[name] += counts.n_cold
            if counts is not None and counts.is_measured:
                is_small = _promises(counts, self._most(length))
                (self._promising.add if is_small else self._promising.discard)(name)
                self.bounds[name] = self.bounds[name].with_spans(counts.n_pairs, counts.bins)
                self._n_came[name] += (n_new or {}).get(name, 0)
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
        """Return for how long rows are to be hot, given the event time that was seen (µs).

        A row that is looked for costs no more than one that is hot. So where few pairs are found,
        rows are evidence, too, once time went on by as much as they may be hot: none of them was
        found when it was older.
        """
        learned = self.bounds[name]
        if not learned.is_known:
            if self._n_came[name] < LEAST_PAIRS or seen < self._most(length):
                return None
            learned = learned.settled()
        now, span = self.spans[name], int(learned.bound * MARGIN)
        most = self._most(length) * (1 if now is None else MARGIN)
        if now is not None and learned.bound <= now <= min(span * MARGIN, most):
            return now
        return span if span <= most and seen >= SEEN * span else None

    def _most(self, length: int) -> float:
        """Return for how long rows of a window are hot at most, if it has a cold tier (µs)."""
        if self.largest is None:
            return MOST_HOT * length
        return min(MARGIN * self.largest, length)

    def _evidence(self, name: str) -> dict[str, Any]:
        learned, length = self.bounds[name], self.lengths[name]
        window = {} if length == FOREVER else {"window_s": length / 1e6}
        return {
            "bound_s": learned.bound / 1e6,
            "n_pairs": learned.n_rows,
            "n_cold": self.n_cold[name],
            **window,
        }

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

    def _note(self, ages: Mapping[str, AgeCounts]) -> None:
        """Take in the ages that a batch measured as the conditions of the tiers."""
        measured = {
            name: age_counts
            for name, age_counts in ages.items()
            if age_counts.is_measured and age_counts.n_pairs
        }
        if not measured:
            return
        names, shares, counts = [], [], []
        for name, length in self.lengths.items():
            age_counts = measured.get(name)
            n = float(age_counts.n_pairs) if age_counts else 0.0
            cuts = [(cut, length >> cut) for cut in range(1, CUTS + 1)]
            names += [f"partners in {name} older than 1/{2**cut} of its window" for cut, _ in cuts]
            older = [n_beyond(age_counts.bins, age) for _, age in cuts] if age_counts else []
            shares += [min(m / n, 1.0) for m in older] or [np.nan] * CUTS
            counts += [n] * CUTS
        n_pairs = sum(float(age_counts.n_pairs) for age_counts in measured.values())
        is_other = self._conditions.step(tuple(names), np.array(shares), np.array(counts), n_pairs)
        kept = 0.0 if is_other else KEPT
        for name, age_counts in measured.items():
            self._n_pairs[name] = kept * self._n_pairs[name] + age_counts.n_pairs
            bins = {number: kept * n for number, n in self._bins[name].items()}
            for number, n in age_counts.bins.items():
                bins[number] = bins.get(number, 0.0) + n
            self._bins[name] = {number: n for number, n in bins.items() if n >= LEAST_AGE}

    def situation(self) -> Situation | None:
        """Return how old the rows are that are found."""
        evidence = {
            name: [round(n, 1), [[number, round(n, 1)] for number, n in self._bins[name].items()]]
            for name, n in self._n_pairs.items()
            if n
        }
        return self._conditions.situation(evidence, LEAST_PAIRS * max(len(evidence), 1))

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
            spans[name] = span if n and span <= self._most(length) else None
        return spans

    def take(self, plan: Mapping[str, int | None], evidence: Any) -> None:
        """Put tiers in force, and the ages that they were chosen by."""
        self._begin_with(plan, _ages(evidence))

    def let_go(self) -> None:
        """Let go of all ages but those since the last change."""
        ages = {name: (self._n_pairs[name], bins) for name, bins in self._bins.items()}
        self._begin_with(self.spans, ages)

    def _begin_with(self, plan: Mapping[str, int | None], ages: Ages) -> None:
        self.spans = dict(plan)
        for name in ages.keys() & self.bounds.keys():
            self.bounds[name] = self.bounds[name].begun(*ages[name])

    # -- seeing and saving ----------------------------------------------------------------------

    def views(self) -> tuple[TierView, ...]:
        """Return the tiers as they stand."""
        return tuple(
            TierView(name, self.spans[name], learned, self.n_cold[name])
            for name, learned in self.bounds.items()
        )

    def snapshot(self) -> LearnedTiers:
        """Return the learned state."""
        return LearnedTiers(self.bounds, self.spans, self.n_cold, self._since, self._n_came)

    def restore(self, state: Any) -> None:
        """Continue from what ``snapshot`` returned; StateError if it is damaged."""
        learned = restored(state, LearnedTiers, "the tiers of a join")
        for name in self.lengths.keys() & learned.bounds.keys():
            self.bounds[name] = learned.bounds[name]
            self.spans[name] = learned.spans.get(name)
            self.n_cold[name] = learned.n_cold.get(name, 0)
            self._n_came[name] = learned.came.get(name, 0)
            if name in learned.since:
                self._since[name] = learned.since[name]


def plain_tiers(plan: Mapping[str, int | None]) -> dict[str, str]:
    """Return tiers as texts, by input."""
    return {name: _text(name, span) for name, span in plan.items()}


def _promises(counts: AgeCounts, most: float) -> bool:
    """Return whether a bound that holds these pairs is no larger than one that is used (µs)."""
    allowed = (1 - HELD) * counts.n_pairs
    return counts.n_pairs > 0 and n_beyond(counts.bins, int(most)) <= allowed


def _text(name: str, span: int | None) -> str:
    return f"{name} all hot" if span is None else f"{name} hot for {span / 1e6:.6g} s"


def _ages(evidence: Any) -> dict[str, tuple[float, dict[int, float]]]:
    """Return pairs and their ages, by input."""
    return {
        name: (float(n), {int(number): float(count) for number, count in bins})
        for name, (n, bins) in evidence.items()
    }


COMPONENT = "constraints"
"""Its name in the journal."""

LEAST_ROWS = 1_000
"""New rows by which it may be decided."""

LEAST_SHARE = 0.2
"""Least share of an input's rows that are done for which it is worth a try."""

FREE = 0.02
"""Share of the time of batches that letting rows go may take whatever it saves: fewer rows are hot,
and looked through, for it."""

TRIAL = 16
"""Batches after which what was saved is compared with what it cost: two sizes of merges."""

FADE = 0.9
"""What counts of a batch weigh one counted batch later."""

REST = 64
"""Batches until the next trial after one that did not pay; twice as many after each."""


class DoneRows(msgspec.Struct, forbid_unknown_fields=True):
    """What is known of the rows of one input."""

    is_leaving: bool = False
    """Whether its rows leave once they are done."""
    n_rows: float = 0.0
    """New rows, older batches counting less, as below."""
    n_done: float = 0.0
    """Rows that were seen to be done."""
    n_merged: float = 0.0
    """Rows that were merged."""
    merge_ns: float = 0.0
    """Time that took (ns)."""
    saved_ns: float = 0.0
    """Time that later merges are spared by rows that left (ns)."""
    cost_ns: float = 0.0
    """Time that letting them go took (ns)."""
    batch_ns: float = 0.0
    """Time of batches (ns)."""
    n_left: int = 0
    """Rows that left so far."""
    n_in_state: int = 0
    """Batches since it was decided last."""
    rest: int = REST
    """Batches until it is tried again."""
    left_rows: float = 0.0
    """New rows while rows left, and below that what of these is kept when they stay again."""
    left_done: float = 0.0
    """Those of them that were done."""
    left_saved_ns: float = 0.0
    """Time that later merges were spared (ns)."""
    left_cost_ns: float = 0.0
    """Time that letting rows go took beyond what is free (ns)."""

    @property
    def share(self) -> float:
        """The share of the rows that are done ([0, 1]; nan: none came)."""
        return min(self.n_done / self.n_rows, 1.0) if self.n_rows else math.nan

    def add(self, counts: DoneCounts, n_hot: int, ns: int) -> None:
        """Take in what a batch of so much time (ns) counted, after which so many rows are hot."""
        n_new_left = counts.n_new_done if self.is_leaving else 0
        n_left = counts.n_left + n_new_left
        self.n_rows = FADE * self.n_rows + counts.n_new
        self.n_done = FADE * self.n_done + counts.n_new_done + counts.n_old_done
        self.n_merged = FADE * self.n_merged + counts.n_merged
        self.merge_ns = FADE * self.merge_ns + counts.merge_ns
        per_row = self.merge_ns / self.n_merged if self.n_merged else 0.0
        n_merges = math.log(max(n_hot + n_left, 1) / max(counts.n_new, 1), FAN_IN)
        later = counts.n_left / 2 + n_new_left
        saved_ns = later * max(n_merges, 1.0) * per_row
        self.saved_ns = FADE * self.saved_ns + saved_ns
        self.cost_ns = FADE * self.cost_ns + counts.ns
        self.batch_ns = FADE * self.batch_ns + ns
        self.n_left += n_left
        if self.is_leaving:
            over_ns = max(counts.ns - FREE * ns, 0.0)
            self.left_rows = FADE * self.left_rows + counts.n_new
            self.left_done = FADE * self.left_done + counts.n_new_done + counts.n_old_done
            self.left_saved_ns = FADE * self.left_saved_ns + saved_ns
            self.left_cost_ns = FADE * self.left_cost_ns + over_ns

    @property
    def is_due(self) -> bool:
        """Whether the evidence says that rows are to leave, or to stay again."""
        if self.n_in_state < TRIAL:
            return False
        if self.is_leaving:
            return max(self.saved_ns, FREE * self.batch_ns) < self.cost_ns
        return self.n_merged > 0 and self.share >= LEAST_SHARE

    def turn(self) -> None:
        """Let rows leave, or stay again; what that saves and costs is counted anew."""
        self.is_leaving = not self.is_leaving
        self.saved_ns = self.cost_ns = self.batch_ns = 0.0
        self.n_in_state = 0

    def cost_ns_of(self, share: float, *, leaves: bool) -> float:
        """Return what a new row costs (ns) if rows leave, or what merging them later costs if not.

        ``share`` is that of the rows that are done ([0, 1]). It is nan before they ever left.
        """
        if not self.left_rows or not self.left_done:
            return math.nan
        if leaves:
            return self.left_cost_ns / self.left_rows
        return share * self.left_saved_ns / self.left_done


class DoneChoice(Choice):
    """Lets rows go that are done by a rule, where it pays.

    Args:
        rule: see ``plan.DoneCounts``.
    """

    why_unlogged = ""

    def __init__(self, rule: str) -> None:
        self.rule = rule
        self.component = f"{COMPONENT} {rule}"
        self.known: dict[str, DoneRows] = {}
        self._conditions = Conditions()
        """The share of the rows of inputs that are done, since it last changed."""

    @property
    def promises(self) -> bool:
        """Whether rows leave by the rule, or so many are done that it is worth a try."""
        return any(rows.is_leaving or rows.share >= LEAST_SHARE for rows in self.known.values())

    @property
    def leaving(self) -> frozenset[str]:
        """The inputs whose rows leave once they are done."""
        return frozenset(name for name, rows in self.known.items() if rows.is_leaving)

    def step(
        self,
        names: Collection[str],
        fresh: Mapping[str, DoneCounts],
        n_hot: Mapping[str, int],
        ns: int,
        batch_id: int = -1,
        why: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> list[JournalEntry]:
        """Take in what a batch counted, and decide.

        Args:
            names: the inputs whose rows may be done by the rule.
            fresh: what was counted of them; nothing in batches that were not measured, but of rows
                that leave.
            n_hot: the rows of each that are hot after the batch.
            ns: the time that the batch took (ns).
            batch_id: the micro-batch, for the journal.
            why: what the rule goes by, by input, for the journal.
        """
        self.known = {name: self.known.get(name, DoneRows()) for name in names}
        self._note(fresh)
        entries = []
        for name, rows in self.known.items():
            if name in fresh or rows.is_leaving:
                rows.add(fresh.get(name, DoneCounts()), n_hot.get(name, 0), ns)
            rows.n_in_state += 1
            if self.is_held or not rows.is_due:
                continue
            evidence = {
                "done_share": rows.share,
                "saved_ns": rows.saved_ns,
                "cost_ns": rows.cost_ns,
                "n_left": rows.n_left,
                **(why or {}).get(name, {}),
            }
            before = self._text(name, rows)
            rows.turn()
            if not rows.is_leaving:
                rows.n_in_state, rows.rest = TRIAL - rows.rest, 2 * rows.rest
            after = self._text(name, rows)
            entries.append(JournalEntry(batch_id, COMPONENT, self.rule, before, after, evidence))
        return entries

    def _text(self, name: str, rows: DoneRows) -> str:
        how = "until" if rows.is_leaving else "whether or not"
        return f"{name} hot {how} {self.rule}"

    # -- what a person pins, and the log --------------------------------------------------------

    @property
    def plan(self) -> list[str]:
        """The inputs whose rows leave."""
        return sorted(self.leaving)

    @property
    def possible(self) -> str:
        """The plans that may be pinned, in words."""
        return f"a list of inputs whose rows may leave, of {sorted(self.known)}"

    def is_possible(self, plan: Any) -> bool:
        """Return whether they are inputs whose rows may be done."""
        return are_names(plan) and {*plan} <= self.known.keys() and len({*plan}) == len(plan)

    def adopt(self, plan: Sequence[str]) -> None:
        """Let the rows of these inputs leave, and of no others."""
        for name, rows in self.known.items():
            if rows.is_leaving != (name in plan):
                rows.turn()

    def in_words(self, plan: Sequence[str]) -> str:
        """Return a plan in words."""
        text = ", ".join(f"{name} hot until {self.rule}" for name in plan)
        return text or f"rows stay, {self.rule} or not"

    def _note(self, fresh: Mapping[str, DoneCounts]) -> None:
        """Take in what a batch counted as the conditions of the rule."""
        names = sorted(self.known)
        counts = [fresh.get(name, DoneCounts()) for name in names]
        n_new = np.array([count.n_new for count in counts], np.float64)
        if not n_new.any():
            return
        n_done = np.array([count.n_new_done + count.n_old_done for count in counts], np.float64)
        shares = np.divide(n_done, n_new, out=np.full(len(names), np.nan), where=n_new > 0)
        conditions = tuple(f"rows of {name} that are done" for name in names)
        self._conditions.step(conditions, np.minimum(shares, 1.0), n_new, float(n_new.sum()))

    def situation(self) -> Situation | None:
        """Return the share of the rows of each input that is done."""
        names, shares = sorted(self.known), self._conditions.shares.tolist()
        if len(shares) != len(names):
            return None
        evidence = {
            name: round(share, 5)
            for name, share in zip(names, shares, strict=True)
            if np.isfinite(share)
        }
        return self._conditions.situation(evidence, LEAST_ROWS)

    def cost_of(self, plan: Sequence[str], evidence: Any) -> float:
        """Return what letting rows go takes, or what merging them later does (ns per row)."""
        costs = [
            self.known[name].cost_ns_of(share, leaves=name in plan)
            if name in self.known
            else UNKNOWN_NS
            for name, share in evidence.items()
        ]
        return float(np.mean(costs)) if costs else UNKNOWN_NS

    # -- saving ---------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, DoneRows]:
        """Return the learned state."""
        return self.known

    def restore(self, state: Any) -> None:
        """Continue from what ``snapshot`` returned; StateError if it is damaged."""
        self.known = restored(state, dict[str, DoneRows], f"the {self.rule} rows of a join")
