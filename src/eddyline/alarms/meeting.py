"""Which alarms a segment may meet: their constants, sorted, against its bounds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING

import numpy as np

from eddyline.alarms.meeting_kernels import (
    ABOVE,
    BELOW,
    EQUAL,
    OTHER,
    along,
    met,
    places,
    places_in,
    spans,
)
from eddyline.alarms.templates import slots_in
from eddyline.data.unique import distinct
from eddyline.models import timeline
from eddyline.models.solving.expressions import And, Comparison

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eddyline.alarms.bounds import Bounds
    from eddyline.alarms.meeting_kernels import States
    from eddyline.alarms.templates import Template
    from eddyline.data.arrays import Floats, Indices, Ints, Mask
    from eddyline.models.solving.expressions import Condition

WIDER = 2.0**-48
"""How much earlier bands are looked for, in parts of what is compared."""

NEVER = 1 << 40
"""More segments than there are: by what has so many, no alarm is looked for."""

UP, DOWN = (">", ">="), ("<", "<=")
"""Comparisons that hold above their constant, and below it."""

KINDS = {**dict.fromkeys(UP, ABOVE), **dict.fromkeys(DOWN, BELOW), "=": EQUAL}


def may_hold(bounds: Bounds, op: str, constant: float) -> Mask:
    """Return on which segments a comparison with a constant is not surely false."""
    if op in UP:
        return bounds.high >= constant
    if op in DOWN:
        return bounds.low <= constant
    if op == "=":
        return (bounds.low <= constant) & (bounds.high >= constant)
    return bounds.low <= bounds.high


def states(
    template: Template, bounds: Callable[[int], Bounds], own: Indices, rows: Indices
) -> States:
    """Return of pairs of a segment and an alarm whether it holds nowhere, perhaps, or all along.

    Args:
        template: of the alarms.
        bounds: for the place of an expression what it is on these segments.
        own: the alarms by their places in the template, ``[m]``.
        rows: the segments, ``[m]``.
    """

    def of(condition: Condition) -> States:
        if isinstance(condition, Comparison):
            return state_of(template, slots_in(condition)[0], bounds, own, rows)
        least_or_most = np.minimum if isinstance(condition, And) else np.maximum
        return reduce(least_or_most, map(of, condition.parts))

    return of(template.condition)


def state_of(
    template: Template, at: int, bounds: Callable[[int], Bounds], own: Indices, rows: Indices
) -> States:
    """Return the same for the comparison of one slot."""
    known, op = bounds(template.bases[at]), template.ops[at]
    kind = KINDS.get(op, OTHER)
    return met(kind, known.low, known.high, rows, own, template.constants, at)


@dataclass(frozen=True, eq=False)
class Constants:
    """Constants of some alarms of a template, ascending: all together, or by entity.

    Attributes:
        values: ``[m]``.
        alarms: whose each is, by its place in the template, ``[m]``.
        starts: where those of an entity begin, ``[entities + 1]``; None if all are everyone's.
    """

    values: Floats
    alarms: Indices
    starts: Indices | None = None

    @classmethod
    def everywhere(cls, values: Floats, own: Indices) -> Constants:
        """Return the constants of alarms that are looked for in all entities."""
        order = own[np.argsort(values[own], kind="stable")]
        return cls(values[order], order)

    @classmethod
    def of_entities(cls, values: Floats, own: Indices, allowed: Mask, key_of: Ints) -> Constants:
        """Return the constants of alarms that are looked for in some entities.

        Args:
            values: of all alarms of the template, ``[n]``.
            own: the places of these alarms, ``[m]``.
            allowed: which conditions on keys are true of which entities.
            key_of: the condition of each, ``[m]``.
        """
        conditions, entities = np.nonzero(allowed)
        first = np.searchsorted(conditions, key_of, "left")
        count = np.searchsorted(conditions, key_of, "right") - first
        run, places = timeline.runs(first, count)
        alarms, entities = own[run], entities[places]
        order = np.lexsort((values[alarms], entities))
        starts = np.searchsorted(entities[order], np.arange(allowed.shape[1] + 1))
        return cls(values[alarms[order]], alarms[order], starts)

    def possible(self, bounds: Bounds, op: str, keys: Ints) -> tuple[Indices, Indices]:
        """Return for each segment, of entities ``keys``, from where to where constants may do."""
        first, last = self._all(keys)
        if op in UP:
            return first, self._place(bounds.high, keys, is_after=True)
        if op in DOWN:
            return self._place(bounds.low, keys, is_after=False), last
        if op == "=":
            return spans(self.values, *self._all(keys), bounds.low, bounds.high)
        return first, np.where(bounds.low <= bounds.high, last, first)

    def between(self, bounds: Bounds, width: float, keys: Ints) -> tuple[Indices, Indices]:
        """Return for each segment from where to where constants may do that begin a band.

        Args:
            bounds: of the expression.
            width: of the widest band, 0 or more.
            keys: the entity of each segment.
        """
        is_there = bounds.low <= bounds.high
        low = np.where(is_there, bounds.low, np.inf)
        with np.errstate(invalid="ignore", over="ignore"):
            # By more than rounding takes; what is no number is looked for everywhere.
            first = low - width - WIDER * (np.abs(low) + width)
        first = np.where(np.isnan(first), -np.inf, first)
        return spans(self.values, *self._all(keys), first, bounds.high)

    def along(
        self, bounds: Bounds, op: str, keys: Ints, is_linked: Mask
    ) -> tuple[Indices, Indices, Indices, Indices, Indices]:
        """Return runs of segments on which thresholds surely hold, and which others may.

        Args:
            bounds: of the expression.
            op: holds above its constant, or below it.
            keys: the entity of each segment.
            is_linked: whether a segment goes on where the one before ends.

        Returns:
            The constant of each run by its place, its first and its last segment; and for each
            segment from where to before where constants are open.
        """
        ends = self._all(keys)
        return along(self.values, *ends, bounds.low, bounds.high, is_linked, op in UP)

    def _all(self, keys: Ints) -> tuple[Indices, Indices]:
        if self.starts is None:
            return np.zeros(len(keys), np.intp), np.full(len(keys), len(self.values))
        return self.starts[keys], self.starts[keys + 1]

    def _place(self, values: Floats, keys: Ints, *, is_after: bool) -> Indices:
        return places(self.values, *self._all(keys), values, is_after)


def by_width(widths: Floats) -> Iterator[Indices]:
    """Yield the places of bands, those of about the same width together."""
    power = np.frexp(widths)[1]
    power[~np.isfinite(widths)] = np.iinfo(power.dtype).max
    some = np.flatnonzero(widths >= 0)
    for each in distinct(power[some]):
        yield some[power[some] == each]


@dataclass(frozen=True, eq=False)
class Counts:
    """How many segments may meet a constant: exact, by the sorted bounds of an expression."""

    bounds: Bounds

    @cached_property
    def _lows(self) -> Floats:
        return np.sort(self.bounds.low)

    @cached_property
    def _highs(self) -> Floats:
        return np.sort(self.bounds.high)

    @cached_property
    def _n_valued(self) -> int:
        return int((self.bounds.low <= self.bounds.high).sum())

    def between(self, low: Floats, high: Floats) -> Ints:
        """Return for each pair of constants how many segments may have a value between them.

        It is ``NEVER`` where they are no band (``by_width``): rounding may say that both are met.
        """
        above = len(self._highs) - places_in(self._highs, low, False)
        below = places_in(self._lows, high, True)
        # Each segment with a value is above one or below the other, or both.
        with np.errstate(invalid="ignore", over="ignore"):
            is_band = high - low >= 0
        return np.where(is_band, np.maximum(above + below - self._n_valued, 0), NEVER)

    def of(self, op: str, constants: Floats) -> Ints:
        """Return for each constant how many segments may have an instant where ``op`` holds."""
        n = len(self._lows)
        below = places_in(self._highs, constants, False)
        up = n - below
        down = places_in(self._lows, constants, True)
        if op in UP:
            return up
        if op in DOWN:
            return down
        return np.maximum(down - below, 0) if op == "=" else np.full(len(constants), n)
