"""The caches of a batch as a plan, and what was counted of them. Counts of buckets merge."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eddyline.joins.caches.prefix_invariant import Candidate, Store

Key = TypeVar("Key")
Counts = TypeVar("Counts", bound="_Counts")

Place = tuple[str, int, tuple[int, ...]]
"""The place at which a cache is, or would be, asked: pipeline, position, and classes of the key."""


def place_of(candidate: Candidate) -> Place:
    """Return the place at which a candidate is asked."""
    return candidate.pipeline, candidate.start, candidate.store.key


@dataclass(frozen=True, slots=True)
class CachePlan:
    """The caches of the pipelines in a batch; the same for every bucket."""

    used: tuple[Candidate, ...] = ()
    """The caches to ask; a bucket leaves out those that are not sound with the orders in force."""
    kept: tuple[Store, ...] = ()
    """Stores that are kept true although no cache of them may be asked."""
    profiled: tuple[Candidate, ...] = ()
    """Candidates whose keys are sampled."""
    limits: Mapping[Store, int] = field(default_factory=dict)
    """Memory of each store in a bucket (bytes); a missing one has none."""
    sample_bits: int = 0
    """One in 2^bits keys is sampled where candidates are profiled."""

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
class _Counts:
    """Counts that add up."""

    def add(self, other: Self) -> None:
        """Add the counts of the same thing in another bucket."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


@dataclass(slots=True)
class UseCounts(_Counts):
    """The counts of one cache."""

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
    """New rows of which it was asked whether they may use a hit; see ``prefix_invariant``."""
    ns: int = 0
    """Time that it took, with the joins of missing keys (ns)."""
    miss_ns: int = 0
    """Of that, the joins of missing keys (ns)."""


@dataclass(slots=True)
class StoreCounts(_Counts):
    """The counts of keeping one store true."""

    n_seen: int = 0
    """Changes of the join that its taps saw."""
    n_kept: int = 0
    """Of those, rows whose key it has."""
    ns: int = 0
    """Time that the taps took, and the removal of dead rows (ns)."""
    n_entries: int = 0
    """Keys that it has after the batch."""
    n_rows: int = 0
    """Joined rows that it has."""
    n_bytes: int = 0
    """Their size."""


@dataclass(slots=True)
class KeyCounts(_Counts):
    """Sampled keys at the place of a candidate."""

    n_new: int = 0
    """Distinct keys that did not come in the batches that are remembered."""
    n_rows: int = 0
    """Sampled rows."""
    n_asked: int = 0
    """Of those, rows that were asked for whether they may use a hit; see ``prefix_invariant``."""
    n_supported: int = 0
    """Of those, the ones that might."""
    n_looked: int = 0
    """Look-ups that this took. The other counts are scaled up to all keys, this one is not."""


@dataclass(slots=True)
class ChangeCounts(_Counts):
    """Sampled changes of a join that a candidate would have to keep."""

    n_seen: int = 0
    """Changes with a sampled key."""
    n_kept: int = 0
    """Of those, changes whose key is remembered at a place of the store."""


@dataclass(slots=True)
class CacheReport:
    """The counts of the caches of one bucket, or of several, in one batch."""

    uses: dict[Candidate, UseCounts] = field(default_factory=dict)
    stores: dict[Store, StoreCounts] = field(default_factory=dict)
    keys: dict[Place, KeyCounts] = field(default_factory=dict)
    changes: dict[Store, ChangeCounts] = field(default_factory=dict)
    """Of the stores of candidates that are profiled."""
    profile_ns: int = 0
    """Time that profiling took (ns)."""

    @classmethod
    def merge(cls, parts: Iterable[CacheReport]) -> CacheReport:
        """Return the sum of several buckets."""
        whole = cls()
        for part in parts:
            _add_all(whole.uses, part.uses)
            _add_all(whole.stores, part.stores)
            _add_all(whole.keys, part.keys)
            _add_all(whole.changes, part.changes)
            whole.profile_ns += part.profile_ns
        return whole


def _add_all(sums: dict[Key, Counts], part: Mapping[Key, Counts]) -> None:
    for key, counts in part.items():
        sums.setdefault(key, type(counts)()).add(counts)
