"""Whatever users call things stays a text: in every table, sentence, figure and tile."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass, replace
from itertools import cycle

import pytest

from eddyline.filters.binding import Pinned
from eddyline.query.conditions import SkippedRule
from eddyline.report import filters, joins, rules
from eddyline.report.progress import progress_lines
from eddyline.report.sections import Facts, Figure, Items, Table, Text, sections_json
from eddyline.report.terminal import batch_line, explain
from eddyline.rules.view import NativeView, RuleRecord
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.order_loop import RouteView
from eddyline.runtime.records import BatchRecord
from tests.report.fakes import a_block, a_join_run, a_join_view, a_run, a_view, run_of
from tests.report.pages import EVIL, check_harmless, elements_of, figures_of, page_of
from tests.report.test_rules import a_rule_view

NAMES = (*EVIL, "tab\there\x1b[31m\x07", "[bold red]x[/] [/] :smile:", "x" * 300, "", "\u202eabc")


def hostile(value, names):
    """Return a value in which every text is hostile; numbers stay."""
    if isinstance(value, str):
        return next(names)
    if isinstance(value, tuple):
        return tuple(hostile(each, names) for each in value)
    if is_dataclass(value):
        texts = {each.name: hostile(getattr(value, each.name), names) for each in fields(value)}
        return replace(value, **texts)
    return value


def a_filter_run():
    names = NAMES[:6]
    block = a_block(
        names,
        note=NAMES[0],
        texts=NAMES[1:7],
        routed_by=NAMES,
        routes=tuple(RouteView(each, (0, 1), 0.5) for each in NAMES),
    )
    view = a_view(
        name=NAMES[2],
        blocks=(block, a_block(names, component=NAMES[3], route_note=NAMES[1])),
        pinned=tuple(Pinned(each, NAMES[2], NAMES[3]) for each in NAMES),
        notes=NAMES,
    )
    return view, a_run(9, names).history.batches, "arrow", filters


def a_rule_run():
    view = replace(
        hostile(replace(a_rule_view(), titles={}, skipped=()), cycle(NAMES)),
        natives=tuple(NativeView(each, each, NAMES, 40) for each in NAMES),
        skipped=tuple(SkippedRule(each, each, each) for each in NAMES),
        titles=dict.fromkeys(NAMES[:4], NAMES[0]),
    )
    records = (RuleRecord(6, NAMES[0], 30, 7, NAMES[1]),)
    lines = progress_lines(records, 9, 0.5)
    batches = tuple(BatchRecord(at, 9, 1, 0.5, 1.0, records, lines) for at in range(3))
    return view, batches, "rules", rules


def a_joined_run():
    view = hostile(a_join_view(), cycle(NAMES))
    batches = []
    for each in a_join_run(9).history.batches:
        records = hostile(each.operators, cycle(NAMES))
        batches.append(replace(each, operators=records, lines=progress_lines(records, 1_000, 0.5)))
    return view, tuple(batches), "join", joins


@pytest.fixture(params=[a_filter_run, a_rule_run, a_joined_run])
def run(request):
    view, batches, component, _ = request.param()
    entry = JournalEntry(1, NAMES[0], NAMES[1], list(NAMES), [NAMES[2]], {NAMES[0]: NAMES[1]})
    seen = [replace(entry, component=component, event=each) for each in ("order", "sharing")]
    return run_of(
        view,
        batches,
        (entry, *seen),
        query=NAMES[0],
        text="\n".join(NAMES),
        steps=NAMES,
        settings=dict(zip(NAMES, reversed(NAMES), strict=True)),
    )


def test_every_kind_of_part_is_tried():
    tried = [run_of(*made()[:2]).sections for made in (a_filter_run, a_rule_run, a_joined_run)]
    for sections in tried:
        kinds = {type(part) for section in sections for part in section.parts}
        assert kinds >= {Text, Table, Figure, Items}
    assert any(isinstance(part, Facts) for each in tried[0] for part in each.parts)


def test_a_page_has_no_element_of_a_users_making(run, tmp_path):
    page = page_of(run, tmp_path)
    check_harmless(page)
    assert "{{ 7 * 7 }}" in page, "nor a template"
    for figure in figures_of(page).values():
        assert not [trace for trace in figure["data"] if "<" in trace["name"]], "Plotly reads HTML"
    for _, attrs in elements_of(page):
        assert set(attrs) <= {
            *(
                "class",
                "id",
                "style",
                "lang",
                "charset",
                "http-equiv",
                "content",
                "name",
                "type",
                "data-kept",
            ),
        }
        assert "x" * 30 not in (attrs.get("style") or "")


@pytest.mark.parametrize("width", [30, 100, 400])
def test_a_terminal_obeys_nothing_and_keeps_its_width(run, width):
    text = explain(run.query, run.sections, steps=run.steps, width=width)
    assert max(map(len, text.splitlines())) <= width
    assert not {char for char in text if not char.isprintable()} - {"\n"}
    if width == 400:
        assert "[bold red]x[/] [/] :smile:" in text
        assert "`tick`" in text
    for batch in run.history.batches:
        assert batch_line(batch).isprintable()


def test_json_holds_the_texts_as_they_are(run):
    found = sections_json(run.sections)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
