"""Shared scans: one pass over a stream for several queries.

A scan is one class, here or in ``joins``, and one line of ``group.SCANS``. Its class methods say
which queries it takes, which of them may run together, and why the others may not: a query runs
with others only where it means the same as by itself. Its operators give each row the places of the
queries that the row belongs to (``PLACES``); ``router.SinkRouter`` gives the row to their sinks.

* ``SharedFilters``: conditions are rules of one set, so tests that several queries use are
  evaluated once.
* ``SharedModels``: rows become segments once, and each query solves what it asks on these.
* ``joins.SharedJoins``: rows go to their buckets once, and each window is kept once.
* ``SharedAggregates``: rows become cells once. Queries share cells if one groups by all that the
  other groups by; cells of the finest grouping are merged for the others.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, ClassVar

import msgspec
from pyspark.sql import functions as F
from sqlglot import exp

from eddyline.aggregates.functions import AGGREGATES, function_of
from eddyline.aggregates.monoids import MONOIDS, Lists
from eddyline.aggregates.plan import PLACE
from eddyline.aggregates.windows import Slides
from eddyline.errors import EddylineError
from eddyline.lane.results import with_places
from eddyline.models import graph
from eddyline.models.streams.plan import MEMBER, ModelStep, SharedModelStep, SharedPlan
from eddyline.options import AggregateOptions, FilterOptions
from eddyline.query.identity import Identity, together
from eddyline.query.predicates import SqlPredicate
from eddyline.query.query import LONGEST, SlideWindow
from eddyline.query.rules.sources import PredicateRule
from eddyline.query.select.reader import read_query
from eddyline.query.steps import (
    AggregateStep,
    FilterStep,
    ProjectStep,
    ReadStep,
    SharedAggregateStep,
    name_of,
    steps,
)
from eddyline.spark.aggregates.shared import members_of
from eddyline.spark.analysis import column_types
from eddyline.spark.filters.operator import FilterOperator
from eddyline.spark.models.laying import has_positions
from eddyline.spark.models.sql import JOINED
from eddyline.spark.operator import PREFIX, Laid, Operator
from eddyline.spark.operators import laid_out
from eddyline.spark.query import Query
from eddyline.spark.rules.output import MatchesColumn
from eddyline.spark.rules.rule_set import RuleSet
from eddyline.spark.run.job import settings_of
from eddyline.spark.session import is_ansi
from eddyline.spark.task_results import ArrowStep
from eddyline.sql.functions import NON_DETERMINISTIC, READ_BY, names_among
from eddyline.sql.parsing import SparkText, on_one_line, parse_output, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame
    from sqlglot import Expr

    from eddyline.filters.binding import Pinned
    from eddyline.query.steps import Step
    from eddyline.spark.operator import Batch
    from eddyline.spark.rules.operator import RuleOperator

PLACES = f"{PREFIX}_places"
"""The temporary column of the queries that a row belongs to, by their places."""


class Listed(msgspec.Struct, frozen=True):
    """A query in the list of those that run together."""

    text: str
    until: int | None = None
    """The last micro-batch that it has seen, of one that left while others went on."""
    written: str = ""
    """The text as it was written, with its line comments."""
    identity: Identity | None = None
    """Its identity; None in lists of versions that stored only the text."""


MOST_CELLS = 3_600
"""Most cells that the longest window of queries that share them may be cut into: where edges of
windows fall in other places, cells would be as small as their distance."""


MOST_NAMES = 5
"""Most queries of a grouping that are named."""


class SharedScan(ABC):
    """Evaluates several queries over one stream at once.

    Args:
        queries: one or more that it takes.
        gone: those that ran with them before and left, by their names.
    """

    identity: Identity
    """Learned and durable state is of use only for queries of the same identity."""
    source: DataFrame
    """The rows of the stream, with the columns that the queries read."""
    settings: Mapping[str, str]
    """Its options, as texts."""
    kind: ClassVar[str]
    """The operator that evaluates all of them, as components of it begin."""
    words: str
    """What they have in common, in words."""
    names: Sequence[str]
    """The queries by their places in the micro-batch that was laid last."""
    may_give_table: ClassVar[bool] = False
    """Whether the driver may hold the rows as a table."""
    unfit: ClassVar[str] = "its windows end where those of others do not"
    """The reason why a query does not ``fit`` others."""
    has_own_plans: ClassVar[bool] = False
    """Whether queries have plans of their own, whose components end in `` of `` and the name."""

    @abstractmethod
    def __init__(self, queries: Sequence[Query], gone: Mapping[str, Listed]) -> None: ...

    # -- which queries run together ---------------------------------------------------------------

    @staticmethod
    @abstractmethod
    def takes(query: Query) -> bool:
        """Return whether a query is of the kind that this scan evaluates."""

    @staticmethod
    @abstractmethod
    def folders(queries: Sequence[Query]) -> dict[str, str]:
        """Return the name of a folder for each query, by name; equal for those that may share."""

    @staticmethod
    @abstractmethod
    def why_lone(query: Query) -> str:
        """Return the reason why no other query over its stream may run with a query."""

    @staticmethod
    @abstractmethod
    def why_not(query: Query) -> str:
        """Return the reason why a query would mean something else with others; "" if none."""

    @staticmethod
    def why_dear(query: Query) -> str:  # noqa: ARG004
        """Return why sharing costs more than it saves, so that it must be asked for."""
        return ""

    @staticmethod
    def fit(queries: Sequence[Query]) -> bool:  # noqa: ARG004
        """Return whether queries are worth running together; ``unfit`` says why they are not."""
        return True

    # -- one pass over the rows -------------------------------------------------------------------

    @abstractmethod
    def operators(self) -> Sequence[Operator]:
        """Return the operators, with nothing learned yet; their rows have the column ``PLACES``."""

    @abstractmethod
    def projections(self, query: Query) -> tuple[str, ...]:
        """Return the output columns of a query over these rows, as SQL."""

    @abstractmethod
    def shape(self) -> DataFrame:
        """Return a DataFrame with the columns of these rows, for analysis only."""

    @abstractmethod
    def remove(self, *names: str) -> None:
        """Let queries go while the others run on."""


class SharedFilters(SharedScan):
    """Queries that filter, as rules: tests that several of them use are evaluated once."""

    kind = "rules"
    words = "each is a rule there"

    def __init__(
        self,
        queries: Sequence[Query],
        gone: Mapping[str, Listed],  # noqa: ARG002
    ) -> None:
        (stream,) = queries[0].relations.values()
        self.source = stream.narrowed([query.steps for query in queries], routes=False).rows
        self.rules = RuleSet.of(
            [_rule_of(query) for query in queries],
            name=f"queries over {queries[0].streams[0]}",
        )
        self.identity = Identity(self.rules.name, (), {}, legacy=self.rules.name)
        self.settings = settings_of(self.rules.options)
        self._operator: RuleOperator | None = None

    @staticmethod
    def takes(query: Query) -> bool:
        """Return whether a query reads one stream, filters and projects it, and no more."""
        kinds = tuple(map(type, query.steps))
        return kinds == (ReadStep, FilterStep, ProjectStep) and bool(query.streams)

    @staticmethod
    def folders(queries: Sequence[Query]) -> dict[str, str]:
        """Return the stream of each query."""
        return {query.name: query.streams[0] for query in queries}

    @staticmethod
    def why_lone(query: Query) -> str:  # noqa: ARG004
        """Return that the others have another trigger."""
        return "the others have another trigger"

    @staticmethod
    def why_not(query: Query) -> str:
        """Return the reason why a query would mean something else with others; "" if none."""
        if FilterOptions.taken(query.options)[0] != FilterOptions():
            return "it has options of its own"
        if pinned := _pinned_of(query):
            return f"{pinned[0].text!r} keeps its place: {pinned[0].reason}"
        if calls := _columns_of(query).calls:
            return f"its output columns call {next(iter(calls.values())).text}, a Python function"
        if lots := names_among(READ_BY, _columns_of(query).projections):
            return f"its output columns use {lots[0]}, which depends on how rows are read"
        try:
            is_strict = is_ansi(query.source.sparkSession)
            _rule_of(query).bind(column_types(query.source), ansi=is_strict)
        except EddylineError as error:
            return error.message
        return ""

    @property
    def names(self) -> Sequence[str]:  # type: ignore[override]
        """The queries by their places in the micro-batch that was laid last."""
        return () if self._operator is None else self._operator.names

    def operators(self) -> Sequence[Operator]:
        """Return the operator of the rules, with nothing learned yet."""
        column = MatchesColumn(PLACES, as_places=True)
        self._operator = self.rules.query_operator(self.source, column, "")
        return [self._operator]

    def projections(self, query: Query) -> tuple[str, ...]:
        """Return the output columns of a query, over the rows of the stream."""
        return tuple(_columns_of(query).projections)

    def shape(self) -> DataFrame:
        """Return the stream."""
        return self.source

    def remove(self, *names: str) -> None:
        """Let queries go while the others run on."""
        self.rules.remove(*names)


def _rule_of(query: Query) -> PredicateRule:
    predicates = next(step.predicates for step in query.steps if isinstance(step, FilterStep))
    return PredicateRule(query.name, predicates, noun="query")


def _columns_of(query: Query) -> ProjectStep:
    return next(step for step in query.steps if isinstance(step, ProjectStep))


def _pinned_of(query: Query) -> tuple[Pinned, ...]:
    """Return the predicates that keep their place; rules have none."""
    filters = (operator for operator in query.operators if isinstance(operator, FilterOperator))
    return next((operator.bound.pinned for operator in filters), ())


class SharedAggregates(SharedScan):
    """Queries of aggregates that share their cells.

    Args:
        queries: one or more.
        gone: those that shared cells with them and left, by their names: what is kept has theirs.
    """

    kind = "aggregate"
    may_give_table = True

    def __init__(self, queries: Sequence[Query], gone: Mapping[str, Listed]) -> None:
        again = [_read_again(name, listed.written, queries[0]) for name, listed in gone.items()]
        # What is kept hangs on the places of queries, which are not those they are started in.
        queries = sorted([*queries, *again], key=lambda query: query.name)
        first = queries[0]
        self._queries = {query.name: query for query in queries}
        members = []
        for query in queries:
            filters, step = _steps_of(query)
            texts = [f"({predicate.text}\n)" for predicate in filters.predicates]
            members.append((step, " AND ".join(texts)))
        shared = SharedAggregateStep(members[0][0].input, tuple(members))
        self.steps: tuple[Step, ...] = (first.steps[0], shared)
        self.words = _words(queries)
        _, shared_members = members_of(shared)
        self._own = dict(zip(self._queries, shared_members, strict=True))
        identities = {name: query.identity for name, query in self._queries.items()}
        plain = "\n".join(f"{name} {identity.legacy}" for name, identity in identities.items())
        digest = hashlib.blake2b(plain.encode(), digest_size=6).hexdigest()
        text = f"aggregates over {first.streams[0]}"
        self.identity = together(text, identities, legacy=f"{text} #{digest}")
        self.names = tuple(self._queries)
        self.settings = first.settings
        self._first = first
        (stream,) = first.relations.values()
        self.source = stream.narrowed([self.steps], routes=False).df

    @staticmethod
    def takes(query: Query) -> bool:
        """Return whether a query reads one stream, filters and aggregates it, and no more."""
        return tuple(map(type, query.steps)) == (ReadStep, FilterStep, AggregateStep)

    @staticmethod
    def folders(queries: Sequence[Query]) -> dict[str, str]:
        """Return for each query, by name, what those are called that it may share cells with.

        They have its stream and options, and of any two one groups by all that the other groups by.
        A query whose groups are a part of those of several goes with the finest of them, so that it
        does not matter in which order queries are.
        """
        folders: dict[str, str] = {}
        families: dict[str, list[_Nested]] = {}
        for query in sorted(queries, key=lambda query: _fineness(_grouping(query))):
            common = f"{query.streams[0]}\n{AggregateOptions.taken(query.options)[0]!r}"
            nested = families.setdefault(common, [])
            family = next((candidate for candidate in nested if candidate.takes(query)), None)
            if family is None:
                family = _Nested(_grouping(query))
                nested.append(family)
            family.coarsest = _grouping(query)
            plain = "\n".join([*map(" ".join, sorted(family.finest)), common])
            digest = hashlib.blake2b(plain.encode(), digest_size=4).hexdigest()
            folders[query.name] = f"{query.streams[0]}-{digest}"
        return folders

    @staticmethod
    def why_lone(query: Query) -> str:
        """Return the reason why no other query of its stream shares the cells of a query."""
        if not _grouping(query):
            return "it has no groups, so all cells would be in one bucket"
        if _has_sketches(query):
            return "no other groups alike, and its sketches are not merged over finer groups"
        return (
            "no other of its options and trigger groups by a part of what it groups by, or by more"
        )

    @staticmethod
    def why_not(query: Query) -> str:
        """Return the reason why a query cannot share its cells; "" if it can."""
        filters, step = _steps_of(query)
        if not isinstance(step.window, SlideWindow) or step.window.length == LONGEST:
            return f"[{step.window.text}] has no slices that others could share"
        if step.emits not in (None, "rstream"):
            return f"it gives changes alone ({str(step.emits).upper()})"
        for predicate in filters.predicates:
            if not isinstance(predicate, SqlPredicate):
                return f"its condition {predicate.text!r} calls a Python function"
            if drawn := [
                name for name in NON_DETERMINISTIC if f"{name}(" in predicate.text.lower()
            ]:
                return f"its condition uses {drawn[0]}(), which is not deterministic"
        if any(call.own is not None for call in step.calls):
            return "it has an aggregate of the user"
        return ""

    @staticmethod
    def fit(queries: Sequence[Query]) -> bool:
        """Return whether the windows of queries have edges that make cells of a useful size."""
        windows = [_steps_of(query)[1].window for query in queries]
        slides = Slides.common([window for window in windows if isinstance(window, SlideWindow)])
        return slides.length // slides.slide <= MOST_CELLS

    def projections(self, query: Query) -> tuple[str, ...]:
        """Return the output columns of a query, over the rows of all."""
        return self._own[query.name].projections

    def operators(self) -> list[Operator]:
        """Return the operators, with nothing learned yet."""
        first = self._first
        laid = laid_out(self.steps, first.relations, first.name, first.options)
        return [*laid.make(), Placed(laid.shape)]

    def shape(self) -> DataFrame:
        """Return a DataFrame with the columns of the rows of all, for analysis only."""
        df = self.source
        for operator in self.operators():
            df = operator.shape(df)
        return df

    def remove(self, *names: str) -> None:
        """Let queries go: their results are computed as before, and given to nobody."""


def _steps_of(query: Query) -> tuple[FilterStep, AggregateStep]:
    """Return the steps of such a query."""
    filters, aggregates = query.steps[1:]
    assert isinstance(filters, FilterStep)
    assert isinstance(aggregates, AggregateStep)
    return filters, aggregates


@dataclass
class _Nested:
    """Groupings of which each is a part of those before."""

    finest: frozenset[tuple[str, ...]]
    coarsest: frozenset[tuple[str, ...]] = frozenset()

    def takes(self, query: Query) -> bool:
        """Return whether the queries so far may share cells with one that groups no finer."""
        grouping = _grouping(query)
        if grouping == self.finest:
            return True
        return bool(grouping) and grouping <= self.coarsest and not _has_sketches(query)


def _grouping(query: Query) -> frozenset[tuple[str, ...]]:
    return _steps_of(query)[1].grouping


def _fineness(grouping: frozenset[tuple[str, ...]]) -> tuple[int, list[tuple[str, ...]]]:
    """Return what sorts groupings, the finest first."""
    return -len(grouping), sorted(grouping)


def _has_sketches(query: Query) -> bool:
    """Return whether a query has lists of sketches: Spark merges as many as there are cells.

    Over the cells of finer groups these would be a sketch for each of them, in each window.
    """
    functions = (
        function_of(call.function, len(call.arguments), is_distinct=call.is_distinct)
        for call in _steps_of(query)[1].calls
        if call.own is None
    )
    partials = (MONOIDS[part.monoid] for function in functions for part in function.partials)
    return any(isinstance(monoid, Lists) for monoid in partials)


def _read_again(name: str, text: str, like: Query) -> Query:
    """Return a query by its text, over the stream and with the options of another one."""
    ((stream, relation),) = like.relations.items()
    read = read_query(text, {stream: column_types(relation.df)}, aggregates=[*AGGREGATES])
    return Query(name, text, steps(read), like.relations, like.options)


def _words(queries: Sequence[Query]) -> str:
    """Return what queries have in common, and which of them group more coarsely."""
    levels: dict[frozenset[tuple[str, ...]], list[Query]] = {}
    for query in sorted(queries, key=lambda query: _fineness(_grouping(query))):
        levels.setdefault(_grouping(query), []).append(query)
    text = "rows become cells once, and each has windows of its own over these"
    first, *coarser = levels.values()
    if not coarser:
        return text
    names = [f"{_named(level)} by {_by(level[0])}" for level in coarser]
    return f"{text}. Cells are by {_by(first[0])}, and merged for {'; '.join(names)}"


def _by(query: Query) -> str:
    return ", ".join(on_one_line(text) for _, text in _steps_of(query)[1].groups)


def _named(queries: Sequence[Query]) -> str:
    """Return the names of queries, the first ones of many."""
    names = [query.name for query in queries[:MOST_NAMES]]
    n_more = len(queries) - len(names)
    return ", ".join(names) + (f" and {n_more} more" if n_more else "")


class Placed(Operator):
    """Says of each row by ``PLACES`` which query it is of."""

    name = "places"
    keeps_few = True

    def __init__(self, rows: DataFrame, place: str = PLACE) -> None:
        self._rows, self._place = rows, place
        """A DataFrame with the columns of its input, for analysis only."""

    def lay(self, df: DataFrame, batch: Batch) -> Laid:  # noqa: ARG002
        """Return the rows with their places."""
        return Laid(self.shape(df))

    @cached_property
    def arrow_step(self) -> ArrowStep | None:
        """Step that adds the place of each row to a table."""
        return ArrowStep(self.shape(self._rows), partial(with_places, self._place, PLACES))

    def shape(self, df: DataFrame) -> DataFrame:
        """Return the rows with their places."""
        return df.withColumn(PLACES, F.array(self._place)).drop(self._place)


class SharedModels(SharedScan):
    """Queries of the same models of the same rows.

    Args:
        queries: one or more.
        gone: those that shared models with them and left: what is kept of these goes.
    """

    kind = "models"
    words = "rows become segments once, and each query is solved on these"

    def __init__(self, queries: Sequence[Query], gone: Mapping[str, Listed]) -> None:  # noqa: ARG002
        first = queries[0]
        self._queries = {query.name: query for query in queries}
        self.names = tuple(self._queries)
        asked = {name: _models_of(query) for name, query in self._queries.items()}
        (stream_input,) = asked[first.name].plan.inputs
        members = tuple((name, step.plan.node) for name, step in asked.items())
        plan = SharedPlan((stream_input,), graph.Input(0, stream_input.shape), members=members)
        before = first.steps[: first.steps.index(asked[first.name])]
        having = [
            f"({MEMBER} <> {number} OR ({self._renamed(number, predicate.text)}\n))"
            for number, query in enumerate(queries)
            for step in query.steps[query.steps.index(asked[query.name]) :]
            if isinstance(step, FilterStep)
            for predicate in step.predicates
        ]
        shared = SharedModelStep(asked[first.name].inputs, plan)
        self.steps: tuple[Step, ...] = (*before, shared)
        if having:
            self.steps += (FilterStep(shared.output, tuple(map(SqlPredicate, having))),)
        name = f"models over {first.streams[0]}"
        self.identity = Identity(name, (), {}, legacy=f"{name} {_family_of(first)}")
        self.settings = first.settings
        self._first = first
        (stream,) = first.relations.values()
        self.source = stream.narrowed([self.steps], routes=False).df

    @staticmethod
    def takes(query: Query) -> bool:
        """Return whether a query makes models of one stream, solves them, and no more.

        One that joins tables to its rows reads a stream of its own.
        """
        kinds = [type(step) for step in query.steps if not isinstance(step, FilterStep)]
        asked = [p.text for s in query.steps if isinstance(s, FilterStep) for p in s.predicates]
        is_plain = kinds == [ReadStep, ModelStep, ProjectStep] and JOINED not in asked
        return is_plain and bool(query.streams)

    @staticmethod
    def folders(queries: Sequence[Query]) -> dict[str, str]:
        """Return what those are called that make the same models of the same rows."""
        return {query.name: f"{query.streams[0]}-models-{_family_of(query)}" for query in queries}

    @staticmethod
    def why_lone(query: Query) -> str:  # noqa: ARG004
        """Return the reason why no other query over its stream may run with a query."""
        return "no other of its options and trigger makes the same models of the same rows"

    @staticmethod
    def why_not(query: Query) -> str:
        """Return the reason why a query cannot share its models; "" if it can."""
        step = _models_of(query)
        if step.plan.is_early:
            return "it has results before they are final"
        if has_positions(step.plan.node.shape):
            return "it has positions, which Spark puts in degrees"
        after = query.steps[query.steps.index(step) :]
        filters = [step for step in after if isinstance(step, FilterStep)]
        if not all(isinstance(one, SqlPredicate) for step in filters for one in step.predicates):
            return "a condition on its results calls a Python function"
        return ""

    @staticmethod
    def _renamed(number: int, text: str) -> str:
        """Return SQL over the columns of a query as over those of all."""
        tree = parse_output(text)

        def named(node: Expr) -> Expr:
            if not isinstance(node, exp.Column):
                return node
            column = SharedPlan.column(number, node.name)
            return exp.column(exp.to_identifier(column, quoted=True))

        sql: str = tree.transform(named).sql(SparkText)
        return sql

    def projections(self, query: Query) -> tuple[str, ...]:
        """Return the output columns of a query, over the rows of all."""
        number = self.names.index(query.name)
        projections = _columns_of(query).projections
        return tuple(
            f"{self._renamed(number, text)} AS {quoted(name_of(text))}"
            if isinstance(parse_output(text), exp.Column)
            else self._renamed(number, text)
            for text in projections
        )

    def operators(self) -> list[Operator]:
        """Return the operators, with nothing learned yet."""
        first = self._first
        laid = laid_out(self.steps, first.relations, first.name, first.options)
        return [*laid.make(), Placed(laid.shape, MEMBER)]

    def shape(self) -> DataFrame:
        """Return a DataFrame with the columns of the rows of all, for analysis only."""
        first = self._first
        laid = laid_out(self.steps, first.relations, first.name, first.options)
        return Placed(laid.shape, MEMBER).shape(laid.shape)

    def remove(self, *names: str) -> None:
        """Let queries go: their results are computed as before, and given to nobody."""


def _models_of(query: Query) -> ModelStep:
    return next(step for step in query.steps if isinstance(step, ModelStep))


def _family_of(query: Query) -> str:
    """Return a digest that those queries have in common which may share models."""
    step = _models_of(query)
    (stream_input,) = step.plan.inputs
    before = query.steps[: query.steps.index(step)]
    rows = [
        [predicate.text for predicate in one.predicates]
        for one in before
        if isinstance(one, FilterStep)
    ]
    options = sorted((name, repr(value)) for name, value in query.options.items())
    facts = [query.streams[0], repr(stream_input.maker), rows, step.plan.together, options]
    return hashlib.blake2b(repr(facts).encode(), digest_size=4).hexdigest()
