"""What a condition of a join asks of one side alone, asked before segments are paired.

A segment on which such a part surely holds nowhere is left out. No segment is cut: roots are
sought on pairs, as they are without it, so results are the same to the last digit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eddyline.models import polynomials
from eddyline.models.conditions import And, attributes, holds
from eddyline.models.expressions import Terms, terms_of
from eddyline.models.segments import in_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eddyline.data.arrays import Mask
    from eddyline.models.conditions import Comparison, Condition
    from eddyline.models.segments import Segments

WIDER = 2.0**-40
"""How much wider bounds are, in parts of the size of the terms; a pair is settled from 2**-48 of
them on, and its polynomials differ by less than that from those of its segments."""

SAMPLE = 256
"""Segments of a side that are asked first, about."""

LEAST_SAMPLED = 8 * SAMPLE
"""Segments up to which all are asked without a sample."""

MIN_LEFT_OUT = 0.2
"""Share of a side that has to be left out: to ask it takes a tenth of the time of pairing it, and
a sample may be off by some hundredths."""


class Tally:
    """Takes note of what a join does; this one of nothing."""

    def clock(self) -> int:
        """Return the time (ns)."""
        return 0

    def asked(self, side: str, n_asked: int, n_left: int, ns: int) -> None:
        """Take note of segments of a side that were asked, how many were left, and the time."""

    def came(self, side: str, n: int) -> None:
        """Take note of the segments of a side that came to a question, or would have."""

    def paired(self, n_pairs: int) -> None:
        """Take note of the pairs that were made."""


UNTOLD = Tally()


@dataclass(frozen=True, slots=True)
class Asking:
    """Which sides of a join are asked before it, in what order; no answer depends on it."""

    sides: tuple[str, ...] | None = None
    """By what stands before their attributes; None: each side whose sample says that it pays."""
    tally: Tally = UNTOLD

    def reduced(
        self,
        left: Segments,
        right: Segments,
        condition: Condition | None,
        names: tuple[str, str],
        *,
        of_same: bool = False,
    ) -> tuple[Segments, Segments]:
        """Return the segments of both sides that may be in a result; all if that cannot be said.

        Args:
            left: the left side.
            right: the right side; ids mean the same entities on both.
            condition: of the join.
            names: what stands before the attributes of each side in the condition.
            of_same: whether pairs are of the same entity: entities that one side has no longer are
                then left out of the other one, before it is asked itself.
        """
        found = dict(zip(names, (left, right), strict=True))
        one, two = names
        for each in names if self.sides is None else dict.fromkeys((*self.sides, *names)):
            other = two if each == one else one
            may = self.may_hold(found[each], each, condition, found[other])
            if may is None or may.all():
                continue
            found[each] = found[each].under(may)
            if of_same and self.sides is not None:
                found[other] = of_entities(found[other], found[each])
        return found[one], found[two]

    def may_hold(
        self, segments: Segments, name: str, condition: Condition | None, other: Segments
    ) -> Mask | None:
        """Return which segments of a side may be in a result (True where that cannot be said).

        It is None if nothing is asked of the side alone, or if a sample says that too few segments
        would be left out to pay for asking all. Where the other side says that there is no model,
        pairs say so too, whatever this side is: then it is None as well.

        Args:
            segments: of the side.
            name: what stands before its attributes in the condition.
            condition: of the join.
            other: the other side.
        """
        own, tally = [*_of_side(condition, name)], self.tally
        if not own:
            return None
        tally.came(name, len(segments))
        is_open = other.is_tombstone.any() or (self.sides is not None and name not in self.sides)
        if is_open:
            return None
        if self.sides is None and len(segments) > LEAST_SAMPLED:
            sample = segments.take(np.arange(0, len(segments), -(-len(segments) // SAMPLE)))
            if self._told(sample, name, own).mean() > 1.0 - MIN_LEFT_OUT:
                return None
        return self._told(segments, name, own)

    def _told(self, segments: Segments, name: str, own: Sequence[Condition]) -> Mask:
        began = self.tally.clock()
        found = _asked(segments, name, own)
        n_left = int(np.count_nonzero(found))
        self.tally.asked(name, len(segments), n_left, self.tally.clock() - began)
        return found


BY_SAMPLE = Asking()


def of_entities(segments: Segments, others: Segments) -> Segments:
    """Return the segments of entities that others have, too; all if these are most of all."""
    n = 1 + int(max(segments.keys.max(initial=0), others.keys.max(initial=0)))
    is_there = np.zeros(n, np.bool_)
    is_there[others.keys] = True
    found = is_there[segments.keys]
    n_left = int(np.count_nonzero(found))
    return segments.under(found) if n_left < (1.0 - MIN_LEFT_OUT) * len(found) else segments


def questions(condition: Condition | None, name: str) -> tuple[Condition, ...]:
    """Return the parts of an AND that ask of one side alone."""
    return tuple(_of_side(condition, name))


def _asked(segments: Segments, name: str, own: Sequence[Condition]) -> Mask:
    given = {
        f"{name}.{each}": Terms.since(coefs, segments.seconds(segments.lo))
        for each, coefs in segments.coefs.items()
        if any(f"{name}.{each}" in attributes(part) for part in own)
    }
    length = in_seconds(segments.ends - segments.lo)

    def leaf(comparison: Comparison) -> Mask:
        terms = terms_of(comparison.expression, given)
        shape = (len(segments), terms.coefs.shape[1])
        coefs, size = (np.broadcast_to(each, shape) for each in (terms.coefs, terms.size))
        low, high = polynomials.bounds(coefs, length)
        wider = WIDER * polynomials.bounds(size, length)[1]
        return ~_never(comparison.op, low - wider, high + wider)

    with np.errstate(over="ignore", invalid="ignore"):
        found: Mask = np.logical_and.reduce([holds(each, leaf) for each in own])
    return found | segments.is_tombstone


def _never(op: str, low: np.ndarray, high: np.ndarray) -> Mask:
    """Return where a comparison with 0 is surely false between bounds; NaN says nothing."""
    if op in {"<", "<="}:
        return low > 0
    if op in {">", ">="}:
        return high < 0
    return (low > 0) | (high < 0) if op == "=" else np.zeros(len(low), np.bool_)


def _of_side(condition: Condition | None, name: str) -> Iterator[Condition]:
    """Yield the parts of an AND that ask of one side alone."""
    if isinstance(condition, And):
        for each in condition.parts:
            yield from _of_side(each, name)
    elif condition is not None:
        asked = attributes(condition)
        if asked and all(each.startswith(f"{name}.") for each in asked):
            yield condition
