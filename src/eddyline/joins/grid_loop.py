"""The loop of a grid: hashes are counted batch by batch, and rows are moved where that pays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.joins.conditions import HashConditions
from eddyline.joins.grid_choice import MIN_GAIN, chosen_grid, fullest, gain
from eddyline.joins.plan import COMPONENT
from eddyline.runtime.journal import JournalEntry
from eddyline.state.grid import N_BINS, Grid

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from eddyline.joins.graph import JoinGraph
    from eddyline.state.grid import Bins, Split

REVIEW_EVERY = 8
"""Batches between two looks at the grid, once so many have run."""

FRESH = 0.8
"""Weight of what was counted in a batch one batch later."""


class GridLoop:
    """Keeps the cut of a join's rows into buckets good.

    Args:
        graph: the inputs and their key classes.
        n_buckets: most buckets.
        n_tasks: tasks that run at a time.
        timed: the inputs that are streams, whose rows can be cut by event time.
        is_adaptive: whether the grid may change.
        uncut: the key classes by which rows may not be cut.
    """

    component = COMPONENT

    def __init__(
        self,
        graph: JoinGraph,
        n_buckets: int,
        n_tasks: int,
        timed: Collection[str],
        *,
        is_adaptive: bool,
        uncut: Collection[int] = (),
    ) -> None:
        self.graph = graph
        self.n_buckets = n_buckets
        self.n_tasks = n_tasks
        self.timed = timed
        self.uncut = uncut
        self.is_adaptive = is_adaptive
        self.is_held = False
        """Whether the grid stays as it is whatever the evidence; see ``runtime.pins``."""
        self.bins: Bins = {
            (name, key): np.zeros(N_BINS) for name in graph.inputs for key in graph.classes_of[name]
        }
        """Histograms of the hashes of rows, older batches counting less."""
        self.seen = HashConditions()
        """What the log of plans knows situations by."""
        self.n_since_move = 0
        """Batches since rows were cut in another way."""
        self.plan = chosen_grid(graph, n_buckets, uncut=uncut)
        """The grid of the next batch."""

    def start(self, before: Grid) -> None:
        """Choose the grid of the first batch of a run.

        Args:
            before: the grid of the state that the run starts from.
        """
        if self.is_held and self._may_be(before):
            self.plan = before
            return
        better = self._better()
        is_other = better.n_buckets != before.n_buckets or not self._may_be(before)
        self.plan = better if is_other or self._is_worth_it(before, better) else before

    def step(self, fresh: Iterable[Bins], batch_id: int = -1) -> list[JournalEntry]:
        """Take in what the buckets of a batch counted, and look now and then at the grid.

        Args:
            fresh: of each bucket, how the hashes of its new rows are spread.
            batch_id: the micro-batch, for the journal.
        """
        counted = list(fresh)
        new = {
            key: sum((bins[key] for bins in counted if key in bins), np.zeros(N_BINS))
            for key in self.bins
        }
        self.bins = {key: FRESH * of + new[key] for key, of in self.bins.items()}
        self.n_since_move += 1
        if self.is_adaptive:
            self.seen.step(new)
        if self.is_held or (batch_id > REVIEW_EVERY and batch_id % REVIEW_EVERY):
            return []
        before, better = self.plan, self._better()
        if better == before or not self._is_worth_it(before, better):
            return []
        self.plan, self.n_since_move = better, 0
        evidence = {
            "rows_in_fullest_before": fullest(self.graph, before, self.bins),
            "rows_in_fullest_after": fullest(self.graph, better, self.bins),
        }
        plans = plain_grid(before), plain_grid(better)
        return [JournalEntry(batch_id, COMPONENT, "grid", *plans, evidence)]

    def take(self, grid: Grid, bins: Bins) -> None:
        """Let rows be cut in a way that was good before, and begin with the hashes of then."""
        self.n_since_move = self.n_since_move if grid == self.plan else 0
        self.plan, self.bins = grid, {key: np.array(bins[key]) for key in self.bins}

    def may_take(self, grid: Grid) -> bool:
        """Return whether a grid is one that the loop could have chosen."""
        is_whole = len(grid.shape) == len(self.graph.classes)
        return is_whole and grid.n_buckets <= self.n_buckets and self._may_be(grid)

    @property
    def _known(self) -> Bins | None:
        """The histograms; None if nothing was counted, or if it may make no difference."""
        return (
            self.bins if self.is_adaptive and any(of.any() for of in self.bins.values()) else None
        )

    def _better(self) -> Grid:
        return chosen_grid(
            self.graph,
            self.n_buckets,
            self._known,
            timed=self.timed,
            n_tasks=self.n_tasks,
            uncut=self.uncut,
        )

    def _may_be(self, before: Grid) -> bool:
        """Return whether a grid cuts only what may be cut, by keys and by event time."""
        is_cut = any(before.shape[key] > 1 for key in self.uncut)
        by_time = {name for split in before.splits for name, _ in split.sides}
        return not is_cut and by_time <= {*self.timed}

    def _is_worth_it(self, before: Grid, better: Grid) -> bool:
        won = gain(self.graph, before, better, self._known, self.n_tasks)
        return self.is_adaptive and won >= MIN_GAIN

    # -- saving ---------------------------------------------------------------------------------

    def snapshot(self) -> list[tuple[str, int, list[float]]]:
        """Return the histograms."""
        return [(*key, of.tolist()) for key, of in self.bins.items()]

    def restore(self, state: list[tuple[str, int, list[float]]]) -> None:
        """Continue from what ``snapshot`` returned; what is of other inputs is left out."""
        for name, key, of in state:
            if (name, key) in self.bins and len(of) == N_BINS:
                self.bins[name, key] = np.array(of)


def plain_grid(grid: Grid) -> Any:
    """Return a grid as plain values: its shape, and which bins are split if some are."""
    shape = list(grid.shape)
    if not grid.splits:
        return shape
    splits = [f"bin {each.bin}: {split_text(each)}" for each in grid.splits]
    return {"shape": shape, "splits": splits}


def split_text(split: Split) -> str:
    """Return in words into how many parts the inputs are cut in a bin."""
    return ", ".join(f"{name} in {size}" for name, size in split.sides)
