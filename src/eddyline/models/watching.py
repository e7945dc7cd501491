"""What several queries over the same models allow together: of each instant the least distance.

A row that says nothing new to one query may say something to another: it is dropped only if it is
near enough for both (Pulse 3.12).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from eddyline.models import overlaps, polynomials
from eddyline.models.segments import MICROS, in_seconds
from eddyline.models.solving import cuts
from eddyline.models.validation import Live

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.data.arrays import Floats, Indices, Ints


def both(one: Live, other: Live) -> Live:
    """Return models with the distances that each of two queries allows.

    Where two distances cross, the lesser one is less by what it changes in a microsecond: instants
    are rounded. Shares of values are the lesser ones, too.

    Args:
        one: models of entities.
        other: the same models on the same ranges, cut at other instants.
    """
    pairs = overlaps.same_entity(one.segments, other.segments)
    left, right = one.take(pairs.left), other.take(pairs.right)
    moved = (
        in_seconds(pairs.lo - left.segments.origin),
        in_seconds(pairs.lo - right.segments.origin),
    )
    names = list(left.below)
    sides = {
        (name, is_below): tuple(
            polynomials.shifted((live.below if is_below else live.above)[name], by)
            for live, by in zip((left, right), moved, strict=True)
        )
        for name in names
        for is_below in (True, False)
    }
    apart = {key: _difference(*curves) for key, curves in sides.items()}
    rows, lo, hi = _cut(pairs.lo, pairs.hi, apart)
    middle = ((lo - pairs.lo[rows]) + (hi - pairs.lo[rows])) * (MICROS / 2)
    length = in_seconds(pairs.hi - pairs.lo)
    found: dict[bool, dict[str, Floats]] = {True: {}, False: {}}
    for (name, is_below), curves in sides.items():
        first, second = (polynomials.padded(each, _width(curves))[rows] for each in curves)
        values = [polynomials.evaluate(each, middle) for each in (first, second)]
        least = np.where((values[0] <= values[1])[:, None], first, second)
        least[:, 0] -= MICROS * _steepness(apart[name, is_below], length)[rows]
        found[is_below][name] = polynomials.shifted(least, -moved[0][rows])
    segments = left.segments.take(rows).cut(lo, hi)
    is_point = left.segments.is_point[rows] | right.segments.is_point[rows]
    segments = replace(segments, hi=np.where(is_point, lo, hi), is_point=is_point)
    shares = {name: np.minimum(left.shares[name], right.shares[name])[rows] for name in names}
    is_strict = (left.is_strict | right.is_strict)[rows]
    return Live.joined([Live(segments, found[True], found[False], shares, is_strict)])


def _width(curves: tuple[Floats, ...]) -> int:
    found: int = max(each.shape[1] for each in curves)
    return found


def _difference(one: Floats, other: Floats) -> Floats:
    """Return the difference of distances, 0 where one is infinite: it is never the lesser one."""
    known = np.isfinite(one[:, 0]) & np.isfinite(other[:, 0])
    with np.errstate(invalid="ignore"):
        return np.where(known[:, None], polynomials.total(one, -other), 0.0)


def _cut(
    lo: Ints, hi: Ints, apart: Mapping[tuple[str, bool], Floats]
) -> tuple[Indices, Ints, Ints]:
    """Return ranges between the instants at which differences change their sign."""
    instants = [cuts(each, lo, hi)[0] for each in apart.values()]
    edges = np.sort(np.concatenate([lo[:, None], *instants, hi[:, None]], axis=1), axis=1)
    rows, places = np.nonzero(edges[:, :-1] < edges[:, 1:])
    return rows, edges[rows, places], edges[rows, places + 1]


def _steepness(coefs: Floats, length: Floats) -> Floats:
    """Return the greatest slope of polynomials on ``[0, length]`` by their terms, per second."""
    found = np.zeros(len(coefs))
    for power in range(coefs.shape[1] - 1, 0, -1):
        found = found * length + power * np.abs(coefs[:, power])
    return found
