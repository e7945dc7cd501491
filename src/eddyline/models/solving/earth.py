"""Positions on the earth as metres from its centre.

Latitude and longitude are converted to and fro. A position in degrees becomes three attributes, its
earth-centred coordinates on the ellipsoid WGS84 (EPSG 4978): ``track_x`` towards latitude and
longitude 0, ``track_y`` towards 90 degrees east, ``track_z`` towards the north pole. They are
smooth everywhere, also at the antimeridian and the poles, and all entities share them. A speed is
the length of their slopes, a distance the length of the straight line between two positions. Both
compare as polynomials. On the surface a distance ``d`` is longer by ``d ** 3 / 24 / R ** 2``: 1 mm
at 10 km, 1 m at 100 km, 0.1 % at 1,000 km.

Attributes whose names end in ``track_x``, ``track_y`` and ``track_z`` make a position, called
``track``, ``left_track`` and so on. Results that are rows have latitude and longitude instead.
``speed_dx``, ``speed_dy`` and ``speed_dz`` make a vector. Results have its length.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from eddyline.errors import OptionError
from eddyline.models.fitting.bounds import Bound
from eddyline.models.segments import ERR
from eddyline.models.solving.expressions import (
    MIRRORED,
    And,
    Attribute,
    Condition,
    Expression,
    Number,
    Or,
    Power,
    Product,
    Root,
    Slope,
    Sum,
    compared,
    difference,
    negative,
)
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

TRACK, LAT, LON = "track", "lat", "lon"
"""The names of a position and of its columns in results."""
SPEED, DISTANCE, EAST, NORTH = "speed", "distance", "east", "north"
FUNCTIONS = {LAT: (1,), LON: (1,), SPEED: (1,), DISTANCE: (2, 3), EAST: (3,), NORTH: (3,)}
"""Possible numbers of arguments of each function of a position."""

EQUATOR_M = 6_378_137.0
"""The radius of the equator."""
_FLATTENING = 1 / 298.257223563
_E2 = _FLATTENING * (2 - _FLATTENING)
_POLE_M = EQUATOR_M * (1 - _FLATTENING)
"""Distance from the centre to a pole (m)."""
_POINT, _VECTOR = ("_x", "_y", "_z"), ("_dx", "_dy", "_dz")
_LIMITS = {LAT: 90.0, LON: 180.0}

Vector = tuple[Expression, Expression, Expression]


# -- names ----------------------------------------------------------------------------------------


def coordinates(name: str) -> tuple[str, str, str]:
    """Return the attributes of a position."""
    return f"{name}_x", f"{name}_y", f"{name}_z"


def components(name: str) -> tuple[str, str, str]:
    """Return the attributes of a vector; results have its length."""
    return f"{name}_dx", f"{name}_dy", f"{name}_dz"


def is_position(name: str) -> bool:
    """Return whether a name may be that of a position: its last word is ``track``."""
    return name.lower().replace(".", "_").split("_")[-1] == TRACK


def position_of(name: str, attributes: Collection[str]) -> tuple[str, str, str] | None:
    """Return the attributes of a position by its name, in any case; None if there is none."""
    spellings = {attribute.lower(): attribute for attribute in attributes}
    names = [spellings.get(axis.lower()) for axis in coordinates(name)]
    if not is_position(name) or None in names:
        return None
    return names[0], names[1], names[2]  # type: ignore[return-value]  # none of them is None


def positions_in(attributes: Collection[str]) -> list[str]:
    """Return the names of the positions that attributes make."""
    names = [
        attribute.removesuffix(_POINT[0])
        for attribute in attributes
        if attribute.endswith(_POINT[0])
    ]
    return [name for name in names if position_of(name, attributes) is not None]


@dataclass(frozen=True, slots=True)
class Output:
    """A column of results that are rows, and its error, as SQL over the attributes."""

    name: str
    value: str
    error: str


def outputs(attributes: Sequence[str]) -> dict[str, tuple[Output, ...]]:
    """Return the columns that replace positions and vectors in results, by attribute.

    The first attribute of a position or vector has its columns, and the others have none.

    Raises:
        OptionError: two columns of results would have one name.
    """
    columns: dict[str, tuple[Output, ...]] = {}
    for name in attributes:
        point, vector = name.removesuffix(_POINT[0]), name.removesuffix(_VECTOR[0])
        if name.endswith(_POINT[0]) and position_of(point, attributes):
            columns |= _group(coordinates(point), _of_point(point))
        elif name.endswith(_VECTOR[0]) and {*components(vector)} <= {*attributes}:
            columns |= _group(components(vector), (_of_vector(vector),))
    if columns:
        _check_names(attributes, columns)
    return columns


def _group(names: tuple[str, ...], columns: tuple[Output, ...]) -> dict[str, tuple[Output, ...]]:
    return {name: () if number else columns for number, name in enumerate(names)}


def _check_names(attributes: Sequence[str], columns: Mapping[str, Sequence[Output]]) -> None:
    names = [attribute for attribute in attributes if attribute not in columns]
    names += [column.name for group in columns.values() for column in group]
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            msg = (
                f"results would have two columns {name!r}, one of a position or a speed; give the "
                "other attribute another name"
            )
            raise OptionError(msg, name=name)
        seen.add(name.lower())


def of_track(bounds: Mapping[str, Bound], attributes: Collection[str]) -> dict[str, Bound]:
    """Return bounds in which the axes share the bound of their position or length.

    Args:
        bounds: by name; for a position in metres, in any direction.
        attributes: the attributes.

    Raises:
        OptionError: the bound of a position or a length is relative.
    """
    names = {attribute.lower(): attribute for attribute in attributes}
    axis_bounds: dict[str, Bound] = {}
    for name, bound in bounds.items():
        vector = [names[part] for part in components(name.lower()) if part in names]
        axes = position_of(name, attributes) or (vector if len(vector) == len(_VECTOR) else ())
        if not axes or name.lower() in names:
            axis_bounds[name] = bound
            continue
        if bound.is_relative:
            msg = (
                f"the bound of a position, a speed or a distance is in its unit, such as 50.0; got "
                f"{bound} of {name!r}"
            )
            raise OptionError(msg, attribute=name)
        axis_bounds |= dict.fromkeys(axes, Bound(bound.value / math.sqrt(len(axes))))
    return axis_bounds


# -- degrees and metres ---------------------------------------------------------------------------


def earth_centred(lat: float, lon: float) -> tuple[float, float, float]:
    """Return the coordinates (m) of a point on the ellipsoid, given in degrees."""
    north_sin, north_cos = _sin_cos(lat)
    east_sin, east_cos = _sin_cos(lon)
    curvature = EQUATOR_M / math.sqrt(1 - _E2 * north_sin**2)
    around = curvature * north_cos
    return around * east_cos, around * east_sin, curvature * (1 - _E2) * north_sin


def _sin_cos(degrees: float) -> tuple[float, float]:
    """Return sine and cosine of an angle; multiples of 90 degrees have no rounding of pi."""
    sine, cosine = math.sin(math.radians(degrees)), math.cos(math.radians(degrees))
    return (sine if degrees % 180 else 0.0), (cosine if degrees % 180 != 90 else 0.0)


def columns_of(lat: str, lon: str) -> dict[str, str]:
    """Return the coordinates of a position as SQL over columns of degrees.

    They are NULL if a value is NULL, NaN, infinite, or AIS's code for no position (91 and 181).
    They are NaN if the values are other numbers that are no degrees. Neither is a position, and
    reports count the second kind.
    """
    north, east = (f"CAST({quoted(column)} AS DOUBLE)" for column in (lat, lon))
    north_sin, north_cos = _sin_cos_of(north)
    # Longitudes up to 360 are the same meridians, without the rounding of a larger angle.
    east_sin, east_cos = _sin_cos_of(f"IF({east} > 180, {east} - 360, {east})")
    curvature = f"({EQUATOR_M!r}D / sqrt(1 - {_E2!r}D * pow({north_sin}, 2)))"
    values = (
        f"{curvature} * {north_cos} * {east_cos}",
        f"{curvature} * {north_cos} * {east_sin}",
        f"{curvature} * {1 - _E2!r}D * {north_sin}",
    )
    is_there = f"{north} BETWEEN -90 AND 90 AND {east} BETWEEN -180 AND 360"
    none = " OR ".join(
        f"{axis} IS NULL OR isnan({axis}) OR abs({axis}) = DOUBLE('Infinity') OR {axis} = {missing}"
        for axis, missing in ((north, 91), (east, 181))
    )
    return {
        name: f"CASE WHEN {none} THEN NULL WHEN {is_there} THEN {value} ELSE DOUBLE('NaN') END"
        for name, value in zip(coordinates(TRACK), values, strict=True)
    }


def _sin_cos_of(degrees: str) -> tuple[str, str]:
    """Return ``_sin_cos`` as SQL, for angles from -180 to 180 degrees."""
    sine = f"IF(abs({degrees}) = 180, 0D, sin(radians({degrees})))"
    return sine, f"IF(abs({degrees}) = 90, 0D, cos(radians({degrees})))"


def _of_point(name: str) -> tuple[Output, ...]:
    """Return latitude and longitude [Bowring 1976], exact to less than 1 mm near the surface."""
    x, y, z = map(quoted, coordinates(name))
    around = f"sqrt({x} * {x} + {y} * {y})"
    angle = f"atan2({z} * {EQUATOR_M!r}D, {around} * {_POLE_M!r}D)"
    up = f"{z} + {_E2 / (1 - _E2) * _POLE_M!r}D * pow(sin({angle}), 3)"
    out = f"{around} - {_E2 * EQUATOR_M!r}D * pow(cos({angle}), 3)"
    prefix = name[: len(name) - len(TRACK)]
    error = _length([quoted(ERR + axis) for axis in coordinates(name)])
    # The meridian is curved most at the equator, so a metre is most degrees of latitude there.
    of_lat = f"least({error} / {math.radians(1) * EQUATOR_M * (1 - _E2)!r}D, 180D)"
    of_lon = f"IF({error} >= {around}, 180D, degrees(asin({error} / {around})))"
    return (
        Output(f"{prefix}{LAT}", f"degrees(atan2({up}, {out}))", of_lat),
        Output(f"{prefix}{LON}", f"degrees(atan2({y}, {x}))", of_lon),
    )


def _of_vector(name: str) -> Output:
    names = components(name)
    error = _length([quoted(ERR + part) for part in names])
    return Output(name, _length([*map(quoted, names)]), error)


def _length(texts: Sequence[str]) -> str:
    return f"sqrt({' + '.join(f'{text} * {text}' for text in texts)})"


# -- expressions and conditions -------------------------------------------------------------------


def point(names: Sequence[str]) -> Vector:
    """Return a position by the names of its attributes."""
    x, y, z = map(Attribute, names)
    return x, y, z


def place(lat: float, lon: float) -> Vector:
    """Return a fixed position, given in degrees."""
    x, y, z = map(Number, earth_centred(lat, lon))
    return x, y, z


def apart(one: Vector, other: Vector) -> Root:
    """Return the distance of two positions."""
    return length([difference(*both) for both in zip(one, other, strict=True)])


def pace(position: Vector) -> Root:
    """Return the speed of a position (m/s)."""
    return length([Slope(axis) for axis in position])


def length(parts: Sequence[Expression]) -> Root:
    """Return the length of a vector."""
    squares: list[Expression] = [Power(part, 2) for part in parts]
    return Root(reduce(Sum, squares))


def lengths_compared(one: Expression, op: str, other: Expression) -> Condition | None:
    """Return a comparison of squares for that of a length with a number or a length, else None.

    A square that rounding takes below 0 is still less than any length.
    """
    squares: list[Expression] = []
    for side in (one, other):
        match side:
            case Root(part) if vector_in(side) is not None:
                squares.append(part)
            case Number(value):
                squares.append(Number(value * abs(value)))
    are_two = len(squares) == 2 and not (isinstance(one, Number) and isinstance(other, Number))
    return compared(squares[0], op, squares[1]) if are_two else None


def vector_in(expression: Expression) -> Vector | None:
    """Return the vector of three axes whose length an expression is; None if there is none."""
    match expression:
        case Root(Sum(Sum(Power(x, 2), Power(y, 2)), Power(z, 2))):
            return x, y, z
    return None


def towards(position: Vector, lat: float, lon: float, name: str) -> Expression:
    """Return how far east or north of a place a position is, on the plane that touches it (m)."""
    north, east = math.radians(lat), math.radians(lon)
    axis = {
        EAST: (-math.sin(east), math.cos(east), 0.0),
        NORTH: (
            -math.sin(north) * math.cos(east),
            -math.sin(north) * math.sin(east),
            math.cos(north),
        ),
    }[name]
    away = [difference(*both) for both in zip(position, place(lat, lon), strict=True)]
    return _weighted(away, axis)


def _weighted(parts: Sequence[Expression], weights: Sequence[float]) -> Expression:
    terms: list[Expression] = [
        Product(Number(weight), part)
        for part, weight in zip(parts, weights, strict=True)
        if weight != 0
    ]
    return reduce(Sum, terms)


def check_degrees(name: str, value: float) -> None:
    """Check an angle (degrees) in a comparison with a position.

    Raises:
        OptionError: the angle is out of range.
    """
    most = _LIMITS[name]
    if not -most <= value <= most:
        advice = {
            LAT: "",
            LON: "; across the antimeridian write lon(track) > 170 OR lon(track) < -170",
        }[name]
        msg = f"{name} is from {-most:g} to {most:g} degrees, got {value:g}{advice}"
        raise OptionError(msg, got=value)


def angle_compared(name: str, position: Vector, op: str, value: float) -> Condition:
    """Return a comparison of latitude or longitude with degrees.

    180 and -180 are one meridian. Beside other longitudes its value is 180.
    """
    check_degrees(name, value)
    most = _LIMITS[name]
    if name == LON and abs(value) == most and op in {"=", "<>", *_TOWARDS[value > 0]}:
        return _antimeridian(position, is_on="=" in op)
    if (op, value) in {(">", most), ("<=", most), ("<", -most), (">=", -most)}:
        # No position is beyond, whatever rounding says of those at the limit.
        return compared(Power(position[0], 2), ">=" if op in {"<=", ">="} else "<", Number(0.0))
    return _lat_compared(position, op, value) if name == LAT else _lon_compared(position, op, value)


_TOWARDS = {True: {">=", "<"}, False: {"<=", ">"}}
"""Comparisons that hold or fail on the antimeridian alone, with 180 (True) and -180 degrees."""


def _antimeridian(position: Vector, *, is_on: bool) -> Condition:
    """Return whether a position is on the meridian of 180 degrees, or is not."""
    x, y, _ = position
    if is_on:
        return And((compared(y, "=", Number(0.0)), compared(x, "<", Number(0.0))))
    return Or((compared(y, "<>", Number(0.0)), compared(x, ">=", Number(0.0))))


def _lat_compared(position: Vector, op: str, degrees: float) -> Condition:
    """Return a comparison with the cone of points that have a latitude, whatever their height."""
    x, y, z = position
    if degrees < 0:
        return _lat_compared((x, y, negative(z)), MIRRORED[op], -degrees)
    sine, cosine = _sin_cos(degrees)
    if sine == 0:
        return compared(z, op, Number(0.0))
    apex = _E2 * EQUATOR_M / math.sqrt(1 - _E2 * sine**2) * sine
    high = Product(Number(cosine / sine), Sum(z, Number(apex)))
    squares = compared(Power(high, 2), op, Sum(Power(x, 2), Power(y, 2)))
    if op in {">", ">=", "="}:
        return And((compared(high, ">", Number(0.0)), squares))
    return Or((compared(high, "<=", Number(0.0)), squares))


def _lon_compared(position: Vector, op: str, degrees: float) -> Condition:
    """Return a comparison with half planes that the axis of the earth bounds."""
    x, y, _ = position
    sine, cosine = _sin_cos(degrees)
    ahead = _weighted((y, x), (cosine, -sine))
    east = compared(y, ">=" if op in {">", ">="} else "<", Number(0.0))
    if op in {"=", "<>"}:
        side = _weighted((x, y), (cosine, sine))
        beside = compared(side, ">" if op == "=" else "<=", Number(0.0))
        on = compared(ahead, op, Number(0.0))
        return And((on, beside)) if op == "=" else Or((on, beside))
    # Longitudes above a western meridian include the whole eastern half (y >= 0). Those above an
    # eastern meridian lie within that half.
    both = (compared(ahead, op, Number(0.0)), east)
    is_any = (degrees < 0) == (op in {">", ">="})
    return Or(both) if is_any else And(both)
