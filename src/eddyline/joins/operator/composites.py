"""Combinations of rows on their way through a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eddyline.state.rows import FOREVER
from eddyline.state.run_index import Pairs, Probes, hashes_of, stacked

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from eddyline.state.rows import SortedRun

SEED = ""
"""Stands for the input of combinations that hold no row yet, or that need not tell their rows."""


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
    def from_rows(cls, name: str, new: SortedRun, rows: slice, base: int) -> Composites:
        """Return a range of the new rows of an input as combinations of one row each.

        ``base`` is the number of rows in the runs before them.
        """
        codes = {key: codes[rows] for key, codes in new.rows.codes.items()}
        refs = {name: np.arange(rows.start, rows.stop, dtype=np.int64) + base}
        # The columns of a run from a file are strided.
        starts, ends = (np.ascontiguousarray(at[rows]) for at in (new.rows.starts, new.rows.ends))
        return cls(refs, codes, starts, ends)

    @classmethod
    def seeds(
        cls, joined: Composites, chosen: NDArray[np.integer], key: Sequence[int], since: int
    ) -> Composites:
        """Return the keys of combinations (one or more), without their rows and without an end.

        They live from the instant ``since`` on (µs).
        """
        n = chosen.size
        codes = {each: joined.codes[each][chosen] for each in key}
        return cls({SEED: np.arange(n)}, codes, np.full(n, since), np.full(n, FOREVER))

    @classmethod
    def concat(cls, parts: Sequence[Composites]) -> Composites:
        """Return combinations of the same inputs, at least one part, as one."""
        first = parts[0]
        if len(parts) == 1:
            return first
        return cls(
            {each: np.concatenate([part.rows[each] for part in parts]) for each in first.rows},
            {key: np.concatenate([part.codes[key] for part in parts]) for key in first.codes},
            np.concatenate([part.starts for part in parts]),
            np.concatenate([part.ends for part in parts]),
        )

    def take(self, chosen: NDArray[np.integer]) -> Composites:
        """Return some combinations, by their places."""
        return Composites(*self.columns(chosen), self.starts[chosen], self.ends[chosen])

    def columns(
        self, chosen: NDArray[np.integer]
    ) -> tuple[dict[str, NDArray[np.int64]], dict[int, NDArray[np.int64]]]:
        """Return rows and codes of some combinations."""
        codes = {key: codes[chosen] for key, codes in self.codes.items()}
        return {each: refs[chosen] for each, refs in self.rows.items()}, codes

    def join(
        self,
        name: str,
        window: Sequence[SortedRun],
        links: Sequence[int],
        needed: Collection[int] | None = None,
    ) -> Composites:
        """Return the combinations with a row of one more input, by the key classes that both have.

        The result keeps the codes of the classes that are needed; of all if omitted.
        """
        key, *others = links
        checks = stacked([self.codes[each] for each in others], len(self))
        probes = Probes(hashes_of(self.codes[key]), self.starts, self.ends, checks)
        pairs, n_pairs, base = Pairs.room(max(1024, len(self))), 0, 0
        pieces = []
        for part in window:
            for run, first, places in part.asked(key, probes.hashes, self.codes[key]):
                checks = stacked([run.rows.codes[each] for each in others], len(run))
                mine = probes if places is None else _some(probes, places)
                before, at = n_pairs, base + first
                pairs, n_pairs = run.index(key).pairs(mine, checks, at, pairs, n_pairs)
                if places is not None:
                    found_here = pairs.probes[before:n_pairs]
                    found_here[:] = places[found_here]
                if before < n_pairs:
                    pieces.append((run, at, slice(before, n_pairs)))
            base += len(part)
        found = pairs.first(n_pairs)
        refs = {each: rows[found.probes] for each, rows in self.rows.items()} | {name: found.rows}
        codes = {}
        for each in dict.fromkeys((*self.codes, *window[0].keys)):
            if needed is not None and each not in needed:
                continue
            if each in self.codes:
                codes[each] = self.codes[each][found.probes]
            else:
                own = (run.rows.codes[each][found.rows[of] - first] for run, first, of in pieces)
                codes[each] = np.concatenate([np.empty(0, np.int64), *own])
        return Composites(refs, codes, found.starts, found.ends)


def _some(probes: Probes, chosen: NDArray[np.int64]) -> Probes:
    hashes, starts, ends, checks = probes
    return Probes(hashes[chosen], starts[chosen], ends[chosen], checks[:, chosen])
