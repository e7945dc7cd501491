from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from eddyline.runtime.records import FilterView
from eddyline.stats.costs import CostSums
from eddyline.stats.profile import FilterProfile
from eddyline.watch.explain import explain, explain_json
from eddyline.watch.formatting import TIMES
from tests.watch.fakes import NAMES, a_block, a_view, many_names, nothing_known, some_totals

DROPS = np.array([[1, 0], [1, 1], [0, 1], [0, 0]], dtype=np.bool_)


def two_filters() -> FilterView:
    """Of four rows, a drops two of four; of the other two, b drops one."""
    costs = CostSums.of_rows(4, np.array([100.0, 300.0]))
    profile = FilterProfile.of_sample(("a", "b"), DROPS, costs=costs)
    block = a_block(("a", "b"), profile=profile, order=(0, 1), totals=None)
    return FilterView(name="two", blocks=(block,))


def test_the_facts_of_two_filters():
    block = explain_json(two_filters())["blocks"][0]
    first, second = block["filters"]
    assert first["drop_frac_given_prefix"] == pytest.approx(0.5)
    assert second["drop_frac_given_prefix"] == pytest.approx(0.5)
    assert [first["reach_frac"], second["reach_frac"]] == pytest.approx([1.0, 0.5])
    assert [first["cost_ns"], second["cost_ns"]] == pytest.approx([100.0, 300.0])
    assert [first["cost_frac"], second["cost_frac"]] == pytest.approx([0.4, 0.6])
    assert block["cost_ns"] == pytest.approx(250.0)
    assert block["saving"] == pytest.approx(1.0)
    assert block["n_rows"] is None


def test_positions_refer_to_the_order_in_force():
    view = two_filters()
    turned = replace(view, blocks=(replace(view.blocks[0], order=(1, 0)),))
    filters = explain_json(turned)["blocks"][0]["filters"]
    assert [row["filter_id"] for row in filters] == ["b", "a"]
    assert [row["written_position"] for row in filters] == [1, 0]
    assert [row["cost_ns"] for row in filters] == pytest.approx([300.0, 100.0])


def test_everything_known_is_said():
    text = explain(a_view())
    for part in (
        "suspicious packets",
        "order is learned",
        "4,800,000 rows reached this block, 9,100,000 evaluations made, 0.9 % of them for pro",
        "suspicious raised on 12 rows",
        "cast(x AS INT) > 3",
        "it may raise",
        "after batch 41",
        "ratio before: 0.0123",
        f"{TIMES} less",
    ):
        assert part in text
    assert "nan" not in text


def test_no_evidence_is_said_instead_of_zeros():
    text = explain(nothing_known())
    assert "No evidence yet" in text
    assert "%" not in text
    assert "nan" not in text
    block = explain_json(nothing_known())["blocks"][0]
    assert block["cost_ns"] is None
    assert {row["drop_frac_given_prefix"] for row in block["filters"]} == {None}


def test_what_is_not_counted_is_left_out():
    totals = replace(some_totals(), n_evaluations=0, n_extra=0)
    text = explain(a_view(blocks=(a_block(totals=totals),)))
    assert "4,800,000 rows reached this block." in text
    assert "evaluations" not in text
    empty = FilterProfile.empty(NAMES)
    assert "rows reached this block" not in explain(
        a_view(blocks=(a_block(profile=empty, totals=empty),))
    )


def test_a_note_of_a_block_is_said_once():
    view = a_view(notes=(a_block().note, "another"))
    assert explain(view).count(a_block().note) == 1


def test_evidence_without_costs_leaves_the_costs_out():
    profile = FilterProfile.of_sample(("a", "b"), DROPS)
    view = FilterView(name="two", blocks=(a_block(("a", "b"), profile=profile, totals=None),))
    text = explain(view)
    assert "No cost has been measured yet" in text
    assert "50.0 %" in text
    assert "nan" not in text


def test_a_cost_as_written_from_partial_outcomes_is_called_a_bound():
    profile = replace(two_filters().blocks[0].profile, basis=(1, 0))
    block = a_block(("a", "b"), profile=profile, order=(1, 0))
    assert "upper bound" in explain(a_view(blocks=(block,)))
    assert "upper bound" not in explain(two_filters())


def test_rows_that_all_passed_are_evidence():
    profile = FilterProfile.of_sample(("a", "b"), np.zeros((9, 2), dtype=np.bool_))
    view = FilterView(name="two", blocks=(a_block(("a", "b"), profile=profile, totals=None),))
    assert "every profiled row passed" in explain(view)
    assert explain_json(view)["blocks"][0]["filters"][1]["reach_frac"] == 1.0


def test_two_hundred_filters_show_the_first_ones():
    view = a_view(blocks=(a_block(many_names(200)),))
    text = explain(view)
    assert "… 180 more" in text
    assert len(text.splitlines()) < 60
    assert "… 195 more" in explain(view, max_filters=5)
    assert len(explain_json(view)["blocks"][0]["filters"]) == 200


def test_lines_keep_to_the_width():
    long = ("a very long predicate " * 20, *NAMES[1:])
    view = a_view(name="x", blocks=(a_block(long),), notes=("word " * 80,))
    for width in (60, 80, 140):
        assert max(len(line) for line in explain(view, width=width).splitlines()) <= width


def test_colours_come_only_when_asked_for():
    assert "\x1b[" not in explain(a_view())
    assert "\x1b[" in explain(a_view(), color=True)


def test_users_texts_are_neither_markup_nor_control_codes():
    block = a_block(("[red]x[/red]", "\x1b[31mevil"))
    text = explain(a_view(name="[bold]q[/bold] :smile:", blocks=(block,)))
    assert "[red]x[/red]" in text
    assert "[bold]q[/bold] :smile:" in text
    assert "\x1b" not in text


def test_a_conjunction_without_blocks_says_so():
    assert "no filter" in explain(a_view(blocks=())).lower()


def test_the_facts_are_plain_values():
    facts = explain_json(a_view())
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts


def test_watching_loads_no_pyspark():
    rooms = "eddyline.watch.explain, eddyline.watch.terminal.progress, eddyline.watch.html.report"
    code = f"import sys, {rooms}; sys.exit('pyspark' in sys.modules or 'plotly' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
