"""How far estimates of thresholds are off, and what they cost [Pulse Figs 3.8 to 3.13]."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Mapping

import numpy as np

from benchmarks.alarms.data import ADVANCE_S, N_SEGMENTS, made_up_v1, stocks_v1
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.timing import Times, interleaved, paired_ratio
from eddyline.data.arrays import Floats
from eddyline.estimates import filters
from eddyline.estimates.histograms import MAX_CELLS, CoefHistogram

SELECTIVITIES = np.arange(1, 10) / 10
N_BATCHES = 10
"""A histogram is made of so many, merged as batches of a stream are."""

SAMPLE = 0.8


def _off(coefs: Floats, rng: np.random.Generator) -> tuple[float, float, int]:
    """Return the mean error of a histogram and of a sample, and the cells of the histogram."""
    length = np.full(len(coefs), ADVANCE_S)
    edges = np.linspace(0, len(coefs), N_BATCHES + 1).astype(int)
    made = functools.reduce(
        CoefHistogram.merged,
        (CoefHistogram.from_coefs(coefs[a:b], length[a:b]) for a, b in itertools.pairwise(edges)),
    )
    least = np.minimum(coefs[:, 0], coefs[:, 0] + ADVANCE_S * coefs[:, 1])
    sampled = least[rng.random(len(least)) < SAMPLE]
    by_cells, by_sample = [], []
    for share in SELECTIVITIES:
        constant = float(np.quantile(least, share))
        true = float((least < constant).mean())
        by_cells.append(abs(filters.comparison(made, "<", constant)[0].value - true))
        by_sample.append(abs(float((sampled < constant).mean()) - true))
    return float(np.mean(by_cells)), float(np.mean(by_sample)), len(made)


def selectivity(
    settings: Settings, clouds: Callable[[int, int], Mapping[str, Floats]], *, is_worst: bool
) -> Measurement:
    """Return the mean absolute error over selectivities 0.1 to 0.9, and over clouds or the worst.

    Args:
        settings: how much is run.
        clouds: coefficients by name, for a seed and a number of segments.
        is_worst: whether the worst cloud counts; if not, the mean of all.
    """
    n = settings.pick(N_SEGMENTS, 4_000)
    found: dict[str, list[tuple[float, float, int]]] = {}
    for seed in settings.seeds(5, 1):
        for name, coefs in clouds(seed, n).items():
            found.setdefault(name, []).append(_off(coefs, np.random.default_rng([seed, 95])))
    by_cells = {name: float(np.mean([each[0] for each in own])) for name, own in found.items()}
    by_sample = {name: float(np.mean([each[1] for each in own])) for name, own in found.items()}
    most = max(cells for own in found.values() for _, _, cells in own)
    assert most <= MAX_CELLS
    value = max(by_cells.values()) if is_worst else float(np.mean([*by_cells.values()]))
    each = ", ".join(f"{name} {off:.2g}" for name, off in by_cells.items())
    note = f"{each}; at most {most} cells; an 80 % sample {np.mean([*by_sample.values()]):.2g}"
    return Measurement(value, note, {"histogram": by_cells, "sample": by_sample})


CELLS = (75, 150, 300, MAX_CELLS)
RATES = (0.1, 0.2, 0.4, 0.8)
N_TIMED = 15
"""Timed runs of each histogram and each sample, in turns."""


def _by_sample(least: Floats, constants: Floats) -> None:
    for constant in constants:
        (least < constant).mean()


def _by_cells(made: CoefHistogram, constants: Floats) -> None:
    for constant in constants:
        filters.comparison(made, "<", constant)


def time_of_estimates(
    settings: Settings, clouds: Callable[[int, int], Mapping[str, Floats]]
) -> Measurement:
    """Return how much more time eight times the cells take, and times by cells and by samples.

    Histograms and samples are made before. A sample is asked as a kernel over arrays asks it: one
    comparison of the least value of each of its segments.

    Args:
        settings: how much is run.
        clouds: coefficients by name, for a seed and a number of segments; the first is timed.
    """
    n = settings.pick(N_SEGMENTS, 4_000)
    name, coefs = next(iter(clouds(0, n).items()))
    length, rng = np.full(len(coefs), ADVANCE_S), np.random.default_rng(95)
    least = np.minimum(coefs[:, 0], coefs[:, 0] + ADVANCE_S * coefs[:, 1])
    constants = np.quantile(least, SELECTIVITIES)
    made = {most: CoefHistogram.from_coefs(coefs, length, most) for most in CELLS}
    samples = {rate: least[rng.random(n) < rate] for rate in RATES}
    variants: dict[str, Callable[[], object]] = {
        **{f"{len(of)} cells": functools.partial(_by_cells, of, constants) for of in made.values()},
        **{
            f"{rate:.0%} sample": functools.partial(_by_sample, of, constants)
            for rate, of in samples.items()
        },
    }
    runs = settings.pick(N_TIMED, 5)
    times = interleaved(variants, runs, clock=time.process_time)
    few, *_, most = (times[f"{len(of)} cells"] for of in made.values())
    value = paired_ratio(most, few)
    us = {each: _us_per_estimate(of) for each, of in times.items()}
    growth = len(made[CELLS[-1]]) / len(made[CELLS[0]])
    told = ", ".join(f"{each} {of:,.0f} µs" for each, of in us.items())
    note = f"{name}: {growth:.2g} times the cells; {told}"
    return Measurement(value / growth, note, {"us_per_estimate": us, "times": value})


def _us_per_estimate(of: Times) -> float:
    return of.median / len(SELECTIVITIES) * 1e6


RUNS: Runs = {
    "alarms_estimate_time": lambda settings: time_of_estimates(settings, made_up_v1),
    "alarms_estimate_time_stocks": lambda settings: time_of_estimates(settings, stocks_v1),
    "alarms_selectivity": lambda settings: selectivity(settings, made_up_v1, is_worst=True),
    "alarms_selectivity_stocks": lambda settings: selectivity(settings, stocks_v1, is_worst=False),
}
