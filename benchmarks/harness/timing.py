"""Times that can be compared on a busy machine: interleaved runs, a control, medians."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.harness.statistics import median, spread


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of the runs of one variant, the first left out."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median (s)."""
        return median(self.seconds)

    def __str__(self) -> str:
        return f"{self.median:.3g} s ({spread(self.seconds)})"


def interleaved(
    variants: Mapping[str, Callable[[], object]],
    n_runs: int,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Times]:
    """Time variants in turns, so that a slow minute of the machine hits all of them.

    Every second round goes backwards, so that none always follows the same one.

    Args:
        variants: what to time, by name.
        n_runs: timed runs of each; one more comes first and is left out.
        clock: ``time.process_time`` where one thread of this process does all the work, so that
            other processes disturb less.
    """
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    names = list(variants)
    for round_ in range(n_runs + 1):
        for name in names if round_ % 2 == 0 else reversed(names):
            gc.collect()
            started = clock()
            variants[name]()
            if round_ > 0:
                seconds[name].append(clock() - started)
    return {name: Times(tuple(each)) for name, each in seconds.items()}


def paired_ratio(numerator: Times, denominator: Times) -> float:
    """Return the median of the ratios of runs of the same round."""
    pairs = zip(numerator.seconds, denominator.seconds, strict=True)
    return median(above / below for above, below in pairs)


def on_over_off(
    run: Callable[[bool], object], n_runs: int, **given: Any
) -> tuple[float, float, dict[str, Times]]:
    """Return the ratio of times with something on over off, and of off over off: the control."""
    variants = {"off": lambda: run(False), "on": lambda: run(True), "off again": lambda: run(False)}
    times = interleaved(variants, n_runs, **given)
    value = paired_ratio(times["on"], times["off"])
    return value, paired_ratio(times["off again"], times["off"]), times


def seconds_of(times: Mapping[str, Times]) -> dict[str, Any]:
    """Return the seconds of each variant, as plain values."""
    return {name: each.seconds for name, each in times.items()}


def times_told(times: Mapping[str, Times]) -> str:
    """Return the time of each variant in words."""
    return ", ".join(f"{name} {each}" for name, each in times.items())
