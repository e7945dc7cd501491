"""Rules of a set that runs are changed: what cannot run is said at once, and no rule gets lost."""

from __future__ import annotations

import pytest

import eddyline as el
from eddyline.errors import QueryError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

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
