from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from eddyline.filters.binding import Pinned
from eddyline.filters.loop import FilterView
from eddyline.report.filters import FILTERS
from eddyline.report.formatting import TIMES
from eddyline.report.html import write_report
from eddyline.report.sections import Table, sections_json
from eddyline.report.terminal import explain
from eddyline.stats.costs import CostSums
from eddyline.stats.profile import FilterProfile
from tests.report.fakes import (
    NAMES,
    SWAPPED,
    a_block,
    a_run,
    a_view,
    many_names,
    nothing_known,
    run_of,
    sections_of,
    some_totals,
    told,
)

DROPS = np.array([[1, 0], [1, 1], [0, 1], [0, 0]], dtype=np.bool_)


def two_filters() -> FilterView:
    """Of four rows, a drops two of four; of the other two, b drops one."""
    costs = CostSums.of_rows(4, np.array([100.0, 300.0]))
    profile = FilterProfile.of_sample(("a", "b"), DROPS, costs=costs)
    block = a_block(("a", "b"), profile=profile, order=(0, 1), totals=None)
    return FilterView(name="two", blocks=(block,))


def rows_of(view: FilterView) -> list[dict[str, object]]:
    """Return the table of the filters of the first block, by the titles of its columns."""
    (block,) = [each for each in sections_of(view) if " block: " in each.title]
    (table,) = [each for each in block.parts if isinstance(each, Table)]
    titles = [column.title for column in table.columns]
    return [dict(zip(titles, row, strict=True)) for row in table.rows]


def test_of_what_filters_nothing_nothing_is_said(tmp_path):
    nothing = FilterView(name="all", blocks=())
    assert "filter" not in told(nothing)
    pinned = replace(nothing, pinned=(Pinned("p", "rand() < 0.5", "it draws lots"),))
    assert "No filter of it has an order to learn." in told(pinned)
    page = write_report(run_of(nothing, ()), tmp_path / "report.html").read_text("utf-8")
    assert "No filter" not in page


def test_the_facts_of_two_filters():
    first, second = rows_of(two_filters())
    assert first["drops"] == pytest.approx(0.5)
    assert second["drops"] == pytest.approx(0.5)
    assert [first["reached by"], second["reached by"]] == pytest.approx([1.0, 0.5])
    assert [first["cost each"], second["cost each"]] == pytest.approx([100.0, 300.0])
    assert [first["of the cost"], second["of the cost"]] == pytest.approx([0.4, 0.6])
    assert "Expected cost 250 ns per row, as written." in told(two_filters())
    assert "rows reached this block" not in told(two_filters())


def test_positions_refer_to_the_order_in_force():
    view = two_filters()
    turned = replace(view, blocks=(replace(view.blocks[0], order=(1, 0)),))
    rows = rows_of(turned)
    assert [row["filter"] for row in rows] == ["b: b(payload)", "a: a(payload)"]
    assert [row["#"] for row in rows] == [1, 2]
    assert [row["written"] for row in rows] == [2, 1]
    assert [row["cost each"] for row in rows] == pytest.approx([300.0, 100.0])


def test_everything_known_is_said():
    text = told(a_view(), SWAPPED)
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
    text = told(nothing_known())
    assert "No evidence" in text
    assert "%" not in text
    assert "nan" not in text
    assert "cost" not in text
    assert {len(row) for row in rows_of(nothing_known())} == {3}


def test_what_is_not_counted_is_left_out():
    totals = replace(some_totals(), n_evaluations=0, n_extra=0)
    text = told(a_view(blocks=(a_block(totals=totals),)))
    assert "4,800,000 rows reached this block." in text
    assert "evaluations" not in text
    empty = FilterProfile.empty(NAMES)
    assert "rows reached this block" not in told(
        a_view(blocks=(a_block(profile=empty, totals=empty),))
    )


def test_a_note_of_a_block_is_said_once():
    view = a_view(notes=(a_block().note, "another"))
    assert told(view).count(a_block().note) == 1


def test_evidence_without_costs_leaves_the_costs_out():
    profile = FilterProfile.of_sample(("a", "b"), DROPS)
    view = FilterView(name="two", blocks=(a_block(("a", "b"), profile=profile, totals=None),))
    text = told(view)
    assert "No cost was measured" in text
    assert "50.0 %" in text
    assert "nan" not in text


def test_a_cost_as_written_from_partial_outcomes_is_called_a_bound():
    profile = replace(two_filters().blocks[0].profile, basis=(1, 0))
    block = a_block(("a", "b"), profile=profile, order=(1, 0))
    assert "upper bound" in told(a_view(blocks=(block,)))
    assert "upper bound" not in told(two_filters())


def test_a_cost_says_what_it_comes_to_over_the_rows():
    text = " ".join(told(a_view(blocks=(replace(a_block(), totals=some_totals()),))).split())
    assert "2.9 × less than as written (9.16 µs): 28.8 s of work less over the rows so far." in text


def test_what_a_run_saved_is_said_once_by_its_batches_and_not_by_the_newest_evidence():
    run = run_of(
        a_view(blocks=(replace(a_block(), totals=some_totals()),)), a_run().history.batches
    )
    text = " ".join(explain("q", run.sections).split())
    assert "over the run its expected cost is" in text
    assert "By the newest evidence it costs 3.16 µs per row, 9.16 µs as written." in text
    assert "over the rows so far" not in text


def test_rows_that_all_passed_are_evidence():
    profile = FilterProfile.of_sample(("a", "b"), np.zeros((9, 2), dtype=np.bool_))
    view = FilterView(name="two", blocks=(a_block(("a", "b"), profile=profile, totals=None),))
    assert "every profiled row passed" in told(view)
    assert rows_of(view)[1]["reached by"] == 1.0


def test_two_hundred_filters_show_the_first_ones():
    view = a_view(blocks=(a_block(many_names(200)),))
    text = told(view)
    assert "… 180 more" in text
    assert len(text.splitlines()) < 60
    assert "… 195 more" in told(view, max_rows=5)
    assert len(rows_of(view)) == 200


def test_nothing_is_said_of_the_order_of_one_filter():
    one, several = (a_run(3, NAMES[:n], (1.0,) * n).history.batches for n in (1, 3))
    for batches, n in ((one, 1), (several, 3)):
        (lead, *_) = run_of(a_view(blocks=(a_block(NAMES[:n]),)), batches).sections
        assert bool(lead.parts) == (n > 1)


def test_a_conjunction_without_blocks_says_so():
    assert "no filter" in told(a_view(blocks=())).lower()


def test_the_facts_are_plain_values():
    found = sections_json(sections_of(a_view(), SWAPPED))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    (block,) = [each for each in found if each["title"] == "arrow block: order is learned"]
    (table,) = [each for each in block["parts"] if each["kind"] == "table"]
    assert [(each["title"], each["unit"]) for each in table["columns"]] == [
        (each.title, each.unit) for each in FILTERS
    ]
    assert table["rows"][0][:3] == [1, 6, "beacon: beacon(payload)"]
    assert found[-1]["parts"] == [{"kind": "items", "texts": list(a_view().notes)}]


def test_watching_loads_no_pyspark():
    rooms = ("terminal", "html", "stored")
    names = ", ".join(f"eddyline.report.{room}" for room in rooms)
    code = f"import sys, {names}; sys.exit('pyspark' in sys.modules or 'plotly' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
