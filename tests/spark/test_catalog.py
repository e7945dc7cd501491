"""Names that are dropped and replaced, such as by a cell of a notebook that runs twice."""

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import eddyline as el
from eddyline.errors import OptionError, QueryError

pytestmark = pytest.mark.spark


@pytest.fixture
def stream(spark, tmp_path):
    frame = spark.range(60).selectExpr("id", "CAST(id % 6 AS INT) AS a")
    frame.write.parquet(str(tmp_path / "in"))
    return spark.readStream.schema(frame.schema).parquet(str(tmp_path / "in"))


def odd(a):
    return pc.equal(pc.bit_wise_and(a, 1), 1)


def cell(engine, stream, **how):
    """Make what a cell of a notebook makes."""
    engine.stream("s", stream, **how)
    engine.table("t", engine.spark.range(3), **how)
    engine.function("odd", odd, reads=["a"], **how)
    few = engine.query("SELECT * FROM s WHERE odd(a)", name="few", **how)
    engine.stream("odds", few, **how)
    last = engine.query("SELECT id FROM odds WHERE a > 3", **how)
    rules = el.RuleSet({"five": "a = 5"})
    return last, engine.rules("rules", rules, stream="s", **how)


def test_a_cell_that_runs_twice_replaces_what_it_made(spark, stream):
    engine = el.Engine(spark)
    cell(engine, stream)
    names = list(engine.queries)
    with pytest.raises(QueryError, match=r"stream 's' exists already.*replace=True"):
        cell(engine, stream)
    query, _ = cell(engine, stream, replace=True)
    assert list(engine.queries) == names
    run = query.start("memory", availableNow=True)
    run.awaitTermination()
    assert sorted(run.to_arrow()["id"].to_pylist()) == list(range(5, 60, 6))


def test_what_is_dropped_frees_its_name(spark, stream):
    engine = el.Engine(spark)
    cell(engine, stream)
    for name in ("S", "t", "ODD", "few", "odds", "rules"):
        engine.drop(name)
    assert len(engine.queries) == 1
    assert not engine.relations
    assert not engine.results
    assert not engine.functions
    with pytest.raises(QueryError, match="unknown name 'few'"):
        engine.drop("few")
    engine.table("s", spark.range(3))


def test_what_a_running_query_uses_stays_and_the_block_ends_the_query(spark, stream):
    with el.Engine(spark) as engine:
        query, rules = cell(engine, stream)
        runs = [query.start("memory"), rules.start("memory")]
        for name in ("s", "odd", "odds", query.name, "rules"):
            with pytest.raises(QueryError, match=f"{name!r} .*runs; stop that run first"):
                engine.drop(name)
        with pytest.raises(QueryError, match=r"stream 's' is used by query"):
            cell(engine, stream, replace=True)
        engine.drop("t")  # nothing that runs reads it
    assert not any(run.isActive for run in runs)
    assert spark.range(2).count() == 2
    engine.drop("s")


def test_the_block_ends_queries_that_run_together(spark, stream):
    with el.Engine(spark) as engine:
        engine.stream("s", stream)
        for at in range(2):
            engine.query(f"SELECT id FROM s WHERE a = {at}", name=f"q{at}")
        runs = engine.start_all("memory")
        with pytest.raises(QueryError, match="query 'q0' runs; stop that run first"):
            engine.query("SELECT id FROM s", name="q0", replace=True)
    assert not any(run.isActive for run in runs)


@pytest.mark.parametrize("name", ["é" * 101, "a/" * 60, "\ud800"])
def test_a_name_that_no_folder_can_have_is_refused(spark, stream, name):
    engine = el.Engine(spark)
    engine.stream("s", stream)
    rules = el.RuleSet({"five": "a = 5"}, name=name)
    pair = {"x": stream, "y": stream}
    for call in (
        lambda: engine.query("SELECT * FROM s", name=name),
        lambda: engine.rules(name, rules, stream="s"),
        lambda: engine.stream(name, stream),
        lambda: engine.table(name, spark.range(3)),
        lambda: el.window_join(pair, on="x.a = y.a", time={"x": "id"}, name=name),
        lambda: rules.start(stream),
    ):
        with pytest.raises(OptionError, match=r"becomes the name of a folder"):
            call()
    assert not engine.queries
    assert list(engine.relations) == ["s"]


@pytest.mark.large("runs a query for each name")
def test_folders_are_called_as_their_queries(spark, stream, tmp_path):
    engine = el.Engine(spark)
    engine.stream("s", stream)
    names = ["slow pages, 2", "größe 50%", "a:b", "...", "-rf", "a"]
    paths = {"../../esc": "..%2F..%2Fesc", "..": "%2E%2E", ".": "%2E", "a/b": "a%2Fb"}
    paths |= {"a%2Fb": "a%252Fb", "a\\b\n": "a%5Cb%0A"}
    folders = [*names, *paths.values()]
    for name in (*names, *paths):
        engine.query("SELECT id FROM s WHERE a = 5", name=name)
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    where = {"path": out, "checkpoint": checkpoint, "trigger": "once"}
    for run in engine.start_all("parquet", shared=False, **where):
        run.await_termination()
    assert sorted(folder.name for folder in out.iterdir()) == sorted(folders)
    assert sorted(folder.name for folder in checkpoint.iterdir()) == sorted(folders)
    for folder in folders:
        rows = pq.read_table(out / folder)["id"].to_pylist()
        assert sorted(rows) == list(range(5, 60, 6))
    assert {entry.name for entry in tmp_path.iterdir()} == {"in", "out", "checkpoint"}
