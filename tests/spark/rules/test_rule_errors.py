"""``el.RuleSet`` on Spark with rules that may raise: what they share, and when they do."""

from __future__ import annotations

import pyarrow.compute as pc
import pytest
from pyspark.errors import PySparkException

import eddyline as el
from eddyline.errors import QueryError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

MOST = 2**31 - 1


@pytest.fixture(scope="module")
def frame(spark):
    rows = [(0, 1, 2, "1"), (1, MOST, 1, "x"), (2, 10, 0, None), (3, None, 5, "7"), (4, 3, 3, "9")]
    return spark.createDataFrame(rows, "id int, a int, b int, s string").coalesce(1)


def found(frame, rules):
    rows = frame.transform(rules.matches()).collect()
    return {row["id"]: list(row["matches"]) for row in rows}


def test_guarded_rules_share_their_attributes_and_do_not_raise(frame):
    texts = {f"sum {k}": f"a < 1000 AND a + b > {k}" for k in range(20)}
    texts |= {
        "ratio": "b <> 0 AND a / b > 0.9",
        "number": "s <> 'x' AND cast(s AS int) > 5",
        "not": "id <> 1 AND NOT (a + b > 5)",
    }
    rules = el.RuleSet(texts)
    wanted = {
        0: ["sum 0", "sum 1", "sum 2", "not"],
        1: ["ratio"],
        2: [f"sum {k}" for k in range(10)],
        3: ["number"],
        4: [f"sum {k}" for k in range(6)] + ["ratio", "number"],
    }
    assert found(frame, rules) == wanted
    view = rules.facts()
    assert view.natives == ()
    assert [each.name for each in view.constructs].count("try_add(`a`, `b`)") == 1
    assert {each.name for each in view.constructs if each.kind == "errors"} == {
        "errors of a + b",
        "errors of a / b",
        "errors of CAST(s AS INT)",
    }


@pytest.mark.large
@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("a + b > 5", "{'a': 2147483647, 'b': 1}"),
        ("NOT (a + b > 5)", "{'a': 2147483647, 'b': 1}"),
        ("a / b BETWEEN 1 AND 2", "{'a': 10, 'b': 0}"),
        ("cast(s AS int) > 5 OR a IS NULL", "{'s': 'x'}"),
    ],
)
def test_the_error_names_rule_row_and_remedy(frame, text, row):
    rules = el.RuleSet({"fine": "a > 2", "bad": text})
    with pytest.raises(Exception, match=r"rule 'bad'.*on which it hangs.*use try_") as caught:
        found(frame, rules)
    assert row in str(caught.value)
    with pytest.raises(PySparkException):
        frame.where(text).collect()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("struct(true)", "rule 'bad' is not a condition: struct.* is of type struct<col1:boolean>"),
        ("map('a', true)", "rule 'bad' is not a condition: map.* is of type map<string,boolean>"),
        ("thre(b)", "rule 'bad': .* unknown function 'thre'; did you mean 'there'"),
        ("lenght(s) > 1", "rule 'bad': .* unknown function 'lenght'; did you mean 'length'"),
    ],
)
def test_what_is_no_condition_is_refused_before_a_row_is_met(frame, text, says):
    there = el.predicate(lambda b: pc.not_equal(b, 0), reads=["b"])
    rules = el.RuleSet({"fine": "a > 2", "bad": text}, functions={"there": there})
    with pytest.raises(QueryError, match=says):
        frame.transform(rules.matches())


def test_beside_a_python_predicate(frame):
    asked = el.predicate(lambda b: pc.not_equal(b, 0), reads=["b"], name="there")
    rules = el.RuleSet({"both": "there() AND a / b > 0.9"}, functions={"there": asked})
    assert found(frame, rules) == {1: ["both"], 4: ["both"]}


@pytest.mark.large
def test_without_ansi_nothing_raises(spark, frame):
    before = spark.conf.get("spark.sql.ansi.enabled")
    rules = el.RuleSet({"sum": "a + b < 0", "ratio": "NOT (a / b > 1)", "number": "s > 5"})
    try:
        spark.conf.set("spark.sql.ansi.enabled", "false")
        wanted = {0: ["ratio"], 1: ["sum"], 3: ["number"], 4: ["ratio", "number"]}
        assert found(frame, rules) == wanted
        assert not any(each.kind == "errors" for each in rules.facts().constructs)
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)
