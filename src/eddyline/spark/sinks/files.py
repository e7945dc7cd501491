"""Files in one folder, named by their micro-batch.

Spark writes them, or Arrow does: in the driver if that holds the rows, or in the tasks that make
the results. ``parquet_of`` says which files Arrow writes as Spark does.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import fs, orc
from pyarrow import parquet as pq
from pyspark.sql import types as T

from eddyline.data.files import is_local
from eddyline.errors import OptionError, SourceError
from eddyline.lane.results import FileWriter, Parquet
from eddyline.registry import checked_text
from eddyline.spark.analysis import frame_of, table_schema
from eddyline.spark.arrow_tasks import task_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession


STAGING = "_eddyline"
"""The folder, within that of a sink, that batches are written to at first."""


class FileSink:
    """Files in one folder; the files of a batch carry its id in their names.

    A batch is written to a staging folder first and its files are moved when all are there. When a
    batch runs again, what an earlier attempt had moved is removed first, so no row is there twice.
    Files without rows are left out, but for the first of a folder, which tells the columns.

    Args:
        path: a folder, or a URI that ``pyarrow.fs`` and Spark both understand.
        kind: the files' format: ``parquet``, ``orc``, ``json`` or ``csv``.
        options: of Spark's writer of that format, such as ``compression``; and ``files``, the most
            files that a batch is written to (≥ 1), for which its rows are shuffled. By default each
            task of Spark's writes its own.

    Raises:
        SourceError: the folder cannot be made.
        OptionError: ``files`` is no such number.
    """

    notes: tuple[str, ...] = ()
    takes_all = True

    def __init__(
        self,
        path: str | Path,
        options: Mapping[str, Any] | None = None,
        *,
        kind: str = "parquet",
    ) -> None:
        path = str(path) if isinstance(path, Path) else checked_text("path of the sink", path)
        self.path = path.rstrip("/") or "/"
        self.kind, self.options = kind, dict(options or {})
        self.n_files = _number_of_files(self.options.pop("files", None))
        self.takes_arrow = kind == "parquet" and self.options.keys() <= {"compression"}
        self._parquets: dict[str, Parquet | None] = {}
        """How Arrow writes rows of a schema, by its JSON; None if Spark has to."""
        self._newest = -1
        self._written = ""
        """The folder that tasks of the newest batch write to."""
        self._there: list[fs.FileInfo] = []
        """The files that were there at the start: some may be of a batch that runs again."""
        try:
            self.files, self.root = file_system(self.path)
            if "://" not in self.path:
                self.path = uri_of(self.root)
            self.files.create_dir(self.root, recursive=True)
        except (OSError, pa.ArrowInvalid) as error:
            msg = f"cannot write to {path!r}: {error}"
            raise SourceError(msg, path=path) from error

    def begin(self, *, continues: bool) -> None:
        """Refuse a folder with batches of another run: some of them would be taken for ours."""
        self._there = self._found(self.root, "batch-")
        if self._there and not continues:
            where = self.path.removeprefix("file://")
            msg = (
                f"{where} holds batches of another run; give that run's checkpoint to go on "
                f"from it, or write to another folder"
            )
            raise SourceError(msg, path=self.path)
        self._newest = -1
        self._parquets = {}
        with suppress(OSError):  # what a crash has left, if something has
            self.files.delete_dir(f"{self.root}/{STAGING}")

    def write(self, df: DataFrame, batch_id: int) -> None:
        """Write the batch as ``batch-<id>-<part>.<suffix>``."""
        staging = self.staging_of(batch_id)
        if self.n_files is not None:
            df = df.repartition(self.n_files)
        self.writer(df).save(f"{self.path}/{staging}")
        self.take(f"{self.root}/{staging}", batch_id)
        self.files.delete_dir(f"{self.root}/{staging}")

    def write_arrow(
        self, table: pa.Table, schema: T.StructType, spark: SparkSession, batch_id: int
    ) -> None:
        """Write the rows of a table as the file of a batch."""
        parquet = self._parquet_of(schema, spark)
        if parquet is None:
            self.write(frame_of(spark, table, schema), batch_id)
            return
        staging = self._empty_staging(batch_id)
        if table.num_rows or not self.tells_columns(batch_id):
            with self.files.open_output_stream(f"{staging}/part-0.{parquet.suffix}") as file:
                parquet.write(table, file)
        self.take(staging, batch_id)
        self.files.delete_dir(staging)

    def takes_results(self, schema: T.StructType, spark: SparkSession) -> bool:
        """Whether tasks may write the files: all of them reach a local or mounted folder."""
        return (
            self.takes_arrow
            and self.n_files is None
            and is_local(self.files)
            and self._parquet_of(schema, spark) is not None
        )

    def result_writer(
        self, schema: T.StructType, spark: SparkSession, batch_id: int
    ) -> Callable[[], FileWriter]:
        """Return what lets each task write its results to a file."""
        parquet = self._parquet_of(schema, spark)
        assert parquet is not None
        # A folder of its own: a task of a stopped attempt may still write into an earlier one.
        self._written = self._empty_staging(batch_id, f"-{uuid.uuid4().hex[:8]}")
        return partial(_file_writer, self._written, parquet)

    def commit(
        self, receipts: Sequence[bytes], schema: T.StructType, spark: SparkSession, batch_id: int
    ) -> None:
        """Take the files that tasks have written, by their names.

        Raises:
            SourceError: the driver does not find one of them.
        """
        names = [name.decode() for name in receipts]
        if names or self.tells_columns(batch_id):
            self.take(self._written, batch_id, names)
        else:
            self.write_arrow(table_schema(spark, schema).empty_table(), schema, spark, batch_id)
        with suppress(OSError):  # a killed copy of a task may still write into it
            self.files.delete_dir(self._written)

    def _parquet_of(self, schema: T.StructType, spark: SparkSession) -> Parquet | None:
        """Return how Arrow writes rows of a schema; None if Spark has to."""
        key = schema.json()
        if key not in self._parquets:
            self._parquets[key] = parquet_of(spark, schema, self.options.get("compression"))
        return self._parquets[key]

    def _empty_staging(self, batch_id: int, suffix: str = "") -> str:
        """Return the path of the folder that a batch is written to at first, without files."""
        staging = f"{self.root}/{self.staging_of(batch_id)}{suffix}"
        self.files.create_dir(staging, recursive=True)
        self.files.delete_dir_contents(staging)
        return staging

    def writer(self, df: DataFrame) -> DataFrameWriter:
        """Return Spark's writer of the files."""
        return df.write.format(self.kind).options(**self.options).mode("overwrite")

    @staticmethod
    def staging_of(batch_id: int) -> str:
        """Return the folder, within the path, that a batch is written to at first."""
        return f"{STAGING}/{_prefix(batch_id)[:-1]}"

    def tells_columns(self, batch_id: int) -> bool:
        """Whether files of other batches are there, from which readers know the columns."""
        prefix = _prefix(batch_id)
        is_there = any(not info.base_name.startswith(prefix) for info in self._there)
        return is_there or 0 <= self._newest < batch_id

    def take(self, folder: str, batch_id: int, names: Sequence[str] | None = None) -> None:
        """Take the files of a batch that were written to a folder of the same file system.

        Without the folder the batch has no rows.

        Args:
            folder: the folder.
            batch_id: the batch.
            names: of the files to move, as others may be of attempts that failed; None: all.

        Raises:
            SourceError: one of these is not there.
        """
        prefix = _prefix(batch_id)
        is_next = 0 <= self._newest < batch_id
        if batch_id <= self._newest:
            self._there = self._found(self.root, "batch-")
        earlier = [info for info in self._there if info.base_name.startswith(prefix)]
        for info in earlier:
            self.files.delete_file(info.path)
        if names is None:
            staged = self._found(folder, "part-")
            # Spark leaves out each file without rows but the first.
            is_first = not is_next and len(earlier) == len(self._there)
            if staged and not is_first and self._has_no_rows(staged[0]):
                del staged[0]
        else:
            staged = self.files.get_file_info([f"{folder}/{name}" for name in sorted(names)])
            n_lacking = sum(info.type != fs.FileType.File for info in staged)
            if n_lacking:
                msg = (
                    f"tasks have written {len(names)} files to {folder}, of which the driver "
                    f"lacks {n_lacking}; all workers must reach the folder of the sink"
                )
                raise SourceError(msg, path=self.path)
        for number, info in enumerate(staged):
            suffix = info.base_name.partition(".")[2]
            self.files.move(info.path, f"{self.root}/{prefix}{number:05d}.{suffix}")
        self._newest = batch_id

    def _has_no_rows(self, file: fs.FileInfo) -> bool:
        if self.kind not in _N_ROWS:
            return bool(file.size == 0)
        with self.files.open_input_file(file.path) as opened:
            return _N_ROWS[self.kind](opened) == 0

    def _found(self, folder: str, prefix: str = "") -> list[fs.FileInfo]:
        """Return the files of a folder whose names start so, by name."""
        infos = self.files.get_file_info(fs.FileSelector(folder, allow_not_found=True))
        named = [info for info in infos if info.base_name.startswith(prefix)]
        return sorted(
            (info for info in named if info.type == fs.FileType.File),
            key=lambda info: str(info.base_name),
        )


_CODECS = {
    "snappy": "snappy",
    "gzip": "gz",
    "zstd": "zstd",
    "none": "",
    "uncompressed": "",
}
"""What the name of a file says of its compression; others Spark writes in a way of its own."""

_AS_WRITTEN = {
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.files.maxRecordsPerFile": "0",
}
"""Settings under which Arrow writes what Spark would, and their values."""

_INSTANTS = "spark.sql.parquet.outputTimestampType"
"""Setting of the type of instants in files."""

_CODEC = "spark.sql.parquet.compression.codec"
"""Setting of the compression of files."""

_ENCRYPTS = "parquet.crypto.factory.class"
"""A setting of Hadoop by which Spark encrypts the files that it writes."""

_SCALARS = (
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.FloatType,
    T.DoubleType,
    T.DecimalType,
    T.BinaryType,
    T.DateType,
)
"""Types of values that Arrow writes as Spark does under any settings."""


def parquet_of(spark: SparkSession, schema: T.StructType, compression: Any) -> Parquet | None:
    """Return how rows of a schema are written; None if Spark has to write them.

    Args:
        spark: the session whose settings count.
        schema: of the rows.
        compression: option of the sink; None if it has none.
    """
    settings = {name: str(spark.conf.get(name)) for name in (*_AS_WRITTEN, _INSTANTS, _CODEC)}
    codec = str(compression or settings[_CODEC]).lower()
    is_int96 = settings[_INSTANTS].upper() == "INT96"
    java: Any = spark
    if (
        any(settings[name].lower() != value.lower() for name, value in _AS_WRITTEN.items())
        or settings[_INSTANTS].upper() not in ("INT96", "TIMESTAMP_MICROS")
        or codec not in _CODECS
        or java._jsparkSession.sessionState().newHadoopConf().get(_ENCRYPTS) is not None
        or not _is_written_alike(schema, is_int96=is_int96)
    ):
        return None
    says = {
        "org.apache.spark.version": spark.version,
        "org.apache.spark.sql.parquet.row.metadata": schema.json(),
    }
    suffix = ".".join(filter(None, [_CODECS[codec], "parquet"]))
    return Parquet("none" if not _CODECS[codec] else codec, suffix, is_int96, says)


def _file_writer(folder: str, parquet: Parquet) -> FileWriter:
    """Return the writer of the task that runs here."""
    return FileWriter(folder, parquet, task_ids()[0])


def _is_written_alike(kind: T.DataType, *, is_int96: bool) -> bool:
    """Return whether Arrow writes values of a type as Spark does."""
    if isinstance(kind, T.StructType):
        return len(kind) > 0 and all(
            _is_written_alike(field.dataType, is_int96=is_int96) for field in kind
        )
    if isinstance(kind, T.ArrayType):
        return _is_written_alike(kind.elementType, is_int96=is_int96)
    if isinstance(kind, T.MapType):
        parts = kind.keyType, kind.valueType
        return all(_is_written_alike(part, is_int96=is_int96) for part in parts)
    if type(kind) is T.StringType:
        return kind.collation == "UTF8_BINARY"
    if isinstance(kind, T.TimestampNTZType):
        return not is_int96  # Arrow writes all timestamps of a file in one way, Spark does not
    return isinstance(kind, (*_SCALARS, T.TimestampType))


def _prefix(batch_id: int) -> str:
    """Return how the names of the files of a batch start."""
    return f"batch-{batch_id:08d}-"


_N_ROWS: dict[str, Callable[[Any], int]] = {
    "parquet": lambda file: int(pq.read_metadata(file).num_rows),
    "orc": lambda file: int(orc.ORCFile(file).nrows),
}
"""Number of rows of a file, of formats that know it; others have none in a file without bytes."""


def _number_of_files(files: Any) -> int | None:
    if files is None:
        return None
    if not str(files).isdecimal() or int(files) < 1:
        msg = (
            f"option 'files' limits the files of a batch; give a whole number from 1 on, got "
            f"{files!r}"
        )
        raise OptionError(msg, files=files)
    return int(files)


def uri_of(folder: str | Path) -> str:
    """Return what Spark calls a folder of this machine, or one that is mounted, by its full path.

    A path alone would be one of Spark's working directory, which is that of its start, and of its
    default file system, which on a cluster may be another one. Spark knows no escapes in it.
    """
    return f"file://{folder}"


def file_system(path: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or URI, and the path in it."""
    if "://" in path:
        system, root = fs.FileSystem.from_uri(path)
        return system, str(root)
    return fs.LocalFileSystem(), str(Path(path).absolute())
