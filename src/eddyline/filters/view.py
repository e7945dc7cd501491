"""A conjunction as people may want to see it, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eddyline.filters.binding import Pinned
    from eddyline.stats.profile import FilterProfile, Order


@dataclass(frozen=True, slots=True)
class RouteView:
    """The rows that take one of the orders of a route table."""

    rows: str
    """The rows, in words."""
    order: Order
    """Their order: ``order[position] -> filter index``."""
    share: float
    """Share of the sampled rows (nan: none was sampled)."""


@dataclass(frozen=True, slots=True)
class CrossingView:
    """Python predicates that share a trip of rows to the workers."""

    filters: Order
    """Their indices, in order."""
    share: float
    """Share of the rows that are expected to enter it."""


@dataclass(frozen=True, slots=True)
class BlockView:
    """One block of a conjunction whose order is learned."""

    component: str
    """``native`` (SQL, in the JVM) or ``arrow`` (Python functions), numbered if there are more."""
    written: Order
    """The order in which the user wrote the filters."""
    order: Order
    """The order in force: ``order[position] -> filter index``."""
    profile: FilterProfile
    """The evidence in the window."""
    texts: tuple[str, ...]
    """The filters by their index, in words: SQL text or ``function(columns)``."""
    is_adaptive: bool
    """Whether the order may still change."""
    note: str = ""
    """The origin of the order, or the reason why it cannot change, in a sentence."""
    totals: FilterProfile | None = None
    """Counts over the whole life of the block (rows, evaluations), without codes."""
    routes: tuple[RouteView, ...] = ()
    """The orders of the classes of rows, where they differ; the first is that of all others."""
    routed_by: tuple[str, ...] = ()
    """The attributes that tell the classes apart."""
    route_note: str = ""
    """The state of routing, in a sentence."""
    crossings: tuple[CrossingView, ...] = ()
    """The trips of rows to the workers, where there are several."""


@dataclass(frozen=True, slots=True)
class FilterView:
    """One conjunction as it stands."""

    name: str
    blocks: tuple[BlockView, ...]
    pinned: tuple[Pinned, ...] = ()
    notes: tuple[str, ...] = ()
    """Other things worth knowing: guarded errors, missing statistics, settings."""
