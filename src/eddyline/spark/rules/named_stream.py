"""Rules over a stream that an engine knows by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from eddyline.errors import OptionError, QueryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from eddyline.spark.query import Query


class RuleQueries(Protocol):
    """An engine that makes queries of rules over its streams; ``el.Engine`` is one."""

    spark: SparkSession
    queries: dict[str, Query]

    @property
    def rules(self) -> Callable[..., Query]:
        """See ``Engine.rules``."""


def engine_of(
    stream: str, engine: RuleQueries | None, time: str | None, lateness: str | None
) -> RuleQueries:
    """Return the engine of a named stream, whose time and lateness are its own."""
    if engine is None:
        msg = (
            f"rules start on a streaming DataFrame, or on the stream of an engine by its name; say "
            f"which engine knows {stream!r}: start({stream!r}, …, engine=engine)"
        )
        raise QueryError(msg, stream=stream)
    if not hasattr(engine, "queries"):
        msg = f"engine= of a stream by its name is the el.Engine that knows it, got {engine!r:.60}"
        raise OptionError(msg, stream=stream)
    given = {"time": time, "lateness": lateness}
    if said := ", ".join(f"{name}={each!r}" for name, each in given.items() if each is not None):
        msg = (
            f"stream {stream!r} has the time and lateness that engine.stream gave it; leave out "
            f"{said}"
        )
        raise OptionError(msg, stream=stream)
    return engine
