"""Keys that come nearly in order: how far behind the greatest one a key may be, learned.

Ordered arrival OA(k) [Babu05 6.8] with k in values in place of rows: it is learned as the lateness
of a stream is, of keys in place of event times. A row with a key that all other streams have
passed by more than that is hardly asked for any more (OAP), and neither is a new one (dangling
rows). Streams whose keys are in no order never pass any.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from eddyline.constraints.bounds import Disorder, LearnedLateness, bins_of, n_beyond
from eddyline.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from numpy.typing import NDArray

    from eddyline.joins.graph import JoinGraph

HELD = 0.999
"""Share of the rows of a stream that are to be no farther behind; others look behind filters."""

MARGIN = 1.05
"""A key is passed at so many times the bound; see ``tiers.MARGIN``."""

MEASURED = 2_048
"""Rows of a bucket that are measured, about, evenly spread over all."""

WIDEST = 2**60
"""Keys of a batch that are farther apart are in no order, such as hashes."""

Place = tuple[str, int]
"""An input and a key class."""


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
    found = {}
    for name in inputs:
        others = [each for each in timed if each != name]
        for key in graph.classes_of[name]:
            if others and key not in rough and {*others} <= graph.classes[key]:
                found[name, key] = tuple((other, key) for other in others)
    return found


@dataclass(frozen=True, slots=True)
class _Known:
    learned: LearnedLateness
    top: int | None


class ValueOrders:
    """What is known of the order in which the keys of streams come.

    Args:
        passing: see ``watched``.
        held: share of the rows of a stream that are to be no farther behind ((0, 1)).
    """

    def __init__(self, passing: Mapping[Place, tuple[Place, ...]], held: float = HELD) -> None:
        self.passing, self._held = passing, held
        self._known = {
            place: _Known(LearnedLateness(held), None)
            for places in passing.values()
            for place in places
        }
        self._promising: set[Place] = set()

    @property
    def promises(self) -> bool:
        """Whether what was measured last asks for far smaller bounds than those that are known."""
        return bool(self._promising)

    @property
    def tops(self) -> dict[Place, int | None]:
        """The keys that are measured, and the greatest one of each so far."""
        return {place: each.top for place, each in self._known.items()}

    def below(self) -> dict[str, dict[int, int]]:
        """Return by input and key class the key below which those of all others are hardly any."""
        found: dict[str, dict[int, int]] = {}
        for (name, key), places in self.passing.items():
            lows = [self._low(place) for place in places]
            known = [low for low in lows if low is not None]
            if len(known) == len(lows):
                found.setdefault(name, {})[key] = min(known)
        return found

    def _low(self, place: Place) -> int | None:
        each = self._known[place]
        if each.top is None or not each.learned.n_rows or each.learned.bound >= WIDEST:
            return None
        return max(each.top - int(each.learned.bound * MARGIN), -(2**63))

    def step(self, fresh: Iterable[Mapping[Place, Disorder]]) -> None:
        """Take in what the buckets of a batch measured."""
        whole: dict[Place, Disorder] = {}
        for part in fresh:
            for place, disorder in part.items():
                whole[place] = disorder.merge(whole[place]) if place in whole else disorder
        for place, disorder in whole.items():
            if place in self._known:
                self._note(place, disorder)
                self._known[place] = _after(self._known[place], disorder)

    def _note(self, place: Place, batch: Disorder) -> None:
        if batch.n_rows:
            less = self._known[place].learned.bound // 2
            is_less = n_beyond(batch.bins, less) <= (1 - self._held) * batch.n_rows
            note = self._promising.add if is_less else self._promising.discard
            note(place)

    def snapshot(self) -> list[tuple[str, int, LearnedLateness, int | None]]:
        """Return the learned state."""
        return [(*place, each.learned, each.top) for place, each in self._known.items()]

    def restore(self, state: Any) -> None:
        """Continue from what ``snapshot`` returned, decoded from JSON.

        Raises:
            StateError: it is damaged.
        """
        kind = list[tuple[str, int, LearnedLateness, int | None]]
        try:
            for name, key, learned, top in msgspec.convert(state, kind, str_keys=True):
                if (name, key) in self._known and learned.share == self._held:
                    self._known[name, key] = _Known(learned, top)
        except msgspec.ValidationError as error:
            msg = f"what was learned of the order of a join's keys cannot be read: {error}"
            raise StateError(msg) from error


def _after(known: _Known, batch: Disorder) -> _Known:
    """Return what is known with one batch more."""
    learned = known.learned
    if batch.latest - batch.earliest >= WIDEST:
        learned = known.learned.bounded(WIDEST)
    elif batch.n_rows:
        beyond = n_beyond(batch.bins, known.learned.bound)
        measured = Disorder(batch.n_rows, beyond, batch.earliest, batch.latest, batch.bins)
        learned = known.learned.after(measured, known.top)
    top = batch.latest if known.top is None else max(known.top, batch.latest)
    return _Known(learned, top)
