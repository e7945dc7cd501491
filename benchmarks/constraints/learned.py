"""What is kept hot of windows, and what that is worth: the operator and its loops, without Spark.

Both sides do what a bucket and its driver do in a batch: rows are joined and kept, a manifest is
committed, and the loops learn of what the bucket reports; ``off`` is a join without constraints.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
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
    waiting_v1,
)
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median, spread
from eddyline.data.arrays import Ints
from eddyline.joins.arrival_order import Clusters, ValueOrders, watched
from eddyline.joins.graph import JoinGraph, UniqueKey, covers
from eddyline.joins.leaving import MonitorBudget
from eddyline.joins.operator.bucket import BucketBatch
from eddyline.joins.orders.pipelines import written_orders
from eddyline.joins.plan import CLOSED, MATCHED, PASSED, BatchPlan, BucketReport, merged_counts
from eddyline.joins.tiers import DoneChoice, TierChoice, plain_tiers
from eddyline.joins.view import JoinPart
from eddyline.state.bucket_state import BucketState
from eddyline.state.grid import Grid
from eddyline.state.manifest import ManifestFolder
from eddyline.state.rows import Rows

GRAPH = JoinGraph(("s", "t"), (frozenset("st"),))

Ratio = Callable[[dict[str, Any]], float]
"""What is told of what was measured."""


AGES = "ages"
"""The rule by which whole runs go cold, beside those by which rows do."""

RULES = frozenset({AGES, PASSED, CLOSED, MATCHED})


@dataclass
class Learner:
    """One bucket of a join with its loops.

    Args:
        folder: of its state.
        lengths: of each window (µs), by input.
        is_on: whether it has constraints.
        keys: the key class of the declared key of an input.
        graph: the join.
        rules: those by which rows may go cold.
        held: the rule by which they do whatever it takes, if any.
    """

    folder: str
    lengths: Mapping[str, int]
    is_on: bool
    keys: Mapping[str, int] = field(default_factory=dict)
    graph: JoinGraph = GRAPH
    rules: frozenset[str] = RULES
    held: str = ""
    state: BucketState = field(default_factory=BucketState)
    latest: dict[str, int] = field(default_factory=dict)
    n_results: int = 0
    checksum: int = 0
    seconds: list[float] = field(default_factory=list)
    """Processor time of each batch (s)."""
    hot: list[int] = field(default_factory=list)
    """Hot rows after each batch."""
    found: list[int] = field(default_factory=list)
    """Results of each batch."""
    cold: list[int] = field(default_factory=list)
    """Pairs of each batch of which a row was found cold."""
    n_changes: int = 0
    """Changes of plan."""
    oldest: dict[str, int] = field(default_factory=dict)
    """The greatest age of a row that was found (µs), by input."""

    def __post_init__(self) -> None:
        self.manifests = ManifestFolder(fs.LocalFileSystem(), self.folder)
        self.tiers = TierChoice(dict(self.lengths) if self.is_on else {})
        self.tiers.is_held = AGES not in self.rules
        self.done = {rule: DoneChoice(rule) for rule in (PASSED, CLOSED, MATCHED)}
        self.monitors = MonitorBudget()
        asked = watched(self.graph, self.tiers.lengths, self._single, ())
        self.orders = ValueOrders(asked)
        self.clusters = Clusters(asked, self.lengths)
        self.unique = {
            name: UniqueKey(name, "k", key, pa.int64())
            for name, key in self.keys.items()
            if self.is_on
        }

    @property
    def _single(self) -> Collection[str]:
        """The inputs whose rows may leave one by one."""
        return self.graph.inputs

    def planned(self, plan: BatchPlan) -> BatchPlan:
        """Return how a batch is joined."""
        return plan

    def task(self, plan: BatchPlan) -> BucketBatch:
        """Return the work of a batch."""
        return BucketBatch(plan, self.manifests.place("join"), self.state)

    def _rows(self, name: str, codes: Sequence[Ints], at: Ints) -> Rows:
        by_class = dict(zip(self.graph.classes_of[name], codes, strict=True))
        told = pa.table({"at": at, "k": by_class[self.keys.get(name, min(by_class))]})
        return Rows(by_class, at, at + self.lengths[name], told)

    def batch(self, arrived: Mapping[str, tuple[Ints, ...]]) -> None:
        """Join a batch."""
        inputs = self.graph.inputs
        rows = {
            name: self._rows(name, codes, at) for name, (*codes, at) in arrived.items() if at.size
        }
        number = len(self.seconds)
        started = time.process_time()
        horizons: dict[str, int | None] = {
            name: min(self.latest[other] for other in inputs if other != name)
            for name in inputs
            if self.latest.keys() | {name} >= {*inputs}
        }
        declared = {name: (each.key,) for name, each in self.unique.items()}
        mine = covers(self.graph, declared) & self.tiers.lengths.keys()
        leaving = frozenset((rule, n) for rule, loop in self.done.items() for n in loop.leaving)
        spans: dict[str, int | None] = dict.fromkeys(self.tiers.lengths)
        spans |= {name: self.lengths[name] for _, name in leaving}
        spans |= {name: span for name, span in self.tiers.plan.items() if span is not None}
        plan = BatchPlan(
            number,
            self.graph,
            written_orders(self.graph),
            self.lengths,
            {},
            horizons,
            lateness=dict.fromkeys(inputs, 0) if self.is_on else {},
            spans=spans,
            keys=self.unique,
            covers=mine,
            below=self.orders.below(),
            tops=self.orders.tops,
            closed=self.clusters.closed(self.latest),
            clusters=self.clusters.measured(self.latest),
            measures=self.monitors.may,
            leaving=leaving,
        )
        task = self.task(self.planned(plan))
        results = list(task.run(rows))
        self.state = task.report.after
        part = JoinPart(Grid((1,)), {0: self.state})
        self.manifests.commit(number, "benchmark", {"join": part.packed()})
        for name, each in rows.items():
            self.latest[name] = max(self.latest.get(name, 0), int(each.starts.max()))
        n_hot = {name: sum(of.n_rows for of in part.files(name)) for name in inputs}
        if self.is_on:
            self.monitors.step([task.report], task.report.ages)
            with self.monitors.learning():
                self._learn(task.report, n_hot, mine)
            promises = [each.promises for each in (self.tiers, self.orders, self.clusters)]
            promises += [loop.promises for loop in self.done.values()]
            self.monitors.rest(unless=any(promises))
        self.seconds.append(time.process_time() - started)
        self.hot.append(sum(n_hot.values()))
        self.cold.append(sum(each.n_cold for each in task.report.ages.values()))
        self.found.append(sum(found.num_rows for found in results))
        for found in results:
            there = [name for name in inputs if f"{name}.at" in found.column_names]
            self._sum({name: found[f"{name}.at"].to_numpy() for name in there})

    def _learn(self, report: BucketReport, n_hot: dict[str, int], mine: frozenset[str]) -> None:
        number = len(self.seconds)
        self.n_changes += len(self.tiers.step(report.ages, self.latest, number, report.n_rows))
        self.orders.step([report.disorder])
        self.clusters.step([report.spans], self.latest)
        closed = self.clusters.closed(self.latest)
        for rule, names in ((PASSED, self.orders.below()), (CLOSED, closed), (MATCHED, mine)):
            counts = merged_counts([report.done], rule)
            candidates = names if rule in self.rules else ()
            entries = self.done[rule].step(candidates, counts, n_hot, report.ns, number)
            self.n_changes += len(entries)
        if self.held:
            self.done[self.held].is_held = True
            for known in self.done[self.held].known.values():
                known.is_leaving = True

    def _sum(self, instants: dict[str, Ints]) -> None:
        last = np.maximum.reduce(list(instants.values()))
        self.n_results += last.size
        total = np.zeros(last.size, np.int64)
        for name, at in instants.items():
            total = total * 31 + at
            oldest = int((last - at).max(initial=0))
            self.oldest[name] = max(self.oldest.get(name, 0), oldest)
        self.checksum = (self.checksum + int(total.sum())) % 2**61

    @property
    def n_cold_found(self) -> int:
        """Pairs that were found in the cold tier."""
        return sum(self.tiers.n_cold.values())


def compared(
    batches: Callable[[], Batches],
    lengths: Mapping[str, int],
    *,
    keys: Mapping[str, int] | None = None,
    graph: JoinGraph = GRAPH,
    warm: int,
    held: str = "",
    join: Callable[..., Learner] = Learner,
) -> tuple[Learner, Learner, dict[str, Any]]:
    """Let a join with constraints and one without take turns, batch by batch.

    Args:
        batches: the streams.
        lengths: of the windows (µs), by input.
        keys: the key class of the declared key of an input.
        graph: the join.
        warm: batches that are not counted, in which windows fill.
        held: the rule by which rows go cold whatever it takes, if any.
        join: makes either.

    Returns:
        Both, and what was measured, as plain values.

    Raises:
        AssertionError: they answer differently.
    """
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        on = join(one, lengths, is_on=True, keys=keys or {}, graph=graph, held=held)
        off = join(other, lengths, is_on=False, graph=graph)
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
            **plain_tiers(on.tiers.spans),
            "leaving": {rule: sorted(loop.leaving) for rule, loop in on.done.items()},
        },
        "oldest_us": off.oldest,
        "n_changes": on.n_changes,
    }
    return on, off, found


def told(found: dict[str, Any]) -> str:
    """Return what was measured in words."""
    on, off = found["hot_on"], found["hot_off"]
    times = found["seconds"]
    return (
        f"{found['n_results']:,} results, equal with and without; {found['n_found_cold']:,} found "
        f"cold; hot rows {np.mean(off):,.0f} to {np.mean(on):,.0f}; mean processor time of a batch "
        f"{1e3 * np.mean(times['off']):.3g} to {1e3 * np.mean(times['on']):.3g} ms, with over "
        f"without {quartiles(found)} in half of the batches; "
        f"{'; '.join(map(str, found['plan'].values()))}"
    )


def quartiles(found: dict[str, Any]) -> str:
    """Return the spread of the time of a batch with over without constraints."""
    on, off = (np.array(found["seconds"][which]) for which in ("on", "off"))
    low, high = np.quantile(on / off, [0.25, 0.75])
    return f"{low:.3g}…{high:.3g}"


def hot_ratio(found: dict[str, Any]) -> float:
    """Return the mean of hot rows without over with constraints."""
    return float(np.mean(found["hot_off"]) / np.mean(found["hot_on"]))


def time_ratio(found: dict[str, Any]) -> float:
    """Return the time of all batches without over with constraints: merges come in few of them."""
    return float(sum(found["seconds"]["off"]) / sum(found["seconds"]["on"]))


def both(length: int) -> dict[str, int]:
    """Return the windows of ``s`` and ``t``."""
    return dict.fromkeys("st", length)


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
    return Measurement(ratio(found), told(found), found)


@cache
def _of_streams(settings: Settings, kind: str) -> dict[str, Any]:
    """Return what was measured, once for hot rows and time."""
    size, n_window = _large(settings)
    streams = {"ordered": partial(ordered_v1, size, K), "clustered": partial(clustered_v1, size, K)}
    *_, found = compared(streams[kind], both(n_window * size.n_rows * EVERY_US), warm=n_window)
    return found


def nothing(settings: Settings) -> Measurement:
    """Uniform keys, some partners for each row in a window, at any time of it."""
    size, n_window = _large(settings)
    size = Size(n_window + settings.pick(64, 24), size.n_rows // 2)
    length = n_window * size.n_rows * EVERY_US
    ratios, founds = [], []
    for seed in settings.seeds(3, 1):
        streams = partial(uniform_v1, size, n_window * size.n_rows, seed)
        *_, found = compared(streams, both(length), warm=n_window)
        ratios.append(1 / time_ratio(found))
        founds.append(found)
    note = f"ratio {spread(ratios)}; {told(founds[0])}"
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
            *_, found = compared(partial(make, size, k), both(length), warm=2 * n_window)
            needed = 2 * (max(found["oldest_us"].values()) // EVERY_US + size.n_rows)
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
    on, _, found = compared(streams, both(length), warm=size.n_batches // 4)
    return Measurement(on.n_cold_found / on.n_results, told(found), found)


def flapping(settings: Settings) -> Measurement:
    """Streams whose k jumps before a plan can pay."""
    size = Size(settings.pick(400, 120), 1_000)
    length = settings.pick(100, 60) * size.n_rows * EVERY_US
    streams = partial(jumping_v1, size, (K, 20 * K), 4)
    on, _, found = compared(streams, both(length), warm=size.n_batches // 4)
    note = f"{on.n_changes} changes of plan for {size.n_batches // 4} jumps; {told(found)}"
    return Measurement(1 / time_ratio(found), note, found)


def answered(settings: Settings, ratio: Ratio) -> Measurement:
    """Requests and one answer each, with declared keys: a fifth of the answers takes long."""
    size, n_window = _large(settings)
    length = n_window * size.n_rows * EVERY_US
    streams = partial(answered_v1, size, K, n_window * size.n_rows, 0.2)
    *_, found = compared(streams, both(length), keys={"s": 0, "t": 0}, warm=n_window)
    return Measurement(ratio(found), told(found), found)


def announced(settings: Settings, ratio: Ratio) -> Measurement:
    """Rows that ascend, and those that are announced before them, a tenth of these long before."""
    size, n_window = _large(settings)
    n_ahead = int(0.8 * n_window * size.n_rows)
    streams = partial(announced_v1, size, K, n_ahead, 0.1)
    *_, found = compared(streams, both(n_window * size.n_rows * EVERY_US), warm=n_window)
    return Measurement(ratio(found), told(found), found)


def waiting(settings: Settings, ratio: Ratio, held: str = "") -> Measurement:
    """Rows in clusters, and those that wait for them, of which one in a hundred waits long."""
    found = _waiting(settings, held)
    return Measurement(ratio(found), told(found), found)


@cache
def _waiting(settings: Settings, held: str) -> dict[str, Any]:
    """Return what was measured, once for hot rows and time."""
    size, n_window = _large(settings)
    late = int(0.8 * n_window * size.n_rows)
    streams = partial(waiting_v1, size, K, late, 0.01)
    length = n_window * size.n_rows * EVERY_US
    *_, found = compared(streams, both(length), warm=n_window, held=held)
    return found


RUNS: Runs = {
    "constraints_hot_ordered": partial(of_streams, kind="ordered", ratio=hot_ratio),
    "constraints_hot_clustered": partial(of_streams, kind="clustered", ratio=hot_ratio),
    "constraints_time_ordered": partial(of_streams, kind="ordered", ratio=time_ratio),
    "constraints_time_clustered": partial(of_streams, kind="clustered", ratio=time_ratio),
    "constraints_nothing": nothing,
    "constraints_true_k": true_k,
    "constraints_jumping": jumping,
    "constraints_flapping": flapping,
    "constraints_passed_hot": partial(announced, ratio=hot_ratio),
    "constraints_passed_time": partial(announced, ratio=time_ratio),
    "constraints_waiting_hot": partial(waiting, ratio=hot_ratio),
    "constraints_waiting_time": partial(waiting, ratio=time_ratio),
    "constraints_closed_hot": partial(waiting, ratio=hot_ratio, held=CLOSED),
    "constraints_closed_time": partial(waiting, ratio=time_ratio, held=CLOSED),
    "constraints_keys_hot": partial(answered, ratio=hot_ratio),
    "constraints_keys_time": partial(answered, ratio=time_ratio),
}
