"""A thousand alarms over vessels, beside one by one and as rules on raw rows; and by their number.

An alarm is a square of a tenth of a degree around a position that some vessel had. One by one each
is asked alone of the same segments, of every so-many alarms, times so many. Rules find the rows
inside, alarms when vessels are: that takes more, and says more. Times are of the operators alone,
models and rows are there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.alarms.data import made_up_v1, one_by_one, program_over, segments_of, swept
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.timing import interleaved, paired_ratio, seconds_of, times_told
from benchmarks.models.data import vessels
from eddyline.data.arrays import Floats
from eddyline.models.fitting.fit import fit
from eddyline.options import SharingOptions
from eddyline.query.conditions import And, Compare, Operand, Rule
from eddyline.rules.compile.bitmap_block import BitmapBlocks
from eddyline.rules.compile.program import compile_rules
from eddyline.rules.match.matcher import Matcher
from eddyline.rules.planning.planner import make_plan
from eddyline.sql.types import DOUBLE

SIDE = 0.1
"""Of a square (degrees)."""

ONE_OF = 20
"""Alarms that are asked one by one: one of so many."""

BATCH_ROWS = 10_000

Squares = list[tuple[float, float]]


def _squares(lat: Floats, lon: Floats, n: int) -> Squares:
    rows = np.random.default_rng(97).choice(len(lat), n, replace=len(lat) < n)
    return list(zip((lat[rows] - SIDE / 2).tolist(), (lon[rows] - SIDE / 2).tolist(), strict=True))


def _texts(squares: Squares) -> dict[str, str]:
    return {
        f"a{at}": f"lat >= {lat!r} AND lat <= {lat + SIDE!r} "
        f"AND lon >= {lon!r} AND lon <= {lon + SIDE!r}"
        for at, (lat, lon) in enumerate(squares)
    }


def _as_rules(squares: Squares, values: dict[str, Floats]) -> Callable[[], int]:
    """Return what finds the rows in each square, planned from the first rows."""
    lat_of, lon_of = (Operand(f"`{name}`", DOUBLE, (name,)) for name in ("lat", "lon"))

    def one(number: int, lat: float, lon: float) -> Rule:
        ends = ((lat_of, lat), (lon_of, lon))
        parts = [Compare(of, ">=", low) for of, low in ends]
        parts += [Compare(of, "<=", low + SIDE) for of, low in ends]
        return Rule(f"r{number}", And(tuple(parts)))

    program = compile_rules(tuple(one(at, *each) for at, each in enumerate(squares)))
    names = [each.strip("`") for each in program.columns]
    n = len(values["lat"])
    batches = [
        [pa.array(values[name][start : start + BATCH_ROWS]) for name in names]
        for start in range(0, n, BATCH_ROWS)
    ]
    blocks = BitmapBlocks(program)
    matcher = Matcher(program, make_plan(blocks, SharingOptions()), blocks)
    _, seen = matcher.match(batches[0], n_rows=len(batches[0][0]), sample=np.arange(2_000))
    matcher.follow(make_plan(blocks, SharingOptions(), seen))

    def run() -> int:
        return sum(len(matcher.match(each, n_rows=len(each[0]))[0].rows) for each in batches)

    return run


def thousand(settings: Settings, other: str) -> Measurement:
    """Return the time of another way to a thousand alarms over that of alarms solved together."""
    rows = vessels()
    segments = fit(rows.keys, rows.times, rows.values, rows.within("1 %"))[0]
    squares = _squares(rows.values["lat"], rows.values["lon"], settings.pick(1_000, 100))
    texts = _texts(squares)
    program = program_over(segments, texts)
    few = list(texts.values())[::ONE_OF]
    variants: dict[str, Callable[[], Any]] = {
        "together": partial(swept, program, segments, {}),
        "one by one, a part": one_by_one(segments, few),
        "rules": _as_rules(squares, rows.values),
    }
    times = interleaved(variants, settings.pick(5, 2), clock=time.process_time)
    of_part = paired_ratio(times["one by one, a part"], times["together"]) * len(texts) / len(few)
    ratios = {"one by one": of_part, "rules": paired_ratio(times["rules"], times["together"])}
    note = (
        f"{len(segments)} segments of {len(rows)} rows; {len(few)} of {len(texts)} alarms one by "
        f"one; {times_told(times)}"
    )
    return Measurement(ratios[other], note, seconds_of(times) | ratios)


def by_number(settings: Settings) -> Measurement:
    """Return the time of 10,000 alarms over that of 1,000, on made up lines."""
    n = settings.pick(20_000, 4_000)
    lat, lon = (made_up_v1(seed, n)["uniform"] for seed in (0, 1))
    segments = segments_of({"lat": lat, "lon": lon})
    numbers = (1, 10, 100, 1_000, 10_000)
    variants = {}
    for number in numbers:
        texts = _texts(_squares(lat[:, 0], lon[:, 0], number))
        variants[str(number)] = partial(swept, program_over(segments, texts), segments, {})
    times = interleaved(variants, settings.pick(5, 2), clock=time.process_time)
    value = paired_ratio(times["10000"], times["1000"])
    return Measurement(value, times_told(times), seconds_of(times))


RUNS: Runs = {
    "alarms_one_by_one": lambda settings: thousand(settings, "one by one"),
    "alarms_as_rules": lambda settings: thousand(settings, "rules"),
    "alarms_by_number": by_number,
}
