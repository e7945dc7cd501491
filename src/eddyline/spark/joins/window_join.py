"""Windowed join of DataFrames without SQL.

All inputs go through one shuffle, and one operator joins them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from eddyline.errors import NotSupportedError, OptionError, QueryError, told_in_short
from eddyline.query.cql import read_window
from eddyline.query.predicates import named_functions
from eddyline.query.select.reader import read_query
from eddyline.query.steps import steps
from eddyline.registry import checked_text, unknown
from eddyline.spark.analysis import column_types
from eddyline.spark.query import Query
from eddyline.spark.relation import Relation, checked_frame
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from eddyline.query.query import JoinKind

_HOW: Mapping[JoinKind, str] = {"inner": "INNER", "left": "LEFT", "semi": "SEMI", "anti": "ANTI"}

RENAME = "el.window_join(…, name='…')"
"""Advice on giving a join another name."""


@told_in_short
def window_join(
    inputs: Mapping[str, DataFrame],
    *,
    on: str,
    time: Mapping[str, str],
    windows: Mapping[str, str] | None = None,
    select: str | None = None,
    lateness: str | Mapping[str, str] | None = None,
    how: JoinKind = "inner",
    name: str | None = None,
    functions: Mapping[str, Callable[..., Any]] | None = None,
    **options: Any,
) -> Query:
    """Join DataFrames over windows of event time, in one shuffle.

    Over streams, rows of a join with a window of N rows wait until no earlier row of that stream
    can come, which is when a row that is later by more than the lateness has come; results that
    are emitted when they end (DSTREAM), or at each instant (RSTREAM), wait so for all streams. A
    stream that stops therefore holds such a join up. It runs in one task.

    Args:
        inputs: streams and static tables by name, in the order in which results are wanted; two or
            more. All streams are streaming DataFrames, or all are batch ones.
        on: what must be true of a result: equalities between inputs (``s.k = t.k``), with which
            every input hangs together, and any other condition, joined by AND.
        time: the event-time column of each stream; an input without one is a static table, whose
            rows were always there.
        windows: the window of each stream, such as ``RANGE 10 SECONDS``, ``ROWS 1000``,
            ``PARTITION BY k ROWS 10``, ``NOW``. If omitted, the window that follows from bounds of
            event times in ``on`` (``t.ts <= s.ts + INTERVAL 5 MINUTES``); else all rows so far.
        select: the output columns (``s.k, t.v AS w``); if omitted, all columns of all inputs, and
            where several inputs have one of a name, ``k`` of ``s`` is called ``s_k``.
        lateness: how much earlier than the latest row of its stream a row may be (``1 minute``);
            one for all streams, or one for each. Later rows are counted and kept apart.
        how: ``inner``; of two inputs also ``left`` (combinations, and rows of the first input
            without a partner, with NULLs), ``semi`` (rows of the first that have a partner, each
            once) or ``anti`` (those that have none). Over streams the last three wait until no
            partner can come any more; if the second is one, the join runs in one task.
        name: of the query.
        functions: Python predicates by the name by which ``on`` calls them, as for ``RuleSet``,
            each on columns of one input.
        **options: how the join is run; see ``eddyline.options.JoinOptions``.

    Raises:
        QueryError: a name, a column or a window that does not fit.
        NotSupportedError: a join that eddyline does not run, with its position.
        OptionError: an unknown option, or a value out of range.

    Example:
        >>> pairs = el.window_join(  # doctest: +SKIP
        ...     {"s": s_df, "t": t_df}, on="s.k = t.k", time={"s": "ts", "t": "ts"},
        ...     windows={"s": "RANGE 10 SECONDS", "t": "RANGE 5 SECONDS"}, select="s.k, t.w")
        >>> pairs.to_df().show()  # doctest: +SKIP
    """
    windows = windows or {}
    if select is not None:
        checked_text("select of a join", select)
    checked_text("condition of a join", on)
    _check_given(inputs, time=time, windows=windows, lateness=lateness)
    parts = []
    for input_name in inputs:
        window = windows.get(input_name)
        if window is not None:
            read_window(
                checked_text(f"window of {input_name!r}", window), f"the window of {input_name!r}"
            )
        parts.append(
            quoted(input_name) + ("" if window is None else f" [{window.strip().strip('[]')}]")
        )
    if not isinstance(how, str) or how not in _HOW:
        raise OptionError(unknown("kind of join", how, list(_HOW)), how=how)
    comma, where = (", ", "WHERE") if how == "inner" else (f" {_HOW[how]} JOIN ", "ON")
    text = f"SELECT {select or '*'} FROM {comma.join(parts)} {where} {on}"
    allowed = dict.fromkeys(time, lateness) if isinstance(lateness, str) else dict(lateness or {})
    chosen = "_".join(inputs) if name is None else checked_text("name of a join", name)
    relations = {
        input_name: Relation(df, time.get(input_name), allowed.get(input_name))
        for input_name, df in inputs.items()
    }
    columns = {input_name: column_types(df) for input_name, df in inputs.items()}
    tables = [input_name for input_name in inputs if input_name not in time]
    called = named_functions(functions or {})
    query = read_query(text, columns, called, tables=tables, times=time)
    if query.grouping is not None:
        msg = "el.window_join(…) returns the rows of a join; engine.query(…) aggregates them"
        raise NotSupportedError(msg, query=text)
    if not query.is_join:
        msg = "a join needs two streams or more"
        raise QueryError(msg, query=text)
    return Query(chosen, text, steps(query), relations, options, rename=RENAME)


def _check_given(inputs: Any, **by_input: Any) -> None:
    """Check the arguments of ``window_join`` that are given input by input.

    Raises:
        QueryError: there is nothing to join, or one is given for an input that is not there.
        OptionError: an argument is of another kind.
    """
    if not isinstance(inputs, Mapping) or len(inputs) < 2:
        msg = "a join needs two DataFrames or more by name: {'s': s_df, 't': t_df}"
        raise QueryError(msg)
    for name, df in inputs.items():
        checked_text("name of an input", name)
        checked_frame(f"input {name!r}", df)
    for what, argument in by_input.items():
        is_one = what == "lateness" and (argument is None or isinstance(argument, str))
        if not is_one and not isinstance(argument, Mapping):
            example = f"{what}={{{next(iter(inputs))!r}: …}}"
            msg = f"{what} is given for each input by its name, such as {example}, got {argument!r}"
            raise OptionError(msg, **{what: argument})
        for name in argument if isinstance(argument, Mapping) else ():
            if name not in inputs:
                msg = f"{what}: {unknown('input', name, list(inputs))}"
                raise QueryError(msg, name=name)
