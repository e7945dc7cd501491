"""How well detectors find changes of a drop fraction: false alarms, delays, misses.

Counted: items are estimates of blocks of 50 rows, Binomial(50, p) / 50, from fixed seeds. All runs
of a case are detectors of one bank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.harness.scenario import Measurement, Runs, Settings
from eddyline.change import detector_bank
from eddyline.data.arrays import Floats

BLOCK_ROWS = 50

DETECTORS: dict[str, tuple[str, dict[str, Any]]] = {
    "beta_cusum": ("beta_cusum", {}),
    "beta_cusum, 10 items of feedback": ("beta_cusum", {"n_feedback": 10}),
    "beta_cusum, 30": ("beta_cusum", {"n_feedback": 30}),
    "beta_cusum, 50": ("beta_cusum", {"n_feedback": 50}),
    "beta_cusum, memory 80": ("beta_cusum", {"memory": 80}),
    "beta_cusum, memory 120": ("beta_cusum", {"memory": 120}),
    "adwin": ("adwin", {}),
    "adwin, 15 buckets a row": ("adwin", {"buckets_per_row": 15}),
    "martingale": ("martingale", {}),
    "martingale, floor": ("martingale", {"floor": True}),
    "martingale, threshold 5": ("martingale", {"threshold": 5}),
    "meta": ("meta", {}),
    "change_finder": ("change_finder", {}),
    "change_finder, T 5, h 5": ("change_finder", {"smoothing": 5, "threshold": 5}),
    "cusum": ("cusum", {}),
    "page_hinkley": ("page_hinkley", {}),
}
"""Every detector as it comes, and variants that say what an option does."""


@dataclass(frozen=True, slots=True)
class Found:
    """What detectors made of streams with one change."""

    false_alarms: float
    """Alarms per run before the change."""
    delay: float
    """Median of blocks from the change to the first alarm after it, of the runs that have one."""
    missed: float
    """Share of the runs without an alarm after the change."""
    late_by: float
    """Median of blocks by which the change point lies after the change; negative: before it."""

    def __str__(self) -> str:
        return f"{self.false_alarms:.2f} false, {self.delay:g} blocks, {self.missed:.0%} missed"

    def as_json(self) -> dict[str, float | None]:
        """Return plain values, None for what there is none of."""
        named = {name: getattr(self, name) for name in Found.__slots__}
        return {name: None if np.isnan(value) else round(value, 4) for name, value in named.items()}


def streams(
    p_before: float,
    p_after: float,
    n_before: int,
    n_after: int,
    n_runs: int,
    ramp: int = 0,
    block_rows: int = BLOCK_ROWS,
) -> Floats:
    """Return block estimates of streams whose fraction shifts once ((blocks, runs)).

    The change takes ``ramp`` blocks, or none; an item is a share of ``block_rows`` rows.
    """
    rng = np.random.default_rng((n_before, n_after, n_runs, ramp, round(1000 * p_after)))
    since = np.arange(n_before + n_after) - n_before
    share = np.clip((since + 1.0) / ramp, 0.0, 1.0) if ramp else (since >= 0).astype(np.float64)
    fracs = p_before + (p_after - p_before) * share
    return rng.binomial(block_rows, fracs[:, None], (len(fracs), n_runs)) / block_rows


def found_by(name: str, options: dict[str, Any], items: Floats, n_before: int) -> Found:
    """Run one detector on each stream ((blocks, runs))."""
    n_runs = items.shape[1]
    bank = detector_bank(name, n_runs, **options)
    n_false = 0
    delays, points = np.full(n_runs, np.nan), np.full(n_runs, np.nan)
    for t, row in enumerate(items):
        found = bank.update(row)
        if t < n_before:
            n_false += int(found.sum())
            continue
        first = found & np.isnan(delays)
        delays[first] = t - n_before
        points[first] = bank.change_points[first] - n_before
    hits = ~np.isnan(delays)
    if not hits.any():
        return Found(n_false / n_runs, np.nan, 1.0, np.nan)
    delay, late_by = float(np.median(delays[hits])), float(np.median(points[hits]))
    return Found(n_false / n_runs, delay, 1.0 - float(hits.mean()), late_by)


def abrupt(settings: Settings) -> Measurement:
    """Every detector on abrupt shifts of .30, after 300 stable blocks, watched for 300 more."""
    n_runs = settings.pick(400, 60)
    table: dict[str, dict[str, Any]] = {}
    shown = []
    for label, (name, options) in DETECTORS.items():
        cases = {
            f".30->{p:.2f}".replace("0.", "."): found_by(
                name, options, streams(0.3, p, 300, 300, n_runs), 300
            )
            for p in (0.35, 0.5, 0.8)
        }
        table[label] = {case: found.as_json() for case, found in cases.items()}
        if not options:
            shown.append(f"{label}: {cases['.30->.50']}")
    value = table["beta_cusum"][".30->.50"]["delay"]
    return Measurement(value, f".30->.50, {n_runs} runs: {'; '.join(shown)}", {"found": table})


def dilution(settings: Settings) -> Measurement:
    """β-CUSUM after ever longer stable runs, with the moments of the paper and with a memory."""
    n_runs = settings.pick(300, 40)
    stable = (100, 300, 1000, 3000)
    variants = {
        label: DETECTORS[label]
        for label in ("beta_cusum", "beta_cusum, memory 80", "beta_cusum, memory 120", "adwin")
    }
    table: dict[str, dict[str, Any]] = {label: {} for label in variants}
    for n_before in stable:
        items = streams(0.3, 0.5, n_before, 900, n_runs)
        for label, (name, options) in variants.items():
            table[label][str(n_before)] = found_by(name, options, items, n_before).as_json()
    delays = {
        label: " / ".join(f"{row[str(n)]['delay']:g}" for n in stable)
        for label, row in table.items()
    }
    false = {label: row["3000"]["false_alarms"] for label, row in table.items()}
    note = f"delays after {' / '.join(map(str, stable))} stable blocks: "
    note += "; ".join(
        f"{label} {each} ({false[label]:.2f} false alarms in 3000)"
        for label, each in delays.items()
    )
    row = table["beta_cusum, memory 120"]
    return Measurement(row["3000"]["delay"] / row["100"]["delay"], note, {"found": table})


def gradual(settings: Settings) -> Measurement:
    """Every detector as it comes, on shifts and ramps of several sizes and lengths."""
    n_runs = settings.pick(200, 30)
    plain = {label: pair for label, pair in DETECTORS.items() if not pair[1]}
    plain["beta_cusum, memory 120"] = DETECTORS["beta_cusum, memory 120"]
    table: dict[str, dict[str, Any]] = {label: {} for label in plain}
    for p_after in (0.1, 0.4, 0.5, 0.8):
        for ramp in (0, 100, 300):
            items = streams(0.3, p_after, 300, 600, n_runs, ramp)
            for label, (name, options) in plain.items():
                found = found_by(name, options, items, 300)
                table[label][f".30->{p_after:g}, ramp {ramp}"] = found.as_json()

    def mean(label: str, field: str) -> float:
        return float(np.mean([row[field] for row in table[label].values()]))

    note = "missed on average (false alarms per run): " + ", ".join(
        f"{label} {mean(label, 'missed'):.1%} ({mean(label, 'false_alarms'):.3f})"
        for label in table
    )
    return Measurement(mean("beta_cusum", "missed"), note, {"found": table})


def thresholds(settings: Settings) -> Measurement:
    """What a higher threshold of β-CUSUM costs and saves: for banks of many detectors."""
    n_runs = settings.pick(1000, 60)
    stable, shifted = streams(0.3, 0.3, 3000, 1, n_runs), streams(0.3, 0.5, 300, 600, n_runs)
    table: dict[str, dict[str, Any]] = {}
    for memory in (None, 120):
        for threshold in (25, 50, 100, 200):
            options = {"threshold": threshold, "memory": memory}
            found = found_by("beta_cusum", options, shifted, 300)
            quiet = found_by("beta_cusum", options, stable, 3000)
            table[f"h {threshold}, memory {memory}"] = {
                **found.as_json(),
                "false_alarms_per_1000": round(quiet.false_alarms / 3.0, 5),
            }
    note = "per 1000 stable blocks, and delay after 300: " + ", ".join(
        f"{label} {row['false_alarms_per_1000']:.4f}, {row['delay']:g}"
        for label, row in table.items()
    )
    return Measurement(table["h 25, memory None"]["false_alarms_per_1000"], note, {"found": table})


def large_blocks(settings: Settings) -> Measurement:
    """Blocks of 5000 rows: shifts too small to matter, and one that is not, with ``min_shift``."""
    n_runs = settings.pick(300, 40)
    table: dict[str, dict[str, Any]] = {}
    for min_shift in (0.0, 0.02):
        options = {"block_rows": 5000, "min_shift": min_shift}
        for p_after in (0.31, 0.35):
            items = streams(0.3, p_after, 300, 300, n_runs, block_rows=5000)
            found = found_by("beta_cusum", options, items, 300)
            table[f"min_shift {min_shift:g}, .30->{p_after:g}"] = found.as_json()
    reported = {label: 1.0 - row["missed"] for label, row in table.items()}
    note = ", ".join(f"{label}: {share:.0%} reported" for label, share in reported.items())
    return Measurement(reported["min_shift 0.02, .30->0.31"], note, {"found": table})


RUNS: Runs = {
    "change_quality_t10": abrupt,
    "change_quality_dilution": dilution,
    "change_quality_grid": gradual,
    "change_quality_threshold": thresholds,
    "change_quality_large_blocks": large_blocks,
}
