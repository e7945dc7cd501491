"""Step of a graph that finds where alarms hold.

Segments come in. Ranges of time, one per alarm and stretch, go out. A step that watches also
returns the profile of its block: what templates took, and of a sample of segments how values are
spread and what conjuncts leave out (``Observing``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.alarms.meeting import bounds_of, covered
from eddyline.alarms.plan import TemplatePlan
from eddyline.alarms.program import AlarmProfile, Tally, TemplateCounts, slots_in
from eddyline.alarms.sweep import Found, Sweep
from eddyline.data.arrays import distinct
from eddyline.estimates.histograms import CoefHistogram, ValueSketch
from eddyline.models.segments import Keyed, in_seconds
from eddyline.models.solving.expressions import names_in
from eddyline.models.steps import Shape, Step
from eddyline.stats.costs import CostSums
from eddyline.stats.profile import FilterProfile

if TYPE_CHECKING:
    from eddyline.alarms.meeting import Bounds
    from eddyline.alarms.plan import AlarmPlan
    from eddyline.alarms.program import AlarmProgram
    from eddyline.data.arrays import Mask
    from eddyline.models.segments import Segments

ALARM, DEFINITION = "alarm", "__definition"
"""Columns of results: the name of an alarm, and what it was when it held (``Alarm.definition``)."""


@dataclass(frozen=True, eq=False, repr=False)
class AlarmRanges(Step):
    """The ranges on which each of some alarms holds, as segments by alarm and entity.

    A range may go on in later segments than the one whose polynomials it has: only its begin is
    looked at.
    """

    program: AlarmProgram
    plan: AlarmPlan = field(default_factory=dict)
    watches: bool = False
    """Whether a profile is taken while alarms are solved."""
    samples: bool = True
    """Whether that has how values are spread, too."""

    def shape(self, shape: Shape) -> Shape:
        """Return the shape of ranges by alarm and entity."""
        return Shape((ALARM, DEFINITION, *shape.keys), shape.attributes)

    def run(self, block: Keyed) -> Keyed:
        """Return the ranges."""
        return self.watched(block)[0]

    def watched(self, block: Keyed) -> tuple[Keyed, AlarmProfile | None]:
        """Return the ranges, and what was observed on the way if that is asked for."""
        program, entities = self.program, block.entities
        order = block.segments.by_time
        segments = block.segments.take(order[~block.segments.is_tombstone[order]])
        n = max(int(segments.keys.max(initial=-1)) + 1, entities.num_rows)
        allowed = np.zeros((0, n), np.bool_) if program.keys is None else program.keys.of(entities)
        observing = Observing(program, segments, samples=self.samples) if self.watches else None
        tally = Tally() if observing is None else observing.tally
        sweep = Sweep(program, segments, allowed, self.plan, tally)
        hits = sweep.run() if observing is None else observing.run(sweep, self.plan)
        codes = hits.alarms * n + segments.keys[hits.rows]
        distinct_codes, keys = np.unique(codes, return_inverse=True)
        begun = segments.take(hits.rows).cut(hits.lo, hits.hi)
        ranges = replace(begun, keys=keys, is_point=hits.is_point)
        result = Keyed(
            ranges, self._named(distinct_codes // n, entities.take(pa.array(distinct_codes % n)))
        )
        return result, None if observing is None else observing.profile

    def reads(self, wanted: set[str]) -> set[str]:
        """Return what is wanted, and what is compared."""
        return wanted.union(*map(names_in, self.program.bases))

    def are_asked(self, ranges: pa.Table) -> Mask:
        """Return which ranges are of alarms that are still what they were, ``[n]``."""
        definitions = distinct(self.program.definitions)
        return np.isin(ranges.column(DEFINITION).to_numpy(), definitions)

    def _named(self, alarms: np.ndarray, entities: pa.Table) -> pa.Table:
        names = pa.array(self.program.names, pa.string()).take(pa.array(alarms))
        columns = {ALARM: names, DEFINITION: pa.array(self.program.definitions[alarms])}
        entity_columns = dict(zip(entities.column_names, entities.columns, strict=True))
        return pa.table(columns | entity_columns)

    def __str__(self) -> str:
        n = len(self.program.names)
        return f"{n:,} alarms" if n != 1 else "1 alarm"

    __repr__ = __str__


SAMPLE = 128
"""Segments of a block that are looked at for what the next ones will be like, at most."""

SHARE = 8
"""Of a block no more than one of so many."""

MOST_BASES = 16
"""Expressions of which a block tells how their values are spread: those of most alarms."""

MOST_ORDERED = 32
"""Templates of which a block tells what their conjuncts leave out: those of most alarms."""


class Observing:
    """The profile of one block.

    Args:
        program: the alarms.
        segments: those of the block.
        tally: takes note of the work.
        samples: whether it is looked at how values are spread, too.
    """

    def __init__(
        self,
        program: AlarmProgram,
        segments: Segments,
        tally: Tally | None = None,
        *,
        samples: bool = True,
    ) -> None:
        self._program, self._segments, self._samples = program, segments, samples
        self.tally = Tally() if tally is None else tally
        self.profile = AlarmProfile()

    def run(self, sweep: Sweep, plan: AlarmPlan) -> Found:
        """Return where alarms hold, and take the profile."""
        templates: dict[str, TemplateCounts] = {}
        parts: list[Found] = []
        for template in self._program.templates:
            began = self.tally.clock()
            template_hits = list(sweep.of(template))
            counts = TemplateCounts(
                plan.get(template.text, TemplatePlan()).sharing,
                len(self._segments),
                sum(len(part.rows) for part in template_hits),
                self.tally.clock() - began,
            )
            before = templates.get(template.text)
            templates[template.text] = counts if before is None else before.merged(counts)
            parts += template_hits
        hits = Found.joined([*parts, sweep.whole()])
        n = len(self._segments)
        if n:
            self.profile = AlarmProfile(n, 1, self.tally.costs, templates)
            if self._samples:
                self._sample(n)
        return hits

    def _sample(self, n: int) -> None:
        """Look at a sample of segments: how values are spread, what conjuncts leave out."""
        rows = np.arange(0, n, max(SHARE, -(-n // SAMPLE)))
        part = self._segments.take(rows)
        bounds, took = {}, {}
        for base in self._most_asked:
            began = self.tally.clock()
            (bounds[base],) = bounds_of(part, [self._program.bases[base]])
            took[base] = self.tally.clock() - began
        length = in_seconds(part.hi - part.lo)
        names = {place: str(self._program.bases[place]) for place in bounds}
        self.profile = replace(
            self.profile,
            values={
                names[place]: ValueSketch.from_ranges(limits.low, limits.high)
                for place, limits in bounds.items()
            },
            coefs={
                names[place]: CoefHistogram.from_coefs(limits.coefs, length)
                for place, limits in bounds.items()
            },
            outcomes=self._outcomes(bounds, took, len(rows)),
        )

    @property
    def _most_asked(self) -> list[int]:
        """The expressions that most alarms compare."""
        weights = np.zeros(len(self._program.bases))
        for template in self._program.templates:
            np.add.at(weights, list(template.bases), len(template))
        bases: list[int] = np.argsort(-weights, kind="stable")[:MOST_BASES].tolist()
        return bases

    def _outcomes(
        self, bounds: dict[int, Bounds], took: dict[int, int], n: int
    ) -> dict[str, FilterProfile]:
        """Return which conjuncts leave out which of the sampled segments, by template."""
        ordered = [
            candidate
            for candidate in self._program.templates
            if len(candidate.conjuncts) > 1 and {*candidate.bases} <= {*bounds}
        ]
        profiles = {}
        every = np.arange(n)
        for template in sorted(ordered, key=lambda candidate: -len(candidate))[:MOST_ORDERED]:
            drops = np.zeros((n, len(template.conjuncts)), np.bool_)
            ns = np.zeros(len(template.conjuncts))
            for number, conjunct in enumerate(template.conjuncts):
                began = self.tally.clock()
                drops[:, number] = ~covered(template, conjunct.condition, every, bounds.__getitem__)
                ns[number] = self.tally.clock() - began
                ns[number] += sum(
                    took[template.bases[slot]] for slot in slots_in(conjunct.condition)
                )
            texts = tuple(part.text for part in template.conjuncts)
            costs = CostSums.of_calls(np.full(len(texts), float(n)), ns)
            profiles[template.text] = FilterProfile.of_sample(
                texts, drops, prob=n / len(self._segments), costs=costs
            )
        return profiles
