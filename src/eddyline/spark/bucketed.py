"""Operators whose rows meet in buckets.

They are aggregates, correlations of rules, joins and models. A bucket has the rows of some keys,
and the state that later rows of these keys need. In a batch

1. the operator gives each row the number of its bucket;
2. ``exchange`` brings each bucket to a task of its own. It is the only place where rows move
   (``fetched`` and ``answered_here`` do the same in the driver, where a batch is small). In the
   lane ``exchange_files`` does, of rows that tasks read from files and send as Arrow blobs;
3. a ``BucketWorker`` answers the bucket in a Python process: it reads the state, yields results,
   writes new files, and puts a report in the last row of the partition, which is no result;
4. the job observes the reports, and Spark goes on with the results;
5. after the job, ``is_whole`` says whether all buckets have reported, ``close`` returns the state
   that their reports name, and the operator learns from them.

Invariants:

* A partition is a bucket, so Spark must not put partitions together, nor leave out those without
  rows (``buckets_stay``).
* The files of a batch have new names, and only the manifest after the batch names them. A task that
  is retried or runs twice leaves nothing behind: its newest attempt counts.
* A batch without rows changes no state: no bucket works in it.

Read ``BucketedOperator`` first, then ``BucketWorker``, then ``StreamOperator``, which reads the
files of one stream in the lane. What is in a bucket, the columns that go there, and what is learned
are the operator's own.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StructField, StructType

from eddyline.errors import StateError
from eddyline.lane.exchange import (
    BLOBS,
    BUCKET,
    SENT,
    by_blob,
    by_bucket,
    columns_to_read,
    span_and_blobs,
    unpacked,
)
from eddyline.runtime.journal import TaskReport
from eddyline.spark.analysis import frame_of
from eddyline.spark.arrow_tasks import Tasks, begin_task, bucket_of
from eddyline.spark.clock import StreamClock
from eddyline.spark.lane import Lane, Refused, read_by_tasks
from eddyline.spark.operator import Laid, Operator, Pending
from eddyline.spark.prepared import Counted
from eddyline.spark.row_tests import row_test
from eddyline.spark.run.observations import PendingMetrics
from eddyline.spark.task_results import TaskResults
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from pyspark.sql import Column, DataFrame, SparkSession

    from eddyline.data.parquet_spans import Span
    from eddyline.lane.exchange import FileBuckets, Reading
    from eddyline.rules.match.row_test import RowTest
    from eddyline.spark.lane import ListedScan, PlainScan
    from eddyline.spark.operator import Batch, Clock, Observed, Site
    from eddyline.spark.task_results import ArrowStep
    from eddyline.state.manifest import StatePart, StatePlace

REPORT = "__report"
"""The column of what a bucket did: set in the last row of its partition, which is no result."""

REPORTED = StructField(REPORT, BinaryType())
"""The last of the columns that tasks return."""

FOUND = "found"
"""The metric of how many rows tasks have returned, reports left out."""

ADAPTIVE = "spark.sql.adaptive.enabled"
"""Spark's setting to plan each stage when the one before has run: a job for each of them, and
partitions put together, which here are buckets."""

EXCLUDED = "spark.sql.optimizer.excludedRules"
"""Spark's setting of rules that its optimizer leaves out."""

EMPTY = "org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation"
"""The rule that drops a job, and what observes it, where a condition is never true."""

MOST_ROWS = 65_536
"""Rows of one Arrow batch of results: Spark holds a batch as a whole."""


class BucketReport(Protocol):
    """Report of a bucket on a batch, with its state afterwards."""

    @property
    def bucket(self) -> int: ...  # noqa: D102

    @property
    def after(self) -> Any: ...  # noqa: D102


class BucketedState(Protocol):
    """The state of all buckets after a batch."""

    def packed(self) -> StatePart: ...  # noqa: D102


class BucketTask(Protocol):
    """The work of one bucket in one batch."""

    report: Any
    """What it did, once ``run`` is over."""

    def run(self, arrived: Any) -> Iterator[pa.Table]:
        """Yield results, and keep what later batches need."""


ReportT = TypeVar("ReportT", bound=BucketReport)
StateT = TypeVar("StateT", bound=BucketedState)


class BucketedOperator(Operator, Generic[StateT, ReportT]):
    """An operator whose rows meet in buckets: the life of a batch, and of the state behind it.

    Args:
        spark: the session of the query.
    """

    state_type: type[Any]
    """The kind of state: ``state_type(n_buckets, {bucket: state})``, unless ``no_state`` and
    ``state_after`` say otherwise."""
    rows_clock: Clock | None = None
    """The event time of the rows, which says whether a batch has some."""
    gives_all = False
    """Whether each row that tasks return is a result, but for the report."""
    lane: Lane
    """Whether tasks read the files of a batch; of those that may."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.place: StatePlace | None = None
        """Where state is written; None for batch DataFrames."""
        self.part: StateT = self.no_state()
        """The state after the newest batch."""
        self._lock = threading.RLock()
        """Held by whoever changes or shows what is kept and learned."""
        self._observed: Sequence[Observed] | None = None
        self._reports: list[ReportT] = []
        self._loads: tuple[int, ...] = ()
        """New rows of each bucket in the newest batch."""
        self.driver_answer: DriverAnswer | None = None
        """What the driver has answered of the batch that is laid; None if tasks answer it."""
        self.results_per_row = 0.0
        """Results for each row of the newest batch whose results are known."""

    # -- what an operator says of itself --------------------------------------------------------

    @property
    def n_buckets(self) -> int:
        """The buckets of the batch that is laid."""
        raise NotImplementedError

    @property
    def task_schema(self) -> StructType:
        """The columns that tasks return; the last one is the report."""
        raise NotImplementedError

    def answered(self, df: DataFrame, batch: Batch) -> tuple[Tasks, tuple[Pending, ...]]:
        """Return the tasks over the rows of a batch, and what else the job observes.

        Uses ``exchange``; called for batches that have rows and no ``driver_answer``.
        """
        raise NotImplementedError

    def results(self, returned: DataFrame) -> DataFrame:
        """Return the results in what tasks returned, from which the reports are taken out."""
        raise NotImplementedError

    def no_state(self) -> StateT:
        """Return the state before the first batch."""
        return self.state_after(())

    def state_after(self, reports: Sequence[ReportT]) -> StateT:
        """Return the state after a batch, of which all buckets have reported."""
        state: StateT = self.state_type(
            self.n_buckets, {report.bucket: report.after for report in reports}
        )
        return state

    @property
    def is_idle(self) -> bool:
        """Whether the batch that is laid has no rows at all, so that no bucket works."""
        return self.rows_clock is not None and self.rows_clock.is_idle

    @property
    def fullest(self) -> float:
        """New rows of the fullest bucket by those of the mean one; nan if there were none."""
        n_rows = sum(self._loads)
        return max(self._loads) * len(self._loads) / n_rows if n_rows else float("nan")

    # -- one batch ------------------------------------------------------------------------------

    def lay(self, df: DataFrame, batch: Batch) -> Laid:
        """Return the results that the buckets give after a batch."""
        if self.driver_answer is not None:
            return self._laid_answer(self.driver_answer, df.sparkSession, batch)
        if self.is_idle:
            return Laid(self.shape(df))
        buckets_stay(df.sparkSession)
        tasks, pending = self.answered(df, batch)
        done = Observation()
        pending = Pending(self.name, PendingMetrics(done)), *pending
        step = self.result_step if batch.takes_tasks else None
        if step is not None and self.lane.wanted != "off":
            task_results = TaskResults(tasks, (REPORT,), done, self._metrics)
            return Laid(step.empty_result, pending, tasks=task_results.then(step))
        returned = tasks.returned(self.task_schema).observe(done, *self._metrics_of_rows)
        counted = Counted(done, FOUND) if self.gives_all else None
        return Laid(self.results(returned.where(f"{REPORT} IS NULL")), pending, counted=counted)

    def _laid_answer(self, answer: DriverAnswer, spark: SparkSession, batch: Batch) -> Laid:
        pending = (Pending(self.name, answer),)
        if batch.takes_arrow and (step := self.result_step) is not None:
            return Laid(step.empty_result, pending, table=step.result(answer.results))
        returned = frame_of(spark, answer.results, StructType(self.task_schema.fields[:-1]))
        return Laid(self.results(returned), pending, is_local=True)

    @property
    def result_step(self) -> ArrowStep | None:
        """Step from the rows of tasks to results, without Spark; None if Spark makes them."""
        return None

    def exchange(
        self,
        rows: DataFrame,
        worker: BucketWorker,
        *,
        by: Column | None = None,
        is_shuffled: bool = False,
    ) -> Tasks:
        """Return the tasks in which a worker answers rows, one for each bucket.

        Args:
            rows: with the column ``BUCKET``, unless there is ``by``.
            worker: answers a bucket; those without rows, too.
            by: the bucket of a row, where no column travels that says it.
            is_shuffled: whether the rows are in the partitions of their buckets already.
        """
        if not is_shuffled:
            rows = shuffled(rows, self.n_buckets, by)
        return Tasks(rows, worker.run)

    def exchange_files(self, spark: SparkSession, read: Reading, worker: BucketWorker) -> Tasks:
        """Return the tasks that answer buckets; others read files and send their rows as blobs."""
        return self.exchange(read_by_tasks(spark, read.n_tasks, read.blobs, BLOBS), worker)

    def answer_files(
        self,
        reading: Reading,
        worker: Callable[[], BucketWorker],
        batch: Batch,
        n_kept_bytes: int,
    ) -> None:
        """Answer a batch in the driver, if that is foreseen to be small.

        Args:
            reading: the tasks that read the files of the batch.
            worker: makes what answers its buckets.
            batch: the micro-batch.
            n_kept_bytes: bytes of the state that the buckets read.
        """
        in_arrow = batch.takes_arrow and self.result_step is not None
        most = MOST_READ if in_arrow else FEW_RESULTS
        n_results = self.results_per_row * reading.size[0]
        if not are_few(reading) or n_results > most or n_kept_bytes > MOST_HELD_BYTES:
            return
        arrived = read_here(reading)
        if arrived is not None:
            self.driver_answer = answered_here(arrived, self.n_buckets, worker(), most)
        if self.driver_answer is not None:
            self.lane.note_read_here()

    @staticmethod
    def _metrics(n_found: Column) -> tuple[Column, ...]:
        """The reports of tasks, and how many results they have returned."""
        return F.collect_list(REPORT).alias("reports"), n_found.alias(FOUND)

    @cached_property
    def _metrics_of_rows(self) -> tuple[Column, ...]:
        """The metrics where Spark takes the results, made once: each takes calls of the JVM."""
        return self._metrics(F.count(F.when(F.col(REPORT).isNull(), 1)))

    def shape(self, df: DataFrame) -> DataFrame:  # noqa: ARG002 - the columns are other ones
        """Return a DataFrame with the columns of results."""
        return self.results(self.spark.createDataFrame([], self.task_schema))

    def reports(self, observed: Sequence[Observed]) -> list[ReportT]:
        """Return the reports of the buckets that have worked, in their order; unpacked once."""
        if observed is not self._observed:
            every = [
                report for observation in observed for report in observation.reports("reports")
            ]
            profiles = {report.partition: report.profile for report in every}
            self._reports = [profiles[bucket] for bucket in sorted(profiles)]
            self._observed = observed
        return self._reports

    # -- durable state --------------------------------------------------------------------------

    def attach(self, place: StatePlace) -> None:
        """Take note of where the state of buckets is written."""
        self.place = place

    def open(self, part: StatePart | None, again: StatePart | None, batch: Batch) -> None:  # noqa: ARG002
        """Start from the state after the batch before.

        Raises:
            StateError: it cannot be read.
        """
        with self._lock:
            self.part = self.no_state() if part is None else part.read(self.state_type)

    def is_whole(self, observed: Sequence[Observed]) -> bool:
        """Return whether every bucket has reported; without rows none need do."""
        reported = [report.bucket for report in self.reports(observed)]
        return self.is_idle or reported == [*range(self.n_buckets)]

    def close(self, observed: Sequence[Observed], batch: Batch) -> StatePart:  # noqa: ARG002
        """Return the state after the batch, of which all files are written."""
        with self._lock:
            if not self.is_idle:
                self.part = self.state_after(self.reports(observed))
            return self.part.packed()


class StreamOperator(BucketedOperator[StateT, ReportT]):
    """A bucketed operator over one stream, whose files its tasks may read in the lane.

    Filters between the stream and the operator become one condition, which is evaluated where the
    files are read. They are not laid in such a batch.

    Args:
        spark: the session of the query.
        lane: the option of that name.
        is_adaptive: whether the lane tries the other way.
    """

    def __init__(self, spark: SparkSession, lane: str, *, is_adaptive: bool) -> None:
        super().__init__(spark)
        self.lane = Lane(self, "lane", lane, is_adaptive=is_adaptive, keeps_rows=False)
        self.where: RowTest | None = None
        """The condition of the filters before it, which tasks evaluate if they read files."""
        self.files: ListedScan | None = None
        """The files of the batch that is laid, if tasks read them."""

    @property
    def may_read_files(self) -> bool:
        """Whether its tasks are to read the files of the next batch, if there are files."""
        return self.lane.may_read

    @property
    def handed(self) -> tuple[str, ...]:
        """The columns of the rows that tasks read, but for those of the condition."""
        raise NotImplementedError

    def check_may_read(self) -> None:
        """Raise Refused if tasks may not read files, whatever the input is."""
        raise NotImplementedError

    def check_fits(self, scan: PlainScan) -> None:
        """Raise Refused if tasks need more than the columns of a scan."""
        raise NotImplementedError

    def follow_stream(self, site: Site) -> None:
        """Let tasks read the files of a query's stream, if only conditions stand before it."""
        filters = site.filters
        if filters is None:
            self.lane.note_not_asked("its rows are results of other steps")
        elif not site.is_alone:
            self.lane.note_not_asked("other inputs of the query come with its rows")
        elif site.df.isStreaming:
            rows = site.df if site.stream is None else site.stream
            try:
                self.where = row_test(
                    rows, [predicate for operator in filters for predicate in operator.predicates]
                )
            except Refused as why:
                self.lane.note_not_asked(str(why))
                return
            with suppress(Refused):  # which the lane says itself
                self.check_may_read()
                read = columns_to_read(self.handed, self.where)
                rows = rows.select(*[F.col(quoted(name)) for name in read])
            self.lane.follow(rows, asks_files=site.asks_files)
            for operator in filters:
                operator.covered_by = self

    def plan_coverage(self, df: DataFrame, batch: Batch) -> None:
        """Decide whether tasks read the files of a batch, and evaluate the filters before it."""
        clock = self.rows_clock if isinstance(self.rows_clock, StreamClock) else None
        rows = df if clock is None else clock.unobserved(df)
        self.files = self.lane.files(rows, batch, keeps_plan=False)

    @property
    def is_covering(self) -> bool:
        """Whether tasks evaluate the filters before it in the batch that is laid."""
        return self.where is not None and self.files is not None

    def prepare(self, df: DataFrame, batch: Batch) -> None:
        """Decide whether tasks read the files of a batch, if no filter had it decided before."""
        self.driver_answer = None
        if self.where is None:
            self.plan_coverage(df, batch)


def buckets_stay(spark: SparkSession) -> None:
    """Let Spark run a task for each bucket, with rows or not.

    A micro-batch has a session of its stream's own, so this concerns no other query.
    """
    spark.conf.set(ADAPTIVE, "false")
    excluded = spark.conf.get(EXCLUDED, "") or ""
    if EMPTY not in excluded:
        spark.conf.set(EXCLUDED, ",".join(filter(None, [excluded, EMPTY])))


def shuffled(rows: DataFrame, n_buckets: int, by: Column | None = None) -> DataFrame:
    """Return rows in the partitions of their buckets; see ``BucketedOperator.exchange``."""
    if by is None:
        return rows.repartitionById(n_buckets, BUCKET)
    return rows.repartitionById(n_buckets, by).withColumn(BUCKET, F.spark_partition_id())


# -- the work of a bucket -------------------------------------------------------------------------


@dataclass(frozen=True)
class BucketWorker:
    """Answers buckets in a batch; goes to workers. Derive one with what its work needs."""

    outputs: pa.Schema
    """The columns of results; behind them the report, where there is a place."""
    place: StatePlace | None
    """The folders of state; None if nothing is kept."""
    keeps: ClassVar[str] = "rows"
    """What the state has, for errors."""

    def task(self, bucket: int, arrived: Sequence[pa.RecordBatch]) -> tuple[BucketTask, Any]:
        """Return the work of a bucket, and the rows that came to it, as ``run`` takes them."""
        raise NotImplementedError

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Answer the bucket that a partition is; the last row is its report.

        Raises:
            StateError: its state cannot be read or written.
        """
        begin_task()
        sent = list(batches)
        report = yield from self.answer(bucket_of(sent), [*unpacked(sent)])
        if self.place is not None:
            context = TaskContext.get()
            attempt = 0 if context is None else context.taskAttemptId()
            values = [pa.nulls(1, field.type) for field in self.outputs if field.name != REPORT]
            values.append(pa.array([packed(report, attempt)], pa.binary()))
            yield pa.RecordBatch.from_arrays(values, schema=self.outputs)

    def answer(
        self, bucket: int, arrived: Sequence[pa.RecordBatch]
    ) -> Generator[pa.RecordBatch, None, Any]:
        """Yield the results of a bucket, and return its report.

        Raises:
            StateError: its state cannot be read or written.
        """
        with state_of(bucket, self.keeps, "" if self.place is None else self.place.folder):
            task, rows = self.task(bucket, arrived)
            for table in task.run(rows):
                yield from self.sent(table).to_batches(MOST_ROWS)
        return task.report

    def sent(self, table: pa.Table) -> pa.Table:
        """Return results as Spark takes them; see ``as_sent``."""
        return as_sent(table, self.outputs)


def packed(report: BucketReport, attempt: int = 0) -> bytes:
    """Return the report of a bucket as it travels; see ``BucketedOperator.reports``."""
    return TaskReport("bucket", report.bucket, attempt, report).to_bytes()


def as_sent(results: pa.Table, outputs: pa.Schema) -> pa.Table:
    """Return results as Spark takes them: of its types, NULL in columns that they have not."""
    names = set(results.column_names)
    columns = [
        as_type(results[field.name], field.type)
        if field.name in names
        else pa.nulls(results.num_rows, field.type)
        for field in outputs
    ]
    return pa.Table.from_arrays(columns, schema=outputs)


def as_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return a column as another type; the same one if it is of that type."""
    return column if column.type == kind else column.cast(kind)


@contextmanager
def state_of(bucket: int, what: str, folder: str) -> Iterator[None]:
    """Say of an error of the file system what it means for the state of a bucket.

    Raises:
        StateError: there was one.
    """
    try:
        yield
    except OSError as error:
        msg = (
            f"bucket {bucket} cannot read or write its {what} in {folder}: {error}; see that the "
            f"files are there and that the disk has room, then start the query again: nothing is "
            f"lost"
        )
        raise StateError(msg, bucket=bucket, folder=folder) from error


# -- few rows, answered by the driver -------------------------------------------------------------

MOST_FETCHED = 1_000_000
"""Rows, and results, that the driver ever holds: a batch with more of them is left to tasks."""

MOST_READ, MOST_READ_BYTES = 1_000_000, 128 << 20
"""Largest input that the driver reads and answers itself (rows; bytes in the files)."""

MOST_HELD_BYTES = 512 << 20
"""Most bytes of rows that the driver holds once they are read, and of windows that it joins."""

FEW_RESULTS = 100_000
"""Most results that the driver hands to Spark: each takes some 3 µs."""

_NUMBER = "__at"
"""The number of a row in its partition."""


@dataclass(frozen=True)
class DriverAnswer:
    """A batch that the driver has answered; its reports are read as the metrics of a job are."""

    results: pa.Table
    reports: tuple[BucketReport, ...]

    def get(self, timeout_s: float) -> dict[str, Any]:  # noqa: ARG002 - nothing is awaited
        """Return the reports as the metrics of a job would have them."""
        return {"reports": [packed(report) for report in self.reports]}


Arrived = Mapping[int, Sequence[pa.RecordBatch]]
"""The rows that came to buckets."""


def fetched(rows: DataFrame, n_buckets: int) -> Arrived | None:
    """Return the rows of a batch by bucket; None if they are too many.

    Of each partition no more come than its share of what the driver holds, and one.
    """
    partitions = rows.sparkSession.conf.get("spark.sql.shuffle.partitions")
    most = MOST_FETCHED // int(partitions or 1)
    # Its lower 33 bits count the rows of a partition.
    number = f"monotonically_increasing_id() & {(1 << 33) - 1}L AS {_NUMBER}"
    table = rows.selectExpr("*", number).where(f"{_NUMBER} <= {most}L").toArrow()
    if pc.any(pc.equal(table[_NUMBER], most)).as_py():
        return None
    arrived: dict[int, list[pa.RecordBatch]] = {}
    # Together, as there are a few rows of each bucket in each batch.
    for batch in table.drop_columns([_NUMBER]).combine_chunks().to_batches():
        for bucket, part in by_bucket(batch, batch.column(BUCKET).to_numpy(), n_buckets):
            arrived.setdefault(bucket, []).append(part)
    return arrived


def are_few(files: ListedScan | Reading) -> bool:
    """Return whether files have so few rows that the driver reads and answers them."""
    n_rows, n_bytes = files.size
    return n_rows <= MOST_READ and n_bytes <= MOST_READ_BYTES


def fetched_of_files(files: ListedScan, task: FileBuckets) -> tuple[Arrived | None, Span]:
    """Return the rows of files by bucket, and the span of event times of all that is read.

    There are none if they are too many. The span is empty if tasks do not report it.
    """
    n_tasks = len(files.tasks)
    blobs_of = replace(task, most_rows=MOST_FETCHED // n_tasks).blobs
    if are_few(files):
        sent = chain.from_iterable(map(task.blobs, range(n_tasks)))
        table = pa.Table.from_batches(sent, SENT)
    else:
        table = read_by_tasks(files.spark, n_tasks, blobs_of, BLOBS).toArrow()
    span, blobs = span_and_blobs(table)
    return None if blobs is None else by_blob(blobs), span


def read_here(reading: Reading) -> Arrived | None:
    """Return the rows of files by bucket, read by the driver; None if they take too much memory."""
    sent, n_bytes = [], 0
    for blobs in map(reading.blobs, range(reading.n_tasks)):
        for blob in blobs:
            sent.append(blob)
            n_bytes += blob.nbytes
            if n_bytes > MOST_HELD_BYTES:
                return None
    return by_blob(sent)


def answered_here(
    arrived: Arrived, n_buckets: int, worker: BucketWorker, most: int | None = None
) -> DriverAnswer | None:
    """Return what a worker answers of the rows of a batch; None if results are too many.

    Args:
        arrived: the rows by bucket.
        n_buckets: all buckets.
        worker: answers each of them.
        most: results; ``MOST_FETCHED`` if None.

    Raises:
        StateError: the state of a bucket cannot be read or written.
    """
    reports: list[BucketReport] = []
    results, n_results = [], 0
    for batch in _answers(arrived, n_buckets, worker, reports):
        results.append(batch)
        n_results += batch.num_rows
        if n_results > (MOST_FETCHED if most is None else most):
            return None
    table = pa.Table.from_batches(results, worker.outputs).combine_chunks()
    columns = [name for name in table.column_names if name != REPORT]
    return DriverAnswer(table.select(columns), tuple(reports))


def _answers(
    arrived: Arrived, n_buckets: int, worker: BucketWorker, reports: list[BucketReport]
) -> Iterator[pa.RecordBatch]:
    """Yield the results of all buckets, and add their reports to others."""
    for bucket in range(n_buckets):
        report = yield from worker.answer(bucket, arrived.get(bucket, []))
        reports.append(report)
