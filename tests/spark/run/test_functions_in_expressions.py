"""Functions of the user inside larger conditions of WHERE, and as output columns."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import eddyline as el
from eddyline.errors import NotSupportedError, PredicateError, QueryError, StateError
from tests.spark.parquet_files import schema_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

N_ROWS = 60
KS = [None if row % 7 == 0 else row % 10 for row in range(N_ROWS)]
NAMES = [None if row % 11 == 0 else f"n{row % 4}" for row in range(N_ROWS)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("calls") / "in"
    path.mkdir()
    for number, part in enumerate((slice(0, 20), slice(20, 21), slice(21, N_ROWS))):
        ids = list(range(N_ROWS))[part]
        table = pa.table({"id": ids, "k": pa.array(KS[part], pa.int32()), "name": NAMES[part]})
        pq.write_table(table, path / f"part-{number}.parquet")
    return str(path)


def raises_at_nine(k):
    if 9 in k.to_pylist():
        raise KeyError("nine")
    return pc.greater(k, 3)


@pytest.fixture
def engine(spark, folder):
    return engine_over(spark, folder, n_files=1)


def engine_over(spark, folder, n_files):
    """Return an engine with a stream that has so many files in each batch."""
    made = el.Engine(spark)
    reader = spark.readStream.schema(schema_of(folder)).option("maxFilesPerTrigger", n_files)
    made.stream("s", reader.parquet(folder))
    made.function("good", lambda name: pc.equal(name, "n1"), reads=["name"])
    made.function("odd", lambda k: pc.equal(pc.bit_wise_and(k, 1), 1), reads=["k"])
    made.function("bad", raises_at_nine, reads=["k"])
    return made


def rows(run):
    assert run.await_termination(200)
    return sorted((tuple(row) for row in run.to_df().collect()), key=str)


def as_spark_says(spark, folder, text):
    """Return the rows of a query with SQL in the place of the functions."""
    for call, sql in (
        ("good(name)", "(name = 'n1')"),
        ("good(upper(name))", "(upper(name) = 'n1')"),
        ("odd(k)", "((k & 1) = 1)"),
        ("good()", "(name = 'n1')"),
    ):
        text = text.replace(call, sql)
    spark.read.parquet(folder).createOrReplaceTempView("s_calls")
    found = spark.sql(text.replace("FROM s", "FROM s_calls AS s"))
    return sorted((tuple(row) for row in found.collect()), key=str)


@pytest.mark.large
@pytest.mark.parametrize(
    "condition",
    [
        "good(name) OR k > 7",
        "(good(name) OR k > 7) AND id % 2 = 0 AND NOT odd(k)",
        "NOT (good(name) AND k > 3)",
        "good(name) IS NULL",
        "(odd(k) OR good(s.name)) IS NOT TRUE",
        "good() AND (odd(k) OR name IS NULL)",
        "good(upper(name)) OR odd(k)",
        "(good(name) OR k > 3) AND k < 0",
    ],
)
def test_conditions(spark, folder, condition):
    query = engine_over(spark, folder, n_files=3).query(f"SELECT id, k FROM s WHERE {condition}")
    wanted = f"SELECT id, k FROM s WHERE {condition}".replace("s.name", "name")
    assert rows(query.start(trigger="available_now")) == as_spark_says(spark, folder, wanted)


def test_output_columns(spark, engine, folder):
    text = "SELECT *, good(name), NOT good(name) AS other, s.k + 1 AS next FROM s WHERE k > 4"
    query = engine.query(text)
    assert list(query.columns) == ["id", "k", "name", "good(name)", "other", "next"]
    assert query.columns["other"] == "boolean"
    assert rows(query.start(trigger="available_now")) == as_spark_says(spark, folder, text)
    assert "__eddyline" not in query.explain()
    assert "NOT good(name) AS other" in query.explain()


@pytest.mark.large
def test_errors_count_on_rows_on_which_the_condition_hangs(engine):
    fine = engine.query("SELECT id FROM s WHERE bad(k) OR k > 8", name="fine")
    assert len(rows(fine.start(trigger="available_now"))) == sum(k in range(4, 10) for k in KS if k)
    said = r"query 'hangs': predicate 'bad' raised KeyError: 'nine' .*on the row .*'k': 9"
    with pytest.raises(PredicateError, match=said):
        engine.query("SELECT id FROM s WHERE bad(k) OR k > 9", name="hangs").start(
            trigger="available_now"
        ).await_termination(200)
    fine = engine.query("SELECT bad(k) AS b FROM s WHERE k < 9", name="fine columns")
    assert len(rows(fine.start(trigger="available_now"))) == sum(k in range(9) for k in KS)
    with pytest.raises(PredicateError, match=r"'nine'.*on the row \{'k': 9\}, which is one of the"):
        engine.query("SELECT bad(k) AS b FROM s", name="columns").start(
            trigger="available_now"
        ).await_termination(200)


@pytest.mark.large
def test_they_run_with_others_where_that_is_the_same(spark, engine, folder):
    texts = {
        "mixed": "SELECT id FROM s WHERE good(name) OR odd(k)",
        "plain": "SELECT id FROM s WHERE k > 3",
        "column": "SELECT id, good(name) AS g FROM s WHERE k > 3",
    }
    for name, text in texts.items():
        engine.query(text, name=name)
    runs = {run.name: run for run in engine.start_all(trigger="available_now")}
    for name, text in texts.items():
        assert rows(runs[name]) == as_spark_says(spark, folder, text)
    assert "runs together with 1 other" in runs["mixed"].explain()
    assert "its output columns call good(name), a Python function" in runs["column"].explain()


@pytest.mark.large
def test_a_restart_goes_on(engine, tmp_path):
    out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")
    query = engine.query("SELECT id FROM s WHERE good(name) OR k > 7", name="mixed")
    for _ in range(2):
        run = query.start("parquet", path=out, checkpoint=checkpoint, trigger="available_now")
        assert run.await_termination(200)
    found = pq.read_table(out).column("id").to_pylist()
    wanted = [
        row for row in range(N_ROWS) if NAMES[row] == "n1" or (KS[row] is not None and KS[row] > 7)
    ]
    assert sorted(found) == wanted
    other = engine.query("SELECT id FROM s WHERE odd(k) OR k > 7", name="mixed", replace=True)
    with pytest.raises(StateError, match="another query"):
        other.start("parquet", path=out, checkpoint=checkpoint, trigger="available_now")


@pytest.mark.large
def test_options_are_those_of_rules(engine):
    query = engine.query("SELECT id FROM s WHERE good(name) OR k > 7", adaptive=False)
    run = query.start(trigger="available_now")
    rows(run)
    assert "adaptation is switched off" in run.explain()


@pytest.mark.large
def test_a_query_over_the_results_of_one(spark, engine, folder):
    engine.stream(
        "picked", engine.query("SELECT id, k, odd(k) AS o FROM s WHERE good(name) OR k > 3")
    )
    query = engine.query("SELECT id FROM picked WHERE o OR bad(k) IS NULL", name="outer")
    wanted = """SELECT id FROM s WHERE (good(name) OR k > 3)
        AND (odd(k) OR k IS NULL)"""
    assert rows(query.start(trigger="available_now")) == as_spark_says(spark, folder, wanted)


def test_what_is_not_supported_says_where(engine):
    engine.stream("t", engine.query("SELECT id, good(name) AS g FROM s"))
    for text, said in (
        ("SELECT id FROM s WHERE CASE WHEN good(name) THEN true END", "larger expression"),
        ("SELECT id FROM s WHERE good(odd(k)) OR k > 3", "as an argument"),
        ("SELECT good(odd(k)) FROM s", "as an argument"),
        ("SELECT good(name, k) FROM s", "takes 1 argument"),
        ("SELECT count(good(name)) FROM s", "count"),
        ("SELECT s.id FROM s, t WHERE s.id = t.id", "'t' cannot be joined: .*have no event time"),
    ):
        with pytest.raises((QueryError, NotSupportedError), match=said):
            engine.query(text)
