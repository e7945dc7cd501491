"""Sinks for Delta and Iceberg tables, exactly once.

They need no JVM. Tasks write files beside those of the table (``sources.table_files``). The driver
commits the files of a batch in one transaction, which also says which batch of which query it is. A
batch that runs again after a crash finds that transaction, and then commits nothing. A commit that
meets another writer's is tried again on the newer table.

With ``mode="merge"`` the driver holds the results of a batch, and merges them by their keys.
"""

from __future__ import annotations

import json
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyspark.sql import types as T

from eddyline.errors import EddylineError, OptionError, SourceError
from eddyline.lane.results import BlobWriter
from eddyline.registry import checked_text, package, unknown
from eddyline.sources import delta, iceberg
from eddyline.sources.table_files import (
    DeltaFiles,
    IcebergFiles,
    TableWriter,
    newest_rows,
    parted,
    without_null,
)
from eddyline.spark.analysis import table_schema
from eddyline.spark.arrow_tasks import map_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from eddyline.lane.results import ResultWriter
    from eddyline.sources.table_files import TableFiles

APPEND, MERGE = "append", "merge"
"""Values of ``mode``."""

ATTEMPTS = 20
"""Times that a commit is tried where other writers come before it."""

OF_NEW_TABLES = {
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
}
"""Properties of new Iceberg tables: manifests and files of metadata stay few."""

_QUERY_ID = "sql.streaming.queryId"
"""Spark's local property of the id of a streaming query, which its checkpoint keeps."""


class TableSink(ABC):
    """A table with a log; each batch is one transaction.

    Args:
        mode: ``append``, or ``merge``: a result takes the place of an earlier one with its key.
        on: columns of the key, for ``merge``.
        newest_by: column whose greatest value tells the newest of the results of a batch with one
            key, for ``merge``; without it a batch must have one result for each key.
        partition_by: columns by which a table is parted that the sink makes.

    Raises:
        OptionError: arguments that do not fit together.
    """

    takes_all = True
    takes_arrow = True
    notes: tuple[str, ...] = ()
    member = ""
    """The query, if several run together: they have one id of Spark's."""

    def __init__(
        self,
        mode: str = APPEND,
        on: str | Sequence[str] | None = None,
        newest_by: str | None = None,
        partition_by: str | Sequence[str] | None = None,
    ) -> None:
        if mode not in (APPEND, MERGE):
            msg = unknown("mode of a table", mode, (APPEND, MERGE))
            raise OptionError(msg, mode=mode)
        self.is_merge = mode == MERGE
        self.keys = _names("on", on)
        self.newest_by = newest_by
        self.partition_by = _names("partition_by", partition_by)
        if self.is_merge and not self.keys:
            msg = "mode='merge' needs the columns of the key: on=['id']"
            raise OptionError(msg, mode=mode)
        if not self.is_merge and (self.keys or newest_by is not None):
            msg = "on= and newest_by= are for mode='merge', which replaces results by their key"
            raise OptionError(msg, mode=mode)

    # -- what a subclass does ---------------------------------------------------------------------

    @property
    @abstractmethod
    def where(self) -> str:
        """The table, as errors call it."""

    @abstractmethod
    def columns(self) -> T.StructType | None:
        """Return the columns of the newest version; None: there is no table."""

    @abstractmethod
    def create(self, schema: T.StructType) -> None:
        """Make the table, unless another writer just has."""

    def check(self) -> None:  # noqa: B027 - most tables take any rows
        """Raise SourceError if rows cannot be written for another reason than their columns."""

    @abstractmethod
    def files(self) -> TableFiles:
        """Return what writes rows to new files of the table."""

    @abstractmethod
    def done(self, writer: str) -> int:
        """Return the newest batch of a query in the newest version; -1: none."""

    @abstractmethod
    def append(self, entries: Sequence[Any], writer: str, batch_id: int) -> bool:
        """Commit files; returns whether no other writer came before."""

    @abstractmethod
    def merge(self, table: pa.Table, writer: str, batch_id: int) -> bool:
        """Commit results that replace others; returns whether no other writer came before."""

    # -- as a sink --------------------------------------------------------------------------------

    def begin(self, *, continues: bool) -> None:
        """See that the table, if there is one, can be reached."""
        del continues  # tables take the rows of any number of queries
        self.columns()

    def write(self, df: DataFrame, batch_id: int) -> None:
        """Let tasks write the rows of a batch."""
        spark, schema = df.sparkSession, df.schema
        make_writer = self.result_writer(schema, spark, batch_id)
        work = partial(_written, make_writer, table_schema(spark, schema))
        rows = map_batches(df, work, "receipt binary").collect()
        self.commit([bytes(row[0]) for row in rows], schema, spark, batch_id)

    def write_arrow(
        self, table: pa.Table, schema: T.StructType, spark: SparkSession, batch_id: int
    ) -> None:
        """Write the rows of a table."""
        self._ready(schema)
        self._put([], table, spark, batch_id)

    def takes_results(self, schema: T.StructType, spark: SparkSession) -> bool:  # noqa: ARG002
        """Whether tasks may write: always."""
        return True

    def result_writer(
        self,
        schema: T.StructType,
        spark: SparkSession,  # noqa: ARG002
        batch_id: int,  # noqa: ARG002
    ) -> Callable[[], ResultWriter]:
        """Return what lets each task write its results to files, or return them for a merge."""
        self._ready(schema)
        return BlobWriter if self.is_merge else partial(TableWriter, self.files())

    def commit(
        self, receipts: Sequence[bytes], schema: T.StructType, spark: SparkSession, batch_id: int
    ) -> None:
        """Commit the results of a batch by the receipts of its tasks."""
        entries: list[Any] = []
        if self.is_merge:
            tables = [pa.ipc.open_stream(blob).read_all() for blob in receipts]
        else:
            entries, tables = parted(receipts)
        rows = pa.concat_tables([table_schema(spark, schema).empty_table(), *tables])
        self._put(entries, rows, spark, batch_id)

    def _ready(self, schema: T.StructType) -> None:
        """See that the table is there and takes results.

        Raises:
            SourceError: it does not.
        """
        columns = self.columns()
        if columns is None:
            for name in (*self.keys, *self.partition_by, *filter(None, [self.newest_by])):
                if name not in schema.names:
                    msg = unknown(f"column of results for {self.where}", name, schema.names)
                    raise SourceError(msg, column=name)
            self.create(schema)
            columns = self.columns()
        assert columns is not None
        check_columns(self.where, schema, columns)
        self.check()

    def _put(self, entries: list[Any], rows: pa.Table, spark: SparkSession, batch_id: int) -> None:
        """Commit the results of a batch, unless it is done."""
        query = spark.sparkContext.getLocalProperty(_QUERY_ID)
        writer = f"eddyline {query}{self.member and ' '}{self.member}"
        if not entries and not rows.num_rows:
            return
        if self.is_merge:
            rows = newest_rows(rows, self.keys, self.newest_by, self.where)
            self.check_keys(rows)
        for attempt in range(ATTEMPTS):
            if self.done(writer) >= batch_id:
                self.files().remove(entries)
                return
            if not self.is_merge and rows.num_rows:
                entries += [entry for entry, _ in self.files().write(rows)]
                rows = rows.slice(0, 0)
            if self.is_merge and self.merge(rows, writer, batch_id):
                return
            if not self.is_merge and self.append(entries, writer, batch_id):
                return
            time.sleep(random.uniform(0, 0.05 * 2 ** min(attempt, 6)))
        msg = (
            f"other writers came before batch {batch_id} at each of {ATTEMPTS} commits to "
            f"{self.where}; start the query again when they write less often: nothing is lost"
        )
        raise SourceError(msg, batch_id=batch_id)

    def check_keys(self, rows: pa.Table) -> None:  # noqa: B027 - most tables take any keys
        """Raise SourceError if results cannot be merged by their keys."""


class DeltaSink(TableSink):
    """A Delta table, by ``deltalake``.

    Args:
        path: its folder or URI.
        storage: what ``deltalake`` needs to reach the URI.
        mode: see ``TableSink``.
        on: see ``TableSink``.
        newest_by: see ``TableSink``.
        partition_by: see ``TableSink``.
    """

    def __init__(
        self,
        path: str | Path,
        storage: Mapping[str, str] | None = None,
        mode: str = APPEND,
        on: str | Sequence[str] | None = None,
        newest_by: str | None = None,
        partition_by: str | Sequence[str] | None = None,
    ) -> None:
        super().__init__(mode, on, newest_by, partition_by)
        path = str(path) if isinstance(path, Path) else checked_text("path of the sink", path)
        self.path = path if "://" in path else str(Path(path).absolute())
        self.storage = {str(name): str(value) for name, value in (storage or {}).items()}
        self._package = package("deltalake", delta.NEEDS)
        self._table: Any = None

    @property
    def where(self) -> str:
        """The table, as errors call it."""
        return f"the Delta table {self.path}"

    def columns(self) -> T.StructType | None:
        """Return the columns of the newest version."""
        with self._asking():
            if self._table is not None:
                self._table.update_incremental()
            elif self._package.DeltaTable.is_deltatable(self.path, self.storage or None):
                self._table = self._package.DeltaTable(
                    self.path, storage_options=self.storage or None
                )
            if self._table is None:
                return None
            return T.StructType.fromJson(json.loads(self._table.schema().to_json()))

    def create(self, schema: T.StructType) -> None:
        """Make the table."""
        transaction = package("deltalake.transaction", delta.NEEDS)
        with self._asking():
            columns = self._package.Schema.from_json(json.dumps(nullable(schema.jsonValue())))
            transaction.create_table_with_add_actions(
                self.path,
                columns,
                [],
                mode="ignore",
                partition_by=[*self.partition_by],
                storage_options=self.storage or None,
            )

    def check(self) -> None:
        """Refuse tables whose rows have to obey more than their types."""
        with self._asking():
            metadata = self._table.metadata()
            fields = json.loads(self._table.schema().to_json())["fields"]
        config = metadata.configuration
        parted_by = tuple(metadata.partition_columns)
        if self.partition_by and self.partition_by != parted_by:
            msg = (
                f"{self.where} is partitioned by {', '.join(parted_by) or 'no column'}, not by "
                f"{', '.join(self.partition_by)}; leave partition_by= out"
            )
            raise SourceError(msg, partition_by=self.partition_by)
        reasons = [name for name in config if name.startswith("delta.constraints.")]
        if config.get("delta.columnMapping.mode", "none") != "none":
            reasons.append("columns that are mapped to other names")
        for field in fields:
            rules = [name for name in field.get("metadata", {}) if name.startswith(_RULES)]
            reasons += [f"{name} of column {field['name']}" for name in rules]
        if reasons and not self.is_merge:
            msg = (
                f"{self.where} has {reasons[0]}, which this sink does not enforce; remove it, or "
                f"write with Spark's connector: start('format', format='delta', path=…)"
            )
            raise SourceError(msg, reason=reasons[0])

    def files(self) -> DeltaFiles:
        """Return what writes rows to new files of the table."""
        parted_by = tuple(self._table.metadata().partition_columns)
        fields = self._table.schema().fields
        required = tuple(field.name for field in fields if not field.nullable)
        return DeltaFiles(self.path, self.storage, parted_by, required)

    def done(self, writer: str) -> int:
        """Return the newest batch of a query."""
        with self._asking():
            self._table.update_incremental()
            batch = self._table.transaction_version(writer)
        return -1 if batch is None else int(batch)

    def append(self, entries: Sequence[Any], writer: str, batch_id: int) -> bool:
        """Commit files."""
        transaction = package("deltalake.transaction", delta.NEEDS)
        now = time.time_ns() // 1_000_000
        actions = [
            transaction.AddAction(
                entry.path, entry.size, entry.partition_values, now, True, entry.stats
            )
            for entry in entries
        ]
        with self._committing() as outcome:
            self._table.create_write_transaction(
                actions,
                "append",
                self._table.schema(),
                self._table.metadata().partition_columns or None,
                commit_properties=self._properties(writer, batch_id),
            )
        return outcome.is_done

    def merge(self, table: pa.Table, writer: str, batch_id: int) -> bool:
        """Commit results that replace others."""
        match = " AND ".join(_equal(name, table[name].null_count > 0) for name in self.keys)
        with self._committing() as outcome:
            (
                self._table.merge(
                    table,
                    match,
                    source_alias="source",
                    target_alias="target",
                    commit_properties=self._properties(writer, batch_id),
                )
                .when_matched_update_all()
                .when_not_matched_insert_all()
                .execute()
            )
        return outcome.is_done

    def _properties(self, writer: str, batch_id: int) -> Any:
        transaction = self._package.Transaction(writer, batch_id, time.time_ns() // 1_000_000)
        return self._package.CommitProperties(app_transactions=[transaction])

    @contextmanager
    def _committing(self) -> Iterator[Outcome]:
        """Note whether another writer came before.

        Raises:
            SourceError: another error.
        """
        outcome = Outcome()
        with self._asking():
            try:
                yield outcome
                outcome.is_done = True
            except package("deltalake.exceptions", delta.NEEDS).CommitFailedError:
                self._table = self._package.DeltaTable(
                    self.path, storage_options=self.storage or None
                )

    def _asking(self) -> Any:
        return _asking(self.where)


class IcebergSink(TableSink):
    """An Iceberg table, by ``pyiceberg``.

    Args:
        table: its name with its namespace.
        catalog: properties of the catalog, or its name in the configuration of ``pyiceberg``.
        mode: see ``TableSink``.
        on: see ``TableSink``.
        newest_by: see ``TableSink``.
        partition_by: see ``TableSink``.
    """

    def __init__(
        self,
        table: str,
        catalog: str | Mapping[str, str],
        mode: str = APPEND,
        on: str | Sequence[str] | None = None,
        newest_by: str | None = None,
        partition_by: str | Sequence[str] | None = None,
    ) -> None:
        super().__init__(mode, on, newest_by, partition_by)
        self.name = checked_text("name of an Iceberg table", table)
        self.catalog = iceberg.catalog_options(catalog)
        package("pyiceberg", iceberg.NEEDS)
        self._source = iceberg.Iceberg({"table": table, **self.catalog})
        self._table: Any = None

    @property
    def where(self) -> str:
        """The table, as errors call it."""
        return f"the Iceberg table {self.name}"

    def columns(self) -> T.StructType | None:
        """Return the columns of the table."""
        with _asking(self.where):
            if self._table is None and not iceberg.catalog_of(self.catalog).table_exists(self.name):
                return None
        columns: Any = T.StructType.fromDDL(self._source.ddl())
        self._table = self._source.loaded()
        return cast("T.StructType", columns)

    def create(self, schema: T.StructType) -> None:
        """Make the table, and its namespace."""
        exceptions = package("pyiceberg.exceptions", iceberg.NEEDS)
        with _asking(self.where):
            catalog = iceberg.catalog_of(self.catalog)
            catalog.create_namespace_if_not_exists(self.name.rpartition(".")[0])
            columns = arrow_of(schema)
            try:
                table = catalog.create_table(self.name, columns, properties=OF_NEW_TABLES)
            except exceptions.TableAlreadyExistsError:
                return
            if self.partition_by:
                with table.update_spec() as spec:
                    for name in self.partition_by:
                        spec.add_identity(name)

    def files(self) -> IcebergFiles:
        """Return what writes rows to new files of the table."""
        return IcebergFiles(*iceberg.for_tasks(self._table))

    def done(self, writer: str) -> int:
        """Return the newest batch of a query."""
        with _asking(self.where):
            self._table.refresh()
            return int(self._table.properties.get(_property(writer), -1))

    def append(self, entries: Sequence[Any], writer: str, batch_id: int) -> bool:
        """Commit files."""
        with self._committing() as outcome, self._table.transaction() as transaction:
            transaction.set_properties({_property(writer): str(batch_id)})
            marks = {"eddyline.query": writer, "eddyline.batch": str(batch_id)}
            update = transaction.update_snapshot(snapshot_properties=marks)
            merges = self._table.properties.get("commit.manifest-merge.enabled") == "true"
            with update.merge_append() if merges else update.fast_append() as adding:
                for entry in entries:
                    adding.append_data_file(entry)
        return outcome.is_done

    def merge(self, table: pa.Table, writer: str, batch_id: int) -> bool:
        """Commit results that replace others."""
        with self._committing() as outcome, self._table.transaction() as transaction:
            transaction.set_properties({_property(writer): str(batch_id)})
            marks = {"eddyline.query": writer, "eddyline.batch": str(batch_id)}
            fields = self._table.schema().fields
            required = [field.name for field in fields if field.required]
            rows = without_null(table, required, self.name)
            transaction.upsert(rows, [*self.keys], snapshot_properties=marks)
        return outcome.is_done

    def check_keys(self, rows: pa.Table) -> None:
        """Refuse NULL in keys, which ``pyiceberg`` does not find again."""
        for name in self.keys:
            if rows[name].null_count:
                msg = (
                    f"key column {name!r} has NULL, so {self.where} cannot be merged; leave such "
                    f"results out: WHERE {name} IS NOT NULL"
                )
                raise SourceError(msg, column=name)

    @contextmanager
    def _committing(self) -> Iterator[Outcome]:
        """Note whether another writer came before.

        Raises:
            SourceError: another error.
        """
        outcome = Outcome()
        # A commit copies its metadata a dozen times, and needs no older snapshots. Another writer
        # may be this query, so the batch is looked for before each attempt. The catalog applies
        # the commit to metadata of its own.
        newest = self._table.current_snapshot()
        self._table.metadata = self._table.metadata.model_copy(
            update={
                "properties": {**self._table.properties, "commit.retry.num-retries": "0"},
                "snapshots": [] if newest is None else [newest],
                "snapshot_log": [],
            }
        )
        with _asking(self.where):
            try:
                yield outcome
                outcome.is_done = True
            except package("pyiceberg.exceptions", iceberg.NEEDS).CommitFailedException:
                self._table.refresh()


class Outcome:
    """Whether a commit was done."""

    is_done = False


def _written(
    make_writer: Callable[[], ResultWriter],
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Write the rows of a task; yields receipts."""
    writer = make_writer()
    for batch in batches:
        if batch.num_rows:
            yield from map(_receipt, writer.add(pa.Table.from_batches([batch]).cast(schema)))
    yield from map(_receipt, writer.close())


def _receipt(receipt: tuple[bytes, int]) -> pa.RecordBatch:
    return pa.record_batch({"receipt": pa.array([bytes(receipt[0])], pa.binary())})


@contextmanager
def _asking(where: str) -> Iterator[None]:
    """Say in an error of a package which table it is about.

    Raises:
        SourceError: there was one.
    """
    try:
        yield
    except EddylineError:
        raise
    except Exception as error:  # of the package, of the catalog's client or of the storage
        words = " ".join(str(error).split())
        msg = (
            f"{where} cannot be read or written: {type(error).__name__}: {words}; nothing is lost: "
            f"start the query again when it can"
        )
        raise SourceError(msg, table=where) from error


def check_columns(where: str, results: T.StructType, table: T.StructType) -> None:
    """Check that results have the columns of a table.

    Raises:
        SourceError: they do not.
    """
    wanted = {field.name: field.dataType.simpleString() for field in table}
    types = {field.name: field.dataType.simpleString() for field in results}
    words = [
        f"results have the column {name!r}, the table does not"
        for name in types
        if name not in wanted
    ]
    words += [
        f"the table has the column {name!r}, results do not" for name in wanted if name not in types
    ]
    words += [
        f"column {name!r} is {kind} in results and {wanted[name]} in the table"
        for name, kind in types.items()
        if name in wanted and kind != wanted[name]
    ]
    if words:
        msg = f"results do not fit {where}: {'; '.join(words)}. Name and cast them in SELECT"
        raise SourceError(msg, table=where)


def nullable(kind: Any) -> Any:
    """Return a type as JSON in which everything may be NULL, without metadata."""
    if isinstance(kind, dict):
        flags = {"nullable": True, "containsNull": True, "valueContainsNull": True, "metadata": {}}
        return {
            name: flags[name] if name in flags else nullable(value) for name, value in kind.items()
        }
    return [nullable(field) for field in kind] if isinstance(kind, list) else kind


def arrow_of(schema: T.StructType) -> pa.Schema:
    """Return the columns of a new table as Arrow's, all of which may be NULL."""
    from eddyline.spark.arrow_types import to_arrow_schema  # noqa: PLC0415

    columns = T.StructType.fromJson(nullable(schema.jsonValue()))
    return to_arrow_schema(columns, timezone="UTC")


_RULES = ("delta.invariants", "delta.generationExpression", "delta.identity.")


def _property(writer: str) -> str:
    return f"eddyline.batch.{writer.removeprefix('eddyline ')}"


def _equal(name: str, has_null: bool) -> str:
    column = '"' + name.replace('"', '""') + '"'
    equal = f"target.{column} = source.{column}"
    if not has_null:
        return equal
    return f"({equal} OR (target.{column} IS NULL AND source.{column} IS NULL))"


def _names(what: str, value: Any) -> tuple[str, ...]:
    """Return names of columns; a text has them with commas between them.

    Raises:
        OptionError: they are no texts.
    """
    if value is None:
        return ()
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",")]
    names = tuple(value) if isinstance(value, Iterable) else ()
    if not names or not all(isinstance(name, str) and name for name in names):
        msg = f"{what}= has names of columns, such as {what}=['id'], got {value!r:.60}"
        raise OptionError(msg, got=value)
    return names
