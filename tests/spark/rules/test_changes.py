"""Rules of a set that runs are changed: what cannot run is said at once, and no rule gets lost."""

from __future__ import annotations

import html

import pytest

import eddyline as el
from eddyline.errors import QueryError
from tests.spark.facts import facts_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

RULES = {"big": "n > 5", "small": "n < 2"}


@pytest.fixture(scope="module")
def folder(spark, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("changed") / "in")
    spark.range(10).selectExpr("id AS n").repartition(3).write.parquet(path)
    return path


@pytest.fixture
def stream(spark, folder):
    return spark.readStream.schema("n long").option("maxFilesPerTrigger", 1).parquet(folder)


@pytest.fixture
def running(stream):
    """Starts a set of rules on the stream; what still runs at the end is stopped."""
    runs = []

    def start(rules, sink="memory", trigger="1 hour"):
        runs.append(rules.start(stream, sink, trigger=trigger))
        return runs[-1]

    yield start
    for run in runs:
        run.stop()


@pytest.mark.parametrize("text", ["zzz > 1", "n > ((("])
@pytest.mark.parametrize("on_error", ["skip", "raise"])
def test_a_rule_is_not_lost_to_one_that_cannot_run(running, on_error, text):
    rules = el.RuleSet(RULES, on_error=on_error, name=f"kept {on_error}")
    running(rules)
    with pytest.raises(QueryError, match="rule 'big'"):
        rules.replace("big", text)
    assert (rules.names, rules.skipped) == (("big", "small"), ())
    assert rules.info["big"]["text"] == "n > 5"


def test_a_rule_that_does_not_fit_the_run_is_skipped_at_once(running):
    rules = el.RuleSet(RULES, on_error="skip", name="skips")
    run = running(rules)
    rules.add({"unfit": "zzz > 4", "unread": "n > (((", "fine": "n = 3"})
    assert rules.names == ("big", "small", "fine")
    reasons = {each.name: each.reason for each in rules.skipped}
    assert sorted(reasons) == ["unfit", "unread"]
    assert "zzz" in reasons["unfit"]
    with pytest.raises(QueryError, match="zzz"):
        rules.replace("unfit", "zzz > 5")
    assert "unfit" not in rules.names
    rules.replace("unfit", "n = 4")
    assert "unfit" in rules.names
    rules.replace("unread", "n = 4")
    assert rules.skipped == ()
    run.stop()
    rules.add("later", "zzz > 4")
    rules.remove("later")
    assert rules.skipped == ()


def test_with_errors_raised_nothing_of_what_does_not_fit_is_added(running):
    rules = el.RuleSet(RULES, name="raises")
    running(rules)
    with pytest.raises(QueryError, match="rule 'unfit'"):
        rules.add({"fine": "n = 3", "unfit": "zzz > 4"})
    assert (rules.names, rules.skipped) == (("big", "small"), ())


@pytest.mark.large
def test_a_run_counts_and_reports_the_rules_that_run(stream, tmp_path):
    rules = el.RuleSet({**RULES, "all": "n >= 0"}, on_error="skip", name="counted")

    def sink(df, batch_id):
        df.collect()
        if batch_id == 0:
            rules.add({"unfit": "zzz > 4", "new": "n = 4321"})
            rules.replace("big", "n > 777")
            rules.remove("small")

    run = rules.start(stream, sink, trigger="available_now")
    assert run.await_termination(120)
    (change,) = [each for each in run.journal if each["event"] == "rules"]
    assert (change["before"], change["after"]) == ("3 rules", "3 rules")
    assert change["evidence"] == {
        "added": ["new"],
        "removed": ["small"],
        "replaced": ["big"],
        "skipped": ["unfit"],
    }

    view = facts_of(run)
    assert view.n_rows_before == run.records[0].n_rows > 0
    assert view.n_rows == sum(each.n_rows for each in run.records[1:])
    assert view.n_matches == sum(each.operators[0].n_matches for each in run.records[1:])
    said = run.explain(width=200)
    assert (
        f"{view.n_rows} rows evaluated since the rules changed or the run started again "
        f"({view.n_rows_before} before)"
    ) in said
    assert f"{view.n_met} candidates, {view.n_matches} of them matches." in said
    later = view.n_rows
    assert {each.name: each.n_rows for each in view.rules} == {
        "all": 10,
        "big": later,
        "new": later,
    }

    assert run.text == "big: n > 777\nall: n >= 0\nnew: n = 4321"
    for page in (run.report(tmp_path / "run.html"), rules.report(tmp_path / "rules.html")):
        assert f"<pre>{run.text}</pre>" in html.unescape(page.read_text("utf-8"))
    # What is changed after the run's last micro-batch is in none of its tables.
    rules.add("late", "n = 5")
    assert "late" not in run.text
    assert rules.text == "big: n > 777\nall: n >= 0\nunfit: zzz > 4\nnew: n = 4321\nlate: n = 5"


def test_an_explanation_says_which_changes_are_to_come(spark):
    df = spark.range(10).selectExpr("id AS n")
    rules = el.RuleSet({"big": "n > 5", "small": "n < 2"}, on_error="skip")
    df.transform(rules.matches()).collect()
    assert "since" not in rules.explain()
    rules.add("new", "n = 3")
    assert "1 rule added since: it counts from the next micro-batch or transform on" in (
        rules.explain(width=200)
    )
    rules.remove("small")
    rules.replace("big", "n > 6")
    rules.add("odd", "n = 9")
    assert (
        "2 rules added, 1 removed, 1 replaced since: they count from the next micro-batch or "
        "transform on"
    ) in rules.explain(width=200)
    df.transform(rules.matches()).collect()
    assert "since:" not in rules.explain(width=200)


def test_a_skipped_rule_is_not_among_those_to_come(running):
    rules = el.RuleSet(RULES, on_error="skip", name="to come")
    run = running(rules)
    rules.add("unfit", "zzz > 4")
    assert "since:" not in run.explain(width=200)
    assert [each.name for each in facts_of(run).skipped] == ["unfit"]


def test_the_rules_of_another_set_fit_the_run_or_none_is_taken(running):
    rules = el.RuleSet(RULES, name="of others")
    running(rules)
    other = el.RuleSet({"fine": "n = 3", "unfit": "zzz > 4"}, on_error="skip")
    with pytest.raises(QueryError, match="rule 'unfit'"):
        rules.add(other)
    with pytest.raises(QueryError, match="rule 'small'"):
        rules.replace(el.RuleSet({"big": "n > 8", "small": "zzz < 1"}))
    assert {name: each["text"] for name, each in rules.info.items()} == RULES


@pytest.mark.large
def test_sets_without_a_name_run_at_the_same_time(running):
    runs = [running(el.RuleSet(RULES)) for _ in range(3)]
    assert [run.name for run in runs] == ["rules", "rules_2", "rules_3"]
    runs[1].stop()
    assert running(el.RuleSet(RULES)).name == "rules_2"
    named = el.RuleSet(RULES, name="named")
    running(named)
    with pytest.raises(QueryError, match=r"el\.sigma\.load\(…, name='…'\)"):
        running(named)


@pytest.mark.large
def test_one_checkpoint_has_one_run(stream, tmp_path):
    checkpoint = str(tmp_path / "ckpt")
    run = el.RuleSet(RULES).start(stream, trigger="1 hour", checkpoint=checkpoint)
    try:
        with pytest.raises(QueryError, match="run 'rules' writes to the checkpoint"):
            el.RuleSet(RULES).start(stream, trigger="1 hour", checkpoint=checkpoint)
        assert run.isActive
    finally:
        run.stop()
    again = el.RuleSet(RULES).start(stream, trigger="available_now", checkpoint=checkpoint)
    assert again.await_termination(120)
