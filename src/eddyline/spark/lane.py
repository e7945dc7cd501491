"""Lane on Spark: plain Parquet scans, and jobs that read them.

A scan is plain if tasks can read its files themselves. ``PlainScan`` walks the plan of a DataFrame
down to its files. Only columns of the files, under any name and in any order, may stand in between.
It also asks the settings that change what Spark reads. Everything else is refused with a reason,
which ``explain()`` says.

``KeptOfFiles`` are the rows that tasks keep of row groups. Spark schedules the tasks and knows
nothing of the files, so ``input_file_name()`` over the result would be empty without a word.
``guarded`` makes Spark refuse it with an error instead.

A ``Lane`` says for an operator whether tasks read the files of a batch, and learns from its time.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from eddyline.data.parquet_spans import ParquetFiles
from eddyline.lane.choice import FILES, ROWS, LaneChoice
from eddyline.lane.scan import FileColumn, ScannedFile, refusal, size_of, tasks_of
from eddyline.lane.task import REPORT, SENT, SENT_ROWS
from eddyline.report.formatting import counted
from eddyline.spark.analysis import arrow_schema
from eddyline.spark.arrow_tasks import Tasks, begin_task
from eddyline.spark.session import is_on
from eddyline.spark.stream_files import (
    LEAVING_OUT,
    MUST_BE_OFF,
    OWN,
    columns_of,
    each_of,
    has_plain_files,
    kind_of,
    option_names,
    path_of,
    renamed_by,
)
from eddyline.spark.task_results import TaskResults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from eddyline.lane.scan import Split
    from eddyline.lane.task import FileTask
    from eddyline.runtime.journal import JournalEntry
    from eddyline.spark.operator import Batch, Observed

MOST_FILES = 512
"""Most files of a job whose footers the driver reads: some 0.5 ms each."""

_MUST_BE_OFF = (
    *MUST_BE_OFF,
    "spark.sql.parquet.binaryAsString",
    "spark.sql.legacy.parquet.nanosAsLong",
    "spark.sql.execution.arrow.useLargeVarTypes",
)
"""Settings with which Spark reads other rows, values or types."""

_DAYS = "spark.sql.parquet.datetimeRebaseModeInRead"

_REFUSED_OPTIONS = LEAVING_OUT | {"datetimerebasemode", "int96rebasemode"}
"""Options of a reader that change the same, in small letters."""

_STANDS = {"Project", "SubqueryAlias", "View", "EventTimeWatermark"}
"""Steps of a plan that have each row of what they read, once."""

_OF_TABLE = {"EXISTS_DEFAULT", "CURRENT_DEFAULT", "__CHAR_VARCHAR_TYPE_STRING"}
"""Keys of a column's metadata by which Spark gives values that a file does not have."""


class Refused(Exception):
    """Says why the lane cannot be taken."""


class NoRows(Refused):
    """Says that there is nothing to read."""


@dataclass(frozen=True)
class PlainScan:
    """A DataFrame whose rows are those of Parquet files, and its columns those of the files."""

    spark: SparkSession
    schema: StructType
    columns: tuple[FileColumn, ...]
    ignores_case: bool
    corrects_days: bool
    sent_rows: int
    """Most rows of a batch that tasks send."""
    leaf: Any
    """What Spark's plan reads."""

    @classmethod
    def from_frame(cls, df: DataFrame, spark: SparkSession | None = None) -> PlainScan:
        """Return a DataFrame, batch or streaming, as such a scan.

        Args:
            df: the DataFrame.
            spark: the session whose settings count; that of the DataFrame if None.

        Raises:
            Refused: it is another one.
        """
        spark, schema = spark or df.sparkSession, df.schema
        for setting in _MUST_BE_OFF:
            if is_on(spark, setting):
                raise Refused(f"{setting} is on")
        leaf, names = _stored_columns(df)
        stored = dict(zip(df.columns, names, strict=True))
        if len(stored) < len(df.columns):
            raise Refused("two columns have one name")
        kinds = arrow_schema(spark, schema)
        for field in schema:
            if not field.nullable:
                raise Refused(f"{field.name!r} is never NULL to Spark")
        columns = tuple(
            FileColumn(field.name, stored[field.name], field.dataType.simpleString(), kind.type)
            for field, kind in zip(schema, kinds, strict=True)
        )
        return cls(
            spark,
            schema,
            columns,
            ignores_case=not is_on(spark, "spark.sql.caseSensitive"),
            corrects_days=str(spark.conf.get(_DAYS)).upper() == "CORRECTED",
            sent_rows=_sent_rows(spark),
            leaf=leaf,
        )

    @property
    def is_table(self) -> bool:
        """Whether batch rows are of a table of the catalog, of which Spark notices later writes."""
        return bool(self.leaf.catalogTable().isDefined())

    def files(self) -> ParquetFiles:
        """Return the files of batch rows, each as often as Spark reads it.

        Raises:
            Refused: they are many, or on another machine.
        """
        uris = self.leaf.relation().location().inputFiles()
        if len(uris) > MOST_FILES:  # asked in one call; each name takes one more
            raise Refused(f"there are more than {MOST_FILES} files")
        paths = map(local_path, map(str, uris))
        # Spark reads nothing of files that are hidden, such as the summary of a folder.
        shown = (path for path in paths if not Path(path).name.startswith(("_", ".")))
        return ParquetFiles(tuple(shown))

    def listed(self, files: ParquetFiles) -> ListedScan:
        """Return the scan of some files.

        Raises:
            Refused: a column of one cannot be read, or they are many.
        """
        if len(files.paths) > MOST_FILES:
            raise Refused(f"there are more than {MOST_FILES} files")
        for path in files.paths:
            for folder in Path(path).parts[:-1]:
                if "=" in folder:
                    raise Refused(f"the folder {folder!r} may be a column")
        scanned = []
        for path in files.paths:
            try:
                footer = files.footer(path)
            except (OSError, pa.ArrowException) as error:
                raise Refused(f"the footer of {path} cannot be read: {error}") from error
            why = refusal(
                footer.metadata,
                self.columns,
                ignores_case=self.ignores_case,
                corrects_days=self.corrects_days,
            )
            if why:
                raise Refused(f"{why} ({path})")
            scanned.append(ScannedFile.from_footer(footer, self.columns))
        tasks = tasks_of(scanned, int(self.spark.sparkContext.defaultParallelism))
        return ListedScan(**vars(self), tasks=tuple(tasks), n_files=len(scanned))


@dataclass(frozen=True)
class ListedScan(PlainScan):
    """The same with the files of a job, read by tasks."""

    tasks: tuple[tuple[Split, ...], ...]
    """The row groups of each task."""
    n_files: int

    @property
    def size(self) -> tuple[int, int]:
        """The rows of all row groups, and the bytes of the columns that are read."""
        return size_of(self.tasks)

    def reading(self, handed: tuple[str, ...]) -> dict[str, Any]:
        """Return the arguments of ``FileTask`` that say what is read.

        Args:
            handed: the columns that the operator evaluates.
        """
        return {
            "tasks": self.tasks,
            "columns": self.columns,
            "handed": handed,
            "ignores_case": self.ignores_case,
            "sent_rows": self.sent_rows,
        }


def _check_has_rows(scans: Iterable[ListedScan]) -> None:
    """Raise NoRows if no file has a row."""
    if not any(scan.tasks for scan in scans):
        raise NoRows("there are no rows")


def local_path(uri: str) -> str:
    """Return the path of a file on this machine.

    Raises:
        Refused: it is on another one.
    """
    path = path_of(uri)
    if path is None:
        raise Refused(f"files of {uri.partition(':')[0]} file systems are not read")
    return path


def _sent_rows(spark: SparkSession) -> int:
    """Return how many rows tasks send at once: as many as Spark hands over, or fewer."""
    most = int(spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") or 0)
    return min(most, SENT_ROWS) if most > 0 else SENT_ROWS


def _stored_columns(df: DataFrame) -> tuple[Any, list[str]]:
    """Return what a plan reads, and the name in the files of each column.

    Raises:
        Refused: a column is computed, or rows are not those of plain Parquet files.
    """
    if getattr(df, "_jdf", None) is None:
        raise Refused("Spark Connect does not show its plans")
    # A new DataFrame, as an old one does not know what was cached since it was made.
    java: Any = (df if df.isStreaming else df.select("*"))._jdf
    execution = java.queryExecution()
    node = execution.analyzed() if df.isStreaming else execution.withCachedData()
    places = [number for number, _ in columns_of(node)]
    while node.children().size():
        name = node.nodeName()
        if name not in _STANDS:
            raise Refused(f"{name} stands between the files and it")
        if name == "Project":
            renamed = renamed_by(node)
            kept = {
                column.exprId().id()
                for column in each_of(node.projectList())
                if kind_of(column) == "AttributeReference"
            }
            if not all(number in renamed or number in kept for number in places):
                raise Refused("a column is computed before it")
            places = [renamed.get(number, number) for number in places]
        node = node.children().apply(0)
    names = dict(columns_of(node))
    in_files = {*names.values()} if has_plain_files(node) else _columns_of_files(node)
    stored = [names.get(number, "") for number in places]
    for name in stored:
        if name not in in_files:
            raise Refused(f"{name or 'a column'!r} is no column of the files")
    return node, stored


def _named(leaf: Any) -> str:
    """Return what a leaf of a plan reads, in words."""
    if kind_of(leaf) == OWN:
        return str(leaf.sourceName())
    return str(leaf.nodeName())


def _columns_of_files(leaf: Any) -> set[str]:
    """Return the columns of the files that a leaf of a plan reads.

    Raises:
        Refused: it reads something else.
    """
    kind = kind_of(leaf)
    if kind == "StreamingRelation":
        source = leaf.dataSource()
        if str(source.className()).lower() != "parquet":
            raise Refused(f"the stream is of {source.className()}, not of Parquet files")
        options = source.options()
        names = {name for _, name in columns_of(leaf)}
    elif kind == "LogicalRelation" and kind_of(leaf.relation()) == "HadoopFsRelation":
        relation = leaf.relation()
        if kind_of(relation.fileFormat()) != "ParquetFileFormat":
            raise Refused(f"its files are read by {kind_of(relation.fileFormat())}")
        if relation.partitionSchema().size():
            raise Refused("folders have a column")
        options = relation.options()
        names = set(map(str, relation.dataSchema().fieldNames()))
    else:
        raise Refused(f"it reads {_named(leaf)}, not Parquet files")
    for field in json.loads(str(leaf.schema().json()))["fields"]:
        if _OF_TABLE & field["metadata"].keys():
            raise Refused(f"the table gives {field['name']!r} values that files do not have")
    if any(name.startswith("_tmp_metadata") for name in names):
        raise Refused("a column has a name that Spark fills by itself")
    if refused := option_names(options) & _REFUSED_OPTIONS:
        raise Refused(f"its reader has the option {min(refused)}")
    return names


@dataclass(frozen=True)
class KeptOfFiles:
    """The rows of files that tasks keep, for Spark or for a writer of the sink."""

    scan: ListedScan
    task: FileTask
    """Reads the files."""
    added: Sequence[StructField]
    """The columns that it adds."""
    metric: str
    """What its reports are called in the observation."""
    observation: Any
    """Has also ``kept``, the rows that Spark gets, and ``sent``, their bytes; an Observation or a
    name."""

    def as_dataframe(self) -> DataFrame:
        """Return the kept rows as Spark gets them."""
        ends = StructField(REPORT, BinaryType()), StructField(SENT, LongType())
        schema = StructType([*self.scan.schema.fields, *self.added, *ends])
        n_kept = F.count(F.when(F.col(REPORT).isNull(), 1))
        metrics = self._metrics(n_kept, F.sum(SENT))
        seen = self._tasks.returned(schema).observe(self.observation, *metrics)
        return seen.where(f"{REPORT} IS NULL").drop(REPORT, SENT)

    def task_results(self) -> TaskResults:
        """Return the kept rows as task results. Spark gets no row: ``kept`` and ``sent`` are 0."""
        none = F.sum(F.lit(0))
        metrics = self._metrics(none, none)
        return TaskResults(self._tasks, (REPORT, SENT), self.observation, lambda _: metrics)

    @property
    def _tasks(self) -> Tasks:
        return tasks_of_files(self.scan.spark, len(self.scan.tasks), self.task.kept)

    def _metrics(self, n_kept: Column, n_bytes: Column) -> tuple[Column, ...]:
        reports = F.collect_list(REPORT).alias(self.metric)
        return reports, n_kept.alias("kept"), n_bytes.alias("sent")


def read_by_tasks(
    spark: SparkSession,
    n_tasks: int,
    work: Callable[[int], Iterator[pa.RecordBatch]],
    schema: Any,
    *,
    is_sized: bool = True,
) -> DataFrame:
    """Return what tasks make of files; see ``tasks_of_files``.

    Args:
        spark: the session of the job.
        n_tasks: how many there are.
        work: maps the number of a task to its result batches.
        schema: of the result.
        is_sized: whether Spark may estimate the size of the result by that of the numbers. Code
            behind it may join the result, and Spark broadcasts what it takes to be small.
    """
    tasks = tasks_of_files(spark, n_tasks, work)
    if not is_sized:  # of an RDD Spark knows no size
        java: Any = tasks.rows._jdf
        rdd = java.toDF().toJavaRDD()
        sizeless = spark._jsparkSession.createDataFrame(rdd, java.schema())
        tasks = replace(tasks, rows=type(tasks.rows)(sizeless, spark))
    return tasks.returned(schema)


def tasks_of_files(
    spark: SparkSession, n_tasks: int, work: Callable[[int], Iterator[pa.RecordBatch]]
) -> Tasks:
    """Return tasks that read files, each of which Spark hands its number.

    Args:
        spark: the session of the job.
        n_tasks: how many there are.
        work: maps the number of a task to its result batches.
    """

    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from work(number)

    return Tasks(spark.range(0, n_tasks, 1, n_tasks), run)


def guarded(df: DataFrame, read: DataFrame) -> DataFrame:
    """Return rows that tasks have read, over which Spark refuses ``input_file_name()``.

    It allows that function over at most one source of files. The plan gets two without rows, which
    its optimizer removes.
    """
    for _ in range(2):
        read = read.join(df.where("false"), F.lit(True), "left_anti")
    return read


class ReadsFiles(Protocol):
    """An operator whose tasks may read files."""

    def check_may_read(self) -> None:
        """Raise Refused if they may not, whatever the input is."""

    def check_fits(self, *scans: Any) -> None:
        """Raise Refused if they need more than columns of scans; there is one for each stream."""


class Lane:
    """Decides for each batch whether tasks read its files, and learns from batch times.

    Args:
        operator: whose tasks read.
        component: the name of the choice.
        wanted: the option ``lane``.
        is_adaptive: whether the other way is tried.
        keeps_rows: whether results have rows of the files, so that code of the user's could ask
            which file a row is of, and a sink may take a part of them.
    """

    def __init__(
        self,
        operator: ReadsFiles,
        component: str,
        wanted: str,
        *,
        is_adaptive: bool,
        keeps_rows: bool = True,
    ) -> None:
        self._keeps_rows = keeps_rows
        self.choice = LaneChoice(component, is_adaptive=is_adaptive and wanted == "auto")
        self.note = ""
        """Note for ``explain()``; empty before the first decision."""
        self._operator = operator
        self.wanted = wanted
        """The option ``lane``."""
        self._streams: tuple[DataFrame, ...] = ()
        """The streams whose files tasks may read."""
        self._scans: tuple[PlainScan, ...] = ()
        """The same as scans, by the settings of the session of their batches."""
        self._fits = False
        """Whether the columns of the streams were all that the operator needs, the last time."""
        self._ran = ""
        """The way of the batch that was laid last; empty if there was no choice."""
        self._is_here = False
        """Whether the driver has read the files of that batch."""
        self._laid_at = 0

    @property
    def may_read(self) -> bool:
        """Whether tasks are to read the files of the next batch, if there are files."""
        return bool(self._streams) and self.wanted != "off" and self.choice.next == FILES

    @property
    def choices(self) -> tuple[LaneChoice, ...]:
        """The choice between files and rows, of streams that tasks can read."""
        return (self.choice,) if self._streams and self._fits else ()

    def follow(self, *streams: DataFrame, asks_files: bool = False) -> None:
        """Remember the streams whose micro-batches this operator reads.

        Args:
            *streams: the rows of each, with the columns that the operator needs.
            asks_files: whether the query asks which file a row is of.
        """
        try:
            self._check_may_read()
            if asks_files:
                raise Refused("the query asks which file a row is of")
            scans = tuple(map(PlainScan.from_frame, streams))
            self._streams = streams
            self._fitting(scans)
        except Exception as error:  # noqa: BLE001 - see _note_refusal
            self._note_refusal(error)

    def files(self, df: DataFrame, batch: Batch, *, keeps_plan: bool = True) -> ListedScan | None:
        """Return the files of all rows, if tasks are to read them.

        Args:
            df: the rows.
            batch: the micro-batch or job of these rows.
            keeps_plan: whether the result must keep the column ids and size estimate of Spark's
                plan.
        """
        self._ran, self._laid_at = "", time.perf_counter_ns()
        if df.isStreaming:
            return None  # a plain stream, whose plan is laid once
        try:
            self._check_may_read()
            if batch.id >= 0:
                scans = self._files_of_batch(df, batch)
                return replace(scans[0], schema=df.schema) if scans else None
            if keeps_plan and self.wanted != "on":
                raise Refused("rows of a batch DataFrame keep Spark's own plan; lane='on' takes it")
            (scan,) = self._fitting((PlainScan.from_frame(df),))
            if scan.is_table and self.wanted != "on":
                raise Refused("a table may be written before the job; lane='on' takes it")
            listed = scan.listed(scan.files())
            _check_has_rows([listed])
        except Exception as error:  # noqa: BLE001 - see _note_refusal
            self._note_refusal(error)
            return None
        self.note = f"lane: tasks read {counted(listed.n_files, 'file')}"
        return listed

    def files_of_each(self, df: DataFrame, batch: Batch) -> tuple[ListedScan, ...]:
        """Return the files of each stream in a micro-batch, if tasks are to read them; else none.

        Args:
            df: the rows of all streams.
            batch: the micro-batch.
        """
        self._ran, self._laid_at = "", time.perf_counter_ns()
        try:
            self._check_may_read()
            return self._files_of_batch(df, batch)
        except Exception as error:  # noqa: BLE001 - see _note_refusal
            self._note_refusal(error)
            return ()

    def _files_of_batch(self, df: DataFrame, batch: Batch) -> tuple[ListedScan, ...]:
        if not self._streams:
            return ()  # it was said why
        if df is not batch.rows or (self._keeps_rows and batch.calls_user):
            raise Refused("something looks at the rows, before or after")
        if batch.files is None:
            raise Refused("Spark's log does not name its files, or they are many or not local")
        if self._keeps_rows and not batch.is_taken_whole:
            raise Refused("the sink may not take all of the results")
        if not self._scans:
            self._scans = tuple(
                PlainScan.from_frame(stream, df.sparkSession) for stream in self._streams
            )
        scans = self._fitting(self._scans)
        if self.choice.next != FILES:
            self._ran = ROWS
            is_tried = "is tried" if self.choice.is_trial else "is in force"
            self.note = f"lane: no, because the plan {ROWS!r} {is_tried}"
            return ()
        listed = tuple(
            scan.listed(files) for scan, files in zip(scans, batch.files.streams, strict=True)
        )
        _check_has_rows(listed)
        self._ran, self.note = FILES, "lane: tasks read the files of each batch"
        self._is_here = False
        return listed

    def note_read_here(self) -> None:
        """Note that the driver reads the files of the batch itself, and answers it."""
        self._is_here = True
        self.note = "lane: the driver reads the files of each batch, which have few rows"

    def learn(self, observed: Sequence[Observed], batch: Batch) -> list[JournalEntry]:
        """Take in the time of a batch, and what its tasks have sent."""
        if batch.n_rows is None and batch.files is not None:
            batch = replace(batch, n_rows=batch.files.n_rows)
        if not self._ran or not batch.n_rows:
            return []
        took_ns = time.perf_counter_ns() - self._laid_at
        if self._ran == FILES and batch.files is not None:
            took_ns += batch.files.read_ns
        entries = self.choice.step(self._ran, batch.n_rows, took_ns, batch.id)
        metrics = [
            observation.metrics
            for observation in observed
            if observation.metrics.get("sent") is not None
        ]
        if self._ran == FILES and metrics:
            n_kept, n_sent = (sum(metric[name] for metric in metrics) for name in ("kept", "sent"))
            self.choice.sent(batch.n_rows, n_kept, n_sent)
        if self._ran == FILES and self._is_here:
            self.choice.sent(batch.n_rows, 0, 0)
        return entries

    def note_not_asked(self, why: str) -> None:
        """Note why tasks were not asked to read a batch."""
        self._ran, self._fits, self.note = "", False, f"lane: no, because {why}"

    def _check_may_read(self) -> None:
        if self.wanted == "off":
            raise Refused("the option lane is 'off'")
        self._operator.check_may_read()

    def _fitting(self, scans: tuple[PlainScan, ...]) -> tuple[PlainScan, ...]:
        self._fits = False
        self._operator.check_fits(*scans)
        self._fits = True
        return scans

    def _note_refusal(self, error: Exception) -> None:
        """Note why Spark reads the rows. Any error refuses: a new Spark may plan otherwise.

        A batch without rows says nothing of the others.
        """
        if isinstance(error, NoRows) and self.note:
            return
        reason = (
            str(error) if isinstance(error, Refused) else f"its plan is not read: {error!r:.200}"
        )
        self.note = f"lane: no, because {reason}"
