"""What is kept hot of windows, and what that is worth: the operator and its loops, without Spark.

Both sides do what a bucket and its driver do in a batch: rows are joined and kept, a manifest is
committed, and the loops learn of what the bucket reports; ``off`` is a join without constraints.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from benchmarks.constraints.data import (
    EVERY_US,
    Batches,
    Size,
    announced_v1,
    answered_v1,
    clustered_v1,
    jumping_v1,
    ordered_v1,
    uniform_v1,
)
from benchmarks.harness.needs import data_folder
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median, spread
from eddyline.data.arrays import Ints
from eddyline.joins.done_loop import DoneLoop
from eddyline.joins.graph import JoinGraph
from eddyline.joins.loop import written_orders
from eddyline.joins.monitor_budget import MonitorBudget
from eddyline.joins.operator.bucket import BucketBatch
from eddyline.joins.operator.done_rows import MATCHED, PASSED, merged_counts
from eddyline.joins.plan import BatchPlan, BucketReport
from eddyline.joins.state_part import JoinPart
from eddyline.joins.tier_loop import TierLoop
from eddyline.joins.unique_keys import UniqueKey, covers
from eddyline.joins.value_order import ValueOrders, watched
from eddyline.state.bucket_state import BucketState
from eddyline.state.grid import Grid
from eddyline.state.manifest import ManifestFolder
from eddyline.state.rows import Rows

GRAPH = JoinGraph(("s", "t"), (frozenset("st"),))

HOUR_US = 3_600_000_000

Ratio = Callable[[dict[str, Any]], float]
"""What is told of what was measured."""


@dataclass
class Learner:
    """One bucket of a join of ``s`` and ``t`` with its loops.

    Args:
        folder: of its state.
        length: of both windows (µs).
        is_on: whether it has constraints.
        keys: the inputs whose key was declared.
    """

    folder: str
    length: int
    is_on: bool
    keys: frozenset[str] = frozenset()
    state: BucketState = field(default_factory=BucketState)
    latest: dict[str, int] = field(default_factory=dict)
    n_results: int = 0
    checksum: int = 0
    seconds: list[float] = field(default_factory=list)
    """Processor time of each batch (s)."""
    hot: list[int] = field(default_factory=list)
    """Hot rows after each batch."""
    longest: int = 0
    """The greatest age of a row that was found (µs)."""

    def __post_init__(self) -> None:
        self.manifests = ManifestFolder(fs.LocalFileSystem(), self.folder)
        self.tiers = TierLoop(dict.fromkeys("st", self.length) if self.is_on else {})
        self.done = {rule: DoneLoop(rule) for rule in (PASSED, MATCHED)}
        self.monitors = MonitorBudget()
        self.orders = ValueOrders(watched(GRAPH, self.tiers.lengths, "st", ()))
        self.unique = {
            name: UniqueKey(name, "k", 0, pa.int64()) for name in self.keys if self.is_on
        }

    def batch(self, arrived: dict[str, tuple[Ints, Ints]]) -> None:
        """Join a batch."""
        rows = {
            name: Rows({0: keys}, at, at + self.length, pa.table({"at": at, "k": keys}))
            for name, (keys, at) in arrived.items()
            if at.size
        }
        number = len(self.seconds)
        started = time.process_time()
        horizons: dict[str, int | None] = {
            name: self.latest[other]
            for name, other in (("s", "t"), ("t", "s"))
            if other in self.latest
        }
        mine = covers(GRAPH, dict.fromkeys(self.unique, (0,))) & self.tiers.lengths.keys()
        leaving = frozenset((rule, n) for rule, loop in self.done.items() for n in loop.leaving)
        spans: dict[str, int | None] = dict.fromkeys(self.tiers.lengths)
        spans |= {name: self.length for _, name in leaving}
        spans |= {name: span for name, span in self.tiers.plan.items() if span is not None}
        plan = BatchPlan(
            number,
            GRAPH,
            written_orders(GRAPH),
            dict.fromkeys("st", self.length),
            {},
            horizons,
            spans=spans,
            keys=self.unique,
            covers=mine,
            below=self.orders.below(),
            tops=self.orders.tops,
            measures=self.monitors.may,
            leaving=leaving,
        )
        task = BucketBatch(plan, self.manifests.place("join"), self.state)
        results = list(task.run(rows))
        self.state = task.report.after
        part = JoinPart(Grid((1,)), {0: self.state})
        self.manifests.commit(number, "benchmark", {"join": part.packed()})
        for name, each in rows.items():
            self.latest[name] = max(self.latest.get(name, 0), int(each.starts.max()))
        if self.is_on:
            self.monitors.step([task.report], task.report.ages)
            with self.monitors.learning():
                self._learn(task.report, part, mine)
        self.seconds.append(time.process_time() - started)
        self.hot.append(sum(of.n_rows for name in "st" for of in part.files(name)))
        for found in results:
            self._sum(found["s.at"].to_numpy(), found["t.at"].to_numpy())

    def _learn(self, report: BucketReport, part: JoinPart, mine: frozenset[str]) -> None:
        number = len(self.seconds)
        self.tiers.step(report.ages, self.latest, number)
        n_hot = {name: sum(of.n_rows for of in part.files(name)) for name in "st"}
        self.orders.step([report.disorder])
        for rule, names in ((PASSED, self.orders.below()), (MATCHED, mine)):
            counts = merged_counts([report.done], rule)
            self.done[rule].step(names, counts, n_hot, report.ns, number)

    def _sum(self, one: Ints, other: Ints) -> None:
        self.n_results += one.size
        self.checksum = (self.checksum + int((one * 31 + other).sum())) % 2**61
        self.longest = max(self.longest, int(np.abs(one - other).max(initial=0)))

    @property
    def n_cold_found(self) -> int:
        """Pairs that were found in the cold tier."""
        return sum(self.tiers.n_cold.values())


def compared(
    batches: Callable[[], Batches], length: int, *, keys: Iterable[str] = (), warm: int
) -> tuple[Learner, Learner, dict[str, Any]]:
    """Let a join with constraints and one without take turns, batch by batch.

    Args:
        batches: the streams.
        length: of the windows (µs).
        keys: the inputs whose key is declared.
        warm: batches that are not counted, in which windows fill.

    Returns:
        Both, and what was measured, as plain values.

    Raises:
        AssertionError: they answer differently.
    """
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        on = Learner(one, length, is_on=True, keys=frozenset(keys))
        off = Learner(other, length, is_on=False)
        for number, arrived in enumerate(batches()):
            for each in (on, off) if number % 2 else (off, on):
                each.batch(arrived)
    assert (on.n_results, on.checksum) == (off.n_results, off.checksum), "answers differ"
    timed = {name: each.seconds[warm:] for name, each in (("on", on), ("off", off))}
    found = {
        "hot_on": on.hot[warm:],
        "hot_off": off.hot[warm:],
        "seconds": timed,
        "n_results": on.n_results,
        "n_found_cold": on.n_cold_found,
        "plan": {
            **on.tiers.plain(),
            "leaving": {rule: sorted(loop.leaving) for rule, loop in on.done.items()},
        },
        "farthest_us": off.longest,
    }
    return on, off, found


def _told(found: dict[str, Any]) -> str:
    on, off = found["hot_on"], found["hot_off"]
    times = found["seconds"]
    return (
        f"{found['n_results']:,} results, equal with and without; {found['n_found_cold']:,} found "
        f"cold; hot rows {np.mean(off):,.0f} to {np.mean(on):,.0f}; mean processor time of a batch "
        f"{1e3 * np.mean(times['off']):.3g} to {1e3 * np.mean(times['on']):.3g} ms; "
        f"{'; '.join(map(str, found['plan'].values()))}"
    )


def hot_ratio(found: dict[str, Any]) -> float:
    """Return the mean of hot rows without over with constraints."""
    return float(np.mean(found["hot_off"]) / np.mean(found["hot_on"]))


def time_ratio(found: dict[str, Any]) -> float:
    """Return the time of all batches without over with constraints: merges come in few of them."""
    return float(sum(found["seconds"]["off"]) / sum(found["seconds"]["on"]))


# -- known k --------------------------------------------------------------------------------------

K = 1_000
WINDOW_BATCHES = 100


def _large(settings: Settings) -> tuple[Size, int]:
    n_rows = settings.pick(20_000, 2_000)
    n_window = settings.pick(WINDOW_BATCHES, 40)
    return Size(n_window + settings.pick(64, 24), n_rows), n_window


def of_streams(settings: Settings, kind: str, ratio: Ratio) -> Measurement:
    """Windows of many batches over streams with k = 1,000."""
    found = _of_streams(settings, kind)
    return Measurement(ratio(found), _told(found), found)


@cache
def _of_streams(settings: Settings, kind: str) -> dict[str, Any]:
    """Return what was measured, once for hot rows and time."""
    size, n_window = _large(settings)
    streams = {"ordered": partial(ordered_v1, size, K), "clustered": partial(clustered_v1, size, K)}
    *_, found = compared(streams[kind], n_window * size.n_rows * EVERY_US, warm=n_window)
    return found


def nothing(settings: Settings) -> Measurement:
    """Uniform keys, some partners for each row in a window, at any time of it."""
    size, n_window = _large(settings)
    size = Size(n_window + settings.pick(64, 24), size.n_rows // 2)
    length = n_window * size.n_rows * EVERY_US
    ratios, founds = [], []
    for seed in settings.seeds(3, 1):
        streams = partial(uniform_v1, size, n_window * size.n_rows, seed)
        *_, found = compared(streams, length, warm=n_window)
        ratios.append(1 / time_ratio(found))
        founds.append(found)
    note = f"ratio {spread(ratios)}; {_told(founds[0])}"
    return Measurement(median(ratios), note, {"runs": founds})


def true_k(settings: Settings) -> Measurement:
    """Hot rows over those that are as young as the oldest partner was, and one batch.

    What is in a batch is there until its end, whatever k is; batches are small beside k.
    """
    worst, notes, details = 0.0, [], {}
    for kind, make in (("ordered", ordered_v1), ("clustered", clustered_v1)):
        for k in (K, 4 * K, 16 * K)[: settings.pick(3, 2)]:
            size = Size(settings.pick(1_200, 300), max(k // 10, 100))
            n_window = size.n_batches // 3
            length = n_window * size.n_rows * EVERY_US
            *_, found = compared(partial(make, size, k), length, warm=2 * n_window)
            needed = 2 * (found["farthest_us"] // EVERY_US + size.n_rows)
            value = float(np.mean(found["hot_on"]) / needed)
            notes.append(f"{kind} k = {k:,}: {np.mean(found['hot_on']):,.0f} of {needed:,} needed")
            details[f"{kind} {k}"] = {**found, "needed": needed}
            worst = max(worst, value)
    return Measurement(worst, "; ".join(notes), details)


def jumping(settings: Settings) -> Measurement:
    """Pairs that are found cold, of all pairs, where k jumps between 1,000 and 20,000 rows."""
    size = Size(settings.pick(400, 120), 1_000)
    length = settings.pick(100, 60) * size.n_rows * EVERY_US
    streams = partial(jumping_v1, size, (K, 20 * K), 20)
    on, _, found = compared(streams, length, warm=size.n_batches // 4)
    return Measurement(on.n_cold_found / on.n_results, _told(found), found)


def answered(settings: Settings, ratio: Ratio) -> Measurement:
    """Requests and one answer each, with declared keys: a fifth of the answers takes long."""
    size, n_window = _large(settings)
    length = n_window * size.n_rows * EVERY_US
    streams = partial(answered_v1, size, K, n_window * size.n_rows, 0.2)
    *_, found = compared(streams, length, keys="st", warm=n_window)
    return Measurement(ratio(found), _told(found), found)


def announced(settings: Settings, ratio: Ratio) -> Measurement:
    """Rows that ascend, and those that are announced before them, a tenth of these long before."""
    size, n_window = _large(settings)
    n_ahead = int(0.8 * n_window * size.n_rows)
    streams = partial(announced_v1, size, K, n_ahead, 0.1)
    *_, found = compared(streams, n_window * size.n_rows * EVERY_US, warm=n_window)
    return Measurement(ratio(found), _told(found), found)


# -- real rows ------------------------------------------------------------------------------------


def _cut(streams: dict[str, tuple[Ints, Ints]], n_batches: int) -> Batches:
    """Yield streams in batches of equal event time."""
    first = min(int(at[0]) for _, at in streams.values())
    last = max(int(at[-1]) for _, at in streams.values())
    ends = np.linspace(first, last + 1, n_batches + 1)
    for low, high in pairwise(ends):
        found = {}
        for name, (keys, at) in streams.items():
            one, other = np.searchsorted(at, [low, high])
            found[name] = (keys[one:other], at[one:other])
        yield found


def orders(settings: Settings, ratio: Ratio) -> Measurement:
    """Orders of a day of ticks, and the message that deletes each; by their numbers, as keys."""
    table = pq.read_table(data_folder() / "ticks/messages.parquet")
    at = table["ts"].cast(pa.int64()).to_numpy() // 1_000
    kind, keys = table["type"].to_numpy(), table["order_id"].to_numpy()
    symbols = np.unique(table["symbol"].to_numpy(zero_copy_only=False), return_inverse=True)[1]
    keys = keys * 8 + symbols
    streams = {}
    for name, code in (("s", 1), ("t", 3)):
        mine = np.flatnonzero(kind == code)
        mine = mine[np.argsort(at[mine], kind="stable")]
        _, firsts = np.unique(keys[mine], return_index=True)
        mine = mine[np.sort(firsts)]
        streams[name] = (keys[mine], at[mine])
    n_batches = settings.pick(390, 130)
    *_, found = compared(
        partial(_cut, streams, n_batches), 2 * HOUR_US, keys="st", warm=n_batches // 3
    )
    return Measurement(ratio(found), _told(found), found)


def vessels(settings: Settings, ratio: Ratio) -> Measurement:
    """Positions of vessels that lie and of those that move, by vessel, of two hours."""
    table = pq.read_table(data_folder() / "vessels/ais_2022-01-03_sample.parquet")
    at = table["BaseDateTime"].cast(pa.int64()).to_numpy()
    order = np.argsort(at, kind="stable")
    at, keys = at[order], table["MMSI"].to_numpy()[order]
    moves = table["SOG"].to_numpy()[order] > 1
    streams = {"s": (keys[moves], at[moves]), "t": (keys[~moves], at[~moves])}
    n_batches = settings.pick(288, 96)
    *_, found = compared(partial(_cut, streams, n_batches), 2 * HOUR_US, warm=n_batches // 4)
    return Measurement(ratio(found), _told(found), found)


RUNS: Runs = {
    "constraints_hot_ordered": partial(of_streams, kind="ordered", ratio=hot_ratio),
    "constraints_hot_clustered": partial(of_streams, kind="clustered", ratio=hot_ratio),
    "constraints_time_ordered": partial(of_streams, kind="ordered", ratio=time_ratio),
    "constraints_time_clustered": partial(of_streams, kind="clustered", ratio=time_ratio),
    "constraints_nothing": nothing,
    "constraints_true_k": true_k,
    "constraints_jumping": jumping,
    "constraints_passed_hot": partial(announced, ratio=hot_ratio),
    "constraints_passed_time": partial(announced, ratio=time_ratio),
    "constraints_keys_hot": partial(answered, ratio=hot_ratio),
    "constraints_keys_time": partial(answered, ratio=time_ratio),
    "constraints_orders_hot": partial(orders, ratio=hot_ratio),
    "constraints_orders_time": partial(orders, ratio=time_ratio),
    "constraints_vessels_hot": partial(vessels, ratio=hot_ratio),
    "constraints_vessels_time": partial(vessels, ratio=time_ratio),
}
