"""The cost of an order by the evidence: that of a row, and that of profiling it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.ordering.matrix_view import drop_fracs

if TYPE_CHECKING:
    from eddyline.stats.profile import FilterProfile, Order

MIN_ROWS_PER_PROFILE = 32
"""Sampled rows below which a batch is not worth profiling: then fewer batches are profiled."""


def costs_ns(
    order: Order, profile: FilterProfile, extra: Any, n_rows: int = 0
) -> tuple[float, float]:
    """Return the mean cost of one input row, and the cost that profiling it adds (ns).

    The latter is the Ω of [Babu05 4.3.4] at p = 1, and its part of the calls that are made for
    profiling alone, because no other row of the batch (of ``n_rows``; 0: no call has a fixed part)
    gets that far. ``extra`` says what is evaluated beyond the first drop ((F, F)).
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
