"""What a bank of detectors costs: against a loop over river's ADWIN objects, and per item.

A round is one item for each detector. River checks at every 32nd item by default, eddyline at every
one; the ratio that counts is that of equal clocks, and the other stands beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import spread
from benchmarks.harness.timing import interleaved, paired_ratio
from eddyline.change import DETECTORS, detector, detector_bank
from eddyline.change.protocol import DetectorBank
from eddyline.data.arrays import Floats

AS_RIVER: dict[str, Any] = {"significance": 0.002, "min_part": 5, "n_feedback": 10}
"""The defaults of ``river.drift.ADWIN``, its clock left out."""

RIVER_CLOCK = 32


def _items(n_rounds: int, n: int) -> Floats:
    """Return estimates of blocks of 50 rows ((rounds, n))."""
    return np.random.default_rng(n).binomial(50, 0.3, (n_rounds, n)) / 50


def _river_loop(items: Floats, clock: int) -> Callable[[], None]:
    from river.drift import ADWIN  # noqa: PLC0415 an optional dependency

    detectors = [ADWIN(clock=clock) for _ in range(items.shape[1])]
    rows = items.tolist()

    def run() -> None:
        for row in rows:
            found = []
            for i, (each, x) in enumerate(zip(detectors, row, strict=True)):
                each.update(x)
                if each.drift_detected:
                    found.append(i)

    return run


def _bank_rounds(bank: DetectorBank, items: Floats) -> Callable[[], None]:
    def run() -> None:
        for row in items:
            bank.update(row)

    return run


def against_river(settings: Settings, n: int) -> Measurement:
    """Rounds of n detectors, windows growing from run to run alike."""
    n_rounds = settings.pick(1_200_000, 240_000) // n
    items = _items(n_rounds, n)
    variants: dict[str, Callable[[], object]] = {}
    for clock in (RIVER_CLOCK, 1):
        variants[f"river {clock}"] = _river_loop(items, clock)
        bank = detector_bank("adwin", n, check_every=clock, **AS_RIVER)
        variants[f"bank {clock}"] = _bank_rounds(bank, items)
    times = interleaved(variants, settings.pick(7, 3), clock=time.process_time)
    ratios = {
        clock: paired_ratio(times[f"river {clock}"], times[f"bank {clock}"])
        for clock in (RIVER_CLOCK, 1)
    }
    mixed = paired_ratio(times[f"river {RIVER_CLOCK}"], times["bank 1"])
    per_round = {name: 1e6 * each.median / n_rounds for name, each in times.items()}
    note = f"checks every 32nd item; every item: {ratios[1]:.2f}; "
    note += f"river's every 32nd against ours every item: {mixed:.2f}; µs per round: "
    note += ", ".join(f"{name} {us:.3g}" for name, us in per_round.items())
    details = {
        "us_per_round": per_round,
        "ratio_every_item": ratios[1],
        "ratio_river_32_ours_1": mixed,
        "seconds": {name: spread(each.seconds) for name, each in times.items()},
        "ns_per_item": _ns_per_item(n, settings),
    }
    return Measurement(ratios[RIVER_CLOCK], note, details)


def _ns_per_item(n: int, settings: Settings) -> dict[str, float]:
    """Return what an item costs each detector, once it checks; fastest of three runs."""
    cost: dict[str, float] = {}
    for name in DETECTORS:
        bank = detector_bank(name, n)
        _bank_rounds(bank, _items(200, n))()
        items = _items(max(settings.pick(600_000, 60_000) // n, 5), n)
        times = interleaved({name: _bank_rounds(bank, items)}, 3, clock=time.process_time)
        cost[name] = round(1e9 * min(times[name].seconds) / items.size, 1)
    return cost


def one_detector(settings: Settings) -> Measurement:
    """Single detectors, in river's convention: what the bank behind one costs."""
    items = _items(settings.pick(20_000, 3_000), 1)[:, 0].tolist()
    cost: dict[str, float] = {}
    for name in DETECTORS:
        watched = detector(name)

        def run(watched: Any = watched) -> None:
            for x in items:
                watched.update(x)

        times = interleaved({name: run}, 3, clock=time.process_time)
        cost[name] = round(1e6 * min(times[name].seconds) / len(items), 2)
    note = ", ".join(f"{name} {us:g}" for name, us in cost.items())
    return Measurement(max(cost.values()), note, {"us_per_item": cost})


RUNS: Runs = {
    "change_bank_10000": partial(against_river, n=10_000),
    "change_bank_64": partial(against_river, n=64),
    "change_bank_1": one_detector,
}
