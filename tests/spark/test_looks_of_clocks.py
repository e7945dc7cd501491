"""The jobs in which event time is learned before a batch is answered: one for all, or none."""

from __future__ import annotations

import pyarrow as pa
import pytest

import eddyline as el
from eddyline.spark import clock, parts
from eddyline.spark.joins import inputs
from eddyline.spark.query import Query
from eddyline.spark.relation import Relation
from tests.spark.aggregates.aggregate_streams import ended
from tests.spark.joins.join_streams import n_jobs, stream_of, write_batch

pytestmark = [
    pytest.mark.spark,
    pytest.mark.large("runs queries with several clocks, each of them twice"),
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:.* came too late"),
]

SECOND = 1_000_000
N_BATCHES = 4


def rows(name, number):
    """Return the rows of seven seconds, out of order, some late, one without an instant.

    Of ``t`` there are none in the third batch, and it lags behind.
    """
    if name == "t" and number == 2:
        return pa.table({"ts": pa.array([], pa.timestamp("us", "UTC")), "k": [], "v": []}).cast(
            rows("t", 0).schema
        )
    ids = range(number * 60, (number + 1) * 60)
    instants = [id * SECOND // 10 - (id * 37 % 11) * SECOND // 8 for id in ids]
    instants = [each - (3 * SECOND if name == "t" else 0) for each in instants]
    if number > 1:
        instants[3] -= 30 * SECOND
    return pa.table(
        {
            "ts": pa.array([*instants[:-1], None], pa.timestamp("us", "UTC")),
            "k": pa.array([id % 4 for id in ids], pa.int32()),
            "v": pa.array([id * 97 % 100 for id in ids], pa.int64()),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("looks")
    for number in range(N_BATCHES):
        for name in "st":
            write_batch(made, name, number, rows(name, number))
    return made


def engine_of(spark, folder, lateness):
    made = el.Engine(spark)
    for name in "st":
        rows = stream_of(spark, folder, name)
        made.stream(name, rows, time="ts", lateness=lateness if name == "t" else "1 second")
    made.function("most", lambda v: v.to_numpy() < 90, reads=["v"], arrays="arrow")
    return made


@pytest.fixture
def looks(monkeypatch, rows_are_asked):
    """The jobs that look at event times, by who runs them."""
    found = []
    for module, name in ((clock, "counted"), (inputs, "counted"), (parts, "counted_together")):
        run, where = getattr(module, name), module.__name__.rsplit(".", 1)[-1]
        monkeypatch.setattr(
            module, name, lambda *args, run=run, where=where: found.append(where) or run(*args)
        )
    return found


def result_of(run):
    """Return the rows of a run, and how many each clock, and the join, has put aside."""
    late = [each.part.n_late for each in run.chain.operators if each.keeps_late]
    late = [sum(each.values()) if isinstance(each, dict) else each for each in late]
    return sorted(map(repr, run.to_arrow().to_pylist())), late


PART = "SELECT k, ts, v FROM {} WHERE most(v)"
SUMS = (
    "SELECT k, window.end AS e, count(*) AS n, sum(v) AS total "
    "FROM {} [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k"
)
JOINED = (
    "SELECT a.k, a.n, b.v FROM a [RANGE 3 SECONDS], t b [RANGE 6 SECONDS], c [RANGE 3 SECONDS] "
    "WHERE a.k = b.k AND b.k = c.k AND b.v > 70"
)


@pytest.mark.parametrize(
    ("derived", "time", "text", "lateness", "n_clocks"),
    [
        (
            {"a": f"{PART.format('s')} UNION ALL {PART.format('t')}"},
            "ts",
            SUMS.format("a"),
            "learned 90 %",
            2,
        ),
        (
            {"a": f"{SUMS.format('s')} UNION ALL {SUMS.format('t')}"},
            "e",
            SUMS.format("a").replace("(v)", "(n)"),
            "2 seconds",
            2,
        ),
        ({"a": SUMS.format("s"), "c": SUMS.format("t")}, "e", JOINED, "learned 90 %", 3),
    ],
    ids=["parts with Python", "parts with aggregates", "inputs of a join"],
)
def test_clocks_of_several_parts_look_in_one_job(
    spark, folder, looks, monkeypatch, derived, time, text, lateness, n_clocks
):
    found, n_looks, jobs = {}, {}, {}
    for way in ("together", "alone"):
        engine = engine_of(spark, folder, lateness)
        for name, each in derived.items():
            engine.stream(name, engine.query(each, name=f"of_{name}"), time=time)
        if way == "alone":
            alone = property(lambda _: {}, lambda *_: None)
            monkeypatch.setattr(parts.Trunk, "looking", alone, raising=False)
        before = n_jobs(spark)
        found[way] = result_of(ended(engine.query(text, name=way, adaptive=False)))
        n_looks[way], jobs[way] = [*looks], n_jobs(spark) - before
        looks.clear()
    assert found["together"] == found["alone"]
    assert len(found["alone"][0]) > 10
    assert sum(found["alone"][1]) > 0
    assert n_looks["together"] == ["parts"] * N_BATCHES
    assert len(n_looks["alone"]) == n_clocks * N_BATCHES
    # A look of the first batch may be several jobs, by Spark's adaptive execution.
    assert jobs["alone"] - jobs["together"] >= (n_clocks - 1) * N_BATCHES


def test_the_job_that_makes_the_cells_tells_the_clock_of_a_union(spark, folder, looks):
    engine = engine_of(spark, folder, "2 seconds")
    both = "SELECT k, ts, v FROM s WHERE v > 3 UNION ALL SELECT k, ts, -v FROM t WHERE v < 90"
    engine.stream("both", engine.query(both, name="of_both"), time="ts")
    text = SUMS.format("both")
    wanted = result_of(ended(engine.query(text, name="written", adaptive=False)))
    assert looks == ["clock"] * N_BATCHES
    looks.clear()
    run = ended(engine.query(text, name="sums"))
    assert result_of(run) == wanted
    assert len(wanted[0]) > 10
    assert sum(wanted[1]) > 0
    assert looks == ["clock"], "of the first batch, of which nothing was known"
    assert run.chain.plan()["aggregate"] == "driver"


def test_nobody_looks_at_batch_dataframes(spark, folder, looks):
    engine = engine_of(spark, folder, "2 seconds")
    both = " UNION ALL ".join(map(SUMS.format, "st"))
    engine.stream("both", engine.query(both, name="of_both"), time="e")
    text = SUMS.format("both").replace("(v)", "(n)")
    frames = {
        name: Relation(spark.read.parquet(str(folder / name)), "ts", "2 seconds") for name in "st"
    }
    query = Query("q", text, engine.query(text, name="streams").steps, frames, {})
    assert sum(each["total"] for each in query.to_df().collect()) > 2 * N_BATCHES * 60
    assert looks == []
