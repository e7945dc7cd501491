"""Which caches a batch uses, and what was counted of them. Counts of buckets merge."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eddyline.joins.caches.prefix_invariant import Candidate, Store

Place = tuple[str, int, tuple[int, ...]]
"""Where a cache is, or would be, asked: the pipeline, the position, and the classes of the key."""


def place_of(candidate: Candidate) -> Place:
    """Return where a candidate is asked."""
    return candidate.pipeline, candidate.start, candidate.store.key


@dataclass(frozen=True, slots=True)
class CachePlan:
    """What the pipelines of a batch do with caches; the same for every bucket."""

    used: tuple[Candidate, ...] = ()
    """The caches that are asked. One that cannot be used with the orders of the batch is not."""
    kept: tuple[Store, ...] = ()
    """Stores that are kept true although no cache of them may be asked."""
    profiled: tuple[Candidate, ...] = ()
    """Candidates of which keys are counted."""
    limits: Mapping[Store, int] = field(default_factory=dict)
    """Memory of each store in a bucket (bytes); a missing one has none."""
    copies: str = ""
    """Names the run of the query whose workers, where they are on one machine, leave each other
    copies of what they keep; none do if empty."""
    sample_bits: int = 0
    """One in 2^bits keys is counted where candidates are profiled."""

    @property
    def stores(self) -> tuple[Store, ...]:
        """The stores that are kept true."""
        return tuple(dict.fromkeys((*(each.store for each in self.used), *self.kept)))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.used or self.kept or self.profiled)


NO_CACHES = CachePlan()
"""Plain pipelines."""


@dataclass(slots=True)
class UseCounts:
    """What one cache did."""

    n_rows: int = 0
    """Rows, or combinations of rows, that came to it."""
    n_keys: int = 0
    """Distinct keys of them."""
    n_hits: int = 0
    """Of those, the ones that it had before the batch."""
    n_out: int = 0
    """Combinations that went on behind it."""
    n_put: int = 0
    """Joined rows that were put in for keys that it did not have."""
    n_asked: int = 0
    """New rows of which it was asked whether they may use a hit; see ``cache_partners``."""
    ns: int = 0
    """Time that it took, with the evaluation of misses (ns)."""
    miss_ns: int = 0
    """Of that, what evaluating misses took."""

    def add(self, other: UseCounts) -> None:
        """Add what the same cache did elsewhere."""
        self.n_rows += other.n_rows
        self.n_keys += other.n_keys
        self.n_hits += other.n_hits
        self.n_out += other.n_out
        self.n_put += other.n_put
        self.n_asked += other.n_asked
        self.ns += other.ns
        self.miss_ns += other.miss_ns

    @property
    def n_misses(self) -> int:
        """Distinct keys that it did not have."""
        return self.n_keys - self.n_hits


@dataclass(slots=True)
class StoreCounts:
    """What keeping one store true took."""

    n_seen: int = 0
    """Changes of the join that its taps saw."""
    n_kept: int = 0
    """Of those, rows whose key it has."""
    ns: int = 0
    """Time that the taps took, and removing what is dead (ns)."""
    n_entries: int = 0
    """Keys that it has after the batch."""
    n_rows: int = 0
    """Joined rows that it has."""
    n_bytes: int = 0
    """What they take."""
    n_cold: int = 0
    """Buckets in which it was empty before the batch."""

    def add(self, other: StoreCounts) -> None:
        """Add what the same store took elsewhere."""
        self.n_seen += other.n_seen
        self.n_kept += other.n_kept
        self.ns += other.ns
        self.n_entries += other.n_entries
        self.n_rows += other.n_rows
        self.n_bytes += other.n_bytes
        self.n_cold += other.n_cold


@dataclass(slots=True)
class KeyCounts:
    """Sampled keys at one place where a cache would be asked."""

    n_keys: int = 0
    """Distinct sampled keys of the batch."""
    n_new: int = 0
    """Of those, keys that did not come in the batches that are remembered."""
    n_rows: int = 0
    """Sampled rows."""
    n_asked: int = 0
    """Of those, rows of which it was asked whether they might use a hit; see ``cache_partners``."""
    n_supported: int = 0
    """Of those, the ones that might."""
    n_looked: int = 0
    """Look-ups that this took; as they are, the other counts stand for all keys."""
    n_batches: int = 0
    """Batches that are remembered, the sum over buckets."""
    n_buckets: int = 0
    """Buckets that counted."""

    def add(self, other: KeyCounts) -> None:
        """Add what was counted elsewhere."""
        self.n_keys += other.n_keys
        self.n_new += other.n_new
        self.n_rows += other.n_rows
        self.n_asked += other.n_asked
        self.n_supported += other.n_supported
        self.n_looked += other.n_looked
        self.n_batches += other.n_batches
        self.n_buckets += other.n_buckets


@dataclass(slots=True)
class ChangeCounts:
    """Sampled changes of a join that a candidate would have to keep."""

    n_seen: int = 0
    """Those with a sampled key."""
    n_kept: int = 0
    """Of those, changes whose key is remembered at a place of the store."""

    def add(self, other: ChangeCounts) -> None:
        """Add what was counted elsewhere."""
        self.n_seen += other.n_seen
        self.n_kept += other.n_kept


@dataclass(slots=True)
class CacheReport:
    """What the caches of one bucket, or of several, did in one batch."""

    uses: dict[Candidate, UseCounts] = field(default_factory=dict)
    stores: dict[Store, StoreCounts] = field(default_factory=dict)
    keys: dict[Place, KeyCounts] = field(default_factory=dict)
    changes: dict[Store, ChangeCounts] = field(default_factory=dict)
    """Of the stores of candidates that are profiled."""
    profile_ns: int = 0
    """Time that profiling took (ns)."""

    @classmethod
    def together(cls, parts: Iterable[CacheReport]) -> CacheReport:
        """Return what several buckets did."""
        whole = cls()
        for part in parts:
            for cache, use in part.uses.items():
                whole.uses.setdefault(cache, UseCounts()).add(use)
            for store, kept in part.stores.items():
                whole.stores.setdefault(store, StoreCounts()).add(kept)
            for place, keys in part.keys.items():
                whole.keys.setdefault(place, KeyCounts()).add(keys)
            for store, changes in part.changes.items():
                whole.changes.setdefault(store, ChangeCounts()).add(changes)
            whole.profile_ns += part.profile_ns
        return whole
