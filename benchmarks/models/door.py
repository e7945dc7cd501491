"""The door of declared models: what a condition costs with and without rows that are dropped."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks.harness.needs import data_folder
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median, spread
from benchmarks.harness.timing import interleaved
from benchmarks.models.data import SECOND_US, VESSELS, lines_of
from eddyline.models.fitting.bounds import Bound
from eddyline.models.fitting.declared import Declared, declared, read_equations
from eddyline.models.solving.text import read_condition
from eddyline.models.solving.where import solutions

ASKED = (("lat > 40.5 AND lon < -70", 0.01), ("lat > 30 AND lon < -90", 0.001))
"""Conditions, and how far positions may be off (degrees)."""
HORIZON_US = 3 * 3_600 * SECOND_US
_DEGREES_A_SECOND = 1 / 60 / 3_600
"""Of a knot, along a meridian."""


def _positions() -> pa.Table:
    """Return positions with speeds, by vessel and time, as declared models have them."""
    columns = ["MMSI", "BaseDateTime", "LAT", "LON", "SOG", "COG"]
    table = parquet.read_table(data_folder() / VESSELS, columns=columns)
    table = table.sort_by([("MMSI", "ascending"), ("BaseDateTime", "ascending")])
    lat, lon, knots, course = (table[each].to_numpy() for each in columns[2:])
    knots = np.where(np.isnan(knots) | (knots > 100), 0.0, knots) * _DEGREES_A_SECOND  # 102.3: none
    course = np.radians(np.nan_to_num(course))
    moves = {
        "lat": (lat, knots * np.cos(course)),
        "lon": (lon, knots * np.sin(course) / np.cos(np.radians(lat))),
    }
    times = table["BaseDateTime"].cast(pa.timestamp("us"))
    lists = {name: lines_of(*each) for name, each in moves.items()}
    return pa.table({"key": table["MMSI"], "ts": times, **lists}).combine_chunks()


def gain(settings: Settings) -> Measurement:
    """Time of conditions on all models over that on those that the door lets through."""
    table = _positions()
    equations = read_equations({"lat": "lat + vlat * t", "lon": "lon + vlon * t"})
    every = Declared(("key",), "ts", equations, HORIZON_US)
    ratios, notes, found = [], [], {}
    for text, most in ASKED:
        condition = read_condition(text, ["lat", "lon"])
        bounds = {name: Bound(most) for name in equations}
        ways = {"all": every, "door": replace(every, within=bounds)}

        def answer(how: Declared, condition: Any = condition) -> int:
            return len(solutions(declared(table, how).segments, condition).lo)

        runs = {name: partial(answer, how) for name, how in ways.items()}
        times = interleaved(runs, settings.pick(9, 3), clock=time.process_time)
        ns = {name: [1e9 * each / len(table) for each in taken.seconds]
              for name, taken in times.items()}  # fmt: skip
        kept = {name: len(declared(table, how).segments) for name, how in ways.items()}
        share = 1 - kept["door"] / kept["all"]
        ratios.append(median(ns["all"]) / median(ns["door"]))
        told = ", ".join(f"{name} {median(each):.0f} ({spread(each)})" for name, each in ns.items())
        notes.append(f"{text} within {most:g}: {share:.1%} dropped; ns a row: {told}")
        found[text] = {**ns, "dropped": share}
    return Measurement(min(ratios), f"{len(table):,} rows; " + "; ".join(notes), found)


RUNS: Runs = {"models_door": gain}
