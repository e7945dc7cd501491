"""Keys that come in clusters: how long after its first row a key still comes, learned.

Clustered arrival CA(k) [Babu05 6.7] with a k of event time: of a key whose first row in the window
of a stream is older than k hardly any row comes any more. A row whose key is *closed* so in all
other streams is hardly asked for (its cluster has come, and is over); one whose cluster is still to
come waits for it, however long that is. Where keys come again later, k is as long as that takes,
and nothing is closed.

All rows are kept, behind filters at least, so that spans beyond k are seen as those within it are:
neither a retained sample nor a reset is asked for [stream-constraints 3.5.3: ratchet].
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from eddyline.constraints.bounds import LearnedBound, n_beyond
from eddyline.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eddyline.joins.value_order import Place

HELD = 0.999
"""Share of the rows of a stream that are to come while their key is not closed."""

MARGIN = 1.05
"""A key is closed after so many times the bound; see ``tiers.MARGIN``."""

SEEN = 2.0
"""A bound is used once so many times as much event time was seen, which bounds spans."""

MOST = 0.5
"""Keys close within this share of the window of their stream, or not at all: a row would leave
hardly before its window does."""

Closed = dict[str, dict[int, dict[str, int]]]
"""By input, key class and stream: how long after its first row a key is closed there (µs)."""


@dataclass(slots=True)
class Spans:
    """How long after the first row of their key the rows of a stream in a batch came."""

    n_rows: int = 0
    """Rows; those that were measured stand for others."""
    bins: dict[int, int] = field(default_factory=dict)
    """Those of them that came later than it, by the bin of how much; see ``bounds.bins_of``."""

    def add(self, other: Spans) -> None:
        """Count those of another part, too."""
        self.n_rows += other.n_rows
        for number, n in other.bins.items():
            self.bins[number] = self.bins.get(number, 0) + n


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What is known of the clusters of a key, for people."""

    name: str
    """The stream."""
    key: int
    """The key class."""
    bound: int
    """The time that holds nearly all rows of a key, from the first one on (µs)."""
    n_rows: int
    """Rows that were measured, those included that they stand for."""
    n_beyond: int
    """Those of them that were beyond the bound in force at their time."""
    is_used: bool
    """Whether keys are closed by it."""


class LearnedClusters(msgspec.Struct, forbid_unknown_fields=True):
    """Learned state: places with their bounds, and the event time from which on each was seen."""

    bounds: list[tuple[str, int, LearnedBound]]
    since: dict[str, int]


class Clusters:
    """What is known of the clusters of the keys of streams.

    Args:
        passing: see ``value_order.watched``.
        lengths: of each window (µs), by input.
    """

    def __init__(
        self, passing: Mapping[Place, tuple[Place, ...]], lengths: Mapping[str, int]
    ) -> None:
        self.passing = passing
        self.lengths = lengths
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
        """Return the keys that are measured, and the latest event time of each so far (µs)."""
        return {place: latest[place[0]] for place in self.bounds if place[0] in latest}

    def closed(self, latest: Mapping[str, int]) -> Closed:
        """Return by what rows of inputs are done.

        Args:
            latest: the latest event time of each stream (µs).
        """
        found: Closed = {}
        for (name, key), places in self.passing.items():
            spans = {place[0]: self._span(place, latest) for place in places}
            known = {other: span for other, span in spans.items() if span is not None}
            if len(known) == len(places):
                found.setdefault(name, {})[key] = known
        return found

    def _span(self, place: Place, latest: Mapping[str, int]) -> int | None:
        """Return how long after its first row a key is closed (µs); None if it never is."""
        name, learned = place[0], self.bounds[place]
        if learned.n_rows * (1 - HELD) < 1 or name not in latest:
            return None
        span = int(learned.bound * MARGIN)
        seen = latest[name] - self._since.get(name, latest[name])
        return span if span <= MOST * self.lengths[name] and seen >= SEEN * span else None

    def step(self, fresh: Iterable[Mapping[Place, Spans]], latest: Mapping[str, int]) -> None:
        """Take in what the buckets of a batch measured.

        Args:
            fresh: of each bucket.
            latest: the latest event time of each stream, the batch included (µs).
        """
        for name, at in latest.items():
            self._since.setdefault(name, at)
        whole: dict[Place, Spans] = {}
        for part in fresh:
            for place, spans in part.items():
                whole.setdefault(place, Spans()).add(spans)
        for place, spans in whole.items():
            if place in self.bounds and spans.n_rows:
                self._learn(place, spans)

    def _learn(self, place: Place, spans: Spans) -> None:
        learned = self.bounds[place]
        allowed = (1 - HELD) * spans.n_rows
        is_less = learned.bound > 0 and n_beyond(spans.bins, learned.bound // 2) <= allowed
        (self._promising.add if is_less else self._promising.discard)(place)
        # The first spans that are seen are beyond no bound: there was none.
        is_first = not learned.n_rows
        beyond = 0 if is_first else n_beyond(spans.bins, learned.bound)
        after = learned.measured(spans.n_rows, beyond, spans.bins)
        is_new = learned.n_rows * (1 - HELD) < 1 <= after.n_rows * (1 - HELD)
        self.bounds[place] = after.settled() if is_new else after

    def evidence(self, name: str) -> dict[str, float]:
        """Return by stream what the rows of an input are done by (s)."""
        places = {of for (one, _), others in self.passing.items() if one == name for of in others}
        return {f"{other}_within_s": self.bounds[other, key].bound / 1e6 for other, key in places}

    def least(self, name: str) -> int | None:
        """Return the least bound of the keys of a stream (µs); None if nothing is known of any."""
        mine = (each for (of, _), each in self.bounds.items() if of == name)
        return min((each.bound for each in mine if each.n_rows), default=None)

    def views(self, latest: Mapping[str, int]) -> tuple[ClusterView, ...]:
        """Return what is known.

        Args:
            latest: the latest event time of each stream (µs).
        """
        return tuple(
            ClusterView(
                *place,
                each.bound,
                each.n_rows,
                each.n_beyond,
                self._span(place, latest) is not None,
            )
            for place, each in self.bounds.items()
        )

    def snapshot(self) -> LearnedClusters:
        """Return the learned state."""
        return LearnedClusters(
            [(*place, each) for place, each in self.bounds.items()], dict(self._since)
        )

    def restore(self, state: Any) -> None:
        """Continue from what ``snapshot`` returned, decoded from JSON.

        Raises:
            StateError: it is damaged.
        """
        try:
            learned = msgspec.convert(state, LearnedClusters, str_keys=True)
        except msgspec.ValidationError as error:
            msg = f"what was learned of the clusters of a join's keys cannot be read: {error}"
            raise StateError(msg) from error
        for name, key, bound in learned.bounds:
            if (name, key) in self.bounds and bound.share == HELD:
                self.bounds[name, key] = bound
        self._since |= learned.since
