"""Queries of aggregates that take turns over the same files, each by one of several ways to run it.

The files of a batch are put before one contestant, and when it is done with them, before the next:
all meet the same minutes of the machine. A batch takes what passes from the start of the first
micro-batch to the end of the last one, by Spark's own clock.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import eddyline as el
from benchmarks.aggregates.asked import N_FAR, Asked, duckdb_answer, summed
from benchmarks.harness.arena import arena
from benchmarks.harness.isolated import alone
from benchmarks.harness.spark import workers_peak_bytes
from benchmarks.harness.statistics import median, spread
from eddyline.aggregates.loop import AggregateView
from eddyline.spark.run.running_query import RunFace

HERE = "benchmarks.aggregates.race"


@dataclass
class Contestant:
    """One way to run a query, or several, over files that are put before it."""

    folder: Path
    queries: Sequence[Any]
    """Spark's streaming queries, or runs that behave like them."""
    answers: list[tuple[int, int]]
    """Of each micro-batch of each query."""
    told: Callable[[], dict[str, Any]] = dict
    """Returns what else there is to tell."""
    written: Callable[[], list[tuple[int, int]]] = list
    """Returns the answers that were written to files."""
    seconds: list[float] = field(default_factory=list)
    """Time of each batch."""

    def feed(self, batch: Path) -> None:
        """Aggregate one more batch."""
        queries = list({each.id: each for each in self.queries}.values())
        since = [len(each.recentProgress) for each in queries]
        for file in sorted(batch.iterdir()):
            if (place := self.folder / file.stem).is_dir():
                os.link(file, place / f"{batch.name}.parquet")
        for each in queries:
            each.processAllAvailable()
        done = [
            progress
            for each, n in zip(queries, since, strict=True)
            for progress in each.recentProgress[n:]
            if "addBatch" in progress["durationMs"]
        ]
        starts = [_instant(each["timestamp"]) for each in done]
        ends = [
            start + each["durationMs"]["triggerExecution"] / 1e3
            for start, each in zip(starts, done, strict=True)
        ]
        self.seconds.append(max(ends) - min(starts))

    def found(self) -> dict[str, Any]:
        """Return what was measured, as plain values."""
        answers = [*self.answers, *self.written()]
        answer = [sum(each[k] for each in answers) for k in range(2)]
        return {"seconds": self.seconds, "answer": answer, **self.told()}


def _instant(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


class Contestants:
    """The ways to run queries, in one session."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder

    def made(self, label: str, way: str, asked: Sequence[Asked]) -> Contestant:
        """Return a contestant, started.

        Args:
            label: its own name.
            way: ``eddyline``, perhaps with a plan that is fixed by hand (``eddyline late``);
                ``spark``; ``spark batch``, a batch query over the rows of each micro-batch, or
                ``spark history``, over these and those before; or ``read``, which reads the same
                files and counts their rows. ``eddyline files`` and ``spark files`` write results
                to Parquet files, where others sum them up.
            asked: what it runs, all of it over the same streams.
        """
        place = self.folder / label.replace(" ", "_")
        for name in asked[0].times:
            (place / name).mkdir(parents=True)
        if way in ("spark", "spark files"):
            return self._spark(place, asked, to_files=way == "spark files")
        if way.startswith("spark"):
            return self._spark_batch(place, asked[0], has_history=way == "spark history")
        if way == "read":
            return self._read(place, asked[0])
        if way == "eddyline files":
            return self._eddyline(place, asked, to_files=True)
        return self._eddyline(place, asked, way.partition(" ")[2])

    def _stream(self, place: Path, asked: Asked, name: str) -> DataFrame:
        schema = self.spark.read.parquet(str(asked.batches[0] / f"{name}.parquet")).schema
        return self.spark.readStream.schema(schema).parquet(str(place / name))

    def _eddyline(
        self, place: Path, asked: Sequence[Asked], plan: str = "", *, to_files: bool = False
    ) -> Contestant:
        first = asked[0]
        engine = el.Engine(self.spark)
        for name, column in first.times.items():
            lateness = f"{first.lateness_us} microseconds"
            engine.stream(name, self._stream(place, first, name), time=column, lateness=lateness)
        for name in first.tables:
            engine.table(name, self.spark.read.parquet(f"{first.folder}/tables/{name}.parquet"))
        for name, text, time in first.results:
            engine.stream(name, engine.query(text), time=time)
        answers: list[tuple[int, int]] = []
        sink: dict[str, Any] = {"sink": _counted(answers)}
        if to_files:
            sink = {"sink": "parquet", "path": str(place / "out")}
        sink["checkpoint"] = str(place / "checkpoint")
        stem = f"{self.folder.name}_{place.name}"
        made = [
            engine.query(each.text, name=f"{stem}_{number}", **each.options)
            for number, each in enumerate(asked)
        ]
        runs: Sequence[RunFace]
        if len(made) == 1:
            runs = [made[0].start(**sink)]
        else:
            engine.queries = {each.name: each for each in made}
            runs = engine.start_all(**sink)
        own = _aggregates_of(runs)
        for each in own if plan else ():
            each.loop.plan = plan
        written = partial(self._written, place / "out") if to_files else list
        return Contestant(place, runs, answers, partial(_told, own), written)

    def _written(self, out: Path) -> list[tuple[int, int]]:
        """Return the answers of the Parquet files in a folder and those below it."""
        answers: list[tuple[int, int]] = []
        count = _counted(answers)
        # Of a folder of Spark's its own list is read, which leaves out what was written twice.
        for number, each in enumerate(sorted({path.parent for path in out.rglob("*.parquet")})):
            count(self.spark.read.parquet(str(each)), number)
        return answers

    def _spark(self, place: Path, asked: Sequence[Asked], *, to_files: bool = False) -> Contestant:
        answers: list[tuple[int, int]] = []
        queries = []
        for number, each in enumerate(asked):
            for name, column in each.times.items():
                df = self._stream(place, each, name)
                df = df.withWatermark(column, f"{each.lateness_us} microseconds")
                df.createOrReplaceTempView(name)
            for name in each.tables:
                table = self.spark.read.parquet(f"{each.folder}/tables/{name}.parquet")
                table.createOrReplaceTempView(name)
            df = self.spark.sql(each.spark)
            writer = df.writeStream.outputMode(each.mode)
            if to_files:
                writer = writer.format("parquet").option("path", str(place / "out" / str(number)))
            else:
                writer = writer.foreachBatch(_counted(answers))
            writer = writer.queryName(f"{self.folder.name}_{place.name}_{number}")
            folder = str(place / "checkpoint" / str(number))
            queries.append(writer.option("checkpointLocation", folder).start())

        def told() -> dict[str, Any]:
            progress = queries[0].recentProgress[-1]
            kept = sum(each["numRowsTotal"] for each in progress["stateOperators"])
            used = sum(each["memoryUsedBytes"] for each in progress["stateOperators"])
            return {"n_kept": kept, "n_bytes": used}

        written = partial(self._written, place / "out") if to_files else list
        return Contestant(place, queries, answers, told, written)

    def _spark_batch(self, place: Path, asked: Asked, *, has_history: bool) -> Contestant:
        """A batch query over the rows of each micro-batch; of history, it gives its results."""
        answers: list[tuple[int, int]] = []
        (name, column), *_ = asked.times.items()
        count = _counted(answers)
        source = self._stream(place, asked, name)

        def run(df: DataFrame, batch_id: int) -> None:
            since = None
            if has_history:
                (since,) = df.selectExpr(f"min({column})").first()  # type: ignore[misc]
                df = df.sparkSession.read.schema(source.schema).parquet(str(place / name))
            # A micro-batch has a session of its stream's own.
            found = df.sparkSession.sql(asked.spark.replace(f"FROM {name}", "FROM {df}"), df=df)
            count(found if since is None else found.where(F.col(column) >= since), batch_id)

        writer = source.writeStream.foreachBatch(run).queryName(f"{self.folder.name}_{place.name}")
        query = writer.option("checkpointLocation", str(place / "checkpoint")).start()
        return Contestant(place, [query], answers)

    def _read(self, place: Path, asked: Asked) -> Contestant:
        answers: list[tuple[int, int]] = []
        queries = []
        for number, (name, column) in enumerate(asked.times.items()):
            df = self._stream(place, asked, name).select(column)
            writer = df.writeStream.foreachBatch(_counted(answers))
            writer = writer.queryName(f"{self.folder.name}_{place.name}_{number}")
            folder = str(place / "checkpoint" / str(number))
            queries.append(writer.option("checkpointLocation", folder).start())
        return Contestant(place, queries, answers)


def _aggregates_of(runs: Sequence[Any]) -> list[Any]:
    """Return the operators that aggregate, of runs that do not run together."""
    operators = [each for run in runs if hasattr(run, "chain") for each in run.chain.operators]
    return [
        each for each in operators if isinstance(getattr(each, "facts", object)(), AggregateView)
    ]


def _told(operators: Sequence[Any]) -> dict[str, Any]:
    """Return what aggregates say of themselves, of several all together."""
    views = [each.facts() for each in operators]
    if not views:
        return {}
    return {
        "plan": " ".join(dict.fromkeys(each.plan for each in views)),
        "n_kept": sum(each.n_kept for each in views),
        "n_waiting": sum(each.n_waiting for each in views),
        "n_bytes": sum(each.n_bytes for each in views),
        "notes": "; ".join(dict.fromkeys(note for each in views for note in each.notes)),
        "rows_per_cell": views[0].newest.rows_per_cell,
        "work_s": sum(each.total.work_ns for each in views) / 1e9,
    }


def _counted(answers: list[tuple[int, int]]) -> Callable[[DataFrame, int], None]:
    """Return a sink that keeps the answer of each micro-batch."""

    def sink(df: DataFrame, _batch_id: int) -> None:
        row = df.selectExpr(*summed(df.dtypes, "spark")).first()
        assert row is not None
        answers.append((int(row[0]), int(row[1] or 0)))

    sink.takes_all = True  # type: ignore[attr-defined]  # it sums up all rows of a batch
    return sink


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
            for query in each.queries:
                query.stop()


def race_alone(
    entered: Mapping[str, tuple[str, list[dict[str, Any]]]], *, in_turns: bool
) -> dict[str, Any]:
    """Let contestants run over all batches: in turns, or one after the other.

    ``entered`` has by label the way of each and its queries, as plain values. Returns by label what
    each found.
    """
    found: dict[str, Any] = {}
    with arena() as (spark, folder):
        of = Contestants(spark, folder)
        said = {
            name: (way, [Asked(**each) for each in asked]) for name, (way, asked) in entered.items()
        }
        batches = next(iter(said.values()))[1][0].batches
        if in_turns:
            found = take_turns({name: of.made(name, *each) for name, each in said.items()}, batches)
        else:
            for name, each in said.items():
                found |= take_turns({name: of.made(name, *each)}, batches)
        found["workers_peak_bytes"] = sum(workers_peak_bytes(spark))
    return found


def race(
    entered: Mapping[str, tuple[str, Sequence[Asked]]], *, in_turns: bool = True, n_far: int = N_FAR
) -> dict[str, Any]:
    """Return what contestants of a process of their own found; see ``race_alone``.

    The last ``n_far`` batches, which only end windows, are left out of the times.
    """
    plain = {
        name: (way, [asdict(each) for each in asked]) for name, (way, asked) in entered.items()
    }
    found = alone(f"{HERE}:race_alone", entered=plain, in_turns=in_turns)
    for name in entered:
        seconds = found[name]["seconds"]
        found[name]["seconds"] = seconds[: len(seconds) - n_far]
    return found


def compared(
    asked: Asked,
    *ways: str,
    more: Mapping[str, tuple[str, Asked]] | None = None,
    n_far: int = N_FAR,
) -> dict[str, Any]:
    """Let the ways to run a query take turns, and compare their answers with DuckDB's.

    ``more`` has contestants with other queries of the same answer. The rows are removed.

    Raises:
        AssertionError: an answer is another one.
    """
    entered = {way: (way, [asked]) for way in ways}
    entered |= {name: (way, [other]) for name, (way, other) in (more or {}).items()}
    try:
        ours = duckdb_answer(asked, asked.duckdb)
        of_spark = duckdb_answer(asked, asked.duckdb_of_spark) if asked.duckdb_of_spark else ours
        found = race(entered, n_far=n_far)
    finally:
        shutil.rmtree(asked.folder, ignore_errors=True)
    for name, (way, _) in entered.items():
        wanted = (of_spark if way.startswith("spark") else ours)["answer"]
        got = found[name]["answer"]
        assert way == "read" or got == wanted, f"{name} answers {got} where DuckDB has {wanted}"
    found["duckdb"] = ours
    return found


# -- words ----------------------------------------------------------------------------------------


def ratios(found: Mapping[str, Any], above: str, below: str) -> list[float]:
    """Return the ratios of the times of a batch, without the first."""
    pairs = zip(found[above]["seconds"], found[below]["seconds"], strict=True)
    return [one / other for one, other in list(pairs)[1:]]


def told(found: Mapping[str, Any], *names: str) -> str:
    """Return the times of contestants in words."""
    return ", ".join(
        f"{name} {median(found[name]['seconds'][1:]):.3g} s a batch "
        f"({spread(found[name]['seconds'][1:])}; first {found[name]['seconds'][0]:.3g})"
        for name in names
    )
