"""Constraints end to end on Spark, beside its own join with a watermark and a range set by hand.

Spark cannot learn for how long rows are asked for: whoever knows the streams writes the range of
times that partners are within, and a watermark without delay where rows are in order. It is the
best that can be set by hand, as it is what the generator was given. Ours is given windows a hundred
batches long in place of it. Files of micro-batches are read as they are, nothing is cached.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.constraints.data import EVERY_US, Size, clustered_v1
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median, spread
from benchmarks.joins.streams import Joined, race, told, written

K = 1_000

FIRST_US = 10**15
"""The first instant (µs since 1970): of rows of 1970 Spark's watermark has one less."""

WINDOW_BATCHES = 100
"""Windows of ours, in batches: more than are run, so that nothing leaves them."""

NAMES = ("eddyline", "eddyline exact", "chain by hand")


@cache
def _raced(settings: Settings) -> dict[str, Any]:
    size = Size(settings.pick(24, 5), settings.pick(100_000, 10_000))
    batches = []
    for number, arrived in enumerate(clustered_v1(size, K)):
        rows = {}
        for name, (keys, at) in arrived.items():
            ids = number * size.n_rows + np.arange(size.n_rows)
            rows[name] = pa.table(
                {"id": ids, "ts": pa.array(FIRST_US + at, pa.timestamp("us", "UTC")), "k": keys}
            )
        batches.append(rows)
    window = WINDOW_BATCHES * size.n_rows * EVERY_US
    join = Joined(dict.fromkeys("st", window), (("s.k", "t.k"),), ("s.k",), by_hand_us=K * EVERY_US)
    return race(written(join, batches, {}), *NAMES)


def beside(settings: Settings, other: str) -> Measurement:
    """The time of a micro-batch of another contestant over that of ours with constraints.

    Of the later half, in which tiers are known.
    """
    found = _raced(settings)
    first = len(found["n_rows"]) // 2
    ours, theirs = (found[name]["seconds"][first:] for name in ("eddyline exact", other))
    gains = [one / two for one, two in zip(theirs, ours, strict=True)]
    states = ", ".join(
        f"{name} {found[name]['state']['rows']:,} rows {found[name]['state']['bytes'] / 1e6:.3g} MB"
        for name in NAMES
    )
    note = (
        f"ratio of batches {spread(gains)}; {found['n_results']:,} results, equal in all; "
        f"{told(found, *NAMES)}; kept hot: {states}"
    )
    return Measurement(median(gains), note, found)


RUNS: Runs = {
    "constraints_spark_hand": partial(beside, other="chain by hand"),
    "constraints_spark_windows": partial(beside, other="eddyline"),
}
