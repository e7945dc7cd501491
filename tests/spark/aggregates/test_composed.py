"""Queries on the results of queries: cascades, joins that are aggregated, unions; shared cells."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddyline as el
from eddyline.errors import NotSupportedError, OptionError, QueryError, StateError
from tests.spark.aggregates.aggregate_streams import ended
from tests.spark.joins.join_streams import stream_of, write_batch

pytestmark = pytest.mark.spark

SECOND = 1_000_000
T0 = 1_700_000_000 * SECOND
N_BATCHES, N_ROWS = 4, 400


def rows(number):
    """Return the rows of a batch: some are up to 800 ms late, none later."""
    ids = range(number * N_ROWS, (number + 1) * N_ROWS)
    return pa.table(
        {
            "ts": pa.array(
                [T0 + i * 20_000 - (i * 7919 % 800) * 1000 for i in ids], pa.timestamp("us", "UTC")
            ),
            "k": pa.array([i * 31 % 5 for i in ids], pa.int32()),
            "v": pa.array([i * 97 % 1000 for i in ids], pa.int64()),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("composed")
    for number in range(N_BATCHES):
        write_batch(made, "s", number, rows(number))
    return made


@pytest.fixture(scope="module")
def low():
    """The instant before which all rows have come, with a lateness of a second (µs)."""
    every = pa.concat_tables([rows(number) for number in range(N_BATCHES)])
    return pc.max(every["ts"]).cast(pa.int64()).as_py() - SECOND


@pytest.fixture
def engine(spark, folder):
    engine = el.Engine(spark)
    for name in ("s", "t"):
        engine.stream(name, stream_of(spark, folder, "s"), time="ts", lateness="1 second")
    return engine


def answers(run):
    table = run.to_arrow()
    plain = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in table.columns
    ]
    return sorted(zip(*(each.to_pylist() for each in plain), strict=True), key=repr)


def of_duckdb(folder, text):
    """Return what DuckDB answers over all rows; instants are numbers (µs) there: ``t``."""
    with duckdb.connect() as db:
        db.execute(f"CREATE VIEW s AS SELECT epoch_us(ts) AS t, k, v FROM '{folder}/s/*.parquet'")
        return sorted(map(tuple, db.execute(text).fetchall()), key=repr)


def end(slide_s, of="t"):
    """Return the SQL of the end of the tumbling window of an instant (µs)."""
    slide = slide_s * SECOND
    return f"({of} // {slide} + 1) * {slide}"


@pytest.mark.large
def test_aggregates_of_aggregates(engine, folder, low):
    engine.stream(
        "each",
        engine.query(
            "SELECT k, window.end AS e, sum(v) AS s FROM s [RANGE 1 SECOND SLIDE 1 SECOND] "
            "GROUP BY k",
            name="each",
        ),
        time="e",
    )
    run = ended(
        engine.query(
            "SELECT window.end AS e, max(s) AS m, count(*) AS n "
            "FROM each [RANGE 5 SECONDS SLIDE 5 SECONDS] WHERE k < 4"
        )
    )
    text = (
        f"WITH e AS (SELECT k, {end(1)} AS e, sum(v)::BIGINT AS s FROM s GROUP BY ALL) "
        f"SELECT {end(5, '(e - 1)')} AS w, max(s), count(*) FROM e WHERE k < 4 GROUP BY w "
        f"HAVING w <= {low}"
    )
    assert answers(run) == of_duckdb(folder, text)
    assert len(answers(run)) > 4


@pytest.mark.large
@pytest.mark.parametrize(("time", "instant"), [("at", "greatest(s.t, t.t)"), ("sts", "s.t")])
def test_aggregates_of_a_join(engine, folder, low, time, instant):
    join = engine.query(
        "SELECT s.k AS k, t.v AS w, greatest(s.ts, t.ts) AS at, s.ts AS sts "
        "FROM s [RANGE 200 MILLISECONDS], t [RANGE 100 MILLISECONDS] WHERE s.k = t.k AND s.v < 300"
    )
    engine.stream("pairs", join, time=time)
    run = ended(
        engine.query(
            "SELECT k, window.end AS e, count(*) AS n, sum(w) AS s "
            "FROM pairs [RANGE 2 SECONDS SLIDE 2 SECONDS] WHERE w > 10 GROUP BY k HAVING n > 2"
        )
    )
    waits = 0 if time == "at" else 200_000
    text = (
        f"WITH p AS (SELECT s.k, t.v AS w, {instant} AS a FROM s JOIN s AS t ON s.k = t.k "
        f"AND s.v < 300 AND t.t - s.t BETWEEN -100000 AND 200000) "
        f"SELECT k, {end(2, 'a')} AS e, count(*), sum(w)::BIGINT FROM p WHERE w > 10 "
        f"GROUP BY k, e HAVING count(*) > 2 AND e <= {low - waits}"
    )
    assert answers(run) == of_duckdb(folder, text)
    assert len(answers(run)) > 10


def test_what_is_no_event_time_of_results(engine):
    join = engine.query("SELECT s.k, s.v AS v FROM s [NOW], t [NOW] WHERE s.k = t.k")
    with pytest.raises(QueryError, match=r"'v' is no event time of its results; .* greatest"):
        engine.stream("pairs", join, time="v")
    counts = engine.query(
        "SELECT k, count(*) AS n FROM s [RANGE 1 SECOND SLIDE 1 SECOND] GROUP BY k"
    )
    with pytest.raises(QueryError, match=r"'n' is not the event time .* window\.end"):
        engine.stream("counts", counts, time="n")
    engine.stream("counts", counts)
    with pytest.raises(QueryError, match="aggregates by event time, which its rows do not have"):
        engine.query("SELECT max(n) AS m FROM counts [RANGE 5 SECONDS SLIDE 5 SECONDS]")


@pytest.mark.large
def test_a_union_is_aggregated_when_all_its_streams_are_there(engine, folder, low):
    both = engine.query(
        "SELECT k, ts, v FROM s WHERE v > 900 UNION ALL SELECT k + 100, ts, v FROM t WHERE v < 50"
    )
    engine.stream("both", both, time="ts")
    run = ended(
        engine.query(
            "SELECT window.end AS e, count(*) AS n, max(k) AS k, sum(v) AS s "
            "FROM both [RANGE 5 SECONDS SLIDE 5 SECONDS]"
        )
    )
    text = (
        "WITH b AS (SELECT k, t, v FROM s WHERE v > 900 "
        "UNION ALL SELECT k + 100, t, v FROM s WHERE v < 50) "
        f"SELECT {end(5)} AS e, count(*), max(k), sum(v)::BIGINT FROM b GROUP BY e "
        f"HAVING e <= {low}"
    )
    assert answers(run) == of_duckdb(folder, text)
    assert len(answers(run)) > 4


SHARED = {
    "plain": "SELECT k, window.end AS e, count(*) AS n, sum(v) AS s "
    "FROM s [RANGE 3 SECONDS SLIDE 1 SECOND] GROUP BY k",
    "kept": "SELECT k AS kk, window.start AS st, sum(v) AS s FROM s "
    "[RANGE 10 SECONDS SLIDE 5 SECONDS] WHERE v > 500 GROUP BY k HAVING avg(v) > 700",
    "filtered": "SELECT k, max(v) FILTER (WHERE v < 100) AS m, window.end AS e FROM s "
    "[RANGE 2 SECONDS SLIDE 2 SECONDS] WHERE v % 3 = 0 GROUP BY k",
    "rare": "SELECT k, count(*) AS n FROM s [RANGE 1 SECOND SLIDE 1 SECOND] WHERE v = 3 GROUP BY k",
    "whole": "SELECT window.end AS e, count(DISTINCT k) AS n FROM s "
    "[RANGE 2 SECONDS SLIDE 2 SECONDS]",
    "session": "SELECT k, count(*) AS n FROM s [SESSION 10 MILLISECONDS] GROUP BY k",
}


@pytest.mark.large
def test_queries_that_share_cells_answer_as_by_themselves(spark, folder):
    found = {}
    for shared in (True, False):
        engine = el.Engine(spark)
        engine.stream("s", stream_of(spark, folder, "s"), time="ts", lateness="1 second")
        for name, text in SHARED.items():
            engine.query(text, name=name)
        runs = engine.start_all(trigger="available_now", shared=shared)
        for run in runs:
            assert run.await_termination(240)
        found[shared] = {run.name: answers(run) for run in runs}
        if shared:
            together = [run.name for run in runs if hasattr(run, "shared")]
            assert together == ["plain", "kept", "filtered", "rare"]
            assert "runs together with 3 others over s" in runs[0].explain()
            assert "has no slices that others could share" in runs[-1].explain()
    assert found[True] == found[False]
    assert all(found[True].values())


@pytest.mark.large
def test_several_windows_of_a_dataframe_in_one_pass(spark, folder):
    df = spark.read.parquet(str(folder / "s"))
    query = el.window_aggregate(
        df,
        by=["k"],
        time="ts",
        windows={
            "second": "RANGE 1 SECOND SLIDE 1 SECOND",
            "five": "[RANGE 5 SECONDS SLIDE 1 SECOND]",
        },
        aggregates={"n": "count(*)", "most": "max(v)"},
        where="v >= 10",
    )
    found = [
        (row["window_name"], row["window"]["end"].timestamp(), row["k"], row["n"], row["most"])
        for row in query.to_df().collect()
    ]
    text = f"""
        SELECT 'second', {end(1)} / 1e6 AS e, k, count(*), max(v) FROM s WHERE v >= 10 GROUP BY ALL
        UNION ALL
        SELECT 'five', ({end(1)} + d * {SECOND}) / 1e6 AS e, k, count(*), max(v)
        FROM s, range(5) AS r(d) WHERE v >= 10 GROUP BY ALL"""
    assert sorted(found, key=repr) == of_duckdb(folder, text)


class Longest(el.Aggregate):
    """The greatest value, as a user would write it."""

    def lift(self, values):
        return values

    def combine(self, one, other):
        return pc.max_element_wise(one, other)


@pytest.mark.large
def test_aggregates_of_the_user(spark, folder, engine, low):
    engine.aggregate("longest", Longest)
    text = (
        "SELECT k, window.end AS e, longest(v) AS m, max(v) AS n "
        "FROM s [RANGE 3 SECONDS SLIDE 1 SECOND] GROUP BY k"
    )
    found = answers(ended(engine.query(text)))
    assert [each[2] for each in found] == [each[3] for each in found]
    assert len(found) > 50
    df = spark.read.parquet(str(folder / "s"))
    sessions = el.window_aggregate(
        df,
        by={"who": "k"},
        time="ts",
        windows="SESSION 1 SECOND",
        aggregates={"m": "longest(v)"},
        functions={"longest": Longest()},
    )
    assert sorted(row["m"] for row in sessions.to_df().collect()) == [
        m for (m,) in of_duckdb(folder, "SELECT max(v) FROM s GROUP BY k")
    ]
    with pytest.raises(OptionError, match="has no method 'combine'"):
        engine.aggregate("broken", type("Broken", (), {"lift": lambda self, x: x}))
    with pytest.raises(QueryError, match="aggregate 'sum' exists already"):
        engine.aggregate("sum", Longest)


def test_what_window_aggregate_refuses(spark, folder):
    df = spark.read.parquet(str(folder / "s"))
    given = {"time": "ts", "aggregates": {"n": "count(*)"}}
    windows = {"a": "RANGE 1 SECOND SLIDE 1 SECOND", "b": "SESSION 1 SECOND"}
    with pytest.raises(NotSupportedError, match=r"'b' is \[SESSION 1 SECOND\], which is a call"):
        el.window_aggregate(df, windows=windows, **given)
    with pytest.raises(OptionError, match="needs a window"):
        el.window_aggregate(df, windows={}, **given)
    with pytest.raises(OptionError, match="aggregates are given by name"):
        el.window_aggregate(df, windows="NOW", time="ts", aggregates=["count(*)"])
    with pytest.raises(QueryError, match="unknown column 'x'"):
        el.window_aggregate(df, windows="NOW", time="ts", aggregates={"n": "sum(x)"})
    with pytest.raises(QueryError, match="unknown time column 'at'"):
        el.window_aggregate(df, windows="NOW", time="at", aggregates={"n": "sum(v)"})


@pytest.mark.large
def test_other_windows_do_not_go_on_from_a_checkpoint(engine, tmp_path):
    text = "SELECT k, count(*) AS n FROM s [RANGE {} SECONDS SLIDE 1 SECOND] GROUP BY k"
    ended(engine.query(text.format(2), name="q"), checkpoint=str(tmp_path))
    changed = engine.query(text.format(3), name="q", replace=True)
    with pytest.raises(StateError, match=r"another query .*the window of s was RANGE 2 SECONDS"):
        ended(changed, checkpoint=str(tmp_path))


@pytest.mark.large
def test_texts_of_a_collation_are_no_groups_yet(spark, folder):
    df = spark.read.parquet(str(folder / "s"))
    df = df.selectExpr("ts", "CAST(k AS STRING) COLLATE UTF8_LCASE AS k")
    given = {"time": "ts", "windows": "NOW", "aggregates": {"n": "count(*)"}}
    with pytest.raises(NotSupportedError, match="equal without being the same"):
        el.window_aggregate(df, by="k", **given)
    plain = df.selectExpr("ts", "k COLLATE UTF8_BINARY AS k")
    assert el.window_aggregate(plain, by="k", **given).to_df().count() > 0


@pytest.mark.large
@pytest.mark.parametrize(
    "window", ["RANGE 1 MINUTE SLIDE 30 SECONDS", "SESSION 10 MILLISECONDS", "ROWS 9"]
)
def test_the_rows_of_the_newest_batch_and_of_all_are_counted(engine, window):
    by = "CASE WHEN k > 0 THEN k END"  # some rows have no key
    text = f"SELECT {by} AS k, COUNT(*) AS n, window.end AS at FROM s [{window}] GROUP BY {by}"
    run = ended(engine.query(text, name=window.split()[0]))
    assert len(run.to_arrow()) > 0
    view = next(each.facts() for each in run.chain.operators if each.name == "aggregate")
    n_rows = [each.n_rows for each in run.records]
    assert (view.newest.n_rows, view.total.n_rows) == (n_rows[-1], sum(n_rows))


# -- UNION ALL of parts that call Python, aggregate or join ---------------------------------------

WINDOW = "[RANGE 5 SECONDS SLIDE 5 SECONDS]"


@pytest.mark.large
def test_parts_that_call_python_are_aggregated(engine, folder, low):
    engine.function("often", lambda v: v.to_numpy() % 3 == 0, reads=["v"], arrays="arrow")
    both = "SELECT k, ts, v FROM s WHERE often(v) AND v > 100 UNION ALL SELECT k, ts, -v FROM t"
    engine.stream("both", engine.query(both), time="ts")
    text = f"SELECT k, window.end AS e, count(*) AS n, sum(v) AS s FROM both {WINDOW} GROUP BY k"
    wanted = (
        "WITH b AS (SELECT k, t, v FROM s WHERE v % 3 = 0 AND v > 100 "
        f"UNION ALL SELECT k, t, -v FROM s) SELECT k, {end(5)} AS e, count(*), sum(v)::BIGINT "
        f"FROM b GROUP BY k, e HAVING e <= {low}"
    )
    found = answers(ended(engine.query(text)))
    assert found == of_duckdb(folder, wanted)
    assert len(found) > 20


@pytest.mark.large
def test_aggregates_of_two_streams_are_aggregated(engine, folder, low):
    part = "SELECT k, window.end AS e, {0} AS n FROM {1} [RANGE 1 SECOND SLIDE 1 SECOND] GROUP BY k"
    both = f"{part.format('count(*)', 's')} UNION ALL {part.format('max(v)', 't')}"
    engine.stream("both", engine.query(both), time="e")
    text = f"SELECT window.end AS e, count(*) AS n, sum(n) AS s FROM both {WINDOW}"
    inner = f"SELECT k, {end(1)} AS e, {{0}} AS n FROM s GROUP BY ALL"
    wanted = (
        f"WITH b AS ({inner.format('count(*)')} UNION ALL {inner.format('max(v)')}) "
        f"SELECT {end(5, '(e - 1)')} AS w, count(*), sum(n)::BIGINT FROM b GROUP BY w "
        f"HAVING w <= {low}"
    )
    found = answers(ended(engine.query(text)))
    assert found == of_duckdb(folder, wanted)
    assert len(found) > 4


@pytest.mark.large
def test_a_row_that_a_part_of_an_outer_union_waits_for_is_not_late(spark, tmp_path):
    seconds = {"s": [[100], [60, 200]], "t": [[100], [200]], "v": [[50], [200]]}
    streams = el.Engine(spark)
    streams.function("always", lambda ts: np.ones(len(ts), np.bool_), reads=["ts"], arrays="arrow")
    for name, batches in seconds.items():
        for number, each in enumerate(batches):
            at = pa.array([1_000_000 * second for second in each], pa.timestamp("us", "UTC"))
            write_batch(tmp_path, name, number, pa.table({"ts": at}))
        rows = stream_of(spark, tmp_path, name)
        streams.stream(name, rows, time="ts", lateness="0 seconds")
    part = "SELECT ts FROM {} WHERE always(ts)"
    for name, parts in {"two": "st", "three": ["two", "v"]}.items():
        text = " UNION ALL ".join(map(part.format, parts))
        streams.stream(name, streams.query(text, name=f"of_{name}"), time="ts")
    text = "SELECT window.end, count(*) AS n FROM three [RANGE 10 SECONDS SLIDE 10 SECONDS]"
    run = ended(streams.query(text), checkpoint=str(tmp_path / "ckpt"))
    found = {int(each["end"].timestamp()): each["n"] for each in run.to_arrow().to_pylist()}
    assert found == {60: 1, 70: 1, 110: 2}
    assert run.late_rows("three.part 1.two.part 1.s").num_rows == 0
    assert run.late_rows("v").column_names == ["ts", "_time"]
