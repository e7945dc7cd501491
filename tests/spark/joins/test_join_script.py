"""A script that joins two streams and a table, through the command's own path."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from eddyline.errors import SourceError
from eddyline.spark.script import run_script
from tests.spark.facts import facts_of
from tests.spark.joins.join_streams import write_batch

pytestmark = pytest.mark.spark

S = 1_000_000

SCRIPT = """
CREATE STREAM orders WITH (
  format='parquet', path='{0}/orders', maxFilesPerTrigger=1, time='ts', lateness='2 seconds'
);
CREATE STREAM payments WITH (
  format='parquet', path='{0}/payments', maxFilesPerTrigger=1, time='ts'
);
CREATE TABLE regions WITH (
  format='csv', path='{0}/{1}', header=true, schema='code BIGINT, label STRING'
);
CREATE QUERY paid WITH (sink='{2}'{3}) AS
  SELECT o.id, p.id AS paid, r.label
  FROM orders [RANGE 10 SECONDS] AS o, payments [RANGE 5 SECONDS] AS p, regions AS r
  WHERE o.id = p.id AND o.code = r.code;
"""


def rows(*rows):
    seconds, ids, codes = zip(*rows, strict=True)
    return pa.table(
        {
            "ts": pa.array([second * S for second in seconds], pa.timestamp("us", "UTC")),
            "id": pa.array(ids, pa.int64()),
            "code": pa.array(codes, pa.int64()),
        }
    )


@pytest.fixture
def folder(tmp_path):
    write_batch(tmp_path, "orders", 0, rows((0, 1, 7), (1, 2, 8), (2, 3, 9)))
    write_batch(tmp_path, "payments", 0, rows((3, 1, 0), (12, 2, 0)))
    write_batch(tmp_path, "orders", 1, rows((4, 4, 8)))
    write_batch(tmp_path, "payments", 1, rows((13, 3, 0), (14, 4, 0)))
    pc.write_csv(pa.table({"code": [7, 8], "label": ["north", "south"]}), tmp_path / "regions.csv")
    return tmp_path


def script_of(folder, *, table="regions.csv", sink="console", path=""):
    file = folder / "join.sql"
    file.write_text(SCRIPT.format(folder, table, sink, path), "utf-8")
    return file


@pytest.mark.large
def test_two_streams_and_a_table_are_joined(spark, folder):
    out = folder / "out"
    file = script_of(folder, sink="parquet", path=f", path='{out}'")
    (run,) = run_script(file, spark=spark, trigger="available_now")
    assert run.await_termination(120)
    found = pq.read_table(out).sort_by("id").to_pylist()
    # Order 2 has left its window when its payment comes; region 9 of order 3 is no region.
    assert [(row["id"], row["paid"], row["label"]) for row in found] == [
        (1, 1, "north"),
        (4, 4, "south"),
    ]
    assert [each.window for each in facts_of(run).inputs] == [
        "RANGE 10 SECONDS",
        "RANGE 5 SECONDS",
        "static",
    ]
    assert "r (regions)" in run.explain(width=140)
    assert [record.operators[-1].n_results for record in run.records] == [1, 1]


@pytest.mark.large
def test_the_console_shows_what_is_joined(spark, folder, capfd):
    (run,) = run_script(script_of(folder), spark=spark, trigger="available_now")
    assert run.await_termination(120)
    shown = capfd.readouterr().out
    assert "north" in shown
    assert "south" in shown


def test_a_table_that_is_not_there_is_said(spark, folder):
    with pytest.raises(SourceError, match=r"'regions' reads from .*nowhere\.csv', and there is no"):
        run_script(script_of(folder, table="nowhere.csv"), spark=spark)


BOUND = "AND p.ts BETWEEN o.ts - INTERVAL '5' SECONDS AND o.ts + INTERVAL 10 SECONDS"


@pytest.mark.large
@pytest.mark.parametrize(
    ("of_orders", "of_payments", "bound"),
    [("[RANGE 10 SECONDS]", "[RANGE 5 SECONDS]", ""), ("", "", BOUND)],
    ids=["windows", "bounds"],
)
def test_orders_that_nobody_paid(spark, folder, of_orders, of_payments, bound):
    out, file = folder / "unpaid", script_of(folder)
    text = file.read_text("utf-8").partition("CREATE QUERY")[0]
    file.write_text(
        f"""{text}
        CREATE QUERY unpaid WITH (sink='parquet', path='{out}') AS
        SELECT o.id, o.code FROM orders {of_orders} AS o
        WHERE o.code > 7 AND NOT EXISTS (
          SELECT 1 FROM payments {of_payments} AS p WHERE p.id = o.id {bound}
        );""",
        "utf-8",
    )
    (run,) = run_script(file, spark=spark, trigger="available_now")
    assert run.await_termination(120)
    # Order 2 ended at 11 s, and order 3 at 12 s; payments are at 14 s.
    assert sorted(pq.read_table(out)["id"].to_pylist()) == [2, 3]
