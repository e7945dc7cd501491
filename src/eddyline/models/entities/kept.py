"""What a bucket keeps of its entities between batches, in files that are never written again.

Every batch appends a run with the records of the entities that it has looked at, sorted by the
codes of these; the newest run that has a code has all that is known of it. Runs are merged when
the newer ones have become as large as the one before them, so a record is written again as often
as the number of records doubles, and a batch costs what it changes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec import field as struct_field

from eddyline.data.arrays import distinct
from eddyline.models import timeline
from eddyline.models.segments import ends_of, micros_of
from eddyline.state.rows import FOREVER, Rows
from eddyline.state.run_files import RunFile, open_rows, write_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eddyline.data.arrays import Indices, Ints, Mask
    from eddyline.state.manifest import StatePlace

CODE = "__entity"
"""The column of an entity's code: a hash of its keys. Entities of one code are kept as one."""

AT = "__at"
"""The column of the instant of a record (µs)."""

FAN_IN = 4
"""Least number of runs that become one."""

_CODES = "codes"
"""The file of the codes of a run."""


class EntityRun(Struct, frozen=True, forbid_unknown_fields=True):
    """What is known of some entities since a batch."""

    files: dict[str, RunFile] = struct_field(default_factory=dict)
    """By the kind of records; ``codes`` has all entities, those without records, too."""

    @property
    def n_codes(self) -> int:
        """How many entities it says something of."""
        return self.files[_CODES].n_rows


class EntityRecords:
    """Records of entities by kind, the newest of each entity.

    Args:
        place: where files are.
        runs: the oldest first.
    """

    def __init__(self, place: StatePlace, runs: Sequence[EntityRun]) -> None:
        self.place, self.runs = place, tuple(runs)

    def of(self, codes: Ints, kinds: Sequence[str] | None = None) -> dict[str, pa.Table]:
        """Return the records of some entities by kind, with ``AT``; empty kinds are missing.

        Args:
            codes: sorted, each once.
            kinds: which kinds; None is all.

        Raises:
            OSError: they cannot be read.
        """
        found: dict[str, list[pa.Table]] = {}
        wanted = codes
        for run in reversed(self.runs):
            if not wanted.size:
                break
            is_there = _is_in(wanted, codes_of(_open(self.place, run.files[_CODES])))
            mine, wanted = wanted[is_there], wanted[~is_there]
            for kind, file in run.files.items() if mine.size else ():
                if kind != _CODES and (kinds is None or kind in kinds):
                    found.setdefault(kind, []).append(_taken(_open(self.place, file), mine))
        every = {kind: pa.concat_tables(tables) for kind, tables in found.items()}
        return {kind: table for kind, table in every.items() if len(table)}

    def given(self, codes: Ints, kinds: Sequence[str] | None = None) -> dict[str, pa.Table]:
        """Return the records of some entities as they were given; arguments as of ``of``."""
        return {kind: each.drop_columns([AT]) for kind, each in self.of(codes, kinds).items()}

    def after(
        self,
        codes: Ints,
        records: Mapping[str, tuple[pa.Table, Ints | None]],
        lows: Mapping[str, int],
    ) -> tuple[EntityRun, ...]:
        """Return the runs with what is known of some entities from now on.

        Args:
            codes: of the entities, sorted, each once.
            records: for each kind a row for each record, with ``CODE``, and an instant of each if
                that matters (µs).
            lows: by kind an instant (µs) at or before which records are not needed any more; they
                go when runs are merged.

        Raises:
            OSError: they cannot be read or written.
        """
        runs = list(self.runs)
        n = n_merged([each.n_codes for each in runs])
        if n:
            merged = self._merged(runs[-n:], lows, is_all=n == len(runs))
            runs[-n:] = [] if merged is None else [merged]
        if codes.size:
            runs.append(self._written(codes, records))
        return tuple(runs)

    def every(self, kind: str, since: int) -> pa.Table | None:
        """Return the records of a kind of all entities, with ``AT``; None if there are none.

        Args:
            kind: of records.
            since: entities whose records are all before this instant are left out, or not (µs).

        Raises:
            OSError: they cannot be read.
        """
        found: list[pa.Table] = []
        for place, run in enumerate(self.runs):
            file = run.files.get(kind)
            if file is None or file.last_end < since:
                continue
            table = _open(self.place, file)
            for newer in self.runs[place + 1 :]:
                known = codes_of(_open(self.place, newer.files[_CODES]))
                table = table.filter(pa.array(~_is_in(codes_of(table), known)))
            found.append(table)
        filled = [each for each in found if len(each)]
        return pa.concat_tables(filled) if filled else None

    def first_of(self, kind: str, since: int) -> int:
        """Return the earliest instant of a record of a kind (µs), or one before that.

        Args:
            kind: of records.
            since: entities whose records are all before this instant have others by now (µs).
        """
        files = (run.files.get(kind) for run in self.runs)
        held = [file.first_start for file in files if file and file.last_end >= since]
        return min(held, default=FOREVER)

    def _merged(
        self, runs: Sequence[EntityRun], lows: Mapping[str, int], *, is_all: bool
    ) -> EntityRun | None:
        part = EntityRecords(self.place, runs)
        every = [codes_of(_open(self.place, each.files[_CODES])) for each in runs]
        codes = distinct(np.concatenate(every))
        records = part.of(codes)
        for kind, low in lows.items():
            if kind in records:
                is_needed = instants_of(records[kind]) > low
                records[kind] = records[kind].filter(pa.array(is_needed))
        if is_all:  # nothing older is overridden by an entity without records
            filled = [codes_of(each) for each in records.values()]
            codes = distinct(np.concatenate(filled)) if filled else codes[:0]
        again = {
            kind: (each.drop_columns([AT]), instants_of(each)) for kind, each in records.items()
        }
        return self._written(codes, again) if codes.size else None

    def _written(
        self, codes: Ints, records: Mapping[str, tuple[pa.Table, Ints | None]]
    ) -> EntityRun:
        files = {_CODES: _write(self.place, pa.table({CODE: pa.array(codes)}), None)}
        for kind, (table, instants) in records.items():
            if len(table):
                order = np.argsort(codes_of(table), kind="stable")
                at = np.zeros(len(table), np.int64) if instants is None else instants
                kept = table.take(pa.array(order)).append_column(AT, pa.array(at[order]))
                files[kind] = _write(self.place, kept, at)
        return EntityRun(files)


class AppendedRows:
    """Rows of entities, which are added and go when nothing looks at them any more.

    Args:
        place: where files are.
        files: the oldest first.
    """

    _sorted_by = CODE
    """The column by which the rows of a file are sorted."""

    def __init__(self, place: StatePlace, files: Sequence[RunFile]) -> None:
        self.place, self.files = place, tuple(files)

    def of(self, codes: Ints, low: int) -> pa.Table | None:
        """Return the rows of some entities in the order in which they were added; None if none.

        Args:
            codes: sorted, each once.
            low: rows that end at or before this instant are left out, whether they have gone or
                not (µs).

        Raises:
            OSError: they cannot be read.
        """
        files = [each for each in self.files if each.last_end > low]
        found = [_taken(_open(self.place, file), codes) for file in files]
        return _whole([each.filter(pa.array(instants_of(each) > low)) for each in found])

    def after(
        self, new: pa.Table | None, ends: Ints, low: int, is_needed: Callable[[pa.Table], Mask]
    ) -> tuple[RunFile, ...]:
        """Return the files with new rows.

        Args:
            new: rows with ``CODE``; None if there are none.
            ends: the instant behind which each is not looked at (µs).
            low: files whose rows all end at or before this instant go (µs).
            is_needed: says which rows are still looked at, when files are merged.

        Raises:
            OSError: they cannot be read or written.
        """
        files = [each for each in self.files if each.last_end > low]
        n = n_merged([each.n_rows for each in files])
        if n:
            every = pa.concat_tables([_open(self.place, each) for each in files[-n:]])
            every = every.filter(pa.array(is_needed(every)))
            files[-n:] = self._written(every.drop_columns([AT]), instants_of(every))
        if new is not None:
            files += self._written(new, ends)
        return tuple(files)

    def _written(self, table: pa.Table, ends: Ints) -> list[RunFile]:
        if not len(table):
            return []
        kept = table.append_column(AT, pa.array(ends))
        order = np.argsort(kept.column(self._sorted_by).to_numpy(), kind="stable")
        return [_write(self.place, kept.take(pa.array(order)), ends)]


class RowsByEnd(AppendedRows):
    """The same of rows that are looked up by their end; arguments as above."""

    _sorted_by = AT

    def since(self, instant: int) -> pa.Table | None:
        """Return the rows that end at an instant or later (µs); None if there are none.

        Raises:
            OSError: they cannot be read.
        """
        found = [_open(self.place, each) for each in self.files if each.last_end >= instant]
        return _whole([each.slice(np.searchsorted(instants_of(each), instant)) for each in found])


class RowsByStart:
    """Segments that are looked up by their begin, and become fewer when files are merged.

    Args:
        place: where files are.
        files: the oldest first.
    """

    _sorted_by = AT
    """The column by which the rows of a file are sorted."""

    def __init__(self, place: StatePlace, files: Sequence[RunFile]) -> None:
        self.place, self.files = place, tuple(files)

    def until(self, instant: int) -> pa.Table | None:
        """Return the rows that begin at an instant or before it (µs); None if there are none.

        Raises:
            OSError: they cannot be read.
        """
        found = [_open(self.place, each) for each in self.files if each.first_start <= instant]
        ends = [np.searchsorted(instants_of(each), instant, "right") for each in found]
        return _whole([each.slice(0, end) for each, end in zip(found, ends, strict=True)])

    def after(
        self, new: pa.Table | None, low: int, reduced: Callable[[pa.Table], pa.Table]
    ) -> tuple[RunFile, ...]:
        """Return the files with new rows.

        Args:
            new: rows with ``CODE``; None if there are none.
            low: files whose rows all end at or before this instant go (µs).
            reduced: returns what stays of rows when files are merged.

        Raises:
            OSError: they cannot be read or written.
        """
        files = [each for each in self.files if each.last_end > low]
        n = n_merged([each.n_rows for each in files])
        if n:
            every = [_open(self.place, each) for each in files[-n:]]
            files[-n:] = self._written(reduced(pa.concat_tables(every).drop_columns([AT])))
        return (*files, *(() if new is None else self._written(new)))

    def _written(self, table: pa.Table) -> list[RunFile]:
        if not len(table):
            return []
        begins = micros_of(table.column("lo"))
        kept = table.append_column(AT, pa.array(begins))
        order = np.argsort(kept.column(self._sorted_by).to_numpy(), kind="stable")
        written = _write(self.place, kept.take(pa.array(order)), begins)
        return [replace(written, last_end=int(ends_of(table).max()))]


class RowsByGroup(RowsByStart):
    """The same of segments that are looked up by the codes of their groups."""

    _sorted_by = CODE

    def of(self, codes: Ints) -> pa.Table | None:
        """Return the rows of some groups; None if there are none.

        Args:
            codes: sorted, each once.

        Raises:
            OSError: they cannot be read.
        """
        return _whole([_taken(_open(self.place, file), codes) for file in self.files])


def n_merged(sizes: Sequence[int]) -> int:
    """Return how many of the newest runs become one: 0 if none do.

    Args:
        sizes: the rows of each, the oldest first.

    Example:
        >>> n_merged([100, 1, 1, 1, 1])
        4
        >>> n_merged([100, 40, 2, 3])
        0
    """
    n, total = 0, 0
    for size in reversed(sizes):
        if n >= 1 and size > total:
            break
        n, total = n + 1, total + size
    return n if n >= FAN_IN else 0


def codes_of(table: pa.Table) -> Ints:
    """Return the code of each row."""
    found: Ints = table.column(CODE).to_numpy()
    return found


def instants_of(table: pa.Table) -> Ints:
    """Return the instant of each record (µs)."""
    found: Ints = table.column(AT).to_numpy()
    return found


def _is_in(wanted: Ints, known: Ints) -> Mask:
    """Return which of some codes are among others, which are sorted."""
    places = np.minimum(np.searchsorted(known, wanted), max(len(known) - 1, 0))
    found: Mask = known[places] == wanted if len(known) else np.zeros(len(wanted), np.bool_)
    return found


def _places(known: Ints, wanted: Ints) -> Indices:
    """Return the places of some codes among sorted ones, which may have each several times."""
    first = np.searchsorted(known, wanted, "left")
    return timeline.runs(first, np.searchsorted(known, wanted, "right") - first)[1]


def _whole(found: Sequence[pa.Table]) -> pa.Table | None:
    parts = [each.drop_columns([AT]) for each in found if len(each)]
    return pa.concat_tables(parts) if parts else None


def _taken(table: pa.Table, codes: Ints) -> pa.Table:
    return table.take(pa.array(_places(codes_of(table), codes)))


def _open(place: StatePlace, file: RunFile) -> pa.Table:
    return open_rows(place.files, place.runs, file).payload


def _write(place: StatePlace, table: pa.Table, instants: Ints | None) -> RunFile:
    at = np.zeros(len(table), np.int64) if instants is None else instants
    rows = Rows({}, at, at, table.combine_chunks())
    return write_rows(place.files, place.runs, rows, is_sorted=True)
