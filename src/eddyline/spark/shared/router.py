"""Sink router of queries that run together.

Each query has a sink, fed by one pass over the rows. A shared scan says of each row which queries
it is of (``PLACES``). The router keeps the rows of a micro-batch once (``SinkRouter.write``) and
gives each sink its own: files that are alike by one job (``_write_files``), rows that stay in
memory, or are few, out of one table (``_write_together``), all else by a job for each sink. Where
the driver holds the results, no job runs: each sink takes its part of the table (``_write_table``).
A query leaves between two micro-batches.
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

from eddyline.lane.results import Picked, WriterPerQuery, by_place, rows_by_place
from eddyline.spark.analysis import frame_of, table_schema
from eddyline.spark.operator import PREFIX
from eddyline.spark.projection import picked_columns
from eddyline.spark.session import is_ansi
from eddyline.spark.shared.scans import PLACES
from eddyline.spark.sinks.files import FileSink
from eddyline.spark.sinks.sinks import MemorySink, takes_tasks
from eddyline.sql.functions import CASTS, SAFE, STRICT
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from eddyline.spark.operator import Laid
    from eddyline.spark.query import Query
    from eddyline.spark.sinks.sinks import Sink

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
    picked: Picked | None = None
    """Its output columns, where its sink takes a table and none has to be computed."""
    schema: StructType | None = None
    """The schema of these, where its sink takes a table."""
    source: StructType | None = None
    """The schema of the rows of all queries, where the driver may hold these as a table."""

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
    if not getattr(sink, "takes_arrow", False):
        return member
    bare = rows.drop(PLACES)
    like = bare.selectExpr(*projections)
    member.schema = like.schema
    if may_be_table:
        member.source = bare.schema
        member.picked = picked_columns(
            projections, bare.schema, like, ansi=is_ansi(like.sparkSession)
        )
    columns = [name for name in rows.columns if name != PLACES]
    names = [name.lower() for name in columns]
    if len(set(names)) < len(names):
        return member
    if all(map(_is_plain, projections)):
        every = [quoted(name) for name in columns]
        member.texts = tuple(
            text
            for projection in projections
            for text in (every if projection == "*" else [projection])
        )
        member.fields = tuple(
            # The type is what Spark returns; a table has it once there are rows.
            (field.name, field.nullable)
            for field in like.schema.fields
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
        self.members = {member.name: member for member in members}
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
        """Whether all sinks take their part of a table, if Spark computes columns of some."""
        members = tuple(self.members.values())  # one may leave meanwhile
        return all(member.source is not None for member in members)

    def takes_tasks(self, spark: SparkSession) -> bool:
        """Whether tasks write for all sinks."""
        members = tuple(self.members.values())
        return all(
            member.picked is not None and takes_tasks(member.sink, member.schema, spark)
            for member in members
        )

    def begin(self, *, continues: bool) -> None:
        """Let the sinks get ready."""
        self.begins()
        for member in self.members.values():
            member.sink.begin(continues=continues)

    def write(self, results: Laid, spark: SparkSession, batch_id: int) -> Callable[[float], int]:
        """Write the rows of one micro-batch, each where the queries of its ``PLACES`` want it."""
        with self.lock:
            placed = [(place, self.members.get(name)) for place, name in enumerate(self.names())]
            here = [(place, member) for place, member in placed if member is not None]
            for _, member in here:
                member.n_kept = None
            self.by_tasks = results.tasks is not None
            if results.tasks is not None:
                self._write_by_tasks(results, spark, here, batch_id)
            elif results.table is not None:
                self._write_table(results.table, spark, here, batch_id)
            else:
                self._write_rows(results.df, here, batch_id, are_few=results.is_local)
            self.last_batch = batch_id
            self.kept_by = {
                member.name: member.n_kept for _, member in here if member.n_kept is not None
            }
            n_kept = sum(self.kept_by.values())
            return lambda _timeout_s: n_kept

    def _write_rows(
        self,
        rows: DataFrame,
        members: list[tuple[int, Member]],
        batch_id: int,
        *,
        are_few: bool,
    ) -> None:
        """Give each sink its part of rows of Spark's; few rows may come home for any sink."""
        apart: list[tuple[int, Member]] = []
        together: list[tuple[int, Member]] = []
        for place, member in members:
            comes = member.texts is not None and (are_few or isinstance(member.sink, MemorySink))
            (together if comes else apart).append((place, member))
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
        own_rows = rows_by_place(table[PLACES])
        table = table.drop_columns([PLACES])
        for place, member in members:
            if member.name not in self.members:
                continue  # stopped by the sink of another
            numbers = own_rows.get(place, np.zeros(0, np.int64))
            part = _columns_of(member, table.take(pa.array(numbers)), spark)
            sink: Any = member.sink
            sink.write_arrow(part, member.schema, spark, batch_id)
            member.n_kept = len(numbers)

    def _write_by_tasks(
        self,
        results: Laid,
        spark: SparkSession,
        members: list[tuple[int, Member]],
        batch_id: int,
    ) -> None:
        """Let tasks write each sink its part of their results."""
        sinks: dict[int, Any] = {place: member.sink for place, member in members}
        writers = {}
        for place, member in members:
            assert member.picked is not None
            make_writer = sinks[place].result_writer(member.schema, spark, batch_id)
            writers[place] = member.picked, make_writer
        make_writer = partial(WriterPerQuery, writers, PLACES)
        assert results.tasks is not None
        schema = table_schema(spark, results.df.schema)
        receipts = by_place(results.tasks.write(make_writer, schema))
        for place, member in members:
            if member.name not in self.members:
                continue  # stopped by the sink of another
            its_receipts = receipts.get(place, [])
            sinks[place].commit([what for what, _ in its_receipts], member.schema, spark, batch_id)
            member.n_kept = sum(n_rows for _, n_rows in its_receipts)

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
            filled = _filled(kept)
            written = set()
            for members in _with_files_alike(apart, filled, batch_id):
                _write_files(kept, members, batch_id)
                written |= {member.name for _, member in members}
            for place, member in apart:
                if member.name not in self.members:
                    continue  # stopped by the sink of another
                if member.name not in written:
                    part = _part(kept, place) if place in filled else kept.limit(0)
                    member.sink.write(_own(part).selectExpr(*member.projections), batch_id)
                member.n_kept = filled.get(place, 0)
            if together:
                _write_together(kept, together, batch_id)
        finally:
            kept.unpersist()


def _columns_of(member: Member, rows: pa.Table, spark: SparkSession) -> pa.Table:
    """Return the output columns of a query over its rows; Spark computes what is not picked."""
    if member.picked is not None:
        return member.picked(rows)
    assert member.source is not None
    assert member.schema is not None
    if not rows.num_rows:
        return table_schema(spark, member.schema).empty_table()
    return frame_of(spark, rows, member.source).selectExpr(*member.projections).toArrow()


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
    its_place = F.lit(place).cast(_RANGED)
    within = (its_place >= F.col(_LEAST)) & (its_place <= F.col(_MOST))
    return kept.where(within & F.arrays_overlap(F.col(PLACES), F.array(F.lit(place))))


def _own(rows: DataFrame) -> DataFrame:
    """Return rows without what tells whose they are."""
    return rows.drop(PLACES, _LEAST, _MOST)


def _with_files_alike(
    members: list[tuple[int, Member]], filled: Mapping[int, int], batch_id: int
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
        if place in filled or sink.tells_columns(batch_id):
            folder = sink.path.rpartition("/")[0]
            key = (member.projections, sink.kind, repr(sorted(sink.options.items())), folder)
            alike.setdefault(key, []).append((place, member))
    return [group for group in alike.values() if len(group) > 1]


def _write_files(kept: DataFrame, members: list[tuple[int, Member]], batch_id: int) -> None:
    """Write the files of several queries by one job; each sink takes its own."""
    sinks = {place: member.sink for place, member in members}
    first = members[0][1]
    assert isinstance(first.sink, FileSink)
    columns = [quoted(name) for name in _own(kept).columns]
    texts = [
        text
        for projection in first.projections
        for text in (columns if projection == "*" else [projection])
    ]
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
        _only_for(places, text).alias(f"c{number}")
        for number, (text, places) in enumerate(wanted.items())
    ]
    table = rows.select(F.col(PLACES), *columns).toArrow()
    row_numbers = rows_by_place(table.column(0))
    positions = {text: index for index, text in enumerate(wanted, 1)}
    for place, member in members:
        taken = row_numbers.get(place, np.zeros(0, np.int64))
        part = table.select([positions[text] for text in member.texts or ()]).take(taken)
        sink: Any = member.sink
        own_rows = _typed(part, member.fields)
        sink.write_arrow(own_rows, member.schema, rows.sparkSession, batch_id)
        member.n_kept = len(taken)


_NAME = re.compile(r"`(?:[^`]|``)+`|[^\W\d]\w*")
"""A column and nothing else."""


def _only_for(places: list[int], text: str) -> Column:
    """Return an output column, evaluated for the rows of its queries alone: it may raise."""
    if _NAME.fullmatch(text):
        return F.expr(text)
    its_own: Any = F.arrays_overlap(F.col(PLACES), F.array(*map(F.lit, places)))
    return F.when(its_own, F.expr(text))


def _typed(table: pa.Table, fields: tuple[tuple[str, bool], ...]) -> pa.Table:
    """Return a table with other names, of columns that may be NULL or not."""
    typed = [
        pa.field(name, column.type, nullable=nullable)
        for (name, nullable), column in zip(fields, table.schema, strict=True)
    ]
    return pa.Table.from_arrays(table.columns, schema=pa.schema(typed))
