"""Emission of results between two instants: as they begin, as they end, or all that hold.

All three come from one operator. Results that cease to be are found as those that come to be are:
by the delta rule, with the rows that leave in the place of the rows that come. So none is kept
until it ends. All there is at some instants is the join of all rows that live at one of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.joins.operator.delta_join import results
from eddyline.state.event_time import ended_until
from eddyline.state.row_windows import run_of, with_ends
from eddyline.state.rows import ALWAYS, Rows, SortedRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.operator.probe_counts import JoinWork
    from eddyline.query.query import Emits

AT = "_at"
"""The column of the instant at which a result is emitted (µs)."""

CHUNK_ROWS = 65_536
"""Rows of a table, about, where one result is emitted at many instants."""


@dataclass(frozen=True, slots=True, eq=False)
class Emission:
    """The results that are emitted from an instant until just before another."""

    graph: JoinGraph
    orders: Mapping[str, Sequence[str]]
    """For each input, the order in which its rows meet the others."""
    since: int
    """All before it was emitted before (µs)."""
    until: int
    """All rows before it are there, and all ends before the last instant that is before it (µs)."""
    windows: Mapping[str, Sequence[SortedRun]]
    """The rows before ``since``; such as may be needed."""
    news: Mapping[str, SortedRun]
    """The rows from then on, of each input that has some."""
    instants: NDArray[np.int64]
    """Those at which a row of a stream came between the two; ascending, each once (µs)."""
    work: JoinWork
    """Counts of the probes, to which these are added."""

    def tables(self, emits: Emits) -> Iterator[pa.Table]:
        """Yield the results: see ``delta_join.results``; the instant of each is in ``_at``."""
        if emits == "istream":
            for found in self._joined(self.windows, self.news):
                yield found.append_column(AT, found["_start"])
        elif emits == "dstream":
            for found in self._ended():
                yield found.append_column(AT, pc.add(found["_end"], 1))
        else:
            for found in self._present():
                yield from _at_each(found, self.instants)

    def _joined(
        self, windows: Mapping[str, Sequence[SortedRun]], news: Mapping[str, SortedRun]
    ) -> Iterator[pa.Table]:
        for found in results(self.graph, self.orders, windows, news, self.work):
            # Bounds of ends let some pairs through that never live at one instant.
            lives = pc.less_equal(found["_start"], found["_end"])
            kept = found if pc.all(lives).as_py() else found.filter(lives)
            if kept.num_rows:
                yield kept

    def _all(self, name: str) -> list[SortedRun]:
        new = [self.news[name]] if name in self.news else []
        return [*self.windows.get(name, ()), *new]

    def _ended(self) -> Iterator[pa.Table]:
        """Yield the results that ended."""
        since, until = ended_until(self.since), ended_until(self.until)
        stay: dict[str, list[SortedRun]] = {}
        leave: dict[str, SortedRun] = {}
        for name in self.graph.inputs:
            runs = self._all(name)
            parts = [
                run.rows.taken(np.flatnonzero((run.rows.ends >= since) & (run.rows.ends < until)))
                for run in runs
            ]
            parts = [part for part in parts if len(part)]
            if parts:
                leave[name] = run_of(Rows.together(parts))
            stay[name] = runs
        if leave:
            stay = {name: [_without(run, until) for run in runs] for name, runs in stay.items()}
            yield from self._joined(stay, leave)

    def _present(self) -> Iterator[pa.Table]:
        """Yield the results that live at one of the instants, and perhaps others."""
        if not self.instants.size:
            return
        runs = {name: self._all(name) for name in self.graph.inputs}
        first = min(runs, key=lambda name: sum(map(len, runs[name])))
        for run in runs[first]:
            yield from self._joined(runs | {first: []}, {first: run})


def _without(run: SortedRun, until: int) -> SortedRun:
    """Return a run of which rows that end before an instant join with nothing."""
    stays = run.rows.ends >= until
    return run if stays.all() else with_ends(run, np.where(stays, run.rows.ends, ALWAYS))


def _at_each(found: pa.Table, instants: NDArray[np.int64]) -> Iterator[pa.Table]:
    """Yield results at each of the instants at which they live."""
    first = np.searchsorted(instants, found["_start"].to_numpy(), "left")
    last = np.searchsorted(instants, found["_end"].to_numpy(), "right")
    counts = last - first
    totals = np.cumsum(counts)
    low = 0
    while low < counts.size:
        done = totals[low - 1] if low else 0
        high = max(low + 1, int(np.searchsorted(totals, done + CHUNK_ROWS, "right")))
        own = counts[low:high]
        if own.any():
            place = np.repeat(np.arange(low, high), own)
            nth = np.arange(place.size) - np.repeat(np.cumsum(own) - own, own)
            at = instants[np.repeat(first[low:high], own) + nth]
            yield found.take(pa.array(place)).append_column(AT, pa.array(at))
        low = high
