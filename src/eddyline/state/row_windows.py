"""Windows of the latest N rows.

A row leaves when the row N places later comes. Places are counted in the stream, or in each group
of PARTITION BY, in the order of event time and, among equal times, of the rows' contents. Only
counts are kept: how many rows each group has had, for groups that still have a row whose end is not
known.

So the end of a row comes to be known later than the row is written. A run stays as it was written.
Ends of its rows are written as a file of their own beside it once they are known, and replace those
of the run.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.data.arrays import starts_of
from eddyline.data.jit import compiled
from eddyline.state.cold_runs import AskedKeys
from eddyline.state.rows import FOREVER, Asked, Rows, SortedRun
from eddyline.state.run_files import RunFile, open_tables, write_tables
from eddyline.state.run_index import Index

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray
    from pyarrow import fs

    from eddyline.state.cold_runs import Filters

GROUP, RANK = "\0group", "\0rank"
"""The columns of a kept row: its group, and how many rows of its group came before it."""

COUNT = "\0count"
"""The column of how many rows a group has had."""


def stream_order(starts: NDArray[np.int64], contents: pa.Table) -> NDArray[np.int64]:
    """Return the rows in the order of event time (µs), and among equal times of their contents.

    NULL comes before all values, and NaN behind them; the first column decides first.
    """
    order = np.argsort(starts, kind="stable")
    sorted_starts = starts[order]
    is_same = sorted_starts[1:] == sorted_starts[:-1]
    if not is_same.any() or not contents.num_columns:
        return order
    is_tied = np.zeros(order.size, np.bool_)
    is_tied[1:] |= is_same
    is_tied[:-1] |= is_same
    places = np.flatnonzero(is_tied)
    tied = order[places]
    keys: dict[str, pa.Array | pa.ChunkedArray] = {"time": pa.array(starts[tied])}
    for number, column in enumerate(contents.columns):
        keys |= _sort_keys(number, column.take(pa.array(tied)))
    by_contents = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys])
    # Tied rows stand next to each other, so sorting them all leaves each run of them in its place.
    order[places] = tied[by_contents.to_numpy()]
    return order


def _sort_keys(number: int, column: pa.ChunkedArray) -> dict[str, pa.ChunkedArray]:
    """Return the sort keys of a column: NULL first, and NaN behind all values."""
    keys = {f"{number} is there": pc.is_valid(column)} if column.null_count else {}
    if pa.types.is_floating(column.type):
        is_nan = pc.is_nan(column)
        keys[f"{number} is NaN"] = is_nan
        column = pc.if_else(is_nan, pa.scalar(0.0, column.type), column)
    return keys | {f"{number}": column}


def group_codes(columns: Sequence[pa.ChunkedArray], n_rows: int) -> NDArray[np.int64]:
    """Return a number for each row, equal where all columns are; in the order in which they come.

    NULLs are equal, and so are NaNs, and both zeros; without columns all rows are.
    """
    codes = np.zeros(n_rows, np.int64)
    for column in columns:
        if pa.types.is_floating(column.type):
            # NaN has many bits, and adding 0 makes -0.0 the other zero.
            nan = pa.scalar(float("nan"), column.type)
            column = pc.add(pc.if_else(pc.is_nan(column), nan, column), 0.0)  # noqa: PLW2901
        numbers = _numbered(column.combine_chunks())
        codes = _numbered(pa.array(codes * (numbers.max(initial=0) + 1) + numbers))
    return codes


def _numbered(values: pa.Array) -> NDArray[np.int64]:
    encoded = pc.dictionary_encode(values, null_encoding="encode")
    numbers: NDArray[np.int64] = encoded.indices.to_numpy().astype(np.int64)
    return numbers


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """The groups of a stream, and how many rows each has had."""

    ids: NDArray[np.int64]
    """In any order; no two groups that are known at once have the same, and all are small."""
    counts: NDArray[np.int64]
    values: pa.Table
    """The columns that rows are grouped by, a row for each group; none if rows are one group."""

    def __len__(self) -> int:
        return self.ids.size

    def only(self, parts: Sequence[NDArray[np.int64]]) -> Groups:
        """Return those whose id is in one of several arrays."""
        is_needed = np.zeros(int(self.ids.max(initial=-1)) + 1, np.bool_)
        for part in parts:
            is_needed[part] = True
        stay = np.flatnonzero(is_needed[self.ids])
        values = self.values.take(pa.array(stay)) if self.values.num_columns else self.values
        return Groups(self.ids[stay], self.counts[stay], values)

    def free_ids(self, n: int) -> NDArray[np.int64]:
        """Return the smallest ids that no group has (n)."""
        is_free = np.ones(len(self) + n, np.bool_)
        is_free[self.ids[self.ids < is_free.size]] = False
        return np.flatnonzero(is_free)[:n]

    def places(self) -> NDArray[np.int64]:
        """Return by id which of the groups has it; 0 for an id that none has."""
        places = np.zeros(int(self.ids.max(initial=-1)) + 1, np.int64)
        places[self.ids] = np.arange(len(self))
        return places


def write_groups(files: fs.FileSystem, folder: str, groups: Groups) -> RunFile:
    """Write groups (at least one) as a file of the folder of runs.

    Raises:
        OSError: it cannot be written.
    """
    values = dict(zip(groups.values.column_names, groups.values.columns, strict=True))
    table = pa.table({GROUP: pa.array(groups.ids), COUNT: pa.array(groups.counts)} | values)
    name = uuid.uuid4().hex
    path = f"{folder}/{name}.groups.arrow"
    written = write_tables(files, [path], [table.combine_chunks()])
    return RunFile(name, len(groups), 0, 0, *written)


def read_groups(files: fs.FileSystem, folder: str, file: RunFile) -> Groups:
    """Return the groups that ``write_groups`` wrote.

    Raises:
        OSError: they cannot be read.
    """
    (table,) = open_tables(files, [f"{folder}/{file.name}.groups.arrow"], file.checksum)
    values = table.drop_columns([GROUP, COUNT])
    return Groups(table[GROUP].to_numpy(), table[COUNT].to_numpy(), values)


@dataclass(frozen=True, slots=True, eq=False)
class Arrivals:
    """Rows that a stream went on by, with their places in their groups."""

    n_latest: int
    """Number of rows of a group in its window."""
    groups: Groups
    """After the rows; groups of which none came included."""
    before: NDArray[np.int64]
    """Number of rows that each group had before them."""
    firsts: NDArray[np.int64]
    """First row of each group, and the number of all."""
    starts: NDArray[np.int64]
    """Their event times, group by group (µs)."""
    group: NDArray[np.int64]
    """The id of each row's group."""
    rank: NDArray[np.int64]
    """Number of rows of its group before each row."""

    @classmethod
    def from_rows(
        cls,
        groups: Groups | None,
        n_latest: int,
        starts: NDArray[np.int64],
        values: pa.Table,
    ) -> Arrivals:
        """Return the places of rows in their groups; a window holds the latest so many of a group.

        Starts (µs) are in the order of the stream; the columns of ``values`` tell groups apart.
        """
        if groups is None:
            nothing = np.empty(0, np.int64)
            groups = Groups(nothing, nothing, values.slice(0, 0))
        n_known = len(groups)
        whole = pa.concat_tables([groups.values, values])
        codes = group_codes(whole.columns, n_known + starts.size)
        n_groups = int(codes.max(initial=-1)) + 1
        fresh = groups.free_ids(n_groups - n_known)
        ids = np.concatenate([groups.ids, fresh])
        before = np.concatenate([groups.counts, np.zeros(fresh.size, np.int64)])
        _, leaders = np.unique(codes, return_index=True)
        group = codes[n_known:]
        by_group = np.argsort(group, kind="stable")
        counts = np.bincount(group, minlength=n_groups)
        firsts = starts_of(counts)
        rank = np.empty(group.size, np.int64)
        rank[by_group] = np.arange(group.size) - np.repeat(firsts[:-1], counts)
        rank += before[group]
        kept = whole.take(pa.array(leaders)) if whole.num_columns else whole
        after = Groups(ids, before + counts, kept)
        return cls(n_latest, after, before, firsts, starts[by_group], ids[group], rank)

    def ends(self, group: NDArray[np.int64], rank: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the last instants of rows whose ends were not known before (µs).

        ``rank`` counts the rows of its group before each row. The end is FOREVER where the row so
        many places later has not come yet.
        """
        place = self.groups.places()[group]
        follower = self.firsts[place] + rank + self.n_latest - self.before[place]
        ends = np.full(rank.size, FOREVER)
        has_come = np.flatnonzero(follower < self.firsts[place + 1])
        ends[has_come] = self.starts[follower[has_come]] - 1
        return ends


_ENDS = "ends"


def with_ends(run: SortedRun, ends: NDArray[np.int64]) -> SortedRun:
    """Return a run with other ends (µs).

    Ends need not ascend with starts, as those of groups do not: so indexes get bounds that do.
    """
    if isinstance(run, ColdRun):
        return run.ending(ends)
    rows = run.rows
    indexes = {}
    for key in rows.codes:
        index = run.index(key)
        key_ends = ends[index.places] if index.places.size else ends
        entries = index.entries.copy()
        entries[:, 2] = key_ends
        bounds = bounds_of(index.hashes, key_ends)
        indexes[key] = Index(index.tags, entries, index.directory, index.places, bounds)
    return SortedRun(Rows(rows.codes, rows.starts, ends, rows.payload), indexes)


class ColdRun(SortedRun):
    """A run that is hardly asked for: its index gets the ends of its rows when a key passes.

    Args:
        whole: the run as it was written.
        ends: of its rows, as far as they are known now (µs).
        filters: of its keys, by key class.
    """

    is_cold = True

    def __init__(self, whole: SortedRun, ends: NDArray[np.int64], filters: Filters) -> None:
        rows = whole.rows
        super().__init__(Rows(rows.codes, rows.starts, ends, rows.payload))
        self._whole, self._filters = whole, filters

    def asked(
        self, key: int, hashes: NDArray[np.uint64], codes: NDArray[np.int64]
    ) -> Iterable[Asked]:
        """Return the run, if its filter lets some codes pass; see ``SortedRun.asked``."""
        places = self._filters[key].passing(AskedKeys.from_hashes(hashes, codes))
        return (Asked(self, 0, places),) if places.size else ()

    def index(self, key: int) -> Index:
        """Return the index of a key class."""
        if not self.indexes:
            self.indexes.update(with_ends(self._whole, self.rows.ends).indexes)
        return self.indexes[key]

    def ending(self, ends: NDArray[np.int64]) -> ColdRun:
        """Return the same run with other ends (µs)."""
        return ColdRun(self._whole, ends, self._filters)

    def only(self, columns: Sequence[str]) -> ColdRun:
        """Return the same run with some columns of its payload."""
        rows = self._whole.rows
        some = Rows(rows.codes, rows.starts, rows.ends, rows.payload.select(columns))
        return ColdRun(SortedRun(some, self._whole.indexes), self.rows.ends, self._filters)


def run_of(rows: Rows) -> SortedRun:
    """Return the run of rows whose ends may be in any order."""
    run = SortedRun.from_rows(rows)
    return with_ends(run, run.rows.ends)


def write_ends(
    files: fs.FileSystem, folder: str, run: RunFile, ends: NDArray[np.int64]
) -> tuple[RunFile, RunFile]:
    """Write the ends (µs) of the rows of a run that has been written to the same folder.

    Returns:
        What the manifest says of the run now, and of its ends.

    Raises:
        OSError: they cannot be written.
    """
    name = f"{run.name}-{uuid.uuid4().hex}"
    path = f"{folder}/{name}.ends.arrow"
    n_bytes, checksum = write_tables(files, [path], [pa.table({_ENDS: pa.array(ends)})])
    now = replace(run, last_end=int(ends.max()))
    return now, replace(now, name=name, n_bytes=n_bytes, checksum=checksum)


def read_ends(files: fs.FileSystem, folder: str, file: RunFile) -> NDArray[np.int64]:
    """Return the ends of a run (µs).

    Raises:
        OSError: they cannot be read.
    """
    (table,) = open_tables(files, [f"{folder}/{file.name}.ends.arrow"], file.checksum)
    ends: NDArray[np.int64] = table[_ENDS].to_numpy()
    return ends


def run_with(file: RunFile) -> str:
    """Return the name of the run that a file of ends belongs to."""
    return file.name.partition("-")[0]


@compiled
def bounds_of(hashes: NDArray[np.uint64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each entry of an index the latest end of it and those before it with its hash.

    Hashes ascend, and ends are in any order (µs).
    """
    bounds = np.empty(ends.size, np.int64)
    for entry in range(ends.size):
        end = ends[entry]
        if entry > 0 and hashes[entry] == hashes[entry - 1]:
            end = max(end, bounds[entry - 1])
        bounds[entry] = end
    return bounds
