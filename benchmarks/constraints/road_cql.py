"""Linear Road's queries as CQL through the public API [Babu05 6.11], beside DuckDB.

The thesis has the text of AccSeg, and in it that of CurCarSeg (Fig 6.19). Of CarExitStr and
NegTollStr it has the names. Here a car exits when it is no longer active, and gets back the toll of
the segment that it is in. What differs from the text, and why:

* A subquery in FROM is a stream of results, not a relation whose rows go. So the active cars are
  ``CarStr [RANGE 30 SECONDS]`` itself, of which the join takes the report that is the last one.
* DISTINCT over a join takes no window of N rows. So ``AccSeg`` counts, by segment, the cars that
  come to be in an accident (ISTREAM) and those that no longer are (DSTREAM). ``AccCarSeg`` is the
  join as the text has it, without DISTINCT.
* ``window.end`` and ``MAX(ts)`` stand in SELECT, since a stream of results needs an event time.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from pyarrow import parquet

import eddyline as el
from benchmarks.constraints.expressway import REPORT_S, SECOND_US, expressway_v1
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.spark import spark_session

FIRST_US = 1_700_000_040 * SECOND_US
"""The first instant (µs since 1970), at a full minute."""

STREAMS = {
    # Of each report, whether the last four reports of its car are of one place.
    "Stopped": (
        "ts",
        """
        SELECT cid, sid, ts, COUNT(*) OVER last_four = 4
            AND MIN(xpos) OVER last_four = MAX(xpos) OVER last_four AS has_stopped
        FROM CarStr
        WINDOW last_four AS (PARTITION BY cid ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW)
        """,
    ),
    "AccCars": (
        "instant",
        """
        SELECT cid, MAX(ts) AS ts, window.end AS instant
        FROM CarStr [PARTITION BY cid ROWS 4]
        GROUP BY cid
        HAVING COUNT(DISTINCT xpos) = 1 AND COUNT(*) = 4
        """,
    ),
    "AccBegins": (
        "instant",
        """
        SELECT ISTREAM(cid, MAX_BY(sid, ts) AS sid, window.end AS instant)
        FROM Stopped [RANGE 30 SECONDS] GROUP BY cid HAVING MAX_BY(has_stopped, ts)
        """,
    ),
    "AccEnds": (
        "instant",
        """
        SELECT DSTREAM(cid, MAX_BY(sid, ts) AS sid, window.end AS instant)
        FROM Stopped [RANGE 30 SECONDS] GROUP BY cid HAVING MAX_BY(has_stopped, ts)
        """,
    ),
    "Inactive": (
        "instant",
        "SELECT DSTREAM(cid, window.end AS instant) FROM CarStr [RANGE 30 SECONDS] GROUP BY cid",
    ),
    "CarExits": (
        "instant",
        """
        SELECT Inactive.cid, LastRep.sid, Inactive.instant
        FROM Inactive [NOW], CarStr [PARTITION BY cid ROWS 1] AS LastRep
        WHERE Inactive.cid = LastRep.cid
        """,
    ),
    # The toll of a minute, by the cars of the five minutes before.
    "SegToll": (
        "instant",
        """
        SELECT sid, COUNT(DISTINCT cid) * COUNT(DISTINCT cid) AS toll, window.end AS instant
        FROM CarStr [RANGE 5 MINUTES SLIDE 1 MINUTE] GROUP BY sid
        """,
    ),
}
"""Named intermediate queries, each with its event time."""

QUERIES = {
    "CurCarSeg": """
        SELECT RSTREAM(LastRep.cid, LastRep.sid)
        FROM CarStr [PARTITION BY cid ROWS 1] AS LastRep,
             CarStr [RANGE 30 SECONDS] AS CurActiveCars
        WHERE LastRep.cid = CurActiveCars.cid AND LastRep.ts = CurActiveCars.ts
        """,
    "AccCarSeg": """
        SELECT LastRep.cid, LastRep.sid, LastRep.ts
        FROM CarStr [PARTITION BY cid ROWS 1] AS LastRep, AccCars [RANGE 30 SECONDS]
        WHERE LastRep.cid = AccCars.cid AND LastRep.ts = AccCars.ts
        """,
    "AccSeg": """
        SELECT sid, window.end AS instant
        FROM (
            SELECT sid, 1 AS n, instant FROM AccBegins
            UNION ALL SELECT sid, -1 AS n, instant FROM AccEnds
        ) AS Changes [UNBOUNDED]
        GROUP BY sid HAVING SUM(n) > 0
        """,
    "CarExitStr": "SELECT cid, sid, instant FROM CarExits",
    "NegTollStr": """
        SELECT CarExits.cid, -SegToll.toll AS toll, CarExits.instant
        FROM CarExits [NOW], SegToll [RANGE 1 MINUTE]
        WHERE CarExits.sid = SegToll.sid
        """,
}
"""The queries of Table 6.3, and AccSeg's join by itself."""


def cars_v1(n_cars: int, n_seconds: int, seed: int) -> pa.Table:
    """Return the reports of cars of ``expressway_v1``, exactly every 30 seconds, in order."""
    parts = []
    for second, each in enumerate(expressway_v1(n_cars, n_seconds, seed)):
        at = second * SECOND_US + np.arange(each.car.size) * (SECOND_US // max(each.car.size, 1))
        ts = pa.array(FIRST_US + at, pa.timestamp("us", "UTC"))
        parts.append(pa.table({"cid": each.car, "xpos": each.place, "sid": each.segment, "ts": ts}))
    return pa.concat_tables(parts)


def queries(engine: el.Engine, **options: Any) -> dict[str, Any]:
    """Return the queries of an engine that has the stream ``CarStr``, by name."""
    for name, (instant, text) in STREAMS.items():
        engine.stream(name, engine.query(text, name=name), time=instant)
    return {name: engine.query(text, name=name, **options) for name, text in QUERIES.items()}


_ACTIVE = f"INTERVAL {REPORT_S} SECONDS"

_DUCKDB = f"""
CREATE VIEW last_four AS
  SELECT *, lead(ts) OVER (PARTITION BY cid ORDER BY ts) AS next_ts,
    count(*) OVER four = 4 AND min(xpos) OVER four = max(xpos) OVER four AS has_stopped
  FROM CarStr
  WINDOW four AS (PARTITION BY cid ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW);
-- A report is the last one of an active car from its instant to before the next, or to 30 s.
CREATE VIEW current AS
  SELECT *, ts + {_ACTIVE} + INTERVAL 1 MICROSECOND AS inactive,
    least(next_ts, inactive) AS until FROM last_four;
CREATE VIEW exits AS
  SELECT cid, sid, inactive AS instant FROM current
  WHERE (next_ts IS NULL OR next_ts > ts + {_ACTIVE}) AND inactive < (SELECT max(ts) FROM CarStr);
-- AccSeg, distinct: segments at each instant at which a car begins or ends to be in an accident.
CREATE VIEW instants AS
  SELECT DISTINCT unnest([ts, until]) AS instant FROM current WHERE has_stopped;
CREATE VIEW segments AS
  SELECT DISTINCT instant, sid FROM instants
  JOIN current ON ts <= instant AND instant < until WHERE has_stopped;
CREATE VIEW numbered AS SELECT instant, row_number() OVER (ORDER BY instant) AS n FROM instants;
"""

_WANTED = {
    "CurCarSeg": """
        SELECT cid, sid FROM current
        JOIN (SELECT DISTINCT ts AS instant FROM CarStr) ON ts <= instant AND instant < until
        WHERE instant < (SELECT max(ts) FROM CarStr)
        """,
    "AccCarSeg": """
        SELECT cid, sid, ts FROM current
        WHERE has_stopped AND ts < (SELECT max(ts) FROM CarStr)
        """,
    "AccSeg": """
        SELECT sid, instant FROM segments JOIN numbered USING (instant)
        WHERE (sid, n - 1) NOT IN (SELECT (sid, n) FROM segments JOIN numbered USING (instant))
          AND instant < (SELECT max(ts) FROM CarStr)
        """,
    "CarExitStr": "SELECT * FROM exits",
    "NegTollStr": """
        SELECT exits.cid, -(count(DISTINCT CarStr.cid) ** 2)::BIGINT AS toll, exits.instant
        FROM exits JOIN CarStr ON exits.sid = CarStr.sid
          AND CarStr.ts < date_trunc('minute', exits.instant)
          AND CarStr.ts >= date_trunc('minute', exits.instant) - INTERVAL 5 MINUTES
        GROUP BY exits.cid, exits.instant
        """,
}


def wanted(name: str, cars: pa.Table) -> pa.Table:
    """Return what DuckDB says that a query has of all reports, before the last of them.

    A result of its instant is final only once a later report has come.
    """
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("CarStr", cars)
    connection.execute(_DUCKDB)
    return connection.sql(_WANTED[name]).to_arrow_table()


def n_other(got: pa.Table, of_duckdb: pa.Table) -> int:
    """Return how many rows one of two results has and the other has not, as bags."""
    assert got.column_names == of_duckdb.column_names, (got.column_names, of_duckdb.column_names)
    connection = duckdb.connect()
    connection.register("got", got)
    connection.register("of_duckdb", of_duckdb)
    ((n,),) = connection.execute(
        "SELECT count(*) FROM ((FROM got EXCEPT ALL FROM of_duckdb) "
        "UNION ALL (FROM of_duckdb EXCEPT ALL FROM got))"
    ).fetchall()
    return int(n)


def write(cars: pa.Table, folder: Path, n_batches: int) -> None:
    """Write reports as files of which each is a batch, in the order of event time."""
    for number, at in enumerate(np.linspace(0, cars.num_rows, n_batches + 1, dtype=int)[:-1]):
        part = cars.slice(at, -(-cars.num_rows // n_batches))
        path = folder / f"{number:05d}.parquet"
        parquet.write_table(part, path)
        os.utime(path, (FIRST_US // SECOND_US + number,) * 2)


def as_cql(settings: Settings) -> Measurement:
    """The share of the queries whose results are those of DuckDB."""
    cars = cars_v1(settings.pick(200, 60), settings.pick(900, 450), settings.unseen)
    spark, is_same, notes = spark_session(), {}, []
    with tempfile.TemporaryDirectory() as folder:
        write(cars, Path(folder), 3)
        schema = spark.read.parquet(folder).schema
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        engine = el.Engine(spark)
        engine.stream("CarStr", reader.parquet(folder), time="ts", lateness="0 seconds")
        for name, query in queries(engine).items():
            started = time.perf_counter()
            run = query.start("memory", trigger="available_now")
            run.await_termination()
            seconds, got = time.perf_counter() - started, run.to_arrow()
            is_same[name] = n_other(got, wanted(name, cars)) == 0
            notes.append(f"{name} {got.num_rows:,} results in {seconds:.3g} s")
    note = f"seed {settings.unseen}; {cars.num_rows:,} reports in 3 batches; {'; '.join(notes)}"
    return Measurement(float(np.mean(list(is_same.values()))), note, {"is_same": is_same})


RUNS: Runs = {"constraints_road_cql": as_cql}
