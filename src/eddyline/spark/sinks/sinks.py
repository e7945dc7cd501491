"""Sinks: they take the rows of a run. A sink is one class and one line of ``SINKS``.

A sink's ``write`` is called once per micro-batch, in order, and again with the same batch id after
a failure: what it does twice must come to the same as what it does once.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyarrow import fs
from rich.console import Console
from rich.table import Table

from eddyline.errors import OptionError, SourceError
from eddyline.registry import checked_text, look_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    BatchWriter = Callable[[DataFrame, int], None]

CONSOLE_ROWS = 20
"""Rows of a batch that the console shows."""


class Sink(Protocol):
    """Takes the rows of a run, batch by batch."""

    def begin(self, *, continues: bool) -> None:
        """Get ready; called once, before the run starts.

        Args:
            continues: whether the run goes on from a checkpoint.

        Raises:
            SourceError: rows of another run are where this one would write.
        """
        ...

    def write(self, df: DataFrame, batch_id: int) -> None:
        """Take the rows of one micro-batch; called again with the same id after a failure."""
        ...


class ParquetSink:
    """Parquet files in one folder; the files of a batch carry its id in their names.

    A batch is written to a staging folder first and its files are moved when all are there. When a
    batch runs again, what an earlier attempt had moved is removed first, so no row is there twice.

    Args:
        path: a folder, or a URI that ``pyarrow.fs`` and Spark both understand.
    """

    def __init__(self, path: str | Path) -> None:
        path = str(path) if isinstance(path, Path) else checked_text("path of the sink", path)
        self.path = path.rstrip("/") or "/"
        try:
            self.files, self.root = file_system(self.path)
            if "://" not in self.path:
                # Spark's working directory is that of its start, not that of now.
                self.path = self.root
            self.files.create_dir(self.root, recursive=True)
        except (OSError, pa.ArrowInvalid) as error:
            msg = f"cannot write to {path!r}: {error}"
            raise SourceError(msg, path=path) from error

    def begin(self, *, continues: bool) -> None:
        """Refuse a folder with batches of another run: some of them would be taken for ours."""
        if not continues and any(name.startswith("batch-") for name in self._names(self.root)):
            msg = (
                f"{self.path} holds batches of another run; give that run's checkpoint to go on "
                f"from it, or write to another folder"
            )
            raise SourceError(msg, path=self.path)

    def write(self, df: DataFrame, batch_id: int) -> None:
        """Write the batch as ``batch-<id>-<part>.parquet``."""
        prefix = f"batch-{batch_id:08d}"
        staging = f"_eddyline/{prefix}"
        df.write.mode("overwrite").parquet(f"{self.path}/{staging}")
        for name in self._names(self.root):
            if name.startswith(f"{prefix}-"):
                self.files.delete_file(f"{self.root}/{name}")
        staged = [name for name in self._names(f"{self.root}/{staging}") if name[0] not in "._"]
        for number, name in enumerate(sorted(staged)):
            source = f"{self.root}/{staging}/{name}"
            self.files.move(source, f"{self.root}/{prefix}-{number:05d}.parquet")
        self.files.delete_dir(f"{self.root}/{staging}")

    def _names(self, folder: str) -> list[str]:
        found = self.files.get_file_info(fs.FileSelector(folder))
        return [info.base_name for info in found if info.type == fs.FileType.File]


class _Fresh:
    """A sink that has nothing of earlier runs."""

    def begin(self, *, continues: bool) -> None:
        """Do nothing."""


class MemorySink(_Fresh):
    """Arrow tables in the driver's memory, one per batch: for tests, demos and small results."""

    def __init__(self) -> None:
        self.batches: dict[int, pa.Table] = {}

    def write(self, df: DataFrame, batch_id: int) -> None:
        """Keep the batch; one that runs again takes the place of the earlier attempt."""
        self.batches[batch_id] = df.toArrow()

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


class ConsoleSink(_Fresh):
    """Prints the first rows of each batch."""

    def __init__(self) -> None:
        self.console = Console()

    def write(self, df: DataFrame, batch_id: int) -> None:
        """Print the batch, or nothing if it is empty."""
        rows = df.toArrow()  # all of them, as Spark's own console does: a limit would end the job
        if rows.num_rows == 0:
            return
        table = Table(*rows.column_names, title=f"batch {batch_id}")
        for row in rows.slice(0, CONSOLE_ROWS).to_pylist():
            table.add_row(*(str(value) for value in row.values()))
        if rows.num_rows > CONSOLE_ROWS:
            table.caption = f"only the first {CONSOLE_ROWS} rows"
        self.console.print(table)


class CallableSink(_Fresh):
    """Hands each batch to a function of the user's: ``function(df, batch_id)``."""

    def __init__(self, function: BatchWriter) -> None:
        self.function = function

    def write(self, df: DataFrame, batch_id: int) -> None:
        """Call the function."""
        self.function(df, batch_id)


SINKS: dict[str, Any] = {
    "parquet": ParquetSink,
    "memory": MemorySink,
    "console": ConsoleSink,
}
"""Sinks by name; ``path`` is handed to those that need one."""

NEED_PATH = {"parquet"}
"""Sinks that write to a path."""


def sink_of(sink: str | BatchWriter, path: str | Path | None) -> Sink:
    """Return the sink that ``start`` was asked for.

    Raises:
        OptionError: an unknown name, or a path that is missing or has no use.
    """
    if callable(sink):
        return CallableSink(sink)
    made = look_up("sink", SINKS, sink, group="eddyline.sinks")
    if sink in NEED_PATH:
        if path is None:
            msg = f"sink {sink!r} needs a path: start({sink!r}, path='out/')"
            raise OptionError(msg, sink=sink)
        return made(path)  # type: ignore[no-any-return]
    if path is not None:
        msg = f"sink {sink!r} takes no path, got {path!r}; sinks that do: parquet"
        raise OptionError(msg, sink=sink, path=path)
    return made()  # type: ignore[no-any-return]


def folder_of(what: str, path: str | Path) -> Path:
    """Return a local folder by its full path.

    Raises:
        OptionError: it is no path.
    """
    return Path(path if isinstance(path, Path) else checked_text(what, path)).absolute()


def file_system(path: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or URI, and the path in it."""
    if "://" in path:
        found, root = fs.FileSystem.from_uri(path)
        return found, str(root)
    return fs.LocalFileSystem(), str(Path(path).absolute())


def temporary_folder() -> str:
    """Return a fresh folder for a checkpoint that nobody asked to keep."""
    return tempfile.mkdtemp(prefix="eddyline-")
