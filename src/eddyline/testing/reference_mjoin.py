"""The MJoin with caches as the thesis runs it: element by element, window by window.

A readable oracle of probe pipelines, caches with the prefix invariant, and what a reorder does to
them [Babu05 5.1, 5.4]; plain Python, for a handful of rows. Out of it come the elements of the join
result: insertions and deletions, one for each element of a window that causes them.

Columns are named by their key class: all columns of one name are equal in every result, and a row
with None in one of them is in none. Memory has no limit here; any entry of a store may be taken out
at any time, which changes the work and never the results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Row = tuple[Any, ...]
Composite = dict[str, Row]
"""A row of each window that is joined so far."""

Element = tuple[Literal["+", "-"], tuple[Row, ...]]
"""A result that comes to be or ceases to be: a row of each window, in the order of the windows."""

Pipelines = dict[str, tuple[str, ...]]
"""For each window the others, in the order in which its rows meet them."""


@dataclass(frozen=True, slots=True)
class Cache:
    """A segment of a pipeline that is looked up: its operators ``first`` to ``last``, from 1 on."""

    pipeline: str
    first: int
    last: int


@dataclass(frozen=True)
class Store:
    """What the caches of one segment share: for each key the rows of the joined segment."""

    windows: frozenset[str]
    key: tuple[str, ...]


def is_closed(pipelines: Mapping[str, Sequence[str]], windows: frozenset[str]) -> bool:
    """Return whether windows satisfy the prefix invariant [Babu05 Def 5.4.2].

    Whichever of them gets a row, its pipeline first joins all the others of them.
    """
    n_others = len(windows) - 1
    return all({each, *pipelines[each][:n_others]} == windows for each in windows)


class TupleMJoin:
    """A join of windows that are given element by element.

    Args:
        columns: of each window, its columns by the name of their key class.
        pipelines: for each window the others, in the order in which its rows meet them.
        caches: the segments that are looked up.

    Attributes:
        windows: the rows that each holds, a bag.
        stores: the entries of each store by key; an entry may be empty.
        n_probes: rows that were looked for in a window.
        n_hits: keys that were found in a store.
        n_misses: keys that were not, so an entry was made.

    Raises:
        ValueError: a pipeline is not one; a segment is shorter than 2, or breaks the prefix
            invariant; two segments of one pipeline overlap.
    """

    def __init__(
        self,
        columns: Mapping[str, Sequence[str]],
        pipelines: Mapping[str, Sequence[str]],
        caches: Sequence[Cache] = (),
    ) -> None:
        self.columns = {name: tuple(each) for name, each in columns.items()}
        self.pipelines: Pipelines = {name: tuple(pipelines[name]) for name in columns}
        self.windows: dict[str, list[Row]] = {name: [] for name in columns}
        self.caches: list[Cache] = []
        self.stores: dict[Store, dict[Row, list[Composite]]] = {}
        self.n_probes = self.n_hits = self.n_misses = 0
        for name, order in self.pipelines.items():
            _check_order(name, order, self.columns)
        for cache in caches:
            self._add(cache)

    def process(
        self, name: str, row: Row, sign: Literal["+", "-"] = "+", *, profiled: bool = False
    ) -> list[Element]:
        """Take in one element, finish it, and return what it does to the join result.

        Args:
            name: the window.
            row: a row that enters it, or one that it holds and that leaves it.
            sign: which of the two.
            profiled: run past the caches, as an element that is measured does.

        Raises:
            ValueError: the row that leaves is not there.
        """
        if sign == "-" and row not in self.windows[name]:
            msg = f"{name} does not hold {row}"
            raise ValueError(msg)
        found = self._run_pipeline(name, row, sign, profiled=profiled)
        if sign == "+":
            self.windows[name].append(row)
        else:
            self.windows[name].remove(row)
        return [(sign, tuple(each[w] for w in self.columns)) for each in found]

    def reorder(self, name: str, order: Sequence[str]) -> None:
        """Give a pipeline another order; caches whose maintenance it breaks are dropped.

        These are those of the pipeline itself, and those of any other pipeline whose segment has
        this window in it and is not closed any more.

        Raises:
            ValueError: it is not an order of the other windows.
        """
        _check_order(name, order, self.columns)
        before = self.caches
        self.pipelines[name] = tuple(order)
        self.caches = [
            each
            for each in before
            if each.pipeline != name and is_closed(self.pipelines, self._segment(each))
        ]
        used = {self.store_of(each) for each in self.caches}
        self.stores = {store: entries for store, entries in self.stores.items() if store in used}

    def store_of(self, cache: Cache) -> Store:
        """Return the store of a cache: the same for all of equal windows and equal keys."""
        segment = self._segment(cache)
        before = {cache.pipeline, *self.pipelines[cache.pipeline][: cache.first - 1]}
        inside = {column for each in segment for column in self.columns[each]}
        outside = {column for each in before for column in self.columns[each]}
        return Store(segment, tuple(sorted(inside & outside)))

    def _segment(self, cache: Cache) -> frozenset[str]:
        return frozenset(self.pipelines[cache.pipeline][cache.first - 1 : cache.last])

    def _add(self, cache: Cache) -> None:
        segment = self._segment(cache)
        length = cache.last - cache.first + 1
        if length < 2 or len(segment) != length:
            msg = f"{cache} is no segment of two or more windows"
            raise ValueError(msg)
        if not is_closed(self.pipelines, segment):
            msg = f"{cache} breaks the prefix invariant: {sorted(segment)} is not closed"
            raise ValueError(msg)
        for other in self.caches:
            overlaps = cache.first <= other.last and other.first <= cache.last
            if other.pipeline == cache.pipeline and overlaps:
                msg = f"{cache} overlaps {other}"
                raise ValueError(msg)
        self.caches.append(cache)
        self.stores.setdefault(self.store_of(cache), {})

    def _run_pipeline(
        self, name: str, row: Row, sign: Literal["+", "-"], *, profiled: bool
    ) -> list[Composite]:
        composites: list[Composite] = [{name: row}]
        if None in row:
            return []
        order = self.pipelines[name]
        position = 1
        while True:
            self._maintain(name, position, composites, sign)
            if position == len(self.columns) or not composites:
                return composites
            cache = self._cache_at(name, position)
            if cache is None or profiled:
                composites = self._joined(composites, order[position - 1])
                position += 1
            else:
                composites = [more for each in composites for more in self._looked_up(cache, each)]
                position = cache.last + 1

    def _maintain(
        self, name: str, position: int, composites: list[Composite], sign: Literal["+", "-"]
    ) -> None:
        """Apply to the stores what has just been joined of exactly their windows.

        It happens to every element, and before anything further on in the pipeline can drop it.
        """
        for store, entries in self.stores.items():
            if name not in store.windows or position != len(store.windows):
                continue
            for each in composites:
                entry = entries.get(self._key(each, store))
                if entry is None:
                    continue
                if sign == "+":
                    entry.append(dict(each))
                else:
                    entry.remove(each)

    def _cache_at(self, name: str, position: int) -> Cache | None:
        for each in self.caches:
            if (each.pipeline, each.first) == (name, position):
                return each
        return None

    def _looked_up(self, cache: Cache, composite: Composite) -> list[Composite]:
        store = self.store_of(cache)
        entries, key = self.stores[store], self._key(composite, store)
        if key in entries:
            self.n_hits += 1
        else:
            self.n_misses += 1
            found = [composite]
            for other in self.pipelines[cache.pipeline][cache.first - 1 : cache.last]:
                found = self._joined(found, other)
            # Only now, and also if nothing was found: an entry is all there is for its key.
            entries[key] = [{name: each[name] for name in store.windows} for each in found]
        return [composite | part for part in entries[key]]

    def _joined(self, composites: list[Composite], other: str) -> list[Composite]:
        """Return the composites with each row of a window that agrees with them."""
        self.n_probes += len(composites)
        return [
            {**each, other: row}
            for each in composites
            for row in self.windows[other]
            if None not in row and self._agrees(each, other, row)
        ]

    def _agrees(self, composite: Composite, other: str, row: Row) -> bool:
        known = self._values(composite)
        return all(
            known.get(column, value) == value
            for column, value in zip(self.columns[other], row, strict=True)
        )

    def _key(self, composite: Composite, store: Store) -> Row:
        values = self._values(composite)
        return tuple(values[column] for column in store.key)

    def _values(self, composite: Composite) -> dict[str, Any]:
        return {
            column: value
            for name, row in composite.items()
            for column, value in zip(self.columns[name], row, strict=True)
        }


def _check_order(name: str, order: Sequence[str], columns: Mapping[str, Sequence[str]]) -> None:
    if sorted(order) != sorted(set(columns) - {name}):
        msg = f"{list(order)} is no order of the windows other than {name}"
        raise ValueError(msg)
