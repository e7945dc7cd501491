"""What a bank of detectors costs: against a loop over river's ADWIN objects, and per item.

A round is one item for each detector. River checks at every 32nd item by default, eddyline at every
one; the ratio that counts is that of equal clocks, and the other stands beside it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness.scenario import Measurement, Scenario, Settings, at_least, skipped
from benchmarks.harness.statistics import spread
from benchmarks.harness.timing import interleaved, paired_ratio
from eddyline.change import DETECTORS, detector, detector_bank

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from eddyline.change.protocol import DetectorBank

    Floats = NDArray[np.float64]

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


def against_river(n: int) -> Callable[[Settings], Measurement]:
    """Measure rounds of n detectors, windows growing from run to run alike."""

    def run(settings: Settings) -> Measurement:
        try:
            import river  # noqa: F401, PLC0415 an optional dependency
        except ImportError:
            return skipped("river is not installed")
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

    return run


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


SCENARIOS = (
    Scenario(
        id="change_bank_10000",
        shows="time of a loop over 10,000 ADWINs of river over that of a bank, equal clocks",
        run=against_river(10_000),
        target=at_least(1.0),
        policies=(),
        counted=False,
    ),
    Scenario(
        id="change_bank_64",
        shows="time of a loop over 64 ADWINs of river over that of a bank, equal clocks",
        run=against_river(64),
        target=at_least(1.0),
        policies=(),
        counted=False,
    ),
    Scenario(
        id="change_bank_1",
        shows="microseconds per item of a single detector, the dearest",
        run=one_detector,
        target=None,
        policies=(),
        counted=False,
    ),
)
