"""Rules come from another set, such as one of Sigma rules: all of them, or none."""

from __future__ import annotations

import pytest

import eddyline as el
from eddyline.errors import QueryError

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
    pytest.importorskip("sigma.collection", reason="pip install 'eddyline[sigma]'")
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
