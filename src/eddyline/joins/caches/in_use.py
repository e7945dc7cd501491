"""Caches in use, measured in place: their own work, against the same joins without them.

For that a pipeline *bypasses* its caches in one batch of some, while their stores are kept true.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eddyline.joins.caches.cost_model import JUDGED

if TYPE_CHECKING:
    from collections.abc import Collection

    from eddyline.joins.caches.counts import CacheReport, StoreCounts, UseCounts
    from eddyline.joins.caches.pipeline_costs import PipelineCosts
    from eddyline.joins.caches.prefix_invariant import Candidate, Store

GRACE = 4
"""Batch from which on a cache in use is judged by its work: it starts empty."""

BYPASSED = 16
"""A pipeline bypasses its caches in one of so many batches; in half as many each time that nothing
had changed."""

MOST_BYPASSED = 128
"""Most batches from one bypass to the next."""

CHANGED = 0.5
"""Change of what rows find behind a cache, as a share, after which it is bypassed at once."""


@dataclass(slots=True)
class Used:
    """The counts of a cache in use."""

    uses: deque[UseCounts] = field(default_factory=lambda: deque(maxlen=JUDGED))
    """Of the newest batches, after the first ones."""
    n_batches: int = 0
    n_probes: int = 0
    n_hits: int = 0


class CachesInUse:
    """Measures caches in use, and decides when their pipelines bypass them."""

    def __init__(self) -> None:
        self._used: dict[Candidate, Used] = {}
        self._stores: dict[Store, deque[StoreCounts]] = {}
        self._bypassed: dict[str, int] = {}
        self._patience: dict[str, int] = {}
        self._outdated: set[str] = set()

    def observe(self, report: CacheReport) -> None:
        """Take in a batch."""
        for cache, use in report.uses.items():
            known = self._used.setdefault(cache, Used())
            known.n_batches += 1
            if known.n_batches >= GRACE:
                known.uses.append(use)
            known.n_probes += use.n_keys
            known.n_hits += use.n_hits
        for store, kept in report.stores.items():
            self._stores.setdefault(store, deque(maxlen=JUDGED)).append(kept)

    def keep(self, caches: Collection[Candidate], stores: Collection[Store]) -> None:
        """Forget all but some caches, their pipelines, and some stores."""
        self._used = {each: used for each, used in self._used.items() if each in caches}
        asked = {each.pipeline for each in caches}
        self._bypassed = {name: at for name, at in self._bypassed.items() if name in asked}
        self._patience = {name: n for name, n in self._patience.items() if name in asked}
        self._stores = {store: each for store, each in self._stores.items() if store in stores}

    # -- bypasses -------------------------------------------------------------------------------

    def bypass(self, batch_id: int, joins: PipelineCosts) -> set[str]:
        """Return the pipelines that bypass their caches in a batch."""
        asked = {each.pipeline for each, used in self._used.items() if used.n_batches >= GRACE}
        since = {name: batch_id - self._bypassed.get(name, -MOST_BYPASSED) for name in asked}
        changed = {
            each.pipeline
            for each in self._used
            if self.is_judged(each) and self._has_changed(each, joins)
        }
        due = {name for name in asked if since[name] >= self._patience.get(name, BYPASSED)}
        due |= {name for name in changed & asked if since[name] > 1}
        for name in due:
            longer = 2 * self._patience.get(name, BYPASSED // 2)
            self._patience[name] = BYPASSED if name in changed else min(longer, MOST_BYPASSED)
        self._outdated = {name for name in due if name in changed or name not in self._bypassed}
        self._bypassed |= dict.fromkeys(due, batch_id)
        return due

    def outdates(self, pipeline: str) -> bool:
        """Return whether the newest bypass makes older observations of a pipeline worthless."""
        return pipeline in self._outdated

    def _has_changed(self, cache: Candidate, joins: PipelineCosts) -> bool:
        """Return whether rows find more, or less, than they did when a cache was bypassed."""
        newest, before = self._used[cache].uses[-1], joins.spared_by(cache).rows_per_entry
        found = newest.n_out / max(newest.n_rows, 1)
        return abs(found - before) > CHANGED * max(found, before)

    # -- worths ---------------------------------------------------------------------------------

    def is_judged(self, cache: Candidate) -> bool:
        """Return whether a cache was used for some time, and bypassed since."""
        used = self._used.get(cache)
        return used is not None and used.n_batches >= GRACE and cache.pipeline in self._bypassed

    def benefit(self, cache: Candidate, joins: PipelineCosts) -> float:
        """Return the work per batch that a cache that is judged saves, less its own work."""
        uses = self._used[cache].uses
        rows = sum(use.n_rows for use in uses) / len(uses)
        stretch = joins.spared_by(cache)
        per_row = stretch.work / stretch.rows[0] if stretch.rows[0] else 0.0
        return per_row * rows - sum(use.ns for use in uses) / len(uses)

    def upkeep(self, store: Store) -> float | None:
        """Return the work to keep a store true per batch; None if it was never kept."""
        counts = self._stores.get(store)
        return sum(each.ns for each in counts) / len(counts) if counts else None

    def n_bytes(self, store: Store) -> int:
        """Return the size of a store in all buckets (bytes)."""
        return self._stores[store][-1].n_bytes if store in self._stores else 0

    def counts(self, cache: Candidate) -> Used:
        """Return the counts of a cache; all 0 if it was never used."""
        return self._used.get(cache, Used())
