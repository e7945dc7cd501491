"""What relations take beside the streams that they are made of, on real order-book messages.

Aggregates over a join beside the join, a set operation beside UNION ALL, and a LEFT JOIN of joined
rows beside the first LEFT JOIN.

Parquet in and out. Both queries run over the same files in one session, in turns.
"""

from __future__ import annotations

from functools import partial
from itertools import chain

from benchmarks.filters.local_files import run_over_ticks, ticks
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median, ratios, spread

FROM = (
    "FROM ticks a [RANGE 20 MILLISECONDS], ticks b [RANGE 10 MILLISECONDS] "
    "WHERE a.symbol = b.symbol AND a.type = 4"
)
ORDERS = (
    "FROM ticks a [RANGE 10 SECONDS] LEFT JOIN ticks e [NOW] "
    "ON e.symbol = a.symbol AND e.order_id = a.order_id AND e.type = 4 "
)
SIDES = (
    "SELECT symbol, price FROM ticks [RANGE 1 SECOND] WHERE type = 1",
    "SELECT symbol, price FROM ticks [RANGE 1 SECOND] WHERE type = 3",
)
SETS = {
    "EXCEPT ALL": " EXCEPT ALL ".join(SIDES),
    "UNION ALL": " UNION ALL ".join(SIDES).replace(" [RANGE 1 SECOND]", ""),
}
STAGES = {
    "two LEFT JOINs": (
        f"SELECT a.order_id, e.size, d.ts AS gone {ORDERS}LEFT JOIN ticks d [NOW] "
        "ON d.symbol = a.symbol AND d.order_id = a.order_id AND d.type = 3 WHERE a.type = 1"
    ),
    "one": f"SELECT a.order_id, e.size {ORDERS}WHERE a.type = 1",
}
QUERIES = {
    "aggregates": (
        "SELECT a.symbol, count(*) AS n, sum(a.size) AS size, max(b.price) AS high, "
        f"window.end AS until {FROM} GROUP BY a.symbol"
    ),
    "join": f"SELECT a.symbol, a.size, b.price, a.ts AS at, b.ts AS bt {FROM}",
}

N_BATCHES = 6
ROUNDS = 3


def _compared(settings: Settings, queries: dict[str, str]) -> Measurement:
    """The time of a batch of the first query over that of the second."""
    n_batches = settings.pick(N_BATCHES, 3)
    folder = str(ticks(n_batches))
    took: dict[str, list[list[float]]] = {name: [] for name in queries}
    n_results = {}
    for _ in range(settings.pick(ROUNDS, 1)):
        for name, rounds in took.items():
            with run_over_ticks(folder, queries[name]) as (_run, ms, n_results[name]):
                rounds.append(ms[n_batches // 2 :])
    by_round = ratios(took)
    told = ", ".join(
        f"{name} {n_results[name]:,} results, {spread([*chain(*rounds)])} ms"
        for name, rounds in took.items()
    )
    return Measurement(median(by_round), f"later batches: {told}; {spread(by_round)}", {"ms": took})


RUNS: Runs = {
    "aggregates_over_join": partial(_compared, queries=QUERIES),
    "aggregates_sets": partial(_compared, queries=SETS),
    "joins_stages": partial(_compared, queries=STAGES),
}
