"""Alarms over the segments of a stream, followed while their set changes."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from eddyline.alarms.changes import entries_of
from eddyline.alarms.ranges import DEFINITION, AlarmRanges
from eddyline.models import graph
from eddyline.models.steps import Changes
from eddyline.spark.alarms.binding import MADE, AlarmBinder
from eddyline.spark.models.graphs import crossed
from eddyline.spark.models.laying import laid, schema_of
from eddyline.spark.models.operator import ModelOperator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from eddyline.alarms.step import AlarmStep
    from eddyline.models.streaming import StreamPlan
    from eddyline.runtime.journal import JournalEntry
    from eddyline.spark.operator import Batch, Site


class AlarmOperator(ModelOperator):
    """Runs an ``AlarmStep``: each batch has the alarms of the moment it starts.

    Raises:
        QueryError: rows without event time, or an alarm that does not fit.
    """

    def __init__(self, step: AlarmStep, site: Site) -> None:
        super().__init__(step, site)
        shape = step.plan.node.shape
        self._alarms = step.alarms
        keys = self.spark.createDataFrame([], StructType(self.key_fields))
        self._binder = AlarmBinder(keys, shape)
        self._version, self._texts = step.alarms.now()
        self.asked = self._plan(self._texts)
        self._entries: list[JournalEntry] = []
        step.alarms.asked_by(self._binder)

    def _plan(self, texts: Mapping[str, str]) -> StreamPlan:
        ranges = AlarmRanges(self._binder.read(texts))
        node = graph.Unary(Changes(), graph.Unary(ranges, self.step.plan.node))
        return replace(self.step.plan, node=node)

    def prepare(self, df: DataFrame, batch: Batch) -> None:  # noqa: ARG002
        """Take in what has changed in the set."""
        version, texts = self._alarms.now()
        if version == self._version:
            return
        before = self._texts
        self.asked = self._plan(texts)
        self._version, self._texts = version, texts
        self._entries += entries_of(before, texts, batch.id)

    def take_entries(self) -> list[JournalEntry]:
        """Return the changes of the set since the last call."""
        taken, self._entries = self._entries, []
        return taken

    @cached_property
    def _schema(self) -> StructType:
        made = [each for each in MADE if each.name != DEFINITION]
        time = self._sources[0].time_type
        return schema_of(self.asked.node.shape, [*made, *self.key_fields], time)

    def once(self, df: DataFrame) -> DataFrame:
        """Return all results over a batch DataFrame; nothing is kept."""
        found = crossed(self._over(df), self.asked.node)
        return laid(found.sources, found.node, MADE).drop(DEFINITION)

    @property
    def text(self) -> str:
        """The alarms as they were written, those of the last micro-batch."""
        return "\n".join(f"{name}: {text}" for name, text in self._texts.items())
