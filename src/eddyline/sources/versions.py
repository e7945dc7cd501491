"""Versioned tables as streams of added rows, file by file.

``VersionedSource`` has the offsets. A subclass says which versions there are, and which files each
of them adds. An offset is how far a stream is: ``{"version": 12, "file": 3, "whole": false}`` says
that all versions before 12 are read, and three files of those that version 12 adds. ``file`` is -1
where all of them are read. ``whole`` is true while a new query reads the table as it stood at its
start; the files are then those of the whole version.

A version that only appends gives its rows. A compaction gives none. A version that removes or
rewrites rows is an error, unless ``on_change`` says what to do with it.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from eddyline.errors import OptionError, SourceError
from eddyline.sources.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eddyline.sources.source import Offset, Split

ALL = -1
"""Value of ``file``: all files of the version."""

SPLIT_BYTES = 32 << 20
"""Bytes of small files that one task reads, and of the parts of a large one."""

IGNORE, ROWS = "ignore", "rows"
"""Values of ``on_change``."""

LATEST, EARLIEST = "latest", "earliest"
"""Values of ``start`` beside versions and times."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a version does to the rows of a table."""

    files: tuple[Any, ...]
    """Files that it adds, in an order that is always the same; none if it only moves rows."""
    rewrites: str = ""
    """What it does if it is no append, such as ``DELETE``."""


@dataclass(frozen=True, slots=True)
class Part:
    """A file that a task reads, or a part of it: some of its row groups."""

    file: Any
    number: int = 0
    n_parts: int = 1
    """Part ``number`` has the row groups in proportion."""


class VersionedSource(Source):
    """A table with versions, as a stream or as a table.

    Args:
        options: ``start``, ``on_change`` and ``max_per_batch``, and those of the subclass.

    Raises:
        OptionError: an option is unknown or out of range.
    """

    names: ClassVar[frozenset[str]] = frozenset({"start", "on_change", "max_per_batch"})
    cuts_files: ClassVar[bool] = True
    """Whether several tasks may read parts of one file."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.on_change = self.options.get("on_change")
        if self.on_change not in (None, IGNORE, ROWS):
            msg = (
                f"option 'on_change' of {self.kind} is 'ignore' (leave out versions that rewrite "
                f"rows) or 'rows' (read their new files as new rows), got {self.on_change!r}"
            )
            raise OptionError(msg, on_change=self.on_change)
        start = self.options.get("start")
        if start not in (None, LATEST, EARLIEST):
            checked_start(str(start))
        self._changes: dict[Any, Change] = {}
        """Changes of the newest versions that were asked for."""
        self._whole: tuple[Any, tuple[Any, ...]] | None = None
        """The files of the version that was asked for last."""

    def __repr__(self) -> str:
        """Show the options, but nothing that is handed on to the package."""
        names = sorted(name for name in self.options if name in self.names)
        shown = ", ".join(f"{name}={self.options[name]}" for name in names)
        hidden = ", …" if len(names) < len(self.options) else ""
        return f"<{self.kind}: {shown}{hidden}>"

    def __reduce__(self) -> tuple[type[VersionedSource], tuple[dict[str, str]]]:
        """Travel as options, without what was loaded."""
        return type(self), (self.options,)

    # -- what a subclass says ---------------------------------------------------------------------

    @property
    @abstractmethod
    def where(self) -> str:
        """The table, as errors call it."""

    @abstractmethod
    def newest(self) -> Any:
        """Return the newest version.

        Raises:
            SourceError: the table does not answer, or is not there.
        """

    def identity(self, version: Any) -> str | None:  # noqa: ARG002
        """Return what tells the table from another one at its place; None: versions do.

        Args:
            version: the newest version that is known.
        """
        return None

    @abstractmethod
    def oldest(self) -> Any:
        """Return the oldest version that is still there."""

    @abstractmethod
    def before(self, start: str) -> Any:
        """Return the version after which a start reads: a version or a time.

        Raises:
            SourceError: there is no such version, or it is gone.
            OptionError: it is neither.
        """

    @abstractmethod
    def between(self, after: Any, until: Any) -> Sequence[Any]:
        """Return the versions after one, until another one, in their order.

        Raises:
            SourceError: some of them are gone.
        """

    @abstractmethod
    def change(self, version: Any) -> Change:
        """Return what a version changes.

        Raises:
            SourceError: it is gone.
        """

    @abstractmethod
    def files(self, version: Any) -> tuple[Any, ...]:
        """Return all files of a version, in an order that is always the same.

        Raises:
            SourceError: it is gone.
        """

    @abstractmethod
    def size(self, file: Any) -> tuple[int | None, int]:
        """Return the number of rows of a file, if it is known, and its bytes."""

    @abstractmethod
    def split(self, version: Any, parts: tuple[Part, ...]) -> Split:
        """Return what a task needs to read some parts of files.

        Args:
            version: the newest version of the batch, whose columns count.
            parts: the parts.
        """

    # -- as a stream ------------------------------------------------------------------------------

    def initial(self) -> Offset:
        """Return where a new query starts: with the table as it stands, if nothing is said."""
        start = self.options.get("start")
        if start is None:
            return self._offset(self.newest(), 0, whole=True)
        if start == EARLIEST:
            return self._offset(self.oldest(), 0, whole=True)
        return self._offset(self.newest() if start == LATEST else self.before(start))

    def latest(self, start: Offset | None, most_rows: int | None, until: Offset | None) -> Offset:
        """Return how far a batch may read; whole files, and at least one."""
        end = self._offset(self.newest()) if until is None else until
        if start is None or most_rows is None:
            return end
        n_rows = 0
        for version, whole, files, first in self._steps(start, end):
            for number, file in enumerate(files, first):
                n_more = self.size(file)[0]
                if n_more is None:  # such a file is a batch
                    n_more = most_rows
                if n_rows and n_rows + n_more > most_rows:
                    return self._offset(version, number, whole=whole)
                n_rows += n_more
        return end

    def splits(self, start: Offset, end: Offset) -> Sequence[Split]:
        """Return what the tasks of a batch read."""
        files = [file for _, _, files, _ in self._steps(start, end) for file in files]
        return self._packed(end["version"], files)

    def plain_files(self, start: Offset, end: Offset) -> Sequence[str] | None:
        """Return the Parquet files of this machine whose rows are those between two offsets."""
        paths = []
        for version, _, files, _ in self._steps(start, end):
            for file in files:
                path = self.plain_path(version, file)
                if path is None:
                    return None
                paths.append(path)
        return paths

    def plain_path(self, version: Any, file: Any) -> str | None:  # noqa: ARG002
        """Return the path of a Parquet file of this machine that has just the rows of a file.

        None: it is elsewhere, rows of it were deleted, or columns have other names.
        """
        return None

    def _offset(self, version: Any, file: int = ALL, *, whole: bool = False) -> Offset:
        offset = {"version": version, "file": file, "whole": whole}
        table = self.identity(version)
        return offset if table is None else {**offset, "table": table}

    def _check_identity(self, start: Offset, end: Offset) -> None:
        """Raise SourceError if the table is not the one that a query began with."""
        began = start.get("table")
        if began is not None and began != self.identity(end["version"]):
            msg = (
                f"{self.where} is another table than the one that was read before: it was removed "
                f"and made again. Begin a query with another checkpoint"
            )
            raise SourceError(msg, table=began)

    def _steps(self, start: Offset, end: Offset) -> Iterator[tuple[Any, bool, Sequence[Any], int]]:
        """Yield version, whether whole, files that are read, and the number of the first one.

        Raises:
            SourceError: a version rewrites rows, or is gone.
        """
        self._check_identity(start, end)
        versions = [] if start["file"] == ALL else [(start["version"], start["whole"])]
        later = self.between(start["version"], end["version"])
        for version, whole in [*versions, *((version, False) for version in later)]:
            is_first = version == start["version"]
            is_last = (version, whole) == (end["version"], end["whole"]) and end["file"] != ALL
            first, last = (
                start["file"] if is_first else 0,
                end["file"] if is_last else None,
            )
            files = self._files_of(version) if whole else self._added(version)
            yield version, whole, files[first:last], first

    def _files_of(self, version: Any) -> tuple[Any, ...]:
        if self._whole is None or self._whole[0] != version:
            self._whole = version, self.files(version)
        return self._whole[1]

    def _added(self, version: Any) -> tuple[Any, ...]:
        """Return the files of a version that are read.

        Raises:
            SourceError: it rewrites rows, and nothing says what to do then.
        """
        if version not in self._changes:
            while len(self._changes) >= _MOST_CHANGES:
                del self._changes[next(iter(self._changes))]
            self._changes[version] = self.change(version)
        change = self._changes[version]
        if not change.rewrites or self.on_change == ROWS:
            return change.files
        if self.on_change == IGNORE:
            return ()
        msg = (
            f"version {version} of {self.where} removes or rewrites rows ({change.rewrites}), and "
            f"a stream gives each row once. on_change='ignore' leaves such versions out, and "
            f"on_change='rows' reads all files that they add as new rows; or begin a query with "
            f"another checkpoint behind that version"
        )
        raise SourceError(msg, version=version)

    def _packed(self, version: Any, files: Sequence[Any]) -> list[Split]:
        """Return splits of about equal bytes: several small files, or parts of a large one."""
        packs: list[list[Part]] = []
        room = 0
        for file in files:
            n_bytes = self.size(file)[1]
            n_parts = max(1, math.ceil(n_bytes / SPLIT_BYTES)) if self.cuts_files else 1
            if n_parts > 1:
                packs += [[Part(file, number, n_parts)] for number in range(n_parts)]
                room = 0
            elif packs and n_bytes <= room:
                packs[-1].append(Part(file))
                room -= n_bytes
            else:
                packs.append([Part(file)])
                room = SPLIT_BYTES - n_bytes
        return [self.split(version, tuple(parts)) for parts in packs]

    # -- as a table -------------------------------------------------------------------------------

    def version(self) -> Offset:
        """Return the newest version of the table, and which table it is."""
        version = self.newest()
        table = self.identity(version)
        return {"version": version} if table is None else {"version": version, "table": table}

    def table_splits(self, version: Offset) -> Sequence[Split]:
        """Return what the tasks of a job read of a version of the table.

        Raises:
            SourceError: it is gone, or the table at this place is another one.
        """
        self._check_identity(version, version)
        return self._packed(version["version"], self._files_of(version["version"]))


_MOST_CHANGES = 64
"""Versions whose files a source keeps."""


def checked_start(start: str) -> int | datetime:
    """Return a start as a version or a time.

    Raises:
        OptionError: it is none of them.
    """
    if start.isdecimal():
        return int(start)
    try:
        time = datetime.fromisoformat(start)
    except ValueError:
        msg = (
            f"option 'start' is 'latest', 'earliest', a version, or a time such as "
            f"'2026-11-30 12:00', got {start!r}"
        )
        raise OptionError(msg, start=start) from None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time


def as_texts(options: Mapping[str, Any]) -> dict[str, str]:
    """Return options of a source as texts, without those that are None."""
    return {name: str(value) for name, value in options.items() if value is not None}


# -- columns of files as the columns of a table ----------------------------------------------------
# Columns of Parquet files as the columns of a table: names, types, columns that a file lacks.
#
# Formats of tables with a log may store a column under another name, in an older type, or not at
# all. Workers import the module.


Names = dict[str, tuple[str, Any]]
"""By name of a field: its name in the files, and the names of its own fields (of a struct, of the
elements of a list, of keys and values of a map), or None."""


def fitted(array: pa.Array, wanted: pa.DataType, names: Any = None) -> pa.Array:
    """Return an array as one of another type: fields by their names, values cast.

    Args:
        array: what the file has; not sliced.
        wanted: the type of the table.
        names: of a struct: ``Names``; of a list: the names of its element; of a map: a pair.

    Raises:
        pa.ArrowInvalid: a value does not fit.
    """
    if pa.types.is_struct(wanted):
        return _struct(array, wanted, names or {})
    if pa.types.is_list(wanted):
        values = fitted(array.values, wanted.value_type, names)
        mask = array.is_null() if array.null_count else None
        return pa.ListArray.from_arrays(array.offsets, values, type=wanted, mask=mask)
    if pa.types.is_map(wanted):
        of_keys, of_items = names or (None, None)
        keys = fitted(array.keys, wanted.key_type, of_keys)
        items = fitted(array.items, wanted.item_type, of_items)
        mask = array.is_null() if array.null_count else None
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=wanted, mask=mask)
    return array if array.type == wanted else array.cast(wanted)


def _struct(array: pa.StructArray, wanted: pa.StructType, names: Names) -> pa.Array:
    places = {field.name: place for place, field in enumerate(array.type)}
    children = []
    for field in wanted:
        stored, inner = names.get(field.name, (field.name, None))
        if stored in places:
            children.append(fitted(array.field(places[stored]), field.type, inner))
        else:
            children.append(pa.nulls(len(array), field.type))
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=mask)


def fitted_batch(
    batch: pa.RecordBatch,
    schema: pa.Schema,
    names: Names,
    constants: Mapping[str, pa.Scalar],
) -> pa.RecordBatch:
    """Return rows of a file as rows of a table.

    Args:
        batch: the columns of the file that the table has.
        schema: the columns of the table.
        names: in the files, where they are others.
        constants: by name of a column, its value in every row of the file.
    """
    columns: list[pa.Array] = []
    for field in schema:
        stored, inner = names.get(field.name, (field.name, None))
        if field.name in constants:
            columns.append(pa.repeat(constants[field.name].cast(field.type), batch.num_rows))
        elif stored in batch.schema.names:
            columns.append(fitted(batch.column(stored), field.type, inner))
        else:
            columns.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def stored_names(schema: pa.Schema, names: Names, there: Sequence[str]) -> list[str]:
    """Return the columns of a file that a table has."""
    stored = [names.get(name, (name, None))[0] for name in schema.names]
    return [name for name in stored if name in there]
