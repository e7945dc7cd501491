"""The thesis' figures that are no crossing of two curves [Pulse Figs 2.8, 2.9, 2.12].

As in the other modules operators alone are timed, on arrays, by processor time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median
from benchmarks.harness.timing import interleaved, paired_ratio
from benchmarks.models.crossovers import APART_US, NEAR, SLIDE_US, WIDTH_US, legs
from benchmarks.models.data import SECOND_US, Moving, Rows, moving_v1, trades
from benchmarks.models.pulse import MACD_SLIDE_US, macd_on_segments
from benchmarks.models.row_engine import near, windowed_minimum
from eddyline.models.fitting.fit import fit
from eddyline.models.segments import Segments
from eddyline.models.solving.expressions import near as near_condition
from eddyline.models.solving.joins import joined_with_others
from eddyline.models.windows.extrema import extrema_at
from eddyline.models.windows.integrals import sampled

RATES = (10, 20, 40, 80)
"""Rows of an object in a second."""


def by_rate(settings: Settings) -> Measurement:
    """How the cost of a join grows while rows of the same movement come eight times as often."""
    seconds = settings.pick(60, 20)
    condition = near_condition({"a.x": "b.x", "a.y": "b.y"}, "<", NEAR)
    variants: dict[str, Callable[[], object]] = {}
    for rate in RATES:
        shape = Moving(rate * seconds * 40, rate, 40, SECOND_US // rate)
        rows = moving_v1(shape)
        segments = legs(rows, shape)
        one, other = rows.take(rows.keys < 20).by_time, rows.take(rows.keys >= 20).by_time
        left, right = segments.take(segments.keys < 20), segments.take(segments.keys >= 20)
        variants[f"rows {rate}"] = partial(near, one, other, APART_US, NEAR)
        variants[f"segments {rate}"] = partial(
            joined_with_others,
            left,
            right,
            condition,
            names=("a", "b"),
            within={"x": NEAR, "y": NEAR},
        )
    times = interleaved(variants, settings.pick(5, 3), clock=time.process_time)
    growth = {
        kind: paired_ratio(times[f"{kind} {RATES[-1]}"], times[f"{kind} {RATES[0]}"])
        for kind in ("rows", "segments")
    }
    told = ", ".join(f"{name} a second {each.median * 1e3:.3g} ms" for name, each in times.items())
    note = f"rows {growth['rows']:.3g} times the time; {told}"
    return Measurement(
        growth["segments"], note, {name: each.seconds for name, each in times.items()}
    )


def minimum_fitted(settings: Settings) -> Measurement:
    """The historical minimum of a minute every two seconds, fitting at 1 % included."""
    rows = moving_v1(Moving(settings.pick(1_000_000, 200_000), 100, n_objects=20))
    rows = Rows(rows.keys, rows.times, {"x": rows.values["x"] + 10_000.0})
    within = rows.within("1 %")

    def fitted() -> Segments:
        return fit(rows.keys, rows.times, rows.values, within)[0]

    kept = fitted()
    variants: dict[str, Callable[[], object]] = {
        "rows": lambda: windowed_minimum(rows, "x", WIDTH_US, SLIDE_US),
        "fitting": fitted,
        "fitting and asking": lambda: extrema_at(fitted(), "x", WIDTH_US, SLIDE_US, largest=False),
        "asking": lambda: extrema_at(kept, "x", WIDTH_US, SLIDE_US, largest=False),
    }
    times = interleaved(variants, settings.pick(7, 3), clock=time.process_time)
    rates = {name: len(rows) / each.median / 1e6 for name, each in times.items()}
    told = ", ".join(f"{name} {each:.3g} M rows/s" for name, each in rates.items())
    note = f"{told}; {len(rows):,} rows in {len(kept):,} segments"
    value = paired_ratio(times["rows"], times["fitting and asking"])
    return Measurement(value, note, {name: each.seconds for name, each in times.items()})


TIGHTER = ("1 %", "0.3 %", "0.1 %", "0.05 %", "0.02 %")
"""Bounds of prices."""


def by_bound(settings: Settings) -> Measurement:
    """What a tighter bound costs: MACD with fitting and sampling, and how often models break."""
    rows = trades().copies(settings.pick(20, 2))
    variants: dict[str, Callable[[], object]] = {}
    breaks = {}

    def asked(bound: str) -> object:
        segments = fit(rows.keys, rows.times, rows.values, rows.within(bound))[0]
        return sampled(macd_on_segments(segments), MACD_SLIDE_US)

    for bound in TIGHTER:
        segments, _ = fit(rows.keys, rows.times, rows.values, rows.within(bound))
        breaks[bound] = len(segments) / len(rows)
        variants[bound] = partial(asked, bound)
    times = interleaved(variants, settings.pick(5, 3), clock=time.process_time)
    told = "; ".join(
        f"{bound}: {each.median / len(rows) * 1e9:.3g} ns a row, "
        f"{breaks[bound] * 1e3:.3g} segments a thousand rows"
        for bound, each in times.items()
    )
    value = median(
        tight / loose
        for tight, loose in zip(times["0.3 %"].seconds, times["1 %"].seconds, strict=True)
    )
    return Measurement(value, told, {name: each.seconds for name, each in times.items()})


RUNS: Runs = {
    "models_join_rate": by_rate,
    "models_minimum_fitted": minimum_fitted,
    "models_bound_cost": by_bound,
}
