"""A join that several queries share: one exchange, one window for each stream, own pipelines.

The inputs are those of a join with the longest windows and the columns of all queries. Where
queries need other rows of an input, a row goes to its bucket if one of them needs it, and says
which (``plan.MARKS``). Tasks join them for each query in turn (``joins/operator/members``), and
results say which query they are of (``plan.MEMBER``). Each query has its own orders, learned from
what its own rows find.

A query that leaves is joined no more. The windows stay as they are: files of rows depend on them.
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
        own = [each for each in super().task_schema if each.name != REPORTED.name]
        return StructType([*own, StructField(MEMBER, IntegerType()), REPORTED])

    def results(self, df: DataFrame) -> DataFrame:
        """Return the results in what tasks returned: a struct for each input, and the number."""
        return df.select(*self._structs, F.col(MEMBER))

    def columns_of(self, member: JoinMember, name: str) -> tuple[str, ...]:
        """Return the columns of an input in results of a query, with those that are compared."""
        layout = self.source.layout(name)
        compared = self.inputs[layout.number].compared if self.source.rough else ()
        needed = {*member.columns[name], *compared}
        return tuple(column for column, _ in layout.columns if column in needed)


class Member:
    """One of the queries that share a join, and what is learned of it."""

    def __init__(self, number: int, of: JoinMember, bound: SharedBound, loop: JoinLoop) -> None:
        self.number, self.of, self.loop = number, of, loop
        longest = bound.lengths
        lengths = {name: of.windows[name].length for name in bound.timed}
        self.stays = {name: own for name, own in lengths.items() if own < longest[name]}
        self.columns = {name: bound.columns_of(of, name) for name in of.inputs}
        self.marked = frozenset(name for name, where in of.wheres.items() if where)
        self.work = JoinWork()
        self.n_results = 0
        self.ns = 0
        self.is_here = True

    @property
    def name(self) -> str:
        """The name of the query."""
        return self.of.name

    def plan(self, parts: Sequence[int]) -> MemberPlan:
        """Return how it is joined in the next batch; ``parts`` are those of each key class."""
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
        own = [each.members[self.name] for each in reports if self.name in each.members]
        self.n_results += sum(each.n_results for each in own)
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
                each,
                bound,
                JoinLoop(
                    JoinGraph(each.inputs, self.graph.classes),
                    self.options,
                    tables,
                    query=each.name,
                ),
            )
            for number, each in enumerate(bound.step.members)
        ]
        self._entries: list[JournalEntry] = []

    @property
    def here(self) -> list[Member]:
        """The queries that run."""
        return [each for each in self.members if each.is_here]

    def leave_out(self, names: Sequence[str]) -> list[str]:
        """Join nothing for some queries from the next batch on; return those that were there."""
        with self._lock:
            left = [each for each in self.here if each.name in names]
            for each in left:
                each.is_here = False
        return [each.name for each in left]

    def remove(self, names: Sequence[str]) -> None:
        """Let queries go while the others run on."""
        why = {"why": "the query left; the windows stay as they are"}
        for name in self.leave_out(names):
            entry = JournalEntry(self._last_batch, COMPONENT, "left", name, None, why)
            self._entries.append(entry)

    @property
    def loops(self) -> Sequence[JoinLoop]:
        """What keeps the orders of pipelines good, query by query."""
        return [each.loop for each in self.here]

    def take_entries(self) -> list[JournalEntry]:
        """Return who has left since the last call."""
        found, self._entries = self._entries, []
        return found

    def _plan(self, batch_id: int) -> BatchPlan:
        with self._lock:
            members = tuple(each.plan(self._grid.shape) for each in self.here)
        return replace(super()._plan(batch_id), probing=None, members=members)

    def _learn_orders(
        self,
        profile: JoinProfile,  # noqa: ARG002 - each query has its own
        reports: Sequence[BucketReport],
        batch_id: int,
    ) -> list[JournalEntry]:
        return [entry for each in self.here for entry in each.learn(reports, batch_id)]

    def _pipeline_views(self) -> Iterator[Any]:
        return iter(())

    def facts(self) -> JoinView:
        """Return the join as it stands, with the queries that share it."""
        with self._lock:
            views = tuple(map(self._member_view, self.members))
            return replace(super().facts(), members=views)

    def _member_view(self, each: Member) -> MemberView:
        return MemberView(
            each.name,
            tuple(_windows_of(self.bound, each.of)),
            tuple((name, one_line(where)) for name, where in each.of.wheres.items() if where),
            each.n_results,
            each.ns,
            tuple(pipeline_views(each.loop, each.work, each.name)),
            each.is_here,
        )

    def _learned_orders(self) -> Any:
        """Return the learned state of the pipelines, by query."""
        return {each.name: each.loop.snapshot() for each in self.here}

    def _restore_orders(self, state: Any) -> None:
        """Continue from what ``_learned_orders`` returned; StateError if it is damaged."""
        if not isinstance(state, dict) or state.keys() - {each.name for each in self.members}:
            msg = f"the saved orders of queries that share a join are damaged: {state!r:.80}"
            raise StateError(msg)
        for each in self.here:
            if each.name in state:
                each.loop.restore(state[each.name])


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
    made = FilterOperator(bound, options, step.query, relation=step.query, guard=guard)
    made.keeps_few = True
    made.rows = site.df
    return made
