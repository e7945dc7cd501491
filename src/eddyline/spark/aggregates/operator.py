"""Aggregates by group and window on Spark: rows to cells natively, cells to results in buckets."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, LongType, StructField

from eddyline.aggregates.plan import (
    FIRST,
    INSTANT,
    IS,
    OLD,
    SHOWN,
    WAS,
    AggregatePlan,
)
from eddyline.aggregates.samples import GroupSamples
from eddyline.aggregates.slides import Slides
from eddyline.errors import NotSupportedError
from eddyline.query.query import LONGEST, WINDOW, SessionWindow, SlideWindow, both
from eddyline.spark.aggregates.bucketed import Bucketed, unbounded_values
from eddyline.spark.aggregates.compared import shows_changes, tells_time
from eddyline.spark.aggregates.counted import Counted
from eddyline.spark.aggregates.grouping import CHECK, CODE, START
from eddyline.spark.aggregates.lifting import MICROS
from eddyline.spark.aggregates.placement import start_of_cell
from eddyline.spark.aggregates.sampled import marked_of, numbers_of, told
from eddyline.spark.aggregates.task import END
from eddyline.spark.aggregates.travelling import Travelling
from eddyline.spark.analysis import refused, unlogged
from eddyline.spark.arrow_tasks import BUCKET
from eddyline.spark.clocks_of_results import ResultClock
from eddyline.spark.event_time import instant_of
from eddyline.spark.prepared import Added, Selected
from eddyline.sql.parsing import quoted
from eddyline.state.rows import ALWAYS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from eddyline.query.steps import AggregateStep
    from eddyline.runtime.journal import JournalEntry
    from eddyline.spark.operator import Batch, Clock, Observed, Site


LEAST = "__least"
"""The column of the first instant of the rows of a cell."""

NEW, BEFORE = "__new", "__before"
"""Columns of output rows, now and before, where only changes are emitted."""


class AggregateOperator(Bucketed):
    """Runs an ``AggregateStep``."""

    def __init__(self, step: AggregateStep, site: Site) -> None:
        self.step = step
        self.window = step.window
        _check(step, site.query)
        changes = not isinstance(self.window, SlideWindow | SessionWindow)
        self.emits = (step.emits or "istream") if changes else step.emits
        # What WHERE drops has no part in an aggregate, and must not make one raise.
        calls = [replace(each, where=both(step.where, each.where)) for each in step.calls]
        super().__init__(site, calls, step.groups)
        written = zip(self.calls, step.calls, strict=True)
        self.calls = tuple(replace(each, call=call) for each, call in written)
        numbers = numbers_of(self.calls)
        self.unbounded = tuple(unbounded_values(step.input, self.window, self.calls))
        self.samples = GroupSamples([" ".join(each.call.text.split()) for each in numbers])
        self.ties = tuple(site.df.columns) if self.by_row else ()
        """The columns that order rows of one instant, where rows are counted."""
        self.partials = self.partials_of(self.calls)
        self.compares = self.emits == "istream" and shows_changes(step, self.calls)
        """Whether tasks see which results changed, and tell none of before."""
        self.gives_all = not (self._tells_old or step.having)
        counted = self.counted
        self._tells_time = counted is not None and not counted.spans and tells_time(step, self.time)
        """Whether a window has the newest row of a partition alone, and results say when it was."""
        # Sessions have an end of their own; Spark makes one of equal groups that have other bits.
        is_known = not self.by_row and not isinstance(self.window, SessionWindow)
        is_known = is_known and self.groups.are_exact
        self._can_reduce = is_known and all(each.can_reduce for each in self.lifts)
        """Whether tasks make of rows the cells that Spark would make."""
        self._travels = _travelling(self)
        codes = (F.col(each) for each in (BUCKET, CODE, CHECK, START))
        self._rows = Selected(*codes, *self._travels.columns)
        """Rows of which tasks make cells."""
        self.answers(self._nothing)  # says what is wrong with it

    @classmethod
    def of(cls, step: AggregateStep, site: Site) -> Self:
        """Return the operator of a step."""
        return cls(step, site)

    @property
    def by_row(self) -> bool:
        """Whether windows count rows."""
        return self.window.counts is not None

    @cached_property
    def counted(self) -> Counted | None:
        """The rows that windows count; None if they count none."""
        if not self.by_row:
            return None
        return Counted.of(self.step, self.rows_shape, self.groups, self.query)

    @property
    def n_buckets(self) -> int:
        """Parts into which groups are cut.

        It is one where groups have rows of several partitions, and where all groups are given at
        each instant, as one bucket does not know the instants of another.
        """
        gives_all = self.emits == "rstream" and not isinstance(self.window, SlideWindow)
        counted = self.counted
        has_parts = counted is None or (counted.partitions.columns and not counted.spans)
        return super().n_buckets if has_parts and not gives_all else 1

    def plan_of(self, before: int, after: int) -> AggregatePlan:
        """Return the work of the buckets between two instants (µs)."""
        return AggregatePlan(
            before,
            after,
            self.groups.names,
            self.partials,
            self.window,
            self.emits,
            ties=tuple(self.ties_travelling),
            values={each.column: each.source for each in self.lifts} if self.by_row else {},
            spans=self.counted is not None and self.counted.spans,
            watched=None if self.place is None else self.samples.watched,
            compares=self.compares,
            is_alone=self.compares and self._tells_time,
            lifts=self._travels.lifts if self.by_row or self.reduces else {},
            reduces=self.reduces,
        )

    def event_time(
        self,
        site: Site,  # noqa: ARG002 - of the protocol
        columns: Sequence[str],  # noqa: ARG002
    ) -> tuple[str | None, Clock | None]:
        """Return the output column that is the end of windows, and the clock of results."""
        ends = isinstance(self.window, SlideWindow | SessionWindow)
        return self.step.end, ResultClock(self.clock, offset=-1 if ends else 0)

    def once(self, df: DataFrame) -> DataFrame:
        """Return all results over batch DataFrames; nothing is kept.

        Windows without a beginning end for all groups with the first slide after the last row.
        """
        if not isinstance(self.window, SlideWindow) or self.window.length < LONGEST:
            return super().once(df)
        newest = self._timely(df).agg(F.max(MICROS)).collect()[0][0]
        end = ALWAYS if newest is None else Slides.of(self.window).end_from(newest + 1)
        return self.answers(self._worked(self._timely(df), None, end))

    # -- cells ----------------------------------------------------------------------------------

    def cells(self, rows: DataFrame) -> DataFrame:
        """Return rows or cells with their buckets."""
        to, reduced = self.placement, [each.reduced for each in self.lifts]
        if self.counted is not None:
            return self.counted.rows(rows, self.n_buckets, self._travels.columns)
        if self.reduces:
            return self._rows.over(to.coded(rows, self._start))
        if not isinstance(self.window, SessionWindow):
            return to.grouped(rows, self._start, reduced)
        ends = F.min(MICROS).alias(LEAST), F.max(MICROS).alias(END)
        made = to.grouped(rows, self._start, [*reduced, *ends])
        return made.withColumn(START, F.col(LEAST)).drop(LEAST)

    @property
    def reduces(self) -> bool:
        """Whether rows go to the buckets as they are, and tasks make cells of them."""
        return self.laid_by == "late" and self._can_reduce

    @property
    def ties_travelling(self) -> dict[str, str]:
        """The columns that order rows of one instant, by the names under which they travel."""
        return {f"__tie{k}": name for k, name in enumerate(self.ties)}

    @property
    def _start(self) -> str:
        """SQL of the start of the cell of a row (µs)."""
        if isinstance(self.window, SessionWindow):
            return f"{MICROS} - pmod({MICROS}, {self.window.gap}L)"
        if not isinstance(self.window, SlideWindow):
            return MICROS
        return start_of_cell(Slides.of(self.window))

    @cached_property
    def _observes(self) -> tuple[Column, ...]:
        """The values of a few groups."""
        return (told(self.groups, numbers_of(self.calls)),)

    def learn(self, observed: Sequence[Observed], batch: Batch) -> list[JournalEntry]:
        """Take in what the buckets of a batch did, and what a few groups were."""
        entries = super().learn(observed, batch)
        reports = self._reports.of(observed).values()
        marked = marked_of(observed, len(self.samples.columns))
        with self._lock:
            self.samples.take([each.busiest for each in reports], marked)
        return entries

    # -- results --------------------------------------------------------------------------------

    @property
    def _tells_old(self) -> bool:
        """Whether tasks tell the results before, too, so that output rows can be compared."""
        return self.emits in ("istream", "dstream") and not self.compares

    @property
    def fields(self) -> list[StructField]:
        """The columns that tasks return, but for the report."""
        values = [field for call in self.calls for field in call.fields]
        own = [StructField(name, LongType()) for name in (INSTANT, SHOWN)]
        found = [*self.groups.fields, *own, *values]
        if isinstance(self.window, SessionWindow):
            found.append(StructField(FIRST, LongType()))
        if self._tells_old:
            found += [StructField(f"{OLD}{each.name}", each.dataType) for each in values]
            found += [StructField(name, BooleanType()) for name in (IS, WAS)]
        return [StructField(each.name, each.dataType) for each in found]

    def answers(self, found: DataFrame) -> DataFrame:
        """Return the results of what tasks returned.

        Raises:
            QueryError: HAVING or an output column that Spark refuses.
        """
        try:
            with unlogged():
                return self._answers(found)
        except AnalysisException as error:
            raise refused(f"query {self.query!r}", error, query=self.query) from error

    def _answers(self, found: DataFrame) -> DataFrame:
        if not self._tells_old:
            return self._projected(found)
        for each in self._sides:
            found = each.over(found)
        side = NEW if self.emits == "istream" else BEFORE
        same = f"{NEW}_is AND {BEFORE}_is AND {NEW} <=> {BEFORE}"
        return found.where(f"{side}_is AND NOT ({same})").select(f"{side}.*")

    @cached_property
    def _sides(self) -> tuple[Added, ...]:
        """What is added for each side: its row, then its output columns, and whether it is there.

        The row of the second side takes the place of that of the first.
        """
        sides = []
        for side, prefix, flag in ((NEW, "", IS), (BEFORE, OLD, WAS)):
            passes = F.col(flag)
            if self.step.having:
                passes = passes & F.coalesce(F.expr(f"({self.step.having}\n)"), F.lit(False))
            projected = F.struct(*[F.expr(each) for each in self.step.projections])
            sides += [self._row(prefix), Added({f"{side}_is": passes, side: projected})]
        return tuple(sides)

    def _projected(self, found: DataFrame) -> DataFrame:
        results = self._values.over(found)
        if self.step.having:
            results = results.where(self.step.having)
        return self._output.over(results)

    @cached_property
    def _values(self) -> Added:
        """The columns that HAVING and output columns read beside the groups."""
        return self._row("")

    @cached_property
    def _output(self) -> Selected:
        """The output columns."""
        return Selected(*self.step.projections)

    def _row(self, prefix: str) -> Added:
        """Return the columns that HAVING and output columns read beside the groups."""
        values = {each.call.column: each.value(prefix) for each in self.calls}
        return Added({**values, WINDOW: self._window_column})

    @property
    def _window_column(self) -> Column:
        window = self.window
        if isinstance(window, SessionWindow):
            start = FIRST
        elif window.counts is not None or window.length == LONGEST:
            start = "CAST(NULL AS BIGINT)"
        else:
            start = f"{INSTANT} - {window.length}L"
        ends = {"start": start, "end": INSTANT}
        return F.struct(
            *(
                F.expr(instant_of(micros, is_local=self.is_local)).alias(name)
                for name, micros in ends.items()
            )
        )

    @property
    def windows(self) -> tuple[str, ...]:
        """The window as a query would write it."""
        return (self.window.text,)


def _travelling(of: AggregateOperator) -> Travelling:
    """Return what of rows travels to tasks, and what tasks make of it."""
    found = Travelling(of.rows_shape.columns)
    groups = of.groups.travelling if of.counted is None else of.counted.travelling
    for name, text in groups.items():
        found.add(name, text)
    # Equal partials of several calls are one column, but in cells.
    is_timed = not isinstance(of.window, SlideWindow)
    for one in {each.source: each for each in of.lifts}.values():
        found.add_partial(one, is_timed=is_timed)
    for tie, each in of.ties_travelling.items():
        found.add(tie, quoted(each))
    return found


def _check(step: AggregateStep, query: str) -> None:
    """Raise NotSupportedError if values cannot be emitted in the way that is asked for."""
    if step.emits == "dstream" and isinstance(step.window, SessionWindow):
        msg = f"query {query!r}: a session is given once, when it ends; DSTREAM has none that ends"
        raise NotSupportedError(msg, query=query)
    if step.emits == "rstream" and isinstance(step.window, SessionWindow):
        msg = f"query {query!r}: a session is given once, when it ends; leave RSTREAM out"
        raise NotSupportedError(msg, query=query)
