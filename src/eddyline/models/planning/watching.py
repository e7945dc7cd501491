"""Takes the profile of a graph while a task runs it: what came out of steps, and what is sampled.

Counting takes nothing to speak of. Where a sample is wanted, a few segments are looked at for each
comparison; the time of that is counted, so that the loop can keep it within a budget.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from msgspec import structs

from eddyline.data.arrays import distinct
from eddyline.estimates.histograms import CoefHistogram
from eddyline.models.expressions import Attribute, Terms, names_in, terms_of
from eddyline.models.kept import CODE
from eddyline.models.one_sided import Tally
from eddyline.models.planning.expected import SlotOf, is_watched, slots_of
from eddyline.models.planning.profile import (
    MAX_CELLS,
    MAX_GROUPS,
    JoinCounts,
    ModelProfile,
    SideCounts,
    StepCounts,
)
from eddyline.models.rows import Keyed
from eddyline.models.segments import in_seconds
from eddyline.models.window_steps import Envelope
from eddyline.models.work import Stopwatch, Work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.data.arrays import Ints
    from eddyline.models.graph import OtherEntities, SameEntity
    from eddyline.models.segments import Segments
    from eddyline.models.steps import Rows
    from eddyline.models.work import Clock

SAMPLE = 128
"""Segments that are looked at for a comparison in a batch of a task, at most."""

SHARE = 4
"""One of so many is looked at, at most."""

FIRST = 256
"""Segments, those that begin first, by which it is told whether entities begin them together."""


class Watching(Stopwatch):
    """Looks on while a task runs a graph.

    Args:
        clock: of the time that steps take (ns).
        samples: whether it is looked at how coefficients are spread.
    """

    def __init__(self, clock: Clock = time.perf_counter_ns, *, samples: bool = False) -> None:
        super().__init__(clock)
        self.profile = ModelProfile()
        self._samples = samples
        self._tallies: dict[str, _JoinTally] = {}
        self._done: Counter[str] = Counter()

    def tally(self, node: SameEntity | OtherEntities) -> Tally:
        """Return what takes note of the work of a join."""
        return self._tallies.setdefault(str(node), _JoinTally(self._clock))

    def saw(self, what: object, given: Sequence[Keyed], found: Keyed | Rows) -> None:
        """Take note of what came out of a step, or of a join."""
        if not is_watched(what):
            return
        text, every = str(what), [each.segments for each in given]
        n_out = len(found.segments) if isinstance(found, Keyed) else len(found.samples.keys)
        n_in = sum(map(len, every))
        n_entities = max(len(each.entities) for each in given)
        counts = StepCounts(float(n_in), float(n_out), float(n_entities), float(len(every[0])))
        own = ModelProfile(steps={text: counts})
        if self._samples and n_in:
            own = self._looked_at(what, text, given, counts)
        self.profile = self.profile.merged(own)

    def _looked_at(
        self, what: object, text: str, given: Sequence[Keyed], counts: StepCounts
    ) -> ModelProfile:
        """Return what a closer look at what came into a step says, and what that took."""
        began = self._clock()
        every = [each.segments for each in given]
        counts = structs.replace(
            counts,
            n_looked=counts.n_in,
            n_aligned=counts.n_in * _are_aligned(every),
            seconds=sum(float(in_seconds(each.hi - each.lo).sum()) for each in every),
        )
        coefs = dict(self._sampled(what, every))
        groups = {text: _of_entities(given[0])} if isinstance(what, Envelope) else {}
        return ModelProfile({text: counts}, {}, coefs, groups, float(self._clock() - began))

    def taken(self) -> ModelProfile:
        """Return the profile of all that was seen."""
        steps = self.profile.steps
        joins = {
            text: each.counts(self.ns[text], steps[text].n_in)
            for text, each in self._tallies.items()
            if text in steps
        }
        return self.profile.merged(ModelProfile(joins=joins))

    def _sampled(self, what: object, given: Sequence[Segments]) -> list[tuple[str, CoefHistogram]]:
        found = []
        for slot in slots_of(what):
            segments = given[slot.side]
            if len(segments) and self._done[slot.name] < SAMPLE:
                step = max(SHARE if len(segments) > SHARE else 1, -(-len(segments) // SAMPLE))
                rows = np.arange(0, len(segments), step)
                self._done[slot.name] += len(rows)
                made = histogram_of(segments.take(rows), slot)
                found.append((slot.name, made.weighted(len(segments) / len(rows))))
        return found


def asked_of(profile: ModelProfile) -> Work:
    """Return what joins asked before them."""
    sides = {
        f"{text}: {name}": side
        for text, each in profile.joins.items()
        for name, side in each.sides.items()
        if side.n_asked
    }
    return Work(
        n_asked={name: int(each.n_asked) for name, each in sides.items()},
        n_left_out={name: int(each.n_asked - each.n_left) for name, each in sides.items()},
    )


def histogram_of(segments: Segments, slot: SlotOf) -> CoefHistogram:
    """Return how the coefficients of an expression are spread over segments."""
    since, prefix = segments.seconds(segments.lo), slot.prefix
    wanted = names_in(slot.expression)
    given = {
        prefix + name: Terms.since(each, since)
        for name, each in segments.coefs.items()
        if prefix + name in wanted
    }
    coefs = terms_of(slot.expression, given).coefs
    coefs = np.broadcast_to(coefs, (len(segments), coefs.shape[1]))
    alive = ~segments.is_tombstone
    length = in_seconds(segments.hi - segments.lo)
    return CoefHistogram.of(coefs[alive], length[alive], MAX_CELLS)


def _are_aligned(given: Sequence[Segments]) -> bool:
    """Return whether segments of entities, or of both sides, begin together, by the first ones."""
    first = [_first(each.lo) for each in given]
    if len(first) > 1:
        return bool(np.isin(first[0], first[1]).mean() > 0.5) if len(first[0]) else False
    return len(distinct(first[0])) <= len(first[0]) / 2


def _first(lo: Ints) -> Ints:
    return np.partition(lo, FIRST)[:FIRST] if len(lo) > FIRST else lo


def _of_entities(given: Keyed) -> dict[int, CoefHistogram]:
    """Return how the values of a few entities are spread, those of the least codes."""
    if CODE not in given.entities.column_names:
        return {}
    codes = given.entities.column(CODE).to_numpy()
    (name,) = given.segments.coefs
    slot = SlotOf("", 0, "", Attribute(name))
    found = {}
    for entity in np.argsort(codes, kind="stable")[:MAX_GROUPS].tolist():
        rows = np.flatnonzero(given.segments.keys == entity)[:SAMPLE]
        if len(rows):
            found[int(codes[entity])] = histogram_of(given.segments.take(rows), slot)
    return found


class _JoinTally(Tally):
    """Takes note of the work of a join in a task."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sides: dict[str, SideCounts] = {}
        self._n_pairs = 0

    def clock(self) -> int:
        """Return the time (ns)."""
        return self._clock()

    def came(self, side: str, n: int) -> None:
        """Take note of the segments of a side that came."""
        self._add(side, SideCounts(float(n)))

    def asked(self, side: str, n_asked: int, n_left: int, ns: int) -> None:
        """Take note of segments of a side that were asked, how many were left, and the time."""
        self._add(side, SideCounts(0.0, float(n_asked), float(n_left), float(ns)))

    def paired(self, n_pairs: int) -> None:
        """Take note of the pairs that were made."""
        self._n_pairs += n_pairs

    def counts(self, ns: float, n_in: float) -> JoinCounts:
        """Return what was done with segments that came in, in all that time (ns)."""
        asking = sum(each.ns for each in self._sides.values())
        return JoinCounts(
            dict(self._sides), float(self._n_pairs), max(float(ns) - asking, 0.0), n_in
        )

    def _add(self, side: str, counts: SideCounts) -> None:
        self._sides[side] = self._sides.get(side, SideCounts()) + counts
