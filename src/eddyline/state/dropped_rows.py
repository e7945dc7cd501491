"""Summaries of the keys of dropped rows of a window, in slices.

``Slice.from_run`` takes the rows that one batch drops; ``DroppedRows.counted`` says how many
dropped rows a key may have, never too few.

*Slices.* A slice is a file of its own. Slices are merged as runs are, FAN_IN of a size become one,
so the newest ones tell the time of their rows best. If there are more than MOST_SLICES, the two
neighbours with the fewest rows become one. A slice goes once all its rows have left their window.
So what is kept is of a bounded size, however many rows were dropped, even if a window has no end.

*Keys.* Few keys are *listed*, each with the number of its rows and the time of the newest one, and
counted exactly. More keys than MOST_LISTED are a *sketch* of a fixed size. A filter of the keys
(see ``cold_runs``) comes before either: it rejects nearly all keys that no dropped row had.

*Sketches* are count-min. Each key has a counter in each of DEPTH rows of counters, chosen by its
hash. Other keys may share a counter, so the least of the counters of a key is an upper bound. What
others add to a counter on average is known; without it the median of the counters is an estimate
that is neither too high nor too low (count-mean-min).
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from eddyline.data.jit import compiled
from eddyline.state.bucket_state import upkeep_of
from eddyline.state.cold_runs import KEYS_PER_WORD, AskedKeys, KeyFilter, add_hashes
from eddyline.state.rows import ALWAYS
from eddyline.state.run_files import ReadFiles, RunFile, as_list, open_tables, write_tables
from eddyline.state.run_index import hashes_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from pyarrow import fs

    from eddyline.state.rows import SortedRun

MOST_SLICES = 8
"""Most slices of one input in one bucket."""

_PARTS = (
    ("words", pa.uint64()),
    ("facts", pa.int64()),
    ("hashes", pa.uint64()),
    ("counts", pa.int64()),
    ("newest", pa.int64()),
    ("counters", pa.int64()),
)


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """Rows (one or more) that were dropped, as far as anything is known of them."""

    n_rows: int
    first_start: int
    """The earliest event time of them (µs)."""
    last_start: int
    """The latest one (µs)."""
    last_end: int
    """The last instant at which one of them would be in its window (µs)."""
    keys: Mapping[int, DroppedKeys]
    """By key class."""
    file: RunFile | None = None
    """Where it is written; None if it is not yet."""

    @classmethod
    def from_run(cls, run: SortedRun) -> Slice:
        """Return the slice of the rows (one or more) of a run."""
        starts, ends = run.rows.starts, run.rows.ends
        keys = {key: DroppedKeys.from_run(run, key) for key in run.keys}
        times = int(starts.min()), int(starts.max()), int(ends.max())
        return cls(len(run), *times, keys)

    @classmethod
    def together(cls, parts: Sequence[Slice]) -> Slice:
        """Return one slice in the place of several."""
        return cls(
            sum(part.n_rows for part in parts),
            min(part.first_start for part in parts),
            max(part.last_start for part in parts),
            max(part.last_end for part in parts),
            {
                key: DroppedKeys.together([part.keys[key] for part in parts])
                for key in parts[0].keys
            },
        )

    @property
    def described(self) -> RunFile:
        """Its file; of one that is not written yet what such a file would say, without a name."""
        if self.file is not None:
            return self.file
        return RunFile(
            "", self.n_rows, self.first_start, self.last_end, 0, id(self), self.last_start
        )

    def written(self, files: fs.FileSystem, folder: str) -> RunFile:
        """Return its file, which is written now if it was not before.

        Raises:
            OSError: it cannot be written.
        """
        if self.file is not None:
            return self.file
        columns: dict[str, pa.Array] = {}
        for key, dropped in self.keys.items():
            facts = np.array(
                [dropped.filter.lowest, dropped.filter.highest, dropped.most], np.int64
            )
            listed = dropped.hashes, dropped.counts, dropped.newest
            arrays = dropped.filter.words, facts, *listed, dropped.counters.reshape(-1)
            for (part, kind), values in zip(_PARTS, arrays, strict=True):
                columns[f"{part}_{key}"] = as_list(values, kind)
        name = uuid.uuid4().hex
        size, checksum = write_tables(files, [_path(folder, name)], [pa.table(columns)])
        times = self.first_start, self.last_end
        return RunFile(name, self.n_rows, *times, size, checksum, self.last_start)

    @classmethod
    def read(cls, files: fs.FileSystem, folder: str, file: RunFile) -> Slice:
        """Return the slice of a file; a process reads it once.

        Raises:
            OSError: it cannot be read.
        """
        which = _path(folder, file.name), file.checksum
        if (kept := _READ.get(which)) is not None:
            return kept
        (table,) = open_tables(files, [which[0]], file.checksum)
        lists = {name: table[name].chunk(0).values.to_numpy() for name in table.column_names}
        keys = {}
        for key in (
            int(name.removeprefix("facts_")) for name in lists if name.startswith("facts_")
        ):
            words, facts, hashes, counts, newest, counters = (
                lists[f"{part}_{key}"] for part, _ in _PARTS
            )
            lowest, highest, most = map(int, facts)
            counters = counters.reshape(DEPTH, -1) if counters.size else counters
            key_filter = KeyFilter(words, lowest, highest)
            keys[key] = DroppedKeys(key_filter, most, hashes, counts, newest, counters)
        times = file.first_start, file.last_start, file.last_end
        dropped = cls(file.n_rows, *times, keys, file)
        _READ.keep(which, file.n_bytes, dropped)
        return dropped


_READ: ReadFiles[Slice] = ReadFiles()
"""Those of this process."""


@dataclass(frozen=True, slots=True)
class DroppedRows:
    """The dropped rows of one input in one bucket."""

    slices: Sequence[Slice]

    def counted(
        self,
        codes: Mapping[int, NDArray[np.int64]],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
    ) -> DroppedCounts:
        """Return how many dropped rows may be partners of other rows, or combinations.

        Args:
            codes: of these, in each key class (one or more) in which partners must have the same.
            starts: the instant from which each of them lives (µs).
            ends: the last instant at which it does (µs).
        """
        n = starts.size
        total = DroppedCounts(np.zeros(n, np.int64), np.zeros(n), np.full(n, ALWAYS))
        asked = {
            key: AskedKeys.from_hashes(hashes_of(values), values) for key, values in codes.items()
        }
        first, *others = asked
        for dropped in self.slices:
            # Filters let hardly any pass, and say so at once where keys ascend with time.
            places = dropped.keys[first].filter.passing(asked[first])
            lives = (starts[places] <= dropped.last_end) & (ends[places] >= dropped.first_start)
            places = places[lives]
            for key in others:
                if places.size:
                    passing = dropped.keys[key].filter.passing(asked[key].taken(places))
                    places = places[passing]
            if places.size:
                parts = [
                    dropped.keys[key].counted(asked_keys.taken(places))
                    for key, asked_keys in asked.items()
                ]
                _add(total, places, parts)
        return total

    def most(self, keys: Sequence[int]) -> int:
        """Return how many rows no key has more of, of whichever of some key classes says least."""
        return min(sum(dropped.keys[key].most for dropped in self.slices) for key in keys)


def _add(total: DroppedCounts, places: NDArray[np.int64], parts: Sequence[DroppedCounts]) -> None:
    """Add what a slice has at some places: partners have the same key in each of some classes."""
    most = np.minimum.reduce([part.most for part in parts])
    about = np.minimum.reduce([part.about for part in parts])
    newest = np.minimum.reduce([part.newest for part in parts])
    total.most[places] += most
    total.about[places] += np.where(most > 0, about, 0.0)
    total.newest[places] = np.maximum(total.newest[places], newest)


def alive(
    files: fs.FileSystem, folder: str, before: Sequence[RunFile], horizon: int
) -> list[Slice]:
    """Return the slices of an input, without those of which all rows have left their window.

    Args:
        files: where they are.
        folder: of runs.
        before: their files, the oldest first.
        horizon: rows that left their window before this instant are not needed (µs).

    Raises:
        OSError: one cannot be read.
    """
    return [Slice.read(files, folder, file) for file in before if file.last_end >= horizon]


def kept(
    files: fs.FileSystem, folder: str, slices: Sequence[Slice], *, horizon: int, length: int
) -> tuple[RunFile, ...]:
    """Return the files of slices (the oldest first), some of which are made one.

    Args:
        files: where they are.
        folder: of runs.
        slices: what is known of the dropped rows of an input.
        horizon: see ``alive``.
        length: of the window (µs), or FOREVER.

    Raises:
        OSError: one cannot be written.
    """
    parts = [part for part in slices if part.last_end >= horizon]
    while due := _due(parts, horizon, length):
        first, n = due
        parts[first : first + n] = [Slice.together(parts[first : first + n])]
    return tuple(part.written(files, folder) for part in parts)


def _due(parts: Sequence[Slice], horizon: int, length: int) -> tuple[int, int] | None:
    """Return which slices are to be one, as the first one and how many; None if none are."""
    described = [part.described for part in parts]
    merge = upkeep_of(described, horizon=horizon, length=length).merge
    if merge:
        return described.index(merge[0]), len(merge)
    if len(parts) <= MOST_SLICES:
        return None
    pairs = [one.n_rows + other.n_rows for one, other in pairwise(parts)]
    return pairs.index(min(pairs)), 2


def _path(folder: str, name: str) -> str:
    return f"{folder}/{name}.dropped.arrow"


MOST_LISTED = 2**16
"""Most keys of a list (24 bytes each); more are a sketch, of 1 MiB."""

SKETCH_WORDS = 2**16
"""Words of the filter of a sketch: four times as many as those of the longest list, as it may come
to have any number of keys."""


class DroppedCounts(NamedTuple):
    """The dropped rows that have some keys, key by key."""

    most: NDArray[np.int64]
    """No key has more."""
    about: NDArray[np.float64]
    """About how many it has; what is listed exactly."""
    newest: NDArray[np.int64]
    """When the newest one came (µs); ALWAYS if it is not known."""


@dataclass(frozen=True, slots=True, eq=False)
class DroppedKeys:
    """The keys of dropped rows (one or more) in one key class."""

    filter: KeyFilter
    most: int
    """No key has more rows."""
    hashes: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    """Of the listed keys, ascending; see ``run_index.hashes_of``. None of a sketch."""
    counts: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """The rows of each of them."""
    newest: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """When the newest one of these came (µs)."""
    counters: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """Of a sketch ((DEPTH, 2^BITS)); none of a list."""

    @classmethod
    def from_run(cls, run: SortedRun, key: int) -> DroppedKeys:
        """Return the keys of the rows (one or more) of a run."""
        index, codes = run.index(key), run.rows.codes[key]
        hashes, ones = index.hashes, np.ones(len(index), np.int64)
        listed = _listed(hashes, ones, index.starts)
        return cls._with(*listed, int(codes.min()), int(codes.max()))

    @classmethod
    def together(cls, parts: Sequence[DroppedKeys]) -> DroppedKeys:
        """Return the keys of several parts."""
        lowest = min(part.filter.lowest for part in parts)
        highest = max(part.filter.highest for part in parts)
        if not any(part.counters.size for part in parts):
            columns = [(part.hashes, part.counts, part.newest) for part in parts]
            hashes, counts, newest = map(np.concatenate, zip(*columns, strict=True))
            order = np.argsort(hashes, kind="stable")
            listed = _listed(hashes[order], counts[order], newest[order])
            return cls._with(*listed, lowest, highest)
        return cls._sketch(parts, lowest, highest)

    @classmethod
    def _with(
        cls,
        hashes: NDArray[np.uint64],
        counts: NDArray[np.int64],
        newest: NDArray[np.int64],
        lowest: int,
        highest: int,
    ) -> DroppedKeys:
        """Return a list, or a sketch if it would be too long."""
        words = np.zeros(hashes.size // KEYS_PER_WORD + 1, np.uint64)
        add_hashes(words, hashes)
        key_filter = KeyFilter(words, lowest, highest)
        listed = cls(key_filter, int(counts.max()), hashes, counts, newest)
        if hashes.size <= MOST_LISTED:
            return listed
        return cls._sketch([listed], lowest, highest)

    @classmethod
    def _sketch(cls, parts: Sequence[DroppedKeys], lowest: int, highest: int) -> DroppedKeys:
        words = np.zeros(SKETCH_WORDS, np.uint64)
        counters = np.zeros((DEPTH, 2**BITS), np.int64)
        for part in parts:
            if part.counters.size:
                words |= part.filter.words
                counters += part.counters
            else:
                add_hashes(words, part.hashes)
                add_counts(counters, part.hashes, part.counts)
        most = min(int(counters.max(axis=1).min()), sum(part.most for part in parts))
        return cls(KeyFilter(words, lowest, highest), most, counters=counters)

    def counted(self, asked: AskedKeys) -> DroppedCounts:
        """Return the dropped rows with some keys."""
        if self.counters.size:
            most, about = counts_of(self.counters, asked.hashes)
            return DroppedCounts(most, about, np.full(most.size, ALWAYS))
        places = np.minimum(np.searchsorted(self.hashes, asked.hashes), self.hashes.size - 1)
        is_there = self.hashes[places] == asked.hashes
        most = np.where(is_there, self.counts[places], 0)
        newest = np.where(is_there, self.newest[places], ALWAYS)
        return DroppedCounts(most, most.astype(np.float64), newest)


def _listed(
    hashes: NDArray[np.uint64], counts: NDArray[np.int64], newest: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]:
    """Return each hash once, with the sum of its counts and its newest time; hashes ascend."""
    first = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]]))
    return hashes[first], np.add.reduceat(counts, first), np.maximum.reduceat(newest, first)


DEPTH = 4
"""Counters of a key; the estimate is the mean of the two in the middle."""

BITS = 15
"""Counters of a row, as a power of two."""

_SHIFT = np.uint64(64 - BITS)
_FACTORS = np.array(
    [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93], np.uint64
)
"""Odd, so that each row of counters takes other bits of a hash together."""


@compiled
def add_counts(
    counters: NDArray[np.int64], hashes: NDArray[np.uint64], counts: NDArray[np.int64]
) -> None:
    """Add rows, by the hash of their key, to counters ((DEPTH, 2^BITS))."""
    for depth in range(DEPTH):
        for key in range(hashes.size):
            counters[depth, (hashes[key] * _FACTORS[depth]) >> _SHIFT] += counts[key]


@compiled
def counts_of(
    counters: NDArray[np.int64], hashes: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return how many rows of each key there are at most, and about how many."""
    most, about = np.empty(hashes.size, np.int64), np.empty(hashes.size, np.float64)
    estimates, n_rows = np.empty(DEPTH, np.int64), counters[0].sum()
    for key in range(hashes.size):
        for depth in range(DEPTH):
            estimates[depth] = counters[depth, (hashes[key] * _FACTORS[depth]) >> _SHIFT]
        estimates.sort()
        most[key] = estimates[0]
        middle = 0.5 * (estimates[DEPTH // 2 - 1] + estimates[DEPTH // 2])
        about[key] = middle - (n_rows - middle) / (counters.shape[1] - 1)
    return most, about
