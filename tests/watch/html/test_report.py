from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from eddyline.errors import PluginError, SourceError
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.records import RunView
from eddyline.watch.html import figures
from eddyline.watch.html.report import MAX_ENTRIES, write_report
from eddyline.watch.html.series import MAX_POINTS
from tests.watch.fakes import NAMES, a_block, a_run, a_view, many_names

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("plotly")

EVIL = (
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<img src=x onerror=alert(3)>",
    "a & b",
    "\"><b onclick='alert(4)'>",
    "%{x} <b>bold</b>",
)


class Elements(HTMLParser):
    """Collects the elements of a page with their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def page_of(view: RunView, tmp_path: Path) -> str:
    return write_report(view, tmp_path / "report.html").read_text("utf-8")


def own_part(page: str) -> str:
    """Return the page without Plotly's own code."""
    return re.sub(r"<script>/\*\*.*?</script>", "<script></script>", page, flags=re.DOTALL)


def elements_of(page: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Elements()
    parser.feed(own_part(page))
    return parser.found


def figures_of(page: str) -> dict[str, figures.Figure]:
    found = re.search(r'id="figures">(.*?)</script>', page, flags=re.DOTALL)
    return json.loads(found.group(1)) if found else {}


def test_a_run_has_every_figure_and_its_place(tmp_path):
    page = page_of(a_run(), tmp_path)
    places = {attrs["id"] for _, attrs in elements_of(page) if attrs.get("class") == "figure"}
    assert places == set(figures_of(page))
    assert places == {
        "block-0-order",
        "block-0-drops",
        "block-0-cost",
        "run-rate",
        "run-evaluations",
    }
    for part in (
        "12,070,410",
        "344,439",
        "FROM packets",
        "sample_prob",
        "cost before ns",
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


def test_users_texts_are_escaped_everywhere(tmp_path):
    entry = JournalEntry(1, EVIL[0], EVIL[1], list(EVIL), [EVIL[2]], {EVIL[0]: EVIL[1]})
    run = replace(
        a_run(20, EVIL),
        query=EVIL[0],
        text=EVIL[1],
        journal=(entry,),
        filter_view=a_view(name=EVIL[2], blocks=(a_block(EVIL),), last_change=entry),
        settings={EVIL[2]: EVIL[4]},
    )
    page = page_of(run, tmp_path)
    found = elements_of(page)
    assert [tag for tag, _ in found].count("script") == 3
    assert not [tag for tag, _ in found if tag in {"img", "b"}]
    assert not [attrs for _, attrs in found if any(name.startswith("on") for name in attrs)]
    names = [trace["name"] for trace in figures_of(page)["block-0-order"]["data"]]
    assert not [name for name in names if "<" in name]


def test_a_long_run_is_thinned_out_and_says_so(tmp_path):
    page = page_of(a_run(5_000), tmp_path)
    assert "5,000 batches as 1,000 points of up to 5 batches each" in page
    for figure in figures_of(page).values():
        assert all(len(trace["x"]) <= MAX_POINTS for trace in figure["data"])
    assert len(own_part(page)) < 2_000_000


def test_two_hundred_filters_show_twenty(tmp_path):
    names = many_names(200)
    page = page_of(a_run(100, names, tuple(float(f + 10) for f in range(200))), tmp_path)
    figure = figures_of(page)["block-0-order"]
    assert len(figure["data"]) == 20
    assert len({trace["slot"] for trace in figure["data"]}) == figures.N_SLOTS + 1
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
    trace = figures_of(page)["block-0-order"]["data"][0]
    assert trace["mode"] == "lines+markers"
    assert "did not change" in page


@pytest.mark.parametrize("missing", [math.nan, math.inf, None])
def test_values_that_are_not_known(missing, tmp_path):
    run = a_run(12)
    blind = [
        replace(
            batch,
            seconds=missing,
            ended_at=missing,
            blocks=(
                replace(
                    batch.blocks[0],
                    drop_fracs=(missing,) * len(NAMES),
                    cost_ns=missing,
                    as_written_ns=missing,
                    n_evaluations=0,
                ),
            ),
        )
        for batch in run.batches
    ]
    page = page_of(replace(run, batches=tuple(blind), filter_view=None), tmp_path)
    assert set(figures_of(page)) == {"block-0-order"}
    assert "Nothing was measured" in page
    assert not re.search(r"\bnan\b|\bNone\b|\binf\b", own_part(page))
    mixed = (*run.batches[:6], *blind[6:])
    assert len(figures_of(page_of(replace(run, batches=mixed), tmp_path))) == 5


def test_batches_without_blocks_still_have_their_rate(tmp_path):
    run = a_run(12)
    bare = tuple(replace(batch, blocks=()) for batch in run.batches)
    page = page_of(replace(run, batches=bare), tmp_path)
    assert set(figures_of(page)) == {"run-rate"}


def test_a_long_journal_shows_the_newest(tmp_path):
    entries = tuple(JournalEntry(i, "arrow", "order", ["a"], ["b"]) for i in range(MAX_ENTRIES + 9))
    page = page_of(replace(a_run(3), journal=entries), tmp_path)
    assert page.count("<tr><td") == MAX_ENTRIES
    assert f"the newest {MAX_ENTRIES} of {MAX_ENTRIES + 9}" in page


def test_an_entry_without_plans_says_nothing_of_their_parts(tmp_path):
    stale = JournalEntry(1, "arrow", "stale", evidence={"n_tuples": 7})
    same = JournalEntry(2, "arrow", "routes", "two classes", "two classes")
    page = own_part(page_of(replace(a_run(3), journal=(stale, same)), tmp_path))
    assert "n tuples: 7" in page
    assert page.count("the parts are others") == 1


def test_labels_keep_apart_and_inside():
    labels = [{"y": y, "text": "x", "slot": 0} for y in (0.0, 0.01, 0.5, 0.505, 1.0, 1.0)]
    moved = sorted(label["y"] for label in figures._apart(labels, 1.02))
    gaps = [high - low for low, high in pairwise(moved)]
    assert min(gaps) >= 1.02 * 17 / figures.HEIGHT_PX
    assert moved[0] >= 0.0
    assert moved[-1] <= 1.02


def test_without_plotly_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(PluginError, match=r"pip install 'eddyline\[report\]'"):
        write_report(a_run(2), tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_folders_are_made_and_a_bad_path_is_said(tmp_path):
    assert write_report(a_run(2), tmp_path / "a" / "b.html").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(SourceError, match="cannot write the report"):
        write_report(a_run(2), tmp_path / "file" / "b.html")
