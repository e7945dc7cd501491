"""Where alarms hold: the alarms of a template are solved together, or as their plan says.

Sorted constants say which alarms a segment may meet (covered sharing, Pulse 4.1): work grows with
the pairs of a segment and a constant between its bounds, and with the changes between a segment and
the next one, not with alarms. Of an AND each comparison is computed on segments only that those
before it leave, and an alarm is looked for by the one that leaves the fewest pairs, or by two that
keep an expression between two constants. What is left is solved as ``solving.where`` solves one
alarm, so ranges are the same to the microsecond whatever the plan (``plan``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.alarms.bounds import are_most, bounds_of
from eddyline.alarms.covers import covered
from eddyline.alarms.meeting import Constants, Counts, by_width, may_hold, state_of
from eddyline.alarms.meeting_kernels import MISSED
from eddyline.alarms.pairs import Found, Pairs
from eddyline.alarms.plan import TemplatePlan
from eddyline.alarms.tally import BOUNDS, TESTS
from eddyline.alarms.templates import slots_in
from eddyline.alarms.witnesses import witnesses
from eddyline.models import timeline
from eddyline.models.solving.expressions import Comparison, holds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eddyline.alarms.bounds import Bounds
    from eddyline.alarms.templates import Template
    from eddyline.alarms.witnesses import Looked
    from eddyline.data.arrays import Indices, Ints, Mask
    from eddyline.models.solving.expressions import Condition

MOST_COUNTED = 512
"""Segments of which it is counted where each comparison may hold, about; of more a part."""

MAX_PAIRS = 1 << 18
"""Pairs of a segment and an alarm that are solved at once, about."""


class Sweep(Pairs):
    """Alarms over some segments.

    Args:
        program: the alarms.
        segments: in the order of entities and time, without tombstones.
        allowed: which conditions on keys are true of which entities, ``[conditions, entities]``.
        plan: how templates are solved.
        tally: takes note of the work.
    """

    def run(self) -> Found:
        """Return where the alarms hold."""
        found = [each for template in self._program.templates for each in self.of(template)]
        return Found.joined([*found, self.whole()])

    # -- one template ---------------------------------------------------------------------------

    def of(self, template: Template) -> Iterator[Found]:
        """Yield where the alarms of a template hold."""
        plan = self._plan.get(template.text, TemplatePlan())
        order = [template.conjuncts[at].condition for at in plan.order_of(template)]
        if plan.sharing == "unshared":
            return self._unshared(template, order)
        if plan.sharing == "union" and len(order) > 1:
            return self._union(template, order)
        if template.is_threshold:
            return self._threshold(template)
        return self._covered(template, order)

    def _threshold(self, template: Template) -> Iterator[Found]:
        """Yield where alarms hold that each compare an expression with a constant."""
        bounds = self._bases[template.bases[0]].everywhere()
        for constants in self._listed(template, np.arange(len(template)), 0):
            with self._tally.on(TESTS, len(self._every)):
                at, begins, ends, first, last = constants.along(
                    bounds, template.ops[0], self._segments.keys, self._is_linked
                )
                found = self._run(template.alarms[constants.alarms[at]], begins, ends)
                found = found.take(self._is_allowed(found.alarms, found.rows))
            yield found
            for places, rows in _pairs(first, last):
                own = constants.alarms[places]
                yield self._solved(template, *self._filtered(template, own, rows))

    def _covered(self, template: Template, order: Sequence[Condition]) -> Iterator[Found]:
        """Yield where alarms hold, looked for on the segments that no cover leaves out."""
        rows = self._left(template, order, self._every)
        if not len(rows):
            return
        if are_most(rows, self._segments):
            rows = self._every  # to take some out costs more than to look at the others
        bounds = {each: self._bases[each].on(rows).take(rows) for each in template.bases}
        with self._tally.on(TESTS, len(rows)):
            some = np.arange(0, len(rows), -(-len(rows) // MOST_COUNTED))
            counts = {each: Counts(found.take(some)) for each, found in bounds.items()}
            chosen = witnesses(template, lambda looked: _count(template, counts, looked), len(some))
        for own, met in _in_large_parts(self._met(template, chosen, bounds, rows)):
            yield self._checked(template, own, met)

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
            of, op = bounds[template.bases[looked[0]]], template.ops[looked[0]]
            for constants, width in self._looked_for(template, looked, mask):
                with self._tally.on(TESTS, len(rows)):
                    if len(looked) > 1:
                        first, last = constants.between(of, width, keys)
                    else:
                        first, last = constants.possible(of, op, keys)
                for places, own_rows in _pairs(first, last):
                    yield self._new(template, before, constants.alarms[places], rows[own_rows])
            before.append((looked, mask))

    def _looked_for(
        self, template: Template, looked: Looked, mask: Mask
    ) -> Iterator[tuple[Constants, float]]:
        """Yield the constants by which some alarms are looked for, and how wide bands are."""
        own = np.flatnonzero(mask)
        if len(looked) == 1:
            for each in self._listed(template, own, looked[0]):
                yield each, 0.0
            return
        up, down = looked
        with np.errstate(invalid="ignore", over="ignore"):
            widths = template.constants[own, down] - template.constants[own, up]
        for part in by_width(widths):
            for each in self._listed(template, own[part], up):
                yield each, float(widths[part].max())

    def _left(self, template: Template, order: Sequence[Condition], rows: Indices) -> Indices:
        """Return the segments that the covers of some conjuncts leave, one after the other."""
        for each in order:
            if len(rows):
                for at in slots_in(each):
                    self._bases[template.bases[at]].on(rows)
                with self._tally.on(TESTS, len(rows)):
                    rows = rows[covered(template, each, rows, self._known)]
        return rows

    def _union(self, template: Template, order: Sequence[Condition]) -> Iterator[Found]:
        """Yield where alarms hold that share all but the first conjunct."""
        first, *rest = order
        every = [
            self._alone(template, own, first, self._rows_for(template, own))
            for own in range(len(template))
        ]
        is_met = np.zeros(len(self._every), np.bool_)
        for rows in every:
            is_met[rows] = True
        is_left = np.zeros(len(self._every), np.bool_)
        is_left[self._left(template, rest, np.flatnonzero(is_met))] = True
        left = (rows[is_left[rows]] for rows in every)
        pairs = ((np.full(len(rows), own), rows) for own, rows in enumerate(left))
        for own, rows in _in_large_parts(pairs):
            yield self._checked(template, own, rows)

    def _unshared(self, template: Template, order: Sequence[Condition]) -> Iterator[Found]:
        """Yield where alarms hold that share nothing."""
        for own in range(len(template)):
            rows = self._rows_for(template, own)
            for each in order:
                rows = self._alone(template, own, each, rows)
            yield self._checked(template, np.full(len(rows), own), rows)

    def _rows_for(self, template: Template, own: int) -> Indices:
        """Return the segments of which the condition on keys of an alarm is true."""
        key = int(self._program.key_of[template.alarms[own]])
        return self._every if key < 0 else np.flatnonzero(self._allowed[key, self._segments.keys])

    def _alone(self, template: Template, own: int, conjunct: Condition, rows: Indices) -> Indices:
        """Return the segments on which an alarm may meet a conjunct, as if there were no other."""
        if not len(rows):
            return rows
        slots = slots_in(conjunct)
        expressions = [self._program.bases[template.bases[at]] for at in slots]
        is_all = are_most(rows, self._segments)
        part = self._segments if is_all else self._segments.take(rows)
        with self._tally.on(BOUNDS, len(part) * len(slots)):
            found = dict(zip(slots, bounds_of(part, expressions), strict=True))

        def leaf(comparison: Comparison) -> Mask:
            (at,) = slots_in(comparison)
            may = may_hold(found[at], template.ops[at], float(template.constants[own, at]))
            return may[rows] if is_all else may

        with self._tally.on(TESTS, len(rows)):
            return rows[holds(conjunct, leaf)]

    def _new(
        self, template: Template, before: list[tuple[Looked, Mask]], own: Indices, rows: Indices
    ) -> tuple[Indices, Indices]:
        """Return the pairs that were not met by what was looked for before."""
        for looked, mask in before:
            is_new = ~mask[own]
            asked = np.flatnonzero(~is_new)
            met = np.ones(len(asked), np.bool_)
            for at in looked:
                met &= state_of(template, at, self._known, own[asked], rows[asked]) != MISSED
            is_new[asked] = ~met
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

    # -- alarms on keys alone -------------------------------------------------------------------

    def whole(self) -> Found:
        """Return where there is a model, for alarms that ask nothing of it."""
        whole, starts = self._program.whole, np.flatnonzero(~self._is_linked)
        alarms, rows = np.repeat(whole, len(starts)), np.tile(starts, len(whole))
        ends = np.append(starts[1:], len(self._segments))[: len(starts)] - 1
        last = np.tile(ends, len(whole))
        segments = self._segments
        found = Found(alarms, rows, segments.lo[rows], segments.hi[last], segments.is_point[rows])
        return found.take(self._is_allowed(alarms, rows))


def _count(template: Template, counts: Mapping[int, Counts], looked: Looked) -> Ints:
    """Return in how many segments a slot or a band may hold, by alarm; counts are by base."""
    constants = [template.constants[:, at] for at in looked]
    own = counts[template.bases[looked[0]]]
    if len(looked) > 1:
        return own.between(*constants)
    return own.of(template.ops[looked[0]], *constants)


def _in_large_parts(
    pairs: Iterator[tuple[Indices, Indices]],
) -> Iterator[tuple[Indices, Indices]]:
    """Yield the same pairs, small parts together: each call costs its own."""
    parts: list[tuple[Indices, Indices]] = []
    for each in pairs:
        parts.append(each)
        if sum(len(rows) for _, rows in parts) >= MAX_PAIRS:
            yield _together(parts)
            parts = []
    if parts:
        yield _together(parts)


def _together(parts: Sequence[tuple[Indices, Indices]]) -> tuple[Indices, Indices]:
    return np.concatenate([own for own, _ in parts]), np.concatenate([rows for _, rows in parts])


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
