"""What sharing saves: thresholds by their number and selectivity, and two filters in a chain.

[Pulse Figs 4.4 to 4.6], with the figures' protocol where it can be read: of Fig 4.6 the modes are
taken as its data fit them (covered: both filters are; union: the first is each query's own, the
second shared; unshared: both are each query's own), and high selectivity is one near 1.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from benchmarks.alarms.data import (
    ADVANCE_S,
    fixed,
    made_up_v1,
    one_by_one,
    program_over,
    segments_of,
    swept,
    told,
)
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.timing import Times, interleaved, paired_ratio, seconds_of, times_told
from eddyline.data.arrays import Floats
from eddyline.models.segments import Segments

UPPER = np.arange(1, 11) / 10
"""Selectivities of the loosest of some thresholds."""

N_QUERIES = 10

ALONE = "one by one"
"""Instead of a way to share: each condition is asked by itself, as a query of its own."""


def _segments(settings: Settings) -> Segments:
    n = settings.pick(20_000, 5_000)
    one, other = (made_up_v1(seed, n)["uniform"] for seed in (0, 1))
    return segments_of({"x": one, "y": other})


def _least(coefs: Floats) -> Floats:
    found: Floats = np.minimum(coefs[:, 0], coefs[:, 0] + ADVANCE_S * coefs[:, 1])
    return found


def _thresholds(segments: Segments, n: int, upper: float) -> dict[str, str]:
    """Return ``x < c`` with constants from what nothing meets to what a share of segments does."""
    least = _least(segments.coefs["x"])
    ends = float(least.min()), float(np.quantile(least, upper))
    constants = np.linspace(*ends, n) if n > 1 else np.array([ends[1]])
    return {f"a{at}": f"x < {each!r}" for at, each in enumerate(constants.tolist())}


def _timed(
    segments: Segments, asked: Mapping[str, tuple[Mapping[str, str], str]], n_runs: int
) -> dict[str, Times]:
    """Time alarms in ways, by processor time; all that have the same alarms answer the same."""
    variants: dict[str, Callable[[], object]] = {}
    answers: dict[tuple[str, ...], int] = {}
    for name, (texts, sharing) in asked.items():
        if sharing == ALONE:
            variants[name] = one_by_one(segments, list(texts.values()))
            continue
        program = program_over(segments, texts)
        run = partial(swept, program, segments, fixed(program, sharing))
        variants[name] = run
        found = told(run())
        assert answers.setdefault(tuple(texts.values()), found) == found
    return interleaved(variants, n_runs, clock=time.process_time)


def crossover(settings: Settings) -> Measurement:
    """Return up to which selectivity of the loosest of ten thresholds a cover takes no longer."""
    segments = _segments(settings)
    ratios = {}
    for upper in UPPER.tolist():
        texts = _thresholds(segments, N_QUERIES, upper)
        ways = {each: (texts, each) for each in ("covered", "unshared")}
        times = _timed(segments, ways, settings.pick(5, 2))
        ratios[upper] = paired_ratio(times["unshared"], times["covered"])
    behind = [upper for upper, ratio in ratios.items() if ratio < 1.0]
    value = 1.0 if not behind else max((u for u in ratios if u < behind[0]), default=0.0)
    note = "unshared over covered " + ", ".join(f"{u:g}: {r:.2f}" for u, r in ratios.items())
    return Measurement(value, note, {"ratios": ratios})


def flat(settings: Settings) -> Measurement:
    """Return the time of fifty thresholds over that of one, the loosest met by a tenth."""
    segments = _segments(settings)
    asked = {str(n): (_thresholds(segments, n, 0.1), "covered") for n in (1, 2, 5, 10, 20, 50)}
    times = _timed(segments, asked, settings.pick(15, 3))
    n_ranges = {}
    for name, (texts, _) in asked.items():
        program = program_over(segments, texts)
        n_ranges[name] = len(swept(program, segments, fixed(program, "covered")).rows)
    few, many = n_ranges["1"], n_ranges["50"]
    note = f"{times_told(times)}; answers grow from {few} ranges to {many}"
    value = paired_ratio(times["50"], times["1"])
    return Measurement(value, note, seconds_of(times) | {"ranges": n_ranges})


def chain(settings: Settings, way: str, other: str = "unshared") -> Measurement:
    """Return the time of ten chains of two filters in another way over that of a way to share them.

    Nearly all segments pass the first filter of each, and next to none the second.

    Args:
        settings: how much is run.
        way: to share them.
        other: ``unshared``, in the same block, or ``one by one``: each is a query of its own.
    """
    segments = _segments(settings)
    first = np.quantile(_least(segments.coefs["x"]), np.linspace(0.99, 0.999, N_QUERIES))
    second = np.quantile(_least(segments.coefs["y"]), np.linspace(0.0005, 0.005, N_QUERIES))
    texts = {
        f"a{at}": f"x < {a!r} AND y < {b!r}"
        for at, (a, b) in enumerate(zip(first.tolist(), second.tolist(), strict=True))
    }
    ways = {each: (texts, each) for each in ("covered", "union", "unshared", ALONE)}
    # What a loop would do: the second filter, which leaves out nearly all, comes first.
    turned = {
        f"a{at}": " AND ".join(text.split(" AND ")[::-1]) for at, text in enumerate(texts.values())
    }
    ways |= {
        "covered, second first": (turned, "covered"),
        "unshared, second first": (turned, "unshared"),
    }
    times = _timed(segments, ways, settings.pick(9, 3))
    value = paired_ratio(times[other], times[way])
    return Measurement(value, times_told(times), seconds_of(times))


RUNS: Runs = {
    "alarms_crossover": crossover,
    "alarms_flat": flat,
    "alarms_chain_covered": lambda settings: chain(settings, "covered"),
    "alarms_chain_union": lambda settings: chain(settings, "union"),
    "alarms_chain_alone": lambda settings: chain(settings, "covered", "one by one"),
}
