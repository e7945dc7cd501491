"""The page of queries that run in this process."""

from __future__ import annotations

import http.client
import re
import threading
import time
from itertools import product
from urllib.parse import urlencode

import pytest

import eddyline as el
from eddyline.serve.graph import graph_of
from eddyline.serve.guard import Guard
from eddyline.serve.runs import StoredRuns, key_of
from eddyline.spark.run.live import LiveRun, runs_of
from tests.serve.fakes import TOKEN

pytestmark = pytest.mark.spark

ENDS = {"reads": ["name"], "arrays": "pandas", "name": "ends"}


@pytest.fixture
def engine(spark, tmp_path):
    """Return an engine with a stream of four files that has been served before its queries run."""
    path = str(tmp_path / "in")
    frame = spark.range(4_000).selectExpr("id", "id % 7 AS v", "concat('secret-', id) AS name")
    frame.repartition(4).write.parquet(path)
    made = el.Engine(spark)
    source = spark.readStream.schema(frame.schema).option("maxFilesPerTrigger", 1).parquet(path)
    made.stream("s", source)

    @el.predicate("name", arrays="pandas")
    def breaks(name):
        if name.str.endswith("77").any():
            msg = f"cannot take {name.iloc[0]}"
            raise ValueError(msg)
        return name.str.len() > 0

    made.function("breaks", breaks)
    return made


def get(server, path, method="GET", **fields):
    cookie = Guard(TOKEN, "127.0.0.1", server.port).cookie.partition(";")[0]
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    sent = {"cookie": cookie, "origin": server.address.rstrip("/")}
    connection.request(method, path, urlencode(fields) or None, headers=sent)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def page_of(server, engine, name):
    runs = runs_of(lambda: engine.groups).runs()
    return get(server, f"/run/{key_of(next(each for each in runs if each.name == name))}")


@pytest.mark.large
def test_a_query_tells_how_far_it_is_behind_its_files(spark, tmp_path):
    path = str(tmp_path / "in")
    for number in range(4):
        frame = spark.range(1_000).selectExpr(
            "id", "id % 7 AS v", f"timestamp_seconds(1700000000 + {number} * 1000 + id) AS t"
        )
        frame.coalesce(1).write.mode("append").parquet(path)
    source = spark.readStream.schema(frame.schema).option("maxFilesPerTrigger", 1).parquet(path)
    engine = el.Engine(spark)
    engine.stream("s", source, time="t", lateness="90 seconds")
    query = engine.query(
        "SELECT v, COUNT(*) AS n FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY v"
    )
    with query.start("memory", trigger="1 hour", checkpoint=tmp_path / "ckpt") as run:
        deadline = time.monotonic() + 60.0
        while not run.records or run.backlog().n_files is None:
            assert time.monotonic() < deadline, run.backlog()
            time.sleep(0.2)
        waits = run.backlog()
        assert (waits.n_files, waits.is_estimate) == (3, True)
        assert waits.n_rows == pytest.approx(3_000, rel=0.1)
        metrics = {each.name: each.value for each in run.metrics()}
        assert metrics["eddyline_event_time_lag_seconds"] == 90
        assert metrics["eddyline_backlog_rows"] == waits.n_rows
        with engine.serve(token=TOKEN) as server:
            _, text = page_of(server, engine, run.name)
        assert 'data-cell="lag">1 min 30 s<' in text
        assert re.search('data-cell="backlog">~[23],[0-9]{3}<', text)
    assert run.backlog().why == "the query does not run"


@pytest.mark.large
def test_a_query_that_ran_one_that_failed_and_two_that_ran_together(engine, tmp_path):
    threads = set(threading.enumerate())
    with engine.serve(token=TOKEN) as server:
        well = engine.query("SELECT id FROM s WHERE v > 1 AND id % 2 = 0 AND v < 6", name="well")
        run = well.start("memory", checkpoint=tmp_path / "ck", trigger="available_now")
        run.await_termination()
        failing = engine.query("SELECT id FROM s WHERE breaks(name)", name="failing")
        failed = failing.start("memory", trigger="available_now")
        with pytest.raises(el.errors.PredicateError):
            failed.await_termination()
        engine.drop("well")
        engine.drop("failing")
        for n in (1, 2):
            engine.query(f"SELECT id FROM s WHERE v = {n}", name=f"together {n}")
        for each in engine.start_all("memory", trigger="available_now"):
            each.await_termination()

        status, listed = get(server, "/")
        assert status == 200
        for name in ("well", "failing", "together 1", "together 2"):
            assert listed.count(f'data-name="{name}"') == 1
        assert re.search(r"\d failed", listed)
        status, text = page_of(server, engine, "well")
        assert status == 200
        for part in ("filter s: ", "native", "operators and sink", "4,000", "ended"):
            assert part in text
        _, text = page_of(server, engine, "failing")
        assert "PredicateError of predicate breaks" in text
        assert "secret-" not in text
        status, told = get(server, "/metrics")
        assert status == 200, told[told.rfind("<header") :]
        assert 'eddyline_rows_in_total{query="well"} 4000.0' in told
    left = {each for each in threading.enumerate() if "eddyline page" in each.name}
    assert left <= threads


def test_queries_that_ran_together_are_one_graph_from_their_checkpoint(engine, tmp_path):
    for n in (1, 2):
        engine.query(f"SELECT id FROM s WHERE v = {n}", name=f"query {n}")
    runs = engine.start_all("memory", checkpoint=tmp_path / "ck", trigger="available_now")
    for run in runs:
        run.await_termination()
    (stored,) = StoredRuns([tmp_path / "ck"]).runs()
    view = stored.run_view()
    graph = graph_of(view, view.sections, {})
    reads = {box.name: box.reads for box in graph.boxes}
    assert reads["query 1"] == reads["query 2"] == ("shared",)
    (shared,) = [box for box in graph.boxes if box.key == "shared"]
    assert (shared.kind, shared.reads) == ("rules", ("0",))
    assert ("rules", "rules") in shared.owns
    assert reads[view.query] == ("query 1", "query 2")


def test_a_person_pins_and_stops_a_query_from_its_page(engine):
    query = engine.query("SELECT id FROM s WHERE v > 1 AND id % 2 = 0 AND v < 6", name="steered")
    with query.start("memory") as run, engine.serve(token=TOKEN, controls=True) as server:
        run.process_all_available()
        path = f"/run/{key_of(LiveRun(run))}"
        assert "Pin the plan" in get(server, path)[1]
        assert "v &gt; 1" in get(server, f"{path}/pin")[1], "the plan that would be pinned"
        assert get(server, f"{path}/pin", "POST")[0] == 303
        assert [each["evidence"] for each in run.journal if each["event"] == "pin"] != []
        assert "by a person" in get(server, path)[1]
        assert get(server, f"{path}/adapt", "POST")[0] == 303
        assert run.journal[-1]["event"] == "adapt"
        assert get(server, f"{path}/stop", "POST")[0] == 303
        assert not run.isActive


@pytest.fixture
def ruled(engine):
    """Return a set of rules, and its run once it has met all rows that there are."""
    rules = el.RuleSet(
        {"big": el.Rule("v > 4", level="high", title="Big"), "small": "v < 1", "zero": "v = 0"},
        functions={"ends": el.predicate(lambda name: name.str.endswith("9"), **ENDS)},
        on_error="skip",
        name="by hand",
    )
    with rules.start("s", "memory", engine=engine) as run:
        run.process_all_available()
        yield rules, run


def asker(server, run):
    """Return what sends a form as a person would who has seen the rules as they are."""
    path = f"/run/{key_of(LiveRun(run))}/rules"

    def ask(how, name, text="", *, sure=True):
        shown = run.steering.rules().found(name, 1).rules
        mark = shown[0].mark if shown and how != "add" else ""
        asked = {"name": name, "text": text, "mark": mark, **({"sure": "yes"} if sure else {})}
        return get(server, f"{path}/{how}", "POST", **asked)

    return path, ask


BROKEN = {
    "v > (((": "cannot be read as SQL",
    "nothing > 1": "unknown column",
    "unknown(v)": "unknown function",
    "v + 1": "is not a condition",
    "system.builtin.`reflect`('java.lang.System', 'getenv', 'X') = v": "calls reflect",
    "detection:\n  v: 1": "a Sigma rule",
}
"""Rules that cannot run, and why."""


class Folder:
    """Decides about the rules of a set."""

    place = "a folder of rules"
    troubles = ()

    def look(self, store, batch_id):
        return []


@pytest.mark.large("starts a query on Spark for each")
def test_a_rule_that_cannot_run_changes_nothing(engine, ruled):
    rules, run = ruled
    before, journal = rules.info, len(run.journal)
    with engine.serve(token=TOKEN, controls=True) as server:
        path, ask = asker(server, run)
        for (text, why), sure in product(BROKEN.items(), (False, True)):
            for how, name in (("add", "new"), ("replace", "big")):
                status, answer = ask(how, name, text, sure=sure)
                assert (status, why in answer) == (409, True)
        assert "exists already" in ask("add", "big", "v > 1")[1]
        assert "has this text already" in ask("replace", "big", "v > 4")[1]
        assert ask("add", "new", "v = 3", sure=False)[0] == 200, "asked whether a person is sure"
        rules.store.follower = Folder()
        assert "follow a folder of rules" in get(server, path)[1]
        assert ask("add", "new", "v = 3")[0] == 409
    assert (rules.info, rules.skipped, len(run.journal)) == (before, (), journal)


@pytest.mark.large("starts a query on Spark for each")
def test_a_person_changes_rules_from_the_next_batch_on(engine, ruled, tmp_path):
    rules, run = ruled
    before = rules.info
    with engine.serve(token=TOKEN, controls=True) as server:
        path, ask = asker(server, run)
        assert ask("add", "new", "ends() AND v = 3")[0] == 303
        assert ask("replace", "big", "v > 5")[0] == 303
        assert ask("remove", "zero")[0] == 303
        assert rules.info["big"] == {**before["big"], "text": "v > 5"}, "level and title stay"
        listed = get(server, path)[1]
        assert "1 rule added, 1 removed, 1 replaced since" in listed
        assert listed.count("in force from the next micro-batch on") == 2
        decisions = get(server, f"{path.removesuffix('/rules')}/journal")[1]
        assert "rules</b> were changed, by a person" in decisions

        fresh = engine.spark.range(4_000, 4_100)
        fresh = fresh.selectExpr("id", "id % 7 AS v", "concat('secret-', id) AS name")
        fresh.write.mode("append").parquet(str(tmp_path / "in"))
        run.process_all_available()
        listed = get(server, path)[1]
        assert "next micro-batch" not in listed

    mine = [each for each in run.journal if each["evidence"].get("by") == "person"]
    assert [(each["event"], each["before"], each["after"]) for each in mine] == [
        ("rules", None, "ends() AND v = 3"),
        ("rules", "v > 4", "v > 5"),
        ("rules", "v = 0", None),
    ]
    assert mine[1]["evidence"] == {"by": "person", "replaced": ["big"]}
    assert mine[1] in rules.journal
    matched = {row.id: row.matches for row in run.to_df().where("id >= 4000").collect()}
    ids = range(4_000, 4_100)
    assert matched == {
        id: found
        for id in ids
        if (
            found := [
                *(["big"] if id % 7 > 5 else []),
                *(["small"] if id % 7 < 1 else []),
                *(["new"] if id % 7 == 3 and id % 10 == 9 else []),
            ]
        )
    }
    shown = {
        each.name: (each.n_matches, each.n_rows) for each in run.steering.rules().found("", 9).rules
    }
    assert shown["new"] == (sum(each == ["new"] for each in matched.values()), 100)
    assert shown["small"][1] == 4_100
