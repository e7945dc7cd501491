"""Caches between batches: in the memory of the process that made them, and nowhere else.

Windows alone are durable state. A cache may lack any key at any time, so losing one costs time, and
using a wrong one would cost results. So a cache is used in a batch only if the runs that it was
kept true to are, name by name, those that the committed manifest starts the batch from. Names are
never used twice and every attempt at a batch gives its own, so a cache that missed a batch, or went
through an attempt that failed or ran again, does not fit. A batch takes the caches out and puts
them back when it is through: an attempt that fails half-way leaves nothing behind.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from eddyline.joins.caches.counts import Place
    from eddyline.joins.caches.hash_store import KeptRows
    from eddyline.joins.caches.prefix_invariant import Store

MOST_KEPT = 32
"""Most buckets of which a process keeps caches: the ones that it worked on last."""

REMEMBERED = 32
"""Batches for which a sampled key is remembered."""

MOST_REMEMBERED = 1 << 15
"""Most sampled keys that are remembered at a place; beyond that fewer keys are sampled."""

RunNames = dict[str, tuple[str, ...]]
"""The names of the runs of each input."""


@dataclass(slots=True)
class SeenKeys:
    """Sampled keys of the latest batches at one place."""

    bits: int
    """One in 2^bits keys is sampled."""
    hashes: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    """Ascending."""
    last: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """The batch in which each came last."""

    def has(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return for each key whether it is remembered."""
        if not self.hashes.size:
            return np.zeros(hashes.size, np.bool_)
        at = np.minimum(self.hashes.searchsorted(hashes), self.hashes.size - 1)
        return np.equal(self.hashes[at], hashes)

    def sampled(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the places of the hashes of keys that are sampled."""
        return sampled_places(hashes, self.bits)

    def add(self, hashes: NDArray[np.uint64], batch_id: int) -> int:
        """Remember the keys of a batch (distinct, ascending hashes); returns how many are new."""
        is_known = self.has(hashes)
        self.last[self.hashes.searchsorted(hashes[is_known])] = batch_id
        fresh = hashes[~is_known]
        stay = self.last > batch_id - REMEMBERED
        known = np.concatenate([self.hashes[stay], fresh])
        last = np.concatenate([self.last[stay], np.full(fresh.size, batch_id)])
        order = np.argsort(known, kind="stable")
        self.hashes, self.last = known[order], last[order]
        while self.hashes.size > MOST_REMEMBERED:
            self.thin(self.bits + 1)
        return fresh.size

    def thin(self, bits: int) -> None:
        """Go on with fewer keys: one in 2^bits, which may not be more than before."""
        self.bits = bits
        stay = (self.hashes & np.uint64((1 << bits) - 1)) == 0
        self.hashes, self.last = self.hashes[stay], self.last[stay]


@dataclass(slots=True)
class BucketCaches:
    """The caches of one bucket, and the profile of candidates."""

    stores: dict[Store, KeptRows] = field(default_factory=dict)
    after: RunNames = field(default_factory=dict)
    """The runs that the stores are true to."""
    numbers: dict[str, dict[str, int]] = field(default_factory=dict)
    """By input and run, the number of its first row; no two runs of an input share a number."""
    next_number: dict[str, int] = field(default_factory=dict)
    """By input, the first number that was never given."""
    latest: dict[str, int] = field(default_factory=dict)
    """By input, the latest start of a row in the runs that ``after`` names, or later (µs)."""
    seen: dict[Place, SeenKeys] = field(default_factory=dict)
    """Sampled keys where candidates are profiled."""

    def fits(self, store: Store, before: Mapping[str, Sequence[str]]) -> bool:
        """Return whether a store is true to the runs that a batch starts from.

        The runs of its partners count as well: their new rows may need what was never put in.
        """
        return all(self.is_at(name, before) for name in store.closed)

    def is_at(self, name: str, before: Mapping[str, Sequence[str]]) -> bool:
        """Return whether the runs of an input are those that a batch starts from."""
        return self.after.get(name, ()) == tuple(before.get(name, ()))

    def number(self, name: str, run: str, n_rows: int) -> int:
        """Return the number of the first row of a run, a new one if it has none."""
        numbers = self.numbers.setdefault(name, {})
        if run not in numbers:
            numbers[run] = self.next_number.get(name, 0)
            self.next_number[name] = numbers[run] + n_rows
        return numbers[run]


_kept: OrderedDict[tuple[str, int], BucketCaches] = OrderedDict()
_lock = threading.Lock()


def take_out(folder: str, bucket: int) -> BucketCaches:
    """Return the caches of a bucket, which are not kept any more; empty ones if there are none."""
    with _lock:
        return _kept.pop((folder, bucket), None) or BucketCaches()


def put_back(folder: str, bucket: int, caches: BucketCaches) -> None:
    """Keep the caches of a bucket for its next batch."""
    with _lock:
        _kept[folder, bucket] = caches
        while len(_kept) > MOST_KEPT:
            _kept.popitem(last=False)


def forget() -> None:
    """Drop the caches of all buckets."""
    with _lock:
        _kept.clear()


@compiled
def sampled_places(hashes: NDArray[np.uint64], bits: int) -> NDArray[np.int64]:
    """Return the places of hashes whose last bits, so many of them, are all 0."""
    mask, n = np.uint64((1 << bits) - 1), 0
    found = np.empty(hashes.size, np.int64)
    for at in range(hashes.size):
        found[n] = at
        n += (hashes[at] & mask) == np.uint64(0)
    return found[:n].copy()
