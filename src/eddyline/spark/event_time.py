"""Event time around a stream clock: measurement, warnings, clocks of results.

In reading order:

1. ``Asked`` and ``counted``: how far out of order the rows of a batch came. One Spark job counts
   it, another job observes it, or the files of the batch say it.
2. Warnings: ``warned_of_late`` (when many rows were late), ``warn_without_lateness`` (when a run
   starts) and ``warn_of_unbounded_state`` (when a query is made and when it starts).
3. ``ResultClock`` and ``UnionClock``: the clocks of rows that are results. No result is late.
4. ``LateRows``: the task that puts late rows of a stream aside.

``clock.StreamClock`` measures and judges the rows of a stream with the first of these.
"""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from eddyline.constraints.bounds import BINS_PER_OCTAVE, Disorder
from eddyline.errors import LatenessWarning, LateRowsWarning, UnboundedStateWarning, own_frames
from eddyline.query.spans import UNITS
from eddyline.spark.arrow_tasks import task_ids
from eddyline.spark.operator import PREFIX
from eddyline.spark.stream_files import stream_options
from eddyline.state.event_time import earlier
from eddyline.state.late_rows import write_late_table
from eddyline.state.rows import ALWAYS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame, Row

    from eddyline.data.parquet_spans import Span
    from eddyline.spark.operator import Clock, Operator
    from eddyline.spark.stream_files import BatchFiles
    from eddyline.state.manifest import StatePlace

_NUMBER, _MICROS, _BIN = "number", "micros", "bin"
_LOOKED = f"{PREFIX}_looked"
"""Start of the names of temporary columns: no part has one of them."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Questions about the event times of a batch's rows."""

    micros: Column
    """The event time of a row (µs)."""
    number: Column | None = None
    """The stream that a row is of, from 0 on; None of one."""
    n_streams: int = 1
    before: tuple[Sequence[int], Sequence[int]] | None = None
    """If it is asked how far out of order rows are: by stream, the latest event time of the batches
    before (µs; ALWAYS if none was), and the instant before which a row is late (µs)."""

    @property
    def bounds(self) -> tuple[Sequence[int], Sequence[int]]:
        """Bounds before the batch: ``before``, or those of streams without any rows yet."""
        unknown = [ALWAYS] * self.n_streams
        return self.before or (unknown, unknown)

    def span(self) -> list[Column]:
        """Return aggregates for a job to observe; see ``of_span``."""
        return [
            column.alias(f"{name}{stream}")
            for stream in range(self.n_streams)
            for name, column in self._span(stream).items()
        ]

    def of_span(self, observed: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return what ``counted`` returns, of what was observed, if no order is asked for."""
        names = self._span(0)
        return [
            {_NUMBER: stream, _BIN: None, "n_late": 0}
            | {name: observed[f"{name}{stream}"] for name in names}
            for stream in range(self.n_streams)
        ]

    def of_files(
        self, files: BatchFiles | None, columns: Sequence[tuple[int, str | None]]
    ) -> list[dict[str, Any]] | None:
        """Return what ``counted`` returns, of what the files of a batch say; None: they do not.

        They do if all of the batch is asked for: of a part nobody knows here which one it is.

        Args:
            files: of the batch.
            columns: of each stream of these, what it is by number, and its event time there.
        """
        if self.before is not None or files is None or len(files.streams) != len(columns):
            return None
        counts = []
        for place, (number, column) in enumerate(columns):
            span = None if column is None else files.span(place, column)
            if span is None:
                return None
            counts.append(_of_span(number, span))
        return counts

    def of_tasks(self, span: Span) -> list[dict[str, Any]]:
        """Return what ``counted`` returns of one stream, if no order is asked for."""
        return [_of_span(0, span)]

    def _span(self, stream: int) -> dict[str, Column]:
        if self.number is None:
            return _span(F.lit(1), self.micros)
        is_own = self.number == stream
        return _span(F.when(is_own, 1), F.when(is_own, self.micros))


def _of_span(number: int, span: Span) -> dict[str, Any]:
    return {_NUMBER: number, _BIN: None, "n_late": 0, **asdict(span)}


@runtime_checkable
class Looking(Protocol):
    """An operator that may look at the event times of a batch before the batch is answered."""

    ready_counts: Sequence[Any] | None
    """What ``counted`` returns of the batch, if somebody else has looked."""

    @property
    def looks(self) -> bool:
        """Whether it looks at the batch that is being laid, in a job for that alone."""

    @property
    def asks(self) -> Asked:
        """Questions about the rows that it is laid over."""


def counted(df: DataFrame, asked: Asked) -> list[Row]:
    """Return counts of the rows of a batch by stream, and by how far out of order they are."""
    number, micros = asked.number, asked.micros
    groups = [] if number is None else [number.alias(_NUMBER)]
    n_late, columns = F.lit(0), [F.lit(0).alias(_NUMBER)] if number is None else []
    if asked.before is None:
        columns.append(F.lit(None).alias(_BIN))
    else:
        latest, low = (_of_stream(instants, number, micros) for instants in asked.before)
        span = F.when(micros < latest, latest - micros)
        groups.append(F.floor(F.log2(span) * F.lit(BINS_PER_OCTAVE)).alias(_BIN))
        n_late = F.count(F.when(micros < low, 1))
    spans = [column.alias(name) for name, column in _span(F.lit(1), micros).items()]
    return df.groupBy(*groups).agg(*columns, n_late.alias("n_late"), *spans).collect()


def counted_together(
    df: DataFrame, asked: Mapping[int, Asked], places: Mapping[int, str]
) -> dict[int, list[dict[str, Any]]]:
    """Return what ``counted`` returns of several parts of the rows, in one job.

    Args:
        df: the rows of all parts.
        asked: what is asked of each part, by its number.
        places: the column of each that has its rows, and is NULL in those of others.
    """
    names = [f"{_LOOKED}{part}" for part in asked]
    rows = df.select(*(F.col(places[part]).alias(n) for part, n in zip(asked, names, strict=True)))
    firsts: dict[int, int] = {}
    n_streams = 0
    # One by one, as parts have columns of equal names.
    for name, (part, part_asked) in zip(names, asked.items(), strict=True):
        firsts[part], first = n_streams, F.lit(n_streams)
        n_streams += part_asked.n_streams
        number = first if part_asked.number is None else first + part_asked.number
        looked = F.struct(number.alias(_NUMBER), part_asked.micros.alias(_MICROS))
        column = F.when(F.col(name).isNotNull(), looked).alias(name)
        rows = rows.select("*", f"{name}.*").select(*(n for n in names if n != name), column)
    number, micros = (
        F.coalesce(*(F.col(f"{name}.{field}") for name in names)) for field in (_NUMBER, _MICROS)
    )
    rows = rows.select(number.alias(_NUMBER), micros.alias(_MICROS)).where(f"{_NUMBER} IS NOT NULL")
    before = None
    if any(part_asked.before is not None for part_asked in asked.values()):
        latest, low = zip(*(part_asked.bounds for part_asked in asked.values()), strict=True)
        before = [*chain(*latest)], [*chain(*low)]
    counts = counted(rows, Asked(F.col(_MICROS), F.col(_NUMBER), n_streams, before))
    return {
        part: [
            {**row.asDict(), _NUMBER: row[_NUMBER] - first}
            for row in counts
            if 0 <= row[_NUMBER] - first < asked[part].n_streams
        ]
        for part, first in firsts.items()
    }


def disorders(counts: Iterable[Any]) -> dict[int, Disorder]:
    """Return the disorder of each stream, by number, of what ``counted`` returned."""
    by_stream: dict[int, Disorder] = {}
    for row in counts:
        if row["latest"] is None:
            continue
        bins = {} if row[_BIN] is None else {int(row[_BIN]): int(row["n_timed"])}
        span = int(row["earliest"]), int(row["latest"])
        part = Disorder(int(row["n_timed"]), int(row["n_late"]), *span, bins)
        by_stream[row[_NUMBER]] = by_stream.get(row[_NUMBER], Disorder()).merge(part)
    return by_stream


def _of_stream(instants: Sequence[int], number: Column | None, micros: Column) -> Column:
    """Return the instant of a row's stream (µs).

    An array that is asked for a place which only the row knows stays an array: Spark would compile
    a number into the statement, and so the statement of each batch anew.
    """
    instant_array = F.array(*[F.lit(max(instant, ALWAYS + 1)) for instant in instants])
    return F.get(instant_array, F.when(micros.isNotNull(), F.lit(0) if number is None else number))


def _span(row: Column, micros: Column) -> dict[str, Column]:
    """Return aggregates of rows and their event times (µs), both NULL of rows of others."""
    return {
        "n_rows": F.count(row),
        "n_timed": F.count(micros),
        "earliest": F.min(micros),
        "latest": F.max(micros),
    }


LATE_FRAC = 0.005
"""Share of late rows among those of a stream that is warned of."""

MOST_MISSED = 2
"""Late rows that are not warned of, as a multiple of those that a learned share allows."""

FEW_ROWS = 10
"""Late rows that are not warned of, whatever their share."""


def warned_of_late(
    stream: str,
    n_late: int,
    n_rows: int,
    outcome: str,
    share: float | None = None,
    delays: Callable[[], NDArray[np.int64]] = lambda: np.empty(0, np.int64),
    lateness_us: int = 0,
) -> bool:
    """Warn of late rows if they are many, and return whether they are.

    Args:
        stream: their stream.
        n_late: how many there are so far.
        n_rows: rows of the stream so far.
        outcome: what has become of them ("not joined").
        share: of rows that a lateness that is learned is to hold ((0, 1)); None if it was given.
        delays: returns how far each row was behind the watermark (µs, ascending).
        lateness_us: the lateness that the stream has (µs).
    """
    allowed = 0.0 if share is None else 1 - share
    if n_late < max(FEW_ROWS, max(LATE_FRAC, MOST_MISSED * allowed) * n_rows):
        return False
    longer = _would_hold(delays, lateness_us)
    if share is not None:
        more = f"learned {100 * (1 - allowed / 10):.9g} %"
        longer = f"lateness='{more}' of the stream waits for more of them"
    msg = (
        f"{n_late:,} of {n_rows:,} rows of {stream!r} came too late and were {outcome}: "
        f"run.late_rows({stream!r}) has them; {longer}. Spark reads files by modification time; "
        f"if that is not the order of event time, give a larger lateness, or read all files in one "
        f"batch"
    )
    warnings.warn(msg, LateRowsWarning, stacklevel=2)
    return True


def _would_hold(delays: Callable[[], NDArray[np.int64]], lateness_us: int) -> str:
    """Name the lateness that would have held 99 % of the late rows, and the one for all."""
    sorted_us = np.empty(0, np.int64)
    with contextlib.suppress(OSError, pa.ArrowInvalid):  # the warning works without it
        sorted_us = delays()
    if not sorted_us.size:
        return "a longer lateness of the stream waits for them"
    needed = lateness_us + sorted_us[[-(-99 * sorted_us.size // 100) - 1, -1]]
    most, all_ = (interval_text(int(us)) for us in needed)
    if most == all_:
        return f"lateness='{all_}' would have held all of them"
    return f"lateness='{most}' would have held 99 % of them, lateness='{all_}' all"


def interval_text(us: int) -> str:
    """Return an interval of at least a length (µs), rounded up to two digits or more.

    >>> interval_text(5_400_000_001), interval_text(90_000_000), interval_text(1)
    ('91 minutes', '90 seconds', '1 millisecond')
    """
    names = ("day", "hour", "minute", "second", "millisecond")
    unit = next((name for name in names if us >= 10 * UNITS[name]), "millisecond")
    number = -(-us // UNITS[unit])
    return f"{number} {unit}{'' if number == 1 else 's'}"


LIMITS = ("maxFilesPerTrigger", "maxBytesPerTrigger")
"""Options of Spark's file source that cut the files that exist into several batches."""


def warn_without_lateness(operators: Sequence[Operator], source: DataFrame) -> None:
    """Say in one sentence what is late of streams that were given no lateness, and the way out.

    Args:
        operators: of the run that starts.
        source: the rows that it reads.
    """
    for operator in operators:
        if not operator.without_lateness:
            continue
        names = [repr(name) for name in operator.without_lateness]
        those = f"stream {names[0]} has"
        if len(names) > 1:
            those = f"streams {', '.join(names[:-1])} and {names[-1]} have"
        kept = next(
            (name for name in operator.keeps_late if name in operator.without_lateness), None
        )
        msg = (
            f"{those} no lateness: a row is late, and left out, if an earlier batch had a later "
            f"row of its stream; lateness='1 minute' beside time='…' waits for such rows, and "
            f"run.late_rows({kept or operator.keeps_late[0]!r}) has those that were left out"
        )
        if limit := _limit_of(source):
            msg += f"; without {limit} all files that exist are one batch, in which no row is late"
        warnings.warn(msg, LatenessWarning, stacklevel=own_frames())


def _limit_of(source: DataFrame) -> str:
    """Return the option by which Spark cuts the files of a stream into batches; empty if none."""
    with contextlib.suppress(Exception):  # it is a hint only, from inside Spark
        options = stream_options(source)
        return next((name for name in LIMITS if name.lower() in options), "")
    return ""


def warn_of_unbounded_state(query: str, operators: Iterable[Operator]) -> None:
    """Warn once for each part of the state that grows without a bound.

    Args:
        query: name of the query.
        operators: the operators of the query.
    """
    for state in dict.fromkeys(state for operator in operators for state in operator.unbounded):
        msg = f"query {query!r}: {state.grows}; {state.bounds}"
        warnings.warn(msg, UnboundedStateWarning, stacklevel=own_frames())


@dataclass(frozen=True, slots=True)
class ResultClock:
    """The clock of results that are given when their instants are over: none of them is late.

    Such are those of aggregates and, but for a span by which a column lags behind, of joins.
    """

    clock: Clock
    """The clock of the rows that they are results of."""
    lag: int = 0
    """How far results may be behind that (µs)."""
    offset: int = 0
    """See ``Clock``."""

    @property
    def before(self) -> int:
        """See ``Clock``."""
        return earlier(self.clock.before, self.lag)

    @property
    def after(self) -> int:
        """See ``Clock``."""
        return earlier(self.clock.after, self.lag)

    @property
    def is_idle(self) -> bool:
        """See ``Clock``."""
        return self.clock.is_idle

    @property
    def has_late(self) -> bool:
        """That no result is late; see ``Clock``."""
        return False

    def asked(self, runs_ahead: Callable[[], bool] | None = None) -> None:  # noqa: ARG002
        """Take note that an operator asks; see ``Clock``. Others have asked in a batch before."""
        self.clock.asked()


@dataclass(frozen=True, slots=True)
class UnionClock:
    """The clock of the rows of several parts: it is where the one that is behind all others is.

    Args:
        clocks: the clocks of the parts, with equal offsets.
    """

    clocks: tuple[Clock, ...]

    @property
    def leaves(self) -> tuple[Clock, ...]:
        """The clocks of all parts, of those of parts that are unions, too."""
        parts = (
            clock.leaves if isinstance(clock, UnionClock) else (clock,) for clock in self.clocks
        )
        return tuple(leaf for clocks in parts for leaf in clocks)

    @property
    def before(self) -> int:
        """See ``Clock``."""
        return min(clock.before for clock in self.clocks)

    @property
    def after(self) -> int:
        """See ``Clock``."""
        return min(clock.after for clock in self.clocks)

    @property
    def offset(self) -> int:
        """See ``Clock``."""
        return self.clocks[0].offset

    @property
    def is_idle(self) -> bool:
        """See ``Clock``."""
        return all(clock.is_idle for clock in self.clocks)

    @property
    def has_late(self) -> bool:
        """See ``Clock``."""
        return any(clock.has_late for clock in self.clocks)

    def asked(self, runs_ahead: Callable[[], bool] | None = None) -> None:  # noqa: ARG002
        """Take note that an operator asks; see ``Clock``. No job is one over all parts."""
        for clock in self.clocks:
            clock.asked()


MICROS = "__micros"
"""The column of the event time of rows (µs)."""


@dataclass(frozen=True, slots=True)
class LateRows:
    """Writes late rows; goes to workers."""

    place: StatePlace
    batch_id: int
    stream: str
    low: int
    """Watermark: rows before it are late (µs)."""

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of a partition as a file, and return its name and their number."""
        arrived = [batch for batch in batches if batch.num_rows]
        if not arrived:
            return
        table = pa.Table.from_batches(arrived)
        starts = table[MICROS].to_numpy()
        rows = table.drop_columns([MICROS])
        file_key = self.batch_id, task_ids()[0], self.stream
        file = write_late_table(self.place, *file_key, rows, starts, self.low)
        yield pa.RecordBatch.from_pydict({"file": [file], "n": [table.num_rows]})
