"""Keys of streams that are declared: what is refused, and how a query goes on afterwards."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import eddyline as el
from eddyline.errors import OptionError, QueryError
from eddyline.query.script import read_script
from tests.spark.joins.join_streams import stream_of, write_batch

pytestmark = pytest.mark.spark

JOIN = (
    "SELECT o.id AS id, p.at AS at FROM orders [RANGE 100 SECONDS] o, payments [RANGE 100 SECONDS]"
    " p, kinds k WHERE o.id = p.id AND o.kind = k.kind"
)


def write(folder, stream, number, ids, kinds=None):
    """A file of a stream, whose rows follow each other by a second from batch to batch."""
    at = [1_000_000 * (10 * number + place) for place in range(len(ids))]
    columns = {"id": ids, "at": pa.array(at, pa.timestamp("us", "UTC"))}
    if kinds is not None:
        columns["kind"] = kinds
    write_batch(folder, stream, number, pa.table(columns))


def started(spark, folder, *, key):
    engine = el.Engine(spark)
    for name, declared in (("orders", key), ("payments", None)):
        rows = stream_of(spark, folder, name)
        engine.stream(name, rows, time="at", lateness="0 seconds", key=declared)
    engine.table("kinds", spark.createDataFrame([(1,), (2,)], "kind int"))
    query = engine.query(JOIN, name="paid", buckets=4, constraints="exact")
    return query.start(
        "parquet",
        path=str(folder / "out"),
        checkpoint=str(folder / "ckpt"),
        trigger="available_now",
    )


@pytest.mark.large
def test_a_second_row_with_a_key_ends_the_query_with_nothing_lost(spark, tmp_path):
    write(tmp_path, "orders", 0, ["a", "b"], [1, 3])
    write(tmp_path, "payments", 0, ["b", "a"])
    write(tmp_path, "orders", 1, ["c", "a"], [1, 1])
    write(tmp_path, "payments", 1, ["c", "c"])
    run = started(spark, tmp_path, key="id")
    with pytest.raises(Exception, match="two rows of stream 'orders' have the key id = 'a', of "):
        run.await_termination(500)
    out = pq.read_table(tmp_path / "out", columns=["id"])
    assert sorted(out["id"].to_pylist()) == ["a"], "of the first batch alone"
    run = started(spark, tmp_path, key=None)
    assert run.await_termination(500)
    out = pq.read_table(tmp_path / "out", columns=["id"])
    assert sorted(out["id"].to_pylist()) == ["a", "a", "c", "c"], "with the second a"


@pytest.mark.large
def test_a_key_is_said_in_explain_and_makes_its_stream_and_tables_many_one(spark, tmp_path):
    for number in range(2):
        write(tmp_path, "orders", number, [f"{number}a", f"{number}b"], [1, 2])
        write(tmp_path, "payments", number, [f"{number}b", f"{number}a"])
    run = started(spark, tmp_path, key="id")
    assert run.await_termination(500)
    text = run.explain()
    assert "checked with every row: id of o" in text
    (line,) = [each for each in text.splitlines() if each.split()[:3] == ["p", "matched", "no"]]
    assert "100" in line, "all payments have found their order and its kind"
    out = pq.read_table(tmp_path / "out", columns=["id"])
    assert sorted(out["id"].to_pylist()) == ["0a", "0b", "1a", "1b"]


def test_what_can_be_declared(spark, tmp_path):
    engine = el.Engine(spark)
    rows = spark.readStream.schema("id bigint, ts timestamp").parquet(str(tmp_path))
    with pytest.raises(QueryError, match=r"stream 's': .*key column 'idd'.*'id'"):
        engine.stream("s", rows, time="ts", key="idd")
    with pytest.raises(OptionError, match="key of stream 's'"):
        engine.stream("s", rows, time="ts", key=3)
    engine.stream("s", rows, time="ts", key="id")
    made = engine.query("SELECT * FROM s WHERE id > 3")
    with pytest.raises(QueryError, match="'t' is made by a query, which takes no key"):
        engine.stream("t", made, key="id")
    script = read_script("CREATE STREAM s WITH (format='rate', time='timestamp', key='value')")
    assert script.streams[0].options["key"] == "value"
    with pytest.raises(QueryError, match="finds the keys of tables itself"):
        read_script("CREATE TABLE s WITH (format='csv', path='a', key='value')")
    made = "CREATE STREAM t WITH (key='a') AS SELECT * FROM s"
    with pytest.raises(QueryError, match="is made by a query, so it has no key"):
        read_script(f"CREATE STREAM s WITH (format='rate'); {made}")
