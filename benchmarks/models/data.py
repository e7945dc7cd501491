"""The inputs of the benchmarks of models: real ones, and seeded ones versioned by name.

Rows come by entity and time, with dense ids of entities and times in microseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks.harness.needs import data_folder
from eddyline.data.arrays import Floats, Indices, Ints, Mask
from eddyline.models.fitting.bounds import Bound

SECOND_US = 1_000_000

VESSELS = "vessels/ais_2022-01-03_sample.parquet"
SENSORS = "sensors/intel_temperature_30s.parquet"


@dataclass(frozen=True)
class Rows:
    """Rows of entities: ids, times (µs) and the values of each attribute, ``[n]``."""

    keys: Ints
    times: Ints
    values: dict[str, Floats]

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, rows: Indices | Mask) -> Rows:
        """Return the rows at places or under a mask."""
        values = {name: each[rows] for name, each in self.values.items()}
        return Rows(self.keys[rows], self.times[rows], values)

    @property
    def by_entity(self) -> Rows:
        """The rows by entity and time."""
        return self.take(np.lexsort((self.times, self.keys)))

    @property
    def by_time(self) -> Rows:
        """The rows as they come."""
        return self.take(np.argsort(self.times, kind="stable"))

    def copies(self, n: int) -> Rows:
        """Return the rows of so many times as many entities."""
        more = int(self.keys.max()) + 1
        keys = np.concatenate([self.keys + each * more for each in range(n)])
        values = {name: np.tile(each, n) for name, each in self.values.items()}
        return Rows(keys, np.tile(self.times, n), values)

    def within(self, bound: str | float) -> dict[str, Bound]:
        """Return one bound for all attributes."""
        return {name: Bound.of(name, bound) for name in self.values}

    @property
    def table(self) -> pa.Table:
        """The rows as they are stored."""
        times = pa.array(self.times).cast(pa.timestamp("us"))
        return pa.table({"key": self.keys, "ts": times, **self.values})


def lines_of(values: Floats, slopes: Floats) -> pa.Array:
    """Return the coefficients of lines, as declared models have them."""
    ends = np.arange(len(values) + 1, dtype=np.int32) * 2
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(np.stack([values, slopes], 1).ravel()))


def _read(path: str, key: str, time: str, names: dict[str, str]) -> Rows:
    table = parquet.read_table(data_folder() / path, columns=[key, time, *names.values()])
    keys = np.unique(table[key].to_numpy(), return_inverse=True)[1].astype(np.int64)
    times = table[time].cast(pa.timestamp("us"), safe=False).cast(pa.int64()).to_numpy()
    values = {name: table[column].to_numpy() for name, column in names.items()}
    return Rows(keys, times, values).by_entity


def vessels() -> Rows:
    """Return positions of 10,631 vessels in a day, some nine each (degrees)."""
    return _read(VESSELS, "MMSI", "BaseDateTime", {"lat": "LAT", "lon": "LON"})


def trades() -> Rows:
    """Return the prices of a day's trades of three stocks."""
    return _read("ticks/trades.parquet", "symbol", "ts", {"price": "price"})


def quotes() -> Rows:
    """Return the best bids and asks of the same."""
    return _read("ticks/quotes.parquet", "symbol", "ts", {"bid": "bid", "ask": "ask"})


def sensors() -> Rows:
    """Return temperatures of 52 sensors, every 30 seconds."""
    return _read(SENSORS, "sensor", "ts_synthetic", {"temperature": "temperature"})


REAL: dict[str, Callable[[], Rows]] = {
    "vessels": vessels,
    "trades": trades,
    "quotes": quotes,
    "sensors": sensors,
}


@dataclass(frozen=True)
class Moving:
    """Objects that move in straight lines, and turn after so many rows [Pulse 2.7.1]."""

    n_rows: int
    """Of all objects."""
    per_segment: int
    """Rows of an object from one turn to the next."""
    n_objects: int = 10
    every_us: int = 100_000
    """The time between two rows of an object (µs)."""
    speed: float = 50.0
    """The most along an axis (m/s)."""
    extent: float = 1_000.0
    """Half the side of the square at whose borders objects turn back (m)."""
    seed: int = 0


def moving_v1(shape: Moving) -> Rows:
    """Return positions ``x`` and ``y`` of objects, and their velocities ``vx`` and ``vy``.

    An object begins a leg where the last one ended, with another velocity, uniform along each axis;
    one that would leave the square goes the other way.
    """
    rng = np.random.default_rng([shape.seed, 91])
    n_each = shape.n_rows // shape.n_objects
    n_legs = -(-n_each // shape.per_segment)
    leg_s = shape.per_segment * shape.every_us / SECOND_US
    rows = np.arange(n_each)
    leg, since = rows // shape.per_segment, rows % shape.per_segment * shape.every_us / SECOND_US
    values: dict[str, Floats] = {}
    for name in ("x", "y"):
        velocity = rng.uniform(-shape.speed, shape.speed, (n_legs, shape.n_objects))
        begin = np.empty((n_legs, shape.n_objects))
        at = rng.uniform(-shape.extent, shape.extent, shape.n_objects)
        for each in range(n_legs):
            begin[each] = at
            leaves = np.abs(at + velocity[each] * leg_s) > shape.extent
            velocity[each, leaves] *= -1.0
            at = np.clip(at + velocity[each] * leg_s, -shape.extent, shape.extent)
        values[name] = (begin[leg] + velocity[leg] * since[:, None]).T.ravel()
        values[f"v{name}"] = velocity[leg].T.ravel()
    times = np.tile(rows * shape.every_us, shape.n_objects)
    # Objects do not report at the same instants.
    shift = np.arange(shape.n_objects) * (shape.every_us // shape.n_objects)
    times = times + np.repeat(shift, n_each)
    keys = np.repeat(np.arange(shape.n_objects), n_each)
    return Rows(keys, times, values)


DEGREE_M = 111_195.0
"""Metres in a degree of latitude."""

NORTH = float(np.cos(np.radians(37.0)))
"""How much shorter a degree of longitude is at 37 degrees north."""

T0_US = 1_640_995_200 * SECOND_US
"""Where made up streams begin (2022-01-01)."""


def in_metres(rows: Rows) -> Rows:
    """Return positions in metres, ``x`` and ``y``, of a plate carrée at 37 degrees north."""
    x = rows.values["lon"] * (DEGREE_M * NORTH)
    return replace(rows, values={"x": x, "y": rows.values["lat"] * DEGREE_M})


@dataclass(frozen=True)
class Fleet:
    """Vessels on straight legs, some in convoy, a report every ten seconds (spec 5.1)."""

    n_vessels: int
    hours: int
    leg_us: int = 1_800 * SECOND_US
    every_us: int = 10 * SECOND_US
    seed: int = 0


def fleet_v1(shape: Fleet) -> Rows:
    """Return positions ``lat`` and ``lon`` of vessels in a square of two degrees (degrees).

    Every tenth vessel follows the one before it, 300 m or so beside it. Speeds are up to 10 m/s,
    positions are some 5 m off, and vessels report at instants of their own.
    """
    rng = np.random.default_rng([shape.seed, 92])
    n_each = shape.hours * 3_600 * SECOND_US // shape.every_us
    n_legs = n_each * shape.every_us // shape.leg_us + 2
    heading = rng.uniform(0, 2 * np.pi, (n_legs, shape.n_vessels))
    speed = rng.uniform(0, 10.0, (n_legs, shape.n_vessels)) * shape.leg_us / SECOND_US
    moves = np.stack([speed * np.sin(heading), speed * np.cos(heading)])
    start = rng.uniform(-100_000, 100_000, (2, 1, shape.n_vessels))
    turns = np.concatenate([start, start + np.cumsum(moves, axis=1)], axis=1)
    follows = np.arange(9, shape.n_vessels, 10)
    turns[:, :, follows] = turns[:, :, follows - 1] + 200.0
    shift = rng.integers(0, shape.every_us, shape.n_vessels)
    since = np.arange(n_each)[:, None] * shape.every_us + shift
    leg, part = since // shape.leg_us, since % shape.leg_us / shape.leg_us
    vessel = np.arange(shape.n_vessels)
    at = turns[:, leg, vessel] * (1 - part) + turns[:, leg + 1, vessel] * part
    at += rng.normal(0, 5.0, at.shape)
    degrees = at / DEGREE_M
    values = {"lat": 37.0 + degrees[1].T.ravel(), "lon": -72.0 + degrees[0].T.ravel() / NORTH}
    return Rows(np.repeat(vessel, n_each), T0_US + since.T.ravel(), values)
