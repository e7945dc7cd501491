"""Cells: rows with partial aggregates, by group and time.

A group is known by two hashes of its values, ``CODE`` and ``CHECK``, 128 bits together. In the
order of groups cells are sorted by code, check and start, as results are computed of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.data.arrays import whole
from eddyline.state.rows import ALWAYS, FOREVER, Rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eddyline.aggregates.monoid import Monoid
    from eddyline.data.arrays import Indices, Ints

CODE, CHECK = 0, 1
"""The codes of cells. Where several queries share them, the codes of coarser groups follow in
pairs, each of groups that those before are parts of; see ``coarser``."""


def in_order(cells: Rows, until: int = FOREVER) -> Rows:
    """Return cells by group and start; of equal ones, those first that stand first.

    Of parts that are in order, the oldest first, no more is done than that their codes are merged.
    Those that start at an instant or later (µs) are left out.
    """
    is_due = cells.starts < until
    order = None if is_due.all() else np.flatnonzero(is_due)
    for by in (_by_code, _by_code_and_start):
        codes, starts = cells.codes[CODE], cells.starts
        if order is not None:
            codes, starts = codes[order], starts[order]
        if (moved := by(codes, starts)) is not None:
            order = moved if order is None else order[moved]
    return _told_apart(cells if order is None else cells.taken(order))


def _by_code(codes: Ints, _starts: Ints) -> Indices | None:
    """Return the order of cells by code; None if they are in it."""
    return np.argsort(codes, kind="stable") if (codes[1:] < codes[:-1]).any() else None


def _by_code_and_start(codes: Ints, starts: Ints) -> Indices | None:
    """Return the order of cells by code and start, of those by code; None if they are in it."""
    is_behind = (codes[1:] == codes[:-1]) & (starts[1:] < starts[:-1])
    return np.lexsort((starts, codes)) if is_behind.any() else None


def _told_apart(cells: Rows) -> Rows:
    """Return cells that are sorted by code and start with groups of one code told apart."""
    codes, checks = cells.codes[CODE], cells.codes[CHECK]
    if not ((codes[1:] == codes[:-1]) & (checks[1:] != checks[:-1])).any():
        return cells
    return cells.taken(np.lexsort((cells.starts, checks, codes)))


def group_bounds(cells: Rows) -> Ints:
    """Return the first cell of each group, and the number of cells; they are in order."""
    is_first = np.ones(len(cells) + 1, np.bool_)
    for key in (CODE, CHECK):
        if len(cells):
            codes = cells.codes[key]
            same = codes[1:] == codes[:-1]
            is_first[1:-1] = same if key == CODE else is_first[1:-1] & same
    is_first[1:-1] = ~is_first[1:-1]
    return np.flatnonzero(is_first) if len(cells) else np.zeros(1, np.int64)


def merged(cells: Rows, partials: Mapping[str, Monoid]) -> Rows:
    """Return cells in order, with those of one group and start as one.

    Args:
        cells: in order.
        partials: the columns of partial aggregates, and how they are put together; others are the
            same in all cells of a group.
    """
    if not len(cells):
        return cells
    bounds = group_bounds(cells)
    is_first = np.zeros(len(cells), np.bool_)
    is_first[bounds[:-1]] = True
    is_first[1:] |= cells.starts[1:] != cells.starts[:-1]
    return _put_together(cells, np.flatnonzero(is_first), partials)


def summary(cells: Rows, partials: Mapping[str, Monoid]) -> Rows:
    """Return one cell for each group, which starts with its first; see ``merged``."""
    return _put_together(cells, group_bounds(cells)[:-1], partials) if len(cells) else cells


def _put_together(cells: Rows, firsts: Indices, partials: Mapping[str, Monoid]) -> Rows:
    """Return the cells from each first one to the next as one."""
    if firsts.size == len(cells):
        return cells
    ends = np.append(firsts[1:], len(cells)).astype(np.int64)
    starts = firsts.astype(np.int64)
    columns = {
        name: partials[name].merge(whole(column), starts, ends)
        if name in partials
        else column.take(pa.array(firsts))
        for name, column in zip(cells.payload.column_names, cells.payload.columns, strict=True)
    }
    codes = {key: of[firsts] for key, of in cells.codes.items()}
    at = cells.starts[firsts]
    return Rows(codes, at, at, pa.table(columns) if columns else cells.payload.slice(0, at.size))


def coarser(
    cells: Rows, level: int, columns: Sequence[str], partials: Mapping[str, Monoid]
) -> Rows:
    """Return cells in order, with those of one coarser group and start as one.

    Args:
        cells: in order.
        level: the place of the groups among those that cells have codes of; 0 are their own.
        columns: those that are kept.
        partials: see ``merged``.
    """
    codes = {key - 2 * level: of for key, of in cells.codes.items() if key >= 2 * level}
    found = Rows(codes, cells.starts, cells.ends, cells.payload.select(columns))
    return merged(in_order(found), partials) if level else found


def tails(cells: Rows, n: int) -> Rows:
    """Return the last n cells of each group of cells that are in order."""
    bounds = group_bounds(cells)
    sizes = np.diff(bounds)
    left = np.repeat(bounds[1:], sizes) - np.arange(len(cells))
    return cells if not (left > n).any() else cells.taken(np.flatnonzero(left <= n))


def of_groups(cells: Rows, wanted: Ints) -> Rows:
    """Return the cells, which are in order, whose code is one of some that ascend."""
    codes = cells.codes[CODE]
    lows = np.searchsorted(codes, wanted, "left")
    # Most files of before have few of the groups: of the others no end is looked for.
    is_there = lows < len(cells)
    is_there[is_there] = codes[lows[is_there]] == wanted[is_there]
    lows, wanted = lows[is_there], wanted[is_there]
    sizes = np.searchsorted(codes, wanted, "right") - lows
    if int(sizes.sum()) == len(cells):
        return cells
    offsets = np.repeat(lows - np.append(0, np.cumsum(sizes)[:-1]), sizes)
    return cells.taken(offsets + np.arange(int(sizes.sum())))


def from_instant(cells: Rows, since: int) -> Rows:
    """Return the cells that start at an instant (µs) or later, in the order in which they are."""
    late = cells.starts >= max(since, ALWAYS)
    return cells if late.all() else cells.taken(np.flatnonzero(late))


def together(parts: Sequence[Rows]) -> Rows:
    """Return the cells of several parts, one or more, behind each other."""
    filled = [each for each in parts if len(each)] or parts[:1]
    return filled[0] if len(filled) == 1 else Rows.together(filled)


def of_bucket(cells: Rows, bucket: int, n_buckets: int) -> Rows:
    """Return the cells of the groups that are in a bucket, the coarsest that they have codes of."""
    coarsest = max(cells.codes) - CHECK + CODE
    is_mine = cells.codes[coarsest] % n_buckets == bucket
    return cells if is_mine.all() else cells.taken(np.flatnonzero(is_mine))
