"""What runs in Spark's Python workers for a join: the buckets of one partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.joins.operator import results
from eddyline.joins.rows import FOREVER, Rows, SortedRun
from eddyline.spark.join_source import BUCKET, INPUT, KEY, START

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eddyline.joins.graph import JoinGraph
    from eddyline.spark.join_source import InputLayout


@dataclass(frozen=True)
class JoinWorker:
    """Everything that a task needs to join the rows of its buckets."""

    graph: JoinGraph
    orders: Mapping[str, tuple[str, ...]]
    """For each input, the order in which its rows meet the others."""
    layouts: tuple[InputLayout, ...]
    schema: pa.Schema
    """Of the results: a struct for each input."""

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Join the rows of a partition."""
        arrived = list(batches)
        if not arrived:
            return
        for rows in _by_number(pa.Table.from_batches(arrived), BUCKET).values():
            for found in results(self.graph, self.orders, {}, self._runs(rows)):
                yield from self._shaped(found).to_batches()

    def _runs(self, table: pa.Table) -> dict[str, SortedRun]:
        by_input = _by_number(table, INPUT)
        return {
            each.name: SortedRun.of(_rows(by_input[each.number], each))
            for each in self.layouts
            if each.number in by_input
        }

    def _shaped(self, found: pa.Table) -> pa.Table:
        """Return results as Spark takes them."""
        columns = []
        for each in self.layouts:
            kind = self.schema.field(each.name).type
            parts = [found[f"{each.name}.{name}"].combine_chunks() for name, _ in each.columns]
            # A struct without fields says nothing of its length.
            nothing = pa.array([{}] * found.num_rows, kind)
            columns.append(
                pa.StructArray.from_arrays(parts, fields=list(kind)) if parts else nothing
            )
        return pa.Table.from_arrays(columns, schema=self.schema)


def _by_number(table: pa.Table, column: str) -> dict[int, pa.Table]:
    """Return the rows of each value of a column of numbers."""
    values = pc.unique(table[column]).to_pylist()
    if len(values) == 1:
        return {values[0]: table}
    return {value: table.filter(pc.equal(table[column], value)) for value in values}


def _rows(table: pa.Table, each: InputLayout) -> Rows:
    starts = table[START].to_numpy()
    if each.length == FOREVER:
        ends = np.full(starts.size, FOREVER)
    else:
        # Where the end of a window is beyond all instants, its rows stay.
        ends = np.where(starts > FOREVER - each.length, FOREVER, starts + each.length)
    codes = {key: table[f"{KEY}{key}"].to_numpy() for key in each.keys}
    names = [name for name, _ in each.columns]
    payload = pa.table([table[slot] for _, slot in each.columns], names=names)
    return Rows(codes, starts, ends, payload)
