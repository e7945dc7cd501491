"""Results that tasks hand to the sink as Arrow, so that no result becomes a row of the JVM.

The tasks of an operator yield Arrow batches: results, and a report of their work. Given to Spark,
each result becomes a row of the JVM, and Spark's writer or ``toArrow`` makes columns of the rows
again. ``TaskResults`` runs the same tasks with another end:

* the sink gives a ``TaskEnd``, which takes the results of one task as tables, such as one that
  writes them to a file. Spark gets what the end returns: a name or a blob, and how many rows it
  stands for;
* the operators behind the tasks are ``ArrowStep`` s, which pick columns of a table. They run in the
  task, before its end. An operator that Spark has to compute, such as an expression, has no such
  step; the results are then rows, as before;
* reports are observed as ever.

A task that fails, or runs twice, leaves a file that nobody names. What the driver is told of is
what the tasks have returned whose results Spark took.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from eddyline.spark.arrow_tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import Column, DataFrame, Observation

    from eddyline.spark.arrow_tasks import BatchTask

GIVEN, N_ROWS = "__given", "__n_rows"
"""The columns of what the end of a task returns: a name or a blob, and the rows it stands for."""

BLOB_BYTES = 16 << 20
"""Bytes of results that a task sends at once."""


@dataclass(frozen=True)
class ArrowStep:
    """The work of an operator over Arrow tables, without Spark."""

    like: DataFrame
    """A DataFrame with the columns of the result, for analysis only."""
    result: Callable[[pa.Table], pa.Table]
    """Returns the result of a table of rows. It travels to tasks."""


class TaskEnd(Protocol):
    """Takes the results of one task, in the worker; yields what the driver is told of."""

    def add(self, table: pa.Table) -> Iterator[tuple[bytes, int]]:
        """Take some results; yields names or blobs with the number of their rows."""
        ...

    def close(self) -> Iterator[tuple[bytes, int]]:
        """Finish with what is held."""
        ...


@dataclass(frozen=True)
class TaskResults:
    """Results that the tasks of a job give, and where their reports are observed."""

    tasks: Tasks
    last: tuple[str, ...]
    """The columns behind the results. The first one has the report, in a row that is no result."""
    observation: Observation
    metrics: Callable[[Column], tuple[Column, ...]]
    """Returns what is observed, given the column of the number of results."""
    steps: tuple[Callable[[pa.Table], pa.Table], ...] = ()
    """What is done with the results of a task, in this order."""

    def then(self, step: ArrowStep) -> TaskResults:
        """Return the results after one more step."""
        return replace(self, steps=(*self.steps, step.result))

    def run(self, make_end: Callable[[], TaskEnd]) -> pa.Table:
        """Run the tasks; return ``GIVEN`` and ``N_ROWS`` of what their ends were given.

        Args:
            make_end: called in each task; it travels.
        """
        schema = StructType(
            [
                StructField(self.last[0], BinaryType()),
                StructField(GIVEN, BinaryType()),
                StructField(N_ROWS, LongType()),
            ]
        )
        ended = Tasks(self.tasks.rows, partial(self._work.ended, make_end)).returned(schema)
        seen = ended.observe(self.observation, *self.metrics(F.coalesce(F.sum(N_ROWS), F.lit(0))))
        return seen.where(f"{GIVEN} IS NOT NULL").select(GIVEN, N_ROWS).toArrow()

    def to_df(self, schema: StructType, kind: pa.Schema) -> DataFrame:
        """Return the results as rows of Spark's, where the sink can take no others.

        Args:
            schema: of the results.
            kind: the same as Arrow's.
        """
        report = self.last[0]
        # A row with a report has no results, so that any column may be NULL.
        fields = [StructField(each.name, each.dataType) for each in schema]
        kind = pa.schema([field.with_nullable(True) for field in kind])
        returned = StructType([*fields, StructField(report, BinaryType())])
        made = Tasks(self.tasks.rows, partial(self._work.rows, kind)).returned(returned)
        n_rows = F.count(F.when(F.col(report).isNull(), 1))
        seen = made.observe(self.observation, *self.metrics(n_rows))
        return seen.where(F.col(report).isNull()).drop(report)

    @property
    def _work(self) -> _Work:
        return _Work(self.tasks.work, self.last, self.steps)


class Blobs:
    """Sends results as blobs: Arrow batches in the IPC format; a ``TaskEnd``."""

    def __init__(self) -> None:
        self._held: list[pa.Table] = []
        self._n_bytes = 0

    def add(self, table: pa.Table) -> Iterator[tuple[bytes, int]]:
        """Hold results, and send those held if they are many."""
        self._held.append(table)
        self._n_bytes += table.nbytes
        if self._n_bytes >= BLOB_BYTES:
            yield from self.close()

    def close(self) -> Iterator[tuple[bytes, int]]:
        """Send what is held."""
        n_rows = sum(each.num_rows for each in self._held)
        if n_rows:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, self._held[0].schema) as stream:
                for each in self._held:
                    stream.write_table(each)
            yield sink.getvalue(), n_rows
        self._held, self._n_bytes = [], 0


@dataclass(frozen=True)
class _Work:
    """The work of tasks with the steps behind it; travels to them."""

    work: BatchTask
    last: tuple[str, ...]
    steps: tuple[Callable[[pa.Table], pa.Table], ...]

    def results(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table | pa.BinaryArray]:
        """Yield the results of a task as tables, after all steps, and its report as an array."""
        for batch in self.work(batches):
            report = batch.column(self.last[0])
            if report.null_count < len(report):
                assert len(report) == 1, "a report is in a batch of its own"
                yield report
                continue
            table = pa.Table.from_batches([batch]).drop_columns([*self.last])
            for step in self.steps:
                table = step(table)
            if table.num_rows:
                yield table

    def ended(
        self, make_end: Callable[[], TaskEnd], batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the reports of a task, and what its end returns."""
        end = make_end()
        for found in self.results(batches):
            if isinstance(found, pa.Table):
                for given in end.add(found):
                    yield self._row(*given)
            else:
                columns = [found, pa.nulls(1, pa.binary()), pa.nulls(1, pa.int64())]
                yield pa.RecordBatch.from_arrays(columns, [self.last[0], GIVEN, N_ROWS])
        for given in end.close():
            yield self._row(*given)

    def _row(self, given: Any, n_rows: int) -> pa.RecordBatch:
        """Return what the end of a task gives, as a row; a blob is not copied."""
        data = pa.py_buffer(given)
        offsets = pa.py_buffer(np.array([0, data.size], np.int32))
        binary = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, data])
        columns = [pa.nulls(1, pa.binary()), binary, pa.array([n_rows], pa.int64())]
        return pa.RecordBatch.from_arrays(columns, [self.last[0], GIVEN, N_ROWS])

    def rows(self, kind: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the results of a task with an empty report, and its report without a result."""
        schema = kind.append(pa.field(self.last[0], pa.binary()))
        for found in self.results(batches):
            if isinstance(found, pa.Table):
                columns = [*found.cast(kind).columns, pa.nulls(found.num_rows, pa.binary())]
            else:
                columns = [*(pa.nulls(1, each) for each in kind.types), found]
            yield from pa.Table.from_arrays(columns, schema=schema).to_batches()
