"""Which method finds the rules that a row may make true for the least: the choice, against each.

Synthetic rules over ten whole-number columns, on the matcher alone. Each method is given a plan
from the same sampled rows; times are interleaved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.timing import interleaved, paired_ratio
from eddyline.options import SharingOptions
from eddyline.query.conditions import And, Compare, Operand, Rule
from eddyline.rules.compile.bitmap_block import BitmapBlocks
from eddyline.rules.compile.program import Program, compile_rules
from eddyline.rules.match.matcher import Matcher
from eddyline.rules.planning.planner import make_plan
from eddyline.sql.types import INT

N_COLUMNS = 10
BATCH_ROWS = 10_000
COLUMNS = tuple(Operand(f"`a{at}`", INT, (f"a{at}",)) for at in range(N_COLUMNS))
METHODS = ("auto", "witnesses", "blocks")


def range_rules(n_rules: int, width: int, rng: np.random.Generator) -> tuple[Rule, ...]:
    """Return rules of four ranges each, every range ``width`` of 100 values wide."""

    def one(number: int) -> Rule:
        parts = []
        for column in rng.choice(N_COLUMNS, 4, replace=False):
            low = int(rng.integers(0, 100 - width))
            parts += [
                Compare(COLUMNS[column], ">=", low),
                Compare(COLUMNS[column], "<=", low + width),
            ]
        return Rule(f"r{number}", And(tuple(parts)))

    return tuple(map(one, range(n_rules)))


def equality_rules(n_rules: int, rng: np.random.Generator) -> tuple[Rule, ...]:
    """Return rules of three equalities each."""

    def one(number: int) -> Rule:
        columns = rng.choice(N_COLUMNS, 3, replace=False)
        values = rng.integers(0, 100, 3).tolist()
        parts = [
            Compare(COLUMNS[column], "=", value)
            for column, value in zip(columns, values, strict=True)
        ]
        return Rule(f"r{number}", And(tuple(parts)))

    return tuple(map(one, range(n_rules)))


def _matched(program: Program, method: str, batches: list[list[pa.Array]]) -> Callable[[], int]:
    """Return what evaluates all batches by one method, planned from the first."""
    blocks = BitmapBlocks(program)
    options = SharingOptions(method=method)
    matcher = Matcher(program, make_plan(blocks, options), blocks)
    sample = np.arange(2_000)
    _, seen = matcher.match(batches[0], n_rows=BATCH_ROWS, sample=sample)
    matcher.follow(make_plan(blocks, options, seen))

    def run() -> int:
        return sum(len(matcher.match(each, n_rows=BATCH_ROWS)[0].rows) for each in batches)

    return run


def _methods(settings: Settings) -> Measurement:
    n_rows = settings.pick(40_000, 10_000)
    rng = np.random.default_rng(0)
    data = {each.sql: pa.array(rng.integers(0, 100, n_rows).astype(np.int32)) for each in COLUMNS}
    kinds: dict[str, Callable[[int], tuple[Rule, ...]]] = {
        "wide ranges": lambda n: range_rules(n, 30, rng),
        "narrow ranges": lambda n: range_rules(n, 10, rng),
        "equalities": lambda n: equality_rules(n, rng),
    }
    details: dict[str, Any] = {}
    worst = 0.0
    for kind, make in kinds.items():
        for n_rules in (50, 500, 2_000):
            program = compile_rules(make(n_rules))
            batches = [
                [data[sql].slice(start, BATCH_ROWS) for sql in program.columns]
                for start in range(0, n_rows, BATCH_ROWS)
            ]
            runs = {method: _matched(program, method, batches) for method in METHODS}
            counts = {method: run() for method, run in runs.items()}
            assert len(set(counts.values())) == 1, f"methods disagree: {counts}"
            times = interleaved(runs, settings.pick(5, 3))
            median = {method: each.median for method, each in times.items()}
            better = min(METHODS[1:], key=median.__getitem__)
            ratio = paired_ratio(times["auto"], times[better])
            worst = max(worst, ratio)
            details[f"{kind}, {n_rules} rules"] = {
                "auto over the better": round(ratio, 3),
                **{f"{each} ns/row": round(1e9 * median[each] / n_rows) for each in METHODS},
            }
    return Measurement(worst, "worst of nine sets of rules", details)


RUNS: Runs = {"sharing_methods": _methods}
