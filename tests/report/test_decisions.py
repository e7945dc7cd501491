"""Decisions in words: plans, evidence and sentences, as report and explanation have them."""

from __future__ import annotations

import numpy as np
import pytest

from eddyline.aggregates.loop import AggregateProfile, AggregateView
from eddyline.options import FilterOptions
from eddyline.ordering.protocol import rivals
from eddyline.report.aggregates import sections
from eddyline.report.decisions import ROUTING, decision_texts, last_change, sentence
from eddyline.report.formatting import Wording
from eddyline.report.joins import WORDINGS
from eddyline.report.sections import Section, arranged
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.order_loop import OrderLoop
from eddyline.runtime.records import History
from eddyline.stats.costs import CostSums
from eddyline.stats.profile import FilterProfile
from tests.report.fakes import a_join_view, a_view, run_of, sections_of
from tests.report.pages import page_of

GAINS = {"f3": {"attribute": "port", "gain_ratio": 0.12345, "g_statistic": 8.0}}
SPLIT = {"shape": [4], "splits": ["bin 7: s in 2, t in 2"]}
ROUTES = {"by": ["port", "proto"], "orders": [["a", "b"], ["b", "a"]]}
ALL = {**WORDINGS, ("arrow#2 of s", "routes"): ROUTING, ("native", "routes"): ROUTING}


@pytest.mark.parametrize(
    ("component", "event", "plan", "text"),
    [
        ("join", "grid", [4, 2], "4 × 2"),
        ("join", "grid", SPLIT, "4 with bin 7: s in 2, t in 2"),
        ("arrow#2 of s", "routes", ROUTES, "classes by port, proto in 2 orders"),
        ("native", "routes", None, "-"),
        ("sketch", "size", [60, 5], "[60, 5]"),
        ("sketch", "grid", [60, 5], "[60, 5]"),
        ("sketch", "routes", ROUTES, "{by: [port, proto], orders: [[a, b], [b, a]]}"),
        ("sketch", "shape", SPLIT, "{shape: [4], splits: [bin 7: s in 2, t in 2]}"),
    ],
)
def test_a_plan_reads_as_its_operator_says(component, event, plan, text):
    before, after, _ = decision_texts(JournalEntry(4, component, event, None, plan), ALL)
    assert (before, after) == ("-", text)


def test_evidence_reads_as_its_operator_says():
    told, plain = (
        decision_texts(JournalEntry(4, component, "routes", evidence={"filters": GAINS}), ALL)[2]
        for component in ("native", "sketch")
    )
    assert told == "filters: f3 by port (0.123)"
    assert "gain ratio: 0.123" in plain


def test_the_page_writes_plans_in_the_words_of_each_operator(tmp_path):
    journal = (
        JournalEntry(4, "join", "grid", [4, 2], [2, 4]),
        JournalEntry(5, "sketch", "size", [60, 5], [70, 5]),
        JournalEntry(6, "tree", "depth", [3], [4]),
    )
    own = Section("", wordings={("tree", "depth"): Wording(lambda plan: f"{plan[0]} levels")})
    view = a_join_view()
    sections = tuple(arranged([*sections_of(view), own]))
    page = page_of(run_of(view, journal=journal, sections=sections), tmp_path)
    assert "4 × 2" in page
    assert "[60, 5]" in page
    assert "60 × 5" not in page
    assert "3 levels" in page


def test_every_block_brings_its_words_for_routes():
    found = {key for each in sections_of(a_view()) for key in each.wordings}
    assert found == {(each.component, "routes") for each in a_view().blocks}


LOWPORT = {
    "position": 0,
    "filter": "hexa",
    "ratio": 0.0,
    "better_filter": "lowport",
    "better_ratio": 0.0325,
    "n_tuples": 800,
}
SHARES = {"drop_frac": 0.0, "better_drop_frac": 0.39}
COSTS = {"filter_cost_ns": 480.0, "better_filter_cost_ns": 12.0}
PROBES = {"combinations_per_row": {"dns": 12.5, "ja3": 0.25}}
TESTS = {"why": "another order of Python tests is cheaper", "rule": "beacon"}


def entry(event, evidence, before=None, after=None, component="native"):
    return JournalEntry(4, component, event, before, after, evidence)


@pytest.mark.parametrize(
    ("evidence", "said"),
    [
        (
            LOWPORT | SHARES,
            "Of the newest rows that reached it, hexa dropped 0 %, lowport 39 %: lowport goes "
            "first.",
        ),
        (
            LOWPORT | SHARES | COSTS | {"cost_ns": 500.0, "proposed_cost_ns": 300.0},
            "Of the newest rows that reached it, hexa dropped 0 % at 480 ns a row, lowport 39 % "
            "at 12 ns a row: lowport goes first. A row is estimated to cost 300 ns instead of "
            "500 ns.",
        ),
        (LOWPORT, "hexa dropped none of the newest rows that reached it: lowport goes first."),
        (
            LOWPORT | {"ratio": 0.01},
            "For its cost, lowport dropped 3.25 × as many of the newest rows as hexa: lowport "
            "goes first.",
        ),
        (PROBES, "A row is joined with 0.25 rows of ja3, 12.5 rows of dns on average."),
        (TESTS, "Rule beacon: another order of Python tests is cheaper."),
        ({"why": "another tree"}, "Another tree."),
    ],
)
def test_an_order_says_what_filters_dropped_and_cost(evidence, said):
    assert sentence(entry("order", evidence, ["hexa", "lowport"], ["lowport", "hexa"])) == said


def test_a_filter_that_does_not_come_first_goes_before_the_other():
    found = entry("order", LOWPORT | SHARES, ["a", "hexa", "lowport"], ["a", "lowport", "hexa"])
    assert sentence(found).endswith("lowport goes before hexa.")


@pytest.mark.parametrize(
    ("evidence", "said"),
    [
        (
            {"filter": "a", "position": 0, "drop_frac_before": 0.004, "drop_frac_now": 0.75},
            "a dropped 75 % of the newest rows that reached it, and 0.4 % before. Older evidence "
            "no longer counts.",
        ),
        (
            {"detector": "adwin", "filter": "b", "given": ["a"], "n_fresh": 12, "n_tuples": 80},
            "The share that b drops of the rows behind a has changed. Older evidence no longer "
            "counts.",
        ),
        (
            {"detector": "adwin", "costs_of": ["a", "b", "c", "d"], "n_tuples": 80},
            "The cost of a, b, c, 1 more has changed. Older evidence no longer counts.",
        ),
    ],
)
def test_evidence_that_goes_says_what_has_changed(evidence, said):
    assert sentence(entry("stale", evidence)) == said


def test_a_situation_that_comes_again_is_named_with_its_largest_difference():
    evidence = {
        "then": {"a": 0.5, "b": 0.1},
        "now": {"a": 0.52, "b": 0.2},
        "distance": 0.4,
        "held_for_rows": 120_000,
        "sampled_rows": 640,
    }
    assert sentence(entry("recall", evidence, ["a", "b"], ["b", "a"])) == (
        "The 640 rows sampled last look like a situation that held for 120,000 rows before: its "
        "plan comes back. They differ most in b: 10 % then, 20 % now."
    )
    mistaken = {"taken_for": {"a": 0.5}, "now": {"a": 1.0}}
    assert sentence(entry("mistaken", mistaken)).endswith("in a: 50 % then, 100 % now.")


ROUTED = {
    "filters": {"a": {"attribute": "port", "gain_ratio": 0.1, "g_statistic": 8.0}},
    "cost_ns": 800.0,
    "routed_cost_ns": 300.0,
    "route_cost_ns": 40.0,
    "saved_ns": 460.0,
    "standard_error_ns": 9.0,
    "n_rows": 2_000,
}
STOPPED = {"reason": "routing stopped paying", "n_rows": 9, "route_cost_ns": 40.0, "costs_ns": [1]}


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            entry("routes", ROUTED, None, {"by": ["port", "proto"], "orders": []}),
            "Rows that differ in port, proto get orders of their own: a row is estimated to cost "
            "340 ns instead of 800 ns. Measured on 2,000 sampled rows.",
        ),
        (
            entry("routes", STOPPED),
            "To tell classes of rows apart costs 40 ns a row, and no longer saves that.",
        ),
        (entry("routes", {"reason": "nothing to route"}), "Nothing to route."),
        (
            entry("place", {"rows_per_cell": 1.1, "n_rows": 9, "n_handled": 5}, "early", "late"),
            "A cell has 1.1 rows on average: rows are shuffled as they are.",
        ),
        (
            entry("place", {"rows_per_cell": 9, "n_rows": 9, "n_handled": 50}, "early", "driver"),
            "A cell has 9 rows on average, and the newest batch had 50 to handle: the driver "
            "answers the cells, without tasks for them.",
        ),
        (
            entry("grid", {"rows_in_fullest_before": 1_234.0, "rows_in_fullest_after": 300.0}),
            "The fullest bucket gets 300 of the newest rows instead of 1,234.",
        ),
        (
            entry("way", {"table_rows": 9, "table_bytes": 20}, "broadcast", "buckets"),
            "The tables have 9 rows (20 B): they are shuffled into buckets as the rows are.",
        ),
        (
            entry(
                "results",
                {"n_combinations": 9_000, "n_products": 70, "combinations_per_product": 128.6},
                "combinations",
                "products",
            ),
            "The join found 9,000 combinations, which are 70 products of counts and sums by key or "
            "fewer. The aggregate gets products of counts and sums by key.",
        ),
        (
            entry("sharing", {"why": "first sample", "rows": 900}, "a", "b"),
            "First sample.",
        ),
        (
            entry("sharing", {"why": "rows meet another number of rules", "before": 3, "after": 7}),
            "Rows meet another number of rules: 7 on average, 3 before.",
        ),
        (
            entry("sharing", {"why": "a bitmap block drops other rows", "drop_frac": 0.4}),
            "A bitmap block drops other rows: 40 % now.",
        ),
        (
            entry("sharing", {"why": "a look is due", "statement_ns": 90, "matcher_ns": 300}),
            "A look is due. A row is estimated to cost 90 ns by one statement, 300 ns by the "
            "matcher.",
        ),
        (
            entry(
                "sharing",
                {
                    "template": "t",
                    "alarms": 3,
                    "estimated_ns": {"union": 90.0, "covered": 20.0},
                    "at_most_ns": 30.0,
                    "took_ns": 95.0,
                },
                "union",
                "covered",
            ),
            "A segment is estimated to cost 20 ns covered, 90 ns union. It took 95 ns union.",
        ),
    ],
)
def test_other_decisions_say_what_was_measured(found, said):
    assert sentence(found) == said


def test_a_cache_says_what_it_saves():
    evidence = {
        "r ⋈ s for t": {"benefit_ns": 9_000.0, "cost_ns": 400.0},
        "r ⋈ t for s": {"benefit_ns": -20.0, "cost_ns": 400.0},
        "s ⋈ t for r": {"benefit_ns": None, "cost_ns": None},
        "stays": {"benefit_ns": 1.0, "cost_ns": 1.0},
    }
    before, after = ["r ⋈ t for s", "s ⋈ t for r", "stays"], ["r ⋈ s for t", "stays"]
    assert sentence(entry("caches", evidence, before, after)) == (
        "The cache r ⋈ s for t is used from now on: it is estimated that it saves 9 µs and costs "
        "400 ns. The cache r ⋈ t for s is not used any more: it is estimated that it saves "
        "nothing and costs 400 ns. The cache s ⋈ t for r is not used any more."
    )


@pytest.mark.parametrize(
    "event",
    ["order", "stale", "recall", "mistaken", "routes", "place", "grid", "way", "caches", "sharing"],
)
@pytest.mark.parametrize(
    "evidence",
    [
        {},
        {"n_tuples": 3},
        {"filter": None, "better_filter": 7, "ratio": "x", "better_ratio": []},
        {"drop_frac_now": float("nan"), "drop_frac_before": None, "filter": "a"},
        {"why": 3, "reason": None, "saved_ns": {}, "estimated_ns": {"a": "b"}, "x": None},
    ],
)
def test_evidence_of_another_version_has_no_sentence_or_one_without_its_numbers(event, evidence):
    assert isinstance(sentence(entry(event, evidence, "a", "b")), str)
    assert "nan" not in sentence(entry(event, evidence, "a", "b"))


def test_the_explanation_says_why_before_the_evidence():
    (section,) = last_change(entry("order", LOWPORT | SHARES, ["hexa", "lowport"], ["hexa"]))
    names = [name for name, _ in section.parts[0].pairs]
    assert names == ["before", "after", "evidence"]  # lowport is not in it
    found = entry("order", LOWPORT | SHARES, ["hexa", "lowport"], ["lowport", "hexa"])
    (section,) = last_change(found)
    assert [name for name, _ in section.parts[0].pairs] == ["before", "after", "why", "evidence"]


def a_profile():
    """Return 100 rows: the first filter drops 20, the second 60 of which 10 meet the first."""
    drops = np.zeros((100, 2), dtype=bool)
    drops[:20, 0] = True
    drops[10:70, 1] = True
    costs = CostSums.of_rows(100, np.array([50.0, 10.0]))
    return FilterProfile.of_sample(("hexa", "lowport"), drops, prob=1.0, costs=costs)


def test_the_loop_notes_what_both_filters_drop_and_cost():
    loop = OrderLoop("native", ("hexa", "lowport"), FilterOptions(), min_fill=10)
    entries = loop.step(a_profile(), 0)
    (found,) = [each for each in entries if each.event == "order"]
    assert found.after == ["lowport", "hexa"]
    assert (found.evidence["drop_frac"], found.evidence["better_drop_frac"]) == (0.2, 0.6)
    costs = found.evidence["filter_cost_ns"], found.evidence["better_filter_cost_ns"]
    assert costs == (50.0, 10.0)
    assert "hexa dropped 20 % at 50 ns a row, lowport 60 % at 10 ns a row" in sentence(found)


def test_behind_another_filter_only_rows_that_reach_it_count():
    drops = np.array([[1, 1, 0], [1, 0, 0], [0, 1, 1], [0, 0, 1], [0, 0, 1], [0, 0, 0]], dtype=bool)
    costs = CostSums.of_rows(6, np.ones(3))
    profile = FilterProfile.of_sample(("a", "b", "c"), drops, prob=1.0, costs=costs)
    found = rivals((0, 1, 2), (0, 2, 1), profile, {})
    assert (found["filter"], found["drop_frac"]) == ("b", 0.25)
    assert (found["better_filter"], found["better_drop_frac"]) == ("c", 0.75)


@pytest.mark.parametrize("position", [7, -1, "first", None, 2])
def test_a_position_that_is_none_of_the_order_has_no_rivals(position):
    profile = a_profile()
    assert rivals((0, 1), (1, 0), profile, {"position": position}) == {}
    assert rivals((0, 1), (0, 1), profile, {}) == {}


def view():
    profile = AggregateProfile(10, 5, 0, 7, 0)
    plain = ("busy", ("NOW",), ("k",), ("COUNT(*)", "AVG(v)"), "early", profile, profile)
    return AggregateView(*plain, 0, 0, 0, 0, 1, 1.0)


def test_a_decision_says_what_its_plans_mean():
    words = {
        key: word for each in sections(view(), History()) for key, word in each.wordings.items()
    }
    moved = JournalEntry(3, "aggregate", "place", "early", "late")
    before, after, _ = decision_texts(moved, words)
    assert before.startswith("early: rows become cells before they are shuffled")
    assert after.startswith("late: rows are shuffled, and become cells once")
