"""Whether output rows differ if and only if values do: then tasks see which results changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StringType
from sqlglot import TokenType

from eddyline.aggregates.comparing import can_compare
from eddyline.aggregates.functions import is_plain
from eddyline.query.query import WINDOW
from eddyline.spark.aggregates.travelling import plain_name
from eddyline.sql.parsing import tokens_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from eddyline.query.steps import AggregateStep
    from eddyline.spark.aggregates.lifting import LiftedCall


_OF_ONE_ROW = {"first", "first_value", "any_value", "last", "last_value", "min", "max"}
"""Aggregates that give of one row the argument as it is."""


def shows_changes(step: AggregateStep, calls: Sequence[LiftedCall]) -> bool:
    """Return whether the output columns are groups, parts of the window, and values as they are.

    All of the values, so that what changes shows; HAVING could hide it.
    """
    if step.having or not all(map(_is_told_apart, calls)):
        return False
    groups = {name.lower() for name, _ in step.groups}
    values = {each.call.column.lower() for each in calls}
    shown = [_shown(each, groups | values) for each in step.projections]
    return None not in shown and values <= {*shown}


def tells_time(step: AggregateStep, time: str) -> bool:
    """Return whether a window has the newest row of a partition alone, and a value is its time.

    Then no result equals the one before.
    """
    counts = step.window.counts
    if counts is None or counts.rows != 1:
        return False
    calls = [each for each in step.calls if not each.where and len(each.arguments) == 1]
    names = {plain_name(each.arguments[0]) for each in calls if each.function in _OF_ONE_ROW}
    return time.lower() in {each.lower() for each in names if each is not None}


def _is_told_apart(call: LiftedCall) -> bool:
    """Return whether a value is distinct for Spark if and only if what tasks return for it is."""
    kind = call.kind
    if not is_plain(call.final) or kind != call.partials[0].value_kind:
        return False
    if isinstance(kind, StringType) and kind.collation != "UTF8_BINARY":
        return False
    return can_compare(to_arrow_type(kind, timezone="UTC"))


def _shown(projection: str, known: Collection[str]) -> str | None:
    """Return the name of the group or value that an output column is; None if it is another.

    >>> _shown("(__agg0) AS n", {"__agg0"}), _shown("__agg0 + 1 AS n", {"__agg0"})
    ('__agg0', None)
    >>> _shown("'__agg0' AS n", {"__agg0"}) is None
    True
    >>> _shown("window.end AS until", ())
    'window'
    """
    tokens = tokens_of(projection)
    if any(each.token_type == TokenType.STRING for each in tokens):
        return None  # its text may be that of a name
    words = [each.text.lower() for each in tokens if each.text not in "()"]
    if len(words) > 1 and words[-2] == "as":
        words = words[:-2]
    if words[:1] == [WINDOW] and words[1:] in ([], [".", "start"], [".", "end"]):
        return WINDOW
    return words[0] if len(words) == 1 and words[0] in known else None
