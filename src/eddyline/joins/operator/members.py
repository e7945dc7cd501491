"""One bucket in one batch for several queries that share its windows.

The rows of a bucket come once and each window is kept once, as the query with the longest window
needs it. Each query has pipelines of its own. It sees of a run its columns, the rows that its
conditions pass (``MARKS``), and these for as long as its own window says (``NarrowRun``). Runs of
which all rows have left its window are not looked at.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from eddyline.joins.operator.bucket import BucketBatch
from eddyline.joins.operator.pipeline import results
from eddyline.joins.orders.probe_profiling import drop_samples
from eddyline.joins.plan import MARKS, MEMBER, MemberReport
from eddyline.state.rows import ALWAYS, NarrowRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eddyline.joins.plan import MemberPlan
    from eddyline.state.rows import SortedRun

Windows = dict[str, list["SortedRun"]]
News = dict[str, "SortedRun"]


@dataclass(slots=True)
class MemberBatch(BucketBatch):
    """The bucket of such queries in one batch; see ``BucketBatch``."""

    _seen: dict[str, tuple[Windows, News]] = field(init=False, default_factory=dict)
    """Windows and new rows as each query sees them."""

    def _results(
        self, windows: Mapping[str, Sequence[SortedRun]], news: Mapping[str, SortedRun]
    ) -> Iterator[pa.Table]:
        """Yield the results of each query in turn; ``MEMBER`` says which one a result is of."""
        for member in self.plan.members:
            started, report = time.perf_counter_ns(), MemberReport()
            self.report.members[member.name] = report
            windows_seen = {name: self._window_of(member, name, windows) for name in windows}
            news_seen = {
                name: run for name in news if len(run := _new_rows(member, name, news[name]))
            }
            self._seen[member.name] = windows_seen, news_seen
            tables = results(member.graph, member.orders, windows_seen, news_seen, report.work)
            for table in tables:
                report.n_results += table.num_rows
                number = pa.repeat(pa.scalar(member.number, pa.int32()), table.num_rows)
                yield table.append_column(MEMBER, number)
            report.ns = time.perf_counter_ns() - started

    def _profile(
        self,
        windows: Mapping[str, Sequence[SortedRun]],  # noqa: ARG002 - each query sees its part
        news: Mapping[str, SortedRun],  # noqa: ARG002
    ) -> None:
        """Look some new rows up in all windows, for each query."""
        for member in self.plan.members:
            if member.probing is not None:
                seen = self._seen[member.name]
                samples = drop_samples(member.probing, member.graph, *seen, self.plan.batch_id)
                self.report.members[member.name].samples = tuple(samples)

    def _window_of(
        self, member: MemberPlan, name: str, windows: Mapping[str, Sequence[SortedRun]]
    ) -> list[SortedRun]:
        """Return an input's runs that may hold rows for a query."""
        horizon, stays = self._horizon(name), member.stays.get(name)
        if horizon is None:
            return []
        files = self.report.after.runs.get(name, ())
        return [
            _part(member, name, run)
            for file, run in zip(files, windows[name], strict=True)
            if stays is None or file.last_start + stays >= horizon
        ]


def _part(member: MemberPlan, name: str, run: SortedRun) -> SortedRun:
    bit = 1 << member.number if name in member.marked else 0
    return NarrowRun(run, member.columns[name], member.stays.get(name), bit, MARKS)


def _new_rows(member: MemberPlan, name: str, run: SortedRun) -> SortedRun:
    """Return the new rows of an input that a query needs."""
    if name in member.marked:
        marks = run.rows.payload[MARKS].to_numpy()
        run = run.where((marks & (1 << member.number)) != 0)
    stays = None if not len(run) or run.rows.starts[0] == ALWAYS else member.stays.get(name)
    return NarrowRun(run, member.columns[name], stays)
