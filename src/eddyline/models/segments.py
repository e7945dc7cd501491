"""Segments: pieces of polynomials of time, as arrays and rows.

``Segments`` has one array per field, and one entry per segment. A segment is valid on ``[lo, hi)``,
in microseconds; its coefficients are by ascending powers of seconds since ``origin``.

A table of segments has one row per segment (Pulse 7.1), as files and DataFrames keep them. Columns
are the keys of the entity, ``origin``, ``lo`` and ``hi`` (timestamps), ``is_point``, ``tomb``, and
for each attribute ``coef_<name>`` and ``err_<name>``. Each other column is a key. ``keyed`` reads a
table as ``Keyed``: segments whose ``keys`` are places in a table of entities. ``table_of`` writes
one.

Tasks take rows in blocks: ``gathered`` makes them large enough for arrays to pay, and
``entity_blocks`` keeps all rows of an entity together.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from eddyline.data.arrays import Floats, Indices, Ints, Mask

MICROS = 1e-6
"""Seconds in a microsecond: times are integers, polynomials take seconds since their origin."""


def in_seconds(micros: Ints) -> Floats:
    """Return lengths of time in microseconds as seconds, as every reader computes them."""
    seconds: Floats = np.multiply(micros, MICROS)
    return seconds


@dataclass(frozen=True)
class Segments:
    """One segment an entry: on ``[lo, hi)`` an attribute is a polynomial of ``time - origin``.

    Coefficients never refer to absolute time, in which they would lose their digits; ``lo`` and
    ``hi`` are apart from ``origin``, so a segment is cut without arithmetic (Pulse 2.2, 3.2.2).

    Attributes:
        keys: the entity of each segment as a dense id, 0 to the number of entities - 1, ``[n]``.
        origin: the instant at which the polynomials' variable is 0, in microseconds, ``[n]``.
        lo: where segments begin, inclusive, in microseconds, ``[n]``.
        hi: where they end, exclusive, in microseconds, ``[n]``; equal to ``lo`` for a point.
        is_point: whether a segment is the one instant ``lo``, ``[n]``.
        is_tombstone: whether it says that there is no model on ``[lo, hi)``, ``[n]``.
        coefs: for each attribute its coefficients, ascending powers of seconds,
            ``[n, degree + 1]``; attributes may have different degrees.
        errors: for each attribute the largest distance of a row from its polynomial that the fit
            allowed, in the attribute's unit, 0 or more, ``[n]``.
    """

    keys: Ints
    origin: Ints
    lo: Ints
    hi: Ints
    is_point: Mask
    is_tombstone: Mask
    coefs: Mapping[str, Floats]
    errors: Mapping[str, Floats]

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, rows: Indices | Mask) -> Self:
        """Return the segments at places or under a mask, in that order."""
        if np.asarray(rows).dtype == np.bool_:
            rows = np.flatnonzero(rows)
        return self._changed(lambda values: values.take(rows, axis=0))  # faster than brackets

    def part(self, start: int, stop: int) -> Self:
        """Return the segments from a place to before another, which share their arrays."""
        return self._changed(lambda values: values[start:stop])

    def _changed(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Self:
        """Return segments all of whose arrays are changed."""
        arrays: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            is_array = isinstance(value, np.ndarray)
            arrays[field.name] = (
                change(value)
                if is_array
                else {name: change(array) for name, array in value.items()}
            )
        return replace(self, **arrays)

    @property
    def ends(self) -> Ints:
        """Where segments end (µs), of a point the microsecond behind its instant, ``[n]``."""
        return self.hi + self.is_point

    @property
    def by_time(self) -> Indices:
        """The places of segments in the order of entities and time, ``[n]``."""
        return np.lexsort((self.lo, self.keys))

    @property
    def ordered(self) -> Self:
        """The segments by entity and time; themselves if that is how they are."""
        again = self.keys[1:] == self.keys[:-1]
        rises = (self.keys[1:] > self.keys[:-1]) | (again & (self.lo[1:] >= self.lo[:-1]))
        return self if rises.all() else self.take(self.by_time)

    @property
    def solid(self) -> Mask:
        """Which segments have a length and a model: no points, no tombstones, ``[n]``."""
        is_solid: Mask = ~self.is_point & ~self.is_tombstone
        return is_solid

    def under(self, mask: Mask) -> Self:
        """Return the segments under a mask; themselves if that is all of them."""
        return self if mask.all() else self.take(mask)

    def cut(self, lo: Ints, hi: Ints) -> Self:
        """Return the segments on other ranges; their polynomials stay as they are."""
        return replace(self, lo=lo, hi=hi)

    def seconds(self, times: Ints) -> Floats:
        """Return seconds since each segment's origin: what its polynomials take.

        Args:
            times: an instant for each segment, in microseconds, ``[n]``.
        """
        return in_seconds(times - self.origin)


# -- rows of Arrow tables -------------------------------------------------------------------------


TIMES = ("origin", "lo", "hi")
TOMB = "tomb"
FLAGS = ("is_point", TOMB)
RESERVED = (*TIMES, *FLAGS)
"""Columns of segments that belong to no attribute."""
COEF, ERR = "coef_", "err_"

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""An odd number without a pattern, with which codes are mixed."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns a table of segments has."""

    keys: tuple[str, ...]
    """The columns that say the entity; none is one entity."""
    attributes: tuple[str, ...]

    @classmethod
    def from_columns(cls, columns: Sequence[str]) -> Layout:
        """Read the layout from the names of columns.

        Raises:
            QueryError: a column of segments is not there.
        """
        attributes = tuple(
            column.removeprefix(COEF) for column in columns if column.startswith(COEF)
        )
        wanted = [*RESERVED, *(ERR + attribute for attribute in attributes)]
        missing = [column for column in wanted if column not in columns]
        if missing or not attributes:
            lacking = ", ".join(missing) or f"{COEF}<attribute>"
            msg = (
                f"segments have the columns {', '.join(RESERVED)}, and {COEF}<attribute> and "
                f"{ERR}<attribute> for each attribute; missing: {lacking}; got {', '.join(columns)}"
            )
            raise QueryError(msg, missing=missing, columns=list(columns))
        reserved = {
            *RESERVED,
            *(prefix + attribute for prefix in (COEF, ERR) for attribute in attributes),
        }
        return cls(tuple(column for column in columns if column not in reserved), attributes)

    @property
    def columns(self) -> list[str]:
        """All columns in their order."""
        pairs = [(COEF + attribute, ERR + attribute) for attribute in self.attributes]
        return [*self.keys, *RESERVED, *(name for pair in pairs for name in pair)]


@dataclass(frozen=True)
class Keyed:
    """Segments with what their entities are called.

    Attributes:
        segments: any.
        entities: the keys of each entity, a row an id: ``segments.keys`` are places in it.
    """

    segments: Segments
    entities: pa.Table

    def of(self, rows: Indices, layout: Layout) -> Keyed:
        """Return some of the segments, with the attributes of a layout."""
        taken = self.segments.take(rows)
        coefs = {attribute: taken.coefs[attribute] for attribute in layout.attributes}
        errors = {attribute: taken.errors[attribute] for attribute in layout.attributes}
        return Keyed(replace(taken, coefs=coefs, errors=errors), self.entities)

    @property
    def names(self) -> pa.Table:
        """The keys of each segment, a row each."""
        return self.entities.take(pa.array(self.segments.keys))


def keyed(table: pa.Table, layout: Layout) -> Keyed:
    """Return the segments of a table in its order, entities numbered as they come."""
    ids, first = entity_ids(table, layout.keys)
    coefs = {
        attribute: list_matrix(table.column(COEF + attribute)) for attribute in layout.attributes
    }
    errors = {
        attribute: _floats_of(table.column(ERR + attribute)) for attribute in layout.attributes
    }
    origin, lo, hi = (micros_of(table.column(name)) for name in TIMES)
    is_point, is_tombstone = (_flags_of(table.column(name)) for name in FLAGS)
    segments = Segments(ids, origin, lo, hi, is_point, is_tombstone, coefs, errors)
    return Keyed(segments, table.select(list(layout.keys)).take(pa.array(first)))


def table_of(block: Keyed, zone: str | None) -> pa.Table:
    """Return segments as rows.

    Args:
        block: segments and their entities.
        zone: the time zone of timestamps, which says what they are and changes no instant; None is
            for timestamps without one.
    """
    segments = block.segments
    columns = dict(zip(block.entities.column_names, block.names.columns, strict=True))
    for name, micros in zip(TIMES, (segments.origin, segments.lo, segments.hi), strict=True):
        columns[name] = instants_of(micros, zone)
    for name, flags in zip(FLAGS, (segments.is_point, segments.is_tombstone), strict=True):
        columns[name] = pa.array(flags)
    for attribute, coefs in segments.coefs.items():
        columns[COEF + attribute] = _list_of(coefs)
        columns[ERR + attribute] = pa.array(segments.errors[attribute])
    return pa.table(columns)


def ends_of(table: pa.Table | None) -> Ints:
    """Return where the segments of a table end as ``Segments.ends``; None are none."""
    if table is None:
        return np.zeros(0, np.int64)
    return micros_of(table.column("hi")) + _flags_of(table.column("is_point"))


def plain(segments: Segments) -> Segments:
    """Return joined segments with the names that columns have: ``s_x`` instead of ``s.x``."""

    def named(values: dict[str, Floats]) -> dict[str, Floats]:
        return {name.replace(".", "_", 1): array for name, array in values.items()}

    return replace(segments, coefs=named({**segments.coefs}), errors=named({**segments.errors}))


def entity_ids(table: pa.Table, keys: Sequence[str]) -> tuple[Ints, Indices]:
    """Number the entities of rows in the order in which they come.

    NULL is a value as in GROUP BY.

    Returns:
        The id of each row, ``[n]``, and the first row of each entity.
    """
    _, first, ids = np.unique(entity_numbers(table, keys), return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    return number[ids], first[order]


def entity_numbers(table: pa.Table, keys: Sequence[str]) -> Ints:
    """Return a number for the entity of each row, less than the number of rows, ``[n]``."""
    numbers = np.zeros(table.num_rows, np.int64)
    for key_number, key in enumerate(keys):
        encoded = _encoded(table.column(key))
        codes: Ints = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        pairs = numbers * (len(encoded.dictionary) + 1) + codes
        numbers = np.unique(pairs, return_inverse=True)[1] if key_number else codes
    return numbers


def codes_by(table: pa.Table, keys: Sequence[str]) -> Ints:
    """Return a code for the keys of each row, the same wherever they are; two may have one."""
    codes = np.zeros(table.num_rows, np.uint64)
    for key in keys:
        encoded = _encoded(table.column(key))
        hashes = _hashes(encoded.dictionary)[encoded.indices.to_numpy(zero_copy_only=False)]
        codes = (codes ^ hashes) * _FACTOR
        codes ^= codes >> np.uint64(32)
    return codes.view(np.int64)


def _hashes(values: pa.Array) -> NDArray[np.uint64]:
    """Return a hash of each value: a polynomial, modulo 2^64, of the bytes of its text."""
    is_raw = pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type)
    texts = (values if is_raw else values.cast(pa.large_string())).cast(pa.large_binary())
    whole = pa.concat_arrays([pc.fill_null(texts, b"\0")])  # from the begin of its buffers on
    _, offsets, content = whole.buffers()
    ends = np.frombuffer(offsets, np.int64, len(whole) + 1)
    size = np.diff(ends)
    numbers = np.frombuffer(content or b"", np.uint8)[ends[0] : ends[-1]].astype(np.uint64)
    places = np.arange(len(numbers)) - np.repeat(ends[:-1] - ends[0], size)
    powers = np.cumprod(np.full(int(size.max(initial=0)) + 1, _FACTOR))
    sums = np.append(np.uint64(0), np.cumsum((numbers + np.uint64(1)) * powers[places]))
    hashes: NDArray[np.uint64] = sums[ends[1:] - ends[0]] - sums[ends[:-1] - ends[0]]
    return hashes


def ids_together(tables: Sequence[pa.Table], keys: Sequence[str]) -> list[Ints]:
    """Number the entities of the rows of several tables alike, in the order in which they come."""
    parts = [table.select(list(keys)) for table in tables]
    if not keys:  # a table without columns has no rows
        return [np.zeros(len(table), np.int64) for table in tables]
    ends = np.cumsum([len(table) for table in tables])
    return list(np.split(entity_ids(pa.concat_tables(parts), keys)[0], ends[:-1]))


def unified(
    inputs: Sequence[Keyed], more: Sequence[pa.Table], keys: Sequence[str]
) -> tuple[list[Keyed], pa.Table]:
    """Return segments of several inputs with common ids, and what all entities are called.

    Args:
        inputs: segments of each input.
        more: keys of other entities that have an id, too.
        keys: the columns of keys, one at least.
    """
    parts = [side.entities for side in inputs if len(side.entities)]
    filled = [part.select(list(keys)) for part in (*parts, *more) if len(part)]
    if not filled:
        return list(inputs), pa.table({key: [] for key in keys})
    table = pa.concat_tables(filled)
    ids, first = entity_ids(table, keys)
    names, blocks, start = table.take(pa.array(first)), [], 0
    for block in inputs:
        n = len(block.entities)
        segments = replace(block.segments, keys=ids[start : start + n][block.segments.keys])
        blocks.append(Keyed(segments, names))
        start += n
    return blocks, names


def in_key_order(block: Keyed) -> Keyed:
    """Return segments whose entities are numbered by their keys, and not as they come."""
    entities = block.entities
    if entities.num_columns == 0:
        return block
    order = pc.sort_indices(entities, [(name, "ascending") for name in entities.column_names])
    number = np.empty(len(order), np.int64)
    number[order.to_numpy()] = np.arange(len(order))
    segments = replace(block.segments, keys=number[block.segments.keys])
    return Keyed(segments, entities.take(order))


def _encoded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """Number the values of a key: NULL is one, and 0.0 and -0.0 are the same, as in GROUP BY."""
    whole = _whole(column)
    if pa.types.is_floating(whole.type):
        whole = pc.add(whole, pa.scalar(0.0, whole.type))
    return pc.dictionary_encode(whole, null_encoding="encode")


def is_other_entity(table: pa.Table, keys: Sequence[str]) -> Mask:
    """Return which rows are of another entity than the row before; the first is, ``[n]``."""
    is_other = np.zeros(table.num_rows, np.bool_)
    is_other[:1] = True
    for key in keys:
        encoded = _encoded(table.column(key))
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        is_other[1:] |= codes[1:] != codes[:-1]
    return is_other


def micros_of(column: pa.ChunkedArray) -> Ints:
    """Return timestamps as microseconds since 1970."""
    micros = _whole(column).cast(pa.timestamp("us", getattr(column.type, "tz", None)))
    instants: Ints = micros.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return instants


def instants_of(micros: Ints, zone: str | None) -> pa.Array:
    """Return microseconds since 1970 as timestamps."""
    return pa.array(micros).cast(pa.timestamp("us", zone))


def values_of(table: pa.Table, attributes: Iterable[str]) -> dict[str, Floats]:
    """Return columns as numbers, NaN where there is none."""
    return {name: _floats_of(table.column(name)) for name in attributes}


def _whole(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _floats_of(column: pa.ChunkedArray) -> Floats:
    floats: Floats = _whole(column).cast(pa.float64()).to_numpy(zero_copy_only=False)
    return floats


def _flags_of(column: pa.ChunkedArray) -> Mask:
    flags: Mask = _whole(column).to_numpy(zero_copy_only=False).astype(np.bool_)
    return flags


def list_matrix(column: pa.ChunkedArray) -> Floats:
    """Return lists of coefficients as a matrix: shorter ones are of a lower degree, NULL is NaN.

    Args:
        column: of lists of numbers, ``[n]``.

    Returns:
        ``[n, longest]``.
    """
    lists = _whole(column)
    flat: Floats = lists.flatten().to_numpy(zero_copy_only=False)
    n = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    size = max(int(n.max(initial=1)), 1)
    if n.size and flat.size == n.size * size:
        return flat.reshape(n.size, size)
    matrix = np.zeros((n.size, size))
    matrix[np.arange(size) < n[:, None]] = flat
    matrix[n == 0] = np.nan
    return matrix


def _list_of(coefs: Floats) -> pa.ListArray:
    n, size = coefs.shape
    offsets = np.arange(n + 1, dtype=np.int32) * size
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(coefs.ravel()))


# -- blocks of batches ----------------------------------------------------------------------------


BLOCK_ROWS = 1 << 18
"""Rows that are fitted, or segments that are solved, at once."""


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the batches of a task in tables of a size that pays."""
    pending: list[pa.RecordBatch] = []
    for batch in batches:
        pending.append(batch)
        if sum(map(len, pending)) >= BLOCK_ROWS:
            yield pa.Table.from_batches(pending)
            pending = []
    if pending:
        yield pa.Table.from_batches(pending)


def entity_blocks(
    tables: Iterable[pa.Table], keys: Sequence[str], *, block_rows: int = BLOCK_ROWS
) -> Iterator[pa.Table]:
    """Yield tables that have all rows of each entity in them, of rows that come by entity."""
    held: list[pa.Table] = []
    n, least = 0, block_rows
    for part in tables:
        held.append(part)
        n += len(part)
        if n < least:
            continue
        table = pa.concat_tables(held)
        last = int(np.flatnonzero(is_other_entity(table, keys))[-1])
        if last:
            yield table.slice(0, last)
            table, n = table.slice(last), n - last
        held, least = [table], max(block_rows, 2 * n)
    if n:
        yield pa.concat_tables(held)


# -- tables of arrays -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Columns:
    """Arrays of one length; derive dataclasses whose fields are all such."""

    def take(self, rows: Indices | Mask) -> Self:
        """Return the rows at places or under a mask, in that order."""
        return type(self)(*(getattr(self, field.name)[rows] for field in fields(self)))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the rows of several behind each other."""
        names = [field.name for field in fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
