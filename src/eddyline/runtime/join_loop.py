"""The loop of a join: what its pipelines observe, and the order of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eddyline.joins.graph import JoinGraph
    from eddyline.options import JoinOptions
    from eddyline.runtime.views import BlockRecord


class JoinLoop:
    """Keeps the orders of a join good.

    Args:
        graph: what is joined with what.
        options: how orders are learned.
    """

    def __init__(self, graph: JoinGraph, options: JoinOptions) -> None:
        self.graph = graph
        self.options = options
        self.written = written_orders(graph)
        self.orders = dict(self.written)

    def records(self) -> tuple[BlockRecord, ...]:
        """Return how each pipeline stands."""
        return ()

    def snapshot(self) -> dict[str, Any]:
        """Return what was learned, as plain values."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what ``snapshot`` returned."""


def written_orders(graph: JoinGraph) -> dict[str, tuple[str, ...]]:
    """Return, for each input, the others as they were written, without Cartesian products."""
    orders = {}
    for first in graph.inputs:
        order: list[str] = []
        while reachable := graph.reachable((first, *order)):
            order.append(next(name for name in graph.inputs if name in reachable))
        orders[first] = tuple(order)
    return orders
