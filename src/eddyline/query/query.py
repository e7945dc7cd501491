"""Queries as values: inputs, windows, conditions, aggregates, output columns.

Windows over streams answer how long rows stay. A new kind of window is one class here, and a line
of grammar in ``cql``. Aggregates are calls, and the frames of those that stand before OVER.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from eddyline.errors import OptionError
from eddyline.query.spans import UNITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from eddyline.query.predicates import FunctionPredicate, Predicate

# -- windows ---------------------------------------------------------------------------------------

LONGEST = 2**63 - 1
"""µs of a range without an end: what an event time in 64 bits can hold."""

MAX_SPAN = 3_652_500 * UNITS["day"]
"""µs of the longest time that an option or a query may have: no sum of such times overflows."""

MAX_ROWS = 10**15
"""Rows of the largest window of rows."""


class Window:
    """The rows of a stream that can be joined at an instant of event time.

    A subclass overrides what differs from a window that keeps all rows.
    """

    __slots__ = ()

    @property
    def text(self) -> str:
        """The window as a query would write it."""
        raise NotImplementedError

    @property
    def shown(self) -> str:
        """The window as a query would write it, and its origin if the query states none."""
        return self.text

    @property
    def length(self) -> int:
        """The time after which a row leaves (µs); ``LONGEST`` if time alone takes none out."""
        return LONGEST

    @property
    def counts(self) -> RowsWindow | None:
        """The number of later rows after which a row leaves, if rows are counted.

        Such rows are needed in the order of event time, whether they can join or not.
        """
        return None

    def ends(self, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the last instants (µs) of rows from their event times (µs); counts are ignored."""
        if self.length == LONGEST:
            return np.full(starts.size, LONGEST)
        # Where the end is beyond all instants, the row stays.
        return np.where(starts > LONGEST - self.length, LONGEST, starts + self.length)


@dataclass(frozen=True, slots=True)
class RangeWindow(Window):
    """``[RANGE 10 SECONDS]``: the rows whose event time is at most so long ago, ends included.

    ``[NOW]`` is a range of length 0: the rows of the same instant.
    """

    length: int = field()
    """µs, 0 or more."""
    is_derived: bool = field(default=False, compare=False, repr=False)
    """Whether it follows from the condition of a join, and the query states no window."""

    @property
    def text(self) -> str:
        """The window in the largest unit up to days.

        >>> RangeWindow(90_000_000).text, RangeWindow(0).text
        ('RANGE 90 SECONDS', 'NOW')
        """
        return f"RANGE {span_text(self.length)}" if self.length else "NOW"

    @property
    def shown(self) -> str:
        """The window as a query would write it, and its origin if the query states none.

        >>> RangeWindow(90_000_000, is_derived=True).shown
        'RANGE 90 SECONDS, from the condition'
        """
        return f"{self.text}, from the condition" if self.is_derived else self.text


@dataclass(frozen=True, slots=True)
class RowsWindow(Window):
    """``[ROWS 1000]``, ``[PARTITION BY k ROWS 10]``: so many latest rows of the stream, or a group.

    The count runs over all rows of the stream, before its own predicates. The order is that of
    event time; among equal times that of the rows' contents, so it does not depend on arrival.
    """

    rows: int
    """1 or more; ``LONGEST`` of a frame that has all rows so far, but not those of the own instant
    that come behind."""
    partition_by: tuple[str, ...] = ()
    """Columns of the stream, by name."""

    @property
    def text(self) -> str:
        """The window as a query would write it.

        >>> RowsWindow(10, ("k",)).text
        'PARTITION BY k ROWS 10'
        """
        by = f"PARTITION BY {', '.join(self.partition_by)} " if self.partition_by else ""
        return f"{by}ROWS {'UNBOUNDED' if self.rows == LONGEST else self.rows}"

    @property
    def counts(self) -> RowsWindow | None:
        """The window itself."""
        return self


@dataclass(frozen=True, slots=True)
class UnboundedWindow(Window):
    """``[UNBOUNDED]``: all rows so far; what a stream without a window has."""

    @property
    def text(self) -> str:
        """The window as a query would write it."""
        return "UNBOUNDED"


UNBOUNDED = UnboundedWindow()
NOW = RangeWindow(0)


@dataclass(frozen=True, slots=True)
class StayWindow(Window):
    """Rows each of which stays until the first of some windows ends, as the rows of a join do."""

    inputs: tuple[tuple[str, Window], ...]
    """Of each window: the column with the event time at which it begins, and the window. Rows of
    set operations have NULL for windows that are not their own."""
    length: int = field()
    """The time that no row stays longer (µs)."""
    written: str = field(default="", compare=False, repr=False)
    """The windows that people are told of, where rows say in another way how long they stay."""

    @property
    def text(self) -> str:
        """The windows of the inputs; no query can write them behind one stream.

        >>> StayWindow((("time_1", RangeWindow(1_000_000)), ("time_2", RangeWindow(0))), 0).text
        'RANGE 1 SECOND, NOW'
        """
        return self.written or ", ".join(window.text for _, window in self.inputs)


@dataclass(frozen=True, slots=True)
class SlideWindow(Window):
    """``[RANGE 10 MINUTES SLIDE 1 MINUTE]``: a window that ends at every slide.

    The window that ends at an instant has the rows of ``[end - length, end)``, as Spark's
    ``window(ts, length, slide)``; where length and slide are equal, windows tumble. Where the slide
    is longer, there are gaps, and the rows in them are in no window.
    """

    length: int = field()
    """µs, 1 or more; ``LONGEST`` of ``[UNBOUNDED SLIDE …]``: all rows before the end."""
    slide: int = field()
    """µs, 1 or more."""
    origin: int = 0
    """An instant at which a window ends (µs since 1970, in UTC)."""

    @property
    def text(self) -> str:
        """The window in the largest units.

        >>> SlideWindow(600_000_000, 60_000_000).text
        'RANGE 10 MINUTES SLIDE 1 MINUTE'
        """
        length = "UNBOUNDED" if self.length == LONGEST else f"RANGE {span_text(self.length)}"
        origin = f" ORIGIN {span_text(self.origin)}" if self.origin else ""
        return f"{length} SLIDE {span_text(self.slide)}{origin}"


@dataclass(frozen=True, slots=True)
class SessionWindow(Window):
    """``[SESSION 5 MINUTES]``: rows of a group that follow each other by no more than a gap.

    As Spark's ``session_window``, that of rows from ``first`` to ``last`` is [first, last + gap).
    """

    gap: int
    """µs, 1 or more."""

    @property
    def text(self) -> str:
        """The window as a query would write it.

        >>> SessionWindow(300_000_000).text
        'SESSION 5 MINUTES'
        """
        return f"SESSION {span_text(self.gap)}"


def check_span(what: str, micros: int | None, **facts: Any) -> None:
    """Refuse a time (µs) that is longer than ``MAX_SPAN``; None is no time.

    Raises:
        OptionError: it is too long; the error has the facts.
    """
    if micros is not None and micros > MAX_SPAN:
        raise OptionError(too_long(what), **facts)


def too_long(what: str) -> str:
    """Return the reason why a time is refused that is longer than ``MAX_SPAN``."""
    return f"{what} is too long; the longest time is {span_text(MAX_SPAN)} (10,000 years)"


def span_text(micros: int) -> str:
    """Return a time span in the largest unit up to days.

    >>> span_text(90_000_000)
    '90 SECONDS'
    """
    unit = [
        candidate for candidate in UNITS if candidate != "week" and micros % UNITS[candidate] == 0
    ][-1]
    number = micros // UNITS[unit]
    return f"{number} {unit.upper()}{'' if number == 1 else 'S'}"


# -- queries and aggregates ------------------------------------------------------------------------

Emits = Literal["istream", "dstream", "rstream"]
"""Results as they come to be, as they cease to be, or all that hold at each instant of an input."""


JoinKind = Literal["inner", "left", "semi", "anti"]
"""Combinations of rows; these, and rows of the first input without a partner; rows of the first
input with a partner; rows of the first input without one."""


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a query: a stream, a table or a subquery, under the name that it has there."""

    name: str
    """Unique in the query; the alias, or the stream's name where there is none."""
    stream: str
    """The stream or table by the name it was given; the same for both sides of a self-join. For a
    subquery, its name in the query."""
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
        texts = [
            f"{name}.{text}" for name, expressions in self.members.items() for text in expressions
        ]
        return " = ".join(texts)


@dataclass(frozen=True, slots=True)
class Grouping:
    """Groups, aggregates and HAVING of a query; DISTINCT groups by its output columns."""

    groups: tuple[tuple[str, str], ...]
    """Name and SQL text, over the unqualified columns of the input, of each expression of GROUP BY;
    none: all rows are one group."""
    calls: tuple[AggregateCall, ...]
    """The aggregates, equal ones once, in the order in which they are mentioned first."""
    having: str = ""
    """Condition on results; empty if there is none. Its columns, and those of the output columns,
    are groups, calls and ``WINDOW``."""
    copies: str = ""
    """SQL over the same columns of how many equal results a group has; empty: one."""


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
    """A column that the query takes for the event time; it has to be the event time."""

    name: str
    """By its name in the schema."""
    what: str
    """The words that take it: ``window(…)``, ``ORDER BY of OVER (…)``."""
    start: int = field(default=0, compare=False)
    """The offset of the name in the query's text, for errors."""


@dataclass(frozen=True, slots=True)
class Query:
    """A continuous query: a filter or aggregates over one input, or a join of several."""

    inputs: tuple[Input, ...]
    """In the written order; one or more. A RIGHT JOIN has its second input first. UNION ALL has the
    inputs of all its parts."""
    keys: tuple[KeyClass, ...]
    """In the order of the first equality of each."""
    equalities: tuple[str, ...]
    """The equalities as written, with every column qualified by its input (``s.k = t.k``)."""
    residual: tuple[str, ...]
    """The other conjuncts over several inputs, with every column qualified."""
    projections: tuple[str, ...]
    """Output columns. A join has each with its name and with qualified columns (``s.v AS v``). A
    filter has them as written, without qualifiers, and ``*`` for all. Aggregates have each with its
    name and over the columns of ``grouping`` (``__agg0 AS n``)."""
    emits: Emits | None
    """None: aggregates of which the text says nothing."""
    text: str
    """The query as it was written."""
    calls: Mapping[str, FunctionPredicate] = field(default_factory=dict, hash=False)
    """The functions that output columns of a filter call, by the columns that stand for them."""

    kind: JoinKind = "inner"
    conditions: tuple[str, ...] = ()
    """For a join that is not inner: the conditions beside the equalities that make two rows
    partners, with every column qualified."""

    grouping: Grouping | None = None
    """None: no aggregates."""
    overs: tuple[Over, ...] = ()
    """Columns that are added to the rows of a filter before its output columns are computed."""
    times: tuple[TimeColumn, ...] = ()
    """In the order of the text."""

    time: str | None = None
    """The output column that is the event time of a join's results, where aggregates read them."""

    parts: tuple[Query, ...] = ()
    """Queries of which UNION ALL has the rows of all, and else nothing; output columns go by
    position, and have the names of the first."""

    @property
    def is_join(self) -> bool:
        """Whether the query has several inputs that are joined."""
        return len(self.inputs) > 1 and not self.parts


WINDOW = "window"
"""The column of an aggregate's results that says of which instants they are: a struct of ``start``
and ``end``, as Spark's own."""

GROUP, CALL = "__group", "__agg"
"""What the columns of groups and calls are named, with a number behind it."""

PLACEHOLDER = re.compile(rf"\b(?:{GROUP}|{CALL})\d+\b", re.IGNORECASE)
"""The name of such a column in a text."""


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One call of an aggregate function, such as ``SUM(v) FILTER (WHERE v > 0)``."""

    function: str
    """In lower case, by the name that the table of functions has it under."""
    arguments: tuple[str, ...]
    """SQL texts over the columns of the input, constants included; none of ``COUNT(*)``."""
    column: str
    """The column of the results that has its value."""
    is_distinct: bool = False
    """Whether equal arguments count once."""
    where: str = ""
    """Condition of FILTER over the columns of the input; empty if there is none."""
    own: Any = field(default=None, repr=False, compare=False)
    """The user's aggregate of that name; None of those of the table."""

    @property
    def text(self) -> str:
        """The call as a query would write it.

        >>> AggregateCall("count", ("v",), "n", is_distinct=True, where="v > 0").text
        'COUNT(DISTINCT v) FILTER (WHERE v > 0)'
        """
        what = ", ".join(self.arguments) or "*"
        distinct = "DISTINCT " if self.is_distinct else ""
        where = f" FILTER (WHERE {self.where})" if self.where else ""
        return f"{self.function.upper()}({distinct}{what}){where}"


# -- products --------------------------------------------------------------------------------------

PRODUCT = "__product"
"""The name of the struct of a result that says what it stands for."""

N, LAST = "n", "last"
"""Its fields: how many combinations there are, and the last instant at which they are there."""


@dataclass(frozen=True, slots=True)
class SummedColumn:
    """A number that products have of one column."""

    field: str
    """The field of ``PRODUCT``."""
    input: str
    column: str
    is_count: bool
    """Whether values are counted that are not NULL; else they are added up."""


@dataclass(frozen=True, slots=True)
class Products:
    """What products say beside their number and their last instant."""

    times: Mapping[str, str]
    """By input, the column of its event time. In results it is the first instant."""
    grouped: str
    """The input whose rows are told apart by columns; empty if no column but the key does."""
    groups: tuple[str, ...]
    """These columns."""
    sums: tuple[SummedColumn, ...]


@dataclass(frozen=True, slots=True)
class OverCall:
    """An aggregate of each row over rows before it: ``SUM(v) OVER (… RANGE BETWEEN … )``."""

    call: AggregateCall
    window: Window = UNBOUNDED
    """The rows: RANGE of the event time, so that rows of the same instant count, too; so many last
    ROWS, the own one included; or all so far."""


def both(*conditions: str) -> str:
    """Return the conjunction of conditions as SQL, some of which may be empty.

    >>> both("", "v > 0")
    'v > 0'
    """
    filled = [condition for condition in conditions if condition]
    return (
        " AND ".join(f"({condition}\n)" for condition in filled)
        if len(filled) > 1
        else "".join(filled)
    )
