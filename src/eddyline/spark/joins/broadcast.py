"""A join of one stream with small tables as Spark's broadcast join: tables go to the rows.

Nothing of the stream is kept: a row meets the tables at its own instant, whatever its window is. So
the state of such a join is the rows that its tables had when it was first started, and a plan of
this kind leaves that as it is: each batch may have another plan. Which rows are late is known
before a batch; whether there were any is observed, and only then a job puts them aside.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DateType,
    LongType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from eddyline.joins.loop import written_orders
from eddyline.joins.operator.bucket import BucketBatch
from eddyline.joins.plan import BatchPlan
from eddyline.joins.way import MOST_ROWS
from eddyline.spark.analysis import arrow_schema
from eddyline.spark.buckets import ADAPTIVE, FOUND, as_type
from eddyline.spark.event_time import instant_of
from eddyline.spark.joins.input_steps import facts_of
from eddyline.spark.joins.layout import KEY, PASSES, SLOT, START
from eddyline.spark.joins.task import LateWorker, Shape
from eddyline.spark.prepared import Selected
from eddyline.state.bucket_state import BucketState
from eddyline.state.grid import Grid
from eddyline.state.mapped_runs import MAPPED
from eddyline.state.rows import ALWAYS, Rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.plan import BucketReport
    from eddyline.joins.state_part import JoinPart
    from eddyline.spark.joins.bound import BoundJoin
    from eddyline.spark.joins.layout import InputLayout
    from eddyline.state.place import StatePlace

HERE = "here"
"""The metric of how many rows of a batch have all keys."""

_HOW = {"inner": "inner", "left": "left", "semi": "leftsemi", "anti": "leftanti"}
"""Kinds of joins as Spark calls them."""


@dataclass(frozen=True, slots=True)
class Handed:
    """Such a join laid over the rows of a batch."""

    results: DataFrame
    rows: DataFrame
    """The rows of the stream with their keys, late ones included."""
    observations: tuple[Observation, ...]


class Broadcast:
    """Joins the rows of a stream with tables where they are.

    Args:
        bound: the join; ``is_possible`` says whether it is one.
    """

    def __init__(self, bound: BoundJoin) -> None:
        self.bound = bound
        self.source = bound.source
        layouts = {each.name: each for each in self.source.layouts}
        (self.stream,) = (layouts[name] for name in bound.timed)
        self.tables = tuple(each for each in self.source.layouts if each.name not in bound.timed)
        self._copies: dict[str, DataFrame] = {}
        """The tables, as they are kept."""
        self._files: tuple[str, ...] | None = None
        """The files that those were read from."""
        self._ways: dict[tuple[str, ...], list[tuple[str, list[Column]]]] = {}

    @staticmethod
    def is_possible(bound: BoundJoin) -> bool:
        """Return whether a join may be laid so.

        Where rows of the stream are results for what they lack, conditions are asked within Spark's
        join, which may ask them of rows of the tables alone: then none of them may raise an error.
        """
        timed = [each for each in bound.inputs if each.time is not None]
        if len(timed) != 1 or timed[0].made is not None or bound.is_ordered or bound.keys:
            return False
        if len(bound.inputs) == 1 or bound.step.kind == "inner":
            return len(bound.inputs) > 1
        shape = bound.empty_results
        is_first = bound.inputs[0] is timed[0]
        return is_first and not any(facts_of(shape, each).may_raise for each in bound.compared)

    # -- the tables -----------------------------------------------------------------------------

    @property
    def can_begin(self) -> bool:
        """Whether the tables can be copied by themselves: they have no steps to be laid."""
        return not any(
            each.steps for each in self.bound.inputs if each.name not in self.bound.timed
        )

    def begun(self, batch_id: int, place: StatePlace) -> BucketReport | None:
        """Keep the tables as the state of one bucket; None if they have too many rows.

        Raises:
            OSError: they cannot be written.
        """
        tables = self.source.tables
        assert tables is not None
        found = self.source.keyed(tables).where(PASSES).limit(MOST_ROWS + 1).toArrow()
        if found.num_rows > MOST_ROWS:
            return None
        inputs, _ = self._shape.inputs(found.to_batches())
        graph = self.bound.graph
        plan = BatchPlan(
            batch_id, graph, written_orders(graph), self.bound.lengths, grid=one_bucket(graph)
        )
        task = BucketBatch(plan, place, BucketState())
        for _ in task.run(inputs):  # nothing, without a row of the stream
            pass
        return task.report

    def sizes(self, part: JoinPart) -> tuple[int, int]:
        """Return rows and bytes of the tables, as they are kept."""
        files = [file for each in self.tables for file in part.files(each.name)]
        return sum(file.n_rows for file in files), sum(file.n_bytes for file in files)

    def counts_all(self, part: JoinPart) -> bool:
        """Return whether a job over all results counts all rows.

        Spark leaves out the rows that would be joined with nothing, and what observes them.
        """
        return all(part.files(each.name) for each in self.tables)

    def _take(self, part: JoinPart, place: StatePlace) -> None:
        """Read the tables as they are kept, unless they are known.

        Raises:
            OSError: they cannot be read.
        """
        files = tuple(file.name for each in self.tables for file in part.files(each.name))
        if files == self._files:
            return
        self._copies = {
            each.name: self._frame(each, [*self._rows(each, part, place)]) for each in self.tables
        }
        self._files = files

    def _rows(self, table: InputLayout, part: JoinPart, place: StatePlace) -> Iterator[Rows]:
        """Yield the rows of a table, each once: several buckets may have copies of one."""
        for bucket, state in part.buckets.items():
            for file in state.all_runs(table.name):
                rows = MAPPED.run(place.files, place.runs, file, table.keys).rows
                is_first = part.grid.is_first(bucket, table.name, rows.codes, rows.starts)
                yield rows if is_first.all() else rows.taken(np.flatnonzero(is_first))

    def _frame(self, table: InputLayout, parts: Sequence[Rows]) -> DataFrame:
        """Return the rows of a table, under names that no other input has."""
        kinds = self._fields(table)
        fields = [StructField(_column(table, each.name), each.dataType) for each in kinds]
        fields += [StructField(_code(table, k), LongType()) for k in table.keys]
        schema = StructType(fields)
        rows: Any = []
        if sum(map(len, parts)):
            columns = [*Rows.together(parts).payload.select([each.name for each in kinds]).columns]
            for k in table.keys:
                codes = np.concatenate([part.codes[k] for part in parts])
                columns.append(pa.chunked_array([pa.array(codes, pa.int64())]))
            kept = arrow_schema(self.bound.spark, schema)
            cast = [as_type(each, of.type) for each, of in zip(columns, kept, strict=True)]
            rows = pa.Table.from_arrays(cast, schema=kept).combine_chunks()
        frame = self.bound.spark.createDataFrame(rows, schema)
        if self.bound.step.kind != "inner" and self.bound.compared:
            frame = frame.withColumn(table.name, self._struct(table))
        return F.broadcast(frame)

    # -- a batch --------------------------------------------------------------------------------

    def lay(
        self,
        df: DataFrame,
        part: JoinPart,
        place: StatePlace,
        low: int,
        order: Sequence[str],
        *,
        counts_here: bool,
    ) -> Handed:
        """Return the results of the rows of a batch.

        Args:
            df: the rows of the stream, its steps laid.
            part: what is kept.
            place: where that is.
            low: the instant before which rows are late (µs).
            order: the tables, in the order in which they are joined.
            counts_here: whether the rows that are looked up are observed.

        Raises:
            OSError: the tables cannot be read.
        """
        self._take(part, place)
        df.sparkSession.conf.set(ADAPTIVE, "false")
        rows = self.source.keyed(df)
        # In an array that is asked for a place which only the row knows: Spark would compile each
        # batch's statement anew for another number.
        low = max(low, ALWAYS + 1)
        is_timely = f"{START} >= get(array({low}L), IF({START} IS NULL, NULL, 0))"
        joined, seen = rows.where(f"{is_timely}{self._passes}"), []
        if counts_here:
            seen.append(Observation())
            joined = joined.observe(seen[0], self._here)
        joined = self._own.over(joined)
        for name, equal in self._equal(tuple(order)):
            joined = self._joined(joined, name, equal)
        seen.append(Observation())
        return Handed(self._results.over(joined.observe(seen[-1], self._found)), rows, tuple(seen))

    def late(self, handed: Handed, place: StatePlace, batch_id: int, low: int) -> dict[str, int]:
        """Write the late rows of a batch, in a job; returns the rows of each file.

        Args:
            handed: the batch.
            place: where they are kept.
            batch_id: its number.
            low: the instant before which rows are late (µs).
        """
        task = LateWorker(batch_id, self._shape, place, self.bound.keys_only, low)
        rows = handed.rows.where(f"{START} < {low}L{self._passes}")
        written = rows.mapInArrow(task.run, "file string, n bigint").collect()
        return {each.file: each.n for each in written}

    @property
    def _passes(self) -> str:
        """SQL of what rows have to be beside: of an inner join those with all keys."""
        return "" if self.stream.is_raw else f" AND {PASSES}"

    def _joined(self, df: DataFrame, name: str, equal: Sequence[Column]) -> DataFrame:
        """Return rows with those of a table."""
        kind, copy = self.bound.step.kind, self._copies[name]
        if kind != "inner" and self.bound.compared:
            # Conditions find the columns of both in structs.
            struct = self._struct(self.stream)
            df, equal = df.withColumn(self.stream.name, struct), [*equal, *self._compared]
        return df.join(copy, [*equal], _HOW[kind])

    def _equal(self, order: tuple[str, ...]) -> list[tuple[str, list[Column]]]:
        """Return what is equal to join each table, in their order."""
        if order not in self._ways:
            known = {k: f"{KEY}{k}" for k in self.stream.keys}
            tables = {each.name: each for each in self.tables}
            found = self._ways[order] = []
            for name in order:
                codes = {k: _code(tables[name], k) for k in tables[name].keys}
                both = [(known[k], code) for k, code in codes.items() if k in known]
                found.append((name, [F.col(one) == F.col(other) for one, other in both]))
                known = codes | known
        return self._ways[order]

    @cached_property
    def _compared(self) -> list[Column]:
        """What is asked of two rows beside, where that decides what is a result."""
        return [F.expr(f"({each}\n)") for each in self.bound.compared]

    @cached_property
    def _here(self) -> Column:
        return F.count(F.when(F.col(PASSES), 1)).alias(HERE)

    @cached_property
    def _found(self) -> Column:
        return F.count(F.lit(1)).alias(FOUND)

    @cached_property
    def _own(self) -> Selected:
        """The columns of the stream that results have, and its codes."""
        places, codes = dict(self.stream.columns), [f"{KEY}{k}" for k in self.stream.keys]
        values = [
            _value(places[each.name], each.dataType).alias(_column(self.stream, each.name))
            for each in self._fields(self.stream)
        ]
        return Selected(*values, *codes)

    @cached_property
    def _results(self) -> Selected:
        """A struct for each input; of a table with NULLs where its rows decide and are not told."""
        is_told = self.bound.step.kind in ("inner", "left")
        return Selected(
            *(
                self._struct(each, is_told=is_told or each is self.stream).alias(each.name)
                for each in self.source.layouts
            )
        )

    def _struct(self, each: InputLayout, *, is_told: bool = True) -> Column:
        columns = [
            F.col(_column(each, of.name)) if is_told else F.lit(None).cast(of.dataType)
            for of in self._fields(each)
        ]
        names = [of.name for of in self._fields(each)]
        return F.struct(*[one.alias(name) for one, name in zip(columns, names, strict=True)])

    def _fields(self, each: InputLayout) -> list[StructField]:
        """Return the columns of an input that results have."""
        return [*self.bound.fields_of(each, [name for name, _ in each.columns])]

    @cached_property
    def _shape(self) -> Shape:
        return Shape(self.source.layouts, arrow_schema(self.bound.spark, self.bound.task_schema))


def one_bucket(graph: JoinGraph) -> Grid:
    """Return the grid of a join that is not cut."""
    return Grid((1,) * len(graph.classes))


def _column(of: InputLayout, name: str) -> str:
    """Return the name of a column of an input beside those of others."""
    return f"__own{of.number}_{[each for each, _ in of.columns].index(name)}"


def _code(of: InputLayout, key: int) -> str:
    """Return the name of the column of the codes of a table in a key class."""
    return f"__code{of.number}_{key}"


def _value(place: str, kind: DataType) -> Column:
    """Return the value of a column that a common column holds or says; see ``keys.codes_of``."""
    held = F.col(place)
    if place.startswith(SLOT):
        return held
    if isinstance(kind, TimestampType | TimestampNTZType):
        return F.expr(instant_of(place, is_local=isinstance(kind, TimestampNTZType)))
    return (
        F.date_from_unix_date(held.cast("int")) if isinstance(kind, DateType) else held.cast(kind)
    )
