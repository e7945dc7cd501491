"""Blocks of Arrow batches: large enough for arrays to pay, or with all rows of an entity."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.models.rows import is_other_entity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

BLOCK_ROWS = 1 << 18
"""Rows that are fitted, or segments that are solved, at once."""


def tables(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the batches of a task in tables of a size that pays."""
    pending: list[pa.RecordBatch] = []
    for each in batches:
        pending.append(each)
        if sum(map(len, pending)) >= BLOCK_ROWS:
            yield pa.Table.from_batches(pending)
            pending = []
    if pending:
        yield pa.Table.from_batches(pending)


def entity_blocks(
    tables: Iterable[pa.Table], keys: Sequence[str], *, block_rows: int = BLOCK_ROWS
) -> Iterator[pa.Table]:
    """Yield tables that have all rows of each entity in them, of rows that come by entity."""
    held: list[pa.Table] = []
    n, least = 0, block_rows
    for each in tables:
        held.append(each)
        n += len(each)
        if n < least:
            continue
        table = pa.concat_tables(held)
        last = int(np.flatnonzero(is_other_entity(table, keys))[-1])
        if last:
            yield table.slice(0, last)
            table, n = table.slice(last), n - last
        held, least = [table], max(block_rows, 2 * n)
    if n:
        yield pa.concat_tables(held)
