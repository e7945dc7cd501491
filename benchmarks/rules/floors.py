"""What is left of the distance to Polars once rows are in Python: the trip alone, and rules alone.

500 rules over rows that Polars has in its memory, and that Spark has in its cache.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import pyarrow as pa

from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median
from benchmarks.harness.timing import interleaved, paired_ratio, seconds_of, times_told
from benchmarks.rules.data import rows_v1
from benchmarks.rules.forms import ours_by_rule
from benchmarks.rules.numbers import KINDS, Worker, by_polars, rows_of
from eddyline.spark.rules.rule_set import RuleSet

N_RULES = 500

OF_KINDS = ("ranges", "equalities")


def _last_row(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Take all rows, and return one."""
    n_rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"n": pa.array([n_rows], pa.int64())})


@cache
def _compared(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return, by kind of rules, times of Polars, of ours, and of a job that evaluates nothing."""
    n_rows = settings.pick(400_000, 50_000)
    found = {}
    for kind in OF_KINDS:
        rules, df = KINDS[kind](N_RULES), rows_of(n_rows)
        ours = RuleSet(rules)
        ours_by_rule(ours, df)
        read = [name for name in df.columns if any(f"{name} " in text for text in rules.values())]
        times = interleaved(
            {
                "polars": lambda rules=rules: by_polars(n_rows, rules),  # type: ignore[misc]
                "trip": lambda df=df, read=read: (  # type: ignore[misc]
                    df.select(read).mapInArrow(_last_row, "n bigint").collect()
                ),
                "eddyline": lambda df=df, ours=ours: ours_by_rule(ours, df),  # type: ignore[misc]
            },
            settings.pick(5, 2),
        )
        found[kind] = {
            **seconds_of(times),
            "over trip": paired_ratio(times["polars"], times["trip"]),
            "over rules": paired_ratio(times["polars"], times["eddyline"]),
            "told": f"{n_rows:,} rows; {times_told(times)}",
        }
    return found


def beside_polars(settings: Settings, of: str) -> Measurement:
    """Time of Polars over ours, or over a job that hands columns to Python alone, the worse."""
    found = _compared(settings)
    note = "; ".join(f"{kind} {each[of]:.2f} ({each['told']})" for kind, each in found.items())
    return Measurement(min(each[of] for each in found.values()), note, found)


def alone(settings: Settings) -> Measurement:
    """Processor time of Polars over that of the rules without Spark, the lesser of two kinds."""
    n_rows = settings.pick(200_000, 50_000)
    table = rows_v1(n_rows)
    found, notes, details = [], [], {}
    for kind in OF_KINDS:
        rules = KINDS[kind](N_RULES)
        worker = Worker(rules, table)
        times = interleaved(
            {
                "polars": lambda rules=rules: by_polars(n_rows, rules),  # type: ignore[misc]
                "rules": worker.run,
            },
            settings.pick(5, 2),
            clock=time.process_time,
        )
        found.append(paired_ratio(times["polars"], times["rules"]))
        each = {name: 1e9 * median(times[name].seconds) / n_rows for name in times}
        told = ", ".join(f"{name} {ns:.0f} ns a row" for name, ns in each.items())
        notes.append(f"{kind} {found[-1]:.2f} ({told})")
        details[kind] = {**seconds_of(times), "ns": each}
    return Measurement(min(found), "; ".join(notes), details)


RUNS: Runs = {
    "sharing_polars": partial(beside_polars, of="over rules"),
    "sharing_polars_trip": partial(beside_polars, of="over trip"),
    "sharing_polars_without_spark": alone,
}
