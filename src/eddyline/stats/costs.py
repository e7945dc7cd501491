"""Cost of each filter: per call and per row.

The clock that measures it is here, too. A call on ``x`` rows is taken to last ``fixed + per_row *
x`` ns. Only the per-row part depends on where in the order a filter stands, so only it may decide
the order. A filter that stands late sees few rows; its raw time per row would be mostly the fixed
part and keep it late for ever [Babu05 4.3.1; the traps are those of batches]. The sums of a
least-squares fit add up, so costs of calls, tasks and partitions merge.

``work_ns`` is a clock that stands still while a thread could run and has no core. ``Budget`` keeps
learning to a share of the time of the work.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import FileIO

    from eddyline.data.arrays import Floats, Mask

MIN_PER_ROW_NS = 0.1
"""Floor of a per-row cost (ns): below a tenth of a nanosecond is noise, and ratios need > 0."""

MIN_SLOPE_FRAC = 0.05
"""Least per-row cost, as a share of the mean time per row. Calls of nearly one size do not tell a
fixed part from a part per row, and a filter must not look free because of noise."""

_MIN_SPREAD = 1.1
"""A line is fitted only if the calls' row counts spread by a tenth; else all time is per row."""


@dataclass(frozen=True, slots=True)
class CostSums:
    """Sums over calls of each filter, from which its cost line is fitted.

    Calls are weighted by 1 / rows, because the spread of a call's time grows with its rows: the
    fit minimises relative errors, and one large noisy call does not hide many small ones.
    """

    sums: Floats
    """Rows: calls, rows, ns, sum 1/rows, sum ns/rows, min rows, max rows ((7, F))."""

    @classmethod
    def empty(cls, n_filters: int) -> CostSums:
        """Return the sums of no call."""
        sums = np.zeros((7, n_filters))
        sums[5] = np.inf
        return cls(sums)

    @classmethod
    def of_calls(cls, n_rows: Floats, time_ns: Floats) -> CostSums:
        """Return the sums of one call per filter.

        Args:
            n_rows: rows of the filter's call (0 where it was not called; (F,)).
            time_ns: how long the call took (ns; (F,)).
        """
        called = n_rows > 0
        inverse = np.divide(1.0, n_rows, out=np.zeros(len(n_rows)), where=called)
        low = np.where(called, n_rows, np.inf)
        return cls(
            np.stack(
                [
                    called.astype(np.float64),
                    n_rows,
                    np.where(called, time_ns, 0.0),
                    inverse,
                    time_ns * inverse,
                    low,
                    n_rows,
                ]
            )
        )

    @classmethod
    def of_rows(cls, n_rows: float, mean_ns: Floats) -> CostSums:
        """Return the sums of ``n_rows`` calls on single rows without a fixed part.

        For filters that an engine evaluates row by row, as Spark's generated code does.
        """
        ones = np.full(len(mean_ns), float(n_rows))
        total = ones * mean_ns
        one = np.ones(len(mean_ns))
        return cls(np.stack([ones, ones, total, ones, total, one, one]))

    def without(self, filters: Mask) -> CostSums:
        """Return a copy in which some filters ((F,)) were never called."""
        return CostSums(np.where(filters, CostSums.empty(self.n_filters).sums, self.sums))

    def to_state(self) -> list[list[float | None]]:
        """Return the sums as plain values; JSON has no infinity, so that is None."""
        return [[x if np.isfinite(x) else None for x in row] for row in self.sums.tolist()]

    @classmethod
    def from_state(cls, state: list[list[float | None]]) -> CostSums:
        """Return the sums that ``to_state`` gave.

        Raises:
            ValueError: the state is of no costs.
        """
        rows = [[np.inf if x is None else x for x in row] for row in state]
        sums = np.array(rows, dtype=np.float64)
        if len(sums) != 7 or not (sums >= 0.0).all() or np.isinf(np.delete(sums, 5, axis=0)).any():
            msg = "the costs are not seven rows of sums"
            raise ValueError(msg)
        return cls(sums)

    def __add__(self, other: CostSums) -> CostSums:
        total = self.sums + other.sums
        total[5] = np.minimum(self.sums[5], other.sums[5])
        total[6] = np.maximum(self.sums[6], other.sums[6])
        return CostSums(total)

    @property
    def n_filters(self) -> int:
        """Number of filters that the sums are of."""
        return int(self.sums.shape[1])

    @property
    def is_known(self) -> Mask:
        """Mask of the filters that were called at least once ((F,))."""
        called: Mask = self.sums[0] > 0
        return called

    @property
    def total_ns(self) -> Floats:
        """Time spent in each filter (ns; (F,))."""
        total: Floats = self.sums[2]
        return total

    def fit(self) -> tuple[Floats, Floats]:
        """Return the fixed part (ns per call; (F,)) and the per-row part (ns per row; (F,)).

        A filter that was never called has the median per-row part of those that were (1 ns if
        none was): neither favoured nor shunned until it is measured.
        """
        calls, rows, time, inv, rate, low, high = self.sums
        is_known = self.is_known
        # Weighted least squares with weights 1/x: minimise sum (y - a - b x)^2 / x.
        # Normal equations: a·S(1/x) + b·n = S(y/x);  a·n + b·S(x) = S(y).
        det = inv * rows - calls * calls
        fits = is_known & (high > _MIN_SPREAD * low) & (det > 1e-9 * calls * calls)
        safe = np.where(fits, det, 1.0)
        fixed = np.where(fits, (rate * rows - calls * time) / safe, 0.0)
        slope = np.where(fits, (inv * time - calls * rate) / safe, 0.0)
        mean = time / np.maximum(rows, 1.0)
        slope = np.clip(np.where(fits & (fixed > 0.0), slope, mean), MIN_SLOPE_FRAC * mean, mean)
        slope = np.maximum(slope, MIN_PER_ROW_NS)
        fixed = np.maximum(time - slope * rows, 0.0) / np.maximum(calls, 1.0)
        if is_known.all():
            return fixed, slope
        unknown = float(np.median(slope[is_known])) if is_known.any() else 1.0
        return np.where(is_known, fixed, 0.0), np.where(is_known, slope, unknown)

    @property
    def per_row_ns(self) -> Floats:
        """Cost of one evaluation without the fixed part of its call (ns; > 0; (F,))."""
        return self.fit()[1]


_COUNTS = Path("/proc/thread-self/schedstat")
"""Linux's counts of a thread: time on a core, time in the queue for one (ns), turns."""

_N_BYTES = 80
"""More than they take."""


def work_ns() -> int:
    """Return the time in which the calling thread has computed or waited for something (ns).

    Monotonic; only differences between readings of one thread mean something. A call that computes
    costs its processor time, and one that waits, for a service or a lock, the time that passes.
    Time in the queue for a core counts as neither: it tells of other work on the machine. Where the
    system does not count it (only Linux does), all time that passes counts.
    """
    try:
        counts: FileIO | None = _of_thread.counts
    except AttributeError:
        counts = _of_thread.counts = _opened()
        _of_thread.newest = 0
    delayed = 0
    if counts is not None:
        delayed = int(os.pread(counts.fileno(), _N_BYTES, 0).split()[1])
    # Where the thread lost its core between the two readings, the next reading makes up for it.
    newest: int = max(_of_thread.newest, time.perf_counter_ns() - delayed)
    _of_thread.newest = newest
    return newest


def _opened() -> FileIO | None:
    """Return the counts of the calling thread, if the system has them."""
    try:
        file = _COUNTS.open("rb", buffering=0)
    except OSError:
        return None
    has_them = len(os.pread(file.fileno(), _N_BYTES, 0).split()) == 3
    return file if has_them else None


_of_thread = threading.local()


def _forget() -> None:
    """Open the counts anew: a forked process has those of the thread that it was forked from."""
    global _of_thread  # noqa: PLW0603 - there is no way to clear a thread's own values
    _of_thread = threading.local()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class Budget:
    """Time that learning may take, as a share of the work that was done.

    Args:
        share: most time that learning may take, as a share of that of the work ([0, 1]).
        saves: whether what is not spent may be spent later; if not, only a debt is kept.
        most_owed: the largest debt that is kept, in units of what was earned last; so a single
            long decision never silences learning for good. Unlimited if omitted.
        clock: monotonic clock (ns); if omitted, time in the queue for a core is nobody's.
    """

    def __init__(
        self,
        share: float,
        *,
        saves: bool = True,
        most_owed: float | None = None,
        clock: Callable[[], int] = work_ns,
    ) -> None:
        self.share = share
        self.left_ns = 0.0
        """Time that may still be spent (ns); a debt if negative."""
        self._saves = saves
        self._most_owed = most_owed
        self._clock = clock

    @property
    def may(self) -> bool:
        """Whether nothing is owed."""
        return self.left_ns >= 0.0

    def earn(self, done_ns: float) -> None:
        """Add work that was done (ns)."""
        earned = self.share * done_ns
        self.left_ns += earned
        if not self._saves:
            self.left_ns = min(self.left_ns, 0.0)
        if self._most_owed is not None:
            self.left_ns = max(self.left_ns, -self._most_owed * earned)

    def spend(self, ns: float) -> None:
        """Take off time that learning took (ns)."""
        self.left_ns -= ns

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Take off the time that the body takes."""
        started = self._clock()
        try:
            yield
        finally:
            self.spend(self._clock() - started)
