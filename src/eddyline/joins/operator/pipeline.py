"""The join of a bucket: the new rows of a batch in, the results that they complete out.

Inputs take turns (the delta rule): the new rows of an input probe the windows of the others, which
hold the new rows of all inputs before it. So each result is found once, by the new row in it whose
input is last. While a window is empty, the new rows of the others join nothing, and probe nothing
unless a shortcut has to see them, or rows were dropped that they miss.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import pyarrow as pa

from eddyline.joins.operator.composites import Composites, asked_of, rows_of_parts
from eddyline.state.rows import result_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.operator.done_rows import MatchedRows
    from eddyline.joins.operator.lost_results import LostResults
    from eddyline.joins.operator.partner_ages import PartnerAges
    from eddyline.joins.plan import JoinWork
    from eddyline.state.rows import SortedRun

BLOCK_ROWS = 65_536
"""New rows that go through a pipeline at once: few enough for the caches of the processor."""


def results(
    graph: JoinGraph,
    orders: Mapping[str, Sequence[str]],
    windows: Mapping[str, Sequence[SortedRun]],
    news: Mapping[str, SortedRun],
    work: JoinWork,
    shortcut: Shortcut | None = None,
    ages: PartnerAges | None = None,
    matched: MatchedRows | None = None,
    lost: LostResults | None = None,
) -> Iterator[pa.Table]:
    """Join the new rows of a batch with each other and with the windows (runs, the oldest first).

    The counts of all probes are added to ``work``, ages of what is found to ``ages``, the rows of
    results to ``matched``, what is missed to ``lost``; a shortcut spares probes.

    Returns:
        Tables with the columns of the inputs, named ``input.column``, and the first and the last
        instant of each result, ``_start`` and ``_end`` (µs).
    """
    seen = {name: tuple(windows.get(name, ())) for name in graph.inputs}
    gone = lost if lost is not None and lost.may_be else None
    sees_all = shortcut is not None or gone is not None
    after = {name: (*runs, news[name]) if name in news else runs for name, runs in seen.items()}
    for name in graph.inputs:
        if name not in news:
            continue
        if not sees_all and not all(runs for other, runs in seen.items() if other != name):
            seen[name] = after[name]
            continue
        base = sum(map(len, seen[name]))
        pipeline = Pipeline(graph, name, orders[name], seen, work, ages, gone)
        for start in range(0, len(news[name]), BLOCK_ROWS):
            rows = slice(start, min(start + BLOCK_ROWS, len(news[name])))
            first = Composites.from_rows(name, news[name], rows, base)
            found = pipeline.run(first, shortcut)
            if found is not None:
                if matched is not None:
                    matched.found(found)
                if lost is not None and len(found):
                    lost.found(found, after)
                yield gather(found, after)
        seen[name] = after[name]


def gather(found: Composites, windows: Mapping[str, Sequence[SortedRun]]) -> pa.Table:
    """Return the columns of combined rows, named ``input.column``."""
    columns: dict[str, pa.Array | pa.ChunkedArray] = {}
    for name, every in windows.items():
        runs, rows = asked_of(every, found.rows[name])
        if not runs[0].rows.payload.num_columns:
            continue
        taken = rows_of_parts([run.rows.payload for run in runs], rows)
        columns |= {result_column(name, each): taken[each] for each in taken.column_names}
    return pa.table(columns | {"_start": pa.array(found.starts), "_end": pa.array(found.ends)})


Through: TypeAlias = "Callable[[Composites, int, int], Composites | None]"
"""Joins combinations with the windows at positions ``[start, stop)``; None if none is left."""


class Shortcut(Protocol):
    """Spares pipelines some of their probes. Results are the same with and without it."""

    def passed(self, pipeline: str, position: int, joined: Composites) -> None:
        """Take note of the combinations (at least one) at a position, whose probe is still to come.

        Called once for each position that a pipeline reaches, with the one behind the last window.
        """
        ...

    def joined(
        self, pipeline: str, position: int, joined: Composites, through: Through
    ) -> tuple[Composites | None, int]:
        """Join combinations (at least one) with the windows at one position or more.

        Called after ``passed``, for each position with a window that a pipeline reaches. The probes
        that may be spared, ``through``, serve any combinations and positions.

        Returns:
            The combinations, None if none is left, and the position to go on with.
        """
        ...


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The joins of the new rows of one input in one batch."""

    graph: JoinGraph
    name: str
    """The input."""
    order: Sequence[str]
    """The other inputs, never needing a Cartesian product."""
    windows: Mapping[str, Sequence[SortedRun]]
    """The runs of each input."""
    work: JoinWork
    """The counts of all probes; added to."""
    ages: PartnerAges | None = None
    """Measures the ages of rows that are found; None if nobody asks."""
    lost: LostResults | None = None
    """Counts what is missed of rows that were dropped; None if none were."""

    def run(self, first: Composites, shortcut: Shortcut | None = None) -> Composites | None:
        """Join new rows of the input with the windows of all others; None if nothing is joined."""
        if shortcut is None:
            return self._through(first, 0, len(self.order), keeps_codes=False)
        joined: Composites | None = first
        position = 0
        while joined is not None:
            shortcut.passed(self.name, position, joined)
            if position == len(self.order):
                break
            joined, position = shortcut.joined(self.name, position, joined, self._through)
        return joined

    def _through(
        self, joined: Composites, start: int, stop: int, *, keeps_codes: bool = True
    ) -> Composites | None:
        """Join combinations with the windows at positions ``[start, stop)``; None if none is left.

        Codes may be dropped that no later probe looks at.
        """
        for position in range(start, stop):
            name, bound = self.order[position], (self.name, *self.order[:position])
            if self.lost is not None:
                self.lost.missed(self, position, joined)
            started, n_in = time.perf_counter_ns(), len(joined)
            if not self.windows[name]:
                self.work.probe(self.name, name).add(n_in, 0, 0)
                return None
            links = self.graph.links(bound, name)
            needed = None if keeps_codes else self._needed_after(position)
            joined = joined.join(name, self.windows[name], links, needed)
            ns = time.perf_counter_ns() - started
            self.work.probe(self.name, name).add(n_in, len(joined), ns)
            if self.ages is not None:
                self.ages.found(name, self.windows[name], joined)
            if not len(joined):
                return None
        return joined

    def _needed_after(self, position: int) -> set[int]:
        """Return the key classes that probes behind a position look at."""
        return {
            key
            for later in range(position + 1, len(self.order))
            for key in self.graph.links((self.name, *self.order[:later]), self.order[later])
        }
