"""What notebooks show: explanations as HTML without script, progress that is updated in place."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from types import ModuleType

import pytest
from rich.console import Console

import eddyline as el
from eddyline.report.html import fragment
from eddyline.report.sections import Facts, Figure, Items, Line, Section, Table, Text, columns
from eddyline.report.terminal import ProgressLine
from eddyline.runtime.records import BatchRecord

EVIL = "<script>alert(1)</script>\"'&"
SECTIONS = [
    Section("", (Text(f"leads {EVIL}"),)),
    Section(
        f"title {EVIL}",
        (
            Items((EVIL,)),
            Facts(((EVIL, EVIL),)),
            Table(columns("name, n: count"), ((EVIL, 3),), EVIL),
            Figure("drawn", (0,), (Line("x", (1.0,)),), "count"),
        ),
    ),
    Section("aside", (Text("folded up"),), is_aside=True),
]


class Tags(HTMLParser):
    """The tags and attributes of a piece of HTML, and whether they close each other."""

    def __init__(self, text):
        super().__init__()
        self.names, self.attributes, self.texts, self._open = set(), set(), [], []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_an_explanation_is_html_without_script():
    found = Tags(fragment(EVIL, SECTIONS, steps=[f"step {EVIL}"]))
    assert "script" not in found.names
    assert found.attributes <= {"class"}
    text = "".join(found.texts)
    assert text.count(EVIL) >= 7
    assert "folded up" in text
    assert "drawn" not in text


def test_without_the_extra_it_is_the_text_of_the_terminal(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    made = fragment(EVIL, SECTIONS)
    found = Tags(made)
    assert found.names == {"pre"}
    assert f"leads {EVIL}" in "".join(found.texts)


def test_a_set_of_rules_and_a_conjunction_show_what_they_are_before_they_ran():
    rules = Tags(el.RuleSet({"r1": "a < 5"})._repr_html_())
    assert "r1: a < 5" in "".join(rules.texts)
    keep = Tags(el.all_of("a < 5", "b > 3")._repr_html_())
    assert "a < 5\nb > 3" in "".join(keep.texts)


class Handle:
    def __init__(self, shown):
        self.shown = [shown]

    def update(self, shown):
        self.shown.append(shown)


@pytest.fixture
def handles(monkeypatch):
    """IPython's display, as far as progress needs it."""
    made = []

    def display(shown, *, display_id):
        assert display_id is True
        made.append(Handle(shown))
        return made[-1]

    module = ModuleType("IPython.display")
    module.HTML, module.display = str, display
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return made


def test_progress_in_a_notebook_is_updated_in_place(handles):
    with ProgressLine("<q>", console=Console(force_jupyter=True)) as line:
        for batch_id in range(3):
            line.update(BatchRecord(batch_id, 100, 10, 0.1, lines=(f"plan {batch_id}",)))
    (cell,) = handles
    assert len(cell.shown) == 5
    assert "waiting for the first batch" in cell.shown[0]
    assert "300 in 3 batches, 30 out" in cell.shown[-1]
    assert "plan 2" in cell.shown[-1]
    assert "✔" in cell.shown[-1]
    assert "&lt;q&gt;" in cell.shown[-1]


def test_a_quiet_one_shows_nothing_in_a_notebook(handles):
    with ProgressLine("q", console=Console(force_jupyter=True), quiet=True) as line:
        line.update(BatchRecord(0, 100, 10, 0.1))
    assert handles == []
