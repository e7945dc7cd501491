"""The inputs of a join as one DataFrame: tagged, with codes, in columns that they share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from eddyline.errors import NotSupportedError, QueryError
from eddyline.query.predicates import FunctionPredicate, SqlPredicate
from eddyline.spark.filters.conjunction import all_of
from eddyline.spark.joins.layout import KEY, SLOT, START, TEXT_OF, WIDTHS, Layouts
from eddyline.sql.parsing import quoted
from eddyline.state.grid import N_BINS
from eddyline.state.rows import ALWAYS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from eddyline.query.query import Input, KeyClass, Query
    from eddyline.spark.joins.layout import InputLayout
    from eddyline.state.grid import Grid, Split

INPUT, PASSES, BUCKET = "__input", "__passes", "__bucket"
"""The columns that say which input a row is of, whether it can join at all, and its bucket."""

PART = "__part"
"""The column that says where a row's bucket is along a side of the grid (numbered)."""

_EPOCH = "TIMESTAMP_NTZ '1970-01-01 00:00:00'"


@dataclass(frozen=True, slots=True)
class Source:
    """The inputs of a join as one DataFrame."""

    streams: DataFrame | None
    """The rows of the streams; None if there is none."""
    tables: DataFrame | None
    """The rows of the static tables; None if there is none."""
    layouts: tuple[InputLayout, ...]
    rough: tuple[int, ...]
    """Key classes whose codes are hashes: where they are equal, the keys are compared again."""

    @property
    def raw(self) -> tuple[int, ...]:
        """The numbers of the inputs of which rows that cannot join come, too."""
        return tuple(each.number for each in self.layouts if each.is_raw)


def source_of(
    query: Query,
    frames: Mapping[str, DataFrame],
    times: Mapping[str, str | None],
    needed: Mapping[str, Sequence[str]],
    compared: Mapping[str, Sequence[str]],
) -> Source:
    """Return the inputs of a join as one DataFrame.

    Every row is there; one that no predicate of its input lets through, or that has a NULL in a
    key, never joins and is marked.

    Args:
        query: the join.
        frames: the DataFrame of each stream and table.
        times: its event-time column; None for a table.
        needed: by input, the columns that results need.
        compared: by input, the columns that equalities read.

    Raises:
        QueryError: keys that cannot be compared, or an event time that is no time.
        NotSupportedError: a predicate that is not supported yet, or rows that are grouped by a
            column that has no order.
    """
    kinds = [_key_type(key, query.inputs, frames) for key in query.keys]
    places = Layouts(query, kinds, needed, compared)
    layouts = tuple(
        places.add(number, frames[each.stream], times[each.stream])
        for number, each in enumerate(query.inputs)
    )
    types = dict.fromkeys([f"{KEY}{k}" for k in range(len(kinds))], "bigint")
    types |= {f"{SLOT}{number}": kind for number, kind in enumerate(places.slots)}
    streams: list[DataFrame] = []
    tables: list[DataFrame] = []
    for each, layout in zip(query.inputs, layouts, strict=True):
        df, time = _asked(frames[each.stream], each, layout), times[each.stream]
        tests = _tests(each, [query.keys[k] for k in layout.keys])
        codes = {
            f"{KEY}{k}": _only(tests, _code(query.keys[k].members[each.name][0], kinds[k]))
            for k in layout.keys
        }
        slots = {place: _column(name) for name, place in layout.carried if place in types}
        own = slots | codes
        passes = reduce(and_, [code.isNotNull() for code in codes.values()])
        tags = {INPUT: F.lit(layout.number), PASSES: passes, START: _start(df, each, time)}
        filled = {name: own.get(name, F.lit(None)).cast(kind) for name, kind in types.items()}
        part = df.select(*[column.alias(name) for name, column in (tags | filled).items()])
        (tables if time is None else streams).append(part)
    return Source(_union(streams), _union(tables), layouts, places.rough)


def arrow_schema(spark: SparkSession, schema: StructType) -> pa.Schema:
    """Return what Spark takes for a schema from Arrow, by the session's settings."""
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    is_large = str(spark.conf.get("spark.sql.execution.arrow.useLargeVarTypes", "false"))
    return to_arrow_schema(schema, timezone=zone, prefers_large_types=is_large == "true")


def placed(df: DataFrame, grid: Grid, source: Source) -> DataFrame:
    """Return the rows that can join, each in the partitions that are its buckets.

    Args:
        df: rows of the source.
        grid: how they are cut into buckets; one if there are inputs of which all rows are needed.
        source: the inputs.
    """
    is_needed = F.col(PASSES) | F.col(INPUT).isin(*source.raw) if source.raw else F.col(PASSES)
    df = df.where(is_needed & F.col(START).isNotNull())
    bucket = F.lit(0)
    for key, size in enumerate(grid.shape):
        if size == 1:
            continue
        code = F.col(f"{KEY}{key}")
        part = _bin_of(code) % size
        cases = [
            (_bin_of(code) == split.bin, _parts_of(split, size, source.layouts))
            for split in grid.splits
            if split.key == key
        ]
        if not all(key in each.keys for each in source.layouts):
            cases.insert(0, (code.isNull(), F.array(*map(F.lit, range(size)))))
        if cases:
            parts = F.array(part)
            for is_one, its_parts in reversed(cases):
                parts = F.when(is_one, its_parts).otherwise(parts)
            df = df.withColumn(f"{PART}{key}", F.explode(parts))
            part = F.col(f"{PART}{key}")
        bucket = bucket * size + part
    if any(name.startswith(PART) for name in df.columns):
        df = df.withColumn(BUCKET, bucket)
        bucket = F.col(BUCKET)
    kept = [name for name in df.columns if not name.startswith(PART)]
    if not source.raw:
        kept.remove(PASSES)
    return df.select(*kept).repartitionById(grid.n_buckets, bucket)


def _bin_of(code: Column) -> Column:
    """Return the bin of a code; see ``grid.bins_of``."""
    return F.pmod(F.xxhash64(code), F.lit(N_BINS)).cast("int")


def _parts_of(split: Split, size: int, layouts: Sequence[InputLayout]) -> Column:
    """Return where along a key class, of so many parts, a row of a bin that is split is."""
    cases = []
    for each in layouts:
        n_parts, step = split.side(each.name)
        first = _bin_of(F.col(START)) % n_parts * step + split.bin
        places = F.array(*[(first + copy) % size for copy in split.copies(each.name)])
        cases.append(F.when(F.col(INPUT) == each.number, places))
    return F.coalesce(*cases)


def _union(parts: Sequence[DataFrame]) -> DataFrame | None:
    return reduce(lambda one, other: one.unionByName(other), parts) if parts else None


def _column(name: str) -> Column:
    """Return a column that an input carries."""
    plain = F.col(quoted(name.removeprefix(TEXT_OF)))
    return F.when(plain.isNotNull(), F.to_json(F.array(plain))) if TEXT_OF in name else plain


def _asked(df: DataFrame, each: Input, layout: InputLayout) -> DataFrame:
    """Return the rows that the Python predicates of an input let through.

    Raises:
        NotSupportedError: the others count, too.
    """
    functions = [given for given in each.predicates if isinstance(given, FunctionPredicate)]
    if not functions:
        return df
    if layout.is_raw:
        msg = (
            f"the Python predicate {functions[0].name!r} reads {each.name!r}, of which every row "
            f"counts (ROWS, RSTREAM); that is not supported yet: use SQL there"
        )
        raise NotSupportedError(msg, input=each.name)
    return df.transform(all_of(*functions))


def _tests(each: Input, keys: Sequence[KeyClass]) -> list[Column]:
    """Return what must be true of a row that joins: its input's own conjuncts."""
    written = [predicate for predicate in each.predicates if isinstance(predicate, SqlPredicate)]
    tests = [F.expr(f"({predicate.text}\n)") for predicate in written]
    for key in keys:
        first, *others = key.members[each.name]
        tests += [F.expr(f"({first}\n) = ({other}\n)") for other in others]
    return tests


def _only(tests: Sequence[Column], code: Column) -> Column:
    """Return the code of the rows of which all tests are true, else NULL.

    What a test keeps out cannot raise an error in the expression of a key.
    """
    return F.when(reduce(and_, tests), code) if tests else code


def _key_type(key: KeyClass, inputs: Sequence[Input], frames: Mapping[str, DataFrame]) -> str:
    """Return the type in which the members of a key class are compared.

    Raises:
        QueryError: a member cannot be resolved, or they are of types that SQL would convert.
    """
    found: dict[str, str] = {}
    for each in inputs:
        for text in key.members.get(each.name, ()):
            try:
                found[f"{each.name}: {text}"] = (
                    frames[each.stream].select(F.expr(text)).dtypes[0][1]
                )
            except AnalysisException as error:
                msg = f"the key {text!r} of {each.name!r} cannot be resolved: {error}"
                raise QueryError(msg, input=each.name, key=text) from error
    kinds = set(found.values())
    if kinds <= set(WIDTHS):
        return max(kinds, key=WIDTHS.index)
    if kinds <= {"float", "double"}:
        return "double"
    if len(kinds) == 1:
        return kinds.pop()
    if all(kind in WIDTHS or kind.startswith("decimal") for kind in kinds):
        return "decimal"
    listed = ", ".join(f"{what} ({kind})" for what, kind in found.items())
    msg = f"keys of different types are compared: {listed}; cast them to one type"
    raise QueryError(msg, types=found)


def _code(text: str, kind: str) -> Column:
    """Return the code of a key: equal wherever SQL says that the keys are equal."""
    value = F.expr(f"({text}\n)")
    if kind in WIDTHS:
        return value.cast("bigint")
    if kind == "boolean":
        return value.cast("int").cast("bigint")
    if kind == "date":
        return F.unix_date(value).cast("bigint")
    if kind == "timestamp":
        return F.unix_micros(value)
    if kind == "timestamp_ntz":
        return F.expr(f"timestampdiff(MICROSECOND, {_EPOCH}, ({text}\n))")
    there = value.isNotNull()
    if kind == "double":
        # 0.0 and -0.0 are equal, and so are all NaN.
        wide = value.cast("double")
        value = F.when(wide == 0, 0.0).when(F.isnan(wide), F.lit(float("nan"))).otherwise(wide)
    elif kind == "decimal":
        # Equal ones are equal as doubles, too; unequal ones are compared again.
        value = value.cast("double")
    return F.when(there, F.xxhash64(value))


def _start(df: DataFrame, each: Input, time: str | None) -> Column:
    """Return the event time of rows (µs)."""
    if time is None:
        return F.lit(ALWAYS)
    kind = dict(df.dtypes)[time]
    if kind == "timestamp":
        return F.unix_micros(F.col(quoted(time)))
    if kind == "timestamp_ntz":
        return F.expr(f"timestampdiff(MICROSECOND, {_EPOCH}, {quoted(time)})")
    msg = f"the event time {time!r} of {each.stream!r} is of type {kind}; give a timestamp"
    raise QueryError(msg, stream=each.stream, time=time)
