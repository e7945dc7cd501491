"""Rows that are done leave the hot tier, new ones at once and others when runs are merged.

So no row is written more often than it was. A rule may err: what is cold is found as before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.joins.operator.clustered_rows import COUNTED, closed_of
from eddyline.joins.operator.done_rows import CLOSED, MATCHED, PASSED, DoneCounts
from eddyline.joins.operator.matched_rows import MatchedRows, matched_of
from eddyline.state.rows import ALWAYS
from eddyline.stats.costs import work_ns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from eddyline.joins.operator.done_rows import Done
    from eddyline.joins.plan import BatchPlan
    from eddyline.state.rows import SortedRun


class Leaving:
    """The rules of one bucket in one batch.

    Args:
        plan: of the batch.
        counts: to which what is found is added.
    """

    def __init__(self, plan: BatchPlan, counts: Done) -> None:
        self.plan = plan
        self.counts = counts
        self.matched: MatchedRows | None = None
        """The rows that are in results; None if nobody asks."""
        self.ns = 0
        """Time that it took to count rows that do not leave (ns)."""
        self._windows: Mapping[str, Sequence[SortedRun]] = {}
        self._newest: dict[str, int] = {}
        """The latest event time of the new rows of each input (µs)."""
        self._to_count: dict[str, SortedRun] = {}
        """Merged runs of which is to be counted how many rows have a closed key, by input."""

    def begin(
        self, windows: Mapping[str, Sequence[SortedRun]], news: Mapping[str, SortedRun]
    ) -> None:
        """Take note of results from now on."""
        self._newest = {name: int(run.rows.starts.max()) for name, run in news.items()}
        covers = [name for name in self.plan.covers if MATCHED in self._rules(name)]
        if covers:
            self.matched = MatchedRows(covers, windows, news)

    def lets_go(self, name: str) -> bool:
        """Return whether rows of an input leave by any rule."""
        return bool(self._leaving(name))

    def merged(self, name: str, run: SortedRun, ns: int) -> None:
        """Count a run that was merged, and the time that it took (ns)."""
        for rule in self._rules(name):
            counts = self._of(rule, name)
            counts.n_merged += len(run)
            counts.merge_ns += ns
            if rule == PASSED and (rule, name) not in self.plan.leaving:
                counts.n_old_done += int(self._passed(name, run).sum())
            if rule == CLOSED and (rule, name) not in self.plan.leaving:
                self._to_count[name] = run

    def wrote(self, name: str, ns: int) -> None:
        """Add the time that it took to write what stays of a merged run (ns)."""
        for rule in self._rules(name):
            self._of(rule, name).merge_ns += ns

    def old(
        self, name: str, run: SortedRun, windows: Mapping[str, Sequence[SortedRun]]
    ) -> NDArray[np.bool_]:
        """Return which rows of a merged run leave.

        Args:
            name: their input.
            run: the rows.
            windows: the runs of all inputs, with the new ones.
        """
        mask = np.zeros(len(run), np.bool_)
        for rule in self._leaving(name):
            started, counts = work_ns(), self._of(rule, name)
            if rule == PASSED:
                mine = self._passed(name, run)
                counts.n_old_done += int(mine.sum())
            elif rule == CLOSED:
                mine = self._closed(name, run, np.flatnonzero(~mask))
                counts.n_old_done += int(mine.sum())
            else:
                order = self.plan.orders[name]
                mine = matched_of(self.plan.graph, name, order, windows, run)
            counts.n_left += int((mine & ~mask).sum())
            mask |= mine
            counts.ns += work_ns() - started
        return mask

    def new(self, name: str, run: SortedRun) -> NDArray[np.bool_]:
        """Count the new rows of an input that are done, and return which leave."""
        mask = np.zeros(len(run), np.bool_)
        for rule in self._rules(name):
            counts = self._of(rule, name)
            counts.n_new += len(run)
            if rule == CLOSED:  # looked for in merges alone, which takes less than it does here
                continue
            mine = self._done(rule, name, run)
            counts.n_new_done += int(mine.sum())
            if (rule, name) in self.plan.leaving:
                mask |= mine
        return mask

    def took(self, name: str, ns: int) -> None:
        """Add the time that it took to write apart what left (ns)."""
        for rule in self._leaving(name):
            self._of(rule, name).ns += ns

    def end(self, windows: Mapping[str, Sequence[SortedRun]]) -> None:
        """Count the older rows that were in results, and those of merged runs that are done.

        Args:
            windows: the runs of all inputs, with the new ones.
        """
        self._windows = windows
        started = work_ns()
        for name, run in self._to_count.items():
            step = -(-len(run) // COUNTED) or 1
            n_done = int(self._closed(name, run, np.arange(0, len(run), step)).sum())
            self._of(CLOSED, name).n_old_done += n_done * step
        self.ns += work_ns() - started
        if self.matched is not None:
            for name, n_old in self.matched.n_old.items():
                self._of(MATCHED, name).n_old_done += n_old

    def _rules(self, name: str) -> list[str]:
        """Return the rules that are counted: by which rows leave, or may be done if it measures."""
        plan = self.plan
        of = [(PASSED, plan.below), (CLOSED, plan.closed), (MATCHED, plan.covers)]
        mine = [rule for rule, names in of if name in names]
        return mine if plan.measures else [rule for rule in mine if (rule, name) in plan.leaving]

    def _leaving(self, name: str) -> list[str]:
        return [rule for rule in self._rules(name) if (rule, name) in self.plan.leaving]

    def _done(self, rule: str, name: str, run: SortedRun) -> NDArray[np.bool_]:
        if rule == PASSED:
            return self._passed(name, run)
        assert self.matched is not None
        return self.matched.masks[name]

    def _passed(self, name: str, run: SortedRun) -> NDArray[np.bool_]:
        """Return which rows have a key that the others have passed."""
        mask = np.zeros(len(run), np.bool_)
        for key, low in self.plan.below[name].items():
            mask |= run.rows.codes[key] < low
        return mask

    def _closed(self, name: str, run: SortedRun, asked: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which rows have a key that is closed, of some by their places."""
        mask = np.zeros(len(run), np.bool_)
        limits = self._limits(name)
        mask[asked] = closed_of(run, asked, limits, self._windows, self.plan.lengths)
        return mask

    def _limits(self, name: str) -> dict[int, dict[str, int]]:
        """Return by key class and stream until when the first row of a closed key came (µs)."""
        plan, limits = self.plan, {}
        for key, spans in plan.closed[name].items():
            tops = {other: plan.clusters.get((other, key), ALWAYS) for other in spans}
            tops = {other: max(top, self._newest.get(other, top)) for other, top in tops.items()}
            if all(top > ALWAYS for top in tops.values()):
                limits[key] = {other: tops[other] - span for other, span in spans.items()}
        return limits

    def _of(self, rule: str, name: str) -> DoneCounts:
        return self.counts.setdefault((rule, name), DoneCounts())
