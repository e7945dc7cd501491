"""The saving of routing: row by row against one order, net of the cost of routing itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats
    from eddyline.routing.learning import Outcomes
    from eddyline.routing.table import RouteTable
    from eddyline.stats.profile import AttributeSample, Order


FALLING_Z = 3.0
"""Standard errors by which the newest rows must save less than those before to call it a change."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices in one decision (ns)."""

    order: Order
    """The order of all rows."""
    costs_ns: Floats
    """Cost of one evaluation of each filter (> 0; (F,))."""
    route_ns: float = 0.0
    """Finding a row's group by one attribute (per input row; ≥ 0)."""
    group_ns: float = 0.0
    """Each group but the first, such as one more call of each filter per batch (per input row)."""
    attribute_ns: float = 0.0
    """Each attribute of a table but the first (per input row)."""

    def overhead_ns(self, n_groups: int, n_attributes: int) -> float:
        """Return the cost of routing per input row (ns)."""
        more_ns = (n_groups - 1) * self.group_ns + (n_attributes - 1) * self.attribute_ns
        return self.route_ns + more_ns

    def overhead_of(self, table: RouteTable) -> float:
        """Return the cost of routing by a table per input row (ns)."""
        return self.overhead_ns(table.n_groups, len(table.partitions))


@dataclass(frozen=True, slots=True)
class Saving:
    """The saving of a table per input row against one order, net of the cost of routing."""

    rows_ns: Floats
    """Saved on each row, weighted to 1 on average ((M,))."""
    weights: Floats
    """Weight of each row ((M,))."""
    overhead_ns: float
    """Cost of routing per input row."""

    def over(self, n_newest: int) -> tuple[float, float]:
        """Return the mean net saving of the newest rows and its standard error (ns)."""
        return self._mean(self.rows_ns[-n_newest:], self.weights[-n_newest:])

    def is_falling(self, n_newest: int) -> bool:
        """Return whether the newest rows save less than those before, beyond chance."""
        if len(self.rows_ns) < 2 * n_newest:
            return False
        before, error_before = self._mean(self.rows_ns[:-n_newest], self.weights[:-n_newest])
        now, error = self.over(n_newest)
        return bool(before - now > FALLING_Z * np.hypot(error_before, error))

    def _mean(self, rows: Floats, weights: Floats) -> tuple[float, float]:
        total = weights.sum()
        mean = float(weights @ rows / total)
        error = float(np.sqrt((weights**2) @ (rows - mean) ** 2) / total)
        return mean - self.overhead_ns, error


def routed_costs(
    table: RouteTable, sample: AttributeSample, outcomes: Outcomes, prices: Prices
) -> Floats:
    """Return the cost of each row under a table (ns; (M,))."""
    columns = [sample.attributes.index(name) for name in table.attributes]
    group = table.group_of(sample.values[:, columns])
    return outcomes.costs(np.array(table.orders), prices.costs_ns)[outcomes.of_row, group]
