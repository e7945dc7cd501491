"""Learning of a sequence of constructs from sampled regions.

All constructs of a sampled row are evaluated, so every candidate is measured on the same rows and
one sample gives the whole macro-sequence. The paper takes a period for each position [ASC 4.2; one
sample is ours]. Learners see regions, never rows, and draw nothing at random.

A *micro-arrow* leads rows of some regions to another construct next, if the sample says that it
pays. It saves evaluations. With independent attributes there is next to nothing to save. Leading
rows apart costs more than a look-up of a key, so on keys in memory a macro-sequence is faster
although it evaluates more.

A sequence is learned again when it drops other rows than when it was adopted. The paper compares
the share of rows that the covering part of the sequence drops [ASC Eq 5]. A shift may keep this
share and change which construct does the work. So the share of rows that enter each construct is
compared too (ours). Selection counts both anyway. A change must also be beyond chance (ours): two
periods of the same stream differ by more than a tenth of a small share.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np

from eddyline.data.jit import compiled
from eddyline.rules.plan import Arrow, SelectionSequence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.data.arrays import Floats, Indices, Int32s, Ints, Mask, Words
    from eddyline.rules.compile.bitmap_block import BitmapBlock
    from eddyline.rules.plan import SelectionCounts

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
    bitmaps: Words = field(init=False, repr=False)
    """Bitmap of each row in each construct ((T, n, W))."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "bitmaps", self.block.bitmaps_of(self.regions))

    @classmethod
    def from_regions(cls, block: BitmapBlock, regions: Int32s) -> Self:
        """Return a sample in which every evaluation costs the same."""
        return cls(block, regions, np.ones(block.n_constructs))

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

    def cost_left(self, rows: Indices, rules_left: Words, order: Sequence[int]) -> float:
        """Return the cost of some rows together with the rules that each row has left ((T, W))."""
        visited = np.array(order, dtype=np.int64)
        cost: float = order_cost(
            self.bitmaps, rules_left, rows.astype(np.int64), visited, self.costs
        )
        return cost


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
    selectivities = selectivity(sample.bitmaps, block.initial)
    rules_left, uncovered = sample.at_first(), block.initial.copy()
    chosen: list[int] = []
    while len(chosen) < n:
        rest = [v for v in range(n) if v not in chosen]
        after = rules_left[:, None, :] & sample.bitmaps[:, rest]
        if uncovered.any():
            gains = 1.0 - selectivity(after, uncovered)
            newly = np.bitwise_count(block.usage[rest] & uncovered).sum(axis=1, dtype=np.int64)
        else:
            gains = (~after.any(axis=2)).mean(axis=0) - (~rules_left.any(axis=1)).mean()
            newly = np.zeros(len(rest), dtype=np.int64)
        ranks = [
            (-round(gains[i] / costs[v], 12), -newly[i], selectivities[v], v)
            for i, v in enumerate(rest)
        ]
        best = min(ranks)[-1]
        chosen.append(int(best))
        rules_left &= sample.bitmaps[:, best]
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
    visits = subset_visits(sample.bitmaps, sample.block.initial)
    return SelectionSequence(tuple(map(int, best_path(visits, sample.costs))))


def _improved(sample: RegionSample, order: tuple[int, ...]) -> tuple[int, ...]:
    """Return an order that no move of one construct makes cheaper, or the best one found."""
    best, n = sample.cost(order), len(order)
    # A pass weighs n places of n constructs; a weighing walks through n constructs at most.
    work_left = MAX_WORK // max(1, n * n * _words(sample))
    is_better = True
    while is_better:
        is_better = False
        for construct in order:
            work_left -= 1
            if work_left < 0:
                return order
            rest = [v for v in order if v != construct]
            moved = [(*rest[:i], construct, *rest[i:]) for i in range(len(order))]
            costs = [sample.cost(candidate) for candidate in moved]
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
    share: Floats = live / max(n_rules * len(bitmaps), 1)
    return share


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
            frontier.sort(key=lambda entry: len(entry[1]))
            node, rows, rules_left, order = frontier.pop()
            frontier += self._grown(node, rows, rules_left, order)

    def _grown(
        self, node: int, rows: Indices, rules_left: Words, order: tuple[int, ...]
    ) -> list[tuple[int, Indices, Words, tuple[int, ...]]]:
        """Give a node's regions arrows, and return the nodes that they lead to."""
        construct = node if node < len(self._macro) else self._further[node - len(self._macro)]
        after = rules_left.copy()
        after[rows] &= self._sample.bitmaps[rows, construct]
        alive = rows[after[rows].any(axis=1)]
        regions = self._sample.regions[alive, construct]
        nodes = []
        for region in np.flatnonzero(np.bincount(regions) >= MIN_ARROW_ROWS).tolist():
            mine = alive[regions == region]
            if len(order) < 2:
                continue
            target = self._target(mine, after, order)
            place = len(self._macro) + len(self._further)
            self._further.append(target)
            self._arrows.append(Arrow(node, region, place))
            nodes.append((place, mine, after, tuple(v for v in order if v != target)))
        return nodes

    def _target(self, rows: Indices, rules_left: Words, order: tuple[int, ...]) -> int:
        """Return the construct to visit next: the macro-sequence's unless another saves enough."""
        moved = [(v, *(u for u in order if u != v)) for v in order]
        costs = [self._sample.cost_left(rows, rules_left, candidate) for candidate in moved]
        best = int(np.argmin(costs))
        return order[best if costs[best] < (1.0 - MIN_ARROW_GAIN) * costs[0] else 0]


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


MIN_ERRORS = 4.0
"""Standard errors beyond which two shares differ by more than chance: of a thousand looks at ten
constructs, less than one is false."""


def has_changed(initial: float, current: float, min_change: float) -> bool:
    """Return whether a share differs from what it was by a share of that [ASC Eq 5].

    >>> has_changed(0.5, 0.41, 0.2), has_changed(0.5, 0.41, 0.1), has_changed(0.5, 0.5, 0.0)
    (False, True, True)
    """
    if initial == 0.0:
        return current > 0.0 or min_change == 0.0
    return abs(current - initial) / initial >= min_change


class RearrangementMonitor:
    """Says when the shares differ from those of the first period after a sequence was adopted."""

    def __init__(self, review_rows: int, min_change: float) -> None:
        self._review_rows = review_rows
        self._min_change = min_change
        self._prefix: tuple[int, ...] = ()
        self._initial: SelectionCounts | None = None
        self._period: SelectionCounts | None = None

    def adopt(self, prefix: tuple[int, ...]) -> None:
        """Start over with a sequence, by the constructs at its start that cover all rules."""
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


def _differs(before: Floats, now: Floats, rows: tuple[int, int]) -> Mask:
    """Return whether shares of two periods differ by more than ``MIN_ERRORS`` standard errors."""
    both = (before * rows[0] + now * rows[1]) / sum(rows)
    error = np.sqrt(both * (1.0 - both) * (1.0 / rows[0] + 1.0 / rows[1]))
    return np.abs(now - before) > MIN_ERRORS * error


def _entered(counts: SelectionCounts) -> Floats:
    shares: Floats = counts.evaluated / max(counts.n_rows, 1)
    return shares


# -- compiled: costs of orders on rows whose bitmaps are all known ------------------------------


@compiled
def order_cost(bitmaps: Words, rules_left: Words, rows: Ints, order: Ints, costs: Floats) -> float:
    """Return the cost of some rows that visit constructs in an order until they are dropped.

    Bitmaps are those of each row in each construct ((T, n, W)); at first each row has the rules
    ``rules_left`` ((T, W)). The order may lack constructs; costs are those of an evaluation, in any
    unit ((n,)).
    """
    now = np.empty(rules_left.shape[1], dtype=np.uint64)
    total = 0.0
    for row in rows:
        _and(rules_left[row], rules_left[row], now)
        for construct in order:
            total += costs[construct]
            _and(now, bitmaps[row, construct], now)
            if not _meet(now, now):
                break
    return total


@compiled
def subset_visits(bitmaps: Words, initial: Words) -> Ints:
    """Return the number of rows that would visit a construct after each set of others ((2**n, n)).

    Whatever the order within the set: the rules that a row has left depend on the set alone.

    Arguments are as for ``order_cost``; before any construct the rules ``initial`` are left ((W,)).
    """
    n_rows, n, _ = bitmaps.shape
    visits = np.zeros((1 << n, n), dtype=np.int64)
    rules_left = np.empty((1 << n, len(initial)), dtype=np.uint64)
    _and(initial, initial, rules_left[0])
    for row in range(n_rows):
        for members in range(1 << n):
            if members > 0:
                lowest = 0
                while not (members >> lowest) & 1:
                    lowest += 1
                _and(rules_left[members & (members - 1)], bitmaps[row, lowest], rules_left[members])
            if not _meet(rules_left[members], initial):
                continue
            for construct in range(n):
                if not (members >> construct) & 1:
                    visits[members, construct] += 1
    return visits


@compiled
def _and(some: Words, others: Words, output: Words) -> None:
    # Word by word: assigning a slice compiles the text of an error, which takes two seconds.
    for word in range(len(some)):
        output[word] = some[word] & others[word]


@compiled
def _meet(some: Words, others: Words) -> bool:
    common = np.uint64(0)
    for word in range(len(some)):
        common |= some[word] & others[word]
    return bool(common != np.uint64(0))


@compiled
def best_path(visits: Ints, costs: Floats) -> Ints:
    """Return the cheapest order by visits of sets ((2**n, n)) and costs of constructs ((n,))."""
    n_sets, n = visits.shape
    best = np.full(n_sets, np.inf)
    last = np.zeros(n_sets, dtype=np.int64)
    best[0] = 0.0
    for members in range(1, n_sets):
        for construct in range(n):
            if (members >> construct) & 1:
                before = members ^ (1 << construct)
                cost = best[before] + visits[before, construct] * costs[construct]
                if cost < best[members]:
                    best[members] = cost
                    last[members] = construct
    order = np.empty(n, dtype=np.int64)
    members = n_sets - 1
    for position in range(n - 1, -1, -1):
        order[position] = last[members]
        members ^= 1 << last[members]
    return order
