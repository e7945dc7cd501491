"""How far estimated selectivities of thresholds are off [Pulse Figs 3.8 to 3.12]."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping

import numpy as np

from benchmarks.alarms.data import ADVANCE_S, N_SEGMENTS, made_up_v1, stocks_v1
from benchmarks.harness.scenario import Measurement, Runs, Settings
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
        (CoefHistogram.of(coefs[a:b], length[a:b]) for a, b in itertools.pairwise(edges)),
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


RUNS: Runs = {
    "alarms_selectivity": lambda settings: selectivity(settings, made_up_v1, is_worst=True),
    "alarms_selectivity_stocks": lambda settings: selectivity(settings, stocks_v1, is_worst=False),
}
