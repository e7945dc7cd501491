"""A-Greedy with a window of fixed length, and with a window that change detectors govern.

Both see the same profile rows, one after the other, and are compiled alike (numba), so that what
they cost can be compared: CPU time of monitoring, analysis and re-optimisation. [Tsamoura16 6]

- ``run_fixed``: every insertion updates the matrix view incrementally and checks the greedy
  invariant where it can have broken [Babu05 Figs 4.5-4.7]; with ``check_all`` it looks at all
  F (F + 1) / 2 entries each time, as [Tsamoura16 6] describes it. Orders are the same.
- ``run_detected``: every block of k rows gives one estimate of each conditional drop fraction to
  its detector; a change empties the window up to the change point, and only then is the invariant
  checked again, once the window holds enough rows. Detectors whose key (prefix as a set, filter) a
  new order changed start anew. The blocks of a micro-batch go to the detectors in one call, which
  stops at a change; what is left of them is estimated again under the order that follows. After a
  change the calls begin with one block and double.

An engine of micro-batches lays an order when a batch begins and keeps it until the next begins, so
every run also counts what its orders would have cost laid so, and how often they differ from batch
to batch.

Rows that pass every filter are rows of the window too. The first filters of an order that a row
goes through are its work; evaluating the others is profiling, and is counted apart.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numba import njit
from tests.oracles.drifting import DriftingStream

from benchmarks.filters.simulated_loop import BATCH_ROWS
from eddyline.change.protocol import DetectorBank, DetectorOptions
from eddyline.change.protocol import advance as advance_bank
from eddyline.data.arrays import Bytes, Floats, Int32s, Ints, Mask
from eddyline.stats.profile import Order, changed_prefixes

HYSTERESIS = 0.9
"""The thesis' alpha, for both."""

MIN_FILL = 41
"""Rows before A-Greedy checks anything: the smallest window of the paper."""

MIN_PROFILE = 250
"""Rows that must be left before an analysis; also a window length of the paper."""

MIN_REACHED = 10
"""Rows of a block that must reach a position, or the block says nothing about it."""

MOST_CELLS = 2**16
"""Estimates that are made together (half a MiB)."""

NOTHING: Mask = np.zeros(0, dtype=np.bool_)

MAX_WINDOW = 106_652
"""Rows that a window governed by detectors holds at most: the largest of the paper."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run spent and did."""

    work: float
    """Cost of the evaluations that the orders in force asked for, over all rows."""
    extra: float
    """Cost of the evaluations that only profiling needed, over all rows."""
    overhead_s: float
    """CPU time of monitoring, analysis and re-optimisation (s)."""
    n_analyses: int
    """Checks of the greedy invariant."""
    n_reorders: int
    """Re-optimisations: checks after which the order changed."""
    order: Order
    """The order at the end."""
    n_items: int = 0
    """Items that detectors took in."""
    n_detections: int = 0
    """Blocks at which some detector found a change."""
    laid_work: float = 0.0
    """Cost over all rows if each micro-batch runs in the order in force when it begins."""
    n_laid: int = 0
    """Micro-batches whose order is another than that of the batch before."""


# -- kernels --------------------------------------------------------------------------------------


@njit(cache=True, inline="always")
def first_drop(drops: Bytes, row: int, order: Ints) -> int:
    """Return the position of the first filter that drops a row; F if all pass it."""
    for position in range(len(order)):
        if drops[row, order[position]]:
            return position
    return len(order)


@njit(cache=True, inline="always")
def add_to_view(
    drops: Bytes, row: int, first: int, order: Ints, view: Int32s, sign: int, columns: Ints
) -> int:
    """Count a row in or out; leave the changed columns in ``columns`` and return how many."""
    n = 0
    for c in range(first, len(order)):
        if drops[row, order[c]]:
            columns[n] = c
            n += 1
    for i in range(first + 1):
        for k in range(n):
            view[i, columns[k]] += sign
    return n


@njit(cache=True, fastmath=True)
def is_flagged(view: Int32s, rates: Floats, hysteresis: float, position: int) -> bool:
    """Return whether a later filter beats the one at a position by 1 / hysteresis."""
    best = 0.0
    for c in range(position + 1, len(rates)):
        best = max(best, view[position, c] * rates[c])
    return bool(view[position, position] * rates[position] < hysteresis * best)


@njit(cache=True)
def promote(order: Ints, rates: Floats, counts: Int32s, position: int) -> int:
    """Move the filter that drops most per cost to a position; return where it came from.

    Those between shift right, and ties keep their order.
    """
    best, best_ratio = position, -1.0
    for c in range(position, len(order)):
        ratio = counts[order[c]] * rates[c]
        if ratio > best_ratio:
            best, best_ratio = c, ratio
    chosen, rate = order[best], rates[best]
    for c in range(best, position, -1):
        order[c] = order[c - 1]
        rates[c] = rates[c - 1]
    order[position], rates[position] = chosen, rate
    return best


@njit(cache=True)
def survivors(
    drops: Bytes, order: Ints, position: int, first: Ints, alive: Ints, n_alive: int
) -> int:
    """Take the rows that a position drops out of those alive; return how many are left."""
    n_left = 0
    for k in range(n_alive):
        row = alive[k]
        if drops[row, order[position]]:
            first[row] = position
        else:
            alive[n_left] = row
            n_left += 1
    return n_left


@njit(cache=True)
def count_drops(drops: Bytes, alive: Ints, n_alive: int, counts: Int32s) -> None:
    """Count how many of some rows each filter drops."""
    counts[:] = 0
    for k in range(n_alive):
        row = alive[k]
        for f in range(len(counts)):
            counts[f] += drops[row, f]


@njit(cache=True)
def rewrite_view(
    order: Ints, before: Ints, view: Int32s, counts: Int32s, start: int, stop: int
) -> None:
    """Update the view of the order ``before`` after the positions [start, stop) were filled anew.

    ``counts`` are drops by position and filter for [start, stop); the rows before are overwritten.
    """
    for i in range(start):
        for c in range(start, stop):
            counts[i, before[c]] = view[i, c]
        for c in range(start, stop):
            view[i, c] = counts[i, order[c]]
    for i in range(start, stop):
        view[i, :i] = 0
        for c in range(i, len(order)):
            view[i, c] = counts[i, order[c]]


@njit(cache=True)
def restore(drops: Bytes, low: int, high: int, start: int, state: Any, scratch: Any) -> int:
    """Restore the greedy invariant from ``start`` on, as ``ordering.greedy``, on rows [low, high).

    Args:
        drops: which filter drops which row ((R, F)).
        low: first row of the window.
        high: the row behind its last.
        start: the first position that may be wrong.
        state: see ``new_state``; all of it is updated.
        scratch: see ``new_scratch``.

    Returns:
        The first position that was not looked at.
    """
    order, view, first, rates = state
    alive, counts, before = scratch
    before[:] = order
    n_alive = 0
    for row in range(low, high):
        if first[row] >= start:
            alive[n_alive] = row
            n_alive += 1
    for c in range(start, len(order)):
        counts[start, order[c]] = view[start, c]
    position = last = start
    while True:
        last = max(last, promote(order, rates, counts[position], position))
        n_alive = survivors(drops, order, position, first, alive, n_alive)
        position += 1
        if position > last:
            break
        count_drops(drops, alive, n_alive, counts[position])
    rewrite_view(order, before, view, counts, start, position)
    return position


@njit(cache=True)
def first_flagged(view: Int32s, rates: Floats, hysteresis: float, start: int, stop: int) -> int:
    """Return the first of the positions [start, stop) that is flagged; F if none is."""
    for i in range(start, stop):
        if is_flagged(view, rates, hysteresis, i):
            return i
    return len(rates)


@njit(cache=True, inline="always")
def first_broken(
    view: Int32s, rates: Floats, hysteresis: float, added: int, gone: int, columns: Ints, n: int
) -> int:
    """Return the first position that one row in and one row out flagged; F if they flagged none.

    The row that came raised some columns of the positions up to its first drop; the one that left
    lowered the diagonal at its first drop. Nothing else can break the invariant. First drops are
    -1 where there is none; the row that came raised the first ``n`` of ``columns``.
    """
    for i in range(max(added, gone) + 1):
        if i == gone:
            if is_flagged(view, rates, hysteresis, i):
                return i
        elif i <= added:
            own = view[i, i] * rates[i]
            for k in range(n):
                c = columns[k]
                if c > i and own < hysteresis * (view[i, c] * rates[c]):
                    return i
    return len(rates)


@njit(cache=True)
def advance(
    drops: Bytes,
    rows: tuple[int, int],
    state: Any,
    price: Floats,
    options: tuple[int, int, float, bool],
    scratch: Any,
    laid: Ints,
    batch_rows: int,
) -> tuple[float, int, int]:
    """Insert rows into a fixed window one by one, checking the invariant at each.

    Args:
        drops: which filter drops which row ((R, F)).
        rows: the first row to insert and the one behind the last; those before are in already.
        state: see ``new_state``.
        price: cost of each filter ((F,)).
        options: rows of the window, rows before anything is checked, hysteresis, and whether every
            check looks at the whole view.
        scratch: see ``new_scratch``.
        laid: takes the order in force at the first row of each micro-batch ((B, F)).
        batch_rows: rows of a micro-batch.

    Returns:
        Cost of the rows' work, the number of checks, and the number of changes of order.
    """
    window_rows, min_fill, hysteresis, check_all = options
    order, view, first, rates = state
    n = len(order)
    columns, removed = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    spent = np.zeros(n + 1)
    spent[1:] = np.cumsum(price[order])
    work, n_checks, n_reorders = 0.0, 0, 0
    for row in range(rows[0], rows[1]):
        if row % batch_rows == 0:
            laid[row // batch_rows] = order
        low = max(row + 1 - window_rows, 0)
        added, gone, n_columns = first_drop(drops, row, order), -1, 0
        work += spent[min(added + 1, n)]
        first[row] = added
        if added < n:
            n_columns = add_to_view(drops, row, added, order, view, 1, columns)
        else:
            added = -1
        if low and first[low - 1] < n:
            gone = first[low - 1]
            add_to_view(drops, low - 1, gone, order, view, -1, removed)
        if row + 1 < min_fill:
            continue
        n_checks += 1
        if check_all or row + 1 == min_fill:
            stop = n
            flagged = first_flagged(view, rates, hysteresis, 0, n)
        else:
            stop = max(added, gone) + 1
            flagged = first_broken(view, rates, hysteresis, added, gone, columns, n_columns)
        if flagged == n:
            continue
        n_reorders += 1
        while flagged < n:
            following = restore(drops, low, row + 1, flagged, state, scratch)
            flagged = first_flagged(view, rates, hysteresis, following, stop)
        spent[1:] = np.cumsum(price[order])
    return work, n_checks, n_reorders


@njit(cache=True)
def analyse(drops: Bytes, low: int, high: int, state: Any, hysteresis: float, scratch: Any) -> bool:
    """Check the invariant on a window from scratch and restore it; return whether it was broken."""
    order, view, first, rates = state
    counts = scratch[1]
    n = len(order)
    counts[:] = 0
    for row in range(low, high):
        d = first_drop(drops, row, order)
        first[row] = d
        if d < n:
            for f in range(n):
                counts[d, f] += drops[row, f]
    for i in range(n - 2, -1, -1):
        for f in range(n):
            counts[i, f] += counts[i + 1, f]
    for i in range(n):
        for c in range(i, n):
            view[i, c] = counts[i, order[c]]
    flagged = first_flagged(view, rates, hysteresis, 0, n)
    was_broken = flagged < n
    while flagged < n:
        following = restore(drops, low, high, flagged, state, scratch)
        flagged = first_flagged(view, rates, hysteresis, following, n)
    return was_broken


@njit(cache=True)
def estimate_block(
    drops: Bytes,
    rows: tuple[int, int],
    order: Ints,
    price: Floats,
    slots: tuple[Ints, Ints],
    min_reached: int,
    dropped: Int32s,
    values: Floats,
) -> tuple[float, int]:
    """Run one block under an order and estimate every conditional drop fraction from it.

    Args:
        drops: which filter drops which row ((R, F)).
        rows: first row of the block and the one behind its last.
        order: the order in force.
        price: cost of each filter ((F,)).
        slots: where the entries of each position begin ((F + 1,)), and the filter of each entry.
        min_reached: rows that must reach a position, or its entries become nan.
        dropped: scratch ((F + 1, F)).
        values: takes the estimates, one per entry.

    Returns:
        Cost of the rows' work, and how many positions have estimates.
    """
    starts, slot_filters = slots
    n = len(order)
    spent = np.zeros(n + 1)
    spent[1:] = np.cumsum(price[order])
    stopped = np.zeros(n + 1, dtype=np.int64)
    first = np.empty(rows[1] - rows[0], dtype=np.int64)
    work = 0.0
    for row in range(rows[0], rows[1]):
        d = first_drop(drops, row, order)
        first[row - rows[0]] = d
        stopped[d] += 1
        work += spent[min(d + 1, n)]
    n_known, reached = 0, rows[1] - rows[0]
    while n_known < n and reached >= min_reached:
        reached -= stopped[n_known]
        n_known += 1
    dropped[: n_known + 1] = 0
    for row in range(rows[0], rows[1]):
        d = min(first[row - rows[0]], n_known)
        for f in range(n):
            dropped[d, f] += drops[row, f]
    reached = 0
    for i in range(n_known, n + 1):
        reached += stopped[i]
    for i in range(n_known - 1, -1, -1):
        reached += stopped[i]
        for f in range(n):
            dropped[i, f] += dropped[i + 1, f]
        for slot in range(starts[i], starts[i + 1]):
            values[slot] = dropped[i, slot_filters[slot]] / reached
    values[starts[n_known] :] = np.nan
    return work, n_known


@njit(cache=True)
def estimate_blocks(
    drops: Bytes,
    start: int,
    order: Ints,
    price: Floats,
    slots: tuple[Ints, Ints],
    min_reached: int,
    scratch: tuple[int, Int32s],
    spent: Floats,
    n_known: Ints,
    values: Floats,
) -> None:
    """Run consecutive blocks under an order, see ``estimate_block``.

    Args:
        drops: which filter drops which row ((R, F)).
        start: first row of the first block.
        order: the order in force.
        price: cost of each filter ((F,)).
        slots: see ``estimate_block``.
        min_reached: see ``estimate_block``.
        scratch: rows of a block, and room for counts ((F + 1, F)).
        spent: takes the cost of each block's rows ((T,)).
        n_known: takes how many positions have estimates ((T,)).
        values: takes the estimates ((T, entries)).
    """
    block_rows, dropped = scratch
    for t in range(len(spent)):
        low = start + t * block_rows
        spent[t], n_known[t] = estimate_block(
            drops, (low, low + block_rows), order, price, slots, min_reached, dropped, values[t]
        )


# -- runs -----------------------------------------------------------------------------------------


def new_state(price: Floats, n_rows: int) -> tuple[Ints, Int32s, Ints, Floats]:
    """Return the order by index, an empty view, first drops of rows, and one over the prices."""
    n = len(price)
    view = np.zeros((n, n), dtype=np.int32)
    return np.arange(n), view, np.zeros(n_rows, dtype=np.int64), 1.0 / price


def new_scratch(n: int, n_rows: int) -> tuple[Ints, Int32s, Ints]:
    """Return room for indices of rows, for counts, and for an old order."""
    counts = np.zeros((n, n), dtype=np.int32)
    return np.empty(n_rows, dtype=np.int64), counts, np.empty(n, dtype=np.int64)


def run_fixed(
    drops: Bytes,
    price: Floats,
    window_rows: int,
    *,
    min_fill: int = MIN_FILL,
    hysteresis: float = HYSTERESIS,
    check_all: bool = False,
    batch_rows: int = BATCH_ROWS,
) -> Outcome:
    """Run A-Greedy with a window of so many profile rows; ``batch_rows`` see ``laid_cost``."""
    n_rows, n_filters = drops.shape
    state, scratch = new_state(price, n_rows), new_scratch(n_filters, n_rows)
    laid = np.zeros((-(-n_rows // batch_rows), n_filters), dtype=np.int64)
    options = (window_rows, min(min_fill, window_rows), hysteresis, check_all)
    started = time.thread_time()
    work, n_checks, n_reorders = advance(
        drops, (0, n_rows), state, price, options, scratch, laid, batch_rows
    )
    overhead = time.thread_time() - started
    extra = n_rows * float(price.sum()) - work
    end = tuple(state[0].tolist())
    laid_work, n_laid = laid_cost(drops, price, laid, batch_rows)
    return Outcome(
        work, extra, overhead, n_checks, n_reorders, end, laid_work=laid_work, n_laid=n_laid
    )


class Never:
    """Options and bank of a detector that finds nothing: the order of the first analysis stays.

    What it costs is what blocks and the loop over them cost without any detector.
    """

    found: Mask
    n: int

    def build(self, n: int) -> Any:
        """Return a bank of n."""
        bank = Never()
        bank.n = n
        bank.found = np.zeros(n, dtype=np.bool_)
        return bank

    def update(self, values: Floats) -> Mask:  # noqa: ARG002 protocol
        """Find nothing."""
        return self.found

    def advance(self, items: Floats) -> tuple[int, Mask]:
        """Find nothing in any row."""
        return len(items), self.found

    def reset(self, which: Mask) -> None:
        """Do nothing."""


class Slots:
    """Which detector watches which filter given which prefix.

    Position i has F - i entries, one for each filter that is not before it. They keep their filters
    as long as the set of filters before them stays the same.
    """

    def __init__(self, order: Ints) -> None:
        n = len(order)
        self.order = order.copy()
        self.starts = np.concatenate([[0], np.cumsum(np.arange(n, 0, -1))])
        self.filters = np.concatenate([order[i:] for i in range(n)])

    @property
    def n(self) -> int:
        """How many entries there are: F (F + 1) / 2."""
        return len(self.filters)

    def follow(self, order: Ints) -> Mask:
        """Assign the entries anew for another order; return which of them changed ((n,))."""
        changed = np.zeros(self.n, dtype=np.bool_)
        prefixes = changed_prefixes(tuple(self.order.tolist()), tuple(order.tolist()))
        for i in np.flatnonzero(prefixes):
            self.filters[self.starts[i] : self.starts[i + 1]] = order[i:]
            changed[self.starts[i] : self.starts[i + 1]] = True
        self.order = order.copy()
        return changed


def run_detected(
    drops: Bytes,
    price: Floats,
    detector: DetectorOptions,
    block_rows: int,
    *,
    reviews: bool = False,
    min_profile: int = MIN_PROFILE,
    hysteresis: float = HYSTERESIS,
    batch_rows: int = BATCH_ROWS,
) -> Outcome:
    """Run A-Greedy whose window is governed by a detector per conditional drop fraction.

    Args:
        drops: which filter drops which profile row ((R, F)).
        price: cost of one evaluation of each filter ((F,)).
        detector: makes the bank of detectors.
        block_rows: rows of one estimate.
        reviews: whether the invariant is checked again each time the window has doubled since the
            last check, as eddyline's loop does; the paper checks only after a change.
        min_profile: rows that the window must hold for an analysis.
        hysteresis: see ``HYSTERESIS``.
        batch_rows: see ``laid_cost``; an order is laid where a block begins.
    """
    n_rows, n = drops.shape
    state, scratch = new_state(price, n_rows), new_scratch(n, n_rows)
    order = state[0]
    slots = Slots(order)
    bank = detector.build(slots.n)
    position_of = np.repeat(np.arange(n), np.diff(slots.starts))
    n_blocks, ahead = n_rows // block_rows, 1
    most = max(min(batch_rows // block_rows, MOST_CELLS // slots.n), 1)
    room = block_rows, np.zeros((n + 1, n), dtype=np.int32)
    values = np.full((most, slots.n), np.nan)
    spent, n_known = np.zeros(n_blocks), np.zeros(n_blocks, dtype=np.int64)
    work, low, due_rows = 0.0, 0, float(min_profile)
    n_analyses = n_reorders = n_detections = n_batches = done_blocks = high = 0
    laid = np.zeros((-(-n_rows // batch_rows), n), dtype=np.int64)
    started = time.thread_time()
    while high < n_rows:
        # A batch of blocks, up to the one after which an analysis is due: it may change the order.
        begin, stop = done_blocks, min(done_blocks + ahead, n_blocks)
        if due_rows <= MAX_WINDOW:
            stop = min(stop, max(begin + 1, int(-(-(low + due_rows) // block_rows))))
        if begin < stop:
            entries = slots.starts, slots.filters
            estimate_blocks(
                *(drops, begin * block_rows, order, price, entries, MIN_REACHED, room),
                *(spent[begin:stop], n_known[begin:stop], values[: stop - begin]),
            )
            n_taken, found = advance_bank(bank, values[: stop - begin])
            done_blocks += n_taken
            high = done_blocks * block_rows
            work += float(spent[begin:done_blocks].sum())
        else:
            found, high = NOTHING, n_rows
            work += rest_work(drops, done_blocks * block_rows, n_rows, order, price)
        laid[n_batches : -(-high // batch_rows)] = order
        n_batches = -(-high // batch_rows)
        ahead = 1 if found.any() else min(2 * ahead, most)
        if found.any():
            n_detections += 1
            due_rows = min_profile
            places = np.flatnonzero(found), position_of, n_known, done_blocks - 1
            low = max(low, _change_block(bank, *places) * block_rows)
        low = max(low, high - MAX_WINDOW)
        if high - low >= due_rows:
            due_rows = 2.0 * (high - low) if reviews else np.inf
            n_analyses += 1
            if analyse(drops, low, high, state, hysteresis, scratch):
                n_reorders += 1
                bank.reset(slots.follow(order))
    overhead = time.thread_time() - started
    extra = n_rows * float(price.sum()) - work
    done = Outcome(work, extra, overhead, n_analyses, n_reorders, tuple(order.tolist()))
    n_items = int(slots.starts[n_known].sum())
    laid_work, n_laid = laid_cost(drops, price, laid, batch_rows)
    return replace(
        done, n_items=n_items, n_detections=n_detections, laid_work=laid_work, n_laid=n_laid
    )


def laid_cost(drops: Bytes, price: Floats, laid: Ints, batch_rows: int) -> tuple[float, int]:
    """Return what the rows cost in the orders laid for micro-batches, and how often these change.

    Args:
        drops: which filter drops which row ((R, F)).
        price: cost of one evaluation of each filter ((F,)).
        laid: the order of each micro-batch ((B, F)).
        batch_rows: rows of a micro-batch.
    """
    work = sum(
        rest_work(drops, low, min(low + batch_rows, len(drops)), order, price)
        for low, order in zip(range(0, len(drops), batch_rows), laid, strict=True)
    )
    return float(work), int((laid[1:] != laid[:-1]).any(axis=1).sum())


def _change_block(
    bank: DetectorBank, found: Ints, position_of: Ints, n_known: Ints, block: int
) -> int:
    """Return the block at which the most recent of the changes just found began."""
    latest = 0
    for entry in found:
        n_since = int(bank.n_seen[entry] - bank.change_points[entry])
        if n_since <= 0:
            return block + 1
        given = np.flatnonzero(n_known[: block + 1] > position_of[entry])
        latest = max(latest, int(given[max(len(given) - n_since, 0)]))
    return latest


@njit(cache=True)
def rest_work(drops: Bytes, start: int, stop: int, order: Ints, price: Floats) -> float:
    """Return the cost of some rows under an order."""
    work = 0.0
    for row in range(start, stop):
        for f in order:
            work += price[f]
            if drops[row, f]:
                break
    return work


# -- an oracle ------------------------------------------------------------------------------------


def greedy_order(stream: DriftingStream, row: int) -> Order:
    """Return the greedy order by the true fractions at a row, for equal costs.

    What a filter drops given a prefix depends only on the filters of its group in the prefix.
    """
    there = stream.at(row)
    size = stream.group_size
    marginal = np.array(there.pass_fracs)
    chosen: list[int] = []
    passing = marginal.copy()  # fraction that a filter passes of what the prefix passes
    for _ in range(stream.n_filters):
        best = int(passing.argmin())
        chosen.append(best)
        passing[best] = np.inf
        group = [f for f in chosen if f // size == best // size]
        known = stream.all_pass_frac(row, group)
        for f in range(best // size * size, min((best // size + 1) * size, stream.n_filters)):
            if f not in group:
                passing[f] = stream.all_pass_frac(row, [*group, f]) / known if known else 1.0
    return tuple(chosen)


def oracle_work(stream: DriftingStream, drops: Bytes, price: Floats) -> float:
    """Return what the rows cost under the greedy order by the true fractions, always up to date.

    During a ramp the order is renewed ten times.
    """
    edges = [0]
    for point in stream.change_points:
        steps = np.arange(10) * stream.ramp_rows // 10 if stream.ramp_rows else [0]
        edges += [point + int(step) for step in steps]
        if stream.ramp_rows:
            edges.append(point + stream.ramp_rows)
    ends = [*edges[1:], len(drops)]
    return sum(
        float(rest_work(drops, start, end, np.array(greedy_order(stream, start)), price))
        for start, end in zip(edges, ends, strict=True)
        if end > start
    )
