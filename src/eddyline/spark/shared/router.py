"""The sink router of queries that run together: a sink for each, from one pass over the rows.

A shared scan says of each row which queries it is of (``PLACES``). The router keeps the rows of a
micro-batch once (``SinkRouter.write``) and gives each sink its own: files that are alike by one job
(``_write_files``), rows that stay in memory out of one table (``_write_together``), all else by a
job for each sink. Where the driver holds the results, no job runs: each sink takes its part of the
table (``_write_table``). A query leaves between two micro-batches.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from eddyline.spark.analysis import arrow_schema
from eddyline.spark.operator import PREFIX
from eddyline.spark.projection import PlainColumns
from eddyline.spark.shared.scans import PLACES
from eddyline.spark.sinks.files import FileSink
from eddyline.spark.sinks.sinks import MemorySink
from eddyline.spark.task_results import GIVEN, N_ROWS
from eddyline.sql.functions import CASTS, SAFE, STRICT
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from eddyline.spark.operator import Laid
    from eddyline.spark.query import Query
    from eddyline.spark.sinks.sinks import Sink
    from eddyline.spark.task_results import TaskEnd, TaskResults

_CALL = re.compile(r"([A-Za-z_]\w*)\s*\(")
_WORDS = {"cast", "try_cast", "coalesce", "if", "nullif", "in", "and", "or", "not", "case"}
_HARMLESS = {*SAFE, *STRICT, *CASTS, *_WORDS}
"""Words that may stand before a parenthesis in an expression that the JVM evaluates."""


@dataclass
class Member:
    """One of several queries that run together."""

    query: Query
    sink: Sink
    projections: tuple[str, ...]
    """Its output columns over the rows of all queries, as SQL."""
    n_kept: int | None = None
    """Rows of the last micro-batch that were its own; None if it was not there."""
    texts: tuple[str, ...] | None = None
    """Its output columns, where they can be taken out of one table of all queries' rows."""
    fields: tuple[tuple[str, bool], ...] = ()
    """Names of the output columns, and whether they may be NULL."""
    plain: PlainColumns | None = None
    """Its output columns, where its sink takes a table and none has to be computed."""
    schema: StructType | None = None
    """The schema of these."""

    @property
    def name(self) -> str:
        """The query's name."""
        return self.query.name


def member_of(
    query: Query,
    sink: Sink,
    projections: tuple[str, ...],
    rows: DataFrame,
    *,
    may_be_table: bool,
) -> Member:
    """Return a query as one of several, whose rows go to a sink.

    Args:
        query: the query.
        sink: its sink.
        projections: its output columns over the rows of all queries, as SQL.
        rows: a DataFrame with the columns of these, for analysis only.
        may_be_table: whether the driver may hold these rows as a table.
    """
    member = Member(query, sink, projections)
    if may_be_table and getattr(sink, "takes_arrow", False):
        own = rows.drop(PLACES)
        like = own.selectExpr(*projections)
        member.plain = PlainColumns.of(projections, own.schema, like)
        member.schema = like.schema
    columns = [name for name in rows.columns if name != PLACES]
    names = [name.lower() for name in columns]
    if not isinstance(sink, MemorySink) or len(set(names)) < len(names):
        return member
    if all(map(_is_plain, projections)):
        every = [quoted(name) for name in columns]
        member.texts = tuple(
            text for each in projections for text in (every if each == "*" else [each])
        )
        member.fields = tuple(
            # The type is what Spark returns; a table has it once there are rows.
            (each.name, each.nullable)
            for each in rows.selectExpr(*projections).schema.fields
        )
    return member


def _is_plain(text: str) -> bool:
    """Return whether an output column may be evaluated within a CASE.

    Spark evaluates functions in Python for all rows, whatever stands around them.
    """
    calls = {name.lower() for name in _CALL.findall(text)}
    return text == "*" or (not text.rstrip().endswith("*") and calls <= _HARMLESS)


class SinkRouter:
    """A sink for each of several queries; an ``Outlet``."""

    takes_all = False
    """Those that are stopped take no more rows."""
    calls_user = False

    def __init__(self, members: Iterable[Member]) -> None:
        self.members = {each.name: each for each in members}
        self.names: Callable[[], Sequence[str]] = tuple
        """Returns the queries by their places in the micro-batch that is written."""
        self.begins: Callable[[], None] = lambda: None
        """Called once the run has locked its checkpoint."""
        self.lock = threading.RLock()
        """Held while a micro-batch is written: a query leaves between two of them."""
        self.last_batch = -1
        """The last micro-batch that was written."""
        self.kept_by: Mapping[str, int] = {}
        """Rows of the last micro-batch by query."""
        self.by_tasks = False

    @property
    def takes_arrow(self) -> bool:
        """Whether all sinks take their part of a table."""
        members = tuple(self.members.values())  # one may leave meanwhile
        return all(member.plain is not None for member in members)

    @property
    def takes_tasks(self) -> bool:
        """Whether all sinks take the results of tasks."""
        sinks: list[Any] = [member.sink for member in tuple(self.members.values())]
        return self.takes_arrow and all(sink.takes_tasks for sink in sinks)

    def begin(self, *, continues: bool) -> None:
        """Let the sinks get ready."""
        self.begins()
        for each in self.members.values():
            each.sink.begin(continues=continues)

    def write(self, results: Laid, spark: SparkSession, batch_id: int) -> Callable[[float], int]:
        """Write the rows of one micro-batch, each where the queries of its ``PLACES`` want it."""
        df = results.df
        with self.lock:
            found = [(place, self.members.get(name)) for place, name in enumerate(self.names())]
            here = [(place, each) for place, each in found if each is not None]
            for _, each in here:
                each.n_kept = None
            self.by_tasks = False
            if results.tasks is not None:
                self.by_tasks = self._write_tasks(results.tasks, spark, here, batch_id)
                if not self.by_tasks:
                    df = results.tasks.to_df(df.schema, arrow_schema(spark, df.schema))
            if results.table is not None:
                self._write_table(results.table, spark, here, batch_id)
            elif not self.by_tasks:
                self._write_rows(df, here, batch_id)
            self.last_batch = batch_id
            self.kept_by = {each.name: each.n_kept for _, each in here if each.n_kept is not None}
            n_kept = sum(self.kept_by.values())
            return lambda _timeout_s: n_kept

    def _write_rows(
        self, rows: DataFrame, members: list[tuple[int, Member]], batch_id: int
    ) -> None:
        """Give each sink its part of rows of Spark's."""
        apart = [(place, each) for place, each in members if each.texts is None]
        together = [(place, each) for place, each in members if each.texts is not None]
        if apart:
            self._write_apart(rows, apart, together, batch_id)
        else:
            _write_together(rows, together, batch_id)

    def _write_table(
        self,
        table: pa.Table,
        spark: SparkSession,
        members: list[tuple[int, Member]],
        batch_id: int,
    ) -> None:
        """Give each sink its part of the results, which the driver holds."""
        rows_by_place = _rows_by_place(table[PLACES])
        table = table.drop_columns([PLACES])
        for place, member in members:
            if member.name not in self.members:
                continue  # stopped by the sink of another
            assert member.plain is not None
            numbers = rows_by_place.get(place, np.zeros(0, np.int64))
            part = member.plain.picked(table.take(pa.array(numbers)))
            sink: Any = member.sink
            sink.write_arrow(part, member.schema, spark, batch_id)
            member.n_kept = len(numbers)

    def _write_tasks(
        self,
        results: TaskResults,
        spark: SparkSession,
        members: list[tuple[int, Member]],
        batch_id: int,
    ) -> bool:
        """Let tasks give each sink its part of their results; False if one takes none of them."""
        sinks: dict[int, Any] = {place: member.sink for place, member in members}
        ends = {}
        for place, member in members:
            end = sinks[place].task_end(member.schema, spark, batch_id)
            if end is None or member.plain is None:
                return False
            ends[place] = (member.plain, end)
        given = results.run(partial(_EndOfEach, ends))
        by_place: dict[int, list[tuple[bytes, int]]] = {}
        for what, n_rows in zip(given[GIVEN].to_pylist(), given[N_ROWS].to_pylist(), strict=True):
            place = int.from_bytes(what[:_PLACE_BYTES])
            by_place.setdefault(place, []).append((what[_PLACE_BYTES:], n_rows))
        for place, member in members:
            if member.name not in self.members:
                continue  # stopped by the sink of another
            own = by_place.get(place, [])
            given_here = [what for what, _ in own]
            sinks[place].take_given(given_here, member.schema, spark, batch_id)
            member.n_kept = sum(n_rows for _, n_rows in own)
        return True

    def _write_apart(
        self,
        rows: DataFrame,
        apart: list[tuple[int, Member]],
        together: list[tuple[int, Member]],
        batch_id: int,
    ) -> None:
        """Keep the rows of all queries, and let each sink have its own by a job of its own."""
        kept = _ranged(rows).persist()
        try:
            found = _filled(kept)
            written = set()
            for members in _with_files_alike(apart, found, batch_id):
                _write_files(kept, members, batch_id)
                written |= {member.name for _, member in members}
            for place, member in apart:
                if member.name not in self.members:
                    continue  # stopped by the sink of another
                if member.name not in written:
                    part = _part(kept, place) if place in found else kept.limit(0)
                    member.sink.write(_own(part).selectExpr(*member.projections), batch_id)
                member.n_kept = found.get(place, 0)
            if together:
                _write_together(kept, together, batch_id)
        finally:
            kept.unpersist()


_PLACE_BYTES = 4
"""Bytes of the place before what the end of a task gives for one query."""


class _EndOfEach:
    """Gives each query its part of the results of a task; a ``TaskEnd``.

    Args:
        ends: by place, the output columns of a query and what makes the end for its sink.
    """

    def __init__(self, ends: Mapping[int, tuple[PlainColumns, Callable[[], TaskEnd]]]) -> None:
        self._ends = ends
        self._made: dict[int, TaskEnd] = {}

    def add(self, table: pa.Table) -> Iterator[tuple[bytes, int]]:
        """Hand over the rows of each query that has some."""
        rows_by_place = _rows_by_place(table[PLACES])
        table = table.drop_columns([PLACES])
        for place, numbers in rows_by_place.items():
            if place not in self._ends:
                continue  # of a query that was stopped
            plain, make = self._ends[place]
            if place not in self._made:
                self._made[place] = make()
            own = plain.picked(table.take(pa.array(numbers)))
            yield from self._marked(place, self._made[place].add(own))

    def close(self) -> Iterator[tuple[bytes, int]]:
        """Finish with what the ends hold."""
        for place, end in self._made.items():
            yield from self._marked(place, end.close())

    @staticmethod
    def _marked(place: int, given: Iterator[tuple[Any, int]]) -> Iterator[tuple[bytes, int]]:
        mark = place.to_bytes(_PLACE_BYTES)
        return ((mark + bytes(what), n_rows) for what, n_rows in given)


_PLACE, _LEAST, _MOST = f"{PREFIX}_place", f"{PREFIX}_least", f"{PREFIX}_most"
"""The temporary columns of one of the places of a row, and of the least and the largest."""

_RANGED = "decimal(10, 0)"
"""Their type: Spark hands such constants to the code that it generates, where it writes integers
into it, so that the code of one query serves all and is compiled once."""

_COMPRESSED = "spark.sql.inMemoryColumnarStorage.compressed"


def _ranged(rows: DataFrame) -> DataFrame:
    """Return rows with their least and largest place: rows are kept with the ranges of blocks."""
    least, most = F.array_min(PLACES).cast(_RANGED), F.array_max(PLACES).cast(_RANGED)
    return rows.withColumns({_LEAST: least, _MOST: most})


def _filled(kept: DataFrame) -> dict[int, int]:
    """Fill the store with the rows of all queries, so that they are evaluated once.

    Returns how many belong to each place. To compress what is kept for seconds costs more than
    twice what it takes to keep it (Spark 4.3).
    """
    conf = kept.sparkSession.conf  # of the stream alone: Spark clones the session for it
    before = conf.get(_COMPRESSED, "true")
    assert before is not None
    conf.set(_COMPRESSED, False)
    try:
        counts = kept.select(F.explode(PLACES).alias("place")).groupBy("place").count()
        return {row["place"]: row["count"] for row in counts.collect()}
    finally:
        conf.set(_COMPRESSED, before)


def _part(kept: DataFrame, place: int) -> DataFrame:
    """Return the rows of a query; blocks that cannot have any of them are not read."""
    own = F.lit(place).cast(_RANGED)
    within = (own >= F.col(_LEAST)) & (own <= F.col(_MOST))
    return kept.where(within & F.arrays_overlap(F.col(PLACES), F.array(F.lit(place))))


def _own(rows: DataFrame) -> DataFrame:
    """Return rows without what tells whose they are."""
    return rows.drop(PLACES, _LEAST, _MOST)


def _with_files_alike(
    members: list[tuple[int, Member]], found: Mapping[int, int], batch_id: int
) -> list[list[tuple[int, Member]]]:
    """Return the queries whose files one job can write, together.

    They have the same output columns, and write files of one kind side by side.
    """
    alike: dict[Any, list[tuple[int, Member]]] = {}
    for place, member in members:
        sink = member.sink
        if type(sink) is not FileSink or sink.n_files is not None:
            continue
        # A first file tells the columns even if it has no rows: the sink itself writes that.
        if place in found or sink.tells_columns(batch_id):
            folder = sink.path.rpartition("/")[0]
            key = (member.projections, sink.kind, repr(sorted(sink.options.items())), folder)
            alike.setdefault(key, []).append((place, member))
    return [each for each in alike.values() if len(each) > 1]


def _write_files(kept: DataFrame, members: list[tuple[int, Member]], batch_id: int) -> None:
    """Write the files of several queries by one job; each sink takes its own."""
    sinks = {place: member.sink for place, member in members}
    first = members[0][1]
    assert isinstance(first.sink, FileSink)
    columns = [quoted(name) for name in _own(kept).columns]
    texts = [text for each in first.projections for text in (columns if each == "*" else [each])]
    rows = kept.withColumn(_PLACE, F.explode(PLACES)).where(F.col(_PLACE).isin([*sinks]))
    staging = first.sink.staging_of(batch_id)
    writer = first.sink.writer(rows.selectExpr(*texts, _PLACE))
    # Nothing of an earlier attempt may stay: its places may have been those of other queries.
    writer = writer.option("partitionOverwriteMode", "static")
    writer.partitionBy(_PLACE).save(f"{first.sink.path}/{staging}")
    for place, sink in sinks.items():
        assert isinstance(sink, FileSink)
        sink.take(f"{first.sink.root}/{staging}/{_PLACE}={place}", batch_id)
    first.sink.files.delete_dir(f"{first.sink.root}/{staging}")


def _write_together(rows: DataFrame, members: list[tuple[int, Member]], batch_id: int) -> None:
    """Bring the rows of all queries home at once, and give each its own."""
    wanted: dict[str, list[int]] = {}
    for place, member in members:
        for text in member.texts or ():
            wanted.setdefault(text, []).append(place)
    columns = [
        _only_for(places, text).alias(f"c{at}") for at, (text, places) in enumerate(wanted.items())
    ]
    table = rows.select(F.col(PLACES), *columns).toArrow()
    own = _rows_by_place(table.column(0))
    at = {text: index for index, text in enumerate(wanted, 1)}
    for place, member in members:
        taken = own.get(place, np.zeros(0, np.int64))
        part = table.select([at[text] for text in member.texts or ()]).take(taken)
        assert isinstance(member.sink, MemorySink)
        own_rows = _typed(part, member.fields)
        member.sink.write_arrow(own_rows, rows.schema, rows.sparkSession, batch_id)
        member.n_kept = len(taken)


_NAME = re.compile(r"`(?:[^`]|``)+`|[^\W\d]\w*")
"""A column and nothing else."""


def _only_for(places: list[int], text: str) -> Column:
    """Return an output column, evaluated for the rows of its queries alone: it may raise."""
    if _NAME.fullmatch(text):
        return F.expr(text)
    its_own: Any = F.arrays_overlap(F.col(PLACES), F.array(*map(F.lit, places)))
    return F.when(its_own, F.expr(text))


def _rows_by_place(lists: pa.ChunkedArray) -> dict[int, Any]:
    """Return the rows of each place, ascending, by the places of each row."""
    whole = pa.concat_arrays(lists.chunks) if lists.num_chunks else pa.array([], lists.type)
    places = whole.flatten().to_numpy(zero_copy_only=False)
    sizes = np.diff(whole.offsets.to_numpy(zero_copy_only=False)) if len(whole) else []
    rows = np.repeat(np.arange(len(whole)), sizes)
    order = np.argsort(places, kind="stable")
    distinct, starts = np.unique(places[order], return_index=True)
    # What lies before the first start is nothing, but there where no row has a place.
    return dict(zip(distinct.tolist(), np.split(rows[order], starts)[1:], strict=True))


def _typed(table: pa.Table, fields: tuple[tuple[str, bool], ...]) -> pa.Table:
    """Return a table with other names, of columns that may be NULL or not."""
    typed = [
        pa.field(name, column.type, nullable=nullable)
        for (name, nullable), column in zip(fields, table.schema, strict=True)
    ]
    return pa.Table.from_arrays(table.columns, schema=pa.schema(typed))
