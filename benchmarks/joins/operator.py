"""The join operator by itself: Arrow in, Arrow out, windows in files, no Spark.

What a bucket does in a batch is timed as ``BucketBatch`` does it: open the windows, join, write the
new rows as runs; and the manifest that a driver commits after it. DuckDB joins the same rows once,
from tables that are in its memory, and hands the results over as Arrow.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from pyarrow import fs

from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.timing import Times, paired_ratio
from benchmarks.joins.data import (
    NAMES,
    T0_US,
    batch_v1,
    hot_keys,
    skewed_batches_v1,
    times_of,
    uniform_batches_v1,
)
from benchmarks.joins.streams import FACTORS, PRIME
from eddyline.data.arrays import Ints
from eddyline.joins.graph import JoinGraph
from eddyline.joins.grid import chosen_grid
from eddyline.joins.operator.bucket import BucketBatch
from eddyline.joins.orders.pipelines import written_orders
from eddyline.joins.plan import BatchPlan, BucketReport
from eddyline.joins.view import JoinPart
from eddyline.state.bucket_state import FAN_IN, BucketState
from eddyline.state.grid import N_BINS, Grid, bins_of
from eddyline.state.manifest import ManifestFolder
from eddyline.state.rows import Rows, SortedRun
from eddyline.state.run_files import RunFile, write_run

FOREVER = np.iinfo(np.int64).max
SECOND_US = 1_000_000


def graph_of(names: Sequence[str]) -> JoinGraph:
    """Return the graph of streams that are joined by one key."""
    return JoinGraph(tuple(names), (frozenset(names),))


def rows_of(table: pa.Table, length: int, payload: Sequence[str] = ("id", "k", "v")) -> Rows:
    """Return the rows of a table with ``ts`` and ``k`` as the operator takes them."""
    starts = table["ts"].cast(pa.int64()).to_numpy()
    ends = np.full(starts.size, FOREVER) if length == FOREVER else starts + length
    return Rows({0: table["k"].to_numpy()}, starts, ends, table.select(list(payload)))


@dataclass
class Operator:
    """One bucket and the driver's half of its batches: what is late, what can go, the manifest.

    Args:
        names: the streams, joined by one key.
        length: of their windows (µs).
        folder: of the window state.
        checks_expiry: False says of every window that nothing leaves it, whatever its length.
    """

    names: Sequence[str]
    length: int
    folder: str
    checks_expiry: bool = True
    sums: bool = False
    """Whether the ids of results are summed up: for a run that is not timed."""
    checksum: int = 0
    state: BucketState = field(default_factory=BucketState)
    """The windows of the bucket; empty ones if omitted."""
    latest: dict[str, int] = field(default_factory=dict)
    batch_id: int = 0

    def __post_init__(self) -> None:
        self.manifests = ManifestFolder(fs.LocalFileSystem(), self.folder)
        self.graph = graph_of(self.names)
        self.orders = written_orders(self.graph)

    def batch(self, tables: Mapping[str, pa.Table]) -> tuple[int, BucketReport]:
        """Join the rows of a batch; returns the number of results, each of them gathered."""
        lows = dict(self.latest) if self.checks_expiry else {}
        horizons: dict[str, int | None] = {}
        for name in self.names:
            others = [low for other, low in lows.items() if other != name]
            if others:
                horizons[name] = min(others)
        lengths = dict.fromkeys(self.names, self.length)
        plan = BatchPlan(self.batch_id, self.graph, self.orders, lengths, lows, horizons)
        task = BucketBatch(plan, self.manifests.place("join"), self.state, bucket=0)
        news = {name: rows_of(table, self.length) for name, table in tables.items()}
        n_results = 0
        for found in task.run(news):
            n_results += found.num_rows
            self.checksum += self._sum(found) if self.sums else 0
        for name, rows in news.items():
            self.latest[name] = int(rows.starts.max())
        self.state = task.report.after
        part = JoinPart(Grid((1,)), {0: self.state})
        self.manifests.commit(self.batch_id, "benchmark", {"join": part.packed()})
        self.batch_id += 1
        return n_results, task.report

    def _sum(self, found: pa.Table) -> int:
        ids = [
            found[f"{name}.id"].to_numpy() * by
            for name, by in zip(self.names, FACTORS, strict=False)
        ]
        return int((np.sum(ids, axis=0) % PRIME).sum())


# -- beside DuckDB --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Workload:
    """Three streams of ten batches, joined by one key."""

    n_rows: int
    """Of each stream, in all batches."""
    n_keys: int
    length: int
    """Of the windows (µs)."""

    N_BATCHES = 10
    NAMES = NAMES[:3]

    def batches(self) -> list[dict[str, pa.Table]]:
        """Return the rows of each batch, by stream."""
        per_batch = self.n_rows // self.N_BATCHES
        return uniform_batches_v1(3, self.N_BATCHES, per_batch, self.n_keys, 10 * SECOND_US)

    def duckdb_text(self) -> str:
        """Return the join as DuckDB does it fastest: what can be said of two inputs, at once."""
        pairs = {"t": ("s",), "u": ("s", "t")}
        steps = []
        for name, others in pairs.items():
            on = [f"s.k = {name}.k"]
            if self.length != FOREVER:
                on += [f"abs({name}.us - {other}.us) <= {self.length}" for other in others]
            steps.append(f"JOIN {name} ON {' AND '.join(on)}")
        columns = ", ".join(f"{name}.{c} AS {name}_{c}" for name in self.NAMES for c in "kv")
        starts = "greatest(s.us, t.us, u.us) AS _start, least(s.us, t.us, u.us) AS _end"
        ids = ", ".join(f"{name}.id AS {name}_id" for name in self.NAMES)
        return f"SELECT {ids}, {columns}, {starts} FROM s {' '.join(steps)}"


def one_bucket(
    workload: Workload, part: int, n_parts: int, barrier: Any, sums: bool
) -> dict[str, Any]:
    """Time one bucket of several over ten batches, in a process of its own."""
    batches = workload.batches()
    if n_parts > 1:
        batches = [
            {
                name: table.filter(pa.array(bins_of(table["k"].to_numpy()) % n_parts == part))
                for name, table in tables.items()
            }
            for tables in batches
        ]
    _warm_up(workload)
    with tempfile.TemporaryDirectory() as folder:
        operator = Operator(workload.NAMES, workload.length, folder, sums=sums)
        barrier.wait()
        started = time.perf_counter()
        n_results = sum(operator.batch(tables)[0] for tables in batches)
        ended = time.perf_counter()
    answer = n_results, operator.checksum
    return {"answer": answer, "started": started, "ended": ended}


def _warm_up(workload: Workload) -> None:
    with tempfile.TemporaryDirectory() as folder:
        operator = Operator(workload.NAMES, workload.length, folder)
        for tables in Workload(10_000, 1_000, workload.length).batches():
            operator.batch(tables)


def _buckets(workload: Workload, n_parts: int, *, sums: bool = False) -> tuple[float, list[int]]:
    """Return the time that buckets in processes of their own take together (s), and the answer."""
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, context.Pool(n_parts) as pool:
        barrier = manager.Barrier(n_parts)
        tasks = [(workload, part, n_parts, barrier, sums) for part in range(n_parts)]
        found = pool.starmap(one_bucket, tasks, chunksize=1)
    seconds = max(each["ended"] for each in found) - min(each["started"] for each in found)
    return seconds, np.sum([each["answer"] for each in found], axis=0).tolist()


def _duckdb_answer(connection: Any, workload: Workload) -> list[int]:
    ids = " + ".join(f"{name}_id * {by}" for name, by in zip(workload.NAMES, FACTORS, strict=False))
    text = f"SELECT count(*), sum(({ids}) % {PRIME}) FROM ({workload.duckdb_text()})"
    (row,) = connection.sql(text).fetchall()
    return [int(each) for each in row]


def _against_duckdb(workload: Workload, cores: int, n_runs: int) -> dict[str, Any]:
    """Time buckets and DuckDB in turns, on as many cores; the first round compares answers."""
    ours, theirs = [], []
    with duckdb.connect(config={"threads": cores}) as connection:
        for name in workload.NAMES:
            rows = pa.concat_tables([batch[name] for batch in workload.batches()])
            connection.register("rows", rows)
            made = "SELECT id, epoch_us(ts) AS us, k, v FROM rows"
            connection.execute(f"CREATE TABLE {name} AS {made}")
        _, found = _buckets(workload, cores, sums=True)
        wanted = _duckdb_answer(connection, workload)
        assert found == wanted, f"other answers: {found} and {wanted}"
        for _ in range(n_runs):
            ours.append(_buckets(workload, cores)[0])
            started = time.perf_counter()
            connection.sql(workload.duckdb_text()).to_arrow_table()
            theirs.append(time.perf_counter() - started)
    return {"eddyline": ours, "DuckDB": theirs, "n_results": found[0]}


def beside_duckdb(settings: Settings, per_key: int, length: int) -> Measurement:
    """The lesser of the ratios on one core and on two.

    Args:
        settings: how much is run.
        per_key: rows of a stream that have the same key, on average.
        length: of the windows (µs).
    """
    n_rows, n_runs = settings.pick(1_000_000, 100_000), settings.pick(5, 2)
    workload = Workload(n_rows, n_rows // per_key, length)
    gains, notes, details = [], [], {}
    for cores in (1, 2):
        found = _against_duckdb(workload, cores, n_runs)
        ours, theirs = Times(tuple(found["eddyline"])), Times(tuple(found["DuckDB"]))
        gains.append(paired_ratio(theirs, ours))
        label = f"{cores} core{'s' if cores > 1 else ''}"
        details[label] = found
        notes.append(f"{label}: {gains[-1]:.2f} (ours {ours}, DuckDB {theirs})")
    note = f"{'; '.join(notes)}; {3 * workload.n_rows:,} rows, {found['n_results']:,} results"
    return Measurement(min(gains), note, details)


# -- how much state there is ----------------------------------------------------------------------


def _window(folder: str, name: str, keys: Ints, n_rows: int) -> tuple[RunFile, ...]:
    """Write rows as runs of the sizes that upkeep leaves after batches of so many rows."""
    files: list[RunFile] = []
    at, left = 0, keys.size // n_rows
    power = max(1, int(np.log(left) / np.log(FAN_IN) + 1e-9) + 1)
    for size in (FAN_IN**p for p in range(power, -1, -1)):
        for _ in range(left // size):
            part = keys[at : at + size * n_rows]
            rows = pa.table(
                {
                    "id": np.arange(at, at + part.size),
                    "ts": times_of(np.arange(at, at + part.size) + T0_US),
                    "k": part,
                    "v": part.astype(np.float64),
                }
            )
            run = SortedRun.from_rows(rows_of(rows, FOREVER))
            number = len(files)
            files.append(write_run(fs.LocalFileSystem(), f"{folder}/runs", f"{name}-{number}", run))
            at, left = at + part.size, left - size
    return tuple(files)


def _stocked(folder: str, n_keys: int, n_rows: int) -> Operator:
    """Return an operator whose windows hold each key once."""
    operator = Operator(NAMES[:3], FOREVER, folder)
    rng = np.random.default_rng([n_keys, 62])
    runs = {name: _window(folder, name, rng.permutation(n_keys), n_rows) for name in operator.names}
    operator.state = BucketState(runs)
    return operator


def _one_batch(operator: Operator, n_keys: int, n_rows: int, seed: int) -> float:
    """Time a batch in which each row finds one row in each other window, and leave no trace."""
    rng = np.random.default_rng([seed, 63])
    keys = rng.choice(n_keys, 3 * n_rows, replace=False)
    tables = {
        name: batch_v1(rng, seed, n_rows, SECOND_US, keys[at * n_rows : (at + 1) * n_rows])
        for at, name in enumerate(operator.names)
    }
    before = operator.state
    started = time.perf_counter()
    n_results, _ = operator.batch(tables)
    seconds = time.perf_counter() - started
    assert n_results == 3 * n_rows, f"{n_results} results of {3 * n_rows} rows"
    # The runs before the batch are named by the manifest before it, so they are still there.
    operator.state = before
    return seconds


FLAT_ROWS = 11_111
"""New rows of each stream in a batch: at 10^5 rows of state each row of it is found once."""


def flat(settings: Settings) -> Measurement:
    """A batch of 33,333 rows, each of which finds one row in each other window."""
    sizes = (100_000, 1_000_000, settings.pick(10_000_000, 2_000_000))
    n_runs = settings.pick(30, 8)
    seconds: dict[int, list[float]] = {size: [] for size in sizes}
    with tempfile.TemporaryDirectory() as folder:
        stocked = {}
        for size in sizes:
            n_keys = size // 3 // FLAT_ROWS * FLAT_ROWS
            stocked[size] = _stocked(f"{folder}/{size}", n_keys, FLAT_ROWS), n_keys
        for round_ in range(n_runs + 2):
            for size, (operator, n_keys) in stocked.items():
                took = _one_batch(operator, n_keys, FLAT_ROWS, round_)
                if round_ > 1:
                    seconds[size].append(took)
        runs = {
            size: [len(files) for files in operator.state.runs.values()]
            for size, (operator, _) in stocked.items()
        }
    times = {size: Times(tuple(each)) for size, each in seconds.items()}
    ratios = {size: paired_ratio(times[size], times[sizes[0]]) for size in sizes[1:]}
    note = "; ".join(
        f"{size:,} rows in {'+'.join(map(str, runs[size]))} runs: {times[size]}"
        + (f", {ratios[size]:.2f}" if size in ratios else "")
        for size in sizes
    )
    return Measurement(ratios[sizes[-1]], note, {"seconds": seconds, "ratios": ratios})


def no_eviction(settings: Settings) -> Measurement:
    """The same batches with windows of an hour that nothing leaves, and without a check."""
    n_batches = settings.pick(16, 8)
    n_rows = settings.pick(50_000, 10_000)
    batches = uniform_batches_v1(3, n_batches, n_rows, n_rows * n_batches, SECOND_US)
    hour = 3_600 * SECOND_US
    seconds: dict[str, list[float]] = {"with": [], "without": []}
    state: dict[str, list[Any]] = {"with": [], "without": []}
    with tempfile.TemporaryDirectory() as folder:
        both = {
            "with": Operator(NAMES[:3], hour, f"{folder}/with"),
            "without": Operator(NAMES[:3], hour, f"{folder}/without", checks_expiry=False),
        }
        for number, tables in enumerate(batches):
            for kind in ("with", "without") if number % 2 else ("without", "with"):
                started = time.perf_counter()
                n_results, report = both[kind].batch(tables)
                seconds[kind].append(time.perf_counter() - started)
                files = sorted(
                    (name, file.n_rows, file.n_bytes)
                    for name, each in report.after.runs.items()
                    for file in each
                )
                state[kind].append((n_results, files))
    extra = sum(
        sum(file[-1] for file in mine) - sum(file[-1] for file in its)
        for (_, mine), (_, its) in zip(*state.values(), strict=True)
    )
    differing = sum(mine != its for mine, its in zip(*state.values(), strict=True))
    times = {kind: Times(tuple(each[1:])) for kind, each in seconds.items()}
    note = (
        f"{differing} of {n_batches} batches left other runs; {extra} more bytes; time of a batch "
        f"with the check over without {paired_ratio(times['with'], times['without']):.3f} "
        f"(with {times['with']}, without {times['without']})"
    )
    return Measurement(float(differing + abs(extra)), note, {"seconds": seconds})


# -- keys that are much more frequent than others -------------------------------------------------


def _counted(codes: Mapping[str, Mapping[int, Ints]]) -> dict[tuple[str, int], Ints]:
    """Return how many rows of each input fall in each bin of each key class."""
    return {
        (name, key): np.bincount(bins_of(of), minlength=N_BINS)
        for name, each in codes.items()
        for key, of in each.items()
    }


def _in_buckets(grid: Grid, codes: Mapping[str, Mapping[int, Ints]]) -> list[int]:
    """Return how many rows each bucket of a grid really gets, one at a time."""
    return [
        sum(
            int(grid.holds(bucket, name, of, np.arange(len(next(iter(of.values()))))).sum())
            for name, of in codes.items()
        )
        for bucket in range(grid.n_buckets)
    ]


def skewed_grid(settings: Settings) -> Measurement:
    """``t.j = u.j AND s.k = t.k``: half the rows have one ``k``, so ``j`` is what can be cut."""
    n_rows, n_buckets = settings.pick(1_000_000, 100_000), 8
    rng = np.random.default_rng(64)

    def drawn(size: int, share: float) -> Ints:
        return hot_keys(rng, size, share, n_rows)

    small = n_rows // 10
    codes = {
        "s": {1: drawn(small, 0.5)},
        "t": {0: drawn(n_rows, 0.0), 1: drawn(n_rows, 0.5)},
        "u": {0: drawn(small, 0.0)},
    }
    graph = JoinGraph(("s", "t", "u"), (frozenset("tu"), frozenset("st")))
    first, counted = chosen_grid(graph, n_buckets), chosen_grid(graph, n_buckets, _counted(codes))
    rows = {grid.shape: max(_in_buckets(grid, codes)) for grid in (first, counted)}
    note = (
        f"{n_rows:,} rows of t, {small:,} of s and of u, half of s and t with one k; at most "
        f"{n_buckets} buckets; "
        f"without counts {first.shape} with {rows[first.shape]:,} rows in the fullest, from counts "
        f"{counted.shape} with {rows[counted.shape]:,}"
    )
    return Measurement(rows[counted.shape] / rows[first.shape], note, {"shapes": list(rows)})


def skewed_split(settings: Settings) -> Measurement:
    """``s.k = t.k AND t.k = u.k``: half the rows have one ``k``, and no other key can be cut."""
    n_rows, n_buckets, names = settings.pick(1_000_000, 100_000), 8, NAMES[:3]
    graph, notes, gains = graph_of(names), [], {}
    for share in (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0):
        rng = np.random.default_rng([65, int(100 * share)])
        codes = {name: {0: hot_keys(rng, n_rows, share, n_rows)} for name in names}
        bins = _counted(codes)
        whole = chosen_grid(graph, n_buckets, bins)
        grid = chosen_grid(graph, n_buckets, bins, timed=names)
        before, after = _in_buckets(whole, codes), _in_buckets(grid, codes)
        gains[share] = max(after) / max(before)
        sides = " x ".join(str(size) for split in grid.splits for _, size in split.sides)
        notes.append(
            f"{share:.0%}: {max(before):,} of {sum(before):,} rows in the fullest"
            + (f", cut in {sides} {max(after):,} of {sum(after):,}" if sides else ", not cut")
        )
    details = {"gains": gains, "n_buckets": n_buckets}
    return Measurement(gains[0.5], "; ".join(notes), details)


def skewed_tasks(settings: Settings) -> Measurement:
    """Each bucket of ``joins_skew``'s rows is joined by itself; that of the hot key is the slowest.

    A row of the key finds about as many others as a row of uniform keys would in a batch.
    """
    n_batches, n_rows = settings.pick(8, 3), settings.pick(100_000, 10_000)
    span, names, graph = 10 * SECOND_US, NAMES[:3], graph_of(NAMES[:3])
    notes, ratios = [], {}
    for share in (0.5, 0.9):
        batches = list(skewed_batches_v1(3, n_batches, n_rows, share, span))
        bins = _counted({name: {0: each["k"].to_numpy()} for name, each in batches[0].items()})
        grids = [chosen_grid(graph, 8, bins, timed=timed) for timed in ((), names)]
        with tempfile.TemporaryDirectory() as folder:
            kinds = [
                [
                    Operator(names, 2 * span // n_rows, f"{folder}/{kind}-{bucket}")
                    for bucket in range(grid.n_buckets)
                ]
                for kind, grid in enumerate(grids)
            ]
            seconds: list[list[list[float]]] = [[], []]
            for number, tables in enumerate(batches):
                order = (0, 1) if number % 2 else (1, 0)
                n_found = {}
                for kind in order:
                    taken, n_found[kind] = _by_bucket(grids[kind], kinds[kind], tables)
                    seconds[kind].append(taken)
                assert n_found[0] == n_found[1], f"other results: {n_found}"
        whole, split = (np.array(each[1:]) for each in seconds)
        ratios[share] = float(np.median(split.max(axis=1) / whole.max(axis=1)))
        notes.append(
            f"{share:.0%} with one key: slowest bucket {np.median(whole.max(axis=1)):.3f} s, split "
            f"{np.median(split.max(axis=1)):.3f} s ({ratios[share]:.2f}); all buckets "
            f"{np.median(whole.sum(axis=1)):.3f} s, split {np.median(split.sum(axis=1)):.3f} s"
        )
    note = f"{n_rows:,} rows a batch, 8 buckets, CPU time; " + "; ".join(notes)
    return Measurement(ratios[0.5], note, {"ratios": ratios})


def _by_bucket(
    grid: Grid, operators: Sequence[Operator], tables: Mapping[str, pa.Table]
) -> tuple[list[float], int]:
    """Return the CPU time of each bucket in a batch (s), and how many results there are."""
    seconds, n_found = [], 0
    for bucket, operator in enumerate(operators):
        mine = {}
        for name, table in tables.items():
            codes, starts = {0: table["k"].to_numpy()}, table["ts"].cast(pa.int64()).to_numpy()
            mine[name] = table.filter(pa.array(grid.holds(bucket, name, codes, starts)))
        started = time.process_time()
        n_found += operator.batch(mine)[0]
        seconds.append(time.process_time() - started)
    return seconds, n_found


RUNS: Runs = {
    "joins_operator_duckdb": partial(beside_duckdb, per_key=10, length=10 * SECOND_US),
    "joins_operator_duckdb_unbounded": partial(beside_duckdb, per_key=1, length=FOREVER),
    "joins_flat": flat,
    "joins_no_eviction": no_eviction,
    "joins_skew_grid": skewed_grid,
    "joins_skew_split": skewed_split,
    "joins_skew_tasks": skewed_tasks,
}
