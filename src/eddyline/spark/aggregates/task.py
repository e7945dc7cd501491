"""The work of Spark's Python workers for an aggregate: one partition, which is one bucket."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.aggregates.bucket import state_of
from eddyline.aggregates.cells import in_order, merged
from eddyline.aggregates.changes import ChangeBatch, CountBatch, RowBatch
from eddyline.aggregates.columns import is_there, one_array
from eddyline.aggregates.plan import lifted
from eddyline.aggregates.sessions import SessionBatch
from eddyline.aggregates.slides import SharedBatch, SlideBatch
from eddyline.query.query import RowsWindow, SessionWindow, SlideWindow
from eddyline.spark.aggregates.columns import ROWS, START, code_columns
from eddyline.spark.arrow_tasks import BUCKET
from eddyline.spark.bucketed import BucketWorker, as_type
from eddyline.state.rows import Rows, as_kept

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eddyline.aggregates.bucket import BucketBatch
    from eddyline.aggregates.plan import AggregatePart, AggregatePlan, Lift
    from eddyline.aggregates.user import UserMonoid
    from eddyline.data.arrays import Ints, Mask

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
        if self.plan.frames:
            return RowBatch
        if self.plan.shares:
            return SharedBatch
        kinds = {SlideWindow: SlideBatch, SessionWindow: SessionBatch, RowsWindow: CountBatch}
        return kinds.get(type(self.plan.window), ChangeBatch)


def cells_of(arrived: Sequence[pa.RecordBatch], lifts: Mapping[str, Lift]) -> Rows | None:
    """Return the cells, or rows, that came to a bucket; None if none did.

    Args:
        arrived: in the order in which they came.
        lifts: how columns are made of those that came; none: these are they.
    """
    filled = [each for each in arrived if each.num_rows]
    if not filled:
        return None
    table = pa.Table.from_batches(filled).combine_chunks()
    coded = [*takewhile(table.column_names.__contains__, code_columns())]
    starts = _ints(table[START])
    ends = _ints(table[END]) if END in table.column_names else starts
    own = (*coded, START, END, BUCKET, ROWS)
    columns: Mapping[str, pa.Array | pa.ChunkedArray]
    columns = (
        lifted(table, starts, lifts)
        if lifts
        else {name: table[name] for name in table.column_names if name not in own}
    )
    payload = pa.table({name: as_type(of, as_kept(of.type)) for name, of in columns.items()})
    return Rows({key: _ints(table[name]) for key, name in enumerate(coded)}, starts, ends, payload)


def _n_rows(arrived: Sequence[pa.RecordBatch]) -> int:
    """Return the rows of cells, of which each knows how many it is of; of rows, their number."""
    return sum(
        pc.sum(each.column(ROWS)).as_py() or 0 if ROWS in each.schema.names else each.num_rows
        for each in arrived
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
        given = pc.list_flatten(column) if is_cells else column
        there = is_there(given)
        fields = [given.field(at).filter(pa.array(there)) for at in range(given.type.num_fields)]
        made = monoid.lifted(fields)
        sizes = pc.fill_null(pc.list_value_length(column), 0) if is_cells else None
        columns[name] = monoid.merge(made, *_ranges_of(sizes, there))
    return Rows(rows.codes, rows.starts, rows.ends, pa.table(columns), rows.passes)


def _ranges_of(sizes: pa.Array | None, there: Mask) -> tuple[Ints, Ints]:
    """Return the range of lifted rows of each cell, of which those that are there were lifted."""
    before = np.append(0, np.cumsum(there)).astype(np.int64)
    lengths = np.ones(there.size, np.int64) if sizes is None else sizes.to_numpy().astype(np.int64)
    ends = np.cumsum(lengths)
    return before[ends - lengths], before[ends]


def _ints(column: pa.ChunkedArray) -> np.ndarray:
    found: np.ndarray = column.to_numpy()
    return np.ascontiguousarray(found)
