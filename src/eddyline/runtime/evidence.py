"""What evidence says of an order: whether it still holds, and what profiling it adds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.ordering.matrix_view import drop_fracs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eddyline.ordering.protocol import Order
    from eddyline.stats.profile import FilterProfile

MIN_ROWS_PER_PROFILE = 32
"""Sampled rows below which a batch is not worth profiling: then fewer batches are profiled."""

STALE_DIFF = 0.1
"""Drop fractions that differ by less are no reason to let evidence go."""

STALE_Z = 4.0
"""Standard errors by which drop fractions must differ beyond that."""


def contradiction(
    order: Order, known: FilterProfile, fresh: FilterProfile
) -> tuple[int, float, float]:
    """Return the first position where a batch drops clearly more or less than is known.

    The difference must exceed ``STALE_DIFF``, and ``STALE_Z`` standard errors of both samples.

    Args:
        order: the order under which the batch ran.
        known: the profile of the window.
        fresh: the profile of the batch; rows in and out of each filter are used where they were
            counted, the sampled rows elsewhere.

    Returns:
        The position, or -1; the drop fraction that is known there, and that of the batch.
    """
    filters = list(order)
    n_in = fresh.rows_in[filters]
    if n_in.any():
        n_out = fresh.rows_out[filters]
        now = np.divide(n_in - n_out, n_in, out=np.zeros(len(filters)), where=n_in > 0)
    else:
        now = drop_fracs(order, fresh)
        n_in = _reached(now, fresh)
    before = drop_fracs(order, known)
    n_known = _reached(before, known)
    pooled = (before * n_known + now * n_in) / np.maximum(n_known + n_in, 1.0)
    spread = (
        pooled * (1.0 - pooled) * (1.0 / np.maximum(n_known, 1.0) + 1.0 / np.maximum(n_in, 1.0))
    )
    differs = np.abs(now - before) > STALE_DIFF + STALE_Z * np.sqrt(spread)
    differs &= (n_known >= 1.0) & (n_in >= 1.0)
    if not differs.any():
        return -1, 0.0, 0.0
    position = int(differs.argmax())
    return position, float(before[position]), float(now[position])


def _reached(fracs: NDArray[np.float64], profile: FilterProfile) -> NDArray[np.float64]:
    """Return how many sampled rows reached each position, given what positions drop ((F,))."""
    n_sampled = profile.n_tuples + profile.n_passed
    return n_sampled * np.concatenate([[1.0], np.cumprod(1.0 - fracs)[:-1]])


def costs_ns(
    order: Order, profile: FilterProfile, extra: Any, n_rows: int = 0
) -> tuple[float, float]:
    """Return what one input row costs on average, and what profiling it adds (ns).

    The latter is the Ω of [Babu05 4.3.4] at p = 1, and its part of the calls that are made for
    profiling alone, because no other row of the batch gets that far.

    Args:
        order: the order in force.
        profile: the evidence.
        extra: which positions are evaluated beyond the first drop ((F, F)).
        n_rows: rows of a batch; 0 where there are no calls with a fixed part.
    """
    fracs = drop_fracs(order, profile)
    reach = np.concatenate([[1.0], np.cumprod(1.0 - fracs)[:-1]])
    first_drop = reach * fracs
    fixed, per_row = (costs[list(order)] for costs in profile.costs.fit())
    asked = np.asarray(extra, dtype=np.float64)
    work, added = reach @ per_row, first_drop @ (asked @ per_row)
    if n_rows > 0:
        alone = (1.0 - reach) ** n_rows
        work += fixed @ (1.0 - alone) / n_rows
        added += fixed @ (alone * asked.any(axis=0)) / min(n_rows, MIN_ROWS_PER_PROFILE)
    return float(work), float(added)
