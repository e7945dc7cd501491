"""Learned bounds on the arrival order of keys: nearly sorted, or clustered.

``ValueOrders`` is for streams whose keys nearly grow. A key is *passed* once the other streams are
so far beyond it that hardly any row with it comes. ``Clusters`` is for streams whose keys come in
clusters. A key is *closed* once its first row is so long ago that hardly any row with it comes.
Both learn a bound that holds nearly all rows (see ``constraints.bounds``), and add a margin. A row
that comes later still finds its partners, behind the filters of the cold tier.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from eddyline.constraints.bounds import Disorder, LearnedBound, LearnedLateness, bins_of, n_beyond
from eddyline.data.learned import restored
from eddyline.joins.plan import merged

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from numpy.typing import NDArray

    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.plan import Closed, Place, Spans

HELD = 0.999
"""Share of the rows of a stream that are to be no farther behind; others look behind filters."""

MARGIN = 1.05
"""A key is passed, or closed, at so many times the bound; see ``tiers.MARGIN``."""

MEASURED = 2_048
"""Rows of a bucket that are measured, about, evenly spread over all."""

WIDEST = 2**60
"""Keys of a batch that are farther apart are in no order, such as hashes."""


def disorder_of(
    codes: NDArray[np.int64], top: int | None, *, measures: bool = True, is_whole: bool = False
) -> Disorder:
    """Return how far keys (at least one) are behind the greatest one of the batches before.

    Args:
        codes: the keys.
        top: the greatest one; None if there was none.
        measures: whether that is measured; if not, only the greatest key counts, and no row.
        is_whole: whether all rows are measured, not some that stand for others.
    """
    earliest, latest = int(codes.min()), int(codes.max())
    if not measures:
        return Disorder(0, 0, earliest, latest)
    if top is None:
        return Disorder(codes.size, 0, earliest, latest)
    step = 1 if is_whole else -(-codes.size // MEASURED)
    behind = np.minimum(float(top) - codes[::step].astype(np.float64), float(WIDEST))
    numbers, counts = np.unique(bins_of(behind[behind >= 1].astype(np.int64)), return_counts=True)
    bins = dict(zip(numbers.tolist(), (counts * step).tolist(), strict=True))
    return Disorder(codes.size, 0, earliest, latest, bins)


def watched(
    graph: JoinGraph, inputs: Collection[str], timed: Collection[str], rough: Collection[int]
) -> dict[Place, tuple[Place, ...]]:
    """Return the keys that others may pass: with each the keys of all other streams.

    Every result that a row may still be in has a new row of another stream. So the key class has to
    be one of all of these; tables have no new rows.

    Args:
        graph: the join.
        inputs: those whose rows may leave.
        timed: the streams.
        rough: key classes whose codes are in no order.
    """
    passing = {}
    for name in inputs:
        others = [other for other in timed if other != name]
        for key in graph.classes_of[name]:
            if others and key not in rough and {*others} <= graph.classes[key]:
                passing[name, key] = tuple((other, key) for other in others)
    return passing


class ValueOrders:
    """What is known of the order in which the keys of streams come.

    Args:
        passing: see ``watched``.
        held: share of the rows of a stream that are to be no farther behind ((0, 1)).
    """

    def __init__(self, passing: Mapping[Place, tuple[Place, ...]], held: float = HELD) -> None:
        self.passing, self._held = passing, held
        self.bounds = {
            place: LearnedLateness(held) for places in passing.values() for place in places
        }
        self.tops: dict[Place, int | None] = dict.fromkeys(self.bounds)
        """The keys that are measured, and the greatest one of each so far."""
        self._promising: set[Place] = set()

    @property
    def promises(self) -> bool:
        """Whether what was measured last asks for far smaller bounds than those that are known."""
        return bool(self._promising)

    def below(self) -> dict[str, dict[int, int]]:
        """Return by input and key class the key below which those of all others are hardly any."""
        below: dict[str, dict[int, int]] = {}
        for (name, key), places in self.passing.items():
            lows = [self._low(place) for place in places]
            bounds = [low for low in lows if low is not None]
            if len(bounds) == len(lows):
                below.setdefault(name, {})[key] = min(bounds)
        return below

    def _low(self, place: Place) -> int | None:
        learned, top = self.bounds[place], self.tops[place]
        if top is None or not learned.n_rows or learned.bound >= WIDEST:
            return None
        return max(top - int(learned.bound * MARGIN), -(2**63))

    def step(self, fresh: Iterable[Mapping[Place, Disorder]]) -> None:
        """Take in what the buckets of a batch measured."""
        whole: dict[Place, Disorder] = {}
        for part in fresh:
            for place, disorder in part.items():
                whole[place] = disorder.merge(whole[place]) if place in whole else disorder
        for place, disorder in whole.items():
            if place in self.bounds:
                self._learn(place, disorder)

    def _learn(self, place: Place, batch: Disorder) -> None:
        learned, top = self.bounds[place], self.tops[place]
        if batch.n_rows:
            is_less = n_beyond(batch.bins, learned.bound // 2) <= (1 - self._held) * batch.n_rows
            (self._promising.add if is_less else self._promising.discard)(place)
        if batch.latest - batch.earliest >= WIDEST:
            learned = learned.bounded(WIDEST)
        elif batch.n_rows:
            measured = replace(batch, n_late=n_beyond(batch.bins, learned.bound))
            learned = learned.after(measured, top)
        self.bounds[place] = learned
        self.tops[place] = batch.latest if top is None else max(top, batch.latest)

    def snapshot(self) -> list[tuple[str, int, LearnedLateness, int | None]]:
        """Return the learned state."""
        return [(*place, learned, self.tops[place]) for place, learned in self.bounds.items()]

    def restore(self, state: Any) -> None:
        """Continue from what ``snapshot`` returned; StateError if it is damaged."""
        kind = list[tuple[str, int, LearnedLateness, int | None]]
        for name, key, learned, top in restored(state, kind, "the order of a join's keys"):
            if (name, key) in self.bounds and learned.share == self._held:
                self.bounds[name, key], self.tops[name, key] = learned, top


SEEN = 2.0
"""A bound is used once so many times as much event time was seen, which bounds spans."""

MOST = 0.5
"""Keys close within this share of the window of their stream, or not at all: a row would leave
hardly before its window does."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What is known of the clusters of a key, for people."""

    name: str
    """The stream."""
    key: int
    """The key class."""
    learned: LearnedBound
    """The bound of the time from the first row of a key to its other rows."""
    is_used: bool
    """Whether keys are closed by it."""


class LearnedClusters(msgspec.Struct, forbid_unknown_fields=True):
    """Learned state: places with their bounds, and the event time from which on each was seen."""

    bounds: list[tuple[str, int, LearnedBound]]
    since: dict[str, int]


class Clusters:
    """What is known of the clusters of the keys of streams.

    Where methods take ``latest``, it is the latest event time of each stream so far (µs).

    Args:
        passing: see ``watched``.
        lengths: of each window (µs), by input.
        largest: the largest bound that is used (µs); None: one that closes keys within MOST of the
            window.
    """

    def __init__(
        self,
        passing: Mapping[Place, tuple[Place, ...]],
        lengths: Mapping[str, int],
        largest: int | None = None,
    ) -> None:
        self.passing = passing
        self.lengths, self.largest = lengths, largest
        # From what is seen on, as for ages: a bound that is too small costs time alone.
        self.bounds = {
            place: LearnedBound(HELD, 0) for places in passing.values() for place in places
        }
        self._since: dict[str, int] = {}
        self._promising: set[Place] = set()

    @property
    def promises(self) -> bool:
        """Whether what was measured last asks for far smaller bounds than those that are known."""
        return bool(self._promising)

    def measured(self, latest: Mapping[str, int]) -> dict[Place, int]:
        """Return the keys that are measured, and the latest event time of their stream (µs)."""
        return {place: latest[place[0]] for place in self.bounds if place[0] in latest}

    def closed(self, latest: Mapping[str, int]) -> Closed:
        """Return how long after its first row each key is closed in the other streams."""
        closed: Closed = {}
        for (name, key), places in self.passing.items():
            spans = {place[0]: self._span(place, latest) for place in places}
            bounded = {other: span for other, span in spans.items() if span is not None}
            if len(bounded) == len(places):
                closed.setdefault(name, {})[key] = bounded
        return closed

    def _span(self, place: Place, latest: Mapping[str, int]) -> int | None:
        """Return how long after its first row a key is closed (µs); None if it never is."""
        name, learned = place[0], self.bounds[place]
        if not learned.is_known or name not in latest:
            return None
        span = int(learned.bound * MARGIN)
        seen = latest[name] - self._since.get(name, latest[name])
        length, largest = self.lengths[name], self.largest
        most = MOST * length if largest is None else min(MARGIN * largest, length)
        return span if span <= most and seen >= SEEN * span else None

    def step(self, fresh: Iterable[Mapping[Place, Spans]], latest: Mapping[str, int]) -> None:
        """Take in what each bucket of a batch measured; ``latest`` includes the batch."""
        for name, instant in latest.items():
            self._since.setdefault(name, instant)
        for place, spans in merged(fresh).items():
            if place in self.bounds and spans.n_rows:
                self._learn(place, spans)

    def _learn(self, place: Place, spans: Spans) -> None:
        learned = self.bounds[place]
        allowed = (1 - HELD) * spans.n_rows
        is_less = learned.bound > 0 and n_beyond(spans.bins, learned.bound // 2) <= allowed
        (self._promising.add if is_less else self._promising.discard)(place)
        self.bounds[place] = learned.with_spans(spans.n_rows, spans.bins)

    def evidence(self, name: str) -> dict[str, float]:
        """Return by stream what the rows of an input are done by (s)."""
        places = {
            place for (one, _), others in self.passing.items() if one == name for place in others
        }
        return {f"{other}_within_s": self.bounds[other, key].bound / 1e6 for other, key in places}

    def least(self, name: str) -> int | None:
        """Return the least bound of the keys of a stream (µs); None if nothing is known of any."""
        mine = (cluster for (stream, _), cluster in self.bounds.items() if stream == name)
        return min((cluster.bound for cluster in mine if cluster.n_rows), default=None)

    def views(self, latest: Mapping[str, int]) -> tuple[ClusterView, ...]:
        """Return what is known."""
        return tuple(
            ClusterView(*place, learned, self._span(place, latest) is not None)
            for place, learned in self.bounds.items()
        )

    def snapshot(self) -> LearnedClusters:
        """Return the learned state."""
        return LearnedClusters(
            [(*place, cluster) for place, cluster in self.bounds.items()], dict(self._since)
        )

    def restore(self, state: Any) -> None:
        """Continue from what ``snapshot`` returned; StateError if it is damaged."""
        learned = restored(state, LearnedClusters, "the clusters of a join's keys")
        for name, key, bound in learned.bounds:
            if (name, key) in self.bounds and bound.share == HELD:
                self.bounds[name, key] = bound
        self._since |= learned.since
