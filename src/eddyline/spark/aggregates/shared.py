"""Shared aggregates of several queries over one stream.

Rows become cells once, for all of them.
"""

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
    def from_step(
        cls, step: AggregateStep, columns: dict[str, str], groups: Sequence[str], presence: str
    ) -> SharedMember:
        """Return a query whose columns have other names."""
        assert isinstance(step.window, SlideWindow)

        def renamed(text: str) -> str:
            return _COLUMN.sub(lambda match: columns.get(match[0], match[0]), text)

        projections = tuple(map(renamed, step.projections))
        group_columns = {columns[name] for name, _ in step.groups}
        names = tuple(group for group in groups if group in group_columns)
        return cls(step.window, columns, names, presence, projections, renamed(step.having))


def members_of(step: SharedAggregateStep) -> tuple[list[AggregateCall], list[SharedMember]]:
    """Return the calls of several queries, equal ones once, and the queries over these."""
    calls: dict[AggregateCall, AggregateCall] = {}

    def common(call: AggregateCall) -> str:
        plain = replace(call, column="")
        shared_call = calls.setdefault(plain, replace(call, column=f"{CALL}{len(calls)}"))
        return shared_call.column

    groups = {comparable(text): name for name, text in step.finest.groups}
    members = []
    for member, where in step.members:
        columns = {name: groups[comparable(text)] for name, text in member.groups}
        for call in member.calls:
            columns[call.column] = common(replace(call, where=both(where, call.where)))
        presence = common(AggregateCall("count", (), "", where=where)) if where else ""
        members.append(SharedMember.from_step(member, columns, [*groups.values()], presence))
    return list(calls.values()), members


class SharedAggregateOperator(AggregatingOperator):
    """Runs a ``SharedAggregateStep``."""

    def __init__(self, step: SharedAggregateStep, site: Site) -> None:
        calls, self.members = members_of(step)
        super().__init__(step, site, calls, step.finest.groups)
        levels = {member.groups for member in self.members}
        self.levels = sorted(levels, key=len, reverse=True)
        self.groups = replace(self.groups, coarser=tuple(self.levels[1:]))
        self.partials = self.partials_of(self.calls)
        by_call = {call.call.column: [one.column for one in call.partials] for call in self.calls}
        self.shares = tuple(self._share(member, by_call) for member in self.members)

    def _share(self, member: SharedMember, by_call: dict[str, list[str]]) -> Share:
        columns = dict.fromkeys(
            column
            for call in member.columns.values()
            if call in by_call
            for column in by_call[call]
        )
        presence = by_call[member.presence][0] if member.presence else ""
        level = self.levels.index(member.groups)
        return Share(member.window, tuple(columns), member.groups, presence, level)

    def plan_of(self, before: int, after: int) -> AggregatePlan:
        """Return the work of the buckets between two instants (µs)."""
        window = self.members[0].window
        names = self.groups.names
        return AggregatePlan(before, after, names, self.partials, window, shares=self.shares)

    def cells(self, rows: DataFrame) -> DataFrame:
        """Return cells with their buckets."""
        reduced = [lifted.reduced for lifted in self.lifts]
        return self.placement.grouped(rows, start_of_cell(self.slides), reduced)

    @cached_property
    def slides(self) -> Slides:
        """Slides that cut time into cells: at the edges of all windows."""
        return Slides.common([member.window for member in self.members])

    @property
    def fields(self) -> list[StructField]:
        """The columns that tasks return, but for the report."""
        values = [field for call in self.calls for field in call.fields]
        fields = [StructField(PLACE, IntegerType())]
        fields += [StructField(name, LongType()) for name in (INSTANT, FIRST)]
        groups = [StructField(field.name, field.dataType) for field in self.groups.fields]
        return [*fields, *groups, *values]

    def results(self, returned: DataFrame) -> DataFrame:
        """Return the results of all queries for which HAVING is true."""
        start, end = (F.expr(instant_of(name, is_local=self.is_local)) for name in (FIRST, INSTANT))
        values: dict[str, Column] = {call.call.column: call.value() for call in self.calls}
        values[WINDOW] = F.struct(start.alias("start"), end.alias("end"))
        results = returned.withColumns(values)
        passes = [
            (place, F.expr(f"({member.having}\n)"))
            for place, member in enumerate(self.members)
            if member.having
        ]
        if passes:
            is_result = F.lit(True)
            for place, condition in passes:
                is_result = F.when(F.col(PLACE) == place, condition).otherwise(is_result)
            results = results.where(is_result)
        return results.select(PLACE, *map(quoted, self.groups.names), *map(quoted, values))

    @cached_property
    def result_step(self) -> ArrowStep | None:
        """Step from the values of tasks to results; None if Spark makes them."""
        if any(member.having for member in self.members) or not all(
            call.is_plain for call in self.calls
        ):
            return None
        step = self.plain_values((*self.groups.names, PLACE), start=FIRST)
        return ArrowStep(self.shape(self.rows_shape), step)

    @property
    def windows(self) -> tuple[str, ...]:
        """The windows as queries would write them."""
        return tuple(dict.fromkeys(member.window.text for member in self.members))
