"""The steps over one input of a join, laid over the DataFrame that all its inputs share.

Each works on the rows of its input alone, under the names of the input's own columns while it is
laid. What a step computes stands in common columns that go before the shuffle.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import and_
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql import Observation
from pyspark.sql import functions as F
from sqlglot import exp

from eddyline.query.predicates import FunctionPredicate, named
from eddyline.query.steps import FilterStep
from eddyline.spark.analysis import column_types
from eddyline.spark.filters.binding import bind_to
from eddyline.spark.filters.guard import Guard, settled
from eddyline.spark.filters.operator import FilterOperator
from eddyline.spark.joins.layout import INPUT, PASSES, TEXT_OF
from eddyline.spark.operator import Laid, Operator
from eddyline.spark.prepared import Added, Renamed
from eddyline.spark.session import is_ansi
from eddyline.sql.analysis import resolve_columns
from eddyline.sql.parsing import parse_output, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import Column, DataFrame

    from eddyline.filters.binding import BoundConjunction
    from eddyline.options import FilterOptions
    from eddyline.query.query import KeyClass
    from eddyline.query.steps import ProjectStep
    from eddyline.spark.joins.layout import InputLayout, JoinInput, SharedColumns
    from eddyline.spark.operator import Batch
    from eddyline.sql.analysis import SqlAnalysis


@dataclass(frozen=True, slots=True)
class OwnColumns:
    """The columns of an input in the common DataFrame."""

    number: int
    """The number of the input."""
    places: Mapping[str, str]
    """The common column that holds each column, by name."""
    renamed: Renamed = field(default_factory=Renamed, compare=False, repr=False)

    @property
    def is_mine(self) -> Column:
        """Whether a row is of the input."""
        return F.col(INPUT) == self.number

    def named(self, df: DataFrame) -> DataFrame:
        """Return the common DataFrame with the columns of the input under their own names."""
        return self.renamed.over(df, {place: name for name, place in self.places.items()})

    def unnamed(self, df: DataFrame) -> DataFrame:
        """Return the common DataFrame with common columns alone, as ``named`` was given it."""
        return self.renamed.over(df, self.places)


@dataclass(frozen=True, slots=True)
class InputPredicates:
    """A filter step over one input."""

    relation: str
    own: OwnColumns
    bound: BoundConjunction
    marks: str
    """The column that is set on rows that are dropped; they go if empty."""
    dropped: str
    """SQL of what it is set to: false if windows count the rows, NULL if only time does."""
    is_first: bool
    """Whether it is the first step over its input, so that its columns are those of the stream."""


@dataclass(frozen=True)
class InputColumns:
    """A projection of one input."""

    relation: str
    own: OwnColumns
    computed: Mapping[str, str]
    """The SQL of each column that is computed, by its common column."""
    may_raise: bool

    def lay(self, df: DataFrame) -> DataFrame:
        """Compute the columns for the rows of the input."""
        df = self.own.named(settled(df) if self.may_raise else df)
        return self.own.unnamed(self._added.over(df) if self.computed else df)

    @cached_property
    def _added(self) -> Added:
        mine = self.own.is_mine & F.col(PASSES).isNotNull()
        return Added(
            {
                place: F.when(mine, F.expr(text)).otherwise(F.col(place))
                for place, text in self.computed.items()
            }
        )


@dataclass(frozen=True)
class InputKeys:
    """The keys of an input that has steps, and what it carries through the shuffle."""

    own: OwnColumns
    codes: Mapping[str, Column]
    """The code of each key, by its common column."""
    slots: Mapping[str, str]
    """The columns that results need, by the common column that is to hold each."""
    may_raise: bool
    """Whether some key may raise an error, which counts only on rows that pass."""
    layout: InputLayout

    def lay(self, df: DataFrame) -> DataFrame:
        """Compute them for the rows of the input that can join."""
        df = self.own.named(settled(df) if self.may_raise else df)
        for each in self._added:
            df = each.over(df)
        return self.own.unnamed(df)

    @cached_property
    def _added(self) -> tuple[Added, Added]:
        """The keys and what is carried; then whether a row that has these can join."""
        mine, passes = self.own.is_mine, F.col(PASSES)
        can_join = mine & passes if self.layout.is_awaited else mine
        values = {place: F.when(can_join, code) for place, code in self.codes.items()}
        values |= {place: F.when(mine, column_of(name)) for place, name in self.slots.items()}
        has_keys = passes_of(self.layout, [F.col(place).isNotNull() for place in self.codes])
        return (
            Added({place: of.otherwise(F.col(place)) for place, of in values.items()}),
            Added({PASSES: F.when(can_join, has_keys).otherwise(passes)}),
        )


@dataclass(frozen=True, slots=True)
class LaidInput:
    """An input that has steps: what they are, and the columns that they start from."""

    start: Mapping[str, str]
    """The columns of the stream that are carried, by name, and the common column of each."""
    steps: tuple[InputPredicates | InputColumns, ...]
    keys: InputKeys


def laid_input(
    each: JoinInput,
    layout: InputLayout,
    keys: Mapping[int, KeyClass],
    codes: Mapping[str, Column],
    raws: SharedColumns,
    options: FilterOptions,
) -> LaidInput:
    """Return the steps of an input over common columns; those that are missing are added.

    Args:
        each: the input.
        layout: its places.
        keys: its key classes by number.
        codes: the codes of its keys.
        raws: the common columns that go before the shuffle.
        options: how the order of predicates is learned.

    Raises:
        QueryError: a step that does not fit the columns before it.
    """
    df, types = each.df, dict(each.df.dtypes)
    # Where nothing is projected, columns are where results find them from the start.
    places = (
        {}
        if each.is_projected
        else {name: place for name, place in layout.slots.items() if not name.startswith(TEXT_OF)}
    )
    for name in _read(each, keys):
        places.setdefault(name, "")
    for name, place in places.items():
        places[name] = place or raws.take(types[name], places.values())
    start = dict(places)
    laid: list[InputPredicates | InputColumns] = []
    for step in each.steps:
        own = OwnColumns(layout.number, places)
        if isinstance(step, FilterStep):
            counts = layout.is_raw and step.input == each.relation
            marks, dropped = PASSES if layout.is_awaited else "", "false" if counts else "NULL"
            columns = df.select(*[F.col(quoted(name)) for name in places])
            bound = bind_to(columns, named(step.predicates), options)
            laid.append(InputPredicates(step.input, own, bound, marks, dropped, not laid))
        else:
            projected, places, df = _projected(df, step, own, raws)
            laid.append(projected)
    own = OwnColumns(layout.number, places)
    slots = {place: name for name, place in layout.slots.items() if places.get(name) != place}
    may_raise = any(
        facts_of(df, text).may_raise for key in keys.values() for text in key.members[each.name]
    )
    return LaidInput(start, tuple(laid), InputKeys(own, codes, slots, may_raise, layout))


def _projected(
    df: DataFrame, step: ProjectStep, own: OwnColumns, raws: SharedColumns
) -> tuple[InputColumns, dict[str, str], DataFrame]:
    """Return a projection, the place of each of its columns, and a DataFrame with these."""
    shape = df.selectExpr(*step.projections)
    texts = _columns_of(step, df)
    places: dict[str, str] = {}
    computed: dict[str, str] = {}
    for (name, kind), text in zip(shape.dtypes, texts, strict=True):
        if isinstance(parse_output(text), exp.Column):
            (column,) = facts_of(df, text).columns
            if dict(df.dtypes)[column] == kind:  # else it is a field of a struct
                places[name] = own.places[column]
                continue
        places[name] = raws.take(kind, {*own.places.values(), *places.values()})
        computed[places[name]] = text
    may_raise = any(facts_of(df, text).may_raise for text in computed.values())
    return InputColumns(step.output, own, computed, may_raise), places, shape


def _columns_of(step: ProjectStep, df: DataFrame) -> list[str]:
    """Return the SQL of each column of a projection, one for each column of a star."""
    return [
        each
        for text in step.projections
        for each in ([quoted(name) for name in df.columns] if text.strip() == "*" else [text])
    ]


def _read(each: JoinInput, keys: Mapping[int, KeyClass]) -> dict[str, None]:
    """Return the columns of the stream that the steps and keys of an input read."""
    texts: list[str] = []
    for step in each.steps:
        if not isinstance(step, FilterStep):
            texts += _columns_of(step, each.df)
            return _columns_in(each.df, texts)
        for predicate in step.predicates:
            if isinstance(predicate, FunctionPredicate):
                texts += predicate.reads
            else:
                texts.append(predicate.text)
    texts += [text for key in keys.values() for text in key.members[each.name]]
    return _columns_in(each.df, texts)


def _columns_in(df: DataFrame, texts: Iterable[str]) -> dict[str, None]:
    """Return the columns that some expressions read, in order of first mention."""
    found: dict[str, None] = {}
    for text in texts:
        # A column by its exact name need not be SQL.
        names = (text,) if text in df.columns else facts_of(df, text).columns
        found.update(dict.fromkeys(names))
    return found


def facts_of(df: DataFrame, text: str) -> SqlAnalysis:
    """Return the facts of an expression, which may have an alias."""
    ansi, tree = is_ansi(df.sparkSession), parse_output(text)
    types = column_types(df)
    return resolve_columns(text, types, name=text, ansi=ansi, qualifiers=None, tree=tree)


def column_of(name: str) -> Column:
    """Return a column that an input carries, or the text of one."""
    plain = F.col(quoted(name.removeprefix(TEXT_OF)))
    return F.when(plain.isNotNull(), F.to_json(F.array(plain))) if TEXT_OF in name else plain


def passes_of(layout: InputLayout, are_there: Iterable[Column]) -> Column:
    """Return whether a row of an input can join: NULL if it is not even counted.

    Args:
        layout: the input.
        are_there: whether each of its keys is there.
    """
    can_join = reduce(and_, are_there)
    is_only_time = layout.is_awaited and not layout.is_raw
    return F.when(can_join, F.lit(True)) if is_only_time else can_join


class Arrivals(Protocol):
    """The rows of the inputs, as the operator before all steps knows them."""

    def rows(self) -> DataFrame | None:
        """Return the rows of the newest batch, which can be looked at before the job."""

    def has(self, number: int) -> bool:
        """Return whether the newest batch may have rows of an input."""


class InputFilter(FilterOperator):
    """The predicates of one input of a join.

    Args:
        step: the predicates.
        options: how orders are learned.
        query: name of the join.
        arrivals: the rows of the inputs.
    """

    def __init__(
        self,
        step: InputPredicates,
        options: FilterOptions,
        query: str,
        arrivals: Arrivals,
    ) -> None:
        self.step = step
        self._arrivals = arrivals
        guard = Guard(f"{INPUT} = {step.own.number}", step.marks, step.dropped)
        super().__init__(step.bound, options, query, relation=step.relation, guard=guard)

    def prepare(self, df: DataFrame, batch: Batch) -> None:
        """Look at a micro-batch before it runs; see ``FilterOperator.prepare``."""
        if not self._arrivals.has(self.step.own.number):
            return
        rows = self._arrivals.rows() if self.step.is_first else None
        super().prepare(self.step.own.named(df if rows is None else rows), batch)

    def lay(
        self,
        df: DataFrame,
        batch: Batch,
        *,
        observation: Callable[[str], Any] = lambda _component: Observation(),
    ) -> Laid:
        """Lay the predicates over the rows of the input; see ``FilterOperator.lay``."""
        if not self._arrivals.has(self.step.own.number):
            return Laid(df)
        laid = super().lay(self.step.own.named(df), batch, observation=observation)
        return Laid(self.step.own.unnamed(laid.df), laid.pending)


class InputProject(Operator):
    """A projection of one input of a join.

    Args:
        step: the projection.
    """

    def __init__(self, step: InputColumns) -> None:
        self.step = step
        self.name = f"project {step.relation}"

    def lay(self, df: DataFrame, batch: Batch) -> Laid:  # noqa: ARG002 - the same for every batch
        """Compute the columns."""
        return Laid(self.step.lay(df))


def operators_of_inputs(
    inputs: Iterable[LaidInput],
    options: FilterOptions,
    query: str,
    arrivals: Arrivals,
) -> list[Operator]:
    """Return the operators of the steps over one input of a join each, in the order of inputs."""
    return [
        InputFilter(step, options, query, arrivals)
        if isinstance(step, InputPredicates)
        else InputProject(step)
        for laid in inputs
        for step in laid.steps
    ]
