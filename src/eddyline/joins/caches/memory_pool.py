"""Who gets memory when it is short: the stores that earn most per byte [Babu05 5.6].

Caches are chosen as if memory were endless. Then each store gets pages of a fixed pool on request;
what is in a page that is taken away is simply gone, as a store need not be complete.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.joins.caches.prefix_invariant import Store

PAGE_BYTES = 4096
"""Size of a page; the thesis gives none."""


@dataclass(frozen=True, slots=True)
class StoreSize:
    """How large a store is expected to get."""

    entries: float
    """Keys that come while the windows turn over."""
    entry_bytes: float
    """What one takes: its key, and the references of its rows."""

    @property
    def n_bytes(self) -> float:
        """What all take together."""
        return self.entries * self.entry_bytes

    @classmethod
    def of(
        cls,
        store: Store,
        *,
        entries: float,
        rows_per_entry: float,
        key_bytes: float,
        reference_bytes: float,
    ) -> Self:
        """Return the size of a store.

        Args:
            store: what is kept.
            entries: keys that come while the windows turn over.
            rows_per_entry: mean joined rows of a key.
            key_bytes: size of a key.
            reference_bytes: what a joined row keeps of the row of each window.
        """
        rows_bytes = rows_per_entry * len(store.windows) * reference_bytes
        return cls(entries, key_bytes + rows_bytes)

    def n_pages(self, page_bytes: int = PAGE_BYTES) -> int:
        """Return how many pages it wants; at least one."""
        return max(ceil(self.n_bytes / page_bytes), 1)

    def priority(self, net: float) -> float:
        """Return what a byte earns.

        Args:
            net: what the caches of the store save together, less what it costs once.
        """
        return net / max(self.n_bytes, 1.0)


@dataclass(frozen=True, slots=True)
class PagePool:
    """The pages of a join and who has them; a value, replaced by the next one at each request."""

    n_pages: int
    """How many there are."""
    priorities: Mapping[Store, float]
    """What a byte of each store earns; fixed when the caches are chosen."""
    held: Mapping[Store, int] = field(default_factory=dict)
    """The pages of each store; none of those that are missing."""

    @property
    def n_free(self) -> int:
        """The pages that nobody has."""
        return self.n_pages - sum(self.held.values())

    def requested(self, store: Store) -> PagePool:
        """Return the pool with a page more for a store.

        A free one, or one of the store that earns least if that is less; else nothing changes, and
        the store goes on within what it has.
        """
        if self.n_free > 0:
            return self._moved(store, None)
        poorest = min(
            (other for other, n_pages in self.held.items() if n_pages),
            key=lambda other: self.priorities[other],
            default=store,
        )
        if self.priorities[poorest] < self.priorities[store]:
            return self._moved(store, poorest)
        return self

    def chosen(self, priorities: Mapping[Store, float]) -> PagePool:
        """Return the pool after another choice: stores that are gone give back their pages."""
        held = {store: n_pages for store, n_pages in self.held.items() if store in priorities}
        return replace(self, priorities=priorities, held=held)

    def _moved(self, to: Store, source: Store | None) -> PagePool:
        held = {**self.held, to: self.held.get(to, 0) + 1}
        if source is not None:
            held[source] -= 1
        return replace(self, held=held)


def shared_out(
    n_pages: int, priorities: Mapping[Store, float], wanted: Mapping[Store, int]
) -> PagePool:
    """Return the pool when every store has asked for all it wants, in whatever order.

    Of stores that earn the same, the one named first is served first.

    Args:
        n_pages: how many pages there are.
        priorities: what a byte of each store earns.
        wanted: how many pages each store wants.
    """
    held, free = {}, n_pages
    for store in sorted(priorities, key=lambda store: -priorities[store]):
        held[store] = min(wanted.get(store, 0), free)
        free -= held[store]
    return PagePool(n_pages, priorities, held)
