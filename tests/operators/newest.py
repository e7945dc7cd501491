"""An operator that only tests know: keep the rows that are newer than all before them of their key.

It is what somebody else would write: a step, an operator with a plan, a loop and durable state, a
line of ``spark.operators.OPERATORS`` and one of ``report.progress.LINES``. Its plan is where stale
rows are dropped: with the rows of their key, behind a shuffle, or early, by what the state of the
batch before says of each key.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StructField, StructType

from eddyline.errors import StateError
from eddyline.report.decisions import last_change
from eddyline.report.sections import Column, Facts, Section, Table, Text, Tile
from eddyline.runtime.choice import OneOfFew
from eddyline.runtime.journal import TaskReport
from eddyline.spark.arrow_tasks import task_ids
from eddyline.spark.operator import PREFIX, Batch, Laid, Observed, Operator, Pending, Site
from eddyline.spark.run.observations import PendingMetrics
from eddyline.state.manifest import StatePart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from eddyline.runtime.choice import Choice
    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.records import History
    from eddyline.state.manifest import StatePlace

    SortRows = Callable[[pa.Table, Sequence[str]], pa.Table]

N_BUCKETS = 2
"""Parts into which keys are cut, each with a file of its own."""

REPORT = f"{PREFIX}_newest"


# -- the step: data -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewestStep:
    """Keeps a row if its version is above that of every row of its key that arrived before it."""

    input: str
    key: str
    version: str
    arrival: tuple[str, ...]
    """Columns in whose order rows arrive; batches come in that order, too."""

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)

    @property
    def output(self) -> str:
        return self.input

    def renamed(self, names: Callable[[str], str]) -> NewestStep:
        return replace(self, input=names(self.input))

    def __str__(self) -> str:
        return f"newest {self.input}: the greatest {self.version} so far of each {self.key}"


# -- the plan, what is observed, and the loop: no Spark -------------------------------------------


@dataclass(frozen=True, slots=True)
class NewestProfile:
    """How many rows came, and how many of them were stale when their batch began."""

    n_rows: int = 0
    n_stale: int = 0

    def merge(self, *others: NewestProfile) -> NewestProfile:
        every = (self, *others)
        return NewestProfile(sum(e.n_rows for e in every), sum(e.n_stale for e in every))

    @property
    def stale_frac(self) -> float:
        return self.n_stale / self.n_rows if self.n_rows else 0.0


class NewestSaved(msgspec.Struct, forbid_unknown_fields=True):
    """What was learned."""

    plan: str
    n_rows: int
    n_stale: int


@dataclass(frozen=True, slots=True)
class NewestRecord:
    """How the operator stands after a batch."""

    component: str
    plan: str
    stale_frac: float


def newest_lines(record: NewestRecord) -> tuple[str, ...]:
    """Return the plan in words, for the progress."""
    return (f"stale rows dropped {record.plan}",)


class NewestPlace(OneOfFew):
    """Drops stale rows early where most rows are, and late where few are."""

    plans = ("late", "early")
    component = "newest"

    def __init__(self, *, adaptive: bool = True) -> None:
        self.plan = "late"
        self.is_adaptive = adaptive
        self.known = NewestProfile()

    def step(self, fresh: NewestProfile, batch_id: int = -1) -> list[JournalEntry]:
        if not self.is_adaptive or not fresh.n_rows:
            return []
        self.known = fresh.merge(NewestProfile(self.known.n_rows // 2, self.known.n_stale // 2))
        before = self.plan
        if not self.is_held:
            self.plan = self.plans[self.known.stale_frac > 0.5]
        if before == self.plan:
            return []
        evidence = {"stale_frac": self.known.stale_frac, "n_rows": self.known.n_rows}
        return [self.decision(batch_id, "place", before, self.plan, evidence)]

    def record(self) -> NewestRecord:
        return NewestRecord(self.component, self.plan, self.known.stale_frac)

    def snapshot(self) -> NewestSaved:
        return NewestSaved(self.plan, self.known.n_rows, self.known.n_stale)

    def restore(self, state: Any) -> None:
        try:
            saved = msgspec.convert(state, NewestSaved, from_attributes=True)
        except msgspec.ValidationError as error:
            msg = f"the saved state of {self.component!r} is damaged: {error}"
            raise StateError(msg, component=self.component) from error
        if saved.plan not in self.plans:
            msg = f"the saved state of {self.component!r} is damaged: no plan {saved.plan!r}"
            raise StateError(msg, component=self.component)
        if self.is_adaptive:
            self.plan = saved.plan
            self.known = NewestProfile(saved.n_rows, saved.n_stale)


# -- tasks ----------------------------------------------------------------------------------------


def sort_rows(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return rows in the ascending order of some columns."""
    return rows.sort_by([(name, "ascending") for name in names])


class NewestState(msgspec.Struct, frozen=True):
    """The durable state: the file of each bucket, None where no row has come."""

    files: tuple[str | None, ...] = (None,) * N_BUCKETS


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What the task of a bucket observed, and the file that it wrote."""

    profile: NewestProfile
    file: str | None


@dataclass(frozen=True, slots=True)
class NewestTask:
    """What tasks need; goes to workers."""

    step: NewestStep
    columns: StructType
    place: StatePlace | None
    """None where all rows come at once, and nothing is kept."""
    before: NewestState
    batch_id: int
    sort: SortRows

    def drop_early(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are not stale by the state of the batch before."""
        known = [self.read(file) for file in self.before.files]
        newest = {key: version for each in known for key, version in each.items()}
        for batch in batches:
            kept = [
                row
                for row, (key, version) in enumerate(self._pairs(batch))
                if version is not None and (key not in newest or version > newest[key])
            ]
            yield batch.take(pa.array(kept, pa.int64()))

    def join_state(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a bucket that are newer than all before, and a report behind them."""
        bucket, attempt, _ = task_ids()
        newest = self.read(self.before.files[bucket])
        at_first, kept, n_stale = dict(newest), [], 0
        schema = to_arrow_schema(self.columns, timezone="UTC")
        parts = list(batches)
        rows = pa.Table.from_batches(parts).cast(schema) if parts else schema.empty_table()
        rows = self.sort(rows, self.step.arrival)
        for row, (key, version) in enumerate(self._pairs(rows)):
            n_stale += key in at_first and (version is None or version <= at_first[key])
            if version is not None and (key not in newest or version > newest[key]):
                newest[key] = version
                kept.append(row)
        found = rows.take(pa.array(kept, pa.int64()))
        yield from found.append_column(REPORT, pa.nulls(len(kept), pa.binary())).to_batches()
        file = self.write(newest, bucket) if newest else None
        result = TaskResult(NewestProfile(rows.num_rows, n_stale), file)
        report = TaskReport("newest", bucket, attempt, result).to_bytes()
        nothing = [pa.nulls(1, field.type) for field in schema]
        whole = schema.append(pa.field(REPORT, pa.binary()))
        yield pa.RecordBatch.from_arrays([*nothing, pa.array([report])], schema=whole)

    def _pairs(self, rows: pa.Table | pa.RecordBatch) -> Iterator[tuple[Any, Any]]:
        columns = (rows[self.step.key], rows[self.step.version])
        return zip(*(each.to_pylist() for each in columns), strict=True)

    def read(self, file: str | None) -> dict[Any, Any]:
        if file is None:
            return {}
        with self.place.files.open_input_file(f"{self.place.runs}/{file}.arrow") as source:
            table = pa.ipc.open_file(source).read_all()
        return dict(zip(table["key"].to_pylist(), table["version"].to_pylist(), strict=True))

    def write(self, newest: Mapping[Any, Any], bucket: int) -> str | None:
        """Write the state of a bucket under a name that no other attempt has, if it is kept."""
        if self.place is None:
            return None
        name = f"newest-{self.batch_id}-{bucket}-{uuid.uuid4().hex}"
        table = pa.table({"key": list(newest), "version": list(newest.values())})
        with (
            self.place.files.open_output_stream(f"{self.place.runs}/{name}.arrow") as sink,
            pa.ipc.new_file(sink, table.schema) as writer,
        ):
            writer.write_table(table)
        return name


# -- the operator on Spark ------------------------------------------------------------------------


class NewestOperator(Operator):
    """Runs a ``NewestStep``."""

    sort: SortRows = staticmethod(sort_rows)
    """How tasks sort the rows of a bucket."""

    def __init__(self, step: NewestStep, *, adaptive: bool) -> None:
        self.name = "newest"
        self.step = step
        self.loop = NewestPlace(adaptive=adaptive)
        self.place: StatePlace | None = None
        self.state = NewestState()

    @classmethod
    def from_step(cls, step: NewestStep, site: Site) -> NewestOperator:
        for name in (step.key, step.version, *step.arrival):
            site.df.select(name)  # says what is wrong with it
        return cls(step, adaptive=site.options.get("adaptive", True))

    # -- a batch ------------------------------------------------------------------------------

    def attach(self, place: StatePlace) -> None:
        self.place = place

    def open(self, part: StatePart | None, again: StatePart | None, batch: Batch) -> None:
        self.state = NewestState() if part is None else part.read(NewestState)

    def lay(self, df: DataFrame, batch: Batch) -> Laid:
        columns = _nullable(df)
        task = NewestTask(self.step, columns, self.place, self.state, batch.id, self.sort)
        arrived, reported = Observation(), Observation()
        rows = df.observe(arrived, F.count(F.lit(1)).alias("n_rows"))
        if self.loop.plan == "early":
            rows = rows.mapInArrow(task.drop_early, df.schema)
        schema = StructType([*columns, StructField(REPORT, BinaryType())])
        run = rows.repartition(N_BUCKETS, self.step.key).mapInArrow(task.join_state, schema)
        run = run.observe(reported, F.collect_list(REPORT).alias("newest"))
        pending = (("rows", arrived), ("tasks", reported))
        return Laid(
            run.where(F.col(REPORT).isNull()).drop(REPORT),
            tuple(Pending(name, PendingMetrics(each)) for name, each in pending),
        )

    def shape(self, df: DataFrame) -> DataFrame:
        return df.mapInArrow(lambda batches: batches, _nullable(df))

    def is_whole(self, observed: Sequence[Observed]) -> bool:
        return len(self._results(observed)) == N_BUCKETS

    def close(self, observed: Sequence[Observed], batch: Batch) -> StatePart:
        files = tuple(each.file for each in self._results(observed))
        return StatePart.from_content(
            NewestState(files), [each for each in files if each is not None]
        )

    def learn(self, observed: Sequence[Observed], batch: Batch) -> list[JournalEntry]:
        results = self._results(observed)
        if not results:
            return []
        n_rows = next(each.metrics["n_rows"] for each in observed if each.name == "rows")
        seen = NewestProfile().merge(*(each.profile for each in results))
        # Those that were dropped early were stale.
        n_dropped = n_rows - seen.n_rows
        return self.loop.step(NewestProfile(n_rows, seen.n_stale + n_dropped), batch.id)

    @staticmethod
    def _results(observed: Sequence[Observed]) -> list[TaskResult]:
        """Return what the task of each bucket said, in the order of buckets."""
        tasks = next((each for each in observed if each.name == "tasks"), None)
        return [] if tasks is None else [each.profile for each in tasks.reports("newest")]

    # -- what people see, and what is saved -----------------------------------------------------

    @property
    def choices(self) -> tuple[Choice, ...]:
        return (self.loop,)

    def describe(self, history: History) -> list[Section]:
        known = self.loop.known
        table = Table(
            (Column("key"), Column("stale", "share")), ((self.step.key, known.stale_frac),)
        )
        facts = Facts((("plan", self.loop.plan), ("adaptive", str(self.loop.is_adaptive))))
        text = Text(f"Rows <older> than the newest of their {self.step.key} are dropped.")
        tiles = (Tile("stale rows", known.stale_frac, "share"),)
        return [
            Section("Newest rows", (text, facts, table), tiles),
            *last_change(history.last("place")),
        ]


def _nullable(df: DataFrame) -> StructType:
    """Return the columns of a DataFrame, in which a report can stand as a row of NULLs."""
    return StructType([StructField(each.name, each.dataType) for each in df.schema])
