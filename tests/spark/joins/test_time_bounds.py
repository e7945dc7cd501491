"""Windows that follow from bounds of event times: streams, restarts, and what Spark says."""

from __future__ import annotations

import datetime as dt
import tempfile
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import Phase, given

import eddyline as el
from eddyline.errors import StateError
from eddyline.query.query import LONGEST
from eddyline.query.select.conditions import MAX_SHIFT, TimeBounds
from eddyline.query.select.reader import read_query
from tests.examples import examples
from tests.oracles.bound_strategies import bounded_cases, bounded_partner_cases, undone
from tests.oracles.joins import bag, results, results_by_partner
from tests.spark.facts import facts_of
from tests.spark.joins.join_streams import ended, run_to_end, stream_of, told, write_batch
from tests.spark.joins.test_join_streams import answered, drawn_join
from tests.spark.joins.test_partner_joins import low_of

pytestmark = pytest.mark.spark

QUICKLY = [Phase.explicit, Phase.reuse, Phase.generate]
"""Jobs are slow, so that no example is made smaller."""

T0 = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SECOND = 1_000_000
PAIRS = (
    "SELECT s.id AS a, t.id AS b FROM s JOIN t ON s.k = t.k "
    "AND t.ts BETWEEN s.ts - INTERVAL 2 SECONDS AND s.ts + INTERVAL '5' SECONDS"
)


@pytest.mark.large("runs a query for each drawn case")
@given(case=bounded_cases(max_inputs=3).filter(lambda case: case.batches))
@examples(10, phases=QUICKLY)
def test_any_cut_gives_the_definition_without_windows(spark, case):
    with tempfile.TemporaryDirectory() as folder:
        run = ended(drawn_join(spark, case, Path(folder), buckets=2))
        wanted = results(undone(case.query), case.tables, case.times)
        wanted = wanted.filter(pc.field("_at") < answered(case)).drop_columns("_at")
        assert bag(run.to_arrow()) == bag(wanted)


@pytest.mark.large("runs a query for each drawn case")
@given(case=bounded_partner_cases().filter(lambda case: case.batches))
@examples(10, phases=QUICKLY)
def test_any_cut_gives_the_partners_of_the_definition(spark, case):
    with tempfile.TemporaryDirectory() as folder:
        run = ended(drawn_join(spark, case, Path(folder), buckets=2))
        wanted = results_by_partner(case.query, case.tables, case.times, low_of(case))
        assert bag(run.to_arrow()) == bag(wanted)


# -- many batches ----------------------------------------------------------------------------------

N_BATCHES, PER_BATCH, LATENESS_S = 12, 40, 3


def rows_of(name, number):
    """Rows of a batch of ten seconds, out of order by up to the lateness."""
    ids = range(number * PER_BATCH, (number + 1) * PER_BATCH)
    salt = {"s": 1, "t": 5, "u": 7}[name]
    at = [(10 * id / PER_BATCH) - (salt * id) % (LATENESS_S + 1) for id in ids]
    return pa.table(
        {
            "ts": pa.array([T0 + dt.timedelta(seconds=x) for x in at], pa.timestamp("us", "UTC")),
            "k": pa.array([(salt * id) % 6 for id in ids], pa.int64()),
            "id": pa.array(ids, pa.int64()),
        }
    )


def write_streams(folder, numbers, names="st"):
    for number in numbers:
        for name in names:
            write_batch(folder, name, number, rows_of(name, number))


def engine_over(spark, folder, names="st"):
    made = el.Engine(spark)
    for name in names:
        stream = stream_of(spark, folder, name)
        made.stream(name, stream, time="ts", lateness=f"{LATENESS_S} seconds")
    return made


def of_duckdb(text, n_batches, names="st"):
    with duckdb.connect() as connection:
        for name in names:
            rows = pa.concat_tables([rows_of(name, number) for number in range(n_batches)])
            connection.register(name, rows)
        return bag(connection.sql(text.replace("INTERVAL 2", "INTERVAL '2'")).to_arrow_table())


def written(folder):
    return bag(duckdb.sql(f"SELECT * FROM '{folder}/out/*.parquet'").to_arrow_table())


def kept(run):
    return {each.name: each.n_kept for each in facts_of(run).inputs}


@pytest.mark.large("runs twelve batches")
def test_rows_leave_and_no_result_is_missing(spark, tmp_path):
    write_streams(tmp_path, range(N_BATCHES))
    run = run_to_end(engine_over(spark, tmp_path).query(PAIRS, name="q"), tmp_path)
    assert written(tmp_path) == of_duckdb(PAIRS, N_BATCHES)
    s, t = facts_of(run).inputs
    assert (s.n_late, t.n_late) == (0, 0)
    assert max(kept(run).values()) < 2.5 * PER_BATCH
    said = told(run)
    assert "RANGE 5 SECONDS, from the condition" in said
    assert "RANGE 2 SECONDS, from the condition" in said


@pytest.mark.large("runs twelve batches")
def test_three_streams_are_bounded_by_a_chain(spark, tmp_path):
    text = (
        "SELECT s.id AS a, t.id AS b, u.id AS c FROM s, t, u WHERE s.k = t.k AND t.k = u.k "
        "AND t.ts BETWEEN s.ts AND s.ts + INTERVAL '3' SECONDS "
        "AND u.ts > t.ts - INTERVAL '1' SECONDS AND u.ts < t.ts + INTERVAL '2' SECONDS"
    )
    write_streams(tmp_path, range(N_BATCHES), "stu")
    query = engine_over(spark, tmp_path, "stu").query(text, name="q")
    run = run_to_end(query, tmp_path)
    assert written(tmp_path) == of_duckdb(text, N_BATCHES, "stu")
    assert max(kept(run).values()) < 2.5 * PER_BATCH
    windows = [f"{name} [RANGE {length}" for name, length in (("s", 5), ("t", 2), ("u", 1))]
    assert all(each in query.explain() for each in windows)


@pytest.mark.large("runs thirteen batches")
@pytest.mark.parametrize("words", ["LEFT", "ANTI"])
def test_rows_without_a_partner_are_decided(spark, tmp_path, words):
    output = "s.id AS a, t.id AS b" if words == "LEFT" else "s.id AS a"
    bound = "t.ts BETWEEN s.ts - INTERVAL '1' SECONDS AND s.ts + INTERVAL '1' SECONDS"
    text = f"SELECT {output} FROM s {words} JOIN t ON s.k = t.k AND {bound}"
    write_streams(tmp_path, range(N_BATCHES))
    last = rows_of("t", N_BATCHES).slice(0, 1)
    late = pa.array([T0 + dt.timedelta(days=1)], pa.timestamp("us", "UTC"))
    last = last.set_column(0, "ts", late).set_column(1, "k", pa.array([99], pa.int64()))
    write_batch(tmp_path, "t", N_BATCHES, last)
    run = run_to_end(engine_over(spark, tmp_path).query(text, name="q"), tmp_path)
    assert written(tmp_path) == of_duckdb(text, N_BATCHES)
    assert facts_of(run).inputs[0].n_waiting == 0
    assert max(kept(run).values()) < 2.5 * PER_BATCH


@pytest.mark.large("runs a stream and a batch")
def test_data_frames_are_joined_by_the_same_reader(spark, tmp_path):
    write_streams(tmp_path, range(3))
    streams = {name: stream_of(spark, tmp_path, name) for name in "st"}
    how = {
        "on": PAIRS.partition(" ON ")[2],
        "time": dict.fromkeys("st", "ts"),
        "select": "s.id AS a, t.id AS b",
        "lateness": f"{LATENESS_S} seconds",
    }
    join = el.window_join(streams, **how)
    assert "s [RANGE 5 SECONDS, from the condition]" in join.explain()
    wanted = of_duckdb(PAIRS, 3)
    assert bag(ended(join).to_arrow()) == wanted
    whole = {name: spark.read.parquet(str(tmp_path / name)) for name in "st"}
    assert bag(el.window_join(whole, **how).to_df().toArrow()) == wanted


# -- checkpoints -----------------------------------------------------------------------------------


def ran(spark, folder, text, **more):
    query = engine_over(spark, folder).query(text, name="q")
    where = {"path": str(folder / "out"), "checkpoint": str(folder / "ckpt")}
    return ended(query, "parquet", **where, **more)


@pytest.mark.large("starts a query four times")
def test_a_restart_goes_on_and_other_bounds_are_another_query(spark, tmp_path):
    write_streams(tmp_path, range(4))
    ran(spark, tmp_path, PAIRS)
    write_streams(tmp_path, range(4, 8))
    same = PAIRS.replace("s JOIN t", "s [RANGE 5 SECONDS] JOIN t [RANGE 2 SECONDS]")
    run = ran(spark, tmp_path, same)
    assert written(tmp_path) == of_duckdb(PAIRS, 8), "a stated window means the same"
    assert max(kept(run).values()) < 2.5 * PER_BATCH
    longer = PAIRS.replace("'5' SEC", "'6' SEC")
    message = "the window of s was RANGE 5 SECONDS and is RANGE 6 SECONDS, from the condition"
    with pytest.raises(StateError, match=message):
        ran(spark, tmp_path, longer)
    with pytest.raises(StateError, match=message):
        ran(spark, tmp_path, longer, changed="keep_state")


@pytest.mark.large("starts a query three times")
def test_a_checkpoint_of_unbounded_windows_goes_on(spark, tmp_path, monkeypatch):
    """As earlier versions had it."""
    write_streams(tmp_path, range(4))
    with monkeypatch.context() as patch:
        patch.setattr(TimeBounds, "lengths", lambda *_: {})
        assert kept(ran(spark, tmp_path, PAIRS)) == {"s": 4 * PER_BATCH, "t": 4 * PER_BATCH}
    write_streams(tmp_path, range(4, N_BATCHES))
    run = ran(spark, tmp_path, PAIRS)
    assert written(tmp_path) == of_duckdb(PAIRS, N_BATCHES)
    assert max(kept(run).values()) < 6.5 * PER_BATCH, "rows of before stay, new ones leave"
    longer = PAIRS.replace("'5' SEC", "'6' SEC")
    with pytest.raises(StateError, match="the window of s was RANGE 5 SECONDS"):
        ran(spark, tmp_path, longer, changed="keep_state")


# -- results and wall clocks -----------------------------------------------------------------------


@pytest.mark.large("runs joins of joins")
def test_streams_of_results_have_event_times_and_windows(spark, tmp_path):
    write_streams(tmp_path, range(4), "stu")
    engine = engine_over(spark, tmp_path, "stu")
    engine.stream("high", engine.query("SELECT id, k, ts FROM t WHERE id >= 0", name="h"))
    moved = "SELECT id, k, ts + INTERVAL 1 HOUR AS ts FROM t"
    engine.stream("moved", engine.query(moved, name="m"))
    pairs = engine.query(PAIRS.replace("s.id AS a", "s.id AS a, s.k, s.ts"), name="p")
    engine.stream("pairs", pairs, time="ts")
    text = PAIRS.replace("t.", "high.").replace("JOIN t", "JOIN high")
    assert "high [RANGE 2 SECONDS, from the condition]" in engine.query(text).explain()
    assert bag(ended(engine.query(text)).to_arrow()) == of_duckdb(PAIRS, 4)
    text = PAIRS.replace("t.", "moved.").replace("JOIN t", "JOIN moved")
    assert "moved [UNBOUNDED]" in engine.query(text).explain()
    counts = "SELECT k, window.end AS ts, COUNT(*) AS id FROM t [RANGE 1 MINUTE SLIDE 1 MINUTE]"
    engine.stream("ends", engine.query(f"{counts} GROUP BY k", name="c"), time="ts")
    text = PAIRS.replace("t.", "ends.").replace("JOIN t", "JOIN ends")
    assert "ends [UNBOUNDED]" in engine.query(text).explain(), "its event time is before the end"
    text = (
        "SELECT pairs.a, pairs.b, u.id AS c FROM pairs JOIN u ON pairs.k = u.k "
        "AND u.ts BETWEEN pairs.ts AND pairs.ts + INTERVAL '1' SECONDS"
    )
    query = engine.query(text)
    assert "pairs [RANGE 1 SECOND, from the condition]" in query.explain()
    nested = f"WITH pairs AS ({PAIRS.replace('s.id AS a', 's.id AS a, s.k, s.ts')}) {text}"
    assert bag(ended(query).to_arrow()) == of_duckdb(nested, 4, "stu")


ZONES = {
    "America/Los_Angeles": [dt.datetime(2021, 3, 12), dt.datetime(2021, 11, 5)],
    "America/Juneau": [dt.datetime(1867, 10, 16)],
    "Europe/Berlin": [dt.datetime(2021, 3, 26), dt.datetime(2021, 10, 29)],
}
"""Days before the clocks change; in Alaska they once went back by a day."""

WALL = [
    ("e.ts <= s.ts + INTERVAL '1' DAY", 24),
    ("e.ts <= s.ts + INTERVAL 24 HOURS", 24),
    ("e.ts <= s.ts + INTERVAL 23 HOURS 120 MINUTES", 25),
    ("e.ts - INTERVAL '1 02:00' DAY TO MINUTE <= s.ts", 26),
    ("e.ts <= timestampadd(DAY, 1, s.ts)", 24),
    ("e.ts - s.ts <= INTERVAL 2 HOURS", 2),
    ("e.ts - s.ts < INTERVAL '30:00' HOUR TO MINUTE", 30),
    ("e.ts <= s.ts + INTERVAL 23 HOURS", 23),
    ("e.ts < s.ts + INTERVAL 2 HOURS - INTERVAL 60 MINUTES", 1),
    ("e.ts <= timestampadd(MINUTE, -60, s.ts)", -1),
]


@pytest.mark.large("crosses hundreds of instants for ten conditions")
@pytest.mark.parametrize("zone", ZONES)
def test_derived_windows_hold_what_spark_finds_when_clocks_change(spark, zone):
    columns = {"k": "int", "ts": "timestamp"}
    before = spark.conf.get("spark.sql.session.timeZone")
    hours = [day + dt.timedelta(hours=n) for day in ZONES[zone] for n in range(110)]
    instants = pa.table({"ts": pa.array(hours, pa.timestamp("us", "UTC"))})
    beyond = 0
    try:
        spark.conf.set("spark.sql.session.timeZone", zone)
        df = spark.createDataFrame(instants)
        pairs = df.alias("s").crossJoin(df.alias("e"))
        for condition, n_hours in WALL:
            text = f"SELECT s.k FROM s, e WHERE s.k = e.k AND {condition}"
            known = {"columns": dict.fromkeys("se", columns), "times": dict.fromkeys("se", "ts")}
            length = read_query(text, **known).inputs[0].window.length
            most = pairs.where(condition).selectExpr(
                "max(unix_micros(e.ts) - unix_micros(s.ts)) AS most"
            )
            (found,) = most.first()
            assert found <= length < LONGEST, condition
            exact = 3600 * SECOND * n_hours
            assert length in (max(exact, 0), exact + MAX_SHIFT)
            beyond += found > exact
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert beyond, "wall clocks do find partners beyond the span itself"
