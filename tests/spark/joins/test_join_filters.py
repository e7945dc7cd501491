"""Predicates over one input of a join are filter steps: ordered, journalled, the same errors."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddyline as el
from eddyline.errors import PredicateError, QueryError, StateError
from tests.spark.facts import facts_of
from tests.spark.joins.join_streams import ended, stream_of, write_batch
from tests.state.manifests import change

pytestmark = pytest.mark.spark

T0 = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def rows_of(n_rows, **columns):
    """Rows a second apart."""
    times = [T0 + dt.timedelta(seconds=second) for second in range(n_rows)]
    return pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC")), **columns})


@pytest.fixture
def engine(spark, tmp_path):
    """Streams s and t of two batches, in which number n of both has the key n."""
    numbers = np.arange(6_000)
    texts = np.where(numbers % 7 == 0, "none", (numbers % 100).astype(str))
    columns = {"k": numbers, "v": numbers % 10, "w": numbers % 4, "text": texts}
    whole = rows_of(numbers.size, **columns)
    for number, low in enumerate((0, 3_000)):
        for name in "st":
            write_batch(tmp_path, name, number, whole.slice(low, 3_000))
    made = el.Engine(spark)
    for name in "st":
        made.stream(name, stream_of(spark, tmp_path, name), time="ts")
    return made


TEXT = "SELECT s.k FROM s [NOW], t [NOW] WHERE s.k = t.k AND {}"


def keys(query, **options):
    """Run a query to its end; returns the keys of its results, and the run."""
    run = ended(query, **options)
    return sorted(run.to_arrow()["k"].to_pylist()), run


def slow(v):
    return pc.greater_equal(v, 0)


def picky(v):
    return pc.equal(v, 3)


def wanted(condition):
    return [k for k in range(6_000) if condition(k)]


@pytest.mark.large
def test_python_predicates_of_a_join_are_ordered_and_journalled(engine):
    engine.function("slow", slow, reads=["v"])
    engine.function("picky", picky, reads=["v"])
    found, run = keys(engine.query(TEXT.format("slow(s.v) AND picky(s.v)"), name="learns"))
    assert found == wanted(lambda k: k % 10 == 3)
    changes = [entry for entry in run.journal if entry["component"] == "arrow of s"]
    assert any(entry["event"] == "order" and entry["after"][0] == "picky" for entry in changes)
    said = run.explain()
    assert "picky" in said
    assert "slow" in said
    query = engine.query(TEXT.format("slow(s.v) AND picky(s.v)"), name="still", adaptive=False)
    found, run = keys(query)
    assert found == wanted(lambda k: k % 10 == 3)
    assert [entry for entry in run.journal if entry["event"] == "order"] == []


@pytest.mark.large
def test_sql_predicates_of_a_join_are_ordered_and_journalled(engine, tmp_path):
    text = TEXT.format("s.v >= 0 AND s.w >= 0 AND s.text <> 'no' AND s.v = 3")
    query = engine.query(text, name="native", lane="off")
    found, run = keys(query, checkpoint=str(tmp_path / "ckpt"))
    assert found == wanted(lambda k: k % 10 == 3)
    (change,) = [entry for entry in run.journal if entry["event"] == "order"]
    assert (change["component"], change["after"][0]) == ("native of s", "v = 3")
    again = ended(query, checkpoint=str(tmp_path / "ckpt"))
    (restored,) = [entry for entry in again.journal if entry["event"] == "restore"]
    assert restored["after"]["native of s"][0] == "v = 3"


RAISING = [
    # Each of them raises on rows that another one drops, wherever it stands.
    ("CAST(s.text AS INT) < 50 AND s.text <> 'none'", lambda k: k % 7 and k % 100 < 50),
    ("100 DIV s.w > 40 AND s.w > 0", lambda k: k % 4 in (1, 2)),
    ("known(s.text) AND not_five(s.v)", lambda k: k % 10 != 5),
    ("s.w / t.v > 0.5 AND t.v <> 0 AND s.v <> 0", lambda k: k % 10 and (k % 4) / (k % 10) > 0.5),
]


def known(text):
    """Raises on each row whose v is 5: their texts end in 5."""
    if pc.any(pc.ends_with(text, "5")).as_py():
        raise ValueError("a text that ends in 5")
    return pc.is_valid(text)


@pytest.mark.large
@pytest.mark.parametrize(
    ("condition", "passes"),
    RAISING,
    ids=[text for text, _ in RAISING],
)
def test_an_error_counts_only_if_its_row_passes_everything_else(engine, condition, passes):
    engine.function("known", known, reads=["text"])
    engine.function("not_five", lambda v: pc.not_equal(v, 5), reads=["v"])
    found, _ = keys(engine.query(TEXT.format(condition), name="safe"))
    assert found == wanted(passes)


@pytest.mark.large
def test_an_error_on_a_row_that_passes_ends_the_query(engine):
    query = engine.query(TEXT.format("CAST(s.text AS INT) < 50 AND s.v < 9"), name="raises")
    with pytest.raises(Exception, match="CAST_INVALID_INPUT"):
        keys(query)
    engine.function("known", known, reads=["text"])
    query = engine.query(TEXT.format("known(s.text) AND s.v <> 6"), name="raises in python")
    with pytest.raises(PredicateError, match="'known' raised ValueError"):
        keys(query)


@pytest.mark.large
@pytest.mark.parametrize("condition", ["s.text <> 'none'", "is_number(s.text)"])
def test_a_key_is_computed_for_rows_that_pass_alone(engine, condition):
    engine.function("is_number", lambda text: pc.not_equal(text, "none"), reads=["text"])
    text = (
        f"SELECT s.k FROM s [NOW], t [NOW] WHERE CAST(s.text AS INT) = CAST(t.k % 100 AS INT) "
        f"AND {condition} AND s.k = t.k"
    )
    found, _ = keys(engine.query(text, name="keys"))
    assert found == wanted(lambda k: k % 7)
    everything = text.replace(f"AND {condition}", "")
    with pytest.raises(Exception, match="CAST_INVALID_INPUT"):
        keys(engine.query(everything, name="raises"))


@pytest.mark.large
@pytest.mark.parametrize(
    "condition", ["s.v % 2 = 0 AND 10 DIV s.v > 0 AND s.v <> 0", "is_even(s.v) AND s.v <> 0"]
)
def test_rows_that_predicates_drop_are_counted_by_windows_of_rows(engine, condition):
    """A window of the latest 3 rows: a row joins what comes up to two rows later."""
    engine.function("is_even", lambda v: pc.equal(pc.bit_wise_and(v, 1), 0), reads=["v"])
    text = f"SELECT s.k FROM s [ROWS 3], t [NOW] WHERE s.w = t.w AND {condition}"
    found, run = keys(engine.query(text, name="rows"))
    even = [k for k in range(6_000) if k % 10 in (2, 4, 6, 8)]
    # The newest row waits: no earlier one may come any more once a later one is there.
    assert found == [k for k in even if k < 5_999]
    (s, t) = facts_of(run).inputs
    assert s.n_arrived == t.n_arrived == 6_000


@pytest.mark.large
def test_predicates_of_static_tables_are_filter_steps_too(spark, engine):
    engine.function("is_small", lambda v: pc.less(v, 5), reads=["v"])
    names = rows_of(20, k=np.arange(20), v=np.arange(20) % 10, name=["x"] * 10 + ["7"] * 10)
    engine.table("names", spark.createDataFrame(names.drop_columns("ts")))
    text = (
        "SELECT s.k FROM s [NOW], names WHERE s.k = names.k AND CAST(names.name AS INT) = 7 "
        "AND names.name <> 'x' AND is_small(names.v)"
    )
    found, run = keys(engine.query(text, name="table"))
    assert found == [10, 11, 12, 13, 14]
    assert {"native of names", "arrow of names"} <= {
        record.component for record in run.records[0].operators
    }


@pytest.mark.large
def test_batches_of_dataframes_obey_the_same_rule(spark):
    numbers = np.arange(1_000)
    rows = rows_of(numbers.size, k=numbers, v=numbers % 10, text=["no"] * 500 + ["1"] * 500)
    df = spark.createDataFrame(rows)
    joined = el.window_join(
        {"s": df, "t": df},
        on="s.k = t.k AND CAST(s.text AS INT) = 1 AND s.text <> 'no' AND 10 DIV t.v > 3 "
        "AND is_big(t.v) AND s.v / t.v = 1",
        time={"s": "ts", "t": "ts"},
        windows={"s": "NOW", "t": "NOW"},
        select="s.k",
        functions={"is_big": el.predicate(lambda v: pc.greater(v, 0), reads=["v"])},
    )
    assert sorted(joined.to_df().toArrow()["k"].to_pylist()) == [
        k for k in range(500, 1_000) if k % 10 in (1, 2)
    ]
    rows = el.window_join(
        {"s": df, "t": df},
        on="s.k = t.k AND s.v <> 0 AND 10 DIV s.v > 4",
        time={"s": "ts", "t": "ts"},
        windows={"s": "ROWS 1", "t": "NOW"},
        select="s.k",
    )
    assert sorted(rows.to_df().toArrow()["k"].to_pylist()) == [
        k for k in range(1_000) if k % 10 in (1, 2)
    ]


@pytest.mark.large
def test_a_query_over_the_results_of_a_join_and_a_join_over_those_of_a_filter(engine):
    inner = "SELECT k, v + 1 AS v1, 100 DIV w AS part, ts FROM s WHERE w <> 0 AND 10 DIV w > 3"
    engine.stream("few", engine.query(inner, name="few"), time="ts")
    text = (
        "SELECT few.k, t.v, part FROM few [NOW], t [NOW] "
        "WHERE few.k = t.k AND v1 < 9 AND 100 DIV part > 0"
    )
    engine.stream("pairs", engine.query(text, name="pairs"))
    outer = engine.query("SELECT k FROM pairs WHERE v > 2 AND part > 60", name="outer")
    found, run = keys(outer)
    assert found == wanted(lambda k: k % 4 == 1 and 2 < k % 10 < 8)
    plan = outer.explain()
    assert plan.count("join") == 1
    assert "filter pairs.few.s" in plan
    assert "native block of pairs.few" in run.explain()


@pytest.mark.large
def test_a_stream_may_have_any_name(spark, tmp_path, engine):
    """Rows that the query of a stream drops are not counted, whatever its own stream is called."""
    for name in ("result", "plain"):
        engine.stream(name, stream_of(spark, tmp_path, "s"), time="ts")
        engine.stream(f"few_{name}", engine.query(f"SELECT * FROM {name} WHERE v = 3"))
    text = "SELECT a.k FROM few_{} [ROWS 2] AS a, t [NOW] WHERE a.w = t.w"
    found = {name: keys(engine.query(text.format(name)))[0] for name in ("result", "plain")}
    assert found["result"] == found["plain"]
    assert len(found["plain"]) > 2_000


@pytest.mark.parametrize(
    ("projections", "given"),
    [
        ("k, v, timestamp_seconds(v) AS ts", {"time": "ts"}),
        ("*, timestamp_seconds(v) AS of_v", {"time": "of_v"}),
        ("*", {"time": "ts", "lateness": "1 minute"}),
    ],
)
def test_results_have_the_event_time_of_their_stream_and_no_other(engine, projections, given):
    made = engine.query(f"SELECT {projections} FROM s WHERE v > 1")
    with pytest.raises(QueryError, match=r"is not the event time|the lateness of the streams"):
        engine.stream("few", made, **given)
    engine.stream("few", made)
    engine.stream("same", engine.query("SELECT * FROM s"), time="ts")


def test_a_state_folder_is_of_one_run(engine, tmp_path):
    folder = str(tmp_path / "state")
    one, two = (engine.query(TEXT.format("s.v > 1"), name=name) for name in ("one", "two"))
    run = one.start(state=folder)
    try:
        with pytest.raises(QueryError, match=r"run 'one' writes to the state .*; stop it first"):
            two.start(state=folder)
    finally:
        run.stop()


@pytest.mark.large
def test_a_manifest_of_another_query_is_noticed_while_a_query_runs(engine, tmp_path):
    checkpoint = tmp_path / "ckpt"
    query = engine.query(TEXT.format("s.v > 1"), name="mine")
    ended(query, checkpoint=str(checkpoint))
    for values, says in (
        ({"identity": "another"}, "holds the state of another query"),
        ({"parts": {}}, "has no part"),
    ):
        newest = max((checkpoint / "eddyline" / "state").glob("manifest-*"))
        kept = newest.read_text()
        change(newest, **values)
        with pytest.raises(StateError, match=says):
            query.start(checkpoint=str(checkpoint), trigger="available_now")
        newest.write_text(kept)


def test_operators_before_and_behind_a_join_have_names_of_their_own(engine):
    engine.stream("result", engine.query("SELECT k, ts FROM s WHERE v > 3", name="few"), time="ts")
    text = "SELECT result.k FROM result [NOW], t [NOW] WHERE result.k = t.k"
    query = engine.query(text, name="pairs")
    last = replace(query.steps[-1], output="result")
    names = [each.name for each in query.with_steps(*query.steps[:-1], last)._new_operators()]
    assert "project result" in names
    assert "project result#2" in names
    assert len(set(names)) == len(names)


@pytest.mark.large
def test_a_single_condition_says_nothing_of_a_sample_that_orders_would_need(engine):
    _, run = keys(engine.query(TEXT.format("s.v = 3 AND s.v + t.v > 1"), name="single"))
    assert "no sample was read" not in run.explain()
