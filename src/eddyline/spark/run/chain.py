"""The operators of a query, each laid over the result of the one before."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from eddyline.spark.operator import collected

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.operator import Record
    from eddyline.runtime.records import History
    from eddyline.spark.operator import Batch, Observed, Operator, Pending
    from eddyline.watch.sections import Section

Awaited = dict[str, tuple["Pending", ...]]
"""What a job will observe, by operator."""

Seen = dict[str, list["Observed"]]
"""What a job has observed, by operator."""


class Chain:
    """The operators of one query in the order in which rows pass them.

    Args:
        operators: each over the result of the one before; of unique names.
    """

    def __init__(self, operators: Sequence[Operator]) -> None:
        self.operators = tuple(operators)

    def lay(self, df: DataFrame, batch: Batch) -> tuple[DataFrame, Awaited]:
        """Prepare the operators for a batch and lay them over its rows."""
        awaited = {}
        for each in self.operators:
            each.prepare(df, batch)
            laid = each.lay(df, batch)
            df, awaited[each.name] = laid.df, laid.pending
        return df, awaited

    @staticmethod
    def collect(awaited: Awaited, timeout_s: float) -> Seen:
        """Return what a job has observed, as far as it is told in time."""
        deadline = time.monotonic() + timeout_s
        return {
            name: collected(pending, max(0.0, deadline - time.monotonic()))[0]
            for name, pending in awaited.items()
        }

    def learn(self, seen: Seen, batch: Batch) -> list[JournalEntry]:
        """Let each operator take in what it observed; returns the decisions."""
        return [entry for each in self.operators for entry in each.learn(seen[each.name], batch)]

    def take_entries(self) -> list[JournalEntry]:
        """Return the decisions that were taken outside of ``learn`` since the last call."""
        return [entry for each in self.operators for entry in each.take_entries()]

    # -- what people see ------------------------------------------------------------------------

    def plan(self) -> Any:
        """Return the plans in force, by operator; that alone of a single one."""
        plans = {each.name: plan for each in self.operators if (plan := each.plan()) is not None}
        return next(iter(plans.values())) if len(plans) == 1 else plans

    def records(self) -> tuple[Record, ...]:
        """Return how each part of each operator stands after a batch."""
        return tuple(record for each in self.operators for record in each.records())

    def lines(self) -> tuple[str, ...]:
        """Return the plans in force in words, for the progress."""
        return tuple(line for each in self.operators for line in each.lines())

    def sections(self, history: History) -> list[Section]:
        """Return for people what the operators do, and why."""
        return [section for each in self.operators for section in each.sections(history)]

    # -- saving ---------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return what was learned, by operator."""
        states = {each.name: each.snapshot() for each in self.operators}
        return {name: state for name, state in states.items() if state is not None}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what ``snapshot`` returned.

        Raises:
            StateError: it is damaged, or of something else.
        """
        for each in self.operators:
            if each.name in state:
                each.restore(state[each.name])
