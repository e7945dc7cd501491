"""Arrow block: evaluation of Python predicates over one Arrow batch.

The caller gives the order. In come the columns of a batch, an order (or one per class of rows), and
the rows to profile. Out come a mask of the rows that pass, the errors that count, and a profile.
The executor moves rows and never decides.

A selection vector holds the rows that every filter so far has passed, and each filter is called
once, on the columns it reads of those rows. A sampled row stays in the calls after its first drop,
so profiling adds rows to calls that are made anyway and rarely a call of its own.
[Babu05 4.2, 4.3.1] Where classes of rows have orders of their own, the rows of one order group are
evaluated together, one group after the other. [Bizarro05 4.2]

Errors: a filter that raises on a batch is set aside for that batch. Whether its error counts is
settled at the end, on the rows that survived all the others: a row counts as an error only if no
other filter drops it, whatever the order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.data import outcomes as outcome
from eddyline.data.arrays import starts_of
from eddyline.errors import PredicateError
from eddyline.query.predicate_results import call, coerce_outcome, raised_on
from eddyline.stats.costs import CostSums, work_ns
from eddyline.stats.profile import FilterProfile, merge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from eddyline.data.arrays import Ints, Mask
    from eddyline.query.predicates import FunctionPredicate
    from eddyline.stats.profile import Order


@dataclass(frozen=True, slots=True)
class Sample:
    """The rows of a batch that are profiled, and how thoroughly."""

    rows: Ints
    """Offsets of the sampled rows, ascending ((M,))."""
    prob: float
    """Probability with which a row was sampled ((0, 1])."""
    extra: Mask
    """Positions that a sampled row meets after its first drop, by that ((F, F)); see policies."""
    is_full: bool
    """Whether ``extra`` asks for every filter."""
    block_rows: int = 0
    """Input rows per block whose counts are noted; 0: none are."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Order in which each row of a batch meets the filters."""

    of_row: NDArray[np.uint8]
    """The order group of each row ((N,))."""
    orders: tuple[Order, ...]
    """The order of each group."""


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """The outcome of one batch."""

    keep: Mask
    """Rows that passed every filter, and rows on which an error counts ((N,))."""
    errors: dict[int, PredicateError]
    """The error of each row that survived every filter but those that raised on it."""
    profile: FilterProfile
    """Observations."""
    sampled: Ints
    """The sampled rows, ascending ((M,))."""
    drops: NDArray[np.bool_]
    """Mask of the filters that drop each sampled row ((M, F))."""


class ArrowExecutor:
    """Evaluates the conjunction of F Python predicates over Arrow batches.

    Index f is a filter's identity in orders and profiles; it reads the columns of its indices. With
    ``isolate_all`` every row with an error is found, because something after this block may still
    drop it; if not, the search stops at the first. The clock is monotonic (ns).
    """

    def __init__(
        self,
        predicates: Sequence[FunctionPredicate],
        columns: Sequence[Sequence[int]],
        *,
        isolate_all: bool = False,
        clock: Callable[[], int] = work_ns,
    ) -> None:
        self.predicates = tuple(predicates)
        self.columns = tuple(tuple(indices) for indices in columns)
        self.filter_ids = tuple(predicate.name for predicate in predicates)
        self.isolate_all = isolate_all
        self.clock = clock
        self._is_fragile = np.zeros(len(self.predicates), dtype=np.bool_)

    def run(
        self, batch: Sequence[pa.Array], order: Order, sample: Sample, groups: Groups | None = None
    ) -> BatchOutcome:
        """Evaluate the conjunction over one batch.

        Of the columns ((N,) each), rows meet the filters in the order ``order[position] -> filter
        index``, or in that of their group.

        Raises:
            PredicateError: a filter returned something that is not one boolean per row.
        """
        n_rows = len(batch[0])
        keep = np.zeros(n_rows, dtype=np.bool_)
        errors: dict[int, PredicateError] = {}
        profiles, traces = [], []
        for rows, chosen in _parts(n_rows, order, groups):
            trace = _Trace(len(chosen), sample if groups is None else _among(sample, rows))
            if groups is None and sample.block_rows > 0:
                trace.count_blocks(n_rows)
            alive, raised = self._run_rows(batch, rows, chosen, trace)
            keep[alive] = True
            errors |= raised
            n_kept = len(alive) - len(raised)
            profiles.append(trace.profile(self.filter_ids, chosen, len(rows), n_kept))
            traces.append(trace)
        profile = merge(profiles)
        sampled = np.concatenate([trace.sample.rows for trace in traces])
        drops = np.concatenate([trace.drops for trace in traces])
        if len(traces) > 1:  # what was run group by group is told in the order of arrival
            arrival = np.argsort(sampled)
            sampled, drops = sampled[arrival], drops[arrival]
            profile = replace(profile, codes=outcome.pack(drops[drops.any(axis=1)]))
        return BatchOutcome(keep, errors, replace(profile, n_batches=1), sampled, drops)

    def _run_rows(
        self, batch: Sequence[pa.Array], rows: Ints, order: Order, trace: _Trace
    ) -> tuple[Ints, dict[int, PredicateError]]:
        """Return masks of the rows that pass, or have an error that counts, and those errors."""
        alive = rows
        deferred: list[int] = []
        for position, filter_index in enumerate(order):
            slots = trace.wanted(position)
            if len(alive) + len(slots) == 0:
                continue
            passed = self._call(batch, filter_index, alive, slots, trace)
            if passed is None:
                deferred.append(filter_index)
                continue
            trace.record(position, filter_index, alive, passed)
            alive = alive[passed]
        if deferred and len(alive):
            return self._settle(batch, deferred, alive)
        return alive, {}

    def _call(
        self, batch: Sequence[pa.Array], f: int, alive: Ints, slots: Ints, trace: _Trace
    ) -> Mask | None:
        """Call a filter on the rows alive and on sampled rows; None if it raises on the former."""
        extra = trace.sample.rows[slots]
        if len(extra) and not self._is_fragile[f]:
            passed = self._timed(batch, f, np.concatenate([alive, extra]), trace)
            if passed is not None:
                trace.record_extra(f, slots, passed[len(alive) :])
                return passed[: len(alive)]
            # The raising row may be one that profiling alone brought here: ask apart from now on.
            self._is_fragile[f] = True
        passed = self._timed(batch, f, alive, trace) if len(alive) else np.zeros(0, np.bool_)
        if passed is None:
            trace.n_raised[f] += len(alive)
        elif len(extra):
            trace.record_extra(f, slots, self._attempt(batch, f, extra))
        return passed

    def _timed(self, batch: Sequence[pa.Array], f: int, rows: Ints, trace: _Trace) -> Mask | None:
        """Evaluate a filter on some rows and note its time; None if it raises."""
        started = self.clock()
        passed = self._attempt(batch, f, rows)
        trace.time_ns[f] = self.clock() - started
        trace.n_timed[f] = len(rows)
        return passed

    def _attempt(self, batch: Sequence[pa.Array], f: int, rows: Ints) -> Mask | None:
        """Evaluate a filter on some rows; None if it raises."""
        try:
            return self._evaluate(batch, f, rows)
        except _UnusableResultError as unusable:
            raise unusable.error from None
        except Exception:  # noqa: BLE001 - whatever the user's function raises is settled later
            return None

    def _evaluate(self, batch: Sequence[pa.Array], f: int, rows: Ints) -> Mask:
        """Call a filter on some rows."""
        predicate = self.predicates[f]
        arrays = [batch[index] for index in self.columns[f]]
        if len(rows) < len(arrays[0]) or (rows[1:] < rows[:-1]).any():
            # Not all rows, or all but with sampled ones moved to the end.
            indices = pa.array(rows)
            arrays = [array.take(indices) for array in arrays]
        result = call(predicate.fn, predicate.arrays, arrays)
        try:
            return coerce_outcome(result, len(rows), predicate.name, negated=predicate.negated)
        except PredicateError as error:
            raise _UnusableResultError(error) from None

    def _settle(
        self, batch: Sequence[pa.Array], deferred: list[int], alive: Ints
    ) -> tuple[Ints, dict[int, PredicateError]]:
        """Decide, on the rows that all other filters passed, the filters that raised."""
        errors: dict[int, PredicateError] = {}
        stop_at_first = len(deferred) == 1 and not self.isolate_all
        for f in deferred:
            passed, raised = self._isolate(batch, f, alive, stop_at_first=stop_at_first)
            alive = alive[passed]
            errors = raised | errors
        return alive, {row: errors[row] for row in alive.tolist() if row in errors}

    def _isolate(
        self, batch: Sequence[pa.Array], f: int, rows: Ints, *, stop_at_first: bool
    ) -> tuple[Mask, dict[int, PredicateError]]:
        """Return, by halves, which rows passed or raised, and the error of each that raised."""
        passed = np.zeros(len(rows), dtype=np.bool_)
        raised: dict[int, PredicateError] = {}
        pending = [(0, len(rows))]
        while pending:
            low, high = pending.pop()
            try:
                passed[low:high] = self._evaluate(batch, f, rows[low:high])
            except _UnusableResultError as unusable:
                raise unusable.error from None
            except Exception as error:  # noqa: BLE001 - the user's function may raise anything
                if high - low > 1:
                    middle = (low + high) // 2
                    pending += [(middle, high), (low, middle)]
                    continue
                row = int(rows[low])
                raised[row] = self._error(batch, f, row, error)
                passed[low] = True
                if stop_at_first:
                    break
        return passed, raised

    def _error(
        self, batch: Sequence[pa.Array], f: int, row: int, cause: Exception
    ) -> PredicateError:
        values = [batch[index].slice(row, 1) for index in self.columns[f]]
        which = "which every other predicate lets through"
        return raised_on(self.predicates[f], values, cause, which)


class _UnusableResultError(Exception):
    """A filter's result that is not one boolean per row: the author's mistake, never deferred."""

    def __init__(self, error: PredicateError) -> None:
        super().__init__(error.message)
        self.error = error


def _parts(n_rows: int, order: Order, groups: Groups | None) -> Iterator[tuple[Ints, Order]]:
    """Yield the rows of a batch that meet the filters in one order, and that order."""
    if groups is None or n_rows == 0:
        yield np.arange(n_rows, dtype=np.int64), order
        return
    counts = np.bincount(groups.of_row, minlength=len(groups.orders))
    for group in np.flatnonzero(counts):
        if counts[group] == n_rows:
            yield np.arange(n_rows, dtype=np.int64), groups.orders[group]
        else:
            yield np.flatnonzero(groups.of_row == group), groups.orders[group]


def _among(sample: Sample, rows: Ints) -> Sample:
    """Return the part of a sample that is among some rows, which are ascending."""
    place = np.minimum(np.searchsorted(rows, sample.rows), len(rows) - 1)
    return replace(sample, rows=sample.rows[rows[place] == sample.rows])


class _Trace:
    """Observations made while rows of one order are evaluated."""

    def __init__(self, n_filters: int, sample: Sample) -> None:
        n_sampled = len(sample.rows)
        self.sample = sample
        self.drops = np.zeros((n_sampled, n_filters), dtype=np.bool_)
        self.first_drop = np.full(n_sampled, -1)
        self.rows_in = np.zeros(n_filters)
        self.rows_out = np.zeros(n_filters)
        self.time_ns = np.zeros(n_filters)
        self.n_timed = np.zeros(n_filters)
        self.n_raised = np.zeros(n_filters)
        self.n_extra = 0
        self.edges: Ints | None = None
        self.blocks: NDArray[np.int64] | None = None

    def count_blocks(self, n_rows: int) -> None:
        """Note rows in and out of each filter also by blocks of input rows."""
        block = self.sample.block_rows
        n_blocks = max(1, round(n_rows / block))
        self.edges = np.linspace(0, n_rows, n_blocks + 1).astype(np.int64)
        self.blocks = np.zeros((n_blocks, 2, self.drops.shape[1]), dtype=np.int64)

    def wanted(self, position: int) -> Ints:
        """Return the slots of the sampled rows that meet this position though already dropped."""
        dead: Ints = np.flatnonzero(self.first_drop >= 0)
        if self.sample.is_full or len(dead) == 0:
            return dead
        chosen: Ints = dead[self.sample.extra[self.first_drop[dead], position]]
        return chosen

    def record(self, position: int, f: int, alive: Ints, passed: Mask) -> None:
        """Note what a filter did to the rows alive."""
        self.rows_in[f] += len(alive)
        self.rows_out[f] += int(np.count_nonzero(passed))
        if self.edges is not None and self.blocks is not None:
            ends = np.searchsorted(alive, self.edges)
            n_passed = starts_of(passed)
            self.blocks[:, 0, f] = np.diff(ends)
            self.blocks[:, 1, f] = np.diff(n_passed[ends])
        slots = np.flatnonzero(self.first_drop < 0)
        if len(slots):
            dropped = slots[~passed[np.searchsorted(alive, self.sample.rows[slots])]]
            self.drops[dropped, f] = True
            self.first_drop[dropped] = position

    def record_extra(self, f: int, slots: Ints, passed: Mask | None) -> None:
        """Note what a filter would do to sampled rows already dropped; None if it raised."""
        self.n_extra += len(slots)
        if passed is not None:
            self.drops[slots[~passed], f] = True

    def profile(
        self, filter_ids: tuple[str, ...], order: Order, n_rows: int, n_kept: int
    ) -> FilterProfile:
        """Return everything noted, as one profile."""
        dropped = self.first_drop >= 0
        weight = 1.0 / self.sample.prob if len(dropped) else 0.0
        return FilterProfile(
            filter_ids=filter_ids,
            codes=outcome.pack(self.drops[dropped]),
            weights=np.full(int(dropped.sum()), weight),
            passed=float((~dropped).sum()) * weight,
            n_passed=float((~dropped).sum()),
            costs=CostSums.of_calls(self.n_timed, self.time_ns),
            rows_in=self.rows_in,
            rows_out=self.rows_out,
            n_rows=n_rows,
            n_kept=n_kept,
            n_evaluations=int((self.rows_in + self.n_raised).sum()) + self.n_extra,
            n_extra=self.n_extra,
            n_raised=self.n_raised,
            basis=None if self.sample.is_full else order,
            ran_under=order,
            blocks=self.blocks,
        )
