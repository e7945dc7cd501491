"""Tiers, done rows and cuts of a join in the log of plans: what they cost, and how they are taken.

Prices are of the work that a plan changes, and nothing else. None of them moves rows by itself:
rows that went cold are found where they are, and rows move to another cut with the next batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.constraints.bounds import n_beyond
from eddyline.joins.grid_choice import MIN_GAIN, busiest, chosen_grid
from eddyline.joins.grid_loop import REVIEW_EVERY, plain_grid
from eddyline.joins.tier_loop import plain_tiers
from eddyline.runtime.loggable import UNKNOWN_NS, Loggable
from eddyline.state.grid import N_BINS, Grid, Split

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eddyline.joins.caches.loop import JoinCaches
    from eddyline.joins.done_loop import DoneLoop
    from eddyline.joins.grid_loop import GridLoop
    from eddyline.joins.tier_loop import TierLoop
    from eddyline.runtime.situations import Situation
    from eddyline.state.grid import Bins


class TierLog(Loggable):
    """For how long the rows of windows are hot.

    A row costs as much as it is hot, as a share of its window, and each pair that is found cold a
    look-up more, which is taken to be worth a row that is hot for all of its window.
    """

    loop: TierLoop
    cost_unit = "windows of hot rows"

    @property
    def plan(self) -> dict[str, int | None]:
        """By input, for how long its rows are hot (µs); None if all of them are."""
        return dict(self.loop.plan)

    def is_possible(self, plan: Any) -> bool:
        """Return whether it says so of each window."""
        return isinstance(plan, dict) and plan.keys() == self.loop.lengths.keys()

    def said(self, plan: Mapping[str, int | None]) -> str:
        """Return a plan in words."""
        return ", ".join(plain_tiers(plan).values())

    def situation(self) -> Situation | None:
        """Return how old the rows are that are found."""
        return self.loop.seen.situation()

    def cost_of(self, plan: Mapping[str, int | None], evidence: Any) -> float:
        """Return the share of its window that a row is hot, and of pairs that are found cold."""
        costs = []
        for name, (n_pairs, bins) in evidence.items():
            span, length = plan[name], self.loop.lengths[name]
            if span is None:
                costs.append(1.0)
                continue
            n_cold = n_beyond({int(number): n for number, n in bins}, span)
            costs.append(min(span / length, 1.0) + min(n_cold / n_pairs, 1.0))
        return float(np.mean(costs)) if costs else UNKNOWN_NS

    def best_single(self, held: Sequence[tuple[Any, float]]) -> dict[str, int | None]:
        """Return the tiers that hold nearly all pairs of all situations together."""
        return self.loop.tiers_for([(_ages(evidence), n_rows) for evidence, n_rows in held])

    def take(self, plan: Mapping[str, int | None], evidence: Any) -> None:
        """Put tiers in force, and the ages that they were chosen by."""
        self.loop.take(plan, _ages(evidence))

    def let_go(self) -> None:
        """Let go of all ages but those since the last change."""
        seen = self.loop.seen
        newest = {name: (seen.n_pairs[name], of) for name, of in seen.bins.items()}
        self.loop.take(self.plan, newest)


def _ages(evidence: Any) -> dict[str, tuple[float, dict[int, float]]]:
    """Return pairs and their ages, by input."""
    return {
        name: (float(n), {int(number): float(count) for number, count in bins})
        for name, (n, bins) in evidence.items()
    }


class DoneLog(Loggable):
    """The inputs whose rows leave once they are done by a rule.

    What rows that stay will be merged costs is known once they have left for a while, as is what
    letting them go takes; see ``DoneLoop``.
    """

    loop: DoneLoop

    @property
    def component(self) -> str:
        """Name of what decides, with the rule."""
        return f"{self.loop.component} {self.loop.rule}"

    @property
    def plan(self) -> list[str]:
        """The inputs whose rows leave."""
        return sorted(self.loop.leaving)

    def is_possible(self, plan: Any) -> bool:
        """Return whether they are inputs whose rows may be done."""
        return isinstance(plan, list) and {*plan} <= self.loop.known.keys()

    def said(self, plan: Sequence[str]) -> str:
        """Return a plan in words."""
        told = ", ".join(f"{name} hot until {self.loop.rule}" for name in plan)
        return told or f"rows stay, {self.loop.rule} or not"

    def situation(self) -> Situation | None:
        """Return the share of the rows of each input that is done."""
        return self.loop.seen.situation(tuple(sorted(self.loop.known)))

    def cost_of(self, plan: Sequence[str], evidence: Any) -> float:
        """Return what letting rows go takes, or what merging them later does (ns per row)."""
        known = {name: self.loop.known.get(name) for name in evidence}
        costs = [
            UNKNOWN_NS if each is None else each.cost_ns_of(evidence[name], leaves=name in plan)
            for name, each in known.items()
        ]
        return float(np.mean(costs)) if costs else UNKNOWN_NS

    def take(self, plan: Sequence[str], evidence: Any) -> None:  # noqa: ARG002
        """Let the rows of these inputs leave, and of no others."""
        self.loop.take(frozenset(plan))


class GridLog(Loggable):
    """The cut of rows into buckets: a plan costs what the busiest task has to join."""

    loop: GridLoop
    cost_unit = "rows in the busiest task"
    min_gain = MIN_GAIN

    @property
    def recalls(self) -> bool:  # type: ignore[override]
        """Whether rows may move again: not more often than the loop itself looks at them."""
        return self.loop.n_since_move >= REVIEW_EVERY

    @property
    def plan(self) -> dict[str, Any]:
        """The cut in force."""
        return _to_plain(self.loop.plan)

    def is_possible(self, plan: Any) -> bool:
        """Return whether rows may be cut so."""
        try:
            return self.loop.may_take(_from_plain(plan))
        except (LookupError, TypeError, ValueError):
            return False

    def said(self, plan: Any) -> Any:
        """Return a cut as the journal has it."""
        return plain_grid(_from_plain(plan))

    def situation(self) -> Situation | None:
        """Return how the hashes of rows are spread."""
        return self.loop.seen.situation()

    def cost_of(self, plan: Any, evidence: Any) -> float:
        """Return the rows of the busiest task for each row that comes."""
        bins, graph = self._bins(evidence), self.loop.graph
        n_rows = sum(
            max((float(bins[name, key].sum()) for key in graph.classes_of[name]), default=0.0)
            for name in graph.inputs
        )
        if not n_rows:
            return UNKNOWN_NS
        return busiest(graph, _from_plain(plan), bins, self.loop.n_tasks) / n_rows

    def best_single(self, held: Sequence[tuple[Any, float]]) -> dict[str, Any]:
        """Return the cut for the rows of all situations together."""
        bins = self._bins([])
        for evidence, n_rows in held:
            own = self._bins(evidence)
            total = max(float(of.sum()) for of in own.values()) or 1.0
            bins = {key: of + own[key] * (n_rows / total) for key, of in bins.items()}
        loop = self.loop
        return _to_plain(
            chosen_grid(
                loop.graph,
                loop.n_buckets,
                bins,
                timed=loop.timed,
                n_tasks=loop.n_tasks,
                uncut=loop.uncut,
            )
        )

    def take(self, plan: Any, evidence: Any) -> None:
        """Let rows move with the next batch, and begin with the hashes that a cut was chosen by."""
        self.loop.take(_from_plain(plan), self._bins(evidence))

    def let_go(self) -> None:
        """Let go of all hashes but those since the last change."""
        self.loop.take(self.loop.plan, self.loop.seen.bins)

    def _bins(self, evidence: Any) -> Bins:
        given = {(name, key): np.array(of, np.float64) for name, key, of in evidence}
        return {key: given.get(key, np.zeros(N_BINS)) for key in self.loop.bins}


class CacheLog(Loggable):
    """Caches: nothing is logged of them, and it is said why."""

    loop: JoinCaches
    component = "caches"
    why_unlogged = "what a cache saves is known once it is full, and it begins empty each time"

    @property
    def plan(self) -> list[str]:
        """The caches in use."""
        return sorted(map(str, self.loop.states.used))

    def is_possible(self, plan: Any) -> bool:
        """Return whether they are those in use."""
        return bool(plan == self.plan)


def _to_plain(grid: Grid) -> dict[str, Any]:
    splits = [[each.key, each.bin, [list(side) for side in each.sides]] for each in grid.splits]
    return {"shape": list(grid.shape), "splits": splits}


def _from_plain(plan: Any) -> Grid:
    splits = (
        Split(key, at, tuple((name, size) for name, size in sides))
        for key, at, sides in plan["splits"]
    )
    return Grid(tuple(plan["shape"]), tuple(splits))
