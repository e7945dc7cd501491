"""The paper's policy for one block: its sequence is learned, and learned again after a change.

In a set of rules, ``rules.choice.RuleChoice`` does so with the plan as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eddyline.data.arrays import Int32s
from eddyline.rules.compile.bitmap_block import BitmapBlock
from eddyline.rules.plan import SelectionCounts, SelectionSequence
from eddyline.rules.planning.planner import LEARNERS
from eddyline.rules.planning.sequence_learning import RearrangementMonitor, RegionSample


@dataclass(frozen=True, slots=True, kw_only=True)
class RearrangementOptions:
    """When and from how much a sequence is learned."""

    learner: str = "macro"
    """One of ``LEARNERS``."""
    review_rows: int = 10_000
    """Rows between two looks at what has changed (λ; ≥ 1)."""
    min_change: float = 0.05
    """Change of a share that has it learned again (μ; [0, 10]); 0: at every look."""
    sample_rows: int = 1000
    """Rows that it is learned from (τ; ≥ 1): each is looked up in all constructs."""


class SequencePolicy:
    """Keeps the sequence of a block up to date: sees counts and regions, never rows.

    While ``n_wanted`` is above 0, regions of so many of the next rows are asked for.
    """

    def __init__(self, block: BitmapBlock, options: RearrangementOptions) -> None:
        self._block = block
        self._options = options
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
        sample = RegionSample.from_regions(self._block, regions)
        self._sample = []
        found: SelectionSequence = LEARNERS[self._options.learner](sample)
        is_new, self.sequence = found != self.sequence, found
        self._monitor.adopt(_covering(self._block, found.macro))
        return is_new


def _covering(block: BitmapBlock, macro: tuple[int, ...]) -> tuple[int, ...]:
    """Return the constructs at the start of an order that together decide every rule."""
    uncovered = block.initial.copy()
    for length, construct in enumerate(macro, 1):
        uncovered &= ~block.usage[construct]
        if not uncovered.any():
            return macro[:length]
    return macro
