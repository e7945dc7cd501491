"""Warnings of state that grows for as long as a query runs."""

import warnings

import pyarrow as pa
import pytest

import eddyline as el
from eddyline.errors import UnboundedStateWarning
from tests.spark.joins.join_streams import stream_of, write_batch

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("default::eddyline.errors.UnboundedStateWarning"),
]

ROWS = "id", "CAST(id % 9 AS INT) AS k", "timestamp_seconds(id) AS ts"
TIME_BOUND = "s.k = t.k AND t.ts BETWEEN s.ts AND s.ts + INTERVAL '5' MINUTE"
UNTIMED = "SELECT s.id FROM s, t WHERE s.k = t.k"
TIMED = f"SELECT s.id FROM s, t WHERE {TIME_BOUND}"
DISTINCT = "SELECT k, COUNT(DISTINCT id) AS n FROM s GROUP BY k"


@pytest.fixture
def frames(spark, tmp_path):
    ids = range(90)
    at = pa.array([1_000_000 * id for id in ids], pa.timestamp("us", "UTC"))
    k = pa.array([id % 9 for id in ids], pa.int32())
    write_batch(tmp_path, "in", 0, pa.table({"id": ids, "k": k, "ts": at}))
    return {name: stream_of(spark, tmp_path, "in") for name in "st"}


@pytest.fixture
def engine(spark, frames):
    engine = el.Engine(spark)
    for name, frame in frames.items():
        engine.stream(name, frame, time="ts", lateness="1 minute")
    engine.table("names", spark.range(9).selectExpr("CAST(id AS INT) AS k", "id AS name"))
    return engine


def streams_warned_of(call):
    """Return the result of a call, and the streams that its warnings name."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    told = [each for each in caught if issubclass(each.category, UnboundedStateWarning)]
    assert all(each.filename == __file__ for each in told), "they point at the code of the user"
    text = " ".join(str(each.message) for each in told)
    return result, [name for name in ("s", "t") if f"{name!r} for ever" in text], text


@pytest.mark.parametrize(
    ("text", "streams"),
    [
        (UNTIMED, ["s", "t"]),
        ("SELECT s.id FROM s JOIN t ON s.k = t.k AND t.ts >= s.ts", ["s"]),
        ("SELECT s.id FROM s [RANGE 1 HOUR], t WHERE s.k = t.k", ["t"]),
        (f"SELECT s.id FROM s [UNBOUNDED], t WHERE {TIME_BOUND}", ["s"]),
        (f"DSTREAM({TIMED})", ["s", "t"]),
        (f"SELECT s.id FROM s [UNBOUNDED], t [ROWS 9] WHERE {TIME_BOUND}", ["s"]),
        ("SELECT s.id FROM s [RANGE 1 HOUR] SEMI JOIN t ON s.k = t.k", ["t"]),
        (DISTINCT, ["s"]),
        ("SELECT k, approx_count_distinct(id) AS n FROM s GROUP BY k", ["s"]),
        ("SELECT k, median(id) OVER (PARTITION BY k ORDER BY ts) AS middle FROM s", ["s"]),
    ],
)
def test_the_query_and_its_start_warn_of_rows_that_are_kept_for_ever(engine, text, streams):
    query, names, said = streams_warned_of(lambda: engine.query(text, name="q"))
    assert names == streams
    assert said.startswith("query 'q': ")
    assert "RANGE 1 HOUR" in said
    if text in (UNTIMED, DISTINCT):
        run, names, _ = streams_warned_of(lambda: query.start(trigger="available_now"))
        run.stop()
        assert names == streams


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (UNTIMED, "in the condition, such as t.ts <= s.ts + INTERVAL 1 HOUR, or"),
        (UNTIMED, "in the condition, such as s.ts <= t.ts + INTERVAL 1 HOUR, or"),
        (f"DSTREAM({UNTIMED})", "such as s [RANGE 1 HOUR], or use"),
    ],
)
def test_the_warning_advises_a_bound_where_it_helps(engine, text, advice):
    assert advice in streams_warned_of(lambda: engine.query(text))[2]


@pytest.mark.parametrize(
    "text",
    [
        TIMED,
        f"SELECT s.id FROM s JOIN t ON {TIME_BOUND}",
        f"SELECT s.id FROM s LEFT JOIN t ON {TIME_BOUND}",
        f"SELECT s.id FROM s SEMI JOIN t ON {TIME_BOUND}",
        f"SELECT s.id FROM s WHERE NOT EXISTS (SELECT 1 FROM t WHERE {TIME_BOUND})",
        f"SELECT s.id FROM s, names, t WHERE s.k = names.k AND {TIME_BOUND}",
        f"SELECT s.id FROM s [RANGE 1 HOUR], t WHERE {TIME_BOUND}",
        f"SELECT s.id FROM s [RANGE 1 HOUR], t [NOW] WHERE {TIME_BOUND}",
        "SELECT s.id FROM s, names WHERE s.k = names.k",
        "SELECT k, COUNT(*) AS n, MAX(id) AS top FROM s GROUP BY k",
        "SELECT k, COUNT(DISTINCT id) AS n FROM s [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY k",
        "SELECT k, SUM(id) OVER (PARTITION BY k ORDER BY ts) AS n FROM s",
        "SELECT id FROM s WHERE k > 3",
    ],
)
def test_bounded_state_is_not_warned_of(engine, text):
    assert streams_warned_of(lambda: engine.query(text))[1:] == ([], "")


def test_discarding_is_a_bound(engine):
    text = "SELECT s.id FROM s, t WHERE s.k = t.k"
    assert streams_warned_of(lambda: engine.query(text, constraints="discard"))[1] == []


@pytest.mark.parametrize(
    ("text", "options", "streams"),
    [
        ("SELECT s.id FROM s, t WHERE s.k = t.k", {"adaptive": False}, ["s", "t"]),
        ("SELECT s.id FROM s [RANGE 1 HOUR] SEMI JOIN t ON s.k = t.k", {}, ["t"]),
    ],
)
def test_discarding_that_drops_no_rows_is_no_bound(engine, text, options, streams):
    made = streams_warned_of(lambda: engine.query(text, constraints="discard", **options))
    assert made[1] == streams


def test_joins_without_text_warn_of_streams_and_not_of_batches(spark, frames):
    how = {"on": "s.k = t.k", "time": {"s": "ts", "t": "ts"}}
    assert streams_warned_of(lambda: el.window_join(frames, **how))[1] == ["s", "t"]
    bounded = how | {"on": TIME_BOUND}
    assert streams_warned_of(lambda: el.window_join(frames, **bounded))[1] == []
    assert streams_warned_of(lambda: el.window_join(frames, how="left", **bounded))[1] == []
    batches = dict.fromkeys("st", spark.range(9).selectExpr(*ROWS))
    assert streams_warned_of(lambda: el.window_join(batches, **how))[1] == []
