"""Rows of several tables that stand for one, without making one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def rows_of_parts(parts: Sequence[pa.Table], rows: NDArray[np.int64]) -> pa.Table:
    """Return rows of tables that stand for one.

    Arrow makes one table of several before it takes rows of them: work that grows with the tables,
    not with the rows. So rows are taken from each, and put back into their order.

    Args:
        parts: the tables, at least one, with equal columns.
        rows: places in all of them, one after the other.
    """
    if len(parts) == 1:
        return parts[0].take(pa.array(rows))
    n_rows = [part.num_rows for part in parts]
    if sum(n_rows) <= rows.size:
        return pa.concat_tables(parts).take(pa.array(rows))
    firsts = np.cumsum([0, *n_rows[:-1]])
    of = (np.searchsorted(firsts, rows, side="right") - 1).astype(np.uint16)
    by_part = np.argsort(of, kind="stable")
    local = rows[by_part] - firsts[of[by_part]]
    cuts = np.searchsorted(of[by_part], np.arange(len(parts) + 1))
    taken = [
        part.take(pa.array(local[start:stop]))
        for part, start, stop in zip(parts, cuts[:-1], cuts[1:], strict=True)
    ]
    back = np.empty(rows.size, np.int64)
    back[by_part] = np.arange(rows.size)
    return pa.concat_tables(taken).combine_chunks().take(pa.array(back))
