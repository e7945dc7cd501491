"""Compiled: in which region of a construct a key lies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from eddyline.data.arrays import Int32s, Ints, Mask
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

    Args:
        keys: key of every row ((R,)).
        nulls: which are NULL ((R,)).
        first_row: what is added to the numbers of rows.
        rows: numbers of rows.
        n_rows: how many of them count.
        tables: of several constructs.
        construct: which of them.
        found: set to the regions, for each of the rows that count.
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
