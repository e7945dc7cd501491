"""Cold tier of a window: runs behind filters of their keys.

These runs are hardly ever read. A run goes cold as it is: only a filter of its keys is written
beside it. When there are many cold runs, their filters are merged as hot runs are: FAN_IN filters
of one size get a filter of all their keys above them, and no row is written again. So cold runs are
trees (``ColdRuns``). A look-up descends them from the top (``ColdTier``), and opens a run only if
each filter on the way to it passes the key.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.data.jit import compiled
from eddyline.state.bucket_state import ColdRuns, by_size, upkeep_of
from eddyline.state.rows import Asked, SortedRun
from eddyline.state.run_files import ReadFiles, RunFile, as_list, open_tables, write_tables
from eddyline.state.run_index import hashes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from numpy.typing import NDArray
    from pyarrow import fs


_WORDS, _ZONE = "words_", "zone_"


class ColdTier(SortedRun):
    """The cold runs of one window, which stand as one run at its beginning.

    A run is opened when a row of it is asked for, and so hardly ever: what a batch does with a cold
    tier grows with the filters at the top of it.

    Args:
        files: where they are.
        folder: of runs.
        parts: the runs.
        keys: the key classes of their rows.
        opened: opens a run.
    """

    is_cold = True

    def __init__(
        self,
        files: fs.FileSystem,
        folder: str,
        parts: Sequence[ColdRuns],
        keys: Collection[int],
        opened: Callable[[RunFile], SortedRun],
    ) -> None:
        self._files = files
        self._folder = folder
        self.parts = parts
        """The runs."""
        self._keys = keys
        self._opened = opened
        self._n_rows = sum(part.n_rows for part in parts)

    def __len__(self) -> int:
        return self._n_rows

    @property
    def keys(self) -> Collection[int]:
        """The key classes of its rows."""
        return self._keys

    def asked(
        self, key: int, hashes: NDArray[np.uint64], codes: NDArray[np.int64]
    ) -> Iterator[Asked]:
        """Yield the runs whose filters let some codes pass; see ``SortedRun.asked``."""
        yield from self._asked(self.parts, 0, key, AskedKeys.from_hashes(hashes, codes))

    def _asked(
        self, parts: Sequence[ColdRuns], first: int, key: int, asked: AskedKeys
    ) -> Iterator[Asked]:
        """Yield those of some parts, the first row of which is of a number."""
        for part in parts:
            filters = read_filters(self._files, self._folder, part.filter)
            places = filters[key].passing(asked)
            if places.size:
                passing = asked.taken(places)
                if part.run is not None:
                    yield Asked(self._opened(part.run), first, passing.places)
                yield from self._asked(part.parts, first, key, passing)
            first += part.n_rows

    def began_by(self, key: int, asked: AskedKeys, limit: int, length: int) -> NDArray[np.int64]:
        """Return the places of codes that runs may have of which each row began by an instant (µs).

        No run is opened: filters alone are asked.

        Args:
            key: the key class that the codes are of.
            asked: the codes.
            limit: the instant.
            length: of the window (µs).
        """
        began = np.zeros(asked.codes.size, np.bool_)
        due = list(self.parts)
        while due:
            part, rest = due.pop(), np.flatnonzero(~began)
            if part.filter.last_end - length > limit:
                due.extend(part.parts)
            elif rest.size:
                filters = read_filters(self._files, self._folder, part.filter)
                began[rest[filters[key].passing(asked.taken(rest))]] = True
        return np.flatnonzero(began)

    def having(self, rows: NDArray[np.int64]) -> tuple[list[SortedRun], NDArray[np.int64]]:
        """Return the runs that have some rows (one or more), and these counted through them."""
        firsts = np.array([first for first, _ in self._numbered])
        numbers = np.searchsorted(firsts, rows, "right") - 1
        asked = np.flatnonzero(np.bincount(numbers))
        runs = [self._opened(self._numbered[number][1]) for number in asked.tolist()]
        moved = np.zeros(firsts.size, np.int64)
        moved[asked] = firsts[asked] - np.cumsum([0, *map(len, runs[:-1])])
        return runs, rows - moved[numbers]

    @cached_property
    def _numbered(self) -> list[tuple[int, RunFile]]:
        """The runs, with the number of the first row of each."""
        return [*_numbered(self.parts, 0)]


def _numbered(parts: Sequence[ColdRuns], first: int) -> Iterator[tuple[int, RunFile]]:
    for part in parts:
        if part.run is not None:
            yield first, part.run
        yield from _numbered(part.parts, first)
        first += part.n_rows


def cooled(
    files: fs.FileSystem,
    folder: str,
    before: Sequence[ColdRuns],
    runs: Sequence[RunFile],
    opened: Callable[[RunFile], SortedRun],
    *,
    horizon: int,
    length: int,
) -> tuple[ColdRuns, ...]:
    """Return the cold runs of a window with some more, without those that left it.

    Args:
        files: where they are.
        folder: of runs.
        before: those that were cold before.
        runs: those that become cold, later than these.
        opened: opens a run.
        horizon: rows that left their window before this instant are not needed (µs).
        length: of the window (µs).

    Raises:
        OSError: a run cannot be read, or a filter written.
    """
    parts = [part.after(horizon) for part in before if part.filter.last_end >= horizon]
    stay = (run for run in runs if run.last_end >= horizon)
    parts += [cold_run(files, folder, run, opened(run)) for run in stay]
    while due := _due(parts, horizon, length):
        together = tuple(part for part in parts if part.filter in due)
        described = [run for part in together for run in part.runs]
        file = write_filter(files, folder, described, [opened(run) for run in described])
        first = parts.index(together[0])
        parts = [part for part in parts if part not in together]
        parts.insert(first, ColdRuns(file, parts=together))
    return tuple(parts)


def _due(parts: Sequence[ColdRuns], horizon: int, length: int) -> tuple[RunFile, ...]:
    """Return the filters that are to get one above them; none if empty."""
    filters = by_size([part.filter for part in parts])
    return upkeep_of(filters, horizon=horizon, length=length).merge


def cold_run(files: fs.FileSystem, folder: str, file: RunFile, run: SortedRun) -> ColdRuns:
    """Return a run that becomes cold as it is written, behind the filter of its keys.

    Raises:
        OSError: the filter cannot be written.
    """
    return ColdRuns(write_filter(files, folder, [file], [run]), file)


def write_filter(
    files: fs.FileSystem, folder: str, runs: Sequence[RunFile], rows: Sequence[SortedRun]
) -> RunFile:
    """Write the filter of the keys of runs, and return what state says of it and of them."""
    columns: dict[str, pa.Array] = {}
    for key in rows[0].rows.codes:
        key_filter = KeyFilter.from_codes([run.rows.codes[key] for run in rows])
        columns[f"{_WORDS}{key}"] = as_list(key_filter.words, pa.uint64())
        columns[f"{_ZONE}{key}"] = as_list(
            np.array([key_filter.lowest, key_filter.highest], np.int64), pa.int64()
        )
    name = uuid.uuid4().hex
    written = write_tables(files, [_path(folder, name)], [pa.table(columns)])
    return RunFile(
        name,
        sum(run.n_rows for run in runs),
        min(run.first_start for run in runs),
        max(run.last_end for run in runs),
        *written,
    )


_READ: ReadFiles[Filters] = ReadFiles()
"""Those of this process."""


def read_filters(files: fs.FileSystem, folder: str, file: RunFile) -> Filters:
    """Return the filters of a file, by key class; a process reads them once.

    Raises:
        OSError: they cannot be read.
    """
    which = _path(folder, file.name), file.checksum
    kept = _READ.get(which)
    if kept is not None:
        return kept
    (table,) = open_tables(files, [which[0]], file.checksum)
    parts = {name: table[name].chunk(0).values.to_numpy() for name in table.column_names}
    keys = [int(name.removeprefix(_WORDS)) for name in parts if name.startswith(_WORDS)]
    filters = {
        key: KeyFilter(parts[f"{_WORDS}{key}"], *map(int, parts[f"{_ZONE}{key}"])) for key in keys
    }
    _READ.keep(which, file.n_bytes, filters)
    return filters


def _path(folder: str, name: str) -> str:
    return f"{folder}/{name}.filter.arrow"


# -- filters of the keys of runs -------------------------------------------------------------------
# Filters of the keys of runs, for keys that a run hardly ever holds.
#
# A filter rejects nearly all keys that a run does not hold, so the run is read for few others. It
# never rejects a key that the run holds. It is a Bloom filter whose four bits of a key are in one
# word, with 16 bits a key: about one other key in 200 passes. The least and the greatest code of a
# run (its zone) reject whole batches if keys ascend with time.


KEYS_PER_WORD = 4
"""Rows of a run for each word of 64 bits of its filter."""


@dataclass(frozen=True, slots=True, eq=False)
class AskedKeys:
    """Codes that are looked up."""

    hashes: NDArray[np.uint64]
    """Of the codes; see ``run_index.hashes_of``."""
    masks: NDArray[np.uint64]
    """The bits that a filter has of each of them; see ``masks_of``."""
    codes: NDArray[np.int64]
    places: NDArray[np.int64]
    """The place of each among all that is looked up, ascending."""
    lowest: int
    """No code is less."""
    highest: int
    """No code is greater."""

    @classmethod
    def from_hashes(cls, hashes: NDArray[np.uint64], codes: NDArray[np.int64]) -> AskedKeys:
        """Return codes with their hashes."""
        bounds = np.iinfo(np.int64)
        lowest, highest = codes.min(initial=bounds.max), codes.max(initial=bounds.min)
        places = np.arange(codes.size)
        return cls(hashes, masks_of(hashes), codes, places, int(lowest), int(highest))

    def taken(self, chosen: NDArray[np.int64]) -> AskedKeys:
        """Return some of them, by their places here."""
        return AskedKeys(
            self.hashes[chosen],
            self.masks[chosen],
            self.codes[chosen],
            self.places[chosen],
            self.lowest,
            self.highest,
        )


@dataclass(frozen=True, slots=True, eq=False)
class KeyFilter:
    """A filter of the codes of a run in one key class, which is not empty."""

    words: NDArray[np.uint64]
    lowest: int
    """The least code."""
    highest: int
    """The greatest one."""

    @classmethod
    def from_codes(cls, parts: Sequence[NDArray[np.int64]]) -> KeyFilter:
        """Return the filter of codes in parts; at least one in each."""
        words = np.zeros(max(1, sum(part.size for part in parts) // KEYS_PER_WORD), np.uint64)
        for codes in parts:
            add_hashes(words, hashes_of(codes))
        lowest = min(int(codes.min()) for codes in parts)
        return cls(words, lowest, max(int(codes.max()) for codes in parts))

    def passing(self, asked: AskedKeys) -> NDArray[np.int64]:
        """Return the places of those that may be among the codes of the filter, ascending."""
        lowest, highest = self.lowest, self.highest
        if asked.lowest > highest or asked.highest < lowest:
            return np.empty(0, np.int64)
        return may_hold(self.words, lowest, highest, asked.hashes, asked.masks, asked.codes)


Filters = dict[int, KeyFilter]
"""The filters of a run, by key class."""


_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_SIX = np.uint64(6)
_PLACE = np.uint64(63)


@compiled
def add_hashes(words: NDArray[np.uint64], hashes: NDArray[np.uint64]) -> None:
    """Add hashes to the words of a filter; their upper half chooses the word."""
    n_words = np.uint64(words.size)
    for row in range(hashes.size):
        words[((hashes[row] >> _HALF) * n_words) >> _HALF] |= _mask(hashes[row])


@compiled
def masks_of(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the bits that each hash has in its word."""
    masks = np.empty(hashes.size, np.uint64)
    for row in range(hashes.size):
        masks[row] = _mask(hashes[row])
    return masks


@compiled
def _mask(value: np.uint64) -> np.uint64:
    bits, mask = value & _LOW, np.uint64(0)
    for _ in range(4):
        mask |= np.uint64(1) << (bits & _PLACE)
        bits >>= _SIX
    return mask


@compiled
def may_hold(
    words: NDArray[np.uint64],
    lowest: int,
    highest: int,
    hashes: NDArray[np.uint64],
    masks: NDArray[np.uint64],
    codes: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return the places of the codes, and of their hashes, that a filter may hold.

    Args:
        words: of the filter.
        lowest: the least code that it holds.
        highest: the greatest one.
        hashes: of the codes.
        masks: of the hashes.
        codes: what is asked for.
    """
    places, n, n_words = np.empty(codes.size, np.int64), 0, np.uint64(words.size)
    for row in range(codes.size):
        if codes[row] < lowest or codes[row] > highest:
            continue
        word = words[((hashes[row] >> _HALF) * n_words) >> _HALF]
        places[n] = row
        n += (word & masks[row]) == masks[row]
    return places[:n]
