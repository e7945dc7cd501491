"""The memory of each store: those that earn most per byte get what they want first [Babu05 5.6].

Caches are chosen as if memory were endless, and then share a pool of pages. A store without enough
of them keeps fewer keys, which is always sound: it need not be complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.joins.caches.prefix_invariant import Store

PAGE_BYTES = 4096
"""Size of a page; the thesis gives none."""


def limits(
    n_pages: int, sizes: Mapping[Store, float], nets: Mapping[Store, float]
) -> dict[Store, int]:
    """Return the memory of each store (bytes), of one or more, by its size (bytes) and its net.

    A store wants room for twice its size; pages that no store wants are shared evenly.
    """
    priorities = {store: nets[store] / max(size, PAGE_BYTES) for store, size in sizes.items()}
    wanted = {store: max(int(2 * size / PAGE_BYTES), 1) for store, size in sizes.items()}
    held = shared_out(n_pages, priorities, wanted)
    spare = (n_pages - sum(held.values())) // len(sizes)
    return {store: (held[store] + spare) * PAGE_BYTES for store in sizes}


def shared_out(
    n_pages: int, priorities: Mapping[Store, float], wanted: Mapping[Store, int]
) -> dict[Store, int]:
    """Return the pages of each store; of stores that earn the same, the first is served first."""
    held, free = {}, n_pages
    for store in sorted(priorities, key=lambda store: -priorities[store]):
        held[store] = min(wanted.get(store, 0), free)
        free -= held[store]
    return held
