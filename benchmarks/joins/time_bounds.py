"""What windows that follow from the condition save of a join of real order-book messages.

Each execution is joined with the message that placed its order, if that is at most ten seconds
older. The same query runs with the windows of the condition and with windows that keep all rows, in
one session, in turns over the same files.
"""

from __future__ import annotations

from functools import cache
from itertools import chain

from benchmarks.filters.local_files import run_over_ticks, ticks
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median, ratios, spread
from eddyline.spark.joins.operator import JoinOperator

QUERY = (
    "SELECT a.symbol, a.order_id, a.ts, e.ts AS done, e.size FROM ticks {0}a JOIN ticks {0}e "
    "ON a.symbol = e.symbol AND a.order_id = e.order_id AND a.type = 1 AND e.type = 4 "
    "AND e.ts BETWEEN a.ts AND a.ts + INTERVAL '10' SECONDS"
)

WINDOWS = {"unbounded": "[UNBOUNDED] ", "from the condition": ""}

ROUNDS = 3


def _run(folder: str, window: str) -> tuple[list[float], int, int, int]:
    """Return what each batch took (ms), the results, and rows and bytes that are kept at the end.

    Args:
        folder: the files; each is a batch.
        window: of both inputs, as text; empty for those of the condition.
    """
    with run_over_ticks(folder, QUERY.format(window)) as (run, ms, n_results):
        (join,) = (each for each in run.chain.operators if isinstance(each, JoinOperator))
        inputs = join.facts().inputs
    n_kept, n_bytes = sum(each.n_kept for each in inputs), sum(each.n_bytes for each in inputs)
    return ms, n_results, n_kept, n_bytes


@cache
def _raced(settings: Settings) -> tuple[dict[str, list[list[float]]], dict[str, tuple[int, int]]]:
    """Return what the later half of the batches took (ms), and the rows and bytes kept, by way."""
    n_batches = settings.pick(24, 4)
    folder = str(ticks(n_batches))
    took: dict[str, list[list[float]]] = {name: [] for name in WINDOWS}
    kept, n_results = dict[str, tuple[int, int]](), set()
    for _ in range(settings.pick(ROUNDS, 1)):
        for name, window in WINDOWS.items():
            ms, n_rows, *state = _run(folder, window)
            took[name].append(ms[n_batches // 2 :])
            kept[name] = state[0], state[1]
            n_results.add(n_rows)
    assert len(n_results) == 1, f"the ways have {n_results} results"
    return took, kept


def rows_kept(settings: Settings) -> Measurement:
    """Rows that are kept after the last batch in unbounded windows over those of the condition."""
    _, kept = _raced(settings)
    told = ", ".join(f"{name} {n:,} rows, {size / 1e6:.3g} MB" for name, (n, size) in kept.items())
    all_rows, few_rows = (n for n, _ in kept.values())
    return Measurement(all_rows / max(few_rows, 1), f"kept after the last batch: {told}", {})


def time_of_batches(settings: Settings) -> Measurement:
    """Time of a batch with unbounded windows over one with those of the condition."""
    took, _ = _raced(settings)
    by_round = ratios(took)
    told = ", ".join(f"{name} {spread([*chain(*rounds)])}" for name, rounds in took.items())
    note = f"later batches (ms): {told}; ratios {spread(by_round)}"
    return Measurement(median(by_round), note, {"ms": took})


RUNS: Runs = {"joins_bounds_rows": rows_kept, "joins_bounds_time": time_of_batches}
