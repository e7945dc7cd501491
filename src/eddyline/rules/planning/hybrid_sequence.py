"""Micro-arrows: another construct next for rows of some regions, where a sample says that it pays.

What they save are evaluations. With attributes that are independent there is next to nothing to
save; and rows that part ways cost more to lead than a look-up of a key, so on keys in memory a
macro-sequence is faster although it evaluates more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.rules.planning.sequence import Arrow, SelectionSequence
from eddyline.rules.planning.sequence_learning import macro

if TYPE_CHECKING:
    from eddyline.data.arrays import Indices, Words
    from eddyline.rules.planning.sequence_learning import RegionSample

MIN_ARROW_ROWS = 30
"""Least sampled rows that an arrow is learned from."""

MIN_ARROW_GAIN = 0.03
"""Least share of the remaining cost that an arrow must save on its sampled rows."""

MAX_ARROWS = 4096
"""Most micro-arrows of a sequence."""


def hybrid(sample: RegionSample, base: SelectionSequence | None = None) -> SelectionSequence:
    """Return a sequence with micro-arrows where the sample says that they pay [ASC 4.3].

    Arrows hold along one path of regions, so that none is learned for rows that come another way.
    A region of ``MIN_ARROW_ROWS`` sampled rows with rules left gets an arrow if going to another
    construct first, and then along the macro-sequence, costs them less by ``MIN_ARROW_GAIN``.

    The macro-sequence is that of ``base``, or else learned from the same rows.
    """
    start = (base or macro(sample)).without_arrows()
    if start.n_constructs == 0 or sample.n_rows < MIN_ARROW_ROWS:
        return start
    tree = _Tree(sample, start)
    tree.grow()
    return tree.sequence()


class _Tree:
    """Grows micro-arrows from the first construct on, the nodes of most rows first."""

    def __init__(self, sample: RegionSample, start: SelectionSequence) -> None:
        self._sample = sample
        self._macro = start.macro
        self._further: list[int] = []
        self._arrows: list[Arrow] = []

    def sequence(self) -> SelectionSequence:
        full = SelectionSequence(self._macro, tuple(self._further), tuple(sorted(self._arrows)))
        return _pruned(full)

    def grow(self) -> None:
        sample = self._sample
        rows = np.arange(sample.n_rows)
        frontier = [(self._macro[0], rows, sample.at_first(), self._macro[1:])]
        while frontier and len(self._arrows) < MAX_ARROWS:
            frontier.sort(key=lambda each: len(each[1]))
            node, rows, left, order = frontier.pop()
            frontier += self._grown(node, rows, left, order)

    def _grown(
        self, node: int, rows: Indices, left: Words, order: tuple[int, ...]
    ) -> list[tuple[int, Indices, Words, tuple[int, ...]]]:
        """Give a node's regions arrows, and return the nodes that they lead to."""
        construct = node if node < len(self._macro) else self._further[node - len(self._macro)]
        after = left.copy()
        after[rows] &= self._sample.bitmaps[rows, construct]
        alive = rows[after[rows].any(axis=1)]
        regions = self._sample.regions[alive, construct]
        found = []
        for region in np.flatnonzero(np.bincount(regions) >= MIN_ARROW_ROWS).tolist():
            mine = alive[regions == region]
            if len(order) < 2:
                continue
            target = self._target(mine, after, order)
            place = len(self._macro) + len(self._further)
            self._further.append(target)
            self._arrows.append(Arrow(node, region, place))
            found.append((place, mine, after, tuple(v for v in order if v != target)))
        return found

    def _target(self, rows: Indices, left: Words, order: tuple[int, ...]) -> int:
        """Return the construct to visit next: the macro-sequence's unless another saves enough."""
        moved = [(v, *(u for u in order if u != v)) for v in order]
        costs = [self._sample.cost_left(rows, left, each) for each in moved]
        best = int(np.argmin(costs))
        if costs[best] < (1.0 - MIN_ARROW_GAIN) * costs[0]:
            return order[best]
        usage, live = self._sample.block.usage, np.bitwise_or.reduce(left[rows], axis=0)
        useful = [v for v in order if (usage[v] & live).any()]
        return useful[0] if useful and self._sample.skips else order[0]


def _pruned(sequence: SelectionSequence) -> SelectionSequence:
    """Return a sequence without arrows that only say what the macro-sequence says."""
    n = len(sequence.macro)
    children: dict[int, list[Arrow]] = {}
    for arrow in sequence.arrows:
        children.setdefault(arrow.node, []).append(arrow)
    kept: list[tuple[int, int, int]] = []

    def keep(node: int, visited: frozenset[int]) -> bool:
        """Keep what is needed below a node, and return whether anything is."""
        mine = visited | {sequence.construct_of(node)}
        following = next((v for v in sequence.macro if v not in mine), None)
        needed = False
        for arrow in children.get(node, ()):
            goes_elsewhere = sequence.construct_of(arrow.target) != following
            if keep(arrow.target, mine) or goes_elsewhere:
                kept.append((arrow.node, arrow.region, arrow.target))
                needed = True
        return needed

    keep(sequence.macro[0], frozenset())
    nodes = sorted({target for _, _, target in kept})
    number = {old: n + new for new, old in enumerate(nodes)}
    arrows = sorted(Arrow(number.get(a, a), region, number[b]) for a, region, b in kept)
    further = tuple(sequence.construct_of(old) for old in nodes)
    return SelectionSequence(sequence.macro, further, tuple(arrows))
