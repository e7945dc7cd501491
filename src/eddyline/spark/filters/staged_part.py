"""Python predicates in one crossing to the workers, or in several where that is cheaper.

In several, each crossing has an order of its own, which its tasks go on learning from the rows that
enter it. Evidence for the order of all of them comes from jobs in which they cross together: one in
``LOOK_EVERY``, and the next one when more rows are left for a crossing than was expected.

The choice of all of them is the loop of the order. A person who holds an order in force holds its
crossings, too. Another order, of a person or the log of plans, begins with one crossing.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from eddyline.filters.crossings import CrossingPlan, plan_crossings
from eddyline.filters.loop import FilterLoop
from eddyline.filters.view import CrossingView
from eddyline.runtime.journal import JournalEntry
from eddyline.stats.profile import merge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.spark.filters.parts import ArrowPart, Laying
    from eddyline.spark.operator import Batch, Observed
    from eddyline.stats.profile import FilterProfile, Order

LOOK_EVERY = 8
"""One job in so many has all predicates in one crossing, with a sample that meets them all."""

MAX_SHARE_RATIO, MAX_SHARE_MORE = 2.0, 0.1
"""More rows may be left than expected by this factor, or by this share of all rows."""


class StagedPart:
    """The Python predicates of a segment.

    Args:
        whole: all of them in one crossing; its loop decides their order.
    """

    def __init__(self, whole: ArrowPart) -> None:
        self.whole = whole
        self.loop = whole.loop
        self.texts = whole.texts
        self._plan: CrossingPlan | None = None
        self._stages: tuple[ArrowPart, ...] = ()
        self._n_staged = 0
        self._wants_look = False

    # -- a job ------------------------------------------------------------------------------------

    def lay(self, laying: Laying) -> None:
        """Filter in Python workers."""
        self._follow_order()
        is_look = self._wants_look or self._n_staged + 1 >= LOOK_EVERY
        # The plan of a plain stream is laid once, so it could never be looked at again.
        if not self._stages or is_look or laying.is_fixed:
            self._n_staged, self._wants_look = 0, False
            self.whole.lay(laying)
            return
        self._n_staged += 1
        for each in self._stages:
            each.lay(laying)

    def learn(self, observed: Sequence[Observed], batch: Batch) -> list[JournalEntry]:
        """Take in the reports of jobs, by the crossings that they were laid in."""
        self._follow_order()
        entries: list[JournalEntry] = []
        counts: list[FilterProfile] = []
        for each in observed:
            # The progress of a plain stream brings no facts, and its plan has one crossing.
            part: ArrowPart = each.facts or self.whole
            fresh, decided = part.learn(each, batch)
            entries += decided
            if fresh is None:
                continue
            if part is self.whole:
                entries += self._choose(fresh.n_rows, batch.id)
            else:
                counts.append(self._counts(part, fresh))
        if counts:
            self.loop.count(merge(counts))
        return entries

    def _counts(self, stage: ArrowPart, fresh: FilterProfile) -> FilterProfile:
        """Return the counts of a crossing as those of the whole block."""
        filters = self._filters(stage)
        is_first = is_last = False
        if stage in self._stages:
            is_first, is_last = stage is self._stages[0], stage is self._stages[-1]
            self._check_share(stage, fresh)
        counts = fresh.counts_of(self.loop.filter_ids, filters)
        n_rows = counts.n_rows if is_first else 0
        return replace(counts, n_rows=n_rows, n_kept=counts.n_kept if is_last else 0)

    def _filters(self, stage: ArrowPart) -> Order:
        return tuple(map(self.loop.filter_ids.index, stage.loop.filter_ids))

    def _check_share(self, stage: ArrowPart, fresh: FilterProfile) -> None:
        """Ask for a look if more rows are left after a crossing than was expected."""
        number = self._stages.index(stage) + 1
        if self._plan is None or number == len(self._stages) or not fresh.n_rows:
            return
        before, expected = self._plan.shares[number - 1 : number + 1]
        share = before * fresh.n_kept / fresh.n_rows
        if share > max(MAX_SHARE_RATIO * expected, expected + MAX_SHARE_MORE):
            self._wants_look = True

    # -- the plan ---------------------------------------------------------------------------------

    def _choose(self, n_rows: int, batch_id: int) -> list[JournalEntry]:
        """Cut the order into crossings anew, where that pays for as many rows as a job has."""
        loop, before = self.loop, self._names()
        if loop.is_held:
            return []
        can_stage = loop.is_adaptive and loop.policy.needs_all_bits and loop.table is None
        plan = None
        if can_stage and not loop.is_warming:
            columns = [each.reads for each in self.whole.functions]
            profile, n_bytes = loop.window.profile(), self.whole.n_bytes
            plan = plan_crossings(loop.order, profile, columns, n_bytes)
        # What is there stays as long as it saves anything.
        if plan is None or not (plan.pays(n_rows) or (self._stages and plan.saved_ns > 0.0)):
            plan = None
        self._adopt(plan)
        after = self._names()
        if before == after:
            return []
        evidence = {} if plan is None else plan.evidence()
        return [JournalEntry(batch_id, loop.component, "crossings", before, after, evidence)]

    def _adopt(self, plan: CrossingPlan | None) -> None:
        known = () if self._plan is None else self._plan.crossings
        self._plan = plan
        crossings = () if plan is None else plan.crossings
        if crossings != known:
            self._stages = tuple(
                self._stage(number, each, is_last=number == len(crossings))
                for number, each in enumerate(crossings, 1)
            )

    def _follow_order(self) -> None:
        """Cross once under an order from outside; crossings are held with the order of all."""
        if self._plan is not None and self._plan.order != self.loop.order:
            self._adopt(None)
        for stage in self._stages:
            stage.loop.is_held = self.loop.is_held

    def _stage(self, number: int, filters: Order, *, is_last: bool) -> ArrowPart:
        whole, loop = self.whole, self.loop
        columns = tuple(whole.columns[f] for f in filters)
        return replace(
            whole,
            functions=tuple(whole.functions[f] for f in filters),
            columns=columns,
            loop=FilterLoop(
                f"{loop.component} crossing {number}",
                tuple(loop.filter_ids[f] for f in filters),
                replace(loop.options, routing=False),
                reads=columns,
                thinks_freely=True,
            ),
            column=f"{whole.column}_{number}",
            run_id=uuid.uuid4().hex,  # workers keep what they learned of other predicates, too
            carries_errors=whole.carries_errors or not is_last,
            n_learned=0,
        )

    def _names(self) -> list[list[str]]:
        """Return the names of the predicates of each crossing, nothing where there is but one."""
        return [list(each.loop.filter_ids) for each in self._stages]

    def crossings(self) -> tuple[CrossingView, ...]:
        """Return the crossings as people may want to see them; none where there is but one."""
        self._follow_order()
        if self._plan is None:
            return ()
        found = zip(self._plan.crossings, self._plan.shares, strict=True)
        return tuple(CrossingView(filters, share) for filters, share in found)
