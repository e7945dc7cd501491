"""The streams of the thesis' join graphs (Fig 6.9), rebuilt: seeded, and versioned by name.

Windows of the thesis count the rows of a stream. Here an instant is the number of the arrival, rows
that a filter drops included, so that a window of event time has the same rows: 50,000 of a stream
are as many arrivals as come meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.constraints.data import EVERY_US, mixed
from eddyline.data.arrays import Ints, Mask
from eddyline.joins.graph import JoinGraph

Floats = NDArray[np.float64]

WINDOW_ROWS = 50_000
"""Rows of each window [Babu05 6.5]."""

STAR = JoinGraph(("s1", "s2", "s3"), (frozenset({"s1", "s2"}), frozenset({"s1", "s3"})))
"""Fig 6.9(a): S1(A, B) has its child on A in S2, and its child on B in S3."""

TWO_ROOTS = JoinGraph(("s1", "s2", "s3"), (frozenset({"s1", "s2", "s3"}),))
"""Fig 6.9(b): S1(A) and S2(A) have their child in S3."""

EDGE = JoinGraph(("s1", "s2"), (frozenset({"s1", "s2"}),))
"""Fig 6.9(c): S1(A) has its child in S2."""


@dataclass(frozen=True)
class Graph:
    """A join and its rows."""

    join: JoinGraph
    streams: Mapping[str, tuple[Ints, ...]]
    """By input, the keys of its rows by class, and their instants (µs), ascending."""
    lengths: Mapping[str, int]
    """Of each window (µs)."""
    keys: Mapping[str, int]
    """The key class in which an input has each key once: where edges end."""
    n_arrivals: int
    """Arrivals in all, those that a filter drops included."""


Arrivals = tuple[NDArray[np.floating[Any]], tuple[Ints, ...], Mask | None]
"""When rows come (any unit), their keys by class, and which pass the filter (None: all)."""


def _graph(
    join: JoinGraph, arrivals: Mapping[str, Arrivals], rates: Mapping[str, int], keys: str
) -> Graph:
    """Return the rows of some streams in the order in which they come."""
    sizes = [when.size for when, *_ in arrivals.values()]
    order = np.argsort(np.concatenate([when for when, *_ in arrivals.values()]), kind="stable")
    number = np.empty(order.size, np.int64)
    number[order] = np.arange(order.size)
    parts = np.split(number * EVERY_US, np.cumsum(sizes)[:-1])
    streams = {}
    for (name, (_, codes, passes)), at in zip(arrivals.items(), parts, strict=True):
        chosen = np.argsort(at, kind="stable")
        chosen = chosen if passes is None else chosen[passes[chosen]]
        streams[name] = (*(each[chosen] for each in codes), at[chosen])
    arrivals_a_row = {name: sum(rates.values()) / rate for name, rate in rates.items()}
    lengths = {n: int(WINDOW_ROWS * each) * EVERY_US for n, each in arrivals_a_row.items()}
    unique = {name: join.classes_of[name][0] for name in keys.split()}
    return Graph(join, streams, lengths, unique, order.size)


def _half(rng: np.random.Generator, n: int, share: float = 0.5) -> Mask:
    return rng.random(n) < share


def _upto(rng: np.random.Generator, k: Ints) -> Ints:
    """Return whole numbers from 0 to each k, evenly spread."""
    return rng.integers(0, k + 1)


def rids_v1(k: Ints, seed: int = 0) -> Graph:
    """Return graph (a) with RIDS(k) on both edges, join distances uniform on 0..k.

    ``k`` has a value for each row of S2, of which as many come as of S3, and a fifth of S1.
    """
    n, rng = k.size, np.random.default_rng([seed, 81])
    each, parents = np.arange(n), np.arange(5 * n) // 5
    when = parents + (np.arange(5 * n) % 5 + 1) / 6
    own = tuple(parents + _upto(rng, k[parents]) for _ in "ab")
    arrivals: dict[str, Arrivals] = {"s1": (when, own, None)}
    for i in (2, 3):
        arrivals[f"s{i}"] = (each + 0.01 * i, (each,), _half(rng, n))
    return _graph(STAR, arrivals, {"s1": 5, "s2": 1, "s3": 1}, "s2 s3")


def _ranks(when: Floats) -> Floats:
    ranks = np.empty(when.size)
    ranks[np.argsort(when, kind="stable")] = np.arange(when.size)
    return ranks


def two_roots_v1(k: Ints, *, is_ordered: bool, seed: int = 0) -> Graph:
    """Return graph (b), where five rows each of S1 and S2 have a value, which S3 has before them.

    Args:
        k: for each value: its rows are at most so many rows of their stream apart; how many is
            uniform on 0..k.
        is_ordered: whether values ascend, so that rows are as much out of order: OAP(k) in place of
            CA(k), in no order.
        seed: of what is drawn.
    """
    n, rng = k.size, np.random.default_rng([seed, 82 + is_ordered])
    values, first = np.repeat(np.arange(n), 5), np.full(n, np.inf)
    names = np.arange(n) if is_ordered else mixed(np.arange(n))
    arrivals: dict[str, Arrivals] = {}
    for name in ("s1", "s2"):
        apart = _upto(rng, k)[values]
        when = _ranks(np.arange(5 * n) + rng.random(5 * n) * apart) / 5
        np.minimum.at(first, values, when)
        arrivals[name] = (when + (0.01 if name == "s1" else 0.02), (names[values],), None)
    arrivals["s3"] = (first, (names,), _half(rng, n))
    return _graph(TWO_ROOTS, arrivals, {"s1": 5, "s2": 5, "s3": 1}, "s3")


def oac_v1(k: Ints, seed: int = 0) -> Graph:
    """Return graph (c), S1 in order, and rows of S2 out of it by 0 to k rows of S2, uniform."""
    n, rng = k.size, np.random.default_rng([seed, 84])
    parents = np.arange(5 * n) // 5
    children = _ranks(np.arange(n) + rng.random(n) * _upto(rng, k))
    arrivals: dict[str, Arrivals] = {
        "s1": (parents + (np.arange(5 * n) % 5 + 1) / 6, (parents,), None),
        "s2": (children, (np.arange(n),), _half(rng, n)),
    }
    return _graph(EDGE, arrivals, {"s1": 5, "s2": 1}, "s2")


def combined_v1(n: int, seed: int = 0) -> Graph:
    """Return graph (a) with CA(0) on S1.A and OAC(5000) on S3.B; 25 % of S1 have no child in S3."""
    rng, k = np.random.default_rng([seed, 85]), 5_000
    each, parents = np.arange(n), np.arange(5 * n) // 5
    others = parents.copy()
    childless = _half(rng, 5 * n, 0.25)
    others[childless] = -1 - np.flatnonzero(childless)
    late = _ranks(each + rng.random(n) * _upto(rng, np.full(n, k)))
    when = parents + (np.arange(5 * n) % 5 + 1) / 6
    arrivals: dict[str, Arrivals] = {
        "s1": (when, (mixed(parents), others), None),
        "s2": (each.astype(float), (mixed(each),), _half(rng, n)),
        "s3": (late + 0.01, (each,), _half(rng, n)),
    }
    return _graph(STAR, arrivals, {"s1": 5, "s2": 1, "s3": 1}, "s2 s3")


def crossover_v1(k: int, n: int, seed: int = 0) -> Graph:
    """Return graph (c) of Fig 6.18: two parents a child, of which a tenth passes its filter.

    The first comes up to k rows of S2 before its child (RIDS(k)), the second up to 5,000 rows of S1
    after the first (CA(5000)); both are uniform.
    """
    rng, each = np.random.default_rng([seed, 86]), np.arange(n)
    first = each - _upto(rng, np.full(n, k)).astype(float)
    second = first + rng.random(n) * 2_500
    names = mixed(each)
    arrivals: dict[str, Arrivals] = {
        "s1": (np.concatenate([first, second]), (np.tile(names, 2),), None),
        "s2": (each + 0.01, (names,), _half(rng, n, 0.1)),
    }
    return _graph(EDGE, arrivals, {"s1": 2, "s2": 1}, "s2")
