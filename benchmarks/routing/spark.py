"""Routing end to end on Spark: five regexes over log lines of five tenants.

Each tenant's lines seldom hold another marker, so that each has another best order, while over all
rows the five regexes drop alike: one order for all has nothing to win.
"""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from benchmarks.filters.spark_end_to_end import (
    NEEDS_SPARK,
    noop,
    seconds_of,
    spark_session,
    times_told,
    with_spark,
)
from benchmarks.harness.scenario import Measurement, Scenario, Settings, at_least
from benchmarks.harness.timing import interleaved, paired_ratio
from benchmarks.workloads import LOG_REGEXES, log_lines_v1

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from benchmarks.harness.timing import Times

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
    folder = Path(tempfile.mkdtemp(prefix="eddyline_bench_"))
    step = -(-table.num_rows // 8)
    for number in range(8):
        parquet.write_table(table.slice(number * step, step), folder / f"part-{number}.parquet")
    df = spark_session().read.parquet(str(folder)).cache()
    df.count()
    return df


def _predicates(kind: str) -> list[Any]:
    if kind == "sql":
        return [f"line RLIKE '{regex}'" for regex in LOG_REGEXES]
    make = _by_pandas if kind == "pandas" else _predicate
    return [make(regex, number) for number, regex in enumerate(LOG_REGEXES)]


def _by_pandas(regex: str, number: int) -> Any:
    """Return a predicate of some 2.5 µs a row, as in ``spark_python_chain``."""
    import eddyline as el  # noqa: PLC0415

    def matches(line: Any) -> Any:
        return line.str.contains(regex, case=False)

    return el.predicate(matches, reads=["line"], arrays="pandas", name=f"marker_{number}")


def _predicate(regex: str, number: int) -> Any:
    """Return a predicate by Arrow's compiled kernel, of some 60 ns a row."""
    import eddyline as el  # noqa: PLC0415

    def matches(line: pa.Array) -> Any:
        return pc.match_substring_regex(line, regex)

    return el.predicate(matches, reads=["line"], name=f"marker_{number}")


def _by_tenant(kind: str) -> Any:
    @with_spark
    def run(settings: Settings) -> Measurement:
        import eddyline as el  # noqa: PLC0415

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
        return _measured(times, known.view().blocks[0].routed_by)

    return run


def _measured(times: dict[str, Times], routed_by: tuple[str, ...]) -> Measurement:
    gain = paired_ratio(times["one order"], times["known"])
    fresh = paired_ratio(times["one order"], times["fresh"])
    by = ", ".join(routed_by) or "nothing"
    note = f"routed by {by}; a fresh conjunction {fresh:.3f}; {times_told(times)}"
    return Measurement(gain, note, {**seconds_of(times), "fresh": fresh, "routed_by": routed_by})


@with_spark
def nothing_to_route(settings: Settings) -> Measurement:
    """Two regexes of a few ns; four attributes are handed over and tell nothing."""
    import eddyline as el  # noqa: PLC0415

    df = _lines(settings.pick(1_500_000, 300_000)).drop("tenant")
    predicates = [_predicate(regex, number) for number, regex in enumerate(("zebra", "yak"))]
    times = interleaved(
        {
            "off": lambda: noop(df.transform(el.all_of(*predicates, routing=False))),
            "on": lambda: noop(df.transform(el.all_of(*predicates))),
            "off again": lambda: noop(df.transform(el.all_of(*predicates, routing=False))),
        },
        settings.pick(9, 3),
    )
    control = paired_ratio(times["off again"], times["off"])
    note = f"off against off {control:.3f}; {times_told(times)}"
    return Measurement(paired_ratio(times["on"], times["off"]), note, seconds_of(times))


SCENARIOS = (
    Scenario(
        id="routing_spark_python",
        shows="time of one learned order over an order per class, Python regexes as in "
        "spark_python_chain, learned before",
        run=_by_tenant("pandas"),
        target=at_least(1.0),
        policies=("a_greedy",),
        counted=False,
        needs=NEEDS_SPARK,
    ),
    Scenario(
        id="routing_spark_kernels",
        shows="the same by Arrow's compiled regex kernel, too cheap for routing to pay",
        run=_by_tenant("kernels"),
        target=at_least(1.0),
        policies=("a_greedy",),
        counted=False,
        needs=NEEDS_SPARK,
    ),
    Scenario(
        id="routing_spark_sql",
        shows="the same, SQL regexes in the JVM",
        run=_by_tenant("sql"),
        target=at_least(1.0),
        policies=("a_greedy",),
        counted=False,
        needs=NEEDS_SPARK,
    ),
    Scenario(
        id="routing_spark_neutral",
        shows="routing on over off where no attribute tells anything, end to end",
        run=nothing_to_route,
        target=None,
        policies=("a_greedy",),
        counted=False,
        needs=NEEDS_SPARK,
    ),
)
