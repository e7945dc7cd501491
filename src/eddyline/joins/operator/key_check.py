"""Keys that were declared are checked when rows come: a second row with a key ends the batch.

Before any result of the batch is told, and with nothing kept of it: whoever drops one of the two
rows, or the declaration, goes on from the batch before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.errors import DuplicateKeyError
from eddyline.joins.operator.composites import SEED, Composites, asked_of, rows_of_parts
from eddyline.state.row_windows import group_codes
from eddyline.state.rows import values_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from eddyline.joins.graph import UniqueKey
    from eddyline.state.rows import SortedRun


def check_keys(
    keys: Mapping[str, UniqueKey],
    windows: Mapping[str, Sequence[SortedRun]],
    news: Mapping[str, SortedRun],
) -> None:
    """Check that no new row has the key of another one that is in its window with it.

    Args:
        keys: by input.
        windows: the runs of each input before the batch.
        news: the new rows.

    Raises:
        DuplicateKeyError: one has.
    """
    for name, key in keys.items():
        if name in news:
            _check_together(key, news[name])
            if windows[name]:
                _check_window(key, news[name], windows[name])


def unique_classes(run: SortedRun) -> tuple[int, ...]:
    """Return the key classes in which no two rows of a table have the same code."""
    hashes = {key: run.index(key).hashes for key in run.keys}
    return tuple(key for key, of in hashes.items() if (of[1:] != of[:-1]).all())


def _check_together(key: UniqueKey, new: SortedRun) -> None:
    """Check new rows among themselves: equal codes stand next to each other in the index."""
    index = new.index(key.key)
    are_alike = index.hashes[1:] == index.hashes[:-1]
    places = np.flatnonzero(are_alike & (index.starts[1:] <= index.ends[:-1]))
    if places.size:
        rows = index.rows.astype(np.int64)
        _refuse(key, [new], rows[places], new, rows[places + 1])


def _check_window(key: UniqueKey, new: SortedRun, window: Sequence[SortedRun]) -> None:
    """Check new rows against those of the window, the cold ones included."""
    every = Composites.from_rows(SEED, new, slice(0, len(new)), 0)
    found = every.join(key.stream, window, (key.key,), ())
    if len(found):
        _refuse(key, window, found.rows[key.stream], new, found.rows[SEED])


def _refuse(
    key: UniqueKey,
    window: Sequence[SortedRun],
    known: NDArray[np.int64],
    new: SortedRun,
    rows: NDArray[np.int64],
) -> None:
    """Raise DuplicateKeyError if one of some pairs of rows with equal codes has equal keys."""
    window, known = asked_of(window, known)
    if key.kind is None:
        before = rows_of_parts([run.rows.payload for run in window], known)[key.column]
        after = new.rows.payload[key.column].take(pa.array(rows))
        numbers = group_codes([pa.chunked_array([*before.chunks, *after.chunks])], 2 * rows.size)
        alike = np.flatnonzero(numbers[: rows.size] == numbers[rows.size :])
        if not alike.size:
            return
        at = int(alike[0])
        value = after[at].as_py()
    else:
        at = 0
        value = values_of(new.rows.codes[key.key][rows[:1]], key.kind)[0].as_py()
    starts = np.concatenate([run.rows.starts for run in window])
    times = sorted([int(starts[known[at]]), int(new.rows.starts[rows[at]])])
    first, second = (_in_words(time, is_local=key.is_local) for time in times)
    msg = (
        f"two rows of stream {key.stream!r} have the key {key.column} = {value!r}, of {first} and "
        f"of {second}, though engine.stream({key.stream!r}, …, key={key.column!r}) says that no "
        f"two have one while they are in their window; drop one of them before the stream "
        f"(dropDuplicates), or leave out key=…. Nothing is lost: no row of this batch was joined, "
        f"and a query that starts again begins with it"
    )
    raise DuplicateKeyError(
        msg, stream=key.stream, column=key.column, key=value, times=[first, second]
    )


def _in_words(time: int, *, is_local: bool) -> str:
    reading: str = pa.scalar(time, pa.timestamp("us")).as_py().isoformat(sep=" ")
    return reading if is_local else f"{reading} UTC"
