"""Fit of segments to rows, within an error bound.

``fit`` takes arrays of rows. ``fitted`` takes Arrow batches, and an entity may have any number of
rows, in blocks. No row is farther from its segment than the bound of the attribute. The fit proves
it in double precision: it evaluates the stored segment at the times of the rows exactly as a reader
does. The largest distance is the error of the segment (Pulse 4).

Rows come by entity and time, or are sorted once. A row without a value of an attribute (NULL, NaN,
infinite) says nothing of that attribute. If no row of a segment has one, its coefficients are NaN.
If an entity has several rows at one instant, the segment is within the bound of all of them.
Otherwise the greatest value wins and the others are counted.

A segment ends where the next one begins. A run of rows has no gap in it. Its last segment ends one
typical spacing after the last row: the median spacing of the first rows of the run, or a second if
the run has one instant only.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.errors import OptionError
from eddyline.models import timeline
from eddyline.models.fitting import kernels
from eddyline.models.fitting.bounds import Bound, FitOptions, assumed_in_words, tightest
from eddyline.models.fitting.kernels import fit_runs
from eddyline.models.segments import (
    BLOCK_ROWS,
    Keyed,
    Segments,
    entity_ids,
    ids_together,
    is_other_entity,
    list_matrix,
    micros_of,
    table_of,
    values_of,
)
from eddyline.models.solving import earth
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from eddyline.data.arrays import Floats, Indices, Ints, Mask
    from eddyline.models.fitting.kernels import Data, Scratch
    from eddyline.models.solving.expressions import Range, Ranges

LONE_US = 1_000_000
"""How long an instant stands for if its run has no other (µs)."""
SPACED = 16
"""Instants of a run that its typical spacing is of, at most."""

FITTERS = {
    kernels.CONSTANT: "constant",
    kernels.SWING: "swing",
    kernels.CONNECTED: "connected",
    kernels.LINE: "linear",
    **{degree + 2: f"degree {degree}" for degree in (2, 3, 4)},
}
"""Names of fitters by code."""

NO_GAP = 2**63 - 1


@dataclass(frozen=True, slots=True)
class FitReport:
    """What a fit did; reports of parts add up."""

    n_rows: int = 0
    """Rows that segments stand for."""
    n_segments: int = 0
    n_without: int = 0
    """Rows that have a value of no attribute; no segment stands for them."""
    n_conflicts: int = 0
    """Values that lost against a greater one at the same instant of their entity."""
    fitters: dict[str, int] = field(default_factory=dict)
    """Number of runs without a gap by the fitter that they have."""
    n_dropped: int = 0
    """Of the rows, those that a declared model predicted near enough: they made none."""
    n_broken: int = 0
    """Declared models that ended because a row was too far from them."""
    n_outside: int = 0
    """Rows with a value outside of the range that it was said to be in."""
    n_off_earth: int = 0
    """Rows whose latitude or longitude is out of range; they have no position."""
    n_cut: int = 0
    """Models whose rate has no solution within the bound up to their end: they are cut before."""

    @property
    def rows_per_segment(self) -> float:
        """Rows that a segment stands for, on average."""
        return self.n_rows / self.n_segments if self.n_segments else 0.0

    def __add__(self, other: FitReport) -> FitReport:
        numbers = [part.name for part in fields(self) if part.name != "fitters"]
        return FitReport(
            fitters=dict(Counter(self.fitters) + Counter(other.fitters)),
            **{name: getattr(self, name) + getattr(other, name) for name in numbers},
        )

    def __str__(self) -> str:
        fitters = ", ".join(f"{name} {n:,}" for name, n in sorted(self.fitters.items()))
        text = (
            f"{_counted(self.n_rows, 'row')} in {_counted(self.n_segments, 'segment')}, "
            f"{self.rows_per_segment:.1f} rows each; runs by fitter: {fitters or 'none'}"
        )
        if self.n_dropped:
            text += f"; {_counted(self.n_dropped, 'row')} dropped, {self.n_broken:,} models broken"
        if self.n_outside:
            text += f"; {_counted(self.n_outside, 'row')} outside of what was assumed"
        if self.n_off_earth:
            text += f"; {_counted(self.n_off_earth, 'row')} with degrees out of range"
        if self.n_cut:
            text += f"; {_counted(self.n_cut, 'model')} cut where the rate has no solution"
        if self.n_without:
            text += f"; {_counted(self.n_without, 'row')} without a value"
        if self.n_conflicts:
            lost = _counted(self.n_conflicts, "value")
            text += f"; {lost} lost to a greater one at the same instant"
        return text


def _counted(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class Carried:
    """What is known of runs whose rows go on later, ``[n]`` each."""

    keys: Ints
    """Their entities, ascending."""
    codes: Ints
    """Their fitters."""
    spacings: Ints
    """How long their last instants stand for (µs)."""
    anchors: Floats
    """The values that their open segments begin with, NaN: none is given, ``[n, attributes]``."""

    @classmethod
    def nothing(cls, n_attributes: int) -> Carried:
        """Return that nothing is known."""
        none = np.empty(0, np.int64)
        return cls(none, none, none, np.empty((0, n_attributes)))


@dataclass(frozen=True, slots=True)
class Fitted:
    """Segments that no later row changes."""

    segments: Segments
    report: FitReport
    held: Indices
    """The rows that have to come again, before any new ones of their entities, by place."""
    carried: Carried
    """To be given with them."""


def fit(
    keys: Ints,
    times: Ints,
    values: Mapping[str, Floats],
    within: Mapping[str, Bound],
    options: FitOptions | None = None,
) -> tuple[Segments, FitReport]:
    """Fit segments to rows.

    Args:
        keys: the entity of each row as a dense id, ``[n]``.
        times: when each row was (µs), ``[n]``.
        values: of each attribute, ``[n]``; NaN where a row has none.
        within: how far a model may be from each attribute's values.
        options: how segments are found.

    Returns:
        Segments by entity and time, and what the fit did.

    Example:
        >>> times = np.arange(6) * 1_000_000
        >>> values = {"v": np.array([0.0, 1.0, 2.0, 9.0, 9.0, 9.0])}
        >>> found, _ = fit(np.zeros(6, np.int64), times, values, {"v": Bound(0.0)})
        >>> found.coefs["v"].tolist()
        [[0.0, 1.0], [9.0, 0.0]]
    """
    if not kernels.is_sorted(keys, times):
        order = _order(keys, times)
        keys, times = keys[order], times[order]
        values = {name: column[order] for name, column in values.items()}
    result = fit_part(keys, times, values, within, options or FitOptions())
    return result.segments, result.report


def _order(keys: Ints, times: Ints) -> Indices:
    """Return the order of rows by entity and time."""
    span = int(times.max()) - int(times.min()) + 1
    if (int(keys.max()) + 1) * span < 2**62:  # one number of both is sorted some times faster
        return np.argsort(keys * span + (times - times.min()))
    return np.lexsort((times, keys))


def fit_part(
    keys: Ints,
    times: Ints,
    values: Mapping[str, Floats],
    within: Mapping[str, Bound],
    options: FitOptions,
    *,
    goes_on: Mask | None = None,
    carried: Carried | None = None,
) -> Fitted:
    """Fit a part of the rows of entities, which come by entity and time, and whole instants only.

    Segments are the same for any parts that rows come in. ``goes_on`` says of each entity, by its
    id, whether rows may follow that are no gap behind its last one; None: none may. ``carried`` is
    what the part before told, by the ids that entities have now. Other arguments as for ``fit``.
    """
    matrix = np.array([values[name] for name in within], np.float64)
    has_value = kernels.has_value(matrix)
    rows = None if has_value.all() else np.flatnonzero(has_value)
    if rows is not None:
        keys, times, matrix = keys[rows], times[rows], np.ascontiguousarray(matrix[:, rows])
    before = Carried.nothing(len(within)) if carried is None else carried
    fitting = _Fitting(keys, times, matrix, within, options)
    segments, codes, own_held, following = fitting.run(
        before, np.zeros(0, np.bool_) if goes_on is None else goes_on
    )
    held = own_held if rows is None else rows[own_held]
    n_conflicts = int(fitting.n_conflicts)
    if n_conflicts and held.size:  # those of rows that come again are counted then
        is_done = np.ones(len(has_value), np.bool_)
        is_done[held] = False
        taken = slice(None) if rows is None else rows
        was_there = np.array([np.isfinite(values[name][taken]) for name in within])
        n_conflicts = int((was_there & np.isnan(fitting.matrix))[:, is_done[taken]].sum())
    numbers = np.bincount(codes, minlength=max(FITTERS) + 1).tolist()
    report = FitReport(
        n_rows=len(keys) - len(held),
        n_segments=len(segments),
        n_without=0 if rows is None else len(has_value) - len(rows),
        n_conflicts=n_conflicts,
        fitters={name: numbers[code] for code, name in FITTERS.items() if numbers[code]},
    )
    return Fitted(segments, report, held, following)


@dataclass(frozen=True, slots=True)
class _Runs:
    """Runs of instants, and what is known of them before they are fitted, ``[n]`` each."""

    starts: Ints
    """The first instant of each, and the number of instants, ``[n + 1]``."""
    owners: Ints
    """Their entities."""
    codes: Ints
    """Their fitters, -1: to be chosen; set by the fit."""
    spacings: Ints
    anchors: Floats
    is_open: Mask
    """Whether rows may follow that are no gap behind."""
    is_known: Mask
    """Whether they began in a part before."""
    waits: Mask
    """Whether they are open, and too short to be judged as they would be with their next rows."""


class _Fitting:
    """One fit of rows that all have a value."""

    def __init__(
        self,
        keys: Ints,
        times: Ints,
        matrix: Floats,
        within: Mapping[str, Bound],
        options: FitOptions,
    ) -> None:
        times = _fixed(times)
        self.keys, self.times, self.matrix = keys, times, matrix
        self.names = list(within)
        self.options = options
        self.candidates = candidates_of(options)
        self.max_gap = NO_GAP if options.max_gap_us is None else options.max_gap_us
        starts = np.empty(times.size + 1, np.int64)
        self.first = starts[: kernels.starts_of_instants(keys, times, starts) + 1]
        is_each = self.first.size == times.size + 1  # then it is a copy without a purpose
        instants = times if is_each else _fixed(times[self.first[:-1]])
        bounds = np.array([bound.value for bound in within.values()], np.float64)
        is_relative = np.array([bound.is_relative for bound in within.values()], np.bool_)
        mid, reach = np.empty((2, len(bounds), instants.size))
        self.n_conflicts = kernels.intervals_of(self.first, matrix, bounds, is_relative, mid, reach)
        share = float(options.rounding)
        self.data: Data = (
            instants,
            self.first,
            times,
            mid,
            reach,
            matrix,
            bounds,
            is_relative,
            share,
        )

    def run(self, carried: Carried, goes_on: Mask) -> tuple[Segments, Ints, Indices, Carried]:
        """Fit the runs that are over, and those that are judged as far as they do not change.

        Returns:
            Segments, the fitters of runs that were chosen now, the rows that are left out, and what
            is carried on.
        """
        runs = self._runs(carried, goes_on)
        first_left_out = np.empty(runs.owners.size, np.int64)
        n, out, ranges = self._fitted(runs, first_left_out)
        keys = runs.owners[ranges[0, :n]]
        segments = self._segments(keys, ranges[:, :n], out[2][:n], out[3][:n])
        # Of each open run the rows from the first instant on that is left out.
        held_from = self.first[first_left_out[runs.is_open]]
        n_held = self.first[runs.starts[1:][runs.is_open]] - held_from
        held = timeline.runs(held_from, n_held)[1]
        on = runs.is_open & ~runs.waits
        following = Carried(runs.owners[on], runs.codes[on], runs.spacings[on], runs.anchors[on])
        return segments, runs.codes[~runs.waits & ~runs.is_known], held, following

    def _runs(self, carried: Carried, goes_on: Mask) -> _Runs:
        starts = kernels.runs_of(self.keys, self.times, self.first, self.max_gap)
        owners = self.keys[self.first[starts[:-1]]]
        is_first, is_last = np.ones((2, owners.size), np.bool_)
        is_first[1:] = is_last[:-1] = owners[1:] != owners[:-1]
        is_open = is_last & goes_on[owners] if goes_on.size else np.zeros(owners.size, np.bool_)
        # The first run of an entity is the one that went on: its rows came again.
        place = np.searchsorted(carried.keys, owners)
        is_known = is_first & (place < carried.keys.size)
        is_known[is_known] = carried.keys[place[is_known]] == owners[is_known]
        places = place[is_known]
        codes = np.full(owners.size, self.candidates[0] if self.candidates.size == 1 else -1)
        spacings = kernels.spacings_of(self.data[0], starts, SPACED)
        spacings[spacings == 0] = min(LONE_US, self.max_gap)
        anchors = np.full((owners.size, len(self.names)), np.nan)
        codes[is_known] = carried.codes[places]
        spacings[is_known] = carried.spacings[places]
        anchors[is_known] = carried.anchors[places]
        judged_by = self.options.prefix_rows if self.candidates.size > 1 else SPACED
        waits = is_open & ~is_known & (np.diff(starts) < judged_by)
        return _Runs(starts, owners, codes, spacings, anchors, is_open, is_known, waits)

    def _fitted(self, runs: _Runs, first_left_out: Ints) -> tuple[int, kernels.Out, Ints]:
        n, n_attributes = int(runs.starts[-1]), len(self.names)
        # Rooms for as many segments as instants, those of a trial, and one that is rounded: only
        # what is written takes memory.
        room = n + min(n, self.options.prefix_rows) + 1
        out = (
            np.empty(room, np.int64),
            np.empty(room, np.int64),
            np.empty((room, n_attributes, self.options.n_coefs)),
            np.empty((room, n_attributes)),
        )
        ranges = np.empty((3, n), np.int64)
        scratch = self._scratch(int(np.diff(runs.starts).max(initial=0)))
        n_out = fit_runs(
            self.candidates, self.options.prefix_rows, runs.codes, runs.spacings, runs.starts,
            runs.is_open, runs.waits, runs.anchors, first_left_out, self.data, scratch, out, ranges,
        )  # fmt: skip
        return n_out, out, ranges

    def _scratch(self, longest: int) -> Scratch:
        n, cap = len(self.names), min(longest, kernels.MAX_INSTANTS) + 1
        hulls, ends = np.empty((n, 4, cap)), np.empty((n, 4), np.int64)
        return (
            np.empty((n, 9)),
            hulls,
            ends,
            np.empty((8, 16)),
            np.empty((1, n, self.options.n_coefs)),
        )

    def _segments(self, keys: Ints, ranges: Ints, coefs: Floats, errors: Floats) -> Segments:
        lo, hi = ranges[1].copy(), ranges[2].copy()
        never = np.zeros(lo.size, np.bool_)
        own_coefs, own_errors = (
            {name: values[:, place].copy() for place, name in enumerate(self.names)}
            for values in (coefs, errors)
        )
        return Segments(keys, lo, lo, hi, never, never, own_coefs, own_errors)


def _fixed(values: Ints) -> Ints:
    """Return an array as one that nobody writes to, as Arrow gives it.

    numba compiles a kernel once for these and once for others, and the fit takes longest of all.
    """
    view = values.view()
    view.flags.writeable = False
    return view


def candidates_of(options: FitOptions) -> Ints:
    """Return the codes of the fitters that a method tries, by ascending degree."""
    by_degree = [kernels.CONSTANT, kernels.LINE, 4, 5, 6]
    if options.method == "auto":
        codes = by_degree[: options.degree + 1]
    elif options.method == "polynomial":
        codes = [by_degree[options.degree]]
    else:
        codes = [code for code, name in FITTERS.items() if name == options.method]
    return np.array(codes, np.int64)


# -- rows of Arrow batches ------------------------------------------------------------------------


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

    def near_enough(self, asked: Mapping[str, Bound], read: set[str], ranges: Ranges) -> Fit:
        """Return how rows become segments that are near enough for what is asked of them.

        Args:
            asked: for attributes the bound that follows from those of outputs.
            read: the attributes that anything reads; of others no model is made without a bound.
            ranges: ranges of values, as far as they are known.

        Raises:
            OptionError: an attribute has no bound, or one needs ranges of values.
        """
        bounds = tightest(self.within, asked, ranges)
        missing = [name for name in self.unbounded if name in read and name not in bounds]
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
        axis = next((name for name in axes if name in self.within), None)
        return 0 if axis is None else int(pc.sum(pc.is_nan(rows.column(axis))).as_py() or 0)

    def tables(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Yield the segments of the rows of a task, which come by entity and time."""
        for segments, zone, _ in fitted(batches, self):
            yield table_of(segments, zone)

    def part(self, rows: pa.Table, until: int, carried_rows: pa.Table | None) -> Part:
        """Return the segments of rows that no row from an instant on changes.

        Args:
            rows: those that were held, and all others before the instant; in any order.
            until: the instant (µs).
            carried_rows: what the part before told.
        """
        assert self.options.max_gap_us is not None
        ids, first = entity_ids(rows, self.keys)
        times = micros_of(rows.column(self.time))
        order = np.lexsort((times, ids))
        last = np.full(len(first), np.iinfo(np.int64).min)
        np.maximum.at(last, ids, times)
        result = fit_part(
            ids[order],
            times[order],
            {name: column[order] for name, column in values_of(rows, self.within).items()},
            self.within,
            self.options,
            goes_on=last >= until - self.options.max_gap_us,
            carried=None if carried_rows is None else self._carried(rows, carried_rows),
        )
        entities = rows.select(list(self.keys)).take(pa.array(first))
        return Part(
            Keyed(result.segments, entities),
            rows.take(pa.array(order[result.held])),
            self._carried_table(entities, result.carried),
            result.report,
        )

    def _carried_table(self, entities: pa.Table, carried: Carried) -> pa.Table:
        """Return what is carried as a table, by keys."""
        columns = {name: entities.column(name).take(pa.array(carried.keys)) for name in self.keys}
        size = len(self.within)
        offsets = np.arange(len(carried.keys) + 1, dtype=np.int32) * size
        anchors = pa.ListArray.from_arrays(
            pa.array(offsets, pa.int32()), pa.array(carried.anchors.ravel())
        )
        state = {_CODE: pa.array(carried.codes), _SPACING: pa.array(carried.spacings)}
        return pa.table({**columns, **state, _ANCHORS: anchors})

    def _carried(self, rows: pa.Table, carried_rows: pa.Table) -> Carried:
        """Return what a table says of entities, by the ids that they have among rows."""
        ids = ids_together([rows, carried_rows], self.keys)[1]
        order = np.argsort(ids)
        return Carried(
            ids[order],
            carried_rows.column(_CODE).to_numpy()[order],
            carried_rows.column(_SPACING).to_numpy()[order],
            list_matrix(carried_rows.column(_ANCHORS))[order].reshape(len(ids), len(self.within)),
        )

    def __str__(self) -> str:
        places = [] if self.track is None else earth.coordinates(earth.TRACK)
        phrases = [f"{name} within {bound}" for name, bound in self.within.items()
                if name not in places]  # fmt: skip
        phrases += [f"{name} as near as is asked" for name in self.unbounded if name not in places]
        if self.track is not None:
            bounds = [self.within[name].value for name in places if name in self.within]
            near = f"within {math.hypot(*bounds):g}" if bounds else "as near as is asked"
            phrases.append(f"{earth.TRACK} of ({', '.join(self.track)}) {near}")
        assumed = assumed_in_words(self.assumed)
        return f"fit {', '.join(phrases)}; method {self.options.method}{assumed}"


def fitted(
    batches: Iterable[pa.RecordBatch], how: Fit, *, block_rows: int = BLOCK_ROWS
) -> Iterator[tuple[Keyed, str | None, FitReport]]:
    """Fit the rows of a task, which come by entity and time.

    Yields:
        Segments by entity and time, the time zone of the rows, and what the fit did, block by
        block; segments of one entity may be in several.
    """
    carried = Carried.nothing(len(how.within))
    pending: list[pa.Table] = []
    """What is held of the block before, and the batches behind it."""
    n = n_held = 0
    for batch in batches:
        # What is read again does not grow faster than what is read.
        if n and n >= max(block_rows, n_held):
            block, held, carried = _block(pa.concat_tables(pending), how, carried, is_last=False)
            yield block
            pending, n, n_held = [held], 0, len(held)
        pending.append(pa.Table.from_batches([batch]))
        n += len(batch)
    if n:
        yield _block(pa.concat_tables(pending), how, carried, is_last=True)[0]


def _block(
    rows: pa.Table, how: Fit, carried: Carried, *, is_last: bool
) -> tuple[tuple[Keyed, str | None, FitReport], pa.Table, Carried]:
    """Return the segments of a block that no later row changes, and what the next one gets.

    The last entity of a block may go on. Its open segment, and the rows of its last instant, which
    may have more, are held. They come first in the next block.
    """
    other = is_other_entity(rows, how.keys)
    keys, times = np.cumsum(other) - 1, micros_of(rows.column(how.time))
    n = len(rows)
    goes_on = np.zeros(int(other.sum()), np.bool_)
    if n and not is_last:
        goes_on[-1] = True
        # Nothing of an instant is fitted before all of its rows are there.
        before = np.flatnonzero((times != times[-1]) | (keys != keys[-1]))
        n = int(before[-1]) + 1 if before.size else 0
    values = {name: column[:n] for name, column in values_of(rows, how.within).items()}
    result = fit_part(
        keys[:n], times[:n], values, how.within, how.options, goes_on=goes_on, carried=carried
    )
    held = rows.take(pa.array(np.append(result.held, np.arange(n, len(rows)))))
    entities = rows.select(list(how.keys)).take(pa.array(np.flatnonzero(other)))
    block = Keyed(result.segments, entities), rows.column(how.time).type.tz, result.report
    return block, held, replace(result.carried, keys=np.zeros_like(result.carried.keys))
