"""The two-sample test: every row of a batch against the evidence of the window.

Every row of a batch says what the filters dropped in the order in force, not only the sampled ones,
so a large change shows within one batch. The window alone is much slower to follow, above all where
little is sampled. It needs no training, and sees neither small shifts nor changes of what a filter
would drop elsewhere in the order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eddyline.options import in_range
from eddyline.ordering.matrix_view import drop_fracs
from eddyline.runtime.monitors.protocol import Finding, StatelessMonitor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eddyline.stats.profile import FilterProfile, Order


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoSampleOptions:
    """Options of the test whether a batch contradicts the window.

    Raises:
        OptionError: a value is out of its range.
    """

    min_diff: float = 0.1
    """Drop fractions that differ by less are no change ([0, 1])."""
    z_score: float = 4.0
    """Standard errors of both samples by which they must differ beyond that (≥ 0)."""

    def __post_init__(self) -> None:
        in_range(self, "min_diff", 0.0, 1.0)
        in_range(self, "z_score", 0.0, 1e6)

    def build(self, n_filters: int, seed: int) -> TwoSampleMonitor:  # noqa: ARG002 protocol
        """Return a fresh monitor."""
        return TwoSampleMonitor(self)


class TwoSampleMonitor(StatelessMonitor):
    """Lets all evidence go when a batch contradicts it."""

    def __init__(self, options: TwoSampleOptions) -> None:
        self._options = options

    def observe(
        self,
        fresh: FilterProfile,
        order: Order,
        known: FilterProfile,
        cost_ratios: NDArray[np.float64],  # noqa: ARG002 protocol
    ) -> Finding | None:
        """Compare what each position dropped with what the window says it drops."""
        filters = list(order)
        n_in = fresh.rows_in[filters]
        if n_in.any() and fresh.ran_under == order:
            n_out = fresh.rows_out[filters]
            now = np.divide(n_in - n_out, n_in, out=np.zeros(len(filters)), where=n_in > 0)
        else:
            now = drop_fracs(order, fresh)
            n_in = _reached(now, fresh)
        before = drop_fracs(order, known)
        n_known = _reached(before, known)
        both = np.maximum(n_known + n_in, 1.0)
        pooled = (before * n_known + now * n_in) / both
        inverse = 1.0 / np.maximum(n_known, 1.0) + 1.0 / np.maximum(n_in, 1.0)
        least = self._options.min_diff + self._options.z_score * np.sqrt(
            pooled * (1.0 - pooled) * inverse
        )
        differs = (np.abs(now - before) > least) & (n_known >= 1.0) & (n_in >= 1.0)
        if not differs.any():
            return None
        position = int(differs.argmax())
        evidence = {
            "filter": known.filter_ids[order[position]],
            "position": position,
            "drop_frac_before": float(before[position]),
            "drop_frac_now": float(now[position]),
        }
        return Finding(0, None, evidence)


def _reached(fracs: NDArray[np.float64], profile: FilterProfile) -> NDArray[np.float64]:
    """Return the number of sampled rows that reached each position, given its drops ((F,))."""
    n_sampled = profile.n_tuples + profile.n_passed
    return n_sampled * np.concatenate([[1.0], np.cumprod(1.0 - fracs)[:-1]])
