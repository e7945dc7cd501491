"""What a decision brought: the time that batches took before it and after it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eddyline.report.formatting import count, duration, ratio, significant
from eddyline.runtime.records import n_batches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.records import BatchRecord

MOST_BATCHES = 10
"""Batches on each side of a decision that are compared."""

LEAST_BATCHES = 3
"""Batches that each side must have to be judged: one alone may have waited for another query."""

UNLIKE = 10.0
"""Factor between the rows of batches above which they are not compared: what each batch takes,
whatever its rows, would be told as a difference between plans."""

ALIKE = 1.03
"""Times that differ by less than this factor are told as equal."""

WARM_UP = "Only the first batch with rows ran before it, which also warms up: none to compare with."


@dataclass(frozen=True, slots=True)
class Side:
    """The batches on one side of a decision."""

    n_batches: int
    n_rows: int
    seconds: float

    @property
    def per_row_ns(self) -> float | None:
        """Time of a row (ns)."""
        return ratio(1e9 * self.seconds, self.n_rows)

    @property
    def rows_per_batch(self) -> float | None:
        """Mean rows of a batch."""
        return ratio(self.n_rows, self.n_batches)

    @property
    def per_batch_ns(self) -> float | None:
        """Time of a batch (ns)."""
        return ratio(1e9 * self.seconds, self.n_batches)


def is_change(entry: JournalEntry) -> bool:
    """Tell whether the driver put another plan in force: the next batch runs under it."""
    return entry.is_plan_change and entry.batch_id >= 0


class Effects:
    """Compares the batches around decisions; only those with neither side of another decision.

    Args:
        batches: of the run, in their order.
        journal: of the run.
    """

    def __init__(self, batches: Sequence[BatchRecord], journal: Sequence[JournalEntry]) -> None:
        self._batches = batches
        self._ids = [each.batch_id for each in batches]
        with_rows = (at for at, each in enumerate(batches) if each.n_rows)
        is_whole = bool(batches) and batches[0].batch_id == 0
        # The first batch with rows started workers and compiled what they run.
        self._warm = next(with_rows, 0) + 1 if is_whole else 0
        self._changes = sorted({each.batch_id for each in journal if is_change(each)})

    def of(self, entry: JournalEntry) -> str:
        """Say what a decision brought; empty where it is none that changes what batches do."""
        if not is_change(entry) or not self._ids or entry.batch_id < self._ids[0]:
            return ""
        at = bisect_right(self._changes, entry.batch_id)
        first = self._changes[at - 2] if at > 1 else -1
        until = self._changes[at] if at < len(self._changes) else self._ids[-1]
        middle = bisect_right(self._ids, entry.batch_id)
        start = max(bisect_right(self._ids, first), middle - MOST_BATCHES, self._warm)
        if start >= middle:
            return WARM_UP
        end = min(bisect_right(self._ids, until), middle + MOST_BATCHES)
        return compared(self._side(start, middle), self._side(middle, end))

    def _side(self, start: int, end: int) -> Side:
        chosen = self._batches[start:end]
        return Side(
            n_batches(chosen), sum(b.n_rows for b in chosen), sum(b.seconds for b in chosen)
        )


def compared(before: Side, after: Side) -> str:
    """Say what batches took before and after, and by how much that differs if it can be judged.

    >>> compared(Side(4, 4_000, 2.0), Side(3, 3_000, 0.6))
    'A row took 500 µs before (4 batches of 500 ms) and 200 µs after (3 of 200 ms): 2.5 × less.'
    >>> compared(Side(1, 1_000, 0.5), Side(2, 2_000, 0.4)).partition(" after ")[2]
    '(2 of 200 ms), too few batches to judge.'
    """
    old, new = before.per_row_ns, after.per_row_ns
    if old is None or new is None:
        return "No batch to compare with has run yet." if after.n_batches == 0 else ""
    batches = "1 batch" if before.n_batches == 1 else f"{count(before.n_batches)} batches"
    return (
        f"A row took {duration(old)} before ({batches} of {duration(before.per_batch_ns)}) and "
        f"{duration(new)} after ({count(after.n_batches)} of {duration(after.per_batch_ns)})"
        f"{_doubt(before, after) or f': {_difference(old, new)}'}."
    )


def _doubt(before: Side, after: Side) -> str:
    """Say why times are not judged; empty if they are."""
    if min(before.n_batches, after.n_batches) < LEAST_BATCHES:
        return ", too few batches to judge"
    larger = ratio(before.rows_per_batch or 0.0, after.rows_per_batch or 0.0) or UNLIKE
    if not 1 / UNLIKE < larger < UNLIKE:
        sizes = " and ".join(count(round(each.rows_per_batch or 0)) for each in (before, after))
        return f", which is not judged: batches had {sizes} rows"
    return ""


def _difference(old: float, new: float) -> str:
    factor = ratio(old, new)
    if factor is None or 1 / ALIKE < factor < ALIKE:
        return "as much"
    more_or_less = "less" if factor > 1.0 else "more"
    return f"{significant(max(factor, 1.0 / factor))} × {more_or_less}"


def short(effect: str) -> str:
    """Return what a decision brought in a few words; empty if nothing was judged.

    >>> short("A row took 5 µs before (4 batches of 5 s) and 2 µs after (3 of 2 s): 2.5 × less.")
    'a row took 2.5 × less time'
    """
    _, is_compared, factor = effect.rpartition("): ")
    return f"a row took {factor.removesuffix('.')} time" if is_compared else ""
