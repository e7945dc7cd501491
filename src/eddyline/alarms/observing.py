"""Takes a profile of a block of segments while its alarms are solved."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from eddyline.alarms.bounds import bounds_of
from eddyline.alarms.covers import covered
from eddyline.alarms.pairs import Found
from eddyline.alarms.plan import TemplatePlan
from eddyline.alarms.profile import AlarmProfile, TemplateCounts
from eddyline.alarms.tally import PAIRS, SOLVED, Tally
from eddyline.alarms.templates import slots_in
from eddyline.estimates.histograms import CoefHistogram
from eddyline.estimates.values import ValueSketch
from eddyline.models.segments import in_seconds
from eddyline.stats.costs import CostSums
from eddyline.stats.profile import FilterProfile

if TYPE_CHECKING:
    from eddyline.alarms.bounds import Bounds
    from eddyline.alarms.plan import AlarmPlan
    from eddyline.alarms.program import AlarmProgram
    from eddyline.alarms.sweep import Sweep
    from eddyline.models.segments import Segments

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
            first, began = len(self.tally.calls), self.tally.clock()
            own = list(sweep.of(template))
            rows = self.tally.rows_since(first)
            counts = TemplateCounts(
                plan.get(template.text, TemplatePlan()).sharing,
                len(self._segments),
                rows[PAIRS] + rows[SOLVED],
                sum(len(each.rows) for each in own),
                self.tally.clock() - began,
            )
            known = templates.get(template.text)
            templates[template.text] = counts if known is None else known.merged(counts)
            parts += own
        found = Found.joined([*parts, sweep.whole()])
        n = len(self._segments)
        if n:
            self.profile = AlarmProfile(n, 1, self.tally.costs, templates)
            if self._samples:
                self._sample(n)
        return found

    def _sample(self, n: int) -> None:
        """Look at a sample of segments: how values are spread, what conjuncts leave out."""
        rows = np.arange(0, n, max(SHARE, -(-n // SAMPLE)))
        part = self._segments.take(rows)
        made, took = {}, {}
        for at in self._most_asked:
            began = self.tally.clock()
            (made[at],) = bounds_of(part, [self._program.bases[at]])
            took[at] = self.tally.clock() - began
        length = in_seconds(part.hi - part.lo)
        names = {at: str(self._program.bases[at]) for at in made}
        self.profile = replace(
            self.profile,
            values={names[at]: ValueSketch.of(each.low, each.high) for at, each in made.items()},
            coefs={names[at]: CoefHistogram.of(each.coefs, length) for at, each in made.items()},
            outcomes=self._outcomes(made, took, len(rows)),
        )

    @property
    def _most_asked(self) -> list[int]:
        """The expressions that most alarms compare."""
        weights = np.zeros(len(self._program.bases))
        for template in self._program.templates:
            np.add.at(weights, list(template.bases), len(template))
        found: list[int] = np.argsort(-weights, kind="stable")[:MOST_BASES].tolist()
        return found

    def _outcomes(
        self, made: dict[int, Bounds], took: dict[int, int], n: int
    ) -> dict[str, FilterProfile]:
        """Return which conjuncts leave out which of the sampled segments, by template."""
        ordered = [
            each
            for each in self._program.templates
            if len(each.conjuncts) > 1 and {*each.bases} <= {*made}
        ]
        found = {}
        every = np.arange(n)
        for template in sorted(ordered, key=lambda each: -len(each))[:MOST_ORDERED]:
            drops = np.zeros((n, len(template.conjuncts)), np.bool_)
            ns = np.zeros(len(template.conjuncts))
            for at, each in enumerate(template.conjuncts):
                began = self.tally.clock()
                drops[:, at] = ~covered(template, each.condition, every, made.__getitem__)
                ns[at] = self.tally.clock() - began
                ns[at] += sum(took[template.bases[slot]] for slot in slots_in(each.condition))
            texts = tuple(each.text for each in template.conjuncts)
            costs = CostSums.of_calls(np.full(len(texts), float(n)), ns)
            found[template.text] = FilterProfile.of_sample(
                texts, drops, prob=n / len(self._segments), costs=costs
            )
        return found
