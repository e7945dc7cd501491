"""Joins over streams: any cut into batches and buckets, any restart gives the definition."""

from __future__ import annotations

import datetime as dt
import json
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st
from pyspark.sql import functions as F

import eddyline as el
from eddyline.errors import (
    LateRowsWarning,
    NotSupportedError,
    OptionError,
    QueryError,
    StateError,
)
from eddyline.query.query import RowsWindow
from tests.examples import examples
from tests.oracles.join_strategies import join_cases
from tests.oracles.joins import bag, results
from tests.spark.facts import facts_of
from tests.spark.joins.join_streams import ended, join_of, stream_of, value_of, write_batch

pytestmark = pytest.mark.spark

T0 = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
TEXT = (
    "SELECT s.k, s.v AS a, t.v AS b FROM s [RANGE 10 SECONDS], t [RANGE 5 SECONDS] WHERE s.k = t.k"
)


def answered(case):
    """The instant before which all results are emitted; where none waits, the end of time."""
    timed = [each for each in case.query.inputs if case.times[each.stream]]
    if case.query.emits == "istream":
        timed = [each for each in timed if isinstance(each.window, RowsWindow)]
    latest = [pc.max(case.tables[each.stream]["ts"].cast(pa.int64())).as_py() for each in timed]
    if None in latest:
        return 0
    return min(latest) - case.lateness if latest else 2**63 - 1


def drawn_join(spark, case, folder, **options):
    for number, tables in enumerate(case.batches):
        for name, rows in tables.items():
            write_batch(folder, name, number, rows)
    frames = {
        name: spark.createDataFrame(rows)
        if case.times[name] is None
        else stream_of(spark, folder, name)
        for name, rows in case.tables.items()
    }
    lateness = {name: f"{case.lateness} microseconds" for name, time in case.times.items() if time}
    return join_of(case.query.text, frames, case.times, lateness, "drawn", **options)


@pytest.mark.large
@given(
    case=join_cases(max_inputs=4).filter(lambda case: case.batches),
    n_buckets=st.integers(1, 4),
)
@examples(10, phases=[Phase.explicit, Phase.reuse, Phase.generate])  # jobs are slow
def test_any_cut_gives_the_definition(spark, case, n_buckets):
    with tempfile.TemporaryDirectory() as folder:
        join = drawn_join(spark, case, Path(folder), buckets=n_buckets)
        run = ended(join)
        wanted = results(case.query, case.tables, case.times)
        wanted = wanted.filter(pc.field("_at") < answered(case)).drop_columns("_at")
        assert bag(run.to_arrow()) == bag(wanted)


def rows_of(*rows):
    """Rows of a second, a key and a value."""
    seconds, keys, values = zip(*rows, strict=True) if rows else ((), (), ())
    times = [T0 + dt.timedelta(seconds=second) for second in seconds]
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "k": pa.array(keys, pa.int64()),
            "v": pa.array(values, pa.int64()),
        }
    )


@pytest.fixture
def engine(spark, tmp_path):
    """Two streams of two batches each; the row of s at second 1 in the second batch is late."""
    write_batch(tmp_path, "s", 0, rows_of((0, 1, 1), (8, 2, 2)))
    write_batch(tmp_path, "t", 0, rows_of((3, 1, 10)))
    write_batch(tmp_path, "s", 1, rows_of((1, 1, 3), (9, 1, 4), (6, 2, 6)))
    write_batch(tmp_path, "t", 1, rows_of((12, 1, 20), (5, 2, 30), (13, None, 40)))
    return engine_over(spark, tmp_path)


def engine_over(spark, folder, names="st"):
    made = el.Engine(spark)
    for name in names:
        made.stream(name, stream_of(spark, folder, name), time="ts", lateness="3 seconds")
    return made


def found(table):
    return sorted(tuple(row.values()) for row in table.to_pylist())


# t at 5 is late: 13 - 3 > 5 would say so only for a later batch; its first batch ends at 3.
RESULTS = [(1, 1, 10), (1, 4, 20), (2, 2, 30), (2, 6, 30)]


def test_late_rows_are_counted_and_kept(engine, tmp_path):
    query = engine.query(TEXT, name="pairs")
    run = ended(query, checkpoint=str(tmp_path / "ckpt"))
    assert found(run.to_arrow()) == RESULTS
    s, t = facts_of(run).inputs
    assert (s.n_arrived, s.n_joined, s.n_late) == (5, 4, 1)
    assert (t.n_arrived, t.n_joined, t.n_late) == (4, 3, 0)
    late = run.late_rows("s").to_pylist()
    assert [(row["_time"], row["k"], row["v"]) for row in late] == [
        (T0 + dt.timedelta(seconds=1), 1, 3)
    ]
    assert run.late_rows("t").num_rows == 0
    with pytest.raises(QueryError, match=r"unknown input 'u'; known: s, t"):
        run.late_rows("u")


@pytest.mark.large
def test_many_late_rows_are_warned_of(spark, tmp_path):
    write_batch(tmp_path, "s", 0, rows_of(*((100, k, k) for k in range(20))))
    write_batch(tmp_path, "s", 1, rows_of(*((0, k, k) for k in range(20))))
    write_batch(tmp_path, "s", 2, rows_of(*((50, k, k) for k in range(20))))
    write_batch(tmp_path, "t", 0, rows_of((100, 1, 10)))
    made = el.Engine(spark)
    made.stream("s", stream_of(spark, tmp_path, "s"), time="ts")
    made.stream("t", stream_of(spark, tmp_path, "t"), time="ts", lateness="3 seconds")
    query = made.query(TEXT, name="disordered")
    with pytest.warns(LateRowsWarning, match=r"20 of 40 rows of 's' came too late") as caught:
        run = ended(query)
    (said,) = [str(each.message) for each in caught if each.category is LateRowsWarning]
    assert "Spark reads files by modification time" in said, "it is warned of once"
    assert facts_of(run).inputs[0].n_late == 40
    with pytest.raises(StateError, match="without a checkpoint removes them when it ends"):
        run.late_rows("s")
    assert "s without a lateness" in run.explain()


@pytest.mark.large
def test_streams_without_a_window_are_told(engine):
    text = "SELECT s.v AS a, t.v AS b FROM s, t [RANGE 10 SECONDS] WHERE s.k = t.k"
    told = ended(engine.query(text, name="endless")).explain()
    assert told.count("s [UNBOUNDED], as a stream without a window is") == 1
    assert "t [UNBOUNDED]" not in told


@pytest.mark.large
def test_late_rows_have_keys_that_no_result_has(engine, tmp_path):
    query = engine.query(TEXT.replace("s.k, s.v AS a, ", ""), name="keyless")
    run = ended(query, checkpoint=str(tmp_path / "ckpt"))
    assert sorted(run.to_arrow()["b"].to_pylist()) == [b for _, _, b in RESULTS]
    second = T0 + dt.timedelta(seconds=1)
    assert run.late_rows("s").to_pylist() == [{"k": 1, "_time": second}]
    assert run.late_rows("t").column_names == ["v", "k", "_time"]


@pytest.mark.large
def test_settings_for_batches_stay_in_the_session_of_the_stream(spark, engine, tmp_path):
    name = "spark.sql.adaptive.enabled"
    before = spark.conf.get(name)
    seen = []

    def sink(df, batch_id):
        seen.append((df.count(), df.sparkSession.conf.get(name)))

    ended(engine.query(TEXT), sink)
    assert sum(n for n, _ in seen) == len(RESULTS)
    assert {of for _, of in seen} == {"false"}
    assert spark.conf.get(name) == before == "true"


@pytest.mark.large
def test_what_is_learned_and_damaged_is_dropped(engine, tmp_path):
    checkpoint = tmp_path / "ckpt"
    query = engine.query(TEXT, name="damaged")
    ended(query, checkpoint=str(checkpoint))
    state = checkpoint / "eddyline" / "state.json"
    saved = json.loads(state.read_text())
    del saved["state"]["join"]["loop"]
    state.write_text(json.dumps(saved))
    write_batch(tmp_path, "s", 2, rows_of((12, 1, 7)))
    again = ended(query, checkpoint=str(checkpoint))
    assert "drop_state" in [entry["event"] for entry in again.journal]
    assert found(again.to_arrow()) == [(1, 7, 20)]
    assert facts_of(again).inputs[0].n_late == 1, "late rows are counted with the windows"


@pytest.mark.large
def test_a_restart_goes_on_with_other_buckets(spark, tmp_path):
    everything, checkpoint = [], str(tmp_path / "ckpt")
    for number, (s, t) in enumerate(
        [
            ([(0, 1, 1), (0, 2, 2), (0, 3, 3)], [(1, 1, 10)]),
            ([(2, 4, 4)], [(2, 2, 20), (2, 3, 30)]),
            ([(4, 2, 5)], [(4, 4, 40), (4, 1, 50)]),
        ]
    ):
        write_batch(tmp_path, "s", number, rows_of(*s))
        write_batch(tmp_path, "t", number, rows_of(*t))
        query = engine_over(spark, tmp_path).query(TEXT, name="moved", buckets=(1, 5, 2)[number])
        run = ended(query, checkpoint=checkpoint)
        # Four keys fill four buckets as well as five.
        assert facts_of(run).grid == ((1,), (4,), (2,))[number]
        everything += found(run.to_arrow())
    assert sorted(everything) == [
        (1, 1, 10),
        (1, 1, 50),
        (2, 2, 20),
        (2, 5, 20),
        (3, 3, 30),
        (4, 4, 40),
    ]


@pytest.mark.large
def test_rows_that_wait_survive_a_restart(spark, tmp_path):
    text = (
        "SELECT DSTREAM(s.v AS a, t.v AS b) FROM s [PARTITION BY k ROWS 1], t [RANGE 4 SECONDS] "
        "WHERE s.k = t.k AND s.v <> 3"
    )
    checkpoint, everything, tables = str(tmp_path / "ckpt"), Counter(), {"s": [], "t": []}
    for number, (s, t) in enumerate(
        [
            ([(0, 1, 1), (1, 2, 2)], [(1, 1, 10), (2, None, 20)]),
            ([(3, 1, 3)], [(3, 2, 30), (0, 1, 40)]),
            ([(7, 1, 4), (6, None, 5)], [(8, 1, 50), (6, 2, 60)]),
            ([(20, 2, 6), (19, 1, 7)], [(20, 1, 70)]),
        ]
    ):
        for name, rows in (("s", rows_of(*s)), ("t", rows_of(*t))):
            tables[name].append(rows)
            write_batch(tmp_path, name, number, rows)
        query = engine_over(spark, tmp_path).query(text, name="waiting", buckets=1 + number)
        run = ended(query, checkpoint=checkpoint)
        assert facts_of(run).grid == (1,)
        assert any("no earlier row of s, t" in note for note in facts_of(run).notes)
        everything += bag(run.to_arrow())
    wholes = {name: pa.concat_tables(parts) for name, parts in tables.items()}
    wanted = results(value_of(query), wholes, dict.fromkeys(wholes, "ts"))
    until = int((T0 + dt.timedelta(seconds=17)).timestamp() * 1_000_000)
    wanted = wanted.filter(pc.field("_at") < until).drop_columns("_at")
    assert wanted.num_rows == 5
    assert everything == bag(wanted)


@pytest.mark.large
def test_a_damaged_file_of_the_state_ends_the_query_and_says_so(spark, tmp_path):
    text = (
        "SELECT DSTREAM(s.v AS a, t.v AS b) FROM s [PARTITION BY k ROWS 1], t [RANGE 4 SECONDS] "
        "WHERE s.k = t.k"
    )
    checkpoint = tmp_path / "ckpt"
    for number in range(3):
        for name in "st":
            rows = rows_of(*((100 * number + second, second % 7, second) for second in range(100)))
            write_batch(tmp_path, name, number, rows)
        if number == 1:
            query = engine_over(spark, tmp_path).query(text, name="damaged")
            ended(query, checkpoint=str(checkpoint))
    for kind in ("rows", "index", "held", "groups"):
        files = sorted((checkpoint / "eddyline" / "state" / "runs").glob(f"*.{kind}.arrow"))
        before = [file.read_bytes() for file in files]
        assert files
        for file, whole in zip(files, before, strict=True):
            middle = len(whole) // 2
            n = len(whole[middle : middle + 512])
            file.write_bytes(whole[:middle] + b"x" * n + whole[middle + n :])
        with pytest.raises(StateError, match=rf"bucket 0 .*{kind}\.arrow.* is damaged"):
            ended(query, checkpoint=str(checkpoint))
        for file, whole in zip(files, before, strict=True):
            file.write_bytes(whole)


@pytest.mark.large
def test_a_checkpoint_of_another_query_is_refused(engine, tmp_path):
    checkpoint = str(tmp_path / "ckpt")
    run = engine.query(TEXT, name="one").start(checkpoint=checkpoint, trigger="available_now")
    run.await_termination(120)
    other = engine.query(TEXT.replace("10 SECONDS", "9 SECONDS"), name="two")
    with pytest.raises(StateError, match=r"of another query .*window of s was RANGE 10 SECONDS"):
        other.start(checkpoint=checkpoint, trigger="available_now")
    again = engine.query(TEXT, name="three")
    with pytest.raises(StateError, match="another run of this query"):
        again.start(state=f"{checkpoint}/eddyline/state", trigger="available_now")


@pytest.mark.large
def test_a_sink_that_takes_a_part_loses_nothing(engine, tmp_path):
    seen = []

    def first_batch_only_counts(df, batch_id):
        if batch_id:
            seen.extend(found(df.toArrow()))

    query = engine.query(TEXT, name="part")
    ended(query, first_batch_only_counts)
    assert seen == RESULTS[1:]


PLANS = [
    lambda df: df.coalesce(1),
    lambda df: df.limit(0).repartition(3).union(df),
    lambda df: df.sparkSession.range(0, 2, numPartitions=2).crossJoin(df).where("id = 0"),
]


@pytest.mark.large
def test_a_sink_may_give_partitions_other_numbers(spark, tmp_path):
    """Each batch has a plan of its own; the next one finds what it wrote."""
    seen, keys = [], range(1, 9)
    for number in range(4):
        for name, second in (("s", 2 * number), ("t", 2 * number + 1)):
            write_batch(tmp_path, name, number, rows_of(*((second, k, k) for k in keys)))
    query = engine_over(spark, tmp_path).query(TEXT, name="numbers", buckets=4)

    def sink(df, batch_id):
        seen.extend(found(PLANS[batch_id % 3](df).select(df.columns).toArrow()))

    run = ended(query, sink)
    assert facts_of(run).grid == (4,)
    assert sorted(seen) == sorted((k, k, k) for k in keys for _ in range(16))


@pytest.mark.large
def test_windows_that_are_gone_are_missed(engine, tmp_path):
    checkpoint = tmp_path / "ckpt"
    query = engine.query(TEXT, name="gone")
    ended(query, checkpoint=str(checkpoint))
    for file in (checkpoint / "eddyline" / "state").glob("manifest-*"):
        file.unlink()
    write_batch(tmp_path, "s", 2, rows_of((14, 1, 5)))
    run = query.start(checkpoint=str(checkpoint), trigger="available_now")
    with pytest.raises(StateError, match="the state after batch 1 is not in"):
        run.await_termination(120)


def test_tables_are_joined_with_streams(spark, engine):
    engine.table("names", spark.createDataFrame([(1, "one"), (3, "three")], "k INT, name STRING"))
    query = engine.query("SELECT v, name FROM s [NOW] JOIN names ON s.k = names.k", name="named")
    run = ended(query)
    assert found(run.to_arrow()) == [(1, "one"), (4, "one")]


@pytest.mark.large
def test_python_predicates_ask_rows_of_one_input(engine):
    engine.function("is_small", lambda v: pc.less(v, 25), reads=["v"])
    query = engine.query(f"{TEXT} AND is_small(t.v)", name="small")
    run = ended(query)
    assert found(run.to_arrow()) == [row for row in RESULTS if row[2] < 25]


@pytest.mark.parametrize(
    ("give", "error", "message"),
    [
        ({"time": {"s": "ts", "x": "ts"}}, QueryError, "time: unknown input 'x'"),
        ({"time": {"s": "when"}}, QueryError, "unknown time column 'when'"),
        ({"windows": {"s": "RANGE 5"}}, QueryError, "RANGE 5 needs a unit"),
        ({"lateness": "soon"}, OptionError, "is an interval such as '1 minute', got 'soon'"),
        ({"lateness": "1 day slide 1 day"}, OptionError, "is an interval such as '1 minute'"),
        ({"lateness": {"x": "1 s"}}, QueryError, "lateness: unknown input 'x'"),
        ({"time": "ts"}, OptionError, r"time is given for each input .* time=\{'s': …\}, got 'ts'"),
        ({"inputs": {"s": 5, "t": 6}}, QueryError, "input 's' must be a DataFrame, got 5"),
        ({"inputs": {}}, QueryError, "a join needs two DataFrames or more by name"),
        ({"time": {}}, QueryError, "every input is a static table"),
        ({"on": "s.k = t.v + v"}, QueryError, "v"),
        ({"on": "s.v < t.v"}, NotSupportedError, "Cartesian product"),
        ({"select": "s.k + s.ts"}, QueryError, "query 's_t'"),
        ({"buckets": 0}, OptionError, r"'buckets' must be a whole number in \[1, 240\], got 0"),
        ({"bucket": 1}, OptionError, "unknown option 'bucket'"),
    ],
)
def test_what_does_not_fit_is_said(spark, give, error, message):
    df = spark.createDataFrame(rows_of((0, 1, 1)))
    arguments = {"inputs": {"s": df, "t": df}, "on": "s.k = t.k", "time": {"s": "ts", "t": "ts"}}
    with pytest.raises(error, match=message):
        el.window_join(**(arguments | give))


def test_batch_and_stream_are_told_apart(spark, engine):
    df = spark.createDataFrame(rows_of((0, 1, 1)))
    times = {"s": "ts", "t": "ts"}
    batch = el.window_join({"s": df, "t": df}, on="s.k = t.k", time=times, select="s.v")
    assert batch.to_df().toArrow().to_pylist() == [{"v": 1}]
    with pytest.raises(QueryError, match=r"reads batch DataFrames; get its results by .to_df\(\)"):
        batch.start()
    streams = {name: engine.streams[name] for name in "st"}
    stream = el.window_join(streams, on="s.k = t.k", time=times)
    with pytest.raises(QueryError, match="reads streams, which never end; start it"):
        stream.to_df()
    with pytest.raises(QueryError, match="t has a time column but is a batch DataFrame"):
        el.window_join({"s": streams["s"], "t": df}, on="s.k = t.k", time=times)
    with pytest.raises(QueryError, match="stream 't' needs an event-time column"):
        el.window_join(streams, on="s.k = t.k", time={"s": "ts"})


def ran_over_three(spark, folder, n_batches, keys_of, **options):
    """Join three streams whose results are those of the definition; the run, and how many.

    Args:
        keys_of: returns the keys of the rows of a stream in a batch; their values count up.
    """
    text = (
        "SELECT s.v AS a, t.v AS b, u.k AS c FROM s [RANGE 9 SECONDS], t [RANGE 9 SECONDS], "
        "u [RANGE 9 SECONDS] WHERE s.k = t.k AND t.v = u.v"
    )
    tables = {"s": [], "t": [], "u": []}
    for number in range(n_batches):
        for name, parts in tables.items():
            keys = enumerate(keys_of(name, number))
            parts.append(rows_of(*[(3 * number + at % 3, key, at) for at, key in keys]))
            write_batch(folder, name, number, parts[-1])
    query = engine_over(spark, folder, tables).query(text, **options)
    run = ended(query)
    wholes = {name: pa.concat_tables(parts) for name, parts in tables.items()}
    wanted = results(value_of(query), wholes, dict.fromkeys(wholes, "ts")).drop_columns("_at")
    assert bag(run.to_arrow()) == bag(wanted)
    return run, wanted.num_rows


@pytest.mark.large
def test_rows_move_when_another_grid_is_better(spark, tmp_path):
    """All rows of t have one k, so that a grid cut by k leaves them in one part of the buckets."""

    def keys_of(name, number):
        return [7] * 2_000 if name == "t" else range(number, number + 40)

    run, n_results = ran_over_three(spark, tmp_path, 4, keys_of, buckets=4)
    (moved,) = [entry for entry in run.journal if entry["event"] == "grid"]
    assert moved["evidence"]["rows_in_fullest_before"] > moved["evidence"]["rows_in_fullest_after"]
    assert n_results > 500


def test_the_order_of_a_pipeline_is_learned(spark, tmp_path):
    """Each row of t has a partner in s, but few have one in u, which was written behind it."""

    def keys_of(name, number):
        return [at % 40 for at in range({"s": 40, "t": 400, "u": 20}[name])]

    run, n_results = ran_over_three(spark, tmp_path, 3, keys_of, buckets=1)
    (change,) = [entry for entry in run.journal if entry["event"] == "order"]
    assert (change["component"], change["before"]) == ("pipeline t", ["s", "u"])
    assert change["after"] == ["u", "s"]
    (pipeline,) = [each for each in facts_of(run).pipelines if each.name == "t"]
    assert [each.other for each in pipeline.probes] == ["u", "s"]
    assert pipeline.written == ("s", "u")
    n_since = 2 - change["batch_id"]
    assert pipeline.probes[0].n_in == 400 * n_since, "look-ups are of the order in force"
    u, s = (each.drop_frac for each in pipeline.probes)
    assert u >= 0.9
    assert s <= 0.5
    assert n_results > 100


@pytest.mark.large
def test_other_settings_of_the_session_make_no_other_results(spark, engine, tmp_path):
    """Windows are the same whatever time zone and Arrow types the session has."""
    chosen = "s.ts AS a, t.ts AS b, s.note AS note"
    text = f"SELECT {chosen} FROM s [RANGE 9 SECONDS], t [NOW] WHERE s.k = t.k"
    noted = {name: df.withColumn("note", F.lit("n")) for name, df in engine.streams.items()}
    checkpoint, everything = str(tmp_path / "ckpt"), []
    settings = {
        "spark.sql.session.timeZone": ("UTC", "Asia/Tokyo"),
        "spark.sql.execution.arrow.useLargeVarTypes": ("false", "true"),
    }
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for number in range(2):
            for name, values in settings.items():
                spark.conf.set(name, values[number])
            write_batch(tmp_path, "s", 2 + number, rows_of((14 + number, 9, number)))
            write_batch(tmp_path, "t", 2 + number, rows_of((15 + number, 9, number)))
            join = join_of(text, noted, dict.fromkeys("st", "ts"), {}, f"zone_{number}")
            run = ended(join, checkpoint=checkpoint)
            rows = run.to_arrow().filter(pc.field("b") >= T0 + dt.timedelta(seconds=14))
            everything += [((b - T0).seconds, (b - a).seconds) for a, b, _ in found(rows)]
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    assert sorted(everything) == [(15, 0), (15, 1), (16, 1), (16, 2)]
