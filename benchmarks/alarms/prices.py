"""Work at fixed prices instead of times: a plan that is learned by it is the same in every run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from benchmarks.alarms.data import swept
from eddyline.alarms.plan import AlarmPlan
from eddyline.alarms.program import AlarmProfile, AlarmProgram, Tally
from eddyline.alarms.ranges import Observing
from eddyline.alarms.sweep import Found, Sweep
from eddyline.models.segments import Segments

CALL_NS = (60_000, 5_000, 20_000, 90_000)
ROW_NS = (110, 15, 25, 180)
"""What a call and a row of each kind of work takes, in the order of ``tally.KINDS`` (ns)."""


class PricedTally(Tally):
    """A tally on whose clock only work takes time, at fixed prices."""

    def __init__(self) -> None:
        super().__init__(clock=lambda: self.now)
        self.now = 0
        """The time that all work so far takes (ns)."""

    @contextmanager
    def on(self, kind: int, n_rows: int) -> Iterator[None]:
        """Count the work inside, and let its time pass."""
        with super().on(kind, n_rows):
            yield
            self.now += CALL_NS[kind] + ROW_NS[kind] * n_rows


def priced(program: AlarmProgram, segments: Segments, plan: AlarmPlan) -> int:
    """Return what a block of segments takes (ns)."""
    tally = PricedTally()
    swept(program, segments, plan, tally)
    return tally.now


def observed(
    program: AlarmProgram, segments: Segments, plan: AlarmPlan, *, samples: bool = True
) -> tuple[Found, AlarmProfile, int]:
    """Return where alarms hold on a block of segments, its profile, and what it takes (ns)."""
    tally = PricedTally()
    observing = Observing(program, segments, tally, samples=samples)
    found = observing.run(Sweep(program, segments, np.zeros((0, 0), np.bool_), plan, tally), plan)
    return found, observing.profile, tally.now
