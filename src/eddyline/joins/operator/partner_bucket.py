"""LEFT, SEMI and ANTI joins of two inputs: rows of the first by whether they have a partner.

A row of the first input waits until event time has passed its window, so that no partner can come
any more. It is then looked up once in the window of the second input, which is kept long enough for
that. So nothing has to be remembered of a row that waits, and what is looked up in a batch are the
rows that are due. Combinations of a LEFT join are found as those of an inner one, when they come.

If the second input is a stream all rows are in one bucket, which sees how far its event time is.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.joins.operator.bucket import BucketBatch
from eddyline.joins.operator.composites import SEED, Composites, rows_of_parts
from eddyline.joins.operator.event_time import latest_after
from eddyline.joins.operator.pipeline import BLOCK_ROWS, results
from eddyline.joins.orders.probe_profiling import LookUp
from eddyline.joins.plan import JoinWork
from eddyline.state.event_time import HeldRows, earlier
from eddyline.state.rows import ALWAYS, FOREVER, Rows, SortedRun, result_column

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.operator.pipeline import Shortcut
    from eddyline.joins.plan import BatchPlan, PartnerPlan

FOUND = "__found"
"""The column of the rows that equal keys find for a row that is due; NULL of combinations."""


@dataclass(slots=True)
class PartnerBatch(BucketBatch):
    """The bucket of such a join in one batch; see ``BucketBatch``.

    Args:
        latest: the latest event times of rows that do not come themselves (µs), by stream.
    """

    latest: Mapping[str, int] = field(default_factory=dict)
    _lonely: list[Rows] = field(init=False, default_factory=list)
    """Rows of the first input that have no key, and so no partner."""
    _until: int = field(init=False, default=ALWAYS)
    """Rows that left their window before it are due (µs)."""

    def run(self, batch: Mapping[str, Rows]) -> Iterator[pa.Table]:
        """Join the rows of the batch, by input, and keep them; yields the results.

        Raises:
            OSError: a file cannot be read or written.
        """
        asked = self._asked
        if asked.time is not None:
            latest = latest_after(asked.time, asked.latest, batch, self.latest)
            self._until = max(self.before.emitted_until, asked.time.low(asked.right, latest))
        yield from BucketBatch.run(self, batch)
        self.report.after.emitted_until = self._until

    @property
    def _asked(self) -> PartnerPlan:
        assert self.plan.partners is not None
        return self.plan.partners

    def _low(self, name: str) -> int:
        """Return the instant before which rows are late: also where less lateness was allowed."""
        low = BucketBatch._low(self, name)
        return max(low, self.before.emitted_until) if name == self._asked.right else low

    def _horizon(self, name: str) -> int | None:
        """Return the instant before which rows left that none needs, also none that waits (µs)."""
        horizon = BucketBatch._horizon(self, name)
        if name != self._asked.right or horizon is None:
            return horizon
        return min(horizon, earlier(self.before.emitted_until, self._asked.length))

    def _on_time(self, name: str, rows: Rows) -> Rows:
        found = BucketBatch._on_time(self, name, rows)
        if name == self._asked.left and found.passes is not None:
            self._lonely.append(found.taken(np.flatnonzero(~found.passes)))
        return found.passing()

    def _keep(self, name: str, run: SortedRun) -> None:
        if name != self._asked.left or self._asked.kind == "left":
            BucketBatch._keep(self, name, run)

    def _results(
        self,
        windows: Mapping[str, Sequence[SortedRun]],
        news: Mapping[str, SortedRun],
        shortcut: Shortcut | None,
    ) -> Iterator[pa.Table]:
        asked = self._asked
        if asked.kind == "left":
            yield from BucketBatch._results(self, windows, news, shortcut)
        runs = [*windows[asked.right], *([news[asked.right]] if asked.right in news else [])]
        due = self._due(news[asked.left].rows if asked.left in news else None)
        yield from decided(asked, self.plan.graph, due, runs, self.report.work)
        yield from without_partner(asked, self._lonely)

    def _due(self, new: Rows | None) -> list[Rows]:
        """Return the rows that need not wait longer; the others are kept as waiting."""
        asked, before = self._asked, self.before
        if asked.time is None:
            return [] if new is None else [new]
        since, until = (earlier(at, asked.length) for at in (before.emitted_until, self._until))
        files = before.waiting.get(asked.left, ())
        held = HeldRows(self.place.files, self.place.runs, files, since)
        due, waiting = held.before(until), None
        if new is not None:
            is_due = new.starts < until
            due.append(new.taken(np.flatnonzero(is_due)))
            waiting = new.taken(np.flatnonzero(~is_due))
        if kept := held.after(until, waiting):
            self.report.after.waiting[asked.left] = kept
        return due


def results_by_partner(plan: BatchPlan, batch: Mapping[str, Rows]) -> Iterator[pa.Table]:
    """Join rows after which none comes.

    Args:
        plan: how they are joined, with what is asked of partners.
        batch: all rows of each input that has some.

    Returns:
        As ``PartnerBatch.run`` does.
    """
    asked, work = plan.partners, JoinWork()
    assert asked is not None
    joined = {name: rows.passing() for name, rows in batch.items()}
    news = {name: SortedRun.of(rows) for name, rows in joined.items() if len(rows)}
    if asked.kind == "left":
        yield from results(plan.graph, plan.orders, {}, news, work)
    left = [news[asked.left].rows] if asked.left in news else []
    right = [news[asked.right]] if asked.right in news else []
    yield from decided(asked, plan.graph, left, right, work)
    rows = batch.get(asked.left)
    if rows is not None and rows.passes is not None:
        yield from without_partner(asked, [rows.taken(np.flatnonzero(~rows.passes))])


def decided(
    asked: PartnerPlan,
    graph: JoinGraph,
    due: Sequence[Rows],
    runs: Sequence[SortedRun],
    work: JoinWork,
) -> Iterator[pa.Table]:
    """Look up rows for which no partner can come any more.

    Args:
        asked: what is a result.
        graph: the join.
        due: the rows, each with its keys.
        runs: the window of the second input, in which all their partners are.
        work: the counts of look-ups, to which these are added.

    Returns:
        Tables with the columns of the first input, named ``input.column``: of the rows that are
        results, or, where conditions are still to be asked, of those that may be, with what was
        found for each (FOUND).
    """
    for part in due:
        for start in range(0, len(part), BLOCK_ROWS):
            block = np.arange(start, min(start + BLOCK_ROWS, len(part)))
            run = SortedRun.of(part.taken(block))
            counts = _counted(asked, graph, run, runs, work)
            table = _named(asked, run.rows)
            if asked.found is None:
                yield table.filter(pa.array((counts > 0) == (asked.kind == "semi")))
                continue
            for rows in _pieces(counts):
                lists = _found(asked, graph, run, rows, runs)
                yield table.slice(rows.start, rows.stop - rows.start).append_column(FOUND, lists)


def _counted(
    asked: PartnerPlan,
    graph: JoinGraph,
    run: SortedRun,
    runs: Sequence[SortedRun],
    work: JoinWork,
) -> NDArray[np.int64]:
    """Return how many rows equal keys find for each; where one decides, no more are counted."""
    started, rows = time.perf_counter_ns(), run.rows
    keys = Composites({SEED: np.arange(len(run))}, rows.codes, rows.starts, rows.ends)
    look_up = LookUp.of(keys, graph.links((asked.left,), asked.right))
    counts = look_up.counts(runs, len(run), 1 if asked.found is None else FOREVER)
    ns = time.perf_counter_ns() - started
    work.probe(asked.left, asked.right).add(len(run), int(counts.sum()), ns)
    return counts


def _pieces(counts: NDArray[np.int64]) -> Iterator[slice]:
    """Cut rows into pieces for which few rows are found in all, or of one row."""
    totals, low = np.cumsum(counts), 0
    while low < counts.size:
        done = totals[low - 1] if low else 0
        high = max(low + 1, int(np.searchsorted(totals, done + BLOCK_ROWS, "right")))
        yield slice(low, high)
        low = high


def _found(
    asked: PartnerPlan,
    graph: JoinGraph,
    run: SortedRun,
    rows: slice,
    runs: Sequence[SortedRun],
) -> pa.Array:
    """Return what equal keys find for some rows, as lists."""
    counts, chosen = np.zeros(rows.stop - rows.start, np.int64), np.empty(0, np.int64)
    if runs:
        first = Composites.from_rows(asked.left, run, rows, 0)
        links = graph.links((asked.left,), asked.right)
        pairs = first.join(asked.right, runs, links, ())
        own = pairs.rows[asked.left] - rows.start
        counts = np.bincount(own, minlength=counts.size)
        chosen = pairs.rows[asked.right][np.argsort(own, kind="stable")]
    return _lists(asked.found, runs, counts, chosen)


def without_partner(asked: PartnerPlan, parts: Sequence[Rows]) -> Iterator[pa.Table]:
    """Yield rows that have no partner, if they are results; see ``decided``."""
    for rows in parts if asked.kind != "semi" else ():
        table = _named(asked, rows)
        if asked.found is not None:
            nothing = np.empty(0, np.int64)
            lists = _lists(asked.found, (), np.zeros(len(rows), np.int64), nothing)
            table = table.append_column(FOUND, lists)
        yield table


def _named(asked: PartnerPlan, rows: Rows) -> pa.Table:
    names = rows.payload.column_names
    return rows.payload.rename_columns([result_column(asked.left, each) for each in names])


def _lists(
    kind: pa.DataType | None,
    runs: Sequence[SortedRun],
    counts: NDArray[np.int64],
    chosen: NDArray[np.int64],
) -> pa.Array:
    """Return lists of so many rows each of the runs, counted through, as structs."""
    assert kind is not None
    fields = [kind.value_type.field(at) for at in range(kind.value_type.num_fields)]
    columns = [pa.nulls(chosen.size, field.type) for field in fields]
    if chosen.size:
        taken = rows_of_parts([run.rows.payload for run in runs], chosen)
        columns = [
            taken[field.name].combine_chunks().cast(field.type)
            if field.name in taken.column_names
            else empty
            for field, empty in zip(fields, columns, strict=True)
        ]
    values = pa.StructArray.from_arrays(columns, fields=fields)
    offsets = pa.array(np.cumsum([0, *counts]), pa.int32())
    return pa.ListArray.from_arrays(offsets, values, type=kind)
