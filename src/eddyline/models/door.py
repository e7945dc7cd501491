"""Rows of declared models that say nothing new: those that the model before predicts.

A row whose values are as near to the model of its entity as they have to be begins none: the model
goes on, for a horizon from the latest row that it predicts. The first row that is not near enough
begins the next one (Pulse 3.12). Rows are taken by entity and time, so what becomes of them depends
neither on the order in which they come nor on how they are cut into batches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from eddyline.models import polynomials
from eddyline.models.bounds import Bound
from eddyline.models.door_kernels import leaders
from eddyline.models.segments import in_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eddyline.data.arrays import Floats, Indices, Mask
    from eddyline.models.segments import Segments


@dataclass(frozen=True)
class Passed:
    """What the rows of declared models leave.

    Attributes:
        segments: models by entity and time.
        rows: the row of each, ``[m]``.
        last: the latest row that each predicts, or its own, ``[m]``.
        is_broken: whether a row was too far from it, and began the next one, ``[m]``.
    """

    segments: Segments
    rows: Indices
    last: Indices
    is_broken: Mask


def passed(
    segments: Segments, within: Mapping[str, Bound], horizon_us: int, is_reached: Mask | None = None
) -> Passed:
    """Return the models of the rows that the models before do not predict.

    Args:
        segments: a model for each row, by entity and time, which ends where the next one begins or
            its horizon is over.
        within: how far values may be off, a share less than 1; of an attribute that has no bound,
            not at all.
        horizon_us: how long a row says something, at most (µs).
        is_reached: rows to which the model before is known to go on, by others that are not there
            any more, ``[n]``; None: no row.

    Returns:
        Models whose error is the bound where they stand for several rows, and else 0.
    """
    n = len(segments)
    goes_on = np.zeros(n, np.bool_)
    goes_on[1:] = segments.lo[1:] - segments.lo[:-1] < horizon_us
    if is_reached is not None:
        goes_on[1:] |= is_reached[1:]
    goes_on[1:] &= segments.keys[1:] == segments.keys[:-1]
    bounds = {name: within.get(name, Bound(0.0)) for name in segments.coefs}
    leader = _leaders(segments, [*bounds.values()], goes_on)
    rows = np.flatnonzero(leader == np.arange(n))
    last = np.append(rows[1:], n)[: len(rows)] - 1
    kept = segments.take(rows)
    kept = kept.cut(kept.lo, segments.hi[last])
    errors = {
        name: np.where(last > rows, _error(bound, kept, name), 0.0)
        for name, bound in bounds.items()
    }
    is_broken = np.append(goes_on[rows[1:]], np.False_)[: len(rows)]
    return Passed(replace(kept, errors=errors), rows, last, is_broken)


def _leaders(segments: Segments, bounds: Sequence[Bound], goes_on: Mask) -> Indices:
    """Return for each row the one whose model predicts it; ``bounds`` are those of attributes."""
    width = max(each.shape[1] for each in segments.coefs.values())
    coefs = np.stack([polynomials.padded(each, width) for each in segments.coefs.values()])
    values = np.array([each.value for each in bounds])
    are_shares = np.array([each.is_relative for each in bounds])
    far, shares = np.where(are_shares, 0.0, values), np.where(are_shares, values, 0.0)
    return leaders(coefs, segments.origin, segments.lo, goes_on, far, shares)


def _error(bound: Bound, segments: Segments, name: str) -> Floats:
    """Return how far rows may be from models: a share of a row's value by that of the model.

    A row that is off by no more than ``share |row|`` is no farther from 0 than
    ``|model| / (1 - share)``.
    """
    if not bound.is_relative:
        return np.full(len(segments), bound.value)
    since = polynomials.shifted(segments.coefs[name], segments.seconds(segments.lo))
    low, high = polynomials.extremes(since, in_seconds(segments.hi - segments.lo))
    found: Floats = np.maximum(np.abs(low), np.abs(high)) * bound.value / (1 - bound.value)
    return found
