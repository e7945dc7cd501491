"""What joins of models ask before, planned by an operator from batch to batch."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from eddyline.models.planning.pin import ModelPin
from eddyline.models.planning.profile import ModelProfile
from eddyline.spark.operator import Operator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from eddyline.models.planning.loop import ModelLoop
    from eddyline.models.step import ModelStep
    from eddyline.models.streaming import BucketReport, StreamPlan
    from eddyline.runtime.choice import Choice
    from eddyline.runtime.journal import JournalEntry
    from eddyline.spark.operator import Batch


class PlannedJoins(Operator):
    """An operator over models whose joins are planned."""

    step: ModelStep
    planning: ModelLoop
    """Estimates what steps give, and plans what joins ask."""
    asked: StreamPlan
    """What is done with the rows of a batch."""

    def prepare(self, df: DataFrame, batch: Batch) -> None:  # noqa: ARG002
        """Take in the plan that is in force by now."""
        self.asked = self._planned()

    def _planned(self) -> StreamPlan:
        """Return what is done with the rows of a batch, by the plan in force."""
        plan, planning = self.step.plan, self.planning
        return replace(plan, node=planning.planned(plan.node), samples=planning.wants_sample)

    def _seen(self, reports: Sequence[BucketReport], batch_id: int) -> list[JournalEntry]:
        """Learn of what steps gave and joins asked."""
        profiles = [each.profile for each in reports if each.profile is not None]
        fresh = reduce(lambda one, other: one.merged(other), profiles, ModelProfile())
        task_ns = sum(sum(each.work.ns.values()) for each in reports)
        return self.planning.step(fresh, task_ns, batch_id)

    @property
    def _pin(self) -> ModelPin | None:
        return ModelPin(self.planning) if self.planning.joins else None

    @property
    def choices(self) -> tuple[Choice, ...]:
        """What joins ask before."""
        return (self._pin,) if self._pin else ()
