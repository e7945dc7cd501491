"""What a join asks of one side alone: asked before segments are paired, or on pairs.

Lines follow each other in twenty entities, those of the other side between them; or a hundred
entities that are there at the same time. Of the left side a share is met.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from benchmarks.alarms.data import made_up_v1, segments_of
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median, spread
from benchmarks.harness.timing import interleaved
from benchmarks.models.data import SECOND_US
from eddyline.models.segments import Segments
from eddyline.models.solving.expressions import Condition
from eddyline.models.solving.joins import joined, joined_with_others
from eddyline.models.solving.text import read_condition
from eddyline.models.solving.where import where

SHARES = (0.01, 0.1, 0.5, 0.9, 1.0)
NAMES = ("left.x", "left.y", "right.x", "right.y")


def _same(n: int) -> tuple[Segments, Segments, str]:
    one, other = (_lines(n, 20, seed) for seed in (0, 2))
    later = other.lo + 3 * SECOND_US
    other = replace(other, origin=later, lo=later, hi=later + 10 * SECOND_US)
    return one, other, "left.x > right.x"


def _others(n: int) -> tuple[Segments, Segments, str]:
    found = _lines(n, 100, 0)
    lo = found.lo - found.keys * (n // 100) * 10 * SECOND_US
    found = replace(found, origin=lo, lo=lo, hi=lo + 10 * SECOND_US)
    return found, found, "abs(left.y - right.y) < 5"


def _lines(n: int, n_entities: int, seed: int) -> Segments:
    x, y = (made_up_v1(each, n)["uniform"] for each in (seed, seed + 1))
    return segments_of({"x": x, "y": y}, n_entities)


def one_sided(settings: Settings, kind: str) -> Measurement:
    """Return the time of asking pairs over that of asking before, where a hundredth is met."""
    is_same = kind == "same"
    n = settings.pick(20_000, 5_000) if is_same else settings.pick(2_000, 500)
    one, other, more = (_same if is_same else _others)(n)
    pair = joined if is_same else joined_with_others
    ratios: dict[float, list[float]] = {}
    for share in SHARES:
        least = float(np.quantile(one.coefs["x"][:, 0], 1 - share)) if share < 1 else 0.0
        condition = read_condition(f"left.x > {least!r} AND {more}", NAMES)

        def before(condition: Condition = condition) -> int:
            return len(pair(one, other, condition).segments)

        def on_pairs(condition: Condition = condition) -> int:
            return len(where(pair(one, other).segments, condition))

        assert before() == on_pairs()
        runs = {"on pairs": on_pairs, "before": before}
        times = interleaved(runs, settings.pick(9, 3), clock=time.process_time)
        pairs = zip(times["on pairs"].seconds, times["before"].seconds, strict=True)
        ratios[share] = [late / early for late, early in pairs]
    told = (f"{share:g} {median(each):.2f} ({spread(each)})" for share, each in ratios.items())
    details = {str(share): each for share, each in ratios.items()}
    return Measurement(median(ratios[SHARES[0]]), f"by share met {', '.join(told)}", details)


RUNS: Runs = {
    "models_one_sided": lambda settings: one_sided(settings, "same"),
    "models_one_sided_pairs": lambda settings: one_sided(settings, "others"),
}
