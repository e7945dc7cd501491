"""Combinations of rows on their way through a pipeline.

``Composites`` refer to rows by their places. They copy no values before a result is given. The
functions below gather values from several runs without concatenating the runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.data.arrays import starts_of
from eddyline.data.jit import compiled
from eddyline.state.cold_runs import ColdTier
from eddyline.state.rows import FOREVER
from eddyline.state.run_index import Pairs, Probes, hashes_of, stacked

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from eddyline.state.rows import SortedRun

SEED = ""
"""Stands for the input of combinations that hold no row yet, or that need not tell their rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Composites:
    """Combinations of one row of each input that is joined so far."""

    rows: dict[str, NDArray[np.int64]]
    """By input, the row of each combination, counted through the runs of its window."""
    codes: dict[int, NDArray[np.int64]]
    """By key class, the code of each combination."""
    starts: NDArray[np.int64]
    """The instant from which all rows of a combination live (µs)."""
    ends: NDArray[np.int64]
    """The last instant at which they do (µs)."""

    def __len__(self) -> int:
        return self.starts.size

    @classmethod
    def from_rows(
        cls,
        name: str,
        new: SortedRun,
        rows: slice | NDArray[np.int64],
        base: int,
        keys: Collection[int] | None = None,
    ) -> Composites:
        """Return new rows (a range, or places) as combinations of one row each.

        ``base`` is the number of rows in the runs before them. They carry the codes of some key
        classes; of all if omitted.
        """
        codes = {
            key: codes[rows] for key, codes in new.rows.codes.items() if keys is None or key in keys
        }
        places = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        refs = {name: places.astype(np.int64, copy=False) + base}
        # The columns of a run from a file are strided.
        lives = new.rows.starts[rows], new.ends_of(rows)
        starts, ends = map(np.ascontiguousarray, lives)
        return cls(refs, codes, starts, ends)

    @classmethod
    def seeds(
        cls, joined: Composites, chosen: NDArray[np.integer], key: Sequence[int], since: int
    ) -> Composites:
        """Return the keys of combinations (one or more), without their rows and without an end.

        They live from the instant ``since`` on (µs).
        """
        n = chosen.size
        codes = {part: joined.codes[part][chosen] for part in key}
        return cls({SEED: np.arange(n)}, codes, np.full(n, since), np.full(n, FOREVER))

    @classmethod
    def concat(cls, parts: Sequence[Composites]) -> Composites:
        """Return combinations of the same inputs, at least one part, as one."""
        first = parts[0]
        if len(parts) == 1:
            return first
        return cls(
            {name: np.concatenate([part.rows[name] for part in parts]) for name in first.rows},
            {key: np.concatenate([part.codes[key] for part in parts]) for key in first.codes},
            np.concatenate([part.starts for part in parts]),
            np.concatenate([part.ends for part in parts]),
        )

    def take(self, chosen: NDArray[np.integer]) -> Composites:
        """Return some combinations, by their places."""
        return Composites(*self.columns(chosen), self.starts[chosen], self.ends[chosen])

    def columns(
        self, chosen: NDArray[np.integer]
    ) -> tuple[dict[str, NDArray[np.int64]], dict[int, NDArray[np.int64]]]:
        """Return rows and codes of some combinations."""
        codes = {key: codes[chosen] for key, codes in self.codes.items()}
        return {name: refs[chosen] for name, refs in self.rows.items()}, codes

    def join(
        self,
        name: str,
        window: Sequence[SortedRun],
        links: Sequence[int],
        needed: Collection[int] | None = None,
    ) -> Composites:
        """Return the combinations with a row of one more input, by the key classes that both have.

        The result keeps the codes of the classes that are needed; of all if omitted.
        """
        key, *others = links
        checks = stacked([self.codes[other] for other in others], len(self))
        probes = Probes(hashes_of(self.codes[key]), self.starts, self.ends, checks)
        pairs, n_pairs, base = Pairs.room(max(1024, len(self))), 0, 0
        pieces = []
        for part in window:
            for run, first, places in part.asked(key, probes.hashes, self.codes[key]):
                checks = stacked([run.rows.codes[other] for other in others], len(run))
                mine = probes if places is None else _some(probes, places)
                before, start = n_pairs, base + first
                pairs, n_pairs = run.index(key).pairs(mine, checks, start, pairs, n_pairs)
                if places is not None:
                    found_here = pairs.probes[before:n_pairs]
                    found_here[:] = places[found_here]
                if before < n_pairs:
                    pieces.append((run, start, slice(before, n_pairs)))
            base += len(part)
        matches = pairs.first(n_pairs)
        refs = {bound: rows[matches.probes] for bound, rows in self.rows.items()} | {
            name: matches.rows
        }
        codes = {}
        for key_class in dict.fromkeys((*self.codes, *window[0].keys)):
            if needed is not None and key_class not in needed:
                continue
            if key_class in self.codes:
                codes[key_class] = self.codes[key_class][matches.probes]
            else:
                parts = (
                    run.rows.codes[key_class][matches.rows[span] - first]
                    for run, first, span in pieces
                )
                codes[key_class] = np.concatenate([np.empty(0, np.int64), *parts])
        return Composites(refs, codes, matches.starts, matches.ends)


def _some(probes: Probes, chosen: NDArray[np.int64]) -> Probes:
    hashes, starts, ends, checks = probes
    return Probes(hashes[chosen], starts[chosen], ends[chosen], checks[:, chosen])


def asked_of(
    window: Sequence[SortedRun], rows: NDArray[np.int64]
) -> tuple[Sequence[SortedRun], NDArray[np.int64]]:
    """Return the runs of a window that hold some rows, and the places of these rows.

    Of cold runs those alone that have one of them; the others are not opened.
    """
    tier = window[0]
    if not isinstance(tier, ColdTier):
        return window, rows
    n_cold, is_cold = len(tier), rows < len(tier)
    if not is_cold.any():
        return window[1:], rows - n_cold
    runs, places = tier.having(rows[is_cold])
    shifted = rows + (sum(map(len, runs)) - n_cold)
    shifted[is_cold] = places
    return (*runs, *window[1:]), shifted


def lives_of(
    window: Sequence[SortedRun], rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return from when to when some rows (one or more), counted through a window, live (µs)."""
    window, some = asked_of(window, rows)
    lengths = np.array([len(run) for run in window])
    stops = np.cumsum(lengths)
    run_of_row = np.searchsorted(stops, some, "right")
    starts, ends = np.empty((2, some.size), np.int64)
    for number in np.flatnonzero(np.bincount(run_of_row)).tolist():
        mine, run = np.flatnonzero(run_of_row == number), window[number].rows
        places = some[mine] - (stops[number] - lengths[number])
        starts[mine], ends[mine] = run.starts[places], run.ends[places]
    return starts, ends


def rows_of_parts(parts: Sequence[pa.Table], rows: NDArray[np.int64]) -> pa.Table:
    """Return rows, counted through, of tables with equal columns (one or more) that stand for one.

    Arrow concatenates tables before it takes rows of them: work that grows with the tables, not
    with the rows. So rows are taken from each table and scattered to their places.
    """
    if len(parts) == 1:
        return parts[0].take(pa.array(rows))
    n_rows = [part.num_rows for part in parts]
    if sum(n_rows) <= rows.size:
        return pa.concat_tables(parts).take(pa.array(rows))
    order, local, cuts = split_by_part(rows, starts_of(n_rows))
    chosen = [
        (part, local[start:stop], order[start:stop])
        for part, start, stop in zip(parts, cuts[:-1], cuts[1:], strict=True)
        if stop > start
    ]
    if not chosen:
        return parts[0].slice(0, 0)
    columns = [
        _column([(part.column(column), local, order) for part, local, order in chosen])
        for column in range(parts[0].num_columns)
    ]
    return pa.Table.from_arrays(columns, schema=parts[0].schema)


def _column(
    parts: Sequence[tuple[pa.ChunkedArray, NDArray[np.int64], NDArray[np.int64]]],
) -> pa.Array | pa.ChunkedArray:
    """Return a column from its parts: values, places to take, places in the result."""
    n_rows = sum(order.size for *_, order in parts)
    plain = [values for column, *_ in parts if (values := _values(column)) is not None]
    if len(plain) == len(parts):
        result = np.empty(n_rows, plain[0].dtype)
        for values, (_, local, order) in zip(plain, parts, strict=True):
            put(values, local, order, result)
        return pa.Array.from_buffers(parts[0][0].type, n_rows, [None, pa.py_buffer(result)])
    taken = [chunk for column, local, _ in parts for chunk in column.take(pa.array(local)).chunks]
    back = np.empty(n_rows, np.int64)
    back[np.concatenate([order for *_, order in parts])] = np.arange(n_rows)
    return pa.chunked_array(taken).combine_chunks().take(pa.array(back))


def _values(column: pa.ChunkedArray) -> NDArray[np.unsignedinteger] | None:
    """Return the values of a column as bits; None if they have nulls or are no machine words."""
    kind = column.type
    if not pa.types.is_primitive(kind) or kind.bit_width not in (8, 16, 32, 64):
        return None
    if column.num_chunks != 1 or column.null_count:
        return None
    (chunk,) = column.chunks
    width = kind.bit_width // 8
    return np.frombuffer(chunk.buffers()[1], f"u{width}", len(chunk), chunk.offset * width)


@compiled
def split_by_part(
    rows: NDArray[np.int64], firsts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Sort rows, counted through, by the part they are in; rows of a part keep their order.

    ``firsts`` are the first place of each part, and the number of places.

    Returns:
        The place of each sorted row among the rows; its place in its part; and where the rows of
        each part start, and their number.
    """
    n_parts = firsts.size - 1
    parts = np.empty(rows.size, np.uint16)
    cuts = np.zeros(n_parts + 1, np.int64)
    part = 0
    for index in range(rows.size):
        row = rows[index]
        # A row is most often in the part of the one before it.
        if not firsts[part] <= row < firsts[part + 1]:
            low, high = 0, n_parts
            while high - low > 1:
                middle = (low + high) // 2
                if firsts[middle] <= row:
                    low = middle
                else:
                    high = middle
            part = low
        parts[index] = part
        cuts[part + 1] += 1
    for number in range(n_parts):
        cuts[number + 1] += cuts[number]
    room = cuts[:-1].copy()
    order, local = np.empty(rows.size, np.int64), np.empty(rows.size, np.int64)
    for index in range(rows.size):
        part = parts[index]
        place = room[part]
        order[place], local[place] = index, rows[index] - firsts[part]
        room[part] = place + 1
    return order, local, cuts


@compiled
def put(
    values: NDArray[np.unsignedinteger],
    local: NDArray[np.int64],
    order: NDArray[np.int64],
    result: NDArray[np.unsignedinteger],
) -> None:
    """Scatter values from their places in a part to their places in the result."""
    for index in range(local.size):
        result[order[index]] = values[local[index]]


@compiled
def widest_age(
    rows: NDArray[np.int64], first: int, starts: NDArray[np.int64], instants: NDArray[np.int64]
) -> int:
    """Return the greatest age of the rows of one part at some instants (µs); 0 if there is none.

    ``rows`` are counted through all parts; ``first`` is the number of the part's first row, and
    ``starts`` say from when on its rows are there (µs).
    """
    widest = 0
    for index in range(rows.size):
        row = rows[index] - first
        if 0 <= row < starts.size:
            widest = max(widest, instants[index] - starts[row])
    return widest
