"""Named relations: streams and tables, and their event time.

A relation is a DataFrame under its name, with the column of its event time, its lateness and its
key. ``checked_relation`` checks what a user gives; ``lateness_rule`` turns the lateness of streams
into the rule that clocks follow.

Event time is µs since 1970. A ``TIMESTAMP`` is an instant. A ``TIMESTAMP_NTZ`` is the reading of a
wall clock, on a time line of its own: its µs are those of the same reading in UTC. Spark's casts
and ``timestampdiff`` read it in the time zone of the session. When clocks go forward, they move the
skipped hour over the next hour. So all SQL over event times comes from ``micros_of`` and
``instant_of``. The event times of one query are all of one type (``check_one_type``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from eddyline.constraints.bounds import LatenessRule
from eddyline.errors import OptionError, QueryError
from eddyline.query.cql import read_window
from eddyline.query.query import LONGEST, SlideWindow, check_span
from eddyline.query.reading import columns_of_stream
from eddyline.query.spans import micros_in
from eddyline.query.steps import ProjectStep
from eddyline.registry import checked_text, unknown
from eddyline.sources.versions import VersionedSource
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import Column, DataFrame

    from eddyline.query.steps import FilterStep, Step

LOCAL = "timestamp_ntz"
"""The type of event times that are readings of a wall clock."""

_EPOCH = "TIMESTAMP_NTZ '1970-01-01 00:00:00'"


def time_type(df: DataFrame, time: str, stream: str) -> str:
    """Return the type of the event time of a stream.

    Raises:
        QueryError: the column is no timestamp.
    """
    kind = dict(df.dtypes)[time]
    if kind in ("timestamp", LOCAL):
        return kind
    msg = f"the event time {time!r} of {stream!r} is of type {kind}; give a timestamp"
    raise QueryError(msg, stream=stream, time=time)


def check_one_type(query: str, streams: Iterable[tuple[str, DataFrame, str | None]]) -> None:
    """Refuse streams whose event times are on different time lines.

    Args:
        query: the name of the query.
        streams: name, rows and event-time column of each; a table has no such column.

    Raises:
        QueryError: both types occur, or a column is no timestamp.
    """
    types = {name: time_type(df, time, name) for name, df, time in streams if time is not None}
    if len({*types.values()}) > 1:
        listed = ", ".join(f"{name!r} ({kind})" for name, kind in types.items())
        msg = (
            f"query {query!r} needs event times of one type, got {listed}; cast the column of one "
            f"stream, such as withColumn('ts', col('ts').cast('timestamp')), which reads wall "
            f"clocks in the time zone of the session"
        )
        raise QueryError(msg, query=query, types=types)


def micros_of(df: DataFrame, time: str, stream: str) -> Column:
    """Return the event time of the rows of a stream (µs).

    Raises:
        QueryError: the column is no timestamp.
    """
    return F.expr(micros_text(df, time, stream))


def micros_text(df: DataFrame, time: str, stream: str) -> str:
    """Return SQL of the same; see ``micros_of``."""
    if time_type(df, time, stream) == LOCAL:
        return local_micros(quoted(time))
    return f"unix_micros({quoted(time)})"


def local_micros(text: str) -> str:
    """Return SQL of the µs from 1970 to a ``timestamp_ntz``, which is in no time zone."""
    seconds = f"CAST(CAST(({text}\n) - {_EPOCH} AS INTERVAL SECOND) AS DECIMAL(20,6))"
    return f"CAST({seconds} * 1000000 AS BIGINT)"


def instant_of(micros: str, *, is_local: bool) -> str:
    """Return SQL that turns µs since 1970 into a timestamp, with or without a time zone."""
    if is_local:
        return f"{_EPOCH} + ({micros}) * INTERVAL '0.000001' SECOND"
    return f"timestamp_micros({micros})"


@dataclass(frozen=True, slots=True)
class Refresh:
    """Refresh: how often a table is read again while queries run."""

    source: VersionedSource
    every_us: int
    """Least time between two looks at its version (µs)."""
    steps: tuple[FilterStep | ProjectStep, ...] = ()
    """The steps over its rows alone."""

    def stepped(self, df: DataFrame) -> DataFrame:
        """Return rows of the table with the steps laid."""
        for step in self.steps:
            if isinstance(step, ProjectStep):
                df = df.selectExpr(*step.projections)
            else:
                for predicate in step.predicates:
                    df = df.where(f"({predicate.text}\n)")
        return df


@dataclass(frozen=True, slots=True)
class Relation:
    """A stream or a table under its name."""

    df: DataFrame
    time: str | None = None
    """Its event-time column; None for a table, whose rows were always there."""
    lateness: str | None = None
    """Most lateness of its rows, such as ``1 minute``, or that it is learned; see ``LEARNED``."""
    key: str | None = None
    """The column of which no two rows have one value while they are in their window."""
    refresh: Refresh | None = None
    """How joins read it again while they run, if it is a table that they do so."""
    system: tuple[Path, ...] | None = None
    """The checkpoints whose runs it tells of, if it is a stream about the system; none: it tells of
    the runs of this process."""

    @property
    def rows(self) -> DataFrame:
        """The rows, with a watermark if their lateness is given.

        Spark has no watermark for a ``TIMESTAMP_NTZ``.
        """
        if self.lateness is None or self.time is None or _is_learned(self.lateness):
            return self.df
        if dict(self.df.dtypes)[self.time] == LOCAL:
            return self.df
        return _watermarked(self.df, self.time, self.lateness)

    def narrowed(
        self,
        queries: Iterable[Sequence[Step]],
        *,
        routes: bool,
        route_by: Sequence[str] | None = None,
    ) -> Relation:
        """Return a stream with the columns that queries over it read, and its event time.

        See ``columns_of_stream``. Spark reads all columns of a micro-batch that is given to a
        function, and once more for each job over it: it cannot see which of them are used.
        """
        columns = self.df.columns
        needed = [
            columns_of_stream(steps, columns, routes=routes, route_by=route_by) for steps in queries
        ]
        if not self.df.isStreaming or None in needed:
            return self
        read = {self.time, *(name for names in needed for name in names or ())}
        kept = [F.col(quoted(name)) for name in columns if name in read]
        return replace(self, df=self.df.select(*kept)) if 0 < len(kept) < len(columns) else self


def check_time(what: str, columns: Iterable[str], time: str | None, lateness: str | None) -> None:
    """Check the event time of a stream.

    Raises:
        QueryError: there is no such column.
        OptionError: there is a lateness without a time.
    """
    if time is not None and time not in (names := list(columns)):
        msg = f"{what}: {unknown('time column', time, names)}"
        raise QueryError(msg, time=time)
    if lateness is not None and time is None:
        msg = f"{what} has a lateness but no time column; add time='…'"
        raise OptionError(msg, lateness=lateness)


def checked_refresh(name: str, source: Any, every: str) -> Refresh:
    """Return how a table is read again.

    Args:
        name: of the table.
        source: what it is read from.
        every: the least time between two looks at its version, such as ``10 minutes``.

    Raises:
        QueryError: it is read from no source that has versions.
        OptionError: ``every`` is no interval.
    """
    text = checked_text(f"refresh of table {name!r}", every)
    micros = micros_in(text)
    check_span(f"refresh {text!r:.60} of table {name!r}", micros, refresh=every)
    if micros is None or micros < 0:
        msg = f"refresh of table {name!r} is an interval such as '10 minutes', got {every!r:.60}"
        raise OptionError(msg, refresh=every)
    if not isinstance(source, VersionedSource):
        msg = (
            f"table {name!r} cannot be refreshed: that needs a source with versions, such as "
            f"el.delta(…) or el.iceberg(…), got {type(source).__name__}"
        )
        raise QueryError(msg, name=name)
    return Refresh(source, micros)


def check_key(what: str, columns: Iterable[str], key: str | None, *, is_made: bool) -> None:
    """Check the key that is declared of a stream.

    Raises:
        QueryError: there is no such column, or the rows are made by a query.
        OptionError: it is no name.
    """
    if key is None:
        return
    if checked_text(f"key of {what}", key) not in (names := list(columns)):
        msg = f"{what}: {unknown('key column', key, names)}"
        raise QueryError(msg, key=key)
    if is_made:
        msg = (
            f"{what} is made by a query, which takes no key; leave out key={key!r}, or declare it "
            f"for a stream that the query reads"
        )
        raise QueryError(msg, key=key)


def checked_relation(what: str, df: DataFrame, time: str | None, lateness: str | None) -> Relation:
    """Return a stream with its event time and lateness.

    Raises:
        QueryError: there is no such column, or it has a lateness and is no timestamp.
        OptionError: there is a lateness without a time, or it is no interval.
    """
    check_time(what, df.columns, time, lateness)
    relation = Relation(df, time, lateness)
    if time is None or lateness is None:
        return relation
    if _is_learned(checked_text(f"lateness of {what}", lateness)):
        _share(lateness, what)
        return relation
    check_span(f"lateness {lateness!r:.60} of {what}", micros_in(lateness), lateness=lateness)
    if time_type(df, time, what) == LOCAL:
        lateness_of(relation, what)
        return relation
    try:
        _watermarked(df, time, lateness)
    except PySparkException as error:
        msg = (
            f"{what}: {time!r} cannot be its time with lateness {lateness!r}, "
            f"which is an interval such as '1 minute': {error}"
        )
        raise OptionError(msg, lateness=lateness) from error
    return relation


def _watermarked(df: DataFrame, time: str, lateness: str) -> DataFrame:
    """Return rows with a watermark.

    Spark parses the name of the column twice, so a name with backticks cannot be quoted.
    """
    if "`" not in time:
        return df.withWatermark(quoted(time), lateness)
    columns = {name: f"c{number}" for number, name in enumerate(df.columns)}
    watermarked = df.toDF(*columns.values()).withWatermark(columns[time], lateness)
    return watermarked.toDF(*columns)


def checked_frame(what: str, value: Any) -> DataFrame:
    """Return a value that is a DataFrame, of a batch or streaming.

    Raises:
        QueryError: it is something else.
    """
    if not hasattr(value, "isStreaming"):
        msg = f"{what} must be a DataFrame, got {value!r:.60}"
        raise QueryError(msg, got=type(value).__name__)
    frame: DataFrame = value
    return frame


def lateness_of(relation: Relation, stream: str) -> int:
    """Return the most lateness of the rows of a stream (µs); 0 if none was given, or it is learned.

    Raises:
        OptionError: it is no interval.
    """
    text = relation.lateness
    if text is None or _is_learned(text):
        return 0
    msg = f"the lateness of {stream!r} is an interval such as '1 minute', got {text!r}"
    try:
        window = read_window(f"RANGE {text}", f"the lateness of {stream!r}")
    except QueryError as error:
        raise OptionError(msg, stream=stream, lateness=text) from error
    if isinstance(window, SlideWindow):
        raise OptionError(msg, stream=stream, lateness=text)
    if window.length == LONGEST:
        msg = f"the lateness of {stream!r} must be finite, got {text!r}"
        raise OptionError(msg, stream=stream, lateness=text)
    return window.length


LEARNED = "learned"
"""Lateness that is learned, of the share HELD or of one behind it: ``learned 99.9 %``."""

HELD = 0.9999
"""Share of the rows of a stream that a learned lateness holds, where none is said."""


def lateness_rule(
    relations: Mapping[str, Relation], streams: Mapping[str, str] | None = None
) -> LatenessRule:
    """Return by how much the rows of streams may be late.

    Args:
        relations: the streams, by the names that the rule gives them.
        streams: their own names where these are other ones.

    Raises:
        OptionError: a lateness is no interval, or the share of one that is learned is none.
    """
    names = streams or {name: name for name in relations}
    allowed = {name: lateness_of(relation, names[name]) for name, relation in relations.items()}
    shares = {
        name: _share(relation.lateness, f"stream {names[name]!r}")
        for name, relation in relations.items()
        if relation.lateness is not None and _is_learned(relation.lateness)
    }
    return LatenessRule(allowed, shares)


def _is_learned(text: str) -> bool:
    return text.strip().lower().startswith(LEARNED)


def _share(text: str, what: str) -> float:
    match = _LEARNED.fullmatch(text)
    share = HELD if match is None or match[1] is None else round(float(match[1]) / 100, 12)
    if match is None or not 0 < share < 1:
        msg = (
            f"a learned lateness of {what} is written 'learned', which holds {HELD:.2%} of the "
            f"rows, or 'learned 99.9 %' with a share between 0 % and 100 %, got {text!r}"
        )
        raise OptionError(msg, lateness=text)
    return share


_LEARNED = re.compile(rf"\s*{LEARNED}(?:\s+(\d+(?:\.\d+)?)\s*%)?\s*", re.IGNORECASE)
