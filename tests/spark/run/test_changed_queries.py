"""A query that goes on from a checkpoint after its text, its streams or its functions changed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import warnings

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import eddyline as el
from eddyline.errors import ChangedFunctionWarning, OptionError, StateError
from eddyline.runtime.checkpoint import held_locks
from tests.runtime.test_folder_lock import HOLD
from tests.spark.joins.join_streams import run_to_end, write_batch
from tests.state.manifests import change

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

OLD = "ts TIMESTAMP, k STRING, j INT, v BIGINT, w BIGINT"
NEW = "ts TIMESTAMP, extra DOUBLE, k STRING, v BIGINT, w BIGINT, j INT"

FILTER = "SELECT k, v FROM s WHERE v > 1 AND k = 'a'"
AGGREGATE = (
    "SELECT k, SUM(v) AS n FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k "
    "HAVING COUNT(*) = 2 AND MAX(w) = 60"
)
JOIN = (
    "SELECT x.v AS a, y.v AS b FROM s AS x [RANGE 1 HOUR], s AS y [RANGE 1 HOUR] "
    "WHERE x.k = y.k AND x.j = y.j AND x.v < y.v AND x.w < y.w + 100"
)
OVER = "SELECT k, v, SUM(v) OVER (PARTITION BY k ORDER BY ts) AS n FROM s WHERE v > 0 AND w > 0"
NESTED = (
    "SELECT x.v, y.m FROM s AS x [RANGE 1 HOUR], "
    "(SELECT k, MAX(v) AS m, window.end AS e FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k) "
    "AS y [RANGE 1 HOUR] "
    "WHERE x.k = y.k AND x.v > 0"
)

SAME = {
    "filter": (
        FILTER,
        "select K, V -- all of a\nfrom s WHERE (k='a') and V > 1",
        [("a", 3), ("a", 7)],
    ),
    "aggregate": (
        AGGREGATE,
        "SELECT z.k, sum(z.v) AS n FROM s AS z [RANGE 60 SECONDS SLIDE 1 MINUTE] GROUP BY z.k "
        "HAVING MAX(z.w) = 60 AND 2 = COUNT(*)",
        [("a", 4)],
    ),
    "join": (
        JOIN,
        "SELECT p.v AS a, q.v AS b FROM s AS p [RANGE 1 HOUR], s AS q [RANGE 1 HOUR] "
        "WHERE p.w < q.w + 100 AND p.v < q.v AND q.j = p.j AND p.k = q.k",
        [(1, 3), (1, 7), (3, 7)],
    ),
    "over": (OVER, OVER.replace("v > 0 AND w > 0", "w > 0 AND v>0"), [("a", 1, 1), ("a", 3, 4)]),
    "nested": (
        NESTED,
        NESTED.replace("x.", "p.").replace("AS x", "AS p").replace("y.", "q.").replace("y ", "q "),
        [(1, 3), (3, 3), (7, 3)],
    ),
}
"""Of each kind a text, another one that means the same, and all results."""


def write(folder, number, *rows, extra=False):
    instants, js, vs, ws = zip(*rows, strict=True)
    columns = {
        "ts": pa.array([at * 1_000_000 for at in instants], pa.timestamp("us", "UTC")),
        "k": pa.array(["a"] * len(rows)),
        "j": pa.array(js, pa.int32()),
        "v": pa.array(vs, pa.int64()),
        "w": pa.array(ws, pa.int64()),
    }
    if extra:
        columns["extra"] = pa.array([0.5] * len(rows))
    write_batch(folder, "s", number, pa.table(columns))


def query_of(spark, folder, text, schema=OLD, **functions):
    engine = el.Engine(spark)
    df = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    engine.stream("s", df.parquet(str(folder / "s")), time="ts", lateness="0 seconds")
    for name, function in functions.items():
        engine.function(name, function)
    return engine.query(text, name="q")


def results(folder):
    return sorted(tuple(each.values()) for each in pq.read_table(folder / "out").to_pylist())


def events(run):
    return [each["event"] for each in run.journal]


def await_end(spark, run):
    """Wait until Spark has forgotten a run, without asking the run, which could tidy up then."""
    while run.streaming_query.id in [each.id for each in spark.streams.active]:
        time.sleep(0.02)


def begin(spark, folder, text, **functions):
    write(folder, 0, (0, 1, 1, 60))
    write(folder, 1, (20, 1, 3, 50))
    return run_to_end(query_of(spark, folder, text, **functions), folder)


def write_last(folder, *, extra=False):
    write(folder, 2, (70, 1, 7, 10), extra=extra)


@pytest.mark.large
@pytest.mark.parametrize("kind", SAME)
def test_a_query_that_means_the_same_goes_on(spark, tmp_path, kind):
    text, again, wanted = SAME[kind]
    begin(spark, tmp_path, text)
    write_last(tmp_path, extra=True)
    run = run_to_end(query_of(spark, tmp_path, again, NEW), tmp_path)
    assert results(tmp_path) == wanted
    assert "change" not in events(run)
    if kind == "filter":
        assert "restore" in events(run), "what was learned goes on"


@pytest.mark.large
def test_a_change_is_refused_and_said_and_may_be_wanted(spark, tmp_path):
    begin(spark, tmp_path, AGGREGATE)
    write_last(tmp_path)
    having = query_of(spark, tmp_path, AGGREGATE.replace("= 60", "> 70"))
    says = r"of another query \(SELECT .*: HAVING was COUNT.* = 60 and is COUNT.* > 70"
    with pytest.raises(StateError, match=says) as caught:
        run_to_end(having, tmp_path)
    assert "changed='keep_state'" in str(caught.value)
    with pytest.raises(OptionError, match="unknown way"):
        having.start("memory", checkpoint=str(tmp_path / "ckpt"), changed="keep")
    window = query_of(spark, tmp_path, AGGREGATE.replace("RANGE 1 MINUTE", "RANGE 2 MINUTES"))
    where = {"path": str(tmp_path / "out"), "checkpoint": str(tmp_path / "ckpt")}
    where["trigger"] = "available_now"
    with pytest.raises(StateError, match=r"does not fit .*the window of s was RANGE 1 MINUTE"):
        window.start("parquet", **where, changed="keep_state")
    kept = query_of(spark, tmp_path, AGGREGATE.replace("= 60", "> 50"))
    run = kept.start("parquet", **where, changed="keep_state")
    assert run.await_termination(400)
    assert results(tmp_path) == [("a", 4)], "cells of before count"
    assert "change" in events(run)
    assert run_to_end(kept, tmp_path).records == [], "it is the checkpoint of the new query now"


@pytest.mark.large
def test_reset_goes_on_with_empty_state(spark, tmp_path):
    begin(spark, tmp_path, AGGREGATE)
    text = "SELECT k, SUM(v) AS n FROM s [RANGE 2 MINUTES SLIDE 2 MINUTES] GROUP BY k"
    query = query_of(spark, tmp_path, text)
    where = {"path": str(tmp_path / "out"), "checkpoint": str(tmp_path / "ckpt")}
    write(tmp_path, 2, (70, 1, 7, 10))
    run = query.start("parquet", **where, trigger="available_now", changed="reset")
    assert run.await_termination(400)
    assert next(each.batch_id for each in run.records) == 2, "rows of before are not read again"
    assert "reset" in events(run)
    write(tmp_path, 3, (80, 1, 5, 10))
    write(tmp_path, 4, (130, 1, 100, 10))
    again = query.start("parquet", **where, trigger="available_now", changed="reset")
    assert again.await_termination(400)
    assert results(tmp_path) == [("a", 12)], "7 + 5, and the state of before is gone"
    assert "reset" not in events(again)[events(again).index("reset") + 1 :], "nothing has changed"


@pytest.mark.large
def test_a_function_that_changed_is_told(spark, tmp_path):
    def large(limit):
        return el.predicate(lambda v: v.to_numpy() > limit, reads=["v"], name="large")

    text = "SELECT k, v FROM s WHERE large(v)"
    begin(spark, tmp_path, text, large=large(1))
    write_last(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ChangedFunctionWarning)
        run_to_end(query_of(spark, tmp_path, text, large=large(1)), tmp_path)
    write(tmp_path, 3, (80, 1, 2, 10), (81, 1, 9, 10))
    with pytest.warns(ChangedFunctionWarning, match=r"the code of 'large' .* up to batch 2\."):
        run = run_to_end(query_of(spark, tmp_path, text, large=large(5)), tmp_path)
    assert results(tmp_path) == [("a", 3), ("a", 7), ("a", 9)]
    changes = [each for each in run.journal if each["event"] == "change"]
    assert [each["evidence"] for each in changes] == [{"functions": "large"}]


@pytest.mark.large
@pytest.mark.parametrize("kind", ["filter", "join"])
def test_checkpoints_that_know_the_text_alone_go_on(spark, tmp_path, kind):
    text, _, wanted = SAME[kind]
    begin(spark, tmp_path, text)
    query, own = query_of(spark, tmp_path, text), tmp_path / "ckpt" / "eddyline"
    legacy = query.identity.legacy
    (own / "query.json").unlink()
    saved = json.loads((own / "state.json").read_text())
    (own / "state.json").write_text(json.dumps(saved | {"identity": legacy}))
    for each in (own / "state").glob("manifest-*"):
        change(each, identity=legacy)
    write_last(tmp_path)
    other = query_of(spark, tmp_path, text.replace("v > 1", "v > 2").replace("1 HOUR", "2 HOURS"))
    with pytest.raises(StateError, match="its text is another one"):
        run_to_end(other, tmp_path)
    run = run_to_end(query_of(spark, tmp_path, text.replace(" AND ", "\n AND ")), tmp_path)
    assert results(tmp_path) == wanted
    assert "restore" in events(run)
    assert (own / "query.json").exists()


@pytest.mark.large
def test_a_checkpoint_has_one_run_in_all_processes(spark, tmp_path):
    write(tmp_path, 0, (0, 1, 3, 60))
    query, lock = query_of(spark, tmp_path, FILTER), tmp_path / "ckpt" / "eddyline" / "lock"
    hold = [sys.executable, "-c", HOLD, str(lock)]
    with query.start(checkpoint=str(tmp_path / "ckpt")):
        other = subprocess.run(hold, input="", capture_output=True, text=True, check=False)
        assert "in use by query 'q' in process" in other.stderr
        assert lock.read_text()
    with subprocess.Popen(hold, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        other.stdout.readline()
        with pytest.raises(StateError, match="is in use by query 'other' in process"):
            query.start(checkpoint=str(tmp_path / "ckpt"))
        other.kill()
    run = query.start(checkpoint=str(tmp_path / "ckpt"), trigger="available_now")
    await_end(spark, run)
    assert query.start(checkpoint=str(tmp_path / "ckpt"), trigger="once").await_termination(100)
    assert not held_locks()


@pytest.mark.large
def test_a_run_that_fails_gives_its_checkpoint_back(spark, tmp_path):
    write(tmp_path, 0, (0, 1, 3, 60))
    query = query_of(spark, tmp_path, "SELECT v FROM s WHERE 1 / (v - 3) > 0")
    run = query.start(checkpoint=str(tmp_path / "ckpt"))
    await_end(spark, run)
    deadline = time.monotonic() + 30
    while held_locks() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not held_locks()
    other = query_of(spark, tmp_path, FILTER)
    with pytest.raises(StateError, match="another query"):
        other.start(checkpoint=str(tmp_path / "ckpt"))
    assert not held_locks(), "nor does one that does not start keep it"


@pytest.mark.large
def test_stop_all_stops_every_run_of_the_engine(spark, tmp_path):
    write(tmp_path, 0, (0, 1, 3, 60))
    query = query_of(spark, tmp_path, FILTER)
    engine = el.Engine(spark)
    other = el.Engine(spark)
    for each in (engine, other):
        each.stream("s", query.relations["s"].df)
    first = [engine.query(f"SELECT v FROM s WHERE v > {n}", name=f"q{n}") for n in range(2)]
    runs = engine.start_all()
    bad = engine.query("SELECT v FROM s WHERE 1 / (v - 3) > 0", name="bad").start()
    alone = engine.query("SELECT v FROM s", name="alone")
    runs += [alone.start(), el.RuleSet({"a": "v > 1"}, name="set").start("s", engine=engine)]
    runs.append(engine.query("SELECT k FROM s", name="k").with_steps(*first[0].steps).start())
    others = other.query("SELECT v FROM s", name="others").start()
    while bad.isActive:
        time.sleep(0.02)
    threads = [threading.Thread(target=engine.stop_all) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [run.isActive for run in runs] == [False] * len(runs)
    assert events(runs[-1]).count("stop") == 1
    assert others.isActive
    engine.stop_all()
    again = alone.start()
    other.stop_all()
    assert not others.isActive
    assert again.isActive
    engine.stop_all()
    assert not again.isActive
