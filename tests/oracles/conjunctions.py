"""Conjunctions and A-Greedy tuple by tuple and by definition, with three-valued logic."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from eddyline.ordering.protocol import joint_drops, view_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy as np

    from eddyline.data.arrays import Floats
    from eddyline.stats.profile import FilterProfile, Order

    Row = Mapping[str, Any]
    Predicate = Callable[[Row], bool | None]


def kleene_not(value: bool | None) -> bool | None:
    """Return NOT in three-valued logic; None is NULL."""
    return None if value is None else not value


def kleene_and(values: Iterable[bool | None]) -> bool | None:
    """Return AND in three-valued logic: a false decides, else a NULL does."""
    seen = list(values)
    if any(value is False for value in seen):
        return False
    return None if any(value is None for value in seen) else True


def kleene_or(values: Iterable[bool | None]) -> bool | None:
    """Return OR in three-valued logic: a true decides, else a NULL does."""
    return kleene_not(kleene_and(kleene_not(value) for value in values))


def conjunction(rows: Iterable[Row], predicates: Sequence[Predicate]) -> list[Row]:
    """Return the rows that a conjunction keeps, in their order.

    A predicate that returns NULL drops the row. A predicate that raises counts only if the row
    survives all the others; then the first error, in the order of the predicates, is raised.
    """
    kept = []
    for row in rows:
        outcomes = [_outcome(predicate, row) for predicate in predicates]
        errors = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
        if any(outcome is False or outcome is None for outcome in outcomes):
            continue
        if errors:
            raise errors[0]
        kept.append(row)
    return kept


def _outcome(predicate: Predicate, row: Row) -> bool | Exception | None:
    try:
        return predicate(row)
    except Exception as error:  # noqa: BLE001 whatever a user's predicate raises is an outcome
        return error


def count_evaluations(outcomes: Iterable[Sequence[bool]], order: Sequence[int]) -> int:
    """Return how many filters are evaluated on the rows under an order.

    Args:
        outcomes: for each row, which filter drops it.
        order: ``order[position] -> filter index``.
    """
    total = 0
    for drops in outcomes:
        for f in order:
            total += 1
            if drops[f]:
                break
    return total


def view_by_definition(window: Iterable[Sequence[bool]], order: Sequence[int]) -> list[list[int]]:
    """Return the matrix view of profile tuples, cell by cell [Babu05 4.3.2]."""
    tuples = [[drops[f] for f in order] for drops in window]
    n = len(order)
    view = [[0] * n for _ in range(n)]
    for i in range(n):
        for j in range(i, n):
            view[i][j] = sum(1 for bits in tuples if not any(bits[:i]) and bits[j])
    return view


class TupleAGreedy:
    """A-Greedy as the thesis runs it: tuple by tuple, with an incremental matrix view.

    Args:
        costs: cost of each filter (> 0; (F,)).
        order: the order to start from; as written if omitted.
        window_rows: profile tuples in the window.
        hysteresis: alpha of (4.4).
        min_fill: profile tuples before a violation may be flagged.
        prob: probability of profiling a dropped tuple.
        rng: draws the profiled tuples; needed if ``prob`` < 1.
    """

    def __init__(
        self,
        costs: Sequence[float],
        *,
        order: Sequence[int] | None = None,
        window_rows: int = 1000,
        hysteresis: float = 0.9,
        min_fill: int = 1,
        prob: float = 1.0,
        rng: np.random.Generator | None = None,
    ) -> None:
        self.costs = list(costs)
        self.order = list(range(len(costs)) if order is None else order)
        self.window: deque[tuple[bool, ...]] = deque()
        self.view = view_by_definition([], self.order)
        self.emitted_samples = 0
        self.n_evaluations = 0
        self.n_extra = 0
        self.n_reorders = 0
        self._window_rows = window_rows
        self._hysteresis = hysteresis
        self._min_fill = min_fill
        self._prob = prob
        self._rng = rng

    def process(self, drops: Sequence[bool]) -> bool:
        """Run one tuple through the filters and return whether it is emitted [Babu05 4.2]."""
        # The coin falls before the evaluation: filters that run anyway can be timed then.
        sampled = self._rng is None or self._rng.random() < self._prob
        for position, f in enumerate(self.order):
            self.n_evaluations += 1
            if drops[f]:
                if sampled:
                    self.n_extra += len(self.order) - position - 1
                    self._profile(tuple(bool(bit) for bit in drops))
                return False
        self.emitted_samples += sampled
        return True

    def _profile(self, bits: tuple[bool, ...]) -> None:
        """Take in a profile tuple, apply the whole update, then check [Babu05 4.3.1]."""
        self.window.append(bits)
        self._count(bits, 1)
        if len(self.window) > self._window_rows:
            self._count(self.window.popleft(), -1)
        if len(self.window) >= self._min_fill:
            while (position := self._violation()) is not None:
                self._correct(position)

    def _count(self, bits: tuple[bool, ...], sign: int) -> None:
        """Add a tuple to the view or take it out [Babu05 Fig 4.5]."""
        first = next(position for position, f in enumerate(self.order) if bits[f])
        for column in range(first, len(self.order)):
            if bits[self.order[column]]:
                for row in range(first + 1):
                    self.view[row][column] += sign

    def _violation(self) -> int | None:
        """Return the smallest violated position [Babu05 Fig 4.6, (4.4)]."""
        price = [self.costs[f] for f in self.order]
        for i, row in enumerate(self.view):
            for j in range(i + 1, len(row)):
                if row[i] / price[i] < self._hysteresis * row[j] / price[j]:
                    return i
        return None

    def _correct(self, start: int) -> None:
        """Repair the order from a violated position on [Babu05 Fig 4.7, as a rotation]."""
        position = last = start
        while position <= last:
            before = self.order[:position]
            alive = [bits for bits in self.window if not any(bits[f] for f in before)]
            ratios = [
                sum(1 for bits in alive if bits[f]) / self.costs[f] for f in self.order[position:]
            ]
            best = position + ratios.index(max(ratios))
            last = max(last, best)
            self.order.insert(position, self.order.pop(best))
            position += 1
        self.n_reorders += 1
        self.view = view_by_definition(self.window, self.order)


def matrix_view(order: Order, profile: FilterProfile) -> Floats:
    """Return the matrix view V of an order ((F, F), upper triangular).

    ``V[i, j]`` is the weight of the profile tuples that no filter at the positions before i drops
    and that the filter at position j ≥ i drops (input rows) [Babu05 4.3.2].
    """
    bits, weights = profile.bits()
    return view_of(joint_drops(order, bits, weights))
