"""Table of operators: which operator runs a step.

A new operator is one line here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from eddyline.alarms.alarm_set import AlarmStep
from eddyline.errors import PlanError
from eddyline.models.streams.plan import ModelStep, SharedModelStep
from eddyline.options import FilterOptions
from eddyline.query.correlations import CorrelateStep
from eddyline.query.predicates import MixedPredicate, SqlPredicate
from eddyline.query.products import with_products
from eddyline.query.steps import (
    AggregateStep,
    FilterStep,
    JoinStep,
    MemberFilterStep,
    OverStep,
    ProjectStep,
    ReadStep,
    SharedAggregateStep,
    SharedJoinStep,
    UnionStep,
)
from eddyline.rules.store import RuleStep
from eddyline.spark.aggregates.operator import AggregateOperator
from eddyline.spark.aggregates.over import CorrelateOperator, OverOperator
from eddyline.spark.aggregates.shared import SharedAggregateOperator
from eddyline.spark.alarms.operator import AlarmOperator
from eddyline.spark.clock import StreamClock
from eddyline.spark.filters.operator import FilterOperator
from eddyline.spark.joins.operator import JoinOperator
from eddyline.spark.joins.shared import SharedJoinOperator, member_filter
from eddyline.spark.models.operator import ModelOperator, SharedModelOperator
from eddyline.spark.operator import LaidOut, Merging, Site
from eddyline.spark.projection import ProjectOperator
from eddyline.spark.rules.operator import RuleFilter, RuleOperator
from eddyline.spark.union import UnionOperator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from eddyline.query.steps import Step
    from eddyline.spark.operator import Operator
    from eddyline.spark.relation import Relation


_OF_FILES = "input_file_"
"""Start of the functions that say which file a row is of."""

_CARRIED = "__carried"
"""A temporary column of the rows of a stream as they came."""


def filter_of(step: FilterStep, site: Site) -> Operator:
    """Return the operator of a filter; of one with mixed predicates, that of a rule."""
    is_mixed = any(isinstance(predicate, MixedPredicate) for predicate in step.predicates)
    return (RuleFilter if is_mixed else FilterOperator).from_step(step, site)


OPERATORS: dict[type[Any], Callable[[Any, Site], Operator]] = {
    FilterStep: filter_of,
    AggregateStep: AggregateOperator.from_step,
    OverStep: OverOperator.from_step,
    CorrelateStep: CorrelateOperator.from_step,
    SharedAggregateStep: SharedAggregateOperator.from_step,
    UnionStep: UnionOperator.from_step,
    RuleStep: RuleOperator.from_step,
    ProjectStep: ProjectOperator.from_step,
    JoinStep: JoinOperator.from_step,
    SharedJoinStep: SharedJoinOperator.from_step,
    MemberFilterStep: member_filter,
    ModelStep: ModelOperator.from_step,
    SharedModelStep: SharedModelOperator.from_step,
    AlarmStep: AlarmOperator.from_step,
}
"""By the kind of step: makes its operator over the rows of a site."""


def laid_out(
    steps: Sequence[Step],
    relations: Mapping[str, Relation],
    query: str,
    options: Mapping[str, Any],
    input: str = "",
) -> LaidOut:
    """Return the steps of a query, or those that make one of its inputs, as operators.

    The inputs of a step over several are one DataFrame, over which the steps before it are laid.

    Args:
        steps: of the query.
        relations: the streams and tables that it reads, by name.
        query: its name.
        options: of the query.
        input: the input that they make; empty if they are the whole query.

    Raises:
        PlanError: a step that nothing runs.
        QueryError: a step that does not fit the columns before it.
    """
    several = [number for number, step in enumerate(steps) if len(step.inputs) > 1]
    if not several:
        return _laid_over_one(steps, relations, query, options, input)
    place = several[-1]
    kinds = {name: dict(relation.df.dtypes) for name, relation in relations.items()}
    times = {name: relation.time for name, relation in relations.items()}
    steps = with_products(steps, place, kinds, times)
    first = next(iter(relations.values())).df

    def lay_out(input_steps: Sequence[Step], name: str) -> LaidOut:
        return laid_out(input_steps, relations, query, options, name)

    site = Site(
        first,
        query,
        options,
        is_alone=not input,
        asks_files=_asks_files(steps),
        before=tuple(steps[:place]),
        relations=relations,
        lay_out=lay_out,
    )
    (merging,), _ = operators_of(steps[place : place + 1], site)
    assert isinstance(merging, Merging)
    results = Site(
        merging.shape(merging.source),
        query,
        merging.other_options,
        is_source=False,
        filters=None,
        is_filtered=isinstance(merging, UnionOperator),
        time=merging.time,
        clock=merging.clock,
        times=merging.times,
    )
    after, end = operators_of(merging.then(steps[place + 1 :]), results)
    return LaidOut(
        merging.source,
        end.df,
        end.time,
        end.clock,
        lambda: _unique([*merging.before, merging, *after], is_whole=not input),
        end.times,
    )


def _laid_over_one(
    steps: Sequence[Step],
    relations: Mapping[str, Relation],
    query: str,
    options: Mapping[str, Any],
    input: str,
) -> LaidOut:
    """Return steps over one stream as operators; see ``laid_out``."""
    stream = next((step.stream for step in steps if isinstance(step, ReadStep)), "")
    read = relations[stream or next(iter(relations))]
    routing = FilterOptions.taken(options)[0]
    read = read.narrowed([steps], routes=bool(routing.routing), route_by=routing.route_by)
    name = stream if not input else steps[0].output
    clock = None if read.time is None else StreamClock.from_relation(name, read)
    site = Site(
        read.rows,
        query,
        options,
        time=read.time,
        lateness=read.lateness,
        clock=clock,
        is_alone=not input,
        asks_files=_asks_files(steps),
    )
    operators, end = operators_of(steps, site)
    if clock is not None and (conditions := _conditions(steps)):
        clock.passing = partial(_passing, conditions, site)

    def make() -> list[Operator]:
        asked = [clock] if clock is not None and clock.is_asked else []
        return _unique([*asked, *operators], is_whole=not input)

    # A clock judges late rows itself; all rows would pass the watermark one by one.
    is_timed = clock is not None and clock.is_asked
    source = read.df if is_timed else read.rows
    return LaidOut(source, end.df, end.time, end.clock, make, end.times)


def _asks_files(steps: Sequence[Step]) -> bool:
    """Return whether some steps may ask which file a row is of."""
    return any(_OF_FILES in repr(step).lower() for step in steps)


def _conditions(steps: Sequence[Step]) -> list[FilterStep | ProjectStep]:
    """Return the steps at the beginning up to the last condition; none if there is no condition.

    Of several queries a row has to pass the conditions of one.
    """
    shared = next((step for step in steps if isinstance(step, SharedAggregateStep)), None)
    if shared is not None and all(where for _, where in shared.members):
        either = " OR ".join(f"({where}\n)" for _, where in shared.members)
        return [FilterStep(shared.input, (SqlPredicate(either),))]
    chain = takewhile(lambda step: isinstance(step, FilterStep | ProjectStep), steps[1:])
    kept = [step for step in chain if isinstance(step, FilterStep | ProjectStep)]
    while kept and not (isinstance(kept[-1], FilterStep) and kept[-1].predicates):
        kept.pop()
    return kept


def _passing(
    conditions: Sequence[FilterStep | ProjectStep], site: Site, rows: DataFrame
) -> DataFrame:
    """Return those of some rows of a stream that pass conditions over it, as they came."""
    steps = [
        replace(step, projections=(*step.projections, _CARRIED))
        if isinstance(step, ProjectStep) and "*" not in step.projections
        else step
        for step in conditions
    ]
    carried = rows.selectExpr("*", f"struct(*) AS {_CARRIED}")
    options = {**site.options, "read_sample": False}
    operators, _ = operators_of(steps, replace(site, df=carried, options=options))
    for operator in operators:
        carried = operator.once(carried)
    return carried.select(f"{_CARRIED}.*")


def operators_of(steps: Iterable[Step], site: Site) -> tuple[list[Operator], Site]:
    """Return the operators of steps, each over the result of the one before, and their results.

    Args:
        steps: of a query over one stream; those that read are none of an operator's.
        site: the rows of the stream.

    Raises:
        PlanError: a step that nothing runs.
        QueryError: a step that does not fit the columns before it.
    """
    operators: list[Operator] = []
    is_ahead = True
    for step in steps:
        if isinstance(step, ReadStep):
            continue
        if type(step) not in OPERATORS:
            names = ", ".join(sorted(kind.__name__ for kind in OPERATORS))
            msg = f"no operator runs {type(step).__name__} ({step}); those listed run {names}"
            raise PlanError(msg, step=str(step))
        operator = OPERATORS[type(step)](step, site)
        operators.append(operator)
        is_ahead = is_ahead and operator.is_plain
        if isinstance(operator, ProjectOperator) and not is_ahead:
            operator.check_batch_has(site.df)
        df = operator.shape(site.df)
        time, clock = operator.event_time(site, df.columns)
        times = site.times if isinstance(step, FilterStep) else None
        if isinstance(operator, ProjectOperator):
            times = operator.times(site, time)
        filters = site.filters
        if not operator.passes_all:
            if filters is not None and isinstance(operator, FilterOperator):
                filters = (*filters, operator)
            else:
                filters = None
        is_filtered = site.is_filtered and isinstance(operator, FilterOperator | ProjectOperator)
        site = replace(
            site,
            df=df,
            is_source=site.is_source and operator.passes_all,
            filters=filters,
            stream=site.df if site.stream is None else site.stream,
            is_filtered=is_filtered,
            time=time,
            clock=clock,
            times=times,
        )
    return operators, site


def _unique(operators: list[Operator], *, is_whole: bool) -> list[Operator]:
    """Return operators with a number behind a name that several of a whole query have."""
    seen: Counter[str] = Counter()
    for operator in operators if is_whole else ():
        seen[name := operator.name] += 1
        operator.name += f"#{seen[name]}" if seen[name] > 1 else ""
    return operators
