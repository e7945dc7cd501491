"""What runs in Spark's Python workers: the Arrow block of one conjunction.

The driver ships a ``WorkerBlock``; each task runs its batches through an executor and a loop of its
own, so the order adapts inside the task, and returns one report on the last row of the partition.
A worker process that Spark reuses keeps what it learned for the next task of the same run.
"""

from __future__ import annotations

import pickle
import zlib
from collections import OrderedDict
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from eddyline.data.sampling import seed_of
from eddyline.filters.executor import ArrowExecutor
from eddyline.filters.loop import FilterLoop
from eddyline.filters.routing_loop import MAX_ROWS
from eddyline.filters.task import run_batch
from eddyline.stats.profile import FilterProfile, merge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eddyline.errors import PredicateError
    from eddyline.filters.executor import BatchOutcome
    from eddyline.options import FilterOptions
    from eddyline.query.attributes import Attribute
    from eddyline.query.predicates import FunctionPredicate
    from eddyline.stats.costs import CostSums

MAX_RUNS = 16
"""Runs whose learned state a worker process keeps; the one unused for longest goes first."""

MAX_ENTRIES = 50
"""Order changes of one task that are reported one by one; more are only counted."""

_loops: OrderedDict[str, FilterLoop] = OrderedDict()

_started: set[str] = set()
"""Blocks that have run in this process, whose functions have loaded what they load."""


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What one task observed and decided."""

    partition: int
    attempt: int
    profile: FilterProfile
    entries: tuple[dict[str, Any], ...]
    """Journal entries of the task's own order changes, as dicts."""
    n_entries: int
    """How many there were, those left out included."""
    order: tuple[int, ...]
    """The order in force at the end of the task."""
    loading: CostSums
    """Costs of the first calls in a process, which import, compile and load: work that was done,
    but not what an evaluation costs, so not in the profile."""

    def to_bytes(self) -> bytes:
        """Return the report as bytes, to travel to the driver."""
        return zlib.compress(pickle.dumps(self, protocol=pickle.HIGHEST_PROTOCOL), level=1)

    @staticmethod
    def from_bytes(data: bytes) -> TaskReport:
        """Return the report that one of our own workers packed."""
        report: TaskReport = pickle.loads(zlib.decompress(data))
        return report


@dataclass(frozen=True)
class WorkerBlock:
    """Everything that a task needs to run the Arrow block."""

    component: str
    predicates: tuple[FunctionPredicate, ...]
    columns: tuple[tuple[int, ...], ...]
    """For each predicate, which of the function's arguments it reads."""
    options: FilterOptions
    run_id: str
    """Whose learned state this is: a worker shares it among tasks of one run."""
    batch_id: int
    """The micro-batch, or -1 where only the task knows it."""
    state: dict[str, Any] | None
    """What the driver has learned so far (a loop's snapshot)."""
    may_switch: bool
    """Whether the task may change the order by itself, or only observes."""
    carries_errors: bool
    """Whether an error is a column of the result, because a later predicate may drop the row."""
    query: str = ""
    """Name of the query; part of the seed of every sample."""
    attributes: tuple[Attribute, ...] = ()
    """Attributes that are handed over as further arguments, as doubles."""
    reads: tuple[frozenset[str], ...] = ()
    """The columns that each predicate reads."""

    def run(self, batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        """Return the outcome of each batch: keep, report, and the error if they are carried."""
        partition, attempt, batch_id = task_ids()
        batch_id = batch_id if self.batch_id < 0 else self.batch_id
        seed = seed_of(self.options.seed, self.query, self.component, batch_id, partition)
        executor = ArrowExecutor(self.predicates, self.columns, isolate_all=self.carries_errors)
        loop = self._loop(executor.filter_ids)
        profile = FilterProfile.empty(executor.filter_ids)
        entries: list[dict[str, Any]] = []
        first_row = 0
        nothing = first_calls = profile.costs
        is_first_call = self._is_first_task()
        n_columns = self.n_columns
        for arguments, is_last in with_last(batches):
            columns = arguments[:n_columns]
            values = [each.to_numpy(zero_copy_only=False) for each in arguments[n_columns:]]
            outcomes = []
            for outcome, decided in run_batch(
                executor,
                loop,
                columns,
                seed=seed,
                first_row=first_row,
                batch_id=batch_id,
                may_switch=self.may_switch,
                values=values or None,
            ):
                if outcome.errors and not self.carries_errors:
                    raise next(iter(outcome.errors.values()))
                entries += map(asdict, decided)
                seen = outcome.profile
                if is_first_call:
                    first_calls, seen = seen.costs, replace(seen, costs=nothing)
                    is_first_call = False
                profile = _newest(merge([profile, seen]), self.options.window_rows)
                outcomes.append(outcome)
            first_row += len(columns[0])
            report = None
            if is_last:
                # A filter that was called only once has no better cost than that call's.
                again = profile.costs.is_known
                report = TaskReport(
                    partition,
                    attempt,
                    replace(profile, costs=profile.costs + first_calls.without(again)),
                    tuple(entries[-MAX_ENTRIES:]),
                    len(entries),
                    loop.order,
                    first_calls.without(~again),
                ).to_bytes()
            yield self._result(*_joined(outcomes), report)

    @property
    def n_columns(self) -> int:
        """How many arguments the predicates read; the attributes follow."""
        return 1 + max(index for columns in self.columns for index in columns)

    def _is_first_task(self) -> bool:
        """Whether this block has not run in this process before, in any micro-batch."""
        block = self.run_id.rpartition("/")[0] or self.run_id
        is_first = block not in _started
        _started.add(block)
        return is_first

    def _loop(self, filter_ids: tuple[str, ...]) -> FilterLoop:
        """Return the loop of this run: kept from an earlier task, or started from the driver's."""
        if self.run_id in _loops:
            _loops.move_to_end(self.run_id)
            return _loops[self.run_id]
        loop = FilterLoop(
            self.component,
            filter_ids,
            self.options,
            attributes=self.attributes,
            reads=self.reads or None,
        )
        if self.state is not None:
            loop.restore(self.state)
        _loops[self.run_id] = loop
        while len(_loops) > MAX_RUNS:
            _loops.popitem(last=False)
        return loop

    def _result(self, keep: Any, errors: dict[int, Any], report: bytes | None) -> pa.Array:
        n_rows = len(keep)
        reports = pa.nulls(n_rows, pa.binary())
        if report is not None:
            reports = pa.concat_arrays([reports[:-1], pa.array([report], pa.binary())])
        arrays, names = [pa.array(keep), reports], ["keep", "report"]
        if self.carries_errors:
            arrays.append(_texts(errors, n_rows))
            names.append("error")
        return pa.StructArray.from_arrays(arrays, names)


def _newest(profile: FilterProfile, n_tuples: int) -> FilterProfile:
    """Return a profile with the newest of its sample, which a report need not exceed."""
    newest = profile.last(n_tuples)
    if newest.attributes is not None and newest.attributes.n_rows > MAX_ROWS:
        newest = replace(newest, attributes=newest.attributes.last(MAX_ROWS))
    return newest


def _texts(errors: dict[int, PredicateError], n_rows: int) -> pa.Array:
    """Return the error of each row, or null."""
    if not errors:
        return pa.nulls(n_rows, pa.string())
    texts = np.full(n_rows, None, dtype=object)
    for row, error in errors.items():
        texts[row] = error.message
    return pa.array(texts, pa.string())


def _joined(outcomes: list[BatchOutcome]) -> tuple[Any, dict[int, PredicateError]]:
    """Return which rows of a batch are kept, and their errors, from the outcomes of its pieces."""
    if len(outcomes) == 1:
        return outcomes[0].keep, outcomes[0].errors
    errors: dict[int, PredicateError] = {}
    start = 0
    for outcome in outcomes:
        errors |= {start + row: error for row, error in outcome.errors.items()}
        start += len(outcome.keep)
    return np.concatenate([outcome.keep for outcome in outcomes]), errors


def task_ids() -> tuple[int, int, int]:
    """Return partition, attempt and micro-batch of the running task."""
    from pyspark import TaskContext  # noqa: PLC0415 - there is one only inside a task

    context = TaskContext.get()
    if context is None:
        return 0, 0, -1
    batch_id = context.getLocalProperty("streaming.sql.batchId")
    return context.partitionId(), context.attemptNumber(), int(batch_id or -1)


def with_last(
    batches: Iterator[tuple[pa.Array, ...]],
) -> Iterator[tuple[tuple[pa.Array, ...], bool]]:
    """Pair each batch that has rows with whether it is the last one."""
    held = None
    for columns in batches:
        if held is not None and len(columns[0]):
            yield held, False
        if len(columns[0]):
            held = columns
    if held is not None:
        yield held, True
