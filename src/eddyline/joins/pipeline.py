"""One pipeline: new rows of an input, joined with the windows of the others in an order."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eddyline.joins.index import Probes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.rows import SortedRun
    from eddyline.joins.work import JoinWork


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
        return cls(refs, codes, new.rows.starts[rows], new.rows.ends[rows])

    def joined(self, name: str, window: Sequence[SortedRun], links: Sequence[int]) -> Composites:
        """Return the combinations with a row of one more input.

        Args:
            name: the input.
            window: its runs, at least one.
            links: the key classes in which its rows have to be equal to what is joined; not empty.
        """
        from eddyline.joins.index_kernels import hashes_of  # noqa: PLC0415

        key, *others = links
        checks = _stacked([self.codes[each] for each in others], len(self))
        probes = Probes(hashes_of(self.codes[key]), self.starts, self.ends, checks)
        found, base = [], 0
        for run in window:
            checks = _stacked([run.rows.codes[each] for each in others], len(run))
            at, rows = run.index(key).pairs(probes, checks)
            found.append(self._with_rows(name, run, base, at, rows))
            base += len(run)
        return _together(found)

    def _with_rows(
        self, name: str, run: SortedRun, base: int, at: NDArray[np.uint32], rows: NDArray[np.uint32]
    ) -> Composites:
        added = run.rows
        codes = {key: codes[at] for key, codes in self.codes.items()}
        codes |= {key: codes_[rows] for key, codes_ in added.codes.items() if key not in codes}
        refs = {each: refs[at] for each, refs in self.rows.items()}
        return Composites(
            refs | {name: rows.astype(np.int64) + base},
            codes,
            np.maximum(self.starts[at], added.starts[rows]),
            np.minimum(self.ends[at], added.ends[rows]),
        )


def run_pipeline(
    graph: JoinGraph,
    pipeline: str,
    first: Composites,
    order: Sequence[str],
    windows: Mapping[str, Sequence[SortedRun]],
    work: JoinWork,
) -> Composites | None:
    """Join new rows of an input with the windows of all others.

    Args:
        graph: what is joined with what.
        pipeline: the input.
        first: the new rows.
        order: the other inputs, never needing a Cartesian product.
        windows: the runs of each input.
        work: what is done is added to it.

    Returns:
        The combinations of all inputs; None as soon as there is none.
    """
    joined = first
    for name in order:
        started, n_in = time.perf_counter_ns(), len(joined)
        if not windows[name]:
            work.of(pipeline, name).add(n_in, 0, 0)
            return None
        joined = joined.joined(name, windows[name], graph.links(joined.rows, name))
        work.of(pipeline, name).add(n_in, len(joined), time.perf_counter_ns() - started)
        if not len(joined):
            return None
    return joined


def _stacked(codes: Sequence[NDArray[np.int64]], n_rows: int) -> NDArray[np.int64]:
    return np.stack(codes) if codes else np.empty((0, n_rows), np.int64)


def _together(pieces: Sequence[Composites]) -> Composites:
    """Return what was found in the runs of a window as one."""
    first = pieces[0]
    if len(pieces) == 1:
        return first
    return Composites(
        {each: np.concatenate([piece.rows[each] for piece in pieces]) for each in first.rows},
        {key: np.concatenate([piece.codes[key] for piece in pieces]) for key in first.codes},
        np.concatenate([piece.starts for piece in pieces]),
        np.concatenate([piece.ends for piece in pieces]),
    )
