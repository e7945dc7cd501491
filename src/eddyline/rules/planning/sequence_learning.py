"""From regions of sampled rows to a sequence of constructs.

All constructs of a sampled row are evaluated, so every candidate is measured on the same rows and
one sample gives the whole macro-sequence, where the paper takes a period for each position
[ASC 4.2; one sample is ours]. Learners see regions, never rows, and draw nothing at random.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np

from eddyline.rules.planning import sequence_kernels as kernels
from eddyline.rules.planning.sequence import SelectionSequence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.data.arrays import Floats, Indices, Int32s, Words
    from eddyline.rules.compile.bitmap_block import BitmapBlock

MAX_EXACT = 10
"""Most constructs for which all orders are weighed: there are 2**n sets of them."""

MAX_WORDS = 1 << 22
"""Words of bitmaps of a sample that orders are learned from; larger ones are thinned."""

MAX_WORK = 1 << 28
"""Words that a search for an order may look at: some 1.5 s of one core at most (500 rules)."""


@dataclass(frozen=True, slots=True, eq=False)
class RegionSample:
    """Sampled rows by their regions, over a block."""

    block: BitmapBlock
    regions: Int32s
    """Region of each row in each construct ((T, n))."""
    costs: Floats
    """Cost of one evaluation of each construct, in any unit (> 0; (n,))."""
    skips: bool = False
    """Whether rows pass over constructs that cannot decide a rule that is left."""
    bitmaps: Words = field(init=False, repr=False)
    """Bitmap of each row in each construct ((T, n, W))."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "bitmaps", self.block.bitmaps_of(self.regions))

    @classmethod
    def of(
        cls,
        block: BitmapBlock,
        regions: Int32s,
        costs: Floats | None = None,
        *,
        skips: bool = False,
    ) -> Self:
        """Return a sample; every evaluation costs the same if no costs are given."""
        return cls(block, regions, np.ones(block.n_constructs) if costs is None else costs, skips)

    @classmethod
    def thinned(cls, block: BitmapBlock, regions: Int32s, costs: Floats) -> Self:
        """Return a sample of at most about ``MAX_WORDS`` words: every so many rows."""
        words = block.n_constructs * len(block.initial)
        step = max(1, -(-len(regions) * words // MAX_WORDS))
        return cls(block, regions[::step], costs)

    @property
    def n_rows(self) -> int:
        """T, the number of rows."""
        return len(self.regions)

    def cost(self, order: Sequence[int]) -> float:
        """Return the mean cost of a row under an order of all constructs."""
        return self.cost_left(np.arange(self.n_rows), self.at_first(), order) / self.n_rows

    def at_first(self) -> Words:
        """Return the rules that each row has left before any construct ((T, W))."""
        return np.repeat(self.block.initial[None, :], self.n_rows, axis=0)

    def cost_left(self, rows: Indices, left: Words, order: Sequence[int]) -> float:
        """Return the cost of some rows together with the rules that each row has left ((T, W))."""
        found: float = kernels.order_cost(
            self.bitmaps,
            left,
            self.block.usage,
            rows.astype(np.int64),
            np.array(order, dtype=np.int64),
            self.costs,
            self.skips,
        )
        return found


def greedy_macro(sample: RegionSample) -> SelectionSequence:
    """Return the paper's macro-sequence [ASC 4.2].

    While some rule is not covered, the construct comes next that leaves the fewest of the uncovered
    rules possible, then the one that drops the most rows; per cost. Ties: more newly covered
    rules, the lowest selectivity of its own, the lowest number.
    """
    block, costs = sample.block, sample.costs
    n = block.n_constructs
    if sample.n_rows == 0:
        return SelectionSequence(tuple(range(n)))
    own = selectivity(sample.bitmaps, block.initial)
    left, uncovered = sample.at_first(), block.initial.copy()
    chosen: list[int] = []
    while len(chosen) < n:
        rest = [v for v in range(n) if v not in chosen]
        after = left[:, None, :] & sample.bitmaps[:, rest]
        if uncovered.any():
            told = 1.0 - selectivity(after, uncovered)
            newly = np.bitwise_count(block.usage[rest] & uncovered).sum(axis=1, dtype=np.int64)
        else:
            told = (~after.any(axis=2)).mean(axis=0) - (~left.any(axis=1)).mean()
            newly = np.zeros(len(rest), dtype=np.int64)
        ranks = [(-round(told[i] / costs[v], 12), -newly[i], own[v], v) for i, v in enumerate(rest)]
        best = min(ranks)[-1]
        chosen.append(int(best))
        left &= sample.bitmaps[:, best]
        uncovered &= ~block.usage[best]
    return SelectionSequence(tuple(chosen))


def macro(sample: RegionSample) -> SelectionSequence:
    """Return the cheapest macro-sequence found on the sample.

    The cheapest of all up to ``MAX_EXACT`` constructs; beyond, the paper's greedy one improved by
    moving one construct at a time for as long as that saves and ``MAX_WORK`` lasts; where there are
    too many even for the greedy one, in the order of what each drops by itself, per cost.

    Without rows: constructs in the order of their numbers.
    """
    n = sample.block.n_constructs
    if sample.n_rows == 0 or n == 0:
        return SelectionSequence(tuple(range(n)))
    if n * n * _words(sample) > 2 * MAX_WORK:
        kept = selectivity(sample.bitmaps, sample.block.initial)
        ranks = np.argsort((kept - 1.0) / sample.costs, kind="stable")
        return SelectionSequence(tuple(map(int, ranks)))
    if n > MAX_EXACT:
        return SelectionSequence(_improved(sample, greedy_macro(sample).macro))
    visits = kernels.subset_visits(
        sample.bitmaps, sample.block.initial, sample.block.usage, sample.skips
    )
    return SelectionSequence(tuple(map(int, kernels.best_path(visits, sample.costs))))


def _improved(sample: RegionSample, order: tuple[int, ...]) -> tuple[int, ...]:
    """Return an order that no move of one construct makes cheaper, or the best one found."""
    best, n = sample.cost(order), len(order)
    # A pass weighs n places of n constructs; a weighing walks through n constructs at most.
    left = MAX_WORK // max(1, n * n * _words(sample))
    is_better = True
    while is_better:
        is_better = False
        for construct in order:
            left -= 1
            if left < 0:
                return order
            rest = [v for v in order if v != construct]
            moved = [(*rest[:i], construct, *rest[i:]) for i in range(len(order))]
            costs = [sample.cost(each) for each in moved]
            least = int(np.argmin(costs))
            if costs[least] < best:
                best, order, is_better = costs[least], moved[least], True
    return order


def _words(sample: RegionSample) -> int:
    """Return the words of all rows in one construct."""
    return sample.n_rows * len(sample.block.initial)


def selectivity(bitmaps: Words, rules: Words) -> Floats:
    """Return the share of pairs of row and rule that are still possible ([0, 1]; (n,)) [ASC Eq 1].

    What is possible after each candidate is given as bitmaps ((T, n, W)), the rules that count as
    one ((W,)).
    """
    n_rules = int(np.bitwise_count(rules).sum())
    live = np.bitwise_count(bitmaps & rules).sum(axis=(0, 2), dtype=np.float64)
    found: Floats = live / max(n_rules * len(bitmaps), 1)
    return found
