"""Windowed join bound to its DataFrames, before rows arrive."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, LongType, StructField, StructType

from eddyline.errors import QueryError
from eddyline.joins.graph import JoinGraph
from eddyline.joins.operator.event_time import FOUND
from eddyline.joins.orders.classes import Readable
from eddyline.joins.orders.probe_profiling import RowAttribute
from eddyline.joins.plan import PartnerPlan, ProductPlan
from eddyline.joins.tables import PRODUCTS
from eddyline.options import DISCARD, FilterOptions, JoinOptions
from eddyline.query.predicates import SqlPredicate
from eddyline.query.query import LAST, LONGEST, PRODUCT, N
from eddyline.query.result_times import ResultTimes, TimedInput
from eddyline.query.steps import (
    FilterStep,
    ProjectStep,
    ReadStep,
    SharedJoinStep,
    asks_python,
    columns_read,
    made_by,
)
from eddyline.registry import unknown
from eddyline.routing.table import candidates
from eddyline.spark.analysis import arrow_schema, check_travel, table_schema
from eddyline.spark.arrow_types import to_arrow_schema
from eddyline.spark.bucketed import REPORTED
from eddyline.spark.filters.binding import MAX_ATTRIBUTES
from eddyline.spark.filters.guard import steps_of
from eddyline.spark.joins.layout import JoinInput
from eddyline.spark.joins.source import declared_keys, facts_of, source_of
from eddyline.spark.joins.task import in_structs
from eddyline.spark.operator import UnboundedState
from eddyline.spark.relation import Relation, check_one_type, lateness_rule
from eddyline.spark.task_results import ArrowStep
from eddyline.sql.parsing import plain_path, quoted
from eddyline.state.event_time import OrderPlan
from eddyline.state.rows import KeyColumn, result_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from eddyline.constraints.bounds import LatenessRule
    from eddyline.joins.graph import UniqueKey
    from eddyline.query.query import Products
    from eddyline.query.steps import JoinedInput, JoinStep, Step
    from eddyline.spark.joins.layout import InputLayout
    from eddyline.spark.joins.source import Source
    from eddyline.spark.operator import Site
    from eddyline.state.event_time import EventTime


COMPARED = ("string", "binary")
"""Types of keys that tasks compare: by their bytes, as Spark does."""

IS_ROW = "__is_row"
"""A field of the rows that are found for a row, beside their own: a struct has one or more."""


@dataclass(frozen=True)
class BoundJoin:
    """Facts of a join: conditions, columns, and shuffle columns."""

    name: str
    """Name of the query."""
    step: JoinStep
    inputs: tuple[JoinInput, ...]
    graph: JoinGraph
    options: JoinOptions
    other_options: Mapping[str, Any]
    """Options of the query for other operators."""
    is_alone: bool = True
    """Whether its results are those of the query, and no input of another operator."""

    @property
    def spark(self) -> SparkSession:
        """The session of the inputs."""
        return self.inputs[0].df.sparkSession

    @cached_property
    def filter_options(self) -> FilterOptions:
        """The way in which the order of predicates over one input is learned."""
        routing = self.options.routing
        asked = {} if routing is None else {"routing": routing}
        return FilterOptions.taken({**self.other_options, **asked})[0]

    @cached_property
    def source(self) -> Source:
        """The inputs as one DataFrame.

        Raises:
            QueryError: keys that cannot be compared, an event time that is no time, or a step that
                does not fit the columns of its input.
        """
        return source_of(self.step, self.inputs, self.filter_options)

    @cached_property
    def compared(self) -> tuple[str, ...]:
        """Residual conditions on two rows with equal codes, over qualified columns."""
        equalities = self.step.equalities if self.source.rough else ()
        return (*equalities, *self.step.conditions)

    @cached_property
    def compared_by_tasks(self) -> tuple[tuple[str, str], ...]:
        """Pairs of result columns whose values tasks compare, because only their hashes are equal.

        It is empty if codes are exact or if Spark compares: computed keys, keys of other types than
        text and binary, joins that are not inner, and one stream with tables.
        """
        if self.step.kind != "inner" or len(self.timed) < 2:
            return ()
        pairs = []
        for key in self.source.rough:
            members = self.step.keys[key].members.items()
            columns = [self._key_column(name, text) for name, texts in members for text in texts]
            if self.source.kinds[key] not in COMPARED or not all(columns):
                return ()
            pairs += [(columns[0], column) for column in columns[1:]]
        return tuple(pairs)

    def _key_column(self, name: str, text: str) -> str:
        """Return the result column that a key is; empty if it is computed."""
        columns = self.source.layout(name).columns
        path = plain_path(text) or ()
        same = [column for column, _ in columns if (column.lower(),) == tuple(map(str.lower, path))]
        return result_column(name, same[0]) if len(same) == 1 else ""

    def then(self, steps: Sequence[Step]) -> Sequence[Step]:
        """Return the steps over results; keys that tasks have not compared are compared first."""
        if not self.source.rough or self.step.kind != "inner" or self.compared_by_tasks:
            return steps
        equalities = tuple(map(SqlPredicate, self.step.equalities))
        if steps and isinstance(first := steps[0], FilterStep):
            return (replace(first, predicates=(*equalities, *first.predicates)), *steps[1:])
        return (FilterStep(self.step.output, equalities), *steps)

    # -- time -----------------------------------------------------------------------------------

    @cached_property
    def timed(self) -> tuple[str, ...]:
        """The inputs that are streams."""
        return tuple(join_input.name for join_input in self.inputs if join_input.time is not None)

    @cached_property
    def unbounded(self) -> tuple[UnboundedState, ...]:
        """The streams whose rows the join keeps for ever.

        A row of a stream meets a table once, so a join of one stream with tables keeps no rows.
        Rows that learned constraints drop are not kept for ever either.
        """
        if len(self.timed) < 2:
            return ()
        dropped = self.constrained if self.options.constraints == DISCARD else {}
        return tuple(
            UnboundedState(
                f"the join keeps all rows of stream {joined.name!r} for ever, because the stream "
                f"has no window ([{joined.window.text}])",
                f"give it a window that holds its partners, such as {joined.name} [RANGE 1 HOUR], "
                f'{self._said_bound(joined.name)}or use constraints="discard"',
            )
            for joined in self.step.joined
            if joined.name in self.timed and joined.window.length == LONGEST
            if not joined.window.counts and joined.name not in dropped
        )

    def _said_bound(self, name: str) -> str:
        """Return advice on a condition from which a window of a stream follows, if one can."""
        if self.step.emits != "istream" or not self.is_alone:
            return ""  # bounds make no windows of aggregates over the join
        times = {
            join_input.name: f"{join_input.name}.{join_input.time}" for join_input in self.inputs
        }
        other = next(stream for stream in self.timed if stream != name)
        return (
            f"without a window bound the event time of its partners in the condition, such as "
            f"{times[other]} <= {times[name]} + INTERVAL 1 HOUR, "
        )

    @cached_property
    def lateness(self) -> LatenessRule:
        """The streams, and by how much their rows may come late."""
        timed = [join_input for join_input in self.inputs if join_input.time is not None]
        rule = lateness_rule(
            {
                join_input.name: Relation(join_input.df, join_input.time, join_input.lateness)
                for join_input in timed
            },
            {join_input.name: join_input.stream for join_input in timed},
        )
        return replace(
            rule,
            told=frozenset(
                join_input.name for join_input in timed if join_input.laid_out is not None
            ),
        )

    @cached_property
    def times(self) -> ResultTimes | None:
        """The event times among the columns of results; None if these come as others leave."""
        if self.step.emits != "istream":
            return None
        timed = [
            TimedInput(
                join_input.name,
                join_input.time,
                join_input.window.length,
                join_input.laid_out.times if join_input.laid_out else None,
            )
            for join_input in self.inputs
            if join_input.time is not None
        ]
        return ResultTimes.of_join(self.step.kind, timed)

    @property
    def is_ordered(self) -> bool:
        """Whether answers depend on the order of event time."""
        counts = any(layout.window.counts is not None for layout in self.source.layouts)
        return counts or self.step.emits != "istream"

    def order(self, time: EventTime, latest: Mapping[str, int]) -> OrderPlan | None:
        """Return the order of event time to answer in; None if no answer depends on it.

        ``latest`` is the latest event time of each stream before a batch (µs).
        """
        layouts = {layout.name: layout for layout in self.source.layouts}
        counts = {
            name: layout.window.counts
            for name, layout in layouts.items()
            if layout.window.counts is not None
        }
        if not self.is_ordered:
            return None
        return OrderPlan(
            emits=self.step.emits,
            time=time,
            latest=dict(latest),
            rows=counts,
            ties={name: layouts[name].ties for name in counts},
            columns={name: tuple(column for column, _ in layouts[name].columns) for name in counts},
        )

    def partners(self, time: EventTime, latest: Mapping[str, int]) -> PartnerPlan | None:
        """Return what is asked of rows by their partners; None of an inner join.

        ``latest`` is the latest event time of each stream before a batch (µs).
        """
        if self.step.kind == "inner":
            return None
        left, right = self.inputs
        partner_type = None
        if self.compared:
            partner_type = arrow_schema(self.spark, self.task_schema).field(FOUND).type
        is_final = right.time is None
        return PartnerPlan(
            kind=self.step.kind,
            left=left.name,
            right=right.name,
            length=left.window.length,
            found=partner_type,
            time=None if is_final else time,
            latest=dict(latest),
        )

    @cached_property
    def lengths(self) -> dict[str, int]:
        """Retention time of each input's rows (µs), if event time limits it."""
        lengths = {layout.name: layout.window.length for layout in self.source.layouts}
        if self.step.kind != "inner":
            left, right = lengths
            lengths[right] = min(lengths[left] + lengths[right], LONGEST)
        return lengths

    @property
    def constrained(self) -> dict[str, int]:
        """Lengths of the windows with constraints (µs), by input.

        One that has no end is among them only where rows are dropped. In a join that is not inner a
        row that is gone would make its partner a result, and where windows count rows it would
        still count: there no row is dropped.
        """
        drops = self.options.constraints == DISCARD
        is_on = self.options.constraints and self.options.adaptive
        if not is_on or self.step.emits != "istream" or (drops and not self.is_plain):
            return {}
        every = {layout.name: layout.window for layout in self.source.layouts}
        windows = {name: every[name] for name in self._looked_in if every[name].length > 0}
        return {
            name: window.length
            for name, window in windows.items()
            if drops or window.length < LONGEST or window.counts is not None
        }

    @property
    def readable(self) -> dict[str, Readable]:
        """The columns by which classes of the rows of each stream may have orders of their own.

        They are columns that tasks have anyway: those of results, and keys.
        """
        readable = {}
        for layout in self.source.layouts:
            if layout.name not in self.timed:
                continue
            codes = {**dict(layout.keys_only)}
            names = [*dict.fromkeys([*(name for name, _ in layout.columns), *codes])]
            types = {
                field.name: field.dataType.simpleString() for field in self.fields_of(layout, names)
            }
            attributes = candidates(types, MAX_ATTRIBUTES)
            places = tuple(
                RowAttribute(attribute.name, codes.get(attribute.name)) for attribute in attributes
            )
            members = {key: self.step.keys[key].members[layout.name] for key in layout.keys}
            keys = {
                key: frozenset(name for name in types if {name, quoted(name)} & {*texts})
                for key, texts in members.items()
            }
            readable[layout.name] = Readable(attributes, places, keys)
        return readable

    @property
    def is_plain(self) -> bool:
        """Whether the join is inner and its results do not wait for event time."""
        return self.step.kind == "inner" and not self.is_ordered

    @property
    def _looked_in(self) -> Sequence[str]:
        """The streams in whose windows rows of another input are looked up."""
        if self.step.kind == "inner":
            return self.timed
        if len(self.timed) < 2:
            return ()
        return self.timed if self.step.kind == "left" else self.timed[1:]

    # -- keys -----------------------------------------------------------------------------------

    @cached_property
    def keys(self) -> dict[str, UniqueKey]:
        """The declared keys that inputs are joined by, and that are checked."""
        if not self.is_plain:
            return {}
        return declared_keys(self.step, self.inputs, self.source.rough)

    # -- work -----------------------------------------------------------------------------------

    @property
    def n_buckets(self) -> int:
        """Most buckets that rows are cut into: one where every row of a stream has to be seen."""
        is_awaiting = any(layout.is_awaited for layout in self.source.layouts)
        if is_awaiting or self.is_ordered:
            return 1
        partitions = self.spark.conf.get("spark.sql.shuffle.partitions")
        return self.options.buckets or int(partitions or 1)

    @property
    def n_tasks(self) -> int:
        """Tasks that Spark runs at a time."""
        return int(self.spark.sparkContext.defaultParallelism)

    # -- columns --------------------------------------------------------------------------------

    @cached_property
    def result_schema(self) -> StructType:
        """The columns of results: a struct for each input."""
        return StructType([StructField(name, fields) for name, fields in self._fields.items()])

    @cached_property
    def task_schema(self) -> StructType:
        """Columns that tasks return: ``input.column`` for all inputs, and the report."""
        columns = [
            StructField(result_column(name, column.name), column.dataType)
            for name, fields in self._fields.items()
            for column in fields
        ]
        if self.step.kind != "inner" and self.compared:
            partner = [*self._fields[self.inputs[1].name], StructField(IS_ROW, BooleanType())]
            columns.append(StructField(FOUND, ArrayType(StructType(partner))))
        return StructType([*columns, REPORTED])

    @cached_property
    def _fields(self) -> dict[str, StructType]:
        """The columns of results by input."""
        by_input = {
            layout.name: self.fields_of(layout, [name for name, _ in layout.columns])
            for layout in self.source.layouts
        }
        for name, fields in by_input.items():
            check_travel(f"a join with {name!r}", fields)
        if self.step.products is not None:
            by_input[PRODUCT] = self._product_fields(self.step.products)
        return by_input

    def _product_fields(self, products: Products) -> StructType:
        """Return the columns of results that say what these stand for."""
        name, time = next(iter(products.times.items()))
        (of_time,) = self.fields_of(self.source.layout(name), [time])
        numbers = [StructField(column.field, LongType()) for column in products.sums]
        last = StructField(LAST, of_time.dataType)
        return StructType([StructField(N, LongType()), last, *numbers])

    @cached_property
    def product_keys(self) -> dict[str, str] | None:
        """By input, the key column that products compare; None if they cannot be made."""
        if self.step.products is None or len(self.timed) < len(self.inputs):
            return None
        if not self.source.rough:
            return {}
        columns = {column for pair in self.compared_by_tasks for column in pair}
        keys = {
            layout.name: column
            for layout in self.source.layouts
            for column, _ in layout.columns
            if result_column(layout.name, column) in columns
        }
        return keys if len(columns) == len(keys) == len(self.inputs) else None

    def products(self, plan: str | None) -> ProductPlan | None:
        """Return what results say that may stand for several combinations; None: they do not.

        ``plan`` is what is returned; None if nothing but combinations can be.
        """
        if self.step.products is None:
            return None
        asked, keys = self.step.products, self.product_keys or {}
        return ProductPlan(asked, keys, may_be=plan is not None, is_on=plan == PRODUCTS)

    def fields_of(self, layout: InputLayout, names: Iterable[str]) -> StructType:
        """Return some columns of an input."""
        schema = self.inputs[layout.number].shape.schema
        return StructType([StructField(name, schema[name].dataType) for name in names])

    @cached_property
    def keys_only(self) -> dict[str, tuple[KeyColumn, ...]]:
        """By input, the columns that late rows have and others need not carry."""
        by_input = {}
        for layout in self.source.layouts:
            fields = self.fields_of(layout, [name for name, _ in layout.keys_only])
            kinds = [field.type for field in to_arrow_schema(fields, timezone="UTC")]
            columns = zip(layout.keys_only, kinds, strict=True)
            by_input[layout.name] = tuple(KeyColumn(*column, kind) for column, kind in columns)
        return by_input

    @cached_property
    def empty_results(self) -> DataFrame:
        """No results, for analysis."""
        return self.spark.createDataFrame([], self.result_schema)

    @property
    def gives_all(self) -> bool:
        """Whether every row that tasks return is a result, apart from reports."""
        return self.step.kind == "inner" or not self.compared

    def results(self, df: DataFrame) -> DataFrame:
        """Return the results in what tasks returned: a struct for each input."""
        if self.gives_all:
            return df.select(*self._structs)
        return df.select(*self._structs, FOUND).where(self._is_result).drop(FOUND)

    @cached_property
    def result_step(self) -> ArrowStep:
        """Step from the rows of tasks to results, for a join that ``gives_all``."""
        schema = table_schema(self.spark, self.result_schema)
        return ArrowStep(self.empty_results, partial(in_structs, schema))

    @property
    def _is_result(self) -> str:
        """SQL of whether what a task returned is a result, where conditions say who are partners.

        A row that is decided has a list of those that its keys found; a combination has none.
        """
        right = quoted(self.inputs[1].name)
        shape = self.empty_results
        risky = [condition for condition in self.compared if facts_of(shape, condition).may_raise]
        met = _all_of([condition for condition in self.compared if condition not in risky])
        if risky:  # an error counts on rows alone that pass the other conditions
            met = f"CASE WHEN {met} THEN {_all_of(risky)} END"
        has_partner = f"exists({FOUND}, {right} -> coalesce({met}, false))"
        if self.step.kind == "semi":
            return has_partner
        return f"CASE WHEN {FOUND} IS NULL THEN {met} ELSE NOT {has_partner} END"

    @cached_property
    def _structs(self) -> list[Column]:
        def found(name: str, column: str) -> Column:
            return F.col(quoted(result_column(name, column))).alias(column)

        return [
            F.struct(*[found(name, column) for column in fields.names]).alias(name)
            for name, fields in self._fields.items()
        ]


def _all_of(conditions: Sequence[str]) -> str:
    """Return the SQL of whether all conditions are true; they may end in comments."""
    return " AND ".join(steps_of([f"({condition}\n)" for condition in conditions])) or "TRUE"


BoundT = TypeVar("BoundT", bound=BoundJoin)


def bind_join(step: JoinStep, site: Site, kind: type[BoundT]) -> BoundT:
    """Return a join of a kind, bound to the streams and tables of a site.

    Raises:
        QueryError: streams without event times, or of different kinds.
        OptionError: a lateness that is no interval, or a value out of range.
    """
    names = [joined.name for joined in step.joined]
    compared = columns_read(names, step.equalities)
    inputs = tuple(_input(site, joined, compared[joined.name]) for joined in step.joined)
    if isinstance(step, SharedJoinStep):
        inputs = tuple(
            replace(join_input, wheres=step.wheres(join_input.name)) for join_input in inputs
        )
    _check_streams(inputs)
    _check_refreshed(site.query, step, inputs)
    check_one_type(
        site.query, ((join_input.stream, join_input.df, join_input.time) for join_input in inputs)
    )
    graph = JoinGraph(tuple(names), tuple(frozenset(key.members) for key in step.keys))
    taken = JoinOptions.taken(site.options)
    return kind(site.query, step, inputs, graph, *taken, is_alone=site.is_alone)


def _input(site: Site, joined: JoinedInput, compared: tuple[str, ...]) -> JoinInput:
    """Return an input: the stream or table that it starts from, and the steps over it."""
    input_steps: list[FilterStep | ProjectStep] = []
    first, *steps = made_by(site.before, len(site.before), joined.input)
    for input_step in steps:
        if not isinstance(input_step, FilterStep | ProjectStep) or asks_python(input_step):
            return _made_input(site, joined, compared, (first, *steps))
        input_steps.append(input_step)
    assert isinstance(first, ReadStep)
    step, read = first, site.relations[first.stream]
    if read.time is not None and read.time not in read.df.columns:
        msg = f"{step.stream!r}: {unknown('time column', read.time, read.df.columns)}"
        raise QueryError(msg, name=step.stream, time=read.time)
    shape = read.df
    for input_step in input_steps:
        shape = (
            shape.selectExpr(*input_step.projections)
            if isinstance(input_step, ProjectStep)
            else shape
        )
    rows, refresh = read.df, None
    if read.refresh is not None and _is_streaming(site):
        # Each version is read in a job of its own, where Spark lays the steps.
        refresh = replace(read.refresh, steps=(*input_steps,))
        rows, input_steps = refresh.stepped(rows), []
    return JoinInput(
        joined.name,
        joined.input,
        step.stream,
        rows,
        read.time,
        read.lateness,
        joined.window,
        tuple(input_steps),
        shape,
        joined.columns,
        compared,
        key=read.key,
        refresh=refresh,
    )


def _is_streaming(site: Site) -> bool:
    """Return whether the query of a site has streams, and no batch DataFrames in their place."""
    return any(relation.df.isStreaming for relation in site.relations.values())


def _made_input(
    site: Site, joined: JoinedInput, compared: tuple[str, ...], steps: Sequence[Step]
) -> JoinInput:
    """Return an input that operators of its own make; QueryError if it has no event time."""
    assert site.lay_out is not None
    laid_out = site.lay_out(steps, joined.name)
    if laid_out.time is None or laid_out.clock is None:
        msg = (
            f"{joined.name!r} cannot be joined: its rows are made by {steps[-1]}, and have no "
            f"event time. Select one and name it, engine.stream({joined.name!r}, …, time='…'): "
            f"window.end of aggregates, the event time of a stream of joins, and else the "
            f"unchanged event time of the stream. Results of tables have none"
        )
        raise QueryError(msg, input=joined.name)
    laid_out.clock.asked()
    return JoinInput(
        joined.name,
        joined.input,
        joined.name,
        laid_out.shape,
        laid_out.time,
        lateness=None,
        window=joined.window,
        steps=(),
        shape=laid_out.shape,
        needed=joined.columns,
        compared=compared,
        laid_out=laid_out,
    )


def _check_refreshed(query: str, step: JoinStep, inputs: Sequence[JoinInput]) -> None:
    """Raise QueryError if a table is refreshed where a later version could not be met.

    Results that are taken back are those of the version that they came with, and rows of a table
    that wait for partners are those of one version.
    """
    name = next((table.stream for table in inputs if table.refresh is not None), None)
    if name is None:
        return
    reason = ""
    if step.emits != "istream":
        reason = f"{step.emits.upper()} takes back results of earlier versions"
    elif step.kind != "inner" and inputs[0].time is None:
        reason = f"its own rows are results of the {step.kind.upper()} JOIN"
    if reason:
        msg = (
            f"query {query!r} cannot refresh table {name!r}: {reason}; leave out refresh=…, and "
            f"start the query again when the table has changed"
        )
        raise QueryError(msg, query=query, table=name)


def _check_streams(inputs: Sequence[JoinInput]) -> None:
    """Raise QueryError unless all streams are of one kind, and tables can be read."""
    timed = {
        join_input.stream: join_input.is_streaming
        for join_input in inputs
        if join_input.time is not None
    }
    for join_input in inputs:
        if join_input.time is None and join_input.is_streaming:
            msg = f"stream {join_input.stream!r} needs an event-time column to be joined: time='…'"
            raise QueryError(msg, stream=join_input.stream)
    if not timed:
        msg = "every input is a static table; give the event-time column of at least one stream"
        raise QueryError(msg)
    if len(set(timed.values())) > 1:
        batch = ", ".join(sorted(name for name, streams in timed.items() if not streams))
        msg = (
            f"{batch} has a time column but is a batch DataFrame, and other inputs are streams; "
            f"leave out its time= to join it as a table that does not change"
        )
        raise QueryError(msg)
