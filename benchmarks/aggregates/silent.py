"""What groups that do not come any more cost a batch: one bucket, without Spark.

UNBOUNDED windows and sessions keep a cell for each group that ever came, or that may go on. Batches
of groups that do come are timed with and without a million others beside them, in turns. ``coming``
has, in each batch, as many rows of groups that never come again, so that what is kept grows, and
is merged.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import fs

from benchmarks.constraints.data import mixed
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median, spread
from eddyline.aggregates.bucket import BucketBatch
from eddyline.aggregates.cells import CHECK, CODE
from eddyline.aggregates.changes import ChangeBatch
from eddyline.aggregates.plan import AggregatePlan, BucketState, Partials
from eddyline.aggregates.windows import SessionBatch
from eddyline.data.arrays import Ints
from eddyline.query.query import Emits, SessionWindow, UnboundedWindow, Window
from eddyline.state.manifest import StatePlace
from eddyline.state.rows import ALWAYS, Rows

N_ACTIVE = 1_000
"""Rows of a batch, each of a group of its own that comes in every batch."""

BATCH_US = 1_000_000

PARTIALS = Partials({"n": "count", "most": "max"})

KINDS: dict[str, tuple[type[BucketBatch], Window]] = {
    "unbounded": (ChangeBatch, UnboundedWindow()),
    "sessions": (SessionBatch, SessionWindow(2**50)),
}
"""By name; the gap is so long that all sessions stay open."""


@dataclass
class Bucket:
    """One bucket, whose batches are timed and whose rows are counted."""

    kind: str
    folder: str
    state: BucketState = field(default_factory=BucketState)
    before: int = ALWAYS
    seconds: list[float] = field(default_factory=list)
    """Processor time of each batch (s)."""
    n_read: list[int] = field(default_factory=list)
    """Cells of before that each batch read."""
    n_written: list[int] = field(default_factory=list)
    """Cells that each batch wrote, merges included."""

    def __post_init__(self) -> None:
        self.place = StatePlace(fs.LocalFileSystem(), self.folder, "q")
        self.place.files.create_dir(self.place.runs)

    def batch(self, groups: Ints) -> None:
        """Answer a batch with a row of each of some groups."""
        task_of, window = KINDS[self.kind]
        number = len(self.seconds)
        starts = number * BATCH_US + np.arange(groups.size)
        ones = pa.array(np.ones(groups.size, np.int64))
        payload = pa.table({"g": pa.array(groups), "n": ones, "most": pa.array(starts)})
        codes = mixed(groups)
        arrived = Rows({CODE: codes, CHECK: groups}, starts, starts, payload)
        after = (number + 1) * BATCH_US
        emits: Emits | None = "istream" if self.kind == "unbounded" else None
        plan = AggregatePlan(self.before, after, ("g",), PARTIALS, window, emits)
        started = time.process_time()
        task = task_of(plan, self.place, self.state, 0)
        for _ in task.run(arrived):
            pass
        self.seconds.append(time.process_time() - started)
        known = {file.name for file in self.state.files}
        after_files = task.report.after.files
        self.n_written.append(sum(of.n_rows for of in after_files if of.name not in known))
        self.n_read.append(task.report.profile.n_read)
        self.state, self.before = task.report.after, after

    @property
    def n_kept(self) -> int:
        """Cells that are kept."""
        return sum(file.n_rows for file in self.state.files)


def _coming(n_batches: int, new: int) -> Iterator[Ints]:
    for number in range(n_batches):
        fresh = 2**40 + number * new + np.arange(new)
        yield np.concatenate([np.arange(N_ACTIVE), fresh])


@cache
def _found(settings: Settings, kind: str) -> dict[str, Any]:
    """Return what was measured of buckets with and without silent groups, in turns."""
    n_silent, n_batches = settings.pick(1_000_000, 100_000), settings.pick(200, 40)
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        buckets = {"alone": Bucket(kind, one), "beside": Bucket(kind, other)}
        for part in np.array_split(2**50 + np.arange(n_silent), 10):
            buckets["beside"].batch(part)
            buckets["alone"].batch(np.arange(N_ACTIVE))
        for number, groups in enumerate(_coming(n_batches, 0)):
            names = list(buckets) if number % 2 else list(reversed(buckets))
            for name in names:
                buckets[name].batch(groups)
        kept = {name: each.n_kept for name, each in buckets.items()}
        found = {name: _plain(each, n_batches // 10) for name, each in buckets.items()}
        grown = Bucket(kind, one + "/grown")
        for groups in _coming(n_batches, N_ACTIVE):
            grown.batch(groups)
        found["coming"] = _plain(grown, n_batches // 10)
    return {**found, "n_kept": kept}


def _plain(of: Bucket, warm: int) -> dict[str, Any]:
    first = 10 + warm
    return {
        "seconds": of.seconds[first:],
        "n_read": of.n_read[first:],
        "n_written": of.n_written[first:],
    }


def silent(settings: Settings, kind: str) -> Measurement:
    """The median batch beside a million silent groups over that of one without them."""
    found = _found(settings, kind)
    pairs = zip(found["beside"]["seconds"], found["alone"]["seconds"], strict=True)
    ratios = [one / other for one, other in pairs]
    whole = sum(found["beside"]["seconds"]) / sum(found["alone"]["seconds"])
    note = "; ".join(
        f"{name}: {1e3 * median(found[name]['seconds']):.3g} ms, "
        f"{np.mean(found[name]['n_read']):,.0f} cells read, "
        f"{np.mean(found[name]['n_written']):,.0f} written"
        for name in ("alone", "beside", "coming")
    )
    quartiles = spread(np.quantile(ratios, [0.25, 0.75]))
    note = (
        f"{found['n_kept']['beside']:,} kept; {note}; middle half {quartiles}, all batches "
        f"{whole:.3f}"
    )
    return Measurement(median(ratios), note, found)


RUNS: Runs = {f"aggregates_silent_{kind}": partial(silent, kind=kind) for kind in KINDS}
