"""The two queries of the thesis' evaluation on segments and on rows [Pulse Figs 2.10, 2.11].

MACD (Q4): averages of prices over 10 and 60 seconds every two, where the short one is greater. Q5:
pairs of vessels less than 1,000 m apart on average over ten minutes, every ten seconds. Rows and
results are arrays; what comes before and behind, reading and writing, is the same for both.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median, spread
from benchmarks.harness.timing import Times, interleaved
from benchmarks.models.crossovers import fastest
from benchmarks.models.data import (
    DEGREE_M,
    NORTH,
    SECOND_US,
    Fleet,
    Rows,
    fleet_v1,
    in_metres,
    trades,
    vessels,
)
from benchmarks.models.row_engine import following, macd, macd_in_a_loop
from eddyline.models.fitting.bounds import FitOptions
from eddyline.models.fitting.fit import fit
from eddyline.models.segments import Segments
from eddyline.models.solving.joins import joined, joined_among
from eddyline.models.solving.text import read_condition
from eddyline.models.windows.integrals import Samples, average_distances, sampled, windowed_integral

SHORT_US, LONG_US, MACD_SLIDE_US = 10 * SECOND_US, 60 * SECOND_US, 2 * SECOND_US

IS_ABOVE = read_condition("S.price > L.price", ["S.price", "L.price"])


def macd_on_segments(segments: Segments) -> Segments:
    """Return where the short average is above the long one, as segments of both."""
    short, long = (
        windowed_integral(segments, each, is_average=True) for each in (SHORT_US, LONG_US)
    )
    return joined(short, long, IS_ABOVE, names=("S", "L")).segments


def ratios(times: dict[str, Times], rows: str, segments: str) -> list[float]:
    """Return how many times longer rows took, round by round."""
    return [
        above / below
        for above, below in zip(times[rows].seconds, times[segments].seconds, strict=True)
    ]


def compared(
    variants: dict[str, Callable[[], object]], n_runs: int, value: str, note: str
) -> Measurement:
    """Time rows beside ways of segments; the value is the fastest of rows over one of them."""
    times = interleaved(variants, n_runs, clock=time.process_time)
    rows = fastest(times)
    gains = {name: ratios(times, rows, name) for name in variants if not name.startswith("rows")}
    told = ", ".join(f"{name} {median(each):.3g} ({spread(each)})" for name, each in gains.items())
    seconds = ", ".join(f"{name} {each.median * 1e3:.3g} ms" for name, each in times.items())
    details: dict[str, Any] = {name: each.seconds for name, each in times.items()}
    return Measurement(median(gains[value]), f"{rows} over {told}; {seconds}; {note}", details)


def macd_race(settings: Settings, value: str) -> Measurement:
    """MACD on a day's trades of 60 stocks: those of three, 20 times."""
    rows = trades().copies(settings.pick(20, 2))
    within = rows.within("1 %")

    def fitted() -> Segments:
        return fit(rows.keys, rows.times, rows.values, within)[0]

    kept = fitted()
    finer = fit(rows.keys, rows.times, rows.values, rows.within("0.05 %"))[0]
    variants: dict[str, Callable[[], object]] = {
        "rows by numpy": lambda: macd(rows, SHORT_US, LONG_US, MACD_SLIDE_US),
        "rows in a loop": lambda: macd_in_a_loop(rows, SHORT_US, LONG_US, MACD_SLIDE_US),
        "bare sums": lambda: (rows.keys.sum(), rows.times.sum(), rows.values["price"].sum()),
        "fitting and asking": lambda: macd_on_segments(fitted()),
        "fitting, asking and sampling": lambda: sampled(macd_on_segments(fitted()), MACD_SLIDE_US),
        "asking": lambda: macd_on_segments(kept),
        "asking at 0.05 %": lambda: macd_on_segments(finer),
        "asking and sampling at 0.05 %": lambda: sampled(macd_on_segments(finer), MACD_SLIDE_US),
    }
    n_rows = len(macd(rows, SHORT_US, LONG_US, MACD_SLIDE_US)[0])
    note = (
        f"{len(rows):,} rows in {len(kept):,} segments at 1 %, {len(finer):,} at 0.05 %; the short "
        f"average is above at {n_rows:,} ticks of rows, at "
        f"{len(sampled(macd_on_segments(kept), MACD_SLIDE_US).times):,} of segments at 1 % and "
        f"{len(sampled(macd_on_segments(finer), MACD_SLIDE_US).times):,} at 0.05 %, which have "
        "ticks without rows, too"
    )
    return compared(variants, settings.pick(9, 3), value, note)


APART_US, Q5_WIDTH_US, Q5_SLIDE_US = 10 * SECOND_US, 600 * SECOND_US, 10 * SECOND_US

NEAR_M = 1_000.0

LINES = FitOptions(method="linear")


def metres(segments: Segments) -> Segments:
    """Return segments of degrees in metres."""
    scale = {"lon": ("x", DEGREE_M * NORTH), "lat": ("y", DEGREE_M)}
    coefs = {scale[name][0]: each * scale[name][1] for name, each in segments.coefs.items()}
    errors = {scale[name][0]: each * scale[name][1] for name, each in segments.errors.items()}
    return replace(segments, coefs=coefs, errors=errors)


def following_on_segments(segments: Segments) -> Samples:
    """Return pairs that are near on average, at ticks."""
    pairs = joined_among(segments, names=("a", "b"), within={"x": NEAR_M, "y": NEAR_M}).segments
    axes = {"a.x": "b.x", "a.y": "b.y"}
    return average_distances(pairs, axes, Q5_WIDTH_US, Q5_SLIDE_US, below=NEAR_M)


def q5(settings: Settings, value: str, source: Callable[[Settings], Rows]) -> Measurement:
    """Vessels that follow each other, fitted at 0.05 % by lines."""
    rows = source(settings)
    within = rows.within("0.05 %")
    by_time = in_metres(rows).by_time

    def fitted() -> Segments:
        return metres(fit(rows.keys, rows.times, rows.values, within, LINES)[0])

    kept = fitted()
    wanted = following(by_time, APART_US, Q5_WIDTH_US, Q5_SLIDE_US, NEAR_M)
    got = following_on_segments(kept)
    off = max(float(each.max()) for each in kept.errors.values())
    variants: dict[str, Callable[[], object]] = {
        "rows": lambda: following(by_time, APART_US, Q5_WIDTH_US, Q5_SLIDE_US, NEAR_M),
        "fitting and asking": lambda: following_on_segments(fitted()),
        "asking": lambda: following_on_segments(kept),
    }
    note = (
        f"{len(rows):,} rows in {len(kept):,} segments at 0.05 %, at most {off:.0f} m off; "
        f"{len(wanted.ticks):,} windows of pairs by rows, {len(got.times):,} by segments"
    )
    return compared(variants, settings.pick(5, 3), value, note)


def fleet(settings: Settings) -> Rows:
    """Return a fleet whose rows are as dense as vessels report."""
    return fleet_v1(Fleet(settings.pick(500, 100), 2))


RUNS: Runs = {
    "models_macd": partial(macd_race, value="fitting and asking"),
    "models_macd_historical": partial(macd_race, value="asking"),
    "models_q5": partial(q5, value="fitting and asking", source=fleet),
    "models_q5_historical": partial(q5, value="asking", source=fleet),
    "models_q5_sample": partial(q5, value="fitting and asking", source=lambda _: vessels()),
}
