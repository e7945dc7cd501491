"""Runs of both engines over the same files, the comparison of their results, and the words.

A run is a cold process. Its figure is the time from the first statement, with the session ready, to
the last result in a file. The time until the session is ready, and the processor time, are beside
it in the notes. The engines take turns, and every second round goes backwards. An untimed run of
eddyline comes first, because a machine compiles its kernels once and keeps them.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from typing import Any

import duckdb

from benchmarks.harness import flink
from benchmarks.harness.isolated import alone
from benchmarks.harness.scenario import Measurement
from benchmarks.harness.statistics import median, spread
from benchmarks.peers import eddyline_child

CHILD = "benchmarks.peers.flink_child:run"

SETTINGS = {"PYTHONDONTWRITEBYTECODE": ""}
"""Variables of both processes: users keep the bytecode of packages, so cold processes do too."""

N_SHOWN = 3
"""Rows that differ which an error shows."""

Job = dict[str, Any]
Times = dict[str, Any]


def in_flink(job: Job) -> Times:
    """Run a job in Flink.

    Raises:
        RuntimeError: it failed; the message ends with the last cause that Flink told.
    """
    with tempfile.TemporaryDirectory(prefix="eddyline_flink_") as folder:
        heap = f"-Xmx{eddyline_child.HEAP}"
        settings = {"JVM_ARGS": heap, "FLINK_LOG_DIR": folder, **SETTINGS}
        job = {**job, "spawned": time.time()}
        return alone(CHILD, environment=settings, python=flink.interpreter(), job=job)


def in_eddyline(job: Job) -> Times:
    """Run a job in eddyline."""
    job = {**job, "spawned": time.time()}
    return alone(eddyline_child.HERE, environment=SETTINGS, job=job)


ENGINES: dict[str, Callable[[Job], Times]] = {"eddyline": in_eddyline, "flink": in_flink}


def race(job: Job, n_rounds: int) -> dict[str, list[Times]]:
    """Run a job in both engines, in turns; returns the times of the runs of each.

    Raises:
        AssertionError: the results of a round differ.
    """
    with tempfile.TemporaryDirectory(prefix="eddyline_results_") as folder:
        in_eddyline({**job, "out": folder})
    times: dict[str, list[Times]] = {name: [] for name in ENGINES}
    for number in range(n_rounds):
        with tempfile.TemporaryDirectory(prefix="eddyline_results_") as folder:
            for name in ENGINES if number % 2 == 0 else reversed(ENGINES):
                times[name].append(ENGINES[name]({**job, "out": f"{folder}/{name}"}))
            n_results = compared(job, f"{folder}/eddyline", f"{folder}/flink")
        for name in ENGINES:
            times[name][-1]["n_results"] = n_results
    return times


def compared(job: Job, ours: str, theirs: str) -> int:
    """Compare the results of both engines as bags of rows; returns the number of results.

    Args:
        job: names the columns, their types, and which results count.
        ours: folder of the CSV files of eddyline.
        theirs: folder of the CSV files of Flink.

    Raises:
        AssertionError: a row is in one bag more often than in the other, or there is no row.
    """
    with duckdb.connect(config={"threads": eddyline_child.CORES}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, files in (("ours", f"{ours}/*.csv"), ("theirs", f"{theirs}/*")):
            kinds = {
                column: kind.replace("STRING", "VARCHAR") for column, kind in job["results"].items()
            }
            connection.execute(
                f"CREATE TABLE {name} AS SELECT * FROM read_csv('{files}', header = false, "
                f"auto_detect = false, delim = ',', quote = '\"', escape = '\"', "
                f"columns = {kinds}) WHERE {job['kept']}"
            )
        n_ours, n_theirs = (
            int(connection.sql(f"SELECT count(*) FROM {name}").fetchall()[0][0])
            for name in ("ours", "theirs")
        )
        differing = {
            f"{one} alone": connection.sql(
                f"FROM {one} EXCEPT ALL FROM {other} LIMIT {N_SHOWN}"
            ).fetchall()
            for one, other in (("ours", "theirs"), ("theirs", "ours"))
        }
    alike = n_ours == n_theirs and not any(differing.values())
    assert alike, f"eddyline has {n_ours:,} results, Flink {n_theirs:,}; {differing}"
    assert n_ours, "neither engine has results"
    return n_ours


def ratios(times: dict[str, list[Times]], figure: str = "seconds") -> list[float]:
    """Return a figure of Flink over that of eddyline, by round."""
    pairs = zip(times["flink"], times["eddyline"], strict=True)
    return [theirs[figure] / ours[figure] for theirs, ours in pairs]


def measured(job: Job, n_rounds: int, rows: str) -> Measurement:
    """Race over files, which are then removed; ``rows`` says what they hold."""
    try:
        times = race(job, n_rounds)
    finally:
        shutil.rmtree(job["folder"], ignore_errors=True)
    gains, peer = ratios(times), times["flink"][0]
    note = (
        f"Flink {peer['version']}; {rows}, {peer['n_results']:,} results; ratio of runs "
        f"{spread(gains)}, of processor time {median(ratios(times, 'busy_s')):.2f}; {told(times)}"
    )
    return Measurement(median(gains), note, dict(times))


def told(times: dict[str, list[Times]]) -> str:
    """Return the times of both engines in words."""
    words = []
    for name, runs in times.items():
        seconds, ready, busy = (
            [run[figure] for run in runs] for figure in ("seconds", "ready_s", "busy_s")
        )
        words.append(
            f"{name} {median(seconds):.3g} s ({spread(seconds)}; processor {median(busy):.3g} s) "
            f"after {median(ready):.3g} s until ready"
        )
    return ", ".join(words)
