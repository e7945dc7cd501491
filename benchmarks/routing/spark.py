"""Routing end to end on Spark: five regexes over log lines of five tenants.

Each tenant's lines seldom hold another marker, so that each has another best order, while over all
rows the five regexes drop alike: one order for all has nothing to win.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

import eddyline as el
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.spark import cached, noop, written
from benchmarks.harness.timing import interleaved, on_over_off, paired_ratio, seconds_of, times_told
from benchmarks.workloads import LOG_REGEXES, log_lines_v1, regex_predicates
from eddyline.query.predicates import Arrays

FRACS = (0.05, 0.9, 0.9, 0.9, 0.9)
"""Share of a tenant's lines that hold a marker: the first is the tenant's own."""


@cache
def _lines(n_rows: int) -> DataFrame:
    """Return the lines of five tenants, mixed, with columns that tell nothing, cached."""
    n_tenants = len(FRACS)
    parts = []
    for tenant in range(n_tenants):
        fracs = tuple(np.roll(FRACS, tenant).tolist())
        lines = log_lines_v1(n_rows // n_tenants, seed=tenant, fracs=fracs).select(["line"])
        names = pa.array([f"tenant-{tenant}"] * lines.num_rows)
        parts.append(lines.append_column("tenant", names))
    table = pa.concat_tables(parts)
    rng = np.random.default_rng(0)
    table = table.take(pa.array(rng.permutation(table.num_rows)))
    for number in range(3):
        noise = pa.array(rng.integers(0, 20, table.num_rows))
        table = table.append_column(f"noise{number}", noise)
    return cached(written(table))


def _predicates(kind: Arrays | Literal["sql"]) -> list[Any]:
    """Return the five regexes in SQL, or as functions over arrays of a kind."""
    if kind == "sql":
        return [f"line RLIKE '{regex}'" for regex in LOG_REGEXES]
    return list(regex_predicates(kind, case=False))


def by_tenant(settings: Settings, kind: Arrays | Literal["sql"]) -> Measurement:
    """Lines of five tenants, each with a marker of its own that few of its lines hold."""
    df = _lines(settings.pick(600_000 if kind == "pandas" else 1_500_000, 300_000))
    known = el.all_of(*_predicates(kind))
    single = el.all_of(*_predicates(kind), routing=False)
    times = interleaved(
        {
            "one order": lambda: noop(df.transform(single)),
            "fresh": lambda: noop(df.transform(el.all_of(*_predicates(kind)))),
            "known": lambda: noop(df.transform(known)),
        },
        settings.pick(5, 3),
    )
    routed_by = known.facts().blocks[0].routed_by
    gain = paired_ratio(times["one order"], times["known"])
    fresh = paired_ratio(times["one order"], times["fresh"])
    by = ", ".join(routed_by) or "nothing"
    note = f"routed by {by}; a fresh conjunction {fresh:.3f}; {times_told(times)}"
    details = {**seconds_of(times), "fresh": fresh, "routed_by": routed_by}
    return Measurement(gain, note, details)


def nothing_to_route(settings: Settings) -> Measurement:
    """Two regexes of a few ns; four attributes are handed over and tell nothing."""
    df = _lines(settings.pick(1_500_000, 300_000)).drop("tenant")
    predicates = regex_predicates("arrow", ("zebra", "yak"))
    value, control, times = on_over_off(
        lambda routing: noop(df.transform(el.all_of(*predicates, routing=routing))),
        settings.pick(9, 3),
    )
    note = f"off against off {control:.3f}; {times_told(times)}"
    return Measurement(value, note, seconds_of(times))


RUNS: Runs = {
    "routing_spark_python": partial(by_tenant, kind="pandas"),
    "routing_spark_kernels": partial(by_tenant, kind="arrow"),
    "routing_spark_sql": partial(by_tenant, kind="sql"),
    "routing_spark_neutral": nothing_to_route,
}
