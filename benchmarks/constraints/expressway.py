"""Linear Road's queries over the positions of cars [Babu05 6.11], on a generated expressway.

A car reports every 30 seconds, as the benchmark has it, so that the last 30 seconds have the last
report of each active car (LastRep, restricted to CurActiveCars). The thesis has a million cars and
does not define two of its queries; how they are read here is said beside each. The seed is that of
the day.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from benchmarks.constraints.data import Batches
from benchmarks.constraints.learned import Ratio, compared, hot_ratio, time_ratio, told
from benchmarks.harness.scenario import Measurement, Runs, Settings
from eddyline.data.arrays import Ints

SECOND_US = 1_000_000

REPORT_S = 30
"""Seconds between reports of a car."""

SEGMENT_FEET = 5_280

STOPPED = 4
"""Reports of one place that say that a car has had an accident."""

LEAD_S = 300
"""Seconds that cars drive before the first that counts, so that some have stopped by then."""


@dataclass(frozen=True)
class Reports:
    """The reports of a second."""

    car: Ints
    number: Ints
    """Of each report among those of its trip, over all cars: no two are the same."""
    place: Ints
    """Feet from the beginning of the road."""
    segment: Ints
    has_stopped: Ints
    """For how many reports the car has been where it is."""
    is_last: Ints
    """1 where its trip ends."""
    at: Ints
    """µs."""


def expressway_v1(n_cars: int, n_seconds: int, seed: int) -> Iterator[Reports]:
    """Yield the reports of each second: cars drive, some stop for minutes, trips end and begin.

    So many seconds come after those in which the road fills.
    """
    rng = np.random.default_rng([seed, 87])
    turn = rng.integers(0, REPORT_S, n_cars)
    place = rng.integers(0, 100 * SEGMENT_FEET, n_cars)
    feet = rng.integers(1_300, 4_000, n_cars)  # in 30 seconds: 30 to 90 miles an hour
    stops_for, stopped = np.zeros(n_cars, np.int64), np.ones(n_cars, np.int64)
    car, next_car, n_reports = np.arange(n_cars), n_cars, 0
    for second in range(-LEAD_S, n_seconds):
        mine = np.flatnonzero(turn == second % REPORT_S)
        moves = stops_for[mine] == 0
        starts = moves & (rng.random(mine.size) < 0.002)
        stops_for[mine[starts]] = rng.integers(4, 11, int(starts.sum()))
        place[mine[moves]] += feet[mine[moves]]
        stopped[mine] = np.where(moves, 1, stopped[mine] + 1)
        stops_for[mine[~moves]] -= 1
        is_last = moves & (rng.random(mine.size) < 0.02)
        at = second * SECOND_US + np.sort(rng.integers(0, SECOND_US, mine.size))
        numbers = n_reports + np.arange(mine.size)
        segment = place[mine] // SEGMENT_FEET
        if second >= 0:
            is_last_one = is_last.astype(np.int64)
            yield Reports(car[mine], numbers, place[mine], segment, stopped[mine], is_last_one, at)
        n_reports += mine.size
        gone = mine[is_last]
        car[gone], next_car = next_car + np.arange(gone.size), next_car + gone.size
        place[gone], stopped[gone] = rng.integers(0, 100 * SEGMENT_FEET, gone.size), 1


def _delayed(waiting: list[tuple[Ints, Ints]], until: int) -> tuple[Ints, Ints]:
    """Take out of what waits, and return, the keys and instants before an instant, in order."""
    keys, at = (np.concatenate(each) for each in zip(*waiting, strict=True))
    order = np.argsort(at, kind="stable")
    keys, at = keys[order], at[order]
    due = int(np.searchsorted(at, until))
    waiting[:] = [(keys[due:], at[due:])]
    return keys[:due], at[:due]


def current(reports: Iterator[Reports], seed: int) -> Batches:
    """CurCarSeg: the last report of each car, and the car among those that are active."""
    del seed
    for each in reports:
        yield {"s": (each.number, each.at), "t": (each.number, each.at)}


def accidents(reports: Iterator[Reports], seed: int) -> Batches:
    """AccSeg: current segments, and cars that have stopped, known up to a second later."""
    rng, waiting = np.random.default_rng([seed, 88]), [(np.empty(0, np.int64),) * 2]
    for each in reports:
        stopped = each.has_stopped >= STOPPED
        late = rng.integers(0, SECOND_US, int(stopped.sum()))
        waiting.append((each.number[stopped], each.at[stopped] + late))
        until = (int(each.at[0]) // SECOND_US + 1) * SECOND_US
        yield {"s": (each.number, each.at), "t": _delayed(waiting, until)}


def exits(reports: Iterator[Reports], seed: int) -> Batches:
    """CarExitStr: reports, and cars that do not report any more, known 30 seconds later."""
    del seed
    waiting = [(np.empty(0, np.int64),) * 2]
    for each in reports:
        is_last = each.is_last == 1
        waiting.append((each.number[is_last], each.at[is_last] + REPORT_S * SECOND_US))
        until = (int(each.at[0]) // SECOND_US + 1) * SECOND_US
        yield {"s": (each.number, each.at), "t": _delayed(waiting, until)}


def tolls(reports: Iterator[Reports], seed: int) -> Batches:
    """NegTollStr: reports, and the toll of their segment, which comes at the start of a minute."""
    del seed
    for second, each in enumerate(reports):
        minute, segments = second // 60, np.arange(200)
        keys = minute * 1_000 + (segments if second % 60 == 0 else segments[:0])
        at = np.full(keys.size, second * SECOND_US)
        yield {"s": (minute * 1_000 + each.segment % 200, each.at), "t": (keys, at)}


@dataclass(frozen=True)
class Asked:
    """A query."""

    streams: Any
    """Returns its batches, of reports and a seed."""
    window_s: int
    keys: tuple[str, ...]
    """The inputs whose key is declared: the edges of the thesis are many-one."""


QUERIES = {
    "current": Asked(current, REPORT_S, ("s", "t")),
    "accidents": Asked(accidents, REPORT_S, ("s", "t")),
    "exits": Asked(exits, 5 * 60, ("s", "t")),
    "tolls": Asked(tolls, 5 * 60, ("t",)),
}


@cache
def _found(settings: Settings, name: str) -> dict[str, Any]:
    asked, n_cars = QUERIES[name], settings.pick(100_000, 10_000)
    n_seconds = 2 * asked.window_s + settings.pick(120, 30)

    def batches() -> Batches:
        reports = expressway_v1(n_cars, n_seconds, settings.unseen)
        found: Batches = asked.streams(reports, settings.unseen)
        return found

    *_, found = compared(
        batches,
        dict.fromkeys("st", asked.window_s * SECOND_US),
        keys=dict.fromkeys(asked.keys, 0),
        warm=asked.window_s * 3 // 2,
    )
    return found


def query(settings: Settings, name: str, ratio: Ratio) -> Measurement:
    """Hot rows, or time, with constraints over without (Table 6.3, Fig 6.19)."""
    found = _found(settings, name)
    note = f"seed {settings.unseen}; {told(found)}"
    return Measurement(1 / ratio(found), note, found)


RUNS: Runs = {
    f"constraints_road_{name}_{what}": partial(query, name=name, ratio=ratio)
    for name in QUERIES
    for what, ratio in (("hot", hot_ratio), ("time", time_ratio))
}
