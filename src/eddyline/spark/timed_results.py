"""Event time of the results of a query that are a stream of others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eddyline.errors import QueryError
from eddyline.query.steps import AggregateStep, JoinStep, ProjectStep, UnionStep, carries

if TYPE_CHECKING:
    from eddyline.spark.query import Query


def timed(name: str, made: Query, time: str, lateness: str | None) -> Query:
    """Return a query whose results have an event time, to be a stream.

    Raises:
        QueryError: the column is no event time of theirs, or they have another lateness.
    """
    of = [each for each in made.relations.values() if each.df.isStreaming]
    is_own = {each.time for each in of} == {time} and carries(made.steps, time)
    *before, last = made.steps
    if lateness is not None and not (is_own and {each.lateness for each in of} == {lateness}):
        msg = (
            f"stream {name!r}: results of a query have the lateness of the streams that it reads; "
            f"leave out lateness={lateness!r}, or give it to these"
        )
        raise QueryError(msg, name=name, lateness=lateness)
    is_end = isinstance(last, AggregateStep) and last.end == time
    if is_own or is_end or (isinstance(last, UnionStep) and made.result_time == time):
        return made
    if isinstance(last, ProjectStep) and any(isinstance(each, JoinStep) for each in before):
        return made.with_steps(*before, replace(last, time=time))
    msg = (
        f"stream {name!r}: {time!r} is not the event time of the results of {made.name!r}, which "
        f"is that of the stream that it reads, unchanged; of aggregates window.end; and of joins "
        f"the event time of one of their streams, or greatest(…) of them"
    )
    raise QueryError(msg, name=name, time=time)
