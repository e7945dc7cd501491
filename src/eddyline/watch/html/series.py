"""A run as series over its batches: thinned out, and per block only the filters worth a line."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from eddyline.watch.formatting import finite, per_second, ratio

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from eddyline.joins.view import JoinRecord
    from eddyline.runtime.records import BatchRecord, BlockRecord, RunView

MAX_POINTS = 1000
"""Most points of a line: about one per pixel of a wide screen."""

MAX_FILTERS = 20
"""Most filters of a block that have a line of their own."""


@dataclass(frozen=True, slots=True)
class Point:
    """One or more consecutive batches that are drawn as one point."""

    batches: tuple[BatchRecord, ...]

    @property
    def batch_id(self) -> int:
        """The last batch of the point: where it is drawn."""
        return self.batches[-1].batch_id

    @property
    def n_rows(self) -> int:
        """Input rows of its batches."""
        return sum(batch.n_rows for batch in self.batches)

    @property
    def rows_per_s(self) -> float | None:
        """Input rows per second over its batches."""
        return per_second(self.n_rows, _seconds(self.batches))

    @property
    def n_evaluations(self) -> int:
        """Evaluations counted in its batches: over all blocks, and of rules for rows."""
        of_filters = sum(block.n_evaluations for batch in self.batches for block in batch.blocks)
        return of_filters + sum(batch.rules.n_met for batch in self.batches if batch.rules)

    def block(self, component: str) -> BlockRecord | None:
        """Return the newest record of that block within the point, if any."""
        blocks = (block for batch in reversed(self.batches) for block in reversed(batch.blocks))
        return next((block for block in blocks if block.component == component), None)

    @property
    def join(self) -> JoinRecord | None:
        """How a join stands after its batches, if it is one."""
        records = (batch.join for batch in reversed(self.batches))
        return next((record for record in records if record is not None), None)


def points_of(batches: Sequence[BatchRecord], max_points: int = MAX_POINTS) -> tuple[Point, ...]:
    """Return at most ``max_points`` points of equally many consecutive batches each."""
    size = max(1, math.ceil(len(batches) / max_points))
    return tuple(
        Point(tuple(batches[start : start + size])) for start in range(0, len(batches), size)
    )


@dataclass(frozen=True, slots=True)
class BlockSeries:
    """One block over the points of a run."""

    component: str
    filter_ids: tuple[str, ...]
    batch_ids: tuple[int, ...]
    """The batch at which each point is drawn ((P,))."""
    records: tuple[BlockRecord | None, ...]
    """The block at each point; None where it did not run ((P,))."""
    shown: tuple[int, ...]
    """The filters that have a line, the most telling ones first, as filter indices."""
    changes: tuple[int, ...]
    """The batches that ran under another order than the batch before."""
    mean_cost_ns: float | None
    """Expected cost over the run (ns per input row)."""
    mean_as_written_ns: float | None
    """Expected cost as written over the same rows (ns per input row)."""

    def ranks(self) -> dict[int, list[int | None]]:
        """Return, for each filter shown, its place among those shown at each point (from 0)."""
        lines: dict[int, list[int | None]] = {f: [] for f in self.shown}
        for record in self.records:
            order = () if record is None else [f for f in record.order if f in lines]
            places = {f: place for place, f in enumerate(order)}
            for f, line in lines.items():
                line.append(places.get(f))
        return lines

    def positions(self, filter_index: int) -> list[int | None]:
        """Return the position of a filter among all filters at each point (from 0)."""
        return [None if r is None else r.order.index(filter_index) for r in self.records]

    def drop_fracs(self, filter_index: int) -> list[float | None]:
        """Return the share of the rows reaching a filter that it drops, at each point."""
        return [None if r is None else finite(r.drop_fracs[filter_index]) for r in self.records]

    def costs_ns(self) -> list[float | None]:
        """Return the expected cost of the order in force at each point (ns per row)."""
        return [None if r is None else finite(r.cost_ns) for r in self.records]

    def as_written_ns(self) -> list[float | None]:
        """Return the expected cost of the written order at each point (ns per row)."""
        return [None if r is None else finite(r.as_written_ns) for r in self.records]


def block_series(view: RunView, points: Sequence[Point]) -> tuple[BlockSeries, ...]:
    """Return the series of each block that ran in any batch, in the order of their appearance."""
    names = {block.component: None for batch in view.batches for block in batch.blocks}
    return tuple(_series(component, view, points) for component in names)


def _series(component: str, view: RunView, points: Sequence[Point]) -> BlockSeries:
    pairs = [(b, r) for b in view.batches for r in b.blocks if r.component == component]
    # After a restart with another query text, what came before is of other filters.
    newest = pairs[-1][1].filter_ids
    pairs = [(batch, record) for batch, record in pairs if record.filter_ids == newest]
    records = [point.block(component) for point in points]
    kept = tuple(r if r is not None and r.filter_ids == newest else None for r in records)
    cost, as_written = _mean_costs(pairs)
    return BlockSeries(
        component=component,
        filter_ids=newest,
        batch_ids=tuple(point.batch_id for point in points),
        records=kept,
        shown=_shown([r for r in kept if r is not None], _final_costs(component, view)),
        changes=tuple(
            batch.batch_id for (_, old), (batch, new) in pairwise(pairs) if old.order != new.order
        ),
        mean_cost_ns=cost,
        mean_as_written_ns=as_written,
    )


def _mean_costs(
    pairs: Sequence[tuple[BatchRecord, BlockRecord]],
) -> tuple[float | None, float | None]:
    """Return both expected costs per row, over the batches in which both are known."""
    known = [
        (batch.n_rows, cost, as_written)
        for batch, record in pairs
        if (cost := finite(record.cost_ns)) is not None
        and (as_written := finite(record.as_written_ns)) is not None
    ]
    n_rows = sum(rows for rows, _, _ in known)
    return (
        ratio(sum(rows * cost for rows, cost, _ in known), n_rows),
        ratio(sum(rows * as_written for rows, _, as_written in known), n_rows),
    )


def _shown(records: Sequence[BlockRecord], costs_ns: NDArray[np.float64] | None) -> tuple[int, ...]:
    """Return the filters whose place changed most; among those that changed alike, the costliest.

    A place counts as 1 / position: the filters at the front do nearly all of the work, so one
    step there tells more than many steps at the end.
    """
    orders = np.array([record.order for record in records])
    places = 1.0 / (1.0 + np.argsort(orders, axis=1))
    n_filters = places.shape[1]
    moved = np.abs(np.diff(places, axis=0)).sum(axis=0)
    costs = costs_ns if costs_ns is not None and len(costs_ns) == n_filters else moved * 0.0
    ranked = np.lexsort((-places[-1], -costs, -moved))
    return tuple(int(f) for f in ranked[:MAX_FILTERS])


def _final_costs(component: str, view: RunView) -> NDArray[np.float64] | None:
    """Return the measured cost of each filter of a block, where the run's view has it."""
    blocks = view.filter_view.blocks if view.filter_view is not None else ()
    found = (block.profile.costs.per_row_ns for block in blocks if block.component == component)
    return next(found, None)


@dataclass(frozen=True, slots=True)
class RunTotals:
    """A run in sum."""

    n_batches: int
    n_rows: int
    n_kept: int
    seconds: float
    n_evaluations: int
    n_late: int = 0
    """Rows that came too late for a join."""
    newest_join: JoinRecord | None = None
    """How a join stands at the end."""


def totals_of(batches: Sequence[BatchRecord]) -> RunTotals:
    """Return the sums over all batches."""
    whole = Point(tuple(batches))
    return RunTotals(
        n_batches=len(batches),
        n_rows=whole.n_rows,
        n_kept=sum(batch.n_kept for batch in batches),
        seconds=_seconds(batches),
        n_evaluations=whole.n_evaluations,
        n_late=sum(batch.join.n_late for batch in batches if batch.join is not None),
        newest_join=whole.join,
    )


def _seconds(batches: Sequence[BatchRecord]) -> float:
    return sum(_known_seconds(batches))


def _known_seconds(batches: Sequence[BatchRecord]) -> Iterator[float]:
    for batch in batches:
        if (seconds := finite(batch.seconds)) is not None:
            yield seconds
