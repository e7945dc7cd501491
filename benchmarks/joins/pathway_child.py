"""Runs in an environment that has pathway, and nothing of eddyline.

``python pathway_child.py FOLDER WINDOW_US join`` joins the streams ``s``, ``t`` and ``u``, each a
CSV file of the folder with the columns ``n``, ``ts``, ``k`` and ``v``, and prints a line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import pathway as pw

PRIME, FACTORS = 998_244_353, (1_000_003, 10_007, 101)
"""As in ``benchmarks.joins.streams``."""


class Row(pw.Schema):  # type: ignore[misc]  # pathway is not installed where types are checked
    """A row of any stream."""

    n: int
    ts: int
    k: int
    v: float


def read(folder: str) -> list[Any]:
    """Return the streams, whole."""
    return [
        pw.io.csv.read(f"{folder}/{name}.csv", schema=Row, mode="static")
        for name in ("s", "t", "u")
    ]


def joined(folder: str, window: int) -> Any:
    """Return the number of results and the sum over their ids."""
    s, t, u = read(folder)
    near = pw.temporal.interval(-window, window)
    pairs = s.interval_join(t, s.ts, t.ts, near, s.k == t.k).select(
        k=s.k, s_n=s.n, t_n=t.n, s_ts=s.ts, t_ts=t.ts, s_v=s.v, t_v=t.v
    )
    found = pairs.interval_join(u, pairs.s_ts, u.ts, near, pairs.k == u.k).select(
        pairs.k, pairs.s_n, pairs.t_n, pairs.s_v, pairs.t_v, pairs.t_ts,
        u_n=u.n, u_v=u.v, u_ts=u.ts,
    )  # fmt: skip
    found = found.filter((found.t_ts - found.u_ts <= window) & (found.u_ts - found.t_ts <= window))
    by_s, by_t, by_u = FACTORS
    told = found.select(part=(found.s_n * by_s + found.t_n * by_t + found.u_n * by_u) % PRIME)
    return told.reduce(n=pw.reducers.count(), checksum=pw.reducers.sum(pw.this.part))


def counted(folder: str) -> Any:
    """Return the number of rows: what reading alone takes."""
    counts = [
        each.reduce(n=pw.reducers.count(), checksum=pw.reducers.sum(each.n))
        for each in read(folder)
    ]
    return counts[0].concat_reindex(*counts[1:])


def timed(table: Any) -> dict[str, Any]:
    """Run everything that a table needs; the last value of each row counts."""
    answers: dict[Any, tuple[int, int]] = {}

    def take(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:  # noqa: ARG001
        if is_addition:
            answers[key] = row["n"], row["checksum"]

    pw.io.subscribe(table, on_change=take)
    started = time.perf_counter()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    seconds = time.perf_counter() - started
    n, checksum = (sum(each) for each in zip(*answers.values(), strict=True))
    return {"seconds": seconds, "n_results": n, "checksum": checksum}


if __name__ == "__main__":
    folder, window = sys.argv[1], int(sys.argv[2])
    kind = sys.argv[3]
    found = timed(joined(folder, window) if kind == "join" else counted(folder))
    print("result: " + json.dumps(found), flush=True)
