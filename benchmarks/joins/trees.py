"""XJoins: trees of binary joins that keep what each inner node finds [Babu05 5.3], counted.

A contestant for joins on one attribute, no part of the product: in batches as the pipelines run,
with the same rule of deltas and the same lives of rows, so that only what is kept differs. A unit
of work is a look-up where anything is kept, a combination that is found, or one that a node keeps;
the rows of windows cost nothing to keep, as in pipelines, and nothing to remove when dead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.joins.runs import Arrivals, Run, checksum
from eddyline.data.arrays import Ints

Tree: TypeAlias = "str | tuple[Tree, Tree]"
"""An input, or what two trees join."""


def trees(names: Sequence[str]) -> Iterator[Tree]:
    """Yield every tree of binary joins of some inputs; which side is which makes no other one.

    >>> len(list(trees("rstu")))
    15
    """
    if len(names) == 1:
        yield names[0]
        return
    first, *others = names
    for size in range(len(others)):
        for chosen in combinations(others, size):
            left = (first, *chosen)
            right = [name for name in others if name not in chosen]
            yield from ((one, other) for one in trees(left) for other in trees(right))


def told(tree: Tree) -> str:
    """Return a tree as text."""
    return tree if isinstance(tree, str) else f"({told(tree[0])} {told(tree[1])})"


@dataclass(frozen=True, slots=True)
class Found:
    """Combinations of a row of each of some inputs."""

    names: tuple[str, ...]
    ats: Ints
    """The place of each row among all arrivals ((inputs, combinations))."""
    codes: Ints
    starts: Ints
    ends: Ints

    def __len__(self) -> int:
        return self.starts.size

    @classmethod
    def nothing(cls, names: tuple[str, ...]) -> Found:
        """Return no combination."""
        none = np.empty(0, np.int64)
        return cls(names, np.empty((len(names), 0), np.int64), none, none, none)

    def taken(self, chosen: NDArray[np.integer[Any]]) -> Found:
        """Return some of them."""
        ats = self.ats[:, chosen]
        return Found(self.names, ats, self.codes[chosen], self.starts[chosen], self.ends[chosen])

    def with_more(self, more: Found) -> Found:
        """Return both, sorted by code."""
        places = [more.names.index(name) for name in self.names]
        both = Found(
            self.names,
            np.concatenate([self.ats, more.ats[places]], axis=1),
            np.concatenate([self.codes, more.codes]),
            np.concatenate([self.starts, more.starts]),
            np.concatenate([self.ends, more.ends]),
        )
        return both.taken(np.argsort(both.codes, kind="stable"))

    def joined(self, kept: Found) -> Found:
        """Return the combinations with others, which are sorted by code, of equal codes."""
        low = np.searchsorted(kept.codes, self.codes, side="left")
        n = np.searchsorted(kept.codes, self.codes, side="right") - low
        at = np.repeat(np.arange(len(self)), n)
        first = np.repeat(np.cumsum(n) - n, n)
        other = np.repeat(low, n) + np.arange(at.size) - first
        starts = np.maximum(self.starts[at], kept.starts[other])
        ends = np.minimum(self.ends[at], kept.ends[other])
        ats = np.concatenate([self.ats[:, at], kept.ats[:, other]])
        found = Found((*self.names, *kept.names), ats, self.codes[at], starts, ends)
        return found.taken(np.flatnonzero(starts <= ends))


class TreeJoin:
    """A tree over batches."""

    def __init__(self, tree: Tree) -> None:
        self.kept: dict[Tree, Found] = {}
        self.parents: dict[Tree, tuple[Tree, Tree]] = {}
        """Of each node but the root, its parent and its sibling."""
        self.n_units = 0
        self._add(tree)

    def _add(self, tree: Tree) -> tuple[str, ...]:
        names: tuple[str, ...]
        if isinstance(tree, str):
            names = (tree,)
        else:
            one, other = tree
            self.parents[one], self.parents[other] = (tree, other), (tree, one)
            names = (*self._add(one), *self._add(other))
        self.kept[tree] = Found.nothing(names)
        return names

    def insert(self, news: Found) -> Found | None:
        """Take new rows of an input in and return the results; None if there is none."""
        (name,) = news.names
        node: Tree = name
        found: Found = news
        while node in self.parents and len(found):
            parent, sibling = self.parents[node]
            self.kept[node] = self.kept[node].with_more(found)
            self.n_units += len(found) * (node != name)
            before = len(found) if len(self.kept[sibling]) else 0
            found = found.joined(self.kept[sibling])
            self.n_units += before + len(found)
            node = parent
        return found if len(found) else None

    def expire(self, horizon: int) -> None:
        """Remove what ended before an instant."""
        for node, found in self.kept.items():
            self.kept[node] = found.taken(np.flatnonzero(found.ends >= horizon))


def run_tree(arrivals: Arrivals, batch_rows: int, tree: Tree) -> Run:
    """Join all arrivals of a join on one attribute by a tree."""
    join, done = TreeJoin(tree), Run()
    for start in range(0, arrivals.of.size, batch_rows):
        before = join.n_units
        for name, at, _ in arrivals.news(start, start + batch_rows):
            codes = arrivals.codes[0, at]
            news = Found((name,), at[np.newaxis], codes, at, at + arrivals.lengths[name])
            found = join.insert(news)
            if found is not None:
                done.n_results += len(found)
                done.checks += checksum(_as_table(found))
        join.expire(start)
        done.works.append(join.n_units - before)
    return done


def _as_table(found: Found) -> pa.Table:
    columns = {f"{name}.at": pa.array(at) for name, at in zip(found.names, found.ats, strict=True)}
    return pa.table(columns | {"_start": pa.array(found.starts), "_end": pa.array(found.ends)})
