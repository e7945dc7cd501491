"""Rows of Arrow batches become segments: an entity of any number of rows goes through in blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.errors import OptionError
from eddyline.models import earth
from eddyline.models.assumed import said
from eddyline.models.blocks import BLOCK_ROWS
from eddyline.models.fitting import Carried, FitReport, fit_part
from eddyline.models.inversion import tighter
from eddyline.models.rows import (
    Keyed,
    entity_ids,
    ids_together,
    is_other_entity,
    list_matrix,
    micros_of,
    table_of,
    values_of,
)
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from eddyline.models.bounds import Bound, FitOptions
    from eddyline.models.ranges import Range, Ranges


_CODE, _SPACING, _ANCHORS = "__code", "__spacing", "__anchors"


@dataclass(frozen=True)
class Part:
    """What came of the rows of a stream up to an instant."""

    segments: Keyed
    held: pa.Table
    """Rows that have to come again."""
    known: pa.Table | None
    """To be given with them."""
    report: FitReport


@dataclass(frozen=True, slots=True)
class Fit:
    """How rows become segments."""

    keys: tuple[str, ...]
    time: str
    within: Mapping[str, Bound]
    options: FitOptions
    unbounded: tuple[str, ...] = ()
    """Attributes that are modelled as near as what is asked needs."""
    assumed: Mapping[str, Range] = field(default_factory=dict)
    """Ranges that values were said to be in, which bounds of results depend on."""
    track: tuple[str, str] | None = field(default=None, repr=False)
    """Columns of latitude and longitude (degrees), also in ``str``; see ``earth``."""

    def near_enough(self, asked: Mapping[str, Bound], read: set[str], known: Ranges) -> Fit:
        """Return how rows become segments that are near enough for what is asked of them.

        Args:
            asked: for attributes the bound that follows from those of outputs.
            read: the attributes that anything reads; of others no model is made without a bound.
            known: ranges of values, as far as they are known.

        Raises:
            OptionError: an attribute has no bound, or one needs ranges of values.
        """
        bounds = {**self.within}
        for name, bound in asked.items():
            bounds[name] = tighter(name, bounds.get(name, bound), bound, known)
        missing = [each for each in self.unbounded if each in read and each not in bounds]
        if missing:
            msg = (
                f"nothing says how near models of {missing[0]!r} have to be: give its bound to "
                f"fit, within={{{missing[0]!r}: 0.5}}, or those of results that it is in, "
                ".within({…}); what is only compared has no bound by itself"
            )
            raise OptionError(msg, attribute=missing[0])
        return replace(self, within=bounds, unbounded=())

    @property
    def columns(self) -> dict[str, str]:
        """The columns that are read, as SQL, besides keys and time."""
        names = (*self.within, *self.unbounded)
        places = self.places
        return {name: places.get(name, f"CAST({quoted(name)} AS DOUBLE)") for name in names}

    @property
    def places(self) -> dict[str, str]:
        """The coordinates of positions as SQL over degrees; empty if there are none."""
        return {} if self.track is None else earth.columns_of(*self.track)

    @property
    def wait_us(self) -> int:
        """How long after a row it is certain that no later one is needed for its segment (µs)."""
        assert self.options.max_gap_us is not None
        return self.options.max_gap_us

    def n_off_earth(self, rows: pa.Table) -> int:
        """Return how many rows have a latitude or longitude that is out of range."""
        axes = [] if self.track is None else earth.coordinates(earth.TRACK)
        axis = next((each for each in axes if each in self.within), None)
        return 0 if axis is None else int(pc.sum(pc.is_nan(rows.column(axis))).as_py() or 0)

    def tables(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Yield the segments of the rows of a task, which come by entity and time."""
        for found, zone, _ in fitted(batches, self):
            yield table_of(found, zone)

    def part(self, rows: pa.Table, until: int, known: pa.Table | None) -> Part:
        """Return the segments of rows that no row from an instant on changes.

        Args:
            rows: those that were held, and all others before the instant; in any order.
            until: the instant (µs).
            known: what the part before told.
        """
        assert self.options.max_gap_us is not None
        ids, first = entity_ids(rows, self.keys)
        times = micros_of(rows.column(self.time))
        order = np.lexsort((times, ids))
        last = np.full(len(first), np.iinfo(np.int64).min)
        np.maximum.at(last, ids, times)
        found = fit_part(
            ids[order],
            times[order],
            {name: each[order] for name, each in values_of(rows, self.within).items()},
            self.within,
            self.options,
            goes_on=last >= until - self.options.max_gap_us,
            carried=None if known is None else self._carried(rows, known),
        )
        entities = rows.select(list(self.keys)).take(pa.array(first))
        return Part(
            Keyed(found.segments, entities),
            rows.take(pa.array(order[found.held])),
            self._known(entities, found.carried),
            found.report,
        )

    def _known(self, entities: pa.Table, carried: Carried) -> pa.Table:
        """Return what is carried as a table, by keys."""
        columns = {name: entities.column(name).take(pa.array(carried.keys)) for name in self.keys}
        size = len(self.within)
        offsets = np.arange(len(carried.keys) + 1, dtype=np.int32) * size
        anchors = pa.ListArray.from_arrays(
            pa.array(offsets, pa.int32()), pa.array(carried.anchors.ravel())
        )
        own = {_CODE: pa.array(carried.codes), _SPACING: pa.array(carried.spacings)}
        return pa.table({**columns, **own, _ANCHORS: anchors})

    def _carried(self, rows: pa.Table, known: pa.Table) -> Carried:
        """Return what a table says of entities, by the ids that they have among rows."""
        ids = ids_together([rows, known], self.keys)[1]
        order = np.argsort(ids)
        return Carried(
            ids[order],
            known.column(_CODE).to_numpy()[order],
            known.column(_SPACING).to_numpy()[order],
            list_matrix(known.column(_ANCHORS))[order].reshape(len(ids), len(self.within)),
        )

    def __str__(self) -> str:
        places = [] if self.track is None else earth.coordinates(earth.TRACK)
        told = [f"{name} within {bound}" for name, bound in self.within.items()
                if name not in places]  # fmt: skip
        told += [f"{name} as near as is asked" for name in self.unbounded if name not in places]
        if self.track is not None:
            bounds = [self.within[each].value for each in places if each in self.within]
            near = f"within {math.hypot(*bounds):g}" if bounds else "as near as is asked"
            told.append(f"{earth.TRACK} of ({', '.join(self.track)}) {near}")
        return f"fit {', '.join(told)}; method {self.options.method}{said(self.assumed)}"


def fitted(
    batches: Iterable[pa.RecordBatch], how: Fit, *, block_rows: int = BLOCK_ROWS
) -> Iterator[tuple[Keyed, str | None, FitReport]]:
    """Fit the rows of a task, which come by entity and time.

    Yields:
        Segments by entity and time, the time zone of the rows, and what the fit did, block by
        block; segments of one entity may be in several.
    """
    fitting = _Fitting(how)
    pending: list[pa.RecordBatch] = []
    n = 0
    for each in batches:
        # What is read again does not grow faster than what is read.
        if n and n >= max(block_rows, fitting.n_held):
            yield fitting.take(pa.Table.from_batches(pending), is_last=False)
            pending, n = [], 0
        pending.append(each)
        n += len(each)
    if n:
        yield fitting.take(pa.Table.from_batches(pending), is_last=True)


class _Fitting:
    """A fit of rows that come in blocks, of which the last entity may go on."""

    def __init__(self, how: Fit) -> None:
        self._how = how
        self._held: pa.Table | None = None
        """The rows of the open segment, and those of the last instant, which may have more."""
        self._carried = Carried.nothing(len(how.within))

    @property
    def n_held(self) -> int:
        """Rows that stayed."""
        return 0 if self._held is None else len(self._held)

    def take(self, table: pa.Table, *, is_last: bool) -> tuple[Keyed, str | None, FitReport]:
        """Return the segments that no later row changes."""
        how = self._how
        rows = table if self._held is None else pa.concat_tables([self._held, table])
        other = is_other_entity(rows, how.keys)
        keys, times = np.cumsum(other) - 1, micros_of(rows.column(how.time))
        n = len(rows)
        goes_on = np.zeros(int(other.sum()), np.bool_)
        if n and not is_last:
            goes_on[-1] = True
            # Nothing of an instant is fitted before all of its rows are there.
            before = np.flatnonzero((times != times[-1]) | (keys != keys[-1]))
            n = int(before[-1]) + 1 if before.size else 0
        values = {name: each[:n] for name, each in values_of(rows, how.within).items()}
        found = fit_part(
            keys[:n], times[:n], values, how.within, how.options,
            goes_on=goes_on, carried=self._carried,
        )  # fmt: skip
        # All that is held is of the last entity, which is the first one of the next block.
        self._held = rows.take(pa.array(np.append(found.held, np.arange(n, len(rows)))))
        self._carried = replace(found.carried, keys=np.zeros_like(found.carried.keys))
        entities = rows.select(list(how.keys)).take(pa.array(np.flatnonzero(other)))
        return Keyed(found.segments, entities), rows.column(how.time).type.tz, found.report
