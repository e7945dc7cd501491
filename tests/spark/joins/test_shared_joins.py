"""Queries that join the same streams by the same keys share exchange and windows."""

from __future__ import annotations

import random
from collections import Counter

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import eddyline as el
from eddyline.errors import OptionError, PlanError, StateError
from eddyline.spark.run.run import Run
from eddyline.spark.shared.group import SharedQueryRun, Start, start_together
from tests import examples
from tests.spark.joins.join_streams import stream_of, told, write_batch
from tests.spark.run.lives import changes, rows_in

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:.* came too late"),
]

N_BATCHES, N_ROWS = 4, 120
SCHEMA = "id BIGINT, ts TIMESTAMP, k BIGINT, j STRING, v BIGINT"
LATE_ID = 1_000_000
LENGTHS = (None, 0, 1, 3, 7, 12)
"""Of windows (s); None: as long as there is no end."""


def rows_of(name, number):
    """Return the rows of a batch, with NULL keys; of the last batch some come too late."""
    drawn = random.Random(f"{name}{number}")
    ids = [*range(number * N_ROWS, (number + 1) * N_ROWS)]
    seconds = [4 * number + drawn.randrange(6) for _ in ids]
    if number == N_BATCHES - 1:
        ids += [LATE_ID + at for at in range(9)]
        seconds += [4 * number - 9] * 9
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "ts": pa.array([at * 1_000_000 for at in seconds], pa.timestamp("us", "UTC")),
            "k": pa.array([drawn.choice([None, *range(20)]) for _ in ids], pa.int64()),
            "j": pa.array([drawn.choice([None, "", "a", "A", "ä"]) for _ in ids], pa.string()),
            "v": pa.array([drawn.choice([None, *range(6)]) for _ in ids], pa.int64()),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("streams")
    for number in range(N_BATCHES):
        for name in "stu":
            write_batch(folder, name, number, rows_of(name, number))
    return folder


def engine_of(spark, folder, queries, **options):
    engine = el.Engine(spark)
    for name in "stu":
        stream = stream_of(spark, folder, name, schema=SCHEMA)
        engine.stream(name, stream, time="ts", lateness="3 seconds")
    for name, text in queries.items():
        engine.query(text, name=name, **options)
    return engine


def answers(queries):
    """Return the rows that DuckDB finds of each query, by its SQL."""
    with duckdb.connect() as connection:
        connection.sql("SET TimeZone = 'UTC'")
        for name in "stu":
            every = pa.concat_tables([rows_of(name, number) for number in range(N_BATCHES)])
            connection.register(name, every.filter(pa.compute.less(every["id"], LATE_ID)))
        return {name: bag(connection.sql(sql).to_arrow_table()) for name, sql in queries.items()}


def bag(table):
    return Counter(map(repr, rows_in(table)))


def written(folder, name):
    files = sorted((folder / name).glob("*.parquet"))
    return bag(pa.concat_tables(map(pq.read_table, files))) if files else Counter()


def finish(runs):
    for run in runs:
        assert run.await_termination(600)
    return {run.name: run for run in runs}


# -- drawn queries ----------------------------------------------------------------------------


LOW = (
    "(SELECT min(top) - INTERVAL 3 SECONDS FROM (SELECT max(ts) AS top FROM s UNION ALL "
    "SELECT max(ts) FROM t))"
)


def window(length):
    return "[UNBOUNDED]" if length is None else f"[RANGE {length} SECONDS]"


def drawn_query(rng, keys):
    """Return a query over s and t by some keys, and the same as SQL of DuckDB."""
    lengths = {name: rng.choice(LENGTHS) for name in "st"}
    called = {name: rng.choice([name, f"my_{name}"]) for name in "st"}
    s, t = called["s"], called["t"]
    conditions = [f"{s}.{key} = {t}.{key}" for key in keys]
    for name in "st":
        own = rng.choice(["", "", "{}.v > 1", "{}.v IS NULL OR {}.v < 4", "{}.id % 3 = 0"])
        conditions += [f"({own.replace('{}', called[name])})"] if own else []
    residual = rng.choice(["", "{s}.v < {t}.v", "{s}.id % 2 <> {t}.id % 2"])
    conditions += [residual.format(s=s, t=t)] if residual else []
    sides = [f"{name} {window(lengths[name])} {called[name]}" for name in "st"]
    rng.shuffle(sides)
    where = " AND ".join(conditions)
    since = f"greatest({s}.ts, {t}.ts)"
    until = [
        f"{called[name]}.ts + INTERVAL {length} SECONDS"
        for name, length in lengths.items()
        if length is not None
    ]
    ends = f"least({', '.join(until)})" if until else "TIMESTAMPTZ '2100-01-01'"
    joined = f"FROM s AS {s} JOIN t AS {t} ON {where} AND {since} <= {ends}"
    if rng.random() < 0.4:
        text = (
            f"SELECT {s}.k % 3 AS g, count(*) AS n, sum({t}.v) AS total, window.end AS till "
            f"FROM {', '.join(sides)} WHERE {where} GROUP BY {s}.k % 3"
        )
        values = f"{s}.k % 3 AS g, {t}.v AS v, true AS x"
        rows = f"SELECT {values}, {since} AS since, {ends} AS until {joined}"
        return text, changes(rows, LOW, "count(x) AS n, sum(v) AS total")
    columns = rng.choice([f"{s}.id, {t}.id AS other", f"{t}.v, {s}.j", f"{s}.v + {t}.v AS both"])
    return f"SELECT {columns} FROM {', '.join(sides)} WHERE {where}", f"SELECT {columns} {joined}"


@pytest.mark.large("starts up to four queries in two lives for each seed")
@pytest.mark.parametrize("seed", range(2 if examples.are_few() else 6))
def test_each_query_has_the_rows_that_duckdb_finds(spark, folder, tmp_path, seed):
    rng = random.Random(seed)
    keys = rng.choice([("k",), ("j",), ("k", "j")])
    drawn = {f"q{at}": drawn_query(rng, keys) for at in range(rng.choice([2, 3, 4]))}
    engine = engine_of(spark, folder, {name: text for name, (text, _) in drawn.items()})
    where = {"path": str(tmp_path / "out"), "checkpoint": str(tmp_path / "ckpt")}
    runs = finish(engine.start_all("parquet", trigger="available_now", shared="all", **where))
    assert all(isinstance(each, SharedQueryRun) for each in runs.values())
    wanted = answers({name: sql for name, (_, sql) in drawn.items()})
    assert {name: written(tmp_path / "out", name) for name in drawn} == wanted, drawn
    # The last batch runs again, as if the process had died after the rows were written.
    (shared,) = (tmp_path / "ckpt" / "_shared").iterdir()
    commits = shared / "spark" / "commits"
    (commits / str(N_BATCHES - 1)).unlink()
    again = engine_of(spark, folder, {name: text for name, (text, _) in drawn.items()})
    runs = finish(again.start_all("parquet", trigger="available_now", shared="all", **where))
    assert [each.batch_id for each in runs["q0"].records] == [N_BATCHES - 1]
    assert {name: written(tmp_path / "out", name) for name in drawn} == wanted, drawn


# -- who shares what --------------------------------------------------------------------------


PAIRS = "SELECT s.id, t.id AS other FROM s [RANGE 7 SECONDS], t [RANGE 3 SECONDS] WHERE s.k = t.k"
NEAR = "SELECT b.id FROM t [RANGE 1 SECOND] b, s [NOW] a WHERE b.k = a.k AND a.v > 2 AND a.v < b.v"
SUMS = (
    "SELECT s.k % 3 AS g, count(*) AS n FROM s [RANGE 2 SECONDS], t [RANGE 1 SECOND] "
    "WHERE s.k = t.k GROUP BY s.k % 3"
)


@pytest.mark.large("starts eight queries")
def test_it_is_told_who_shares_what_and_why_others_do_not(spark, folder, tmp_path):
    queries = {
        "pairs": PAIRS,
        "near": NEAR,
        "sums": SUMS,
        "by j": "SELECT s.id FROM s [NOW], t [NOW] WHERE s.j = t.j",
        "rows": "SELECT s.id FROM s [ROWS 3], t [NOW] WHERE s.k = t.k",
        "left": "SELECT s.id FROM s [NOW] LEFT JOIN t [NOW] ON s.k = t.k",
        "three": "SELECT s.id FROM s [NOW], t [NOW], u [NOW] WHERE s.k = t.k AND t.k = u.k",
    }
    engine = engine_of(spark, folder, queries)
    engine.query("SELECT t.v FROM s [NOW], t [NOW] WHERE s.k = t.k", name="own", buckets=3)
    where = {"path": str(tmp_path / "out"), "checkpoint": str(tmp_path / "ckpt")}
    runs = finish(engine.start_all("parquet", trigger="available_now", shared="all", **where))
    assert {n for n, each in runs.items() if isinstance(each, SharedQueryRun)} == {
        *("pairs", "near", "sums")
    }
    said = told(runs["near"])
    assert "'near' runs together with 2 others over s and t" in said
    assert (
        "near, pairs, sums share the exchange and the windows s [RANGE 7 SECONDS], "
        "t [RANGE 3 SECONDS]"
    ) in said
    assert "queries that share the join" in said
    assert "s [NOW], t [RANGE 1 SECOND]" in said
    assert "s: v > 2" in said
    assert "pipelines of pairs" in said
    assert "as the others" not in said.partition("pipelines of near")[2]
    reasons = {
        "by j": "no other of its options and trigger joins the same streams by the same keys",
        "rows": "its windows count rows",
        "left": "rows without a partner are its own: it is a LEFT join",
        "own": "no other of its options and trigger joins the same streams by the same keys",
    }
    for name, why in reasons.items():
        assert isinstance(runs[name], Run)
        assert f"it runs by itself: {why}" in told(runs[name]), name
    assert "runs by itself" not in told(runs["three"]), "no other reads these streams"


@pytest.mark.large("starts queries with three kinds of sinks")
def test_each_query_has_a_sink_of_its_own(spark, folder, tmp_path):
    engine = engine_of(spark, folder, {"pairs": PAIRS, "near": NEAR, "sums": SUMS})
    got = []
    sinks = {
        "pairs": ("parquet", str(tmp_path / "out" / "pairs")),
        "near": ("memory", None),
        "sums": (lambda df, _: got.append(df.toArrow()), None),
    }
    starts = [
        Start(query, *sinks[name], trigger="available_now")
        for name, query in engine.queries.items()
    ]
    groups = []
    runs = finish(start_together(starts, groups, shared="all"))
    assert len(groups) == 1
    alone = finish(
        engine_of(spark, folder, {"pairs": PAIRS, "near": NEAR, "sums": SUMS}).start_all(
            trigger="available_now", shared=False
        )
    )
    assert written(tmp_path / "out", "pairs") == bag(alone["pairs"].to_arrow())
    assert bag(runs["near"].to_arrow()) == bag(alone["near"].to_arrow())
    assert bag(pa.concat_tables(got)) == bag(alone["sums"].to_arrow())
    kept = {name: sum(each.n_kept for each in run.records) for name, run in runs.items()}
    assert kept == {name: run.to_arrow().num_rows for name, run in alone.items()}


@pytest.mark.large("starts queries three times")
def test_a_query_leaves_and_the_others_go_on(spark, folder, tmp_path):
    slow = tmp_path / "in"

    def arrive(*numbers):
        for number in numbers:
            for name in "st":
                write_batch(slow, name, number, rows_of(name, number))

    arrive(0, 1)
    where = {"path": str(tmp_path / "out"), "checkpoint": str(tmp_path / "ckpt")}
    queries = {"far": PAIRS, "near": NEAR, "sums": SUMS}
    stream = {name: stream_of(spark, slow, name, schema=SCHEMA) for name in "st"}

    def engine(names):
        made = el.Engine(spark)
        for name, df in stream.items():
            made.stream(name, df, time="ts", lateness="3 seconds")
        for name in names:
            made.query(queries[name], name=name)
        return made

    started = engine(queries).start_all("parquet", shared="all", **where)
    runs = {each.name: each for each in started}
    runs["near"].process_all_available()
    runs["far"].stop()
    arrive(*range(2, N_BATCHES - 1))
    runs["near"].process_all_available()
    assert not runs["far"].isActive
    assert runs["near"].isActive
    assert "far left; the windows stay as they are" in told(runs["near"])
    for each in started:
        each.stop()
    left = written(tmp_path / "out", "far")
    # The others go on from the common checkpoint without it; it cannot.
    arrive(N_BATCHES - 1)
    finish(
        engine(["near", "sums"]).start_all(
            "parquet", trigger="available_now", shared="all", **where
        )
    )
    with pytest.raises(StateError, match="it was stopped after batch"):
        engine(queries).start_all("parquet", trigger="available_now", shared="all", **where)
    assert written(tmp_path / "out", "far") == left
    apart = engine_of(spark, folder, {"near": NEAR, "sums": SUMS})
    alone = finish(apart.start_all(trigger="available_now", shared=False))
    for name, run in alone.items():
        assert written(tmp_path / "out", name) == bag(run.to_arrow()), name


@pytest.mark.large("starts queries over three streams twice")
def test_a_plan_of_one_query_is_pinned_and_that_of_the_other_adapts(spark, folder, tmp_path):
    queries = {
        name: f"SELECT s.id, t.id AS b, u.id AS c FROM s [RANGE {n} SECONDS], t [NOW], u [NOW] "
        "WHERE s.k = t.k AND t.k = u.k"
        for name, n in {"one": 3, "two": 5}.items()
    }
    where = {"path": str(tmp_path / "out"), "checkpoint": str(tmp_path / "ckpt")}
    runs = finish(
        engine_of(spark, folder, queries).start_all(
            "parquet", trigger="available_now", shared="all", **where
        )
    )
    one, two = runs["one"], runs["two"]
    assert "pipeline s of one" in one.plan()
    assert "pipeline s of two" not in one.plan()
    assert "pipeline s of two" in two.plan()
    one.pin({"pipeline s of one": ["u", "t"]})
    two.pin(["u", "t"], component="pipeline s")
    two.adapt("pipeline s")
    with pytest.raises(PlanError, match="pipeline s of two"):
        one.pin({"pipeline s of two": ["u", "t"]})
    shown = told(one)
    assert "pinned" in shown
    again = engine_of(spark, folder, queries)
    runs = finish(again.start_all("parquet", trigger="available_now", shared="all", **where))
    assert runs["one"].plan()["pipeline s of one"] == ["u", "t"]
    wanted = answers(
        {
            name: "SELECT s.id, t.id AS b, u.id AS c FROM s JOIN t ON s.k = t.k JOIN u ON "
            "t.k = u.k WHERE greatest(s.ts, t.ts, u.ts) <= "
            f"least(s.ts + INTERVAL {n} SECONDS, t.ts, u.ts)"
            for name, n in {"one": 3, "two": 5}.items()
        }
    )
    assert {name: written(tmp_path / "out", name) for name in queries} == wanted


@pytest.mark.large("starts three queries")
def test_conditions_on_results_and_aggregates_share_when_asked(spark, folder):
    """Spark would take the results of all queries, which takes longer than sharing saves."""
    queries = {"pairs": PAIRS, "near": NEAR, "odd": f"{NEAR} AND (a.v + b.v) % 2 = 1", "sums": SUMS}
    engine = engine_of(spark, folder, queries)
    runs = {run.name: run for run in engine.start_all(trigger="available_now")}
    reasons = {
        "sums": "it aggregates joined rows",
        "odd": "Spark evaluates its conditions on joined rows",
    }
    for name, reason in reasons.items():
        said = f"it runs by itself: {reason}, which takes longer shared; shared='all' asks for it"
        assert said in told(runs[name])
    assert "near, pairs share the exchange" in told(runs["near"])
    finish(runs.values())
    with pytest.raises(OptionError, match="option 'shared' is True, False or 'all', got 'none'"):
        engine.start_all(shared="none")
