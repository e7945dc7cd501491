"""Alarms that a segment may meet: sorted constants against bounds of expressions.

*Bounds.* ``Basis`` computes the least and the greatest value of an expression, for the segments
that it is asked of. Bounds are by terms, as ``models.solving`` settles a comparison, and wider by
more than rounding takes: a constant outside them is settled there, too, so it need not be asked.

*Meeting.* ``Constants`` has the constants of alarms in ascending order and says which lie between
the bounds of a segment. ``states`` says of a pair of a segment and an alarm whether the alarm holds
nowhere, perhaps, or all along.

*Covers.* The loosest constants of a template say which segments any of its alarms may meet.

*Witnesses.* An alarm is looked for by a comparison that holds wherever the alarm does. Of an AND
one part is enough, the rarest; of an OR all parts are needed (access predicates of rules are chosen
the same way). Two comparisons of an AND that keep one expression between two constants are one
part, a *band*: each alone holds nearly everywhere, and both next to nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from eddyline.alarms.meeting_kernels import (
    ABOVE,
    BELOW,
    EQUAL,
    OTHER,
    along,
    bounded,
    met,
    places,
    spans,
)
from eddyline.alarms.program import BOUNDS, slots_in
from eddyline.data.arrays import distinct
from eddyline.models import timeline
from eddyline.models.solving.expressions import (
    ROUNDING,
    And,
    Comparison,
    Condition,
    Or,
    Terms,
    holds,
    names_in,
    overflowing,
    terms_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from eddyline.alarms.meeting_kernels import States
    from eddyline.alarms.program import Tally, Template
    from eddyline.data.arrays import Floats, Indices, Ints, Mask
    from eddyline.models.segments import Segments
    from eddyline.models.solving.expressions import Expression

    Looked = tuple[int, ...]
    """A slot, or the two of a band: that which holds above its constant, then that below."""
    Counted = Callable[[Looked], Ints]
    """In how many segments they may hold, by alarm, ``[n]``."""

BOUNDS_WIDER = 2.0**-40
"""How much wider, in parts of the size of the terms; a sign is settled from 2**-48 of them on."""


@dataclass(frozen=True)
class Bounds:
    """An expression on segments that are no tombstones.

    Attributes:
        coefs: its polynomials on the origins of segments, without terms that are rounding but for
            the constant one, ``[n, degree + 1]``.
        size: how large the terms are that the constant one was summed from, ``[n]``.
        low: where the expression may be equal to a constant, the constant is not less, ``[n]``;
            infinite if it has no value.
        high: the constant is not greater, ``[n]``; then minus infinite.
    """

    coefs: Floats
    size: Floats
    low: Floats
    high: Floats

    @property
    def arrays(self) -> tuple[Floats, ...]:
        """All it has of segments."""
        return self.coefs, self.size, self.low, self.high

    def take(self, rows: Indices) -> Bounds:
        """Return the same on some segments, which come once each and in their order."""
        if len(rows) == len(self.low):
            return self
        return Bounds(*(array[rows] for array in self.arrays))


def bounds_of(segments: Segments, expressions: Sequence[Expression]) -> list[Bounds]:
    """Return expressions on segments, none of which is a tombstone."""
    names = {name for expression in expressions for name in names_in(expression)}
    terms = {name: Terms.from_coefs(segments.coefs[name]) for name in names}
    since, until = segments.seconds(segments.lo), segments.seconds(segments.ends)
    with np.errstate(over="ignore", invalid="ignore"):
        return [_bounds(expression, terms, since, until) for expression in expressions]


class Basis:
    """An expression on segments, computed for those that it is asked of, of each once.

    Args:
        segments: none of them is a tombstone.
        expression: of their attributes.
        tally: takes note of the work.
    """

    def __init__(self, segments: Segments, expression: Expression, tally: Tally) -> None:
        self._segments, self._expression, self._tally = segments, expression, tally
        self._is_known = np.zeros(len(segments), np.bool_)
        self._knows_all = False
        self._bounds_on_all: Bounds | None = None

    def on(self, rows: Indices) -> Bounds:
        """Return it on all segments, of which only ``rows`` and those before are computed."""
        if self._bounds_on_all is not None and (self._knows_all or not len(rows)):
            return self._bounds_on_all
        asked = np.zeros(len(self._segments), np.bool_)
        asked[rows] = True
        missing = np.flatnonzero(asked & ~self._is_known)
        if len(missing) or self._bounds_on_all is None:
            self._compute(missing)
        assert self._bounds_on_all is not None
        return self._bounds_on_all

    def _compute(self, missing: Indices) -> None:
        segments = self._segments
        is_all = are_most(missing, segments)
        if is_all:
            missing = np.arange(len(segments))
        with self._tally.on(BOUNDS, len(missing)):
            part = segments if is_all else segments.take(missing)
            (bounds,) = bounds_of(part, [self._expression])
        if is_all:
            self._bounds_on_all = bounds
        else:
            if self._bounds_on_all is None:
                n, size = len(segments), bounds.coefs.shape[1]
                coefs, (sizes, low, high) = np.empty((n, size)), np.empty((3, n))
                self._bounds_on_all = Bounds(coefs, sizes, low, high)
            for whole, values in zip(self._bounds_on_all.arrays, bounds.arrays, strict=True):
                whole[missing] = values
        self._is_known[missing] = True
        self._knows_all = is_all


def are_most(rows: Indices, segments: Segments) -> bool:
    """Return whether all segments are computed in less time than some of them are taken out."""
    return len(rows) * 4 >= len(segments) * 3


def _bounds(
    expression: Expression, inputs: Mapping[str, Terms], since: Floats, until: Floats
) -> Bounds:
    terms = terms_of(expression, inputs)
    shape = (len(since), terms.coefs.shape[1])
    # A constant is one polynomial for all segments.
    coefs, size = (
        np.ascontiguousarray(np.broadcast_to(array, shape)) for array in (terms.coefs, terms.size)
    )
    bounds = Bounds(*bounded(coefs, size, since, until, ROUNDING, BOUNDS_WIDER))
    lost = overflowing(terms, expression, inputs)
    if lost is not None:  # solving settles it
        bounds.low[lost], bounds.high[lost] = -np.inf, np.inf
    return bounds


BANDS_WIDER = 2.0**-48
"""How much earlier bands are looked for, in parts of what is compared."""

NEVER = 1 << 40
"""More segments than there are: by what has so many, no alarm is looked for."""

UP, DOWN = (">", ">="), ("<", "<=")
"""Comparisons that hold above their constant, and below it."""

KINDS = {**dict.fromkeys(UP, ABOVE), **dict.fromkeys(DOWN, BELOW), "=": EQUAL}


def may_hold(bounds: Bounds, op: str, least: float, greatest: float) -> Mask:
    """Return on which segments a comparison with constants between two is not surely false."""
    if op in UP:
        return bounds.high >= least
    if op in DOWN:
        return bounds.low <= greatest
    if op == "=":
        return (bounds.low <= greatest) & (bounds.high >= least)
    return bounds.low <= bounds.high


def states(
    template: Template, bounds: Callable[[int], Bounds], alarms: Indices, rows: Indices
) -> States:
    """Return of pairs of a segment and an alarm whether it holds nowhere, perhaps, or all along.

    Args:
        template: of the alarms.
        bounds: for the place of an expression what it is on these segments.
        alarms: the alarms by their places in the template, ``[m]``.
        rows: the segments, ``[m]``.
    """

    def states_of(condition: Condition) -> States:
        if isinstance(condition, Comparison):
            return state_of(template, slots_in(condition)[0], bounds, alarms, rows)
        least_or_most = np.minimum if isinstance(condition, And) else np.maximum
        return reduce(least_or_most, map(states_of, condition.parts))

    return states_of(template.condition)


def state_of(
    template: Template, slot: int, bounds: Callable[[int], Bounds], alarms: Indices, rows: Indices
) -> States:
    """Return the same for the comparison of one slot."""
    limits, op = bounds(template.bases[slot]), template.ops[slot]
    kind = KINDS.get(op, OTHER)
    return met(kind, limits.low, limits.high, rows, alarms, template.constants, slot)


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
    def everywhere(cls, values: Floats, alarms: Indices) -> Constants:
        """Return the constants of alarms that are looked for in all entities."""
        order = alarms[np.argsort(values[alarms], kind="stable")]
        return cls(values[order], order)

    @classmethod
    def of_entities(
        cls, values: Floats, alarm_places: Indices, allowed: Mask, key_of: Ints
    ) -> Constants:
        """Return the constants of alarms that are looked for in some entities.

        Args:
            values: of all alarms of the template, ``[n]``.
            alarm_places: the places of these alarms, ``[m]``.
            allowed: which conditions on keys are true of which entities.
            key_of: the condition of each, ``[m]``.
        """
        conditions, entities = np.nonzero(allowed)
        first = np.searchsorted(conditions, key_of, "left")
        count = np.searchsorted(conditions, key_of, "right") - first
        run, places = timeline.runs(first, count)
        alarms, entities = alarm_places[run], entities[places]
        order = np.lexsort((values[alarms], entities))
        starts = np.searchsorted(entities[order], np.arange(allowed.shape[1] + 1))
        return cls(values[alarms[order]], alarms[order], starts)

    def possible(self, bounds: Bounds, op: str, keys: Ints) -> tuple[Indices, Indices]:
        """Return for each segment, of entities ``keys``, from where to where constants may do."""
        first, last = self._all(keys)
        if op in UP:
            return first, places(self.values, first, last, bounds.high, True)
        if op in DOWN:
            return places(self.values, first, last, bounds.low, False), last
        if op == "=":
            return spans(self.values, first, last, bounds.low, bounds.high)
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
            first = low - width - BANDS_WIDER * (np.abs(low) + width)
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


def by_width(widths: Floats) -> Iterator[Indices]:
    """Yield the places of bands, those of about the same width together."""
    power = np.frexp(widths)[1]
    power[~np.isfinite(widths)] = np.iinfo(power.dtype).max
    some = np.flatnonzero(widths >= 0)
    for exponent in distinct(power[some]):
        yield some[power[some] == exponent]


class Counts:
    """How many segments may meet a constant: exact, by the sorted bounds of an expression."""

    def __init__(self, bounds: Bounds) -> None:
        self._lows, self._highs = np.sort(bounds.low), np.sort(bounds.high)
        self._n_valued = int((bounds.low <= bounds.high).sum())

    def between(self, low: Floats, high: Floats) -> Ints:
        """Return for each pair of constants how many segments may have a value between them.

        It is ``NEVER`` where they are no band (``by_width``): rounding may say that both are met.
        """
        above = len(self._highs) - np.searchsorted(self._highs, low, "left")
        below = np.searchsorted(self._lows, high, "right")
        # Each segment with a value is above one or below the other, or both.
        with np.errstate(invalid="ignore", over="ignore"):
            is_band = high - low >= 0
        return np.where(is_band, np.maximum(above + below - self._n_valued, 0), NEVER)

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


def covered(
    template: Template, condition: Condition, rows: Indices, bounds: Callable[[int], Bounds]
) -> Mask:
    """Return which of some segments any alarm of a template may meet a part of its condition on.

    Args:
        template: with at least one alarm.
        condition: the part.
        rows: the segments, each once and in their order, ``[m]``.
        bounds: for the place of an expression what it is on these.
    """

    def leaf(comparison: Comparison) -> Mask:
        (slot,) = slots_in(comparison)
        constants, limits = template.constants[:, slot], bounds(template.bases[slot])
        ends = float(np.fmin.reduce(constants)), float(np.fmax.reduce(constants))
        may = may_hold(limits, template.ops[slot], *ends)
        return may if len(rows) == len(may) else may[rows]

    return holds(condition, leaf)


def witnesses(template: Template, counts: Counted, n: int) -> dict[Looked, Mask]:
    """Return for each slot or band the alarms of a template that are looked for by it.

    Args:
        template: the alarms.
        counts: of each slot and band.
        n: of how many segments; all are passed once for each slot or band.

    Returns:
        What no alarm is looked for by is left out.
    """
    _, chosen = _cheapest(template, template.condition, counts, n)
    return {looked: mask for looked, mask in chosen.items() if mask.any()}


def bands(template: Template, condition: Condition) -> Iterator[Looked]:
    """Yield the pairs of comparisons of an AND that keep an expression between two constants."""
    if not isinstance(condition, And):
        return
    slots = [slots_in(part)[0] for part in condition.parts if isinstance(part, Comparison)]
    ups = [slot for slot in slots if template.ops[slot] in UP]
    downs = [slot for slot in slots if template.ops[slot] in DOWN]
    for up in ups:
        for down in downs:
            if template.bases[up] == template.bases[down]:
                yield up, down


def _cheapest(
    template: Template, condition: Condition, counts: Counted, n: int
) -> tuple[Ints, dict[Looked, Mask]]:
    """Return how many segments are looked at for each alarm, and by which slots or bands."""
    if isinstance(condition, Comparison):
        return _by((slots_in(condition)[0],), counts)
    parts = [_cheapest(template, part, counts, n) for part in condition.parts]
    if isinstance(condition, Or):
        costs = np.stack([cost for cost, _ in parts])
        return costs.sum(axis=0), {
            looked: mask for _, chosen in parts for looked, mask in chosen.items()
        }
    parts += [_by(band, counts) for band in bands(template, condition)]
    costs = np.stack([cost for cost, _ in parts])
    best = _few(costs, np.array([len(chosen) for _, chosen in parts]) * n)
    return costs[best, np.arange(costs.shape[1])], {
        looked: mask & (best == number)
        for number, (_, chosen) in enumerate(parts)
        for looked, mask in chosen.items()
    }


def _few(costs: Ints, passes: Ints) -> Ints:
    """Return for each alarm the part by which it is looked for, without parts that do not pay.

    Args:
        costs: by part and alarm.
        passes: what a part costs that any alarm is looked for by.
    """
    remaining = costs.astype(float)
    while True:
        best: Ints = remaining.argmin(axis=0)
        used = distinct(best)
        if len(used) == 1:
            return best
        # What others would cost that have a part's alarms, the least first.
        more = []
        for part in used:
            others = remaining[:, best == part].copy()
            least = others[part].copy()
            others[part] = np.inf
            more.append(float((others.min(axis=0) - least).sum()) - passes[part])
        worst = int(np.argmin(more))
        if more[worst] >= 0:
            return best
        remaining[used[worst]] = np.inf


def _by(looked: Looked, counts: Counted) -> tuple[Ints, dict[Looked, Mask]]:
    cost = counts(looked)
    return cost, {looked: np.ones(len(cost), np.bool_)}
