"""Crossings: which Python predicates share a trip of rows to the workers.

All columns that the predicates of a crossing read cross for every row that enters it. Where early
predicates drop most rows and later ones read wide columns, a further crossing sends those for the
rows that are left alone. See ``docs/decisions/0023-crossings.md`` for what was measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from eddyline.ordering.matrix_view import drop_fracs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eddyline.stats.profile import FilterProfile, Order

VALUE_NS, BYTE_NS = 8.0, 1.0
"""Cost of a value that crosses, and of each of its bytes (ns of a core)."""

CROSSING_NS = 100.0
"""Cost of a further crossing beside its values: rows are kept ready twice (ns of a core, per row of
the input)."""

MIN_SAVED_NS, MIN_SAVED_JOB_NS = 50.0, 5e7
"""Least savings for which a further crossing is worth worker processes of its own and the longer
plan (ns of a core, per row of the input and per job)."""

Crossings: TypeAlias = "tuple[Order, ...]"
"""The filters of each crossing, in the order in which they are evaluated."""


@dataclass(frozen=True, slots=True)
class CrossingPlan:
    """Crossings, and what they are expected to cost."""

    crossings: Crossings
    shares: tuple[float, ...]
    """Share of the rows that enter each of them ([0, 1])."""
    cost_ns: float
    """Cost of crossing, per row of the input (ns)."""
    together_ns: float
    """The same in one crossing (ns)."""

    @property
    def order(self) -> Order:
        """The order that is cut into crossings."""
        return tuple(chain.from_iterable(self.crossings))

    @property
    def saved_ns(self) -> float:
        """Cost that they save, per row of the input (ns)."""
        return self.together_ns - self.cost_ns

    def pays(self, n_rows: int) -> bool:
        """Return whether they are worth having for jobs of so many rows."""
        return self.saved_ns >= MIN_SAVED_NS and n_rows * self.saved_ns >= MIN_SAVED_JOB_NS

    def evidence(self) -> dict[str, Any]:
        """Return what speaks for them, for the journal."""
        shares = [round(share, 4) for share in self.shares]
        return {"saved_ns": round(self.saved_ns, 1), "rows_that_enter": shares}


def plan_crossings(
    order: Order,
    profile: FilterProfile,
    columns: Sequence[Sequence[str]],
    n_bytes: Mapping[str, float],
) -> CrossingPlan:
    """Return the cheapest crossings of filters that are evaluated in an order.

    A dynamic program over the places where one crossing may end; quadratic in the filters.

    Args:
        order: ``order[position] -> filter index``.
        profile: the evidence, for the rows that reach each position.
        columns: the columns that each filter reads.
        n_bytes: mean size of a value of each column (bytes).
    """
    n = len(order)
    fracs = drop_fracs(order, profile)
    reach = np.concatenate([[1.0], np.cumprod(1.0 - fracs)[:-1]])

    def cost(start: int, end: int) -> float:
        read = {text for f in order[start:end] for text in columns[f]}
        values = sum(VALUE_NS + BYTE_NS * n_bytes[text] for text in read)
        return float(reach[start]) * values + (CROSSING_NS if start else 0.0)

    best: list[tuple[float, Crossings]] = [(0.0, ())]
    for end in range(1, n + 1):
        ways = (
            (best[start][0] + cost(start, end), (*best[start][1], order[start:end]))
            for start in range(end)
        )
        best.append(min(ways))
    cost_ns, crossings = best[n]
    starts = np.cumsum([0, *map(len, crossings[:-1])])
    shares = tuple(float(reach[start]) for start in starts)
    return CrossingPlan(crossings, shares, cost_ns, cost(0, n))
