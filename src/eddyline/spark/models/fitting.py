"""``el.models.fit``, ``declare`` and ``read``: segments of a DataFrame or files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    NumericType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from eddyline.errors import NotSupportedError, OptionError, QueryError
from eddyline.models.fitting.bounds import FitOptions, read_bounds, read_length
from eddyline.models.fitting.declared import ENDLESS_US, Declared, read_equations
from eddyline.models.fitting.fit import Fit
from eddyline.models.fitting.rates import Rate
from eddyline.models.fitting.stored import Stored
from eddyline.models.revisions import layout_of
from eddyline.models.segments import COEF, ERR, FLAGS, RESERVED, TIMES
from eddyline.models.solving import earth
from eddyline.models.steps import Shape
from eddyline.options import ModelOptions, check_names
from eddyline.registry import checked_text, unknown
from eddyline.spark.analysis import refused, unlogged
from eddyline.spark.models.frame import Segments
from eddyline.spark.models.graphs import Graph, check_attribute
from eddyline.spark.models.laying import Source, Versions, read_results, without_label
from eddyline.spark.relation import checked_frame, checked_relation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

    from eddyline.models.segments import Layout

_NESTED = (ArrayType, MapType, StructType, VariantType)
_WHOLE = (ByteType, ShortType, IntegerType, LongType)


def fit(
    df: DataFrame,
    *,
    key: str | Sequence[str] = (),
    time: str,
    track: Sequence[str] | None = None,
    within: Mapping[str, float | str] | float | None = None,
    attributes: Sequence[str] = (),
    max_gap: Any = None,
    lateness: str | None = None,
    results: str = "final",
    name: str = "models",
    lane: str = "auto",
    **options: Any,
) -> Segments:
    """Replace the rows of each entity by polynomials of time that are nowhere far from them.

    Rows without a time are left out, and so are values that are NULL, NaN or infinite. Rows of an
    entity at one instant are all within the bound, or the greatest value wins.

    Args:
        df: a batch DataFrame, or a stream.
        key: the columns that say of which entity a row is; none is one entity.
        time: the column of timestamps.
        track: the columns of latitude and longitude, in degrees. Positions become ``track``, in
            metres from the centre of the earth; ``within`` has its bound. Results that are rows
            have ``lat`` and ``lon``. Conditions may call ``distance(track, 47.6, -122.3)``,
            ``speed``, ``lat``, ``lon``, ``east`` and ``north``. NULL, NaN, infinite values, and
            AIS's 91 and 181 mean no position. So do numbers that are no degrees, which a
            stream counts.
        within: for each numeric column that is modelled the most that a model may be away from a
            row's value: in its unit, or a share of the value, such as ``"1 %"``; for
            ``track`` in metres, in any direction. A single number is the bound of the track.
        attributes: other numeric columns, which are modelled as near as what is asked of them
            needs; see ``Segments.within``.
        max_gap: a longer time between two rows of an entity has no model, such as ``10 minutes``,
            or seconds; None: there are no gaps, which a stream cannot have.
        lateness: of a stream, how much earlier than the latest row before it a row may be, such as
            ``1 minute``; later ones are counted and kept apart.
        results: of a stream, when they are given: ``final``, once, when no later row can change
            them, or ``early``, what the rows that have come give, which later ones take back; see
            ``latest``.
        name: of the query of a stream.
        lane: who reads the Parquet files of ``df``. ``auto``: of a stream tasks while that is
            faster, of a batch DataFrame tasks unless it is a table of the catalog or has more than
            ten million rows; ``on``: tasks wherever they can, tables of that size included;
            ``off``: Spark.
        **options: ``method``, ``degree``, ``prefix_rows`` and ``rounding``; see
            ``eddyline.models.fitting.bounds.FitOptions``.

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
    keys = (key,) if isinstance(key, str) else tuple(key)
    others = tuple(attributes) if isinstance(attributes, list | tuple) else (attributes,)
    check_keys(frame, keys, time, "fit")
    place = None if track is None else _track(frame, keys, track)
    if place is not None and not isinstance(within, Mapping | None):
        within = {earth.TRACK: within}
    bounds = {} if within is None and (others or place) else read_bounds(within)
    axes = () if place is None else earth.coordinates(earth.TRACK)
    bounds = earth.of_track(bounds, axes)
    unbounded = tuple(name for name in dict.fromkeys((*others, *axes)) if name not in bounds)
    names = (*bounds, *unbounded)
    _check_values(frame, keys, [name for name in names if name not in axes])
    earth.outputs(names)
    how = Fit(keys, time, bounds, _options(options, max_gap), unbounded, track=place)
    is_early = read_results(results, is_streaming=frame.isStreaming)
    ModelOptions(lane=lane)  # says what is wrong with it
    shape = Shape(keys, names)
    return _segments(frame, shape, how, name, lateness, is_early=is_early, lane=lane)


def declare(
    df: DataFrame,
    *,
    key: str | Sequence[str] = (),
    time: str,
    model: Mapping[str, str],
    horizon: Any = None,
    track: Any = None,
    within: Mapping[str, float | str] | None = None,
    lateness: str | None = None,
    results: str = "final",
    name: str = "models",
) -> Segments:
    """Make a segment of each row by equations: what the row says of the time behind it.

    It ends where the next row of its entity is, at the latest after the horizon. Rows without a
    time or a value are left out; of an entity's rows at one instant that of the greatest
    coefficients counts.

    Args:
        df: a batch DataFrame, or a stream.
        key: as for ``fit``.
        time: as for ``fit``.
        model: for each attribute a polynomial of ``t``, the seconds since the instant of the row,
            whose coefficients are expressions over its columns, or its rate, such as ``"d(x) = a -
            b * x"``. There an attribute is its value at the instant, which begins with the row's;
            it may have + - * /, ``pow``, ``exp``, ``ln``, ``sqrt``, ``abs``, ``sin``, ``cos``,
            ``tan``, ``tanh``, ``least`` and ``greatest``. It is solved numerically, and cut where
            it explodes; a stream counts that.
        horizon: for how long a row says something at most, such as ``10 minutes``, or seconds;
            None: until the next row of its entity, and the last one only at its instant.
        track: refused; the error says how a position is declared.
        within: how far a row's values may be from the model before it, which then goes on and the
            row makes none; an attribute without a bound has to be as predicted. None: every row
            makes a segment, unless bounds of results ask for less (``Segments.within``). Of a rate:
            how near pieces are to its solution, a distance; every row makes a model then.
        lateness: as for ``fit``.
        results: as for ``fit``; early ones go up to the horizon.
        name: as for ``fit``.

    Returns:
        Segments. Their error is 0 where they are of one row, and what ``within`` allows where they
        stand for several.

    Raises:
        QueryError: a column that is not there, or an equation that cannot be read.
        NotSupportedError: an equation that is no polynomial of ``t``.
        OptionError: as for ``fit``, or a share of 100 % or more.

    Example:
        >>> segments = el.models.declare(  # doctest: +SKIP
        ...     df, key="vessel", time="ts", horizon="10 minutes",
        ...     model={"x": "x + vx * t", "y": "y + vy * t"})
    """
    if track is not None:
        msg = (
            "models.declare has no track: give the equations of a position, model={'track_x': "
            "'x + vx * t', 'track_y': …, 'track_z': …}, in metres from the centre of the earth, or "
            "fit the positions of rows, el.models.fit(…, track=('lat', 'lon'))"
        )
        raise NotSupportedError(msg, track=repr(track))
    frame = checked_frame("the input of models.declare", df)
    keys = (key,) if isinstance(key, str) else tuple(key)
    equations = read_equations(model)
    check_keys(frame, keys, time, "declare")
    bounds = {} if within is None else read_bounds(within)
    horizon_us = ENDLESS_US if horizon is None else read_length("horizon", horizon)
    how = Declared(keys, time, equations, horizon_us, bounds)
    for attribute, text in how.columns.items():
        check_attribute(attribute, keys)
        equation = equations[attribute]
        is_rate = isinstance(equation, Rate)
        what = f"models.declare: {equation.said(attribute)}"
        if is_rate and attribute.lower() not in map(str.lower, frame.columns):
            msg = (
                f"{what}: it begins at the value in the row, and there is no such column: "
                f"{unknown('column', attribute, frame.columns)}"
            )
            raise QueryError(msg, attribute=attribute)
        try:
            with unlogged():
                kinds = frame.selectExpr(text, *equation.coefs).schema.fields[1:]
        except AnalysisException as error:
            raise refused(what, error, attribute=attribute) from error
        for coef, kind in zip(equation.coefs, kinds, strict=True):
            if not isinstance(kind.dataType, NumericType | NullType):
                of_type = f"{coef} is of type {kind.dataType.simpleString()}"
                raise QueryError(f"{what}: {of_type}; give numbers", attribute=attribute)
    is_early = read_results(results, is_streaming=frame.isStreaming)
    if is_early and how.is_endless:
        msg = "early results need a horizon: give horizon='2 minutes'"
        raise OptionError(msg, horizon=horizon)
    return _segments(frame, Shape(keys, tuple(equations)), how, name, lateness, is_early=is_early)


def read(
    source: str | DataFrame,
    *,
    version: str | None = None,
    lateness: str | None = None,
    results: str = "final",
    name: str = "models",
) -> Segments:
    """Return segments that were written before, or those of a stream as they come.

    Where segments of an entity overlap, that of the greatest version counts, and a tombstone takes
    back what it covers; of one version a segment counts before a tombstone. Without versions they
    must not overlap: a job looks for that when the segments are first used.

    Args:
        source: a path of parquet files, read by the active session, or a DataFrame with the columns
            of ``Segments.to_df``, where an ``origin`` that is NULL is ``lo``; columns that are none
            of these are keys, but ``validated`` of ``el.models.latest``.
        version: the column of whole numbers that rise as segments are written, NULL before all;
            None: that of early results (``version`` beside ``validated``), and none of others. Of
            a stream there is none: segments have to be final, and ``lo`` is their event time.
        lateness: of a stream, as for ``fit``.
        results: of a stream, as for ``fit``.
        name: of the query of a stream.

    Raises:
        QueryError: a column is missing, or of another type. When the segments are used: two of an
            entity overlap, and nothing says which counts.
        NotSupportedError: a key has texts of a collation, or segments of a stream have versions.
        OptionError: an attribute has a name that results have themselves.

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
    frame = without_label(frame)
    layout, version = layout_of(frame.columns, version)
    _check_types(frame, layout, version)
    shape = Shape(layout.keys, layout.attributes)
    is_early = read_results(results, is_streaming=frame.isStreaming)
    if frame.isStreaming:
        if version is not None:
            msg = (
                f"segments of a stream are final, and these have versions ({version!r}), so that "
                "later ones take them back; read them once written: el.models.latest(df), or make "
                "the stream of results='final'"
            )
            raise NotSupportedError(msg, version=version)
        how = Stored(layout.keys, layout.attributes)
        return _segments(frame, shape, how, name, lateness, is_early=is_early)
    whole = frame.withColumn("origin", F.coalesce("origin", "lo"))
    holding = Versions(whole, layout, version).holding
    return Segments(Graph.from_source(Source(whole, shape, holding=holding)))


def _track(df: DataFrame, keys: Sequence[str], columns: Any) -> tuple[str, str]:
    """Return the columns of latitude and longitude.

    Raises:
        OptionError: ``columns`` is not two different names, or a key is called ``lat`` or ``lon``.
        QueryError: a column does not exist, or is no number.
    """
    if isinstance(columns, str) or len(tuple(columns)) != 2 or len({*columns}) != 2:
        msg = f"track is the columns of latitude and longitude, ('lat', 'lon'), got {columns!r:.60}"
        raise OptionError(msg, track=repr(columns))
    lat, lon = (checked_text("column of track", name) for name in columns)
    types = column_kinds(df, (lat, lon), "fit")
    for name in (lat, lon):
        if not isinstance(types[name], NumericType):
            kind = types[name].simpleString()
            msg = f"models.fit: {name!r} of track is of type {kind}; give degrees, a number"
            raise QueryError(msg, attribute=name)
    for key in keys:
        if key.lower() in {earth.LAT, earth.LON}:
            msg = f"key {key!r} has the name of a column of positions in results; rename the key"
            raise OptionError(msg, key=key)
    return lat, lon


def _options(options: Mapping[str, Any], max_gap: Any) -> FitOptions:
    names = [field.name for field in fields(FitOptions) if field.name != "max_gap_us"]
    check_names("option of models.fit", options, names)
    gap = None if max_gap is None else read_length("max_gap", max_gap)
    return FitOptions(**options, max_gap_us=gap)


def _segments(
    df: DataFrame,
    shape: Shape,
    how: Fit | Declared | Stored,
    name: str,
    lateness: str | None,
    *,
    is_early: bool,
    lane: str = "auto",
) -> Segments:
    checked_relation(f"the input of query {checked_text('name', name)!r}", df, how.time, lateness)
    return Segments(Graph.from_source(Source(df, shape, how, name, lateness, is_early, lane=lane)))


def check_keys(df: DataFrame, keys: Sequence[str], time: str, what: str) -> None:
    """Check the columns that say whose and of when a row is.

    Raises:
        QueryError: one is not there, or of another type.
        NotSupportedError: a key has texts of a collation.
        OptionError: segments have a column of its name, or it is given twice.
    """
    types = column_kinds(df, [*keys, time], what)
    for name in keys:
        if isinstance(types[name], _NESTED):
            kind = types[name].simpleString()
            msg = f"models.{what}: key {name!r} is of type {kind}; give a column of plain values"
            raise QueryError(msg, key=name)
        _check_collation(name, types[name], what)
        if name in RESERVED or name.startswith((COEF, ERR)):
            msg = (
                f"models.{what}: key {name!r} has the name of a column of segments; rename the key"
            )
            raise OptionError(msg, key=name)
    if len({*keys}) < len(keys):
        msg = f"models.{what}: a key is given twice"
        raise OptionError(msg, key=list(keys))
    if not isinstance(types[time], TimestampType | TimestampNTZType):
        kind = types[time].simpleString()
        msg = f"models.{what}: time {time!r} is of type {kind}; give a timestamp"
        raise QueryError(msg, time=time)


def _check_collation(name: str, kind: DataType, what: str) -> None:
    """Refuse texts that are equal without being the same: they would be several entities."""
    if isinstance(kind, StringType) and kind.collation != "UTF8_BINARY":
        msg = (
            f"models.{what}: key {name!r} has a collation ({kind.simpleString()}), by which "
            f"different texts are equal; give lower({name}), or {name} COLLATE UTF8_BINARY"
        )
        raise NotSupportedError(msg, key=name)


def column_kinds(df: DataFrame, names: Sequence[str], what: str) -> dict[str, Any]:
    """Return the types of columns by name.

    Raises:
        QueryError: one is not there.
    """
    types = {field.name: field.dataType for field in df.schema}
    for name in names:
        if name not in types:
            raise QueryError(f"models.{what}: {unknown('column', name, list(types))}", name=name)
    return types


def _check_values(df: DataFrame, keys: Sequence[str], values: Sequence[str]) -> None:
    types = column_kinds(df, values, "fit")
    for name in values:
        check_attribute(name, keys)
        if not isinstance(types[name], NumericType):
            msg = f"models.fit: {name!r} is of type {types[name].simpleString()}; give a number"
            raise QueryError(msg, attribute=name)


def _check_types(df: DataFrame, layout: Layout, version: str | None) -> None:
    types = {field.name: field.dataType for field in df.schema}
    if version is not None and not isinstance(types[version], _WHOLE):
        kind = types[version].simpleString()
        msg = f"models.read: version {version!r} is of type {kind}; give whole numbers"
        raise QueryError(msg, version=version)
    for key in layout.keys:
        _check_collation(key, types[key], "read")
    for attribute in layout.attributes:
        check_attribute(attribute, layout.keys)
    wanted: list[tuple[str, Any, str]] = [
        *((name, TimestampType | TimestampNTZType, "a timestamp") for name in TIMES),
        *((name, BooleanType, "a boolean") for name in FLAGS),
        *((ERR + attribute, DoubleType, "a double") for attribute in layout.attributes),
    ]
    for name, kind, description in wanted:
        if not isinstance(types[name], kind):
            msg = f"models.read: {name!r} is {description}, got {types[name].simpleString()}"
            raise QueryError(msg, column=name)
    for name in (COEF + attribute for attribute in layout.attributes):
        column_type = types[name]
        if not isinstance(column_type, ArrayType) or not isinstance(
            column_type.elementType, DoubleType
        ):
            msg = f"models.read: {name!r} is an array of doubles, got {column_type.simpleString()}"
            raise QueryError(msg, column=name)
