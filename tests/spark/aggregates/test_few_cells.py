"""Batches of few cells, which the driver answers: what Spark is asked, and what it is left."""

from __future__ import annotations

import threading
from itertools import cycle
from types import SimpleNamespace

import pyarrow as pa
import pytest

import eddyline as el
from eddyline.aggregates.loop import AggregateLoop, AggregateProfile
from eddyline.spark import bucketed, clock
from eddyline.spark.aggregates import operator
from eddyline.spark.operator import Batch
from eddyline.spark.run import chain
from tests.spark.aggregates.aggregate_streams import ended
from tests.spark.joins.join_streams import stream_of, write_batch

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:.* came too late"),
]

SECOND = 1_000_000
N_BATCHES, N_ROWS = 3, 60
SUMS = (
    "SELECT k, count(*) AS n, sum(v) AS total, window.end AS e "
    "FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] WHERE v <> 7 AND v < 90 GROUP BY k"
)


def rows(number):
    """Return the rows of six seconds; from the second batch on one is 20 seconds late."""
    ids = range(number * N_ROWS, (number + 1) * N_ROWS)
    instants = [id * SECOND // 10 for id in ids]
    if number:
        instants[0] -= 20 * SECOND
    return pa.table(
        {
            "ts": pa.array(instants, pa.timestamp("us", "UTC")),
            "k": pa.array([None if id % 5 == 4 else id % 5 for id in ids], pa.int32()),
            "v": pa.array([id * 97 % 100 for id in ids], pa.int64()),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("few_cells")
    for number in range(N_BATCHES):
        write_batch(made, "s", number, rows(number))
    return made


def new_engine(spark, folder):
    engine = el.Engine(spark)
    engine.stream("s", stream_of(spark, folder, "s"), time="ts", lateness="1 second")
    return engine


@pytest.fixture
def engine(spark, folder):
    return new_engine(spark, folder)


@pytest.fixture(scope="module")
def wanted(spark, folder):
    """The results of the plan as written."""
    return answers(ended(new_engine(spark, folder).query(SUMS, name="written", adaptive=False)))


def answers(run):
    return sorted(map(repr, run.to_arrow().to_pylist()))


@pytest.fixture
def looks(monkeypatch, rows_are_asked):
    """The jobs in which the clock looks at batches by itself."""
    found, counted = [], clock.counted
    monkeypatch.setattr(clock, "counted", lambda *args: found.append(None) or counted(*args))
    return found


@pytest.mark.large
def test_the_job_that_makes_the_cells_tells_the_clock(engine, looks, tmp_path):
    wanted = answers(ended(engine.query(SUMS, name="written", adaptive=False)))
    assert len(looks) == N_BATCHES
    assert len(wanted) > 20
    looks.clear()
    run = ended(engine.query(SUMS, name="sums"), checkpoint=str(tmp_path))
    assert answers(run) == wanted
    assert len(looks) == 1, "of the first batch, of which nothing was known"
    assert run.chain.plan()["aggregate"] == "driver"
    assert len(run.late_rows("s")) == N_BATCHES - 1
    view = next(each for each in run.chain.operators if each.name == "aggregate").facts()
    every = [row for number in range(N_BATCHES) for row in rows(number).to_pylist()]
    late = [row for number in range(1, N_BATCHES) for row in rows(number).slice(0, 1).to_pylist()]
    kept = [row for row in every if row not in late and row["v"] != 7 and row["v"] < 90]
    assert view.total.n_rows == len(kept)


@pytest.mark.large
@pytest.mark.parametrize("too_many", ["fetched", "answered_here"])
@pytest.mark.usefixtures("rows_are_asked")
def test_what_is_too_much_for_the_driver_is_left_to_tasks(engine, wanted, monkeypatch, too_many):
    original, found = getattr(operator, too_many), []

    def with_little_room(*args):
        with monkeypatch.context() as little:
            little.setattr(bucketed, "MOST_FETCHED", 4)
            found.append(original(*args))
        return found[-1]

    monkeypatch.setattr(operator, too_many, with_little_room)
    run = ended(engine.query(SUMS, name="sums"))
    assert answers(run) == wanted
    assert found == [None] * (N_BATCHES - 1), "the first batch was for tasks anyway"
    assert run.chain.plan()["aggregate"] == "driver", "by what batches turned out to have"


@pytest.mark.large
def test_a_batch_is_laid_by_one_plan_whoever_decides_meanwhile(engine, wanted, monkeypatch):
    plans = cycle(["late", "early", "late", "driver", "early"])  # another one for each look
    every = property(lambda _: next(plans), lambda *_: None)
    monkeypatch.setattr(AggregateLoop, "plan", every, raising=False)
    assert answers(ended(engine.query(SUMS, name="sums", adaptive=False))) == wanted


def test_a_batch_without_rows_counts_none_of_the_one_before():
    loop = AggregateLoop()
    loop.step(AggregateProfile(n_rows=100, n_cells=10, n_results=10))
    lock = threading.RLock()
    own = SimpleNamespace(loop=loop, is_idle=True, _lock=lock, reports=lambda _observed: [])
    own.lane = SimpleNamespace(learn=lambda _observed, _batch: [])
    assert operator.AggregatingOperator.learn(own, [], Batch(3)) == []
    assert loop.record().profile == AggregateProfile()
    assert loop.rows_met(100) == 0
    assert loop.known.n_rows == 100, "what plans are chosen by stays"


@pytest.mark.large
def test_a_sink_that_takes_a_part_has_the_rest_run_behind_the_driver(engine, monkeypatch):
    """What the driver has answered is not run again, nor are its filters waited for."""
    monkeypatch.setattr(chain, "WHOLE_WAIT_S", 20.0)
    engine.stream("sums", engine.query(SUMS, name="q_sums"), time="e")
    text = (
        "SELECT k, n, sum(n) OVER (PARTITION BY k ORDER BY e RANGE BETWEEN INTERVAL '4' SECOND "
        "PRECEDING AND CURRENT ROW) AS near FROM sums"
    )
    whole = ended(engine.query(text, name="whole"))
    part = ended(engine.query(text, name="part"), sink=lambda df, _number: df.limit(1).collect())
    assert len(answers(whole)) > 20
    assert done_by(part) == done_by(whole)


def done_by(run):
    """Return the results of each aggregate of a run, and the cells that it keeps."""
    views = [each.facts() for each in run.chain.operators if each.name in ("aggregate", "over")]
    assert len(views) == 2
    return [(each.total.n_results, each.n_kept, each.n_waiting) for each in views]
