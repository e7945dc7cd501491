"""Task of models of a stream in a Python worker.

One partition is one bucket.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from eddyline.lane.exchange import BUCKET
from eddyline.models.entities.kept import CODE
from eddyline.models.graph import SIDE
from eddyline.models.streams.bucket import BucketBatch, SharedBatch, early_batch
from eddyline.models.streams.plan import ANY, BucketState, SharedPlan
from eddyline.spark.bucketed import BucketWorker
from eddyline.state.rows import as_kept

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.models.streams.plan import ModelPart, StreamPlan


@dataclass(frozen=True)
class ModelWorker(BucketWorker):
    """Answers a bucket in a batch, and keeps what it needs later; goes to workers."""

    keeps: ClassVar[str] = "rows and segments"
    plan: StreamPlan
    part: ModelPart
    """The state before the batch."""
    until: int
    """The instant before which all rows are there (µs)."""
    offset: int
    """From the time of a row to its instant (µs)."""
    zone: str | None
    """The time zone of timestamps; see ``segments.table_of``."""
    cut: int = ANY
    """The greatest code of an entity that is drawn."""
    columns: tuple[dict[str, str], ...] | None = None
    """Of several inputs the columns of each; see ``Arriving.columns``."""
    version: int = -1
    """The number of the batch, which early results have with them."""

    def task(self, bucket: int, arrived: Sequence[pa.RecordBatch]) -> tuple[BucketBatch, Any]:
        """Return the work of a bucket, and the rows of each input that came to it."""
        assert self.place is not None
        state = self.part.buckets.get(bucket, BucketState())
        arguments = (
            self.plan, self.place, state, bucket, self.until, self.offset, self.zone, self.cut,
        )  # fmt: skip
        rows = self._inputs(_rows_of(arrived))
        if self.plan.is_early:
            return early_batch(self.plan)(*arguments, version=self.version), rows
        kind = SharedBatch if isinstance(self.plan, SharedPlan) else BucketBatch
        return kind(*arguments), rows

    def _inputs(self, rows: pa.Table | None) -> list[pa.Table | None]:
        """Return the rows of each input under their own names; None if none have come."""
        if rows is None:
            return [None] * len(self.plan.inputs)
        if self.columns is None:
            return [rows]
        side = rows.column(SIDE).to_numpy()
        tables: list[pa.Table | None] = []
        for number, columns in enumerate(self.columns):
            side_rows = rows.filter(pa.array(side == number))
            names = {name: name for name in (*self.plan.keys, CODE)} | columns
            # What is there from the start comes once, and so do its columns.
            taken = side_rows.select(list(names)) if len(side_rows) else None
            tables.append(None if taken is None else taken.rename_columns(list(names.values())))
        return tables


def _rows_of(arrived: Sequence[pa.RecordBatch]) -> pa.Table | None:
    """Return the rows that came to a bucket, in types that files keep whatever the session is."""
    filled = [batch for batch in arrived if batch.num_rows]
    if not filled:
        return None
    table = pa.Table.from_batches(filled).drop_columns([BUCKET])
    kept = pa.schema([pa.field(field.name, as_kept(field.type)) for field in table.schema])
    return table if table.schema.equals(kept) else table.cast(kept)
