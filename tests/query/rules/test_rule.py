"""``el.Rule``: level, tags and title of a rule, and rules chosen by them."""

from __future__ import annotations

import pickle

import pytest

import eddyline as el
from eddyline.errors import OptionError, QueryError
from eddyline.query.rules.rule import LEVELS, Rule, chosen
from eddyline.query.rules.sources import rule_source

GIVEN = {
    "plain": "n = 1",
    "low": el.Rule("n = 2", level="low", tags=["web"]),
    "high": el.Rule("n = 3", level="high", tags=("web", "pii"), title="Three"),
    "worst": el.Rule("n = 4", level="critical", tags={"pii"}),
}
SOURCES = {name: rule_source(name, each) for name, each in GIVEN.items()}


def test_a_rule_is_a_value_with_its_facts():
    rule = el.Rule("n = 1", level="low", tags={"b", "a"}, title="One")
    assert (rule.condition, rule.level, rule.tags, rule.title) == (
        "n = 1",
        "low",
        ("a", "b"),
        "One",
    )
    assert rule == pickle.loads(pickle.dumps(rule))
    assert el.Rule("n = 1").info == {"title": None, "level": None, "tags": ()}
    assert [Rule("n = 1", level=each).rank for each in (None, *LEVELS)] == [-1, 0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"level": "hgih"}, "unknown level 'hgih'; known: informational, .*did you mean 'high'"),
        ({"level": "High"}, "did you mean 'high'"),
        ({"level": 3}, "unknown level 3"),
        ({"tags": "pii"}, r"tags of a rule are a list of texts, such as \['pii'\], got 'pii'"),
        ({"tags": [1]}, "the tag of a rule is a text, got 1"),
        ({"tags": [""]}, "the tag of a rule is a text, got ''"),
        ({"tags": None}, "a list of texts"),
        ({"title": 5}, "the title of a rule is a text, got 5"),
    ],
)
def test_facts_that_are_none_are_refused(facts, said):
    with pytest.raises(OptionError, match=said):
        el.Rule("n = 1", **facts)


def test_the_condition_is_checked_with_the_name_of_the_rule():
    with pytest.raises(QueryError, match="rule 'r'"):
        rule_source("r", el.Rule(5))


@pytest.mark.parametrize(
    ("facts", "names"),
    [
        ({"level": "high"}, ["high"]),
        ({"level": ("low", "critical")}, ["low", "worst"]),
        ({"level": "medium"}, []),
        ({"min_level": "high"}, ["high", "worst"]),
        ({"min_level": "informational"}, ["low", "high", "worst"]),
        ({"tag": "pii"}, ["high", "worst"]),
        ({"tag": ["pii", "web"]}, ["low", "high", "worst"]),
        ({"tag": "web", "min_level": "medium"}, ["high"]),
        ({"tag": None}, ["plain", "low", "high", "worst"]),
    ],
)
def test_rules_are_chosen_by_all_that_is_said(facts, names):
    assert list(chosen(SOURCES, facts)) == names


def test_what_no_rule_can_have_is_an_error():
    with pytest.raises(QueryError, match="unknown tag 'pi'; known: web, pii; did you mean 'pii'"):
        chosen(SOURCES, {"tag": "pi"})
    for facts, said in [
        ({"level": 5}, "unknown level 5"),
        ({"tag": 5}, "the tag is a text, got 5"),
    ]:
        with pytest.raises(OptionError, match=said):
            chosen(SOURCES, facts)
    for facts in ({"level": "worse"}, {"min_level": "worse"}, {"level": ["low", "worse"]}):
        with pytest.raises(OptionError, match="unknown level 'worse'"):
            chosen(SOURCES, facts)


@pytest.mark.parametrize("wrong", [{"levels": "high"}, {"levels": "high", "tag": "pii"}])
def test_a_misspelt_way_to_choose_rules_does_not_choose_all_of_them(wrong):
    rules = el.RuleSet(GIVEN)
    for each in (rules.remove, rules.select):
        with pytest.raises(OptionError, match=r"unknown way to choose .*did you mean 'level'"):
            each(**wrong)
    assert list(rules.names) == list(GIVEN)


def test_facts_are_no_part_of_what_a_rule_means():
    again = rule_source("high", "n = 3")
    assert again == SOURCES["high"]
    assert again.meaning == SOURCES["high"].meaning
    assert rule_source("high", "n = 5") != again
