"""Alarms over the segments of a stream, followed while their set changes.

``AlarmBinder`` reads alarms over the keys and attributes of segments, ``AlarmOperator`` runs them,
and ``AskingAlarms`` is what a set knows of the query that asks it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.types import LongType, StringType, StructField, StructType

from eddyline.alarms.alarm_set import Alarm, read_alarm
from eddyline.alarms.loop import AlarmLoop
from eddyline.alarms.plan import COMPONENT
from eddyline.alarms.program import AlarmProgram, EntityRules, program_of
from eddyline.alarms.ranges import ALARM, DEFINITION, AlarmRanges
from eddyline.errors import NotSupportedError, OptionError
from eddyline.models import graph
from eddyline.models.steps import Changes
from eddyline.options import AlarmOptions
from eddyline.query.rules.sources import SqlRule
from eddyline.report import alarms as words
from eddyline.report.html import write_report
from eddyline.report.sections import RunView, arranged
from eddyline.report.terminal import explain
from eddyline.rules.compile.program import compile_rules
from eddyline.rules.description import changed
from eddyline.rules.view import MAX_NAMED
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.records import History
from eddyline.spark.models.laying import as_final, laid, schema_of, with_revisions
from eddyline.spark.models.operator import ModelOperator
from eddyline.spark.rules.binding import RuleBinder, session_settings
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame

    from eddyline.alarms.alarm_set import AlarmStep
    from eddyline.models.steps import Shape
    from eddyline.models.streams.plan import StreamPlan
    from eddyline.report.sections import Section
    from eddyline.runtime.choice import Choice
    from eddyline.runtime.records import Record
    from eddyline.spark.operator import Batch, Observed, Site

MADE = (StructField(ALARM, StringType()), StructField(DEFINITION, LongType()))
"""The columns that ranges of alarms have before the keys of entities."""


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
        self.other_options = AlarmOptions.taken(site.options)[1]
        self._version, self._texts = step.alarms.now()
        self._program = self._binder.read(self._texts)
        self.loop = AlarmLoop(self.options, self._program)
        self.asked = self._plan()
        self._entries: list[JournalEntry] = []
        self._asking = AskingAlarms(self, self._binder)
        step.alarms.asked_by(self._asking)

    def _plan(self) -> StreamPlan:
        ranges = AlarmRanges(
            self._program,
            self.loop.template_plans,
            watches=self.options.adaptive,
            samples=self.loop.wants_sample,
        )
        planned = self._planned()
        return replace(planned, node=graph.Unary(Changes(), graph.Unary(ranges, planned.node)))

    def _plan_of_batch(self, batch: Batch) -> StreamPlan:
        """Take in what has changed in the set, and return the plan that is in force by now."""
        self._alarms.asked_by(self._asking)
        version, texts = self._alarms.now()
        if version != self._version:
            self._program = self._binder.read(texts)
            with self._lock:  # whoever asks for an explanation reads the loop meanwhile
                self.loop.follow(self._program)
            self._entries += _entries_of(self._texts, texts, batch.id)
            self._version, self._texts = version, texts
        return self._plan()

    def learn(self, observed: Sequence[Observed], batch: Batch) -> list[JournalEntry]:
        """Take in what the buckets of a batch did, and what their alarms took."""
        entries = super().learn(observed, batch)
        profiles = [
            report.observed for report in self.reports(observed) if report.observed is not None
        ]
        if not profiles or self.is_idle:
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
        """Choices: how alarms are solved, and which sides joins filter first."""
        return (self.loop, *super().choices)

    def records(self) -> tuple[Record, ...]:
        """Return the records after a batch: of models, and of how alarms are solved."""
        with self._lock:
            return (*super().records(), self.loop.record())

    def describe(self, history: History) -> list[Section]:
        """Return for people what was fitted, and how alarms are solved."""
        with self._lock:
            views = self.loop.views()
        return [*words.sections(views, history), *super().describe(history)]

    @cached_property
    def _schema(self) -> StructType:
        fields = [field for field in MADE if field.name != DEFINITION]
        time = self._sources[0].time_type
        schema = schema_of(self.asked.node.shape, [*fields, *self.key_fields], time)
        return with_revisions(schema) if self.asked.is_early else schema

    def once(self, df: DataFrame) -> DataFrame:
        """Return all results over a batch DataFrame; nothing is kept."""
        results = laid(self._over(df), self.asked.node, MADE).drop(DEFINITION)
        return as_final(results) if self.asked.is_early else results

    @property
    def text(self) -> str:
        """The alarms as they were written, those of the last micro-batch."""
        return "\n".join(f"{name}: {text}" for name, text in self._texts.items())


def _entries_of(
    before: Mapping[str, str], after: Mapping[str, str], batch_id: int
) -> list[JournalEntry]:
    """Return the entry about a change of the alarms, texts by name, if there is one."""
    changes = {what: names for what, names in changed(before, after).items() if names}
    evidence: dict[str, Any] = {what: names[:MAX_NAMED] for what, names in changes.items()}
    numbers = f"{len(before)} alarms", f"{len(after)} alarms"
    return [JournalEntry(batch_id, COMPONENT, "alarms", *numbers, evidence)] if evidence else []


@dataclass(eq=False)
class AskingAlarms:
    """Link from a set of alarms to the query of a stream; see ``alarms.alarm_set.Asking``."""

    operator: AlarmOperator
    binder: AlarmBinder

    def check(self, alarms: Mapping[str, str]) -> None:
        """Check that alarms fit its segments; errors as of ``AlarmBinder.read``."""
        self.binder.check(alarms)

    def explain(self, entries: Iterable[JournalEntry], width: int) -> str:
        """Return in words how alarms are solved; ``entries`` are decisions so far."""
        sections = self.operator.describe(History(journal=tuple(entries)))
        return explain(self.operator.query, arranged(sections), width=width)

    def report(self, entries: Iterable[JournalEntry], path: str | Path) -> Path:
        """Write a page of it."""
        operator, history = self.operator, History(journal=tuple(entries))
        sections = tuple(operator.describe(history))
        view = RunView(operator.query, operator.text, history=history, sections=sections)
        return write_report(view, path)


@dataclass(eq=False)
class AlarmBinder:
    """Reads alarms over segments of a kind, each text once.

    Raises:
        OptionError: a key has the name of a column of results.
    """

    keys: DataFrame
    """A DataFrame with the keys, for analysis only."""
    shape: Shape
    """Of the segments that alarms are asked of."""
    _known: dict[str, Alarm] = field(default_factory=dict)
    _binder: RuleBinder = field(default_factory=RuleBinder)

    def __post_init__(self) -> None:
        if ALARM in self.shape.keys:
            msg = f"results of alarms have a column {ALARM!r} themselves; rename the key"
            raise OptionError(msg, key=ALARM)

    def read(self, texts: Mapping[str, str]) -> AlarmProgram:
        """Return alarms, given by name, as they are solved together.

        Raises:
            QueryError: one does not fit; the message names it.
            NotSupportedError: no comparison of polynomials says the same, or a condition on keys
                computes something of them.
        """
        self._known = {name: self._alarm(name, text) for name, text in texts.items()}
        return program_of(list(self._known.values()), self._compiled)

    def check(self, texts: Mapping[str, str]) -> None:
        """Check that alarms fit; errors as above."""
        program_of([self._alarm(name, text) for name, text in texts.items()], self._compiled)

    def _alarm(self, name: str, text: str) -> Alarm:
        alarm = self._known.get(name)
        if alarm is not None and alarm.text == text:
            return alarm
        return read_alarm(name, text, self.shape.attributes, self.shape.keys)

    def _compiled(self, texts: Mapping[str, str]) -> EntityRules:
        sources = [_OnKeys(name, text) for text, name in texts.items()]
        bound = self._binder.bind(self.keys, sources, skips=False)
        program = compile_rules(bound.rules)
        plain = {quoted(key): key for key in self.shape.keys}
        plain |= {key: key for key in self.shape.keys}
        for column in program.columns:
            if column not in plain:
                msg = (
                    f"conditions on keys of alarms compare the keys {', '.join(self.shape.keys)} "
                    f"with constants, and one computes {column}; compute it before the models, as "
                    f"a key of its own"
                )
                raise NotSupportedError(msg, computed=column)
        identity = repr(([*texts], self.keys.dtypes, session_settings(self.keys.sparkSession)))
        digest = hashlib.blake2b(identity.encode(), digest_size=16).hexdigest()
        return EntityRules(program, tuple(plain[column] for column in program.columns), digest)


@dataclass(frozen=True)
class _OnKeys(SqlRule):
    """The condition on keys of an alarm."""

    noun: ClassVar[str] = "the condition on keys of alarm"
