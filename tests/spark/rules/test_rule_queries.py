"""Rules in an engine: named streams and their lateness, started with other queries, in chains."""

from __future__ import annotations

import pytest

import eddyline as el
from eddyline.errors import OptionError, QueryError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

RULES = {"big": "n > 5", "small": "n < 2"}
WANTED = {0: ["small"], 1: ["small"], **{n: ["big"] for n in range(6, 10)}}


@pytest.fixture(scope="module")
def folder(spark, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("queries") / "in")
    rows = spark.range(10).selectExpr("id AS n", "timestamp_seconds(id) AS at")
    rows.repartition(2).write.parquet(path)
    return path


@pytest.fixture
def engine(spark, folder):
    schema = "n long, at timestamp"
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(folder)
    made = el.Engine(spark)
    made.stream("packets", stream, time="at", lateness="1 minute")
    return made


def found(run, column="matches"):
    rows = run.to_arrow().select(["n", column]).to_pylist()
    return {row["n"]: row[column] for row in rows}


def finish(run):
    assert run.await_termination(120)
    return run


def test_rules_run_over_a_named_stream(engine):
    rules = el.RuleSet(RULES)
    query = engine.rules("alerts", rules, stream="packets")
    assert query.columns == {"n": "bigint", "at": "timestamp", "matches": "array<string>"}
    assert "rules over packets: matches of rows with a match" in query.explain()
    assert "EventTimeWatermark" in query.source._jdf.queryExecution().analyzed().toString()
    run = finish(query.start("memory", trigger="available_now"))
    assert (run.name, found(run)) == ("alerts", WANTED)
    for part in rules.explain().partition("\n")[2].split("\nnotes\n"):
        assert part in run.explain()
    assert "lane" not in run.plan()  # one statement of Spark's
    assert "└─ read packets" in run.explain()
    assert run.text == "big: n > 5\nsmall: n < 2"
    assert [each["event"] for each in rules.journal] == [each["event"] for each in run.journal]


def test_every_row_may_be_kept_and_the_column_be_named(engine):
    query = engine.rules("m", el.RuleSet(RULES), stream="packets", column="m", keep_unmatched=True)
    got = found(finish(query.start(trigger="available_now")), "m")
    assert got == {n: WANTED.get(n, []) for n in range(10)}


@pytest.mark.large
def test_rules_start_with_the_other_queries_and_follow_their_set(engine, tmp_path):
    rules = el.RuleSet(RULES, name="live")
    engine.rules("alerts", rules, stream="packets")
    engine.query("SELECT n FROM packets WHERE n = 3", name="threes")
    engine.query("SELECT n FROM packets WHERE n > 3 AND n < 6", name="others")
    rules.add("three", "n = 3")
    runs = engine.start_all("memory", checkpoint=str(tmp_path), trigger="available_now")
    alerts, threes, _ = map(finish, runs)
    assert found(alerts) == {**WANTED, 3: ["three"]}
    assert threes.to_arrow().column("n").to_pylist() == [3]
    checkpoint = str(tmp_path / "alerts")
    again = finish(engine.queries["alerts"].start(checkpoint=checkpoint, trigger="available_now"))
    events = [each["event"] for each in again.journal if each["component"] == "run"]
    assert events == ["restore"]


def test_a_rule_must_fit_the_stream_of_a_running_query(engine):
    rules = el.RuleSet(RULES)
    query = engine.rules("alerts", rules, stream="packets")
    rules.add("later", "zzz > 1")
    rules.remove("later")
    run = query.start(trigger="1 hour")
    try:
        with pytest.raises(QueryError, match="rule 'unfit'"):
            rules.add("unfit", "zzz > 1")
    finally:
        run.stop()


@pytest.mark.large
def test_rules_and_queries_are_chained(engine):
    engine.stream("odd", engine.query("SELECT n, at FROM packets WHERE n % 2 = 1", name="odds"))
    alerts = engine.rules("alerts", el.RuleSet(RULES), stream="odd")
    assert found(finish(alerts.start(trigger="available_now"))) == {
        n: names for n, names in WANTED.items() if n % 2
    }
    engine.stream("alarms", alerts)
    last = engine.query("SELECT n, matches FROM alarms WHERE n < 8", name="last")
    run = finish(last.start(trigger="available_now"))
    assert found(run) == {1: ["small"], 7: ["big"]}
    assert {"rules"} < {each.component for each in run.records[-1].operators}
    both = engine.rules(
        "both", el.RuleSet({"one": "array_contains(matches, 'small')"}), stream="alarms", column="m"
    )
    assert found(finish(both.start(trigger="available_now")), "m") == {1: ["one"]}


def test_what_does_not_fit_is_refused_at_once(engine):
    for wrong, given in (
        (r"rule 'bad'[\s\S]*nowhere", {"rules": el.RuleSet({"bad": "nowhere = 1"})}),
        ("unknown stream 'packet'", {"stream": "packet"}),
        ("has a column 'N' already", {"column": "N"}),
    ):
        with pytest.raises(QueryError, match=wrong):
            engine.rules("alerts", **{"rules": el.RuleSet(RULES), "stream": "packets", **given})
    engine.rules("alerts", el.RuleSet(RULES), stream="packets")
    with pytest.raises(QueryError, match="query 'alerts' exists already"):
        engine.rules("alerts", el.RuleSet(RULES), stream="packets")


@pytest.mark.large
def test_a_set_starts_on_a_named_stream_with_its_lateness(engine):
    rules = el.RuleSet(RULES, name="named set")
    for column in ("matches", "m"):  # a cell of a notebook runs twice
        run = rules.start("packets", engine=engine, column=column, trigger="available_now")
        assert (finish(run).name, found(run, column)) == ("named set", WANTED)
        assert "└─ read packets" in run.explain()
    query = engine.queries["named set"]
    assert "EventTimeWatermark" in query.source._jdf.queryExecution().analyzed().toString()
    engine.stream("odd", engine.query("SELECT n, at FROM packets WHERE n % 2 = 1", name="odds"))
    run = finish(el.RuleSet(RULES).start("odd", engine=engine, trigger="available_now"))
    assert found(run) == {n: names for n, names in WANTED.items() if n % 2}


def test_a_set_replaces_no_other_query(engine):
    engine.query("SELECT n FROM packets", name="mine")
    with pytest.raises(QueryError, match="query 'mine' exists already"):
        el.RuleSet(RULES, name="mine").start("packets", engine=engine)
    assert engine.queries["mine"].columns == {"n": "bigint"}


def test_a_set_starts_on_a_stream_of_an_engine_with_a_lateness(engine):
    stream = engine.streams["packets"]
    run = el.RuleSet(RULES).start(
        stream, time="at", lateness="1 minute", as_struct=True, trigger="available_now"
    )
    rows = found(finish(run))
    assert {n: [each["id"] for each in matches] for n, matches in rows.items()} == WANTED
    assert run.last_progress["eventTime"]["watermark"] > "1970"


@pytest.mark.parametrize(
    ("stream", "given", "said"),
    [
        ("packets", {}, r"say which engine has 'packets': start\('packets', …, engine=engine\)"),
        ("packet", {"engine": True}, "unknown stream 'packet'; .*did you mean 'packets'"),
        ("packets", {"engine": True, "time": "at"}, "leave out time='at'$"),
        (None, {"engine": True}, "rules on a DataFrame run without an engine"),
        (None, {"lateness": "1 minute"}, "stream of rules has a lateness but no time column"),
        (None, {"time": "ts"}, "the stream of rules: unknown time column 'ts'"),
        (None, {"time": "at", "lateness": "soon"}, "is an interval such as '1 minute'"),
    ],
)
def test_a_start_that_fits_no_stream_is_refused(engine, stream, given, said):
    if "engine" in given:
        given = {**given, "engine": engine}
    with pytest.raises((QueryError, OptionError), match=said):
        el.RuleSet(RULES).start(stream or engine.streams["packets"], **given)
