from __future__ import annotations

from dataclasses import replace

import pytest

from eddyline.report.sections import (
    Facts,
    Figure,
    Items,
    Line,
    Section,
    Table,
    Text,
    Tile,
    arranged,
    columns,
    notes,
)
from eddyline.report.terminal import explain
from tests.report.fakes import a_block, a_join_view, a_view, sections_of, told


def test_several_operators_are_one_explanation():
    first = sections_of(a_view(notes=("one", "two")))
    other = sections_of(
        a_view(blocks=(a_block(component="arrow of s"),), notes=("two", "three"), pinned=())
    )
    found = arranged([*first, *sections_of(a_join_view()), *other, *notes(["of the run"])])
    titles = [each.title for each in found]
    assert titles == [
        "",
        "arrow block: order is learned",
        "pinned: keeps its place",
        "inputs",
        "pipelines: orders are learned",
        "caches of joined rows",
        "arrow block of s: order is learned",
        "notes",
        "what the words mean",
    ]
    noted = ("one", "two", "a note", "three", "of the run")
    assert found[-2].parts == (Items(noted),)


def test_nothing_is_lost_or_said_twice():
    lead = Section("", (Text("a"), Text("b")), (Tile("x", 1.0, "count"),))
    more = Section("", (Text("b"), Text("c")), (Tile("y", 2.0, "count"),))
    body = Section("t", (Text("d"),))
    found = arranged([body, lead, body, more])
    assert [each.title for each in found] == ["", "t", "t"]
    assert found[0].parts == (Text("a"), Text("b"), Text("c"))
    assert [tile.name for tile in found[0].tiles] == ["x", "y"]
    assert arranged([]) == []
    assert arranged(arranged([body, lead, more])) == arranged([body, lead, more])


def test_steps_stand_above_and_long_ones_go_on_below_their_text():
    steps = ("project s: a", "└─ filter s: " + "word " * 30, "   └─ read s")
    lines = explain("q", [], steps=steps, width=40).splitlines()
    assert lines[:3] == ["q", "project s: a", "└─ filter s: word word word word word"]
    assert all(line.startswith("   word") for line in lines[3:-1])
    assert lines[-1] == "   └─ read s"


def test_one_operators_sections_stay_as_they_are():
    for view in (a_view(), a_join_view()):
        made = sections_of(view)
        assert arranged(made) == made
    assert told(replace(a_view(), notes=())).endswith("it may raise\n")


@pytest.mark.parametrize(
    "part",
    [
        Text(""),
        Items(()),
        Facts(()),
        Table(columns("a, b"), (), "a note"),
        Figure("f", (0, 1), (Line("l", (None, float("nan"))),), "number"),
    ],
)
def test_what_has_no_content_is_left_out(part):
    assert arranged([Section("empty", (part,)), Section("", (Text("a"),))]) == [
        Section("", (Text("a"),))
    ]
    assert arranged([Section("t", (part, Text("a")))]) == [Section("t", (Text("a"),))]


def test_numbers_that_are_not_known_have_no_column():
    table = Table(
        columns("name, why, hits: number, n: count"), (("a", "", None, 0), ("b", "", None, 2))
    )
    (section,) = arranged([Section("t", (table,))])
    assert section.parts == (Table(columns("name, why, n: count"), (("a", "", 0), ("b", "", 2))),)


def test_a_row_that_has_no_room_leaves_out_what_is_not_known():
    table = Table(
        columns("name, hits: number, of all: share"), (("a" * 30, None, 0.5), ("b", 2.0, None))
    )
    text = explain("q", [Section("t", (table,))], width=20)
    assert "hits -" not in text
    assert "of all 50.0 %" in text
