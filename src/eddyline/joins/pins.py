"""Plans of a join that a person pins: the order of each pipeline, and how rows are laid out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eddyline.joins.grid_loop import plain_grid
from eddyline.joins.logs import CacheLog, DoneLog, GridLog, TierLog
from eddyline.joins.plan import COMPONENT, WAYS
from eddyline.ordering.matrix_view import expected_cost_ns
from eddyline.runtime.loggable import UNKNOWN_NS
from eddyline.runtime.order_pin import ONE_ORDER, begin_with, best_order, order_for, situation_of
from eddyline.runtime.pins import Advice, AsItStands, OneOf, Pinnable, are_names
from eddyline.stats.profile import FilterProfile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from eddyline.joins.caches.loop import JoinCaches
    from eddyline.joins.done_loop import DoneLoop
    from eddyline.joins.drop_loop import DropLoop
    from eddyline.joins.grid_loop import GridLoop
    from eddyline.joins.loop import JoinLoop
    from eddyline.joins.orders.loop import PipelineLoop
    from eddyline.joins.tier_loop import TierLoop
    from eddyline.joins.way_loop import WayLoop
    from eddyline.runtime.loggable import Held, Loggable
    from eddyline.runtime.situations import Situation


def pinnable(
    loop: JoinLoop,
    grids: GridLoop,
    caches: JoinCaches,
    tiers: TierLoop,
    done: Mapping[str, DoneLoop],
    drops: DropLoop,
    ways: WayLoop,
) -> Iterator[Pinnable]:
    """Yield what a person may pin of a join.

    Of two inputs a pipeline has one order, and where nothing is adaptive a grid is as it is.
    """
    if len(loop.graph.inputs) > 2:
        for name in loop.graph.inputs:
            yield PipelinePin(loop, name)
    if grids.is_adaptive:
        layout = HeldLayout(grids, caches)
        logs = [GridLog(grids), *([CacheLog(caches)] if caches.is_on else [])]
        yield InParts(layout, lambda: plain_grid(grids.plan), logs)
    if tiers.lengths:
        hot = HeldTiers(tiers, done)
        yield InParts(hot, lambda: hot.plan, [TierLog(tiers), *map(DoneLog, done.values())])
    if drops.tables:
        yield AsItStands(drops, lambda: drops.plan, WHY_TRIED)
    if ways.is_adaptive:
        yield WayPin(ways, WAYS, lambda: ways.advised)


WHY_TRIED = "how many rows a table drops is known of batches in which it does"
"""Said of filters before the shuffle."""


class WayPin(OneOf):
    """Where the rows of a join meet."""

    why_unlogged = "tables do not change, so there is nothing to be known again"


class InParts(AsItStands):
    """A plan that is pinned as it stands, of parts that have conditions of their own."""

    def __init__(self, loop: Held, plan: Callable[[], Any], parts: Sequence[Loggable]) -> None:
        super().__init__(loop, plan)
        self._parts = tuple(parts)

    @property
    def logged(self) -> tuple[Loggable, ...]:
        """The parts."""
        return self._parts


class HeldPipeline:
    """The pipeline of an input, as far as it is held."""

    def __init__(self, join: JoinLoop, name: str) -> None:
        self.component = f"pipeline {name}"
        self.join = join
        self.name = name

    @property
    def is_adaptive(self) -> bool:
        """Whether its order may change at all."""
        return self.join.is_adaptive

    @property
    def is_held(self) -> bool:
        """Whether it stays as it is."""
        return self.name in self.join.held

    @is_held.setter
    def is_held(self, is_held: bool) -> None:
        self.join.hold(self.name, is_held=is_held)


class PipelinePin(Pinnable):
    """The order of the pipeline of an input."""

    def __init__(self, join: JoinLoop, name: str) -> None:
        super().__init__(HeldPipeline(join, name))
        self.join = join
        self.name = name

    @property
    def plan(self) -> list[str]:
        """The order in force."""
        return list(self.join.plan[self.name])

    @property
    def possible(self) -> str:
        """The plans that may be pinned, in words."""
        others = [each for each in self.join.graph.inputs if each != self.name]
        return (
            f"a list of all of {others}, each once, in an order in which each is joined with "
            f"{self.name!r} or one before it"
        )

    def is_possible(self, plan: Any) -> bool:
        """Return whether it has every other input once, without a Cartesian product."""
        graph = self.join.graph
        if not are_names(plan) or len(plan) != len(graph.inputs) - 1:
            return False
        return all(each in graph.inputs for each in plan) and graph.is_legal(self.name, plan)

    def adopt(self, plan: list[str]) -> None:
        """Put another order in force."""
        self.join.put(self.name, tuple(plan))

    def advice(self) -> Advice | None:
        """Return the order of the look-ups that is the best on the evidence, and its cost."""
        pipeline = self._pipeline
        found = None if pipeline is None else best_order(pipeline.loop)
        if pipeline is None or found is None:
            return None
        order, cost_ns, held_ns = found
        return Advice([pipeline.targets[at] for at in order], cost_ns, held_ns)

    @property
    def why_unlogged(self) -> str:  # type: ignore[override]
        """Why nothing is logged, if it is not."""
        if self.join.has_cycle:
            return "where predicates close a cycle, the ways to windows change, too"
        if self._pipeline is not None and self._pipeline.growth.last:
            return "what ways cost that make more combinations than they are given is in no sample"
        all_bits = self._pipeline is None or self._pipeline.loop.policy.needs_all_bits
        return "" if all_bits else ONE_ORDER

    def situation(self) -> Situation | None:
        """Return what windows drop."""
        return None if self._pipeline is None else situation_of(self._pipeline.loop)

    def rows_met(self, n_rows: int) -> int:  # noqa: ARG002
        """Return the new rows of the input."""
        return self._pipeline.n_met if self._pipeline else 0

    def cost_of(self, plan: list[str], evidence: Any) -> float:
        """Return the cost of finding out which rows have partners (ns per row)."""
        if self._pipeline is None:
            return UNKNOWN_NS
        order = self._pipeline.ranking(plan)
        return expected_cost_ns(order, self._profile(self._pipeline, evidence))

    def best_single(self, held: Sequence[tuple[Any, float]]) -> list[str] | None:
        """Return the order that a greedy algorithm chooses for all situations together."""
        pipeline = self._pipeline
        if pipeline is None:
            return None
        profiles = [(self._profile(pipeline, evidence), n_rows) for evidence, n_rows in held]
        return list(pipeline.filters.order(order_for(profiles, pipeline.ranking(self.plan))))

    def take(self, plan: list[str], evidence: Any) -> None:
        """Put an order in force, and the evidence that it was chosen by."""
        self.adopt(plan)
        if self._pipeline is not None:
            begin_with(self._pipeline.loop, self._profile(self._pipeline, evidence))

    def let_go(self) -> None:
        """Let all evidence go but what came since the last change."""
        if self._pipeline is not None:
            loop = self._pipeline.loop
            loop.window.begin_with(loop.recent.profile())

    @property
    def _pipeline(self) -> PipelineLoop | None:
        return self.join.pipeline(self.name)

    def _profile(self, pipeline: PipelineLoop, evidence: Any) -> FilterProfile:
        return FilterProfile.from_state(pipeline.targets, evidence)


class HeldLayout:
    """The cut of rows into buckets, and the caches in use, as far as they are held."""

    component = COMPONENT

    def __init__(self, grids: GridLoop, caches: JoinCaches) -> None:
        self.grids = grids
        self.caches = caches

    @property
    def is_adaptive(self) -> bool:
        """Whether they may change at all."""
        return self.grids.is_adaptive

    @property
    def is_held(self) -> bool:
        """Whether they stay as they are."""
        return self.grids.is_held

    @is_held.setter
    def is_held(self, is_held: bool) -> None:
        self.grids.is_held = self.caches.is_held = is_held


class HeldTiers:
    """What is hot in the windows, as far as it is held."""

    def __init__(self, tiers: TierLoop, done: Mapping[str, DoneLoop]) -> None:
        self.component = tiers.component
        self.is_adaptive = tiers.is_adaptive
        self.tiers = tiers
        self.done = done

    @property
    def plan(self) -> dict[str, str]:
        """For how long the rows of each input are hot, in words."""
        found = self.tiers.plain()
        for rule, loop in self.done.items():
            found |= {name: f"{found[name]}, or until {rule}" for name in loop.leaving & {*found}}
        return found

    @property
    def is_held(self) -> bool:
        """Whether it stays as it is."""
        return self.tiers.is_held

    @is_held.setter
    def is_held(self, is_held: bool) -> None:
        self.tiers.is_held = is_held
        for loop in self.done.values():
            loop.is_held = is_held
