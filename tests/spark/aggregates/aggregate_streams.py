"""Streams for tests of aggregates: the rows of each batch in a file of their own."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hypothesis import reject

import eddyline as el
from eddyline.errors import NotSupportedError
from tests.oracles import aggregates
from tests.oracles.aggregate_strategies import as_found, table_of
from tests.oracles.aggregates import Over
from tests.spark.joins.join_streams import stream_of, write_batch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.oracles.aggregate_strategies import Case

TIMEOUT_S = 240


@contextmanager
def settings(spark: SparkSession, **given: Any) -> Iterator[None]:
    """Set the zone of a session (``zone``), or its shuffle partitions, for a while."""
    names = {"zone": "spark.sql.session.timeZone", "partitions": "spark.sql.shuffle.partitions"}
    before = {names[name]: spark.conf.get(names[name]) for name in given}
    for name, value in given.items():
        spark.conf.set(names[name], str(value))
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def write_case(case: Case, folder: Path, first: int = 0, past: int | None = None) -> None:
    """Write the batches of a case, or some of them."""
    for number, rows in list(enumerate(case.batches))[first:past]:
        write_batch(folder, "s", number, table_of(rows))


def query_of(spark: SparkSession, case: Case, folder: Path, **options: Any) -> Any:
    """Return the query of a case over the files that are there and to come."""
    engine = el.Engine(spark)
    stream = stream_of(spark, folder, "s")
    engine.stream("s", stream, time="ts", lateness=f"{case.lateness} microseconds")
    return query_in(engine, case, **options)


def query_in(engine: el.Engine, case: Case, **options: Any) -> Any:
    """Return the query of a case over the stream ``s`` of an engine.

    Raises:
        UnsatisfiedAssumption: it is one of those that are said to be not supported yet.
    """
    try:
        return engine.query(case.text, name="drawn", **options)
    except NotSupportedError as error:
        if "not supported yet" in error.message:
            reject()
        raise


def ended(query: Any, **where: Any) -> Any:
    """Return the run of a query over all that is there."""
    run = query.start(trigger="available_now", **where)
    assert run.await_termination(TIMEOUT_S)
    return run


def wanted(case: Case, *, whole: bool = False) -> list[tuple[Any, ...]]:
    """Return the results of a case by the reference."""
    if isinstance(case.of, Over):
        return aggregates.over(case.batches, case.lateness, case.of, whole=whole)
    given = (case.lateness, case.of, case.window, case.emits)
    return aggregates.results(case.batches, *given, whole=whole)


def found(case: Case, table: Any) -> list[tuple[Any, ...]]:
    """Return the results of a run as the reference has them."""
    return as_found(table, case.of.output)


def has_answers(case: Case) -> bool:
    """Return whether there is something to compare."""
    return len(wanted(case)) > 1
