"""Orders of filters that a person pins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.runtime.order_pin import OrderPin

if TYPE_CHECKING:
    from eddyline.filters.loop import FilterLoop


class FilterPin(OrderPin):
    """The order of a block: another one is for all rows, that in force keeps classes of rows."""

    loop: FilterLoop

    def adopt(self, plan: list[str]) -> None:
        """Put another order in force, for rows of every class."""
        super().adopt(plan)
        if self.loop.routes is not None:
            self.loop.routes.table = None
