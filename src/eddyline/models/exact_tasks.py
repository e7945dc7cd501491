"""What tasks do for exact answers: where conditions may hold, and of which rows models say nothing.

Both come as ranges of entities: a row outside all of them does not satisfy the condition.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.models.exact import FALSE, decide, uncovered
from eddyline.models.rows import (
    entity_ids,
    instants_of,
    keyed,
    micros_of,
    values_of,
)
from eddyline.models.tasks import SIDE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eddyline.data.arrays import Indices, Ints
    from eddyline.models.conditions import Condition
    from eddyline.models.rows import Layout

SINCE, UNTIL = "since", "until"
"""The columns of ranges."""
ATTRIBUTE = "__attribute"
"""Beside these the place of the attribute that they are of."""
ROW_TIME, ROW_VALUE = "__time", "__value_"
"""The columns of rows beside those of segments: their instants, and what stands before values."""


def open_ranges(
    tables: Iterable[pa.Table], layout: Layout, condition: Condition, *, are_doubles: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the ranges of segments on which rows may satisfy a condition."""
    for table in tables:
        given = keyed(table, layout)
        found = decide(given.segments, condition, are_doubles=are_doubles)
        kept = found.take(found.codes != FALSE)
        yield from _ranges(given.entities, kept.keys, kept.lo, kept.hi, table.column("lo").type)


def uncovered_instants(
    tables: Iterable[pa.Table], layout: Layout, attributes: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the instants of rows for whose value of an attribute segments' errors do not hold.

    ``ATTRIBUTE`` says of which attribute, by its place. Rows without a value (NULL) are left out:
    they satisfy no comparison of it.

    Args:
        tables: segments and rows, all of an entity in one; ``SIDE`` is 1 for rows.
        layout: the columns of segments.
        attributes: those that conditions read.
    """
    for table in tables:
        ids, first = entity_ids(table, layout.keys)
        is_row = table.column(SIDE).to_numpy() == 1
        rows = table.filter(pa.array(is_row))
        if not len(rows):
            continue
        segments = keyed(table.filter(pa.array(~is_row)), layout).segments
        segments = replace(segments, keys=ids[~is_row])
        times, keys = micros_of(rows.column(ROW_TIME)), ids[is_row]
        values = values_of(rows, [ROW_VALUE + each for each in attributes])
        entities = table.select(list(layout.keys)).take(pa.array(first))
        kind = rows.column(ROW_TIME).type
        for number, name in enumerate(attributes):
            column = rows.column(ROW_VALUE + name)
            is_there = pc.is_valid(column).to_numpy(zero_copy_only=False).astype(np.bool_)
            at = np.flatnonzero(is_there)
            at = at[uncovered(segments, keys[at], times[at], {name: values[ROW_VALUE + name][at]})]
            for found in _ranges(entities, keys[at], times[at], times[at] + 1, kind):
                own = pa.array(np.full(found.num_rows, number, np.int32))
                yield found.append_column(ATTRIBUTE, own)


def _ranges(
    entities: pa.Table, keys: Indices, lo: Ints, hi: Ints, kind: pa.DataType
) -> list[pa.RecordBatch]:
    zone = None if kind.tz is None else "UTC"
    names = entities.take(pa.array(keys))
    columns = dict(zip(names.column_names, names.columns, strict=True))
    columns[SINCE], columns[UNTIL] = instants_of(lo, zone), instants_of(hi, zone)
    found: list[pa.RecordBatch] = pa.table(columns).combine_chunks().to_batches()
    return found


def closed(lo: Ints, hi: Ints, most: int) -> tuple[Ints, Ints]:
    """Return at most so many ranges that have all of some ranges in them, in ascending order.

    Args:
        lo: where ranges begin, ``[n]``.
        hi: where they end, exclusive, ``[n]``.
        most: how many come out at most, 1 or more: the shortest gaps are closed.
    """
    if not len(lo):
        return lo, hi
    order = np.argsort(lo, kind="stable")
    lo, reach = lo[order], np.maximum.accumulate(hi[order])
    gaps = lo[1:] - reach[:-1]
    ends = np.flatnonzero(gaps > 0)
    if len(ends) >= most:
        longest = np.argsort(gaps[ends], kind="stable")[len(ends) - most + 1 :]
        ends = np.sort(ends[longest])
    return lo[np.append(0, ends + 1)], reach[np.append(ends, len(lo) - 1)]
