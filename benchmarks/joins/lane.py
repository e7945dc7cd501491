"""Joins over scanned Parquet files, whose columns tasks read themselves, on shapes of the day.

The seed draws how many rows of each stream a batch has, and how many keys. Ours with and without
the lane and Spark's chain of joins take turns over the same files.
"""

from __future__ import annotations

import numpy as np

from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median, spread
from benchmarks.joins.chained import SPAN_US, joined_by_k
from benchmarks.joins.data import uniform_batches_v1
from benchmarks.joins.streams import race, ratios, told, written


def of_the_day(settings: Settings) -> Measurement:
    """Time of Spark's chain over ours, the later half of the batches."""
    rng = np.random.default_rng([settings.unseen, 82])
    n_rows = settings.pick(int(rng.integers(100_000, 500_000)), 10_000)
    n_keys = int(n_rows * rng.uniform(1, 4))
    n_batches = settings.pick(6, 3)
    batches = uniform_batches_v1(3, n_batches, n_rows, n_keys, SPAN_US, settings.unseen)
    names = ("eddyline", "eddyline in the lane", "eddyline without lane", "chain")
    found = race(written(joined_by_k(3), batches, {}), *names)
    later = {name: ratios(found, name, "eddyline")[-(n_batches // 2) :] for name in names[1:]}
    off = later["eddyline without lane"]
    on = ratios(found, "eddyline without lane", "eddyline in the lane")[-(n_batches // 2) :]
    note = (
        f"{3 * n_rows:,} rows a batch of {n_keys:,} keys, {found['n_results']:,} results; ratio of "
        f"batches {spread(later['chain'])}; lane off over ours {median(off):.2f} ({spread(off)}), "
        f"over lane on {median(on):.2f} ({spread(on)}); "
        f"{told(found, *names)}; {found['eddyline']['state']['lane']}"
    )
    return Measurement(median(later["chain"]), note, found)


RUNS: Runs = {"lane_join": of_the_day}
