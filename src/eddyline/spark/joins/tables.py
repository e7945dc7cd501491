"""Tables of a join on Spark: broadcast, filters, refreshes.

* ``Broadcast`` runs batches in which Spark's broadcast join gives the results, without a shuffle.
* ``TableFilter`` drops rows before the shuffle if a filter of a table's keys lacks their key.
* ``RefreshedTables`` replaces the rows of a table in the state by those of a newer version.
"""

from __future__ import annotations

import time
import warnings
from functools import cached_property, reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from msgspec.structs import replace
from pyspark.errors import AnalysisException
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

from eddyline.data.arrays import distinct
from eddyline.errors import EddylineWarning, SourceError, StateError, own_frames
from eddyline.joins.operator.bucket import BucketBatch
from eddyline.joins.orders.pipelines import written_orders
from eddyline.joins.plan import COMPONENT, BatchPlan
from eddyline.joins.tables import MOST_ROWS, DropChoice
from eddyline.runtime.journal import JournalEntry, newest_attempts
from eddyline.spark.analysis import arrow_schema, reason_of
from eddyline.spark.arrow_tasks import map_batches
from eddyline.spark.bucketed import (
    ADAPTIVE,
    FOUND,
    REPORT,
    as_type,
    buckets_stay,
    shuffled,
    state_of,
)
from eddyline.spark.joins.layout import INPUT, KEY, PASSES, SLOT, START
from eddyline.spark.joins.source import Placement, facts_of
from eddyline.spark.joins.task import LateWorker, Shape, TableWorker
from eddyline.spark.operator import Laid, Pending
from eddyline.spark.prepared import Counted, Selected
from eddyline.spark.relation import instant_of
from eddyline.spark.run.observations import PendingMetrics
from eddyline.spark.sources.reading import table_of
from eddyline.state.bucket_state import BucketState
from eddyline.state.cold_runs import KEYS_PER_WORD, add_hashes
from eddyline.state.grid import Grid, spark_hashes
from eddyline.state.manifest import note_versions, noted_versions
from eddyline.state.rows import ALWAYS, FOREVER, Rows
from eddyline.state.run_files import MAPPED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.plan import BucketReport
    from eddyline.joins.view import JoinPart
    from eddyline.spark.joins.bound import BoundJoin
    from eddyline.spark.joins.inputs import JoinInputs
    from eddyline.spark.joins.layout import InputLayout, JoinInput
    from eddyline.spark.operator import Batch, Observed
    from eddyline.state.manifest import StatePlace, Versions


HERE = "here"
"""The metric of how many rows of a batch have all keys."""

_HOW = {"inner": "inner", "left": "left", "semi": "leftsemi", "anti": "leftanti"}
"""Kinds of joins as Spark calls them."""


class Broadcast:
    """Joins the rows of a stream with tables where they are.

    Args:
        bound: the join; ``is_possible`` says whether it is one.
        inputs: its inputs, which tell the mode of a batch and how early its rows are.
    """

    def __init__(self, bound: BoundJoin, inputs: JoinInputs) -> None:
        self.bound = bound
        self.inputs = inputs
        self.source = bound.source
        (self.stream,) = map(self.source.layout, bound.timed)
        self.tables = tuple(
            layout for layout in self.source.layouts if layout.name not in bound.timed
        )
        self._copies: dict[str, DataFrame] = {}
        """The tables, as they are kept."""
        self._files: tuple[str, ...] | None = None
        """The files that those were read from."""
        self._equal_keys: dict[tuple[str, ...], list[tuple[str, list[Column]]]] = {}
        self._newest: DataFrame | None = None
        """The rows of the stream in the newest batch with their keys, late ones included."""
        self._low = ALWAYS
        """Watermark: rows of the newest batch before it are late, and not joined (µs)."""
        self.n_late = 0
        """Late rows of the newest batch, once it is closed."""

    @staticmethod
    def is_possible(bound: BoundJoin) -> bool:
        """Return whether a join may be laid so.

        Where rows of the stream are results for what they lack, conditions are asked within Spark's
        join, which may ask them of rows of the tables alone: then none of them may raise an error.
        """
        timed = [join_input for join_input in bound.inputs if join_input.time is not None]
        if len(timed) != 1 or timed[0].laid_out is not None or bound.is_ordered or bound.keys:
            return False
        if len(bound.inputs) == 1 or bound.step.kind == "inner":
            return len(bound.inputs) > 1
        shape = bound.empty_results
        is_first = bound.inputs[0] is timed[0]
        return is_first and not any(
            facts_of(shape, condition).may_raise for condition in bound.compared
        )

    # -- the tables -----------------------------------------------------------------------------

    @property
    def can_begin(self) -> bool:
        """Whether the tables can be copied alone: they have no steps."""
        return not any(
            join_input.steps
            for join_input in self.bound.inputs
            if join_input.name not in self.bound.timed
        )

    def begun(self, batch_id: int, place: StatePlace) -> BucketReport | None:
        """Keep the tables as the state of one bucket; None if they have too many rows.

        Raises:
            OSError: they cannot be written.
        """
        tables = self.source.tables
        assert tables is not None
        table = self.source.keyed(tables).where(PASSES).limit(MOST_ROWS + 1).toArrow()
        if table.num_rows > MOST_ROWS:
            return None
        inputs, _ = self._shape.inputs(table.to_batches())
        graph = self.bound.graph
        plan = BatchPlan(
            batch_id, graph, written_orders(graph), self.bound.lengths, grid=one_bucket(graph)
        )
        task = BucketBatch(plan, place, BucketState())
        for _ in task.run(inputs):  # nothing, without a row of the stream
            pass
        return task.report

    def sizes(self, part: JoinPart) -> tuple[int, int]:
        """Return rows and bytes of the tables in the state."""
        files = [file for table in self.tables for file in part.files(table.name)]
        return sum(file.n_rows for file in files), sum(file.n_bytes for file in files)

    def counts_all(self, part: JoinPart) -> bool:
        """Return whether a job over all results counts all rows.

        Spark leaves out the rows that would be joined with nothing, and what observes them.
        """
        return all(part.files(table.name) for table in self.tables)

    def _take(self, part: JoinPart, place: StatePlace) -> None:
        """Read the tables as they are kept, unless they are known."""
        files = tuple(file.name for table in self.tables for file in part.files(table.name))
        if files == self._files:
            return
        self._copies = {
            table.name: self._frame(table, [*self._rows(table, part, place)])
            for table in self.tables
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
        fields = [StructField(_column(table, field.name), field.dataType) for field in kinds]
        fields += [StructField(_code(table, k), LongType()) for k in table.keys]
        schema = StructType(fields)
        rows: Any = []
        if sum(map(len, parts)):
            columns = [
                *Rows.together(parts).payload.select([field.name for field in kinds]).columns
            ]
            for k in table.keys:
                codes = np.concatenate([part.codes[k] for part in parts])
                columns.append(pa.chunked_array([pa.array(codes, pa.int64())]))
            kept = arrow_schema(self.bound.spark, schema)
            cast = [
                as_type(column, field.type) for column, field in zip(columns, kept, strict=True)
            ]
            rows = pa.Table.from_arrays(cast, schema=kept).combine_chunks()
        frame = self.bound.spark.createDataFrame(rows, schema)
        if self.bound.step.kind != "inner" and self.bound.compared:
            frame = frame.withColumn(table.name, self._struct(table))
        return F.broadcast(frame)

    # -- a batch --------------------------------------------------------------------------------

    def lay(self, df: DataFrame, part: JoinPart, place: StatePlace, order: Sequence[str]) -> Laid:
        """Return the results of the rows of a batch.

        ``df`` has the rows of the stream, its steps laid; the tables are joined in ``order``.

        Raises:
            StateError: the tables cannot be read.
        """
        with state_of(0, "windows", place.folder):
            self._take(part, place)
        df.sparkSession.conf.set(ADAPTIVE, "false")
        rows, low = self.source.keyed(df), self.inputs.streams.low(self.stream.name, {})
        self._newest, self._low = rows, low
        # In an array that is asked for a place which only the row knows: Spark would compile each
        # batch's statement anew for another number.
        is_timely = f"{START} >= get(array({max(low, ALWAYS + 1)}L), IF({START} IS NULL, NULL, 0))"
        joined, seen = rows.where(f"{is_timely}{self._passes}"), []
        if not self._is_counted:
            seen.append(Observation())
            joined = joined.observe(seen[0], self._here)
        joined = self._own.over(joined)
        for name, equal in self._equal(tuple(order)):
            joined = self._joined(joined, name, equal)
        seen.append(Observation())
        results = self._results.over(joined.observe(seen[-1], self._found))
        pending = tuple(Pending(COMPONENT, PendingMetrics(observation)) for observation in seen)
        counted = Counted(seen[-1], FOUND) if self.counts_all(part) else None
        return Laid(results, pending, counted=counted)

    def is_whole(self, observed: Sequence[Observed]) -> bool:
        """Return whether all rows of the batch were seen."""
        return self.inputs.mode.looks_ahead or bool(observed)

    def late_files(self, place: StatePlace, batch_id: int) -> set[str]:
        """Write the late rows of the newest batch, in a job if there are any; return the files."""
        low, self.n_late = self._low, 0
        if self.inputs.earliest.get(self.stream.name, FOREVER) >= low:
            return set()
        assert self._newest is not None
        worker = LateWorker(batch_id, self._shape, place, self.bound.keys_only, low)
        late = self._newest.where(f"{START} < {low}L{self._passes}")
        written = late.mapInArrow(worker.run, "file string, n bigint").collect()
        self.n_late = sum(row.n for row in written)
        return {row.file for row in written}

    def counts(self, observed: Sequence[Observed]) -> tuple[int, int]:
        """Return the rows of a batch that were looked up, and the results."""
        n_rows, n_results = (
            sum(int(observation.metrics.get(metric) or 0) for observation in observed)
            for metric in (HERE, FOUND)
        )
        if self._is_counted:
            n_rows = max(0, self.inputs.n_keyed(self.stream.name) - self.n_late)
        return n_rows, n_results

    @property
    def _is_counted(self) -> bool:
        """Whether the inputs count exactly the rows that probe: no step is in between."""
        steps = self.bound.inputs[self.stream.number].steps
        return not (self.inputs.mode.looks_ahead or steps or self.stream.is_raw)

    @property
    def _passes(self) -> str:
        """SQL condition on probing rows: an inner join needs all keys."""
        return "" if self.stream.is_raw else f" AND {PASSES}"

    def _joined(self, df: DataFrame, name: str, equal: Sequence[Column]) -> DataFrame:
        """Return rows joined with a table."""
        kind, copy = self.bound.step.kind, self._copies[name]
        if kind != "inner" and self.bound.compared:
            # Conditions find the columns of both in structs.
            struct = self._struct(self.stream)
            df, equal = df.withColumn(self.stream.name, struct), [*equal, *self._compared]
        return df.join(copy, [*equal], _HOW[kind])

    def _equal(self, order: tuple[str, ...]) -> list[tuple[str, list[Column]]]:
        """Return what is equal to join each table, in their order."""
        if order not in self._equal_keys:
            columns = {k: f"{KEY}{k}" for k in self.stream.keys}
            tables = {table.name: table for table in self.tables}
            joins = self._equal_keys[order] = []
            for name in order:
                codes = {k: _code(tables[name], k) for k in tables[name].keys}
                both = [(columns[k], code) for k, code in codes.items() if k in columns]
                joins.append((name, [F.col(one) == F.col(other) for one, other in both]))
                columns = codes | columns
        return self._equal_keys[order]

    @cached_property
    def _compared(self) -> list[Column]:
        """Residual conditions on two rows, if these decide what is a result."""
        return [F.expr(f"({condition}\n)") for condition in self.bound.compared]

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
            _value(places[field.name], field.dataType).alias(_column(self.stream, field.name))
            for field in self._fields(self.stream)
        ]
        return Selected(*values, *codes)

    @cached_property
    def _results(self) -> Selected:
        """A struct for each input; of a table with NULLs where its rows decide and are not told."""
        is_told = self.bound.step.kind in ("inner", "left")
        return Selected(
            *(
                self._struct(layout, is_told=is_told or layout is self.stream).alias(layout.name)
                for layout in self.source.layouts
            )
        )

    def _struct(self, layout: InputLayout, *, is_told: bool = True) -> Column:
        columns = [
            F.col(_column(layout, field.name)) if is_told else F.lit(None).cast(field.dataType)
            for field in self._fields(layout)
        ]
        names = [field.name for field in self._fields(layout)]
        return F.struct(*[one.alias(name) for one, name in zip(columns, names, strict=True)])

    def _fields(self, layout: InputLayout) -> list[StructField]:
        """Return the columns of an input that results have."""
        return [*self.bound.fields_of(layout, [name for name, _ in layout.columns])]

    @cached_property
    def _shape(self) -> Shape:
        return Shape(self.source.layouts, arrow_schema(self.bound.spark, self.bound.task_schema))


def one_bucket(graph: JoinGraph) -> Grid:
    """Return the grid of a join that is not cut."""
    return Grid((1,) * len(graph.classes))


def _column(layout: InputLayout, name: str) -> str:
    """Return the qualified name of a column of an input."""
    return f"__own{layout.number}_{[column for column, _ in layout.columns].index(name)}"


def _code(layout: InputLayout, key: int) -> str:
    """Return the name of the column of the codes of a table in a key class."""
    return f"__code{layout.number}_{key}"


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


MOST_KEYS = 1_000_000
"""Most rows of a table of whose keys a filter is made: 2 MB, which go to each task."""

DROPPED = "dropped"
"""The name of what is observed of rows that are dropped."""

LACKS = "__lacks"
"""The column of whether a row is dropped."""


class TableFilter:
    """Filters the rows of streams by the keys of tables.

    Args:
        bound: the join.
        is_on: whether rows may be dropped at all.
    """

    def __init__(self, bound: BoundJoin, *, is_on: bool) -> None:
        graph, timed = bound.graph, {*bound.timed}
        # A row of several streams may meet a later version with rows that are still to come.
        later = bound.source.refreshed if len(timed) > 1 else ()
        tables = [name for name in graph.inputs if name not in timed and name not in later]
        # A second row with a declared key is to be refused, whether or not it has a partner.
        streams = [name for name in bound.timed if is_on and name not in bound.keys]
        self._keys = {
            name: keys
            for name in streams
            if (keys := [(t, key) for t in tables for key in graph.links((name,), t)])
        }
        """By stream, its tables and the key classes that it shares with each."""
        self._classes = graph.classes_of
        self._numbers = {layout.name: layout.number for layout in bound.source.layouts}
        self.loop = DropChoice(
            {name: tuple(dict.fromkeys(t for t, _ in keys)) for name, keys in self._keys.items()}
        )
        self.n_keys: dict[str, int] = {}
        """By stream, the keys of its tables, as soon as they are known and can be used."""
        self._lacks: dict[str, Column] = {}
        self._is_read = not self._keys

    def forget(self) -> None:
        """Have the keys read again: tables have changed."""
        self._is_read = not self._keys
        self.n_keys.clear()
        self._lacks.clear()

    def read(self, df: DataFrame, part: JoinPart, place: StatePlace) -> None:
        """Read the keys of the tables from the state, once the first batch has brought them.

        Raises:
            OSError: they cannot be read.
        """
        if self._is_read:
            return
        filters: dict[tuple[str, int], tuple[int, Column]] = {}
        for table, key in dict.fromkeys(
            table_key for keys in self._keys.values() for table_key in keys
        ):
            files = part.files(table)
            if sum(file.n_rows for file in files) > MOST_KEYS:
                continue
            runs = (
                MAPPED.run(place.files, place.runs, file, self._classes[table]) for file in files
            )
            parts = [np.empty(0, np.int64), *(run.rows.codes[key] for run in runs)]
            codes = distinct(np.concatenate(parts))
            filters[table, key] = codes.size, _lacks(df, f"{KEY}{key}", words_of(codes))
        for name, keys in self._keys.items():
            usable = [filters[table_key] for table_key in keys if table_key in filters]
            if usable:
                self.n_keys[name] = sum(n_keys for n_keys, _ in usable)
                self._lacks[name] = reduce(or_, (column for _, column in usable))
        self._is_read = True

    def lay(
        self, rows: DataFrame, lows: Mapping[str, int]
    ) -> tuple[DataFrame, tuple[Pending, ...]]:
        """Return the rows that tables have keys for, and late ones; and what observes the others.

        ``lows`` are the instants before which new rows of each input are late (µs).
        """
        used = [name for name, is_on in self.loop.plan.items() if is_on and name in self._lacks]
        if not used:
            return rows, ()
        asked = {name: self._asked(name, lows.get(name, ALWAYS)) for name in used}
        drops = reduce(or_, (F.expr(asked[name]) & self._lacks[name] for name in used))
        rows, seen = rows.withColumn(LACKS, F.coalesce(drops, F.lit(False))), Observation()
        counts = []
        for name in used:
            number = self._numbers[name]
            is_mine = f"{INPUT} = {number} AND {LACKS}"
            counts.append(F.expr(f"count_if({asked[name]}) AS asked{number}"))
            counts.append(F.expr(f"count_if({is_mine}) AS lacking{number}"))
        rows = rows.observe(seen, *counts).where(f"NOT {LACKS}").drop(LACKS)
        return rows, (Pending(DROPPED, PendingMetrics(seen)),)

    def _asked(self, name: str, low: int) -> str:
        """Return SQL of whether a row is one of a stream that can join and is not late."""
        # Spark compiles a statement anew where a number in it is another one, but for those in an
        # array that is asked for a place which only the row knows.
        before = f"get(array({max(low, ALWAYS + 1)}L), IF({START} IS NULL, NULL, 0))"
        return f"{INPUT} = {self._numbers[name]} AND {PASSES} AND {START} >= {before}"

    def step(
        self, observed: Sequence[Observed], n_shuffled: Mapping[str, int], batch_id: int
    ) -> list[JournalEntry]:
        """Take in what a batch dropped, and how many rows it did not, by stream, and decide."""
        metrics = next(
            (observation.metrics for observation in observed if observation.name == DROPPED), {}
        )
        numbers = {name: self._numbers[name] for name in self._keys}
        counts = {
            name: (int(metrics[f"asked{n}"] or 0), int(metrics[f"lacking{n}"] or 0))
            for name, n in numbers.items()
            if f"asked{n}" in metrics
        }
        return self.loop.step(counts, n_shuffled, self.n_keys, batch_id)


class RefreshedTables:
    """Reads tables again whose version has changed, before a batch.

    A batch reads the versions that are noted before its rows are joined. The rows of a newer
    version take the place of the older ones in the state of each bucket; windows of streams stay
    as they are.

    Args:
        bound: the join.
    """

    def __init__(self, bound: BoundJoin) -> None:
        self._bound = bound
        self._tables = [table for table in bound.inputs if table.refresh is not None]
        self._static = [
            table for table in bound.inputs if table.time is None and table.refresh is None
        ]
        """The tables that do not change, until they have been checked."""
        self._next_look = dict.fromkeys((table.stream for table in self._tables), 0.0)
        """When the version of each table is looked at next, by the monotonic clock (s)."""
        self.n_rows: dict[str, int] = {}
        """Rows of each version that this process has read."""

    def before(
        self, batch: Batch, part: JoinPart, place: StatePlace, spark: SparkSession
    ) -> tuple[JoinPart, list[JournalEntry]]:
        """Return the state before a batch with the versions that it reads, and what is told of it.

        Raises:
            SourceError: a version cannot be read.
            StateError: the state cannot be read or written.
        """
        entries: list[JournalEntry] = []
        if not self._tables and not self._static:
            return part, entries
        batch_id = batch.id
        noted = noted_versions(place, batch_id)
        self._check_static(batch_id, part, noted)
        if not self._tables:
            return part, entries
        versions = noted | self._newest(part, noted, batch_id, entries)
        if versions != noted:
            note_versions(place, batch_id, versions)
            batch.tables_noted.update(versions.keys() - noted.keys())
        try:
            for table in self._tables:
                before, version = part.versions.get(table.name), versions[table.stream]
                if version != before:
                    started = time.perf_counter()
                    part = self._read(table, version, batch_id, part, place, spark)
                    evidence = {
                        "n_rows": self.n_rows[table.name],
                        "s": time.perf_counter() - started,
                    }
                    shown = None if before is None else f"{table.name} {before['version']}"
                    now = f"{table.name} {version['version']}"
                    entry = JournalEntry(batch_id, COMPONENT, "version", shown, now, evidence)
                    entries.append(entry)
        except BaseException:
            # The sink has no results yet: what this attempt noted does not bind the batch.
            if batch.tables_noted:
                earlier = {n: v for n, v in versions.items() if n not in batch.tables_noted}
                note_versions(place, batch_id, earlier)
            raise
        return part, entries

    def _check_static(self, batch_id: int, part: JoinPart, noted: Versions) -> None:
        """Raise StateError if an earlier attempt read another version of a table than this does.

        Only the first batch of a process can be one that runs again with other options.
        """
        static, self._static = self._static, []
        for table in static:
            version = noted.get(table.stream)
            if version is not None and version != part.versions.get(table.name):
                msg = (
                    f"batch {batch_id} began with version {version['version']} of table "
                    f"{table.stream!r}, when the query had refresh=…; start it with refresh=… "
                    f"until that batch is done"
                )
                raise StateError(msg, table=table.stream, batch_id=batch_id)

    def _newest(
        self, part: JoinPart, noted: Versions, batch_id: int, entries: list[JournalEntry]
    ) -> Versions:
        """Return the version of each table that is not noted: the newest, where it is time to look.

        Raises:
            SourceError: a table that was never read does not answer.
        """
        versions: Versions = {}
        for table in self._tables:
            name, current, refresh = table.stream, part.versions.get(table.name), table.refresh
            if name in noted or name in versions or refresh is None:
                continue
            now = time.monotonic()
            if current is not None and now < self._next_look[name]:
                versions[name] = current
                continue
            self._next_look[name] = now + refresh.every_us / 1e6
            try:
                versions[name] = refresh.source.version()
            except SourceError as error:
                if current is None:
                    raise
                versions[name] = current
                msg = (
                    f"table {name!r} stays at version {current['version']}, because its newest "
                    f"version cannot be read: {error}"
                )
                warnings.warn(msg, EddylineWarning, stacklevel=own_frames())
                evidence = {"table": name, "error": str(error)}
                entries.append(JournalEntry(batch_id, COMPONENT, "version", evidence=evidence))
        return versions

    def _read(
        self,
        table: JoinInput,
        version: dict[str, Any],
        batch_id: int,
        part: JoinPart,
        place: StatePlace,
        spark: SparkSession,
    ) -> JoinPart:
        """Return the state with the rows of a version, which a job writes to each bucket."""
        bound, source, grid = self._bound, self._bound.source, part.grid
        name, refresh = table.name, table.refresh
        assert refresh is not None
        try:
            rows = refresh.stepped(table_of(spark, refresh.source, version))
            _check_types(table, rows, version, bound.name)
            rows = rows.select(*source.refreshed[name])
        except AnalysisException as error:
            msg = (
                f"version {version['version']} of table {table.stream!r} lacks what query "
                f"{bound.name!r} reads: {reason_of(error).rstrip('; ')}. Start the query again "
                f"once the table has it: nothing is lost"
            )
            raise SourceError(msg, table=table.stream, query=bound.name) from error
        placed, by = Placement(grid, source).lay(source.keyed(rows))
        schema = arrow_schema(spark, bound.task_schema)
        graph = bound.graph
        plan = BatchPlan(batch_id, graph, written_orders(graph), bound.lengths, grid=grid)
        worker = TableWorker(schema, place, plan, Shape(source.layouts, schema), {})
        buckets_stay(spark)
        done = map_batches(shuffled(placed, grid.n_buckets, by), worker.run, bound.task_schema)
        rows_of_reports = done.select(REPORT).where(f"{REPORT} IS NOT NULL").collect()
        packed = [bytes(row[0]) for row in rows_of_reports]
        reports = [task.profile for task in newest_attempts(packed)]
        if {report.bucket for report in reports} != {*range(grid.n_buckets)}:
            msg = f"table {name!r} was not read by every task; start the query again"
            raise StateError(msg, table=name)
        self.n_rows[name] = sum(report.n_rows.get(name, 0) for report in reports)
        buckets = {**part.buckets}
        for report in reports:
            before = buckets.get(report.bucket, BucketState())
            runs = {**before.runs, name: report.after.runs.get(name, ())}
            buckets[report.bucket] = replace(before, runs=runs)
        return replace(part, buckets=buckets, versions={**part.versions, name: version})


def _check_types(table: JoinInput, rows: DataFrame, version: dict[str, Any], query: str) -> None:
    """Raise SourceError if a column that a join reads has another type than at its start."""
    before, now = dict(table.df.dtypes), dict(rows.dtypes)
    for column in dict.fromkeys([*table.needed, *table.compared]):
        if column in before and column in now and before[column] != now[column]:
            msg = (
                f"version {version['version']} of table {table.stream!r} has column {column!r} of "
                f"type {now[column]}, and query {query!r} began with {before[column]}; go back to "
                f"that type, or start the query with another checkpoint"
            )
            raise SourceError(msg, table=table.stream, column=column)


def words_of(codes: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the words of a filter of codes, by Spark's hashes; see ``state.cold_runs``."""
    words = np.zeros(max(1, codes.size // KEYS_PER_WORD), np.uint64)
    add_hashes(words, spark_hashes(codes))
    return words


def _lacks(df: DataFrame, code: str, words: NDArray[np.uint64]) -> Column:
    """Return whether a filter has not the code in a column; see ``state.cold_runs``."""
    words_table = pa.table({"words": pa.array([words.view(np.int64)], pa.list_(pa.int64()))})
    hashed, one = F.xxhash64(F.col(code)), F.lit(1).cast("bigint")
    place = F.shiftrightunsigned(F.shiftrightunsigned(hashed, 32) * F.lit(words.size), 32)
    word = F.get(df.sparkSession.createDataFrame(words_table).scalar(), place.cast("int"))
    bits = (F.shiftrightunsigned(hashed, 6 * k).bitwiseAND(63).cast("int") for k in range(4))
    # The number of bits of F.shiftleft is the same for all rows.
    masks = (F.call_function("shiftleft", one, bit) for bit in bits)
    mask = reduce(lambda some, other: some.bitwiseOR(other), masks)
    return mask.bitwiseAND(F.bitwise_not(word)) != 0
