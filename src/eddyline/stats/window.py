"""The sliding profile window: the newest profile tuples, and the costs measured with them.

Expiry counts profile tuples, not batches, so the window spans the same evidence however rows are
cut into batches. [Babu05 4.3.1]
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from eddyline.stats.profile import FilterProfile, merge

if TYPE_CHECKING:
    from eddyline.data.arrays import Mask


_PARTS = 16
"""Parts of a full window: costs leave with a part, so they are at most a sixteenth too old, and
one merge of all of them per batch stays cheap."""


class ProfileWindow:
    """The newest ``max_tuples`` profile tuples (≥ 1) of one conjunction."""

    def __init__(self, filter_ids: tuple[str, ...], max_tuples: int) -> None:
        self.filter_ids = filter_ids
        self.max_tuples = max_tuples
        self._parts: deque[FilterProfile] = deque()
        self._merged: FilterProfile | None = None

    def push(self, profile: FilterProfile) -> None:
        """Add the newest profile and let the oldest profile tuples go."""
        part = replace(profile.last(self.max_tuples), attributes=None, blocks=None)
        newest = self._parts[-1] if self._parts else None
        if newest and newest.n_tuples + part.n_tuples <= self.max_tuples // _PARTS:
            part = merge([self._parts.pop(), part])
        self._parts.append(part)
        self._expire()

    def _expire(self) -> None:
        """Let the oldest profile tuples go, and the costs of parts that are gone whole."""
        surplus = sum(part.n_tuples for part in self._parts) - self.max_tuples
        while surplus > 0:
            oldest = self._parts.popleft()
            if oldest.n_tuples > surplus:
                self._parts.appendleft(oldest.last(oldest.n_tuples - surplus))
            surplus -= oldest.n_tuples
        self._merged = None

    def forget_costs(self, filters: Mask) -> None:
        """Take the costs of some filters ((F,)) out, because they will not come again."""
        self._parts = deque(
            replace(part, costs=part.costs.without(filters)) for part in self._parts
        )
        self._merged = None

    def keep_newest(self, n_tuples: int) -> None:
        """Let older profile tuples go, but not the costs: what filters drop has changed."""
        known = self.profile()
        kept = known.last(n_tuples) if n_tuples else FilterProfile.empty(self.filter_ids)
        self._parts = deque([replace(kept, costs=known.costs)])
        self._merged = None

    def begin_with(self, *profiles: FilterProfile) -> None:
        """Replace the content by profiles, the oldest first."""
        self._parts = deque(replace(each, attributes=None, blocks=None) for each in profiles)
        self._expire()

    def profile(self) -> FilterProfile:
        """Return everything in the window as one profile."""
        if self._merged is None:
            empty = FilterProfile.empty(self.filter_ids)
            self._merged = merge(self._parts) if self._parts else empty
        return self._merged

    def to_state(self) -> list[dict[str, Any]]:
        """Return the content as plain values, part by part, so that expiry goes on as before."""
        return [part.to_state() for part in self._parts]

    def restore(self, state: list[dict[str, Any]]) -> None:
        """Replace the content by what ``to_state`` returned."""
        self._parts = deque(FilterProfile.from_state(self.filter_ids, part) for part in state)
        self._expire()
