"""Plans of a join that a person pins: the order of each pipeline, and how rows are laid out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eddyline.joins.grid_loop import plain_grid
from eddyline.joins.plan import COMPONENT
from eddyline.runtime.order_pin import best_order
from eddyline.runtime.pins import Advice, AsItStands, Pinnable, are_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eddyline.joins.caches.loop import JoinCaches
    from eddyline.joins.done_loop import DoneLoop
    from eddyline.joins.grid_loop import GridLoop
    from eddyline.joins.loop import JoinLoop
    from eddyline.joins.tier_loop import TierLoop


def pinnable(
    loop: JoinLoop,
    grids: GridLoop,
    caches: JoinCaches,
    tiers: TierLoop,
    done: Mapping[str, DoneLoop],
) -> Iterator[Pinnable]:
    """Yield what a person may pin of a join.

    Of two inputs a pipeline has one order, and where nothing is adaptive a grid is as it is.
    """
    if len(loop.graph.inputs) > 2:
        for name in loop.graph.inputs:
            yield PipelinePin(loop, name)
    if grids.is_adaptive:
        yield AsItStands(HeldLayout(grids, caches), lambda: plain_grid(grids.plan))
    if tiers.lengths:
        hot = HeldTiers(tiers, done)
        yield AsItStands(hot, lambda: hot.plan)


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
        pipeline = self.join.pipeline(self.name)
        found = None if pipeline is None else best_order(pipeline.loop)
        if pipeline is None or found is None:
            return None
        order, cost_ns, held_ns = found
        return Advice([pipeline.targets[at] for at in order], cost_ns, held_ns)


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
