"""A windowed join on Spark: joins micro-batches with the windows, and commits what these hold.

The driver's half. The rows of a batch are shuffled to their buckets once; tasks join them, write
new runs, and report. When the sink has the results, the manifest of the batch names the runs.
"""

from __future__ import annotations

import pickle
import threading
import time
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from eddyline.errors import QueryError, StateError
from eddyline.joins.caches.loop import JoinCaches
from eddyline.joins.grid_choice import MIN_GAIN, chosen_grid, fullest, gain
from eddyline.joins.loop import JoinLoop
from eddyline.joins.operator.probe_counts import JoinWork
from eddyline.joins.plan import BatchPlan
from eddyline.joins.profile import JoinProfile
from eddyline.joins.state_part import JoinPart
from eddyline.joins.view import (
    STATIC,
    InputView,
    JoinRecord,
    JoinView,
    PipelineView,
    ProbeView,
)
from eddyline.registry import unknown
from eddyline.runtime.journal import JournalEntry
from eddyline.spark.joins.layout import START
from eddyline.spark.joins.source import INPUT, arrow_schema, placed
from eddyline.spark.joins.task import REPORT, BatchWorker, Shape
from eddyline.spark.run.observed_metrics import PendingMetrics, as_bytes
from eddyline.state.grid import N_BINS, Grid
from eddyline.state.late_rows import read_late, settle_late, with_times
from eddyline.state.manifest import ManifestFolder
from eddyline.state.repartitioning import Moved, buckets_for
from eddyline.state.rows import ALWAYS, KeyColumn
from eddyline.watch import joins as words

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa
    from pyarrow import fs
    from pyspark.sql import DataFrame

    from eddyline.joins.plan import BucketReport
    from eddyline.runtime.operator import Record
    from eddyline.runtime.records import History
    from eddyline.spark.joins.window_join import WindowJoin
    from eddyline.state.grid import Bins, Split
    from eddyline.state.manifest import Manifest
    from eddyline.state.run_files import RunFile
    from eddyline.watch.sections import Section

COMPONENT = "join"
"""What the journal calls decisions about the join as a whole."""

REVIEW_EVERY = 8
"""Batches between two looks at the grid, once so many have run."""

METRICS_WAIT_S = 60.0
"""How long metrics of a job that has run are waited for (s)."""

ADAPTIVE = "spark.sql.adaptive.enabled"
"""Spark's setting to plan each stage of a query when the one before it has run. That takes a job
for each stage, some 0.15 s a batch, to choose a number of partitions, which here are buckets."""

FRESH = 0.8
"""Weight of what was counted in a batch one batch later."""


@dataclass(slots=True)
class Running:
    """A batch whose job has been laid, but not yet counted."""

    batch_id: int
    before: JoinPart
    grid: Grid
    source: DataFrame
    arrived: PendingMetrics
    done: PendingMetrics


@dataclass(slots=True)
class InputCounts:
    """What arrived of one input."""

    n_arrived: int = 0
    n_joined: int = 0
    n_untimed: int = 0


@dataclass(slots=True)
class BatchCounts:
    """What one batch came to."""

    n_late: int = 0
    n_results: int = 0


class JoinPipeline:
    """A join over micro-batches, and what has been learned of it.

    Args:
        join: the join.
        files: where the window state is.
        folder: its folder; made if it is not there.

    Raises:
        StateError: the folder holds the windows of another query, or cannot be read.
    """

    def __init__(self, join: WindowJoin, files: fs.FileSystem, folder: str) -> None:
        self.join = join
        self.options = join.options.resolved()
        self.graph = join.graph
        self.loop = JoinLoop(self.graph, self.options)
        self.caches = JoinCaches(
            self.graph,
            [each.name for each in join.query.inputs if join.times[each.stream] is not None],
            cache_bytes=self.options.cache_bytes,
            is_on=self.options.adaptive and self.options.caches and join.order({}) is None,
            seed=self.options.seed,
        )
        self.folder = ManifestFolder(files, folder)
        self.place = self.folder.place(COMPONENT)
        self.entries: list[JournalEntry] = []
        self.counts = {name: InputCounts() for name in self.graph.inputs}
        self.bins: Bins = {
            (name, key): np.zeros(N_BINS)
            for name in self.graph.inputs
            for key in self.graph.classes_of[name]
        }
        self.work = JoinWork()
        self.n_results = 0
        self._loads: tuple[int, ...] = ()
        self._newest = BatchCounts()
        self._lock = threading.RLock()
        latest = self.folder.latest()
        if latest is not None and latest.identity != join.identity:
            msg = (
                f"{folder} holds the windows of another query ({latest.identity}); this "
                f"one is {join.identity}. Give another checkpoint, or the query as it was"
            )
            raise StateError(msg, folder=folder)
        self._take(latest)
        self._grid = self._chosen_grid(is_start=True)

    @property
    def has_windows(self) -> bool:
        """Whether a batch was joined before."""
        return self._batch_id >= 0

    def _take(self, manifest: Manifest | None) -> None:
        """Start from the windows of a manifest; from empty ones if there is none."""
        if manifest is None:
            self._batch_id, grid = -1, chosen_grid(self.graph, self.join.n_buckets)
            self._part = JoinPart(grid)
        else:
            self._batch_id = manifest.batch_id
            self._part = manifest.parts[COMPONENT].read(JoinPart)

    def _chosen_grid(self, *, is_start: bool = False) -> Grid:
        """Return the grid for the next batch: another one only where that is worth moving rows."""
        now, n_buckets = self._part.grid, self.join.n_buckets
        is_known = self.options.adaptive and any(each.any() for each in self.bins.values())
        bins = self.bins if is_known else None
        timed = [each.name for each in self.join.query.inputs if self.join.times[each.stream]]
        n_tasks = self.join.n_tasks
        better = chosen_grid(self.graph, n_buckets, bins, timed=timed, n_tasks=n_tasks)
        if is_start and better.n_buckets != now.n_buckets:
            return better
        is_worth_it = gain(self.graph, now, better, bins, n_tasks) >= MIN_GAIN
        return better if self.options.adaptive and is_worth_it else now

    # -- one batch ------------------------------------------------------------------------------

    def prepare(
        self,
        df: DataFrame,  # noqa: ARG002 - of the protocol
        *,
        batch_id: int,
        is_first: bool,  # noqa: ARG002
    ) -> None:
        """Get ready for a micro-batch: find the windows that it starts from.

        Raises:
            StateError: they are not there.
        """
        if self._batch_id == batch_id - 1:
            return
        before, again = self.folder.before(batch_id)
        self._take(before)
        if again is not None:
            # A batch that runs again is cut as it was: files of its late rows have the same names.
            self._grid = again.parts[COMPONENT].read(JoinPart).grid

    def apply_batch(
        self,
        df: DataFrame,
        *,
        batch_id: int,
        expected_rows: int,  # noqa: ARG002 - of the protocol
    ) -> tuple[DataFrame, list[Any]]:
        """Return the results of a micro-batch, and what it will report when it runs."""
        # A micro-batch has a session of its stream's own.
        df.sparkSession.conf.set(ADAPTIVE, "false")
        seen = Observation()
        arrived = df
        before, source = self._part, self.join.source
        df = df.observe(seen, *self._arrivals)
        if not self.has_windows and source.tables is not None:
            df = df.unionByName(source.tables)
        done = Observation()
        found = self._joined(df, batch_id).observe(done, F.collect_list(REPORT).alias("reports"))
        found = self.join.found_in(found)
        running = Running(
            batch_id, before, self._grid, arrived, PendingMetrics(seen), PendingMetrics(done)
        )
        return found, [running]

    @cached_property
    def _arrivals(self) -> list[Any]:
        """Return what is counted of the rows of a batch before they are shuffled."""
        columns = []
        for each in self.join.source.layouts:
            start = F.when(F.col(INPUT) == each.number, F.col(START))
            is_mine = F.when(F.col(INPUT) == each.number, 1)
            columns += [
                F.max(start).alias(f"latest{each.number}"),
                F.count(start).alias(f"timed{each.number}"),
                F.count(is_mine).alias(f"all{each.number}"),
            ]
        return columns

    def _joined(self, df: DataFrame, batch_id: int) -> DataFrame:
        schema = self.join.task_schema
        worker = BatchWorker(
            self._plan(batch_id),
            Shape(self.join.source.layouts, arrow_schema(df.sparkSession, schema)),
            self.place,
            buckets_for(self._grid, self._part.grid, self._part.buckets, self.graph.classes_of),
        )
        return placed(df, self._grid, self.join.source).mapInArrow(worker.run, schema)

    def _plan(self, batch_id: int) -> BatchPlan:
        source, time, latest = self.join.source, self.join.event_time, self._part.latest
        return BatchPlan(
            batch_id=batch_id,
            graph=self.graph,
            orders=self.loop.plan,
            lengths={each.name: each.window.length for each in source.layouts},
            lows=time.lows(latest),
            horizons={name: time.horizon(name, latest) for name in self.graph.inputs},
            grid=self._grid,
            order=self.join.order(latest),
            keys_only=self._keys_only,
            moved=Moved.of(self._part.grid, self._part.buckets, self._grid),
            probing=self.loop.probing(self._grid.shape),
            caches=self.caches.plan(self.loop.plan, batch_id),
        )

    @cached_property
    def _keys_only(self) -> dict[str, tuple[KeyColumn, ...]]:
        """Return, by input, the columns that late rows have and others need not carry."""
        found = {}
        for each in self.join.source.layouts:
            fields = self.join.fields_of(each, [name for name, _ in each.keys_only])
            kinds = [field.type for field in to_arrow_schema(fields, timezone="UTC")]
            columns = zip(each.keys_only, kinds, strict=True)
            found[each.name] = tuple(KeyColumn(*column, kind) for column, kind in columns)
        return found

    # -- learning -------------------------------------------------------------------------------

    def learn(self, reports: Iterable[Any], *, timeout_s: float = 0.0) -> list[Any]:
        """Take in what a batch did, and commit its windows.

        Raises:
            StateError: they cannot be written.
        """
        for running in reports:
            self._learn(running, time.monotonic() + timeout_s)
        return []

    def _learn(self, running: Running, deadline: float) -> None:
        found = self._reports(running.done, deadline)
        if len(found) < running.grid.n_buckets:
            # The sink took none of the results, or a part: the windows need the whole batch.
            result, (running,) = self.apply_batch(
                running.source, batch_id=running.batch_id, expected_rows=0
            )
            result.write.format("noop").mode("overwrite").save()
            found = self._reports(running.done, float("inf"))
        # The job has run, so this comes: without it the next batch would not know what is late.
        arrived = running.arrived.get(METRICS_WAIT_S)
        if arrived is None or len(found) < running.grid.n_buckets:
            msg = (
                f"batch {running.batch_id}: Spark did not tell what its job observed within "
                f"{METRICS_WAIT_S:.0f} s; start the query again: the batch runs again, nothing is "
                f"lost"
            )
            raise StateError(msg, batch_id=running.batch_id)
        with self._lock:
            self._count(found, arrived)
            self._commit(running, found, arrived)
            profile = JoinProfile.of(found[bucket] for bucket in sorted(found))
            self.entries += self.loop.step(profile, running.batch_id)
            self.entries += self.caches.step(profile, running.batch_id)
            self._review(running.batch_id)

    @staticmethod
    def _reports(pending: PendingMetrics, deadline: float) -> dict[int, BucketReport]:
        metrics = pending.get(max(0.0, min(deadline - time.monotonic(), METRICS_WAIT_S)))
        reports = [pickle.loads(packed) for packed in as_bytes(metrics or {}, "reports")]
        return {report.bucket: report for report in reports}

    def _count(self, found: dict[int, BucketReport], arrived: dict[str, Any]) -> None:
        for each in self.join.source.layouts:
            counts = self.counts[each.name]
            n_all, n_timed = (
                int(arrived.get(f"{of}{each.number}") or 0) for of in ("all", "timed")
            )
            counts.n_arrived += n_all
            counts.n_untimed += n_all - n_timed
            for report in found.values():
                counts.n_joined += report.n_rows.get(each.name, 0)
        for key in self.bins:
            fresh = [report.bins[key] for report in found.values() if key in report.bins]
            self.bins[key] = FRESH * self.bins[key] + sum(fresh, np.zeros(N_BINS))
        self.work = JoinWork.merge([self.work, *(each.work for each in found.values())])
        self._newest = BatchCounts(
            n_late=sum(sum(each.n_late.values()) for each in found.values()),
            n_results=sum(each.n_results for each in found.values()),
        )
        self.n_results += self._newest.n_results
        self._loads = tuple(found[at].n_here for at in sorted(found))

    def _commit(
        self, running: Running, found: dict[int, BucketReport], arrived: dict[str, Any]
    ) -> None:
        latest = dict(running.before.latest)
        for each in self.join.source.layouts:
            newest = arrived.get(f"latest{each.number}")
            if newest is not None and self.join.times[each.stream] is not None:
                latest[each.name] = max(latest.get(each.name, newest), int(newest))
        n_late = dict(running.before.n_late)
        for report in found.values():
            for name, n in report.n_late.items():
                n_late[name] = n_late.get(name, 0) + n
        buckets = {bucket: report.after for bucket, report in sorted(found.items())}
        part = JoinPart(running.grid, buckets, latest, n_late)
        settle_late(
            self.place,
            running.batch_id,
            {file for report in found.values() for file in report.late_files},
        )
        self.folder.commit(running.batch_id, self.join.identity, {COMPONENT: part.packed()})
        self._batch_id, self._part = running.batch_id, part

    def _review(self, batch_id: int) -> None:
        """Look now and then whether another grid would do better."""
        if batch_id > REVIEW_EVERY and batch_id % REVIEW_EVERY:
            return
        before, self._grid = self._grid, self._chosen_grid()
        if self._grid != before:
            evidence = {
                "rows_in_fullest_before": fullest(self.graph, before, self.bins),
                "rows_in_fullest_after": fullest(self.graph, self._grid, self.bins),
            }
            plans = _grid_plan(before), _grid_plan(self._grid)
            self.entries.append(JournalEntry(batch_id, COMPONENT, "grid", *plans, evidence))

    def take_entries(self) -> list[JournalEntry]:
        """Return the decisions since the last call."""
        with self._lock:
            taken, self.entries = self.entries, []
        return taken

    # -- seeing ---------------------------------------------------------------------------------

    def late_rows(self, name: str) -> pa.Table:
        """Return the rows of an input that came too late; see ``window_join.JoinRun``.

        Raises:
            QueryError: there is no such input.
            StateError: they cannot be read.
        """
        layouts = {each.name: each for each in self.join.source.layouts}
        if name not in layouts:
            raise QueryError(unknown("input", name, list(layouts)), name=name)
        try:
            found = read_late(self.place, name, self._batch_id)
        except OSError as error:
            msg = (
                f"late rows cannot be read from {self.place.late}: {error}; a run without a "
                f"checkpoint removes them when it ends"
            )
            raise StateError(msg, folder=self.place.late) from error
        if found is not None:
            return found
        layout = layouts[name]
        columns = [column for column, _ in (*layout.columns, *layout.keys_only)]
        schema = to_arrow_schema(self.join.fields_of(layout, columns), timezone="UTC")
        return with_times(schema.empty_table(), np.empty(0, np.int64))

    def records(self) -> tuple[Record, ...]:
        """Return how each pipeline and the join stand after a batch."""
        return (*self.loop.record().pipelines, self._record())

    def lines(self) -> tuple[str, ...]:
        """Return the orders in force and what the windows hold in words, for the progress."""
        return words.lines(self.records())

    def sections(self, history: History) -> list[Section]:
        """Return for people what the plan is, why, and what it did."""
        return words.sections(self.view(), history)

    def _record(self) -> JoinRecord:
        with self._lock:
            files = {name: self._files(name) for name in self.graph.inputs}
            return JoinRecord(
                inputs=self.graph.inputs,
                n_kept=tuple(sum(file.n_rows for file in each) for each in files.values()),
                n_bytes=tuple(sum(file.n_bytes for file in each) for each in files.values()),
                n_late=self._newest.n_late,
                n_results=self._newest.n_results,
            )

    def plan(self) -> dict[str, list[str]]:
        """Return the order of each pipeline, by names."""
        return {name: list(order) for name, order in self.loop.plan.items()}

    def view(self) -> JoinView:
        """Return the join as it stands."""
        with self._lock:
            loads = np.array(self._loads, dtype=np.float64)
            mean = loads.mean() if loads.size else 0.0
            return JoinView(
                name=self.join.name,
                emits=self.join.query.emits,
                inputs=tuple(map(self._input_view, range(len(self.graph.inputs)))),
                pipelines=tuple(map(self._pipeline_view, self.graph.inputs)),
                caches=self.caches.views(),
                keys=tuple(map(str, self.join.query.keys)),
                grid=self._grid.shape,
                splits=tuple(map(_split_text, self._grid.splits)),
                fullest=float(loads.max() / mean) if mean > 0 else float("nan"),
                n_results=self.n_results,
                is_adaptive=self.options.adaptive,
                notes=tuple(self._notes()),
            )

    def _input_view(self, number: int) -> InputView:
        each = self.join.query.inputs[number]
        counts = self.counts[each.name]
        is_table = self.join.times[each.stream] is None
        files = self._files(each.name)
        low = ALWAYS if is_table else self.join.event_time.low(each.name, self._part.latest)
        return InputView(
            name=each.name,
            stream=each.stream,
            window=STATIC if is_table else each.window.text,
            n_arrived=counts.n_arrived,
            n_joined=counts.n_joined,
            n_late=self._part.n_late.get(each.name, 0),
            n_untimed=counts.n_untimed,
            latest=self._part.latest.get(each.name),
            n_kept=sum(file.n_rows for file in files),
            n_bytes=sum(file.n_bytes for file in files),
            n_runs=len(files),
            n_waiting=sum(
                file.n_rows
                for bucket in self._part.buckets.values()
                for file in bucket.waiting.get(each.name, ())
            ),
            awaited_from=low if low > ALWAYS else None,
        )

    def _files(self, name: str) -> list[RunFile]:
        """Return the runs of the window of an input."""
        return [
            file for bucket in self._part.buckets.values() for file in bucket.runs.get(name, ())
        ]

    def _pipeline_view(self, name: str) -> PipelineView:
        probes, drop_fracs = [], self.loop.drop_fracs(name)
        for other in self.loop.plan[name]:
            done, drop_frac = self.work.probe(name, other), drop_fracs.get(other, float("nan"))
            probes.append(ProbeView(other, done.n_in, done.n_out, done.ns, drop_frac))
        return PipelineView(name, tuple(probes), self.loop.written[name])

    def _notes(self) -> list[str]:
        notes = []
        lows = self.join.event_time.lows(self._part.latest)
        silent = sorted(name for name, low in lows.items() if low == ALWAYS)
        if silent and len(silent) < len(lows):
            notes.append(
                f"no row of {', '.join(silent)} has come yet, so nothing that could still join "
                f"its rows leaves the windows of the others"
            )
        if (order := self.join.order(self._part.latest)) is not None:
            notes.append(
                f"results wait for event time: no earlier row of {', '.join(order.awaited)} may "
                f"come any more; all rows are joined in one task"
            )
        if not self.options.adaptive:
            notes.append("adaptation is switched off: orders stand as written")
        return notes

    # -- saving ---------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return what was learned, as plain values."""
        return {
            "loop": self.loop.snapshot(),
            "bins": [[*key, of.tolist()] for key, of in self.bins.items()],
            "counts": {name: list(astuple(of)) for name, of in self.counts.items()},
            "n_results": self.n_results,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what ``snapshot`` returned.

        Raises:
            StateError: it is damaged, or of something else.
        """
        try:
            self.loop.restore(state["loop"])
            for name, key, of in state["bins"]:
                self.bins[name, key] = np.array(of, dtype=np.float64)
            counts = state["counts"]
            self.counts = {name: InputCounts(*counts[name]) for name in self.graph.inputs}
            self.n_results = int(state["n_results"])
        except (KeyError, TypeError, ValueError) as error:
            msg = f"what the join {self.join.name!r} has learned cannot be read: {error!r}"
            raise StateError(msg, query=self.join.name) from error
        self._grid = self._chosen_grid(is_start=True)


def _grid_plan(grid: Grid) -> Any:
    """Return a grid as plain values: its shape, and which bins are split if some are."""
    shape = list(grid.shape)
    if not grid.splits:
        return shape
    return {
        "shape": shape,
        "splits": [f"bin {each.bin}: {_split_text(each)}" for each in grid.splits],
    }


def _split_text(split: Split) -> str:
    return ", ".join(f"{name} in {size}" for name, size in split.sides)
