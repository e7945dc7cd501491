"""When a sequence is learned again: when it no longer does what it did when it was adopted.

The paper compares the share of rows that the covering part of the sequence drops [ASC Eq 5]. A
shift that keeps this share and changes which construct does the work escapes it, so the share of
rows that enter each construct is compared too (ours). Both come from what selection counts anyway.
A change must also be beyond chance (ours): a tenth of a small share is less than two periods of
the same stream differ by.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.errors import OptionError
from eddyline.options import in_range
from eddyline.rules.planning.hybrid_sequence import hybrid
from eddyline.rules.planning.sequence import SelectionSequence
from eddyline.rules.planning.sequence_learning import RegionSample, greedy_macro, macro

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Int32s, Mask
    from eddyline.rules.compile.bitmap_block import SelectionBlock
    from eddyline.rules.profile import SelectionCounts

MIN_ERRORS = 4.0
"""Standard errors beyond which two shares differ by more than chance: of a thousand looks at ten
constructs, less than one is false."""

LEARNERS: dict[str, Any] = {"macro": macro, "greedy": greedy_macro, "hybrid": hybrid}
"""Ways to learn a sequence: the cheapest order found, the paper's greedy one, with micro-arrows."""


def has_changed(initial: float, current: float, min_change: float) -> bool:
    """Return whether a share differs from what it was by a share of that [ASC Eq 5].

    >>> has_changed(0.5, 0.41, 0.2), has_changed(0.5, 0.41, 0.1), has_changed(0.5, 0.5, 0.0)
    (False, True, True)
    """
    if initial == 0.0:
        return current > 0.0 or min_change == 0.0
    return abs(current - initial) / initial >= min_change


@dataclass(frozen=True, slots=True, kw_only=True)
class RearrangementOptions:
    """When and from how much a sequence is learned.

    Raises:
        OptionError: a value is out of its range.
    """

    learner: str = "macro"
    """One of ``LEARNERS``."""
    review_rows: int = 10_000
    """Rows between two looks at what has changed (λ; ≥ 1)."""
    min_change: float = 0.05
    """Change of a share that has it learned again (μ; [0, 10]); 0: at every look."""
    sample_rows: int = 1000
    """Rows that it is learned from (τ; ≥ 1): each is looked up in all constructs."""
    skips: bool = False
    """Whether rows pass over constructs that cannot decide a rule that they have left."""

    def __post_init__(self) -> None:
        in_range(self, "review_rows", 1, 2**40)
        in_range(self, "min_change", 0.0, 10.0)
        in_range(self, "sample_rows", 1, 2**24)
        if self.learner not in LEARNERS:
            msg = f"unknown learner {self.learner!r}; known: {', '.join(LEARNERS)}"
            raise OptionError(msg, learner=self.learner)


class RearrangementMonitor:
    """Says when the shares differ from those of the first period after a sequence was adopted."""

    def __init__(self, review_rows: int, min_change: float) -> None:
        self._review_rows = review_rows
        self._min_change = min_change
        self._prefix: tuple[int, ...] = ()
        self._initial: SelectionCounts | None = None
        self._period: SelectionCounts | None = None

    def adopt(self, prefix: tuple[int, ...]) -> None:
        """Start over with a sequence.

        Args:
            prefix: the constructs at its start that cover all rules.
        """
        self._prefix = prefix
        self._initial = self._period = None

    def is_due(self, counts: SelectionCounts) -> bool:
        """Take in what selection counted, and return whether it is time to learn again."""
        self._period = counts if self._period is None else self._period + counts
        if self._period.n_rows < self._review_rows:
            return False
        current, self._period = self._period, None
        if self._initial is None:
            self._initial = current
            return self._min_change == 0.0
        if self._min_change == 0.0:
            return True
        before, now = self._drop_frac(self._initial), self._drop_frac(current)
        rows = self._initial.n_rows, current.n_rows
        entered = _entered(self._initial), _entered(current)
        moved = np.abs(entered[1] - entered[0]) >= self._min_change
        return (
            has_changed(before, now, self._min_change)
            and bool(_differs(np.array([before]), np.array([now]), rows)[0])
        ) or bool((moved & _differs(*entered, rows)).any())

    def _drop_frac(self, counts: SelectionCounts) -> float:
        return float(counts.dropped[list(self._prefix)].sum() / max(counts.n_rows, 1))


class SequencePolicy:
    """Keeps the sequence of a block up to date: sees counts and regions, never rows.

    While ``n_wanted`` is above 0, regions of so many of the next rows are asked for.
    """

    def __init__(
        self, block: SelectionBlock, options: RearrangementOptions, costs: Floats | None = None
    ) -> None:
        self._block = block
        self._options = options
        self._costs = costs
        self._monitor = RearrangementMonitor(options.review_rows, options.min_change)
        self._sample: list[Int32s] = []
        self.sequence = SelectionSequence.as_numbered(block.n_constructs)
        self.n_wanted = options.sample_rows if block.n_constructs > 1 else 0

    def observe(self, counts: SelectionCounts) -> None:
        """Take in what selection along ``sequence`` counted."""
        if self.n_wanted == 0 and self._block.n_constructs > 1 and self._monitor.is_due(counts):
            self.n_wanted = self._options.sample_rows

    def learn(self, regions: Int32s) -> bool:
        """Take in regions of rows drawn evenly, and return whether there is a new sequence.

        Args:
            regions: region of each row in each construct ((T, n)); as many as are wanted or fewer.
        """
        if self.n_wanted == 0:
            return False
        self._sample.append(regions)
        self.n_wanted = max(0, self.n_wanted - len(regions))
        if self.n_wanted:
            return False
        regions = np.concatenate(self._sample)
        sample = RegionSample.of(self._block, regions, self._costs, skips=self._options.skips)
        self._sample = []
        found: SelectionSequence = LEARNERS[self._options.learner](sample)
        is_new, self.sequence = found != self.sequence, found
        self._monitor.adopt(_covering(self._block, found.macro))
        return is_new


def _differs(before: Floats, now: Floats, rows: tuple[int, int]) -> Mask:
    """Return whether shares of two periods differ by more than ``MIN_ERRORS`` standard errors."""
    both = (before * rows[0] + now * rows[1]) / sum(rows)
    error = np.sqrt(both * (1.0 - both) * (1.0 / rows[0] + 1.0 / rows[1]))
    return np.abs(now - before) > MIN_ERRORS * error


def _covering(block: SelectionBlock, macro: tuple[int, ...]) -> tuple[int, ...]:
    """Return the constructs at the start of an order that together decide every rule."""
    uncovered = block.initial.copy()
    for length, construct in enumerate(macro, 1):
        uncovered &= ~block.usage[construct]
        if not uncovered.any():
            return macro[:length]
    return macro


def _entered(counts: SelectionCounts) -> Floats:
    found: Floats = counts.evaluated / max(counts.n_rows, 1)
    return found
