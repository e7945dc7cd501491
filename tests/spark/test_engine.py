"""The engine: every sink, restarts, re-run batches, what it refuses."""

from __future__ import annotations

import json
import logging
import threading
import time
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path

import pyarrow.compute as pc
import pytest
from pyspark.logger import PySparkLogger
from pyspark.sql import functions as F

import eddyline as el
from eddyline.errors import (
    EddylineError,
    NotSupportedError,
    OptionError,
    PredicateError,
    QueryError,
    SourceError,
    StateError,
)
from eddyline.report.sections import sections_json
from eddyline.report.series import order_series
from eddyline.report.stored import read_run
from eddyline.spark.run.run import REPORT_WAIT_S
from tests.spark.parquet_files import schema_of

pytestmark = pytest.mark.spark

TEXT = "SELECT id, u * 2 AS twice FROM s WHERE often(u) AND v < 0.9 AND u > 0.2 AND seldom(v)"
SAME = "u < 0.95 AND v < 0.9 AND u > 0.2 AND v < 0.05"


@pytest.fixture(scope="module")
def folder(spark, tmp_path_factory):
    """Six files of 4,000 rows each, some values NULL."""
    path = str(tmp_path_factory.mktemp("engine") / "in")
    frame = (
        spark.range(24_000)
        .withColumn("u", F.when(F.col("id") % 97 != 0, F.rand(5)))
        .withColumn("v", F.rand(6))
    )
    frame.repartition(6).write.parquet(path)
    return path


@pytest.fixture
def engine(spark, folder):
    schema = schema_of(folder)
    made = el.Engine(spark)
    source = spark.readStream.schema(schema).option("maxFilesPerTrigger", 2).parquet(folder)
    made.stream("s", source)
    made.function("often", lambda u: pc.less(u, 0.95))
    made.function("seldom", el.predicate(lambda v: pc.less(v, 0.05), reads=["v"], name="seldom"))
    return made


@cache
def expected(spark, folder):
    return sorted(row["id"] for row in spark.read.parquet(folder).where(SAME).collect())


def finish(run):
    assert run.await_termination(120)
    return run


@pytest.mark.large
def test_what_a_native_order_saves_is_known_where_it_meets_every_row(engine):
    kept = engine.query("SELECT id, u, v FROM s WHERE v < 0.9 AND u < 0.5", name="kept")
    engine.stream("kept", kept)
    query = engine.query("SELECT id FROM kept WHERE u < 0.4 AND v < 0.3 AND seldom(v)", name="few")
    run = finish(query.start(trigger="available_now"))
    kinds = {each.component: each.meets_all for each in run.records[-1].operators}
    assert kinds.pop("native")
    assert set(kinds.values()) == {False}, kinds
    saved_s = order_series("native", run.records).saved_s
    assert saved_s is not None


@pytest.mark.large
def test_memory_sink(spark, engine, folder, tmp_path):
    run = finish(engine.query(TEXT, name="doubled").start(trigger="available_now"))
    assert sorted(run.to_arrow()["id"].to_pylist()) == expected(spark, folder)
    assert run.to_arrow().column_names == ["id", "twice"]
    assert run.to_df().count() == len(expected(spark, folder))
    n_found = spark.sql("SELECT count(*) AS n FROM doubled").first()["n"]
    assert n_found == len(expected(spark, folder))
    assert [record.n_rows for record in run.records] == [8_000] * 3
    assert sum(record.n_kept for record in run.records) == len(expected(spark, folder))
    assert "seldom" in run.explain()
    assert run.explain().splitlines()[1:4] == list(run.run_view().steps)
    assert run.run_view().steps[0].startswith("project s: ")
    assert not run.isActive
    assert run.recentProgress
    page = Path(run.report(tmp_path / "report.html")).read_text("utf-8")
    assert "seldom" in page
    assert "doubled" in page


@pytest.mark.large
def test_parquet_sink_and_restart(spark, engine, folder, tmp_path):
    paths = {"path": str(tmp_path / "out"), "checkpoint": str(tmp_path / "ckpt")}
    query = engine.query(TEXT, name="kept")
    first = finish(query.start("parquet", trigger="available_now", **paths))
    got = spark.read.parquet(paths["path"])
    assert sorted(row["id"] for row in got.collect()) == expected(spark, folder)
    assert first.chain.operators[0].learning["arrow"].loop.order == (1, 0)

    # A crash after the rows were written and before Spark noted it: the batch runs again.
    commits = tmp_path / "ckpt" / "spark" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for path in commits.glob(f"*{last}*"):
        path.unlink()
    as_paths = {name: Path(path) for name, path in paths.items()}
    again = finish(query.start("parquet", trigger="available_now", **as_paths))
    assert [record.batch_id for record in again.records] == [last]
    got = spark.read.parquet(paths["path"])
    assert sorted(row["id"] for row in got.collect()) == expected(spark, folder)
    assert any(entry["event"] == "restore" for entry in again.journal)
    assert again.chain.operators[0].learning["arrow"].loop.order == (1, 0)
    # Counted before, counts once.
    assert again.chain.operators[0].learning["arrow"].loop.totals.n_rows == 0

    lines = (tmp_path / "ckpt" / "eddyline" / "journal.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines] == [e["event"] for e in again.journal]
    assert {"batch_id", "component", "event", "before", "after", "evidence", "at"} == set(
        json.loads(lines[0])
    )
    stored = read_run(tmp_path / "ckpt")
    assert (stored.query, stored.text, stored.status) == ("kept", TEXT, "ended")
    assert stored.steps == again.steps
    assert list(stored.sections) == sections_json(again.describe())
    assert [asdict(each) for each in stored.journal] == again.journal
    assert [each.batch_id for each in stored.batches] == list(range(last + 1))
    assert sum(each.n_rows for each in stored.batches) == 8_000 * 3, (
        "that ran again, and counts once"
    )


@pytest.mark.large
def test_batches_of_another_run_are_not_mixed_in(engine, tmp_path):
    query, path = engine.query(TEXT), str(tmp_path / "out")
    finish(query.start("parquet", path=path, trigger="available_now"))
    with pytest.raises(SourceError, match="batches of another run"):
        query.start("parquet", path=path, trigger="available_now")


@pytest.mark.large
def test_a_checkpoint_of_another_text_is_refused(engine, tmp_path):
    paths = {"path": str(tmp_path / "out"), "checkpoint": str(tmp_path / "ckpt")}
    finish(engine.query(TEXT, name="one").start("parquet", trigger="available_now", **paths))
    assert (tmp_path / "ckpt" / "eddyline" / "journal.jsonl").exists()
    spaced = engine.query(TEXT.replace(" AND ", "\n  AND "), name="spaced")
    assert finish(spaced.start("parquet", trigger="available_now", **paths)).records == []
    other = engine.query(TEXT.replace("0.9 ", "0.8 "), name="two")
    with pytest.raises(StateError, match=r"another query \(SELECT .* v < 0.9 .* this one is SEL"):
        other.start("parquet", trigger="available_now", **paths)
    run = other.start("parquet", trigger="available_now", changed="keep_state", **paths)
    finish(run)
    assert run.records == [], "it goes on where the other one stopped"


@pytest.mark.large
def test_a_checkpoint_of_rules_is_not_one_of_a_query(engine, tmp_path):
    checkpoint = str(tmp_path / "ckpt")
    rules = el.RuleSet({"high": "v > 0.5"})
    finish(rules.start(engine.streams["s"], checkpoint=checkpoint, trigger="available_now"))
    with pytest.raises(StateError, match=r"of another query \(.*rules over stream: matches of"):
        engine.query(TEXT).start(checkpoint=checkpoint, trigger="available_now")
    others = el.RuleSet({"low": "v < 0.5"}, name="others")
    with pytest.raises(StateError, match=r"of another query .*this one is .*rules others over"):
        others.start(engine.streams["s"], checkpoint=checkpoint, trigger="available_now")


def test_names_of_queries_without_one_stay_theirs(spark, engine):
    name = engine.query(TEXT).name
    other = el.Engine(spark)
    other.stream("s", engine.streams["s"])
    first = other.query("SELECT id FROM s WHERE v > 0.5").name
    assert first != name != other.query("SELECT u FROM s").name
    for function in engine.functions.values():
        other.function(function.name, function)
    assert other.query(f"  {TEXT.replace(' WHERE', chr(10) + 'WHERE')} ").name == name
    assert other.query(TEXT).name == f"{name}_2"
    assert other.query(TEXT).name == f"{name}_3"
    spaced = [other.query(f"SELECT id FROM s WHERE 'a b' = 'a{n * ' '}b'").name for n in (1, 2)]
    assert spaced[0] + "_2" != spaced[1], "white space in quotes is no other way to write a text"


def test_callable_sink_gets_each_batch(spark, engine, folder):
    seen = {}

    def take(df, batch_id):
        seen[batch_id] = [row["id"] for row in df.collect()]

    finish(engine.query(TEXT).start(take, trigger="available_now"))
    assert sorted(row for rows in seen.values() for row in rows) == expected(spark, folder)
    assert sorted(seen) == [0, 1, 2]


@pytest.mark.large
@pytest.mark.parametrize("job", [lambda _: None, lambda df: df.sparkSession.range(3).count()])
def test_a_callable_sink_that_ignores_its_rows_is_not_waited_for(engine, job, asked):
    # The first callback of a process starts the threads of py4j's server, which stay.
    finish(engine.query(TEXT, name="first").start("memory", trigger="available_now"))
    before = threading.active_count()
    run = finish(engine.query(TEXT).start(lambda df, _: job(df), trigger="available_now"))
    n_known = 8000 if asked == "files" else 0
    assert [(each.n_rows, each.n_kept) for each in run.records] == [(n_known, 0)] * 3
    assert sum(record.seconds for record in run.records) < REPORT_WAIT_S
    # A stream of Spark's leaves a thread of its own, and the first one the server of callbacks.
    assert threading.active_count() <= before + 2, "no thread is left that waits for a report"


@pytest.mark.large
def test_a_stop_does_not_wait_for_a_job_that_a_batch_was_about_to_begin(engine):
    def slow(v):
        time.sleep(15)
        return pc.greater(v, 0)

    def write(df, _):
        reached.set()
        while started[0].isActive:
            time.sleep(0.01)
        df.toArrow()  # on a thread of Spark's that no interrupt reaches

    engine.function("slow", slow, reads=["v"])
    started, reached = [], threading.Event()
    started.append(engine.query("SELECT id FROM s WHERE slow()", name="slow").start(write))
    assert reached.wait(60)
    before = time.monotonic()
    started[0].stop()
    assert time.monotonic() - before < 8
    assert started[0].records == []


@pytest.mark.large
def test_console_sink(engine, capsys):
    finish(engine.query(TEXT).start("console", trigger="available_now"))
    shown = capsys.readouterr().out
    assert "twice" in shown
    assert "only the first 20 rows" in shown


def test_names_of_streams_differ_by_more_than_case(spark, engine, folder):
    with pytest.raises(QueryError, match="stream 's' exists already; choose another name than 'S'"):
        engine.stream("S", spark.readStream.schema("id bigint").parquet(folder))
    with pytest.raises(QueryError, match="stream 's' exists already"):
        engine.table("S", spark.range(3))


def test_with_steps_takes_steps(engine):
    query = engine.query(TEXT)
    with pytest.raises(QueryError, match=r"takes steps one by one .* got list"):
        query.with_steps(list(query.steps))


def test_streams_without_a_time_are_no_tables(spark, folder):
    made = el.Engine(spark)
    for name in "st":
        made.stream(name, spark.readStream.schema("id bigint").parquet(folder))
    with pytest.raises(QueryError, match=r"stream 's' needs an event-time column to be joined"):
        made.query("SELECT s.id FROM s [NOW], t [NOW] WHERE s.id = t.id")


def join(engine, inputs=None, on="s.id = t.id", **more):
    given = inputs or {"s": engine.streams["s"], "t": engine.streams["s"]}
    return el.window_join(given, on=on, time=dict.fromkeys(given, "id"), **more)


@pytest.mark.parametrize(
    ("misuse", "says"),
    [
        (lambda e: e.stream(5, e.streams["s"]), "name of a stream is a text, got 5"),
        (lambda e: e.stream("q", e.streams["s"], time=5), "unknown time column 5"),
        (
            lambda e: e.stream("q", e.streams["s"], time="id", lateness="abc"),
            "bigint; give a timestamp",
        ),
        (
            lambda e: e.stream("q", e.streams["s"], time="id", lateness="4000000 days"),
            "lateness '4000000 days' of stream 'q' is too long; the longest time is",
        ),
        (lambda e: e.stream("q", e.streams["s"], time="id", lateness=5), "lateness of stream 'q'"),
        (lambda e: e.table("", e.spark.range(1)), "name of a table is a text, got ''"),
        (lambda e: e.table("q", None), "needs a batch DataFrame, got None"),
        (lambda e: e.function(5, lambda u: u), "name of a function is a text"),
        (lambda e: e.query(5), "text of a query is a text, got 5"),
        (lambda e: e.query(TEXT, name=["q"]), "name of a query is a text"),
        (lambda e: e.rules("q", {"r": "u > 1"}, stream="s"), r"needs an el.RuleSet, got \{'r'"),
        (lambda e: e.rules("q", el.RuleSet({}), stream=5), "unknown stream 5; known: s"),
        (lambda e: e.query(TEXT).with_steps(), "takes steps one by one .* got none"),
        (lambda e: e.query(TEXT).start(5), "the sink is a text, got 5"),
        (lambda e: e.query(TEXT).start(trigger=5), "the trigger is a text, got 5"),
        (lambda e: e.query(TEXT).start(checkpoint=""), "the checkpoint is a text, got ''"),
        (lambda e: e.query(TEXT).start(checkpoint=[]), r"the checkpoint is a text, got \[\]"),
        (lambda e: e.query(TEXT).start("parquet", path=""), "path of the sink is a text, got ''"),
        (lambda e: e.start_all("parquet", path=5), "path of the sinks is a text, got 5"),
        (lambda e: e.start_all(checkpoint=5), "the checkpoint is a text, got 5"),
        (lambda e: el.Engine(5), "an engine runs on a SparkSession, got 5"),
        (lambda e: e.function("g", lambda u: u, reads=5), "reads=5"),
        (lambda e: el.all_of("u > 1")(5), "input of a filter must be a DataFrame, got 5"),
        (lambda e: el.RuleSet({"r": "u > 1"}).any()(5), "input of rules must be a DataFrame"),
        (lambda e: el.RuleSet({"r": "u > 1"}).matches()(5), "input of rules must be a DataFrame"),
        (lambda e: el.RuleSet().matches(5), "column of matches is a text, got 5"),
        (lambda e: el.RuleSet().start(None), "stream of rules must be a DataFrame, got None"),
        (lambda e: el.RuleSet(functions=5), "functions are given by name, .* got 5"),
        (lambda e: el.RuleSet().remove(5), "name of a rule is a text, got 5"),
        (lambda e: join(e, {5: e.streams["s"], "t": e.streams["s"]}), "name of an input is a text"),
        (lambda e: join(e, select=5), "select of a join is a text, got 5"),
        (lambda e: join(e, on=5), "condition of a join is a text, got 5"),
        (lambda e: join(e, windows={"s": 5}), "window of 's' is a text, got 5"),
        (lambda e: join(e, functions=[5]), r"functions are given by name, .* got \[5\]"),
        (lambda e: join(e, functions={"f": 5}), "function 'f': a predicate function must be"),
        (lambda e: join(e, name=5), "name of a join is a text, got 5"),
        (lambda e: el.all_of("u > 1", name=5), "name of a conjunction is a text, got 5"),
        (lambda e: el.predicate(lambda u: u, name=5), "name of a predicate is a text, got 5"),
        (lambda e: el.sql_predicate("u > 1", name=5), "name of a predicate is a text, got 5"),
        (lambda e: el.sql_predicate("u > 1", can_raise="no"), "can_raise of a .* got 'no'"),
        (
            lambda e: el.all_of(F.count("u") > 1)(e.spark.range(1, 2).toDF("u")),
            "without SQL text",
        ),
        (lambda e: el.RuleSet(name=5), "name of a set is a text, got 5"),
        (lambda e: el.RuleSet(functions={5: len}), "name of a function is a text, got 5"),
        (lambda e: el.RuleSet().start("s", engine=5), "el.Engine that has the stream, got 5"),
        (lambda e: el.sigma.load(None), "no rules: None is no text and no path"),
        (lambda e: el.sigma.load([b"title: a"]), "no rules: b'title: a' is no text and no path"),
    ],
)
def test_what_is_not_what_it_should_be_is_said(engine, misuse, says):
    with pytest.raises(EddylineError, match=says):
        misuse(engine)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("SELECT id FROM s WHERE ofen(u)", "unknown function 'ofen'; did you mean 'often'"),
        ("SELECT lenght(u) FROM s", "unknown function 'lenght'; did you mean 'length'"),
        (
            "SELECT id FROM s WHERE zzz(u)",
            r"unknown function 'zzz'; make one of yours known: engine\.function\('zzz', …\)$",
        ),
    ],
)
def test_an_unknown_function_is_said_with_one_that_is_close(engine, text, says):
    with pytest.raises(QueryError, match=says):
        engine.query(text)


@pytest.mark.parametrize(
    "refused",
    [
        lambda e: e.query("SELECT nope FROM s"),
        lambda e: e.query("SELECT id FROM s WHERE nope(u)"),
        lambda e: e.streams["s"].transform(el.all_of(F.col("nope") > 1)),
        lambda e: join(e, on="nope(s.id) = t.id", select="s.id"),
    ],
)
def test_what_spark_refuses_and_we_say_is_not_logged_as_well(engine, refused, request):
    logged = []
    handler = logging.Handler()
    handler.emit = logged.append
    for kind in ("SQL", "DataFrame"):
        logger = PySparkLogger.getLogger(f"{kind}QueryContextLogger")
        logger.addHandler(handler)
        request.addfinalizer(partial(logger.removeHandler, handler))
    with pytest.raises(QueryError):
        refused(engine)
    assert not logged


@pytest.mark.large
def test_start_all(spark, engine, folder, tmp_path):
    engine.query(TEXT, name="a")
    engine.query("SELECT id FROM s WHERE u > 2", name="b")
    runs = engine.start_all("parquet", path=str(tmp_path / "out"), trigger="available_now")
    for run in runs:
        finish(run)
    assert spark.read.parquet(str(tmp_path / "out" / "b")).count() == 0
    assert spark.read.parquet(str(tmp_path / "out" / "a")).count() == len(expected(spark, folder))


def test_a_query_without_conditions(engine):
    run = finish(engine.query("SELECT * FROM s").start(trigger="available_now"))
    assert run.to_arrow().num_rows == 24_000
    assert run.to_arrow().column_names == ["id", "u", "v"]
    assert run.name in run.explain()


@pytest.mark.large
def test_off_switch(engine, spark, folder):
    run = finish(engine.query(TEXT, adaptive=False).start(trigger="available_now"))
    assert sorted(run.to_arrow()["id"].to_pylist()) == expected(spark, folder)
    assert run.chain.operators[0].learning["arrow"].loop.order == (0, 1)
    assert run.journal == []
    assert run.chain.operators[0].learning["arrow"].loop.totals.n_extra == 0


@pytest.mark.large
@pytest.mark.parametrize("policy", ["sweep", "local_swaps", "independent"])
def test_other_policies_between_batches(spark, engine, folder, policy):
    run = finish(engine.query(TEXT, policy=policy, sample_prob=0.2).start(trigger="available_now"))
    assert sorted(run.to_arrow()["id"].to_pylist()) == expected(spark, folder)
    assert run.chain.operators[0].learning["arrow"].loop.order == (1, 0)


def test_a_predicate_that_fails_says_so(engine):
    engine.function("broken", lambda u: [1 / 0 for _ in range(len(u))])
    run = engine.query("SELECT * FROM s WHERE broken(u)").start(trigger="available_now")
    with pytest.raises(PredicateError, match=r"broken.*ZeroDivisionError"):
        run.await_termination(120)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT s.id FROM s NATURAL JOIN s AS t",
        "SELECT count(*) FROM s JOIN s AS t ON s.id = t.id",
        "SELECT id FROM s ORDER BY id",
        "SELECT id FROM s LIMIT 5",
        "SELECT id FROM s UNION SELECT id FROM s",
        "SELECT id FROM s GROUP BY CUBE (id)",
        "SELECT row_number() OVER (ORDER BY id) AS n FROM s",
        "SELECT id FROM s WHERE often(often(u))",
    ],
)
def test_what_is_not_supported_yet_says_where(engine, text):
    with pytest.raises(NotSupportedError, match=r"not supported yet.*line 1"):
        engine.query(text)


def test_errors_at_definition(spark, engine, folder, tmp_path):
    with pytest.raises(QueryError, match="unknown"):
        engine.query("SELECT * FROM nowhere")
    with pytest.raises(QueryError, match="w"):
        engine.query("SELECT w FROM s")
    with pytest.raises(QueryError):
        engine.query("SELECT * FROM s WHERE w > 3")
    with pytest.raises(QueryError, match="streaming"):
        engine.stream("batch", spark.read.parquet(folder))
    with pytest.raises(QueryError, match=r"a query of this engine .* got 'SELECT w FROM s'"):
        engine.stream("text", "SELECT w FROM s")
    with pytest.raises(QueryError, match="exists already"):
        engine.stream("s", engine.streams["s"])
    with pytest.raises(OptionError, match="unknown sink"):
        engine.query("SELECT * FROM s").start("parquett", path="x")
    with pytest.raises(OptionError, match="path"):
        engine.query("SELECT * FROM s").start("parquet")
    for trigger in ("now and then", "5 parsecs"):
        with pytest.raises(OptionError, match="trigger"):
            engine.query("SELECT * FROM s").start(trigger=trigger)
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="is a file"):
        engine.query("SELECT * FROM s").start(checkpoint=str(tmp_path / "file"))
    with pytest.raises(SourceError, match="cannot write"):
        engine.query("SELECT * FROM s").start("parquet", path=str(tmp_path / "file"))
    run = engine.query("SELECT * FROM s").start("console", trigger="available_now")
    with pytest.raises(SourceError, match="memory"):
        finish(run).to_arrow()
