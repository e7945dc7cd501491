"""A windowed join of DataFrames: all inputs in one shuffle, joined by one operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType
from sqlglot import exp, parse_one

from eddyline.errors import NotSupportedError, QueryError
from eddyline.joins.graph import JoinGraph
from eddyline.query.join_statement import read_join
from eddyline.query.sql_text import SparkText
from eddyline.registry import unknown
from eddyline.spark.binding import column_types
from eddyline.spark.join_source import BUCKET, source_of
from eddyline.spark.join_worker import JoinWorker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from eddyline.query.joins import JoinQuery
    from eddyline.spark.join_source import Source


class WindowJoin:
    """A join of DataFrames over windows.

    Args:
        text: ``SELECT … FROM s [RANGE 10 SECONDS], t [RANGE 1 MINUTE] WHERE s.k = t.k AND …``.
        frames: the DataFrame of each stream and table by the name in FROM.
        times: its event-time column; None for a table, whose rows were always there.

    Raises:
        QueryError: the text cannot be understood, or does not fit the columns.
        NotSupportedError: a join that eddyline does not run, with its position.
    """

    def __init__(
        self, text: str, frames: Mapping[str, DataFrame], times: Mapping[str, str | None]
    ) -> None:
        self.query = read_join(text, {name: column_types(df) for name, df in frames.items()}, {})
        if self.query.emits != "istream":
            msg = f"{self.query.emits.upper()} is not supported yet; results come as ISTREAM"
            raise NotSupportedError(msg, query=text)
        self.frames = dict(frames)
        self.times = dict(times)
        for name, time in times.items():
            if time is not None and time not in frames[name].columns:
                msg = f"{name!r}: {unknown('time column', time, frames[name].columns)}"
                raise QueryError(msg, name=name, time=time)

    def to_df(self, *, n_buckets: int | None = None) -> DataFrame:
        """Return all results over batch DataFrames, as ISTREAM says: one row when it comes to be.

        Args:
            n_buckets: in how many tasks the rows are joined; Spark's shuffle partitions if omitted.

        Raises:
            QueryError: keys that cannot be compared, or a stream whose event time is no time.
        """
        spark = next(iter(self.frames.values())).sparkSession
        n_tasks = n_buckets or int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
        needed = needed_columns(self.query)
        source = source_of(self.query, self.frames, self.times, needed, n_tasks)
        schema = result_schema(source)
        names = tuple(each.name for each in self.query.inputs)
        graph = JoinGraph(names, tuple(frozenset(key.members) for key in self.query.keys))
        zone = str(spark.conf.get("spark.sql.session.timeZone"))
        arrow = to_arrow_schema(schema, timezone=zone)
        worker = JoinWorker(graph, written_orders(graph), source.layouts, arrow)
        placed = source.df.repartitionById(n_tasks, F.col(BUCKET))
        found = placed.mapInArrow(worker.run, schema)
        for condition in (*self.query.residual, *(self.query.equalities if source.rough else ())):
            found = found.where(F.expr(condition))
        return found.selectExpr(*self.query.projections)


def written_orders(graph: JoinGraph) -> dict[str, tuple[str, ...]]:
    """Return, for each input, the others as they were written, without Cartesian products."""
    orders = {}
    for first in graph.inputs:
        order: list[str] = []
        while reachable := graph.reachable((first, *order)):
            order.append(next(name for name in graph.inputs if name in reachable))
        orders[first] = tuple(order)
    return orders


def needed_columns(query: JoinQuery) -> dict[str, tuple[str, ...]]:
    """Return, by input, the columns that results are made of and conditions are checked on."""
    found: dict[str, dict[str, None]] = {each.name: {} for each in query.inputs}
    for text in (*query.projections, *query.residual, *query.equalities):
        for node in parse_one(f"SELECT {text}", read=SparkText).find_all(exp.Column):
            parts = [part.name for part in node.parts]
            found[parts[0]][parts[1]] = None
    return {name: tuple(columns) for name, columns in found.items()}


def result_schema(source: Source) -> StructType:
    """Return what tasks return: a struct for each input."""
    kinds = {field.name: field.dataType for field in source.df.schema}
    return StructType(
        [
            StructField(
                each.name,
                StructType([StructField(name, kinds[slot]) for name, slot in each.columns]),
            )
            for each in source.layouts
        ]
    )
