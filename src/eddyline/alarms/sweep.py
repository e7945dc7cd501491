"""Where alarms hold: all alarms of a template are solved in one sweep over segments.

Sorted constants say which alarms a segment may meet (covered sharing, Pulse 4.3): work grows with
the pairs of a segment and a constant between its bounds, and with the changes between a segment and
the next one, not with alarms. Of several comparisons the one that leaves the fewest pairs is
looked at first. What is left is solved as ``models.solving`` solves one alarm, so ranges are the
same to the microsecond.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eddyline.alarms.bounds import bounds_of
from eddyline.alarms.meeting import UP, Constants, Counts, may_hold, surely_holds
from eddyline.alarms.templates import slot, slots_in
from eddyline.alarms.witnesses import witnesses
from eddyline.models import timeline
from eddyline.models.columns import Columns
from eddyline.models.conditions import Comparison, holds
from eddyline.models.solving import Polynomials, Ranges, first_signs, is_true

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eddyline.alarms.bounds import Bounds
    from eddyline.alarms.program import AlarmProgram
    from eddyline.alarms.templates import Template
    from eddyline.data.arrays import Floats, Indices, Ints, Mask
    from eddyline.models.expressions import Expression
    from eddyline.models.segments import Segments

    Test = Callable[[Bounds, Indices, str, Floats], Mask]
    """Of pairs of a segment and a constant, whether a comparison may hold, or surely does."""

MAX_PAIRS = 1 << 18
"""Pairs of a segment and an alarm that are solved at once, about."""


@dataclass(frozen=True)
class Found(Columns):
    """Ranges on which alarms hold; neighbours may touch.

    Attributes:
        alarms: by their places, ``[m]``.
        rows: the segment in which a range begins, ``[m]``.
        lo: where it begins (µs), ``[m]``.
        hi: where it ends, exclusive (µs), perhaps in a later segment, ``[m]``.
        is_point: whether it is one instant, ``[m]``.
    """

    alarms: Ints
    rows: Indices
    lo: Ints
    hi: Ints
    is_point: Mask


class Sweep:
    """Alarms over some segments.

    Args:
        program: the alarms.
        segments: in the order of entities and time, without tombstones.
        allowed: which conditions on keys are true of which entities, ``[conditions, entities]``.
    """

    def __init__(self, program: AlarmProgram, segments: Segments, allowed: Mask) -> None:
        self._program, self._segments, self._allowed = program, segments, allowed
        self._bounds = bounds_of(segments, program.bases)
        self._counts = [Counts(each) for each in self._bounds]
        self._is_linked = _linked(segments)

    def run(self) -> Found:
        """Return where the alarms hold."""
        found = [each for template in self._program.templates for each in self._of(template)]
        return Found.joined([*found, self._whole()])

    # -- one template ---------------------------------------------------------------------------

    def _of(self, template: Template) -> Iterator[Found]:
        if isinstance(template.condition, Comparison) and template.ops[0] not in {"=", "<>"}:
            for constants in self._listed(template, np.arange(len(template.alarms)), 0):
                yield self._runs(template, constants)
                first, last = self._band(template, constants)
                for places, rows in _pairs(first, last):
                    own = constants.alarms[places]
                    yield self._solved(template, *self._filtered(template, own, rows))
            return
        chosen = witnesses(
            template.condition,
            lambda at: self._counts[template.bases[at]].of(
                template.ops[at], template.constants[:, at]
            ),
        )
        before: list[tuple[int, Mask]] = []
        for at, mask in chosen.items():
            bounds = self._bounds[template.bases[at]]
            for constants in self._listed(template, np.flatnonzero(mask), at):
                first, last = constants.possible(bounds, template.ops[at], self._segments.keys)
                for places, rows in _pairs(first, last):
                    pairs = self._new(template, before, constants.alarms[places], rows)
                    yield self._checked(template, *pairs)
            before.append((at, mask))

    def _new(
        self, template: Template, before: list[tuple[int, Mask]], own: Indices, rows: Indices
    ) -> tuple[Indices, Indices]:
        """Return the pairs that were not met by the slots before: alarms are looked for by all."""
        for at, mask in before:
            is_new = ~mask[own]
            asked = np.flatnonzero(~is_new)
            is_new[asked] = ~self._meets(template, at, own[asked], rows[asked], may_hold)
            own, rows = own[is_new], rows[is_new]
        return own, rows

    def _listed(self, template: Template, own: Indices, at: int) -> Iterator[Constants]:
        """Yield the constants of a slot of some alarms: those for all entities, and the others."""
        if not len(own):
            return
        key_of = self._program.key_of[template.alarms[own]]
        share = np.append(self._allowed.mean(axis=1), 1.0) if self._allowed.size else np.ones(1)
        is_rare = (key_of >= 0) & (share[key_of] <= 0.5)
        values = template.constants[:, at]
        if not is_rare.all():
            yield Constants.everywhere(values, own[~is_rare])
        if is_rare.any():
            yield Constants.of_entities(values, own[is_rare], self._allowed, key_of[is_rare])

    def _filtered(self, template: Template, own: Indices, rows: Indices) -> tuple[Indices, Indices]:
        """Return the pairs of which the condition on keys is true."""
        kept = self._is_allowed(template.alarms[own], rows)
        return own[kept], rows[kept]

    def _is_allowed(self, alarms: Ints, rows: Indices) -> Mask:
        key_of = self._program.key_of[alarms]
        found = key_of < 0
        asked = np.flatnonzero(~found)
        found[asked] = self._allowed[key_of[asked], self._segments.keys[rows[asked]]]
        return found

    # -- thresholds -----------------------------------------------------------------------------

    def _band(self, template: Template, constants: Constants) -> tuple[Indices, Indices]:
        """Return which constants a segment neither surely meets nor surely misses."""
        bounds, op = self._bounds[template.bases[0]], template.ops[0]
        first, last = constants.possible(bounds, op, self._segments.keys)
        sure_first, sure_last = constants.certain(bounds, op, self._segments.keys)
        if op in UP:
            return np.maximum(first, sure_last), last
        return first, np.minimum(last, sure_first)

    def _runs(self, template: Template, constants: Constants) -> Found:
        """Return where thresholds are surely met, over all segments that follow each other."""
        bounds, op = self._bounds[template.bases[0]], template.ops[0]
        first, last = constants.certain(bounds, op, self._segments.keys)
        begins = _changes(first, last, self._is_linked, is_prefix=op in UP)
        # Seen from behind, the last segments of runs are the first ones.
        behind = np.append(self._is_linked[1:], False)[::-1]
        ended, from_behind = _changes(first[::-1], last[::-1], behind, is_prefix=op in UP)
        segments = self._segments
        places, rows = _in_order(*begins)
        _, last_rows = _in_order(ended, len(segments) - 1 - from_behind)
        own = constants.alarms[places]
        found = Found(
            template.alarms[own],
            rows,
            segments.lo[rows],
            segments.hi[last_rows],
            segments.is_point[rows],
        )
        return found.take(self._is_allowed(found.alarms, rows))

    # -- pairs ----------------------------------------------------------------------------------

    def _checked(self, template: Template, own: Indices, rows: Indices) -> Found:
        """Return where alarms hold in pairs with segments that they may hold in."""
        own, rows = self._filtered(template, own, rows)

        kept = self._tested(template, own, rows, may_hold)
        own, rows = own[kept], rows[kept]
        sure = self._tested(template, own, rows, surely_holds)
        along = self._along(template.alarms[own[sure]], rows[sure])
        return Found.joined([along, self._solved(template, own[~sure], rows[~sure])])

    def _tested(self, template: Template, own: Indices, rows: Indices, test: Test) -> Mask:
        def leaf(comparison: Comparison) -> Mask:
            (at,) = slots_in(comparison)
            return self._meets(template, at, own, rows, test)

        return holds(template.condition, leaf)

    def _meets(self, template: Template, at: int, own: Indices, rows: Indices, test: Test) -> Mask:
        bounds = self._bounds[template.bases[at]]
        return test(bounds, rows, template.ops[at], template.constants[own, at])

    def _along(self, alarms: Ints, rows: Indices) -> Found:
        """Return pairs that hold all along, over segments that follow each other."""
        alarms, rows = _in_order(alarms, rows)
        new = np.ones(len(rows), np.bool_)
        follows = (alarms[1:] == alarms[:-1]) & (rows[1:] == rows[:-1] + 1)
        new[1:] = ~(follows & self._is_linked[rows[1:]])
        first = np.flatnonzero(new)
        last = np.append(first[1:], len(rows))[: len(first)] - 1
        segments, starts = self._segments, rows[first]
        return Found(
            alarms[first],
            starts,
            segments.lo[starts],
            segments.hi[rows[last]],
            segments.is_point[starts],
        )

    def _solved(self, template: Template, own: Indices, rows: Indices) -> Found:
        """Return where alarms hold in pairs with segments."""
        segments = self._segments
        is_point = segments.is_point[rows]
        parts = [
            self._on_ranges(template, own[~is_point], rows[~is_point]),
            self._at_points(template, own[is_point], rows[is_point]),
        ]
        return Found.joined(parts)

    def _on_ranges(self, template: Template, own: Indices, rows: Indices) -> Found:
        lo, hi = self._segments.lo[rows], self._segments.hi[rows]
        terms = Polynomials(template.condition, lo, hi, self._coefs(template, own, rows))
        sure, may = terms.settled()
        found = terms.solved(np.flatnonzero(may & ~sure))
        whole = np.flatnonzero(sure)
        none = np.zeros(len(whole), np.bool_)
        both = Ranges.joined([Ranges(whole, lo[whole], hi[whole], none), found])
        alarms = template.alarms[own[both.rows]]
        return Found(alarms, rows[both.rows], both.lo, both.hi, both.is_point)

    def _at_points(self, template: Template, own: Indices, rows: Indices) -> Found:
        coefs = self._coefs(template, own, rows)

        def leaf(comparison: Comparison) -> Mask:
            return is_true(first_signs(coefs[comparison.expression]), comparison.op)

        kept = holds(template.condition, leaf)
        own, rows = own[kept], rows[kept]
        lo = self._segments.lo[rows]
        return Found(template.alarms[own], rows, lo, lo, np.ones(len(rows), np.bool_))

    def _coefs(self, template: Template, own: Indices, rows: Indices) -> dict[Expression, Floats]:
        return {
            slot(at): self._bounds[base].minus(rows, template.constants[own, at])
            for at, base in enumerate(template.bases)
        }

    # -- alarms on keys alone -------------------------------------------------------------------

    def _whole(self) -> Found:
        """Return where there is a model, for alarms that ask nothing of it."""
        whole, starts = self._program.whole, np.flatnonzero(~self._is_linked)
        alarms, rows = np.repeat(whole, len(starts)), np.tile(starts, len(whole))
        ends = np.append(starts[1:], len(self._segments))[: len(starts)] - 1
        last = np.tile(ends, len(whole))
        segments = self._segments
        found = Found(alarms, rows, segments.lo[rows], segments.hi[last], segments.is_point[rows])
        return found.take(self._is_allowed(alarms, rows))


def _linked(segments: Segments) -> Mask:
    """Return which segments go on where the one before ends: the same range if both hold, ``[n]``.

    Points stand alone: what touches them is found where ranges are put together.
    """
    found = np.zeros(len(segments), np.bool_)
    solid = ~segments.is_point
    found[1:] = (segments.keys[1:] == segments.keys[:-1]) & solid[1:] & solid[:-1]
    found[1:] &= segments.hi[:-1] >= segments.lo[1:]
    return found


def _pairs(first: Indices, last: Indices) -> Iterator[tuple[Indices, Indices]]:
    """Yield the places from ``first`` to before ``last`` with the segments that have them."""
    count = np.maximum(last - first, 0)
    rows = np.flatnonzero(count)
    if not len(rows):
        return
    number = np.cumsum(count[rows]) // MAX_PAIRS
    for part in np.split(rows, np.flatnonzero(np.diff(number)) + 1):
        run, places = timeline.runs(first[part], count[part])
        yield places, part[run]


def _changes(
    first: Indices, last: Indices, is_linked: Mask, *, is_prefix: bool
) -> tuple[Indices, Indices]:
    """Return the places that a segment has and the one before it has not, and the segments.

    Args:
        first: from where a segment has all places, ``[n]``.
        last: to before where, ``[n]``.
        is_linked: whether the segment before counts, ``[n]``.
        is_prefix: whether segments of an entity have a common first place, or a common last one.
    """
    from_, to = first.copy(), last.copy()
    linked = np.flatnonzero(is_linked)
    if is_prefix:
        from_[linked] = np.maximum(first[linked], last[linked - 1])
    else:
        to[linked] = np.minimum(last[linked], first[linked - 1])
    rows, places = timeline.runs(from_, np.maximum(to - from_, 0))
    return places, rows


def _in_order(places: Indices, rows: Indices) -> tuple[Indices, Indices]:
    order = np.lexsort((rows, places))
    return places[order], rows[order]
