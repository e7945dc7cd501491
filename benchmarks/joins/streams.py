"""A join over streams, said once and run by several: eddyline, Spark's own chain, DuckDB.

Contestants take turns batch by batch: the files of a batch are put before one of them, and when it
has joined them, before the next. So both meet the same minutes of the machine, and each ratio is of
the same batch. The results of a batch go into their number and a sum over their ids, which must be
equal for all.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.streaming.query import StreamingQuery

import eddyline as el
from benchmarks.harness.arena import arena
from benchmarks.harness.isolated import alone
from benchmarks.harness.spark import workers_peak_bytes
from benchmarks.harness.statistics import median, spread
from eddyline.spark.joins.operator import JoinOperator

HERE = "benchmarks.joins.streams"

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

STORES = {"chain": "", "chain on RocksDB": ROCKSDB}
"""Spark's chain by the state store that it keeps its rows in; the default one if empty."""

OURS: Mapping[str, Mapping[str, Any]] = {
    "eddyline": {},
    "eddyline exact": {"constraints": "exact"},
    "eddyline in the lane": {"lane": "on"},
    "eddyline without lane": {"lane": "off"},
    "eddyline unfiltered": {"pins": ("table filter",)},
}
"""Options of contestants that are eddyline, and the components whose plans are pinned."""

FLOORS = ("no join", "to Python and back")
"""Contestants that read the same files and join nothing."""

PRIME, FACTORS = 998_244_353, (1_000_003, 10_007, 101, 13, 1)
"""The checksum of a result is a sum of its ids, each by a factor, modulo this."""


@dataclass(frozen=True)
class Joined:
    """A join of streams by equal columns and windows of event time.

    Every input has a column ``id``; a stream also has ``ts`` (timestamps of µs).
    """

    windows: dict[str, int | None]
    """The length of each input's window (µs; 0 is NOW), in the order in which they are joined;
    None for a static table."""
    equal: tuple[tuple[str, str], ...]
    """Columns that are equal, as ``s.k``, ``t.k``; each input but the first has one with an earlier
    one."""
    select: tuple[str, ...]
    """Columns of results beside the ids, as ``s.v``."""
    lateness_us: int = 0
    """How late rows may come (µs)."""
    part_us: int = 0
    """If not 0, Spark's chain and DuckDB meet only rows of the same part of so many µs, or of two
    adjacent ones: where keys are few, all rows of a key would be met. The first stream's window is
    NOW then, and no other one longer than this."""
    by_hand_us: int = 0
    """What a person who knows the streams would set as their time range (µs), if not 0: no partners
    are farther apart, whatever the windows are."""
    folder: str = field(default="", compare=False)
    """Where its rows are: ``<batch>/<stream>.parquet``, and ``tables/<table>.parquet``."""

    @property
    def streams(self) -> tuple[str, ...]:
        """The inputs that are no static tables."""
        return tuple(name for name, length in self.windows.items() if length is not None)

    @property
    def batches(self) -> list[Path]:
        """The folders of the batches, in order."""
        return sorted(path for path in Path(self.folder).iterdir() if path.name.isdigit())

    def text(self) -> str:
        """Return the query as eddyline reads it."""
        ids = [f"{name}.id AS {name}_id" for name in self.windows]
        columns = [f"{each} AS {each.replace('.', '_')}" for each in self.select]
        inputs = [
            name if length is None else f"{name} [{_window(length)}]"
            for name, length in self.windows.items()
        ]
        on = [f"{one} = {other}" for one, other in self.equal]
        return (
            f"SELECT {', '.join(ids + columns)} FROM {', '.join(inputs)} WHERE {' AND '.join(on)}"
        )

    def steps(self, dot: str, plus: Callable[[str, int], str]) -> list[tuple[str, str]]:
        """Return each input but the first, and on what it is joined to those before it, as SQL.

        ``dot`` stands between the name of an input and that of a column; ``plus`` returns an
        instant so many µs after another.
        """
        names, steps = list(self.windows), []
        for number, name in enumerate(names[1:], 1):
            on = [
                f"{one} = {other}".replace(".", dot)
                for one, other in self.equal
                if {one.split(".")[0], other.split(".")[0]} <= {*names[: number + 1]}
                and name in {one.split(".")[0], other.split(".")[0]}
            ]
            for before in names[:number]:
                for early, late in ((before, name), (name, before)):
                    length = self.windows[early]
                    if length is not None and self.windows[late] is not None:
                        on.append(f"{late}{dot}ts <= {plus(f'{early}{dot}ts', length)}")
            if self.part_us and self.windows[name] is not None:
                on.append(f"{names[0]}{dot}part = {name}{dot}part")
            steps.append((name, " AND ".join(on)))
        return steps

    def duckdb_text(self) -> str:
        """Return the query as DuckDB reads it, each input a table."""
        steps = self.steps(".", lambda instant, us: f"{instant} + to_microseconds({us})")
        joins = "".join(f" JOIN {self._source(name)} ON {on}" for name, on in steps)
        columns = [f"{name}.id AS {name}_id" for name in self.windows]
        columns += [f"{each} AS {each.replace('.', '_')}" for each in self.select]
        return f"SELECT {', '.join(columns)} FROM {self._source(next(iter(self.windows)))}{joins}"

    def _source(self, name: str) -> str:
        """Return an input as DuckDB reads it."""
        if not self.part_us or self.windows[name] is None:
            return name
        part = f"epoch_us(ts) // {self.part_us}"
        if name != next(iter(self.windows)):
            part = f"unnest([{part}, {part} + 1])"
        return f"(SELECT *, {part} AS part FROM {name}) AS {name}"

    def checksum(self) -> str:
        """Return the sum over results that says whether they are the same, as SQL."""
        terms = zip(self.windows, FACTORS, strict=False)
        return f"sum(({' + '.join(f'{name}_id * {by}' for name, by in terms)}) % {PRIME})"


def written(
    join: Joined, batches: Sequence[Mapping[str, pa.Table]], tables: Mapping[str, pa.Table]
) -> Joined:
    """Return a join whose rows are written to a folder."""
    folder = Path(tempfile.mkdtemp(prefix="eddyline_joins_"))
    for number, rows in enumerate(batches):
        for name, table in rows.items():
            _write(table, folder / f"{number:05d}" / f"{name}.parquet")
    for name, table in tables.items():
        _write(table, folder / "tables" / f"{name}.parquet")
    return replace(join, folder=str(folder))


def _write(table: pa.Table, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, path)


# -- contestants ----------------------------------------------------------------------------------


@dataclass
class Contestant:
    """One way to run the join, over files that are put before it."""

    folder: Path
    query: StreamingQuery
    answers: list[tuple[int, int]]
    """Of each micro-batch, the number of results and the sum over their ids."""
    state: Callable[[], dict[str, Any]]
    """Returns what it keeps."""
    seconds: list[float] = field(default_factory=list)
    """Time of each batch, from Spark's own clock of the micro-batch."""
    n_micro: int = 0
    """Micro-batches that had rows."""

    def feed(self, batch: Path) -> None:
        """Join one more batch."""
        since = len(self.query.recentProgress)
        for file in sorted(batch.iterdir()):
            place = self.folder / file.stem
            os.link(file, place / f"{batch.name}.parquet")
        self.query.processAllAvailable()
        done = [each for each in self.query.recentProgress[since:] if each["numInputRows"]]
        self.n_micro += len(done)
        self.seconds.append(sum(each["durationMs"]["triggerExecution"] for each in done) / 1e3)

    def found(self) -> dict[str, Any]:
        """Return what was measured, as plain values."""
        return {
            "seconds": self.seconds,
            "micro_batches": self.n_micro,
            "n_results": sum(n for n, _ in self.answers),
            "checksum": sum(each for _, each in self.answers),
            "state": self.state(),
        }


class Contestants:
    """The ways to run one join, in one session."""

    def __init__(self, spark: SparkSession, join: Joined, folder: Path) -> None:
        self.spark = spark
        self.join = join
        self.folder = folder

    def named(self, name: str) -> Contestant:
        """Return the one of a name, started."""
        place = self.folder / name.replace(" ", "_")
        for stream in self.join.streams:
            (place / stream).mkdir(parents=True)
        if name in OURS:
            return self._eddyline(place, **OURS[name])
        if name in FLOORS:
            return self._floor(place, name)
        if name == "chain by hand":
            windows: dict[str, int | None] = dict.fromkeys(self.join.windows, self.join.by_hand_us)
            of = Contestants(self.spark, replace(self.join, windows=windows), self.folder)
            return of._chain(place, "chain")
        return self._chain(place, name)

    def _stream(self, place: Path, name: str) -> DataFrame:
        schema = self.spark.read.parquet(str(self.join.batches[0] / f"{name}.parquet")).schema
        return self.spark.readStream.schema(schema).parquet(str(place / name))

    def _table(self, name: str) -> DataFrame:
        return self.spark.read.parquet(f"{self.join.folder}/tables/{name}.parquet")

    def _count(
        self, answers: list[tuple[int, int]], columns: Sequence[str] = ()
    ) -> Callable[[DataFrame, int], None]:
        """Return a sink that keeps a number and a sum of each batch: of results if omitted."""
        columns = columns or ("count(*)", self.join.checksum())

        def count(df: DataFrame, _batch_id: int) -> None:
            row = df.selectExpr(*columns).first()
            assert row is not None
            answers.append((int(row[0]), int(row[1] or 0)))

        return count

    def _eddyline(self, place: Path, pins: Sequence[str] = (), **options: Any) -> Contestant:
        engine = el.Engine(self.spark)
        lateness = f"{self.join.lateness_us} microseconds"
        for name, length in self.join.windows.items():
            if length is None:
                engine.table(name, self._table(name))
            else:
                engine.stream(name, self._stream(place, name), time="ts", lateness=lateness)
        answers: list[tuple[int, int]] = []
        query = engine.query(self.join.text(), name=f"{place.name}_{self.folder.name}", **options)
        checkpoint = place / "checkpoint"
        run = query.start(self._count(answers), checkpoint=str(checkpoint))
        for component in pins:
            run.pin(component=component)

        def state() -> dict[str, Any]:
            (join,) = (each for each in run.chain.operators if isinstance(each, JoinOperator))
            facts = join.facts()
            inputs = facts.inputs
            return {
                "rows": sum(each.n_kept for each in inputs),
                "bytes": sum(each.n_bytes for each in inputs),
                "cold_rows": sum(each.n_cold for each in inputs),
                "runs": sum(each.n_runs for each in inputs),
                "disk_bytes": _bytes_below(checkpoint / "eddyline" / "state"),
                "late": sum(each.n_late for each in inputs),
                "lane": join.lane.note,
                "joined": sum(each.n_joined for each in inputs if not each.is_table),
                "probe_s": sum(p.ns for each in facts.pipelines for p in each.probes) / 1e9,
            }

        return Contestant(place, run.streaming_query, answers, state)

    def _chain(self, place: Path, name: str) -> Contestant:
        provider = "spark.sql.streaming.stateStore.providerClass"
        if STORES[name]:
            self.spark.conf.set(provider, STORES[name])
        frames = {}
        for each, length in self.join.windows.items():
            df = self._table(each) if length is None else self._stream(place, each)
            if length is not None:
                df = df.withWatermark("ts", f"{self.join.lateness_us} microseconds")
                df = self._in_parts(df, each)
            frames[each] = df.withColumnsRenamed({c: f"{each}_{c}" for c in df.columns})
        first, *_ = self.join.windows
        chained = frames[first]
        for other, on in self.join.steps("_", _after):
            chained = chained.join(frames[other], expr(on))
            if self.join.windows[other] is not None:
                # Of a joined stream Spark takes one column as its event time; this one is no more.
                plain = expr(f"timestamp_micros(unix_micros({other}_ts))")
                chained = chained.withColumn(f"{other}_ts", plain)
        kept = [f"{each}_id" for each in self.join.windows]
        chained = chained.select(*kept, *[each.replace(".", "_") for each in self.join.select])
        answers: list[tuple[int, int]] = []
        checkpoint = place / "checkpoint"
        query = self._started(chained, name, checkpoint, self._count(answers))
        self.spark.conf.unset(provider)

        def state() -> dict[str, Any]:
            done = [each for each in query.recentProgress if each["numInputRows"]][-1]
            operators = done["stateOperators"]
            return {
                "rows": sum(each["numRowsTotal"] for each in operators),
                "bytes": sum(each["memoryUsedBytes"] for each in operators),
                "disk_bytes": _bytes_below(checkpoint / "state"),
                "last_bytes": _bytes_of_last(checkpoint / "state"),
                "late": sum(each["numRowsDroppedByWatermark"] for each in operators),
                "by_operator": [each["numRowsTotal"] for each in operators],
            }

        return Contestant(place, query, answers, state)

    def _in_parts(self, df: DataFrame, name: str) -> DataFrame:
        """Return a stream with the parts of time in which its rows are met, if they are."""
        if not self.join.part_us:
            return df
        part = f"unix_micros(ts) div {self.join.part_us}"
        if name != self.join.streams[0]:
            part = f"explode(array({part}, {part} + 1))"
        return df.withColumn("part", expr(part))

    def _floor(self, place: Path, name: str) -> Contestant:
        """The same files read, put together and counted, without any join.

        Those that go to Python are shuffled to as many tasks as there are cores before.
        """
        rows = [self._stream(place, each) for each in self.join.streams]
        if name == "no join":
            rows = [each.select("id", "ts") for each in rows]
        df = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), rows)
        if name != "no join":
            n_tasks = self.spark.sparkContext.defaultParallelism
            df = df.repartition(n_tasks, "id").mapInArrow(_as_it_comes, df.schema)
        answers: list[tuple[int, int]] = []
        count = self._count(answers, ["count(ts)", "sum(id)"])
        query = self._started(df, name, place / "checkpoint", count)
        return Contestant(place, query, answers, dict)

    def _started(
        self, df: DataFrame, name: str, checkpoint: Path, sink: Callable[[DataFrame, int], None]
    ) -> StreamingQuery:
        query = f"{name} {self.folder.name}".replace(" ", "_")
        writer = df.writeStream.foreachBatch(sink).queryName(query)
        return writer.option("checkpointLocation", str(checkpoint)).start()


def _as_it_comes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def _window(us: int) -> str:
    return f"RANGE {us} MICROSECONDS" if us else "NOW"


def _after(instant: str, us: int) -> str:
    return f"{instant} + INTERVAL {us} MICROSECONDS"


def _bytes_below(folder: Path) -> int:
    """Return the bytes of all files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _bytes_of_last(folder: Path) -> int:
    """Return the bytes of the files that the last version of Spark's default store is read from.

    In each store: the newest snapshot, and the deltas after it. 0 for another store.
    """
    total = 0
    for place in {path.parent for path in folder.rglob("*.delta")}:
        snapshots = [int(path.stem) for path in place.glob("*.snapshot")]
        newest = max(snapshots, default=0)
        needed = [path for path in place.glob("*.delta") if int(path.stem) > newest]
        needed += list(place.glob(f"{newest}.snapshot"))
        total += sum(path.stat().st_size for path in needed)
    return total


def take_turns(
    contestants: Mapping[str, Contestant], batches: Sequence[Path]
) -> dict[str, dict[str, Any]]:
    """Let contestants of a session take turns over batches; what each of them found."""
    try:
        for number, batch in enumerate(batches):
            names = list(contestants)
            for name in names if number % 2 == 0 else reversed(names):
                contestants[name].feed(batch)
        return {name: each.found() for name, each in contestants.items()}
    finally:
        for each in contestants.values():
            each.query.stop()


def race_alone(join: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Let contestants take turns over all batches of a join, given as plain values.

    Returns what each found, how long each batch took and what it keeps.
    """
    said = Joined(**join)
    with arena() as (spark, _):
        of = Contestants(spark, said, Path(said.folder, "race"))
        found: dict[str, Any] = take_turns({name: of.named(name) for name in names}, said.batches)
        found["workers_peak_bytes"] = sum(workers_peak_bytes(spark))
    return found


def joins_alone(joins: dict[str, dict[str, Any]], name: str) -> dict[str, Any]:
    """Let several joins of the same files take turns, and a query that joins nothing.

    All are run by the contestant of that name. Returns by join, and for ``no join``, what was
    found, how long each batch took and what is kept.
    """
    said = {label: Joined(**join) for label, join in joins.items()}
    first = next(iter(said.values()))
    with arena() as (spark, folder):
        contestants = {
            label: Contestants(spark, join, folder / label).named(name)
            for label, join in said.items()
        }
        contestants["no join"] = Contestants(spark, first, folder / "none").named("no join")
        return take_turns(contestants, first.batches)


def race(join: Joined, *names: str) -> dict[str, Any]:
    """Return what contestants of a process of their own found; see ``race_alone``.

    The rows of the join are removed.

    Raises:
        AssertionError: they have other answers.
    """
    n_rows = rows_of(join)
    try:
        found = alone(f"{HERE}:race_alone", join=asdict(join), names=list(names))
    finally:
        shutil.rmtree(join.folder, ignore_errors=True)
    answers = {name: answer_of(found[name]) for name in names if name not in FLOORS}
    assert len(set(answers.values())) == 1, f"other answers: {answers}"
    found["n_rows"] = n_rows
    found["n_results"] = next(iter(answers.values()))[0]
    return found


def answer_of(found: Mapping[str, Any]) -> tuple[int, int]:
    """Return the number of results and the sum over their ids."""
    return found["n_results"], found["checksum"]


def rows_of(join: Joined) -> list[int]:
    """Return how many rows of all streams each batch has."""
    return [
        sum(parquet.read_metadata(file).num_rows for file in batch.iterdir())
        for batch in join.batches
    ]


# -- DuckDB ---------------------------------------------------------------------------------------


def duckdb_once(join: Joined, threads: int = 2) -> dict[str, Any]:
    """Join all rows at once from memory; loading them into tables is not timed."""
    with duckdb.connect(config={"threads": threads}) as connection:
        for name, length in join.windows.items():
            place = f"tables/{name}" if length is None else f"*/{name}"
            source = f"read_parquet('{join.folder}/{place}.parquet')"
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM {source}")
        started = time.perf_counter()
        counted = f"SELECT count(*), {join.checksum()} FROM ({join.duckdb_text()})"
        (row,) = connection.sql(counted).fetchall()
        seconds = time.perf_counter() - started
    return {"n_results": int(row[0]), "checksum": int(row[1] or 0), "seconds": seconds}


# -- words ----------------------------------------------------------------------------------------


def ratios(found: Mapping[str, Any], above: str, below: str) -> list[float]:
    """Return the ratios of the times of a batch, without the first."""
    pairs = zip(found[above]["seconds"], found[below]["seconds"], strict=True)
    return [one / other for one, other in list(pairs)[1:]]


def rate(found: Mapping[str, Any], name: str) -> float:
    """Return the rows per second of a contestant, the first batch left out."""
    return float(sum(found["n_rows"][1:]) / sum(found[name]["seconds"][1:]))


def told(found: Mapping[str, Any], *names: str) -> str:
    """Return the times of contestants in words."""
    return ", ".join(
        f"{name} {median(found[name]['seconds'][1:]):.3g} s a batch "
        f"({spread(found[name]['seconds'][1:])}; first {found[name]['seconds'][0]:.3g})"
        for name in names
    )
