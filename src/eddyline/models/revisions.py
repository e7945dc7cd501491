"""Versions of segments: the newest at each instant, and tombstones.

A tombstone takes an early result back. A result may be solved again for a range, and a tombstone
says that there is nothing any more. So a later segment overrides earlier ones where it is valid.
These go on behind it, unless a tombstone ends them. Pulse 2.3 ends them there; then a model that
ends early would take back what it does not know.

``revised`` compares early results with those that were given before. A result is known by its
entity and its first instant, because results of one entity do not overlap. A later result with the
same first instant replaces it, and a tombstone takes it back. Tombstones also cover all instants
that results covered before and do not cover any more. So two ways to read agree: the newest row of
each first instant, and the newest word on each instant (``latest``). Of one version a result counts
before a tombstone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from eddyline.errors import QueryError
from eddyline.models import timeline
from eddyline.models.segments import (
    TOMB,
    Layout,
    Segments,
    entity_ids,
    instants_of,
    list_matrix,
    micros_of,
)
from eddyline.models.solving import joins
from eddyline.models.solving.where import Ranges
from eddyline.models.steps import SINCE, TIME, UNTIL
from eddyline.models.windows.extrema import Functions, Pieces, extreme
from eddyline.registry import unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from eddyline.data.arrays import Indices, Ints, Mask
    from eddyline.models.steps import Kind, Shape


def newest(segments: Segments, version: Ints) -> Segments:
    """Return what segments say that were written one after the other, by entity and time.

    At each instant the row counts that covers it and has the greatest version; of one version a
    segment counts before a tombstone. Where that is a tombstone, there is nothing.

    Args:
        segments: segments and tombstones of any entities, in any order. Segments of one entity and
            version do not overlap, but for those that are the same; tombstones may.
        version: numbers that rise as segments are written, ``[n]``.
    """
    if not overlap(segments.keys, segments.lo, segments.ends):
        return living(segments).ordered
    order = np.lexsort((~segments.is_tombstone, version))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    values = np.unique(version, return_inverse=True)[1].astype(np.int64)
    arrival = 2 * values + ~segments.is_tombstone
    (curves,) = timeline.codes((segments.keys, arrival))
    dense = np.unique(curves, return_inverse=True)[1].astype(np.int64)
    # What was written twice, or taken back twice, arrives one behind the other.
    is_twice = overlap(dense, segments.lo, segments.ends)
    return living(latest(segments, rank if is_twice else arrival))


def overlap(groups: Ints, lo: Ints, ends: Ints) -> bool:
    """Return whether two ranges of one group overlap.

    Args:
        groups: dense ids, ``[n]``.
        lo: where ranges begin (µs), in any order, ``[n]``.
        ends: where they end, exclusive, ``[n]``.
    """
    if not len(groups):
        return False
    starts, stops = timeline.codes((groups, lo), (groups, ends))
    order = np.argsort(starts, kind="stable")
    reached = np.maximum.accumulate(stops[order])
    return bool((reached[:-1] > starts[order[1:]]).any())


def latest(segments: Segments, arrival: Ints) -> Segments:
    """Return at each instant what arrived last there, in the order of entities and time.

    Args:
        segments: results and tombstones; of one entity and arrival they do not overlap.
        arrival: numbers that rise as segments arrive, ``[n]``.
    """
    numbers = np.unique(arrival, return_inverse=True)[1].astype(np.int64)
    functions = Functions(segments.lo, numbers[:, None].astype(np.float64))
    rows = np.arange(len(segments))
    nothing = np.zeros(len(segments))
    pieces = Pieces(segments.keys, numbers, rows, segments.lo, segments.ends, nothing)
    winners = extreme(functions, pieces, largest=True)
    result = segments.take(winners.rows).cut(winners.lo, winners.hi)
    return result.cut(result.lo, np.where(result.is_point, result.lo, result.hi))


def living(segments: Segments) -> Segments:
    """Return segments without tombstones: what a reader sees."""
    return segments.take(~segments.is_tombstone)


def with_retractions(segments: Segments, ranges: Ranges) -> Segments:
    """Return solutions and a tombstone for each stretch of a segment that has none.

    What a selective operator gives for segments that replace others: results that it gave before
    and that are none any more are overridden by nothing else.

    Args:
        segments: what was solved.
        ranges: where the condition holds.
    """
    rows = np.arange(len(segments))
    after, before = np.concatenate([rows, ranges.rows]), np.concatenate([ranges.rows, rows])
    starts = np.concatenate([segments.lo, ranges.ends])
    stops = np.concatenate([ranges.lo, segments.ends])
    # Each stretch begins where the segment or a solution ended, and ends where the next one begins.
    first, last = np.lexsort((starts, after)), np.lexsort((stops, before))
    rows, lo, hi = after[first], starts[first], stops[last]
    kept = lo < hi
    nowhere = Ranges(rows[kept], lo[kept], hi[kept], np.zeros(int(kept.sum()), np.bool_))
    together = Ranges.joined([ranges, nowhere])
    order = np.lexsort((together.lo, together.rows))
    result = together.take(order).of(segments)
    is_none = np.arange(len(order)) >= len(ranges.rows)
    return replace(result, is_tombstone=result.is_tombstone | is_none[order])


# -- early results --------------------------------------------------------------------------------


VERSION, VALIDATED = "version", "validated"
REVISIONS = (VERSION, TOMB, VALIDATED)
"""The columns that early results have beside those of final ones; segments have ``tomb`` anyway."""

BOUNDS: dict[Kind, tuple[str, str]] = {
    "segments": ("lo", "hi"),
    "samples": (TIME, TIME),
    "changes": (SINCE, UNTIL),
}
"""The columns that say where a result begins and ends."""


def layout_of(columns: Sequence[str], version: str | None = None) -> tuple[Layout, str | None]:
    """Return the layout of segments that are read, and the column of their version, if any.

    Args:
        columns: all that there are.
        version: the one that says which segments were written later; None: that of early results,
            if they have all of their columns.

    Raises:
        QueryError: a column is not there.
    """
    are_early = {VERSION, VALIDATED} <= {*columns}
    if version is None:
        version = VERSION if are_early else None
    elif version not in columns:
        raise QueryError(f"models.read: {unknown('version', version, columns)}", version=version)
    beside = {version, VALIDATED} if are_early and version == VERSION else {version}
    return Layout.from_columns([column for column in columns if column not in beside]), version


@dataclass(frozen=True)
class Revised:
    """What has to be told so that results are known as they are now.

    Attributes:
        rows: results, and tombstones behind them.
        places: those of the results among all that there are now, ``[results]``.
    """

    rows: pa.Table
    places: Indices


def ends_of(results: pa.Table, shape: Shape) -> Ints:
    """Return where results end, for one instant that (µs)."""
    return micros_of(results.column(BOUNDS[shape.kind][1]))


def revised(
    before: pa.Table | None, now: pa.Table | None, shape: Shape, keys: Sequence[str]
) -> Revised:
    """Return what is new among results, and tombstones for what there was before.

    Args:
        before: the results that were given; None if there are none.
        now: those that there are, with the same columns; of both there is one at least.
        shape: what they are.
        keys: the columns that say the entity.
    """
    tables = [table for table in (before, now) if table is not None]
    both = pa.concat_tables(tables).combine_chunks()
    n_before = 0 if before is None else len(before)
    ids, first = entity_ids(both, keys)
    pieces = _pieces(both, ids, shape)
    (begin,) = timeline.codes((ids, pieces.lo))
    order = np.argsort(begin, kind="stable")  # of equal ones what was there before comes first
    is_again = begin[order[1:]] == begin[order[:-1]]
    old, new = order[:-1][is_again], order[1:][is_again]
    stays = _are_equal(both.drop_columns(list(keys)), old, new)
    is_new = np.arange(len(both)) >= n_before
    is_gone = ~is_new
    is_new[new[stays]] = False
    is_gone[old] = False
    shorter = old[pieces.ends[old] > pieces.ends[new]]
    lost = _uncovered(pieces.take(shorter), pieces.part(n_before, len(both)))
    places = np.flatnonzero(is_new)
    rows = both.take(pa.array(places))
    if shape.kind != "segments":
        rows = rows.append_column(TOMB, pa.array(np.zeros(len(rows), np.bool_)))
    names = both.select(list(keys)).take(pa.array(first))
    tombs = [
        _tombstones(names, ranges, shape, rows.schema) for ranges in (pieces.take(is_gone), lost)
    ]
    return Revised(pa.concat_tables([rows, *tombs]), places - n_before)


def _pieces(results: pa.Table, ids: Ints, shape: Shape) -> Segments:
    """Return the ranges of results as segments without attributes."""
    lo, hi = (micros_of(results.column(name)) for name in BOUNDS[shape.kind])
    return Segments(ids, lo, lo, hi, np.equal(lo, hi), np.zeros(len(ids), np.bool_), {}, {})


def _are_equal(columns: pa.Table, one: Indices, other: Indices) -> Mask:
    """Return which pairs of rows say the same."""
    is_equal = np.ones(len(one), np.bool_)
    for column in columns.columns:
        values = _bits(column)
        is_same = values[one] == values[other]
        is_equal &= is_same if is_same.ndim == 1 else is_same.all(axis=1)
    return is_equal


def _bits(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return values of which two are equal if they are the same to the bit, so NaN is, too."""
    if pa.types.is_timestamp(column.type):
        return micros_of(column)
    is_list = pa.types.is_list(column.type)
    values = list_matrix(column) if is_list else column.to_numpy()
    return values.view(np.int64) if values.dtype == np.float64 else values


def _uncovered(ranges: Segments, others: Segments) -> Segments:
    """Return the stretches of some ranges that no other range of their entity covers."""
    pairs = joins.same_entity(ranges, others)
    covered = Ranges(pairs.left, pairs.lo, pairs.hi, np.zeros(len(pairs.left), np.bool_))
    every = with_retractions(ranges, covered)
    return every.take(every.is_tombstone)


def _tombstones(names: pa.Table, lost: Segments, shape: Shape, schema: pa.Schema) -> pa.Table:
    """Return rows that say that there is no result on ranges any more.

    Args:
        names: the keys of entities.
        lost: the ranges.
        shape: what the results are.
        schema: the columns of these.
    """
    columns = dict(zip(names.column_names, names.take(pa.array(lost.keys)).columns, strict=True))
    times = dict(zip(BOUNDS[shape.kind], (lost.lo, lost.hi), strict=True))
    flags = {TOMB: np.ones(len(lost), np.bool_)}
    if shape.kind == "segments":
        times["origin"], flags["is_point"] = lost.lo, lost.is_point
    columns |= {
        name: instants_of(micros, schema.field(name).type.tz) for name, micros in times.items()
    }
    columns |= {name: pa.array(flag) for name, flag in flags.items()}
    every = [columns.get(field.name, pa.nulls(len(lost), field.type)) for field in schema]
    return pa.Table.from_arrays(every, schema=schema)
