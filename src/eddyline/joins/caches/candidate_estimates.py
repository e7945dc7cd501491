"""The expected worth of candidates that are not in use, from sampled keys and sampled changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eddyline.joins.caches.cost_model import CacheUse, Changes, benefit, upkeep_cost
from eddyline.joins.caches.counts import place_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from eddyline.joins.caches.counts import CacheReport, ChangeCounts, KeyCounts, Place
    from eddyline.joins.caches.pipeline_costs import PipelineCosts
    from eddyline.joins.caches.prefix_invariant import Candidate, Store

PROFILED_BATCHES = 5
"""Batches that candidates are profiled for: the last ones tell how often keys come again."""

TELLING = 2
"""The last batches of a profile, which its estimates are of."""


@dataclass(frozen=True, slots=True)
class CacheCosts:
    """The work of a cache, before it was measured in use (ns)."""

    probe: float = 40.0
    """To look a row's key up."""
    expand: float = 35.0
    """To put a combination together from a kept row."""
    update: float = 60.0
    """To put a joined row in."""
    look_up: float = 30.0
    """To look the key of a change up."""


class CandidateEstimates:
    """Profiles of candidates, and the worths that follow from them."""

    def __init__(self, costs: CacheCosts) -> None:
        self.costs = costs
        self._keys: dict[Place, list[KeyCounts]] = {}
        self._changes: dict[Store, list[ChangeCounts]] = {}
        self._n_batches = 0

    @property
    def are_known(self) -> bool:
        """Whether candidates were profiled for long enough."""
        return self._n_batches >= PROFILED_BATCHES

    def observe(self, report: CacheReport, *, is_profiled: bool) -> None:
        """Take in a batch, whose plan may have profiled candidates."""
        for place, keys in report.keys.items():
            self._keys.setdefault(place, []).append(keys)
        for store, changes in report.changes.items():
            self._changes.setdefault(store, []).append(changes)
        self._n_batches += is_profiled

    def restart(self) -> None:
        """Forget all profiles: another one begins."""
        self._keys, self._changes, self._n_batches = {}, {}, 0

    def forget(self, pipelines: Collection[str]) -> None:
        """Forget the keys of pipelines whose order has changed, and profile for the whole time."""
        self._keys = {at: each for at, each in self._keys.items() if at[0] not in pipelines}
        self._n_batches = 0

    def benefit(self, cache: Candidate, joins: PipelineCosts) -> float:
        """Return the work that a candidate would save per batch."""
        seen = self._keys.get(place_of(cache), ())[-TELLING:]
        stretch = joins.spared_by(cache)
        n_rows = sum(keys.n_rows for keys in seen)
        if not n_rows or not stretch.rows[0]:
            return 0.0
        expand = stretch.rows_per_entry * self.costs.expand
        miss_frac = sum(keys.n_new for keys in seen) / n_rows
        if cache.is_self_supporting:
            miss_frac = max(miss_frac, _unsupported_frac(seen))
        use = CacheUse(miss_frac, self.costs.probe + expand, self.costs.update)
        asked = joins.stretch(cache.pipeline, 0, 1).rows[0] if cache.is_self_supporting else 0.0
        return benefit(stretch, use) - asked * self.costs.look_up

    def upkeep(self, store: Store, joins: PipelineCosts) -> float:
        """Return the work to keep a store consistent per batch."""
        changes = self._changes.get(store, ())[-TELLING:]
        seen = sum(self._changes_seen(name, store, joins) for name in sorted(store.closed))
        sampled = sum(each.n_seen for each in changes)
        kept = seen * sum(each.n_kept for each in changes) / sampled if sampled else seen
        return upkeep_cost(Changes(seen, kept), self.costs.update, self.costs.look_up)

    def _changes_seen(self, pipeline: str, store: Store, joins: PipelineCosts) -> float:
        """Return the changes that the tap of a store in a pipeline would see per batch."""
        seen = joins.stretch(pipeline, 0, store.tap).rows[-1]
        for place, keys in self._keys.items():
            if pipeline in store.partners and place[0] == pipeline and place[2] == store.key:
                # Where the pipeline asks the store itself, rows that may use a hit bring no change.
                return seen * _unsupported_frac(keys[-TELLING:])
        return seen


def _unsupported_frac(seen: Sequence[KeyCounts]) -> float:
    """Return the share of sampled rows that might not use a hit ([0, 1]); 1 if none was asked."""
    n_asked = sum(keys.n_asked for keys in seen)
    return 1.0 - sum(keys.n_supported for keys in seen) / n_asked if n_asked else 1.0
