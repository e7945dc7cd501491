"""A join that takes rows one by one and does what values of ``closed_sets`` tell it to.

``testing/reference_mjoin`` works out by itself which caches are sound. This one believes what it is
told, and knows caches with partners as well, so it finds out whether that changes an answer.

Rules by number are those of globally consistent caches in the notes on [Babu05 5.7]: without 4, 5
and 6 answers are wrong.
"""

from __future__ import annotations

from itertools import product


class TupleJoin:
    """Rows are tuples with one value per key class of their input, in ascending order."""

    def __init__(self, graph, pipelines):
        self.graph = graph
        self.pipelines = pipelines
        self.windows = {name: {} for name in graph.inputs}
        self.used = ()
        self.stores = {}
        self.hits = 0
        self._next = 0

    def use(self, caches, kept=None):
        """Use caches, and keep stores: new ones start empty."""
        self.used = tuple(caches)
        kept = [each.store for each in caches] if kept is None else kept
        self.stores = {store: self.stores.get(store, {}) for store in kept}

    def insert(self, name, *values):
        self._next += 1
        row = (self._next, values)
        found = self._run(name, row, is_new=True)
        self.windows[name][row[0]] = values
        return len(found)

    def delete(self, name, *values):
        ref = next(ref for ref, each in self.windows[name].items() if each == values)
        found = self._run(name, (ref, values), is_new=False)
        del self.windows[name][ref]
        return len(found)

    def expected(self, name, *values):
        """How many results a row of an input is in, from all combinations."""
        rows = [
            [values] if other == name else list(self.windows[other].values())
            for other in self.graph.inputs
        ]
        return sum(
            self._agree(dict(zip(self.graph.inputs, each, strict=True))) for each in product(*rows)
        )

    def _agree(self, rows):
        seen = {}
        return all(
            seen.setdefault(key, value) == value
            for name, values in rows.items()
            for key, value in zip(self.graph.classes_of[name], values, strict=True)
        )

    def _run(self, name, row, *, is_new):
        order, found, at = self.pipelines[name], [{name: row}], 0
        while True:
            for store in self.stores:
                if name in store.closed and store.tap == at:
                    self._tap(store, name, found, is_new=is_new)
            if at == len(order) or not found:
                return found
            cache = next((c for c in self.used if (c.pipeline, c.start) == (name, at)), None)
            if cache is None:
                found = [more for each in found for more in self._joined(each, order[at])]
                at += 1
            else:
                found = [more for each in found for more in self._cached(cache, each, is_new)]
                at = cache.stop

    def _joined(self, rows, name):
        for row in self.windows[name].items():
            more = {**rows, name: row}
            if self._agree({each: values for each, (_, values) in more.items()}):
                yield more

    def _tap(self, store, name, found, *, is_new):
        for each in found:
            entry = self.stores[store].get(self._key(store, each))
            kept = tuple((other, each[other]) for other in sorted(store.windows))
            if entry is not None and is_new:
                entry.add(kept)
            elif entry is not None and name in store.windows:  # rule 4
                entry.discard(kept)

    def _cached(self, cache, rows, is_new):
        entries, key = self.stores[cache.store], self._key(cache.store, rows)
        if key in entries and self._may_hit(cache, rows, is_new):
            self.hits += 1
            entries[key] = {kept for kept in entries[key] if self._lives(kept)}  # rule 5
        else:
            entries[key] = self._created(cache, rows)
        return [{**rows, **dict(kept)} for kept in entries[key]]

    def _created(self, cache, rows):
        found = [rows]
        for name in self.pipelines[cache.pipeline][cache.start : cache.stop]:
            found = [more for each in found for more in self._joined(each, name)]
        windows = sorted(cache.store.windows)
        return {tuple((name, each[name]) for name in windows) for each in found}

    def _may_hit(self, cache, rows, is_new):
        if not is_new or not cache.is_self_supporting:  # rule 6
            return True
        _, values = rows[cache.pipeline]
        return values in self.windows[cache.pipeline].values()

    def _lives(self, kept):
        return all(ref in self.windows[name] for name, (ref, _) in kept)

    def _key(self, store, rows):
        """The values of the key, which any rows with a value of each of its classes agree in."""
        values = {
            key: value
            for name, (_, values) in rows.items()
            for key, value in zip(self.graph.classes_of[name], values, strict=True)
        }
        return tuple(values[key] for key in store.key)
