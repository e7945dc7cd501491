"""Clock of a stream: its watermark, and rows behind it.

Operators that answer when event time allows ask the clock of their rows. A batch's own rows move
it before the batch is answered, so that answers do not depend on how rows are cut into batches: the
clock looks at the event times of a batch in a small job of its own, and only if somebody asks it.
It needs none where who asks first has run a job over all rows of the batch, or where the rows are
those of files that say it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Self

import msgspec
from pyspark.sql import Observation
from pyspark.sql import functions as F

from eddyline.constraints.bounds import LatenessRule, LearnedLateness, changes
from eddyline.data.learned import restored
from eddyline.report import clock as words
from eddyline.spark.arrow_tasks import map_batches
from eddyline.spark.arrow_types import to_arrow_schema
from eddyline.spark.event_time import MICROS, Asked, LateRows, counted, disorders, warned_of_late
from eddyline.spark.operator import Laid, Operator
from eddyline.spark.relation import LOCAL, lateness_rule, micros_of, time_type
from eddyline.spark.run.observations import PendingMetrics
from eddyline.spark.stream_files import file_column
from eddyline.state.late_rows import late_delays, late_rows, settle_late
from eddyline.state.manifest import StatePart
from eddyline.state.rows import ALWAYS, FOREVER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from eddyline.data.parquet_spans import Span
    from eddyline.report.sections import Section
    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.records import History
    from eddyline.spark.operator import Batch, Clock, Observed
    from eddyline.spark.relation import Relation
    from eddyline.state.manifest import StatePlace

COUNTS_WAIT_S = 10.0
"""Longest wait for what a job that has run observed (s)."""


class ClockPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The durable state of a clock."""

    latest: dict[str, int] = {}
    """The latest event time of each stream so far (µs); of those that had rows."""
    n_late: int = 0
    """Late rows so far."""
    learned: dict[str, LearnedLateness] = {}
    """The lateness of streams for which it is learned."""
    passed: dict[str, int] = {}
    """The instant before which rows of each stream are late (µs); see ``EventTime.passed``."""


class Arrived(msgspec.Struct, forbid_unknown_fields=True):
    """Rows of a stream that have come."""

    n_rows: int = 0
    n_untimed: int = 0
    """Those of them without an event time."""


class StreamClock(Operator):
    """The clock of a stream, or of several as one, as the first operator over their rows.

    Args:
        lateness: by how much the rows of each stream may be late.
        rows: the rows of all, for analysis only.
        micros: the event time of a row (µs).
        number: the stream that a row is of, by number; omitted of one.
        without_lateness: the streams that were given none.
        passing: returns those of some rows that pass the conditions of the query: only these are
            late. Omitted: all do.
    """

    name = words.COMPONENT
    passes_all = True
    offset = 0
    """See ``Clock``."""

    def __init__(
        self,
        lateness: LatenessRule,
        rows: DataFrame,
        micros: Column,
        number: Column | None = None,
        without_lateness: tuple[str, ...] = (),
        passing: Callable[[DataFrame], DataFrame] = lambda rows: rows,
        *,
        is_local: bool = False,
    ) -> None:
        self.lateness = lateness
        self.streams = lateness.streams(lateness.known({}), {})
        self.stream = ", ".join(lateness.given)
        self.keeps_late = (self.stream,)
        self.without_lateness = without_lateness
        self.own_before = self._after = ALWAYS
        """The instants before which all rows of its own streams have come (µs): before the batch,
        and with it."""
        self.beside: tuple[Clock, ...] = ()
        """The clocks of the other parts of a union: a row is late if it is so for all parts."""
        self.part = ClockPart(learned=lateness.known({}))
        self.arrived = Arrived()
        self.is_asked = False
        self._columns = rows
        self._micros = micros
        self._is_local = is_local
        """Whether event times are readings of a wall clock."""
        self.passing = passing
        self._number = number
        self._runs_ahead: Callable[[], bool] | None = None
        """Says whether who asks first has run a job over the batch by then."""
        self._unseen: DataFrame | None = None
        """The rows of the batch, until they are looked at."""
        self._brought: PendingMetrics | None = None
        """What that job observes of them."""
        self._observed: DataFrame | None = None
        """The rows of the batch with that observation."""
        self._span: list[Column] = []
        """What it observes, once it has."""
        self.ready_counts: Sequence[Any] | None = None
        self._in_files: str | None = None
        """The event time in the files of the stream, if its rows are those of files."""
        self._newest: dict[str, Any] = {}
        self._late_files: set[str] = set()
        self._last_batch = -1
        self._is_warned = False
        self._changed: list[JournalEntry] = []
        self._is_new = False
        """Whether a batch has been looked at that is not counted yet."""

    @classmethod
    def from_relation(cls, stream: str, relation: Relation) -> Self:
        """Return the clock of a stream.

        Raises:
            QueryError: its event time is no timestamp.
            OptionError: its lateness is no interval.
        """
        assert relation.time is not None
        micros = micros_of(relation.df, relation.time, stream)
        without = (stream,) if relation.lateness is None else ()
        lateness = lateness_rule({stream: relation})
        is_local = time_type(relation.df, relation.time, stream) == LOCAL
        clock = cls(lateness, relation.df, micros, without_lateness=without, is_local=is_local)
        clock._in_files = file_column(relation.df, relation.time)
        return clock

    def asked(self, runs_ahead: Callable[[], bool] | None = None) -> None:
        """Take note that an operator asks; see ``Clock``."""
        if not self.is_asked:
            self._runs_ahead = runs_ahead
        self.is_asked = True

    @property
    def after(self) -> int:
        """The instant before which all rows have come with the batch (µs); see ``Clock``."""
        self._look()
        return self._after

    @property
    def before(self) -> int:
        """The instant before which all rows had come before the batch (µs); see ``Clock``."""
        others = (
            clock.own_before if isinstance(clock, StreamClock) else clock.before
            for clock in self.beside
        )
        return min(self.own_before, *others) if self.beside else self.own_before

    @property
    def is_idle(self) -> bool:
        """Whether the batch has no rows at all; see ``Clock``."""
        self._look()
        return self._newest.get("n_rows") == 0

    @property
    def has_late(self) -> bool:
        """Whether rows of the batch are late; see ``Clock``."""
        self._look()
        return bool(self._newest.get("has_late"))

    # -- state ----------------------------------------------------------------------------------

    def attach(self, place: StatePlace) -> None:
        """Take note of where late rows are written."""
        self._place = place

    def open(self, part: StatePart | None, again: StatePart | None, batch: Batch) -> None:  # noqa: ARG002
        """Start from the event time after the batch before."""
        saved = ClockPart() if part is None else part.read(ClockPart)
        self.part = msgspec.structs.replace(saved, learned=self.lateness.known(saved.learned))
        # Kept, as a lateness that is less now would skip what no batch has answered.
        passed = saved.passed or self.lateness.streams(self.part.learned, {}).lows(saved.latest)
        self.streams = self.lateness.streams(self.part.learned, passed)
        self.own_before = self._after = self.streams.until({})
        self._last_batch = batch.id - 1

    def is_whole(self, observed: Sequence[Observed]) -> bool:  # noqa: ARG002
        """Return that all is known before the job."""
        return True

    def close(self, observed: Sequence[Observed], batch: Batch) -> StatePart:  # noqa: ARG002
        """Return the event time after the batch, with its late rows made durable.

        Raises:
            StateError: these cannot be made durable.
        """
        self._look()
        settle_late(self._place, batch.id, self._late_files)
        n_late = self.part.n_late + self._newest["n_late"]
        learned = self._newest["learned"]
        self._changed = changes(self.name, "lateness", self.part.learned, learned, batch.id)
        newest = self._newest["latest"]
        passed = self.streams.lows(newest)
        self.part = ClockPart({**self.part.latest, **newest}, n_late, learned, passed)
        self._last_batch = batch.id
        return StatePart.from_content(self.part, ())

    # -- one batch ------------------------------------------------------------------------------

    def prepare(self, df: DataFrame, batch: Batch) -> None:
        """Look at the event times of a batch, unless its files or another job bring them."""
        self._unseen, self._batch_id, self._brought = df, batch.id, None
        self._observed = None
        if self.ready_counts is None:
            self.ready_counts = self.asks.of_files(batch.files, [(0, self._in_files)])
        if self.ready_counts is not None or self.looks:
            self._look()

    @property
    def looks(self) -> bool:
        """Whether no other job brings the event times of the batch; see ``Looking``."""
        runs_ahead = self._runs_ahead is not None and self._runs_ahead()
        return bool(self.lateness.shares) or not runs_ahead

    @property
    def asks(self) -> Asked:
        """Questions about rows; see ``Looking``."""
        before = None
        if self.lateness.shares:
            latest = [self.part.latest.get(name, ALWAYS) for name in self.lateness.given]
            before = latest, [self.streams.low(name, {}) for name in self.lateness.given]
        return Asked(self._micros, self._number, len(self.lateness.given), before)

    def _look(self) -> None:
        """Take in the event times of the batch, and put its late rows aside, once."""
        df, self._unseen = self._unseen, None
        if df is None:
            return
        counts = self._counted(df)
        names = list(self.lateness.given)
        seen = {names[number]: disorder for number, disorder in disorders(counts).items()}
        before = self.part.latest
        learned = self.lateness.after(self.part.learned, seen, before)
        self.streams = self.lateness.streams(learned, self.streams.passed)
        self._newest = {
            "n_rows": sum(row["n_rows"] for row in counts),
            "n_timed": sum(row["n_timed"] for row in counts),
            "n_late": 0,
            "has_late": any(disorder.earliest < self.before for disorder in seen.values()),
            # Of others no time passes: of a batch without rows nothing is answered.
            "latest": {
                name: max(before.get(name, ALWAYS), disorder.latest)
                for name, disorder in seen.items()
            },
            "learned": learned,
        }
        self._late_files, self._is_new = set(), True
        # Spark compiles a statement anew where a number in it is another one: none is as a rule.
        if self._newest["has_late"]:
            rows = df.withColumn(MICROS, self._micros).where(F.col(MICROS) < self.before)
            task = LateRows(self._place, self._batch_id, self.stream, self.before)
            written = map_batches(self.passing(rows), task.run, "file string, n bigint").collect()
            self._late_files = {row.file for row in written}
            self._newest["n_late"] = sum(row.n for row in written)
        self._after = self.streams.until(self._newest["latest"])

    def _counted(self, df: DataFrame) -> Sequence[Any]:
        """Return counts of the rows of a batch, as ``disorders`` reads them."""
        counts, self.ready_counts = self.ready_counts, None
        if counts is not None:
            return counts
        if self._brought is not None and (span := self._brought.get(COUNTS_WAIT_S)):
            return self.asks.of_span(span)
        return counted(df, self.asks)

    def lay(self, df: DataFrame, batch: Batch) -> Laid:  # noqa: ARG002
        """Return the rows as they are, observed by the job that brings their event times."""
        if self._unseen is None or self._brought is not None:
            return Laid(df)
        seen = Observation()
        self._brought = PendingMetrics(seen)
        self._span = self._span or self.asks.span()
        self._observed = df.observe(seen, *self._span)
        return Laid(self._observed, look_at=self._unseen)

    def unobserved(self, df: DataFrame) -> DataFrame:
        """Return the rows of the batch without the observation that brings their event times.

        Who reads them so gives the event times to ``tell``.
        """
        return self._unseen if self._unseen is not None and df is self._observed else df

    @property
    def awaits_span(self) -> bool:
        """Whether the job over all rows of the batch is to bring their event times."""
        return self._unseen is not None

    def tell(self, span: Span) -> None:
        """Take note of the event times of all rows of the batch, of which no order is asked for."""
        self.ready_counts = self.asks.of_tasks(span)

    def once(self, df: DataFrame) -> DataFrame:
        """Return all rows of a batch DataFrame; no more will come."""
        self.own_before, self._after = ALWAYS, FOREVER
        return df

    def learn(self, observed: Sequence[Observed], batch: Batch) -> list[JournalEntry]:  # noqa: ARG002
        """Count what arrived, and warn once if much of it was late."""
        if not self._is_new:
            return []
        self._is_new = False
        self.arrived.n_rows += self._newest["n_rows"]
        self.arrived.n_untimed += self._newest["n_rows"] - self._newest["n_timed"]
        if not self._is_warned:
            n_late, n_rows = self.part.n_late, self.arrived.n_rows
            share = min(self.lateness.shares.values(), default=None)
            delays = partial(late_delays, self._place, self.stream, self._last_batch)
            longest = max(self.streams.lateness.values())
            self._is_warned = warned_of_late(
                self.stream, n_late, n_rows, "left out", share, delays, longest
            )
        return self._changed

    # -- what people see, and what is saved -------------------------------------------------------

    def late_rows(self, name: str) -> pa.Table:
        """Return the rows of the stream that came too late.

        Raises:
            StateError: they cannot be read.
        """
        columns = self._columns.schema
        return late_rows(
            self._place,
            name,
            self._last_batch,
            lambda: to_arrow_schema(columns, timezone="UTC"),
            is_local=self._is_local,
        )

    def records(self) -> tuple[words.ClockRecord, ...]:
        """Return the record after a batch."""
        reached = self.streams.reached(self.part.latest)
        return (words.ClockRecord(self._newest.get("n_late", 0), reached=reached),)

    def describe(self, history: History) -> list[Section]:  # noqa: ARG002
        """Return for people how far the stream is; it is not what its query is about."""
        return words.sections(
            self.stream,
            n_rows=self.arrived.n_rows,
            n_untimed=self.arrived.n_untimed,
            n_late=self.part.n_late,
            latest=max(self.part.latest.values(), default=ALWAYS),
            low=self._after,
            has_lateness=any(self.streams.lateness.values()),
            learned=self.part.learned,
        )

    def snapshot(self) -> Arrived:
        """Return the counts."""
        return self.arrived

    def restore(self, state: Any) -> None:
        """Continue from what ``snapshot`` returned.

        Raises:
            StateError: it is damaged.
        """
        what = f"the rows of {self.stream!r}"
        self.arrived = restored(state, Arrived, what, stream=self.stream)
