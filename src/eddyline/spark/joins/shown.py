"""What people see of a join on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql.pandas.types import to_arrow_schema

from eddyline.joins.grid_loop import split_text
from eddyline.joins.pins import pinnable
from eddyline.joins.view import STATIC, InputView, JoinRecord, JoinView, PipelineView, ProbeView
from eddyline.query.windows import UnboundedWindow
from eddyline.report import joins as words
from eddyline.spark.operator import Operator
from eddyline.state.late_rows import late_rows
from eddyline.state.rows import ALWAYS

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

    import pyarrow as pa

    from eddyline.joins.caches.loop import JoinCaches
    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.grid_loop import GridLoop
    from eddyline.joins.leaving_loops import LeavingLoops
    from eddyline.joins.loop import JoinLoop
    from eddyline.joins.operator.probe_counts import JoinWork
    from eddyline.joins.state_part import JoinPart
    from eddyline.joins.way_loop import WayLoop
    from eddyline.options import JoinOptions
    from eddyline.report.sections import Section
    from eddyline.runtime.operator import Record
    from eddyline.runtime.pins import Pinnable
    from eddyline.runtime.records import History
    from eddyline.spark.joins.bound import BoundJoin
    from eddyline.spark.joins.inputs import JoinInputs
    from eddyline.spark.joins.layout import JoinInput
    from eddyline.spark.joins.table_filter import TableFilter
    from eddyline.state.place import StatePlace


class Shown(Operator):
    """A join as it stands."""

    bound: BoundJoin
    options: JoinOptions
    inputs: JoinInputs
    graph: JoinGraph
    loop: JoinLoop
    grids: GridLoop
    caches: JoinCaches
    leaving: LeavingLoops
    drops: TableFilter
    ways: WayLoop
    part: JoinPart
    work: JoinWork
    n_joined: dict[str, int]
    n_results: int
    place: StatePlace
    _loads: tuple[int, ...]
    _newest: tuple[int, int]
    _last_batch: int
    _lock: threading.RLock

    def late_rows(self, name: str) -> pa.Table:
        """Return the rows of an input that came too late to be joined.

        Raises:
            StateError: they cannot be read.
        """
        return late_rows(self.place, name, self._last_batch, lambda: self._late_schema(name))

    def _late_schema(self, name: str) -> pa.Schema:
        layout = next(each for each in self.bound.source.layouts if each.name == name)
        columns = [column for column, _ in (*layout.columns, *layout.keys_only)]
        return to_arrow_schema(self.bound.fields_of(layout, columns), timezone="UTC")

    def lines(self, n_rows: int, seconds: float) -> tuple[str, ...]:
        """Return the orders in force and what the windows hold in words, for the progress."""
        return words.lines(self.records(), n_rows, seconds)

    def sections(self, history: History) -> list[Section]:
        """Return for people what the plan is, why, and what it did."""
        return words.sections(self.view(), history)

    def records(self) -> tuple[Record, ...]:
        """Return the records of the pipelines and of the join after a batch."""
        with self._lock:
            files = [self.part.files(name) for name in self.graph.inputs]
            cold = {name: self.part.cold(name) for name in self.graph.inputs}
            tiers = {each.name: each for each in self.leaving.tiers.views() if each.n_pairs}
            discards = self.leaving.discards.newest.values()
            joined = JoinRecord(
                inputs=self.graph.inputs,
                n_kept=tuple(sum(file.n_rows for file in each) for each in files),
                n_bytes=tuple(sum(file.n_bytes for file in each) for each in files),
                n_late=self._newest[0],
                n_results=self._newest[1],
                n_filtered=self.drops.loop.newest,
                n_waiting=sum(map(self.part.n_waiting, self.graph.inputs)),
                n_cold=sum(n_rows for n_rows, _, _ in cold.values()),
                cold_bytes=sum(n_bytes for *_, n_bytes in cold.values()),
                cold_rows=tuple(n_rows for n_rows, _, _ in cold.values()),
                within_us=tuple(tiers[name].bound if name in tiers else None for name in cold),
                closes_us=tuple(map(self.leaving.clusters.least, cold)),
                n_found_cold=sum(each.n_cold for each in tiers.values()),
                n_dropped=sum(each.n_dropped for each in discards),
                n_missing_at_most=sum(
                    each.n_most for each in self.leaving.discards.newest.values()
                ),
                n_missing_about=sum(each.n_about for each in discards),
                dropped_bytes=sum(self.part.dropped_bytes(name) for name in self.graph.inputs),
                reached=self.inputs.streams.reached(self.inputs.latest),
            )
        return (*self.loop.record().pipelines, joined)

    @property
    def pinnable(self) -> tuple[Pinnable, ...]:
        """The order of each pipeline, how rows are laid out, what leaves windows, and the way."""
        loops = self.loop, self.grids, self.caches, self.leaving.tiers, self.leaving.done
        return tuple(pinnable(*loops, self.drops.loop, self.ways))

    def plan(self) -> dict[str, list[str]]:
        """Return the order of each pipeline, by names."""
        return {name: list(order) for name, order in self.loop.plan.items()}

    def view(self) -> JoinView:
        """Return the join as it stands."""
        with self._lock:
            loads = np.array(self._loads, dtype=np.float64)
            mean = loads.mean() if loads.size else 0.0
            return JoinView(
                name=self.bound.name,
                emits=self.bound.step.emits,
                kind=self.bound.step.kind,
                inputs=tuple(map(self._input_view, self.bound.inputs)),
                pipelines=tuple(map(self._pipeline_view, self.graph.inputs)),
                caches=self.caches.views(),
                keys=tuple(map(str, self.bound.step.keys)),
                grid=self.grids.plan.shape,
                splits=tuple(map(split_text, self.grids.plan.splits)),
                fullest=float(loads.max() / mean) if mean > 0 else float("nan"),
                n_results=self.n_results,
                is_adaptive=self.options.adaptive,
                way=self.ways.plan,
                learned=self.inputs.learned,
                tiers=self.leaving.tiers.views(),
                discards=self.leaving.discards.views(),
                done=tuple(view for loop in self.leaving.done.values() for view in loop.views()),
                drops=self.drops.loop.views(),
                clusters=self.leaving.clusters.views(self.inputs.latest),
                declared=tuple(
                    f"{each.column} of {name}" for name, each in self.bound.keys.items()
                ),
                notes=tuple(self._notes()),
            )

    def _input_view(self, each: JoinInput) -> InputView:
        counts, latest = self.inputs.counts[each.name], self.inputs.latest
        low = ALWAYS if each.time is None else self.inputs.streams.low(each.name, latest)
        files = self.part.files(each.name)
        n_cold, n_cold_runs, cold_bytes = self.part.cold(each.name)
        return InputView(
            name=each.name,
            stream=each.stream,
            window=STATIC if each.time is None else each.window.text,
            n_arrived=counts.n_arrived,
            n_joined=self.n_joined[each.name],
            n_late=self.part.n_late.get(each.name, 0),
            n_untimed=counts.n_untimed,
            latest=latest.get(each.name),
            n_kept=sum(file.n_rows for file in files),
            n_bytes=sum(file.n_bytes for file in files),
            n_runs=len(files) + n_cold_runs,
            n_waiting=self.part.n_waiting(each.name),
            n_cold=n_cold,
            cold_bytes=cold_bytes,
            dropped_bytes=self.part.dropped_bytes(each.name),
            awaited_from=low if low > ALWAYS else None,
        )

    def _pipeline_view(self, name: str) -> PipelineView:
        probes, drop_fracs = [], self.loop.drop_fracs(name)
        for other in self.loop.plan[name]:
            done, drop_frac = self.work.probe(name, other), drop_fracs.get(other, float("nan"))
            probes.append(ProbeView(other, done.n_in, done.n_out, done.ns, drop_frac))
        return PipelineView(name, tuple(probes), self.loop.written[name])

    def _notes(self) -> Iterator[str]:
        streams, rule = self.inputs.streams, self.bound.lateness
        known = {*rule.shares, *rule.told}
        if strict := [name for name, us in rule.given.items() if not us and name not in known]:
            yield (
                f"{', '.join(strict)} without a lateness: a row earlier than one of an earlier "
                f"batch is late, and not joined (lateness='1 minute' of its stream waits for it)"
            )
        timed = (
            each
            for each in self.bound.inputs
            if each.time is not None and each.name not in self.leaving.discards.lengths
        )
        if endless := [each.name for each in timed if each.window == UnboundedWindow()]:
            yield (
                f"{', '.join(endless)} [UNBOUNDED], as a stream without a window is: its rows are "
                f"kept for ever ([RANGE 10 MINUTES] after its name lets them go)"
            )
        lows = streams.lows(self.inputs.latest)
        silent = sorted(name for name, low in lows.items() if low == ALWAYS)
        if silent and len(silent) < len(lows):
            yield (
                f"no row of {', '.join(silent)} has come yet, so nothing that could still join its "
                f"rows leaves the windows of the others"
            )
        if (order := self.bound.order(streams, self.inputs.latest)) is not None:
            yield (
                f"results wait for event time: no earlier row of {', '.join(order.awaited)} may "
                f"come any more; all rows are joined in one task"
            )
        if (
            asked := self.bound.partners(self.inputs.streams, {})
        ) is not None and asked.time is not None:
            yield (
                f"a row of {asked.left} without a partner is known once no row of {asked.right} "
                f"can come in its window any more: rows that wait at the end of a run are decided "
                f"in a later one; all rows are joined in one task"
            )
        if self.leaving.discards.lengths:
            yield (
                "constraints='discard': rows that are hardly asked for any more are dropped, so "
                "that results may be missing; none is wrong, and the section on constraints says "
                "how many are missing at most (constraints='exact' misses none)"
            )
        elif self.options.constraints and not self.leaving.tiers.lengths:
            yield (
                "constraints are not used: they need an inner join, a window of a length "
                "([RANGE 10 MINUTES]) or 'discard', results that do not wait for event time, and "
                "adaptive=True"
            )
        keyed = (each for each in self.bound.inputs if each.key is not None)
        if unused := [each for each in keyed if each.name not in self.bound.keys]:
            said = ", ".join(f"{each.key} of {each.name}" for each in unused)
            yield (
                f"the declared key {said} is neither checked nor used: it is so in inner joins "
                f"whose results wait for nothing, by the column as it is in the stream"
            )
        if not self.options.adaptive:
            yield "adaptation is switched off: orders stand as written"
