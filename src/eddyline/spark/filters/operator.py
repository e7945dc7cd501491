"""A bound conjunction on Spark: lays its blocks over a DataFrame and learns from what they report.

The driver's half of the loop. It holds one ``FilterLoop`` per block, builds the DataFrame of a
batch from the orders in force, and feeds what the batch observed back into the loops.
"""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation
from pyspark.sql import functions as F

from eddyline.data.sampling import seed_of
from eddyline.filters.loop import FilterLoop
from eddyline.filters.routing_loop import MAX_ROWS
from eddyline.query.predicates import FunctionPredicate
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.records import BlockRecord, BlockView, FilterView
from eddyline.spark.filters.binding import PREFIX
from eddyline.spark.filters.native_block import NativeBlock
from eddyline.spark.filters.plan_text import is_narrow
from eddyline.spark.filters.task import TaskReport, WorkerBlock
from eddyline.spark.filters.udf import apply_arrow_block
from eddyline.spark.run.observed_metrics import PendingMetrics, as_bytes
from eddyline.stats.profile import FilterProfile, merge_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame

    from eddyline.filters.binding import BoundConjunction, Segment
    from eddyline.options import FilterOptions
    from eddyline.query.attributes import Attribute

SAMPLE_TIME_FRAC = 0.01
"""Most time that reading samples may take, as a share of the time between two of them."""

N_SEEDS = 4
"""Samples of a native block take turns, batch by batch: Spark compiles new code for a new seed."""

MAX_CODES = 4
"""Outcome codes that a native block collects per batch, in windows: more would only replace each
other, and all of them pass through the driver."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a job will observe, and for which block."""

    component: str
    pending: PendingMetrics
    prob: float
    """Sampling probability of a native block (arrow reports say their own)."""
    batch_id: int


class FilterPipeline:
    """The blocks of one conjunction, and what has been learned of them.

    Args:
        bound: the conjunction over the columns of its input.
        options: how orders are learned.
        name: of the conjunction or query; part of the seed of every sample.
        max_handed_over: most attributes that are handed over to workers unless the user named
            them.
    """

    def __init__(
        self,
        bound: BoundConjunction,
        options: FilterOptions,
        name: str,
        *,
        max_handed_over: int = 8,
    ) -> None:
        self.bound = bound
        self.options = options = options.resolved()
        self.name = name
        self.native: dict[str, NativeBlock] = {}
        self.functions: dict[str, tuple[FunctionPredicate, ...]] = {}
        self.loops: dict[str, FilterLoop] = {}
        self._reads: dict[str, tuple[frozenset[str], ...]] = {}
        self._n_learned: Counter[str] = Counter()
        self.entries: list[JournalEntry] = []
        self.notes: dict[str, str] = {}
        self._max_handed_over = max_handed_over
        for number, segment in enumerate(bound.segments):
            self._add_blocks(segment, number)
        self._lock = threading.RLock()
        """Reports of streaming queries arrive on Spark's listener thread."""
        self._run_id = uuid.uuid4().hex
        self._sampled_at = -float("inf")
        self._sample_cost_s = 0.0

    def _add_blocks(self, segment: Segment, number: int) -> None:
        suffix = f"#{number + 1}" if number else ""
        if segment.native:
            block = NativeBlock(
                tuple(each.name for each in segment.native),
                tuple(each.safe_text for each in segment.native),
                f"{PREFIX}_{number}",
                self.bound.attributes,
            )
            component = f"native{suffix}"
            self.native[component] = block
            self.loops[component] = FilterLoop(
                component,
                block.filter_ids,
                self.options,
                attributes=block.attributes,
                reads=tuple(each.columns for each in segment.native),
                hands_over=False,
                thinks_freely=True,
            )
        if segment.functions:
            component = f"arrow{suffix}"
            self.functions[component] = segment.functions
            self._reads[component] = segment.columns
            self.loops[component] = FilterLoop(
                component,
                tuple(each.name for each in segment.functions),
                self.options,
                attributes=self._useful(segment.columns),
                reads=segment.columns,
                thinks_freely=True,
            )

    def _useful(self, columns: tuple[frozenset[str], ...]) -> tuple[Attribute, ...]:
        """Return the attributes that some filter does not read itself, as far as they go."""
        is_named = self.options.route_by is not None
        useful = [
            each
            for each in self.bound.attributes
            if is_named or not all(each.reads & read for read in columns)
        ]
        return tuple(useful[: None if is_named else self._max_handed_over])

    # -- building a batch ---------------------------------------------------------------------

    def prepare(
        self,
        df: DataFrame,
        *,
        batch_id: int,  # noqa: ARG002 - of the protocol
        is_first: bool,
    ) -> None:
        """Look at a micro-batch before it runs: for an order of native filters, for names."""
        if is_first:
            self.read_sample(df)
        self.label_texts(df)

    def apply_batch(
        self, df: DataFrame, *, batch_id: int, expected_rows: int
    ) -> tuple[DataFrame, list[Report]]:
        """Lay the conjunction over a micro-batch; see ``apply``."""
        return self.apply(df, batch_id=batch_id, profiles_native=True, expected_rows=expected_rows)

    def apply(
        self,
        df: DataFrame,
        *,
        batch_id: int = -1,
        profiles_native: bool = False,
        expected_rows: int = 0,
        observation: Callable[[str], Any] = lambda _component: Observation(),
    ) -> tuple[DataFrame, list[Report]]:
        """Lay the conjunction over a DataFrame, with the orders in force.

        Args:
            df: the input.
            batch_id: the micro-batch, or -1 if the driver does not know it.
            profiles_native: whether the native blocks are profiled within the job.
            expected_rows: rows of the input, as far as they can be foreseen (0: unknown); keeps
                the codes that the driver gets to a few windows.
            observation: makes, for an Arrow block, what ``DataFrame.observe`` takes: an
                Observation or a name.

        Returns:
            The filtered DataFrame, and what it will report when it runs.
        """
        with self._lock:
            return self._laid(df, batch_id, profiles_native, expected_rows, observation)

    def _laid(
        self,
        df: DataFrame,
        batch_id: int,
        profiles_native: bool,
        expected_rows: int,
        observation: Callable[[str], Any],
    ) -> tuple[DataFrame, list[Report]]:
        reports: list[Report] = []
        errors: list[str] = []
        for number, segment in enumerate(self.bound.segments):
            suffix = f"#{number + 1}" if number else ""
            if segment.native:
                prob = self._native_prob(f"native{suffix}", expected_rows) * profiles_native
                df = self._native(df, f"native{suffix}", batch_id, prob, reports)
            if segment.functions:
                component, column = f"arrow{suffix}", f"{PREFIX}_{number}_arrow"
                seen = observation(component)
                block, texts = self._worker_block(
                    component, segment.functions, batch_id, is_fixed=df.isStreaming
                )
                df = apply_arrow_block(df, block, texts, column, seen)
                errors += [column] if self._carries_errors else []
                if not isinstance(seen, str):
                    reports.append(Report(component, PendingMetrics(seen), 0.0, batch_id))
            if segment.barrier is not None:
                df = self._barrier(df, segment.barrier, f"{PREFIX}_{number}_pinned", errors)
        return self._checked(df, errors), reports

    @property
    def _carries_errors(self) -> bool:
        """Whether something after an Arrow block may still drop a row on which it raised."""
        return bool(self.bound.checks) or len(self.bound.segments) > 1

    def _native(
        self, df: DataFrame, component: str, batch_id: int, prob: float, reports: list[Report]
    ) -> DataFrame:
        block, loop = self.native[component], self.loops[component]
        if prob <= 0.0:
            return block.apply(df, loop.order, loop.table)
        seen = Observation()
        # Both stand in the code that Spark compiles, and keeps for batches of the same code.
        prob = 2.0 ** math.floor(math.log2(prob))
        seed = seed_of(self.options.seed, self.name, component, batch_id % N_SEEDS) & 0x7FFFFFFF
        reports.append(Report(component, PendingMetrics(seen), prob, batch_id))
        return block.apply_profiled(
            df,
            loop.order,
            loop.table,
            prob=prob,
            seed=seed,
            observation=seen,
            is_learning=loop.is_learning_routes,
        )

    def _native_prob(self, component: str, expected_rows: int) -> float:
        """Return the share of rows whose codes the driver gets; the driver's part is bounded."""
        prob = self.loops[component].sample_prob()
        if expected_rows <= 0:
            return min(prob, self.options.sample_prob)
        return min(prob, MAX_CODES * self.options.window_rows / expected_rows)

    def _worker_block(
        self,
        component: str,
        functions: tuple[FunctionPredicate, ...],
        batch_id: int,
        *,
        is_fixed: bool,
    ) -> tuple[WorkerBlock, tuple[str, ...]]:
        """Return what the tasks of a batch run, and the columns that they are handed.

        Args:
            component: the block.
            functions: its predicates.
            batch_id: the micro-batch, or -1.
            is_fixed: whether the plan is laid once for many batches.
        """
        loop = self.loops[component]
        # The plan of a plain stream is laid once, so it could not stop handing attributes over.
        is_named = self.options.route_by is not None
        is_learning = loop.is_learning_routes and (is_named or not is_fixed)
        texts = tuple(dict.fromkeys(text for each in functions for text in each.reads))
        place = {text: index for index, text in enumerate(texts)}
        driver_leads = batch_id >= 0
        block = WorkerBlock(
            component=component,
            predicates=functions,
            columns=tuple(tuple(place[text] for text in each.reads) for each in functions),
            options=self.options,
            run_id=f"{self._run_id}/{component}/{batch_id}.{self._n_learned[component]}",
            batch_id=batch_id,
            state=self._state(loop),
            # Partial bits are only valid under the order they were taken: then the driver decides.
            may_switch=loop.policy.needs_all_bits or not driver_leads,
            carries_errors=self._carries_errors,
            query=self.name,
            attributes=loop.routes.attributes if is_learning and loop.routes else (),
            reads=self._reads[component],
        )
        return block, texts

    def _state(self, loop: FilterLoop) -> dict[str, Any] | None:
        with self._lock:
            return loop.snapshot() if loop.is_adaptive else None

    def take_entries(self) -> list[JournalEntry]:
        """Return the decisions since the last call."""
        with self._lock:
            taken, self.entries = self.entries, []
        return taken

    def _barrier(self, df: DataFrame, barrier: Any, column: str, errors: list[str]) -> DataFrame:
        """Apply a pinned predicate on its own."""
        if not isinstance(barrier, FunctionPredicate):
            return df.where(barrier.text)
        block = WorkerBlock(
            component=column,
            predicates=(barrier,),
            columns=(tuple(range(len(barrier.reads))),),
            options=self.options,
            run_id=f"{self._run_id}/{column}",
            batch_id=-1,
            state=None,
            may_switch=False,
            carries_errors=True,
            query=self.name,
        )
        errors.append(column)
        return apply_arrow_block(df, block, barrier.reads, column, f"{column}_{uuid.uuid4().hex}")

    def _checked(self, df: DataFrame, errors: list[str]) -> DataFrame:
        """Check on the survivors what can raise, then raise the errors that are still there."""
        if self.bound.checks:
            # A random number is not deterministic, so Spark moves no filter below it: what can
            # raise meets no row that anything above would have dropped. (A row number would do as
            # well, but streaming DataFrames have none.)
            last = f"{PREFIX}_last"
            df = df.withColumn(last, F.rand(0)).where(f"{last} >= 0")
            for check in self.bound.checks:
                df = df.where(check.text)
            df = df.drop(last)
        for column in errors:
            raises = f"CAST(raise_error({column}.error) AS BOOLEAN)"
            df = df.where(f"CASE WHEN {column}.error IS NULL THEN true ELSE {raises} END")
        return df.drop(*errors)

    # -- learning -----------------------------------------------------------------------------

    def learn(self, reports: Iterable[Report], *, timeout_s: float = 0.0) -> list[Report]:
        """Feed what has been reported into the loops.

        Args:
            reports: what jobs will report.
            timeout_s: how long to wait for all of them together (s).

        Returns:
            The reports whose jobs have not run yet.
        """
        waiting = []
        deadline = time.monotonic() + timeout_s
        for report in reports:
            metrics = report.pending.get(max(0.0, deadline - time.monotonic()))
            if metrics is None:
                waiting.append(report)
            elif report.component in self.native:
                block = self.native[report.component]
                fresh = block.parse(metrics.get("native") or [], prob=report.prob)
                self._step(report.component, fresh, report.batch_id)
            else:
                self.learn_arrow(report.component, as_bytes(metrics, "arrow"), report.batch_id)
        return waiting

    def learn_arrow(self, component: str, packed: list[bytes], batch_id: int) -> None:
        """Feed the reports of an Arrow block's tasks into its loop, each task once."""
        tasks: dict[int, TaskReport] = {}
        for data in packed:
            task = TaskReport.from_bytes(data)
            known = tasks.get(task.partition)
            if known is None or task.attempt >= known.attempt:
                tasks[task.partition] = task
        if not tasks:
            return
        with self._lock:
            for task in tasks.values():
                self.entries += [_of_task(entry, task.partition) for entry in task.entries]
                if n_left_out := task.n_entries - len(task.entries):
                    evidence = {"partition": task.partition, "n_entries": n_left_out}
                    left_out = JournalEntry(batch_id, component, "left_out", evidence=evidence)
                    self.entries.append(left_out)
            profiles = [tasks[partition].profile for partition in sorted(tasks)]
            fresh = merge_tasks(profiles, self.options.window_rows, MAX_ROWS)
            self._step(component, fresh, batch_id)
            for task in tasks.values():
                self.loops[component].add_costs(task.loading)
            # What all tasks learned together is more than what a worker remembers of its own.
            self._n_learned[component] += 1

    def _step(self, component: str, fresh: FilterProfile, batch_id: int) -> None:
        with self._lock:
            self.entries += self.loops[component].step(fresh, batch_id)

    # -- the one chance of a batch job ----------------------------------------------------------

    def read_sample(self, df: DataFrame) -> None:
        """Order the native blocks by a bounded sample of a batch input, if that is cheap."""
        if not self._wants_sample():
            return
        if not is_narrow(df):
            self.notes["sample"] = (
                "no sample was read before the job: the input needs a shuffle or a join, "
                "which the sample would run a second time; native predicates stand as written"
            )
            return
        started = time.monotonic()
        for component, block in self.native.items():
            if self.loops[component].is_adaptive:
                self._read_sample(df, component, block)
        self._sampled_at = time.monotonic()
        self._sample_cost_s = self._sampled_at - started

    def _wants_sample(self) -> bool:
        if not (self.options.read_sample and self.options.adaptive):
            return False
        since = time.monotonic() - self._sampled_at
        return since * SAMPLE_TIME_FRAC >= self._sample_cost_s

    def _read_sample(self, df: DataFrame, component: str, block: NativeBlock) -> None:
        head = df.limit(self.options.read_sample_rows)
        code = block.timed_code("monotonically_increasing_id()")
        is_learning = self.loops[component].is_learning_routes
        seen = F.expr(block.observed("code", is_learning=is_learning)).alias("seen")
        try:
            sample = head.withColumn("code", F.expr(code)).select(seen)
            rows = [_values(each) for each in sample.toArrow()["seen"].to_pylist()]
        except Exception as error:  # noqa: BLE001 - a sample is a chance, never a reason to fail
            self.notes["sample"] = f"no sample could be read before the job: {error}"[:300]
            return
        fresh = block.parse(rows, prob=1.0)
        before = self.loops[component].order
        self._step(component, fresh, -1)
        n_rows = len(rows)
        if n_rows == 0:
            return
        self.notes["sample"] = (
            f"native predicates were ordered by a sample of {n_rows} rows read before the job "
            f"(read_sample=False switches it off)"
        )
        loop = self.loops[component]
        if loop.order == before:
            evidence = {"n_rows": n_rows, "profile_tuples": fresh.n_tuples}
            names = loop.names(before)
            self.entries.append(JournalEntry(-1, component, "sample", names, names, evidence))

    def label_texts(self, df: DataFrame) -> None:
        """Find out, for people, which texts stand behind the hashes that tell classes apart."""
        lacking = [
            (loop.routes, each)
            for loop in self.loops.values()
            if loop.routes is not None
            for each in loop.routes.unlabelled
        ]
        may_read = self.options.read_sample and not df.isStreaming
        if not lacking or not may_read or not is_narrow(df):
            return
        head = df.limit(self.options.read_sample_rows)
        for routes, each in lacking:
            pairs = head.selectExpr(f"{each.sql} AS hash", f"{each.text_sql} AS label")
            try:
                rows = pairs.toArrow().to_pylist()
            except Exception as error:  # noqa: BLE001 - a name is a help, no reason to fail
                self.notes["labels"] = f"texts of {each.name!r} could not be read: {error}"[:300]
                rows = []
            known = [row for row in rows if row["hash"] is not None]
            routes.labels[each.name] = {row["hash"]: repr(row["label"]) for row in known}

    # -- seeing ---------------------------------------------------------------------------------

    def view(self, last_change: JournalEntry | None) -> FilterView:
        """Return the conjunction as it stands."""
        with self._lock:
            blocks = tuple(self._block_view(component) for component in self.loops)
        return FilterView(
            name=self.name,
            blocks=blocks,
            pinned=self.bound.pinned,
            last_change=last_change,
            notes=tuple(self.notes.values()),
        )

    def _block_view(self, component: str) -> BlockView:
        loop = self.loops[component]
        if component in self.native:
            texts = self.native[component].texts
        else:
            texts = tuple(each.text for each in self.functions[component])
        return BlockView(
            component=component,
            written=tuple(range(len(loop.order))),
            order=loop.order,
            profile=loop.window.profile(),
            texts=texts,
            is_adaptive=loop.is_adaptive,
            note=self._note(component),
            totals=loop.totals,
            routes=() if loop.routes is None else loop.routes.views(),
            routed_by=() if loop.table is None else loop.table.attributes,
            route_note="" if loop.routes is None else loop.routes.note,
        )

    def _note(self, component: str) -> str:
        if not self.options.adaptive:
            return "adaptation is switched off: the order stands as written"
        return self.notes.get(component, "")

    def records(self) -> tuple[BlockRecord, ...]:
        """Return how each block stands after a batch."""
        return tuple(loop.record() for loop in self.loops.values())

    def rule_record(self) -> None:
        """Return None: it is no set of rules."""

    def join_record(self) -> None:
        """Return None: it is no join."""

    def plan(self) -> dict[str, list[str]]:
        """Return the order of each block, by names."""
        return {component: loop.names(loop.order) for component, loop in self.loops.items()}

    # -- saving ---------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return what was learned, as plain values."""
        return {component: loop.snapshot() for component, loop in self.loops.items()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what ``snapshot`` returned."""
        for component, loop in self.loops.items():
            if component in state:
                loop.restore(state[component])


def _values(seen: Any) -> Any:
    """Return what was observed of a row as a sequence, as ``observe`` gives it."""
    return tuple(seen.values()) if isinstance(seen, dict) else seen


def _of_task(entry: dict[str, Any], partition: int) -> JournalEntry:
    """Return a journal entry that a task wrote, with the partition that it ran on."""
    evidence = {**entry["evidence"], "partition": partition}
    return JournalEntry(**{**entry, "evidence": evidence})
