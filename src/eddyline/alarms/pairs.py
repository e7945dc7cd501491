"""Pairs of a segment and an alarm: whether it may hold, surely does, and where."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from eddyline.alarms.bounds import Basis
from eddyline.alarms.meeting import states
from eddyline.alarms.meeting_kernels import less, sorted_out
from eddyline.alarms.tally import PAIRS, SOLVED, Tally
from eddyline.alarms.templates import slots_in
from eddyline.data.unique import distinct
from eddyline.models.segments import Columns
from eddyline.models.solving.expressions import ROUNDING, Comparison, Number, difference
from eddyline.models.solving.where import BLOCK, solutions, solve

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eddyline.alarms.bounds import Bounds
    from eddyline.alarms.plan import AlarmPlan
    from eddyline.alarms.program import AlarmProgram
    from eddyline.alarms.templates import Template
    from eddyline.data.arrays import Floats, Indices, Ints, Mask
    from eddyline.models.segments import Segments
    from eddyline.models.solving.expressions import Condition


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
        if self._program.keys is None:
            return own, rows
        kept = self._is_allowed(template.alarms[own], rows)
        return own[kept], rows[kept]

    def _is_allowed(self, alarms: Ints, rows: Indices) -> Mask:
        if self._program.keys is None:
            return np.ones(len(alarms), np.bool_)
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
            found = states(template, self._known, own, rows)
            alarms, first, last, own, rows = sorted_out(
                found, own, rows, self._is_linked, len(template)
            )
        return Found.joined(
            [self._run(template.alarms[alarms], first, last), self._solved(template, own, rows)]
        )

    def _run(self, alarms: Ints, first: Indices, last: Indices) -> Found:
        """Return alarms that hold all along on segments that follow each other."""
        segments = self._segments
        return Found(alarms, first, segments.lo[first], segments.hi[last], segments.is_point[first])

    def _solved(self, template: Template, own: Indices, rows: Indices) -> Found:
        """Return where alarms hold in pairs with segments."""
        with self._tally.on(SOLVED, len(rows)):
            parts = [
                self._solved_at_once(template, own[at : at + BLOCK], rows[at : at + BLOCK])
                for at in range(0, max(len(rows), 1), BLOCK)
            ]
            return parts[0] if len(parts) == 1 else Found.joined(parts)

    def _solved_at_once(self, template: Template, own: Indices, rows: Indices) -> Found:
        known = [self._known(each) for each in template.bases]
        width = max(each.coefs.shape[1] for each in known)
        coefs = np.empty((len(known), len(rows), width))
        for at, each in enumerate(known):
            less(each.coefs, each.size, rows, own, template.constants, at, ROUNDING, coefs)
        lost = self._overflowing(known, template, own, rows, coefs)
        if lost is not None:
            return Found.joined(
                [
                    self._solved_at_once(template, own[~lost], rows[~lost]),
                    *self._solved_alone(template, own[lost], rows[lost]),
                ]
            )
        given = self._segments
        pairs, lo, hi, is_point = solve(
            template.program,
            coefs,
            given.origin[rows],
            given.lo[rows],
            given.hi[rows],
            given.is_point[rows],
        )
        return Found(template.alarms[own[pairs]], rows[pairs], lo, hi, is_point)

    def _overflowing(
        self,
        known: Sequence[Bounds],
        template: Template,
        own: Indices,
        rows: Indices,
        coefs: Floats,
    ) -> Mask | None:
        """Return the pairs in which numbers overflow; None if there are none."""
        found = np.zeros(len(rows), np.bool_)
        with np.errstate(over="ignore"):
            for at, each in enumerate(known):
                constants = template.constants[own, at]
                is_large = ~np.isfinite(each.size[rows] + np.abs(constants))
                if not is_large.any() and np.isfinite(coefs[at]).all():
                    continue
                is_large |= ~np.isfinite(coefs[at]).all(axis=1)
                found |= is_large & np.isfinite(constants) & (each.low <= each.high)[rows]
        return found if found.any() else None

    def _solved_alone(self, template: Template, own: Indices, rows: Indices) -> Iterator[Found]:
        """Solve alarms one by one; yield where they hold."""
        for alarm in distinct(own):
            some = rows[own == alarm]
            found = solutions(self._segments.take(some), self._condition(template, int(alarm)))
            alarms = np.full(len(found.rows), template.alarms[alarm])
            yield Found(alarms, some[found.rows], found.lo, found.hi, found.is_point)

    def _condition(self, template: Template, alarm: int) -> Condition:
        """Return the condition of the alarm at a place of the template."""

        def of(part: Condition) -> Condition:
            if not isinstance(part, Comparison):
                return replace(part, parts=tuple(map(of, part.parts)))
            (at,) = slots_in(part)
            constant = Number(float(template.constants[alarm, at]))
            base = self._program.bases[template.bases[at]]
            return Comparison(difference(base, constant), part.op)

        return of(template.condition)


def _linked(segments: Segments) -> Mask:
    """Return which segments go on where the one before ends: the same range if both hold, ``[n]``.

    Points stand alone: what touches them is found where ranges are put together.
    """
    found = np.zeros(len(segments), np.bool_)
    solid = ~segments.is_point
    found[1:] = (segments.keys[1:] == segments.keys[:-1]) & solid[1:] & solid[:-1]
    found[1:] &= segments.hi[:-1] >= segments.lo[1:]
    return found
