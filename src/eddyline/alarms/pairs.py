"""Pairs of a segment and an alarm: whether it may hold, surely does, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eddyline.alarms.bounds import Basis
from eddyline.alarms.meeting import may_hold, surely_holds
from eddyline.alarms.tally import PAIRS, SOLVED, Tally
from eddyline.alarms.templates import slot, slots_in
from eddyline.models.columns import Columns
from eddyline.models.conditions import holds
from eddyline.models.solving import Polynomials, Ranges, first_signs, is_true

if TYPE_CHECKING:
    from collections.abc import Callable

    from eddyline.alarms.bounds import Bounds
    from eddyline.alarms.plan import AlarmPlan
    from eddyline.alarms.program import AlarmProgram
    from eddyline.alarms.templates import Template
    from eddyline.data.arrays import Floats, Indices, Ints, Mask
    from eddyline.models.conditions import Comparison
    from eddyline.models.expressions import Expression
    from eddyline.models.segments import Segments

    Test = Callable[[Bounds, Indices, str, Floats], Mask]
    """Of pairs of a segment and a constant, whether a comparison may hold, or surely does."""


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


class Pairs:
    """Pairs of some segments and alarms.

    Args:
        program: the alarms.
        segments: in the order of entities and time, without tombstones.
        allowed: which conditions on keys are true of which entities, ``[conditions, entities]``.
        plan: how templates are solved.
        tally: takes note of the work.
    """

    def __init__(
        self,
        program: AlarmProgram,
        segments: Segments,
        allowed: Mask,
        plan: AlarmPlan | None = None,
        tally: Tally | None = None,
    ) -> None:
        self._program, self._segments, self._allowed = program, segments, allowed
        self._plan = {} if plan is None else plan
        self._tally = Tally() if tally is None else tally
        self._bases = [Basis(segments, each, self._tally) for each in program.bases]
        self._every = np.arange(len(segments))
        self._is_linked = _linked(segments)

    def _known(self, base: int) -> Bounds:
        """Return an expression as far as it is known."""
        return self._bases[base].on(self._every[:0])

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

    def _checked(self, template: Template, own: Indices, rows: Indices) -> Found:
        """Return where alarms hold in pairs with segments that they may hold in."""
        own, rows = self._filtered(template, own, rows)
        for each in template.bases:
            self._bases[each].on(rows)
        with self._tally.on(PAIRS, len(rows)):
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
        bounds = self._known(template.bases[at])
        return test(bounds, rows, template.ops[at], template.constants[own, at])

    def _along(self, alarms: Ints, rows: Indices) -> Found:
        """Return pairs that hold all along, over segments that follow each other."""
        alarms, rows = in_order(alarms, rows)
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
        is_point = self._segments.is_point[rows]
        with self._tally.on(SOLVED, len(rows)):
            if not is_point.any():
                return self._on_ranges(template, own, rows)
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
            slot(at): self._known(base).minus(rows, template.constants[own, at])
            for at, base in enumerate(template.bases)
        }


def _linked(segments: Segments) -> Mask:
    """Return which segments go on where the one before ends: the same range if both hold, ``[n]``.

    Points stand alone: what touches them is found where ranges are put together.
    """
    found = np.zeros(len(segments), np.bool_)
    solid = ~segments.is_point
    found[1:] = (segments.keys[1:] == segments.keys[:-1]) & solid[1:] & solid[:-1]
    found[1:] &= segments.hi[:-1] >= segments.lo[1:]
    return found


def in_order(places: Indices, rows: Indices) -> tuple[Indices, Indices]:
    """Return pairs by place, then by segment."""
    order = np.lexsort((rows, places))
    return places[order], rows[order]
