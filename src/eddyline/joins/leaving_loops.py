"""Which rows leave the windows of a join before these end, and how: all loops that decide it.

Whole runs go to a cold tier by age, or rows one by one where a rule says that they are done; with
``discard`` they are dropped. The loops see counts of tasks, and never rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from eddyline.joins.clusters import Clusters
from eddyline.joins.discards import Discards
from eddyline.joins.done import DoneChoice
from eddyline.joins.monitor_budget import MonitorBudget
from eddyline.joins.operator.done_rows import CLOSED, MATCHED, PASSED, merged_counts
from eddyline.joins.operator.lost_results import merged_lost
from eddyline.joins.operator.partner_ages import merged
from eddyline.joins.tiers import TierChoice
from eddyline.joins.unique_keys import covers
from eddyline.joins.value_order import ValueOrders, watched
from eddyline.state.rows import ALWAYS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from eddyline.joins.graph import JoinGraph
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
