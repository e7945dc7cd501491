from __future__ import annotations

import math
import re
import sys
from dataclasses import replace
from itertools import pairwise

import pytest

from eddyline.errors import PluginError, SourceError
from eddyline.report import figures
from eddyline.report.html import MAX_ENTRIES, check_packages, write_report, write_reports
from eddyline.report.sections import MAX_COLOURS, Figure, Line, RunView
from eddyline.report.series import MAX_POINTS
from eddyline.runtime.journal import JournalEntry
from tests.report.fakes import NAMES, a_run, a_view, many_names, run_of
from tests.report.pages import elements_of, figures_of, own_part, page_of

COST = "Expected cost per row, in force and as written (grey)"
ORDER = "Order in force"
FIGURES = {
    ORDER,
    "Rows dropped of those that reach a filter",
    COST,
    "Evaluations per row",
    "Rows per second",
}


def test_a_run_has_every_figure_and_its_place(tmp_path):
    page = page_of(a_run(), tmp_path)
    places = {attrs["id"] for _, attrs in elements_of(page) if attrs.get("class") == "figure"}
    assert len(places) == len(FIGURES)
    assert set(figures_of(page)) == FIGURES
    for part in (
        "12,070,410",
        "344,439",
        "FROM packets",
        "sample_prob",
        "cost before: ",
        "beacon",
    ):
        assert part in own_part(page)


def test_the_page_loads_nothing(tmp_path):
    page = page_of(a_run(), tmp_path)
    found = elements_of(page)
    assert not [tag for tag, _ in found if tag in {"link", "img", "iframe", "object", "embed"}]
    assert not [attrs for _, attrs in found if attrs.keys() & {"src", "href", "srcset", "action"}]
    assert "default-src 'none'" in page
    assert page.count("plotly.js v") == 1, "the drawing code is there once"
    assert "url(" not in own_part(page)


def test_a_long_run_is_thinned_to_as_many_points_as_a_figure_may_have(tmp_path):
    page = page_of(a_run(5_000), tmp_path)
    assert "5,000 batches as 1,000 points of up to 5 batches each" in page
    figures = figures_of(page)
    assert {len(trace["x"]) for each in figures.values() for trace in each["data"]} == {MAX_POINTS}
    assert len(own_part(page)) < 600_000


def test_two_hundred_filters_show_twenty(tmp_path):
    names = many_names(200)
    page = page_of(a_run(100, names, tuple(float(f + 10) for f in range(200))), tmp_path)
    figure = figures_of(page)[f"{ORDER}, among the 20 shown"]
    assert len(figure["data"]) == 20
    assert len({trace["slot"] for trace in figure["data"]}) == MAX_COLOURS + 1
    assert "Shown are the 20 filters" in page
    assert len(own_part(page)) < 1_000_000


def test_a_run_without_batches(tmp_path):
    page = page_of(RunView(query="q", text="SELECT 1"), tmp_path)
    assert "No batch has run yet" in page
    assert "No decision was taken" in page
    assert figures_of(page) == {}
    assert len(page) < 20_000, "nothing is drawn, so the drawing code is not there"


def test_a_single_batch(tmp_path):
    page = page_of(a_run(1), tmp_path)
    trace = figures_of(page)[ORDER]["data"][0]
    assert trace["mode"] == "lines+markers"
    assert "did not change" in page


@pytest.mark.parametrize("missing", [math.nan, math.inf, None])
def test_values_that_are_not_known(missing, tmp_path):
    batches = a_run(12).history.batches
    blind = [
        replace(
            batch,
            seconds=missing,
            ended_at=missing,
            operators=(
                replace(
                    batch.operators[0],
                    drop_fracs=(missing,) * len(NAMES),
                    cost_ns=missing,
                    as_written_ns=missing,
                    n_evaluations=0,
                ),
            ),
        )
        for batch in batches
    ]
    page = page_of(run_of(a_view(), tuple(blind)), tmp_path)
    assert set(figures_of(page)) == {ORDER}
    assert "Work</h2>" not in page
    assert not re.search(r"\bnan\b|\bNone\b|\binf\b", own_part(page))
    mixed = (*batches[:6], *blind[6:])
    assert set(figures_of(page_of(run_of(a_view(), mixed), tmp_path))) == FIGURES


def test_batches_without_blocks_still_have_their_rate(tmp_path):
    bare = tuple(replace(batch, operators=()) for batch in a_run(12).history.batches)
    page = page_of(run_of(a_view(), bare), tmp_path)
    assert set(figures_of(page)) == {"Rows per second"}


def test_a_long_journal_shows_the_newest(tmp_path):
    entries = tuple(JournalEntry(i, "arrow", "order", ["a"], ["b"]) for i in range(MAX_ENTRIES + 9))
    page = page_of(run_of(a_view(), a_run(3).history.batches, entries), tmp_path)
    assert page.count('<td class="part">') == MAX_ENTRIES
    assert f"the newest {MAX_ENTRIES} of {MAX_ENTRIES + 9}" in page


def test_an_entry_without_plans_says_nothing_of_their_parts(tmp_path):
    stale = JournalEntry(1, "arrow", "stale", evidence={"n_tuples": 7})
    same = JournalEntry(2, "arrow", "routes", "two classes", "two classes")
    page = own_part(page_of(run_of(a_view(), a_run(3).history.batches, (stale, same)), tmp_path))
    assert "n tuples: 7" in page
    assert page.count("the parts are others") == 2, "in the journal, and as the last change"


def test_labels_keep_apart_and_inside():
    labels = [{"y": y, "text": "x", "slot": 0} for y in (0.0, 0.01, 0.5, 0.505, 1.0, 1.0)]
    moved = sorted(label["y"] for label in figures.apart(labels, 1.02))
    gaps = [high - low for low, high in pairwise(moved)]
    assert min(gaps) >= 1.02 * 17 / figures.HEIGHT_PX
    assert moved[0] >= 0.0
    assert moved[-1] <= 1.02


@pytest.mark.parametrize("package", ["plotly.offline", "jinja2"])
def test_without_a_package_the_error_says_what_to_install(tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(PluginError, match=package.split(".")[0]):
        check_packages()
    with pytest.raises(PluginError, match=r"pip install 'eddyline\[report\]'"):
        write_report(a_run(2), tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_folders_are_made_and_a_bad_path_is_said(tmp_path):
    assert write_report(a_run(2), tmp_path / "a" / "b.html").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(SourceError, match="cannot write the report"):
        write_report(a_run(2), tmp_path / "file" / "b.html")


def test_several_reports_share_the_plotting_library_and_the_asked_file_leads_to_them(tmp_path):
    views = [replace(a_run(2), query=name) for name in ("few", "a/b", "a_b")]
    asked = tmp_path / "out" / "report.html"
    files = write_reports(views, asked)
    names = [
        "report.html",
        "report-few.html",
        "report-a_b.html",
        "report-a_b_2.html",
        "report-plotly.js",
    ]
    assert [each.relative_to(asked.parent).as_posix() for each in files] == names
    assert sorted(each.name for each in asked.parent.iterdir()) == sorted(names)
    index, few, _, _, library = (each.read_text("utf-8") for each in files)
    assert 'href="report-few.html">few<' in index
    assert 'href="report-a_b.html">a/b<' in index
    assert 'href="report-a_b_2.html">a_b<' in index
    assert '<script src="report-plotly.js"></script>' in few
    assert len(few) < len(library) / 10
    assert "script-src 'unsafe-inline' 'self' file:;" in few


def test_a_single_report_needs_no_other_file(tmp_path):
    (file,) = write_reports([a_run(2)], tmp_path / "report.html")
    page = file.read_text("utf-8")
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
    assert "<script src=" not in page
    assert "script-src 'unsafe-inline';" in page


def test_the_interval_of_a_report_starts_when_its_first_batch_did(tmp_path):
    run = a_run(2)
    at = 1_700_000_000.0  # 22:13:20 UTC
    batches = (
        replace(run.history.batches[0], ended_at=at, seconds=20.0),
        replace(run.history.batches[1], ended_at=at + 5.0, seconds=5.0),
    )
    run = replace(run, history=replace(run.history, batches=batches))
    page = write_report(run, tmp_path / "report.html").read_text("utf-8")
    assert "eddyline run, 2023-11-14 22:13:00 to 22:13:25 UTC" in page


def test_decisions_of_tasks_stand_apart(tmp_path):
    of_driver = JournalEntry(1, "arrow", "order", ["a", "b"], ["b", "a"])
    of_task = JournalEntry(1, "arrow", "order", ["c", "d"], ["d", "c"], {"partition": 3})
    page = own_part(page_of(run_of(a_view(), (), (of_task, of_driver)), tmp_path))
    first, _, folded = page.partition("<summary>Decisions of tasks")
    assert "b → a" in first
    assert "d → c" not in first
    assert "d → c" in folded
    assert "b → a" not in folded
    assert "<summary>Decisions of tasks" not in page_of(
        run_of(a_view(), (), (of_driver,)), tmp_path
    )


def test_lines_of_one_name_have_one_colour_on_a_page():
    colours = figures.Colours()

    def slots(*names, muted=()):
        lines = tuple(Line(name, (1.0,), is_muted=name in muted) for name in names)
        return colours.slots_of(Figure("f", (0,), lines, "number"))

    assert slots("s", "t", "u") == [0, 1, 2]
    assert slots("u", "t") == [2, 1]
    assert slots("new", "s") == [1, 0]
    assert slots("t", "new") == [1, 0], "its colour is t's, which came first"
    assert slots("s", "as written", muted=("as written",)) == [0, figures.MUTED]
    many = slots(*(f"line {at}" for at in range(20)))
    assert sorted(many) == [figures.MUTED] * (20 - MAX_COLOURS) + list(range(MAX_COLOURS))
