"""Join of one bucket: new rows in, completed results out.

Inputs take turns (the delta rule). The new rows of an input probe the windows of the others, which
already hold the new rows of all inputs before it. So each result is found once, by its new row from
the last input. If a window is empty, the new rows of the others join nothing and probe nothing.
They probe nevertheless if a shortcut has to see them, or if they may miss rows that were dropped.

``Pipeline`` has the probes of one input. Its rows have one order, or one for each class of rows
(``ClassOrders``). A ``Shortcut`` may spare some probes. A ``Stage`` is other work of the same
batch. Three observers look at what probes find and change nothing: ``PartnerAges``, ``MatchedRows``
and ``LostResults``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from eddyline.constraints.bounds import bins_of
from eddyline.joins.operator.composites import (
    SEED,
    Composites,
    asked_of,
    lives_of,
    rows_of_parts,
    widest_age,
)
from eddyline.joins.plan import MOST, AgeCounts, LostCounts
from eddyline.state.dropped_rows import DroppedRows
from eddyline.state.rows import ALWAYS, result_column
from eddyline.stats.costs import work_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.orders.probe_profiling import ClassOrders
    from eddyline.joins.plan import BatchPlan, BucketReport, JoinWork
    from eddyline.state.rows import SortedRun
    from eddyline.state.run_files import RunFile

NO_CLASSES: Mapping[str, ClassOrders] = MappingProxyType({})
"""All rows of an input take one order."""

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
    classes: Mapping[str, ClassOrders] = NO_CLASSES,
) -> Iterator[pa.Table]:
    """Join the new rows of a batch with each other and with the windows (runs, the oldest first).

    The counts of all probes are added to ``work``, ages of what is found to ``ages``, the rows of
    results to ``matched``, what is missed to ``lost``; a shortcut spares probes. Rows of an input
    with ``classes`` take their orders in place of that of all rows.

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
        new, by_class = news[name], classes.get(name)
        for order, rows in _blocks(new, orders[name], by_class):
            lazy = None if sees_all else (new, base)
            pipeline = Pipeline(graph, name, order, seen, work, ages, gone, lazy)
            first = Composites.from_rows(name, new, rows, base, pipeline.first_keys)
            composites = pipeline.run(first, shortcut)
            if composites is not None:
                if matched is not None:
                    matched.found(composites)
                if lost is not None and len(composites):
                    lost.found(composites, after)
                yield gather(composites, after)
        seen[name] = after[name]


def _blocks(
    new: SortedRun, order: Sequence[str], classes: ClassOrders | None
) -> Iterator[tuple[Sequence[str], slice | NDArray[np.int64]]]:
    """Yield the rows that go through a pipeline at once, with their order."""
    if classes is None:
        for start in range(0, len(new), BLOCK_ROWS):
            yield order, slice(start, min(start + BLOCK_ROWS, len(new)))
        return
    for class_order, places in zip(classes.orders, classes.groups(new.rows), strict=True):
        for start in range(0, places.size, BLOCK_ROWS):
            yield class_order, places[start : start + BLOCK_ROWS]


def gather(composites: Composites, windows: Mapping[str, Sequence[SortedRun]]) -> pa.Table:
    """Return the columns of combined rows, named ``input.column``."""
    columns: dict[str, pa.Array | pa.ChunkedArray] = {}
    for name, every in windows.items():
        runs, rows = asked_of(every, composites.rows[name])
        if not runs[0].rows.payload.num_columns:
            continue
        taken = rows_of_parts([run.rows.payload for run in runs], rows)
        columns |= {result_column(name, column): taken[column] for column in taken.column_names}
    return pa.table(
        columns | {"_start": pa.array(composites.starts), "_end": pa.array(composites.ends)}
    )


Through: TypeAlias = "Callable[[Composites, int, int], Composites | None]"
"""Joins combinations with the windows at positions ``[start, stop)``; None if none is left."""


class Shortcut(Protocol):
    """Spares pipelines some of their probes. Results are the same with and without it."""

    def passed(self, pipeline: str, position: int, joined: Composites) -> None:
        """Take note of the combinations (at least one) at a position, whose probe is still to come.

        Called once for each position that a pipeline reaches, with the one behind the last window.
        """

    def joined(
        self, pipeline: str, position: int, joined: Composites, through: Through
    ) -> tuple[Composites | None, int]:
        """Join combinations (at least one) with the windows at one position or more.

        Called after ``passed``, for each position with a window that a pipeline reaches. The probes
        that may be spared, ``through``, serve any combinations and positions.

        Returns:
            The combinations, None if none is left, and the position to go on with.
        """


class Stage:
    """Work of a task beside the join, at fixed points of its batch; derive from it.

    ``BucketBatch`` lists the stages, and calls each at every point in the order of that list.
    """

    def before_probe(
        self, windows: Mapping[str, Sequence[SortedRun]], news: Mapping[str, SortedRun]
    ) -> None:
        """Get ready: the windows are open, and no new row was looked up."""

    def after_probe(
        self, windows: Mapping[str, Sequence[SortedRun]], news: Mapping[str, SortedRun]
    ) -> None:
        """Measure what is there: all results were taken, and no new row was written."""

    def moved(
        self,
        name: str,
        runs: Mapping[str, SortedRun],
        horizon: int,
        rewritten: Mapping[RunFile, SortedRun],
    ) -> None:
        """Take note that rows of an input are in another run now; none, if no row is left.

        Args:
            name: the input.
            runs: the runs that had the rows, by file name; ``NEWS`` names the run of new rows.
            horizon: rows that left their window before it are left out (µs).
            rewritten: the run that has the rows now, by its file.
        """

    def end(self) -> None:
        """Complete the report: all runs are written."""


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
    lazy: tuple[SortedRun, int] | None = None
    """The new rows, and the number of rows in the runs before them: codes of theirs are taken when
    a probe first needs them. None: combinations carry all codes, as others look at them."""

    @property
    def first_keys(self) -> Collection[int] | None:
        """The key classes whose codes new rows carry to the first probe; None: all."""
        if self.lazy is None:
            return None
        return self.graph.links((self.name,), self.order[0]) if self.order else ()

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
            if self.lazy is not None:
                joined = self._with_codes(joined, links, *self.lazy)
            joined = joined.join(name, self.windows[name], links, needed)
            ns = time.perf_counter_ns() - started
            self.work.probe(self.name, name).add(n_in, len(joined), ns)
            if self.ages is not None:
                self.ages.found(name, self.windows[name], joined)
            if not len(joined):
                return None
        return joined

    def _with_codes(
        self, joined: Composites, links: Sequence[int], new: SortedRun, base: int
    ) -> Composites:
        """Return combinations with codes of some key classes, of new rows if missing."""
        missing = [key for key in links if key not in joined.codes]
        if not missing:
            return joined
        rows = joined.rows[self.name] - base if base else joined.rows[self.name]
        codes = joined.codes | {key: new.rows.codes[key][rows] for key in missing}
        return Composites(joined.rows, codes, joined.starts, joined.ends)

    def _needed_after(self, position: int) -> set[int]:
        """Return the key classes whose codes combinations carry on behind a position.

        Probes look at them; what is taken from new rows in time is carried to the next probe alone.
        """
        keys = set() if self.lazy is None else {*self.graph.classes_of[self.name]}
        return {
            key
            for later in range(position + 1, len(self.order))
            for key in self.graph.links((self.name, *self.order[:later]), self.order[later])
            if later == position + 1 or key not in keys
        }


MEASURED_PAIRS = 2_048
"""Pairs of one look-up of many rows whose ages are measured, about, evenly spread over all."""


class PartnerAges:
    """Measures the ages of rows that are found in the windows of inputs with a cold tier."""

    def __init__(self, plan: BatchPlan, report: BucketReport) -> None:
        self.measures, self._report = plan.measures, report
        self.counts = {name: AgeCounts(is_measured=self.measures) for name in plan.spans}
        report.ages = self.counts

    def found(self, name: str, window: Sequence[SortedRun], joined: Composites) -> None:
        """Count what combinations found in the window of an input, its cold runs first."""
        if name not in self.counts or not len(joined):
            return
        started, rows = work_ns(), joined.rows[name]
        n_cold = sum(len(run) for run in window if run.is_cold)
        n_found = int(np.count_nonzero(rows < n_cold)) if n_cold else 0
        bins = _bins(window, rows, joined.starts) if self.measures else {}
        self.counts[name].add(AgeCounts(rows.size, n_found, bins))
        self._report.monitor_ns += work_ns() - started

    def decided(
        self,
        name: str,
        window: Sequence[SortedRun],
        links: Sequence[int],
        composites: Composites,
        n_cold: int,
    ) -> None:
        """Count rows that have a partner in the window of an input, which decides; see ``found``.

        The newest partner of a row would do, so its age counts. ``n_cold`` have none that is hot.
        """
        if name not in self.counts:
            return
        started, bins = work_ns(), dict[int, int]()
        if self.measures and len(composites):
            step = -(-len(composites) // MEASURED_PAIRS)
            some = composites.take(np.arange(0, len(composites), step))
            numbered = Composites({SEED: np.arange(len(some))}, some.codes, some.starts, some.ends)
            pairs = numbered.join(name, window, links, ())
            newest = np.full(len(some), ALWAYS)
            np.maximum.at(newest, pairs.rows[SEED], lives_of(window, pairs.rows[name])[0])
            bins = _binned(some.starts - newest, step)
        self.counts[name].add(AgeCounts(len(composites), n_cold, bins))
        self._report.monitor_ns += work_ns() - started


def _bins(
    window: Sequence[SortedRun], rows: NDArray[np.int64], instants: NDArray[np.int64]
) -> dict[int, int]:
    """Return the bins of the ages of rows that were found by others at some instants (µs)."""
    step = -(-rows.size // MEASURED_PAIRS)
    return _binned(instants[::step] - lives_of(window, rows[::step])[0], step)


def _binned(ages: NDArray[np.int64], step: int) -> dict[int, int]:
    """Return the weighted bins of some ages (µs)."""
    numbers, counts = np.unique(bins_of(ages[ages > 0]), return_counts=True)
    return dict(zip(numbers.tolist(), (counts * step).tolist(), strict=True))


WHOLE = 2.0**53
"""Sums of whole numbers are exact below it."""


class MatchedRows:
    """Takes note of which new rows of some inputs (``covers``) are in results."""

    def __init__(
        self,
        covers: Collection[str],
        windows: Mapping[str, Sequence[SortedRun]],
        news: Mapping[str, SortedRun],
    ) -> None:
        mine = [name for name in news if name in covers]
        self._firsts = {name: sum(map(len, windows[name])) for name in mine}
        self.masks = {name: np.zeros(len(news[name]), np.bool_) for name in mine}
        """By input, which of its new rows were in a result."""
        self.n_old = dict.fromkeys(covers, 0)
        """Results with an older row of each input."""

    def found(self, joined: Composites) -> None:
        """Take note of results."""
        for name in self.n_old:
            rows, first = joined.rows[name], self._firsts.get(name)
            if first is None:
                self.n_old[name] += rows.size
                continue
            fresh = rows[rows >= first] - first
            self.masks[name][fresh] = True
            self.n_old[name] += rows.size - fresh.size


@dataclass(slots=True)
class LostResults:
    """Counts what is missed in one bucket in one batch."""

    names: Collection[str]
    dropped: dict[str, DroppedRows] = field(default_factory=dict)
    """By input, those of its rows that were dropped."""
    counts: dict[str, LostCounts] = field(init=False)

    def __post_init__(self) -> None:
        self.counts = {name: LostCounts() for name in self.names}

    @property
    def may_be(self) -> bool:
        """Whether anything was dropped."""
        return any(rows.slices for rows in self.dropped.values())

    def found(self, joined: Composites, windows: Mapping[str, Sequence[SortedRun]]) -> None:
        """Take note of results (one or more)."""
        for name, counts in self.counts.items():
            counts.n_found += len(joined)
            first = 0
            for run in windows[name]:
                age = widest_age(joined.rows[name], first, run.rows.starts, joined.starts)
                counts.widest = max(counts.widest, int(age))
                first += len(run)

    def missed(self, pipeline: Pipeline, position: int, joined: Composites) -> None:
        """Count what is missed of the window at a position by the combinations that got there."""
        name = pipeline.order[position]
        if name not in self.dropped or not self.dropped[name].slices:
            return
        bound = (pipeline.name, *pipeline.order[:position])
        links = pipeline.graph.links(bound, name)
        codes = {key: joined.codes[key] for key in links}
        dropped = self.dropped[name].counted(codes, joined.starts, joined.ends)
        hit = np.flatnonzero(dropped.most)
        if not hit.size:
            return
        ghosts = joined.take(hit)
        most, about = dropped.most[hit].astype(np.float64), dropped.about[hit]
        for later in range(position + 1, len(pipeline.order)):
            at_most, perhaps = self._partners(pipeline, position, later, ghosts)
            most, about = most * at_most, about * perhaps
        counts = self.counts[name]
        counts.n_most = min(counts.n_most + _whole(most.sum()), MOST)
        counts.n_about += float(about.sum())
        newest = dropped.newest[hit]
        is_seen = (newest > ALWAYS) & (most > 0)
        if is_seen.any():
            counts.n_seen += int(is_seen.sum())
            ages = ghosts.starts[is_seen] - newest[is_seen]
            counts.widest_seen = max(counts.widest_seen, int(ages.max()))

    def _partners(
        self, pipeline: Pipeline, position: int, later: int, ghosts: Composites
    ) -> tuple[NDArray[np.float64] | float, NDArray[np.float64] | float]:
        """Return how many partners of a later window there are at most, and about how many.

        ``ghosts`` are the combinations before the window at ``position``, whose partners were
        dropped.
        """
        graph, order = pipeline.graph, pipeline.order
        name, window = order[later], pipeline.windows[order[later]]
        dropped = self.dropped.get(name, DroppedRows(()))
        bound_links = graph.links((pipeline.name, *order[:position]), name)
        if bound_links:
            codes = {key: ghosts.codes[key] for key in bound_links}
            kept = _counted(ghosts, name, window, bound_links)
            gone = dropped.counted(codes, ghosts.starts, ghosts.ends)
            return kept + gone.most.astype(np.float64), kept + gone.about
        links = graph.links((pipeline.name, *order[:later]), name)
        kept_most = min(sum(run.most_alike(key) for run in window) for key in links)
        at_most = float(kept_most + dropped.most(links))
        done = [probe for (_, other), probe in pipeline.work.probes.items() if other == name]
        n_in = sum(probe.n_in for probe in done)
        mean = sum(probe.n_out for probe in done) / n_in if n_in else 1.0
        return at_most, min(mean, at_most)


def _counted(
    ghosts: Composites, name: str, window: Sequence[SortedRun], links: Sequence[int]
) -> NDArray[np.float64]:
    """Return how many rows of a window each of some combinations finds."""
    if not window:
        return np.zeros(len(ghosts))
    numbered = {SEED: np.arange(len(ghosts))}
    asked = Composites(numbered, ghosts.codes, ghosts.starts, ghosts.ends)
    pairs = asked.join(name, window, links, ())
    return np.bincount(pairs.rows[SEED], minlength=len(ghosts)).astype(np.float64)


def _whole(total: float) -> int:
    """Return a sum as a whole number that is not less."""
    return int(total) if total < WHOLE else int(min(total * (1 + 1e-9), MOST))
