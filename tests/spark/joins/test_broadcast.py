"""Small tables go to the rows of a stream: the answer is that of buckets, whatever sinks take."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import fs

import eddyline as el
from eddyline.errors import StateError
from eddyline.spark import event_time
from eddyline.spark.joins.inputs import BatchMode
from eddyline.spark.joins.tables import Broadcast
from eddyline.spark.joins.task import LateWorker
from eddyline.spark.operator import Batch
from eddyline.state.manifest import StatePlace
from eddyline.state.rows import Rows
from tests.spark.facts import facts_of
from tests.spark.joins.join_streams import stream_of, write_batch

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

N_BATCHES, N_ROWS = 4, 24
LATE = [51, 52, 53, 77]
"""The late rows with a key: of the last batch one has none, and one has no event time."""

ONE = pa.table({"id": [1]})

TABLE = "key INT, name STRING, day DATE, weight DOUBLE"
NAMES = [
    (1, "a", dt.date(1970, 1, 2), 0.0),
    (2, "b", dt.date(1970, 1, 3), float("nan")),
    (2, "c", dt.date(1970, 1, 3), 1.5),
    (3, "d", None, -0.0),
    (None, "e", dt.date(1970, 1, 1), None),
]


def rows_of(number):
    """Rows of which some have no key or no event time; from the third batch on three come late."""
    ids = [*range(number * N_ROWS, (number + 1) * N_ROWS)]
    seconds = [10 * number + each % 10 for each in range(N_ROWS)]
    if number > 1:
        seconds[3:6] = [10 * number - 30, 10 * number - 25, 10 * number - 25]
    times = [
        None if id % 11 == 10 else second * 1_000_000
        for id, second in zip(ids, seconds, strict=True)
    ]
    keys = [None if id % 5 == 0 else id % 7 for id in ids]
    weights = [(0.0, -0.0, float("nan"), 1.5, None)[id % 5] for id in ids]
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "k": pa.array(keys, pa.int64()),
            "day": pa.array([id % 4 for id in ids], pa.int32()).cast(pa.date32()),
            "w": pa.array(weights, pa.float64()),
        }
    )


QUERIES = {
    "inner": "SELECT s.id, s.ts, s.k, n.name FROM s [NOW] JOIN names n ON s.k = n.key",
    "conditions": "SELECT s.id, n.name FROM s [NOW] JOIN names n ON s.k = n.key "
    "WHERE s.id % 3 > 0 AND n.name <> 'c' AND 100 DIV (s.k - 1 + n.key) > 0",
    "doubles": "SELECT s.id, n.name FROM s [RANGE 5 SECONDS] JOIN names n ON s.w = n.weight",
    "tables": "SELECT s.id, s.day, n.name, m.name AS other FROM s [NOW], names n, names m "
    "WHERE s.k = n.key AND n.day = m.day AND s.day = m.day",
    "left": "SELECT s.id, n.name FROM s [RANGE 5 SECONDS] LEFT JOIN names n "
    "ON s.k = n.key AND n.name <> 'b' AND s.id > 30",
    "semi": "SELECT s.id FROM s [NOW] WHERE EXISTS (SELECT 1 FROM names n WHERE n.key = s.k)",
    "anti": "SELECT s.id, s.k FROM s [NOW] WHERE NOT EXISTS "
    "(SELECT 1 FROM names n WHERE n.key = s.k AND n.name <> 'a')",
}


def started(spark, folder, text, sink="memory", table=NAMES, checkpoint="ckpt", **options):
    """Run a query over what is there."""
    engine = el.Engine(spark)
    engine.stream("s", stream_of(spark, folder, "s"), time="ts", lateness="2 seconds")
    engine.table("names", spark.createDataFrame(table, TABLE))
    query = engine.query(text, name="q", **options)
    run = query.start(sink, trigger="available_now", checkpoint=folder / checkpoint)
    assert run.await_termination(300)
    return run


def rows(found):
    return sorted(map(repr, found.to_pylist()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("batches")
    for number in range(N_BATCHES):
        write_batch(made, "s", number, rows_of(number))
    return made


@pytest.mark.large
@pytest.mark.parametrize("kind", QUERIES)
def test_tables_at_the_rows_give_what_buckets_give(spark, folder, kind):
    runs = [
        started(spark, folder, QUERIES[kind], checkpoint=f"{kind} {adaptive}", adaptive=adaptive)
        for adaptive in (True, False)
    ]
    assert [facts_of(run).way for run in runs] == ["broadcast", "buckets"]
    found, wanted = (run.to_arrow() for run in runs)
    assert wanted.num_rows > 5
    assert rows(found) == rows(wanted)
    late, late_there = (run.late_rows("s") for run in runs)
    assert late.schema == late_there.schema
    assert rows(late) == rows(late_there)
    assert late.num_rows > 1
    assert [each.n_late for run in runs for each in facts_of(run).inputs[:1]] == [late.num_rows] * 2


@pytest.fixture
def looks(monkeypatch, rows_are_asked):
    """The looks at event times, each of which is a job."""
    made = []

    def counted(*given):
        made.append(given)
        return event_time.counted(*given)

    monkeypatch.setattr("eddyline.spark.joins.inputs.counted", counted)
    return made


def test_a_sink_that_takes_all_rows_tells_their_time(spark, folder, looks):
    taken = []

    def every(df, batch_id):
        taken.extend(df.collect())

    every.takes_all = True
    run = started(spark, folder, QUERIES["inner"], every, checkpoint="every")
    assert facts_of(run).way == "broadcast"
    assert len(taken) == facts_of(run).n_results > 5
    assert sorted(run.late_rows("s")["id"].to_pylist()) == LATE
    assert not looks


def test_late_rows_are_known_whatever_a_function_takes(spark, folder, looks):
    taken = []

    def some(df, batch_id):
        if batch_id != 1:
            taken.extend(df.limit(2).collect())

    run = started(spark, folder, QUERIES["inner"], some, checkpoint="some")
    view = facts_of(run)
    assert view.way == "broadcast"
    assert 1 < len(taken) <= 6
    assert len(looks) == N_BATCHES
    assert sorted(run.late_rows("s")["id"].to_pylist()) == LATE
    assert view.inputs[0].n_arrived == N_BATCHES * N_ROWS
    assert view.inputs[0].latest == 39_000_000


def test_a_table_stays_what_it_was_and_ways_may_change(spark, folder, tmp_path):
    write_batch(tmp_path, "s", 0, rows_of(0))
    started(spark, tmp_path, QUERIES["inner"], adaptive=False)  # two buckets
    for number in (1, 2):
        write_batch(tmp_path, "s", number, rows_of(number))
        run = started(spark, tmp_path, QUERIES["inner"], table=[(1, "other", None, None)])
        assert facts_of(run).way == "broadcast"
        assert {*run.to_arrow()["name"].to_pylist()} <= {"a", "b", "c", "d"}
        assert run.to_arrow().num_rows > 5
    write_batch(tmp_path, "s", 3, rows_of(3))
    run = started(
        spark, tmp_path, QUERIES["inner"], table=[(1, "other", None, None)], adaptive=False
    )
    whole = started(spark, folder, QUERIES["inner"], checkpoint="whole", adaptive=False)
    wanted = whole.to_arrow().to_pylist()
    assert rows(run.to_arrow()) == sorted(repr(each) for each in wanted if each["id"] >= 3 * N_ROWS)
    assert run.late_rows("s").num_rows == whole.late_rows("s").num_rows


def test_an_empty_table_has_no_partners_and_time_goes_on(spark, folder):
    run = started(spark, folder, QUERIES["inner"], table=[], checkpoint="empty")
    assert facts_of(run).way == "broadcast"
    assert run.to_arrow().num_rows == 0
    assert sorted(run.late_rows("s")["id"].to_pylist()) == LATE


def test_a_large_table_stays_in_buckets(spark, folder, monkeypatch):
    monkeypatch.setattr("eddyline.spark.joins.tables.MOST_ROWS", 2)
    monkeypatch.setattr("eddyline.joins.tables.MOST_ROWS", 2)
    run = started(spark, folder, QUERIES["semi"], checkpoint="large")
    assert facts_of(run).way == "buckets"
    assert run.to_arrow().num_rows > 5


def test_tables_that_were_taken_by_themselves_and_stay_in_buckets_are_counted(
    spark, tmp_path, monkeypatch
):
    monkeypatch.setattr("eddyline.joins.tables.MOST_BYTES", 0)
    write_batch(tmp_path, "s", 0, rows_of(0))
    view = facts_of(started(spark, tmp_path, QUERIES["inner"]))
    assert view.way == "buckets"
    assert view.n_results > 5
    assert view.inputs[1].n_joined == sum(key is not None for key, *_ in NAMES)


def test_what_was_counted_and_learned_in_buckets_does_not_go_on_beside_the_rows(spark, folder):
    """What a table dropped is of the batch that it was dropped in; what is of others is refused."""
    engine = el.Engine(spark)
    engine.stream("s", stream_of(spark, folder, "s"), time="ts")
    engine.table("names", spark.createDataFrame(NAMES, TABLE))
    query = engine.query(QUERIES["inner"])
    (join,) = (each for each in query.operators if each.name == "join")
    join.drops.loop.newest = 7
    join.inputs.mode = BatchMode("broadcast")
    assert join.learn([], Batch(3)) == []
    assert join.drops.loop.newest == 0
    learned = msgspec.to_builtins(join.snapshot())
    learned["way"] = "nowhere"
    learned["leaving"]["unique"] = {"names": [0]}
    with pytest.raises(StateError, match="nowhere"):
        join.restore(learned)
    assert join.leaving.unique == {}, "nothing of it is taken"


def test_late_rows_that_cannot_be_written_are_an_error_of_the_state(tmp_path):
    (tmp_path / "state").write_text("no folder")
    place = StatePlace(fs.LocalFileSystem(), str(tmp_path / "state"), "join")
    rows = Rows({0: np.zeros(1, np.int64)}, np.zeros(1, np.int64), np.zeros(1, np.int64), ONE)
    shape = SimpleNamespace(inputs=lambda _: ({"s": rows}, {}))
    with pytest.raises(StateError, match=r"late rows in .* start the query again"):
        list(LateWorker(3, shape, place, {}, 0).run(iter(())))


def test_only_one_stream_with_tables_is_joined_so(spark, folder):
    def is_possible(text):
        engine = el.Engine(spark)
        for name in "st":
            engine.stream(name, stream_of(spark, folder, "s"), time="ts")
        engine.table("names", spark.createDataFrame(NAMES, TABLE))
        made = engine.query(text)
        (join,) = (each for each in made.operators if each.name == "join")
        return Broadcast.is_possible(join.bound)

    assert all(map(is_possible, QUERIES.values()))
    assert not is_possible(
        "SELECT s.id FROM s [NOW], t [NOW], names n WHERE s.k = n.key AND t.k = s.k"
    )
    assert not is_possible("SELECT s.id FROM s [ROWS 3], names n WHERE s.k = n.key")
    # Spark may ask what may raise of other pairs than those with equal keys.
    assert not is_possible(
        "SELECT s.id FROM s [NOW] LEFT JOIN names n ON s.k = n.key AND s.id DIV n.key > 0"
    )
