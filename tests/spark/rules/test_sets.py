"""Rules of a set: names, functions, replacements; those of another set; sets that are pickled."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddyline as el
from eddyline.errors import QueryError
from eddyline.query.predicates import FunctionPredicate
from eddyline.query.rules.sources import SqlRule

SIGMA = """
title: Odd process
id: 6f3e2987-db24-4c78-a860-b4f4095a7095
logsource:
    category: process_creation
detection:
    selection:
        Image: odd.exe
    condition: selection
level: high
"""


def texts(rules):
    return {name: each["text"] for name, each in rules.info.items()}


def test_sigma_rules_are_added_with_what_is_known_of_them():
    rules = el.RuleSet({"big": "n > 5"})
    rules.add(el.sigma.load(SIGMA, cache=False))
    assert rules.names == ("big", "6f3e2987-db24-4c78-a860-b4f4095a7095")
    assert rules.info[rules.names[1]]["title"] == "Odd process"
    assert rules.info[rules.names[1]]["level"] == "high"


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_what_another_set_has_skipped_is_skipped_here(on_error):
    other = el.RuleSet({"new": "n = 1", "bad": "n > ((("}, on_error="skip")
    rules = el.RuleSet({"big": "n > 5"}, on_error=on_error)
    rules.add(other)
    assert rules.names == ("big", "new")
    assert rules.skipped == other.skipped
    assert el.RuleSet(other).names == ("new",)


def test_names_that_are_taken_are_told_and_nothing_is_added():
    rules = el.RuleSet({"a": "n = 1", "b": "n = 2", "c": "n = 3"})
    for other in ({"a": "n = 4", "b": "n = 5", "new": "n = 6"}, {"a": "n > (((", "b": "n > ((("}):
        with pytest.raises(QueryError, match="rules 'a', 'b' exist already"):
            rules.add(el.RuleSet(other, on_error="skip"))
    assert texts(rules) == {"a": "n = 1", "b": "n = 2", "c": "n = 3"}
    assert rules.skipped == ()


def test_rules_are_replaced_by_those_of_another_set():
    rules = el.RuleSet({"a": "n = 1", "b": "n = 2", "bad": "n > ((("}, on_error="skip")
    rules.replace(el.RuleSet({"b": "n = 4", "bad": "n + ((("}, on_error="skip"))
    assert list(texts(rules).items()) == [("a", "n = 1"), ("b", "n = 4")]
    assert [each.text for each in rules.skipped] == ["n + ((("]
    for other in ({"a": "n = 5", "new": "n = 6"}, {"a": "n = 5", "b": "n > ((("}):
        with pytest.raises(QueryError, match=r"unknown rule 'new'|rule 'b' is not replaced"):
            rules.replace(el.RuleSet(other, on_error="skip"))
    assert texts(rules) == {"a": "n = 1", "b": "n = 4"}


def test_a_sigma_rule_as_text_is_refused_with_the_way_to_add_it():
    rules = el.RuleSet({})
    for add in (lambda: rules.add(SIGMA), lambda: rules.add("odd", SIGMA)):
        with pytest.raises(QueryError, match=r"add\(el\.sigma\.load\(…\)\)"):
            add()
    assert rules.names == ()


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


@pytest.mark.parametrize("given", ["a > 1", 5, lambda: True])
def test_what_is_no_function_is_refused_by_its_name(given):
    with pytest.raises(QueryError, match="function 'odd one'"):
        el.RuleSet({"r1": "a > 1"}, functions={"odd one": given})


# -- over DataFrames ------------------------------------------------------------------------------


def matches_of(df, rules):
    rows = df.transform(rules.matches("m", keep_unmatched=True)).orderBy("a").collect()
    return [list(row.m) for row in rows]


@pytest.mark.large
@pytest.mark.spark
def test_a_rule_that_cannot_be_read_leaves_the_one_it_should_replace(spark):
    df = spark.createDataFrame([(1,), (2,)], "a int")
    rules = el.RuleSet({"r1": "a > 1", "r2": "a > 0"}, on_error="skip")
    with pytest.raises(QueryError, match="rule 'r1'"):
        rules.replace("r1", "a > (((")
    assert (rules.names, rules.skipped) == (("r1", "r2"), ())
    assert matches_of(df, rules) == [["r2"], ["r1", "r2"]]
    rules.replace("r1", "a = 1")
    assert matches_of(df, rules) == [["r1", "r2"], ["r2"]]


@pytest.mark.spark
def test_plain_functions_are_predicates(spark):
    df = spark.createDataFrame([(1, 5), (2, 6)], "a int, b int")
    rules = el.RuleSet(
        {"written": "large(b)", "by name": "large()"},
        functions={"large": lambda a: pc.greater(a, 1)},
    )
    assert matches_of(df, rules) == [["written"], ["written", "by name"]]


@pytest.mark.large
@pytest.mark.spark
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


@pytest.mark.parametrize("text", ["NULL", "(NULL)", "if(n > 1, NULL, NULL)"])
def test_a_rule_that_is_null_alone_is_no_condition(spark, text):
    with pytest.raises(QueryError, match="is not a condition: it is of type void"):
        spark.range(3).selectExpr("id AS n").transform(el.RuleSet({"r": text}).matches())


def test_a_rule_that_is_added_to_rules_of_files_raises(tmp_path):
    (tmp_path / "broken.yml").write_text("title: x\n  bad: [\nfoo")
    with pytest.warns(
        UserWarning, match=r"1 of 1 Sigma rules do not run; .*broken\.yml:2: not YAML"
    ):
        rules = el.sigma.load(tmp_path)
    with pytest.raises(QueryError, match="rule 'bad' cannot be read as SQL"):
        rules.add("bad", "a >")
    assert (rules.names, [each.name for each in rules.skipped]) == ((), ["broken"])


def test_a_set_says_how_many_rules_it_has():
    assert repr(el.RuleSet({"a": "k > 1"})) == "RuleSet(1 rule)"
    assert repr(el.RuleSet({"a": "k > 1", "b": "k > 2"})) == "RuleSet(2 rules)"


# -- pickled, with Python predicates however these were written -----------------------------------


@el.predicate("n")
def odd(n):
    return pc.equal(pc.bit_wise_and(n, 1), 1)


def below(limit):
    @el.predicate("n")
    def is_below(n):
        return pc.less(n, limit)

    return is_below


def a_set():
    functions = {
        "odd": odd,
        "is_below": below(3),
        "one": el.predicate(lambda n: pc.equal(n, 1), reads=["n"]),
    }
    texts = {"r1": "odd(n)", "r2": "is_below(n) OR one(n)", "bad": "n > ((("}
    return el.RuleSet({**texts, "r3": odd}, functions=functions, on_error="skip", name="p", seed=4)


def test_a_set_with_decorated_functions_closures_and_lambdas_is_pickled():
    rules = a_set()
    for again in (pickle.loads(pickle.dumps(rules)), copy.deepcopy(rules)):
        assert (again.name, again.names, again.skipped) == ("p", rules.names, rules.skipped)
        assert (again.options, again.on_error) == (rules.options, "skip")
        assert {name: each["text"] for name, each in again.info.items()} == {
            "r1": "odd(n)",
            "r2": "is_below(n) OR one(n)",
            "r3": "odd(n)",
        }
        functions = again.store.now()[1]["r1"].functions
        n = pa.array([1, 2, 3])
        assert all(isinstance(each, FunctionPredicate) for each in functions.values())
        assert functions["odd"](n).to_pylist() == [True, False, True]
        assert functions["is_below"](n).to_pylist() == [True, True, False]
        assert functions["one"](n).to_pylist() == [True, False, False]


MAKE = """
import pickle, sys
import pyarrow.compute as pc
import eddyline as el

@el.predicate("n")
def odd(n):
    return pc.equal(pc.bit_wise_and(n, 1), 1)

rules = el.RuleSet({"odd": "odd(n)"}, functions={"odd": odd})
sys.stdout.buffer.write(pickle.dumps(rules))
"""


@pytest.mark.large("starts a Python process")
def test_a_set_of_a_script_arrives_in_another_process():
    done = subprocess.run(
        [sys.executable, "-c", MAKE], capture_output=True, timeout=120, check=True
    )
    again = pickle.loads(done.stdout)
    assert again.names == ("odd",)
    assert again.store.now()[1]["odd"].functions["odd"](pa.array([1, 2])).to_pylist() == [
        True,
        False,
    ]
