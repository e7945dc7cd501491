"""Time of a batch as the windows grow, end to end on Spark.

The same files are joined by several queries in turns. Each has a key of its own, with as many
values as its windows have rows: whatever a window holds, a row finds one row of it on average.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.harness.isolated import alone
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median, spread
from benchmarks.joins.data import NAMES, batch_v1
from benchmarks.joins.streams import HERE, Joined, answer_of, duckdb_once, written

SPAN_US = 1_000_000
"""How long a batch is (µs of event time); a window is as many of them as it needs for its rows."""

STREAMS = NAMES[:3]


def growing_batches_v1(
    n_batches: int, n_rows: int, windows: Sequence[int], seed: int = 0
) -> list[dict[str, pa.Table]]:
    """Return batches of streams with a key for each size of a window (in batches), all uniform.

    The key ``k_<batches>`` has as many values as rows of a stream come in them.
    """
    rng = np.random.default_rng([seed, 67])

    def rows(number: int) -> pa.Table:
        found = batch_v1(rng, number, n_rows, SPAN_US, np.zeros(n_rows, np.int64)).drop("k")
        for n in windows:
            found = found.append_column(f"k_{n}", pa.array(rng.integers(0, n * n_rows, n_rows)))
        return found

    return [{name: rows(number) for name in STREAMS} for number in range(n_batches)]


def joined_over(n: int) -> Joined:
    """Return the join over windows of so many batches, by the key that goes with them."""
    first, *others = STREAMS
    return Joined(
        dict.fromkeys(STREAMS, n * SPAN_US),
        tuple((f"{first}.k_{n}", f"{name}.k_{n}") for name in others),
        (f"{first}.k_{n}", *(f"{name}.v" for name in STREAMS)),
        SPAN_US // 10,
    )


def grown(name: str, n_rows: int, windows: Sequence[int], n_timed: int) -> dict[str, Any]:
    """Let joins over windows of several sizes take turns; their answers are checked by DuckDB.

    ``n_timed`` batches come after those that fill the largest window. Returns what each found, by
    its window, and what a batch takes in which nothing is joined.

    Raises:
        AssertionError: an answer is wrong.
    """
    batches = growing_batches_v1(max(windows) + n_timed, n_rows, windows)
    first = written(joined_over(windows[0]), batches, {})
    joins = {str(n): replace(joined_over(n), folder=first.folder) for n in windows}
    try:
        said = {label: asdict(join) for label, join in joins.items()}
        found = alone(f"{HERE}:joins_alone", joins=said, name=name)
        for label, join in joins.items():
            wanted, own = answer_of(duckdb_once(join)), answer_of(found[label])
            assert own == wanted, f"windows of {label} batches: {own} where DuckDB has {wanted}"
    finally:
        shutil.rmtree(first.folder, ignore_errors=True)
    return found


def _told(found: dict[str, Any]) -> str:
    """Return what is kept, and for ours how long look-ups took."""
    state = found["state"]
    kept = f"{state['rows']:,} rows kept, {state['bytes'] / 1e6:,.0f} MB"
    if "probe_s" not in state:
        return kept
    return f"{kept}, look-ups {1e3 * state['probe_s'] / len(found['seconds']):.0f} ms a batch"


def over_windows(settings: Settings, name: str, windows: Sequence[int]) -> Measurement:
    """Batches over the largest windows beside those over the smallest.

    All that a batch takes counts, runs that are merged and rows that leave included, but for what
    it would take if nothing was joined.
    """
    n_rows = settings.pick(33_333, 3_333)
    sizes = windows[: settings.pick(len(windows), 2)]
    found = grown(name, n_rows, sizes, settings.pick(27, 4))
    timed = {label: each["seconds"][max(sizes) :] for label, each in found.items()}
    floor = timed.pop("no join")
    own = {label: sum(each) - sum(floor) for label, each in timed.items()}
    smallest, largest = str(min(sizes)), str(max(sizes))
    notes = [
        f"{_told(found[label])}: a batch {median(each):.3g} s ({spread(each)}), "
        f"{own[label] / own[smallest]:.2f} of the first "
        f"({sum(each) / sum(timed[smallest]):.2f} with what any batch takes)"
        for label, each in timed.items()
    ]
    note = (
        f"{3 * n_rows:,} rows a batch, {len(floor)} batches, {median(floor):.3g} s if nothing "
        f"is joined; {'; '.join(notes)}"
    )
    return Measurement(own[largest] / own[smallest], note, found)


RUNS: Runs = {
    "joins_growth": partial(over_windows, name="eddyline", windows=(1, 10, 100)),
    "joins_growth_chain": partial(over_windows, name="chain", windows=(1, 10)),
}
