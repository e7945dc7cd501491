"""The cuts of constructs, with tables from keys to regions.

A table has an entry per *slot*, a range of keys as wide as a power of two: the region of its
first key. What is left is to pass the cuts inside the slot, of which there are few; none where
slots are one key wide. A search of cuts takes several times as long, as each step waits for the
one before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from eddyline.data.arrays import Ints

MAX_TABLE = 1 << 15
"""Most slots of a construct. Rows visit one construct after the other, a chunk at a time, so it
is enough that a table of this size (64 KiB) fits the second cache."""

MAX_CROWD = 8
"""Most cuts inside a slot; where there are more, cuts are searched."""

MAX_SPAN = 1 << 62
"""Keys between the first and the last cut from which on cuts are searched: differences of keys
have to fit a word."""


class CutTables(NamedTuple):
    """The cuts of some constructs and their tables, as kernels read them."""

    cuts: Ints
    """First keys of the regions of all constructs. Region 0 of a construct is NULL, region 1 is
    below its first cut, and each cut starts another."""
    cuts_at: Ints
    """Start of those of each construct ((n + 1,))."""
    table: NDArray[np.uint16]
    """Regions of the first keys of slots, one table after the other."""
    table_at: Ints
    """Start of that of each construct; -1: its cuts are searched ((n,))."""
    first: Ints
    """First key of the first slot of each table; keys below are of the same region ((n,))."""
    last: Ints
    """Last cut of each table; keys above are of the same region ((n,))."""
    shift: Ints
    """The width of the slots of each table, as a power of two ((n,))."""


def cut_tables(cuts: Sequence[Ints]) -> CutTables:
    """Return the cuts of some constructs, ascending for each, with their tables.

    Example:
        >>> found = cut_tables([np.array([5, 7])])
        >>> found.table.tolist(), found.first.tolist(), found.last.tolist()
        ([1, 2, 2, 3], [4], [7])
    """
    made = [_table(each) for each in cuts]
    sizes = np.array([len(table) for table, _ in made], np.int64)
    return CutTables(
        cuts=np.concatenate([np.zeros(0, np.int64), *cuts]),
        cuts_at=starts_of([len(each) for each in cuts]),
        table=np.concatenate([np.zeros(0, np.uint16), *(table for table, _ in made)]),
        table_at=np.where(sizes > 0, starts_of(sizes)[:-1], -1),
        first=np.array([int(each[0]) - 1 if len(each) else 0 for each in cuts], np.int64),
        last=np.array([int(each[-1]) if len(each) else 0 for each in cuts], np.int64),
        shift=np.array([shift for _, shift in made], np.int64),
    )


def _table(cuts: Ints) -> tuple[NDArray[np.uint16], int]:
    """Return the regions of the first keys of slots, none if there is no table, and their shift.

    The first slot starts one key below the first cut.
    """
    nothing = np.zeros(0, np.uint16)
    if len(cuts) == 0:
        return np.ones(1, np.uint16), 0
    first, span = int(cuts[0]) - 1, int(cuts[-1]) - int(cuts[0]) + 1
    if span >= MAX_SPAN or len(cuts) > np.iinfo(np.uint16).max - 1:
        return nothing, 0
    shift = max(0, (span // MAX_TABLE).bit_length())
    starts = first + (np.arange((span >> shift) + 1, dtype=np.int64) << shift)
    regions = np.searchsorted(cuts, starts, side="right") + 1
    crowds = np.diff(regions, append=len(cuts) + 1)
    if shift > 0 and crowds.max() > MAX_CROWD:
        return nothing, 0
    return regions.astype(np.uint16), shift


def starts_of(sizes: Sequence[int] | Ints) -> Ints:
    """Return the starts of parts of some sizes, one after the other; one more than there are."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
