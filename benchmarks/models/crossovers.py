"""How many rows a segment must stand for until a query on segments takes less than on its rows.

Objects move in straight lines for so many rows [Pulse Figs 2.4 to 2.7]; their models are declared,
so that segments are as many as there are turns. Operators alone are timed, by processor time: rows
and segments are in memory. The time of the rows of a number is interpolated between those that were
run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median, spread
from benchmarks.harness.timing import Times, interleaved
from benchmarks.models.data import SECOND_US, Moving, Rows, moving_v1
from benchmarks.models.row_engine import (
    filtered_arrow,
    filtered_numpy,
    near,
    windowed_average,
    windowed_minimum,
)
from eddyline.models.segments import Segments
from eddyline.models.solving.expressions import near as near_condition
from eddyline.models.solving.joins import joined_with_others
from eddyline.models.solving.text import read_condition
from eddyline.models.solving.where import where
from eddyline.models.windows.extrema import extrema_at, windowed_extremum
from eddyline.models.windows.integrals import integrals_at

WIDTH_US = 60 * SECOND_US
SLIDE_US = 2 * SECOND_US


def legs(rows: Rows, shape: Moving) -> Segments:
    """Return the segments of ``MODEL x = x + vx * t, y = y + vy * t``, one a turn."""
    n_each = shape.n_rows // shape.n_objects
    first = np.flatnonzero(np.arange(len(rows)) % n_each % shape.per_segment == 0)
    lo, keys = rows.times[first], rows.keys[first]
    hi = np.append(lo[1:], 0)
    is_last = np.append(keys[1:] != keys[:-1], True)
    ends = np.append(first[1:], len(rows)) - 1
    hi[is_last] = rows.times[ends[is_last]] + shape.every_us
    never = np.zeros(len(first), np.bool_)
    coefs = {
        name: np.stack([rows.values[name][first], rows.values[f"v{name}"][first]], axis=1)
        for name in ("x", "y")
    }
    errors = {name: np.zeros(len(first)) for name in coefs}
    return Segments(keys, lo, lo, hi, never, never, coefs, errors)


def crossover(sizes: Sequence[float], ratios: Sequence[float]) -> float:
    """Return the least rows a segment from which rows take no less time than segments.

    Args:
        sizes: rows of a segment, ascending.
        ratios: the time of segments over that of rows, for each.

    Returns:
        Where the ratio falls to 1, between sizes on a line of logarithms; the largest size times
        the ratio there if it does not.
    """
    above = [each for each, ratio in enumerate(ratios) if ratio > 1.0]
    if not above:
        return float(sizes[0])
    last = above[-1]
    if last == len(sizes) - 1:
        return float(sizes[-1] * ratios[-1])
    x, y = np.log(sizes[last : last + 2]), np.log(ratios[last : last + 2])
    return float(np.exp(x[0] - y[0] * (x[1] - x[0]) / (y[1] - y[0])))


Variants = Callable[[Rows, Segments], dict[str, Callable[[], object]]]
"""What is timed: ``rows…`` are ways for rows, of which the fastest counts; ``segments``."""


def crossed(
    settings: Settings, sizes: Sequence[int], shape: dict[str, Any], variants: Variants
) -> Measurement:
    """Time the ways for each number of rows a segment; the value is where they cross."""
    n_runs = settings.pick(7, 3)
    every: list[list[float]] = []
    details: dict[str, Any] = {}
    notes = []
    for size in sizes:
        objects = Moving(per_segment=size, **shape)
        rows = moving_v1(objects)
        segments = legs(rows, objects)
        times = interleaved(variants(rows, segments), n_runs, clock=time.process_time)
        best = fastest(times)
        ratios = [
            ours / theirs
            for ours, theirs in zip(times["segments"].seconds, times[best].seconds, strict=True)
        ]
        every.append(ratios)
        details[str(size)] = {name: each.seconds for name, each in times.items()}
        told = ", ".join(
            f"{name} {1e9 * each.median / (len(segments) if 'segments' in name else len(rows)):.3g}"
            for name, each in times.items()
        )
        notes.append(f"{size} rows: {median(ratios):.3g} ({spread(ratios)}), ns each: {told}")
    values = [crossover(sizes, each) for each in zip(*every, strict=True)]
    value = crossover(sizes, [median(each) for each in every])
    note = f"by rounds {spread(values)}; time of segments over rows: {'; '.join(notes)}"
    return Measurement(value, note, details)


def fastest(times: dict[str, Times]) -> str:
    """Return the name of the fastest of the ways for rows."""
    ways = [name for name in times if name.startswith("rows")]
    return min(ways, key=lambda name: times[name].median)


def filters(settings: Settings) -> Measurement:
    """``x < 0``, which half of the rows pass, with all their columns."""

    def variants(rows: Rows, segments: Segments) -> dict[str, Callable[[], object]]:
        condition = read_condition("x < 0", ["x", "y"])
        columns = Rows(rows.keys, rows.times, {name: rows.values[name] for name in ("x", "y")})
        table = columns.table
        return {
            "segments": lambda: where(segments, condition),
            "rows by arrow": lambda: filtered_arrow(table, "x", 0.0),
            "rows by numpy": lambda: filtered_numpy(columns, "x", 0.0),
            "bare compare": lambda: rows.values["x"] < 0.0,
        }

    shape = {"n_rows": settings.pick(4_000_000, 200_000), "n_objects": 100}
    return crossed(settings, (4, 8, 16, 32, 64, 128), shape, variants)


def minimum(settings: Settings) -> Measurement:
    """The minimum of a minute every two seconds [Pulse Fig 2.5, Q6]."""

    def variants(rows: Rows, segments: Segments) -> dict[str, Callable[[], object]]:
        return {
            "segments": lambda: extrema_at(segments, "x", WIDTH_US, SLIDE_US, largest=False),
            "rows": lambda: windowed_minimum(rows, "x", WIDTH_US, SLIDE_US),
            "segments at every instant": lambda: windowed_extremum(
                segments, "x", WIDTH_US, largest=False
            ),
        }

    shape = {"n_rows": settings.pick(1_000_000, 200_000), "n_objects": 20}
    return crossed(settings, (5, 10, 20, 40), shape, variants)


NEAR = 100.0
"""How near objects of both sides come where they are paired."""

APART_US = 100_000
"""How far rows that are paired are apart in time [Pulse Fig 2.7]."""


def join(settings: Settings) -> Measurement:
    """Pairs of two streams that are near each other; rows of a tenth of a second at most apart."""

    def variants(rows: Rows, segments: Segments) -> dict[str, Callable[[], object]]:
        half = int(rows.keys.max() + 1) // 2
        one, other = rows.take(rows.keys < half).by_time, rows.take(rows.keys >= half).by_time
        left = segments.take(segments.keys < half)
        right = segments.take(segments.keys >= half)
        condition = near_condition({"a.x": "b.x", "a.y": "b.y"}, "<", NEAR)
        within = {"x": NEAR, "y": NEAR}
        return {
            "segments": lambda: joined_with_others(
                left, right, condition, names=("a", "b"), within=within
            ),
            "rows": lambda: near(one, other, APART_US, NEAR),
        }

    shape = {"n_rows": settings.pick(200_000, 40_000), "n_objects": 100}
    return crossed(settings, (1, 2, 3, 4, 8, 16), shape, variants)


WINDOWS_S = (10, 100, 1_000)


def window_cost(settings: Settings) -> Measurement:
    """The time of a window of 1,000 s over that of one of 10 s, the worse of average and minimum.

    Closing every two seconds; windows that the data does not fill are left out by both.
    """
    objects = Moving(settings.pick(4_000_000, 400_000), 20, n_objects=settings.pick(20, 2))
    rows = moving_v1(objects)
    segments = legs(rows, objects)
    variants: dict[str, Callable[[], object]] = {}
    for seconds in WINDOWS_S:
        width = seconds * SECOND_US
        variants |= {
            f"average {seconds}": partial(integrals_at, segments, width, SLIDE_US, is_average=True),
            f"minimum {seconds}": partial(
                extrema_at, segments, "x", width, SLIDE_US, largest=False
            ),
            f"rows' minimum {seconds}": partial(windowed_minimum, rows, "x", width, SLIDE_US),
            f"rows' average {seconds}": partial(windowed_average, rows, "x", (width,), SLIDE_US),
        }
    times = interleaved(variants, settings.pick(7, 3), clock=time.process_time)
    ratios = {
        kind: [
            long / short
            for long, short in zip(
                times[f"{kind} 1000"].seconds, times[f"{kind} 10"].seconds, strict=True
            )
        ]
        for kind in ("average", "minimum", "rows' average", "rows' minimum")
    }
    told = ", ".join(f"{kind} {median(each):.3g} ({spread(each)})" for kind, each in ratios.items())
    took = ", ".join(f"{name} s {each.median * 1e3:.3g} ms" for name, each in times.items())
    note = f"{told}; {len(segments):,} segments of 20 rows; {took}"
    value = max(median(ratios["average"]), median(ratios["minimum"]))
    return Measurement(value, note, {name: each.seconds for name, each in times.items()})


RUNS: Runs = {
    "models_crossover_filter": filters,
    "models_crossover_minimum": minimum,
    "models_crossover_join": join,
    "models_window_cost": window_cost,
}
