"""Work of one bucket of correlations in one batch.

Matches come in. Alerts and files go out. A correlation of rules is a condition on the matches of a
group within a timespan, event by event. ``CorrelationBatch`` answers matches once event time has
passed them, and keeps those that later timespans reach back to; the kernel walks the matches of
each group once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.aggregates.bucket import BucketBatch
from eddyline.aggregates.cells import History, Reach, group_bounds, with_fresh
from eddyline.aggregates.columns import is_there
from eddyline.aggregates.correlation_kernels import EVENTS, LAST, START, correlated
from eddyline.data.arrays import whole
from eddyline.query.correlations import (
    ALERT,
    CARRIED,
    EVENT,
    FRACTION,
    KINDS,
    MASK,
    PLACE,
    TESTS,
    TEXT,
    WHOLE,
)
from eddyline.state.rows import ALWAYS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eddyline.aggregates.cells import Span
    from eddyline.aggregates.plan import AggregatePlan, BucketState
    from eddyline.data.arrays import Floats, Ints, Mask
    from eddyline.query.correlations import Correlation
    from eddyline.state.manifest import StatePlace
    from eddyline.state.rows import Rows

HELD = "__held"
"""The column of matches of before that says whether their correlation held at their instant."""

_KEPT = (PLACE, MASK, TEXT, WHOLE, FRACTION)
"""The columns of matches that later instants need."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Correlations as the kernel reads them."""

    rows: Mapping[int, int]
    """The row of each correlation, by its place."""
    facts: Ints
    tests: Ints
    programs: Ints

    @classmethod
    def from_correlations(cls, correlations: tuple[tuple[int, Correlation], ...]) -> Facts:
        """Return the facts of correlations by their places."""
        every = [correlation for _, correlation in correlations]
        ops = list(TESTS)
        tests = np.zeros(
            (len(every), max(len(correlation.tests) for correlation in every), 2), np.int64
        )
        programs = np.zeros(
            (len(every), max(len(correlation.program) for correlation in every)), np.int64
        )
        facts = np.zeros((len(every), 6), np.int64)
        for row, correlation in enumerate(every):
            for column, (op, number) in enumerate(correlation.tests):
                tests[row, column] = ops.index(op), number
            programs[row, : len(correlation.program)] = correlation.program
            facts[row] = (
                KINDS.index(correlation.kind),
                correlation.length,
                len(correlation.references),
                correlation.percentile,
                len(correlation.tests),
                len(correlation.program),
            )
        rows = {place: row for row, (place, _) in enumerate(correlations)}
        return cls(rows, facts, tests, programs)


class CorrelationBatch(BucketBatch):
    """Matches are answered instant by instant; rows that are none of these correlations' pass."""

    stays_rows = True

    def __init__(
        self, plan: AggregatePlan, place: StatePlace | None, state: BucketState, bucket: int
    ) -> None:
        super().__init__(plan, place, state, bucket)
        self.ties = (CARRIED,)
        self._facts = Facts.from_correlations(plan.correlations)
        self._lengths = sorted({correlation.length for _, correlation in plan.correlations})
        self._answered: dict[int, Rows] = {}
        """What later instants need of the matches that are answered now, by timespan (µs)."""

    def run(self, arrived: Rows | None) -> Iterator[pa.Table]:
        """Yield rows that pass, and the alerts that the batch brings; keep the matches."""
        mine = None
        if arrived is not None:
            places = pa.array([place for place, _ in self.plan.correlations], pa.int32())
            flags = pc.is_in(whole(arrived.payload[PLACE]), places)
            is_mine = flags.to_numpy(zero_copy_only=False)
            if not is_mine.all():
                yield arrived.payload.filter(pc.invert(flags))
            mine = arrived.taken(np.flatnonzero(is_mine))
            payload = mine.payload.drop_columns([EVENT, ALERT])
            mine = replace(mine, payload=payload) if len(mine) else None
        yield from super().run(mine)

    def results(self, fresh: Rows | None) -> Iterator[pa.Table]:
        """Yield the alerts at the instants between ``plan.before`` and ``plan.after``."""
        if fresh is None:
            return
        lengths = self._facts.facts[self._rows_of(fresh), 1]
        for length in self._lengths:
            some = np.flatnonzero(lengths == length)
            if some.size:
                yield self._alerts(fresh.taken(some), length)

    def history_after(self, fresh: Rows | None) -> dict[str, tuple[Span, ...]]:  # noqa: ARG002
        """Return the files of matches that timespans of later instants reach back to."""
        files: dict[str, tuple[Span, ...]] = {}
        for length in self._lengths:
            answered, horizon = self._answered.get(length), max(self.plan.after - length, ALWAYS)
            files |= self._history(length).after(answered, horizon)
        return files

    # -- parts ----------------------------------------------------------------------------------

    def _history(self, length: int) -> History:
        """Return the matches of before that are within a timespan, one by one."""
        return self.history(str(length), Reach(length), None)

    def _rows_of(self, matches: Rows) -> Ints:
        """Return the row of facts of the correlation of each match."""
        table = np.zeros(max(self._facts.rows) + 1, np.int64)
        for place, row in self._facts.rows.items():
            table[place] = row
        rows: Ints = table[whole(matches.payload[PLACE]).to_numpy()]
        return rows

    def _alerts(self, fresh: Rows, length: int) -> pa.Table:
        """Return the alerts of correlations of one timespan."""
        since = int(fresh.starts.min()) - length
        before = self._history(length).cells(since, (ALWAYS, ALWAYS), fresh)
        self._n_read += sum(map(len, before))
        matches = _with_held(fresh, np.zeros(len(fresh), np.bool_))
        cells, places = with_fresh(before, matches)
        is_new = places >= 0
        held, alerts, values = self._correlated(cells, is_new)
        answers = np.empty(len(matches), np.bool_)
        answers[places[is_new]] = held[is_new]
        self._answered[length] = _with_held(fresh, answers)
        chosen = fresh.payload.take(pa.array(places[alerts[:, LAST]]))
        facts = [pa.array(alerts[:, START]), pa.array(alerts[:, EVENTS]), pa.array(values)]
        alert_facts = pa.StructArray.from_arrays(facts, ["first", "events", "value"])
        return chosen.append_column(ALERT, alert_facts)

    def _correlated(self, cells: Rows, is_new: Mask) -> tuple[Mask, Ints, Floats]:
        """Return whether correlations held at the matches, and the alerts with their values."""
        numbers, n_values = _numbers_of(cells)
        held = cells.payload[HELD].to_numpy().copy()
        alerts, values = np.empty((len(cells), 3), np.int64), np.empty(len(cells), np.float64)
        facts = self._facts
        n = correlated(
            cells.starts,
            group_bounds(cells),
            self._rows_of(cells),
            numbers,
            is_new,
            facts.facts,
            facts.tests,
            facts.programs,
            n_values,
            held,
            alerts,
            values,
        )
        return held, alerts[:n], values[:n]


def _with_held(fresh: Rows, held: Mask) -> Rows:
    """Return of matches what later instants need of them, with whether correlations held."""
    payload = fresh.payload.select(_KEPT).append_column(HELD, pa.array(held))
    return replace(fresh, payload=payload)


def _numbers_of(cells: Rows) -> tuple[Ints, int]:
    """Return matches as the kernel reads them, and the number of codes of values."""
    texts = whole(cells.payload[TEXT]).dictionary_encode()
    wholes, parts = whole(cells.payload[WHOLE]), whole(cells.payload[FRACTION])
    numbers = np.empty((len(cells), 5), np.int64)
    numbers[:, 0] = pc.fill_null(wholes, 0)
    numbers[:, 1] = pc.fill_null(parts, 0)
    numbers[:, 2] = is_there(wholes)
    numbers[:, 3] = pc.fill_null(texts.indices, -1)
    numbers[:, 4] = whole(cells.payload[MASK])
    return numbers, len(texts.dictionary)
