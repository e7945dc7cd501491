"""The call of segments that writes a page with pictures of a few entities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from eddyline.errors import NotSupportedError
from eddyline.models import graph
from eddyline.models.kept import CODE
from eddyline.models.pictures import pictures
from eddyline.models.revisions import BOUNDS
from eddyline.models.rows import micros_of
from eddyline.models.sketch import Sketch
from eddyline.models.steps import TIME
from eddyline.models.streaming import StreamInput, StreamPlan
from eddyline.options import in_range
from eddyline.report.html import check_packages, write_report
from eddyline.report.models import drawn
from eddyline.report.sections import RunView, Section, Text
from eddyline.spark import event_time
from eddyline.spark.models.graphs import precise, told
from eddyline.spark.models.laying import Source, as_modelled, read_columns
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from eddyline.spark.models.graphs import Graph


MOST_TIMES = 20
"""Segments and results that are drawn for each row, at most."""
_RANK = "__rank"


@dataclass(frozen=True, slots=True)
class _Options:
    """How much is drawn."""

    entities: int
    rows: int

    def __post_init__(self) -> None:
        in_range(self, "entities", 1, 20)
        in_range(self, "rows", 1, 10_000)


class WithReport:
    """Segments of a batch DataFrame that can be looked at."""

    _graph: Graph

    def report(self, path: str | Path, *, entities: int = 3, rows: int = 200) -> Path:
        """Write an HTML page that draws some entities: rows, segments, their bound, the results.

        The entities are those of the least hash of their keys, so they are the same every time;
        ``where("ship IN (3, 4)")`` before it says which. Of each the newest rows are drawn. This
        runs a few jobs. A stream has its page from the run: ``run.report(path)``.

        Args:
            path: the file to write; missing folders are made.
            entities: how many entities are drawn, 1 to 20.
            rows: how many rows of each, 1 to 10,000.

        Returns:
            The path of the file.

        Raises:
            EddylineError: the extra ``report`` is not installed.
            NotSupportedError: they are of a stream, of pairs, or of values over entities.
            OptionError: a number that is none of these.
            SourceError: the file cannot be written.

        Example:
            >>> segments.where("ship = 3 AND x > 1500").report("ship3.html")  # doctest: +SKIP
        """
        how = _Options(entities, rows)
        check_packages()
        _check(self._graph)
        found = precise(self._graph)
        sources = [each for each in found.sources if isinstance(each, Source)]
        plan = StreamPlan(
            tuple(StreamInput(each.maker, each.shape) for each in sources), found.node
        )
        sketch = _sketch(sources, plan, how)
        sections = drawn(pictures(sketch, plan))
        said = f"{len(sketch.codes)} entities are drawn, with their newest {rows} rows at most."
        view = RunView(
            f"segments of {', '.join(found.shape.attributes)}",
            told(self._graph),
            sections=(Section("", (Text(said),)), *sections),
        )
        return write_report(view, path)


def _check(graph: Graph) -> None:
    """Refuse segments that are not of one entity each, of a batch DataFrame.

    Raises:
        NotSupportedError: they are others.
    """
    if graph.is_streaming:
        msg = "a stream is drawn by its run: query.start(…).report(path)"
        raise NotSupportedError(msg)
    if not all(isinstance(each, Source) for each in graph.sources):
        msg = (
            "report draws the rows, segments and results of single entities, and these are of "
            "several: report what they are made of, or persist() them to draw the segments alone"
        )
        raise NotSupportedError(msg)


def _sketch(sources: Sequence[Source], plan: StreamPlan, how: _Options) -> Sketch:
    """Return what is drawn: a job for the entities, and one for each table."""
    code = f"xxhash64({', '.join(map(quoted, plan.keys))})" if plan.keys else "0L"
    first = sources[0].df.selectExpr(f"{code} AS {CODE}").distinct().orderBy(CODE)
    few = [row[0] for row in first.limit(how.entities).collect()]
    if not few:
        return Sketch()
    condition = f"{code} IN ({', '.join(f'{each}L' for each in few)})"
    taken = [each.where(condition) for each in sources]
    rows = {
        at: _newest(df, code, time, how.rows)
        for at, each in enumerate(taken)
        for df, time in _rows_of(each, condition)
    }
    instants = [micros_of(each.column(plan.row_times[at])) for at, each in rows.items()]
    since = min((int(each.min()) for each in instants if len(each)), default=None)
    most = MOST_TIMES * how.rows
    segments = {
        at: _newest(_behind(each.segments, "hi", since), code, "lo", most)
        for at, each in enumerate(taken)
    }
    if isinstance(plan.node, graph.Input):
        return Sketch(rows, segments)
    results, (begins, ends) = as_modelled(taken, plan.node), BOUNDS[plan.node.shape.kind]
    return Sketch(rows, segments, _newest(_behind(results, ends, since), code, begins, most))


def _rows_of(source: Source, condition: str) -> Iterator[tuple[DataFrame, str]]:
    """Yield the rows that segments stand for with their column of time, if they are known."""
    if source.maker is not None:
        yield read_columns(source.df, source.maker), source.maker.time
    elif source.raw is not None and TIME not in source.shape.keys:
        columns = source.raw.columns
        values = [f"{columns.get(each, f'CAST({quoted(each)} AS DOUBLE)')} AS {quoted(each)}"
                  for each in source.shape.attributes]  # fmt: skip
        keys = [*map(quoted, source.shape.keys), f"{quoted(source.raw.time)} AS {TIME}"]
        yield (
            source.raw.df.where(condition).selectExpr(*keys, *values).where("time IS NOT NULL"),
            TIME,
        )


def _behind(df: DataFrame, time: str, since: int | None) -> DataFrame:
    """Return what is not over before an instant (µs)."""
    return df if since is None else df.where(event_time.micros_of(df, time, "segments") >= since)


def _newest(df: DataFrame, code: str, time: str, n: int) -> pa.Table:
    """Return the last rows of each entity, with ``CODE``."""
    order = Window.partitionBy(CODE).orderBy(F.col(quoted(time)).desc())
    coded = df.selectExpr("*", f"{code} AS {CODE}").withColumn(_RANK, F.row_number().over(order))
    return coded.where(f"{_RANK} <= {n}").drop(_RANK).orderBy(CODE, quoted(time)).toArrow()
