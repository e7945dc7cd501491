"""What routing decides: a table that gives different classes of rows different orders.

A row's *class* is the combination of the buckets that its classifier attributes fall in. The table
is a plan: an immutable value that executors look rows up in. [Bizarro05]
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eddyline.routing.table import RouteTable

Order = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RouteProposal:
    """Another table, or none, and the evidence for it."""

    table: RouteTable | None
    """None: every row takes the order of all rows."""
    evidence: dict[str, Any] = field(default_factory=dict)
    """Plain values that a person can check: attributes, gain ratios, cost with and without."""
