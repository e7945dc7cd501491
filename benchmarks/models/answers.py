"""Answers: those of `exact` beside DuckDB's on the rows, and bounds on shapes that nobody chose."""

from __future__ import annotations

import duckdb
import numpy as np

from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.models.data import REAL, SECOND_US, Rows
from benchmarks.models.fits import BOUNDS, CHECKED, broken
from eddyline.models.fitting.bounds import FitOptions
from eddyline.models.fitting.fit import fit
from eddyline.models.solving.exact import OPEN, TRUE, decide, uncovered
from eddyline.models.solving.text import read_condition

SHARES = (0.1, 0.5, 0.9)
"""Which of the values, by rank, conditions compare with."""


def conditions(rows: Rows) -> list[str]:
    """Return conditions on rows whose edges are values that rows have."""
    found = []
    for name, values in rows.values.items():
        edges = np.quantile(values, SHARES, method="nearest").tolist()
        found += [f"{name} > {each!r}" for each in edges]
    one, other = next(iter(rows.values)), next(reversed(rows.values))
    middle = {each: float(np.median(rows.values[each])) for each in (one, other)}
    found.append(f"{one} >= {middle[one]!r} AND {other} <> {middle[other]!r}")
    found.append(f"{one} < {middle[one]!r} OR 2 * {other} = {2 * middle[other]!r}")
    return found


def exact(settings: Settings) -> Measurement:
    """Rows that are in an exact answer and not in DuckDB's, or the other way around."""
    n_wrong = n_asked = n_read = 0
    names = list(REAL)[: settings.pick(len(REAL), 1)]
    for name in names:
        rows = REAL[name]()
        con = duckdb.connect()
        con.register("rows", rows.table.append_column("place", [np.arange(len(rows))]))
        for bound in BOUNDS:
            segments, _ = fit(rows.keys, rows.times, rows.values, rows.within(bound))
            not_covered = uncovered(segments, rows.keys, rows.times, rows.values)
            for text in conditions(rows):
                condition = read_condition(text, list(rows.values))
                codes = decide(segments, condition).of(rows.keys, rows.times, not_covered)
                wanted = np.zeros(len(rows), np.bool_)
                wanted[con.sql(f"SELECT place FROM rows WHERE {text}").fetchnumpy()["place"]] = True
                is_open = codes == OPEN  # SQL judges what is open, as in `exact()`
                n_wrong += int(((codes == TRUE) != wanted)[~is_open].sum())
                n_asked += len(rows)
                n_read += int(is_open.sum())
    note = (
        f"of {n_asked:,} decisions on rows of {', '.join(names)} at {' and '.join(BOUNDS)}, edges "
        f"being values of rows; {n_read / n_asked:.1%} of the rows were read"
    )
    return Measurement(float(n_wrong), note, {"asked": n_asked, "read": n_read})


def unseen(settings: Settings) -> Measurement:
    """Values beyond their bound in shapes that are drawn anew by seeds that nobody chose."""
    seeds = range(settings.unseen, settings.unseen + settings.pick(40, 4))
    n_broken = n_lost = n_checked = 0
    for seed in seeds:
        rows = drawn(seed)
        for bound in BOUNDS:
            for method, degree in CHECKED.items():
                counts = broken(rows, bound, FitOptions(method=method, degree=degree), None)
                n_checked, n_broken = n_checked + counts[0], n_broken + counts[1]
                n_lost += counts[2]
    note = (
        f"of {n_checked:,} values of steps, walks, waves, noise and cubes of walks in stretches of "
        "100 rows, with values a million times as large, gaps, repeated instants and missing "
        f"values, seeds {seeds[0]} to {seeds[-1]}; {n_lost:,} values that lost to a greater one at "
        "the same instant"
    )
    return Measurement(float(n_broken), note, {"seeds": list(seeds), "checked": n_checked})


def drawn(seed: int, n_entities: int = 12, n_each: int = 2_000) -> Rows:
    """Return rows of entities, in stretches of 100 that are each of a kind.

    The kinds are steps, walks, waves, noise and cubes of walks. Some values are a million times as
    large; there are gaps of an hour, and instants that repeat. ``b`` is ``a`` with the steps added,
    at two decimals and with missing values.
    """
    rng = np.random.default_rng([seed, 93])
    n = n_entities * n_each
    keys = np.repeat(np.arange(n_entities), n_each)
    steps = rng.choice([0, 1, 1, 1, 2, 7], n) * SECOND_US + rng.integers(0, 3, n)
    steps[rng.random(n) < 0.002] = 3_600 * SECOND_US
    times = np.cumsum(steps.reshape(n_entities, -1), axis=1).ravel() + 1_700_000_000 * SECOND_US
    kind = np.repeat(rng.integers(0, 5, n // 100), 100)
    jumps = np.cumsum((rng.random(n) < 0.01) * rng.normal(0, 20, n))
    shapes = np.select(
        [kind == each for each in range(4)],
        [
            jumps,
            np.cumsum(rng.normal(0, 0.05, n)),
            30 * np.sin(np.arange(n) / rng.uniform(5, 200)),
            rng.normal(0, 10, n),
        ],
        1e-9 * np.cumsum(rng.normal(0, 1, n)) ** 3,
    )
    shapes[rng.random(n) < 0.003] *= 1e6
    missing = np.where(rng.random(n) < 0.01, np.nan, np.round(shapes + jumps, 2))
    return Rows(keys, times, {"a": shapes, "b": missing})


RUNS: Runs = {"models_exact": exact, "models_unseen": unseen}
