"""Rows of one input, and the sorted runs that keep them.

``Rows`` has rows by columns: the codes of their keys, one array for each key class; the instant
from which each row is in its window, and the last one; and the payload that results need. A code is
a whole number that says a key exactly, so a column whose values the codes say need not be in the
payload (``KeyColumn``).

``SortedRun`` has rows that no longer change, in the order of their first key, with an index for
each key class. A window is a sequence of runs; its cold tier stands for many of them, and is asked
as one (``SortedRun.asked``). Where several queries share a window, each sees its part of a run
(``NarrowRun``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from eddyline.state.run_index import AS_ENDS, Index

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

FOREVER = np.iinfo(np.int64).max
"""The end of a row that never leaves its window (µs)."""

ALWAYS = np.iinfo(np.int64).min
"""The start of a row that was always there, such as one of a static table (µs)."""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column whose values the codes of a key class say."""

    name: str
    key: int
    """The class."""
    kind: pa.DataType
    """Type of its values: whole numbers, booleans, dates, or timestamps of µs."""

    def values(self, codes: Mapping[int, NDArray[np.int64]]) -> pa.Array:
        """Return its values of rows with some codes, by class."""
        return values_of(codes[self.key], self.kind)


def result_column(name: str, column: str) -> str:
    """Return the name of an input's column in flat results, ``input.column``.

    Dots of the input's own name are marked, so that no two columns have one name.
    """
    marked = name.replace("\\", "\\\\").replace(".", "\\.")
    return f"{marked}.{column}"


def values_of(codes: NDArray[np.int64], kind: pa.DataType) -> pa.Array:
    """Return the values of codes: numbers, 0 and 1 of booleans, days or µs since 1970."""
    numbers = pa.array(codes, pa.int64())
    return numbers.cast(pa.int32()).cast(kind) if pa.types.is_date32(kind) else numbers.cast(kind)


def as_kept(kind: pa.DataType) -> pa.DataType:
    """Return a type as windows keep it, whatever the session's time zone and Arrow types are."""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if pa.types.is_large_string(kind):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(kind) else kind


def as_nullable(kind: pa.DataType) -> pa.DataType:
    """Return a type whose parts may be NULL.

    >>> as_nullable(pa.struct([pa.field("n", pa.int64(), nullable=False)]))
    StructType(struct<n: int64>)
    """
    if pa.types.is_struct(kind):
        parts = [kind.field(index) for index in range(kind.num_fields)]
        return pa.struct([pa.field(column.name, as_nullable(column.type)) for column in parts])
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, as_nullable(kind.value_type)))
    return kind


def _alike(tables: list[pa.Table]) -> list[pa.Table]:
    """Return tables whose columns differ in what may be NULL in them with columns of one type.

    Spark knows of some columns that no part of them is NULL, by the way in which they are made.
    """
    first = tables[0].schema
    if all(table.schema.equals(first) for table in tables):
        return tables
    common = pa.schema([pa.field(column.name, as_nullable(column.type)) for column in first])
    return [table.cast(common) for table in tables]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows of one input."""

    codes: dict[int, NDArray[np.int64]]
    """Codes of the rows, by key class of the input."""
    starts: NDArray[np.int64]
    """The instant from which each row is in its window: its event time (µs)."""
    ends: NDArray[np.int64]
    """The last instant at which it is (µs); of two rows, not the earlier one's later, except where
    a window counts rows in groups (see ``row_windows``)."""
    payload: pa.Table
    """The columns that results need."""
    passes: NDArray[np.bool_] | None = None
    """Mask of the rows that can join; all can if omitted. One that cannot is there because a
    window counts it, and its codes say nothing."""

    def __len__(self) -> int:
        return self.starts.size

    def taken(self, rows: NDArray[np.integer]) -> Rows:
        """Return some of the rows, in another order."""
        codes = {key: codes[rows] for key, codes in self.codes.items()}
        payload = self.payload.take(pa.array(rows))
        passes = None if self.passes is None else self.passes[rows]
        return Rows(codes, self.starts[rows], self.ends[rows], payload, passes)

    def passing(self) -> Rows:
        """Return the rows that can join."""
        if self.passes is None:
            return self
        kept = self.taken(np.flatnonzero(self.passes))
        return Rows(kept.codes, kept.starts, kept.ends, kept.payload)

    @classmethod
    def together(cls, parts: Sequence[Rows]) -> Rows:
        """Return the rows of several parts; at least one, and marked alike."""
        codes = {key: np.concatenate([part.codes[key] for part in parts]) for key in parts[0].codes}
        starts = np.concatenate([part.starts for part in parts])
        ends = np.concatenate([part.ends for part in parts])
        payload = pa.concat_tables(_alike([part.payload for part in parts]))
        marks = [part.passes for part in parts if part.passes is not None]
        return cls(codes, starts, ends, payload, np.concatenate(marks) if marks else None)


class Asked(NamedTuple):
    """A run of a window in which something is looked up."""

    run: SortedRun
    first: int
    """The number of its first row among those of the part of the window that it is of."""
    places: NDArray[np.int64] | None = None
    """What of all is looked up there; None: all of it."""


@dataclass(frozen=True, eq=False)  # no slots, as cold tiers are of this class, with other fields
class SortedRun:
    """Rows that no longer change, in the order of their first key, with an index for each key."""

    rows: Rows
    indexes: dict[int, Index] = field(default_factory=dict)
    """By key class; made when it is first asked for, or read with the run."""
    alike: dict[int, int] = field(default_factory=dict)
    """By key class, the rows of the most frequent key; counted when they are first asked for."""
    is_cold: ClassVar[bool] = False
    """Whether it stands for the cold tier of a window, of which it is the first part then."""

    @classmethod
    def from_rows(cls, rows: Rows) -> SortedRun:
        """Return the run of rows; what they are joined to is then found where they are."""
        key, codes = next(iter(rows.codes.items()))
        index = Index.from_ranges(codes, rows.starts, rows.ends)
        first = Index(index.tags, index.entries, index.directory)
        return cls(rows.taken(index.places), {key: first})

    def where(self, mask: NDArray[np.bool_]) -> SortedRun:
        """Return the run of some of its rows, which are in order as they are."""
        if mask.all():
            return self
        rows = self.rows.taken(np.flatnonzero(mask))
        key, index = next(pair for pair in self.indexes.items() if not pair[1].places.size)
        return SortedRun(rows, {key: index.where(mask)})

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def keys(self) -> Collection[int]:
        """The key classes of its rows."""
        return self.rows.codes.keys()

    def asked(
        self,
        key: int,  # noqa: ARG002 - cold tiers ask their filters, all others are asked
        hashes: NDArray[np.uint64],  # noqa: ARG002
        codes: NDArray[np.int64],  # noqa: ARG002
    ) -> Iterable[Asked]:
        """Return the runs that may have some codes, of those that it stands for.

        Args:
            key: the key class that the codes are of.
            hashes: of the codes; see ``run_index.hashes_of``.
            codes: what is looked up.
        """
        return (Asked(self, 0),)

    def index(self, key: int) -> Index:
        """Return the index of a key class."""
        if key not in self.indexes:
            rows = self.rows
            self.indexes[key] = Index.from_ranges(rows.codes[key], rows.starts, rows.ends)
        return self.indexes[key]

    def ends_of(self, rows: slice | NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the last instants at which some of its rows are in their window (µs)."""
        return self.rows.ends[rows]

    def most_alike(self, key: int) -> int:
        """Return how many rows no key of a class has more of."""
        if key not in self.alike:
            hashes = self.index(key).hashes
            cuts = np.flatnonzero(hashes[1:] != hashes[:-1]) + 1
            self.alike[key] = int(np.diff(cuts, prepend=0, append=len(self)).max(initial=0))
        return self.alike[key]


class NarrowRun(SortedRun):
    """A run as a query sees it that needs a part of it: fewer columns, or rows for less time.

    Nothing is copied: indexes are those of the run, with a note of what is there.

    Args:
        whole: the run.
        columns: the payload that the query needs.
        stays: how long after its event time a row leaves the window of the query (µs); None: as
            the run says.
        bit: the bit of the query in ``marks``; 0: all rows are there.
        marks: the payload column with a bit for each query that needs a row.
    """

    def __init__(
        self,
        whole: SortedRun,
        columns: Sequence[str],
        stays: int | None,
        bit: int = 0,
        marks: str = "",
    ) -> None:
        rows = whole.rows
        payload = rows.payload.select([*columns])
        super().__init__(Rows(rows.codes, rows.starts, rows.ends, payload))
        self.whole = whole
        self._stays = AS_ENDS if stays is None else stays
        self._bit = bit
        self._marks = np.empty(0, np.int64)
        if bit:
            self._marks = rows.payload[marks].combine_chunks().to_numpy()

    def index(self, key: int) -> Index:
        """Return the index of a key class, which tells what is there."""
        if key not in self.indexes:
            self.indexes[key] = replace(
                self.whole.index(key), stays=self._stays, marks=self._marks, bit=self._bit
            )
        return self.indexes[key]

    def ends_of(self, rows: slice | NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the last instants at which some of its rows are in their window (µs)."""
        if self._stays == AS_ENDS:
            return super().ends_of(rows)
        return self.rows.starts[rows] + self._stays
