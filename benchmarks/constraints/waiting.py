"""Constraints of joins whose results wait for event time: windows of N rows, and ANTI joins.

The operator and its loops, without Spark; see ``learned``. Keys ascend but for k rows.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import numpy as np

from benchmarks.constraints.data import EVERY_US, Size, ordered_v1
from benchmarks.constraints.learned import K, Learner, Ratio, both, compared, hot_ratio, told
from benchmarks.constraints.learned import time_ratio as time_of
from benchmarks.harness.scenario import Measurement, Runs, Settings
from eddyline.data.arrays import Ints
from eddyline.joins.operator.event_time import OrderedBatch, PartnerBatch
from eddyline.joins.plan import BatchPlan, PartnerPlan
from eddyline.query.query import RowsWindow
from eddyline.state.event_time import EventTime, OrderPlan
from eddyline.state.rows import FOREVER, Rows


@dataclass
class _Waiting(Learner):
    """A join whose results wait; its rows leave in whole runs alone."""

    time: EventTime = field(init=False, default_factory=lambda: EventTime(dict.fromkeys("st", 0)))

    @property
    def _single(self) -> Collection[str]:
        return ()


@dataclass
class Counted(_Waiting):
    """A join of windows of N rows: as many as come in the length that is given."""

    def planned(self, plan: BatchPlan) -> BatchPlan:
        """Return how a batch is joined."""
        rows = {name: RowsWindow(us // EVERY_US) for name, us in self.lengths.items()}
        columns = dict.fromkeys(rows, ("at", "k"))
        order = OrderPlan("istream", self.time, dict(self.latest), rows, columns, columns)
        return replace(plan, order=order, lengths=dict.fromkeys(rows, FOREVER), horizons={})

    def task(self, plan: BatchPlan) -> OrderedBatch:
        """Return the work of a batch."""
        return OrderedBatch(plan, self.manifests.place("join"), self.state)

    def _rows(self, name: str, codes: Any, at: Ints) -> Rows:
        rows = Learner._rows(self, name, codes, at)
        return Rows(rows.codes, at, np.full(at.size, FOREVER), rows.payload)


@dataclass
class Anti(_Waiting):
    """The rows of the first stream without a partner; both windows are as long as is given."""

    def planned(self, plan: BatchPlan) -> BatchPlan:
        """Return how a batch is joined."""
        left, right = self.graph.inputs
        length = self.lengths[left]
        asked = PartnerPlan("anti", left, right, length, None, self.time, dict(self.latest))
        lengths = {left: length, right: length + self.lengths[right]}
        spans = {name: span for name, span in plan.spans.items() if name == right}
        return replace(plan, partners=asked, lengths=lengths, spans=spans)

    def task(self, plan: BatchPlan) -> PartnerBatch:
        """Return the work of a batch."""
        return PartnerBatch(plan, self.manifests.place("join"), self.state)


JOINS: dict[str, type[Learner]] = {"counted": Counted, "anti": Anti}


@cache
def _compared(settings: Settings, name: str) -> dict[str, Any]:
    """Return what was measured, once for hot rows and time."""
    size = Size(settings.pick(160, 60), settings.pick(5_000, 1_000))
    n_window = settings.pick(50, 20)
    streams = partial(ordered_v1, size, K)
    length = n_window * size.n_rows * EVERY_US
    *_, found = compared(streams, both(length), warm=2 * n_window, join=JOINS[name])
    return found


def waiting(settings: Settings, name: str, ratio: Ratio) -> Measurement:
    """Hot rows, or processor time, without constraints over with."""
    found = _compared(settings, name)
    return Measurement(ratio(found), told(found), found)


RUNS: Runs = {
    f"constraints_{name}_{what}": partial(waiting, name=name, ratio=ratio)
    for name in JOINS
    for what, ratio in (("hot", hot_ratio), ("time", time_of))
}
