"""Windows, OVER and an interval join beside Flink, over CSV files of 2.4 million rows of the day.

The seed draws the rows and the number of groups. Eight minutes of event time have five rows per
millisecond. Flink runs window table functions, its fastest form, which aggregate in two phases and
share slices of sliding windows.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.joins.data import T0_US
from benchmarks.peers.query import PeerQuery, columns_of, written
from benchmarks.peers.race import measured

SPAN_MS = 480_000
"""Event time of all rows (ms)."""

MINUTE_S = 60

OVER_S = 10
"""Length of the windows of OVER, and of both windows of the join (s)."""

TIMES = {"s": "ts"}

CALLS = {"n": "count(*)", "total": "sum(v)", "mean": "avg(v)", "most": "max(v)"}
"""Aggregates by output column."""

VALUES = {"n": "BIGINT", "total": "BIGINT", "mean": "DOUBLE", "most": "BIGINT"}


def _called(over: str = "", *, in_flink: bool = False) -> str:
    """Return the aggregates; Flink's average of whole numbers would be a whole number."""
    calls = {**CALLS, "mean": "avg(CAST(v AS DOUBLE))"} if in_flink else CALLS
    return ", ".join(f"{call}{over} AS {name}" for name, call in calls.items())


def sliding(slide_s: int) -> PeerQuery:
    """Return aggregates by group over a minute every so many seconds."""
    length, slide = f"INTERVAL '{MINUTE_S}' SECOND", f"INTERVAL '{slide_s}' SECOND"
    window = (
        f"TUMBLE(TABLE s, DESCRIPTOR(ts), {length})"
        if slide_s == MINUTE_S
        else f"HOP(TABLE s, DESCRIPTOR(ts), {slide}, {length})"
    )
    return PeerQuery(
        f"SELECT window.end AS wend, k, {_called()} FROM s [RANGE {MINUTE_S} SECONDS SLIDE "
        f"{slide_s} SECONDS] GROUP BY k",
        f"SELECT window_end AS wend, k, {_called(in_flink=True)} FROM TABLE({window}) "
        f"GROUP BY window_start, window_end, k",
        {"wend": "TIMESTAMP", "k": "BIGINT", **VALUES},
        "k >= 0",
        TIMES,
    )


def rows_before() -> PeerQuery:
    """Return aggregates of each row over the rows of its group in the seconds before it."""
    call, flink_call = _called(" OVER w"), _called(" OVER w", in_flink=True)
    window = (
        f"WINDOW w AS (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '{OVER_S}' SECOND "
        f"PRECEDING AND CURRENT ROW)"
    )
    return PeerQuery(
        f"SELECT id, ts, k, {call} FROM s {window}",
        f"SELECT id, ts, k, {flink_call} FROM s {window}",
        {"id": "BIGINT", "ts": "TIMESTAMP", "k": "BIGINT", **VALUES},
        "id >= 0",
        TIMES,
    )


def interval_join() -> PeerQuery:
    """Return pairs of rows of one key whose times are at most some seconds apart."""
    columns = "s.id AS s_id, t.id AS t_id, s.k AS k, s.v AS s_v, t.v AS t_v"
    span = f"INTERVAL '{OVER_S}' SECOND"
    return PeerQuery(
        f"SELECT {columns} FROM s [RANGE {OVER_S} SECONDS], t [RANGE {OVER_S} SECONDS] "
        f"WHERE s.k = t.k",
        f"SELECT {columns} FROM s JOIN t ON s.k = t.k AND s.ts BETWEEN t.ts - {span} "
        f"AND t.ts + {span}",
        dict.fromkeys(("s_id", "t_id", "k", "s_v", "t_v"), "BIGINT"),
        "s_id >= 0",
        {"s": "ts", "t": "ts"},
    )


def rows_v1(rng: np.random.Generator, n_rows: int, n_keys: int) -> pa.Table:
    """Return rows in the order of time: ``id``, ``ts``, ``k`` and ``v``, whole numbers all.

    Instants are uniform in eight minutes, keys uniform below ``n_keys``, values below 10,000.
    """
    instants = np.sort(rng.integers(0, SPAN_MS, n_rows)) + T0_US // 1_000
    return pa.table(
        {
            "id": np.arange(n_rows),
            "ts": pa.array(instants).cast(pa.timestamp("ms")),
            "k": rng.integers(0, n_keys, n_rows),
            "v": rng.integers(0, 10_000, n_rows),
        }
    )


def beside_flink(settings: Settings, query: PeerQuery) -> Measurement:
    """Time of Flink over ours; one stream, or two with half of the rows each."""
    rng = np.random.default_rng([settings.unseen, 91])
    n_rows = settings.pick(2_400_000, 240_000) // len(query.times)
    n_keys = int(10 ** rng.uniform(2.5, 3.5))
    if len(query.times) > 1:
        # A row meets the rows of its key in a span of twice the window: one to four partners.
        n_keys = int(n_rows * 2_000 * OVER_S / SPAN_MS / rng.uniform(1, 4))
    tables = {name: rows_v1(rng, n_rows, n_keys) for name in query.times}
    job = query.job(written(tables, query.times), columns_of(tables))
    rows = f"{n_rows * len(tables):,} rows of {n_keys:,} keys"
    return measured(job, settings.pick(3, 1), rows)


RUNS: Runs = {
    "peers_flink_tumbling": partial(beside_flink, query=sliding(MINUTE_S)),
    "peers_flink_sliding_10s": partial(beside_flink, query=sliding(10)),
    "peers_flink_sliding_1s": partial(beside_flink, query=sliding(1)),
    "peers_flink_over": partial(beside_flink, query=rows_before()),
    "peers_flink_interval_join": partial(beside_flink, query=interval_join()),
}
