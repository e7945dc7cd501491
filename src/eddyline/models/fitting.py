"""Models from rows: segments that are never farther from a row than the bound of its attribute.

The bound is certified in double precision: what is stored is evaluated at the rows' times exactly
as a reader does, and the largest distance is the segment's error [Pulse 4].

Rows come by entity and time, or are sorted once. A row without a value of an attribute (NULL, NaN,
infinite) says nothing of that attribute; where no row of a segment has one, its coefficients are
NaN. Rows of an entity at one instant are all within the bound, or the greatest value wins and the
others are counted. A segment ends where the next one begins; the last of a run one typical spacing
after its last row: the median of the entity's first rows, a second if it has one instant alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from eddyline.models import fitting_kernels as kernels
from eddyline.models import instants_kernels as instants
from eddyline.models.bounds import Bound, FitOptions
from eddyline.models.choosing_kernels import fit_runs
from eddyline.models.segments import Segments

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.data.arrays import Floats, Indices, Ints
    from eddyline.models.fitting_kernels import Data, Scratch

LONE_US = 1_000_000
"""How long an instant stands for if its entity has no other (µs)."""

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
    fitters: Mapping[str, int] = field(default_factory=dict)
    """Number of entities by the fitter that they have."""

    @property
    def rows_per_segment(self) -> float:
        """Rows that a segment stands for, on average."""
        return self.n_rows / self.n_segments if self.n_segments else 0.0

    def __add__(self, other: FitReport) -> FitReport:
        return FitReport(
            self.n_rows + other.n_rows,
            self.n_segments + other.n_segments,
            self.n_without + other.n_without,
            self.n_conflicts + other.n_conflicts,
            dict(Counter(self.fitters) + Counter(other.fitters)),
        )

    def __str__(self) -> str:
        told = ", ".join(f"{name} {n:,}" for name, n in sorted(self.fitters.items()))
        text = (
            f"{_counted(self.n_rows, 'row')} in {_counted(self.n_segments, 'segment')}, "
            f"{self.rows_per_segment:.1f} rows each; entities by fitter: {told or 'none'}"
        )
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
    """What is known of an entity whose rows go on in the next block."""

    code: int
    """Its fitter."""
    spacing_us: int
    anchors: Floats
    """Of each attribute the value that its open segment begins with; NaN: none is given."""


@dataclass(frozen=True, slots=True)
class Block:
    """Segments of a block of rows that no later row changes."""

    segments: Segments
    report: FitReport
    n_done: int
    """Rows, from the first on, that need not come again."""
    carried: Carried | None = None
    """To be given with the next block, which begins with the rows that are not done."""


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
    if not instants.is_sorted(keys, times):
        order = _order(keys, times)
        keys, times = keys[order], times[order]
        values = {name: each[order] for name, each in values.items()}
    found = fit_block(keys, times, values, within, options or FitOptions())
    return found.segments, found.report


def _order(keys: Ints, times: Ints) -> Indices:
    """Return the order of rows by entity and time."""
    span = int(times.max()) - int(times.min()) + 1
    if (int(keys.max()) + 1) * span < 2**62:  # one number of both is sorted some times faster
        return np.argsort(keys * span + (times - times.min()))
    return np.lexsort((times, keys))


def fit_block(
    keys: Ints,
    times: Ints,
    values: Mapping[str, Floats],
    within: Mapping[str, Bound],
    options: FitOptions,
    *,
    carried: Carried | None = None,
    is_last: bool = True,
) -> Block:
    """Fit a block of rows, by entity and time, of which the last entity may go on.

    Segments are the same for any cut of rows into blocks.

    Args:
        keys: as for ``fit``.
        times: as for ``fit``.
        values: as for ``fit``.
        within: as for ``fit``.
        options: as for ``fit``.
        carried: what the block before told of the first entity.
        is_last: whether no rows follow.
    """
    matrix = np.array([values[name] for name in within], np.float64)
    has_value = instants.has_value(matrix)
    rows = None if has_value.all() else np.flatnonzero(has_value)
    if rows is not None:
        keys, times, matrix = keys[rows], times[rows], np.ascontiguousarray(matrix[:, rows])
    fitting = _Fitting(keys, times, matrix, within, options)
    segments, n_used, codes, following = fitting.run(carried, is_last=is_last)
    n_done = n_used if rows is None else int(rows[n_used]) if n_used < rows.size else len(has_value)
    n_new = codes.size - (carried is not None and codes.size > 0)
    report = FitReport(
        n_rows=n_used,
        n_segments=len(segments),
        n_without=n_done - n_used,
        n_conflicts=fitting.conflicts_of(values, rows, n_used),
        fitters=_numbers(codes[codes.size - n_new :]),
    )
    return Block(segments, report, n_done, following)


def _numbers(codes: Ints) -> dict[str, int]:
    """Return how many entities have each fitter."""
    numbers = np.bincount(codes, minlength=max(FITTERS) + 1).tolist()
    return {name: numbers[code] for code, name in FITTERS.items() if numbers[code]}


class _Fitting:
    """One fit of a block, in which every row has a value."""

    def __init__(
        self,
        keys: Ints,
        times: Ints,
        matrix: Floats,
        within: Mapping[str, Bound],
        options: FitOptions,
    ) -> None:
        self.keys, self.times, self.matrix = keys, times, matrix
        self.names = list(within)
        self.options = options
        self.candidates = candidates_of(options)
        self.max_gap = NO_GAP if options.max_gap_us is None else options.max_gap_us
        self.first = instants.starts_of_instants(keys, times)
        bounds = np.array([each.value for each in within.values()], np.float64)
        is_relative = np.array([each.is_relative for each in within.values()], np.bool_)
        mid, reach, self.n_conflicts = instants.intervals_of(
            self.first, matrix, bounds, is_relative
        )
        is_each = self.first.size == times.size + 1  # then it is a copy without a purpose
        at = times if is_each else times[self.first[:-1]]
        share = float(options.rounding)
        self.data: Data = (at, self.first, times, mid, reach, matrix, bounds, is_relative, share)

    def run(
        self, carried: Carried | None, *, is_last: bool
    ) -> tuple[Segments, int, Ints, Carried | None]:
        """Return segments, rows they stand for, fitters of entities, and what the next has."""
        n_known = self._n_known(carried, is_last=is_last)
        runs, entities = instants.runs_of(
            self.keys, self.times, self.first[: n_known + 1], self.max_gap
        )
        is_open = not is_last and n_known > 0 and self._goes_on(n_known)
        codes, spacings = self._known(entities, carried)
        anchors = np.full(len(self.names), np.nan) if carried is None else carried.anchors.copy()
        n, left, out, ranges = self._fitted(codes, spacings, runs, entities, anchors, is_open)
        following = None
        if is_open:
            following = Carried(int(codes[-1]), int(spacings[-1]), anchors)
        elif not is_last and n_known == 0:
            following = carried
        keys = self.keys[self.first[entities[:-1]]]
        segments = self._segments(keys[ranges[0, :n]], ranges[:, :n], out[2][:n], out[3][:n])
        return segments, int(self.first[left if n_known else 0]), codes, following

    def _n_known(self, carried: Carried | None, *, is_last: bool) -> int:
        """Return how many instants are complete, and judged by as many as they would be later."""
        n = self.first.size - 1
        if is_last or n == 0:
            return n
        start = int(np.searchsorted(self.keys, self.keys[-1]))
        begin = int(np.searchsorted(self.first, start))
        is_judged = carried is not None and begin == 0
        return n - 1 if is_judged or n - 1 - begin >= self.options.prefix_rows else begin

    def _goes_on(self, n_known: int) -> bool:
        """Return whether the last of the first instants is of the entity of the last row."""
        return bool(self.keys[self.first[n_known - 1]] == self.keys[-1])

    def _known(self, entities: Ints, carried: Carried | None) -> tuple[Ints, Ints]:
        """Return fitters, -1 for one that is to be chosen, and typical spacings of entities."""
        n = entities.size - 1
        codes = np.full(n, self.candidates[0] if self.candidates.size == 1 else -1, np.int64)
        spacings = self._spacings(entities)
        if carried is not None and n:
            codes[0], spacings[0] = carried.code, carried.spacing_us
        return codes, spacings

    def _spacings(self, entities: Ints) -> Ints:
        found = instants.spacings_of(self.data[0], entities, self.max_gap, self.options.prefix_rows)
        return np.where(found > 0, found, min(LONE_US, self.max_gap))

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

    def _fitted(
        self,
        codes: Ints,
        spacings: Ints,
        runs: Ints,
        entities: Ints,
        anchors: Floats,
        is_open: bool,
    ) -> tuple[int, int, kernels.Out, Ints]:
        n, n_attributes = int(entities[-1]), len(self.names)
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
        scratch = self._scratch(int(np.diff(runs).max(initial=0)))
        n_out, left = fit_runs(
            self.candidates, self.options.prefix_rows, codes, spacings, runs, entities, is_open,
            anchors, self.data, scratch, out, ranges,
        )  # fmt: skip
        return n_out, left, out, ranges

    def _segments(self, keys: Ints, ranges: Ints, coefs: Floats, errors: Floats) -> Segments:
        lo, hi = ranges[1].copy(), ranges[2].copy()
        never = np.zeros(lo.size, np.bool_)
        at = {name: place for place, name in enumerate(self.names)}
        return Segments(
            keys=keys,
            origin=lo,
            lo=lo,
            hi=hi,
            is_point=never,
            is_tombstone=never,
            coefs={name: coefs[:, place].copy() for name, place in at.items()},
            errors={name: errors[:, place].copy() for name, place in at.items()},
        )

    def conflicts_of(self, values: Mapping[str, Floats], rows: Indices | None, n_used: int) -> int:
        """Return how many values of the first rows lost against greater ones."""
        if self.n_conflicts == 0 or n_used == self.times.size:
            return int(self.n_conflicts)
        given = [values[name] if rows is None else values[name][rows] for name in self.names]
        had = sum(int(np.isfinite(each[:n_used]).sum()) for each in given)
        return had - int(np.isfinite(self.matrix[:, :n_used]).sum())


def candidates_of(options: FitOptions) -> Ints:
    """Return the codes of the fitters that a method tries, by ascending degree."""
    by_degree = [kernels.CONSTANT, kernels.LINE, 4, 5, 6]
    one = {
        "constant": kernels.CONSTANT,
        "swing": kernels.SWING,
        "connected": kernels.CONNECTED,
        "linear": kernels.LINE,
        "polynomial": by_degree[options.degree],
    }
    if options.method in one:
        return np.array([one[options.method]], np.int64)
    return np.array(by_degree[: options.degree + 1], np.int64)
