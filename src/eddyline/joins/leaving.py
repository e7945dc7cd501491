"""Which rows leave the windows of a join before these end, and how: the choices held together.

Whole runs go to a cold tier by age, or rows one by one where a rule says that they are done; with
``discard`` they are dropped. The choices see counts of tasks, and never rows. ``MonitorBudget``
says when tasks measure: as often as a share of the time allows. Where nothing that is learned is in
use, and the last batch that was measured gave no hope of any, measuring rests, ever longer up to a
bound.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypedDict

from eddyline.joins.arrival_order import Clusters, ValueOrders, watched
from eddyline.joins.discards import Discards
from eddyline.joins.done import DoneChoice
from eddyline.joins.graph import covers
from eddyline.joins.operator.done_rows import CLOSED, MATCHED, PASSED, merged_counts, merged_lost
from eddyline.joins.operator.partner_ages import merged
from eddyline.joins.tiers import TierChoice
from eddyline.state.rows import ALWAYS
from eddyline.stats.costs import Budget

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.operator.partner_ages import AgeCounts
    from eddyline.joins.plan import BucketReport
    from eddyline.runtime.journal import JournalEntry


class LeavingSnapshot(TypedDict):
    """What was learned, by loop, as JSON knows it."""

    tiers: Any
    done: dict[str, Any]
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
    ) -> None:
        self.graph = graph
        self._keys: dict[str, tuple[int, ...]] = {name: (key,) for name, key in keys.items()}
        tiered, dropped = ({}, constrained) if drops else (constrained, {})
        self.tiers = TierChoice(tiered)
        self.done = {rule: DoneChoice(rule) for rule in (PASSED, CLOSED, MATCHED)}
        """By rule, whether rows leave once they are done."""
        self.orders = ValueOrders(watched(graph, tiered, timed, rough))
        # Hashes are in no order, but equal ones are of equal keys, all but a few.
        self.clusters = Clusters(watched(graph, tiered, timed, ()), windows)
        self.discards = Discards(dropped, watched(graph, dropped, timed, rough))
        self.unique: dict[str, tuple[int, ...]] = {}
        """By static table, the key classes of which no two of its rows have the same code."""
        self._monitors = MonitorBudget()

    @property
    def lengths(self) -> Mapping[str, int]:
        """The windows whose rows may leave (µs)."""
        return {**self.tiers.lengths, **self.discards.lengths}

    @property
    def covers(self) -> frozenset[str]:
        """The inputs with tiers of which a row is in one result at most."""
        return covers(self.graph, self.unique | self._keys) & self.tiers.lengths.keys()

    # -- a batch --------------------------------------------------------------------------------

    def plan(self, latest: Mapping[str, int]) -> dict[str, Any]:
        """Return what the plan of a batch says of rows that leave, as arguments of ``BatchPlan``.

        Args:
            latest: the latest event time of each input (µs).
        """
        drops = self.discards.kept_for is not None
        learned = self.discards if drops else self.orders
        return {
            "spans": self._spans,
            "covers": self.covers,
            "below": learned.below(),
            "tops": self.discards.orders.tops if drops else self.orders.tops,
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
        known = {name: span for name, span in self.tiers.plan.items() if span is not None}
        return dict.fromkeys(lengths) | leaving | known

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
            batch_id: the micro-batch, for the journal.
        """
        ages = merged(each.ages for each in reports)
        self._monitors.step(reports, ages)
        with self._monitors.learning():
            entries = self.tiers.step(ages, latest, batch_id)
            entries += self._step_done(reports, latest, n_hot, batch_id)
        promises = [each.promises for each in (self.tiers, self.orders, self.clusters)]
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
        for name in {name for each in reports for name in each.unique}:
            found = [{*each.unique[name]} for each in reports if name in each.unique]
            self.unique[name] = tuple(sorted(set.intersection(*found)))
        self.orders.step(each.disorder for each in reports)
        self.clusters.step((each.spans for each in reports), latest)
        closed = self.clusters.closed(latest)
        by_rule = (PASSED, self.orders.below()), (CLOSED, closed), (MATCHED, self.covers)
        entries: list[JournalEntry] = []
        for rule, names in by_rule:
            counts = merged_counts((each.done for each in reports), rule)
            ns = sum(each.ns for each in reports)
            why = {name: self.clusters.evidence(name) for name in closed} if rule == CLOSED else {}
            entries += self.done[rule].step(names, counts, n_hot, ns, batch_id, why)
        return entries

    def step_discards(
        self, reports: Sequence[BucketReport], low: int, batch_id: int
    ) -> list[JournalEntry]:
        """Take in what dropped rows cost; what is learned of it is committed with the batch.

        Args:
            reports: of the buckets; none if nothing was looked for in windows.
            low: the instant before which the rows of all inputs have come (µs).
            batch_id: the micro-batch, for the journal.
        """
        if not reports:
            return []
        lost = merged_lost(each.lost for each in reports)
        disorder = [each.disorder for each in reports]
        return self.discards.step(lost, disorder, low if low > ALWAYS + 1 else None, batch_id)

    # -- saving ---------------------------------------------------------------------------------

    def snapshot(self) -> LeavingSnapshot:
        """Return the learned state; that of discards is committed with each batch."""
        return {
            "tiers": self.tiers.snapshot(),
            "done": {rule: loop.snapshot() for rule, loop in self.done.items()},
            "orders": self.orders.snapshot(),
            "unique": self.unique,
            "clusters": self.clusters.snapshot(),
        }

    def restore(self, saved: LeavingSnapshot) -> set[str]:
        """Continue from what ``snapshot`` returned, decoded from JSON; None is not known.

        Returns:
            Names of rules and inputs that are not those of this join: nothing is taken then.

        Raises:
            StateError: it is damaged.
        """
        others = saved["done"].keys() - self.done.keys()
        others |= saved["unique"].keys() - {*self.graph.inputs}
        if others:
            return others
        for loop, known in (
            (self.tiers, saved["tiers"]),
            (self.orders, saved["orders"]),
            (self.clusters, saved["clusters"]),
        ):
            if known is not None:
                loop.restore(known)
        for rule, known in saved["done"].items():
            self.done[rule].restore(known)
        self.unique = saved["unique"]
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
        for each in reports:
            self._budget.spend(each.monitor_ns)
            self._budget.earn(each.ns)
            n_rows += each.n_here
            n_results += each.n_results
        self._count_results(n_results / n_rows if n_rows else self._per_row)
        self._is_urgent = any(each.n_cold > MANY_COLD * each.n_pairs for each in ages.values())

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
        """Take in, once it is learned of a batch, whether measuring is worth its time.

        Args:
            unless: whether something that was learned is in use, or may come to be.
        """
        if self._has_measured:
            self._rest = 0 if unless else min(2 * self._rest or 1, MOST_RESTED)
            self._n_to_rest = self._rest
