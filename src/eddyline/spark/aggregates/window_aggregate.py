"""Windowed aggregates of a DataFrame without SQL.

The DataFrame is a batch or a stream.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from eddyline.aggregates.functions import AGGREGATES
from eddyline.aggregates.plan import PLACE
from eddyline.errors import NotSupportedError, OptionError, QueryError, told_in_short
from eddyline.query.cql import read_window
from eddyline.query.query import LONGEST, SlideWindow
from eddyline.query.select.reader import read_query
from eddyline.query.select.statement import identifier
from eddyline.query.steps import (
    AggregateStep,
    ProjectStep,
    SharedAggregateStep,
    Step,
    steps,
    with_own,
)
from eddyline.registry import checked_text
from eddyline.spark.aggregates.shared import members_of
from eddyline.spark.analysis import column_types
from eddyline.spark.query import Query
from eddyline.spark.relation import checked_frame, checked_relation
from eddyline.sql.rendering import string_literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from eddyline.aggregates.functions import Aggregate

RENAME = "el.window_aggregate(…, name='…')"
"""Advice on giving the query another name."""

INPUT = "rows"
"""The name of the DataFrame in the query."""

OF_ALL = "all windows"
"""The relation of the results of several windows."""

_QUOTED = re.compile(r"`((?:[^`]|``)+)`")


@told_in_short
def window_aggregate(
    df: DataFrame,
    *,
    windows: str | Mapping[str, str],
    aggregates: Mapping[str, str],
    time: str,
    by: Sequence[str] | Mapping[str, str] = (),
    where: str | None = None,
    having: str | None = None,
    lateness: str | None = None,
    name: str = "window_aggregate",
    functions: Mapping[str, Aggregate] | None = None,
    **options: Any,
) -> Query:
    """Aggregate a DataFrame by groups over windows of event time.

    Args:
        df: a streaming DataFrame, or a batch one.
        windows: a window as queries have it, such as ``RANGE 10 MINUTES SLIDE 1 MINUTE`` or
            ``SESSION 5 MINUTES``; or several that slide, by names, in one pass: results then say in
            ``window_name`` of which they are.
        aggregates: SQL of each output column, such as ``{"mean": "avg(v)"}``.
        time: the event-time column.
        by: columns or SQL expressions that rows are grouped by, or these by names.
        where: condition on rows.
        having: condition on results, over groups, aggregates and ``window``.
        lateness: how much earlier than the latest row before it a row may be (``1 minute``).
        name: of the query.
        functions: aggregates of the user by name, for ``aggregates``.
        **options: how it is run; see ``eddyline.options.AggregateOptions``.

    Returns:
        A query: ``.start(…)`` of a stream, ``.to_df()`` of a batch DataFrame. Its columns are the
        groups, ``window`` (a struct of ``start`` and ``end``) and the aggregates.

    Raises:
        QueryError: a name, a column or a window that does not fit.
        NotSupportedError: several windows that are not all slides of a length.
        OptionError: an unknown option, or an argument of another kind.

    Example:
        >>> rates = el.window_aggregate(  # doctest: +SKIP
        ...     df, by=["k"], time="ts", windows={"1m": "RANGE 1 MINUTE SLIDE 10 SECONDS",
        ...     "1h": "RANGE 1 HOUR SLIDE 1 MINUTE"}, aggregates={"n": "count(*)", "s": "sum(v)"})
        >>> rates.start("parquet", path="out/", checkpoint="ckpt/")  # doctest: +SKIP
    """
    frame = checked_frame("the input of window_aggregate", df)
    chosen = _named("aggregates", aggregates)
    groups = _named(
        "by", by if isinstance(by, Mapping) else {_plain(column): column for column in by}
    )
    users_functions = {
        function_name.lower(): function for function_name, function in (functions or {}).items()
    }
    texts = _texts(windows, groups, chosen, where, having)
    aggregate_names = [*AGGREGATES, *users_functions]
    columns = {INPUT: column_types(frame)}
    read = {
        window_name: read_query(text, columns, aggregates=aggregate_names)
        for window_name, text in texts.items()
    }
    steps_by_window = {
        window_name: with_own(steps(query), users_functions) for window_name, query in read.items()
    }
    relation = checked_relation("the input of window_aggregate", frame, time, lateness)
    together = (
        next(iter(steps_by_window.values()))
        if isinstance(windows, str)
        else _together(steps_by_window)
    )
    text = "; ".join(texts.values())
    return Query(name, text, together, {INPUT: relation}, options, rename=RENAME)


def _texts(
    windows: str | Mapping[str, str],
    groups: Mapping[str, str],
    aggregates: Mapping[str, str],
    where: str | None,
    having: str | None,
) -> dict[str, str]:
    """Return a SELECT for each window, by its name."""
    chosen = {"": windows} if isinstance(windows, str) else _named("windows", windows)
    if not chosen:
        msg = "window_aggregate needs a window, such as 'RANGE 10 MINUTES SLIDE 1 MINUTE'"
        raise OptionError(msg)
    outputs = [f"{text} AS {identifier(output)}" for output, text in groups.items()]
    outputs += [
        "window",
        *(f"{text} AS {identifier(output)}" for output, text in aggregates.items()),
    ]
    selects = {}
    for window_name, window in chosen.items():
        read_window(
            checked_text("window", window),
            "the window" + (f" {window_name!r}" if window_name else ""),
        )
        parts = [f"SELECT {', '.join(outputs)} FROM {INPUT} [{window.strip().strip('[]')}]"]
        parts += [f"WHERE {checked_text('where', where)}"] if where is not None else []
        parts += [f"GROUP BY {', '.join(groups.values())}"] if groups else []
        parts += [f"HAVING {checked_text('having', having)}"] if having is not None else []
        selects[window_name] = "\n".join(parts)
    return selects


def _together(steps_by_window: Mapping[str, Sequence[Step]]) -> tuple[Step, ...]:
    """Return the steps of several windows as one: rows become cells once, for all of them."""
    members = []
    for window_name, window_steps in steps_by_window.items():
        last = window_steps[-1]
        assert isinstance(last, AggregateStep)
        if not isinstance(last.window, SlideWindow) or last.window.length == LONGEST:
            msg = (
                f"several windows of one call slide over a length (RANGE … SLIDE …); "
                f"{window_name!r} is [{last.window.text}], which is a call of its own"
            )
            raise NotSupportedError(msg, window=window_name)
        members.append((last, ""))
    *before, last = next(iter(steps_by_window.values()))
    assert isinstance(last, AggregateStep)
    together = SharedAggregateStep(last.input, tuple(members), OF_ALL)
    _, shared = members_of(together)
    names = ", ".join(map(string_literal, steps_by_window))
    columns = (f"element_at(array({names}), {PLACE} + 1) AS window_name", *shared[0].projections)
    return (*before, together, ProjectStep(OF_ALL, columns))


def _named(what: str, texts: Any) -> dict[str, str]:
    """Return texts by names.

    Raises:
        OptionError: they are something else.
    """
    if not isinstance(texts, Mapping):
        msg = f"{what} are given by name, such as {{'total': 'sum(v)'}}, got {texts!r:.60}"
        raise OptionError(msg, **{what: texts})
    return {
        checked_text(f"name in {what}", name): checked_text(f"{what} {name!r}", text)
        for name, text in texts.items()
    }


def _plain(text: str) -> str:
    """Return the name of a group that has none: its column, or its text."""
    checked_text("by", text)
    bare = text.strip()
    if quoted_name := _QUOTED.fullmatch(bare):
        return quoted_name[1].replace("``", "`")
    if not bare:
        msg = "window_aggregate: an expression of by is empty"
        raise QueryError(msg)
    return bare
