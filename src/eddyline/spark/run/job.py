"""The work of a run, and where its results go."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from eddyline.spark.analysis import table_schema
from eddyline.spark.prepared import RowCount
from eddyline.spark.run.observations import PendingMetrics
from eddyline.spark.sinks.sinks import takes_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from eddyline.query.identity import Identity
    from eddyline.report.sections import Node
    from eddyline.runtime.watch import Watched
    from eddyline.spark.operator import Laid, Operator
    from eddyline.spark.prepared import Counted
    from eddyline.spark.sinks.sinks import ArrowSink, Sink
    from eddyline.spark.task_results import TaskResults


class Outlet(Protocol):
    """Takes the rows of a run: one sink, or one for each of several queries."""

    by_tasks: bool
    """Whether tasks wrote the newest batch; see ``task_results``."""

    def begin(self, *, continues: bool) -> None:
        """Get ready; see ``sinks.Sink.begin``."""

    def write(self, results: Laid, spark: SparkSession, batch_id: int) -> Callable[[float], int]:
        """Write the results of a micro-batch, which has a session of its own.

        Returns a function that waits for their number.
        """

    @property
    def takes_all(self) -> bool:
        """Whether each write runs a job over all rows; see ``sinks.Sink.takes_all``."""

    @property
    def calls_user(self) -> bool:
        """Whether a function of the user's gets the rows as a DataFrame."""

    @property
    def takes_arrow(self) -> bool:
        """Whether results may be a table; see ``sinks.ArrowSink``."""

    def takes_tasks(self, spark: SparkSession) -> bool:
        """Whether tasks may write the results of a micro-batch, which has a session of its own."""

    @property
    def kept_by(self) -> Mapping[str, int]:
        """Rows of the last micro-batch by query, of several that run together."""


@dataclass(frozen=True)
class Job:
    """The work of a run: a query and its operators."""

    name: str
    """Of the query; unique among those that run."""
    text: str
    """The query as it was written."""
    identity: Identity
    """A checkpoint belongs to one identity."""
    source: DataFrame
    """The stream."""
    settings: Mapping[str, str]
    """Its options, as texts."""
    operators: Callable[[Path], Sequence[Operator]]
    """Returns the operators, with nothing learned yet; it is told the folder of the checkpoint."""
    state: str | None = None
    """Folder of durable state; in the checkpoint if omitted."""
    steps: tuple[str, ...] = ()
    """Its steps, as lines of a tree."""
    nodes: tuple[Node, ...] = ()
    """The same as a graph."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Name and Spark type of each output column."""
    rename: str = "another name"
    """Advice on choosing another name, for errors."""
    recalls: bool = True
    """Whether plans are taken again where their conditions come again."""
    feeds: Sequence[Feed] = ()
    """What writes rows of the stream about the system for it."""
    watched: tuple[Watched, ...] = ()
    """The series that are watched, each with its detector."""


def settings_of(options: Any) -> dict[str, str]:
    """Return the fields of an options object as texts."""
    return {name: str(getattr(options, name)) for name in options.__dataclass_fields__}


class Feed(Protocol):
    """Writes rows for a run while it runs; see ``spark.system``."""

    def open(self) -> None:
        """Begin, with the rows that there are now."""

    def look(self) -> None:
        """Write the rows that are new."""

    def close(self) -> None:
        """End."""


class SinkOutlet:
    """All rows go to one sink."""

    def __init__(self, sink: Sink, schema: StructType | None = None) -> None:
        self.sink = sink
        self._schema = schema
        """Of the results."""
        self.takes_all = bool(getattr(sink, "takes_all", False))
        self.calls_user = bool(getattr(sink, "calls_user", False))
        self._arrow: ArrowSink | None = sink if getattr(sink, "takes_arrow", False) else None  # type: ignore[assignment]
        self.takes_arrow = self._arrow is not None
        self.notes = sink.notes
        self.by_tasks = False
        self.kept_by: Mapping[str, int] = {}
        self._results = RowCount()

    def begin(self, *, continues: bool) -> None:
        """Let the sink get ready."""
        self.sink.begin(continues=continues)

    def takes_tasks(self, spark: SparkSession) -> bool:
        """Whether tasks may write for the sink."""
        return takes_tasks(self.sink, self._schema, spark)

    def write(self, results: Laid, spark: SparkSession, batch_id: int) -> Callable[[float], int]:
        """Write the results of a micro-batch."""
        df, counted, table = results.df, results.counted, results.table
        self.by_tasks = results.tasks is not None
        if self._arrow is not None and results.tasks is not None:
            n_rows = write_by_tasks(self._arrow, results.tasks, df.schema, spark, batch_id)
            return partial(count_of, n_rows)
        if self._arrow is not None and (results.is_local or table is not None):
            table = df.toArrow() if table is None else table
            self._arrow.write_arrow(table, df.schema, spark, batch_id)
            return partial(count_of, table.num_rows)
        if counted is None:
            df, counted = self._results.over(df)
        self.sink.write(df, batch_id)
        return partial(count_of, counted)


def write_by_tasks(
    sink: ArrowSink, results: TaskResults, schema: StructType, spark: SparkSession, batch_id: int
) -> int:
    """Run the tasks of a micro-batch, which write for a sink; returns the number of results."""
    writer = sink.result_writer(schema, spark, batch_id)
    receipts = results.write(writer, table_schema(spark, schema))
    sink.commit([what for what, _ in receipts], schema, spark, batch_id)
    return sum(n_rows for _, n_rows in receipts)


def count_of(counted: Counted | int, timeout_s: float) -> int:
    """Return the number of rows; of those that are observed 0 if no job has run."""
    if isinstance(counted, int):
        return counted
    metrics = PendingMetrics(counted.observation).get(timeout_s) or {}
    return int(metrics.get(counted.metric) or 0)
