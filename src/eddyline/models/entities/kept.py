"""Records and rows of entities, which a bucket keeps between batches.

They are in files that are never written again. Every batch appends a run with the records of the
entities that it has looked at, sorted by the codes of these; the newest run that has a code has all
that is known of it. Rows of entities are in files of their own (``EntityRows``). Runs are merged
when the newer ones have become as large as the one before them, so a record is written again as
often as the number of records doubles, and a batch costs what it changes.

Whatever reads or writes raises OSError if files cannot be read or written.
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
from eddyline.models.segments import ends_of
from eddyline.state.rows import ALWAYS, FOREVER, Rows
from eddyline.state.run_files import RunFile, open_rows, write_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eddyline.data.arrays import Ints, Mask
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


Files = tuple[RunFile, ...]
EntityRuns = tuple[EntityRun, ...]
"""The oldest first."""


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
        """
        parts: dict[str, list[pa.Table]] = {}
        wanted = codes
        for run in reversed(self.runs):
            if not wanted.size:
                break
            is_there = _is_in(wanted, codes_of(_open(self.place, run.files[_CODES])))
            mine, wanted = wanted[is_there], wanted[~is_there]
            for kind, file in run.files.items() if mine.size else ():
                if kind != _CODES and (kinds is None or kind in kinds):
                    parts.setdefault(kind, []).append(_taken(_open(self.place, file), mine))
        every = {kind: pa.concat_tables(tables) for kind, tables in parts.items()}
        return {kind: table for kind, table in every.items() if len(table)}

    def given(self, codes: Ints) -> dict[str, pa.Table]:
        """Return the records of some entities as they were given to ``after``."""
        return {kind: table.drop_columns([AT]) for kind, table in self.of(codes).items()}

    def after(
        self,
        codes: Ints,
        records: Mapping[str, tuple[pa.Table, Ints]],
        lows: Mapping[str, int],
    ) -> EntityRuns:
        """Return the runs with what is known of some entities from now on.

        Args:
            codes: of the entities, sorted, each once.
            records: for each kind a row for each record, with ``CODE``, and an instant of each
                (µs).
            lows: by kind an instant (µs) at or before which records are not needed any more; they
                go when runs are merged.
        """
        runs = list(self.runs)
        n = n_merged([run.n_codes for run in runs])
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
        """
        tables: list[pa.Table] = []
        for place, run in enumerate(self.runs):
            file = run.files.get(kind)
            if file is None or file.last_end < since:
                continue
            table = _open(self.place, file)
            for newer in self.runs[place + 1 :]:
                codes = codes_of(_open(self.place, newer.files[_CODES]))
                table = table.filter(pa.array(~_is_in(codes_of(table), codes)))
            tables.append(table)
        filled = [part for part in tables if len(part)]
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
        every = [codes_of(_open(self.place, run.files[_CODES])) for run in runs]
        codes = distinct(np.concatenate(every))
        records = part.of(codes)
        for kind, low in lows.items():
            if kind in records:
                is_needed = instants_of(records[kind]) > low
                records[kind] = records[kind].filter(pa.array(is_needed))
        if is_all:  # nothing older is overridden by an entity without records
            filled = [codes_of(table) for table in records.values()]
            codes = distinct(np.concatenate(filled)) if filled else codes[:0]
        again = {
            kind: (table.drop_columns([AT]), instants_of(table)) for kind, table in records.items()
        }
        return self._written(codes, again) if codes.size else None

    def _written(self, codes: Ints, records: Mapping[str, tuple[pa.Table, Ints]]) -> EntityRun:
        table = pa.table({CODE: pa.array(codes)})
        files = {_CODES: _write(self.place, table, np.zeros(len(codes), np.int64))}
        for kind, (table, instants) in records.items():
            if len(table):
                order = np.argsort(codes_of(table), kind="stable")
                kept = table.append_column(AT, pa.array(instants)).take(pa.array(order))
                files[kind] = _write(self.place, kept, instants)
        return EntityRun(files)


class EntityRows:
    """Rows of entities in files: new rows are appended, and rows go once nothing looks at them.

    A row has one instant, of segments their end unless something else is said. Files are sorted by
    the code of the entity, or by that instant.

    Args:
        place: where files are.
        files: the oldest first.
        instants: returns the instant of each row (µs).
        ends: returns the instant behind which no row is looked at (µs).
        sorted_by: ``CODE`` if rows are looked up by ``of``, ``AT`` if by ``since`` or ``until``.
    """

    def __init__(
        self,
        place: StatePlace,
        files: Sequence[RunFile],
        instants: Callable[[pa.Table], Ints] = ends_of,
        ends: Callable[[pa.Table], Ints] = ends_of,
        sorted_by: str = CODE,
    ) -> None:
        self.place, self.files = place, tuple(files)
        self._instants, self._ends, self._sorted_by = instants, ends, sorted_by

    def of(self, codes: Ints, low: int = ALWAYS) -> pa.Table | None:
        """Return the rows of some entities in the order in which they were added; None if none.

        Args:
            codes: sorted, each once.
            low: rows at or before this instant are left out, whether they have gone or not (µs).
        """
        files = [file for file in self.files if file.last_end > low]
        tables = [_taken(_open(self.place, file), codes) for file in files]
        if low > ALWAYS:
            tables = [table.filter(pa.array(instants_of(table) > low)) for table in tables]
        return _whole(tables)

    def since(self, instant: int) -> pa.Table | None:
        """Return the rows at an instant (µs) or behind it; None if there are none."""
        tables = [_open(self.place, file) for file in self.files if file.last_end >= instant]
        return _whole(
            [table.slice(np.searchsorted(instants_of(table), instant)) for table in tables]
        )

    def until(self, instant: int) -> pa.Table | None:
        """Return the rows at an instant (µs) or before it; None if there are none."""
        tables = [_open(self.place, file) for file in self.files if file.first_start <= instant]
        ends = [np.searchsorted(instants_of(table), instant, "right") for table in tables]
        return _whole([table.slice(0, end) for table, end in zip(tables, ends, strict=True)])

    def after(
        self, new: pa.Table | None, low: int, needed: Callable[[pa.Table], pa.Table]
    ) -> Files:
        """Return the files with new rows.

        Args:
            new: rows with ``CODE``; None if there are none.
            low: files go whose rows all end at or before this instant (µs).
            needed: returns what stays of rows when files are merged.
        """
        files = [file for file in self.files if file.last_end > low]
        n = n_merged([file.n_rows for file in files])
        if n:
            merged = pa.concat_tables([_open(self.place, file) for file in files[-n:]])
            files[-n:] = self._written(needed(merged.drop_columns([AT])))
        return (*files, *(() if new is None else self._written(new)))

    def _written(self, table: pa.Table) -> list[RunFile]:
        if not len(table):
            return []
        instants = self._instants(table)
        kept = table.append_column(AT, pa.array(instants))
        order = np.argsort(kept.column(self._sorted_by).to_numpy(), kind="stable")
        written = _write(self.place, kept.take(pa.array(order)), instants)
        return [replace(written, last_end=int(self._ends(table).max()))]


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
    codes: Ints = table.column(CODE).to_numpy()
    return codes


def instants_of(table: pa.Table) -> Ints:
    """Return the instant of each record (µs)."""
    instants: Ints = table.column(AT).to_numpy()
    return instants


def _is_in(wanted: Ints, others: Ints) -> Mask:
    """Return which of some codes are among others, which are sorted."""
    places = np.minimum(np.searchsorted(others, wanted), max(len(others) - 1, 0))
    is_there: Mask = others[places] == wanted if len(others) else np.zeros(len(wanted), np.bool_)
    return is_there


def _whole(tables: Sequence[pa.Table]) -> pa.Table | None:
    parts = [table.drop_columns([AT]) for table in tables if len(table)]
    return pa.concat_tables(parts) if parts else None


def _taken(table: pa.Table, codes: Ints) -> pa.Table:
    """Return the rows of some codes in a table that is sorted by them, and may have several."""
    sorted_codes = codes_of(table)
    first = np.searchsorted(sorted_codes, codes, "left")
    places = timeline.runs(first, np.searchsorted(sorted_codes, codes, "right") - first)[1]
    return table.take(pa.array(places))


def _open(place: StatePlace, file: RunFile) -> pa.Table:
    return open_rows(place.files, place.runs, file).payload


def _write(place: StatePlace, table: pa.Table, instants: Ints) -> RunFile:
    rows = Rows({}, instants, instants, table.combine_chunks())
    return write_rows(place.files, place.runs, rows, is_sorted=True)
