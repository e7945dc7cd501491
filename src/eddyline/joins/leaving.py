"""Choices of the rows that leave a window before it ends.

``LeavingLoops`` has the choices: whole runs go to a cold tier by age, single rows by a rule that
says that they are done. With ``discard`` such rows are dropped. The choices see counts of tasks and
never rows. ``MonitorBudget`` says in which batches tasks measure, within a share of the time.
Measuring rests, up to a bound ever longer, while nothing learned is in use and the last measured
batch promised nothing.

``Discards`` says for how long rows are kept where they may be dropped. The k of a constraint is the
greatest recent age of a row of the input in a result (see ``LostResults``). Rows are kept for a
little longer than k. A later partner is missed, but the keys of dropped rows are known. So k is
raised at once and cannot hide what it is learned of (the ratchet of [Babu05 6.6.3]). It comes down
once nothing of some periods asked for it.

What is dropped decides what is in the answer. So nothing here is sampled or depends on the time
that work takes. What is learned is committed with the rows, and a batch that runs again drops the
same rows. With three inputs or more, the order of probes decides which missed partners are known
for certain, and so may change k. The bound on missing results holds in any order.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from eddyline.constraints.bounds import LearnedLateness
from eddyline.joins.arrival_order import Clusters, ValueOrders, watched
from eddyline.joins.graph import covers
from eddyline.joins.plan import CLOSED, MATCHED, MOST, PASSED, LostCounts, merged, merged_counts
from eddyline.joins.tiers import DoneChoice, TierChoice
from eddyline.runtime.journal import JournalEntry
from eddyline.state.rows import ALWAYS
from eddyline.stats.costs import Budget

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from eddyline.constraints.bounds import Disorder
    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.plan import AgeCounts, BucketReport, Place

HELD = 0.99999
"""Share of the rows of a stream whose keys are to be within the order that is learned of them; what
is beyond it costs results."""

PAIRS = 1_000
"""Fewest results of a period, and of all before the first row is dropped."""

PERIODS = 8
"""Periods of which the greatest age counts; each takes as long as that age at least."""

MARGIN = 1.07
"""Rows are kept for so many times k [stream-constraints: safety margin]."""

LEAST, GREATEST = 1.04, 1.12
"""As long as rows are kept for so many times k nothing changes."""

RISING = 2.0
"""Most by which a rise of k is taken to go on: the margin is multiplied by the last rise."""

SEEN = 2.0
"""A first k is used once so many times as much event time was seen: ages are bounded by it."""

TOLD = 1.25
"""What was lost is told in the journal when it is so many times what was told last."""


class Period(Struct, frozen=True, forbid_unknown_fields=True):
    """What was found of the rows of an input in some batches."""

    since: int
    """The event time from which it is (µs)."""
    n_pairs: int = 0
    """Results, and partners that are known to be missed."""
    widest: int = 0
    """The greatest age of a row of the input in them (µs)."""


class InputDiscards(Struct, frozen=True, forbid_unknown_fields=True):
    """What is known of one input; plain values."""

    periods: tuple[Period, ...] = ()
    """The newest at the end."""
    n_pairs: int = 0
    """Of all periods so far."""
    kept_for: int | None = None
    """For how long its rows are kept (µs); None: as long as their window says."""
    n_dropped: int = 0
    """Rows that were dropped so far."""
    n_most: int = 0
    """No more results than that were missed so far for want of one of them."""
    n_about: float = 0.0
    """About so many were."""
    n_seen: int = 0
    """Partners that are known for certain to be missed."""
    told: int = 0
    """``n_most`` as the journal told it last."""

    @property
    def bound(self) -> int:
        """The k that is learned: the greatest age in all periods (µs)."""
        return max((period.widest for period in self.periods), default=0)

    def after(
        self, batch: LostCounts, seen: int, since: int, length: int, largest: int | None = None
    ) -> InputDiscards:
        """Return what is known with one batch more.

        Args:
            batch: what it found and missed.
            seen: the event time that is passed (µs).
            since: the event time from which anything was seen (µs).
            length: of the window (µs).
            largest: the largest k that is used (µs); None: any.
        """
        n_pairs, widest = batch.n_found + batch.n_seen, max(batch.widest, batch.widest_seen)
        *others, newest = self.periods or (Period(since),)
        newest = Period(newest.since, newest.n_pairs + n_pairs, max(newest.widest, widest))
        discards = replace(
            self,
            periods=(*others, newest),
            n_pairs=self.n_pairs + n_pairs,
            n_dropped=self.n_dropped + batch.n_dropped,
            n_most=min(self.n_most + batch.n_most, MOST),
            n_about=max(self.n_about + batch.n_about, 0.0),
            n_seen=self.n_seen + batch.n_seen,
        )
        is_over = newest.n_pairs >= PAIRS and seen - newest.since >= discards.bound
        kept_for = discards._next(self.bound, seen - since, length, is_over=is_over)
        if largest is not None and discards.bound > largest:
            kept_for = None
        if is_over:
            periods = (*discards.periods, Period(seen))[-PERIODS:]
            return replace(discards, periods=periods, kept_for=kept_for)
        return replace(discards, kept_for=kept_for)

    def _next(self, before: int, seen: int, length: int, *, is_over: bool) -> int | None:
        """Return for how long rows are kept from now on.

        ``before`` is the k before the batch, ``seen`` the event time that was seen, ``length`` that
        of the window (all µs); ``is_over`` says whether a period is over.
        """
        if self.n_pairs < PAIRS:
            return None
        bound, now = self.bound, self.kept_for
        rise = min(bound / before, RISING) if 0 < before < bound else 1.0
        wanted = int(bound * MARGIN * rise) + 1
        if wanted >= length:
            return None
        if now is None:
            return wanted if seen >= SEEN * wanted else None
        if now < LEAST * bound or (is_over and now > GREATEST * bound + 1):
            return wanted
        return now


class DiscardState(Struct, frozen=True, forbid_unknown_fields=True):
    """What is known of all inputs; a part of the state that a batch commits."""

    inputs: dict[str, InputDiscards] = field(default_factory=dict)
    orders: list[tuple[str, int, LearnedLateness, int | None]] = field(default_factory=list)
    since: int | None = None
    """The event time from which anything was seen (µs)."""
    firsts: list[tuple[str, int, int]] = field(default_factory=list)
    """Of inputs and key classes whose order is learned, the least key of the first batch."""


class Discards:
    """Keeps what rows are dropped good.

    Args:
        lengths: of the windows of which rows may be dropped (µs), by input; none if empty.
        passing: the keys that others may pass; see ``arrival_order.watched``.
        largest: the largest k that is used (µs); None: any.
    """

    component = "constraints"

    def __init__(
        self,
        lengths: Mapping[str, int],
        passing: Mapping[Place, tuple[Place, ...]],
        largest: int | None = None,
    ) -> None:
        self.lengths, self._passing, self._largest = lengths, passing, largest
        self.known: dict[str, InputDiscards] = {}
        self._since: int | None = None
        self.newest: dict[str, LostCounts] = {}
        """What the newest batch cost, by input."""
        self.orders = ValueOrders(passing, HELD)
        self._firsts: dict[Place, int] = {}
        self.restore(DiscardState())

    @property
    def kept_for(self) -> dict[str, int | None] | None:
        """By input, for how long its rows are kept (µs); None if none are dropped at all."""
        if not self.lengths:
            return None
        return {name: discards.kept_for for name, discards in self.known.items()}

    def below(self) -> dict[str, dict[int, int]]:
        """Return by input and key class the key below which rows are dropped: others passed it.

        As with a k in time, keys have to have gone on by twice what is allowed for.
        """
        settled = {
            place
            for place, learned in self.orders.bounds.items()
            if (top := self.orders.tops[place]) is not None
            and learned.n_rows >= PAIRS
            and top - self._firsts[place] >= SEEN * MARGIN * learned.bound
        }
        return {
            name: mine
            for name, keys in self.orders.below().items()
            if (mine := {k: low for k, low in keys.items() if {*self._passing[name, k]} <= settled})
        }

    def step(
        self,
        lost: Mapping[str, LostCounts],
        disorder: Iterable[Mapping[Place, Disorder]],
        seen: int | None,
        batch_id: int = -1,
    ) -> list[JournalEntry]:
        """Take in what a batch found and missed, and say for how long rows are kept after it.

        Args:
            lost: by input.
            disorder: of the keys of its rows, by bucket.
            seen: the event time that all streams have passed (µs); None if some have none yet.
            batch_id: the micro-batch, for the journal.
        """
        self.newest = dict(lost)
        parts = list(disorder)
        for place in {place for part in parts for place in part} - self._firsts.keys():
            self._firsts[place] = min(part[place].earliest for part in parts if place in part)
        self.orders.step(parts)
        if seen is None:
            return []
        self._since = since = seen if self._since is None else self._since
        entries = []
        for name, length in self.lengths.items():
            before, batch = self.known[name], lost.get(name, LostCounts())
            now = before.after(batch, seen, since, length, self._largest)
            if now.kept_for != before.kept_for:
                texts = kept_text(name, before.kept_for), kept_text(name, now.kept_for)
                entries.append(self._entry(batch_id, "kept", *texts, now))
            if now.n_most > TOLD * before.told:
                was, is_now = (f"{name} at most {n:,} missed" for n in (before.told, now.n_most))
                entries.append(self._entry(batch_id, "missed", was, is_now, now))
                now = replace(now, told=now.n_most)
            self.known[name] = now
        return entries

    def _entry(
        self, batch_id: int, event: str, before: str, after: str, discards: InputDiscards
    ) -> JournalEntry:
        evidence: dict[str, Any] = {
            "k_s": discards.bound / 1e6,
            "n_pairs": discards.n_pairs,
            "n_dropped": discards.n_dropped,
            "n_missed_at_most": discards.n_most,
            "n_missed_about": discards.n_about,
            "n_partners_missed": discards.n_seen,
        }
        return JournalEntry(batch_id, self.component, event, before, after, evidence)

    def state(self) -> DiscardState | None:
        """Return what is known, which is committed with the rows; None if none are dropped."""
        if not self.lengths:
            return None
        firsts = [(*place, first) for place, first in self._firsts.items()]
        return DiscardState(dict(self.known), self.orders.snapshot(), self._since, firsts)

    def restore(self, state: DiscardState) -> None:
        """Continue from what ``state`` returned."""
        self.known = {name: state.inputs.get(name, InputDiscards()) for name in self.lengths}
        self.orders = ValueOrders(self._passing, HELD)
        self.orders.restore(state.orders)
        self._since = state.since
        self._firsts = {(name, key): first for name, key, first in state.firsts}


def kept_text(name: str, kept_for: int | None) -> str:
    """Return for how long rows of an input are kept (µs; None: as their window says), in words."""
    if kept_for is None:
        return f"{name} kept as long as its window says"
    return f"{name} kept for {kept_for / 1e6:.6g} s"


class LearnedLeaving(Struct, frozen=True, forbid_unknown_fields=True):
    """Learned state of rows that leave, by choice."""

    tiers: Any
    done: dict[str, Any]
    """By rule."""
    orders: Any
    unique: dict[str, tuple[int, ...]]
    clusters: Any


class LeavingLoops:
    """The loops of one join, and the monitors that they learn from.

    Args:
        graph: the join.
        windows: the length of each window (µs).
        constrained: those of them whose rows may leave.
        timed: the inputs that have an event time.
        rough: key classes whose codes are hashes, which have no order.
        keys: the class of the declared key of each input that has one.
        drops: whether rows that leave are dropped, and not cold.
        largest: the largest k that is used (µs); None: see the choices.
    """

    def __init__(
        self,
        graph: JoinGraph,
        windows: Mapping[str, int],
        constrained: Mapping[str, int],
        timed: Collection[str],
        rough: Collection[int],
        keys: Mapping[str, int],
        *,
        drops: bool,
        largest: int | None = None,
    ) -> None:
        self.graph = graph
        self._keys: dict[str, tuple[int, ...]] = {name: (key,) for name, key in keys.items()}
        tiered, dropped = ({}, constrained) if drops else (constrained, {})
        self.tiers = TierChoice(tiered, largest)
        self.done = {rule: DoneChoice(rule) for rule in (PASSED, CLOSED, MATCHED)}
        """By rule, whether rows leave once they are done."""
        self.orders = ValueOrders(watched(graph, tiered, timed, rough))
        # Hashes are in no order, but equal ones are of equal keys, all but a few.
        self.clusters = Clusters(watched(graph, tiered, timed, ()), windows, largest)
        self.discards = Discards(dropped, watched(graph, dropped, timed, rough), largest)
        self.unique: dict[str, tuple[int, ...]] = {}
        """By static table, the key classes of which no two of its rows have the same code."""
        self._monitors = MonitorBudget()

    @property
    def lengths(self) -> Mapping[str, int]:
        """The windows whose rows may leave (µs)."""
        return {**self.tiers.lengths, **self.discards.lengths}

    def limit(self, largest: int | None) -> None:
        """Use no larger k (µs) from now on to tell hot rows from cold ones."""
        self.tiers.largest = self.clusters.largest = largest

    @property
    def covers(self) -> frozenset[str]:
        """The inputs with tiers of which a row is in one result at most."""
        return covers(self.graph, self.unique | self._keys) & self.tiers.lengths.keys()

    # -- a batch --------------------------------------------------------------------------------

    def plan(self, latest: Mapping[str, int]) -> dict[str, Any]:
        """Return what the plan of a batch says of rows that leave, as arguments of ``BatchPlan``.

        ``latest`` is the latest event time of each input (µs).
        """
        drops = self.discards.kept_for is not None
        learned = self.discards if drops else self.orders
        orders = self.discards.orders if drops else self.orders
        return {
            "spans": self._spans,
            "covers": self.covers,
            "below": learned.below(),
            "tops": dict(orders.tops),
            "closed": self.clusters.closed(latest),
            "clusters": self.clusters.measured(latest),
            # What is dropped decides what is in the answer: it depends on no time that is measured.
            "measures": drops or self._monitors.may,
            "leaving": frozenset(self._leaving),
            "kept_for": self.discards.kept_for,
        }

    @property
    def _leaving(self) -> Iterator[tuple[str, str]]:
        """The rules by which rows of inputs leave one by one."""
        if self.discards.lengths:
            yield from ((PASSED, name) for name in self.discards.below())
        for rule, loop in self.done.items():
            yield from ((rule, name) for name in loop.leaving)

    @property
    def _spans(self) -> dict[str, int | None]:
        """For how long rows are hot, by input (µs); for all of their window if nothing else."""
        lengths = self.tiers.lengths
        names = {name for loop in self.done.values() for name in loop.leaving}
        leaving = {name: lengths[name] for name in names & lengths.keys()}
        by_age = {name: span for name, span in self.tiers.plan.items() if span is not None}
        return dict.fromkeys(lengths) | leaving | by_age

    def step(
        self,
        reports: Sequence[BucketReport],
        latest: Mapping[str, int],
        n_hot: Mapping[str, int],
        batch_id: int,
    ) -> list[JournalEntry]:
        """Take in what the tasks of a batch measured, and decide.

        Args:
            reports: of the buckets.
            latest: the latest event time of each input (µs).
            n_hot: the hot rows of each input with tiers.
            batch_id: the batch.
        """
        ages = merged(report.ages for report in reports)
        self._monitors.step(reports, ages)
        with self._monitors.learning():
            n_new = {n: sum(report.n_rows.get(n, 0) for report in reports) for n in ages}
            entries = self.tiers.step(ages, latest, batch_id, n_new)
            entries += self._step_done(reports, latest, n_hot, batch_id)
        promises = [learner.promises for learner in (self.tiers, self.orders, self.clusters)]
        promises += [loop.promises for loop in self.done.values()]
        self._monitors.rest(unless=any(promises))
        return entries

    def _step_done(
        self,
        reports: Sequence[BucketReport],
        latest: Mapping[str, int],
        n_hot: Mapping[str, int],
        batch_id: int,
    ) -> list[JournalEntry]:
        for name in {name for report in reports for name in report.unique}:
            classes = [{*report.unique[name]} for report in reports if name in report.unique]
            self.unique[name] = tuple(sorted(set.intersection(*classes)))
        self.orders.step(report.disorder for report in reports)
        self.clusters.step((report.spans for report in reports), latest)
        closed = self.clusters.closed(latest)
        by_rule = (PASSED, self.orders.below()), (CLOSED, closed), (MATCHED, self.covers)
        entries: list[JournalEntry] = []
        for rule, names in by_rule:
            counts = merged_counts((report.done for report in reports), rule)
            ns = sum(report.ns for report in reports)
            why = {name: self.clusters.evidence(name) for name in closed} if rule == CLOSED else {}
            entries += self.done[rule].step(names, counts, n_hot, ns, batch_id, why)
        return entries

    def step_discards(
        self, reports: Sequence[BucketReport], low: int, batch_id: int
    ) -> list[JournalEntry]:
        """Take in what dropped rows cost; what is learned of it is committed with the batch.

        ``low`` is the instant before which the rows of all inputs have come (µs). There are no
        reports if nothing was looked for in windows.
        """
        if not reports:
            return []
        lost = merged(report.lost for report in reports)
        disorder = [report.disorder for report in reports]
        return self.discards.step(lost, disorder, low if low > ALWAYS + 1 else None, batch_id)

    # -- saving ---------------------------------------------------------------------------------

    def snapshot(self) -> LearnedLeaving:
        """Return the learned state; that of discards is committed with each batch."""
        return LearnedLeaving(
            self.tiers.snapshot(),
            {rule: choice.snapshot() for rule, choice in self.done.items()},
            self.orders.snapshot(),
            self.unique,
            self.clusters.snapshot(),
        )

    def restore(self, saved: LearnedLeaving) -> set[str]:
        """Continue from what ``snapshot`` returned; StateError if it is damaged.

        Returns the names of rules and inputs that are not those of this join: nothing is taken
        then.
        """
        others = saved.done.keys() - self.done.keys()
        others |= saved.unique.keys() - {*self.graph.inputs}
        if others:
            return others
        self.tiers.restore(saved.tiers)
        self.orders.restore(saved.orders)
        self.clusters.restore(saved.clusters)
        for rule, state in saved.done.items():
            self.done[rule].restore(state)
        self.unique = saved.unique
        return set()


MAX_OVERHEAD = 0.02
"""Most time that measuring and learning of it take, as a share of the time of the join's tasks."""

MOST_SKIPPED = 8
"""Most batches in a row that are not measured because measuring took too long before."""

MANY_COLD = 0.01
"""Share of the pairs found cold from which the next batch is measured whatever it takes: a k that
has grown is to be followed at once."""

MOST_RESTED = 32
"""Most batches in a row that are not measured while there is nothing to learn. With it one in 33 is
measured, so that all sizes of merges, which come every fourth, sixteenth, … batch, are seen."""

CHANGED = 2.0
"""Measuring rests no longer where new rows find so many times the results that they found when it
was measured last, or so many times fewer."""

WARM_BATCHES = 16
"""First batches of a run, which are measured whatever it takes: little is known."""


class MonitorBudget:
    """Says whether the next batch is measured."""

    def __init__(self) -> None:
        self._budget = Budget(MAX_OVERHEAD, saves=False, most_owed=MOST_SKIPPED)
        self._is_urgent = self._has_measured = False
        self._n_batches = self._rest = self._n_to_rest = 0
        self._per_row = 0.0

    @property
    def may(self) -> bool:
        """Whether the next batch is measured."""
        is_due = self._budget.may and not self._n_to_rest
        return is_due or self._is_urgent or self._n_batches < WARM_BATCHES

    def learning(self) -> AbstractContextManager[None]:
        """Take off the time that the body takes, which learns of what a batch measured.

        Without a measurement it is no cost of one, and measuring more rarely would not spare it.
        """
        return self._budget.spending() if self._has_measured else nullcontext()

    def step(self, reports: Iterable[BucketReport], ages: Mapping[str, AgeCounts]) -> None:
        """Take in what the tasks of a batch took, and what they found."""
        self._has_measured = self.may
        self._n_batches += 1
        n_rows = n_results = 0
        for report in reports:
            self._budget.spend(report.monitor_ns)
            self._budget.earn(report.ns)
            n_rows += report.n_here
            n_results += report.n_results
        self._count_results(n_results / n_rows if n_rows else self._per_row)
        self._is_urgent = any(
            counts.n_cold > MANY_COLD * counts.n_pairs for counts in ages.values()
        )

    def _count_results(self, per_row: float) -> None:
        """Take note of results for each new row, and whether they wake what rests."""
        low, high = sorted((per_row, self._per_row))
        if self._has_measured:
            self._per_row = per_row
        elif low != high and high >= CHANGED * low:
            self._rest = self._n_to_rest = 0
        else:
            self._n_to_rest = max(self._n_to_rest - 1, 0)

    def rest(self, *, unless: bool) -> None:
        """Take in whether measuring is worth its time, once the batch is learned of.

        It is, if something that was learned is in use, or may come to be.
        """
        if self._has_measured:
            self._rest = 0 if unless else min(2 * self._rest or 1, MOST_RESTED)
            self._n_to_rest = self._rest
