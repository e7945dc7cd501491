"""Models of a stream on Spark: rows go to the buckets of their entities in one shuffle."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import msgspec
from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StructField, StructType

from eddyline.errors import QueryError
from eddyline.models.fitting import FitReport
from eddyline.models.streaming import COMPONENT, ModelPart
from eddyline.models.view import ModelCounts, ModelRecord, ModelView
from eddyline.spark.analysis import arrow_schema
from eddyline.spark.arrow_tasks import BUCKET
from eddyline.spark.buckets import ADAPTIVE, REPORT, BucketReports
from eddyline.spark.clock import ResultClock
from eddyline.spark.event_time import micros_of
from eddyline.spark.models.graphs import Graph
from eddyline.spark.models.laying import Source, read_columns, schema_of
from eddyline.spark.models.task import ModelWorker
from eddyline.spark.operator import Laid, Operator, Pending
from eddyline.spark.run.observed_metrics import PendingMetrics
from eddyline.sql.parsing import quoted
from eddyline.watch import models as words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from eddyline.models.step import ModelStep
    from eddyline.models.streaming import BucketReport
    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.records import History
    from eddyline.spark.operator import Batch, Clock, Observed, Site
    from eddyline.state.manifest import StatePart
    from eddyline.state.place import StatePlace
    from eddyline.watch.sections import Section


class ModelOperator(Operator):
    """Runs a ``ModelStep``.

    Raises:
        QueryError: rows without event time.
    """

    name = COMPONENT

    def __init__(self, step: ModelStep, site: Site) -> None:
        if site.clock is None or site.time != step.plan.maker.time:
            msg = (
                f"query {site.query!r} makes models by event time {step.plan.maker.time!r}, which "
                f"its rows do not have: engine.stream(…, time='{step.plan.maker.time}')"
            )
            raise QueryError(msg, query=site.query)
        self.step, self.query = step, site.query
        self.clock: Clock = site.clock
        self.spark = site.df.sparkSession
        self._source = Source(site.df, step.plan.shape, step.plan.maker)
        self._micros = micros_of(site.df, step.plan.maker.time, site.query)
        self.part = self._no_part
        self.total = FitReport()
        self._n_results = 0
        self._place: StatePlace | None = None
        self._reports: BucketReports[BucketReport] = BucketReports()
        self._lock = threading.RLock()
        self.clock.asked()

    @classmethod
    def of(cls, step: ModelStep, site: Site) -> Self:
        """Return the operator of a step."""
        return cls(step, site)

    @property
    def _no_part(self) -> ModelPart:
        """The state before the first batch, with as many buckets as Spark has partitions."""
        partitions = self.spark.conf.get("spark.sql.shuffle.partitions")
        return ModelPart(int(partitions or 1) if self.step.plan.shape.keys else 1)

    @property
    def n_buckets(self) -> int:
        """Parts into which entities are cut."""
        return self.part.n_buckets

    @cached_property
    def _schema(self) -> StructType:
        source = self._source
        return schema_of(self.step.plan.node.shape, source.key_fields, source.time_type)

    # -- state ----------------------------------------------------------------------------------

    def attach(self, place: StatePlace) -> None:
        """Take note of where rows and segments are written."""
        self._place = place

    def open(self, part: StatePart | None, again: StatePart | None, batch: Batch) -> None:  # noqa: ARG002
        """Start from the state after the batch before.

        Raises:
            StateError: it cannot be read.
        """
        with self._lock:
            self.part = self._no_part if part is None else part.read(ModelPart)

    def is_whole(self, observed: Sequence[Observed]) -> bool:
        """Return whether every bucket has reported; without rows none need do."""
        return self.clock.is_idle or self._reports.of(observed).keys() == {*range(self.n_buckets)}

    def close(self, observed: Sequence[Observed], batch: Batch) -> StatePart:  # noqa: ARG002
        """Return the state after the batch, of which all files are written."""
        found = self._reports.of(observed)
        with self._lock:
            if not self.clock.is_idle:
                buckets = {bucket: found[bucket].after for bucket in sorted(found)}
                self.part = ModelPart(self.n_buckets, buckets)
            return self.part.packed()

    # -- one batch ------------------------------------------------------------------------------

    def lay(self, df: DataFrame, batch: Batch) -> Laid:  # noqa: ARG002
        """Return the results that event time allows after a batch."""
        if self.clock.is_idle:
            return Laid(self._nothing)
        # Spark would put partitions together, which here are buckets.
        df.sparkSession.conf.set(ADAPTIVE, "false")
        assert self._place is not None
        done = Observation()
        found = self._worked(df, self._place).observe(done, *self._observes)
        return Laid(
            found.where(f"{REPORT} IS NULL").drop(REPORT),
            (Pending(COMPONENT, PendingMetrics(done)),),
        )

    @cached_property
    def _observes(self) -> tuple[Column, ...]:
        return (F.collect_list(REPORT).alias("reports"),)

    def _worked(self, df: DataFrame, place: StatePlace) -> DataFrame:
        plan = self.step.plan
        schema = StructType([*self._schema, StructField(REPORT, BinaryType())])
        worker = ModelWorker(
            plan, arrow_schema(df.sparkSession, schema), place, self.part, self.clock.after,
            self.clock.offset,
        )  # fmt: skip
        keys = ", ".join(quoted(each) for each in plan.shape.keys)
        bucket = f"CAST(pmod(xxhash64({keys}), {self.n_buckets}) AS INT)" if keys else "0"
        late = self._micros + F.lit(self.clock.offset) < F.lit(self.clock.before)
        rows = df.where(~late) if self.clock.has_late else df
        return (
            read_columns(rows, plan.maker, f"{bucket} AS {BUCKET}")
            .repartitionById(self.n_buckets, BUCKET)
            .mapInArrow(worker.run, schema)
        )

    def once(self, df: DataFrame) -> DataFrame:
        """Return all results over a batch DataFrame; nothing is kept."""
        return Graph((replace(self._source, df=df),), self.step.plan.node).df

    def shape(self, df: DataFrame) -> DataFrame:  # noqa: ARG002 - the columns are other ones
        """Return a DataFrame with the columns of results."""
        return self._nothing

    @property
    def _nothing(self) -> DataFrame:
        return self.spark.createDataFrame([], self._schema)

    def event_time(self, site: Site, columns: Sequence[str]) -> tuple[str | None, Clock | None]:  # noqa: ARG002
        """Return that results have no event time: one that is of long ago may come late."""
        return None, ResultClock(self.clock)

    def learn(self, observed: Sequence[Observed], batch: Batch) -> list[JournalEntry]:  # noqa: ARG002
        """Take in what the buckets of a batch did."""
        found = self._reports.of(observed)
        if found and not self.clock.is_idle:
            with self._lock:
                for each in found.values():
                    self.total += each.fit
                    self._n_results += each.n_results
        return []

    # -- what people see ------------------------------------------------------------------------

    def view(self) -> ModelView:
        """Return the operator as it stands."""
        with self._lock:
            states = list(self.part.buckets.values())
            files = {
                name: [each.files[name] for each in states if name in each.files]
                for name in ("rows", "segments", "ranges")
            }
            return ModelView(
                name=self.query,
                step=str(self.step),
                total=self.total,
                n_results=self._n_results,
                n_waiting=sum(each.n_rows for each in files["rows"]),
                n_kept=sum(each.n_rows for each in files["segments"]),
                n_bytes=sum(each.n_bytes for every in files.values() for each in every),
                bounds=self.step.plan.bounds,
            )

    def records(self) -> tuple[ModelRecord, ...]:
        """Return the record after a batch."""
        return (self.view().record,)

    def lines(self, n_rows: int, seconds: float) -> tuple[str, ...]:  # noqa: ARG002
        """Return what segments stand for in words, for the progress."""
        return words.lines(self.view().record)

    def sections(self, history: History) -> list[Section]:
        """Return for people what was fitted, and what is kept."""
        return words.sections(self.view(), history)

    def snapshot(self) -> dict[str, Any]:
        """Return the counts."""
        with self._lock:
            saved: dict[str, Any] = msgspec.to_builtins(ModelCounts.of(self.total, self._n_results))
        return saved

    def restore(self, state: Any) -> None:
        """Continue from what ``snapshot`` returned.

        Raises:
            StateError: it is damaged.
        """
        counts = ModelCounts.read(state)
        with self._lock:
            self.total, self._n_results = counts.total, counts.n_results
