"""A query over the results of a join has the join's options, state and late rows as its own."""

from __future__ import annotations

import pytest

import eddyline as el
from eddyline.errors import OptionError, QueryError
from eddyline.query.predicates import SqlPredicate
from eddyline.query.steps import RESULT, FilterStep
from eddyline.spark.script import run_script
from tests.spark.facts import facts_of
from tests.spark.joins.join_streams import ended
from tests.spark.joins.test_join_script import folder as orders  # noqa: F401 - a fixture
from tests.spark.joins.test_join_script import script_of
from tests.spark.joins.test_join_streams import RESULTS, TEXT, engine, found  # noqa: F401

pytestmark = pytest.mark.spark


def over_results(engine, **options):  # noqa: F811
    engine.stream("pairs", engine.query(TEXT, name="pairs"))
    return engine.query("SELECT * FROM pairs WHERE a > 1", name="few", **options)


@pytest.mark.large
def test_it_takes_the_options_of_a_join_and_of_filters(engine, tmp_path):  # noqa: F811
    query = over_results(engine, buckets=3, caches=True, policy="sweep", sample_prob=0.5, seed=3)
    state = tmp_path / "windows"
    run = ended(query, state=str(state))
    assert found(run.to_arrow()) == [row for row in RESULTS if row[1] > 1]
    assert facts_of(run).grid == (3,), "the view is that of the operator with windows"
    assert list(state.rglob("manifest-*.json"))
    assert (
        query.settings.items()
        >= {
            "buckets": "3",
            "caches": "True",
            "sample_prob": "0.5",
            "policy": "sweep",
            "seed": "3",
        }.items()
    ), query.settings
    assert [row["v"] for row in run.late_rows("s").to_pylist()] == [3]


def test_an_option_that_no_operator_knows_is_refused(engine):  # noqa: F811
    with pytest.raises(OptionError, match=r"unknown option 'bucket'; .*did you mean 'buckets'"):
        over_results(engine, bucket=3)
    with pytest.raises(OptionError, match=r"'max_overhead' must be a number in \[1e-06, 1.0\]"):
        engine.query("SELECT * FROM pairs WHERE a > 1", max_overhead=2)
    with pytest.raises(OptionError, match=r"option 'min_fill' is gone: a warm-up ends at 100"):
        engine.query("SELECT * FROM pairs WHERE a > 1", min_fill=2000)
    with pytest.raises(OptionError, match="unknown option 'buckets'"):
        engine.query("SELECT * FROM s WHERE v > 1", buckets=3)


@pytest.mark.large
def test_other_steps_keep_what_the_join_can(engine, tmp_path):  # noqa: F811
    query = engine.query(TEXT, name="pairs", buckets=2)
    more = query.with_steps(*query.steps, FilterStep(RESULT, (SqlPredicate("a > 1"),)))
    run = ended(more, state=str(tmp_path / "windows"))
    assert found(run.to_arrow()) == [row for row in RESULTS if row[1] > 1]
    assert run.late_rows("s").num_rows == 1


@pytest.mark.large
def test_rules_go_behind_a_join_and_not_before_it(engine):  # noqa: F811
    engine.stream("pairs", engine.query(TEXT, name="pairs"))
    rules = el.RuleSet({"much": "b > 15", "one": "k = 1"}, name="r")
    run = ended(engine.rules("alerts", rules, stream="pairs"))
    rows = run.to_arrow().to_pylist()
    assert sorted((row["a"], row["b"], *row["matches"]) for row in rows) == [
        (1, 10, "one"),
        (2, 30, "much"),
        (4, 20, "much", "one"),
        (6, 30, "much"),
    ]


@pytest.mark.large
def test_what_rules_match_is_joined(engine):  # noqa: F811
    high = el.RuleSet({"high": "v > 1"}, name="high")
    engine.stream("alarms", engine.rules("alarms", high, stream="s"), time="ts")
    text = (
        "SELECT alarms.v AS a, t.v AS b FROM alarms [RANGE 1 HOUR], t [RANGE 1 HOUR] "
        "WHERE alarms.k = t.k"
    )
    run = ended(engine.query(text))
    assert {row["a"] for row in run.to_arrow().to_pylist()} == {2, 4, 6}


@pytest.mark.large
def test_what_keeps_no_state_says_so(engine, tmp_path):  # noqa: F811
    query = engine.query("SELECT * FROM s WHERE v > 1", name="high")
    with pytest.raises(OptionError, match=r"'high' keeps no state .*; leave out state='x'"):
        query.start(state="x")
    with pytest.raises(QueryError, match=r"'high' reads streams, which never end; start it"):
        query.to_df()
    run = ended(query)
    with pytest.raises(QueryError, match="'high' keeps no late rows"):
        run.late_rows("s")


@pytest.mark.large
def test_a_run_without_a_plan_has_no_view(engine):  # noqa: F811
    query = engine.query("SELECT v FROM s", name="plain")
    read, _, project = query.steps
    run = ended(query.with_steps(read, project))
    assert facts_of(run) is None
    assert "plain" in run.explain()
    assert len(run.to_arrow()) == 5


@pytest.mark.large
def test_a_script_filters_what_it_joined(spark, orders, tmp_path):  # noqa: F811
    file = script_of(orders)
    text = file.read_text("utf-8").replace("CREATE QUERY paid WITH (sink='console') AS", "{0}")
    made = "CREATE STREAM joined AS"
    filtered = (
        f"CREATE QUERY paid WITH (sink='parquet', path='{tmp_path}/out') AS "
        "SELECT id, label FROM joined WHERE id > 1;"
    )
    file.write_text(text.format(made) + filtered, "utf-8")
    (run,) = run_script(file, spark=spark, trigger="available_now")
    assert run.await_termination(120)
    found = spark.read.parquet(f"{tmp_path}/out").toArrow().to_pylist()
    assert found == [{"id": 4, "label": "south"}]
