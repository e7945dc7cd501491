"""Streams with a known k [Babu05 6.2], as arrays: seeded, and versioned by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from eddyline.data.arrays import Ints

EVERY_US = 1_000
"""Rows of a stream follow each other by so much event time (µs)."""

Batches = Iterator[Mapping[str, tuple[Ints, ...]]]
"""By input, the keys (one or more) and event times (µs) of the rows of each batch."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is generated."""

    n_batches: int
    n_rows: int
    """Rows of each stream in a batch."""


def cut(streams: Mapping[str, tuple[Ints, ...]], n_batches: int) -> Batches:
    """Yield streams in batches of equal event time."""
    first = min(int(at[0]) for *_, at in streams.values())
    last = max(int(at[-1]) for *_, at in streams.values())
    ends = np.linspace(first, last + 1, n_batches + 1)
    for low, high in pairwise(ends):
        found = {}
        for name, columns in streams.items():
            one, other = np.searchsorted(columns[-1], [low, high])
            found[name] = tuple(each[one:other] for each in columns)
        yield found


def _instants(number: int, size: Size) -> Ints:
    return (number * size.n_rows + np.arange(size.n_rows)) * EVERY_US


def ordered_v1(size: Size, k: int, seed: int = 0) -> Batches:
    """Yield two streams whose keys ascend: OA(k) on either side, each key twice on average.

    A key is at most k rows away from where its order would have it.
    """
    rng = np.random.default_rng([seed, 71])
    for number in range(size.n_batches):
        at = number * size.n_rows + np.arange(size.n_rows)
        yield {
            name: ((at + rng.integers(0, k + 1, size.n_rows)) // 2, _instants(number, size))
            for name in "st"
        }


def clustered_v1(size: Size, k: int, n_alive: int = 100, seed: int = 0) -> Batches:
    """Yield two streams in which equal keys come close together: CA(k), in no order.

    So many keys are alive at a time in both streams, each for k rows.
    """
    rng = np.random.default_rng([seed, 72])
    for number in range(size.n_batches):
        at = number * size.n_rows + np.arange(size.n_rows)
        found = {}
        for name in "st":
            lane = rng.integers(0, n_alive, size.n_rows)
            # A lane takes a new key every k rows; lanes do not all do so at once.
            generation = (at + lane * (k // n_alive)) // k
            found[name] = (mixed(generation * n_alive + lane), _instants(number, size))
        yield found


def jumping_v1(size: Size, ks: tuple[int, ...], n_each: int, seed: int = 0) -> Batches:
    """Yield ordered streams whose k is another one after every so many batches."""
    rng = np.random.default_rng([seed, 73])
    for number in range(size.n_batches):
        k = ks[number // n_each % len(ks)]
        at = number * size.n_rows + np.arange(size.n_rows)
        yield {
            name: (
                np.maximum(at - rng.integers(0, k + 1, size.n_rows), 0) // 2,
                _instants(number, size),
            )
            for name in "st"
        }


def uniform_v1(size: Size, n_keys: int, seed: int = 0) -> Batches:
    """Yield two streams with uniform keys: partners come at any time of a window."""
    rng = np.random.default_rng([seed, 74])
    for number in range(size.n_batches):
        yield {
            name: (rng.integers(0, n_keys, size.n_rows), _instants(number, size)) for name in "st"
        }


def answered_v1(size: Size, soon: int, late: int, late_share: float, seed: int = 0) -> Batches:
    """Yield requests ``s`` with a key each, and one answer ``t`` for most of them.

    Most answers come within ``soon`` rows; a share of them takes up to ``late`` rows, so that no
    bound of time short of that holds them; a tenth never comes.
    """
    rng = np.random.default_rng([seed, 75])
    n = size.n_batches * size.n_rows
    asked = np.arange(n)
    waits = rng.integers(1, soon + 1, n)
    is_late = rng.random(n) < late_share
    waits[is_late] = rng.integers(1, late + 1, int(is_late.sum()))
    kept = rng.random(n) < 0.9
    at = asked + waits
    order = np.argsort(at, kind="stable")
    order = order[kept[order] & (at[order] < n)]
    keys, instants = mixed(asked), asked * EVERY_US
    answered = at[order] * EVERY_US
    cuts = np.searchsorted(at[order], np.arange(0, n + 1, size.n_rows))
    for number in range(size.n_batches):
        low, high = number * size.n_rows, (number + 1) * size.n_rows
        first, last = cuts[number], cuts[number + 1]
        yield {
            "s": (keys[low:high], instants[low:high]),
            "t": (keys[order[first:last]], answered[first:last]),
        }


def waiting_v1(size: Size, k: int, late: int, late_share: float, seed: int = 0) -> Batches:
    """Yield rows ``t`` in clusters, in no order, and rows ``s`` that wait for them.

    Each key has two rows of either stream. Those of ``t`` come within k rows, CA(k); those of ``s``
    up to k rows before or after the first of these, a share of them up to ``late`` rows before it,
    so that no bound of time short of that holds them.
    """
    rng = np.random.default_rng([seed, 77])
    n = size.n_batches * size.n_rows // 2
    first = 2 * np.arange(n)
    keys = np.tile(mixed(np.arange(n)), 2)
    waits = rng.integers(-k, k + 1, 2 * n)
    is_late = rng.random(2 * n) < late_share
    waits[is_late] = rng.integers(0, late + 1, int(is_late.sum()))
    streams = {
        "s": np.maximum(np.tile(first, 2) - waits, 0),
        "t": np.concatenate([first, first + rng.integers(0, k + 1, n)]),
    }
    orders = {name: np.argsort(at, kind="stable") for name, at in streams.items()}
    ends = np.arange(size.n_batches + 1) * size.n_rows
    cuts = {name: np.searchsorted(at[orders[name]], ends) for name, at in streams.items()}
    for number in range(size.n_batches):
        found = {}
        for name, at in streams.items():
            mine = orders[name][cuts[name][number] : cuts[name][number + 1]]
            found[name] = keys[mine], at[mine] * EVERY_US
        yield found


def announced_v1(size: Size, k: int, ahead: int, ahead_share: float, seed: int = 0) -> Batches:
    """Yield rows ``s`` whose keys ascend, OA(k), and rows ``t`` that are announced before theirs.

    Most come up to k rows before the first one with their key, a share of them up to ``ahead``
    rows, so that no bound of time short of that holds them.
    """
    rng = np.random.default_rng([seed, 76])
    for number in range(size.n_batches):
        at = number * size.n_rows + np.arange(size.n_rows)
        early = rng.integers(0, k + 1, size.n_rows)
        is_early = rng.random(size.n_rows) < ahead_share
        early[is_early] = rng.integers(0, ahead + 1, int(is_early.sum()))
        keys = at - rng.integers(0, k + 1, size.n_rows)
        yield {
            "s": (keys, _instants(number, size)),
            "t": (at + early, _instants(number, size)),
        }


def mixed(numbers: Ints) -> Ints:
    """Return numbers in another order: bijective, so that zones tell nothing."""
    wide = numbers.astype(np.uint64) * np.uint64(0x9E3779B185EBCA87)
    return wide.view(np.int64)
