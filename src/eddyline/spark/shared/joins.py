"""Joins that share exchange and windows [Babu05 2.3.1].

Queries share if they join the same streams and tables by the same keys. What they call their
inputs, and in which order they name them, does not count: ``Form`` has the inputs of a query under
names that all have in common. Each window is as long as the longest one. Where queries have other
conditions on an input, a row is sent and kept if one of them needs it, with a mark of which.

``SharedJoins`` makes one step of the joins of all, and a filter of the results of each.
The results are kept while a micro-batch runs, so that the tasks of the join run once. The operators
of each query that aggregates take its results out of them and put their own aside (``Branch``). At
the end all results stand in one DataFrame: those of the join in a struct for each input, those of a
query that aggregates in a struct of its own, and ``PLACES``.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StructField, StructType

from eddyline.aggregates.functions import AGGREGATES
from eddyline.errors import EddylineError
from eddyline.joins.plan import MEMBER, MOST_MEMBERS
from eddyline.options import DISCARD, JoinOptions
from eddyline.query.identity import requalified, together
from eddyline.query.predicates import SqlPredicate
from eddyline.query.query import KeyClass, both
from eddyline.query.result_times import ResultTimes, TimedInput
from eddyline.query.select.reader import read_query
from eddyline.query.select.statement import identifier
from eddyline.query.steps import (
    AggregateStep,
    FilterStep,
    JoinedInput,
    JoinMember,
    JoinStep,
    MemberFilterStep,
    ProjectStep,
    ReadStep,
    SharedJoinStep,
    steps,
)
from eddyline.spark.analysis import column_types
from eddyline.spark.joins.shared import SharedJoinOperator
from eddyline.spark.joins.source import facts_of
from eddyline.spark.operator import Laid, LaidOut, Operator, Site
from eddyline.spark.operators import laid_out, operators_of
from eddyline.spark.parts import Part, Trunk
from eddyline.spark.projection import computed_values
from eddyline.spark.session import is_ansi
from eddyline.spark.shared.scans import PLACES, Placed, SharedScan
from eddyline.sql.functions import NON_DETERMINISTIC, READ_BY, names_among
from eddyline.sql.parsing import comparable, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from eddyline.query.predicates import Predicate
    from eddyline.query.steps import Step
    from eddyline.runtime.journal import JournalEntry
    from eddyline.spark.operator import Batch, Observed
    from eddyline.spark.query import Query
    from eddyline.spark.relation import Relation
    from eddyline.spark.shared.scans import Listed


@dataclass(frozen=True)
class Form:
    """A join under the names that it has in common with others of the same streams and keys."""

    steps: tuple[Step, ...]
    """Of its query."""

    @cached_property
    def join(self) -> JoinStep:
        """The join."""
        return next(step for step in self.steps if isinstance(step, JoinStep))

    @cached_property
    def before(self) -> dict[str, tuple[Step, ...]]:
        """By input as the query calls it, the steps over it."""
        before = self.steps[: self.steps.index(self.join)]
        return {
            joined.name: tuple(step for step in before if step.output == joined.input)
            for joined in self.join.joined
        }

    @cached_property
    def after(self) -> tuple[Step, ...]:
        """The steps over the results of the join."""
        return self.steps[self.steps.index(self.join) + 1 :]

    @property
    def residual(self) -> tuple[FilterStep, ...]:
        """The conditions on these."""
        filters = takewhile(lambda step: isinstance(step, FilterStep), self.after)
        return tuple(step for step in filters if isinstance(step, FilterStep))

    @property
    def after_residual(self) -> tuple[Step, ...]:
        """The steps over those that are left."""
        return self.after[len(self.residual) :]

    @property
    def aggregates(self) -> bool:
        """Whether results are aggregated."""
        return any(isinstance(step, AggregateStep) for step in self.after)

    def times(self, relations: Mapping[str, Relation]) -> ResultTimes:
        """Return the event times among the columns of results."""
        inputs = ((joined, relations[self.stream(joined.name)].time) for joined in self.join.joined)
        timed = [
            TimedInput(joined.name, time, joined.window.length)
            for joined, time in inputs
            if time is not None
        ]
        return ResultTimes.of_join("inner", timed)

    def own_name(self, common: str) -> str:
        """Return what the query calls an input."""
        return next(name for name, common_name in self.names.items() if common_name == common)

    def stream(self, name: str) -> str:
        """Return the stream or table of an input, as the query calls it."""
        return next(step.stream for step in self.before[name] if isinstance(step, ReadStep))

    def predicates(self, name: str) -> tuple[Predicate, ...]:
        """Return the conditions on an input, as the query calls it."""
        filters = (step for step in self.before[name] if isinstance(step, FilterStep))
        return tuple(predicate for step in filters for predicate in step.predicates)

    @cached_property
    def names(self) -> dict[str, str]:
        """The common name of each input, in the order of common names."""
        sides = {
            joined.name: (
                self.stream(joined.name),
                sorted(self._side(key, joined.name) for key in self.join.keys),
                number,
            )
            for number, joined in enumerate(self.join.joined)
        }
        seen: Counter[str] = Counter()
        streams = [stream for stream, *_ in sides.values()]
        names = {}
        for name in sorted(sides, key=lambda side: sides[side]):
            stream = self.stream(name)
            seen[stream] += 1
            common = stream if streams.count(stream) == 1 else f"{stream} {seen[stream]}"
            names[name] = common
        return names

    @staticmethod
    def _side(key: KeyClass, name: str) -> list[str]:
        return sorted(" ".join(comparable(text)) for text in key.members.get(name, ()))

    @cached_property
    def keys(self) -> list[tuple[tuple[str, tuple[str, ...]], ...]]:
        """The key classes: inputs and what is compared of each, both in order."""
        return sorted(
            tuple((common, (*self._side(key, name),)) for name, common in self.names.items())
            for key in self.join.keys
        )

    def conditions(self, name: str) -> frozenset[tuple[str, ...]]:
        """Return the conditions on an input, of which order, white space and case do not count."""
        return frozenset(comparable(predicate.text) for predicate in self.predicates(name))

    def where(self, name: str) -> str:
        """Return the conditions on an input as SQL; empty if there are none."""
        return both(*(predicate.text for predicate in self.predicates(name)))

    def member(self, query: str, marked: Sequence[str]) -> JoinMember:
        """Return what the query asks; ``marked`` are inputs of which not all need the same rows."""
        common = self.names
        return JoinMember(
            query,
            tuple(common[joined.name] for joined in self.join.joined),
            {common[joined.name]: joined.window for joined in self.join.joined},
            {common[joined.name]: joined.columns for joined in self.join.joined},
            {
                common_name: self.where(name)
                for name, common_name in common.items()
                if common_name in marked
            },
        )


def form_of(query: Query) -> Form:
    """Return the form of a query that joins."""
    return Form(tuple(query.steps))


class SharedJoins(SharedScan):
    """Queries that join the same streams by the same keys.

    Args:
        queries: one or more.
        gone: those that shared the join and left, by their names: windows have what they needed.
    """

    kind = "join"
    may_give_table = True
    has_own_plans = True
    unfit = f"{MOST_MEMBERS} others share the join already"

    def __init__(self, queries: Sequence[Query], gone: Mapping[str, Listed]) -> None:
        first = queries[0]
        self._first = first
        self._queries = {query.name: query for query in queries}
        # Marks in files hang on the places of queries, which are not those they are started in.
        forms = {query.name: form_of(query) for query in queries}
        forms |= {name: _read_again(listed.written, first) for name, listed in gone.items()}
        self._forms = dict(sorted(forms.items()))
        self.names = tuple(self._forms)
        self._join = _together(self._forms)
        self.steps: tuple[Step, ...] = (*_inputs(self._forms, self._join), self._join)
        for number, name in enumerate(self.names):
            if name in self._queries and (predicates := self._residual(name)):
                self.steps += (MemberFilterStep(self._join.output, predicates, name, number),)
        identities = {name: query.identity for name, query in self._queries.items()}
        identities |= {name: listed.identity for name, listed in gone.items() if listed.identity}
        text = f"joins of {' and '.join(first.streams)}"
        identity = together(text, dict(sorted(identities.items())), legacy=text)
        kept = (
            ("marks", *self._marked),
            *((joined.name, *joined.columns) for joined in self._join.joined),
        )
        self.identity = msgspec.structs.replace(identity, layout=(*identity.layout, *kept))
        self.settings = first.settings
        self.words = _words(self._forms, self._join)
        self._operator: SharedJoinOperator | None = None
        self._laid = laid_out(self.steps, first.relations, first.name, first.options)
        self._branches = self._laid_branches()
        self.source = self._laid.source

    @property
    def _marked(self) -> tuple[str, ...]:
        return tuple(joined.name for joined in self._join.joined if self._join.wheres(joined.name))

    def _residual(self, name: str) -> tuple[SqlPredicate, ...]:
        """Return the conditions on the results of a query, under the common names."""
        form = self._forms[name]
        return tuple(
            SqlPredicate(requalified(predicate.text, form.names))
            for step in form.residual
            for predicate in step.predicates
        )

    # -- which queries run together ---------------------------------------------------------------

    @staticmethod
    def takes(query: Query) -> bool:
        """Return whether a query joins two streams or more, filters, aggregates, and no more.

        One stream with tables has no windows to share: a row meets a table once.
        """
        kinds = [type(step) for step in query.steps]
        if kinds.count(JoinStep) != 1 or len(query.streams) < 2:
            return False
        place = kinds.index(JoinStep)
        after = [kind for kind in kinds[place + 1 :] if kind is not FilterStep]
        is_made = {*kinds[:place]} <= {ReadStep, FilterStep}
        return is_made and after in ([ProjectStep], [ProjectStep, AggregateStep])

    @staticmethod
    def folders(queries: Sequence[Query]) -> dict[str, str]:
        """Return what those are called that join the same streams by the same keys."""
        return {
            query.name: f"{'-'.join(sorted(query.streams))}-joins-{_family_of(query)}"
            for query in queries
        }

    @staticmethod
    def why_lone(query: Query) -> str:  # noqa: ARG004
        """Return the reason why no other query over its streams may run with a query."""
        return "no other of its options and trigger joins the same streams by the same keys"

    @staticmethod
    def why_not(query: Query) -> str:  # noqa: PLR0911 - a line for each reason
        """Return the reason why a query cannot share its join; "" if it can."""
        form = form_of(query)
        options = JoinOptions.taken(query.options)[0]
        if form.join.kind != "inner":
            return f"rows without a partner are its own: it is a {form.join.kind.upper()} join"
        if form.join.emits != "istream":
            return f"its results wait for event time ({form.join.emits.upper()})"
        if any(joined.window.counts is not None for joined in form.join.joined):
            return "its windows count rows"
        if options.constraints:
            value = DISCARD if options.constraints == DISCARD else "exact"
            return f"constraints={value!r} are of what its own rows find"
        if options.caches:
            return "it may keep joined rows of its own (caches=True)"
        if options.routing:
            return "classes of its rows may have orders of their own (routing=True)"
        return _why_not_its_rows(form) or _why_not_its_columns(form)

    @staticmethod
    def why_dear(query: Query) -> str:
        """Return why sharing costs more than it saves: results of all go through Spark then."""
        form, what = form_of(query), ""
        if form.aggregates:
            what = "it aggregates joined rows"
        elif not _are_kept_by_arrow(form, query):
            what = "Spark evaluates its conditions on joined rows"
        return what and f"{what}, which takes longer shared; shared='all' asks for it"

    @staticmethod
    def fit(queries: Sequence[Query]) -> bool:
        """Return whether there is a mark for each."""
        return len(queries) <= MOST_MEMBERS

    # -- one pass over the rows -------------------------------------------------------------------

    def operators(self) -> list[Operator]:
        """Return the operators, with nothing learned yet; called once."""
        laid, branches = self._laid, self._branches
        operators = [*laid.make()]
        self._operator = next(
            operator for operator in operators if isinstance(operator, SharedJoinOperator)
        )
        self._operator.leave_out([name for name in self.names if name not in self._queries])
        if not branches:
            return [*operators, Placed(laid.shape, MEMBER)]
        join = self._operator
        fork = self._fork(lambda: join.driver_answer is not None)
        for number, branch in branches.items():
            name = self.names[number]
            part = Part(fork, number, name, branch)
            branch_operators = [*part.operators()]
            for operator in branch_operators[1:-1]:
                operator.name += f" of {name}"
                for choice in operator.choices:
                    choice.component += f" of {name}"
            operators += [*([] if fork in operators else [fork]), *branch_operators]
        return [
            *operators,
            Gather(fork, {number: branch.shape for number, branch in branches.items()}),
        ]

    def _fork(self, are_few: Callable[[], bool] = lambda: False) -> Fork:
        names = {
            number: {common: own_name for own_name, common in form.names.items()}
            for number, form in enumerate(self._forms.values())
        }
        return Fork(self._laid.shape, names, are_few)

    def _laid_branches(self) -> dict[int, LaidOut]:
        """Return the steps of each query that aggregates over its results, by its number."""
        options = JoinOptions.taken(self._first.options)[1]
        laid, fork, branches = self._laid, self._fork(), {}
        for number, (name, form) in enumerate(self._forms.items()):
            if name not in self._queries or not form.aggregates:
                continue
            shape = fork.rows(number, laid.shape)
            times = form.times(self._first.relations)
            site = Site(
                shape,
                name,
                options,
                is_source=False,
                filters=None,
                is_filtered=False,
                clock=laid.clock,
                times=times,
            )
            operators, end = operators_of(form.after_residual, site)
            branches[number] = LaidOut(shape, end.df, end.time, end.clock, partial(list, operators))
        return branches

    def projections(self, query: Query) -> tuple[str, ...]:
        """Return the output columns of a query, over the rows of all."""
        form, number = self._forms[query.name], self.names.index(query.name)
        if form.aggregates:
            whole = Gather.column(number)
            return tuple(
                f"{whole}.{quoted(column)} AS {quoted(column)}" for column in query.columns
            )
        project = next(step for step in form.after if isinstance(step, ProjectStep))
        return tuple(requalified(text, form.names) for text in project.projections)

    def shape(self) -> DataFrame:
        """Return a DataFrame with the columns of the rows of all, for analysis only."""
        if not self._branches:
            return Placed(self._laid.shape, MEMBER).shape(self._laid.shape)
        shapes = {number: branch.shape for number, branch in self._branches.items()}
        return Gather(self._fork(), shapes).shape(self._laid.shape)

    def remove(self, *names: str) -> None:
        """Let queries go: nothing is joined for them any more, and windows stay as they are."""
        if self._operator is not None:
            self._operator.remove(names)


def _are_kept_by_arrow(form: Form, query: Query) -> bool:
    """Return whether the conditions on the results of a query need no Spark."""
    names = [joined.name for joined in form.join.joined]
    dfs = {name: query.relations[form.stream(name)].df for name in names}
    rows = StructType([StructField(name, df.schema) for name, df in dfs.items()])
    ansi = is_ansi(next(iter(dfs.values())).sparkSession)
    return all(
        isinstance(predicate, SqlPredicate)
        and computed_values(predicate.text, rows, BooleanType(), ansi=ansi) is not None
        for step in form.residual
        for predicate in step.predicates
    )


def _why_not_its_rows(form: Form) -> str:
    """Return the reason why the conditions on inputs cannot be asked for others, too."""
    for name in form.before:
        for predicate in form.predicates(name):
            if not isinstance(predicate, SqlPredicate):
                return f"its condition {predicate.text!r} calls a Python function"
            if lots := names_among(NON_DETERMINISTIC, [predicate.text]):
                return f"its condition uses {lots[0]}(), which is not deterministic"
    return ""


def _why_not_its_columns(form: Form) -> str:
    """Return the reason why output columns or aggregates need a query of their own."""
    for step in form.after:
        if isinstance(step, ProjectStep) and step.calls:
            return "its output columns call a Python function"
        if isinstance(step, ProjectStep) and (lots := names_among(READ_BY, step.projections)):
            return f"its output columns use {lots[0]}, which depends on how rows are read"
        if isinstance(step, AggregateStep) and any(call.own is not None for call in step.calls):
            return "it has an aggregate of the user"
    return ""


def _together(forms: Mapping[str, Form]) -> SharedJoinStep:
    """Return the join of several queries."""
    first = next(iter(forms.values()))
    common = [*first.names.values()]
    inputs = {name: [_input(form, name) for form in forms.values()] for name in common}
    joined = tuple(
        JoinedInput(
            name,
            identifier(name),
            max((side.window for side in sides), key=lambda window: window.length),
            tuple(dict.fromkeys(column for side in sides for column in side.columns)),
        )
        for name, sides in inputs.items()
    )
    keys = [
        KeyClass({first.names[name]: texts for name, texts in key.members.items()})
        for key in first.join.keys
    ]
    marked = [
        name
        for name in common
        if len({form.conditions(form.own_name(name)) for form in forms.values()}) > 1
    ]
    return SharedJoinStep(
        joined,
        # Files of rows have their codes by the number of the class.
        tuple(sorted(keys, key=lambda key: sorted(key.members.items()))),
        tuple(requalified(equality, first.names) for equality in first.join.equalities),
        "istream",
        " ⋈ ".join(map(identifier, common)),
        members=tuple(form.member(name, marked) for name, form in forms.items()),
    )


def _input(form: Form, common: str) -> JoinedInput:
    own_name = form.own_name(common)
    return next(joined for joined in form.join.joined if joined.name == own_name)


def _inputs(forms: Mapping[str, Form], join: SharedJoinStep) -> Iterator[Step]:
    """Yield the steps over the inputs; conditions that all queries have are filters."""
    first = next(iter(forms.values()))
    for joined in join.joined:
        own_name = first.own_name(joined.name)
        yield ReadStep(first.stream(own_name), joined.input)
        if not join.wheres(joined.name) and (predicates := first.predicates(own_name)):
            yield FilterStep(joined.input, predicates)


def _family_of(query: Query) -> str:
    """Return a digest that those queries have in common which may share a join."""
    form = form_of(query)
    facts: list[Any] = [
        [(common, form.stream(name)) for name, common in form.names.items()],
        form.keys,
        sorted((name, repr(value)) for name, value in query.options.items()),
    ]
    for name, common in form.names.items():
        relation = query.relations[form.stream(name)]
        conditions = sorted(form.conditions(name))
        if _may_raise(relation, form.predicates(name)):
            # An error would count on rows of which others ask nothing.
            facts.append((common, conditions))
        if relation.key is not None:
            # Rows of one key are checked in the whole window.
            facts.append((common, relation.key, _input(form, common).window.text, conditions))
    return hashlib.blake2b(repr(facts).encode(), digest_size=4).hexdigest()


def _may_raise(relation: Relation, predicates: Sequence[Predicate]) -> bool:
    """Return whether a condition on rows may raise an error, as far as is known."""
    for predicate in predicates:
        if not isinstance(predicate, SqlPredicate) or predicate.can_raise is False:
            continue
        try:
            if predicate.can_raise or facts_of(relation.df, predicate.text).may_raise:
                return True
        except EddylineError:
            return True
    return False


def _read_again(text: str, like: Query) -> Form:
    """Return the form of a query by its text, over the streams of another one."""
    relations = like.relations
    read = read_query(
        text,
        {name: column_types(relation.df) for name, relation in relations.items()},
        tables=[name for name, relation in relations.items() if not relation.df.isStreaming],
        aggregates=[*AGGREGATES],
        times={name: relation.time for name, relation in relations.items()},
    )
    return Form(steps(read))


def _words(forms: Mapping[str, Form], join: SharedJoinStep) -> str:
    """Return who shares what."""
    windows = ", ".join(f"{joined.name} [{joined.window.shown}]" for joined in join.joined)
    return (
        f"{', '.join(forms)} share the exchange and the windows {windows}; each has windows within "
        f"these and pipelines of its own"
    )


class Fork(Trunk):
    """The results of a join, from which the operators of each query take theirs.

    Args:
        shape: a DataFrame with their columns, for analysis only.
        are_few: says whether the driver has answered the batch that is laid, so that its results
            are few and need not be kept.
        names: what queries call the inputs, by the number of the query: name by common name.
    """

    name = "results"

    def __init__(
        self,
        shape: DataFrame,
        names: Mapping[int, Mapping[str, str]],
        are_few: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__([shape])
        self.source = shape
        self.are_few = are_few
        self._names = names
        self._kept: DataFrame | None = None

    def prepare(self, df: DataFrame, batch: Batch) -> None:
        """Nobody looks at the results before the job."""

    def lay(self, df: DataFrame, batch: Batch) -> Laid:  # noqa: ARG002
        """Keep the results of a batch, so that all branches read what was computed once."""
        self._let_go()
        self.laid = df
        if not self.are_few():
            self.laid = self._kept = df.persist()
        return self.whole

    @property
    def whole(self) -> Laid:
        """The results of all queries."""
        return Laid(self.laid)

    def rows(self, number: int, df: DataFrame) -> DataFrame:  # type: ignore[override]
        """Return the results of one query, under the names that it gave the inputs."""
        columns = [
            F.col(quoted(common)).alias(name) for common, name in self._names[number].items()
        ]
        return df.where(F.col(MEMBER) == number).select(*columns)

    def learn(self, observed: Sequence[Observed], batch: Batch) -> list[JournalEntry]:  # noqa: ARG002
        """Let the results go: the batch is safe."""
        self._let_go()
        return []

    def _let_go(self) -> None:
        if self._kept is not None:
            self._kept.unpersist()
            self._kept = None


class Gather(Operator):
    """All results of a batch in one DataFrame.

    Args:
        fork: of the join.
        results: a DataFrame with the columns of the results of each query that aggregates, by
            number, for analysis only.
    """

    name = "places"

    def __init__(self, fork: Fork, results: Mapping[int, DataFrame]) -> None:
        self._fork = fork
        self._made = dict(results)
        self._structs = [name for name in fork.source.columns if name != MEMBER]

    @staticmethod
    def column(number: int) -> str:
        """Return the column of the results of a query that aggregates."""
        return f"{MEMBER}{number}"

    def lay(self, df: DataFrame, batch: Batch) -> Laid:  # noqa: ARG002
        """Return the results of all queries, each with its place."""
        together = self._together(self._fork.laid, self._fork.made)
        return Laid(together, is_local=self._fork.are_few())

    def shape(self, df: DataFrame) -> DataFrame:
        """Return a DataFrame with the columns of these."""
        return self._together(df, self._made)

    def _together(self, joined: DataFrame, results: Mapping[int, DataFrame]) -> DataFrame:
        kinds = joined.schema
        nulls = {name: F.lit(None).cast(kinds[name].dataType) for name in self._structs}
        none = {self.column(n): F.lit(None).cast(df.schema) for n, df in self._made.items()}
        is_own = ~F.col(MEMBER).isin(*self._made)
        structs: dict[str, Column] = {name: F.col(quoted(name)) for name in self._structs}
        parts = [
            joined.where(is_own).select(*_named(structs | none), F.array(MEMBER).alias(PLACES))
        ]
        for number, df in results.items():
            result = F.struct(*[F.col(quoted(name)) for name in df.columns])
            columns = nulls | none | {self.column(number): result}
            place = F.array(F.lit(number)).alias(PLACES)
            parts.append(df.select(*_named(columns), place))
        return reduce(lambda one, other: one.unionByName(other), parts)


def _named(columns: Mapping[str, Column]) -> list[Column]:
    return [column.alias(name) for name, column in columns.items()]
