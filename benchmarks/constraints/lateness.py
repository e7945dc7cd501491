"""The share of rows that a learned lateness holds while disorder drifts: no Spark, no times."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from benchmarks.harness.scenario import Measurement, Runs, Settings
from eddyline.constraints.bounds import Disorder, LatenessRule, bins_of
from eddyline.data.arrays import Ints

SHARE = 0.9999

BATCH_ROWS = 20_000

ROWS_PER_INTERVAL = 2_000_000
"""Rows of an interval of drift; of 99.99 % 200 may be late."""

EVERY_US = 100

DRIFTS: dict[str, Callable[[float], float]] = {
    "steady": lambda _: 2e6,
    "growing": lambda at: 2e6 * (1 + 5 * at),
    "shrinking": lambda at: 2e6 * (6 - 5 * at),
    "waves": lambda at: 2e6 * (1.5 + np.sin(4 * np.pi * at)),
}
"""Mean of how far rows are out of order (µs), by how much of the stream has come ([0, 1])."""


def held_shares(scale_at: Callable[[float], float], n_intervals: int, seed: int) -> list[float]:
    """Return the share of the rows of each interval that were in time."""
    rng, n_rows = np.random.default_rng([seed, 77]), n_intervals * ROWS_PER_INTERVAL
    rule = LatenessRule({"s": 0}, {"s": SHARE})
    learned = rule.known({})
    latest: dict[str, int] = {}
    passed: Mapping[str, int] = {}
    shares, n_late = [], 0
    for first in range(0, n_rows, BATCH_ROWS):
        ages = rng.exponential(scale_at(first / n_rows), BATCH_ROWS).astype(np.int64)
        starts = (first + np.arange(BATCH_ROWS)) * EVERY_US - ages
        low = rule.streams(learned, passed).low("s", {})
        batch = _disorder(starts, low, latest.get("s"))
        learned = rule.after(learned, {"s": batch}, latest)
        latest = {"s": max(batch.latest, latest.get("s", batch.latest))}
        passed = rule.streams(learned, passed).lows(latest)
        n_late += batch.n_late
        if (first + BATCH_ROWS) % ROWS_PER_INTERVAL == 0:
            shares.append(1 - n_late / ROWS_PER_INTERVAL)
            n_late = 0
    return shares


def _disorder(starts: Ints, low: int, latest: int | None) -> Disorder:
    behind = np.empty(0, np.int64) if latest is None else latest - starts[starts < latest]
    numbers, counts = np.unique(bins_of(behind), return_counts=True)
    bins = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
    n_late = int((starts < low).sum())
    return Disorder(starts.size, n_late, int(starts.min()), int(starts.max()), bins)


def held(settings: Settings) -> Measurement:
    """Intervals but for the first of each stream, in which little is known."""
    n_intervals, seeds = settings.pick(5, 2), settings.seeds(4, 1)
    found = {
        kind: [held_shares(scale_at, n_intervals, seed) for seed in seeds]
        for kind, scale_at in DRIFTS.items()
    }
    apart = {
        kind: 100 * max(abs(share - SHARE) for shares in every for share in shares[1:])
        for kind, every in found.items()
    }
    means = {
        kind: float(np.mean([share for shares in every for share in shares[1:]]))
        for kind, every in found.items()
    }
    note = "; ".join(f"{kind} {means[kind]:.4%}, farthest {apart[kind]:.4f}" for kind in DRIFTS)
    return Measurement(max(apart.values()), note, {"shares": found})


RUNS: Runs = {"constraints_lateness": held}
