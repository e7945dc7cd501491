"""The step of a graph that finds where alarms hold: segments in, ranges of alarms out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from eddyline.alarms.observing import Observing
from eddyline.alarms.sweep import Sweep
from eddyline.alarms.tally import Tally
from eddyline.data.unique import distinct
from eddyline.models.segments import Keyed
from eddyline.models.solving.expressions import names_in
from eddyline.models.steps import Kept, Shape

if TYPE_CHECKING:
    from eddyline.alarms.plan import AlarmPlan
    from eddyline.alarms.profile import AlarmProfile
    from eddyline.alarms.program import AlarmProgram
    from eddyline.data.arrays import Mask
    from eddyline.models.steps import Scope

ALARM, DEFINITION = "alarm", "__definition"
"""Columns of results: the name of an alarm, and what it was when it held (``Alarm.definition``)."""


@dataclass(frozen=True, eq=False, repr=False)
class AlarmRanges(Kept):
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
    scope: ClassVar[Scope] = "segment"

    def shape(self, given: Shape) -> Shape:
        """Return the shape of ranges by alarm and entity."""
        return Shape((ALARM, DEFINITION, *given.keys), given.attributes)

    def run(self, given: Keyed) -> Keyed:
        """Return the ranges."""
        return self.watched(given)[0]

    def watched(self, given: Keyed) -> tuple[Keyed, AlarmProfile | None]:
        """Return the ranges, and what was observed on the way if that is asked for."""
        program, entities = self.program, given.entities
        order = given.segments.by_time
        segments = given.segments.take(order[~given.segments.is_tombstone[order]])
        n = max(int(segments.keys.max(initial=-1)) + 1, entities.num_rows)
        allowed = np.zeros((0, n), np.bool_) if program.keys is None else program.keys.of(entities)
        observing = Observing(program, segments, samples=self.samples) if self.watches else None
        tally = Tally() if observing is None else observing.tally
        sweep = Sweep(program, segments, allowed, self.plan, tally)
        found = sweep.run() if observing is None else observing.run(sweep, self.plan)
        codes = found.alarms * n + segments.keys[found.rows]
        known, keys = np.unique(codes, return_inverse=True)
        begun = segments.take(found.rows).cut(found.lo, found.hi)
        ranges = replace(begun, keys=keys, is_point=found.is_point)
        made = Keyed(ranges, self._named(known // n, entities.take(pa.array(known % n))))
        return made, None if observing is None else observing.profile

    def reads(self, wanted: set[str]) -> set[str]:
        """Return what is wanted, and what is compared."""
        return wanted.union(*map(names_in, self.program.bases))

    def are_asked(self, ranges: pa.Table) -> Mask:
        """Return which ranges are of alarms that are still what they were, ``[n]``."""
        known = distinct(self.program.definitions)
        return np.isin(ranges.column(DEFINITION).to_numpy(), known)

    def _named(self, alarms: np.ndarray, entities: pa.Table) -> pa.Table:
        names = pa.array(self.program.names, pa.string()).take(pa.array(alarms))
        columns = {ALARM: names, DEFINITION: pa.array(self.program.definitions[alarms])}
        own = dict(zip(entities.column_names, entities.columns, strict=True))
        return pa.table(columns | own)

    def __str__(self) -> str:
        n = len(self.program.names)
        return f"{n:,} alarms" if n != 1 else "1 alarm"

    __repr__ = __str__
