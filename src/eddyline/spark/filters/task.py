"""Task of an Arrow block in a Python worker.

It evaluates one conjunction of Python predicates. The driver ships a ``FilterTask``; it runs its
batches through an executor and a loop of its own, so the order adapts inside the task, and returns
one report on the last row of the partition. A worker process that Spark reuses keeps what it
learned for the next task of the same run.

In the lane a ``FileFilter`` reads the rows itself; see ``lane.task``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from eddyline.data.memory import LastUsed
from eddyline.data.outcomes import seed_of
from eddyline.errors import PredicateError
from eddyline.filters.executor import ArrowExecutor
from eddyline.filters.loop import FilterLoop, FilterState, batch_rows, run_batch
from eddyline.lane.scan import values_of
from eddyline.lane.task import FileTask, KeptRows
from eddyline.runtime.journal import Decisions
from eddyline.runtime.order_loop import MAX_ROWS
from eddyline.spark.arrow_tasks import gathered, on_last_row, task_ids, with_last
from eddyline.stats.costs import CostSums
from eddyline.stats.profile import FilterProfile, merge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eddyline.data.arrays import Ints, Mask
    from eddyline.filters.executor import BatchOutcome
    from eddyline.options import FilterOptions
    from eddyline.query.predicates import FunctionPredicate
    from eddyline.routing.table import Attribute

MAX_RUNS = 16
"""Runs whose learned state a worker process keeps; the one unused for longest goes first."""

MAX_BATCH_BYTES = 32 << 20
"""Bytes of columns from which on a batch is long enough, whatever its rows."""

ERROR = "__eddyline_error"
"""The column of the error of a row, in the lane."""

_loops: LastUsed[str, FilterLoop] = LastUsed(MAX_RUNS)

_started: set[str] = set()
"""Blocks that have run in this process, whose functions have loaded what they load."""


@dataclass(frozen=True, slots=True)
class TaskProfile:
    """Observations of one task of an Arrow block."""

    profile: FilterProfile
    loading: CostSums
    """Costs of the first calls in a process, which import, compile and load: work that was done,
    but not what an evaluation costs, so not in the profile."""
    order: tuple[int, ...]
    """The order in force at the end of the task."""


@dataclass(slots=True)
class _Observing:
    """Observations of a task so far; the first call of a process is kept apart."""

    profile: FilterProfile
    is_first_call: bool
    window_rows: int
    first_calls: CostSums = field(init=False)

    def __post_init__(self) -> None:
        self.first_calls = CostSums.empty(len(self.profile.filter_ids))

    def add(self, seen: FilterProfile) -> None:
        if self.is_first_call:
            self.first_calls = seen.costs
            seen = replace(seen, costs=CostSums.empty(len(seen.filter_ids)))
            self.is_first_call = False
        self.profile = _newest(merge([self.profile, seen]), self.window_rows)

    def result(self, order: tuple[int, ...]) -> TaskProfile:
        # A filter that was called only once has no better cost than that call's.
        again, costs = self.profile.costs.is_known, self.profile.costs
        costs += self.first_calls.without(again)
        loading = self.first_calls.without(~again)
        return TaskProfile(replace(self.profile, costs=costs), loading, order)


Outcome: TypeAlias = "tuple[tuple[pa.Array, ...], Mask, dict[int, PredicateError], bytes | None]"
"""Of a batch: its arguments, the rows that are kept, their errors, and the report of the task with
the last batch."""


@dataclass(frozen=True)
class FilterTask:
    """Everything that a task needs to run an Arrow block."""

    component: str
    predicates: tuple[FunctionPredicate, ...]
    columns: tuple[tuple[int, ...], ...]
    """For each predicate, which of the function's arguments it reads."""
    options: FilterOptions
    run_id: str
    """Owner of the learned state: a worker shares it among tasks of one run."""
    batch_id: int
    """The micro-batch, or -1 where only the task knows it."""
    state: FilterState | None
    """The driver's learned state (a loop's snapshot)."""
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
    held: tuple[int, ...] | None = None
    """The order that a person has pinned; None if none has."""
    is_guarded: bool = False
    """Whether the first argument says on which rows predicates are evaluated; the others pass."""

    def run(self, batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        """Return the outcome of each batch: keep, report, and the error if they are carried."""
        for _, keep, errors, report in self.outcomes(batches):
            yield self._result(keep, errors, report)

    def outcomes(self, batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[Outcome]:
        """Yield the outcome of each batch; some are joined to one.

        Raises:
            PredicateError: a predicate raised, and nothing after this block may drop the row.
        """
        try:
            yield from self._outcomes(batches)
        except PredicateError as error:
            # To who wrote the predicate, our frames would only hide what it says.
            raise error.with_traceback(None) from None

    def _outcomes(self, batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[Outcome]:
        partition, attempt, batch_id = task_ids()
        batch_id = batch_id if self.batch_id < 0 else self.batch_id
        seed = seed_of(self.options.seed, self.query, self.component, batch_id, partition)
        executor = ArrowExecutor(self.predicates, self.columns, isolate_all=self.carries_errors)
        loop = self._loop(executor.filter_ids)
        observing = _Observing(
            FilterProfile.empty(executor.filter_ids),
            self._is_first_task(),
            loop.window.max_tuples,
        )
        decisions = Decisions()
        gathered_batches = gathered(batches, lambda: batch_rows(loop), MAX_BATCH_BYTES)
        first_row = 0
        for arguments, is_last in with_last(gathered_batches):
            rows, columns = self._guarded(arguments)
            outcomes = []
            for outcome, decided in run_batch(
                executor,
                loop,
                columns[: self.n_columns],
                seed=seed,
                first_row=first_row,
                batch_id=batch_id,
                may_switch=self.may_switch,
                values=_as_doubles(columns[self.n_columns :]) or None,
            ):
                if outcome.errors and not self.carries_errors:
                    raise next(iter(outcome.errors.values()))
                decisions.add(decided)
                observing.add(outcome.profile)
                outcomes.append(outcome)
            first_row += len(columns[0])
            report = None
            if is_last:
                seen = observing.result(loop.order)
                report = decisions.report(self.component, partition, attempt, seen).to_bytes()
            keep, errors = _joined(outcomes)
            if rows is not None:
                keep, errors = _spread(rows, len(arguments[0]), keep, errors)
            yield arguments, keep, errors, report

    def _guarded(self, arguments: tuple[pa.Array, ...]) -> tuple[Any, tuple[pa.Array, ...]]:
        """Return the rows of a batch that predicates are evaluated on, None for all, and these."""
        if not self.is_guarded:
            return None, arguments
        guard, *columns = arguments
        rows = np.flatnonzero(guard.to_numpy(zero_copy_only=False))
        if len(rows) == len(guard):
            return None, tuple(columns)
        taken = pa.array(rows)
        return rows, tuple(column.take(taken) for column in columns)

    @property
    def n_columns(self) -> int:
        """Number of arguments that the predicates read; the attributes follow."""
        return 1 + max(index for columns in self.columns for index in columns)

    def _is_first_task(self) -> bool:
        """Whether this block has not run in this process before, in any micro-batch."""
        block = self.run_id.rpartition("/")[0] or self.run_id
        is_first = block not in _started
        _started.add(block)
        return is_first

    def _loop(self, filter_ids: tuple[str, ...]) -> FilterLoop:
        """Return the loop of this run: kept from an earlier task, or started from the driver's."""

        def started() -> FilterLoop:
            loop = FilterLoop(
                self.component,
                filter_ids,
                self.options,
                attributes=self.attributes,
                reads=self.reads or None,
            )
            if self.state is not None:
                loop.restore(self.state)
            if self.held is not None:
                loop.order = self.held
            return loop

        return _loops.get_or_make(self.run_id, started)

    def _result(self, keep: Any, errors: dict[int, Any], report: bytes | None) -> pa.Array:
        arrays, names = [pa.array(keep), on_last_row(len(keep), report)], ["keep", "report"]
        if self.carries_errors:
            arrays.append(texts_of(errors, len(keep)))
            names.append("error")
        return pa.StructArray.from_arrays(arrays, names)


def _as_doubles(attributes: tuple[pa.Array, ...]) -> list[Any]:
    return [attribute.to_numpy(zero_copy_only=False) for attribute in attributes]


def _spread(
    rows: Any, n_rows: int, keep: Any, errors: dict[int, PredicateError]
) -> tuple[Any, dict[int, PredicateError]]:
    """Return the outcome of a whole batch from that of some of its rows; the others pass."""
    whole = np.ones(n_rows, dtype=np.bool_)
    whole[rows] = keep
    return whole, {int(rows[row]): error for row, error in errors.items()}


def _newest(profile: FilterProfile, n_tuples: int) -> FilterProfile:
    """Return a profile with the newest of its sample, which a report need not exceed."""
    newest = profile.last(n_tuples)
    if newest.attributes is not None and newest.attributes.n_rows > MAX_ROWS:
        newest = replace(newest, attributes=newest.attributes.last(MAX_ROWS))
    return newest


def texts_of(errors: dict[int, PredicateError], n_rows: int) -> pa.Array:
    """Return the error of each row, or null."""
    if not errors:
        return pa.nulls(n_rows, pa.string())
    texts = np.full(n_rows, None, dtype=object)
    for row, error in errors.items():
        texts[row] = error.message
    return pa.array(texts, pa.string())


def _joined(outcomes: list[BatchOutcome]) -> tuple[Any, dict[int, PredicateError]]:
    """Return a mask of the rows kept of a batch, and their errors, from its pieces' outcomes."""
    if not outcomes:
        return np.zeros(0, dtype=np.bool_), {}
    if len(outcomes) == 1:
        return outcomes[0].keep, outcomes[0].errors
    errors: dict[int, PredicateError] = {}
    start = 0
    for outcome in outcomes:
        errors |= {start + row: error for row, error in outcome.errors.items()}
        start += len(outcome.keep)
    return np.concatenate([outcome.keep for outcome in outcomes]), errors


@dataclass(frozen=True)
class FileFilter(FileTask):
    """A filter whose tasks read the files themselves, and return the rows that pass."""

    filter: FilterTask

    @property
    def looked_at(self) -> tuple[str, ...]:
        """The columns of the predicates, and those that tell classes of rows apart."""
        return (*self.handed, *(attribute.name for attribute in self.filter.attributes))

    def outcomes(self, blocks: Iterator[tuple[pa.Array, ...]]) -> Iterator[KeptRows]:
        """Yield which rows pass.

        Raises:
            PredicateError: a predicate raised, and nothing after this block may drop the row.
        """
        n = len(self.handed)
        arguments = (
            (*block[:n], *(pa.array(values_of(column)) for column in block[n:])) for block in blocks
        )
        for columns, keep, errors, report in self.filter.outcomes(arguments):
            yield KeptRows(columns[:n], keep, partial(self._errors, errors), report)

    def _errors(self, errors: dict[int, PredicateError], rows: Ints) -> list[pa.Array]:
        """Return the errors of kept rows; a row with an error is always kept."""
        if not self.filter.carries_errors:
            return []
        first, last = int(rows[0]), int(rows[-1])
        row_errors = {row: error for row, error in errors.items() if first <= row <= last}
        places = np.searchsorted(rows, list(row_errors)).tolist()
        return [texts_of(dict(zip(places, row_errors.values(), strict=True)), len(rows))]
