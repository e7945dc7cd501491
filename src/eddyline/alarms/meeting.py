"""Which alarms a segment may meet: their constants, sorted, against its bounds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from eddyline.alarms.meeting_kernels import places
from eddyline.models import timeline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eddyline.alarms.bounds import Bounds
    from eddyline.data.arrays import Floats, Indices, Ints, Mask

WIDER = 2.0**-48
"""How much earlier bands are looked for, in parts of what is compared."""

UP, DOWN = (">", ">="), ("<", "<=")
"""Comparisons that hold above their constant, and below it."""


def may_hold(bounds: Bounds, rows: Indices, op: str, constants: Floats) -> Mask:
    """Return where a comparison is not surely false, of pairs of a segment and a constant."""
    if op in UP:
        return constants <= bounds.high[rows]
    if op in DOWN:
        return constants >= bounds.low[rows]
    low, high = bounds.low[rows], bounds.high[rows]
    found: Mask = (constants >= low) & (constants <= high) if op == "=" else low <= high
    return found


def surely_holds(bounds: Bounds, rows: Indices, op: str, constants: Floats) -> Mask:
    """Return where a comparison surely holds all along, of pairs of a segment and a constant."""
    low, high = bounds.low[rows], bounds.high[rows]
    is_there: Mask = low <= high
    if op in UP:
        return is_there & (constants < low)
    if op in DOWN:
        return is_there & (constants > high)
    if op == "=":
        return np.zeros(len(rows), np.bool_)
    return is_there & ((constants < low) | (constants > high))


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
            low, high = bounds.low, bounds.high
            return self._place(low, keys, is_after=False), self._place(high, keys, is_after=True)
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
        return (
            self._place(first, keys, is_after=False),
            self._place(bounds.high, keys, is_after=True),
        )

    def certain(self, bounds: Bounds, op: str, keys: Ints) -> tuple[Indices, Indices]:
        """Return for each segment from where to where constants surely do; ``op`` is up or down."""
        first, last = self._all(keys)
        is_there = bounds.low <= bounds.high
        if op in UP:
            low = np.where(is_there, bounds.low, -np.inf)
            return first, self._place(low, keys, is_after=False)
        high = np.where(is_there, bounds.high, np.inf)
        return self._place(high, keys, is_after=True), last

    def _all(self, keys: Ints) -> tuple[Indices, Indices]:
        if self.starts is None:
            return np.zeros(len(keys), np.intp), np.full(len(keys), len(self.values))
        return self.starts[keys], self.starts[keys + 1]

    def _place(self, values: Floats, keys: Ints, *, is_after: bool) -> Indices:
        if self.starts is None:
            return np.searchsorted(self.values, values, "right" if is_after else "left")
        return places(self.values, *self._all(keys), values, is_after)


def by_width(widths: Floats) -> Iterator[Indices]:
    """Yield the places of bands, those of about the same width together."""
    power = np.frexp(widths)[1]
    power[~np.isfinite(widths)] = np.iinfo(power.dtype).max
    some = np.flatnonzero(widths >= 0)
    for each in np.unique(power[some]):
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

        All of them where the first one is greater: rounding may say that both are met.
        """
        above = len(self._highs) - np.searchsorted(self._highs, low, "left")
        below = np.searchsorted(self._lows, high, "right")
        # Each segment with a value is above one or below the other, or both.
        n = len(self._highs)
        return np.where(low <= high, np.maximum(above + below - self._n_valued, 0), n)

    def of(self, op: str, constants: Floats) -> Ints:
        """Return for each constant how many segments may have an instant where ``op`` holds."""
        n = len(self._lows)
        below = np.searchsorted(self._highs, constants, "left")
        up = n - below
        down = np.searchsorted(self._lows, constants, "right")
        if op in UP:
            return up
        if op in DOWN:
            return down
        return np.maximum(down - below, 0) if op == "=" else np.full(len(constants), n)
