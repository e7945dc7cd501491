"""Correlations of rules on Spark: matches go to the bucket of their group, other rows pass."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from eddyline.aggregates.correlations import CorrelationBatch, CorrelationPlan
from eddyline.aggregates.loop import AggregateLoop
from eddyline.query.correlations import KEY, PLACE
from eddyline.query.query import UNBOUNDED, span_text
from eddyline.spark.aggregates.bucketed import Bucketed
from eddyline.spark.aggregates.columns import CHECK, CODE, MICROS, START
from eddyline.spark.aggregates.task import AggregateWorker
from eddyline.spark.arrow_tasks import BUCKET
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from eddyline.aggregates.bucket import BucketBatch
    from eddyline.aggregates.loop import AggregateView
    from eddyline.query.correlations import CorrelateStep
    from eddyline.spark.operator import Site


@dataclass(frozen=True)
class _Worker(AggregateWorker):
    """Answers a bucket of correlations."""

    @property
    def kind(self) -> type[BucketBatch]:
        """The work of a bucket."""
        return CorrelationBatch


class CorrelateOperator(Bucketed):
    """Runs a ``CorrelateStep``: matches wait for event time, other rows pass at once."""

    name = "correlate"
    worker = _Worker
    decides = False

    def __init__(self, step: CorrelateStep, site: Site) -> None:
        self.step = step
        super().__init__(site, (), [("__by0", PLACE), ("__by1", KEY)])
        self.loop = AggregateLoop(adaptive=False)
        self.columns = [StructField(each.name, each.dataType) for each in site.df.schema]

    @classmethod
    def of(cls, step: CorrelateStep, site: Site) -> Self:
        """Return the operator of a step."""
        return cls(step, site)

    @property
    def by_row(self) -> bool:
        """That rows go to the buckets as they are."""
        return True

    def plan_of(self, before: int, after: int) -> CorrelationPlan:
        """Return the work of the buckets between two instants (µs)."""
        partials = self.partials_of(())
        return CorrelationPlan(
            before, after, (), partials, UNBOUNDED, correlations=self.step.correlations
        )

    def _timely(self, df: DataFrame) -> DataFrame:
        """Return the rows that pass, and the matches that have an event time and are not late."""
        rows, fits = df.withColumn(MICROS, self.micros), F.expr(self._is_timely)
        return rows.where(~self._is_mine | F.coalesce(fits, F.lit(False)))

    @property
    def _is_mine(self) -> Column:
        """Whether a row is a match of one of the correlations."""
        return F.col(PLACE).isin([place for place, _ in self.step.correlations])

    def cells(self, rows: DataFrame) -> DataFrame:
        """Return the rows with their buckets."""
        own = [quoted(each.name) for each in self.columns]
        coded = self.placement.coded(rows, f"coalesce({MICROS}, 0L)")
        return coded.select(BUCKET, CODE, CHECK, START, *own)

    @property
    def fields(self) -> list[StructField]:
        """The columns that tasks return, but for the report."""
        return self.columns

    def results(self, found: DataFrame) -> DataFrame:
        """Return the rows that pass, and the alerts."""
        return found.select(*[F.col(quoted(each.name)) for each in self.columns])

    # -- what people see --------------------------------------------------------------------------

    def view(self) -> AggregateView:
        """Return the correlations as they stand."""
        said = tuple(each.text for _, each in self.step.correlations)
        return replace(super().view(), calls=said, groups=("correlation", "its group-by values"))

    @property
    def windows(self) -> tuple[str, ...]:
        """The timespans."""
        lengths = sorted({each.length for _, each in self.step.correlations})
        return tuple(span_text(each) for each in lengths)
