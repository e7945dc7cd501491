"""Grid of the buckets of a join, and moves to another grid.

A grid cuts each key class into parts, and a bucket is one part of each class. A row goes to every
bucket in which it may meet a partner. The best grid gives the fullest bucket, and the busiest task,
as few rows as possible.

``chosen_grid`` finds the best grid. It estimates the load of buckets from histograms of hashes, as
if the classes of an input were independent. A bin with more rows than a bucket should have is split
by event time, if the smaller load of the busiest task is worth the copies.

``GridChoice`` counts hashes batch by batch and reviews the grid now and then. If another grid pays
by ``MIN_GAIN``, it asks for a move. The next batch moves the rows; this module moves nothing.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.joins.plan import COMPONENT
from eddyline.runtime.choice import KEPT, UNKNOWN_NS, Choice, Conditions
from eddyline.state.grid import N_BINS, Grid, Split

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from eddyline.joins.graph import JoinGraph
    from eddyline.runtime.choice import Situation
    from eddyline.runtime.journal import JournalEntry
    from eddyline.state.grid import Bins

REVIEW_EVERY = 8
"""Batches between two looks at the grid, once so many have run."""

FRESH = 0.8
"""Weight of what was counted in a batch one batch later."""

GROUPS = 24
"""Groups of bins of hashes of which the rows are compared; a divisor of ``N_BINS``."""

LEAST_ROWS = 1_000
"""Rows by which a grid may be chosen."""

MIN_GAIN = 1.5
"""Factor by which the fullest bucket must shrink before rows are moved, or copied more."""

MOST_SPLITS = 8
"""Most bins of a key class that are split; each makes placing rows longer."""

_DIVISORS = tuple(size for size in range(1, N_BINS + 1) if N_BINS % size == 0)


class GridChoice(Choice):
    """The cut of a join's rows into buckets: a plan costs what the busiest task has to join.

    Args:
        graph: the inputs and their key classes.
        n_buckets: most buckets.
        n_tasks: tasks that run at a time.
        timed: the inputs that are streams, whose rows can be cut by event time.
        is_adaptive: whether the grid may change.
        uncut: the key classes by which rows may not be cut.
    """

    component = COMPONENT
    why_unlogged = ""
    cost_unit = "rows in the busiest task"
    min_gain = MIN_GAIN

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
        self.bins: Bins = {
            (name, key): np.zeros(N_BINS) for name in graph.inputs for key in graph.classes_of[name]
        }
        """Histograms of the hashes of rows, older batches counting less."""
        self._conditions = Conditions()
        """How the hashes of rows are spread, since that last changed."""
        self._recent: Bins = {}
        """Histograms of the hashes of rows since then, older batches counting less."""
        self.n_since_move = 0
        """Batches since rows were cut in another way."""
        self.grid = chosen_grid(graph, n_buckets, uncut=uncut)
        """The grid of the next batch."""

    def start(self, before: Grid) -> None:
        """Choose the grid of the first batch of a run, from the grid of its state."""
        if self.is_held:  # rows move to the grid that is pinned, if they lie otherwise
            return
        better = self._better()
        is_other = better.n_buckets != before.n_buckets or not self._may_be(before)
        self.grid = better if is_other or self._is_worth_it(before, better) else before

    def step(self, fresh: Iterable[Bins], batch_id: int = -1) -> list[JournalEntry]:
        """Take in what the buckets of a batch counted, and look now and then at the grid.

        ``fresh`` says of each bucket how the hashes of its new rows are spread.
        """
        counted = list(fresh)
        new = {
            key: sum((bins[key] for bins in counted if key in bins), np.zeros(N_BINS))
            for key in self.bins
        }
        self.bins = {key: FRESH * histogram + new[key] for key, histogram in self.bins.items()}
        self.n_since_move += 1
        if self.is_adaptive:
            self._note(new)
        if self.is_held or (batch_id > REVIEW_EVERY and batch_id % REVIEW_EVERY):
            return []
        before, better = self.grid, self._better()
        if better == before or not self._is_worth_it(before, better):
            return []
        self.grid, self.n_since_move = better, 0
        evidence = {
            "rows_in_fullest_before": fullest(self.graph, before, self.bins),
            "rows_in_fullest_after": fullest(self.graph, better, self.bins),
        }
        plans = plain_grid(before), plain_grid(better)
        return [self.decision(batch_id, "grid", *plans, evidence)]

    @property
    def _known(self) -> Bins | None:
        """The histograms; None if nothing was counted, or if it may make no difference."""
        return (
            self.bins
            if self.is_adaptive and any(histogram.any() for histogram in self.bins.values())
            else None
        )

    def _better(self) -> Grid:
        return self._chosen(self._known)

    def _chosen(self, bins: Bins | None) -> Grid:
        return chosen_grid(
            self.graph,
            self.n_buckets,
            bins,
            timed=self.timed,
            n_tasks=self.n_tasks,
            uncut=self.uncut,
        )

    def _may_be(self, before: Grid) -> bool:
        """Return whether a grid cuts only what may be cut, by keys and by event time."""
        is_cut = any(before.shape[key] > 1 for key in self.uncut)
        by_time = {name for split in before.splits for name, _ in split.sides}
        return not is_cut and by_time <= {*self.timed}

    def _may_split(self, split: Split) -> bool:
        """Return whether a bin is one of a key class, and its inputs are cut as they can be."""
        places = (split.key, len(self.graph.classes)), (split.bin, N_BINS)
        if not all(type(place) is int and 0 <= place < size for place, size in places):
            return False
        members = [name for name in self.graph.inputs if split.key in self.graph.classes_of[name]]
        names = [name for name, _ in split.sides]
        are_members = bool(names) and {*names} <= {*members} and len({*names}) == len(names)
        return are_members and all(
            type(size) is int and size in _DIVISORS for _, size in split.sides
        )

    def _is_worth_it(self, before: Grid, better: Grid) -> bool:
        won = gain(self.graph, before, better, self._known, self.n_tasks)
        return self.is_adaptive and won >= MIN_GAIN

    # -- what a person pins, and the log --------------------------------------------------------

    @property
    def plan(self) -> Any:
        """The shape of the grid, and which bins are split if some are."""
        return _to_plain(self.grid)

    @property
    def possible(self) -> str:
        """The plans that may be pinned, in words."""
        return (
            f"a number of parts for each of {len(self.graph.classes)} key classes, which make at "
            f"most {self.n_buckets} buckets: a list, or {{'shape': …, 'splits': …}}"
        )

    def is_possible(self, plan: Any) -> bool:
        """Return whether rows may be cut so."""
        try:
            grid = _from_plain(plan)
            is_whole = len(grid.shape) == len(self.graph.classes)
            is_small = is_whole and grid.n_buckets <= self.n_buckets
            return (
                is_small
                and all(map(self._may_split, grid.splits))
                and all(split.n_parts <= grid.shape[split.key] for split in grid.splits)
                and self._may_be(grid)
            )
        except (LookupError, TypeError, ValueError):
            return False

    def adopt(self, plan: Any) -> None:
        """Have rows cut in another way from the next batch on."""
        grid = _from_plain(plan)
        self.n_since_move = self.n_since_move if grid == self.grid else 0
        self.grid = grid

    def in_words(self, plan: Any) -> Any:
        """Return a cut as the journal has it."""
        return plain_grid(_from_plain(plan))

    @property
    def recalls(self) -> bool:  # type: ignore[override]
        """Whether rows may move again: not more often than the grid itself is looked at."""
        return self.n_since_move >= REVIEW_EVERY

    def _note(self, fresh: Bins) -> None:
        """Take in the histograms of a batch as the conditions of the grid."""
        totals = {key: float(histogram.sum()) for key, histogram in fresh.items()}
        if not any(totals.values()):
            return
        names: list[str] = []
        shares: list[float] = []
        counts: list[float] = []
        for (name, key), histogram in fresh.items():
            n = totals[name, key]
            grouped = histogram.reshape(-1, GROUPS).sum(axis=0)
            names += [f"rows of {name} in part {part} of key {key}" for part in range(GROUPS)]
            shares += (grouped / n).tolist() if n else [np.nan] * GROUPS
            counts += [n] * GROUPS
        n_rows = max(totals.values())
        is_other = self._conditions.step(tuple(names), np.array(shares), np.array(counts), n_rows)
        kept = 0.0 if is_other else KEPT
        none = np.zeros(N_BINS)
        self._recent = {
            key: kept * self._recent.get(key, none) + histogram for key, histogram in fresh.items()
        }

    def situation(self) -> Situation | None:
        """Return how the hashes of rows are spread."""
        evidence: list[Any] = [
            [*key, np.round(histogram).astype(int).tolist()]
            for key, histogram in self._recent.items()
        ]
        return self._conditions.situation(evidence, LEAST_ROWS)

    def cost_of(self, plan: Any, evidence: Any) -> float:
        """Return the rows of the busiest task for each row that comes."""
        bins = self._bins_of(evidence)
        n_rows = sum(
            max((float(bins[name, key].sum()) for key in self.graph.classes_of[name]), default=0.0)
            for name in self.graph.inputs
        )
        if not n_rows:
            return UNKNOWN_NS
        return busiest(self.graph, _from_plain(plan), bins, self.n_tasks) / n_rows

    def best_single(self, held: Sequence[tuple[Any, float]]) -> Any:
        """Return the cut for the rows of all situations together."""
        together = self._bins_of([])
        for evidence, n_rows in held:
            bins = self._bins_of(evidence)
            total = max(float(counts.sum()) for counts in bins.values()) or 1.0
            together = {
                key: counts + bins[key] * (n_rows / total) for key, counts in together.items()
            }
        return _to_plain(self._chosen(together))

    def take(self, plan: Any, evidence: Any) -> None:
        """Let rows move with the next batch, and begin with the hashes that a cut was chosen by."""
        self.adopt(plan)
        self.bins = self._bins_of(evidence)

    def let_go(self) -> None:
        """Let go of all hashes but those since the last change."""
        self.bins = {key: np.array(self._recent[key]) for key in self.bins}

    def _bins_of(self, evidence: Any) -> Bins:
        histograms = {(name, key): np.array(counts, np.float64) for name, key, counts in evidence}
        return {key: histograms.get(key, np.zeros(N_BINS)) for key in self.bins}

    # -- saving ---------------------------------------------------------------------------------

    def snapshot(self) -> list[tuple[str, int, list[float]]]:
        """Return the histograms."""
        return [(*key, histogram.tolist()) for key, histogram in self.bins.items()]

    def restore(self, state: list[tuple[str, int, list[float]]]) -> None:
        """Continue from what ``snapshot`` returned; what is of other inputs is left out."""
        for name, key, histogram in state:
            if (name, key) in self.bins and len(histogram) == N_BINS:
                self.bins[name, key] = np.array(histogram)


def plain_grid(grid: Grid) -> Any:
    """Return a grid as plain values: its shape, and which bins are split if some are."""
    shape = list(grid.shape)
    if not grid.splits:
        return shape
    splits = [f"bin {split.bin}: {split_text(split)}" for split in grid.splits]
    return {"shape": shape, "splits": splits}


def split_text(split: Split) -> str:
    """Return in words into how many parts the inputs are cut in a bin."""
    return ", ".join(f"{name} in {size}" for name, size in split.sides)


def _to_plain(grid: Grid) -> Any:
    """Return a grid as values that JSON knows: its shape, and its splits if it has some."""
    if not grid.splits:
        return list(grid.shape)
    splits = [[split.key, split.bin, [list(side) for side in split.sides]] for split in grid.splits]
    return {"shape": list(grid.shape), "splits": splits}


def _from_plain(plan: Any) -> Grid:
    """Return the grid of plain values; raises LookupError, TypeError or ValueError without one."""
    if isinstance(plan, list | tuple):
        plan = {"shape": plan, "splits": ()}
    shape = tuple(plan["shape"])
    if not all(type(size) is int and size in _DIVISORS for size in shape):
        msg = f"a key class is cut into one of {_DIVISORS} parts, got {list(shape)}"
        raise ValueError(msg)
    splits = (
        Split(key, number, tuple((name, size) for name, size in sides))
        for key, number, sides in plan["splits"]
    )
    return Grid(shape, tuple(splits))


# -- the best grid ---------------------------------------------------------------------------------


def chosen_grid(
    graph: JoinGraph,
    n_buckets: int,
    bins: Bins | None = None,
    *,
    timed: Collection[str] = (),
    n_tasks: int | None = None,
    uncut: Collection[int] = (),
) -> Grid:
    """Return the grid whose fullest bucket has the fewest rows to join.

    Bins are split where the busiest task then has so many times fewer rows as is worth the copies.

    Args:
        graph: the inputs and their key classes.
        n_buckets: most buckets; fewer where the grid allows no such number.
        bins: histograms of hashes; all inputs alike, and no key more often than others, if omitted.
        timed: the inputs whose rows can be cut by event time; no bin is split without one.
        n_tasks: tasks that run at a time; as many as there are buckets if omitted.
        uncut: the key classes by which rows are not cut.
    """
    every = _shapes(len(graph.classes), n_buckets)
    allowed = [shape for shape in every if all(shape[key] == 1 for key in uncut)]
    shapes = sorted(allowed, key=lambda shape: (prod(shape), shape))
    # Of shapes with equally full buckets the one with the fewest buckets, whose state is smallest.
    whole = min(map(Grid, shapes), key=lambda grid: fullest(graph, grid, bins))
    if bins is None or not timed:
        return whole
    n_tasks = n_tasks or n_buckets
    cut = (Grid(shape, _splits(graph, shape, bins, timed, n_tasks)) for shape in shapes)
    best = min(cut, key=lambda grid: busiest(graph, grid, bins, n_tasks))
    is_worth_it = gain(graph, whole, best, bins, n_tasks) >= MIN_GAIN
    return best if best.splits and is_worth_it else whole


def gain(graph: JoinGraph, before: Grid, after: Grid, bins: Bins | None, n_tasks: int) -> float:
    """Return the factor by which the fullest bucket shrinks, or the busiest task with splits."""
    if before.splits or after.splits:
        one, other = (busiest(graph, grid, bins, n_tasks) for grid in (before, after))
    else:
        one, other = (fullest(graph, grid, bins) for grid in (before, after))
    return one / max(other, 1e-9)


def fullest(graph: JoinGraph, grid: Grid, bins: Bins | None = None) -> float:
    """Return the rows of the fullest bucket of a grid, as far as histograms of hashes tell."""
    return float(_loads(graph, grid, bins).max())


def busiest(graph: JoinGraph, grid: Grid, bins: Bins | None, n_tasks: int) -> float:
    """Return the least rows of the busiest of so many tasks at a time.

    Copies make work for all tasks, so they count where there are more buckets than tasks.
    """
    loads = _loads(graph, grid, bins)
    return float(max(loads.max(), loads.sum() / n_tasks))


def _loads(graph: JoinGraph, grid: Grid, bins: Bins | None) -> NDArray[np.float64]:
    """Return the rows of each bucket."""
    load = np.zeros(grid.shape)
    for name in graph.inputs:
        part, n_rows = np.ones(grid.shape), 1.0
        for key in graph.classes_of[name]:
            counts = np.ones(N_BINS) if bins is None else bins[name, key]
            n_rows = float(counts.sum()) if bins is not None else 1.0
            by_part = _by_part(grid, name, key, counts) / max(float(counts.sum()), 1.0)
            part = part * by_part.reshape([-1 if axis == key else 1 for axis in range(load.ndim)])
        load += part * n_rows
    return load


def _by_part(grid: Grid, name: str, key: int, counts: NDArray[Any]) -> NDArray[np.float64]:
    """Return the rows of an input in each part of a key class."""
    size, whole = grid.shape[key], np.array(counts, np.float64)
    by_part = np.zeros(size)
    for split in grid.splits:
        if split.key == key:
            parts = (split.bin + np.arange(split.n_parts)) % size
            by_part[parts] += whole[split.bin] / split.side(name)[0]
            whole[split.bin] = 0.0
    return by_part + np.bincount(np.arange(N_BINS) % size, weights=whole)


def _splits(
    graph: JoinGraph, shape: tuple[int, ...], bins: Bins, timed: Collection[str], n_tasks: int
) -> tuple[Split, ...]:
    """Return the bins that are to be split, of those with more rows than a bucket should have."""
    splits: list[Split] = []
    n_rows = float(_loads(graph, Grid(shape), bins).sum())
    share = n_rows / prod(shape)
    for key, size in enumerate(shape):
        members = [name for name in graph.inputs if key in graph.classes_of[name]]
        # Along their other classes rows are cut already.
        cuts = [prod(shape[k] for k in graph.classes_of[name] if k != key) for name in members]
        counts = np.stack([bins[name, key] / cut for name, cut in zip(members, cuts, strict=True)])
        for hot_bin in np.argsort(-counts.sum(axis=0), kind="stable")[:MOST_SPLITS]:
            rows = dict(zip(members, counts[:, hot_bin].tolist(), strict=True))
            n_alike = prod(shape) // size
            others = n_rows - sum(rows.values()) * n_alike
            sides = _sides(rows, timed, size, n_alike, others, n_tasks)
            if sides and sum(rows.values()) > share:
                splits.append(Split(key, int(hot_bin), tuple(sides.items())))
                n_rows = others + n_alike * prod(sides.values()) * _n_in_part(rows, sides)
    return tuple(splits)


def _sides(
    rows: Mapping[str, float],
    timed: Collection[str],
    size: int,
    n_alike: int,
    others: float,
    n_tasks: int,
) -> dict[str, int]:
    """Return in how many parts the inputs are cut in a bin; nothing if it is not worth it.

    Step by step the input is cut more finely of which that takes the most rows out of a bucket, as
    long as the busiest task has fewer rows then: copies make work for all of them. ``size`` is in
    how many parts the key class is cut, ``n_alike`` the buckets in each of these, and ``others``
    the rows of other bins in all buckets.
    """

    def busiest_with(sides: Mapping[str, int]) -> float:
        here = _n_in_part(rows, sides)
        everywhere = others + n_alike * prod(sides.values()) * here
        return max(here + others / (n_alike * size), everywhere / n_tasks)

    sides = {name: 1 for name in rows if name in timed}
    while True:
        finer = [
            {**sides, name: next(divisor for divisor in _DIVISORS if divisor > parts)}
            for name, parts in sides.items()
            if parts < N_BINS
        ]
        finer = [choice for choice in finer if prod(choice.values()) <= size]
        best = min(finer, key=lambda choice: _n_in_part(rows, choice), default=sides)
        if busiest_with(best) >= busiest_with(sides):
            return {name: parts for name, parts in sides.items() if parts > 1}
        sides = best


def _n_in_part(rows: Mapping[str, float], sides: Mapping[str, int]) -> float:
    """Return the rows of a bin in one part of it."""
    return sum(n / sides.get(name, 1) for name, n in rows.items())


def _shapes(n_classes: int, n_buckets: int) -> Iterator[tuple[int, ...]]:
    """Yield every shape of at most so many buckets."""
    if n_classes == 0:
        yield ()
        return
    for size in _DIVISORS:
        if size <= n_buckets:
            for rest in _shapes(n_classes - 1, n_buckets // size):
                yield (size, *rest)
