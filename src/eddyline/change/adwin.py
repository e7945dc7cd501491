"""ADWIN2: a window that is cut where the means of its two parts differ [Bifet07 4].

The window is kept as an exponential histogram, in space and time that grow with its logarithm. It
is not amnesic: after a change the oldest buckets go, one at a time, until no split is significant;
what remains began with the change.

The guarantee of the paper is for a conservative cut; the cut here, like everyone's, uses the
window's variance, and false alarms are rarer than δ says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eddyline.change.kernel_bank import KernelBank, plain
from eddyline.errors import OptionError
from eddyline.options import in_range

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Ints, Mask

_FIRST_ROWS = 8
"""Rows of a fresh histogram: with five buckets a row, windows of up to some hundreds of items."""

CHANGE_POINTS = ("window", "split")
"""Where a change is taken to have begun."""

_GROWING = ("_bucket_sums", "_squares", "_counts")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdwinOptions:
    """When ADWIN2 cuts its window.

    Raises:
        OptionError: a value is out of its range.
    """

    significance: float = 0.01
    """Probability of a false alarm per item that the cut allows ((0, 1)). δ."""
    buckets_per_row: int = 5
    """Buckets of one size before two of them are merged (≥ 2): more cut more precisely and cost
    more. L."""
    n_feedback: int = 10
    """Items in the window before it checks (≥ 1)."""
    check_every: int = 1
    """Items between two checks (≥ 1); river's default is 32."""
    min_part: int = 1
    """Items that either part of a split has at least (≥ 1); river's default is 5."""

    change_point: str = "window"
    """Where a change is taken to have begun: ``window``, with the oldest item that the cut leaves,
    as in the paper; or ``split``, at the border whose two sides differ most. The window is cut
    bucket by bucket, so much that is older than the change stays until later cuts."""

    def __post_init__(self) -> None:
        in_range(self, "significance", 1e-300, 1.0 - 1e-12)
        in_range(self, "buckets_per_row", 2, 2**16)
        in_range(self, "n_feedback", 1, 2**31)
        in_range(self, "check_every", 1, 2**31)
        in_range(self, "min_part", 1, 2**31)
        if self.change_point not in CHANGE_POINTS:
            msg = f"option 'change_point' must be one of {', '.join(CHANGE_POINTS)}, "
            msg += f"got {self.change_point!r}"
            raise OptionError(msg, name="change_point", value=self.change_point)

    def build(self, n: int) -> Adwin:
        """Return n fresh detectors."""
        return Adwin(self, n)


class Adwin(KernelBank):
    """A bank of ADWIN2 detectors."""

    kind = "adwin"
    is_amnesic = False
    is_sequential = True
    _low, _high = 0.0, 1.0
    _kernel_module = "adwin_kernels"
    _growing = _GROWING
    _state = (*_GROWING, "_totals")

    def __init__(self, options: AdwinOptions, n: int) -> None:
        super().__init__(n, options.n_feedback)
        self._options = options
        self._bucket_sums = np.zeros((self.n, _FIRST_ROWS, options.buckets_per_row + 1))
        self._squares = np.zeros_like(self._bucket_sums)
        self._counts: Ints = np.zeros((self.n, _FIRST_ROWS), dtype=np.int64)
        self._totals = np.zeros((self.n, 3))

    @property
    def widths(self) -> Ints:
        """Items in each window ((n,))."""
        return self._totals[:, 0].astype(np.int64)

    @property
    def means(self) -> Floats:
        """Mean of each window; nan while it is empty ((n,))."""
        n_items, total, _ = self._totals.T
        means: Floats = np.full(self.n, np.nan)
        return np.divide(total, n_items, out=means, where=n_items > 0.0)

    def update(self, values: Floats) -> Mask:
        """Take in one item for each detector and return which found a change.

        The transitions of ``MachineBank.update`` in one kernel: at 64 detectors, what NumPy needs
        to sort out who gets an item is more than the windows do.

        Raises:
            QueryError: another number of values, or an item out of range; nothing was taken in.
        """
        given = plain(np.asarray(values, dtype=np.float64))
        if given.shape != (self.n,):
            return super().update(given)
        options = self._options
        changed = np.zeros(self.n, dtype=np.bool_)
        n_found, last_row = self._kernels.advance(
            given,
            self.n_seen,
            self._ready,
            self._bucket_sums,
            self._squares,
            self._counts,
            self._totals,
            options.significance,
            options.min_part,
            options.check_every,
            options.n_feedback,
            changed,
        )
        if n_found < 0:
            return super().update(given)
        self._make_room(last_row)
        if n_found > 0:
            self._react(np.flatnonzero(changed))
        return changed

    def _use_feedback(self, which: Ints, items: Floats) -> None:
        self._take(which, np.ascontiguousarray(items[:, 0]))
        self._ready[which] = self._totals[which, 0] >= self.n_feedback

    def _check(self, which: Ints, items: Floats) -> Mask:
        self._take(which, items)
        options = self._options
        hits: Mask = self._kernels.find_splits(
            which,
            self._bucket_sums,
            self._counts,
            self._totals,
            options.significance,
            options.min_part,
        )
        hits[self.n_seen[which] % options.check_every != 0] = False
        return hits

    def _take(self, which: Ints, items: Floats) -> None:
        state = (self._bucket_sums, self._squares, self._counts, self._totals)
        self._make_room(self._kernels.take(which, items, *state))

    def _make_room(self, last_row: int) -> None:
        """Keep the last row empty, so that the next item finds room for all its merges."""
        if last_row == self._counts.shape[1] - 1:
            self._grow(2 * self._counts.shape[1])

    def _adjust(self, which: Ints) -> None:
        state = (self._bucket_sums, self._squares, self._counts, self._totals)
        self._cut(which, *state)
        self._ready[which] = self._totals[which, 0] >= self.n_feedback

    def _change_point(self, which: Ints) -> Ints:
        options = self._options
        if options.change_point == "split":
            state = (self._bucket_sums, self._counts, self._totals)
            parts: Ints = self._kernels.newest_parts(which, *state, options.min_part)
            return self.n_seen[which] - parts
        # The oldest item that a cut would leave; the cut itself is the next state's.
        totals = self._totals[which]
        copies = (self._bucket_sums[which], self._squares[which], self._counts[which])
        self._cut(np.arange(len(which)), *copies, totals)
        return self.n_seen[which] - totals[:, 0].astype(np.int64)

    def _cut(
        self, which: Ints, buckets: Floats, squares: Floats, counts: Ints, totals: Floats
    ) -> None:
        options = self._options
        self._kernels.drop_stale(
            which, buckets, squares, counts, totals, options.significance, options.min_part
        )
