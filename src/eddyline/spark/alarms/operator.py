"""Alarms over the segments of a stream, followed while their set changes."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.types import StructType

from eddyline.alarms.changes import entries_of
from eddyline.alarms.loop import AlarmLoop
from eddyline.alarms.pin import AlarmPin
from eddyline.alarms.ranges import DEFINITION, AlarmRanges
from eddyline.models import graph
from eddyline.models.steps import Changes
from eddyline.options import AlarmOptions
from eddyline.spark.alarms.binding import MADE, AlarmBinder
from eddyline.spark.alarms.shown import AlarmsShown
from eddyline.spark.models.graphs import crossed
from eddyline.spark.models.laying import laid, schema_of
from eddyline.spark.models.operator import ModelOperator
from eddyline.watch import alarms as words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from eddyline.alarms.step import AlarmStep
    from eddyline.models.streams.plan import StreamPlan
    from eddyline.runtime.choice import Choice
    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.records import History, Record
    from eddyline.spark.operator import Batch, Observed, Site
    from eddyline.watch.sections import Section

PLAN = "alarms"
"""The name of what is learned of alarms in saved state."""


class AlarmOperator(ModelOperator):
    """Runs an ``AlarmStep``: each batch has the alarms of the moment it starts.

    Raises:
        QueryError: rows without event time, or an alarm that does not fit.
    """

    takes = AlarmOptions

    def __init__(self, step: AlarmStep, site: Site) -> None:
        super().__init__(step, site)
        shape = step.plan.node.shape
        self._alarms = step.alarms
        keys = self.spark.createDataFrame([], StructType(self.key_fields))
        self._binder = AlarmBinder(keys, shape)
        self.options = AlarmOptions.taken(site.options)[0].resolved()
        self.left = AlarmOptions.taken(site.options)[1]
        self._version, self._texts = step.alarms.now()
        self._program = self._binder.read(self._texts)
        self.loop = AlarmLoop(self.options, self._program)
        self.asked = self._plan()
        self._entries: list[JournalEntry] = []
        self._shown = AlarmsShown(self, self.query)
        step.alarms.asked_by(self._binder, self._shown)

    def _plan(self) -> StreamPlan:
        ranges = AlarmRanges(
            self._program,
            self.loop.plan,
            watches=self.options.adaptive,
            samples=self.loop.wants_sample,
        )
        planned = self._planned()
        return replace(planned, node=graph.Unary(Changes(), graph.Unary(ranges, planned.node)))

    def prepare(self, df: DataFrame, batch: Batch) -> None:  # noqa: ARG002
        """Take in what has changed in the set, and the plan that is in force by now."""
        self._alarms.asked_by(self._binder, self._shown)
        version, texts = self._alarms.now()
        if version != self._version:
            self._program = self._binder.read(texts)
            with self._lock:  # whoever asks for an explanation reads the loop meanwhile
                self.loop.follow(self._program)
            self._entries += entries_of(self._texts, texts, batch.id)
            self._version, self._texts = version, texts
        self.asked = self._plan()

    def learn(self, observed: Sequence[Observed], batch: Batch) -> list[JournalEntry]:
        """Take in what the buckets of a batch did, and what their alarms took."""
        entries = super().learn(observed, batch)
        reports = self._reports.of(observed).values()
        profiles = [each.observed for each in reports if each.observed is not None]
        if not profiles or self.asked_clock.is_idle:
            self.loop.n_newest = 0  # nothing of the last one counts
            return entries
        fresh = reduce(lambda one, other: one.merged(other), profiles)
        with self._lock:
            entries += self.loop.step(fresh, batch.id)
        self._alarms.note(entries)
        return entries

    def take_entries(self) -> list[JournalEntry]:
        """Return the changes of the set since the last call."""
        taken, self._entries = self._entries, []
        self._alarms.note(taken)
        return taken

    @property
    def choices(self) -> tuple[Choice, ...]:
        """How alarms are solved, and what joins ask before."""
        return (AlarmPin(self.loop), *super().choices)

    def records(self) -> tuple[Record, ...]:
        """Return the records after a batch: of models, and of how alarms are solved."""
        with self._lock:
            return (*super().records(), self.loop.record())

    def lines(self, n_rows: int, seconds: float) -> tuple[str, ...]:
        """Return what segments stand for, and what alarms share, for the progress."""
        with self._lock:
            views = self.loop.views()
        return (*super().lines(n_rows, seconds), *words.lines(views))

    def sections(self, history: History) -> list[Section]:
        """Return for people what was fitted, and how alarms are solved."""
        with self._lock:
            views = self.loop.views()
        return [*words.sections(views, history), *super().sections(history)]

    def snapshot(self) -> dict[str, Any]:
        """Return the counts, and what was learned of alarms."""
        with self._lock:
            return super().snapshot() | {PLAN: msgspec.to_builtins(self.loop.snapshot())}

    def restore(self, state: Any) -> None:
        """Continue from what ``snapshot`` returned.

        Raises:
            StateError: it is damaged.
        """
        learned = None
        if isinstance(state, dict):
            learned = state.get(PLAN)
            state = {name: each for name, each in state.items() if name != PLAN}
        super().restore(state)
        if learned is not None:
            self.loop.restore(learned)

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
