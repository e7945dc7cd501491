"""Task of an aggregate in a Python worker.

One partition is one bucket. In the lane ``FileRows`` reads the rows of files and sends them to
buckets; see ``lane.exchange``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.aggregates.bucket import state_of
from eddyline.aggregates.cells import (
    CHECK,
    CODE,
    in_order,
    merged,
    put_together,
    rows_by_cell,
    together,
)
from eddyline.aggregates.changes import ChangeBatch, CountBatch, RowBatch, StayBatch
from eddyline.aggregates.columns import is_there, one_array
from eddyline.aggregates.correlations import CorrelationBatch
from eddyline.aggregates.monoids import MONOIDS
from eddyline.aggregates.plan import INSTANT, Lift, lifted
from eddyline.aggregates.windows import SessionBatch, SlideBatch
from eddyline.data.arrays import starts_of
from eddyline.data.hashes import add_hash, add_ints, seeds, whole_numbers
from eddyline.lane.exchange import BUCKET, FileBuckets
from eddyline.query.query import WINDOW, RowsWindow, SessionWindow, SlideWindow, StayWindow
from eddyline.spark.aggregates.columns import CHECK_SEED, ROWS, START, code_columns
from eddyline.spark.bucketed import BucketWorker, as_type
from eddyline.state.rows import Rows, as_kept

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eddyline.aggregates.bucket import BucketBatch
    from eddyline.aggregates.functions import UserMonoid
    from eddyline.aggregates.monoids import Monoid
    from eddyline.aggregates.plan import AggregatePart, AggregatePlan, Partials
    from eddyline.aggregates.windows import Slides
    from eddyline.data.arrays import Ints, Mask
    from eddyline.lane.expressions import Values
    from eddyline.lane.results import Picked
    from eddyline.query.query import Window
    from eddyline.spark.aggregates.columns import MaskedColumn

BATCHES: Mapping[type[Window], type[BucketBatch]] = {
    SlideWindow: SlideBatch,
    SessionWindow: SessionBatch,
    RowsWindow: CountBatch,
    StayWindow: StayBatch,
}
"""The work of a bucket by the kind of its window, where that is not ``ChangeBatch``."""

END = "__end"
"""The column of the last instant of a cell (µs)."""


@dataclass(frozen=True)
class AggregateWorker(BucketWorker):
    """Answers a bucket in a batch, and keeps its cells; goes to workers."""

    keeps: ClassVar[str] = "cells"
    plan: AggregatePlan
    part: AggregatePart
    """The state before the batch."""
    n_buckets: int

    def task(
        self, bucket: int, arrived: Sequence[pa.RecordBatch]
    ) -> tuple[BucketBatch, Rows | None]:
        """Return the work of a bucket, and the cells or rows that came to it."""
        rows = users_lifted(cells_of(arrived, self.plan.lifts), self.plan.users)
        if self.plan.reduces and rows is not None:
            rows = merged(in_order(rows), self.plan.partials.made)
        state = state_of(self.part, bucket, self.n_buckets, self.place)
        task = self.kind(self.plan, self.place, state, bucket)
        task.n_rows = _n_rows(arrived)
        return task, rows

    @property
    def kind(self) -> type[BucketBatch]:
        """The work of a bucket, by what is aggregated."""
        if self.plan.correlations:
            return CorrelationBatch
        if self.plan.frames:
            return RowBatch
        return BATCHES.get(type(self.plan.window), ChangeBatch)


@dataclass(frozen=True)
class PlainValues:
    """Output columns of an aggregate that need no expression; a count that is NULL becomes 0."""

    kept: tuple[str, ...]
    """Columns that results have as they are, such as groups."""
    values: Mapping[str, tuple[str, bool]]
    """The column that tasks return for each value, and whether NULL stands for 0."""
    instant: pa.DataType | None
    """The type of the ends of windows; None: results have no window."""
    start: str | int | None
    """The column of the start of a window, or its length (µs); None: windows have no start."""
    picked: Picked | None
    """The output columns of these; None: all."""
    having: Values | None = None
    """Whether a result stays; None: all do."""

    def __call__(self, answered: pa.Table) -> pa.Table:
        """Return the results in what a bucket has answered."""
        columns = {name: answered[name] for name in self.kept}
        for name, (column, is_count) in self.values.items():
            columns[name] = answered[column].fill_null(0) if is_count else answered[column]
        if self.instant is not None:
            columns[WINDOW] = self._windows(answered)
        table = pa.table(columns)
        if self.having is not None:
            table = table.filter(self.having.over(table))
        return table if self.picked is None else self.picked(table)

    def _windows(self, answered: pa.Table) -> pa.StructArray:
        end = answered[INSTANT].combine_chunks()
        if self.start is None:
            first = pa.nulls(answered.num_rows, pa.int64())
        elif isinstance(self.start, str):
            first = answered[self.start].combine_chunks()
        else:
            first = pc.subtract(end, self.start)
        ends = [first.cast(self.instant), end.cast(self.instant)]
        return pa.StructArray.from_arrays(ends, ["start", "end"])


def cells_of(arrived: Sequence[pa.RecordBatch], lifts: Mapping[str, Lift]) -> Rows | None:
    """Return the cells, or rows, that came to a bucket; None if none did.

    Args:
        arrived: in the order in which they came.
        lifts: how columns are made of those that came; none: these are they.
    """
    filled = [batch for batch in arrived if batch.num_rows]
    if not filled:
        return None
    table = pa.Table.from_batches(filled).combine_chunks()
    coded = [*takewhile(table.column_names.__contains__, code_columns())]
    starts = _ints(table[START])
    ends = _ints(table[END]) if END in table.column_names else starts
    key_columns = (*coded, START, END, BUCKET, ROWS)
    columns: Mapping[str, pa.Array | pa.ChunkedArray]
    columns = (
        lifted(table, starts, lifts)
        if lifts
        else {name: table[name] for name in table.column_names if name not in key_columns}
    )
    payload = pa.table(
        {name: as_type(column, as_kept(column.type)) for name, column in columns.items()}
    )
    return Rows({key: _ints(table[name]) for key, name in enumerate(coded)}, starts, ends, payload)


def _n_rows(arrived: Sequence[pa.RecordBatch]) -> int:
    """Return the rows of cells, of which each knows how many it is of; of rows, their number."""
    return sum(
        pc.sum(batch.column(ROWS)).as_py() or 0 if ROWS in batch.schema.names else batch.num_rows
        for batch in arrived
    )


def users_lifted(rows: Rows | None, users: Mapping[str, UserMonoid]) -> Rows | None:
    """Return rows or cells whose columns of users' aggregates are partials, and not arguments.

    Of cells the arguments of all their rows came, in a list.
    """
    if rows is None or not users:
        return rows
    columns = dict(zip(rows.payload.column_names, rows.payload.columns, strict=True))
    for name, monoid in users.items():
        column = one_array(columns[name])
        is_cells = pa.types.is_list(column.type)
        arguments = pc.list_flatten(column) if is_cells else column
        there = is_there(arguments)
        fields = [
            arguments.field(index).filter(pa.array(there))
            for index in range(arguments.type.num_fields)
        ]
        partials = monoid.lifted(fields)
        sizes = pc.fill_null(pc.list_value_length(column), 0) if is_cells else None
        columns[name] = monoid.merge(partials, *_ranges_of(sizes, there))
    return Rows(rows.codes, rows.starts, rows.ends, pa.table(columns), rows.passes)


def _ranges_of(sizes: pa.Array | None, there: Mask) -> tuple[Ints, Ints]:
    """Return the range of lifted rows of each cell, of which those that are there were lifted."""
    before = starts_of(there)
    lengths = np.ones(there.size, np.int64) if sizes is None else sizes.to_numpy().astype(np.int64)
    ends = np.cumsum(lengths)
    return before[ends - lengths], before[ends]


def _ints(column: pa.ChunkedArray) -> np.ndarray:
    numbers: np.ndarray = column.to_numpy()
    return np.ascontiguousarray(numbers)


REDUCED_ROWS, REDUCED_BYTES = 1 << 17, 64 << 20
"""Rows, or cells, of which a task that reads files makes cells at once, and their bytes."""


@dataclass(frozen=True)
class FileRows(FileBuckets):
    """Reads rows that are on time, and sends cells of them to the buckets, or rows as they are."""

    before: int
    """The instant before which rows are late (µs)."""
    levels: tuple[tuple[str, ...], ...]
    """The columns of groups; coarser groups, of which cells have codes too, come behind. The last
    ones are cut into buckets."""
    travels: Mapping[str, str]
    """The columns of the files that travel, by the names that ``lifts`` has for them."""
    masked: Mapping[str, MaskedColumn]
    """Those that are made of columns of the files by conditions."""
    lifts: Mapping[str, Lift]
    """How columns of cells are made of them."""
    slides: Slides | None
    """Cuts time into cells; None: rows are sent as they are."""
    partials: Partials
    """How partial aggregates of cells are put together."""

    def bucketed(self, blocks: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.RecordBatch]:
        """Yield cells, or rows, with their codes and buckets."""
        rows = filter(len, map(self._timely, blocks))
        if self.slides is None:
            return map(self._as_they_are, rows)
        return self._cells(rows)

    def _timely(self, block: tuple[pa.Array, ...]) -> pa.RecordBatch:
        """Return the rows of a block that are on time."""
        rows = pa.RecordBatch.from_arrays(list(block), list(self.handed))
        times = rows.column(self.time)
        is_timely = is_there(times) & (whole_numbers(times) >= self.before)
        return self._with_masked(rows if is_timely.all() else rows.filter(pa.array(is_timely)))

    def _with_masked(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with the columns that conditions make; each condition is evaluated once."""
        if not self.masked or not len(rows):
            return rows
        passes: dict[str, Mask] = {}
        columns = []
        for masked in self.masked.values():
            test = masked.test
            if test.id not in passes:
                tested = [rows.column(name) for name in test.columns]
                passes[test.id] = test.keeps(tested, len(rows))
            columns.append(masked.of_rows(rows, passes[test.id]))
        names = [*rows.schema.names, *self.masked]
        return pa.RecordBatch.from_arrays([*rows.columns, *columns], names)

    def _codes(self, rows: pa.RecordBatch) -> dict[int, Ints]:
        """Return the codes of groups, as ``Groups.codes`` has them."""
        codes: dict[int, Ints] = {}
        for level, names in enumerate(self.levels):
            columns = [rows.column(name) for name in names]
            nulls = np.zeros(len(rows), np.int64)
            for place, column in enumerate(columns):
                if column.null_count:
                    nulls += ~is_there(column) * (1 << place)
            for key, seed in ((CODE, ()), (CHECK, (CHECK_SEED,))):
                hashes = seeds(len(rows), *seed)
                add_ints(hashes, nulls)
                for column in columns:
                    add_hash(hashes, column)
                codes[2 * level + key] = hashes
        return codes

    def _as_they_are(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        codes, micros = self._codes(rows), whole_numbers(rows.column(self.time))
        shuffle_columns = {name: rows.column(column) for name, column in self.travels.items()}
        return self._sent(codes, micros, shuffle_columns)

    def _cells(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the cells of rows; rows of a group that lie close together become one."""
        reduced: list[Rows] = []
        held: list[pa.RecordBatch] = []
        for batch in rows:
            held.append(batch)
            if _are_many(held):
                reduced.append(self._reduced(held))
                held = []
            if _are_many([cells.payload for cells in reduced]):
                cells = self._together(reduced)
                is_full = _are_many([cells.payload] * 2)
                reduced = [] if is_full else [cells]
                if is_full:
                    yield self._as_sent(cells)
        if held:
            reduced.append(self._reduced(held))
        if reduced:
            yield self._as_sent(self._together(reduced))

    @cached_property
    def _monoids(self) -> dict[str, Monoid]:
        return {**self.partials.made, ROWS: MONOIDS["count"]}

    def _reduced(self, parts: list[pa.RecordBatch]) -> Rows:
        """Return the cells of rows."""
        assert self.slides is not None
        rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
        micros = whole_numbers(rows.column(self.time))
        starts, codes = self.slides.cells_of(micros), self._codes(rows)
        order, bounds = rows_by_cell(codes, starts)
        firsts, places = order[bounds[:-1]], pa.array(order)
        columns = {ROWS: pa.array(np.diff(bounds))}
        # In the order of Spark's columns: cells that Spark made are put together with these.
        for name, lift in self.lifts.items():
            monoid, column = self._monoids.get(name), self.travels.get(lift.source)
            wanted = pa.array(firsts) if monoid is None else places
            taken = {} if column is None else {lift.source: rows.column(column).take(wanted)}
            values = one_array(lift.column(pa.table(taken), micros[order]))
            values = as_type(values, as_kept(values.type))
            columns[name] = (
                values if monoid is None else monoid.merge(values, bounds[:-1], bounds[1:])
            )
        instants = starts[firsts]
        return Rows(
            {key: code[firsts] for key, code in codes.items()},
            instants,
            instants,
            pa.table(columns),
        )

    def _together(self, parts: list[Rows]) -> Rows:
        """Return cells with those of one group and start as one."""
        if len(parts) == 1:
            return parts[0]
        cells = together(parts)
        order, bounds = rows_by_cell(cells.codes, cells.starts)
        if len(bounds) > len(cells):
            return cells
        return put_together(cells.taken(order), bounds[:-1], self._monoids)

    def _as_sent(self, cells: Rows) -> pa.RecordBatch:
        columns = dict(zip(cells.payload.column_names, cells.payload.columns, strict=True))
        return self._sent(cells.codes, cells.starts, columns)

    def _sent(
        self,
        codes: Mapping[int, Ints],
        starts: Ints,
        columns: Mapping[str, pa.Array | pa.ChunkedArray],
    ) -> pa.RecordBatch:
        buckets = (codes[2 * len(self.levels) - 2] % self.n_buckets).astype(np.int32)
        named = dict(zip(code_columns(), (codes[key] for key in sorted(codes)), strict=False))
        arrays = {name: one_array(column) for name, column in columns.items()}
        return pa.RecordBatch.from_pydict({BUCKET: buckets, **named, START: starts, **arrays})


def _are_many(parts: Sequence[pa.RecordBatch | pa.Table]) -> bool:
    """Return whether rows are so many, or so large, that cells are made of them."""
    n_rows, n_bytes = sum(part.num_rows for part in parts), sum(part.nbytes for part in parts)
    return bool(n_rows >= REDUCED_ROWS or n_bytes >= REDUCED_BYTES)
