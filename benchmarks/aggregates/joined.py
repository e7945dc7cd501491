"""What aggregates over a join take beside the join itself, on real order-book messages.

Parquet in and out. Both queries run over the same files in one session, in turns.
"""

from __future__ import annotations

from itertools import chain

from benchmarks.filters.local_files import run_over_ticks, ticks
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median, ratios, spread

FROM = (
    "FROM ticks a [RANGE 20 MILLISECONDS], ticks b [RANGE 10 MILLISECONDS] "
    "WHERE a.symbol = b.symbol AND a.type = 4"
)
QUERIES = {
    "join": f"SELECT a.symbol, a.size, b.price, a.ts AS at, b.ts AS bt {FROM}",
    "aggregates": (
        "SELECT a.symbol, count(*) AS n, sum(a.size) AS size, max(b.price) AS high, "
        f"window.end AS until {FROM} GROUP BY a.symbol"
    ),
}

N_BATCHES = 6
ROUNDS = 3


def over_join(settings: Settings) -> Measurement:
    """The time of a batch of aggregates over a join over that of the join that returns its rows."""
    n_batches = settings.pick(N_BATCHES, 3)
    folder = str(ticks(n_batches))
    took: dict[str, list[list[float]]] = {name: [] for name in ("aggregates", "join")}
    n_results = {}
    for _ in range(settings.pick(ROUNDS, 1)):
        for name, rounds in took.items():
            with run_over_ticks(folder, QUERIES[name]) as (_run, ms, n_results[name]):
                rounds.append(ms[n_batches // 2 :])
    by_round = ratios(took)
    told = ", ".join(
        f"{name} {n_results[name]:,} results, {spread([*chain(*rounds)])} ms"
        for name, rounds in took.items()
    )
    return Measurement(median(by_round), f"later batches: {told}; {spread(by_round)}", {"ms": took})


RUNS: Runs = {"aggregates_over_join": over_join}
