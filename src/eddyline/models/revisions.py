"""What is new of results that were given before, and what is taken back of them.

A result is known by its entity and the instant with which it begins, since those of one entity do
not overlap. A later one that begins there replaces it, and a tombstone takes it back. Tombstones
also cover all that results covered before and do not any more. So two ways to read agree: the
newest row of each beginning, and at each instant the newest word on it (``updates.latest``), where
of one version a result counts before a tombstone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from eddyline.errors import QueryError
from eddyline.models import overlaps, timeline
from eddyline.models.rows import TOMB, Layout, entity_ids, instants_of, list_matrix, micros_of
from eddyline.models.segments import Segments
from eddyline.models.solving import Ranges
from eddyline.models.steps import SINCE, TIME, UNTIL
from eddyline.models.updates import with_retractions
from eddyline.registry import unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from eddyline.data.arrays import Indices, Ints, Mask
    from eddyline.models.steps import Kind, Shape

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
    return Layout.of([each for each in columns if each not in beside]), version


@dataclass(frozen=True)
class Revised:
    """What has to be told so that results are known as they are now.

    Attributes:
        rows: results, and tombstones behind them.
        places: those of the results among all that there are now, ``[results]``.
    """

    rows: pa.Table
    places: Indices


def begins_of(results: pa.Table, shape: Shape) -> Ints:
    """Return where results begin (µs)."""
    return micros_of(results.column(BOUNDS[shape.kind][0]))


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
    tables = [each for each in (before, now) if each is not None]
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
    tombs = [_tombstones(names, each, shape, rows.schema) for each in (pieces.take(is_gone), lost)]
    return Revised(pa.concat_tables([rows, *tombs]), places - n_before)


def _pieces(results: pa.Table, ids: Ints, shape: Shape) -> Segments:
    """Return the ranges of results as segments without attributes."""
    lo, hi = begins_of(results, shape), ends_of(results, shape)
    is_point: Mask = np.asarray(lo == hi)
    return Segments(ids, lo, lo, hi, is_point, np.zeros(len(ids), np.bool_), {}, {})


def _are_equal(columns: pa.Table, one: Indices, other: Indices) -> Mask:
    """Return which pairs of rows say the same."""
    found = np.ones(len(one), np.bool_)
    for column in columns.columns:
        values = _bits(column)
        is_same = values[one] == values[other]
        found &= is_same if is_same.ndim == 1 else is_same.all(axis=1)
    return found


def _bits(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return values of which two are equal if they are the same to the bit, so NaN is, too."""
    if pa.types.is_timestamp(column.type):
        return micros_of(column)
    is_list = pa.types.is_list(column.type)
    values = list_matrix(column) if is_list else column.to_numpy()
    return values.view(np.int64) if values.dtype == np.float64 else values


def _uncovered(given: Segments, others: Segments) -> Segments:
    """Return the stretches of some ranges that no other range of their entity covers."""
    pairs = overlaps.same_entity(given, others)
    covered = Ranges(pairs.left, pairs.lo, pairs.hi, np.zeros(len(pairs.left), np.bool_))
    every = with_retractions(given, covered)
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
    columns |= {name: instants_of(each, schema.field(name).type.tz) for name, each in times.items()}
    columns |= {name: pa.array(each) for name, each in flags.items()}
    every = [columns.get(each.name, pa.nulls(len(lost), each.type)) for each in schema]
    return pa.Table.from_arrays(every, schema=schema)
