"""What a task does with one bucket in one batch: open its windows, join, keep the new rows.

Nothing that is there is changed: new runs get names of their own, and count once the manifest of
the batch names them.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from eddyline.joins.operator import results
from eddyline.joins.rows import Rows, SortedRun
from eddyline.joins.run_files import open_run, write_run
from eddyline.joins.upkeep import upkeep_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyarrow import fs

    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.run_files import RunFile


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """How the rows of a batch are joined; the same for every bucket."""

    graph: JoinGraph
    orders: Mapping[str, tuple[str, ...]]
    """For each input, the order in which its new rows meet the others."""
    lengths: Mapping[str, int]
    """Of each input's window (µs); FOREVER if rows never leave it by time."""
    horizons: Mapping[str, int]
    """For each input, the instant before which rows that left their window cannot join (µs)."""


@dataclass(slots=True)
class BucketBatch:
    """One bucket in one batch.

    Args:
        plan: how its rows are joined.
        files: where its runs are.
        folder: the folder with them.
        before: the runs of each input before the batch, the oldest first.
    """

    plan: BatchPlan
    files: fs.FileSystem
    folder: str
    before: Mapping[str, Sequence[RunFile]]
    after: dict[str, tuple[RunFile, ...]] = field(default_factory=dict)
    """The runs of each input after the batch; complete once the results were taken."""

    def run(self, batch: Mapping[str, Rows]) -> Iterator[pa.Table]:
        """Join the rows of the batch and keep them.

        Args:
            batch: the rows of each input that has some.

        Returns:
            The results; see ``operator.results``.

        Raises:
            OSError: a run cannot be read or written.
        """
        news = {name: SortedRun.of(rows) for name, rows in batch.items()}
        windows = {name: self._window(name) for name in self.plan.graph.inputs}
        yield from results(self.plan.graph, self.plan.orders, windows, news)
        for name, run in news.items():
            self._keep(name, run)

    def _window(self, name: str) -> list[SortedRun]:
        """Return the runs of an input that may still join, some of them made one."""
        horizon, length = self.plan.horizons[name], self.plan.lengths[name]
        upkeep = upkeep_of(self.before.get(name, ()), horizon=horizon, length=length)
        stay = {file: self._open(name, file) for file in upkeep.stay}
        if upkeep.merge:
            together = Rows.together([stay[file].rows for file in upkeep.merge])
            merged = SortedRun.of(_alive(together, horizon))
            stay = _replaced(stay, upkeep.merge, self._write(merged), merged)
        self.after[name] = tuple(stay)
        return list(stay.values())

    def _keep(self, name: str, run: SortedRun) -> None:
        horizon = self.plan.horizons[name]
        if run.rows.ends.min() < horizon:
            run = SortedRun.of(_alive(run.rows, horizon))
        if len(run):
            self.after[name] = (*self.after[name], self._write(run))

    def _open(self, name: str, file: RunFile) -> SortedRun:
        return open_run(self.files, self.folder, file.name, self.plan.graph.classes_of[name])

    def _write(self, run: SortedRun) -> RunFile:
        return write_run(self.files, self.folder, uuid.uuid4().hex, run)


def _alive(rows: Rows, horizon: int) -> Rows:
    """Return the rows that may still join."""
    return rows.taken(np.flatnonzero(rows.ends >= horizon))


def _replaced(
    runs: Mapping[RunFile, SortedRun], merged: Sequence[RunFile], file: RunFile, run: SortedRun
) -> dict[RunFile, SortedRun]:
    """Return the runs with one in the place of several."""
    found: dict[RunFile, SortedRun] = {}
    for each, opened in runs.items():
        if each == merged[0]:
            found[file] = run
        elif each not in merged:
            found[each] = opened
    return found
