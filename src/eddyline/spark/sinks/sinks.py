"""Sinks, which take the rows of a run.

A sink is one class and one line of ``SINKS``. ``starting`` checks what ``start`` is told of a sink,
and also has its name. A sink's ``write`` is called once per micro-batch, in order, and again with
the same batch id after a failure. What it does twice must come to the same as what it does once.
Rows stay in memory, are printed, go to a function, to files (``files``) or to any data source that
Spark can write to.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from eddyline.errors import OptionError, SourceError
from eddyline.lane.results import BlobWriter
from eddyline.registry import checked_text, look_up
from eddyline.spark.analysis import table_schema, why_unknown
from eddyline.spark.sinks.files import FileSink
from eddyline.spark.sinks.kafka import KafkaSink
from eddyline.spark.sinks.tables import DeltaSink, IcebergSink
from eddyline.spark.starting import GROUP, check_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from eddyline.lane.results import ResultWriter

    BatchWriter = Callable[[DataFrame, int], None]

TAKE_ALL = frozenset(
    {"avro", "csv", "delta", "jdbc", "json", "kafka", "noop", "orc", "parquet", "text"}
)
"""Data sources that write every row; of others it is not known."""

_QUERY_ID = "sql.streaming.queryId"
"""Spark's local property of the id of a streaming query, which its checkpoint keeps."""

CONSOLE_ROWS = 20
"""Rows of a batch that the console shows."""


class Sink(Protocol):
    """Takes the rows of a run, batch by batch."""

    notes: tuple[str, ...]
    """What people who run it should know of it."""
    takes_all: bool
    """Whether each write runs a job that computes every row of the batch. Whoever needs to have
    seen all rows then has them observed by that job; else it asks for them in one of its own."""

    def begin(self, *, continues: bool) -> None:
        """Get ready; called once, before the run starts.

        Args:
            continues: whether the run goes on from a checkpoint.

        Raises:
            SourceError: rows of another run are where this one would write.
        """

    def write(self, df: DataFrame, batch_id: int) -> None:
        """Take the rows of one micro-batch; called again with the same id after a failure."""


class ArrowSink(Sink, Protocol):
    """A sink that also takes Arrow tables from the driver, or from tasks."""

    takes_arrow: bool
    """Whether it does so; depends on its options."""

    def write_arrow(
        self, table: pa.Table, schema: StructType, spark: SparkSession, batch_id: int
    ) -> None:
        """Take the rows of one micro-batch, as ``write`` does.

        Args:
            table: the rows, as ``toArrow`` of a DataFrame returns them.
            schema: the columns of that DataFrame.
            spark: the session of the micro-batch.
            batch_id: the micro-batch.
        """

    def takes_results(self, schema: StructType, spark: SparkSession) -> bool:
        """Whether tasks may write results of a schema, by the settings of a micro-batch."""

    def result_writer(
        self, schema: StructType, spark: SparkSession, batch_id: int
    ) -> Callable[[], ResultWriter]:
        """Return what makes the writer of each task of a micro-batch; see ``lane.results``."""

    def commit(
        self, receipts: Sequence[bytes], schema: StructType, spark: SparkSession, batch_id: int
    ) -> None:
        """Take the results of a micro-batch by the receipts of its tasks."""


def takes_tasks(sink: Sink, schema: StructType | None, spark: SparkSession) -> bool:
    """Return whether tasks may write results of a schema for a sink; of None it is not known."""
    arrow: Any = sink
    return bool(
        schema is not None
        and getattr(sink, "takes_arrow", False)
        and arrow.takes_results(schema, spark)
    )


class _Fresh:
    """A sink that has nothing of earlier runs, or leaves it to a data source."""

    notes: tuple[str, ...] = ()
    takes_all: bool = True

    def begin(self, *, continues: bool) -> None:
        """Do nothing."""


class _InDriver(_Fresh):
    """A sink to which the driver brings all results."""

    takes_arrow = True

    def write_arrow(
        self, table: pa.Table, schema: StructType, spark: SparkSession, batch_id: int
    ) -> None:
        """Take a table; see ``ArrowSink``."""
        raise NotImplementedError

    def takes_results(self, schema: StructType, spark: SparkSession) -> bool:  # noqa: ARG002
        """Whether tasks may send their results: always."""
        return True

    def result_writer(
        self,
        schema: StructType,  # noqa: ARG002
        spark: SparkSession,  # noqa: ARG002
        batch_id: int,  # noqa: ARG002
    ) -> Callable[[], ResultWriter]:
        """Return what packs the results of a task as blobs."""
        return BlobWriter

    def commit(
        self, receipts: Sequence[bytes], schema: StructType, spark: SparkSession, batch_id: int
    ) -> None:
        """Take the results in blobs as one table."""
        tables = [pa.ipc.open_stream(blob).read_all() for blob in receipts]
        empty = table_schema(spark, schema).empty_table()
        self.write_arrow(pa.concat_tables([empty, *tables]), schema, spark, batch_id)


class MemorySink(_InDriver):
    """Arrow tables in the driver's memory, one per batch: for tests, demos and small results."""

    def __init__(self) -> None:
        self.batches: dict[int, pa.Table] = {}

    def write(self, df: DataFrame, batch_id: int) -> None:
        """Keep the batch; one that runs again takes the place of the earlier attempt."""
        self.batches[batch_id] = df.toArrow()

    def write_arrow(
        self,
        table: pa.Table,
        schema: StructType,  # noqa: ARG002
        spark: SparkSession,  # noqa: ARG002
        batch_id: int,
    ) -> None:
        """Keep a table; see ``write``."""
        self.batches[batch_id] = table

    def table(self) -> pa.Table:
        """Return all rows so far, in the order of their batches.

        Raises:
            SourceError: no batch has run yet, so the columns are not known.
        """
        if not self.batches:
            msg = "no batch has run yet; wait for the first, or call await_termination()"
            raise SourceError(msg)
        return pa.concat_tables([self.batches[number] for number in sorted(self.batches)])

    def to_df(self, spark: SparkSession) -> DataFrame:
        """Return all rows so far as a DataFrame."""
        table = self.table()
        # Spark stops reading at the first batch without rows, and loses those that follow.
        full = [batch for batch in table.to_batches() if batch.num_rows]
        return spark.createDataFrame(pa.Table.from_batches(full, table.schema))


class ConsoleSink(_InDriver):
    """Prints the first rows of each batch."""

    def __init__(self) -> None:
        self.console = Console()

    def write(self, df: DataFrame, batch_id: int) -> None:
        """Print the batch, or nothing if it is empty."""
        # All of the rows, as Spark's own console takes them: a limit would end the job.
        self.write_arrow(df.toArrow(), df.schema, df.sparkSession, batch_id)

    def write_arrow(
        self,
        table: pa.Table,
        schema: StructType,  # noqa: ARG002
        spark: SparkSession,  # noqa: ARG002
        batch_id: int,
    ) -> None:
        """Print a table; see ``write``."""
        if table.num_rows == 0:
            return
        shown = Table(*table.column_names, title=f"batch {batch_id}")
        for row in table.slice(0, CONSOLE_ROWS).to_pylist():
            shown.add_row(*(str(value) for value in row.values()))
        if table.num_rows > CONSOLE_ROWS:
            shown.caption = f"only the first {CONSOLE_ROWS} rows"
        self.console.print(shown)


class CallableSink(_Fresh):
    """Hands each batch to a function of the user's: ``function(df, batch_id)``.

    A function may take some of the rows, or none. One that always takes all of them says so by an
    attribute: ``function.takes_all = True``.
    """

    calls_user = True

    def __init__(self, function: BatchWriter) -> None:
        self.function = function
        self.takes_all = getattr(function, "takes_all", False) is True

    def write(self, df: DataFrame, batch_id: int) -> None:
        """Call the function."""
        self.function(df, batch_id)


class FormatSink(_Fresh):
    """Appends each micro-batch to a data source of Spark's, such as ``delta`` or ``kafka``.

    Delta tables are told the ids of the query and of the batch (``txnAppId``, ``txnVersion``), so
    that a batch that runs again after a failure is there once. Other data sources get such a batch
    twice. Rows without a column ``value`` go to Kafka as JSON texts of all their columns.

    Args:
        kind: name of the data source.
        path: where it writes, if that is a path.
        options: of its writer.

    Raises:
        OptionError: the session knows no such data source.
    """

    member = ""
    """The query, if several run together: they have one id of Spark's."""

    def __init__(
        self, kind: str, path: str | Path | None = None, options: Mapping[str, Any] | None = None
    ) -> None:
        self.kind = checked_text("format of the sink", kind)
        self.path = None if path is None else str(path)
        self.options = dict(options or {})
        self.takes_all = kind.lower() in TAKE_ALL
        if kind != "delta":
            self.notes = (f"{kind}: a batch that runs again after a failure is appended once more",)
        _check_known(kind)

    def write(self, df: DataFrame, batch_id: int) -> None:
        """Append the batch."""
        options = self.options
        if self.kind == "delta":
            # The number of a batch means something within one checkpoint alone.
            query = df.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
            writer = f"eddyline {query}{self.member and ' '}{self.member}"
            options = {"txnAppId": writer, "txnVersion": batch_id} | options
        if self.kind == "kafka" and "value" not in df.columns:
            df = df.select(F.to_json(F.struct("*")).alias("value"))
        df.write.format(self.kind).options(**options).mode("append").save(self.path)


def _check_known(kind: str) -> None:
    """Raise OptionError if Spark knows no data source of that name.

    Spark itself looks for one when the first batch is written.
    """
    spark: Any = SparkSession.getActiveSession()
    if spark is not None and (why := why_unknown(spark, kind)):
        msg = (
            f"Spark has no data source {kind!r}: {why} A package is given to the "
            f"session when it starts: el.session(**{{'spark.jars.packages': '…'}})"
        )
        raise OptionError(msg, format=kind)


SINKS: dict[str, Any] = {
    "parquet": FileSink,
    "orc": partial(FileSink, kind="orc"),
    "json": partial(FileSink, kind="json"),
    "csv": partial(FileSink, kind="csv"),
    "format": FormatSink,
    "delta": DeltaSink,
    "iceberg": IcebergSink,
    "memory": MemorySink,
    "console": ConsoleSink,
    "kafka": KafkaSink,
}
"""Sinks by name."""


def sink_of(
    sink: str | BatchWriter,
    path: str | Path | None = None,
    kind: str | None = None,
    options: Mapping[str, Any] | None = None,
    arguments: Mapping[str, Any] | None = None,
    query: str = "",
    member: str = "",
) -> Sink:
    """Return the sink that ``start`` was asked for.

    Args:
        sink: its name, or a function of (df, batch_id).
        path: where it writes, if it writes somewhere.
        kind: name of Spark's data source, for the sink ``format``.
        options: of Spark's writer.
        arguments: others, which only some sinks take.
        query: name of the query.
        member: name of the query, if several run together as one query of Spark's.

    Raises:
        OptionError: an unknown name, a data source that Spark does not know, or arguments that are
            missing or have no use.
    """
    every = {"path": path, "options": options, **(arguments or {})}
    check_sink(sink, {"format": kind, **every})
    if callable(sink):
        return CallableSink(sink)
    taken = {name: value for name, value in every.items() if value is not None}
    taker: Any
    if kind is not None:
        taker = FormatSink(kind, path, options)
    else:
        taker = look_up("sink", SINKS, sink, group=GROUP)(**taken)
    for name, text in (("query", query), ("member", member)):
        if hasattr(taker, name):
            setattr(taker, name, text)
    return cast("Sink", taker)


def folder_of(what: str, path: str | Path) -> Path:
    """Return a folder of this machine, or one that is mounted, by its full path.

    Raises:
        OptionError: it is no path, or the URI of something else.
    """
    if "://" in str(path):
        msg = (
            f"the {what} must be a folder of the driver, such as a mounted one, got the URI "
            f"{str(path)!r}; only state= may be a URI, which all workers reach"
        )
        raise OptionError(msg, got=str(path))
    return Path(path if isinstance(path, Path) else checked_text(what, path)).absolute()


def temporary_folder() -> str:
    """Return a fresh folder for a checkpoint that nobody asked to keep."""
    return tempfile.mkdtemp(prefix="eddyline-")
