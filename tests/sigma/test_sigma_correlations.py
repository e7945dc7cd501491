"""Correlations on Spark, streams and batches: against their definition, and as people see them."""

from __future__ import annotations

import json
import pickle
import random
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest
from typer.testing import CliRunner

import eddyline as el
from eddyline.cli import app
from eddyline.errors import OptionError, QueryError
from eddyline.query.correlations import Correlation, Reference
from tests.oracles.correlations import Match, alerts

pytestmark = [pytest.mark.spark, pytest.mark.timeout(500)]

SCHEMA = "ts timestamp, kind string, User string, Host string, n double"
START = datetime(2024, 1, 1, tzinfo=UTC)


def rules_of(names):
    """Return the YAML of a rule for each letter, which finds events whose kind has the letter."""
    return "\n---\n".join(
        f"title: Rule {name}\nname: {name}\nid: {name}\nlevel: low\n"
        f"logsource: {{product: any}}\ndetection: {{s: {{kind|contains: {name}}}, condition: s}}"
        for name in names
    )


RULES = rules_of("abc")


def correlating(name, kind, condition="gte: 2", rules="[a]", timespan="10s", more=""):
    """Return the YAML of a correlation."""
    condition = f"  condition: {{{condition}}}\n" if condition else ""
    return (
        f"---\ntitle: The {name}\nname: {name}\nid: {name}\nlevel: high\ncorrelation:\n"
        f"  type: {kind}\n  rules: {rules}\n  timespan: {timespan}\n{condition}{more}"
    )


BY_USER = "  group-by: [User]\n"


def loaded(*texts, rules=RULES, **options):
    return el.sigma.load("\n".join([rules, *texts]) + "\n", cache=False, **options)


def event(second, kind, user="u", host="h", n=None):
    return (START + timedelta(seconds=second), kind, user, host, n)


@pytest.fixture
def streamed(spark, tmp_path):
    """Return a function from batches of events to a stream that gives them one by one."""

    def made(batches):
        for at, batch in enumerate(batches):
            df = spark.createDataFrame(batch, SCHEMA).coalesce(1)
            df.write.parquet(str(tmp_path / "in" / f"{at:03}"))
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(tmp_path / "in" / "*"))

    return made


def rows_of(rules, stream, **options):
    """Return the rows of a run over all of a stream."""
    run = rules.start(stream, "memory", time="ts", trigger="available_now", **options)
    assert run.await_termination(300)
    return run.to_arrow().to_pylist()


def told(rows):
    """Return of alerts what is said of them, in an order."""
    found = [
        (
            each["alert"]["id"],
            (each["alert"]["last"] - START).total_seconds(),
            dict(each["alert"]["group"]),
            (each["alert"]["first"] - START).total_seconds(),
            each["alert"]["events"],
            each["alert"]["value"],
        )
        for each in rows
        if each["alert"] is not None
    ]
    return sorted(found, key=str)


FLUSH = [event(10_000, "none")]
"""What brings event time behind all before it."""


@pytest.mark.large("runs nine correlations over a stream")
def test_alerts_stand_beside_events(streamed):
    """Every correlation has rules of its own, and no row of one is a row of another."""
    who = "  group-by: [who]\n  aliases: {{who: {{{}: User, {}: Host}}}}\n"
    generate = "  generate: true\n"
    rules = loaded(
        correlating("burst", "event_count", "gte: 3", more=BY_USER),
        correlating("shown", "event_count", rules="[d]", more=BY_USER + generate),
        correlating("late", "event_count", rules="[f]", more=generate),
        correlating("nobody", "event_count", rules="[g]", more=BY_USER),
        correlating("both", "temporal", "", "[h, i]", more=who.format("h", "i")),
        correlating("pair", "event_count", rules="[j, k]", more=who.format("j", "k")),
        correlating("fails", "event_count", "gte: 3", "[l]", more="  group-by: [Host]\n"),
        correlating("then", "temporal_ordered", "", "[fails, m]", "1m", BY_USER),
        correlating("many", "value_count", "gte: 2, field: Host", "[fails]", "1h"),
        rules=rules_of("abdfghijklm"),
    )
    first = [
        *(event(0, "a"), event(1, "a", "v"), event(2, "b")),
        *(event(0, "d b"), event(1, "d"), event(0, "f")),
        *(event(0, "g", None), event(1, "g", None), event(2, "g", "u")),
        *(event(0, "h", "x", "y"), event(1, "i", "y", "y"), event(2, "i", "y", "x")),
        # An event of two rules is one event.
        *(event(0, "j k", "x", "x"), event(1, "j k", "x", "y")),
        *(event(at, "l", host=host) for at in range(3) for host in ("h", "g")),
    ]
    second = [event(3, "a"), event(4, "a"), event(5, "a"), event(5, "m", "other"), event(6, "m")]
    third = [*[event(100, "a")] * 3, event(100, "f")]
    late = [event(1, "f"), (None, "f", "u", "h", None)]
    rows = rows_of(rules, streamed([first, second, third, [*late, *FLUSH]]))
    assert told(rows) == [
        ("both", 2.0, {"who": "x"}, 0.0, 2, 2.0),
        ("burst", 100.0, {"User": "u"}, 100.0, 3, 3.0),
        ("burst", 4.0, {"User": "u"}, 0.0, 3, 3.0),
        ("many", 2.0, {}, 2.0, 2, 2.0),
        ("pair", 1.0, {"who": "x"}, 0.0, 2, 2.0),
        ("shown", 1.0, {"User": "u"}, 0.0, 2, 2.0),
        ("then", 6.0, {"User": "u"}, 2.0, 3, 2.0),
    ]
    (one, _) = [each for each in rows if each["matches"] == ["burst"]]
    assert one["alert"]["title"] == "The burst"
    assert (one["alert"]["level"], one["alert"]["type"]) == ("high", "event_count")
    assert one["ts"] == one["alert"]["last"]
    assert one["kind"] is None
    # Of rules that a correlation refers to, only those of ``generate`` are told by themselves.
    events = [(each["kind"], each["matches"]) for each in rows if each["alert"] is None]
    assert sorted(events) == [
        ("b", ["b"]),
        ("d", ["d"]),
        ("d b", ["b", "d"]),
        *[("f", ["f"])] * 4,
    ]


OF_EACH_KIND = {
    "event_count": ("gte: 2", "[a, b]"),
    "value_count": ("gte: 2, field: Host", "[a, b]"),
    "temporal": ("", "[a, b, c]"),
    "temporal_ordered": ("", "[a, b, c]"),
    "value_sum": ("gt: 4, lte: 9, field: n", "[a, b]"),
    "value_avg": ("gte: 2, field: n", "[a, b]"),
    "value_median": ("lt: 2, field: n", "[a, b]"),
}


@pytest.fixture(scope="module")
def drawn():
    rng = random.Random(11)
    users, hosts = ["u", "v", None], ["h", "g", None]
    found = [
        event(
            rng.randrange(100),
            "".join(rng.sample("abc", rng.choice([1, 1, 2]))),
            rng.choice(users),
            rng.choice(hosts),
            rng.choice([None, 0.5, 1.25, 3.0]),
        )
        for _ in range(150)
    ]
    found.sort(key=lambda each: each[0] + timedelta(seconds=rng.uniform(0, 4)))
    return found


def wanted(events):
    """Return the alerts of one correlation of each kind by their definition."""
    for kind, (_, rules) in OF_EACH_KIND.items():
        names = rules.strip("[]").split(", ")
        matches = []
        for at, what, user, host, n in events:
            places = frozenset(place for place, name in enumerate(names) if name in what)
            time = round((at - START).total_seconds() * 1_000_000)
            number = None if n is None else Fraction(n)
            if places:
                matches.append(Match(time, (user,), places, host, number))
        references = tuple(Reference(name, ()) for name in names)
        tests = {
            "event_count": (("gte", 2),),
            "value_count": (("gte", 2),),
            "value_sum": (("gt", 4), ("lte", 9)),
            "value_avg": (("gte", 2),),
            "value_median": (("lt", 2),),
        }.get(kind, (("gte", 3),))
        known = "value_percentile" if kind == "value_median" else kind
        correlation = Correlation(kind, known, references, 10_000_000, tests, percentile=50)
        for each in alerts(correlation, matches):
            first, last = each.first / 1e6, each.time / 1e6
            yield kind, last, {"User": each.key[0]}, first, each.events, each.value


def of_each_kind():
    return loaded(
        *(
            correlating(kind, kind, condition, rules, more=BY_USER)
            for kind, (condition, rules) in OF_EACH_KIND.items()
        )
    )


def test_every_kind_is_its_definition_on_a_batch(spark, drawn):
    rules = of_each_kind()
    df = spark.createDataFrame(drawn, SCHEMA)
    found = df.transform(rules.alerts("ts"))
    assert found.columns == [
        "id", "title", "level", "type", "group", "first", "last", "events", "value",
    ]  # fmt: skip
    rows = [{"alert": each} for each in found.toArrow().to_pylist()]
    assert told(rows) == sorted(wanted(drawn), key=str)
    both = rules.with_alerts(df, "ts", keep_unmatched=True)
    assert both.where("alert IS NULL").count() == len(drawn)


@pytest.mark.large
def test_every_kind_is_its_definition_on_a_stream_that_starts_again(
    spark, streamed, tmp_path, drawn
):
    rules = of_each_kind()
    assert not rules.skipped
    halves = [drawn[:40], drawn[40:45]], [drawn[45:120], drawn[120:], FLUSH]
    options = {"checkpoint": str(tmp_path / "ckpt"), "path": str(tmp_path / "out")}
    stream = streamed([*halves[0]])
    for later in (halves[1], []):
        run = rules.start(
            stream, "parquet", time="ts", lateness="5 seconds", trigger="available_now", **options
        )
        assert run.await_termination(300)
        for at, batch in enumerate(later):
            df = spark.createDataFrame(batch, SCHEMA).coalesce(1)
            df.write.parquet(str(tmp_path / "in" / f"9{at:02}"))
    rows = spark.read.parquet(options["path"]).toArrow().to_pylist()
    expected = sorted(wanted(drawn), key=str)
    assert {each[0] for each in expected} == OF_EACH_KIND.keys()
    assert told(rows) == expected


# -- what does not run ----------------------------------------------------------------------------


@pytest.mark.large
def test_without_event_time_correlations_are_listed(streamed):
    rules = loaded(correlating("burst", "event_count", more=BY_USER))
    assert not rules.skipped
    assert list(rules.correlations) == ["burst"]
    stream = streamed([[event(0, "a")]])
    with pytest.warns(UserWarning, match="1 correlation of 'rules' does not run"):
        run = rules.start(stream, "memory", trigger="available_now")
    assert run.await_termination(200)
    (row,) = run.to_arrow().to_pylist()
    assert row.keys() == {*SCHEMA.replace(",", "").split()[::2], "matches"}
    (skipped,) = rules.skipped
    assert skipped.name == "burst"
    assert "time='…'" in skipped.reason


def test_fields_that_events_lack_are_the_reason(spark):
    rules = loaded(
        correlating("gone", "event_count", more="  group-by: [Gone]\n"),
        correlating("value", "value_count", "gte: 2, field: Lost"),
        correlating("above", "event_count", rules="[gone]"),
        correlating("fine", "event_count"),
    )
    df = spark.createDataFrame([event(0, "a"), event(1, "a")], SCHEMA)
    with pytest.warns(UserWarning, match="3 correlations of 'rules' do not run"):
        found = df.transform(rules.alerts("ts")).collect()
    assert [each.id for each in found] == ["fine"]
    reasons = {each.name: each.reason for each in rules.skipped}
    assert "group-by field 'Gone', of events of rule a, is none of" in reasons["gone"]
    assert "condition field 'Lost'" in reasons["value"]
    assert reasons["above"] == "it refers to 'gone', which does not run"
    strict = loaded(correlating("gone", "event_count", more="  group-by: [Gone]\n"))
    strict.on_error = "raise"
    with pytest.raises(QueryError, match="group-by field 'Gone'"):
        df.transform(strict.alerts("ts"))


def test_a_column_of_alerts_is_in_nobodys_way(spark):
    rules = loaded(correlating("burst", "event_count"))
    df = spark.createDataFrame([event(0, "a")], SCHEMA).withColumnRenamed("n", "Alert")
    with pytest.raises(QueryError, match="the events have a column 'alert'"):
        df.transform(rules.alerts("ts"))
    with pytest.raises(QueryError, match="time column 'tz'"):
        df.transform(rules.alerts("tz"))


@pytest.mark.large
def test_a_named_stream_runs_them_by_its_time(spark, streamed):
    rules = loaded(correlating("burst", "event_count", more=BY_USER), name="sigma")
    engine = el.Engine(spark)
    stream = streamed([[event(0, "a"), event(1, "a")], FLUSH])
    engine.stream("events", stream, time="ts", lateness="1 second")
    with pytest.raises(OptionError, match="has the time and lateness"):
        rules.start("events", engine=engine, time="ts")
    query = engine.rules("sigma", rules, stream="events", as_struct=True)
    said = query.explain()
    assert "correlate matches of events: burst: event_count >= 2 of a in 10 SECONDS by User" in said
    run = query.start("memory", trigger="available_now")
    assert run.await_termination(200)
    (alert,) = run.to_arrow().to_pylist()
    assert alert["matches"] == [{"id": "burst", "title": "The burst", "level": "high"}]
    assert "burst: event_count >= 2 of a in 10 SECONDS by User" in " ".join(run.explain().split())


# -- sets ------------------------------------------------------------------------------------------


def test_correlations_go_with_their_rules():
    rules = loaded(
        correlating("one", "event_count"),
        correlating("two", "temporal", "", "[a, b]"),
        correlating("three", "event_count", rules="[two]"),
    )
    assert rules.names == ("a", "b", "c")
    assert list(rules.correlations) == ["one", "two", "three"]
    assert rules.correlations["two"]["rules"] == ("a", "b")
    assert list(rules.select("a", "c").correlations) == ["one"]
    assert list(pickle.loads(pickle.dumps(rules)).correlations) == ["one", "two", "three"]
    both = el.RuleSet({"x": "n > 1"})
    both.add(rules)
    assert list(both.correlations) == ["one", "two", "three"]
    rules.remove("b")
    assert list(rules.correlations) == ["one"]


# -- the command line ------------------------------------------------------------------------------

LINES = [
    {"ts": "2024-01-01 00:00:00", "kind": "a", "User": "u"},
    {"ts": "2024-01-01 00:00:01", "kind": "a", "User": "u"},
    {"ts": "2024-01-01 00:00:09", "kind": "b", "User": "u"},
    {"ts": "no time", "kind": "b", "User": "u"},
]


@pytest.fixture
def files(tmp_path):
    """The files of rules and of events."""
    rules, events = tmp_path / "rules.yml", tmp_path / "events.jsonl"
    burst = correlating("burst", "event_count", more=BY_USER)
    both = correlating("both", "temporal", "", "[burst, b]", more=BY_USER + "  generate: true\n")
    rules.write_text(f"{RULES}\n{burst}{both}")
    events.write_text("\n".join(map(json.dumps, LINES)))
    return rules, events


def call(*arguments):
    done = CliRunner().invoke(app, ["sigma", *map(str, arguments)], env={"COLUMNS": "160"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


@pytest.mark.large
def test_the_command_line_runs_them_by_a_time_column(spark, files, tmp_path):
    rules, events = files
    assert "2 correlations load." in call("check", rules)
    said = call("run", rules, "--events", events)
    assert "2 of 3 rules fired" in said
    assert "2 correlations do not run" in said
    assert "The burst (burst): a correlation looks at events within a timespan: name" in said
    out = tmp_path / "out.parquet"
    said = call("run", rules, "--events", events, "--time", "ts", "--out", out)
    assert "2 of 3 rules fired" in said
    assert "2 of 2 correlations gave alerts" in said
    assert "4 of 4 events matched, 4 matches, 2 alerts, no rule skipped" in said
    written = spark.read.parquet(str(out))
    assert written.where("alert IS NULL").count() == 2
    assert {each[0] for each in written.select("alert.id").collect()} == {None, "burst", "both"}


@pytest.mark.large
def test_alerts_are_counted_in_json(files):
    rules, events = files
    said = call("run", rules, "--events", events, "--time", "ts", "--format", "json")
    found = json.loads(said[said.index("{") :])
    assert [(each["id"], each["alerts"]) for each in found["correlations"]] == [
        ("both", 1),
        ("burst", 1),
    ]
    assert [each["id"] for each in found["rules"]] == ["a", "b"]
    assert (found["events"], found["matched_events"], found["skipped"]) == (4, 4, [])


@pytest.mark.large
def test_times_without_a_zone_are_told_as_such(spark):
    rules = loaded(correlating("burst", "event_count", more=BY_USER))
    df = spark.createDataFrame([event(0, "a"), event(1.5, "a")], SCHEMA)
    df = df.selectExpr("CAST(ts AS TIMESTAMP_NTZ) AS ts", "kind", "User", "Host", "n")
    (alert,) = df.transform(rules.alerts("ts")).collect()
    times = START.replace(tzinfo=None), (START + timedelta(seconds=1.5)).replace(tzinfo=None)
    assert (alert["first"], alert["last"]) == times
    assert "correlation burst: event_count >= 2 of a in 10s" in " ".join(rules.explain().split())
