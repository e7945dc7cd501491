"""Regions: values of an operand, cut where rules cut them.

Keys find the region of a value. Region 0 is NULL. An ordered operand has a further region per gap
between cuts; a text operand, of which rules only ask whether it is some text, one for all other
texts and one per text.

Values are searched by *keys*, so that all constructs are searched alike. A key is an int64 that
keeps the order of the values: whole numbers, days, microseconds and booleans as they are, decimals
without their point, floats by their bits (-0.0 is 0.0; NaN is equal to itself and above all). A
comparison with a constant becomes an interval of keys. Of texts of which rules only ask what they
are, the key is the place among the constants, or ``OTHER``.

Where order matters, and for decimals of more digits, a key is a *rank* among sorted constants:
2 i + 1 is constant i, and 2 i is what lies below it and above the one before. Texts are compared as
Spark compares them, by their bytes; decimals of up to 38 digits by 16 bytes that sort as they do.

*Tables* lead from keys to regions. A table has an entry per slot, a range of keys as wide as a
power of two: the region of its first key. What is left is to pass the cuts inside the slot, of
which there are few; none where slots are one key wide. A search of cuts takes several times as
long, as each step waits for the one before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.data.arrays import starts_of
from eddyline.query.conditions import FALSE, TRUE, UNKNOWN, Compare, IsNull, OneOf, TextTest
from eddyline.rules.match import bitmap_kernels as kernels
from eddyline.rules.match.bitmap_kernels import CutTables
from eddyline.rules.match.lower_case import as_text, lowered, offsets_of
from eddyline.sql.literals import Moment
from eddyline.sql.types import TIMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from eddyline.data.arrays import Bytes, Floats, Ints, Mask
    from eddyline.query.conditions import Operand, Test
    from eddyline.sql.literals import Scalar
    from eddyline.sql.types import SqlType

    Places = Mapping[Any, int]
    """The key of each constant that has none by itself: a text, or a decimal without its point."""

RegionTest = Compare | OneOf | IsNull | TextTest


@dataclass(frozen=True, slots=True)
class KeySet:
    """The values for which a literal holds, as keys."""

    intervals: tuple[Interval, ...]
    """Sorted and disjoint."""
    holds_null: bool


@dataclass(frozen=True, slots=True)
class RegionConstruct:
    """One operand and where its values are cut."""

    operand: Operand
    folded: bool
    """Whether texts are compared in lower case."""
    constants: tuple[str, ...] | tuple[int, ...] | None
    """Values that rules name, where they give the keys: texts, or decimals without their point. A
    text's key is its place here, or ``OTHER``; where they are ranked, see ``Ranks``."""
    cuts: Ints
    """Keys at which a region starts, ascending."""
    ranks: Ranks | None = None
    """The constants, if they are sorted and keys are ranks among them."""

    @property
    def n_regions(self) -> int:
        """Number of regions, NULL included."""
        return len(self.cuts) + 2

    def keys(self, values: pa.Array) -> tuple[Ints, Mask]:
        """Return the key of each value (anything where it is NULL), and which are NULL."""
        if len(self.cuts) == 0:  # nothing but NULL matters
            return np.zeros(len(values), np.int64), nulls_of(values)
        if self.constants is None:
            return keys_of(values, self.operand.type)
        if self.ranks is not None:
            return self.ranks.keys(values, self.operand.type), nulls_of(values)
        texts = lowered(values) if self.folded else values
        return places_of(texts, pa.array(self.constants, texts.type))

    def regions_of(self, keys: KeySet) -> tuple[tuple[int, int], ...]:
        """Return the regions of a literal as intervals, both ends included."""
        intervals = [(0, 0)] if keys.holds_null else []
        for low, high in keys.intervals:
            first = 1 + int(self.cuts.searchsorted(low, "right"))
            last = 1 + int(self.cuts.searchsorted(high, "right"))
            intervals.append((first, last))
        return united(intervals)


def region_key(test: Test) -> tuple[Operand, bool] | None:
    """Return the construct that decides a test, or None if it is no test on regions."""
    if isinstance(test, IsNull):
        return test.operand, False
    if isinstance(test, TextTest):
        if not test.parts:  # the empty text has no case
            return test.operand, False
        is_whole = len(test.parts) == 1 and isinstance(test.parts[0], str)
        return (test.operand, test.folded) if is_whole else None
    if isinstance(test, Compare | OneOf):
        kind = test.operand.type
        is_decided = is_keyed(kind) or kind.family in ("string", "decimal")
        return (test.operand, False) if is_decided else None
    return None


def constants_of(test: RegionTest) -> tuple[str, ...]:
    """Return the texts that a test on a text operand names."""
    if isinstance(test, TextTest):
        return (str(test.parts[0]),) if test.parts else ("",)
    if isinstance(test, Compare):
        return (str(test.value),)
    return tuple(map(str, test.values)) if isinstance(test, OneOf) else ()


def region_construct(
    operand: Operand,
    tests: Sequence[RegionTest],
    literals: Iterable[tuple[RegionTest, int]],
    *,
    folded: bool,
) -> tuple[RegionConstruct, Places | None]:
    """Return the construct of an operand, and the key of each constant, as ``key_set`` wants it."""
    kind = operand.type
    if is_keyed(kind) or kind.family not in ("string", "decimal"):
        cuts = cuts_of([key_set(test, outcomes, None) for test, outcomes in literals])
        return RegionConstruct(operand, folded, None, cuts), None
    named: dict[Any, None] = {}
    for test in tests:
        named.update(dict.fromkeys(constants_of(test) if kind.family == "string" else ends(test)))
    is_by_order = any(isinstance(test, Compare) and test.op != "=" for test in tests)
    if kind.family == "string" and not is_by_order:
        places: Places = {text: place for place, text in enumerate(named)}
        # The last region, of places that no text has, keeps the others apart from the end.
        cuts = np.arange(len(places) + bool(places), dtype=np.int64)
        return RegionConstruct(operand, folded, tuple(named), cuts), places
    constants = tuple(sorted(named))  # texts by code points, which is by their bytes
    places = {constant: rank_of(place) for place, constant in enumerate(constants)}
    cuts = cuts_of([key_set(test, outcomes, places) for test, outcomes in literals])
    return RegionConstruct(
        operand, folded, constants, cuts, Ranks.from_constants(constants)
    ), places


def ends(test: RegionTest) -> Iterator[int]:
    """Yield the decimals without their point next to the constants of a test on a wide decimal."""
    values = (test.value,) if isinstance(test, Compare) else getattr(test, "values", ())
    for value in values:
        yield from _around(test.operand.type, value)


def _around(kind: SqlType, value: Scalar) -> tuple[int, int]:
    below, above = around(kind, value)
    return tuple(max(-FARTHEST, min(FARTHEST, end)) for end in (below, above))  # type: ignore[return-value]


def key_set(test: RegionTest, outcomes: int, places: Places | None) -> KeySet:
    """Return the keys for which a test has one of some truth values."""
    if isinstance(test, IsNull):
        everything = complement(())
        return KeySet(everything if outcomes & FALSE else (), bool(outcomes & TRUE))
    true = united(_true_of(test, places))
    held = (*(true if outcomes & TRUE else ()), *(complement(true) if outcomes & FALSE else ()))
    return KeySet(united(held), bool(outcomes & UNKNOWN))


def _true_of(test: Compare | OneOf | TextTest, places: Places | None) -> Iterator[Interval]:
    """Yield the keys for which a test is true."""
    kind, op = test.operand.type, test.op if isinstance(test, Compare) else "="
    if kind.family == "string" and places is not None:
        for text in constants_of(test):
            yield from between(op, places[text], places[text])
        return
    for value in (test.value,) if isinstance(test, Compare) else getattr(test, "values", ()):
        if places is None:
            yield from interval(kind, op, value)
        else:
            below, above = _around(kind, value)
            yield from between(op, places[below], places[above])


def cuts_of(sets: Sequence[KeySet]) -> Ints:
    """Return the starts and ends of some sets of keys."""
    starts = {low for keys in sets for low, _ in keys.intervals}
    starts |= {high + 1 for keys in sets for _, high in keys.intervals if high < HIGHEST}
    cuts = np.array(sorted(starts), np.int64)
    return cuts[cuts > -HIGHEST - 1] if len(cuts) else cuts


LOWEST, HIGHEST = -(2**63), 2**63 - 1
"""The ends of the keys."""

OTHER = -1
"""Key of a text that no rule names."""

Interval = tuple[int, int]
"""Keys from a first to a last one, both included; first ≤ last."""

_EPOCH = date(1970, 1, 1).toordinal()


def interval(kind: SqlType, op: str, value: Scalar) -> tuple[Interval, ...]:
    """Return the keys of the values for which a comparison is true: one interval, or none.

    Example:
        >>> from decimal import Decimal
        >>> from eddyline.sql.types import INT
        >>> interval(INT, "<", Decimal("5.5"))
        ((-9223372036854775808, 5),)
        >>> interval(INT, "=", Decimal("5.5"))
        ()
    """
    return between(op, *around(kind, value))


def between(op: str, below: int, above: int) -> tuple[Interval, ...]:
    """Return the keys for which a comparison is true, by the keys next to its constant.

    The greatest key not above the constant is ``below``, the least not below it ``above``: the same
    one if the constant has a key.
    """
    is_exact = below == above
    low, high = {
        "=": (above, below),
        "<": (LOWEST, below - is_exact),
        "<=": (LOWEST, below),
        ">": (above + is_exact, HIGHEST),
        ">=": (above, HIGHEST),
    }[op]
    low, high = max(low, LOWEST), min(high, HIGHEST)
    return ((low, high),) if low <= high else ()


def around(kind: SqlType, value: Scalar) -> tuple[int, int]:
    """Return the greatest key not above the value and the least not below it."""
    if kind.family == "float":
        key = int(float_keys(np.array([value], np.float64))[0])
        return key, key
    if isinstance(value, date):
        days = value.toordinal() - _EPOCH
        return days, days
    if isinstance(value, Moment):
        msg = f"no session has said when {value.text!r} is"
        raise TypeError(msg)
    exact = Fraction(value) * 10**kind.scale
    return math.floor(exact), math.ceil(exact)


def complement(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Return the keys outside sorted, disjoint intervals.

    >>> complement([(0, 4)])
    ((-9223372036854775808, -1), (5, 9223372036854775807))
    """
    gaps: list[Interval] = []
    start = LOWEST
    for low, high in intervals:
        if start < low:
            gaps.append((start, low - 1))
        start = high + 1
    if start <= HIGHEST:
        gaps.append((start, HIGHEST))
    return tuple(gaps)


def united(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Return intervals sorted and disjoint, neighbours joined.

    >>> united([(5, 6), (0, 1), (2, 3)])
    ((0, 3), (5, 6))
    """
    merged: list[Interval] = []
    for low, high in sorted(intervals):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], high)
        else:
            merged.append((low, high))
    return tuple(merged)


def is_keyed(kind: SqlType) -> bool:
    """Return whether values of a type have keys that keep their order."""
    if kind.family == "decimal":
        return kind.precision <= 18
    return kind.family in ("integer", "float", "boolean", "date", *TIMES)


def keys_of(values: pa.Array, kind: SqlType) -> tuple[Ints, Mask]:
    """Return the key of each value (anything where it is NULL), and which are NULL."""
    nulls = nulls_of(values)
    if kind.family == "float":
        floats = pc.fill_null(values, 0.0) if nulls.any() else values
        return float_keys(floats.to_numpy(zero_copy_only=False).astype(np.float64)), nulls
    if kind.family == "decimal":
        wide = values.cast(pa.decimal128(max(values.type.precision, 19), kind.scale))
        # The lower half of the two's complement: 18 digits fit.
        halves = np.frombuffer(wide.buffers()[1], np.int64)
        return halves[2 * wide.offset :: 2][: len(wide)].copy(), nulls
    if kind.family == "date":
        values = values.cast(pa.date32()).cast(pa.int32())
    elif kind.family in TIMES:
        values = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
    elif kind.family == "boolean":
        values = values.cast(pa.int8())
    whole = pc.fill_null(values, 0) if nulls.any() else values
    return whole.to_numpy(zero_copy_only=False).astype(np.int64), nulls


def float_keys(values: Floats) -> Ints:
    """Return the keys of floats.

    >>> float_keys(np.array([-0.0, 0.0, 1.0])).tolist()
    [0, 0, 4607182418800017408]
    """
    clean = values + 0.0  # -0.0 becomes 0.0; a copy
    clean[np.isnan(clean)] = np.nan
    bits = clean.view(np.int64)
    return bits ^ ((bits >> 63) & HIGHEST)


def value_of(kind: SqlType, key: int) -> Scalar:
    """Return the value of a key, or the key itself where no value of Python's is so far out.

    >>> from eddyline.sql.types import DATE, DOUBLE
    >>> value_of(DATE, 0).isoformat(), value_of(DOUBLE, 4607182418800017408)
    ('1970-01-01', 1.0)
    """
    if kind.family == "float":
        return float(np.array([key ^ ((key >> 63) & HIGHEST)], np.int64).view(np.float64)[0])
    if kind.family == "decimal":
        return Decimal(f"{key}E{-kind.scale}")
    if kind.family == "boolean":
        return bool(key)
    if kind.family == "date" and 0 < key + _EPOCH <= date.max.toordinal():
        return date.fromordinal(key + _EPOCH)
    if kind.family in TIMES:
        return _time_of(kind, key)
    return key


def _time_of(kind: SqlType, micros: int) -> datetime | int:
    epoch = datetime(1970, 1, 1, tzinfo=UTC if kind.family == "timestamp" else None)
    try:
        return epoch + timedelta(microseconds=micros)
    except OverflowError:
        return micros


def nulls_of(values: pa.Array) -> Mask:
    """Return a mask of the values that are NULL (NaN is not)."""
    if values.null_count == 0:
        return np.zeros(len(values), dtype=np.bool_)
    is_null: Mask = values.is_null(nan_is_null=False).to_numpy(zero_copy_only=False)
    return is_null


def places_of(values: pa.Array, constants: pa.Array) -> tuple[Ints, Mask]:
    """Return the place of each text among constants (``OTHER`` if it is none), and the NULLs."""
    indexes = pc.index_in(values, value_set=constants)
    places = pc.fill_null(indexes, OTHER).to_numpy(zero_copy_only=False).astype(np.int64)
    return places, nulls_of(values)


FARTHEST = 10**38
"""Beyond every decimal without its point; constants further out compare as this one."""

_SHIFT, _WIDTH = 2**127, 16
"""A decimal of 128 bits, shifted to be no less than 0, sorts as its 16 bytes do, highest first."""


def rank_of(place: int) -> int:
    """Return the key of a constant, by its place among the sorted constants."""
    return 2 * place + 1


@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """Sorted constants as bytes."""

    data: Bytes
    """One after the other."""
    offsets: Ints
    """Start of each; one more than there are."""

    @classmethod
    def from_constants(cls, constants: Sequence[str] | Sequence[int]) -> Ranks:
        """Return the ranks among constants.

        They are sorted: texts, or decimals without their point, up to ``FARTHEST``.

        Example:
            >>> values = pa.array(["a", "b", "b!", "ba", "c"])
            >>> Ranks.from_constants(["b", "ba"]).keys(values).tolist()
            [0, 1, 2, 3, 4]
        """
        encoded = [
            (one + _SHIFT).to_bytes(_WIDTH, "big") if isinstance(one, int) else one.encode()
            for one in constants
        ]
        offsets = starts_of([len(one) for one in encoded])
        return cls(np.frombuffer(b"".join(encoded) or b"\0", np.uint8), offsets)

    def keys(self, values: pa.Array, kind: SqlType | None = None) -> Ints:
        """Return the key of each value (anything where it is NULL)."""
        if kind is not None and kind.family == "decimal":
            data, offsets = _decimal_bytes(values, kind.scale)
        else:
            data, offsets = _text_bytes(values)
        ranks = np.zeros(len(values), np.int64)
        kernels.rank(data, offsets, nulls_of(values), self.data, self.offsets, ranks)
        return ranks


def _text_bytes(values: pa.Array) -> tuple[Bytes, Ints]:
    texts = as_text(values)
    buffer = texts.buffers()[2]
    return np.frombuffer(b"\0" if buffer is None else buffer, np.uint8), offsets_of(texts)


def _decimal_bytes(values: pa.Array, scale: int) -> tuple[Bytes, Ints]:
    """Return decimals as bytes that sort as they do: the sign turned, the highest byte first."""
    wide = values.cast(pa.decimal128(38, scale))
    offsets = np.arange(len(wide) + 1, dtype=np.int64) * _WIDTH
    if len(wide) == 0:
        return np.frombuffer(b"\0", np.uint8), offsets
    halves = np.frombuffer(wide.buffers()[1], "<u8")[2 * wide.offset :][: 2 * len(wide)]
    turned = halves.reshape(-1, 2)[:, ::-1].copy()
    turned[:, 0] ^= np.uint64(2**63)
    return np.frombuffer(turned.astype(">u8").tobytes(), np.uint8), offsets


MAX_TABLE = 1 << 15
"""Most slots of a construct. Rows visit one construct after the other, a chunk at a time, so it
is enough that a table of this size (64 KiB) fits the second cache."""

MAX_CROWD = 8
"""Most cuts inside a slot; where there are more, cuts are searched."""

MAX_SPAN = 1 << 62
"""Keys between the first and the last cut from which on cuts are searched: differences of keys
have to fit a word."""


def cut_tables(cuts: Sequence[Ints]) -> CutTables:
    """Return the cuts of some constructs, ascending for each, with their tables.

    Example:
        >>> found = cut_tables([np.array([5, 7])])
        >>> found.table.tolist(), found.first.tolist(), found.last.tolist()
        ([1, 2, 2, 3], [4], [7])
    """
    tables = [_table(construct_cuts) for construct_cuts in cuts]
    sizes = np.array([len(table) for table, _ in tables], np.int64)
    return CutTables(
        cuts=np.concatenate([np.zeros(0, np.int64), *cuts]),
        cuts_at=starts_of([len(construct_cuts) for construct_cuts in cuts]),
        table=np.concatenate([np.zeros(0, np.uint16), *(table for table, _ in tables)]),
        table_at=np.where(sizes > 0, starts_of(sizes)[:-1], -1),
        first=np.array(
            [int(construct_cuts[0]) - 1 if len(construct_cuts) else 0 for construct_cuts in cuts],
            np.int64,
        ),
        last=np.array(
            [int(construct_cuts[-1]) if len(construct_cuts) else 0 for construct_cuts in cuts],
            np.int64,
        ),
        shift=np.array([shift for _, shift in tables], np.int64),
    )


def _table(cuts: Ints) -> tuple[NDArray[np.uint16], int]:
    """Return the regions of the first keys of slots, none if there is no table, and their shift.

    The first slot starts one key below the first cut.
    """
    nothing = np.zeros(0, np.uint16)
    if len(cuts) == 0:
        return np.ones(1, np.uint16), 0
    first, span = int(cuts[0]) - 1, int(cuts[-1]) - int(cuts[0]) + 1
    if span >= MAX_SPAN or len(cuts) > np.iinfo(np.uint16).max - 1:
        return nothing, 0
    shift = max(0, (span // MAX_TABLE).bit_length())
    starts = first + (np.arange((span >> shift) + 1, dtype=np.int64) << shift)
    regions = np.searchsorted(cuts, starts, side="right") + 1
    crowds = np.diff(regions, append=len(cuts) + 1)
    if shift > 0 and crowds.max() > MAX_CROWD:
        return nothing, 0
    return regions.astype(np.uint16), shift
