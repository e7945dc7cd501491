"""Orders of filters that a person pins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.runtime.order_pin import OrderPin

if TYPE_CHECKING:
    from eddyline.filters.loop import FilterLoop


class FilterPin(OrderPin):
    """The order of a block: another one is for all rows, that in force keeps classes of rows."""

    loop: FilterLoop

    @property
    def why_unlogged(self) -> str:  # type: ignore[override]
        """Why orders are not logged; what those of classes cost, no sample tells later."""
        is_routed = self.loop.table is not None
        return "classes of rows have orders of their own" if is_routed else super().why_unlogged

    def adopt(self, plan: list[str]) -> None:
        """Put another order in force, for rows of every class."""
        super().adopt(plan)
        if self.loop.routes is not None:
            self.loop.routes.table = None


class TaskPin(FilterPin):
    """The order of a block whose tasks learn while they run."""

    changes_within = True
