"""Ranges of time on which alarms hold.

``Sweep`` takes a program and segments in the order of entities and time, and returns ``Found``, the
ranges. The alarms of a template are solved together, or as their plan says.

Sorted constants say which alarms a segment may meet (covered sharing, Pulse 4.1): work grows with
the pairs of a segment and a constant between its bounds, and with the changes between a segment and
the next one, not with alarms. Of an AND each comparison is computed only on segments that those
before it leave. An alarm is looked for by the comparison that leaves the fewest pairs, or by two
that keep an expression between two constants. A pair that bounds do not settle is solved as
``models.solving`` solves one alarm, so ranges are the same to the microsecond whatever the plan.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from eddyline.alarms.meeting import (
    Basis,
    Constants,
    Counts,
    are_most,
    bounds_of,
    by_width,
    covered,
    may_hold,
    state_of,
    states,
    witnesses,
)
from eddyline.alarms.meeting_kernels import MISSED, less, sorted_out
from eddyline.alarms.plan import TemplatePlan
from eddyline.alarms.program import BOUNDS, PAIRS, SOLVED, TESTS, Tally, slots_in
from eddyline.data.arrays import distinct
from eddyline.models import timeline
from eddyline.models.segments import Columns
from eddyline.models.solving.expressions import ROUNDING, Comparison, Number, difference, holds
from eddyline.models.solving.where import BLOCK, solutions, solve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eddyline.alarms.meeting import Bounds, Looked
    from eddyline.alarms.plan import AlarmPlan
    from eddyline.alarms.program import AlarmProgram, Template
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


MOST_COUNTED = 512
"""Segments of which it is counted where each comparison may hold, about; of more a part."""

MAX_PAIRS = 1 << 18
"""Pairs of a segment and an alarm that are solved at once, about."""


class Sweep:
    """Alarms over some segments.

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
        self._bases = [Basis(segments, expression, self._tally) for expression in program.bases]
        self._every = np.arange(len(segments))
        self._is_linked = _linked(segments)

    def run(self) -> Found:
        """Return where the alarms hold."""
        parts = [part for template in self._program.templates for part in self.of(template)]
        return Found.joined([*parts, self.whole()])

    # -- one template ---------------------------------------------------------------------------

    def of(self, template: Template) -> Iterator[Found]:
        """Yield where the alarms of a template hold."""
        plan = self._plan.get(template.text, TemplatePlan())
        order = [template.conjuncts[number].condition for number in plan.order_of(template)]
        if plan.sharing == "unshared":
            return self._unshared(template, order)
        if plan.sharing == "union" and len(order) > 1:
            return self._union(template, order)
        if template.is_threshold:
            return self._threshold(template)
        return self._covered(template, order)

    def _threshold(self, template: Template) -> Iterator[Found]:
        """Yield where alarms hold that each compare an expression with a constant."""
        bounds = self._bases[template.bases[0]].on(self._every)
        for constants in self._listed(template, np.arange(len(template)), 0):
            with self._tally.on(TESTS, len(self._every)):
                run_constants, begins, ends, first, last = constants.along(
                    bounds, template.ops[0], self._segments.keys, self._is_linked
                )
                hits = self._run(template.alarms[constants.alarms[run_constants]], begins, ends)
                hits = hits.take(self._is_allowed(hits.alarms, hits.rows))
            yield hits
            for places, rows in _spread_out(first, last):
                alarms = constants.alarms[places]
                yield self._solved(template, *self._filtered(template, alarms, rows))

    def _covered(self, template: Template, order: Sequence[Condition]) -> Iterator[Found]:
        """Yield where alarms hold, looked for on the segments that no cover leaves out."""
        rows = self._covered_rows(template, order, self._every)
        if not len(rows):
            return
        if are_most(rows, self._segments):
            rows = self._every  # to take some out costs more than to look at the others
        bounds = {base: self._bases[base].on(rows).take(rows) for base in template.bases}
        with self._tally.on(TESTS, len(rows)):
            some = np.arange(0, len(rows), -(-len(rows) // MOST_COUNTED))
            counts = {base: Counts(limits.take(some)) for base, limits in bounds.items()}
            chosen = witnesses(template, lambda looked: _count(template, counts, looked), len(some))
        for alarms, met in _in_large_parts(self._met(template, chosen, bounds, rows)):
            yield self._checked(template, alarms, met)

    def _met(
        self,
        template: Template,
        chosen: Mapping[Looked, Mask],
        bounds: Mapping[int, Bounds],
        rows: Indices,
    ) -> Iterator[tuple[Indices, Indices]]:
        """Yield pairs of alarms and some segments in which these may hold, each once."""
        before: list[tuple[Looked, Mask]] = []
        keys = self._segments.keys[rows]
        for looked, mask in chosen.items():
            limits, op = bounds[template.bases[looked[0]]], template.ops[looked[0]]
            for constants, width in self._looked_for(template, looked, mask):
                with self._tally.on(TESTS, len(rows)):
                    if len(looked) > 1:
                        first, last = constants.between(limits, width, keys)
                    else:
                        first, last = constants.possible(limits, op, keys)
                for places, own_rows in _spread_out(first, last):
                    yield self._new(template, before, constants.alarms[places], rows[own_rows])
            before.append((looked, mask))

    def _looked_for(
        self, template: Template, looked: Looked, mask: Mask
    ) -> Iterator[tuple[Constants, float]]:
        """Yield the constants by which some alarms are looked for, and how wide bands are."""
        alarms = np.flatnonzero(mask)
        if len(looked) == 1:
            for constants in self._listed(template, alarms, looked[0]):
                yield constants, 0.0
            return
        up, down = looked
        with np.errstate(invalid="ignore", over="ignore"):
            widths = template.constants[alarms, down] - template.constants[alarms, up]
        for part in by_width(widths):
            for constants in self._listed(template, alarms[part], up):
                yield constants, float(widths[part].max())

    def _covered_rows(
        self, template: Template, order: Sequence[Condition], rows: Indices
    ) -> Indices:
        """Return the segments that the covers of some conjuncts leave, one after the other."""
        for conjunct in order:
            if len(rows):
                for slot in slots_in(conjunct):
                    self._bases[template.bases[slot]].on(rows)
                with self._tally.on(TESTS, len(rows)):
                    rows = rows[covered(template, conjunct, rows, self._known_bounds)]
        return rows

    def _union(self, template: Template, order: Sequence[Condition]) -> Iterator[Found]:
        """Yield where alarms hold that share all but the first conjunct."""
        first, *rest = order
        every = [
            self._alone(template, alarm, first, self._rows_for(template, alarm))
            for alarm in range(len(template))
        ]
        is_met = np.zeros(len(self._every), np.bool_)
        for rows in every:
            is_met[rows] = True
        is_left = np.zeros(len(self._every), np.bool_)
        is_left[self._covered_rows(template, rest, np.flatnonzero(is_met))] = True
        remaining = (rows[is_left[rows]] for rows in every)
        pairs = ((np.full(len(rows), alarm), rows) for alarm, rows in enumerate(remaining))
        for alarms, rows in _in_large_parts(pairs):
            yield self._checked(template, alarms, rows)

    def _unshared(self, template: Template, order: Sequence[Condition]) -> Iterator[Found]:
        """Yield where alarms hold that share nothing."""
        for alarm in range(len(template)):
            rows = self._rows_for(template, alarm)
            for conjunct in order:
                rows = self._alone(template, alarm, conjunct, rows)
            yield self._checked(template, np.full(len(rows), alarm), rows)

    def _rows_for(self, template: Template, alarm: int) -> Indices:
        """Return the segments of which the condition on keys of an alarm is true."""
        key = int(self._program.key_of[template.alarms[alarm]])
        return self._every if key < 0 else np.flatnonzero(self._allowed[key, self._segments.keys])

    def _alone(self, template: Template, alarm: int, conjunct: Condition, rows: Indices) -> Indices:
        """Return the segments on which an alarm may meet a conjunct, as if there were no other."""
        if not len(rows):
            return rows
        slots = slots_in(conjunct)
        expressions = [self._program.bases[template.bases[slot]] for slot in slots]
        is_all = are_most(rows, self._segments)
        part = self._segments if is_all else self._segments.take(rows)
        with self._tally.on(BOUNDS, len(part) * len(slots)):
            bounds = dict(zip(slots, bounds_of(part, expressions), strict=True))

        def leaf(comparison: Comparison) -> Mask:
            (slot,) = slots_in(comparison)
            constant = float(template.constants[alarm, slot])
            may = may_hold(bounds[slot], template.ops[slot], constant, constant)
            return may[rows] if is_all else may

        with self._tally.on(TESTS, len(rows)):
            return rows[holds(conjunct, leaf)]

    def _new(
        self, template: Template, before: list[tuple[Looked, Mask]], alarms: Indices, rows: Indices
    ) -> tuple[Indices, Indices]:
        """Return the pairs that were not met by what was looked for before."""
        for looked, mask in before:
            is_new = ~mask[alarms]
            asked = np.flatnonzero(~is_new)
            met = np.ones(len(asked), np.bool_)
            for slot in looked:
                met &= (
                    state_of(template, slot, self._known_bounds, alarms[asked], rows[asked])
                    != MISSED
                )
            is_new[asked] = ~met
            alarms, rows = alarms[is_new], rows[is_new]
        return alarms, rows

    def _listed(self, template: Template, alarms: Indices, slot: int) -> Iterator[Constants]:
        """Yield the constants of a slot of some alarms: those for all entities, and the others."""
        if not len(alarms):
            return
        key_of = self._program.key_of[template.alarms[alarms]]
        share = np.append(self._allowed.mean(axis=1), 1.0) if self._allowed.size else np.ones(1)
        is_rare = (key_of >= 0) & (share[key_of] <= 0.5)
        values = template.constants[:, slot]
        if not is_rare.all():
            yield Constants.everywhere(values, alarms[~is_rare])
        if is_rare.any():
            yield Constants.of_entities(values, alarms[is_rare], self._allowed, key_of[is_rare])

    # -- alarms on keys alone -------------------------------------------------------------------

    def whole(self) -> Found:
        """Return where there is a model, for alarms that ask nothing of it."""
        whole, starts = self._program.whole, np.flatnonzero(~self._is_linked)
        alarms, rows = np.repeat(whole, len(starts)), np.tile(starts, len(whole))
        ends = np.append(starts[1:], len(self._segments))[: len(starts)] - 1
        last = np.tile(ends, len(whole))
        segments = self._segments
        hits = Found(alarms, rows, segments.lo[rows], segments.hi[last], segments.is_point[rows])
        return hits.take(self._is_allowed(alarms, rows))

    # -- pairs of a segment and an alarm -------------------------------------------------------

    def _known_bounds(self, base: int) -> Bounds:
        """Return an expression as far as it is known."""
        return self._bases[base].on(self._every[:0])

    def _filtered(
        self, template: Template, alarms: Indices, rows: Indices
    ) -> tuple[Indices, Indices]:
        """Return the pairs of which the condition on keys is true."""
        if self._program.keys is None:
            return alarms, rows
        kept = self._is_allowed(template.alarms[alarms], rows)
        return alarms[kept], rows[kept]

    def _is_allowed(self, alarms: Ints, rows: Indices) -> Mask:
        if self._program.keys is None:
            return np.ones(len(alarms), np.bool_)
        key_of = self._program.key_of[alarms]
        is_allowed = key_of < 0
        asked = np.flatnonzero(~is_allowed)
        is_allowed[asked] = self._allowed[key_of[asked], self._segments.keys[rows[asked]]]
        return is_allowed

    def _checked(self, template: Template, pair_alarms: Indices, rows: Indices) -> Found:
        """Return where alarms hold in pairs with segments that they may hold in."""
        pair_alarms, rows = self._filtered(template, pair_alarms, rows)
        for base in template.bases:
            self._bases[base].on(rows)
        with self._tally.on(PAIRS, len(rows)):
            outcomes = states(template, self._known_bounds, pair_alarms, rows)
            alarms, first, last, open_alarms, rows = sorted_out(
                outcomes, pair_alarms, rows, self._is_linked, len(template)
            )
        return Found.joined(
            [
                self._run(template.alarms[alarms], first, last),
                self._solved(template, open_alarms, rows),
            ]
        )

    def _run(self, alarms: Ints, first: Indices, last: Indices) -> Found:
        """Return alarms that hold all along on segments that follow each other."""
        segments = self._segments
        return Found(alarms, first, segments.lo[first], segments.hi[last], segments.is_point[first])

    def _solved(self, template: Template, alarms: Indices, rows: Indices) -> Found:
        """Return where alarms hold in pairs with segments."""
        with self._tally.on(SOLVED, len(rows)):
            parts = [
                self._solved_at_once(
                    template, alarms[start : start + BLOCK], rows[start : start + BLOCK]
                )
                for start in range(0, max(len(rows), 1), BLOCK)
            ]
            return parts[0] if len(parts) == 1 else Found.joined(parts)

    def _solved_at_once(self, template: Template, alarms: Indices, rows: Indices) -> Found:
        bounds = [self._known_bounds(base) for base in template.bases]
        width = max(part.coefs.shape[1] for part in bounds)
        coefs = np.empty((len(bounds), len(rows), width))
        for slot, limits in enumerate(bounds):
            less(limits.coefs, limits.size, rows, alarms, template.constants, slot, ROUNDING, coefs)
        lost = self._overflowing(bounds, template, alarms, rows, coefs)
        if lost is not None:
            return Found.joined(
                [
                    self._solved_at_once(template, alarms[~lost], rows[~lost]),
                    *self._solved_alone(template, alarms[lost], rows[lost]),
                ]
            )
        segments = self._segments
        pairs, lo, hi, is_point = solve(
            template.program,
            coefs,
            segments.origin[rows],
            segments.lo[rows],
            segments.hi[rows],
            segments.is_point[rows],
        )
        return Found(template.alarms[alarms[pairs]], rows[pairs], lo, hi, is_point)

    def _overflowing(
        self,
        bounds: Sequence[Bounds],
        template: Template,
        alarms: Indices,
        rows: Indices,
        coefs: Floats,
    ) -> Mask | None:
        """Return the pairs in which numbers overflow; None if there are none."""
        is_lost = np.zeros(len(rows), np.bool_)
        with np.errstate(over="ignore"):
            for slot, limits in enumerate(bounds):
                constants = template.constants[alarms, slot]
                is_large = ~np.isfinite(limits.size[rows] + np.abs(constants))
                if not is_large.any() and np.isfinite(coefs[slot]).all():
                    continue
                is_large |= ~np.isfinite(coefs[slot]).all(axis=1)
                is_lost |= is_large & np.isfinite(constants) & (limits.low <= limits.high)[rows]
        return is_lost if is_lost.any() else None

    def _solved_alone(
        self, template: Template, pair_alarms: Indices, rows: Indices
    ) -> Iterator[Found]:
        """Solve alarms one by one; yield where they hold."""
        for alarm in distinct(pair_alarms):
            some = rows[pair_alarms == alarm]
            ranges = solutions(self._segments.take(some), self._condition(template, int(alarm)))
            alarms = np.full(len(ranges.rows), template.alarms[alarm])
            yield Found(alarms, some[ranges.rows], ranges.lo, ranges.hi, ranges.is_point)

    def _condition(self, template: Template, alarm: int) -> Condition:
        """Return the condition of the alarm at a place of the template."""

        def with_constants(part: Condition) -> Condition:
            if not isinstance(part, Comparison):
                return replace(part, parts=tuple(map(with_constants, part.parts)))
            (slot,) = slots_in(part)
            constant = Number(float(template.constants[alarm, slot]))
            base = self._program.bases[template.bases[slot]]
            return Comparison(difference(base, constant), part.op)

        return with_constants(template.condition)


def _count(template: Template, counts: Mapping[int, Counts], looked: Looked) -> Ints:
    """Return in how many segments a slot or a band may hold, by alarm; counts are by base."""
    constants = [template.constants[:, slot] for slot in looked]
    base_counts = counts[template.bases[looked[0]]]
    if len(looked) > 1:
        return base_counts.between(*constants)
    return base_counts.of(template.ops[looked[0]], *constants)


def _in_large_parts(pairs: Iterator[tuple[Indices, Indices]]) -> Iterator[tuple[Indices, Indices]]:
    """Yield the same pairs, small parts together: each call costs its own."""
    parts: list[tuple[Indices, Indices]] = []
    for part in pairs:
        parts.append(part)
        if sum(len(rows) for _, rows in parts) >= MAX_PAIRS:
            yield _together(parts)
            parts = []
    if parts:
        yield _together(parts)


def _together(parts: Sequence[tuple[Indices, Indices]]) -> tuple[Indices, Indices]:
    return np.concatenate([alarms for alarms, _ in parts]), np.concatenate(
        [rows for _, rows in parts]
    )


def _spread_out(first: Indices, last: Indices) -> Iterator[tuple[Indices, Indices]]:
    """Yield the places from ``first`` to before ``last`` with the segments that have them."""
    count = np.maximum(last - first, 0)
    rows = np.flatnonzero(count)
    if not len(rows):
        return
    number = np.cumsum(count[rows]) // MAX_PAIRS
    for part in np.split(rows, np.flatnonzero(np.diff(number)) + 1):
        run, places = timeline.runs(first[part], count[part])
        yield places, part[run]


def _linked(segments: Segments) -> Mask:
    """Return which segments go on where the one before ends: the same range if both hold, ``[n]``.

    Points stand alone: what touches them is found where ranges are put together.
    """
    is_linked = np.zeros(len(segments), np.bool_)
    solid = ~segments.is_point
    is_linked[1:] = (segments.keys[1:] == segments.keys[:-1]) & solid[1:] & solid[:-1]
    is_linked[1:] &= segments.hi[:-1] >= segments.lo[1:]
    return is_linked
