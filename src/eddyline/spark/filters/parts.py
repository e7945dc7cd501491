"""Parts of a conjunction on Spark, one behind the other.

A native part filters in the JVM, an Arrow part in Python workers; a pinned predicate stays where it
was written; the last part checks on the survivors what can raise. Native and Arrow parts have a
loop, which decides in which order their predicates run.
"""

from __future__ import annotations

import math
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec import structs

from eddyline.data.outcomes import seed_of
from eddyline.filters.loop import ProfilingBudget
from eddyline.ordering.protocol import expected_cost_ns
from eddyline.query.predicates import FunctionPredicate
from eddyline.runtime.journal import decisions_of
from eddyline.runtime.order_loop import MAX_ROWS
from eddyline.spark.filters.guard import EVERY_ROW, Guard, in_turn, settled
from eddyline.spark.filters.task import FilterTask
from eddyline.spark.filters.udf import apply_arrow_block, kept_of_files, rows_of_files
from eddyline.spark.operator import Pending
from eddyline.spark.run.observations import PendingMetrics
from eddyline.stats.profile import merge_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

    from eddyline.filters.loop import FilterLoop
    from eddyline.options import FilterOptions
    from eddyline.query.predicates import Predicate, SqlPredicate
    from eddyline.runtime.journal import JournalEntry
    from eddyline.spark.filters.native_block import NativeBlock
    from eddyline.spark.lane import ListedScan
    from eddyline.spark.operator import Batch, Observed
    from eddyline.spark.task_results import TaskResults

N_SEEDS = 2
"""Samples of a native part take turns, batch by batch: Spark compiles new code for a new seed."""

PLANNED_AGAIN = 3.0
"""Least time that a profiled plan takes Spark in all, in units of laying it."""

MAX_CODES = 4
"""Outcome codes that a native part collects per batch, in windows: more would only replace each
other, and all of them pass through the driver."""


@dataclass(slots=True)
class Laying:
    """A conjunction while its parts are laid, one after the other."""

    df: DataFrame
    batch: Batch
    observation: Callable[[str], Any]
    """Makes, for a component, what ``DataFrame.observe`` takes: an Observation or a name."""
    pending: list[Pending] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """Columns of errors that count if their row survives everything."""
    files: ListedScan | None = None
    """The files of all rows, where the first part is to read them; its DataFrame is then unused."""
    tasks: TaskResults | None = None
    """The result, where tasks give it; the DataFrame then only tells the columns."""

    def observed(self, component: str, facts: Any = None) -> Any:
        """Return an observation for a component, and await it unless a stream's progress tells."""
        seen = self.observation(component)
        if not isinstance(seen, str):
            self.pending.append(Pending(component, PendingMetrics(seen), facts))
        return seen


@dataclass(slots=True)
class NativePart:
    """SQL predicates as one chain in the JVM."""

    block: NativeBlock
    loop: FilterLoop
    query: str
    _budget: ProfilingBudget = field(default_factory=ProfilingBudget)
    _laid_at: int = field(default_factory=time.perf_counter_ns)
    _planned_ns: float = 0.0
    """What planning took at least if the batch that was laid last is profiled (ns), else 0."""
    _has_passed: bool = False
    """Whether the batch that was laid last has ended, as far as that is told."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The predicates in words, in the order in which they are written."""
        return self.block.texts

    def lay(self, laying: Laying) -> None:
        """Filter, and profile a sample of the rows; of short batches some are not profiled."""
        before, self._laid_at = self._laid_at, time.perf_counter_ns()
        if not self._has_passed:
            self._budget.passed(self._laid_at - before, planned_ns=self._planned_ns)
        self._planned_ns, self._has_passed = 0.0, False
        profiles = laying.batch.id >= 0 and not self.block.is_long
        prob = self._prob(laying.batch.expected_rows) if profiles else 0.0
        if prob > 0.0 and (self._budget.may or self.loop.lacks_evidence):
            self._lay_profiled(laying, prob)
            self._planned_ns = PLANNED_AGAIN * (time.perf_counter_ns() - self._laid_at)
        else:
            laying.df = self.block.apply(laying.df, self.loop.order, self.loop.table)

    def passed(self, n_rows: int | None) -> None:
        """Take note that the job of a micro-batch has ended, of so many rows if that is known."""
        took_ns, profile = time.perf_counter_ns() - self._laid_at, self.loop.window.profile()
        # Of rows that nobody has counted, as many may come with each batch.
        work_ns = (n_rows or 0) * expected_cost_ns(self.loop.order, profile)
        n = 1.0 if n_rows is None else n_rows
        self._budget.passed(took_ns, work_ns=work_ns, n_rows=n, planned_ns=self._planned_ns)
        self._has_passed = True

    def _lay_profiled(self, laying: Laying, prob: float) -> None:
        loop = self.loop
        # Both stand in the code that Spark compiles, and keeps for batches of the same code.
        prob = 2.0 ** math.floor(math.log2(prob))
        number = laying.batch.id % N_SEEDS
        seed = seed_of(loop.options.seed, self.query, loop.component, number)
        laying.df = self.block.apply_profiled(
            laying.df,
            loop.order,
            loop.table,
            prob=prob,
            seed=seed & 0x7FFFFFFF,
            observation=laying.observed(loop.component, prob),
            is_learning=loop.is_learning_routes,
        )

    def _prob(self, expected_rows: int) -> float:
        """Return the share of rows whose codes the driver gets; the driver's part is bounded."""
        prob = self.loop.sample_prob()
        if expected_rows <= 0:
            return min(prob, self.loop.options.sample_prob)
        return min(prob, MAX_CODES * self.loop.window.max_tuples / expected_rows)

    def learn(self, observed: Sequence[Observed], batch: Batch) -> list[JournalEntry]:
        """Take in the outcome codes of jobs."""
        entries = []
        for observation in observed:
            fresh = self.block.parse(
                observation.metrics.get("native") or [], prob=observation.facts
            )
            entries += self.loop.step(fresh, batch.id)
        return entries


@dataclass(slots=True, eq=False)
class ArrowPart:
    """Python predicates in one Arrow UDF, or in tasks that read files themselves."""

    functions: tuple[FunctionPredicate, ...]
    columns: tuple[frozenset[str], ...]
    """The columns that each of them reads."""
    loop: FilterLoop
    column: str
    """Name of the temporary column."""
    query: str
    run_id: str
    carries_errors: bool
    """Whether something after it may still drop a row on which it raised."""
    guard: Guard
    n_learned: int = 0
    """Batches of which reports have come home."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The predicates in words, in the order in which they are written."""
        return tuple(function.text for function in self.functions)

    def lay(self, laying: Laying) -> None:
        """Filter in Python workers."""
        texts = self.handed
        task = self._task(laying.batch.id, texts, is_fixed=laying.df.isStreaming)
        seen = laying.observed(self.loop.component)
        files, laying.files = laying.files, None
        if files is not None:
            kept = kept_of_files(files, task, texts, seen)
            if laying.batch.takes_tasks:
                laying.tasks = kept.task_results()
                return
            laying.df = rows_of_files(kept, task, self.column)
        else:
            laying.df = apply_arrow_block(laying.df, task, texts, self.column, seen, self.guard)
        laying.errors += [self.column] if self.carries_errors else []

    def _task(self, batch_id: int, texts: Sequence[str], *, is_fixed: bool) -> FilterTask:
        """Return the work of a batch's tasks, which are handed some columns."""
        loop = self.loop
        # What the log of plans is told stays on the driver.
        state = structs.replace(loop.snapshot(), recent=[]) if loop.is_adaptive else None
        # The plan of a plain stream is laid once, so it could not stop handing attributes over.
        is_named = loop.options.route_by is not None
        is_learning = loop.is_learning_routes and (is_named or not is_fixed)
        place = {text: index for index, text in enumerate(texts)}
        return FilterTask(
            component=loop.component,
            predicates=self.functions,
            columns=tuple(
                tuple(place[text] for text in function.reads) for function in self.functions
            ),
            options=loop.options,
            run_id=f"{self.run_id}/{loop.component}/{batch_id}.{self.n_learned}",
            batch_id=batch_id,
            state=state,
            # Partial bits are only valid under the order they were taken: then the driver decides.
            may_switch=not loop.is_held and (loop.policy.needs_all_bits or batch_id < 0),
            held=loop.order if loop.is_held else None,
            carries_errors=self.carries_errors,
            query=self.query,
            attributes=loop.routes.attributes if is_learning and loop.routes else (),
            reads=self.columns,
            is_guarded=bool(self.guard.condition),
        )

    @property
    def handed(self) -> tuple[str, ...]:
        """The columns that workers are handed for the predicates."""
        return tuple(dict.fromkeys(text for function in self.functions for text in function.reads))

    def learn(self, observed: Sequence[Observed], batch: Batch) -> list[JournalEntry]:
        """Take in the reports of jobs, of each job those of its tasks, each task once."""
        entries = []
        for observation in observed:
            reports = observation.reports("arrow")
            if not reports:
                continue
            entries += decisions_of(reports, batch.id)
            profiles = [report.profile.profile for report in reports]
            fresh = merge_tasks(profiles, self.loop.window.max_tuples, MAX_ROWS)
            entries += self.loop.step(fresh, batch.id)
            for report in reports:
                self.loop.add_costs(report.profile.loading)
            # What all tasks learned together is more than what a worker remembers of its own.
            self.n_learned += 1
        return entries


@dataclass(slots=True)
class PinnedPart:
    """A predicate that is not deterministic: it stays where it was written."""

    predicate: Predicate
    column: str
    options: FilterOptions
    query: str
    guard: Guard

    def lay(self, laying: Laying) -> None:
        """Apply the predicate on its own."""
        predicate = self.predicate
        if not isinstance(predicate, FunctionPredicate):
            laying.df = self.guard.where(laying.df, predicate.text)
            return
        task = FilterTask(
            component=self.column,
            predicates=(predicate,),
            columns=(tuple(range(len(predicate.reads))),),
            options=self.options,
            run_id=f"{uuid.uuid4().hex}/{self.column}",
            batch_id=-1,
            state=None,
            may_switch=False,
            carries_errors=True,
            query=self.query,
            is_guarded=bool(self.guard.condition),
        )
        name = f"{self.column}_{uuid.uuid4().hex}"
        laying.errors.append(self.column)
        laying.df = apply_arrow_block(
            laying.df, task, predicate.reads, self.column, name, self.guard
        )


@dataclass(slots=True)
class LastPart:
    """Predicates that can raise, on the survivors of all others."""

    checks: tuple[SqlPredicate, ...]
    guard: Guard = EVERY_ROW

    def lay(self, laying: Laying) -> None:
        """Check the predicates that can raise, then raise the errors that are still there."""
        df = laying.df
        if self.checks:
            texts = [f"({check.text}\n)" for check in self.checks]
            df = self.guard.where(settled(df), in_turn(texts))
        # A row that is only marked has its errors on it although it is dropped.
        for column in laying.errors:
            error = f"{column}.error"
            raises = f"CAST(raise_error({error}) AS BOOLEAN)"
            df = self.guard.survivors.where(
                df, f"CASE WHEN {error} IS NULL THEN true ELSE {raises} END"
            )
        laying.df = df.drop(*laying.errors) if laying.errors else df
