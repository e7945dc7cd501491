"""LEFT, SEMI and ANTI joins: any cut, any restart gives the definition."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import Phase, given
from pyspark.errors import ArithmeticException

import eddyline as el
from eddyline.errors import OptionError
from tests.examples import examples
from tests.oracles.joins import FOREVER, bag, results_by_partner
from tests.oracles.partner_strategies import partner_cases
from tests.spark.facts import facts_of
from tests.spark.joins.join_streams import ended, join_of, run_to_end, stream_of, write_batch
from tests.spark.joins.test_join_streams import drawn_join

pytestmark = pytest.mark.spark

QUICKLY = [Phase.explicit, Phase.reuse, Phase.generate]
"""Jobs are slow, so that no example is made smaller."""

T0 = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def low_of(case):
    """The instant before which no row of the second input may come any more (µs)."""
    right = case.query.inputs[1].stream
    if case.times[right] is None:
        return FOREVER
    latest = pc.max(case.tables[right]["ts"].cast(pa.int64())).as_py()
    return -FOREVER if latest is None else latest - case.lateness


@pytest.mark.large
@given(case=partner_cases().filter(lambda case: case.batches))
@examples(10, phases=QUICKLY)
def test_any_cut_gives_the_definition(spark, case):
    with tempfile.TemporaryDirectory() as folder:
        run = ended(drawn_join(spark, case, Path(folder), buckets=2))
        wanted = results_by_partner(case.query, case.tables, case.times, low_of(case))
        assert bag(run.to_arrow()) == bag(wanted)


@pytest.mark.large
@given(case=partner_cases())
@examples(40, phases=QUICKLY)
def test_batch_dataframes_give_the_definition(spark, case):
    frames = {name: spark.createDataFrame(rows) for name, rows in case.tables.items()}
    join = join_of(case.query.text, frames, case.times, buckets=3)
    wanted = results_by_partner(case.query, case.tables, case.times)
    assert bag(join.to_df().toArrow()) == bag(wanted)


def rows_of(*rows):
    """Rows of a second, a key and a value."""
    seconds, keys, values = zip(*rows, strict=True) if rows else ((), (), ())
    times = [T0 + dt.timedelta(seconds=second) for second in seconds]
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "k": pa.array(keys, pa.string()),
            "v": pa.array(values, pa.int64()),
        }
    )


def engine_over(spark, folder, lateness="0 seconds"):
    made = el.Engine(spark)
    for name in ("orders", "payments"):
        stream = stream_of(spark, folder, name, schema="ts TIMESTAMP, k STRING, v BIGINT")
        made.stream(name, stream, time="ts", lateness=lateness)
    return made


UNPAID = (
    "SELECT o.k, o.v FROM orders o [RANGE 10 SECONDS] WHERE v > 0 AND NOT EXISTS "
    "(SELECT 1 FROM payments p [RANGE 5 SECONDS] WHERE p.k = o.k AND p.v >= o.v)"
)
BOTH = (
    "SELECT o.k, o.v, p.v AS paid FROM orders o [RANGE 10 SECONDS] LEFT JOIN payments p "
    "[RANGE 5 SECONDS] ON p.k = o.k AND p.v >= o.v WHERE o.v > 0"
)
"""Of both rows, those of the first are results when no payment can come; NULLs stand for it."""


def ran(spark, folder, text, **options):
    """Run over the files that are there, from where the run before stopped."""
    run = run_to_end(engine_over(spark, folder).query(text, name="q", **options), folder)
    rows = spark.read.parquet(str(folder / "out")).toArrow().to_pylist()
    return run, Counter(tuple(row.values()) for row in rows)


@pytest.mark.large
def test_what_is_pending_at_the_end_of_a_run_is_given_by_a_later_one(spark, tmp_path):
    write_batch(tmp_path, "orders", 0, rows_of((0, "a", 5), (1, "b", 5), (2, None, 5), (3, "c", 0)))
    write_batch(tmp_path, "payments", 0, rows_of((4, "a", 4), (11, "b", 9)))
    run, found = ran(spark, tmp_path, UNPAID)
    assert found == {("a", 5): 1, (None, 5): 1}, "the window of a ended before 11 s"
    (orders, _) = facts_of(run).inputs
    assert orders.n_waiting == 1
    said = " ".join(run.explain().split())
    assert "ANTI: rows of o that have no partner in p, each once" in said
    assert "Rows that wait until no partner can come: o 1." in said
    assert "rows that wait at the end of a run are decided in a later one" in said
    write_batch(tmp_path, "payments", 1, rows_of((12, "z", 1)))
    _, found = ran(spark, tmp_path, UNPAID, buckets=3)
    assert found == {("a", 5): 1, (None, 5): 1}, "b has a partner"
    write_batch(tmp_path, "orders", 1, rows_of((20, "a", 1), (40, "d", 1)))
    write_batch(tmp_path, "payments", 2, rows_of((31, None, 1)))
    run, found = ran(spark, tmp_path, UNPAID)
    assert found == {("a", 5): 1, (None, 5): 1, ("a", 1): 1}
    assert facts_of(run).inputs[0].n_waiting == 1


@pytest.mark.large
def test_combinations_come_at_once_and_rows_without_a_partner_later(spark, tmp_path):
    write_batch(tmp_path, "orders", 0, rows_of((0, "a", 5), (1, "b", 5), (2, "c", 5)))
    write_batch(tmp_path, "payments", 0, rows_of((4, "a", 6), (5, "a", 7), (5, "b", 2)))
    _, found = ran(spark, tmp_path, BOTH)
    assert found == {("a", 5, 6): 1, ("a", 5, 7): 1}
    write_batch(tmp_path, "payments", 1, rows_of((12, "c", 8)))
    _, found = ran(spark, tmp_path, BOTH)
    assert found == {("a", 5, 6): 1, ("a", 5, 7): 1, ("c", 5, 8): 1, ("b", 5, None): 1}


@pytest.mark.large
def test_rows_that_a_condition_drops_tell_the_time(spark, tmp_path):
    write_batch(tmp_path, "orders", 0, rows_of((0, "a", 5)))
    write_batch(tmp_path, "payments", 0, rows_of((50, "a", -1)))
    text = UNPAID.replace("p.v >= o.v", "p.v > 0")
    assert ran(spark, tmp_path, text)[1] == {("a", 5): 1}


@pytest.mark.large
@pytest.mark.parametrize("options", [{"adaptive": False}, {"caches": True}])
def test_streams_of_queries_and_one_row_a_batch(spark, tmp_path, options):
    orders = [(0, "a", 5), (0, None, 5), (1, "b", 6), (1, "b", -6), (9, "a", 7), (9, None, -1)]
    payments = [(4, "a", 5), (4, "a", 50), (5, "b", -6), (30, None, 1), (31, "a", -1)]
    for name, rows in (("orders", orders), ("payments", payments)):
        for number, row in enumerate(rows):
            write_batch(tmp_path, name, number, rows_of(row))
    engine = engine_over(spark, tmp_path)
    for name, source in (("o", "orders"), ("p", "payments")):
        made = engine.query(
            f"SELECT ts, upper(k) AS key, v * 10 AS cents FROM {source} WHERE v > 0"
        )
        engine.stream(name, made)
    text = (
        "SELECT o.key, o.cents, p.cents AS paid, p.ts AS at FROM o [RANGE 20 SECONDS] "
        "LEFT JOIN p [NOW] ON o.key = p.key AND o.cents <= p.cents"
    )
    run = ended(engine.query(text, **options))
    at = T0 + dt.timedelta(seconds=4)
    assert bag(run.to_arrow().select(["key", "cents", "paid", "at"])) == {
        # bag() has the columns in the order of their names.
        (at, 50, "A", 50): 1,
        (at, 50, "A", 500): 1,
        (None, 50, None, None): 1,
        (None, 60, "B", None): 1,
        (None, 70, "A", None): 1,
    }


@pytest.mark.large
def test_a_table_decides_at_once(spark, tmp_path):
    write_batch(tmp_path, "orders", 0, rows_of((0, "a", 5), (1, None, 6), (1, "b", 7)))
    write_batch(tmp_path, "orders", 1, rows_of((2, "c", 8), (2, "b", 9)))
    engine = el.Engine(spark)
    engine.stream("orders", stream_of(spark, tmp_path, "orders"), time="ts")
    names = spark.createDataFrame([("b", "Bea"), ("b", "Bob"), (None, "Nil")], "k string, n string")
    engine.table("names", names)
    text = "SELECT o.v, n FROM orders o LEFT JOIN names USING (k) WHERE n IS NULL OR n <> 'Bob'"
    run = ended(engine.query(text, buckets=3))
    found = sorted(tuple(row.values()) for row in run.to_arrow().to_pylist())
    assert found == [(5, None), (6, None), (7, "Bea"), (8, None), (9, "Bea")]
    assert "one task" not in run.explain()


@pytest.mark.large
def test_window_join_takes_a_kind(spark):
    frames = {
        "s": spark.createDataFrame([(T0, 1), (T0, 2)], "ts timestamp, k int"),
        "t": spark.createDataFrame([(T0, 1), (T0, 1)], "ts timestamp, k int"),
    }
    how = {"on": "s.k = t.k", "time": {"s": "ts", "t": "ts"}, "windows": {"s": "NOW"}}

    def keys(kind):
        found = el.window_join(frames, how=kind, **how).to_df().toArrow().to_pylist()
        return sorted(tuple(row.get(name) for name in ("k", "s_k", "t_k")) for row in found)

    assert keys("semi") == [(1, None, None)]
    assert keys("anti") == [(2, None, None)]
    assert keys("left") == [(None, 1, 1), (None, 1, 1), (None, 2, None)]
    with pytest.raises(OptionError, match=r"unknown kind of join 'outer'.*left"):
        el.window_join(frames, how="outer", **how)


@pytest.mark.large
def test_late_rows_are_no_results_whether_they_have_a_key_or_not(spark, tmp_path):
    write_batch(tmp_path, "orders", 0, rows_of((10, "a", 1), (11, "b", 2)))
    write_batch(tmp_path, "orders", 1, rows_of((3, None, 3), (2, "a", 4), (12, "a", 5)))
    write_batch(tmp_path, "payments", 0, rows_of((10, "b", 2)))
    write_batch(tmp_path, "payments", 1, rows_of((40, "z", 1)))
    run, found = ran(spark, tmp_path, BOTH)
    assert found == {("b", 2, 2): 1, ("a", 1, None): 1, ("a", 5, None): 1}
    late = run.late_rows("o").to_pylist()
    assert sorted((row["v"], row["k"]) for row in late) == [(3, None), (4, "a")]
    assert facts_of(run).inputs[0].n_late == 2


@pytest.mark.large
@pytest.mark.parametrize("kind", ["left", "semi", "anti"])
def test_an_error_counts_only_on_rows_that_pass_the_other_conditions(spark, kind):
    frames = {
        "s": spark.createDataFrame(
            [(T0, 1, 6), (T0, 2, 0), (T0, 3, None)], "ts timestamp, k int, v int"
        ),
        "t": spark.createDataFrame(
            [(T0, 1, 2), (T0, 2, 0), (T0, 3, 0)], "ts timestamp, k int, w int"
        ),
    }

    def keys(on):
        how = {"time": {"s": "ts", "t": "ts"}, "windows": {"s": "NOW"}, "select": "s.k"}
        found = el.window_join(frames, on=f"s.k = t.k AND {on}", how=kind, **how).to_df()
        return sorted(row.k for row in found.collect())

    wanted = {"left": [1, 2, 3], "semi": [1], "anti": [2, 3]}
    assert keys("s.v / t.w > 1 AND s.v <> t.w") == wanted[kind]
    with pytest.raises(ArithmeticException):
        keys("s.v / t.w > 1 AND s.v = t.w")
