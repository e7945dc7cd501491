"""Windows that slide and tumble, end to end on Spark, beside Spark's own ``window()``.

Rows are those of users: Parquet files of twenty columns, scanned, a micro-batch each.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from benchmarks.aggregates.asked import Asked, over, written
from benchmarks.aggregates.data import Shape, narrow_batches_v1, wide_batches_v1
from benchmarks.aggregates.race import compared, ratios, told
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median, spread
from eddyline.aggregates.loop import PLANS

MINUTE_S = 60


def sliding(length_s: int, slide_s: int, options: dict[str, Any] | None = None) -> Asked:
    """Return sums, averages and maxima by group over windows of some seconds."""
    columns = "k, count(*) AS n, sum(v) AS total, avg(v) AS mean, max(v) AS most"
    slid = f"window(ts, '{length_s} seconds', '{slide_s} seconds')"
    ends = (
        f"SELECT *, unnest(range(0, {length_s}, {slide_s})) + {slide_s} "
        f"+ (epoch_us(ts) // {slide_s * 1_000_000}) * {slide_s} AS wend FROM s"
    )
    return Asked(
        f"SELECT window.end AS wend, {columns} FROM s [RANGE {length_s} SECONDS SLIDE {slide_s} "
        f"SECONDS] GROUP BY k",
        f"SELECT window.end AS wend, {columns} FROM s GROUP BY {slid}, k",
        f"SELECT to_timestamp(wend) AS wend, {columns} FROM ({ends}) "
        f"WHERE to_timestamp(wend) <= {{low}} GROUP BY wend, k",
        options=options or {},
    )


def beside_spark(
    settings: Settings, slide_s: int, *, inverse: bool = False, n_batches: int = 6
) -> Measurement:
    """Windows of a minute beside Spark's; ``inverse``: our time over Spark's."""
    shape = Shape(settings.pick(n_batches, 3), settings.pick(300_000, 20_000), MINUTE_S * 1_000_000)
    folder = written(wide_batches_v1(shape))
    ways = ("eddyline", "spark", "read")
    found = compared(over(sliding(MINUTE_S, slide_s), folder), *ways)
    gains = ratios(found, *(("eddyline", "spark") if inverse else ("spark", "eddyline")))
    note = (
        f"ratio of batches {spread(gains)}; {shape.n_rows:,} rows a batch of {shape.n_groups:,} "
        f"groups, {found['eddyline']['answer'][0]:,} results; {told(found, *ways)}; "
        f"{found['eddyline']['rows_per_cell']:.1f} rows a cell, plan {found['eddyline']['plan']}"
    )
    return Measurement(median(gains), note, found)


PER_CELL = (1.0, 1.5, 3.0, 30.0)
"""Rows for each group and slice."""


def plans(settings: Settings) -> Measurement:
    """The plan that is chosen beside all that are fixed by hand, by rows for each cell.

    The worst of the times of the chosen plan over those of the best one.
    """
    found: dict[str, Any] = {}
    worst, notes = 0.0, []
    for per_cell in PER_CELL if not settings.quick else PER_CELL[1::2]:
        n_rows = settings.pick(300_000, 30_000)
        # Ten cells of a second each; groups of which some have no row make the others fuller.
        n_groups = groups_of(per_cell, n_rows // 10)
        shape = Shape(settings.pick(6, 3), n_rows, 10_000_000, n_groups)
        asked = over(sliding(1, 1), written(wide_batches_v1(shape)))
        fixed = over(sliding(1, 1, {"adaptive": False}), asked.folder)
        more = {each: (f"eddyline {each}", fixed) for each in PLANS}
        each = compared(asked, "eddyline", more=more)
        times = {name: median(each[name]["seconds"][2:]) for name in ("eddyline", *more)}
        found[f"{per_cell:g}"] = each
        value = times["eddyline"] / min(times[each] for each in PLANS)
        worst = max(worst, value)
        notes.append(
            f"{per_cell:g} rows a cell ({each['eddyline']['rows_per_cell']:.2f} measured): chosen "
            f"{each['eddyline']['plan']} {times['eddyline']:.3g} s, "
            + ", ".join(f"{name} {times[name]:.3g}" for name in PLANS)
        )
    return Measurement(worst, "; ".join(notes), found)


def groups_of(per_cell: float, n_rows: int) -> int:
    """Return of how many uniform groups so many rows have that many rows each group they meet."""
    if per_cell <= 1.0:
        return n_rows * 1_000
    low, high = 1.0, 1e12
    for _ in range(200):
        n = (low * high) ** 0.5
        met = n * -math.expm1(-n_rows / n)
        low, high = (n, high) if n_rows / met > per_cell else (low, n)
    return round(low)


def hot(settings: Settings) -> Measurement:
    """Half the rows are of one group, beside uniform ones: our time, both sliding every second."""
    found = {}
    for kind, share in (("hot", 0.5), ("uniform", 0.0)):
        sizes = settings.pick(6, 3), settings.pick(300_000, 20_000)
        shape = Shape(*sizes, MINUTE_S * 1_000_000, hot=share)
        asked = over(sliding(MINUTE_S, 1), written(wide_batches_v1(shape)))
        found[kind] = compared(asked, "eddyline")
    times = {kind: median(each["eddyline"]["seconds"][1:]) for kind, each in found.items()}
    note = "; ".join(f"{kind}: {told(each, 'eddyline')}" for kind, each in found.items())
    return Measurement(times["hot"] / times["uniform"], note, found)


def many_groups(settings: Settings) -> Measurement:
    """Tumbling windows of ten million groups, a row each or so: seconds of a batch."""
    n = settings.pick(10_000_000, 500_000)
    shape = Shape(3, n, 10_000_000, n_groups=10 * n)
    found = compared(over(sliding(10, 10), written(narrow_batches_v1(shape))), "eddyline")
    seconds = found["eddyline"]["seconds"][1:]
    note = (
        f"{spread(seconds)}; {n:,} rows a batch, {found['eddyline']['answer'][0]:,} results, "
        f"plan {found['eddyline']['plan']}; workers {found['workers_peak_bytes'] / 1e9:.2f} GB at "
        f"their peak, {found['eddyline']['work_s']:.3g} s in buckets in all"
    )
    return Measurement(median(seconds), note, found)


RUNS: Runs = {
    "aggregates_sliding_1s": partial(beside_spark, slide_s=1),
    "aggregates_sliding_10s": partial(beside_spark, slide_s=10),
    "aggregates_tumbling": partial(beside_spark, slide_s=60, inverse=True, n_batches=8),
    "aggregates_plan": plans,
    "aggregates_hot_group": hot,
    "aggregates_many_groups": many_groups,
}
