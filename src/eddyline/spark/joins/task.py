"""Task of a join in a Python worker.

One partition is one bucket. In the lane ``FileJoinRows`` reads the rows of one stream and sends
them to buckets; see ``lane.exchange``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.data.hashes import add_hash, seeds, whole_numbers
from eddyline.joins.operator.bucket import BucketBatch, MemberBatch
from eddyline.joins.operator.event_time import (
    CountedPartnerBatch,
    OrderedBatch,
    PartnerBatch,
    results_by_partner,
    results_of_all,
)
from eddyline.joins.operator.pipeline import results
from eddyline.joins.operator.products import results_as_products
from eddyline.joins.plan import JoinWork, ProductCounts
from eddyline.lane.exchange import FileBuckets, by_bucket
from eddyline.spark.arrow_tasks import begin_task, task_ids
from eddyline.spark.bucketed import BucketWorker, as_sent, as_type, state_of
from eddyline.spark.joins.layout import INPUT, KEY, PASSES, START
from eddyline.state.bucket_state import BucketState
from eddyline.state.grid import bins_of
from eddyline.state.late_rows import write_late
from eddyline.state.rows import Rows, SortedRun, as_kept, result_column, values_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from eddyline.joins.plan import BatchPlan
    from eddyline.lane.exchange import Condition
    from eddyline.spark.joins.layout import InputLayout
    from eddyline.state.grid import Buckets, Grid
    from eddyline.state.manifest import StatePlace
    from eddyline.state.rows import KeyColumn


@dataclass(frozen=True)
class Shape:
    """The columns of rows that come in and of results that go out."""

    layouts: tuple[InputLayout, ...]
    results: pa.Schema
    """The columns of all inputs, named ``input.column``; behind them the report."""
    compared: tuple[tuple[str, str], ...] = ()
    """Pairs of these columns that are equal in a result, beside codes."""

    def inputs(self, batches: Iterable[pa.RecordBatch]) -> tuple[dict[str, Rows], dict[str, int]]:
        """Return the rows of a partition by input, and the latest event times (µs) of the others.

        Both are of inputs that have such rows; the others come for their event time alone.
        """
        arrived = list(batches)
        if not arrived:
            return {}, {}
        table, latest = self._without_times(pa.Table.from_batches(arrived))
        numbers = pc.unique(table[INPUT]).to_pylist()
        if len(numbers) == 1:
            return {self.layouts[numbers[0]].name: self._rows(table, numbers[0])}, latest
        rows = {
            self.layouts[number].name: self._rows(
                table.filter(pc.equal(table[INPUT], number)), number
            )
            for number in sorted(numbers)
        }
        return rows, latest

    def _without_times(self, table: pa.Table) -> tuple[pa.Table, dict[str, int]]:
        """Return rows without pure time markers, and the latest time of these."""
        if PASSES not in table.column_names or not table[PASSES].null_count:
            return table, {}
        is_time = pc.is_null(table[PASSES])
        maxima = table.filter(is_time).group_by(INPUT).aggregate([(START, "max")])
        latest = zip(maxima[INPUT].to_pylist(), maxima[f"{START}_max"].to_pylist(), strict=True)
        return table.filter(pc.invert(is_time)), {
            self.layouts[n].name: instant for n, instant in latest
        }

    def _rows(self, table: pa.Table, number: int) -> Rows:
        """Return the rows of one input."""
        layout = self.layouts[number]
        starts = table[START].to_numpy()
        ends = layout.window.ends(starts)
        codes = {key: _code(table[f"{KEY}{key}"]) for key in layout.keys}
        arrays = {START: starts} | {f"{KEY}{key}": values for key, values in codes.items()}
        payload = pa.table(
            [
                values_of(arrays[place], as_kept(self._kind(layout, name)))
                if place in arrays
                else as_type(table[place], as_kept(table[place].type))
                for name, place in layout.carried
            ],
            names=[name for name, _ in layout.carried],
        )
        passes = table[PASSES].to_numpy() if layout.is_raw else None
        return Rows(codes, starts, ends, payload, passes)

    def _kind(self, layout: InputLayout, column: str) -> pa.DataType:
        return self.results.field(result_column(layout.name, column)).type

    def sent(self, results: pa.Table) -> pa.Table:
        """Return the results whose compared keys are equal, in Spark's types.

        A column that they lack is NULL.
        """
        for one, other in self.compared:
            is_equal = pc.fill_null(pc.equal(results[one], results[other]), False)
            if not pc.all(is_equal).as_py():
                results = results.filter(is_equal)
        return as_sent(results, self.results)


@dataclass(frozen=True)
class OnceWorker:
    """Joins the rows of a partition with each other; nothing is kept."""

    plan: BatchPlan
    shape: Shape

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Join the rows of a partition."""
        begin_task()
        inputs, _ = self.shape.inputs(batches)
        for joined in self._results(inputs):
            yield from self.shape.sent(joined).to_batches()

    def _results(self, inputs: Mapping[str, Rows]) -> Iterator[pa.Table]:
        if self.plan.partners is not None:
            return results_by_partner(self.plan, inputs)
        if self.plan.order is not None:
            return results_of_all(self.plan, inputs)
        plan, news = self.plan, {name: SortedRun.from_rows(rows) for name, rows in inputs.items()}
        combinations = results(plan.graph, plan.orders, {}, news, JoinWork())
        if plan.products is None:
            return combinations
        counts = ProductCounts()
        return results_as_products(plan.products, plan.graph, {}, news, combinations, counts)


@dataclass(frozen=True)
class BatchWorker(BucketWorker):
    """Joins the rows of a batch with each other and with the windows, and keeps them."""

    keeps: ClassVar[str] = "windows"
    plan: BatchPlan
    shape: Shape
    before: Buckets
    """The windows before the batch."""

    def task(
        self, bucket: int, arrived: Sequence[pa.RecordBatch]
    ) -> tuple[BucketBatch, dict[str, Rows]]:
        """Return the work of a bucket, and the rows of each input that came to it."""
        assert self.place is not None
        inputs, latest = self.shape.inputs(arrived)
        state = self.plan, self.place, self.before.get(bucket, BucketState()), bucket
        if self.plan.order is not None:
            ordered = OrderedBatch if self.plan.partners is None else CountedPartnerBatch
            return ordered(*state, latest), inputs
        if self.plan.partners is not None:
            return PartnerBatch(*state, latest), inputs
        return (MemberBatch if self.plan.members else BucketBatch)(*state), inputs

    def sent(self, table: pa.Table) -> pa.Table:
        """Return the results whose compared keys are equal, in Spark's types."""
        return self.shape.sent(table)


@dataclass(frozen=True)
class TableWorker(BatchWorker):
    """Keeps the rows of a table, which meet nothing."""

    keeps: ClassVar[str] = "tables"

    def task(
        self, bucket: int, arrived: Sequence[pa.RecordBatch]
    ) -> tuple[BucketBatch, dict[str, Rows]]:
        """Return the work of a bucket without windows, and the rows that came to it."""
        assert self.place is not None
        inputs, _ = self.shape.inputs(arrived)
        return BucketBatch(self.plan, self.place, BucketState(), bucket), inputs


@dataclass(frozen=True)
class LateWorker:
    """Writes late rows of one input, where no bucket meets them."""

    batch_id: int
    shape: Shape
    place: StatePlace
    keys_only: Mapping[str, tuple[KeyColumn, ...]]
    """By input: key columns that its rows do not carry, because their codes tell them."""
    low: int
    """Watermark: rows before it are late (µs)."""

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of a partition, and return the name of the file and their number.

        Raises:
            StateError: it cannot be written.
        """
        begin_task()
        inputs, _ = self.shape.inputs(batch for batch in batches if batch.num_rows)
        for name, rows in inputs.items():
            keys = self.keys_only.get(name, ())
            file_key = self.batch_id, task_ids()[0], name
            with state_of(file_key[1], "late rows", self.place.late):
                file = write_late(self.place, *file_key, rows, keys, self.low)
            yield pa.RecordBatch.from_pydict({"file": [file], "n": [len(rows)]})


def _code(codes: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return codes; any for NULL, which a row has that cannot join."""
    numbers: NDArray[np.int64] = (pc.fill_null(codes, 0) if codes.null_count else codes).to_numpy()
    return numbers


@dataclass(frozen=True)
class FileJoinRows(FileBuckets):
    """Reads the rows of one input that can join, and sends them to the buckets of a grid."""

    number: int
    """Of the input."""
    name: str
    """Of the input."""
    keys: Mapping[int, str]
    """The column of each of its key classes."""
    hashed: tuple[int, ...]
    """The key classes whose codes are hashes."""
    slots: Mapping[str, str]
    """The columns that results need, by the common columns that hold them."""
    common: pa.Schema
    """The columns of rows of all inputs."""
    grid: Grid
    wheres: tuple[Condition | None, ...] = ()
    """The condition of each of several queries on its rows; None: it needs all."""
    marks_in: str = ""
    """The common column that says which of them need a row."""

    def bucketed(self, blocks: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.RecordBatch]:
        """Yield rows with an event time and all keys, as common rows."""
        return filter(len, map(self._as_common, blocks))

    def _as_common(self, block: tuple[pa.Array, ...]) -> pa.RecordBatch:
        rows = pa.RecordBatch.from_arrays(list(block), list(self.handed))
        needed = [rows.column(name) for name in (self.time, *self.keys.values())]
        if any(column.null_count for column in needed):
            rows = rows.filter(reduce(pc.and_, map(pc.is_valid, needed)))
        n = rows.num_rows
        values = {INPUT: pa.repeat(pa.scalar(self.number, pa.int32()), n)}
        values[START] = pa.array(whole_numbers(rows.column(self.time)))
        for key, column in self.keys.items():
            values[f"{KEY}{key}"] = pa.array(self._code(key, rows.column(column)))
        values |= {place: rows.column(column) for place, column in self.slots.items()}
        if self.marks_in:
            values[self.marks_in] = pa.array(self._marks(rows))
        columns = [
            values[field.name].cast(field.type) if field.name in values else pa.nulls(n, field.type)
            for field in self.common
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.common)

    def _marks(self, rows: pa.RecordBatch) -> NDArray[np.int64]:
        """Return the bits of the queries that need each row."""
        bits = np.zeros(rows.num_rows, np.int64)
        for bit, where in enumerate(self.wheres):
            if where is None:
                bits |= 1 << bit
            else:
                columns = [rows.column(name) for name in where.columns]
                bits |= where.keeps(columns, rows.num_rows).astype(np.int64) << bit
        return bits

    def _code(self, key: int, column: pa.Array) -> NDArray[np.int64]:
        """Return the codes of a key class; see ``layout.codes_of``."""
        if key not in self.hashed:
            return whole_numbers(column)
        hashes = seeds(len(column))
        add_hash(hashes, column)
        return hashes

    def parted(self, rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of each bucket; along classes of other inputs a row goes to all."""
        codes = {key: rows.column(f"{KEY}{key}").to_numpy() for key in self.keys}
        if self.grid.splits:
            starts = rows.column(START).to_numpy()
            for bucket in range(self.n_buckets):
                held = self.grid.holds(bucket, self.name, codes, starts)
                if held.any():
                    yield bucket, rows.filter(pa.array(held))
            return
        shape = self.grid.shape
        places = [
            bins_of(codes[key]) % size if key in codes else np.zeros(len(rows), np.int64)
            for key, size in enumerate(shape)
        ]
        first = np.ravel_multi_index(places, shape) if shape else np.zeros(len(rows), np.int64)
        parts = list(by_bucket(rows, first, self.n_buckets))
        others = [range(1) if key in codes else range(size) for key, size in enumerate(shape)]
        for place in product(*others):
            beyond = int(np.ravel_multi_index(place, shape)) if shape else 0
            for bucket, part in parts:
                yield bucket + beyond, part


def in_structs(schema: pa.Schema, results: pa.Table) -> pa.Table:
    """Return results with a struct for each input, made of the columns that tasks return."""
    structs = []
    for name, kind in zip(schema.names, schema.types, strict=True):
        if not pa.types.is_struct(kind):  # which query a result is of
            structs.append(as_type(results[name], kind).combine_chunks())
            continue
        columns = [
            as_type(results[result_column(name, field.name)], field.type).combine_chunks()
            for field in kind
        ]
        # Of an input that no output column reads, results have a struct without fields.
        structs.append(pa.Array.from_buffers(kind, results.num_rows, [None], children=columns))
    return pa.Table.from_arrays(structs, schema=schema)
