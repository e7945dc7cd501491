"""Clouds of coefficients, segments that have them, and alarms over these."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from benchmarks.models.data import SECOND_US
from eddyline.alarms.alarm_set import read_alarm
from eddyline.alarms.plan import AlarmPlan, TemplatePlan
from eddyline.alarms.program import AlarmProgram, Tally, program_of
from eddyline.alarms.sweep import Found, Sweep
from eddyline.data.arrays import Floats
from eddyline.models.segments import Segments
from eddyline.models.solving.where import where

N_SEGMENTS = 20_000
ADVANCE_S = 10.0
"""Length of a segment (s)."""

STOCKS = {
    "s12": (77.657, -0.00832, 16.636, 0.0207),
    "s3762": (22.914, -0.00111, 3.498, 0.000257),
    "s4878": (27.002, -0.00294, 0.293, 0.00478),
    "s6849": (38.404, -0.000608, 0.986, 0.000601),
    "s6879": (70.537, 16.350, 16.958, 136_314.256),
    "s6973": (127.607, 0.0267, 3.463, 2.472),
    "s8329": (37.466, 0.00341, 10.976, 0.0314),
}
"""Mean value and slope, and their variances, of stocks in January 2006 [Pulse Fig 3.6]."""


def made_up_v1(seed: int, n: int = N_SEGMENTS) -> dict[str, Floats]:
    """Return lines drawn from the two distributions of [Pulse Fig 3.5], ``[n, 2]``."""
    rng = np.random.default_rng([seed, 93])
    return {
        "uniform": np.stack([rng.uniform(100, 200, n), rng.uniform(-1, 1, n)], axis=1),
        "normal": np.stack([rng.normal(150, 50, n), rng.normal(0, 1, n)], axis=1),
    }


def stocks_v1(seed: int, n: int = N_SEGMENTS) -> dict[str, Floats]:
    """Return lines that stand in for those of stocks, which are not published, ``[n, 2]``.

    They have their moments; s4878 has six clusters, and slopes of s6879 have heavy tails
    (Student's t of three degrees), as the source says of them.
    """
    rng = np.random.default_rng([seed, 94])
    found = {}
    for name, (value, slope, value_var, slope_var) in STOCKS.items():
        c0, c1 = rng.normal(0, 1, n), rng.normal(0, 1, n)
        if name == "s4878":
            at = rng.integers(0, 6, n)
            c0 = 0.2 * c0 + np.array([-1.2, 0.0, 1.2])[at // 2]
            c1 = 0.2 * c1 + np.array([-1.0, 1.0])[at % 2]
        if name == "s6879":
            c1 = rng.standard_t(3, n) / np.sqrt(3)
        c0, c1 = c0 / c0.std(), c1 / c1.std()
        lines = [value + c0 * np.sqrt(value_var), slope + c1 * np.sqrt(slope_var)]
        found[name] = np.stack(lines, axis=1)
    return found


def segments_of(coefs: Mapping[str, Floats], n_entities: int = 20) -> Segments:
    """Return segments of equal length that follow each other, by entity and time."""
    n = len(next(iter(coefs.values())))
    keys = np.arange(n) * n_entities // n
    lo = (np.arange(n) * ADVANCE_S * SECOND_US).astype(np.int64)
    hi, never = lo + int(ADVANCE_S * SECOND_US), np.zeros(n, np.bool_)
    return Segments(
        keys, lo, lo, hi, never, never, dict(coefs), {name: np.zeros(n) for name in coefs}
    )


def program_over(segments: Segments, texts: Mapping[str, str]) -> AlarmProgram:
    """Return alarms, given by name, over segments."""
    alarms = [read_alarm(name, text, [*segments.coefs], ()) for name, text in texts.items()]

    def no_keys(conditions: Mapping[str, str]) -> None:
        msg = f"alarms of benchmarks ask nothing of keys: {conditions}"
        raise AssertionError(msg)

    return program_of(alarms, no_keys)  # type: ignore[arg-type]


def fixed(program: AlarmProgram, sharing: str) -> AlarmPlan:
    """Return the plan that solves all templates in one way, comparisons as written."""
    return {each.text: TemplatePlan(sharing) for each in program.templates}


def swept(
    program: AlarmProgram, segments: Segments, plan: AlarmPlan, tally: Tally | None = None
) -> Found:
    """Return where alarms hold."""
    return Sweep(program, segments, np.zeros((0, 0), np.bool_), plan, tally).run()


def one_by_one(segments: Segments, texts: Sequence[str]) -> Callable[[], int]:
    """Return what asks conditions one after the other, and how many segments they leave."""
    read = [read_alarm("a", each, [*segments.coefs], ()).condition for each in texts]
    conditions = [each for each in read if each is not None]

    def run() -> int:
        return sum(len(where(segments, each)) for each in conditions)

    return run


def told(found: Found) -> int:
    """Return for how long all alarms hold together (µs), which no plan changes."""
    return int((found.hi - found.lo).sum())
