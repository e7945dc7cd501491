"""Which bucket a row belongs to: a grid of hashes with one dimension for each key class.

A row lies where the hashes of its keys say; along a class in which its input has no key it lies
everywhere, so a copy of it is in each of those buckets. A result has one key in every class, so all
its rows meet in one bucket, and only there.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from numpy.typing import NDArray

    from eddyline.joins.graph import JoinGraph

N_BINS = 240
"""Parts that hashes are counted in; what divides it can be a length of the grid."""

Bins = dict[tuple[str, int], "NDArray[Any]"]
"""By input and key class, how many rows have a hash in each bin ((N_BINS,))."""

_PRIMES = tuple(
    np.uint64(each)
    for each in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_SEED = np.uint64(42)


def bins_of(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bin of each code: Spark's ``pmod(xxhash64(code), N_BINS)``."""
    first, second, third, fourth, fifth = _PRIMES
    with np.errstate(over="ignore"):
        mixed = _rotated(codes.view(np.uint64) * second, 31) * first
        found = _rotated((_SEED + fifth + np.uint64(8)) ^ mixed, 27) * first + fourth
        found = (found ^ (found >> np.uint64(33))) * second
        found = (found ^ (found >> np.uint64(29))) * third
        found ^= found >> np.uint64(32)
    return found.view(np.int64) % N_BINS


def _rotated(bits: NDArray[np.uint64], by: int) -> NDArray[np.uint64]:
    return (bits << np.uint64(by)) | (bits >> np.uint64(64 - by))


@dataclass(frozen=True, slots=True)
class Grid:
    """How the rows of a join are cut into buckets."""

    shape: tuple[int, ...]
    """In how many parts each key class is cut; each a divisor of N_BINS, 1 if it is not cut."""

    @property
    def n_buckets(self) -> int:
        """How many buckets there are."""
        return prod(self.shape)

    def place(self, bucket: int) -> tuple[int, ...]:
        """Return where a bucket is in the grid."""
        return tuple(int(each) for each in np.unravel_index(bucket, self.shape or (1,)))

    def holds(self, bucket: int, codes: Mapping[int, NDArray[np.int64]]) -> NDArray[np.bool_]:
        """Return which rows belong to a bucket.

        Args:
            bucket: its number.
            codes: of each row, by key class; at least one.
        """
        place = self.place(bucket)
        held = np.ones(len(next(iter(codes.values()))), np.bool_)
        for key, of in codes.items():
            held &= bins_of(of) % self.shape[key] == place[key]
        return held

    def once(self, classes: Collection[int]) -> Iterator[int]:
        """Yield buckets that together hold each row of an input with these key classes once."""
        sizes = [size if key in classes else 1 for key, size in enumerate(self.shape)]
        for place in product(*map(range, sizes)):
            yield int(np.ravel_multi_index(place, self.shape)) if place else 0


def chosen_grid(graph: JoinGraph, n_buckets: int, bins: Bins | None = None) -> Grid:
    """Return the grid whose fullest bucket has the fewest rows to join.

    Args:
        graph: what is joined with what.
        n_buckets: most buckets; fewer where the grid allows no such number.
        bins: what was counted; all inputs alike, and no key more often than others, if omitted.
    """
    shapes = sorted(_shapes(len(graph.classes), n_buckets), key=lambda shape: (prod(shape), shape))
    # Of shapes with equally full buckets the one with the fewest buckets, whose state is smallest.
    return Grid(min(shapes, key=lambda shape: fullest(graph, Grid(shape), bins)))


def fullest(graph: JoinGraph, grid: Grid, bins: Bins | None = None) -> float:
    """Return how many rows the fullest bucket of a grid gets, as far as bins tell.

    The classes of an input are taken as independent of each other.

    Args:
        graph: what is joined with what.
        grid: the grid.
        bins: what was counted; see ``chosen_grid``.
    """
    load = np.zeros(grid.shape)
    for name in graph.inputs:
        part, n_rows = np.ones(grid.shape), 1.0
        for key in graph.classes_of[name]:
            counts = np.ones(N_BINS) if bins is None else bins[name, key]
            n_rows = float(counts.sum()) if bins is not None else 1.0
            by_part = np.bincount(np.arange(N_BINS) % grid.shape[key], weights=counts)
            shares = by_part / max(by_part.sum(), 1.0)
            part = part * shares.reshape([-1 if at == key else 1 for at in range(load.ndim)])
        load += part * n_rows
    return float(load.max())


def _shapes(n_classes: int, n_buckets: int) -> Iterator[tuple[int, ...]]:
    """Yield every shape of at most so many buckets."""
    if n_classes == 0:
        yield ()
        return
    for size in range(1, n_buckets + 1):
        if N_BINS % size == 0:
            for rest in _shapes(n_classes - 1, n_buckets // size):
                yield (size, *rest)
