"""The fixed window: the newest profile tuples are fresh, however old they are [Babu05 4.3.1]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eddyline.runtime.monitors.protocol import StatelessMonitor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from eddyline.stats.profile import FilterProfile, Order


@dataclass(frozen=True, slots=True)
class WindowOptions:
    """Nothing to set: the loop has a window of ``runtime.order_loop.WINDOW_ROWS``."""

    def build(self, n_filters: int, seed: int) -> WindowMonitor:  # noqa: ARG002 protocol
        """Return a fresh monitor."""
        return WindowMonitor()


class WindowMonitor(StatelessMonitor):
    """Finds no change: evidence leaves the window by its age alone."""

    def observe(
        self,
        fresh: FilterProfile,
        order: Order,
        known: FilterProfile,
        cost_ratios: NDArray[np.float64],
    ) -> None:
        """Do nothing."""
