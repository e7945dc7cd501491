"""Late rows on their way to files: what a clock puts aside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from eddyline.spark.arrow_tasks import task_ids
from eddyline.state.late_rows import write_late_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eddyline.state.manifest import StatePlace

MICROS = "__micros"
"""The column of the event time of rows (µs)."""


@dataclass(frozen=True, slots=True)
class LateRows:
    """Writes late rows; goes to workers."""

    place: StatePlace
    batch_id: int
    stream: str
    low: int
    """Watermark: rows before it are late (µs)."""

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of a partition as a file, and return its name and their number."""
        arrived = [each for each in batches if each.num_rows]
        if not arrived:
            return
        table = pa.Table.from_batches(arrived)
        starts = table[MICROS].to_numpy()
        rows = table.drop_columns([MICROS])
        at = self.batch_id, task_ids()[0], self.stream
        file = write_late_table(self.place, *at, rows, starts, self.low)
        yield pa.RecordBatch.from_pydict({"file": [file], "n": [table.num_rows]})
