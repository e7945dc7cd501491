"""Queries as values: inputs with windows, conditions by what they read, and output columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.query.aggregates import AggregateCall, OverCall
    from eddyline.query.predicates import FunctionPredicate, Predicate
    from eddyline.query.windows import Window

Emits = Literal["istream", "dstream", "rstream"]
"""Results as they come to be, as they cease to be, or all that hold at each instant of an input."""


JoinKind = Literal["inner", "left", "semi", "anti"]
"""Combinations; these, and rows of the first input without a partner; rows of the first input that
have a partner; rows of it that have none."""


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a query: a stream, a table or a subquery, under the name that it has there."""

    name: str
    """Unique in the query; the alias, or the stream's name where there is none."""
    stream: str
    """The stream or table by the name it was given; the same for both sides of a self-join. Of a
    subquery its name in the query."""
    window: Window
    predicates: tuple[Predicate, ...] = ()
    """The conjuncts that read this input alone, over its unqualified columns."""
    start: int = field(default=0, compare=False)
    """The offset of the stream's name in the query's text, for errors."""
    query: Query | None = None
    """The subquery, if it is one: what ``(SELECT …) AS x`` says; its text is the whole query's."""


@dataclass(frozen=True, slots=True)
class KeyClass:
    """Expressions that are equal in every result: equalities after their transitive closure."""

    members: Mapping[str, tuple[str, ...]]
    """By input, the SQL texts over its unqualified columns; at least two inputs."""

    def __str__(self) -> str:
        texts = [f"{name}.{text}" for name, of in self.members.items() for text in of]
        return " = ".join(texts)


@dataclass(frozen=True, slots=True)
class Grouping:
    """What a query of aggregates asks of groups of rows; of DISTINCT its output columns."""

    groups: tuple[tuple[str, str], ...]
    """Name and SQL text, over the unqualified columns of the input, of each expression of GROUP BY;
    none: all rows are one group."""
    calls: tuple[AggregateCall, ...]
    """The aggregates, equal ones once, in the order in which they are mentioned first."""
    having: str = ""
    """Condition on results; empty if there is none. Groups, calls and ``WINDOW`` are its columns,
    as of the output columns."""


@dataclass(frozen=True, slots=True)
class Over:
    """Aggregates of each row over rows of its partition up to it."""

    partition_by: tuple[str, ...]
    """SQL texts over the unqualified columns of the input; none: all rows are one partition."""
    calls: tuple[OverCall, ...]
    """In the order in which they are mentioned first."""
    time: str
    """The column by which rows go; see ``TimeColumn``."""


@dataclass(frozen=True, slots=True)
class TimeColumn:
    """A column of the input by which the query says that time goes: it has to be the event time."""

    name: str
    """By its name in the schema."""
    what: str
    """What says so: ``window(…)``, ``ORDER BY of OVER (…)``."""
    start: int = field(default=0, compare=False)
    """The offset of the name in the query's text, for errors."""


@dataclass(frozen=True, slots=True)
class Query:
    """A continuous query: a filter or aggregates over one input, or a join of several."""

    inputs: tuple[Input, ...]
    """In the order in which they were written; one or more. Of UNION ALL those of all its parts."""
    keys: tuple[KeyClass, ...]
    """In the order of the first equality of each."""
    equalities: tuple[str, ...]
    """The equalities as written, with every column qualified by its input (``s.k = t.k``)."""
    residual: tuple[str, ...]
    """The other conjuncts over several inputs, with every column qualified."""
    projections: tuple[str, ...]
    """Output columns. Of a join, each with its name and with every column qualified
    (``s.v AS v``); of a filter, as written but for the qualifiers, with ``*`` for all; of
    aggregates, each with its name and over the columns of ``grouping`` (``__agg0 AS n``)."""
    emits: Emits | None
    """None: nothing was said, of aggregates."""
    text: str
    """The query as it was written."""
    calls: Mapping[str, FunctionPredicate] = field(default_factory=dict, hash=False)
    """Of a filter, the functions that output columns call, by the columns that stand for them."""

    kind: JoinKind = "inner"
    conditions: tuple[str, ...] = ()
    """Of a join that is not inner: what makes two rows partners beside the equalities, with every
    column qualified."""

    grouping: Grouping | None = None
    """None: no aggregates."""
    overs: tuple[Over, ...] = ()
    """Of a filter, what is added to its rows before the output columns are computed."""
    times: tuple[TimeColumn, ...] = ()
    """In the order of the text."""

    parts: tuple[Query, ...] = ()
    """Queries of which UNION ALL has the rows of all, and else nothing; output columns go by
    position, and have the names of the first."""

    @property
    def is_join(self) -> bool:
        """Whether the query has several inputs that are joined."""
        return len(self.inputs) > 1 and not self.parts
