"""Join that several queries share.

The queries have one exchange and one window for each stream. The inputs are those of a join with
the longest windows and the columns of all queries. If queries need different rows of an input, a
row goes to its bucket if at least one query needs it; ``plan.MARKS`` says which. Tasks join the
rows for each query in turn (``joins/operator/bucket``), and a result says which query it is of
(``plan.MEMBER``). Each query has its own probe orders, learned from what its own rows find.

A query that leaves is joined no more. The windows stay as they are, because kept files depend on
them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

from eddyline.errors import StateError
from eddyline.filters.loop import check_options
from eddyline.joins.graph import JoinGraph
from eddyline.joins.orders.pipelines import JoinLoop
from eddyline.joins.plan import COMPONENT, MEMBER, JoinProfile, JoinWork, MemberPlan
from eddyline.joins.view import MemberView
from eddyline.options import FilterOptions
from eddyline.query.predicates import named
from eddyline.report.formatting import one_line
from eddyline.runtime.journal import JournalEntry
from eddyline.spark.bucketed import REPORTED
from eddyline.spark.filters.binding import bind_to
from eddyline.spark.filters.guard import Guard
from eddyline.spark.filters.operator import FilterOperator
from eddyline.spark.joins.bound import BoundJoin
from eddyline.spark.joins.operator import JoinOperator, pipeline_views

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame

    from eddyline.joins.plan import BatchPlan, BucketReport
    from eddyline.joins.view import JoinView
    from eddyline.query.query import Window
    from eddyline.query.steps import JoinMember, MemberFilterStep, SharedJoinStep
    from eddyline.spark.operator import Site


class SharedBound(BoundJoin):
    """The facts of such a join; its results have the number of their query."""

    step: SharedJoinStep

    @cached_property
    def result_schema(self) -> StructType:
        """The columns of results: a struct for each input, and the number of the query."""
        return StructType([*super().result_schema.fields, StructField(MEMBER, IntegerType())])

    @cached_property
    def task_schema(self) -> StructType:
        """The columns that tasks return; the last one is the report."""
        fields = [field for field in super().task_schema if field.name != REPORTED.name]
        return StructType([*fields, StructField(MEMBER, IntegerType()), REPORTED])

    def results(self, df: DataFrame) -> DataFrame:
        """Return the results in what tasks returned: a struct for each input, and the number."""
        return df.select(*self._structs, F.col(MEMBER))

    def columns_of(self, member: JoinMember, name: str) -> tuple[str, ...]:
        """Return an input's columns in a query's results, and the compared ones."""
        layout = self.source.layout(name)
        compared = self.inputs[layout.number].compared if self.source.rough else ()
        needed = {*member.columns[name], *compared}
        return tuple(column for column, _ in layout.columns if column in needed)


class Member:
    """One of the queries that share a join, and what is learned of it."""

    def __init__(self, number: int, member: JoinMember, bound: SharedBound, loop: JoinLoop) -> None:
        self.number, self.join_member, self.loop = number, member, loop
        longest = bound.lengths
        lengths = {name: member.windows[name].length for name in bound.timed}
        self.stays = {name: length for name, length in lengths.items() if length < longest[name]}
        self.columns = {name: bound.columns_of(member, name) for name in member.inputs}
        self.marked = frozenset(name for name, where in member.wheres.items() if where)
        self.work = JoinWork()
        self.n_results = 0
        self.ns = 0
        self.is_here = True

    @property
    def name(self) -> str:
        """The name of the query."""
        return self.join_member.name

    def plan(self, parts: Sequence[int]) -> MemberPlan:
        """Return the plan of the next batch; ``parts`` has the parts of each key class."""
        return MemberPlan(
            self.number,
            self.name,
            self.loop.graph,
            self.loop.plan,
            self.columns,
            self.stays,
            self.marked,
            self.loop.probing(parts),
        )

    def learn(self, reports: Sequence[BucketReport], batch_id: int) -> list[JournalEntry]:
        """Take in what buckets did for it."""
        profile, before = JoinProfile.of_member(reports, self.name), self.loop.plan
        entries = self.loop.step(profile, batch_id)
        changed = {name for name, order in self.loop.plan.items() if order != before[name]}
        self.work = JoinWork.merge([self.work.without(changed), profile.work])
        member_reports = [
            report.members[self.name] for report in reports if self.name in report.members
        ]
        self.n_results += sum(member_report.n_results for member_report in member_reports)
        self.ns += profile.ns
        return entries


class SharedJoinOperator(JoinOperator):
    """Runs a ``SharedJoinStep``: ``MEMBER`` says which query a result is of."""

    bound_type = SharedBound
    bound: SharedBound

    def __init__(self, bound: SharedBound) -> None:
        super().__init__(bound)
        tables = frozenset(self.graph.inputs) - {*bound.timed}
        self.members = [
            Member(
                number,
                member,
                bound,
                JoinLoop(
                    JoinGraph(member.inputs, self.graph.classes),
                    self.options,
                    tables,
                    query=member.name,
                ),
            )
            for number, member in enumerate(bound.step.members)
        ]
        self._entries: list[JournalEntry] = []

    @property
    def here(self) -> list[Member]:
        """The queries that run."""
        return [member for member in self.members if member.is_here]

    def leave_out(self, names: Sequence[str]) -> list[str]:
        """Stop joining for some queries from the next batch on; return the ones that ran."""
        with self._lock:
            leaving = [member for member in self.here if member.name in names]
            for member in leaving:
                member.is_here = False
        return [member.name for member in leaving]

    def remove(self, names: Sequence[str]) -> None:
        """Let queries go while the others run on."""
        why = {"why": "the query left; the windows stay as they are"}
        for name in self.leave_out(names):
            entry = JournalEntry(self._last_batch, COMPONENT, "left", name, None, why)
            self._entries.append(entry)

    @property
    def loops(self) -> Sequence[JoinLoop]:
        """Loops that keep the orders of pipelines good, query by query."""
        return [member.loop for member in self.here]

    def take_entries(self) -> list[JournalEntry]:
        """Return who has left since the last call."""
        entries, self._entries = self._entries, []
        return entries

    def _plan(self, batch_id: int) -> BatchPlan:
        with self._lock:
            members = tuple(member.plan(self._grid.shape) for member in self.here)
        return replace(super()._plan(batch_id), probing=None, members=members)

    def _learn_orders(
        self,
        profile: JoinProfile,  # noqa: ARG002 - each query has its own
        reports: Sequence[BucketReport],
        batch_id: int,
    ) -> list[JournalEntry]:
        return [entry for member in self.here for entry in member.learn(reports, batch_id)]

    def _pipeline_views(self) -> Iterator[Any]:
        return iter(())

    def facts(self) -> JoinView:
        """Return the join as it stands, with the queries that share it."""
        with self._lock:
            views = tuple(map(self._member_view, self.members))
            return replace(super().facts(), members=views)

    def _member_view(self, member: Member) -> MemberView:
        return MemberView(
            member.name,
            tuple(_windows_of(self.bound, member.join_member)),
            tuple(
                (name, one_line(where))
                for name, where in member.join_member.wheres.items()
                if where
            ),
            member.n_results,
            member.ns,
            tuple(pipeline_views(member.loop, member.work, member.name)),
            member.is_here,
        )

    def _learned_orders(self) -> Any:
        """Return the learned state of the pipelines, by query."""
        return {member.name: member.loop.snapshot() for member in self.here}

    def _restore_orders(self, state: Any) -> None:
        """Continue from what ``_learned_orders`` returned; StateError if it is damaged."""
        if not isinstance(state, dict) or state.keys() - {member.name for member in self.members}:
            msg = f"the saved orders of queries that share a join are damaged: {state!r:.80}"
            raise StateError(msg)
        for member in self.here:
            if member.name in state:
                member.loop.restore(state[member.name])


def _windows_of(bound: SharedBound, member: JoinMember) -> Iterator[tuple[str, str]]:
    """Yield the windows of streams in words, by input."""
    for name in bound.timed:
        window: Window = member.windows[name]
        yield name, window.shown


def member_filter(step: MemberFilterStep, site: Site) -> FilterOperator:
    """Return the filter of the results of one of several queries that share a join."""
    options, _ = FilterOptions.taken(site.options)
    check_options(options)
    bound = bind_to(site.df, named(step.predicates), options)
    guard = Guard(f"{MEMBER} = {step.number}")
    operator = FilterOperator(bound, options, step.query, relation=step.query, guard=guard)
    operator.keeps_few = True
    operator.follow_results(site.df)
    return operator
