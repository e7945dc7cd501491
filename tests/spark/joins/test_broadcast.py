"""Small tables go to the rows of a stream: the answer stays the same, whatever sinks take."""

from __future__ import annotations

import datetime as dt
from functools import cache
from types import SimpleNamespace

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import fs

import eddyline as el
from eddyline.errors import StateError
from eddyline.query.select.reader import read_query
from eddyline.spark import event_time
from eddyline.spark.joins.inputs import BatchMode
from eddyline.spark.joins.tables import Broadcast
from eddyline.spark.joins.task import LateWorker
from eddyline.spark.operator import Batch
from eddyline.state.manifest import StatePlace
from eddyline.state.rows import Rows
from tests.oracles.joins import bag, results, results_by_partner
from tests.spark.facts import facts_of
from tests.spark.joins.join_streams import ended, stream_of, write_batch

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

N_BATCHES, N_ROWS = 3, 24
BEHIND = [27, 28, 29, 30, 51, 52, 53]
"""The late rows; one more of the third batch has no event time."""

LATE = [27, 28, 29, 51, 52, 53]
"""Those with a key ``k``."""

ONE = pa.table({"id": [1]})

COLUMNS = {"id": "bigint", "ts": "timestamp", "k": "bigint", "day": "date", "w": "double"}
TABLE = "key INT, name STRING, day DATE, weight DOUBLE"
NAMES = [
    (1, "a", dt.date(1970, 1, 2), 0.0),
    (2, "b", dt.date(1970, 1, 3), float("nan")),
    (2, "c", dt.date(1970, 1, 3), 1.5),
    (3, "d", None, -0.0),
    (None, "e", dt.date(1970, 1, 1), None),
]


def rows_of(number):
    """Rows of which some have no key or no event time; from the second batch on four come late."""
    ids = [*range(number * N_ROWS, (number + 1) * N_ROWS)]
    seconds = [10 * number + each % 10 for each in range(N_ROWS)]
    if number:
        seconds[3:7] = [10 * number - each for each in (9, 5, 5, 5)]
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


@cache
def wanted(kind):
    """Return the results by the definition, over the rows that come in time."""
    every = pa.concat_tables(rows_of(number) for number in range(N_BATCHES))
    in_time = every.filter(pa.array([id not in BEHIND for id in every["id"].to_pylist()]))
    named = dict(each.split() for each in TABLE.lower().split(", "))
    names = pa.table(dict(zip(named, zip(*NAMES, strict=True), strict=True)))
    columns = {"s": COLUMNS, "names": named}
    query = read_query(QUERIES[kind], columns)
    given = query, {"s": in_time, "names": names}, {"s": "ts", "names": None}
    if query.kind == "inner":
        return bag(results(*given).drop_columns("_at"))
    return bag(results_by_partner(*given))


def started(spark, folder, text, sink="memory", table=NAMES, checkpoint="ckpt", **options):
    """Run a query over what is there."""
    engine = el.Engine(spark)
    engine.stream("s", stream_of(spark, folder, "s"), time="ts", lateness="2 seconds")
    engine.table("names", spark.createDataFrame(table, TABLE))
    query = engine.query(text, name="q", **options)
    return ended(query, sink, checkpoint=folder / checkpoint)


def rows(found):
    return sorted(map(repr, found.to_pylist()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("batches")
    for number in range(N_BATCHES):
        write_batch(made, "s", number, rows_of(number))
    return made


LATE_OF = {
    "conditions": [28, 29, 52, 53],
    "doubles": [27, 28, 30, 51, 52, 53],
    "left": BEHIND,
    "semi": BEHIND,
    "anti": BEHIND,
}
"""The late rows of queries that do not need those with a key ``k``."""


@pytest.mark.large
@pytest.mark.parametrize("kind", QUERIES)
def test_tables_at_the_rows_give_the_definition(spark, folder, kind):
    run = started(spark, folder, QUERIES[kind], checkpoint=kind)
    assert facts_of(run).way == "broadcast"
    assert bag(run.to_arrow()) == wanted(kind)
    assert wanted(kind).total() > 5
    late = LATE_OF.get(kind, LATE)
    assert sorted(run.late_rows("s")["id"].to_pylist()) == late
    assert facts_of(run).inputs[0].n_late == len(late)
    if kind in ("tables", "left"):
        there = started(spark, folder, QUERIES[kind], checkpoint=f"{kind} there", adaptive=False)
        assert facts_of(there).way == "buckets"
        assert bag(there.to_arrow()) == wanted(kind)
        assert rows(there.late_rows("s")) == rows(run.late_rows("s"))
        assert there.late_rows("s").schema == run.late_rows("s").schema
        assert facts_of(there).inputs[0].n_late == len(late)


@pytest.fixture
def looks(monkeypatch, rows_are_asked):
    """The looks at event times, each of which is a job."""
    made = []

    def counted(*given):
        made.append(given)
        return event_time.counted(*given)

    monkeypatch.setattr("eddyline.spark.joins.inputs.counted", counted)
    return made


@pytest.mark.large
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


@pytest.mark.large
def test_late_rows_are_known_whatever_a_function_takes(spark, folder, looks):
    taken = []

    def some(df, batch_id):
        if batch_id != 1:
            taken.extend(df.limit(2).collect())

    run = started(spark, folder, QUERIES["inner"], some, checkpoint="some")
    view = facts_of(run)
    assert view.way == "broadcast"
    assert 1 < len(taken) <= 4
    assert len(looks) == N_BATCHES
    assert sorted(run.late_rows("s")["id"].to_pylist()) == LATE
    assert view.inputs[0].n_arrived == N_BATCHES * N_ROWS
    assert view.inputs[0].latest == 29_000_000


@pytest.mark.large
def test_a_table_stays_what_it_was_and_ways_may_change(spark, tmp_path):
    other = {"table": [(1, "other", None, None)]}
    every = []
    for number, options in enumerate([{"adaptive": False}, other, other | {"adaptive": False}]):
        write_batch(tmp_path, "s", number, rows_of(number))
        run = started(spark, tmp_path, QUERIES["inner"], **options)
        assert facts_of(run).way == ("broadcast" if number == 1 else "buckets")
        every.append(run.to_arrow())
        assert every[-1].num_rows > 5
    assert bag(pa.concat_tables(every)) == wanted("inner")
    assert sorted(run.late_rows("s")["id"].to_pylist()) == LATE


@pytest.mark.large
def test_an_empty_table_has_no_partners_and_time_goes_on(spark, folder):
    run = started(spark, folder, QUERIES["inner"], table=[], checkpoint="empty")
    assert facts_of(run).way == "broadcast"
    assert run.to_arrow().num_rows == 0
    assert sorted(run.late_rows("s")["id"].to_pylist()) == LATE


@pytest.mark.large
def test_a_large_table_stays_in_buckets(spark, tmp_path, monkeypatch):
    monkeypatch.setattr("eddyline.spark.joins.tables.MOST_ROWS", 2)
    monkeypatch.setattr("eddyline.joins.tables.MOST_ROWS", 2)
    write_batch(tmp_path, "s", 0, rows_of(0))
    run = started(spark, tmp_path, QUERIES["semi"])
    assert facts_of(run).way == "buckets"
    assert run.to_arrow().num_rows > 5


@pytest.mark.large
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


@pytest.mark.large
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
