"""The join operator by itself: Arrow in, Arrow out, windows in files, no Spark.

What a bucket does in a batch is timed as ``BucketBatch`` does it: open the windows, join, write the
new rows as runs; and the manifest that a driver commits after it. DuckDB joins the same rows once,
from tables that are in its memory, and hands the results over as Arrow.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import fs

from benchmarks.harness.scenario import Measurement, Scenario, Settings, at_least, at_most
from benchmarks.harness.timing import Times, paired_ratio
from benchmarks.joins.data import (
    NAMES,
    T0_US,
    batch_v1,
    skewed_batches_v1,
    times_of,
    uniform_batches_v1,
)
from benchmarks.joins.streams import FACTORS, PRIME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.plan import BucketReport
    from eddyline.state.bucket_state import BucketState
    from eddyline.state.grid import Grid
    from eddyline.state.rows import Rows
    from eddyline.state.run_files import RunFile

FOREVER = np.iinfo(np.int64).max
SECOND_US = 1_000_000


def graph_of(names: Sequence[str]) -> JoinGraph:
    """Return the graph of streams that are joined by one key."""
    from eddyline.joins.graph import JoinGraph  # noqa: PLC0415

    return JoinGraph(tuple(names), (frozenset(names),))


def rows_of(table: pa.Table, length: int, payload: Sequence[str] = ("id", "k", "v")) -> Rows:
    """Return the rows of a table as the operator takes them.

    Args:
        table: with ``ts`` and ``k``.
        length: of their window (µs).
        payload: the columns that results need.
    """
    from eddyline.state.rows import Rows  # noqa: PLC0415

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
    state: BucketState | None = None
    """The windows of the bucket; empty ones if omitted."""
    latest: dict[str, int] = field(default_factory=dict)
    batch_id: int = 0

    def __post_init__(self) -> None:
        from eddyline.joins.loop import written_orders  # noqa: PLC0415
        from eddyline.state.bucket_state import BucketState  # noqa: PLC0415
        from eddyline.state.manifest import ManifestFolder  # noqa: PLC0415

        self.manifests = ManifestFolder(fs.LocalFileSystem(), self.folder)
        self.graph = graph_of(self.names)
        self.orders = written_orders(self.graph)
        self.state = self.state or BucketState()

    def batch(self, tables: Mapping[str, pa.Table]) -> tuple[int, BucketReport]:
        """Join the rows of a batch; returns the number of results, each of them gathered."""
        from eddyline.joins.operator.bucket import BucketBatch  # noqa: PLC0415
        from eddyline.joins.plan import BatchPlan  # noqa: PLC0415
        from eddyline.joins.state_part import JoinPart  # noqa: PLC0415
        from eddyline.state.grid import Grid  # noqa: PLC0415

        lows = dict(self.latest) if self.checks_expiry else {}
        horizons: dict[str, int | None] = {}
        for name in self.names:
            others = [low for other, low in lows.items() if other != name]
            if others:
                horizons[name] = min(others)
        plan = BatchPlan(
            self.batch_id, self.graph, self.orders, dict.fromkeys(self.names, self.length), lows,
            horizons,
        )  # fmt: skip
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
    from eddyline.state.grid import bins_of  # noqa: PLC0415

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


def _duckdb(connection: Any, workload: Workload) -> float:
    started = time.perf_counter()
    connection.sql(workload.duckdb_text()).to_arrow_table()
    return time.perf_counter() - started


def _duckdb_answer(connection: Any, workload: Workload) -> list[int]:
    ids = " + ".join(f"{name}_id * {by}" for name, by in zip(workload.NAMES, FACTORS, strict=False))
    text = f"SELECT count(*), sum(({ids}) % {PRIME}) FROM ({workload.duckdb_text()})"
    (row,) = connection.sql(text).fetchall()
    return [int(each) for each in row]


def _against_duckdb(workload: Workload, cores: int, n_runs: int) -> dict[str, Any]:
    """Time buckets and DuckDB in turns, on as many cores; the first round compares answers."""
    import duckdb  # noqa: PLC0415

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
            theirs.append(_duckdb(connection, workload))
    return {"eddyline": ours, "DuckDB": theirs, "n_results": found[0]}


def _beside_duckdb(workload: Workload, n_runs: int) -> Measurement:
    """Return the lesser of the ratios on one core and on two."""
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


def beside_duckdb(settings: Settings) -> Measurement:
    """Windows of a batch, as in ``joins_chained_3``."""
    n_rows = settings.pick(1_000_000, 100_000)
    workload = Workload(n_rows, n_rows // 10, 10 * SECOND_US)
    return _beside_duckdb(workload, settings.pick(5, 2))


def beside_duckdb_unbounded(settings: Settings) -> Measurement:
    """Windows that keep all rows; a key comes once in a stream, on average."""
    n_rows = settings.pick(1_000_000, 100_000)
    return _beside_duckdb(Workload(n_rows, n_rows, FOREVER), settings.pick(5, 2))


# -- how much state there is ----------------------------------------------------------------------


def _window(folder: str, name: str, keys: NDArray[np.int64], n_rows: int) -> tuple[RunFile, ...]:
    """Write rows as runs of the sizes that upkeep leaves after batches of so many rows."""
    from eddyline.state.compaction import FAN_IN  # noqa: PLC0415
    from eddyline.state.rows import SortedRun  # noqa: PLC0415
    from eddyline.state.run_files import write_run  # noqa: PLC0415

    files, at, left = [], 0, keys.size // n_rows
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
            run = SortedRun.of(rows_of(rows, FOREVER))
            number = len(files)
            files.append(write_run(fs.LocalFileSystem(), f"{folder}/runs", f"{name}-{number}", run))
            at, left = at + part.size, left - size
    return tuple(files)


def _stocked(folder: str, n_keys: int, n_rows: int) -> Operator:
    """Return an operator whose windows hold each key once."""
    from eddyline.state.bucket_state import BucketState  # noqa: PLC0415

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


def _fullest(grid: Grid, codes: Mapping[str, Mapping[int, NDArray[np.int64]]]) -> int:
    """Return how many rows the fullest bucket of a grid really gets."""
    return max(_in_buckets(grid, codes))


def _in_buckets(grid: Grid, codes: Mapping[str, Mapping[int, NDArray[np.int64]]]) -> list[int]:
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
    from eddyline.joins.graph import JoinGraph  # noqa: PLC0415
    from eddyline.joins.grid_choice import chosen_grid  # noqa: PLC0415
    from eddyline.state.grid import N_BINS, bins_of  # noqa: PLC0415

    n_rows, n_buckets = settings.pick(1_000_000, 100_000), 8
    rng = np.random.default_rng(64)

    def drawn(size: int, share: float) -> NDArray[np.int64]:
        return np.where(rng.random(size) < share, -1, rng.integers(0, n_rows, size))

    small = n_rows // 10
    codes = {
        "s": {1: drawn(small, 0.5)},
        "t": {0: drawn(n_rows, 0.0), 1: drawn(n_rows, 0.5)},
        "u": {0: drawn(small, 0.0)},
    }
    graph = JoinGraph(("s", "t", "u"), (frozenset("tu"), frozenset("st")))
    bins = {
        (name, key): np.bincount(bins_of(of), minlength=N_BINS)
        for name, each in codes.items()
        for key, of in each.items()
    }
    first, counted = chosen_grid(graph, n_buckets), chosen_grid(graph, n_buckets, bins)
    rows = {grid.shape: _fullest(grid, codes) for grid in (first, counted)}
    note = (
        f"{n_rows:,} rows of t, {small:,} of s and of u, half of s and t with one k; at most "
        f"{n_buckets} buckets; "
        f"without counts {first.shape} with {rows[first.shape]:,} rows in the fullest, from counts "
        f"{counted.shape} with {rows[counted.shape]:,}"
    )
    return Measurement(rows[counted.shape] / rows[first.shape], note, {"shapes": list(rows)})


def skewed_split(settings: Settings) -> Measurement:
    """``s.k = t.k AND t.k = u.k``: half the rows have one ``k``, and no other key can be cut."""
    from eddyline.joins.grid_choice import chosen_grid  # noqa: PLC0415
    from eddyline.state.grid import N_BINS, bins_of  # noqa: PLC0415

    n_rows, n_buckets, names = settings.pick(1_000_000, 100_000), 8, NAMES[:3]
    graph, notes, gains = graph_of(names), [], {}
    for share in (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0):
        rng = np.random.default_rng([65, int(100 * share)])
        codes = {
            name: {0: np.where(rng.random(n_rows) < share, -1, rng.integers(0, n_rows, n_rows))}
            for name in names
        }
        bins = {
            (name, 0): np.bincount(bins_of(of[0]), minlength=N_BINS) for name, of in codes.items()
        }
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
    from eddyline.joins.grid_choice import chosen_grid  # noqa: PLC0415
    from eddyline.state.grid import N_BINS, bins_of  # noqa: PLC0415

    n_batches, n_rows = settings.pick(8, 3), settings.pick(100_000, 10_000)
    span, names, graph = 10 * SECOND_US, NAMES[:3], graph_of(NAMES[:3])
    notes, ratios = [], {}
    for share in (0.5, 0.9):
        batches = list(skewed_batches_v1(3, n_batches, n_rows, share, span))
        bins = {
            (name, 0): np.bincount(bins_of(table["k"].to_numpy()), minlength=N_BINS)
            for name, table in batches[0].items()
        }
        grids = [chosen_grid(graph, 8, bins, timed=timed) for timed in ((), names)]
        with tempfile.TemporaryDirectory() as folder:
            kinds = [
                [Operator(names, 2 * span // n_rows, f"{folder}/{kind}-{bucket}") for bucket in
                 range(grid.n_buckets)]
                for kind, grid in enumerate(grids)
            ]  # fmt: skip
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


SCENARIOS = (
    Scenario(
        id="joins_operator_duckdb",
        shows="time of DuckDB joining the rows once from memory over the operator's in ten batches",
        run=beside_duckdb,
        target=at_least(1),
        policies=(),
        counted=False,
    ),
    Scenario(
        id="joins_operator_duckdb_unbounded",
        shows="the same for windows that keep all rows: an equality and nothing else for DuckDB",
        run=beside_duckdb_unbounded,
        target=None,
        policies=(),
        counted=False,
    ),
    Scenario(
        id="joins_flat",
        shows="time of a batch with 10^7 rows of state over that with 10^5, equal rows and results",
        run=flat,
        target=at_most(1.3),
        policies=(),
        counted=False,
    ),
    Scenario(
        id="joins_no_eviction",
        shows="runs and bytes that differ where nothing expires, expiry checked or not",
        run=no_eviction,
        target=at_most(0),
        policies=(),
    ),
    Scenario(
        id="joins_skew_grid",
        shows="rows in the fullest bucket of the grid from counts over the first one's",
        run=skewed_grid,
        target=None,
        policies=(),
    ),
    Scenario(
        id="joins_skew_split",
        shows="rows in the fullest of 8 buckets with a key of half the rows split over not split",
        run=skewed_split,
        target=None,
        policies=(),
    ),
    Scenario(
        id="joins_skew_tasks",
        shows="time of the slowest of 8 buckets with a key of half the rows split over not split",
        run=skewed_tasks,
        target=None,
        policies=(),
        counted=False,
    ),
)
