"""Aggregates whose rows go to buckets unreduced.

They are ``OVER`` and correlations of rules. ``OverOperator`` gives each row values of the rows of
its partition up to it. Of the rows of a ``CorrelateOperator`` only matches of rules go to the
bucket of their group; other rows pass.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from eddyline.aggregates.plan import AggregatePlan, Frame
from eddyline.lane.exchange import BUCKET
from eddyline.query.correlations import KEY, PLACE
from eddyline.query.query import UNBOUNDED, span_text
from eddyline.spark.aggregates.columns import CHECK, CODE, MICROS, START
from eddyline.spark.aggregates.operator import AggregatingOperator, unbounded_values
from eddyline.spark.analysis import check_names, check_travel
from eddyline.spark.lane import Refused
from eddyline.spark.prepared import Selected
from eddyline.spark.projection import picked_columns
from eddyline.spark.task_results import ArrowStep
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

    from eddyline.aggregates.loop import AggregateView
    from eddyline.aggregates.plan import Partials
    from eddyline.query.correlations import CorrelateStep
    from eddyline.query.query import Window
    from eddyline.query.steps import OverStep
    from eddyline.spark.aggregates.columns import LiftedCall
    from eddyline.spark.operator import Site


class OverOperator(AggregatingOperator):
    """Runs an ``OverStep``: rows go to their buckets as they are, and wait for event time."""

    name = "over"
    gives_all = True
    decides = False

    def __init__(self, step: OverStep, site: Site) -> None:
        check_names(site.df)
        by = [(f"__by{k}", text) for k, text in enumerate(step.partition_by)]
        super().__init__(step, site, [over.call for over in step.calls], by)
        self.columns = [StructField(field.name, field.dataType) for field in site.df.schema]
        check_travel("OVER (…)", self.columns)
        self.frames: dict[Window, list[LiftedCall]] = {}
        """The calls by the rows that they are over."""
        for over, call in zip(step.calls, self.calls, strict=True):
            self.frames.setdefault(over.window, []).append(call)
        growing = (unbounded_values(step.input, *frame) for frame in self.frames.items())
        self.unbounded = tuple(chain.from_iterable(growing))

    @property
    def by_row(self) -> bool:
        """That rows go to the buckets as they are."""
        return True

    def plan_of(self, before: int, after: int) -> AggregatePlan:
        """Return the work of the buckets between two instants (µs)."""
        # A frame that counts rows puts those of one instant in order; FIRST and LAST follow it.
        is_counted = any(window.counts is not None for window in self.frames)
        frames = [
            Frame(
                window,
                self._in_order(self.partials_of(calls)) if is_counted else self.partials_of(calls),
                {lifted.column: lifted.source for call in calls for lifted in call.partials},
            )
            for window, calls in self.frames.items()
        ]
        return AggregatePlan(
            before,
            after,
            (),
            self.partials_of(()),
            UNBOUNDED,
            frames=tuple(frames),
            ties=tuple(column.name for column in self.columns) if is_counted else (),
            lifts=self._lifts,
        )

    @staticmethod
    def _in_order(partials: Partials) -> Partials:
        """Return partial aggregates whose first and last entries are those of rows in order."""
        names = {"first": "first_row", "last": "last_row"}
        monoids = {
            column: names.get(monoid, monoid) if isinstance(monoid, str) else monoid
            for column, monoid in partials.monoids.items()
        }
        return replace(partials, monoids=monoids)

    def cells(self, rows: DataFrame) -> DataFrame:
        """Return the rows with their buckets."""
        return self.as_rows.over(self.placement.coded(rows))

    @property
    def carried(self) -> Mapping[str, str]:
        """All columns of the rows."""
        return {column.name: quoted(column.name) for column in self.columns}

    @property
    def fields(self) -> list[StructField]:
        """The columns that tasks return, but for the report."""
        return [*self.columns, *(field for call in self.calls for field in call.fields)]

    def results(self, returned: DataFrame) -> DataFrame:
        """Return the rows with the values of their calls."""
        return self._answered.over(returned)

    @cached_property
    def result_step(self) -> ArrowStep | None:
        """Step that adds the values of tasks to rows; None if Spark computes one."""
        if not all(call.is_plain for call in self.calls):
            return None
        names = [column.name for column in self.columns]
        values = [StructField(call.call.column, call.kind) for call in self.calls]
        like = self.results(self.spark.createDataFrame([], self.task_schema))
        texts = [*map(quoted, names), *(value.name for value in values)]
        picked = picked_columns(texts, StructType([*self.columns, *values]), like, ansi=self.ansi)
        if picked is None:
            return None
        return ArrowStep(like, self.plain_values(names, has_window=False, picked=picked))

    @cached_property
    def _answered(self) -> Selected:
        """The output columns."""
        columns = [F.col(quoted(column.name)) for column in self.columns]
        return Selected(*columns, *(call.value().alias(call.call.column) for call in self.calls))

    # -- what people see --------------------------------------------------------------------------

    @property
    def windows(self) -> tuple[str, ...]:
        """The windows of rows as a query would write them."""
        return tuple(window.text for window in self.frames)


class CorrelateOperator(AggregatingOperator):
    """Runs a ``CorrelateStep``: matches wait for event time, other rows pass at once."""

    name = "correlate"
    step: CorrelateStep
    decides = False

    def __init__(self, step: CorrelateStep, site: Site) -> None:
        super().__init__(step, site, (), [("__by0", PLACE), ("__by1", KEY)])
        self.columns = [StructField(field.name, field.dataType) for field in site.df.schema]

    @property
    def by_row(self) -> bool:
        """That rows go to the buckets as they are."""
        return True

    def plan_of(self, before: int, after: int) -> AggregatePlan:
        """Return the work of the buckets between two instants (µs)."""
        partials = self.partials_of(())
        return AggregatePlan(
            before, after, (), partials, UNBOUNDED, correlations=self.step.correlations
        )

    def _timely(self, df: DataFrame) -> DataFrame:
        """Return the rows that pass, and the matches that have an event time and are not late."""
        rows, fits = df.withColumn(MICROS, self.micros), F.expr(self._is_timely)
        return rows.where(~self._is_mine | F.coalesce(fits, F.lit(False)))

    def check_may_read(self) -> None:
        """Raise Refused: rows are results of rules."""
        raise Refused("rows are results of rules")

    @property
    def _is_mine(self) -> Column:
        """Whether a row is a match of one of the correlations."""
        return F.col(PLACE).isin([place for place, _ in self.step.correlations])

    def cells(self, rows: DataFrame) -> DataFrame:
        """Return the rows with their buckets."""
        names = [quoted(column.name) for column in self.columns]
        coded = self.placement.coded(rows, f"coalesce({MICROS}, 0L)")
        return coded.select(BUCKET, CODE, CHECK, START, *names)

    @property
    def fields(self) -> list[StructField]:
        """The columns that tasks return, but for the report."""
        return self.columns

    def results(self, returned: DataFrame) -> DataFrame:
        """Return the rows that pass, and the alerts."""
        return returned.select(*[F.col(quoted(column.name)) for column in self.columns])

    # -- what people see --------------------------------------------------------------------------

    def facts(self) -> AggregateView:
        """Return the correlations as they stand."""
        texts = tuple(correlation.text for _, correlation in self.step.correlations)
        return replace(
            super().facts(), calls=texts, groups=("correlation", "its group-by values"), notes=()
        )

    @property
    def windows(self) -> tuple[str, ...]:
        """The timespans."""
        lengths = sorted({correlation.length for _, correlation in self.step.correlations})
        return tuple(span_text(length) for length in lengths)
