"""Aggregates of a query as values: the calls, and the frames of those that stand before OVER."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eddyline.query.windows import UNBOUNDED

if TYPE_CHECKING:
    from eddyline.query.windows import Window

WINDOW = "window"
"""The column of an aggregate's results that says of which instants they are: a struct of ``start``
and ``end``, as Spark's own."""

GROUP, CALL = "__group", "__agg"
"""What the columns of groups and calls are named, with a number behind it."""


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
    filled = [each for each in conditions if each]
    return " AND ".join(f"({each}\n)" for each in filled) if len(filled) > 1 else "".join(filled)
