"""One pipeline: new rows of an input, joined with the windows of the others in an order."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eddyline.state.rows import FOREVER
from eddyline.state.run_index import Pairs, Probes, stacked

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from eddyline.joins.caches.bucket_caches import CachedBatch
    from eddyline.joins.caches.keys import Keys
    from eddyline.joins.caches.prefix_invariant import Candidate
    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.operator.probe_counts import JoinWork
    from eddyline.state.rows import SortedRun


SEED = ""
"""The name by which combinations are known that hold no row yet."""


@dataclass(frozen=True, slots=True, eq=False)
class Composites:
    """Combinations of one row of each input that is joined so far."""

    rows: dict[str, NDArray[np.int64]]
    """By input, the row of each combination, counted through the runs of its window."""
    codes: dict[int, NDArray[np.int64]]
    """By key class, the code of each combination."""
    starts: NDArray[np.int64]
    """The instant from which all rows of a combination live (µs)."""
    ends: NDArray[np.int64]
    """The last instant at which they do (µs)."""

    def __len__(self) -> int:
        return self.starts.size

    @classmethod
    def of(cls, name: str, new: SortedRun, rows: slice, base: int) -> Composites:
        """Return new rows of an input.

        Args:
            name: the input.
            new: its new rows.
            rows: which of them.
            base: rows of the runs before it.
        """
        codes = {key: codes[rows] for key, codes in new.rows.codes.items()}
        refs = {name: np.arange(rows.start, rows.stop, dtype=np.int64) + base}
        # Those of a run from a file are not side by side.
        starts, ends = (np.ascontiguousarray(of[rows]) for of in (new.rows.starts, new.rows.ends))
        return cls(refs, codes, starts, ends)

    @classmethod
    def seeds(
        cls,
        joined: Composites,
        chosen: NDArray[np.integer],
        key: Sequence[int],
        since: int,
    ) -> Composites:
        """Return nothing but the keys of some combinations, living from an instant on.

        Args:
            joined: the combinations.
            chosen: their places, at least one.
            key: the classes of the key.
            since: the instant (µs).
        """
        n = chosen.size
        codes = {each: joined.codes[each][chosen] for each in key}
        return cls({SEED: np.arange(n)}, codes, np.full(n, since), np.full(n, FOREVER))

    def parts(
        self, chosen: NDArray[np.integer]
    ) -> tuple[dict[str, NDArray[np.int64]], dict[int, NDArray[np.int64]]]:
        """Return rows and codes of some combinations."""
        codes = {key: codes[chosen] for key, codes in self.codes.items()}
        return {each: refs[chosen] for each, refs in self.rows.items()}, codes

    def taken(self, chosen: NDArray[np.integer]) -> Composites:
        """Return some combinations."""
        return Composites(*self.parts(chosen), self.starts[chosen], self.ends[chosen])

    def joined(
        self,
        name: str,
        window: Sequence[SortedRun],
        links: Sequence[int],
        needed: Collection[int] | None = None,
    ) -> Composites:
        """Return the combinations with a row of one more input.

        Args:
            name: the input.
            window: its runs, at least one.
            links: the key classes in which its rows have to be equal to what is joined; not empty.
            needed: the key classes whose codes the combinations are to have; all if omitted.
        """
        from eddyline.state.run_index_kernels import hashes_of  # noqa: PLC0415

        key, *others = links
        checks = stacked([self.codes[each] for each in others], len(self))
        probes = Probes(hashes_of(self.codes[key]), self.starts, self.ends, checks)
        pairs, n_pairs, base = Pairs.room(max(1024, len(self))), 0, 0
        firsts, cuts = [], [0]
        for run in window:
            checks = stacked([run.rows.codes[each] for each in others], len(run))
            pairs, n_pairs = run.index(key).pairs(probes, checks, base, pairs, n_pairs)
            firsts.append(base)
            cuts.append(n_pairs)
            base += len(run)
        found = pairs.first(n_pairs)
        refs = {each: of[found.probes] for each, of in self.rows.items()} | {name: found.rows}
        codes = {}
        for each in dict.fromkeys((*self.codes, *window[0].rows.codes)):
            if needed is not None and each not in needed:
                continue
            if each in self.codes:
                codes[each] = self.codes[each][found.probes]
            else:
                parts = zip(window, firsts, cuts[:-1], cuts[1:], strict=True)
                codes[each] = np.concatenate(
                    [run.rows.codes[each][found.rows[i:j] - first] for run, first, i, j in parts]
                )
        return Composites(refs, codes, found.starts, found.ends)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The joins of the new rows of one input, as they are in one batch."""

    graph: JoinGraph
    name: str
    """The input."""
    order: Sequence[str]
    """The other inputs, never needing a Cartesian product."""
    windows: Mapping[str, Sequence[SortedRun]]
    """The runs of each input."""
    work: JoinWork
    """What is done is added to it."""

    def run(self, first: Composites, caches: CachedBatch | None = None) -> Composites | None:
        """Join new rows of the input with the windows of all others.

        Args:
            first: the new rows.
            caches: what may spare joins; changed.

        Returns:
            The combinations of all inputs; None as soon as there is none.
        """
        if caches is None:
            return self._through(first, 0, len(self.order), keeps_codes=False)
        joined: Composites | None = first
        position = 0
        while joined is not None:
            keys = caches.keys(joined)
            caches.passed(self.name, position, keys)
            if position == len(self.order):
                break
            cache = caches.asked(self.name, position, joined)
            stop = position + 1 if cache is None else cache.stop
            if cache is None:
                joined = self._through(joined, position, stop)
            else:
                joined = self._with_cache(cache, joined, keys, caches)
            position = stop
        return joined

    def _through(
        self, joined: Composites, start: int, stop: int, *, keeps_codes: bool = True
    ) -> Composites | None:
        """Join combinations with the windows at some positions; None if none is left.

        Args:
            joined: the combinations.
            start: the first position.
            stop: the position at which to stop.
            keeps_codes: whether they keep codes that no later join looks at.
        """
        for position in range(start, stop):
            name, bound = self.order[position], (self.name, *self.order[:position])
            started, n_in = time.perf_counter_ns(), len(joined)
            if not self.windows[name]:
                self.work.of(self.name, name).add(n_in, 0, 0)
                return None
            links = self.graph.links(bound, name)
            needed = None if keeps_codes else self._needed_after(position)
            joined = joined.joined(name, self.windows[name], links, needed)
            ns = time.perf_counter_ns() - started
            self.work.of(self.name, name).add(n_in, len(joined), ns)
            if not len(joined):
                return None
        return joined

    def _needed_after(self, position: int) -> set[int]:
        """Return the key classes that joins behind a position look at."""
        return {
            key
            for later in range(position + 1, len(self.order))
            for key in self.graph.links((self.name, *self.order[:later]), self.order[later])
        }

    def _with_cache(
        self, cache: Candidate, joined: Composites, keys: Keys, caches: CachedBatch
    ) -> Composites | None:
        """Join combinations with the windows that a cache spares; None if none is left.

        Each key that the cache does not have is evaluated once, and for all times: what lives when
        the combination that it came with does is less than what must be kept for it.
        """
        started, counts = time.perf_counter_ns(), caches.use(cache)
        entries, missing = caches.found(cache, keys)
        alone = caches.alone(cache, joined, entries)
        entries[alone] = -1
        miss_ns = 0
        while missing.size:
            since = time.perf_counter_ns()
            fresh, firsts = caches.admitted(cache, keys, missing)
            if not firsts.size:
                break
            entries[missing] = fresh
            found = self._through(
                Composites.seeds(joined, firsts, cache.store.key, caches.horizon(cache)),
                cache.start,
                cache.stop,
            )
            if found is not None:
                caches.fill(cache, entries[firsts][found.rows[SEED]], found)
            missing = missing[fresh < 0]
            miss_ns += time.perf_counter_ns() - since
        parts = [caches.hits(cache, joined, entries)]
        if missing.size or alone.size:
            # There is no memory for them, or what is kept may lack what they join.
            rest = np.concatenate([missing, alone])
            plain = self._through(joined.taken(rest), cache.start, cache.stop)
            parts += [] if plain is None else [plain]
        found = _together(parts)
        counts.n_out += len(found)
        counts.miss_ns += miss_ns
        counts.ns += time.perf_counter_ns() - started
        return found if len(found) else None


def _together(pieces: Sequence[Composites]) -> Composites:
    """Return combinations of the same inputs as one."""
    first = pieces[0]
    if len(pieces) == 1:
        return first
    return Composites(
        {each: np.concatenate([piece.rows[each] for piece in pieces]) for each in first.rows},
        {key: np.concatenate([piece.codes[key] for piece in pieces]) for key in first.codes},
        np.concatenate([piece.starts for piece in pieces]),
        np.concatenate([piece.ends for piece in pieces]),
    )
