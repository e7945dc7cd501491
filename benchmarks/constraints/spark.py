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


@cache
def _filtered(settings: Settings, percent: int) -> dict[str, Any]:
    """Two streams and a table that has a key for so many of their rows (percent)."""
    # Of fewer rows a batch none are filtered, whatever tables would drop of them.
    size, n_keys = Size(settings.pick(12, 8), settings.pick(500_000, 250_000)), 100_000
    rng = np.random.default_rng(91)
    batches = []
    for number in range(size.n_batches):
        ids = number * size.n_rows + np.arange(size.n_rows)
        at = pa.array(FIRST_US + ids * EVERY_US, pa.timestamp("us", "UTC"))
        batches.append(
            {
                name: pa.table(
                    {
                        "id": ids,
                        "ts": at,
                        "k": rng.integers(0, n_keys, size.n_rows),
                        "x": rng.random(size.n_rows),
                        "y": rng.random(size.n_rows),
                    }
                )
                for name in "st"
            }
        )
    kept = rng.permutation(n_keys)[: n_keys * percent // 100]
    tables = {"v": pa.table({"id": np.arange(kept.size), "k": kept})}
    windows = {"s": 2 * size.n_rows * EVERY_US, "t": 2 * size.n_rows * EVERY_US, "v": None}
    equal = (("s.k", "t.k"), ("s.k", "v.k"), ("t.k", "v.k"))
    select = ("s.x", "s.y", "t.x", "t.y")
    return race(written(Joined(windows, equal, select), batches, tables), *FILTERED)


FILTERED = ("eddyline unfiltered", "eddyline")


def filtered(settings: Settings, percent: int) -> Measurement:
    """Time of a batch where all rows are shuffled over that where tables drop some before.

    Of the later half, when it is known whether that pays.
    """
    found = _filtered(settings, percent)
    first = len(found["n_rows"]) // 2
    off, on = (found[name]["seconds"][first:] for name in FILTERED)
    gains = [one / two for one, two in zip(off, on, strict=True)]
    came = ", ".join(f"{name} {found[name]['state']['joined']:,} rows" for name in FILTERED)
    note = (
        f"ratio of batches {spread(gains)}; {found['n_results']:,} results, equal in both; "
        f"{told(found, *FILTERED)}; of {sum(found['n_rows']):,} rows came to the join: {came}"
    )
    return Measurement(median(gains), note, found)


RUNS: Runs = {
    "constraints_spark_hand": partial(beside, other="chain by hand"),
    **{f"constraints_table_{each}": partial(filtered, percent=each) for each in (1, 10, 50, 100)},
    "constraints_spark_windows": partial(beside, other="eddyline"),
}
