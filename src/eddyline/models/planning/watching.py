"""Measurements of a task over models: times, errors of results, and profile.

``Work`` is a small mergeable sum of these for people. ``Watching`` observes a task while it runs a
graph, and counts what goes into each step and what comes out. Counting costs next to nothing.

If the choice wants a sample, ``Watching`` also looks at a few segments for each comparison. It
measures the time of sampling, so the choice can keep it within a budget.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, structs

from eddyline.data.arrays import distinct
from eddyline.estimates.histograms import CoefHistogram
from eddyline.models import graph
from eddyline.models.entities.kept import CODE
from eddyline.models.planning.expected import (
    MAX_CELLS,
    MAX_GROUPS,
    JoinCounts,
    ModelProfile,
    SideCounts,
    SlotOf,
    StepCounts,
    is_watched,
    slots_of,
)
from eddyline.models.segments import ERR, Keyed, in_seconds
from eddyline.models.solving.expressions import Attribute, Terms, names_in, terms_of
from eddyline.models.solving.joins import Tally
from eddyline.models.steps import Changes, Envelope, Sample, Where, Within

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.data.arrays import Ints
    from eddyline.models.fitting.bounds import Bound
    from eddyline.models.fitting.declared import Declared
    from eddyline.models.fitting.fit import Fit
    from eddyline.models.fitting.stored import Stored
    from eddyline.models.graph import OtherEntities, SameEntity
    from eddyline.models.segments import Segments
    from eddyline.models.steps import Rows

Clock = Callable[[], int]
"""Nanoseconds of a clock that only goes on."""

STATE = "rows and state"
"""What takes the time that no step does: rows that wait, files, tables of results."""


SAME = (Where, Within, Sample, Changes)
"""Steps of which attributes come out as they are."""


class Work(Struct, frozen=True, omit_defaults=True):
    """What tasks did; work of several adds up. Earlier versions saved more, which is ignored."""

    ns: dict[str, int] = {}
    """Time by step (ns)."""
    errors: dict[str, float] = {}
    """The largest error that a segment of an attribute has, by ``"<input> <attribute>"``."""
    off: dict[str, float] = {}
    """The largest error that a result has, by attribute."""
    n_beyond: int = 0
    """Results whose error is above the bound that was asked of them."""
    n_looked_at: int = 0
    """Entities that were looked at, once for each batch."""

    def __add__(self, other: Work) -> Work:
        return Work(
            dict(Counter(self.ns) + Counter(other.ns)),
            _largest(self.errors, other.errors),
            _largest(self.off, other.off),
            self.n_beyond + other.n_beyond,
            self.n_looked_at + other.n_looked_at,
        )


def made_by(maker: Fit | Declared | Stored) -> str:
    """Return how segments are made as the name of a step."""
    return f"make segments of {', '.join(maker.columns)}"


def errors_of(place: int, segments: Segments) -> dict[str, float]:
    """Return the largest error of each attribute of the segments of an input."""
    largest = {
        f"{place} {name}": float(np.fmax.reduce(errors, initial=0.0))
        for name, errors in segments.errors.items()
        if len(errors)
    }
    return _finite(largest)


def bounds_of_results(node: graph.Node) -> dict[str, Bound]:
    """Return the bounds that were asked of results, the least of each; a share if that is all."""
    bounds: dict[str, Bound] = {}
    while isinstance(node, graph.Unary) and isinstance(node.step, SAME):
        for name, bound in node.step.bounds.items() if isinstance(node.step, Within) else ():
            bounds[name] = min(bound, bounds.get(name, bound), key=_rank)
        node = node.of
    return bounds


def _rank(bound: Bound) -> tuple[bool, float]:
    return bound.is_relative, bound.value


def work_of_results(table: pa.Table, bounds: Mapping[str, Bound]) -> Work:
    """Return how near results are to what rows would give, and how many are not near enough.

    Args:
        table: of results.
        bounds: that were asked of them; shares of values are not looked at.
    """
    names = [column for column in table.column_names if column.startswith(ERR)]
    largest = {column.removeprefix(ERR): pc.max(table.column(column)).as_py() for column in names}
    beyond = np.zeros(len(table), np.bool_)
    for name, bound in bounds.items():
        if ERR + name in names and not bound.is_relative:
            beyond |= table.column(ERR + name).to_numpy() > bound.value
    return Work(off=_finite(largest), n_beyond=int(beyond.sum()))


def _finite(numbers: Mapping[str, float | None]) -> dict[str, float]:
    """Return what is a number: what is saved as text has no others."""
    return {
        name: number for name, number in numbers.items() if number is not None and number < np.inf
    }


def _largest(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {
        name: max(one.get(name, 0.0), other.get(name, 0.0))
        for name in dict.fromkeys([*one, *other])
    }


# -- the profile ----------------------------------------------------------------------------------


SAMPLE = 128
"""Segments that are looked at for a comparison in a batch of a task, at most."""

SHARE = 4
"""One of so many is looked at, at most."""

FIRST = 256
"""Segments, those that begin first, by which it is told whether entities begin them together."""


class Watching(graph.Watch):
    """Looks on while a task runs a graph.

    Args:
        clock: of the time that steps take (ns).
        samples: whether it is looked at how coefficients are spread.
    """

    def __init__(self, clock: Clock = time.perf_counter_ns, *, samples: bool = False) -> None:
        self._clock, self._began, self._samples = clock, clock(), samples
        self.ns: Counter[str] = Counter()
        """Time by step (ns)."""
        self.profile = ModelProfile()
        self._tallies: dict[str, _JoinTally] = {}
        self._done: Counter[str] = Counter()
        """Segments that were sampled, by slot."""

    @contextmanager
    def on(self, what: object) -> Iterator[None]:
        """Count the time of something by its name."""
        began = self._clock()
        yield
        self.ns[str(what)] += self._clock() - began

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out the time of others."""
        began = self._clock()
        yield
        self._began += self._clock() - began

    def spent(self) -> dict[str, int]:
        """Return the time so far; what nothing has counted is of ``STATE``."""
        others = self._clock() - self._began - self.ns.total()
        return dict(self.ns + Counter({STATE: others}))

    def tally(self, node: SameEntity | OtherEntities) -> Tally:
        """Return what takes note of the work of a join."""
        return self._tallies.setdefault(str(node), _JoinTally(self._clock))

    def saw(self, what: object, inputs: Sequence[Keyed], output: Keyed | Rows) -> None:
        """Take note of what came out of a step, or of a join."""
        if not is_watched(what):
            return
        text, every = str(what), [part.segments for part in inputs]
        n_out = len(output.segments) if isinstance(output, Keyed) else len(output.samples.keys)
        n_in = sum(map(len, every))
        n_entities = max(len(part.entities) for part in inputs)
        counts = StepCounts(float(n_in), float(n_out), float(n_entities), float(len(every[0])))
        profile = ModelProfile(steps={text: counts})
        if self._samples and n_in:
            profile = self._looked_at(what, text, inputs, counts)
        self.profile = self.profile.merged(profile)

    def _looked_at(
        self, what: object, text: str, inputs: Sequence[Keyed], counts: StepCounts
    ) -> ModelProfile:
        """Return what a closer look at what came into a step says, and what that took."""
        began = self._clock()
        every = [part.segments for part in inputs]
        counts = structs.replace(
            counts,
            n_looked=counts.n_in,
            n_aligned=counts.n_in * _are_aligned(every),
            seconds=sum(float(in_seconds(segments.hi - segments.lo).sum()) for segments in every),
        )
        coefs = dict(self._sampled(what, every))
        groups = {text: _of_entities(inputs[0])} if isinstance(what, Envelope) else {}
        return ModelProfile({text: counts}, {}, coefs, groups, float(self._clock() - began))

    def taken(self) -> ModelProfile:
        """Return the profile of all that was seen."""
        steps = self.profile.steps
        joins = {
            text: tally.counts(self.ns[text], steps[text].n_in)
            for text, tally in self._tallies.items()
            if text in steps
        }
        return self.profile.merged(ModelProfile(joins=joins))

    def _sampled(self, what: object, inputs: Sequence[Segments]) -> list[tuple[str, CoefHistogram]]:
        histograms = []
        for slot in slots_of(what):
            segments = inputs[slot.side]
            if len(segments) and self._done[slot.name] < SAMPLE:
                step = max(SHARE if len(segments) > SHARE else 1, -(-len(segments) // SAMPLE))
                rows = np.arange(0, len(segments), step)
                self._done[slot.name] += len(rows)
                histogram = histogram_of(segments.take(rows), slot)
                histograms.append((slot.name, histogram.weighted(len(segments) / len(rows))))
        return histograms


def histogram_of(segments: Segments, slot: SlotOf) -> CoefHistogram:
    """Return how the coefficients of an expression are spread over segments."""
    since, prefix = segments.seconds(segments.lo), slot.prefix
    wanted = names_in(slot.expression)
    terms = {
        prefix + name: Terms.since(matrix, since)
        for name, matrix in segments.coefs.items()
        if prefix + name in wanted
    }
    coefs = terms_of(slot.expression, terms).coefs
    coefs = np.broadcast_to(coefs, (len(segments), coefs.shape[1]))
    alive = ~segments.is_tombstone
    length = in_seconds(segments.hi - segments.lo)
    return CoefHistogram.from_coefs(coefs[alive], length[alive], MAX_CELLS)


def _are_aligned(inputs: Sequence[Segments]) -> bool:
    """Return whether segments of entities, or of both sides, begin together, by the first ones."""
    first = [_first(segments.lo) for segments in inputs]
    if len(first) > 1:
        return bool(np.isin(first[0], first[1]).mean() > 0.5) if len(first[0]) else False
    return len(distinct(first[0])) <= len(first[0]) / 2


def _first(lo: Ints) -> Ints:
    return np.partition(lo, FIRST)[:FIRST] if len(lo) > FIRST else lo


def _of_entities(pieces: Keyed) -> dict[int, CoefHistogram]:
    """Return how the values of a few entities are spread, those of the least codes."""
    if CODE not in pieces.entities.column_names:
        return {}
    codes = pieces.entities.column(CODE).to_numpy()
    (name,) = pieces.segments.coefs
    slot = SlotOf("", 0, "", Attribute(name))
    histograms = {}
    for entity in np.argsort(codes, kind="stable")[:MAX_GROUPS].tolist():
        rows = np.flatnonzero(pieces.segments.keys == entity)[:SAMPLE]
        if len(rows):
            histograms[int(codes[entity])] = histogram_of(pieces.segments.take(rows), slot)
    return histograms


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
        asking = sum(side.ns for side in self._sides.values())
        return JoinCounts(
            dict(self._sides), float(self._n_pairs), max(float(ns) - asking, 0.0), n_in
        )

    def _add(self, side: str, counts: SideCounts) -> None:
        self._sides[side] = self._sides.get(side, SideCounts()) + counts
