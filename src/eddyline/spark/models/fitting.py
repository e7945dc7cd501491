"""``el.models.fit`` and ``el.models.read``: segments of the rows of a DataFrame, or of files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DoubleType,
    MapType,
    NumericType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from eddyline.errors import NotSupportedError, OptionError, QueryError
from eddyline.models.bounds import FitOptions, read_bounds, read_gap
from eddyline.models.rows import COEF, ERR, FLAGS, RESERVED, TIMES, Layout
from eddyline.models.steps import Shape
from eddyline.models.tasks import Fit
from eddyline.registry import unknown
from eddyline.spark.models.frame import Segments
from eddyline.spark.models.laying import Graph, Source
from eddyline.spark.models.names import check_attribute
from eddyline.spark.relation import checked_frame

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

_NESTED = (ArrayType, MapType, StructType, VariantType)


def fit(
    df: DataFrame,
    *,
    key: str | Sequence[str] = (),
    time: str,
    within: Mapping[str, float | str],
    max_gap: Any = None,
    **options: Any,
) -> Segments:
    """Replace the rows of each entity by polynomials of time that are nowhere far from them.

    Rows without a time are left out, and so are values that are NULL, NaN or infinite. Rows of an
    entity at one instant are all within the bound, or the greatest value wins.

    Args:
        df: a batch DataFrame.
        key: the columns that say of which entity a row is; none is one entity.
        time: the column of timestamps.
        within: for each numeric column that is modelled the most that a model may be away from a
            row's value: in its unit, or a share of the value, such as ``"1 %"``.
        max_gap: a longer time between two rows of an entity has no model, such as ``10 minutes``,
            or seconds; None: there are no gaps.
        **options: ``method``, ``degree`` and ``prefix_rows``; see
            ``eddyline.models.bounds.FitOptions``.

    Returns:
        Segments; nothing runs before they are used.

    Raises:
        QueryError: a column that is not there, or of a type that cannot be modelled.
        OptionError: a bound or an option that is none, or a name that segments need themselves.

    Example:
        >>> segments = el.models.fit(  # doctest: +SKIP
        ...     df, key="vessel", time="ts", within={"lat": 0.001, "lon": "1 %"})
        >>> segments.where("lat > 40.5 AND lon < -70").changes().show()  # doctest: +SKIP
    """
    frame = checked_frame("the input of models.fit", df)
    if frame.isStreaming:
        msg = "models.fit takes a batch DataFrame; inside foreachBatch each batch is one"
        raise NotSupportedError(msg)
    keys = (key,) if isinstance(key, str) else tuple(key)
    bounds = read_bounds(within)
    _check_columns(frame, keys, time, list(bounds))
    chosen = _options(options, max_gap)
    shape = Shape(keys, tuple(bounds))
    source = Source(frame, shape, Fit(keys, time, bounds, chosen))
    return Segments(Graph.of(source))


def read(source: str | DataFrame) -> Segments:
    """Return segments that were written before.

    Args:
        source: a path of parquet files, read by the active session, or a DataFrame with the columns
            of ``Segments.to_df``; columns that are none of these are keys.

    Raises:
        QueryError: a column is missing, or of another type.

    Example:
        >>> segments.write.parquet("segments/")  # doctest: +SKIP
        >>> el.models.read("segments/").sample("10 seconds").show()  # doctest: +SKIP
    """
    if isinstance(source, str):
        session = SparkSession.getActiveSession()
        if session is None:
            msg = "models.read of a path needs a running session; make one with el.session()"
            raise QueryError(msg)
        frame = session.read.parquet(source)
    else:
        frame = checked_frame("the input of models.read", source)
    layout = Layout.of(frame.columns)
    _check_types(frame, layout)
    shape = Shape(layout.keys, layout.attributes)
    return Segments(Graph.of(Source(frame, shape)))


def _options(given: Mapping[str, Any], max_gap: Any) -> FitOptions:
    known = ["method", "degree", "prefix_rows"]
    for name in given:
        if name not in known:
            raise OptionError(unknown("option of models.fit", name, known), name=name)
    return FitOptions(**given, max_gap_us=read_gap(max_gap))


def _check_columns(df: DataFrame, keys: Sequence[str], time: str, values: Sequence[str]) -> None:
    types = {each.name: each.dataType for each in df.schema}
    for name in [*keys, time, *values]:
        if name not in types:
            raise QueryError(f"models.fit: {unknown('column', name, list(types))}", name=name)
    for name in keys:
        if isinstance(types[name], _NESTED):
            kind = types[name].simpleString()
            msg = f"models.fit: key {name!r} is of type {kind}; give a column of plain values"
            raise QueryError(msg, key=name)
        if name in RESERVED or name.startswith((COEF, ERR)):
            msg = f"models.fit: segments have a column {name!r} themselves; rename the key"
            raise OptionError(msg, key=name)
    if len({*keys, *values}) < len(keys) + len(values):
        msg = "models.fit: a column is given twice, as key or in within"
        raise OptionError(msg, key=list(keys), within=list(values))
    if not isinstance(types[time], TimestampType | TimestampNTZType):
        msg = f"models.fit: time {time!r} is of type {types[time].simpleString()}; give a timestamp"
        raise QueryError(msg, time=time)
    for name in values:
        check_attribute(name, keys)
        if not isinstance(types[name], NumericType):
            msg = f"models.fit: {name!r} is of type {types[name].simpleString()}; give a number"
            raise QueryError(msg, attribute=name)


def _check_types(df: DataFrame, layout: Layout) -> None:
    types = {each.name: each.dataType for each in df.schema}
    wanted: list[tuple[str, Any, str]] = [
        *((each, TimestampType | TimestampNTZType, "a timestamp") for each in TIMES),
        *((each, BooleanType, "a boolean") for each in FLAGS),
        *((ERR + each, DoubleType, "a double") for each in layout.attributes),
    ]
    for name, kind, said in wanted:
        if not isinstance(types[name], kind):
            msg = f"models.read: {name!r} is {said}, got {types[name].simpleString()}"
            raise QueryError(msg, column=name)
    for name in (COEF + each for each in layout.attributes):
        found = types[name]
        if not isinstance(found, ArrayType) or not isinstance(found.elementType, DoubleType):
            msg = f"models.read: {name!r} is an array of doubles, got {found.simpleString()}"
            raise QueryError(msg, column=name)
