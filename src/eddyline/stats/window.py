"""The sliding profile window: the newest profile tuples, and the costs measured with them.

Expiry counts profile tuples, not batches, so the window spans the same evidence however rows are
cut into batches. [Babu05 4.3.1]
"""

from __future__ import annotations

from collections import deque
from typing import Any

from eddyline.stats.profile import FilterProfile, merge


class ProfileWindow:
    """The newest ``max_tuples`` profile tuples of one conjunction.

    Args:
        filter_ids: names of the filters.
        max_tuples: how many profile tuples the window holds (≥ 1).
    """

    def __init__(self, filter_ids: tuple[str, ...], max_tuples: int) -> None:
        self.filter_ids = filter_ids
        self.max_tuples = max_tuples
        self._parts: deque[FilterProfile] = deque()
        self._n_tuples = 0
        self._merged: FilterProfile | None = None

    def push(self, profile: FilterProfile) -> None:
        """Add the newest profile and let the oldest profile tuples go."""
        part = profile.last(self.max_tuples)
        self._parts.append(part)
        self._n_tuples += part.n_tuples
        self._merged = None
        while (surplus := self._n_tuples - self.max_tuples) > 0:
            oldest = self._parts[0]
            if oldest.n_tuples <= surplus:
                self._parts.popleft()
            else:
                self._parts[0] = oldest.last(oldest.n_tuples - surplus)
            self._n_tuples -= min(surplus, oldest.n_tuples)

    def clear(self) -> None:
        """Forget everything, as after a change of what a filter means."""
        self._parts.clear()
        self._n_tuples = 0
        self._merged = None

    def profile(self) -> FilterProfile:
        """Return everything in the window as one profile."""
        if self._merged is None:
            empty = FilterProfile.empty(self.filter_ids)
            self._merged = merge(self._parts) if self._parts else empty
            # One part from now on: merging again costs what is new, not what is kept.
            if len(self._parts) > _COMPACT_PARTS:
                self._compact()
        return self._merged

    def _compact(self) -> None:
        """Merge the older half of the parts into one, so that their number stays bounded."""
        half = len(self._parts) // 2
        older = [self._parts.popleft() for _ in range(half)]
        self._parts.appendleft(merge(older))

    def to_state(self) -> list[dict[str, Any]]:
        """Return the content as plain values, part by part, so that expiry goes on as before."""
        return [part.to_state() for part in self._parts]

    def restore(self, state: list[dict[str, Any]]) -> None:
        """Replace the content by what ``to_state`` returned."""
        self.clear()
        for part in state:
            self.push(FilterProfile.from_state(self.filter_ids, part))


_COMPACT_PARTS = 64
"""Parts kept apart before the older half is merged: bounds the work of ``profile``."""
