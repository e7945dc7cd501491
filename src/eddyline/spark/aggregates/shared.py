"""Aggregates of several queries over one stream: the rows become cells once, for all of them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StructField

from eddyline.aggregates.plan import FIRST, INSTANT, PLACE, AggregatePlan, Share
from eddyline.aggregates.windows import Slides
from eddyline.query.query import CALL, GROUP, WINDOW, AggregateCall, SlideWindow, both
from eddyline.spark.aggregates.columns import start_of_cell
from eddyline.spark.aggregates.operator import AggregatingOperator
from eddyline.spark.relation import instant_of
from eddyline.spark.task_results import ArrowStep
from eddyline.sql.parsing import comparable, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from eddyline.query.steps import AggregateStep, SharedAggregateStep
    from eddyline.spark.operator import Site

_COLUMN = re.compile(rf"\b(?:{GROUP}|{CALL})\d+\b")


@dataclass(frozen=True, slots=True)
class SharedMember:
    """One of several queries, over the columns that all have in common."""

    window: SlideWindow
    columns: dict[str, str]
    """The column of all that each of its own is."""
    groups: tuple[str, ...]
    """Those of them that it groups by, in the order of the finest groups."""
    presence: str
    """The call that counts its rows; empty if it takes all."""
    projections: tuple[str, ...]
    having: str

    @classmethod
    def of(
        cls, step: AggregateStep, columns: dict[str, str], groups: Sequence[str], presence: str
    ) -> SharedMember:
        """Return a query whose columns have other names."""
        assert isinstance(step.window, SlideWindow)

        def renamed(text: str) -> str:
            return _COLUMN.sub(lambda found: columns.get(found[0], found[0]), text)

        projections = tuple(map(renamed, step.projections))
        own = {columns[name] for name, _ in step.groups}
        names = tuple(each for each in groups if each in own)
        return cls(step.window, columns, names, presence, projections, renamed(step.having))


def members_of(step: SharedAggregateStep) -> tuple[list[AggregateCall], list[SharedMember]]:
    """Return the calls of several queries, equal ones once, and the queries over these."""
    calls: dict[AggregateCall, AggregateCall] = {}

    def common(call: AggregateCall) -> str:
        plain = replace(call, column="")
        known = calls.setdefault(plain, replace(call, column=f"{CALL}{len(calls)}"))
        return known.column

    groups = {comparable(text): name for name, text in step.finest.groups}
    found = []
    for own, where in step.members:
        columns = {name: groups[comparable(text)] for name, text in own.groups}
        for call in own.calls:
            columns[call.column] = common(replace(call, where=both(where, call.where)))
        presence = common(AggregateCall("count", (), "", where=where)) if where else ""
        found.append(SharedMember.of(own, columns, [*groups.values()], presence))
    return list(calls.values()), found


class SharedAggregateOperator(AggregatingOperator):
    """Runs a ``SharedAggregateStep``."""

    def __init__(self, step: SharedAggregateStep, site: Site) -> None:
        calls, self.members = members_of(step)
        super().__init__(step, site, calls, step.finest.groups)
        made = {each.groups for each in self.members}
        self.levels = sorted(made, key=len, reverse=True)
        self.groups = replace(self.groups, coarser=tuple(self.levels[1:]))
        self.partials = self.partials_of(self.calls)
        by_call = {each.call.column: [one.column for one in each.partials] for each in self.calls}
        self.shares = tuple(self._share(each, by_call) for each in self.members)

    def _share(self, member: SharedMember, by_call: dict[str, list[str]]) -> Share:
        own = dict.fromkeys(
            column
            for call in member.columns.values()
            if call in by_call
            for column in by_call[call]
        )
        presence = by_call[member.presence][0] if member.presence else ""
        level = self.levels.index(member.groups)
        return Share(member.window, tuple(own), member.groups, presence, level)

    def plan_of(self, before: int, after: int) -> AggregatePlan:
        """Return the work of the buckets between two instants (µs)."""
        window = self.members[0].window
        names = self.groups.names
        return AggregatePlan(before, after, names, self.partials, window, shares=self.shares)

    def cells(self, rows: DataFrame) -> DataFrame:
        """Return cells with their buckets."""
        reduced = [each.reduced for each in self.lifts]
        return self.placement.grouped(rows, start_of_cell(self.slides), reduced)

    @cached_property
    def slides(self) -> Slides:
        """How time is cut into cells: at the edges of all windows."""
        return Slides.common([each.window for each in self.members])

    @property
    def fields(self) -> list[StructField]:
        """The columns that tasks return, but for the report."""
        values = [field for call in self.calls for field in call.fields]
        own = [StructField(PLACE, IntegerType())]
        own += [StructField(name, LongType()) for name in (INSTANT, FIRST)]
        groups = [StructField(each.name, each.dataType) for each in self.groups.fields]
        return [*own, *groups, *values]

    def results(self, found: DataFrame) -> DataFrame:
        """Return the results of all queries for which HAVING is true."""
        start, end = (F.expr(instant_of(name, is_local=self.is_local)) for name in (FIRST, INSTANT))
        values: dict[str, Column] = {each.call.column: each.value() for each in self.calls}
        values[WINDOW] = F.struct(start.alias("start"), end.alias("end"))
        results = found.withColumns(values)
        passes = [
            (place, F.expr(f"({each.having}\n)"))
            for place, each in enumerate(self.members)
            if each.having
        ]
        if passes:
            said = F.lit(True)
            for place, condition in passes:
                said = F.when(F.col(PLACE) == place, condition).otherwise(said)
            results = results.where(said)
        return results.select(PLACE, *map(quoted, self.groups.names), *map(quoted, values))

    @cached_property
    def result_step(self) -> ArrowStep | None:
        """How results are made if all values are what tasks return; None if Spark makes them."""
        if any(each.having for each in self.members) or not all(
            each.is_plain for each in self.calls
        ):
            return None
        step = self.plain_values((*self.groups.names, PLACE), start=FIRST)
        return ArrowStep(self.shape(self.rows_shape), step)

    @property
    def windows(self) -> tuple[str, ...]:
        """The windows as queries would write them."""
        return tuple(dict.fromkeys(each.window.text for each in self.members))
