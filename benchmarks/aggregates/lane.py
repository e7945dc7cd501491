"""Windows over scanned Parquet files, whose columns tasks read themselves, on shapes of the day.

The seed draws how many rows a batch has, of how many groups, and how often windows end. Ours with
and without the lane and Spark's ``window()`` take turns over the same files. DuckDB has the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.aggregates.asked import over, written
from benchmarks.aggregates.data import Shape, wide_batches_v1
from benchmarks.aggregates.race import compared, ratios, told
from benchmarks.aggregates.windows import MINUTE_S, sliding
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median, spread

SLIDES_S = (5, 10, 20, 30, 60)

FIXED = ("on", "off")
"""Ways of the lane without trials."""


def of_the_day(settings: Settings) -> Measurement:
    """Time of Spark's window() over ours, the later half of the batches."""
    rng = np.random.default_rng([settings.unseen, 81])
    n_rows = int(rng.integers(400_000, 1_600_000))
    n_groups = int(10 ** rng.uniform(1, 4))
    slide_s = int(rng.choice(SLIDES_S))
    n_batches = settings.pick(14, 3)
    n_rows = settings.pick(n_rows, 20_000)
    shape = Shape(n_batches, n_rows, MINUTE_S * 1_000_000, n_groups, seed=settings.unseen)
    asked = over(sliding(MINUTE_S, slide_s), written(wide_batches_v1(shape)))
    ways = ("eddyline", "spark", "lane on", "lane off")
    fixed = {f"lane {way}": ("eddyline", replace(asked, options={"lane": way})) for way in FIXED}
    found = compared(asked, *ways[:2], more=fixed)
    gains = {name: later(found, name, n_batches) for name in ("spark", "lane off")}
    gains["on"] = later(found, "lane off", n_batches, "lane on")
    note = (
        f"a minute every {slide_s} s, {n_rows:,} rows a batch of {n_groups:,} groups; ratio of "
        f"batches {spread(gains['spark'])}; lane off over ours {median(gains['lane off']):.2f} "
        f"({spread(gains['lane off'])}), over lane on {median(gains['on']):.2f} "
        f"({spread(gains['on'])}); {told(found, *ways)}; {found['eddyline']['notes']}"
    )
    return Measurement(median(gains["spark"]), note, found)


def few_rows(settings: Settings) -> Measurement:
    """Time of Spark's window() over ours for batches of few rows, both from and to Parquet."""
    rng = np.random.default_rng([settings.unseen, 83])
    n_rows = settings.pick(int(10 ** rng.uniform(3, 5)), 1_000)
    n_groups = int(10 ** rng.uniform(1, 3))
    slide_s = int(rng.choice(SLIDES_S))
    n_batches = settings.pick(20, 4)
    shape = Shape(n_batches, n_rows, MINUTE_S * 1_000_000, n_groups, seed=settings.unseen)
    asked = over(sliding(MINUTE_S, slide_s), written(wide_batches_v1(shape)))
    ways = ("eddyline files", "spark files", "lane off")
    off = {"lane off": ("eddyline files", replace(asked, options={"lane": "off"}))}
    found = compared(asked, *ways[:2], more=off)
    gains = {name: later(found, name, n_batches, ways[0]) for name in ways[1:]}
    note = (
        f"a minute every {slide_s} s, {n_rows:,} rows a batch of {n_groups:,} groups; ratio of "
        f"batches {spread(gains['spark files'])}; lane off over ours "
        f"{median(gains['lane off']):.2f} ({spread(gains['lane off'])}); {told(found, *ways)}"
    )
    return Measurement(median(gains["spark files"]), note, found)


def later(
    found: Mapping[str, Any], above: str, n_batches: int, below: str = "eddyline"
) -> list[float]:
    """Return the ratios of the times of the later half of the batches."""
    return ratios(found, above, below)[-(n_batches // 2) :]


RUNS: Runs = {"lane_windows": of_the_day, "lane_few_rows": few_rows}
