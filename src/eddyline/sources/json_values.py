"""Arrow columns from JSON values, each a document of its own.

``JsonReader`` decodes documents strictly with msgspec: a value of another type, a number out of
range or broken JSON rejects the document, and says where. The reader drops fields that the schema
lacks, and a missing field is NULL. Invariant: a document gives the same row whatever documents
stand around it.
"""

from __future__ import annotations

import datetime
import decimal
import re
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Required, TypedDict

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}
"""Units of numbers that are instants, in µs."""

FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 to 9999, which Spark's timestamps have (µs since 1970)."""

_INSTANT = (
    r"^\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?"
    r"(?P<zone>Z|[+-]\d\d(?::?\d\d)?)?$"
)
"""A text that is an instant."""

_DAY_US = 86_400_000_000


class _Refused(ValueError):
    """Says why a column cannot be made of values."""


@dataclass(frozen=True)
class Rejected:
    """A document that gave no row."""

    position: int
    """Its position among the documents."""
    reason: str


class JsonReader:
    """Decodes JSON documents into the columns of a schema.

    Args:
        schema: Arrow types as Spark has them. A field that is not nullable must be there.
        unit: of numbers that are instants: ``s``, ``ms`` or ``us``.
        timezone: of instants without a zone.

    Raises:
        OptionError: JSON has no values of a type, or an unknown unit.
    """

    def __init__(self, schema: pa.Schema, unit: str = "s", timezone: str = "UTC") -> None:
        if unit not in UNITS:
            msg = f"timestamps are numbers of {', '.join(UNITS)}, got {unit!r}"
            raise OptionError(msg, timestamps=unit)
        self.schema = schema
        self.unit = unit
        self.timezone = timezone
        self._getters = [attrgetter(f"f{number}") for number in range(len(schema))]

    @cached_property
    def _decode(self) -> Callable[[bytes], Any]:
        fields: list[tuple[Any, ...]] = []
        for number, field in enumerate(self.schema):
            kind = self._type_of(field.type, field.name)
            name = f"f{number}"
            fields.append((name, kind | None, None) if field.nullable else (name, kind))
        fields.sort(key=len)  # required fields come first
        names = {f"f{number}": name for number, name in enumerate(self.schema.names)}
        row = msgspec.defstruct("Row", fields, rename=names, gc=False)
        return msgspec.json.Decoder(row).decode

    def _type_of(self, kind: pa.DataType, name: str) -> Any:  # noqa: PLR0911 - a line for each type
        """Return the type that msgspec checks."""
        if pa.types.is_integer(kind):
            most = 2 ** (kind.bit_width - 1)
            return Annotated[int, msgspec.Meta(ge=-most, le=most - 1)]
        if pa.types.is_float32(kind):
            most_float = 3.4028235e38
            return Annotated[float, msgspec.Meta(ge=-most_float, le=most_float)]
        if kind in _PLAIN:
            return _PLAIN[kind]
        if pa.types.is_decimal(kind):
            return decimal.Decimal
        if pa.types.is_timestamp(kind):
            return str | int | float
        if pa.types.is_list(kind):
            values = self._type_of(kind.value_type, name)
            return list[values | None]  # type: ignore[valid-type]
        if pa.types.is_struct(kind):
            fields = {
                field.name: self._type_of(field.type, name) | None
                if field.nullable
                else Required[self._type_of(field.type, name)]
                for field in kind
            }
            return TypedDict("Fields", fields, total=False)  # type: ignore[operator]
        if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
            values = self._type_of(kind.item_type, name)
            return dict[str, values | None]  # type: ignore[valid-type]
        msg = f"JSON has no values of the type of column {name!r} ({kind}); read value='bytes'"
        raise OptionError(msg, column=name)

    def check(self) -> None:
        """Raise OptionError if JSON has no values of a column's type, or the zone is unknown."""
        _ = self._decode
        if not any("timestamp" in str(kind) for kind in self.schema.types):
            return
        try:
            _in_zone(pa.array([0], pa.timestamp("us")), self.timezone)
        except pa.ArrowInvalid:
            msg = (
                f"timezone {self.timezone!r} is unknown; give a name such as Europe/Berlin or an "
                f"offset such as +01:00, as timezone= or as the session's time zone"
            )
            raise OptionError(msg, timezone=self.timezone) from None

    def read(self, documents: Sequence[bytes]) -> tuple[pa.RecordBatch, list[Rejected]]:
        """Return the rows of documents, and those that gave none.

        Args:
            documents: JSON texts, each an object.
        """
        rejected: list[Rejected] = []
        try:
            rows, positions = list(map(self._decode, documents)), list(range(len(documents)))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            rows, positions = self._one_by_one(documents, rejected)
        batches = list(self._columns(rows, positions, rejected))
        table = pa.Table.from_batches(batches, self.schema).combine_chunks()
        whole = table.to_batches()
        rejected.sort(key=lambda document: document.position)
        return whole[0] if whole else _empty(self.schema), rejected

    def _one_by_one(
        self, documents: Sequence[bytes], rejected: list[Rejected]
    ) -> tuple[list[Any], list[int]]:
        """Return the decoded documents with their positions; some cannot be decoded."""
        rows, positions = [], []
        for position, document in enumerate(documents):
            try:
                rows.append(self._decode(document))
                positions.append(position)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                rejected.append(Rejected(position, self._in_words(error)))
        return rows, positions

    def _in_words(self, error: Exception) -> str:
        """Return the reason under the names of the columns."""
        if isinstance(error, UnicodeDecodeError):
            return f"text is not UTF-8: {error.reason} (byte {error.start})"
        if isinstance(error, RecursionError):
            return "JSON is nested too deeply"
        return str(error)

    def _columns(
        self, rows: list[Any], positions: list[int], rejected: list[Rejected]
    ) -> list[pa.RecordBatch]:
        """Return the columns of rows; halves the rows to find one that no column takes."""
        if not rows:
            return []
        try:
            arrays = [
                self._column(list(map(getter, rows)), field)
                for getter, field in zip(self._getters, self.schema, strict=True)
            ]
            return [pa.RecordBatch.from_arrays(arrays, schema=self.schema)]
        except (_Refused, pa.ArrowException, OverflowError, ValueError) as error:
            if len(rows) == 1:
                rejected.append(Rejected(positions[0], str(error)))
                return []
        half = len(rows) // 2
        first = self._columns(rows[:half], positions[:half], rejected)
        return [*first, *self._columns(rows[half:], positions[half:], rejected)]

    def _column(self, values: list[Any], field: pa.Field) -> pa.Array:
        """Return a column.

        Raises:
            _Refused: a value does not fit its type.
            ArrowException: likewise.
        """
        try:
            if pa.types.is_timestamp(field.type):
                return self._instants(values, field.type)
            return pa.array(_plain(values, field.type, self._instants), field.type)
        except (_Refused, pa.ArrowException, OverflowError, ValueError) as error:
            raise _Refused(f"column {field.name!r}: {error}") from None

    def _instants(self, values: list[Any], kind: pa.DataType) -> pa.Array:
        """Return instants from texts and numbers."""
        texts = pa.array([v if isinstance(v, str) else None for v in values], pa.string())
        if kind.tz is None:
            if any(isinstance(v, (int, float)) for v in values):
                raise _Refused("a number is no reading of a wall clock; give a TIMESTAMP column")
            return local_of(texts).cast(kind)
        scale = UNITS[self.unit]
        numbers = [None if v is None or isinstance(v, str) else round(v * scale) for v in values]
        for number in numbers:
            if number is not None and not FIRST_US <= number <= LAST_US:
                hint = "; is it in ms? give timestamps='ms'" if self.unit == "s" else ""
                where = f"after the year 9999{hint}" if number > 0 else "before the year 1"
                raise _Refused(f"{number // scale} {self.unit} since 1970 are {where}")
        micros = pa.array(numbers, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
        read = instants_of(texts, self.timezone)
        return pc.coalesce(read, micros).cast(kind)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], kind) for kind in schema.types], schema=schema)


_PLAIN = {
    pa.float64(): float,
    pa.string(): str,
    pa.bool_(): bool,
    pa.binary(): bytes,
    pa.date32(): datetime.date,
}
"""Types of JSON values by the type of their column."""


def _plain(values: list[Any], kind: pa.DataType, instants: Callable[..., pa.Array]) -> Any:
    """Return values of a column as Arrow takes them: maps as pairs, instants as instants."""
    if pa.types.is_map(kind):
        pairs = [None if v is None else list(v.items()) for v in values]
        if not _has_more(kind.item_type):
            return pairs
        return [
            None if p is None else [(k, _plain([v], kind.item_type, instants)[0]) for k, v in p]
            for p in pairs
        ]
    if pa.types.is_timestamp(kind):
        return instants(values, kind).to_pylist()
    if pa.types.is_list(kind) and _has_more(kind.value_type):
        return [None if v is None else _plain(v, kind.value_type, instants) for v in values]
    if pa.types.is_struct(kind) and _has_more(kind):
        return [
            None
            if v is None
            else {f.name: _plain([v.get(f.name)], f.type, instants)[0] for f in kind}
            for v in values
        ]
    return values


def _has_more(kind: pa.DataType) -> bool:
    """Return whether values of a type hold maps or instants, which need a conversion."""
    if pa.types.is_map(kind) or pa.types.is_timestamp(kind):
        return True
    if pa.types.is_list(kind):
        return _has_more(kind.value_type)
    return pa.types.is_struct(kind) and any(_has_more(field.type) for field in kind)


# -- instants -------------------------------------------------------------------------------------


def instants_of(texts: pa.Array, timezone: str) -> pa.Array:
    """Return instants (µs, UTC) from texts such as ``2026-11-30T12:00:00.5Z``.

    Digits after the µs are cut off. A text without a zone is a reading in ``timezone``: where the
    clock went forward, the reading counts with the offset of before, as Spark reads it.

    Raises:
        ValueError: a text is no instant.
    """
    zones = _zones(texts)
    has_zone = pc.not_equal(zones, "")
    short = pc.replace_substring_regex(texts, r"(\.\d{6})\d+", r"\1")
    utc = pa.timestamp("us", tz="UTC")
    absolute = pc.if_else(has_zone, short, None).cast(utc)
    local = pc.if_else(has_zone, None, short).cast(pa.timestamp("us"))
    if local.null_count == len(local):
        return _checked(absolute, texts)
    return _checked(pc.coalesce(absolute, _in_zone(local, timezone).cast(utc)), texts)


def local_of(texts: pa.Array) -> pa.Array:
    """Return readings of a wall clock (µs) from texts without a zone.

    Raises:
        ValueError: a text is no such reading.
    """
    if pc.any(pc.not_equal(_zones(texts), "")).as_py():
        raise _Refused("the text has a zone; give a TIMESTAMP column")
    short = pc.replace_substring_regex(texts, r"(\.\d{6})\d+", r"\1")
    return _checked(short.cast(pa.timestamp("us")), texts)


def _checked(instants: pa.Array, texts: pa.Array) -> pa.Array:
    """Return the instants; refuse those outside the years that Spark has."""
    micros = instants.cast(pa.int64())
    is_outside = pc.or_(pc.less(micros, FIRST_US), pc.greater(micros, LAST_US))
    if pc.any(is_outside).as_py():
        text = texts.filter(is_outside)[0].as_py()
        raise _Refused(f"{text[:60]!r} is not within the years 1 to 9999")
    return instants


def _zones(texts: pa.Array) -> pa.Array:
    """Return the zone of each text, empty if it has none; NULL of NULL."""
    fields = pc.extract_regex(texts, _INSTANT)
    is_wrong = pc.and_(pc.is_valid(texts), pc.is_null(fields))
    if pc.any(is_wrong).as_py():
        text = texts.filter(is_wrong)[0].as_py()
        raise _Refused(f"{text[:60]!r} is no instant such as 2026-11-30T12:00:00Z")
    return pc.struct_field(fields, "zone")


_OFFSET = re.compile(r"^(?:UTC|GMT|UT)?([+-])(\d\d?)(?::?(\d\d))?$|^Z$")
"""A zone that is an offset, as Spark writes it."""


def _offset(match: re.Match[str]) -> str:
    """Return an offset as Arrow writes it."""
    sign, hours, minutes = match.groups()
    return "UTC" if sign is None else f"{sign}{int(hours):02}:{minutes or '00'}"


def _in_zone(local: pa.Array, timezone: str) -> pa.Array:
    """Return the instants of readings of a wall clock."""
    zone = _OFFSET.sub(_offset, timezone)

    def read(readings: pa.Array, missing: str) -> pa.Array:
        return pc.assume_timezone(readings, zone, ambiguous="earliest", nonexistent=missing)

    first, last = read(local, "earliest"), read(local, "latest")
    skipped = pc.not_equal(first, last)
    if not pc.any(skipped).as_py():
        return first
    day = pa.scalar(_DAY_US, pa.duration("us"))
    before = pc.add(read(pc.subtract(local, day), "earliest"), day)
    return pc.if_else(skipped, before, first)
