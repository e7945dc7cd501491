"""Queries over one stream that run together: the same rows for each as by itself."""

from __future__ import annotations

import json
import random
import time

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import eddyline as el
from eddyline.errors import PredicateError, QueryError, StateError
from eddyline.report.stored import read_run
from eddyline.runtime.checkpoint import find_runs
from eddyline.spark.run.run import Run
from eddyline.spark.run.running_query import explanations, stop_runs
from eddyline.spark.shared.group import SharedQueryRun, Start, start_together
from eddyline.spark.shared.scans import SharedFilters
from tests import examples
from tests.spark.facts import facts_of
from tests.spark.parquet_files import schema_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

N_FILES, N_ROWS = 4, 2_000


@pytest.fixture(scope="module")
def folder(spark, tmp_path_factory):
    """Four files, with NULLs, NaN and odd texts."""
    path = tmp_path_factory.mktemp("shared") / "in"
    path.mkdir()
    rng = random.Random(4)
    for number in range(N_FILES):
        ids = list(range(number * N_ROWS, (number + 1) * N_ROWS))
        table = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "a": pa.array([rng.choice([None, *range(20)]) for _ in ids], pa.int32()),
                "b": pa.array([rng.choice([None, -1.5, 0.0, 0.5, 2.0, 9.25]) for _ in ids]),
                "s": pa.array([rng.choice([None, "", "x", "xy", "Xyz", "äß", "10%"]) for _ in ids]),
            }
        )
        pq.write_table(table, path / f"part-{number}.parquet")
        time.sleep(0.01)  # files are read in the order of their times
    return str(path)


def engine_of(spark, folder):
    made = el.Engine(spark)
    schema = schema_of(folder)
    source = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(folder)
    made.stream("s", source)
    made.function("even", lambda a: pc.equal(pc.bit_wise_and(a, 1), 0), reads=["a"])
    return made


@pytest.fixture
def engine(spark, folder):
    return engine_of(spark, folder)


QUERIES = {
    "low": "SELECT * FROM s WHERE a < 5 AND s LIKE 'x%'",
    "twice": "SELECT id, a * 2 AS twice, s AS t, id AS i FROM s WHERE b > 0 AND NOT a IN (3, 4)",
    "even": "SELECT id FROM s WHERE even(a) AND s IS NOT NULL",
    "quotient": "SELECT id, 100 / a AS q, upper(s) AS u FROM s WHERE a <> 0 OR a IS NULL",
    "none": "SELECT id, b FROM s WHERE a > 100",
}
"""None of which can raise; of ``quotient`` only rows of its own may be projected."""


def finish(runs):
    for run in runs:
        assert run.await_termination(300)
    return {run.name: run for run in runs}


def rows_of(table):
    return sorted(map(repr, zip(*(column.to_pylist() for column in table.columns), strict=True)))


def with_queries(engine, queries=QUERIES):
    for name, text in queries.items():
        engine.query(text, name=name)
    return engine


def other_engine(engine, queries=QUERIES):
    made = el.Engine(engine.spark)
    made.relations, made.functions = engine.relations, engine.functions
    return with_queries(made, queries)


@pytest.fixture(scope="module")
def alone(spark, folder):
    """The runs of the queries by themselves."""
    made = with_queries(engine_of(spark, folder))
    runs = finish(made.start_all(trigger="available_now", shared=False))
    assert all(isinstance(each, Run) for each in runs.values())
    return runs


@pytest.mark.large
def test_memory_sinks_have_the_rows_of_unshared_queries(engine, alone):
    shared = finish(with_queries(engine).start_all(trigger="available_now"))
    assert all(isinstance(each, SharedQueryRun) for each in shared.values())
    assert len({each.streaming_query.id for each in shared.values()}) == 1
    for name in QUERIES:
        ours, theirs = shared[name].to_arrow(), alone[name].to_arrow()
        assert ours.schema == theirs.schema, name
        assert rows_of(ours) == rows_of(theirs), name
        kept = [record.n_kept for record in shared[name].records]
        assert kept == [record.n_kept for record in alone[name].records]
        assert [record.n_rows for record in shared[name].records] == [N_ROWS] * N_FILES
    assert shared["low"].to_arrow().num_rows > 0
    assert shared["low"].to_df().count() == shared["low"].to_arrow().num_rows
    assert not shared["low"].isActive
    assert "'low' runs together with 4 others" in shared["low"].explain().partition("5 rules")[0]
    told = list(explanations(shared.values()))
    assert [("attributes" in each, "Explained with" in each) for each in told] == [
        (True, False),
        *[(False, True)] * 4,
    ]
    assert shared["low"].journal == shared["even"].journal


@pytest.mark.large
def test_a_batch_may_have_a_row_of_no_query_and_a_column_that_is_never_null(engine):
    engine.query("SELECT 'few' AS kind, coalesce(a, 0) AS a FROM s WHERE id < 2", name="few")
    engine.query("SELECT id FROM s WHERE id < 3", name="first")
    runs = finish(engine.start_all("memory", trigger="available_now"))
    assert sorted(runs["first"].to_arrow()["id"].to_pylist()) == [0, 1, 2]
    rows = runs["few"].to_arrow()
    assert rows["kind"].to_pylist() == ["few", "few"]
    assert [field.nullable for field in rows.schema] == [False, False]


@pytest.mark.large
def test_functions_as_sinks_have_the_rows_of_unshared_queries(engine, alone):
    taken = {}

    def take(df, batch_id):
        for row in df.collect():
            taken.setdefault(tuple(df.columns), []).append(tuple(row))

    finish(with_queries(engine).start_all(take, trigger="available_now"))
    assert sorted(map(repr, taken["id",])) == rows_of(alone["even"].to_arrow())


def drawn_condition(rng, depth=0):
    """Return a condition that means the same in Spark and DuckDB and never raises."""
    if depth < 3 and rng.random() < 0.6:
        joint = rng.choice([" AND ", " OR "])
        parts = [drawn_condition(rng, depth + 1) for _ in range(rng.randint(2, 3))]
        return f"({joint.join(parts)})"
    if rng.random() < 0.15:
        return f"NOT ({drawn_condition(rng, depth + 1)})"
    return rng.choice(
        [
            f"a {rng.choice(['<', '<=', '=', '<>', '>'])} {rng.randint(-1, 21)}",
            f"a BETWEEN {rng.randint(0, 9)} AND {rng.randint(8, 20)}",
            f"a IN ({rng.randint(0, 20)}, {rng.randint(0, 20)})",
            f"b {rng.choice(['<', '>='])} {rng.choice(['-1.0', '0.0', '0.5', '5.0'])}",
            f"{rng.choice('abs')} IS {rng.choice(['', 'NOT '])}NULL",
            f"s LIKE '{rng.choice(['x%', '%y', '%yz', '_', 'X__', '%ä%'])}'",
            f"s = '{rng.choice(['', 'x', 'äß', 'no'])}'",
            "a = id % 20",
        ]
    )


@pytest.mark.large
@pytest.mark.parametrize("seed", [1] if examples.are_few() else [1, 2])
def test_drawn_queries_against_duckdb(engine, folder, seed):
    rng = random.Random(seed)
    conditions = {f"q{number}": drawn_condition(rng) for number in range(25)}
    texts = {name: f"SELECT id, s FROM s WHERE {each}" for name, each in conditions.items()}
    runs = finish(with_queries(engine, texts).start_all(trigger="available_now"))
    assert sum(isinstance(run, SharedQueryRun) for run in runs.values()) == 25
    with duckdb.connect() as connection:
        for name, condition in conditions.items():
            want = connection.sql(
                f"SELECT id, s FROM read_parquet('{folder}/*.parquet') WHERE {condition}"
            ).to_arrow_table()
            assert rows_of(runs[name].to_arrow()) == rows_of(want), condition


# -- what does not run together -----------------------------------------------------------------


@pytest.mark.large
def test_queries_that_do_not_mean_the_same_run_by_themselves(engine):
    made = {
        "raises": "SELECT id FROM s WHERE a <> 0 AND 10 / a > 2",
        "lots": "SELECT id FROM s WHERE a > 1 AND rand() < 2",
        "drawn": "SELECT id, rand() AS r FROM s WHERE a > 1",
        "odd": "SELECT id FROM s WHERE once(a)",
        "fine": "SELECT id FROM s WHERE a > 1",
        "too": "SELECT id FROM s WHERE a > 2",
    }
    engine.function("once", lambda a: pc.greater(a, 1), reads=["a"], deterministic=False)
    with_queries(engine, made)
    engine.query("SELECT id FROM s WHERE a > 1", name="own", policy="fixed")
    runs = finish(engine.start_all(trigger="available_now"))
    together = {name for name, run in runs.items() if isinstance(run, SharedQueryRun)}
    assert together == {"fine", "too"}
    assert "raise" in SharedFilters.why_not(engine.queries["raises"])
    assert "runs by itself: it has options of its own" in runs["own"].explain()
    assert "rand" in runs["drawn"].explain()
    alike = ("own", "fine", "odd", "lots", "drawn")
    assert len({runs[name].to_arrow().num_rows for name in alike}) == 1
    assert runs["raises"].to_arrow().num_rows > 0


def test_one_query_runs_by_itself(engine):
    engine.query("SELECT id FROM s WHERE a > 1", name="only")
    (run,) = engine.start_all(trigger="available_now")
    assert isinstance(run, Run)
    finish([run])
    assert "by itself" not in run.explain()


@pytest.mark.large
def test_an_error_counts_only_on_rows_on_which_its_query_hangs(engine):
    def picky(a):
        if pc.any(pc.equal(a, 7)).as_py():
            msg = "seven"
            raise ValueError(msg)
        return pc.greater(a, 3)

    engine.function("picky", picky, reads=["a"])
    with_queries(
        engine,
        {
            "guarded": "SELECT id FROM s WHERE picky(a) AND a <> 7",
            "other": "SELECT id FROM s WHERE a = 7",
        },
    )
    runs = finish(engine.start_all(trigger="available_now"))
    assert runs["guarded"].to_arrow().num_rows > 0
    made = other_engine(
        engine, {"hangs": "SELECT id FROM s WHERE picky(a)", "more": "SELECT id FROM s"}
    )
    failing = made.start_all(trigger="available_now")
    assert all(isinstance(run, SharedQueryRun) for run in failing)
    for run in failing:
        with pytest.raises(PredicateError, match="seven"):
            run.await_termination(120)
        assert not run.isActive


@pytest.mark.large
def test_an_output_column_that_may_raise_is_for_the_rows_of_its_query(spark, tmp_path):
    spark.createDataFrame([(1, 0), (4, 2)], "a int, b int").write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema("a int, b int").parquet(str(tmp_path / "in"))
    engine = el.Engine(spark)
    engine.stream("events", stream)
    engine.query("SELECT `a` / b AS q FROM events WHERE b <> 0", name="ratios")
    engine.query("SELECT a FROM events WHERE b = 0", name="zeros")
    runs = {run.name: run for run in engine.start_all("memory", trigger="available_now")}
    for run in runs.values():
        run.await_termination(60)
    assert runs["ratios"].to_arrow().column("q").to_pylist() == [2.0]
    assert runs["zeros"].to_arrow().column("a").to_pylist() == [1]


@pytest.mark.large
def test_a_dear_predicate_is_asked_for_the_rows_that_a_cheap_one_leaves(engine):
    def dear(ids):
        return [sum(range(300)) > 0 and value is not None for value in ids.to_pylist()]

    engine.function("dear", dear, reads=["id"])
    engine.function("cheap", lambda a: pc.equal(a, 19), reads=["a"])
    engine.query("SELECT id FROM s WHERE dear(id) AND cheap(a)", name="both")
    engine.query("SELECT id FROM s WHERE a < 5", name="beside")
    runs = finish(engine.start_all(trigger="available_now"))
    view = facts_of(runs["both"].shared.run)
    n_asked = {each.text: each.n_rows for each in view.tests}
    assert n_asked["cheap(a)"] == N_FILES * N_ROWS
    # All rows of the first file, in the worst case; later the rows that are left, and a sample.
    assert n_asked["dear(id)"] <= N_ROWS + (N_FILES - 1) * (0.1 * N_ROWS + 100)
    assert view.orders[0].tests == ("cheap(a)", "dear(id)")
    text = runs["both"].explain()
    assert "cheap(a), then dear(id)" in text
    orders = [each for each in runs["beside"].journal if each["event"] == "order"]
    assert orders[0]["after"] == ["cheap(a)", "dear(id)"]
    assert orders[0]["evidence"]["rule"] == "both"


def test_names_that_run_are_taken(engine):
    with_queries(engine)
    runs = engine.start_all(trigger="1 minute")
    try:
        with pytest.raises(QueryError, match="'low' is running already"):
            engine.queries["low"].start()
        with pytest.raises(QueryError, match="is running already"):
            engine.start_all()
    finally:
        for run in runs:
            run.stop()
    assert not any(run.isActive for run in runs)


# -- stopping -----------------------------------------------------------------------------------


@pytest.mark.large
def test_a_stopped_query_leaves_at_the_next_batch(engine):
    runs = {}
    seen = {}

    def sink_of(name):
        def take(df, batch_id):
            seen.setdefault(name, []).append(batch_id)
            if name == "low" and batch_id == 1:
                runs["low"].stop()

        return take

    with_queries(engine)
    starts = [
        Start(query, sink_of(name), trigger="500 milliseconds")
        for name, query in engine.queries.items()
    ]
    started = start_together(starts, [])
    runs.update({run.name: run for run in started})
    deadline = time.monotonic() + 120
    while len(seen.get("even", [])) < N_FILES and time.monotonic() < deadline:
        time.sleep(0.1)
    assert seen["even"] == list(range(N_FILES))
    assert seen["low"] == [0, 1]
    assert not runs["low"].isActive
    assert runs["low"].await_termination(5)
    assert [record.batch_id for record in runs["low"].records] == [0, 1]
    assert "was stopped; 4 others run on" in runs["low"].explain()
    assert "low" not in runs["even"].shared.scan.rules.names
    assert runs["even"].isActive
    assert not runs["even"].await_termination(0.2)
    stop_runs(started)
    assert not runs["even"].streaming_query.isActive


# -- checkpoints --------------------------------------------------------------------------------


def forget_last_commit(checkpoint):
    """Make it look as if the process had died after the rows were written."""
    commits = checkpoint / "spark" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for path in commits.glob(f"*{last}*"):
        path.unlink()
    return last


@pytest.mark.large
def test_restart_from_a_checkpoint(engine, alone, tmp_path):
    paths = {"path": str(tmp_path / "out"), "checkpoint": str(tmp_path / "ckpt")}
    finish(with_queries(engine).start_all("parquet", trigger="available_now", **paths))
    written = {name: pq.read_table(tmp_path / "out" / name) for name in QUERIES}
    before = {name: rows_of(table) for name, table in written.items()}
    for name in QUERIES:
        theirs = alone[name].to_arrow()
        assert written[name].schema.names == theirs.schema.names
        assert before[name] == rows_of(theirs), name
    folder = tmp_path / "ckpt" / "_shared" / "s"
    assert set(json.loads((folder / "eddyline" / "queries.json").read_text())) == set(QUERIES)
    assert find_runs(tmp_path / "ckpt") == [folder]
    kept = {name: sum(each.kept_by[name] for each in read_run(folder).batches) for name in before}
    assert kept == {name: len(rows) for name, rows in before.items()}
    last = forget_last_commit(folder)
    runs = finish(other_engine(engine).start_all("parquet", trigger="available_now", **paths))
    assert [record.batch_id for record in runs["low"].records] == [last]
    assert {n: rows_of(pq.read_table(tmp_path / "out" / n)) for n in QUERIES} == before
    assert any(entry["event"] == "restore" for entry in runs["low"].journal)

    # One that was not there reads the stream from its start, by itself.
    more = other_engine(engine, {**QUERIES, "late": "SELECT id FROM s WHERE a = 1"})
    runs = finish(more.start_all("parquet", trigger="available_now", **paths))
    assert isinstance(runs["late"], Run)
    assert sum(record.n_rows for record in runs["late"].records) == N_FILES * N_ROWS
    assert "before it was there" in runs["late"].explain()
    assert runs["low"].records == []

    # Another query of one of the names cannot go on from it.
    other = other_engine(engine, {**QUERIES, "low": "SELECT id FROM s WHERE a = 1"})
    with pytest.raises(StateError, match=r"query 'low' \(SELECT .* this one is SELECT id"):
        other.start_all("parquet", trigger="available_now", **paths)

    # One alone still goes on from the common checkpoint, and by itself it cannot.
    one = other_engine(engine, {"low": QUERIES["low"]})
    with pytest.raises(StateError, match="'low' ran together with others"):
        one.start_all("parquet", trigger="available_now", shared=False, **paths)
    assert isinstance(one.start_all("parquet", trigger="available_now", **paths)[0], SharedQueryRun)


@pytest.mark.large
def test_a_checkpoint_of_unshared_runs_goes_on_unshared(engine, tmp_path):
    paths = {"path": str(tmp_path / "out"), "checkpoint": str(tmp_path / "ckpt")}
    first = with_queries(engine).start_all(
        "parquet", trigger="available_now", shared=False, **paths
    )
    finish(first)
    runs = finish(other_engine(engine).start_all("parquet", trigger="available_now", **paths))
    assert all(isinstance(run, Run) for run in runs.values())
    assert all(run.records == [] for run in runs.values())
    assert "ran by itself under this checkpoint" in runs["low"].explain()


@pytest.mark.large
def test_a_stopped_query_does_not_go_on_with_rows_missing(engine, tmp_path):
    paths = {"path": str(tmp_path / "out"), "checkpoint": str(tmp_path / "ckpt")}
    made = with_queries(engine)
    runs = {run.name: run for run in made.start_all("parquet", **paths, trigger="1 second")}
    deadline = time.monotonic() + 60
    while not runs["low"].records and time.monotonic() < deadline:
        time.sleep(0.05)
    runs["low"].stop()
    runs["even"].process_all_available()
    made.stop_all()
    assert not any(run.isActive for run in runs.values())
    listed = json.loads((tmp_path / "ckpt/_shared/s/eddyline/queries.json").read_text())
    until = {name: each["until"] for name, each in listed.items()}
    assert until == dict.fromkeys(QUERIES) | {"low": until["low"]}
    assert 0 <= until["low"] < N_FILES - 1
    with pytest.raises(StateError, match="it was stopped after batch"):
        other_engine(engine).start_all("parquet", trigger="available_now", **paths)


@pytest.mark.large
def test_queries_that_were_stopped_together_go_on_together(engine, alone, tmp_path):
    paths = {"path": str(tmp_path / "out"), "checkpoint": str(tmp_path / "ckpt")}
    made = with_queries(engine)
    runs = made.start_all("parquet", **paths, trigger="1 second")
    deadline = time.monotonic() + 60
    while not runs[0].records and time.monotonic() < deadline:
        time.sleep(0.05)
    made.stop_all()
    n_before = len(runs[0].records)
    assert 0 < n_before < N_FILES
    finish(other_engine(engine).start_all("parquet", trigger="available_now", **paths))
    for name, run in alone.items():
        assert rows_of(pq.read_table(tmp_path / "out" / name)) == rows_of(run.to_arrow())
