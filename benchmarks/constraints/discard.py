"""What dropping rows costs, against a join that keeps all of them: the operator, without Spark.

Both joins get the same batches, which are blocks of 4,000 arrivals as in the source; a result is
found in the batch of its last row in both. What one finds of a batch and the other does not is what
is missing, and is compared with the bound and the estimate that are told of the batch.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import fs

from benchmarks.constraints.data import EVERY_US, Batches, Size, clustered_v1, cut, jumping_v1
from benchmarks.constraints.graphs import Graph
from benchmarks.constraints.learned import GRAPH, both
from benchmarks.constraints.thesis import ARRIVALS_A_CHILD, BATCH, FULL_AT, MADE, varying_k
from benchmarks.harness.scenario import Measurement, Runs, Settings
from eddyline.data.arrays import Ints
from eddyline.joins.arrival_order import watched
from eddyline.joins.graph import JoinGraph
from eddyline.joins.leaving import Discards, kept_text
from eddyline.joins.operator.bucket import BucketBatch
from eddyline.joins.orders.pipelines import written_orders
from eddyline.joins.plan import PASSED, BatchPlan, LostCounts
from eddyline.joins.view import JoinPart
from eddyline.state.bucket_state import BucketState
from eddyline.state.dropped_rows import BITS, DEPTH, MOST_LISTED, MOST_SLICES, SKETCH_WORDS
from eddyline.state.grid import Grid
from eddyline.state.manifest import ManifestFolder
from eddyline.state.rows import FOREVER, Rows

MOST_BYTES = MOST_SLICES * (8 * SKETCH_WORDS + max(24 * MOST_LISTED, 8 * DEPTH * 2**BITS))
"""Most that is kept of the keys of dropped rows of one input in one key class (bytes)."""


@dataclass
class Dropper:
    """One bucket of a join.

    Args:
        folder: of its state.
        graph: the join.
        lengths: of each window (µs), by input; FOREVER of one without an end.
        is_on: whether rows are dropped.
    """

    folder: str
    graph: JoinGraph
    lengths: Mapping[str, int]
    is_on: bool
    state: BucketState = field(default_factory=BucketState)
    latest: dict[str, int] = field(default_factory=dict)
    found: list[int] = field(default_factory=list)
    """Results of each batch."""
    lost: list[dict[str, LostCounts]] = field(default_factory=list)
    n_kept: list[int] = field(default_factory=list)
    """Rows that are kept after each batch."""
    n_bytes: list[int] = field(default_factory=list)
    """Size of all files of the state."""
    known_bytes: list[int] = field(default_factory=list)
    """Size of what is known of rows that were dropped."""

    def __post_init__(self) -> None:
        self.manifests = ManifestFolder(fs.LocalFileSystem(), self.folder)
        lengths = dict(self.lengths) if self.is_on else {}
        self.loop = Discards(lengths, watched(self.graph, lengths, self.graph.inputs, ()))

    def batch(self, arrived: Mapping[str, tuple[Ints, ...]]) -> None:
        """Join a batch."""
        inputs, number = self.graph.inputs, len(self.found)
        rows = {
            name: self._rows(name, codes, at) for name, (*codes, at) in arrived.items() if at.size
        }
        horizons: dict[str, int | None] = {
            name: min(self.latest[other] for other in inputs if other != name)
            for name in inputs
            if self.latest.keys() | {name} >= {*inputs}
        }
        below = self.loop.below()
        plan = BatchPlan(
            number,
            self.graph,
            written_orders(self.graph),
            self.lengths,
            {},
            horizons,
            kept_for=self.loop.kept_for,
            below=below,
            tops=self.loop.orders.tops,
            leaving=frozenset((PASSED, name) for name in below),
        )
        task = BucketBatch(plan, self.manifests.place("join"), self.state)
        self.found.append(sum(found.num_rows for found in task.run(rows)))
        self.state = task.report.after
        seen = min(self.latest.values()) if self.latest.keys() == {*inputs} else None
        self.loop.step(task.report.lost, [task.report.disorder], seen, number)
        part = JoinPart(Grid((1,)), {0: self.state}, {}, self.loop.state())
        self.manifests.commit(number, "benchmark", {"join": part.packed()})
        for name, each in rows.items():
            self.latest[name] = max(self.latest.get(name, 0), int(each.starts.max()))
        files = [file for of in self.state.runs.values() for file in of]
        self.lost.append(task.report.lost)
        self.n_kept.append(sum(file.n_rows for file in files))
        self.known_bytes.append(sum(map(part.dropped_bytes, inputs)))
        self.n_bytes.append(sum(file.n_bytes for file in files) + self.known_bytes[-1])

    def _rows(self, name: str, codes: Iterable[Ints], at: Ints) -> Rows:
        by_class = dict(zip(self.graph.classes_of[name], codes, strict=True))
        length = self.lengths[name]
        ends = np.full(at.size, FOREVER) if length == FOREVER else at + length
        return Rows(by_class, at, ends, pa.table({"at": at}))

    def sums(self, name: str) -> np.ndarray:
        """Return what was counted in each batch, of all inputs."""
        return np.array([sum(getattr(of, name) for of in each.values()) for each in self.lost])


def compared(batches: Batches, graph: JoinGraph, lengths: Mapping[str, int]) -> dict[str, Any]:
    """Return what is missing of each batch, and what is said of it."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        on = Dropper(one, graph, lengths, is_on=True)
        off = Dropper(other, graph, lengths, is_on=False)
        for arrived in batches:
            on.batch(arrived)
            off.batch(arrived)
    missing = np.array(off.found) - np.array(on.found)
    assert (missing >= 0).all(), "more was found than there is"
    most, about = on.sums("n_most"), on.sums("n_about")
    return {
        "found": off.found,
        "missing": missing.tolist(),
        "most": most.tolist(),
        "about": about.tolist(),
        "n_below": int((most < missing).sum()),
        "kept": on.n_kept,
        "kept_off": off.n_kept,
        "bytes": on.n_bytes,
        "bytes_off": off.n_bytes,
        "known_bytes": on.known_bytes,
        "plan": _kept(on.loop),
    }


def _kept(loop: Discards) -> dict[str, str]:
    """Return for how long rows of each input are kept."""
    return {name: kept_text(name, each.kept_for) for name, each in loop.known.items()}


def _told(found: dict[str, Any]) -> str:
    """Return what was measured in words."""
    missing, most, about = (sum(found[name]) for name in ("missing", "most", "about"))
    half = len(found["kept"]) // 2
    return (
        f"{missing:,} of {sum(found['found']):,} results missing, told: at most {most:,}, about "
        f"{about:,.0f}; {np.mean(found['kept_off'][half:]):,.0f} rows kept without and "
        f"{np.mean(found['kept'][half:]):,.0f} with, {found['known_bytes'][-1] / 2**20:.3g} MiB "
        f"known of dropped ones; {'; '.join(found['plan'].values())}"
    )


@cache
def _varying(settings: Settings, kind: str) -> dict[str, Any]:
    n = settings.pick(800_000, 200_000) // ARRIVALS_A_CHILD[kind]
    return _of_graph(MADE[kind](varying_k(n)))


def _of_graph(graph: Graph) -> dict[str, Any]:
    batches = cut(graph.streams, graph.n_arrivals // BATCH)
    return compared(batches, graph.join, graph.lengths)


def varying(settings: Settings, kind: str) -> Measurement:
    """The worst block of 4,000 arrivals (Figs 6.11, 6.13 and 6.15)."""
    found = _varying(settings, kind)
    missing, whole = np.array(found["missing"]), np.array(found["found"])
    shares = missing[whole > 0] / whole[whole > 0]
    note = f"{int((missing > 0).sum())} of {shares.size} blocks lack any; {_told(found)}"
    return Measurement(float(shares.max()), note, found)


@cache
def _holding(settings: Settings, kind: str) -> dict[str, Any]:
    n_arrivals = settings.pick(FULL_AT[kind], 160_000)
    return _of_graph(MADE[kind](np.full(n_arrivals // ARRIVALS_A_CHILD[kind], 5_000)))


def holding(settings: Settings) -> Measurement:
    """Results that are missing where k is 5,000 all the time, of three graphs."""
    found = {kind: _holding(settings, kind) for kind in ("rids", "ca", "oap")}
    note = "; ".join(f"{kind}: {_told(each)}" for kind, each in found.items())
    return Measurement(float(sum(sum(each["missing"]) for each in found.values())), note, found)


@cache
def _jumping(settings: Settings) -> dict[str, Any]:
    """A k that jumps between 1,000 and 20,000 rows, without windows: sketches, in the end."""
    size = Size(settings.pick(400, 120), BATCH // 2)
    streams = jumping_v1(size, (1_000, 20_000), 20)
    return compared(streams, GRAPH, both(FOREVER))


def jumping(settings: Settings) -> Measurement:
    """The bound over what is missing, where k jumps twenty times up and down, without windows."""
    found = _jumping(settings)
    return Measurement(sum(found["most"]) / max(sum(found["missing"]), 1), _told(found), found)


def estimated(settings: Settings) -> Measurement:
    """The estimate over what is missing, of the same streams."""
    found = _jumping(settings)
    return Measurement(sum(found["about"]) / max(sum(found["missing"]), 1), _told(found), found)


def below(settings: Settings) -> Measurement:
    """Blocks of which more is missing than the bound that was told, in all of these."""
    found = {f"{kind} varying": _varying(settings, kind) for kind in ("rids", "ca", "oap")}
    found |= {f"{kind} holding": _holding(settings, kind) for kind in ("rids", "ca", "oap")}
    found["jumping"] = _jumping(settings)
    n = sum(len(each["missing"]) for each in found.values())
    note = f"of {n:,} blocks; " + "; ".join(
        f"{name}: {sum(each['missing']):,} missing, at most {sum(each['most']):,} told"
        for name, each in found.items()
    )
    counts = {name: each["n_below"] for name, each in found.items()}
    return Measurement(float(sum(counts.values())), note, counts)


def unbounded(settings: Settings) -> Measurement:
    """What is known of dropped rows over the most that may be kept of them, without windows."""
    size = Size(settings.pick(1_000, 200), BATCH // 2)
    graph, lengths = GRAPH, both(FOREVER)
    with tempfile.TemporaryDirectory() as folder:
        on = Dropper(folder, graph, lengths, is_on=True)
        for arrived in clustered_v1(size, 1_000):
            on.batch(arrived)
    most = len(graph.inputs) * MOST_BYTES
    parts = np.array_split(np.array(on.n_bytes) / 2**20, 10)
    grown = ", ".join(f"{part.max():.3g}" for part in parts)
    note = (
        f"most MiB of state in each tenth of {size.n_batches * 2 * size.n_rows:,} arrivals: "
        f"{grown}; rows kept {max(on.n_kept[20:]):,} at most; {'; '.join(_kept(on.loop).values())}"
    )
    found = {"bytes": on.n_bytes, "known_bytes": on.known_bytes, "kept": on.n_kept}
    return Measurement(max(on.known_bytes) / most, note, {**found, "every_us": EVERY_US})


RUNS: Runs = {
    "constraints_discard_rids_varying": partial(varying, kind="rids"),
    "constraints_discard_ca_varying": partial(varying, kind="ca"),
    "constraints_discard_oap_varying": partial(varying, kind="oap"),
    "constraints_discard_holding": holding,
    "constraints_discard_below": below,
    "constraints_discard_bound": jumping,
    "constraints_discard_estimate": estimated,
    "constraints_discard_unbounded": unbounded,
}
