"""Batches of a run as points of figures.

Learned orders are drawn over them. A run has more batches than a figure has pixels. So
``points_of`` puts equally many consecutive batches into each point. ``order_series`` follows one
learned order over the points, for every operator that has one. What is ordered is called a filter
here, as policies do; an operator hands in its own noun.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from eddyline.report.formatting import (
    against_text,
    cost_text,
    count,
    counted,
    finite,
    order_text,
    ratio,
    significant,
)
from eddyline.report.sections import MAX_COLOURS, Figure, Line, Section, Tile
from eddyline.runtime.records import OrderRecord, n_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from eddyline.report.formatting import Unit
    from eddyline.runtime.records import BatchRecord, Record


RecordT = TypeVar("RecordT", bound="Record")

MAX_POINTS = 1000
"""Most points of a line: about one per pixel of a wide screen."""


@dataclass(frozen=True, slots=True)
class Point:
    """One or more consecutive batches that are drawn as one point."""

    batches: tuple[BatchRecord, ...]

    @property
    def batch_id(self) -> int:
        """The last batch of the point: where it is drawn."""
        return self.batches[-1].batch_id

    @property
    def n_batches(self) -> int:
        """How many batches these are; older records stand for several."""
        return n_batches(self.batches)

    @property
    def n_rows(self) -> int:
        """Input rows of its batches."""
        return sum(batch.n_rows for batch in self.batches)

    @property
    def seconds(self) -> float:
        """Time of its batches (s), as far as it is known."""
        return sum(
            seconds for batch in self.batches if (seconds := finite(batch.seconds)) is not None
        )

    @property
    def rows_per_s(self) -> float | None:
        """Input rows per second over its batches."""
        return ratio(self.n_rows, self.seconds)

    def records(self, kind: type[RecordT]) -> Iterator[RecordT]:
        """Yield what its batches recorded of one kind, the newest first."""
        for batch in reversed(self.batches):
            yield from (record for record in reversed(batch.operators) if isinstance(record, kind))


def records_of(
    batches: Iterable[BatchRecord], kind: type[RecordT]
) -> list[tuple[BatchRecord, RecordT]]:
    """Return the records of one kind, each with its batch."""
    return [
        (batch, record)
        for batch in batches
        for record in batch.operators
        if isinstance(record, kind)
    ]


def points_of(batches: Sequence[BatchRecord], max_points: int = MAX_POINTS) -> tuple[Point, ...]:
    """Return at most ``max_points`` points of equally many consecutive records each."""
    size = max(1, math.ceil(len(batches) / max_points))
    return tuple(
        Point(tuple(batches[start : start + size])) for start in range(0, len(batches), size)
    )


def rate_figure(points: Sequence[Point], marks: tuple[int, ...]) -> Figure:
    """Return the input rows per second over the batches, with those marked that changed a plan."""
    line = Line("rows per second", tuple(point.rows_per_s for point in points))
    batch_ids = tuple(point.batch_id for point in points)
    return Figure("Rows per second", batch_ids, (line,), "number", marks)


def left_out(points: Sequence[Point]) -> list[str]:
    """Say what figures leave out, if they do."""
    sizes = [point.n_batches for point in points]
    if sum(sizes) <= len(points):
        return []
    return [
        f"The figures draw {count(sum(sizes))} batches as {count(len(points))} points of up to "
        f"{count(max(sizes))} batches each: rates are over all of them, orders, fractions and "
        f"costs those of the last."
    ]


def work_section(what: str, points: Sequence[Point], amounts: Sequence[int]) -> list[Section]:
    """Return the work that the rows took, where that was counted.

    Args:
        what: the work, such as ``evaluations``.
        points: the batches.
        amounts: how much of it each point took ((P,)).
    """
    if not any(amounts):
        return []
    per_row = ratio(sum(amounts), sum(point.n_rows for point in points))
    detail = "" if per_row is None else f"{significant(per_row)} per row"
    pairs = list(zip(amounts, points, strict=True))
    drawn = Line(
        f"{what} per row",
        tuple(ratio(n, point.n_rows) for n, point in pairs),
        details=tuple(f"{count(n / point.n_batches)} per batch" for n, point in pairs),
    )
    batch_ids = tuple(point.batch_id for point in points)
    name = what.capitalize()
    figure = Figure(f"{name} per row", batch_ids, (drawn,), "number")
    return [Section(what, (figure,), (Tile(name, sum(amounts), "count", detail),))]


MAX_LINES = 20
"""Most filters of an order that have a line of their own."""

SHOWN_NAMES = 5
"""Filters of an order that progress names."""


def order_lines(records: Iterable[OrderRecord], n_rows: int, seconds: float) -> tuple[str, ...]:
    """Return the orders in force and what they cost, for the progress.

    Args:
        records: the orders after a batch.
        n_rows: rows of the batch.
        seconds: its time (s).
    """
    texts: list[str] = []
    for record in records:
        texts.append(f"{record.component}: {order_text(record.plan, SHOWN_NAMES)}")
        if finite(record.cost_ns) is not None:
            cost = cost_text(record.cost_ns, record.as_written_ns, record.saved_s(n_rows), seconds)
            texts.append(f"{record.component}: {cost}")
    return tuple(texts)


def how_often(n_changes: int) -> str:
    """Say how often an order changed."""
    return f"changed {counted(n_changes, 'time')}" if n_changes else "did not change"


@dataclass(frozen=True, slots=True)
class OrderSeries:
    """One order over the batches of a run."""

    component: str
    filter_ids: tuple[str, ...]
    batch_ids: tuple[int, ...]
    """The batch at which each point is drawn ((P,))."""
    records: tuple[OrderRecord | None, ...]
    """The order at each point; None where there was none ((P,))."""
    shown: tuple[int, ...]
    """The filters that have a line, the most telling ones first, as filter indices."""
    changes: tuple[int, ...]
    """The batches that ran under another order than the batch before."""
    mean_cost_ns: float | None
    """Expected cost over the run (ns per input row)."""
    mean_as_written_ns: float | None
    """Expected cost as written over the same rows (ns per input row)."""
    saved_s: float | None
    """Work that the order saved over the run (s); None where rows are not counted."""
    seconds: float
    """Time of the batches (s)."""

    def outcome(self, what: str) -> str:
        """Say how often the order changed, and what it costs over the run."""
        sentence = f"{what} {how_often(len(self.changes))}"
        if self.mean_cost_ns is not None:
            cost = cost_text(self.mean_cost_ns, self.mean_as_written_ns, self.saved_s, self.seconds)
            sentence += f"; over the run its expected cost is {cost}"
        return f"{sentence}."

    def tiles(self) -> tuple[Tile, ...]:
        """Return the cost of a row, where that is known."""
        if self.mean_cost_ns is None:
            return ()
        note = against_text(self.mean_cost_ns, self.mean_as_written_ns, self.saved_s, self.seconds)
        return (Tile(f"Cost per row, {self.component}, estimated", self.mean_cost_ns, "ns", note),)

    def figures(self, noun: str, drops: str) -> tuple[Figure, ...]:
        """Return the order, what each filter drops, and the cost of the order."""
        drawn = [*sorted(self.shown[:MAX_COLOURS]), *self.shown[MAX_COLOURS:]]
        ranks, is_whole = self._ranks(), len(drawn) == len(self.filter_ids)
        among = "" if is_whole else f", among the {len(drawn)} shown"
        chosen = f"Shown are the {len(drawn)} {noun}s whose place changed most, then the costliest."
        order = [Line(self.filter_ids[f], ranks[f], details=self._positions(f)) for f in drawn]
        dropped = [
            Line(
                self.filter_ids[f],
                tuple(None if r is None else finite(r.drop_fracs[f]) for r in self.records),
            )
            for f in drawn
        ]
        cost = (
            Line("in force", self._costs("cost_ns")),
            Line("as written", self._costs("as_written_ns"), is_muted=True),
        )
        title = "Expected cost per row"
        if len(self.filter_ids) == 1:
            return (self._figure(drops, dropped, "share"), self._figure(title, cost[:1], "ns"))
        return (
            self._figure(f"Order in force{among}", order, "position", "" if is_whole else chosen),
            self._figure(drops, dropped, "share"),
            self._figure(f"{title}, in force and as written (grey)", cost, "ns"),
        )

    def _figure(self, title: str, drawn: Sequence[Line], unit: Unit, note: str = "") -> Figure:
        return Figure(title, self.batch_ids, tuple(drawn), unit, self.changes, note)

    def _costs(self, name: str) -> tuple[float | None, ...]:
        return tuple(None if r is None else finite(getattr(r, name)) for r in self.records)

    def _ranks(self) -> dict[int, tuple[int | None, ...]]:
        """Return, for each filter shown, its place among those shown at each point (from 1)."""
        orders = [
            () if r is None else tuple(f for f in r.order if f in self.shown) for r in self.records
        ]
        places = [{f: rank for rank, f in enumerate(order, 1)} for order in orders]
        return {f: tuple(of_point.get(f) for of_point in places) for f in self.shown}

    def _positions(self, filter_index: int) -> tuple[str, ...]:
        """Return the position of a filter at each point among all, in words."""
        return tuple(
            "" if r is None else f"position {r.order.index(filter_index) + 1}" for r in self.records
        )


def order_series(
    component: str,
    batches: Sequence[BatchRecord],
    costs_ns: NDArray[np.float64] | None = None,
) -> OrderSeries | None:
    """Return an order over the batches of a run; None if it is in none of them.

    Costs are measured ones by filter index, where they are known.
    """
    pairs = [
        (batch, record)
        for batch, record in records_of(batches, OrderRecord)
        if record.component == component
    ]
    if not pairs:
        return None
    # After a restart with another query text, what came before is of other filters.
    newest = pairs[-1][1].filter_ids
    pairs = [(batch, record) for batch, record in pairs if record.filter_ids == newest]
    points = points_of(batches)
    records = tuple(
        next(
            (
                record
                for record in point.records(OrderRecord)
                if record.component == component and record.filter_ids == newest
            ),
            None,
        )
        for point in points
    )
    cost, as_written, saved_s = _costs(pairs)
    first, learned = pairs[0]
    # A record has the order after its batch, and the first batch ran as it was written.
    is_learned = first.batch_id == 0 and learned.order != tuple(range(len(newest)))
    return OrderSeries(
        component=component,
        filter_ids=newest,
        batch_ids=tuple(point.batch_id for point in points),
        records=records,
        shown=_shown([record for record in records if record is not None], costs_ns),
        changes=(
            *((0,) if is_learned else ()),
            *(batch.batch_id for (_, a), (batch, b) in pairwise(pairs) if a.order != b.order),
        ),
        mean_cost_ns=cost,
        mean_as_written_ns=as_written,
        saved_s=saved_s,
        seconds=sum(point.seconds for point in points),
    )


def _costs(
    pairs: Sequence[tuple[BatchRecord, OrderRecord]],
) -> tuple[float | None, float | None, float | None]:
    """Return both expected costs per row (ns), over the batches in which both are known.

    Also the work that the order saved in them (s), where the rows that it met were counted.
    """
    is_counted = any(record.n_rows or record.meets_all for _, record in pairs)
    costs = [
        (record.rows_met(batch.n_rows) if is_counted else batch.n_rows, cost, as_written)
        for batch, record in pairs
        if (cost := finite(record.cost_ns)) is not None
        and (as_written := finite(record.as_written_ns)) is not None
    ]
    n_rows = sum(rows for rows, _, _ in costs)
    cost_ns = sum(rows * cost for rows, cost, _ in costs)
    as_written_ns = sum(rows * as_written for rows, _, as_written in costs)
    saved_s = (as_written_ns - cost_ns) / 1e9 if is_counted else None
    return ratio(cost_ns, n_rows), ratio(as_written_ns, n_rows), saved_s


def _shown(records: Sequence[OrderRecord], costs_ns: NDArray[np.float64] | None) -> tuple[int, ...]:
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
    return tuple(int(f) for f in ranked[:MAX_LINES])
