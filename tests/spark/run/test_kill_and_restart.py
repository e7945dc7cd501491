"""Filters, rules and a join are killed in the middle and go on: no row is lost or doubled.

The loops of many kills are large tests; this is the one of every day.
"""

from __future__ import annotations

import time

import duckdb
import pyarrow as pa
import pytest

from tests.spark.joins.join_streams import write_batch
from tests.spark.processes import Process
from tests.spark.run import killed

pytestmark = pytest.mark.spark

N_BATCHES = 4
N_WRITTEN = 2
"""Batches that each query has written when it is killed; the last may not be committed."""


def expected():
    rules = " UNION ALL ".join(
        f"SELECT id, '{name}' AS rule FROM s WHERE {text}" for name, text in killed.RULES.items()
    )
    texts = {
        "filters": "SELECT id FROM s WHERE k < 90 AND k % 7 <> 3 ORDER BY ALL",
        "rules": f"SELECT * FROM ({rules}) ORDER BY ALL",
        "join": "SELECT s.id, t.id FROM s JOIN t USING (k) WHERE greatest(s.ts, t.ts) <= "
        "least(s.ts + INTERVAL 6 SECONDS, t.ts + INTERVAL 3 SECONDS) ORDER BY ALL",
    }
    with duckdb.connect() as connection:
        for name in "st":
            parts = [killed.rows_of(name, number) for number in range(N_BATCHES)]
            connection.register(name, pa.concat_tables(parts))
        return {name: connection.sql(text).fetchall() for name, text in texts.items()}


def written(folder, name):
    """Return the batches of which a query's sink has files."""
    return {each.name[:14] for each in (folder / "out" / name).glob("batch-*")}


@pytest.mark.large
def test_every_operator_is_killed_and_goes_on(spark, tmp_path):
    for number in range(N_BATCHES):
        for name in "st":
            write_batch(tmp_path, name, number, killed.rows_of(name, number))
    wanted = expected()
    process = Process("-m", killed.__name__, tmp_path)
    while any(len(written(tmp_path, name)) < N_WRITTEN for name in wanted):
        process.check_runs()
        time.sleep(0.02)
    assert process.kill().count("done") < len(wanted), "it was done before it was killed"

    runs = killed.start(spark, tmp_path)
    assert {run.name for run in runs} == wanted.keys()
    for run in runs:
        assert run.await_termination(240)
        assert all(record.batch_id >= N_WRITTEN - 1 for record in run.records), "it goes on"
        columns = "id, unnest(matches)" if run.name == "rules" else "*"
        files = f"{tmp_path}/out/{run.name}/*.parquet"
        got = duckdb.sql(f"SELECT {columns} FROM '{files}' ORDER BY ALL").fetchall()
        assert got == wanted[run.name] != [], run.name
