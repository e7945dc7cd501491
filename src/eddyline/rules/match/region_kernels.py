"""Compiled: where values lie, among regions by their keys or among constants byte by byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from eddyline.data.arrays import Bytes, Int32s, Ints, Mask
    from eddyline.rules.compile.region_tables import CutTables


@compiled
def regions_of(
    keys: Ints,
    nulls: Mask,
    first_row: int,
    rows: Ints,
    n_rows: int,
    tables: CutTables,
    construct: int,
    found: Int32s,
) -> None:
    """Write the regions of some rows in a construct.

    Of the keys and NULLs of all rows ((R,)), those count whose numbers are the first ``n_rows`` of
    ``rows`` plus ``first_row``; their regions are filled in.
    """
    cuts, table = tables.cuts, tables.table
    start, end = tables.cuts_at[construct], tables.cuts_at[construct + 1]
    at, shift = tables.table_at[construct], tables.shift[construct]
    first, last = tables.first[construct], tables.last[construct]
    if at < 0:
        for index in range(n_rows):
            row = first_row + rows[index]
            # No branch on what is found, so none goes wrong.
            low, left = start, end - start
            while left > 1:
                half = left >> 1
                low = low + half if cuts[low + half] <= keys[row] else low
                left -= half
            region = low - start + 1 + (cuts[low] <= keys[row])
            found[index] = 0 if nulls[row] else region
    elif shift == 0:
        for index in range(n_rows):
            row = first_row + rows[index]
            region = table[at + min(max(keys[row], first), last) - first]
            found[index] = 0 if nulls[row] else region
    else:
        for index in range(n_rows):
            row = first_row + rows[index]
            low = start - 1 + table[at + ((min(max(keys[row], first), last) - first) >> shift)]
            while low < end and cuts[low] <= keys[row]:
                low += 1
            found[index] = 0 if nulls[row] else low - start + 1


@compiled
def _compared(
    data: Bytes,
    start: int,
    end: int,
    constants: Bytes,
    low: int,
    high: int,
) -> int:
    """Return -1, 0 or 1: how the bytes of a value compare with those of a constant."""
    shorter = min(end - start, high - low)
    for at in range(shorter):
        left, right = data[start + at], constants[low + at]
        if left != right:
            return -1 if left < right else 1
    if end - start == high - low:
        return 0
    return -1 if end - start < high - low else 1


@compiled
def rank(
    data: Bytes,
    offsets: Ints,
    nulls: Mask,
    constants: Bytes,
    constants_at: Ints,
    found: Ints,
) -> None:
    """Find the rank of each value that is there.

    Values and constants are bytes one after the other, and where each starts; of starts there is
    one more. Constants are sorted and distinct; ``found`` is filled.
    """
    for row in range(len(found)):
        if nulls[row]:
            continue
        start, end = offsets[row], offsets[row + 1]
        low, high = 0, len(constants_at) - 1
        key = 2 * high
        while low < high:
            middle = (low + high) // 2
            sign = _compared(
                data, start, end, constants, constants_at[middle], constants_at[middle + 1]
            )
            if sign == 0:
                low = high = middle
                key = 2 * middle + 1
            elif sign < 0:
                high = middle
                key = 2 * middle
            else:
                low = middle + 1
        found[row] = key
