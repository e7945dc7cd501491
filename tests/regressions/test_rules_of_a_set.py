"""What a set of rules says of itself is true, and what one query does is no other's business."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddyline as el
from eddyline.errors import QueryError
from eddyline.query.conditions import And, Compare, FunctionTest, Operand, Or, Rule
from eddyline.query.predicates import FunctionPredicate
from eddyline.query.rules.sources import SqlRule
from eddyline.rules.compile.program import compile_rules
from eddyline.rules.match.matcher import Matcher
from eddyline.rules.planning.access_predicates import plan_of
from eddyline.spark.operator import Laid, Operator, Pending
from eddyline.spark.run.job_reports import JobReports
from eddyline.sql.types import INT

pytestmark = pytest.mark.spark


def matches_of(df, rules):
    rows = df.transform(rules.matches("m", keep_unmatched=True)).orderBy("a").collect()
    return [list(row.m) for row in rows]


def test_a_rule_that_cannot_be_read_leaves_the_one_it_should_replace(spark):
    df = spark.createDataFrame([(1,), (2,)], "a int")
    rules = el.RuleSet({"r1": "a > 1", "r2": "a > 0"}, on_error="skip")
    with pytest.raises(QueryError, match="rule 'r1'"):
        rules.replace("r1", "a > (((")
    assert (rules.names, rules.skipped) == (("r1", "r2"), ())
    assert matches_of(df, rules) == [["r2"], ["r1", "r2"]]
    rules.replace("r1", "a = 1")
    assert matches_of(df, rules) == [["r1", "r2"], ["r2"]]


def test_skipping_is_no_excuse_for_a_name():
    rules = el.RuleSet({"r1": "a > 1", "bad": "a > ((("}, on_error="skip")
    with pytest.raises(QueryError, match="unknown rule 'r9'"):
        rules.replace("r9", "a > (((")
    with pytest.raises(QueryError, match="exists already"):
        rules.add("r1", "a > (((")
    rules.remove("bad")
    assert rules.skipped == ()


def test_two_rules_of_one_name_are_refused():
    with pytest.raises(QueryError, match="two rules are called 'x'"):
        el.RuleSet.of([SqlRule("x", "a > 1"), SqlRule("x", "a > 2")])


@pytest.mark.parametrize("given", [5, [("a", "b")]])
def test_rules_have_names(given):
    with pytest.raises(QueryError, match="by their names"):
        el.RuleSet(given)


def test_plain_functions_are_predicates(spark):
    df = spark.createDataFrame([(1, 5), (2, 6)], "a int, b int")
    rules = el.RuleSet(
        {"written": "large(b)", "by name": "large()"},
        functions={"large": lambda a: pc.greater(a, 1)},
    )
    assert matches_of(df, rules) == [["written"], ["written", "by name"]]


@pytest.mark.parametrize("given", ["a > 1", 5, lambda: True])
def test_what_is_no_function_is_refused_by_its_name(given):
    with pytest.raises(QueryError, match="function 'odd one'"):
        el.RuleSet({"r1": "a > 1"}, functions={"odd one": given})


def test_a_set_over_two_inputs_keeps_what_it_learned_of_each(spark):
    first = spark.createDataFrame([(1,)], "a int")
    second = spark.createDataFrame([(1, 2)], "a int, b int")
    rules = el.RuleSet({"r1": "a > 0"})
    made = set()
    for df in (first, second) * 3:
        assert matches_of(df, rules) == [["r1"]]
        rules.explain()
        made.add(id(rules._shown))
    assert len(made) == 2


def test_a_report_is_learned_once_whoever_asks():
    learned = []

    class Metrics:
        def get(self, timeout_s):
            return {}

    class Slow(Operator):
        def learn(self, observed, batch):
            threading.Event().wait(0.05)
            learned.extend(each.name for each in observed)
            return []

    reports, df = JobReports(), SimpleNamespace(isStreaming=False)
    reports.lay(df, Slow(), lambda observation: Laid(df, (Pending("report", Metrics()),)))
    threads = [threading.Thread(target=reports.learn, args=(0.0,)) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert learned == ["report"]


def test_a_function_is_asked_only_about_rows_on_which_a_rule_hangs():
    asked = {"f": 0, "g": 0}

    def counted(name, values):
        asked[name] += len(values)
        return pc.greater(values, 0)

    a, b = Operand("`a`", INT, ("a",)), Operand("`b`", INT, ("b",))
    f = FunctionTest(FunctionPredicate(lambda x: counted("f", x), ("`a`",), "f"))
    g = FunctionTest(FunctionPredicate(lambda x: counted("g", x), ("`a`",), "g"))
    rule = Rule("r", Or((And((Compare(b, ">", 0), f)), And((Compare(a, ">=", 0), g)))))
    program = compile_rules([rule])
    columns = {"`a`": pa.array(np.arange(100), pa.int32()), "`b`": pa.array([0] * 100, pa.int32())}
    found, _ = Matcher(program, plan_of(program)).match(
        [columns[each] for each in program.columns], n_rows=100
    )
    assert len(found.rows) == 99
    assert asked == {"f": 0, "g": 100}


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
