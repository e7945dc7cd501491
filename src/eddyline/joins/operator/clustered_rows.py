"""Rows whose key is over in all other streams, and how long after its first row a key comes.

What is asked is the first row of a key: of hot runs by their indexes, of the cold tier by the
filters of runs that are old enough as a whole, so that no run is opened to find out what leaves. A
key that passes a filter by chance lets its rows go too early; these are found cold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.constraints.bounds import bins_of
from eddyline.joins.clusters import Spans
from eddyline.state.cold_runs import ColdTier
from eddyline.state.key_filters import AskedKeys
from eddyline.state.rows import FOREVER
from eddyline.state.run_index import first_starts, hashes_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from eddyline.state.rows import SortedRun

MEASURED = 512
"""New rows of a stream in a bucket that are measured, about, evenly spread over all."""

COUNTED = 2_048
"""Rows of a merged run that are looked up to say how many are done, while none leaves for it."""


def closed_of(
    run: SortedRun,
    chosen: NDArray[np.int64],
    closed: Mapping[int, Mapping[str, int]],
    windows: Mapping[str, Sequence[SortedRun]],
    lengths: Mapping[str, int],
) -> NDArray[np.bool_]:
    """Return which of some rows of a run have a key that is closed in all other streams.

    Args:
        run: the rows.
        chosen: the places of those that are asked for.
        closed: by key class and stream, the latest instant that the first row of a closed key is
            at (µs).
        windows: the runs of all inputs.
        lengths: of the windows (µs).
    """
    found = np.zeros(chosen.size, np.bool_)
    for key, limits in closed.items():
        codes = run.rows.codes[key][chosen]
        hashes = hashes_of(codes)
        left = np.arange(chosen.size)
        for other, limit in limits.items():
            asked = AskedKeys.of(hashes[left], codes[left])
            left = left[_began_by(windows[other], key, asked, limit, lengths[other])]
        found[left] = True
    return found


def _began_by(
    window: Sequence[SortedRun], key: int, asked: AskedKeys, limit: int, length: int
) -> NDArray[np.bool_]:
    """Return which keys have a row in a window that is no later than an instant (µs)."""
    found = np.zeros(asked.codes.size, np.bool_)
    for run in window:
        left = np.flatnonzero(~found)
        if not left.size:
            break
        if isinstance(run, ColdTier):
            found[run.began_by(key, asked, limit, length)] = True
        elif len(run) and int(run.rows.starts.min()) <= limit:
            found[left] = _firsts(run, key, asked.hashes[left]) <= limit
    return found


def spans_of(key: int, top: int, window: Sequence[SortedRun], new: SortedRun) -> Spans:
    """Return how long after the first row of their key the new rows of a stream come.

    Args:
        key: the key class.
        top: the latest event time of the stream before the batch (µs): a row that is out of order
            comes when that is, whatever its own time says.
        window: the runs of the stream before the batch.
        new: its new rows; at least one.
    """
    n_rows = len(new)
    step = -(-n_rows // MEASURED)
    codes = np.ascontiguousarray(new.rows.codes[key][::step])
    starts, hashes = new.rows.starts[::step], hashes_of(codes)
    before = np.full(codes.size, FOREVER)
    for part in window:
        for run, _, places in part.asked(key, hashes, codes):
            mine = slice(None) if places is None else places
            before[mine] = np.minimum(before[mine], _firsts(run, key, hashes[mine]))
    here = starts - _firsts(new, key, hashes)
    spans = np.where(before < FOREVER, np.maximum(starts, top) - before, here)
    numbers, counts = np.unique(bins_of(spans[spans > 0]), return_counts=True)
    return Spans(n_rows, dict(zip(numbers.tolist(), (counts * step).tolist(), strict=True)))


def _firsts(run: SortedRun, key: int, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the instant of the first row of each key in a run (µs); FOREVER if it has none."""
    index = run.index(key)
    return first_starts(hashes, index.entries, index.directory)
